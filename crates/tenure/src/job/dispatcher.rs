//! The leader's handle, and the task that feeds the dispatcher. It decides nothing.

use super::assign::{Assign, LeastLoaded};
use super::carrier::Carrier;
use super::pool::Pool;
use super::spec::{JobSpec, SubmitError};
use super::{Jobs, RETIRE_MS, SHARDS};
use crate::guard::LeaderGuard;
use crate::workers::Workers;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    DispatchEffect, DispatchInput, DispatchRequest, DispatcherConfig, Epoch, Incarnation, JobRecord,
    JobUpdate, RequestId, SubmitAnswer, Time,
};
use tenure_core::{JobId, SeriesId, WorkerId};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};

pub use tenure_core::DispatchCounts as JobCounts;

/// Updates kept for a slow reader; one that falls further behind learns how many it missed.
const UPDATES_KEPT: usize = 8192;

/// Shortest time between two wake-ups of the machine, whatever it asks for.
const WAKE_LEAST: Duration = Duration::from_millis(5);

/// Most failed retries in one pass; the next pass begins where this one ended. With thousands of waiting jobs and a
/// thousand workers, every small change would otherwise cost a million comparisons.
const RETRIES_MAX: usize = 256;

/// Options of a dispatcher.
#[derive(Clone)]
pub struct DispatcherOptions {
    /// Most entries in an inbox, 1 to 256. Default: 64.
    pub inbox_entries: usize,
    /// Finished jobs kept in each of the 64 parts of the ledger, so that they can be viewed and recognised. Default: 32.
    /// With more, each write of a part carries more.
    pub keep_finished: usize,
    /// Chooses the worker for a job that names none. Default: [`LeastLoaded`].
    pub assign: Arc<dyn Assign>,
}

impl Default for DispatcherOptions {
    fn default() -> DispatcherOptions {
        DispatcherOptions { inbox_entries: 64, keep_finished: 32, assign: Arc::new(LeastLoaded) }
    }
}

impl std::fmt::Debug for DispatcherOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DispatcherOptions({} entries, {} kept)", self.inbox_entries, self.keep_finished)
    }
}

/// The outcome of an accepted submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// The job is in the ledger: from here on, no failover loses it.
    Created,
    /// There is already a job with that id.
    Exists,
    /// The job's watermark is at or below the watermark of its series: it was created before.
    BelowWatermark,
}

/// Why a dispatcher ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DispatcherEnd {
    /// The handle was dropped.
    Asked,
    /// Leadership ended.
    LeadershipEnded,
    /// Another leader has the ledger: this one's epoch is over, whatever its guard says.
    Superseded,
}

enum Command {
    Submit(Vec<JobRecord>, oneshot::Sender<Vec<SubmitAnswer>>),
    Forget(Vec<(SeriesId, u64)>),
    Cancel(JobId),
}

/// Hands out work while its guard holds. Dropping it stops that; jobs stay in the ledger for the next leader.
///
/// It takes over by itself the jobs that a former leader left behind.
#[derive(Debug)]
pub struct Dispatcher {
    commands: mpsc::Sender<Command>,
    updates: broadcast::Sender<JobUpdate>,
    machine: Arc<Mutex<tenure_core::Dispatcher>>,
    counts: watch::Receiver<JobCounts>,
    draining: watch::Receiver<Arc<BTreeSet<WorkerId>>>,
    ready: watch::Receiver<bool>,
    ended: watch::Receiver<Option<DispatcherEnd>>,
}

impl Dispatcher {
    /// Starts handing out work under this guard, which it holds until leadership ends or the dispatcher is dropped. Start
    /// only one per guard: a second one in the same epoch takes over the ledger.
    pub fn start(place: &Jobs, guard: LeaderGuard) -> Dispatcher {
        Dispatcher::start_with(place, guard, DispatcherOptions::default())
    }

