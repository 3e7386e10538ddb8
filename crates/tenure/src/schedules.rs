//! Scheduled jobs: which due times become jobs. Pure, so that every leader comes to the same answer. What makes a due time a
//! job exactly once is the ledger of [`jobs`](crate::job), which never goes back behind the watermark of a series.
//!
//! ```
//! use tenure::id::ScheduleId;
//! use tenure::schedules::{Interval, Misfire, ScheduleTerms, Planned, Planner};
//!
//! struct Backup(ScheduleId, Interval);
//!
//! impl Planned for Backup {
//!     type Times = Interval;
//!     fn id(&self) -> &ScheduleId {
//!         &self.0
//!     }
//!     fn terms(&self) -> ScheduleTerms {
//!         let misfire = Misfire::RunOnce;
//!         ScheduleTerms { enabled: true, priority: 0, open_max: 1, misfire, misfire_threshold_ms: 5000, since_ms: 0 }
//!     }
//!     fn times(&self) -> &Interval {
//!         &self.1
//!     }
//! }
//!
//! let mut planner = Planner::default();
//! let every = Interval { every_ms: 60_000, offset_ms: 0, jitter_ms: 0 };
//! planner.put(Backup(ScheduleId::new("backup").unwrap(), every));
//! let due = planner.plan(190_000);
//! assert_eq!(due.len(), 1, "of those that were missed the newest");
//! assert_eq!((due[0].due_ms, due[0].late_ms), (180_000, 10_000));
//! ```

pub use tenure_core::{
    Due, DueTimes, Interval, JobAnswer, Misfire, Missed, NewJob, ObservedJob, PlanCounts, Planned, Planner,
    Requested, RunAnswer, ScheduleTerms, Scheduler, SchedulerCommand, SchedulerOutput, SeriesView,
    SubmitJobs,
};
