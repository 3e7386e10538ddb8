//! Workers: entries with a heartbeat of their own, judged by the leader and told to everybody.
//!
//! Three machines, beside the election and never part of it: [`Registration`] is a worker's side, [`Roll`] the leader's,
//! [`Bulletin`] what every node knows. None of them can cost leadership: they hold no lease and touch no seat.
//!
//! No clock is compared with another. The leader sees that an object *changed*, and counts the time since then on its own
//! clock; what the store says about when it was written is only ever compared for being the same.

mod bulletin;
mod registration;
mod roll;

pub use bulletin::{Bulletin, BulletinEntry};
pub use registration::{
    Registration, RegistrationAnswer, RegistrationConfig, RegistrationEffect, RegistrationEnd,
    RegistrationEvent, RegistrationInput, RegistrationRequest, RemoveAnswer, WorkerFound, WorkerRead,
};
pub use roll::{Listed, ReadOutcome, Roll, RollConfig, Skipped, SweepOutcome, WORKERS_MAX};

use crate::id::{NodeId, PluginName, WorkerId};
use crate::seat::Epoch;

/// What a worker says about itself, as far as anybody decides by it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerDetails {
    /// Which plugin it works for.
    pub plugin_type: PluginName,
    /// Where it runs.
    pub pod: NodeId,
    /// How long it may be silent.
    pub timeout_ms: u64,
}

/// Which snapshot: the epoch of the leader that published it, and its number within that epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SnapshotMark {
    /// The publisher's epoch.
    pub epoch: Epoch,
    /// Counts within the epoch.
    pub sequence: u64,
}

/// A worker in a snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SnapshotEntry {
    /// Who.
    pub worker: WorkerId,
    /// What it said about itself.
    pub details: WorkerDetails,
    /// Whether it counts as alive.
    pub active: bool,
    /// Its last silence: the snapshot that told of it first. Names the silence, so that it is told once by everybody,
    /// however many snapshots were missed and whoever leads. None if it was never silent.
    pub silence: Option<SnapshotMark>,
}

/// What a snapshot lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Listing {
    /// Every worker.
    #[default]
    All,
    /// The inactive ones only, because all would not fit: whoever is not there is active, or gone.
    Inactive,
    /// Not even all inactive ones: nothing follows for whoever is not there.
    Cut,
}

/// What a leader publishes about the workers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Snapshot {
    /// Which one.
    pub mark: SnapshotMark,
    /// The workers, in order of their ids.
    pub workers: Vec<SnapshotEntry>,
    /// What `workers` has of them.
    pub listing: Listing,
    /// How many are active.
    pub active: u64,
    /// How many are not.
    pub inactive: u64,
    /// Objects among the workers that are none.
    pub skipped: u64,
}

/// Something that happened to a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerEvent {
    /// To whom.
    pub worker: WorkerId,
    /// What it said about itself.
    pub details: WorkerDetails,
    /// What.
    pub change: WorkerChange,
}

/// What happened to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WorkerChange {
    /// It is new.
    Registered,
    /// It has been silent for its timeout.
    Timeout,
    /// It is back.
    Recovered,
    /// Its object is gone.
    Deregistered,
}
