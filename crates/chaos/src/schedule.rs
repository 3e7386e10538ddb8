//! Which faults, when, and to which node: determined by a seed alone.
//!
//! Faults come in rounds. Every round begins with a leader in office and ends when there is one again, so that each can be judged
//! by itself. Kinds are dealt from a shuffled deck that holds every kind, so even a short run sees most of them and a long run
//! sees all. The same seed gives the same schedule; how the nodes react is up to them and the machine.

use crate::proxy::ProxyFault;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SIGKILL, and a new process later.
    Crash,
    /// SIGTERM, and a new process later.
    Stop,
    /// SIGSTOP, and SIGCONT later.
    Pause,
    /// Neither requests nor answers get through.
    Cut,
    /// Requests do not arrive; answers to earlier ones do.
    CutRequests,
    /// Requests arrive, answers do not.
    CutAnswers,
    /// Connections are refused.
    Refuse,
    /// Answers are late.
    SlowAnswers,
    /// Requests arrive late, long after the node gave up on them.
    LateRequests,
    /// Some answers are lost, although the write happened.
    DropAnswers,
    /// Some requests are answered with 503.
    Storm,
    /// Some requests take effect but are answered with 503.
    Lie,
    /// Every request of the leader, and of no other node, is answered with 503.
    Leader503,
    /// No node reaches the store.
    Outage,
    /// The store is stopped and started again.
    StoreRestart,
    /// Another process holds the database's lock.
    StoreHeld,
    /// A node is killed and comes back with a different wall clock.
    Skew,
}

impl Kind {
    pub const ALL: [Kind; 17] = [
        Kind::Crash,
        Kind::Stop,
        Kind::Pause,
        Kind::Cut,
        Kind::CutRequests,
        Kind::CutAnswers,
        Kind::Refuse,
        Kind::SlowAnswers,
        Kind::LateRequests,
        Kind::DropAnswers,
        Kind::Storm,
        Kind::Lie,
        Kind::Leader503,
        Kind::Outage,
        Kind::StoreRestart,
        Kind::StoreHeld,
        Kind::Skew,
    ];

    /// The name in the record and the table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Crash => "crash",
            Kind::Stop => "stop",
            Kind::Pause => "pause",
            Kind::Cut => "cut",
            Kind::CutRequests => "cut-requests",
            Kind::CutAnswers => "cut-answers",
            Kind::Refuse => "refuse",
            Kind::SlowAnswers => "slow-answers",
            Kind::LateRequests => "late-requests",
            Kind::DropAnswers => "drop-answers",
            Kind::Storm => "storm",
            Kind::Lie => "lie",
            Kind::Leader503 => "leader503",
            Kind::Outage => "outage",
            Kind::StoreRestart => "store-restart",
            Kind::StoreHeld => "store-held",
            Kind::Skew => "skew",
        }
    }

    /// How often it is in the deck.
    fn weight(self) -> usize {
        match self {
            Kind::Crash => 4,
            Kind::Stop | Kind::Pause => 2,
            Kind::Cut
            | Kind::CutRequests
            | Kind::CutAnswers
            | Kind::Refuse
            | Kind::SlowAnswers
            | Kind::LateRequests
            | Kind::DropAnswers
            | Kind::Storm
            | Kind::Lie
            | Kind::Leader503
            | Kind::Outage
            | Kind::StoreRestart
            | Kind::StoreHeld
            | Kind::Skew => 1,
        }
    }

    fn needs(self) -> Need {
        match self {
            Kind::Crash | Kind::Stop | Kind::Pause => Need::Nothing,
            Kind::Cut
            | Kind::CutRequests
            | Kind::CutAnswers
            | Kind::Refuse
            | Kind::SlowAnswers
            | Kind::LateRequests
            | Kind::DropAnswers
            | Kind::Storm
            | Kind::Lie
            | Kind::Leader503
            | Kind::Outage => Need::Network,
            Kind::StoreRestart => Need::Restart,
            Kind::StoreHeld => Need::File,
            Kind::Skew => Need::Faketime,
        }
    }

    /// Whether it affects the store, and thereby all nodes.
    pub fn is_everybodys(self) -> bool {
        matches!(self, Kind::Outage | Kind::StoreRestart | Kind::StoreHeld)
    }
}

enum Need {
    Nothing,
    Network,
    Restart,
    File,
    Faketime,
}

/// What is possible on this machine and this store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Means {
    /// There is a network between nodes and store.
    pub network: bool,
    /// The store can be stopped and started.
    pub restart: bool,
    /// The store is a file that can be locked.
    pub file: bool,
    /// Wall clocks can be shifted.
    pub faketime: bool,
}

impl Means {
    fn allow(self, kind: Kind) -> bool {
        match kind.needs() {
            Need::Nothing => true,
            Need::Network => self.network,
            Need::Restart => self.restart,
            Need::File => self.file,
            Need::Faketime => self.faketime,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    Leader,
    /// One of the other nodes; the number wraps around.
    Standby(usize),
}

/// One planned fault.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    pub kind: Kind,
    /// The node to hit; meaningless for a kind that affects all nodes.
    pub target: Target,
    /// How long after the start of the round it begins.
    pub after_ms: u64,
    pub hold_ms: u64,
    /// How many requests in a thousand it hits, for kinds that hit only some.
    pub permille: u32,
    /// How far the wall clock is shifted, for kinds that shift it.
    pub skew_s: i64,
}

impl Fault {
    /// What it does to the target's path to the store; `None` if nothing.
    pub fn proxy_fault(&self, lease_ms: u64) -> Option<ProxyFault> {
        let permille = self.permille;
        Some(match self.kind {
            Kind::Cut | Kind::Outage => ProxyFault::Cut,
            Kind::CutRequests => ProxyFault::CutRequests,
            Kind::CutAnswers => ProxyFault::CutAnswers,
            Kind::Refuse => ProxyFault::Refuse,
            Kind::SlowAnswers => ProxyFault::SlowAnswers { max_ms: lease_ms * 2 / 5 },
            Kind::LateRequests => ProxyFault::LateRequests { max_ms: lease_ms * 2 },
            Kind::DropAnswers => ProxyFault::DropAnswers { permille },
            Kind::Storm => ProxyFault::Storm { permille },
            Kind::Lie => ProxyFault::Lie { permille },
            Kind::Leader503 => ProxyFault::Storm { permille: 1000 },
            Kind::Crash | Kind::Stop | Kind::Pause | Kind::StoreRestart | Kind::StoreHeld | Kind::Skew => {
                return None;
            }
        })
    }
}

/// One or two faults, and a rest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// The first fault names the round; a second one hits a standby during it.
    pub faults: Vec<Fault>,
    /// How long the cluster is left alone first.
    pub rest_ms: u64,
}

