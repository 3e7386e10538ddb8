//! What happened, and what is wrong with it. Uses no code under test: the policies are written out again here.

use super::agents::Tally;
use super::kills::AgentKill;
use super::queues::{QueueFindings, Queues};
use super::target::Hit;
use crate::checks::Spread;
use crate::leadership::Said;
use crate::stall_watch::{Stall, stalled_ms};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// All schedules are due at every full second.
const SECOND_MS: u64 = 1000;

/// Due times at both ends of the record are not judged: some were there before, some were still on their way.
const HEAD_MS: u64 = 2000;
const TAIL_MS: u64 = 8000;

/// The time from a successor's claim to its first job: it has to take over what its predecessor left and read schedules and
/// agents, and an agent has to look into its inbox.
const TAKE_OVER_MS: u64 = 5000;

/// What happens to missed due times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Policy {
    /// They count as late, not missed: every one is made up for.
    Patient,
    /// None is made up for.
    Skip,
    /// The newest one is made up for.
    RunOnce,
    /// The newest two are made up for.
    CatchUp,
}

impl Policy {
    const ALL: [Policy; 4] = [Policy::Patient, Policy::Skip, Policy::RunOnce, Policy::CatchUp];

    /// The policy of the schedule with this number; they take turns.
    pub fn of(number: usize) -> Policy {
        Policy::ALL[number % Policy::ALL.len()]
    }

    fn name(self) -> &'static str {
        match self {
            Policy::Patient => "patient",
            Policy::Skip => "skip",
            Policy::RunOnce => "once",
            Policy::CatchUp => "catch",
        }
    }

    /// The name of a schedule with this policy.
    pub fn schedule(self, number: usize) -> String {
        format!("{}.{number}", self.name())
    }

    fn of_schedule(schedule: &str) -> Option<Policy> {
        let name = schedule.split_once('.')?.0;
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The policy as written in a schedule.
    pub fn words(self) -> &'static str {
        match self {
            Policy::Patient | Policy::RunOnce => "run_once",
            Policy::Skip => "skip",
            Policy::CatchUp => "catch_up(2)",
        }
    }

    /// How late a due time may be and still count as on time.
    pub fn threshold_ms(self) -> u64 {
        match self {
            Policy::Patient => 30_000,
            Policy::Skip | Policy::RunOnce | Policy::CatchUp => 1000,
        }
    }

    /// How many due times missed together are made up for.
    fn made_up(self) -> u64 {
        match self {
            Policy::Patient | Policy::Skip => 0,
            Policy::RunOnce => 1,
            Policy::CatchUp => 2,
        }
    }
}

/// One kill of the leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kill {
    pub node: String,
    pub epoch: u64,
    /// On the boot-time clock.
    pub killed_ms: u64,
    /// When it was started again.
    pub back_ms: u64,
}

/// Everything to judge, except the nodes' events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub engine: String,
    pub schedules: usize,
    /// When all schedules had run once, on the boot-time clock.
    pub began_ms: u64,
    /// When the agents were asked to drain, on the boot-time clock.
    pub ended_ms: u64,
    /// How far the wall clock, by which schedules are due, was ahead of the boot-time clock.
    pub wall_ahead_ms: u64,
    /// How soon a crashed leader must be replaced.
    pub bound_ms: u64,
    /// How long a killed node stayed away.
    pub away_ms: u64,
    /// In order.
    pub kills: Vec<Kill>,
    /// In order.
    pub agent_kills: Vec<AgentKill>,
    /// The checks that arrived at the target.
    pub hits: Vec<Hit>,
    #[serde(skip)]
    pub tally: Tally,
    /// The output of `tenure job ls` at the end, for the jobs of schedules.
    pub jobs: Value,
    /// The jobs that were submitted.
    pub queues: Queues,
    /// Processes that failed by themselves.
    pub complaints: Vec<String>,
    pub stalls: Vec<Stall>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    pub engine: String,
    pub schedules: usize,
    pub kills: usize,
    /// The number of checks that arrived at the target.
    pub checks: usize,
    /// Of these: those done again because an agent was killed in between.
    pub checks_again: usize,
    /// The number of due times judged.
    pub due_times: u64,
    /// By policy: due times without a job, as the policy demands.
    pub missed: BTreeMap<String, u64>,
    /// From a kill to the next leader.
    pub failover: Spread,
    /// From a kill to the first check of the next leader.
    pub work_gap: Spread,
    /// The bound on `failover`.
    pub bound_ms: u64,
    /// From the due time to the check, for all that were judged.
    pub lateness: Spread,
    /// Entries of former epochs that agents refused.
    pub stale_refused: u64,
    /// Entries delivered twice and done once.
    pub duplicates_suppressed: u64,
    pub queues: QueueFindings,
    /// The events about nodes and health.
    pub told: Vec<String>,
    pub violations: Vec<String>,
}

