//! The loop that feeds the claimer: sends requests to the store, runs handlers, and returns their outcomes. It decides
//! nothing.

use super::super::Jobs;
use super::super::carrier::{Carrier, Found};
use super::{Command, Handlers, JobContext, JobOutcome, RunnerEnd};
use crate::fence::TaskStamp;
use crate::workers::{Worker, WorkerStatus};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Claimer, ClaimerConfig, ClaimerCounts, ClaimerEffect, ClaimerInput, ClaimerRead, EntryState, Expect,
    Incarnation, Outcome, OutcomeKind, RequestId, Time, WriteAnswer,
};
use tenure_core::{JobId, WorkerId};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio_util::sync::CancellationToken;

/// Shortest time between two wake-ups of the machine, whatever it asks for.
const WAKE_LEAST: Duration = Duration::from_millis(5);

/// Keeps a feeder where the place is.
pub(super) struct Shell {
    pub(super) place: Jobs,
    pub(super) config: ClaimerConfig,
    pub(super) handlers: Handlers,
    pub(super) worker: Arc<Worker>,
    pub(super) hand: watch::Sender<usize>,
    pub(super) told: watch::Sender<ClaimerCounts>,
}

impl Shell {
    pub(super) async fn run(self, mut inbox: mpsc::Receiver<Command>) -> RunnerEnd {
        let mut keys = self.place.keys.clone();
        let mut left = JoinSet::new();
        loop {
            keys.mark_unchanged();
            let mut feeder = self.feeder();
            let moved = async {
                if keys.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            tokio::select! {
                biased;
                end = feeder.run(&self.worker, &mut inbox) => {
                    if end == RunnerEnd::Drained {
                        left.join_all().await;
                    }
                    return end;
                }
                () = moved => {
                    left.spawn(feeder.finish());
                }
            }
        }
    }

    /// A feeder with its own incarnation, so that it does not own what was claimed elsewhere.
    fn feeder(&self) -> Feeder {
        let config = ClaimerConfig { incarnation: Incarnation(rand::random()), ..self.config.clone() };
        Feeder {
            machine: Claimer::new(config),
            carrier: Carrier::new(&self.place),
            worker: self.worker.id().clone(),
            status: self.worker.status(),
            handlers: self.handlers.clone(),
            requests: JoinSet::new(),
            asked: HashMap::new(),
            runs: JoinSet::new(),
            running: HashMap::new(),
            refused: BTreeSet::new(),
            hand: self.hand.clone(),
            before: *self.told.borrow(),
            counted: ClaimerCounts::default(),
            told: self.told.clone(),
        }
    }
}

type Key = (JobId, u32);

struct Feeder {
    machine: Claimer,
    carrier: Carrier,
    worker: WorkerId,
    status: watch::Receiver<WorkerStatus>,
    handlers: Handlers,
    requests: JoinSet<ClaimerInput>,
    /// What each request in flight is, in case its task dies and cannot report it.
    asked: HashMap<Id, ClaimerInput>,
    runs: JoinSet<(Key, Outcome)>,
    running: HashMap<Key, (AbortHandle, CancellationToken)>,
    /// Entries the fence has rejected, so that each is counted once.
    refused: BTreeSet<(JobId, u32, u64)>,
    hand: watch::Sender<usize>,
    /// What earlier feeders counted, and what this one did.
    before: ClaimerCounts,
    counted: ClaimerCounts,
    told: watch::Sender<ClaimerCounts>,
}

impl Feeder {
    async fn run(&mut self, worker: &Worker, inbox: &mut mpsc::Receiver<Command>) -> RunnerEnd {
        loop {
            tokio::select! {
                biased;
                command = inbox.recv() => match command {
                    Some(Command::Drain) => return RunnerEnd::Drained,
                    Some(Command::Look) => {}
                    None => return RunnerEnd::Dropped,
                },
                // A worker that cannot register has ended, which is noticed below.
                _ = worker.registered() => break,
            }
        }
        let mut input = Some(ClaimerInput::Wake);
        loop {
            if let Some(input) = input.take()
                && self.feed(input)
            {
                return RunnerEnd::Drained;
            }
            input = tokio::select! {
                biased;
                end = worker.ended() => return RunnerEnd::WorkerEnded(end),
                command = inbox.recv() => match command {
                    Some(Command::Drain) => Some(ClaimerInput::Drain),
                    Some(Command::Look) => Some(ClaimerInput::Nudge),
                    None => return RunnerEnd::Dropped,
                },
                input = self.next() => input,
            };
        }
    }

    /// The next thing that happens by itself. Cancel-safe.
    async fn next(&mut self) -> Option<ClaimerInput> {
        let now = self.now();
        let wake = self.machine.wake_at(now).map(|at| Duration::from_millis(at.since(now)).max(WAKE_LEAST));
        tokio::select! {
            biased;
            Some(done) = self.requests.join_next_with_id(), if !self.requests.is_empty() => self.on_done(done),
            Some(done) = self.runs.join_next(), if !self.runs.is_empty() => self.on_ended(done),
            () = crate::shell::sleep_or_never(wake) => Some(ClaimerInput::Wake),
        }
    }

    /// The place has moved. Running jobs are not cut off: they end within their own time, and their results are written if
    /// the store still accepts them.
    async fn finish(mut self) {
        (self.hand, self.told) = (watch::Sender::default(), watch::Sender::default());
        let mut over = self.feed(ClaimerInput::Drain);
        while !over && !self.running.is_empty() {
            over = self.take_next().await;
        }
        let limit = Duration::from_millis(2 * self.carrier.place.settings.request_timeout_ms);
        let last = async { while !over && !self.take_next().await {} };
        // Otherwise, the leader there learns it from the worker's silence.
        let _ = tokio::time::timeout(limit, last).await;
    }

