//! Settings: declared once, layered, validated together, explained.
//!
//! [`FIELDS`] declares every setting: its names in files, environment and flags, its default, its limits and its meaning.
//! Layers are applied one over the other (default, [preset](Preset), file, environment, then flag or builder). The result
//! is checked against the rules for each value and between values, and every problem is reported at once, with the value's
//! source. The outcome is plain data: [`Settings`].
//!
//! - For a program that embeds the library: [`Settings::builder`].
//! - For a binary with a file, an environment and flags: [`Settings::loader`].
//!
//! ```
//! use std::time::Duration;
//! use tenure::Settings;
//! use tenure::settings::Preset;
//!
//! let settings = Settings::builder().store("memory:").preset(Preset::Fast).drain_timeout(Duration::from_secs(1)).build()?;
//! assert_eq!(settings.failover_bound(), std::time::Duration::from_millis(1850));
//!
//! let wrong = Settings::builder().heartbeat_interval(Duration::from_secs(4)).build().unwrap_err();
//! assert!(wrong.to_string().contains("`leaseTimeout` must be greater than `heartbeatInterval`"));
//! # Ok::<_, tenure::settings::SettingsError>(())
//! ```
//!
//! Not promised: settings are not watched. A change takes effect at the next start.

mod builder;
mod error;
mod field;
mod file;
mod given;
mod load;
mod places;
mod rules;
mod show;
mod suggest;
mod table;
mod time;

pub use builder::SettingsBuilder;
pub use error::{Problem, SettingsError, Source};
pub use field::{Computation, Fallback, Field, Kind, Value};
pub use given::{CoordinationMode, Preset};
pub use load::Loader;
pub use places::default_store;
pub use show::{Origin, Resolved, default_toml};
pub use table::{DEPRECATED, Deprecated, FIELDS};
pub use time::parse_time_ms;

use crate::clock::millis;
use error::shown;
use given::Given;
use rules::{Grade, RULES};
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::NodeId;
use tenure_store::StoreUrl;

/// Everything a node is configured with. Plain data: valid when it comes from [`loader`](Settings::loader) or
/// [`builder`](Settings::builder); after a change by hand, call [`check`](Settings::check).
///
/// Durations are milliseconds. For defaults, limits and trade-offs, see the row with the same name in [`FIELDS`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// `preset`: the set of defaults that was chosen. It has already been applied.
    pub preset: Preset,
    /// `namespace`: one leader, its workers and jobs.
    pub namespace: String,
    /// `node`: the name of this node.
    pub node: NodeId,
    /// `dataDir`: the directory of the default store.
    pub data_dir: PathBuf,
    /// `store`: the arbiter.
    pub store: StoreUrl,
    /// `eligible`: whether this node may lead.
    pub eligible: bool,
    /// `coordinationMode`: whether a plugin shares the namespace's election or has its own.
    pub coordination_mode: CoordinationMode,
    /// `heartbeatInterval`: how often the leader renews.
    pub heartbeat_interval: Duration,
    /// `leaseTimeout`: the unit of the lease.
    pub lease_timeout: Duration,
    /// `leaseHoldFactor`, in thousandths: how many units the leader may act after it has sent a renewal.
    pub lease_hold_factor_permille: u64,
    /// `leaseExpiryFactor`, in thousandths: how many units without a change make the leader count as unavailable.
    pub lease_expiry_factor_permille: u64,
    /// `takeoverDelay`: how long a standby waits in case the leader comes back.
    pub takeover_delay: Duration,
    /// `electionInterval`: how often a standby looks at the seat.
    pub election_interval: Duration,
    /// `startupJitterMin`: shortest wait before the first request.
    pub startup_jitter_min: Duration,
    /// `startupJitterMax`: longest wait before the first request.
    pub startup_jitter_max: Duration,
    /// `electionSettle`: how long nodes that start together wait for each other before the first claim.
    pub election_settle: Duration,
    /// `presenceInterval`: how often a node refreshes its presence.
    pub presence_interval: Duration,
    /// `workerHeartbeatInterval`: how often a worker refreshes its object.
    pub worker_heartbeat_interval: Duration,
    /// `workerTimeout`: how long a worker may be silent if it does not say otherwise.
    pub worker_timeout: Duration,
    /// `workerSweepInterval`: how often the leader lists the workers.
    pub worker_sweep_interval: Duration,
    /// `workerRetention`: how long the object of an inactive worker is kept.
    pub worker_retention: Duration,
    /// `nodeRetention`: how long the presence of a crashed node is kept.
    pub node_retention: Duration,
    /// `jobPollInterval`: how often to look for jobs while something changes.
    pub job_poll_interval: Duration,
    /// `jobIdleInterval`: how often a worker without jobs looks for some.
    pub job_idle_interval: Duration,
    /// `jobClaimTimeout`: how long a job may stay unclaimed in an inbox.
    pub job_claim_timeout: Duration,
    /// `jobRetention`: how long the history keeps finished jobs.
    pub job_retention: Duration,
    /// `storeClockMargin`: how much older than the expiry a seat must be, by the store's clock, at a cold start.
    pub store_clock_margin: Duration,
    /// `requestTimeout`: when a request to the store is given up.
    pub request_timeout: Duration,
    /// `drainTimeout`: how long leader-only work may take to stop.
    pub drain_timeout: Duration,
    /// `telemetryPrefix`: the first part of telemetry names.
    pub telemetry_prefix: String,
    /// `epochFencingEnabled`: whether tasks of a stale epoch are rejected.
    pub epoch_fencing_enabled: bool,
    /// `epochGracePeriod`: how long a task of the previous epoch may still be accepted.
    pub epoch_grace_period: Duration,
    /// `diagnosticsEnabled`: whether every heartbeat cycle is logged.
    pub diagnostics_enabled: bool,
    /// `contentionDetectionEnabled`: whether heartbeat cycles that take too long are reported and counted.
    pub contention_detection_enabled: bool,
    /// `contentionThreshold`, in thousandths: how many heartbeat intervals a cycle may last.
    pub contention_threshold_permille: u64,
    /// `priceWritePer1000`, in millionths of a dollar.
    pub price_write_per_1000_micros: u64,
    /// `priceReadPer1000`, in millionths of a dollar.
    pub price_read_per_1000_micros: u64,
    /// Which settings were given by a layer above defaults and preset.
    given: Given,
}

