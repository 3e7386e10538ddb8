//! The result of a job: for each check, whether it passed and how long it took. A job's result holds at most 1 KiB, so results
//! identify checks by position, and details are cut until they fit.

use crate::schedules::schedule::VERSION;
use serde_json::{Value, json};

/// The largest result of a job, as in the library.
const RESULT_MAX_BYTES: usize = 1024;

/// Details are first cut to this length.
const DETAIL_MAX_CHARS: usize = 120;

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CheckResult {
    /// Whether the check passed.
    pub ok: bool,
    /// How long the check took.
    pub latency_ms: u64,
    /// Why it failed, for people; may be cut.
    pub detail: String,
}

/// The result of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobReport {
    /// The due time of the job.
    pub due_ms: u64,
    /// A digest of the checks it is about; see [`Schedule::names_digest`](crate::schedules::Schedule::names_digest).
    pub names: String,
    /// One result per check, in the order of the checks.
    pub checks: Vec<CheckResult>,
}

impl JobReport {
    /// The result as stored with the job. Shortens all details alike until they fit.
    pub fn to_result(&self) -> Vec<u8> {
        let mut most = DETAIL_MAX_CHARS;
        loop {
            let row = |check: &CheckResult| {
                let detail: String = check.detail.chars().take(most).collect();
                match detail.is_empty() {
                    true => json!([check.ok, check.latency_ms]),
                    false => json!([check.ok, check.latency_ms, detail]),
                }
            };
            let rows: Value = self.checks.iter().map(row).collect();
            let text =
                json!({"v": VERSION, "due": self.due_ms, "names": self.names, "checks": rows}).to_string();
            if text.len() <= RESULT_MAX_BYTES || most == 0 {
                return text.into_bytes();
            }
            most = most * 3 / 4;
        }
    }

    /// Reads the result of a job; `None` if it is not a report this version understands.
    pub fn from_result(result: &[u8]) -> Option<JobReport> {
        let value: Value = serde_json::from_slice(result).ok()?;
        if value.get("v")?.as_u64()? != VERSION {
            return None;
        }
        let row = |row: &Value| {
            let row = row.as_array()?;
            let detail = row.get(2).and_then(Value::as_str).unwrap_or_default().to_owned();
            Some(CheckResult { ok: row.first()?.as_bool()?, latency_ms: row.get(1)?.as_u64()?, detail })
        };
        let rows = value.get("checks")?.as_array()?;
        Some(JobReport {
            due_ms: value.get("due")?.as_u64()?,
            names: value.get("names")?.as_str()?.to_owned(),
            checks: rows.iter().map(row).collect::<Option<Vec<CheckResult>>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_many_checks_that_all_say_much_fits() {
        let check = |n: u64| CheckResult {
            ok: n.is_multiple_of(3),
            latency_ms: 3_600_000,
            detail: "ü\"\\".repeat(100),
        };
        let report = JobReport {
            due_ms: u64::MAX,
            names: "0123456789abcdef".to_owned(),
            checks: (0..32).map(check).collect(),
        };
        let result = report.to_result();
        assert!(result.len() <= RESULT_MAX_BYTES, "{} bytes", result.len());
        let read = JobReport::from_result(&result).expect("readable");
        assert_eq!((read.checks.len(), read.due_ms), (32, u64::MAX));
        assert!(
            read.checks.iter().zip(&report.checks).all(|(a, b)| a.ok == b.ok && a.latency_ms == b.latency_ms)
        );
        let short = JobReport {
            checks: vec![CheckResult { ok: false, latency_ms: 5, detail: "no".to_owned() }],
            ..report
        };
        assert_eq!(JobReport::from_result(&short.to_result()), Some(short));
    }

    #[test]
    fn what_is_no_report_is_none() {
        for text in [
            "",
            "its handler panicked",
            "{}",
            r#"{"v":2,"due":1,"names":"","checks":[]}"#,
            r#"{"v":1,"due":1,"names":"","checks":[[1,2]]}"#,
        ] {
            assert_eq!(JobReport::from_result(text.as_bytes()), None, "{text}");
        }
    }
}