    /// Like [`start`](Dispatcher::start), with options.
    pub fn start_with(place: &Jobs, guard: LeaderGuard, options: DispatcherOptions) -> Dispatcher {
        let settings = &place.settings;
        let epoch = Epoch(guard.epoch());
        let config = DispatcherConfig {
            incarnation: Incarnation(rand::random()),
            epoch,
            shards: SHARDS,
            entries_max: options.inbox_entries.clamp(1, 256),
            fast_ms: settings.job_poll_interval_ms,
            slow_ms: settings.job_idle_interval_ms.max(settings.job_poll_interval_ms),
            claim_timeout_ms: settings.job_claim_timeout_ms,
            // The worker gives up first, writes after a linger, and is seen with the next look.
            margin_ms: settings.job_idle_interval_ms * 2 + settings.request_timeout_ms * 4,
            retire_ms: RETIRE_MS,
            keep_finished: options.keep_finished,
        };
        let (commands, inbox) = mpsc::channel(64);
        let (updates, _) = broadcast::channel(UPDATES_KEPT);
        let machine = Arc::new(Mutex::new(tenure_core::Dispatcher::new(config)));
        let (count, counts) = watch::channel(JobCounts::default());
        let (drain, draining) = watch::channel(Arc::default());
        let (is_ready, ready) = watch::channel(false);
        let (end, ended) = watch::channel(None);
        let feeder = Feeder {
            machine: Arc::clone(&machine),
            carrier: Carrier::new(place),
            guard,
            epoch,
            workers: place.workers.clone(),
            assign: options.assign,
            pool: Pool::default(),
            tried: None,
            requests: JoinSet::new(),
            running: HashMap::new(),
            answers: HashMap::new(),
            tokens: 0,
            submitted: HashMap::new(),
            updates: updates.clone(),
            count,
            drain,
            is_ready,
        };
        tokio::spawn(async move {
            let counters = Arc::clone(&feeder.carrier.place.reporter.counters);
            let reason = feeder.run(inbox).await;
            counters.jobs().set_open(0, 0);
            end.send_replace(Some(reason));
        });
        Dispatcher { commands, updates, machine, counts, draining, ready, ended }
    }

    /// Submits a job. Completes once the job is in the ledger.
    pub async fn submit(&self, spec: JobSpec) -> Result<Submitted, SubmitError> {
        let mut answers = self.submit_all([spec]).await?;
        answers.pop().unwrap_or(Err(SubmitError::Ended))
    }

    /// Submits several jobs at once, which costs one write instead of many. Submits nothing if one of them is invalid. The
    /// answers, in the same order, say whether each was accepted.
    pub async fn submit_all(
        &self,
        specs: impl IntoIterator<Item = JobSpec>,
    ) -> Result<Vec<Result<Submitted, SubmitError>>, SubmitError> {
        let records = specs.into_iter().map(|spec| spec.check()).collect::<Result<Vec<_>, _>>()?;
        let (reply, answers) = oneshot::channel();
        let sent = self.commands.send(Command::Submit(records, reply)).await;
        sent.map_err(|_| SubmitError::Ended)?;
        let answers = answers.await.map_err(|_| SubmitError::Ended)?;
        Ok(answers
            .into_iter()
            .map(|answer| match answer {
                SubmitAnswer::Created => Ok(Submitted::Created),
                SubmitAnswer::Exists => Ok(Submitted::Exists),
                SubmitAnswer::BelowWatermark => Ok(Submitted::BelowWatermark),
                SubmitAnswer::Full => Err(SubmitError::Full),
                SubmitAnswer::Blocked => Err(SubmitError::Blocked),
                SubmitAnswer::Ended => Err(SubmitError::Ended),
            })
            .collect())
    }

    /// Cancels a job. One that nobody has claimed never runs; one that runs is asked to stop. The outcome arrives as an
    /// update: the job may have succeeded anyway.
    pub async fn cancel(&self, id: &JobId) {
        // A dispatcher that has ended cancels nothing; ask the next leader.
        let _ = self.commands.send(Command::Cancel(id.clone())).await;
    }

    /// Every change of a job's state from now on. Final states are in the ledger by then.
    ///
    /// Not promised: that each change is reported exactly once. What the ledger recorded right before a leader ended may
    /// never be reported; the next leader's [`jobs`](Dispatcher::jobs) has it.
    pub fn updates(&self) -> broadcast::Receiver<JobUpdate> {
        self.updates.subscribe()
    }

    /// The jobs as this leader knows them: open ones with the reason why they wait, and recently finished ones.
    ///
    /// Every call makes a copy: with thousands of jobs, follow [`updates`](Dispatcher::updates) instead.
    pub fn jobs(&self) -> Arc<[JobRecord]> {
        self.machine.lock().jobs().cloned().collect()
    }

    /// The highest watermark of each series, for the parts of the ledger that this leader owns.
    pub fn series(&self) -> BTreeMap<SeriesId, u64> {
        self.machine.lock().series().map(|(name, watermark)| (name.clone(), watermark)).collect()
    }

    /// These series are no longer used: each is forgotten if its watermark is at most the given one and none of its jobs is left
    /// in the ledger. After that, what was created in it before can be created again. Without this, a watermark is kept forever.
    pub async fn forget(&self, series: impl IntoIterator<Item = (SeriesId, u64)>) {
        // A dispatcher that has ended forgets nothing.
        let _ = self.commands.send(Command::Forget(series.into_iter().collect())).await;
    }

    /// Waits until it has taken over what a former leader left behind: from then on [`jobs`](Dispatcher::jobs) has every
    /// open job, except those in a part of the ledger that cannot be read. `false` if it ended before that.
    pub async fn ready(&self) -> bool {
        self.ready.clone().wait_for(|ready| *ready).await.is_ok()
    }

