//! When a schedule is due. Pure: the wall clock is an input, in ms since 1970, and every leader computes the same.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// A second, in ms.
pub(super) const SECOND_MS: u64 = 1000;

/// A day, in ms.
pub(super) const DAY_MS: u64 = 24 * 3600 * 1000;

/// Longer ago than this nothing of a cron schedule is looked for: 10 years.
const LOOK_BACK_MAX_MS: u64 = 3653 * DAY_MS;

/// When a schedule is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Every so often.
    Interval(Interval),
    /// By a cron expression.
    Cron(Box<CronTimes>),
    /// Only when somebody asks.
    Manual,
}

/// Every so often, counted from 1970: due at `offset_ms` + n × `every_ms`, whoever leads and whenever it began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interval {
    /// How often: at least 1 s.
    pub every_ms: u64,
    /// How much later than a multiple of `every_ms`; less than that.
    pub offset_ms: u64,
    /// By how much it may begin later, less than `every_ms`: by chance, but for one schedule and due time always the same.
    pub jitter_ms: u64,
}

/// A cron expression in a time zone.
///
/// Where clocks are put forward, a job for a fixed time that does not exist that day runs right after the gap. Where they are
/// put back, a job for a fixed time runs once, at the first of the two. Jobs for every minute or hour follow elapsed time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CronTimes {
    expression: String,
    zone: String,
    cron: Cron,
    time_zone: TimeZone,
}

impl CronTimes {
    /// Five fields, or six with seconds in front; and a zone like `Europe/Berlin`. The zones are compiled in.
    ///
    /// The error is which of the two is wrong, and the rule.
    pub fn new(expression: &str, zone: &str) -> Result<CronTimes, (CronField, String)> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| (CronField::Cron, error.to_string()))?;
        let time_zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| {
            let rule = "is no time zone known here: an IANA name like Europe/Berlin or UTC";
            (CronField::Zone, rule.to_owned())
        })?;
        let times = CronTimes { expression: expression.to_owned(), zone: zone.to_owned(), cron, time_zone };
        // A calendar repeats itself after 28 years at most, save for centuries; 2000 had all days there are.
        let start = times.next(946_684_800_000);
        match start {
            Some(_) => Ok(times),
            None => Err((CronField::Cron, "never fires: there is no such day".to_owned())),
        }
    }

    /// The expression as it was given.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The zone as it was given.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    fn next(&self, after_ms: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
        let mut from = after.to_zoned(self.time_zone.clone());
        // Never back in time, whatever the calendar does: two rounds are enough for what croner gives.
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
        // Only ever forward, so that there is one answer to what is due; from further and further back until enough is found.
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

/// Which half of a cron schedule is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CronField {
    /// The expression.
    Cron,
    /// The zone.
    Zone,
}

impl Interval {
    fn next(&self, after_ms: u64) -> Option<u64> {
        if after_ms < self.offset_ms {
            return Some(self.offset_ms);
        }
        let rounds = (after_ms - self.offset_ms) / self.every_ms + 1;
        rounds.checked_mul(self.every_ms)?.checked_add(self.offset_ms)
    }

    /// How many are due after the one and until the other.
    fn count(&self, after_ms: u64, until_ms: u64) -> u64 {
        let upto = |at_ms: u64| match at_ms.checked_sub(self.offset_ms) {
            Some(since) => since / self.every_ms + 1,
            None => 0,
        };
        upto(until_ms).saturating_sub(upto(after_ms))
    }

    fn newest(&self, after_ms: u64, until_ms: u64, count: usize) -> Vec<u64> {
        let count = self.count(after_ms, until_ms).min(count as u64);
        let Some(since) = until_ms.checked_sub(self.offset_ms) else { return Vec::new() };
        let last = since - since % self.every_ms + self.offset_ms;
        (0..count).rev().map(|back| last - back * self.every_ms).collect()
    }
}

impl Timing {
    /// The first due time after this moment.
    pub fn next(&self, after_ms: u64) -> Option<u64> {
        match self {
            Timing::Interval(interval) => interval.next(after_ms),
            Timing::Cron(times) => times.next(after_ms),
            Timing::Manual => None,
        }
    }

    /// The newest due times after the one moment and until the other, that one included, in order; at most `count`.
    pub fn newest(&self, after_ms: u64, until_ms: u64, count: usize) -> Vec<u64> {
        if count == 0 || after_ms >= until_ms {
            return Vec::new();
        }
        match self {
            Timing::Interval(interval) => interval.newest(after_ms, until_ms, count),
            Timing::Cron(times) => times.newest(after_ms, until_ms, count),
            Timing::Manual => Vec::new(),
        }
    }

    /// How many are due after the one moment and until the other; counted up to `most`.
    pub fn count(&self, after_ms: u64, until_ms: u64, most: u64) -> u64 {
        match self {
            Timing::Interval(interval) => interval.count(after_ms, until_ms).min(most),
            Timing::Cron(times) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                times.between(after_ms, until_ms).take(most).count() as u64
            }
            Timing::Manual => 0,
        }
    }

    /// When the job of this due time is to begin: the due time and, for an interval, its jitter.
    pub fn begins_ms(&self, schedule: &str, due_ms: u64) -> u64 {
        let jitter_ms = match self {
            Timing::Interval(interval) => interval.jitter_ms,
            Timing::Cron(_) | Timing::Manual => 0,
        };
        if jitter_ms == 0 {
            return due_ms;
        }
        due_ms.saturating_add(spread(schedule, due_ms) % (jitter_ms + 1))
    }
}

/// A number that looks like chance and is the same for everybody: FNV-1a of name and due time, stirred once.
fn spread(schedule: &str, due_ms: u64) -> u64 {
    let bytes = schedule.bytes().chain(due_ms.to_be_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // FNV's low bits of similar inputs are similar.
    let stirred = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    stirred ^ (stirred >> 29)
}

/// Reads a time with its unit: `500ms`, `30s`, `5m`, `2h`, `1d`, or several in a row: `1h30m`.
pub(super) fn parse_duration_ms(text: &str) -> Option<u64> {
    let (mut rest, mut total, mut last) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => SECOND_MS,
            "m" => 60 * SECOND_MS,
            "h" => 3600 * SECOND_MS,
            "d" => DAY_MS,
            _ => return None,
        };
        if unit_ms >= last {
            return None;
        }
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_ms)?)?;
        (rest, last) = (after, unit_ms);
    }
    (last != u64::MAX).then_some(total)
}

#[cfg(test)]
mod tests;
