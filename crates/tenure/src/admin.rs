//! Looking at a namespace from outside, and stepping in.
//!
//! A script, a dashboard or an operator's tool needs a store and the name of a namespace, but no node: nothing here takes part
//! in the election, and looking writes nothing.
//!
//! - [`Status`] says who leads, whether it was seen alive, and which nodes there are. [`SeatHolder`] is one read.
//! - [`Namespaces`] lists what a store holds.
//! - [`request_step_down`] asks the leader to hand over, and [`hand_over`] waits for the outcome.
//! - [`Term`] is one term of a leader; [`SeatTerms`] is what the seat says about the last two.
//! - [`forget_node`] removes the presence of a node that is gone.
//!
//! An [`Election`] is usually named by its namespace; plugins, locks and commands have elections of their own beside it.
//!
//! ```
//! use std::time::Duration;
//! use tenure::admin::{HandOver, Status, StepDownAnswer, hand_over, request_step_down};
//! use tenure::{Namespace, store};
//! # use tenure::{Node, Settings, settings::Preset};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let settings = Settings::builder().store("memory:admin").namespace("reports").node("pod-a").preset(Preset::Fast);
//! # let node = Node::start(settings.startup_jitter_max(Duration::ZERO).build()?).await?;
//! # drop(node.lead().await);
//! let lanes = store::open_str("memory:admin", &store::OpenOptions::default()).await?;
//! let reports = Namespace::new("reports")?;
//!
//! let status = Status::read(&lanes, &reports).await?;
//! let leader = status.leader.ok_or("nobody leads")?;
//! assert_eq!((leader.node.as_str(), leader.live), ("pod-a", true));
//!
//! if let StepDownAnswer::Asked(asked) = request_step_down(&lanes, &reports, "ops").await? {
//!     let outcome = hand_over(&lanes, &reports, asked.epoch, Duration::from_secs(10)).await?;
//!     assert!(matches!(outcome, HandOver::Led { .. } | HandOver::Vacant));
//! }
//! # Ok(()) }
//! ```
//!
//! # What is not promised
//!
//! Each look shows one moment, and parts of it are read one after the other. Whether a leader is alive is known only once it
//! was seen to renew. A leader that was asked to step down may be dead, or its work may not stop: then it keeps the seat until
//! its lease expires.

pub use crate::forget::{Forgot, forget_node};
pub use crate::keys::Election;
pub use crate::namespaces::{NamespaceSummary, Namespaces};
pub use crate::status::{LeaderStatus, NodeStatus, SeatHolder, Status, WATCH_MAX};
pub use crate::step_down::{AskedLeader, HandOver, StepDownAnswer, hand_over, request_step_down};
pub use crate::terms::{SeatTerms, Term, TermEnd};
