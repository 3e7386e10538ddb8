//! Time in the core: milliseconds on one node's own clock.

use std::fmt;
use std::ops::Add;

/// A moment on this node's monotonic clock, in milliseconds from an origin that never leaves the node.
///
/// Times of two nodes are never compared, and there is no arithmetic here that would invite it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

impl Time {
    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;

    /// Saturating: a deadline beyond the end of time is "never", not a wrap to the past.
    fn add(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
