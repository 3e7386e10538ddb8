//! One term of the runner: takes over, then reads, submits and takes results until leadership ends.
//!
//! It decides nothing itself: the scheduler decides which jobs are submitted, the dispatcher who runs them, and the health what a
//! result means.

mod idle;
mod results;
mod submit;
mod trouble;

use super::job::is_scheduled;
use super::runner::{
    Inner, JobView, Reply, RunNow, RunnerCounts, RunnerView, ScheduleError, ScheduleEvent, ScheduleView,
};
use super::schedule::{RunRequest, Schedule};
use super::stored::{Listed, Look, SavedHealth, Schedules};
use crate::checks::health::{Health, Transition};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tenure::Error;
use tenure::id::{JobId, ScheduleId, SeriesId};
use tenure::job::{Dispatcher, DispatcherEnd, HistoryRuns, JobRecord, JobUpdate};
use tenure::machine::Out;
use tenure::process::ProcessContext;
use tenure::schedules::{Scheduler, SchedulerCommand};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The longest pause of the loop, and the pause between two tries to take over.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The shortest time between two updates of the view; each schedule and open job in it adds a little.
const VIEW_EVERY: Duration = Duration::from_millis(200);
const VIEW_EVERY_EACH: Duration = Duration::from_micros(100);

/// The shortest time between two saves of the checks' state.
const SAVE_EVERY: Duration = Duration::from_millis(200);

/// How often to look for watermarks of removed schedules, and the age at which they are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);
const MARKS_KEPT_MS: u64 = 7 * super::timing::DAY_MS;

/// The pause after a read that failed.
const READ_RETRY: Duration = Duration::from_secs(1);

/// Why a term ended before leadership did.
#[derive(Debug, thiserror::Error)]
pub(super) enum TermError {
    #[error("another leader holds the ledger of jobs")]
    Superseded,
    #[error("the dispatcher ended unexpectedly")]
    Dispatcher,
}

/// What a request to the store, made beside the loop, came to.
enum StoreAnswer {
    Schedules(Result<Look, String>),
    /// Requested jobs, by name, have been noted as created.
    Served(ScheduleId, Vec<String>, Result<(), ScheduleError>),
    /// How the last runs of schedules ended.
    Runs(Result<BTreeMap<SeriesId, HistoryRuns>, Error>),
}

struct Term<'a> {
    inner: &'a Inner,
    context: &'a ProcessContext,
    dispatcher: &'a Dispatcher,
    scheduler: Scheduler<Arc<Schedule>>,
    /// What the scheduler wants and has not got yet.
    effects: VecDeque<Out<Scheduler<Arc<Schedule>>>>,
    /// Callers who wait for a job they asked for.
    replies: BTreeMap<JobId, Vec<Reply>>,
    /// What the ledger refused in the last round, and why.
    refusals: BTreeMap<JobId, Error>,
    /// Requests in schedules, by name, that are served and not noted on the store yet.
    served: BTreeMap<ScheduleId, Vec<String>>,
    health: Health,
    saved: SavedHealth,
    /// Changes not announced yet, because they are not saved.
    unannounced: Vec<Transition>,
    listed: Listed,
    refused: BTreeMap<ScheduleId, String>,
    reads: JoinSet<StoreAnswer>,
    began: Instant,
    next_read: Instant,
    /// Something has changed since the view was last shown.
    view_is_old: bool,
    next_view: Instant,
    next_save: Instant,
    next_forget: Instant,
    counts: RunnerCounts,
    trouble: Option<String>,
    /// Open jobs of which it is known that they were begun.
    begun: BTreeSet<JobId>,
    /// The schedules whose last run did not succeed, with the reason.
    failing: BTreeMap<ScheduleId, String>,
    /// When it was last told that a schedule missed due times, and how many it has missed since.
    missed: BTreeMap<ScheduleId, (Option<Instant>, u64)>,
}

pub(super) async fn run(inner: &Inner, context: ProcessContext) -> Result<(), TermError> {
    let _empty_view = idle::EmptyViewOnDrop(inner);
    tokio::select! {
        biased;
        () = context.cancelled() => return Ok(()),
        () = idle::until_needed(inner, &context) => {}
    }
    let dispatcher = Dispatcher::start(&inner.place, context.guard().clone());
    tokio::select! {
        biased;
        () = context.cancelled() => Ok(()),
        end = dispatcher.ended() => match end {
            DispatcherEnd::LeadershipEnded => Ok(()),
            DispatcherEnd::Superseded => Err(TermError::Superseded),
            DispatcherEnd::Asked | DispatcherEnd::Crashed => Err(TermError::Dispatcher),
        },
        done = term(inner, &context, &dispatcher) => done,
    }
}

