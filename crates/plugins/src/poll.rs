//! PollOrchestrator: checks things on a schedule. The leader plans, and the cluster's workers run the checks.
//!
//! A [`Schedule`] says what to check and when; the [`Planner`] says which due times become jobs now; [`PollAssign`] says who runs
//! them. All three are pure: the wall clock is an input, and every leader reaches the same answer. The ledger of
//! [`tenure::job`] turns a due time into a job exactly once: a job is named after its schedule and due time, and the series of
//! a schedule never goes back behind its watermark.

mod agent;
mod allowed;
mod check;
mod choice;
mod cost;
mod fields;
mod figures;
mod health;
mod job;
mod lead;
mod orchestrator;
mod planner;
mod problem;
mod reach;
mod read;
mod report;
mod schedule;
mod schedules;
mod shelf;
mod shown;
mod timing;
mod tree;

pub use agent::Checks;
pub use allowed::AllowedCommand;
pub use check::{Check, CommandCheck, DnsCheck, HttpCheck, JobRun, TcpCheck};
pub use choice::{AgentFacts, Fleet, NoWorker, POLL_KIND, PollAssign, choose};
pub use cost::cost;
pub use figures::POLL_METRIC_NAMES;
pub use health::{CheckHealth, Health, Transition};
pub use job::JobFacts;
pub use orchestrator::{
    JobView, POLL_EVENT_NAMES, POLL_PROCESS, PollCounts, PollError, PollEvent, PollOptions, PollOrchestrator,
    PollView, ScheduleView,
};
pub use planner::{Answer, Due, PlanCounts, Planner, SeriesView};
pub use problem::{Problem, Problems};
pub use reach::LinkLocal;
pub use read::Rules;
pub use report::{CheckResult, JobReport};
pub use schedule::{Action, CheckSpec, Misfire, Needs, Overlap, RunRequest, Schedule, read_file};
pub use schedules::{Change, Schedules};
pub use shown::JobRow;
pub use timing::{CronField, CronTimes, Interval, Timing};
