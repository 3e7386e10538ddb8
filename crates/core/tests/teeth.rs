//! A green run means something only if these deliberately broken variants turn it red.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod arbitration;
mod world;

use tenure_core::{Arbiter, Config, Mutant};
use world::random;

/// Every one must be caught within this many schedules.
const SEEDS_MAX: u64 = 3000;

fn must_be_caught(mutant: Mutant) {
    for seed in 0..SEEDS_MAX {
        // A broken variant may also die of an assertion in the core; that counts as caught.
        let result = std::panic::catch_unwind(|| {
            random::run(seed, |config: &mut Config| config.mutant = Some(mutant))
        });
        let caught = match result {
            Ok(outcome) => outcome.violations.first().cloned(),
            Err(_) => Some("an assertion of the core".to_owned()),
        };
        if let Some(by) = caught {
            println!("{mutant:?}: caught at seed {seed} by: {by}");
            return;
        }
    }
    panic!("{mutant:?} survived {SEEDS_MAX} schedules: the property test does not bite");
}

fn must_be_caught_in_arbitration(mutant: Mutant) {
    for seed in 0..SEEDS_MAX {
        let outcome = arbitration::run(seed, || Arbiter::broken(mutant));
        if let Some(by) = outcome.violations.first() {
            println!("{mutant:?}: caught at seed {seed} by: {by}");
            return;
        }
    }
    panic!("{mutant:?} survived {SEEDS_MAX} schedules: the property test does not bite");
}

#[test]
fn return_to_the_global_seat_before_drained() {
    must_be_caught_in_arbitration(Mutant::ReturnBeforeDrained);
}

#[test]
fn other_seat_not_checked() {
    must_be_caught_in_arbitration(Mutant::SeatNotChecked);
}

macro_rules! teeth {
    ($($name:ident => $mutant:ident),* $(,)?) => { $(#[test] fn $name() { must_be_caught(Mutant::$mutant); })* };
}

teeth! {
    deadline_counted_from_the_answer => DeadlineFromAnswer,
    refused_write_taken_for_a_win => LostTakenForWon,
    unknown_taken_for_a_win => UnknownTakenForWon,
    epoch_not_raised => EpochNotRaised,
    deadline_ignored => DeadlineIgnored,
    expiry_too_short => ExpiryTooShort,
    late_record_adopted => LateRecordAdopted,
    vacated_before_processes_stopped => VacatedBeforeStopped,
    mark_ignored => MarkIgnored,
}
