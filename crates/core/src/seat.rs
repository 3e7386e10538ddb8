//! The seat: the single object whose holder leads the namespace.

use crate::id::{Holder, Nonce};
use std::fmt;
use std::sync::Arc;

/// Counts claims. Rises by at least one at every claim, is unchanged by renewals, never goes down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next claim.
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
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
    /// How long the holder may act after a renewal, by its own clock.
    pub lease_ms: u64,
    /// Counts renewals within the epoch.
    pub renewals: u64,
    /// New in every write.
    pub nonce: Nonce,
    /// Somebody outside asks the holder to hand over: the *mark*. It changes nothing about who holds the seat or until
    /// when; the holder's next renewal is refused because of it, and the read after that shows it. Kept by renewals,
    /// never part of a claim or a vacant record.
    pub step_down: bool,
}
