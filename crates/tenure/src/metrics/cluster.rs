//! Figures of a whole namespace, from the presences that its nodes write anyway. Writes nothing.

use super::Metrics;
use crate::election::codec::PresenceDocument;
use crate::error::{Error, found, listed};
use crate::keys::Keys;
use crate::status::{Roles, read_seat};
use serde::Serialize;
use std::time::Duration;
use tenure_core::Namespace;
use tenure_store::Lanes;

/// Most nodes to read.
const NODES_MAX: usize = 10_000;

/// A namespace's figures, as recent as its nodes' presences.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMetrics {
    /// The namespace of the election.
    pub namespace: String,
    /// The nodes with a presence, in id order.
    pub nodes: Vec<NodeMetrics>,
    /// The sum over all live nodes.
    pub totals: Totals,
}

/// The figures that one node published.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetrics {
    /// The node's id.
    pub node: String,
    /// `leader`, `standby` or `gone`, according to the seat.
    pub role: &'static str,
    /// How long ago it was last heard from, by the store's clock.
    pub last_seen_ms_ago: u64,
    /// Whether it is counted: it is not gone, and its presence is recent enough.
    pub live: bool,
    /// Its figures when it wrote its presence; `None` if it published none that can be read.
    pub metrics: Option<Metrics>,
}

/// Combined figures of the live nodes.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How many nodes are counted.
    pub nodes: u64,
    /// The worst 99th percentile of any node.
    pub heartbeat_latency_p99: u64,
    /// Tasks refused because of a stale epoch.
    pub epoch_drift_events: u64,
    /// Heartbeat cycles that took too long.
    pub contention_events: u64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Requests per second billed as writes.
    pub writes_per_second: f64,
    /// Requests per second billed as reads.
    pub reads_per_second: f64,
    /// Dollars per month at these rates, by each node's own prices.
    pub cost_per_month: f64,
}

impl ClusterMetrics {
    /// Reads the seat and the presences: one list, then one read per node. A node that is gone, or whose presence is older
    /// than `stale_after`, is shown but not counted.
    pub async fn read(
        lanes: &Lanes,
        namespace: &Namespace,
        stale_after: Duration,
    ) -> Result<ClusterMetrics, Error> {
        let keys = Keys::global(namespace);
        let (entries, _) = listed(lanes.bulk.list(&keys.nodes(), NODES_MAX).await)?;
        let seat = read_seat(lanes, &keys, None).await?;
        let roles = Roles::new(lanes, seat.as_ref(), &entries);
        let mut nodes = Vec::new();
        for entry in &entries {
            let Some(node) = keys.node_of(&entry.key) else { continue };
            // It may have left between the list and the read.
            let Some(object) = found(lanes.bulk.get(&entry.key, None).await)? else { continue };
            let metrics = PresenceDocument::parse(&object.body).and_then(|presence| presence.metrics);
            let (role, last_seen_ms_ago) = roles.of(node.as_str(), entry.modified);
            let live = Duration::from_millis(last_seen_ms_ago) < stale_after && role != "gone";
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
