//! Reading: the last published health, and whether anybody alive stands behind it.

use super::document::{
    HealthDocument, HealthStatus, NodeState, ProbeHealth, Reason, ReasonCode, WorkersHealth,
};
use serde::Serialize;
use tenure::admin::{Status, StatusError};
use tenure::document::{Annex, Keys};
use tenure::id::{DocumentName, Namespace};
use tenure::store::{Lanes, Read};

/// What store times may be off by: some engines round to seconds.
const ROUNDING_MS: u64 = 2000;

/// No refresh is longer; a longer one is a document's mistake.
const REFRESH_MAX_MS: u64 = 24 * 3600 * 1000;

/// The health of a namespace as anybody can read it.
///
/// It is the leader's judgement, shown as such only while it is fresh: the seat is held by a leader that was *seen* to renew,
/// the document is of its epoch, and on the store's clock it is no older than two refreshes. Otherwise the status is
/// `unknown`, for the reason `stale_snapshot`; where there was a leader and is none, `critical`, for the reason `no_leader`. Nodes and
/// workers are then those of the last document.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// The namespace.
    pub namespace: String,
    /// How the cluster is doing.
    pub status: HealthStatus,
    /// Why.
    pub reasons: Vec<Reason>,
    /// The epoch of the document; 0 if there is none.
    pub epoch: u64,
    /// Its number in that epoch.
    pub sequence: u64,
    /// How much older the document is than the newest renewal of the seat, by the store's clock.
    pub age_ms: Option<u64>,
    /// That renewal, on the store's clock; workers' `lastSeen` are on the same.
    pub store_time: Option<u64>,
    /// The leader, if one was seen to live.
    pub leader: Option<String>,
    /// Somebody alive stands behind it.
    pub fresh: bool,
    /// The nodes.
    pub nodes: Vec<ViewNode>,
    /// The workers.
    pub workers: WorkersHealth,
    /// The component probes.
    pub probes: Vec<ProbeHealth>,
}

/// One node.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewNode {
    /// Its id.
    pub node: String,
    /// How it is doing, by the document; down if it is gone since.
    pub state: NodeState,
    /// `leader` or `standby`, by the document; `gone` if it is gone since.
    pub role: String,
    /// Which life of it.
    pub incarnation: Option<String>,
    /// Its software.
    pub version: Option<String>,
    /// How long ago it was last heard of, by the store's clock; none if it has no presence.
    pub last_seen_ms_ago: Option<u64>,
}

impl HealthView {
    /// Reads it on a node, leader or not. See [`look`](HealthView::look) for what it costs.
    pub async fn read(annex: &Annex) -> Result<HealthView, StatusError> {
        let namespace = Namespace::new(annex.namespace()).map_err(|error| StatusError::Unreadable {
            key: annex.namespace().to_owned(),
            detail: error.to_string(),
        })?;
        HealthView::look(annex.lanes(), &namespace).await
    }

    /// Reads it from outside: watches the holder of the seat until it renews (for at most one hold), one list, and two reads.
    pub async fn look(lanes: &Lanes, namespace: &Namespace) -> Result<HealthView, StatusError> {
        let status = Status::read(lanes, namespace).await?;
        HealthView::behind(lanes, namespace, &status).await
    }

    /// The same for whoever has looked at the seat just now: two reads.
    pub async fn behind(
        lanes: &Lanes,
        namespace: &Namespace,
        status: &Status,
    ) -> Result<HealthView, StatusError> {
        let keys = Keys::global(namespace);
        let name = DocumentName::new("health").expect("a valid name");
        let key = keys.document(&name);
        let found = match lanes.bulk.get(&key, None).await {
            Read::Found(object) => match HealthDocument::parse(&object.body) {
                Ok(document) => Some((document, object.modified)),
                Err(unreadable) => return Err(StatusError::Unreadable { key, detail: unreadable.detail }),
            },
            Read::Absent | Read::Unchanged => None,
            Read::Unavailable(trouble) => return Err(StatusError::Unavailable(trouble)),
            Read::Denied(trouble) => return Err(StatusError::Denied(trouble)),
        };
        // The seat of a leader that lives was written just now: its time is the store's clock.
        let newest = match lanes.lease.get(&keys.seat(), None).await {
            Read::Found(object) => Some(object.modified),
            Read::Absent | Read::Unchanged | Read::Unavailable(_) | Read::Denied(_) => None,
        };
        let age_ms =
            newest.zip(found.as_ref()).map(|(newest, (_, written))| newest.0.saturating_sub(written.0));
        let found = found.map(|(document, _)| document);
        Ok(HealthView { store_time: newest.map(|newest| newest.0), ..view(status, found, age_ms) })
    }

    /// A namespace whose store is not there yet.
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

/// Why the document must not be believed; `None` if it may.
fn stale(status: &Status, document: Option<&HealthDocument>, age_ms: Option<u64>) -> Option<&'static str> {
    let Some(document) = document else { return Some("no leader has published health yet") };
    if !status.has_live_leader() {
        return Some("there is no live leader");
    }
    if document.epoch != status.epoch {
        return Some("it is from another epoch than the leader's");
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
    // What is known to be gone by now may be up in the document.
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
        view.nodes = document.shown().map(row).collect();
        (view.status, view.reasons) = (document.status, document.reasons);
        (view.workers, view.probes) = (document.workers, document.probes);
    }
    if let Some(doubt) = doubt {
        view.status = HealthStatus::Unknown;
        view.reasons.insert(0, Reason::new(ReasonCode::StaleSnapshot, None, doubt));
    }
    if view.leader.is_none() && status.epoch > 0 {
        // Whatever the last leader thought of it.
        view.status = HealthStatus::Critical;
        view.reasons = vec![Reason::new(ReasonCode::NoLeader, None, "nobody leads")];
    }
    view
}
