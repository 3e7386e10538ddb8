//! Tasks: the leader gives work to workers through objects, fenced, so that a failover neither loses nor doubles it.
//!
//! The decisions are `tenure-core`'s; here they are carried to the store and back. All of it runs on the bulk lane, in tasks
//! of its own: whatever happens here cannot delay a renewal.

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
pub use dispatcher::{Dispatcher, DispatcherEnd, DispatcherOptions, Submitted, TaskCounts};
pub use runner::{Handlers, RunnerEnd, RunnerOptions, TaskContext, TaskOutcome, TaskRunner};
pub use spec::{SubmitError, TaskError, TaskSpec};
pub use tenure_core::{LateResult, OutcomeKind, TakerCounts, TaskLimits, TaskRecord, TaskState, TaskUpdate};
pub use view::TaskList;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use documents::{read_inbox, read_ledger, write_inbox, write_ledger};

use crate::driver::Voice;
use crate::fence::Fence;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::workers::Workers;
use std::sync::Arc;
use tenure_store::Store;
use tokio::sync::watch;

/// Shards of the ledger. Never to be changed: a series must stay where it is. Many, so that the open tasks and the marks of
/// 5,000 schedules fit into objects of 1 MiB, and that a write carries little of what did not change. The price: a take-over
/// reads and writes all of them, at once.
pub(crate) const SHARDS: usize = 64;

/// The inbox of a worker that is not in the registry any more is removed after this. Longer than any request is under way:
/// stores refuse what was signed 15 minutes ago.
pub(crate) const RETIRE_MS: u64 = 20 * 60 * 1000;

/// The place where a namespace's tasks are. Clones share it.
#[derive(Clone)]
pub struct TaskPlace {
    pub(crate) store: Arc<dyn Store>,
    /// A plugin's place changes with its fallback; every other stays where it is.
    pub(crate) keys: watch::Receiver<Keys>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) voice: Voice,
    pub(crate) fence: Fence,
    pub(crate) workers: watch::Receiver<Workers>,
}

impl TaskPlace {
    /// The keys of a place that stays where it is.
    pub(crate) fn fixed(keys: Keys) -> watch::Receiver<Keys> {
        watch::Sender::new(keys).subscribe()
    }

    /// Where it is now.
    pub(crate) fn keys(&self) -> Keys {
        self.keys.borrow().clone()
    }

    /// Where a plugin that works with tasks adds its own figures to the node's.
    pub fn plugin_figures(&self) -> crate::metrics::PluginFigures {
        crate::metrics::PluginFigures(Arc::clone(&self.voice.figures))
    }
}

impl std::fmt::Debug for TaskPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskPlace({})", self.keys().inboxes())
    }
}
