//! The standby: watches the seat, judges the leader by observed change on its own clock, and claims in its turn.

use crate::coordinator::{Coordinator, FlightKind, Learned, Phase, SeatFlight, Seen, SeenSeat};
use crate::event::{ElectionCause, Event};
use crate::io::{Effect, NodeEntry, NodesAnswer, Request, RequestId, WriteAnswer};
use crate::leader::Tenure;
use crate::mutant::Mutant;
use crate::seat::{Epoch, Expect, Seat, SeatState};
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Standby {
    /// The next regular look at the seat.
    poll_at: Time,
    campaign: Option<Campaign>,
    nodes: Option<(RequestId, NodesPurpose)>,
    /// A seat found held at startup has not been aged by the store's clock yet.
    cold: bool,
    /// Elections found at startup wait until then; running standbys never do.
    settled: Time,
    /// No claim before this; set when leadership was given up by request.
    not_before: Time,
    /// When an own record that must not be adopted is next vacated.
    vacate_at: Time,
    /// Processes of this lost epoch may run until then: neither is their record vacated before, nor another claim made.
    spare: Option<(Epoch, Time)>,
    /// No read before this; set when one failed, so that a missed expiry is not read in a hot loop.
    retry_at: Time,
    /// Reads that failed in a row, for the back-off.
    reads_failed: u32,
    /// Writes that failed in a row. Counted apart: a store may let a node read and not write.
    writes_failed: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum NodesPurpose {
    /// To rank the live nodes.
    Rank,
    /// To age the seat against this node's own fresh presence, both by the store's clock.
    Age,
}

/// The way from "the seat is to be had" to the claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Campaign {
    cause: ElectionCause,
    /// The epoch of the silent leader; if the seat changes without a new epoch, that leader is back.
    suspect: Option<Epoch>,
    /// The takeover delay or the settling time ends then.
    ready_at: Time,
    /// Known once the presences were listed (or could not be).
    claim_at: Option<Time>,
    /// A read was sent at or after `claim_at`; if it still shows the same seat, the claim goes out.
    confirming: bool,
    /// When the last claim was sent.
    tried: Time,
    /// The outcome of a claim is unknown, so the next read is for finding out.
    unresolved: bool,
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
            spare: None,
            retry_at: Time(0),
            reads_failed: 0,
            writes_failed: 0,
        }
    }

    /// After leadership: look at once, and claim no sooner than told.
    pub(crate) fn after_leading(now: Time, not_before: Time) -> Standby {
        Standby { cold: false, not_before, ..Standby::joined(now, now) }
    }

    /// Processes of the lost epoch may still run: until their lease has run out, the record stays and this node claims
    /// nothing beside them.
    pub(crate) fn spare(&mut self, epoch: Epoch, deadline: Time) {
        self.spare = Some((epoch, deadline));
    }

    /// The processes of a lost epoch have stopped after all.
    pub(crate) fn spare_no_more(&mut self, epoch: Epoch) {
        self.spare.take_if(|(spared, _)| *spared == epoch);
    }

    fn spared_until(&self) -> Time {
        self.spare.map_or(Time(0), |(_, deadline)| deadline)
    }

    fn vacates_at(&self) -> Time {
        self.vacate_at.max(self.spared_until())
    }
}

impl Coordinator {
    fn standby(&mut self) -> &mut Standby {
        match &mut self.phase {
            Phase::Standby(standby) => standby,
            Phase::Idle | Phase::Starting(_) | Phase::Leading(_) | Phase::Leaving { .. } => {
                unreachable!("called only in the standby phase")
            }
        }
    }

    /// The first look at the seat, taken while enrolling, is judged here.
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

    /// Whether something of this node may still be on the seat that it should clear away before leaving.
    pub(crate) fn has_business(&self) -> bool {
        let unresolved = match &self.phase {
            Phase::Standby(Standby { campaign: Some(campaign), .. }) => campaign.unresolved,
            Phase::Standby(_)
            | Phase::Idle
            | Phase::Starting(_)
            | Phase::Leading(_)
            | Phase::Leaving { .. } => false,
        };
        unresolved || self.own_record().is_some()
    }

    /// This very incarnation's record, found on the seat while not leading.
    fn own_record(&self) -> Option<&SeenSeat> {
        match &self.seen {
            Seen::Seat(seen) if seen.seat.state == SeatState::Held && seen.seat.holder == self.me => {
                Some(seen)
            }
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        }
    }

