//! Settings from a program: one method for each, checked together at the end.

use super::field::Raw;
use super::{CoordinationMode, Loader, Preset, Resolved, Settings, SettingsError};
use crate::clock::millis;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Builds [`Settings`] in a program; what it sets wins over every other layer.
///
/// Each method's setting is described by its row in [`FIELDS`](super::FIELDS). Files and the environment are read only
/// if handed over with [`file`](SettingsBuilder::file) and [`env`](SettingsBuilder::env).
///
/// ```
/// use std::time::Duration;
/// use tenure::settings::Settings;
///
/// let settings = Settings::builder().namespace("reports").heartbeat_interval(Duration::from_millis(500)).build()?;
/// assert_eq!(settings.heartbeat_interval, Duration::from_millis(500));
///
/// let error = Settings::builder().heartbeat_interval(Duration::from_secs(4)).build().unwrap_err();
/// assert!(error.to_string().contains("`leaseTimeout` must be greater than `heartbeatInterval`"));
/// # Ok::<(), tenure::settings::SettingsError>(())
/// ```
#[derive(Clone, Default, Debug)]
#[must_use = "nothing is checked or built before `build`"]
pub struct SettingsBuilder {
    loader: Loader,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $method:ident($type:ty) = $name:literal;)*) => {
        $(
            $(#[$doc])*
            pub fn $method(mut self, value: $type) -> SettingsBuilder {
                self.loader.built($name, Raw::from(value));
                self
            }
        )*
    };
}

impl From<Duration> for Raw {
    fn from(time: Duration) -> Raw {
        Raw::from(millis(time))
    }
}

impl From<CoordinationMode> for Raw {
    fn from(mode: CoordinationMode) -> Raw {
        Raw::from(mode.as_str())
    }
}

impl From<Preset> for Raw {
    fn from(preset: Preset) -> Raw {
        Raw::from(preset.as_str())
    }
}

