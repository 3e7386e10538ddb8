//! Every test of this crate that needs no feature, in one program: many would take longer to link than to run.

mod access;
mod common;
mod openapi;
mod reads;
mod sockets;
mod workers;
