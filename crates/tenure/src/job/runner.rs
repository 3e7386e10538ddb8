//! A worker's handle for its jobs.

mod life;

use super::{Jobs, OutputWriter, SLOW_LOOK};
use crate::clock::millis;
use crate::workers::{Worker, WorkerEnd};
use life::Runner;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tenure_core::{
    AllowedCommand, ClaimerConfig, ClaimerCounts, Incarnation, JOB_RESULT_MAX_BYTES, JOB_SLOTS_MAX, Labels,
    Outcome, OutcomeKind, Progress, Serves,
};
use tenure_core::{JobId, KindName, QueueName};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a handler is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobContext {
    /// The id of the job. It is the same for every attempt: work that must happen once uses it to recognise a repetition.
    pub id: JobId,
    /// The number of the attempt: never more than the job may have.
    pub attempt: u32,
    /// What identifies it in the inbox.
    pub(crate) dispatch: u32,
    /// The epoch of the leader that dispatched it: stamp it on everything the job writes, and check it there.
    pub epoch: u64,
    /// The queue it waited in.
    pub queue: QueueName,
    /// The kind the handler was registered for.
    pub kind: KindName,
    /// The input given at submission.
    pub payload: Arc<[u8]>,
    /// Where it says how far it is.
    pub(crate) said: Arc<Said>,
    /// Where it says the rest.
    pub(crate) output: OutputWriter,
    /// Cancelled when the job is cancelled, has taken too long, or nobody waits for it any more. A handler that ignores
    /// this is dropped at its next await once nobody is interested in its outcome.
    pub cancelled: CancellationToken,
}

/// How far an attempt is, as last said: the newest replaces the one before.
#[derive(Debug, Default)]
pub(crate) struct Said {
    progress: Mutex<BTreeMap<(JobId, u32), Progress>>,
    news: Notify,
}

impl Said {
    fn say(&self, key: (JobId, u32), progress: Progress) {
        self.progress.lock().insert(key, progress);
        self.news.notify_one();
    }

    /// Something that was said. Cancel-safe.
    async fn next(&self) -> ((JobId, u32), Progress) {
        loop {
            if let Some(said) = self.progress.lock().pop_first() {
                return said;
            }
            self.news.notified().await;
        }
    }
}

impl JobContext {
    /// Says how far it is: 0 to 100, and a line of at most 200 bytes. It may be called as often as one likes: it is written with
    /// the worker's next write, or after 5 s.
    pub fn progress(&self, percent: u8, text: &str) {
        self.said.say((self.id.clone(), self.dispatch), Progress::new(percent, text));
    }

    /// Takes what the attempt has to say, for [`JobOutput`](super::JobOutput) and `tenure job logs`: of more than 256 KiB, the beginning and
    /// the end. It is written to the store, readable for everybody who may read there, when the attempt ends and every 30 s.
    pub fn output(&self) -> OutputWriter {
        self.output.clone()
    }
}

/// What a handler reports about its attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobOutcome {
    kind: OutcomeKind,
    result: Vec<u8>,
}

impl JobOutcome {
    /// Done. The result is a summary of at most 1 KiB; anything larger belongs in an object of its own.
    pub fn succeeded(result: impl Into<Vec<u8>>) -> JobOutcome {
        JobOutcome { kind: OutcomeKind::Succeeded, result: result.into() }
    }

    /// Done in part; not to be tried again.
    pub fn partial(result: impl Into<Vec<u8>>) -> JobOutcome {
        JobOutcome { kind: OutcomeKind::Partial, result: result.into() }
    }

    /// Not done; to be tried again if attempts are left.
    pub fn failed(why: impl Into<Vec<u8>>) -> JobOutcome {
        JobOutcome { kind: OutcomeKind::Failed, result: why.into() }
    }

    fn checked(self) -> Outcome {
        let bytes = self.result.len();
        if bytes <= JOB_RESULT_MAX_BYTES {
            return Outcome { kind: self.kind, result: Arc::from(self.result) };
        }
        let why = format!("its result has {bytes} bytes; at most {JOB_RESULT_MAX_BYTES} are allowed");
        Outcome { kind: OutcomeKind::Failed, result: Arc::from(why.into_bytes()) }
    }
}

type Work = Pin<Box<dyn Future<Output = JobOutcome> + Send>>;
type Handler = Arc<dyn Fn(JobContext) -> Work + Send + Sync>;

/// What a worker can do: an async function for each kind of job. It gets no jobs of other kinds.
#[derive(Clone, Default)]
pub struct Handlers {
    by_kind: BTreeMap<String, Handler>,
}

impl Handlers {
    /// No handlers yet.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Runs jobs of this kind with this function.
    pub fn on<F, W>(mut self, kind: impl Into<String>, handler: F) -> Handlers
    where
        F: Fn(JobContext) -> W + Send + Sync + 'static,
        W: Future<Output = JobOutcome> + Send + 'static,
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

/// Options of a runner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerOptions {
    /// How many jobs run at the same time. Default: 4.
    pub concurrency: usize,
    /// How many jobs it has at the same time, including running ones: 256 at most. Default: 16. More means fewer requests.
    /// With fewer, jobs that this worker cannot begin yet can still go to another.
    pub claims: usize,
    /// It takes only jobs of these queues. Default: none named, so jobs of every queue.
    pub queues: BTreeSet<QueueName>,
    /// What it has, for jobs that need something.
    pub labels: Labels,
    /// The commands it allows, for jobs that run one. Its handler must refuse all others.
    pub commands: BTreeSet<AllowedCommand>,
    /// Whether the output of attempts is written to the store, where it stands in clear text. Default: true.
    pub keep_output: bool,
}

