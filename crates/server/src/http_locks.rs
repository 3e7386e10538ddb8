//! Locks that programs in any language hold through this node.
//!
//! The node holds the lock's seat; each answer tells the client how long it may act, counted from when it asked. A client that is
//! silent for its timeout loses the lock, and so do the clients of a node that dies. What an answer promised is over before the lock
//! is given to somebody else, unless the client itself gave it back.

use crate::connections::Peer;
use crate::options::Limits;
use crate::problem::{Answer, Problem};
use crate::rate_limit::{RateLimit, Reserved};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tenure::LeaderGuard;
use tenure::clock::{Clock, millis};
use tenure::id::{Label, PluginName};
use tenure::lock::Lock;
use tenure::plugin::NodeHandle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa::ToSchema;

/// How often to look for clients that fell silent.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The time limit for giving back all locks at the end.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// A lock that its client holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockHeld {
    /// What names this holding: every later request about the lock carries it.
    pub holding: String,
    /// Rises with every holder. Stamp it on what you do.
    pub epoch: u64,
    /// How long the client may act, counted from when it sent the request. A third of it is a good interval for heartbeats.
    pub valid_ms: u64,
}

enum Seat {
    Wanted,
    Held(LeaderGuard),
    Over,
}

/// A lock that a client holds or waits for.
pub(crate) struct HttpLock {
    holding: Label,
    timeout_ms: u64,
    seat: watch::Receiver<Seat>,
    /// When the client was last heard of, on the lease's clock.
    heard_ms: AtomicU64,
    /// Requests that wait for it.
    waiting: AtomicUsize,
    /// Until when the client may act, by what it was told.
    promised_ms: AtomicU64,
    /// The client said that it has stopped.
    given_back: AtomicBool,
    cancel: CancellationToken,
    clock: Arc<dyn Clock>,
    client: Option<Peer>,
    /// The share of the clients' store requests that its election uses.
    _reserved: Reserved,
}

impl HttpLock {
    pub(crate) fn holding(&self) -> &Label {
        &self.holding
    }

    /// Waits for the lock, at most this long.
    pub(crate) async fn settled(&self, patience: Duration) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // Also if the client goes away meanwhile.
        let _done = Waits(self);
        let mut seat = self.seat.clone();
        let _ = tokio::time::timeout(patience, seat.wait_for(|seat| !matches!(seat, Seat::Wanted))).await;
    }

    /// How long the client may act from now on; `None` if it does not hold the lock.
    pub(crate) fn promise(&self) -> Option<LockHeld> {
        // While this is borrowed, the seat does not change.
        let seat = self.seat.borrow();
        let Seat::Held(guard) = &*seat else { return None };
        let left = guard.remaining();
        if !guard.is_valid() || left.is_zero() {
            return None;
        }
        let now_ms = self.clock.now_ms();
        self.promised_ms.fetch_max(now_ms + millis(left), Ordering::AcqRel);
        self.heard_ms.fetch_max(now_ms, Ordering::AcqRel);
        Some(LockHeld { holding: self.holding.to_string(), epoch: guard.epoch(), valid_ms: millis(left) })
    }

    /// Takes the lock and keeps it until it is given back, or lost.
    async fn keep(self: Arc<HttpLock>, node: NodeHandle, name: PluginName, seat: watch::Sender<Seat>) {
        let lock = self.cancel.run_until_cancelled(node.lock(name.as_str())).await;
        if let Some(Ok(lock)) = lock {
            seat.send_replace(Seat::Held(lock.guard().clone()));
            let _ = self.cancel.run_until_cancelled(lock.guard().ended()).await;
            // No promises from here on.
            seat.send_replace(Seat::Over);
            self.give_back(lock).await;
        } else {
            seat.send_replace(Seat::Over);
        }
    }

    async fn give_back(&self, lock: Lock) {
        while !self.given_back.load(Ordering::Acquire) {
            let left_ms = self.promised_ms.load(Ordering::Acquire).saturating_sub(self.clock.now_ms());
            if left_ms == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(left_ms)).await;
        }
        lock.release().await;
    }

    fn is_silent(&self, now_ms: u64) -> bool {
        let heard_ms = self.heard_ms.load(Ordering::Acquire);
        self.waiting.load(Ordering::Acquire) == 0 && now_ms.saturating_sub(heard_ms) > self.timeout_ms
    }
}

/// A request that waits for a lock.
struct Waits<'l>(&'l HttpLock);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.heard_ms.fetch_max(self.0.clock.now_ms(), Ordering::AcqRel);
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) struct LockRequest {
    pub(crate) name: PluginName,
    pub(crate) holding: Option<Label>,
    pub(crate) timeout_ms: u64,
    /// The client's address, if known.
    pub(crate) client: Option<Peer>,
}

/// The locks held or wanted through this node, by name and holding.
pub(crate) struct HttpLocks {
    node: NodeHandle,
    clock: Arc<dyn Clock>,
    rate_limit: Arc<RateLimit>,
    max_locks: usize,
    max_per_client: usize,
    locks: Mutex<BTreeMap<(PluginName, Label), Arc<HttpLock>>>,
    added: Notify,
    tasks: TaskTracker,
}

