//! A node's clock: its own rate, its own origin, and the faults that may hit it.

use tenure_core::Time;

/// A clock with its own rate (thousandths of true time) that can jump, drift or stand still.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
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
    pub(crate) fn new(now: u64, rate: u64) -> Clock {
        Clock { since: now, local: 10_000 + now, rate, changed: false, slow: rate < SLOWEST }
    }

    /// What it shows at this true time.
    pub(crate) fn local(&self, now: u64) -> Time {
        Time(self.local + now.saturating_sub(self.since) * self.rate / 1000)
    }

    /// The first true time at which it shows at least this; `None` if it stands still before that.
    pub(crate) fn when(&self, at: Time) -> Option<u64> {
        let left = at.0.saturating_sub(self.local);
        if left == 0 {
            return Some(self.since);
        }
        (self.rate > 0).then(|| self.since + (left * 1000).div_ceil(self.rate))
    }

    /// The rate in thousandths of true time.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether it ever jumped or changed its rate.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether it ever ran slower than any clock may, or stood still.
    pub(crate) fn was_slow(&self) -> bool {
        self.slow
    }

    /// Changes the rate from now on; 0 stands still.
    pub(crate) fn set_rate(&mut self, now: u64, rate: u64) {
        (self.local, self.since, self.rate, self.changed) = (self.local(now).0, now, rate, true);
        self.slow |= rate < SLOWEST;
    }

    /// Jumps forward. No clock here ever goes back: keeping that is the caller's first duty.
    pub(crate) fn jump(&mut self, now: u64, ms: u64) {
        (self.local, self.since, self.changed) = (self.local(now).0 + ms, now, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_shows_and_when_agree() {
        let mut clock = Clock::new(500, 800);
        for step in 0..1000u64 {
            let at = Time(clock.local(500 + step).0 + 37);
            let when = clock.when(at).expect("it runs");
            assert!(clock.local(when) >= at && clock.local(when - 1) < at, "{step}");
        }
        let before = clock.local(900);
        clock.set_rate(900, 0);
        assert_eq!(clock.local(5000), before);
        assert_eq!(clock.when(before + 1), None);
        clock.jump(5000, 70);
        assert_eq!(clock.local(9000), before + 70);
    }
}
