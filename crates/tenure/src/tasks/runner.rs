//! A worker's handle, and the task that feeds the taker. It decides nothing.

use super::TaskPlace;
use super::carrier::{Carrier, Found};
use crate::fence::TaskStamp;
use crate::workers::{Worker, WorkerEnd};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    EntryState, Expect, Incarnation, NodeId, Outcome, OutcomeKind, RequestId, TASK_RESULT_MAX_BYTES, Taker,
    TakerConfig, TakerCounts, TakerEffect, TakerInput, TakerRead, Time, WriteAnswer,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio_util::sync::CancellationToken;

/// The machine is not asked again before this has passed, whatever it says.
const WAKE_LEAST: Duration = Duration::from_millis(5);

/// What a handler gets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskContext {
    /// Which task. The same for every attempt: whoever must do a thing once uses it to recognise a repetition.
    pub id: NodeId,
    /// Which attempt.
    pub attempt: u32,
    /// The epoch of the leader that dispatched it: to be stamped on, and checked by, whatever it writes.
    pub epoch: u64,
    /// What it is.
    pub kind: NodeId,
    /// What it is about.
    pub payload: Arc<[u8]>,
    /// Cancelled when it is called off, has taken too long, or is nobody's business any more. A handler that does not look is
    /// dropped at its next await once its outcome is of no interest.
    pub cancelled: CancellationToken,
}

/// What a handler says about its attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskOutcome {
    kind: OutcomeKind,
    result: Vec<u8>,
}

impl TaskOutcome {
    /// Done. The result is a summary of at most 1 KiB; what is larger belongs into an object of its own.
    pub fn succeeded(result: impl Into<Vec<u8>>) -> TaskOutcome {
        TaskOutcome { kind: OutcomeKind::Succeeded, result: result.into() }
    }

    /// Done in part, and not to be tried again.
    pub fn partial(result: impl Into<Vec<u8>>) -> TaskOutcome {
        TaskOutcome { kind: OutcomeKind::Partial, result: result.into() }
    }

    /// Not done; to be tried again if attempts are left.
    pub fn failed(why: impl Into<Vec<u8>>) -> TaskOutcome {
        TaskOutcome { kind: OutcomeKind::Failed, result: why.into() }
    }

    fn checked(self) -> Outcome {
        let bytes = self.result.len();
        if bytes <= TASK_RESULT_MAX_BYTES {
            return Outcome { kind: self.kind, result: Arc::from(self.result) };
        }
        let why = format!("its result has {bytes} bytes; at most {TASK_RESULT_MAX_BYTES} are allowed");
        Outcome { kind: OutcomeKind::Failed, result: Arc::from(why.into_bytes()) }
    }
}

type Work = Pin<Box<dyn Future<Output = TaskOutcome> + Send>>;
type Handler = Arc<dyn Fn(TaskContext) -> Work + Send + Sync>;

/// What a worker can do: an async function for each kind of task.
#[derive(Clone, Default)]
pub struct Handlers {
    by_kind: BTreeMap<String, Handler>,
}

impl Handlers {
    /// None yet. A task of a kind nobody handles fails.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Tasks of this kind are done by this function.
    pub fn on<F, W>(mut self, kind: impl Into<String>, handler: F) -> Handlers
    where
        F: Fn(TaskContext) -> W + Send + Sync + 'static,
        W: Future<Output = TaskOutcome> + Send + 'static,
    {
        self.by_kind.insert(kind.into(), Arc::new(move |context| Box::pin(handler(context))));
        self
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_kind.keys()).finish()
    }
}

/// How a runner is to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunnerOptions {
    /// How many tasks run at once. Default: 4.
    pub concurrency: usize,
    /// How many are claimed at once, running ones included. Default: 16. More: fewer requests. Fewer: what this worker cannot
    /// begin yet can still be given to another.
    pub claims: usize,
}

impl Default for RunnerOptions {
    fn default() -> RunnerOptions {
        RunnerOptions { concurrency: 4, claims: 16 }
    }
}

/// Why a runner ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunnerEnd {
    /// It was drained: everything it had was written.
    Drained,
    /// It was dropped.
    Dropped,
    /// Its worker lost its id, or never had it. What ran was stopped.
    WorkerEnded(WorkerEnd),
}

enum Command {
    Drain,
    Look,
}

/// Does the tasks of one worker. Dropping it stops them: the leader gives them to others once it notices.
#[derive(Debug)]
pub struct TaskRunner {
    commands: mpsc::Sender<Command>,
    ended: watch::Receiver<Option<RunnerEnd>>,
    worker: Arc<Worker>,
    in_hand: watch::Receiver<usize>,
    counts: watch::Receiver<TakerCounts>,
}

impl TaskRunner {
    /// Starts looking at the worker's inbox as soon as the worker is registered.
    pub fn start(place: &TaskPlace, worker: Worker, handlers: Handlers) -> TaskRunner {
        TaskRunner::start_with(place, worker, handlers, RunnerOptions::default())
    }

