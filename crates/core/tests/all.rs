//! The tests of this crate in one program: many programs would take longer to link than to run.
#![allow(clippy::print_stdout, reason = "tests")]

mod claimer;
mod dispatcher;
mod documents;
mod edges;
mod fallback;
mod once;
mod planner;
mod registration;
mod submitter;
mod supervision;
mod sweep;
#[cfg(feature = "teeth")]
mod teeth;
mod transcripts;
mod two_seats;
mod views;
mod workers;
mod world;
