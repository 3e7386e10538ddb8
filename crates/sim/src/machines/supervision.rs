//! The supervision of a leader's processes, and the processes. The first of them gives out jobs.

use crate::checks::name;
use crate::fault::FaultKind;
use crate::queue::Run;
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Op, Said};
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use std::collections::BTreeSet;
use tenure_core::machine::{Input, NoRequest};
use tenure_core::{
    Coordinator, Epoch, ProcessOutcome, RequestId, Role, Supervision, SupervisionCommand, SupervisionConfig,
    SupervisionEvent, SupervisionOutput, Time,
};

/// A running instance of a process.
pub(crate) struct Instance {
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    cancelled: bool,
    pub(crate) aborted: bool,
    obeys_ms: u64,
    /// It ignores its abort for this long.
    deaf_ms: u64,
}

/// A node's processes and their supervision.
pub(crate) struct Processes {
    part: Part<Supervision>,
    /// Leadership as the supervision was told.
    told: Option<(Epoch, Time)>,
    /// Leadership is being given up.
    aside: bool,
    /// Everything that runs, by process; a process never has more than one instance.
    instances: Vec<Vec<Instance>>,
    /// Epochs whose work must stop and has not been reported as stopped.
    owed: BTreeSet<Epoch>,
}

impl Processes {
    pub(crate) fn running(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().flatten()
    }
}

impl Played for Supervision {
    const NAME: PartName = PartName::Supervision;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Supervision>> {
        Some(&mut world.processes_mut(who)?.part)
    }

    /// What the supervision knows of leadership comes first: where the deadline is, then whether it ended.
    fn before(world: &mut World, who: Who) -> bool {
        let Who::Node(node) = who else { return false };
        let (now, target) = (world.now, &world.nodes[node]);
        let Some(processes) = &target.processes else { return false };
        let acting = target.acting.map(|acting| (acting.epoch, acting.deadline));
        let known = processes.told.map(|(epoch, _)| epoch);
        let last = acting.filter(|(epoch, _)| known == Some(*epoch));
        let present = acting.filter(|(epoch, _)| target.led_epoch(now) == Some(*epoch));
        for told in last.map(Some).into_iter().chain([present]) {
            let Some(processes) = world.processes_mut(who) else { return false };
            if std::mem::replace(&mut processes.told, told) != told {
                world.step::<Supervision>(who, Input::Command(SupervisionCommand::Leadership(told)));
            }
        }
        world.is_up(who)
    }

    fn op(_: &mut World, _: Who, _: RequestId, request: &NoRequest) -> Option<Op> {
        match *request {}
    }

    fn answer(_: &mut World, _: Who, request: NoRequest, _: Said) -> NoRequest {
        request
    }

    fn output(world: &mut World, who: Who, output: SupervisionOutput) {
        let now = world.now;
        match output {
            SupervisionOutput::Start { process, instance, attempt } => {
                world.start_process(who, process, instance, attempt);
            }
            SupervisionOutput::Cancel { process } => world.end_process(who, process, false),
            SupervisionOutput::Abort { process } => world.end_process(who, process, true),
            SupervisionOutput::Released { epoch } => world.check_released(who, epoch),
            SupervisionOutput::StandAside { hold_ms } => {
                if let Some(processes) = world.processes_mut(who) {
                    processes.aside = true;
                }
                world.run_later(now, who, Run::StandAside { hold_ms });
            }
            SupervisionOutput::Event(_, event) => {
                match event {
                    SupervisionEvent::GaveUp { .. } => world.work_done.gave_up += 1,
                    SupervisionEvent::Stuck { .. } => world.struck.add(FaultKind::StuckWork),
                    SupervisionEvent::Exited { restart_in_ms: Some(_), .. } => world.work_done.restarts += 1,
                    SupervisionEvent::Started { .. } | SupervisionEvent::Exited { .. } => {}
                }
                world.tell(who, || Noted::Work(format!("{event:?}")));
            }
            SupervisionOutput::Ended => {}
        }
    }

    fn after(world: &mut World, who: Who) {
        world.check_guarded(who);
        world.report_stopped(who);
    }
}

