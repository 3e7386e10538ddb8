//! The worker registry: workers register and keep one object fresh, the leader judges, and everybody is told.
//!
//! All of it runs on the bulk lane and in its own tasks. Whatever happens here cannot delay a renewal, and a panic ends
//! where it began.

mod board;
mod documents;
mod lives;
mod observer;
mod registrar;
mod spec;
mod sweeper;
mod view;
mod worker;

pub use board::{WorkerInfo, Workers};
pub use lives::WorkerLife;
pub use observer::Observer;
pub use registrar::Registrar;
pub use spec::{WorkerError, WorkerSpec};
pub use view::{WorkerList, WorkerRow};
pub use worker::{Worker, WorkerEnd, WorkerPhase, WorkerStatus};

pub(crate) use board::{Board, Pointers};
pub(crate) use documents::WorkerDocument;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use documents::{SnapshotDocument, TIMEOUT_MAX_MS};
pub(crate) use lives::Lives;
pub(crate) use sweeper::Sweeper;
pub(crate) use worker::WorkerHost;
