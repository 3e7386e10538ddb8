//! The driver: the only loop that feeds the core. It carries messages and keeps time; it decides nothing.

use super::{Command, ElectionOutputs, SeatClient};
use crate::diagnostics::CycleLog;
use crate::event::{EventKind, LostReason};
use crate::guard::{LeaderGuard, Leadership};
use crate::mutant::DriverMutant;
use crate::settings::Settings;
use crate::shell::sleep_or_never;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Answer, ContentionWatch, Coordinator, Cycle, CycleTracker, Effect, ElectionCause, ElectionTimer, Epoch,
    Input, Request, RequestId, Role, SeatProblem, Step, StopCause, Time, WakeToken,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};

/// A leader checks its clock at least this often. The runtime's timers stand still while the machine sleeps, and after that
/// every moment of trusting the old lease is one too many.
const LEADER_LOOK: Duration = Duration::from_millis(100);

/// One life of a node's candidate.
pub(crate) struct Driver {
    core: Coordinator,
    store: SeatClient,
    outputs: ElectionOutputs,
    /// Watches the core's heartbeats from outside; decides nothing.
    cycles: CycleTracker,
    elections: ElectionTimer,
    /// The differences from the leader's settings, as last reported.
    differences: Vec<String>,
    cycle_log: Option<CycleLog>,
    requests: JoinSet<(RequestId, tenure_core::Answer)>,
    /// What each running request is, in case its task dies and cannot report it.
    running: HashMap<Id, (RequestId, Request)>,
    wake: Option<(WakeToken, Time)>,
    /// Held while the node leads; all other guards are clones of it.
    guard: Option<LeaderGuard>,
    guard_gone: Option<oneshot::Receiver<()>>,
    /// Work of this epoch was told to stop, and the driver waits for it.
    draining: Option<(Epoch, oneshot::Receiver<()>)>,
    step_downs: Vec<oneshot::Sender<bool>>,
    /// The handle is gone, and the command channel with it.
    abandoned: bool,
    stopped: Option<StopCause>,
    hold_ms: u64,
}

impl Drop for Driver {
    /// However a life ends, even by a panic, nobody acts on its lease any more.
    fn drop(&mut self) {
        if DriverMutant::PanicKeepsGuard.on() {
            return;
        }
        self.withdraw();
    }
}

impl Driver {
    pub(crate) fn new(
        core: Coordinator,
        store: SeatClient,
        outputs: ElectionOutputs,
        settings: &Settings,
    ) -> Driver {
        let patience_ms =
            ContentionWatch::limit_ms(settings.heartbeat_interval_ms, settings.contention_threshold_permille);
        Driver {
            core,
            store,
            outputs,
            cycles: CycleTracker::new(patience_ms),
            elections: ElectionTimer::default(),
            differences: Vec::new(),
            cycle_log: settings.diagnostics_enabled.then(CycleLog::default),
            requests: JoinSet::new(),
            running: HashMap::new(),
            wake: None,
            guard: None,
            guard_gone: None,
            draining: None,
            step_downs: Vec::new(),
            abandoned: false,
            stopped: None,
            hold_ms: settings.core_config().hold_ms(),
        }
    }

    /// Runs until the coordinator comes to rest.
    pub(crate) async fn run(mut self, random: u64, commands: &mut mpsc::Receiver<Command>) -> StopCause {
        self.feed(Input::Start { random });
        loop {
            if let Some(cause) = self.stopped {
                return cause;
            }
            if let Some(input) = self.next(commands).await {
                self.feed(input);
            }
        }
    }

    /// The next thing that happens. Cancel-safe in every branch, and biased, so that a run can be repeated exactly.
    async fn next(&mut self, commands: &mut mpsc::Receiver<Command>) -> Option<Input> {
        let sleep = self.sleep_for();
        tokio::select! {
            biased;
            command = commands.recv(), if !self.abandoned => match command {
                Some(Command::Stop) => Some(Input::Stop),
                // Nobody holds the node any more: leave in order. A closed channel is always ready, so ask it only once.
                None => {
                    self.abandoned = true;
                    Some(Input::Stop)
                }
                Some(Command::StepDown(reply)) => self.on_step_down(reply),
                Some(Command::StandAside(hold_ms, reply)) => {
                    self.on_step_down(reply).map(|_| Input::StandAside { hold_ms })
                }
                Some(Command::Raise(above)) => Some(Input::Raise { above: Epoch(above) }),
            },
            Some(done) = self.requests.join_next_with_id(), if !self.requests.is_empty() => self.on_done(done),
            _ = gone(&mut self.draining) => {
                let (epoch, _) = self.draining.take()?;
                Some(Input::ProcessesStopped { epoch })
            }
            () = sleep_or_never(sleep) => self.on_slept(),
        }
    }

    fn sleep_for(&self) -> Option<Duration> {
        let wake = self.wake.map(|(_, at)| at);
        let at = [wake, self.cycles.overdue_at()].into_iter().flatten().min()?;
        let left = Duration::from_millis(at.0.saturating_sub(self.outputs.reporter.clock.now_ms()));
        let watchful = self.guard.is_some() && self.outputs.reporter.clock.outruns_timers();
        Some(if watchful { left.min(LEADER_LOOK) } else { left })
    }

