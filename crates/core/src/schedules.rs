//! Scheduled jobs: when they are due, and which due times become jobs. The wall clock is an input, in milliseconds since
//! 1970; every leader with the same schedules comes to the same answer.

use crate::id::ScheduleId;
use std::sync::Arc;

mod planner;
mod scheduler;

pub use planner::{Due, JobAnswer, Missed, PlanCounts, Planner, SeriesView};
pub use scheduler::{
    NewJob, ObservedJob, Requested, RunAnswer, Scheduler, SchedulerCommand, SchedulerOutput, SubmitJobs,
};

/// Due times of a schedule. Calendars live elsewhere and implement this.
pub trait DueTimes {
    /// The first due time after this moment; `None` if there is none.
    fn next(&self, after_ms: u64) -> Option<u64>;

    /// The newest due times after `after_ms`, up to and including `until_ms`, in order; at most `count`.
    fn newest(&self, after_ms: u64, until_ms: u64, count: usize) -> Vec<u64>;

    /// How many due times lie after `after_ms`, up to and including `until_ms`; counts no further than `most`.
    fn count(&self, after_ms: u64, until_ms: u64, most: u64) -> u64;

    /// When the job of this due time begins: at the due time, or later by a jitter that is the same for everybody.
    fn begins_ms(&self, schedule: &str, due_ms: u64) -> u64;

    fn jitter_max_ms(&self) -> u64;
}

/// The terms a schedule is planned by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScheduleTerms {
    /// Whether any jobs are created.
    pub enabled: bool,
    /// If several schedules are due at once, those with a higher priority come first.
    pub priority: u64,
    /// How many of its jobs may be open at the same time.
    pub open_max: u64,
    pub misfire: Misfire,
    /// How late a due time may be without counting as missed.
    pub misfire_threshold_ms: u64,
    /// Due times at or before this moment are ignored.
    pub since_ms: u64,
}

/// A schedule, as far as the planner is concerned.
pub trait Planned {
    type Times: DueTimes;

    /// The name of the schedule, which is also the series of its jobs.
    fn id(&self) -> &ScheduleId;

    fn terms(&self) -> ScheduleTerms;

    fn times(&self) -> &Self::Times;
}

impl<S: Planned> Planned for Arc<S> {
    type Times = S::Times;

    fn id(&self) -> &ScheduleId {
        (**self).id()
    }

    fn terms(&self) -> ScheduleTerms {
        (**self).terms()
    }

    fn times(&self) -> &S::Times {
        (**self).times()
    }
}

/// What happens to due times missed by more than the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misfire {
    /// None of them is created.
    Skip,
    /// The newest of them is created.
    RunOnce,
    /// The newest ones are created, up to this many.
    CatchUp(usize),
}

impl Misfire {
    /// How many of the missed due times are created.
    pub fn kept(self) -> usize {
        match self {
            Misfire::Skip => 0,
            Misfire::RunOnce => 1,
            Misfire::CatchUp(newest) => newest,
        }
    }
}

impl std::fmt::Display for Misfire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Misfire::Skip => f.write_str("skip"),
            Misfire::RunOnce => f.write_str("run_once"),
            Misfire::CatchUp(newest) => write!(f, "catch_up({newest})"),
        }
    }
}

/// A fixed interval counted from 1970: due at `offset_ms` + n × `every_ms`, whoever leads and whenever it started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interval {
    /// The length of the interval: at least 1 s.
    pub every_ms: u64,
    /// How long after a multiple of `every_ms`; less than `every_ms`.
    pub offset_ms: u64,
    /// The longest jitter, less than `every_ms`. The jitter is random, but always the same for a given schedule and due
    /// time.
    pub jitter_ms: u64,
}

impl DueTimes for Interval {
    fn next(&self, after_ms: u64) -> Option<u64> {
        if after_ms < self.offset_ms {
            return Some(self.offset_ms);
        }
        let rounds = (after_ms - self.offset_ms) / self.every_ms + 1;
        rounds.checked_mul(self.every_ms)?.checked_add(self.offset_ms)
    }

    fn newest(&self, after_ms: u64, until_ms: u64, count: usize) -> Vec<u64> {
        let count = self.count(after_ms, until_ms, count as u64);
        let Some(since) = until_ms.checked_sub(self.offset_ms) else { return Vec::new() };
        let last = since - since % self.every_ms + self.offset_ms;
        (0..count).rev().map(|back| last - back * self.every_ms).collect()
    }

    fn count(&self, after_ms: u64, until_ms: u64, most: u64) -> u64 {
        let upto = |at_ms: u64| match at_ms.checked_sub(self.offset_ms) {
            Some(since) => since / self.every_ms + 1,
            None => 0,
        };
        upto(until_ms).saturating_sub(upto(after_ms)).min(most)
    }

    fn begins_ms(&self, schedule: &str, due_ms: u64) -> u64 {
        if self.jitter_ms == 0 {
            return due_ms;
        }
        due_ms.saturating_add(spread(schedule, due_ms) % (self.jitter_ms + 1))
    }

    fn jitter_max_ms(&self) -> u64 {
        self.jitter_ms
    }
}

/// A number that looks random and is the same for everybody: FNV-1a of name and due time, mixed once.
fn spread(schedule: &str, due_ms: u64) -> u64 {
    let bytes = schedule.bytes().chain(due_ms.to_be_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // FNV gives similar inputs similar low bits.
    let stirred = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    stirred ^ (stirred >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_what_it_names() {
        let times = Interval { every_ms: 30_000, offset_ms: 5000, jitter_ms: 700 };
        assert_eq!(times.newest(5000, 95_000, 9), [35_000, 65_000, 95_000]);
        assert_eq!(times.newest(5000, 95_000, 2), [65_000, 95_000]);
        assert_eq!((times.count(5000, 95_000, 9), times.count(0, 4999, 9)), (3, 0));
        assert_eq!((times.next(0), times.next(95_000)), (Some(5000), Some(125_000)));
        let begins = times.begins_ms("web", 35_000);
        assert!((35_000..=35_700).contains(&begins) && begins == times.begins_ms("web", 35_000));
    }
}
