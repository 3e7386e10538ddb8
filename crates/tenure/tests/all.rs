//! The tests of this crate in one program: many programs would take longer to link than to run.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod common;
mod contention;
mod cost;
mod diagnostics;
mod election;
mod engines;
#[path = "common/epoch_requests.rs"]
mod epoch_requests;
mod fallback;
mod fenced_documents;
#[path = "../examples/fenced_resources.rs"]
#[allow(dead_code, reason = "it is a program, too")]
mod fenced_example;
mod fenced_http;
mod fenced_resources;
mod fenced_sql;
mod fencing;
mod herd;
mod job_burst;
mod job_history;
mod job_output;
mod job_retention;
#[path = "common/job_rig.rs"]
mod job_rig;
mod job_successors;
mod jobs;
#[path = "common/log.rs"]
mod log;
mod metrics;
mod objects;
mod observer;
#[path = "common/paused_leader.rs"]
mod paused_leader;
mod plugins;
#[path = "common/pods.rs"]
mod pods;
mod postgres;
#[path = "common/postgres.rs"]
mod postgres_server;
mod processes;
mod scale;
mod settings;
mod silent_lists;
mod slow_store;
mod status;
mod step_down;
mod submissions;
mod supervision;
mod sweep_speed;
#[cfg(feature = "teeth")]
mod teeth;
mod telemetry;
#[path = "common/trace.rs"]
mod trace;
mod workers;
