//! Many schedules, one report.

use crate::checks::Violation;
use crate::failovers::Failover;
use crate::fault::FaultCounts;
use crate::run::{Options, run};
use crate::transition::Followed;
use crate::workloads::jobs::WorkDone;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many failing seeds are kept in full.
const FAILURES_KEPT: usize = 20;

/// The result of many schedules.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first seed.
    pub from: u64,
    /// How many schedules ran.
    pub schedules: u64,
    /// Simulated milliseconds in total.
    pub simulated_ms: u64,
    /// Inputs fed to cores.
    pub steps: u64,
    /// Steps compared with the proof's model.
    pub followed: Followed,
    /// How often the clauses of the proof were checked.
    pub clauses: u64,
    /// Claims that landed.
    pub claims: u64,
    /// Stale tasks that were refused.
    pub fenced: u64,
    /// Reports of a worker's silence, over all nodes.
    pub timeouts: u64,
    /// What leaders got done.
    pub work: WorkDone,
    /// Faults by kind.
    pub faults: FaultCounts,
    /// How many schedules had a violation.
    pub violated: u64,
    /// Some of them: the seed and the first violation.
    pub failures: Vec<(u64, Violation)>,
    /// Measured failovers, sorted by share of the bound.
    pub failovers: Vec<Failover>,
    /// The smallest gap between two leaders' work, in thousandths of a lease, and its seed.
    pub margin: Option<(u64, u64)>,
    /// How long the run took.
    pub took: Duration,
}

/// Runs `count` seeds starting at `from`, or as many as fit into the time, on this many threads.
pub fn run_many(from: u64, count: u64, time: Option<Duration>, threads: usize, options: &Options) -> Report {
    let started = Instant::now();
    let (next, sum) = (AtomicU64::new(0), Mutex::new(Report { from, ..Report::default() }));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = Report::default();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || time.is_some_and(|limit| started.elapsed() >= limit) {
                        break;
                    }
                    own.add(from + index, options);
                }
                sum.lock().merge(own);
            });
        }
    });
    let mut report = sum.into_inner();
    report.took = started.elapsed();
    report.failures.sort_by_key(|(seed, _)| *seed);
    report.failures.truncate(FAILURES_KEPT);
    report.failovers.sort_by_key(|failover| failover.took_ms * 10_000 / failover.bound_ms.max(1));
    report
}

impl Report {
    fn add(&mut self, seed: u64, options: &Options) {
        let outcome = run(seed, options);
        self.schedules += 1;
        self.simulated_ms += outcome.simulated_ms;
        self.steps += outcome.steps;
        self.followed.add(&outcome.followed);
        self.clauses += outcome.clauses;
        self.claims += outcome.claims;
        self.fenced += outcome.fenced;
        self.timeouts += outcome.timeouts;
        self.work.merge(&outcome.work);
        self.faults.merge(&outcome.faults);
        self.failovers.extend(outcome.failovers);
        if let Some(margin) = outcome.margin_permille {
            self.margin = Some(self.margin.map_or((margin, seed), |least| least.min((margin, seed))));
        }
        if let Some(violation) = outcome.violations.into_iter().next() {
            self.violated += 1;
            self.failures.push((seed, violation));
        }
    }

    fn merge(&mut self, other: Report) {
        self.schedules += other.schedules;
        self.simulated_ms += other.simulated_ms;
        self.steps += other.steps;
        self.followed.add(&other.followed);
        self.clauses += other.clauses;
        self.claims += other.claims;
        self.fenced += other.fenced;
        self.timeouts += other.timeouts;
        self.work.merge(&other.work);
        self.faults.merge(&other.faults);
        self.violated += other.violated;
        self.failures.extend(other.failures);
        self.failovers.extend(other.failovers);
        self.margin = match (self.margin, other.margin) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }

    /// Simulated seconds per second of one thread, if the run had one thread.
    pub fn speed(&self) -> f64 {
        self.simulated_ms as f64 / 1000.0 / self.took.as_secs_f64().max(1e-9)
    }

    fn percentiles(&self, crash: bool) -> Value {
        let all: Vec<&Failover> = self.failovers.iter().filter(|failover| failover.crash == crash).collect();
        // In thousandths of the settings' bound; above 1000 are the store's latency and the ranks of dead nodes.
        let at = |share: f64| {
            let index = ((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1));
            all.get(index).map(|failover| failover.took_ms * 1000 / failover.bound_ms.max(1))
        };
        json!({
            "count": all.len(), "unit": "permille of the bound",
            "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0),
        })
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let faults: serde_json::Map<String, Value> =
            self.faults.iter().map(|(kind, count)| (kind.name().to_owned(), count.into())).collect();
        let failures: Vec<Value> = self
            .failures
            .iter()
            .map(|(seed, violation)| {
                json!({"seed": seed, "check": violation.check, "what": violation.what, "atMs": violation.at,
                    "replay": format!("tenure-sim replay {seed}")})
            })
            .collect();
        json!({
            "from": self.from,
            "schedules": self.schedules,
            "simulatedSeconds": self.simulated_ms / 1000,
            "wallSeconds": self.took.as_secs_f64(),
            "simulatedPerWallSecond": self.speed(),
            "steps": self.steps,
            "followed": self.followed.to_json(),
            "clauseChecks": self.clauses,
            "claims": self.claims,
            "staleTasksFenced": self.fenced,
            "workerTimeoutsTold": self.timeouts,
            "leadersWork": {
                "schedules": self.work.schedules, "runs": self.work.runs, "jobsEnded": self.work.finished,
                "jobs": self.work.jobs, "lateResults": self.work.late, "processRestarts": self.work.restarts,
                "gaveUp": self.work.gave_up, "retries": self.work.retries, "once": self.work.once,
            },
            "faults": faults,
            "faultsTotal": self.faults.total(),
            "violations": self.violated,
            "failures": failures,
            "failoverCrash": self.percentiles(true),
            "failoverGraceful": self.percentiles(false),
            "leastMarginPermilleOfLease": self.margin.map(|(margin, _)| margin),
            "leastMarginSeed": self.margin.map(|(_, seed)| seed),
        })
    }
}
