//! The tests of this crate in one program: many programs would take longer to link than to run.

mod cluster_health;
mod common;
mod hardship;
mod notices;
mod run_now;
mod schedules;
mod schedules_scale;
mod terms;
