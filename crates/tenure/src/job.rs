//! Jobs: the leader hands work to workers through objects, fenced, so that failover neither loses nor repeats it.
//!
//! `tenure-core` makes the decisions; this module carries them to the store and back. All of it runs on the bulk lane, in
//! its own tasks: whatever happens here cannot delay a renewal.

mod assign;
mod blob;
mod carrier;
mod dispatcher;
mod documents;
mod pool;
mod runner;
mod spec;
mod view;

pub use assign::{Assign, Candidate, LeastLoaded};
pub use dispatcher::{Dispatcher, DispatcherEnd, DispatcherOptions, JobCounts, Submitted};
pub use runner::{Handlers, JobContext, JobOutcome, JobRunner, RunnerEnd, RunnerOptions};
pub use spec::JobSpec;
pub use tenure_core::{ClaimerCounts, JobLimits, JobRecord, JobState, JobUpdate, LateResult, OutcomeKind};
pub use view::JobList;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use documents::{InboxCodec, LedgerCodec};

use crate::election::Reporter;
use crate::fence::Fence;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::workers::Workers;
use std::sync::Arc;
use tenure_store::Store;
use tokio::sync::watch;

/// Shards of the ledger. Never change this: a series must stay where it is. There are many, so that the open jobs and watermarks
/// of 5,000 schedules fit into objects of 1 MiB, and so that a write carries little that did not change. The price: a
/// takeover reads and writes all of them at once.
pub(crate) const SHARDS: usize = 64;

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
}

impl Jobs {
    /// The keys of a place that never moves.
    pub(crate) fn fixed(keys: Keys) -> watch::Receiver<Keys> {
        watch::Sender::new(keys).subscribe()
    }

    /// The keys of the place now.
    pub(crate) fn keys(&self) -> Keys {
        self.keys.borrow().clone()
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
