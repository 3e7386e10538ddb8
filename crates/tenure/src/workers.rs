//! The worker registry: workers register and keep one object fresh, the leader judges, and everybody is told.
//!
//! All of it runs on the bulk lane and in its own tasks. Whatever happens here cannot delay a renewal, and a panic ends
//! where it began.

mod documents;
mod observer;
mod registrar;
mod registry;
mod spec;
mod sweeper;
mod view;
mod worker;

pub use observer::Observer;
pub use registrar::Registrar;
pub use registry::{WorkerInfo, WorkerLife, Workers};
pub use spec::{WorkerError, WorkerSpec};
pub use view::{WorkerList, WorkerRow, WorkerState};
pub use worker::{Worker, WorkerEnd, WorkerPhase, WorkerStatus};

pub(crate) use documents::WorkerDocument;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use documents::{SnapshotDocument, TIMEOUT_MAX_MS};
pub(crate) use registry::{Pointers, WorkerRegistry};
pub(crate) use sweeper::Sweeper;
pub(crate) use worker::WorkerHost;
