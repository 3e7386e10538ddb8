//! The workers as health shows them: the registry's word, and what the leader saw of each while it swept.

use super::document::{NodeState, WORKERS_MAX, WorkerHealth, WorkersHealth};
use std::collections::{BTreeMap, BTreeSet};
use tenure::id::WorkerId;
use tenure::worker::{WorkerInfo, WorkerLife, Workers};

/// One that left is shown for this long, as nodes are.
const LEFT_SHOWN_MS: u64 = 3600 * 1000;

/// How the workers are. `before` is what was published last: it has those that left since, and what a former leader read of the
/// others. Not promised: that somebody who left is in it, once there are more workers than are listed.
pub(super) fn crew(
    workers: &Workers,
    lives: &BTreeMap<WorkerId, WorkerLife>,
    before: Option<&WorkersHealth>,
) -> WorkersHealth {
    // The newest sign of anybody's life is the store's clock, as good as it is known here.
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
    // A leader that has not swept yet knows nobody's life, and says of nobody that it left.
    if whole && !lives.is_empty() {
        let gone = known.values().filter(|row| !here.contains(row.worker_id.as_str()));
        // One that was down did not leave: the retention has taken it away.
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
