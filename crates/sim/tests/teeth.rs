//! Every deliberately broken variant must be caught, and this says by what and how soon.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tenure_sim::teeth::{self, Broken};

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

/// The names of those that were not caught.
fn survivors(variants: &[Broken]) -> Vec<String> {
    std::panic::set_hook(Box::new(|_| {})); // Assertions of broken variants are expected.
    let survivors = for_all(variants, |broken| match teeth::by_schedules(*broken) {
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
    assert_eq!(survivors(&others), [""; 0], "survived {} schedules", teeth::SEEDS_MAX);
}

/// The tie between proof and code: what the proof forbids is seen by the model no later than by any other check.
#[test]
fn the_model_sees_what_the_proof_forbids_before_anything_else() {
    std::panic::set_hook(Box::new(|_| {}));
    let late = for_all(teeth::FORBIDDEN, |mutant| {
        let seeds = teeth::by_model(*mutant).map(|caught| caught.seed);
        println!("{mutant:?}: schedule {seeds:?}");
        // Where the model needs more than the first few, no other check may have needed fewer.
        let sooner =
            |seed: u64| teeth::by_schedules(Broken::Core(*mutant)).is_some_and(|other| other.seed < seed);
        seeds.is_none_or(|seed| seed > 1 && sooner(seed)).then_some(*mutant)
    });
    let _ = std::panic::take_hook();
    assert_eq!(late.into_iter().flatten().collect::<Vec<_>>(), []);
}

#[test]
fn schedules_of_the_driver_catch_every_broken_driver() {
    let drivers: Vec<Broken> =
        Broken::all().into_iter().filter(|broken| matches!(broken, Broken::Driver(_))).collect();
    assert_eq!(survivors(&drivers), [""; 0], "survived {} schedules", teeth::SEEDS_MAX);
}

#[test]
fn the_explorer_catches_several_by_itself() {
    std::panic::set_hook(Box::new(|_| {}));
    let survivors: Vec<_> = for_all(teeth::FOR_THE_EXPLORER, |mutant| match teeth::by_explorer(*mutant) {
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