async fn term(inner: &Inner, context: &ProcessContext, dispatcher: &Dispatcher) -> Result<(), TermError> {
    let mut updates = dispatcher.updates();
    let mut asked = inner.asked.lock().await;
    // Requests to a former term have been answered by now: that node does not lead.
    while asked.try_recv().is_ok() {}
    if !dispatcher.ready().await {
        return Err(TermError::Dispatcher);
    }
    let (saved, health) = take_over(&inner.schedules, context).await?;
    let mut term = Term {
        inner,
        context,
        dispatcher,
        scheduler: Scheduler::default(),
        effects: VecDeque::new(),
        replies: BTreeMap::new(),
        refusals: BTreeMap::new(),
        served: BTreeMap::new(),
        health,
        trouble: saved.unsaved.clone(),
        saved,
        unannounced: Vec::new(),
        listed: Listed::new(),
        refused: BTreeMap::new(),
        reads: JoinSet::new(),
        began: Instant::now(),
        next_read: Instant::now(),
        view_is_old: true,
        next_view: Instant::now(),
        next_save: Instant::now(),
        next_forget: Instant::now(),
        counts: RunnerCounts::default(),
        begun: BTreeSet::new(),
        failing: BTreeMap::new(),
        missed: BTreeMap::new(),
    };
    let history = inner.place.history();
    term.reads.spawn(async move { StoreAnswer::Runs(history.runs().await) });
    context.ready();
    term.work(&mut updates, &mut asked).await
}

async fn take_over(
    schedules: &Schedules,
    context: &ProcessContext,
) -> Result<(SavedHealth, Health), TermError> {
    loop {
        match SavedHealth::open(schedules, context.guard()).await {
            Ok(opened) => return Ok(opened),
            Err(error) if error.is_fenced() => return Err(TermError::Superseded),
            Err(error) => {
                tracing::warn!(target: "tenure", "cannot take over the schedules yet: {error}");
                tokio::time::sleep(PAUSE_MAX).await;
            }
        }
    }
}

