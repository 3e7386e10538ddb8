//! How checks are doing over time: a number of failures in a row makes a check fail, a number of successes makes it recover. The
//! leader announces each change once.
//!
//! Pure. [`Health::to_json`] holds what must survive a failover; it is written before a change is announced. Results since then
//! are in the ledger, and the next leader takes them from there in the same order. Failures between two changes are remembered
//! only as long as the ledger keeps finished jobs; after that, counting starts over, and nothing is announced twice.

use super::report::{CheckResult, JobReport};
use crate::schedules::schedule::Schedule;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tenure::id::{CheckName, ScheduleId};

/// The state of one check.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CheckHealth {
    /// It was announced as failing, and not as recovered since.
    pub failing: bool,
    /// The due time of the job with which it began to fail. `None` while it is well, or if an older version wrote the state.
    pub since_ms: Option<u64>,
    /// Failures in a row.
    pub failures: u64,
    /// Successes in a row.
    pub successes: u64,
    /// The last result this leader saw.
    pub last: Option<CheckResult>,
}

/// A check that began or stopped failing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transition {
    /// The schedule of the check.
    pub schedule: ScheduleId,
    /// The check's name within its schedule.
    pub check: CheckName,
    /// Whether it is failing from now on.
    pub failing: bool,
    /// The due time of the job that showed it.
    pub due_ms: u64,
    /// How many results in a row led to this.
    pub in_a_row: u64,
    /// The detail of the last of those results.
    pub detail: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct ScheduleHealth {
    /// The newest due time taken in.
    upto_ms: u64,
    checks: BTreeMap<CheckName, CheckHealth>,
}

/// The state of all checks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Health {
    schedules: BTreeMap<ScheduleId, ScheduleHealth>,
}

impl From<Health> for Value {
    fn from(health: Health) -> Value {
        health.to_json()
    }
}

impl TryFrom<Value> for Health {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Health, &'static str> {
        Health::from_json(&value).ok_or("`health` cannot be read")
    }
}

impl Health {
    /// The number of checks announced as failing.
    pub fn failing(&self) -> usize {
        let checks = self.schedules.values().flat_map(|known| known.checks.values());
        checks.filter(|check| check.failing).count()
    }

    /// Takes a report and returns what changed. A report older than one already taken, or about other checks than the schedule
    /// has now, changes nothing.
    pub fn apply(&mut self, schedule: &Schedule, report: &JobReport) -> Vec<Transition> {
        let same = report.names == schedule.names_digest() && report.checks.len() == schedule.checks.len();
        let known = self.schedules.entry(schedule.id.clone()).or_default();
        if !same || report.due_ms <= known.upto_ms {
            return Vec::new();
        }
        known.upto_ms = report.due_ms;
        let mut transitions = Vec::new();
        for (check, result) in schedule.checks.iter().zip(&report.checks) {
            let health = known.checks.entry(check.name.clone()).or_default();
            if result.ok {
                (health.failures, health.successes) = (0, health.successes.saturating_add(1));
            } else {
                (health.failures, health.successes) = (health.failures.saturating_add(1), 0);
            }
            health.last = Some(result.clone());
            let (in_a_row, limit) = match health.failing {
                false => (health.failures, schedule.fail_after),
                true => (health.successes, schedule.recover_after),
            };
            if in_a_row >= limit {
                health.failing = !health.failing;
                health.since_ms = health.failing.then_some(report.due_ms);
                transitions.push(Transition {
                    schedule: schedule.id.clone(),
                    check: check.name.clone(),
                    failing: health.failing,
                    due_ms: report.due_ms,
                    in_a_row,
                    detail: result.detail.clone(),
                });
            }
        }
        known.checks.retain(|name, _| schedule.checks.iter().any(|check| check.name == *name));
        transitions
    }

    /// Forgets a schedule and its checks.
    pub fn forget(&mut self, schedule: &ScheduleId) {
        self.schedules.remove(schedule);
    }

    /// The state of a schedule's checks.
    pub fn of(&self, schedule: &ScheduleId) -> BTreeMap<CheckName, CheckHealth> {
        self.schedules.get(schedule).map(|known| known.checks.clone()).unwrap_or_default()
    }

    /// What the next leader must know, leaving out checks that are well: `{"web":{"upto":…,"checks":{"home":[failing, failures,
    /// successes, since]}}}`.
    pub fn to_json(&self) -> Value {
        let check = |(name, health): (&CheckName, &CheckHealth)| {
            (name.to_string(), json!([health.failing, health.failures, health.successes, health.since_ms]))
        };
        let known = |(id, known): (&ScheduleId, &ScheduleHealth)| {
            let unwell = known.checks.iter().filter(|(_, health)| health.failing || health.failures > 0);
            let checks: Map<String, Value> = unwell.map(check).collect();
            (id.to_string(), json!({"upto": known.upto_ms, "checks": checks}))
        };
        Value::Object(self.schedules.iter().map(known).collect())
    }

