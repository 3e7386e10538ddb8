//! Runs one life of the coordinator: guard, drain, events and figures. It decides nothing.

use super::{Command, ElectionOutputs, SeatClient};
use crate::clock::millis;
use crate::diagnostics::CycleLog;
use crate::event::{EventKind, LostReason};
use crate::guard::{LeaderGuard, Leadership};
use crate::mutant::DriverMutant;
use crate::settings::Settings;
use crate::shell::{Commands, Happening, Host};
use crate::terms::TermEnd;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::machine::{In, Now, Out};
use tenure_core::{
    Answer, ContentionWatch, Coordinator, Cycle, CycleTracker, Effect, ElectionCause, ElectionTimer, Epoch,
    Input, Request, Role, SeatProblem, Step, StopCause, Time,
};
use tokio::sync::{OwnedMutexGuard, oneshot};

/// A leader checks its clock at least this often. The runtime's timers stand still while the machine sleeps, and after that
/// every moment of trusting the old lease is one too many.
const LEADER_LOOK: Duration = Duration::from_millis(100);

/// The world around one life of a node's candidate.
pub(crate) struct ElectionHost {
    /// The number to start with, until it has started.
    start: Option<u64>,
    commands: OwnedMutexGuard<Commands<Command>>,
    store: SeatClient,
    outputs: ElectionOutputs,
    /// Watches the core's heartbeats from outside; decides nothing.
    cycles: CycleTracker,
    elections: ElectionTimer,
    /// The differences from the leader's settings, as last reported.
    differences: Vec<String>,
    cycle_log: Option<CycleLog>,
    step: Option<OpenStep>,
    /// Held while the node leads; all other guards are clones of it.
    guard: Option<LeaderGuard>,
    guard_gone: Option<oneshot::Receiver<()>>,
    /// Work of this epoch was told to stop, and the node waits for it.
    draining: Option<(Epoch, oneshot::Receiver<()>)>,
    step_downs: Vec<oneshot::Sender<bool>>,
    stopped: Option<StopCause>,
    hold_ms: u64,
}

/// What is known of a step before its effects are carried out.
struct OpenStep {
    input: Input,
    due: Option<Time>,
    late_ms: u64,
    /// The heartbeat cycle that ended in it.
    cycle: Option<Cycle>,
    #[cfg(feature = "explore")]
    before: Option<tenure_core::View>,
}

impl Drop for ElectionHost {
    /// However a life ends, even by a panic, nobody acts on its lease any more.
    fn drop(&mut self) {
        if DriverMutant::PanicKeepsGuard.on() {
            return;
        }
        self.withdraw();
    }
}

impl ElectionHost {
    pub(crate) fn new(
        random: u64,
        mut commands: OwnedMutexGuard<Commands<Command>>,
        store: SeatClient,
        outputs: ElectionOutputs,
        settings: &Settings,
    ) -> ElectionHost {
        commands.repeat_end();
        let patience_ms = ContentionWatch::limit_ms(
            millis(settings.heartbeat_interval),
            settings.contention_threshold_permille,
        );
        ElectionHost {
            start: Some(random),
            commands,
            store,
            outputs,
            cycles: CycleTracker::new(patience_ms),
            elections: ElectionTimer::default(),
            differences: Vec::new(),
            cycle_log: settings.diagnostics_enabled.then(CycleLog::default),
            step: None,
            guard: None,
            guard_gone: None,
            draining: None,
            step_downs: Vec::new(),
            stopped: None,
            hold_ms: settings.core_config().hold_ms(),
        }
    }
}

impl Host<Coordinator> for ElectionHost {
    type End = StopCause;

