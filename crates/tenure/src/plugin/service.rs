//! Services: one election for all plugins of a namespace in one process.

use super::callbacks::Callbacks;
use super::handle::{Attached, PluginElection, PluginHandle};
use super::{Mode, Plugin, PluginView, fallback};
use crate::clock::{BootClock, Clock};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::fence::Fence;
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::node::{Node, NodeBuilder};
use crate::settings::{CoordinationMode, Settings};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tenure_core::{FenceRule, Role};
use tenure_core::{Namespace, PluginName};
use tenure_store::{Lanes, OpenOptions};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A reader of a plugin's events that falls further behind than this learns how many it missed.
const EVENTS_KEPT: usize = 1024;

/// The services of a process: one per store and namespace. Clones share the table.
#[derive(Clone, Default)]
pub struct Services {
    table: Arc<Mutex<Table>>,
    hooks: Hooks,
}

/// Keyed by store and namespace.
type Table = BTreeMap<(String, String), Arc<Slot>>;

/// Replacements that tests inject.
#[derive(Clone, Default)]
struct Hooks {
    lanes: Option<Lanes>,
    clock: Option<Arc<dyn Clock>>,
    random: Option<u64>,
}

impl Hooks {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone().unwrap_or_else(|| Arc::new(BootClock))
    }

    fn builder(&self, settings: &Settings, lanes: &Lanes) -> NodeBuilder {
        let builder = Node::builder(settings.clone()).lanes(lanes.clone()).clock(self.clock());
        match self.random {
            Some(random) => builder.jitter_random(random),
            None => builder,
        }
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.table.lock().keys()).finish()
    }
}

impl Services {
    /// A separate table: a process within the process, for tests with several processes.
    pub fn new() -> Services {
        Services::default()
    }

    /// The process's own table: every caller gets the same one, so plugins find each other wherever they are attached.
    ///
    /// A service runs on the runtime on which its first plugin was attached, and ends with it.
    pub fn process() -> Services {
        static PROCESS: OnceLock<Services> = OnceLock::new();
        PROCESS.get_or_init(Services::default).clone()
    }

    /// Uses these lanes instead of opening the store that the settings name.
    #[must_use]
    pub fn lanes(mut self, lanes: Lanes) -> Services {
        self.hooks.lanes = Some(lanes);
        self
    }

    /// Uses another clock, for tests on paused time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Services {
        self.hooks.clock = Some(clock);
        self
    }

    /// The number that decides startup waits, uniform over `u64`; drawn at random if not given.
    #[must_use]
    pub fn jitter_random(mut self, random: u64) -> Services {
        self.hooks.random = Some(random);
        self
    }

    /// Attaches a plugin to the election its settings ask for.
    ///
    /// With `coordinationMode` `global` it shares the namespace's service, which the first such plugin starts with *its*
    /// settings. If a later plugin asks for something else, one warning says so, and nothing changes. With any other mode
    /// the plugin gets its own election. Does not wait for the store to answer.
    pub async fn attach(&self, plugin: impl Plugin, settings: Settings) -> Result<PluginHandle, Error> {
        settings.check()?;
        let name = PluginName::new(plugin.name())
            .map_err(|error| Error::new(ErrorKind::Invalid, format_args!("plugin name: {error}")))?;
        let namespace = Namespace::new(&settings.namespace)?;
        let slot = self.slot(&settings);
        let mut state = slot.state.lock().await;
        if state.names.contains_key(&name) {
            let sentence = format_args!(
                "namespace {namespace} already has a plugin {:?} in this process: names must be unique",
                name.as_str()
            );
            return Err(Error::new(ErrorKind::Taken, sentence));
        }
        let plugin: Arc<dyn Plugin> = Arc::new(plugin);
        let (election, callbacks, leave) = match settings.coordination_mode {
            CoordinationMode::PerPlugin => self.alone(&name, plugin, &settings).await?,
            CoordinationMode::Global => {
                let service = match &state.service {
                    Some(service) => Arc::clone(service),
                    None => {
                        let service = Service::start(&self.hooks, &settings, &namespace).await?;
                        state.service = Some(Arc::clone(&service));
                        service
                    }
                };
                service.compare(&name, &settings);
                service.share(name.clone(), plugin, settings.fence_rule_beside(&service.settings))
            }
        };
        state.names.insert(name.clone(), settings.coordination_mode);
        state.announce();
        drop(state);
        Ok(PluginHandle::new(Attached { name, slot, leave, callbacks, election }))
    }

    /// The services running now, each with its plugins.
    pub async fn services(&self) -> Vec<Arc<Service>> {
        let slots: Vec<Arc<Slot>> = self.table.lock().values().cloned().collect();
        let mut services = Vec::new();
        for slot in slots {
            services.extend(slot.state.lock().await.service.clone());
        }
        services
    }

    fn slot(&self, settings: &Settings) -> Arc<Slot> {
        let key = (settings.store.to_string(), settings.namespace.clone());
        let mut table = self.table.lock();
        Arc::clone(table.entry(key).or_default())
    }

    /// Gives the plugin its own election. It does not look at the global seat: that may belong to somebody else's election
    /// (`tenure run`), and waiting for it would break deployments that never asked for it.
    async fn alone(
        &self,
        name: &PluginName,
        plugin: Arc<dyn Plugin>,
        settings: &Settings,
    ) -> Result<(PluginElection, [JoinHandle<()>; 2], CancellationToken), Error> {
        let lanes = open(&self.hooks, settings).await?;
        let builder = self.hooks.builder(settings, &lanes).per_plugin(name);
        let events = builder.events();
        let node = builder.start().await?;
        let callbacks = Callbacks::new(plugin, node.leadership(), node.reporter().clone(), settings);
        let leave = callbacks.leave.clone();
        let mode = watch::Sender::new(Mode::PerPlugin).subscribe();
        Ok((PluginElection::Own { node: Arc::new(node), mode }, callbacks.start(events), leave))
    }
}

