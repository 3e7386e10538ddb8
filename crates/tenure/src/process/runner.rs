//! One life of a supervisor: carries out what the core's [`Supervision`] decides, and decides nothing itself.

use super::context::{ProcessContext, ReadySignal};
use super::host::Parts;
use super::spec::{Body, ProcessSpec, in_short};
use super::{SupervisorStatus, ms};
use crate::event::EventKind;
use crate::guard::LeaderGuard;
use crate::metrics::ProcessShare;
use crate::shell::sleep_or_never;
use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Epoch, ProcessOutcome, ProcessState, Supervision, SupervisionConfig, SupervisionEffect, SupervisionEvent,
    SupervisionInput, Time,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// If a step-down fails because the node does not lead, the runner looks at leadership again, but not in a hot loop.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Everything that one life needs.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) config: SupervisionConfig,
    pub(super) specs: Arc<[ProcessSpec]>,
    pub(super) parts: Parts,
    pub(super) status: watch::Sender<SupervisorStatus>,
    pub(super) stop: CancellationToken,
    /// One per process; every instance holds a clone for as long as it runs, whoever still knows of it.
    pub(super) alive: Arc<[Arc<()>]>,
}

type Ended = Result<(), Fault>;

enum Fault {
    Failed(String),
    Panicked(String),
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

pub(super) struct Runner {
    life: Life,
    machine: Supervision,
    /// Held from the promotion until every process has stopped.
    lease: Option<LeaderGuard>,
    /// The machine has been told that the lease ended.
    told: bool,
    /// The epoch of the newest term.
    term: u64,
    instances: Vec<Option<Instance>>,
    tasks: JoinSet<Ended>,
    /// Which instance each task is, in case it dies and cannot report it.
    running: HashMap<Id, (usize, u64)>,
    ready: mpsc::Receiver<(usize, u64)>,
    ready_to: mpsc::Sender<(usize, u64)>,
    /// Leadership is being given up.
    aside: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    share: ProcessShare,
    /// There will be no more leadership.
    closed: bool,
    ended: bool,
}

enum Woken {
    Stop,
    Task(Id, Result<Ended, JoinError>),
    Ready(usize, u64),
    /// The lease held has ended, or leadership has changed.
    Leadership,
    Closed,
    Aside,
    Time,
}

impl Runner {
    pub(super) fn new(life: Life) -> Runner {
        // Each instance sends one notice; no more instances are alive together than there are processes.
        let (ready_to, ready) = mpsc::channel(life.specs.len() * 4);
        Runner {
            machine: Supervision::new(life.config.clone()),
            lease: None,
            told: false,
            term: 0,
            instances: life.specs.iter().map(|_| None).collect(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            ready,
            ready_to,
            aside: None,
            share: ProcessShare::new(Arc::clone(&life.parts.reporter.counters)),
            closed: false,
            ended: false,
            life,
        }
    }

    /// Runs until it is told to stop, or the node has ended.
    pub(super) async fn run(mut self) {
        let mut stopping = false;
        while !self.ended {
            self.look();
            match self.woken(stopping).await {
                Woken::Stop => {
                    stopping = true;
                    let by = self.now() + ms(self.life.parts.budget());
                    self.feed(SupervisionInput::Stop { by });
                }
                Woken::Task(id, done) => self.on_task(id, done),
                Woken::Ready(process, instance) => self.feed(SupervisionInput::Ready { process, instance }),
                Woken::Leadership => self.on_leadership(),
                Woken::Closed => {
                    self.closed = true;
                    self.on_leadership();
                    let by = self.now() + ms(self.life.parts.budget());
                    self.feed(SupervisionInput::Stop { by });
                }
                Woken::Aside => {
                    self.aside = None;
                    let by = self.now();
                    self.feed(SupervisionInput::Lost { by });
                }
                Woken::Time => self.feed(SupervisionInput::Wake),
            }
        }
    }

    /// The next thing that happens. Cancel-safe in every branch, and biased, so that a run can be repeated exactly.
    async fn woken(&mut self, stopping: bool) -> Woken {
        let now = self.now();
        let sleep = self.machine.due().map(|at| Duration::from_millis(at.since(now)));
        let lease = self.lease.as_ref().filter(|_| !self.told);
        tokio::select! {
            biased;
            () = self.life.stop.cancelled(), if !stopping => Woken::Stop,
            () = over(lease) => Woken::Leadership,
            changed = self.life.parts.leadership.changed(), if !self.closed => match changed {
                Ok(()) => Woken::Leadership,
                Err(_) => Woken::Closed,
            },
            // Before the exits: an instance that was ready and ended at once was ready.
            Some((process, instance)) = self.ready.recv() => Woken::Ready(process, instance),
            Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => match done {
                Ok((id, ended)) => Woken::Task(id, Ok(ended)),
                Err(error) => Woken::Task(error.id(), Err(error)),
            },
            () = finished(&mut self.aside) => Woken::Aside,
            () = sleep_or_never(sleep) => Woken::Time,
        }
    }

    fn now(&self) -> Time {
        Time(self.life.parts.reporter.clock.now_ms())
    }

    /// Takes up leadership, if there is any.
    fn look(&mut self) {
        if self.lease.is_some() || self.aside.is_some() || self.closed || self.ended {
            return;
        }
        let guard = self.life.parts.leadership.borrow_and_update().guard();
        if let Some(guard) = guard {
            (self.term, self.told) = (guard.epoch(), false);
            self.lease = Some(guard);
            self.feed(SupervisionInput::Led { epoch: Epoch(self.term) });
        }
    }

    fn on_leadership(&mut self) {
        let Some(lease) = self.lease.as_ref().filter(|_| !self.told) else { return };
        // A detached plugin no longer leads, although the lease continues.
        let shown = self.life.parts.leadership.borrow_and_update().acting_epoch();
        if lease.is_valid() && shown == Some(lease.epoch()) && !self.closed {
            return;
        }
        self.told = true;
        let by = self.now() + ms(lease.remaining().min(self.life.parts.budget()));
        self.feed(SupervisionInput::Lost { by });
    }

    fn on_task(&mut self, id: Id, done: Result<Ended, JoinError>) {
        let Some((process, instance)) = self.running.remove(&id) else { return };
        let over = self.is_over(process);
        let (outcome, words) = match done {
            Ok(Ok(())) => (ProcessOutcome::Done, None),
            // A process that returns the guard's own error, or any other error after the guard ended, did as it was told.
            // `check()?` is the natural way out, and must not look like a failure in every hand-over.
            Ok(Err(Fault::Failed(_))) if over => (ProcessOutcome::Done, None),
            Ok(Err(Fault::Failed(words))) => (ProcessOutcome::Failed, Some(words)),
            Ok(Err(Fault::Panicked(words))) => (ProcessOutcome::Panicked, Some(words)),
            Err(error) if error.is_panic() => (ProcessOutcome::Panicked, Some(said(&*error.into_panic()))),
            Err(_) => (ProcessOutcome::Aborted, None),
        };
        self.instances[process].take_if(|running| running.number == instance);
        if let Some(words) = words {
            self.life.status.send_modify(|status| {
                status.processes[process].last_failure = Some(Arc::from(words));
            });
        }
        self.feed(SupervisionInput::Exited { process, instance, outcome });
    }

    /// Whether the guard of this process's instance has ended.
    fn is_over(&self, process: usize) -> bool {
        let scoped = self.instances[process].as_ref().is_none_or(|instance| instance.scope.is_cancelled());
        scoped || self.lease.as_ref().is_none_or(|lease| !lease.is_valid())
    }

    fn feed(&mut self, input: SupervisionInput) {
        let mut effects = Vec::new();
        self.machine.handle(self.now(), input, &mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
        self.publish();
    }

    fn carry_out(&mut self, effect: SupervisionEffect) {
        match effect {
            SupervisionEffect::Start { process, instance, attempt } => self.start(process, instance, attempt),
            SupervisionEffect::Cancel { process } => {
                if let Some(instance) = &self.instances[process] {
                    instance.cancel();
                }
            }
            SupervisionEffect::Abort { process } => {
                if let Some(instance) = &self.instances[process] {
                    instance.abort();
                }
            }
            SupervisionEffect::Released { .. } => self.lease = None,
            SupervisionEffect::StandAside { hold_ms } => {
                let asked = (self.life.parts.stand_aside)(Duration::from_millis(hold_ms));
                self.aside = Some(Box::pin(async move {
                    if asked.await.is_err() {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                }));
            }
            SupervisionEffect::Emit(event) => self.emit(event),
            SupervisionEffect::Ended => self.ended = true,
        }
    }

    fn start(&mut self, process: usize, number: u64, attempt: u32) {
        let lease = self.lease.as_ref().expect("processes are started only between `Led` and `Released`");
        let (guard, scope) = lease.scoped();
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
                    body(context).await.map_err(Fault::Failed)
                });
                (task.id(), Some(task))
            }
            Body::Thread(body) => {
                let ended = on_thread(context, Arc::clone(body), alive);
                // No outcome was sent: the thread could not be started, or died in a way that cannot be caught.
                let lost = || Err(Fault::Panicked("the thread is gone".to_owned()));
                (self.tasks.spawn(async move { ended.await.unwrap_or_else(|_| lost()) }).id(), None)
            }
        };
        self.running.insert(id, (process, number));
        self.instances[process] = Some(Instance { number, stop, scope, task });
        self.life.status.send_modify(|status| {
            let shown = &mut status.processes[process];
            shown.epoch = Some(self.term);
            shown.restarts += u64::from(attempt > 1);
        });
    }

