//! What may happen next, and how it happens.

use super::Limits;
use super::state::{Landed, STOOD_TICKS, SeatOutcome, State, TICK_MS, TIMEOUT_TICKS, Wire, version_of};
use crate::checks::name;
use crate::model::{self, Step, Terms};
use std::collections::VecDeque;
use tenure_core::{
    Answer, Coordinator, Effect, Epoch, Event, Expect, Holder, Incarnation, Input, LeadView, NodeEntry,
    NodesAnswer, Nonce, ProbeAnswer, Request, Role, Seat, SeatAnswer, SeatState, SeenView, Time, Version,
    View, WriteAnswer,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Move {
    /// Time advances by one tick.
    Tick,
    /// The wake-up that is due.
    Wake(u8),
    /// A request or its answer is slow from now on, or never comes.
    Delay(u8),
    /// A request takes effect, and its answer is on its way.
    Land(u8),
    /// An answer arrives.
    Answer(u8),
    /// A request takes effect and is answered at once.
    Serve(u8),
    /// The sender gives up; the request may still land.
    GiveUp(u8),
    /// A request is lost on its way, or refused without effect: `Unknown` or `Unavailable` at once.
    Drop(u8),
    /// A request whose sender gave up is lost for good.
    Forget(u8),
    /// The write lands, and the client's own retry is refused.
    Echo(u8),
    /// A process dies.
    Crash(u8),
    /// A dead node starts a new life.
    Restart(u8),
    /// A process stands still.
    Pause(u8),
    /// A paused process resumes.
    Resume(u8),
    /// The leader is asked to step down.
    StepDown(u8),
}

impl State {
    pub(super) fn moves(&self, _limits: &Limits) -> Vec<Move> {
        let mut moves = Vec::new();
        let mut idle = true;
        for (index, node) in self.nodes.iter().enumerate() {
            let at = index as u8;
            if !node.alive {
                moves.push(Move::Restart(at));
                continue;
            }
            if node.paused {
                moves.push(Move::Resume(at));
                continue;
            }
            if node.wake.is_some_and(|(_, due)| due <= node.local) {
                moves.push(Move::Wake(at));
                idle = false;
            }
            if self.crashes > 0 {
                moves.push(Move::Crash(at));
            }
            if self.pauses > 0 && node.core.role() != Some(Role::Standby) {
                moves.push(Move::Pause(at));
            }
            if self.step_downs > 0 && node.core.role() == Some(Role::Leader) {
                moves.push(Move::StepDown(at));
            }
        }
        for (index, wire) in self.wires.iter().enumerate() {
            let at = index as u8;
            if wire.orphan {
                moves.extend([Move::Land(at), Move::Forget(at)]);
                continue;
            }
            let late = wire.age >= TIMEOUT_TICKS;
            // Served within its tick, unless a fault was spent on it. Otherwise the relative phases of polls and renewals would
            // make up nearly all states, and nothing goes wrong in those.
            idle &= (wire.slow && !late) || self.nodes[usize::from(wire.node)].paused;
            if wire.answer.is_some() {
                moves.push(Move::Answer(at));
            } else {
                moves.push(Move::Serve(at));
            }
            if wire.slow {
                if wire.answer.is_none() {
                    moves.push(Move::Land(at));
                }
                if late {
                    moves.push(Move::GiveUp(at));
                }
            } else if self.faults > 0 {
                moves.extend([Move::Delay(at), Move::Drop(at)]);
                if matches!(wire.request, Request::WriteSeat { .. }) {
                    moves.push(Move::Echo(at));
                }
            }
        }
        if idle {
            moves.push(Move::Tick);
        }
        moves
    }

    pub(super) fn make(&mut self, step: &Move, _limits: &Limits) {
        match *step {
            Move::Tick => self.tick(),
            Move::Wake(node) => {
                let index = usize::from(node);
                if let Some((token, _)) = self.nodes[index].wake.take() {
                    self.feed(index, Input::Wake(token));
                }
            }
            Move::Land(wire) => {
                let outcome = self.apply(usize::from(wire));
                let wire = usize::from(wire);
                if self.wires[wire].orphan {
                    self.wires.remove(wire);
                } else {
                    self.wires[wire].answer = Some(outcome);
                }
            }
            Move::Serve(wire) => {
                let outcome = self.apply(usize::from(wire));
                self.answer(usize::from(wire), outcome);
            }
            Move::Answer(wire) => {
                if let Some(outcome) = self.wires[usize::from(wire)].answer.clone() {
                    self.answer(usize::from(wire), outcome);
                }
            }
            Move::Echo(wire) => {
                self.faults -= 1;
                self.apply(usize::from(wire));
                self.answer(usize::from(wire), SeatOutcome::Written(WriteAnswer::Lost));
            }
            Move::Delay(wire) => {
                self.faults -= 1;
                self.wires[usize::from(wire)].slow = true;
            }
            Move::GiveUp(wire) => self.give_up(usize::from(wire)),
            Move::Drop(wire) => {
                self.faults -= 1;
                let outcome = match self.wires[usize::from(wire)].request {
                    Request::WriteSeat { .. } => SeatOutcome::Written(WriteAnswer::Unknown),
                    Request::Probe
                    | Request::ReadSeat { .. }
                    | Request::WritePresence { .. }
                    | Request::RemovePresence
                    | Request::ListNodes => SeatOutcome::Read(SeatAnswer::Unavailable),
                };
                self.answer(usize::from(wire), outcome);
            }
            Move::Forget(wire) => drop(self.wires.remove(usize::from(wire))),
            Move::Crash(node) => self.crash(usize::from(node)),
            Move::Restart(node) => self.restart(usize::from(node)),
            Move::Pause(node) => {
                self.pauses -= 1;
                self.nodes[usize::from(node)].paused = true;
            }
            Move::Resume(node) => {
                self.nodes[usize::from(node)].paused = false;
                for input in std::mem::take(&mut self.nodes[usize::from(node)].held) {
                    self.feed(usize::from(node), input);
                }
            }
            Move::StepDown(node) => {
                self.step_downs -= 1;
                self.feed(usize::from(node), Input::StepDown);
            }
        }
        self.check();
    }

    fn tick(&mut self) {
        for (node, rate) in self.nodes.iter_mut().zip(self.rates) {
            node.local = node.local + TICK_MS * rate / 1000;
        }
        for landed in &mut self.landed {
            landed.ticks = (landed.ticks + 1).min(STOOD_TICKS);
        }
        for wire in &mut self.wires {
            wire.age = (wire.age + 1).min(TIMEOUT_TICKS);
        }
    }

    /// The request takes effect.
    fn apply(&mut self, wire: usize) -> SeatOutcome {
        let (request, life) = (self.wires[wire].request.clone(), self.wires[wire].life);
        match request {
            Request::WriteSeat { seat, expect } => {
                let holds = match (&expect, &self.seat) {
                    (Expect::Absent, None) => true,
                    (Expect::Version(version), Some(seat)) => *version == version_of(seat),
                    (Expect::Absent, Some(_)) | (Expect::Version(_), None) => false,
                };
                if !holds {
                    return SeatOutcome::Written(WriteAnswer::Lost);
                }
                self.lands(life, &seat);
                let version = version_of(&seat);
                self.landed.push(Landed { nonce: seat.nonce, epoch: seat.epoch, ticks: 0 });
                self.seat = Some(seat);
                SeatOutcome::Written(WriteAnswer::Won(version))
            }
            Request::ReadSeat { unless } => SeatOutcome::Read(match &self.seat {
                None => SeatAnswer::Absent,
                Some(seat) if unless.is_some_and(|known| known == version_of(seat)) => SeatAnswer::Unchanged,
                Some(seat) => {
                    SeatAnswer::Found { seat: seat.clone(), version: version_of(seat), modified_ms: 1 }
                }
            }),
            Request::Probe | Request::WritePresence { .. } | Request::RemovePresence | Request::ListNodes => {
                unreachable!("answered at once, never on the wire")
            }
        }
    }

    fn lands(&mut self, life: u64, seat: &Seat) {
        let own = seat.nonce.incarnation.0 == life && seat.holder.incarnation.0 == life;
        if seat.state == SeatState::Held && seat.renewals == 0 {
            if seat.epoch <= self.top {
                self.violated(name::EPOCHS_RISE, format!("{:?} claimed after {:?}", seat.epoch, self.top));
            }
            self.top = self.top.max(seat.epoch);
            return;
        }
        let same = self.seat.as_ref().is_some_and(|old| {
            old.holder == seat.holder && old.epoch == seat.epoch && old.state == SeatState::Held
        });
        if !own || !same {
            self.violated(name::OWN_RECORD, format!("life {life} writes {seat:?}"));
        }
    }

    /// An answer reaches its node, or waits until the node resumes.
    fn answer(&mut self, wire: usize, outcome: SeatOutcome) {
        let Wire { node, id, orphan, .. } = self.wires.remove(wire);
        if orphan {
            return;
        }
        let answer = match outcome {
            SeatOutcome::Read(answer) => Answer::Seat(answer),
            SeatOutcome::Written(answer) => Answer::SeatWritten(answer),
        };
        self.feed(usize::from(node), Input::Answer { id, answer });
    }

    fn give_up(&mut self, wire: usize) {
        let (node, id) = (usize::from(self.wires[wire].node), self.wires[wire].id);
        let answer = self.wires[wire].request.unanswered();
        let landed = self.wires[wire].answer.is_some();
        let write = matches!(self.wires[wire].request, Request::WriteSeat { .. });
        if landed || !write {
            self.wires.remove(wire);
        } else {
            self.wires[wire].orphan = true;
        }
        self.feed(node, Input::Answer { id, answer });
    }

    fn crash(&mut self, node: usize) {
        self.crashes -= 1;
        let target = &mut self.nodes[node];
        (target.alive, target.acting, target.wake) = (false, None, None);
        target.held.clear();
        self.wires.retain_mut(|wire| {
            let own = usize::from(wire.node) == node;
            let write = matches!(wire.request, Request::WriteSeat { .. });
            wire.orphan |= own;
            !own || (write && wire.answer.is_none())
        });
    }

    fn restart(&mut self, node: usize) {
        self.lives += 1;
        let target = &mut self.nodes[node];
        let me = Holder { node: target.core.me().node.clone(), incarnation: Incarnation(self.lives) };
        target.core = Coordinator::new(self.config.clone(), me);
        (target.alive, target.paused, target.lost) = (true, false, Epoch(0));
        self.feed(node, Input::Start { random: 0 });
    }

    /// Feeds an input, and whatever follows from it at once.
    pub(super) fn feed(&mut self, node: usize, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let target = &mut self.nodes[node];
            if !target.alive {
                return;
            }
            if target.paused {
                target.held.push(input);
                continue;
            }
            let mut effects = Vec::new();
            if let Input::ProcessesStopped { epoch } = &input {
                target.acting.take_if(|(acting, _)| acting == epoch);
            }
            let told = (self.clauses || self.replay).then(|| (target.core.view(), input.clone()));
            target.core.step(target.local, input, &mut effects);
            if let Some((before, input)) = told {
                self.follow(node, &before, &input, &effects);
            }
            for effect in effects {
                inputs.extend(self.carry_out(node, effect));
            }
        }
    }

    /// Compares a step with the model, and with the clauses that it could break.
    fn follow(&mut self, node: usize, before: &View, input: &Input, effects: &[Effect]) {
        let target = &self.nodes[node];
        let terms = Terms { me: target.core.me(), config: &self.config, aged: None };
        let step = Step { now: target.local, input, effects };
        let after = target.core.view();
        let followed = model::follow(&terms, before, &step, &after, &mut self.followed);
        // A violated clause says more than a failed comparison.
        let broken = || self.claims_early(effects).or_else(|| self.knows_wrong(node, before, &after));
        if let Some((check, what)) = self.clauses.then(broken).flatten() {
            self.violated(check, format!("{node}: {what}"));
        }
        if let Err(what) = followed
            && self.replay
        {
            self.violated(name::MODEL, format!("{node}: {what}"));
        }
    }

    fn stood(&self, nonce: Nonce) -> Option<&Landed> {
        self.landed.iter().find(|landed| landed.nonce == nonce)
    }

    /// How long the record has been there, on this node's clock.
    fn stood_ms(&self, node: usize, landed: &Landed) -> u64 {
        u64::from(landed.ticks) * TICK_MS * self.rates[node] / 1000
    }

    /// M3: a claim on a held record, by the holder's clock. Ignores a claim based on an older record than the one on the seat: it
    /// cannot land.
    fn claims_early(&self, effects: &[Effect]) -> Option<(&'static str, String)> {
        let held = self.seat.as_ref().filter(|seat| seat.state == SeatState::Held)?;
        let claims = |effect: &Effect| {
            let Effect::Request(_, Request::WriteSeat { seat, expect }) = effect else { return false };
            let claim = seat.renewals == 0 && seat.state == SeatState::Held;
            claim && *expect == Expect::Version(version_of(held))
        };
        let holder = self.nodes.iter().position(|node| node.core.me().node == held.holder.node)?;
        let (stood_ms, hold_ms) =
            (self.stood(held.nonce).map_or(0, |landed| self.stood_ms(holder, landed)), self.config.hold_ms());
        let early = stood_ms < hold_ms && effects.iter().any(claims);
        early.then(|| (name::M3, format!("claims over a record of {stood_ms} of {hold_ms} ms")))
    }

    /// K1: what the node newly saw had landed by then. K3: a new lease counts from the sending of an own write that landed.
    fn knows_wrong(&self, node: usize, before: &View, after: &View) -> Option<(&'static str, String)> {
        if let SeenView::Record { seat, since, .. } = &after.seen
            && after.seen != before.seen
        {
            let landed = self.stood(seat.nonce);
            let long_ago = |landed: &Landed| landed.ticks == STOOD_TICKS;
            let by_then = |landed: &Landed| self.nodes[node].local.0 <= since.0 + self.stood_ms(node, landed);
            if !landed.is_some_and(|landed| long_ago(landed) || by_then(landed)) {
                return Some((name::K1, format!("saw {seat:?} since {since:?}: {landed:?}")));
            }
        }
        let told = |lead: LeadView| (lead.epoch, lead.renewed);
        let lead = after.lead.filter(|lead| before.lead.map(told) != Some(told(*lead)))?;
        let in_flight =
            before.flight.iter().filter_map(|(_, sent, seat)| Some((seat.as_ref()?.nonce, *sent)));
        let mut written = in_flight.chain(before.pending.iter().copied());
        let rests = written.any(|(nonce, sent)| {
            sent == lead.renewed && self.stood(nonce).is_some_and(|landed| landed.epoch == lead.epoch)
        });
        (!rests).then(|| (name::K3, format!("{lead:?} rests on no write that landed: {before:?}")))
    }

    /// Carries out an effect; returns any immediate answer.
    fn carry_out(&mut self, node: usize, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Request(id, request) => {
                let life = self.nodes[node].core.me().incarnation.0;
                let at_once = match &request {
                    Request::Probe => Some(Answer::Probe(ProbeAnswer::Safe)),
                    Request::WritePresence { .. } => {
                        Some(Answer::PresenceWritten(WriteAnswer::Won(Version::new("p"))))
                    }
                    Request::RemovePresence => Some(Answer::PresenceRemoved),
                    Request::ListNodes => {
                        Some(Answer::Nodes(NodesAnswer::Found { nodes: self.entries(), more: false }))
                    }
                    Request::ReadSeat { .. } | Request::WriteSeat { .. } => None,
                };
                if let Some(answer) = at_once {
                    return Some(Input::Answer { id, answer });
                }
                let busy = self.wires.iter().any(|wire| usize::from(wire.node) == node && !wire.orphan);
                if busy {
                    self.violated(name::ONE_SEAT_REQUEST, format!("{node} sends {request:?} beside another"));
                }
                let wire = Wire {
                    node: node as u8,
                    life,
                    id,
                    request,
                    age: 0,
                    slow: false,
                    answer: None,
                    orphan: false,
                };
                self.wires.push(wire);
            }
            Effect::Wake { token, at } => self.nodes[node].wake = Some((token, at)),
            Effect::StartProcesses { epoch, deadline } => self.start_work(node, epoch, deadline),
            Effect::ExtendLease { epoch, deadline } => {
                let acting = &mut self.nodes[node].acting;
                if acting.is_some_and(|(acts_in, _)| acts_in == epoch) {
                    *acting = Some((epoch, deadline));
                }
            }
            Effect::StopProcesses { epoch, .. } => return Some(Input::ProcessesStopped { epoch }),
            Effect::Emit(Event::LostLeadership { epoch, .. }) => {
                let target = &mut self.nodes[node];
                target.lost = target.lost.max(epoch);
            }
            Effect::Emit(_) | Effect::Stopped(_) => {}
        }
        None
    }

    fn start_work(&mut self, node: usize, epoch: Epoch, deadline: Time) {
        let target = &self.nodes[node];
        let life = target.core.me().incarnation.0;
        if epoch <= target.lost {
            self.violated(name::LED_ONCE, format!("{node} leads {epoch:?} again"));
        }
        if let Some(led) = self.led.get_mut(epoch.0 as usize) {
            let before = std::mem::replace(led, life);
            if before != 0 && before != life {
                self.violated(name::ONE_HOLDER, format!("{epoch:?} led by life {before} and by life {life}"));
            }
        }
        self.nodes[node].acting = Some((epoch, deadline));
    }

    fn entries(&self) -> Vec<NodeEntry> {
        let entry = |core: &Coordinator| NodeEntry { node: core.me().node.clone(), modified_ms: 1 };
        self.nodes.iter().map(|node| entry(&node.core)).collect()
    }
}
