//! What a keeper decides: when its command is told to stop, and when it is killed. Pure; time is an input.
//!
//! The keeper is told over and over until when its command may run, on the boot-time clock. It never has to be told to
//! stop: if nobody tells it to go on, the command is asked to end, and killed before the lease is over.
//!
//! Once a command was told to stop there is no way back, even if the lease goes on.

use std::fmt;
use std::str::FromStr;

/// With what a command is asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    Terminate,
    Interrupt,
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Ask everything to end.
    Ask(Ask),
    /// Kill everything, again and again until nothing is left.
    Kill,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Stopping { kill_at_ms: u64 },
    Killing,
}

/// The state of one command's keeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StopTimes {
    until_ms: u64,
    grace_ms: u64,
    margin_ms: u64,
    phase: Phase,
}

impl StopTimes {
    /// A command that may run until then.
    pub(crate) fn new(until_ms: u64, grace_ms: u64, margin_ms: u64) -> StopTimes {
        StopTimes { until_ms, grace_ms, margin_ms, phase: Phase::Running }
    }

    /// Whether the command was not told to stop so far.
    pub(crate) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    pub(crate) fn is_killing(&self) -> bool {
        self.phase == Phase::Killing
    }

    /// It may run until then. Never less than before: what was granted was granted.
    pub(crate) fn extend(&mut self, until_ms: u64) {
        self.until_ms = self.until_ms.max(until_ms);
    }

    /// It is to stop, with so much time to do it in. Of several of these the earliest end counts.
    pub(crate) fn stop(&mut self, now_ms: u64, ask: Ask, grace_ms: u64) -> Option<Order> {
        let asked_ms = now_ms.saturating_add(grace_ms);
        self.phase = match self.phase {
            Phase::Running => Phase::Stopping { kill_at_ms: asked_ms },
            Phase::Stopping { kill_at_ms } => Phase::Stopping { kill_at_ms: kill_at_ms.min(asked_ms) },
            Phase::Killing => return None,
        };
        Some(Order::Ask(ask))
    }

    /// Whoever led is gone, or what ran has ended and left something behind: what the lease has left, and no more than
    /// the grace. Even after a `kill -9` there is time for it: the lease runs on, and a successor waits for its expiry in any
    /// case.
    pub(crate) fn wind_up(&mut self, now_ms: u64) -> Option<Order> {
        self.stop(now_ms, Ask::Terminate, self.grace_ms)
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Option<Order> {
        match self.phase {
            Phase::Killing => return None,
            Phase::Running | Phase::Stopping { .. } if now_ms >= self.kill_by_ms() => {}
            Phase::Stopping { kill_at_ms } if now_ms >= kill_at_ms => {}
            Phase::Stopping { .. } => return None,
            Phase::Running if now_ms >= self.kill_by_ms().saturating_sub(self.grace_ms) => {
                return self.wind_up(now_ms);
            }
            Phase::Running => return None,
        }
        self.phase = Phase::Killing;
        Some(Order::Kill)
    }

    /// When [`tick`](StopTimes::tick) has something to say, if nothing else happens.
    pub(crate) fn due_ms(&self) -> u64 {
        match self.phase {
            Phase::Running => self.kill_by_ms().saturating_sub(self.grace_ms),
            Phase::Stopping { kill_at_ms } => kill_at_ms.min(self.kill_by_ms()),
            Phase::Killing => 0,
        }
    }

    fn kill_by_ms(&self) -> u64 {
        self.until_ms.saturating_sub(self.margin_ms)
    }
}

/// What a keeper is told, one line each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Instruction {
    /// The command may run until then, on the boot-time clock.
    Until(u64),
    /// The command is to stop, with so many milliseconds to do it in.
    Stop(Ask, u64),
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instruction::Until(until_ms) => writeln!(f, "until {until_ms}"),
            Instruction::Stop(Ask::Terminate, grace_ms) => writeln!(f, "terminate {grace_ms}"),
            Instruction::Stop(Ask::Interrupt, grace_ms) => writeln!(f, "interrupt {grace_ms}"),
        }
    }
}

impl FromStr for Instruction {
    type Err = ();

    fn from_str(line: &str) -> Result<Instruction, ()> {
        let (verb, number) = line.split_once(' ').ok_or(())?;
        let number = number.parse().map_err(|_| ())?;
        match verb {
            "until" => Ok(Instruction::Until(number)),
            "terminate" => Ok(Instruction::Stop(Ask::Terminate, number)),
            "interrupt" => Ok(Instruction::Stop(Ask::Interrupt, number)),
            _ => Err(()),
        }
    }
}

