//! How the jobs stand, looked at again and again from outside: the ledger forgets those that are over after a while, the history
//! keeps them.

use super::Plan;
use crate::clock::boot_ms;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shorter than it takes until the ledger forgets a job that is over.
const EVERY: Duration = Duration::from_secs(2);

/// Most jobs to ask for one by one at the end, and how long that may take.
const SHOWN_MAX: usize = 500;
const SHOWN_WITHIN_MS: u64 = 120_000;

/// Of those seen before, this many are asked for again, most of them from the history.
const SAMPLES: usize = 8;

/// How a job stood at some time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    pub state: String,
    pub is_open: bool,
    /// How many attempts were begun, and how many there may be.
    pub attempt: u64,
    pub attempts: u64,
    pub result: String,
    /// How many results came too late to count.
    pub late: usize,
}

/// For each job: every different way in which it was over, in order; while it is open, only the latest.
pub type Standings = BTreeMap<String, Vec<Standing>>;

/// Parses a job as `tenure job ls` and `tenure job show` print it.
fn standing(job: &Value) -> Option<(String, Standing)> {
    let standing = Standing {
        state: job["state"].as_str()?.to_owned(),
        is_open: job["open"].as_bool()?,
        attempt: job["attempt"].as_u64()?,
        attempts: job["attempts"].as_u64()?,
        result: job["result"].as_str().unwrap_or_default().to_owned(),
        late: job["late"].as_array()?.len(),
    };
    Some((job["id"].as_str()?.to_owned(), standing))
}

fn note(standings: &mut Standings, (id, now): (String, Standing)) {
    let all = standings.entry(id).or_default();
    all.retain(|before| !before.is_open);
    // An open one after one that was over is a fault, so it is kept for the judge.
    if all.last() != Some(&now) {
        all.push(now);
    }
}

fn look(plan: &Plan) -> Result<Vec<(String, Standing)>> {
    let said = plan.ask(&["job", "ls", "--kind", "http", "--limit", "10000", "--json"])?;
    let list: Value = serde_json::from_str(&said).context("tenure job ls")?;
    let jobs = list["jobs"].as_array().context("tenure job ls without jobs")?;
    jobs.iter().map(|job| standing(job).with_context(|| format!("half a job: {job}"))).collect()
}

fn look_at(plan: &Plan, id: &str) -> Result<(String, Standing)> {
    let said = plan.ask(&["job", "show", id, "--json"])?;
    standing(&serde_json::from_str(&said)?).with_context(|| format!("half a job: {said}"))
}

/// A thread that looks every few seconds.
pub(super) struct LedgerWatch {
    over: Arc<AtomicBool>,
    standings: Arc<Mutex<Standings>>,
    thread: JoinHandle<Option<String>>,
}

impl LedgerWatch {
    pub(super) fn start(plan: &Plan) -> LedgerWatch {
        let (over, standings): (Arc<AtomicBool>, Arc<Mutex<Standings>>) = Default::default();
        let (end, noted, plan) = (Arc::clone(&over), Arc::clone(&standings), plan.clone());
        let thread = std::thread::spawn(move || {
            let mut failure = None;
            while !end.load(Ordering::Relaxed) {
                match look(&plan) {
                    Ok(jobs) => jobs.into_iter().for_each(|job| note(&mut noted.lock(), job)),
                    Err(error) => failure = Some(format!("{error:#}")),
                }
                std::thread::sleep(EVERY);
            }
            failure
        });
        LedgerWatch { over, standings, thread }
    }

    /// How many jobs were seen to be over.
    pub(super) fn count_over(&self) -> usize {
        let is_over = |all: &&Vec<Standing>| all.last().is_some_and(|last| !last.is_open);
        self.standings.lock().values().filter(is_over).count()
    }

    /// All that was seen, with one more look at those of these jobs that were not seen to be over, and at some that were. Also why
    /// it could not look, if that happened.
    pub(super) fn finish(self, plan: &Plan, ids: &[String]) -> (Standings, Option<String>) {
        self.over.store(true, Ordering::Relaxed);
        let failure = self.thread.join().unwrap_or_else(|_| Some("the thread panicked".to_owned()));
        let mut standings = std::mem::take(&mut *self.standings.lock());
        let is_open =
            |id: &&String| standings.get(*id).and_then(|all| all.last()).is_none_or(|last| last.is_open);
        let mut asked: BTreeSet<&String> = ids.iter().filter(is_open).take(SHOWN_MAX).collect();
        asked.extend(ids.iter().step_by(ids.len().div_ceil(SAMPLES).max(1)));
        let limit_ms = boot_ms() + SHOWN_WITHIN_MS;
        for id in asked {
            if boot_ms() > limit_ms {
                break;
            }
            // One that is nowhere stays without a standing.
            if let Ok(job) = look_at(plan, id) {
                note(&mut standings, job);
            }
        }
        (standings, failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_in_which_a_job_was_over_is_kept() {
        let job = |state: &str, open: bool, result: &str| {
            let job = json!({"id": "j", "state": state, "open": open, "attempt": 1, "attempts": 3, "result": result, "late": []});
            standing(&job).expect("complete")
        };
        let mut standings = Standings::new();
        note(&mut standings, job("queued", true, ""));
        note(&mut standings, job("running", true, ""));
        assert_eq!(standings["j"].len(), 1, "only the latest while it is open");
        note(&mut standings, job("succeeded", false, "a"));
        note(&mut standings, job("succeeded", false, "a"));
        assert_eq!(standings["j"].len(), 1);
        note(&mut standings, job("succeeded", false, "b"));
        note(&mut standings, job("queued", true, ""));
        let states: Vec<(&str, &str)> = standings["j"]
            .iter()
            .map(|standing| (standing.state.as_str(), standing.result.as_str()))
            .collect();
        assert_eq!(states, [("succeeded", "a"), ("succeeded", "b"), ("queued", "")]);
        assert!(standing(&json!({"id": "j"})).is_none());
    }
}
