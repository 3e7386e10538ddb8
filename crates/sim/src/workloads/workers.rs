//! The workers of a schedule: which there are, what happens to them, and what must be shown of them in the end.
#![allow(clippy::wildcard_enum_match_arm, reason = "a table of faults: these are the workers' own")]

use crate::checks::name;
use crate::fault::FaultKind;
use crate::kind::Kind;
use crate::shell::Who;
use crate::store::{Key, Value};
use crate::world::World;
use rand::RngExt;
use std::sync::Arc;
use tenure_core::{SeatProblem, WorkerId};

/// Faults that strike workers.
const FAULTS: [FaultKind; 7] = [
    FaultKind::WorkerCrash,
    FaultKind::WorkerPause,
    FaultKind::WorkerLeave,
    FaultKind::WorkerTwin,
    FaultKind::WorkerCorrupt,
    FaultKind::WorkerDeleted,
    FaultKind::SnapshotCorrupt,
];
/// Most worker processes.
const WORKERS_MAX: usize = 8;
/// How long to count requests.
const STEADY_MS: u64 = 20_000;

/// Draws, before there are nodes, whether this schedule has workers.
pub(crate) fn draw(world: &mut World) {
    world.has_workers = world.rng.random_bool(0.45);
    world.sweep_ms = [500, 1000, 2500][world.rng.random_range(0..3)];
    world.retention_ms = [15_000, 3_600_000][world.rng.random_range(0..2)];
}

/// Creates the first workers.
pub(crate) fn populate(world: &mut World, rates: (u64, u64)) {
    if !world.has_workers {
        return;
    }
    for index in 0..world.rng.random_range(1..=4) {
        let id = WorkerId::new(&format!("worker-{index}")).expect("a valid id");
        let host = world.rng.random_bool(0.4).then(|| world.rng.random_range(0..world.nodes.len()));
        let heartbeat_ms = [700, 1500, 3000][world.rng.random_range(0..3)];
        let timeout_ms = heartbeat_ms * [2, 3, 4][world.rng.random_range(0..3)];
        let rate = world.rng.random_range(rates.0..=rates.1);
        world.add_worker(&id, host, (heartbeat_ms, timeout_ms), rate);
    }
}

/// One fault on one worker.
pub(crate) fn strike(world: &mut World, rates: (u64, u64)) {
    let index = world.rng.random_range(0..world.workers.len());
    let (who, hosted) = (Who::Worker(index), world.workers[index].node.is_some());
    if world.rng.random_bool(0.4) {
        return match hosted {
            true => {}
            false if world.rng.random_bool(0.2) && world.mix.has(FaultKind::Drift) => {
                world.strike(FaultKind::Drift, who);
                let (now, rate) = (world.now, world.rng.random_range(rates.0..=rates.1));
                world.workers[index].computer.clock.set_rate(now, rate);
                world.clock_changed(who);
            }
            false => crate::random_faults::bad_link(world, who),
        };
    }
    let kind = FAULTS[world.rng.random_range(0..FAULTS.len())];
    if !world.workers[index].is_working() {
        // It comes back, unless the node it runs on is down.
        let node_up = world.workers[index].node.is_none_or(|node| world.nodes[node].alive);
        if node_up && world.rng.random_bool(0.5) {
            world.begin_worker(index);
        }
        return;
    }
    let pointless = match kind {
        FaultKind::WorkerPause => hosted,
        FaultKind::WorkerTwin => world.workers.len() >= WORKERS_MAX,
        FaultKind::SnapshotCorrupt => world.store.get(&Key::Snapshot).is_none() || world.rng.random_bool(0.7),
        _ => false,
    };
    if pointless || !world.mix.has(kind) {
        return;
    }
    world.strike(kind, who);
    let id = world.workers[index].id.clone();
    let garbage = Arc::new(Value::Garbage(SeatProblem::Corrupt));
    match kind {
        FaultKind::WorkerCrash => world.crash_worker(index),
        FaultKind::WorkerPause => {
            let ms = match world.rng.random_range(0..4) {
                0 => world.rng.random_range(1..500),
                _ => world.rng.random_range(500..30_000),
            };
            world.pause(who, ms);
        }
        FaultKind::WorkerLeave => world.stop_worker(index),
        FaultKind::WorkerTwin => {
            let worker = &world.workers[index];
            let terms = (worker.heartbeat_ms, worker.details.timeout_ms);
            let rate = world.rng.random_range(rates.0..=rates.1);
            world.add_worker(&id, None, terms, rate);
        }
        FaultKind::WorkerCorrupt => world.put_outside(Key::Worker(id), &garbage),
        FaultKind::WorkerDeleted => world.remove_outside(&Key::Worker(id)),
        _ => world.put_outside(Key::Snapshot, &garbage),
    }
}

/// Repairs links and computers, and removes garbage. Dead workers stay dead.
pub(crate) fn mend(world: &mut World) {
    for index in 0..world.workers.len() {
        world.workers[index].computer.mend_link();
        world.resume(Who::Worker(index));
    }
    let objects = world.store.objects();
    let junk =
        objects.filter(|(key, object)| matches!((key, &*object.value), (Key::Worker(_), Value::Garbage(_))));
    for key in junk.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
        world.worker_checks.had_junk = true;
        world.remove_outside(&key);
    }
}

/// A spoiled snapshot is made again only with the next change or the next leader.
pub(crate) fn is_spoiled(world: &World) -> bool {
    world.store.get(&Key::Snapshot).is_some_and(|object| object.value.snapshot().is_none())
}

