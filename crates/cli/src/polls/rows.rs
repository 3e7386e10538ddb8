//! A job as a row, for people and for programs.

use super::{Place, moment, now_ms, span};
use crate::exit::Failure;
use crate::out::say;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure::NodeId;
use tenure::tasks::{LateResult, TaskRecord};
use tenure_plugins::poll::{CheckResult, JobFacts, PollError, Schedule};

/// Schedules that are looked up for the names of their checks.
const SCHEDULES_MAX: usize = 100;

/// What a worker says goes to a terminal: no control characters.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// A job, and what its task says about it.
pub(super) struct Row {
    pub(super) task: TaskRecord,
    pub(super) facts: JobFacts,
    pub(super) names: Vec<String>,
}

impl Row {
    /// The rows of these tasks, the newest due time first. The names of checks of jobs that are over stand in their schedules.
    pub(super) async fn all(place: &Place, tasks: Vec<TaskRecord>) -> Result<Vec<Row>, Failure> {
        let mut rows: Vec<Row> = tasks
            .into_iter()
            .map(|task| Row { facts: JobFacts::of(&task), names: Vec::new(), task })
            .collect();
        rows.sort_by(|a, b| (b.facts.due_ms, &b.task.id).cmp(&(a.facts.due_ms, &a.task.id)));
        let mut known: BTreeMap<NodeId, Option<Schedule>> = BTreeMap::new();
        for row in rows.iter_mut().filter(|row| row.facts.report.is_some()) {
            let series = &row.task.series;
            if !known.contains_key(series) && known.len() < SCHEDULES_MAX {
                let schedule = match place.schedules().get(series).await {
                    Ok(schedule) => schedule,
                    // Names are not worth a failure.
                    Err(PollError::Refused { .. }) => None,
                    Err(other) => return Err(other.into()),
                };
                known.insert(series.clone(), schedule);
            }
            row.names = row.facts.check_names(known.get(series).and_then(Option::as_ref));
        }
        Ok(rows)
    }

    fn checks(&self) -> impl Iterator<Item = (&String, &CheckResult)> {
        self.names.iter().zip(self.facts.report.iter().flat_map(|report| &report.checks))
    }

    fn age_ms(&self) -> Option<u64> {
        self.facts.due_ms.map(|due_ms| now_ms().saturating_sub(due_ms))
    }

    /// A result that is no report, as text.
    fn words(&self) -> Option<String> {
        let result = &self.task.result;
        let words = || clean(&String::from_utf8_lossy(result));
        (self.facts.report.is_none() && !result.is_empty()).then(words)
    }

    pub(super) fn json(&self) -> Value {
        let task = &self.task;
        let check = |(name, check): (&String, &CheckResult)| json!({"name": name, "ok": check.ok, "latencyMs": check.latency_ms, "detail": check.detail});
        let late = |late: &LateResult| json!({"attempt": late.attempt, "worker": late.worker.as_str(), "outcome": late.kind.as_str()});
        json!({
            "id": task.id.as_str(), "schedule": task.series.as_str(), "state": task.state.as_str(),
            "open": !task.state.is_final(), "due": self.facts.due_ms, "ageMs": self.age_ms(),
            "attempt": task.attempt, "attempts": task.limits.attempts_max,
            "worker": task.worker.as_ref().map(NodeId::as_str), "target": task.target.as_ref().map(NodeId::as_str),
            "epoch": task.epoch.0, "reason": &*task.reason, "why": self.facts.why(task),
            "checks": self.checks().map(check).collect::<Vec<Value>>(), "result": self.words(),
            "late": task.late.iter().map(late).collect::<Vec<Value>>(),
        })
    }

    /// What a table says of it.
    pub(super) fn cells(&self) -> [String; 7] {
        let task = &self.task;
        let failed: Vec<&str> =
            self.checks().filter(|(_, check)| !check.ok).map(|(name, _)| name.as_str()).collect();
        let said = match (&self.facts.report, failed.is_empty()) {
            (Some(report), true) => format!("{} of {} checks well", report.checks.len(), report.checks.len()),
            (Some(_), false) => format!("failed: {}", failed.join(", ")),
            (None, _) => self.words().unwrap_or_else(|| task.reason.to_string()),
        };
        let due = self.facts.due_ms.map_or_else(|| "-".to_owned(), moment);
        let age = self.age_ms().map_or_else(|| "-".to_owned(), span);
        [
            task.id.to_string(),
            task.state.as_str().to_owned(),
            format!("{}/{}", task.attempt, task.limits.attempts_max),
            task.worker.as_ref().map_or_else(|| "-".to_owned(), NodeId::to_string),
            due,
            age,
            said.chars().take(60).collect(),
        ]
    }

    /// All of it.
    pub(super) fn print(&self) {
        let task = &self.task;
        say!("job        {}", task.id);
        say!("schedule   {}", task.series);
        say!("state      {}", task.state.as_str());
        if let (Some(due_ms), Some(age_ms)) = (self.facts.due_ms, self.age_ms()) {
            say!("due        {}, {} ago", moment(due_ms), span(age_ms));
        }
        let worker = task.worker.as_ref().map_or("nobody", NodeId::as_str);
        say!(
            "attempt    {} of {}, given to {worker}, in epoch {}",
            task.attempt,
            task.limits.attempts_max,
            task.epoch.0
        );
        if !task.reason.is_empty() {
            say!("reason     {}", task.reason);
        }
        if let Some(why) = self.facts.why(task) {
            say!("why        {why}");
        }
        if let Some(words) = self.words() {
            say!("result     {words}");
        }
        for (name, check) in self.checks() {
            let how = if check.ok { "well" } else { "FAILED" };
            let detail =
                if check.detail.is_empty() { String::new() } else { format!(": {}", clean(&check.detail)) };
            say!("check      {name}: {how} after {} ms{detail}", check.latency_ms);
        }
        for late in &task.late {
            let (worker, kind) = (&late.worker, late.kind.as_str());
            say!("late       attempt {} on {worker} ended as {kind}, too late to count", late.attempt);
        }
    }
}