    fn on_slept(&mut self) -> Option<Input> {
        let now = Time(self.outputs.reporter.clock.now_ms());
        if let Some((token, _)) = self.wake.filter(|(_, at)| *at <= now) {
            return Some(Input::Wake(token));
        }
        if let Some(cycle) = self.cycles.overdue(now)
            && let Some(contention) = self.outputs.reporter.counters.contended(now, cycle)
        {
            self.outputs.emit(self.core.highest_epoch().0, contention);
        }
        None
    }

    fn on_step_down(&mut self, reply: oneshot::Sender<bool>) -> Option<Input> {
        if self.core.role() != Some(Role::Leader) && self.core.role() != Some(Role::Draining) {
            let _ = reply.send(false);
            return None;
        }
        self.step_downs.push(reply);
        Some(Input::StepDown)
    }

    fn on_done(
        &mut self,
        done: Result<(Id, (RequestId, tenure_core::Answer)), tokio::task::JoinError>,
    ) -> Option<Input> {
        match done {
            Ok((task, (id, answer))) => {
                let id = self.mixed_up(id);
                self.running.remove(&task);
                Some(Input::Answer { id, answer })
            }
            // A backend that panics has not answered; its request may have taken effect.
            Err(error) => {
                let (id, request) = self.running.remove(&error.id())?;
                tracing::error!(target: "tenure", %error, "a store request crashed");
                if DriverMutant::DeadRequestForgotten.on() {
                    return None;
                }
                Some(Input::Answer { id, answer: request.unanswered() })
            }
        }
    }

    /// The id itself, except where a mutant mixes ids up.
    fn mixed_up(&self, id: RequestId) -> RequestId {
        match DriverMutant::RequestIdsMixed.on() {
            true => self.running.values().map(|(id, _)| *id).min().unwrap_or(id),
            false => id,
        }
    }

