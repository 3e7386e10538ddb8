//! The decisions of a supervision.

use super::{
    GaveUp, Halt, Phase, ProcessOutcome, Restart, Slot, State, Supervision, SupervisionCommand,
    SupervisionEvent, SupervisionOutput, Then,
};
use crate::election::Epoch;
use crate::machine::{Effect, In, Input, Machine, NoRequest, Now};
use crate::mutants::Mutant;
use crate::time::Time;

/// An aborted instance is not called stuck before this: even an obedient one must get to run once more.
const SETTLE_MS: u64 = 100;

/// If leadership could not be given up, it is taken up again, but not in a hot loop.
const AGAIN_MS: u64 = 1000;

type Out = Vec<crate::machine::Out<Supervision>>;

impl Machine for Supervision {
    type Command = SupervisionCommand;
    type Request = NoRequest;
    type Output = SupervisionOutput;

    fn handle(&mut self, now: Now, input: In<Supervision>, out: &mut Out) {
        self.now = self.now.max(now.at);
        self.forgive();
        // Before the deadline is enforced: this is what moves it.
        if let Input::Command(SupervisionCommand::Leadership(lease)) = input {
            self.lease = lease;
        }
        self.follow_lease(out);
        match input {
            Input::Command(SupervisionCommand::Ready { process, instance }) => {
                self.on_ready(process, instance);
            }
            Input::Command(SupervisionCommand::Exited { process, instance, outcome }) => {
                self.on_exited(process, instance, outcome, out);
            }
            Input::Command(SupervisionCommand::StoodAside) => self.on_stood_aside(),
            Input::Command(SupervisionCommand::Stop) => self.on_stop(out),
            Input::Command(SupervisionCommand::Leadership(_)) | Input::Wake => {}
            Input::Answer(_, never) => match never {},
        }
        self.advance(out);
    }

    fn wake_at(&self) -> Option<Time> {
        let slots = self.slots.iter().enumerate();
        let due = slots.filter_map(|(process, slot)| match (&slot.state, &self.phase) {
            (State::Waiting { until }, _) => Some(*until),
            (State::Alive { halt: Some(halt), .. }, _) => match halt.aborted {
                None => Some(halt.abort_at),
                Some(_) if halt.move_on_at > self.now => Some(halt.move_on_at),
                Some(_) => Some(halt.stuck_at()),
            },
            (State::Alive { halt: None, ready: false, since, .. }, Phase::Leading { .. }) => {
                self.config.processes[process].ready_within_ms.map(|within_ms| *since + within_ms)
            }
            (State::Alive { halt: None, .. } | State::Idle | State::Stuck { .. } | State::Ended, _) => None,
        });
        let lease = self.lease.map(|(_, deadline)| deadline);
        let phase = match &self.phase {
            Phase::Winding { by, .. } => Some(*by),
            Phase::Yielding { again_at, .. } => *again_at,
            Phase::Off | Phase::Leading { .. } => None,
            Phase::Ended => return None,
        };
        // Everything due by now has been done already.
        due.chain(phase).chain(lease).filter(|at| *at > self.now).min()
    }
}

impl Supervision {
    /// A term that has been calm for a whole window clears earlier failures.
    fn forgive(&mut self) {
        if self.calm_since.is_some_and(|since| self.now.since(since) >= self.config.window_ms) {
            self.releases = 0;
        }
    }

    /// Ends the term once its lease is over.
    fn follow_lease(&mut self, out: &mut Out) {
        if let Some((_, deadline)) = self.lease.filter(|(led, _)| *led == self.term) {
            self.deadline = deadline;
        }
        self.lease = self.lease.filter(|(_, deadline)| *deadline > self.now);
        let (Phase::Leading { epoch } | Phase::Winding { epoch, .. }) = self.phase else { return };
        let lost_by = match self.lease {
            Some((led, _)) if led == epoch => return,
            // The end of this term was missed; there is no time left for it.
            Some(_) => self.now,
            None => self.now + self.deadline.since(self.now).min(self.config.drain_ms),
        };
        if let Phase::Winding { by, then, .. } = &mut self.phase {
            *by = lost_by.min(*by);
            if matches!(then, Then::StandAside { .. }) {
                // There is nothing left to give up.
                *then = Then::Wait;
            }
        } else {
            self.wind(epoch, lost_by, Then::Wait, out);
        }
    }

    fn take_up(&mut self, out: &mut Out) {
        if let Some((epoch, deadline)) = self.lease {
            self.deadline = deadline;
            self.begin(epoch, out);
        }
    }

