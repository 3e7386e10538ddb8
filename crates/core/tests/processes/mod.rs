//! One node, a few processes, and anything happening to them at any moment.
#![allow(dead_code, reason = "two test programs use it")]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tenure_core::machine::{Effect, In, Input, Machine, Now};
use tenure_core::{
    Epoch, ProcessConfig, ProcessOutcome, ProcessState, Restart, Supervision, SupervisionCommand,
    SupervisionConfig, SupervisionEvent, SupervisionOutput, Time,
};

const STEPS: usize = 400;

/// What the world knows of one instance.
#[derive(Clone)]
struct Instance {
    number: u64,
    since: u64,
    ready: bool,
    cancelled: bool,
    aborted: bool,
    /// When it says that it is ready, and when it ends by itself.
    ready_at: Option<u64>,
    exit: Option<(u64, ProcessOutcome)>,
    /// How long it takes to obey.
    obeys_ms: u64,
    /// It ignores its abort for this long.
    deaf_ms: u64,
}

#[derive(Clone, Default)]
struct Record {
    alive: Option<Instance>,
    /// In this term: started, and ready or done.
    passed: bool,
    starts: u32,
    failures: u32,
    restart_at: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) restarts: usize,
    pub(crate) gave_up: usize,
    pub(crate) stuck: usize,
    pub(crate) terms: usize,
}

struct World {
    rng: ChaCha8Rng,
    now: u64,
    config: SupervisionConfig,
    machine: Supervision,
    records: Vec<Record>,
    leads: Option<u64>,
    /// Everything must have been aborted by then.
    by: Option<u64>,
    winding: bool,
    yielding_until: Option<u64>,
    epoch: u64,
    decided: Vec<u64>,
    last_hold: u64,
    ended: bool,
    /// Nothing fails any more.
    calm: bool,
    outcome: Outcome,
}

pub(crate) fn run(seed: u64) -> Outcome {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let config = config(&mut rng);
    let mut world = World {
        now: 1000,
        machine: Supervision::new(config.clone()),
        records: vec![Record::default(); config.processes.len()],
        config,
        rng,
        leads: None,
        by: None,
        winding: false,
        yielding_until: None,
        epoch: 0,
        decided: Vec::new(),
        last_hold: 0,
        ended: false,
        calm: false,
        outcome: Outcome::default(),
    };
    (0..STEPS).for_each(|_| world.step());
    world.must_settle();
    world.outcome
}

fn config(rng: &mut ChaCha8Rng) -> SupervisionConfig {
    let count = rng.random_range(1..=4);
    let processes = (0..count)
        .map(|_| ProcessConfig {
            restart: match rng.random_range(0..5) {
                0 => Restart::Temporary,
                1 => Restart::Transient,
                _ => Restart::Permanent,
            },
            ready_within_ms: rng.random_bool(0.4).then(|| rng.random_range(500..3000)),
            stop_grace_ms: rng.random_range(0..1500),
        })
        .collect();
    SupervisionConfig {
        processes,
        intensity: rng.random_range(0..5),
        window_ms: rng.random_range(2000..20_000),
        backoff_first_ms: 100,
        backoff_max_ms: 2000,
        hold_first_ms: 5000,
        hold_max_ms: 60_000,
        drain_ms: 2000,
    }
}

impl World {
    fn wrong(&mut self, what: String) {
        self.outcome.violations.push(format!("{} ms: {what}", self.now));
    }

    fn step(&mut self) {
        match self.rng.random_range(0..40) {
            0..4 if self.leads.is_none() && self.yielding_until.is_none() => self.lead(),
            4 if self.leads.is_some() => self.lose(),
            _ => {
                let ms = match self.rng.random_range(0..4) {
                    0 => self.rng.random_range(1..50),
                    1 => self.rng.random_range(50..500),
                    2 => self.rng.random_range(500..3000),
                    _ => self.rng.random_range(3000..9000),
                };
                self.pass(ms);
            }
        }
    }

    fn lead(&mut self) {
        self.epoch += 1;
        self.leads = Some(self.epoch);
        self.outcome.terms += 1;
        if self.by.is_none() {
            self.begin_term();
        }
        self.tell(SupervisionCommand::Leadership(Some((Epoch(self.epoch), Time(u64::MAX)))));
    }

    fn begin_term(&mut self) {
        self.decided.clear();
        self.winding = false;
        for record in &mut self.records {
            let alive = record.alive.take();
            *record = Record { alive, ..Record::default() };
        }
    }

    fn lose(&mut self) {
        self.leads = None;
        let yielding = self.yielding_until.take().is_some();
        let left = [0, 300, 2000][self.rng.random_range(0..3)];
        let by = self.now + left;
        self.by = Some(self.by.map_or(by, |before| before.min(by)));
        self.winding = true;
        self.tell(SupervisionCommand::Leadership(Some((Epoch(self.epoch), Time(by)))));
        self.tell(SupervisionCommand::Leadership(None));
        if yielding {
            self.tell(SupervisionCommand::StoodAside);
        }
    }

