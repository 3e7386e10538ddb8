//! What happens around a worker's claimer: handlers run, the fence judges, and the place may move. It decides nothing.

use super::super::Jobs;
use super::super::carrier::InboxClient;
use super::super::output::{OutputWriter, Outputs, Recording};
use super::{Handlers, JobContext, JobOutcome, RunnerEnd, Said};
use crate::fence::{Fence, TaskStamp};
use crate::shell::{Happening, Host, Shell};
use crate::workers::{Worker, WorkerDocument};
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, Read};
use tenure_core::machine::Now;
use tenure_core::{
    Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerCounts, ClaimerOutput, ClaimerRequest,
    EntryState, InboxDoc, Incarnation, JobId, Outcome, OutcomeKind, Refused, WorkerId,
};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Keeps a claimer where the place is.
pub(super) struct Runner {
    pub(super) place: Jobs,
    pub(super) config: ClaimerConfig,
    pub(super) handlers: Handlers,
    pub(super) keep_output: bool,
    /// Outputs that are being written.
    pub(super) writing: TaskTracker,
    pub(super) worker: Arc<Worker>,
    pub(super) draining: watch::Receiver<bool>,
    pub(super) looks: Arc<Notify>,
    pub(super) hand: watch::Sender<usize>,
    pub(super) told: watch::Sender<ClaimerCounts>,
}

impl Runner {
    pub(super) async fn run(mut self) -> RunnerEnd {
        tokio::select! {
            biased;
            drained = self.draining.wait_for(|drains| *drains) => {
                return if drained.is_ok() { RunnerEnd::Drained } else { RunnerEnd::Dropped };
            }
            // A worker that cannot register has ended, which is noticed below.
            _ = self.worker.registered() => {}
        }
        let mut keys = self.place.keys.clone();
        let mut left = JoinSet::new();
        loop {
            keys.mark_unchanged();
            let moved = CancellationToken::new();
            let mut life = Box::pin(self.life(moved.clone()).run());
            let moves = async {
                if keys.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            tokio::select! {
                biased;
                end = &mut life => {
                    if end == RunnerEnd::Drained {
                        left.join_all().await;
                        self.writing.close();
                        self.writing.wait().await;
                    }
                    return end;
                }
                () = moves => {
                    moved.cancel();
                    left.spawn(life);
                }
            }
        }
    }

    /// A claimer with its own incarnation, so that it does not own what was claimed elsewhere.
    fn life(&self, moved: CancellationToken) -> Shell<Claimer, ClaimerHost> {
        let config = ClaimerConfig { incarnation: Incarnation(rand::random()), ..self.config.clone() };
        let worker = self.worker.id();
        let host = ClaimerHost {
            inbox: InboxClient::new(&self.place, &self.place.documents(), &self.place.keys(), worker),
            registration: self.place.keys().worker(worker),
            place: self.place.clone(),
            worker: Arc::clone(&self.worker),
            handlers: self.handlers.clone(),
            outputs: self.keep_output.then(|| Outputs::new(&self.place, worker, &self.writing)),
            draining: self.draining.clone(),
            drains: false,
            looks: Arc::clone(&self.looks),
            moved,
            leaves: false,
            give_up_at: None,
            runs: JoinSet::new(),
            running: HashMap::new(),
            said: Arc::default(),
            hand: self.hand.clone(),
            before: *self.told.borrow(),
            counted: ClaimerCounts::default(),
            told: self.told.clone(),
        };
        Shell::new(Claimer::new(config), host, Arc::clone(&self.place.reporter.clock))
    }
}

type Key = (JobId, u32);

struct ClaimerHost {
    place: Jobs,
    inbox: InboxClient,
    /// The key of the worker's registration.
    registration: String,
    worker: Arc<Worker>,
    handlers: Handlers,
    /// Unless nothing is to be kept.
    outputs: Option<Outputs>,
    draining: watch::Receiver<bool>,
    drains: bool,
    looks: Arc<Notify>,
    /// The place has moved. Running jobs are not cut off: they end within their own time, and their results are written if
    /// the store still accepts them.
    moved: CancellationToken,
    leaves: bool,
    /// When to stop trying to write the last results: the leader there learns of them from the worker's silence.
    give_up_at: Option<Instant>,
    runs: JoinSet<(Key, Outcome)>,
    running: HashMap<Key, (AbortHandle, CancellationToken)>,
    said: Arc<Said>,
    hand: watch::Sender<usize>,
    /// What earlier lives counted, and what this one did.
    before: ClaimerCounts,
    counted: ClaimerCounts,
    told: watch::Sender<ClaimerCounts>,
}

impl Host<Claimer> for ClaimerHost {
    type End = RunnerEnd;

    fn carry(&self, request: ClaimerRequest) -> impl Future<Output = ClaimerAnswer> + Send + 'static {
        let (inbox, fence, place) = (self.inbox.clone(), self.place.fence.clone(), self.place.clone());
        let (worker, key) = (self.worker.id().clone(), self.registration.clone());
        let life = self.worker.status().borrow().life;
        async move {
            match request {
                ClaimerRequest::Inbox(request, refused) => {
                    let answer = inbox.carry(None, request).await;
                    let refused = judge(&fence, &answer, &refused);
                    ClaimerAnswer::Inbox(answer, refused)
                }
                ClaimerRequest::Confirm => {
                    let mine = match life {
                        Some(life) => confirms(&place, &key, &worker, life).await,
                        None => false,
                    };
                    ClaimerAnswer::Confirmed(mine)
                }
            }
        }
    }