/// The times from which durations are derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    pub lease_ms: u64,
    /// How long a takeover may take.
    pub failover_ms: u64,
}

/// An endless sequence of rounds.
#[derive(Debug)]
pub struct Schedule {
    random: ChaCha8Rng,
    deck: Vec<Kind>,
    means: Means,
    pace: Pace,
    dealt: usize,
    only: Vec<Kind>,
}

impl Schedule {
    pub fn new(seed: u64, means: Means, pace: Pace) -> Schedule {
        let (deck, only) = (Vec::new(), Vec::new());
        Schedule { random: ChaCha8Rng::seed_from_u64(seed), deck, means, pace, dealt: 0, only }
    }

    /// The same with only these kinds, one at a time and always aimed at the leader; an empty list changes nothing.
    pub fn only(self, only: Vec<Kind>) -> Schedule {
        Schedule { only, ..self }
    }

    fn kind(&mut self) -> Kind {
        if self.deck.is_empty() {
            let chosen = |kind: &Kind| self.only.is_empty() || self.only.contains(kind);
            let allowed = Kind::ALL.into_iter().filter(|kind| self.means.allow(*kind)).filter(chosen);
            self.deck = allowed.flat_map(|kind| std::iter::repeat_n(kind, kind.weight())).collect();
            self.deck.shuffle(&mut self.random);
            if self.dealt == 0 {
                // Kinds that are measured, and the one that every run must have however short, come first.
                for kind in [Kind::Leader503, Kind::Stop, Kind::Crash] {
                    if let Some(index) = self.deck.iter().position(|card| *card == kind) {
                        let card = self.deck.remove(index);
                        self.deck.push(card);
                    }
                }
            }
        }
        self.dealt += 1;
        self.deck.pop().unwrap_or(Kind::Crash)
    }

    fn fault(&mut self, kind: Kind, target: Target) -> Fault {
        let Pace { lease_ms, failover_ms } = self.pace;
        let random = &mut self.random;
        // Too short to matter; longer than the lease; long enough for another node to lead.
        let lengths = [lease_ms * 6 / 10, lease_ms * 3 / 2, failover_ms + lease_ms];
        let hold_ms = match kind {
            Kind::Leader503 => failover_ms + lease_ms,
            Kind::Pause => {
                [lease_ms * 5 / 4, lease_ms * 2, failover_ms + lease_ms][random.random_range(0..3)]
            }
            Kind::StoreRestart => random.random_range(100..=lease_ms),
            Kind::Crash | Kind::Skew => [100, failover_ms + lease_ms][random.random_range(0..2)],
            Kind::Stop => [100, 2 * lease_ms][random.random_range(0..2)],
            Kind::SlowAnswers | Kind::LateRequests | Kind::DropAnswers | Kind::Storm | Kind::Lie => {
                3 * lease_ms
            }
            Kind::Cut
            | Kind::CutRequests
            | Kind::CutAnswers
            | Kind::Refuse
            | Kind::Outage
            | Kind::StoreHeld => lengths[random.random_range(0..3)],
        };
        let permille = [200, 500, 900][random.random_range(0..3)];
        // Object stores refuse signatures that are a quarter of an hour off; a file does not care.
        let most_s = if self.means.network { 600 } else { 90_000 };
        let skew_s = random.random_range(60..=most_s) * if random.random_bool(0.5) { 1 } else { -1 };
        Fault { kind, target, after_ms: 0, hold_ms, permille, skew_s }
    }
}

impl Iterator for Schedule {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        let kind = self.kind();
        let measured = matches!(kind, Kind::Leader503 | Kind::Crash | Kind::Stop);
        let share = if measured { 0.9 } else { 0.6 };
        let leader = kind == Kind::Leader503 || !self.only.is_empty() || self.random.random_bool(share);
        let standby = Target::Standby(self.random.random_range(0..64));
        let mut faults = vec![self.fault(kind, if leader { Target::Leader } else { standby })];
        // Measured kinds mostly run alone.
        if self.only.is_empty()
            && kind != Kind::Leader503
            && self.random.random_bool(if measured { 0.1 } else { 0.3 })
        {
            let kinds: Vec<Kind> = Kind::ALL
                .into_iter()
                .filter(|kind| self.means.allow(*kind) && !kind.is_everybodys() && *kind != Kind::Leader503)
                .collect();
            let second = kinds[self.random.random_range(0..kinds.len())];
            let target = Target::Standby(self.random.random_range(0..64));
            let mut fault = self.fault(second, target);
            fault.after_ms = self.random.random_range(0..=self.pace.lease_ms);
            faults.push(fault);
        }
        Some(Round { faults, rest_ms: self.random.random_range(0..=self.pace.lease_ms) })
    }
}
