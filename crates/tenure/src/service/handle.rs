//! The handle of an attached plugin.

use super::keeper::{Command, Face};
use super::{Service, Slot, mover};
use crate::error::Error;
use crate::event::Event;
use crate::fence::Fence;
use crate::guard::Leadership;
use crate::job::Jobs;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::plugin::Mode;
use crate::process::{Parts, StandAside};
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
    pub(super) host: [JoinHandle<()>; 2],
    pub(super) arbiter: ArbiterHandle,
}

/// Who decides when this plugin leads.
pub(super) enum ArbiterHandle {
    /// Its own node, as its settings say.
    Own { node: Arc<Node>, mode: watch::Receiver<Mode> },
    /// The namespace's service, or its own node once that is refused.
    Shared { service: Arc<Service>, face: Face, commands: mpsc::Sender<Command>, keeper: JoinHandle<()> },
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin {} ({})", self.name, self.mode().borrow().as_str())
    }
}

impl Attached {
    fn mode(&self) -> watch::Receiver<Mode> {
        match &self.arbiter {
            ArbiterHandle::Own { mode, .. } => mode.clone(),
            ArbiterHandle::Shared { face, .. } => face.mode.subscribe(),
        }
    }

    /// Ends the plugin first, then its own node, then, if it was the last, the service.
    async fn end(self) {
        self.leave.cancel();
        for task in self.host {
            let _ = task.await;
        }
        match self.arbiter {
            ArbiterHandle::Own { node, .. } => drop(node.leave().await),
            ArbiterHandle::Shared { commands, keeper, .. } => {
                let _ = commands.send(Command::Leave).await;
                let _ = keeper.await;
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

    /// Leadership by the arbiter in force: continuous, whichever that is.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.leadership(),
            ArbiterHandle::Shared { face, .. } => face.leadership.subscribe(),
        }
    }

    /// This plugin's fence: it hears of every epoch of whichever arbiter is in force. Clones share it.
    pub fn fence(&self) -> Fence {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.fence(),
            ArbiterHandle::Shared { face, .. } => face.fence.clone(),
        }
    }

    /// The events this plugin receives, from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.events(),
            ArbiterHandle::Shared { face, .. } => face.events.subscribe(),
        }
    }

    /// The figures of the node whose election this plugin takes part in: the shared one, or its own.
    pub fn metrics(&self) -> Metrics {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.metrics(),
            ArbiterHandle::Shared { service, face, .. } => {
                let own = face.own.lock().clone();
                // The fence is the plugin's, and existed before its own election.
                let epoch_drift_events = face.fence.stale_tasks();
                own.map_or_else(
                    || service.metrics(),
                    |counters| Metrics { epoch_drift_events, ..counters.metrics() },
                )
            }
        }
    }

    /// Registers a worker of this plugin. It is enabled while the plugin leads, whichever arbiter decides that, and its
    /// object is where that arbiter is: it moves with the plugin into fallback, and the handle stays.
    pub fn register_worker(&self, spec: &WorkerSpec) -> Result<Worker, Error> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.register_worker(spec.clone()),
            ArbiterHandle::Shared { service, face, .. } => mover::register(service, face, spec),
        }
    }

    /// Where this plugin's jobs are: the namespace's in global mode, its own in per-plugin mode and in fallback. It follows
    /// the plugin: a runner moves along, and a dispatcher works where the plugin was when the dispatcher started. Jobs in
    /// the namespace's ledger when the store refused it cannot be reached from here; they wait there for a leader that may
    /// write it.
    pub fn jobs(&self) -> Jobs {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.jobs(),
            ArbiterHandle::Shared { service, face, .. } => Jobs {
                fence: face.fence.clone(),
                keys: face.keys.subscribe(),
                workers: face.workers.subscribe(),
                ..service.node.jobs()
            },
        }
    }

    /// The workers of the namespace; in per-plugin mode and in fallback, only those of this plugin.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.workers(),
            ArbiterHandle::Shared { face, .. } => face.workers.subscribe(),
        }
    }

    /// The service this plugin shares; `None` in per-plugin mode. In fallback, it is the one that was refused.
    pub fn service(&self) -> Option<Arc<Service>> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { .. } => None,
            ArbiterHandle::Shared { service, .. } => Some(Arc::clone(service)),
        }
    }

    /// Hands leadership over. In global mode that is the whole namespace's: every plugin of this process is demoted.
    pub async fn step_down(&self) -> Result<(), Error> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.step_down().await,
            ArbiterHandle::Shared { commands, .. } => ask(commands.clone(), None).await,
        }
    }

    /// Like [`step_down`](PluginHandle::step_down), and the node claims nothing for this long; see [`Node::stand_aside`].
    pub async fn stand_aside(&self, hold: Duration) -> Result<(), Error> {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.stand_aside(hold).await,
            ArbiterHandle::Shared { commands, .. } => ask(commands.clone(), Some(hold)).await,
        }
    }

    /// What a process supervisor needs. It must not keep the plugin attached.
    pub(crate) fn process_parts(&self) -> Parts {
        match &self.attached().arbiter {
            ArbiterHandle::Own { node, .. } => node.process_parts(),
            ArbiterHandle::Shared { service, face, commands, .. } => {
                let commands = commands.downgrade();
                let stand_aside: StandAside = Arc::new(move |hold| {
                    let commands = commands.upgrade();
                    Box::pin(async move { ask(commands.ok_or_else(Error::not_leading)?, Some(hold)).await })
                });
                Parts { leadership: face.leadership.subscribe(), stand_aside, ..service.node.process_parts() }
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

async fn ask(commands: mpsc::Sender<Command>, hold: Option<Duration>) -> Result<(), Error> {
    let (reply, done) = oneshot::channel();
    commands.send(Command::StepDown(hold, reply)).await.map_err(|_| Error::not_leading())?;
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
