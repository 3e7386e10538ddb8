//! The tests of this crate in one program: many programs would take longer to link than to run. Those beside it need a feature or an
//! engine.

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
mod transcripts;
mod two_seats;
mod views;
mod workers;
mod world;