impl History {
    pub fn judge(&self, events: &[Said]) -> Findings {
        let mut findings = Findings {
            engine: self.engine.clone(),
            schedules: self.schedules,
            kills: self.kills.len(),
            checks: self.hits.len(),
            bound_ms: self.bound_ms,
            stale_refused: self.tally.stale,
            duplicates_suppressed: self.tally.duplicates,
            violations: self.complaints.clone(),
            ..Findings::default()
        };
        self.judge_hits(&mut findings);
        self.judge_missed(&mut findings);
        self.judge_gaps(events, &mut findings);
        self.judge_health(events, &mut findings);
        self.judge_jobs(&mut findings);
        let (queues, violations) = self.queues.judge(&self.kills, &self.agent_kills);
        findings.queues = queues;
        findings.violations.extend(violations);
        findings
    }

    /// No due time has two jobs, and no job has two effects, unless an agent was killed between them.
    fn judge_hits(&self, findings: &mut Findings) {
        let mut seen: BTreeMap<&str, &Hit> = BTreeMap::new();
        for hit in &self.hits {
            if hit.due().is_none() {
                findings.violations.push(format!("a job with no due time: {}", hit.job));
            }
            let Some(before) = seen.insert(&hit.job, hit) else { continue };
            // No check failed, so only a killed agent is a reason to try again.
            let is_killed = self.agent_kills.iter().any(|kill| kill.is_between(before.at_ms, hit.at_ms));
            if is_killed && before.attempt < hit.attempt {
                findings.checks_again += 1;
            } else {
                let (job, first, second) = (&hit.job, before.attempt, hit.attempt);
                findings.violations.push(format!("{job} was done twice, as attempts {first} and {second}"));
            }
        }
        let lateness = self.hits.iter().filter_map(|hit| {
            let due_ms = hit.due()?.1;
            Some((hit.at_ms + self.wall_ahead_ms).saturating_sub(due_ms))
        });
        findings.lateness = Spread::of(lateness.collect());
    }

    /// Due times without a job, by schedule, among those that are judged.
    fn missing(&self) -> BTreeMap<String, BTreeSet<u64>> {
        let first = (self.began_ms + self.wall_ahead_ms + HEAD_MS).div_ceil(SECOND_MS);
        let last = (self.ended_ms + self.wall_ahead_ms).saturating_sub(TAIL_MS) / SECOND_MS;
        let all: BTreeSet<u64> = (first..=last).collect();
        let mut missing: BTreeMap<String, BTreeSet<u64>> =
            (0..self.schedules).map(|n| (Policy::of(n).schedule(n), all.clone())).collect();
        for (schedule, due_ms) in self.hits.iter().filter_map(Hit::due) {
            if let Some(left) = missing.get_mut(schedule) {
                left.remove(&(due_ms / SECOND_MS));
            }
        }
        missing
    }

