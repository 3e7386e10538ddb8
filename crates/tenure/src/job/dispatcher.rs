//! The leader's handle, and what happens around its dispatcher. It decides nothing.

use super::carrier::LeaderStore;
use super::history::limits;
use super::spec::JobSpec;
use super::{Jobs, RETIRE_MS, SHARDS, SLOW_LOOK};
use crate::clock::millis;
use crate::error::{Error, ErrorKind};
use crate::guard::LeaderGuard;
use crate::metrics::Counters;
use crate::shell::{Commands, Happening, Host, Look, Shell};
use crate::workers::Workers;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tenure_core::machine::Now;
use tenure_core::{
    Candidates, DispatchAnswer, DispatchCommand, DispatchOutput, DispatchRequest, DispatcherConfig, Epoch,
    HistoryLimits, Incarnation, JobId, JobRecord, JobUpdate, Notice, SeriesId, SubmitAnswer,
};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use tenure_core::DispatchCounts as JobCounts;

/// Updates kept for a slow reader; one that falls further behind learns how many it missed.
const UPDATES_KEPT: usize = 8192;

/// How often a leader looks whether anything is asked of it.
const ORDERS_LOOK: Duration = Duration::from_secs(1);

type Leading = tenure_core::Dispatcher<Candidates>;

/// Options of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DispatcherOptions {
    /// Most entries in an inbox, 1 to 256. Default: 64.
    pub inbox_entries: usize,
    /// Finished jobs kept in each of the 64 parts of the ledger, so that they can be viewed and recognised. Default: 16.
    /// With more, each write of a part carries more.
    pub keep_finished: usize,
    /// Finished jobs that the newest part of the history holds before it hands them over. Default: 512. With more, each write of
    /// it carries more.
    pub history_rows: usize,
}

impl Default for DispatcherOptions {
    fn default() -> DispatcherOptions {
        DispatcherOptions { inbox_entries: 64, keep_finished: 16, history_rows: 512 }
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
    /// It panicked. Start another one: the ledger has the jobs.
    Crashed,
}

enum Command {
    Submit(Vec<JobRecord>, oneshot::Sender<Vec<SubmitAnswer>>),
    Forget(Vec<(SeriesId, u64)>),
    Cancel(JobId),
    Notify(Notice, oneshot::Sender<()>),
    Look(Look<Leading>),
}

/// Hands out work while its guard holds: each job to the least busy worker that serves it. Dropping its last clone stops that; jobs
/// stay in the ledger for the next leader.
///
/// It takes over by itself the jobs that a former leader left behind.
#[derive(Clone, Debug)]
pub struct Dispatcher(Arc<Handle>);

/// The dispatchers that run, by the place of their inboxes and their epoch: all parts of a program share them.
pub(crate) type Dispatching = Arc<Mutex<BTreeMap<(String, u64), Weak<Handle>>>>;

#[derive(Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    updates: broadcast::Sender<JobUpdate>,
    counts: watch::Receiver<JobCounts>,
    serving: watch::Receiver<usize>,
    ready: watch::Receiver<bool>,
    changes: watch::Receiver<u64>,
    ended: watch::Receiver<Option<DispatcherEnd>>,
}

