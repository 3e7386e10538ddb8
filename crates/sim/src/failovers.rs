//! Failovers: a calm cluster, one event at a time, each compared with what the documentation promises to the millisecond (plus the
//! store's latency, which no bound includes).

use crate::checks::name;
use crate::fault::FaultKind;
use crate::kind::Kind;
use crate::network::Fate;
use crate::node::Work;
use crate::shell::Who;
use crate::store::Key;
use crate::world::World;
use rand::RngExt;
use tenure_core::{Config, Coordinator, Epoch, FenceRule, Input};

/// How long a failover took, and the limit by the settings alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failover {
    /// A crash; otherwise a leader that gave up the seat.
    pub crash: bool,
    /// From the event to the next leader's work.
    pub took_ms: u64,
    /// The settings' bound, without any latency.
    pub bound_ms: u64,
}

struct Failovers {
    config: Config,
    names: Vec<usize>,
    failovers: Vec<Failover>,
}

fn draw_config(world: &mut World) -> Config {
    let rng = &mut world.rng;
    let default = Config::default();
    let mut config = match rng.random_range(0..4) {
        0 => Config {
            heartbeat_ms: 300,
            lease_ms: 500,
            takeover_delay_ms: 100,
            election_interval_ms: 250,
            ..default
        },
        1 => Config { heartbeat_ms: 9000, lease_ms: 15_000, election_interval_ms: 5000, ..default },
        _ => default,
    };
    config.startup_jitter_max_ms = [0, 500, 5000][rng.random_range(0..3)];
    config.presence_ms = 4000;
    config
}

pub(crate) fn run(world: &mut World) -> Vec<Failover> {
    let config = draw_config(world);
    let low = world.rng.random_range(5..20);
    world.latency_ms = (low, low + world.rng.random_range(1..20));
    world.timeout_ms = config.hold_ms() * 3 / 10;
    world.fence = FenceRule { enabled: true, grace_ms: [0, 5000][world.rng.random_range(0..2)] };
    if world.rng.random_range(0..12) == 0 {
        unsafe_store(world, &config);
        return Vec::new();
    }
    let mut calm = Failovers { config, names: Vec::new(), failovers: Vec::new() };
    calm.first_election(world);
    if !world.checks.violations.is_empty() {
        return Vec::new();
    }
    // The standbys' turns pass, and each looks once more.
    world.run_for(calm.config.settle_ms + 10 * calm.rank_step() + calm.config.election_interval_ms);
    crate::checks::budget::steady(world, 60_000.max(8 * calm.config.heartbeat_ms));
    for _ in 0..4 {
        match world.rng.random_range(0..6) {
            0 => calm.crash(world),
            1 => calm.hand_over(world),
            2 => calm.leave(world),
            3 => calm.hiccup(world),
            4 => calm.refusal(world),
            _ => calm.long_dead(world),
        }
        if !world.checks.violations.is_empty() {
            break;
        }
    }
    calm.failovers
}

/// No node may take part on a store that ignores conditions.
fn unsafe_store(world: &mut World, config: &Config) {
    world.store.ignores_conditions = true;
    for index in 0..3 {
        let node = world.add(&format!("node-{index}"), config.clone(), 1000, Work::Prompt);
        let random = world.rng.random();
        world.start(node, random);
    }
    world.run_for(30_000);
    if world.nodes.iter().any(|node| node.running) || world.store.objects().next().is_some() {
        world.violated(name::UNSAFE_STORE, || "somebody takes part".to_owned());
    }
}

impl Failovers {
    /// The time for this many requests there and back, at the highest latency.
    fn trips(&self, world: &World, count: u64) -> u64 {
        count * 2 * world.latency_ms.1 + 30
    }

    fn rank_step(&self) -> u64 {
        (self.config.heartbeat_ms / 4).clamp(10, 500)
    }

    /// All nodes start within a moment; the first by name leads, at the promised time.
    fn first_election(&mut self, world: &mut World) {
        let count = world.rng.random_range(3..=5);
        let mut order: Vec<usize> = (0..count).collect();
        use rand::seq::SliceRandom;
        order.shuffle(&mut world.rng);
        for index in order {
            let rate = world.rng.random_range(995..=1005);
            let work = if world.rng.random_bool(0.3) { Work::Slow } else { Work::Prompt };
            let node = world.add(&format!("node-{index}"), self.config.clone(), rate, work);
            world.nodes[node].computer.wall_off_ms = world.rng.random_range(-4000..4000);
            self.names.push(node);
            let random = world.rng.random();
            world.start(node, random);
        }
        let due = self.config.startup_jitter_max_ms + self.config.settle_ms;
        world.run_for(due * 1006 / 1000 + self.trips(world, 6));
        let leaders = world.acting();
        let now = world.now;
        match leaders.as_slice() {
            [leader] if world.nodes[*leader].id.as_str() == "node-0" => {}
            [leader] => {
                let id = world.nodes[*leader].id.clone();
                world.violated(name::FIRST_IN_RANK, || format!("{id} leads, node-0 was there"));
            }
            _ => world.violated(name::LEADER_IN_TIME, || {
                format!("{now} ms after the start the leaders are {leaders:?}")
            }),
        }
    }

