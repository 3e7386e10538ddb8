//! The tests of this crate in one program: many programs would take longer to link than to run. Those beside it need an engine, a
//! browser or a feature.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

mod bad_input;
mod commands;
mod common;
mod election;
#[path = "../../tenure/tests/common/epoch_requests.rs"]
mod epoch_requests;
mod events;
mod exec;
mod fencing;
mod figures;
mod health;
mod history;
mod hostile;
mod http;
mod job_logs;
mod jobs;
mod lock;
mod nodes;
mod notices;
mod once;
mod outage;
mod page;
mod pipes;
mod recipes;
mod schedules;
mod step_down;
mod watch;
mod workers;
