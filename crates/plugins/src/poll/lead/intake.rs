//! What came of jobs: taken from updates, or from the ledger where those were missed; saved, and told.

use super::{SAVE_EVERY, Term, TermError};
use crate::poll::choice::POLL_KIND;
use crate::poll::orchestrator::PollEvent;
use crate::poll::report::JobReport;
use crate::poll::shelf::Saved;
use tenure::NodeId;
use tenure::tasks::{TaskState, TaskUpdate};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

/// Whether a task of this series is a job of the schedule of that name: nothing else is named so.
fn is_job(schedule: &NodeId, task: &NodeId) -> bool {
    let rest = task.as_str().strip_prefix(schedule.as_str());
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
            // The dispatcher has ended, which is seen elsewhere.
            Err(RecvError::Closed) => return,
        };
        loop {
            match next {
                Ok(update) if update.late.is_none() => {
                    let over = update.state.is_final();
                    if is_job(&update.series, &update.id) {
                        self.planner.note(&update.series, &update.id, !over);
                    }
                    if over {
                        self.take_in(&update.series, update.state, &update.result);
                    }
                }
                Ok(_) => {}
                // What was missed stands in the ledger.
                Err(TryRecvError::Lagged(_)) => self.harvest(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
            next = updates.try_recv();
        }
    }

    /// Takes in what the ledger says about all jobs, and what came of those that are over: those of a former leader, or of a schedule that was not known.
    pub(super) fn harvest(&mut self) {
        let tasks = self.dispatcher.tasks();
        let polls = tasks.iter().filter(|task| task.kind.as_str() == POLL_KIND);
        self.planner.observe(polls.map(|task| (&task.series, &task.id, task.mark, !task.state.is_final())));
        let over = tasks.iter().filter(|task| task.kind.as_str() == POLL_KIND && task.state.is_final());
        let mut reports: Vec<(&NodeId, JobReport)> =
            over.filter_map(|task| Some((&task.series, JobReport::from_result(&task.result)?))).collect();
        reports.sort_by_key(|(_, report)| report.due_ms);
        for (series, report) in reports {
            self.judge(series, &report);
        }
    }

    fn take_in(&mut self, series: &NodeId, state: TaskState, result: &[u8]) {
        if !self.planner.schedules().contains_key(series) {
            return;
        }
        match JobReport::from_result(result) {
            Some(report) => self.judge(series, &report),
            None => {
                self.counts.unreported += 1;
                tracing::debug!(target: "tenure", schedule = series.as_str(), ?state, "a job ended without a report");
            }
        }
    }

    fn judge(&mut self, series: &NodeId, report: &JobReport) {
        let Some(schedule) = self.planner.schedules().get(series) else { return };
        self.untold.extend(self.health.apply(schedule, report));
    }

    /// Saves what changed, and tells it then: not the other way round, or a failover would tell it again.
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
