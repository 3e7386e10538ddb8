//! Random faults: for a minute something goes wrong all the time; then the faults end, and there must be one leader.
#![allow(clippy::wildcard_enum_match_arm, reason = "a table of faults: each function knows its own kinds")]

use crate::checks::name;
use crate::fault::{FaultKind, FaultMix};
use crate::kind::Kind;
use crate::network::{Fate, LATE_MAX_MS};
use crate::node::Work;
use crate::shell::Who;
use crate::store::{Key, Value};
use crate::world::World;
use rand::RngExt;
use std::sync::Arc;
use tenure_core::{
    Config, Coordinator, Epoch, FenceRule, Holder, Incarnation, Input, Lease, NodeId, Nonce, Seat,
    SeatProblem, SeatState,
};

/// How long faults strike.
const FAULTS_MS: u64 = 60_000;
/// How long to count requests once all is calm.
const STEADY_MS: u64 = 20_000;

/// Faults that strike a whole node; faults of single requests are drawn elsewhere.
const FAULTS: [(FaultKind, u32); 20] = [
    (FaultKind::Crash, 6),
    (FaultKind::CrashMidway, 6),
    (FaultKind::Pause, 10),
    (FaultKind::CutOff, 5),
    (FaultKind::AnswersCutOff, 5),
    (FaultKind::Drift, 3),
    (FaultKind::ClockJump, 2),
    (FaultKind::WildClock, 3),
    (FaultKind::StepDown, 5),
    (FaultKind::Mark, 4),
    (FaultKind::Leave, 5),
    (FaultKind::Join, 2),
    (FaultKind::Twin, 1),
    (FaultKind::SeatCorrupt, 1),
    (FaultKind::SeatNewer, 1),
    (FaultKind::SeatForeign, 1),
    (FaultKind::SeatDeleted, 1),
    (FaultKind::SeatRestored, 2),
    (FaultKind::PresenceDeleted, 1),
    // Stands for a run of faults on the wire.
    (FaultKind::LostRequest, 26),
];

/// The rates clocks may have, in thousandths, so that the fastest is still within what the smallest factor tolerates.
fn rates(factor_permille: u64, drift: bool) -> (u64, u64) {
    match factor_permille {
        _ if !drift => (998, 1002),
        ..1500 => (900, 1120),
        _ => (800, 1199),
    }
}

/// The kinds of a node's requests that a run of faults strikes: any, those of the election, then of workers and of jobs.
const STRUCK_KINDS: [Option<Kind>; 15] = [
    None,
    Some(Kind::Claim),
    Some(Kind::Renew),
    Some(Kind::Vacate),
    Some(Kind::Read),
    Some(Kind::Presence),
    Some(Kind::Sweep),
    Some(Kind::Publish),
    Some(Kind::Snapshot),
    Some(Kind::Worker),
    Some(Kind::Ledger),
    Some(Kind::Ledger),
    Some(Kind::Inbox),
    Some(Kind::Inboxes),
    Some(Kind::History),
];
/// How many of them are about workers …
const WORKER_KINDS: usize = 4;
/// … and about jobs.
const JOB_KINDS: usize = 5;

struct RandomFaults {
    config: Config,
    rates: (u64, u64),
    /// How far a clock may jump within one expiry.
    jump_max_ms: u64,
}

/// Draws the mix of this schedule: each kind is on more often than not, the rare and rough ones less often.
fn draw_mix(world: &mut World, allowed: FaultMix) -> FaultMix {
    let mut mix = FaultMix::calm();
    let rough = world.rng.random_bool(0.25);
    for kind in FaultKind::ALL {
        let chance = match kind {
            FaultKind::WildClock => 0.06,
            FaultKind::SeatCorrupt
            | FaultKind::SeatNewer
            | FaultKind::SeatForeign
            | FaultKind::SeatDeleted
            | FaultKind::SeatRestored => {
                if rough {
                    0.5
                } else {
                    0.0
                }
            }
            FaultKind::Twin => 0.15,
            FaultKind::StoreSkew => 0.3,
            _ => 0.7,
        };
        if world.rng.random_bool(chance) {
            mix = mix.with(*kind);
        }
    }
    mix.and(allowed)
}

