//! The handle of an attached plugin.

use super::fallback::PluginCommand;
use super::service::{Service, Slot};
use super::{Mode, PluginView};
use crate::error::Error;
use crate::event::Event;
use crate::fence::Fence;
use crate::guard::Leadership;
use crate::job::Jobs;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::process::LeadershipSource;
use crate::workers::{Worker, WorkerSpec, Workers};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::PluginName;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An attached plugin. Dropping it detaches the plugin in the background; [`detach`](PluginHandle::detach) waits.
#[derive(Debug)]
pub struct PluginHandle {
    /// `None` once it is being detached.
    attached: Option<Attached>,
}

pub(super) struct Attached {
    pub(super) name: PluginName,
    pub(super) slot: Arc<Slot>,
    pub(super) leave: CancellationToken,
    pub(super) callbacks: [JoinHandle<()>; 2],
    pub(super) election: PluginElection,
}

/// Who decides when this plugin leads.
pub(super) enum PluginElection {
    /// Its own node, as its settings say.
    Own { node: Arc<Node>, mode: watch::Receiver<Mode> },
    /// The namespace's service, or its own node once that is refused.
    Shared {
        service: Arc<Service>,
        view: PluginView,
        commands: mpsc::Sender<PluginCommand>,
        fallback: JoinHandle<()>,
    },
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin {} ({})", self.name, self.mode().borrow().as_str())
    }
}

impl Attached {
    fn mode(&self) -> watch::Receiver<Mode> {
        match &self.election {
            PluginElection::Own { mode, .. } => mode.clone(),
            PluginElection::Shared { view, .. } => view.mode.subscribe(),
        }
    }

    /// Ends the plugin first, then its own node, then, if it was the last, the service.
    async fn end(self) {
        self.leave.cancel();
        for task in self.callbacks {
            let _ = task.await;
        }
        match self.election {
            PluginElection::Own { node, .. } => drop(node.leave().await),
            PluginElection::Shared { commands, fallback, .. } => {
                let _ = commands.send(PluginCommand::Leave).await;
                let _ = fallback.await;
            }
        }
        self.slot.release(&self.name).await;
    }
}

impl PluginHandle {
    pub(super) fn new(attached: Attached) -> PluginHandle {
        PluginHandle { attached: Some(attached) }
    }

    fn attached(&self) -> &Attached {
        self.attached.as_ref().expect("taken only by `detach` and `drop`, which end the handle")
    }

    /// The name the plugin was attached with.
    pub fn name(&self) -> &str {
        self.attached().name.as_str()
    }

    /// How the plugin coordinates at present.
    pub fn mode(&self) -> Mode {
        *self.watch_mode().borrow()
    }

    /// How the plugin coordinates, with every change.
    pub fn watch_mode(&self) -> watch::Receiver<Mode> {
        self.attached().mode()
    }

    /// Leadership by the seat that lets this plugin act: continuous, whichever that is.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.leadership(),
            PluginElection::Shared { view, .. } => view.leadership.subscribe(),
        }
    }

    /// This plugin's fence: it hears of every epoch of either seat. Clones share it.
    pub fn fence(&self) -> Fence {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.fence(),
            PluginElection::Shared { view, .. } => view.fence.clone(),
        }
    }

    /// The events this plugin receives, from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.events(),
            PluginElection::Shared { view, .. } => view.events.subscribe(),
        }
    }

    /// The figures of the node whose election this plugin takes part in: the shared one, or its own.
    pub fn metrics(&self) -> Metrics {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.metrics(),
            PluginElection::Shared { service, view, .. } => {
                let own = view.own_counters.lock().clone();
                // The fence is the plugin's, and existed before its own election.
                let epoch_drift_events = view.fence.stale_tasks();
                own.map_or_else(
                    || service.metrics(),
                    |counters| Metrics { epoch_drift_events, ..counters.metrics() },
                )
            }
        }
    }

    /// Registers a worker of this plugin. It is enabled while the plugin leads, by whichever seat, and its object is beside
    /// that seat: it moves with the plugin into fallback, and the handle stays.
    pub fn register_worker(&self, spec: &WorkerSpec) -> Result<Worker, Error> {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.register_worker(spec.clone()),
            PluginElection::Shared { service, view, .. } => {
                let host = service.node().handle().host;
                host.of_plugin(view.keys.subscribe(), view.leadership.subscribe()).register(spec)
            }
        }
    }

    /// Where this plugin's jobs are: the namespace's in global mode, its own in per-plugin mode and in fallback. It follows
    /// the plugin: a runner moves along, and a dispatcher works where the plugin was when the dispatcher started. Jobs in
    /// the namespace's ledger when the store refused it cannot be reached from here; they wait there for a leader that may
    /// write it.
    pub fn jobs(&self) -> Jobs {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.jobs(),
            PluginElection::Shared { service, view, .. } => Jobs {
                fence: view.fence.clone(),
                keys: view.keys.subscribe(),
                workers: view.workers.subscribe(),
                ..service.node().jobs()
            },
        }
    }

    /// The workers of the namespace; in per-plugin mode and in fallback, only those of this plugin.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.workers(),
            PluginElection::Shared { view, .. } => view.workers.subscribe(),
        }
    }

    /// The service this plugin shares; `None` in per-plugin mode. In fallback, it is the one that was refused.
    pub fn service(&self) -> Option<Arc<Service>> {
        match &self.attached().election {
            PluginElection::Own { .. } => None,
            PluginElection::Shared { service, .. } => Some(Arc::clone(service)),
        }
    }

    /// Hands leadership over. In global mode that is the whole namespace's: every plugin of this process is demoted.
    pub async fn step_down(&self) -> Result<(), Error> {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.step_down().await,
            PluginElection::Shared { commands, .. } => ask(commands.clone(), None).await,
        }
    }

    /// Like [`step_down`](PluginHandle::step_down), and the node claims nothing for this long; see [`Node::stand_aside`].
    pub async fn stand_aside(&self, hold: Duration) -> Result<(), Error> {
        match &self.attached().election {
            PluginElection::Own { node, .. } => node.stand_aside(hold).await,
            PluginElection::Shared { commands, .. } => ask(commands.clone(), Some(hold)).await,
        }
    }

    /// For a supervisor of processes. It must not keep the plugin attached.
    pub(crate) fn leadership_source(&self) -> LeadershipSource {
        match &self.attached().election {
            PluginElection::Own { node, .. } => LeadershipSource::from(&**node),
            PluginElection::Shared { service, view, commands, .. } => {
                let commands = commands.downgrade();
                let stand_aside = move |hold| {
                    let commands = commands.upgrade();
                    async move { ask(commands.ok_or_else(Error::not_leading)?, Some(hold)).await }
                };
                LeadershipSource::from(&**service).led_by(view.leadership.subscribe(), stand_aside)
            }
        }
    }

    /// Stops the plugin's work and waits for it; then leaves its own election, or, if it was the last, the shared one.
    pub async fn detach(mut self) {
        if let Some(attached) = self.attached.take() {
            attached.end().await;
        }
    }
}

async fn ask(commands: mpsc::Sender<PluginCommand>, hold: Option<Duration>) -> Result<(), Error> {
    let (reply, done) = oneshot::channel();
    commands.send(PluginCommand::StepDown(hold, reply)).await.map_err(|_| Error::not_leading())?;
    drop(commands);
    done.await.map_err(|_| Error::not_leading())?
}

impl Drop for PluginHandle {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(attached.end());
        }
    }
}
