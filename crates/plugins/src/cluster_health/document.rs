//! `health.json`: what a leader publishes about the cluster, and how two versions of it differ.

use crate::schedules::problem::one_line;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tenure::id::DocumentName;

/// Most nodes listed; those in trouble come first. Even with the longest possible ids the document stays below 1 MiB.
pub(super) const ROWS_MAX: usize = 2000;

/// Most workers listed; the counts cover all of them.
pub(super) const WORKERS_MAX: usize = 500;

/// The longest detail of a reason or a probe.
pub(super) const DETAIL_MAX_CHARS: usize = 200;

/// Most reasons given.
pub(super) const REASONS_MAX: usize = 100;

/// How a cluster is doing, ordered from good to bad; `unknown` means that nobody can tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// Nothing is known to be wrong.
    Healthy,
    /// It works, but something needs attention.
    Degraded,
    /// Nobody leads, a node is down and no node is left to take over, or a critical probe failed.
    Critical,
    /// Nobody can tell right now.
    Unknown,
}

impl HealthStatus {
    /// The name used in JSON.
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasonCode {
    /// A node was silent for a full timeout.
    NodeDown,
    /// A node goes up and down; it stays `suspect` until it is steady.
    NodeFlapping,
    /// Nobody leads.
    NoLeader,
    /// Two processes run under one id.
    DuplicateNode,
    /// Nobody could take over. Even a single node with nothing else wrong is `degraded` for this: its next fault is an outage.
    NoEligibleStandby,
    /// A plugin coordinates through a seat of its own because the store refuses the namespace's seat.
    FallbackMode,
    /// Heartbeats took too long.
    Contention,
    /// The leader's own process was not running for a while.
    ClockStall,
    /// No living leader stands behind the last published document.
    StaleSnapshot,
    /// The store answers slowly or not at all.
    SlowStore,
    /// A component probe failed.
    ProbeFailed,
    /// The last run of a schedule failed or expired.
    ScheduleFailing,
    /// A job of a schedule waits, because no worker may take it.
    ScheduleWaiting,
    /// A worker was silent for its whole timeout.
    WorkerDown,
    /// The leader is new and has not watched for a full timeout yet.
    Settling,
    /// It has improved, but not for long enough yet.
    Recovering,
}

impl ReasonCode {
    /// The name used in JSON.
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
            ReasonCode::ScheduleFailing => "schedule_failing",
            ReasonCode::ScheduleWaiting => "schedule_waiting",
            ReasonCode::WorkerDown => "worker_down",
            ReasonCode::Settling => "settling",
            ReasonCode::Recovering => "recovering",
        }
    }
}

/// One reason for a status that is not `healthy`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reason {
    /// For programs.
    pub code: ReasonCode,
    /// The node, probe, worker or schedule this is about; left out if it is about the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub subject: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Reason {
    pub(super) fn new(code: ReasonCode, subject: Option<&str>, detail: &str) -> Reason {
        Reason { code, subject: subject.map(str::to_owned), detail: one_line(detail, DETAIL_MAX_CHARS) }
    }
}

/// Example: `node_down pod-c: its presence did not change …`
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Its presence changes.
    Up,
    /// Its presence has not changed for two intervals, its first change is still to come, or it is not steady.
    Suspect,
    /// Its presence has not changed for a full timeout.
    Down,
    /// It removed its presence.
    Left,
}

impl NodeState {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Up => "up",
            NodeState::Suspect => "suspect",
            NodeState::Down => "down",
            NodeState::Left => "left",
        }
    }
}

/// Which event was last emitted for a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// `node_up`.
    Up,
    /// `node_down`.
    Down,
}

/// One node as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealth {
    /// The node id.
    pub node: String,
    /// Its state, by the leader's last look.
    pub state: NodeState,
    /// `leader` or `standby`.
    pub role: String,
    /// The incarnation, if its presence was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// The software version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When its presence last changed, on the store's clock. For a node that is up, this may lag by one refresh.
    pub last_seen: u64,
    /// The last event emitted for it; `None` if it left or no event was ever emitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// How often it went down recently.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flaps: u32,
    /// It has been down for the whole retention. It is no longer shown, but stays in the document as long as its presence exists,
    /// so that a successor does not report it again. Health never removes presences.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forgotten: bool,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// One worker as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerHealth {
    /// The worker id.
    pub worker_id: String,
    /// `down`: silent for its whole timeout. `suspect`: silent for half of it. `left`: it deregistered.
    pub state: NodeState,
    /// The plugin it works for.
    pub plugin_type: String,
    /// The pod it runs in.
    pub pod: String,
    /// The incarnation, if its object was read: on first sight, and when its size changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub incarnation: Option<String>,
    /// The software version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub version: Option<String>,
    /// When it last wrote, on the store's clock; 0 if unknown. For a worker that is up, this may lag by one refresh.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required))]
    pub last_seen: u64,
}

