//! A green run means something only if these deliberately broken variants turn it red. Those of the election are caught by
//! the simulator.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod arbitration;

use tenure_core::{Arbiter, Mutant};

/// Every one must be caught within this many schedules.
const SEEDS_MAX: u64 = 3000;

fn must_be_caught(mutant: Mutant) {
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
    must_be_caught(Mutant::ReturnBeforeDrained);
}

#[test]
fn other_seat_not_checked() {
    must_be_caught(Mutant::SeatNotChecked);
}
