//! The fence: whether a task of some epoch may still be acted on. Pure: ages come in, a verdict goes out.

use crate::election::Epoch;
use crate::mutants::Mutant;

/// How strictly a fence judges.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FenceRule {
    /// Whether epochs are checked at all. If not, every task is accepted and nothing is counted.
    pub enabled: bool,
    /// For this long after a change of leader, a task of the epoch just before may still be accepted, if it was also
    /// dispatched within this time. 0 means never.
    pub grace_ms: u64,
}

impl Default for FenceRule {
    fn default() -> FenceRule {
        FenceRule { enabled: true, grace_ms: 5000 }
    }
}

/// The fence's verdict on a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The task belongs to the present leader, or to one this node has not heard of yet.
    Accept,
    /// The task belongs to the previous leader and was dispatched just before the change: accepted, with a warning.
    AcceptLate,
    /// The task belongs to a past leader and must not be acted on.
    RejectStale,
}

impl Verdict {
    /// Whether the task may be acted on.
    pub fn is_accepted(self) -> bool {
        match self {
            Verdict::Accept | Verdict::AcceptLate => true,
            Verdict::RejectStale => false,
        }
    }
}

impl FenceRule {
    /// Judges a task of epoch `task` against the highest epoch known.
    ///
    /// The grace needs both ages. `since_change_ms` is how long ago this node itself saw the change, on its own clock.
    /// `dispatched_ms_ago` is the task's age as its sender states it (`None` if the sender did not say, or named a time in
    /// the future). A skewed sender can therefore shorten the grace, but never lengthen it.
    pub fn judge(
        self,
        known: Epoch,
        since_change_ms: u64,
        task: Epoch,
        dispatched_ms_ago: Option<u64>,
    ) -> Verdict {
        if !self.enabled || task >= known {
            return Verdict::Accept;
        }
        let for_ever = Mutant::GraceNeverEnds.on();
        let just_before = task.next() == Some(known) || Mutant::GraceForAllEpochs.on();
        let seen_lately = since_change_ms < self.grace_ms || Mutant::GraceBySenderOnly.on() || for_ever;
        let sent_lately = dispatched_ms_ago.is_some_and(|age_ms| age_ms < self.grace_ms)
            || Mutant::GraceByReceiverOnly.on()
            || for_ever;
        if just_before && seen_lately && sent_lately { Verdict::AcceptLate } else { Verdict::RejectStale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(rule: FenceRule, task: u64, since_change_ms: u64, age_ms: Option<u64>) -> Verdict {
        rule.judge(Epoch(6), since_change_ms, Epoch(task), age_ms)
    }

    #[test]
    fn only_what_is_stale_is_turned_away() {
        let verdicts = [Verdict::Accept, Verdict::AcceptLate, Verdict::RejectStale];
        assert_eq!(verdicts.map(Verdict::is_accepted), [true, true, false]);
    }

    #[test]
    fn a_stale_epoch_is_rejected_and_a_newer_one_accepted() {
        let rule = FenceRule::default();
        assert_eq!(judge(rule, 5, 60_000, Some(10)), Verdict::RejectStale);
        assert_eq!(judge(rule, 6, 0, None), Verdict::Accept);
        assert_eq!(judge(rule, 7, 0, None), Verdict::Accept);
    }

    #[test]
    fn grace_needs_the_epoch_before_a_fresh_change_and_a_fresh_task() {
        let rule = FenceRule::default();
        assert_eq!(judge(rule, 5, 4999, Some(4999)), Verdict::AcceptLate);
        assert_eq!(judge(rule, 5, 5000, Some(0)), Verdict::RejectStale, "the change was seen too long ago");
        assert_eq!(judge(rule, 5, 0, Some(5000)), Verdict::RejectStale, "the task is too old");
        assert_eq!(judge(rule, 5, 0, None), Verdict::RejectStale, "a sender that does not say gets none");
        assert_eq!(judge(rule, 4, 0, Some(0)), Verdict::RejectStale, "two epochs back: never");
        assert_eq!(judge(FenceRule { grace_ms: 0, ..rule }, 5, 0, Some(0)), Verdict::RejectStale, "strict");
    }

    #[test]
    fn switched_off_it_accepts_everything() {
        assert_eq!(judge(FenceRule { enabled: false, grace_ms: 0 }, 1, 60_000, None), Verdict::Accept);
    }
}
