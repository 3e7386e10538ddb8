//! Jobs, their states and limits, and the two documents they are kept in.

use super::serves::{Labels, Serves};
use crate::election::Epoch;
use crate::id::{Incarnation, JobId, KindName, QueueName, SeriesId, WorkerId};
use std::sync::Arc;

/// Largest payload of a job.
pub const JOB_PAYLOAD_MAX_BYTES: usize = 16 * 1024;

/// Largest result of a job. A result is a summary and has to fit into inbox and ledger beside all the others. Anything
/// larger belongs in an object of its own.
pub const JOB_RESULT_MAX_BYTES: usize = 1024;

/// Limit on the weight of an inbox or shard, as [`Entry::weight`] and [`JobRecord::weight`] count it: less than half of
/// what a store takes, because a body may need twice its bytes once it is encoded.
pub const JOB_OBJECT_MAX_WEIGHT: usize = 480 * 1024;

/// Most series that a shard remembers.
pub const JOB_SERIES_MAX: usize = 500;

/// Longest text about how far an attempt is.
pub const JOB_PROGRESS_MAX_BYTES: usize = 200;

/// Most late results that a job remembers; further ones are only counted.
pub const JOB_LATE_MAX: usize = 8;

/// The priority of a job that names none; they go from 0 to [`JOB_PRIORITY_MAX`].
pub const JOB_PRIORITY: u8 = 5;

/// The highest priority.
pub const JOB_PRIORITY_MAX: u8 = 9;

/// Gives the values of an enum their names in documents and answers.
macro_rules! wire_names {
    ($type:ident: $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in order.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$value),+];

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($type::$value => $name,)+
                }
            }

            /// The value with this name on the wire; `None` if there is none.
            pub fn named(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|value| value.as_str() == name)
            }
        }
    };
}

pub(super) use wire_names;

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum JobState {
    /// It waits for a worker, or for a backoff to end.
    Queued,
    /// It is assigned to a worker and may be in that worker's inbox.
    Dispatched,
    /// The worker has claimed it and will run it.
    Acked,
    /// The worker runs it.
    Running,
    /// It is done.
    Succeeded,
    /// It is done in part, and will not be tried again.
    Partial,
    /// Its last attempt failed.
    Failed,
    /// Its last attempt took too long, or its deadline passed.
    TimedOut,
    /// Nobody claimed it in time.
    Expired,
    /// It was cancelled.
    Cancelled,
    /// The worker of its last attempt fell silent.
    Lost,
}

wire_names!(
    JobState:
    Queued = "queued", Dispatched = "dispatched", Acked = "acked", Running = "running",
    Succeeded = "succeeded", Partial = "partial", Failed = "failed", TimedOut = "timed_out",
    Expired = "expired", Cancelled = "cancelled", Lost = "lost",
);

impl JobState {
    /// Whether a job never leaves this state.
    pub fn is_final(self) -> bool {
        self != JobState::Queued && !self.is_out()
    }

    /// Whether its attempts are used up.
    pub fn is_dead(self) -> bool {
        matches!(self, JobState::Failed | JobState::TimedOut | JobState::Lost)
    }

    /// Whether it is over without having been done or called off.
    pub fn is_undone(self) -> bool {
        self.is_dead() || self == JobState::Expired
    }

    /// Whether a worker has the job, or may have it.
    pub fn is_out(self) -> bool {
        matches!(self, JobState::Dispatched | JobState::Acked | JobState::Running)
    }