    fn output(&mut self, _: Now, _: &Claimer, output: ClaimerOutput) -> ControlFlow<RunnerEnd> {
        match output {
            ClaimerOutput::Run { id, dispatch, attempt, epoch, queue, kind, payload, timeout_ms } => {
                let (said, cancelled) = (Arc::clone(&self.said), CancellationToken::new());
                let epoch = epoch.0;
                let output = OutputWriter::nowhere();
                let context = JobContext {
                    id,
                    attempt,
                    dispatch,
                    epoch,
                    queue,
                    kind,
                    payload,
                    said,
                    output,
                    cancelled,
                };
                self.begin(context, Duration::from_millis(timeout_ms));
            }
            ClaimerOutput::Cancel { id, dispatch, dropped } => self.stop((id, dispatch), dropped),
            ClaimerOutput::Drained => return ControlFlow::Break(RunnerEnd::Drained),
        }
        ControlFlow::Continue(())
    }

    async fn next(&mut self) -> Happening<Claimer, RunnerEnd> {
        if !self.drains && (self.leaves || *self.draining.borrow()) {
            self.drains = true;
            return Happening::Command(ClaimerCommand::Drain);
        }
        if self.leaves && self.running.is_empty() && self.give_up_at.is_none() {
            let limit = 2 * self.place.settings.request_timeout;
            self.give_up_at = Some(Instant::now() + limit);
        }
        let give_up_at = self.give_up_at;
        let give_up = async {
            match give_up_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.moved.cancelled(), if !self.leaves => {
                self.leaves = true;
                (self.hand, self.told) = (watch::Sender::default(), watch::Sender::default());
                Happening::Nothing
            }
            end = self.worker.ended(), if !self.leaves => Happening::End(RunnerEnd::WorkerEnded(end)),
            changed = self.draining.changed(), if !self.leaves => match changed {
                Ok(()) => Happening::Nothing,
                Err(_) => Happening::End(RunnerEnd::Dropped),
            },
            () = self.looks.notified(), if !self.leaves => Happening::Command(ClaimerCommand::Look),
            Some(done) = self.runs.join_next(), if !self.runs.is_empty() => {
                // An aborted task reports nothing; a panic is caught where it happens.
                match done.ok().filter(|(key, _)| self.running.remove(key).is_some()) {
                    Some(((id, dispatch), outcome)) => {
                        Happening::Command(ClaimerCommand::Ended { id, dispatch, outcome })
                    }
                    None => Happening::Nothing,
                }
            }
            ((id, dispatch), progress) = self.said.next() => {
                Happening::Command(ClaimerCommand::Progress { id, dispatch, progress })
            }
            () = give_up => Happening::End(RunnerEnd::Drained),
        }
    }

    fn settled(&mut self, _: Now, machine: &Claimer) -> ControlFlow<RunnerEnd> {
        let counts = machine.counts();
        self.place.reporter.counters.jobs().add_taken(&self.counted, &counts);
        self.counted = counts;
        self.told.send_replace(self.before.and(counts));
        self.hand.send_replace(machine.in_hand());
        ControlFlow::Continue(())
    }
}

impl ClaimerHost {
    fn begin(&mut self, mut context: JobContext, timeout: Duration) {
        let key = (context.id.clone(), context.dispatch);
        let begins = |outputs: &Outputs| outputs.begin(&context.id, context.attempt, context.epoch, timeout);
        let recording = self.outputs.as_ref().map(begins);
        context.output = recording.as_ref().map(Recording::output).unwrap_or_default();
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
            if let Some(recording) = recording {
                recording.end().await;
            }
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

/// Puts entries that nobody has claimed yet before the fence. What it has rejected once stays rejected.
fn judge(fence: &Fence, answer: &DocumentAnswer<InboxDoc>, refused: &BTreeSet<Refused>) -> BTreeSet<Refused> {
    let DocumentAnswer::Read(Read::Found { body, .. }) = answer else { return BTreeSet::new() };
    let unclaimed = body.entries.iter().filter(|entry| entry.state == EntryState::Dispatched);
    let rejected = unclaimed.filter_map(|entry| {
        let key = (entry.id.clone(), entry.dispatch, entry.epoch);
        let stamp = TaskStamp {
            id: entry.id.to_string(),
            epoch: entry.epoch.0,
            dispatched_at: entry.dispatched_at,
            deadline: None,
        };
        (refused.contains(&key) || !fence.check_task(&stamp).is_accepted()).then_some(key)
    });
    rejected.collect()
}

/// Whether the worker's id still belongs to this life, according to a fresh answer.
async fn confirms(place: &Jobs, key: &str, worker: &WorkerId, life: Incarnation) -> bool {
    let timeout = place.settings.request_timeout;
    match tokio::time::timeout(timeout, place.store.get(key, None)).await {
        Ok(tenure_store::Read::Found(object)) => {
            WorkerDocument::parse(worker, &object.body).is_ok_and(|registered| registered.incarnation == life)
        }
        Ok(_) | Err(_) => false,
    }
}
