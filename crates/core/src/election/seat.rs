//! The seat: the single object whose holder leads the namespace.

use crate::id::{Holder, Nonce};
use std::fmt;
use std::sync::Arc;

/// Counts claims. It rises by at least one with every claim, stays the same across renewals, and never goes down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The highest epoch: 2⁵³ − 1, which every language's numbers hold exactly. At one claim per second it takes 285 million
    /// years to get there; an object with a higher epoch is damaged or forged, and nobody claims beyond it.
    pub const MAX: Epoch = Epoch((1 << 53) - 1);

    /// The next epoch; `None` after [`MAX`](Epoch::MAX).
    pub fn next(self) -> Option<Epoch> {
        (self < Epoch::MAX).then(|| Epoch(self.0 + 1))
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

/// The store's compare-and-swap tag, opaque to the core.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Arc<str>);

impl Version {
    pub fn new(tag: &str) -> Version {
        Version(Arc::from(tag))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a write requires of the object it replaces.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expect {
    Absent,
    Version(Version),
}

/// What a renewal buys: the *hold* and the *expiry*. Their ratio is how far clocks may drift apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// How long the holder may act after it has sent a renewal, by its own clock.
    pub hold_ms: u64,
    /// How long the seat must stay unchanged before others may take over, by their clocks.
    pub expiry_ms: u64,
}

/// How a namespace watches its leader, as the leader is configured. Others use these terms until they lead themselves. The
/// durations are those of [`Config`](crate::Config).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terms {
    pub heartbeat_ms: u64,
    pub election_interval_ms: u64,
    pub takeover_delay_ms: u64,
    pub presence_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatState {
    /// The holder leads, as long as its lease runs.
    Held,
    /// The last holder gave it up. The record stays, so that an epoch can never repeat.
    Vacant,
}

/// The seat's record, as far as the protocol reads it. The codec keeps whatever else the object carries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    pub epoch: Epoch,
    pub state: SeatState,
    /// Who holds it, or who vacated it.
    pub holder: Holder,
    /// What each renewal buys the holder. Others go by this lease, not by their own settings.
    pub lease: Lease,
    /// How the namespace watches the holder; `None` if the record does not say.
    pub terms: Option<Terms>,
    /// Counts renewals within the epoch.
    pub renewals: u64,
    /// New with every write.
    pub nonce: Nonce,
    /// The *mark*: somebody outside asks the holder to hand over. It does not change who holds the seat, or for how long. It
    /// makes the holder's next renewal fail, and the read after that shows the mark. Renewals keep it; it is never part of a
    /// claim or a vacant record.
    pub step_down: bool,
}

#[cfg(test)]
mod tests {
    use super::Epoch;

    #[test]
    fn no_epoch_comes_after_the_last() {
        assert_eq!(Epoch(0).next(), Some(Epoch(1)));
        assert_eq!(Epoch(Epoch::MAX.0 - 1).next(), Some(Epoch::MAX));
        assert_eq!((Epoch::MAX.next(), Epoch(u64::MAX).next()), (None, None));
    }
}
