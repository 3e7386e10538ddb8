//! `health.json`: what a leader publishes about the cluster, and what differs between two of them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use tenure::fence::EPOCH_MAX;

/// The major version this software writes and reads.
pub(super) const VERSION: u64 = 1;

/// Nodes listed at most; those in trouble come first. With the longest ids there are it all stays below 1 MiB.
pub(super) const ROWS_MAX: usize = 2000;

/// Workers listed at most; the counts count all.
pub(super) const WORKERS_MAX: usize = 500;

/// Reasons given at most.
pub(super) const REASONS_MAX: usize = 100;

/// How a cluster is doing. The order is from good to bad; `unknown` is no judgement at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// Nothing is known to be wrong.
    Healthy,
    /// It works, and something should be looked after.
    Degraded,
    /// Nobody leads, a node is down and nobody is left to take over, or a critical probe failed.
    Critical,
    /// Nobody can tell now.
    Unknown,
}

impl HealthStatus {
    /// Its wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthStatus::Healthy => "healthy",
            HealthStatus::Degraded => "degraded",
            HealthStatus::Critical => "critical",
            HealthStatus::Unknown => "unknown",
        }
    }
}

/// Why a status is not `healthy`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonCode {
    /// A node was silent for a full timeout.
    NodeDown,
    /// A node goes up and down; it is held `suspect` until it is steady.
    NodeFlapping,
    /// Nobody leads.
    NoLeader,
    /// Two processes run under one id.
    DuplicateNode,
    /// Nobody could take over. Even a single node with nothing else wrong is `degraded` for this: its next fault is an outage.
    NoEligibleStandby,
    /// A plugin coordinates by a seat of its own because the store refuses the namespace's.
    FallbackMode,
    /// Heartbeats took too long.
    Contention,
    /// The leader itself did not get to run.
    ClockStall,
    /// Nobody alive stands behind what was published last.
    StaleSnapshot,
    /// The store answers slowly, or not at all.
    SlowStore,
    /// A component probe failed.
    ProbeFailed,
    /// A worker was silent for its timeout.
    WorkerDown,
    /// A leader is new and has not watched for a full timeout yet.
    Settling,
    /// It is better by now, but not for long enough yet.
    Recovering,
}

impl ReasonCode {
    /// Its wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            ReasonCode::NodeDown => "node_down",
            ReasonCode::NodeFlapping => "node_flapping",
            ReasonCode::NoLeader => "no_leader",
            ReasonCode::DuplicateNode => "duplicate_node",
            ReasonCode::NoEligibleStandby => "no_eligible_standby",
            ReasonCode::FallbackMode => "fallback_mode",
            ReasonCode::Contention => "contention",
            ReasonCode::ClockStall => "clock_stall",
            ReasonCode::StaleSnapshot => "stale_snapshot",
            ReasonCode::SlowStore => "slow_store",
            ReasonCode::ProbeFailed => "probe_failed",
            ReasonCode::WorkerDown => "worker_down",
            ReasonCode::Settling => "settling",
            ReasonCode::Recovering => "recovering",
        }
    }
}

/// One reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// For programs.
    pub code: ReasonCode,
    /// Whom it is about: a node, a probe; none if it is about the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Reason {
    pub(super) fn new(code: ReasonCode, subject: Option<&str>, detail: &str) -> Reason {
        let detail = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
        Reason { code, subject: subject.map(str::to_owned), detail }
    }
}

/// `node_down pod-c: its presence did not change …`
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.as_str())?;
        if let Some(subject) = &self.subject {
            write!(f, " {subject}")?;
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// How a node is doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Its presence changes.
    Up,
    /// It was not seen to change for two intervals, or not yet, or it is not steady.
    Suspect,
    /// It did not change for a full timeout.
    Down,
    /// It took its presence away.
    Left,
}

impl NodeState {
    /// Its wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Up => "up",
            NodeState::Suspect => "suspect",
            NodeState::Down => "down",
            NodeState::Left => "left",
        }
    }
}

