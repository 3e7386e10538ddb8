//! Workers: entries with their own heartbeat, judged by the leader and published to everybody.
//!
//! Three machines, beside the election and never part of it: [`Registration`] is a worker's side, [`Liveness`] the leader's, and
//! [`KnownWorkers`] what every node knows. None of them can cost leadership: they hold no lease and touch no seat.
//!
//! No clock is compared with another. The leader sees that an object *changed*, and counts the time since then on its own
//! clock. The store's time stamps are only ever compared for equality.

mod known_workers;
mod liveness;
mod registration;

pub use known_workers::{KnownWorker, KnownWorkers};
pub use liveness::{Listed, Liveness, LivenessConfig, ReadOutcome, Skipped, SweepOutcome, WORKERS_MAX};
pub use registration::{
    RegisteredBy, Registration, RegistrationCommand, RegistrationConfig, RegistrationEnd, RegistrationEvent,
    RegistrationOutput,
};

use crate::election::Epoch;
use crate::id::{NodeId, PluginName, WorkerId};

/// What a worker says about itself, as far as decisions depend on it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerDetails {
    /// The plugin it works for.
    pub plugin_type: PluginName,
    /// The pod it runs on.
    pub pod: NodeId,
    /// How long it may stay silent before it counts as inactive.
    pub timeout_ms: u64,
}

/// Identifies a snapshot: the epoch of the leader that published it, and its number within that epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SnapshotId {
    /// The publisher's epoch.
    pub epoch: Epoch,
    /// Counts snapshots within the epoch.
    pub sequence: u64,
}

/// A worker in a snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotEntry {
    /// The worker's id.
    pub worker: WorkerId,
    /// What it said about itself.
    pub details: WorkerDetails,
    /// Whether it counts as alive.
    pub active: bool,
    /// Its last silence, named by the snapshot that first reported it. The name makes everybody report the silence once,
    /// however many snapshots were missed and whoever leads. `None` if it was never silent.
    pub silence: Option<SnapshotId>,
}

/// Which workers a snapshot lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Listing {
    /// All workers.
    #[default]
    All,
    /// Only the inactive ones, because all would not fit: a worker that is not listed is active, or gone.
    Inactive,
    /// Not even all inactive ones: nothing follows for a worker that is not listed.
    Cut,
}

/// What a leader publishes about the workers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Snapshot {
    /// Identifies this snapshot.
    pub id: SnapshotId,
    /// Workers in id order.
    pub workers: Vec<SnapshotEntry>,
    /// Which workers `workers` contains.
    pub listing: Listing,
    /// How many workers are active.
    pub active: u64,
    /// How many workers are inactive.
    pub inactive: u64,
    /// Objects in `workers/` that are not workers.
    pub skipped: u64,
}

/// Something that happened to a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerEvent {
    /// The worker's id.
    pub worker: WorkerId,
    /// What it said about itself.
    pub details: WorkerDetails,
    /// What happened.
    pub change: WorkerChange,
}

/// What happened to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WorkerChange {
    /// The worker is new.
    Registered,
    /// The worker has been silent for its timeout.
    Timeout,
    /// The worker is back.
    Recovered,
    /// The worker's object is gone.
    Deregistered,
}
