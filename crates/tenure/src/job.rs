//! Jobs: the leader hands work to workers through objects, fenced, so that failover neither loses nor repeats it.
//!
//! The leader's [`Dispatcher`] keeps every job in a ledger and puts it into the inbox of a worker; the worker's [`JobRunner`] claims
//! it, runs it and writes its result there. Each of them needs to know [where the jobs are](crate::Node::jobs).
//!
//! ```
//! use std::time::Duration;
//! use tenure::job::{Dispatcher, Handlers, JobOutcome, JobRunner, JobSpec, JobState, Submitted};
//! use tenure::worker::WorkerSpec;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! let worker = node.register_worker(WorkerSpec::new("w1", "reports"))?;
//! let handlers = Handlers::new().on("greet", |_| async { JobOutcome::succeeded("hello") });
//! let runner = JobRunner::start(&node.jobs(), worker, handlers);
//!
//! let dispatcher = Dispatcher::start(&node.jobs(), node.lead().await.ok_or("stopped")?);
//! let mut updates = dispatcher.updates();
//! let job = JobSpec::new("greeting-1", "greet").worker("w1");
//! assert_eq!(dispatcher.submit(job).await?, Submitted::Created); // from here on, no failover loses it
//! while updates.recv().await?.state != JobState::Succeeded {}
//! # runner.drain().await;
//! # Ok(()) }
//! ```
//!
//! [`JobList`] shows the jobs from outside, [`JobHistory`] those that are over. All of it runs on connections of its own: whatever happens here cannot delay a renewal.
//!
//! # What is not promised
//!
//! A job's *result* counts once, but a job may *run* twice: a worker that fell silent may still run what it claimed while another
//! attempt runs elsewhere. Guard what must not be done twice where it is done, by the job's id or by the epoch.

mod blob;
mod carrier;
mod codec;
mod dispatcher;
mod history;
mod notices;
mod orders;
mod output;
mod queue;
mod runner;
mod spec;
mod submit;
mod submitted;
mod view;

pub(crate) use dispatcher::Dispatching;
pub use dispatcher::{Dispatcher, DispatcherEnd, DispatcherOptions, JobCounts, Submitted};
pub use history::{HISTORY_PAGE_MAX, HistoryPage, HistoryQuery, HistoryRow, HistoryRuns, JobHistory};
pub use notices::{Notice, NoticeKind, NoticeSender};
pub(crate) use orders::OrdersCodec;
pub use output::{JobOutput, OutputPiece, OutputSegment, OutputStream, OutputWriter};
pub use queue::{Queue, QueueInfo};
pub use runner::{Handlers, JobContext, JobOutcome, JobRunner, RunnerEnd, RunnerOptions};
pub use spec::JobSpec;
pub(crate) use submit::Submissions;
pub use submit::{JOBS_PER_CALL_MAX, Receipt};
pub use tenure_core::{
    AllowedCommand, ClaimerCounts, JobLimits, JobRecord, JobState, JobUpdate, Labels, LateResult,
    OutcomeKind, Progress, QueueSettings,
};
pub use view::JobList;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use codec::{InboxCodec, LedgerCodec};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use history::{HeadCodec, PartCodec, RowsCodec, limits as history_limits};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use notices::NoticesCodec;

use crate::clock::{BootClock, Clock};
use crate::election::Reporter;
use crate::error::Error;
use crate::fence::Fence;
use crate::keys::Keys;
use crate::node::NodeHandle;
use crate::settings::Settings;
use crate::workers::Workers;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::Namespace;
use tenure_store::{Lanes, Store};
use tokio::sync::{broadcast, watch};

/// Shards of the ledger. Never change this: a series must stay where it is. There are many, so that the open jobs and watermarks
/// of 5,000 schedules fit into objects of 1 MiB, and so that a write carries little that did not change. The price: a
/// takeover reads and writes all of them at once.
pub(crate) const SHARDS: usize = 64;

/// How often the leader looks at what runs for long, and how often it is written how far that is and why others wait.
pub(crate) const SLOW_LOOK: Duration = Duration::from_secs(5);

/// How long after its worker left the registry an inbox is removed. Longer than any request can be in flight: stores refuse
/// a request that was signed 15 minutes ago.
pub(crate) const RETIRE_MS: u64 = 20 * 60 * 1000;

/// Where a namespace's jobs are. Clones share it.
#[derive(Clone)]
pub struct Jobs {
    pub(crate) store: Arc<dyn Store>,
    /// A plugin's place changes with its fallback; every other place stays where it is.
    pub(crate) keys: watch::Receiver<Keys>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) reporter: Reporter,
    pub(crate) fence: Fence,
    pub(crate) workers: watch::Receiver<Workers>,
    pub(crate) submissions: Submissions,
    pub(crate) dispatching: Dispatching,
    pub(crate) sender: notices::Sender,
}

impl Jobs {
    /// The keys of a place that never moves.
    pub(crate) fn fixed(keys: Keys) -> watch::Receiver<Keys> {
        watch::Sender::new(keys).subscribe()
    }

    /// The jobs of a namespace, for a process that is no node: it submits and cancels, and neither leads nor works. Must be called
    /// on a tokio runtime.
    pub fn of_namespace(settings: &Settings, lanes: Lanes) -> Result<Jobs, Error> {
        let keys = Keys::global(&Namespace::new(&settings.namespace)?);
        let (events, _) = broadcast::channel(1);
        let leadership = watch::Sender::new(crate::Leadership::default()).subscribe();
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let (_, _, jobs) = NodeHandle::connect(settings, &keys, lanes, clock, events, leadership);
        Ok(jobs)
    }

    /// The keys of the place now.
    pub(crate) fn keys(&self) -> Keys {
        self.keys.borrow().clone()
    }

    /// What became of the jobs that are over.
    pub fn history(&self) -> JobHistory {
        JobHistory::of(self)
    }

    /// Where a plugin that works with jobs adds its own figures to the node's.
    pub fn plugin_figures(&self) -> crate::metrics::PluginFigures {
        crate::metrics::PluginFigures(Arc::clone(&self.reporter.counters))
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Jobs({})", self.keys().inboxes())
    }
}
