//! A job as a row, for people and for programs.

use crate::exit::Failure;
use crate::out::say;
use crate::schedules::{Place, moment, now_ms, span};
use tenure::id::{CheckName, WorkerId};

use tenure::job::{JobRecord, JobState};
use tenure_plugins::schedules::{JobInfo, JobRow, schedule_of};

/// A job for people; [`JobRow`] has it for programs.
pub(crate) struct Row(pub(crate) JobRow);

impl Row {
    /// The rows of these jobs, the newest due time first.
    pub(crate) async fn all(place: &Place, jobs: Vec<JobRecord>) -> Result<Vec<Row>, Failure> {
        let rows = JobRow::all(&place.schedules(), jobs).await?;
        Ok(rows.into_iter().map(Row).collect())
    }

    fn age_ms(&self) -> Option<u64> {
        self.0.age_ms(now_ms())
    }

    pub(crate) fn info(&self) -> JobInfo {
        self.0.info(now_ms())
    }

    /// What this check said if it failed in this job.
    pub(crate) fn why(&self, check: &CheckName) -> Option<String> {
        let (_, result) = self.0.checks().find(|(name, _)| **name == check.as_str())?;
        (!result.ok && !result.detail.is_empty()).then(|| result.detail.clone())
    }

    /// Its result, if it is over: what waits for another attempt has a reason.
    fn words(&self) -> Option<String> {
        self.0.words().filter(|_| self.0.record.state != JobState::Queued)
    }

    /// What a table says of it.
    pub(crate) fn cells(&self) -> [String; 8] {
        let job = &self.0.record;
        let failed: Vec<&str> =
            self.0.checks().filter(|(_, check)| !check.ok).map(|(name, _)| name.as_str()).collect();
        let said = match (&self.0.facts.report, failed.is_empty()) {
            (Some(report), true) => {
                format!("{} of {} checks passed", report.checks.len(), report.checks.len())
            }
            (Some(_), false) => format!("failed: {}", failed.join(", ")),
            (None, _) => match &job.progress {
                Some(progress) => format!("{} %: {}", progress.percent, progress.text),
                None => self.words().unwrap_or_else(|| self.0.reason(now_ms())),
            },
        };
        let due = self.0.facts.due_ms.map_or_else(|| "-".to_owned(), moment);
        let age = self.age_ms().map_or_else(|| "-".to_owned(), span);
        [
            job.id.to_string(),
            job.queue.to_string(),
            job.state.as_str().to_owned(),
            format!("{}/{}", job.begun(), job.limits.attempts_max),
            self.0.worker().map_or_else(|| "-".to_owned(), WorkerId::to_string),
            due,
            age,
            said.chars().take(60).collect(),
        ]
    }

    pub(crate) fn print(&self) {
        let job = &self.0.record;
        say!("job        {}", job.id);
        if let Some(schedule) = schedule_of(job) {
            say!("schedule   {schedule}");
        }
        say!("kind       {}", job.kind);
        say!("queue      {}, priority {}", job.queue, job.priority);
        say!("state      {}", job.state.as_str());
        if let (Some(due_ms), Some(age_ms)) = (self.0.facts.due_ms, self.age_ms()) {
            match due_ms.saturating_sub(now_ms()) {
                0 => say!("due        {}, {} ago", moment(due_ms), span(age_ms)),
                ahead_ms => say!("due        {}, in {}", moment(due_ms), span(ahead_ms)),
            }
        }
        let since = |ms: i64| u64::try_from(ms).ok().filter(|ms| *ms > 0);
        if let Some(began_ms) = since(job.began_ms) {
            let took = since(job.ended_ms).map(|ended_ms| ended_ms.saturating_sub(began_ms));
            let took = took.map_or_else(String::new, |took_ms| format!(", took {}", span(took_ms)));
            say!("began      {}{took}", moment(began_ms));
        }
        if let Some(ended_ms) = since(job.ended_ms) {
            say!("ended      {}", moment(ended_ms));
        }
        let attempts = format!("attempt    {} of {}", job.begun(), job.limits.attempts_max);
        match self.0.worker() {
            Some(worker) => say!("{attempts}, on {worker}, given out in epoch {}", job.epoch.0),
            None => say!("{attempts}, given to nobody"),
        }
        if let Some(progress) = &job.progress {
            say!("progress   {} %: {}", progress.percent, progress.text);
        }
        let reason = self.0.reason(now_ms());
        if !reason.is_empty() {
            say!("reason     {reason}");
        } else if job.state == JobState::Queued {
            say!("reason     not known yet: the leader records it within a few seconds");
        }
        if let Some(words) = self.0.words() {
            say!("result     {words}");
        }
        for (name, check) in self.0.checks() {
            let how = if check.ok { "well" } else { "FAILED" };
            let detail = if check.detail.is_empty() { String::new() } else { format!(": {}", check.detail) };
            say!("check      {name}: {how} after {} ms{detail}", check.latency_ms);
        }
        for late in &job.late {
            let (worker, kind) = (&late.worker, late.kind.as_str());
            say!("late       attempt {} on {worker} ended as {kind}, too late to count", late.attempt);
        }
    }
}