    fn emit(&self, event: SupervisionEvent) {
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
                EventKind::ProcessExited { process: name(process), outcome, ran_ms, restart_in_ms, detail }
            }
            SupervisionEvent::Stuck { process } => EventKind::ProcessStuck { process: name(process) },
            SupervisionEvent::GaveUp { process, cause, hold_ms } => {
                self.life.status.send_modify(|status| status.gave_up += 1);
                let process = Some(name(process));
                EventKind::ProcessesGaveUp { process, cause: cause.as_str(), hold_ms }
            }
        };
        self.life.parts.reporter.emit(self.term, kind);
    }

    /// Publishes the present status.
    fn publish(&mut self) {
        let (mut running, mut stuck) = (0, 0);
        self.life.status.send_if_modified(|status| {
            let epoch = self.machine.epoch().map(|epoch| epoch.0);
            let mut changed = std::mem::replace(&mut status.epoch, epoch) != epoch;
            for (process, shown) in status.processes.iter_mut().enumerate() {
                let state = self.machine.state(process);
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
    let (done, ended) = oneshot::channel();
    let name = format!("tenure-{}", context.name());
    let work = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| body(context)));
        let outcome = match outcome {
            Ok(done) => done.map_err(Fault::Failed),
            Err(panic) => Err(Fault::Panicked(said(&*panic))),
        };
        drop(alive);
        // If the supervisor is gone, nobody listens.
        let _ = done.send(outcome);
    };
    if let Err(error) = std::thread::Builder::new().name(name).spawn(work) {
        tracing::error!(target: "tenure", %error, "cannot start a thread for a process");
    }
    ended
}

/// A panic's message, as one line.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "without words",
    };
    in_short(text)
}

async fn over(lease: Option<&LeaderGuard>) {
    match lease {
        Some(lease) => lease.ended().await,
        None => std::future::pending().await,
    }
}

async fn finished(aside: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match aside {
        Some(aside) => aside.await,
        None => std::future::pending().await,
    }
}
