//! Every test of this crate that needs no feature, in one program: many would take longer to link than to run.

mod cluster_health;
mod common;
mod hardship;
mod run_now;
mod schedules;
mod schedules_scale;