    /// The same with options.
    pub fn start_with(
        place: &TaskPlace,
        worker: Worker,
        handlers: Handlers,
        options: RunnerOptions,
    ) -> TaskRunner {
        let settings = &place.settings;
        let fast_ms = settings.task_poll_interval_ms;
        let concurrency = options.concurrency.max(1);
        let config = TakerConfig {
            incarnation: Incarnation(rand::random()),
            concurrency,
            claims_max: options.claims.max(concurrency),
            fast_ms,
            slow_ms: settings.task_idle_interval_ms.max(fast_ms),
            linger_ms: fast_ms / 4,
        };
        let worker = Arc::new(worker);
        let (commands, inbox) = mpsc::channel(4);
        let (end, ended) = watch::channel(None);
        let (hand, in_hand) = watch::channel(0);
        let (told, counts) = watch::channel(TakerCounts::default());
        let feeder = Feeder {
            machine: Taker::new(config),
            carrier: Carrier::new(place),
            worker: worker.id().clone(),
            handlers,
            requests: JoinSet::new(),
            asked: HashMap::new(),
            runs: JoinSet::new(),
            running: HashMap::new(),
            refused: BTreeSet::new(),
            hand,
            told,
        };
        let watched = Arc::clone(&worker);
        tokio::spawn(async move {
            let reason = feeder.run(&watched, inbox).await;
            drop(watched);
            end.send_replace(Some(reason));
        });
        TaskRunner { commands, ended, worker, in_hand, counts }
    }

    /// The worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// How many tasks are claimed and not written off.
    pub fn in_hand(&self) -> usize {
        *self.in_hand.borrow()
    }

    /// What it counts: attempts claimed, entries the fence refused, entries delivered twice, and the like. Outlives it.
    pub fn counts(&self) -> watch::Receiver<TakerCounts> {
        self.counts.clone()
    }

    /// Looks at the inbox now instead of with the next poll.
    pub fn look(&self) {
        // Full means that it is about to look anyway.
        let _ = self.commands.try_send(Command::Look);
    }

    /// Takes nothing new, gives back what was not begun, ends what runs, writes the results, and deregisters. Bounded by the
    /// timeouts of what runs, as long as the store answers; give it a limit where that matters.
    pub async fn drain(self) -> RunnerEnd {
        let _ = self.commands.send(Command::Drain).await;
        let reason = self.ended().await;
        let TaskRunner { worker, .. } = self;
        if let Ok(worker) = Arc::try_unwrap(worker) {
            worker.deregister().await;
        }
        reason
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> RunnerEnd {
        let mut ended = self.ended.clone();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or(RunnerEnd::Dropped)
    }
}

type Key = (NodeId, u32);

struct Feeder {
    machine: Taker,
    carrier: Carrier,
    worker: NodeId,
    handlers: Handlers,
    requests: JoinSet<TakerInput>,
    /// The request under way, in case its task dies and cannot say so itself.
    asked: HashMap<Id, TakerInput>,
    runs: JoinSet<(Key, Outcome)>,
    running: HashMap<Key, (AbortHandle, CancellationToken)>,
    /// What the fence has turned away, so that it is counted once.
    refused: BTreeSet<(NodeId, u32, u64)>,
    hand: watch::Sender<usize>,
    told: watch::Sender<TakerCounts>,
}

impl Feeder {
    async fn run(mut self, worker: &Worker, mut inbox: mpsc::Receiver<Command>) -> RunnerEnd {
        loop {
            tokio::select! {
                biased;
                command = inbox.recv() => match command {
                    Some(Command::Drain) => return RunnerEnd::Drained,
                    Some(Command::Look) => {}
                    None => return RunnerEnd::Dropped,
                },
                // One that cannot register has ended, which is seen below.
                _ = worker.registered() => break,
            }
        }
        let mut input = Some(TakerInput::Wake);
        loop {
            if let Some(input) = input.take()
                && self.feed(input)
            {
                return RunnerEnd::Drained;
            }
            let now = self.now();
            let wake =
                self.machine.wake_at(now).map(|at| Duration::from_millis(at.since(now)).max(WAKE_LEAST));
            input = tokio::select! {
                biased;
                end = worker.ended() => return RunnerEnd::WorkerEnded(end),
                command = inbox.recv() => match command {
                    Some(Command::Drain) => Some(TakerInput::Drain),
                    Some(Command::Look) => Some(TakerInput::Nudge),
                    None => return RunnerEnd::Dropped,
                },
                Some(done) = self.requests.join_next_with_id(), if !self.requests.is_empty() => self.on_done(done),
                Some(done) = self.runs.join_next(), if !self.runs.is_empty() => self.on_ended(done),
                () = crate::driver::sleep_or_never(wake) => Some(TakerInput::Wake),
            };
        }
    }

    fn now(&self) -> Time {
        Time(self.carrier.place.voice.clock.now_ms())
    }

    fn on_done(&mut self, done: Result<(Id, TakerInput), tokio::task::JoinError>) -> Option<TakerInput> {
        match done {
            Ok((task, input)) => {
                self.asked.remove(&task);
                Some(self.fenced(input))
            }
            Err(error) => {
                tracing::error!(target: "tenure", %error, "a store request died");
                self.asked.remove(&error.id())
            }
        }
    }

