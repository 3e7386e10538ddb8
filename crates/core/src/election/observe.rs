//! Observation: what the seat looked like when this node last saw or wrote it, who leads according to it, and whether the
//! store answers.

use crate::election::coordinator::{Coordinator, Phase};
use crate::election::event::Event;
use crate::election::io::{Effect, SeatAnswer, WriteAnswer};
use crate::election::seat::{Epoch, Seat, SeatState, Version};
use crate::id::NodeId;
use crate::mutants::Mutant;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Seen {
    Nothing,
    Absent,
    Unreadable { version: Version },
    Seat(SeenSeat),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SeenSeat {
    pub(crate) seat: Seat,
    pub(crate) version: Version,
    /// Known for seats that were read, not for those this node wrote.
    pub(crate) modified_ms: Option<u64>,
    /// When the read that first saw this version ended.
    pub(crate) since: Time,
}

/// From good to bad. A refusal is worse than silence and is reported even after it, because somebody has to fix it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Health {
    Good,
    Unavailable,
    Denied,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Learned {
    Changed,
    Unchanged,
    Failed { denied: bool },
}

impl Coordinator {
    /// This node's own writes are the surest observations: they update what is seen without a read.
    pub(crate) fn wrote(&mut self, seat: Seat, version: Version) {
        self.note_seat(&seat);
        self.pending.clear();
        self.seen = Seen::Seat(SeenSeat { seat, version, modified_ms: None, since: self.now });
    }

    pub(crate) fn learn(&mut self, answer: SeatAnswer, out: &mut Vec<Effect>) -> Learned {
        match answer {
            SeatAnswer::Unavailable => {
                self.note_health(Health::Unavailable, out);
                Learned::Failed { denied: false }
            }
            SeatAnswer::Denied => {
                self.note_health(Health::Denied, out);
                Learned::Failed { denied: true }
            }
            SeatAnswer::Unchanged => {
                self.note_health(Health::Good, out);
                Learned::Unchanged
            }
            SeatAnswer::Absent => {
                self.note_health(Health::Good, out);
                if self.seen == Seen::Absent {
                    return Learned::Unchanged;
                }
                self.pending.clear();
                self.distrust();
                self.seen = Seen::Absent;
                Learned::Changed
            }
            SeatAnswer::Unreadable { version, problem } => {
                self.note_health(Health::Good, out);
                if self.seen == (Seen::Unreadable { version: version.clone() }) {
                    return Learned::Unchanged;
                }
                self.distrust();
                self.seen = Seen::Unreadable { version };
                out.push(Effect::Emit(Event::SeatUnreadable { problem }));
                Learned::Changed
            }
            SeatAnswer::Found { seat, version, modified_ms } => {
                self.note_health(Health::Good, out);
                self.learn_seat(seat, version, modified_ms, out)
            }
        }
    }

    fn learn_seat(
        &mut self,
        seat: Seat,
        version: Version,
        modified_ms: u64,
        out: &mut Vec<Effect>,
    ) -> Learned {
        if let Seen::Seat(seen) = &mut self.seen
            && seen.version == version
        {
            seen.modified_ms = Some(modified_ms);
            return Learned::Unchanged;
        }
        let regressed = seat.epoch < self.highest;
        if regressed {
            out.push(Effect::Emit(Event::EpochRegressed { seen: self.highest, found: seat.epoch }));
            self.distrust();
        }
        // The same epoch with another holder: a record from before an epoch was used twice, perhaps even this node's own. It
        // says nothing about the present holder, who has not vacated.
        if seat.epoch == self.highest && self.top_holder.as_ref().is_some_and(|top| *top != seat.holder) {
            self.distrust();
        }
        self.note_seat(&seat);
        if let Some(terms) = seat.terms.filter(|_| seat.holder != self.me) {
            self.config.follow(terms);
        }
        // An unknown write was conditional on the version before this one; unless it *is* this one, it can no longer land.
        let any = Mutant::NonceIgnored.on();
        self.pending.retain(|write| write.nonce == seat.nonce || any);
        // If it is this one, it got through; only its answer did not.
        self.writes_fail &= self.pending.is_empty();
        // This names the present leader. A vacant seat or a record from the past does not; the end of the old leader is
        // reported by its own `LostLeadership`.
        if seat.state == SeatState::Held && seat.holder != self.me && !regressed {
            self.announce(seat.holder.node.clone(), seat.epoch, out);
        }
        self.seen = Seen::Seat(SeenSeat { seat, version, modified_ms: Some(modified_ms), since: self.now });
        Learned::Changed
    }

    fn note_seat(&mut self, seat: &Seat) {
        if seat.epoch >= self.highest {
            self.highest = seat.epoch;
            self.top_holder = Some(seat.holder.clone());
        }
        self.expiry_seen_ms = self.expiry_seen_ms.max(self.config.waits_ms(seat.lease));
    }

    /// Somebody outside removed a seat that this node has seen, perhaps before a rest. Its holder may act until its lease
    /// ends, so nobody claims before the holder would have been given up for dead anyway. A seat that was vacant, or this
    /// node's own, may have had a holder since that nobody saw. Only a leader knows better: it is the holder, and stops.
    ///
    /// The proof excludes such seats, and epochs would tell two leaders apart. But a command under `tenure exec` or `tenure
    /// lock` asks no fence: without this wait, deleting the seat of a healthy cluster would run two copies of it until the
    /// holder's next heartbeat.
    fn distrust(&mut self) {
        let leads = matches!(self.phase, Phase::Leading(_));
        if self.highest > Epoch(0) && !leads && !Mutant::VanishedSeatClaimed.on() {
            let expiry_ms = self.expiry_seen_ms.max(self.config.waits_ms(self.config.lease()));
            self.wait_out = self.wait_out.max(self.now + expiry_ms);
        }
    }

    /// Announces the leader, once per holder and epoch.
    pub(crate) fn announce(&mut self, node: NodeId, epoch: Epoch, out: &mut Vec<Effect>) {
        if self.announced.as_ref().is_some_and(|known| *known == (node.clone(), epoch)) {
            return;
        }
        let previous = self.announced.replace((node.clone(), epoch)).map(|(node, _)| node);
        out.push(Effect::Emit(Event::LeaderChanged { previous, new: node, epoch }));
    }

    /// Trouble is reported once when it begins, and again only if it gets worse. Its end is reported once nothing has failed
    /// for a whole lease, so that a faltering store does not cause an event every time. A successful read does not clear a
    /// failed write; otherwise a store that can be read but not written would recover with every look.
    fn note_health(&mut self, health: Health, out: &mut Vec<Effect>) {
        if health == Health::Good {
            let over = !self.writes_fail && self.now >= self.troubled + self.config.lease_ms;
            if self.health != Health::Good && over {
                self.health = Health::Good;
                out.push(Effect::Emit(Event::StoreRecovered));
            }
            return;
        }
        self.troubled = self.now;
        if health > self.health {
            self.health = health;
            let event = if health == Health::Denied { Event::StoreDenied } else { Event::StoreUnavailable };
            out.push(Effect::Emit(event));
        }
    }

    /// Notes what the outcome of a write, on whichever lane, says about the store's health.
    pub(crate) fn note_write(&mut self, answer: &WriteAnswer, out: &mut Vec<Effect>) {
        let health = match answer {
            WriteAnswer::Won(_) | WriteAnswer::Lost => Health::Good,
            WriteAnswer::Unknown | WriteAnswer::Unavailable => Health::Unavailable,
            WriteAnswer::Denied => Health::Denied,
        };
        self.writes_fail = health != Health::Good;
        self.note_health(health, out);
    }

    /// A probe or a list failed.
    pub(crate) fn note_trouble(&mut self, denied: bool, out: &mut Vec<Effect>) {
        self.note_health(if denied { Health::Denied } else { Health::Unavailable }, out);
    }
}
