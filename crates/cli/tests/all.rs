//! The tests of the command line: real processes of the shipped program, which `cargo build` makes. They are a package of their own,
//! because cargo would build that program once more, with the features of tests, for tests that stand beside it.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

mod bad_input;
mod commands;
mod common;
mod dashboard;
mod election;
mod engines;
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
#[cfg(target_os = "linux")]
mod leftovers;
mod lock;
mod newcomer;
mod nodes;
mod notices;
mod once;
#[cfg(feature = "otlp")]
mod otlp;
mod outage;
mod page;
mod pipes;
mod postgres;
mod recipes;
mod schedules;
mod schemathesis;
mod scrape;
mod step_down;
mod watch;
mod workers;
