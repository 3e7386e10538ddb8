//! Inputs and effects of the dispatcher.

use super::super::{InboxDoc, LedgerDoc, OutcomeKind, TaskRecord, TaskState};
use crate::id::{JobId, SeriesId, WorkerId};
use crate::io::{RequestId, WriteAnswer};
use crate::seat::{Expect, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the dispatcher is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchInput {
    /// Nothing but the time.
    Wake,
    /// New tasks, each with a number to answer it by. State, attempt and the like are set by the dispatcher.
    Submit(Vec<(u64, TaskRecord)>),
    /// These series are used no more: their marks may be forgotten, up to these, once no task of theirs is left. What was created
    /// in them before can then be created again.
    Forget(Vec<(SeriesId, u64)>),
    /// Call a task off.
    Cancel(JobId),
    /// This worker shall do a task that waits.
    Assign {
        /// The task.
        id: JobId,
        /// The worker.
        worker: WorkerId,
    },
    /// Nobody can do a task that waits, and why.
    Hold {
        /// The task.
        id: JobId,
        /// The reason, for people.
        reason: Arc<str>,
    },
    /// The workers as the registry knows them.
    Workers {
        /// Whether each is active.
        list: BTreeMap<WorkerId, bool>,
        /// Whether this leader has listed them itself. What a leader before said serves to give out work, but calls nobody
        /// gone: whoever came, or came back, since then is not in it.
        listed: bool,
        /// Whether these are all: whoever is not there does not exist.
        whole: bool,
    },
    /// A shard was read.
    Ledger(RequestId, usize, LedgerRead),
    /// A shard was written.
    LedgerWritten(RequestId, usize, WriteAnswer),
    /// The inboxes were listed; `None` if they could not be.
    Listed(RequestId, Option<Vec<InboxListed>>),
    /// An inbox was read.
    Inbox(RequestId, WorkerId, InboxRead),
    /// An inbox was written.
    InboxWritten(RequestId, WorkerId, WriteAnswer),
    /// An inbox was removed, or that is not known.
    InboxRemoved(RequestId, WorkerId, bool),
    /// Finished tasks were archived, or not.
    Archived(RequestId, usize, bool),
}

/// A line of the list of inboxes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InboxListed {
    /// Whose.
    pub worker: WorkerId,
    /// Its version, where lists name them.
    pub version: Option<Version>,
    /// Time of its last change and size.
    pub stamp: (u64, u64),
}

/// The outcome of reading a shard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LedgerRead {
    /// A shard.
    Found(LedgerDoc, Version),
    /// There is none.
    Absent,
    /// There is something that is none.
    Unreadable,
    /// No answer, or refused.
    Unavailable,
}

/// The outcome of reading an inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum InboxRead {
    /// An inbox.
    Found(InboxDoc, Version),
    /// It still has the version asked about.
    Unchanged,
    /// There is none.
    Absent,
    /// There is something that is none.
    Unreadable,
    /// No answer, or refused.
    Unavailable,
}

/// What the dispatcher wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEffect {
    /// Send this to the store, if leadership still holds, and answer with the same id.
    Request(RequestId, DispatchRequest),
    /// The answer to a submission.
    Answered(u64, SubmitAnswer),
    /// A task stands elsewhere than before.
    Update(TaskUpdate),
    /// It is over.
    Ended(DispatchEnd),
}

/// A request to the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchRequest {
    /// Read a shard.
    ReadLedger(usize),
    /// Write a shard.
    WriteLedger(usize, LedgerDoc, Expect),
    /// List the inboxes.
    ListInboxes,
    /// Read an inbox, unless it still has this version.
    ReadInbox(WorkerId, Option<Version>),
    /// Write an inbox.
    WriteInbox(WorkerId, InboxDoc, Expect),
    /// Remove an inbox that this leader has emptied by a conditional write, and whose worker is gone for good.
    RemoveInbox(WorkerId),
    /// Put finished tasks of a shard away for good.
    Archive(usize, Vec<TaskRecord>),
}

impl DispatchRequest {
    /// What silence comes to: a write may have happened, a read has not.
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
    /// It stands in the ledger.
    Created,
    /// It stood there before.
    Exists,
    /// Its series is past its mark.
    BelowMark,
    /// Its shard has no room.
    Full,
    /// Its shard cannot be read, and is left alone.
    Blocked,
    /// The dispatcher has ended. Whether the task exists is not known.
    Ended,
}

/// A task stands elsewhere than before. Final states are told once they stand in the ledger, and not before.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TaskUpdate {
    /// Which.
    pub id: JobId,
    /// Its series.
    pub series: SeriesId,
    /// Where it stands now.
    pub state: TaskState,
    /// Which attempt.
    pub attempt: u32,
    /// On which worker.
    pub worker: Option<WorkerId>,
    /// Why.
    pub reason: Arc<str>,
    /// What came of it, for final states.
    pub result: Arc<[u8]>,
    /// Set if this is about a result of an attempt that was given up: it was recorded and not applied.
    pub late: Option<OutcomeKind>,
}

/// Why a dispatcher ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEnd {
    /// Another leader has taken the ledger over.
    Superseded,
}

/// What a dispatcher has counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DispatchCounts {
    /// Tasks created.
    pub created: u64,
    /// Attempts written into inboxes.
    pub dispatched: u64,
    /// Tasks that came to a final state.
    pub finished: u64,
    /// Attempts judged lost.
    pub lost: u64,
    /// Results of attempts that were given up before.
    pub late: u64,
    /// Submissions and results that were known already.
    pub duplicates: u64,
    /// Entries and objects that are nobody's or cannot be understood.
    pub rejected: u64,
}