impl World {
    /// A new process of a node supervises nothing yet.
    pub(crate) fn new_processes(&mut self, node: usize) {
        self.nodes[node].dispatch = None;
        if !self.has_jobs {
            return;
        }
        // The rest of the drain is for vacating.
        let drain_ms = self.nodes[node].config.drain_ms / 4 * 3;
        let config = SupervisionConfig { drain_ms, ..self.workload.supervision.clone() };
        let instances = config.processes.iter().map(|_| Vec::new()).collect();
        let part = Part::new(Supervision::new(config), self.new_life());
        self.nodes[node].processes =
            Some(Processes { part, told: None, aside: false, instances, owed: BTreeSet::new() });
    }

    fn processes_mut(&mut self, who: Who) -> Option<&mut Processes> {
        match who {
            Who::Node(node) => self.nodes[node].processes.as_mut(),
            Who::Worker(_) => None,
        }
    }

    /// The election wants the work of this epoch to stop, and to hear when it has; whether there are processes at all.
    pub(crate) fn stop_processes(&mut self, node: usize, epoch: Epoch) -> bool {
        let Some(processes) = &mut self.nodes[node].processes else { return false };
        processes.owed.insert(epoch);
        self.nudge::<Supervision>(Who::Node(node));
        true
    }

    /// Leadership was lost: giving it up need not wait any longer.
    pub(crate) fn leadership_lost(&mut self, node: usize) {
        if self.nodes[node].processes.as_ref().is_some_and(|processes| processes.aside) {
            self.run_later(self.now, Who::Node(node), Run::StoodAside);
        }
    }

    /// The processes cannot work here: leadership must be given up.
    pub(crate) fn stand_aside(&mut self, who: Who, hold_ms: u64) {
        let Who::Node(node) = who else { return };
        if matches!(self.nodes[node].core().role(), Some(Role::Leader | Role::Draining)) {
            return self.command::<Coordinator>(who, tenure_core::Input::StandAside { hold_ms });
        }
        self.stood_aside(who);
    }

    pub(crate) fn stood_aside(&mut self, who: Who) {
        if let Some(processes) = self.processes_mut(who) {
            processes.aside = false;
            self.command::<Supervision>(who, SupervisionCommand::StoodAside);
        }
    }

    fn start_process(&mut self, who: Who, process: usize, number: u64, attempt: u32) {
        let Who::Node(node) = who else { return };
        let (now, guard) = (self.now, self.nodes[node].led_epoch(self.now));
        let Some(processes) = &mut self.nodes[node].processes else { return };
        let leads = processes.part.machine.epoch();
        let instances = &mut processes.instances[process];
        let twice = !instances.is_empty();
        let mut instance =
            Instance { number, epoch: Epoch(0), cancelled: true, aborted: true, obeys_ms: 0, deaf_ms: 0 };
        let Some(epoch) = leads.filter(|epoch| guard == Some(*epoch)) else {
            // Its guard ended before it began: nothing of it runs.
            instances.push(instance);
            if leads.is_none() {
                self.violated(name::GUARDED, || {
                    format!("{node} starts process {process} without leadership, attempt {attempt}")
                });
            }
            let outcome = ProcessOutcome::Done;
            return self.run_later(now, who, Run::ProcessEnded { process, instance: number, outcome });
        };
        if twice {
            self.violated(name::ONE_INSTANCE, || format!("{node} runs process {process} twice"));
        }
        let slow = self.mix.has(FaultKind::SlowWork) && self.rng.random_bool(0.3);
        let deaf = self.mix.has(FaultKind::StuckWork) && self.rng.random_bool(0.08);
        (instance.epoch, instance.cancelled, instance.aborted) = (epoch, false, false);
        instance.obeys_ms = self.rng.random_range(0..if slow { 4000 } else { 30 });
        instance.deaf_ms = if deaf { self.rng.random_range(0..9000) } else { 0 };
        if slow {
            self.struck.add(FaultKind::SlowWork);
        }
        if let Some(processes) = self.processes_mut(who) {
            processes.instances[process].push(instance);
        }
        if process == 0 {
            self.begin_dispatch(node, epoch, number);
        } else if let Some(within) = self.workload.supervision.processes[process].ready_within_ms {
            let longest = if self.mended { 100 } else { within * 5 / 4 };
            let at = now + self.rng.random_range(1..longest.max(2));
            self.run_later(at, who, Run::ProcessReady { process, instance: number });
        }
        // Some end by themselves.
        if !self.mended && self.mix.has(FaultKind::ProcessFails) && self.rng.random_bool(0.4) {
            let outcome = match self.rng.random_range(0..3) {
                0 => ProcessOutcome::Done,
                1 => ProcessOutcome::Failed,
                _ => ProcessOutcome::Panicked,
            };
            let longest = [300, 4000, 30_000][self.rng.random_range(0..3)];
            let at = now + self.rng.random_range(1..longest);
            self.run_later(at, who, Run::ProcessFails { process, instance: number, outcome });
        }
    }

