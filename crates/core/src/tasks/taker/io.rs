//! Inputs and effects of the taker.

use super::super::{InboxDoc, Outcome};
use crate::id::{JobId, KindName};
use crate::io::{RequestId, WriteAnswer};
use crate::seat::{Epoch, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the taker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TakerInput {
    /// Nothing but the time.
    Wake,
    /// Look now: something is new.
    Nudge,
    /// The inbox was read.
    Read(RequestId, TakerRead),
    /// The inbox was written.
    Written(RequestId, WriteAnswer),
    /// Whether the worker's id was found to be this life's. `false` also if there was no answer.
    Confirmed(RequestId, bool),
    /// What was run has ended.
    Ended {
        /// Which task.
        id: JobId,
        /// Which attempt.
        attempt: u32,
        /// How.
        outcome: Outcome,
    },
    /// Take nothing new, end what runs, write its results, then end.
    Drain,
}

/// The outcome of reading the inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TakerRead {
    /// The inbox.
    Found {
        /// As it stands.
        doc: InboxDoc,
        /// Its version.
        version: Version,
        /// The entries that the fence turns away.
        fenced: BTreeSet<(JobId, u32)>,
    },
    /// It still has the version asked about.
    Unchanged,
    /// There is none.
    Absent,
    /// There is something that is none.
    Unreadable,
    /// No answer, or refused.
    Unavailable,
}

/// What the taker wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TakerEffect {
    /// Read the inbox, unless it still has this version.
    Read(RequestId, Option<Version>),
    /// Write the inbox, if it still has this version.
    Write(RequestId, InboxDoc, Version),
    /// Read the worker's registration, and say whether the id is still this life's.
    Confirm(RequestId),
    /// Run this; it was claimed.
    Run {
        /// Which task.
        id: JobId,
        /// Which attempt.
        attempt: u32,
        /// The epoch it was dispatched in.
        epoch: Epoch,
        /// What it is.
        kind: KindName,
        /// What it is about.
        payload: Arc<[u8]>,
        /// How long it may take.
        timeout_ms: u64,
    },
    /// Stop running this. With `dropped`, whatever it still says is of no interest.
    Cancel {
        /// Which task.
        id: JobId,
        /// Which attempt.
        attempt: u32,
        /// Nobody waits for its outcome.
        dropped: bool,
    },
    /// Everything is written and nothing runs: the end of draining.
    Drained,
}

/// What a taker has counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TakerCounts {
    /// Attempts claimed.
    pub claimed: u64,
    /// Entries that the fence turned away, each once.
    pub fenced: u64,
    /// Entries that were delivered again after they had been run; not run again.
    pub duplicates: u64,
    /// Attempts whose entry vanished while they ran.
    pub orphaned: u64,
    /// Entries a former life of the worker had claimed.
    pub abandoned: u64,
    /// Times the inbox could not be understood.
    pub unreadable: u64,
}

impl TakerCounts {
    /// Both together: of one that went on elsewhere.
    #[must_use]
    pub fn and(self, other: TakerCounts) -> TakerCounts {
        TakerCounts {
            claimed: self.claimed + other.claimed,
            fenced: self.fenced + other.fenced,
            duplicates: self.duplicates + other.duplicates,
            orphaned: self.orphaned + other.orphaned,
            abandoned: self.abandoned + other.abandoned,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}
