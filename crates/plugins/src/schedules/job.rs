//! A job as people want to see it, read from its record in the ledger.

use super::schedule::Schedule;
use crate::checks::report::JobReport;
use serde_json::Value;
use tenure::id::{CheckName, JobId, ScheduleId, SeriesId};
use tenure::job::JobRecord;

/// How long a job may wait for somebody who may run it: workers come and go.
const NOBODY_MS: u64 = 60_000;

/// The schedule that made a job; `None` if none did: nothing else is named that way.
pub fn schedule_of(job: &JobRecord) -> Option<ScheduleId> {
    scheduled_by(&job.series, &job.id)
}

pub(super) fn scheduled_by(series: &SeriesId, job: &JobId) -> Option<ScheduleId> {
    is_scheduled(series, job).then(|| series.schedule())
}

/// When a job of a due time was due; `None` for others.
pub(super) fn due_ms(series: &SeriesId, job: &JobId) -> Option<u64> {
    job.as_str().strip_prefix(series.as_str())?.strip_prefix('-')?.parse().ok()
}

/// Whether a job has waited for a minute because no active worker may run it.
pub fn is_stranded(job: &JobRecord, now_ms: u64) -> bool {
    let submitted = || u64::try_from(job.submitted_ms.max(job.not_before_ms)).ok();
    let since = due_ms(&job.series, &job.id).or_else(submitted);
    job.finds_nobody() && since.is_some_and(|since| now_ms.saturating_sub(since) >= NOBODY_MS)
}

pub(super) fn is_scheduled(series: &SeriesId, job: &JobId) -> bool {
    let rest = job.as_str().strip_prefix(series.as_str());
    rest.is_some_and(|rest| rest.starts_with('-') || rest.starts_with(".run."))
}

/// What a job's record says about the job. Pure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JobFacts {
    /// When it was due: wall clock, in ms. A job run on request is due when it was created. `None` if the job ended without a
    /// report, so nobody can tell any more.
    pub due_ms: Option<u64>,
    /// The outcome, if its agent reported one.
    pub report: Option<JobReport>,
    /// The names of its checks, if the job itself lists them: only while it is open.
    names: Vec<String>,
}

impl JobFacts {
    /// Reads a job of kind `checks`; other jobs yield little.
    pub fn of(job: &JobRecord) -> JobFacts {
        let payload: Value = serde_json::from_slice(&job.payload).unwrap_or(Value::Null);
        let report = JobReport::from_result(&job.result);
        let due = payload.get("due").and_then(Value::as_u64).or(report.as_ref().map(|report| report.due_ms));
        let submitted = u64::try_from(job.submitted_ms.max(job.not_before_ms)).ok().filter(|ms| *ms > 0);
        let checks = payload.get("checks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let name =
            |check: &Value| CheckName::new(check.get("name")?.as_str()?).ok().map(|name| name.to_string());
        JobFacts {
            due_ms: due.or((job.watermark > 0).then_some(job.watermark)).or(submitted),
            names: checks.iter().filter_map(name).collect(),
            report,
        }
    }

    /// The name of each check in the report, in order: from the schedule, if it still has these checks.
    pub fn check_names(&self, schedule: Option<&Schedule>) -> Vec<String> {
        let Some(report) = &self.report else { return Vec::new() };
        let count = report.checks.len();
        if self.names.len() == count {
            return self.names.clone();
        }
        let same = schedule.filter(|known| known.names_digest() == report.names);
        match same.filter(|known| known.checks.len() == count) {
            Some(known) => known.checks.iter().map(|check| check.name.to_string()).collect(),
            None => (1..=count).map(|place| format!("check {place}")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::CheckResult;
    use crate::schedules::{Rules, read_file};
    use std::sync::Arc;
    use tenure::job::{JobSpec, JobState};

    fn schedule() -> Schedule {
        let text = "[{id: web, every: 10s, partition: eu, capabilities: [icmp], checks: [{name: home, kind: dns, host: h}]}]";
        read_file(text, &Rules::default()).expect("valid").pop().expect("one")
    }

    fn job(state: JobState, reason: &str) -> JobRecord {
        let spec =
            JobSpec::new("web-7", "poll").series("web").watermark(7).payload(schedule().job_payload(7));
        JobRecord { state, reason: Arc::from(reason), ..spec.record().expect("valid") }
    }

    #[test]
    fn checks_of_a_report_have_their_names_while_the_schedule_has_them() {
        let (schedule, mut job) = (schedule(), job(JobState::Failed, ""));
        let checks = vec![CheckResult { ok: false, latency_ms: 3, detail: "refused".to_owned() }];
        let report = JobReport { due_ms: 7, names: schedule.names_digest(), checks };
        (job.result, job.payload) = (Arc::from(report.to_result()), Arc::from([]));
        let facts = JobFacts::of(&job);
        assert_eq!((facts.due_ms, facts.report.as_ref()), (Some(7), Some(&report)));
        assert_eq!(facts.check_names(Some(&schedule)), ["home"]);
        assert_eq!(facts.check_names(None), ["check 1"]);
    }

    #[test]
    fn a_job_is_stranded_if_for_a_minute_nobody_may_run_it() {
        let nobody = "no active worker serves queue mail";
        let submitted = |reason, submitted_ms, not_before_ms| {
            let record = JobSpec::new("m1", "send").record().expect("valid");
            JobRecord { reason: Arc::from(reason), submitted_ms, not_before_ms, ..record }
        };
        assert!(is_stranded(&submitted(nobody, 1000, 0), 61_000));
        assert!(!is_stranded(&submitted(nobody, 1000, 0), 60_999));
        assert!(!is_stranded(&submitted(nobody, 1000, 50_000), 61_000), "its time has only just come");
        assert!(!is_stranded(&submitted("every worker that could run it is busy", 1000, 0), 61_000));
        assert!(is_stranded(&job(JobState::Queued, nobody), 60_007), "due at 7 ms");
        assert!(!is_stranded(&job(JobState::Dispatched, nobody), 60_007));
    }
}
