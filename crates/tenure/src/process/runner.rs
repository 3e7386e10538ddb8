//! One life of a supervisor: carries out what the core's [`Supervision`] decides, and decides nothing itself.

use super::SupervisorStatus;
use super::context::{ProcessContext, ReadySignal};
use super::source::LeadershipSource;
use super::spec::{Body, ProcessSpec, panic_message};
use crate::event::EventKind;
use crate::guard::LeaderGuard;
use crate::metrics::ProcessShare;
use crate::shell::{Happening, Host, or_never};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::machine::{NoRequest, Now};
use tenure_core::{
    Epoch, ProcessOutcome, ProcessState, Supervision, SupervisionCommand, SupervisionConfig,
    SupervisionEvent, SupervisionOutput, Time,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Everything that one life needs.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) config: SupervisionConfig,
    pub(super) specs: Arc<[ProcessSpec]>,
    pub(super) source: LeadershipSource,
    pub(super) status: watch::Sender<SupervisorStatus>,
    pub(super) stop: CancellationToken,
    /// One per process; every instance holds a clone for as long as it runs, whoever still knows of it.
    pub(super) alive: Arc<[Arc<()>]>,
}

/// How an instance ended, and what it said if it failed.
type Ended = (ProcessOutcome, Option<String>);

fn ended(returned: Result<(), String>) -> Ended {
    match returned {
        Ok(()) => (ProcessOutcome::Done, None),
        Err(words) => (ProcessOutcome::Failed, Some(words)),
    }
}

/// A running instance. However this goes away, the instance is told to end and its guard ends.
struct Instance {
    number: u64,
    stop: CancellationToken,
    scope: CancellationToken,
    /// `None` for a thread, which cannot be aborted.
    task: Option<AbortHandle>,
}

impl Instance {
    /// The guard ends at every stop, even if the lease continues: nobody may rely on a process ending just because it was
    /// told to.
    fn cancel(&self) {
        self.scope.cancel();
        self.stop.cancel();
    }

    fn abort(&self) {
        self.cancel();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The world around a supervision.
pub(super) struct Runner {
    life: Life,
    /// The leadership that the machine was told of, as long as it lasts.
    lease: Option<LeaderGuard>,
    /// Its deadline, as the machine knows it.
    told: Time,
    /// Held from the first start until every process has stopped.
    working: Option<LeaderGuard>,
    instances: Vec<Option<Instance>>,
    tasks: JoinSet<Ended>,
    /// Which instance each task is, in case it dies and cannot report it.
    running: HashMap<Id, (usize, u64)>,
    ready: mpsc::Receiver<(usize, u64)>,
    ready_to: mpsc::Sender<(usize, u64)>,
    /// Leadership is being given up.
    aside: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    share: ProcessShare,
    stopping: bool,
    /// There will be no more leadership.
    closed: bool,
}

impl Runner {
    pub(super) fn new(mut life: Life) -> Runner {
        // This node may lead already.
        life.source.leadership.mark_changed();
        // Each instance sends one notice; no more instances are alive together than there are processes.
        let (ready_to, ready) = mpsc::channel(life.specs.len() * 4);
        Runner {
            lease: None,
            told: Time(0),
            working: None,
            instances: life.specs.iter().map(|_| None).collect(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            ready,
            ready_to,
            aside: None,
            share: ProcessShare::new(Arc::clone(&life.source.reporter.counters)),
            stopping: false,
            closed: false,
            life,
        }
    }
}

impl Host<Supervision> for Runner {
    type End = ();

    fn carry(&self, request: NoRequest) -> impl Future<Output = NoRequest> + Send + 'static {
        std::future::ready(request)
    }

    async fn next(&mut self) -> Happening<Supervision, ()> {
        let command = tokio::select! {
            biased;
            () = self.life.stop.cancelled(), if !self.stopping => {
                self.stopping = true;
                SupervisionCommand::Stop
            }
            // What became of leadership is news, which comes before anything else.
            () = or_never(self.lease.as_ref().map(LeaderGuard::ended)) => return Happening::Nothing,
            changed = self.life.source.leadership.changed(), if !self.closed => match changed {
                Ok(()) => return Happening::Nothing,
                Err(_) => {
                    self.closed = true;
                    SupervisionCommand::Stop
                }
            },
            // Before the exits: an instance that was ready and ended at once was ready.
            Some((process, instance)) = self.ready.recv() => SupervisionCommand::Ready { process, instance },
            Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                match self.on_task(done) {
                    Some(exited) => exited,
                    None => return Happening::Nothing,
                }
            }
            () = or_never(self.aside.as_mut()) => {
                self.aside = None;
                SupervisionCommand::StoodAside
            }
        };
        Happening::Command(command)
    }

    fn news(&mut self) -> Option<SupervisionCommand> {
        // Even of a lease that was withdrawn: until then its processes may take their time to stop.
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.deadline() != self.told) {
            self.told = lease.deadline();
            return Some(SupervisionCommand::Leadership(Some((Epoch(lease.epoch()), self.told))));
        }
        // A detached plugin no longer leads, although the lease continues.
        let shown = self.life.source.leadership.borrow_and_update().guard().filter(|_| !self.closed);
        let epoch = |guard: &Option<LeaderGuard>| guard.as_ref().map(LeaderGuard::epoch);
        if epoch(&shown) == epoch(&self.lease) && self.lease.as_ref().is_none_or(LeaderGuard::is_valid) {
            return None;
        }
        self.lease = shown;
        self.told = self.lease.as_ref().map_or(Time(0), LeaderGuard::deadline);
        let lease = epoch(&self.lease).map(|epoch| (Epoch(epoch), self.told));
        Some(SupervisionCommand::Leadership(lease))
    }