impl Default for RunnerOptions {
    fn default() -> RunnerOptions {
        let (queues, labels, commands) = (BTreeSet::new(), Labels::default(), BTreeSet::new());
        RunnerOptions { concurrency: 4, claims: 16, queues, labels, commands, keep_output: true }
    }
}

impl RunnerOptions {
    /// This many jobs at the same time, none in advance.
    pub fn at_once(jobs: usize) -> RunnerOptions {
        RunnerOptions { concurrency: jobs, claims: jobs, ..RunnerOptions::default() }
    }
}

/// Why a runner ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunnerEnd {
    /// It was drained: all its results were written.
    Drained,
    /// The handle was dropped.
    Dropped,
    /// Its worker lost its id, or never had it. Running jobs were stopped.
    WorkerEnded(WorkerEnd),
}

/// Runs the jobs of one worker. Dropping it stops them: the leader gives them to others once it notices.
#[derive(Debug)]
pub struct JobRunner {
    /// Set to drain; closed when the handle is dropped.
    drain: watch::Sender<bool>,
    look: Arc<Notify>,
    ended: watch::Receiver<Option<RunnerEnd>>,
    worker: Arc<Worker>,
    in_hand: watch::Receiver<usize>,
    counts: watch::Receiver<ClaimerCounts>,
}

impl JobRunner {
    /// Starts looking at the worker's inbox as soon as the worker is registered.
    pub fn start(place: &Jobs, worker: Worker, handlers: Handlers) -> JobRunner {
        JobRunner::start_with(place, worker, handlers, RunnerOptions::default())
    }

    /// Like [`start`](JobRunner::start), with options.
    pub fn start_with(place: &Jobs, worker: Worker, handlers: Handlers, options: RunnerOptions) -> JobRunner {
        let settings = &place.settings;
        let fast_ms = millis(settings.job_poll_interval);
        let concurrency = options.concurrency.clamp(1, JOB_SLOTS_MAX as usize);
        // No job has a kind with such a name.
        let kinds: BTreeSet<KindName> =
            handlers.by_kind.keys().filter_map(|kind| KindName::new(kind).ok()).collect();
        let slots = match kinds.is_empty() {
            true => 0,
            false => options.claims.clamp(concurrency, JOB_SLOTS_MAX as usize) as u32,
        };
        let RunnerOptions { queues, labels, commands, keep_output, .. } = options;
        let serves = Serves { queues, kinds, slots, labels, commands };
        let config = ClaimerConfig {
            incarnation: Incarnation(rand::random()),
            concurrency,
            serves: Arc::new(serves),
            fast_ms,
            slow_ms: millis(settings.job_idle_interval).max(fast_ms),
            progress_ms: millis(SLOW_LOOK).max(fast_ms),
            linger_ms: fast_ms / 4,
        };
        let worker = Arc::new(worker);
        let (drain, draining) = watch::channel(false);
        let look = Arc::new(Notify::new());
        let (end, ended) = watch::channel(None);
        let (hand, in_hand) = watch::channel(0);
        let (told, counts) = watch::channel(ClaimerCounts::default());
        let (place, watched) = (place.clone(), Arc::clone(&worker));
        let looks = Arc::clone(&look);
        let writing = TaskTracker::new();
        let runner = Runner {
            place,
            config,
            handlers,
            keep_output,
            writing,
            worker: watched,
            draining,
            looks,
            hand,
            told,
        };
        tokio::spawn(async move {
            let reason = runner.run().await;
            end.send_replace(Some(reason));
        });
        JobRunner { drain, look, ended, worker, in_hand, counts }
    }

    /// The worker whose jobs it runs.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Claimed jobs whose result has not been written yet.
    pub fn in_hand(&self) -> usize {
        *self.in_hand.borrow()
    }

    /// Its counters: attempts claimed, entries the fence rejected, entries delivered twice, and the like. The receiver
    /// outlives the runner.
    pub fn counts(&self) -> watch::Receiver<ClaimerCounts> {
        self.counts.clone()
    }

    /// Looks at the inbox now instead of at the next poll.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Takes nothing new, gives back what was not begun, finishes what runs, writes the results, and deregisters. Bounded by
    /// the timeouts of the running jobs, as long as the store answers; set a limit of your own where that matters.
    pub async fn drain(self) -> RunnerEnd {
        self.drain.send_replace(true);
        let reason = self.ended().await;
        let JobRunner { worker, .. } = self;
        if let Ok(worker) = Arc::try_unwrap(worker) {
            worker.deregister().await;
        }
        reason
    }

    /// Waits until it has ended, and returns why.
    pub async fn ended(&self) -> RunnerEnd {
        let mut ended = self.ended.clone();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or(RunnerEnd::Dropped)
    }
}
