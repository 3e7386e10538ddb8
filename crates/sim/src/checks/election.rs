//! The truth about the election: every write of the seat that took effect, every start of work, and who acts when.

use super::name;
use crate::caller_mistakes::CallerMistake;
use crate::kind::Kind;
use crate::network::Sender;
use crate::shell::Who;
use crate::store::{Key, Object, Value};
use crate::trace::Noted;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::{ElectionCause, Epoch, Incarnation, Nonce, Request, Seat, SeatState, Time};

/// The start of work in a new epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    pub(crate) at: u64,
    pub(crate) node: usize,
    pub(crate) epoch: Epoch,
}

#[derive(Default)]
pub(crate) struct SeatChecks {
    led: BTreeMap<Epoch, u64>,
    top: Epoch,
    /// An operator restored an earlier state of the seat: from then on, only nodes that remember are held to rising epochs.
    pub(crate) rolled_back: bool,
    /// An operator brought back a record from before an earlier roll-back, above the current epochs. To every node that looks
    /// like elections it missed, and the current holder looks as if it had left.
    leapt: bool,
    last: Epoch,
    pub(crate) claims: u64,
    /// Claims that were sent because the leader was down.
    of_the_down: BTreeSet<Nonce>,
    pub(crate) began: Vec<Began>,
    /// The smallest gap between the work of a silent leader and that of the node that took over, in thousandths of a lease.
    /// Crashes do not count, nor does anything beyond the promise.
    pub(crate) margin: Option<u64>,
    /// The last epoch that was claimed over a held record.
    taken_over: Epoch,
    last_leader: Option<(usize, u64)>,
}

fn is_claim(seat: &Seat) -> bool {
    seat.state == SeatState::Held && seat.renewals == 0
}

impl SeatChecks {
    /// A record of this epoch is restored by hand.
    pub(crate) fn restored(&mut self, epoch: Epoch) {
        self.rolled_back = true;
        self.leapt |= epoch > self.last;
    }

    /// Whether no claim that landed had this epoch or a higher one.
    pub(crate) fn is_above(&self, epoch: Epoch) -> bool {
        epoch > self.top
    }
}

impl World {
    pub(crate) fn check_sending(&mut self, node: usize, request: &Request) {
        // The shortest heartbeat decides, because any node's settings may be in force.
        let heartbeat_ms = self.nodes.iter().map(|node| node.config.heartbeat_ms).min().unwrap_or(0);
        let (now, target) = (self.now, &mut self.nodes[node]);
        if target.second.0 != now / 1000 {
            target.second = (now / 1000, 0);
        }
        target.second.1 += 1;
        let retry_ms = (heartbeat_ms / 4).clamp(10, 1000);
        let limit = 3 * 1000 / retry_ms + 16;
        let (second, sent) = target.second;
        let is_seat =
            |request: &Request| matches!(request, Request::ReadSeat { .. } | Request::WriteSeat { .. });
        let beside = is_seat(request) && target.election.asked().any(is_seat);
        let (seen, cause) = (target.core().highest_epoch(), target.core().election().map(|(cause, _)| cause));
        // Pauses follow the node's own clock; a racing clock says nothing about a second of true time.
        if sent == limit + 1 && !self.clocks_beyond_drift {
            self.violated(name::NO_STORM, || {
                format!("{node} makes more than {limit} requests in second {second}")
            });
        }
        if beside {
            self.violated(name::ONE_SEAT_REQUEST, || format!("{node} sends {request:?} beside another"));
        }
        let Request::WriteSeat { seat, .. } = request else { return };
        if is_claim(seat) {
            let epoch = seat.epoch;
            if epoch <= seen {
                self.violated(name::CLAIM_ABOVE_SEEN, || {
                    format!("{node} claims {epoch:?} and has seen {seen:?}")
                });
            }
            if cause == Some(ElectionCause::LeaderDown) {
                self.seat_checks.of_the_down.insert(seat.nonce);
            }
        }
        if self.store.ignores_conditions {
            self.violated(name::UNSAFE_STORE, || format!("{node} writes {seat:?}"));
        }
    }

