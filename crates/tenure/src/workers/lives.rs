//! What a leader sees of the workers while it sweeps, beyond what everybody is told.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::Listed;
use tenure_core::WorkerId;

/// What a leader saw of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WorkerLife {
    /// The worker's incarnation as 16 hex digits; `None` until this leader has read its object.
    pub incarnation: Option<String>,
    /// Its software; `None` until this leader has read its object, or if the object does not say.
    pub software: Option<String>,
    /// When its object last changed, in ms on the store's clock.
    pub last_seen_ms: u64,
}

/// What a leader saw of each worker. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives(Arc<Mutex<BTreeMap<WorkerId, WorkerLife>>>);

impl Lives {
    fn lives(&self) -> MutexGuard<'_, BTreeMap<WorkerId, WorkerLife>> {
        self.0.lock()
    }

    pub(crate) fn all(&self) -> BTreeMap<WorkerId, WorkerLife> {
        self.lives().clone()
    }

    /// A complete sweep found these.
    pub(crate) fn swept(&self, listed: &[Listed]) {
        let mut lives = self.lives();
        let mut known = std::mem::take(&mut *lives);
        *lives = listed
            .iter()
            .map(|line| {
                let mut life = known.remove(&line.worker).unwrap_or_default();
                life.last_seen_ms = line.modified_ms;
                (line.worker.clone(), life)
            })
            .collect();
    }

    pub(crate) fn read(&self, worker: &WorkerId, incarnation: String, software: String) {
        let mut lives = self.lives();
        let Some(life) = lives.get_mut(worker) else { return };
        life.incarnation = Some(incarnation);
        // A worker in another language need not say.
        life.software = Some(software).filter(|software| !software.is_empty());
    }

    pub(crate) fn clear(&self) {
        self.lives().clear();
    }
}
