//! What a leader holds while it leads, and how anybody watches leadership.

use crate::clock::Clock;
use crate::mutant::DriverMutant;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tenure_core::{Epoch, NodeId, Role, Time};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Proof of leadership, with its own end built in.
///
/// It carries the epoch and reports its expiry by its own deadline, even if nothing else in the process gets to run: the
/// deadline is compared with the boot-time clock at every check. Clones share one lease.
///
/// **Drop every clone when the work has stopped.** While one is alive, Tenure assumes that the work is running: a node that
/// shuts down waits for it (up to `drainTimeout`) before it vacates the seat, and a node that lost its seat claims none
/// until the last clone is gone.
#[derive(Clone)]
pub struct LeaderGuard {
    lease: Arc<LeaseState>,
    /// The lease's own token, or a child of it that ends this guard alone.
    cancel: CancellationToken,
    _held: Arc<Held>,
}

pub(crate) struct LeaseState {
    epoch: Epoch,
    deadline_ms: AtomicU64,
    cancel: CancellationToken,
    clock: Arc<dyn Clock>,
}

/// Tells the driver when the last clone of a guard is gone.
struct Held(Option<oneshot::Sender<()>>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            // If the driver is gone, nobody listens and nobody waits.
            let _ = done.send(());
        }
    }
}

/// Leadership ended; the intended work must not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("leadership in epoch {epoch} has ended")]
pub struct LeadershipEnded {
    /// The epoch that is over.
    pub epoch: u64,
}

impl LeaderGuard {
    /// A guard, and the signal that its last clone is gone.
    pub(crate) fn new(
        epoch: Epoch,
        deadline: Time,
        clock: Arc<dyn Clock>,
    ) -> (LeaderGuard, oneshot::Receiver<()>) {
        let lease = Arc::new(LeaseState {
            epoch,
            deadline_ms: AtomicU64::new(deadline.0),
            cancel: CancellationToken::new(),
            clock,
        });
        let (done, gone) = oneshot::channel();
        let cancel = lease.cancel.clone();
        (LeaderGuard { lease, cancel, _held: Arc::new(Held(Some(done))) }, gone)
    }

    /// A guard on the same lease with its own end: cancelling the token ends only this guard and its clones.
    pub(crate) fn scoped(&self) -> (LeaderGuard, CancellationToken) {
        let cancel = self.lease.cancel.child_token();
        (LeaderGuard { cancel: cancel.clone(), ..self.clone() }, cancel)
    }

    pub(crate) fn downgrade(&self) -> WeakGuard {
        WeakGuard { lease: Arc::clone(&self.lease), held: Arc::downgrade(&self._held) }
    }

    pub(crate) fn lease(&self) -> &LeaseState {
        &self.lease
    }

    /// The epoch to stamp on everything done under this guard.
    pub fn epoch(&self) -> u64 {
        self.lease.epoch.0
    }

    /// Whether leadership still holds at this very moment, by this node's own clock.
    pub fn is_valid(&self) -> bool {
        !self.cancel.is_cancelled() && self.lease.is_valid()
    }

    /// [`is_valid`](LeaderGuard::is_valid) as an error, for `?` right before a side effect.
    pub fn check(&self) -> Result<(), LeadershipEnded> {
        if self.is_valid() { Ok(()) } else { Err(LeadershipEnded { epoch: self.epoch() }) }
    }

    /// How long the lease runs if it is not renewed again; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// The end of the lease if it is not renewed again, even if it was withdrawn before.
    pub(crate) fn deadline(&self) -> Time {
        Time(self.lease.deadline_ms.load(Ordering::Acquire))
    }

    /// Completes when leadership ends, is to be given up, or its lease runs out: time to stop.
    pub async fn ended(&self) {
        while self.is_valid() {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return,
                () = tokio::time::sleep(self.lease.patience()) => {}
            }
        }
    }

    /// Runs a future until it completes or leadership ends, whichever comes first.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeadershipEnded> {
        tokio::select! {
            biased;
            () = self.ended() => Err(LeadershipEnded { epoch: self.epoch() }),
            output = work => Ok(output),
        }
    }

    /// Cancelled when the work must stop. It does not check the deadline by itself: prefer [`ended`](LeaderGuard::ended).
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaderGuard(epoch {}, {:?} left)", self.epoch(), self.remaining())
    }
}

