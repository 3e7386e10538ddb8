//! The campaign: from "the seat is free to claim" to the claim, in rank order.

use crate::election::coordinator::{Coordinator, FlightKind, Phase};
use crate::election::event::{ElectionCause, Event};
use crate::election::io::{Effect, NodeEntry, NodesAnswer, RequestId, SeatProblem};
use crate::election::leader::Term;
use crate::election::observe::Seen;
use crate::election::seat::{Epoch, Expect, Seat, SeatState};
use crate::mutants::Mutant;
use crate::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum NodesPurpose {
    Rank,
    /// To compare the seat's age with this node's own fresh presence, both by the store's clock.
    Age,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Campaign {
    pub(crate) cause: ElectionCause,
    /// The epoch of the silent leader; if the seat changes without a new epoch, that leader is back.
    pub(crate) suspect: Option<Epoch>,
    /// When the takeover delay or the settling time ends.
    pub(crate) ready_at: Time,
    /// Known once the presences were listed (or the list failed).
    pub(crate) claim_at: Option<Time>,
    /// A read was sent at or after `claim_at`; if it still shows the same seat, the claim goes out.
    pub(crate) confirming: bool,
    /// When the last claim was sent.
    pub(crate) tried: Time,
    /// The outcome of a claim is unknown; the next read settles it.
    pub(crate) unresolved: bool,
}

impl Campaign {
    pub(crate) fn is_down(&self) -> bool {
        self.cause == ElectionCause::LeaderDown
    }
}

impl Coordinator {
    /// The confirming read shows that the seat can still be claimed. After an unknown claim, the same read says that the
    /// claim has not landed; the node retries a little later, not in a hot loop. The read avoids a write that would be
    /// refused: the turn may come long after the last look, and on S3 a read costs a twelfth of a write. Safety does not
    /// depend on it, nor on the takeover delay or the ranks that led here.
    pub(crate) fn after_confirmation(&mut self, out: &mut Vec<Effect>) {
        if self.stop_by.is_some() {
            self.drop_campaign();
            return;
        }
        let (now, retry_ms, wait_out) = (self.now, self.config.retry_ms(), self.wait_out);
        let Some(campaign) = &mut self.standby().campaign else { return };
        campaign.confirming = false;
        if now < wait_out {
            // This very read showed that somebody removed the seat; whoever held it last may still act.
            campaign.claim_at = Some(wait_out);
            return;
        }
        if std::mem::take(&mut campaign.unresolved) && now < campaign.tried + retry_ms {
            campaign.claim_at = Some(campaign.tried + retry_ms);
            return;
        }
        campaign.tried = now;
        self.claim(out);
    }

    pub(crate) fn start_campaign(&mut self, cause: ElectionCause, out: &mut Vec<Effect>) {
        let unchanged_ms = match &self.seen {
            Seen::Seat(seen) => self.now.since(seen.since),
            Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => 0,
        };
        self.start_campaign_after(cause, unchanged_ms, out);
    }

    fn start_campaign_after(&mut self, cause: ElectionCause, unchanged_ms: u64, out: &mut Vec<Effect>) {
        if self.spare.is_some() {
            return; // Other nodes may campaign; this node's own work is still in the way.
        }
        let (now, delay, wait_out) = (self.now, self.config.takeover_delay_ms, self.wait_out);
        let skip_delay = Mutant::TakeoverDelaySkipped.on();
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
            ElectionCause::LeaderDown if skip_delay => now,
            ElectionCause::LeaderDown => now + delay,
        };
        let ready_at = ready_at.max(standby.not_before).max(wait_out);
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

    pub(crate) fn drop_campaign(&mut self) {
        self.standby().campaign = None;
        self.become_watcher();
    }

    fn claim(&mut self, out: &mut Vec<Effect>) {
        let (base, expect) = match &self.seen {
            Seen::Seat(seen) => (seen.seat.epoch, Expect::Version(seen.version.clone())),
            Seen::Absent => (Epoch(0), Expect::Absent),
            Seen::Nothing | Seen::Unreadable { .. } => return,
        };
        let mut last = base.max(self.highest).max(self.floor);
        if Mutant::EpochFromLastLeader.on() {
            last = self.announced.as_ref().map_or(Epoch(0), |(_, epoch)| *epoch);
        }
        if Mutant::HighestForgotten.on() {
            last = base;
        }
        let Some(mut epoch) = last.next() else { return self.stop_at_last_epoch(out) };
        if Mutant::EpochNotRaised.on() {
            epoch = base.max(Epoch(1));
        }
        let nonce = self.nonce();
        let seat = Seat {
            epoch,
            state: SeatState::Held,
            holder: self.me.clone(),
            lease: self.config.lease(),
            terms: Some(self.terms),
            renewals: 0,
            nonce,
            step_down: false,
        };
        self.send_write(seat, expect, FlightKind::Claim, out);
    }

    /// No epoch is left to claim with. The node leaves the seat alone, like one it cannot read, until somebody changes it.
    fn stop_at_last_epoch(&mut self, out: &mut Vec<Effect>) {
        if let Seen::Seat(seen) = &self.seen {
            self.seen = Seen::Unreadable { version: seen.version.clone() };
        }
        out.push(Effect::Emit(Event::SeatUnreadable { problem: SeatProblem::LastEpoch }));
        self.drop_campaign();
    }

    /// The claim is known to be on the seat. It counts only within 80 % of the hold from its *sending*: after that, the new
    /// leader would have to wind down at once.
    pub(crate) fn on_claimed(&mut self, epoch: Epoch, sent: Time, out: &mut Vec<Effect>) {
        let sent = if Mutant::LateRecordAdopted.on() { self.now } else { sent };
        let in_time = self.now < sent + self.config.wind_down_ms();
        let retired_too = Mutant::RetiredEpochLed.on();
        if in_time
            && (epoch > self.retired || retired_too)
            && (self.role() == Some(crate::Role::Candidate) || retired_too)
            && self.stop_by.is_none()
        {
            self.config.follow(self.terms);
            self.lead(Term::new(epoch, sent, &self.config), out);
        } else {
            self.vacate_own_record(out);
        }
    }

    pub(crate) fn on_nodes(&mut self, id: RequestId, answer: NodesAnswer, out: &mut Vec<Effect>) {
        let Phase::Standby(standby) = &mut self.phase else { return };
        let Some((_, purpose)) = standby.nodes.take_if(|(flight, _)| *flight == id) else { return };
        let nodes = match answer {
            NodesAnswer::Found { nodes, more } => Some((nodes, more)),
            NodesAnswer::Unavailable => {
                self.note_trouble(false, out);
                None
            }
        };
        match purpose {
            NodesPurpose::Age => {
                if let Some((nodes, _)) = nodes {
                    self.age_seat(&nodes, out);
                }
            }
            NodesPurpose::Rank => self.rank(nodes),
        }
    }

    /// A cold start recognises a long-dead seat at once. It goes by the store's clock alone, compares with this node's own
    /// presence, and allows a wide margin. This is more than comfort after an outage: nobody watches a lock between two runs
    /// of a script, so without it every run after a crash would have to watch for a whole expiry, and one with a shorter
    /// `--timeout` would never get the lock again.
    fn age_seat(&mut self, nodes: &[NodeEntry], out: &mut Vec<Effect>) {
        let Seen::Seat(seen) = &self.seen else { return };
        let Some(seat_ms) = seen.modified_ms else { return };
        let mut limit_ms = self.config.waits_ms(seen.seat.lease) + self.config.store_clock_margin_ms;
        if Mutant::StoreClockTrusted.on() {
            limit_ms -= self.config.store_clock_margin_ms;
        }
        let held = seen.seat.state == SeatState::Held;
        let Some(own) = nodes.iter().find(|entry| entry.node == self.me.node) else { return };
        let age_ms = own.modified_ms.saturating_sub(seat_ms);
        let standby = self.standby();
        if age_ms > limit_ms && held && standby.cold && standby.campaign.is_none() {
            self.start_campaign_after(ElectionCause::First, age_ms, out);
        }
    }

    /// When this node claims: the lexicographically first live node goes first. Without a list this node cannot know its
    /// rank and goes last; compare-and-swap settles the rest.
    fn rank(&mut self, nodes: Option<(Vec<NodeEntry>, bool)>) {
        let Some(cause) = self.standby().campaign.as_ref().map(|campaign| campaign.cause) else { return };
        let rank = match nodes {
            Some((nodes, more)) => self.rank_among(&nodes, more, cause),
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

    /// How many live nodes come before this one. A holder that died or left does not count. In a first election it does,
    /// because it may have come back like everybody else.
    fn rank_among(&mut self, nodes: &[NodeEntry], more: bool, cause: ElectionCause) -> u64 {
        let own_ms = nodes.iter().find(|entry| entry.node == self.me.node).map(|entry| entry.modified_ms);
        if own_ms.is_none() && !more {
            self.presence_missing();
        }
        // This node's own object may be a whole interval old. Without the time since its confirmation, dead nodes would look
        // younger than they are. If the list does not show it, no age can be computed, and every node counts as live.
        let age_ms = self.presence.confirmed().map_or(0, |at| self.now.since(at));
        let oldest_ms = own_ms.map_or(0, |ms| (ms + age_ms).saturating_sub(self.config.presence_live_ms()));
        let gone = match &self.seen {
            Seen::Seat(seen) if cause != ElectionCause::First => Some(&seen.seat.holder.node),
            Seen::Seat(_) | Seen::Nothing | Seen::Absent | Seen::Unreadable { .. } => None,
        };
        let for_ever = Mutant::PresenceLiveForever.on();
        let ahead = |entry: &&NodeEntry| {
            entry.node < self.me.node
                && (entry.modified_ms >= oldest_ms || for_ever)
                && Some(&entry.node) != gone
        };
        if Mutant::RankIgnored.on() {
            return 0;
        }
        nodes.iter().filter(ahead).count() as u64
    }
}
