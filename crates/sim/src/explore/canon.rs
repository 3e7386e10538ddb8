//! Rewrites a state relative to now, with small numbers, so that it is recognised when it recurs.

use super::state::{NOW, Node, SeatOutcome, State};
use crate::trace::Digest;
use std::hash::{Hash, Hasher};
use tenure_core::{
    Answer, Expect, Input, Nonce, Renumber, Request, RequestId, Seat, SeatAnswer, Time, Version, WakeToken,
    WriteAnswer,
};

/// New ids and nonces start here, well above the few in use.
const FRESH: u64 = 1000;
/// After this many failures in a row, the pauses stop growing.
const FAILURES_MAX: u32 = 4;

/// Renumbers nonces in the order of their appearance, and one node's ids and times at a time.
#[derive(Default)]
struct Names {
    nonces: Vec<Nonce>,
    ids: Vec<u64>,
    shift: u64,
}

impl Names {
    fn number(&mut self, nonce: Nonce) -> u64 {
        let known = self.nonces.iter().position(|known| *known == nonce);
        let index = known.unwrap_or_else(|| {
            self.nonces.push(nonce);
            self.nonces.len() - 1
        });
        index as u64 + 1
    }

    fn id(&mut self, id: u64) -> u64 {
        let known = self.ids.iter().position(|known| *known == id);
        let index = known.unwrap_or_else(|| {
            self.ids.push(id);
            self.ids.len() - 1
        });
        index as u64 + 1
    }

    fn seat(&mut self, seat: &mut Seat) {
        self.nonce(&mut seat.nonce);
        seat.renewals = seat.renewals.min(1);
    }

    fn expect(&mut self, expect: &mut Expect) {
        match expect {
            Expect::Absent => {}
            Expect::Version(version) => self.version(version),
        }
    }

    fn request_body(&mut self, request: &mut Request) {
        match request {
            Request::WriteSeat { seat, expect } => {
                self.seat(seat);
                self.expect(expect);
            }
            Request::ReadSeat { unless } => unless.iter_mut().for_each(|version| self.version(version)),
            Request::Probe | Request::WritePresence { .. } | Request::RemovePresence | Request::ListNodes => {
            }
        }
    }

    fn read(&mut self, answer: &mut SeatAnswer) {
        match answer {
            SeatAnswer::Found { seat, version, .. } => {
                self.seat(seat);
                self.version(version);
            }
            SeatAnswer::Unreadable { version, .. } => self.version(version),
            SeatAnswer::Unchanged | SeatAnswer::Absent | SeatAnswer::Unavailable | SeatAnswer::Denied => {}
        }
    }

    fn written(&mut self, answer: &mut WriteAnswer) {
        match answer {
            WriteAnswer::Won(version) => self.version(version),
            WriteAnswer::Lost | WriteAnswer::Unknown | WriteAnswer::Unavailable | WriteAnswer::Denied => {}
        }
    }

    fn input(&mut self, input: &mut Input) {
        match input {
            Input::Answer { id, answer } => {
                self.request(id);
                match answer {
                    Answer::Seat(answer) => self.read(answer),
                    Answer::SeatWritten(answer) => self.written(answer),
                    Answer::Probe(_)
                    | Answer::PresenceWritten(_)
                    | Answer::PresenceRemoved
                    | Answer::Nodes(_) => {}
                }
            }
            Input::Wake(token) => self.wake(token),
            Input::Start { .. }
            | Input::ProcessesStopped { .. }
            | Input::StepDown
            | Input::StandAside { .. }
            | Input::Raise { .. }
            | Input::Stop => {}
        }
    }
}

impl Renumber for Names {
    fn time(&mut self, time: &mut Time) {
        // A time further away than any setting counts as long ago, or never.
        *time = Time((time.0 + NOW).saturating_sub(self.shift).min(2 * NOW));
    }

    fn bound(&mut self, time: &mut Time) {
        self.time(time);
        if time.0 <= NOW {
            *time = Time(0);
        }
    }

    fn age(&mut self, time: &mut Time) {
        *time = Time(0);
    }