    /// The allowed transitions. The leader may see two of a worker's steps at once, so an attempt that is out may end from
    /// any of its states. Going back to the queue means another attempt.
    pub fn may_become(self, next: JobState) -> bool {
        match self {
            JobState::Queued => {
                matches!(next, JobState::Dispatched | JobState::Expired | JobState::Cancelled)
            }
            JobState::Dispatched => next != JobState::Dispatched,
            JobState::Acked => !matches!(next, JobState::Dispatched | JobState::Acked | JobState::Expired),
            JobState::Running => next == JobState::Queued || (next.is_final() && next != JobState::Expired),
            JobState::Succeeded | JobState::Partial | JobState::Failed | JobState::TimedOut => false,
            JobState::Expired | JobState::Cancelled | JobState::Lost => false,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OutcomeKind {
    /// The work is done.
    Succeeded,
    /// The work is done in part.
    Partial,
    /// The work is not done.
    Failed,
    /// The worker gave up because the time ran out.
    TimedOut,
    /// The worker stopped because the leader cancelled the job.
    Cancelled,
    /// A former life of the worker claimed it: it may have run, and nobody will ever report on it.
    Abandoned,
    /// The worker gives it back without having begun it.
    Returned,
}

wire_names!(
    OutcomeKind:
    Succeeded = "succeeded", Partial = "partial", Failed = "failed", TimedOut = "timed_out",
    Cancelled = "cancelled", Abandoned = "abandoned", Returned = "returned",
);

/// How an attempt ended, and its result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// How the attempt ended.
    pub kind: OutcomeKind,
    /// At most [`JOB_RESULT_MAX_BYTES`]; may be empty.
    pub result: Arc<[u8]>,
}

impl Outcome {
    /// An outcome without a result.
    pub fn bare(kind: OutcomeKind) -> Outcome {
        Outcome { kind, result: Arc::from([]) }
    }
}

/// Time and attempt limits of a job. Whoever enforces a limit counts on its own clock, from when it saw the state begin.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobLimits {
    /// How long one attempt may run, by the worker's clock.
    pub timeout_ms: u64,
    /// How long it may wait for a worker to claim it, before each attempt, by the leader's clock; 0 means forever. It does
    /// not matter in how many inboxes it was in the meantime. A new leader starts counting again.
    pub ttl_ms: u64,
    /// How long it may take in all, by the leader's clock; 0 means forever. A new leader starts counting again.
    pub deadline_ms: u64,
    /// How often it may be started.
    pub attempts_max: u32,
    /// The pause before the second attempt; it doubles for each further one.
    pub backoff_ms: u64,
}

/// How far an attempt is, as its worker says. For people.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// One line, at most [`JOB_PROGRESS_MAX_BYTES`].
    pub text: Arc<str>,
}

impl Progress {
    /// At most 100 %, and as much of the first line as may be.
    pub fn new(percent: u8, text: &str) -> Progress {
        let line = text.lines().next().unwrap_or_default();
        let ends = line.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= JOB_PROGRESS_MAX_BYTES).last().unwrap_or(0);
        Progress { percent: percent.min(100), text: Arc::from(&line[..end]) }
    }
}

/// A result that came too late.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LateResult {
    /// The attempt it belongs to, counting only those that were begun.
    pub attempt: u32,
    /// The worker that reported it.
    pub worker: WorkerId,
    /// How that attempt ended.
    pub kind: OutcomeKind,
}

/// A job in the ledger.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobRecord {
    /// Unique: the ledger accepts no second job with this id while it remembers the first.
    pub id: JobId,
    /// The series it belongs to; decides its shard.
    pub series: SeriesId,
    /// Its place in the series; 0 means none. Once a watermark is used, nothing at or below it is ever created again.
    pub watermark: u64,
    /// Tells the worker which handler to run.
    pub kind: KindName,
    /// Input for the handler. Empty once the job is over, unless it can be tried again.
    pub payload: Arc<[u8]>,
    /// Time and attempt limits.
    pub limits: JobLimits,
    /// The worker it was requested for; `None` means any worker.
    pub target: Option<WorkerId>,
    /// What that worker must have.
    pub needs: Labels,
    /// Commands that the worker must allow, as [`AllowedCommand::allows`](super::AllowedCommand::allows) takes them.
    pub commands: Arc<[Vec<String>]>,
    /// The queue it waits in.
    pub queue: QueueName,
    /// In its queue, higher ones are first; 0 to [`JOB_PRIORITY_MAX`].
    pub priority: u8,
    /// When it was submitted, by the submitter's wall clock in ms. Among jobs of one priority, older ones are first.
    pub submitted_ms: i64,
    /// It is not run before this time, by the leader's wall clock in ms; 0 means at once.
    pub not_before_ms: i64,
    /// The present state, as far as the leader knows.
    pub state: JobState,
    /// The number of its last dispatch; 0 before the first. Never used twice.
    pub dispatch: u32,
    /// How many dispatches were never begun, because they were withdrawn or given back. They do not count against its
    /// attempts.
    pub unbegun: u32,
    /// How often somebody had it tried again after it was dead.
    pub retries: u32,
    /// The worker of its last dispatch; `None` before the first.
    pub worker: Option<WorkerId>,
    /// The epoch of the leader that last changed it.
    pub epoch: Epoch,
    /// Its number among the jobs that ended in that epoch, in order; 0 while it is open.
    pub ending: u64,
    /// When its last attempt began and when it ended, by the leader's wall clock in ms; 0 if it did not.
    pub began_ms: i64,
    pub ended_ms: i64,
    /// Somebody asked to cancel it.
    pub cancel: bool,
    /// Somebody wants to be told if it ends undone.
    pub notify: bool,
    /// Its last attempt was given up before there was a result; a result that still arrives is late.
    pub given_up: bool,
    /// Why it waits, or why it ended as it did. For people.
    pub reason: Arc<str>,
    /// The result of the attempt that counts; empty until there is one.
    pub result: Arc<[u8]>,
    /// Results of attempts that had been given up, at most [`JOB_LATE_MAX`].
    pub late: Vec<LateResult>,
    /// How far its attempt is, if somebody has looked into its worker's inbox. Not in the ledger.
    pub progress: Option<Progress>,
}

