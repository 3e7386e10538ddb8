//! Coordination for clusters that own nothing but a bucket.
//!
//! A [`Node`] takes part in the election of one namespace, with an object store as the only arbiter. When it leads, it
//! holds a [`LeaderGuard`]: the epoch to stamp on everything it does, and a deadline it checks by itself.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder()
//!     .store("memory:")
//!     .namespace("reports")
//!     .node("pod-a")
//!     .startup_jitter_max(Duration::ZERO)
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

pub mod clock;
mod diagnostics;
mod documents;
mod election;
pub mod error;
pub mod event;
pub mod fence;
mod fenced_document;
mod forget;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
pub mod job;
mod keys;
pub mod metrics;
mod mutant;
mod namespaces;
mod node;
pub mod plugin;
pub mod process;
pub mod schedules;
pub mod settings;
pub mod shell;
mod status;
mod step_down;
mod telemetry;
#[cfg(feature = "explore")]
mod watcher;
mod wire;
mod workers;

/// Looking at a namespace from outside and stepping in: status, step-down, namespaces, forgetting a node.
pub mod admin {
    pub use crate::forget::{Forgot, forget_node};
    pub use crate::keys::Election;
    pub use crate::namespaces::{NamespaceSummary, Namespaces};
    pub use crate::status::{LeaderStatus, NodeStatus, SeatHolder, Status, WATCH_MAX};
    pub use crate::step_down::{AskedLeader, HandOver, StepDownAnswer, hand_over, request_step_down};
}

/// Documents that a leader keeps beside the seat, and the presences of nodes.
pub mod document {
    pub use crate::documents::{Change, Documents, Found, Presence, PresenceEntry, Presences};
    pub use crate::fenced_document::FencedDocument;
}

/// Ids, each of its own type: a worker's id cannot be taken for a job's.
pub mod id {
    pub use tenure_core::{
        CheckName, DocumentName, IdError, JobId, KindName, Label, Namespace, NodeId, PluginName, ProcessName,
        ScheduleId, SeriesId, WorkerId,
    };
}

/// The one shape of all state machines: for whoever feeds one, with a [`shell`] or by hand.
pub mod machine {
    pub use tenure_core::Time;
    pub use tenure_core::machine::{
        Answer, Effect, In, Input, Machine, NoRequest, Now, Out, Request, RequestId,
    };
}

/// Workers: registered processes that take work, with a heartbeat of their own.
pub mod worker {
    pub use crate::workers::{
        Observer, SeenWorker, Worker, WorkerEnd, WorkerInfo, WorkerList, WorkerPhase, WorkerRow, WorkerSpec,
        WorkerState, WorkerStatus, Workers,
    };
}

pub use async_trait::async_trait;
pub use error::Error;
pub use event::Event;
pub use fence::{Fence, TaskStamp};
pub use fenced_document::FencedDocument;
pub use guard::{LeaderGuard, Leadership, LeadershipEnded};
#[doc(hidden)]
pub use mutant::DriverMutant;
pub use node::{Node, NodeBuilder, StopReason};
pub use settings::Settings;
#[doc(hidden)]
pub use tenure_core::{Mutant, mutants};
pub use tenure_core::{Namespace, NodeId, Role, Verdict};
pub use tenure_store as store;
#[cfg(feature = "explore")]
pub use watcher::{CoreStep, Watcher};
