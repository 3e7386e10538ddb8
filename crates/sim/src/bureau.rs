//! The process that assigns work: the production dispatcher and planner, and what the library's feeder and the poll plugin's term
//! do around them.

use crate::check::name;
use crate::neglect::Neglect;
use crate::office::OfficeInput;
use crate::queue::Happening;
use crate::trace::Noted;
use crate::wire::{Ask, Party};
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::document::DocumentRequest;
use tenure_core::machine::{Effect, In, Input, Machine, Now};
use tenure_core::{
    DispatchCommand, DispatchOutput, DispatchRequest, Dispatcher, DispatcherConfig, Due, DueTimes, Epoch,
    Incarnation, Interval, JobAnswer, JobId, JobLimits, JobRecord, JobState, KindName, LeastLoaded, Planned,
    Planner, ProcessOutcome, ScheduleId, ScheduleTerms, SeriesId, SnapshotId, SubmitAnswer, WorkerId,
};

type Leading = Dispatcher<LeastLoaded>;

/// Wall clocks start here.
pub(crate) const WALL_MS: u64 = 1_000_000_000;
/// The longest time between two wake-ups …
const PAUSE_MAX_MS: u64 = 1000;
/// … and the shortest.
const WAKE_LEAST_MS: u64 = 5;

/// A schedule.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) id: ScheduleId,
    pub(crate) interval: Interval,
    pub(crate) terms: ScheduleTerms,
}

impl Planned for Round {
    type Times = Interval;

    fn id(&self) -> &ScheduleId {
        &self.id
    }

    fn terms(&self) -> ScheduleTerms {
        self.terms
    }

    fn times(&self) -> &Interval {
        &self.interval
    }
}

/// What a submission was for.
enum Submitted {
    Job(Due),
    ByHand(JobId),
}

/// One incarnation of the process.
pub(crate) struct Bureau {
    pub(crate) instance: u64,
    pub(crate) incarnation: u64,
    pub(crate) epoch: Epoch,
    dispatcher: Leading,
    planner: Planner<Round>,
    ready: bool,
    /// The workers as last reported.
    known: Option<(SnapshotId, BTreeMap<WorkerId, bool>)>,
    /// Whether its own node has listed the workers, and whether that list is complete.
    told: Option<bool>,
    submitted: BTreeMap<u64, Submitted>,
    tokens: u64,
    plan_at: u64,
    wake: u64,
    held: Vec<In<Leading>>,
}

impl World {
    /// A node's wall clock.
    pub(crate) fn wall(&self, node: usize) -> u64 {
        (WALL_MS + self.now).saturating_add_signed(self.nodes[node].wall_off_ms)
    }

    pub(crate) fn open_bureau(&mut self, node: usize, epoch: Epoch, instance: u64) {
        let incarnation = self.new_life();
        let config = DispatcherConfig {
            incarnation: Incarnation(incarnation),
            epoch,
            ..self.labour.dispatcher.clone()
        };
        let mut planner = Planner::default();
        for round in &self.labour.rounds {
            planner.put(round.clone());
        }
        self.offices[node].bureau = Some(Bureau {
            instance,
            incarnation,
            epoch,
            dispatcher: Dispatcher::new(config, LeastLoaded::default()),
            planner,
            ready: false,
            known: None,
            told: None,
            submitted: BTreeMap::new(),
            tokens: 0,
            plan_at: 0,
            wake: 0,
            held: Vec::new(),
        });
        self.feed_bureau(node, incarnation, Input::Wake);
    }

    /// Applies the changed schedules.
    pub(crate) fn put_rounds(&mut self) {
        for office in &mut self.offices {
            if let Some(bureau) = &mut office.bureau {
                self.labour.rounds.iter().for_each(|round| bureau.planner.put(round.clone()));
            }
        }
    }

    pub(crate) fn resume_bureau(&mut self, node: usize) {
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        let (incarnation, held) = (bureau.incarnation, std::mem::take(&mut bureau.held));
        for input in held.into_iter().chain([Input::Wake]) {
            self.feed_bureau(node, incarnation, input);
        }
    }

