//! The seat: the single object whose holder leads the namespace.

use crate::id::{Holder, Nonce};
use std::fmt;
use std::sync::Arc;

/// Counts claims. Rises by at least one at every claim, is unchanged by renewals, never goes down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The highest there is: 2⁵³ − 1, which every language's numbers hold exactly. A claim a second takes 285 million years to
    /// get there; an object with a higher epoch is damaged or forged, and no claim is made beyond it.
    pub const MAX: Epoch = Epoch((1 << 53) - 1);

    /// The epoch after this one; none after [`MAX`](Epoch::MAX).
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
    /// Wraps a tag.
    pub fn new(tag: &str) -> Version {
        Version(Arc::from(tag))
    }

    /// The tag.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a seat write requires of the seat it replaces.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expect {
    /// There must be no seat yet.
    Absent,
    /// The seat must still have this version.
    Version(Version),
}

/// What a renewal buys: the *hold* and the *expiry*. Their ratio is how far clocks may drift apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// How long the holder may act after the sending of a renewal, by its own clock.
    pub hold_ms: u64,
    /// How long the seat must stay unchanged before others may take over, by their clocks.
    pub expiry_ms: u64,
}

/// How a namespace watches its leader, as the leader has it. Others go by it until they lead themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terms {
    /// How often the leader renews.
    pub heartbeat_ms: u64,
    /// How often others look.
    pub election_interval_ms: u64,
    /// How long others wait after noticing that it is down.
    pub takeover_delay_ms: u64,
    /// How often nodes refresh their presence.
    pub presence_ms: u64,
}

/// Whether somebody holds the seat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatState {
    /// The holder leads, as long as its lease runs.
    Held,
    /// The last holder gave it up. The record stays, so that an epoch can never repeat.
    Vacant,
}

/// The seat's record, as far as the protocol reads it. Whatever else the object carries is the codec's to keep.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    /// Epoch of the holder.
    pub epoch: Epoch,
    /// Held or vacant.
    pub state: SeatState,
    /// Who holds it, or who vacated it.
    pub holder: Holder,
    /// What each renewal buys the holder. Others go by these terms, not by their own settings.
    pub lease: Lease,
    /// How the namespace watches it; `None` if the record does not say.
    pub terms: Option<Terms>,
    /// Counts renewals within the epoch.
    pub renewals: u64,
    /// New in every write.
    pub nonce: Nonce,
    /// Somebody outside asks the holder to hand over: the *mark*. It changes nothing about who holds the seat or until
    /// when; the holder's next renewal is refused because of it, and the read after that shows it. Kept by renewals,
    /// never part of a claim or a vacant record.
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