/// Draws the settings of this schedule.
fn draw_config(world: &mut World) -> Config {
    let rng = &mut world.rng;
    let heartbeat_ms = [250, 400, 1000][rng.random_range(0..3)];
    let lease_ms = heartbeat_ms * [2, 3, 4][rng.random_range(0..3)] + 500;
    let hold_factor_permille = [1000, 2000][rng.random_range(0..2)];
    Config {
        heartbeat_ms,
        lease_ms,
        hold_factor_permille,
        election_interval_ms: heartbeat_ms,
        startup_jitter_max_ms: [0, 500, 5000][rng.random_range(0..3)],
        expiry_factor_permille: hold_factor_permille * [1250, 1500, 2000, 3000][rng.random_range(0..4)]
            / 1000,
        takeover_delay_ms: [0, 100, 1000][rng.random_range(0..3)],
        settle_ms: [0, 100, 500][rng.random_range(0..3)],
        presence_ms: [2000, 5000, 15_000][rng.random_range(0..3)],
        drain_ms: [300, 2000, 3000][rng.random_range(0..3)],
        ..Config::default()
    }
}

pub(crate) fn run(world: &mut World, allowed: FaultMix) {
    world.mix = draw_mix(world, allowed);
    let config = draw_config(world);
    let drift = world.mix.has(FaultKind::Drift);
    let ratio = 1000 + config.tolerated_drift_permille();
    let rates = rates(ratio, drift);
    let slack = ratio.saturating_sub(1000 * rates.1 / rates.0 + 1);
    // The shortest hold any node of this schedule may have.
    let shortest = if world.mix.has(FaultKind::MixedSettings) { 1000 } else { config.lease_ms };
    let shortest = Config { lease_ms: shortest.min(config.lease_ms), ..config.clone() }.hold_ms();
    let faults = RandomFaults { jump_max_ms: slack * shortest / 1000, config, rates };
    let low = world.rng.random_range(1..40);
    world.latency_ms = (low, low + world.rng.random_range(1..80));
    // Sometimes longer than a sane driver would wait: safety must not depend on it.
    world.timeout_ms = [faults.config.hold_ms() * 3 / 10, 750, 2000][world.rng.random_range(0..3)];
    world.fence = FenceRule { enabled: true, grace_ms: [0, 1000, 5000][world.rng.random_range(0..3)] };
    if world.mix.has(FaultKind::StoreSkew) {
        world.store.skew_ms = 20_000;
        world.struck.add(FaultKind::StoreSkew);
    }
    crate::workloads::workers::draw(world);
    crate::workloads::jobs::draw(world);
    for index in 0..world.rng.random_range(2..=5) {
        faults.join(world, &format!("node-{index}"));
    }
    crate::workloads::workers::populate(world, faults.rates);
    while world.now < FAULTS_MS {
        // Faults come alone or in quick succession.
        let longest = if world.rng.random_bool(0.5) { 1500 } else { 100 };
        let gap = world.rng.random_range(1..longest);
        world.run_for(gap);
        faults.strike(world);
        if !world.checks.violations.is_empty() {
            return;
        }
    }
    faults.settle(world);
}

impl RandomFaults {
    fn join(&self, world: &mut World, id: &str) -> usize {
        let mut config = self.config.clone();
        if world.mix.has(FaultKind::MixedSettings) && world.rng.random_bool(0.5) {
            world.struck.add(FaultKind::MixedSettings);
            let rng = &mut world.rng;
            config.heartbeat_ms = [250, 400, 1000][rng.random_range(0..3)];
            config.lease_ms = config.heartbeat_ms * [2, 3][rng.random_range(0..2)] + 500;
            config.election_interval_ms = config.heartbeat_ms;
            config.takeover_delay_ms = [0, 300, 1000][rng.random_range(0..3)];
            // Never below what the clocks of this schedule need.
            config.expiry_factor_permille += [0, 500, 1000][rng.random_range(0..3)];
        }
        let work = match world.rng.random_range(0..10) {
            0 if world.mix.has(FaultKind::StuckWork) => Work::Stuck,
            1..5 if world.mix.has(FaultKind::SlowWork) => Work::Slow,
            _ => Work::Prompt,
        };
        let rate = world.rng.random_range(self.rates.0..=self.rates.1);
        let node = world.add(id, config, rate, work);
        world.nodes[node].computer.wall_off_ms = world.rng.random_range(-6000..6000);
        let random = world.rng.random();
        world.start(node, random);
        node
    }