    /// Lets time pass, with everything that happens meanwhile, in its order.
    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        loop {
            let due = self.machine.wake_at().map(|at| at.0);
            let own = self.records.iter().filter_map(|record| record.alive.as_ref());
            let own = own.flat_map(|alive| [alive.ready_at, alive.exit.map(|(at, _)| at)]).flatten().min();
            let next = [due, own, self.yielding_until].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.happen();
            if self.outcome.violations.len() > 5 {
                return;
            }
        }
        self.now = end;
        self.check_deadline();
    }

    fn happen(&mut self) {
        let now = self.now;
        for process in 0..self.records.len() {
            let Some(alive) = &mut self.records[process].alive else { continue };
            let instance = alive.number;
            if alive.ready_at.is_some_and(|at| at <= now) {
                alive.ready_at = None;
                alive.ready = true;
                self.records[process].passed = true;
                self.tell(SupervisionCommand::Ready { process, instance });
            }
            let Some(alive) = &self.records[process].alive else { continue };
            if let Some((at, outcome)) = alive.exit
                && at <= now
            {
                self.records[process].alive = None;
                self.tell(SupervisionCommand::Exited { process, instance, outcome });
            }
        }
        if self.yielding_until.is_some_and(|at| at <= now) {
            self.lose();
        }
        self.hand(Input::Wake);
        self.check_deadline();
    }

    fn tell(&mut self, command: SupervisionCommand) {
        self.hand(Input::Command(command));
    }

    fn hand(&mut self, input: In<Supervision>) {
        let mut out = Vec::new();
        self.machine.handle(Now { at: Time(self.now), wall_ms: 0 }, input, &mut out);
        for effect in out {
            match effect {
                Effect::Output(output) => self.carry_out(output),
                Effect::Request(_, never) => match never {},
            }
        }
        let alive = self.records.iter().any(|record| record.alive.is_some());
        if !alive && self.winding && self.machine.epoch().is_none() {
            self.by = None;
        }
    }

    fn carry_out(&mut self, output: SupervisionOutput) {
        match output {
            SupervisionOutput::Start { process, instance, attempt } => {
                self.started(process, instance, attempt)
            }
            SupervisionOutput::Cancel { process } => self.cancelled(process),
            SupervisionOutput::Abort { process } => self.aborted(process),
            SupervisionOutput::Released { epoch } => self.released(epoch.0),
            SupervisionOutput::StandAside { hold_ms } => {
                if hold_ms != self.last_hold || self.leads.is_none() {
                    self.wrong(format!("stands aside for {hold_ms} ms, without need or not as told"));
                }
                self.yielding_until = Some(self.now + 50);
            }
            SupervisionOutput::Event(_, event) => self.told(event),
            SupervisionOutput::Ended => self.ended = true,
        }
    }

    fn started(&mut self, process: usize, number: u64, attempt: u32) {
        let now = self.now;
        if self.leads.is_none() || self.winding {
            self.wrong(format!("process {process} is started without leadership"));
        }
        if self.records[process].alive.is_some() {
            self.wrong(format!("process {process} runs twice"));
        }
        if attempt == 1 && self.records[..process].iter().any(|before| !before.passed) {
            self.wrong(format!("process {process} is started before those declared before it are ready"));
        }
        if attempt > 1 && self.records[process].restart_at.is_none_or(|at| now < at) {
            self.wrong(format!("process {process} is restarted before its pause is over"));
        }
        let calm = self.calm;
        let rng = &mut self.rng;
        let waits = self.config.processes[process].ready_within_ms;
        let ready_at = waits.map(|within| now + rng.random_range(1..within * 5 / 4));
        let ready_at = if calm { waits.map(|_| now + 1) } else { ready_at };
        let lives_ms = [20, 300, 4000, 60_000][rng.random_range(0..4)];
        let outcome = match rng.random_range(0..3) {
            0 => ProcessOutcome::Done,
            1 => ProcessOutcome::Failed,
            _ => ProcessOutcome::Panicked,
        };
        let exit = (!calm && rng.random_bool(0.8)).then(|| (now + rng.random_range(0..lives_ms), outcome));
        let obeys_ms = if rng.random_bool(0.7) { rng.random_range(0..50) } else { 100_000 };
        let deaf_ms = if !calm && rng.random_bool(0.1) { rng.random_range(0..20_000) } else { 0 };
        let record = &mut self.records[process];
        record.starts += 1;
        record.passed |= waits.is_none();
        record.restart_at = None;
        record.alive = Some(Instance {
            number,
            since: now,
            ready: waits.is_none(),
            cancelled: false,
            aborted: false,
            ready_at,
            exit,
            obeys_ms,
            deaf_ms,
        });
    }

    fn cancelled(&mut self, process: usize) {
        self.winding = true;
        let later = &self.records[process + 1..];
        if later.iter().any(|record| record.alive.as_ref().is_some_and(|alive| !alive.aborted)) {
            self.wrong(format!("process {process} is stopped before those started after it"));
        }
        let now = self.now;
        let Some(alive) = &mut self.records[process].alive else {
            return self.wrong(format!("process {process} is stopped and does not run"));
        };
        alive.cancelled = true;
        alive.ready_at = None;
        let exit = (now + alive.obeys_ms.max(alive.deaf_ms), ProcessOutcome::Done);
        alive.exit = Some(alive.exit.map_or(exit, |before| if before.0 < exit.0 { before } else { exit }));
    }

    fn aborted(&mut self, process: usize) {
        let now = self.now;
        let Some(alive) = &mut self.records[process].alive else {
            return self.wrong(format!("process {process} is aborted and does not run"));
        };
        let asked_first = alive.cancelled;
        alive.aborted = true;
        let exit = (now + alive.deaf_ms + 1, ProcessOutcome::Aborted);
        alive.exit = Some(alive.exit.map_or(exit, |before| if before.0 < exit.0 { before } else { exit }));
        if !asked_first {
            self.wrong(format!("process {process} is aborted before it was asked"));
        }
    }

    fn released(&mut self, epoch: u64) {
        if self.records.iter().any(|record| record.alive.as_ref().is_some_and(|alive| !alive.aborted)) {
            self.wrong(format!("epoch {epoch} is told to be over while a process runs"));
        }
        self.by = None;
        // A term that began meanwhile.
        if self.leads.is_some_and(|leads| leads > epoch) {
            self.begin_term();
        }
    }

    fn told(&mut self, event: SupervisionEvent) {
        match event {
            SupervisionEvent::Started { .. } => {}
            SupervisionEvent::Exited { process, outcome, ran_ms, restart_in_ms } => {
                self.exited(process, outcome, ran_ms, restart_in_ms);
            }
            SupervisionEvent::Stuck { process } => {
                self.outcome.stuck += 1;
                if self.records[process].alive.is_none() {
                    self.wrong(format!("process {process} is called stuck and does not run"));
                }
            }
            SupervisionEvent::GaveUp { hold_ms, .. } => {
                let first = hold_ms == self.config.hold_first_ms;
                let grew = hold_ms == (self.last_hold * 2).min(self.config.hold_max_ms);
                if !first && !grew {
                    self.wrong(format!("holds {hold_ms} ms after {} ms", self.last_hold));
                }
                self.last_hold = hold_ms;
                self.outcome.gave_up += 1;
                self.winding = true;
            }
        }
    }

    fn exited(&mut self, process: usize, outcome: ProcessOutcome, ran_ms: u64, restart_in_ms: Option<u64>) {
        let record = &mut self.records[process];
        if !self.winding {
            record.passed |= outcome == ProcessOutcome::Done;
            record.failures = if ran_ms >= self.config.window_ms { 1 } else { record.failures + 1 };
        }
        let Some(pause) = restart_in_ms else { return };
        self.outcome.restarts += 1;
        let (now, failures, window) = (self.now, self.records[process].failures, self.config.window_ms);
        self.records[process].restart_at = Some(now + pause);
        let wanted = (self.config.backoff_first_ms << (failures - 1).min(10)).min(self.config.backoff_max_ms);
        if pause != wanted {
            self.wrong(format!("process {process} pauses {pause} ms, not {wanted}"));
        }
        let allowed = match self.config.processes[process].restart {
            Restart::Permanent => true,
            Restart::Transient => outcome != ProcessOutcome::Done,
            Restart::Temporary => false,
        };
        if !allowed || self.winding || self.leads.is_none() {
            self.wrong(format!("process {process} is restarted after {outcome:?}"));
        }
        self.decided.push(now);
        let recent = self.decided.iter().filter(|at| now - **at < window).count();
        if recent > self.config.intensity as usize {
            self.wrong(format!("{recent} restarts within {window} ms"));
        }
    }

    /// By the deadline everything has ended or was aborted.
    fn check_deadline(&mut self) {
        let Some(by) = self.by.filter(|by| self.now > *by) else { return };
        let late = self.records.iter().filter_map(|record| record.alive.as_ref()).any(|alive| !alive.aborted);
        if late {
            self.wrong(format!("a process was not aborted by {by} ms"));
        }
        self.by = None;
    }

    /// Once nothing fails any more, every process runs under the next leadership, and all stop when asked.
    fn must_settle(&mut self) {
        self.calm = true;
        if self.leads.is_some() {
            self.lose();
        }
        self.pass(200_000);
        if self.leads.is_none() {
            self.lead();
        }
        self.pass(1000);
        let states: BTreeMap<usize, ProcessState> =
            (0..self.records.len()).map(|process| (process, self.machine.state(process))).collect();
        if states.values().any(|state| *state != ProcessState::Running) {
            self.wrong(format!("not all run: {states:?}"));
        }
        self.winding = true;
        self.by = Some(self.now + 3000);
        self.tell(SupervisionCommand::Stop);
        self.pass(10_000);
        if !self.ended || self.records.iter().any(|record| record.alive.is_some()) {
            self.wrong("the supervision did not end".to_owned());
        }
    }
}
