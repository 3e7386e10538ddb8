//! Startup: the jitter, the probe, and enrolling. Nothing here can claim.

use crate::election::coordinator::{Coordinator, Phase};
use crate::election::event::Event;
use crate::election::io::{Effect, ProbeAnswer, Request, RequestId, StopCause};
use crate::election::observe::{Learned, Seen};
use crate::election::standby::Standby;
use crate::mutants::Mutant;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Starting {
    /// No request has left the node yet.
    Jitter { started: Time, until: Time },
    /// Does the store honour conditions? The node asks before it writes its presence: a store that cannot arbitrate should
    /// keep nothing of this node.
    Probing { started: Time, flight: Option<RequestId>, retry_at: Time },
    /// The node writes its presence and takes its first look at the seat.
    Enrolling { started: Time, read_at: Time, seat_read: bool },
}

impl Coordinator {
    pub(crate) fn on_start(&mut self, random: u64, out: &mut Vec<Effect>) {
        if self.phase != Phase::Idle {
            return;
        }
        if !self.config.eligible {
            out.push(Effect::Emit(Event::Ineligible));
            self.start_watching(random);
            return;
        }
        let wait_ms = self.config.jitter_ms(random);
        if wait_ms > 0 {
            out.push(Effect::Emit(Event::JitterStarted { wait_ms }));
        }
        self.phase = Phase::Starting(Starting::Jitter { started: self.now, until: self.now + wait_ms });
    }

    pub(crate) fn start_due(&self, starting: &Starting) -> Option<Time> {
        match starting {
            Starting::Jitter { until, .. } => Some(*until),
            Starting::Probing { flight: None, retry_at, .. } => Some(*retry_at),
            Starting::Probing { flight: Some(_), .. } => None,
            Starting::Enrolling { read_at, seat_read: false, .. } if self.seat_flight.is_none() => {
                Some(*read_at)
            }
            Starting::Enrolling { .. } => None,
        }
    }

    pub(crate) fn advance_start(&mut self, out: &mut Vec<Effect>) {
        let Phase::Starting(starting) = &self.phase else { return };
        match starting.clone() {
            Starting::Jitter { started, until } => {
                if self.now >= until {
                    let flight = Some(self.request(Request::Probe, out));
                    self.phase = Phase::Starting(Starting::Probing { started, flight, retry_at: self.now });
                }
            }
            Starting::Probing { started, flight: None, retry_at } => {
                if self.now >= retry_at {
                    let flight = Some(self.request(Request::Probe, out));
                    self.phase = Phase::Starting(Starting::Probing { started, flight, retry_at });
                }
            }
            Starting::Probing { flight: Some(_), .. } => {}
            Starting::Enrolling { started, read_at, seat_read } => {
                if !seat_read && self.seat_flight.is_none() && self.now >= read_at {
                    self.send_read(out);
                }
                if seat_read && let Some(confirmed) = self.presence.confirmed() {
                    self.join(started, confirmed, out);
                }
            }
        }
    }

    pub(crate) fn on_probe(&mut self, id: RequestId, answer: ProbeAnswer, out: &mut Vec<Effect>) {
        let Phase::Starting(Starting::Probing { started, flight, .. }) = self.phase else { return };
        if flight != Some(id) {
            return;
        }
        let any = answer == ProbeAnswer::Unsafe && Mutant::UnsafeStoreAccepted.on();
        let answer = if any { ProbeAnswer::Safe } else { answer };
        match answer {
            ProbeAnswer::Safe => {
                let enrolling = Starting::Enrolling { started, read_at: self.now, seat_read: false };
                self.phase = Phase::Starting(enrolling);
                self.begin_presence();
            }
            ProbeAnswer::Unsafe => {
                out.push(Effect::Emit(Event::StoreUnsafe));
                self.become_idle(StopCause::StoreUnsafe, out);
            }
            ProbeAnswer::Unavailable | ProbeAnswer::Denied => {
                self.note_trouble(answer == ProbeAnswer::Denied, out);
                let retry_at = self.now + self.config.heartbeat_ms;
                self.phase = Phase::Starting(Starting::Probing { started, flight: None, retry_at });
            }
        }
    }

    pub(crate) fn starting_read(&mut self, learned: Learned) {
        let retry_at = self.now + self.config.retry_ms();
        if let Phase::Starting(Starting::Enrolling { read_at, seat_read, .. }) = &mut self.phase {
            match learned {
                Learned::Changed | Learned::Unchanged => *seat_read = self.seen != Seen::Nothing,
                Learned::Failed { .. } => *read_at = retry_at,
            }
        }
    }

    /// The node knows everything it needs to stand by. Nodes that start together wait until the last of them must have
    /// written its presence, so that the outcome is the same with and without jitter. The wait also counts from the
    /// confirmation of this node's own presence: with a slow store, the start says nothing about when the others could have
    /// seen it.
    fn join(&mut self, started: Time, presence_confirmed: Time, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::Joined));
        let by_start = started + self.config.startup_jitter_max_ms + self.config.settle_ms;
        let mut settled = by_start.max(presence_confirmed + self.config.settle_ms);
        if Mutant::SettleSkipped.on() {
            settled = self.now;
        }
        self.become_standby(Standby::joined(self.now + self.config.election_interval_ms, settled));
        self.standby_joined(out);
    }
}
