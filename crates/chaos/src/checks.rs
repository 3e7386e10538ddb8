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
    /// How many durations.
    pub count: usize,
    /// The median.
    pub p50_ms: u64,
    /// 90 % are no longer.
    pub p90_ms: u64,
    /// 99 % are no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Spread {
    /// Summarizes these durations.
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

/// The figures of one kind of fault.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindFigures {
    /// How often it occurred.
    pub count: usize,
    /// How often it hit the leader.
    pub hit_leader: usize,
    /// From its start to the next term, for the times it alone hit the leader and another term began.
    pub failover: Spread,
}

/// The case that every run on a network must have: the leader, and only the leader, is answered with 503.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader503 {
    /// How often it occurred.
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
    /// The number of all operations.
    pub operations: usize,
    /// Reads, whether the seat had changed or not.
    pub reads: usize,
    /// Writes that won.
    pub won: usize,
    /// Writes that were refused.
    pub lost: usize,
    /// Writes of unknown outcome.
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
    /// For seats that were vacated.
    pub vacated_min_ms: Option<i64>,
    /// For seats that were not: the lease ran out, or the process died.
    pub expired_min_ms: Option<i64>,
}

/// How much the machine itself stood still.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The total time it stood still.
    pub stalled_ms: u64,
    /// The longest single stall.
    pub stalled_max_ms: u64,
}

/// What the checks of a run found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// The seed of the schedule.
    pub seed: u64,
    /// The store's name.
    pub engine: String,
    /// The number of nodes.
    pub nodes: usize,
    /// The nodes' preset of settings.
    pub preset: String,
    /// What these settings promise.
    pub promise: Promise,
    /// The length of the run.
    pub seconds: u64,
    /// The number of faults.
    pub faults: usize,
    /// The figures by kind of fault.
    pub kinds: BTreeMap<String, KindFigures>,
    /// The number of processes started.
    pub processes: usize,
    /// The number of terms.
    pub leaderships: usize,
    /// The highest epoch.
    pub epochs: u64,
    /// From SIGKILL of the leader to the next, when nothing else was wrong.
    pub crash_failover: Spread,
    /// The promised bound, and the same with abandoned requests and ranks of dead nodes included.
    pub crash_bound_ms: (u64, u64),
    /// From SIGTERM of the leader to the next, when nothing else was wrong.
    pub hand_over: Spread,
    /// The promised bound on `hand_over`.
    pub hand_over_bound_ms: u64,
    /// The least times between two leaders.
    pub margins: Margins,
    /// The case that every run on a network must have.
    pub leader503: Leader503,
    /// The check of the seat's history.
    pub linearizability: Linearizability,
    /// How many events were mapped to each transition of the proof.
    pub transitions: BTreeMap<String, u64>,
    /// The longest time from a deadline to the leader's report that it lost. It had stopped acting before.
    pub loss_told_late_max_ms: u64,
    /// How much the machine stood still.
    pub machine: Machine,
    /// What was late while the machine or the store was late too.
    pub excused: Vec<String>,
    /// What was left out, and why.
    pub notices: Vec<String>,
    /// What must not have happened and did.
    pub violations: Vec<String>,
}

/// Judges a record.
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
