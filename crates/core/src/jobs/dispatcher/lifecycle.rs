//! What happens to a job: it is dispatched, withdrawn, given up, tried again, or over.

use super::super::{
    JOB_LATE_MAX, JOB_PAYLOAD_MAX_BYTES, JobState, LateResult, Outcome, OutcomeKind, job_shard,
};
use super::{Assign, DispatchOutput, Dispatcher, Inbox, Job, JobUpdate, Registry, Withdraw, due_by};
use crate::id::{JobId, WorkerId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most failed retries in one pass; the next pass begins where this one ended. With thousands of waiting jobs and a
/// thousand workers, every small change would otherwise cost a million comparisons.
const RETRIES_MAX: usize = 256;

/// Longest pause before another attempt.
const BACKOFF_MAX_MS: u64 = 600_000;

impl<A: Assign> Dispatcher<A> {
    /// The only place that changes a job's state. Asserts that the transition is allowed.
    fn become_state(&mut self, now: Time, id: &JobId, next: JobState, reason: &str) {
        self.unlink(id);
        let epoch = self.config.epoch;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let from = job.record.state;
        debug_assert!(from.may_become(next), "{id}: {from:?} to {next:?}");
        // What a worker reports about itself is in its inbox. The ledger does not repeat it: that saves two writes per job,
        // and a new leader reads the inboxes anyway.
        let recorded = !matches!(next, JobState::Acked | JobState::Running);
        job.record.state = next;
        job.state_since = now;
        if recorded {
            job.record.epoch = epoch;
            job.record.reason = Arc::from(reason);
            job.withdraw = None;
        }
        if next.is_final() {
            job.record.payload = Arc::from([]);
        }
        self.link(id);
        if recorded {
            self.touch(id);
        }
    }

    pub(super) fn cancel(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.record.state.is_final() || job.record.cancel {
            return;
        }
        job.record.cancel = true;
        match job.record.state {
            JobState::Queued => {
                self.become_state(now, id, JobState::Cancelled, "called off before it was dispatched")
            }
            JobState::Dispatched | JobState::Acked | JobState::Running => {
                if job.record.state == JobState::Dispatched {
                    job.withdraw = Some(Withdraw::Cancel);
                }
                // The request goes into the ledger, so that the next leader sees it too.
                self.touch(id);
            }
            JobState::Succeeded
            | JobState::Partial
            | JobState::Failed
            | JobState::TimedOut
            | JobState::Expired
            | JobState::Cancelled
            | JobState::Lost => {}
        }
    }

    pub(super) fn on_workers(
        &mut self,
        now: Time,
        list: BTreeMap<WorkerId, bool>,
        listed: bool,
        whole: bool,
    ) {
        self.gone_since.retain(|worker, _| list.contains_key(worker) || self.inboxes.contains_key(worker));
        let listed = listed || Mutant::JobWorkersNotListed.on();
        let before = self.workers.take().map(|workers| workers.list).unwrap_or_default();
        self.table.touched.extend(before.into_keys().chain(list.keys().cloned()));
        self.workers = Some(Registry { list, listed, whole });
        self.note_gone(now);
    }

    /// Updates who is gone, by the registry's last report. Also covers inboxes found since.
    pub(super) fn note_gone(&mut self, now: Time) {
        let Some(Registry { list, listed, whole }) = &self.workers else { return };
        for worker in self.inboxes.keys().chain(list.keys()) {
            let gone = *listed && list.get(worker).map_or(*whole, |active| !active);
            let news = match gone {
                false => self.gone_since.remove(worker).is_some(),
                true if self.gone_since.contains_key(worker) => false,
                true => self.gone_since.insert(worker.clone(), now).is_none(),
            };
            if news {
                self.table.inboxes.insert(worker.clone());
                self.table.jobs.extend(self.table.out.get(worker).into_iter().flatten().cloned());
            }
        }
        for (worker, inbox) in &mut self.inboxes {
            let unheard = *listed && *whole && !list.contains_key(worker);
            let since = unheard.then(|| inbox.unheard_since.unwrap_or(now));
            if std::mem::replace(&mut inbox.unheard_since, since) != since {
                self.table.inboxes.insert(worker.clone());
            }
        }
        self.table.retry = true;
    }

    /// Gives a worker to the jobs that wait for one, or a reason why there is none. Jobs that already have a reason are tried
    /// again only when something has happened, not too often, and not all at once.
    pub(super) fn assign_waiting(&mut self, now: Time) {
        let all = self.may_retry(now);
        let ids = if all { &self.table.queued } else { &self.table.fresh };
        let waits = |job: &&Job| job.record.state == JobState::Queued && now >= job.not_before;
        let waiting = ids.iter().filter_map(|id| self.jobs.get(id)).filter(waits);
        let mut waiting: Vec<JobId> = waiting.map(|job| job.record.id.clone()).collect();
        // Jobs in a pause become fresh again when it ends.
        let pauses = |id: &JobId| self.jobs.get(id).is_some_and(|job| now < job.not_before);
        self.table.fresh.retain(|id| !pauses(id));
        if all {
            (self.table.retry, self.table.retry_at) = (false, now + self.config.fast_ms / 2);
            if let Some(tried) = self.tried.take() {
                let first = waiting.partition_point(|id| *id <= tried);
                waiting.rotate_left(first);
            }
        }
        let mut vain = 0;
        for id in waiting {
            if all && vain >= RETRIES_MAX {
                // The others get their turn in the next pass.
                (self.tried, self.table.retry) = (Some(id), true);
                return;
            }
            self.tell_loads();
            let Some(job) = self.jobs.get(&id) else { continue };
            let chosen = match &job.record.target {
                Some(target) => Ok(target.clone()),
                None => self.assign.assign(&job.record),
            };
            match chosen {
                Ok(worker) => self.dispatch(now, &id, &worker),
                Err(reason) => {
                    vain += 1;
                    self.explain(now, &id, Arc::from(reason));
                }
            }
        }
    }

    /// Tells whoever chooses which workers have more or less to do than before.
    fn tell_loads(&mut self) {
        for worker in std::mem::take(&mut self.table.touched) {
            // Room means room for any job, however large.
            let fits = self.is_active(&worker) && self.has_room(&worker, JOB_PAYLOAD_MAX_BYTES);
            let in_flight = fits.then(|| self.in_flight(&worker));
            self.assign.load(&worker, in_flight);
        }
    }

    fn dispatch(&mut self, now: Time, id: &JobId, worker: &WorkerId) {
        let Some(job) = self.jobs.get(id) else { return };
        let unreadable = self.inboxes.get(worker).is_some_and(Inbox::is_unreadable);
        let refused = if self.workers.is_none() {
            Some("the workers are not known yet".to_owned())
        } else if !self.is_active(worker) {
            Some(format!("worker {worker} is not active"))
        } else if unreadable {
            Some(format!("the inbox of worker {worker} cannot be read"))
        } else if self.is_closed(worker) {
            Some(format!("worker {worker} drains"))
        } else if !self.has_room(worker, job.record.payload.len()) {
            Some(format!("the inbox of worker {worker} is full"))
        } else {
            None
        };
        if let Some(reason) = refused {
            return self.explain(now, id, Arc::from(reason));
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.record.attempt += 1;
            job.record.worker = Some(worker.clone());
            job.record.given_up = false;
        }
        self.become_state(now, id, JobState::Dispatched, "");
        // Nobody else creates inboxes: one that the list did not show does not exist.
        let writer = self.writer();
        self.inboxes.entry(worker.clone()).or_insert_with(|| Inbox::absent(writer));
        self.table.inboxes.insert(worker.clone());
    }

    /// Notes why a job waits. The reason goes to the store with the next write of its shard. If it lasts, it gets a write
    /// of its own, shared with all other reasons of the shard, so that whoever reads the ledger from outside sees it.
    pub(super) fn explain(&mut self, now: Time, id: &JobId, reason: Arc<str>) {
        let queued = |job: &&mut Job| job.record.state == JobState::Queued && job.record.reason != reason;
        self.table.fresh.remove(id);
        let Some(job) = self.jobs.get_mut(id).filter(queued) else { return };
        job.record.reason = Arc::clone(&reason);
        let shard = job_shard(&job.record.series, self.config.shards);
        self.parts[shard].stale_since.get_or_insert(now);
    }

    /// Writes reasons that have lasted.
    pub(super) fn keep_reasons(&mut self, now: Time) {
        let slow_ms = self.config.slow_ms;
        for part in self.parts.iter_mut().filter(|part| part.is_owned()) {
            if part.stale_since.is_some_and(|since| now >= since + slow_ms) {
                part.stale_since = None;
                part.document.touch();
            }
        }
    }

    /// When the job next needs judging by itself.
    pub(super) fn due(&self, now: Time, job: &Job) -> Option<Time> {
        let (record, limits) = (&job.record, &job.record.limits);
        if record.state.is_final() || job.known_since == Time(u64::MAX) || job.withdraw.is_some() {
            return None;
        }
        let deadline = (limits.deadline_ms > 0).then(|| job.known_since + limits.deadline_ms);
        let own = match record.state {
            JobState::Queued => {
                let expiry = job.waits_since + limits.ttl_ms;
                [Some(expiry), Some(job.not_before)]
            }
            JobState::Dispatched => {
                let claim = job.state_since + self.config.claim_timeout_ms;
                [Some(claim), Some(job.waits_since + limits.ttl_ms)]
            }
            JobState::Acked => [None, None],
            JobState::Running => [Some(job.state_since + limits.timeout_ms + self.config.margin_ms), None],
            JobState::Succeeded
            | JobState::Partial
            | JobState::Failed
            | JobState::TimedOut
            | JobState::Expired
            | JobState::Cancelled
            | JobState::Lost => [None, None],
        };
        own.into_iter().flatten().chain(deadline).filter(|at| *at > now).min()
    }

    /// Judges every job that changed or may be due.
    pub(super) fn judge(&mut self, now: Time) {
        let due: Vec<JobId> = due_by(&self.table.job_timers, now).cloned().collect();
        let mut ids = std::mem::take(&mut self.table.jobs);
        ids.extend(due);
        for id in &ids {
            if self.jobs.get(id).is_some_and(|job| !job.record.state.is_final()) {
                self.judge_one(now, id);
                self.conclude_withdrawal(now, id);
            }
        }
        for id in &ids {
            self.retime(now, id);
        }
    }

    fn judge_one(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.known_since == Time(u64::MAX) {
            (job.known_since, job.state_since, job.waits_since) = (now, now, now);
        }
        let job = &self.jobs[id];
        let (record, limits) = (&job.record, &job.record.limits);
        let late = limits.deadline_ms > 0 && now.since(job.known_since) >= limits.deadline_ms;
        let waited_ms = now.since(job.state_since);
        let unclaimed_ms = now.since(job.waits_since);
        let worker = record.worker.clone();
        let gone = worker.as_ref().and_then(|worker| self.gone_since.get(worker)).copied();
        match record.state {
            JobState::Queued => {
                if job.timer.is_some_and(|at| at <= now) && now >= job.not_before {
                    self.table.fresh.insert(id.clone());
                }
                if late || unclaimed_ms >= limits.ttl_ms {
                    let reason = format!("nobody claimed it in time: {}", record.reason);
                    self.become_state(now, id, JobState::Expired, &reason);
                }
            }
            JobState::Dispatched => {
                let inbox = worker.as_ref().and_then(|worker| self.inboxes.get(worker));
                let unreadable = inbox.is_some_and(Inbox::is_unreadable);
                let closed = worker.as_ref().is_some_and(|worker| self.is_closed(worker));
                let overdue = waited_ms >= self.config.claim_timeout_ms;
                if unreadable && overdue {
                    // It is unknown whether it was claimed.
                    return self.give_up(
                        now,
                        id,
                        OutcomeKind::Abandoned,
                        "the worker's inbox cannot be read",
                    );
                }
                let why = if record.cancel {
                    Some(Withdraw::Cancel)
                } else if late || unclaimed_ms >= limits.ttl_ms {
                    Some(Withdraw::Expire)
                } else {
                    (gone.is_some() || closed || overdue).then_some(Withdraw::Requeue)
                };
                if let Some(job) = self.jobs.get_mut(id).filter(|job| job.withdraw.is_none()) {
                    job.withdraw = why;
                }
                self.table.inboxes.extend(worker);
            }
            JobState::Acked | JobState::Running => {
                let running = record.state == JobState::Running;
                if late {
                    return self.give_up(now, id, OutcomeKind::TimedOut, "its deadline has passed");
                }
                if running && waited_ms >= limits.timeout_ms + self.config.margin_ms {
                    return self.give_up(now, id, OutcomeKind::TimedOut, "the worker did not end it in time");
                }
                let halfway = limits.timeout_ms / 2 <= waited_ms;
                if Mutant::JobReassignedWhileRun.on() && halfway {
                    return self.give_up(now, id, OutcomeKind::Abandoned, "it takes long");
                }
                let inbox = worker.as_ref().and_then(|worker| self.inboxes.get_mut(worker));
                let (Some(gone), Some(inbox)) = (gone, inbox) else { return };
                // The worker may have finished its work before it left: only a later look tells.
                if inbox.read_sent.is_some_and(|sent| sent >= gone) && !inbox.document.is_busy() {
                    self.give_up(now, id, OutcomeKind::Abandoned, "its worker fell silent");
                } else {
                    inbox.document.refresh();
                    self.table.inboxes.extend(worker);
                }
            }
            JobState::Succeeded
            | JobState::Partial
            | JobState::Failed
            | JobState::TimedOut
            | JobState::Expired
            | JobState::Cancelled
            | JobState::Lost => {}
        }
    }

    /// An entry to be withdrawn is gone from an inbox that nobody else can have written: it never ran and never will.
    fn conclude_withdrawal(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (Some(why), Some(worker)) = (job.withdraw, &job.record.worker) else { return };
        let Some(inbox) = self.inboxes.get(worker) else { return };
        let out = inbox.entry(id, job.record.attempt).is_none() && inbox.is_firm();
        if !out && !Mutant::JobWithdrawnUnwritten.on() {
            return;
        }
        let (next, reason) = match why {
            Withdraw::Requeue => (JobState::Queued, format!("worker {worker} did not claim it")),
            Withdraw::Expire => (JobState::Expired, format!("worker {worker} did not claim it in time")),
            Withdraw::Cancel => (JobState::Cancelled, "called off before it was claimed".to_owned()),
        };
        if let Some(job) = self.jobs.get_mut(id) {
            job.record.unbegun += 1;
        }
        self.become_state(now, id, next, &reason);
    }

    /// Stops waiting for an attempt's result: one that still arrives is late.
    pub(super) fn give_up(&mut self, now: Time, id: &JobId, kind: OutcomeKind, why: &str) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.record.given_up = true;
            self.counts.lost += u64::from(kind == OutcomeKind::Abandoned);
        }
        self.conclude(now, id, &Outcome::bare(kind), why);
    }

    /// An attempt has ended.
    pub(super) fn conclude(&mut self, now: Time, id: &JobId, outcome: &Outcome, why: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let (cancel, limits) = (job.record.cancel, job.record.limits.clone());
        let ended = match outcome.kind {
            OutcomeKind::Succeeded => Some(JobState::Succeeded),
            OutcomeKind::Partial => Some(JobState::Partial),
            OutcomeKind::Failed
            | OutcomeKind::TimedOut
            | OutcomeKind::Cancelled
            | OutcomeKind::Abandoned
            | OutcomeKind::Returned
                if cancel =>
            {
                Some(JobState::Cancelled)
            }
            OutcomeKind::Failed => Some(JobState::Failed),
            OutcomeKind::TimedOut => Some(JobState::TimedOut),
            OutcomeKind::Cancelled | OutcomeKind::Abandoned => Some(JobState::Lost),
            OutcomeKind::Returned => None,
        };
        let Some(ended) = ended else {
            job.record.unbegun += 1;
            job.waits_since = now;
            return self.become_state(now, id, JobState::Queued, "its worker gave it back");
        };
        job.record.result = outcome.result.clone();
        let begun = job.record.begun();
        let late = limits.deadline_ms > 0 && now.since(job.known_since) >= limits.deadline_ms;
        let again = match ended {
            JobState::Failed | JobState::TimedOut | JobState::Lost => {
                !late && (begun < limits.attempts_max || Mutant::JobAttemptsUnbounded.on())
            }
            JobState::Succeeded | JobState::Partial | JobState::Cancelled | JobState::Expired => false,
            JobState::Queued | JobState::Dispatched | JobState::Acked | JobState::Running => false,
        };
        if !again {
            return self.become_state(now, id, ended, why);
        }
        let pause_ms = limits.backoff_ms.saturating_mul(1 << begun.saturating_sub(1).min(20));
        let not_before = now + pause_ms.min(BACKOFF_MAX_MS);
        let words = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let reason = format!("attempt {begun} ended as {}{words}", ended.as_str());
        self.become_state(now, id, JobState::Queued, &reason);
        if let Some(job) = self.jobs.get_mut(id) {
            (job.not_before, job.waits_since) = (not_before, now);
        }
    }

    /// The result of an attempt that had been given up: recorded, but not applied.
    pub(super) fn record_late(&mut self, worker: &WorkerId, id: &JobId, attempt: u32, kind: OutcomeKind) {
        self.counts.late += 1;
        let reopens = Mutant::JobLateResultReopens.on() && kind == OutcomeKind::Failed;
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.record.late.len() < JOB_LATE_MAX {
            job.record.late.push(LateResult { attempt, worker: worker.clone(), kind });
        }
        if reopens && job.record.state.is_final() {
            self.unlink(id);
            if let Some(job) = self.jobs.get_mut(id) {
                job.record.state = JobState::Queued;
            }
            self.link(id);
        }
        self.touch(id);
        let Some(Job { record, .. }) = self.jobs.get(id) else { return };
        self.news.push(DispatchOutput::Update(JobUpdate {
            id: id.clone(),
            series: record.series.clone(),
            state: record.state,
            attempt,
            worker: Some(worker.clone()),
            reason: Arc::from("a result of an attempt that was given up"),
            result: Arc::from([]),
            late: Some(kind),
        }));
    }
}