    /// When the holder last seen counts as unavailable, if nothing changes until then.
    fn expiry_at(&self) -> Option<Time> {
        match &self.seen {
            Seen::Seat(seen) if seen.seat.state == SeatState::Held => {
                Some(seen.since + self.config.expiry_ms(seen.seat.lease_ms))
            }
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        }
    }

    /// When the seat is next read: at the regular poll, at the moment of expiry, or when the turn to claim comes.
    fn read_at(&self, standby: &Standby) -> Time {
        let special = match &standby.campaign {
            Some(campaign) => campaign.claim_at,
            None if self.own_record().is_some() => None,
            None => self.expiry_at(),
        };
        special.map_or(standby.poll_at, |at| at.min(standby.poll_at)).max(standby.retry_at)
    }

    pub(crate) fn standby_due(&self, standby: &Standby) -> Option<Time> {
        if self.seat_flight.is_some() {
            return None;
        }
        let vacate = self.own_record().map(|_| standby.vacates_at());
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
        if self.own_record().is_some() && self.now >= standby.vacates_at() {
            self.vacate_own_record(out);
            return;
        }
        let unresolved = standby.campaign.as_ref().is_some_and(|campaign| campaign.unresolved);
        if self.stop_by.is_some() && !unresolved {
            return; // Leaving: only what may be this node's own is still looked after.
        }
        if self.now >= self.read_at(standby) {
            self.look(out);
        }
    }

    /// Reads the seat; if the turn to claim has come, this is the read that confirms it.
    fn look(&mut self, out: &mut Vec<Effect>) {
        let (now, interval) = (self.now, self.config.election_interval_ms.max(1));
        let standby = self.standby();
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
        let (now, write_denied) = (self.now, self.write_denied);
        let standby = self.standby();
        (standby.reads_failed, standby.retry_at) = (0, Time(0));
        if !write_denied {
            // The store is back: an own record need not wait out the back-off of the outage.
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
                let (holder, epoch) = (seen.seat.holder.node.clone(), seen.seat.epoch);
                if learned == Learned::Changed {
                    self.on_held_seat(holder, epoch, out);
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

    /// The seat has a new record of somebody else: whatever this node was up to is off.
    fn on_held_seat(&mut self, holder: crate::NodeId, epoch: Epoch, out: &mut Vec<Effect>) {
        if self.standby().campaign.as_ref().is_some_and(|campaign| campaign.suspect == Some(epoch)) {
            out.push(Effect::Emit(Event::LeaderRecovered { leader: holder, epoch }));
        }
        self.standby().cold = false;
        self.drop_campaign();
    }

    /// The seat is held and has not changed. Only a read *sent* after the expiry proves that it stayed unchanged for it.
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
                // The leader that seemed dead has vacated: no reason left to wait out the takeover delay.
                self.drop_campaign();
                self.start_campaign(ElectionCause::Vacant, out);
            }
            Some(_) => {}
            None => self.start_campaign(ElectionCause::Vacant, out),
        }
    }

    /// The confirming read shows the seat still to be had. After an unknown claim the same read says that the claim
    /// has not landed; it is tried again a little later, not in a hot loop.
    fn after_confirmation(&mut self, out: &mut Vec<Effect>) {
        if self.stop_by.is_some() {
            self.drop_campaign();
            return;
        }
        let (now, retry_ms) = (self.now, self.config.retry_ms());
        let Some(campaign) = &mut self.standby().campaign else { return };
        campaign.confirming = false;
        if std::mem::take(&mut campaign.unresolved) && now < campaign.tried + retry_ms {
            campaign.claim_at = Some(campaign.tried + retry_ms);
            return;
        }
        campaign.tried = now;
        self.claim(out);
    }

    fn start_campaign(&mut self, cause: ElectionCause, out: &mut Vec<Effect>) {
        let unchanged_ms = match &self.seen {
            Seen::Seat(seen) => self.now.since(seen.since),
            Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => 0,
        };
        self.start_campaign_after(cause, unchanged_ms, out);
    }

