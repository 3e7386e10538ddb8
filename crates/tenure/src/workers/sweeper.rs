//! The host of a node's [`Sweep`]: while the node leads, it lists the workers and publishes what it finds; otherwise it reads
//! what the leader published.

use super::codec::{ListedWorker, ListedWorkerCodec, SnapshotCodec};
use super::registry::{SnapshotPointers, WorkerRegistry};
use crate::clock::millis;
use crate::documents::{DocumentClient, Documents};
use crate::election::codec::SnapshotPointer;
use crate::forget::forgotten;
use crate::guard::{LeaderGuard, Leadership};
use crate::keys::Keys;
use crate::node::StopReason;
use crate::settings::Settings;
use crate::shell::{Happening, Host, Restarts, Shell, or_never, rest, restarted};
use crate::wire::DOCUMENT_MAX_BYTES;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal};
use tenure_core::machine::{In, Input, Now};
use tenure_core::{Epoch, Incarnation, Listed, ListedWorkers, ReadOutcome, Skipped, SnapshotId, Sweep};
use tenure_core::{SweepAnswer, SweepCommand, SweepConfig, SweepOutput, SweepRequest, WorkerId, WriteAnswer};
use tenure_store::{BODY_MAX_BYTES, Entry, Remove, Store};
use tokio::sync::watch;

/// Most objects in one sweep: all workers that are kept, and some room for objects that are not workers.
const LIST_MAX: usize = 25_000;

const RESTARTS: Restarts = Restarts {
    first: Duration::from_secs(1),
    most: Duration::from_secs(30),
    forgiven_after: Duration::from_secs(60),
};

/// One node's sweep, one life after the other.
pub(crate) struct Sweeper {
    config: SweepConfig,
    client: Client,
    pointers: SnapshotPointers,
    /// An observer reads snapshots, but never publishes.
    follows_only: bool,
}

impl Sweeper {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keys: Keys,
        settings: &Settings,
        leadership: watch::Receiver<Leadership>,
        pointers: SnapshotPointers,
        registry: WorkerRegistry,
    ) -> Sweeper {
        let timeout = settings.request_timeout;
        let documents = Documents::new(Arc::clone(&store), Arc::clone(&registry.reporter.namespace), timeout);
        let config = SweepConfig {
            sweep_ms: millis(settings.worker_sweep_interval),
            retention_ms: millis(settings.worker_retention),
            node_retention_ms: millis(settings.node_retention),
            snapshot_weight_max: BODY_MAX_BYTES as u64,
        };
        let client = Client {
            snapshot: documents.at(keys.snapshot(), SnapshotCodec),
            store,
            documents,
            keys,
            timeout,
            node_retention_ms: millis(settings.node_retention),
            leadership,
            registry,
        };
        Sweeper { config, client, pointers, follows_only: false }
    }

    /// This sweeper, without ever publishing.
    pub(crate) fn following(self) -> Sweeper {
        Sweeper { follows_only: true, ..self }
    }

    /// Runs until the node has ended. A panic costs one life of the sweep and nothing else.
    pub(crate) async fn supervised(self, mut ended: watch::Receiver<Option<StopReason>>) {
        let ends = ended.clone();
        let life = || {
            let host = SweepHost {
                client: self.client.clone(),
                leadership: self.client.leadership.clone(),
                watching: true,
                leads: None,
                follows_only: self.follows_only,
                pointers: self.pointers.clone(),
                seats: self.pointers.seen(),
                seat: None,
                ended: ends.clone(),
            };
            let machine = Sweep::new(self.config.clone(), self.client.registry.known());
            Shell::new(machine, host, Arc::clone(&self.client.registry.reporter.clock)).run()
        };
        let died = |_, pause: Duration| {
            let ms = pause.as_millis();
            tracing::error!(target: "tenure", "the worker registry died; restarting it in {ms} ms");
            rest(pause)
        };
        tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => {}
            _ = restarted(RESTARTS, life, died) => {}
        }
    }
}

/// Where the requests of a sweep go.
#[derive(Clone)]
struct Client {
    store: Arc<dyn Store>,
    documents: Documents,
    snapshot: DocumentClient<SnapshotCodec>,
    keys: Keys,
    timeout: Duration,
    node_retention_ms: u64,
    leadership: watch::Receiver<Leadership>,
    registry: WorkerRegistry,
}

