//! The leader: renews on an exact cadence, stops acting by its own deadline, and gives up the seat in order.

use crate::election::config::Config;
use crate::election::coordinator::{Coordinator, FlightKind, Phase, SeatFlight};
use crate::election::event::{Event, LossReason};
use crate::election::io::{Effect, WriteAnswer};
use crate::election::observe::{Learned, Seen};
use crate::election::seat::{Epoch, Expect, Seat, SeatState};
use crate::election::standby::Standby;
use crate::mutants::Mutant;
use crate::time::Time;

/// One leadership, from the claim to the loss.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    /// When the last confirmed claim or renewal was **sent**. The lease runs from here.
    pub(crate) renewed: Time,
    pub(crate) renew_at: Time,
    /// When the last renewal was sent, whatever became of it.
    pub(crate) tried: Time,
    /// Until then, the leader looks for a renewal it gave up on before it writes again.
    pub(crate) look_until: Time,
    /// A write's outcome is unknown, or a write was refused: the next request is a read.
    pub(crate) unresolved: bool,
    /// The reason to report if the lease expires.
    pub(crate) blame: LossReason,
    /// Processes run, or have not been reported stopped yet.
    pub(crate) processes: bool,
    /// When the processes were reported stopped.
    pub(crate) stopped: Option<Time>,
    /// How long to claim nothing after a step-down, if longer than usual.
    pub(crate) hold_ms: u64,
    pub(crate) drain: Option<Drain>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Drain {
    pub(crate) cause: DrainCause,
    /// When the processes must have stopped.
    pub(crate) by: Time,
    /// Attempts left to vacate or to find out.
    pub(crate) attempts: u8,
    /// A vacate was sent and may have landed.
    pub(crate) vacated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DrainCause {
    /// 80 % of the hold is gone; a renewal that gets through ends the drain. Not for safety, but to give work time to stop
    /// well.
    AtRisk,
    /// Leadership is being given up for good.
    Asked(LossReason),
}

/// Most requests made to vacate the seat, or to find out whether that worked. After that the expiry frees the seat by
/// itself: a shutdown must end.
const ATTEMPTS_MAX: u8 = 4;

impl Term {
    pub(crate) fn new(epoch: Epoch, sent: Time, config: &Config) -> Term {
        Term {
            epoch,
            renewed: sent,
            renew_at: sent + config.heartbeat_ms.min(config.renew_by_ms()),
            tried: sent,
            look_until: sent,
            unresolved: false,
            blame: LossReason::LeaseExpired,
            processes: true,
            stopped: None,
            hold_ms: 0,
            drain: None,
        }
    }
}

impl Coordinator {
    fn term(&mut self) -> &mut Term {
        match &mut self.phase {
            Phase::Leading(term) => term,
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Standby(_)
            | Phase::Leaving { .. } => {
                unreachable!("called only in the leading phase")
            }
        }
    }

    pub(crate) fn deadline(&self, term: &Term) -> Time {
        term.renewed + self.config.hold_ms()
    }

    fn wind_down_at(&self, term: &Term) -> Time {
        term.renewed + self.config.wind_down_ms()
    }

    pub(crate) fn lead(&mut self, term: Term, out: &mut Vec<Effect>) {
        let (epoch, deadline) = (term.epoch, self.deadline(&term));
        self.become_leader(term);
        let node = self.me.node.clone();
        self.announce(node, epoch, out);
        out.push(Effect::Emit(Event::BecameLeader { epoch, deadline }));
        out.push(Effect::StartProcesses { epoch, deadline });
    }

    /// Runs before anything else, at every input: past its deadline a leader no longer leads, whatever the store does.
    /// Safety does not depend on this, because work checks the deadline by itself; but observers must hear of it in time.
    pub(crate) fn enforce_deadline(&mut self, out: &mut Vec<Effect>) {
        let Phase::Leading(term) = &self.phase else { return };
        if self.now >= self.deadline(term) && !Mutant::DeadlineIgnored.on() {
            let (epoch, told) = (term.epoch, term.drain.is_some() && term.processes);
            let reason = match &term.drain {
                Some(Drain { cause: DrainCause::Asked(reason), .. }) => *reason,
                Some(Drain { cause: DrainCause::AtRisk, .. }) | None => term.blame,
            };
            if told {
                out.push(Effect::Emit(Event::ProcessesStuck { epoch }));
            }
            self.lose(reason, false, out);
        }
    }

    /// The only way out of leadership.
    fn lose(&mut self, reason: LossReason, vacated: bool, out: &mut Vec<Effect>) {
        let now = self.now;
        let Phase::Leading(term) = &self.phase else { return };
        let (epoch, processes, deadline) = (term.epoch, term.processes, self.deadline(term));
        // Work that was told to stop and did not may continue until its deadline; it checks that deadline by itself.
        let ignores = term.drain.is_some() && processes;
        let acted_until = if ignores { deadline } else { term.stopped.unwrap_or(now).min(deadline) };
        if processes {
            out.push(Effect::StopProcesses { epoch, by: now });
        }
        self.retired = self.retired.max(epoch);
        let not_before = match reason {
            LossReason::StepDown if Mutant::CooldownSkipped.on() => now,
            LossReason::StepDown => now + self.config.step_down_cooldown_ms().max(term.hold_ms),
            LossReason::Shutdown
            | LossReason::LeaseExpired
            | LossReason::Superseded
            | LossReason::StoreDenied
            | LossReason::SeatUnreadable
            | LossReason::SeatGone
            | LossReason::ProcessesStuck => now,
        };
        if processes && !Mutant::StuckRecordVacated.on() {
            self.spare = Some(epoch);
        }
        self.become_standby(Standby::after_leading(now, not_before));
        out.push(Effect::Emit(Event::LostLeadership { epoch, reason, vacated, acted_until }));
    }

    pub(crate) fn leader_due(&self, term: &Term) -> Option<Time> {
        let free = self.seat_flight.is_none() || Mutant::TwoSeatRequests.on();
        let request = free.then_some(term.renew_at);
        let wind_down =
            (term.drain.is_none() && !Mutant::WindDownIgnored.on()).then(|| self.wind_down_at(term));
        let stuck = term.drain.as_ref().filter(|_| term.processes).map(|drain| drain.by);
        [Some(self.deadline(term)), request, wind_down, stuck].into_iter().flatten().min()
    }

    pub(crate) fn advance_leader(&mut self, out: &mut Vec<Effect>) {
        let Phase::Leading(term) = &self.phase else { return };
        let wind_down = !Mutant::WindDownIgnored.on();
        if term.drain.is_none() && self.now >= self.wind_down_at(term) && wind_down {
            let (epoch, deadline) = (term.epoch, self.deadline(term));
            out.push(Effect::Emit(Event::LeaseAtRisk { epoch, deadline }));
            self.drain(DrainCause::AtRisk, deadline, out);
        }
        let now = self.now;
        let Phase::Leading(Term { drain, processes, unresolved, renew_at, .. }) = &self.phase else {
            return;
        };
        if let Some(drain) = drain {
            let gone = !processes || Mutant::VacatedBeforeStopped.on();
            match drain.cause {
                DrainCause::Asked(_) if gone => return self.advance_vacate(out),
                DrainCause::Asked(reason) if now >= drain.by => return self.give_up_stuck(reason, out),
                DrainCause::AtRisk if now >= drain.by && !gone => {
                    return self.give_up_stuck(LossReason::ProcessesStuck, out);
                }
                DrainCause::Asked(_) | DrainCause::AtRisk => {}
            }
        }
        let free = self.seat_flight.is_none() || Mutant::TwoSeatRequests.on();
        if free && now >= *renew_at {
            if *unresolved { self.send_read(out) } else { self.renew(out) }
        }
    }

    /// Sends a renewal. The next one is due one heartbeat after this one *was due*, so a slow answer or a late wake-up does
    /// not stretch the cadence.
    fn renew(&mut self, out: &mut Vec<Effect>) {
        let Seen::Seat(seen) = &self.seen else { return };
        let (seat, version) = (seen.seat.clone(), seen.version.clone());
        let (now, heartbeat_ms) = (self.now, self.config.heartbeat_ms.max(1));
        let term = self.term();
        while term.renew_at <= now {
            term.renew_at = term.renew_at + heartbeat_ms;
        }
        term.tried = now;
        let nonce = self.nonce();
        let seat = Seat { renewals: seat.renewals + 1, nonce, ..seat };
        self.send_write(seat, Expect::Version(version), FlightKind::Renew, out);
    }

    pub(crate) fn leader_written(&mut self, flight: SeatFlight, answer: &WriteAnswer, out: &mut Vec<Effect>) {
        match (&flight.kind, answer) {
            (FlightKind::Renew(_), WriteAnswer::Won(_)) => self.on_renewed(flight.sent, out),
            (FlightKind::Vacate(_), WriteAnswer::Won(_)) => self.on_vacated(out),
            (FlightKind::Renew(_), WriteAnswer::Unknown) if Mutant::UnknownEndsLeadership.on() => {
                self.end(LossReason::LeaseExpired, out);
            }
            (FlightKind::Renew(_) | FlightKind::Vacate(_), WriteAnswer::Lost | WriteAnswer::Unknown) => {
                let now = self.now;
                let patience_ms = self.patience_ms(&flight, answer);
                let term = self.term();
                term.unresolved = true;
                term.renew_at = now;
                term.look_until = now + patience_ms;
            }
            (FlightKind::Renew(_) | FlightKind::Vacate(_), WriteAnswer::Unavailable) => {
                self.try_again(LossReason::LeaseExpired);
            }
            (FlightKind::Renew(_) | FlightKind::Vacate(_), WriteAnswer::Denied) => {
                self.try_again(LossReason::StoreDenied);
            }
            (FlightKind::Read | FlightKind::Claim(_), _) => {}
        }
    }

    /// How long to look for a renewal that was given up. A slow answer is not a lost one: a write that took this long before
    /// it was given up may well need as long again, and a second write beside it would only be refused because of it, one
    /// slow answer later. But half of the time left before work must stop belongs to the next try.
    fn patience_ms(&self, flight: &SeatFlight, answer: &WriteAnswer) -> u64 {
        let Phase::Leading(term) = &self.phase else { return 0 };
        if !matches!((&flight.kind, answer), (FlightKind::Renew(_), WriteAnswer::Unknown)) {
            return 0;
        }
        let left_ms = self.wind_down_at(term).since(self.now);
        self.now.since(flight.sent).min(left_ms / 2)
    }

    fn on_renewed(&mut self, sent: Time, out: &mut Vec<Effect>) {
        let (now, config) = (self.now, self.config.clone());
        let term = self.term();
        let from = if Mutant::DeadlineFromAnswer.on() { now } else { sent };
        term.renewed = term.renewed.max(from);
        term.unresolved = false;
        term.blame = LossReason::LeaseExpired;
        term.renew_at = term.renew_at.min(term.renewed + config.renew_by_ms()).max(sent + 1);
        if Mutant::CadenceStretched.on() {
            term.renew_at = now + config.heartbeat_ms;
        }
        let (epoch, renewed) = (term.epoch, term.renewed);
        let deadline = renewed + config.hold_ms();
        out.push(Effect::Emit(Event::LeaseRenewed { epoch, deadline, latency_ms: now.since(sent) }));
        out.push(Effect::ExtendLease { epoch, deadline });
        self.recover(out);
    }

    /// A leader that was winding down because of its lease resumes its work, but only once the old work has stopped: work
    /// told to stop must not overlap with work that starts. The epoch stays, because nobody else can have claimed in the
    /// meantime.
    fn recover(&mut self, out: &mut Vec<Effect>) {
        let Phase::Leading(term) = &self.phase else { return };
        let at_risk = matches!(term.drain, Some(Drain { cause: DrainCause::AtRisk, .. }));
        let stopped = !term.processes || Mutant::RecoversBeforeStopped.on();
        if !at_risk || !stopped || self.now >= self.wind_down_at(term) {
            return;
        }
        let (epoch, deadline) = (term.epoch, self.deadline(term));
        let term = Term { drain: None, processes: true, stopped: None, ..term.clone() };
        self.become_leader(term);
        out.push(Effect::Emit(Event::LeaseRecovered { epoch }));
        out.push(Effect::StartProcesses { epoch, deadline });
    }

    /// The read-back shows that nothing was written yet. The leader keeps looking for the renewal it gave up on a little
    /// longer, then renews at once, unless the last try was only just now: one lost renewal must cost nothing.
    fn renew_now(&mut self) {
        let (now, retry_ms) = (self.now, self.config.retry_ms());
        let term = self.term();
        // A seat that is being vacated needs no renewal. If one lands after all, the vacate is refused and sent again.
        let vacating = matches!(term.drain, Some(Drain { cause: DrainCause::Asked(_), .. }));
        if now < term.look_until && (term.processes || !vacating) {
            term.unresolved = true;
            term.renew_at = (now + retry_ms).min(term.look_until);
        } else {
            term.renew_at = now.max(term.tried + retry_ms);
        }
    }

    /// Nothing was written. Try again soon, and no later than 80 % of the hold.
    fn try_again(&mut self, blame: LossReason) {
        let (now, retry_ms, wind_down_ms) = (self.now, self.config.retry_ms(), self.config.wind_down_ms());
        let term = self.term();
        term.blame = blame;
        term.renew_at = now + retry_ms;
        let last_chance = term.renewed + wind_down_ms;
        if last_chance > now {
            term.renew_at = term.renew_at.min(last_chance);
        }
    }

    /// A read after an unknown or refused write: whose record is on the seat? This node's own record may have been rewritten
    /// from outside, with the mark that asks for a step-down. A mark is not a renewal: it moves no deadline.
    pub(crate) fn leader_read(&mut self, learned: Learned, out: &mut Vec<Effect>) {
        if let Learned::Failed { denied } = learned {
            self.try_again(if denied { LossReason::StoreDenied } else { LossReason::LeaseExpired });
            return;
        }
        let seat = match &self.seen {
            Seen::Seat(seen) => seen.seat.clone(),
            Seen::Absent => return self.end(LossReason::SeatGone, out),
            Seen::Unreadable { .. } | Seen::Nothing => return self.try_again(LossReason::SeatUnreadable),
        };
        let foreign =
            !self.is_me(&seat.holder) || seat.epoch != self.term().epoch || seat.state == SeatState::Vacant;
        if foreign && !Mutant::SupersededIgnored.on() {
            return self.end(LossReason::Superseded, out);
        }
        self.term().unresolved = false;
        if seat.step_down && !Mutant::MarkIgnored.on() {
            // Before the renewal is counted: a lease that recovers must not start work that is about to stop.
            self.on_step_down(out);
        }
        let any = Mutant::NonceIgnored.on();
        let landed =
            self.pending.iter().rfind(|write| write.nonce == seat.nonce || any).map(|write| write.sent);
        match landed {
            Some(sent) => {
                self.pending.clear();
                let next = sent + self.config.heartbeat_ms;
                self.term().renew_at = next;
                self.on_renewed(sent, out);
            }
            // A moment's wait costs nothing: work that stops quickly saves the renewal.
            None if seat.step_down && self.term().processes => self.try_again(LossReason::LeaseExpired),
            None => self.renew_now(),
        }
    }

    /// The seat is no longer this node's. If it was being given up, that is the reason; and once a vacate was sent, anything
    /// found on the seat came after it.
    fn end(&mut self, reason: LossReason, out: &mut Vec<Effect>) {
        match self.term().drain {
            Some(Drain { cause: DrainCause::Asked(asked), vacated, .. }) => self.lose(asked, vacated, out),
            Some(Drain { cause: DrainCause::AtRisk, .. }) | None => self.lose(reason, false, out),
        }
    }

    fn drain(&mut self, cause: DrainCause, by: Time, out: &mut Vec<Effect>) {
        self.become_draining();
        let term = self.term();
        // A vacate that was sent may have landed, whatever the reason for the drain now.
        let vacated = term.drain.as_ref().is_some_and(|drain| drain.vacated);
        term.drain = Some(Drain { cause, by, attempts: ATTEMPTS_MAX, vacated });
        let (epoch, processes) = (term.epoch, term.processes);
        if processes {
            out.push(Effect::StopProcesses { epoch, by });
        }
    }

    pub(crate) fn on_step_down(&mut self, out: &mut Vec<Effect>) {
        self.drain_because(LossReason::StepDown, out);
    }

    /// A step-down with a longer cooldown, not a state of its own: the node still watches and is ranked, only its claims
    /// wait. A leader that is already handing over takes this too: what counts is how long it stays away afterwards.
    pub(crate) fn on_stand_aside(&mut self, hold_ms: u64, out: &mut Vec<Effect>) {
        let Phase::Leading(term) = &mut self.phase else { return };
        term.hold_ms = term.hold_ms.max(hold_ms);
        self.on_step_down(out);
    }

    pub(crate) fn drain_for_stop(&mut self, out: &mut Vec<Effect>) {
        self.drain_because(LossReason::Shutdown, out);
    }

    fn drain_because(&mut self, reason: LossReason, out: &mut Vec<Effect>) {
        let Phase::Leading(term) = &self.phase else { return };
        let asked = match &term.drain {
            Some(Drain { cause: DrainCause::Asked(earlier), .. }) => Some(*earlier),
            Some(Drain { cause: DrainCause::AtRisk, .. }) | None => None,
        };
        // A stop overrides a step-down in progress; nothing overrides a stop.
        if asked.is_none() || (asked == Some(LossReason::StepDown) && reason == LossReason::Shutdown) {
            let by = self.now + self.config.drain_ms;
            self.drain(DrainCause::Asked(reason), by, out);
        }
    }

    pub(crate) fn on_processes_stopped(&mut self, epoch: Epoch, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Leading(term) if term.epoch == epoch && term.drain.is_some() => {
                term.processes = false;
                term.stopped = Some(self.now);
                self.recover(out);
            }
            Phase::Leading(_) => {}
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Standby(_)
            | Phase::Leaving { .. } => {
                self.spare.take_if(|spared| *spared == epoch);
            }
        }
    }

    /// Processes have stopped; now, and only now, the seat is vacated.
    fn advance_vacate(&mut self, out: &mut Vec<Effect>) {
        let now = self.now;
        let in_flight = self.seat_flight.is_some();
        let term = self.term();
        let Some(drain) = &mut term.drain else { return };
        let DrainCause::Asked(reason) = drain.cause else { return };
        if in_flight {
            return;
        }
        if drain.attempts == 0 {
            return self.lose(reason, false, out);
        }
        let waiting = drain.attempts < ATTEMPTS_MAX && now < term.renew_at;
        if waiting {
            return;
        }
        drain.attempts -= 1;
        if term.unresolved {
            self.send_read(out);
        } else {
            drain.vacated = true;
            self.send_vacate(out);
        }
    }

    fn on_vacated(&mut self, out: &mut Vec<Effect>) {
        let term = self.term();
        if let Some(Drain { cause: DrainCause::Asked(reason), .. }) = term.drain {
            self.lose(reason, true, out);
        }
    }

    /// Processes did not stop. Vacating now would invite a second leader beside them, so the lease is left to run out.
    fn give_up_stuck(&mut self, reason: LossReason, out: &mut Vec<Effect>) {
        let epoch = self.term().epoch;
        out.push(Effect::Emit(Event::ProcessesStuck { epoch }));
        self.lose(reason, false, out);
    }
}
