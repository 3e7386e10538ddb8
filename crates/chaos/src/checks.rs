//! All checks and figures of a record.
//!
//! Safety is strict: one finding fails the run, whatever the machine did at the time. Timing is held to what the settings
//! promise, plus what they leave out and was measured: the time the store took to answer the successor, and twice the time the
//! machine stood still. Anything later than that is a violation; anything late within it is reported, not failed.

mod safety;
mod timing;

use crate::record::{Promise, Record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A set of durations in milliseconds; percentiles by nearest rank.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    pub count: usize,
    pub p50_ms: u64,
    pub p90_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

impl Spread {
    pub fn of(mut durations_ms: Vec<u64>) -> Spread {
        durations_ms.sort_unstable();
        let rank = |percent: usize| {
            let index = (durations_ms.len() * percent).div_ceil(100).max(1) - 1;
            durations_ms.get(index).copied().unwrap_or(0)
        };
        let (p50_ms, p90_ms, p99_ms, max_ms) = (rank(50), rank(90), rank(99), rank(100));
        Spread { count: durations_ms.len(), p50_ms, p90_ms, p99_ms, max_ms }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindFigures {
    pub count: usize,
    pub hit_leader: usize,
    /// From its start to the next term, for the times it alone hit the leader and another term began.
    pub failover: Spread,
}

/// The case that every run on a network must have: the leader, and only the leader, is answered with 503.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader503 {
    pub count: usize,
    /// How often another node led before it was over.
    pub replaced: usize,
    /// From the first 503 to the next leader.
    pub failover: Spread,
    /// The least time between the old leader's last act and the next leader's start.
    pub margin_min_ms: Option<i64>,
    /// The least time between the old leader's last act and its deadline. Negative means past the deadline.
    pub before_deadline_min_ms: Option<i64>,
}

/// The check of the seat's history.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Linearizability {
    /// Whether there was a history to check: a store without a network has no proxy.
    pub recorded: bool,
    /// Whether some order explains the history.
    pub holds: bool,
    pub operations: usize,
    /// Reads, whether the seat had changed or not.
    pub reads: usize,
    pub won: usize,
    pub lost: usize,
    pub unknown: usize,
    /// Writes of unknown outcome that took effect after all.
    pub unknown_effective: usize,
    /// Requests that the proxies kept from the store.
    pub stopped: usize,
}

/// The least time between one leader's end and the next one's start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Margins {
    pub vacated_min_ms: Option<i64>,
    /// For seats that were not: the lease ran out, or the process died.
    pub expired_min_ms: Option<i64>,
}

/// How much the machine itself stood still.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    pub stalled_ms: u64,
    pub stalled_max_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    pub seed: u64,
    pub engine: String,
    pub nodes: usize,
    pub preset: String,
    pub promise: Promise,
    pub seconds: u64,
    pub faults: usize,
    pub kinds: BTreeMap<String, KindFigures>,
    pub processes: usize,
    pub leaderships: usize,
    /// The highest epoch.
    pub epochs: u64,
    /// From SIGKILL of the leader to the next, when nothing else was wrong.
    pub crash_failover: Spread,
    /// The promised bound, and the same with abandoned requests and ranks of dead nodes included.
    pub crash_bound_ms: (u64, u64),
    /// From SIGTERM of the leader to the next, when nothing else was wrong.
    pub hand_over: Spread,
    pub hand_over_bound_ms: u64,
    pub margins: Margins,
    pub leader503: Leader503,
    pub linearizability: Linearizability,
    /// How many events were mapped to each transition of the proof.
    pub transitions: BTreeMap<String, u64>,
    /// The longest time from a deadline to the leader's report that it lost. It had stopped acting before.
    pub loss_told_late_max_ms: u64,
    pub machine: Machine,
    /// What was late while the machine or the store was late too.
    pub excused: Vec<String>,
    /// What was left out, and why.
    pub notices: Vec<String>,
    pub violations: Vec<String>,
}

pub fn judge(record: &Record) -> Findings {
    let run = &record.run;
    let mut findings = Findings {
        seed: run.seed,
        engine: run.engine.clone(),
        nodes: run.nodes,
        preset: run.preset.clone(),
        promise: run.promise.clone(),
        seconds: (run.ended_ms - run.began_ms) / 1000,
        faults: record.rounds.iter().map(|round| round.faults.len()).sum(),
        kinds: BTreeMap::new(),
        processes: record.lives.len(),
        leaderships: 0,
        epochs: 0,
        crash_failover: Spread::default(),
        crash_bound_ms: (run.promise.failover_bound_ms, run.promise.failover_ms(run.nodes)),
        hand_over: Spread::default(),
        hand_over_bound_ms: run.promise.hand_over_ms(),
        margins: Margins::default(),
        leader503: Leader503::default(),
        linearizability: Linearizability::default(),
        transitions: BTreeMap::new(),
        loss_told_late_max_ms: 0,
        machine: Machine {
            stalled_ms: record.stalls.iter().map(|stall| stall.stalled_ms).sum(),
            stalled_max_ms: record.stalls.iter().map(|stall| stall.stalled_ms).max().unwrap_or(0),
        },
        excused: Vec::new(),
        notices: run.notices.clone(),
        violations: run.complaints.iter().chain(&record.alarms).cloned().collect(),
    };
    let terms = safety::judge(record, &mut findings);
    timing::judge(record, &terms, &mut findings);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let spread = Spread::of((1..=200).rev().collect());
        assert_eq!(spread, Spread { count: 200, p50_ms: 100, p90_ms: 180, p99_ms: 198, max_ms: 200 });
        assert_eq!(Spread::of(vec![7]), Spread { count: 1, p50_ms: 7, p90_ms: 7, p99_ms: 7, max_ms: 7 });
        assert_eq!(Spread::of(vec![]), Spread::default());
    }
}
