//! The figures of a whole namespace, from the presences its nodes write anyway. Nothing is written.

use super::Metrics;
use crate::keys::Keys;
use tenure_core::Namespace;

use crate::status::{Roles, StatusError, read_seat};
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
    /// `leader`, `standby` or `gone`, by the seat.
    pub role: &'static str,
    /// How long ago it was last heard of, by the store's clock.
    pub last_seen_ms_ago: u64,
    /// Whether it is counted: it is not gone, and its presence is recent enough.
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
    /// Reads the seat and the presences: one list, then one read for each node. A node that is gone, or whose presence is older than
    /// `stale_after_ms`, is shown, but not counted.
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
        let found = read_seat(lanes, &keys, None).await?;
        let roles = Roles::new(lanes, found.as_ref(), &entries);
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
            let (role, last_seen_ms_ago) = roles.of(node.as_str(), entry.modified);
            let live = last_seen_ms_ago < stale_after_ms && role != "gone";
            nodes.push(NodeMetrics { node: node.to_string(), role, last_seen_ms_ago, live, metrics });
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
