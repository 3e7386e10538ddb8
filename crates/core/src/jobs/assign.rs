//! Who does a job that names no worker.

use super::JobRecord;
use crate::id::WorkerId;
use std::collections::BTreeMap;

/// Chooses workers. It is told about the load of every worker before it is asked, so that a choice among a thousand workers
/// costs no search through their inboxes.
pub trait Assign {
    /// What it goes by besides load.
    type Facts;

    fn learn(&mut self, facts: Self::Facts);

    /// How many attempts are out at a worker now; `None` if it can be given nothing: it is not active, or its inbox has no
    /// room for a job of any size.
    fn load(&mut self, worker: &WorkerId, in_flight: Option<usize>);

    /// The worker for this job, or why there is none, which the job then shows as its reason. Asked again when something has
    /// happened, but not after every change if many jobs wait.
    fn assign(&mut self, job: &JobRecord) -> Result<WorkerId, String>;
}

/// The worker with the least to do; among equals, the first by id. The worker that had the job last is chosen only if there
/// is nobody else: it did not claim the job, fell silent, or failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LeastLoaded {
    loads: BTreeMap<WorkerId, usize>,
}

impl Assign for LeastLoaded {
    type Facts = ();

    fn learn(&mut self, (): ()) {}

    fn load(&mut self, worker: &WorkerId, in_flight: Option<usize>) {
        match in_flight {
            Some(in_flight) => self.loads.insert(worker.clone(), in_flight),
            None => self.loads.remove(worker),
        };
    }

    fn assign(&mut self, job: &JobRecord) -> Result<WorkerId, String> {
        let had_it = |worker: &WorkerId| job.worker.as_ref() == Some(worker);
        let least = self.loads.iter().min_by_key(|(worker, in_flight)| (had_it(worker), **in_flight));
        least
            .map(|(worker, _)| worker.clone())
            .ok_or_else(|| "no active worker has room in its inbox".to_owned())
    }
}