/// What was last told of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// `node_up`.
    Up,
    /// `node_down`.
    Down,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealth {
    /// Its id.
    pub node: String,
    /// How it is doing.
    pub state: NodeState,
    /// `leader` or `standby`.
    pub role: String,
    /// Which life of it, as far as its presence was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Its software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When its presence changed last, on the store's clock. May be a refresh behind for a node that is up.
    pub last_seen: u64,
    /// What was last told of it; none for one that left or was never told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// How often it went down lately.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flaps: u32,
    /// It has been down for the whole retention: shown to nobody, and kept for as long as its presence is there, so that a
    /// successor does not tell it again. Removing presences is not health's business.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forgotten: bool,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// One worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerHealth {
    /// Its id.
    pub worker_id: String,
    /// `down`: silent for its timeout. `suspect`: for half of it. `left`: it deregistered.
    pub state: NodeState,
    /// Which plugin it works for.
    pub plugin_type: String,
    /// Where it runs.
    pub pod: String,
    /// Which life of it, as far as its object was read: once when it is new, and when its size has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Its software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it wrote last, on the store's clock; 0 if that is not known. May be a refresh behind for one that is up.
    #[serde(default)]
    pub last_seen: u64,
}

/// The workers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkersHealth {
    /// How many are up.
    pub up: u64,
    /// How many are down.
    pub down: u64,
    /// The workers; those that are down first, those that left last.
    pub list: Vec<WorkerHealth>,
}

impl WorkersHealth {
    /// Why those that are down are a reason, by name as far as they are few.
    pub(super) fn silent(&self) -> Option<Reason> {
        const NAMED: usize = 3;
        let down = self.list.iter().filter(|worker| worker.state == NodeState::Down);
        let names: Vec<&str> = down.map(|worker| worker.worker_id.as_str()).take(NAMED).collect();
        let detail = match self.down {
            0 => return None,
            1 => "it was silent for its timeout".to_owned(),
            count => {
                let others = if count as usize > names.len() { " and others" } else { "" };
                format!("{count} were silent for their timeouts: {}{others}", names.join(", "))
            }
        };
        let subject = names.first().copied().filter(|_| self.down == 1);
        Some(Reason::new(ReasonCode::WorkerDown, subject, &detail))
    }
}

/// One component probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbeHealth {
    /// Its name.
    pub name: String,
    /// Whether it was content.
    pub ok: bool,
    /// A failure is critical.
    #[serde(default, skip_serializing_if = "is_false")]
    pub critical: bool,
    /// What it said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The whole document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthDocument {
    pub(super) v: u64,
    /// The epoch of the leader that published it.
    pub epoch: u64,
    /// Rises with every document of an epoch.
    pub sequence: u64,
    /// New in every write.
    #[serde(default)]
    pub(super) nonce: String,
    /// A living publisher writes at least this often, in ms.
    pub refresh: u64,
    /// How the cluster is doing.
    pub status: HealthStatus,
    /// The last status that was told, `unknown` before the first. A new leader keeps it until it knows.
    pub told: HealthStatus,
    /// Why.
    pub reasons: Vec<Reason>,
    /// The nodes, in order of their ids.
    pub nodes: Vec<NodeHealth>,
    /// Not all nodes are listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
    /// The workers.
    #[serde(default)]
    pub workers: WorkersHealth,
    /// The component probes.
    #[serde(default)]
    pub probes: Vec<ProbeHealth>,
    /// Whatever a later minor version added.
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// Why an object is not a health document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unreadable {
    /// A later version wrote it: to be left alone.
    pub(super) newer: bool,
    pub(super) detail: String,
}

