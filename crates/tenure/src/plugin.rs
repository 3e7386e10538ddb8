//! Plugins: code that takes part in an election without running one.
//!
//! Several parts of a program can share one election: each implements [`Plugin`] and is attached to the process's [`Services`], which
//! start one node per namespace. With the setting `coordinationMode` a plugin gets an election of its own instead, as it does when
//! the store refuses the shared one ([`Mode::Fallback`]).
//!
//! ```
//! use std::time::Duration;
//! use tenure::plugin::{Plugin, Services};
//! use tenure::{LeaderGuard, Settings, async_trait};
//!
//! struct Reports;
//!
//! #[async_trait]
//! impl Plugin for Reports {
//!     fn name(&self) -> &str {
//!         "reports"
//!     }
//!
//!     async fn promoted(&self, guard: LeaderGuard) {
//!         // … write reports, stamped with guard.epoch(), until leadership ends …
//!         guard.ended().await;
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let reports = Services::process().attach(Reports, settings).await?;
//! reports.leadership().wait_for(tenure::Leadership::is_leader).await?;
//! reports.detach().await;
//! # Ok(()) }
//! ```
//!
//! A [`NodeHandle`] is what code beside the election uses of a node: documents, figures, events of its own.
//!
//! Not promised: that a slow plugin sees every event; see [`Plugin`].

mod callbacks;
mod fallback;
mod handle;
mod service;

pub use handle::PluginHandle;
pub use service::{Service, Services};

pub use crate::node::NodeHandle;

use crate::event::Event;
use crate::fence::Fence;
use crate::guard::{LeaderGuard, Leadership};
use crate::keys::Keys;
use crate::metrics::Counters;
use crate::workers::Workers;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use tenure_core::NodeId;
use tokio::sync::{broadcast, watch};

/// A subscriber to an election: its namespace's, shared with others, or one of its own.
///
/// Every call runs in its own task. If a handler panics, that is reported (`plugin_failed`) and the next notice still
/// arrives. A handler that takes longer than five seconds is cut off and reported the same way, except
/// [`promoted`](Plugin::promoted), which may last as long as leadership. Neither affects other plugins, the election or its
/// leases.
///
/// Not promised: that a slow plugin sees every event. Promotion and demotion are never lost; notices that it could not keep
/// up with are, and [`missed`](Plugin::missed) says how many. There is no order between `promoted` and the notices.
///
/// A task can only be cut off where it awaits. A plugin that blocks its thread holds up whoever needs that thread, and the
/// guard it holds keeps the seat from being handed over before its lease runs out: block in `spawn_blocking`.
#[async_trait]
pub trait Plugin: Send + Sync + 'static {
    /// Unique in its namespace and process, and a valid part of a key (the rules of ids apply).
    fn name(&self) -> &str;

    /// This node leads, for this plugin. Runs until it returns or leadership ends, whichever comes first: after
    /// [`guard.ended()`](LeaderGuard::ended) it has half of `drainTimeout` to return, but never beyond the lease, and is
    /// then dropped where it awaits. It must stop any work it spawned elsewhere, and drop every clone of the guard with it.
    async fn promoted(&self, guard: LeaderGuard) {
        drop(guard);
    }

    /// This node no longer leads; `promoted` has ended.
    async fn demoted(&self, epoch: u64) {
        let _ = epoch;
    }

    /// There is a new leader, or the same one with a new epoch; this node or another.
    async fn leader_changed(&self, change: &LeaderChange) {
        let _ = change;
    }

    /// Anything else that happened in the election: see [`EventKind`](crate::event::EventKind). Plugin failures are left out.
    async fn event(&self, event: &Event) {
        let _ = event;
    }

    /// This many notices were left out because the plugin was too slow; `now` is the present leadership.
    async fn missed(&self, missed: u64, now: &Leadership) {
        let _ = (missed, now);
    }
}

#[async_trait]
impl<P: Plugin + ?Sized> Plugin for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    async fn promoted(&self, guard: LeaderGuard) {
        (**self).promoted(guard).await;
    }

    async fn demoted(&self, epoch: u64) {
        (**self).demoted(epoch).await;
    }

    async fn leader_changed(&self, change: &LeaderChange) {
        (**self).leader_changed(change).await;
    }

    async fn event(&self, event: &Event) {
        (**self).event(event).await;
    }

    async fn missed(&self, missed: u64, now: &Leadership) {
        (**self).missed(missed, now).await;
    }
}

/// A change of leader.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeaderChange {
    /// The namespace of the election.
    pub namespace: Arc<str>,
    /// The last known leader; `None` if there was none.
    pub previous: Option<NodeId>,
    /// The leader now.
    pub new: NodeId,
    /// Its epoch.
    pub epoch: u64,
}

/// How a plugin coordinates at present.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// With other plugins, by the namespace's seat.
    Global,
    /// By its own seat, as its settings say.
    PerPlugin,
    /// By its own seat although its settings say global: the store refuses the namespace's seat. Health is degraded.
    Fallback,
}

impl Mode {
    /// A short name for logs and status.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Global => "global",
            Mode::PerPlugin => "per-plugin",
            Mode::Fallback => "fallback",
        }
    }

    /// Whether this differs from what the settings asked for.
    pub fn is_degraded(self) -> bool {
        match self {
            Mode::Fallback => true,
            Mode::Global | Mode::PerPlugin => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a plugin in global mode sees, whichever seat lets it act.
#[derive(Clone)]
struct PluginView {
    leadership: watch::Sender<Leadership>,
    mode: watch::Sender<Mode>,
    /// Where the plugin's workers and jobs are.
    keys: watch::Sender<Keys>,
    workers: watch::Sender<Workers>,
    events: broadcast::Sender<Event>,
    fence: Fence,
    /// The figures of the plugin's own node, while it has one.
    own_counters: Arc<Mutex<Option<Arc<Counters>>>>,
}
