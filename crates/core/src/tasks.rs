//! Tasks: work that the leader gives to workers through objects, so that a failover neither loses nor doubles it.
//!
//! Two machines beside the election: [`Dispatcher`] is the leader's side, [`Taker`] a worker's. Two kinds of objects: the
//! *ledger* (a few shards, written by the leader only) is the record of truth; an *inbox* for each worker is written by the
//! leader and by that worker. Every write is conditional on the version last seen, so every transition is a
//! compare-and-swap on everything the writer decided by.
//!
//! The order that keeps work whole:
//! 1. A task is in the ledger as dispatched before it can be in an inbox: whoever leads next knows where to look.
//! 2. A worker runs what it has claimed, and nothing else; an entry that the leader took out unclaimed can never be run.
//! 3. A result stands in the ledger before it leaves the inbox.
//! 4. A new leader writes every shard and every inbox in question before it dispatches there: what a former leader still has
//!    under way is refused by the store.
//!
//! Not promised: that a task *runs* only once. A worker that fell silent may still run what it claimed while another attempt
//! runs elsewhere. Its result *counts* once; a result of an attempt that was given up is recorded and not applied.

mod dispatcher;
mod inbox;
mod shard;
mod taker;

pub use dispatcher::{
    DispatchCounts, DispatchEffect, DispatchEnd, DispatchInput, DispatchRequest, Dispatcher,
    DispatcherConfig, InboxListed, InboxRead, LedgerRead, SubmitAnswer, TaskUpdate,
};
pub use taker::{Taker, TakerConfig, TakerCounts, TakerEffect, TakerInput, TakerRead};

use crate::id::{Incarnation, Nonce};
use crate::id::{JobId, KindName, SeriesId, WorkerId};
use crate::seat::Epoch;
use std::sync::Arc;

/// No payload is larger.
pub const TASK_PAYLOAD_MAX_BYTES: usize = 16 * 1024;

/// No result is larger: it is a summary, and has to fit into inbox and ledger, next to all others. What is larger belongs into
/// an object of its own.
pub const TASK_RESULT_MAX_BYTES: usize = 1024;

/// Inboxes and shards are filled to this at most, as [`Entry::weight`] and [`TaskRecord::weight`] count: less than half of
/// what a store takes, because a body may need twice its bytes once written down.
pub const TASK_OBJECT_MAX_WEIGHT: usize = 480 * 1024;

/// Series a shard remembers at most.
pub const TASK_SERIES_MAX: usize = 500;

/// Where work keeps coming, so many looks in vain are quick ones before they become rarer, on both sides. Otherwise both fall
/// into step with slow looks, and a schedule of 1 s runs every 5 s.
pub(crate) const QUICK_LOOKS: u8 = 4;

/// Late results a task remembers at most; more are only counted.
pub const TASK_LATE_MAX: usize = 8;

/// Where a task stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TaskState {
    /// It waits for a worker, or for the end of a backoff.
    Queued,
    /// It is meant for a worker; it may stand in that worker's inbox.
    Dispatched,
    /// The worker has claimed it and will run it.
    Acked,
    /// The worker runs it.
    Running,
    /// Done.
    Succeeded,
    /// Done in part, and not to be tried again.
    Partial,
    /// Its last attempt failed.
    Failed,
    /// Its last attempt took too long, or its deadline passed.
    TimedOut,
    /// Nobody claimed it in time.
    Expired,
    /// It was called off.
    Cancelled,
    /// The worker of its last attempt fell silent.
    Lost,
}