async fn open(hooks: &Hooks, settings: &Settings) -> Result<Lanes, Error> {
    match &hooks.lanes {
        Some(lanes) => Ok(lanes.clone()),
        None => {
            let timeout = settings.request_timeout;
            Ok(tenure_store::open(&settings.store, &OpenOptions::with_request_timeout(timeout)).await?)
        }
    }
}

/// What a process has on one store and namespace. Stays when empty: there are only as many as namespaces.
#[derive(Default)]
pub(super) struct Slot {
    /// Held across starting and ending, so that whoever arrives in the meantime waits for the outcome.
    state: tokio::sync::Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    names: BTreeMap<PluginName, CoordinationMode>,
    service: Option<Arc<Service>>,
}

impl SlotState {
    fn shared(&self) -> Vec<Arc<str>> {
        let shared = self.names.iter().filter(|(_, mode)| **mode == CoordinationMode::Global);
        shared.map(|(name, _)| Arc::from(name.as_str())).collect()
    }

    /// Tells the service which plugins it serves.
    fn announce(&self) {
        if let Some(service) = &self.service {
            service.node.counters().serve(self.shared().into());
        }
    }
}

impl Slot {
    /// A plugin is gone. The service goes with the last one.
    pub(super) async fn release(&self, name: &PluginName) {
        let mut state = self.state.lock().await;
        state.names.remove(name);
        if state.shared().is_empty()
            && let Some(service) = state.service.take()
        {
            service.end().await;
        }
        state.announce();
    }
}

/// One election, shared by every plugin of a namespace in this process that asked for it.
pub struct Service {
    node: Node,
    settings: Settings,
    namespace: Namespace,
    lanes: Lanes,
    hooks: Hooks,
    /// What the store said when it refused the global seat; from then on this process is out of that election.
    refused: watch::Sender<Option<Arc<str>>>,
    ended: CancellationToken,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service of {} with {:?}", self.namespace, self.plugins())
    }
}

impl Service {
    async fn start(hooks: &Hooks, settings: &Settings, namespace: &Namespace) -> Result<Arc<Service>, Error> {
        let lanes = open(hooks, settings).await?;
        let node = hooks.builder(settings, &lanes).start().await?;
        let service = Arc::new(Service {
            node,
            settings: settings.clone(),
            namespace: namespace.clone(),
            lanes,
            hooks: hooks.clone(),
            refused: watch::Sender::new(None),
            ended: CancellationToken::new(),
        });
        let (mine, ended) = (Arc::clone(&service), service.ended.clone());
        tokio::spawn(async move { ended.run_until_cancelled(mine.leave_if_refused()).await });
        Ok(service)
    }