    /// One fault on one node; the leader is hit as often as all others together.
    fn strike(&self, world: &mut World) {
        if world.has_jobs && world.rng.random_bool(0.2) {
            crate::workloads::jobs::demand(world);
        }
        if !world.workers.is_empty() && world.rng.random_bool(0.35) {
            return crate::workloads::workers::strike(world, self.rates);
        }
        let total: u32 = FAULTS.iter().map(|(_, weight)| weight).sum();
        let mut draw = world.rng.random_range(0..total);
        let kind = FAULTS.iter().find(|(_, weight)| {
            let hit = draw < *weight;
            draw = draw.saturating_sub(*weight);
            hit
        });
        let kind = kind.map_or(FaultKind::LostRequest, |(kind, _)| *kind);
        let leader = world.acting().into_iter().next().filter(|_| world.rng.random_bool(0.5));
        let node = leader.unwrap_or_else(|| world.rng.random_range(0..world.nodes.len()));
        if kind == FaultKind::LostRequest {
            return bad_link(world, Who::Node(node));
        }
        if !world.nodes[node].alive || !world.nodes[node].running {
            // A node that is down comes back before anything else happens to it.
            let random = world.rng.random();
            return world.come_back(node, random);
        }
        if !world.mix.has(kind) || (kind == FaultKind::Join && world.nodes.len() >= 8) {
            return;
        }
        if kind != FaultKind::CrashMidway {
            world.strike(kind, Who::Node(node));
        }
        self.befalls(world, node, kind);
    }

    fn befalls(&self, world: &mut World, node: usize, kind: FaultKind) {
        let now = world.now;
        match kind {
            FaultKind::Crash => world.crash(node),
            FaultKind::CrashMidway => world.nodes[node].crash_in = Some(world.rng.random_range(0..6)),
            FaultKind::Pause => {
                let ms = match world.rng.random_range(0..10) {
                    0 => world.rng.random_range(20_000..120_000),
                    1..4 => world.rng.random_range(1..300),
                    _ => world.rng.random_range(300..12_000),
                };
                world.pause(Who::Node(node), ms);
            }
            FaultKind::CutOff => world.nodes[node].computer.cut_out ^= true,
            FaultKind::AnswersCutOff => world.nodes[node].computer.cut_in ^= true,
            FaultKind::Drift => {
                let rate = world.rng.random_range(self.rates.0..=self.rates.1);
                world.nodes[node].computer.clock.set_rate(now, rate);
                world.clock_changed(Who::Node(node));
            }
            FaultKind::ClockJump => {
                let expiry = self.config.expiry_ms() * 10 / 8 + 1000;
                let target = &mut world.nodes[node].computer;
                if self.jump_max_ms > 0 && (target.last_jump == 0 || now > target.last_jump + 2 * expiry) {
                    let ms = world.rng.random_range(1..=self.jump_max_ms);
                    target.last_jump = now;
                    target.clock.jump(now, ms);
                    world.clock_changed(Who::Node(node));
                }
            }
            FaultKind::WildClock => {
                world.clocks_beyond_drift = true;
                match world.rng.random_range(0..3) {
                    0 => world.nodes[node].computer.clock.set_rate(now, 0),
                    1 => world.nodes[node].computer.clock.set_rate(now, 6000),
                    _ => world.nodes[node].computer.clock.jump(now, world.rng.random_range(1000..600_000)),
                }
                world.clock_changed(Who::Node(node));
            }
            FaultKind::StepDown => world.command::<Coordinator>(Who::Node(node), Input::StepDown),
            FaultKind::Mark => world.mark(),
            FaultKind::Leave => world.command::<Coordinator>(Who::Node(node), Input::Stop),
            FaultKind::Join => {
                let id = format!("node-{}", world.nodes.len());
                self.join(world, &id);
            }
            FaultKind::Twin => {
                let id = world.nodes[node].id.clone();
                self.join(world, id.as_str());
            }
            FaultKind::PresenceDeleted => {
                let presence = Key::Presence(world.nodes[node].id.clone());
                world.remove_outside(&presence);
            }
            _ => edit_seat(world, kind),
        }
    }

