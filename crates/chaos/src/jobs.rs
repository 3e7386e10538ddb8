//! Jobs on real processes: nodes and agents on a real store, a few dozen schedules due every second, and jobs that are submitted to
//! queues all the while, as leaders and agents are killed again and again. The judge goes by what arrives at the target of the
//! jobs: every due time once, and every job until it has its one result.

mod agents;
mod history;
mod kills;
mod ledger;
mod queues;
mod submit;
mod target;

pub use agents::Tally;
pub use history::{Findings, History, Kill, Policy};
pub use kills::AgentKill;
pub use ledger::{Standing, Standings};
pub use queues::{QueueFindings, Queues};
pub use submit::{Answers, Submission};
pub use target::{Hit, Run, Target};

use crate::clock::boot_ms;
use crate::cluster::{Cluster, Launch};
use crate::runner::promise;
use crate::stall_watch::StallWatch;
use agents::Agents;
use anyhow::{Context, Result, bail, ensure};
use kills::{AWAY_MS, Kills};
use ledger::LedgerWatch;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;
use submit::{SUBMITTERS, Submitter};
use target::LIMITED;

/// Nodes are missed, and agents called silent, sooner than by default, so that a run of a minute shows both.
const SETTINGS: [(&str, u64); 4] = [
    ("TENURE_PRESENCE_INTERVAL", 1000),
    ("TENURE_WORKER_HEARTBEAT_INTERVAL", 1000),
    ("TENURE_WORKER_TIMEOUT", 6000),
    ("TENURE_WORKER_SWEEP_INTERVAL", 1000),
];

/// The longest any step may take.
const PATIENCE_MS: u64 = 60_000;

/// How soon the leader must have recorded what agents wrote.
const RECORDED_WITHIN_MS: u64 = 20_000;

/// How long everything gets to settle after the last kill.
const CALM_MS: u64 = 22_000;

/// How long the queues get to drain after that.
const DRAINED_WITHIN_MS: u64 = 180_000;

/// How many jobs of the limited queue may run at once.
const LIMIT: usize = 4;

/// The nodes serve HTTP from here on: below the ports the kernel gives to connections, which could take that of a node while it is
/// away.
const PORTS: std::ops::Range<u16> = 18_000..32_000;

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
    /// The number of jobs submitted beside them.
    pub jobs: usize,
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
    let token = format!("chaos-{:032x}", rand::random::<u128>());
    plan.launch.environment.extend(SETTINGS.map(|(name, value)| (name.to_owned(), value.to_string())));
    plan.launch.environment.push(("TENURE_HTTP_TOKEN".to_owned(), token.clone()));
    let promise = promise(&plan.launch, &plan.dir)?;
    let nodes = (0..plan.nodes).map(|number| {
        let endpoint = plan.endpoint(number).map(|endpoint| ("AWS_ENDPOINT_URL".to_owned(), endpoint));
        (format!("pod-{}", char::from(b'a' + (number % 26) as u8)), endpoint.into_iter().collect())
    });
    let mut cluster = Cluster::new(plan.launch.clone(), &plan.dir, nodes.collect())?;
    let (target, stall_watch) = (Target::start()?, StallWatch::start());
    let addresses = free_addresses(plan.nodes)?;
    for (slot, address) in addresses.iter().enumerate() {
        cluster.listen(slot, *address);
        cluster.start(slot, 0)?;
    }
    let together = cluster.wait(boot_ms() + PATIENCE_MS, |c| c.all_joined() && c.leader().is_some())?;
    ensure!(together, "the nodes did not come together within {} s", PATIENCE_MS / 1000);
    plan.ask(&["queue", "set", LIMITED, "--concurrency", &LIMIT.to_string()])?;
    let path = plan.dir.join("schedules.yaml");
    std::fs::write(&path, file(plan.schedules, &target.url()))?;
    plan.ask(&["apply", "-f", &path.display().to_string()])?;
    let endpoints: Vec<Option<String>> = (0..plan.agents).map(|number| plan.endpoint(number + 1)).collect();
    let mut agents = Agents::start(&plan.launch, &plan.dir, &endpoints)?;
    let running = cluster.wait(boot_ms() + PATIENCE_MS, |_| schedules_seen(&target) == plan.schedules)?;
    ensure!(running, "{} of {} schedules ran", schedules_seen(&target), plan.schedules);
    tell(&format!(
        "{} nodes, {} agents, {} schedules: all have run; {} jobs to submit",
        plan.nodes, plan.agents, plan.schedules, plan.jobs
    ));
    let began_ms = boot_ms();
    let ledger_watch = LedgerWatch::start(&plan);
    let submitters = submitters(&plan, &addresses, &token, began_ms, &target);
    let mut all = Kills::new(&plan, began_ms);
    all.play(&mut cluster, &mut agents, tell)?;
    let Kills { nodes: kills, agents: agent_kills, .. } = all;
    let calm_ms = boot_ms() + CALM_MS;
    cluster.wait(calm_ms, |_| false)?;
    if let Some(last) = kills.last() {
        let told = |c: &Cluster| is_told(c, "node_up", &last.node, last.back_ms);
        cluster.wait(calm_ms + PATIENCE_MS, told)?;
    }
    cluster.wait(boot_ms() + DRAINED_WITHIN_MS, |_| ledger_watch.count_over() == plan.jobs)?;
    let ended_ms = boot_ms();
    let (tally, idle) = agents.drain()?;
    let jobs = last_jobs(&plan, &mut cluster, &target)?;
    let queues = queues(&plan, submitters, ledger_watch, &target)?;
    let events = cluster.history().to_vec();
    let (_, mut complaints, _) = cluster.finish()?;
    complaints.extend(idle);
    let history = History {
        engine: plan.engine.clone(),
        schedules: plan.schedules,
        began_ms,
        ended_ms,
        wall_ahead_ms: crate::runner::wall_ahead_ms(),
        bound_ms: promise.failover_ms(plan.nodes),
        away_ms: AWAY_MS,
        kills,
        agent_kills,
        hits: target.hits(),
        tally,
        jobs,
        queues,
        complaints,
        stalls: stall_watch.finish(),
    };
    std::fs::write(plan.dir.join("history.json"), serde_json::to_vec(&history)?)?;
    Ok(history.judge(&events))
}

fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    // Those of another run on this machine begin elsewhere, most likely.
    let first = PORTS.start + rand::random_range(0..PORTS.end - PORTS.start);
    let ports = (first..PORTS.end).chain(PORTS.start..first);
    let addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let free: Vec<SocketAddr> =
        addresses.filter(|address| TcpListener::bind(address).is_ok()).take(count).collect();
    ensure!(free.len() == count, "no free ports for the nodes");
    Ok(free)
}

type Submitting = JoinHandle<(Vec<Submission>, Answers)>;

fn submitters(
    plan: &Plan,
    nodes: &[SocketAddr],
    token: &str,
    began_ms: u64,
    target: &Target,
) -> Vec<Submitting> {
    let share = |number| plan.jobs / SUBMITTERS + usize::from(number < plan.jobs % SUBMITTERS);
    let submitter = |number| Submitter {
        number,
        nodes: nodes.to_vec(),
        token: token.to_owned(),
        jobs: share(number),
        began_ms,
        length: plan.length,
        patience: Duration::from_millis(PATIENCE_MS),
    };
    (0..SUBMITTERS).map(|number| submitter(number).start(target)).collect()
}

/// All about the jobs that were submitted.
fn queues(
    plan: &Plan,
    submitting: Vec<Submitting>,
    ledger_watch: LedgerWatch,
    target: &Target,
) -> Result<Queues> {
    let mut queues = Queues { limit: LIMIT, ..Queues::default() };
    for submitter in submitting {
        let Ok((jobs, answers)) = submitter.join() else { bail!("a submitter panicked") };
        queues.submissions.extend(jobs);
        for (answer, count) in answers {
            *queues.answers.entry(answer).or_default() += count;
        }
    }
    let ids: Vec<String> = queues.submissions.iter().map(|job| job.id.clone()).collect();
    let (standings, failure) = ledger_watch.finish(plan, &ids);
    if let Some(failure) = failure {
        // What was not seen for that reason is asked for at the end; what cannot be found then is a violation.
        std::fs::write(plan.dir.join("logs/job-ls.log"), failure)?;
    }
    (queues.standings, queues.runs) = (standings, target.runs());
    Ok(queues)
}

/// The jobs of schedules in the ledger, once the leader has recorded what the agents wrote when they left.
fn last_jobs(plan: &Plan, cluster: &mut Cluster, target: &Target) -> Result<Value> {
    let limit_ms = boot_ms() + RECORDED_WITHIN_MS;
    let done: BTreeSet<String> = target.hits().into_iter().map(|hit| hit.job).collect();
    loop {
        let said = plan.ask(&["job", "ls", "--kind", "checks", "--json", "--limit", "1000"])?;
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
