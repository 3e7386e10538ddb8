//! One seed, one schedule; many seeds, one report.

use crate::caller_mistakes::CallerMistake;
use crate::checks::{Violation, name};
use crate::failovers::Failover;
use crate::fault::{FaultCounts, FaultMix};
use crate::trace::Note;
use crate::transition::Followed;
use crate::workloads::jobs::WorkDone;
use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tenure_core::Mutant;

/// Every fourth schedule measures failovers; the others suffer random faults.
const FAILOVERS_EVERY: u64 = 4;

/// How to run a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Kinds of faults that may strike.
    pub mix: FaultMix,
    /// A mistake in the core; only in builds with the feature `teeth`.
    pub mutant: Option<Mutant>,
    /// A mistake of the caller.
    pub mistake: Option<CallerMistake>,
    /// Keep everything that happened.
    pub record: bool,
    /// Compare every step with the proof's model, and every state with its clauses.
    pub modelled: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { mix: FaultMix::all(), mutant: None, mistake: None, record: false, modelled: true }
    }
}

/// Runs something with a mistake; only builds with the feature `teeth` have any.
pub(crate) fn with_mutant<R>(mutant: Option<Mutant>, run: impl FnOnce() -> R) -> R {
    #[cfg(feature = "teeth")]
    return Mutant::with(mutant, run);
    #[cfg(not(feature = "teeth"))]
    {
        assert!(mutant.is_none(), "broken variants need the feature `teeth`");
        run()
    }
}

/// The result of one schedule.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Violated invariants.
    pub violations: Vec<Violation>,
    /// A digest of everything that happened: same seed, same digest.
    pub trace: u64,
    /// Simulated milliseconds.
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
    /// Measured failovers.
    pub failovers: Vec<Failover>,
    /// The smallest gap between two leaders' work, in thousandths of a lease.
    pub margin_permille: Option<u64>,
    /// The names of the nodes.
    pub nodes: Vec<String>,
    /// Everything that happened, if it was recorded.
    pub notes: Vec<Note>,
}

/// Runs one schedule. A failed assertion of the core is a violation like any other.
pub fn run(seed: u64, options: &Options) -> Outcome {
    with_mutant(options.mutant, || run_whole(seed, options))
}

fn run_whole(seed: u64, options: &Options) -> Outcome {
    let mut world = World::new(seed, FaultMix::calm());
    world.trace.recording = options.record;
    world.mistake = options.mistake;
    world.modelled = options.modelled;
    let result = catch_unwind(AssertUnwindSafe(|| {
        if seed.is_multiple_of(FAILOVERS_EVERY) {
            crate::failovers::run(&mut world)
        } else {
            crate::random_faults::run(&mut world, options.mix);
            Vec::new()
        }
    }));
    let failovers = result.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        world.violated(name::ASSERTION, || said.unwrap_or_default());
        Vec::new()
    });
    Outcome {
        trace: world.trace.finish(),
        simulated_ms: world.now,
        steps: world.steps,
        followed: world.monitors.followed,
        clauses: world.monitors.checks,
        claims: world.seat_checks.claims,
        fenced: world.fenced,
        timeouts: world.worker_checks.timeouts,
        work: WorkDone {
            schedules: u64::from(world.has_jobs),
            finished: world.job_checks.finished(),
            jobs: world.job_checks.dues.values().map(|dues| dues.len() as u64).sum(),
            once: world.once.runs(),
            retries: world.job_checks.retried,
            ..world.work_done
        },
        faults: world.struck,
        failovers,
        margin_permille: world.seat_checks.margin,
        nodes: world.nodes.iter().map(|node| node.id.to_string()).collect(),
        notes: std::mem::take(&mut world.trace.notes),
        violations: world.checks.violations,
    }
}
