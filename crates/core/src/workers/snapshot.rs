//! What a leader publishes about the workers.

use super::WorkerDetails;
use crate::election::Epoch;
use crate::id::WorkerId;
use std::collections::BTreeSet;

/// Room for everything in a snapshot besides its workers.
const HEAD_WEIGHT: u64 = 1024;

/// Identifies a snapshot: the epoch of the leader that published it, and its number within that epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SnapshotId {
    pub epoch: Epoch,
    pub sequence: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotEntry {
    pub worker: WorkerId,
    pub details: WorkerDetails,
    pub active: bool,
    /// Its last silence, named by the snapshot that first reported it. The name makes everybody report the silence once,
    /// however many snapshots were missed and whoever leads. `None` if it was never silent.
    pub silence: Option<SnapshotId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Listing {
    #[default]
    All,
    /// Only the inactive ones, because all would not fit: a worker that is not listed is active, or gone.
    Inactive,
    /// Not even all inactive ones: nothing follows for a worker that is not listed.
    Cut,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Snapshot {
    pub id: SnapshotId,
    /// In id order.
    pub workers: Vec<SnapshotEntry>,
    pub listing: Listing,
    /// Like `inactive`, it counts all workers, listed or not.
    pub active: u64,
    pub inactive: u64,
    /// Objects in `workers/` that are not workers.
    pub skipped: u64,
}

impl SnapshotEntry {
    fn weight(&self) -> u64 {
        // Quotes, commas, brackets, and two indices of at most five digits.
        let row = self.worker.as_str().len() as u64 + 18 + digits(self.details.timeout_ms);
        row + self.silence.map_or(0, |id| 5 + digits(id.epoch.0) + digits(id.sequence))
    }
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

impl Snapshot {
    /// How many bytes it takes on the store, at most. Plugins and pods are written once each.
    pub fn weight(&self) -> u64 {
        let mut names = BTreeSet::new();
        let details = self.workers.iter().map(|entry| &entry.details);
        names.extend(details.clone().map(|details| (0, details.plugin_type.as_str())));
        names.extend(details.map(|details| (1, details.pod.as_str())));
        let named: u64 = names.iter().map(|(_, name)| name.len() as u64 + 3).sum();
        HEAD_WEIGHT + named + self.workers.iter().map(SnapshotEntry::weight).sum::<u64>()
    }

    /// The same snapshot, with fewer workers if all would weigh more than this: then only the inactive ones are listed.
    pub fn fitting(mut self, weight_max: u64) -> Snapshot {
        while self.weight() > weight_max && !self.workers.is_empty() {
            match self.listing {
                Listing::All => {
                    self.workers.retain(|worker| !worker.active);
                    self.listing = Listing::Inactive;
                }
                Listing::Inactive | Listing::Cut => {
                    self.workers.truncate(self.workers.len() / 2);
                    self.listing = Listing::Cut;
                }
            }
        }
        self
    }
}
