//! Reading: the last published health, and whether a living leader stands behind it.

use super::document::{
    HealthDocument, HealthStatus, NodeState, ProbeHealth, Reason, ReasonCode, WorkersHealth, health_name,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tenure::Error;
use tenure::admin::Status;
use tenure::document::Documents;
use tenure::id::Namespace;
use tenure::plugin::NodeHandle;
use tenure::store::Lanes;

/// The time limit of a read; the store's own is shorter as a rule.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// How far store times may be off: some engines round to seconds.
const ROUNDING_MS: u64 = 2000;

/// The longest refresh accepted; a longer one is a mistake in the document.
const REFRESH_MAX_MS: u64 = 24 * 3600 * 1000;

/// The health of a namespace, as anybody can read it.
///
/// This is what the leader says, and it counts only while it is fresh: the seat is held by a leader that was *seen* to renew,
/// the document is from its epoch, and by the store's clock it is no older than two refreshes. Otherwise the status is `unknown`
/// with the reason `stale_snapshot`, or, if there was a leader and now there is none, `critical` with the reason `no_leader`.
/// Nodes and workers are then those of the last document.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// The namespace that was read.
    pub namespace: String,
    /// The overall status.
    pub status: HealthStatus,
    /// Why the status is not `healthy`.
    pub reasons: Vec<Reason>,
    /// The epoch of the document; 0 if there is none.
    pub epoch: u64,
    /// The document's number within that epoch.
    pub sequence: u64,
    /// How much older the document is than the newest renewal of the seat, on the store's clock.
    pub age_ms: Option<u64>,
    /// The time of that renewal, on the store's clock; workers' `lastSeen` use the same clock.
    pub store_time: Option<u64>,
    /// The leader, if one was seen alive.
    pub leader: Option<String>,
    /// A living leader stands behind the document.
    pub fresh: bool,
    /// The nodes of the document.
    pub nodes: Vec<ViewNode>,
    /// The state of the workers.
    pub workers: WorkersHealth,
    /// The results of the component probes.
    pub probes: Vec<ProbeHealth>,
}

/// One node of the view.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ViewNode {
    /// The node id.
    pub node: String,
    /// The state in the document; down if the node has gone since.
    pub state: NodeState,
    /// `leader` or `standby` as in the document; `gone` if the node has gone since.
    pub role: String,
    /// The incarnation, if known.
    pub incarnation: Option<String>,
    /// The software version, if known.
    pub version: Option<String>,
    /// How long ago it was last seen, on the store's clock; none if it has no presence.
    pub last_seen_ms_ago: Option<u64>,
}

impl HealthView {
    /// Reads the health on any node, leader or not. [`read_from`](HealthView::read_from) says what it costs.
    pub async fn read(node: &NodeHandle) -> Result<HealthView, Error> {
        HealthView::read_from(node.lanes(), &node.namespace()).await
    }

    /// Reads the health from outside: watches the seat until its holder renews (for at most one hold), then one list and two
    /// reads.
    pub async fn read_from(lanes: &Lanes, namespace: &Namespace) -> Result<HealthView, Error> {
        let status = Status::read(lanes, namespace).await?;
        HealthView::read_with(lanes, namespace, &status).await
    }

    /// Like [`read_from`](HealthView::read_from), for a caller that has just looked at the seat: two reads.
    pub async fn read_with(
        lanes: &Lanes,
        namespace: &Namespace,
        status: &Status,
    ) -> Result<HealthView, Error> {
        let documents = Documents::of_namespace(Arc::clone(&lanes.bulk), namespace, READ_TIMEOUT);
        let found = documents.read::<HealthDocument>(&health_name()).await?;
        let found = found.map(|found| (HealthDocument { epoch: found.epoch, ..found.body }, found.modified));
        // A living leader wrote its seat just now, so that time is the store's clock.
        let newest = documents.seat_written().await.unwrap_or_default();
        let age_ms =
            newest.zip(found.as_ref()).map(|(newest, (_, written))| newest.0.saturating_sub(written.0));
        let found = found.map(|(document, _)| document);
        Ok(HealthView { store_time: newest.map(|newest| newest.0), ..view(status, found, age_ms) })
    }

    /// The view of a namespace whose store does not exist yet.
    pub fn nothing(namespace: &Namespace) -> HealthView {
        let status = Status {
            namespace: namespace.to_string(),
            store: String::new(),
            epoch: 0,
            leader: None,
            nodes: Vec::new(),
        };
        view(&status, None, None)
    }
}

/// Why the document must not be trusted; `None` if it can be.
fn stale(status: &Status, document: Option<&HealthDocument>, age_ms: Option<u64>) -> Option<&'static str> {
    let Some(document) = document else { return Some("no leader has published health yet") };
    if !status.has_live_leader() {
        return Some("there is no live leader");
    }
    if document.epoch != status.epoch {
        return Some("it is not from the leader's epoch");
    }
    let limit_ms = document.refresh.min(REFRESH_MAX_MS) * 2 + ROUNDING_MS;
    match age_ms {
        Some(age_ms) if age_ms <= limit_ms => None,
        Some(_) => Some("the leader has not refreshed it"),
        None => Some("its age is not known"),
    }
}

fn view(status: &Status, document: Option<HealthDocument>, age_ms: Option<u64>) -> HealthView {
    let doubt = stale(status, document.as_ref(), age_ms);
    // A node known to be gone by now may still be up in the document.
    let row = |node: &super::NodeHealth| {
        let seen = status.nodes.iter().find(|seen| seen.node == node.node);
        let gone = seen.is_some_and(|seen| seen.role == "gone");
        ViewNode {
            node: node.node.clone(),
            state: if gone { NodeState::Down } else { node.state },
            role: if gone { "gone".to_owned() } else { node.role.clone() },
            incarnation: node.incarnation.clone(),
            version: node.version.clone(),
            last_seen_ms_ago: seen.map(|seen| seen.last_seen_ms_ago),
        }
    };
    let leader = status.leader.as_ref().filter(|leader| leader.live).map(|leader| leader.node.clone());
    let mut view = HealthView {
        namespace: status.namespace.clone(),
        status: HealthStatus::Unknown,
        reasons: Vec::new(),
        epoch: 0,
        sequence: 0,
        age_ms,
        store_time: None,
        leader,
        fresh: doubt.is_none(),
        nodes: Vec::new(),
        workers: WorkersHealth::default(),
        probes: Vec::new(),
    };
    if let Some(document) = document {
        (view.epoch, view.sequence) = (document.epoch, document.sequence);
        view.nodes = document.visible_nodes().map(row).collect();
        (view.status, view.reasons) = (document.status, document.reasons);
        (view.workers, view.probes) = (document.workers, document.probes);
    }
    if let Some(doubt) = doubt {
        view.status = HealthStatus::Unknown;
        view.reasons.insert(0, Reason::new(ReasonCode::StaleSnapshot, None, doubt));
    }
    if view.leader.is_none() && status.epoch > 0 {
        // Whatever the last leader said.
        view.status = HealthStatus::Critical;
        view.reasons = vec![Reason::new(ReasonCode::NoLeader, None, "nobody leads")];
    }
    view
}
