//! What must hold for schedules: which due times become jobs.

use super::name;
use crate::machines::scheduler::Round;
use crate::shell::Who;
use crate::world::World;
use tenure_core::{DueTimes, Misfire, NewJob};

impl World {
    /// Of the missed due times, only the newest are made up for, as many as the policy allows.
    pub(crate) fn check_misfire(&mut self, who: Who, jobs: &[NewJob<Round>]) {
        let wall = self.wall(who);
        for NewJob { schedule: round, due_ms, .. } in jobs {
            let begins = |due_ms: u64| round.interval.begins_ms(round.id.as_str(), due_ms);
            let late = |due_ms: u64| wall.saturating_sub(begins(due_ms)) > round.terms.misfire_threshold_ms;
            if begins(*due_ms) > wall {
                self.violated(name::MISFIRE, || {
                    format!("{due_ms} of {} is created before its time", round.id)
                });
                continue;
            }
            let kept = round.terms.misfire.kept();
            let newer = round.interval.newest(*due_ms, wall, kept + 1);
            let newer = newer.into_iter().filter(|other| late(*other)).count();
            if late(*due_ms) && newer >= kept {
                let policy = round.terms.misfire;
                self.violated(name::MISFIRE, || {
                    format!("{due_ms} is made up for by {policy:?}, and {newer} newer ones were missed")
                });
            }
        }
    }

    /// A due time after this moment that should be a job and is not.
    pub(crate) fn missing_job(&self, leader: usize, from: u64) -> Option<String> {
        let wall = self.wall(Who::Node(leader));
        // Up to this time, every due time must have become a job.
        let until = wall.saturating_sub(2500 + 12 * self.latency_ms.1);
        for round in self.workload.rounds.iter().filter(|round| round.terms.enabled) {
            let until = until.saturating_sub(round.interval.jitter_ms);
            let series = round.id.series();
            let is_job = |due: &u64| self.job_checks.dues.get(&series).is_some_and(|dues| dues.contains(due));
            let newest = round.interval.newest(from, until, 1).pop();
            let Some(due) = newest.filter(|due| !is_job(due)) else { continue };
            let open_at = self.job_checks.open_at.get(&series).copied().unwrap_or(0);
            let open_wall = wall - (self.now - open_at);
            let blocked = match round.terms.misfire {
                // With this policy, a due time is run while nothing blocks it, or never.
                Misfire::Skip => open_wall >= due,
                Misfire::RunOnce | Misfire::CatchUp(_) => open_wall >= until,
            };
            if !blocked {
                let (id, policy) = (&round.id, round.terms.misfire);
                return Some(format!(
                    "{due} of {id} is no job at {wall}, {policy:?}, a job was open until {open_wall}"
                ));
            }
        }
        None
    }
}