    /// A write has replaced `before`.
    pub(crate) fn check_seat_landed(&mut self, before: Option<&Object>, seat: &Seat, by: Option<&Sender>) {
        if let Some(Sender { who: Who::Node(node), life, sent, .. }) = by {
            self.check_writer(before.and_then(Object::seat), seat, *life);
            if is_claim(seat) {
                self.check_claim(before, seat, *node, *sent);
                // One incarnation claimed this epoch twice, with the seat deleted in between: a node that saw the first record
                // has not seen this one.
                self.seat_edits.forget_holder(*life, seat.epoch);
            }
            let (now, epoch) = (self.now, seat.epoch);
            self.trace.note(now, *node, || Noted::Landed(Kind::of_seat(seat), epoch));
        }
        self.seat_landed(seat);
    }

    fn check_writer(&mut self, old: Option<&Seat>, new: &Seat, writer: u64) {
        let own = new.nonce.incarnation.0 == writer && new.holder.incarnation.0 == writer;
        let checks = &mut self.seat_checks;
        if is_claim(new) {
            let top = checks.top;
            checks.claims += 1;
            (checks.top, checks.last) = (top.max(new.epoch), new.epoch);
            if new.epoch <= top && !checks.rolled_back {
                self.violated(name::EPOCHS_RISE, || format!("{:?} claimed after {top:?}", new.epoch));
            }
            if !own {
                self.violated(name::OWN_RECORD, || format!("life {writer} claims for {:?}", new.holder));
            }
            return;
        }
        let same = old.is_some_and(|old| {
            old.holder == new.holder && old.epoch == new.epoch && old.state == SeatState::Held
        });
        if !own || !same {
            self.violated(name::OWN_RECORD, || format!("life {writer} writes {new:?} over {old:?}"));
        }
    }

    fn check_claim(&mut self, before: Option<&Object>, seat: &Seat, node: usize, sent: u64) {
        let Some((object, held)) = before.and_then(|object| Some((object, object.seat()?))) else { return };
        if held.state != SeatState::Held {
            return;
        }
        self.seat_checks.taken_over = seat.epoch;
        let clock = &self.nodes[node].computer.clock;
        if object.by_hand || clock.has_changed() {
            return;
        }
        let waited = sent.saturating_sub(object.landed) * clock.rate() / 1000 + 2;
        // The leader's settings count until another node leads. If the record does not have them, the settings of an earlier record
        // do.
        let least_ms = || self.nodes.iter().map(|node| node.config.takeover_delay_ms).min().unwrap_or(0);
        let delay_ms = held.terms.map_or_else(least_ms, |terms| terms.takeover_delay_ms);
        let down = self.seat_checks.of_the_down.contains(&seat.nonce);
        let due = held.lease.expiry_ms + if down { delay_ms } else { 0 };
        if waited < due {
            self.violated(name::NOT_TOO_SOON, || {
                format!("{node} claims over {held:?} after {waited} of {due} ms")
            });
        }
    }

    /// Work of this epoch is about to start.
    pub(crate) fn check_start(&mut self, node: usize, epoch: Epoch, deadline: Time) {
        let (now, unchecked) = (self.now, self.mistake == Some(CallerMistake::DeadlineUnchecked));
        let target = &self.nodes[node];
        let (life, lease_ms) = (target.life, target.config.lease_ms);
        let (lost, past) = (epoch <= target.lost, deadline <= target.computer.clock.local(now));
        if let Some(before) = target.acting.filter(|_| target.acts(now, unchecked)) {
            self.violated(name::WORK_APART, || format!("{node} starts {epoch:?} beside {:?}", before.epoch));
        }
        if lost {
            self.violated(name::LED_ONCE, || format!("{node} leads {epoch:?} again"));
        }
        if past {
            self.violated(name::LIVE_LEASE, || format!("{node} starts {epoch:?} past its lease"));
        }
        let checks = &mut self.seat_checks;
        let other = checks.led.insert(epoch, life).filter(|other| *other != life);
        let counts = checks.taken_over == epoch && !self.clocks_beyond_drift && !self.seat_edited;
        let last = checks.last_leader.replace((node, life)).filter(|last| counts && *last != (node, life));
        if checks.began.last().is_none_or(|began| began.epoch != epoch) {
            checks.began.push(Began { at: now, node, epoch });
        }
        let until = last.and_then(|(last, last_life)| {
            let last = &self.nodes[last];
            if last.life == last_life && last.alive { last.acted_until(now) } else { None }
        });
        if let Some(until) = until {
            let margin = now.saturating_sub(until) * 1000 / lease_ms;
            checks.margin = Some(checks.margin.map_or(margin, |least| least.min(margin)));
        }
        if let Some(other) = other.filter(|_| !checks.rolled_back) {
            self.violated(name::ONE_HOLDER, || format!("{epoch:?} led by life {other} and by life {life}"));
        }
    }

