//! Leaders that change and do not know it, workers that crash and pause, a store that loses, delays and hides answers; and
//! jobs in the middle of it.
#![allow(dead_code, reason = "two test programs use it")]

mod ledger;
mod store;

use ledger::LedgerCheck;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::machine::{Effect, In, Input, Machine, Now};
use tenure_core::{
    Assign, Claimer, ClaimerCommand, ClaimerConfig, ClaimerOutput, ClaimerRequest, DispatchCommand,
    DispatchOutput, DispatchRequest, Dispatcher, DispatcherConfig, Epoch, Expect, InboxDoc, Incarnation,
    JobId, JobLimits, JobRecord, JobState, LedgerDoc, Outcome, OutcomeKind, RequestId, SubmitAnswer, Time,
    WorkerId,
};

const WORKERS: usize = 3;
const SHARDS: usize = 2;
pub(crate) const ENTRIES_MAX: usize = 4;
const CHAOS_STEPS: usize = 1500;
const QUIET_ROUNDS: usize = 1500;
const LEADERS_MAX: usize = 6;
const JOBS_MAX: usize = 24;
/// Former lives that still act, at most.
const FORMER_MAX: usize = 2;

#[derive(Default)]
pub(crate) struct Story {
    pub(crate) violations: Vec<String>,
    pub(crate) leaders: usize,
    pub(crate) runs: usize,
    pub(crate) late: u64,
    pub(crate) duplicates: u64,
    pub(crate) fenced: u64,
    pub(crate) states: BTreeMap<JobState, usize>,
    pub(crate) archived: usize,
    pub(crate) removed: usize,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Ledger(usize),
    Inbox(WorkerId),
}

#[derive(Clone, Debug)]
pub(crate) enum Doc {
    Ledger(LedgerDoc),
    Inbox(InboxDoc),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Leader(usize),
    /// Which worker, and which life of it.
    Worker(usize, u64),
}

struct Write {
    key: Key,
    stamp: Stamp,
    doc: Doc,
    expect: Expect,
    by: Who,
}

enum Asked {
    Leader(usize, RequestId, DispatchRequest),
    Claimer(usize, u64, RequestId, ClaimerRequest),
}

/// Chooses anybody, whether there is room or not, or nobody at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Anybody(u64);

impl Assign for Anybody {
    type Facts = ();

    fn learn(&mut self, (): ()) {}

    fn load(&mut self, _: &WorkerId, _: Option<usize>) {}

    fn assign(&mut self, _: &JobRecord) -> Result<WorkerId, String> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Ok(name(&format!("w{}", (self.0 >> 33) % WORKERS as u64)))
    }
}

type Leading = Dispatcher<Anybody>;

struct Agent {
    worker: usize,
    name: WorkerId,
    life: u64,
    claimer: Claimer,
    known: Epoch,
    running: BTreeSet<(JobId, u32)>,
    skew: u64,
}

struct Lead {
    dispatcher: Leading,
    skew: u64,
    ended: bool,
}

pub(crate) struct World {
    rng: ChaCha8Rng,
    now: u64,
    objects: BTreeMap<Key, (Stamp, Doc, u64)>,
    versions: u64,
    air: Vec<Write>,
    asked: Vec<Asked>,
    leaders: Vec<Lead>,
    /// The workers, and after them former lives that do not know yet that they are.
    agents: Vec<Agent>,
    quiet: bool,
    submitted: usize,
    created: BTreeSet<JobId>,
    pub(crate) ledger_check: LedgerCheck,
}

pub(crate) fn name<T: std::str::FromStr<Err = tenure_core::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

fn incarnation(worker: usize, life: u64) -> Incarnation {
    Incarnation(1_000_000 + worker as u64 * 1000 + life)
}

pub(crate) fn run(seed: u64) -> Story {
    let mut world = World {
        rng: ChaCha8Rng::seed_from_u64(seed),
        now: 0,
        objects: BTreeMap::new(),
        versions: 0,
        air: Vec::new(),
        asked: Vec::new(),
        leaders: Vec::new(),
        agents: Vec::new(),
        quiet: false,
        submitted: 0,
        created: BTreeSet::new(),
        ledger_check: LedgerCheck::default(),
    };
    for worker in 0..WORKERS {
        let agent = world.agent(worker, 1);
        world.agents.push(agent);
    }
    world.succeed();
    for _ in 0..CHAOS_STEPS {
        world.step();
        if !world.ledger_check.violations.is_empty() {
            break;
        }
    }
    if world.ledger_check.violations.is_empty() {
        world.settle();
    }
    world.story()
}

impl World {
    fn story(self) -> Story {
        let late = self.leaders.iter().map(|lead| lead.dispatcher.counts().late).sum();
        let duplicates = self.agents.iter().map(|agent| agent.claimer.counts().duplicates).sum();
        let fenced = self.agents.iter().map(|agent| agent.claimer.counts().fenced).sum();
        let mut states = BTreeMap::new();
        for state in self.ledger_check.final_states() {
            *states.entry(state).or_insert(0) += 1;
        }
        Story {
            leaders: self.leaders.len(),
            runs: self.ledger_check.runs.len(),
            archived: self.ledger_check.archived.len(),
            removed: self.ledger_check.removed,
            violations: self.ledger_check.violations,
            late,
            duplicates,
            fenced,
            states,
        }
    }

