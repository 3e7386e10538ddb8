//! Three nodes that run a command while they lead, and the faults aimed at the one that does.

use super::checks::Evidence;
use super::nodes::{self, Held, Node};
use super::signs_of_life::{Copy, EVERY_MS, Reader};
use super::{COMMAND, Kind, Plan, Round, SIGNS_OF_LIFE};
use crate::clock::boot_ms;
use crate::proxy::{Journal, Proxy, ProxyFault};
use crate::stall_watch::Stall;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The longest any step may take.
const PATIENCE_MS: u64 = 60_000;

/// How soon a step that needs no other node must happen; a delay is the tested node's fault.
const SOON_MS: u64 = 10_000;

/// How long the command must have run before each fault.
const CALM_MS: u64 = 400;

const NODES: [&str; 3] = ["pod-a", "pod-b", "pod-c"];

/// What a node logs when its leadership is over.
const OVER: &str = "NO LONGER LEADING";

/// What a node logs when it has found the others.
const JOINED: &str = "joined";

/// The node that runs the command.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    node: usize,
    keeper: i32,
    /// The command and its daemon.
    command: Vec<i32>,
    copy: Copy,
}

impl Lead {
    pub(super) fn name(&self) -> &'static str {
        NODES[self.node]
    }
}

pub(super) struct Scenario {
    plan: Plan,
    /// The database file, if the store is one.
    file: Option<PathBuf>,
    lease_ms: u64,
    signs: Reader,
    signs_file: PathBuf,
    nodes: Vec<Node>,
    /// One per node, if there is a network.
    proxies: Vec<Proxy>,
    /// Runs the proxies.
    _runtime: tokio::runtime::Runtime,
}

impl Drop for Scenario {
    /// Leaves nothing behind, whatever the tested binary left running.
    fn drop(&mut self) {
        self.nodes.clear();
        nodes::end_all(SIGNS_OF_LIFE, &self.signs_file);
    }
}

impl Scenario {
    pub(super) fn new(mut plan: Plan) -> Result<Scenario> {
        let file = plan.store.strip_prefix("sqlite:").map(|path| match path {
            "" => plan.dir.join("exec.db"),
            path => PathBuf::from(path),
        });
        if let Some(file) = &file {
            plan.store = format!("sqlite:{}", file.display());
        }
        // Few threads: the machine belongs to the nodes and the store.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let mut proxies = Vec::new();
        if !plan.endpoints.is_empty() {
            let journal = Journal::new(BufWriter::new(File::create(plan.dir.join("requests.jsonl"))?));
            for (number, name) in NODES.iter().enumerate() {
                let endpoint = &plan.endpoints[number % plan.endpoints.len()];
                let proxy = Proxy::start(name, endpoint, number as u64, journal.clone());
                proxies.push(runtime.block_on(proxy)?);
            }
        }
        let signs_file = plan.signs();
        // An earlier run that was killed leaves behind what was frozen at that moment, and nothing else.
        nodes::end_all(SIGNS_OF_LIFE, &signs_file);
        let signs = Reader::new(signs_file.clone());
        let lease_ms = lease_ms(&plan)?;
        let mut scenario = Scenario {
            plan,
            file,
            lease_ms,
            signs,
            signs_file,
            nodes: Vec::new(),
            proxies,
            _runtime: runtime,
        };
        for number in 0..NODES.len() {
            let node = scenario.start(number)?;
            scenario.nodes.push(node);
        }
        for number in 0..NODES.len() {
            scenario.until("a node has joined", |scenario| scenario.said(number, 0, JOINED))?;
        }
        Ok(scenario)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.plan.dir
    }

    pub(super) fn read_on(&mut self) -> Result<()> {
        self.signs.read_on()
    }

