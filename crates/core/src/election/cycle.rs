//! Heartbeat cycles: how long each took, from when it was due until its outcome was known, and where the time went.
//!
//! The tracker watches the coordinator from beside it: it sees every step, and nothing depends on what it concludes.

use crate::election::event::{Event, LossReason};
use crate::election::io::{Answer, Effect, Input, Request, RequestId, SeatAnswer, WriteAnswer};
use crate::election::role::Role;
use crate::time::Time;

/// One step of a coordinator, as seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// When the input was handled, on the node's clock.
    pub now: Time,
    /// [`Coordinator::heartbeat_due`](crate::Coordinator::heartbeat_due) **before** the step.
    pub due: Option<Time>,
    /// The input that [`Coordinator::step`](crate::Coordinator::step) took.
    pub input: &'a Input,
    /// The effects the step produced.
    pub effects: &'a [Effect],
    /// The role **after** the step.
    pub role: Option<Role>,
}

/// A heartbeat cycle that has ended, or has lasted too long already.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cycle {
    /// From when it was due until its outcome was known.
    pub duration_ms: u64,
    /// [`CycleTracker::overdue`] already reported it before it ended.
    pub told: bool,
    /// What took the time, as far as can be told.
    pub cause: SlowCause,
}

/// Why a cycle took as long as it did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SlowCause {
    /// The store was slow, did not answer, or refused.
    SlowStore,
    /// The store answered, but somebody else had changed the seat first.
    LostRaces,
    /// The node itself did not get to run: paused, suspended, or starved of CPU.
    StalledProcess,
}

impl SlowCause {
    /// The cause as it appears on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            SlowCause::SlowStore => "slow store",
            SlowCause::LostRaces => "lost races",
            SlowCause::StalledProcess => "stalled process",
        }
    }
}

/// Follows one coordinator's heartbeat cycles.
///
/// A leader's cycle ends when the renewal is confirmed or leadership is lost, whatever was tried in between. A standby's
/// cycle ends when the look is answered, together with any claim that follows it. [`overdue`](CycleTracker::overdue) reports
/// a cycle that lasts too long while it still lasts, before it costs the leadership; such a cycle ends with the next failed
/// try.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CycleTracker {
    /// A request is given up after this long. If one lasted longer, the process was not running.
    request_timeout_ms: u64,
    /// A cycle is cut off after this long.
    patience_ms: u64,
    wake_at: Option<Time>,
    open: Option<Open>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Open {
    due: Time,
    flight: Option<(RequestId, Time)>,
    /// How long the node is known not to have run, in this cycle.
    stalled_ms: u64,
    lost: u32,
    unanswered: u32,
    told: bool,
}

/// What a step means for the open cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CycleEnd {
    Open,
    /// A try failed; the cycle goes on, unless it has lasted too long already.
    Failed,
    /// The outcome is known.
    Done,
    /// Called off by request, so it was not a heartbeat at all.
    Dropped,
}

impl CycleTracker {
    /// A tracker at rest. `patience_ms` is how long a cycle may last before it is cut off.
    pub fn new(request_timeout_ms: u64, patience_ms: u64) -> CycleTracker {
        CycleTracker { request_timeout_ms, patience_ms, wake_at: None, open: None }
    }

    /// Takes one step and returns the cycle that ended in it, if any.
    pub fn step(&mut self, step: &Step<'_>) -> Option<Cycle> {
        let late_ms = self.lateness(step);
        let due = step.due.filter(|due| *due <= step.now);
        let lost = loss(step.effects).is_some();
        // A leader that was paused may learn that it lost leadership before it could send the renewal that was due.
        if lost && self.open.is_none() {
            self.open = due.map(Open::new);
        }
        let answered = self.settle(step, late_ms);
        let end = end(step, answered);
        let ended = self.close(step.now, end);
        let next_due = if lost { Some(step.now) } else { due };
        self.follow(step, next_due, if ended.is_some() { 0 } else { late_ms });
        ended
    }

    /// When to call [`overdue`](CycleTracker::overdue) if nothing ends the open cycle first.
    pub fn overdue_at(&self) -> Option<Time> {
        self.open.as_ref().filter(|open| !open.told).map(|open| open.due + self.patience_ms + 1)
    }