    fn start_campaign_after(&mut self, cause: ElectionCause, unchanged_ms: u64, out: &mut Vec<Effect>) {
        let (now, delay, wait_out) = (self.now, self.config.takeover_delay_ms, self.wait_out);
        let mut suspect = None;
        if let Seen::Seat(seen) = &self.seen
            && seen.seat.state == SeatState::Held
        {
            let (leader, epoch) = (seen.seat.holder.node.clone(), seen.seat.epoch);
            suspect = Some(epoch);
            out.push(Effect::Emit(Event::LeaderDown { leader, epoch, unchanged_ms }));
        }
        let standby = self.standby();
        let ready_at = match cause {
            ElectionCause::First => standby.settled,
            ElectionCause::Vacant => now,
            ElectionCause::LeaderDown => now + delay,
        };
        let ready_at = ready_at.max(standby.not_before).max(standby.spared_until()).max(wait_out);
        standby.cold = false;
        standby.campaign = Some(Campaign {
            cause,
            suspect,
            ready_at,
            claim_at: None,
            confirming: false,
            tried: Time(0),
            unresolved: false,
        });
        if ready_at > now {
            out.push(Effect::Emit(Event::AwaitingTurn { ready_at }));
        }
    }

    fn drop_campaign(&mut self) {
        self.standby().campaign = None;
        self.become_watcher();
    }

    /// A read failed: nothing is known, so nothing is claimed; the look is repeated soon if a claim hangs on it.
    fn put_off(&mut self) {
        let failures = self.standby().reads_failed;
        let retry_at = self.back_off(failures);
        let standby = self.standby();
        standby.reads_failed = failures.saturating_add(1);
        standby.retry_at = retry_at;
        if let Some(campaign) = &mut standby.campaign {
            campaign.confirming = false;
        }
    }

    /// When to try again: soon after a first failure, no faster than the regular look after many.
    fn back_off(&self, failures: u32) -> Time {
        self.now + self.config.backoff_ms(self.config.retry_ms(), failures, self.config.election_interval_ms)
    }

