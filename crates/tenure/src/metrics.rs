//! Figures: how coordination is doing and what it costs, for one node or for a whole namespace.
//!
//! [`Metrics`] is one node's, as JSON has it; [`register`] adds the same figures to a Prometheus registry; [`ClusterMetrics`] adds up
//! what all nodes published. [`Projection`] says what a namespace will cost before it exists.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! drop(node.lead().await);
//! let metrics = node.metrics();
//! assert_eq!((metrics.elections, metrics.epoch), (1, 1));
//! assert!(metrics.requests.lease.put > 0, "the claim was a write");
//! # node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Not promised: that the figures survive a restart. Costs follow from the prices in the settings, not from a bill.

mod cluster;
mod cost;
mod counters;
mod jobs;
mod plugin;
mod registry;

pub use cluster::{ClusterMetrics, NodeMetrics, Totals};
pub use cost::{MONTH_SECONDS, Prices, Projection, ProjectionLine, Surcharge};
pub use jobs::JobMetrics;
pub use plugin::{FigureKind, PluginFigure, PluginFigures};
pub use prometheus_client;
pub use registry::{METRIC_NAMES, register};

pub(crate) use counters::{Counters, ProcessShare, role_name};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tenure_core::{ELECTION_BUCKETS_MS, ElectionDurations};
use tenure_store::MeterSnapshot;

/// One node's figures at one moment, under the names in the documents. Times are milliseconds.
///
/// Unknown fields are ignored and missing ones are zero, so that figures of other versions can be read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// The namespace of the election.
    pub namespace: String,
    /// The node's id.
    pub node: String,
    /// `standby`, `candidate`, `leader` or `draining`; none while it starts, after it has ended, or if it is not eligible.
    pub role: Option<String>,
    /// The epoch of the leader it knows; 0 if it knows none.
    pub epoch: u64,
    /// Heartbeat cycles so far: a leader's renewals, a standby's looks.
    pub heartbeats: u64,
    /// Median of the newest hundred heartbeats; 0 for fewer than ten.
    pub heartbeat_latency_p50: u64,
    /// 99th percentile of the newest hundred heartbeats; 0 for fewer than ten.
    pub heartbeat_latency_p99: u64,
    /// A remark about these figures; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub note: Option<String>,
    /// Tasks refused because of a stale epoch.
    pub epoch_drift_events: u64,
    /// Heartbeat cycles that took too long, reported or not.
    pub contention_events: u64,
    /// Elections in which this node tried to claim the seat.
    pub elections: u64,
    /// New leaders, or new epochs, that this node learned of.
    pub leader_changes: u64,
    /// The plugins that share this election, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// How often a plugin panicked or hung.
    pub plugin_failures: u64,
    /// How often a plugin had to coordinate on its own because the store refused the global seat.
    pub fallbacks: u64,
    /// How many plugins do so now. Above 0, health is degraded.
    pub plugins_in_fallback: u64,
    /// How long elections took, from when this node noticed that one was due until it knew the leader.
    pub election_duration_histogram: Histogram,
    /// Active workers, according to the newest snapshot the node knows.
    pub workers_active: u64,
    /// Inactive workers, likewise.
    pub workers_inactive: u64,
    /// Objects in `workers/` that are not workers.
    pub workers_skipped: u64,
    /// Worker silences that this node reported.
    pub worker_timeouts: u64,
    /// Lists of the workers that this node made as leader.
    pub worker_sweeps: u64,
    /// Leader-only processes running on this node now.
    pub processes_running: u64,
    /// Processes that did not stop when they had to: they still run, without a guard.
    pub processes_stuck: u64,
    /// How often a process was started again after it ended.
    pub process_restarts: u64,
    /// Job figures, as leader and as worker.
    pub jobs: JobMetrics,
    /// Figures that plugins add, by their names in the registry.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugin_figures: BTreeMap<String, f64>,
    /// Requests to the store, by lane and kind.
    pub requests: LaneRequests,
    /// Length of the measurement behind the rates below: the last five to ten minutes, or since the node joined.
    pub measured_ms: u64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Requests per second billed as writes: puts and list pages.
    pub writes_per_second: f64,
    /// Requests per second billed as reads.
    pub reads_per_second: f64,
    /// Dollars for 30 days at these rates, by the prices in the settings.
    pub cost_per_month: f64,
}

/// A histogram of durations.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Histogram {
    /// In order; each counts only its own durations, not those of earlier buckets.
    pub buckets: Vec<Bucket>,
    /// Number of durations in all buckets.
    pub count: u64,
    /// Sum of the durations.
    pub sum: u64,
}

/// One bucket of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Bucket {
    /// The longest duration that belongs here; none for the last bucket, which has no upper bound.
    pub le: Option<u64>,
    /// Number of durations.
    pub count: u64,
}

impl From<&ElectionDurations> for Histogram {
    fn from(durations: &ElectionDurations) -> Histogram {
        let bounds = ELECTION_BUCKETS_MS.iter().map(|bound_ms| Some(*bound_ms)).chain([None]);
        let buckets = bounds.zip(durations.counts).map(|(le, count)| Bucket { le, count }).collect();
        Histogram { buckets, count: durations.total(), sum: durations.sum_ms }
    }
}

/// Requests by lane: work in one lane never queues behind work in the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LaneRequests {
    /// Requests for the seat.
    pub lease: Requests,
    /// All other requests.
    pub bulk: Requests,
}

/// Requests by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// Reads that were not answered "unchanged".
    pub get: u64,
    /// Reads answered "unchanged".
    pub get_unchanged: u64,
    /// Writes, whatever the outcome.
    pub put: u64,
    /// Removals.
    pub remove: u64,
    /// List pages.
    pub list_pages: u64,
    /// Requests beyond the one that every call makes.
    pub extra: u64,
    /// Bytes of bodies sent.
    pub bytes_up: u64,
    /// Bytes of bodies received.
    pub bytes_down: u64,
}

impl Requests {
    /// The kinds with their counts, by wire name.
    pub fn kinds(&self) -> [(&'static str, u64); 6] {
        [
            ("get", self.get),
            ("getUnchanged", self.get_unchanged),
            ("put", self.put),
            ("remove", self.remove),
            ("listPages", self.list_pages),
            ("extra", self.extra),
        ]
    }

    /// Requests of all kinds.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
    }
}

impl LaneRequests {
    /// Requests of all kinds in both lanes.
    pub fn total(&self) -> u64 {
        self.lease.total().saturating_add(self.bulk.total())
    }
}

impl From<MeterSnapshot> for Requests {
    fn from(meter: MeterSnapshot) -> Requests {
        Requests {
            get: meter.get,
            get_unchanged: meter.get_unchanged,
            put: meter.put,
            remove: meter.remove,
            list_pages: meter.list_pages,
            extra: meter.extra,
            bytes_up: meter.bytes_up,
            bytes_down: meter.bytes_down,
        }
    }
}