impl Term<'_> {
    async fn work(
        &mut self,
        updates: &mut broadcast::Receiver<JobUpdate>,
        asked: &mut mpsc::Receiver<RunNow>,
    ) -> Result<(), TermError> {
        let mut changes = self.dispatcher.changes();
        loop {
            self.start_reads();
            self.schedule().await?;
            // Take in what the ledger has before showing it.
            if let Ok(update) = updates.try_recv() {
                self.on_update(Ok(update), updates).await;
            }
            self.save().await?;
            self.publish_view().await;
            let pause = self.pause();
            let was_old = std::mem::replace(&mut self.view_is_old, true);
            tokio::select! {
                biased;
                update = updates.recv() => self.on_update(update, updates).await,
                Some(done) = self.reads.join_next(), if !self.reads.is_empty() => {
                    let mut next = Some(done);
                    while let Some(done) = next {
                        match done {
                            Ok(answer) => self.on_store_answer(answer).await,
                            Err(error) => tracing::error!(target: "tenure", %error, "reading the store crashed"),
                        }
                        next = self.reads.try_join_next();
                    }
                }
                Some(run) = asked.recv() => {
                    self.on_run_now(run).await;
                    self.next_view = Instant::now();
                }
                Ok(()) = changes.changed() => self.next_read = Instant::now(),
                () = tokio::time::sleep(pause) => self.view_is_old = was_old,
            }
        }
    }

    fn now_ms(&self) -> u64 {
        (self.inner.options.wall_clock)()
    }

    fn pause(&self) -> Duration {
        let now = Instant::now();
        let save = (!self.unannounced.is_empty()).then(|| self.next_save.saturating_duration_since(now));
        let pause = self.until_due().into_iter().chain(save).fold(PAUSE_MAX, Duration::min);
        // At least a moment, whatever the clocks say, and no longer than until the next update of the view.
        let view_due = self.view_is_old.then(|| self.next_view.saturating_duration_since(now));
        view_due.map_or(pause, |due| pause.min(due)).max(Duration::from_millis(5))
    }

    /// Reads the schedules when it is time.
    fn start_reads(&mut self) {
        let now = Instant::now();
        if !self.reads.is_empty() || now < self.next_read {
            return;
        }
        self.next_read = now + self.inner.options.look_interval;
        let (schedules, listed) = (self.inner.schedules.clone(), self.listed.clone());
        self.reads.spawn(async move { StoreAnswer::Schedules(schedules.look(&listed).await) });
    }

    async fn on_store_answer(&mut self, answer: StoreAnswer) {
        match answer {
            StoreAnswer::Schedules(Err(why)) => {
                // Retry soon: a new leader waits for nothing else.
                self.next_read = self.next_read.min(Instant::now() + READ_RETRY);
                self.warn_once(why);
            }
            StoreAnswer::Schedules(Ok(look)) => {
                self.trouble = self.saved.unsaved.clone();
                self.on_schedules(look).await;
            }
            StoreAnswer::Served(id, names, done) => self.on_served(id, names, done),
            StoreAnswer::Runs(Ok(runs)) => self.learn_runs(runs),
            // Only health shows it, and the next runs tell.
            StoreAnswer::Runs(Err(why)) => {
                tracing::debug!(target: "tenure", "the last runs cannot be read: {why}")
            }
        }
    }

    fn warn_once(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            tracing::warn!(target: "tenure", "trouble with schedules: {why}");
            self.trouble = Some(why);
        }
    }

    async fn on_schedules(&mut self, look: Look) {
        for id in self.scheduler.planner().ids() {
            if !look.listed.contains_key(&id) {
                self.tell(SchedulerCommand::Remove(id.clone()));
                self.health.forget(&id);
            }
        }
        self.refused.retain(|id, _| look.listed.contains_key(id));
        self.listed = look.listed;
        let news = !look.changed.is_empty();
        for (id, read) in look.changed {
            match read {
                Ok(schedule) => {
                    self.refused.remove(&id);
                    let job = |run: &RunRequest| RunRequest::job_id(&id, &run.name).ok();
                    let requested = schedule.run_now.iter().filter_map(job).collect();
                    self.tell(SchedulerCommand::Put { schedule: Arc::new(schedule), requested });
                }
                Err(problems) => {
                    self.tell(SchedulerCommand::Remove(id.clone()));
                    self.refused.insert(id.clone(), problems.to_string());
                    self.announce(ScheduleEvent::ScheduleRefused { schedule: id, problems });
                }
            }
        }
        let planned = self.scheduler.planner().schedules();
        self.failing.retain(|id, _| self.listed.contains_key(id));
        self.missed.retain(|id, _| self.listed.contains_key(id));
        let hooks = planned.iter().filter_map(|(id, schedule)| Some((id.clone(), schedule.webhook.clone()?)));
        self.inner.webhooks.know(Some(hooks.collect()));
        if news {
            self.take_all_results().await;
        }
        self.forget_watermarks().await;
    }

    /// Forgets watermarks of schedules removed long ago. They have no use: a schedule with that name starts afresh.
    async fn forget_watermarks(&mut self) {
        let now = Instant::now();
        if now < self.next_forget {
            return;
        }
        self.next_forget = now + FORGET_EVERY;
        let old_ms = self.now_ms().saturating_sub(MARKS_KEPT_MS);
        let mut old = self.dispatcher.series().await;
        old.retain(|id, watermark_ms| *watermark_ms < old_ms && !self.listed.contains_key(&id.schedule()));
        if !old.is_empty() {
            self.dispatcher.forget(old).await;
        }
    }

    fn announce(&self, event: ScheduleEvent) {
        match &self.inner.node {
            // The node's own events are logged as well.
            Some(node) => node.emit(self.context.epoch(), event.plugin_event()),
            None => tracing::info!(target: "tenure", "{}: {}", event.name(), event.plugin_event().sentence),
        }
        // An error means that nobody listens.
        let _ = self.inner.events.send(event);
    }

    async fn publish_view(&mut self) {
        let now = Instant::now();
        if now < self.next_view {
            return;
        }
        let now_ms = self.now_ms();
        let all = self.dispatcher.jobs().await;
        let planner = self.scheduler.planner();
        // A finished job counts as open until the ledger has that and it has been taken in.
        let open = |job: &&JobRecord| {
            is_scheduled(&job.series, &job.id)
                && (!job.state.is_final() || planner.is_open(&job.series.schedule(), &job.id))
        };
        let open = all.iter().filter(open);
        let jobs: Vec<JobView> = open
            .map(|job| JobView {
                id: job.id.clone(),
                schedule: job.series.schedule(),
                state: job.state,
                attempt: job.begun(),
                worker: job.worker.clone(),
                reason: Arc::clone(&job.reason),
            })
            .collect();
        self.counts.plan = planner.counts();
        self.counts.jobs = self.dispatcher.counts();
        self.counts.open = jobs.len() as u64;
        let schedules = planner.schedules().len();
        self.inner.figures.set(&self.counts, schedules, self.health.failing(), self.failing.len());
        let size = u32::try_from(jobs.len() + schedules).unwrap_or(u32::MAX);
        self.view_is_old = false;
        self.next_view = now + VIEW_EVERY + VIEW_EVERY_EACH.saturating_mul(size);
        let schedules = planner.schedules().keys().filter_map(|id| {
            let series = planner.view(id, now_ms)?;
            Some((id.clone(), ScheduleView { series, checks: self.health.of(id) }))
        });
        let view = RunnerView {
            epoch: self.context.epoch(),
            schedules: schedules.collect(),
            refused: self.refused.clone(),
            failing: self.failing.clone(),
            waiting: self.waiting(&all),
            jobs,
            workers: self.dispatcher.workers(),
            counts: self.counts,
            trouble: self.trouble.clone(),
        };
        self.inner.view.send_if_modified(|before| {
            let news = *before != view;
            *before = view;
            news
        });
    }
}
