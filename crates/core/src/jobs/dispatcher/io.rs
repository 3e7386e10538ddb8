//! Parameters, commands, requests and outputs of the dispatcher.

use super::super::history::{HistoryHead, HistoryLimits, HistoryPart, HistoryRow, Kept};
use super::super::model::{InboxDoc, JobRecord, JobState, LateResult, LedgerDoc, OutcomeKind};
use super::super::notices::{Notice, NoticesDoc};
use super::super::orders::OrdersDoc;
use super::super::table::Table;
use super::super::workers::Workers;
use crate::document::{DocumentAnswer, DocumentRequest, Op};
use crate::election::{Epoch, Version};
use crate::id::{Incarnation, JobId, SeriesId, WorkerId};
use crate::machine::{Effect, Request, RequestId};
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DispatcherConfig {
    /// This life of the dispatcher; new every time it starts.
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    /// Number of ledger shards; must be the same for every leader of a namespace, forever.
    pub shards: usize,
    /// Most entries in an inbox.
    pub entries_max: usize,
    /// How often it looks while something changes.
    pub fast_ms: u64,
    /// How often it looks while nothing changes.
    pub slow_ms: u64,
    /// How often it looks whether anything is asked of it while nothing is; half of `fast_ms` while something is.
    pub orders_ms: u64,
    /// How long an entry may stay unclaimed before it is withdrawn.
    pub claim_timeout_ms: u64,
    /// How much longer than the timeout it waits for a running attempt, so that the worker reports first.
    pub margin_ms: u64,
    /// How long a worker must have been missing from the registry before its inbox is removed. Must be longer than any
    /// request can be in flight: if a former leader's write landed after that, only the worker's fence would refuse it.
    pub retire_ms: u64,
    /// Finished jobs a shard keeps.
    pub keep_finished: usize,
    pub history: HistoryLimits,
    /// Somebody wants to be told of every job that ends undone, and not only of those that ask for it.
    pub notify_all: bool,
}

/// What the parts of a dispatcher go by.
pub(in crate::jobs) struct View<'a> {
    pub(in crate::jobs) now: Time,
    pub(in crate::jobs) wall_ms: i64,
    pub(in crate::jobs) config: &'a DispatcherConfig,
    pub(in crate::jobs) table: &'a Table,
    pub(in crate::jobs) workers: &'a Workers,
}

pub(in crate::jobs) type Effects = Vec<Effect<DispatchRequest, DispatchOutput>>;

/// Takes the requests of a step, each under a new id.
pub(in crate::jobs) struct Sink<'a> {
    pub(in crate::jobs) requests: &'a mut u64,
    pub(in crate::jobs) out: &'a mut Effects,
}