impl Handle {
    fn start(place: &Jobs, guard: LeaderGuard, options: DispatcherOptions) -> Handle {
        let settings = &place.settings;
        let epoch = Epoch(guard.epoch());
        let config = DispatcherConfig {
            incarnation: Incarnation(rand::random()),
            epoch,
            shards: SHARDS,
            entries_max: options.inbox_entries.clamp(1, 256),
            fast_ms: millis(settings.job_poll_interval),
            slow_ms: millis(SLOW_LOOK.max(settings.job_poll_interval)),
            orders_ms: millis(ORDERS_LOOK.max(settings.job_poll_interval)),
            claim_timeout_ms: millis(settings.job_claim_timeout),
            // The worker gives up first, writes after a linger, and is seen with the next look.
            margin_ms: millis(SLOW_LOOK * 2 + settings.request_timeout * 4),
            retire_ms: RETIRE_MS,
            keep_finished: options.keep_finished,
            history: HistoryLimits {
                head_rows: options.history_rows.clamp(1, 512),
                ..limits(settings.job_retention)
            },
            notify_all: place.sender.lock().as_ref().is_some_and(|sender| sender.wants_all()),
        };
        let (commands, inbox) = mpsc::channel(64);
        let (updates, _) = broadcast::channel(UPDATES_KEPT);
        let machine = Leading::new(config, Candidates::default());
        let (count, counts) = watch::channel(JobCounts::default());
        let (serve, serving) = watch::channel(0);
        let (is_ready, ready) = watch::channel(false);
        let (told, changes) = watch::channel(0);
        let (end, ended) = watch::channel(None);
        let counters = Arc::clone(&place.reporter.counters);
        let mut host = LeaderHost {
            commands: Commands::new(inbox),
            store: LeaderStore::new(place),
            guard,
            epoch,
            workers: place.workers.clone(),
            workers_known: true,
            answers: HashMap::new(),
            tokens: 0,
            submitted: HashMap::new(),
            notices: HashMap::new(),
            updates: updates.clone(),
            counters: Arc::clone(&counters),
            count,
            serve,
            is_ready,
            changes: told,
        };
        host.workers.mark_changed();
        let shell = Shell::new(machine, host, Arc::clone(&place.reporter.clock));
        tokio::spawn(async move {
            let reason = shell.run().await;
            counters.jobs().set_open(0, 0);
            end.send_replace(Some(reason));
        });
        Handle { commands, updates, counts, serving, ready, changes, ended }
    }
}

impl Dispatcher {
    /// Starts handing out work under this guard, which it holds until leadership ends or the dispatcher is dropped. If another
    /// part of the program has started one in this epoch, that one is shared.
    pub fn start(place: &Jobs, guard: LeaderGuard) -> Dispatcher {
        Dispatcher::start_with(place, guard, DispatcherOptions::default())
    }

    /// Like [`start`](Dispatcher::start), with options, unless one is running already.
    pub fn start_with(place: &Jobs, guard: LeaderGuard, options: DispatcherOptions) -> Dispatcher {
        let here = (place.keys().inboxes(), guard.epoch());
        let mut running = place.dispatching.lock();
        running.retain(|_, handle| handle.upgrade().is_some_and(|handle| handle.ended.borrow().is_none()));
        if let Some(shared) = running.get(&here).and_then(Weak::upgrade) {
            return Dispatcher(shared);
        }
        let handle = Arc::new(Handle::start(place, guard, options));
        running.insert(here, Arc::downgrade(&handle));
        Dispatcher(handle)
    }

