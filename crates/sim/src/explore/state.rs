//! A state of the explored world.

use super::Limits;
use crate::checks::{Violation, name};
use crate::model::{is_known, is_over};
use crate::transition::Followed;
use tenure_core::{
    Config, Coordinator, Epoch, Holder, Incarnation, Input, NodeId, Nonce, Request, RequestId, Seat,
    SeatAnswer, SeatState, Time, Version, WakeToken, WriteAnswer,
};

/// One tick of true time. The core retries after 10 ms at the earliest, so nothing finer happens.
pub(super) const TICK_MS: u64 = 10;
/// How many ticks a sender waits before it gives up.
pub(super) const TIMEOUT_TICKS: u8 = 2;
/// How long a record has been there is counted only up to this: the slowest clock has counted a hold by then.
pub(super) const STOOD_TICKS: u8 = 5;
/// What every node's clock shows in a state relative to now. No setting is longer than a third of it.
pub(super) const NOW: u64 = 300;

/// Numbers small enough for states to recur: heartbeat 20, hold 50, wind-down 40, expiry 100.
fn config() -> Config {
    Config {
        heartbeat_ms: 20,
        lease_ms: 25,
        hold_factor_permille: 2000,
        expiry_factor_permille: 4000,
        takeover_delay_ms: 0,
        election_interval_ms: 20,
        startup_jitter_max_ms: 0,
        settle_ms: 0,
        presence_ms: 1 << 40,
        drain_ms: 20,
        ..Config::default()
    }
}

/// A crashed leader is replaced within the bound, and a node that has just stepped down claims nothing for a while.
pub(super) fn live_ms() -> u64 {
    let config = config();
    config.failover_bound_ms() + 2 * config.election_interval_ms
}

#[derive(Clone, Hash)]
pub(super) struct Node {
    pub(super) core: Coordinator,
    pub(super) alive: bool,
    pub(super) paused: bool,
    pub(super) held: Vec<Input>,
    pub(super) acting: Option<(Epoch, Time)>,
    pub(super) wake: Option<(WakeToken, Time)>,
    pub(super) lost: Epoch,
    /// What its clock shows.
    pub(super) local: Time,
}

/// A seat request between its sender and the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wire {
    pub(super) node: u8,
    pub(super) life: u64,
    pub(super) id: RequestId,
    pub(super) request: Request,
    pub(super) age: u8,
    /// It may be slow; all others are served within the tick.
    pub(super) slow: bool,
    /// It has landed, and this answer is on its way.
    pub(super) answer: Option<SeatOutcome>,
    /// Its sender has given up or is dead.
    pub(super) orphan: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum SeatOutcome {
    Read(SeatAnswer),
    Written(WriteAnswer),
}

/// A record that has landed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Landed {
    pub(super) nonce: Nonce,
    pub(super) epoch: Epoch,
    /// How long ago, up to [`STOOD_TICKS`].
    pub(super) ticks: u8,
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) seat: Option<Seat>,
    pub(super) wires: Vec<Wire>,
    pub(super) config: Config,
    pub(super) rates: [u64; 3],
    pub(super) lives: u64,
    pub(super) top: Epoch,
    /// Which incarnation leads or led each epoch.
    pub(super) led: Vec<u64>,
    pub(super) faults: u8,
    pub(super) crashes: u8,
    pub(super) pauses: u8,
    pub(super) step_downs: u8,
    /// What no node knows but the clauses need: the records that landed, as long as some node may still hear of them.
    pub(super) landed: Vec<Landed>,
    pub(super) clauses: bool,
    pub(super) replay: bool,
    pub(super) followed: Followed,
    pub(super) violation: Option<Violation>,
}

/// The version of a record is its nonce: equal bytes, equal version, as on most engines.
pub(super) fn version_of(seat: &Seat) -> Version {
    Version::new(&format!("{}-{}", seat.nonce.incarnation.0, seat.nonce.sequence))
}

