//! The index saves a search through all jobs and all inboxes at every step: who has what, what waits, what changed and
//! needs another look. All of it follows from the jobs and inboxes; it decides nothing by itself.
//!
//! A step costs what changed, not what exists. In case a change was ever not marked, everything is checked now and then.

use super::super::{JobState, job_shard};
use super::{Assign, Dispatcher, Job};
use crate::id::{JobId, WorkerId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Table {
    /// Jobs out at each worker.
    pub(super) out: BTreeMap<WorkerId, BTreeSet<JobId>>,
    pub(super) in_flight: usize,
    /// How many of these are claimed.
    pub(super) claimed: usize,
    pub(super) queued: BTreeSet<JobId>,
    /// Queued jobs for which nobody has looked for a worker yet.
    pub(super) fresh: BTreeSet<JobId>,
    /// Jobs to judge again.
    pub(super) jobs: BTreeSet<JobId>,
    /// When each job next needs judging.
    pub(super) job_timers: BTreeSet<(Time, JobId)>,
    /// Jobs that may have something to report.
    pub(super) untold: BTreeSet<JobId>,
    /// Inboxes that need another look.
    pub(super) inboxes: BTreeSet<WorkerId>,
    pub(super) inbox_timers: BTreeSet<(Time, WorkerId)>,
    /// Inboxes in which something is claimed.
    pub(super) claimed_in: BTreeSet<WorkerId>,
    /// Inboxes whose workers take no more jobs.
    pub(super) closed_in: BTreeSet<WorkerId>,
    /// Workers whose load has changed.
    pub(super) touched: BTreeSet<WorkerId>,
    /// Something happened that may give a worker to jobs without one.
    pub(super) retry: bool,
    pub(super) retry_at: Time,
    pub(super) sweep_at: Time,
}

impl<A: Assign> Dispatcher<A> {
    /// Takes a job out of the table. Must come before its state, worker or payload changes.
    pub(super) fn unlink(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let record = &job.record;
        let shard = &mut self.parts[job_shard(&record.series, self.config.shards)];
        shard.jobs.remove(id);
        shard.weight -= record.weight();
        shard.finished -= usize::from(record.state.is_final());
        let table = &mut self.table;
        if record.state == JobState::Queued {
            table.queued.remove(id);
            table.fresh.remove(id);
        }
        if let Some(worker) = record.worker.as_ref().filter(|_| record.state.is_out()) {
            if let Some(out) = table.out.get_mut(worker) {
                out.remove(id);
                if out.is_empty() {
                    table.out.remove(worker);
                }
            }
            table.in_flight -= 1;
            table.claimed -= usize::from(record.state != JobState::Dispatched);
            table.touched.insert(worker.clone());
            table.inboxes.insert(worker.clone());
            table.retry = true;
        }
    }

    /// Puts the job back, as it is now.
    pub(super) fn link(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let record = &job.record;
        let shard = &mut self.parts[job_shard(&record.series, self.config.shards)];
        shard.jobs.insert(id.clone());
        shard.weight += record.weight();
        shard.finished += usize::from(record.state.is_final());
        let table = &mut self.table;
        if record.state == JobState::Queued {
            table.queued.insert(id.clone());
            table.fresh.insert(id.clone());
        }
        if let Some(worker) = record.worker.as_ref().filter(|_| record.state.is_out()) {
            table.out.entry(worker.clone()).or_default().insert(id.clone());
            table.in_flight += 1;
            table.claimed += usize::from(record.state != JobState::Dispatched);
            table.touched.insert(worker.clone());
            table.inboxes.insert(worker.clone());
        }
        table.jobs.insert(id.clone());
        table.untold.insert(id.clone());
    }

    pub(super) fn insert_job(&mut self, job: Job) {
        let id = job.record.id.clone();
        self.remove_job(&id);
        self.jobs.insert(id.clone(), job);
        self.link(&id);
    }

    pub(super) fn remove_job(&mut self, id: &JobId) {
        self.unlink(id);
        if let Some(job) = self.jobs.remove(id) {
            if let Some(at) = job.timer {
                self.table.job_timers.remove(&(at, id.clone()));
            }
            let shard = job_shard(&job.record.series, self.config.shards);
            self.parts[shard].unconfirmed.remove(id);
        }
    }

    /// A job changed in a way that the ledger must record.
    pub(super) fn touch(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let shard = &mut self.parts[job_shard(&job.record.series, self.config.shards)];
        job.revision = shard.document.touch();
        shard.unconfirmed.insert(id.clone());
        self.table.jobs.insert(id.clone());
        if let Some(worker) = &job.record.worker {
            self.table.inboxes.insert(worker.clone());
        }
    }

    /// More of a shard is on the store than before.
    pub(super) fn confirmed(&mut self, shard: usize) {
        for id in std::mem::take(&mut self.parts[shard].unconfirmed) {
            let Some(job) = self.jobs.get(&id) else { continue };
            if !self.parts[shard].document.is_confirmed(job.revision) {
                self.parts[shard].unconfirmed.insert(id);
                continue;
            }
            if let Some(worker) = &job.record.worker {
                self.table.inboxes.insert(worker.clone());
            }
            self.table.untold.insert(id);
        }
    }

    /// The content of an inbox has changed.
    pub(super) fn inbox_changed(&mut self, worker: &WorkerId) {
        let Some(inbox) = self.inboxes.get(worker) else { return };
        let table = &mut self.table;
        match inbox.entries().iter().any(super::super::Entry::is_claimed) {
            true => table.claimed_in.insert(worker.clone()),
            false => table.claimed_in.remove(worker),
        };
        match inbox.is_closed() {
            true => table.closed_in.insert(worker.clone()),
            false => table.closed_in.remove(worker),
        };
        table.inboxes.insert(worker.clone());
        table.touched.insert(worker.clone());
        table.retry = true;
        if let Some(out) = table.out.get(worker) {
            table.jobs.extend(out.iter().cloned());
        }
    }

    pub(super) fn look_at_all_inboxes(&mut self) {
        self.table.inboxes.extend(self.inboxes.keys().cloned());
    }

    /// Marks everything for a check, now and then.
    pub(super) fn sweep(&mut self, now: Time) {
        if now < self.table.sweep_at {
            return;
        }
        self.table.sweep_at = now + self.recorded_results_ms();
        let out = self.table.out.values().flatten().cloned();
        let jobs: Vec<JobId> = out.chain(self.table.queued.iter().cloned()).collect();
        self.table.jobs.extend(jobs);
        self.look_at_all_inboxes();
    }

    /// What is wrong with the index, if anything: it must agree with a full search, and checking everything right after an
    /// advance must find nothing to do. For tests.
    #[doc(hidden)]
    pub fn table_fault(&self, now: Time) -> Option<String>
    where
        A: Clone,
    {
        let (mut fresh, mut again) =
            (Dispatcher::new(self.config.clone(), self.assign.clone()), self.clone());
        for job in self.jobs.values() {
            fresh.insert_job(Job { timer: None, ..job.clone() });
        }
        let (mine, whole) = (&self.table, &fresh.table);
        if (&mine.out, mine.in_flight, mine.claimed) != (&whole.out, whole.in_flight, whole.claimed) {
            return Some(format!("out: {:?}, by a search {:?}", mine.out, whole.out));
        }
        if mine.queued != whole.queued || !mine.fresh.is_subset(&mine.queued) {
            return Some(format!("queued: {:?}, by a search {:?}", mine.queued, whole.queued));
        }
        let shard = |shard: &super::Part| (shard.jobs.clone(), shard.weight, shard.finished);
        if !self.parts.iter().map(shard).eq(fresh.parts.iter().map(shard)) {
            return Some("the shards' jobs, weights or finished ones".to_owned());
        }
        let unmarked = self.jobs.values().find(|job| {
            !self.is_confirmed(job)
                && !self.parts[self.shard_of(&job.record)].unconfirmed.contains(&job.record.id)
        });
        if let Some(job) = unmarked {
            return Some(format!("{} changed, and its confirmation is not waited for", job.record.id));
        }
        if self.is_ready() {
            again.table.jobs.extend(self.jobs.keys().cloned());
            again.judge(now);
            // Marked jobs are judged with the next advance.
            let other = |(a, b): &(&Job, &Job)| {
                let marked = self.table.jobs.contains(&a.record.id);
                !marked && (&a.record, a.withdraw) != (&b.record, b.withdraw)
            };
            if let Some((before, after)) = self.jobs.values().zip(again.jobs.values()).find(other) {
                return Some(format!("not judged: {before:?} would be {after:?}"));
            }
        }
        None
    }

    /// Updates when a job needs judging next, going by time alone.
    pub(super) fn retime(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (before, after) = (job.timer, self.due(now, job));
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.table.job_timers.remove(&(before, id.clone()));
        }
        if let Some(after) = after {
            self.table.job_timers.insert((after, id.clone()));
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.timer = after;
        }
    }

    pub(super) fn retime_inbox(&mut self, worker: &WorkerId, after: Option<Time>) {
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        let before = std::mem::replace(&mut inbox.timer, after);
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.table.inbox_timers.remove(&(before, worker.clone()));
        }
        if let Some(after) = after {
            self.table.inbox_timers.insert((after, worker.clone()));
        }
    }
}

/// The ids whose time has come.
pub(super) fn due_by<T: Ord>(timers: &BTreeSet<(Time, T)>, now: Time) -> impl Iterator<Item = &T> {
    timers.iter().take_while(move |(at, _)| *at <= now).map(|(_, id)| id)
}

/// The first time after now.
pub(super) fn first_after<T: Ord>(timers: &BTreeSet<(Time, T)>, now: Time) -> Option<Time> {
    timers.iter().map(|(at, _)| *at).find(|at| *at > now)
}
