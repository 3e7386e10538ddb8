//! Figures in fixed space: the last hundred heartbeats, a histogram of elections, and when to report contention.

use crate::election::event::ElectionCause;
use crate::time::Time;

/// Heartbeats remembered.
const HEARTBEATS: usize = 100;

/// With fewer than this, a percentile would mean nothing.
const HEARTBEATS_MIN: usize = 10;

/// The latencies of the last hundred heartbeats, in milliseconds. Never takes more than 400 bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HeartbeatLatencies {
    ring: [u32; HEARTBEATS],
    count: usize,
    next: usize,
}

impl Default for HeartbeatLatencies {
    fn default() -> HeartbeatLatencies {
        HeartbeatLatencies { ring: [0; HEARTBEATS], count: 0, next: 0 }
    }
}

impl HeartbeatLatencies {
    /// With fewer heartbeats than this, there is no percentile.
    pub const NEEDED: usize = HEARTBEATS_MIN;

    pub fn record(&mut self, latency_ms: u64) {
        self.ring[self.next] = u32::try_from(latency_ms).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % HEARTBEATS;
        self.count = (self.count + 1).min(HEARTBEATS);
    }

    /// In milliseconds, oldest first.
    pub fn remembered(&self) -> impl Iterator<Item = u64> + '_ {
        let first = (self.next + HEARTBEATS - self.count) % HEARTBEATS;
        (0..self.count).map(move |place| u64::from(self.ring[(first + place) % HEARTBEATS]))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The latency in milliseconds that `percent` of the remembered heartbeats did not exceed; `None` for fewer than ten.
    pub fn percentile(&self, percent: usize) -> Option<u64> {
        if self.count < HEARTBEATS_MIN {
            return None;
        }
        let mut sorted = self.ring;
        let sorted = &mut sorted[..self.count];
        sorted.sort_unstable();
        // Nearest rank: the smallest value that at least this share does not exceed.
        let rank = (percent * self.count).div_ceil(100).clamp(1, self.count);
        Some(u64::from(sorted[rank - 1]))
    }
}

/// Upper bounds of the buckets of [`ElectionDurations`], in milliseconds. One more bucket counts everything above the last.
pub const ELECTION_BUCKETS_MS: [u64; 10] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ElectionDurations {
    /// Elections per bucket of [`ELECTION_BUCKETS_MS`]; the last entry counts those above the last bound.
    pub counts: [u64; ELECTION_BUCKETS_MS.len() + 1],
    pub sum_ms: u64,
}

impl ElectionDurations {
    pub fn record(&mut self, duration_ms: u64) {
        let bucket = ELECTION_BUCKETS_MS.iter().position(|bound_ms| duration_ms <= *bound_ms);
        self.counts[bucket.unwrap_or(ELECTION_BUCKETS_MS.len())] += 1;
        self.sum_ms = self.sum_ms.saturating_add(duration_ms);
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Times elections: from the moment this node notices that one is due until it knows the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ElectionTimer {
    began: Option<Time>,
}

impl ElectionTimer {
    /// Takes one step of a coordinator: the [election](crate::Coordinator::election) under way after it, and whether the
    /// step announced a new leader. Returns how long the election took that the step decided, if any.
    ///
    /// A first election begins when it may be decided: the wait for others that start at the same time is not part of it. An
    /// election that the old leader ends by coming back does not count.
    pub fn step(&mut self, now: Time, election: Option<(ElectionCause, Time)>, decided: bool) -> Option<u64> {
        let took = self.began.filter(|began| decided && *began <= now).map(|began| now.since(began));
        if decided {
            self.began = None;
        }
        self.began = election.map(|(cause, ready_at)| match (self.began, cause) {
            (Some(began), _) => began,
            (None, ElectionCause::First) => ready_at,
            (None, ElectionCause::Vacant | ElectionCause::LeaderDown) => now,
        });
        took
    }
}

/// At most one event per this time; the counter always moves.
const CONTENTION_QUIET_MS: u64 = 30_000;

/// Decides whether heartbeat cycles take too long, and when to report it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContentionWatch {
    threshold_permille: Option<u64>,
    expected_ms: u64,
    said: Option<Time>,
    /// Cycles that were too long, whether reported or not.
    pub events: u64,
}

impl ContentionWatch {
    /// A cycle longer than this is too long.
    pub fn limit_ms(expected_ms: u64, threshold_permille: u64) -> u64 {
        expected_ms.saturating_mul(threshold_permille) / 1000
    }

