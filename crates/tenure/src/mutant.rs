//! Teeth: realistic mistakes of the driver that the tests must catch.
//!
//! They exist in test builds only (feature `teeth`); without the feature, [`DriverMutant::on`] is a constant `false`.

use crate::clock::Clock;
use std::sync::Arc;

tenure_core::mutants! {
/// A deliberately broken variant of the driver, the guard or the carrier.
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
}

impl DriverMutant {
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

/// The node's clock; in a test build, perhaps a wrong one.
pub(crate) fn clock(clock: Arc<dyn Clock>, heartbeat_ms: u64) -> Arc<dyn Clock> {
    #[cfg(feature = "teeth")]
    if DriverMutant::ClockStandsStill.on() {
        let last = parking_lot::Mutex::new((clock.now_ms(), clock.now_ms()));
        return Arc::new(StandingClock { clock, most_ms: 2 * heartbeat_ms, last });
    }
    let _ = heartbeat_ms;
    clock
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
