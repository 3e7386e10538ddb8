//! All checks and figures of a record.
//!
//! Safety is strict: one finding fails the run, whatever the machine did meanwhile. Timing is held to what the settings
//! promise plus what they leave out and was measured: the time the store took to answer the successor, and twice the
//! time the machine stood still. What is late beyond that is a violation; what is late within it is told, not failed.

mod safety;
mod timing;

use crate::record::{Promise, Record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A set of durations in milliseconds, by nearest rank.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// The median.
    pub p50_ms: u64,
    /// Nine of ten are no longer.
    pub p90_ms: u64,
    /// 99 of a hundred are no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Spread {
    /// Of these durations.
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

/// What is known about one kind of fault.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KindFigures {
    /// How often.
    pub count: usize,
    /// How often it hit whoever led.
    pub hit_leader: usize,
    /// How often it alone hit the leader and another leadership began, and how long after the beginning of the fault.
    pub failover: Spread,
}

/// The case that must be in every run on a network: the leader, and only it, is answered with 503.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader503 {
    /// How often.
    pub count: usize,
    /// In how many of them somebody else led before it was over.
    pub replaced: usize,
    /// From the first 503 to the next leader.
    pub failover: Spread,
    /// How long before the next leader began the old one had stopped acting; the least.
    pub margin_min_ms: Option<i64>,
    /// How long before its deadline the old one had stopped acting; the least. Below zero it would be past it.
    pub before_deadline_min_ms: Option<i64>,
}

/// The check of the seat's history.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Linearizability {
    /// Whether there was a history to check: a store without a network has no proxy.
    pub recorded: bool,
    /// Whether there is an order that explains it.
    pub holds: bool,
    /// All operations.
    pub operations: usize,
    /// Reads, changed or not.
    pub reads: usize,
    /// Writes that won.
    pub won: usize,
    /// Writes that were refused.
    pub lost: usize,
    /// Writes of unknown outcome.
    pub unknown: usize,
    /// Of these, how many took effect after all.
    pub unknown_effective: usize,
    /// Requests that the proxies kept from the store.
    pub stopped: usize,
}

/// The least time between one leader's end and the next one's beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Margins {
    /// When the seat was vacated.
    pub vacated_min_ms: Option<i64>,
    /// When it was not: the lease ran out, or the process died.
    pub expired_min_ms: Option<i64>,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// For how long it stood still in all.
    pub stalled_ms: u64,
    /// The longest time at once.
    pub stalled_max_ms: u64,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Decided the schedule.
    pub seed: u64,
    /// The store.
    pub engine: String,
    /// How many nodes.
    pub nodes: usize,
    /// Their settings.
    pub preset: String,
    /// What these promise.
    pub promise: Promise,
    /// How long it was.
    pub seconds: u64,
    /// How many faults.
    pub faults: usize,
    /// By kind.
    pub kinds: BTreeMap<String, KindFigures>,
    /// How many processes were started.
    pub processes: usize,
    /// How many times somebody led.
    pub leaderships: usize,
    /// The highest epoch.
    pub epochs: u64,
    /// From SIGKILL of the leader to the next, where nothing else was wrong.
    pub crash_failover: Spread,
    /// What is promised for it, and what with requests given up and ranks of the dead counted in.
    pub crash_bound_ms: (u64, u64),
    /// From SIGTERM of the leader to the next, where nothing else was wrong.
    pub hand_over: Spread,
    /// What is promised for it.
    pub hand_over_bound_ms: u64,
    /// Between leaders.
    pub margins: Margins,
    /// The named scenario.
    pub leader503: Leader503,
    /// The history of the seat.
    pub linearizability: Linearizability,
    /// How many events were mapped to which transition of the proof.
    pub transitions: BTreeMap<String, u64>,
    /// How late after its deadline a leader said that it lost; the longest. It had stopped acting before.
    pub loss_told_late_max_ms: u64,
    /// The machine.
    pub machine: Machine,
    /// Late, but the machine or the store was too.
    pub excused: Vec<String>,
    /// What was left out.
    pub notices: Vec<String>,
    /// What must not be.
    pub violations: Vec<String>,
}

/// Judges a record.
pub fn judge(record: &Record) -> Verdict {
    let run = &record.run;
    let mut verdict = Verdict {
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
    let terms = safety::judge(record, &mut verdict);
    timing::judge(record, &terms, &mut verdict);
    verdict
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
