//! `tenure exec` from outside: three nodes, a command that writes down that it is alive, and faults at whoever runs it.
//! What is judged is what the commands wrote: never two alive at one instant.
//!
//! The command is as unwilling as a command can be: it ignores SIGTERM, and it has a daemon that left its session and its
//! parent, which ignores it too and writes as well.

pub mod crew;
pub mod marks;
mod verdict;

pub use verdict::{Figures, Verdict};

use crate::clock::boot_ms;
use anyhow::{Context, Result, bail, ensure};
use crew::{Held, Node};
use marks::Mark;
use rustix::process::Signal;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Nothing takes longer to come about.
const PATIENCE_MS: u64 = 60_000;

/// Before each fault the command has run for so long.
const CALM_MS: u64 = 400;

/// How long the store is away: two and a half leases of the preset `fast`.
const AWAY_MS: u64 = 2500;

/// A paused node goes on so much later than its successor.
const PAUSED_ON_MS: u64 = 1500;

/// The variable that tells the command where to write.
pub const MARKS: &str = "MARKS";

/// What is done to whoever runs the command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// `tenure` is killed (kill -9).
    Kill,
    /// `tenure` is stopped (SIGSTOP) and goes on long after its successor; its keeper is not.
    Pause,
    /// The store is away for all nodes.
    Cut,
    /// `tenure` is told to leave (SIGTERM).
    Stop,
    /// The keeper is killed, and `tenure` has to notice: the same epoch goes on.
    Keeper,
    /// `tenure`, keeper and command are stopped together: nothing on this machine can help.
    Freeze,
}

impl Kind {
    /// All of them, in the order they are played.
    pub const ALL: [Kind; 6] = [Kind::Kill, Kind::Pause, Kind::Cut, Kind::Stop, Kind::Keeper, Kind::Freeze];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "tenure killed",
            Kind::Pause => "tenure stopped",
            Kind::Cut => "store cut off",
            Kind::Stop => "tenure told to leave",
            Kind::Keeper => "keeper killed",
            Kind::Freeze => "all frozen together",
        }
    }
}

/// What is to be played.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary `tenure`.
    pub tenure: PathBuf,
    /// A command that writes marks into the file named by `MARKS`; with `daemon` as one more word it leaves its session
    /// first.
    pub marker: Vec<String>,
    /// The faults, in order.
    pub rounds: Vec<Kind>,
    /// Where everything goes.
    pub dir: PathBuf,
}

impl Plan {
    /// The faults in turn, so many of them.
    pub fn rounds(count: usize) -> Vec<Kind> {
        Kind::ALL.into_iter().cycle().take(count).collect()
    }
}

/// One fault, and what came of it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// What was done.
    pub kind: Kind,
    /// In which epoch.
    pub epoch: u64,
    /// When.
    pub at_ms: u64,
    /// When the frozen were let go.
    pub woken_ms: Option<u64>,
}

const NODES: [&str; 3] = ["pod-a", "pod-b", "pod-c"];

/// Both words ignore SIGTERM; the second has no parent and no session in common with the first.
const COMMAND: &str = r#"trap "" TERM; ("$@" daemon &); exec "$@""#;

struct Stage {
    plan: Plan,
    database: PathBuf,
    marks: PathBuf,
    nodes: Vec<Node>,
}

/// Whoever runs the command.
#[derive(Clone, Debug)]
struct Lead {
    node: usize,
    keeper: i32,
    /// All below the keeper.
    command: Vec<i32>,
    epoch: u64,
}

/// Plays it, and judges what the commands wrote.
pub fn run(plan: Plan, tell: &mut dyn FnMut(&str)) -> Result<Verdict> {
    let (database, marks) = (plan.dir.join("exec.db"), plan.dir.join("marks"));
    let mut stage = Stage { plan, database, marks, nodes: Vec::new() };
    for name in NODES {
        let node = stage.start(name)?;
        stage.nodes.push(node);
    }
    let mut rounds = Vec::new();
    for (number, kind) in stage.plan.rounds.clone().into_iter().enumerate() {
        let lead = stage.calm()?;
        let round = stage.play(kind, &lead)?;
        tell(&format!(
            "round {:>3}: {} ({}, epoch {})",
            number + 1,
            kind.name(),
            NODES[lead.node],
            lead.epoch
        ));
        rounds.push(round);
    }
    stage.calm()?;
    for node in &stage.nodes {
        node.signal(Signal::TERM)?;
    }
    for node in &mut stage.nodes {
        let status = node.wait(PATIENCE_MS)?;
        ensure!(status.success(), "{} ended with {status}", node.name);
    }
    let marks = marks::read(&stage.marks)?;
    std::fs::write(stage.plan.dir.join("rounds.json"), serde_json::to_vec(&rounds)?)?;
    Ok(verdict::judge(&marks, &rounds))
}

