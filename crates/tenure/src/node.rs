//! A node: the handle that an application holds. A supervisor keeps its candidate alive.

mod handle;
mod supervisor;

pub use handle::NodeHandle;

use crate::clock::millis;
use crate::clock::{BootClock, Clock};
use crate::documents::Documents;
use crate::election::{Command, ElectionOutputs, Reporter};
use crate::error::Error;
use crate::event::Event;
use crate::fence::Fence;
use crate::guard::{LeaderGuard, Leadership};
use crate::job::Jobs;
use crate::keys::Keys;
use crate::metrics::{Counters, Metrics};
use crate::process::LeadershipSource;
use crate::settings::Settings;
use crate::workers::{SnapshotPointers, Worker, WorkerSpec, Workers};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use supervisor::Supervisor;
use tenure_core::{Namespace, NodeId, PluginName};
use tenure_store::{Lanes, OpenOptions};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// A reader that falls further behind than this learns how many events it missed.
pub(crate) const EVENTS_KEPT: usize = 1024;

/// Why a node ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// Somebody asked it to stop.
    Asked,
    /// The store does not honour conditional writes, so the node refused to take part.
    StoreUnsafe,
}

/// A participating process. Dropping it leaves the namespace in order, in the background; [`shutdown`](Node::shutdown) does
/// the same and waits.
#[derive(Debug)]
pub struct Node {
    handle: NodeHandle,
    commands: mpsc::Sender<Command>,
    fence: Fence,
    ended: watch::Receiver<Option<StopReason>>,
    supervisor: JoinHandle<()>,
    jobs: Jobs,
    sweeper: JoinHandle<()>,
}

/// Builds a [`Node`].
#[derive(Debug)]
pub struct NodeBuilder {
    settings: Settings,
    lanes: Option<Lanes>,
    clock: Arc<dyn Clock>,
    random: Option<u64>,
    plugin: Option<PluginName>,
    floor: u64,
    #[cfg(feature = "explore")]
    watcher: Option<crate::watcher::Watcher>,
    events: broadcast::Sender<Event>,
}

impl NodeBuilder {
    /// Events from the very first one on. A node may emit events before [`Node::events`] can be called; subscribe here if
    /// you must not miss them.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Uses these lanes instead of opening the store that the settings name.
    pub fn lanes(mut self, lanes: Lanes) -> NodeBuilder {
        self.lanes = Some(lanes);
        self
    }

