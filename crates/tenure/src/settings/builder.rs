//! Settings from a program: one method for each, checked together at the end.

use super::field::Raw;
use super::{Loader, Resolved, Settings, SettingsError};
use std::ffi::OsString;
use std::path::PathBuf;

/// Builds [`Settings`] in a program; what it sets wins over every other layer.
///
/// Each method's setting is described by its row in [`FIELDS`](super::FIELDS). Files and the environment are read only
/// if handed over with [`file`](SettingsBuilder::file) and [`env`](SettingsBuilder::env).
///
/// ```
/// use tenure::settings::Settings;
///
/// let settings = Settings::builder().namespace("reports").heartbeat_interval(500).build()?;
/// assert_eq!(settings.heartbeat_interval_ms, 500);
///
/// let error = Settings::builder().heartbeat_interval(4000).build().unwrap_err();
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

impl SettingsBuilder {
    setters! {
        /// Sets `eligible`: whether this node may lead. Default: true.
        eligible(bool) = "eligible";
        /// Sets `heartbeatInterval` in ms: how often the leader renews. Default: 1500.
        heartbeat_interval(u64) = "heartbeatInterval";
        /// Sets `leaseTimeout` in ms: the unit of the lease. Default: 2500.
        lease_timeout(u64) = "leaseTimeout";
        /// Sets `leaseHoldFactor`: how many units a renewal lets the leader act. Default: 2.
        lease_hold_factor(f64) = "leaseHoldFactor";
        /// Sets `leaseExpiryFactor`: how many silent units make a leader unavailable. Default: 3.
        lease_expiry_factor(f64) = "leaseExpiryFactor";
        /// Sets `takeoverDelay` in ms: the pause before an unavailable leader is replaced. Default: 1000.
        takeover_delay(u64) = "takeoverDelay";
        /// Sets `electionInterval` in ms: how often a standby looks at the seat. Default: two thirds of `heartbeatInterval`.
        election_interval(u64) = "electionInterval";
        /// Sets `startupJitterMin` in ms: the least wait before the first request. Default: 0.
        startup_jitter_min(u64) = "startupJitterMin";
        /// Sets `startupJitterMax` in ms: the longest wait before the first request. Default: 5000.
        startup_jitter_max(u64) = "startupJitterMax";
        /// Sets `electionSettle` in ms: how long nodes that start together wait for each other. Default: 500.
        election_settle(u64) = "electionSettle";
        /// Sets `presenceInterval` in ms: how often a node says that it is there. Default: 20000.
        presence_interval(u64) = "presenceInterval";
        /// Sets `workerHeartbeatInterval` in ms: how often a worker refreshes its object. Default: 5000.
        worker_heartbeat_interval(u64) = "workerHeartbeatInterval";
        /// Sets `workerTimeout` in ms: how long a worker may be silent if it does not say. Default: 20000.
        worker_timeout(u64) = "workerTimeout";
        /// Sets `workerSweepInterval` in ms: how often the leader lists the workers. Default: 5000.
        worker_sweep_interval(u64) = "workerSweepInterval";
        /// Sets `workerRetention` in ms: how long the object of an inactive worker is kept. Default: 3600000.
        worker_retention(u64) = "workerRetention";
        /// Sets `nodeRetention` in ms: how long the presence of a crashed node is kept. Default: 3600000.
        node_retention(u64) = "nodeRetention";
        /// Sets `jobPollInterval` in ms: how often jobs are looked for while something moves. Default: 500.
        job_poll_interval(u64) = "jobPollInterval";
        /// Sets `jobIdleInterval` in ms: how seldom while nothing does. Default: 5000.
        job_idle_interval(u64) = "jobIdleInterval";
        /// Sets `jobClaimTimeout` in ms: how long a job may stay unclaimed in an inbox. Default: 30000.
        job_claim_timeout(u64) = "jobClaimTimeout";
        /// Sets `jobRetention` in ms: how long finished jobs that were put away are kept. Default: 86400000.
        job_retention(u64) = "jobRetention";
        /// Sets `storeClockMargin` in ms: how far the store's clock is distrusted. Default: 30000.
        store_clock_margin(u64) = "storeClockMargin";
        /// Sets `requestTimeout` in ms: when a request is given up. Default: 30 % of the hold.
        request_timeout(u64) = "requestTimeout";
        /// Sets `drainTimeout` in ms: how long leader-only work may take to stop. Default: 3000.
        drain_timeout(u64) = "drainTimeout";
        /// Sets `epochFencingEnabled`: whether tasks of a stale epoch are rejected. Default: true.
        epoch_fencing_enabled(bool) = "epochFencingEnabled";
        /// Sets `epochGracePeriod` in ms: how long a task of the epoch just before may be accepted. Default: 5000.
        epoch_grace_period(u64) = "epochGracePeriod";
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
        coordination_mode(&str) = "coordinationMode";
        /// Sets `preset`: `default`, `thrifty` or `fast`. Default: `default`.
        preset(&str) = "preset";
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
