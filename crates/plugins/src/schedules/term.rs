//! One term of the runner: takes over, then reads, plans, submits and takes results until leadership ends.
//!
//! It decides nothing itself: the planner decides what is due, the assigner who runs it, and the health what a result means.

mod facts;
mod idle;
mod results;
mod run_now;

use super::assign::{ActiveAgents, AgentAssign, AgentFacts, CHECKS_KIND};
use super::planner::{Answer, Due, Planner};
use super::runner::{
    Inner, JobView, RunNow, RunnerCounts, RunnerView, ScheduleError, ScheduleEvent, ScheduleView,
};
use super::schedule::Schedule;
use super::shelf::{Found, Shelf, Stamp, StateFile};
use super::stored::Change;
use crate::checks::health::{Health, Transition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tenure::id::{JobId, ScheduleId, WorkerId};
use tenure::process::ProcessContext;

use tenure::job::{
    Dispatcher, DispatcherEnd, DispatcherOptions, JobRecord, JobSpec, JobUpdate, SubmitError, Submitted,
};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The longest pause: a jump of the wall clock is noticed by then.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The shortest time between two updates of the view; each schedule and open job in it adds a little.
const VIEW_EVERY: Duration = Duration::from_millis(200);
const VIEW_EVERY_EACH: Duration = Duration::from_micros(100);

/// The shortest time between two saves of the checks' state.
const SAVE_EVERY: Duration = Duration::from_millis(200);

/// How often to look for watermarks of removed schedules, and the age at which they are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);
const MARKS_KEPT_MS: u64 = 7 * super::timing::DAY_MS;

/// How often to plan again at once because jobs turned out to exist.
const ROUNDS_MAX: usize = 8;

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
    Schedules(Result<Found, String>),
    Agent(WorkerId, Result<Option<AgentFacts>, String>),
    /// Requested jobs have been noted as created.
    Served(ScheduleId, Vec<String>, Result<Change, ScheduleError>),
}

struct Term<'a> {
    inner: &'a Inner,
    context: &'a ProcessContext,
    dispatcher: &'a Dispatcher,
    planner: Planner,
    health: Health,
    file: StateFile,
    /// Changes not announced yet, because they are not saved.
    unannounced: Vec<Transition>,
    active_agents: ActiveAgents,
    /// The active agents changed: waiting jobs must be assigned again.
    reassign: bool,
    /// What is known about active workers, and since when; includes workers that are not agents.
    agents: BTreeMap<WorkerId, (Option<AgentFacts>, Instant)>,
    known: BTreeMap<ScheduleId, Stamp>,
    refused: BTreeMap<ScheduleId, String>,
    /// Jobs requested on the store that are now in the ledger.
    requested: BTreeMap<(ScheduleId, String), run_now::Stage>,
    /// Schedules with requested jobs.
    with_requests: BTreeSet<ScheduleId>,
    reads: JoinSet<StoreAnswer>,
    next_read: Instant,
    /// Something has changed since the view was last shown.
    view_is_old: bool,
    next_view: Instant,
    next_save: Instant,
    next_forget: Instant,
    counts: RunnerCounts,
    /// The part of `counts` already added to the node's metrics.
    in_metrics: RunnerCounts,
    trouble: Option<String>,
}

pub(super) async fn run(inner: &Inner, context: ProcessContext) -> Result<(), TermError> {
    let _empty_view = idle::EmptyViewOnDrop(inner);
    tokio::select! {
        biased;
        () = context.cancelled() => return Ok(()),
        () = idle::until_needed(inner, &context) => {}
    }
    let active_agents = ActiveAgents::default();
    let assign = Arc::new(AgentAssign::new(active_agents.clone()));
    let options = DispatcherOptions { assign, ..DispatcherOptions::default() };
    let dispatcher = Dispatcher::start_with(&inner.place, context.guard().clone(), options);
    tokio::select! {
        biased;
        () = context.cancelled() => Ok(()),
        end = dispatcher.ended() => match end {
            DispatcherEnd::LeadershipEnded => Ok(()),
            DispatcherEnd::Superseded => Err(TermError::Superseded),
            DispatcherEnd::Asked => Err(TermError::Dispatcher),
        },
        done = term(inner, &context, &dispatcher, active_agents) => done,
    }
}

async fn term(
    inner: &Inner,
    context: &ProcessContext,
    dispatcher: &Dispatcher,
    active_agents: ActiveAgents,
) -> Result<(), TermError> {
    let mut updates = dispatcher.updates();
    let mut asked = inner.asked.lock().await;
    // Requests to a former term have been answered by now: that node does not lead.
    while asked.try_recv().is_ok() {}
    if !dispatcher.ready().await {
        return Err(TermError::Dispatcher);
    }
    let (file, health) = take_over(&inner.shelf, context).await?;
    let mut term = Term {
        inner,
        context,
        dispatcher,
        planner: Planner::default(),
        health,
        trouble: file.foreign.clone(),
        file,
        unannounced: Vec::new(),
        active_agents,
        reassign: false,
        agents: BTreeMap::new(),
        known: BTreeMap::new(),
        refused: BTreeMap::new(),
        requested: BTreeMap::new(),
        with_requests: BTreeSet::new(),
        reads: JoinSet::new(),
        next_read: Instant::now(),
        view_is_old: true,
        next_view: Instant::now(),
        next_save: Instant::now(),
        next_forget: Instant::now(),
        counts: RunnerCounts::default(),
        in_metrics: RunnerCounts::default(),
    };
    context.ready();
    term.work(&mut updates, &mut asked).await
}