    /// The counters since this dispatcher started.
    pub fn counts(&self) -> JobCounts {
        *self.counts.borrow()
    }

    /// Workers that take no more jobs, as far as is known here: they said so in their inbox. They are not candidates for an
    /// [`Assign`].
    pub fn draining(&self) -> Arc<BTreeSet<WorkerId>> {
        Arc::clone(&self.draining.borrow())
    }

    /// Waits until it has ended, and returns why.
    pub async fn ended(&self) -> DispatcherEnd {
        let mut ended = self.ended.clone();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        reason.unwrap_or(DispatcherEnd::LeadershipEnded)
    }
}

/// A batch that waits for its answers, and how many are missing.
struct Batch {
    reply: oneshot::Sender<Vec<SubmitAnswer>>,
    answers: Vec<Option<SubmitAnswer>>,
    missing: usize,
}

struct Feeder {
    /// Locked only briefly, and never across an await.
    machine: Arc<Mutex<tenure_core::Dispatcher>>,
    carrier: Carrier,
    guard: LeaderGuard,
    epoch: Epoch,
    workers: watch::Receiver<Workers>,
    assign: Arc<dyn Assign>,
    pool: Pool,
    /// The last job for which nobody was found, if the pass did not reach all.
    tried: Option<JobId>,
    requests: JoinSet<DispatchInput>,
    /// What each request in flight is, in case its task dies and cannot report it.
    running: HashMap<Id, DispatchInput>,
    /// Waiting submissions: the batch that each token belongs to, and the batches.
    answers: HashMap<u64, (u64, usize)>,
    submitted: HashMap<u64, Batch>,
    tokens: u64,
    updates: broadcast::Sender<JobUpdate>,
    count: watch::Sender<JobCounts>,
    drain: watch::Sender<Arc<BTreeSet<WorkerId>>>,
    is_ready: watch::Sender<bool>,
}

impl Feeder {
    fn now(&self) -> Time {
        Time(self.carrier.place.reporter.clock.now_ms())
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) -> DispatcherEnd {
        let workers = self.registry();
        if let Some(end) = self.feed(workers.into_iter().collect()) {
            return end;
        }
        let (guard, mut known) = (self.guard.clone(), true);
        loop {
            let now = self.now();
            let wake = self
                .machine
                .lock()
                .wake_at(now)
                .map(|at| Duration::from_millis(at.since(now)).max(WAKE_LEAST));
            let inputs = tokio::select! {
                biased;
                () = guard.ended() => return DispatcherEnd::LeadershipEnded,
                command = inbox.recv() => match command {
                    Some(command) => {
                        // Other commands that have arrived share the same write.
                        let mut inputs = vec![self.input(command)];
                        while let Ok(command) = inbox.try_recv() {
                            inputs.push(self.input(command));
                        }
                        inputs
                    }
                    None => return DispatcherEnd::Asked,
                },
                Some(done) = self.requests.join_next_with_id(), if !self.requests.is_empty() => {
                    // Other answers that have arrived count for the same writes.
                    let mut inputs: Vec<DispatchInput> = self.on_done(done).into_iter().collect();
                    while let Some(done) = self.requests.try_join_next_with_id() {
                        inputs.extend(self.on_done(done));
                    }
                    inputs
                }
                changed = self.workers.changed(), if known => {
                    known = changed.is_ok();
                    self.registry().into_iter().collect()
                }
                () = crate::shell::sleep_or_never(wake) => vec![DispatchInput::Wake],
            };
            if let Some(end) = self.feed(inputs) {
                return end;
            }
        }
    }

    fn input(&mut self, command: Command) -> DispatchInput {
        match command {
            Command::Cancel(id) => DispatchInput::Cancel(id),
            Command::Forget(series) => DispatchInput::Forget(series),
            Command::Submit(records, reply) => {
                let batch = self.tokens;
                let count = records.len();
                let tokens = records.into_iter().enumerate().map(|(place, record)| {
                    self.tokens += 1;
                    self.answers.insert(self.tokens, (batch, place));
                    (self.tokens, record)
                });
                let records = tokens.collect();
                if count == 0 {
                    self.tokens += 1;
                    // If the caller gave up, nobody waits any more.
                    let _ = reply.send(Vec::new());
                } else {
                    let answers = vec![None; count];
                    self.submitted.insert(batch, Batch { reply, answers, missing: count });
                }
                DispatchInput::Submit(records)
            }
        }
    }

    /// The workers, once anything is known about them.
    fn registry(&mut self) -> Option<DispatchInput> {
        self.workers.borrow_and_update().told_in(self.epoch.0)
    }

