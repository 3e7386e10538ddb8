//! Random schedules of crashes, pauses, partitions and lost answers over the production core. One seed replays everything:
//! `TENURE_SEED=17 cargo test -p tenure-core --test properties`.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod world;

use world::random;

#[test]
fn no_schedule_elects_two_leaders_and_every_schedule_ends_with_one() {
    let seeds = match std::env::var("TENURE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("TENURE_SEED is a number");
            seed..seed + 1
        }
        Err(_) => {
            0..std::env::var("TENURE_SEEDS").map_or(3000, |n| n.parse().expect("TENURE_SEEDS is a number"))
        }
    };
    let (mut claims, mut faults, mut marks, total) = (0, 0, 0, seeds.end - seeds.start);
    for seed in seeds {
        let outcome = random::run(seed, |_| {});
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        claims += outcome.claims;
        faults += outcome.faults;
        marks += outcome.marks;
    }
    println!("{total} schedules, {faults} faults, {claims} claims, {marks} marks, no violation");
    // A world in which nothing happens would prove nothing.
    assert!(
        total == 1 || claims as u64 > total && faults as u64 > 20 * total && marks as u64 > total,
        "{claims} claims, {faults} faults, {marks} marks in {total} schedules"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(random::run(seed, |_| {}).trace, random::run(seed, |_| {}).trace, "seed {seed}");
    }
}
