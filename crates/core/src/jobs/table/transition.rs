//! What can happen to a job, and when.

use super::super::model::JobState;
use crate::id::WorkerId;
use crate::time::Time;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::jobs) enum Transition {
    /// Another attempt begins: it is assigned to this worker.
    Dispatch(WorkerId),
    /// Its worker has claimed it, or runs it.
    Claim(JobState),
    /// It waits again, at least this long.
    Requeue { attempt: AttemptEnd, pause_ms: u64, reason: String },
    /// It was over, and is tried again: up to this many attempts in all.
    Retry { attempts_max: u32, retries: u32 },
    /// It is over.
    End { state: JobState, attempt: AttemptEnd, reason: String },
}

/// How the attempt ended that a transition ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::jobs) enum AttemptEnd {
    /// There was none.
    None,
    /// It was withdrawn before anybody claimed it. It does not count, and the wait for a claim continues.
    Withdrawn,
    /// Its worker gave it back without having begun it. It does not count.
    Returned,
    /// It has this result. If it was given up, nobody waits for its result any more.
    Ended { result: Arc<[u8]>, given_up: bool },
}

/// Why an entry is taken out of an inbox unclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::jobs) enum Withdraw {
    Requeue,
    Expire,
    Cancel,
}

/// Since when, on this leader's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::jobs) struct Times {
    pub(in crate::jobs) known_since: Time,
    pub(in crate::jobs) state_since: Time,
    /// Since when it waits to be claimed. The wait continues while it is dispatched but not claimed.
    pub(in crate::jobs) waits_since: Time,
    /// No attempt before this.
    pub(in crate::jobs) not_before: Time,
}

/// This leader's clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::jobs) struct Clocks {
    pub(in crate::jobs) now: Time,
    pub(in crate::jobs) wall_ms: i64,
}

impl Clocks {
    /// When it will be this late by the wall clock, if that goes on as it does now.
    pub(super) fn at(self, wall_ms: i64) -> Time {
        self.now + u64::try_from(wall_ms.saturating_sub(self.wall_ms)).unwrap_or(0)
    }

    /// What the wall clock will show this much later.
    pub(super) fn in_ms(self, pause_ms: u64) -> i64 {
        self.wall_ms.saturating_add_unsigned(pause_ms)
    }
}