impl JobRecord {
    /// A job that waits to be dispatched for the first time: no payload, no watermark, for any worker, in the default queue.
    pub fn new(id: JobId, series: SeriesId, kind: KindName, limits: JobLimits) -> JobRecord {
        JobRecord {
            id,
            series,
            watermark: 0,
            kind,
            payload: Arc::from([]),
            limits,
            target: None,
            needs: Labels::default(),
            commands: Arc::from([]),
            queue: QueueName::default(),
            priority: JOB_PRIORITY,
            submitted_ms: 0,
            not_before_ms: 0,
            state: JobState::Queued,
            dispatch: 0,
            unbegun: 0,
            retries: 0,
            worker: None,
            epoch: Epoch(0),
            ending: 0,
            began_ms: 0,
            ended_ms: 0,
            cancel: false,
            notify: false,
            given_up: false,
            reason: Arc::from(""),
            result: Arc::from([]),
            late: Vec::new(),
            progress: None,
        }
    }

    /// Whether it can be tried again on request. A job with a watermark cannot: the next one of its series does its work.
    pub fn may_be_retried(&self) -> bool {
        self.state.is_undone() && self.watermark == 0
    }

    /// How many attempts count against the limit.
    pub fn begun(&self) -> u32 {
        self.dispatch.saturating_sub(self.unbegun)
    }

    /// How much of [`JOB_OBJECT_MAX_WEIGHT`] it uses in a shard.
    pub fn weight(&self) -> usize {
        self.payload.len() + JOB_RESULT_MAX_BYTES + self.needs.len() + self.commands_len() + 1536
    }

    /// The bytes of all names that a submission may choose.
    pub(super) fn names_len(&self) -> usize {
        let target = self.target.as_ref().map_or("", WorkerId::as_str);
        let names = [self.id.as_str(), self.series.as_str(), self.kind.as_str(), self.queue.as_str(), target];
        names.map(str::len).iter().sum::<usize>() + self.needs.len() + self.commands_len()
    }

    fn commands_len(&self) -> usize {
        self.commands.iter().flatten().map(|word| word.len() + 6).sum()
    }
}

/// The content of one shard of the ledger.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LedgerDoc {
    /// The highest watermark of each series.
    pub series: Vec<(SeriesId, u64)>,
    /// Jobs in id order.
    pub jobs: Vec<JobRecord>,
}

/// How far a worker has got with an entry of its inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EntryState {
    /// Nobody has claimed it.
    Dispatched,
    /// Claimed, but not begun.
    Acked {
        /// The life of the worker that claimed it.
        by: Incarnation,
    },
    /// Claimed and begun.
    Running {
        /// The life of the worker that claimed it.
        by: Incarnation,
    },
    /// The worker is finished with it.
    Finished {
        /// How it ended, with its result.
        outcome: Outcome,
    },
}