impl TaskState {
    /// Every state.
    pub const ALL: [TaskState; 11] = [
        TaskState::Queued,
        TaskState::Dispatched,
        TaskState::Acked,
        TaskState::Running,
        TaskState::Succeeded,
        TaskState::Partial,
        TaskState::Failed,
        TaskState::TimedOut,
        TaskState::Expired,
        TaskState::Cancelled,
        TaskState::Lost,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Queued => "queued",
            TaskState::Dispatched => "dispatched",
            TaskState::Acked => "acked",
            TaskState::Running => "running",
            TaskState::Succeeded => "succeeded",
            TaskState::Partial => "partial",
            TaskState::Failed => "failed",
            TaskState::TimedOut => "timed_out",
            TaskState::Expired => "expired",
            TaskState::Cancelled => "cancelled",
            TaskState::Lost => "lost",
        }
    }

    /// The state of that name.
    pub fn named(name: &str) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it stays so.
    pub fn is_final(self) -> bool {
        match self {
            TaskState::Queued | TaskState::Dispatched | TaskState::Acked | TaskState::Running => false,
            TaskState::Succeeded
            | TaskState::Partial
            | TaskState::Failed
            | TaskState::TimedOut
            | TaskState::Expired
            | TaskState::Cancelled
            | TaskState::Lost => true,
        }
    }

    /// Whether a worker has it, or may have it.
    pub fn is_out(self) -> bool {
        match self {
            TaskState::Dispatched | TaskState::Acked | TaskState::Running => true,
            TaskState::Queued
            | TaskState::Succeeded
            | TaskState::Partial
            | TaskState::Failed
            | TaskState::TimedOut
            | TaskState::Expired
            | TaskState::Cancelled
            | TaskState::Lost => false,
        }
    }

    /// The edges. The leader may see two steps of a worker at once, so an attempt that is out may end from any of its states;
    /// back to the queue is another attempt.
    pub fn may_become(self, next: TaskState) -> bool {
        match self {
            TaskState::Queued => {
                matches!(next, TaskState::Dispatched | TaskState::Expired | TaskState::Cancelled)
            }
            TaskState::Dispatched => next != TaskState::Dispatched,
            TaskState::Acked => {
                !matches!(next, TaskState::Dispatched | TaskState::Acked | TaskState::Expired)
            }
            TaskState::Running => {
                next == TaskState::Queued || (next.is_final() && next != TaskState::Expired)
            }
            TaskState::Succeeded
            | TaskState::Partial
            | TaskState::Failed
            | TaskState::TimedOut
            | TaskState::Expired
            | TaskState::Cancelled
            | TaskState::Lost => false,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OutcomeKind {
    /// Done.
    Succeeded,
    /// Done in part.
    Partial,
    /// Not done.
    Failed,
    /// The worker gave it up because its time was over.
    TimedOut,
    /// The worker stopped because the leader called it off.
    Cancelled,
    /// It was claimed by a former life of the worker: it may have run, and nobody will say.
    Abandoned,
    /// The worker gives it back, not begun.
    Returned,
}

impl OutcomeKind {
    /// Every kind.
    pub const ALL: [OutcomeKind; 7] = [
        OutcomeKind::Succeeded,
        OutcomeKind::Partial,
        OutcomeKind::Failed,
        OutcomeKind::TimedOut,
        OutcomeKind::Cancelled,
        OutcomeKind::Abandoned,
        OutcomeKind::Returned,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            OutcomeKind::Succeeded => "succeeded",
            OutcomeKind::Partial => "partial",
            OutcomeKind::Failed => "failed",
            OutcomeKind::TimedOut => "timed_out",
            OutcomeKind::Cancelled => "cancelled",
            OutcomeKind::Abandoned => "abandoned",
            OutcomeKind::Returned => "returned",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<OutcomeKind> {
        OutcomeKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// How an attempt ended, and what it says about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// How.
    pub kind: OutcomeKind,
    /// The result, at most [`TASK_RESULT_MAX_BYTES`].
    pub result: Arc<[u8]>,
}

impl Outcome {
    /// One without a result.
    pub fn bare(kind: OutcomeKind) -> Outcome {
        Outcome { kind, result: Arc::from([]) }
    }
}

/// Within what a task must be done. Each is counted on the clock of whoever watches it, from when it saw the state begin.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TaskLimits {
    /// How long one attempt may run, by the worker's clock.
    pub timeout_ms: u64,
    /// How long it may wait for a worker to claim it, before each attempt, by the leader's clock; in how many inboxes it stood
    /// meanwhile does not matter. A new leader counts anew.
    pub ttl_ms: u64,
    /// How long it may take in all, by the leader's clock; 0: for ever. A new leader counts anew.
    pub deadline_ms: u64,
    /// How often it may be begun.
    pub attempts_max: u32,
    /// The pause before the second attempt; doubled for each further one.
    pub backoff_ms: u64,
}

/// A result that came too late.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LateResult {
    /// Of which attempt.
    pub attempt: u32,
    /// From whom.
    pub worker: WorkerId,
    /// What it was.
    pub kind: OutcomeKind,
}

/// A task in the ledger.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TaskRecord {
    /// Names it; there is never a second one of that name as long as the ledger remembers it.
    pub id: JobId,
    /// What it belongs to; decides its shard.
    pub series: SeriesId,
    /// Its place in the series; 0: none. Once a mark was used, nothing at or below it is created again, ever.
    pub mark: u64,
    /// What it is, for whoever runs it.
    pub kind: KindName,
    /// What it is about. Empty once it is over.
    pub payload: Arc<[u8]>,
    /// Within what it must be done.
    pub limits: TaskLimits,
    /// The worker it was asked for; `None`: anyone.
    pub target: Option<WorkerId>,
    /// Where it stands.
    pub state: TaskState,
    /// The number of its last dispatch; 0 before the first. Never used twice.
    pub attempt: u32,
    /// How many of these were never begun: taken back or given back. They do not count against its attempts.
    pub unbegun: u32,
    /// The worker of its last dispatch.
    pub worker: Option<WorkerId>,
    /// The epoch of the leader that changed it last.
    pub epoch: Epoch,
    /// It is to be called off.
    pub cancel: bool,
    /// Its last attempt was given up before there was a result: one that still comes is late.
    pub given_up: bool,
    /// Why it waits, or why it ended as it did; for people.
    pub reason: Arc<str>,
    /// What came of it.
    pub result: Arc<[u8]>,
    /// What came of attempts that were given up before.
    pub late: Vec<LateResult>,
}

impl TaskRecord {
    /// How many attempts count against its limit.
    pub fn begun(&self) -> u32 {
        self.attempt.saturating_sub(self.unbegun)
    }

    /// What it takes of a shard.
    pub fn weight(&self) -> usize {
        self.payload.len() + TASK_RESULT_MAX_BYTES + 1536
    }
}

/// A shard of the ledger.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LedgerDoc {
    /// The epoch of the leader that wrote it.
    pub epoch: Epoch,
    /// New in every write.
    pub nonce: Nonce,
    /// The highest mark of each series.
    pub series: Vec<(SeriesId, u64)>,
    /// The tasks, in order of their ids.
    pub tasks: Vec<TaskRecord>,
}