    /// A process ends by itself.
    pub(crate) fn process_fails(&mut self, who: Who, process: usize, number: u64, outcome: ProcessOutcome) {
        let runs = |instance: &Instance| instance.number == number && !instance.cancelled;
        let there = self.processes_mut(who).is_some_and(|all| all.instances[process].iter().any(runs));
        if there && !self.mended {
            self.strike(FaultKind::ProcessFails, who);
            self.process_ended(who, process, number, outcome);
        }
    }

    /// A process is asked to stop, or aborted. Its guard is over either way.
    fn end_process(&mut self, who: Who, process: usize, abort: bool) {
        let now = self.now;
        if let (0, Who::Node(node)) = (process, who) {
            self.nodes[node].dispatch = None;
        }
        let Some(processes) = self.processes_mut(who) else { return };
        let Some(instance) = processes.instances[process].last_mut() else { return };
        instance.cancelled = true;
        instance.aborted |= abort;
        let (after, outcome) = match abort {
            true => (instance.deaf_ms + 1, ProcessOutcome::Aborted),
            false => (instance.obeys_ms.max(instance.deaf_ms), ProcessOutcome::Done),
        };
        let instance = instance.number;
        self.run_later(now + after, who, Run::ProcessEnded { process, instance, outcome });
    }

    pub(crate) fn process_ended(&mut self, who: Who, process: usize, instance: u64, outcome: ProcessOutcome) {
        let Who::Node(node) = who else { return };
        let Some(processes) = &mut self.nodes[node].processes else { return };
        let instances = &mut processes.instances[process];
        let Some(index) = instances.iter().position(|one| one.number == instance) else {
            return; // It has ended before.
        };
        instances.remove(index);
        if process == 0 {
            self.nodes[node].dispatch.take_if(|dispatch| dispatch.instance == instance);
        }
        self.command::<Supervision>(who, SupervisionCommand::Exited { process, instance, outcome });
    }

    /// The driver waits for every guard: the supervisor's, and that of every instance.
    fn report_stopped(&mut self, who: Who) {
        let now = self.now;
        let Some(processes) = self.processes_mut(who) else { return };
        let leads = processes.part.machine.epoch();
        let held = |epoch: &Epoch| {
            leads == Some(*epoch) || processes.instances.iter().flatten().any(|one| one.epoch == *epoch)
        };
        let stopped: Vec<Epoch> = processes.owed.iter().copied().filter(|epoch| !held(epoch)).collect();
        processes.owed.retain(|epoch| !stopped.contains(epoch));
        for epoch in stopped {
            self.run_later(now, who, Run::WorkStopped(epoch));
        }
    }

    /// Faults have ended: every process that is still starting gets ready.
    pub(crate) fn mend_processes(&mut self, node: usize) {
        let Some(processes) = &self.nodes[node].processes else { return };
        let all = processes.instances.iter().enumerate().skip(1);
        let all: Vec<(usize, u64)> =
            all.flat_map(|(process, of)| of.iter().map(move |one| (process, one.number))).collect();
        for (process, instance) in all {
            self.command::<Supervision>(Who::Node(node), SupervisionCommand::Ready { process, instance });
        }
    }
}
