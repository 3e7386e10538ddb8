//! Schedules and jobs as JSON, the same on the command line and over HTTP.

use super::job::{JobFacts, schedule_of};
use super::runner::ScheduleError;
use super::schedule::{CheckSpec, Schedule};
use super::stored::Schedules;
use crate::checks::health::CheckHealth;
use crate::checks::report::CheckResult;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure::id::{CheckName, ScheduleId, WorkerId};
use tenure::job::{HistoryRow, HistoryRuns, JobRecord, JobState, LateResult};
use tenure::schedules::DueTimes;

/// Most schedules looked up for the names of their checks.
const SCHEDULES_MAX: usize = 100;

/// Text from a worker, for people: without control characters.
pub(super) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// A time, if there is one.
fn known_time(ms: i64) -> Option<u64> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0)
}

/// A job: its record, the facts in the record, and the names of its checks.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// The record in the ledger.
    pub record: JobRecord,
    /// What the record says about the job.
    pub facts: JobFacts,
    /// The names of the checks in its report, in order.
    pub names: Vec<String>,
}

impl JobRow {
    /// The rows of these jobs, newest due time first. The names of finished jobs' checks are in their schedules: one read per
    /// schedule, at most a hundred.
    pub async fn all(schedules: &Schedules, jobs: Vec<JobRecord>) -> Result<Vec<JobRow>, ScheduleError> {
        let row = |record: JobRecord| JobRow { facts: JobFacts::of(&record), names: Vec::new(), record };
        let mut rows: Vec<JobRow> = jobs.into_iter().map(row).collect();
        rows.sort_by(|a, b| (b.facts.due_ms, &b.record.id).cmp(&(a.facts.due_ms, &a.record.id)));
        let mut known: BTreeMap<ScheduleId, Option<Schedule>> = BTreeMap::new();
        for row in rows.iter_mut().filter(|row| row.facts.report.is_some()) {
            let id = row.record.series.schedule();
            if !known.contains_key(&id) && known.len() < SCHEDULES_MAX {
                let schedule = match schedules.get(&id).await {
                    Ok(schedule) => schedule,
                    // Names are not worth failing for.
                    Err(ScheduleError::Refused { .. }) => None,
                    Err(other) => return Err(other),
                };
                known.insert(id.clone(), schedule);
            }
            row.names = row.facts.check_names(known.get(&id).and_then(Option::as_ref));
        }
        Ok(rows)
    }

    /// A finished job, as its row in the history tells.
    pub fn of_history(row: &HistoryRow) -> JobRow {
        let record = row.record();
        JobRow { facts: JobFacts::of(&record), names: Vec::new(), record }
    }

    /// The newest of these jobs by due time, at most `limit`.
    pub fn newest(mut jobs: Vec<JobRecord>, limit: usize) -> Vec<JobRecord> {
        jobs.sort_by_cached_key(|job| std::cmp::Reverse((JobFacts::of(job).due_ms, job.id.clone())));
        jobs.truncate(limit);
        jobs
    }

    /// Its check results with their names.
    pub fn checks(&self) -> impl Iterator<Item = (&String, &CheckResult)> {
        self.names.iter().zip(self.facts.report.iter().flat_map(|report| &report.checks))
    }

    /// How long ago it was due.
    pub fn age_ms(&self, now_ms: u64) -> Option<u64> {
        self.facts.due_ms.map(|due_ms| now_ms.saturating_sub(due_ms))
    }

    /// A result that is not a report, as text.
    pub fn words(&self) -> Option<String> {
        let result = &self.record.result;
        let words = || clean(&String::from_utf8_lossy(result));
        (self.facts.report.is_none() && !result.is_empty()).then(words)
    }

    /// Why it waits, or why it ended as it did.
    pub fn reason(&self, now_ms: u64) -> String {
        let job = &self.record;
        let begins_ms = u64::try_from(job.not_before_ms).unwrap_or(0);
        if job.state != JobState::Queued || begins_ms <= now_ms {
            return job.reason.to_string();
        }
        // Until then the leader has nothing to say.
        let begins = jiff::Timestamp::from_millisecond(job.not_before_ms).unwrap_or_default();
        let begins = begins.strftime("%Y-%m-%d %H:%M:%SZ");
        match job.begun() {
            0 => format!("not before {begins}"),
            _ => format!("{}; the next attempt is not before {begins}", job.reason),
        }
    }