    /// Looks at the machine between two of its steps; `None` if it has ended.
    async fn look<R: Send + 'static>(&self, look: impl FnOnce(&Leading) -> R + Send + 'static) -> Option<R> {
        let (reply, seen) = oneshot::channel();
        let look: Look<Leading> = Box::new(move |machine| {
            // If the caller gave up, nobody waits any more.
            let _ = reply.send(look(machine));
        });
        self.0.commands.send(Command::Look(look)).await.ok()?;
        seen.await.ok()
    }

    /// Submits a job. Completes once the job is in the ledger.
    pub async fn submit(&self, spec: JobSpec) -> Result<Submitted, Error> {
        let mut answers = self.submit_all([spec]).await?;
        answers.pop().unwrap_or_else(|| Err(ended()))
    }

    /// Submits several jobs at once, which costs one write instead of many. Submits nothing if one of them is invalid. The
    /// answers, in the same order, say whether each was accepted.
    pub async fn submit_all(
        &self,
        specs: impl IntoIterator<Item = JobSpec>,
    ) -> Result<Vec<Result<Submitted, Error>>, Error> {
        let records = specs.into_iter().map(|spec| spec.check()).collect::<Result<Vec<_>, _>>()?;
        let (reply, answers) = oneshot::channel();
        let sent = self.0.commands.send(Command::Submit(records, reply)).await;
        sent.map_err(|_| ended())?;
        let answers = answers.await.map_err(|_| ended())?;
        Ok(answers
            .into_iter()
            .map(|answer| match answer {
                SubmitAnswer::Created => Ok(Submitted::Created),
                SubmitAnswer::Exists => Ok(Submitted::Exists),
                SubmitAnswer::BelowWatermark => Ok(Submitted::BelowWatermark),
                SubmitAnswer::Full => Err(Error::new(
                    ErrorKind::Full,
                    "the ledger is full: it has no room for more open jobs of this series",
                )),
                SubmitAnswer::Blocked => Err(Error::new(
                    ErrorKind::Unreadable,
                    "the ledger of this series cannot be read and is left alone: see the log",
                )),
                SubmitAnswer::Ended => Err(ended()),
            })
            .collect())
    }

    /// Cancels a job. One that nobody has claimed never runs; one that runs is asked to stop. The outcome arrives as an
    /// update: the job may have succeeded anyway.
    pub async fn cancel(&self, id: &JobId) {
        // A dispatcher that has ended cancels nothing; ask the next leader.
        let _ = self.0.commands.send(Command::Cancel(id.clone())).await;
    }

    /// Has somebody told this, by whoever [delivers notices](super::NoticeSender). Completes once it stands on the store: from then on it
    /// is delivered, or tried for an hour, whoever leads. A notice with the id of one that was told before is not told again.
    pub async fn notify(&self, notice: Notice) -> Result<(), Error> {
        let (reply, stands) = oneshot::channel();
        self.0.commands.send(Command::Notify(notice, reply)).await.map_err(|_| ended())?;
        stands.await.map_err(|_| ended())
    }

    /// Every change of a job's state from now on. Final states are in the ledger by then.
    ///
    /// Not promised: that each change is reported exactly once. What the ledger recorded right before a leader ended may
    /// never be reported; the next leader's [`jobs`](Dispatcher::jobs) has it.
    pub fn updates(&self) -> broadcast::Receiver<JobUpdate> {
        self.0.updates.subscribe()
    }

    /// The jobs as this leader knows them: open ones with the reason why they wait, and recently finished ones.
    ///
    /// Every call makes a copy: with thousands of jobs, follow [`updates`](Dispatcher::updates) instead. Empty once the
    /// dispatcher has ended: what was true then may not be true any more.
    pub async fn jobs(&self) -> Arc<[JobRecord]> {
        self.look(|machine| machine.jobs().cloned().collect()).await.unwrap_or_default()
    }

    /// The highest watermark of each series, for the parts of the ledger that this leader owns. Empty once the dispatcher has
    /// ended.
    pub async fn series(&self) -> BTreeMap<SeriesId, u64> {
        let look = |machine: &Leading| {
            machine.series().map(|(name, watermark)| (name.clone(), watermark)).collect::<BTreeMap<_, _>>()
        };
        self.look(look).await.unwrap_or_default()
    }

    /// These series are no longer used: each is forgotten if its watermark is at most the given one and none of its jobs is left
    /// in the ledger. After that, what was created in it before can be created again. Without this, a watermark is kept forever.
    pub async fn forget(&self, series: impl IntoIterator<Item = (SeriesId, u64)>) {
        // A dispatcher that has ended forgets nothing.
        let _ = self.0.commands.send(Command::Forget(series.into_iter().collect())).await;
    }

    /// Waits until it has taken over what a former leader left behind: from then on [`jobs`](Dispatcher::jobs) has every
    /// open job, except those in a part of the ledger that cannot be read. `false` if it ended before that.
    pub async fn ready(&self) -> bool {
        self.0.ready.clone().wait_for(|ready| *ready).await.is_ok()
    }

    /// Rises when somebody says that something has changed elsewhere that the leader should look at, such as a schedule.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.clone()
    }

    /// The counters since this dispatcher started.
    pub fn counts(&self) -> JobCounts {
        *self.0.counts.borrow()
    }

    /// How many active workers take jobs, as far as is known here. Those that drain do not.
    pub fn workers(&self) -> usize {
        *self.0.serving.borrow()
    }

    /// Waits until it has ended, and returns why.
    pub async fn ended(&self) -> DispatcherEnd {
        let mut ended = self.0.ended.clone();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        reason.unwrap_or(DispatcherEnd::Crashed)
    }
}

/// Leadership ended with the dispatcher; the job may be submitted again to the next leader.
fn ended() -> Error {
    Error::new(ErrorKind::Fenced, "the dispatcher has ended; the job may or may not exist")
        .perhaps_written(true)
}

/// A batch that waits for its answers, and how many are missing.
struct Batch {
    reply: oneshot::Sender<Vec<SubmitAnswer>>,
    answers: Vec<Option<SubmitAnswer>>,
    missing: usize,
}

