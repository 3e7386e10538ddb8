//! What happens to a task: it is dispatched, taken back, given up, tried again, or over.

use super::super::shard::Hold;
use super::super::{LateResult, Outcome, OutcomeKind, TASK_LATE_MAX, TaskState, task_shard};
use super::{Dispatcher, Registry, TakeBack, Task, TaskUpdate, due_by};
use crate::id::{JobId, WorkerId};

use crate::mutant::Mutant;
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest pause before another attempt.
const BACKOFF_MAX_MS: u64 = 600_000;

impl Dispatcher {
    /// The only place that changes a task's state. Asserts that the transition is allowed.
    fn become_state(&mut self, now: Time, id: &JobId, next: TaskState, reason: &str) {
        self.unlink(id);
        let epoch = self.config.epoch;
        let Some(task) = self.tasks.get_mut(id) else { return };
        let from = task.record.state;
        debug_assert!(from.may_become(next), "{id}: {from:?} to {next:?}");
        // What a worker reports about itself is in its inbox. The ledger does not repeat it: that saves two writes per task,
        // and a new leader reads the inboxes anyway.
        let recorded = !matches!(next, TaskState::Acked | TaskState::Running);
        task.record.state = next;
        task.state_since = now;
        if recorded {
            task.record.epoch = epoch;
            task.record.reason = Arc::from(reason);
            task.take_back = None;
        }
        if next.is_final() {
            task.record.payload = Arc::from([]);
        }
        self.link(id);
        if recorded {
            self.touch(id);
        }
    }