impl LeaseState {
    pub(crate) fn extend(&self, deadline: Time) {
        self.deadline_ms.fetch_max(deadline.0, Ordering::Release);
    }

    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    fn is_valid(&self) -> bool {
        !self.cancel.is_cancelled() && !self.patience().is_zero()
    }

    /// How long the lease may be relied on without another check.
    fn patience(&self) -> Duration {
        if DriverMutant::GuardWithoutDeadline.on() { Duration::MAX } else { self.remaining() }
    }

    fn remaining(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.load(Ordering::Acquire).saturating_sub(self.clock.now_ms()))
    }
}

/// Leadership as one node sees it. Travels on a watch channel: a reader sees the latest, never a backlog.
#[derive(Clone, Debug, Default)]
pub struct Leadership {
    /// This node's role; `None` while it starts, after it has stopped, and if it is not eligible.
    pub role: Option<Role>,
    /// The leader, as far as this node knows. It may be dead without this node having noticed. `None` once it has been
    /// silent for its expiry or has vacated the seat.
    pub leader: Option<NodeId>,
    /// The highest epoch seen; 0 if there never was a leader.
    pub epoch: u64,
    /// Whether election requests fail: from `store_unavailable` or `store_denied` until `store_recovered`.
    pub store_trouble: bool,
    pub(crate) guard: Option<WeakGuard>,
}

/// A guard that does not count as work in progress: merely watching leadership must not hold it up.
#[derive(Clone)]
pub(crate) struct WeakGuard {
    lease: Arc<LeaseState>,
    held: Weak<Held>,
}

impl fmt::Debug for WeakGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, {:?} left", self.lease.epoch.0, self.lease.remaining())
    }
}

impl Leadership {
    /// The guard, while this node leads and may act.
    pub fn guard(&self) -> Option<LeaderGuard> {
        let weak = self.guard.as_ref()?;
        let cancel = weak.lease.cancel.clone();
        let guard = LeaderGuard { lease: Arc::clone(&weak.lease), cancel, _held: weak.held.upgrade()? };
        guard.is_valid().then_some(guard)
    }

    /// How long this node may act if it does not renew; `None` if it does not lead.
    pub fn remaining(&self) -> Option<Duration> {
        self.guard.as_ref().filter(|weak| weak.lease.is_valid()).map(|weak| weak.lease.remaining())
    }

    /// Whether nobody could tell the two apart.
    pub(crate) fn is_like(&self, other: &Leadership) -> bool {
        let same_guard = match (&self.guard, &other.guard) {
            (Some(one), Some(two)) => Arc::ptr_eq(&one.lease, &two.lease),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_guard
            && self.role == other.role
            && self.leader == other.leader
            && self.epoch == other.epoch
            && self.store_trouble == other.store_trouble
    }

    /// The epoch in which this node may act now.
    pub(crate) fn acting_epoch(&self) -> Option<u64> {
        self.guard.as_ref().filter(|weak| weak.lease.is_valid()).map(|weak| weak.lease.epoch.0)
    }

    /// Whether this node leads and may act now.
    pub fn is_leader(&self) -> bool {
        self.guard.as_ref().is_some_and(|weak| weak.lease.is_valid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;

    #[tokio::test(start_paused = true)]
    async fn a_guard_ends_by_its_own_deadline() {
        let (guard, _gone) = LeaderGuard::new(Epoch(7), Time(1000), TokioClock::new());
        assert!(guard.check().is_ok());
        guard.lease().extend(Time(1500));
        let started = tokio::time::Instant::now();
        guard.ended().await;
        assert_eq!(started.elapsed().as_millis(), 1500, "nobody told it; it looked at the clock");
        assert_eq!(guard.check(), Err(LeadershipEnded { epoch: 7 }));
        assert_eq!(guard.run(std::future::pending::<()>()).await, Err(LeadershipEnded { epoch: 7 }));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_clone_tells_that_the_work_has_stopped() {
        let (guard, mut gone) = LeaderGuard::new(Epoch(7), Time(1000), TokioClock::new());
        let watched = Leadership { guard: Some(guard.downgrade()), ..Leadership::default() };
        let clone = watched.guard().expect("it is valid");
        drop(guard);
        assert!(gone.try_recv().is_err(), "one clone still works");
        clone.lease().cancel();
        assert!(!clone.is_valid() && !watched.is_leader());
        drop(clone);
        assert!(gone.try_recv().is_ok(), "whoever merely watches holds nothing up");
        assert!(watched.guard().is_none());
    }
}