    /// Returns the open cycle once, as soon as it has lasted too long.
    pub fn overdue(&mut self, now: Time) -> Option<Cycle> {
        self.overdue_at().filter(|at| *at <= now)?;
        let open = self.open.as_mut()?;
        let duration_ms = now.since(open.due);
        let cycle = Cycle { duration_ms, told: false, cause: open.cause(duration_ms) };
        open.told = true;
        Some(cycle)
    }

    /// How late this step came: after its wake-up, or after the time at which every request is given up.
    fn lateness(&mut self, step: &Step<'_>) -> u64 {
        let overdue_ms = self.wake_at.map_or(0, |at| step.now.since(at));
        for effect in step.effects {
            if let Effect::Wake { at, .. } = effect {
                self.wake_at = Some(*at);
            }
        }
        if self.wake_at.is_some_and(|at| at <= step.now) {
            self.wake_at = None;
        }
        let mut waited_ms = 0;
        if let (Input::Answer { id, .. }, Some(Open { flight: Some((flight, sent)), .. })) =
            (step.input, &self.open)
            && flight == id
        {
            waited_ms = step.now.since(*sent).saturating_sub(self.request_timeout_ms);
        }
        overdue_ms.max(waited_ms)
    }

    /// Notes the answer, if this cycle waits for it.
    fn settle<'a>(&mut self, step: &Step<'a>, late_ms: u64) -> Option<&'a Answer> {
        let open = self.open.as_mut()?;
        open.stalled_ms = open.stalled_ms.saturating_add(late_ms);
        let Input::Answer { id, answer } = step.input else { return None };
        open.flight.take_if(|(flight, _)| flight == id)?;
        match answer {
            Answer::SeatWritten(WriteAnswer::Lost) => open.lost = open.lost.saturating_add(1),
            Answer::SeatWritten(WriteAnswer::Unknown | WriteAnswer::Unavailable)
            | Answer::Seat(SeatAnswer::Unavailable) => open.unanswered = open.unanswered.saturating_add(1),
            Answer::SeatWritten(WriteAnswer::Won(_) | WriteAnswer::Denied)
            | Answer::Seat(
                SeatAnswer::Found { .. }
                | SeatAnswer::Unchanged
                | SeatAnswer::Absent
                | SeatAnswer::Unreadable { .. }
                | SeatAnswer::Denied,
            )
            | Answer::Probe(_)
            | Answer::PresenceWritten(_)
            | Answer::PresenceRemoved
            | Answer::Nodes(_) => {}
        }
        Some(answer)
    }

    fn close(&mut self, now: Time, end: CycleEnd) -> Option<Cycle> {
        let duration_ms = now.since(self.open.as_ref()?.due);
        match end {
            CycleEnd::Done => {}
            CycleEnd::Failed if duration_ms > self.patience_ms => {}
            CycleEnd::Open | CycleEnd::Failed => return None,
            CycleEnd::Dropped => {
                self.open = None;
                return None;
            }
        }
        self.open.take().map(|open| Cycle { duration_ms, told: open.told, cause: open.cause(duration_ms) })
    }

    /// Follows the seat request that went out, as the next try of the open cycle or the first of a new one.
    fn follow(&mut self, step: &Step<'_>, due: Option<Time>, late_ms: u64) {
        let sent = step.effects.iter().rev().find_map(|effect| {
            let Effect::Request(id, Request::ReadSeat { .. } | Request::WriteSeat { .. }) = effect else {
                return None;
            };
            Some(*id)
        });
        let Some(id) = sent else { return };
        if self.open.is_none() {
            self.open = due.map(|due| Open { stalled_ms: late_ms, ..Open::new(due) });
        }
        if let Some(open) = &mut self.open {
            open.flight = Some((id, step.now));
        }
    }
}

impl Open {
    fn new(due: Time) -> Open {
        Open { due, flight: None, stalled_ms: 0, lost: 0, unanswered: 0, told: false }
    }

    /// A stall of half the time or more explains the rest: a process that does not run cannot receive answers. A lost race
    /// counts only if every request was answered; otherwise the winner may be this node's own late write.
    fn cause(&self, duration_ms: u64) -> SlowCause {
        if self.stalled_ms.saturating_mul(2) >= duration_ms.max(1) {
            SlowCause::StalledProcess
        } else if self.lost > 0 && self.unanswered == 0 {
            SlowCause::LostRaces
        } else {
            SlowCause::SlowStore
        }
    }
}

