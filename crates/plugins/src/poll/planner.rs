//! The planner: which due times become jobs now. Its decisions are the core's, where the simulator plays them.

use super::schedule::Schedule;

pub use tenure::schedules::{Due, JobAnswer as Answer, PlanCounts, SeriesView};

/// Says which due times become jobs.
pub type Planner = tenure::schedules::Planner<Schedule>;

#[cfg(test)]
mod tests;
