//! When a schedule is due. Pure: the wall clock is an input, in ms since 1970, and every leader computes the same.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use tenure::schedules::DueTimes;

pub use tenure::schedules::Interval;

pub(super) const SECOND_MS: u64 = 1000;

pub(super) const DAY_MS: u64 = 24 * 3600 * 1000;

/// How far back to search for due times of a cron schedule: 10 years.
const LOOK_BACK_MAX_MS: u64 = 3653 * DAY_MS;

/// When a schedule is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Timing {
    /// At fixed intervals.
    Interval(Interval),
    /// By a cron expression.
    Cron(Box<CronTimes>),
    /// Only when somebody asks.
    Manual,
}

/// A cron expression in a time zone.
///
/// When clocks go forward, a job for a fixed time that does not exist that day runs right after the gap. When they go back, a job
/// for a fixed time runs once, at the first of the two. Jobs for every minute or hour follow elapsed time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CronTimes {
    expression: String,
    zone: String,
    cron: Cron,
    time_zone: TimeZone,
}

impl CronTimes {
    /// Takes five fields, or six with seconds first, and a zone like `Europe/Berlin`. The zones are compiled in: leaders on
    /// different images must not disagree about what is due.
    ///
    /// The error says which of the two is wrong, and the rule it breaks.
    pub fn new(expression: &str, zone: &str) -> Result<CronTimes, (CronField, String)> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let rule = "must be five fields (minute, hour, day of month, month, day of week), or six with seconds first, each within its range";
        let cron = parser.parse(expression).map_err(|_| (CronField::Cron, rule.to_owned()))?;
        let time_zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| {
            let rule = "is not a known time zone: use an IANA name like Europe/Berlin or UTC";
            (CronField::Zone, rule.to_owned())
        })?;
        let times = CronTimes { expression: expression.to_owned(), zone: zone.to_owned(), cron, time_zone };
        // Except at centuries, a calendar repeats after at most 28 years, and the years from 2000 on have every possible day.
        let start = times.next(946_684_800_000);
        match start {
            Some(_) => Ok(times),
            None => Err((CronField::Cron, "never fires: there is no such day".to_owned())),
        }
    }

    /// The expression as given.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The zone as given.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    fn next(&self, after_ms: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
        let mut from = after.to_zoned(self.time_zone.clone());
        // Never go back in time, whatever the calendar does: two rounds are enough for what croner returns.
        for _ in 0..4 {
            let next = self.cron.find_next_occurrence(&from, false).ok()?;
            let next_ms = u64::try_from(next.timestamp().as_millisecond()).ok()?;
            if next_ms > after_ms {
                return Some(next_ms);
            }
            from = next;
        }
        None
    }

    fn newest(&self, after_ms: u64, until_ms: u64, count: usize) -> Vec<u64> {
        let floor_ms = after_ms.max(until_ms.saturating_sub(LOOK_BACK_MAX_MS));
        // Search only forward, starting further and further back until enough is found. Across a clock change, a search backwards
        // may miss what a search forward finds, and then two leaders would disagree.
        let mut window_ms = 64 * SECOND_MS;
        loop {
            let from_ms = floor_ms.max(until_ms.saturating_sub(window_ms));
            let mut found: Vec<u64> = self.between(from_ms, until_ms).collect();
            if found.len() >= count || from_ms == floor_ms {
                return found.split_off(found.len().saturating_sub(count));
            }
            window_ms = window_ms.saturating_mul(4);
        }
    }

    fn between(&self, after_ms: u64, until_ms: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(self.next(after_ms), |due| self.next(*due))
            .take_while(move |due| *due <= until_ms)
    }
}

/// Which part of a cron schedule is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CronField {
    /// The cron expression.
    Cron,
    /// The time zone.
    Zone,
}

impl Timing {
    /// The zone of its clock times; `None` if it has none.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Timing::Cron(times) => Some(times.zone()),
            Timing::Interval(_) | Timing::Manual => None,
        }
    }
}

impl DueTimes for Timing {
    fn next(&self, after_ms: u64) -> Option<u64> {
        match self {
            Timing::Interval(interval) => interval.next(after_ms),
            Timing::Cron(times) => times.next(after_ms),
            Timing::Manual => None,
        }
    }

    fn newest(&self, after_ms: u64, until_ms: u64, count: usize) -> Vec<u64> {
        if count == 0 || after_ms >= until_ms {
            return Vec::new();
        }
        match self {
            Timing::Interval(interval) => interval.newest(after_ms, until_ms, count),
            Timing::Cron(times) => times.newest(after_ms, until_ms, count),
            Timing::Manual => Vec::new(),
        }
    }

    fn count(&self, after_ms: u64, until_ms: u64, most: u64) -> u64 {
        match self {
            Timing::Interval(interval) => interval.count(after_ms, until_ms, most),
            Timing::Cron(times) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                times.between(after_ms, until_ms).take(most).count() as u64
            }
            Timing::Manual => 0,
        }
    }

    fn begins_ms(&self, schedule: &str, due_ms: u64) -> u64 {
        match self {
            Timing::Interval(interval) => interval.begins_ms(schedule, due_ms),
            Timing::Cron(_) | Timing::Manual => due_ms,
        }
    }

    fn jitter_max_ms(&self) -> u64 {
        match self {
            Timing::Interval(interval) => interval.jitter_ms,
            Timing::Cron(_) | Timing::Manual => 0,
        }
    }
}

#[cfg(test)]
mod tests;