impl Client {
    /// Checked right before a write, and held no longer than the request.
    fn guard(&self) -> Option<LeaderGuard> {
        self.leadership.borrow().guard()
    }

    async fn carry(self, request: SweepRequest) -> SweepAnswer {
        match request {
            SweepRequest::List => SweepAnswer::Listed(self.list().await),
            SweepRequest::Read(worker) => SweepAnswer::Read(self.read(worker).await),
            SweepRequest::Remove(worker) => {
                self.remove(worker).await;
                SweepAnswer::Removed
            }
            SweepRequest::Snapshot(request) => {
                let guard = match &request {
                    DocumentRequest::Write { stamp, .. } => {
                        match self.guard().filter(|guard| guard.epoch() == stamp.epoch.0) {
                            Some(guard) => Some(guard),
                            None => {
                                return SweepAnswer::Snapshot(DocumentAnswer::Written(
                                    WriteAnswer::Unavailable,
                                ));
                            }
                        }
                    }
                    DocumentRequest::Read { .. } | DocumentRequest::Remove => None,
                };
                SweepAnswer::Snapshot(self.snapshot.carry(guard.as_ref(), request).await)
            }
            SweepRequest::ForgetNodes => {
                self.forget_nodes().await;
                SweepAnswer::NodesForgotten
            }
        }
    }

    async fn list(&self) -> Option<ListedWorkers> {
        let folder = self.keys.workers();
        let list = self.documents.list(&folder, LIST_MAX).await;
        self.registry.reporter.counters.swept();
        match list {
            Ok((entries, more)) => Some(self.sort(&entries, more)),
            Err(trouble) => {
                self.documents.say(&folder, format!("cannot be listed: {trouble}"));
                None
            }
        }
    }

    /// The objects that can be workers, and how many cannot.
    fn sort(&self, entries: &[Entry], more: bool) -> ListedWorkers {
        let mut list = ListedWorkers { more, ..ListedWorkers::default() };
        for entry in entries {
            let sized = (1..=DOCUMENT_MAX_BYTES as u64).contains(&entry.bytes);
            match self.keys.worker_of(&entry.key).filter(|_| sized) {
                Some(worker) => {
                    let (modified_ms, bytes) = (entry.modified.0, entry.bytes);
                    list.workers.push(Listed { worker, modified_ms, bytes });
                }
                None => list.junk += 1,
            }
        }
        list
    }

    fn worker(&self, worker: WorkerId) -> DocumentClient<ListedWorkerCodec> {
        self.documents.at(self.keys.worker(&worker), ListedWorkerCodec { worker })
    }

    async fn read(&self, worker: WorkerId) -> ReadOutcome {
        let client = self.worker(worker.clone());
        match client.carry(None, DocumentRequest::Read { unless: None }).await {
            DocumentAnswer::Read(Read::Found { body, .. }) => {
                let ListedWorker { details, incarnation, software } = body;
                self.registry.read(&worker, incarnation.to_string(), software);
                ReadOutcome::Found(details)
            }
            DocumentAnswer::Read(Read::Unreadable { .. }) => ReadOutcome::Corrupt,
            DocumentAnswer::Read(Read::Unchanged | Read::Absent | Read::Unavailable | Read::Denied)
            | DocumentAnswer::Written(_)
            | DocumentAnswer::Removed(_) => ReadOutcome::Nothing,
        }
    }

    async fn remove(&self, worker: WorkerId) {
        let Some(guard) = self.guard() else { return };
        let client = self.worker(worker.clone());
        let removed = client.carry(Some(&guard), DocumentRequest::Remove).await;
        if matches!(removed, DocumentAnswer::Removed(Removal::Gone)) {
            tracing::info!(target: "tenure", worker = worker.as_str(), "removed a dead worker");
        }
    }

