//! Carries out what the scheduler decides: submits its jobs, and tells those who asked for one what became of it.
//!
//! A request in a schedule's object is served in this order: first the job is created, under a name that follows from the request;
//! then the request is replaced by its name in the list of served ones. If a leader ends in between, the request stays, and the
//! next leader finds that its job exists.
//!
//! This is a loop and not a [`Shell`](tenure::shell::Shell): a term also waits for its own saves, in order, and a host of a shell
//! would have to make a task of each of them.

use super::{StoreAnswer, Term, TermError};
use crate::schedules::runner::{RunNow, ScheduleError};
use crate::schedules::schedule::{RunRequest, Schedule};
use std::sync::Arc;
use std::time::Duration;
use tenure::Error;
use tenure::clock::millis;
use tenure::error::ErrorKind;
use tenure::id::ScheduleId;
use tenure::job::{JobSpec, Submitted};
use tenure::machine::{Effect, In, Input, Machine, Now, Time};
use tenure::schedules::{
    JobAnswer, NewJob, Requested, RunAnswer, Scheduler, SchedulerCommand, SchedulerOutput, SubmitJobs,
};

impl Term<'_> {
    fn now(&self) -> Now {
        let at = millis(self.began.elapsed());
        Now { at: Time(at), wall_ms: i64::try_from(self.now_ms()).unwrap_or(i64::MAX) }
    }

    fn feed(&mut self, input: In<Scheduler<Arc<Schedule>>>) {
        let mut effects = Vec::new();
        self.scheduler.handle(self.now(), input, &mut effects);
        self.effects.extend(effects);
    }

    pub(super) fn tell(&mut self, command: SchedulerCommand<Arc<Schedule>>) {
        self.feed(Input::Command(command));
    }

    /// How long the scheduler can wait.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let now = self.now().at;
        self.scheduler.wake_at().map(|at| Duration::from_millis(at.since(now)))
    }

    /// Does what the scheduler wants, until it wants nothing more for now.
    pub(super) async fn schedule(&mut self) -> Result<(), TermError> {
        loop {
            while let Some(effect) = self.effects.pop_front() {
                match effect {
                    Effect::Request(id, SubmitJobs(jobs)) => {
                        let answers = self.submit(&jobs).await?;
                        self.feed(Input::Answer(id, answers));
                    }
                    Effect::Output(SchedulerOutput::Requested(requested)) => self.on_requested(&requested),
                    Effect::Output(SchedulerOutput::Missed(missed)) => self.on_missed(&missed).await,
                }
            }
            if self.until_due() != Some(Duration::ZERO) {
                break;
            }
            self.feed(Input::Wake);
        }
        self.note_served();
        Ok(())
    }

    async fn submit(&mut self, jobs: &[NewJob<Arc<Schedule>>]) -> Result<Vec<JobAnswer>, TermError> {
        self.view_is_old = true;
        self.refusals.clear();
        let answers = match self.dispatcher.submit_all(jobs.iter().map(spec)).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); jobs.len()],
        };
        let mut known = Vec::new();
        for (job, answer) in jobs.iter().zip(answers) {
            known.push(match answer {
                Ok(Submitted::Created) => JobAnswer::Created,
                Ok(Submitted::Exists | Submitted::BelowWatermark) => JobAnswer::Existed,
                Err(error) if error.is_fenced() => return Err(TermError::Dispatcher),
                Err(error) => {
                    self.warn_once(format!("schedule {}: {error}", job.schedule.id));
                    self.refusals.insert(job.id.clone(), error);
                    JobAnswer::Refused
                }
            });
        }
        Ok(known)
    }

    /// Somebody in this process wants to run a job.
    pub(super) async fn on_run_now(&mut self, RunNow { schedule, name, reply }: RunNow) {
        let known = self.scheduler.planner().schedules().get(&schedule);
        let ran = known.is_some_and(|known| known.ran.contains(&name));
        let job = RunRequest::job_id(&schedule, &name);
        match job {
            // The caller may have given up, here and below.
            _ if known.is_none() => drop(reply.send(Err(ScheduleError::Unknown(schedule.to_string())))),
            Err(error) => drop(reply.send(Err(error))),
            Ok(_) if ran => drop(reply.send(Ok(Submitted::Exists))),
            Ok(job) => {
                self.replies.entry(job.clone()).or_default().push(reply);
                self.tell(SchedulerCommand::RunNow { schedule, job });
                // If the job exists, that is the answer, whether there is room or not.
                self.take_all_results().await;
            }
        }
    }

    fn on_requested(&mut self, Requested { schedule, job, answer }: &Requested) {
        let answer = match answer {
            RunAnswer::Created => Ok(Submitted::Created),
            RunAnswer::Existed => Ok(Submitted::Exists),
            RunAnswer::Full => Err(ScheduleError::Full(schedule.to_string())),
            RunAnswer::Unknown => Err(ScheduleError::Unknown(schedule.to_string())),
            RunAnswer::Refused => {
                let ended = || {
                    Error::new(ErrorKind::Fenced, "the dispatcher has ended; the job may or may not exist")
                };
                Err(ScheduleError::Submit(self.refusals.get(job).cloned().unwrap_or_else(ended)))
            }
        };
        let known = self.scheduler.planner().schedules().get(schedule).filter(|_| answer.is_ok());
        let is_this = |run: &&RunRequest| RunRequest::job_id(schedule, &run.name).as_ref() == Ok(job);
        if let Some(run) = known.and_then(|known| known.run_now.iter().find(is_this)) {
            self.served.entry(schedule.clone()).or_default().push(run.name.clone());
        }
        for reply in self.replies.remove(job).into_iter().flatten() {
            let _ = reply.send(answer.clone());
        }
    }

    /// Notes served requests on the store in the background: one read and one write per schedule.
    fn note_served(&mut self) {
        for (id, names) in std::mem::take(&mut self.served) {
            let schedules = self.inner.schedules.clone();
            self.reads.spawn(async move {
                let done = schedules.served(&id, &names).await;
                StoreAnswer::Served(id, names, done.map(drop))
            });
        }
    }

    pub(super) fn on_served(&mut self, id: ScheduleId, names: Vec<String>, done: Result<(), ScheduleError>) {
        if let Err(why) = done {
            self.warn_once(format!("schedule {id}: {why}"));
            // Tried again in the next round.
            self.served.entry(id).or_default().extend(names);
        }
    }
}

fn spec(job: &NewJob<Arc<Schedule>>) -> JobSpec {
    let schedule = &job.schedule;
    let spec = JobSpec::new(job.id.to_string(), schedule.job_kind())
        .series(schedule.id.as_str())
        .watermark(job.watermark())
        .payload(schedule.job_payload(job.due_ms))
        .needs(schedule.needs.clone())
        .queue(schedule.queue.as_str())
        .priority(u8::try_from(schedule.priority).unwrap_or(0))
        .timeout(Duration::from_millis(schedule.timeout_ms))
        .ttl(Duration::from_millis(schedule.ttl_ms))
        .attempts(u32::try_from(schedule.attempts).unwrap_or(1))
        .backoff(Duration::from_millis(schedule.backoff_ms));
    let spec = if schedule.webhook.is_some() { spec.notify() } else { spec };
    schedule.commands().into_iter().fold(spec, JobSpec::allows)
}
