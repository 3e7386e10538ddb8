//! The tests of this crate in one program: many programs would take longer to link than to run.
#![allow(clippy::unwrap_used, reason = "tests")]

mod checks;
mod linearizable;
mod proxy;
mod schedule;