    pub(crate) fn wake_bureau(&mut self, node: usize, incarnation: u64, wake: u64) {
        let bureau = self.offices[node].bureau.as_ref();
        if bureau.is_some_and(|bureau| bureau.incarnation == incarnation && bureau.wake == wake) {
            self.feed_bureau(node, incarnation, Input::Wake);
        }
    }

    /// The registry of this node has changed.
    pub(crate) fn tell_bureau(&mut self, node: usize) {
        if let Some(bureau) = self.offices.get(node).and_then(|office| office.bureau.as_ref()) {
            let incarnation = bureau.incarnation;
            self.feed_bureau(node, incarnation, Input::Wake);
        }
    }

    /// Asks the leader on this node to run a job, or to cancel it.
    pub(crate) fn submit_by_hand(&mut self, node: usize, record: JobRecord) {
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        bureau.tokens += 1;
        let (token, incarnation) = (bureau.tokens, bureau.incarnation);
        bureau.submitted.insert(token, Submitted::ByHand(record.id.clone()));
        let submit = DispatchCommand::Submit(vec![(token, record)]);
        self.feed_bureau(node, incarnation, Input::Command(submit));
    }

    pub(crate) fn feed_bureau(&mut self, node: usize, incarnation: u64, input: In<Leading>) {
        let paused = self.nodes[node].paused;
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        if bureau.incarnation != incarnation {
            return;
        }
        if paused {
            return bureau.held.push(input);
        }
        let epoch = bureau.epoch;
        if !self.guarded(node, epoch) {
            // Leadership ended: it assigns nothing more, whatever it is told.
            self.offices[node].bureau = None;
            return;
        }
        self.steps += 1;
        self.muster(node);
        self.dispatch_step(node, input);
        for _ in 0..8 {
            if !self.plan_jobs(node) {
                break;
            }
        }
        self.rearm_bureau(node);
    }

    /// Takes the active workers from the registry.
    fn muster(&mut self, node: usize) {
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        let Some(mark) = self.sweeps[node].known().applied() else { return };
        let sweep = &self.sweeps[node];
        let leads = sweep.term.as_ref().is_some_and(|term| term.epoch == bureau.epoch);
        let told =
            sweep.liveness().filter(|_| leads).and_then(|liveness| liveness.has_told()).or(bureau.told);
        if bureau.told == told && bureau.known.as_ref().is_some_and(|(known, _)| *known == mark) {
            return;
        }
        bureau.told = told;
        let workers = sweep.known().workers();
        let list: BTreeMap<WorkerId, bool> = workers.map(|(id, entry)| (id.clone(), entry.active)).collect();
        let by = Incarnation(bureau.incarnation);
        // Only a leader that has listed the workers itself knows that one of them is gone.
        let gone = self.workers.iter().map(|worker| &worker.id);
        let gone = gone.filter(|id| told.is_some() && list.get(*id) != Some(&true));
        self.book.absent.extend(gone.map(|id| (by, id.clone())));
        bureau.known = Some((mark, list.clone()));
        let (listed, whole) = (told.is_some(), told == Some(true));
        let workers = DispatchCommand::Workers { list, listed, whole };
        let now = Now { at: self.nodes[node].clock.local(self.now), wall_ms: 0 };
        bureau.dispatcher.handle(now, Input::Command(workers), &mut Vec::new());
    }