    /// The worker that runs it, or ran it.
    pub fn worker(&self) -> Option<&WorkerId> {
        self.record.worker.as_ref().filter(|_| self.record.state != JobState::Queued)
    }

    /// The row as people and programs are shown it.
    pub fn info(&self, now_ms: u64) -> JobInfo {
        let job = &self.record;
        let check = |(name, check): (&String, &CheckResult)| CheckOutcome {
            name: name.clone(),
            ok: check.ok,
            latency_ms: check.latency_ms,
            detail: check.detail.clone(),
        };
        let late = |late: &LateResult| LateOutcome {
            attempt: late.attempt.into(),
            worker: late.worker.to_string(),
            outcome: late.kind.as_str(),
        };
        JobInfo {
            id: job.id.to_string(),
            schedule: schedule_of(job).map(|schedule| schedule.to_string()),
            kind: job.kind.to_string(),
            queue: job.queue.to_string(),
            priority: job.priority,
            state: job.state.as_str(),
            open: !job.state.is_final(),
            due: self.facts.due_ms,
            age_ms: self.age_ms(now_ms),
            submitted: known_time(job.submitted_ms),
            began: known_time(job.began_ms),
            ended: known_time(job.ended_ms),
            attempt: job.begun().into(),
            attempts: job.limits.attempts_max.into(),
            worker: self.worker().map(WorkerId::to_string),
            target: job.target.as_ref().map(WorkerId::to_string),
            epoch: job.epoch.0,
            percent: job.progress.as_ref().map(|progress| progress.percent),
            progress: job.progress.as_ref().map(|progress| progress.text.to_string()),
            reason: self.reason(now_ms),
            checks: self.checks().map(check).collect(),
            result: self.words(),
            late: job.late.iter().map(late).collect(),
        }
    }
}

/// A job.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobInfo {
    /// The job's id.
    pub id: String,
    /// The schedule that made it, if one did.
    pub schedule: Option<String>,
    /// What kind of job it is.
    pub kind: String,
    /// The queue it waits in.
    pub queue: String,
    /// 0 to 9: higher ones are run first.
    pub priority: u8,
    /// `queued`, `dispatched`, `running`, `succeeded`, `failed` and so on.
    pub state: &'static str,
    /// It is not over.
    pub open: bool,
    /// When it was due, in ms since 1970: for a job that was submitted, when that was, or its `notBefore`.
    pub due: Option<u64>,
    /// How long ago that was.
    pub age_ms: Option<u64>,
    /// When it was submitted, its last attempt began, and it ended, in ms since 1970.
    pub submitted: Option<u64>,
    /// See `submitted`.
    pub began: Option<u64>,
    /// See `submitted`.
    pub ended: Option<u64>,
    /// How many attempts were begun.
    pub attempt: u64,
    /// Most attempts.
    pub attempts: u64,
    /// The worker that runs it, or ran it.
    pub worker: Option<String>,
    /// The only worker that may run it.
    pub target: Option<String>,
    /// The epoch of the leader that dispatched it.
    pub epoch: u64,
    /// Why it waits, or why it ended as it did.
    pub reason: String,
    /// How far its worker is with it, 0 to 100, if it says so; only while it runs.
    pub percent: Option<u8>,
    /// What its worker says about that.
    pub progress: Option<String>,
    /// The results of its checks.
    pub checks: Vec<CheckOutcome>,
    /// A result that is not a report.
    pub result: Option<String>,
    /// Results that came too late to count.
    pub late: Vec<LateOutcome>,
}

/// How the last run of a schedule ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The id of the job.
    pub job: String,
    /// The state in which it ended.
    pub state: &'static str,
    /// When it was due, began and ended, in ms since 1970.
    pub due: Option<u64>,
    /// See `due`.
    pub began: Option<u64>,
    /// See `due`.
    pub ended: Option<u64>,
    /// Why it ended as it did.
    pub reason: String,
}

