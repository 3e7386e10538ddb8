//! What goes wrong with jobs, told at once: failed, expired, missed, late.
//!
//! Whoever has a webhook is told by the dispatcher, across failovers too: of a failed or expired job because the job asks for it, of the
//! others because the term hands over a notice. A missed due time is handed over before a later one becomes a job: from then on
//! no leader would find that it was missed.

use super::Term;
use crate::checks::report::JobReport;
use crate::schedules::job::{due_ms, is_stranded, scheduled_by};
use crate::schedules::runner::{JobTrouble, ScheduleEvent};
use crate::schedules::schedule::Schedule;
use crate::schedules::webhook::NO_CHECK_PASSED;
use crate::work::beginning_of;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::id::{JobId, ScheduleId};
use tenure::job::{HistoryRuns, JobRecord, JobSpec, JobState, JobUpdate, Notice, NoticeKind};
use tenure::schedules::{DueTimes, Missed};
use tokio::time::Instant;

/// How long the schedules wait for a store that does not take a notice. It goes on being tried.
const NOTICE_TIME: Duration = Duration::from_secs(5);

/// The shortest time between two reports of missed due times of one schedule.
const MISSED_EVERY: Duration = Duration::from_secs(60);

/// Why a job ended as it did, or the beginning of what its worker said.
fn why(update: &JobUpdate) -> String {
    if !update.reason.is_empty() {
        return update.reason.to_string();
    }
    match JobReport::from_result(&update.result) {
        Some(_) => NO_CHECK_PASSED.to_owned(),
        None => beginning_of(&update.result),
    }
}

