//! Which worker gets a waiting job, and how often that is tried.

use super::super::assign::{Assign, Load, NoWorker};
use super::super::inboxes::Inbox;
use super::super::model::{JOB_PAYLOAD_MAX_BYTES, JobRecord};
use super::super::table::{Class, Place, Transition};
use super::Dispatcher;
use crate::id::{JobId, QueueName, WorkerId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::BTreeMap;

impl<A: Assign> Dispatcher<A> {
    /// Gives workers to the jobs that wait for one: higher priorities first, then older ones. A job that there is no worker for
    /// stands for all others of its class; they are told why they wait.
    pub(super) fn assign_waiting(&mut self, now: Time) {
        if !self.table.changes.retry || now < self.retry_at {
            return;
        }
        self.table.changes.retry = false;
        let mut fresh: BTreeMap<Class, Vec<JobId>> = BTreeMap::new();
        for id in std::mem::take(&mut self.table.changes.fresh) {
            if let Some(job) = self.table.get(&id) {
                fresh.entry(Class::of(job.record())).or_default().push(id);
            }
        }
        let first = |(class, places): (&Class, &std::collections::BTreeSet<Place>)| {
            places.first().map(|place| (place.clone(), class.clone()))
        };
        let mut heads: BTreeMap<Place, Class> = self.table.ready().iter().filter_map(first).collect();
        let (mut vain, mut wanting) = (0, false);
        while let Some((place, class)) = heads.pop_first() {
            match self.assign_one(now, &place.2, &class) {
                Ok(()) => heads.extend(self.table.ready().get_key_value(&class).and_then(first)),
                Err(NoWorker { reason, later }) => {
                    vain += 1;
                    wanting |= !later;
                    self.explain(now, class, &reason, &mut fresh);
                }
            }
        }
        let ready = self.table.ready();
        self.reasons.retain(|class, _| ready.contains_key(class));
        self.inboxes.want(now, wanting && self.assign.goes_by_inboxes());
        // Many classes and many workers take their time to compare.
        self.retry_at = now + (vain / 8).min(self.config.fast_ms / 2);
    }

    fn assign_one(&mut self, now: Time, id: &JobId, class: &Class) -> Result<(), NoWorker> {
        let later = |reason: String| NoWorker { reason, later: true };
        self.queue_has_room(&class.queue).map_err(later)?;
        self.tell_loads();
        let Some(job) = self.table.get(id) else { return Ok(()) };
        let worker = match &class.target {
            Some(target) => target.clone(),
            None => self.assign.assign(job.record())?,
        };
        match self.refusal(&worker, job.record()) {
            Some(reason) => {
                let later = self.inboxes.get(&worker).is_some_and(|inbox| inbox.serves().is_some());
                Err(NoWorker { reason, later })
            }
            None => {
                self.change(now, id, Transition::Dispatch(worker.clone()));
                self.inboxes.create(&worker);
                Ok(())
            }
        }
    }

    /// Why a job cannot go to this worker now; `None` if it can.
    fn refusal(&self, worker: &WorkerId, job: &JobRecord) -> Option<String> {
        let inbox = self.inboxes.get(worker);
        let served = inbox.and_then(Inbox::serves).filter(|_| self.assign.goes_by_inboxes());
        let unsaid = served.is_none() && self.assign.goes_by_inboxes();
        let out = self.table.load_of(worker);
        Some(if !self.workers.are_known() {
            "the workers are not known yet".to_owned()
        } else if !self.workers.is_active(worker) {
            format!("worker {worker} is not active")
        } else if inbox.is_some_and(Inbox::is_unreadable) {
            format!("the inbox of worker {worker} cannot be read")
        } else if inbox.is_some_and(Inbox::refuses_jobs) {
            format!("worker {worker} drains")
        } else if unsaid {
            format!("worker {worker} has not said which jobs it takes")
        } else if inbox.is_some_and(|inbox| !inbox.takes(job)) {
            format!("worker {worker} takes no such jobs")
        } else if served.is_some_and(|served| out >= served.slots as usize) {
            format!("worker {worker} is busy")
        } else if !self.has_room(worker, job.payload.len()) {
            format!("the inbox of worker {worker} is full")
        } else {
            return None;
        })
    }

    /// The reason if nothing more of this queue may be given to a worker.
    fn queue_has_room(&self, queue: &QueueName) -> Result<(), String> {
        let Some(settings) = self.orders.settings(queue) else {
            return Err("what is set for its queue is not known".to_owned());
        };
        let mut out = self.table.index().out_of.get(queue).copied().unwrap_or(0);
        if Mutant::JobQueueUncounted.on() {
            let own = |record: &&JobRecord| record.state.is_out() && record.epoch == self.config.epoch;
            out = self.jobs().filter(own).filter(|record| record.queue == *queue).count() as u32;
        }
        match settings.concurrency {
            _ if settings.paused => Err(format!("queue {queue} is paused")),
            Some(most) if out >= most => Err(format!("queue {queue} runs no more than {most} at once")),
            Some(_) | None => Ok(()),
        }
    }

    /// Tells the jobs of a class why they wait: all of them if it is a new reason, otherwise those that were not told.
    fn explain(&mut self, now: Time, class: Class, reason: &str, fresh: &mut BTreeMap<Class, Vec<JobId>>) {
        let untold = fresh.remove(&class).unwrap_or_default();
        let is_new = self.reasons.get(&class).is_none_or(|told| told != reason);
        let ids = match self.table.ready().get(&class).filter(|_| is_new) {
            Some(places) => places.iter().map(|place| place.2.clone()).collect(),
            None => untold,
        };
        for id in ids {
            self.table.explain(&mut self.ledger, now, &id, reason);
        }
        self.reasons.insert(class, reason.to_owned());
    }

    /// Tells who can be given something, and how busy they are.
    pub(super) fn tell_loads(&mut self) {
        for worker in std::mem::take(&mut self.table.changes.loads) {
            let inbox = self.inboxes.get(&worker);
            let load = if inbox.is_some_and(Inbox::refuses_jobs) {
                Load::Draining
            } else if self.has_room(&worker, JOB_PAYLOAD_MAX_BYTES) {
                Load::Out(self.table.load_of(&worker))
            } else {
                Load::NoRoom
            };
            let now = (inbox.and_then(Inbox::serves), load);
            self.assign.worker(&worker, self.workers.is_active(&worker).then_some(now));
        }
    }
}