    pub(super) fn evidence<'a>(
        &'a self,
        rounds: &'a [Round],
        stalls: Vec<Stall>,
        left: &'a [i32],
    ) -> Evidence<'a> {
        Evidence { signs: &self.signs.signs, rounds, stalls, lease_ms: self.lease_ms, left }
    }

    fn start(&self, number: usize) -> Result<Node> {
        let (name, tenure) = (NODES[number], &self.plan.tenure);
        let mut command = Command::new(tenure);
        // Ties the node to our own life first: killing the judge kills the nodes.
        command.arg("bound").arg(format!("--parent={}", std::process::id())).arg("--").arg(tenure);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.plan.environment.iter().cloned());
        command.envs(self.proxies.get(number).map(|proxy| ("AWS_ENDPOINT_URL", proxy.url())));
        command.env("HOME", &self.plan.dir).env(SIGNS_OF_LIFE, &self.signs_file).current_dir(&self.plan.dir);
        command.args(["exec", "--startup-jitter-max", "0", "--stop-grace", "300ms"]);
        command.args(["--preset", &self.plan.preset, "--store", &self.plan.store, "--node", name]);
        command.args(["--", "sh", "-c", COMMAND, "sh"]).args(&self.plan.marker);
        Node::start(name, command, &self.log(number))
    }

    fn log(&self, number: usize) -> PathBuf {
        self.plan.dir.join(format!("{}.log", NODES[number]))
    }

    fn log_length(&self, number: usize) -> usize {
        std::fs::metadata(self.log(number)).map_or(0, |log| usize::try_from(log.len()).unwrap_or(0))
    }

    /// Whether a node has logged this since then.
    fn said(&self, number: usize, since: usize, words: &str) -> bool {
        let log = std::fs::read(self.log(number)).unwrap_or_default();
        String::from_utf8_lossy(log.get(since..).unwrap_or_default()).contains(words)
    }

    /// Starts a new process for a node that has ended; returns when it can take over.
    fn restart(&mut self, number: usize) -> Result<()> {
        let since = self.log_length(number);
        self.nodes[number] = self.start(number)?;
        self.until("a node is back", |scenario| scenario.said(number, since, JOINED))
    }

    /// Waits until a command and its daemon have run undisturbed for a moment, and returns the node they belong to.
    pub(super) fn calm(&mut self) -> Result<Lead> {
        let limit_ms = boot_ms() + PATIENCE_MS;
        while boot_ms() < limit_ms {
            if let Some(lead) = self.lead()? {
                std::thread::sleep(Duration::from_millis(CALM_MS));
                if self.lead()?.is_some_and(|again| again.copy == lead.copy) {
                    return Ok(lead);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("no command ran within {} s", PATIENCE_MS / 1000)
    }

    /// The node that runs the command now, by the last lines written.
    fn lead(&mut self) -> Result<Option<Lead>> {
        self.signs.read_on()?;
        let since_ms = boot_ms().saturating_sub(20 * EVERY_MS);
        // Lines are written in order, except for small delays of a writer.
        let late = self.signs.signs.iter().rev().take(200).filter(|sign| sign.at_ms >= since_ms);
        let late: Vec<_> = late.copied().collect();
        let Some(last) = late.iter().max_by_key(|sign| (sign.epoch, sign.at_ms)) else { return Ok(None) };
        let copy = last.copy();
        let Some(keeper) = nodes::parent(copy.run) else { return Ok(None) };
        let Some(tenure) = nodes::parent(keeper) else { return Ok(None) };
        let Some(node) = self.nodes.iter().position(|node| node.pid() == tenure) else { return Ok(None) };
        let command: BTreeSet<i32> =
            late.iter().filter(|sign| sign.copy() == copy).map(|sign| sign.pid).collect();
        let command: Vec<i32> = command.into_iter().collect();
        Ok((command.len() >= 2).then_some(Lead { node, keeper, command, copy }))
    }

    /// Plays one fault to its end.
    pub(super) fn play(&mut self, kind: Kind, lead: &Lead) -> Result<Round> {
        let mut round = Round {
            kind,
            node: lead.name(),
            copy: lead.copy,
            at_ms: boot_ms(),
            stood_ms: None,
            woken_ms: None,
            amiss: Vec::new(),
        };
        let tenure = self.nodes[lead.node].pid();
        match kind {
            Kind::Kill => {
                self.nodes[lead.node].signal(Signal::KILL)?;
                round.at_ms = boot_ms();
                self.successor(lead)?;
                self.restart(lead.node)?;
            }
            Kind::Pause => self.stand_still(&[tenure], lead, &mut round)?,
            Kind::Cut => self.cut(lead, &mut round)?,
            Kind::Stop => {
                self.nodes[lead.node].signal(Signal::TERM)?;
                let status = self.nodes[lead.node].wait(PATIENCE_MS)?;
                ensure!(status.success(), "{} ended with {status}", lead.name());
                if !alive(&lead.command).is_empty() {
                    round.amiss.push("it left before its command had ended".to_owned());
                }
                self.successor(lead)?;
                self.restart(lead.node)?;
            }
            Kind::Keeper => {
                nodes::signal_all(&[lead.keeper], Signal::KILL);
                round.at_ms = boot_ms();
                let at_ms = round.at_ms;
                self.until("another run of the command", |scenario| {
                    let mut lives = scenario.signs.lives.iter();
                    lives.any(|(copy, life)| *copy != lead.copy && life.first_ms >= at_ms)
                })?;
            }
            Kind::Freeze => {
                // The command is woken first, to give it the largest possible head start.
                let all = [&lead.command[..], &[lead.keeper, tenure]].concat();
                self.stand_still(&all, lead, &mut round)?;
                if !self.soon(|_| alive(&lead.command).is_empty())? {
                    round.amiss.push("what was woken was not ended".to_owned());
                }
            }
        }
        Ok(round)
    }

    /// Stops these processes, `tenure` last, for the length of the pause and until a successor runs; then resumes them, and waits
    /// until `tenure` has noticed that its time is over.
    fn stand_still(&mut self, pids: &[i32], lead: &Lead, round: &mut Round) -> Result<()> {
        {
            // Never in the middle of a write to a database: it would stay locked for everybody.
            let _held = self.file.as_ref().map(Held::take).transpose()?;
            nodes::stop_all(pids)?;
        }
        round.at_ms = boot_ms();
        self.successor(lead)?;
        let until_ms = round.at_ms + u64::try_from(self.plan.pause.as_millis()).unwrap_or(u64::MAX);
        while boot_ms() < until_ms {
            let ms = until_ms.saturating_sub(boot_ms()).min(200);
            std::thread::sleep(Duration::from_millis(ms));
            ensure!(pids.iter().all(|&pid| nodes::is_stopped(pid)), "somebody woke what was stopped");
        }
        ensure!(self.nodes[lead.node].lives()?, "{} did not survive its pause", lead.name());
        let since = self.log_length(lead.node);
        let woken_ms = boot_ms();
        round.stood_ms = Some(woken_ms - round.at_ms);
        round.woken_ms = (round.kind == Kind::Freeze).then_some(woken_ms);
        nodes::signal_all(pids, Signal::CONT);
        if !self.soon(|scenario| scenario.said(lead.node, since, OVER))? {
            round.amiss.push("it did not say that its leadership is over".to_owned());
        }
        ensure!(self.nodes[lead.node].lives()?, "{} did not survive its awakening", lead.name());
        Ok(())
    }

    /// Takes the store away from a node, or from all if there is no network, until it has noticed and a successor runs.
    fn cut(&mut self, lead: &Lead, round: &mut Round) -> Result<()> {
        let since = self.log_length(lead.node);
        let held = self.file.as_ref().map(Held::take).transpose()?;
        if let Some(proxy) = self.proxies.get(lead.node) {
            proxy.set(ProxyFault::Cut);
        }
        round.at_ms = boot_ms();
        if !self.soon(|scenario| scenario.said(lead.node, since, OVER))? {
            round.amiss.push("it did not say that its leadership is over".to_owned());
        }
        match held {
            None => self.successor(lead)?,
            // Nobody can succeed it; the store stays away until somebody could have.
            Some(held) => {
                let until_ms = round.at_ms + self.lease_ms * 5 / 2;
                std::thread::sleep(Duration::from_millis(until_ms.saturating_sub(boot_ms())));
                drop(held);
            }
        }
        if let Some(proxy) = self.proxies.get(lead.node) {
            proxy.set(ProxyFault::None);
        }
        self.successor(lead)
    }

    /// Waits for a command of a later epoch.
    fn successor(&mut self, lead: &Lead) -> Result<()> {
        let epoch = lead.copy.epoch;
        self.until("a successor runs", |scenario| scenario.signs.lives.keys().any(|copy| copy.epoch > epoch))
    }

    fn until(&mut self, what: &str, come: impl Fn(&Scenario) -> bool) -> Result<()> {
        let came = self.within(PATIENCE_MS, come)?;
        ensure!(
            came,
            "waited {} s in vain until {what}; see the logs in {}",
            PATIENCE_MS / 1000,
            self.plan.dir.display()
        );
        Ok(())
    }

    /// Whether it happens soon enough.
    fn soon(&mut self, come: impl Fn(&Scenario) -> bool) -> Result<bool> {
        self.within(SOON_MS, come)
    }

    fn within(&mut self, limit_ms: u64, come: impl Fn(&Scenario) -> bool) -> Result<bool> {
        let limit_ms = boot_ms() + limit_ms;
        loop {
            self.signs.read_on()?;
            if come(self) {
                return Ok(true);
            }
            if boot_ms() >= limit_ms {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets all nodes leave in order. Returns the processes they left behind.
    pub(super) fn leave(&mut self) -> Result<Vec<i32>> {
        self.calm()?;
        for node in &self.nodes {
            node.signal(Signal::TERM)?;
        }
        for node in &mut self.nodes {
            let status = node.wait(PATIENCE_MS)?;
            ensure!(status.success(), "{} ended with {status}", node.name);
        }
        Ok(nodes::with_variable(SIGNS_OF_LIFE, &self.signs_file))
    }
}

fn alive(pids: &[i32]) -> Vec<i32> {
    pids.iter().copied().filter(|&pid| nodes::parent(pid).is_some()).collect()
}

/// How long a leader may act after a renewal, according to the binary's own settings.
fn lease_ms(plan: &Plan) -> Result<u64> {
    let mut command = Command::new(&plan.tenure);
    command.env_clear().env("HOME", &plan.dir).args(["config", "show", "--resolved", "--json"]);
    command.args(["--preset", &plan.preset, "--store", &plan.store, "--node", NODES[0]]);
    let output = command.output().context("cannot start the binary")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tenure config show: {words}");
    let values: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    crate::runner::hold_ms(&values)
}
