//! A node's office: the processes that run while it leads, under the production supervision. The first process is the one that
//! assigns work.

use crate::bureau::Bureau;
use crate::check::name;
use crate::fault::FaultKind;
use crate::queue::Happening;
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use std::collections::BTreeSet;
use std::hash::Hash;
use tenure_core::machine::{self, In, Machine, Now};
use tenure_core::{
    Epoch, Input, ProcessOutcome, Role, Supervision, SupervisionCommand, SupervisionConfig, SupervisionEvent,
    SupervisionOutput, Time,
};

#[derive(Clone, Debug)]
pub(crate) enum OfficeInput {
    /// Leadership may have changed.
    Look,
    /// Time has passed, unless another wake-up was requested since.
    Wake(u64),
    Ready(usize, u64),
    Exited(usize, u64, ProcessOutcome),
    /// Leadership was given up, or there was none.
    AsideOver,
}

/// A running instance of a process.
pub(crate) struct Instance {
    pub(crate) number: u64,
    epoch: Epoch,
    pub(crate) cancelled: bool,
    aborted: bool,
    obeys_ms: u64,
    /// It ignores its abort for this long.
    deaf_ms: u64,
}

/// One node's office.
pub(crate) struct Office {
    machine: Supervision,
    /// Leadership as the supervision was told.
    told: Option<(Epoch, Time)>,
    /// Leadership is being given up.
    aside: bool,
    /// Everything that runs, by process; a process never has more than one instance.
    pub(crate) instances: Vec<Vec<Instance>>,
    /// Epochs whose work must stop and has not been reported as stopped.
    owed: BTreeSet<Epoch>,
    token: u64,
    held: Vec<OfficeInput>,
    pub(crate) bureau: Option<Bureau>,
}

impl World {
    /// A new process of a node has a new, empty office.
    pub(crate) fn new_office(&mut self, node: usize) {
        if !self.staffed {
            return;
        }
        // The rest of the drain is for vacating.
        let drain_ms = self.nodes[node].config.drain_ms / 4 * 3;
        let config = SupervisionConfig { drain_ms, ..self.labour.supervision.clone() };
        let instances = config.processes.iter().map(|_| Vec::new()).collect();
        let office = Office {
            machine: Supervision::new(config),
            told: None,
            aside: false,
            instances,
            owed: BTreeSet::new(),
            token: 0,
            held: Vec::new(),
            bureau: None,
        };
        match node < self.offices.len() {
            true => self.offices[node] = office,
            false => self.offices.push(office),
        }
    }

    /// Whether the guard of this epoch is live.
    pub(crate) fn guarded(&self, node: usize, epoch: Epoch) -> bool {
        let target = &self.nodes[node];
        let local = target.clock.local(self.now);
        let live =
            |acting: crate::node::Acting| acting.epoch == epoch && !acting.told && local < acting.deadline;
        target.alive && target.acting.is_some_and(live)
    }

    /// Leadership has changed: the next step of the office sees it.
    pub(crate) fn nudge_office(&mut self, node: usize) {
        if self.staffed {
            let (now, life) = (self.now, self.nodes[node].life);
            self.schedule(now, node, life, Happening::Office(OfficeInput::Look));
        }
    }

    /// The core wants work of this epoch to stop, and wants to hear when it has.
    pub(crate) fn close_office(&mut self, node: usize, epoch: Epoch) {
        self.offices[node].owed.insert(epoch);
        self.nudge_office(node);
    }

    /// Leadership was lost: giving it up need not wait any longer.
    pub(crate) fn left_office(&mut self, node: usize) {
        if self.staffed && self.offices[node].aside {
            let (now, life) = (self.now, self.nodes[node].life);
            self.schedule(now, node, life, Happening::Office(OfficeInput::AsideOver));
        }
    }

    pub(crate) fn resume_office(&mut self, node: usize) {
        if !self.staffed {
            return;
        }
        for input in std::mem::take(&mut self.offices[node].held) {
            self.feed_office(node, input);
        }
        self.feed_office(node, OfficeInput::Look);
        self.resume_bureau(node);
    }