/// The workers of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkersHealth {
    /// The number of workers that are up, listed or not.
    pub up: u64,
    /// The number of workers that are down, listed or not.
    pub down: u64,
    /// Those that are down come first, those that left last.
    pub list: Vec<WorkerHealth>,
}

impl WorkersHealth {
    /// The reason to report if workers are down; it names them if they are few.
    pub(super) fn silent(&self) -> Option<Reason> {
        const NAMED: usize = 3;
        let down = self.list.iter().filter(|worker| worker.state == NodeState::Down);
        let names: Vec<&str> = down.map(|worker| worker.worker_id.as_str()).take(NAMED).collect();
        let detail = match self.down {
            0 => return None,
            1 => "it was silent for longer than its timeout".to_owned(),
            count => {
                let others = if count as usize > names.len() { " and others" } else { "" };
                format!("{count} were silent for longer than their timeouts: {}{others}", names.join(", "))
            }
        };
        let subject = names.first().copied().filter(|_| self.down == 1);
        Some(Reason::new(ReasonCode::WorkerDown, subject, &detail))
    }
}

/// The last result of one component probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProbeHealth {
    /// The probe's name.
    pub name: String,
    /// Whether the check passed.
    pub ok: bool,
    /// A failure makes the cluster `critical`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub critical: bool,
    /// What the probe reported.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// `health.json` as a whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthDocument {
    /// The epoch of the leader that published it. Part of the envelope of every document.
    #[serde(skip)]
    pub epoch: u64,
    /// Increases with every document.
    #[serde(deserialize_with = "sequence")]
    pub sequence: u64,
    /// A living leader writes at least this often, in ms.
    pub refresh: u64,
    /// The overall status.
    pub status: HealthStatus,
    /// The last status that was announced; `unknown` before the first. A new leader keeps it until it can judge.
    pub told: HealthStatus,
    /// Why the status is not `healthy`.
    pub reasons: Vec<Reason>,
    /// Sorted by id.
    pub nodes: Vec<NodeHealth>,
    /// The list of nodes is incomplete.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
    /// The state of the workers.
    #[serde(default)]
    pub workers: WorkersHealth,
    /// The results of the component probes.
    #[serde(default)]
    pub probes: Vec<ProbeHealth>,
}

/// The name of the document.
pub(super) fn health_name() -> DocumentName {
    DocumentName::new("health").expect("a valid name")
}

/// A sequence that can go on rising.
fn sequence<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let sequence = u64::deserialize(from)?;
    match sequence <= u64::MAX / 2 {
        true => Ok(sequence),
        false => Err(D::Error::custom(format!("`sequence` must be at most {}", u64::MAX / 2))),
    }
}

impl HealthDocument {
    /// Whether nothing differs that is worth a write. Details and the timestamps of living nodes and workers are not.
    pub(super) fn differs_only_in_details(&self, other: &HealthDocument) -> bool {
        let strip = |document: &HealthDocument| {
            let mut plain = document.clone();
            plain.sequence = 0;
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

    /// The nodes to show: all but the forgotten ones.
    pub fn visible_nodes(&self) -> impl Iterator<Item = &NodeHealth> {
        self.nodes.iter().filter(|node| !node.forgotten)
    }
}

/// A change that is announced, once each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transition {
    /// A node has appeared or come back.
    NodeUp {
        /// The node's id.
        node: String,
    },
    /// A node was silent for a full timeout.
    NodeDown {
        /// The node's id.
        node: String,
    },
    /// The status differs from the last one announced.
    HealthChanged {
        /// The last announced status; `unknown` before the first.
        from: HealthStatus,
        /// The status now.
        to: HealthStatus,
        /// The reasons for the new status.
        reasons: Vec<Reason>,
    },
}

/// What the second document announces that the first did not. Only published documents are compared, so nothing is announced
/// twice, no matter who leads.
pub(super) fn transitions(before: Option<&HealthDocument>, after: &HealthDocument) -> Vec<Transition> {
    let told: BTreeMap<&str, Option<Told>> =
        before.iter().flat_map(|before| &before.nodes).map(|row| (row.node.as_str(), row.told)).collect();
    // Rows were cut only for nodes that were well. So above that size new nodes are not announced.
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
        assert_eq!(
            told(&["w1"]).as_deref(),
            Some("worker_down w1: it was silent for longer than its timeout")
        );
        assert_eq!(
            told(&["w1", "w2"]).as_deref(),
            Some("worker_down: 2 were silent for longer than their timeouts: w1, w2")
        );
        assert_eq!(
            told(&["w1", "w2", "w3", "w4"]).as_deref(),
            Some("worker_down: 4 were silent for longer than their timeouts: w1, w2, w3 and others")
        );
    }
}
