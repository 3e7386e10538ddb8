//! Every test of this crate that needs no feature, in one program: many would take longer to link than to run.

mod bad_input;
mod commands;
mod common;
mod election;
mod events;
mod exec;
mod figures;
mod health;
mod hostile;
mod http;
mod leftovers;
mod lock;
mod nodes;
mod outage;
mod pipes;
mod schedules;
mod step_down;
mod watch;
mod workers;
