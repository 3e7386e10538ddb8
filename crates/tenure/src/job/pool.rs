//! Who can be given a job. Updated incrementally, because there may be a thousand workers and many jobs per second.

use super::assign::Candidate;
use crate::workers::WorkerInfo;
use std::sync::Arc;
use tenure_core::WorkerId;
use tenure_core::{Dispatcher, JOB_PAYLOAD_MAX_BYTES};

/// Active workers with room in their inbox, in id order.
#[derive(Default)]
pub(super) struct Pool {
    list: Option<Arc<[WorkerInfo]>>,
    candidates: Vec<Candidate>,
}

impl Pool {
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Applies what changed: the registry's list, in id order, and the workers' load.
    pub(super) fn refresh(&mut self, list: &Arc<[WorkerInfo]>, machine: &mut Dispatcher) {
        let touched = machine.take_touched();
        if self.list.as_ref().is_some_and(|known| Arc::ptr_eq(known, list)) {
            for worker in touched {
                let place = list.binary_search_by(|info| info.worker_id.cmp(&worker));
                if let Some(info) = place.ok().and_then(|place| list.get(place)) {
                    self.update(info, machine);
                }
            }
            return;
        }
        self.candidates = list.iter().filter_map(|info| candidate(info, machine)).collect();
        self.list = Some(Arc::clone(list));
    }

    fn update(&mut self, info: &WorkerInfo, machine: &Dispatcher) {
        let place = self.place(&info.worker_id);
        match (place, candidate(info, machine)) {
            (Ok(place), Some(candidate)) => self.candidates[place] = candidate,
            (Ok(place), None) => {
                self.candidates.remove(place);
            }
            (Err(place), Some(candidate)) => self.candidates.insert(place, candidate),
            (Err(_), None) => {}
        }
    }

    fn place(&self, worker: &WorkerId) -> Result<usize, usize> {
        self.candidates.binary_search_by(|candidate| candidate.worker.worker_id.cmp(worker))
    }
}

/// Room means room for any job, however large.
fn candidate(info: &WorkerInfo, machine: &Dispatcher) -> Option<Candidate> {
    let fits = info.active && machine.has_room(&info.worker_id, JOB_PAYLOAD_MAX_BYTES);
    fits.then(|| Candidate { in_flight: machine.in_flight(&info.worker_id), worker: info.clone() })
}
