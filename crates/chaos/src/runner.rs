//! Carries out a schedule and leaves a record.

use crate::clock::boot_ms;
use crate::cluster::{Cluster, Launch};
use crate::leadership;
use crate::proxy::{Journal, Proxy, ProxyFault};
use crate::record::{self, FaultRecord, Incumbent, Promise, RoundRecord, Run};
use crate::schedule::{Fault, Kind, Means, Pace, Round, Schedule, Target};
use crate::stall_watch::StallWatch;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure_rig::engine::Site;

/// Some node must lead again by then, whatever else is wrong with the machine.
const PATIENCE_MS: u64 = 60_000;

pub struct Plan<'a> {
    pub launch: Launch,
    /// The store's name, for the record.
    pub engine: String,
    /// The store's addresses, spread over the nodes. Empty: there is no network.
    pub endpoints: Vec<String>,
    /// The database file, if the store is one.
    pub file: Option<PathBuf>,
    /// The store, if it survives a restart.
    pub restarts: Option<&'a mut Site>,
    pub nodes: usize,
    pub seed: u64,
    pub length: Duration,
    /// The directory of the record.
    pub dir: PathBuf,
    /// What has already been left out, and why.
    pub notices: Vec<String>,
    /// Only these faults, all of them aimed at the leader; empty: all that are possible.
    pub only: Vec<Kind>,
    /// The binary is broken on purpose: the run ends once its events show it.
    pub until_caught: bool,
}

/// Runs the plan; `tell` gets a line for everything that happens.
pub fn run(mut plan: Plan<'_>, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let promise = promise(&plan.launch, &plan.dir)?;
    // Few threads: the machine belongs to the nodes and the store.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let journal = Journal::new(BufWriter::new(File::create(plan.dir.join("requests.jsonl"))?));
    let (mut proxies, mut nodes) = (Vec::new(), Vec::new());
    for number in 0..plan.nodes {
        let name = format!("pod-{}", char::from(b'a' + u8::try_from(number).context("at most 26 nodes")?));
        let mut environment = Vec::new();
        if !plan.endpoints.is_empty() {
            let endpoint = &plan.endpoints[number % plan.endpoints.len()];
            let seed = plan.seed.wrapping_mul(31).wrapping_add(number as u64);
            let proxy = runtime.block_on(Proxy::start(&name, endpoint, seed, journal.clone()))?;
            environment.push(("AWS_ENDPOINT_URL".to_owned(), proxy.url()));
            proxies.push(proxy);
        }
        nodes.push((name, environment));
    }
    let means = Means {
        network: !proxies.is_empty(),
        restart: plan.restarts.is_some(),
        file: plan.file.is_some(),
        faketime: plan.launch.faketime.is_some(),
    };
    let pace = Pace { lease_ms: promise.lease_ms, failover_ms: promise.failover_bound_ms };
    let cluster = Cluster::new(plan.launch.clone(), &plan.dir, nodes)?;
    let mut run = Run {
        seed: plan.seed,
        engine: plan.engine.clone(),
        nodes: plan.nodes,
        preset: plan.launch.preset.clone(),
        promise: promise.clone(),
        began_ms: boot_ms(),
        ended_ms: 0,
        wall_ahead_ms: wall_ahead_ms(),
        notices: std::mem::take(&mut plan.notices),
        complaints: Vec::new(),
    };
    let stall_watch = StallWatch::start();
    let mut runner = Runner { plan, promise, proxies, cluster, rounds: Vec::new(), tell };
    let only = std::mem::take(&mut runner.plan.only);
    let outcome = runner.play(Schedule::new(run.seed, means, pace).only(only));
    let Runner { plan, proxies, cluster, rounds, .. } = runner;
    let (lives, complaints, refused) = cluster.finish()?;
    wait_for_the_last_request(&proxies);
    journal.flush()?;
    run.ended_ms = boot_ms();
    run.complaints = complaints;
    if refused > 0 {
        run.notices.push(format!("{refused} processes were refused by a starting store and started again"));
    }
    record::save(&plan.dir, "rounds.jsonl", &rounds)?;
    record::save(&plan.dir, "lives.jsonl", &lives)?;
    record::save(&plan.dir, "stalls.jsonl", &stall_watch.finish())?;
    std::fs::write(plan.dir.join("run.json"), serde_json::to_vec_pretty(&run)?)?;
    outcome
}

/// How far the wall clock is ahead of the boot-time clock.
pub(crate) fn wall_ahead_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(0).saturating_sub(boot_ms())
}

