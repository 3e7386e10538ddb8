//! The workers as health shows them: what the registry says, and what the leader saw of each during its sweeps.

use super::document::{NodeState, WORKERS_MAX, WorkerHealth, WorkersHealth};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tenure::id::WorkerId;
use tenure::worker::{SeenWorker, WorkerInfo, Workers};

/// How long a worker that left is still shown; nodes have the same limit.
const LEFT_SHOWN_MS: u64 = 3600 * 1000;

/// The state of the workers. `before` is the last published state: it holds the workers that have left since, and what a former
/// leader read about the others. Once there are more workers than are listed, one that left may be missing.
pub(super) fn workers_health(
    workers: &Workers,
    seen: &BTreeMap<WorkerId, SeenWorker>,
    before: Option<&WorkersHealth>,
) -> WorkersHealth {
    // The newest sign of life from any worker is the best estimate of the store's clock here.
    let now_ms = seen.values().map(|worker| worker.last_seen.0).max().unwrap_or(0);
    let known: BTreeMap<&str, &WorkerHealth> =
        before.iter().flat_map(|before| &before.list).map(|row| (row.worker_id.as_str(), row)).collect();
    let row = |worker: &WorkerInfo| {
        let (seen, old) = (seen.get(&worker.worker_id), known.get(worker.worker_id.as_str()));
        let last_seen = seen.map_or(0, |seen| seen.last_seen.0).max(old.map_or(0, |old| old.last_seen));
        let quiet = Duration::from_millis(now_ms.saturating_sub(last_seen)) > worker.timeout / 2;
        WorkerHealth {
            worker_id: worker.worker_id.to_string(),
            state: match worker.active {
                false => NodeState::Down,
                true if seen.is_some() && quiet => NodeState::Suspect,
                true => NodeState::Up,
            },
            plugin_type: worker.plugin_type.to_string(),
            pod: worker.pod.to_string(),
            incarnation: seen
                .and_then(|seen| seen.incarnation.clone())
                .or_else(|| old.and_then(|old| old.incarnation.clone())),
            version: seen
                .and_then(|seen| seen.software.clone())
                .or_else(|| old.and_then(|old| old.version.clone())),
            last_seen,
        }
    };
    let mut list: Vec<WorkerHealth> = workers.list.iter().map(row).collect();
    let here: BTreeSet<&str> = workers.list.iter().map(|worker| worker.worker_id.as_str()).collect();
    let whole = workers.list.len() as u64 == workers.active + workers.inactive;
    // A leader that has not swept yet has seen no worker, so it must not report any as left.
    if whole && !seen.is_empty() {
        let gone = known.values().filter(|row| !here.contains(row.worker_id.as_str()));
        // A worker that was down did not leave: retention removed it.
        let visible = gone.filter(|row| {
            row.state != NodeState::Down && now_ms.saturating_sub(row.last_seen) < LEFT_SHOWN_MS
        });
        list.extend(visible.map(|row| WorkerHealth { state: NodeState::Left, ..(*row).clone() }));
    }
    let rank = |state: NodeState| match state {
        NodeState::Down => 0,
        NodeState::Suspect => 1,
        NodeState::Up => 2,
        NodeState::Left => 3,
    };
    list.sort_by(|a, b| (rank(a.state), &a.worker_id).cmp(&(rank(b.state), &b.worker_id)));
    list.truncate(WORKERS_MAX);
    WorkersHealth { up: workers.active, down: workers.inactive, list }
}
