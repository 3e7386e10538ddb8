//! Random schedules over the leader's judgement and what everybody knows: workers that pause, die, come back and move; leaders
//! that change in the middle of anything; snapshots that are missed, land late or are never known to have landed.
//! `TENURE_SEED=17 cargo test -p tenure-core-tests workers::` replays one.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use tenure_core::{
    Epoch, KnownWorkers, Listed, Liveness, LivenessConfig, ReadOutcome, Snapshot, Time, WORKERS_MAX,
    WorkerChange, WorkerDetails,
};
use tenure_core::{NodeId, PluginName, WorkerId};

const HEARTBEAT_MS: u64 = 5000;
const SWEEP_MS: u64 = 5000;
const TIMEOUT_MS: u64 = 20_000;

fn id(n: usize) -> WorkerId {
    WorkerId::new(&format!("w{n}")).expect("valid")
}

fn details() -> WorkerDetails {
    WorkerDetails {
        plugin_type: PluginName::new("queue").expect("valid"),
        pod: NodeId::new("pod-x").expect("valid"),
        timeout_ms: TIMEOUT_MS,
    }
}

/// A worker in the world: when it writes next, and every silence of its object, by true time.
#[derive(Default)]
struct Worker {
    next: Option<u64>,
    written: u64,
    gaps: Vec<(u64, u64)>,
}

impl Worker {
    fn write(&mut self, now: u64) {
        self.gaps.push((self.written, now));
        (self.written, self.next) = (now, Some(now + HEARTBEAT_MS));
    }

    /// Whether it was silent for a whole timeout that ended between these times.
    fn silent_within(&self, from: u64, to: u64) -> bool {
        let gaps = self.gaps.iter().copied().chain([(self.written, u64::MAX)]);
        gaps.into_iter()
            .any(|(begin, end)| begin + TIMEOUT_MS <= to && end > from && end - begin >= TIMEOUT_MS)
    }
}

struct Follower {
    known_workers: KnownWorkers,
    seen_at: u64,
    told: BTreeMap<WorkerId, u64>,
}

struct World {
    rng: ChaCha8Rng,
    workers: Vec<Worker>,
    published: Option<Snapshot>,
    liveness: Liveness,
    epoch: u64,
    elected_at: u64,
    /// The leader's clock is ahead by this.
    skew: u64,
    followers: Vec<Follower>,
    timeouts: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut workers: Vec<Worker> = (0..6).map(|_| Worker::default()).collect();
        for worker in &mut workers {
            worker.next = Some(rng.random_range(0..HEARTBEAT_MS));
        }
        let followers = (0..3).map(|_| Follower {
            known_workers: KnownWorkers::default(),
            seen_at: 0,
            told: BTreeMap::new(),
        });
        let mut world = World {
            followers: followers.collect(),
            workers,
            published: None,
            liveness: Liveness::new(LivenessConfig { retention_ms: 3_600_000 }, Epoch(0)),
            epoch: 0,
            elected_at: 0,
            skew: 0,
            timeouts: 0,
            rng,
        };
        world.followers.iter_mut().for_each(|follower| follower.known_workers.begin_empty());
        world.elect(0);
        world
    }

    fn elect(&mut self, now: u64) {
        (self.epoch, self.elected_at, self.skew) = (self.epoch + 1, now, self.rng.random_range(0..1 << 40));
        self.liveness = Liveness::new(LivenessConfig { retention_ms: 3_600_000 }, Epoch(self.epoch));
        if let Some(snapshot) = &self.published {
            self.liveness.inherit(snapshot);
        }
    }

    fn sweep(&mut self, now: u64) {
        let listed: Vec<Listed> = self
            .workers
            .iter()
            .enumerate()
            .map(|(n, worker)| Listed { worker: id(n), modified_ms: worker.written, bytes: 200 })
            .collect();
        let at = Time(now + self.skew);
        let more = self.rng.random_range(0..20) == 0;
        let listed = if more { &listed[..3] } else { &listed[..] };
        let out = self.liveness.sweep(at, at, listed, 0, more);
        for worker in &out.read {
            self.liveness.read(at, worker, ReadOutcome::Found(details()));
        }
        if !self.liveness.is_changed() {
            return;
        }
        let snapshot = self.liveness.snapshot();
        let id = snapshot.id;
        match self.rng.random_range(0..10) {
            0 => {}                               // never left
            1 => self.published = Some(snapshot), // landed, and nobody knows
            _ => {
                self.published = Some(snapshot);
                self.liveness.published(id);
            }
        }
    }

    fn follow(&mut self, follower: usize, now: u64) {
        let Some(snapshot) = &self.published else { return };
        let follower = &mut self.followers[follower];
        for event in follower.known_workers.apply(snapshot) {
            let n: usize = event.worker.as_str()[1..].parse().expect("a number");
            match event.change {
                WorkerChange::Timeout => {
                    let last = follower.told.insert(event.worker.clone(), now).unwrap_or(0);
                    assert!(
                        self.workers[n].silent_within(last, now),
                        "{} was told silent at {now}, the time before at {last}: {:?}",
                        event.worker,
                        self.workers[n].gaps.last()
                    );
                    self.timeouts += 1;
                }
                WorkerChange::Registered | WorkerChange::Recovered => {}
                WorkerChange::Deregistered => panic!("nobody left"),
            }
        }
        follower.seen_at = now;
    }

    fn run(&mut self, from: u64, to: u64, calm: bool) {
        for now in (from..to).step_by(100) {
            for n in 0..self.workers.len() {
                if self.workers[n].next.is_some_and(|at| at <= now) {
                    self.workers[n].write(now);
                }
                if calm {
                    continue;
                }
                match (self.rng.random_range(0..1500), self.workers[n].next) {
                    (0, Some(_)) => self.workers[n].next = None,
                    (1 | 2, None) => self.workers[n].next = Some(now),
                    (3, Some(_)) => self.workers[n].next = Some(now + self.rng.random_range(0..TIMEOUT_MS)),
                    _ => {}
                }
            }
            if !calm && self.rng.random_range(0..600) == 0 {
                self.elect(now);
            }
            if (now - self.elected_at).is_multiple_of(SWEEP_MS) {
                let before = self.published.clone();
                self.sweep(now);
                self.patient(before.as_ref(), now);
            }
            for follower in 0..self.followers.len() {
                if self.rng.random_range(0..40) == 0 || calm {
                    self.follow(follower, now);
                }
            }
        }
    }

    /// Nobody becomes inactive in a leader's first timeout.
    fn patient(&self, before: Option<&Snapshot>, now: u64) {
        let Some(snapshot) = &self.published else { return };
        if now - self.elected_at >= TIMEOUT_MS {
            return;
        }
        for entry in snapshot.workers.iter().filter(|entry| !entry.active) {
            let known = before.and_then(|s| s.workers.iter().find(|known| known.worker == entry.worker));
            assert!(known.is_some_and(|known| known.silence == entry.silence), "{entry:?} at {now}");
        }
    }
}