    fn claim(&mut self, out: &mut Vec<Effect>) {
        let (base, expect) = match &self.seen {
            Seen::Seat(seen) => (seen.seat.epoch, Expect::Version(seen.version.clone())),
            Seen::Absent => (Epoch(0), Expect::Absent),
            Seen::Nothing | Seen::Unreadable { .. } => return,
        };
        let mut epoch = base.max(self.highest).next();
        if self.config.has(Mutant::EpochNotRaised) {
            epoch = base.max(Epoch(1));
        }
        let nonce = self.nonce();
        let seat = Seat {
            epoch,
            state: SeatState::Held,
            holder: self.me.clone(),
            lease_ms: self.config.lease_ms,
            renewals: 0,
            nonce,
        };
        self.send_write(seat, expect, FlightKind::Claim, out);
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
            // The store is there: the next look need not wait out the back-off of an outage.
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
            // Left over from this node's own leadership, or the vacating of a late record. If it won, `seen` says so.
            FlightKind::Renew(_) | FlightKind::Vacate(_) => match answer {
                WriteAnswer::Won(_) if self.own_record().is_none() => self.on_free_seat(out),
                WriteAnswer::Won(_) => {}
                // The seat has moved on; look at once.
                WriteAnswer::Lost => self.standby().poll_at = now,
                WriteAnswer::Unknown | WriteAnswer::Unavailable | WriteAnswer::Denied => {
                    let standby = self.standby();
                    standby.vacate_at = standby.vacate_at.max(retry_at);
                    standby.poll_at = standby.poll_at.min(retry_at);
                }
            },
            FlightKind::Read => {}
        }
    }

    /// The claim is known to be on the seat. It counts only within the time that its *sending* allows.
    fn on_claimed(&mut self, epoch: Epoch, sent: Time, out: &mut Vec<Effect>) {
        let sent = if self.config.has(Mutant::LateRecordAdopted) { self.now } else { sent };
        let in_time = self.now < sent + self.config.wind_down_ms();
        if in_time
            && epoch > self.retired
            && self.role() == Some(crate::Role::Candidate)
            && self.stop_by.is_none()
        {
            self.lead(Tenure::new(epoch, sent, &self.config), out);
        } else {
            self.vacate_own_record(out);
        }
    }

    /// A read shows a record of this very incarnation while it does not lead: a write that landed after all.
    fn on_own_record(&mut self, out: &mut Vec<Effect>) {
        let Some(seen) = self.own_record() else { return };
        let (epoch, nonce) = (seen.seat.epoch, seen.seat.nonce);
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

    fn vacate_own_record(&mut self, out: &mut Vec<Effect>) {
        let Some(seen) = self.own_record() else { return };
        self.retired = self.retired.max(seen.seat.epoch);
        self.drop_campaign();
        let (now, retry_ms) = (self.now, self.config.retry_ms());
        if now < self.standby().vacates_at() {
            return; // Spared for now, or tried only just now.
        }
        self.standby().vacate_at = now + retry_ms;
        self.send_vacate(out);
    }

    pub(crate) fn on_nodes(&mut self, id: RequestId, answer: NodesAnswer, out: &mut Vec<Effect>) {
        let Phase::Standby(standby) = &mut self.phase else { return };
        let Some((_, purpose)) = standby.nodes.take_if(|(flight, _)| *flight == id) else { return };
        let nodes = match answer {
            NodesAnswer::Found(nodes) => Some(nodes),
            NodesAnswer::Unavailable => {
                self.note_trouble(false, out);
                None
            }
        };
        match purpose {
            NodesPurpose::Age => {
                if let Some(nodes) = nodes {
                    self.age_seat(&nodes, out);
                }
            }
            NodesPurpose::Rank => self.rank(nodes.as_deref()),
        }
    }

    /// A cold start recognises a long-dead seat at once: by the store's clock alone, against this node's own presence,
    /// and only beyond a wide margin.
    fn age_seat(&mut self, nodes: &[NodeEntry], out: &mut Vec<Effect>) {
        let Seen::Seat(seen) = &self.seen else { return };
        let Some(seat_ms) = seen.modified_ms else { return };
        let limit_ms = self.config.expiry_ms(seen.seat.lease_ms) + self.config.store_clock_margin_ms;
        let held = seen.seat.state == SeatState::Held;
        let Some(own) = nodes.iter().find(|entry| entry.node == self.me.node) else { return };
        let age_ms = own.modified_ms.saturating_sub(seat_ms);
        let standby = self.standby();
        if age_ms > limit_ms && held && standby.cold && standby.campaign.is_none() {
            self.start_campaign_after(ElectionCause::First, age_ms, out);
        }
    }

    /// The turn to claim: the lexicographically first live node goes first. Without a list this node cannot know its
    /// rank and goes last; compare-and-swap settles the rest.
    fn rank(&mut self, nodes: Option<&[NodeEntry]>) {
        let Some(cause) = self.standby().campaign.as_ref().map(|campaign| campaign.cause) else { return };
        let rank = match nodes {
            Some(nodes) => self.rank_among(nodes, cause),
            None => u64::MAX,
        };
        let hold_back_ms = match cause {
            ElectionCause::First => self.config.first_hold_back_ms(rank),
            ElectionCause::Vacant | ElectionCause::LeaderDown => self.config.hold_back_ms(rank),
        };
        let now = self.now;
        if let Some(campaign) = &mut self.standby().campaign {
            campaign.claim_at = Some(campaign.ready_at.max(now) + hold_back_ms);
        }
    }

    /// How many live nodes come before this one. The holder that died or left is not waited for; in a first election
    /// it is, because it may have come back like everybody else.
    fn rank_among(&mut self, nodes: &[NodeEntry], cause: ElectionCause) -> u64 {
        let own_ms = nodes.iter().find(|entry| entry.node == self.me.node).map(|entry| entry.modified_ms);
        if own_ms.is_none() {
            self.presence_missing();
        }
        let age_ms = self.presence.confirmed().map_or(0, |at| self.now.since(at));
        let oldest_ms = own_ms.map_or(0, |ms| (ms + age_ms).saturating_sub(self.config.presence_live_ms()));
        let gone = match &self.seen {
            Seen::Seat(seen) if cause != ElectionCause::First => Some(&seen.seat.holder.node),
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        };
        let ahead = |entry: &&NodeEntry| {
            entry.node < self.me.node && entry.modified_ms >= oldest_ms && Some(&entry.node) != gone
        };
        nodes.iter().filter(ahead).count() as u64
    }
}

impl Campaign {
    fn is_down(&self) -> bool {
        self.cause == ElectionCause::LeaderDown
    }
}
