//! ClusterHealth: which nodes are there, how the cluster is doing, and why. The leader finds out; everybody can read it.
//!
//! ```
//! use tenure::{Node, Settings};
//! use tenure::process::Supervisor;
//! use tenure_plugins::cluster_health::{ClusterHealth, HealthStatus, HealthView};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(std::time::Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! let health = ClusterHealth::new(&node);
//! let processes = Supervisor::new([health.process()]).run(&node)?;
//! processes.running("ClusterHealth").await;
//! health.published().wait_for(|document| document.is_some()).await?;
//! let view = HealthView::read(&node.handle()).await?;
//! assert_eq!(view.status, HealthStatus::Degraded, "nobody could take over");
//! node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Not every transition is announced. The leader that published it announces it; if that leader dies in between, its successor
//! does not announce it again.

mod assessment;
mod cost;
mod document;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod probe;
mod process;
mod reader;
mod watched;
mod words;
mod workers;

use assessment::AssessmentConfig;
pub use cost::cost;
pub use document::{
    HealthDocument, HealthStatus, NodeHealth, NodeState, ProbeHealth, Reason, ReasonCode, Told, Transition,
    WorkerHealth, WorkersHealth,
};
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use fuzzing::health;
pub use probe::{Probe, ProbeResult};
pub use reader::{HealthView, ViewNode};

use crate::schedules::{RunnerView, ScheduleRunner};
use process::HealthProcess;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::millis;
use tenure::metrics::{FigureKind, PluginFigure};
use tenure::plugin::NodeHandle;
use tenure::process::{ProcessContext, ProcessSpec};
use tenure::{Node, Settings};
use tokio::sync::{broadcast, watch};

/// The name of the leader-only process.
pub const PROCESS: &str = "ClusterHealth";

/// The events emitted along with the node's own; `{prefix}` stands for the telemetry prefix.
pub const HEALTH_EVENT_NAMES: &[&str] = &[
    "{prefix}.coordinator.health_changed",
    "{prefix}.coordinator.node_down",
    "{prefix}.coordinator.node_up",
];

/// The metrics added to the node's own, named as in a scrape.
pub const HEALTH_METRIC_NAMES: &[&str] = &["tenure_cluster_health"];

fn figure(published: Option<&HealthDocument>) -> PluginFigure {
    let value = match published.map(|document| document.status) {
        None => 0.0,
        Some(HealthStatus::Healthy) => 1.0,
        Some(HealthStatus::Degraded) => 2.0,
        Some(HealthStatus::Critical) => 3.0,
        Some(HealthStatus::Unknown) => 4.0,
    };
    let help =
        "Cluster health, on the leader: 1 healthy, 2 degraded, 3 critical, 4 unknown; 0 on other nodes";
    PluginFigure { name: "tenure_cluster_health", help, kind: FigureKind::Gauge, value }
}

/// A transition, with the epoch of the leader that announced it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthEvent {
    /// The namespace of the cluster.
    pub namespace: Arc<str>,
    /// The epoch of the leader that announced it.
    pub epoch: u64,
    /// The change itself.
    pub transition: Transition,
}

/// How often and how the leader looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthOptions {
    /// The time between two lists of the nodes.
    pub interval: Duration,
    /// The document is written at least once in this many looks, changed or not; readers treat one twice as old as stale. Its age
    /// in store time is the only sign a one-shot reader has. Without it, a leader that renews, but whose health process cannot
    /// get through, would look healthy forever.
    pub refresh_looks: u32,
    /// How long a node that is down or gone is still shown.
    pub retention: Duration,
    /// The time limit of one probe.
    pub probe_timeout: Duration,
    /// Presences read again in each look, in addition to new ones.
    pub rereads: usize,
}