impl State {
    /// All nodes have joined and found an empty store.
    pub(super) fn start(limits: &Limits) -> State {
        let mut state = State {
            nodes: Vec::new(),
            seat: None,
            wires: Vec::new(),
            config: config(),
            rates: limits.rates,
            lives: 0,
            top: Epoch(0),
            led: vec![0; limits.epochs as usize + 2],
            faults: limits.faults,
            crashes: limits.crashes,
            pauses: limits.pauses,
            step_downs: limits.step_downs,
            landed: Vec::new(),
            clauses: limits.clauses,
            replay: limits.replay,
            followed: Followed::default(),
            violation: None,
        };
        for index in 0..limits.nodes {
            let id = NodeId::new(["a", "b", "c"][index]).expect("valid");
            state.lives += 1;
            let me = Holder { node: id, incarnation: Incarnation(state.lives) };
            state.nodes.push(Node {
                core: Coordinator::new(config(), me),
                alive: true,
                paused: false,
                held: Vec::new(),
                acting: None,
                wake: None,
                lost: Epoch(0),
                local: Time(NOW),
            });
        }
        for index in 0..limits.nodes {
            state.feed(index, Input::Start { random: 0 });
        }
        state
    }

    pub(super) fn violated(&mut self, check: &'static str, what: String) {
        self.violation.get_or_insert(Violation { at: 0, check, what });
    }

    pub(super) fn acts(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.alive && node.acting.is_some_and(|(_, deadline)| node.local < deadline)
    }

    /// Whether this state is beyond the limits.
    pub(super) fn beyond(&self, limits: &Limits) -> bool {
        self.top.0 > limits.epochs
    }

    pub(super) fn check(&mut self) {
        let acting: Vec<usize> = (0..self.nodes.len()).filter(|node| self.acts(*node)).collect();
        if acting.len() > 1 {
            self.violated(name::ONE_ACTS, format!("nodes {acting:?} act at once"));
        }
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let past = node
                .core
                .lease()
                .filter(|(_, deadline)| node.alive && !node.paused && *deadline <= node.local);
            // The clock has advanced, but the node has not had its turn yet: its wake-up is due now.
            let due = node.wake.is_some_and(|(_, at)| at <= node.local);
            if let Some((epoch, _)) = past.filter(|_| !due) {
                self.violated(name::LIVE_LEASE, format!("{index} leads {epoch:?} past its deadline"));
            }
        }
        let watched = if self.clauses { self.nodes.len() } else { 0 };
        for index in 0..watched {
            if let Some((check, what)) = self.breaks(index).filter(|_| self.nodes[index].alive) {
                self.violated(check, format!("{index}: {what}"));
            }
        }
    }

    /// The clauses of the proof that can be checked in a single state; L2 for the record that a leader leads by. M3, K1 and K3
    /// are checked in the step that could break them, see `follow`.
    fn breaks(&self, index: usize) -> Option<(&'static str, String)> {
        let node = &self.nodes[index];
        let (view, life) = (node.core.view(), node.core.me().incarnation.0);
        let acts = node.acting.filter(|_| self.acts(index)).map(|(epoch, _)| epoch);
        let holds = |epoch: Epoch| {
            self.seat.as_ref().is_some_and(|seat| {
                seat.state == SeatState::Held && seat.holder.incarnation.0 == life && seat.epoch == epoch
            })
        };
        if let Some((epoch, _)) = node.acting.filter(|(epoch, _)| !is_known(&view, *epoch)) {
            return Some((name::K5, format!("{epoch:?} runs, and the node does not know: {view:?}")));
        }
        if let Some(epoch) = acts.filter(|epoch| !holds(*epoch)) {
            return Some((name::HOLDS_THE_SEAT, format!("acts in {epoch:?}: {:?}", self.seat)));
        }
        let over = |epoch: Epoch| is_over(&view, acts, epoch);
        let under_way = self.wires.iter().filter_map(|wire| match &wire.request {
            Request::WriteSeat { seat, .. } => Some(seat),
            Request::Probe
            | Request::ReadSeat { .. }
            | Request::WritePresence { .. }
            | Request::RemovePresence
            | Request::ListNodes => None,
        });
        let mut vacates = under_way
            .chain(&self.seat)
            .filter(|seat| seat.state == SeatState::Vacant && seat.holder.incarnation.0 == life);
        if let Some(seat) = vacates.find(|seat| !over(seat.epoch)) {
            return Some((name::L1, format!("{:?} is being vacated: {view:?}", seat.epoch)));
        }
        let lead = view.lead.filter(|lead| node.local < lead.renewed + self.config.hold_ms())?;
        let gone = !holds(lead.epoch) && !over(lead.epoch);
        gone.then(|| (name::L2, format!("its record of {:?} is gone: {view:?}", lead.epoch)))
    }
}

/// The violation for a failed assertion of the core.
pub(super) fn assertion(panic: Box<dyn std::any::Any + Send>) -> Violation {
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Violation { at: 0, check: name::ASSERTION, what: said.unwrap_or_default() }
}
