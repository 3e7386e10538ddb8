//! Jobs on request: from the program this leader runs in, or from anybody through a request in the schedule's object.
//!
//! A request on the store is served in this order: first the job is created, under a name that follows from the request; then the
//! request is replaced by its name in the list of served ones. If a leader ends in between, the request stays, and the next
//! leader finds that its job exists.

use super::{Term, TermError, job};
use crate::schedules::runner::{RunNow, ScheduleError};
use crate::schedules::schedule::{RunRequest, Schedule};
use crate::schedules::stored::{Change, Schedules};
use std::collections::BTreeMap;
use tenure::id::ScheduleId;

use tenure::job::{SubmitError, Submitted};

/// The progress of a request whose job is in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Not noted on the store yet.
    Created,
    /// Being noted.
    Noting,
    /// Noted. A look that began earlier may still show the request.
    Noted,
}

impl Term<'_> {
    pub(super) async fn on_run_now(&mut self, run: RunNow) {
        let answer = self.run_now(&run.schedule, &run.name).await;
        // The caller may have given up.
        let _ = run.reply.send(answer);
    }

    async fn run_now(&mut self, schedule: &ScheduleId, name: &str) -> Result<Submitted, ScheduleError> {
        let unknown = || ScheduleError::Unknown(schedule.to_string());
        let known = self.planner.schedules().get(schedule).ok_or_else(unknown)?;
        let job_id = RunRequest::job_id(schedule, name)?;
        if known.ran.iter().any(|ran| ran == name) {
            return Ok(Submitted::Exists);
        }
        let exists = self.dispatcher.jobs().await.iter().any(|job| job.id == job_id);
        if !exists && !self.planner.has_room(schedule) {
            return Err(ScheduleError::Full(schedule.to_string()));
        }
        let answer = self.dispatcher.submit(job(known, &job_id, self.now_ms())).await?;
        if answer == Submitted::Created {
            self.planner.created_by_hand(schedule, job_id);
        }
        Ok(answer)
    }

    /// The schedules changed: updates which of them have requests, and drops requests that are now noted on the store.
    pub(super) fn note_requests(&mut self) {
        let schedules = self.planner.schedules();
        let asks = |schedule: &&Schedule| !schedule.run_now.is_empty();
        self.with_requests = schedules.values().filter(asks).map(|schedule| schedule.id.clone()).collect();
        self.requested.retain(|(id, name), stage| {
            let shown = |schedule: &Schedule| schedule.run_now.iter().any(|run| run.name == *name);
            *stage != Stage::Noted || schedules.get(id).is_some_and(shown)
        });
    }

    /// Creates the jobs requested on the store as far as there is room; the rest waits.
    pub(super) async fn create_requested(&mut self) -> Result<(), TermError> {
        for id in self.with_requests.clone() {
            let Some(schedule) = self.planner.schedules().get(&id) else { continue };
            let names: Vec<String> = schedule.run_now.iter().map(|run| run.name.clone()).collect();
            for name in names {
                let key = (id.clone(), name.clone());
                if self.requested.contains_key(&key) {
                    continue;
                }
                match self.run_now(&id, &name).await {
                    Ok(_) => drop(self.requested.insert(key, Stage::Created)),
                    Err(ScheduleError::Full(_)) => break,
                    Err(ScheduleError::Submit(SubmitError::Ended)) => return Err(TermError::Dispatcher),
                    Err(other) => self.warn_once(format!("{id}: {other}")),
                }
            }
        }
        self.note_served();
        Ok(())
    }

    /// Notes served requests on the store in the background: one read and one write per schedule.
    fn note_served(&mut self) {
        let mut by_schedule: BTreeMap<ScheduleId, Vec<String>> = BTreeMap::new();
        for ((id, name), stage) in self.requested.iter_mut().filter(|(_, stage)| **stage == Stage::Created) {
            *stage = Stage::Noting;
            by_schedule.entry(id.clone()).or_default().push(name.clone());
        }
        for (id, names) in by_schedule {
            let schedules = Schedules::on(self.inner.shelf.clone());
            self.reads.spawn(async move {
                let done = schedules.served(&id, &names).await;
                super::StoreAnswer::Served(id, names, done)
            });
        }
    }

    pub(super) fn on_served(
        &mut self,
        id: &ScheduleId,
        names: &[String],
        done: Result<Change, ScheduleError>,
    ) {
        let stage = match done {
            Ok(_) => Stage::Noted,
            Err(why) => {
                self.warn_once(format!("{id}: {why}"));
                // Retried in the next round.
                Stage::Created
            }
        };
        for name in names {
            self.requested.insert((id.clone(), name.clone()), stage);
        }
    }
}
