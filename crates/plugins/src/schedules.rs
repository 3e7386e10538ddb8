//! Schedules: work at due times. The leader plans, and the cluster's workers do the work: checks, commands, requests, or anything.
//!
//! A [`Schedule`] says what to check and when; the [`Scheduler`](tenure::schedules::Scheduler) says which due times become jobs now.
//! Both are pure: the wall clock is an input, and every leader reaches the same answer. The ledger of
//! [`tenure::job`] turns a due time into a job exactly once: a job is named after its schedule and due time, and the series of
//! a schedule never goes back behind its watermark. [`ScheduleRunner`] is the leader-only process that puts them together; the source
//! documents call it PollOrchestrator.

mod cost;
mod fields;
mod figures;
mod job;
#[cfg(test)]
mod planning_tests;
pub(crate) mod problem;
pub(crate) mod read;
mod runner;
pub(crate) mod schedule;
mod stored;
mod term;
mod timing;
pub(crate) mod tree;
mod view;
mod webhook;

pub use cost::cost;
pub use figures::SCHEDULE_METRIC_NAMES;
pub use job::{JobFacts, is_stranded, schedule_of};
pub use problem::{Problem, Problems};
pub use read::Rules;
pub use runner::{
    JobTrouble, JobView, RunnerCounts, RunnerView, SCHEDULE_EVENT_NAMES, SCHEDULES_PROCESS, ScheduleError,
    ScheduleEvent, ScheduleOptions, ScheduleRunner, ScheduleView,
};
pub use schedule::{Action, CHECKS_KIND, CheckSpec, Misfire, Overlap, RunRequest, Schedule, read_file};
pub use stored::{Change, Schedules};
pub use timing::{CronField, CronTimes, Interval, Timing};
pub use view::{CheckOutcome, JobInfo, JobRow, LastRun, LateOutcome, ScheduleCheck, ScheduleReport};
pub use webhook::Webhook;
