//! What a process is given.

use crate::guard::{LeaderGuard, LeadershipEnded};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One instance's guard, and its line to the supervisor. Clones are interchangeable.
///
/// The guard is the instance's own: it ends with leadership, and also when this instance alone is stopped. **Drop every
/// clone of context and guard when the work has stopped**: while one is alive, the seat is not handed over.
#[derive(Clone)]
pub struct ProcessContext {
    pub(super) name: Arc<str>,
    pub(super) attempt: u32,
    pub(super) guard: LeaderGuard,
    pub(super) stop: CancellationToken,
    pub(super) ready: ReadySignal,
}

/// Tells the supervisor that an instance is ready.
#[derive(Clone)]
pub(super) struct ReadySignal {
    pub(super) process: usize,
    pub(super) instance: u64,
    pub(super) to: mpsc::Sender<(usize, u64)>,
    /// Whether it has been sent already.
    pub(super) told: Arc<AtomicBool>,
}

impl ProcessContext {
    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Start number within this term, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The guard of this instance; see [`LeaderGuard`].
    pub fn guard(&self) -> &LeaderGuard {
        &self.guard
    }

    /// The epoch to stamp on everything done.
    pub fn epoch(&self) -> u64 {
        self.guard.epoch()
    }

    /// Whether this instance may act as leader at this very moment.
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// [`is_valid`](ProcessContext::is_valid) as an error, for `?` right before a side effect.
    pub fn check(&self) -> Result<(), LeadershipEnded> {
        self.guard.check()
    }

    /// How long the lease runs if it is not renewed again; zero once it has ended.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Completes when it is this process's turn to stop.
    ///
    /// When leadership ends, all guards end at once. Then the processes are asked to stop one after the other, in the
    /// reverse of their start order. Nothing may act as leader after that moment; the order is for cleaning up. A process
    /// that ends because of its guard stops sooner than its turn.
    pub async fn cancelled(&self) {
        self.stop.cancelled().await;
    }

    /// Whether it is this process's turn to stop.
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// [`is_cancelled`](ProcessContext::is_cancelled) as a token.
    pub fn cancellation(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Reports that this process is ready, so that the next one may start. Once is enough; without
    /// [`ProcessSpec::ready_signal`](super::ProcessSpec::ready_signal) it changes nothing.
    pub fn ready(&self) {
        if !self.ready.told.swap(true, Ordering::AcqRel) {
            // There is room for one notice from every instance; or the supervisor is gone.
            let _ = self.ready.to.try_send((self.ready.process, self.ready.instance));
        }
    }
}

impl fmt::Debug for ProcessContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (start {}, {:?})", self.name, self.attempt, self.guard)
    }
}
