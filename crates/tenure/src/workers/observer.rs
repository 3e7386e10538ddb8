//! An observer: knows who leads without taking part, for processes that have workers but no node.

use super::registry::{SnapshotPointers, WorkerRegistry, Workers};
use super::spec::WorkerSpec;
use super::sweeper::Sweeper;
use super::worker::{Worker, WorkerHost};
use crate::clock::Clock;
use crate::election::Reporter;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::fence::Fence;
use crate::guard::{LeaderGuard, Leadership};
use crate::keys::Keys;
use tenure_core::{Namespace, NodeId};

use crate::job::Jobs;
use crate::metrics::{Counters, Metrics};
use crate::node::{EVENTS_KEPT, StopReason};
use crate::settings::Settings;
use crate::wire::SeatDocument;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Epoch, Seat, SeatState, Time};
use tenure_store::{Lanes, Read, Store, Version};
use tokio::sync::{broadcast, oneshot, watch};

/// Looks at the seat every `electionInterval`, and at nothing else until the seat names a new snapshot. It writes no
/// presence, claims nothing, and cannot lead; `node` in its settings names the pod it runs on.
///
/// Its guards mean that *its pod* leads. They end by themselves one hold after sending the last look that saw the seat
/// change, by this process's own clock.
///
/// Not promised: across a hand-over it lags by up to one look, so its workers may stay enabled for that long although
/// another pod already leads. The jobs they receive carry an epoch; the [fence](Observer::fence) refuses stale ones.
#[derive(Debug)]
pub struct Observer {
    pod: NodeId,
    events: broadcast::Sender<Event>,
    leadership: watch::Receiver<Leadership>,
    workers: watch::Receiver<Workers>,
    fence: Fence,
    host: WorkerHost,
    jobs: Jobs,
    counters: Arc<Counters>,
    _stop: oneshot::Sender<()>,
}

impl Observer {
    /// Starts looking. Does not wait for the store to answer. Must be called on a tokio runtime.
    pub fn start(settings: Settings, lanes: Lanes, clock: Arc<dyn Clock>) -> Result<Observer, Error> {
        let namespace = Namespace::new(&settings.namespace)?;
        let (keys, pod) = (Keys::global(&namespace), settings.node.clone());
        let (leadership, watcher) = watch::channel(Leadership::default());
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let counters = Arc::new(Counters::new(&settings, Arc::clone(&clock), watcher.clone()));
        let lanes = counters.meter(lanes);
        let fence = Fence::counting(settings.fence_rule(), Arc::clone(&clock), counters.drift());
        let reporter = Reporter {
            namespace: Arc::from(namespace.as_str()),
            node: pod.clone(),
            prefix: Arc::from(settings.telemetry_prefix.as_str()),
            clock,
            events: events.clone(),
            counters: Arc::clone(&counters),
        };
        let pointers = SnapshotPointers::default();
        let (registry, workers) = WorkerRegistry::new(reporter.clone());
        let bulk = Arc::clone(&lanes.bulk);
        let sweeper = Sweeper::new(
            Arc::clone(&bulk),
            keys.clone(),
            &settings,
            watcher.clone(),
            pointers.clone(),
            registry,
        )
        .following();
        let look = Look {
            store: lanes.lease,
            key: keys.seat(),
            every_ms: settings.election_interval_ms,
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
            reporter: reporter.clone(),
            fence: fence.clone(),
            leadership,
            pointers,
            seen: None,
            guard: None,
        };
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = stopped => {}
                () = look.run() => {}
            }
            end.send_replace(Some(StopReason::Asked));
        });
        tokio::spawn(sweeper.supervised(ended));
        let settings = Arc::new(settings);
        let jobs = Jobs {
            store: counters.meter_jobs(&bulk),
            keys: Jobs::fixed(keys.clone()),
            settings: Arc::clone(&settings),
            reporter: reporter.clone(),
            fence: fence.clone(),
            workers: workers.clone(),
        };
        let host = WorkerHost::new(bulk, keys, settings, reporter, watcher.clone());
        let leadership = watcher;
        Ok(Observer { pod, events, leadership, workers, fence, host, jobs, counters, _stop: stop })
    }

    /// The pod this process runs on.
    pub fn pod(&self) -> &NodeId {
        &self.pod
    }

    /// The leader last seen, with a guard while this pod leads. `role` is always `None`.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Events from now on: `leader:changed`, and those about workers.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// The workers of the namespace, from the leader's snapshots.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        self.workers.clone()
    }

    /// The fence that hears of every leader change this process sees.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Where this namespace's jobs are, for the workers of this process.
    pub fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }

    /// What the looking has cost so far.
    pub fn metrics(&self) -> Metrics {
        self.counters.metrics()
    }

    /// Registers a worker of this process; see [`Node::register_worker`](crate::Node::register_worker). The worker is
    /// enabled while this pod is seen to lead. Keep the observer: dropping it disables its workers at once.
    pub fn register_worker(&self, spec: WorkerSpec) -> Result<Worker, Error> {
        self.host.register(&spec)
    }
}