    /// Each policy lost exactly what it says. Due times missed together end at the same one for all schedules, because they were
    /// planned together; how far back they reach depends on what the former leader had done. Where two leaders follow each other
    /// closely, one schedule may lose without a break what another lost in two parts.
    fn judge_missed(&self, findings: &mut Findings) {
        let missing = self.missing();
        findings.due_times = self.due_times() * self.schedules as u64;
        let of_policy = |schedule: &String| Policy::of_schedule(schedule);
        let skipped: Vec<&BTreeSet<u64>> = missing
            .iter()
            .filter(|(schedule, _)| of_policy(schedule) == Some(Policy::Skip))
            .map(|(_, dues)| dues)
            .collect();
        // Only schedules that make up for nothing lose the newest missed due time.
        let together: Vec<Vec<u64>> = skipped.iter().flat_map(|dues| runs(dues)).collect();
        for (schedule, dues) in &missing {
            let Some(policy) = of_policy(schedule) else { continue };
            *findings.missed.entry(policy.name().to_owned()).or_default() += dues.len() as u64;
            if policy == Policy::Patient && !dues.is_empty() {
                findings.violations.push(format!("{schedule} lost {dues:?} s though it is patient"));
            }
            for lost in runs(dues).into_iter().filter(|_| policy != Policy::Patient) {
                let end = lost.last().map(|last| last + policy.made_up());
                if !together.iter().any(|run| run.last().copied() == end) {
                    findings
                        .violations
                        .push(format!("{schedule} lost {lost:?} s, which others did not miss"));
                }
            }
            for run in together.iter().filter(|_| policy == Policy::Skip) {
                let lost: Vec<&u64> = run.iter().filter(|due| dues.contains(due)).collect();
                if !lost.is_empty() && lost.last().copied() != run.last() {
                    findings
                        .violations
                        .push(format!("{schedule} lost {lost:?} s when others lost {run:?} s"));
                }
            }
        }
    }

    fn due_times(&self) -> u64 {
        let first = (self.began_ms + self.wall_ahead_ms + HEAD_MS).div_ceil(SECOND_MS);
        let last = (self.ended_ms + self.wall_ahead_ms).saturating_sub(TAIL_MS) / SECOND_MS;
        (last + 1).saturating_sub(first)
    }

    /// A node leads again within the bound, and its work starts soon after.
    fn judge_gaps(&self, events: &[Said], findings: &mut Findings) {
        let (mut failovers, mut gaps) = (Vec::new(), Vec::new());
        for kill in &self.kills {
            let node = &kill.node;
            let next = events.iter().filter(|said| said.name() == "became_leader");
            let next = next.filter(|said| said.epoch() > kill.epoch).map(Said::boot_ms).min();
            let Some(next_ms) = next else {
                findings.violations.push(format!("nobody led after {node} was killed"));
                continue;
            };
            let (took_ms, stood_ms) =
                (next_ms.saturating_sub(kill.killed_ms), self.stalled(kill.killed_ms, next_ms));
            failovers.push(took_ms);
            if took_ms > self.bound_ms + 2 * stood_ms {
                findings.violations.push(format!("{took_ms} ms without a leader after {node} was killed"));
            }
            let work = self.hits.iter().filter(|hit| hit.epoch > kill.epoch).map(|hit| hit.at_ms).min();
            let Some(work_ms) = work else {
                findings.violations.push(format!("nothing was done after {node} was killed"));
                continue;
            };
            let (gap_ms, stood_ms) =
                (work_ms.saturating_sub(kill.killed_ms), self.stalled(kill.killed_ms, work_ms));
            gaps.push(gap_ms);
            if gap_ms > self.bound_ms + TAKE_OVER_MS + 2 * stood_ms {
                findings.violations.push(format!("{gap_ms} ms without work after {node} was killed"));
            }
        }
        (findings.failover, findings.work_gap) = (Spread::of(failovers), Spread::of(gaps));
    }

    fn stalled(&self, from_ms: u64, until_ms: u64) -> u64 {
        stalled_ms(&self.stalls, from_ms, until_ms)
    }

