//! A worker of this process: the handle, and the host of the registration that keeps its object fresh.

use super::codec::WorkerCodec;
use super::registry::WorkerInfo;
use super::spec::WorkerSpec;
use crate::clock::millis;
use crate::documents::{DocumentClient, Documents};
use crate::election::Reporter;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::guard::{LeaderGuard, Leadership};
use crate::keys::Keys;
use crate::settings::Settings;
use crate::shell::{self, Happening, Shell, or_never};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest};
use tenure_core::machine::Now;
use tenure_core::{
    Incarnation, RegisteredBy, Registration, RegistrationCommand, RegistrationConfig, RegistrationEnd,
    RegistrationEvent, RegistrationOutput,
};
use tenure_core::{NodeId, WorkerId};
use tenure_store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Where workers register: a store, a place in it, and a source of leadership.
#[derive(Clone)]
pub(crate) struct WorkerHost {
    documents: Documents,
    pub(crate) keys: Keys,
    /// Says where a plugin's workers are, now and later.
    follows: Option<watch::Receiver<Keys>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) reporter: Reporter,
    pub(crate) leadership: watch::Receiver<Leadership>,
}

impl std::fmt::Debug for WorkerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkerHost({})", self.keys.workers())
    }
}

impl WorkerHost {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keys: Keys,
        settings: Arc<Settings>,
        reporter: Reporter,
        leadership: watch::Receiver<Leadership>,
    ) -> WorkerHost {
        let timeout = settings.request_timeout;
        let documents = Documents::new(store, Arc::clone(&reporter.namespace), timeout);
        WorkerHost { documents, keys, follows: None, settings, reporter, leadership }
    }

    /// The same for a plugin. Its workers go with it from place to place, under one handle: what enables them is the plugin's
    /// leadership, not where their objects are. They end when it has left.
    pub(crate) fn of_plugin(
        self,
        mut keys: watch::Receiver<Keys>,
        leadership: watch::Receiver<Leadership>,
    ) -> WorkerHost {
        let here = keys.borrow_and_update().clone();
        WorkerHost { keys: here, follows: Some(keys), leadership, ..self }
    }

    /// How long work may take to stop, according to the same settings.
    pub(crate) fn drain(&self) -> Duration {
        self.settings.drain_timeout
    }

    pub(crate) fn register(&self, spec: &WorkerSpec) -> Result<Worker, Error> {
        let spec = spec.check(&self.settings)?;
        let info = WorkerInfo {
            worker_id: spec.worker_id.clone(),
            plugin_type: spec.plugin_type.clone(),
            pod: spec.pod.clone(),
            timeout: Duration::from_millis(spec.timeout_ms),
            active: true,
        };
        let incarnation = Incarnation(rand::random());
        let heartbeat_ms = millis(self.settings.worker_heartbeat_interval);
        let (status, watcher) =
            watch::channel(WorkerStatus { life: Some(incarnation), ..WorkerStatus::default() });
        let (stop, silent) = (CancellationToken::new(), CancellationToken::new());
        let config = RegistrationConfig { heartbeat_ms, incarnation, pod: spec.pod.clone() };
        let started_at = Arc::from(format!("{:.3}", jiff::Timestamp::now()));
        let codec = WorkerCodec { spec: Arc::new(spec), started_at };
        let host = Host {
            object: self.documents.at(self.keys.worker(&info.worker_id), codec.clone()),
            reporter: self.reporter.clone(),
            info: info.clone(),
            leadership: self.leadership.clone(),
            watching: true,
            status,
            started: false,
            follows: self.follows.clone(),
            moving: false,
            stop: stop.clone(),
            stopping: false,
            silent: silent.clone(),
        };
        tokio::spawn(host.live(config, self.documents.clone(), codec));
        Ok(Worker { info, leadership: self.leadership.clone(), status: watcher, stop, silent })
    }
}

/// The state of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The state of its registration.
    pub phase: WorkerPhase,
    /// Whether it was enabled when this was sent. Before each piece of work ask [`Worker::enabled`], which checks the clock.
    pub enabled: bool,
    /// The incarnation it is registered with.
    pub(crate) life: Option<Incarnation>,
}

/// The state of a registration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum WorkerPhase {
    /// Not confirmed yet: the store does not answer, or another process is being watched.
    #[default]
    Registering,
    /// The worker has its id.
    Registered,
    /// The worker has ended.
    Ended(WorkerEnd),
}

/// Why a worker ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WorkerEnd {
    /// It was asked to deregister, or was dropped.
    Deregistered,
    /// It never had the id.
    Refused(Error),
    /// Another process took over the id while this one was silent.
    Superseded {
        /// The pod the other process runs on.
        pod: NodeId,
        /// The other process's incarnation, as 16 hex digits.
        incarnation: String,
    },
    /// It was told to [fall silent](Worker::fall_silent).
    Silent,
    /// The task that kept it alive died.
    Died,
}

