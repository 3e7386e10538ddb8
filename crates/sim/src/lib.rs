//! The simulator: the production protocol in worlds where everything goes wrong.
//!
//! - [`run`] plays one schedule from one seed: nodes of the production core, one store, true time on one heap. Three of
//!   four seeds are storms, the fourth is a drill that holds a calm cluster to its bounds.
//! - [`explore`] visits every state two or three nodes can reach under every interleaving of store outcomes, crashes,
//!   pauses and expiries, within stated limits.
//! - [`teeth`] runs both on deliberately broken variants, which must be caught.
//! - [`cluster`] does the same with the production driver on paused time, in smaller numbers.
//!
//! None of it is a proof: schedules find what they find, and the explorer is exhaustive only within its limits.

mod book;
mod budget;
mod bureau;
pub mod check;
mod clock;
pub mod cluster;
mod drill;
pub mod explore;
pub mod far;
mod fault;
mod hand;
mod labour;
mod landing;
mod lives;
mod model;
mod monitor;
mod neglect;
mod network;
mod node;
mod office;
mod overheard;
mod queue;
mod registry;
pub mod report;
mod run;
mod shelf;
mod silence;
mod store;
mod storm;
mod sweep;
pub mod teeth;
pub mod timeline;
mod trace;
pub mod transition;
mod wire;
mod witness;
mod work;
mod worker;
mod workforce;
mod world;

pub use check::Violation;
pub use drill::Failover;
pub use fault::{FaultCounts, FaultKind, FaultMix};
pub use labour::WorkDone;
pub use neglect::Neglect;
pub use node::Kind;
pub use run::{Options, Outcome, run};
pub use trace::{Note, Noted};
