//! Plugins: what takes part in an election without running one.

use crate::event::Event;
use crate::guard::{LeaderGuard, Leadership};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use tenure_core::NodeId;

/// A subscriber to an election: its namespace's, shared with others, or one of its own.
///
/// Every call runs in a task of its own. A handler that panics is told (`plugin_failed`) and the next notice still
/// arrives; one that takes longer than five seconds is cut off and told the same way, except
/// [`promoted`](Plugin::promoted), which may last as long as leadership. Neither costs other plugins, the election or its
/// leases anything.
///
/// Not promised: that a plugin that is slow sees every event. Promotion and demotion are never lost; notices that it could
/// not keep up with are, and [`missed`](Plugin::missed) says how many. There is no order between `promoted` and the notices.
///
/// A task can only be cut off where it awaits. A plugin that blocks its thread holds up whoever needs that thread, and the
/// guard it holds keeps the seat from being handed over before its lease runs out: block in `spawn_blocking`.
#[async_trait]
pub trait Plugin: Send + Sync + 'static {
    /// Its name: unique in its namespace and process, and valid as part of a key (the rule of ids).
    fn name(&self) -> &str;

    /// This node leads, for this plugin. Runs until it returns or leadership ends, whichever is first: after
    /// [`guard.ended()`](LeaderGuard::ended) it has half of `drainTimeout` to return, but never beyond the lease, and is then
    /// dropped where it awaits. Work it spawned elsewhere is its own to stop; drop every clone of the guard with it.
    async fn promoted(&self, guard: LeaderGuard) {
        drop(guard);
    }

    /// This node leads no longer; `promoted` has ended.
    async fn demoted(&self, epoch: u64) {
        let _ = epoch;
    }

    /// There is a new leader, or the same one with a new epoch, this node or another.
    async fn leader_changed(&self, change: &LeaderChange) {
        let _ = change;
    }

    /// Anything else that happened in the election: see [`EventKind`](crate::EventKind). Failures of plugins are left out.
    async fn event(&self, event: &Event) {
        let _ = event;
    }

    /// So many notices were left out because this plugin was too slow; this is how things stand.
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

/// A change of leaders.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeaderChange {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The last leader known; `None` if there was none.
    pub previous: Option<NodeId>,
    /// The leader now.
    pub new: NodeId,
    /// Its epoch.
    pub epoch: u64,
}

/// How a plugin coordinates now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// With the others, by the namespace's seat.
    Global,
    /// By a seat of its own, as its settings say.
    PerPlugin,
    /// By a seat of its own although its settings say global: the store refuses the namespace's. Health is degraded.
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

    /// Whether this is not what was asked for.
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
