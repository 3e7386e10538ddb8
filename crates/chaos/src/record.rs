//! What a run leaves on disk: everything the judge looks at, and nothing else.
//!
//! The judge reads files, not the run itself. So a judgement can be repeated, and after a bad run the kept record is all there is
//! to look at.
//!
//! | file | one line each |
//! |---|---|
//! | `run.json` | the run itself: seed, settings, engine |
//! | `events.jsonl` | what a node said, with the number of its process |
//! | `requests.jsonl` | a request as the node's proxy saw it |
//! | `rounds.jsonl` | what went wrong, when, and when somebody led again |
//! | `lives.jsonl` | a process: when it began, paused and ended |
//! | `stalls.jsonl` | a time during which the machine itself stood still |
//! | `logs/` | what each process wrote to stderr |

use crate::leadership::Said;
use crate::proxy::Exchange;
use crate::schedule::Kind;
use crate::stall_watch::Stall;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

/// The settings the nodes ran with, as they report them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promise {
    pub heartbeat_ms: u64,
    /// How long a leader may act after a renewal.
    pub lease_ms: u64,
    pub request_timeout_ms: u64,
    /// How often a standby looks.
    pub election_interval_ms: u64,
    /// How long nodes that start together wait for each other.
    pub settle_ms: u64,
    /// How long work may take to stop.
    pub drain_ms: u64,
    /// How soon a crashed leader is replaced if the store answers at once.
    pub failover_bound_ms: u64,
}

impl Promise {
    /// Ranks before the successor may belong to nodes that are gone; each costs a step.
    fn hold_back_ms(&self, nodes: usize) -> u64 {
        (self.heartbeat_ms / 4).clamp(10, 500) * nodes.saturating_sub(1).min(8) as u64
    }

    /// The failover bound plus what it leaves out: two requests that have to be given up, and ranks of dead nodes.
    pub fn failover_ms(&self, nodes: usize) -> u64 {
        self.failover_bound_ms + 2 * self.request_timeout_ms + self.hold_back_ms(nodes)
    }

    /// The same for a cluster that has to recover after all faults have ended, with processes just started.
    pub fn recovery_ms(&self, nodes: usize) -> u64 {
        self.failover_ms(nodes) + self.settle_ms + 2 * self.request_timeout_ms
    }

    /// How soon a leader that was asked to stop is replaced.
    pub fn hand_over_ms(&self) -> u64 {
        self.drain_ms + self.election_interval_ms
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub seed: u64,
    pub engine: String,
    pub nodes: usize,
    pub preset: String,
    pub promise: Promise,
    /// On the boot-time clock, like `ended_ms`.
    pub began_ms: u64,
    pub ended_ms: u64,
    /// How far the machine's wall clock was ahead of the boot-time clock.
    pub wall_ahead_ms: u64,
    /// What was left out, and why.
    pub notices: Vec<String>,
    /// What the conductor itself saw go wrong.
    pub complaints: Vec<String>,
}

/// One fault as it happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultRecord {
    pub kind: Kind,
    /// The node it hit; `None` if it was the store.
    pub node: Option<String>,
    pub hit_leader: bool,
    /// A time just before it began.
    pub begun_ms: u64,
    /// A time just after it ended.
    pub ended_ms: u64,
}

/// The leader before a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incumbent {
    pub node: String,
    /// The number of its process.
    pub life: usize,
    pub epoch: u64,
}

/// One round: one or two faults and the recovery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundRecord {
    pub number: usize,
    pub leader: Option<Incumbent>,
    pub faults: Vec<FaultRecord>,
    /// When all faults had ended.
    pub healed_ms: u64,
    /// When a node led and had renewed since; `None` if nobody did in time.
    pub settled_ms: Option<u64>,
}

/// One process of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifeRecord {
    /// The number of the process, in order of start.
    pub life: usize,
    pub node: String,
    pub started_ms: u64,
    /// How far its wall clock was shifted.
    pub skew_s: i64,
    /// When we had it stopped.
    pub pauses: Vec<(u64, u64)>,
    /// When it was told to stop.
    pub told_ms: Option<u64>,
    /// When it was found to be gone.
    pub ended_ms: Option<u64>,
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Whether we killed it.
    pub killed: bool,
}

#[derive(Clone, Debug)]
pub struct Record {
    pub run: Run,
    pub events: Vec<Said>,
    pub requests: Vec<Exchange>,
    /// In order.
    pub rounds: Vec<RoundRecord>,
    /// In order of start.
    pub lives: Vec<LifeRecord>,
    pub stalls: Vec<Stall>,
    /// Lines in the nodes' logs that no node may ever write.
    pub alarms: Vec<String>,
}

impl Record {
    pub fn load(dir: &Path) -> Result<Record> {
        let run =
            std::fs::read(dir.join("run.json")).with_context(|| format!("no record in {}", dir.display()))?;
        Ok(Record {
            run: serde_json::from_slice(&run).context("run.json")?,
            events: lines(dir, "events.jsonl")?,
            requests: lines(dir, "requests.jsonl")?,
            rounds: lines(dir, "rounds.jsonl")?,
            lives: lines(dir, "lives.jsonl")?,
            stalls: lines(dir, "stalls.jsonl")?,
            alarms: alarms(&dir.join("logs"))?,
        })
    }
}

fn lines<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Vec<T>> {
    let path = dir.join(name);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let parse = |(number, line): (usize, std::io::Result<String>)| {
        serde_json::from_str(&line?).with_context(|| format!("{name}, line {}", number + 1))
    };
    BufReader::new(file).lines().enumerate().map(parse).collect()
}

fn alarms(dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let log = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bad =
            log.lines().filter(|line| line.contains("panicked") || line.contains("events were left out"));
        found.extend(bad.map(|line| format!("{name}: {line}")));
    }
    Ok(found)
}

/// Writes one of the files, one line per value.
pub fn save<T: Serialize>(dir: &Path, name: &str, values: &[T]) -> Result<()> {
    let path = dir.join(name);
    let write = || -> Result<()> {
        let mut to = BufWriter::new(File::create(&path)?);
        for value in values {
            serde_json::to_writer(&mut to, value)?;
            to.write_all(b"\n")?;
        }
        Ok(to.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
