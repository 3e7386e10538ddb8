//! Results of jobs: taken from updates, or from the ledger where updates were missed; then saved and announced.

use super::{SAVE_EVERY, Term, TermError};
use crate::poll::choice::POLL_KIND;
use crate::poll::orchestrator::PollEvent;
use crate::poll::report::JobReport;
use crate::poll::shelf::Saved;
use tenure::id::{JobId, ScheduleId, SeriesId};

use tenure::tasks::{TaskState, TaskUpdate};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

/// Whether this task is a job of the series' schedule: nothing else is named that way.
fn is_job(series: &SeriesId, task: &JobId) -> bool {
    let rest = task.as_str().strip_prefix(series.as_str());
    rest.is_some_and(|rest| rest.starts_with('-') || rest.starts_with(".run."))
}

impl Term<'_> {
    pub(super) fn on_update(
        &mut self,
        update: Result<TaskUpdate, RecvError>,
        updates: &mut broadcast::Receiver<TaskUpdate>,
    ) {
        let mut next = match update {
            Ok(update) => Ok(update),
            Err(RecvError::Lagged(missed)) => Err(TryRecvError::Lagged(missed)),
            // The dispatcher has ended; that is handled elsewhere.
            Err(RecvError::Closed) => return,
        };
        loop {
            match next {
                Ok(update) if update.late.is_none() => {
                    let over = update.state.is_final();
                    if is_job(&update.series, &update.id) {
                        self.planner.note(&update.series.schedule(), &update.id, !over);
                    }
                    if over {
                        self.take_in(&update.series.schedule(), update.state, &update.result);
                    }
                }
                Ok(_) => {}
                // The ledger has what was missed.
                Err(TryRecvError::Lagged(_)) => self.harvest(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
            next = updates.try_recv();
        }
    }

    /// Takes in what the ledger says about all jobs, including the results of finished ones: jobs of a former leader, or of a
    /// schedule that was unknown then.
    pub(super) fn harvest(&mut self) {
        let tasks = self.dispatcher.tasks();
        let polls = tasks.iter().filter(|task| task.kind.as_str() == POLL_KIND);
        self.planner.observe(polls.map(|task| (&task.series, &task.id, task.mark, !task.state.is_final())));
        let over = tasks.iter().filter(|task| task.kind.as_str() == POLL_KIND && task.state.is_final());
        let mut reports: Vec<(ScheduleId, JobReport)> = over
            .filter_map(|task| Some((task.series.schedule(), JobReport::from_result(&task.result)?)))
            .collect();
        reports.sort_by_key(|(_, report)| report.due_ms);
        for (schedule, report) in reports {
            self.judge(&schedule, &report);
        }
    }

    fn take_in(&mut self, schedule: &ScheduleId, state: TaskState, result: &[u8]) {
        if !self.planner.schedules().contains_key(schedule) {
            return;
        }
        match JobReport::from_result(result) {
            Some(report) => self.judge(schedule, &report),
            None => {
                self.counts.unreported += 1;
                tracing::debug!(target: "tenure", schedule = schedule.as_str(), ?state, "a job ended without a result");
            }
        }
    }

    fn judge(&mut self, schedule: &ScheduleId, report: &JobReport) {
        let Some(schedule) = self.planner.schedules().get(schedule) else { return };
        self.untold.extend(self.health.apply(schedule, report));
    }

    /// Saves what changed, then announces it. The other way round, a failover would announce it again.
    pub(super) async fn save(&mut self) -> Result<(), TermError> {
        let now = Instant::now();
        if self.untold.is_empty() || now < self.next_save {
            return Ok(());
        }
        self.next_save = now + SAVE_EVERY;
        if self.file.foreign.is_none() {
            match self.file.save(&self.inner.shelf, self.context.guard(), &self.health).await {
                Saved::Done => {}
                Saved::Superseded => return Err(TermError::Superseded),
                Saved::Later(why) => {
                    self.complain(why);
                    return Ok(());
                }
            }
        }
        for transition in std::mem::take(&mut self.untold) {
            self.tell(match transition.failing {
                true => PollEvent::CheckFailing(transition),
                false => PollEvent::CheckRecovered(transition),
            });
        }
        Ok(())
    }
}
