//! A handle of a node that does not keep it alive.

use crate::clock::Clock;
use crate::documents::Documents;
use crate::election::Reporter;
use crate::error::Error;
use crate::event::{Event, EventKind, PluginEvent};
use crate::fence::Fence;
use crate::guard::Leadership;
use crate::job::Jobs;
use crate::keys::Keys;
use crate::metrics::{Counters, Metrics};
use crate::settings::Settings;
use crate::workers::{SeenWorker, SnapshotPointers, Sweeper, Worker, WorkerHost, WorkerRegistry};
use crate::workers::{WorkerSpec, Workers};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Namespace, NodeId, WorkerId};
use tenure_store::Lanes;
use tokio::sync::{broadcast, watch};

/// What plugins and servers use of a [`Node`](crate::Node) that somebody else holds: its documents, figures, clock and events,
/// and nothing that could harm its election. Requests through it count as the node's.
///
/// It does not keep the node alive. Once the node has ended, it shows what was known last, and still reaches the store.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    pub(crate) lanes: Lanes,
    pub(crate) host: WorkerHost,
    pub(crate) workers: watch::Receiver<Workers>,
    pub(crate) registry: WorkerRegistry,
}

impl NodeHandle {
    /// A process's connection to a namespace, with its fence and its jobs: all that a node and an observer have in common.
    pub(crate) fn connect(
        settings: &Settings,
        keys: &Keys,
        lanes: Lanes,
        clock: Arc<dyn Clock>,
        events: broadcast::Sender<Event>,
        leadership: watch::Receiver<Leadership>,
    ) -> (NodeHandle, Fence, Jobs) {
        let settings = Arc::new(settings.clone());
        let counters = Arc::new(Counters::new(&settings, Arc::clone(&clock), leadership.clone()));
        let lanes = counters.meter(lanes);
        let fence = Fence::counting(settings.fence_rule(), Arc::clone(&clock), counters.drift());
        let reporter = Reporter {
            namespace: Arc::from(settings.namespace.as_str()),
            node: settings.node.clone(),
            prefix: Arc::from(settings.telemetry_prefix.as_str()),
            clock,
            events,
            counters: Arc::clone(&counters),
        };
        let (registry, workers) = WorkerRegistry::new(reporter.clone());
        let jobs = Jobs {
            store: counters.meter_jobs(&lanes.bulk),
            keys: Jobs::fixed(keys.clone()),
            settings: Arc::clone(&settings),
            reporter: reporter.clone(),
            fence: fence.clone(),
            workers: workers.clone(),
            submissions: crate::job::Submissions::default(),
            dispatching: crate::job::Dispatching::default(),
            sender: Arc::default(),
        };
        let bulk = Arc::clone(&lanes.bulk);
        let host = WorkerHost::new(bulk, keys.clone(), settings, reporter, leadership);
        (NodeHandle { lanes, host, workers, registry }, fence, jobs)
    }

    /// What keeps track of the workers.
    pub(crate) fn sweeper(&self, pointers: SnapshotPointers) -> Sweeper {
        let (bulk, keys) = (Arc::clone(&self.lanes.bulk), self.host.keys.clone());
        Sweeper::new(bulk, keys, self.settings(), self.leadership(), pointers, self.registry.clone())
    }

    /// For whoever emits events in this node's name.
    pub(crate) fn reporter(&self) -> &Reporter {
        &self.host.reporter
    }

    /// The node's id.
    pub fn id(&self) -> &NodeId {
        &self.reporter().node
    }

    /// The namespace the node takes part in.
    pub fn namespace(&self) -> Namespace {
        Namespace::new(&self.reporter().namespace).expect("checked when the node started")
    }

    /// The settings the node runs with.
    pub fn settings(&self) -> &Settings {
        &self.host.settings
    }

    /// The clock the node's leases run on.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.reporter().clock)
    }

    /// The node's access to the store. Anything written through it is written without a guard.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The documents of the namespace, and the presences of its nodes.
    pub fn documents(&self) -> Documents {
        let reporter = self.reporter();
        let timeout = self.settings().request_timeout;
        let (store, namespace) = (Arc::clone(&self.lanes.bulk), Arc::clone(&reporter.namespace));
        Documents::new(store, namespace, timeout).below(&self.host.keys)
    }

    /// Leadership as the node sees it, with every change.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.host.leadership.clone()
    }

    /// How long ago the node last saw the seat change, by its own clock: how long the leader has been silent. `None` if it
    /// has not seen the seat.
    pub fn leader_silent(&self) -> Option<Duration> {
        self.reporter().counters.seat_age_ms().map(Duration::from_millis)
    }

    /// How soon the node may claim the seat if the seat does not change until then. `None` if it leads, may not claim, or has not
    /// seen the seat.
    pub fn claims_in(&self) -> Option<Duration> {
        self.reporter().counters.claims_in_ms().map(Duration::from_millis)
    }

    /// Whether somebody else keeps writing the node's presence: two processes run under its id.
    pub fn has_conflict(&self) -> bool {
        self.reporter().counters.has_conflict()
    }

    /// The node's present figures.
    pub fn metrics(&self) -> Metrics {
        self.reporter().counters.metrics()
    }

    /// Latencies of the node's newest heartbeats, oldest first. At most a hundred: the same ones the percentiles are
    /// computed from.
    pub fn heartbeats(&self) -> Vec<Duration> {
        self.reporter().counters.heartbeats().into_iter().map(Duration::from_millis).collect()
    }

    /// The workers of the namespace as the node knows them, leader or not, with every change.
    ///
    /// All nodes but the leader learn of changes from its snapshots, so a few seconds late.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        self.workers.clone()
    }

    /// What the node saw of the workers in its last sweep; empty while it does not lead.
    pub fn seen_workers(&self) -> BTreeMap<WorkerId, SeenWorker> {
        self.registry.seen()
    }

    /// Registers a worker of this process, like [`Node::register_worker`](crate::Node::register_worker). The worker outlives
    /// its node until somebody ends it. Must be called on a tokio runtime.
    pub fn register_worker(&self, spec: &WorkerSpec) -> Result<Worker, Error> {
        self.host.register(spec)
    }

    /// The node's events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.reporter().events.subscribe()
    }

    /// Emits something with the node's events: on its channel and in its log. The wire name gets the node's prefix.
    pub fn emit(&self, epoch: u64, event: PluginEvent) {
        self.reporter().emit(epoch, EventKind::Plugin(event));
    }
}