    /// Uses another clock, for tests on paused time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> NodeBuilder {
        self.clock = clock;
        self
    }

    /// The number that decides the startup wait, uniform over `u64`. If not given, every start draws a new one.
    pub fn jitter_random(mut self, random: u64) -> NodeBuilder {
        self.random = Some(random);
        self
    }

    /// Shows each step of the node's coordinator, to check it against the proof.
    #[cfg(feature = "explore")]
    pub fn watcher(mut self, watcher: crate::watcher::Watcher) -> NodeBuilder {
        self.watcher = Some(watcher);
        self
    }

    /// Takes part in the election of one plugin, below `plg_coordinator/<namespace>/<plugin>/`, instead of the namespace's.
    /// For programs that elect something of their own beside it; a [`Plugin`](crate::plugin::Plugin) gets this through its mode.
    pub fn per_plugin(mut self, plugin: &PluginName) -> NodeBuilder {
        self.plugin = Some(plugin.clone());
        self
    }

    /// Claims above this epoch only.
    pub(crate) fn epoch_floor(mut self, floor: u64) -> NodeBuilder {
        self.floor = floor;
        self
    }

    /// Opens the store and starts the candidate. Does not wait for the store to answer: a node whose store is away keeps
    /// trying, and reports it in its events.
    pub async fn start(self) -> Result<Node, Error> {
        let lanes = match &self.lanes {
            Some(lanes) => lanes.clone(),
            None => {
                let timeout = self.settings.request_timeout;
                tenure_store::open(&self.settings.store, &OpenOptions::with_request_timeout(timeout)).await?
            }
        };
        self.start_on(lanes)
    }

    /// Starts the candidate on a store that is open.
    pub(crate) fn start_on(self, lanes: Lanes) -> Result<Node, Error> {
        let namespace = Namespace::new(&self.settings.namespace)?;
        let keys = match &self.plugin {
            Some(plugin) => Keys::per_plugin(&namespace, plugin),
            None => Keys::global(&namespace),
        };
        let clock = crate::mutant::clock(self.clock, millis(self.settings.heartbeat_interval));
        let (commands, inbox) = mpsc::channel(16);
        let (leadership, watcher) = watch::channel(Leadership::default());
        let (end, ended) = watch::channel(None);
        let (handle, fence, jobs) =
            NodeHandle::connect(&self.settings, &keys, lanes, clock, self.events, watcher);
        if let Some(plugin) = &self.plugin {
            handle.reporter().counters.serve([Arc::from(plugin.as_str())].into());
        }
        let pointers = SnapshotPointers::default();
        let sweeper = tokio::spawn(handle.sweeper(pointers.clone()).supervised(ended.clone()));
        let supervisor = Supervisor {
            keys,
            settings: self.settings,
            lanes: handle.lanes.clone(),
            floor: self.floor,
            outputs: ElectionOutputs {
                reporter: handle.reporter().clone(),
                leadership,
                fence: fence.clone(),
                #[cfg(feature = "explore")]
                watcher: self.watcher,
            },
            pointers,
            random: self.random,
            end,
        };
        let supervisor = tokio::spawn(supervisor.run(inbox));
        Ok(Node { handle, commands, fence, ended, supervisor, jobs, sweeper })
    }
}

impl Node {
    /// Starts a node on the store that its settings name.
    pub async fn start(settings: Settings) -> Result<Node, Error> {
        Node::builder(settings).start().await
    }

    /// Builds a node with custom parts.
    pub fn builder(settings: Settings) -> NodeBuilder {
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        NodeBuilder {
            settings,
            lanes: None,
            clock: Arc::new(BootClock),
            random: None,
            plugin: None,
            floor: 0,
            #[cfg(feature = "explore")]
            watcher: None,
            events,
        }
    }

    /// This node's id.
    pub fn id(&self) -> &NodeId {
        self.handle.id()
    }

