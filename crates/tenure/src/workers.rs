//! The worker registry: workers register and keep one object fresh, the leader judges, and everybody is told.
//!
//! All of it runs on the bulk lane and in its own tasks. Whatever happens here cannot delay a renewal, and a panic ends
//! where it began.

mod codec;
mod observer;
mod registry;
mod spec;
mod sweeper;
mod view;
mod worker;

pub use observer::Observer;
pub use registry::{SeenWorker, WorkerInfo, Workers};
pub use spec::WorkerSpec;
pub use view::{WorkerList, WorkerRow, WorkerState};
pub use worker::{Worker, WorkerEnd, WorkerPhase, WorkerStatus};

pub(crate) use codec::WorkerDocument;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use codec::{SnapshotDocument, TIMEOUT_MAX_MS};
pub(crate) use registry::{SnapshotPointers, WorkerRegistry};
pub(crate) use sweeper::Sweeper;
pub(crate) use worker::WorkerHost;