impl SettingsBuilder {
    setters! {
        /// Sets `eligible`: whether this node may lead. Default: true.
        eligible(bool) = "eligible";
        /// Sets `heartbeatInterval`: how often the leader renews. Default: 1500 ms.
        heartbeat_interval(Duration) = "heartbeatInterval";
        /// Sets `leaseTimeout`: the unit of the lease. Default: 2500 ms.
        lease_timeout(Duration) = "leaseTimeout";
        /// Sets `leaseHoldFactor`: how many units a renewal lets the leader act. Default: 2.
        lease_hold_factor(f64) = "leaseHoldFactor";
        /// Sets `leaseExpiryFactor`: how many silent units make a leader unavailable. Default: 3.
        lease_expiry_factor(f64) = "leaseExpiryFactor";
        /// Sets `takeoverDelay`: the pause before an unavailable leader is replaced. Default: 1 s.
        takeover_delay(Duration) = "takeoverDelay";
        /// Sets `electionInterval`: how often a standby looks at the seat. Default: two thirds of `heartbeatInterval`.
        election_interval(Duration) = "electionInterval";
        /// Sets `startupJitterMin`: the least wait before the first request. Default: 0.
        startup_jitter_min(Duration) = "startupJitterMin";
        /// Sets `startupJitterMax`: the longest wait before the first request. Default: 5 s.
        startup_jitter_max(Duration) = "startupJitterMax";
        /// Sets `electionSettle`: how long nodes that start together wait for each other. Default: 500 ms.
        election_settle(Duration) = "electionSettle";
        /// Sets `presenceInterval`: how often a node says that it is there. Default: 20 s.
        presence_interval(Duration) = "presenceInterval";
        /// Sets `workerHeartbeatInterval`: how often a worker refreshes its object. Default: 5 s.
        worker_heartbeat_interval(Duration) = "workerHeartbeatInterval";
        /// Sets `workerTimeout`: how long a worker may be silent if it does not say. Default: 20 s.
        worker_timeout(Duration) = "workerTimeout";
        /// Sets `workerSweepInterval`: how often the leader lists the workers. Default: 5 s.
        worker_sweep_interval(Duration) = "workerSweepInterval";
        /// Sets `workerRetention`: how long the object of an inactive worker is kept. Default: 1 h.
        worker_retention(Duration) = "workerRetention";
        /// Sets `nodeRetention`: how long the presence of a crashed node is kept. Default: 1 h.
        node_retention(Duration) = "nodeRetention";
        /// Sets `jobPollInterval`: how often jobs are looked for while something moves. Default: 250 ms.
        job_poll_interval(Duration) = "jobPollInterval";
        /// Sets `jobIdleInterval`: how often a worker without jobs does. Default: 1 s.
        job_idle_interval(Duration) = "jobIdleInterval";
        /// Sets `jobClaimTimeout`: how long a job may stay unclaimed in an inbox. Default: 30 s.
        job_claim_timeout(Duration) = "jobClaimTimeout";
        /// Sets `jobRetention`: how long finished jobs that were put away are kept. Default: 24 h.
        job_retention(Duration) = "jobRetention";
        /// Sets `storeClockMargin`: how far the store's clock is distrusted. Default: 30 s.
        store_clock_margin(Duration) = "storeClockMargin";
        /// Sets `requestTimeout`: when a request is given up. Default: 30 % of the hold.
        request_timeout(Duration) = "requestTimeout";
        /// Sets `drainTimeout`: how long leader-only work may take to stop. Default: 3 s.
        drain_timeout(Duration) = "drainTimeout";
        /// Sets `epochFencingEnabled`: whether tasks of a stale epoch are rejected. Default: true.
        epoch_fencing_enabled(bool) = "epochFencingEnabled";
        /// Sets `epochGracePeriod`: how long a task of the epoch just before may be accepted. Default: 5 s.
        epoch_grace_period(Duration) = "epochGracePeriod";
        /// Sets `diagnosticsEnabled`: whether every heartbeat cycle is logged. Default: false.
        diagnostics_enabled(bool) = "diagnosticsEnabled";
        /// Sets `contentionDetectionEnabled`: whether slow heartbeat cycles are told and counted. Default: true.
        contention_detection_enabled(bool) = "contentionDetectionEnabled";
        /// Sets `contentionThreshold`: how many heartbeat intervals a cycle may last. Default: 2.
        contention_threshold(f64) = "contentionThreshold";
        /// Sets `priceWritePer1000` in dollars, for the cost estimate. Default: 0.005.
        price_write_per_1000(f64) = "priceWritePer1000";
        /// Sets `priceReadPer1000` in dollars, for the cost estimate. Default: 0.0004.
        price_read_per_1000(f64) = "priceReadPer1000";
        /// Sets `coordinationMode`: `per-plugin` or `global`. Default: `per-plugin`.
        coordination_mode(CoordinationMode) = "coordinationMode";
        /// Sets `preset`: `default`, `thrifty` or `fast`. Default: `default`.
        preset(Preset) = "preset";
        /// Sets `namespace`: which election this node takes part in. Default: `default`.
        namespace(&str) = "namespace";
        /// Sets `node`: this node's name. Default: host name, `-`, process id.
        node(&str) = "node";
        /// Sets `store`: the arbiter's URL. Default: a database file in `dataDir`.
        store(&str) = "store";
        /// Sets `dataDir`: the directory of the default store. Default: the user's data directory.
        data_dir(&str) = "dataDir";
        /// Sets `telemetryPrefix`: the first part of telemetry names. Default: `serviceradar`.
        telemetry_prefix(&str) = "telemetryPrefix";
    }

    /// Lays a file below; see [`Loader::file`].
    pub fn file(mut self, path: impl Into<PathBuf>) -> SettingsBuilder {
        self.loader = self.loader.file(path);
        self
    }

    /// Lays an environment below; see [`Loader::env`].
    pub fn env<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> SettingsBuilder {
        self.loader = self.loader.env(variables);
        self
    }

    /// The settings, if every rule holds.
    pub fn build(self) -> Result<Settings, SettingsError> {
        self.resolve().map(|resolved| resolved.settings)
    }

    /// The settings with sources and warnings.
    pub fn resolve(self) -> Result<Resolved, SettingsError> {
        self.loader.load()
    }
}

impl From<bool> for Raw {
    fn from(value: bool) -> Raw {
        Raw::Bool(value)
    }
}

impl From<u64> for Raw {
    fn from(value: u64) -> Raw {
        i64::try_from(value).map_or_else(|_| Raw::Huge(value.to_string()), Raw::Int)
    }
}

impl From<f64> for Raw {
    fn from(value: f64) -> Raw {
        Raw::Float(value)
    }
}

impl From<&str> for Raw {
    fn from(value: &str) -> Raw {
        Raw::Quoted(value.to_owned())
    }
}
