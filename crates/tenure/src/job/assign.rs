//! Who does a job that names no worker.

use crate::workers::WorkerInfo;
use tenure_core::JobRecord;
use tenure_core::WorkerId;

/// A worker that could be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// What the registry knows about it. It is active.
    pub worker: WorkerInfo,
    /// Attempts out at this worker.
    pub in_flight: usize,
}

/// Chooses workers. Called on the leader, in its dispatcher's task: it must not block.
pub trait Assign: Send + Sync + 'static {
    /// The worker for this job, chosen from the active ones with room in their inbox, which come in id order; or why there
    /// is none, which the job then shows as its reason. Called again when something has happened, but not after every
    /// change if many jobs wait.
    fn assign(&self, job: &JobRecord, candidates: &[Candidate]) -> Result<WorkerId, String>;
}

/// The worker with the least to do; among equals, the first by id. The worker that had the job last is chosen only if there
/// is nobody else: it did not claim the job, fell silent, or failed.
///
/// It cannot know which workers run jobs at all: if some do not, use another strategy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeastLoaded;

impl Assign for LeastLoaded {
    fn assign(&self, job: &JobRecord, candidates: &[Candidate]) -> Result<WorkerId, String> {
        let had_it = |candidate: &Candidate| job.worker.as_ref() == Some(&candidate.worker.worker_id);
        let least = candidates.iter().min_by_key(|candidate| (had_it(candidate), candidate.in_flight));
        least
            .map(|candidate| candidate.worker.worker_id.clone())
            .ok_or_else(|| "no active worker has room in its inbox".to_owned())
    }
}
