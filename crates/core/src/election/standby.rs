//! The standby: watches the seat, judges the leader by observed change on its own clock, and claims when its turn comes.

use crate::election::campaign::{Campaign, NodesPurpose};
use crate::election::coordinator::{Coordinator, FlightKind, Phase, SeatFlight};
use crate::election::event::{ElectionCause, Event};
use crate::election::io::{Effect, Request, RequestId, WriteAnswer};
use crate::election::observe::{Learned, Seen, SeenSeat};
use crate::election::seat::{Seat, SeatState};
use crate::id::Holder;
use crate::mutants::Mutant;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Standby {
    /// The next regular look at the seat.
    pub(crate) poll_at: Time,
    pub(crate) campaign: Option<Campaign>,
    pub(crate) nodes: Option<(RequestId, NodesPurpose)>,
    /// A seat found held at startup has not been checked against the store's clock yet.
    pub(crate) cold: bool,
    /// Elections found at startup wait until then; those of running standbys never do.
    pub(crate) settled: Time,
    /// No claim before this; set when leadership was given up by request.
    pub(crate) not_before: Time,
    /// When to vacate next this node's own record that must not be adopted.
    pub(crate) vacate_at: Time,
    /// No read before this; set after a failed read, so that a missed expiry does not cause a hot loop of reads.
    pub(crate) retry_at: Time,
    /// Consecutive failed reads, for the back-off.
    pub(crate) reads_failed: u32,
    /// Consecutive failed writes. Counted separately: a store may let a node read but not write.
    pub(crate) writes_failed: u32,
}

impl Standby {
    pub(crate) fn joined(poll_at: Time, settled: Time) -> Standby {
        Standby {
            poll_at,
            campaign: None,
            nodes: None,
            cold: true,
            settled,
            not_before: Time(0),
            vacate_at: Time(0),
            retry_at: Time(0),
            reads_failed: 0,
            writes_failed: 0,
        }
    }

    /// After leadership: look at once, and claim no sooner than `not_before`.
    pub(crate) fn after_leading(now: Time, not_before: Time) -> Standby {
        Standby { cold: false, not_before, ..Standby::joined(now, now) }
    }
}

impl Coordinator {
    pub(crate) fn standby(&mut self) -> &mut Standby {
        match &mut self.phase {
            Phase::Standby(standby) => standby,
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Leading(_)
            | Phase::Leaving { .. } => {
                unreachable!("called only in the standby phase")
            }
        }
    }

    /// Judges the first look at the seat, taken while enrolling.
    pub(crate) fn standby_joined(&mut self, out: &mut Vec<Effect>) {
        match &self.seen {
            Seen::Seat(seen) if seen.seat.state == SeatState::Held => {
                let id = self.request(Request::ListNodes, out);
                self.standby().nodes = Some((id, NodesPurpose::Age));
            }
            Seen::Seat(_) | Seen::Absent => self.start_campaign(ElectionCause::First, out),
            Seen::Unreadable { .. } | Seen::Nothing => {}
        }
    }

    /// Whether this node may still have something on the seat that it should clear away before it leaves.
    pub(crate) fn has_business(&self) -> bool {
        let unresolved = match &self.phase {
            Phase::Standby(Standby { campaign: Some(campaign), .. }) => campaign.unresolved,
            Phase::Standby(_)
            | Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Leading(_)
            | Phase::Leaving { .. } => false,
        };
        unresolved || self.own_record().is_some()
    }

    /// A record of this very incarnation, found on the seat while this node does not lead.
    pub(crate) fn own_record(&self) -> Option<&SeenSeat> {
        match &self.seen {
            Seen::Seat(seen) if seen.seat.state == SeatState::Held && self.is_me(&seen.seat.holder) => {
                Some(seen)
            }
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        }
    }

    /// Whether this is this very life of this node, except where a mutant says otherwise.
    pub(crate) fn is_me(&self, holder: &Holder) -> bool {
        let life_ignored = Mutant::IncarnationIgnored.on();
        let anybody = Mutant::OthersRecordVacated.on() && self.stop_by.is_some();
        *holder == self.me || (life_ignored && holder.node == self.me.node) || anybody
    }