    fn on_ended(&mut self, done: Result<(Key, Outcome), tokio::task::JoinError>) -> Option<TakerInput> {
        // One that was aborted says nothing; a panic is caught where it happens.
        let (key, outcome) = done.ok()?;
        self.running.remove(&key)?;
        let (id, attempt) = key;
        Some(TakerInput::Ended { id, attempt, outcome })
    }

    /// The fence judges what nobody has claimed yet.
    fn fenced(&mut self, input: TakerInput) -> TakerInput {
        let TakerInput::Read(id, TakerRead::Found { doc, version, .. }) = input else { return input };
        let fence = &self.carrier.place.fence;
        let (mut fenced, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for entry in doc.entries.iter().filter(|entry| entry.state == EntryState::Dispatched) {
            let known = (entry.id.clone(), entry.attempt, entry.epoch.0);
            let stamp = TaskStamp {
                id: entry.id.to_string(),
                epoch: entry.epoch.0,
                dispatched_at: entry.dispatched_at,
                deadline: None,
            };
            if self.refused.contains(&known) || !fence.check_task(&stamp).is_accepted() {
                fenced.insert(entry.key());
                refused.insert(known);
            }
        }
        self.refused = refused;
        TakerInput::Read(id, TakerRead::Found { doc, version, fenced })
    }

    /// Whether it is drained.
    fn feed(&mut self, input: TakerInput) -> bool {
        let mut effects = Vec::new();
        self.machine.handle(self.now(), input, &mut effects);
        let mut drained = false;
        for effect in effects {
            match effect {
                TakerEffect::Read(id, unless) => {
                    let (carrier, worker) = (self.carrier.clone(), self.worker.clone());
                    let silence = TakerInput::Read(id, TakerRead::Unavailable);
                    self.ask(silence, async move { read(&carrier, &worker, id, unless).await });
                }
                TakerEffect::Write(id, doc, version) => {
                    let (carrier, worker) = (self.carrier.clone(), self.worker.clone());
                    let silence = TakerInput::Written(id, WriteAnswer::Unknown);
                    self.ask(silence, async move {
                        let answer = carrier.write_inbox(&worker, &doc, Expect::Version(version)).await;
                        TakerInput::Written(id, answer)
                    });
                }
                TakerEffect::Run { id, attempt, epoch, kind, payload, .. } => {
                    let cancelled = CancellationToken::new();
                    let context = TaskContext { id, attempt, epoch: epoch.0, kind, payload, cancelled };
                    self.begin(context);
                }
                TakerEffect::Cancel { id, attempt, dropped } => self.stop((id, attempt), dropped),
                TakerEffect::Drained => drained = true,
            }
        }
        let counts = self.machine.counts();
        let before = self.told.send_replace(counts);
        self.carrier.place.voice.figures.tasks().add_taken(&before, &counts);
        self.hand.send_replace(self.machine.in_hand());
        drained
    }

    fn ask(&mut self, silence: TakerInput, request: impl Future<Output = TakerInput> + Send + 'static) {
        let task = self.requests.spawn(request);
        self.asked.insert(task.id(), silence);
    }

    fn begin(&mut self, context: TaskContext) {
        let key = (context.id.clone(), context.attempt);
        let handler = self.handlers.by_kind.get(context.kind.as_str()).cloned();
        let cancelled = context.cancelled.clone();
        let called_off = cancelled.clone();
        let named = key.clone();
        let abort = self.runs.spawn(async move {
            let Some(handler) = handler else {
                let why = format!("this worker has no handler for tasks of kind {}", context.kind);
                return (named, TaskOutcome::failed(why).checked());
            };
            // A task of its own, so that a panic ends there; aborted with this one.
            let mut work = JoinSet::new();
            work.spawn(handler(context));
            let outcome = match work.join_next().await {
                Some(Ok(outcome)) => outcome.checked(),
                Some(Err(_)) | None => TaskOutcome::failed("its handler panicked").checked(),
            };
            let stopped = called_off.is_cancelled() && outcome.kind == OutcomeKind::Failed;
            let outcome = if stopped { Outcome { kind: OutcomeKind::Cancelled, ..outcome } } else { outcome };
            (named, outcome)
        });
        self.running.insert(key, (abort, cancelled));
    }

    fn stop(&mut self, key: Key, dropped: bool) {
        let Some((_, cancelled)) = self.running.get(&key) else { return };
        cancelled.cancel();
        if dropped && let Some((abort, _)) = self.running.remove(&key) {
            abort.abort();
        }
    }
}

async fn read(
    carrier: &Carrier,
    worker: &NodeId,
    id: RequestId,
    unless: Option<tenure_core::Version>,
) -> TakerInput {
    let read = match carrier.read_inbox(worker, unless.as_ref()).await {
        Found::Doc(doc, version) => TakerRead::Found { doc, version, fenced: BTreeSet::new() },
        Found::Unchanged => TakerRead::Unchanged,
        Found::Absent => TakerRead::Absent,
        Found::Unreadable => TakerRead::Unreadable,
        Found::Unavailable => TakerRead::Unavailable,
    };
    TakerInput::Read(id, read)
}
