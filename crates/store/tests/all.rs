//! The tests of this crate in one program: many programs would take longer to link than to run. Those beside it need a feature or an
//! engine.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

mod common;
mod conformance;
mod credentials;
mod http;
mod sqlite;
mod urls;
mod wrappers;