    fn leader(&self, world: &World) -> Option<usize> {
        world.acting().first().copied()
    }

    /// Waits for another leader until the bound plus latency; returns when it began, and which node it is.
    fn next_leader(&self, world: &mut World, old: Option<Epoch>, within: u64) -> Option<(u64, usize)> {
        let from = world.seat_checks.began.len();
        let end = world.now + within;
        while world.now < end {
            let until = (world.now + 50).min(end);
            world.run_until(until);
            let found = world.seat_checks.began[from..].iter().find(|began| Some(began.epoch) != old);
            if let Some(began) = found.copied() {
                return Some((began.at, began.node));
            }
        }
        None
    }

    /// `ahead` dead nodes still count as present and are waited for.
    fn expect_failover(
        &mut self,
        world: &mut World,
        crash: bool,
        bound_ms: u64,
        ahead: u64,
    ) -> Option<usize> {
        let old = world.seat_checks.began.last().map(|began| began.epoch);
        let began = world.now;
        let within = bound_ms * 1006 / 1000 + ahead.min(8) * self.rank_step() + self.trips(world, 5);
        let next = self.next_leader(world, old, within);
        match next {
            Some((at, node)) => {
                self.failovers.push(Failover { crash, took_ms: at - began, bound_ms });
                Some(node)
            }
            None => {
                let kind = if crash { "crash" } else { "graceful" };
                world.violated(name::LEADER_IN_TIME, || {
                    format!("nobody leads {within} ms after a {kind} end; the bound is {bound_ms}")
                });
                None
            }
        }
    }

    /// Dead nodes whose presence may still look alive.
    fn ghosts(&self, world: &World) -> u64 {
        self.names.iter().filter(|node| !world.nodes[**node].running).count() as u64
    }

    fn crash(&mut self, world: &mut World) {
        let Some(leader) = self.leader(world) else { return };
        world.strike(FaultKind::Crash, Who::Node(leader));
        world.crash(leader);
        let ahead = self.ghosts(world);
        let Some(next) = self.expect_failover(world, true, self.config.failover_bound_ms(), ahead) else {
            return;
        };
        // The old leader comes back and stays a standby.
        let random = world.rng.random();
        world.restart(leader, random);
        let start = self.config.startup_jitter_max_ms + self.config.failover_bound_ms();
        world.run_for(start + 2000);
        self.stays(world, next);
        self.everybody_back(world);
    }

    fn stays(&self, world: &mut World, leader: usize) {
        let leaders = world.acting();
        if leaders != [leader] {
            world.violated(name::NO_FAIL_BACK, || format!("{leader} led, now {leaders:?}"));
        }
    }

    /// Starts all nodes that are down, and gives them time to become standbys.
    fn everybody_back(&self, world: &mut World) {
        for node in self.names.clone() {
            let random = world.rng.random();
            world.come_back(node, random);
        }
        world.run_for(
            self.config.startup_jitter_max_ms + self.config.settle_ms + 3 * self.config.presence_ms + 2000,
        );
    }

    fn hand_over(&mut self, world: &mut World) {
        let Some(leader) = self.leader(world) else { return };
        let mut bound = self.config.drain_ms + self.config.election_interval_ms;
        if world.rng.random_bool(0.5) {
            world.strike(FaultKind::StepDown, Who::Node(leader));
            world.command::<Coordinator>(Who::Node(leader), Input::StepDown);
        } else {
            // The leader notices the mark at its next renewal, and reads the seat.
            world.strike(FaultKind::Mark, Who::Node(leader));
            world.mark();
            bound += self.config.heartbeat_ms + self.trips(world, 2);
        }
        // The node that steps down comes first in the list, but not in the ranking.
        let Some(next) = self.expect_failover(world, false, bound, 0) else { return };
        if next == leader {
            world.violated(name::HAND_OVER, || format!("{leader} stepped down and leads again"));
        }
        world.run_for(self.config.failover_bound_ms());
        self.stays(world, next);
    }

    fn leave(&mut self, world: &mut World) {
        let Some(leader) = self.leader(world) else { return };
        world.strike(FaultKind::Leave, Who::Node(leader));
        world.command::<Coordinator>(Who::Node(leader), Input::Stop);
        let bound = self.config.drain_ms + self.config.election_interval_ms;
        if self.expect_failover(world, false, bound, 0).is_none() {
            return;
        }
        world.run_for(self.trips(world, 4));
        let id = world.nodes[leader].id.clone();
        if world.nodes[leader].running || world.store.get(&Key::Presence(id.clone())).is_some() {
            world.violated(name::CLEAN_LEAVE, || format!("{id} left, and its presence is still there"));
        }
        self.everybody_back(world);
    }

