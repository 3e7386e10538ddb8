//! A node's clock: its own rate, its own origin, and the faults that may hit it.

use tenure_core::Time;

/// A clock with its own rate (thousandths of true time) that can jump, drift or stand still.
#[derive(Clone, Debug)]
pub struct Clock {
    since: u64,
    local: u64,
    rate: u64,
    changed: bool,
    slow: bool,
}

/// The slowest clock that keeps its promise: the rates of a schedule lie within 20 % of true time.
const SLOWEST: u64 = 800;

impl Clock {
    /// A clock with this rate and an origin of its own.
    pub fn new(now: u64, rate: u64) -> Clock {
        Clock { since: now, local: 10_000 + now, rate, changed: false, slow: rate < SLOWEST }
    }

    /// What it shows at this true time.
    pub fn local(&self, now: u64) -> Time {
        Time(self.local + now.saturating_sub(self.since) * self.rate / 1000)
    }

    /// The first true time at which it shows at least this; `None` if it stands still before that.
    pub fn when(&self, at: Time) -> Option<u64> {
        let left = at.0.saturating_sub(self.local);
        if left == 0 {
            return Some(self.since);
        }
        (self.rate > 0).then(|| self.since + (left * 1000).div_ceil(self.rate))
    }

    /// The rate in thousandths of true time.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether it ever jumped or changed its rate.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether it ever ran slower than any clock may, or stood still.
    pub fn was_slow(&self) -> bool {
        self.slow
    }

    /// Changes the rate from now on; 0 stands still.
    pub fn set_rate(&mut self, now: u64, rate: u64) {
        (self.local, self.since, self.rate, self.changed) = (self.local(now).0, now, rate, true);
        self.slow |= rate < SLOWEST;
    }

    /// Jumps forward. No clock here ever goes back: keeping that is the caller's first duty.
    pub fn jump(&mut self, now: u64, ms: u64) {
        (self.local, self.since, self.changed) = (self.local(now).0 + ms, now, true);
    }
}
