//! Every test of this crate that needs no feature, in one program: many would take longer to link than to run.

mod claimer;
mod dispatcher;
mod documents;
mod edges;
mod fallback;
mod job_world;
mod jobs;
mod planner;
mod processes;
mod registration;
mod supervision;
mod sweep;
mod transcripts;
mod two_seats;
mod views;
mod workers;
mod world;
