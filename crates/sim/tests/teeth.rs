//! Every deliberately broken variant must be caught, and this says by what and how soon.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenure_sim::checks::name;
use tenure_sim::cluster;
use tenure_sim::explore::{Limits, explore};
use tenure_sim::mutants::{self, Broken};

/// Runs the job for every item, on two threads.
fn for_all<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = job(item);
                    done.lock().expect("no panic").push(result);
                }
            });
        }
    });
    done.into_inner().expect("no panic")
}

/// `cargo xtask prove` writes it, and finds every variant from the first schedule on. Here the schedule it names comes first.
const EVIDENCE: &str = include_str!("../../../docs/internals/evidence.md");

/// The names of those that were not caught.
fn survivors(variants: &[Broken]) -> Vec<String> {
    std::panic::set_hook(Box::new(|_| {})); // Assertions of broken variants are expected.
    let again = |broken: Broken| mutants::by_schedules_again(broken, mutants::on_the_page(EVIDENCE, broken));
    let survivors = for_all(variants, |broken| match again(*broken) {
        Some(caught) => {
            println!(
                "{:24} {:3} schedules  {}: {}",
                broken.name(),
                caught.seed + 1,
                caught.check,
                caught.what
            );
            None
        }
        None => Some(broken.name()),
    })
    .into_iter()
    .flatten()
    .collect();
    let _ = std::panic::take_hook();
    survivors
}

#[test]
fn schedules_catch_every_broken_variant() {
    let (drivers, others): (Vec<Broken>, Vec<Broken>) =
        Broken::all().into_iter().partition(|broken| matches!(broken, Broken::Driver(_)));
    assert!(others.len() >= 20 && drivers.len() >= 6);
    assert_eq!(survivors(&others), [""; 0], "survived {} schedules", mutants::SEEDS_MAX);
}

#[test]
fn the_page_of_evidence_is_understood() {
    let on_the_page = |page, mutant| mutants::on_the_page(page, Broken::Core(mutant));
    let page = "### Broken variants\n| x | `NonceIgnored` 474 (model 2), `EpochNotRaised` 2 |";
    assert_eq!(on_the_page(page, tenure_core::Mutant::NonceIgnored), Some(473));
    assert_eq!(on_the_page(page, tenure_core::Mutant::EpochNotRaised), Some(1));
    assert_eq!(on_the_page(page, tenure_core::Mutant::ExpiryTooShort), None);
    assert!(on_the_page(EVIDENCE, tenure_core::Mutant::NonceIgnored).is_some());
}

/// The tie between proof and code: what the proof forbids is seen by the model no later than by any other check.
#[test]
fn the_model_sees_what_the_proof_forbids_before_anything_else() {
    std::panic::set_hook(Box::new(|_| {}));
    let late = for_all(mutants::FORBIDDEN, |mutant| {
        let seeds = mutants::by_model(*mutant).map(|caught| caught.seed);
        println!("{mutant:?}: schedule {seeds:?}");
        // Where the model needs more than the first few, no other check may have needed fewer.
        let sooner =
            |seed: u64| mutants::by_schedules(Broken::Core(*mutant)).is_some_and(|other| other.seed < seed);
        seeds.is_none_or(|seed| seed > 1 && sooner(seed)).then_some(*mutant)
    });
    let _ = std::panic::take_hook();
    assert_eq!(late.into_iter().flatten().collect::<Vec<_>>(), []);
}

#[test]
fn schedules_of_the_driver_catch_every_broken_driver() {
    let drivers: Vec<Broken> =
        Broken::all().into_iter().filter(|broken| matches!(broken, Broken::Driver(_))).collect();
    assert_eq!(survivors(&drivers), [""; 0], "survived {} schedules", mutants::SEEDS_MAX);
}

#[test]
fn the_explorer_catches_several_by_itself() {
    std::panic::set_hook(Box::new(|_| {}));
    let survivors: Vec<_> =
        for_all(mutants::FOR_THE_EXPLORER, |mutant| match mutants::by_explorer(*mutant) {
            Some((check, states)) => {
                println!("{mutant:?}: {states} states, {check}");
                None
            }
            None => Some(*mutant),
        })
        .into_iter()
        .flatten()
        .collect();
    let _ = std::panic::take_hook();
    assert_eq!(survivors, []);
}

/// Each clause of the proof bites by itself, in the explorer and in schedules of the production driver.
#[test]
fn every_clause_bites_where_it_is_watched() {
    use tenure::DriverMutant;
    use tenure_core::Mutant;
    let core = Broken::Core;
    let clauses = [
        (name::M3, core(Mutant::ExpiryTooShort)),
        (name::K1, core(Mutant::SilenceFromSending)),
        (name::K3, core(Mutant::DeadlineFromAnswer)),
        (name::K5, Broken::Driver(DriverMutant::StoppedWhenCancelled)),
        (name::L1, core(Mutant::VacatedBeforeStopped)),
        (name::L2, core(Mutant::ExpiryTooShort)),
    ];
    let silent = for_all(&clauses, |(clause, broken)| {
        let bites = |seed: u64| {
            let violations = cluster::run_broken(seed, Some(*broken)).violations;
            violations.iter().any(|violation| violation.check == *clause)
        };
        let seed = (0..300).find(|seed| bites(*seed));
        println!("{clause}: {} in schedule {seed:?} of the driver", broken.name());
        seed.is_none().then_some(*clause)
    });
    assert_eq!(silent.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
    for (clause, mutant) in [
        (name::M3, Mutant::ExpiryTooShort),
        (name::K1, Mutant::SilenceFromSending),
        (name::K3, Mutant::DeadlineFromAnswer),
        // Work ends as soon as it is told there, and a record is never replaced early but by a claim that breaks M3 first: no variant
        // gets as far as K5 and L2.
        (name::L1, Mutant::SupersededIgnored),
    ] {
        let alone = Limits::small(2).into_iter().map(|limits| Limits { replay: false, ..limits });
        let found = alone.filter_map(|limits| explore(&limits, Some(mutant)).violation);
        let checks: Vec<&str> = found.map(|(violation, _)| violation.check).collect();
        println!("{clause}: {mutant:?} in the explorer: {checks:?}");
        assert!(checks.contains(&clause), "{mutant:?}: {checks:?}");
    }
}
