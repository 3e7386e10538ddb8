//! Teeth: realistic mistakes that the test suite must catch.
//!
//! They exist in test builds only (feature `teeth`); without it [`Config::has`] is a constant `false`.

use crate::config::Config;

/// A deliberately broken variant of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutant {
    /// The lease deadline is counted from the answer to a renewal instead of from its sending.
    DeadlineFromAnswer,
    /// A refused conditional write is taken for a successful one.
    LostTakenForWon,
    /// An unknown outcome is taken for a success without reading back.
    UnknownTakenForWon,
    /// The next epoch is not derived from the highest one seen.
    EpochNotRaised,
    /// The leader goes on past its deadline while the store does not answer.
    DeadlineIgnored,
    /// A standby takes over after half a lease instead of the expiry.
    ExpiryTooShort,
    /// A node that finds its own late record leads by it, however old the write is.
    LateRecordAdopted,
    /// The seat is vacated while the leader's processes still run.
    VacatedBeforeStopped,
    /// A leader that is asked from outside to step down renews instead.
    MarkIgnored,
    /// A plugin returns to the global seat while its own candidate is still winding down.
    ReturnBeforeDrained,
    /// A new holder of the global seat does not look at the plugin's own seat first.
    SeatNotChecked,
}

impl Config {
    /// Whether this build runs with that mistake.
    #[cfg(feature = "teeth")]
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether this build runs with that mistake: it does not.
    #[cfg(not(feature = "teeth"))]
    #[inline(always)]
    pub(crate) fn has(&self, _mutant: Mutant) -> bool {
        false
    }
}