    pub(crate) fn feed_office(&mut self, node: usize, input: OfficeInput) {
        if !self.nodes[node].alive {
            return;
        }
        if self.nodes[node].paused {
            self.offices[node].held.push(input);
            return;
        }
        if matches!(input, OfficeInput::Wake(token) if token != self.offices[node].token) {
            return;
        }
        self.steps += 1;
        self.tell_leadership(node);
        let command = match input {
            // Every look does whatever has fallen due.
            OfficeInput::Look | OfficeInput::Wake(_) => None,
            OfficeInput::Ready(process, instance) => Some(SupervisionCommand::Ready { process, instance }),
            OfficeInput::Exited(process, instance, outcome) => self.on_exit(node, process, instance, outcome),
            OfficeInput::AsideOver => {
                self.offices[node].aside = false;
                Some(SupervisionCommand::StoodAside)
            }
        };
        self.supervise(node, command.map_or(machine::Input::Wake, machine::Input::Command));
        self.check_office(node);
        self.report_stopped(node);
        self.rearm_office(node);
    }

    /// What the supervision knows of leadership comes first, whatever comes in: where the deadline is, then whether it ended.
    fn tell_leadership(&mut self, node: usize) {
        let acting = self.nodes[node].acting.map(|acting| (acting.epoch, acting.deadline));
        let known = self.offices[node].told.map(|(epoch, _)| epoch);
        let last = acting.filter(|(epoch, _)| known == Some(*epoch));
        let present = acting.filter(|(epoch, _)| self.guarded(node, *epoch));
        for told in last.map(Some).into_iter().chain([present]) {
            if std::mem::replace(&mut self.offices[node].told, told) != told {
                self.supervise(node, machine::Input::Command(SupervisionCommand::Leadership(told)));
            }
        }
    }

    fn supervise(&mut self, node: usize, input: In<Supervision>) {
        let now = Now { at: self.nodes[node].clock.local(self.now), wall_ms: 0 };
        let mut effects = Vec::new();
        self.offices[node].machine.handle(now, input, &mut effects);
        for effect in effects {
            match effect {
                machine::Effect::Output(output) => {
                    self.trace.office(self.now, node, &output);
                    self.carry_office(node, output);
                }
                machine::Effect::Request(_, never) => match never {},
            }
        }
    }

    fn carry_office(&mut self, node: usize, output: SupervisionOutput) {
        let (now, life) = (self.now, self.nodes[node].life);
        match output {
            SupervisionOutput::Start { process, instance, attempt } => {
                self.start_process(node, process, instance, attempt);
            }
            SupervisionOutput::Cancel { process } => self.end_process(node, process, false),
            SupervisionOutput::Abort { process } => self.end_process(node, process, true),
            SupervisionOutput::Released { epoch } => {
                let runs = |instance: &&Instance| instance.epoch == epoch && !instance.aborted;
                if let Some(running) = self.offices[node].instances.iter().flatten().find(runs) {
                    let number = running.number;
                    self.judge.violated(now, name::ENDED_FIRST, || {
                        format!("{node} says that {epoch:?} is over, and instance {number} runs")
                    });
                }
            }
            SupervisionOutput::StandAside { hold_ms } => {
                self.offices[node].aside = true;
                self.schedule(now, node, life, Happening::Aside { hold_ms });
            }
            SupervisionOutput::Event(_, event) => {
                match event {
                    SupervisionEvent::GaveUp { .. } => self.work_done.gave_up += 1,
                    SupervisionEvent::Stuck { .. } => self.struck.add(FaultKind::StuckWork),
                    SupervisionEvent::Exited { restart_in_ms: Some(_), .. } => self.work_done.restarts += 1,
                    SupervisionEvent::Started { .. } | SupervisionEvent::Exited { .. } => {}
                }
                self.trace.note(now, node, || Noted::Work(format!("{event:?}")));
            }
            SupervisionOutput::Ended => {}
        }
    }

    /// The processes cannot work here: leadership must be given up.
    pub(crate) fn stand_aside(&mut self, node: usize, hold_ms: u64) {
        if matches!(self.nodes[node].core.role(), Some(Role::Leader | Role::Draining)) {
            self.feed(node, Input::StandAside { hold_ms });
            return;
        }
        self.feed_office(node, OfficeInput::AsideOver);
    }

