//! The world: nodes of the production core, one store, true time on one heap, one random source.

use crate::book::Book;
use crate::check::Judge;
use crate::clock::Clock;
use crate::far::Far;
use crate::fault::{FaultCounts, FaultKind, FaultMix};
use crate::hand::Hand;
use crate::labour::{Labour, WorkDone};
use crate::monitor::Monitors;
use crate::neglect::Neglect;
use crate::node::{Gate, Kind, Node, Work};
use crate::office::Office;
use crate::queue::{Entry, Happening};
use crate::registry::Registry;
use crate::shelf::Shelf;
use crate::silence::Watch;
use crate::store::SimStore;
use crate::sweep::NodeSweep;
use crate::trace::{Noted, Trace};
use crate::witness::Witnesses;
use crate::worker::Worker;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use tenure_core::{
    Answer, Config, Coordinator, Effect, Epoch, Event, FenceRule, Holder, Incarnation, Input, NodeId,
    SeatAnswer, WakeToken,
};

/// Most events at one instant; more means that events feed each other.
const AT_ONCE_MAX: u64 = 20_000;

/// A start of work: when, where, in which epoch, and whether it is a new epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    pub(crate) at: u64,
    pub(crate) node: usize,
    pub(crate) epoch: Epoch,
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: SimStore,
    pub(crate) judge: Judge,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) mix: FaultMix,
    pub(crate) struck: FaultCounts,
    /// One way, in milliseconds.
    pub(crate) latency_ms: (u64, u64),
    pub(crate) timeout_ms: u64,
    pub(crate) far: Far,
    pub(crate) fence: FenceRule,
    /// Clocks are beyond the promise: two nodes may act then.
    pub(crate) wild: bool,
    /// The seat was changed by hand: claims by nodes that cannot know are not held against them.
    pub(crate) meddled: bool,
    /// How often the seat was marked from outside.
    pub(crate) marks: u64,
    pub(crate) neglect: Option<Neglect>,
    pub(crate) trace: Trace,
    pub(crate) began: Vec<Began>,
    /// The smallest gap between the work of a silent leader and that of the node that took over, in thousandths of a lease.
    /// Crashes do not count, nor does anything beyond the promise.
    pub(crate) margin: Option<u64>,
    /// The last epoch that was claimed over a held record.
    pub(crate) taken_over: Epoch,
    pub(crate) steps: u64,
    /// Stale tasks that were refused.
    pub(crate) fenced: u64,
    pub(crate) witnesses: Witnesses,
    /// Whether steps are compared with the proof.
    pub(crate) modelled: bool,
    pub(crate) monitors: Monitors,
    queue: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    lives: u64,
    pub(crate) last_leader: Option<(usize, u64)>,
    /// Whether there are workers at all.
    pub(crate) manned: bool,
    pub(crate) sweep_ms: u64,
    pub(crate) retention_ms: u64,
    pub(crate) workers: Vec<Worker>,
    pub(crate) registry: Registry,
    /// One per node, if there are workers.
    pub(crate) sweeps: Vec<NodeSweep>,
    pub(crate) watch: Watch,
    /// There was garbage among the workers' objects when the faults ended.
    pub(crate) had_junk: bool,
    /// A worker's object could not be read.
    pub(crate) had_unread: bool,
    /// Whether leaders have work of their own: processes, jobs, schedules.
    pub(crate) staffed: bool,
    /// The faults have ended: nothing fails by itself any more.
    pub(crate) peace: bool,
    pub(crate) labour: Labour,
    pub(crate) shelf: Shelf,
    pub(crate) book: Book,
    /// One per node, if leaders have work.
    pub(crate) offices: Vec<Office>,
    /// The hands of workers that have their id.
    pub(crate) hands: BTreeMap<usize, Hand>,
    pub(crate) work_done: WorkDone,
    /// How many events happened at this instant.
    at_once: u64,
    /// By node: the current second, the requests for jobs in it, and the count of updates at its start.
    pub(crate) job_second: BTreeMap<usize, (u64, u64, u64)>,
}

impl World {
    pub(crate) fn new(seed: u64, mix: FaultMix) -> World {
        World {
            now: 0,
            nodes: Vec::new(),
            store: SimStore::default(),
            judge: Judge::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            mix,
            struck: FaultCounts::default(),
            latency_ms: (5, 20),
            timeout_ms: 750,
            far: Far::default(),
            fence: FenceRule::default(),
            wild: false,
            meddled: false,
            marks: 0,
            neglect: None,
            trace: Trace::default(),
            began: Vec::new(),
            margin: None,
            taken_over: Epoch(0),
            steps: 0,
            fenced: 0,
            witnesses: Witnesses::default(),
            modelled: true,
            monitors: Monitors::default(),
            queue: BinaryHeap::new(),
            sequence: 0,
            lives: 0,
            last_leader: None,
            manned: false,
            sweep_ms: 1000,
            retention_ms: 3_600_000,
            workers: Vec::new(),
            registry: Registry::default(),
            sweeps: Vec::new(),
            watch: Watch::default(),
            had_junk: false,
            had_unread: false,
            staffed: false,
            peace: false,
            labour: Labour::default(),
            shelf: Shelf::default(),
            book: Book::default(),
            offices: Vec::new(),
            hands: BTreeMap::new(),
            work_done: WorkDone::default(),
            at_once: 0,
            job_second: BTreeMap::new(),
        }
    }

