//! Requests between nodes, workers and the store, and what happens to them on the way.

use crate::fault::FaultKind;
use crate::kind::Kind;
use crate::queue::Happening;
use crate::shell::{PartName, Who};
use crate::store::{Folder, Op, Said};
use crate::world::World;
use rand::RngExt;
use tenure_core::document::Removal;
use tenure_core::{RequestId, WriteAnswer};

/// The latest landing of a late write, so that a world can be known to be calm.
pub(crate) const LATE_MAX_MS: u64 = 12_000;
/// The longest time a slow message takes.
const SLOW_MAX_MS: u64 = 6000;
/// The time limit of a whole list, in request timeouts, as in the stores.
const LIST_TIMEOUTS_MAX: u64 = tenure_store::LIST_TIMEOUTS_MAX as u64;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) who: Who,
    pub(crate) part: PartName,
    /// The number of its machine.
    pub(crate) number: u64,
    /// The incarnation of its process.
    pub(crate) life: u64,
    pub(crate) id: RequestId,
    /// When it was sent, in true time.
    pub(crate) sent: u64,
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    LoseRequest,
    LoseAnswer,
    Late(u64),
    Echo,
    Unavailable,
    UnknownLanded,
    UnknownNotLanded,
    Denied,
    StaleList,
    /// It takes this long to arrive, and this long to be answered.
    Slow(u64, u64),
}

/// What happens to the answer of a request that landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// It comes after this long.
    Answer(u64),
    /// It never comes.
    Nothing,
    /// It comes after this long, as the refusal of the client's own retry.
    Echo(u64),
    /// It comes after this long, as a failure of unknown effect.
    Unknown(u64),
    /// A list: comes after this long, and shows an earlier state.
    Stale(u64, usize),
}

const PER_REQUEST: [(FaultKind, Fate); 9] = [
    (FaultKind::LostRequest, Fate::LoseRequest),
    (FaultKind::LostAnswer, Fate::LoseAnswer),
    (FaultKind::LateLanding, Fate::Late(0)),
    (FaultKind::RetryEcho, Fate::Echo),
    (FaultKind::Unavailable, Fate::Unavailable),
    (FaultKind::UnknownLanded, Fate::UnknownLanded),
    (FaultKind::UnknownNotLanded, Fate::UnknownNotLanded),
    (FaultKind::Denied, Fate::Denied),
    (FaultKind::StaleList, Fate::StaleList),
];

impl World {
    /// Draws a fault for one request, of a kind that may strike.
    pub(crate) fn draw_fate(&mut self) -> Option<(FaultKind, Fate)> {
        let (kind, mut fate) = PER_REQUEST[self.rng.random_range(0..PER_REQUEST.len())];
        let late = self.rng.random_range(self.timeout_ms..LATE_MAX_MS);
        if kind == FaultKind::LateLanding {
            fate = Fate::Late(late);
        }
        self.mix.has(kind).then_some((kind, fate))
    }

    fn fate(&mut self, who: Who, kind: Kind) -> Fate {
        let computer = self.computer_mut(who);
        if computer.cut_out {
            return Fate::LoseRequest;
        }
        let faults = &mut computer.faults;
        let waiting = faults.iter().position(|(wanted, _)| wanted.is_none_or(|wanted| wanted == kind));
        if let Some((_, fate)) = waiting.and_then(|index| faults.remove(index)) {
            return fate;
        }
        let burst = computer.burst;
        if burst > 0
            && self.rng.random_range(0..1000) < burst
            && let Some((kind, fate)) = self.draw_fate()
        {
            self.strike(kind, who);
            return fate;
        }
        if self.far.writes && matches!(kind, Kind::Claim | Kind::Renew | Kind::Vacate | Kind::Presence) {
            let ms = crate::far_region::write_ms(&mut self.rng);
            let out = self.rng.random_range(0..=ms);
            return Fate::Slow(out, ms - out);
        }
        if self.mix.has(FaultKind::SlowNetwork) && self.rng.random_range(0..100) < 4 {
            // A Pareto tail: most are a little slow, a few are very slow.
            let slow = |share: f64| ((40.0 / share.max(1e-4)) as u64).min(SLOW_MAX_MS);
            let fate = Fate::Slow(slow(self.rng.random()), slow(self.rng.random()));
            self.strike(FaultKind::SlowNetwork, who);
            return fate;
        }
        Fate::Pass
    }