#[test]
fn a_silence_is_told_once_by_everybody_and_only_if_there_was_one() {
    let seeds = match std::env::var("TENURE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("TENURE_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..400,
    };
    let (mut timeouts, mut leaders) = (0, 0);
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        world.run(0, 600_000, false);
        world.run(600_000, 700_000, true);
        // In the end everybody knows who lives.
        for follower in &world.followers {
            for (n, (worker, entry)) in follower.known_workers.workers().enumerate() {
                assert_eq!(entry.active, world.workers[n].next.is_some(), "seed {seed}: {worker}");
            }
            assert_eq!(follower.known_workers.workers().count(), 6, "seed {seed}");
        }
        timeouts += world.timeouts;
        leaders += world.epoch;
    }
    println!("{} schedules, {leaders} leaders, {timeouts} timeouts told", seeds.clone().count());
    assert!(
        seeds.count() == 1 || timeouts > 4000 && leaders > 2000,
        "{timeouts} timeouts, {leaders} leaders"
    );
}

/// Linear, and far below the 20 ms a sweep may take: `cargo test --release -p tenure-core-tests measures_ -- --ignored
/// --nocapture` prints the figure.
#[test]
#[ignore = "a measurement"]
fn measures_a_sweep_over_ten_thousand_workers() {
    for count in [1000, 10_000, WORKERS_MAX] {
        let list = |modified_ms| -> Vec<Listed> {
            (0..count).map(|n| Listed { worker: id(n), modified_ms, bytes: 200 }).collect()
        };
        let mut liveness = Liveness::new(LivenessConfig { retention_ms: 3_600_000 }, Epoch(1));
        let mut now = 0;
        for _ in 0..=count / 256 {
            now += 1;
            for worker in liveness.sweep(Time(now), Time(now), &list(1), 0, false).read {
                liveness.read(Time(now), &worker, ReadOutcome::Found(details()));
            }
        }
        let entries = list(2);
        let began = std::time::Instant::now();
        let rounds = 20u32;
        for round in 0..rounds {
            liveness.sweep(Time(now), Time(now + u64::from(round)), &entries, 0, false);
            assert_eq!(liveness.snapshot().workers.len(), count);
        }
        println!("{count} workers: {:?} to judge and to make a snapshot", began.elapsed() / rounds);
    }
}