    /// When to vacate a record of this incarnation next; never while its work runs.
    fn vacates_at(&self, standby: &Standby) -> Option<Time> {
        let record = self.own_record().filter(|_| self.spare.is_none());
        record.map(|_| standby.vacate_at)
    }

    /// When the holder last seen counts as unavailable, if the seat does not change before.
    pub(crate) fn expiry_at(&self) -> Option<Time> {
        match &self.seen {
            Seen::Seat(seen) if seen.seat.state == SeatState::Held => {
                Some(seen.since + self.config.waits_ms(seen.seat.lease))
            }
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        }
    }

    /// When to read the seat next: at the regular poll, at the moment of expiry, or when the turn to claim comes.
    pub(crate) fn read_at(&self, standby: &Standby) -> Time {
        let special = match &standby.campaign {
            Some(campaign) => campaign.claim_at,
            // Nothing is claimed at that moment, so there is nothing to look for; and once it has passed, a read would be
            // due forever.
            None if self.own_record().is_some() || self.spare.is_some() => None,
            None => self.expiry_at(),
        };
        special.map_or(standby.poll_at, |at| at.min(standby.poll_at)).max(standby.retry_at)
    }

    pub(crate) fn standby_due(&self, standby: &Standby) -> Option<Time> {
        if self.seat_flight.is_some() {
            return None;
        }
        let vacate = self.vacates_at(standby);
        let list = match &standby.campaign {
            Some(campaign) if campaign.claim_at.is_none() && standby.nodes.is_none() => {
                Some(campaign.ready_at)
            }
            Some(_) | None => None,
        };
        [Some(self.read_at(standby)), vacate, list].into_iter().flatten().min()
    }

    pub(crate) fn advance_standby(&mut self, out: &mut Vec<Effect>) {
        let Phase::Standby(standby) = &self.phase else { return };
        let list_due = standby.nodes.is_none()
            && standby
                .campaign
                .as_ref()
                .is_some_and(|c| c.claim_at.is_none() && (c.is_down() || self.now >= c.ready_at));
        if list_due && self.stop_by.is_none() {
            let id = self.request(Request::ListNodes, out);
            self.standby().nodes = Some((id, NodesPurpose::Rank));
        }
        if self.seat_flight.is_some() {
            return;
        }
        let Phase::Standby(standby) = &self.phase else { return };
        if self.vacates_at(standby).is_some_and(|at| self.now >= at) {
            self.vacate_own_record(out);
            return;
        }
        let unresolved = standby.campaign.as_ref().is_some_and(|campaign| campaign.unresolved);
        if self.stop_by.is_some() && !unresolved {
            return; // Leaving: the node only looks after what may be its own.
        }
        if self.now >= self.read_at(standby) {
            self.look(out);
        }
    }

    /// Reads the seat. If the turn to claim has come, this is the read that confirms it.
    fn look(&mut self, out: &mut Vec<Effect>) {
        let (now, interval) = (self.now, self.config.election_interval_ms.max(1));
        let standby = self.standby();
        if standby.campaign.is_none() && now < standby.poll_at {
            // A look at the moment of expiry replaces the regular one: a silence costs no extra look.
            standby.poll_at = now + interval;
        }
        while standby.poll_at <= now {
            standby.poll_at = standby.poll_at + interval;
        }
        let mut candidate = false;
        if let Some(campaign) = &mut standby.campaign {
            campaign.confirming = campaign.claim_at.is_some_and(|at| now >= at);
            candidate = campaign.confirming;
        }
        if candidate && self.role() == Some(crate::Role::Standby) {
            self.become_candidate();
            let cause =
                self.standby().campaign.as_ref().map_or(ElectionCause::First, |campaign| campaign.cause);
            out.push(Effect::Emit(Event::ElectionStarted { cause }));
        }
        self.send_read(out);
    }