/// The loop that looks at the seat.
struct Look {
    store: Arc<dyn Store>,
    key: String,
    every_ms: u64,
    request_timeout: Duration,
    reporter: Reporter,
    fence: Fence,
    leadership: watch::Sender<Leadership>,
    pointers: SnapshotPointers,
    seen: Option<(Version, Seat)>,
    /// Held while this pod is seen to lead; whoever works has clones of it.
    guard: Option<LeaderGuard>,
}

impl Drop for Look {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl Look {
    async fn run(mut self) {
        let mut due_ms = self.reporter.clock.now_ms();
        loop {
            let sent = Time(self.reporter.clock.now_ms());
            let version = self.seen.as_ref().map(|(version, _)| version);
            let read = self.store.get(&self.key, version);
            if let Ok(Read::Found(object)) = tokio::time::timeout(self.request_timeout, read).await {
                // A seat that cannot be read says nothing; what was known ends by itself.
                if let Ok((document, seat)) = SeatDocument::parse(&object.body) {
                    self.pointers.saw(document.snapshot());
                    self.saw(sent, object.version, seat);
                }
            }
            let now_ms = self.reporter.clock.now_ms();
            due_ms = (due_ms + self.every_ms).max(now_ms);
            tokio::time::sleep(Duration::from_millis(due_ms - now_ms)).await;
        }
    }

    fn saw(&mut self, sent: Time, version: Version, seat: Seat) {
        let before = self.seen.replace((version, seat.clone())).map(|(_, seat)| seat);
        let held = seat.state == SeatState::Held;
        // If the epoch went back, somebody repaired the seat; nobody works under it until it has risen again.
        let news = seat.epoch >= Epoch(self.fence.epoch());
        // The first look cannot tell a live holder from a dead one: only a change is a sign of life.
        let mine = held && news && before.is_some() && seat.holder.node == self.reporter.node;
        if mine {
            self.extend(seat.epoch, sent + seat.lease.hold_ms);
        } else {
            self.withdraw();
        }
        let previous = self.leadership.borrow().leader.clone();
        let (leader, epoch) = (held.then(|| seat.holder.node.clone()), seat.epoch.0);
        let newly = held && news && before.is_none_or(|before| before.epoch != seat.epoch);
        if newly {
            self.fence.observe(epoch);
        }
        self.leadership.send_if_modified(|leadership| {
            let changed = leadership.leader != leader || leadership.epoch != epoch;
            (leadership.leader, leadership.epoch) = (leader, epoch);
            changed
        });
        if newly {
            let new = seat.holder.node;
            self.reporter.emit(epoch, EventKind::LeaderChanged { previous, new });
        }
    }

    fn extend(&mut self, epoch: Epoch, deadline: Time) {
        if let Some(guard) = self.guard.as_ref().filter(|guard| guard.epoch() == epoch.0 && guard.is_valid())
        {
            return guard.lease().extend(deadline);
        }
        self.withdraw();
        let (guard, _) = LeaderGuard::new(epoch, deadline, Arc::clone(&self.reporter.clock));
        let weak = guard.downgrade();
        self.guard = Some(guard);
        self.leadership.send_modify(|leadership| leadership.guard = Some(weak));
    }

    fn withdraw(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.lease().cancel();
        }
        self.leadership.send_if_modified(|leadership| leadership.guard.take().is_some());
    }
}