impl Stage {
    fn start(&self, name: &str) -> Result<Node> {
        let mut command = Command::new(&self.plan.tenure);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.plan.dir).env(MARKS, &self.marks).current_dir(&self.plan.dir);
        command.args(["exec", "--preset", "fast", "--startup-jitter-max", "0", "--stop-grace", "300ms"]);
        command.arg(format!("--store=sqlite:{}", self.database.display())).args(["--node", name]);
        command.args(["--", "sh", "-c", COMMAND, "sh"]).args(&self.plan.marker);
        Node::start(name, command, &self.plan.dir.join(format!("{name}.log")))
    }

    /// Waits until a command and its daemon have run undisturbed for a moment, and says whose they are.
    fn calm(&mut self) -> Result<Lead> {
        let limit_ms = boot_ms() + PATIENCE_MS;
        while boot_ms() < limit_ms {
            if let Some(lead) = self.lead()? {
                std::thread::sleep(Duration::from_millis(CALM_MS));
                let again = self.lead()?;
                if again.is_some_and(|again| again.epoch == lead.epoch && again.keeper == lead.keeper) {
                    return Ok(lead);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("no command ran within {} s", PATIENCE_MS / 1000)
    }

    /// Whoever runs the command now, by what it last wrote.
    fn lead(&mut self) -> Result<Option<Lead>> {
        let marks = marks::read(&self.marks)?;
        let Some(last) = marks.iter().max_by_key(|mark| (mark.epoch, mark.at_ms)) else { return Ok(None) };
        if boot_ms().saturating_sub(last.at_ms) > 20 * marks::EVERY_MS {
            return Ok(None);
        }
        let Some(keeper) = crew::parent(last.pid) else { return Ok(None) };
        let Some(tenure) = crew::parent(keeper) else { return Ok(None) };
        let Some(node) = self.nodes.iter().position(|node| node.pid() == tenure) else { return Ok(None) };
        let command = crew::below(keeper);
        // The command and its daemon.
        Ok((command.len() >= 2).then_some(Lead { node, keeper, command, epoch: last.epoch }))
    }

    fn play(&mut self, kind: Kind, lead: &Lead) -> Result<Round> {
        let node = lead.node;
        let mut round = Round { kind, epoch: lead.epoch, at_ms: boot_ms(), woken_ms: None };
        match kind {
            Kind::Kill => {
                self.nodes[node].signal(Signal::KILL)?;
                self.successor(lead.epoch)?;
                self.nodes[node] = self.start(NODES[node])?;
            }
            Kind::Pause => {
                self.stop_still(&[self.nodes[node].pid()])?;
                self.successor(lead.epoch)?;
                std::thread::sleep(Duration::from_millis(PAUSED_ON_MS));
                self.nodes[node].signal(Signal::CONT)?;
                ensure!(self.nodes[node].lives()?, "{} did not survive its pause", NODES[node]);
            }
            Kind::Cut => {
                let held = Held::take(&self.database)?;
                round.at_ms = boot_ms();
                std::thread::sleep(Duration::from_millis(AWAY_MS));
                drop(held);
                self.successor(lead.epoch)?;
            }
            Kind::Stop => {
                self.nodes[node].signal(Signal::TERM)?;
                let status = self.nodes[node].wait(PATIENCE_MS)?;
                ensure!(status.success(), "{} ended with {status}", NODES[node]);
                self.successor(lead.epoch)?;
                self.nodes[node] = self.start(NODES[node])?;
            }
            Kind::Keeper => {
                crew::signal_all(&[lead.keeper], Signal::KILL);
                self.until("the command is gone", |_| Ok(alive(&lead.command).is_empty()))?;
            }
            Kind::Freeze => {
                // The command is woken first: it has as much of a start as can be.
                let mut all = lead.command.clone();
                all.extend([lead.keeper, self.nodes[node].pid()]);
                self.stop_still(&all)?;
                self.successor(lead.epoch)?;
                std::thread::sleep(Duration::from_millis(PAUSED_ON_MS));
                round.woken_ms = Some(boot_ms());
                crew::signal_all(&all, Signal::CONT);
                self.until("what was frozen is gone", |_| Ok(alive(&lead.command).is_empty()))?;
            }
        }
        Ok(round)
    }

    /// Stops processes, but never in the middle of a write to the database: it would stay locked for everybody.
    fn stop_still(&self, pids: &[i32]) -> Result<()> {
        let _held = Held::take(&self.database)?;
        crew::stop_all(pids)
    }

    /// Waits for a command of a later epoch.
    fn successor(&mut self, epoch: u64) -> Result<()> {
        self.until("a successor", |marks| Ok(marks.iter().any(|mark| mark.epoch > epoch)))
    }

    fn until(&self, what: &str, come: impl Fn(&[Mark]) -> Result<bool>) -> Result<()> {
        let limit_ms = boot_ms() + PATIENCE_MS;
        while boot_ms() < limit_ms {
            if come(&marks::read(&self.marks)?)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(anyhow::anyhow!("waited {} s in vain until {what}", PATIENCE_MS / 1000))
            .with_context(|| format!("see the logs in {}", self.plan.dir.display()))
    }
}

fn alive(pids: &[i32]) -> Vec<i32> {
    pids.iter().copied().filter(|&pid| crew::parent(pid).is_some()).collect()
}