    fn dispatch_step(&mut self, node: usize, input: In<Leading>) {
        let (now, local, wall) = (self.now, self.nodes[node].clock.local(self.now), self.wall(node));
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        let (step, mut effects) = (Now { at: local, wall_ms: wall as i64 }, Vec::new());
        bureau.dispatcher.handle(step, input, &mut effects);
        if bureau.dispatcher.wake_at() == Some(local) {
            bureau.dispatcher.handle(step, Input::Wake, &mut effects);
        }
        let ready = bureau.dispatcher.is_ready() && !std::mem::replace(&mut bureau.ready, true);
        bureau.ready = bureau.dispatcher.is_ready();
        let (instance, incarnation) = (bureau.instance, bureau.incarnation);
        let life = self.nodes[node].life;
        for effect in effects {
            match effect {
                Effect::Request(id, request) => {
                    self.trace.office(now, node, &id);
                    self.trace.note(now, node, || Noted::Work(format!("-> {}", told(&request))));
                    self.ask(Party::Node(node), id.0, Ask::Dispatch(incarnation, id, Box::new(request)));
                }
                Effect::Output(DispatchOutput::Answered(token, answer)) => {
                    self.on_submitted(node, token, answer)
                }
                Effect::Output(DispatchOutput::Update(update)) => {
                    self.trace.office(now, node, &(&update.id, update.state, update.attempt));
                    self.trace.note(now, node, || {
                        let late = update.late.map_or(String::new(), |kind| format!(", late {kind:?}"));
                        Noted::Work(format!(
                            "{} attempt {} is {:?}{late}; {}",
                            update.id, update.attempt, update.state, update.reason
                        ))
                    });
                    self.work_done.late += u64::from(update.late.is_some());
                    self.book.update(&update);
                    self.hold_book();
                    if let Some(bureau) =
                        self.offices[node].bureau.as_mut().filter(|_| update.state.is_final())
                    {
                        bureau.plan_at = 0;
                    }
                }
                Effect::Output(DispatchOutput::Claimed { .. }) => {}
                Effect::Output(DispatchOutput::Ended(_)) => {
                    let exited = OfficeInput::Exited(0, instance, ProcessOutcome::Failed);
                    self.offices[node].bureau = None;
                    self.schedule(now, node, life, Happening::Office(exited));
                    return;
                }
            }
        }
        if ready {
            self.schedule(now, node, life, Happening::Office(OfficeInput::Ready(0, instance)));
        }
    }

    fn on_submitted(&mut self, node: usize, token: u64, answer: SubmitAnswer) {
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        let Some(submitted) = bureau.submitted.remove(&token) else { return };
        match (submitted, answer) {
            (Submitted::ByHand(id), SubmitAnswer::Created | SubmitAnswer::Exists) => {
                self.book.promised.insert(id);
            }
            (Submitted::ByHand(_), _) => {}
            (Submitted::Job(due), answer) => {
                let answer = match answer {
                    SubmitAnswer::Created => JobAnswer::Created,
                    SubmitAnswer::Exists | SubmitAnswer::BelowWatermark => {
                        bureau.plan_at = 0;
                        JobAnswer::Existed
                    }
                    SubmitAnswer::Full | SubmitAnswer::Blocked | SubmitAnswer::Ended => JobAnswer::Refused,
                };
                bureau.planner.answered(&due, answer);
            }
        }
    }

    /// Plans, and submits what is due; returns whether anything was submitted.
    fn plan_jobs(&mut self, node: usize) -> bool {
        let wall = self.wall(node);
        let anew = self.neglect == Some(Neglect::JobNamedAnew);
        let Some(bureau) = &mut self.offices[node].bureau else { return false };
        let waits = bureau.submitted.values().any(|submitted| matches!(submitted, Submitted::Job(_)));
        if !bureau.ready || waits || wall < bureau.plan_at {
            return false;
        }
        let jobs = bureau.dispatcher.jobs().filter(|job| job.kind.as_str() == JOB);
        let jobs = jobs.map(|job| (&job.series, &job.id, job.watermark, !job.state.is_final()));
        bureau.planner.observe(jobs);
        let dues = bureau.planner.plan(wall);
        bureau.plan_at = bureau.planner.next_ms(wall).unwrap_or(u64::MAX).min(wall + PAUSE_MAX_MS);
        if dues.is_empty() {
            return false;
        }
        let mut records = Vec::new();
        for due in &dues {
            let id = due.schedule.job(due.due_ms).expect("a valid id").to_string();
            // The broken variant: a different name for each attempt to create it.
            let (id, watermark) = match anew {
                true => (format!("{id}-{}", bureau.incarnation), 0),
                false => (id, due.due_ms),
            };
            let limits = self.labour.limits.clone();
            bureau.tokens += 1;
            bureau.submitted.insert(bureau.tokens, Submitted::Job(due.clone()));
            records.push((bureau.tokens, job(&id, &due.schedule.series(), watermark, limits)));
        }
        self.check_misfire(wall, &dues);
        self.dispatch_step(node, Input::Command(DispatchCommand::Submit(records)));
        true
    }