fn loss(effects: &[Effect]) -> Option<LossReason> {
    effects.iter().find_map(|effect| {
        let Effect::Emit(Event::LostLeadership { reason, .. }) = effect else { return None };
        Some(*reason)
    })
}

fn end(step: &Step<'_>, answered: Option<&Answer>) -> CycleEnd {
    match loss(step.effects) {
        Some(LossReason::Shutdown | LossReason::StepDown) => return CycleEnd::Dropped,
        Some(
            LossReason::LeaseExpired
            | LossReason::Superseded
            | LossReason::StoreDenied
            | LossReason::SeatUnreadable
            | LossReason::SeatGone
            | LossReason::ProcessesStuck,
        ) => return CycleEnd::Done,
        None => {}
    }
    if step.effects.iter().any(|effect| matches!(effect, Effect::Stopped(_))) {
        return CycleEnd::Dropped;
    }
    let confirmed = step.effects.iter().any(|effect| {
        matches!(effect, Effect::Emit(Event::LeaseRenewed { .. } | Event::BecameLeader { .. }))
    });
    if confirmed {
        return CycleEnd::Done;
    }
    let Some(answer) = answered else { return CycleEnd::Open };
    match step.role {
        Some(Role::Leader | Role::Draining) => CycleEnd::Failed,
        Some(Role::Standby | Role::Candidate) | None => look_end(step, answer),
    }
}

