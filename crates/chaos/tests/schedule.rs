//! Schedules: the seed decides everything, and everything comes up.

use std::collections::BTreeSet;
use tenure_chaos::schedule::{Kind, Means, Pace, Round, Schedule, Target};

const PACE: Pace = Pace { lease_ms: 1_000, failover_ms: 1_850 };
const BUCKET: Means = Means { network: true, restart: true, file: false, faketime: true };
const FILE: Means = Means { network: false, restart: false, file: true, faketime: false };

fn rounds(seed: u64, means: Means, count: usize) -> Vec<Round> {
    Schedule::new(seed, means, PACE).take(count).collect()
}

fn kinds(rounds: &[Round]) -> BTreeSet<Kind> {
    rounds.iter().flat_map(|round| &round.faults).map(|fault| fault.kind).collect()
}

#[test]
fn a_seed_decides_everything() {
    assert_eq!(rounds(7, BUCKET, 200), rounds(7, BUCKET, 200));
    assert_ne!(rounds(7, BUCKET, 20), rounds(8, BUCKET, 20));
}

#[test]
fn every_kind_comes_up_that_can_and_none_that_cannot() {
    for seed in 0..50 {
        let on_a_bucket = kinds(&rounds(seed, BUCKET, 40));
        assert_eq!(on_a_bucket.len(), Kind::ALL.len() - 1, "seed {seed}: {on_a_bucket:?}");
        assert!(!on_a_bucket.contains(&Kind::StoreHeld));
        let on_a_file: Vec<Kind> = kinds(&rounds(seed, FILE, 40)).into_iter().collect();
        assert_eq!(on_a_file, [Kind::Crash, Kind::Stop, Kind::Pause, Kind::StoreHeld], "seed {seed}");
    }
}

#[test]
fn the_named_scenario_and_what_is_measured_come_first() {
    for seed in 0..50 {
        let first: Vec<Kind> = rounds(seed, BUCKET, 3).iter().map(|round| round.faults[0].kind).collect();
        assert_eq!(first, [Kind::Crash, Kind::Stop, Kind::Leader503], "seed {seed}");
        let all = rounds(seed, BUCKET, 200);
        let named = all.iter().filter(|round| round.faults[0].kind == Kind::Leader503);
        assert!(named.clone().count() >= 5);
        assert!(
            named.clone().all(|round| round.faults.len() == 1 && round.faults[0].target == Target::Leader)
        );
    }
}

#[test]
fn named_faults_come_alone_and_hit_the_leader() {
    let means = Means { network: true, restart: true, file: true, faketime: true };
    let only = vec![Kind::Pause, Kind::Crash];
    let rounds: Vec<Round> = Schedule::new(7, means, PACE).only(only.clone()).take(40).collect();
    assert!(rounds.iter().all(|round| round.faults.len() == 1));
    assert!(rounds.iter().all(|round| only.contains(&round.faults[0].kind)));
    assert!(rounds.iter().all(|round| round.faults[0].target == Target::Leader));
    assert_eq!(Schedule::new(7, means, PACE).only(Vec::new()).next(), Schedule::new(7, means, PACE).next());
}