    fn start_process(&mut self, node: usize, process: usize, number: u64, attempt: u32) {
        let (now, life, peace) = (self.now, self.nodes[node].life, self.peace);
        let leads = self.offices[node].machine.epoch();
        let Some(epoch) = leads.filter(|epoch| self.guarded(node, *epoch)) else {
            // Its guard ended before it began: nothing of it runs.
            let outcome = ProcessOutcome::Done;
            if leads.is_none() {
                self.judge.violated(now, name::GUARDED, || {
                    format!("{node} starts process {process} without leadership, attempt {attempt}")
                });
            }
            let exited = OfficeInput::Exited(process, number, outcome);
            self.offices[node].instances[process].push(Instance {
                number,
                epoch: Epoch(0),
                cancelled: true,
                aborted: true,
                obeys_ms: 0,
                deaf_ms: 0,
            });
            return self.schedule(now, node, life, Happening::Office(exited));
        };
        if !self.offices[node].instances[process].is_empty() {
            self.judge.violated(now, name::ONE_INSTANCE, || format!("{node} runs process {process} twice"));
        }
        let slow = self.mix.has(FaultKind::SlowWork) && self.rng.random_bool(0.3);
        let deaf = self.mix.has(FaultKind::StuckWork) && self.rng.random_bool(0.08);
        let obeys_ms = if slow { self.rng.random_range(0..4000) } else { self.rng.random_range(0..30) };
        let deaf_ms = if deaf { self.rng.random_range(0..9000) } else { 0 };
        if slow {
            self.struck.add(FaultKind::SlowWork);
        }
        let instance = Instance { number, epoch, cancelled: false, aborted: false, obeys_ms, deaf_ms };
        self.offices[node].instances[process].push(instance);
        if process == 0 {
            self.open_bureau(node, epoch, number);
        } else if let Some(within) = self.labour.supervision.processes[process].ready_within_ms {
            let longest = if peace { 100 } else { within * 5 / 4 };
            let at = now + self.rng.random_range(1..longest.max(2));
            self.schedule(at, node, life, Happening::Office(OfficeInput::Ready(process, number)));
        }
        // Some end by themselves.
        if !peace && self.mix.has(FaultKind::ProcessFails) && self.rng.random_bool(0.4) {
            let outcome = match self.rng.random_range(0..3) {
                0 => ProcessOutcome::Done,
                1 => ProcessOutcome::Failed,
                _ => ProcessOutcome::Panicked,
            };
            let longest = [300, 4000, 30_000][self.rng.random_range(0..3)];
            let at = now + self.rng.random_range(1..longest);
            self.schedule(at, node, life, Happening::Fails { process, instance: number, outcome });
        }
    }

    /// A process ends by itself.
    pub(crate) fn process_fails(
        &mut self,
        node: usize,
        process: usize,
        number: u64,
        outcome: ProcessOutcome,
    ) {
        let runs = |instance: &Instance| instance.number == number && !instance.cancelled;
        if self.peace || !self.offices[node].instances[process].iter().any(runs) {
            return;
        }
        self.strike(FaultKind::ProcessFails, node);
        self.feed_office(node, OfficeInput::Exited(process, number, outcome));
    }

    /// A process is asked to stop, or aborted. Its guard is over either way.
    fn end_process(&mut self, node: usize, process: usize, abort: bool) {
        let (now, life) = (self.now, self.nodes[node].life);
        if process == 0 {
            self.offices[node].bureau = None;
        }
        let Some(instance) = self.offices[node].instances[process].last_mut() else { return };
        instance.cancelled = true;
        instance.aborted |= abort;
        let (after, outcome) = match abort {
            true => (instance.deaf_ms + 1, ProcessOutcome::Aborted),
            false => (instance.obeys_ms.max(instance.deaf_ms), ProcessOutcome::Done),
        };
        let exited = OfficeInput::Exited(process, instance.number, outcome);
        self.schedule(now + after, node, life, Happening::Office(exited));
    }

