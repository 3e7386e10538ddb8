//! Mutants: a green run means something only if wrong protocols turn it red.

use crate::caller_mistakes::CallerMistake;
use crate::checks::{Violation, name};
use crate::cluster;
use crate::explore::{Limits, explore};
use crate::run::{Options, run};
use std::ops::Range;
use std::time::Duration;
use tenure::DriverMutant;
use tenure_core::Mutant;

/// Every variant must be caught within this many schedules.
pub const SEEDS_MAX: u64 = 10_000;
/// Most states the explorer visits in each of its small searches.
const STATES_MAX: u64 = 400_000;

/// Mutants whose mistake shows quickly: the explorer must catch them by itself.
pub const FOR_THE_EXPLORER: &[Mutant] = &[
    Mutant::DeadlineFromAnswer,
    Mutant::LostTakenForWon,
    Mutant::UnknownTakenForWon,
    Mutant::EpochNotRaised,
    Mutant::ExpiryTooShort,
    Mutant::NonceIgnored,
    Mutant::TwoSeatRequests,
    Mutant::VacateResetsEpoch,
];

/// Mutants that the proof forbids: the model must catch them, and no later than any other check does.
pub const FORBIDDEN: &[Mutant] = &[
    Mutant::DeadlineFromAnswer,
    Mutant::LostTakenForWon,
    Mutant::UnknownTakenForWon,
    Mutant::EpochNotRaised,
    Mutant::DeadlineIgnored,
    Mutant::ExpiryTooShort,
    Mutant::HoldTakenForExpiry,
    Mutant::LateRecordAdopted,
    Mutant::VacatedBeforeStopped,
    Mutant::EpochFromLastLeader,
    Mutant::VacateResetsEpoch,
    Mutant::StoreClockTrusted,
    Mutant::NonceIgnored,
    Mutant::SilenceFromSending,
    Mutant::RetiredEpochLed,
    Mutant::IncarnationIgnored,
    Mutant::OthersRecordVacated,
    Mutant::RecoversBeforeStopped,
    Mutant::SupersededIgnored,
    Mutant::StuckRecordVacated,
];

/// A variant that must be caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A mistake in the core.
    Core(Mutant),
    /// A mistake of the caller; the core's documentation numbers its duties.
    Caller(CallerMistake),
    /// A mistake in the production driver.
    Driver(DriverMutant),
}

impl Broken {
    /// All variants. Those of the core exist only in builds with the feature `teeth`.
    pub fn all() -> Vec<Broken> {
        let core = Mutant::ELECTION.iter().chain(Mutant::LEADERS_WORK).map(|mutant| Broken::Core(*mutant));
        let callers = CallerMistake::ALL.iter().map(|mistake| Broken::Caller(*mistake));
        let for_schedules = |mutant: &&DriverMutant| !DriverMutant::FOR_THE_CRATE.contains(mutant);
        let drivers = DriverMutant::ALL.iter().filter(for_schedules).map(|mutant| Broken::Driver(*mutant));
        let teeth = |_: &Broken| cfg!(feature = "teeth");
        core.filter(teeth).chain(callers).chain(drivers.filter(teeth)).collect()
    }

    /// The name used in reports.
    pub fn name(self) -> String {
        match self {
            Broken::Core(mutant) => format!("{mutant:?}"),
            Broken::Caller(mistake) => format!("{mistake:?}"),
            Broken::Driver(mutant) => format!("{mutant:?}"),
        }
    }

    fn options(self) -> Options {
        match self {
            Broken::Core(mutant) => Options { mutant: Some(mutant), ..Options::default() },
            Broken::Caller(mistake) => Options { mistake: Some(mistake), ..Options::default() },
            Broken::Driver(_) => Options::default(),
        }
    }

    /// The first violation of one schedule: of the bare core, or of the production driver if that is broken.
    fn first_violation(self, seed: u64, options: &Options) -> Option<Violation> {
        let violations = match self {
            Broken::Core(_) | Broken::Caller(_) => run(seed, options).violations,
            Broken::Driver(_) => cluster::run_broken(seed, Some(self)).violations,
        };
        violations.into_iter().next()
    }
}

/// How a variant was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The check that failed first.
    pub check: &'static str,
    /// The violation's description.
    pub what: String,
    /// The seed of the schedule.
    pub seed: u64,
}

/// Runs schedules until the variant is caught. Leaves out the model: every other check must bite by itself.
pub fn by_schedules(broken: Broken) -> Option<Caught> {
    caught(broken, &unmodelled(broken), 0..SEEDS_MAX)
}

/// The same, but begins with the schedule that caught it before, which costs one schedule instead of thousands.
pub fn by_schedules_again(broken: Broken, before: Option<u64>) -> Option<Caught> {
    let again = before.and_then(|seed| caught(broken, &unmodelled(broken), seed..seed + 1));
    again.or_else(|| by_schedules(broken))
}

/// The seed that caught a variant when the page of evidence was written, if it says so: after the variant's name it has how many
/// schedules were played.
pub fn on_the_page(page: &str, broken: Broken) -> Option<u64> {
    let (_, list) = page.split_once("### Broken variants")?;
    let (_, rest) = list.split_once(&format!("`{}` ", broken.name()))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse::<u64>().ok()?.checked_sub(1)
}

fn unmodelled(broken: Broken) -> Options {
    Options { modelled: false, ..broken.options() }
}

/// Runs schedules until a step is not one of the model's, or a clause of the proof does not hold.
pub fn by_model(mutant: Mutant) -> Option<Caught> {
    let broken = Broken::Core(mutant);
    caught(broken, &broken.options(), 0..SEEDS_MAX)
        .filter(|caught| name::OF_THE_PROOF.contains(&caught.check))
}

fn caught(broken: Broken, options: &Options, mut seeds: Range<u64>) -> Option<Caught> {
    seeds.find_map(|seed| {
        let violation = broken.first_violation(seed, options)?;
        Some(Caught { check: violation.check, what: violation.what, seed })
    })
}

/// Explores two nodes until the variant is caught; returns the check, and how many states it took.
pub fn by_explorer(mutant: Mutant) -> Option<(&'static str, u64)> {
    let mut before = 0;
    for limits in Limits::small(2).into_iter().chain(Limits::large(2).into_iter().take(1)) {
        let limits = Limits {
            states: STATES_MAX,
            time: Duration::from_secs(20),
            clauses: false,
            replay: false,
            live_ms: None,
            ..limits
        };
        let found = explore(&limits, Some(mutant));
        before += found.states;
        if let Some((violation, _)) = found.violation {
            return Some((violation.check, before));
        }
    }
    None
}
