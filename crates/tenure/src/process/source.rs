//! Where processes may run: on whatever leads.

use crate::election::Reporter;
use crate::error::Error;
use crate::guard::Leadership;
use crate::node::Node;
use crate::plugin::{PluginHandle, Service};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

type StandAside =
    Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> + Send + Sync>;

/// Whatever leads and can therefore have processes: a [`Node`], a [`Service`], or a plugin through its [`PluginHandle`]. Keeps
/// nothing alive.
///
/// A plugin's processes follow it from one seat to the other, even into fallback. If they give up, the plugin's whole
/// election is handed over: in global mode that is the namespace's. Stop them before the plugin is detached.
#[derive(Clone)]
pub struct LeadershipSource {
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) reporter: Reporter,
    drain: Duration,
    pub(super) stand_aside: StandAside,
}

impl LeadershipSource {
    pub(crate) fn new<F>(
        leadership: watch::Receiver<Leadership>,
        reporter: Reporter,
        drain: Duration,
        stand_aside: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> LeadershipSource
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let stand_aside: StandAside = Arc::new(move |hold| Box::pin(stand_aside(hold)));
        LeadershipSource { leadership, reporter, drain, stand_aside }
    }

    /// The same with another's leadership.
    pub(crate) fn led_by<F>(
        self,
        leadership: watch::Receiver<Leadership>,
        stand_aside: impl Fn(Duration) -> F + Send + Sync + 'static,
    ) -> LeadershipSource
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        LeadershipSource::new(leadership, self.reporter, self.drain, stand_aside)
    }

    /// How long all processes together may take to stop: the rest of the drain is for vacating.
    pub(super) fn budget(&self) -> Duration {
        self.drain / 4 * 3
    }
}

impl fmt::Debug for LeadershipSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeadershipSource({})", self.reporter.node)
    }
}

impl From<&Node> for LeadershipSource {
    fn from(node: &Node) -> LeadershipSource {
        node.leadership_source()
    }
}

impl From<&Service> for LeadershipSource {
    fn from(service: &Service) -> LeadershipSource {
        service.node().into()
    }
}

impl From<&PluginHandle> for LeadershipSource {
    fn from(plugin: &PluginHandle) -> LeadershipSource {
        plugin.leadership_source()
    }
}
