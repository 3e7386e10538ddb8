//! The workers as health shows them: what the registry says, and what the leader saw of each during its sweeps.

use super::document::{NodeState, WORKERS_MAX, WorkerHealth, WorkersHealth};
use std::collections::{BTreeMap, BTreeSet};
use tenure::id::WorkerId;
use tenure::worker::{WorkerInfo, WorkerLife, Workers};

/// How long a worker that left is still shown; nodes have the same limit.
const LEFT_SHOWN_MS: u64 = 3600 * 1000;

/// The state of the workers. `before` is the last published state: it holds the workers that have left since, and what a former
/// leader read about the others. Once there are more workers than are listed, one that left may be missing.
pub(super) fn workers_health(
    workers: &Workers,
    lives: &BTreeMap<WorkerId, WorkerLife>,
    before: Option<&WorkersHealth>,
) -> WorkersHealth {
    // The newest sign of life from any worker is the best estimate of the store's clock here.
    let now_ms = lives.values().map(|life| life.last_seen_ms).max().unwrap_or(0);
    let known: BTreeMap<&str, &WorkerHealth> =
        before.iter().flat_map(|before| &before.list).map(|row| (row.worker_id.as_str(), row)).collect();
    let row = |worker: &WorkerInfo| {
        let (life, old) = (lives.get(&worker.worker_id), known.get(worker.worker_id.as_str()));
        let last_seen = life.map_or(0, |life| life.last_seen_ms).max(old.map_or(0, |old| old.last_seen));
        let quiet = now_ms.saturating_sub(last_seen) > worker.timeout_ms / 2;
        WorkerHealth {
            worker_id: worker.worker_id.to_string(),
            state: match worker.active {
                false => NodeState::Down,
                true if life.is_some() && quiet => NodeState::Suspect,
                true => NodeState::Up,
            },
            plugin_type: worker.plugin_type.to_string(),
            pod: worker.pod.to_string(),
            incarnation: life
                .and_then(|life| life.incarnation.clone())
                .or_else(|| old.and_then(|old| old.incarnation.clone())),
            version: life
                .and_then(|life| life.software.clone())
                .or_else(|| old.and_then(|old| old.version.clone())),
            last_seen,
        }
    };
    let mut list: Vec<WorkerHealth> = workers.list.iter().map(row).collect();
    let here: BTreeSet<&str> = workers.list.iter().map(|worker| worker.worker_id.as_str()).collect();
    let whole = workers.list.len() as u64 == workers.active + workers.inactive;
    // A leader that has not swept yet has seen no worker, so it must not report any as left.
    if whole && !lives.is_empty() {
        let gone = known.values().filter(|row| !here.contains(row.worker_id.as_str()));
        // A worker that was down did not leave: retention removed it.
        let shown = gone.filter(|row| {
            row.state != NodeState::Down && now_ms.saturating_sub(row.last_seen) < LEFT_SHOWN_MS
        });
        list.extend(shown.map(|row| WorkerHealth { state: NodeState::Left, ..(*row).clone() }));
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
