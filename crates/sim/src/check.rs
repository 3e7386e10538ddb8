//! The invariants, each under a name. They know the truth (true time, every landed write); the nodes do not.

use std::collections::BTreeMap;
use tenure_core::{Epoch, Seat, SeatState};

/// The names of the checks.
pub mod name {
    macro_rules! names {
        ($($(#[$doc:meta])* $id:ident = $text:literal;)*) => { $($(#[$doc])* pub const $id: &str = $text;)* };
    }
    names! {
        /// No epoch is led by two nodes, or by two lives of one.
        ONE_HOLDER = "one holder per epoch";
        /// Every claim that lands is above all before it.
        EPOCHS_RISE = "epochs rise";
        /// No node claims an epoch that it knows to be taken.
        CLAIM_ABOVE_SEEN = "a claim is above everything seen";
        /// No two nodes act at one instant.
        ONE_ACTS = "one acts at a time";
        /// Nobody leads past its deadline.
        LIVE_LEASE = "work runs only under a live lease";
        /// Not renewed by 80 % of the hold, work was told to stop.
        WINDS_DOWN = "work is wound down at 80 %";
        /// A write concerns the writer's own record, except for a claim.
        OWN_RECORD = "only one's own record is renewed or vacated";
        /// A held record is not claimed over before its expiry and the takeover delay.
        NOT_TOO_SOON = "no takeover before its time";
        /// Work starts only after what ran before has stopped.
        WORK_APART = "work starts after work has stopped";
        /// An epoch that was lost is not led again.
        LED_ONCE = "an epoch is led once";
        /// Never two seat requests of one life under way.
        ONE_SEAT_REQUEST = "one seat request at a time";
        /// Requests in steady state.
        BUDGET = "requests within the budget";
        /// Requests under trouble.
        NO_STORM = "no storm of requests";
        /// Tasks of leaders of the past.
        FENCE = "stale tasks are fenced";
        /// Somebody leads soon after all is well.
        LEADER_IN_TIME = "one leader within the bound";
        /// Nodes that start together elect the first of them.
        FIRST_IN_RANK = "the first in rank leads first";
        /// A leader that steps down is followed by another node.
        HAND_OVER = "a hand-over hands over";
        /// A leader is not displaced by one that comes back.
        NO_FAIL_BACK = "a sitting leader stays";
        /// One lost request or answer costs nothing.
        HICCUP = "one lost answer costs nothing";
        /// Nothing is left of a node that left.
        CLEAN_LEAVE = "a node that leaves is gone";
        /// A store that ignores conditions is not used.
        UNSAFE_STORE = "an unsafe store is refused";
        /// A worker is called silent only after its timeout without a change of its object, by the judge's own clock.
        TIMEOUT_TRUE = "only the silent time out";
        /// A new leader watches everybody for a full timeout, unless a silence was told before.
        LEADER_PATIENT = "a new leader is patient";
        /// A silence is published under one name, and told once by each node.
        SILENCE_ONCE = "a silence is told once";
        /// A snapshot replaces older ones only.
        SNAPSHOTS_RISE = "snapshots rise";
        /// The id of another process is taken over only after 2.5 of its heartbeats without a change.
        ID_WATCHED = "an id is taken over from the silent only";
        /// Who has seen another process in its place gives the id up.
        ID_GIVEN_UP = "an id that is lost is given up";
        /// Nobody loses an id but to another process.
        ID_LOST_TO_ANOTHER = "an id is lost to another only";
        /// A worker that leaves removes its own object only.
        OWN_OBJECT = "a worker removes its own object only";
        /// After trouble every node shows who lives and who does not.
        SHOWN_IN_TIME = "workers are shown as they are within the bound";
        /// One list a sweep, one write a heartbeat, few reads.
        REGISTRY_BUDGET = "the registry keeps to its budget";
        /// No process runs past the lease it was started under, unless it was cut off and does not listen.
        GUARDED = "no process runs without a live guard";
        /// Processes have ended, or were cut off, before leadership is said to be over.
        ENDED_FIRST = "the seat is released after processes ended";
        /// No process has two instances.
        ONE_INSTANCE = "a process runs once";
        /// A leader that another has followed changes nothing any more.
        TASK_FENCED = "no dispatch after loss";
        /// A task is in the ledger of the leader that dispatches it before it is in an inbox.
        TASK_RECORDED = "no dispatch past the ledger";
        /// A task stays in the ledger until it is over and put away.
        TASK_KEPT = "no task leaves the ledger open";
        /// A task has one end, and the result of the attempt that counts.
        TASK_RESULT_ONCE = "a result counts once";
        /// Only what was claimed is run, and what was taken back never is.
        TASK_CLAIMED = "only what was claimed is run";
        /// No attempt is run twice.
        TASK_RUN_ONCE = "an attempt runs once";
        /// No task is begun more often than allowed.
        TASK_ATTEMPTS = "attempts within their budget";
        /// A claimed task is given up only if its worker is gone or its time is over.
        TASK_PATIENT = "a claimed task is left to its worker";
        /// A worker changes the state of what it was given, and nothing else.
        OWN_ENTRIES = "a worker changes only what it was given";
        /// After trouble every task comes to an end.
        TASK_ENDS = "every task comes to an end";
        /// Requests for tasks, at work and at rest.
        TASK_BUDGET = "tasks keep to their budget";
        /// No due time becomes two jobs.
        DUE_ONCE = "no due time has two jobs";
        /// The mark of a series stands with its newest job.
        MARK_KEPT = "the mark stands with its job";
        /// No more jobs of a schedule are open than may be.
        OVERLAP = "no more jobs are open than may be";
        /// Of the due times that were missed only those are created that the policy names.
        MISFIRE = "what was missed is made up for by its policy";
        /// In peace every due time becomes a job.
        DUE_KEPT = "no due time is lost";
        /// Each step of a node is made of transitions of the proof.
        MODEL = "a step of the model";
        /// M3: a claim on a held record is sent only once its holder's hold is over since it landed.
        M3 = "M3: a held record is left alone for its hold";
        /// K1: what a node has seen has landed, and its silence counts from then at the earliest.
        K1 = "K1: what was seen had landed";
        /// K3: a lease rests on a write of its holder's that landed, and counts from its sending.
        K3 = "K3: a lease rests on a write that landed";
        /// K5: work that is left over is of a retired epoch, and is spared.
        K5 = "K5: work left over is spared";
        /// L1: who vacates an epoch is done with it.
        L1 = "L1: what is vacated is over";
        /// L2: a record still stands, or its hold is over, or its holder is done with its epoch.
        L2 = "L2: a record stands for its hold";
        /// Whoever acts holds the seat.
        HOLDS_THE_SEAT = "who acts holds the seat";
        /// The core's own assertions.
        ASSERTION = "an assertion of the core";
    }

    /// Those that hold the code against the proof.
    pub const OF_THE_PROOF: &[&str] = &[MODEL, M3, K1, K3, K5, L1, L2, HOLDS_THE_SEAT];
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// True time.
    pub at: u64,
    /// Which check says so.
    pub check: &'static str,
    /// In words.
    pub what: String,
}

/// How many violations of one schedule are kept.
const KEPT_MAX: usize = 20;

/// Watches every landed write and every start of work.
#[derive(Default)]
pub(crate) struct Judge {
    pub(crate) violations: Vec<Violation>,
    led: BTreeMap<Epoch, u64>,
    top: Epoch,
    /// An operator took the seat back to an earlier state: then only those who remember are held to rising epochs.
    pub(crate) rolled_back: bool,
    /// An operator brought back a record from before an earlier roll-back, above the epochs of today: to everybody that
    /// looks like elections they missed, and today's holder like one who left.
    pub(crate) leapt: bool,
    last: Epoch,
    pub(crate) claims: u64,
}

impl Judge {
    pub(crate) fn violated(&mut self, at: u64, check: &'static str, what: impl FnOnce() -> String) {
        if self.violations.len() < KEPT_MAX {
            self.violations.push(Violation { at, check, what: what() });
        }
    }

    /// A record of this epoch is put back by hand.
    pub(crate) fn restored(&mut self, epoch: Epoch) {
        self.rolled_back = true;
        self.leapt |= epoch > self.last;
    }

    /// Whether no claim that landed had this epoch or a higher one.
    pub(crate) fn is_above(&self, epoch: Epoch) -> bool {
        epoch > self.top
    }

    /// Work starts on a life of a node.
    pub(crate) fn leads(&mut self, at: u64, life: u64, epoch: Epoch) {
        let other = self.led.insert(epoch, life).filter(|other| *other != life);
        if let Some(other) = other.filter(|_| !self.rolled_back) {
            self.violated(at, name::ONE_HOLDER, || {
                format!("{epoch:?} led by life {other} and by life {life}")
            });
        }
    }

    /// A write is about to land on top of `old`.
    pub(crate) fn lands(&mut self, at: u64, writer: u64, old: Option<&Seat>, new: &Seat) {
        let own = new.nonce.incarnation.0 == writer && new.holder.incarnation.0 == writer;
        if new.state == SeatState::Held && new.renewals == 0 {
            self.claims += 1;
            if new.epoch <= self.top && !self.rolled_back {
                let top = self.top;
                self.violated(at, name::EPOCHS_RISE, || format!("{:?} claimed after {top:?}", new.epoch));
            }
            if !own {
                self.violated(at, name::OWN_RECORD, || format!("life {writer} claims for {:?}", new.holder));
            }
            self.top = self.top.max(new.epoch);
            self.last = new.epoch;
            return;
        }
        let same = old.is_some_and(|old| {
            old.holder == new.holder && old.epoch == new.epoch && old.state == SeatState::Held
        });
        if !own || !same {
            self.violated(at, name::OWN_RECORD, || format!("life {writer} writes {new:?} over {old:?}"));
        }
    }
}
