//! Commands, requests and outputs of the claimer.

use super::super::{InboxDoc, Outcome, Progress};
use crate::document::{DocumentAnswer, DocumentRequest};
use crate::election::Epoch;
use crate::id::{JobId, KindName, QueueName};
use crate::machine::Request;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An entry that the fence has rejected: its job, dispatch and epoch.
pub type Refused = (JobId, u32, Epoch);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerCommand {
    /// There is something new.
    Look,
    /// How far a running attempt is. It is written with whatever comes next, or by itself after a while.
    Progress { id: JobId, dispatch: u32, progress: Progress },
    /// A running attempt has ended.
    Ended { id: JobId, dispatch: u32, outcome: Outcome },
    /// Take nothing new, finish what runs, write the results, then end.
    Drain,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerRequest {
    /// For the worker's inbox. What a read shows is put before the fence, except what the fence has rejected already, so that
    /// each rejection is counted once.
    Inbox(DocumentRequest<InboxDoc>, BTreeSet<Refused>),
    /// Read the worker's registration, and answer whether the id still belongs to this life.
    Confirm,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerAnswer {
    /// From the worker's inbox, with the unclaimed entries that the fence rejects, now or earlier.
    Inbox(DocumentAnswer<InboxDoc>, BTreeSet<Refused>),
    /// Whether the worker's id still belongs to this life. `false` also if nobody knows.
    Confirmed(bool),
}

impl Request for ClaimerRequest {
    type Answer = ClaimerAnswer;

    fn unanswered(&self) -> ClaimerAnswer {
        match self {
            ClaimerRequest::Inbox(request, refused) => {
                ClaimerAnswer::Inbox(request.unanswered(), refused.clone())
            }
            ClaimerRequest::Confirm => ClaimerAnswer::Confirmed(false),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClaimerOutput {
    /// The attempt is claimed. `epoch` is the one it was dispatched in.
    Run {
        id: JobId,
        dispatch: u32,
        /// Which attempt it is, counting only those that were begun.
        attempt: u32,
        epoch: Epoch,
        queue: QueueName,
        kind: KindName,
        payload: Arc<[u8]>,
        timeout_ms: u64,
    },
    /// If `dropped`, nobody waits for the outcome, and nothing the attempt still reports matters.
    Cancel { id: JobId, dispatch: u32, dropped: bool },
    /// Draining is over: everything is written and nothing runs.
    Drained,
}

/// Counters of a claimer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClaimerCounts {
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