    /// A term begins, or continues after its lease was at risk.
    fn begin(&mut self, epoch: Epoch, out: &mut Out) {
        self.phase = Phase::Leading { epoch };
        if self.term != epoch {
            self.restarts.clear();
        }
        self.term = epoch;
        for slot in &mut self.slots {
            let stuck = matches!(slot.state, State::Stuck { .. });
            *slot = Slot { state: if stuck { slot.state.clone() } else { State::Idle }, ..Slot::default() };
        }
        let stuck = self.slots.iter().position(|slot| matches!(slot.state, State::Stuck { .. }));
        if let Some(process) = stuck {
            // A second instance beside it would break the only promise there is.
            self.give_up(process, GaveUp::StillStuck, out);
        }
    }

    fn on_ready(&mut self, process: usize, known: u64) {
        let Some(slot) = self.slots.get_mut(process) else { return };
        if let State::Alive { instance, ready, halt: None, .. } = &mut slot.state
            && *instance == known
        {
            *ready = true;
            (slot.passed, slot.failed_starts) = (true, 0);
        }
    }

    fn on_exited(&mut self, process: usize, known: u64, outcome: ProcessOutcome, out: &mut Out) {
        let Some(slot) = self.slots.get_mut(process) else { return };
        let (since, ready) = match slot.state {
            State::Alive { instance, since, ready, .. } if instance == known => (since, ready),
            State::Stuck { instance, since } if instance == known => (since, true),
            State::Alive { .. }
            | State::Stuck { .. }
            | State::Idle
            | State::Waiting { .. }
            | State::Ended => return,
        };
        let was_stuck = matches!(slot.state, State::Stuck { .. });
        slot.state = State::Idle;
        let ran_ms = self.now.since(since);
        if matches!(self.phase, Phase::Leading { .. }) && !was_stuck {
            return self.on_ended(process, outcome, ran_ms, ready, out);
        }
        self.tell(SupervisionEvent::Exited { process, outcome, ran_ms, restart_in_ms: None }, out);
    }

    /// A process ended while this node leads, and nobody asked it to.
    fn on_ended(&mut self, process: usize, outcome: ProcessOutcome, ran_ms: u64, ready: bool, out: &mut Out) {
        let failed = outcome != ProcessOutcome::Done;
        let again = match self.config.processes[process].restart {
            Restart::Permanent => true,
            Restart::Transient => failed,
            Restart::Temporary => false,
        };
        let (now, window_ms, limit) = (self.now, self.config.window_ms, self.config.intensity);
        let slot = &mut self.slots[process];
        if ran_ms >= window_ms {
            slot.failures = 0;
        }
        slot.failures = slot.failures.saturating_add(1);
        slot.failed_starts = slot.failed_starts.saturating_add(u32::from(!ready));
        slot.passed |= !failed;
        let (failures, failed_starts) = (slot.failures, slot.failed_starts);
        self.restarts.retain(|at| now.since(*at) < window_ms);
        let used = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        let given_up = if !again {
            (failed && !ready).then_some(GaveUp::CannotStart)
        } else if used >= limit && !Mutant::RestartIntensityIgnored.on() {
            Some(GaveUp::Intensity)
        } else {
            (failed_starts > limit).then_some(GaveUp::CannotStart)
        };
        let pause_ms = doubled(self.config.backoff_first_ms, failures - 1, self.config.backoff_max_ms);
        let pause_ms = if Mutant::RestartPauseSkipped.on() { 0 } else { pause_ms };
        let restart_in_ms = (again && given_up.is_none()).then_some(pause_ms);
        let event = SupervisionEvent::Exited { process, outcome, ran_ms, restart_in_ms };
        self.tell(event, out);
        self.slots[process].state = match restart_in_ms {
            Some(pause_ms) => {
                self.restarts.push_back(now);
                State::Waiting { until: now + pause_ms }
            }
            None => State::Ended,
        };
        if let Some(cause) = given_up {
            self.give_up(process, cause, out);
        }
    }

    /// Better no seat than one nobody works from.
    fn give_up(&mut self, process: usize, cause: GaveUp, out: &mut Out) {
        let Phase::Leading { epoch } = self.phase else { return };
        let hold_ms = doubled(self.config.hold_first_ms, self.releases, self.config.hold_max_ms);
        self.releases = self.releases.saturating_add(1);
        self.tell(SupervisionEvent::GaveUp { process, cause, hold_ms }, out);
        self.wind(epoch, self.now + self.config.drain_ms, Then::StandAside { hold_ms }, out);
    }