    /// Once the store refuses the global seat, this process leaves that election for good. If it leads, it first keeps its
    /// lease: the lease may well outlast the refusal, and a store that refuses only presences must not make a leader come
    /// and go.
    async fn leave_if_refused(&self) {
        let (mut denied, mut leadership) = (self.node.counters().denied(), self.node.leadership());
        let rests = |now: &Leadership| !matches!(now.role, Some(Role::Leader | Role::Draining));
        let detail = loop {
            let refused = denied.wait_for(Option::is_some).await.is_ok();
            if !(refused && leadership.wait_for(rests).await.is_ok()) {
                return;
            }
            // It may have changed its mind in the meantime.
            if let Some(detail) = denied.borrow().clone() {
                break detail;
            }
        };
        // The node is told to leave first, and claims nothing from then on. It does not matter how long it takes to give up
        // on what the store refuses; it does matter that it may have won just now.
        let tell = async {
            let _ = leadership.wait_for(rests).await;
            self.refused.send_replace(Some(detail));
        };
        tokio::join!(biased; self.node.leave(), tell);
    }

    /// What the store said when it refused the global seat, once it has and this process no longer takes part.
    pub(super) fn refused(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.refused.subscribe()
    }

    pub(super) fn namespace_id(&self) -> &Namespace {
        &self.namespace
    }

    /// The name of the namespace.
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// The plugins that share it, in name order.
    pub fn plugins(&self) -> Vec<String> {
        self.node.counters().plugins().iter().map(ToString::to_string).collect()
    }

    /// The settings it runs with: those of the first plugin.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The node that takes part in the election.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The figures of its node.
    pub fn metrics(&self) -> Metrics {
        self.node.metrics()
    }

    /// The events of its node, from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.node.events()
    }

    /// Warns about what a later plugin asked for and does not get.
    fn compare(&self, plugin: &PluginName, settings: &Settings) {
        let differences = settings.differences(&self.settings);
        if !differences.is_empty() {
            tracing::warn!(
                target: "tenure",
                namespace = self.namespace(),
                plugin = plugin.as_str(),
                "the service keeps the settings of its first plugin while it runs: {}",
                differences.join(", ")
            );
        }
    }

    /// Lets a plugin take part.
    fn share(
        self: &Arc<Service>,
        name: PluginName,
        plugin: Arc<dyn Plugin>,
        rule: FenceRule,
    ) -> (PluginElection, [JoinHandle<()>; 2], CancellationToken) {
        let (events, heard) = broadcast::channel(EVENTS_KEPT);
        let fence = Fence::counting(rule, self.hooks.clock(), self.node.counters().drift());
        let view = PluginView {
            leadership: watch::Sender::new(Leadership::default()),
            mode: watch::Sender::new(Mode::Global),
            keys: watch::Sender::new(Keys::global(&self.namespace)),
            workers: watch::Sender::new(self.node.workers().borrow().clone()),
            events,
            fence,
            own_counters: Arc::default(),
        };
        let reporter = self.node.reporter().clone();
        let callbacks = Callbacks::new(plugin, view.leadership.subscribe(), reporter, &self.settings);
        let leave = callbacks.leave.clone();
        let callbacks = callbacks.start(heard);
        let (commands, inbox) = mpsc::channel(16);
        let fallback = fallback::start(name, Arc::clone(self), view.clone(), inbox);
        (PluginElection::Shared { service: Arc::clone(self), view, commands, fallback }, callbacks, leave)
    }

    /// A node for one plugin's own election, with the same settings.
    pub(super) fn own_node(&self, plugin: &PluginName) -> NodeBuilder {
        self.hooks.builder(&self.settings, &self.lanes).per_plugin(plugin)
    }

    /// The store as it was opened: every node counts its own requests.
    pub(super) fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    async fn end(&self) {
        self.ended.cancel();
        self.node.leave().await;
    }
}
