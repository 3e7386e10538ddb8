//! What this node knows about the workers, and how news reaches it.

use crate::election::Reporter;
use crate::election::codec::SnapshotPointer;
use crate::event::EventKind;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    DispatchCommand, KnownWorker, KnownWorkers, Listed, SnapshotId, WorkerChange, WorkerDetails, WorkerEvent,
};
use tenure_core::{NodeId, PluginName, WorkerId};
use tenure_store::StoreTime;
use tokio::sync::watch;

/// The workers of a namespace, as one node knows them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Workers {
    /// The epoch of the leader that reported them; 0 before the first snapshot.
    pub epoch: u64,
    /// How many workers are active.
    pub active: u64,
    /// How many workers are inactive.
    pub inactive: u64,
    /// Objects in `workers/` that are not workers.
    pub skipped: u64,
    /// Workers in id order. Fewer than `active` plus `inactive` if not all fitted into a snapshot.
    pub list: Arc<[WorkerInfo]>,
    /// The epoch in which this node, as the leader, listed them itself, and whether it knows every registered worker; `None`
    /// as long as it relies on other leaders' reports.
    pub(crate) listed: Option<(u64, bool)>,
}

impl Workers {
    /// What to tell a dispatcher of this epoch; `None` as long as nothing is known.
    pub(crate) fn told_in<F>(&self, epoch: u64) -> Option<DispatchCommand<F>> {
        let listed = self.listed.filter(|(of, _)| *of == epoch);
        if self.epoch == 0 && listed.is_none() {
            return None;
        }
        let fits = self.list.len() as u64 >= self.active + self.inactive;
        let whole = fits && listed.is_some_and(|(_, all)| all);
        let list = self.list.iter().map(|info| (info.worker_id.clone(), info.active)).collect();
        Some(DispatchCommand::Workers { list, listed: listed.is_some(), whole })
    }
}

/// A worker: what it says about itself, and what the leader says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The worker's id.
    pub worker_id: WorkerId,
    /// The plugin it works for.
    pub plugin_type: PluginName,
    /// The pod it runs on.
    pub pod: NodeId,
    /// How long it may stay silent before it counts as inactive.
    pub timeout: Duration,
    /// Whether it counts as alive. One that has just deregistered does not.
    pub active: bool,
}

/// What a leader saw of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SeenWorker {
    /// The worker's incarnation as 16 hex digits; `None` until this leader has read its object.
    pub incarnation: Option<String>,
    /// Its software; `None` until this leader has read its object, or if the object does not say.
    pub software: Option<String>,
    /// When its object last changed, on the store's clock.
    pub last_seen: StoreTime,
}

/// Shows what is known of the workers, and reports what changed. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct WorkerRegistry {
    known_workers: Arc<Mutex<KnownWorkers>>,
    workers: watch::Sender<Workers>,
    /// What this node saw of each worker in its last sweep, while it leads.
    seen: Arc<Mutex<BTreeMap<WorkerId, SeenWorker>>>,
    pub(crate) reporter: Reporter,
}

impl WorkerRegistry {
    pub(crate) fn new(reporter: Reporter) -> (WorkerRegistry, watch::Receiver<Workers>) {
        let (workers, watcher) = watch::channel(Workers::default());
        let registry =
            WorkerRegistry { known_workers: Arc::default(), workers, seen: Arc::default(), reporter };
        (registry, watcher)
    }

    /// What the node knew last, for whoever begins again.
    pub(crate) fn known(&self) -> KnownWorkers {
        self.known_workers.lock().clone()
    }

    /// A snapshot was published, and the node knows this now.
    pub(crate) fn applied(&self, known: &KnownWorkers, id: SnapshotId) {
        self.known_workers.lock().clone_from(known);
        self.show(known, id);
    }

    /// What the snapshot last applied says about a worker.
    pub(crate) fn tell(&self, event: WorkerEvent) {
        let info = |active: bool| WorkerInfo::new(&event.worker, &event.details, active);
        let kind = match event.change {
            WorkerChange::Registered => EventKind::WorkerRegistered(info(true)),
            WorkerChange::Timeout => EventKind::WorkerTimeout(info(false)),
            WorkerChange::Recovered => EventKind::WorkerRecovered(info(true)),
            WorkerChange::Deregistered => EventKind::WorkerDeregistered(info(false)),
        };
        let epoch = self.workers.borrow().epoch;
        self.reporter.emit(epoch, kind);
    }

