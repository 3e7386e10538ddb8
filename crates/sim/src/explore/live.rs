//! Liveness: from every reached state, once faults end, a node leads within the bound.
//!
//! Once faults end, dead nodes restart, paused nodes resume, and no request is lost or late any more. Abandoned writes are tried
//! both ways: landing at that moment, and lost. From there on only one thing can happen next: every request in flight is served,
//! everything due is done, and only then does time advance.

use super::Limits;
use super::canon::canonical;
use super::moves::Move;
use super::state::{State, TICK_MS};
use crate::checks::{Violation, name};
use std::collections::HashMap;

/// What is known so far.
#[derive(Default)]
pub(super) struct Liveness {
    /// How many ticks it takes from a calm state, by the state's digest.
    known: HashMap<u128, u16>,
    /// The longest it took from any state, in ms of true time.
    pub(super) longest_ms: u64,
}

impl Liveness {
    /// Whether a node leads in time from this state on, whatever happens to abandoned writes.
    pub(super) fn check(&mut self, state: &State, limits: &Limits, live_ms: u64) -> Option<Violation> {
        let given_up = state.wires.iter().any(|wire| wire.orphan);
        let ways: &[bool] = if given_up { &[true, false] } else { &[true] };
        ways.iter().find_map(|land| {
            let mut calm = state.clone();
            calm.calm_down(*land, limits);
            self.go_on(calm, limits, live_ms / TICK_MS)
        })
    }

    fn go_on(&mut self, mut state: State, limits: &Limits, bound: u64) -> Option<Violation> {
        let mut way: Vec<(u128, u64)> = Vec::new();
        let mut ticks = 0;
        while !state.is_led() {
            if let Some(violation) = state.violation.take() {
                return Some(violation);
            }
            let digest = canonical(&mut state);
            if let Some(rest) = self.known.get(&digest) {
                ticks += u64::from(*rest);
                break;
            }
            if ticks > bound {
                break;
            }
            way.push((digest, ticks));
            let next = state.next_in_peace();
            ticks += u64::from(next == Move::Tick);
            state.make(&next, limits);
        }
        if ticks > bound {
            let what = format!("nobody leads {} ms after faults ended", ticks * TICK_MS);
            return Some(Violation { at: 0, check: name::LEADER_IN_TIME, what });
        }
        self.longest_ms = self.longest_ms.max(ticks * TICK_MS);
        self.known.extend(way.into_iter().map(|(digest, at)| (digest, (ticks - at) as u16)));
        None
    }
}

impl State {
    fn is_led(&self) -> bool {
        (0..self.nodes.len()).any(|index| self.acts(index))
    }

    /// Ends all faults. Abandoned writes land now, or never.
    fn calm_down(&mut self, land: bool, limits: &Limits) {
        (self.faults, self.crashes, self.pauses, self.step_downs) = (0, 0, 0, 0);
        while let Some(index) = self.wires.iter().position(|wire| wire.orphan) {
            let at = index as u8;
            self.make(&if land { Move::Land(at) } else { Move::Forget(at) }, limits);
        }
        for index in 0..self.nodes.len() {
            let at = index as u8;
            if !self.nodes[index].alive {
                self.make(&Move::Restart(at), limits);
            } else if self.nodes[index].paused {
                self.make(&Move::Resume(at), limits);
            }
        }
    }

    /// The one thing that happens next when nothing goes wrong.
    fn next_in_peace(&self) -> Move {
        if let Some(wire) = self.wires.first() {
            return if wire.answer.is_some() { Move::Answer(0) } else { Move::Serve(0) };
        }
        let due = self.nodes.iter().position(|node| node.wake.is_some_and(|(_, at)| at <= node.local));
        due.map_or(Move::Tick, |node| Move::Wake(node as u8))
    }
}