    /// One renewal fails; the leader must not lose its seat over it.
    fn hiccup(&mut self, world: &mut World) {
        let Some(leader) = self.leader(world) else { return };
        let epoch = world.nodes[leader].acting.map(|acting| acting.epoch);
        let late = world.timeout_ms + world.rng.random_range(1..2000);
        let fates = [
            (FaultKind::LostRequest, Fate::LoseRequest),
            (FaultKind::LostAnswer, Fate::LoseAnswer),
            (FaultKind::RetryEcho, Fate::Echo),
            (FaultKind::Unavailable, Fate::Unavailable),
            (FaultKind::UnknownLanded, Fate::UnknownLanded),
            (FaultKind::UnknownNotLanded, Fate::UnknownNotLanded),
            (FaultKind::LateLanding, Fate::Late(late)),
        ];
        let (kind, fate) = fates[world.rng.random_range(0..fates.len())];
        world.strike(kind, Who::Node(leader));
        world.nodes[leader].computer.faults.push_back((Some(Kind::Renew), fate));
        world.run_for(3 * self.config.lease_ms);
        let still = world.nodes[leader].acting.filter(|acting| !acting.told).map(|acting| acting.epoch);
        if still != epoch || world.nodes[leader].lost >= epoch.unwrap_or_default() {
            world.violated(name::HICCUP, || format!("{leader} led in {epoch:?}, then {fate:?}"));
        }
    }

    /// The store refuses, is away, or is silent for a while: no node storms it, and afterwards a node leads.
    fn refusal(&mut self, world: &mut World) {
        let ms = 30_000.max(6 * self.config.election_interval_ms);
        let which = world.rng.random_range(0..4);
        let before: Vec<_> = world.nodes.iter().map(|node| node.sent).collect();
        let end = world.now + ms;
        if which == 3 {
            // A node that may read but not write is the one that could keep claiming forever.
            if let Some(leader) = self.leader(world) {
                world.crash(leader);
            }
        }
        while world.now < end {
            for node in self.names.clone() {
                let target = &mut world.nodes[node];
                target.computer.cut_out = which == 0;
                while target.computer.faults.len() < 8 && which != 0 {
                    let fate = if which == 1 { Fate::Unavailable } else { Fate::Denied };
                    let kinds: &[Option<Kind>] = match which {
                        3 => &[Some(Kind::Claim), Some(Kind::Renew)],
                        _ => &[None],
                    };
                    target.computer.faults.extend(kinds.iter().map(|kind| (*kind, fate)));
                }
            }
            world.run_for(100);
        }
        world.strike(if which == 1 { FaultKind::Unavailable } else { FaultKind::Denied }, Who::Node(0));
        for node in self.names.clone() {
            let target = &mut world.nodes[node];
            target.computer.cut_out = false;
            target.computer.faults.clear();
            let sent = |kind: Kind| target.sent[kind as usize] - before[node][kind as usize];
            let looks = ms / self.config.election_interval_ms;
            let tries = 4 * self.config.hold_ms() / self.config.heartbeat_ms;
            // A leader retries quickly while its lease runs; a standby slows down to its usual looks, once for the read and once
            // for the claim.
            let (read, claim) = (sent(Kind::Read), sent(Kind::Claim));
            let (reads_max, claims_max) = (2 * looks + tries + 12, looks + 12);
            if read > reads_max || claim > claims_max {
                world.violated(name::NO_STORM, || {
                    format!("{node} in {ms} ms of refusal ({which}): {read} reads of {reads_max}, {claim} claims of {claims_max}")
                });
            }
        }
        self.everybody_back(world);
        world.run_for(self.config.failover_bound_ms() + 4 * self.config.election_interval_ms + 3000);
        let leaders = world.acting();
        if leaders.len() != 1 {
            world.violated(name::LEADER_IN_TIME, || format!("after a refusal lead {leaders:?}"));
        }
    }

    /// Nodes that have been dead for long are no longer waited for.
    fn long_dead(&mut self, world: &mut World) {
        let Some(leader) = self.leader(world) else { return };
        let last = self.names.iter().copied().max_by_key(|node| world.nodes[*node].id.clone());
        let survivor = last.filter(|node| *node != leader);
        for node in self.names.clone() {
            if node != leader && Some(node) != survivor {
                world.strike(FaultKind::Crash, Who::Node(node));
                world.crash(node);
            }
        }
        if survivor.is_none() {
            return self.everybody_back(world);
        }
        world.run_for(4 * self.config.presence_ms + 4000);
        if self.leader(world) != Some(leader) {
            return self.everybody_back(world);
        }
        world.strike(FaultKind::Crash, Who::Node(leader));
        world.crash(leader);
        self.expect_failover(world, true, self.config.failover_bound_ms(), 0);
        self.everybody_back(world);
    }
}