    /// Sends a request: when it lands, and when its sender hears of it or gives up.
    pub(crate) fn send(&mut self, from: Sender, op: Op) {
        let (now, who, kind) = (self.now, from.who, Kind::of(from.part, &op));
        self.count_sent(who, kind);
        self.trace.sent(now, who, kind, from.id);
        let (low, high) = self.latency_ms;
        let (out, back) = (self.rng.random_range(low..=high), self.rng.random_range(low..=high));
        let fate = self.fate(who, kind);
        let is_list = matches!(op, Op::List(_));
        let (lands_in, then) = match fate {
            Fate::Pass => (out, Then::Answer(back)),
            Fate::Slow(out, back) => (out, Then::Answer(back)),
            Fate::LoseAnswer => (out, Then::Nothing),
            Fate::Late(ms) => (ms, Then::Nothing),
            Fate::Echo if matches!(op, Op::Put(_, _, Some(_))) => (out, Then::Echo(back)),
            Fate::UnknownLanded => (out, Then::Unknown(back)),
            Fate::StaleList if is_list => (out, Then::Stale(back, self.rng.random_range(0..6))),
            Fate::Echo | Fate::StaleList => (out, Then::Answer(back)),
            Fate::LoseRequest => {
                let timeout = self.request_timeout(&op, true);
                return self.give_up(&from, timeout, op.unanswered());
            }
            Fate::Unavailable | Fate::Denied => {
                return self.answer_at(now + out + back, &from, op.refused(fate == Fate::Denied));
            }
            Fate::UnknownNotLanded => return self.answer_at(now + out + back, &from, op.unanswered()),
        };
        let timeout = self.request_timeout(&op, then == Then::Nothing);
        let sure = match then {
            Then::Answer(back) | Then::Echo(back) | Then::Unknown(back) | Then::Stale(back, _) => {
                lands_in + back < timeout / 2 && !self.computer(who).cut_in
            }
            Then::Nothing => false,
        };
        if !sure {
            self.give_up(&from, timeout, op.unanswered());
        }
        self.schedule(now + lands_in, who, Happening::Land { from, op, then });
    }

    fn request_timeout(&mut self, op: &Op, lost: bool) -> u64 {
        match op {
            // One page is lost, after any number of others that took their time.
            Op::List(Folder::Workers | Folder::Inboxes) if lost => {
                self.timeout_ms * self.rng.random_range(1..=LIST_TIMEOUTS_MAX)
            }
            Op::List(Folder::Workers | Folder::Inboxes) => self.timeout_ms * LIST_TIMEOUTS_MAX,
            Op::List(Folder::Presences) | Op::Probe | Op::Get(..) | Op::Put(..) | Op::Remove(_) => {
                self.timeout_ms
            }
        }
    }

    /// The sender waits by its own clock; if that stands still, true time decides when it gives up.
    fn give_up(&mut self, from: &Sender, timeout: u64, said: Said) {
        let (now, clock) = (self.now, &self.computer(from.who).clock);
        let at = clock.when(clock.local(now) + timeout).unwrap_or(now + timeout);
        self.answer_at(at, from, said);
    }

    fn answer_at(&mut self, at: u64, from: &Sender, said: Said) {
        let Sender { who, part, number, id, .. } = *from;
        self.schedule(at, who, Happening::Answer { part, number, id, said });
    }

    /// A request takes effect, whether its sender is alive or not.
    pub(crate) fn land(&mut self, from: &Sender, op: &Op, then: Then) {
        let (now, stale) = match then {
            // On a racing clock even a young list is older than a worker's timeout.
            Then::Stale(_, back) => (self.now, Some(back).filter(|_| !self.clocks_beyond_drift)),
            Then::Answer(_) | Then::Nothing | Then::Echo(_) | Then::Unknown(_) => (self.now, None),
        };
        let said = self.perform(from, op, stale);
        let (back, said) = match (then, said) {
            (Then::Nothing, _) => return,
            (Then::Unknown(back), _) => (back, op.unanswered()),
            // How a client whose own retry is refused sees a write that happened.
            (Then::Echo(back), Said::Written(WriteAnswer::Won(_))) => {
                (back, Said::Written(WriteAnswer::Lost))
            }
            (Then::Answer(back) | Then::Echo(back) | Then::Stale(back, _), said) => (back, said),
        };
        // If the way back was cut in the meantime, the sender gives up.
        match self.computer(from.who).cut_in {
            false => self.answer_at(now + back, from, said),
            true => self.answer_at(now + self.timeout_ms, from, op.unanswered()),
        }
    }

    fn perform(&mut self, from: &Sender, op: &Op, stale: Option<usize>) -> Said {
        let now = self.now;
        match op {
            Op::Probe => Said::Probed(self.store.probe()),
            Op::Get(key, unless) => self.store.read(key, unless.as_ref()),
            Op::Put(key, _, expect) if !self.store.holds(key, expect.as_ref()) => {
                Said::Written(WriteAnswer::Lost)
            }
            Op::Put(key, value, _) => {
                let (version, before) = self.store.put(now, key.clone(), value.clone(), false);
                self.landed(key, before.as_ref(), Some(value), Some(from));
                Said::Written(WriteAnswer::Won(version))
            }
            Op::Remove(key) => {
                let before = self.store.remove(now, key);
                self.landed(key, before.as_ref(), None, Some(from));
                Said::Removed(Removal::Gone)
            }
            Op::List(folder) => {
                let (until, list) = self.store.list(now, *folder, stale);
                self.listed(from, until);
                Said::Listed(Some(list))
            }
        }
    }
}