    pub(super) fn cancel(&mut self, now: Time, id: &JobId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.record.state.is_final() || task.record.cancel {
            return;
        }
        task.record.cancel = true;
        match task.record.state {
            TaskState::Queued => {
                self.become_state(now, id, TaskState::Cancelled, "called off before it was dispatched")
            }
            TaskState::Dispatched | TaskState::Acked | TaskState::Running => {
                if task.record.state == TaskState::Dispatched {
                    task.take_back = Some(TakeBack::Cancel);
                }
                // The request goes into the ledger, so that the next leader sees it too.
                self.touch(id);
            }
            TaskState::Succeeded
            | TaskState::Partial
            | TaskState::Failed
            | TaskState::TimedOut
            | TaskState::Expired
            | TaskState::Cancelled
            | TaskState::Lost => {}
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
        let listed = listed || self.has(Mutant::TaskWorkersNotListed);
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
                self.index.inboxes.insert(worker.clone());
                self.index.tasks.extend(self.index.out.get(worker).into_iter().flatten().cloned());
            }
        }
        for (worker, inbox) in &mut self.inboxes {
            let unheard = *listed && *whole && !list.contains_key(worker);
            let since = unheard.then(|| inbox.unheard_since.unwrap_or(now));
            if std::mem::replace(&mut inbox.unheard_since, since) != since {
                self.index.inboxes.insert(worker.clone());
            }
        }
        self.index.retry = true;
    }

    pub(super) fn assign_targets(&mut self, now: Time) {
        let all = self.may_retry(now);
        let ids = if all { &self.index.queued } else { &self.index.fresh };
        let waits = |task: &&Task| task.record.state == TaskState::Queued && now >= task.not_before;
        let waiting = ids.iter().filter_map(|id| self.tasks.get(id)).filter(waits);
        let targets: Vec<(JobId, WorkerId)> =
            waiting.filter_map(|task| Some((task.record.id.clone(), task.record.target.clone()?))).collect();
        for (id, worker) in targets {
            self.assign(now, &id, &worker);
        }
        // Tasks in a pause become fresh again when it ends.
        let pauses = |id: &JobId| self.tasks.get(id).is_some_and(|task| now < task.not_before);
        self.index.fresh.retain(|id| !pauses(id));
        if all {
            (self.index.retry, self.index.retry_at) = (false, now + self.config.fast_ms / 2);
        }
    }

    pub(super) fn assign(&mut self, now: Time, id: &JobId, worker: &WorkerId) {
        let Some(task) = self.tasks.get(id) else { return };
        let waits = task.record.state == TaskState::Queued && now >= task.not_before && !task.record.cancel;
        if !waits || !self.is_ready() {
            return;
        }
        let unreadable = self.inboxes.get(worker).is_some_and(|inbox| inbox.unreadable);
        let refused = if self.workers.is_none() {
            Some("the workers are not known yet".to_owned())
        } else if !self.is_active(worker) {
            Some(format!("worker {worker} is not active"))
        } else if unreadable {
            Some(format!("the inbox of worker {worker} cannot be read"))
        } else if self.is_closed(worker) {
            Some(format!("worker {worker} drains"))
        } else if !self.has_room(worker, task.record.payload.len()) {
            Some(format!("the inbox of worker {worker} is full"))
        } else {
            None
        };
        if let Some(reason) = refused {
            if let Some(inbox) = self.inboxes.get_mut(worker).filter(|inbox| inbox.unreadable) {
                inbox.must_read = true;
                self.index.inboxes.insert(worker.clone());
            }
            return self.hold(now, id, Arc::from(reason));
        }
        if let Some(task) = self.tasks.get_mut(id) {
            task.record.attempt += 1;
            task.record.worker = Some(worker.clone());
            task.record.given_up = false;
        }
        self.become_state(now, id, TaskState::Dispatched, "");
        // Nobody else creates inboxes: one that the list did not show does not exist.
        self.inboxes.entry(worker.clone()).or_insert_with(super::Inbox::absent);
        self.index.inboxes.insert(worker.clone());
    }

    /// Notes why a task waits. The reason goes to the store with the next write of its shard. If it lasts, it gets a write
    /// of its own, shared with all other reasons of the shard, so that whoever reads the ledger from outside sees it.
    pub(super) fn hold(&mut self, now: Time, id: &JobId, reason: Arc<str>) {
        let queued =
            |task: &&mut Task| task.record.state == TaskState::Queued && task.record.reason != reason;
        self.index.fresh.remove(id);
        let Some(task) = self.tasks.get_mut(id).filter(queued) else { return };
        task.record.reason = Arc::clone(&reason);
        let shard = task_shard(&task.record.series, self.config.shards);
        self.shards[shard].stale_since.get_or_insert(now);
    }

    /// Writes reasons that have lasted.
    pub(super) fn keep_reasons(&mut self, now: Time) {
        let slow_ms = self.config.slow_ms;
        for shard in self.shards.iter_mut().filter(|shard| shard.hold == Hold::Owned) {
            if shard.stale_since.is_some_and(|since| now >= since + slow_ms) {
                shard.stale_since = None;
                shard.touch();
            }
        }
    }

    /// When the task next needs judging by itself.
    pub(super) fn due(&self, now: Time, task: &Task) -> Option<Time> {
        let (record, limits) = (&task.record, &task.record.limits);
        if record.state.is_final() || task.known_since == Time(u64::MAX) || task.take_back.is_some() {
            return None;
        }
        let deadline = (limits.deadline_ms > 0).then(|| task.known_since + limits.deadline_ms);
        let own = match record.state {
            TaskState::Queued => {
                let expiry = task.waits_since + limits.ttl_ms;
                [Some(expiry), Some(task.not_before)]
            }
            TaskState::Dispatched => {
                let claim = task.state_since + self.config.claim_timeout_ms;
                [Some(claim), Some(task.waits_since + limits.ttl_ms)]
            }
            TaskState::Acked => [None, None],
            TaskState::Running => [Some(task.state_since + limits.timeout_ms + self.config.margin_ms), None],
            TaskState::Succeeded
            | TaskState::Partial
            | TaskState::Failed
            | TaskState::TimedOut
            | TaskState::Expired
            | TaskState::Cancelled
            | TaskState::Lost => [None, None],
        };
        own.into_iter().flatten().chain(deadline).filter(|at| *at > now).min()
    }

    /// Judges every task that changed or may be due.
    pub(super) fn judge(&mut self, now: Time) {
        let due: Vec<JobId> = due_by(&self.index.task_timers, now).cloned().collect();
        let mut ids = std::mem::take(&mut self.index.tasks);
        ids.extend(due);
        for id in &ids {
            if self.tasks.get(id).is_some_and(|task| !task.record.state.is_final()) {
                self.judge_one(now, id);
                self.conclude_take_back(now, id);
            }
        }
        for id in &ids {
            self.retime(now, id);
        }
    }

    fn judge_one(&mut self, now: Time, id: &JobId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.known_since == Time(u64::MAX) {
            (task.known_since, task.state_since, task.waits_since) = (now, now, now);
        }
        let task = &self.tasks[id];
        let (record, limits) = (&task.record, &task.record.limits);
        let late = limits.deadline_ms > 0 && now.since(task.known_since) >= limits.deadline_ms;
        let waited_ms = now.since(task.state_since);
        let unclaimed_ms = now.since(task.waits_since);
        let worker = record.worker.clone();
        let gone = worker.as_ref().and_then(|worker| self.gone_since.get(worker)).copied();
        match record.state {
            TaskState::Queued => {
                if task.timer.is_some_and(|at| at <= now) && now >= task.not_before {
                    self.index.fresh.insert(id.clone());
                }
                if late || unclaimed_ms >= limits.ttl_ms {
                    let reason = format!("nobody claimed it in time: {}", record.reason);
                    self.become_state(now, id, TaskState::Expired, &reason);
                }
            }
            TaskState::Dispatched => {
                let inbox = worker.as_ref().and_then(|worker| self.inboxes.get(worker));
                let unreadable = inbox.is_some_and(|inbox| inbox.unreadable);
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
                    Some(TakeBack::Cancel)
                } else if late || unclaimed_ms >= limits.ttl_ms {
                    Some(TakeBack::Expire)
                } else {
                    (gone.is_some() || closed || overdue).then_some(TakeBack::Requeue)
                };
                if let Some(task) = self.tasks.get_mut(id).filter(|task| task.take_back.is_none()) {
                    task.take_back = why;
                }
                self.index.inboxes.extend(worker);
            }
            TaskState::Acked | TaskState::Running => {
                let running = record.state == TaskState::Running;
                if late {
                    return self.give_up(now, id, OutcomeKind::TimedOut, "its deadline has passed");
                }
                if running && waited_ms >= limits.timeout_ms + self.config.margin_ms {
                    return self.give_up(now, id, OutcomeKind::TimedOut, "the worker did not end it in time");
                }
                let halfway = limits.timeout_ms / 2 <= waited_ms;
                if self.has(Mutant::TaskReassignedWhileRun) && halfway {
                    return self.give_up(now, id, OutcomeKind::Abandoned, "it takes long");
                }
                let inbox = worker.as_ref().and_then(|worker| self.inboxes.get_mut(worker));
                let (Some(gone), Some(inbox)) = (gone, inbox) else { return };
                // The worker may have finished its work before it left: only a later look tells.
                if inbox.read_sent.is_some_and(|sent| sent >= gone) && inbox.flight.is_none() {
                    self.give_up(now, id, OutcomeKind::Abandoned, "its worker fell silent");
                } else {
                    inbox.must_read = true;
                    self.index.inboxes.extend(worker);
                }
            }
            TaskState::Succeeded
            | TaskState::Partial
            | TaskState::Failed
            | TaskState::TimedOut
            | TaskState::Expired
            | TaskState::Cancelled
            | TaskState::Lost => {}
        }
    }

    /// An entry to be taken back is gone from an inbox that nobody else can have written: it never ran and never will.
    fn conclude_take_back(&mut self, now: Time, id: &JobId) {
        let Some(task) = self.tasks.get(id) else { return };
        let (Some(why), Some(worker)) = (task.take_back, &task.record.worker) else { return };
        let Some(inbox) = self.inboxes.get(worker) else { return };
        let out = inbox.entry(id, task.record.attempt).is_none() && self.is_firm(inbox);
        if !out && !self.has(Mutant::TaskTakenBackUnwritten) {
            return;
        }
        let (next, reason) = match why {
            TakeBack::Requeue => (TaskState::Queued, format!("worker {worker} did not claim it")),
            TakeBack::Expire => (TaskState::Expired, format!("worker {worker} did not claim it in time")),
            TakeBack::Cancel => (TaskState::Cancelled, "called off before it was claimed".to_owned()),
        };
        if let Some(task) = self.tasks.get_mut(id) {
            task.record.unbegun += 1;
        }
        self.become_state(now, id, next, &reason);
    }

    /// Stops waiting for an attempt's result: one that still arrives is late.
    pub(super) fn give_up(&mut self, now: Time, id: &JobId, kind: OutcomeKind, why: &str) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.record.given_up = true;
            self.counts.lost += u64::from(kind == OutcomeKind::Abandoned);
        }
        self.conclude(now, id, &Outcome::bare(kind), why);
    }

    /// An attempt has ended.
    pub(super) fn conclude(&mut self, now: Time, id: &JobId, outcome: &Outcome, why: &str) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let (cancel, limits) = (task.record.cancel, task.record.limits.clone());
        let ended = match outcome.kind {
            OutcomeKind::Succeeded => Some(TaskState::Succeeded),
            OutcomeKind::Partial => Some(TaskState::Partial),
            OutcomeKind::Failed
            | OutcomeKind::TimedOut
            | OutcomeKind::Cancelled
            | OutcomeKind::Abandoned
            | OutcomeKind::Returned
                if cancel =>
            {
                Some(TaskState::Cancelled)
            }
            OutcomeKind::Failed => Some(TaskState::Failed),
            OutcomeKind::TimedOut => Some(TaskState::TimedOut),
            OutcomeKind::Cancelled | OutcomeKind::Abandoned => Some(TaskState::Lost),
            OutcomeKind::Returned => None,
        };
        let Some(ended) = ended else {
            task.record.unbegun += 1;
            task.waits_since = now;
            return self.become_state(now, id, TaskState::Queued, "its worker gave it back");
        };
        task.record.result = outcome.result.clone();
        let begun = task.record.begun();
        let late = limits.deadline_ms > 0 && now.since(task.known_since) >= limits.deadline_ms;
        let again = match ended {
            TaskState::Failed | TaskState::TimedOut | TaskState::Lost => {
                !late && (begun < limits.attempts_max || self.has(Mutant::TaskAttemptsUnbounded))
            }
            TaskState::Succeeded | TaskState::Partial | TaskState::Cancelled | TaskState::Expired => false,
            TaskState::Queued | TaskState::Dispatched | TaskState::Acked | TaskState::Running => false,
        };
        if !again {
            return self.become_state(now, id, ended, why);
        }
        let pause_ms = limits.backoff_ms.saturating_mul(1 << begun.saturating_sub(1).min(20));
        let not_before = now + pause_ms.min(BACKOFF_MAX_MS);
        let words = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let reason = format!("attempt {begun} ended as {}{words}", ended.as_str());
        self.become_state(now, id, TaskState::Queued, &reason);
        if let Some(task) = self.tasks.get_mut(id) {
            (task.not_before, task.waits_since) = (not_before, now);
        }
    }

    /// The result of an attempt that had been given up: recorded, but not applied.
    pub(super) fn record_late(&mut self, worker: &WorkerId, id: &JobId, attempt: u32, kind: OutcomeKind) {
        self.counts.late += 1;
        let reopens = self.has(Mutant::TaskLateResultReopens) && kind == OutcomeKind::Failed;
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.record.late.len() < TASK_LATE_MAX {
            task.record.late.push(LateResult { attempt, worker: worker.clone(), kind });
        }
        if reopens && task.record.state.is_final() {
            self.unlink(id);
            if let Some(task) = self.tasks.get_mut(id) {
                task.record.state = TaskState::Queued;
            }
            self.link(id);
        }
        self.touch(id);
        let Some(Task { record, .. }) = self.tasks.get(id) else { return };
        self.updates.push(TaskUpdate {
            id: id.clone(),
            series: record.series.clone(),
            state: record.state,
            attempt,
            worker: Some(worker.clone()),
            reason: Arc::from("a result of an attempt that was given up"),
            result: Arc::from([]),
            late: Some(kind),
        });
    }
}
