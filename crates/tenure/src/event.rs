//! Events: what happened to a node, under the names that the documents give.
//!
//! Every change of role or leader, every trouble with the store and its end, every change of a worker or process is one [`Event`] with
//! a [wire name](Event::name) and a [JSON form](Event::to_json). [`EVENT_NAMES`] lists the names. Plugins add events of their own
//! ([`PluginEvent`]).
//!
//! ```
//! use std::time::Duration;
//! use tenure::event::EventKind;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let builder = Node::builder(settings);
//! let mut events = builder.events(); // from the very first one on
//! let node = builder.start().await?;
//! loop {
//!     let event = events.recv().await?;
//!     if let EventKind::BecameLeader { .. } = event.kind {
//!         assert!(event.name().ends_with(".coordinator.became_leader"));
//!         break;
//!     }
//! }
//! # node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Not promised: that a reader sees every event. The channel is bounded; a slow reader learns how many it missed. To follow
//! leadership, use [`Node::leadership`](crate::Node::leadership), which always shows the present.

mod json;
mod names;
#[cfg(test)]
mod tests;

pub(crate) use json::cause_name;
pub use names::EVENT_NAMES;

use crate::workers::WorkerInfo;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{ElectionCause, LossReason, NodeId, ProcessOutcome, SeatProblem};

/// Something that happened to one node in one namespace.
///
/// Events are for people and programs that watch; nothing in the protocol depends on their delivery. They travel on a
/// bounded channel: a slow reader learns how many it missed and never holds up the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The namespace of the election.
    pub namespace: Arc<str>,
    /// The node that emitted the event.
    pub node: NodeId,
    /// The epoch it refers to: the leader's, or the highest one the node knows.
    pub epoch: u64,
    /// Wall-clock time, for people.
    pub time: jiff::Timestamp,
    /// The node's boot-time clock in milliseconds, for comparing events of one machine.
    pub boot_ms: u64,
    /// The plugins that share the election; empty for a node that runs without plugins.
    pub plugins: Arc<[Arc<str>]>,
    /// Prefix of telemetry names.
    pub(crate) prefix: Arc<str>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The node is not eligible: it watches who leads, but does not take part.
    Ineligible,
    /// The startup wait has begun.
    StartupJitter {
        /// The length of the wait.
        wait: Duration,
    },
    /// The node is known to the others.
    Joined,
    /// The seat is free; the node waits for its turn.
    AwaitingTurn {
        /// The shortest time until then.
        wait: Duration,
    },
    /// The node is trying to claim the seat.
    ElectionStarted {
        /// Why an election takes place.
        cause: ElectionCause,
    },
    /// A standby looked at the seat.
    ElectionCheck {
        /// The holder of the seat; `None` if the seat is vacant, absent or unreadable.
        leader: Option<NodeId>,
        /// How long the seat has been unchanged.
        unchanged: Duration,
    },
    /// The leader has been silent for a whole expiry.
    LeaderDown {
        /// The silent leader.
        leader: NodeId,
        /// How long the seat has been unchanged.
        unchanged: Duration,
    },
    /// The silent leader came back before anybody took over.
    LeaderRecovered {
        /// The leader that came back.
        leader: NodeId,
    },
    /// There is a new leader, or the same one with a new epoch. Emitted on every node.
    LeaderChanged {
        /// The last leader this node knew; `None` if there was none.
        previous: Option<NodeId>,
        /// The leader now.
        new: NodeId,
    },
    /// The same change, as telemetry of a standby.
    LeaderChangeSeen {
        /// The last leader this node knew; `None` if there was none.
        previous: Option<NodeId>,
        /// The leader now.
        new: NodeId,
    },
    /// This node now leads.
    BecameLeader {
        /// When leadership ends on the boot-time clock, unless the lease is renewed.
        deadline_boot_ms: u64,
    },
    /// The lease was renewed.
    LeaseRenewed {
        /// The new deadline on the boot-time clock.
        deadline_boot_ms: u64,
        /// From sending the renewal to its confirmation.
        latency: Duration,
    },
    /// 80 % of the hold is gone without a renewal; work is being stopped.
    LeaseAtRisk {
        /// When leadership ends on the boot-time clock, unless a renewal gets through.
        deadline_boot_ms: u64,
    },
    /// A renewal got through after all; work may continue.
    LeaseRecovered,
    /// This node no longer leads.
    LostLeadership {
        /// What ended the leadership.
        reason: LostReason,
        /// Whether the seat was vacated, so that the next leader does not have to wait.
        vacated: bool,
        /// Nothing acted after this, on the boot-time clock.
        acted_until_boot_ms: u64,
    },
    /// The object is not a seat, or was written by a newer version. It is left alone.
    SeatUnreadable {
        /// What is wrong with the seat.
        problem: SeatProblem,
        /// The problem in words.
        detail: String,
    },
    /// The seat shows a lower epoch than one seen before.
    EpochRegressed {
        /// The lower epoch, found on the seat.
        found: u64,
    },
    /// Two processes run under this node's id.
    NodeConflict,
    /// The leader's settings differ from this node's. The leader's apply to the election until this node leads.
    SettingsDiffer {
        /// The leader whose settings differ.
        leader: NodeId,
        /// One sentence per difference, with both values.
        differences: Vec<String>,
    },
    /// The store does not answer.
    StoreUnavailable {
        /// What went wrong, in words.
        detail: String,
    },
    /// The store refuses.
    StoreDenied {
        /// The store's reason, in words.
        detail: String,
    },
    /// The store answers again.
    StoreRecovered,
    /// The store ignores conditions on writes.
    StoreUnsafe {
        /// How it showed, in words.
        detail: String,
    },
    /// Work did not stop in time, so the seat was not vacated.
    ProcessesStuck,
    /// The candidate died and will be started again.
    CandidateRestarted {
        /// Number of consecutive deaths, including this one.
        attempt: u32,
        /// The pause before the next start.
        wait: Duration,
    },
    /// A heartbeat cycle took too long. Reported at most once in 30 s; the metrics count every one.
    ContentionDetected {
        /// From when the cycle was due until its outcome was known.
        duration: Duration,
        /// The heartbeat interval.
        expected: Duration,
        /// For how much of it this node itself did not get to run: paused, suspended, or starved of CPU.
        stalled: Duration,
    },
    /// A worker is new.
    WorkerRegistered(WorkerInfo),
    /// A worker's object is gone.
    WorkerDeregistered(WorkerInfo),
    /// A worker has been silent for its timeout. Reported once per silence, on every node.
    WorkerTimeout(WorkerInfo),
    /// A silent worker is back.
    WorkerRecovered(WorkerInfo),
    /// A worker of this process may work: its pod leads.
    WorkerEnabled(WorkerInfo),
    /// A worker of this process must no longer work.
    WorkerDisabled(WorkerInfo),
    /// Another process has the id of a worker of this process, which ends because of it.
    WorkerConflict {
        /// The worker of this process.
        worker: WorkerInfo,
        /// The pod the other process runs on.
        other_pod: NodeId,
        /// The other process's incarnation, as 16 hex digits.
        other_incarnation: String,
    },
    /// The number of active or inactive workers has changed.
    WorkersChanged {
        /// Active workers.
        active: u64,
        /// Inactive workers.
        inactive: u64,
    },
    /// A plugin panicked or hung. Nobody else is affected.
    PluginFailed {
        /// The name of the plugin.
        plugin: Arc<str>,
        /// The handler that failed: `promoted`, `demoted`, `leader_changed`, `event`, `missed`.
        handler: &'static str,
        /// What went wrong, in words.
        detail: String,
    },
    /// The store refuses the global seat; the plugin coordinates on its own until the process is restarted.
    FallbackStarted {
        /// The name of the plugin.
        plugin: Arc<str>,
        /// What the store said.
        detail: String,
    },
    /// A leader-only process has started.
    ProcessStarted {
        /// The name of the process.
        process: Arc<str>,
    },
    /// A process that ended runs again.
    ProcessRestarted {
        /// The name of the process.
        process: Arc<str>,
        /// Start number within this term, from 1.
        attempt: u32,
    },
    /// A process has ended.
    ProcessExited {
        /// The name of the process.
        process: Arc<str>,
        /// How it ended.
        outcome: ProcessOutcome,
        /// How long it ran.
        ran: Duration,
        /// When it is started again; `None` if it is not.
        restart_in: Option<Duration>,
        /// Its error or panic message, if it failed.
        detail: Option<Arc<str>>,
    },
    /// A process did not stop in time. Its guard has ended, but it still runs, and this node does not lead until it ends.
    ProcessStuck {
        /// The name of the process.
        process: Arc<str>,
    },
    /// The processes cannot run here: all are stopped, and leadership is given up.
    ProcessesGaveUp {
        /// The process that caused it; `None` if the supervisor itself died.
        process: Option<Arc<str>>,
        /// What went wrong, as a short name.
        cause: &'static str,
        /// How long this node claims nothing.
        hold: Duration,
    },
    /// An event that a plugin emitted with [`NodeHandle::emit`](crate::plugin::NodeHandle::emit).
    Plugin(PluginEvent),
    /// The node has left.
    Stopped,
}