    /// Adds a node at rest; several may share one id.
    pub(crate) fn add(&mut self, id: &str, config: Config, rate: u64, work: Work) -> usize {
        self.lives += 1;
        let id = NodeId::new(id).expect("a valid id");
        let me = Holder { node: id.clone(), incarnation: Incarnation(self.lives) };
        self.nodes.push(Node {
            id,
            core: Coordinator::new(config.clone(), me),
            config,
            life: self.lives,
            alive: true,
            paused: false,
            cut_out: false,
            cut_in: false,
            work,
            clock: Clock::new(self.now, rate),
            last_jump: 0,
            awake_rate: rate,
            wall_off_ms: 0,
            faults: VecDeque::new(),
            burst: 0,
            crash_in: None,
            held: Vec::new(),
            acting: None,
            ended: None,
            wake: None,
            outstanding: Vec::new(),
            sent: [0; Kind::COUNT],
            gate: Gate::default(),
            lost: Epoch(0),
            stopping: false,
            running: false,
            second: (0, 0),
        });
        self.new_sweep(self.nodes.len() - 1);
        self.new_office(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    pub(crate) fn new_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    pub(crate) fn strike(&mut self, kind: FaultKind, node: usize) {
        self.struck.add(kind);
        self.trace.note(self.now, node, || Noted::Fault(kind));
    }

    pub(crate) fn start(&mut self, node: usize, random: u64) {
        self.nodes[node].running = true;
        self.feed(node, Input::Start { random });
    }

    pub(crate) fn stop(&mut self, node: usize) {
        let target = &mut self.nodes[node];
        target.stopping |= target.running;
        self.feed(node, Input::Stop);
    }

    /// The clock changed, so the requested wake-up comes at a different time now.
    pub(crate) fn rearm(&mut self, node: usize) {
        self.rearm_sweep(node);
        if self.staffed {
            self.rearm_office(node);
            self.rearm_bureau(node);
        }
        for worker in self.workers_on(node) {
            self.rearm_worker(worker);
        }
        self.rearm_core(node);
    }

    fn rearm_core(&mut self, node: usize) {
        let target = &self.nodes[node];
        let Some((token, at)) = target.wake else { return };
        if let Some(when) = target.clock.when(at) {
            let life = target.life;
            self.schedule(when, node, life, Happening::Wake { token });
        }
    }

    /// Runs until the given time, including everything due by then.
    pub(crate) fn run_until(&mut self, end: u64) {
        while let Some(Reverse(entry)) = self.queue.peek() {
            if entry.at > end {
                break;
            }
            let Some(Reverse(entry)) = self.queue.pop() else { break };
            self.at_once = if entry.at == self.now { self.at_once + 1 } else { 0 };
            self.now = entry.at;
            if self.at_once > AT_ONCE_MAX {
                let (now, node) = (self.now, entry.node);
                self.judge.violated(now, crate::check::name::NO_STORM, || {
                    format!("things feed each other at one instant; now {:?} of {node}", entry.what)
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

    fn happen(&mut self, entry: Entry) {
        let Entry { node, life, what, .. } = entry;
        let workers = matches!(
            what,
            Happening::WorkerWake { .. }
                | Happening::WorkerResume
                | Happening::Ask { .. }
                | Happening::Told { .. }
                | Happening::HandWake { .. }
                | Happening::RunEnds { .. }
        );
        if workers {
            return self.happen_to_workers(node, life, what);
        }
        // A request on the wire lands even if its sender is dead by now; everything else dies with the sender.
        let present = self.nodes[node].life == life && self.nodes[node].alive;
        match what {
            Happening::Land { id, request, sent, down, then } => {
                self.land(node, life, id, &request, sent, down, then)
            }
            Happening::Task { epoch, dispatched } => self.receive(node, epoch, dispatched),
            _ if !present => {}
            Happening::Wake { token } => self.on_wake(node, token),
            Happening::Answer { id, answer } => {
                let outstanding = &mut self.nodes[node].outstanding;
                if let Some(index) = outstanding.iter().position(|(waiting, _)| *waiting == id) {
                    outstanding.swap_remove(index);
                    if !self.nodes[node].paused {
                        self.witnesses.hear(self.now, life, &answer);
                    }
                    let found = matches!(answer, Answer::Seat(SeatAnswer::Found { .. }));
                    self.feed(node, Input::Answer { id, answer });
                    if found {
                        self.saw_seat(node);
                    }
                }
            }
            Happening::Stopped { epoch } => self.feed(node, Input::ProcessesStopped { epoch }),
            Happening::Dispatch { epoch } => self.dispatch(node, epoch),
            Happening::Resume => self.resume(node),
            Happening::SweepWake { token } => self.wake_sweep(node, token),
            Happening::Office(input) => self.feed_office(node, input),
            Happening::Aside { hold_ms } => self.stand_aside(node, hold_ms),
            Happening::Fails { process, instance, outcome } => {
                self.process_fails(node, process, instance, outcome)
            }
            Happening::Bureau { incarnation, wake } => self.wake_bureau(node, incarnation, wake),
            Happening::WorkerWake { .. }
            | Happening::WorkerResume
            | Happening::HandWake { .. }
            | Happening::RunEnds { .. }
            | Happening::Ask { .. }
            | Happening::Told { .. } => {}
        }
    }

    fn on_wake(&mut self, node: usize, token: WakeToken) {
        let target = &mut self.nodes[node];
        match target.wake {
            Some((current, at)) if current == token => {
                if target.clock.local(self.now) >= at {
                    target.wake = None;
                    self.feed(node, Input::Wake(token));
                } else {
                    self.rearm_core(node); // The clock has slowed down since.
                }
            }
            Some(_) | None if self.mix.has(FaultKind::StaleWake) && !target.paused => {
                self.strike(FaultKind::StaleWake, node);
                // It is ignored; anything that has fallen due is left to the wake-up that counts.
                self.step(node, Input::Wake(token));
            }
            Some(_) | None => {}
        }
    }

    /// One step of one node, and what must hold after it.
    pub(crate) fn feed(&mut self, node: usize, input: Input) {
        if self.step(node, input) {
            self.check_node(node);
        }
    }

    /// One step; returns whether it ran to its end.
    fn step(&mut self, node: usize, input: Input) -> bool {
        let target = &mut self.nodes[node];
        if !target.alive {
            return false;
        }
        if target.paused {
            target.held.push(input);
            return false;
        }
        if let Input::ProcessesStopped { epoch } = &input
            && target.acting.as_ref().is_some_and(|acting| acting.epoch == *epoch)
        {
            target.ended = target.acted_until(self.now);
            target.acting = None;
        }
        self.steps += 1;
        let mut effects = Vec::new();
        let told = self.modelled.then(|| (target.core.view(), input.clone()));
        target.core.step(target.clock.local(self.now), input, &mut effects);
        if let Some((before, input)) = told {
            self.follow(node, &before, &input, &effects);
        }
        for effect in effects {
            if let Some(left) = &mut self.nodes[node].crash_in {
                if *left == 0 {
                    self.strike(FaultKind::CrashMidway, node);
                    self.crash(node);
                    return false;
                }
                *left -= 1;
            }
            self.trace.effect(self.now, node, &effect);
            self.carry_out(node, effect);
        }
        true
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        let life = self.nodes[node].life;
        match effect {
            Effect::Request(id, request) => self.send(node, id, request),
            Effect::Wake { token, at } => {
                self.nodes[node].wake = Some((token, at));
                self.rearm_core(node);
            }
            Effect::StartProcesses { epoch, deadline } => self.start_work(node, epoch, deadline),
            Effect::ExtendLease { epoch, deadline } => {
                let deadline = self.handed_out(node, deadline);
                if let Some(acting) = &mut self.nodes[node].acting
                    && acting.epoch == epoch
                {
                    acting.deadline = deadline;
                }
            }
            Effect::StopProcesses { epoch, by } => self.stop_work(node, epoch, by),
            Effect::Emit(Event::LostLeadership { epoch, .. }) => {
                let target = &mut self.nodes[node];
                target.lost = target.lost.max(epoch);
                self.far.losses += 1;
                self.left_office(node);
            }
            Effect::Emit(Event::LeaderChanged { epoch, .. }) => {
                let target = &mut self.nodes[node];
                let local = target.clock.local(self.now);
                target.gate.observe(epoch, local);
            }
            Effect::Emit(Event::LeaseAtRisk { .. }) => self.far.stops += 1,
            Effect::Emit(_) => {}
            Effect::Stopped(_) => {
                let target = &mut self.nodes[node];
                (target.running, target.stopping) = (false, false);
                // A node at rest waits for no answer any more, and starts again with what it never forgets.
                target.outstanding.clear();
                self.witnesses.forget(life);
                self.new_sweep(node);
            }
        }
    }

    pub(crate) fn schedule(&mut self, at: u64, node: usize, life: u64, what: Happening) {
        self.sequence += 1;
        let entry = Entry { at: at.max(self.now), sequence: self.sequence, node, life, what };
        self.queue.push(Reverse(entry));
    }
}
