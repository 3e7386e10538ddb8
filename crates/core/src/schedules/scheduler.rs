//! The scheduler: turns due times and requests to run now into jobs. One per leader.
//!
//! The [`Planner`] says what is due; the scheduler submits it, in rounds. One round is under way at a time, because a planner that
//! does not know what became of the last round would plan it again. A job that exists already counts as created by somebody
//! else, and the next round follows at once: the room it was planned for is free. A job that was refused is submitted again
//! after a pause, and so is one whose answer got lost: if that one exists, the ledger says so.
//!
//! It batches: every input but [`Input::Wake`] is only taken in.

use super::{Due, JobAnswer, Missed, Planned, Planner};
use crate::id::{JobId, ScheduleId, SeriesId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, Request, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// The longest pause between two plans: a wall clock that jumps is noticed by then.
const PLAN_EVERY_MS: u64 = 1000;

/// The pause before what was refused is submitted again.
const RETRY_MS: u64 = 1000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SchedulerCommand<S> {
    /// Adds a schedule or replaces an earlier version of it. Nothing is submitted until the next
    /// [`Observe`](SchedulerCommand::Observe) if the schedule is new. Somebody wants the `requested` jobs to run now; while
    /// there is no room for them, they wait.
    Put { schedule: S, requested: Vec<JobId> },
    /// Forgets a schedule. Its jobs carry on.
    Remove(ScheduleId),
    /// The ledger says that this job is open now, or no longer.
    Note { schedule: ScheduleId, job: JobId, open: bool },
    /// All jobs in the ledger. Needed after new schedules, and whenever notes were missed.
    Observe(Vec<ObservedJob>),
    /// Runs this job now. It does not wait: if there is no room, the answer is [`RunAnswer::Full`].
    RunNow { schedule: ScheduleId, job: JobId },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObservedJob {
    pub series: SeriesId,
    pub id: JobId,
    /// Its watermark; 0 if it has none.
    pub watermark: u64,
    pub open: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NewJob<S> {
    /// The schedule, in the version that was planned.
    pub schedule: S,
    /// The id of the job. It is the same whenever and by whomever the job is submitted.
    pub id: JobId,
    /// When it is due. A requested job is due now.
    pub due_ms: u64,
    /// How long ago it should have begun.
    pub late_ms: u64,
    /// Somebody asked for it, so it has no watermark.
    pub requested: bool,
}

impl<S> NewJob<S> {
    /// Its watermark in the ledger: the due time; none for a requested job.
    pub fn watermark(&self) -> u64 {
        if self.requested { 0 } else { self.due_ms }
    }
}

/// Submits these jobs, in this order. The answers have the same order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubmitJobs<S>(pub Vec<NewJob<S>>);

impl<S> Request for SubmitJobs<S> {
    type Answer = Vec<JobAnswer>;

    fn unanswered(&self) -> Vec<JobAnswer> {
        vec![JobAnswer::Refused; self.0.len()]
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SchedulerOutput {
    Requested(Requested),
    /// Due times were missed. It comes before the jobs of later due times are submitted: from then on no leader finds this.
    Missed(Missed),
}

/// What became of a requested job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Requested {
    pub schedule: ScheduleId,
    pub job: JobId,
    pub answer: RunAnswer,
}

/// The answer to a request to run a job now. If the request waits in its schedule, there is an answer only once the job exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RunAnswer {
    Created,
    Existed,
    Refused,
    /// The schedule has as many open jobs as it may.
    Full,
    /// There is no such schedule.
    Unknown,
}

impl From<JobAnswer> for RunAnswer {
    fn from(answer: JobAnswer) -> RunAnswer {
        match answer {
            JobAnswer::Created => RunAnswer::Created,
            JobAnswer::Existed => RunAnswer::Existed,
            JobAnswer::Refused => RunAnswer::Refused,
        }
    }
}

/// Decides which jobs are submitted, and when.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scheduler<S> {
    planner: Planner<S>,
    /// Jobs requested in the objects of their schedules: they wait there.
    requested: BTreeMap<ScheduleId, Vec<JobId>>,
    /// Jobs requested of this leader, which do not wait.
    run_now: Vec<(ScheduleId, JobId)>,
    /// The jobs of all schedules were observed.
    observed: bool,
    /// The round under way.
    round: Option<(RequestId, Vec<NewJob<S>>)>,
    /// What the ledger said about jobs meanwhile. It is taken in after the answers, or a job that has ended by then would count
    /// as open from its answer on.
    held: Vec<SchedulerCommand<S>>,
    /// Schedules with a refused job, and when to submit it again.
    refused: BTreeSet<ScheduleId>,
    retry_at: Time,
    /// When to plan by time alone.
    plan_at: Time,
    /// When the last step was taken, and whether it left something to do at the next wake-up.
    now: Time,
    unsettled: bool,
    requests: u64,
}

impl<S> Default for Scheduler<S> {
    fn default() -> Scheduler<S> {
        Scheduler {
            planner: Planner::default(),
            requested: BTreeMap::new(),
            run_now: Vec::new(),
            observed: false,
            round: None,
            held: Vec::new(),
            refused: BTreeSet::new(),
            retry_at: Time(0),
            plan_at: Time(0),
            now: Time(0),
            unsettled: false,
            requests: 0,
        }
    }
}

impl<S: Planned + Clone> Scheduler<S> {
    /// What is planned: the schedules, their state and the counters.
    pub fn planner(&self) -> &Planner<S> {
        &self.planner
    }

    fn command(&mut self, command: SchedulerCommand<S>, out: &mut Vec<Out<Self>>) {
        match command {
            SchedulerCommand::Put { schedule, requested } => {
                let id = schedule.id().clone();
                self.observed &= self.planner.schedules().contains_key(&id);
                match requested.is_empty() {
                    true => self.requested.remove(&id),
                    false => self.requested.insert(id, requested),
                };
                self.planner.put(schedule);
            }
            SchedulerCommand::Remove(id) => {
                self.planner.remove(&id);
                self.requested.remove(&id);
                self.refused.remove(&id);
            }
            SchedulerCommand::Note { .. } | SchedulerCommand::Observe(_) if self.round.is_some() => {
                self.held.push(command);
            }
            SchedulerCommand::Note { schedule, job, open } => self.planner.note(&schedule, &job, open),
            SchedulerCommand::Observe(jobs) => self.observe(&jobs, out),
            SchedulerCommand::RunNow { schedule, job } => self.run_now.push((schedule, job)),
        }
    }

    fn observe(&mut self, jobs: &[ObservedJob], out: &mut Vec<Out<Self>>) {
        self.observed = true;
        self.planner.observe(jobs.iter().map(|job| (&job.series, &job.id, job.watermark, job.open)));
        if self.requested.is_empty() && self.run_now.is_empty() {
            return;
        }
        // A request whose job exists needs no room.
        let ids: BTreeSet<&JobId> = jobs.iter().map(|job| &job.id).collect();
        let mut still_wanted = |schedule: &ScheduleId, job: &JobId| {
            let wanted = !ids.contains(job);
            if !wanted {
                out.push(told(schedule, job, RunAnswer::Existed));
            }
            wanted
        };
        self.run_now.retain(|(schedule, job)| still_wanted(schedule, job));
        self.requested.iter_mut().for_each(|(schedule, jobs)| jobs.retain(|job| still_wanted(schedule, job)));
        self.requested.retain(|_, jobs| !jobs.is_empty());
    }

    fn answered(&mut self, now: Time, answers: &[JobAnswer], out: &mut Vec<Out<Self>>) {
        let Some((_, jobs)) = self.round.take() else { return };
        for (place, job) in jobs.into_iter().enumerate() {
            let answer = answers.get(place).copied().unwrap_or(JobAnswer::Refused);
            let id = job.schedule.id().clone();
            if answer == JobAnswer::Refused {
                self.retry_at = now + RETRY_MS;
                self.refused.insert(id.clone());
            }
            if job.requested {
                self.request_answered(&id, &job.id, answer, out);
            } else if answer != JobAnswer::Refused {
                let answer = match Mutant::PlanExistingForgotten.on() {
                    true if answer == JobAnswer::Existed => JobAnswer::Refused,
                    _ => answer,
                };
                self.planner
                    .answered(&Due { schedule: id, due_ms: job.due_ms, late_ms: job.late_ms }, answer);
            }
        }
        for command in std::mem::take(&mut self.held) {
            self.command(command, out);
        }
    }

    fn request_answered(
        &mut self,
        schedule: &ScheduleId,
        job: &JobId,
        answer: JobAnswer,
        out: &mut Vec<Out<Self>>,
    ) {
        if answer != JobAnswer::Created {
            self.planner.release(schedule, job);
        }
        let requested = self.requested.get_mut(schedule).filter(|jobs| jobs.contains(job));
        match requested {
            // It goes on waiting.
            Some(_) if answer == JobAnswer::Refused => {}
            Some(jobs) => jobs.retain(|other| other != job),
            None => {}
        }
        let asked = self.run_now.len();
        self.run_now.retain(|(_, other)| other != job);
        if answer != JobAnswer::Refused || self.run_now.len() < asked {
            out.push(told(schedule, job, answer.into()));
        }
    }

    /// The requested jobs that there is room for now.
    fn requested(&mut self, wall_ms: u64, out: &mut Vec<Out<Self>>) -> Vec<NewJob<S>> {
        let mut jobs: Vec<NewJob<S>> = Vec::new();
        let mut take = |planner: &mut Planner<S>, schedule: &ScheduleId, job: &JobId| {
            if jobs.iter().any(|new| new.id == *job) {
                return None;
            }
            let Some(known) = planner.schedules().get(schedule).cloned() else {
                return Some(RunAnswer::Unknown);
            };
            if planner.is_open(schedule, job) {
                return Some(RunAnswer::Existed);
            }
            if !planner.reserve(schedule, job.clone()) {
                return Some(RunAnswer::Full);
            }
            let id = job.clone();
            jobs.push(NewJob { schedule: known, id, due_ms: wall_ms, late_ms: 0, requested: true });
            None
        };
        self.run_now.retain(|(schedule, job)| match take(&mut self.planner, schedule, job) {
            Some(answer) => {
                out.push(told(schedule, job, answer));
                false
            }
            None => true,
        });
        for (schedule, requested) in &mut self.requested {
            if self.refused.contains(schedule) {
                continue;
            }
            requested.retain(|job| match take(&mut self.planner, schedule, job) {
                Some(RunAnswer::Existed) => {
                    out.push(told(schedule, job, RunAnswer::Existed));
                    false
                }
                Some(_) | None => true,
            });
        }
        jobs
    }

    /// Begins the next round, if there is anything to submit.
    fn advance(&mut self, now: Now, out: &mut Vec<Out<Self>>) {
        let busy = self.round.is_some() && !Mutant::PlanWhileSubmitting.on();
        if busy || !(self.observed || Mutant::PlanUnobserved.on()) {
            return;
        }
        let wall_ms = u64::try_from(now.wall_ms).unwrap_or(0);
        if now.at >= self.retry_at {
            std::mem::take(&mut self.refused).iter().for_each(|id| self.planner.plan_again(id));
        }
        // Before what is due: a schedule that is always busy would never get to its requests.
        let mut jobs = self.requested(wall_ms, out);
        for due in self.planner.plan(wall_ms) {
            let schedule = self.planner.schedules().get(&due.schedule);
            // A schedule whose ids are too long for jobs is refused where it is read.
            let (Some(schedule), Ok(id)) = (schedule, due.schedule.job(due.due_ms)) else { continue };
            let Due { due_ms, late_ms, .. } = due;
            jobs.push(NewJob { schedule: schedule.clone(), id, due_ms, late_ms, requested: false });
        }
        let missed = self.planner.take_missed().into_iter();
        out.extend(missed.map(|missed| Effect::Output(SchedulerOutput::Missed(missed))));
        let next_ms = self.planner.next_ms(wall_ms).map_or(u64::MAX, |at_ms| at_ms.saturating_sub(wall_ms));
        self.plan_at = now.at + next_ms.clamp(1, PLAN_EVERY_MS);
        if !jobs.is_empty() {
            self.requests += 1;
            let id = RequestId(self.requests);
            self.round = Some((id, jobs.clone()));
            out.push(Effect::Request(id, SubmitJobs(jobs)));
        }
    }
}

fn told<R>(schedule: &ScheduleId, job: &JobId, answer: RunAnswer) -> Effect<R, SchedulerOutput> {
    let requested = Requested { schedule: schedule.clone(), job: job.clone(), answer };
    Effect::Output(SchedulerOutput::Requested(requested))
}

impl<S: Planned + Clone> Machine for Scheduler<S> {
    type Command = SchedulerCommand<S>;
    type Request = SubmitJobs<S>;
    type Output = SchedulerOutput;

    fn handle(&mut self, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>) {
        self.now = now.at;
        self.unsettled = !matches!(input, Input::Wake);
        match input {
            Input::Wake => self.advance(now, out),
            Input::Command(command) => self.command(command, out),
            Input::Answer(id, answers) if self.round.as_ref().is_some_and(|(open, _)| *open == id) => {
                self.answered(now.at, &answers, out);
            }
            Input::Answer(..) => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let waits = self.round.is_some() || !self.observed || self.planner.schedules().is_empty();
        match (self.unsettled, waits) {
            (true, _) => Some(self.now),
            (false, true) => None,
            (false, false) => Some(self.plan_at),
        }
    }
}