impl HttpLocks {
    pub(crate) fn new(node: NodeHandle, rate_limit: Arc<RateLimit>, limits: &Limits) -> HttpLocks {
        let (max_locks, max_per_client) = (limits.locks, limits.locks_per_client);
        let (clock, locks, tasks) = (node.clock(), Mutex::default(), TaskTracker::new());
        HttpLocks { node, clock, rate_limit, max_locks, max_per_client, locks, added: Notify::new(), tasks }
    }

    /// The lock that this client holds or wants already, or from now on. Must be called on the node's runtime.
    pub(crate) fn want(&self, request: LockRequest) -> Answer<Arc<HttpLock>> {
        let mut locks = self.locks.lock();
        let made_up = || format!("{:032x}", rand::random::<u128>()).parse().expect("hexadecimal digits");
        let holding = request.holding.unwrap_or_else(made_up);
        let key = (request.name.clone(), holding.clone());
        if let Some(there) = locks.get(&key).filter(|lock| !matches!(*lock.seat.borrow(), Seat::Over)) {
            return Ok(Arc::clone(there));
        }
        let others = || locks.iter().filter(|(other, _)| **other != key).map(|(_, lock)| lock);
        if others().count() >= self.max_locks {
            return Err(Problem::too_many_clients(format!(
                "{} locks are held or wanted through this node, which is the limit",
                self.max_locks
            )));
        }
        if others().filter(|lock| lock.client == request.client).count() >= self.max_per_client {
            return Err(Problem::too_many_clients(format!(
                "{} locks are held or wanted through this node by this address, which is the limit",
                self.max_per_client
            )));
        }
        let look_ms = millis(self.node.settings().at_once().election_interval);
        let reserved = self.rate_limit.reserve(1000.0 / look_ms as f64);
        let reserved = reserved.ok_or_else(|| {
            Problem::too_many_clients("the workers and locks of this node's clients have reached its limit of store requests: take it through another node")
        })?;
        let (sender, seat) = watch::channel(Seat::Wanted);
        let lock = Arc::new(HttpLock {
            holding,
            timeout_ms: request.timeout_ms,
            seat,
            heard_ms: AtomicU64::new(self.clock.now_ms()),
            waiting: AtomicUsize::new(0),
            promised_ms: AtomicU64::new(0),
            given_back: AtomicBool::new(false),
            cancel: CancellationToken::new(),
            clock: Arc::clone(&self.clock),
            client: request.client,
            _reserved: reserved,
        });
        self.tasks.spawn(Arc::clone(&lock).keep(self.node.clone(), request.name, sender));
        locks.insert(key, Arc::clone(&lock));
        self.added.notify_one();
        Ok(lock)
    }

    /// The lock that this client holds, as far as this node knows.
    pub(crate) fn held(&self, name: &PluginName, holding: &Label) -> Option<LockHeld> {
        let key = (name.clone(), holding.clone());
        let lock = self.locks.lock().get(&key).cloned()?;
        let held = lock.promise();
        if held.is_none() && matches!(*lock.seat.borrow(), Seat::Over) {
            self.locks.lock().remove(&key);
        }
        held
    }

    /// The client has stopped what it did under the lock, or no longer waits for it. `false`: there was nothing to give back.
    pub(crate) fn give_back(&self, name: &PluginName, holding: &Label) -> bool {
        let lock = self.locks.lock().remove(&(name.clone(), holding.clone()));
        let Some(lock) = lock else { return false };
        lock.given_back.store(true, Ordering::Release);
        lock.cancel.cancel();
        true
    }

    /// Drops clients that were silent for their timeout. Runs on the node's runtime until the server closes.
    pub(crate) async fn watch(&self, closing: &CancellationToken) {
        while !closing.is_cancelled() {
            let idle = self.locks.lock().is_empty();
            tokio::select! {
                () = closing.cancelled() => {}
                () = self.added.notified(), if idle => {}
                () = tokio::time::sleep(CHECK_INTERVAL), if !idle => {}
            }
            let now_ms = self.clock.now_ms();
            self.locks.lock().retain(|(name, _), lock| {
                let silent = lock.is_silent(now_ms);
                if silent {
                    tracing::warn!(target: "tenure", "giving back the lock {name}: its client was not heard from for {} ms", lock.timeout_ms);
                    lock.cancel.cancel();
                }
                !silent
            });
        }
        self.cancel_all();
    }

    fn cancel_all(&self) {
        std::mem::take(&mut *self.locks.lock()).values().for_each(|lock| lock.cancel.cancel());
    }

    /// Gives all locks back, once what was promised to their clients is over.
    pub(crate) async fn give_back_all(&self) {
        self.cancel_all();
        self.tasks.close();
        let _ = tokio::time::timeout(LEAVE_MAX, self.tasks.wait()).await;
    }
}
