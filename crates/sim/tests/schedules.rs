//! A number of schedules on every run; `cargo xtask prove` plays hundreds of thousands.

use std::collections::BTreeSet;
use tenure_sim::explore::{Limits, explore};
use tenure_sim::transition::Transition;
use tenure_sim::{FaultKind, Options, checks, cluster, mutants, report, run, timeline};

const SEEDS: u64 = 2000;

#[test]
fn no_schedule_breaks_a_promise() {
    let report = report::run_many(0, SEEDS, None, 2, &Options::default());
    let first = report.failures.first();
    assert!(
        first.is_none(),
        "{} of {SEEDS} schedules: {first:?}\ncargo run --release -p tenure-sim -- replay {}",
        report.violated,
        first.map_or(0, |(seed, _)| *seed)
    );
    println!("{:#}", report.to_json());
    // A world in which nothing happens would prove nothing.
    assert!(
        report.claims > 4 * SEEDS && report.fenced > SEEDS,
        "{} claims, {} fenced",
        report.claims,
        report.fenced
    );
    assert!(report.timeouts > SEEDS / 4, "{} silences told", report.timeouts);
    let work = report.work;
    assert!(
        work.schedules > SEEDS / 5 && work.jobs > 10 * work.schedules && work.runs > 15 * work.schedules,
        "{work:?}"
    );
    assert!(work.late > SEEDS / 20 && work.restarts > SEEDS / 8 && work.gave_up > SEEDS / 40, "{work:?}");
    let idle: Vec<FaultKind> =
        report.faults.iter().filter(|(_, count)| *count < 20).map(|(kind, _)| kind).collect();
    assert_eq!(idle, [], "these kinds hardly ever struck");
    assert!(report.followed.steps > 3000 * SEEDS, "{} steps held against the model", report.followed.steps);
    let mut missing = report.followed.missing();
    // Hardly ever made: a late claim of its own, found within the pause after a vacate that failed.
    missing.retain(|name| *name != Transition::RetireOwnRecord.name());
    assert_eq!(missing, [""; 0], "these transitions of the proof were never made");
    assert!(report.clauses > report.steps / 2, "{} checks of clauses", report.clauses);
    assert!(report.failovers.len() > 500, "{} failovers measured", report.failovers.len());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..60 {
        let plain = run(seed, &Options::default());
        let recorded = run(seed, &Options { record: true, ..Options::default() });
        assert_eq!(plain.trace, recorded.trace, "seed {seed}");
        assert_ne!(plain.trace, run(seed + 1, &Options::default()).trace, "the trace tells seeds apart");
    }
}

#[test]
fn a_replay_shows_the_leaders_work() {
    let options = Options { record: true, ..Options::default() };
    let lines = ["== ledger", "== inbox of worker-", "Started { process: 0", "runs round-", "is Succeeded"];
    let shown = |seed| {
        let outcome = run(seed, &options);
        let text = (outcome.work.jobs > 0).then(|| timeline::text(&outcome));
        text.is_some_and(|text| lines.iter().all(|line| text.contains(line)))
    };
    assert!((1..60).any(shown), "every fourth schedule has work, and most of it succeeds");
}

#[test]
fn a_replay_can_be_read_and_seen() {
    let outcome = run(5, &Options { record: true, ..Options::default() });
    let text = timeline::text(&outcome);
    assert!(text.contains("work of e1 starts") && text.contains("!! "), "{text}");
    let svg = timeline::svg(&outcome, "seed 5");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("node-0"));
}

#[test]
fn the_explorer_finds_nothing_within_its_limits() {
    for nodes in [2, 3] {
        for limits in Limits::small(nodes) {
            let found = explore(&limits, None);
            println!("{limits:?}: {} states, depth {}, {:?}", found.states, found.depth, found.took);
            assert!(found.violation.is_none(), "{limits:?}: {:#?}", found.violation);
            assert!(found.complete && found.states > 400, "{limits:?}: {found:?}");
            assert!(found.followed.steps > found.states / 2, "{limits:?}: {found:?}");
        }
    }
}

/// After a crash nobody leads at once, so a bound of nothing must be found to be broken.
#[test]
fn the_explorer_notices_when_nobody_leads_in_time() {
    let crash =
        Limits::small(2).into_iter().find(|limits| limits.crashes > 0).expect("a search with a crash");
    let found = explore(&Limits { live_ms: Some(0), ..crash }, None);
    let (violation, steps) = found.violation.expect("it takes a while");
    assert_eq!(violation.check, checks::name::LEADER_IN_TIME, "{violation:?}");
    assert!(!steps.is_empty(), "and how it comes about is told");
}

/// The names that tie the code to the proof are the proof's.
#[test]
fn the_proof_knows_every_transition_and_every_mutant_by_its_name() {
    let proof = include_str!("../../../proof/seat.py");
    for transition in Transition::ALL {
        let name = transition.name();
        assert!(proof.contains(&format!("    def {name}(s, ")), "{name} is no transition of proof/seat.py");
    }
    let (_, from) = proof.split_once("RUST_MUTANTS = {").expect("a table");
    let (table, _) = from.split_once("\n}\n").expect("its end");
    let named = table.lines().filter_map(|line| line.strip_prefix("    \"")?.split_once("\": Change("));
    let proved: BTreeSet<String> = named.map(|(name, _)| name.to_owned()).collect();
    let mut forbidden: BTreeSet<String> =
        mutants::FORBIDDEN.iter().map(|mutant| format!("{mutant:?}")).collect();
    // A store that ignores conditions is the store's doing. That work checks its own deadline is enough for the proof, but a step
    // past the deadline is still none of the model's.
    assert!(forbidden.insert("UnsafeStoreAccepted".to_owned()) && forbidden.remove("DeadlineIgnored"));
    assert_eq!(proved, forbidden);
}

#[test]
fn the_driver_keeps_the_same_promises() {
    let report = cluster::run_many(0, 60, None);
    assert_eq!(report.violations, []);
    assert!(report.leaders > 120 && report.acts > 10_000, "{report:?}");
    assert!(report.followed.steps > 10_000, "{report:?}");
    for seed in 0..5 {
        assert_eq!(cluster::run(seed).trace, cluster::run(seed).trace, "seed {seed}");
    }
}

/// Write latency of a far region for thirty days: median 220 ms, p99 700 ms, 0.3 % above 1 s.
#[test]
fn sl2_a_far_region_costs_hardly_any_leadership() {
    let outcome = tenure_sim::far_region::far(tenure_core::Config::default(), 30, 1);
    println!("{outcome:?}");
    assert!(outcome.renewals > 1_600_000, "{outcome:?}");
    assert!(outcome.losses <= 1, "leadership is lost at most once a month: {outcome:?}");
    assert!(outcome.stops <= 30, "work is told to stop at most once a day: {outcome:?}");
}