/// A registered worker of this process. Dropping it deregisters in the background; [`deregister`](Worker::deregister) does
/// the same and waits.
///
/// It keeps going whatever the store does; only another process under its id ends it.
#[derive(Debug)]
pub struct Worker {
    info: WorkerInfo,
    leadership: watch::Receiver<Leadership>,
    status: watch::Receiver<WorkerStatus>,
    stop: CancellationToken,
    silent: CancellationToken,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Worker {
    /// The worker's id.
    pub fn id(&self) -> &WorkerId {
        &self.info.worker_id
    }

    /// What it says about itself.
    pub fn info(&self) -> &WorkerInfo {
        &self.info
    }

    /// Waits until it has its id, or cannot have it.
    pub async fn registered(&self) -> Result<(), Error> {
        let mut status = self.status.clone();
        let done = status.wait_for(|status| status.phase != WorkerPhase::Registering).await;
        match done.map(|status| status.phase.clone()) {
            Ok(WorkerPhase::Registered) => Ok(()),
            Ok(WorkerPhase::Ended(WorkerEnd::Refused(error))) => Err(error),
            Ok(WorkerPhase::Ended(_) | WorkerPhase::Registering) | Err(_) => {
                Err(Error::new(ErrorKind::Ended, "the worker is no longer registered"))
            }
        }
    }

    /// Whether it may work at this very moment: it has its id, and its pod leads, by the clock.
    ///
    /// A process that was paused past the end of its lease gets `false` here before it learns anything else.
    pub fn enabled(&self) -> bool {
        self.holds_id() && self.leadership.borrow().is_leader()
    }

    /// The guard to work under, while it is enabled. Like every guard, it counts as work in progress until it is dropped.
    pub fn guard(&self) -> Option<LeaderGuard> {
        if self.holds_id() { self.leadership.borrow().guard() } else { None }
    }

    fn holds_id(&self) -> bool {
        self.status.borrow().phase == WorkerPhase::Registered
    }

    /// The state of the worker, with every change.
    pub fn status(&self) -> watch::Receiver<WorkerStatus> {
        self.status.clone()
    }

    /// Waits until it has ended, and returns why.
    pub async fn ended(&self) -> WorkerEnd {
        let mut status = self.status.clone();
        let ended = status.wait_for(|status| matches!(status.phase, WorkerPhase::Ended(_))).await;
        match ended.map(|status| status.phase.clone()) {
            Ok(WorkerPhase::Ended(end)) => end,
            Ok(WorkerPhase::Registering | WorkerPhase::Registered) | Err(_) => WorkerEnd::Died,
        }
    }

    /// Ends silently, as a crash would: its object stays but is no longer refreshed, and the leader reports its timeout.
    pub fn fall_silent(&self) {
        self.silent.cancel();
    }

    /// Removes its object and ends. Bounded: if the store is away it gives up after a few requests, and the leader's
    /// retention does the rest.
    pub async fn deregister(self) -> WorkerEnd {
        self.stop.cancel();
        self.ended().await
    }
}

/// The end of a registration.
enum End {
    /// The worker has ended.
    Ended,
    /// It goes on elsewhere.
    Moved,
}

/// The world around a registration.
#[derive(Clone)]
struct Host {
    object: DocumentClient<WorkerCodec>,
    reporter: Reporter,
    info: WorkerInfo,
    leadership: watch::Receiver<Leadership>,
    /// The channel is open: a closed one is always ready.
    watching: bool,
    status: watch::Sender<WorkerStatus>,
    started: bool,
    follows: Option<watch::Receiver<Keys>>,
    moving: bool,
    stop: CancellationToken,
    stopping: bool,
    silent: CancellationToken,
}

impl shell::Host<Registration> for Host {
    type End = End;

    fn carry(
        &self,
        request: DocumentRequest<RegisteredBy>,
    ) -> impl Future<Output = DocumentAnswer<RegisteredBy>> + Send + 'static {
        let object = self.object.clone();
        async move { object.carry(None, request).await }
    }

    fn output(&mut self, _: Now, _: &Registration, output: RegistrationOutput) -> ControlFlow<End> {
        match output {
            RegistrationOutput::Event(event) => {
                self.tell(event);
                ControlFlow::Continue(())
            }
            RegistrationOutput::Ended(_) if self.moving && !self.stop.is_cancelled() => {
                ControlFlow::Break(End::Moved)
            }
            RegistrationOutput::Ended(end) => {
                self.end(end);
                ControlFlow::Break(End::Ended)
            }
        }
    }

