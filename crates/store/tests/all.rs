//! The tests of this crate in one program: many programs would take longer to link than to run.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, clippy::print_stdout, reason = "tests")]

mod common;
mod conformance;
mod credentials;
mod engines;
mod http;
mod sqlite;
mod urls;
mod wrappers;
