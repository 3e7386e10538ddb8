//! Times on the command line: a number with its unit, the same everywhere and the same as in files of schedules.
//!
//! A bare number is refused: whoever types 30 means seconds, and a lock given up after 30 ms would be a job that silently did
//! not run.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};
use tenure::settings::parse_time_ms;

const NO_UNIT: &str = "must be a time with its unit: 500ms, 20s, 5m, 1h";
const MOMENT: &str = "must be a time from now (10m, 2h) or a moment with its zone (2026-12-24T18:00:00Z)";
const HOUR_MS: u64 = 60 * 60 * 1000;

/// Any time up to a day, as with settings.
pub(super) fn time(text: &str) -> Result<u64, String> {
    within(text, 0..=24 * HOUR_MS, "0s to 24h")
}

/// How long to wait for something.
pub(super) fn wait(text: &str) -> Result<u64, String> {
    within(text, 0..=HOUR_MS, "0s to 1h")
}

/// A time of a job.
pub(super) fn job_time(text: &str) -> Result<u64, String> {
    within(text, 1..=30 * 24 * HOUR_MS, "1ms to 30d")
}

/// How long something is remembered.
pub(super) fn keep(text: &str) -> Result<u64, String> {
    within(text, 1000..=366 * 24 * HOUR_MS, "1s to 366d")
}

/// A moment in the past: how long ago, or one as it is written in RFC 3339.
pub(super) fn past(text: &str) -> Result<SystemTime, String> {
    const PAST: &str = "must be how long ago (10m, 2h, 3d) or a moment with its zone (2026-12-24T18:00:00Z)";
    if let Some(ms) = parse_time_ms(text) {
        return SystemTime::now().checked_sub(Duration::from_millis(ms)).ok_or_else(|| PAST.to_owned());
    }
    let timestamp: jiff::Timestamp = text.parse().map_err(|_| PAST.to_owned())?;
    Ok(timestamp.into())
}

/// A moment: a time from now, or one as it is written in RFC 3339.
pub(super) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Some(ms) = parse_time_ms(text) {
        return within(text, 0..=366 * 24 * HOUR_MS, "0s to 366d").and_then(|_| {
            SystemTime::now().checked_add(Duration::from_millis(ms)).ok_or_else(|| MOMENT.to_owned())
        });
    }
    let timestamp: jiff::Timestamp = text.parse().map_err(|_| MOMENT.to_owned())?;
    Ok(timestamp.into())
}

/// How often to look at something.
pub(super) fn look(text: &str) -> Result<u64, String> {
    within(text, 100..=HOUR_MS, "100ms to 1h")
}

fn within(text: &str, range: RangeInclusive<u64>, words: &str) -> Result<u64, String> {
    match parse_time_ms(text) {
        Some(ms) if range.contains(&ms) => Ok(ms),
        Some(_) => Err(format!("must be {words}")),
        None => Err(NO_UNIT.to_owned()),
    }
}

/// A setting that is a time. Whatever else is wrong with it the settings tell, all of them at once.
pub(super) fn setting(text: &str) -> Result<String, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text != "0";
    if is_bare { Err(NO_UNIT.to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let good = [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("24h", 24 * HOUR_MS),
            ("1d", 24 * HOUR_MS),
        ];
        for (text, ms) in good {
            assert_eq!(time(text), Ok(ms), "{text}");
        }
        for text in ["", "s", "30", "-1s", "1.5s", "1 s", "25h", "18446744073709551615h", "٣s", "1m1h"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(time("30").expect_err("no unit").contains("20s"));
    }

    #[test]
    fn each_kind_of_time_has_its_range() {
        assert_eq!((wait("0s"), wait("1h")), (Ok(0), Ok(HOUR_MS)));
        assert!(wait("61m").expect_err("too long").contains("0s to 1h"));
        assert!(look("99ms").is_err() && look("100ms").is_ok());
    }

    #[test]
    fn a_setting_has_a_unit_too() {
        assert_eq!((setting("1500ms"), setting("0")), (Ok("1500ms".into()), Ok("0".into())));
        assert_eq!(setting("soon"), Ok("soon".into()), "the settings say what is wrong with it");
        assert!(setting("1500").expect_err("no unit").contains("500ms"));
    }
}
