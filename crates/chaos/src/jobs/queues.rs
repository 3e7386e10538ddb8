//! What became of the jobs that were submitted, and what is wrong with it. Uses no code under test.

use super::history::Kill;
use super::kills::AgentKill;
use super::ledger::{Standing, Standings};
use super::submit::{Answers, Submission};
use super::target::{LIMITED, Run};
use crate::checks::Spread;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// On a busy machine, the target may accept what an agent asked only this long after the agent was killed.
const ACCEPTED_WITHIN_MS: u64 = 2000;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queues {
    /// How many jobs of the limited queue may run at once.
    pub limit: usize,
    pub submissions: Vec<Submission>,
    pub answers: Answers,
    /// The requests that arrived at the target, by number.
    pub runs: Vec<Run>,
    pub standings: Standings,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueFindings {
    pub jobs: usize,
    /// How many of them succeeded, with one result.
    pub succeeded: usize,
    /// The answers to submissions.
    pub answers: Answers,
    /// How many jobs were sent more than once.
    pub sent_again: usize,
    pub agents_killed: usize,
    /// The number of runs.
    pub runs: usize,
    /// Of these, how many were not answered because the agent was killed.
    pub cut_off: usize,
    /// Runs of a job after its first one, by who was killed in between. An agent counts, if one was.
    pub again_after_agent: usize,
    pub again_after_leader: usize,
    /// Results that came too late to count.
    pub late: usize,
    pub limit: usize,
    /// Most jobs of the limited queue that ran at once.
    pub most_at_once: usize,
    /// From the first time a job was sent to its first run.
    pub start: Spread,
    /// From the first job sent to the last answer to a run.
    pub took_ms: u64,
    /// From the last job sent to the last answer to a run.
    pub drained_ms: u64,
}

impl Queues {
    pub fn judge(&self, leaders: &[Kill], agents: &[AgentKill]) -> (QueueFindings, Vec<String>) {
        let mut findings = QueueFindings {
            jobs: self.submissions.len(),
            answers: self.answers.clone(),
            sent_again: self.submissions.iter().filter(|job| job.tries > 1).count(),
            agents_killed: agents.len(),
            runs: self.runs.len(),
            limit: self.limit,
            ..QueueFindings::default()
        };
        let mut violations = Vec::new();
        let mut runs: BTreeMap<&str, Vec<(usize, &Run)>> = BTreeMap::new();
        for (number, run) in self.runs.iter().enumerate() {
            runs.entry(&run.job).or_default().push((number, run));
        }
        for job in &self.submissions {
            let runs = runs.get(job.id.as_str()).map_or(&[][..], Vec::as_slice);
            self.judge_job(job, runs, &mut findings, &mut violations);
        }
        let known: BTreeSet<&str> = self.submissions.iter().map(|job| job.id.as_str()).collect();
        for (job, runs) in &runs {
            if !known.contains(job) {
                violations.push(format!("{job} ran, and nobody submitted it"));
            }
            judge_runs(job, runs, leaders, agents, &mut findings, &mut violations);
        }
        self.judge_limit(&mut findings, &mut violations);
        self.judge_times(&runs, &mut findings);
        (findings, violations)
    }

    /// It was taken, has one result and succeeded, and the result is that of its last attempt.
    fn judge_job(
        &self,
        job: &Submission,
        runs: &[(usize, &Run)],
        findings: &mut QueueFindings,
        violations: &mut Vec<String>,
    ) {
        let (id, before) = (&job.id, violations.len());
        if job.answered_ms.is_none() {
            violations.push(format!("{id} was sent {} times and never answered", job.tries));
        }
        let standings = self.standings.get(id).map_or(&[][..], Vec::as_slice);
        let Some(last) = standings.last() else {
            violations.push(format!("{id} is lost: neither the ledger nor the history has it"));
            return;
        };
        findings.late += last.late;
        if let Some(beyond) = standings.iter().find(|standing| standing.attempt > standing.attempts) {
            let Standing { attempt, attempts, .. } = beyond;
            violations.push(format!("{id} stood at attempt {attempt} of {attempts}"));
        }
        if last.is_open {
            violations.push(format!("{id} is lost: it stands as {}", last.state));
        } else if last.state != "succeeded" {
            violations.push(format!("{id} ended as {}: {}", last.state, last.result));
        }
        if standings.iter().filter(|standing| !standing.is_open).count() > 1 {
            let all: Vec<String> =
                standings.iter().map(|one| format!("{} ({})", one.state, one.result)).collect();
            violations.push(format!("{id} has two results: {}", all.join(", ")));
        }
        if last.state == "succeeded" {
            let number = last.result.strip_prefix("status 200: ").and_then(|number| number.parse().ok());
            let run = runs.iter().find(|(run, _)| Some(*run) == number).map(|(_, run)| run);
            match run.filter(|run| run.is_answered) {
                None => violations.push(format!("{id} has a result of no run of it: {}", last.result)),
                Some(run) if u64::from(run.attempt) != last.attempt => violations.push(format!(
                    "{id} stands at attempt {} with the result of attempt {}",
                    last.attempt, run.attempt
                )),
                Some(_) => {}
            }
        }
        findings.succeeded += usize::from(violations.len() == before);
    }

    /// Of the limited queue, never more run at once than may. No exception is made for agents that were killed: the target sees
    /// at once that they are gone.
    fn judge_limit(&self, findings: &mut QueueFindings, violations: &mut Vec<String>) {
        // At the same moment, ends come before beginnings.
        let limited = self.runs.iter().filter(|run| run.queue == LIMITED);
        let mut changes: Vec<(u64, bool, &str)> = limited
            .flat_map(|run| {
                let ended_ms = run.ended_ms.unwrap_or(u64::MAX);
                [(run.began_ms, true, run.job.as_str()), (ended_ms, false, run.job.as_str())]
            })
            .collect();
        changes.sort();
        let (mut at_once, mut is_over) = (0, false);
        for (at_ms, begins, job) in changes {
            if !begins {
                at_once -= 1;
                is_over &= at_once > self.limit;
                continue;
            }
            at_once += 1;
            findings.most_at_once = findings.most_at_once.max(at_once);
            if at_once > self.limit && !is_over {
                is_over = true;
                violations.push(format!("{at_once} jobs of queue {LIMITED} ran at {at_ms} ms, with {job}"));
            }
        }
    }

    fn judge_times(&self, runs: &BTreeMap<&str, Vec<(usize, &Run)>>, findings: &mut QueueFindings) {
        let start = |job: &Submission| {
            let first = runs.get(job.id.as_str())?.first()?.1;
            Some(first.began_ms.saturating_sub(job.sent_ms))
        };
        findings.start = Spread::of(self.submissions.iter().filter_map(start).collect());
        let sent = || self.submissions.iter().map(|job| job.sent_ms);
        let ended_ms = self.runs.iter().filter_map(|run| run.ended_ms).max().unwrap_or(0);
        findings.took_ms = ended_ms.saturating_sub(sent().min().unwrap_or(0));
        findings.drained_ms = ended_ms.saturating_sub(sent().max().unwrap_or(0));
    }
}

/// A job runs again only if an agent or a leader was killed in between, as the next attempt, and never twice at once.
fn judge_runs(
    job: &str,
    runs: &[(usize, &Run)],
    leaders: &[Kill],
    agents: &[AgentKill],
    findings: &mut QueueFindings,
    violations: &mut Vec<String>,
) {
    for (_, run) in runs.iter().filter(|(_, run)| !run.is_answered) {
        findings.cut_off += 1;
        let until_ms = run.ended_ms.unwrap_or(run.began_ms);
        let from_ms = run.began_ms.saturating_sub(ACCEPTED_WITHIN_MS);
        if !agents.iter().any(|kill| kill.is_between(from_ms, until_ms)) {
            violations.push(format!("{job} was cut off in attempt {}, and no agent was killed", run.attempt));
        }
    }
    for pair in runs.windows(2) {
        let ((_, first), (_, second)) = (pair[0], pair[1]);
        let (one, two, until_ms) = (first.attempt, second.attempt, second.began_ms);
        let slack_ms = if first.is_answered { 0 } else { ACCEPTED_WITHIN_MS };
        let from_ms = first.began_ms.saturating_sub(slack_ms);
        if two <= one {
            violations.push(format!("{job} ran as attempt {two} after attempt {one}"));
        }
        if first.ended_ms.is_none_or(|ended_ms| ended_ms > until_ms) {
            violations.push(format!("{job} ran twice at once, as attempts {one} and {two}"));
        }
        if agents.iter().any(|kill| kill.is_between(from_ms, until_ms)) {
            findings.again_after_agent += 1;
        } else if leaders.iter().any(|kill| (from_ms..=until_ms).contains(&kill.killed_ms)) {
            findings.again_after_leader += 1;
        } else {
            violations.push(format!("{job} ran again as attempt {two}, and nobody was killed in between"));
        }
    }
}

impl QueueFindings {
    pub fn text(&self) -> String {
        let answers: Vec<String> =
            self.answers.iter().map(|(answer, count)| format!("{answer} {count}")).collect();
        let rate = self.jobs as f64 * 1000.0 / self.took_ms.max(1) as f64;
        format!(
            "jobs submitted      {}, {} of them sent again; answers to requests: {}\n\
             succeeded           {}, each with one result; {rate:.1} a second, all done {} ms after the last was sent\n\
             agents killed       {}; runs cut off by that {}\n\
             ran again           {} after a kill of an agent, {} after one of a leader\n\
             results too late    {}\n\
             at once, limited    {} (limit {})\n\
             submitted to run    p50 {} p99 {} max {} ms\n",
            self.jobs,
            self.sent_again,
            answers.join(", "),
            self.succeeded,
            self.drained_ms,
            self.agents_killed,
            self.cut_off,
            self.again_after_agent,
            self.again_after_leader,
            self.late,
            self.most_at_once,
            self.limit,
            self.start.p50_ms,
            self.start.p99_ms,
            self.start.max_ms,
        )
    }
}

#[cfg(test)]
mod tests;