impl HealthOptions {
    /// The options that fit these settings: one look every `presenceInterval`, but at most one per 24 looks of a standby, so that
    /// health costs a fraction of what leading does. The limits on what a node may cost ($4.60 a month by default, 2.5 requests
    /// in 5 s with `thrifty`) must hold with health running.
    pub fn of(settings: &Settings) -> HealthOptions {
        let interval_ms = millis(settings.presence_interval.max(24 * settings.election_interval));
        HealthOptions {
            interval: Duration::from_millis(interval_ms),
            refresh_looks: 3,
            retention: Duration::from_secs(3600),
            probe_timeout: settings.request_timeout.max(Duration::from_secs(1)),
            rereads: 4,
        }
    }

    fn assessment(&self, settings: &Settings) -> AssessmentConfig {
        // So that nothing that is added to it overflows.
        let ms = |time| millis(time).min(u64::MAX / 4);
        let down_ms = millis(settings.presence_interval) * 3;
        AssessmentConfig {
            suspect_ms: millis(settings.presence_interval) * 2,
            down_ms,
            retention_ms: ms(self.retention),
            calm_ms: down_ms,
            flap_window_ms: down_ms * 10,
            flap_hold_ms: down_ms * 2,
            stall_ms: millis(settings.heartbeat_interval),
            slow_ms: millis(settings.heartbeat_interval),
            refresh_ms: ms(self.interval).saturating_mul(u64::from(self.refresh_looks.max(1))),
            rereads: self.rereads,
        }
    }
}

/// The health of the cluster a node belongs to. Runs as a process of the leader.
#[derive(Clone)]
pub struct ClusterHealth {
    node: NodeHandle,
    options: HealthOptions,
    probes: Vec<Arc<dyn Probe>>,
    schedules: Option<watch::Receiver<RunnerView>>,
    channels: Channels,
}

/// How other code in this program hears about health.
#[derive(Clone)]
struct Channels {
    events: broadcast::Sender<HealthEvent>,
    published: Arc<watch::Sender<Option<HealthDocument>>>,
}

impl ClusterHealth {
    /// Creates it with the options that fit the node's settings, and no probes.
    pub fn new(node: &Node) -> ClusterHealth {
        let handle = node.handle();
        let options = HealthOptions::of(handle.settings());
        let channels =
            Channels { events: broadcast::channel(1024).0, published: Arc::new(watch::Sender::new(None)) };
        let published = channels.published.subscribe();
        node.jobs().plugin_figures().publish(PROCESS, move || vec![figure(published.borrow().as_ref())]);
        ClusterHealth { node: handle, options, probes: Vec::new(), schedules: None, channels }
    }

    /// Replaces the options.
    #[must_use]
    pub fn options(mut self, options: HealthOptions) -> ClusterHealth {
        self.options = options;
        self
    }

    /// Adds a component probe.
    #[must_use]
    pub fn probe(mut self, probe: impl Probe) -> ClusterHealth {
        self.probes.push(Arc::new(probe));
        self
    }

    /// Counts a schedule whose last run failed, or that nobody can run, as a reason to be degraded.
    #[must_use]
    pub fn schedules(mut self, runner: &ScheduleRunner) -> ClusterHealth {
        self.schedules = Some(runner.view());
        self
    }

    /// The process, for a [`Supervisor`](tenure::process::Supervisor).
    pub fn process(&self) -> ProcessSpec {
        let this = self.clone();
        ProcessSpec::new(PROCESS, move |context: ProcessContext| HealthProcess::new(&this, context).run())
    }

    /// The transitions this node announces as leader from now on. They are also among the node's own events.
    pub fn events(&self) -> broadcast::Receiver<HealthEvent> {
        self.channels.events.subscribe()
    }

    /// The document this node last published as leader; `None` while it does not lead.
    pub fn published(&self) -> watch::Receiver<Option<HealthDocument>> {
        self.channels.published.subscribe()
    }

    /// Reads the health of the cluster, on any node; see [`HealthView::read`].
    pub async fn read(&self) -> Result<HealthView, tenure::Error> {
        HealthView::read(&self.node).await
    }
}

impl std::fmt::Debug for ClusterHealth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterHealth({:?}, {} probes)", self.node, self.probes.len())
    }
}