/// One attempt at a job, in an inbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The id of the job.
    pub id: JobId,
    /// The number of the dispatch; see [`JobRecord::dispatch`].
    pub dispatch: u32,
    /// Which attempt it is, counting only those that were begun: never more than the job may have.
    pub attempt: u32,
    /// The epoch of the leader responsible for it.
    pub epoch: Epoch,
    /// When that leader stamped it, in ms on its wall clock. Affects only a fence's grace, which it can only shorten.
    pub dispatched_at: i64,
    /// The queue that the job waited in.
    pub queue: QueueName,
    /// Tells the worker which handler to run.
    pub kind: KindName,
    /// Input for the handler. Empty once the attempt is over.
    pub payload: Arc<[u8]>,
    /// How long it may run, by the worker's clock.
    pub timeout_ms: u64,
    /// How far the worker has got.
    pub state: EntryState,
    /// The leader asks the worker to cancel it.
    pub cancel: bool,
    /// How far it is, as its worker last said.
    pub progress: Option<Progress>,
}

impl Entry {
    /// The job id and the number of the dispatch, which identify the entry.
    pub fn key(&self) -> (JobId, u32) {
        (self.id.clone(), self.dispatch)
    }

    /// How much of [`JOB_OBJECT_MAX_WEIGHT`] it uses in an inbox, including its result.
    pub fn weight(&self) -> usize {
        entry_weight(self.payload.len())
    }

    /// Whether a worker has claimed it and not finished it.
    pub fn is_claimed(&self) -> bool {
        match self.state {
            EntryState::Acked { .. } | EntryState::Running { .. } => true,
            EntryState::Dispatched | EntryState::Finished { .. } => false,
        }
    }
}

pub(crate) fn entry_weight(payload: usize) -> usize {
    payload + JOB_RESULT_MAX_BYTES + 768
}

/// The content of a worker's inbox. The worker creates it and writes it as a guest; the leader owns it once it has written it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct InboxDoc {
    /// Which jobs the worker takes, and the life of the worker that said so; `None` before one has. Only workers change it,
    /// and the store refuses any write a leader had in flight in the meantime: so a job is given to a worker only if it serves
    /// such jobs at that moment.
    pub serves: Option<(Incarnation, Arc<Serves>)>,
    /// The life of the worker that takes no more: it is draining or has drained. The next life reopens the inbox. Only
    /// workers change this, and the store refuses any write a leader had in flight in the meantime.
    pub closed: Option<Incarnation>,
    /// Open and finished attempts, in dispatch order.
    pub entries: Vec<Entry>,
}

/// The shard of a series: the same for every leader.
pub fn job_shard(series: &SeriesId, shards: usize) -> usize {
    (hash(series.as_str()) % shards.max(1) as u64) as usize
}

/// The folder of a job's outputs: the same for everybody.
pub fn job_output_folder(job: &JobId) -> u8 {
    (hash(job.as_str()) % 256) as u8
}

/// FNV-1a: short, stable, and not tied to any library.
pub(super) fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // FNV's low bits depend only on the low bits of the text.
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_stay_and_queued_never_ends_as_done() {
        for from in JobState::ALL {
            for to in JobState::ALL {
                let allowed = from.may_become(to);
                assert!(!(from.is_final() && allowed), "{from:?} is final and became {to:?}");
                assert!(from != to || !allowed, "{from:?} to itself is no transition");
            }
            assert_eq!(JobState::named(from.as_str()), Some(from));
        }
        assert!(!JobState::Queued.may_become(JobState::Succeeded), "nobody has run it");
        assert!(!JobState::Running.may_become(JobState::Acked), "no way back");
        assert!(OutcomeKind::ALL.iter().all(|kind| OutcomeKind::named(kind.as_str()) == Some(*kind)));
    }

    #[test]
    fn a_series_stays_in_its_shard_and_all_shards_are_used_alike() {
        let shard = |series: &str| job_shard(&SeriesId::new(series).expect("valid"), 4);
        assert_eq!([shard("a"), shard("b"), shard("report"), shard("mail")], [0, 1, 3, 0]);
        let mut used = [0; 4];
        (0..4000).for_each(|number| used[shard(&format!("schedule-{number}"))] += 1);
        assert!(used.iter().all(|count| (900..1100).contains(count)), "{used:?}");
    }
}
