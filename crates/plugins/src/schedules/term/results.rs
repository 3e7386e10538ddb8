//! Results of jobs: taken from updates, or from the ledger where updates were missed; then saved and announced.

use super::{SAVE_EVERY, Term, TermError};
use crate::checks::report::JobReport;
use crate::schedules::CHECKS_KIND;
use crate::schedules::job::is_scheduled;
use crate::schedules::runner::ScheduleEvent;
use tenure::id::ScheduleId;
use tenure::job::{JobState, JobUpdate};
use tenure::schedules::{ObservedJob, SchedulerCommand};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

impl Term<'_> {
    pub(super) async fn on_update(
        &mut self,
        update: Result<JobUpdate, RecvError>,
        updates: &mut broadcast::Receiver<JobUpdate>,
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
                    self.on_job(&update).await;
                    let over = update.state.is_final();
                    if is_scheduled(&update.series, &update.id) {
                        let (schedule, job) = (update.series.schedule(), update.id.clone());
                        self.tell(SchedulerCommand::Note { schedule, job, open: !over });
                    }
                    if over {
                        self.take_result(&update.series.schedule(), update.state, &update.result);
                    }
                }
                Ok(_) => {}
                // The ledger has what was missed.
                Err(TryRecvError::Lagged(_)) => self.take_all_results().await,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
            next = updates.try_recv();
        }
    }

    /// Takes in what the ledger says about all jobs, including the results of finished ones: jobs of a former leader, or of a
    /// schedule that was unknown then.
    pub(super) async fn take_all_results(&mut self) {
        let jobs = self.dispatcher.jobs().await;
        let scheduled = || jobs.iter().filter(|job| is_scheduled(&job.series, &job.id));
        let observed = scheduled().map(|job| ObservedJob {
            series: job.series.clone(),
            id: job.id.clone(),
            watermark: job.watermark,
            open: !job.state.is_final(),
        });
        self.tell(SchedulerCommand::Observe(observed.collect()));
        self.on_found(&jobs).await;
        let over = scheduled().filter(|job| job.kind.as_str() == CHECKS_KIND && job.state.is_final());
        let mut reports: Vec<(ScheduleId, JobReport)> = over
            .filter_map(|job| Some((job.series.schedule(), JobReport::from_result(&job.result)?)))
            .collect();
        reports.sort_by_key(|(_, report)| report.due_ms);
        for (schedule, report) in reports {
            self.apply(&schedule, &report);
        }
    }

    fn take_result(&mut self, schedule: &ScheduleId, state: JobState, result: &[u8]) {
        let known = self.scheduler.planner().schedules().get(schedule);
        if known.is_none_or(|known| known.work.is_some()) {
            return;
        }
        match JobReport::from_result(result) {
            Some(report) => self.apply(schedule, &report),
            None => {
                self.counts.unreported += 1;
                tracing::debug!(target: "tenure", schedule = schedule.as_str(), ?state, "a job ended without a result");
            }
        }
    }

    fn apply(&mut self, schedule: &ScheduleId, report: &JobReport) {
        let Some(schedule) = self.scheduler.planner().schedules().get(schedule) else { return };
        self.unannounced.extend(self.health.apply(schedule, report));
    }

    /// Saves what changed, then announces it. The other way round, a failover would announce it again.
    pub(super) async fn save(&mut self) -> Result<(), TermError> {
        let now = Instant::now();
        if self.unannounced.is_empty() || now < self.next_save {
            return Ok(());
        }
        self.next_save = now + SAVE_EVERY;
        match self.saved.save(self.context.guard(), &self.health).await {
            Ok(()) => {}
            Err(error) if error.is_fenced() => return Err(TermError::Superseded),
            Err(error) => {
                self.warn_once(error.to_string());
                return Ok(());
            }
        }
        for transition in std::mem::take(&mut self.unannounced) {
            self.announce(match transition.failing {
                true => ScheduleEvent::CheckFailing(transition),
                false => ScheduleEvent::CheckRecovered(transition),
            });
        }
        Ok(())
    }
}