impl Sink<'_> {
    pub(in crate::jobs) fn send(&mut self, request: DispatchRequest) -> RequestId {
        *self.requests += 1;
        self.out.push(Effect::Request(RequestId(*self.requests), request));
        RequestId(*self.requests)
    }

    /// Sends what a document asks for, if it asks for something under the id it is given.
    pub(in crate::jobs) fn send_for(
        &mut self,
        ask: impl FnOnce(RequestId) -> Option<Op>,
        request: impl FnOnce(Op) -> DispatchRequest,
    ) {
        if let Some(op) = ask(RequestId(*self.requests + 1)) {
            self.send(request(op));
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchCommand<F> {
    /// New jobs, each with a token for its answer. The dispatcher sets state, dispatch and the like.
    Submit(Vec<(u64, JobRecord)>),
    /// These series are no longer used. Their watermarks may be forgotten, up to the given ones, once none of their jobs is
    /// left. After that, what was created in them before can be created again.
    Forget(Vec<(SeriesId, u64)>),
    Cancel(JobId),
    /// Somebody is to be told this. The token is for who waits until it is certain that it will be tried.
    Notify(u64, Notice),
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

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InboxListed {
    pub worker: WorkerId,
    /// The version of the inbox; `None` if lists on this store have no versions.
    pub version: Option<Version>,
    /// Time of the last change, and size.
    pub stamp: (u64, u64),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchOutput {
    /// The answer to the submission with this token.
    Answered(u64, SubmitAnswer),
    Update(JobUpdate),
    /// A job was claimed for the first time, this long after its submission.
    Claimed {
        after_ms: u64,
    },
    /// Somebody changed something elsewhere that the leader should look at.
    Changed,
    /// The notice with this token stands on the store.
    Noted(u64),
    Ended(DispatchEnd),
}

/// A request to the store, if leadership still holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchRequest {
    /// For a shard of the ledger.
    Ledger(usize, DocumentRequest<LedgerDoc>),
    /// For a worker's inbox. It is removed only if this leader has emptied it with a conditional write, and its worker is
    /// gone for good.
    Inbox(WorkerId, DocumentRequest<InboxDoc>),
    ListInboxes,
    /// For what is asked of the leader.
    Orders(DocumentRequest<OrdersDoc>),
    /// For the newest jobs of the history.
    HistoryHead(DocumentRequest<HistoryHead>),
    /// For a part of the history.
    HistoryPart(usize, DocumentRequest<HistoryPart>),
    /// Writes an object of this name, which nobody has used.
    Keep(Arc<str>, Kept),
    /// Reads the rows of a chunk.
    Recall(Arc<str>),
    /// For the notices that are not delivered yet.
    Notices(DocumentRequest<NoticesDoc>),
    /// Delivers one of them.
    Deliver(Notice),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchAnswer {
    Ledger(usize, DocumentAnswer<LedgerDoc>),
    Inbox(WorkerId, DocumentAnswer<InboxDoc>),
    /// The inboxes; `None` if listing failed.
    Listed(Option<Vec<InboxListed>>),
    Orders(DocumentAnswer<OrdersDoc>),
    HistoryHead(DocumentAnswer<HistoryHead>),
    HistoryPart(usize, DocumentAnswer<HistoryPart>),
    /// Whether the object stands; `false` if nobody knows.
    Kept(bool),
    /// The rows; `None` if they cannot be had.
    Recalled(Option<Vec<Arc<HistoryRow>>>),
    Notices(DocumentAnswer<NoticesDoc>),
    /// Whether it was delivered.
    Delivered(bool),
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
            DispatchRequest::Orders(request) => DispatchAnswer::Orders(request.unanswered()),
            DispatchRequest::HistoryHead(request) => DispatchAnswer::HistoryHead(request.unanswered()),
            DispatchRequest::HistoryPart(part, request) => {
                DispatchAnswer::HistoryPart(*part, request.unanswered())
            }
            DispatchRequest::Keep(..) => DispatchAnswer::Kept(false),
            DispatchRequest::Recall(_) => DispatchAnswer::Recalled(None),
            DispatchRequest::Notices(request) => DispatchAnswer::Notices(request.unanswered()),
            DispatchRequest::Deliver(_) => DispatchAnswer::Delivered(false),
        }
    }
}

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
    pub id: JobId,
    pub series: SeriesId,
    pub state: JobState,
    /// How many attempts were begun; of a late result, the attempt it belongs to.
    pub attempt: u32,
    /// The worker of the last dispatch, or of the late result; `None` before the first.
    pub worker: Option<WorkerId>,
    /// Why the state changed. For people.
    pub reason: Arc<str>,
    /// When that attempt began, by the leader's wall clock in ms; 0 if it did not.
    pub began_ms: i64,
    /// The result, for final states; otherwise empty.
    pub result: Arc<[u8]>,
    /// Set if this reports the result of an attempt that had been given up: it was recorded, but not applied.
    pub late: Option<OutcomeKind>,
}

impl JobUpdate {
    pub(super) fn of(record: &JobRecord) -> JobUpdate {
        JobUpdate {
            id: record.id.clone(),
            series: record.series.clone(),
            state: record.state,
            attempt: record.begun(),
            worker: record.worker.clone(),
            reason: record.reason.clone(),
            began_ms: record.began_ms,
            result: record.result.clone(),
            late: None,
        }
    }

    /// The result of an attempt that had been given up.
    pub(super) fn late(record: &JobRecord, late: &LateResult) -> JobUpdate {
        JobUpdate {
            attempt: late.attempt,
            worker: Some(late.worker.clone()),
            reason: Arc::from("a result of an attempt that was given up"),
            result: Arc::from([]),
            late: Some(late.kind),
            ..JobUpdate::of(record)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEnd {
    /// Another leader has taken over the ledger.
    Superseded,
}

/// Counters of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DispatchCounts {
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
    /// Notices that were delivered.
    pub delivered: u64,
    /// Notices that were dropped: too many waited, or nobody took them for an hour.
    pub undelivered: u64,
}