/// How far an entry of an inbox is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EntryState {
    /// Nobody has claimed it.
    Dispatched,
    /// Claimed, not begun.
    Acked {
        /// By which life of the worker.
        by: Incarnation,
    },
    /// Claimed and begun.
    Running {
        /// By which life of the worker.
        by: Incarnation,
    },
    /// Over.
    Finished {
        /// What came of it.
        outcome: Outcome,
    },
}

/// One attempt in an inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Which task.
    pub id: JobId,
    /// Which attempt.
    pub attempt: u32,
    /// The epoch of the leader that answers for it.
    pub epoch: Epoch,
    /// When that leader stamped it, in ms on its wall clock. Decides nothing but a fence's grace, which it can only shorten.
    pub dispatched_at: i64,
    /// What it is.
    pub kind: KindName,
    /// What it is about. Empty once it is over.
    pub payload: Arc<[u8]>,
    /// How long it may run, by the worker's clock.
    pub timeout_ms: u64,
    /// How far it is.
    pub state: EntryState,
    /// The leader calls it off.
    pub cancel: bool,
}

impl Entry {
    /// What names it.
    pub fn key(&self) -> (JobId, u32) {
        (self.id.clone(), self.attempt)
    }

    /// What it takes of an inbox, its result included.
    pub fn weight(&self) -> usize {
        entry_weight(self.payload.len())
    }

    /// Whether a worker has claimed it and not ended it.
    pub fn is_claimed(&self) -> bool {
        match self.state {
            EntryState::Acked { .. } | EntryState::Running { .. } => true,
            EntryState::Dispatched | EntryState::Finished { .. } => false,
        }
    }
}

pub(crate) fn entry_weight(payload: usize) -> usize {
    payload + TASK_RESULT_MAX_BYTES + 768
}

/// A worker's inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InboxDoc {
    /// The epoch of the leader that wrote it last.
    pub epoch: Epoch,
    /// That leader's life: whoever finds its own here knows that no former leader can write any more.
    pub leader: Incarnation,
    /// New in every write, leader's or worker's.
    pub nonce: Nonce,
    /// The life of the worker that takes nothing more: it drains, or has drained. The next life opens the inbox again. Only
    /// workers change it, and whatever a leader had under way meanwhile is refused by the store.
    pub closed: Option<Incarnation>,
    /// What is to be done and what was done, in the order of dispatch.
    pub entries: Vec<Entry>,
}

/// The shard of a series: the same for every leader.
pub fn task_shard(series: &SeriesId, shards: usize) -> usize {
    // FNV-1a: short, stable, and nobody has to know a library's.
    let hash = series.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // Its low bits hear only the low bits of the text.
    ((hash ^ (hash >> 32)) % shards.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_stay_and_queued_never_ends_as_done() {
        for from in TaskState::ALL {
            for to in TaskState::ALL {
                let allowed = from.may_become(to);
                assert!(!(from.is_final() && allowed), "{from:?} is final and became {to:?}");
                assert!(from != to || !allowed, "{from:?} to itself is no transition");
            }
            assert_eq!(TaskState::named(from.as_str()), Some(from));
        }
        assert!(!TaskState::Queued.may_become(TaskState::Succeeded), "nobody has run it");
        assert!(!TaskState::Running.may_become(TaskState::Acked), "no way back");
        assert!(OutcomeKind::ALL.iter().all(|kind| OutcomeKind::named(kind.as_str()) == Some(*kind)));
    }

    #[test]
    fn a_series_stays_in_its_shard_and_all_shards_are_used_alike() {
        let shard = |series: &str| task_shard(&SeriesId::new(series).expect("valid"), 4);
        assert_eq!([shard("a"), shard("b"), shard("report"), shard("mail")], [0, 1, 3, 0]);
        let mut used = [0; 4];
        (0..4000).for_each(|number| used[shard(&format!("schedule-{number}"))] += 1);
        assert!(used.iter().all(|count| (900..1100).contains(count)), "{used:?}");
    }
}