    fn output(&mut self, _: Now, _: &Supervision, output: SupervisionOutput) -> ControlFlow<()> {
        match output {
            SupervisionOutput::Start { process, instance, attempt } => self.start(process, instance, attempt),
            SupervisionOutput::Cancel { process } => {
                if let Some(instance) = &self.instances[process] {
                    instance.cancel();
                }
            }
            SupervisionOutput::Abort { process } => {
                if let Some(instance) = &self.instances[process] {
                    instance.abort();
                }
            }
            SupervisionOutput::Released { .. } => self.working = None,
            SupervisionOutput::StandAside { hold_ms } => {
                let asked = (self.life.source.stand_aside)(Duration::from_millis(hold_ms));
                self.aside = Some(Box::pin(async move {
                    // Not leading is just as good.
                    let _ = asked.await;
                }));
            }
            SupervisionOutput::Event(epoch, event) => self.emit(epoch, event),
            SupervisionOutput::Ended => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Publishes the present status.
    fn settled(&mut self, _: Now, machine: &Supervision) -> ControlFlow<()> {
        let (mut running, mut stuck) = (0, 0);
        self.life.status.send_if_modified(|status| {
            let epoch = machine.epoch().map(|epoch| epoch.0);
            let mut changed = std::mem::replace(&mut status.epoch, epoch) != epoch;
            for (process, shown) in status.processes.iter_mut().enumerate() {
                let state = machine.state(process);
                match state {
                    ProcessState::Starting | ProcessState::Running | ProcessState::Stopping => running += 1,
                    ProcessState::Stuck => stuck += 1,
                    ProcessState::Idle | ProcessState::Waiting | ProcessState::Ended => {}
                }
                changed |= std::mem::replace(&mut shown.state, state) != state;
            }
            changed
        });
        self.share.set(running, stuck);
        ControlFlow::Continue(())
    }
}

impl Runner {
    fn on_task(&mut self, done: Result<(Id, Ended), JoinError>) -> Option<SupervisionCommand> {
        let (id, (outcome, words)) = match done {
            Ok((id, ended)) => (id, ended),
            Err(error) if error.is_panic() => {
                let id = error.id();
                (id, (ProcessOutcome::Panicked, Some(panic_message(&*error.into_panic()))))
            }
            Err(error) => (error.id(), (ProcessOutcome::Aborted, None)),
        };
        let (process, number) = self.running.remove(&id)?;
        let instance = self.instances[process].take_if(|running| running.number == number);
        let over = instance.is_none_or(|instance| instance.scope.is_cancelled())
            || self.working.as_ref().is_none_or(|guard| !guard.is_valid());
        // A process that returns the guard's own error, or any other error after the guard ended, did as it was told.
        // `check()?` is the natural way out, and must not look like a failure in every hand-over.
        let obeyed = outcome == ProcessOutcome::Failed && over;
        let (outcome, words) = if obeyed { (ProcessOutcome::Done, None) } else { (outcome, words) };
        if let Some(words) = words {
            self.life.status.send_modify(|status| {
                status.processes[process].last_failure = Some(Arc::from(words));
            });
        }
        Some(SupervisionCommand::Exited { process, instance: number, outcome })
    }

    fn start(&mut self, process: usize, number: u64, attempt: u32) {
        let lease = self.lease.as_ref().expect("the machine starts nothing without leadership");
        let (guard, scope) = lease.scoped();
        self.working = Some(lease.clone());
        let stop = CancellationToken::new();
        let spec = &self.life.specs[process];
        let context = ProcessContext {
            name: spec.shared_name(),
            attempt,
            guard,
            stop: stop.clone(),
            ready: ReadySignal { process, instance: number, to: self.ready_to.clone(), told: Arc::default() },
        };
        let alive = Arc::clone(&self.life.alive[process]);
        let (id, task) = match &spec.body {
            Body::Task(body) => {
                let body = Arc::clone(body);
                let task = self.tasks.spawn(async move {
                    let _alive = alive;
                    ended(body(context).await)
                });
                (task.id(), Some(task))
            }
            Body::Thread(body) => {
                let done = on_thread(context, Arc::clone(body), alive);
                // No outcome was sent: the thread could not be started, or died in a way that cannot be caught.
                let lost = || (ProcessOutcome::Panicked, Some("the thread is gone".to_owned()));
                (self.tasks.spawn(async move { done.await.unwrap_or_else(|_| lost()) }).id(), None)
            }
        };
        self.running.insert(id, (process, number));
        self.instances[process] = Some(Instance { number, stop, scope, task });
        let epoch = lease.epoch();
        self.life.status.send_modify(|status| {
            let shown = &mut status.processes[process];
            shown.epoch = Some(epoch);
            shown.restarts += u64::from(attempt > 1);
        });
    }

    fn emit(&self, epoch: Epoch, event: SupervisionEvent) {
        let name = |process: usize| self.life.specs[process].shared_name();
        let kind = match event {
            SupervisionEvent::Started { process, attempt: 1 } => {
                EventKind::ProcessStarted { process: name(process) }
            }
            SupervisionEvent::Started { process, attempt } => {
                EventKind::ProcessRestarted { process: name(process), attempt }
            }
            SupervisionEvent::Exited { process, outcome, ran_ms, restart_in_ms } => {
                let detail = match outcome {
                    ProcessOutcome::Failed | ProcessOutcome::Panicked => {
                        self.life.status.borrow().processes[process].last_failure.clone()
                    }
                    ProcessOutcome::Done | ProcessOutcome::Aborted => None,
                };
                let (process, ran) = (name(process), Duration::from_millis(ran_ms));
                let restart_in = restart_in_ms.map(Duration::from_millis);
                EventKind::ProcessExited { process, outcome, ran, restart_in, detail }
            }
            SupervisionEvent::Stuck { process } => EventKind::ProcessStuck { process: name(process) },
            SupervisionEvent::GaveUp { process, cause, hold_ms } => {
                self.life.status.send_modify(|status| status.gave_up += 1);
                let process = Some(name(process));
                EventKind::ProcessesGaveUp {
                    process,
                    cause: cause.as_str(),
                    hold: Duration::from_millis(hold_ms),
                }
            }
        };
        self.life.source.reporter.emit(epoch.0, kind);
    }
}

impl Drop for Runner {
    /// However a life ends, even by a panic, nothing of it is shown as running any more.
    fn drop(&mut self) {
        self.life.status.send_modify(|status| {
            status.epoch = None;
            for process in &mut status.processes {
                process.state = match process.state {
                    ProcessState::Starting
                    | ProcessState::Running
                    | ProcessState::Waiting
                    | ProcessState::Stopping
                    | ProcessState::Idle => ProcessState::Idle,
                    kept @ (ProcessState::Stuck | ProcessState::Ended) => kept,
                };
            }
        });
    }
}

/// Runs on its own thread and not on the runtime's pool: a thread that never ends must hold up neither the pool nor the end
/// of the program.
fn on_thread(
    context: ProcessContext,
    body: Arc<dyn Fn(ProcessContext) -> Result<(), String> + Send + Sync>,
    alive: Arc<()>,
) -> oneshot::Receiver<Ended> {
    let (done, outcome) = oneshot::channel();
    let name = format!("tenure-{}", context.name());
    let work = move || {
        let how = match catch_unwind(AssertUnwindSafe(|| body(context))) {
            Ok(returned) => ended(returned),
            Err(panic) => (ProcessOutcome::Panicked, Some(panic_message(&*panic))),
        };
        drop(alive);
        // If the supervisor is gone, nobody listens.
        let _ = done.send(how);
    };
    if let Err(error) = std::thread::Builder::new().name(name).spawn(work) {
        tracing::error!(target: "tenure", %error, "cannot start a thread for a process");
    }
    outcome
}
