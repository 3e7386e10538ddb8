//! The simulator: the production protocol in worlds where everything goes wrong.
//!
//! - [`run`] plays one schedule from one seed: nodes and workers of the production core, one store, true time on one heap. Three
//!   of four seeds suffer random faults, the fourth holds a calm cluster to its failover bounds.
//! - [`explore`] visits every state two or three nodes can reach under every interleaving of store outcomes, crashes,
//!   pauses and expiries, within stated limits.
//! - [`mutants`] runs both on deliberately broken variants, which must be caught.
//! - [`cluster`] does the same with the production driver on paused time, in smaller numbers.
//!
//! None of it is a proof: schedules find what they find, and the explorer is exhaustive only within its limits.

mod caller_mistakes;
pub mod checks;
pub mod clock;
pub mod cluster;
mod computer;
pub mod evidence;
pub mod explore;
mod failovers;
pub mod far_region;
mod fault;
mod kind;
mod machines;
mod model;
mod monitor;
pub mod mutants;
mod network;
mod node;
mod observed_store;
mod queue;
mod random_faults;
pub mod report;
mod run;
mod shell;
mod store;
pub mod timeline;
mod trace;
pub mod transition;
mod workloads;
mod world;

pub use caller_mistakes::CallerMistake;
pub use checks::Violation;
pub use failovers::Failover;
pub use fault::{FaultCounts, FaultKind, FaultMix};
pub use kind::Kind;
pub use run::{Options, Outcome, run};
pub use trace::{Note, Noted};
pub use workloads::jobs::WorkDone;
