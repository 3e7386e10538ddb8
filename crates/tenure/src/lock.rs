//! Locks: at most one holder at a time among all processes of a namespace. `tenure lock` takes one for a command.
//!
//! A lock is an election of its own, and everything an election promises holds for it: its guard ends by itself, and its epoch rises
//! with every holder.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! let lock = tokio::time::timeout(Duration::from_secs(10), node.handle().lock("nightly")).await??;
//! lock.guard().run(async { println!("it is ours, in epoch {}", lock.guard().epoch()) }).await?;
//! lock.release().await;
//! # node.shutdown().await;
//! # Ok(()) }
//! ```

use crate::clock::millis;
use crate::error::{Error, ErrorKind};
use crate::guard::LeaderGuard;
use crate::keys::Election;
use crate::node::Node;
use crate::plugin::NodeHandle;
use crate::settings::Settings;
use crate::status::SeatHolder;
use std::time::Duration;
use tenure_core::{IdError, NodeId, PluginName};

/// Longest part of a node's name in the name of the one that holds a lock for it.
const NAME_MAX: usize = 100;

/// A lock that is held. When it is dropped, it is given up in the background.
#[derive(Debug)]
pub struct Lock {
    node: Node,
    guard: LeaderGuard,
}

impl Lock {
    /// Ends when the lock is lost. Check it right before each side effect.
    pub fn guard(&self) -> &LeaderGuard {
        &self.guard
    }

    /// Gives the lock to the next. Waits until every clone of the guard is dropped, at most for `drainTimeout`.
    pub async fn release(self) {
        drop(self.guard);
        self.node.shutdown().await;
    }
}

/// The seat of a lock of this name.
pub fn lock_seat(name: &str) -> Result<PluginName, IdError> {
    PluginName::new(&format!("lock-{name}"))
}

impl Settings {
    /// The same, for an election that somebody waits for and few take part in: no jitter, no wait for others that start, and
    /// quick looks.
    pub fn at_once(&self) -> Settings {
        let look = (self.heartbeat_interval / 4).max(Duration::from_millis(50));
        let mut settings = self.clone();
        settings.startup_jitter_min = Duration::ZERO;
        settings.startup_jitter_max = Duration::ZERO;
        settings.election_settle = Duration::ZERO;
        settings.election_interval = Duration::from_millis(millis(look));
        settings
    }
}

impl NodeHandle {
    /// Waits until the lock of this name is ours. Works whether the node leads or not; if the future is dropped, the lock is
    /// wanted no longer. The lock outlives its node until somebody ends it.
    pub async fn lock(&self, name: &str) -> Result<Lock, Error> {
        let seat = lock_seat(name)?;
        let name: String = self.id().as_str().chars().take(NAME_MAX).collect();
        let node = NodeId::new(&format!("{name}-{:08x}", rand::random::<u32>()))?;
        let mut settings = self.settings().at_once();
        (settings.node, settings.eligible) = (node, true);
        let builder = Node::builder(settings).lanes(self.lanes().clone()).clock(self.clock());
        let node = builder.per_plugin(&seat).start().await?;
        match node.lead().await {
            Some(guard) => Ok(Lock { node, guard }),
            None => Err(Error::new(ErrorKind::Denied, "the store ignores conditional writes")),
        }
    }

    /// Who holds the lock of this name, alive or not. One read.
    pub async fn lock_holder(&self, name: &str) -> Result<Option<SeatHolder>, Error> {
        let election = Election { namespace: self.namespace(), plugin: Some(lock_seat(name)?) };
        SeatHolder::read(self.lanes(), election).await
    }
}
