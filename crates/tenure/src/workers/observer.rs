//! An observer: knows who leads without taking part, for processes that have workers but no node.

use super::registry::{SnapshotPointers, Workers};
use super::spec::WorkerSpec;
use super::worker::Worker;
use crate::clock::Clock;
use crate::clock::millis;
use crate::election::{Reporter, SeatReader};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::fence::Fence;
use crate::guard::{LeaderGuard, Leadership};
use crate::job::Jobs;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::node::{EVENTS_KEPT, NodeHandle, StopReason};
use crate::settings::Settings;
use crate::shell::{Happening, Host, Shell};
use std::ops::ControlFlow;
use std::sync::Arc;
use tenure_core::machine::Now;
use tenure_core::{Epoch, Namespace, NodeId, Time};
use tenure_core::{SeatObserver, SeatObserverAnswer, SeatObserverCommand, SeatObserverConfig};
use tenure_core::{SeatObserverOutput, SeatObserverRequest};
use tenure_store::Lanes;
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
    handle: NodeHandle,
    fence: Fence,
    jobs: Jobs,
    _stop: oneshot::Sender<()>,
}

impl Observer {
    /// Starts looking. Does not wait for the store to answer. Must be called on a tokio runtime.
    pub fn start(settings: Settings, lanes: Lanes, clock: Arc<dyn Clock>) -> Result<Observer, Error> {
        let namespace = Namespace::new(&settings.namespace)?;
        let keys = Keys::global(&namespace);
        let (leadership, watcher) = watch::channel(Leadership::default());
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let (handle, fence, jobs) = NodeHandle::connect(&settings, &keys, lanes, clock, events, watcher);
        let pointers = SnapshotPointers::default();
        let sweeper = handle.sweeper(pointers.clone()).following();
        let (stop, stopped) = oneshot::channel();
        let host = ObserverHost {
            seat: SeatReader::new(Arc::clone(&handle.lanes.lease), &keys, &settings, pointers),
            reporter: handle.reporter().clone(),
            fence: fence.clone(),
            leadership,
            guard: None,
            started: false,
            stop: stopped,
        };
        let observer = SeatObserver::new(SeatObserverConfig {
            every_ms: millis(settings.election_interval),
            patience_ms: millis(settings.takeover_delay),
            may_be_hidden: false,
            clears: false,
            node: Some(settings.node),
        });
        let shell = Shell::new(observer, host, Arc::clone(&handle.reporter().clock));
        let (end, ended) = watch::channel(None);
        tokio::spawn(async move {
            shell.run().await;
            end.send_replace(Some(StopReason::Asked));
        });
        tokio::spawn(sweeper.supervised(ended));
        Ok(Observer { handle, fence, jobs, _stop: stop })
    }

    /// The pod this process runs on.
    pub fn pod(&self) -> &NodeId {
        self.handle.id()
    }

    /// The leader last seen, with a guard while this pod leads. `role` is always `None`.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.handle.leadership()
    }

    /// Events from now on: `leader:changed`, and those about workers.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.handle.reporter().events.subscribe()
    }

    /// The workers of the namespace, from the leader's snapshots.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        self.handle.workers()
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
        self.handle.metrics()
    }

    /// Registers a worker of this process; see [`Node::register_worker`](crate::Node::register_worker). The worker is
    /// enabled while this pod is seen to lead. Keep the observer: dropping it disables its workers at once.
    pub fn register_worker(&self, spec: WorkerSpec) -> Result<Worker, Error> {
        self.handle.register_worker(&spec)
    }
}

/// The world around the observed seat.
struct ObserverHost {
    seat: SeatReader,
    reporter: Reporter,
    fence: Fence,
    leadership: watch::Sender<Leadership>,
    /// Held while this pod is seen to lead; whoever works has clones of it.
    guard: Option<LeaderGuard>,
    started: bool,
    stop: oneshot::Receiver<()>,
}

impl Host<SeatObserver> for ObserverHost {
    type End = ();

    fn carry(
        &self,
        request: SeatObserverRequest,
    ) -> impl Future<Output = SeatObserverAnswer> + Send + 'static {
        self.seat.clone().carry(request)
    }

    async fn next(&mut self) -> Happening<SeatObserver, ()> {
        if !std::mem::replace(&mut self.started, true) {
            return Happening::Command(SeatObserverCommand::Watch { ended: None });
        }
        let _ = (&mut self.stop).await;
        Happening::End(())
    }

    fn output(&mut self, _: Now, _: &SeatObserver, output: SeatObserverOutput) -> ControlFlow<()> {
        match output {
            SeatObserverOutput::Seen { leader, epoch, is_new } => self.saw(leader, epoch.0, is_new),
            SeatObserverOutput::Extend { epoch, until } => self.extend(epoch, until),
            SeatObserverOutput::Withdraw => self.withdraw(),
            SeatObserverOutput::Use(_) => {}
        }
        ControlFlow::Continue(())
    }
}

impl ObserverHost {
    fn saw(&self, leader: Option<NodeId>, epoch: u64, is_new: bool) {
        if is_new {
            self.fence.observe(epoch);
        }
        let (previous, new) = (self.leadership.borrow().leader.clone(), leader.clone());
        self.leadership.send_if_modified(|known| {
            let changed = known.leader != leader || known.epoch != epoch;
            (known.leader, known.epoch) = (leader, epoch);
            changed
        });
        if let Some(new) = new.filter(|_| is_new) {
            self.reporter.emit(epoch, EventKind::LeaderChanged { previous, new });
        }
    }

    fn extend(&mut self, epoch: Epoch, until: Time) {
        if let Some(guard) = &self.guard {
            return guard.lease().extend(until);
        }
        let (guard, _) = LeaderGuard::new(epoch, until, Arc::clone(&self.reporter.clock));
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

impl Drop for ObserverHost {
    fn drop(&mut self) {
        self.withdraw();
    }
}
