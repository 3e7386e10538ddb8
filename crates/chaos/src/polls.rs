//! Polls on real processes: nodes and agents on a real store, a few dozen schedules due every second, and a leader that is killed
//! again and again. The judge goes by what arrives at the target of the checks: every due time, once.

mod agents;
mod history;
mod target;

pub use agents::Tally;
pub use history::{Findings, History, Kill, Policy};
pub use target::{Hit, Target};

use crate::clock::boot_ms;
use crate::cluster::{Cluster, Launch};
use crate::runner::promise;
use crate::stall_watch::StallWatch;
use agents::Agents;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A killed node stays away for this long, and until it is reported missing. With this presence interval, that happens within the
/// second figure on any machine.
const AWAY_MS: u64 = 12_000;
const MISSED_WITHIN_MS: u64 = 40_000;
const PRESENCE_INTERVAL_MS: u64 = 1000;

/// The longest any step may take.
const PATIENCE_MS: u64 = 60_000;

/// How soon the leader must have recorded what agents wrote.
const RECORDED_WITHIN_MS: u64 = 20_000;

/// How long everything gets to settle after the last kill.
const CALM_MS: u64 = 22_000;

#[derive(Clone, Debug)]
pub struct Plan {
    pub launch: Launch,
    /// The store's name, for the record.
    pub engine: String,
    /// Addresses of the store, spread over the processes; none if it is a file.
    pub endpoints: Vec<String>,
    pub nodes: usize,
    pub agents: usize,
    /// The number of schedules, each due every second.
    pub schedules: usize,
    pub length: Duration,
    pub kill_every: Duration,
    /// The directory of the record.
    pub dir: PathBuf,
}

impl Plan {
    fn endpoint(&self, number: usize) -> Option<String> {
        let count = self.endpoints.len().max(1);
        self.endpoints.get(number % count).cloned()
    }