async fn take_over(shelf: &Shelf, context: &ProcessContext) -> Result<(StateFile, Health), TermError> {
    loop {
        match StateFile::open(shelf, context.guard()).await {
            Ok(opened) => return Ok(opened),
            Err(error) if error.is_fenced() => return Err(TermError::Superseded),
            Err(error) => {
                tracing::warn!(target: "tenure", "cannot take over polls yet: {error}");
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
        let mut workers = self.inner.workers.clone();
        let mut watched = true;
        loop {
            self.start_reads();
            self.create().await?;
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
                    self.update_active_agents();
                }
                Some(run) = asked.recv() => {
                    self.on_run_now(run).await;
                    self.next_view = Instant::now();
                }
                changed = workers.changed(), if watched => {
                    watched = changed.is_ok();
                    self.read_facts();
                }
                () = tokio::time::sleep(pause) => self.view_is_old = was_old,
            }
        }
    }

    fn now_ms(&self) -> u64 {
        (self.inner.options.wall_clock)()
    }

    fn pause(&self) -> Duration {
        let now_ms = self.now_ms();
        let due =
            self.planner.next_ms(now_ms).map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms)));
        let now = Instant::now();
        let save = (!self.unannounced.is_empty()).then(|| self.next_save.saturating_duration_since(now));
        let pause = due.into_iter().chain(save).fold(PAUSE_MAX, Duration::min);
        // At least a moment, whatever the clocks say, and no longer than until the next update of the view.
        let view_due = self.view_is_old.then(|| self.next_view.saturating_duration_since(now));
        view_due.map_or(pause, |due| pause.min(due)).max(Duration::from_millis(5))
    }

    /// Reads the schedules when it is time, and agents that are new or were read too long ago.
    fn start_reads(&mut self) {
        let now = Instant::now();
        if !self.reads.is_empty() || now < self.next_read {
            return;
        }
        self.next_read = now + self.inner.options.look_interval;
        let (shelf, known) = (self.inner.shelf.clone(), self.known.clone());
        self.reads.spawn(async move { StoreAnswer::Schedules(shelf.look(&known).await) });
        self.read_facts();
    }

    async fn on_store_answer(&mut self, answer: StoreAnswer) {
        match answer {
            StoreAnswer::Agent(id, Ok(facts)) => {
                self.agents.insert(id, (facts, Instant::now()));
            }
            StoreAnswer::Agent(_, Err(why)) | StoreAnswer::Schedules(Err(why)) => {
                // Retry soon: a new leader waits for nothing else.
                self.next_read = self.next_read.min(Instant::now() + READ_RETRY);
                self.warn_once(why);
            }
            StoreAnswer::Schedules(Ok(found)) => {
                self.trouble = self.file.foreign.clone();
                self.on_schedules(found).await;
            }
            StoreAnswer::Served(id, names, done) => self.on_served(&id, &names, done),
        }
    }

    fn warn_once(&mut self, why: String) {
        if self.trouble.as_ref() != Some(&why) {
            tracing::warn!(target: "tenure", "polls: {why}");
            self.trouble = Some(why);
        }
    }

    async fn on_schedules(&mut self, found: Found) {
        for id in self.planner.ids() {
            if !found.present.contains_key(&id) {
                self.planner.remove(&id);
                self.health.forget(&id);
            }
        }
        self.refused.retain(|id, _| found.present.contains_key(id));
        self.known = found.present;
        for id in &found.unread {
            self.known.remove(id);
        }
        let news = !found.changed.is_empty();
        for (id, read) in found.changed {
            match read {
                Ok(schedule) => {
                    self.refused.remove(&id);
                    self.planner.put(schedule);
                }
                Err(problems) => {
                    self.planner.remove(&id);
                    self.refused.insert(id.clone(), problems.to_string());
                    self.announce(ScheduleEvent::ScheduleRefused { schedule: id, problems });
                }
            }
        }
        if news {
            self.take_all_results().await;
        }
        self.note_requests();
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
        old.retain(|id, watermark_ms| *watermark_ms < old_ms && !self.known.contains_key(&id.schedule()));
        if !old.is_empty() {
            self.dispatcher.forget(old).await;
        }
    }

    /// Plans, and submits what is requested and what is due.
    async fn create(&mut self) -> Result<(), TermError> {
        if std::mem::take(&mut self.reassign) {
            // Submitting nothing writes nothing, and makes the dispatcher assign waiting jobs again.
            self.dispatcher.submit_all([]).await.map_err(|_| TermError::Dispatcher)?;
        }
        for round in 0..ROUNDS_MAX {
            if round == 0 {
                // Before what is due: a schedule that is always busy would otherwise never get to its requests.
                self.create_requested().await?;
            }
            let dues = self.planner.plan(self.now_ms());
            if dues.is_empty() {
                return Ok(());
            }
            if !self.submit(dues).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Submits these due times. Returns whether any job already existed.
    async fn submit(&mut self, dues: Vec<Due>) -> Result<bool, TermError> {
        let schedules = self.planner.schedules();
        let specs = dues.iter().filter_map(|due| {
            let schedule = schedules.get(&due.schedule)?;
            // Reading a schedule ensures that its job ids fit.
            Some(job(schedule, &schedule.id.job(due.due_ms).ok()?, due.due_ms).watermark(due.due_ms))
        });
        let specs: Vec<JobSpec> = specs.collect();
        let answers = match self.dispatcher.submit_all(specs).await {
            Ok(answers) => answers,
            Err(SubmitError::Ended) => return Err(TermError::Dispatcher),
            Err(error @ (SubmitError::Job(_) | SubmitError::Full | SubmitError::Blocked)) => {
                self.warn_once(error.to_string());
                dues.iter().for_each(|due| self.planner.answered(due, Answer::Refused));
                return Ok(false);
            }
        };
        let mut existed = false;
        self.view_is_old = true;
        for (due, answer) in dues.iter().zip(answers) {
            let answer = match answer {
                Ok(Submitted::Created) => {
                    self.counts.due_lag_ms = due.late_ms;
                    self.counts.due_lag_max_ms = self.counts.due_lag_max_ms.max(due.late_ms);
                    Answer::Created
                }
                Ok(Submitted::Exists | Submitted::BelowWatermark) => {
                    existed = true;
                    Answer::Existed
                }
                Err(SubmitError::Ended) => return Err(TermError::Dispatcher),
                Err(error @ (SubmitError::Job(_) | SubmitError::Full | SubmitError::Blocked)) => {
                    self.warn_once(format!("{}: {error}", due.schedule));
                    Answer::Refused
                }
            };
            self.planner.answered(due, answer);
        }
        Ok(existed)
    }

    fn announce(&self, event: ScheduleEvent) {
        match &self.inner.annex {
            // The node's own events are logged as well.
            Some(annex) => annex.tell(self.context.epoch(), event.news()),
            None => tracing::info!(target: "tenure", "{}: {}", event.name(), event.news().sentence),
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
        let jobs = self.dispatcher.jobs().await;
        // A finished job counts as open until the ledger has that and it has been taken in.
        let open = |job: &&JobRecord| {
            job.kind.as_str() == CHECKS_KIND
                && (!job.state.is_final() || self.planner.is_open(&job.series.schedule(), &job.id))
        };
        let open = jobs.iter().filter(open);
        let jobs: Vec<JobView> = open
            .map(|job| JobView {
                id: job.id.clone(),
                schedule: job.series.schedule(),
                state: job.state,
                attempt: job.attempt,
                worker: job.worker.clone(),
                reason: Arc::clone(&job.reason),
            })
            .collect();
        self.counts.plan = self.planner.counts();
        self.counts.jobs = self.dispatcher.counts();
        self.counts.open = jobs.len() as u64;
        let schedules = self.planner.schedules().len();
        self.inner.figures.take(&self.in_metrics, &self.counts, schedules, self.health.failing());
        self.in_metrics = self.counts;
        let size = u32::try_from(jobs.len() + self.planner.schedules().len()).unwrap_or(u32::MAX);
        self.view_is_old = false;
        self.next_view = now + VIEW_EVERY + VIEW_EVERY_EACH.saturating_mul(size);
        let schedules = self.planner.schedules().keys().filter_map(|id| {
            let series = self.planner.view(id, now_ms)?;
            Some((id.clone(), ScheduleView { series, checks: self.health.of(id) }))
        });
        let view = RunnerView {
            epoch: self.context.epoch(),
            schedules: schedules.collect(),
            refused: self.refused.clone(),
            jobs,
            agents: self.active_agents.agents(),
            counts: self.counts,
            trouble: self.trouble.clone(),
        };
        self.inner.view.send_if_modified(|shown| {
            let news = *shown != view;
            *shown = view;
            news
        });
    }
}

fn job(schedule: &Schedule, id: &JobId, due_ms: u64) -> JobSpec {
    JobSpec::new(id.to_string(), CHECKS_KIND)
        .series(schedule.id.as_str())
        .payload(schedule.job_payload(due_ms))
        .timeout(Duration::from_millis(schedule.timeout_ms))
        .ttl(Duration::from_millis(schedule.ttl_ms))
        .attempts(u32::try_from(schedule.attempts).unwrap_or(1))
        .backoff(Duration::from_millis(schedule.backoff_ms))
}