    fn request(&mut self, id: &mut RequestId) {
        id.0 = self.id(id.0);
    }

    fn wake(&mut self, token: &mut WakeToken) {
        token.0 = self.id(token.0);
    }

    fn nonce(&mut self, nonce: &mut Nonce) {
        nonce.sequence = self.number(*nonce);
    }

    fn version(&mut self, version: &mut Version) {
        let parts = version.as_str().split_once('-');
        let numbers = parts.and_then(|(life, sequence)| Some((life.parse().ok()?, sequence.parse().ok()?)));
        let Some((life, sequence)) = numbers else { return };
        let nonce = Nonce { incarnation: tenure_core::Incarnation(life), sequence };
        *version = Version::new(&format!("{life}-{}", self.number(nonce)));
    }

    fn failures(&mut self, count: &mut u32) {
        *count = (*count).min(FAILURES_MAX);
    }
}

/// Whether some node may still hear of this record, or learn the outcome of writing it.
fn is_remembered(state: &State, nonce: Nonce) -> bool {
    let read = |answer: &SeatAnswer| matches!(answer, SeatAnswer::Found { seat, .. } if seat.nonce == nonce);
    let on_the_seat = state.seat.as_ref().is_some_and(|seat| seat.nonce == nonce);
    let under_way = || {
        state.wires.iter().any(|wire| matches!(&wire.answer, Some(SeatOutcome::Read(answer)) if read(answer)))
    };
    let known = |node: &Node| {
        let held = |input: &Input| matches!(input, Input::Answer { answer: Answer::Seat(answer), .. } if read(answer));
        node.alive && (node.held.iter().any(held) || node.core.awaits(nonce))
    };
    on_the_seat || under_way() || state.nodes.iter().any(known)
}

/// Rewrites the state in place and returns its digest.
pub(super) fn canonical(state: &mut State) -> u128 {
    let mut landed = std::mem::take(&mut state.landed);
    landed.retain(|landed| is_remembered(state, landed.nonce));
    let mut names = Names::default();
    if let Some(seat) = &mut state.seat {
        names.seat(seat);
    }
    state.wires.sort_by_key(|wire| (wire.node, wire.orphan, wire.id));
    for index in 0..state.nodes.len() {
        names.ids.clear();
        let node = &mut state.nodes[index];
        names.shift = node.local.0;
        node.local = Time(NOW);
        if let Some((_, deadline)) = &mut node.acting {
            names.time(deadline);
            if *deadline <= node.local {
                node.acting = None;
            }
        }
        if let Some((token, at)) = &mut node.wake {
            names.wake(token);
            names.time(at);
        }
        node.held.iter_mut().for_each(|input| names.input(input));
        for wire in state.wires.iter_mut().filter(|wire| usize::from(wire.node) == index) {
            if wire.orphan {
                wire.id = RequestId(0);
            } else {
                names.request(&mut wire.id);
            }
            names.request_body(&mut wire.request);
            match &mut wire.answer {
                Some(SeatOutcome::Read(answer)) => names.read(answer),
                Some(SeatOutcome::Written(answer)) => names.written(answer),
                None => {}
            }
        }
        if state.nodes[index].alive {
            state.nodes[index].core.renumber(FRESH, FRESH, &mut names);
        }
    }
    landed.iter_mut().for_each(|landed| names.nonce(&mut landed.nonce));
    landed.sort_unstable();
    state.landed = landed;
    digest(state)
}

fn digest(state: &State) -> u128 {
    let mut low = Digest::default();
    let mut high = Digest::default();
    high.write_u64(0x9e37_79b9_7f4a_7c15);
    for hasher in [&mut low, &mut high] {
        for node in &state.nodes {
            if node.alive {
                node.hash(hasher);
            } else {
                hasher.write_u64(u64::MAX);
            }
        }
        state.seat.hash(hasher);
        state.wires.hash(hasher);
        state.led.hash(hasher);
        (state.lives, state.top.0, &state.landed).hash(hasher);
        (state.faults, state.crashes, state.pauses, state.step_downs).hash(hasher);
    }
    u128::from(low.finish()) << 64 | u128::from(high.finish())
}