    /// Of the missed due times, only the newest are made up for, as many as the policy allows.
    fn check_misfire(&mut self, wall: u64, dues: &[Due]) {
        let now = self.now;
        for due in dues {
            let Some(round) = self.labour.rounds.iter().find(|round| round.id == due.schedule) else {
                continue;
            };
            let begins = |due_ms: u64| round.interval.begins_ms(round.id.as_str(), due_ms);
            let late = |due_ms: u64| wall.saturating_sub(begins(due_ms)) > round.terms.misfire_threshold_ms;
            if begins(due.due_ms) > wall {
                let what = format!("{} of {} is created before its time", due.due_ms, due.schedule);
                self.judge.violated(now, name::MISFIRE, || what);
                continue;
            }
            let kept = round.terms.misfire.kept();
            let newer = round.interval.newest(due.due_ms, wall, kept + 1);
            let newer = newer.into_iter().filter(|other| late(*other)).count();
            if late(due.due_ms) && newer >= kept {
                let what = format!(
                    "{} is made up for by {:?}, and {newer} newer ones were missed",
                    due.due_ms, round.terms.misfire
                );
                self.judge.violated(now, name::MISFIRE, || what);
            }
        }
    }

    pub(crate) fn rearm_bureau(&mut self, node: usize) {
        let (local, wall) = (self.nodes[node].clock.local(self.now), self.wall(node));
        let Some(bureau) = &mut self.offices[node].bureau else { return };
        let plan = bureau.ready.then(|| local + bureau.plan_at.saturating_sub(wall).min(PAUSE_MAX_MS));
        let wake = bureau.dispatcher.wake_at().into_iter().chain(plan).min();
        let Some(at) = wake.map(|at| at.max(local + WAKE_LEAST_MS)) else { return };
        bureau.wake += 1;
        let (incarnation, wake) = (bureau.incarnation, bureau.wake);
        let life = self.nodes[node].life;
        if let Some(when) = self.nodes[node].clock.when(at) {
            self.schedule(when, node, life, Happening::Bureau { incarnation, wake });
        }
    }
}

impl Bureau {
    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }
}

fn told(request: &DispatchRequest) -> String {
    match request {
        DispatchRequest::Ledger(part, request) => format!("ledger {part}: {}", asked(request)),
        DispatchRequest::Inbox(worker, DocumentRequest::Write { body, expect, .. }) => {
            format!("write inbox of {worker}, {} entries, over {expect:?}", body.entries.len())
        }
        DispatchRequest::Inbox(worker, request) => format!("inbox of {worker}: {}", asked(request)),
        DispatchRequest::ListInboxes => "list inboxes".to_owned(),
        DispatchRequest::Archive(part, records) => format!("put {} of ledger {part} away", records.len()),
    }
}

fn asked<T>(request: &DocumentRequest<T>) -> String {
    match request {
        DocumentRequest::Read { unless } => format!("read unless {unless:?}"),
        DocumentRequest::Write { stamp, expect, .. } => format!("write {:?} over {expect:?}", stamp.nonce),
        DocumentRequest::Remove => "remove".to_owned(),
    }
}

/// The kind of all simulated jobs.
const JOB: &str = "job";

/// A job as submitted.
pub(crate) fn job(id: &str, series: &SeriesId, watermark: u64, limits: JobLimits) -> JobRecord {
    JobRecord {
        id: JobId::new(id).expect("a valid id"),
        series: series.clone(),
        watermark,
        kind: KindName::new(JOB).expect("a valid id"),
        payload: Arc::from(*b"x"),
        limits,
        target: None,
        state: JobState::Queued,
        attempt: 0,
        unbegun: 0,
        worker: None,
        epoch: Epoch(0),
        cancel: false,
        given_up: false,
        reason: Arc::from(""),
        result: Arc::from([]),
        late: Vec::new(),
    }
}
