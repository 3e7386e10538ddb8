//! The workers of a storm: which there are, what happens to them, and what must be shown of them in the end.
#![allow(clippy::wildcard_enum_match_arm, reason = "a table of misfortunes: these are the workers' own")]

use crate::check::name;
use crate::fault::FaultKind;
use crate::node::Kind;
use crate::world::World;
use rand::RngExt;
use tenure_core::WorkerId;

/// Faults that strike workers.
const MISFORTUNES: [FaultKind; 7] = [
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
    world.manned = world.rng.random_bool(0.45);
    world.sweep_ms = [500, 1000, 2500][world.rng.random_range(0..3)];
    world.retention_ms = [15_000, 3_600_000][world.rng.random_range(0..2)];
}

/// Creates the first workers.
pub(crate) fn populate(world: &mut World, rates: (u64, u64)) {
    if !world.manned {
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
pub(crate) fn trouble(world: &mut World, rates: (u64, u64)) {
    let index = world.rng.random_range(0..world.workers.len());
    let hosted = world.workers[index].host.is_some();
    if world.rng.random_bool(0.4) {
        return match hosted {
            true => {}
            false if world.rng.random_bool(0.2) && world.mix.has(FaultKind::Drift) => {
                world.strike_worker(FaultKind::Drift, index);
                let (now, rate) = (world.now, world.rng.random_range(rates.0..=rates.1));
                world.workers[index].clock.set_rate(now, rate);
                world.rearm_worker(index);
            }
            false => world.bad_worker_wire(index),
        };
    }
    let up = world.workers[index].alive && !world.workers[index].ended;
    let kind = MISFORTUNES[world.rng.random_range(0..MISFORTUNES.len())];
    if !up {
        // It comes back, unless the node it runs on is down.
        let host_up = world.workers[index].host.is_none_or(|host| world.nodes[host].alive);
        if host_up && world.rng.random_bool(0.5) {
            world.begin_worker(index);
        }
        return;
    }
    let pointless = match kind {
        FaultKind::WorkerPause => hosted,
        FaultKind::WorkerTwin => world.workers.len() >= WORKERS_MAX,
        FaultKind::SnapshotCorrupt => world.registry.snapshot.is_none() || world.rng.random_bool(0.7),
        _ => false,
    };
    if pointless || !world.mix.has(kind) {
        return;
    }
    world.strike_worker(kind, index);
    befall(world, index, kind, rates);
}

fn befall(world: &mut World, index: usize, kind: FaultKind, rates: (u64, u64)) {
    let (now, id) = (world.now, world.workers[index].id.clone());
    match kind {
        FaultKind::WorkerCrash => world.crash_worker(index),
        FaultKind::WorkerPause => {
            let ms = match world.rng.random_range(0..4) {
                0 => world.rng.random_range(1..500),
                _ => world.rng.random_range(500..30_000),
            };
            world.pause_worker(index, ms);
        }
        FaultKind::WorkerLeave => world.stop_worker(index),
        FaultKind::WorkerTwin => {
            let worker = &world.workers[index];
            let terms = (worker.heartbeat_ms, worker.details.timeout_ms);
            let rate = world.rng.random_range(rates.0..=rates.1);
            world.add_worker(&id, None, terms, rate);
        }
        FaultKind::WorkerCorrupt => {
            world.object_changed(&id);
            world.registry.put(&world.store, now, &id, None);
        }
        FaultKind::WorkerDeleted => {
            world.object_changed(&id);
            world.registry.remove(now, &id);
        }
        _ => {
            world.registry.publish(None, None);
            world.watch.spoiled(now);
        }
    }
}

/// Repairs links and machines, and removes garbage. Dead workers stay dead.
pub(crate) fn mend(world: &mut World) {
    for index in 0..world.workers.len() {
        let worker = &mut world.workers[index];
        (worker.cut_out, worker.cut_in, worker.burst) = (false, false, 0);
        worker.faults.clear();
        world.resume_worker(index);
    }
    let junk = world.registry.objects.iter().filter(|(_, object)| object.written.is_none());
    for id in junk.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
        world.had_junk = true;
        world.object_changed(&id);
        world.registry.remove(world.now, &id);
    }
}

/// A spoiled snapshot is made again only with the next change or the next leader.
fn is_spoiled(world: &World) -> bool {
    world.registry.snapshot.as_ref().is_some_and(|there| there.content.is_none())
}

/// What is wrong with what is shown: for every id, whether a process is alive under it, and what each node thinks.
fn wrong(world: &World) -> Option<String> {
    let ids: std::collections::BTreeSet<&WorkerId> = world.workers.iter().map(|worker| &worker.id).collect();
    for id in ids {
        let all = world.workers.iter().filter(|worker| worker.id == *id && worker.alive && !worker.ended);
        let lives: Vec<bool> = all.map(|worker| worker.registered).collect();
        if lives.len() > 1 || lives == [false] {
            return Some(format!("{id}: {} processes, registered {lives:?}", lives.len()));
        }
        for (node, sweep) in world.sweeps.iter().enumerate().filter(|_| !is_spoiled(world)) {
            if !world.nodes[node].alive || !world.nodes[node].running {
                continue;
            }
            let shown =
                sweep.known().workers().find(|(worker, _)| *worker == id).map(|(_, entry)| entry.active);
            if shown.unwrap_or(false) == lives.is_empty() {
                return Some(format!("{id}: {} lives, node {node} shows {shown:?}", lives.len()));
            }
        }
    }
    None
}

/// After the faults, with a leader in office: within a bound every node shows which workers are alive, and the cost is as
/// published.
pub(crate) fn settle(world: &mut World) {
    if !world.manned || world.judge.rolled_back || !world.judge.violations.is_empty() {
        return;
    }
    let slow = |ms: u64| ms * 1000 / 800 + 1;
    let longest = world.workers.iter().map(|w| 3 * w.heartbeat_ms + w.details.timeout_ms).max().unwrap_or(0);
    let looks = world.nodes.iter().map(|n| n.config.heartbeat_ms + n.config.election_interval_ms).max();
    // An object that could not be read is read again after a growing pause.
    let read = match (world.had_junk, world.had_unread) {
        (true, _) => 4 * crate::silence::READ_AGAIN_MS,
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
            let now = world.now;
            world.judge.violated(now, name::SHOWN_IN_TIME, || format!("{bound} ms after peace, {what}"));
        }
        if !world.judge.violations.is_empty() {
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
    let dead = world.workers.iter().any(|worker| !worker.alive || worker.ended);
    let desks: Vec<_> = world.nodes.iter().map(|node| node.sent).collect();
    let workers: Vec<_> = world.workers.iter().map(|worker| worker.sent).collect();
    world.run_for(STEADY_MS);
    let now = world.now;
    let mut wrong = Vec::new();
    let mut hold = |what: String, sent: u64, interval_ms: u64, rate: u64| {
        let due = STEADY_MS * rate / 1000 / interval_ms;
        if !(due.saturating_sub(1)..=due + 1).contains(&sent) {
            wrong.push(format!("{what}: {sent} requests, due {due}"));
        }
    };
    let known = world.sweeps[leader].liveness().map_or(0, |liveness| liveness.known());
    if known > 0 {
        let lists = world.nodes[leader].count(Kind::Sweep) - desks[leader][Kind::Sweep as usize];
        hold("lists".to_owned(), lists, world.sweep_ms, world.nodes[leader].clock.rate());
    }
    for (index, before) in workers.iter().enumerate().filter(|(index, _)| world.workers[*index].registered) {
        let worker = &world.workers[index];
        hold(
            format!("{}", worker.id),
            worker.sent.0 - before.0,
            worker.heartbeat_ms,
            world.worker_clock(index).rate(),
        );
        if worker.sent.1 != before.1 {
            hold(format!("{} reads", worker.id), worker.sent.1 - before.1 + 9, STEADY_MS, 0);
        }
    }
    for (node, before) in desks.iter().enumerate().filter(|_| !dead) {
        for kind in [Kind::Worker, Kind::Snapshot, Kind::Publish] {
            let sent = world.nodes[node].count(kind) - before[kind as usize];
            if sent > 0 {
                hold(format!("node {node} {}", kind.name()), sent + 9, STEADY_MS, 0);
            }
        }
    }
    for what in wrong {
        world.judge.violated(now, name::REGISTRY_BUDGET, || format!("in {STEADY_MS} ms of peace: {what}"));
    }
}
