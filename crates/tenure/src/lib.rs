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
//! # Where things are
//!
//! The root has what every user needs. Each of the modules is about one subject, and begins with what it is for and an example:
//!
//! | to do this | look here |
//! |---|---|
//! | run work on the leader only | [`LeaderGuard`], [`process`] for supervised work, [`plugin`] for parts that share an election |
//! | refuse what a former leader sent or wrote | [`fence`], [`FencedDocument`], [`document`] |
//! | hand work to others | [`worker`], [`job`], [`schedules`] |
//! | watch | [`event`], [`metrics`], [`admin`] from outside |
//! | set up | [`settings`], [`store`], [`clock`] |
//! | write a state machine of one's own | [`machine`], [`shell`] |
//!
//! Everything that can go wrong is an [`Error`], except what an id or the settings break: these name their fields.
//!
//! # What is not promised
//!
//! A guard that was valid a moment ago may not be valid now: the process may have been paused between the check and the side
//! effect. Check immediately before each effect, keep effects short, and let the receiver refuse stale epochs with a
//! [`Fence`].

pub mod admin;
pub mod clock;
mod diagnostics;
pub mod document;
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
pub mod id;
pub mod job;
mod keys;
pub mod lock;
pub mod machine;
pub mod metrics;
mod mutant;
mod namespaces;
mod node;
pub mod once;
pub mod plugin;
pub mod process;
pub mod schedules;
pub mod settings;
pub mod shell;
mod status;
mod step_down;
mod telemetry;
mod terms;
#[cfg(feature = "explore")]
mod watcher;
mod wire;
pub mod worker;
mod workers;

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
