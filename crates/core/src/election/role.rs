//! Roles, and the only places where a node's role changes. Each asserts the edge it takes.

use crate::election::coordinator::{Coordinator, Phase};
use crate::election::io::{Effect, Request, StopCause};
use crate::election::leader::Term;
use crate::election::observe::{Health, Seen};
use crate::election::presence::Presence;
use crate::election::standby::Standby;
use crate::mutants::Mutant;

/// A node's role in its election. A node that is not started, starting up, or not eligible has no role.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Watches the leader.
    Standby,
    /// Tries to claim the seat.
    Candidate,
    /// Holds the seat and acts.
    Leader,
    /// Holds the seat, but is winding its processes down.
    Draining,
}

impl Coordinator {
    fn turn(&mut self, from: &[Option<Role>], to: Option<Role>) {
        assert!(from.contains(&self.role), "no way from {:?} to {to:?}", self.role);
        self.role = to;
    }

    pub(crate) fn become_standby(&mut self, standby: Standby) {
        let from = [None, Some(Role::Candidate), Some(Role::Leader), Some(Role::Draining)];
        self.turn(&from, Some(Role::Standby));
        self.phase = Phase::Standby(standby);
    }

    /// Back to watching, with the campaign dropped by the caller.
    pub(crate) fn become_watcher(&mut self) {
        if self.role == Some(Role::Candidate) {
            self.turn(&[Some(Role::Candidate)], Some(Role::Standby));
        }
    }

    pub(crate) fn become_candidate(&mut self) {
        self.turn(&[Some(Role::Standby)], Some(Role::Candidate));
    }

    pub(crate) fn become_leader(&mut self, term: Term) {
        assert!(
            term.epoch > self.retired || Mutant::RetiredEpochLed.on(),
            "an epoch that is over is never led again"
        );
        let mut from = vec![Some(Role::Candidate), Some(Role::Draining)];
        if Mutant::RetiredEpochLed.on() {
            from.push(Some(Role::Standby));
        }
        self.turn(&from, Some(Role::Leader));
        self.phase = Phase::Leading(term);
    }

    pub(crate) fn become_draining(&mut self) {
        self.turn(&[Some(Role::Leader), Some(Role::Draining)], Some(Role::Draining));
    }

    pub(crate) fn become_leaving(&mut self, out: &mut Vec<Effect>) {
        self.turn(&[None, Some(Role::Standby), Some(Role::Candidate)], None);
        let remove = self.presence.is_written() && !Mutant::PresenceLeftBehind.on();
        let removal = remove.then(|| self.request(Request::RemovePresence, out));
        self.presence = Presence::default();
        self.phase = Phase::Leaving { removal };
        if removal.is_none() {
            self.become_idle(StopCause::Asked, out);
        }
    }

    pub(crate) fn become_idle(&mut self, cause: StopCause, out: &mut Vec<Effect>) {
        self.turn(&[None], None);
        self.phase = Phase::Idle;
        self.seat_flight = None;
        self.pending.clear();
        self.config.follow(self.terms);
        self.presence = Presence::default();
        self.seen = Seen::Nothing;
        self.health = Health::Good;
        self.writes_fail = false;
        self.stop_by = None;
        out.push(Effect::Stopped(cause));
    }
}