    /// What must hold after each step of a node.
    pub(crate) fn check_node(&mut self, node: usize) {
        let target = &self.nodes[node];
        let (local, lease) = (target.computer.clock.local(self.now), target.core().lease());
        let rest = target.config.hold_ms() - target.config.wind_down_ms();
        let acting = target.acting.filter(|acting| !acting.told && lease.is_some());
        if let Some((epoch, deadline)) = lease.filter(|(_, deadline)| *deadline <= local) {
            self.violated(name::LIVE_LEASE, || {
                format!("{node} leads {epoch:?} at {local:?}, past {deadline:?}")
            });
        }
        if let Some(acting) = acting.filter(|acting| local + rest >= acting.deadline)
            && self.mistake.is_none()
        {
            self.violated(name::WINDS_DOWN, || {
                format!(
                    "{node} acts in {:?} at {local:?} of {:?} and was not told to stop",
                    acting.epoch, acting.deadline
                )
            });
        }
        self.watch(node);
        if !self.clocks_beyond_drift && self.nodes.iter().filter(|node| node.acting.is_some()).count() > 1 {
            self.check_apart();
        }
    }

    /// No two nodes act at the same instant. If somebody took the seat away by hand, only nodes that had seen its holder are held
    /// to waiting for it. If it was only deleted, all nodes that had seen a seat are, for an expiry not longer than their own.
    fn check_apart(&mut self) {
        let acting = self.acting();
        if acting.len() < 2 {
            return;
        }
        let epoch = |index: &usize| self.nodes[*index].acting.map_or(Epoch(0), |acting| acting.epoch);
        let since = |index: &usize| self.nodes[*index].acting.map_or(0, |acting| acting.since);
        let newest = acting.iter().copied().max_by_key(since).unwrap_or(acting[0]);
        let oldest = acting.iter().copied().min_by_key(since).unwrap_or(acting[0]);
        let (seer, holder) = (self.nodes[newest].life, self.nodes[oldest].life);
        let seen = self.seat_edits.saw_holder(seer, holder, epoch(&oldest), since(&newest))
            && !self.seat_edits.is_deceived(seer);
        let expiry_ms = |index: usize| self.nodes[index].config.expiry_ms();
        let could_know = self.seat_edits.saw_it_vanish(seer) && expiry_ms(oldest) <= expiry_ms(newest);
        if self.seat_checks.leapt || (self.seat_edited && !seen && !could_know) {
            return;
        }
        let who: Vec<String> =
            acting.iter().map(|index| format!("{} in {:?}", self.nodes[*index].id, epoch(index))).collect();
        self.violated(name::ONE_ACTS, || format!("{who:?} act at once"));
    }

    /// Somebody outside marks the seat by compare-and-swap, so that its holder steps down.
    pub(crate) fn mark(&mut self) {
        let Some(Value::Seat(seat, names)) = self.store.seat().map(|object| (*object.value).clone()) else {
            return;
        };
        if seat.state != SeatState::Held || seat.step_down {
            return;
        }
        self.marks += 1;
        let nonce = Nonce { incarnation: Incarnation(u64::MAX - 1), sequence: self.marks };
        let marked = Arc::new(Value::Seat(Seat { nonce, step_down: true, ..seat }, names));
        self.put_outside(Key::Seat, &marked);
    }
}
