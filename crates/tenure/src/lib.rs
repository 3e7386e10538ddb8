//! Coordination for clusters that own nothing but a bucket.
//!
//! A [`Node`] takes part in the election of one namespace, with an object store as the only arbiter. When it leads, it
//! holds a [`LeaderGuard`]: the epoch to stamp on everything it does, and a deadline it checks by itself.
//!
//! ```
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder()
//!     .store("memory:")
//!     .namespace("reports")
//!     .node("pod-a")
//!     .startup_jitter_max(0)
//!     .build()?;
//! let node = Node::start(settings).await?;
//! let guard = node.lead().await.ok_or("the node was stopped")?;
//! assert_eq!(guard.epoch(), 1);
//! while guard.is_valid() {
//!     // … do one small piece of the leader's work, stamped with guard.epoch() …
//!     break;
//! }
//! drop(guard); // the work has stopped: the seat may be given to the next
//! node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! # What is not promised
//!
//! A guard that was valid a moment ago may not be valid now: the process may have been paused between the check and the side
//! effect. Check immediately before each effect, keep effects short, and let the receiver refuse stale epochs with a
//! [`Fence`].

mod annex;
mod carrier;
mod clock;
mod diagnostics;
mod driver;
mod event;
mod fence;
mod forget;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
/// The ids of things, each of its own type: what names a worker cannot be taken for what names a job.
pub mod id {
    pub use tenure_core::{
        CheckName, DocumentName, IdError, JobId, KindName, Label, Namespace, NodeId, PluginName, ProcessName,
        ScheduleId, SeriesId, WorkerId,
    };
}
mod keys;
pub mod metrics;
mod mutant;
mod namespaces;
mod node;
mod plugin;
mod process;
pub mod schedules;
mod service;
pub mod settings;
mod status;
mod step_down;
pub mod tasks;
mod telemetry;
#[cfg(feature = "explore")]
mod watcher;
mod wire;
mod workers;

pub use annex::{Annex, Document, DocumentNameError, News, Presence, PresenceMark, Presences};
pub use async_trait::async_trait;
pub use clock::{BootClock, Clock, TokioClock};
pub use event::{EVENT_NAMES, Event, EventKind, LostReason, WorkerFacts};
pub use fence::{Fence, Permit, Refused, TaskStamp};
pub use forget::{Forgot, forget_node};
pub use guard::{LeaderGuard, Leadership, LeadershipEnded};
pub use keys::Keys;
pub use metrics::Metrics;
#[cfg(feature = "teeth")]
pub use mutant::Broken;
#[doc(hidden)]
pub use mutant::DriverMutant;
pub use namespaces::{NamespaceSummary, Namespaces};
pub use node::{Node, NodeBuilder, NotLeading, StartError, StopReason};
pub use plugin::{LeaderChange, Mode, Plugin};
pub use process::{
    ProcessContext, ProcessError, ProcessHost, ProcessSpec, ProcessStatus, Processes, Supervisor,
    SupervisorStatus,
};
pub use prometheus_client;
pub use service::{AttachError, PluginHandle, Service, Services};
pub use settings::{CoordinationMode, Settings, SettingsError};
pub use status::{LeaderStatus, NodeStatus, SeatHolder, Status, StatusError, WATCH_MAX_MS};
pub use step_down::{
    AskedLeader, HandOver, StepDownAnswer, StepDownError, hand_over, hand_over_at, request_step_down,
    request_step_down_at,
};
pub use tenure_core::{
    FenceRule, IdError, Namespace, NodeId, ProcessOutcome, ProcessState, Restart, Role, SlowCause, Verdict,
};
/// The highest possible epoch: 2⁵³ − 1. Nobody claims a higher one; a document with a higher one is damaged or forged.
pub const EPOCH_MAX: u64 = tenure_core::Epoch::MAX.0;

pub use tenure_store as store;
#[cfg(feature = "explore")]
pub use watcher::{CoreStep, Watcher};
pub use workers::{
    Observer, Registrar, Worker, WorkerEnd, WorkerError, WorkerInfo, WorkerLife, WorkerList, WorkerPhase,
    WorkerRow, WorkerSpec, WorkerStatus, Workers,
};
