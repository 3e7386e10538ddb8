//! What follows from the jobs, and what changed about them.

use super::super::model::JOB_OBJECT_MAX_WEIGHT;
use super::super::model::JobRecord;
use super::super::serves::Labels;
use super::{Job, JobId, JobState, Time, WorkerId};
use crate::id::{KindName, QueueName};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Jobs that the same workers can take. If there is none for one of them, there is none for the others.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(in crate::jobs) struct Class {
    pub(in crate::jobs) queue: QueueName,
    kind: KindName,
    needs: Labels,
    commands: Arc<[Vec<String>]>,
    pub(in crate::jobs) target: Option<WorkerId>,
}

impl Class {
    pub(in crate::jobs) fn of(record: &JobRecord) -> Class {
        Class {
            queue: record.queue.clone(),
            kind: record.kind.clone(),
            needs: record.needs.clone(),
            commands: Arc::clone(&record.commands),
            target: record.target.clone(),
        }
    }
}

/// Where a job stands among those that wait: higher priorities first, then older ones.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(in crate::jobs) struct Place(Reverse<u8>, i64, pub(in crate::jobs) JobId);

impl Place {
    pub(in crate::jobs) fn of(record: &JobRecord) -> Place {
        Place(Reverse(record.priority), record.submitted_ms, record.id.clone())
    }
}

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
    /// How many of each queue are out.
    pub(in crate::jobs) out_of: BTreeMap<QueueName, u32>,
    pub(in crate::jobs) queued: usize,
    /// Those of the queued ones that are not in a pause.
    pub(in crate::jobs) ready: BTreeMap<Class, BTreeSet<Place>>,
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
        self.queued += usize::from(record.state == JobState::Queued);
        if job.is_ready() {
            self.ready.entry(Class::of(record)).or_default().insert(Place::of(record));
        }
        if let Some(worker) = job.out_at() {
            *self.out_of.entry(record.queue.clone()).or_default() += 1;
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
        self.queued -= usize::from(record.state == JobState::Queued);
        if job.is_ready() {
            let class = Class::of(record);
            if let Some(places) = self.ready.get_mut(&class) {
                places.remove(&Place::of(record));
                if places.is_empty() {
                    self.ready.remove(&class);
                }
            }
        }
        if let Some(worker) = job.out_at() {
            if let Some(out) = self.out_of.get_mut(&record.queue) {
                *out -= 1;
                if *out == 0 {
                    self.out_of.remove(&record.queue);
                }
            }
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

/// What changed since somebody last took it up.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::jobs) struct Changes {
    /// To be judged again.
    pub(in crate::jobs) unjudged: BTreeSet<JobId>,
    /// May have something to report.
    pub(in crate::jobs) untold: BTreeSet<JobId>,
    /// Ready to be given to a worker, and nobody has looked for one yet.
    pub(in crate::jobs) fresh: BTreeSet<JobId>,
    /// Workers whose inbox may have to change.
    pub(in crate::jobs) inboxes: BTreeSet<WorkerId>,
    /// Workers whose load has changed.
    pub(in crate::jobs) loads: BTreeSet<WorkerId>,
    /// Something happened that may give a worker to jobs without one.
    pub(in crate::jobs) retry: bool,
}

impl Changes {
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
        if job.is_ready() {
            self.fresh.insert(id.clone());
            self.retry = true;
        }
        if let Some(worker) = job.out_at() {
            self.loads.insert(worker.clone());
            self.inboxes.insert(worker.clone());
        }
        self.unjudged.insert(id.clone());
        self.untold.insert(id.clone());
    }
}
