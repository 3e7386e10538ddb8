//! The world: nodes and workers of the production core, one store, true time on one heap, one random source.

use crate::caller_mistakes::CallerMistake;
use crate::checks::Checks;
use crate::checks::election::SeatChecks;
use crate::checks::jobs::JobChecks;
use crate::checks::seat_edits::SeatEdits;
use crate::checks::workers::WorkerChecks;
use crate::far_region::Far;
use crate::fault::{FaultCounts, FaultKind, FaultMix};
use crate::machines::once::OnceKeys;
use crate::machines::registration::Worker;
use crate::monitor::Monitors;
use crate::node::Node;
use crate::queue::{Entry, Happening};
use crate::shell::Who;
use crate::store::Store;
use crate::trace::{Noted, Trace};
use crate::workloads::jobs::{JobWorkload, WorkDone};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use tenure_core::FenceRule;

/// Most events at one instant; more means that events feed each other.
const AT_ONCE_MAX: u64 = 20_000;

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) store: Store,
    pub(crate) rng: ChaCha8Rng,
    queue: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    /// How many events happened at this instant.
    at_once: u64,
    lives: u64,

    pub(crate) mix: FaultMix,
    pub(crate) struck: FaultCounts,
    /// One way, in milliseconds.
    pub(crate) latency_ms: (u64, u64),
    pub(crate) timeout_ms: u64,
    pub(crate) far: Far,
    pub(crate) fence: FenceRule,
    pub(crate) mistake: Option<CallerMistake>,
    /// Two nodes may act then.
    pub(crate) clocks_beyond_drift: bool,
    /// Somebody changed the seat by hand: claims by nodes that cannot know are not held against them.
    pub(crate) seat_edited: bool,
    /// How often the seat was marked from outside.
    pub(crate) marks: u64,
    /// The faults have ended: nothing fails by itself any more.
    pub(crate) mended: bool,

    pub(crate) has_workers: bool,
    pub(crate) sweep_ms: u64,
    pub(crate) retention_ms: u64,
    /// Whether leaders have work of their own: processes, jobs, schedules.
    pub(crate) has_jobs: bool,
    pub(crate) workload: JobWorkload,
    pub(crate) work_done: WorkDone,
    pub(crate) once: OnceKeys,

    pub(crate) checks: Checks,
    pub(crate) seat_checks: SeatChecks,
    pub(crate) seat_edits: SeatEdits,
    pub(crate) worker_checks: WorkerChecks,
    pub(crate) job_checks: JobChecks,
    /// Whether steps are compared with the proof.
    pub(crate) modelled: bool,
    pub(crate) monitors: Monitors,
    pub(crate) trace: Trace,
    pub(crate) steps: u64,
    /// Stale tasks that were refused.
    pub(crate) fenced: u64,
    /// By node: the current second, the requests for jobs in it, and the count of updates at its start.
    pub(crate) job_second: BTreeMap<usize, (u64, u64, u64)>,
}

impl World {
    pub(crate) fn new(seed: u64, mix: FaultMix) -> World {
        World {
            now: 0,
            nodes: Vec::new(),
            workers: Vec::new(),
            store: Store::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            queue: BinaryHeap::new(),
            sequence: 0,
            at_once: 0,
            lives: 0,
            mix,
            struck: FaultCounts::default(),
            latency_ms: (5, 20),
            timeout_ms: 750,
            far: Far::default(),
            fence: FenceRule::default(),
            mistake: None,
            clocks_beyond_drift: false,
            seat_edited: false,
            marks: 0,
            mended: false,
            has_workers: false,
            sweep_ms: 1000,
            retention_ms: 3_600_000,
            has_jobs: false,
            workload: JobWorkload::default(),
            work_done: WorkDone::default(),
            once: OnceKeys::default(),
            checks: Checks::default(),
            seat_checks: SeatChecks::default(),
            seat_edits: SeatEdits::default(),
            worker_checks: WorkerChecks::default(),
            job_checks: JobChecks::default(),
            modelled: true,
            monitors: Monitors::default(),
            trace: Trace::default(),
            steps: 0,
            fenced: 0,
            job_second: BTreeMap::new(),
        }
    }

    /// A number that was never used before.
    pub(crate) fn new_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    pub(crate) fn violated(&mut self, check: &'static str, what: impl FnOnce() -> String) {
        self.checks.violated(self.now, check, what);
    }

    pub(crate) fn strike(&mut self, kind: FaultKind, who: Who) {
        self.struck.add(kind);
        self.tell(who, || Noted::Fault(kind));
    }

    /// Keeps something about a node or a worker for a replay.
    pub(crate) fn tell(&mut self, who: Who, what: impl FnOnce() -> Noted) {
        match who {
            Who::Node(node) => self.trace.note(self.now, node, what),
            Who::Worker(index) => {
                let worker = &self.workers[index];
                self.trace
                    .say(self.now, || format!("{} of life {}: {}", worker.id, worker.life, what().line()));
            }
        }
    }

    /// Runs until the given time, including everything due by then.
    pub(crate) fn run_until(&mut self, end: u64) {
        while self.queue.peek().is_some_and(|Reverse(entry)| entry.at <= end) {
            let Some(Reverse(entry)) = self.queue.pop() else { break };
            self.at_once = if entry.at == self.now { self.at_once + 1 } else { 0 };
            self.now = entry.at;
            if self.at_once > AT_ONCE_MAX {
                self.violated(crate::checks::name::NO_STORM, || {
                    format!("things feed each other at one instant; now {:?} of {:?}", entry.what, entry.who)
                });
                break;
            }
            self.happen(entry);
        }
        self.now = end;
    }

    pub(crate) fn run_for(&mut self, ms: u64) {
        self.run_until(self.now + ms);
    }

    fn happen(&mut self, Entry { who, what, .. }: Entry) {
        let present = |life: u64| self.life(who) == life && self.is_up(who);
        match what {
            Happening::Wake { part, number, token } => self.wake(who, part, number, token),
            Happening::Land { from, op, then } => self.land(&from, &op, then),
            Happening::Answer { part, number, id, said } => self.deliver(who, part, number, id, said),
            Happening::Resume { life } if present(life) => self.resume(who),
            Happening::Run { life, what } if present(life) => self.run_changes(who, what),
            Happening::SendTask { life, epoch } if present(life) => self.send_task(who, epoch),
            Happening::Task { epoch, dispatched } => self.receive_task(who, epoch, dispatched),
            Happening::Resume { .. } | Happening::Run { .. } | Happening::SendTask { .. } => {}
        }
    }

    pub(crate) fn schedule(&mut self, at: u64, who: Who, what: Happening) {
        self.sequence += 1;
        let entry = Entry { at: at.max(self.now), sequence: self.sequence, who, what };
        self.queue.push(Reverse(entry));
    }
}