    /// Health reports the events in order: a killed node is down once, then up once; no other node is ever down; each status
    /// follows from the one before.
    fn judge_health(&self, events: &[Said], findings: &mut Findings) {
        let mut told: Vec<&Said> = events
            .iter()
            .filter(|said| ["node_up", "node_down", "health_changed"].contains(&said.name()))
            .collect();
        told.sort_by_key(|said| said.boot_ms());
        let second = |said: &Said| said.boot_ms().saturating_sub(self.began_ms) / 1000;
        let (mut last, mut status): (BTreeMap<&str, &str>, Option<&str>) = (BTreeMap::new(), None);
        for said in &told {
            let (name, subject) = (said.name(), said.text("subject"));
            if name == "health_changed" {
                let (from, to) = (said.text("from"), said.text("to"));
                findings.told.push(format!("{:>4} s  epoch {}: {from} -> {to}", second(said), said.epoch()));
                if status.is_some_and(|status| status != from) {
                    findings.violations.push(format!("health was told from {from}, not from what it was"));
                }
                status = Some(to);
                continue;
            }
            findings.told.push(format!("{:>4} s  epoch {}: {name} {subject}", second(said), said.epoch()));
            if last.insert(subject, name) == Some(name) {
                findings.violations.push(format!("{name} of {subject} was told twice"));
            }
        }
        for kill in &self.kills {
            let (node, killed_ms, back_ms) = (kill.node.as_str(), kill.killed_ms, kill.back_ms);
            let of = |name: &str, from_ms: u64, until_ms: u64| {
                told.iter()
                    .filter(|said| said.name() == name && said.text("subject") == node)
                    .filter(|said| (from_ms..until_ms).contains(&said.boot_ms()))
                    .count()
            };
            // A node that goes down repeatedly must be steady for a while before it is reported up, but that must happen before
            // it is killed again.
            let again = self.kills.iter().find(|other| other.node == node && other.killed_ms > killed_ms);
            let until_ms = again.map_or(u64::MAX, |again| again.killed_ms);
            let (down, up) = (of("node_down", killed_ms, back_ms), of("node_up", back_ms, until_ms));
            if (down, up) != (1, 1) {
                findings
                    .violations
                    .push(format!("{node} was killed and came back; told {down} and {up} times"));
            }
        }
        let away = |said: &&&Said| {
            self.kills.iter().any(|kill| {
                kill.node == said.text("subject") && (kill.killed_ms..kill.back_ms).contains(&said.boot_ms())
            })
        };
        for said in told.iter().filter(|said| said.name() == "node_down" && !away(said)) {
            findings.violations.push(format!("{} was told to be down and was not", said.text("subject")));
        }
    }

    /// All jobs still in the ledger have ended, and ended well.
    fn judge_jobs(&self, findings: &mut Findings) {
        let done: BTreeSet<&str> = self.hits.iter().map(|hit| hit.job.as_str()).collect();
        for job in self.jobs["jobs"].as_array().into_iter().flatten() {
            let (id, state) =
                (job["id"].as_str().unwrap_or_default(), job["state"].as_str().unwrap_or_default());
            if done.contains(id) && state != "succeeded" {
                findings.violations.push(format!("{id} was done and stands as {state}"));
            }
            if !done.contains(id) && state == "succeeded" {
                findings.violations.push(format!("{id} stands as succeeded and was never done"));
            }
        }
        if self.jobs["jobs"].as_array().is_none_or(Vec::is_empty) {
            findings.violations.push("the ledger shows no jobs".to_owned());
        }
    }
}

impl Findings {
    pub fn text(&self) -> String {
        let spread =
            |spread: &Spread| format!("p50 {} p99 {} max {} ms", spread.p50_ms, spread.p99_ms, spread.max_ms);
        let missed: Vec<String> =
            self.missed.iter().map(|(policy, count)| format!("{policy} {count}")).collect();
        let mut text = format!(
            "{}: {} schedules, {} leaders killed, {} checks done ({} again), {} due times judged\n\
             missed by policy    {}\n\
             kill to leader      {} (bound {} ms)\n\
             kill to first check {}\n\
             due to check        {}\n\
             refused as stale    {}\n\
             delivered twice     {} (done once)\n",
            self.engine,
            self.schedules,
            self.kills,
            self.checks,
            self.checks_again,
            self.due_times,
            missed.join(", "),
            spread(&self.failover),
            self.bound_ms,
            spread(&self.work_gap),
            spread(&self.lateness),
            self.stale_refused,
            self.duplicates_suppressed,
        );
        text.push_str(&self.queues.text());
        text.push_str("health told\n");
        self.told.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        match self.violations.len() {
            0 => text.push_str("no violations"),
            count => text.push_str(&format!("{count} VIOLATIONS")),
        }
        for violation in self.violations.iter().take(50) {
            text.push_str(&format!("\n  {violation}"));
        }
        text
    }
}

/// The parts of a set without a gap.
fn runs(dues: &BTreeSet<u64>) -> Vec<Vec<u64>> {
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for &due in dues {
        match runs.last_mut() {
            Some(run) if run.last() == Some(&(due - 1)) => run.push(due),
            Some(_) | None => runs.push(vec![due]),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
