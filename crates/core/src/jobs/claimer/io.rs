//! Inputs and effects of the claimer.

use super::super::{InboxDoc, Outcome};
use crate::election::{Epoch, RequestId, Version, WriteAnswer};
use crate::id::{JobId, KindName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Inputs of [`Claimer::handle`](super::Claimer::handle).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerInput {
    /// Only time has passed.
    Wake,
    /// Look now: there is something new.
    Nudge,
    /// The inbox was read.
    Read(RequestId, ClaimerRead),
    /// The inbox was written.
    Written(RequestId, WriteAnswer),
    /// Whether the worker's id still belongs to this life. `false` also if there was no answer.
    Confirmed(RequestId, bool),
    /// A running attempt has ended.
    Ended {
        /// The id of the job.
        id: JobId,
        /// The number of the attempt.
        attempt: u32,
        /// How it ended, with its result.
        outcome: Outcome,
    },
    /// Take nothing new, finish what runs, write the results, then end.
    Drain,
}

/// The outcome of reading the inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerRead {
    /// There is an inbox.
    Found {
        /// The content of the inbox.
        doc: InboxDoc,
        /// To be passed as the condition of the next write.
        version: Version,
        /// The entries that the fence rejects, by job id and attempt.
        fenced: BTreeSet<(JobId, u32)>,
    },
    /// It still has the version the request named.
    Unchanged,
    /// There is no object.
    Absent,
    /// There is an object, but it is not an inbox.
    Unreadable,
    /// The store did not answer, or refused.
    Unavailable,
}

/// Effects of [`Claimer::handle`](super::Claimer::handle), for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerEffect {
    /// Read the inbox, unless it still has this version.
    Read(RequestId, Option<Version>),
    /// Write the inbox, if it still has this version.
    Write(RequestId, InboxDoc, Version),
    /// Read the worker's registration, and answer whether the id still belongs to this life.
    Confirm(RequestId),
    /// Run this claimed attempt.
    Run {
        /// The id of the job.
        id: JobId,
        /// The number of the attempt.
        attempt: u32,
        /// The epoch it was dispatched in.
        epoch: Epoch,
        /// Which handler to run.
        kind: KindName,
        /// Input for the handler.
        payload: Arc<[u8]>,
        /// How long it may run.
        timeout_ms: u64,
    },
    /// Stop running this attempt.
    Cancel {
        /// The id of the job.
        id: JobId,
        /// The number of the attempt.
        attempt: u32,
        /// If set, nobody waits for its outcome, and nothing it still reports matters.
        dropped: bool,
    },
    /// Draining is over: everything is written and nothing runs.
    Drained,
}

/// Counters of a claimer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClaimerCounts {
    /// Attempts claimed.
    pub claimed: u64,
    /// Entries that the fence rejected, each counted once.
    pub fenced: u64,
    /// Entries delivered again after they had been run; they are not run again.
    pub duplicates: u64,
    /// Attempts whose entry vanished while they ran.
    pub orphaned: u64,
    /// Entries that a former life of the worker had claimed.
    pub abandoned: u64,
    /// Times the inbox could not be understood.
    pub unreadable: u64,
}

impl ClaimerCounts {
    /// The sum of both, for a claimer whose work continued in another.
    #[must_use]
    pub fn and(self, other: ClaimerCounts) -> ClaimerCounts {
        ClaimerCounts {
            claimed: self.claimed + other.claimed,
            fenced: self.fenced + other.fenced,
            duplicates: self.duplicates + other.duplicates,
            orphaned: self.orphaned + other.orphaned,
            abandoned: self.abandoned + other.abandoned,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}