    /// Runs the binary once and returns its output.
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command: Command = self.launch.command(&self.dir);
        command.args(arguments).args(self.launch.place());
        command.envs(self.endpoint(0).map(|endpoint| ("AWS_ENDPOINT_URL", endpoint)));
        let output = command.output().context("cannot start the binary")?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "tenure {}: {words}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The schedules as a file. Schedules are named after their policy.
fn file(schedules: usize, url: &str) -> String {
    let mut text = String::new();
    for number in 0..schedules {
        let policy = Policy::of(number);
        text.push_str(&format!(
            "- id: {}\n  every: 1s\n  misfire: {}\n  misfireThreshold: {}ms\n  overlap: allow\n  maxConcurrent: 50\n  \
             timeout: 20s\n  ttl: 60s\n  checks:\n    - {{name: hit, kind: http, url: '{url}', timeout: 10s}}\n",
            policy.schedule(number),
            policy.words(),
            policy.threshold_ms(),
        ));
    }
    text
}

pub fn run(mut plan: Plan, tell: &mut dyn FnMut(&str)) -> Result<Findings> {
    let presence = ("TENURE_PRESENCE_INTERVAL".to_owned(), PRESENCE_INTERVAL_MS.to_string());
    plan.launch.environment.push(presence);
    let promise = promise(&plan.launch, &plan.dir)?;
    let nodes = (0..plan.nodes).map(|number| {
        let endpoint = plan.endpoint(number).map(|endpoint| ("AWS_ENDPOINT_URL".to_owned(), endpoint));
        (format!("pod-{}", char::from(b'a' + (number % 26) as u8)), endpoint.into_iter().collect())
    });
    let mut cluster = Cluster::new(plan.launch.clone(), &plan.dir, nodes.collect())?;
    let (target, stall_watch) = (Target::start()?, StallWatch::start());
    for slot in 0..plan.nodes {
        cluster.start(slot, 0)?;
    }
    let together = cluster.wait(boot_ms() + PATIENCE_MS, |c| c.all_joined() && c.leader().is_some())?;
    ensure!(together, "the nodes did not come together within {} s", PATIENCE_MS / 1000);
    let path = plan.dir.join("polls.yaml");
    std::fs::write(&path, file(plan.schedules, &target.url()))?;
    plan.ask(&["apply", "-f", &path.display().to_string()])?;
    let endpoints: Vec<Option<String>> = (0..plan.agents).map(|number| plan.endpoint(number + 1)).collect();
    let agents = Agents::start(&plan.launch, &plan.dir, &endpoints)?;
    let running = cluster.wait(boot_ms() + PATIENCE_MS, |_| schedules_seen(&target) == plan.schedules)?;
    ensure!(running, "{} of {} schedules ran", schedules_seen(&target), plan.schedules);
    tell(&format!(
        "{} nodes, {} agents, {} schedules: all have run",
        plan.nodes, plan.agents, plan.schedules
    ));
    let began_ms = boot_ms();
    let kills = kill_over_and_over(&plan, &mut cluster, began_ms, tell)?;
    let calm_ms = boot_ms() + CALM_MS;
    cluster.wait(calm_ms, |_| false)?;
    if let Some(last) = kills.last() {
        let told = |c: &Cluster| is_told(c, "node_up", &last.node, last.back_ms);
        cluster.wait(calm_ms + PATIENCE_MS, told)?;
    }
    let ended_ms = boot_ms();
    let tally = agents.drain()?;
    let jobs = last_jobs(&plan, &mut cluster, &target)?;
    let events = cluster.history().to_vec();
    let (_, complaints, _) = cluster.finish()?;
    let history = History {
        engine: plan.engine.clone(),
        schedules: plan.schedules,
        began_ms,
        ended_ms,
        wall_ahead_ms: crate::runner::wall_ahead_ms(),
        bound_ms: promise.failover_ms(plan.nodes),
        away_ms: AWAY_MS,
        kills,
        hits: target.hits(),
        tally,
        jobs,
        complaints,
        stalls: stall_watch.finish(),
    };
    std::fs::write(plan.dir.join("history.json"), serde_json::to_vec(&history)?)?;
    Ok(history.judge(&events))
}

/// The jobs in the ledger, once the leader has recorded what the agents wrote when they left.
fn last_jobs(plan: &Plan, cluster: &mut Cluster, target: &Target) -> Result<Value> {
    let limit_ms = boot_ms() + RECORDED_WITHIN_MS;
    let done: BTreeSet<String> = target.hits().into_iter().map(|hit| hit.job).collect();
    loop {
        let said = plan.ask(&["job", "ls", "--json", "--limit", "1000"])?;
        let jobs: Value = serde_json::from_str(&said).context("tenure job ls")?;
        let open =
            |job: &&Value| job["open"] == true && job["id"].as_str().is_some_and(|id| done.contains(id));
        let open = jobs["jobs"].as_array().into_iter().flatten().filter(open).count();
        if open == 0 || boot_ms() >= limit_ms {
            return Ok(jobs);
        }
        cluster.wait(boot_ms() + 500, |_| false)?;
    }
}

fn schedules_seen(target: &Target) -> usize {
    let hits = target.hits();
    hits.iter().filter_map(|hit| Some(hit.due()?.0)).collect::<BTreeSet<&str>>().len()
}

fn is_told(cluster: &Cluster, name: &str, node: &str, from_ms: u64) -> bool {
    let since = cluster.history().iter().rev().take_while(|said| said.boot_ms() + PATIENCE_MS > from_ms);
    since
        .filter(|said| said.boot_ms() >= from_ms)
        .any(|said| said.name() == name && said.text("subject") == node)
}

fn kill_over_and_over(
    plan: &Plan,
    cluster: &mut Cluster,
    began_ms: u64,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Kill>> {
    let (every_ms, length_ms) = (ms(plan.kill_every), ms(plan.length));
    let mut kills = Vec::new();
    for round in 1.. {
        let at_ms = began_ms + round * every_ms;
        if at_ms > began_ms + length_ms {
            break;
        }
        cluster.wait(at_ms, |_| false)?;
        // If nobody leads at the moment, wait for the next leader.
        if !cluster.wait(boot_ms() + PATIENCE_MS, |c| c.leader().is_some())? {
            bail!("nobody led within {} s", PATIENCE_MS / 1000);
        }
        let Some((slot, _, epoch, _)) = cluster.leader() else { bail!("the leader is gone") };
        let node = cluster.name(slot).to_owned();
        let killed_ms = cluster.signal(slot, Signal::KILL);
        let next = |c: &Cluster| c.leader().is_some_and(|(_, _, now, _)| now > epoch);
        if !cluster.wait(killed_ms + PATIENCE_MS, next)? {
            bail!("nobody led within {} s after {node} was killed", PATIENCE_MS / 1000);
        }
        tell(&format!(
            "{:>4} s  {node} killed in epoch {epoch}, another leads",
            (killed_ms - began_ms) / 1000
        ));
        cluster.wait(killed_ms + AWAY_MS, |_| false)?;
        cluster.wait(killed_ms + MISSED_WITHIN_MS, |c| is_told(c, "node_down", &node, killed_ms))?;
        let back_ms = boot_ms();
        cluster.start(slot, 0)?;
        kills.push(Kill { node, epoch, killed_ms, back_ms });
    }
    Ok(kills)
}
