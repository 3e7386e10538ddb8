//! Reasons in words, for people who do not know their codes.

use super::document::{Reason, ReasonCode};

impl Reason {
    /// The reason as a sentence: `pod-c is down.`
    pub fn sentence(&self) -> String {
        let subject = self.subject.as_deref();
        let node = subject.unwrap_or("a node");
        let detail = match self.detail.as_str() {
            "" => "it does not say more",
            detail => detail,
        };
        match self.code {
            ReasonCode::NoLeader => "Nobody leads.".to_owned(),
            ReasonCode::NodeDown => format!("{node} is down."),
            ReasonCode::NodeFlapping => format!("{node} keeps going up and down."),
            ReasonCode::NoEligibleStandby => "No other node could take over.".to_owned(),
            ReasonCode::DuplicateNode => format!("Two processes run under the id {node}."),
            ReasonCode::FallbackMode => {
                format!("On {node}, a plugin uses its own seat because the store denies it the shared one.")
            }
            ReasonCode::Contention => format!("Heartbeats of {node} take too long."),
            ReasonCode::ClockStall => "The leader does not get to run in time.".to_owned(),
            ReasonCode::SlowStore => format!("The store is slow: {detail}."),
            ReasonCode::ProbeFailed => format!("The probe {} failed: {detail}.", subject.unwrap_or("?")),
            ReasonCode::ScheduleFailing => match subject {
                Some(schedule) => format!("The last run of schedule {schedule} failed: {detail}."),
                None => format!("The last runs of schedules failed: {detail}."),
            },
            ReasonCode::ScheduleWaiting => match subject {
                Some(schedule) => format!("Nobody can run schedule {schedule}: {detail}."),
                None => format!("Nobody can run some schedules: {detail}."),
            },
            ReasonCode::WorkerDown => match subject {
                Some(worker) => format!("Worker {worker} is down."),
                None => format!("Workers are down: {detail}."),
            },
            ReasonCode::StaleSnapshot => format!("Nobody judges the cluster's health: {detail}."),
            ReasonCode::Settling => "The leader is new and has not judged the others yet.".to_owned(),
            ReasonCode::Recovering => "It is better, but not for long enough yet.".to_owned(),
        }
    }
}

impl ReasonCode {
    /// How bad it is: the worst reason comes first, which is 0.
    pub fn rank(self) -> u8 {
        match self {
            ReasonCode::NoLeader => 0,
            ReasonCode::ProbeFailed => 1,
            ReasonCode::NodeDown => 2,
            ReasonCode::DuplicateNode => 3,
            ReasonCode::SlowStore => 4,
            ReasonCode::ClockStall => 5,
            ReasonCode::Contention => 6,
            ReasonCode::FallbackMode => 7,
            ReasonCode::ScheduleWaiting => 8,
            ReasonCode::ScheduleFailing => 9,
            ReasonCode::WorkerDown => 10,
            ReasonCode::NodeFlapping => 11,
            ReasonCode::NoEligibleStandby => 12,
            ReasonCode::StaleSnapshot => 13,
            ReasonCode::Settling => 14,
            ReasonCode::Recovering => 15,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_a_sentence() {
        for (code, subject, detail, sentence) in [
            (ReasonCode::NodeDown, Some("pod-c"), "it is silent", "pod-c is down."),
            (ReasonCode::NoEligibleStandby, None, "", "No other node could take over."),
            (
                ReasonCode::SlowStore,
                None,
                "the nodes cannot be listed",
                "The store is slow: the nodes cannot be listed.",
            ),
            (ReasonCode::ProbeFailed, Some("db"), "", "The probe db failed: it does not say more."),
            (ReasonCode::WorkerDown, Some("w1"), "it was silent", "Worker w1 is down."),
            (
                ReasonCode::ScheduleFailing,
                Some("nightly"),
                "exit code 2",
                "The last run of schedule nightly failed: exit code 2.",
            ),
            (
                ReasonCode::WorkerDown,
                None,
                "2 were silent: w1, w2",
                "Workers are down: 2 were silent: w1, w2.",
            ),
        ] {
            assert_eq!(Reason::new(code, subject, detail).sentence(), sentence);
        }
    }
}
