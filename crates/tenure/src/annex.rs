//! The annex: what a leader's plugin needs besides the election, and nothing that could harm the election.

use crate::clock::Clock;
use crate::documents::{Documents, late};
use crate::election::Reporter;
use crate::event::EventKind;
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::wire::{DOCUMENT_MAX_BYTES, Deposed, PresenceDocument, SeatDocument, VERSION};
use crate::workers::{WorkerLife, WorkerRegistry, Workers};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{NodeId, WorkerId};
use tenure_store::{Lanes, Read, StoreTime, Trouble};
use tokio::sync::watch;

/// What a plugin may build on: documents of the namespace that only its leader writes, the presences of its nodes, and the
/// node's own figures, clock and event channel. Does not keep the node alive; its requests count as the node's.
#[derive(Clone)]
pub struct Annex {
    pub(crate) lanes: Lanes,
    pub(crate) keys: Keys,
    pub(crate) settings: Arc<Settings>,
    pub(crate) reporter: Reporter,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) workers: watch::Receiver<Workers>,
    pub(crate) registry: WorkerRegistry,
}

impl Annex {
    /// The namespace this node takes part in.
    pub fn namespace(&self) -> &str {
        &self.reporter.namespace
    }

    /// The id of this node.
    pub fn node(&self) -> &NodeId {
        &self.reporter.node
    }

    /// The settings this node runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The clock this node's leases run on.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.reporter.clock)
    }

    /// This node's present figures.
    pub fn metrics(&self) -> Metrics {
        self.reporter.counters.metrics()
    }

    /// Latencies of this node's newest heartbeats in milliseconds, oldest first. At most a hundred: the same ones the
    /// percentiles are computed from.
    pub fn heartbeats(&self) -> Vec<u64> {
        self.reporter.counters.heartbeats()
    }

    /// Leadership as this node sees it, with every change.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// The workers as this node knows them, with every change.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        self.workers.clone()
    }

    /// What this node saw of the workers in its last sweep; empty while it does not lead.
    pub fn worker_lives(&self) -> BTreeMap<WorkerId, WorkerLife> {
        self.registry.lives()
    }

    /// This node's access to the store, for reading. Anything written through it is written without a guard.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The documents of the namespace.
    pub fn documents(&self) -> Documents {
        let timeout = Duration::from_millis(self.settings.request_timeout_ms);
        let namespace = Arc::clone(&self.reporter.namespace);
        Documents::new(Arc::clone(&self.lanes.bulk), namespace, timeout).below(&self.keys)
    }

    /// Lists the presences, at most `limit`: one list, with a page per 1,000.
    pub async fn presences(&self, limit: usize) -> Result<Presences, Trouble> {
        let (entries, more) = self.documents().list(&self.keys.nodes(), limit).await?;
        let presence = |entry: &tenure_store::Entry| {
            let node = self.keys.node_of(&entry.key)?;
            Some(PresenceEntry { node, modified: entry.modified })
        };
        Ok(Presences { entries: entries.iter().filter_map(presence).collect(), complete: !more })
    }

    /// Nodes that lost the seat by falling silent, and when, on the store's clock. A node that has not refreshed its
    /// presence since then is dead. Costs one read; the answer changes only when the leader does.
    pub async fn deposed(&self) -> Result<Vec<PresenceEntry>, Trouble> {
        let timeout = Duration::from_millis(self.settings.request_timeout_ms);
        match tokio::time::timeout(timeout, self.lanes.bulk.get(&self.keys.seat(), None)).await {
            Ok(Read::Found(object)) => {
                let deposed = SeatDocument::parse(&object.body).map(|(seat, _)| seat.deposed());
                let entry = |one: Deposed| {
                    Some(PresenceEntry { node: NodeId::new(&one.node).ok()?, modified: StoreTime(one.at) })
                };
                Ok(deposed.unwrap_or_default().into_iter().filter_map(entry).collect())
            }
            Ok(Read::Absent | Read::Unchanged) => Ok(Vec::new()),
            Ok(Read::Unavailable(trouble) | Read::Denied(trouble)) => Err(trouble),
            Err(_) => Err(late()),
        }
    }

    /// Whether somebody else keeps writing this node's presence: two processes run under its id.
    pub fn node_conflict(&self) -> bool {
        self.reporter.counters.has_conflict()
    }

    /// How long ago this node last saw the seat change, by its own clock: how long the leader has been silent. `None` if it
    /// has not seen the seat.
    pub fn leader_silent(&self) -> Option<Duration> {
        self.reporter.counters.seat_age_ms().map(Duration::from_millis)
    }

    /// What a node says about itself in its presence; `None` if there is no presence, or none that can be read.
    pub async fn presence(&self, node: &NodeId) -> Result<Option<Presence>, Trouble> {
        let timeout = Duration::from_millis(self.settings.request_timeout_ms);
        let key = self.keys.node(node);
        match tokio::time::timeout(timeout, self.lanes.bulk.get(&key, None)).await {
            Ok(Read::Found(object)) => Ok(Presence::parse(&object.body)),
            Ok(Read::Absent | Read::Unchanged) => Ok(None),
            Ok(Read::Unavailable(trouble) | Read::Denied(trouble)) => Err(trouble),
            Err(_) => Err(late()),
        }
    }

    /// Emits something with the node's events: on its channel and in its log. The wire name gets the node's prefix.
    pub fn tell(&self, epoch: u64, news: News) {
        self.reporter.emit(epoch, EventKind::Plugin(news));
    }
}

/// An event emitted by a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// The wire name, without the prefix.
    pub name: &'static str,
    /// One line for people.
    pub sentence: String,
    /// Whether it is logged as a warning.
    pub alarming: bool,
    /// A JSON object for programs.
    pub fields: Value,
}

impl fmt::Debug for Annex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Annex({})", self.keys.root())
    }
}

/// The presences of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presences {
    /// In id order.
    pub entries: Vec<PresenceEntry>,
    /// Whether the limit left nobody out.
    pub complete: bool,
}

/// A node's presence as a list shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PresenceEntry {
    /// The node it belongs to.
    pub node: NodeId,
    /// When it last changed, on the store's clock. A live node changes it every `presenceInterval`.
    pub modified: StoreTime,
}

/// What a node says about itself.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Presence {
    /// The life of the node that wrote it, as 16 hex digits.
    pub incarnation: String,
    /// Name and version of its software.
    pub software: String,
    /// When it started, by its wall clock. For people.
    pub started_at: String,
    /// Its figures when it wrote this; `None` if it published none that can be read.
    pub metrics: Option<Metrics>,
    /// Whether somebody else keeps writing it: two processes run under one id.
    pub conflict: bool,
}

impl Presence {
    fn parse(body: &[u8]) -> Option<Presence> {
        if body.len() > DOCUMENT_MAX_BYTES {
            return None;
        }
        let found: PresenceDocument = serde_json::from_slice(body).ok()?;
        let short = |text: &str| crate::wire::told(text).chars().take(64).collect();
        (found.v == VERSION).then(|| Presence {
            incarnation: short(&found.incarnation),
            software: short(&found.software),
            started_at: short(&found.started_at),
            conflict: found.conflict,
            metrics: found.metrics,
        })
    }
}
