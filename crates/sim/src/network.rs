//! Messages between nodes and store, and between leaders and receivers of tasks.

use crate::check::name;
use crate::fault::FaultKind;
use crate::node::{Fate, Kind};
use crate::queue::{Happening, Then};
use crate::store::{Stored, refusal};
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use tenure_core::{Answer, ElectionCause, Epoch, Request, RequestId, SeatState, Verdict, WriteAnswer};

/// The latest landing of a late write, so that a world can be known to be calm.
pub(crate) const LATE_MAX_MS: u64 = 12_000;
/// The longest time a slow message takes.
const SLOW_MAX_MS: u64 = 6000;
/// How often a leader sends a task.
const DISPATCH_MS: u64 = 700;

const PER_REQUEST: [(FaultKind, Fate); 9] = [
    (FaultKind::LostRequest, Fate::LoseRequest),
    (FaultKind::LostAnswer, Fate::LoseAnswer),
    (FaultKind::LateLanding, Fate::Late(0)),
    (FaultKind::RetryEcho, Fate::Echo),
    (FaultKind::Unavailable, Fate::Unavailable),
    (FaultKind::UnknownLanded, Fate::UnknownLanded),
    (FaultKind::UnknownNotLanded, Fate::UnknownNotLanded),
    (FaultKind::Denied, Fate::Denied),
    (FaultKind::StaleList, Fate::StaleList),
];

impl World {
    /// Draws a fault for one request, of a kind that may strike.
    pub(crate) fn draw_fate(&mut self) -> Option<(FaultKind, Fate)> {
        let (kind, mut fate) = PER_REQUEST[self.rng.random_range(0..PER_REQUEST.len())];
        let late = self.rng.random_range(self.timeout_ms..LATE_MAX_MS);
        if kind == FaultKind::LateLanding {
            fate = Fate::Late(late);
        }
        self.mix.has(kind).then_some((kind, fate))
    }

    pub(crate) fn fate(&mut self, node: usize, kind: Kind) -> Fate {
        let target = &mut self.nodes[node];
        if target.cut_out {
            return Fate::LoseRequest;
        }
        let waiting = target.faults.iter().position(|(wanted, _)| wanted.is_none_or(|wanted| wanted == kind));
        if let Some((_, fate)) = waiting.and_then(|index| target.faults.remove(index)) {
            return fate;
        }
        let burst = target.burst;
        if burst > 0
            && self.rng.random_range(0..1000) < burst
            && let Some((kind, fate)) = self.draw_fate()
        {
            self.strike(kind, node);
            return fate;
        }
        if self.far.writes && matches!(kind, Kind::Claim | Kind::Renew | Kind::Vacate | Kind::Presence) {
            let ms = crate::far::write_ms(&mut self.rng);
            let out = self.rng.random_range(0..=ms);
            return Fate::Slow(out, ms - out);
        }
        if self.mix.has(FaultKind::SlowNetwork) && self.rng.random_range(0..100) < 4 {
            // A Pareto tail: most are a little slow, a few are very slow.
            let slow = |share: f64| ((40.0 / share.max(1e-4)) as u64).min(SLOW_MAX_MS);
            let fate = Fate::Slow(slow(self.rng.random()), slow(self.rng.random()));
            self.strike(FaultKind::SlowNetwork, node);
            return fate;
        }
        Fate::Pass
    }

    pub(crate) fn send(&mut self, node: usize, id: RequestId, request: Request) {
        let kind = Kind::of(&request);
        self.check_sending(node, kind, &request);
        let (now, timeout, life) = (self.now, self.timeout_ms, self.nodes[node].life);
        self.nodes[node].outstanding.push((id, kind.is_seat()));
        self.nodes[node].sent[kind as usize] += 1;
        let (low, high) = self.latency_ms;
        let (out, back) = (self.rng.random_range(low..=high), self.rng.random_range(low..=high));
        let down =
            self.nodes[node].core.election().is_some_and(|(cause, _)| cause == ElectionCause::LeaderDown);
        let fate = self.fate(node, kind);
        let conditional =
            matches!(request, Request::WriteSeat { .. } | Request::WritePresence { expect: Some(_), .. });
        let no_answer = request.unanswered();
        let (lands_in, then) = match fate {
            Fate::Pass => (Some(out), Then::Answer(back)),
            Fate::Slow(out, back) => (Some(out), Then::Answer(back)),
            Fate::LoseRequest => (None, Then::Nothing),
            Fate::LoseAnswer => (Some(out), Then::Nothing),
            Fate::Late(ms) => (Some(ms), Then::Nothing),
            Fate::Echo if conditional => (Some(out), Then::Echo(back)),
            Fate::UnknownLanded => (Some(out), Then::Unknown(back)),
            Fate::StaleList if kind == Kind::List => {
                (Some(out), Then::Stale(back, self.rng.random_range(0..6)))
            }
            Fate::Echo | Fate::StaleList => (Some(out), Then::Answer(back)),
            Fate::Unavailable | Fate::Denied => {
                let answer = refusal(&request, fate == Fate::Denied);
                self.schedule(now + out + back, node, life, Happening::Answer { id, answer });
                (None, Then::Answer(0))
            }
            Fate::UnknownNotLanded => {
                let answer = no_answer.clone();
                self.schedule(now + out + back, node, life, Happening::Answer { id, answer });
                (None, Then::Answer(0))
            }
        };
        let sure = match then {
            Then::Answer(back) | Then::Echo(back) | Then::Unknown(back) | Then::Stale(back, _) => {
                lands_in.unwrap_or(0) + back < timeout / 2 && !self.nodes[node].cut_in
            }
            Then::Nothing => false,
        };
        if let Some(delay) = lands_in {
            self.schedule(now + delay, node, life, Happening::Land { id, request, sent: now, down, then });
        }
        if !sure {
            // The sender waits by its own clock; if that stands still, true time decides when it gives up.
            let clock = &self.nodes[node].clock;
            let local = clock.local(now);
            let at = clock.when(local + timeout).unwrap_or(now + timeout);
            self.schedule(at, node, life, Happening::Answer { id, answer: no_answer });
        }
    }

