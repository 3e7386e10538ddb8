//! Commands, requests and outputs of the dispatcher.

use super::super::{InboxDoc, JobRecord, JobState, LedgerDoc, OutcomeKind};
use crate::document::{DocumentAnswer, DocumentRequest};
use crate::election::Version;
use crate::id::{JobId, SeriesId, WorkerId};
use crate::machine::Request;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What can happen to a dispatcher, besides time and answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchCommand<F> {
    /// New jobs, each with a token for its answer. The dispatcher sets state, attempt and the like.
    Submit(Vec<(u64, JobRecord)>),
    /// These series are no longer used. Their watermarks may be forgotten, up to the given ones, once none of their jobs is
    /// left. After that, what was created in them before can be created again.
    Forget(Vec<(SeriesId, u64)>),
    /// Cancel this job.
    Cancel(JobId),
    /// The workers as the registry knows them.
    Workers {
        /// Whether each worker is active.
        list: BTreeMap<WorkerId, bool>,
        /// Whether this leader has listed them itself. A former leader's list is good enough to hand out work, but not to
        /// call a worker gone: whoever arrived or came back since is missing from it.
        listed: bool,
        /// Whether the list is complete, so that whoever is missing does not exist.
        whole: bool,
    },
    /// What assignment goes by has changed: waiting jobs are tried again.
    Facts(F),
}

/// One entry in the list of inboxes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InboxListed {
    /// The worker whose inbox it is.
    pub worker: WorkerId,
    /// The version of the inbox; `None` if lists on this store have no versions.
    pub version: Option<Version>,
    /// Time of the last change, and size.
    pub stamp: (u64, u64),
}

/// What a dispatcher tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchOutput {
    /// The answer to the submission with this token.
    Answered(u64, SubmitAnswer),
    /// The state of a job has changed.
    Update(JobUpdate),
    /// A job was claimed for the first time, this long after its submission.
    Claimed {
        /// In milliseconds.
        after_ms: u64,
    },
    /// The dispatcher has ended.
    Ended(DispatchEnd),
}

/// A request to the store, if leadership still holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchRequest {
    /// For a part of the ledger.
    Ledger(usize, DocumentRequest<LedgerDoc>),
    /// For a worker's inbox. It is removed only if this leader has emptied it with a conditional write, and its worker is
    /// gone for good.
    Inbox(WorkerId, DocumentRequest<InboxDoc>),
    /// List the inboxes.
    ListInboxes,
    /// Move finished jobs of a part to the archive.
    Archive(usize, Vec<JobRecord>),
}

/// The answer to a [`DispatchRequest`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchAnswer {
    /// From a part of the ledger.
    Ledger(usize, DocumentAnswer<LedgerDoc>),
    /// From a worker's inbox.
    Inbox(WorkerId, DocumentAnswer<InboxDoc>),
    /// The inboxes; `None` if listing failed.
    Listed(Option<Vec<InboxListed>>),
    /// Whether the jobs of this part were archived.
    Archived(usize, bool),
}

impl Request for DispatchRequest {
    type Answer = DispatchAnswer;

    fn unanswered(&self) -> DispatchAnswer {
        match self {
            DispatchRequest::Ledger(part, request) => DispatchAnswer::Ledger(*part, request.unanswered()),
            DispatchRequest::Inbox(worker, request) => {
                DispatchAnswer::Inbox(worker.clone(), request.unanswered())
            }
            DispatchRequest::ListInboxes => DispatchAnswer::Listed(None),
            DispatchRequest::Archive(part, _) => DispatchAnswer::Archived(*part, false),
        }
    }
}

/// The answer to a submission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubmitAnswer {
    /// The job is in the ledger.
    Created,
    /// The job was already in the ledger.
    Exists,
    /// The watermark of the job is at or below the watermark of its series.
    BelowWatermark,
    /// Its shard has no room.
    Full,
    /// Its shard cannot be read and is left alone.
    Blocked,
    /// The dispatcher has ended. Whether the job exists is not known.
    Ended,
}

/// The state of a job has changed. Final states are reported only once they are in the ledger.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobUpdate {
    /// The id of the job.
    pub id: JobId,
    /// Its series.
    pub series: SeriesId,
    /// The new state.
    pub state: JobState,
    /// The attempt it concerns.
    pub attempt: u32,
    /// The worker of that attempt; `None` before the first.
    pub worker: Option<WorkerId>,
    /// Why the state changed. For people.
    pub reason: Arc<str>,
    /// The result, for final states; otherwise empty.
    pub result: Arc<[u8]>,
    /// Set if this reports the result of an attempt that had been given up: it was recorded, but not applied.
    pub late: Option<OutcomeKind>,
}

/// Why a dispatcher ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEnd {
    /// Another leader has taken over the ledger.
    Superseded,
}

/// Counters of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DispatchCounts {
    /// Jobs created.
    pub created: u64,
    /// Attempts written into inboxes.
    pub dispatched: u64,
    /// Jobs that reached a final state.
    pub finished: u64,
    /// Attempts judged lost.
    pub lost: u64,
    /// Results of attempts that had been given up.
    pub late: u64,
    /// Submissions and results that were already known.
    pub duplicates: u64,
    /// Entries and objects that belong to nobody or cannot be understood.
    pub rejected: u64,
}