    fn on_exit(
        &mut self,
        node: usize,
        process: usize,
        number: u64,
        outcome: ProcessOutcome,
    ) -> Option<SupervisionCommand> {
        let instances = &mut self.offices[node].instances[process];
        let before = instances.len();
        instances.retain(|instance| instance.number != number);
        if instances.len() == before {
            return None; // It has ended before.
        }
        if process == 0 && self.offices[node].bureau.as_ref().is_some_and(|bureau| bureau.instance == number)
        {
            self.offices[node].bureau = None;
        }
        Some(SupervisionCommand::Exited { process, instance: number, outcome })
    }

    /// Nothing runs past the lease, except what was aborted and ignores that.
    fn check_office(&mut self, node: usize) {
        let now = self.now;
        let office = &self.offices[node];
        let local = self.nodes[node].clock.local(now);
        let live = |epoch: Epoch| {
            let acting = self.nodes[node].acting;
            acting.is_some_and(|acting| acting.epoch == epoch && local < acting.deadline)
        };
        let runs = office.instances.iter().flatten().find(|one| !one.aborted && !live(one.epoch));
        if let Some(one) = runs {
            let (number, epoch) = (one.number, one.epoch);
            self.judge.violated(now, name::GUARDED, || {
                format!("instance {number} of {epoch:?} runs on {node}, and its lease is over")
            });
        }
    }

    /// Another node's work begins: nothing of an earlier epoch may run on a machine that is awake.
    pub(crate) fn check_offices(&mut self, leader: usize, epoch: Epoch) {
        if !self.staffed || self.wild || self.meddled {
            return;
        }
        let now = self.now;
        let awake = |node: &usize| *node != leader && self.nodes[*node].alive && !self.nodes[*node].paused;
        let runs = (0..self.offices.len()).filter(awake).find(|node| {
            let all = self.offices[*node].instances.iter().flatten();
            all.into_iter().any(|one| !one.aborted && one.epoch < epoch)
        });
        if let Some(node) = runs {
            self.judge.violated(now, name::GUARDED, || {
                format!("{leader} leads in {epoch:?}, and processes of an earlier epoch run on {node}")
            });
        }
    }

    /// The driver waits for every guard: the supervisor's, and that of every instance.
    fn report_stopped(&mut self, node: usize) {
        let (now, life) = (self.now, self.nodes[node].life);
        let office = &self.offices[node];
        let held = |epoch: &Epoch| {
            office.machine.epoch() == Some(*epoch)
                || office.instances.iter().flatten().any(|one| one.epoch == *epoch)
        };
        let stopped: Vec<Epoch> = office.owed.iter().copied().filter(|epoch| !held(epoch)).collect();
        for epoch in stopped {
            self.offices[node].owed.remove(&epoch);
            self.schedule(now, node, life, Happening::Stopped { epoch });
        }
    }

    /// The wake-up comes at a different time now: the clock or something else changed.
    pub(crate) fn rearm_office(&mut self, node: usize) {
        let office = &self.offices[node];
        let local = self.nodes[node].clock.local(self.now);
        let Some(at) = office.machine.wake_at().map(|at| at.max(local)) else { return };
        let Some(when) = self.nodes[node].clock.when(at) else { return };
        let life = self.nodes[node].life;
        let office = &mut self.offices[node];
        office.token += 1;
        let token = office.token;
        self.schedule(when, node, life, Happening::Office(OfficeInput::Wake(token)));
    }

    /// Faults have ended: every process that is still starting gets ready.
    pub(crate) fn mend_office(&mut self, node: usize) {
        for process in 1..self.offices[node].instances.len() {
            let numbers: Vec<u64> =
                self.offices[node].instances[process].iter().map(|one| one.number).collect();
            for number in numbers {
                self.feed_office(node, OfficeInput::Ready(process, number));
            }
        }
    }
}

/// The office's part of the digest.
impl crate::trace::Trace {
    pub(crate) fn office(&mut self, at: u64, node: usize, what: &impl Hash) {
        self.worker(at, node + 1000, what);
    }
}
