//! The tests of this crate in one program: many programs would take longer to link than to run.

mod access;
mod common;
mod locks;
mod openapi;
mod reads;
mod sockets;
mod work;
mod workers;
