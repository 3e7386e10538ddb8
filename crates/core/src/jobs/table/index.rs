//! What follows from the jobs, and what happened to them.

use super::super::model::JOB_OBJECT_MAX_WEIGHT;
use super::{Job, JobId, JobState, Time, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::jobs) struct ShardJobs {
    pub(in crate::jobs) ids: BTreeSet<JobId>,
    pub(in crate::jobs) weight: usize,
    pub(in crate::jobs) finished: usize,
}

impl ShardJobs {
    pub(in crate::jobs) fn is_crowded(&self) -> bool {
        self.weight * 2 > JOB_OBJECT_MAX_WEIGHT
    }
}

/// What a search through all jobs would say.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::jobs) struct Index {
    pub(in crate::jobs) shards: Vec<ShardJobs>,
    /// Jobs out at each worker, how many these are, and how many of them are claimed.
    pub(in crate::jobs) out: BTreeMap<WorkerId, BTreeSet<JobId>>,
    pub(in crate::jobs) in_flight: usize,
    pub(in crate::jobs) claimed: usize,
    pub(in crate::jobs) queued: BTreeSet<JobId>,
    pub(in crate::jobs) timers: BTreeSet<(Time, JobId)>,
}

impl Index {
    pub(super) fn of<'a>(shards: usize, jobs: impl Iterator<Item = &'a Job>) -> Index {
        let mut index = Index { shards: vec![ShardJobs::default(); shards], ..Index::default() };
        jobs.for_each(|job| index.put(job));
        index
    }

    pub(super) fn put(&mut self, job: &Job) {
        let (record, id) = (&job.record, &job.record.id);
        let shard = &mut self.shards[job.shard];
        shard.ids.insert(id.clone());
        shard.weight += record.weight();
        shard.finished += usize::from(record.state.is_final());
        if record.state == JobState::Queued {
            self.queued.insert(id.clone());
        }
        if let Some(worker) = job.out_at() {
            self.out.entry(worker.clone()).or_default().insert(id.clone());
            self.in_flight += 1;
            self.claimed += usize::from(record.state != JobState::Dispatched);
        }
        self.timers.extend(job.timer.map(|at| (at, id.clone())));
    }

    pub(super) fn take(&mut self, job: &Job) {
        let (record, id) = (&job.record, &job.record.id);
        let shard = &mut self.shards[job.shard];
        shard.ids.remove(id);
        shard.weight -= record.weight();
        shard.finished -= usize::from(record.state.is_final());
        self.queued.remove(id);
        if let Some(worker) = job.out_at() {
            if let Some(out) = self.out.get_mut(worker) {
                out.remove(id);
                if out.is_empty() {
                    self.out.remove(worker);
                }
            }
            self.in_flight -= 1;
            self.claimed -= usize::from(record.state != JobState::Dispatched);
        }
        if let Some(at) = job.timer {
            self.timers.remove(&(at, id.clone()));
        }
    }
}

/// What happened to the jobs, until somebody asks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::jobs) struct News {
    /// To be judged again.
    pub(in crate::jobs) changed: BTreeSet<JobId>,
    /// May have something to report.
    pub(in crate::jobs) untold: BTreeSet<JobId>,
    /// Queued, and nobody has looked for a worker yet.
    pub(in crate::jobs) fresh: BTreeSet<JobId>,
    /// Workers whose inbox may have to change.
    pub(in crate::jobs) inboxes: BTreeSet<WorkerId>,
    /// Workers whose load has changed.
    pub(in crate::jobs) loads: BTreeSet<WorkerId>,
    /// Something happened that may give a worker to jobs without one.
    pub(in crate::jobs) retry: bool,
}

impl News {
    /// A job is about to change, or is gone.
    pub(super) fn left(&mut self, job: &Job) {
        self.fresh.remove(&job.record.id);
        if let Some(worker) = job.out_at() {
            self.loads.insert(worker.clone());
            self.inboxes.insert(worker.clone());
            self.retry = true;
        }
    }

    /// A job has changed, or is new.
    pub(super) fn came(&mut self, job: &Job) {
        let id = &job.record.id;
        if job.record.state == JobState::Queued {
            self.fresh.insert(id.clone());
        }
        if let Some(worker) = job.out_at() {
            self.loads.insert(worker.clone());
            self.inboxes.insert(worker.clone());
        }
        self.changed.insert(id.clone());
        self.untold.insert(id.clone());
    }
}