/// What is wrong with what is shown: for every id, whether a process is alive under it, and what each node thinks.
fn wrong(world: &World) -> Option<String> {
    let ids: std::collections::BTreeSet<&WorkerId> = world.workers.iter().map(|worker| &worker.id).collect();
    for id in ids {
        let all = world.workers.iter().filter(|worker| worker.id == *id && worker.is_working());
        let lives: Vec<bool> = all.map(|worker| worker.registered).collect();
        if lives.len() > 1 || lives == [false] {
            return Some(format!("{id}: {} processes, registered {lives:?}", lives.len()));
        }
        let up = world.nodes.iter().enumerate().filter(|(_, node)| node.alive && node.running);
        for (node, sweep) in up.filter_map(|(index, node)| Some((index, node.sweep.as_ref()?))) {
            if is_spoiled(world) {
                continue;
            }
            let mut known = sweep.machine().known().workers();
            let shown = known.find(|(worker, _)| *worker == id).map(|(_, entry)| entry.active);
            if shown.unwrap_or(false) == lives.is_empty() {
                return Some(format!("{id}: {} lives, node {node} shows {shown:?}", lives.len()));
            }
        }
    }
    None
}

/// After the faults, with a leader: within a bound every node shows which workers are alive, and the cost is as
/// published.
pub(crate) fn settle(world: &mut World) {
    if !world.has_workers || world.seat_checks.rolled_back || !world.checks.violations.is_empty() {
        return;
    }
    let slow = |ms: u64| ms * 1000 / 800 + 1;
    let longest = world.workers.iter().map(|w| 3 * w.heartbeat_ms + w.details.timeout_ms).max().unwrap_or(0);
    let looks = world.nodes.iter().map(|n| n.config.heartbeat_ms + n.config.election_interval_ms).max();
    // An object that could not be read is read again after a growing pause.
    let read = match (world.worker_checks.had_junk, world.worker_checks.had_unread) {
        (true, _) => 4 * crate::checks::workers::READ_AGAIN_MS,
        (false, true) => 80_000,
        (false, false) => 0,
    };
    let bound =
        slow(longest + 5 * world.sweep_ms + 2 * looks.unwrap_or(0) + read) + 40 * world.latency_ms.1 + 3000;
    // A spoiled snapshot hides from the check what is still to be read, and is made again once that is read.
    let read_by = world.now + bound;
    while read > 0 && is_spoiled(world) && world.now < read_by {
        world.run_for(500);
    }
    let end = world.now + bound;
    while let Some(what) = wrong(world) {
        if world.now >= end {
            world.violated(name::SHOWN_IN_TIME, || format!("{bound} ms after all was mended, {what}"));
        }
        if !world.checks.violations.is_empty() {
            return;
        }
        world.run_for(500);
    }
    // The next sweep counts skipped objects again and publishes once more.
    let last = slow(3 * world.sweep_ms + 2 * looks.unwrap_or(0)) + 10 * world.latency_ms.1;
    world.run_for(last);
    steady(world);
}

/// One list per sweep, one write per heartbeat, and nothing else; only if no worker is dead, since its object would be removed.
fn steady(world: &mut World) {
    let Some(leader) = world.acting().first().copied() else { return };
    let dead = world.workers.iter().any(|worker| !worker.is_working());
    let nodes: Vec<_> = world.nodes.iter().map(|node| node.sent).collect();
    let workers: Vec<_> = world.workers.iter().map(|worker| worker.sent).collect();
    world.run_for(STEADY_MS);
    let mut wrong = Vec::new();
    let mut hold = |what: String, sent: u64, interval_ms: u64, rate: u64| {
        let due = STEADY_MS * rate / 1000 / interval_ms;
        if !(due.saturating_sub(1)..=due + 1).contains(&sent) {
            wrong.push(format!("{what}: {sent} requests, due {due}"));
        }
    };
    let sweep = world.nodes[leader].sweep.as_ref();
    let known = sweep.and_then(|sweep| sweep.machine().liveness()).map_or(0, |liveness| liveness.known());
    if known > 0 {
        let lists = world.nodes[leader].count(Kind::Sweep) - nodes[leader][Kind::Sweep as usize];
        hold("lists".to_owned(), lists, world.sweep_ms, world.nodes[leader].computer.clock.rate());
    }
    for (index, before) in workers.iter().enumerate().filter(|(index, _)| world.workers[*index].registered) {
        let worker = &world.workers[index];
        let sent = |kind: Kind| worker.sent[kind as usize] - before[kind as usize];
        let rate = world.computer(Who::Worker(index)).clock.rate();
        hold(worker.id.to_string(), sent(Kind::Beat), worker.heartbeat_ms, rate);
        if sent(Kind::Own) > 0 {
            hold(format!("{} reads", worker.id), sent(Kind::Own) + 9, STEADY_MS, 0);
        }
    }
    for (node, before) in nodes.iter().enumerate().filter(|_| !dead) {
        for kind in [Kind::Worker, Kind::Snapshot, Kind::Publish] {
            let sent = world.nodes[node].count(kind) - before[kind as usize];
            if sent > 0 {
                hold(format!("node {node} {}", kind.name()), sent + 9, STEADY_MS, 0);
            }
        }
    }
    for what in wrong {
        world.violated(name::REGISTRY_BUDGET, || format!("in {STEADY_MS} ms of calm: {what}"));
    }
}