impl LastRun {
    /// What a row of the history tells.
    pub fn of(row: &HistoryRow) -> LastRun {
        let due_ms = JobFacts::of(&row.record()).due_ms;
        LastRun {
            job: row.id.to_string(),
            state: row.state.as_str(),
            due: due_ms,
            began: known_time(row.began_ms),
            ended: known_time(row.ended_ms),
            reason: clean(&row.reason),
        }
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckOutcome {
    /// The check's name.
    pub name: String,
    /// Whether it is well.
    pub ok: bool,
    /// How long it took.
    pub latency_ms: u64,
    /// What it found, for people.
    pub detail: String,
}

/// A result that came too late.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LateOutcome {
    /// The number of the attempt.
    pub attempt: u64,
    /// The worker that ran it.
    pub worker: String,
    /// How it ended.
    pub outcome: &'static str,
}

/// Everything about one schedule.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleReport {
    /// The namespace it is in.
    pub namespace: String,
    /// The object as stored, but of `webhook` only the host.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub schedule: Value,
    /// When its next job should begin, in ms since 1970.
    pub next: Option<u64>,
    /// How its last run ended.
    pub last: Option<LastRun>,
    /// How many of its jobs are not over.
    pub open_jobs: u64,
    /// Its checks, as stored.
    pub checks: Vec<ScheduleCheck>,
    /// Its jobs, newest due time first.
    pub jobs: Vec<JobInfo>,
}

/// A check of a schedule, and how it is doing.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleCheck {
    /// The check's name.
    pub name: String,
    /// `http`, `tcp`, `dns`, `command`, or the name of another kind.
    pub kind: String,
    /// Whether it fails; none before its first result.
    pub failing: Option<bool>,
    /// The due time of the job with which it began to fail, in ms since 1970.
    pub failing_since: Option<u64>,
    /// Failures in a row when it last began or ceased to fail.
    pub failures: u64,
    /// Successes in a row when it last began or ceased to fail.
    pub successes: u64,
}

impl Schedule {
    /// When its next job should begin, as far as the clock alone tells.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let due_ms = self.enabled.then(|| self.timing.next(now_ms.max(self.since_ms)))??;
        Some(self.timing.begins_ms(self.id.as_str(), due_ms))
    }

    /// The object as stored, but of the webhook only the host: the rest may be a secret.
    fn object(&self) -> Value {
        let mut object: Value = serde_json::from_slice(&self.to_wire()).unwrap_or(Value::Null);
        if let Some(webhook) = &self.webhook {
            object["webhook"] = json!(webhook.to_string());
        }
        object
    }

    /// The object, when its next job should begin (`next`), its zone, and how its last runs ended (`last`, `runs`).
    pub fn to_row(&self, runs: Option<&HistoryRuns>, now_ms: u64) -> Value {
        let mut row = self.object();
        row["next"] = json!(self.next_ms(now_ms));
        row["zone"] = json!(self.timing.zone());
        row["last"] = json!(runs.map(|runs| LastRun::of(&runs.last)));
        row["runs"] =
            json!(runs.map(|runs| runs.states.iter().map(|state| state.as_str()).collect::<Vec<_>>()));
        row
    }

    /// Everything about it: the object, its checks with their health, its jobs.
    pub fn to_report(
        &self,
        namespace: &str,
        health: &BTreeMap<CheckName, CheckHealth>,
        jobs: &[JobRow],
        runs: Option<&HistoryRuns>,
        now_ms: u64,
    ) -> ScheduleReport {
        let check = |check: &CheckSpec| {
            let known = health.get(&check.name);
            ScheduleCheck {
                name: check.name.to_string(),
                kind: check.action.kind().to_owned(),
                failing: known.map(|known| known.failing),
                failing_since: known.and_then(|known| known.since_ms),
                failures: known.map_or(0, |known| known.failures),
                successes: known.map_or(0, |known| known.successes),
            }
        };
        ScheduleReport {
            namespace: namespace.to_owned(),
            schedule: self.object(),
            next: self.next_ms(now_ms),
            last: runs.map(|runs| LastRun::of(&runs.last)),
            open_jobs: jobs.iter().filter(|row| !row.record.state.is_final()).count() as u64,
            checks: self.checks.iter().map(check).collect(),
            jobs: jobs.iter().map(|row| row.info(now_ms)).collect(),
        }
    }
}
