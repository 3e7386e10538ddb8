//! Teeth: realistic mistakes of the driver that the tests must catch.
//!
//! They exist in test builds only (feature `teeth`); without the feature, [`Flaws::has`] is a constant `false`, [`Flaws`]
//! takes no space, and nobody can choose a mutant.

use crate::clock::Clock;
use std::sync::Arc;

/// A deliberately broken variant of the driver, the guard or the carrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DriverMutant {
    /// The carrier passes on a write of unknown outcome as one that happened.
    UnknownPassedAsWon,
    /// Work is reported as stopped when its guard was only cancelled.
    StoppedWhenCancelled,
    /// A guard does not check its own deadline: it waits until the driver cancels it.
    GuardWithoutDeadline,
    /// A renewal extends the guard by a lease from now instead of to the given deadline.
    ExtendedFromNow,
    /// The clock does not count the time while the machine sleeps.
    ClockStandsStill,
    /// Work that must stop keeps a valid, visible guard until its deadline.
    GuardNotWithdrawn,
    /// A wake-up does not replace the previous one.
    WakeNotReplaced,
    /// An answer goes to the oldest request in flight, whichever it belongs to.
    RequestIdsMixed,
    /// A request whose task died is never answered.
    DeadRequestForgotten,
    /// A candidate that dies leaves its guard valid.
    PanicKeepsGuard,
    /// The fence hears of a new leader after the event has gone out.
    FenceFedLate,
}

impl DriverMutant {
    /// Every driver mutant.
    pub const ALL: &[DriverMutant] = &[
        DriverMutant::UnknownPassedAsWon,
        DriverMutant::StoppedWhenCancelled,
        DriverMutant::GuardWithoutDeadline,
        DriverMutant::ExtendedFromNow,
        DriverMutant::ClockStandsStill,
        DriverMutant::GuardNotWithdrawn,
        DriverMutant::WakeNotReplaced,
        DriverMutant::RequestIdsMixed,
        DriverMutant::DeadRequestForgotten,
        DriverMutant::PanicKeepsGuard,
        DriverMutant::FenceFedLate,
    ];

    /// Mutants that only a test of this crate can reveal, not a schedule on a store that merely fails: the store's code has
    /// to panic, the candidate has to die, somebody has to look between two statements, or somebody has to hold a guard that
    /// has ended (its node claims nothing beside it, so nobody else is hurt).
    pub const FOR_THE_CRATE: &[DriverMutant] = &[
        DriverMutant::DeadRequestForgotten,
        DriverMutant::PanicKeepsGuard,
        DriverMutant::FenceFedLate,
        DriverMutant::GuardNotWithdrawn,
    ];
}

/// A node that is broken on purpose.
#[cfg(feature = "teeth")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The mistake is in its driver.
    Driver(DriverMutant),
    /// The mistake is in its core.
    Core(tenure_core::Mutant),
}

#[cfg(feature = "teeth")]
impl std::str::FromStr for Broken {
    type Err = String;

    fn from_str(name: &str) -> Result<Broken, String> {
        let driver = DriverMutant::ALL.iter().map(|mutant| Broken::Driver(*mutant));
        let core = tenure_core::Mutant::ALL.iter().map(|mutant| Broken::Core(*mutant));
        let is_it = |broken: &Broken| match broken {
            Broken::Driver(mutant) => format!("{mutant:?}") == name,
            Broken::Core(mutant) => format!("{mutant:?}") == name,
        };
        driver.chain(core).find(is_it).ok_or_else(|| format!("there is no broken variant {name:?}"))
    }
}

/// What is wrong with a node: nothing, except in test builds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flaws {
    #[cfg(feature = "teeth")]
    pub(crate) broken: Option<Broken>,
}

impl Flaws {
    /// Whether this node has that mistake.
    #[cfg(feature = "teeth")]
    pub(crate) fn has(self, mutant: DriverMutant) -> bool {
        self.broken == Some(Broken::Driver(mutant))
    }

    /// Always false: only builds with `teeth` make mistakes.
    #[cfg(not(feature = "teeth"))]
    #[inline(always)]
    pub(crate) fn has(self, _mutant: DriverMutant) -> bool {
        false
    }

    /// The core's settings, with its mistake.
    #[cfg(feature = "teeth")]
    pub(crate) fn config(self, config: tenure_core::Config) -> tenure_core::Config {
        match self.broken {
            Some(Broken::Core(mutant)) => tenure_core::Config { mutant: Some(mutant), ..config },
            Some(Broken::Driver(_)) | None => config,
        }
    }

    /// The core's settings.
    #[cfg(not(feature = "teeth"))]
    pub(crate) fn config(self, config: tenure_core::Config) -> tenure_core::Config {
        config
    }

    /// The node's clock, or a wrong one.
    #[cfg(feature = "teeth")]
    pub(crate) fn clock(self, clock: Arc<dyn Clock>, heartbeat_ms: u64) -> Arc<dyn Clock> {
        if !self.has(DriverMutant::ClockStandsStill) {
            return clock;
        }
        let last = parking_lot::Mutex::new((clock.now_ms(), clock.now_ms()));
        Arc::new(StandingClock { clock, most_ms: 2 * heartbeat_ms, last })
    }

    /// The node's clock.
    #[cfg(not(feature = "teeth"))]
    pub(crate) fn clock(self, clock: Arc<dyn Clock>, _heartbeat_ms: u64) -> Arc<dyn Clock> {
        clock
    }
}

/// A clock that stands still while nobody gets to run, as timers do in a sleeping machine: of the time between two looks at
/// it, only a limited part counts. A running node looks more often.
#[cfg(feature = "teeth")]
#[derive(Debug)]
struct StandingClock {
    clock: Arc<dyn Clock>,
    most_ms: u64,
    /// The true time and this clock's time at the last look.
    last: parking_lot::Mutex<(u64, u64)>,
}

#[cfg(feature = "teeth")]
impl Clock for StandingClock {
    fn now_ms(&self) -> u64 {
        let now_ms = self.clock.now_ms();
        let mut last = self.last.lock();
        let (before_ms, own_ms) = *last;
        *last = (now_ms, own_ms + now_ms.saturating_sub(before_ms).min(self.most_ms));
        last.1
    }

    fn outruns_timers(&self) -> bool {
        self.clock.outruns_timers()
    }
}