/// What a keeper says, one line each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// The command was told to stop because nobody said in time that it may go on.
    Overdue,
    /// The command was not started, and will not be: too little was left of the lease.
    TooLate,
    /// The command ended with this code: its own, or 128 and the number of the signal.
    Ended(u8),
    /// Nothing of it is left.
    Clear,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Overdue => writeln!(f, "overdue"),
            Report::TooLate => writeln!(f, "too-late"),
            Report::Ended(code) => writeln!(f, "ended {code}"),
            Report::Clear => writeln!(f, "clear"),
        }
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Report, ()> {
        match line.split_once(' ') {
            None if line == "overdue" => Ok(Report::Overdue),
            None if line == "too-late" => Ok(Report::TooLate),
            None if line == "clear" => Ok(Report::Clear),
            Some(("ended", code)) => code.parse().map(Report::Ended).map_err(|_| ()),
            None | Some(_) => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Option<Order> = Some(Order::Ask(Ask::Terminate));

    #[test]
    fn a_command_nobody_speaks_for_is_asked_and_then_killed_before_its_lease_ends() {
        let mut stop_times = StopTimes::new(2500, 375, 125);
        assert_eq!(stop_times.due_ms(), 2000);
        assert_eq!(stop_times.tick(1999), None);
        assert_eq!(stop_times.tick(2000), TERM);
        assert_eq!((stop_times.tick(2001), stop_times.due_ms()), (None, 2375));
        assert_eq!(stop_times.tick(2374), None);
        assert_eq!(stop_times.tick(2375), Some(Order::Kill));
        assert!(stop_times.is_killing() && stop_times.tick(9999).is_none());
    }

    #[test]
    fn renewals_keep_it_running_and_never_take_anything_back() {
        let mut stop_times = StopTimes::new(2500, 375, 125);
        stop_times.extend(3500);
        assert_eq!((stop_times.tick(2999), stop_times.tick(3000)), (None, TERM));
        let mut stop_times = StopTimes::new(2500, 375, 125);
        stop_times.extend(100);
        assert_eq!(stop_times.due_ms(), 2000);
    }

    #[test]
    fn a_renewal_that_comes_too_late_saves_nothing_that_was_told_to_stop() {
        let mut stop_times = StopTimes::new(2500, 375, 125);
        assert_eq!(stop_times.tick(2000), TERM);
        stop_times.extend(9000);
        assert!(!stop_times.is_running());
        assert_eq!((stop_times.tick(2374), stop_times.tick(2375)), (None, Some(Order::Kill)));
    }

    #[test]
    fn a_long_grace_ends_with_the_lease_and_a_second_ask_can_only_shorten_it() {
        let mut stop_times = StopTimes::new(2500, 375, 125);
        assert_eq!(stop_times.stop(1000, Ask::Interrupt, 10_000), Some(Order::Ask(Ask::Interrupt)));
        assert_eq!(stop_times.due_ms(), 2375, "never beyond the lease");
        stop_times.extend(60_000);
        assert_eq!(stop_times.due_ms(), 11_000, "the lease is renewed while it stops");
        assert_eq!(stop_times.stop(1100, Ask::Terminate, 375), TERM);
        assert_eq!((stop_times.due_ms(), stop_times.stop(1200, Ask::Terminate, 9000)), (1475, TERM));
        assert_eq!((stop_times.due_ms(), stop_times.tick(1475)), (1475, Some(Order::Kill)));
        assert_eq!(stop_times.stop(1500, Ask::Terminate, 9000), None, "there is no way back from a kill");
    }

    #[test]
    fn one_that_slept_past_its_lease_is_killed_without_a_word() {
        assert_eq!(StopTimes::new(2500, 375, 125).tick(80_000), Some(Order::Kill));
        // A lease that is over at the start: nothing may run at all.
        assert_eq!(StopTimes::new(100, 375, 125).tick(0), Some(Order::Kill));
    }

    #[test]
    fn words_and_reports_survive_the_way() {
        for instruction in [
            Instruction::Until(7),
            Instruction::Stop(Ask::Terminate, 375),
            Instruction::Stop(Ask::Interrupt, 0),
        ] {
            assert_eq!(instruction.to_string().trim_end().parse(), Ok(instruction));
        }
        for report in [Report::Overdue, Report::TooLate, Report::Ended(143), Report::Clear] {
            assert_eq!(report.to_string().trim_end().parse(), Ok(report));
        }
        for nonsense in ["", "until", "until x", "until -1", "ended 256", "clear 1", "go 1"] {
            assert!(
                nonsense.parse::<Instruction>().is_err() && nonsense.parse::<Report>().is_err(),
                "{nonsense:?}"
            );
        }
    }
}