impl Term<'_> {
    /// A job changed its state.
    pub(super) async fn on_job(&mut self, update: &JobUpdate) {
        let schedule = scheduled_by(&update.series, &update.id);
        let is_over = update.state.is_final();
        let begun = update.began_ms > 0 && update.attempt == 1;
        if let Some(schedule) = schedule.as_ref().filter(|_| begun && !self.begun.contains(&update.id)) {
            // The leader has just seen it.
            self.on_begun(schedule, &update.id, self.now_ms(), true).await;
        }
        if !is_over {
            return;
        }
        self.begun.remove(&update.id);
        if let Some(schedule) = &schedule {
            self.learn_end(schedule, update.state, &why(update));
        }
        if !update.state.is_undone() {
            return;
        }
        let kind = if update.state == JobState::Expired { NoticeKind::Expired } else { NoticeKind::Failed };
        match kind {
            NoticeKind::Expired => self.counts.expired += 1,
            NoticeKind::Failed | NoticeKind::Missed | NoticeKind::Late => self.counts.failed += 1,
        }
        self.announce(ScheduleEvent::Job(JobTrouble {
            kind,
            schedule,
            job: update.id.clone(),
            due_ms: due_ms(&update.series, &update.id),
            attempt: update.attempt,
            worker: update.worker.clone(),
            reason: why(update),
        }));
    }

    /// The first attempt at a job began at this time.
    async fn on_begun(&mut self, id: &ScheduleId, job: &JobId, began_ms: u64, tells: bool) {
        self.begun.insert(job.clone());
        let known = self.scheduler.planner().schedules().get(id).cloned();
        let Some((schedule, due_ms)) = known.zip(due_ms(&id.series(), job)) else { return };
        let late_ms = began_ms.saturating_sub(schedule.timing.begins_ms(id.as_str(), due_ms));
        if late_ms <= schedule.late_after_ms {
            return;
        }
        let reason = format!("{} s after it was due", late_ms / 1000);
        self.tell_of(NoticeKind::Late, &schedule, job, due_ms, reason, tells).await;
    }

    /// Due times were missed. While a schedule misses one after the other, that is told once a minute.
    pub(super) async fn on_missed(&mut self, missed: &Missed) {
        let (told, count) = self.missed.get(&missed.schedule).copied().unwrap_or((None, 0));
        let count = count + missed.count;
        if told.is_some_and(|at| at.elapsed() < MISSED_EVERY) {
            self.missed.insert(missed.schedule.clone(), (told, count));
            return;
        }
        self.missed.insert(missed.schedule.clone(), (Some(Instant::now()), 0));
        let known = self.scheduler.planner().schedules().get(&missed.schedule).cloned();
        let Some((schedule, job)) = known.zip(missed.schedule.job(missed.last_ms).ok()) else { return };
        let last =
            i64::try_from(missed.last_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let last = last.map_or(String::new(), |time| format!("{}", time.strftime("%Y-%m-%d %H:%M:%SZ")));
        let reason = match count {
            1 => format!("1 due time was missed: {last}"),
            count => format!("{count} due times were missed, the last one {last}"),
        };
        self.tell_of(NoticeKind::Missed, &schedule, &job, missed.last_ms, reason, true).await;
    }

    async fn tell_of(
        &mut self,
        kind: NoticeKind,
        schedule: &Arc<Schedule>,
        job: &JobId,
        due_ms: u64,
        reason: String,
        tells: bool,
    ) {
        if kind == NoticeKind::Late {
            self.counts.late += u64::from(tells);
        }
        if self.inner.webhooks.has_receiver(schedule.webhook.as_ref())
            && let Some(notice) = self.notice(kind, schedule, job, due_ms, &reason)
        {
            // If leadership ended, the next leader finds the same.
            let _ = tokio::time::timeout(NOTICE_TIME, self.dispatcher.notify(notice)).await;
        }
        if tells {
            self.announce(ScheduleEvent::Job(JobTrouble {
                kind,
                schedule: Some(schedule.id.clone()),
                job: job.clone(),
                due_ms: Some(due_ms),
                attempt: u32::from(kind == NoticeKind::Late),
                worker: None,
                reason,
            }));
        }
    }

    fn notice(
        &self,
        kind: NoticeKind,
        schedule: &Schedule,
        job: &JobId,
        due_ms: u64,
        reason: &str,
    ) -> Option<Notice> {
        let spec = JobSpec::new(job.as_str(), schedule.job_kind())
            .series(schedule.id.as_str())
            .watermark(due_ms)
            .queue(schedule.queue.as_str())
            .attempts(u32::try_from(schedule.attempts).unwrap_or(1));
        let record = JobRecord { reason: Arc::from(reason), ..spec.record().ok()? };
        Some(Notice::of(kind, job.as_str(), &record))
    }

    /// Jobs that were begun before this term: whoever has a webhook may not have been told.
    pub(super) async fn on_found(&mut self, jobs: &[JobRecord]) {
        for job in jobs.iter().filter(|job| job.began_ms > 0 && job.begun() == 1 && !job.state.is_final()) {
            if let Some(schedule) =
                scheduled_by(&job.series, &job.id).filter(|_| !self.begun.contains(&job.id))
            {
                self.on_begun(&schedule, &job.id, u64::try_from(job.began_ms).unwrap_or(0), false).await;
            }
        }
    }

    // ---- what is wrong now ----

    fn learn_end(&mut self, schedule: &ScheduleId, state: JobState, reason: &str) {
        if state.is_undone() {
            self.failing.insert(schedule.clone(), reason.to_owned());
        } else if matches!(state, JobState::Succeeded | JobState::Partial) {
            self.failing.remove(schedule);
        }
    }

    /// How the last runs ended before this term.
    pub(super) fn learn_runs(&mut self, runs: BTreeMap<tenure::id::SeriesId, HistoryRuns>) {
        for runs in runs.into_values() {
            let schedule = runs.last.series.schedule();
            if !self.failing.contains_key(&schedule)
                && scheduled_by(&runs.last.series, &runs.last.id).is_some()
            {
                self.learn_end(&schedule, runs.last.state, &runs.last.reason);
            }
        }
        self.view_is_old = true;
    }

    /// The schedules with a job that waits because no worker may take it.
    pub(super) fn waiting(&self, jobs: &[JobRecord]) -> BTreeMap<ScheduleId, String> {
        let now_ms = self.now_ms();
        let stranded = jobs.iter().filter(|job| is_stranded(job, now_ms));
        stranded
            .filter_map(|job| Some((scheduled_by(&job.series, &job.id)?, job.reason.to_string())))
            .collect()
    }
}
