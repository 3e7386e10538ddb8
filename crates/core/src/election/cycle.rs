//! Heartbeat cycles: how long each took, from when it was due until its outcome was known, and for how much of
//! that time the node itself stood still.
//!
//! The tracker watches the coordinator from beside it: it sees every step, and nothing depends on what it concludes.

use crate::election::event::{Event, LossReason};
use crate::election::io::{Answer, Effect, Input, Request, RequestId, SeatAnswer, WriteAnswer};
use crate::election::role::Role;
use crate::time::Time;

/// One step of a coordinator, as seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub now: Time,
    /// [`Coordinator::heartbeat_due`](crate::Coordinator::heartbeat_due) **before** the step.
    pub due: Option<Time>,
    pub input: &'a Input,
    pub effects: &'a [Effect],
    /// The role **after** the step.
    pub role: Option<Role>,
    /// How late the step came after the wake-up that was asked for: the node was paused, suspended, or starved of CPU.
    pub late_ms: u64,
}

/// A heartbeat cycle that has ended, or has lasted too long already.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cycle {
    /// From when it was due until its outcome was known.
    pub duration_ms: u64,
    /// [`CycleTracker::overdue`] already reported it before it ended.
    pub told: bool,
    /// For how much of that the node itself did not get to run, as far as late wake-ups show.
    pub stalled_ms: u64,
}

/// Follows one coordinator's heartbeat cycles.
///
/// A leader's cycle ends when the renewal is confirmed or leadership is lost, whatever was tried in between. A standby's
/// cycle ends when the look is answered, together with any claim that follows it. [`overdue`](CycleTracker::overdue) reports
/// a cycle that lasts too long while it still lasts, before it costs the leadership; such a cycle ends with the next failed
/// try.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CycleTracker {
    /// A cycle is cut off after this long.
    patience_ms: u64,
    open: Option<Open>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Open {
    due: Time,
    flight: Option<RequestId>,
    stalled_ms: u64,
    told: bool,
}

/// What a step means for the open cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CycleEnd {
    Open,
    /// A try failed; the cycle goes on, unless it has lasted too long already.
    Failed,
    Done,
    /// Called off by request, so it was not a heartbeat at all.
    Dropped,
}

impl CycleTracker {
    /// `patience_ms` is how long a cycle may last before it is cut off.
    pub fn new(patience_ms: u64) -> CycleTracker {
        CycleTracker { patience_ms, open: None }
    }

    /// Returns the cycle that ended in this step, if any.
    pub fn step(&mut self, step: &Step<'_>) -> Option<Cycle> {
        let due = step.due.filter(|due| *due <= step.now);
        let lost = loss(step.effects).is_some();
        // A leader that was paused may learn that it lost leadership before it could send the renewal that was due.
        if lost && self.open.is_none() {
            self.open = due.map(Open::new);
        }
        if let Some(open) = &mut self.open {
            open.stalled_ms = open.stalled_ms.saturating_add(step.late_ms);
        }
        let answered = self.settle(step.input);
        let end = end(step, answered);
        let ended = self.close(step.now, end);
        let next_due = if lost { Some(step.now) } else { due };
        self.follow(step, next_due, if ended.is_some() { 0 } else { step.late_ms });
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
        let cycle = open.so_far(now);
        open.told = true;
        Some(cycle)
    }

    /// The answer, if this cycle waits for it.
    fn settle<'a>(&mut self, input: &'a Input) -> Option<&'a Answer> {
        let Input::Answer { id, answer } = input else { return None };
        self.open.as_mut()?.flight.take_if(|flight| flight == id)?;
        Some(answer)
    }

    fn close(&mut self, now: Time, end: CycleEnd) -> Option<Cycle> {
        let cycle = self.open.as_ref()?.so_far(now);
        match end {
            CycleEnd::Done => {}
            CycleEnd::Failed if cycle.duration_ms > self.patience_ms => {}
            CycleEnd::Open | CycleEnd::Failed => return None,
            CycleEnd::Dropped => {
                self.open = None;
                return None;
            }
        }
        self.open = None;
        Some(cycle)
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
            open.flight = Some(id);
        }
    }
}

impl Open {
    fn new(due: Time) -> Open {
        Open { due, flight: None, stalled_ms: 0, told: false }
    }

    /// The cycle if it ended now. A stall may have begun before the cycle was due; only what lies within it counts.
    fn so_far(&self, now: Time) -> Cycle {
        let duration_ms = now.since(self.due);
        Cycle { duration_ms, told: self.told, stalled_ms: self.stalled_ms.min(duration_ms) }
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

    fn run(role: Role, steps: Steps) -> Vec<Option<u64>> {
        let mut tracker = CycleTracker::new(PATIENCE_MS);
        let follow = |(now, due, input, effects): (u64, u64, Input, Vec<Effect>)| {
            let step = step(now, due, &input, &effects, role, 0);
            tracker.step(&step).map(|cycle| cycle.duration_ms)
        };
        steps.into_iter().map(follow).collect()
    }

    fn step<'a>(
        now: u64,
        due: u64,
        input: &'a Input,
        effects: &'a [Effect],
        role: Role,
        late_ms: u64,
    ) -> Step<'a> {
        Step { now: Time(now), due: Some(Time(due)), input, effects, role: Some(role), late_ms }
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_due() {
        let ended = run(
            Role::Leader,
            vec![(1010, 1000, TICK, vec![write(1)]), (1300, 2000, written(1, won()), vec![renewed()])],
        );
        assert_eq!(ended, [None, Some(300)]);
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
        assert_eq!(ended[1], Some(1100));
        assert_eq!(ended[2], Some(200), "it was due at 2000");
    }