    /// Leadership as this node sees it, with every change.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.handle.leadership()
    }

    /// Events from now on; [`NodeBuilder::events`] delivers them from the start.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.reporter().events.subscribe()
    }

    /// The fence that hears of every leader change this node sees. Clones share it: give one to every receiver of tasks in
    /// this process.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// The workers of the namespace as this node knows them, leader or not, with every change.
    ///
    /// All nodes but the leader learn of changes from its snapshots, so a few seconds late.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        self.handle.workers()
    }

    /// Registers a worker of this process. The specification is checked at once; the registration itself continues in the
    /// background: [`Worker::registered`] waits for it.
    ///
    /// The worker is enabled while this node leads.
    pub fn register_worker(&self, spec: WorkerSpec) -> Result<Worker, Error> {
        self.handle.register_worker(&spec)
    }

    /// Where this namespace's jobs are: for [`job::Dispatcher::start`](crate::job::Dispatcher::start) on the leader and
    /// [`job::JobRunner::start`](crate::job::JobRunner::start) on workers.
    pub fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }

    /// The documents of the namespace: for a [`FencedDocument`](crate::FencedDocument) while this node leads, and for reading.
    pub fn documents(&self) -> Documents {
        self.handle.documents()
    }

    /// What plugins and servers use of this node, without holding it.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// How coordination is doing and what it costs, as measured by this node.
    pub fn metrics(&self) -> Metrics {
        self.handle.metrics()
    }

    /// Adds these figures to the application's own registry, where they are read at every scrape. For several nodes in one
    /// registry, use [`metrics::register`](crate::metrics::register).
    pub fn register(&self, registry: &mut Registry) {
        crate::metrics::register(registry, [self]);
    }

    /// These figures in a registry of their own.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        self.register(&mut registry);
        registry
    }

    /// Where plugins add their own figures to these.
    pub fn plugin_figures(&self) -> crate::metrics::PluginFigures {
        crate::metrics::PluginFigures(self.counters())
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.reporter().counters)
    }

    /// For whoever emits events in this node's name.
    pub(crate) fn reporter(&self) -> &Reporter {
        self.handle.reporter()
    }

    /// This node's access to the store, counted with its own requests.
    pub(crate) fn lanes(&self) -> &Lanes {
        self.handle.lanes()
    }

    /// Claims above this epoch from now on. A leader whose epoch is not above it hands over, to claim again.
    pub(crate) async fn raise(&self, above: u64) {
        // A node that has ended claims nothing any more.
        let _ = self.commands.send(Command::Raise(above)).await;
    }

    /// Leaves in order, like [`shutdown`](Node::shutdown), while others still hold the node.
    pub(crate) async fn leave(&self) -> StopReason {
        let _ = self.commands.send(Command::Stop).await;
        self.ended().await
    }

    /// Waits until this node leads. `None` once it can no longer lead, because it was stopped.
    ///
    /// Returns at once while the node already leads: a loop over it should wait for the guard to [end](LeaderGuard::ended)
    /// before it asks again.
    pub async fn lead(&self) -> Option<LeaderGuard> {
        let mut leadership = self.leadership();
        loop {
            if let Some(guard) = leadership.borrow_and_update().guard() {
                return Some(guard);
            }
            leadership.changed().await.ok()?;
        }
    }

    /// Hands leadership over and continues as a standby. Completes when this node no longer leads.
    pub async fn step_down(&self) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.commands.send(Command::StepDown(reply)).await.map_err(|_| Error::not_leading())?;
        match done.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Error::not_leading()),
        }
    }

    /// Hands leadership over like [`step_down`](Node::step_down), and claims nothing for this long: this node cannot do the
    /// leader's work for now. A [`Supervisor`](crate::process::Supervisor) requests this when its processes cannot run.
    pub async fn stand_aside(&self, hold: Duration) -> Result<(), Error> {
        stand_aside(self.commands.clone(), hold).await
    }

    /// For a supervisor of processes. It must not keep the node alive.
    pub(crate) fn leadership_source(&self) -> LeadershipSource {
        let commands = self.commands.downgrade();
        let stand_aside = move |hold| {
            let commands = commands.upgrade();
            async move { stand_aside(commands.ok_or_else(Error::not_leading)?, hold).await }
        };
        let (leadership, reporter) = (self.leadership(), self.reporter().clone());
        LeadershipSource::new(leadership, reporter, self.handle.host.drain(), stand_aside)
    }

    /// Completes when the node has ended, for whatever reason.
    pub async fn ended(&self) -> StopReason {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.unwrap_or(StopReason::Asked),
            Err(_) => StopReason::Asked,
        }
    }

    /// Leaves in order: stops work and waits for it, vacates the seat, and removes the presence.
    pub async fn shutdown(self) -> StopReason {
        // A node that has already ended takes no commands.
        let _ = self.commands.send(Command::Stop).await;
        let reason = self.ended().await;
        let _ = self.supervisor.await;
        let _ = self.sweeper.await;
        reason
    }
}

async fn stand_aside(commands: mpsc::Sender<Command>, hold: Duration) -> Result<(), Error> {
    let (reply, done) = oneshot::channel();
    let command = Command::StandAside(millis(hold), reply);
    commands.send(command).await.map_err(|_| Error::not_leading())?;
    // A waiting caller must not keep the node from leaving.
    drop(commands);
    if done.await.unwrap_or(false) { Ok(()) } else { Err(Error::not_leading()) }
}
