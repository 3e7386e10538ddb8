//! How a document is kept.

use crate::election::Epoch;
use crate::id::Incarnation;

/// In whose name a document is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writer {
    /// In one's own. The epoch is the one it leads in; 0 for others than leaders. `me` is new for every life of the document
    /// in memory: no two of its writes share a nonce.
    Owner { epoch: Epoch, me: Incarnation },
    /// In the owner's: epoch and owner stay, only the nonce is one's own. `me` is new for every life, as above.
    Guest { me: Incarnation },
}

/// What to do with an object that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unreadable {
    /// Leave it alone, and look again now and then.
    LeaveAlone,
    /// Write over it, unless a newer major version wrote it.
    Replace,
}

/// Pauses after failed requests: the first one, doubled every time up to the last one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BackOff {
    pub first_ms: u64,
    pub max_ms: u64,
}

impl BackOff {
    /// The pause after so many failures in a row.
    pub fn pause_ms(self, failures: u32) -> u64 {
        self.first_ms.saturating_mul(1 << failures.min(16)).min(self.max_ms)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    pub writer: Writer,
    /// Write it as soon as it is known what stands there, changed or not.
    pub adopt: bool,
    pub unreadable: Unreadable,
    pub retry: BackOff,
}
