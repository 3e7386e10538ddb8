//! The planner: decides which due times become jobs now. The logic is in the core, so that the simulator can test it.

use super::schedule::Schedule;

pub use tenure::schedules::{Due, JobAnswer as Answer, PlanCounts, SeriesView};

/// Decides which due times become jobs.
pub type Planner = tenure::schedules::Planner<Schedule>;

#[cfg(test)]
mod tests;