    #[test]
    fn a_store_that_does_not_answer_is_told_while_it_lasts() {
        let ended = run(
            Role::Standby,
            vec![
                (1000, 1000, TICK, vec![read(1)]),
                (1750, 2000, seat(1, SeatAnswer::Unavailable), vec![]),
                (2500, 2500, TICK, vec![read(2)]),
                (3250, 3500, seat(2, SeatAnswer::Unavailable), vec![]),
                (3500, 3500, TICK, vec![read(3)]),
                (3510, 4500, seat(3, SeatAnswer::Unchanged), vec![]),
            ],
        );
        assert_eq!(ended, [None, None, None, Some(2250), None, Some(10)]);
    }

    #[test]
    fn a_cycle_that_lasts_too_long_is_told_once_before_anything_is_answered() {
        let mut tracker = CycleTracker::new(PATIENCE_MS);
        assert_eq!(tracker.overdue_at(), None);
        let step = |now, input: Input, effects: Vec<Effect>, tracker: &mut CycleTracker| {
            tracker.step(&step(now, 1000, &input, &effects, Role::Leader, 0))
        };
        assert_eq!(step(1000, TICK, vec![write(1)], &mut tracker), None);
        assert_eq!(tracker.overdue_at(), Some(Time(3001)), "longer than the patience, not as long");
        assert_eq!(tracker.overdue(Time(3000)), None);
        let told = tracker.overdue(Time(3001));
        assert_eq!(told, Some(Cycle { duration_ms: 2001, told: false, stalled_ms: 0 }));
        assert_eq!((tracker.overdue_at(), tracker.overdue(Time(9000))), (None, None), "told once");
        let ended = step(3200, written(1, won()), vec![renewed()], &mut tracker);
        assert_eq!(ended.map(|cycle| (cycle.duration_ms, cycle.told)), Some((2200, true)));
    }

    #[test]
    fn a_claim_belongs_to_the_look_before_it() {
        let ended = run(
            Role::Candidate,
            vec![
                (1000, 1000, TICK, vec![read(1)]),
                (1400, 2000, seat(1, SeatAnswer::Absent), vec![write(2)]),
                (1900, 2000, written(2, WriteAnswer::Lost), vec![read(3)]),
                (2300, 2000, seat(3, SeatAnswer::Unchanged), vec![]),
            ],
        );
        assert_eq!(ended, [None, None, None, Some(1300)]);
        let unknown = run(
            Role::Candidate,
            vec![
                (1000, 1000, TICK, vec![write(1)]),
                (1750, 2000, written(1, WriteAnswer::Unknown), vec![read(2)]),
                (1800, 2000, seat(2, SeatAnswer::Unchanged), vec![write(3)]),
                (1900, 2000, written(3, WriteAnswer::Lost), vec![read(4)]),
                (2000, 2000, seat(4, SeatAnswer::Absent), vec![]),
            ],
        );
        assert_eq!(unknown, [None, None, None, None, Some(1000)]);
    }

    #[test]
    fn a_stall_counts_in_the_cycle_it_falls_into() {
        let mut tracker = CycleTracker::new(PATIENCE_MS);
        let mut stalled = |now, due, input: Input, effects: &[Effect], late_ms| {
            let step = step(now, due, &input, effects, Role::Standby, late_ms);
            tracker.step(&step).map(|cycle| (cycle.duration_ms, cycle.stalled_ms))
        };
        assert_eq!(stalled(4000, 1000, TICK, &[read(1)], 3000), None);
        let answer = seat(1, SeatAnswer::Unchanged);
        assert_eq!(stalled(4100, 5000, answer, &[], 40), Some((3100, 3040)), "before and during the request");
        assert_eq!(stalled(9000, 5000, TICK, &[read(2)], 8000), None);
        let answer = seat(2, SeatAnswer::Unchanged);
        let ended = stalled(9500, 9000, answer, &[read(3)], 400);
        assert_eq!(ended, Some((4500, 4500)), "never more than the cycle itself");
        let answer = seat(3, SeatAnswer::Unchanged);
        assert_eq!(stalled(9600, 9000, answer, &[], 0), Some((600, 0)), "a stall counts once");
    }

    #[test]
    fn a_stall_shows_in_a_cycle_that_is_told_before_it_ends() {
        let mut tracker = CycleTracker::new(PATIENCE_MS);
        tracker.step(&step(4000, 1000, &TICK, &[write(1)], Role::Leader, 2900));
        let told = tracker.overdue(Time(4000));
        assert_eq!(told, Some(Cycle { duration_ms: 3000, told: false, stalled_ms: 2900 }));
    }

    #[test]
    fn a_leader_paused_past_its_deadline_had_a_long_cycle_too() {
        let ended = run(
            Role::Standby,
            vec![
                (10, 1000, Input::StepDown, vec![]),
                (6000, 1000, TICK, vec![lost(LossReason::LeaseExpired), read(1)]),
                (6010, 7000, seat(1, SeatAnswer::Unchanged), vec![]),
            ],
        );
        assert_eq!(ended[1], Some(5000));
        assert_eq!(ended[2], Some(10), "the look after it is a cycle of its own");
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
        assert_eq!(ended, [None, Some(2500), None], "due at 1000");
    }

    #[test]
    fn a_failing_cycle_is_cut_off_beyond_its_patience_only() {
        for (failed, cut) in [(3000, None), (3001, Some(2001))] {
            let answer = (failed, 2000, seat(1, SeatAnswer::Unavailable), vec![]);
            let ended = run(Role::Standby, vec![(1000, 1000, TICK, vec![read(1)]), answer]);
            assert_eq!(ended, [None, cut]);
        }
    }
}