    fn on_done(
        &mut self,
        done: Result<(Id, DispatchInput), tokio::task::JoinError>,
    ) -> Option<DispatchInput> {
        match done {
            Ok((job, input)) => {
                self.running.remove(&job);
                Some(input)
            }
            Err(error) => {
                tracing::error!(target: "tenure", %error, "a store request crashed");
                self.running.remove(&error.id())
            }
        }
    }

    fn feed(&mut self, inputs: Vec<DispatchInput>) -> Option<DispatcherEnd> {
        let now = self.now();
        for input in inputs {
            self.machine.lock().handle(now, input);
        }
        self.assign(now);
        let mut effects = Vec::new();
        self.machine.lock().advance(now, jiff::Timestamp::now().as_millisecond(), &mut effects);
        let mut end = None;
        for effect in effects {
            match effect {
                DispatchEffect::Request(id, request) => self.send(id, request),
                DispatchEffect::Answered(token, answer) => self.answer(token, answer),
                DispatchEffect::Update(update) => self.tell(update),
                DispatchEffect::Ended(_) => end = Some(DispatcherEnd::Superseded),
            }
        }
        self.show();
        end
    }

    fn send(&mut self, id: RequestId, request: DispatchRequest) {
        let (carrier, guard, epoch, silence) =
            (self.carrier.clone(), self.guard.clone(), self.epoch, request.unanswered(id));
        let task = self.requests.spawn(async move { carrier.carry(&guard, epoch, id, request).await });
        self.running.insert(task.id(), silence);
    }

    fn answer(&mut self, token: u64, answer: SubmitAnswer) {
        let Some((batch, place)) = self.answers.remove(&token) else { return };
        let Some(waits) = self.submitted.get_mut(&batch) else { return };
        waits.missing -= usize::from(waits.answers[place].replace(answer).is_none());
        if waits.missing == 0
            && let Some(Batch { reply, answers, .. }) = self.submitted.remove(&batch)
        {
            // If the caller gave up, nobody waits any more.
            let _ = reply.send(answers.into_iter().flatten().collect());
        }
    }

    fn tell(&mut self, update: JobUpdate) {
        tracing::debug!(
            target: "tenure",
            job = update.id.as_str(),
            state = update.state.as_str(),
            attempt = update.attempt,
            late = update.late.is_some(),
            "job"
        );
        // It is fine if nobody reads.
        let _ = self.updates.send(update);
    }

    fn show(&mut self) {
        let (counts, (queued, out), claims, ready, draining) = {
            let mut machine = self.machine.lock();
            let news = !machine.draining().eq(self.drain.borrow().iter());
            let draining: Option<BTreeSet<WorkerId>> = news.then(|| machine.draining().cloned().collect());
            (machine.counts(), machine.open(), machine.take_claim_times(), machine.is_ready(), draining)
        };
        let before = self.count.send_replace(counts);
        let counters = self.carrier.place.reporter.counters.jobs();
        counters.set_open(queued as u64, out as u64);
        counters.add(&before, &counts);
        for ms in claims {
            counters.claimed_after(ms);
        }
        if let Some(draining) = draining {
            self.drain.send_replace(Arc::new(draining));
        }
        if ready && !*self.is_ready.borrow() {
            self.is_ready.send_replace(true);
        }
    }

    /// Gives a worker to jobs that name none, or a reason why there is none. Jobs that already have a reason are tried
    /// again only when something has happened, not too often, and not all at once.
    fn assign(&mut self, now: Time) {
        let machine = Arc::clone(&self.machine);
        let (waiting, again) = {
            let mut machine = machine.lock();
            let again = machine.may_retry(now);
            let waiting: Vec<JobRecord> = match again {
                true => machine.unassigned(now).cloned().collect(),
                false => machine.unassigned_new(now).cloned().collect(),
            };
            if !waiting.is_empty() {
                self.pool.refresh(&self.workers.borrow().list, &mut machine);
            }
            (waiting, again)
        };
        let first = self.tried.take().filter(|_| again);
        let first = first.map_or(0, |tried| waiting.partition_point(|job| job.id <= tried));
        let mut vain = 0;
        for job in waiting[first..].iter().chain(&waiting[..first]) {
            if again && vain >= RETRIES_MAX {
                // The others get their turn in the next pass.
                self.tried = Some(job.id.clone());
                machine.lock().handle(now, DispatchInput::Submit(Vec::new()));
                return;
            }
            let id = job.id.clone();
            let chosen = self.assign.assign(job, self.pool.candidates());
            let mut machine = machine.lock();
            match chosen {
                Ok(worker) => {
                    machine.handle(now, DispatchInput::Assign { id, worker });
                    self.pool.refresh(&self.workers.borrow().list, &mut machine);
                }
                Err(reason) => {
                    vain += 1;
                    let reason = Arc::from(crate::wire::told(&reason));
                    machine.handle(now, DispatchInput::Explain { id, reason });
                }
            }
        }
    }
}