fn wait_for_the_last_request(proxies: &[Proxy]) {
    for proxy in proxies {
        proxy.set(ProxyFault::None);
    }
    let limit_ms = boot_ms() + 30_000;
    while proxies.iter().any(|proxy| proxy.under_way() > 0) && boot_ms() < limit_ms {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The settings as the binary reports them.
pub(crate) fn promise(launch: &Launch, dir: &std::path::Path) -> Result<Promise> {
    let ask = |arguments: &[&str]| -> Result<String> {
        let output = launch.command(dir).arg("config").args(arguments).args(launch.settings()).output()?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "tenure config {}: {words}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let values: serde_json::Value = serde_json::from_str(&ask(&["show", "--resolved", "--json"])?)?;
    let number = |name: &str| {
        values[name]["value"].as_u64().with_context(|| format!("no number {name} in tenure config show"))
    };
    let check = ask(&["check"])?;
    let bound = check.split_whitespace().rev().find_map(|word| word.parse().ok());
    Ok(Promise {
        heartbeat_ms: number("heartbeatInterval")?,
        lease_ms: hold_ms(&values)?,
        request_timeout_ms: number("requestTimeout")?,
        election_interval_ms: number("electionInterval")?,
        settle_ms: number("electionSettle")?,
        drain_ms: number("drainTimeout")?,
        failover_bound_ms: bound.context("no bound in tenure config check")?,
    })
}

/// How long a leader may act after a renewal, according to `tenure config show --resolved --json`.
pub(crate) fn hold_ms(values: &serde_json::Value) -> Result<u64> {
    let unit_ms =
        values["leaseTimeout"]["value"].as_u64().context("no leaseTimeout in tenure config show")?;
    let factor = values["leaseHoldFactor"]["value"].as_f64();
    let factor = factor.context("no leaseHoldFactor in tenure config show")?;
    Ok((unit_ms as f64 * factor) as u64)
}

struct Runner<'a> {
    plan: Plan<'a>,
    promise: Promise,
    proxies: Vec<Proxy>,
    cluster: Cluster,
    rounds: Vec<RoundRecord>,
    tell: &'a mut dyn FnMut(&str),
}

/// A fault that has begun.
struct Open {
    fault: Fault,
    slot: Option<usize>,
    until_ms: u64,
    index: usize,
    lock: Option<rusqlite::Connection>,
}

impl Runner<'_> {
    fn play(&mut self, schedule: Schedule) -> Result<()> {
        let began_ms = boot_ms();
        let end_ms = began_ms + u64::try_from(self.plan.length.as_millis()).unwrap_or(u64::MAX);
        for slot in 0..self.plan.nodes {
            self.cluster.start(slot, 0)?;
        }
        if !self
            .cluster
            .wait(began_ms + PATIENCE_MS, |cluster| cluster.all_joined() && cluster.leader().is_some())?
        {
            bail!("the nodes did not come together within {} s", PATIENCE_MS / 1000);
        }
        for (number, round) in schedule.enumerate() {
            if boot_ms() >= end_ms {
                break;
            }
            let played = self.round(number, &round)?;
            let line = self.describe(&played, began_ms);
            (self.tell)(&line);
            let nobody = played.settled_ms.is_none();
            self.rounds.push(played);
            if self.plan.until_caught && leadership::check(self.cluster.history()).is_err() {
                break;
            }
            if nobody {
                bail!("nobody led within {} s after everything was mended", PATIENCE_MS / 1000);
            }
        }
        Ok(())
    }

    fn round(&mut self, number: usize, round: &Round) -> Result<RoundRecord> {
        let rest_until_ms = boot_ms() + round.rest_ms;
        self.cluster.wait(rest_until_ms, |_| false)?;
        let leader = self.cluster.leader();
        let incumbent = leader.map(|(slot, life, epoch, _)| Incumbent {
            node: self.cluster.name(slot).to_owned(),
            life,
            epoch,
        });
        let mut played =
            RoundRecord { number, leader: incumbent, faults: Vec::new(), healed_ms: 0, settled_ms: None };
        let start_ms = boot_ms();
        let mut waiting: Vec<&Fault> = round.faults.iter().collect();
        let mut open: Vec<Open> = Vec::new();
        while !waiting.is_empty() || !open.is_empty() {
            let now_ms = boot_ms();
            if let Some(index) = waiting.iter().position(|fault| start_ms + fault.after_ms <= now_ms) {
                let fault = *waiting.remove(index);
                open.extend(self.begin(fault, &open, &mut played)?);
            } else if let Some(index) = open.iter().position(|fault| fault.until_ms <= now_ms) {
                let over = open.remove(index);
                let index = over.index;
                self.end(over)?;
                played.faults[index].ended_ms = boot_ms();
            } else {
                let begins = waiting.iter().map(|fault| start_ms + fault.after_ms);
                let next_ms = begins.chain(open.iter().map(|fault| fault.until_ms)).min().unwrap_or(now_ms);
                self.cluster.wait(next_ms, |_| false)?;
            }
        }
        let healed_ms = boot_ms();
        played.healed_ms = healed_ms;
        let settled = self.cluster.wait(healed_ms + PATIENCE_MS, |cluster| {
            cluster.leader().is_some_and(|(_, _, _, renewed_ms)| renewed_ms >= healed_ms)
        })?;
        played.settled_ms = settled.then(boot_ms);
        // The next round should find every node there; one that has not joined by then must cope.
        self.cluster.wait(boot_ms() + 5 * self.promise.lease_ms, Cluster::all_joined)?;
        Ok(played)
    }

    fn begin(&mut self, fault: Fault, open: &[Open], played: &mut RoundRecord) -> Result<Option<Open>> {
        let slot = if fault.kind.is_everybodys() { None } else { Some(self.choose(fault.target, open)) };
        let leader = self.cluster.leader().map(|(slot, ..)| slot);
        let index = played.faults.len();
        played.faults.push(FaultRecord {
            kind: fault.kind,
            node: slot.map(|slot| self.cluster.name(slot).to_owned()),
            hit_leader: slot.is_none() || slot == leader,
            begun_ms: boot_ms(),
            ended_ms: 0,
        });
        let mut lock = None;
        match (fault.kind, slot) {
            (Kind::Crash | Kind::Skew, Some(slot)) => {
                self.cluster.signal(slot, Signal::KILL);
            }
            (Kind::Stop, Some(slot)) => {
                self.cluster.signal(slot, Signal::TERM);
            }
            (Kind::Pause, Some(slot)) => {
                self.cluster.signal(slot, Signal::STOP);
            }
            (Kind::StoreRestart, _) => {
                let store = self.plan.restarts.as_mut().context("a store that can be restarted")?;
                store.pause()?;
                std::thread::sleep(Duration::from_millis(fault.hold_ms));
                store.resume()?;
            }
            (Kind::StoreHeld, _) => {
                let file = self.plan.file.as_ref().context("a store that is a file")?;
                let connection = rusqlite::Connection::open(file)?;
                connection.busy_timeout(Duration::from_millis(PATIENCE_MS))?;
                connection.execute_batch("BEGIN EXCLUSIVE")?;
                lock = Some(connection);
            }
            (_, Some(slot)) => {
                let proxy_fault = fault.proxy_fault(self.promise.lease_ms).context("a fault of the way")?;
                self.proxies[slot].set(proxy_fault);
            }
            (_, None) => {
                self.everywhere(fault.proxy_fault(self.promise.lease_ms).context("a fault of the way")?)
            }
        }
        let hold_ms = if fault.kind == Kind::StoreRestart { 0 } else { fault.hold_ms };
        let until_ms = boot_ms() + hold_ms;
        Ok(Some(Open { fault, slot, until_ms, index, lock }))
    }

    fn end(&mut self, over: Open) -> Result<()> {
        match (over.fault.kind, over.slot) {
            (Kind::Crash | Kind::Skew | Kind::Stop, Some(slot)) => {
                if !self.cluster.wait(boot_ms() + PATIENCE_MS, |cluster| !cluster.is_running(slot))? {
                    bail!("{} did not end within {} s", self.cluster.name(slot), PATIENCE_MS / 1000);
                }
                let skew_s = if over.fault.kind == Kind::Skew { over.fault.skew_s } else { 0 };
                self.cluster.start(slot, skew_s)?;
            }
            (Kind::Pause, Some(slot)) => {
                self.cluster.signal(slot, Signal::CONT);
            }
            (Kind::StoreRestart, _) => {}
            (Kind::StoreHeld, _) => {
                if let Some(lock) = over.lock {
                    lock.execute_batch("ROLLBACK")?;
                }
            }
            (_, Some(slot)) => self.proxies[slot].set(ProxyFault::None),
            (_, None) => self.everywhere(ProxyFault::None),
        }
        Ok(())
    }

    fn everywhere(&self, fault: ProxyFault) {
        self.proxies.iter().for_each(|proxy| proxy.set(fault));
    }

    /// The node to hit: never one that is already in trouble.
    fn choose(&self, target: Target, open: &[Open]) -> usize {
        let leader = self.cluster.leader().map(|(slot, ..)| slot);
        let is_free = |slot: &usize| open.iter().all(|fault| fault.slot != Some(*slot));
        match (target, leader.filter(is_free)) {
            (Target::Leader, Some(leader)) => leader,
            (Target::Leader | Target::Standby(_), _) => {
                let number = if let Target::Standby(number) = target { number } else { 0 };
                let others: Vec<usize> =
                    (0..self.cluster.size()).filter(|slot| is_free(slot) && leader != Some(*slot)).collect();
                others[number % others.len()]
            }
        }
    }

    fn describe(&self, played: &RoundRecord, began_ms: u64) -> String {
        let faults: Vec<String> = played
            .faults
            .iter()
            .map(|fault| {
                let whom = fault.node.as_deref().unwrap_or("all");
                let star = if fault.hit_leader { "*" } else { "" };
                let hold_ms = fault.ended_ms - fault.begun_ms;
                format!("{} {whom}{star} {:.1} s", fault.kind.name(), hold_ms as f64 / 1000.0)
            })
            .collect();
        let now = self.cluster.leader();
        let before = played.leader.as_ref().map(|leader| leader.epoch);
        let outcome = match now {
            Some((_, _, epoch, _)) if Some(epoch) == before => "kept office".to_owned(),
            Some((slot, _, epoch, _)) => format!("{} leads in epoch {epoch}", self.cluster.name(slot)),
            None => "nobody leads".to_owned(),
        };
        let at_s = (boot_ms() - began_ms) / 1000;
        format!("{:>4} s  round {:>3}  {}  ->  {outcome}", at_s, played.number + 1, faults.join(" + "))
    }
}