    fn on_stood_aside(&mut self) {
        let led = self.lease.map(|(epoch, _)| epoch);
        match &mut self.phase {
            Phase::Yielding { epoch, again_at } if led == Some(*epoch) => {
                *again_at = Some(self.now + AGAIN_MS);
            }
            Phase::Yielding { .. } => self.phase = Phase::Off,
            Phase::Off | Phase::Leading { .. } | Phase::Winding { .. } | Phase::Ended => {}
        }
    }

    fn on_stop(&mut self, out: &mut Out) {
        let stop_by = self.now + self.config.drain_ms;
        match &mut self.phase {
            Phase::Off | Phase::Yielding { .. } => {
                self.phase = Phase::Ended;
                out.push(Effect::Output(SupervisionOutput::Ended));
            }
            Phase::Leading { epoch } => {
                let epoch = *epoch;
                self.wind(epoch, stop_by, Then::End, out);
            }
            Phase::Winding { by, then, .. } => {
                *by = stop_by.min(*by);
                *then = Then::End;
            }
            Phase::Ended => {}
        }
    }

    fn wind(&mut self, epoch: Epoch, by: Time, then: Then, out: &mut Out) {
        self.phase = Phase::Winding { epoch, by, then };
        self.calm_since = None;
        for slot in &mut self.slots {
            let waits = matches!(slot.state, State::Waiting { .. });
            if waits && !Mutant::RestartedAfterLoss.on() {
                slot.state = State::Idle;
            }
        }
        self.advance_winding(out);
    }

    fn advance(&mut self, out: &mut Out) {
        if let Phase::Yielding { epoch, again_at: Some(at) } = self.phase
            && (self.now >= at || self.lease.is_none_or(|(led, _)| led != epoch))
        {
            self.phase = Phase::Off;
        }
        if matches!(self.phase, Phase::Winding { .. }) {
            self.advance_winding(out);
        }
        if self.phase == Phase::Off {
            self.take_up(out);
        }
        if matches!(self.phase, Phase::Leading { .. }) {
            self.advance_leading(out);
        }
        if Mutant::RestartedAfterLoss.on() {
            self.restart_due(out);
        }
    }

    fn advance_leading(&mut self, out: &mut Out) {
        let late = self.slots.iter().zip(&self.config.processes).position(|(slot, plan)| match slot.state {
            State::Alive { since, ready: false, halt: None, .. } => {
                plan.ready_within_ms.is_some_and(|within_ms| self.now >= since + within_ms)
            }
            State::Alive { .. }
            | State::Idle
            | State::Waiting { .. }
            | State::Stuck { .. }
            | State::Ended => false,
        });
        if let Some(process) = late {
            // Not restarted: it may hold something the next instance would need. Another node is the better bet.
            return self.give_up(process, GaveUp::CannotStart, out);
        }
        self.restart_due(out);
        // In the declared order, each once the previous one is ready.
        for process in 0..self.slots.len() {
            if self.slots[process].state == State::Idle && self.slots[process].attempt == 0 {
                self.start(process, out);
            }
            if !self.slots[process].passed {
                break;
            }
        }
        let settled = |slot: &Slot| match slot.state {
            State::Alive { ready, .. } => ready,
            State::Ended => true,
            State::Idle | State::Waiting { .. } | State::Stuck { .. } => false,
        };
        let calm = self.slots.iter().all(settled);
        self.calm_since = if calm { self.calm_since.or(Some(self.now)) } else { None };
    }

    fn restart_due(&mut self, out: &mut Out) {
        for process in 0..self.slots.len() {
            if matches!(self.slots[process].state, State::Waiting { until } if self.now >= until) {
                self.start(process, out);
            }
        }
    }

    fn start(&mut self, process: usize, out: &mut Out) {
        self.instances += 1;
        let (instance, since) = (self.instances, self.now);
        let ready = self.config.processes[process].ready_within_ms.is_none();
        let slot = &mut self.slots[process];
        slot.attempt = slot.attempt.saturating_add(1);
        slot.passed |= ready;
        slot.state = State::Alive { instance, since, ready, halt: None };
        let attempt = slot.attempt;
        out.push(Effect::Output(SupervisionOutput::Start { process, instance, attempt }));
        self.tell(SupervisionEvent::Started { process, attempt }, out);
    }