    fn agent(&mut self, worker: usize, life: u64) -> Agent {
        let config = ClaimerConfig {
            incarnation: incarnation(worker, life),
            concurrency: 2,
            claims_max: 3,
            fast_ms: 100,
            slow_ms: 800,
            linger_ms: 50,
        };
        Agent {
            worker,
            name: name(&format!("w{worker}")),
            life,
            claimer: Claimer::new(config),
            known: Epoch(0),
            running: BTreeSet::new(),
            skew: self.rng.random_range(0..100_000),
        }
    }

    /// A new leader. The ones before go on as if nothing had happened.
    fn succeed(&mut self) {
        let epoch = self.leaders.len() as u64 + 1;
        let config = DispatcherConfig {
            incarnation: Incarnation(epoch),
            epoch: Epoch(epoch),
            shards: SHARDS,
            entries_max: ENTRIES_MAX,
            fast_ms: 100,
            slow_ms: 800,
            claim_timeout_ms: 2000,
            margin_ms: 500,
            retire_ms: 1500,
            keep_finished: 3,
        };
        let dispatcher = Dispatcher::new(config, Anybody(self.rng.random()));
        let skew = self.rng.random_range(0..100_000);
        self.leaders.push(Lead { dispatcher, skew, ended: false });
        let leader = self.leaders.len() - 1;
        self.registry(leader);
        self.lead(leader, Input::Wake);
    }

    fn registry(&mut self, leader: usize) {
        let quiet = self.quiet;
        // Now and then one is not known at all.
        let known = (0..WORKERS).filter(|_| quiet || self.rng.random_bool(0.9)).collect::<Vec<_>>();
        let rng = &mut self.rng;
        let list = known.iter().map(|w| (name(&format!("w{w}")), quiet || rng.random_bool(0.85)));
        let list = list.collect();
        self.lead(leader, Input::Command(DispatchCommand::Workers { list, listed: true, whole: true }));
    }

    // ---- actors ----

    fn lead(&mut self, leader: usize, input: In<Leading>) {
        let lead = &mut self.leaders[leader];
        if lead.ended {
            return;
        }
        let now = Now { at: Time(self.now + lead.skew), wall_ms: self.now as i64 };
        let mut out = Vec::new();
        lead.dispatcher.handle(now, input, &mut out);
        if lead.dispatcher.wake_at() == Some(now.at) {
            lead.dispatcher.handle(now, Input::Wake, &mut out);
        }
        for effect in out {
            match effect {
                Effect::Request(id, request) => self.asked.push(Asked::Leader(leader, id, request)),
                Effect::Output(DispatchOutput::Answered(
                    token,
                    SubmitAnswer::Created | SubmitAnswer::Exists,
                )) => {
                    self.created.insert(name(&format!("t{token}")));
                }
                Effect::Output(DispatchOutput::Answered(..) | DispatchOutput::Claimed { .. }) => {}
                Effect::Output(DispatchOutput::Update(update)) => self.ledger_check.update(&update),
                Effect::Output(DispatchOutput::Ended(_)) => self.leaders[leader].ended = true,
            }
        }
    }

    /// Where this life of a worker stands among the agents, if it is there.
    fn at(&self, worker: usize, life: u64) -> Option<usize> {
        self.agents.iter().position(|agent| agent.worker == worker && agent.life == life)
    }

    fn work(&mut self, at: usize, input: In<Claimer>) {
        let agent = &mut self.agents[at];
        let (worker, life) = (agent.worker, agent.life);
        let mut out = Vec::new();
        agent.claimer.handle(Now { at: Time(self.now + agent.skew), wall_ms: 0 }, input, &mut out);
        let mut replace = false;
        for effect in out {
            let agent = &mut self.agents[at];
            match effect {
                Effect::Request(id, request) => self.asked.push(Asked::Claimer(worker, life, id, request)),
                Effect::Output(ClaimerOutput::Run { id, attempt, .. }) => {
                    agent.running.insert((id.clone(), attempt));
                    self.ledger_check.ran(&id, attempt);
                }
                Effect::Output(ClaimerOutput::Cancel { id, attempt, dropped }) => {
                    agent.running.remove(&(id.clone(), attempt));
                    if !dropped {
                        self.end(at, id, attempt, Outcome::bare(OutcomeKind::Cancelled));
                    }
                }
                Effect::Output(ClaimerOutput::Drained) => replace = true,
            }
        }
        if replace && at < WORKERS {
            self.crash(at);
        }
    }

    fn end(&mut self, at: usize, id: JobId, attempt: u32, outcome: Outcome) {
        self.work(at, Input::Command(ClaimerCommand::Ended { id, attempt, outcome }));
    }

    /// The process is gone; what it sent is still on its way.
    fn crash(&mut self, worker: usize) {
        let life = self.agents[worker].life + 1;
        self.agents[worker] = self.agent(worker, life);
    }