/// What an answer means to a node that does not lead.
fn look_end(step: &Step<'_>, answer: &Answer) -> CycleEnd {
    let claims =
        step.effects.iter().any(|effect| matches!(effect, Effect::Request(_, Request::WriteSeat { .. })));
    match answer {
        Answer::Seat(SeatAnswer::Unavailable)
        | Answer::SeatWritten(WriteAnswer::Lost | WriteAnswer::Unknown | WriteAnswer::Unavailable) => {
            CycleEnd::Failed
        }
        Answer::Seat(
            SeatAnswer::Found { .. }
            | SeatAnswer::Unchanged
            | SeatAnswer::Absent
            | SeatAnswer::Unreadable { .. }
            | SeatAnswer::Denied,
        )
        | Answer::SeatWritten(WriteAnswer::Won(_) | WriteAnswer::Denied) => {
            if claims {
                CycleEnd::Open
            } else {
                CycleEnd::Done
            }
        }
        Answer::Probe(_) | Answer::PresenceWritten(_) | Answer::PresenceRemoved | Answer::Nodes(_) => {
            CycleEnd::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::io::WakeToken;
    use crate::election::seat::{Epoch, Version};

    const TIMEOUT_MS: u64 = 750;
    const PATIENCE_MS: u64 = 2000;

    fn read(id: u64) -> Effect {
        Effect::Request(RequestId(id), Request::ReadSeat { unless: None })
    }

    fn write(id: u64) -> Effect {
        let (node, incarnation) = (crate::NodeId::new("pod-a").expect("valid"), crate::Incarnation(1));
        let seat = crate::Seat {
            epoch: Epoch(1),
            state: crate::SeatState::Held,
            holder: crate::Holder { node, incarnation },
            lease: crate::Lease { hold_ms: 5000, expiry_ms: 7500 },
            terms: None,
            renewals: 1,
            nonce: crate::Nonce { incarnation, sequence: 1 },
            step_down: false,
        };
        Effect::Request(RequestId(id), Request::WriteSeat { seat, expect: crate::Expect::Absent })
    }

    fn wake(at: u64) -> Effect {
        Effect::Wake { token: WakeToken(0), at: Time(at) }
    }

    fn renewed() -> Effect {
        Effect::Emit(Event::LeaseRenewed { epoch: Epoch(1), deadline: Time(0), latency_ms: 0 })
    }

    fn lost(reason: LossReason) -> Effect {
        let (epoch, vacated) = (Epoch(1), false);
        Effect::Emit(Event::LostLeadership { epoch, reason, vacated, acted_until: Time(0) })
    }

    fn answer(id: u64, answer: Answer) -> Input {
        Input::Answer { id: RequestId(id), answer }
    }

    fn written(id: u64, outcome: WriteAnswer) -> Input {
        answer(id, Answer::SeatWritten(outcome))
    }

    fn seat(id: u64, outcome: SeatAnswer) -> Input {
        answer(id, Answer::Seat(outcome))
    }

    fn won() -> WriteAnswer {
        WriteAnswer::Won(Version::new("1"))
    }

    const TICK: Input = Input::Wake(WakeToken(0));

    /// Steps of one role: (now, due before, input, effects).
    type Steps = Vec<(u64, u64, Input, Vec<Effect>)>;

    fn run(role: Role, steps: Steps) -> Vec<Option<(u64, SlowCause)>> {
        let mut tracker = CycleTracker::new(TIMEOUT_MS, PATIENCE_MS);
        let follow = |(now, due, input, effects): (u64, u64, Input, Vec<Effect>)| {
            let step = Step {
                now: Time(now),
                due: Some(Time(due)),
                input: &input,
                effects: &effects,
                role: Some(role),
            };
            tracker.step(&step).map(|cycle| (cycle.duration_ms, cycle.cause))
        };
        steps.into_iter().map(follow).collect()
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_due() {
        let ended = run(
            Role::Leader,
            vec![
                (1010, 1000, TICK, vec![write(1), wake(2000)]),
                (1300, 2000, written(1, won()), vec![renewed(), wake(2000)]),
            ],
        );
        assert_eq!(ended, [None, Some((300, SlowCause::SlowStore))]);
    }

    #[test]
    fn an_answer_that_comes_when_the_next_is_due_ends_one_cycle_and_begins_another() {
        let ended = run(
            Role::Leader,
            vec![
                (1000, 1000, TICK, vec![write(1)]),
                (2100, 2000, written(1, won()), vec![renewed(), write(2)]),
                (2200, 3000, written(2, won()), vec![renewed()]),
            ],
        );
        assert_eq!(ended[1].map(|(ms, _)| ms), Some(1100));
        assert_eq!(ended[2].map(|(ms, _)| ms), Some(200), "it was due at 2000");
    }

    #[test]
    fn a_store_that_does_not_answer_is_told_while_it_lasts() {
        let ended = run(
            Role::Standby,
            vec![
                (1000, 1000, TICK, vec![read(1)]),
                (1750, 2000, seat(1, SeatAnswer::Unavailable), vec![wake(2500)]),
                (2500, 2500, TICK, vec![read(2)]),
                (3250, 3500, seat(2, SeatAnswer::Unavailable), vec![wake(3500)]),
                (3500, 3500, TICK, vec![read(3)]),
                (3510, 4500, seat(3, SeatAnswer::Unchanged), vec![]),
            ],
        );
        let cut = Some((2250, SlowCause::SlowStore));
        assert_eq!(ended, [None, None, None, cut, None, Some((10, SlowCause::SlowStore))]);
    }

    #[test]
    fn a_cycle_that_lasts_too_long_is_told_once_before_anything_is_answered() {
        let mut tracker = CycleTracker::new(TIMEOUT_MS, PATIENCE_MS);
        assert_eq!(tracker.overdue_at(), None);
        let step = |now, input: Input, effects: Vec<Effect>, tracker: &mut CycleTracker| {
            let (now, due, role) = (Time(now), Some(Time(1000)), Some(Role::Leader));
            tracker.step(&Step { now, due, input: &input, effects: &effects, role })
        };
        assert_eq!(step(1000, TICK, vec![write(1)], &mut tracker), None);
        assert_eq!(tracker.overdue_at(), Some(Time(3001)), "longer than the patience, not as long");
        assert_eq!(tracker.overdue(Time(3000)), None);
        let told = tracker.overdue(Time(3001)).map(|cycle| (cycle.duration_ms, cycle.told, cycle.cause));
        assert_eq!(told, Some((2001, false, SlowCause::SlowStore)));
        assert_eq!((tracker.overdue_at(), tracker.overdue(Time(9000))), (None, None), "told once");
        let ended = step(3200, written(1, won()), vec![renewed()], &mut tracker);
        assert_eq!(ended.map(|cycle| (cycle.duration_ms, cycle.told)), Some((2200, true)));
    }

    #[test]
    fn a_claim_belongs_to_the_look_before_it_and_lost_races_are_named() {
        let ended = run(
            Role::Candidate,
            vec![
                (1000, 1000, TICK, vec![read(1)]),
                (1400, 2000, seat(1, SeatAnswer::Absent), vec![write(2)]),
                (1900, 2000, written(2, WriteAnswer::Lost), vec![read(3)]),
                (2300, 2000, seat(3, SeatAnswer::Unchanged), vec![]),
            ],
        );
        assert_eq!(ended, [None, None, None, Some((1300, SlowCause::LostRaces))]);
        let doubtful = run(
            Role::Candidate,
            vec![
                (1000, 1000, TICK, vec![write(1)]),
                (1750, 2000, written(1, WriteAnswer::Unknown), vec![read(2)]),
                (1800, 2000, seat(2, SeatAnswer::Unchanged), vec![write(3)]),
                (1900, 2000, written(3, WriteAnswer::Lost), vec![read(4)]),
                (2000, 2000, seat(4, SeatAnswer::Absent), vec![]),
            ],
        );
        assert_eq!(doubtful[4], Some((1000, SlowCause::SlowStore)), "the winner may be its own late write");
    }

    #[test]
    fn a_stalled_process_is_recognised_by_late_wake_ups_and_impossible_waits() {
        let late = run(
            Role::Standby,
            vec![
                (10, 1000, Input::StepDown, vec![wake(1000)]),
                (4000, 1000, TICK, vec![read(1)]),
                (4100, 5000, seat(1, SeatAnswer::Unchanged), vec![]),
            ],
        );
        assert_eq!(late[2], Some((3100, SlowCause::StalledProcess)));
        let waited = run(
            Role::Standby,
            vec![(1000, 1000, TICK, vec![read(1)]), (9000, 2000, seat(1, SeatAnswer::Unavailable), vec![])],
        );
        assert_eq!(
            waited[1],
            Some((8000, SlowCause::StalledProcess)),
            "nobody waits longer than the timeout"
        );
    }

    #[test]
    fn a_leader_paused_past_its_deadline_had_a_long_cycle_too() {
        let ended = run(
            Role::Standby,
            vec![
                (10, 1000, Input::StepDown, vec![wake(1000)]),
                (6000, 1000, TICK, vec![lost(LossReason::LeaseExpired), read(1)]),
                (6010, 7000, seat(1, SeatAnswer::Unchanged), vec![]),
            ],
        );
        assert_eq!(ended[1], Some((5000, SlowCause::StalledProcess)));
        assert_eq!(ended[2].map(|(ms, _)| ms), Some(10), "the look after it is a cycle of its own");
    }

    #[test]
    fn what_was_called_off_is_no_heartbeat() {
        let asked = run(
            Role::Standby,
            vec![
                (1000, 1000, TICK, vec![write(1)]),
                (9000, 2000, Input::StepDown, vec![lost(LossReason::StepDown)]),
                (9100, 9500, written(1, won()), vec![]),
            ],
        );
        assert_eq!(asked, [None; 3]);
        let vacate = run(
            Role::Draining,
            vec![
                (1000, 1500, TICK, vec![write(1)]),
                (1100, 1500, written(1, won()), vec![lost(LossReason::Shutdown)]),
            ],
        );
        assert_eq!(vacate, [None; 2], "not due yet: a vacating, not a renewal");
    }
    #[test]
    fn a_loss_counts_from_the_renewal_that_was_under_way() {
        let ended = run(
            Role::Standby,
            vec![
                (1000, 1000, TICK, vec![write(1)]),
                (3500, 2000, TICK, vec![lost(LossReason::LeaseExpired)]),
                (3600, 3500, TICK, vec![renewed()]),
            ],
        );
        assert_eq!(ended.iter().flatten().map(|(ms, _)| *ms).collect::<Vec<_>>(), [2500], "due at 1000");
    }

    #[test]
    fn a_failing_cycle_is_cut_off_beyond_its_patience_only() {
        for (failed, cut) in [(3000, None), (3001, Some((2001, SlowCause::StalledProcess)))] {
            let answer = (failed, 2000, seat(1, SeatAnswer::Unavailable), vec![]);
            let ended = run(Role::Standby, vec![(1000, 1000, TICK, vec![read(1)]), answer]);
            assert_eq!(ended, [None, cut]);
        }
    }
}