    async fn forget_nodes(&self) {
        let Ok((entries, _)) = self.documents.list(&self.keys.nodes(), LIST_MAX).await else { return };
        for node in forgotten(&self.keys, &entries, self.store.now(), self.node_retention_ms) {
            let Some(guard) = self.guard() else { return };
            let key = self.keys.node(&node);
            let removal = tokio::time::timeout(self.timeout, self.store.remove(&key));
            // The next list shows whether it worked.
            if let Ok(Ok(Remove::Done)) = guard.run(removal).await {
                tracing::info!(target: "tenure", gone = node.as_str(), "removed a dead node from the list");
            }
        }
    }

    fn swept(&self, skipped: Skipped) {
        let folder = self.keys.workers();
        if skipped.cut {
            self.documents.say(&folder, format!("has more than {LIST_MAX} objects: some are not seen"));
        } else if skipped.total() > 0 {
            self.documents.say(&folder, "has objects that are not workers: they are skipped".to_owned());
        } else {
            self.documents.mended(&folder);
        }
    }
}

/// The world around a sweep.
struct SweepHost {
    client: Client,
    leadership: watch::Receiver<Leadership>,
    /// The channel is open: a closed one is always ready.
    watching: bool,
    /// The epoch that the machine was told.
    leads: Option<u64>,
    follows_only: bool,
    pointers: SnapshotPointers,
    seats: watch::Receiver<Option<Option<SnapshotPointer>>>,
    /// The seat that the machine was told.
    seat: Option<Option<SnapshotPointer>>,
    ended: watch::Receiver<Option<StopReason>>,
}

impl SweepHost {
    /// What the machine does not know yet.
    fn news(&mut self) -> Option<SweepCommand> {
        // By this node's own clock.
        let epoch = self.client.guard().map(|guard| guard.epoch()).filter(|_| !self.follows_only);
        if self.leads != epoch {
            self.leads = epoch;
            self.client.registry.forget_seen();
            return Some(match epoch {
                Some(epoch) => SweepCommand::Lead { epoch: Epoch(epoch), me: Incarnation(rand::random()) },
                None => SweepCommand::Lost,
            });
        }
        let seat = self.seats.borrow_and_update().clone();
        if self.seat != seat {
            self.seat.clone_from(&seat);
            let id = |pointer: SnapshotPointer| {
                let SnapshotPointer { epoch, sequence, .. } = pointer;
                SnapshotId { epoch: Epoch(epoch), sequence }
            };
            return seat.map(|named| SweepCommand::Seat(named.map(id)));
        }
        None
    }
}

impl Host<Sweep> for SweepHost {
    type End = ();

    fn carry(&self, request: SweepRequest) -> impl Future<Output = SweepAnswer> + Send + 'static {
        self.client.clone().carry(request)
    }

    fn output(&mut self, _: Now, machine: &Sweep, output: SweepOutput) -> ControlFlow<()> {
        let registry = &self.client.registry;
        match output {
            SweepOutput::Applied(id) => registry.applied(machine.known(), id),
            SweepOutput::Event(event) => registry.tell(event),
            SweepOutput::Point { epoch, id, version } => {
                let SnapshotId { epoch: of, sequence } = id;
                let version = version.as_str().to_owned();
                self.pointers.want(epoch.0, SnapshotPointer { version, epoch: of.0, sequence });
            }
            SweepOutput::Told { epoch, whole } => registry.listed(epoch.0, whole),
            SweepOutput::Swept(skipped) => self.client.swept(skipped),
        }
        ControlFlow::Continue(())
    }

    async fn next(&mut self) -> Happening<Sweep, ()> {
        if let Some(command) = self.news() {
            return Happening::Command(command);
        }
        let lease = self.leadership.borrow().remaining();
        tokio::select! {
            biased;
            _ = self.ended.wait_for(Option::is_some) => Happening::End(()),
            changed = self.leadership.changed(), if self.watching => {
                self.watching = changed.is_ok();
                Happening::Nothing
            }
            Ok(()) = self.seats.changed() => Happening::Nothing,
            () = or_never(lease.map(tokio::time::sleep)) => Happening::Nothing,
        }
    }

    fn before(&mut self, _: Now, _: u64, machine: &Sweep, input: &In<Sweep>) {
        if let Input::Answer(_, SweepAnswer::Listed(Some(list))) = input
            && machine.liveness().is_some()
        {
            self.client.registry.swept(&list.workers);
        }
    }
}