    /// Watches for cycles longer than `threshold_permille` thousandths of the heartbeat interval; `None` watches nothing.
    pub fn new(expected_ms: u64, threshold_permille: Option<u64>) -> ContentionWatch {
        ContentionWatch { threshold_permille, expected_ms, said: None, events: 0 }
    }

    /// Returns whether to report this cycle now.
    pub fn cycle(&mut self, now: Time, duration_ms: u64) -> bool {
        let Some(threshold) = self.threshold_permille else { return false };
        if duration_ms <= ContentionWatch::limit_ms(self.expected_ms, threshold) {
            return false;
        }
        self.events = self.events.saturating_add(1);
        let quiet = self.said.is_some_and(|said| now.since(said) < CONTENTION_QUIET_MS);
        if !quiet {
            self.said = Some(now);
        }
        !quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_newest_hundred_only() {
        let mut latencies = HeartbeatLatencies::default();
        (1..=3).for_each(|ms| latencies.record(ms));
        assert_eq!(latencies.remembered().collect::<Vec<u64>>(), [1, 2, 3]);
        (4..=150).for_each(|ms| latencies.record(ms));
        assert_eq!(latencies.remembered().collect::<Vec<u64>>(), (51..=150).collect::<Vec<u64>>());
        let mut latencies = HeartbeatLatencies::default();
        assert!(latencies.is_empty());
        (0..9).for_each(|_| latencies.record(7));
        assert!(!latencies.is_empty());
        assert_eq!(latencies.percentile(99), None, "nine are too few");
        latencies.record(8);
        assert_eq!((latencies.percentile(90), latencies.percentile(99)), (Some(7), Some(8)), "ten will do");
        (0..100).for_each(|_| latencies.record(5000));
        (1..=100).for_each(|ms| latencies.record(ms));
        assert_eq!(latencies.len(), 100);
        assert_eq!((latencies.percentile(50), latencies.percentile(99)), (Some(50), Some(99)));
        assert_eq!(latencies.percentile(100), Some(100), "nothing of the five-second ones is left");
        assert!(size_of::<HeartbeatLatencies>() <= 1024);
    }

    #[test]
    fn elections_fall_into_their_buckets() {
        let mut durations = ElectionDurations::default();
        [0, 50, 51, 60_001].into_iter().for_each(|ms| durations.record(ms));
        assert_eq!((durations.counts[0], durations.counts[1], durations.counts[10]), (2, 1, 1));
        assert_eq!((durations.total(), durations.sum_ms), (4, 60_102));
    }

    #[test]
    fn elections_last_from_notice_to_knowledge() {
        let mut timer = ElectionTimer::default();
        let down = Some((ElectionCause::LeaderDown, Time(8000)));
        assert_eq!(timer.step(Time(6000), None, true), None, "nothing was noticed before it was known");
        assert_eq!(timer.step(Time(7000), down, false), None);
        assert_eq!(timer.step(Time(7500), Some((ElectionCause::Vacant, Time(7500))), false), None);
        assert_eq!(timer.step(Time(8200), None, true), Some(1200), "from the first notice on");
        timer.step(Time(9000), down, false);
        timer.step(Time(9100), None, false);
        assert_eq!(timer.step(Time(9200), None, true), None, "the old leader came back");
        let first = Some((ElectionCause::First, Time(500)));
        let mut timer = ElectionTimer::default();
        timer.step(Time(0), first, false);
        assert_eq!(timer.clone().step(Time(300), None, true), None, "decided before this node was ready");
        assert_eq!(timer.step(Time(700), None, true), Some(200));
    }

    #[test]
    fn contention_is_told_once_in_thirty_seconds_and_always_counted() {
        let mut watch = ContentionWatch::new(1000, Some(2000));
        assert!(!watch.cycle(Time(0), 2000), "exactly twice is not more than twice");
        assert!(watch.cycle(Time(1000), 2001));
        assert!(!watch.cycle(Time(30_999), 9000));
        assert!(watch.cycle(Time(31_000), 9000));
        assert_eq!(watch.events, 3);
        let mut off = ContentionWatch::new(1000, None);
        assert!(!off.cycle(Time(0), 60_000));
        assert_eq!(off.events, 0);
    }
}
