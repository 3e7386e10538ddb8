//! Which presets a store is fast enough for.

use std::time::Duration;
use tenure::clock::millis;
use tenure::settings::{Preset, Settings};

/// What fraction of the hold a leader has before its work is told to stop, in percent.
const WORK_ENDS_PERCENT: u32 = 80;

/// Tries of a renewal that must fit before that.
const TRIES: u32 = 3;

/// A lease of so many default leases is the longest that is looked at.
const ADVICE_FACTOR_MAX: u64 = 1_000;

/// What a store with this latency can be used with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PresetFit {
    /// Each preset, and why it does not fit if it does not.
    pub(crate) presets: Vec<(&'static str, Option<String>)>,
    /// What to set if none fits.
    pub(crate) advice: Option<Advice>,
}

/// Settings in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Advice {
    pub(crate) lease_timeout_ms: u64,
    pub(crate) heartbeat_interval_ms: u64,
}

impl PresetFit {
    /// Judges every preset by the 99th percentile of the time a seat write takes, and by how often the store takes one.
    pub(crate) fn of(write_p99: Duration, one_write_a_second: bool) -> PresetFit {
        let too_often = |settings: &Settings| {
            let often = one_write_a_second && settings.heartbeat_interval < Duration::from_secs(1);
            often.then(|| "this store allows one write per second to an object".to_owned())
        };
        let judge = |preset: Preset| match Settings::builder().preset(preset).build() {
            Ok(settings) => too_often(&settings).or_else(|| too_slow(write_p99, &settings)),
            Err(error) => Some(error.to_string()),
        };
        let presets: Vec<_> = Preset::ALL.iter().map(|preset| (preset.as_str(), judge(*preset))).collect();
        let fits = presets.iter().any(|(_, why)| why.is_none());
        PresetFit { presets, advice: if fits { None } else { advise(write_p99) } }
    }
}

/// How long a leader may act after it sent a renewal.
fn hold(settings: &Settings) -> Duration {
    Duration::from_millis(settings.core_config().hold_ms())
}

/// Why these settings ask too much of a store whose seat writes take this long; `None` if they do not.
fn too_slow(write_p99: Duration, settings: &Settings) -> Option<String> {
    let timeout = settings.request_timeout;
    let share = hold(settings) * WORK_ENDS_PERCENT / 100;
    if write_p99 > timeout {
        return Some(format!("a write must not take longer than {} ms", timeout.as_millis()));
    }
    (write_p99 * TRIES > share)
        .then(|| format!("{TRIES} writes must not take longer than {} ms", share.as_millis()))
}

/// The shortest lease in whole default leases that fits, with the heartbeat in proportion.
fn advise(write_p99: Duration) -> Option<Advice> {
    let default = Settings::builder().build().ok()?;
    let (lease, heartbeat) = (millis(default.lease_timeout), millis(default.heartbeat_interval));
    let advice = (1..=ADVICE_FACTOR_MAX)
        .map(|n| Advice { lease_timeout_ms: lease * n, heartbeat_interval_ms: heartbeat * n });
    let fits = |advice: &Advice| {
        let settings = Settings::builder()
            .lease_timeout(Duration::from_millis(advice.lease_timeout_ms))
            .heartbeat_interval(Duration::from_millis(advice.heartbeat_interval_ms))
            .build();
        settings.is_ok_and(|settings| too_slow(write_p99, &settings).is_none())
    };
    advice.into_iter().find(fits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn settings(preset: Preset) -> Settings {
        Settings::builder().preset(preset).build().unwrap()
    }

    /// The slowest write a preset stands.
    fn slowest(settings: &Settings) -> Duration {
        let timeout = settings.request_timeout;
        timeout.min(hold(settings) * WORK_ENDS_PERCENT / 100 / TRIES)
    }

    #[test]
    fn every_preset_has_its_limit() {
        for preset in Preset::ALL {
            let settings = settings(*preset);
            let slowest = slowest(&settings);
            assert_eq!(too_slow(slowest, &settings), None, "{}", preset.as_str());
            let why = too_slow(slowest + Duration::from_millis(1), &settings);
            assert!(why.is_some(), "{}", preset.as_str());
        }
    }

    #[test]
    fn presets_are_told_apart() {
        let told = |write_p99| PresetFit::of(write_p99, false).presets;
        assert!(told(Duration::from_millis(5)).iter().all(|(_, why)| why.is_none()));
        // Slower than `fast` stands, not slower than `default` does.
        let between = slowest(&settings(Preset::Fast)) + Duration::from_millis(1);
        for (name, why) in told(between) {
            assert_eq!(why.is_some(), name == "fast", "{name}: {why:?}");
        }
        assert_eq!(PresetFit::of(between, false).advice, None);
    }

    #[test]
    fn one_write_a_second_is_not_enough_for_fast() {
        for (name, why) in PresetFit::of(Duration::from_millis(5), true).presets {
            assert_eq!(why.is_some(), name == "fast", "{name}: {why:?}");
        }
    }

    #[test]
    fn where_no_preset_fits_settings_that_do_are_named() {
        let slower = |factor: u32| {
            Preset::ALL.iter().map(|preset| slowest(&settings(*preset))).max().unwrap() * factor
                + Duration::from_millis(1)
        };
        for write_p99 in [slower(1), slower(3), slower(30)] {
            let fit = PresetFit::of(write_p99, false);
            assert!(fit.presets.iter().all(|(_, why)| why.is_some()));
            let advice = fit.advice.unwrap();
            let advised = Settings::builder()
                .lease_timeout(Duration::from_millis(advice.lease_timeout_ms))
                .heartbeat_interval(Duration::from_millis(advice.heartbeat_interval_ms))
                .build()
                .unwrap();
            assert_eq!(too_slow(write_p99, &advised), None);
        }
        // Nothing helps a store that takes hours.
        assert_eq!(PresetFit::of(Duration::from_secs(1 << 20), false).advice, None);
    }
}