    fn carry(&self, request: Request) -> impl Future<Output = Answer> + Send + 'static {
        let store = self.store.clone();
        async move { store.carry(request).await }
    }

    async fn next(&mut self) -> Happening<Coordinator, StopCause> {
        if let Some(random) = self.start.take() {
            return Happening::Command(Input::Start { random });
        }
        let input = tokio::select! {
            biased;
            command = self.commands.next() => self.on_command(command),
            epoch = drained(&mut self.draining) => Some(Input::ProcessesStopped { epoch }),
        };
        input.map_or(Happening::Nothing, Happening::Command)
    }

    fn look_every(&self) -> Option<Duration> {
        let clock = &self.outputs.reporter.clock;
        let watchful = self.guard.is_some() && clock.outruns_timers();
        let overdue =
            self.cycles.overdue_at().map(|at| Duration::from_millis(at.since(Time(clock.now_ms()))));
        watchful.then_some(LEADER_LOOK).into_iter().chain(overdue).min()
    }

    fn looked(&mut self, now: Now, core: &Coordinator) {
        if let Some(cycle) = self.cycles.overdue(now.at)
            && let Some(contention) = self.outputs.reporter.counters.contended(now.at, cycle)
        {
            self.outputs.emit(core.highest_epoch().0, contention);
        }
    }

    fn before(&mut self, now: Now, late_ms: u64, core: &Coordinator, input: &In<Coordinator>) {
        self.step = Some(OpenStep {
            input: core.step_input(now.at, input.clone()),
            due: core.heartbeat_due(),
            late_ms,
            cycle: None,
            #[cfg(feature = "explore")]
            before: self.outputs.watcher.as_ref().map(|_| core.view()),
        });
    }

    fn stepped(&mut self, now: Now, core: &Coordinator, effects: &[Out<Coordinator>]) {
        // The fence first, so that it is up to date for whoever acts on an event.
        if !DriverMutant::FenceFedLate.on() {
            self.outputs.fence.observe(core.highest_epoch().0);
        }
        let Some(step) = &mut self.step else { return };
        let (now, effects) = (now.at, core.step_effects(effects));
        #[cfg(feature = "explore")]
        if let (Some(watcher), Some(before)) = (&self.outputs.watcher, step.before.take()) {
            let (input, effects) = (&step.input, &effects);
            watcher.see(&crate::watcher::CoreStep { before, now, input, effects, core });
        }
        let role = core.role();
        let (due, late_ms, input) = (step.due, step.late_ms, &step.input);
        step.cycle = self.cycles.step(&Step { now, due, input, effects: &effects, role, late_ms });
        let decided = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Emit(tenure_core::Event::LeaderChanged { .. })));
        if let Some(took_ms) = self.elections.step(now, core.election(), decided) {
            self.outputs.reporter.counters.elected(took_ms);
        }
        if let Some(cycle_log) = &mut self.cycle_log {
            cycle_log.note(&step.input, &effects);
        }
    }

    fn output(&mut self, now: Now, core: &Coordinator, effect: Effect) -> ControlFlow<StopCause> {
        match effect {
            Effect::StartProcesses { epoch, deadline } => {
                let clock = Arc::clone(&self.outputs.reporter.clock);
                let (guard, gone) = LeaderGuard::new(epoch, deadline, clock);
                let weak = guard.downgrade();
                (self.guard, self.guard_gone) = (Some(guard), Some(gone));
                // Together with the epoch, so that whoever sees the guard also sees whose it is.
                self.outputs.leadership.send_modify(|leadership| {
                    show(core, leadership);
                    leadership.guard = Some(weak);
                });
            }
            Effect::ExtendLease { epoch, deadline } => {
                if let Some(guard) = self.guard.as_ref().filter(|guard| guard.epoch() == epoch.0) {
                    let from_now = DriverMutant::ExtendedFromNow.on();
                    guard.lease().extend(if from_now { now.at + self.hold_ms } else { deadline });
                }
            }
            Effect::StopProcesses { epoch, by: _ } => {
                self.withdraw();
                if DriverMutant::StoppedWhenCancelled.on() {
                    // The sender is gone, which counts as the end of the work.
                    self.guard_gone = self.guard_gone.take().map(|_| oneshot::channel().1);
                }
                if let Some(gone) = self.guard_gone.take() {
                    self.draining = Some((epoch, gone));
                }
            }
            Effect::Emit(event) => self.emit(now.at, core, event),
            Effect::Stopped(cause) => {
                self.stopped = Some(cause);
                self.outputs.emit(core.highest_epoch().0, EventKind::Stopped);
            }
            // These are the shell's.
            Effect::Request(..) | Effect::Wake { .. } => {}
        }
        ControlFlow::Continue(())
    }

    fn settled(&mut self, now: Now, core: &Coordinator) -> ControlFlow<StopCause> {
        if DriverMutant::FenceFedLate.on() {
            self.outputs.fence.observe(core.highest_epoch().0);
        }
        self.outputs.leadership.send_if_modified(|leadership| show(core, leadership));
        self.outputs.reporter.counters.seat_seen(core.seat_seen());
        self.outputs.reporter.counters.claims_at(core.claims_at());
        if let Some(step) = self.step.take() {
            if let Some(cycle) = step.cycle {
                self.account(now.at, core, cycle);
            }
            if matches!(step.input, Input::Answer { answer: Answer::Seat(_), .. }) {
                self.compare(core);
            }
        }
        self.stopped.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

impl ElectionHost {
    fn on_command(&mut self, command: Option<Command>) -> Option<Input> {
        match command {
            // Nobody holds the node any more: leave in order.
            Some(Command::Stop) | None => {
                self.store.leaving(Some(TermEnd::Shutdown));
                Some(Input::Stop)
            }
            Some(Command::StepDown(reply)) => self.may_step_down(reply).then_some(Input::StepDown),
            Some(Command::StandAside(hold_ms, reply)) => {
                self.may_step_down(reply).then_some(Input::StandAside { hold_ms })
            }
            Some(Command::Raise(above)) => Some(Input::Raise { above: Epoch(above) }),
        }
    }

    /// Whether there is leadership to give up; whoever asked hears when it is over, or that there is none.
    fn may_step_down(&mut self, reply: oneshot::Sender<bool>) -> bool {
        let leads = matches!(self.outputs.leadership.borrow().role, Some(Role::Leader | Role::Draining));
        if leads {
            self.store.leaving(Some(TermEnd::StepDown));
            self.step_downs.push(reply);
        } else {
            let _ = reply.send(false);
        }
        leads
    }

    /// Ends the lease for everybody who holds a guard.
    fn withdraw(&mut self) {
        if DriverMutant::GuardNotWithdrawn.on() {
            self.guard = None;
            return;
        }
        if let Some(guard) = self.guard.take() {
            guard.lease().cancel();
        }
        self.outputs.leadership.send_if_modified(|leadership| leadership.guard.take().is_some());
    }

    /// Reports new differences from the leader's settings, once.
    fn compare(&mut self, core: &Coordinator) {
        let differences = self.store.differences();
        if differences == self.differences {
            return;
        }
        self.differences.clone_from(&differences);
        if let Some((leader, epoch)) = core.leader().filter(|_| !differences.is_empty()) {
            let differ = EventKind::SettingsDiffer { leader: leader.clone(), differences };
            self.outputs.emit(epoch.0, differ);
        }
    }

    /// A heartbeat cycle has ended: updates its figures and writes its log line.
    fn account(&mut self, now: Time, core: &Coordinator, cycle: Cycle) {
        let epoch = core.highest_epoch().0;
        if let Some(contention) = self.outputs.reporter.counters.cycle(now, cycle) {
            self.outputs.emit(epoch, contention);
        }
        if let Some(cycle_log) = &mut self.cycle_log {
            let (node, namespace) = (self.outputs.reporter.node.as_str(), &*self.outputs.reporter.namespace);
            cycle_log.write(node, namespace, core.role(), epoch, cycle);
        }
    }

    fn emit(&mut self, now: Time, core: &Coordinator, event: tenure_core::Event) {
        use tenure_core::Event as Core;
        let known = core.highest_epoch();
        let detail = || self.store.last_trouble();
        let (epoch, kind) = match event {
            Core::Ineligible => (known, EventKind::Ineligible),
            Core::JitterStarted { wait_ms } => {
                (known, EventKind::StartupJitter { wait: Duration::from_millis(wait_ms) })
            }
            Core::Joined => (known, EventKind::Joined),
            Core::AwaitingTurn { ready_at } => {
                (known, EventKind::AwaitingTurn { wait: Duration::from_millis(ready_at.since(now)) })
            }
            Core::ElectionStarted { cause } => {
                // The election was found at startup, but others have led before.
                let again = cause == ElectionCause::First && known > Epoch(0);
                let cause = if again { ElectionCause::Vacant } else { cause };
                (known, EventKind::ElectionStarted { cause })
            }
            Core::ElectionCheck { leader, unchanged_ms } => {
                (known, EventKind::ElectionCheck { leader, unchanged: Duration::from_millis(unchanged_ms) })
            }
            Core::LeaderDown { leader, epoch, unchanged_ms } => {
                (epoch, EventKind::LeaderDown { leader, unchanged: Duration::from_millis(unchanged_ms) })
            }
            Core::LeaderRecovered { leader, epoch } => (epoch, EventKind::LeaderRecovered { leader }),
            Core::LeaderChanged { previous, new, epoch } => {
                let change = EventKind::LeaderChanged { previous: previous.clone(), new: new.clone() };
                self.outputs.emit(epoch.0, change);
                if new == core.me().node && core.role() == Some(Role::Leader) {
                    return; // Only standbys emit this telemetry.
                }
                (epoch, EventKind::LeaderChangeSeen { previous, new })
            }
            Core::BecameLeader { epoch, deadline } => {
                (epoch, EventKind::BecameLeader { deadline_boot_ms: deadline.0 })
            }
            Core::LeaseRenewed { epoch, deadline, latency_ms } => (
                epoch,
                EventKind::LeaseRenewed {
                    deadline_boot_ms: deadline.0,
                    latency: Duration::from_millis(latency_ms),
                },
            ),
            Core::LeaseAtRisk { epoch, deadline } => {
                (epoch, EventKind::LeaseAtRisk { deadline_boot_ms: deadline.0 })
            }
            Core::LeaseRecovered { epoch } => (epoch, EventKind::LeaseRecovered),
            Core::LostLeadership { epoch, reason, vacated, acted_until } => {
                for reply in self.step_downs.drain(..) {
                    let _ = reply.send(true);
                }
                self.store.leaving(None);
                (
                    epoch,
                    EventKind::LostLeadership {
                        reason: LostReason::Protocol(reason),
                        vacated,
                        acted_until_boot_ms: acted_until.0,
                    },
                )
            }
            Core::SeatUnreadable { problem } => {
                let detail = match problem {
                    SeatProblem::Corrupt | SeatProblem::Newer => detail(),
                    SeatProblem::LastEpoch => format!("{} is the highest possible epoch", Epoch::MAX.0),
                };
                (known, EventKind::SeatUnreadable { problem, detail })
            }
            Core::EpochRegressed { seen, found } => (seen, EventKind::EpochRegressed { found: found.0 }),
            Core::NodeConflict => (known, EventKind::NodeConflict),
            Core::StoreUnavailable => (known, EventKind::StoreUnavailable { detail: detail() }),
            Core::StoreDenied => (known, EventKind::StoreDenied { detail: detail() }),
            Core::StoreRecovered => (known, EventKind::StoreRecovered),
            Core::StoreUnsafe => (known, EventKind::StoreUnsafe { detail: detail() }),
            Core::ProcessesStuck { epoch } => (epoch, EventKind::ProcessesStuck),
        };
        if let Some(cycle_log) = &mut self.cycle_log {
            cycle_log.decided(kind.short_name());
        }
        self.outputs.emit(epoch.0, kind);
    }
}

/// Copies what the core knows. Returns whether that is news.
fn show(core: &Coordinator, leadership: &mut Leadership) -> bool {
    let now = Leadership {
        role: core.role(),
        leader: core.leader().map(|(node, _)| node.clone()),
        epoch: core.highest_epoch().0,
        store_trouble: !core.store_answers(),
        guard: leadership.guard.clone(),
    };
    let changed = !leadership.is_like(&now);
    *leadership = now;
    changed
}

/// Waits until the work that was told to stop is gone, and says whose it was.
async fn drained(draining: &mut Option<(Epoch, oneshot::Receiver<()>)>) -> Epoch {
    let Some((epoch, gone)) = draining else { return std::future::pending().await };
    // An error means that the sender went away silently, which counts as gone.
    let _ = gone.await;
    let epoch = *epoch;
    *draining = None;
    epoch
}