/// An event of a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginEvent {
    /// The wire name, without the prefix.
    pub name: &'static str,
    /// One line for people.
    pub sentence: String,
    /// Whether it is logged as a warning.
    pub alarming: bool,
    /// A JSON object for programs.
    pub fields: Value,
}

/// Why leadership ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LostReason {
    /// The protocol ended it.
    Protocol(LossReason),
    /// The candidate panicked; its lease was withdrawn with it.
    Panic,
}

impl LostReason {
    /// The reason as it appears on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            LostReason::Protocol(reason) => reason.as_str(),
            LostReason::Panic => "panic",
        }
    }
}

impl Event {
    /// The wire name: `leader:changed`, `serviceradar.coordinator.became_leader`, …
    pub fn name(&self) -> String {
        let short = self.kind.short_name();
        // The names from the documents contain a colon and get no prefix.
        if short.contains(':') { short.to_owned() } else { format!("{}.coordinator.{short}", self.prefix) }
    }

    /// The event as one JSON object: `event`, `namespace`, `node`, `epoch`, `time`, `bootMs`, `plugins` if
    /// there are any, then its own fields.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("event".to_owned(), self.name().into());
        object.insert("namespace".to_owned(), Value::from(&*self.namespace));
        object.insert("node".to_owned(), self.node.as_str().into());
        object.insert("epoch".to_owned(), self.epoch.into());
        object.insert("time".to_owned(), format!("{:.3}", self.time).into());
        object.insert("bootMs".to_owned(), self.boot_ms.into());
        if !self.plugins.is_empty() {
            let names: Vec<&str> = self.plugins.iter().map(|name| &**name).collect();
            object.insert("plugins".to_owned(), names.into());
        }
        if let Value::Object(fields) = self.kind.fields() {
            object.extend(fields);
        }
        Value::Object(object)
    }
}
