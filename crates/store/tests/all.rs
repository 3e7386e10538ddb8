//! Every test of this crate that needs no feature, in one program: many would take longer to link than to run.

mod common;
mod conformance;
mod credentials;
mod http;
mod sqlite;
mod urls;
mod wrappers;