    pub(crate) fn standby_read(&mut self, sent: Time, learned: Learned, out: &mut Vec<Effect>) {
        if let Learned::Failed { .. } = learned {
            self.put_off();
            return;
        }
        let (now, writes_fail) = (self.now, self.writes_fail);
        let standby = self.standby();
        (standby.reads_failed, standby.retry_at) = (0, Time(0));
        if !writes_fail {
            // The store is back: this node's own record need not wait out the back-off of the outage.
            standby.vacate_at = standby.vacate_at.min(now);
        }
        self.emit_check(out);
        if self.own_record().is_some() {
            self.on_own_record(out);
            return;
        }
        match &self.seen {
            Seen::Nothing => {}
            Seen::Unreadable { .. } => self.drop_campaign(),
            Seen::Absent => self.on_free_seat(out),
            Seen::Seat(seen) if seen.seat.state == SeatState::Vacant => self.on_free_seat(out),
            Seen::Seat(seen) => {
                if learned == Learned::Changed {
                    let seat = seen.seat.clone();
                    self.on_held_seat(seat, out);
                } else {
                    self.on_silent_seat(sent, out);
                }
            }
        }
    }

    fn emit_check(&self, out: &mut Vec<Effect>) {
        let (leader, unchanged_ms) = match &self.seen {
            Seen::Seat(seen) if seen.seat.state == SeatState::Held => {
                (Some(seen.seat.holder.node.clone()), self.now.since(seen.since))
            }
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => (None, 0),
        };
        out.push(Effect::Emit(Event::ElectionCheck { leader, unchanged_ms }));
    }

    /// The seat has a new record of another holder: this node drops whatever it was doing. A mark counts as a change like
    /// any other, so that standbys judge by change alone; on a dead leader's seat that costs at most one expiry. But
    /// somebody else wrote the mark, so it is not a sign of life.
    fn on_held_seat(&mut self, seat: Seat, out: &mut Vec<Effect>) {
        let suspect = self.standby().campaign.as_ref().and_then(|campaign| campaign.suspect);
        if suspect == Some(seat.epoch) && !seat.step_down {
            let (leader, epoch) = (seat.holder.node, seat.epoch);
            out.push(Effect::Emit(Event::LeaderRecovered { leader, epoch }));
        }
        self.standby().cold = false;
        self.drop_campaign();
    }

    /// The seat is held and has not changed. Only a read *sent* after the expiry proves that it stayed unchanged that long:
    /// an answer that took a second says nothing about that second.
    fn on_silent_seat(&mut self, sent: Time, out: &mut Vec<Effect>) {
        let Some(expiry_at) = self.expiry_at() else { return };
        match &self.standby().campaign {
            Some(campaign) if campaign.confirming => self.after_confirmation(out),
            Some(_) => {}
            None if sent >= expiry_at => self.start_campaign(ElectionCause::LeaderDown, out),
            None => {}
        }
    }

    fn on_free_seat(&mut self, out: &mut Vec<Effect>) {
        match &self.standby().campaign {
            Some(campaign) if campaign.confirming => self.after_confirmation(out),
            Some(campaign) if campaign.is_down() => {
                // The leader that seemed dead has vacated: there is no reason left to wait out the takeover delay.
                self.drop_campaign();
                self.start_campaign(ElectionCause::Vacant, out);
            }
            Some(_) => {}
            None => self.start_campaign(ElectionCause::Vacant, out),
        }
    }

    /// A read failed: nothing is known, so nothing is claimed. The look is repeated soon if a claim depends on it.
    fn put_off(&mut self) {
        let failures = self.standby().reads_failed;
        let retry_at = if Mutant::NoBackOff.on() { self.now } else { self.back_off(failures) };
        let standby = self.standby();
        standby.reads_failed = failures.saturating_add(1);
        standby.retry_at = retry_at;
        if let Some(campaign) = &mut standby.campaign {
            campaign.confirming = false;
        }
    }