    /// Reads what [`to_json`](Health::to_json) wrote.
    pub fn from_json(value: &Value) -> Option<Health> {
        let check = |(name, row): (&String, &Value)| {
            let health = CheckHealth {
                failing: row.get(0)?.as_bool()?,
                failures: row.get(1)?.as_u64()?,
                successes: row.get(2)?.as_u64()?,
                since_ms: row.get(3).and_then(Value::as_u64),
                last: None,
            };
            Some((CheckName::new(name).ok()?, health))
        };
        let known = |(id, known): (&String, &Value)| {
            let checks = known.get("checks")?.as_object()?.iter().map(check);
            let upto_ms = known.get("upto")?.as_u64()?;
            Some((
                ScheduleId::new(id).ok()?,
                ScheduleHealth { upto_ms, checks: checks.collect::<Option<_>>()? },
            ))
        };
        let schedules = value.as_object()?.iter().map(known).collect::<Option<_>>()?;
        Some(Health { schedules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::{Rules, read_file};

    fn schedule() -> Schedule {
        let text = "[{id: web, every: 1m, failAfter: 3, recoverAfter: 2, checks: [{name: a, kind: dns, host: x}, {name: b, kind: dns, host: y}]}]";
        read_file(text, &Rules::default()).expect("valid").pop().expect("one")
    }

    fn report(due_ms: u64, results: &str) -> JobReport {
        let result = |c| CheckResult { ok: c == '+', latency_ms: 1, detail: String::new() };
        JobReport { due_ms, names: schedule().names_digest(), checks: results.chars().map(result).collect() }
    }

    fn told(health: &mut Health, due_ms: u64, results: &str) -> Vec<String> {
        let transitions = health.apply(&schedule(), &report(due_ms, results));
        transitions.iter().map(|t| format!("{}{}", t.check, if t.failing { "-" } else { "+" })).collect()
    }

    const RESULTS: [(&str, &[&str]); 10] = [
        ("--", &[]),
        ("-+", &[]),
        ("--", &["a-"]),
        ("--", &[]),
        ("+-", &["b-"]),
        ("-+", &[]),
        ("++", &["b+"]),
        ("+-", &["a+"]),
        ("+-", &[]),
        ("--", &["b-"]),
    ];

    #[test]
    fn transitions_are_told_once() {
        let mut health = Health::default();
        for (place, (results, expected)) in RESULTS.iter().enumerate() {
            assert_eq!(told(&mut health, place as u64 + 1, results), *expected, "{place}");
            assert_eq!(told(&mut health, place as u64 + 1, results), [""; 0], "{place} again");
        }
    }

    /// Wherever a leader ends, the next one announces the rest and nothing twice: it has what was written with the last change,
    /// and takes the jobs since then from the ledger.
    #[test]
    fn transitions_are_told_once_through_a_failover() {
        for failover in 0..RESULTS.len() {
            let (mut health, mut saved, mut all) = (Health::default(), json!({}), Vec::new());
            for (place, (step, _)) in RESULTS.iter().enumerate() {
                if place == failover {
                    health = Health::from_json(&saved).expect("readable");
                    for (before, (results, _)) in RESULTS.iter().enumerate().take(place) {
                        assert_eq!(told(&mut health, before as u64 + 1, results), [""; 0], "replayed");
                    }
                }
                let transitions = told(&mut health, place as u64 + 1, step);
                if !transitions.is_empty() {
                    saved = health.to_json();
                }
                all.extend(transitions);
            }
            assert_eq!(all, ["a-", "b-", "b+", "a+", "b-"], "failover before {failover}");
        }
    }

    #[test]
    fn a_check_fails_since_the_job_that_showed_it_through_a_failover() {
        let mut health = Health::default();
        let first = schedule().checks[0].name.clone();
        let since = |health: &Health| health.of(&schedule().id)[&first].since_ms;
        for (due_ms, expected) in [(10, None), (20, None), (30, Some(30)), (40, Some(30))] {
            told(&mut health, due_ms, "-+");
            health = Health::from_json(&health.to_json()).expect("readable");
            assert_eq!(since(&health), expected, "{due_ms}");
        }
        told(&mut health, 50, "++");
        told(&mut health, 60, "++");
        assert_eq!(since(&health), None, "well again");
        let before = json!({"web": {"upto": 1, "checks": {"a": [true, 3, 0]}}});
        assert_eq!(since(&Health::from_json(&before).expect("readable")), None, "nobody wrote it down");
    }

    #[test]
    fn reports_about_other_checks_change_nothing() {
        let mut health = Health::default();
        let other = JobReport { names: "other".to_owned(), ..report(1, "--") };
        assert!(health.apply(&schedule(), &other).is_empty());
        assert!(health.apply(&schedule(), &report(1, "-")).is_empty());
        assert_eq!(health.of(&schedule().id), BTreeMap::new());
        assert_eq!(Health::from_json(&json!([])), None);
        assert_eq!(Health::from_json(&json!({"web": {"upto": 1, "checks": {"a": [1]}}})), None);
    }
}
