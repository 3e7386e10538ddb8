//! The coordinator: state and dispatch.

use crate::election::campaign::Campaign;
use crate::election::config::Config;
use crate::election::event::ElectionCause;
use crate::election::io::{
    Answer, Effect, Input, Request, RequestId, SeatAnswer, StopCause, WakeToken, WriteAnswer,
};
use crate::election::leader::Term;
use crate::election::observe::{Health, Learned, Seen, SeenSeat};
use crate::election::presence::Presence;
use crate::election::role::Role;
use crate::election::seat::{Epoch, Expect, Seat, SeatState, Terms, Version};
use crate::election::standby::Standby;
use crate::election::startup::Starting;
use crate::election::watching::Watching;
use crate::id::{Holder, NodeId, Nonce};
use crate::mutants::Mutant;
use crate::time::Time;

/// One node's part in the election of one namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinator {
    /// Carries the terms of the leader last seen, or this node's own.
    pub(crate) config: Config,
    /// This node's own terms, in force while it leads.
    pub(crate) terms: Terms,
    pub(crate) me: Holder,
    pub(crate) now: Time,
    pub(crate) role: Option<Role>,
    pub(crate) phase: Phase,
    /// The seat as this node last saw or wrote it.
    pub(crate) seen: Seen,
    /// The leader last announced. It may be long dead.
    pub(crate) announced: Option<(NodeId, Epoch)>,
    /// The highest epoch ever seen. The next claim is above it even if the store was restored to an earlier state, and only
    /// then does it matter: as long as nobody restores a seat, a claim above the seat that was read is enough
    /// (`proof/seat.py`).
    pub(crate) highest: Epoch,
    /// The holder last seen in that epoch. Like the epoch and the longest expiry, it survives a rest.
    pub(crate) top_holder: Option<Holder>,
    /// The longest expiry of any seat seen.
    pub(crate) expiry_seen_ms: u64,
    /// Claims must be above this too: epochs that another seat has handed out.
    pub(crate) floor: Epoch,
    /// Epochs up to this one are over for this node: it never leads in them again, whatever lands late. Otherwise a late
    /// renewal would bring back a leader whose work was told to stop.
    pub(crate) retired: Epoch,
    /// Processes of this lost epoch have not been reported stopped. They may run even past their lease, because stuck work
    /// does not check it. So their record is not vacated, and others wait for its expiry; and this node claims nothing,
    /// because it could run nothing beside them. This survives a rest, as the processes do.
    pub(crate) spare: Option<Epoch>,
    /// At most one seat request is in flight, so that answers cannot overtake each other. That keeps the code simple and the
    /// requests few; safety does not depend on it.
    pub(crate) seat_flight: Option<SeatFlight>,
    /// This node's seat writes whose outcome is unknown or was reported as a refusal, all on top of the version last seen.
    /// They are dropped only to keep the list short; keeping them forever would be just as safe.
    pub(crate) pending: Vec<PendingWrite>,
    pub(crate) presence: Presence,
    /// The store's health as last reported.
    pub(crate) health: Health,
    /// When a request last failed.
    pub(crate) troubled: Time,
    /// The last write failed; only a successful write clears this.
    pub(crate) writes_fail: bool,
    /// No claim before this: a seat vanished or went back in time, and its holder may not have noticed yet.
    pub(crate) wait_out: Time,
    /// Set once a stop was requested: the latest moment to be gone, because a shutdown must end.
    pub(crate) stop_by: Option<Time>,
    pub(crate) requests: u64,
    pub(crate) nonces: u64,
    pub(crate) wake: Option<(WakeToken, Time)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    Idle,
    Starting(Starting),
    /// Not eligible: only watches.
    Watching(Watching),
    Standby(Standby),
    Leading(Term),
    Leaving {
        removal: Option<RequestId>,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SeatFlight {
    pub(crate) id: RequestId,
    pub(crate) sent: Time,
    pub(crate) kind: FlightKind,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FlightKind {
    Read,
    Claim(Seat),
    Renew(Seat),
    Vacate(Seat),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PendingWrite {
    pub(crate) nonce: Nonce,
    pub(crate) sent: Time,
}

/// Limit on remembered unknown writes; an older one that lands after all is vacated, not adopted.
const PENDING_MAX: usize = 32;

impl Coordinator {
    /// A coordinator at rest. Send [`Input::Start`] to take part.
    pub fn new(config: Config, me: Holder) -> Coordinator {
        Coordinator {
            terms: config.terms(),
            config,
            me,
            now: Time(0),
            role: None,
            phase: Phase::Idle,
            seen: Seen::Nothing,
            announced: None,
            highest: Epoch(0),
            top_holder: None,
            expiry_seen_ms: 0,
            floor: Epoch(0),
            retired: Epoch(0),
            spare: None,
            seat_flight: None,
            pending: Vec::new(),
            presence: Presence::default(),
            health: Health::Good,
            troubled: Time(0),
            writes_fail: false,
            wait_out: Time(0),
            stop_by: None,
            requests: 0,
            nonces: 0,
            wake: None,
        }
    }

    /// Makes this coordinator claim above this epoch only.
    pub fn above(mut self, floor: Epoch) -> Coordinator {
        self.floor = floor;
        self
    }

    /// See [`Role`] for when it has none.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    pub fn me(&self) -> &Holder {
        &self.me
    }

    /// The leader as far as this node knows, with its epoch: this node itself, or the holder last seen unless it has been
    /// silent for its expiry. `None` if nobody is known to lead.
    pub fn leader(&self) -> Option<(&NodeId, Epoch)> {
        if let Phase::Leading(term) = &self.phase {
            return Some((&self.me.node, term.epoch));
        }
        let Seen::Seat(SeenSeat { seat, .. }) = &self.seen else { return None };
        // A former life of this node no longer leads, and a record from the past does not name the present leader.
        let other = seat.holder.node != self.me.node && seat.epoch >= self.highest;
        let down = match &self.phase {
            Phase::Standby(standby) => standby.campaign.as_ref().is_some_and(Campaign::is_down),
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Leading(_)
            | Phase::Leaving { .. } => false,
        };
        let alive = self.expiry_at().is_some_and(|at| self.now < at) && !down;
        (other && alive).then_some((&seat.holder.node, seat.epoch))
    }

    /// The epoch this node acts in and the moment its lease ends; `None` unless it leads.
    ///
    /// A draining leader whose processes have stopped no longer acts: its vacate may have landed without an answer, and
    /// somebody else may already lead.
    pub fn lease(&self) -> Option<(Epoch, Time)> {
        match &self.phase {
            Phase::Leading(term) if term.processes => Some((term.epoch, self.deadline(term))),
            Phase::Leading(_)
            | Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Standby(_)
            | Phase::Leaving { .. } => None,
        }
    }

    /// When this node last saw or wrote a change of the seat, by its own clock; `None` if it has not seen the seat.
    pub fn seat_seen(&self) -> Option<Time> {
        match &self.seen {
            Seen::Seat(seen) => Some(seen.since),
            Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        }
    }

    /// Whether the store answers, as last reported: false from the first failed request on, true again once nothing has
    /// failed for a whole lease.
    pub fn store_answers(&self) -> bool {
        self.health == Health::Good
    }

    pub fn highest_epoch(&self) -> Epoch {
        self.highest
    }

    /// When the heartbeat is due: a leader's next renewal, or a standby's next look. It may lie in the past while an answer
    /// is outstanding. `None` for a node that neither leads nor stands by.
    pub fn heartbeat_due(&self) -> Option<Time> {
        match &self.phase {
            Phase::Leading(term) => Some(term.renew_at),
            Phase::Standby(standby) => Some(self.read_at(standby)),
            Phase::Idle | Phase::Starting(_) | Phase::Watching(_) | Phase::Leaving { .. } => None,
        }
    }

    /// The election under way as this node sees it: its cause, and when it may be decided at the earliest.
    pub fn election(&self) -> Option<(ElectionCause, Time)> {
        match &self.phase {
            Phase::Standby(standby) => {
                standby.campaign.as_ref().map(|campaign| (campaign.cause, campaign.ready_at))
            }
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Leading(_)
            | Phase::Leaving { .. } => None,
        }
    }

    /// When this node may claim the seat at the earliest if nothing about it changes; `None` unless it stands by and may claim.
    pub fn claims_at(&self) -> Option<Time> {
        let Phase::Standby(standby) = &self.phase else { return None };
        if self.stop_by.is_some() || self.spare.is_some() || self.own_record().is_some() {
            return None;
        }
        match &standby.campaign {
            Some(campaign) => Some(campaign.claim_at.unwrap_or(campaign.ready_at)),
            None => {
                let ready_at = self.expiry_at()? + self.config.takeover_delay_ms;
                Some(ready_at.max(standby.not_before).max(self.wait_out))
            }
        }
    }

    /// Takes one input. The lease deadline is enforced before the input is even looked at: a node that was paused must learn
    /// that it no longer leads before it does anything else.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        self.enforce_deadline(out);
        match input {
            Input::Start { random } => self.on_start(random, out),
            Input::Wake(token) => {
                if self.wake.is_some_and(|(current, _)| current == token) {
                    self.wake = None;
                } else {
                    return; // A wake-up that has been replaced since.
                }
            }
            Input::Answer { id, answer } => self.on_answer(id, answer, out),
            Input::ProcessesStopped { epoch } => self.on_processes_stopped(epoch, out),
            Input::StepDown => self.on_step_down(out),
            Input::StandAside { hold_ms } => self.on_stand_aside(hold_ms, out),
            Input::Raise { above } => self.on_raise(above, out),
            Input::Stop => self.on_stop(out),
        }
        self.advance(out);
        self.arm(out);
    }

    fn on_answer(&mut self, id: RequestId, answer: Answer, out: &mut Vec<Effect>) {
        match answer {
            Answer::Probe(answer) => self.on_probe(id, answer, out),
            Answer::PresenceWritten(answer) => self.on_presence_written(id, answer, out),
            Answer::PresenceRemoved => self.on_presence_removed(id, out),
            Answer::Nodes(answer) => self.on_nodes(id, answer, out),
            Answer::Seat(answer) => {
                let Some(flight) = self.seat_flight.take_if(|flight| flight.id == id) else { return };
                self.on_seat_read(flight.sent, answer, out);
            }
            Answer::SeatWritten(answer) => {
                let Some(flight) = self.seat_flight.take_if(|flight| flight.id == id) else { return };
                self.on_seat_written(flight, answer, out);
            }
        }
    }

    fn on_seat_read(&mut self, sent: Time, answer: SeatAnswer, out: &mut Vec<Effect>) {
        let learned = self.learn(answer, out);
        if let Seen::Seat(seen) = &mut self.seen
            && learned == Learned::Changed
            && Mutant::SilenceFromSending.on()
        {
            seen.since = sent;
        }
        match self.phase {
            Phase::Starting(_) => self.starting_read(learned),
            Phase::Standby(_) => self.standby_read(sent, learned, out),
            Phase::Leading(_) => self.leader_read(learned, out),
            // A watching node acts on nothing but what it sees.
            Phase::Idle | Phase::Watching(_) | Phase::Leaving { .. } => {}
        }
    }

    fn on_seat_written(&mut self, flight: SeatFlight, answer: WriteAnswer, out: &mut Vec<Effect>) {
        let seat = match flight.kind {
            FlightKind::Claim(ref seat) | FlightKind::Renew(ref seat) | FlightKind::Vacate(ref seat) => {
                seat.clone()
            }
            FlightKind::Read => return,
        };
        let answer = self.mistake(answer, &seat);
        self.note_write(&answer, out);
        match &answer {
            WriteAnswer::Won(version) => self.wrote(seat.clone(), version.clone()),
            // A refusal may be the echo of this very write; the read that follows settles it.
            WriteAnswer::Unknown | WriteAnswer::Lost => {
                if self.pending.len() == PENDING_MAX {
                    self.pending.remove(0);
                }
                self.pending.push(PendingWrite { nonce: seat.nonce, sent: flight.sent });
            }
            WriteAnswer::Unavailable | WriteAnswer::Denied => {}
        }
        match self.phase {
            Phase::Standby(_) => self.standby_written(flight, &answer, out),
            Phase::Leading(_) => self.leader_written(flight, &answer, out),
            Phase::Idle | Phase::Starting(_) | Phase::Watching(_) | Phase::Leaving { .. } => {}
        }
    }

    /// Applies the mutants that act here; returns the answer itself in every real build.
    fn mistake(&self, answer: WriteAnswer, seat: &Seat) -> WriteAnswer {
        if answer == WriteAnswer::Denied && Mutant::DeniedTakenForLost.on() {
            return WriteAnswer::Lost;
        }
        let wrong = (answer == WriteAnswer::Lost && Mutant::LostTakenForWon.on())
            || (answer == WriteAnswer::Unknown && Mutant::UnknownTakenForWon.on());
        if wrong { WriteAnswer::Won(Version::new(&format!("guessed-{:?}", seat.nonce))) } else { answer }
    }

    fn advance(&mut self, out: &mut Vec<Effect>) {
        self.advance_start(out);
        self.advance_watching(out);
        self.advance_standby(out);
        self.advance_leader(out);
        self.advance_presence(out);
        self.advance_leave(out);
    }

    /// Asks for the next wake-up. Each request replaces the one before, so stale wake-ups die.
    fn arm(&mut self, out: &mut Vec<Effect>) {
        let due = match &self.phase {
            Phase::Idle => None,
            Phase::Starting(starting) => self.start_due(starting),
            Phase::Watching(watching) => self.seat_flight.is_none().then_some(watching.read_at),
            Phase::Standby(standby) => self.standby_due(standby),
            Phase::Leading(term) => self.leader_due(term),
            Phase::Leaving { .. } => None,
        };
        let due = [due, self.presence_due(), self.stop_by].into_iter().flatten().min();
        let Some(at) = due.filter(|_| self.phase != Phase::Idle) else {
            self.wake = None;
            return;
        };
        // Never in the past: everything due has been done above, and what could not be done waits for an answer.
        let at = at.max(self.now + 1);
        if self.wake.is_some_and(|(_, armed)| armed == at) {
            return;
        }
        self.requests += 1;
        let token = WakeToken(self.requests);
        self.wake = Some((token, at));
        out.push(Effect::Wake { token, at });
    }

    pub(crate) fn request(&mut self, request: Request, out: &mut Vec<Effect>) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        out.push(Effect::Request(id, request));
        id
    }

    pub(crate) fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        Nonce { incarnation: self.me.incarnation, sequence: self.nonces }
    }

    pub(crate) fn send_read(&mut self, out: &mut Vec<Effect>) {
        let unless = match &self.seen {
            Seen::Seat(seen) => Some(seen.version.clone()),
            Seen::Unreadable { version } => Some(version.clone()),
            Seen::Nothing | Seen::Absent => None,
        };
        self.send_seat(Request::ReadSeat { unless }, FlightKind::Read, out);
    }

    pub(crate) fn send_write(
        &mut self,
        seat: Seat,
        expect: Expect,
        kind: fn(Seat) -> FlightKind,
        out: &mut Vec<Effect>,
    ) {
        let flight = kind(seat.clone());
        self.send_seat(Request::WriteSeat { seat, expect }, flight, out);
    }

    fn send_seat(&mut self, request: Request, kind: FlightKind, out: &mut Vec<Effect>) {
        debug_assert!(
            self.seat_flight.is_none() || Mutant::TwoSeatRequests.on(),
            "one seat request at a time"
        );
        let id = self.request(request, out);
        self.seat_flight = Some(SeatFlight { id, sent: self.now, kind });
    }

    /// Rewrites the seat last seen as vacant. Never deletes it, so that no epoch can repeat.
    pub(crate) fn send_vacate(&mut self, out: &mut Vec<Effect>) {
        let Seen::Seat(seen) = &self.seen else { return };
        let (seat, version) = (seen.seat.clone(), seen.version.clone());
        let nonce = self.nonce();
        let epoch = if Mutant::VacateResetsEpoch.on() { Epoch(0) } else { seat.epoch };
        self.send_write(
            Seat { epoch, state: SeatState::Vacant, nonce, step_down: false, ..seat },
            Expect::Version(version),
            FlightKind::Vacate,
            out,
        );
    }

    fn on_raise(&mut self, above: Epoch, out: &mut Vec<Effect>) {
        self.floor = self.floor.max(above);
        if matches!(&self.phase, Phase::Leading(term) if term.epoch <= above) {
            self.on_step_down(out);
        }
    }

    fn on_stop(&mut self, out: &mut Vec<Effect>) {
        if self.stop_by.is_some() || self.phase == Phase::Idle {
            if self.phase == Phase::Idle {
                out.push(Effect::Stopped(StopCause::Asked));
            }
            return;
        }
        self.stop_by = Some(self.now + self.config.drain_ms + self.config.hold_ms());
        self.drain_for_stop(out);
    }

    /// Leaves once nothing of this node is left on the seat, or once the time for trying is up.
    fn advance_leave(&mut self, out: &mut Vec<Effect>) {
        let Some(by) = self.stop_by else { return };
        let late = self.now >= by;
        let may_leave = match &self.phase {
            Phase::Idle => false,
            // A presence that lands after its removal would be a ghost.
            Phase::Starting(_) => late || !self.presence.in_flight(),
            Phase::Watching(_) => true,
            Phase::Standby(_) => {
                late || (self.seat_flight.is_none() && !self.has_business() && !self.presence.in_flight())
            }
            Phase::Leading(_) => false,
            Phase::Leaving { removal } => {
                if late || removal.is_none() {
                    self.become_idle(StopCause::Asked, out);
                }
                false
            }
        };
        if may_leave {
            self.become_leaving(out);
        }
    }

    fn on_presence_removed(&mut self, id: RequestId, out: &mut Vec<Effect>) {
        if self.phase == (Phase::Leaving { removal: Some(id) }) {
            self.become_idle(StopCause::Asked, out);
        }
    }
}