impl HealthDocument {
    pub(super) fn parse(body: &[u8]) -> Result<HealthDocument, Unreadable> {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let corrupt = |detail: String| Unreadable {
            newer: false,
            detail: detail.chars().map(clean).take(200).collect(),
        };
        let value: Value =
            serde_json::from_slice(body).map_err(|error| corrupt(format!("not JSON: {error}")))?;
        match value.get("v").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                let detail = format!("written in version {newer}, this software knows up to {VERSION}");
                return Err(Unreadable { newer: true, detail });
            }
            Some(_) | None => return Err(corrupt("`v` must be 1".to_owned())),
        }
        let found: HealthDocument =
            serde_json::from_value(value).map_err(|error| corrupt(error.to_string()))?;
        if found.epoch > EPOCH_MAX || found.sequence > u64::MAX / 2 {
            return Err(corrupt("epoch or sequence out of range".to_owned()));
        }
        Ok(found)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields always serialize")
    }

    /// Whether there is nothing in it worth a write that is not in the other: words and marks of the living are not.
    pub(super) fn is_old_news(&self, other: &HealthDocument) -> bool {
        let strip = |document: &HealthDocument| {
            let mut plain = document.clone();
            (plain.sequence, plain.nonce) = (0, String::new());
            plain.extra.clear();
            plain.reasons.iter_mut().for_each(|reason| reason.detail.clear());
            plain.probes.iter_mut().for_each(|probe| probe.detail.clear());
            for node in plain.nodes.iter_mut().filter(|node| node.state != NodeState::Down) {
                node.last_seen = 0;
            }
            for worker in plain.workers.list.iter_mut().filter(|worker| worker.state != NodeState::Down) {
                worker.last_seen = 0;
            }
            plain
        };
        strip(self) == strip(other)
    }

    /// The nodes to be shown.
    pub fn shown(&self) -> impl Iterator<Item = &NodeHealth> {
        self.nodes.iter().filter(|node| !node.forgotten)
    }
}

/// What is told, once each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transition {
    /// A node is there: new, or back.
    NodeUp {
        /// Which.
        node: String,
    },
    /// A node was silent for a full timeout.
    NodeDown {
        /// Which.
        node: String,
    },
    /// The status is another than the one last told.
    HealthChanged {
        /// What was told before; `unknown` before the first.
        from: HealthStatus,
        /// What is.
        to: HealthStatus,
        /// Why.
        reasons: Vec<Reason>,
    },
}

/// What the second document tells that the first did not. Only published documents are compared, so nothing is told twice,
/// whoever leads.
pub fn transitions(before: Option<&HealthDocument>, after: &HealthDocument) -> Vec<Transition> {
    let told: BTreeMap<&str, Option<Told>> =
        before.iter().flat_map(|before| &before.nodes).map(|row| (row.node.as_str(), row.told)).collect();
    // Those that were cut away were well; so from so many nodes on, new ones are not told.
    let others = before.filter(|before| before.cut).map(|_| Told::Up);
    let known = |name: &str| told.get(name).copied().unwrap_or(others);
    let mut found = Vec::new();
    for row in &after.nodes {
        let node = row.node.clone();
        match (known(&row.node), row.told) {
            (None | Some(Told::Down), Some(Told::Up)) => found.push(Transition::NodeUp { node }),
            (None | Some(Told::Up), Some(Told::Down)) => found.push(Transition::NodeDown { node }),
            (Some(Told::Up), Some(Told::Up)) | (Some(Told::Down), Some(Told::Down)) | (_, None) => {}
        }
    }
    let from = before.map_or(HealthStatus::Unknown, |before| before.told);
    if from != after.told {
        let (to, reasons) = (after.told, after.reasons.clone());
        found.push(Transition::HealthChanged { from, to, reasons });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_workers_are_named_as_far_as_they_are_few() {
        let worker = |id: &str| WorkerHealth {
            worker_id: id.to_owned(),
            state: NodeState::Down,
            plugin_type: "queue".to_owned(),
            pod: "pod-a".to_owned(),
            incarnation: None,
            version: None,
            last_seen: 0,
        };
        let told = |ids: &[&str]| {
            let list: Vec<WorkerHealth> = ids.iter().map(|id| worker(id)).collect();
            WorkersHealth { up: 9, down: list.len() as u64, list }.silent().map(|reason| reason.to_string())
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["w1"]).as_deref(), Some("worker_down w1: it was silent for its timeout"));
        assert_eq!(
            told(&["w1", "w2"]).as_deref(),
            Some("worker_down: 2 were silent for their timeouts: w1, w2")
        );
        assert_eq!(
            told(&["w1", "w2", "w3", "w4"]).as_deref(),
            Some("worker_down: 4 were silent for their timeouts: w1, w2, w3 and others")
        );
    }
}
