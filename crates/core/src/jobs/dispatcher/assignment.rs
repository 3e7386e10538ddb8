//! Which worker gets a waiting job, and how often that is tried.

use super::super::assign::Assign;
use super::super::lifecycle::refusal;
use super::super::model::JOB_PAYLOAD_MAX_BYTES;
use super::super::table::Transition;
use super::Dispatcher;
use crate::id::{JobId, WorkerId};
use crate::time::Time;

/// Most failed retries in one pass; the next pass begins where this one ended. With thousands of waiting jobs and a
/// thousand workers, every small change would otherwise cost a million comparisons.
const RETRIES_MAX: usize = 256;

impl<A: Assign> Dispatcher<A> {
    /// Gives a worker to the jobs that wait for one, or a reason why there is none. Jobs that already have a reason are tried
    /// again only when something has happened, not too often, and not all at once.
    pub(super) fn assign_waiting(&mut self, now: Time) {
        let all = self.table.news.retry && now >= self.retry_at;
        let waiting = self.table.waiting(now, all);
        let mut waiting: Vec<JobId> = waiting.map(|job| job.record().id.clone()).collect();
        self.table.set_pausing_aside(now);
        if all {
            self.table.news.retry = false;
            self.retry_at = now + self.config.fast_ms / 2;
            if let Some(tried) = self.tried.take() {
                let first = waiting.partition_point(|id| *id <= tried);
                waiting.rotate_left(first);
            }
        }
        let mut vain = 0;
        for id in waiting {
            if all && vain >= RETRIES_MAX {
                // The others get their turn in the next pass.
                (self.tried, self.table.news.retry) = (Some(id), true);
                return;
            }
            self.tell_loads();
            let Some(job) = self.table.get(&id) else { continue };
            let chosen = match &job.record().target {
                Some(target) => Ok(target.clone()),
                None => self.assign.assign(job.record()),
            };
            match chosen {
                Ok(worker) => self.dispatch(now, &id, &worker),
                Err(reason) => {
                    vain += 1;
                    self.table.explain(&mut self.ledger, now, &id, &reason);
                }
            }
        }
    }

    fn tell_loads(&mut self) {
        for worker in std::mem::take(&mut self.table.news.loads) {
            // Room means room for any job, however large.
            let fits = self.workers.is_active(&worker) && self.has_room(&worker, JOB_PAYLOAD_MAX_BYTES);
            self.assign.load(&worker, fits.then(|| self.table.load_of(&worker)));
        }
    }

    fn dispatch(&mut self, now: Time, id: &JobId, worker: &WorkerId) {
        let Some(job) = self.table.get(id) else { return };
        let has_room = || self.has_room(worker, job.record().payload.len());
        match refusal(worker, &self.workers, self.inboxes.get(worker), has_room) {
            Some(reason) => self.table.explain(&mut self.ledger, now, id, &reason),
            None => {
                self.change(now, id, Transition::Dispatch(worker.clone()));
                self.inboxes.create(worker);
            }
        }
    }
}
