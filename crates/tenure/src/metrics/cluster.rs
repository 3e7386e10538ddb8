//! The figures of a whole namespace, from the presences its nodes write anyway. Nothing is written.

use super::Metrics;
use crate::keys::{Keys, Namespace};
use crate::status::StatusError;
use crate::wire::PresenceDocument;
use serde::Serialize;
use tenure_store::{Lanes, List, Read};

/// Nodes asked at most.
const NODES_MAX: usize = 10_000;

/// A namespace's figures, as old as its nodes' presences.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMetrics {
    /// The namespace.
    pub namespace: String,
    /// The nodes that made themselves known, in order of their ids.
    pub nodes: Vec<NodeMetrics>,
    /// All live nodes together.
    pub totals: Totals,
}

/// What one node published.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetrics {
    /// Its id.
    pub node: String,
    /// How much older its presence is than the newest one.
    pub last_seen_ms_ago: u64,
    /// Whether its presence is recent enough to count.
    pub live: bool,
    /// Its figures when it wrote its presence; none if it published none, or none that can be read.
    pub metrics: Option<Metrics>,
}

/// The live nodes' figures together.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How many nodes are counted.
    pub nodes: u64,
    /// The worst 99th percentile.
    pub heartbeat_latency_p99: u64,
    /// Tasks refused because of their epoch.
    pub epoch_drift_events: u64,
    /// Heartbeat cycles that took too long.
    pub contention_events: u64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// Those billed as writes.
    pub writes_per_second: f64,
    /// Those billed as reads.
    pub reads_per_second: f64,
    /// Dollars a month at these rates, by each node's own prices.
    pub cost_per_month: f64,
}

impl ClusterMetrics {
    /// Reads the presences: one list, then one read for each node. A presence that is `stale_after_ms` older than the
    /// newest is shown, but not counted.
    pub async fn read(
        lanes: &Lanes,
        namespace: &Namespace,
        stale_after_ms: u64,
    ) -> Result<ClusterMetrics, StatusError> {
        let keys = Keys::global(namespace);
        let entries = match lanes.bulk.list(&keys.nodes(), NODES_MAX).await {
            List::Entries { entries, .. } => entries,
            List::Unavailable(trouble) => return Err(StatusError::Unavailable(trouble)),
            List::Denied(trouble) => return Err(StatusError::Denied(trouble)),
        };
        let newest = entries.iter().map(|entry| entry.modified.0).max().unwrap_or(0);
        let mut nodes = Vec::new();
        for entry in &entries {
            let Some(node) = keys.node_of(&entry.key) else { continue };
            let metrics = match lanes.bulk.get(&entry.key, None).await {
                Read::Found(object) => PresenceDocument::metrics_in(&object.body),
                // It left between the list and the read.
                Read::Absent | Read::Unchanged => continue,
                Read::Unavailable(trouble) => return Err(StatusError::Unavailable(trouble)),
                Read::Denied(trouble) => return Err(StatusError::Denied(trouble)),
            };
            let last_seen_ms_ago = newest.saturating_sub(entry.modified.0);
            let live = last_seen_ms_ago < stale_after_ms;
            nodes.push(NodeMetrics { node: node.to_string(), last_seen_ms_ago, live, metrics });
        }
        let totals = Totals::of(&nodes);
        Ok(ClusterMetrics { namespace: namespace.to_string(), nodes, totals })
    }
}

impl Totals {
    fn of(nodes: &[NodeMetrics]) -> Totals {
        let live = nodes.iter().filter(|node| node.live).filter_map(|node| node.metrics.as_ref());
        live.fold(Totals::default(), |sum, node| Totals {
            nodes: sum.nodes + 1,
            heartbeat_latency_p99: sum.heartbeat_latency_p99.max(node.heartbeat_latency_p99),
            epoch_drift_events: sum.epoch_drift_events.saturating_add(node.epoch_drift_events),
            contention_events: sum.contention_events.saturating_add(node.contention_events),
            requests_per_second: sum.requests_per_second + node.requests_per_second,
            writes_per_second: sum.writes_per_second + node.writes_per_second,
            reads_per_second: sum.reads_per_second + node.reads_per_second,
            cost_per_month: sum.cost_per_month + node.cost_per_month,
        })
    }
}
