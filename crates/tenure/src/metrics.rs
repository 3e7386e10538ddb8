//! Figures: how coordination is doing and what it costs, from one node or from all of a namespace.

mod cluster;
mod cost;
mod figures;
mod plugin;
mod registry;
mod tasks;

pub use cluster::{ClusterMetrics, NodeMetrics, Totals};
pub use cost::{MONTH_SECONDS, Prices, Projection, ProjectionLine, Surcharge};
pub use plugin::{FigureKind, PluginFigure, PluginFigures};
pub use registry::{METRIC_NAMES, register};
pub use tasks::TaskMetrics;

pub(crate) use figures::{Figures, ProcessShare, role_name};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tenure_core::{ELECTION_BUCKETS_MS, ElectionDurations};
use tenure_store::MeterSnapshot;

/// One node's figures at one moment, under the documents' names. Times are milliseconds.
///
/// Fields that a reader does not know are ignored and missing ones are zero, so figures of other versions can be read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// The namespace.
    pub namespace: String,
    /// The node.
    pub node: String,
    /// `standby`, `candidate`, `leader` or `draining`; none while it starts, after it ended, or if it is not eligible.
    pub role: Option<String>,
    /// The epoch of the leader it knows; 0 if it knows none.
    pub epoch: u64,
    /// Heartbeat cycles so far: renewals of a leader, looks of a standby.
    pub heartbeats: u64,
    /// The middle of the newest hundred: half of them took no longer. 0 under ten heartbeats.
    pub heartbeat_latency_p50: u64,
    /// Of the newest hundred, 99 % took no longer. 0 under ten heartbeats.
    pub heartbeat_latency_p99: u64,
    /// What to know about these figures, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Tasks refused because of their epoch.
    pub epoch_drift_events: u64,
    /// Heartbeat cycles that took too long, told or not.
    pub contention_events: u64,
    /// Elections in which this node tried for the seat.
    pub elections: u64,
    /// New leaders, or new epochs, this node learned of.
    pub leader_changes: u64,
    /// The plugins that share this election, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// How often a plugin panicked or hung.
    pub plugin_failures: u64,
    /// How often a plugin had to coordinate on its own because the store refused the global seat.
    pub fallbacks: u64,
    /// How many plugins do so now. Above 0 the health is degraded.
    pub plugins_in_fallback: u64,
    /// How long elections took, from when this node noticed that one was due to when it knew the leader.
    pub election_duration_histogram: Histogram,
    /// Active workers, as the newest snapshot the node knows says.
    pub workers_active: u64,
    /// Inactive ones.
    pub workers_inactive: u64,
    /// Objects among the workers that are none.
    pub workers_skipped: u64,
    /// Silences of workers this node told of.
    pub worker_timeouts: u64,
    /// Lists of the workers this node made as leader.
    pub worker_sweeps: u64,
    /// Leader-only processes that run on this node now.
    pub processes_running: u64,
    /// Those that did not stop when they had to: without a guard, they still run.
    pub processes_stuck: u64,
    /// How often a process was started again after it ended.
    pub process_restarts: u64,
    /// Tasks, as leader and as worker.
    pub tasks: TaskMetrics,
    /// What plugins add, by the names of the registry; see [`PluginFigures`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugin_figures: BTreeMap<String, f64>,
    /// What the store was asked, by lane and kind.
    pub requests: LaneRequests,
    /// How long the rates below were measured: the last five to ten minutes, or since the node joined.
    pub measured_ms: u64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// Those billed as writes: puts and list pages.
    pub writes_per_second: f64,
    /// Those billed as reads.
    pub reads_per_second: f64,
    /// What 30 days at these rates cost, by the prices of the settings.
    pub cost_per_month: f64,
}

/// Durations in buckets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Histogram {
    /// The buckets, in order; each counts by itself, not together with those before it.
    pub buckets: Vec<Bucket>,
    /// All of them.
    pub count: u64,
    /// The durations together.
    pub sum: u64,
}

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bucket {
    /// The longest duration that belongs here; none for the last bucket, which has no end.
    pub le: Option<u64>,
    /// How many.
    pub count: u64,
}

impl From<&ElectionDurations> for Histogram {
    fn from(durations: &ElectionDurations) -> Histogram {
        let bounds = ELECTION_BUCKETS_MS.iter().map(|bound_ms| Some(*bound_ms)).chain([None]);
        let buckets = bounds.zip(durations.counts).map(|(le, count)| Bucket { le, count }).collect();
        Histogram { buckets, count: durations.total(), sum: durations.sum_ms }
    }
}

/// Requests by lane: what runs in one never queues behind what runs in the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaneRequests {
    /// For the seat.
    pub lease: Requests,
    /// For everything else.
    pub bulk: Requests,
}

/// Requests by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requests {
    /// Reads that were not answered "unchanged".
    pub get: u64,
    /// Reads answered "unchanged".
    pub get_unchanged: u64,
    /// Writes.
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

    /// All of them.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
    }
}

impl LaneRequests {
    /// All requests of both lanes.
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
