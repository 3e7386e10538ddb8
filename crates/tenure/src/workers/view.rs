//! The workers of a namespace, seen from outside. Writes nothing.

use super::codec::SnapshotDocument;
use crate::error::{Error, found, listed};
use crate::keys::Keys;
use serde::Serialize;
use std::collections::BTreeMap;
use tenure_core::SnapshotEntry;
use tenure_core::{Namespace, WorkerId};
use tenure_store::{Lanes, Read};

/// Most objects to look at.
const LIST_MAX: usize = 100_000;

/// The registered workers, and what the leader says about them.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerList {
    /// The name of the namespace.
    pub namespace: String,
    /// The epoch of the leader that judged them; 0 if none has yet.
    pub epoch: u64,
    /// Workers in id order.
    pub workers: Vec<WorkerRow>,
    /// Objects in `workers/` that are not workers.
    pub skipped: u64,
}

/// One worker.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerRow {
    /// The worker's id.
    pub worker_id: String,
    /// The plugin it works for; none until a leader has read its object.
    pub plugin_type: Option<String>,
    /// The pod it runs on; none until a leader has read its object.
    pub pod: Option<String>,
    /// How long it may stay silent, in ms; none until a leader has read its object.
    pub timeout: Option<u64>,
    /// By the last snapshot.
    pub state: WorkerState,
    /// How much older its last heartbeat is than the newest sign of life on the store, including the leader's.
    pub last_seen_ms_ago: u64,
}

/// Whether a worker counts as alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// It does.
    Active,
    /// It was silent for its timeout.
    Inactive,
    /// No leader has judged it yet.
    New,
}

impl WorkerState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerState::Active => "active",
            WorkerState::Inactive => "inactive",
            WorkerState::New => "new",
        }
    }
}

impl WorkerList {
    /// Costs one read each of the snapshot and the seat, and one list with a page per thousand workers.
    ///
    /// Not promised: the states are those of the last snapshot. Without a live leader nobody judges, and they stay as they
    /// are.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<WorkerList, Error> {
        let keys = Keys::global(namespace);
        let (epoch, mut known) = judged(lanes, &keys).await?;
        // A live leader wrote the seat just now, so its time shows the store's clock even if no worker is left.
        let seat = match lanes.bulk.get(&keys.seat(), None).await {
            Read::Found(object) => object.modified.0,
            Read::Absent | Read::Unchanged | Read::Unavailable(_) | Read::Denied(_) => 0,
        };
        let (entries, _) = listed(lanes.bulk.list(&keys.workers(), LIST_MAX).await)?;
        let newest = entries.iter().map(|entry| entry.modified.0).fold(seat, u64::max);
        let (mut workers, mut skipped) = (Vec::new(), 0);
        for entry in &entries {
            let Some(id) = keys.worker_of(&entry.key) else {
                skipped += 1;
                continue;
            };
            let found = known.remove(&id);
            let details = found.as_ref().map(|found| &found.details);
            workers.push(WorkerRow {
                worker_id: id.to_string(),
                plugin_type: details.map(|details| details.plugin_type.to_string()),
                pod: details.map(|details| details.pod.to_string()),
                timeout: details.map(|details| details.timeout_ms),
                state: match found.as_ref().map(|found| found.active) {
                    Some(true) => WorkerState::Active,
                    Some(false) => WorkerState::Inactive,
                    None => WorkerState::New,
                },
                last_seen_ms_ago: newest.saturating_sub(entry.modified.0),
            });
        }
        Ok(WorkerList { namespace: namespace.to_string(), epoch, workers, skipped })
    }
}

async fn judged(lanes: &Lanes, keys: &Keys) -> Result<(u64, BTreeMap<WorkerId, SnapshotEntry>), Error> {
    let Some(object) = found(lanes.bulk.get(&keys.snapshot(), None).await)? else {
        return Ok((0, BTreeMap::new()));
    };
    let snapshot = SnapshotDocument::parse(&object.body)
        .map_err(|error| Error::unreadable(&keys.snapshot(), error.detail))?
        .snapshot;
    let workers = snapshot.workers.into_iter().map(|entry| (entry.worker.clone(), entry)).collect();
    Ok((snapshot.id.epoch.0, workers))
}
