//! Who can be given a job. Updated incrementally, because there may be a thousand workers and many jobs per second.

use super::assign::{Assign, Candidate};
use crate::workers::WorkerInfo;
use std::sync::Arc;
use tenure_core::{JobRecord, WorkerId};

/// Active workers with room in their inbox, in id order, and whoever chooses among them.
pub(super) struct Pool {
    assign: Arc<dyn Assign>,
    list: Arc<[WorkerInfo]>,
    candidates: Vec<Candidate>,
}

impl Pool {
    pub(super) fn new(assign: Arc<dyn Assign>) -> Pool {
        Pool { assign, list: Arc::default(), candidates: Vec::new() }
    }
}

impl tenure_core::Assign for Pool {
    type Facts = Arc<[WorkerInfo]>;

    /// The registry's list, in id order. The load of all of them is told anew after it.
    fn learn(&mut self, list: Arc<[WorkerInfo]>) {
        self.list = list;
        self.candidates.clear();
    }

    fn load(&mut self, worker: &WorkerId, in_flight: Option<usize>) {
        let info = self.list.binary_search_by(|info| info.worker_id.cmp(worker)).ok();
        let info = info.and_then(|place| self.list.get(place));
        let candidate = info.zip(in_flight);
        let candidate = candidate.map(|(info, in_flight)| Candidate { worker: info.clone(), in_flight });
        let place = self.candidates.binary_search_by(|known| known.worker.worker_id.cmp(worker));
        match (place, candidate) {
            (Ok(place), Some(candidate)) => self.candidates[place] = candidate,
            (Ok(place), None) => {
                self.candidates.remove(place);
            }
            (Err(place), Some(candidate)) => self.candidates.insert(place, candidate),
            (Err(_), None) => {}
        }
    }

    fn assign(&mut self, job: &JobRecord) -> Result<WorkerId, String> {
        self.assign.assign(job, &self.candidates).map_err(|reason| crate::wire::told(&reason))
    }
}