/// What happens around the dispatcher while it leads.
struct LeaderHost {
    commands: Commands<Command>,
    store: LeaderStore,
    guard: LeaderGuard,
    epoch: Epoch,
    workers: watch::Receiver<Workers>,
    /// Whether anything more will be heard of the workers.
    workers_known: bool,
    /// Waiting submissions: the batch that each token belongs to, and the batches.
    answers: HashMap<u64, (u64, usize)>,
    submitted: HashMap<u64, Batch>,
    /// Who waits until a notice stands.
    notices: HashMap<u64, oneshot::Sender<()>>,
    tokens: u64,
    updates: broadcast::Sender<JobUpdate>,
    counters: Arc<Counters>,
    count: watch::Sender<JobCounts>,
    serve: watch::Sender<usize>,
    is_ready: watch::Sender<bool>,
    changes: watch::Sender<u64>,
}

impl Host<Leading> for LeaderHost {
    type End = DispatcherEnd;

    fn carry(&self, request: DispatchRequest) -> impl Future<Output = DispatchAnswer> + Send + 'static {
        self.store.clone().carry(self.guard.clone(), request)
    }

    fn output(&mut self, _: Now, _: &Leading, output: DispatchOutput) -> ControlFlow<DispatcherEnd> {
        match output {
            DispatchOutput::Answered(token, answer) => self.answer(token, answer),
            DispatchOutput::Update(update) => self.tell(update),
            DispatchOutput::Claimed { after_ms } => self.counters.jobs().claimed_after(after_ms),
            DispatchOutput::Changed => self.changes.send_modify(|changes| *changes += 1),
            DispatchOutput::Noted(token) => {
                // If the caller gave up, nobody waits any more.
                let _ = self.notices.remove(&token).map(|waits| waits.send(()));
            }
            DispatchOutput::Ended(_) => return ControlFlow::Break(DispatcherEnd::Superseded),
        }
        ControlFlow::Continue(())
    }

    async fn next(&mut self) -> Happening<Leading, DispatcherEnd> {
        tokio::select! {
            biased;
            () = self.guard.ended() => Happening::End(DispatcherEnd::LeadershipEnded),
            command = self.commands.next() => match command {
                Some(command) => self.happening(command),
                None => Happening::End(DispatcherEnd::Asked),
            },
            changed = self.workers.changed(), if self.workers_known => {
                self.workers_known = changed.is_ok();
                self.workers_changed()
            }
        }
    }

    fn settled(&mut self, _: Now, machine: &Leading) -> ControlFlow<DispatcherEnd> {
        let counts = machine.counts();
        let before = self.count.send_replace(counts);
        let (queued, out) = machine.open();
        let counters = self.counters.jobs();
        counters.set_open(queued as u64, out as u64);
        counters.add(&before, &counts);
        counters.set_notices(machine.notices() as u64);
        if counts.undelivered > before.undelivered {
            let dropped = counts.undelivered - before.undelivered;
            tracing::warn!(target: "tenure", dropped, "notices of jobs were dropped: nobody took them for an hour, or too many waited");
        }
        self.serve.send_replace(machine.assign().takers());
        if machine.is_ready() && !*self.is_ready.borrow() {
            self.is_ready.send_replace(true);
        }
        ControlFlow::Continue(())
    }
}

impl LeaderHost {
    fn happening(&mut self, command: Command) -> Happening<Leading, DispatcherEnd> {
        Happening::Command(match command {
            Command::Look(look) => return Happening::Look(look),
            Command::Cancel(id) => DispatchCommand::Cancel(id),
            Command::Forget(series) => DispatchCommand::Forget(series),
            Command::Notify(notice, reply) => {
                self.tokens += 1;
                self.notices.insert(self.tokens, reply);
                DispatchCommand::Notify(self.tokens, notice)
            }
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
                    // If the caller gave up, nobody waits any more.
                    let _ = reply.send(Vec::new());
                } else {
                    self.submitted.insert(batch, Batch { reply, answers: vec![None; count], missing: count });
                }
                // Even an empty one makes the machine look again for workers of waiting jobs.
                DispatchCommand::Submit(records)
            }
        })
    }

    /// Tells the workers, once anything is known about them.
    fn workers_changed(&mut self) -> Happening<Leading, DispatcherEnd> {
        let told = self.workers.borrow_and_update().told_in(self.epoch.0);
        told.map_or(Happening::Nothing, Happening::Command)
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
}
