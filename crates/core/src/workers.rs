//! Workers: entries with their own heartbeat, judged by the leader and published to everybody.
//!
//! Two machines, beside the election and never part of it: [`Registration`] is a worker's side, [`Sweep`] every node's. In it,
//! [`Liveness`] is how a leader judges, and [`KnownWorkers`] what a node knows. Neither can cost leadership: they hold no
//! lease and touch no seat.
//!
//! No clock is compared with another. The leader sees that an object *changed*, and counts the time since then on its own
//! clock. The store's time stamps are only ever compared for equality.

mod known_workers;
mod liveness;
mod registration;
mod snapshot;
mod sweep;

pub use known_workers::{KnownWorker, KnownWorkers};
pub use liveness::{Listed, Liveness, LivenessConfig, ReadOutcome, Skipped, SweepOutcome, WORKERS_MAX};
pub use snapshot::{Listing, Snapshot, SnapshotEntry, SnapshotId};
pub use sweep::{ListedWorkers, Sweep, SweepAnswer, SweepCommand, SweepConfig, SweepOutput, SweepRequest};

pub use registration::{
    RegisteredBy, Registration, RegistrationCommand, RegistrationConfig, RegistrationEnd, RegistrationEvent,
    RegistrationOutput,
};

use crate::id::{NodeId, PluginName, WorkerId};

/// What a worker says about itself and every node is told. Only the timeout decides anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerDetails {
    pub plugin_type: PluginName,
    pub pod: NodeId,
    /// How long it may stay silent before it counts as inactive.
    pub timeout_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerEvent {
    pub worker: WorkerId,
    pub details: WorkerDetails,
    pub change: WorkerChange,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WorkerChange {
    Registered,
    /// The worker has been silent for its timeout.
    Timeout,
    Recovered,
    /// The worker's object is gone.
    Deregistered,
}