    /// Ends all faults.
    fn mend(&self, world: &mut World) {
        let beyond_drift = world.clocks_beyond_drift;
        let lossy = world.has_workers && world.mix.has(FaultKind::LostRequest);
        world.mix = FaultMix::calm();
        let now = world.now;
        if world.store.seat().is_some_and(|object| object.seat().is_none()) {
            match world.store.backups.back().cloned() {
                Some(object) => world.store.restore_seat(object),
                None => drop(world.store.remove(now, &Key::Seat)),
            }
            world.seat_checks.rolled_back = true;
        }
        let mut ids = std::collections::BTreeSet::new();
        for node in 0..world.nodes.len() {
            let (who, target) = (Who::Node(node), &mut world.nodes[node]);
            target.crash_in = None;
            target.computer.mend_link();
            // One loss happens even after the faults: that of the next snapshot, which must not count as published then.
            if lossy && world.rng.random_bool(0.5) {
                target.computer.faults.push_back((Some(Kind::Publish), Fate::LoseRequest));
                world.struck.add(FaultKind::LostRequest);
            }
            let clock = &mut world.nodes[node].computer.clock;
            if beyond_drift {
                let rate = clock.rate().clamp(self.rates.0, self.rates.1);
                clock.set_rate(now, rate);
                world.clock_changed(who);
            }
            world.resume(who);
            world.free_work(node);
            // Of two processes under one id, one is removed.
            let first = ids.insert(world.nodes[node].id.clone());
            if !first {
                world.crash(node);
            }
        }
        crate::workloads::workers::mend(world);
        crate::workloads::jobs::mend(world);
    }

    /// The faults have ended: some node must lead soon, and no other beside it.
    fn settle(&self, world: &mut World) {
        self.mend(world);
        // If clocks were clocks_beyond_drift, two nodes may still act; that ends with their leases.
        let slow = |ms: u64| ms * 1000 / self.rates.0 + 1;
        let longest =
            |value: fn(&Config) -> u64| world.nodes.iter().map(|node| value(&node.config)).max().unwrap_or(0);
        let leave = slow(longest(|config| config.drain_ms + config.hold_ms())) + world.timeout_ms + 100;
        let failover = slow(longest(Config::failover_bound_ms));
        let start =
            slow(longest(|config| config.startup_jitter_max_ms + config.settle_ms + 2 * config.heartbeat_ms));
        let presence = slow(longest(|config| config.presence_ms));
        // A node that is still leaving ignores a start; by then every node has left or stayed.
        world.run_for(leave);
        world.clocks_beyond_drift = false;
        let mut ids = std::collections::BTreeSet::new();
        for node in 0..world.nodes.len() {
            let first = ids.insert(world.nodes[node].id.clone());
            let random = rand::RngExt::random(&mut world.rng);
            if first {
                world.come_back(node, random);
            }
        }
        // Late landings, a start with its presence, and at worst two failovers in a row.
        let mut bound = LATE_MAX_MS + start + presence + 2 * failover + 3000;
        if world.has_jobs {
            // Leaders whose processes gave up claim nothing for a while, and aborted work may ignore that.
            bound += slow(world.workload.supervision.hold_max_ms) + 10_000;
        }
        world.run_for(bound);
        let leaders = world.acting();
        if leaders.len() != 1 {
            world.violated(name::LEADER_IN_TIME, || {
                format!("{bound} ms after all was mended the leaders are {leaders:?}")
            });
            return;
        }
        crate::checks::budget::steady(world, STEADY_MS);
        crate::workloads::workers::settle(world);
        crate::workloads::jobs::settle(world);
    }
}