    /// When to try again: soon after a first failure, but no faster than the regular look after many.
    fn back_off(&self, failures: u32) -> Time {
        self.now + self.config.backoff_ms(self.config.retry_ms(), failures, self.config.election_interval_ms)
    }

    pub(crate) fn standby_written(
        &mut self,
        flight: SeatFlight,
        answer: &WriteAnswer,
        out: &mut Vec<Effect>,
    ) {
        let now = self.now;
        let failures = self.standby().writes_failed;
        let retry_at = self.back_off(failures);
        let standby = self.standby();
        match answer {
            // The store answers: the next look need not wait out the back-off of an outage.
            WriteAnswer::Won(_) | WriteAnswer::Lost => {
                (standby.writes_failed, standby.retry_at) = (0, Time(0))
            }
            WriteAnswer::Unknown | WriteAnswer::Unavailable | WriteAnswer::Denied => {
                standby.writes_failed = failures.saturating_add(1);
            }
        }
        match flight.kind {
            FlightKind::Claim(seat) => match answer {
                WriteAnswer::Won(_) => self.on_claimed(seat.epoch, flight.sent, out),
                WriteAnswer::Lost | WriteAnswer::Unknown => {
                    if let Some(campaign) = &mut self.standby().campaign {
                        campaign.unresolved = true;
                        campaign.claim_at = Some(now);
                    }
                }
                WriteAnswer::Unavailable | WriteAnswer::Denied => {
                    if let Some(campaign) = &mut self.standby().campaign {
                        campaign.claim_at = Some(retry_at);
                    }
                }
            },
            // Left over from this node's own leadership, or the vacating of a late record. If it won, `seen` shows it.
            FlightKind::Renew(_) | FlightKind::Vacate(_) => match answer {
                WriteAnswer::Won(_) if self.own_record().is_none() => self.on_free_seat(out),
                WriteAnswer::Won(_) => {}
                // The seat has moved on. Look at once, and do not try again before: the next try may be due already, and
                // without the look each one would be refused like the last, forever.
                WriteAnswer::Lost => {
                    let standby = self.standby();
                    standby.poll_at = now;
                    standby.vacate_at = standby.vacate_at.max(retry_at);
                }
                WriteAnswer::Unknown | WriteAnswer::Unavailable | WriteAnswer::Denied => {
                    let standby = self.standby();
                    standby.vacate_at = standby.vacate_at.max(retry_at);
                    standby.poll_at = standby.poll_at.min(retry_at);
                }
            },
            FlightKind::Read => {}
        }
    }

    /// A read shows a record of this very incarnation while it does not lead: a write landed after all.
    fn on_own_record(&mut self, out: &mut Vec<Effect>) {
        let Some(seen) = self.own_record() else { return };
        let (epoch, nonce, marked) = (seen.seat.epoch, seen.seat.nonce, seen.seat.step_down);
        let cooled = self.now + self.config.step_down_cooldown_ms();
        if marked {
            // Asked to hand over before it knew that it led: it does not lead by this record, and lets others try.
            let now = self.now;
            let standby = self.standby();
            if standby.not_before <= now {
                standby.not_before = cooled;
            }
        }
        let sent = self.pending.iter().find(|write| write.nonce == nonce).map(|write| write.sent);
        self.pending.clear();
        if let Some(campaign) = &mut self.standby().campaign {
            campaign.unresolved = false;
        }
        match sent {
            Some(sent) => self.on_claimed(epoch, sent, out),
            None => self.vacate_own_record(out),
        }
    }

    pub(crate) fn vacate_own_record(&mut self, out: &mut Vec<Effect>) {
        let Some(seen) = self.own_record() else { return };
        self.retired = self.retired.max(seen.seat.epoch);
        self.drop_campaign();
        let (now, retry_ms, spared) = (self.now, self.config.retry_ms(), self.spare.is_some());
        let standby = self.standby();
        if spared || now < standby.vacate_at {
            return; // Its work runs, or a vacate was sent only just now.
        }
        standby.vacate_at = now + retry_ms;
        self.send_vacate(out);
    }
}