    async fn take_next(&mut self) -> bool {
        match self.next().await {
            Some(input) => self.feed(input),
            None => false,
        }
    }

    fn now(&self) -> Time {
        Time(self.carrier.place.reporter.clock.now_ms())
    }

    fn on_done(&mut self, done: Result<(Id, ClaimerInput), tokio::task::JoinError>) -> Option<ClaimerInput> {
        match done {
            Ok((job, input)) => {
                self.asked.remove(&job);
                Some(self.fenced(input))
            }
            Err(error) => {
                tracing::error!(target: "tenure", %error, "a store request crashed");
                self.asked.remove(&error.id())
            }
        }
    }

    fn on_ended(&mut self, done: Result<(Key, Outcome), tokio::task::JoinError>) -> Option<ClaimerInput> {
        // An aborted task reports nothing; a panic is caught where it happens.
        let (key, outcome) = done.ok()?;
        self.running.remove(&key)?;
        let (id, attempt) = key;
        Some(ClaimerInput::Ended { id, attempt, outcome })
    }

    /// Lets the fence judge entries that nobody has claimed yet.
    fn fenced(&mut self, input: ClaimerInput) -> ClaimerInput {
        let ClaimerInput::Read(id, ClaimerRead::Found { doc, version, .. }) = input else { return input };
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
        ClaimerInput::Read(id, ClaimerRead::Found { doc, version, fenced })
    }

    /// Returns whether it is drained.
    fn feed(&mut self, input: ClaimerInput) -> bool {
        let mut effects = Vec::new();
        self.machine.handle(self.now(), input, &mut effects);
        let mut drained = false;
        for effect in effects {
            match effect {
                ClaimerEffect::Read(id, unless) => {
                    let (carrier, worker) = (self.carrier.clone(), self.worker.clone());
                    let silence = ClaimerInput::Read(id, ClaimerRead::Unavailable);
                    self.ask(silence, async move { read(&carrier, &worker, id, unless).await });
                }
                ClaimerEffect::Write(id, doc, version) => {
                    let (carrier, worker) = (self.carrier.clone(), self.worker.clone());
                    let silence = ClaimerInput::Written(id, WriteAnswer::Unknown);
                    self.ask(silence, async move {
                        let answer = carrier.write_inbox(&worker, &doc, Expect::Version(version)).await;
                        ClaimerInput::Written(id, answer)
                    });
                }
                ClaimerEffect::Confirm(id) => {
                    let (carrier, worker) = (self.carrier.clone(), self.worker.clone());
                    let life = self.status.borrow().life;
                    self.ask(ClaimerInput::Confirmed(id, false), async move {
                        let mine = match life {
                            Some(life) => carrier.confirms(&worker, life).await,
                            None => false,
                        };
                        ClaimerInput::Confirmed(id, mine)
                    });
                }
                ClaimerEffect::Run { id, attempt, epoch, kind, payload, .. } => {
                    let cancelled = CancellationToken::new();
                    let context = JobContext { id, attempt, epoch: epoch.0, kind, payload, cancelled };
                    self.begin(context);
                }
                ClaimerEffect::Cancel { id, attempt, dropped } => self.stop((id, attempt), dropped),
                ClaimerEffect::Drained => drained = true,
            }
        }
        let counts = self.machine.counts();
        self.carrier.place.reporter.counters.jobs().add_taken(&self.counted, &counts);
        self.counted = counts;
        self.told.send_replace(self.before.and(counts));
        self.hand.send_replace(self.machine.in_hand());
        drained
    }

    fn ask(&mut self, silence: ClaimerInput, request: impl Future<Output = ClaimerInput> + Send + 'static) {
        let task = self.requests.spawn(request);
        self.asked.insert(task.id(), silence);
    }

    fn begin(&mut self, context: JobContext) {
        let key = (context.id.clone(), context.attempt);
        let handler = self.handlers.by_kind.get(context.kind.as_str()).cloned();
        let cancelled = context.cancelled.clone();
        let called_off = cancelled.clone();
        let named = key.clone();
        let abort = self.runs.spawn(async move {
            let Some(handler) = handler else {
                let why = format!("this worker has no handler for jobs of kind {}", context.kind);
                return (named, JobOutcome::failed(why).checked());
            };
            // A separate task, so that a panic ends there; it is aborted with this one.
            let mut work = JoinSet::new();
            work.spawn(handler(context));
            let outcome = match work.join_next().await {
                Some(Ok(outcome)) => outcome.checked(),
                Some(Err(_)) | None => JobOutcome::failed("its handler panicked").checked(),
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
    worker: &WorkerId,
    id: RequestId,
    unless: Option<tenure_core::Version>,
) -> ClaimerInput {
    let read = match carrier.read_inbox(worker, unless.as_ref()).await {
        Found::Doc(doc, version) => ClaimerRead::Found { doc, version, fenced: BTreeSet::new() },
        Found::Unchanged => ClaimerRead::Unchanged,
        Found::Absent => ClaimerRead::Absent,
        Found::Unreadable => ClaimerRead::Unreadable,
        Found::Unavailable => ClaimerRead::Unavailable,
    };
    ClaimerInput::Read(id, read)
}