    /// The process stood still for so long that another has taken its id; now it goes on, and has not heard of it.
    fn supersede(&mut self, worker: usize) {
        let next = self.agent(worker, self.agents[worker].life + 1);
        let former = std::mem::replace(&mut self.agents[worker], next);
        self.agents.truncate(WORKERS + FORMER_MAX - 1);
        self.agents.push(former);
    }

    fn finish_one(&mut self, at: usize) {
        let Some((id, attempt)) = self.agents[at].running.pop_first() else { return };
        let draw = if self.quiet { 0 } else { self.rng.random_range(0..10) };
        let kind = match draw {
            0..6 => OutcomeKind::Succeeded,
            6 => OutcomeKind::Partial,
            _ => OutcomeKind::Failed,
        };
        let result = Arc::from(format!("{id}/{attempt}").as_bytes());
        self.end(at, id, attempt, Outcome { kind, result });
    }

    fn submit(&mut self) {
        if self.submitted >= JOBS_MAX {
            return;
        }
        // Now and then one that was submitted before.
        let again = self.rng.random_bool(0.2);
        let number = if again { self.rng.random_range(0..=self.submitted) } else { self.submitted };
        self.submitted = self.submitted.max(number + 1);
        let ttl_ms = if self.rng.random_bool(0.2) { 3000 } else { 10_000_000 };
        let deadline_ms = if self.rng.random_bool(0.1) { 8000 } else { 0 };
        let target = self.rng.random_bool(0.5).then(|| name(&format!("w{}", number % WORKERS)));
        let limits = JobLimits { timeout_ms: 1500, ttl_ms, deadline_ms, attempts_max: 3, backoff_ms: 200 };
        let (id, series) = (name(&format!("t{number}")), name(&format!("s{number}")));
        let new = JobRecord::new(id, series, name("k"), limits);
        let record = JobRecord { watermark: 1, payload: Arc::from(*b"x"), target, ..new };
        let leader = self.rng.random_range(0..self.leaders.len());
        self.lead(leader, Input::Command(DispatchCommand::Submit(vec![(number as u64, record)])));
    }

    // ---- the schedule ----

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..48 => {
                if !self.asked.is_empty() {
                    let at = self.rng.random_range(0..self.asked.len());
                    let asked = self.asked.swap_remove(at);
                    self.serve(asked);
                }
            }
            48..54 => {
                if !self.air.is_empty() {
                    let at = self.rng.random_range(0..self.air.len());
                    let write = self.air.swap_remove(at);
                    self.land(write);
                }
            }
            54..76 => {
                self.now += self.rng.random_range(0..200);
                self.wake_one();
            }
            76..84 => {
                let at = self.rng.random_range(0..self.agents.len());
                self.finish_one(at);
            }
            84..89 => self.submit(),
            89 => {
                let (leader, job) =
                    (self.rng.random_range(0..self.leaders.len()), self.rng.random_range(0..JOBS_MAX));
                if self.rng.random_bool(0.3) {
                    self.lead(leader, Input::Command(DispatchCommand::Cancel(name(&format!("t{job}")))));
                }
            }
            90 => {
                let worker = self.rng.random_range(0..WORKERS);
                match self.rng.random_range(0..10) {
                    0..5 => self.crash(worker),
                    5..7 => self.supersede(worker),
                    _ => self.work(worker, Input::Command(ClaimerCommand::Drain)),
                }
            }
            91 => {
                if self.leaders.len() < LEADERS_MAX && self.rng.random_bool(0.5) {
                    self.succeed();
                }
            }
            92..95 => {
                let leader = self.rng.random_range(0..self.leaders.len());
                self.registry(leader);
            }
            _ => {
                let worker = self.rng.random_range(0..WORKERS);
                self.work(worker, Input::Command(ClaimerCommand::Look));
            }
        }
    }

    fn wake_one(&mut self) {
        let agents = self.agents.len();
        let at = self.rng.random_range(0..self.leaders.len() + agents);
        if at < agents {
            self.work(at, Input::Wake);
        } else {
            self.lead(at - agents, Input::Wake);
        }
    }

    /// Everything is served, nobody crashes, the newest leader is the only one: everything must come to an end.
    fn settle(&mut self) {
        self.quiet = true;
        // Their next heartbeat has told them.
        self.agents.truncate(WORKERS);
        self.succeed();
        let newest = self.leaders.len() - 1;
        for _ in 0..QUIET_ROUNDS {
            let mut served = 0;
            while let Some(asked) = self.asked.pop() {
                self.serve(asked);
                served += 1;
                if !self.ledger_check.violations.is_empty() {
                    return;
                }
                if served > 500 {
                    let storm = "one moment brought 500 requests: they feed each other".to_owned();
                    return self.ledger_check.violations.push(storm);
                }
            }
            while let Some(write) = self.air.pop() {
                self.land(write);
            }
            for worker in 0..WORKERS {
                self.finish_one(worker);
                self.work(worker, Input::Wake);
            }
            self.lead(newest, Input::Wake);
            self.now += 100;
            if !self.ledger_check.violations.is_empty() {
                return;
            }
        }
        self.ledger_check.must_be_over(&self.created, &self.objects);
    }
}