    /// Stops one process after the other, the last started first. Whatever happens, all are aborted by the deadline.
    fn advance_winding(&mut self, out: &mut Out) {
        let Phase::Winding { epoch, by, .. } = self.phase else { return };
        let mut order: Vec<usize> = (0..self.slots.len()).rev().collect();
        if Mutant::StoppedInStartOrder.on() {
            order.reverse();
        }
        for process in order {
            if !self.halt(process, by, out) && self.now < by {
                break;
            }
        }
        let now = self.now;
        let gone = |slot: &Slot| match &slot.state {
            State::Alive { halt: Some(halt), .. } => now >= halt.stuck_at(),
            State::Alive { halt: None, .. } => false,
            State::Idle | State::Waiting { .. } | State::Stuck { .. } | State::Ended => true,
        };
        if !self.slots.iter().all(gone) && !Mutant::ReleasedBeforeExited.on() {
            return;
        }
        for process in 0..self.slots.len() {
            if let State::Alive { instance, since, .. } = self.slots[process].state {
                self.slots[process].state = State::Stuck { instance, since };
                self.tell(SupervisionEvent::Stuck { process }, out);
            }
        }
        out.push(Effect::Output(SupervisionOutput::Released { epoch }));
        self.wound(epoch, out);
    }

    /// Brings one process closer to its end. Returns true if the next one need not wait for it.
    fn halt(&mut self, process: usize, by: Time, out: &mut Out) -> bool {
        let slot_ms = self.slot_ms(process, by);
        let (now, forgotten) = (self.now, Mutant::AbortForgotten.on());
        let State::Alive { halt, .. } = &mut self.slots[process].state else { return true };
        let halt = halt.get_or_insert_with(|| {
            out.push(Effect::Output(SupervisionOutput::Cancel { process }));
            let own_ms = slot_ms.saturating_sub(SETTLE_MS).max(slot_ms / 5 * 4);
            Halt { abort_at: now + own_ms, move_on_at: now + slot_ms, aborted: None }
        });
        if halt.aborted.is_none() && !forgotten && (now >= halt.abort_at || now >= by) {
            out.push(Effect::Output(SupervisionOutput::Abort { process }));
            halt.aborted = Some(now);
        }
        halt.aborted.is_some() && now >= halt.move_on_at
    }

    /// How much of the remaining time this process gets: its grace, or its share if there is not enough for all.
    fn slot_ms(&self, process: usize, by: Time) -> u64 {
        let left_ms = by.since(self.now);
        let grace_ms = |at: usize| self.config.processes[at].stop_grace_ms.max(1);
        let waits = |slot: &Slot| matches!(slot.state, State::Alive { halt: None, .. });
        let others = self.slots.iter().enumerate().filter(|(at, slot)| *at != process && waits(slot));
        let (count, sum_ms) = others.fold((1, grace_ms(process)), |(count, sum_ms), (at, _)| {
            (count + 1, sum_ms.saturating_add(grace_ms(at)))
        });
        let whole_ms = sum_ms.saturating_add(count * SETTLE_MS);
        if whole_ms <= left_ms {
            return grace_ms(process).saturating_add(SETTLE_MS);
        }
        let share = u128::from(left_ms) * u128::from(grace_ms(process)) / u128::from(sum_ms.max(1));
        u64::try_from(share).unwrap_or(left_ms)
    }

    /// Nothing runs any more, except what is stuck.
    fn wound(&mut self, epoch: Epoch, out: &mut Out) {
        let Phase::Winding { then, .. } = self.phase else { return };
        match then {
            Then::Wait => self.phase = Phase::Off,
            Then::StandAside { hold_ms } => {
                self.phase = Phase::Yielding { epoch, again_at: None };
                out.push(Effect::Output(SupervisionOutput::StandAside { hold_ms }));
            }
            Then::End => {
                self.phase = Phase::Ended;
                out.push(Effect::Output(SupervisionOutput::Ended));
            }
        }
    }

    fn tell(&self, event: SupervisionEvent, out: &mut Out) {
        out.push(Effect::Output(SupervisionOutput::Event(self.term, event)));
    }
}

impl Halt {
    /// When it counts as stuck; never, unless it was aborted.
    fn stuck_at(&self) -> Time {
        self.aborted.map_or(Time(u64::MAX), |at| self.move_on_at.max(at + SETTLE_MS))
    }
}

/// A pause that doubles every consecutive time, up to a limit.
fn doubled(first_ms: u64, times: u32, max_ms: u64) -> u64 {
    first_ms.saturating_mul(1 << times.min(16)).min(max_ms.max(first_ms))
}
