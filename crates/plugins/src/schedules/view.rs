//! Schedules and jobs as JSON, the same on the command line and over HTTP.

use super::assign::CHECKS_KIND;
use super::job::JobFacts;
use super::runner::ScheduleError;
use super::schedule::{CheckSpec, Schedule};
use super::stored::Schedules;
use crate::checks::health::CheckHealth;
use crate::checks::report::CheckResult;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure::id::{CheckName, ScheduleId, WorkerId};

use tenure::job::{JobRecord, LateResult};

/// Most schedules looked up for the names of their checks.
const SCHEDULES_MAX: usize = 100;

/// Text from a worker, for people: without control characters.
pub(super) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
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

    /// The newest poll jobs among these by due time, at most `limit`.
    pub fn newest(mut jobs: Vec<JobRecord>, limit: usize) -> Vec<JobRecord> {
        jobs.retain(|job| job.kind.as_str() == CHECKS_KIND);
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

    /// The whole row as JSON.
    pub fn to_json(&self, now_ms: u64) -> Value {
        let job = &self.record;
        let check = |(name, check): (&String, &CheckResult)| json!({"name": name, "ok": check.ok, "latencyMs": check.latency_ms, "detail": check.detail});
        let late = |late: &LateResult| json!({"attempt": late.attempt, "worker": late.worker.as_str(), "outcome": late.kind.as_str()});
        json!({
            "id": job.id.as_str(), "schedule": job.series.as_str(), "state": job.state.as_str(),
            "open": !job.state.is_final(), "due": self.facts.due_ms, "ageMs": self.age_ms(now_ms),
            "attempt": job.attempt, "attempts": job.limits.attempts_max,
            "worker": job.worker.as_ref().map(WorkerId::as_str), "target": job.target.as_ref().map(WorkerId::as_str),
            "epoch": job.epoch.0, "reason": &*job.reason, "why": self.facts.why(job),
            "checks": self.checks().map(check).collect::<Vec<Value>>(), "result": self.words(),
            "late": job.late.iter().map(late).collect::<Vec<Value>>(),
        })
    }
}

impl Schedule {
    /// When its next job should begin, as far as the clock alone tells.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let due_ms = self.enabled.then(|| self.timing.next(now_ms.max(self.since_ms)))??;
        Some(self.timing.begins_ms(self.id.as_str(), due_ms))
    }

    /// The object as stored.
    pub fn object(&self) -> Value {
        serde_json::from_slice(&self.to_wire()).unwrap_or(Value::Null)
    }

    /// The object, and when its next job should begin (`next`).
    pub fn to_row(&self, now_ms: u64) -> Value {
        let mut row = self.object();
        row["next"] = json!(self.next_ms(now_ms));
        row
    }

    /// Everything about it: the object, its checks with their health, its jobs.
    pub fn to_report(
        &self,
        namespace: &str,
        health: &BTreeMap<CheckName, CheckHealth>,
        jobs: &[JobRow],
        now_ms: u64,
    ) -> Value {
        let check = |check: &CheckSpec| {
            let known = health.get(&check.name);
            json!({
                "name": check.name.as_str(), "kind": check.action.kind(), "failing": known.map(|known| known.failing),
                "failingSince": known.and_then(|known| known.since_ms),
                "failures": known.map_or(0, |known| known.failures), "successes": known.map_or(0, |known| known.successes),
            })
        };
        let open = jobs.iter().filter(|row| !row.record.state.is_final()).count();
        json!({
            "namespace": namespace, "schedule": self.object(), "next": self.next_ms(now_ms), "openJobs": open,
            "checks": self.checks.iter().map(check).collect::<Vec<Value>>(),
            "jobs": jobs.iter().map(|row| row.to_json(now_ms)).collect::<Vec<Value>>(),
        })
    }
}