    fn feed(&mut self, input: Input) {
        let now = Time(self.outputs.reporter.clock.now_ms());
        // The core does all that is due in this step, whatever the input, and asks for the next wake-up.
        let late_ms = self.wake.take_if(|(_, at)| *at <= now).map_or(0, |(_, at)| now.since(at));
        let (due, mut effects) = (self.core.heartbeat_due(), Vec::new());
        #[cfg(feature = "explore")]
        let before = self.outputs.watcher.as_ref().map(|_| self.core.view());
        self.core.step(now, input.clone(), &mut effects);
        #[cfg(feature = "explore")]
        if let (Some(watcher), Some(before)) = (&self.outputs.watcher, before) {
            let (input, effects, core) = (&input, &effects, &self.core);
            watcher.see(&crate::watcher::CoreStep { before, now, input, effects, core });
        }
        let known = self.core.highest_epoch().0;
        // The fence first, so that it is up to date for whoever acts on an event.
        let late = DriverMutant::FenceFedLate.on();
        if !late {
            self.outputs.fence.observe(known);
        }
        let role = self.core.role();
        let step = Step { now, due, input: &input, effects: &effects, role, late_ms };
        let cycle = self.cycles.step(&step);
        let decided = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Emit(tenure_core::Event::LeaderChanged { .. })));
        if let Some(took_ms) = self.elections.step(now, self.core.election(), decided) {
            self.outputs.reporter.counters.elected(took_ms);
        }
        if let Some(cycle_log) = &mut self.cycle_log {
            cycle_log.note(&input, &effects);
        }
        for effect in effects {
            self.carry_out(effect);
        }
        if late {
            self.outputs.fence.observe(known);
        }
        self.publish();
        self.outputs.reporter.counters.seat_seen(self.core.seat_seen());
        if let Some(cycle) = cycle {
            self.account(now, cycle);
        }
        if matches!(input, Input::Answer { answer: Answer::Seat(_), .. }) {
            self.compare();
        }
    }

    /// Reports new differences from the leader's settings, once.
    fn compare(&mut self) {
        let differences = self.store.differences();
        if differences == self.differences {
            return;
        }
        self.differences.clone_from(&differences);
        if let Some((leader, epoch)) = self.core.leader().filter(|_| !differences.is_empty()) {
            let differ = EventKind::SettingsDiffer { leader: leader.clone(), differences };
            self.outputs.emit(epoch.0, differ);
        }
    }

    /// A heartbeat cycle has ended: updates its figures and writes its log line.
    fn account(&mut self, now: Time, cycle: Cycle) {
        let epoch = self.core.highest_epoch().0;
        if let Some(contention) = self.outputs.reporter.counters.cycle(now, cycle) {
            self.outputs.emit(epoch, contention);
        }
        if let Some(cycle_log) = &mut self.cycle_log {
            let (node, namespace) = (self.outputs.reporter.node.as_str(), &*self.outputs.reporter.namespace);
            cycle_log.write(node, namespace, self.core.role(), epoch, cycle);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Request(id, request) => {
                let store = self.store.clone();
                let sent = request.clone();
                let task = self.requests.spawn(async move { (id, store.carry(request).await) });
                self.running.insert(task.id(), (id, sent));
            }
            Effect::Wake { .. } if self.wake.is_some() && DriverMutant::WakeNotReplaced.on() => {}
            Effect::Wake { token, at } => self.wake = Some((token, at)),
            Effect::StartProcesses { epoch, deadline } => {
                let clock = Arc::clone(&self.outputs.reporter.clock);
                let (guard, gone) = LeaderGuard::new(epoch, deadline, clock);
                let weak = guard.downgrade();
                (self.guard, self.guard_gone) = (Some(guard), Some(gone));
                // Together with the epoch, so that whoever sees the guard also sees whose it is.
                self.outputs.leadership.send_modify(|leadership| {
                    self.show(leadership);
                    leadership.guard = Some(weak);
                });
            }
            Effect::ExtendLease { epoch, deadline } => {
                if let Some(guard) = self.guard.as_ref().filter(|guard| guard.epoch() == epoch.0) {
                    guard.lease().extend(self.extended(deadline));
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
            Effect::Emit(event) => self.emit(event),
            Effect::Stopped(cause) => {
                self.stopped = Some(cause);
                self.outputs.emit(self.core.highest_epoch().0, EventKind::Stopped);
            }
        }
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

    /// The deadline itself, except where a mutant counts a hold from now.
    fn extended(&self, deadline: Time) -> Time {
        match DriverMutant::ExtendedFromNow.on() {
            true => Time(self.outputs.reporter.clock.now_ms() + self.hold_ms),
            false => deadline,
        }
    }

    fn publish(&self) {
        self.outputs.leadership.send_if_modified(|leadership| self.show(leadership));
    }

    /// Copies what the core knows. Returns whether that is news.
    fn show(&self, leadership: &mut Leadership) -> bool {
        let role = self.core.role();
        let (leader, epoch) = (self.core.leader().map(|(node, _)| node.clone()), self.core.highest_epoch().0);
        let store_trouble = !self.core.store_answers();
        let now = Leadership { role, leader, epoch, store_trouble, guard: leadership.guard.clone() };
        let changed = !leadership.is_like(&now);
        *leadership = now;
        changed
    }

    fn emit(&mut self, event: tenure_core::Event) {
        use tenure_core::Event as Core;
        let known = self.core.highest_epoch();
        let detail = || self.store.last_trouble();
        let now_ms = self.outputs.reporter.clock.now_ms();
        let (epoch, kind) = match event {
            Core::Ineligible => (known, EventKind::Ineligible),
            Core::JitterStarted { wait_ms } => (known, EventKind::StartupJitter { wait_ms }),
            Core::Joined => (known, EventKind::Joined),
            Core::AwaitingTurn { ready_at } => {
                (known, EventKind::AwaitingTurn { wait_ms: ready_at.0.saturating_sub(now_ms) })
            }
            Core::ElectionStarted { cause } => {
                // The election was found at startup, but others have led before.
                let again = cause == ElectionCause::First && known > Epoch(0);
                let cause = if again { ElectionCause::Vacant } else { cause };
                (known, EventKind::ElectionStarted { cause })
            }
            Core::ElectionCheck { leader, unchanged_ms } => {
                (known, EventKind::ElectionCheck { leader, unchanged_ms })
            }
            Core::LeaderDown { leader, epoch, unchanged_ms } => {
                (epoch, EventKind::LeaderDown { leader, unchanged_ms })
            }
            Core::LeaderRecovered { leader, epoch } => (epoch, EventKind::LeaderRecovered { leader }),
            Core::LeaderChanged { previous, new, epoch } => {
                let change = EventKind::LeaderChanged { previous: previous.clone(), new: new.clone() };
                self.outputs.emit(epoch.0, change);
                if new == self.core.me().node && self.core.role() == Some(Role::Leader) {
                    return; // Only standbys emit this telemetry.
                }
                (epoch, EventKind::LeaderChangeSeen { previous, new })
            }
            Core::BecameLeader { epoch, deadline } => {
                (epoch, EventKind::BecameLeader { deadline_boot_ms: deadline.0 })
            }
            Core::LeaseRenewed { epoch, deadline, latency_ms } => {
                (epoch, EventKind::LeaseRenewed { deadline_boot_ms: deadline.0, latency_ms })
            }
            Core::LeaseAtRisk { epoch, deadline } => {
                (epoch, EventKind::LeaseAtRisk { deadline_boot_ms: deadline.0 })
            }
            Core::LeaseRecovered { epoch } => (epoch, EventKind::LeaseRecovered),
            Core::LostLeadership { epoch, reason, vacated, acted_until } => {
                for reply in self.step_downs.drain(..) {
                    let _ = reply.send(true);
                }
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

async fn gone(draining: &mut Option<(Epoch, oneshot::Receiver<()>)>) {
    match draining {
        // An error means that the sender went away silently, which counts as gone.
        Some((_, gone)) => drop(gone.await),
        None => std::future::pending().await,
    }
}
