//! Jobs: work that the leader hands to workers through objects, so that failover neither loses nor repeats it.
//!
//! Two machines beside the election: [`Dispatcher`] is the leader's side, [`Claimer`] a worker's. There are two kinds of
//! objects. The *ledger* (a few shards, written only by the leader) is the source of truth. Each worker has an *inbox*,
//! which the leader and that worker write. Every write is conditional on the version last seen, so every transition is a
//! compare-and-swap on everything the writer based its decision on.
//!
//! Every time a job is given to a worker is a *dispatch*, with a number that is never used twice. One that is withdrawn or given
//! back before it was begun does not count as an *attempt*; people see, and limits count, only attempts.
//!
//! The order that keeps work whole:
//! 1. A job is in the ledger as dispatched before it can be in an inbox, so the next leader knows where to look.
//! 2. A worker runs only what it has claimed; an entry that the leader took out unclaimed can never be run.
//! 3. A result is in the ledger before it leaves the inbox.
//! 4. A new leader writes every shard and every affected inbox before it dispatches there, so the store refuses anything a
//!    former leader still has in flight.
//!
//! The dispatcher's parts: `table` is the only one that changes a job's state, `lifecycle` says when, `ledger` and
//! `inboxes` keep the objects, `history` what is over, `notices` what somebody is to be told, `workers` knows who is gone. None of them knows the dispatcher.
//!
//! Not promised: that a job *runs* only once. A worker that fell silent may still run what it claimed while another attempt
//! runs elsewhere. Its result *counts* once; the result of an attempt that was given up is recorded, but not applied.

mod allowed_command;

mod assign;
mod claimer;
mod dispatcher;
#[cfg(test)]
mod fixtures;
mod history;
mod inboxes;
mod ledger;
mod lifecycle;
mod model;
mod notices;
mod orders;
mod serves;
mod submitter;
mod table;
mod workers;

pub use allowed_command::AllowedCommand;
pub use assign::{Assign, Candidates, Load, NoWorker};
pub use claimer::{
    Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerCounts, ClaimerOutput, ClaimerRequest,
    Refused,
};
pub use dispatcher::{
    DispatchAnswer, DispatchCommand, DispatchCounts, DispatchEnd, DispatchOutput, DispatchRequest,
    Dispatcher, DispatcherConfig, InboxListed, JobUpdate, SubmitAnswer,
};
pub use history::{
    HISTORY_RUNS_MAX, HistoryChunk, HistoryHead, HistoryKey, HistoryLimits, HistoryPart, HistoryRow,
    HistoryRuns, Kept,
};
pub use model::{
    Entry, EntryState, InboxDoc, JOB_LATE_MAX, JOB_OBJECT_MAX_WEIGHT, JOB_PAYLOAD_MAX_BYTES, JOB_PRIORITY,
    JOB_PRIORITY_MAX, JOB_PROGRESS_MAX_BYTES, JOB_RESULT_MAX_BYTES, JOB_SERIES_MAX, JobLimits, JobRecord,
    JobState, LateResult, LedgerDoc, Outcome, OutcomeKind, Progress, job_output_folder, job_shard,
};
pub use notices::{NOTICE_REASON_MAX_BYTES, NOTICES_MAX, NOTICES_TOLD_MAX, Notice, NoticeKind, NoticesDoc};
pub use orders::{BatchedOrder, JOB_BATCHES_MAX, JOB_QUEUES_MAX, Order, OrdersDoc, QueueSettings};
pub use serves::{JOB_SERVES_MAX_BYTES, JOB_SLOTS_MAX, Labels, Serves};
pub use submitter::{OrderAnswer, Submitter, SubmitterCommand, SubmitterOutput};

use crate::document::{BackOff, Document, Op};
use crate::machine::RequestId;
use crate::time::Time;

/// Where work keeps coming, this many empty looks stay quick before looks become rarer, on both sides. Otherwise both sides
/// fall into step with slow looks, and a 1 s schedule runs every 5 s.
pub(crate) const QUICK_LOOKS: u8 = 4;

/// Pauses after failed requests, on both sides.
const RETRY: BackOff = BackOff { first_ms: 200, max_ms: 10_000 };

/// The next request of a document, if one is due, under a new id.
fn next_request(
    requests: &mut u64,
    document: &mut Document,
    now: Time,
    may_write: bool,
) -> Option<(RequestId, Op)> {
    let id = RequestId(*requests + 1);
    let op = document.next(now, id, may_write)?;
    *requests += 1;
    Some((id, op))
}