/// Somebody changes the seat by hand.
fn edit_seat(world: &mut World, kind: FaultKind) {
    let now = world.now;
    let first = !std::mem::replace(&mut world.seat_edited, true);
    world.seat_edits.deleted_once = (first && kind == FaultKind::SeatDeleted).then_some(now);
    let put = |world: &mut World, value: Arc<Value>| drop(world.store.put(now, Key::Seat, value, true));
    match kind {
        FaultKind::SeatCorrupt => put(world, Arc::new(Value::Garbage(SeatProblem::Corrupt))),
        FaultKind::SeatNewer => put(world, Arc::new(Value::Garbage(SeatProblem::Newer))),
        FaultKind::SeatForeign => {
            let epoch = world.store.seat().and_then(|object| object.seat()).map_or(0, |seat| seat.epoch.0);
            let holder =
                Holder { node: NodeId::new("stranger").expect("valid"), incarnation: Incarnation(u64::MAX) };
            let nonce = Nonce { incarnation: holder.incarnation, sequence: now };
            let epoch = Epoch(epoch + world.rng.random_range(1..3));
            // With a shorter lease than its victim's it would be taken over too soon; nothing is promised about that.
            let longest = |value: fn(&Config) -> u64| {
                world.nodes.iter().map(|node| value(&node.config)).max().unwrap_or(1)
            };
            let lease = Lease { hold_ms: longest(Config::hold_ms), expiry_ms: longest(Config::expiry_ms) };
            let seat = Seat {
                state: SeatState::Held,
                lease,
                terms: None,
                renewals: 7,
                epoch,
                holder,
                nonce,
                step_down: false,
            };
            world.seat_checks.rolled_back |= !world.seat_checks.is_above(epoch);
            put(world, Arc::new(Value::Seat(seat, None)));
        }
        FaultKind::SeatDeleted => {
            world.store.remove(now, &Key::Seat);
            world.seat_checks.rolled_back = true;
        }
        _ => {
            let back = world.store.backups.len();
            if back > 0 {
                let mut object = world.store.backups[world.rng.random_range(0..back)].clone();
                world.seat_checks.restored(object.seat().map_or(Epoch(0), |seat| seat.epoch));
                if world.rng.random_bool(0.5) {
                    put(world, object.value);
                } else {
                    // The same bytes and, on most engines, the same version.
                    object.by_hand = true;
                    world.seat_edits.put_back(now, object.version.clone());
                    world.store.restore_seat(object);
                }
            }
        }
    }
}

/// A run of faults on the link of one computer, for some requests or for a while.
pub(crate) fn bad_link(world: &mut World, who: Who) {
    let draw = world.rng.random_range(0..6);
    match (draw, who) {
        (0, _) => world.computer_mut(who).burst = [0, 100, 400][world.rng.random_range(0..3)],
        // A connection that goes bad: one answer arrives slowly, then nothing comes any more.
        (1, Who::Node(_)) if world.mix.has(FaultKind::SlowNetwork) => {
            world.strike(FaultKind::SlowNetwork, who);
            let crawl = world.rng.random_range(100..world.timeout_ms.max(200));
            let faults = &mut world.computer_mut(who).faults;
            faults.push_back((Some(Kind::Renew), Fate::Slow(5, crawl)));
            faults.extend((0..8).map(|_| (None, Fate::LoseRequest)));
        }
        (1, Who::Worker(_)) if world.mix.has(FaultKind::CutOff) => {
            world.strike(FaultKind::CutOff, who);
            world.computer_mut(who).cut_out ^= true;
        }
        (2, Who::Worker(_)) if world.mix.has(FaultKind::AnswersCutOff) => {
            world.strike(FaultKind::AnswersCutOff, who);
            world.computer_mut(who).cut_in ^= true;
        }
        _ => {
            let Some((fault, fate)) = world.draw_fate() else { return };
            let kinds = match who {
                Who::Worker(_) => 1,
                Who::Node(_) if world.has_jobs => STRUCK_KINDS.len(),
                Who::Node(_) if world.has_workers => STRUCK_KINDS.len() - JOB_KINDS,
                Who::Node(_) => STRUCK_KINDS.len() - JOB_KINDS - WORKER_KINDS,
            };
            let kind = STRUCK_KINDS[world.rng.random_range(0..kinds)];
            for _ in 0..world.rng.random_range(1..5) {
                world.strike(fault, who);
                world.computer_mut(who).faults.push_back((kind, fate));
            }
        }
    }
}
