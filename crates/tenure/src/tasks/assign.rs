//! Who does a task that names no worker.

use crate::workers::WorkerInfo;
use tenure_core::{NodeId, TaskRecord};

/// A worker that could be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// What the registry knows of it. It is active.
    pub worker: WorkerInfo,
    /// Attempts that are out at it.
    pub in_flight: usize,
}

/// Chooses workers. Called on the leader, in its dispatcher's task: it must not block.
pub trait Assign: Send + Sync + 'static {
    /// The worker for this task, among active ones with room in their inbox; or why there is none, which the task then shows
    /// as its reason. Asked again whenever something has happened.
    fn assign(&self, task: &TaskRecord, candidates: &[Candidate]) -> Result<NodeId, String>;
}

/// The worker with the least to do; of equals the first by id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeastLoaded;

impl Assign for LeastLoaded {
    fn assign(&self, _task: &TaskRecord, candidates: &[Candidate]) -> Result<NodeId, String> {
        let least = candidates.iter().min_by_key(|candidate| candidate.in_flight);
        least
            .map(|candidate| candidate.worker.worker_id.clone())
            .ok_or_else(|| "no active worker with room in its inbox".to_owned())
    }
}