    fn check_sending(&mut self, node: usize, kind: Kind, request: &Request) {
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
        // Pauses follow the node's own clock; a racing clock says nothing about a second of true time.
        if sent == limit + 1 && !self.wild {
            self.judge.violated(now, name::NO_STORM, || {
                format!("{node} makes more than {limit} requests in second {second}")
            });
        }
        let target = &self.nodes[node];
        if kind.is_seat() && target.outstanding.iter().any(|(_, seat)| *seat) {
            self.judge
                .violated(now, name::ONE_SEAT_REQUEST, || format!("{node} sends {kind:?} beside another"));
        }
        if let Request::WriteSeat { seat, .. } = request {
            let seen = target.core.highest_epoch();
            if kind == Kind::Claim && seat.epoch <= seen {
                let epoch = seat.epoch;
                self.judge.violated(now, name::CLAIM_ABOVE_SEEN, || {
                    format!("{node} claims {epoch:?} and has seen {seen:?}")
                });
            }
            if self.store.ignores_conditions {
                self.judge.violated(now, name::UNSAFE_STORE, || format!("{node} writes {seat:?}"));
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one happening")]
    pub(crate) fn land(
        &mut self,
        node: usize,
        life: u64,
        id: RequestId,
        request: &Request,
        sent: u64,
        down: bool,
        then: Then,
    ) {
        let now = self.now;
        let answer = match request {
            Request::Probe => self.store.probe(),
            Request::ReadSeat { unless } => Answer::Seat(self.store.read(unless.as_ref())),
            Request::WriteSeat { seat, expect } => {
                if self.store.holds(expect) {
                    self.check_landing(node, life, seat, sent, down);
                    let (kind, epoch) = (Kind::of(request), seat.epoch);
                    self.trace.note(now, node, || Noted::Landed(kind, epoch));
                    if kind == Kind::Claim {
                        // One incarnation claimed this epoch twice, with the seat deleted in between: a node that saw the first
                        // record has not seen this one.
                        self.witnesses.forget_holder(life, epoch);
                    }
                    let version = self.store.put(now, Stored::Seat(seat.clone()), false);
                    self.seat_landed(seat);
                    let wanted = self.sweeps.get(node).and_then(|sweep| sweep.wanted);
                    if let Some(object) = self.store.seat.as_mut()
                        && let Some((_, pointer)) = wanted.filter(|(of, _)| *of == epoch)
                    {
                        object.pointer = Some(pointer);
                    }
                    Answer::SeatWritten(WriteAnswer::Won(version))
                } else {
                    Answer::SeatWritten(WriteAnswer::Lost)
                }
            }
            Request::WritePresence { expect, .. } => {
                let id = self.nodes[node].id.clone();
                Answer::PresenceWritten(self.store.presence(now, &id, expect.as_ref()))
            }
            Request::RemovePresence => {
                let id = self.nodes[node].id.clone();
                self.store.remove_presence(&id);
                Answer::PresenceRemoved
            }
            Request::ListNodes => match then {
                Then::Stale(_, back) => self.store.list(Some(back)),
                Then::Answer(_) | Then::Nothing | Then::Echo(_) | Then::Unknown(_) => self.store.list(None),
            },
        };
        let (back, answer) = match then {
            Then::Answer(back) | Then::Stale(back, _) => (back, answer),
            Then::Echo(back) => (back, echo(answer)),
            Then::Unknown(back) => (back, request.unanswered()),
            Then::Nothing => return,
        };
        if !self.nodes[node].cut_in {
            self.schedule(now + back, node, life, Happening::Answer { id, answer });
        } else {
            // The way back was cut in the meantime: the sender gives up.
            let at = now + self.timeout_ms;
            self.schedule(at, node, life, Happening::Answer { id, answer: request.unanswered() });
        }
    }

    fn check_landing(&mut self, node: usize, life: u64, seat: &tenure_core::Seat, sent: u64, down: bool) {
        let now = self.now;
        let old = self.store.seat.as_ref();
        let old_seat = old.and_then(|object| object.seat());
        self.judge.lands(now, life, old_seat, seat);
        let claim = seat.state == SeatState::Held && seat.renewals == 0;
        if claim && old_seat.is_some_and(|old| old.state == SeatState::Held) {
            self.taken_over = seat.epoch;
        }
        let target = &self.nodes[node];
        if let (Some(object), Some(held)) = (old, old_seat)
            && claim
            && held.state == SeatState::Held
            && !object.by_hand
            && !target.clock.has_changed()
        {
            let waited = sent.saturating_sub(object.landed) * target.clock.rate() / 1000 + 2;
            // The leader's settings count until another node leads. If the record does not have them, the settings of an earlier
            // record do.
            let least_ms = || self.nodes.iter().map(|node| node.config.takeover_delay_ms).min().unwrap_or(0);
            let delay_ms = held.terms.map_or_else(least_ms, |terms| terms.takeover_delay_ms);
            let due = held.lease.expiry_ms + if down { delay_ms } else { 0 };
            if waited < due {
                self.judge.violated(now, name::NOT_TOO_SOON, || {
                    format!("{node} claims over {held:?} after {waited} of {due} ms")
                });
            }
        }
    }

    /// Somebody outside marks the seat by compare-and-swap, so that its holder steps down. Returns whether there was a holder.
    pub(crate) fn mark(&mut self) -> bool {
        let found = self.store.seat.as_ref().and_then(|object| object.seat()).cloned();
        let Some(seat) = found.filter(|seat| seat.state == SeatState::Held && !seat.step_down) else {
            return false;
        };
        self.marks += 1;
        let nonce =
            tenure_core::Nonce { incarnation: tenure_core::Incarnation(u64::MAX - 1), sequence: self.marks };
        let marked = tenure_core::Seat { nonce, step_down: true, ..seat };
        drop(self.store.put(self.now, crate::store::Stored::Seat(marked.clone()), false));
        self.seat_landed(&marked);
        true
    }

    /// A leader's work sends a task to some node, as long as it may act.
    pub(crate) fn dispatch(&mut self, node: usize, epoch: Epoch) {
        let target = &self.nodes[node];
        if target.acting.is_none_or(|acting| acting.epoch != epoch) {
            return;
        }
        let (now, life) = (self.now, target.life);
        let in_time = target.acting.is_some_and(|acting| target.clock.local(now) < acting.deadline);
        if in_time && !target.paused {
            let to = self.rng.random_range(0..self.nodes.len());
            let delay = match self.rng.random_range(0..8) {
                0 => self.rng.random_range(500..15_000),
                _ => self.rng.random_range(1..200),
            };
            let dispatched = now as i64 + self.nodes[node].wall_off_ms;
            let to_life = self.nodes[to].life;
            self.schedule(now + delay, to, to_life, Happening::Task { epoch, dispatched });
        }
        self.schedule(now + DISPATCH_MS, node, life, Happening::Dispatch { epoch });
    }

    /// A task arrives. It is judged twice: by the production rule, and by what must be true of its verdict.
    pub(crate) fn receive(&mut self, node: usize, epoch: Epoch, dispatched: i64) {
        let (now, rule) = (self.now, self.fence);
        let target = &mut self.nodes[node];
        if !target.alive || target.paused {
            return;
        }
        let local = target.clock.local(now);
        let age_ms = u64::try_from(now as i64 + target.wall_off_ms - dispatched).ok();
        let before = target.gate.clone();
        let verdict = target.gate.judge(rule, local, epoch, age_ms);
        let since = local.since(before.changed);
        let newer_seen = epoch < before.known;
        let grace = rule.grace_ms;
        let wrong = match verdict {
            Verdict::Accept => newer_seen,
            Verdict::RejectStale => !newer_seen,
            Verdict::AcceptLate => {
                !newer_seen
                    || epoch.next() != Some(before.known)
                    || since >= grace
                    || age_ms.is_none_or(|age| age >= grace)
            }
        };
        self.fenced += u64::from(verdict == Verdict::RejectStale);
        if wrong {
            self.judge.violated(now, name::FENCE, || {
                format!(
                    "{node} says {verdict:?} to a task of {epoch:?}, {age_ms:?} ms old by its sender, having seen {:?} for {since} ms",
                    before.known
                )
            });
        }
    }
}

/// How a client whose own retry is refused sees a write that happened.
fn echo(answer: Answer) -> Answer {
    match answer {
        Answer::SeatWritten(WriteAnswer::Won(_)) => Answer::SeatWritten(WriteAnswer::Lost),
        Answer::PresenceWritten(WriteAnswer::Won(_)) => Answer::PresenceWritten(WriteAnswer::Lost),
        Answer::SeatWritten(_)
        | Answer::PresenceWritten(_)
        | Answer::Probe(_)
        | Answer::Seat(_)
        | Answer::PresenceRemoved
        | Answer::Nodes(_) => answer,
    }
}
