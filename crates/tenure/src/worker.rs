//! Workers: registered processes that take work, each with a heartbeat and a timeout of its own.
//!
//! A worker keeps one object fresh. The leader lists these objects, judges who is alive, and publishes what it found, so every
//! node knows the workers of its namespace ([`Workers`]) at the price of one list per sweep. A worker of this process is
//! [enabled](Worker::enabled) while its pod leads.
//!
//! ```
//! use std::time::Duration;
//! use tenure::worker::WorkerSpec;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//!
//! let worker = node.register_worker(WorkerSpec::new("q1-worker-1", "queue"))?;
//! worker.registered().await?; // it has its id: no other live process does
//! let known = node.workers().wait_for(|workers| workers.active == 1).await?.clone();
//! assert_eq!(known.list[0].worker_id.as_str(), "q1-worker-1");
//! worker.deregister().await;
//! # node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! A process without a node uses an [`Observer`]; [`WorkerList`] shows the workers from outside. Workers take jobs with a
//! [`JobRunner`](crate::job::JobRunner).
//!
//! # What is not promised
//!
//! A silent worker need not be dead: it may still be working. What it must not do twice needs a [fence](crate::fence). Nodes
//! other than the leader learn of changes a few seconds late.

pub use crate::workers::{
    Observer, SeenWorker, Worker, WorkerEnd, WorkerInfo, WorkerList, WorkerPhase, WorkerRow, WorkerSpec,
    WorkerState, WorkerStatus, Workers,
};