    /// This node leads, has listed the workers itself, and has published what it found. `all`: nobody is missing.
    pub(crate) fn listed(&self, epoch: u64, all: bool) {
        let listed = Some((epoch, all));
        self.workers.send_if_modified(|known| std::mem::replace(&mut known.listed, listed) != listed);
    }

    pub(crate) fn seen(&self) -> BTreeMap<WorkerId, SeenWorker> {
        self.seen.lock().clone()
    }

    /// A complete sweep found these.
    pub(crate) fn swept(&self, listed: &[Listed]) {
        let mut seen = self.seen.lock();
        let mut known = std::mem::take(&mut *seen);
        let seen_now = |line: &Listed| {
            let old = known.remove(&line.worker);
            let (incarnation, software) = old.map_or((None, None), |old| (old.incarnation, old.software));
            let last_seen = StoreTime(line.modified_ms);
            (line.worker.clone(), SeenWorker { incarnation, software, last_seen })
        };
        *seen = listed.iter().map(seen_now).collect();
    }

    /// A worker's object was read.
    pub(crate) fn read(&self, worker: &WorkerId, incarnation: String, software: String) {
        let mut seen = self.seen.lock();
        let Some(worker) = seen.get_mut(worker) else { return };
        worker.incarnation = Some(incarnation);
        // A worker in another language need not say.
        worker.software = Some(software).filter(|software| !software.is_empty());
    }

    /// This node no longer sweeps.
    pub(crate) fn forget_seen(&self) {
        self.seen.lock().clear();
    }

    fn show(&self, known_workers: &KnownWorkers, id: SnapshotId) {
        let info = |(worker, entry): (&WorkerId, &KnownWorker)| {
            WorkerInfo::new(worker, &entry.details, entry.active)
        };
        let list = known_workers.workers().map(info);
        let ((active, inactive), skipped) = (known_workers.counts(), known_workers.skipped());
        let (epoch, list, listed) = (id.epoch.0, list.collect(), self.workers.borrow().listed);
        let now = Workers { epoch, active, inactive, skipped, list, listed };
        self.reporter.counters.workers(active, inactive, skipped);
        let before = self.workers.send_replace(now);
        if (before.active, before.inactive) != (active, inactive) {
            self.reporter.emit(id.epoch.0, EventKind::WorkersChanged { active, inactive });
        }
    }
}

impl WorkerInfo {
    pub(crate) fn new(worker: &WorkerId, details: &WorkerDetails, active: bool) -> WorkerInfo {
        let WorkerDetails { plugin_type, pod, timeout_ms } = details.clone();
        let timeout = Duration::from_millis(timeout_ms);
        WorkerInfo { worker_id: worker.clone(), plugin_type, pod, timeout, active }
    }
}

/// The newest snapshot. The seat names it, so that standbys learn of it with the look they make anyway. Clones share it.
#[derive(Clone)]
pub(crate) struct SnapshotPointers {
    /// What the leader wants the seat to name, and in which epoch.
    wanted: Arc<Mutex<Option<(u64, SnapshotPointer)>>>,
    /// What the seat names, once it was seen.
    seen: watch::Sender<Option<Option<SnapshotPointer>>>,
}

impl Default for SnapshotPointers {
    fn default() -> SnapshotPointers {
        SnapshotPointers { wanted: Arc::default(), seen: watch::Sender::new(None) }
    }
}

impl SnapshotPointers {
    /// A seat was read.
    pub(crate) fn saw(&self, pointer: Option<SnapshotPointer>) {
        let named = Some(pointer);
        self.seen.send_if_modified(|seen| std::mem::replace(seen, named.clone()) != named);
    }

    pub(crate) fn seen(&self) -> watch::Receiver<Option<Option<SnapshotPointer>>> {
        self.seen.subscribe()
    }

    /// The leader of this epoch wants the seat to name this snapshot, from its next renewal on.
    pub(crate) fn want(&self, epoch: u64, pointer: SnapshotPointer) {
        *self.wanted.lock() = Some((epoch, pointer));
    }

    /// What a seat of this epoch should name; `None` leaves it as it is.
    pub(crate) fn wanted(&self, epoch: u64) -> Option<SnapshotPointer> {
        let wanted = self.wanted.lock();
        wanted.as_ref().filter(|(of, _)| *of == epoch).map(|(_, pointer)| pointer.clone())
    }
}
