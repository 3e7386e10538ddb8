//! The clauses of the proof that can be seen from outside, checked at every step. They know the truth, as the proof does: when
//! each write landed, and what every clock showed then.
//!
//! Not checked where an assumption of the proof does not hold: while somebody changes the seat by hand, and with clocks beyond
//! the promise. A crashed incarnation no longer acts, so nothing is checked for it.

use crate::caller_mistakes::CallerMistake;
use crate::checks::name;
use crate::model::{self, Step, Terms, is_over};
use crate::transition::Followed;
use crate::world::World;
use std::collections::BTreeMap;
use tenure_core::{
    Effect, Epoch, Expect, Input, Nonce, Request, Seat, SeatState, SeenView, Time, Version, View,
};

/// A write to the seat.
struct Write {
    seat: Seat,
    /// On the sender's clock; `None` if somebody outside sent it.
    sent: Option<Time>,
    /// What the clocks of all nodes showed when it landed.
    landed: Option<Vec<Time>>,
}

#[derive(Default)]
pub(crate) struct Monitors {
    writes: BTreeMap<Nonce, Write>,
    current: Option<Nonce>,
    /// The highest epoch for which an incarnation has sent a vacate.
    vacated: BTreeMap<u64, Epoch>,
    /// Landed claims and renewals of an incarnation, newest last.
    own: BTreeMap<u64, Vec<Nonce>>,
    /// The version that a node was shown to be long dead.
    aged: BTreeMap<u64, Version>,
    pub(crate) followed: Followed,
    /// How often a clause was checked.
    pub(crate) checks: u64,
}

impl World {
    /// Compares one step of a node with the model, and what it sends with the truth.
    pub(crate) fn follow(&mut self, node: usize, before: &View, input: &Input, effects: &[Effect]) {
        let (now, target) = (self.now, &self.nodes[node]);
        let local = target.computer.clock.local(now);
        let (me, config) = (target.core().me().clone(), &target.config);
        if let Some(version) = model::aged(before, &me, config, input) {
            self.monitors.aged.insert(target.life, version);
        }
        let terms = Terms { me: &me, config, aged: self.monitors.aged.get(&target.life) };
        let after = target.core().view();
        let step = Step { now: local, input, effects };
        let followed = model::follow(&terms, before, &step, &after, &mut self.monitors.followed);
        if let Err(what) = followed {
            self.violated(name::MODEL, || format!("{node}: {what}"));
        }
        for effect in effects {
            if let Effect::Request(_, Request::WriteSeat { seat, expect }) = effect {
                self.sends(node, &after, seat, expect);
            }
        }
    }

    fn monitored(&self) -> bool {
        self.modelled && !self.seat_edited && !self.clocks_beyond_drift && !self.store.ignores_conditions
    }

    fn sends(&mut self, node: usize, view: &View, seat: &Seat, expect: &Expect) {
        let (now, local) = (self.now, self.nodes[node].computer.clock.local(self.now));
        let write = Write { seat: seat.clone(), sent: Some(local), landed: None };
        self.monitors.writes.insert(seat.nonce, write);
        if seat.state == SeatState::Vacant {
            let vacated = self.monitors.vacated.entry(seat.holder.incarnation.0).or_default();
            *vacated = (*vacated).max(seat.epoch);
            return;
        }
        let SeenView::Record { seat: held, version, .. } = &view.seen else { return };
        let over = seat.renewals == 0
            && held.state == SeatState::Held
            && *expect == Expect::Version(version.clone());
        if !over || !self.monitored() {
            return;
        }
        self.monitors.checks += 1;
        let life = held.holder.incarnation.0;
        let Some(holder) = self.nodes.iter().position(|node| node.life == life) else { return };
        let landed = self.monitors.writes.get(&held.nonce).and_then(|write| write.landed.as_ref());
        let since = landed.and_then(|clocks| clocks.get(holder)).copied();
        let shows = self.nodes[holder].computer.clock.local(now);
        if since.is_none_or(|since| shows < since + held.lease.hold_ms) {
            let epoch = held.epoch;
            self.violated(name::M3, || {
                format!("{node} claims over {epoch:?}, landed at {since:?}, where its holder's clock shows {shows:?}")
            });
        }
    }