    async fn next(&mut self) -> Happening<Registration, End> {
        self.mind();
        if !std::mem::replace(&mut self.started, true) {
            return Happening::Command(RegistrationCommand::Start);
        }
        let lease = self.leadership.borrow().remaining();
        tokio::select! {
            biased;
            () = self.silent.cancelled() => {
                // A write in flight may still land: the last sign of life, as from a crashed worker.
                self.status.send_modify(|status| status.phase = WorkerPhase::Ended(WorkerEnd::Silent));
                self.mind();
                Happening::End(End::Ended)
            }
            () = self.stop.cancelled(), if !self.stopping => {
                self.stopping = true;
                Happening::Command(RegistrationCommand::Stop)
            }
            changed = or_never(self.follows.as_mut().map(watch::Receiver::changed)) => {
                // Leaves the old place before it goes to the new one. If nobody says any more where it belongs, its plugin
                // has left, and it has nobody to work for.
                (self.moving, self.follows) = (changed.is_ok(), None);
                Happening::Command(RegistrationCommand::Stop)
            }
            changed = self.leadership.changed(), if self.watching => {
                self.watching = changed.is_ok();
                Happening::Nothing
            }
            () = or_never(lease.map(tokio::time::sleep)) => Happening::Nothing,
        }
    }
}

impl Host {
    /// Keeps the worker registered, wherever it belongs. Gives up on a place that refuses after a few requests.
    async fn live(mut self, config: RegistrationConfig, documents: Documents, codec: WorkerCodec) {
        let clock = Arc::clone(&self.reporter.clock);
        loop {
            let registration = Registration::new(config.clone());
            let end = Shell::new(registration, self.clone(), Arc::clone(&clock)).run().await;
            let (End::Moved, Some(keys)) = (end, &mut self.follows) else { return };
            let key = keys.borrow_and_update().worker(&self.info.worker_id);
            self.object = documents.at(key, codec.clone());
        }
    }

    fn epoch(&self) -> u64 {
        self.leadership.borrow().epoch
    }

    fn tell(&self, event: RegistrationEvent) {
        let worker = &self.info.worker_id;
        let detail = || format!("worker {worker}: {}", self.object.trouble());
        match event {
            RegistrationEvent::Registered => {
                self.status.send_modify(|status| status.phase = WorkerPhase::Registered);
            }
            RegistrationEvent::Watching { pod, incarnation, wait_ms } => tracing::warn!(
                target: "tenure",
                worker = worker.as_str(),
                "worker id {worker} is in use by {pod} (incarnation {incarnation}); watching for {wait_ms} ms to see whether \
                 it is alive"
            ),
            RegistrationEvent::Unreadable => tracing::error!(
                target: "tenure",
                worker = worker.as_str(),
                "something else overwrote the worker's object; leaving it alone: {}",
                detail()
            ),
            RegistrationEvent::Unavailable => {
                self.reporter.emit(self.epoch(), EventKind::StoreUnavailable { detail: detail() });
            }
            RegistrationEvent::Denied => {
                self.reporter.emit(self.epoch(), EventKind::StoreDenied { detail: detail() });
            }
            RegistrationEvent::Mended => self.reporter.emit(self.epoch(), EventKind::StoreRecovered),
        }
    }

    fn end(&mut self, end: RegistrationEnd) {
        let worker = self.info.worker_id.to_string();
        let (conflict, end) = match end {
            RegistrationEnd::Deregistered => (None, WorkerEnd::Deregistered),
            RegistrationEnd::Refused { pod, incarnation } => {
                let sentence = format_args!(
                    "worker id {worker:?} is held by another live process, on pod {pod} (incarnation {incarnation})"
                );
                let error = Error::new(ErrorKind::Taken, sentence);
                (Some((pod, incarnation.to_string())), WorkerEnd::Refused(error))
            }
            RegistrationEnd::Superseded { pod, incarnation } => {
                let incarnation = incarnation.to_string();
                (Some((pod.clone(), incarnation.clone())), WorkerEnd::Superseded { pod, incarnation })
            }
            RegistrationEnd::Unreadable => {
                let sentence = format_args!("the object {} {}", self.object.key(), self.object.trouble());
                (None, WorkerEnd::Refused(Error::new(ErrorKind::Unreadable, sentence)))
            }
        };
        // Whoever hears of the conflict finds the worker already disabled.
        self.status.send_modify(|status| status.phase = WorkerPhase::Ended(end));
        self.mind();
        if let Some((other_pod, other_incarnation)) = conflict {
            let worker = self.info.clone();
            let kind = EventKind::WorkerConflict { worker, other_pod, other_incarnation };
            self.reporter.emit(self.epoch(), kind);
        }
    }

    /// Reports whether the worker may work, if that is news.
    fn mind(&self) {
        let (epoch, leads) = {
            let leadership = self.leadership.borrow();
            (leadership.epoch, leadership.is_leader())
        };
        let changed = self.status.send_if_modified(|status| {
            let enabled = leads && status.phase == WorkerPhase::Registered;
            std::mem::replace(&mut status.enabled, enabled) != enabled
        });
        if changed {
            let info = self.info.clone();
            let enabled = self.status.borrow().enabled;
            let kind = if enabled { EventKind::WorkerEnabled(info) } else { EventKind::WorkerDisabled(info) };
            self.reporter.emit(epoch, kind);
        }
    }
}
