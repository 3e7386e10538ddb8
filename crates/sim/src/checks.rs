//! The invariants, each under a name. They know the truth (true time, every landed write); the nodes do not.

pub(crate) mod budget;
pub(crate) mod election;
mod history;
pub(crate) mod job_writes;
pub(crate) mod jobs;
pub(crate) mod processes;
pub(crate) mod schedules;
pub(crate) mod seat_edits;
pub(crate) mod workers;

use crate::network::Sender;
use crate::shell::PartName;
use crate::store::{Key, Object, Value};
use crate::world::World;
use std::sync::Arc;

/// The names of the checks.
pub mod name {
    macro_rules! names {
        ($($(#[$doc:meta])* $id:ident = $text:literal;)*) => { $($(#[$doc])* pub const $id: &str = $text;)* };
    }
    names! {
        /// No epoch is led by two nodes, or by two incarnations of one node.
        ONE_HOLDER = "one holder per epoch";
        /// Every claim that lands is above all earlier ones.
        EPOCHS_RISE = "epochs rise";
        /// No node claims an epoch that it knows is taken.
        CLAIM_ABOVE_SEEN = "a claim is above everything seen";
        /// No two nodes act at the same instant.
        ONE_ACTS = "one acts at a time";
        /// No node leads past its deadline.
        LIVE_LEASE = "work runs only under a live lease";
        /// If there was no renewal by 80 % of the hold, work was told to stop.
        WINDS_DOWN = "work is wound down at 80 %";
        /// A write concerns the writer's own record, unless it is a claim.
        OWN_RECORD = "only one's own record is renewed or vacated";
        /// A held record is not claimed before its expiry and the takeover delay.
        NOT_TOO_SOON = "no takeover before its time";
        /// Work starts only after the previous work has stopped.
        WORK_APART = "work starts after work has stopped";
        /// A lost epoch is never led again.
        LED_ONCE = "an epoch is led once";
        /// One incarnation never has two seat requests in flight.
        ONE_SEAT_REQUEST = "one seat request at a time";
        /// The request budget in the steady state.
        BUDGET = "requests within the budget";
        /// The request budget during faults.
        NO_STORM = "no storm of requests";
        /// Tasks from former leaders are refused.
        FENCE = "stale tasks are fenced";
        /// A node leads soon after all faults have ended.
        LEADER_IN_TIME = "one leader within the bound";
        /// Nodes that start together elect the first in rank.
        FIRST_IN_RANK = "the first in rank leads first";
        /// After a leader steps down, another node leads.
        HAND_OVER = "a hand-over hands over";
        /// A node that comes back does not displace the leader.
        NO_FAIL_BACK = "a sitting leader stays";
        /// One lost request or answer costs nothing.
        HICCUP = "one lost answer costs nothing";
        /// A node that left leaves nothing behind.
        CLEAN_LEAVE = "a node that leaves is gone";
        /// A store that ignores conditions is not used.
        UNSAFE_STORE = "an unsafe store is refused";
        /// A worker is called silent only if its object did not change for its timeout, by the leader's own clock.
        TIMEOUT_TRUE = "only the silent time out";
        /// A new leader watches every worker for a full timeout, unless its silence was reported before.
        LEADER_PATIENT = "a new leader is patient";
        /// A silence is published under one name, and each node reports it once.
        SILENCE_ONCE = "a silence is told once";
        /// A snapshot only replaces older ones.
        SNAPSHOTS_RISE = "snapshots rise";
        /// Another process's id is taken over only after 2.5 of its heartbeats without a change.
        ID_WATCHED = "an id is taken over from the silent only";
        /// A worker that has seen another process in its place gives up the id.
        ID_GIVEN_UP = "an id that is lost is given up";
        /// A worker loses its id only to another process.
        ID_LOST_TO_ANOTHER = "an id is lost to another only";
        /// A worker that leaves removes only its own object.
        OWN_OBJECT = "a worker removes its own object only";
        /// Once faults have ended, every node shows which workers are alive.
        SHOWN_IN_TIME = "workers are shown as they are within the bound";
        /// One list per sweep, one write per heartbeat, few reads.
        REGISTRY_BUDGET = "the registry keeps to its budget";
        /// No process runs past the lease it was started under, unless it was aborted and ignores that.
        GUARDED = "no process runs without a live guard";
        /// Processes have ended, or were aborted, before leadership is reported over.
        ENDED_FIRST = "the seat is released after processes ended";
        /// No process has two instances.
        ONE_INSTANCE = "a process runs once";
        /// A leader that has been succeeded changes nothing any more.
        JOB_FENCED = "no dispatch after loss";
        /// A job is in the ledger of the dispatching leader before it is in an inbox.
        JOB_RECORDED = "no dispatch past the ledger";
        /// A job stays in the ledger until it has ended and the history has it.
        JOB_KEPT = "no job leaves the ledger open";
        /// The history has only jobs that are over in the ledger, and each end once.
        HISTORY_TRUE = "the history tells what happened";
        /// What the history has, it keeps: a row goes only where it stands already.
        HISTORY_KEPT = "the history loses nothing";
        /// Whoever wants to be told of a job is told at least once.
        NOTICE_KEPT = "no notice is lost";
        /// A job has one end, and the result of the attempt that counts.
        JOB_RESULT_ONCE = "a result counts once";
        /// Only claimed jobs run, and a job that was withdrawn never runs.
        JOB_CLAIMED = "only what was claimed is run";
        /// No dispatch runs twice.
        JOB_RUN_ONCE = "a dispatch runs once";
        /// No job is started more often than allowed.
        JOB_ATTEMPTS = "attempts within their budget";
        /// No more jobs of a queue run at once than are allowed, but for those whose worker is gone or whose time is over.
        JOB_CONCURRENCY = "a queue within its limit";
        /// A job that was called off is not given out again.
        JOB_CANCELLED = "what was called off stays so";
        /// Without a retry nothing is begun twice for a key, with one not at the same time, and never again once it is done.
        ONCE = "once for a key";
        /// A worker is given, and runs, only jobs of the queues it serves.
        JOB_SERVED = "a worker gets only what it serves";
        /// A claimed job is given up only if its worker is gone or its time is over.
        JOB_PATIENT = "a claimed job is left to its worker";
        /// A worker changes only the state of jobs it was given.
        OWN_ENTRIES = "a worker changes only what it was given";
        /// Once faults have ended, every job comes to an end.
        JOB_ENDS = "every job comes to an end";
        /// The request budget for jobs, busy and idle.
        JOB_BUDGET = "jobs keep to their budget";
        /// No due time becomes two jobs.
        DUE_ONCE = "no due time has two jobs";
        /// The watermark of a series is stored together with its newest job.
        WATERMARK_KEPT = "the watermark stands with its job";
        /// A schedule never has more open jobs than allowed.
        OVERLAP = "no more jobs are open than may be";
        /// Of the missed due times, only those that the policy names become jobs.
        MISFIRE = "what was missed is made up for by its policy";
        /// Without faults, every due time becomes a job.
        DUE_KEPT = "no due time is lost";
        /// Each step of a node consists of transitions of the proof.
        MODEL = "a step of the model";
        /// M3: a claim on a held record is sent only after the holder's hold has passed since the record landed.
        M3 = "M3: a held record is left alone for its hold";
        /// K1: what a node has seen has landed, and the silence counts from then at the earliest.
        K1 = "K1: what was seen had landed";
        /// K3: a lease rests on a write of its holder that landed, and counts from its sending.
        K3 = "K3: a lease rests on a write that landed";
        /// K5: leftover work belongs to a retired epoch, and is spared.
        K5 = "K5: work left over is spared";
        /// L1: a node that vacates an epoch is done with it.
        L1 = "L1: what is vacated is over";
        /// L2: a record is still on the seat, or its hold is over, or its holder is done with its epoch.
        L2 = "L2: a record stands for its hold";
        /// A node that acts holds the seat.
        HOLDS_THE_SEAT = "who acts holds the seat";
        /// An assertion in the core failed.
        ASSERTION = "an assertion of the core";
    }

    /// The checks that compare the code with the proof.
    pub const OF_THE_PROOF: &[&str] = &[MODEL, M3, K1, K3, K5, L1, L2, HOLDS_THE_SEAT];
}

/// A violated invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When it was noticed, in true time.
    pub at: u64,
    /// The name of the violated check.
    pub check: &'static str,
    /// A description for people.
    pub what: String,
}

/// How many violations of one schedule are kept.
const KEPT_MAX: usize = 20;

/// What was found to be wrong.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<Violation>,
}

impl Checks {
    pub(crate) fn violated(&mut self, at: u64, check: &'static str, what: impl FnOnce() -> String) {
        if self.violations.len() < KEPT_MAX {
            self.violations.push(Violation { at, check, what: what() });
        }
    }
}

impl World {
    /// A write or a removal has taken effect. `by`: its sender, unless it was somebody outside.
    pub(crate) fn landed(
        &mut self,
        key: &Key,
        before: Option<&Object>,
        after: Option<&Value>,
        by: Option<&Sender>,
    ) {
        match (key, after, by) {
            (Key::Seat, Some(Value::Seat(seat, _)), by) => self.check_seat_landed(before, seat, by),
            (Key::Worker(id), _, by) => self.check_worker_landed(id, before, after.is_some(), by),
            (Key::Snapshot, Some(Value::Snapshot(stamp, snapshot)), _) => {
                self.check_published(before, snapshot, *stamp);
            }
            (Key::Snapshot, _, _) => self.worker_checks.spoiled(self.now),
            (Key::Ledger(part), Some(Value::Ledger(stamp, doc)), Some(by)) => {
                self.check_ledger_landed(by.who, *part, before, (*stamp, doc));
            }
            (Key::Inbox(worker), Some(Value::Inbox(stamp, doc)), Some(by)) => {
                self.check_inbox_landed(worker, before, (*stamp, doc), by.part == PartName::Claimer);
            }
            (Key::HistoryHead | Key::HistoryPart(_), Some(after), _) => {
                self.check_history_landed(before.map(|object| &*object.value), after);
            }
            (Key::Notices, Some(Value::Notices(_, after)), _) => {
                self.check_notices_landed(before.map(|object| &*object.value), after);
            }
            _ => {}
        }
    }

    /// Somebody outside writes an object.
    pub(crate) fn put_outside(&mut self, key: Key, value: &Arc<Value>) {
        let (_, before) = self.store.put(self.now, key.clone(), Arc::clone(value), false);
        self.landed(&key, before.as_ref(), Some(value), None);
    }

    /// Somebody outside removes an object.
    pub(crate) fn remove_outside(&mut self, key: &Key) {
        let before = self.store.remove(self.now, key);
        self.landed(key, before.as_ref(), None, None);
    }
}