impl Settings {
    /// Starts from layers: files, environment, flags.
    pub fn loader() -> Loader {
        Loader::default()
    }

    /// Starts from code.
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// The value of a setting by its name in files; `None` if there is no such setting.
    pub fn value(&self, name: &str) -> Option<Value> {
        Field::named(name).map(|field| (field.slot.get)(self))
    }

    /// The parameters for the protocol core.
    pub fn core_config(&self) -> tenure_core::Config {
        // In builds that test its checkers the core has one more field, hence the rest pattern.
        #[allow(clippy::needless_update)]
        tenure_core::Config {
            eligible: self.eligible,
            heartbeat_ms: millis(self.heartbeat_interval),
            lease_ms: millis(self.lease_timeout),
            hold_factor_permille: self.lease_hold_factor_permille,
            expiry_factor_permille: self.lease_expiry_factor_permille,
            takeover_delay_ms: millis(self.takeover_delay),
            election_interval_ms: millis(self.election_interval),
            startup_jitter_min_ms: millis(self.startup_jitter_min),
            startup_jitter_max_ms: millis(self.startup_jitter_max),
            settle_ms: millis(self.election_settle),
            presence_ms: millis(self.presence_interval),
            store_clock_margin_ms: millis(self.store_clock_margin),
            drain_ms: millis(self.drain_timeout),
            ..tenure_core::Config::default()
        }
    }

    /// The rule for a fence.
    pub fn fence_rule(&self) -> tenure_core::FenceRule {
        tenure_core::FenceRule {
            enabled: self.epoch_fencing_enabled,
            grace_ms: millis(self.epoch_grace_period),
        }
    }

    /// How soon a crashed leader is replaced, if the store answers at once.
    pub fn failover_bound(&self) -> Duration {
        Duration::from_millis(self.core_config().failover_bound_ms())
    }

    /// How far clocks may drift apart, in thousandths, before two nodes could think they lead.
    pub fn tolerated_drift_permille(&self) -> u64 {
        self.core_config().tolerated_drift_permille()
    }

    /// Validates settings that were changed by hand, by the same rules that loaded settings must pass.
    pub fn check(&self) -> Result<(), SettingsError> {
        load::check(self)
    }

    /// What works, but has a drawback worth a line in the log.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = RULES.iter().filter(|rule| rule.grade == Grade::Warning);
        warnings
            .filter_map(|rule| {
                let text = (rule.broken)(self)?;
                let fields = std::iter::once(&rule.field).chain(rule.others);
                let values: Vec<_> = fields.map(|name| format!("{name} = {}", self.shown(name))).collect();
                Some(format!("{text} [{}]", values.join(", ")))
            })
            .collect()
    }

    /// The settings that belong to the namespace's service, by name: a leader publishes them, and later nodes compare.
    pub fn shared(&self) -> serde_json::Map<String, serde_json::Value> {
        let shared = FIELDS.iter().filter(|field| field.shared);
        shared.map(|field| (field.name.to_owned(), (field.slot.get)(self).to_json())).collect()
    }

    /// A setting's value as messages show it.
    fn shown(&self, name: &str) -> String {
        self.value(name).map_or_else(String::new, |value| shown(&value.to_string()))
    }
}