    /// A write has landed.
    pub(crate) fn seat_landed(&mut self, seat: &Seat) {
        let clocks: Vec<Time> = self.nodes.iter().map(|node| node.computer.clock.local(self.now)).collect();
        let unsent = Write { seat: seat.clone(), sent: None, landed: None };
        let write = self.monitors.writes.entry(seat.nonce).or_insert(unsent);
        write.landed = Some(clocks);
        if write.sent.is_some() && seat.state == SeatState::Held {
            self.monitors.own.entry(seat.holder.incarnation.0).or_default().push(seat.nonce);
        }
        self.monitors.current = Some(seat.nonce);
        for node in 0..self.nodes.len() {
            if self.nodes[node].alive {
                self.watch(node);
            }
        }
    }

    /// Checks every clause about this node now.
    pub(crate) fn watch(&mut self, node: usize) {
        if !self.monitored() {
            return;
        }
        self.monitors.checks += 1;
        let found = self.breaks(node);
        if let Some((check, what)) = found {
            self.violated(check, || format!("{node}: {what}"));
        }
    }

    fn breaks(&self, node: usize) -> Option<(&'static str, String)> {
        let (target, monitors) = (&self.nodes[node], &self.monitors);
        let (view, life, local) = (target.core().view(), target.life, target.computer.clock.local(self.now));
        let hold_ms = target.config.hold_ms();
        if let SeenView::Record { seat, since, .. } = &view.seen {
            let landed = monitors.writes.get(&seat.nonce).and_then(|write| write.landed.as_ref());
            // Nodes that joined later are not in the list: they did not exist when it landed.
            if landed.is_none_or(|clocks| clocks.get(node).is_some_and(|landed| landed > since)) {
                return Some((name::K1, format!("saw {seat:?} since {since:?}, landed {landed:?}")));
            }
        }
        let own = monitors.own.get(&life).map_or(&[][..], Vec::as_slice);
        let by = |epoch: Epoch, sent: Time| {
            let is = |write: &Write| write.seat.epoch == epoch && write.sent == Some(sent);
            own.iter().rev().any(|nonce| monitors.writes.get(nonce).is_some_and(is))
        };
        if let Some(lead) = view.lead.filter(|lead| !by(lead.epoch, lead.renewed)) {
            return Some((name::K3, format!("{lead:?} rests on no write that landed")));
        }
        if let Some(acting) = target.acting.filter(|acting| !model::is_known(&view, acting.epoch)) {
            return Some((name::K5, format!("{acting:?} runs, and the node does not know: {view:?}")));
        }
        let unchecked = self.mistake == Some(CallerMistake::DeadlineUnchecked);
        let acts = target.acting.filter(|_| target.acts(self.now, unchecked));
        if let Some(acting) = acts {
            let held =
                monitors.current.and_then(|nonce| monitors.writes.get(&nonce)).map(|write| &write.seat);
            let holds = held.is_some_and(|seat| {
                seat.state == SeatState::Held
                    && seat.holder.incarnation.0 == life
                    && seat.epoch == acting.epoch
            });
            if !holds {
                return Some((name::HOLDS_THE_SEAT, format!("{acting:?}, and the seat is {held:?}")));
            }
        }
        let over = |epoch: Epoch| is_over(&view, acts.map(|acting| acting.epoch), epoch);
        if let Some(epoch) = monitors.vacated.get(&life).filter(|epoch| !over(**epoch)) {
            return Some((name::L1, format!("{epoch:?} is being vacated: {view:?}")));
        }
        let newest = own.last().and_then(|nonce| monitors.writes.get(nonce))?;
        let epoch = newest.seat.epoch;
        let stands = monitors
            .current
            .and_then(|nonce| monitors.writes.get(&nonce))
            .is_some_and(|current| current.seat.epoch == epoch && current.seat.state == SeatState::Held);
        let past = newest.sent.is_some_and(|sent| local >= sent + hold_ms);
        if !stands && !past && !over(epoch) {
            return Some((name::L2, format!("its record of {epoch:?} is gone: {view:?}")));
        }
        None
    }
}
