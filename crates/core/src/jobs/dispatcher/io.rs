//! Inputs and effects of the dispatcher.

use super::super::{InboxDoc, JobRecord, JobState, LedgerDoc, OutcomeKind};
use crate::election::{Expect, RequestId, Version, WriteAnswer};
use crate::id::{JobId, SeriesId, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inputs of [`Dispatcher::handle`](super::Dispatcher::handle).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchInput {
    /// Only time has passed.
    Wake,
    /// New jobs, each with a token for its answer. The dispatcher sets state, attempt and the like.
    Submit(Vec<(u64, JobRecord)>),
    /// These series are no longer used. Their watermarks may be forgotten, up to the given ones, once none of their jobs is
    /// left. After that, what was created in them before can be created again.
    Forget(Vec<(SeriesId, u64)>),
    /// Cancel this job.
    Cancel(JobId),
    /// Give this waiting job to this worker.
    Assign {
        /// The waiting job.
        id: JobId,
        /// The chosen worker.
        worker: WorkerId,
    },
    /// Nobody can take this waiting job; it says why.
    Explain {
        /// The waiting job.
        id: JobId,
        /// Why nobody can take it. For people.
        reason: Arc<str>,
    },
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
    /// A shard was read.
    Ledger(RequestId, usize, LedgerRead),
    /// A shard was written.
    LedgerWritten(RequestId, usize, WriteAnswer),
    /// The inboxes were listed; `None` if that failed.
    Listed(RequestId, Option<Vec<InboxListed>>),
    /// An inbox was read.
    Inbox(RequestId, WorkerId, InboxRead),
    /// An inbox was written.
    InboxWritten(RequestId, WorkerId, WriteAnswer),
    /// An inbox was removed; `false` if that is not certain.
    InboxRemoved(RequestId, WorkerId, bool),
    /// Finished jobs were archived; `false` if that failed.
    Archived(RequestId, usize, bool),
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

/// The outcome of reading a shard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LedgerRead {
    /// The shard and its version.
    Found(LedgerDoc, Version),
    /// There is no object.
    Absent,
    /// There is an object, but it is not a shard.
    Unreadable,
    /// The store did not answer, or refused.
    Unavailable,
}

/// The outcome of reading an inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum InboxRead {
    /// The inbox and its version.
    Found(InboxDoc, Version),
    /// It still has the version the request named.
    Unchanged,
    /// There is no object.
    Absent,
    /// There is an object, but it is not an inbox.
    Unreadable,
    /// The store did not answer, or refused.
    Unavailable,
}

/// Effects of [`Dispatcher::advance`](super::Dispatcher::advance), for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEffect {
    /// Send this to the store, if leadership still holds, and answer with the same id.
    Request(RequestId, DispatchRequest),
    /// The answer to the submission with this token.
    Answered(u64, SubmitAnswer),
    /// The state of a job has changed.
    Update(JobUpdate),
    /// The dispatcher has ended.
    Ended(DispatchEnd),
}

/// A request to the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchRequest {
    /// Read a shard.
    ReadLedger(usize),
    /// Write a shard, if it is as expected.
    WriteLedger(usize, LedgerDoc, Expect),
    /// List the inboxes.
    ListInboxes,
    /// Read an inbox, unless it still has this version.
    ReadInbox(WorkerId, Option<Version>),
    /// Write an inbox, if it is as expected.
    WriteInbox(WorkerId, InboxDoc, Expect),
    /// Remove an inbox that this leader has emptied with a conditional write and whose worker is gone for good.
    RemoveInbox(WorkerId),
    /// Move finished jobs of a shard to the archive.
    Archive(usize, Vec<JobRecord>),
}

impl DispatchRequest {
    /// The answer to assume when none came: a write may have happened, a read did not.
    pub fn unanswered(&self, id: RequestId) -> DispatchInput {
        match self {
            DispatchRequest::ReadLedger(shard) => DispatchInput::Ledger(id, *shard, LedgerRead::Unavailable),
            DispatchRequest::WriteLedger(shard, ..) => {
                DispatchInput::LedgerWritten(id, *shard, WriteAnswer::Unknown)
            }
            DispatchRequest::ListInboxes => DispatchInput::Listed(id, None),
            DispatchRequest::ReadInbox(worker, _) => {
                DispatchInput::Inbox(id, worker.clone(), InboxRead::Unavailable)
            }
            DispatchRequest::WriteInbox(worker, ..) => {
                DispatchInput::InboxWritten(id, worker.clone(), WriteAnswer::Unknown)
            }
            DispatchRequest::RemoveInbox(worker) => DispatchInput::InboxRemoved(id, worker.clone(), false),
            DispatchRequest::Archive(shard, _) => DispatchInput::Archived(id, *shard, false),
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
