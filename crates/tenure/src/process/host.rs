//! Where processes may run: on whatever leads.

use crate::election::Reporter;
use crate::error::Error;
use crate::guard::Leadership;
use crate::node::Node;
use crate::service::{PluginHandle, Service};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub(crate) type StandAside =
    Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> + Send + Sync>;

/// What a supervisor needs from whatever leads. Keeps nothing alive.
#[derive(Clone)]
pub struct Parts {
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) reporter: Reporter,
    pub(crate) drain: Duration,
    pub(crate) stand_aside: StandAside,
}

impl Parts {
    /// How long all processes together may take to stop: the rest of the drain is for vacating.
    pub(crate) fn budget(&self) -> Duration {
        self.drain / 4 * 3
    }
}

pub(crate) mod sealed {
    /// Sealed: only this crate decides what can host processes.
    pub trait Host {
        /// What a supervisor needs from this host.
        fn parts(&self) -> super::Parts;
    }
}

/// Whatever leads and can therefore have processes: a [`Node`], a [`Service`], or a plugin through its [`PluginHandle`].
///
/// A plugin's processes follow the arbiter in force, even into fallback. If they give up, the plugin's whole election is
/// handed over: in global mode that is the namespace's. Stop them before the plugin is detached.
pub trait ProcessHost: sealed::Host {}

impl ProcessHost for Node {}
impl ProcessHost for Service {}
impl ProcessHost for PluginHandle {}

impl sealed::Host for Node {
    fn parts(&self) -> Parts {
        self.process_parts()
    }
}

impl sealed::Host for Service {
    fn parts(&self) -> Parts {
        self.node().process_parts()
    }
}

impl sealed::Host for PluginHandle {
    fn parts(&self) -> Parts {
        self.process_parts()
    }
}
