//! The annex: what a plugin of the leader needs beside the election, and nothing that could harm it.

use crate::clock::Clock;
use crate::driver::Voice;
use crate::event::EventKind;
use crate::guard::{LeaderGuard, Leadership, LeadershipEnded};
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::wire::{DOCUMENT_MAX_BYTES, Deposed, PresenceDocument, SeatDocument, VERSION};
use crate::workers::{Lives, WorkerLife, Workers};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::IdError;
use tenure_core::{DocumentName, NodeId, WorkerId};
use tenure_store::{Condition, Lanes, List, Read, Store, StoreTime, Trouble, TroubleKind, Version, Write};
use tokio::sync::watch;

/// Documents that are the protocol's own.
const RESERVED: &[&str] = &["seat", "snapshot"];

/// What a plugin may build on: documents of the namespace that only its leader writes, the presences of its nodes, and the
/// node's own figures, clock and voice. Keeps no node alive; its requests count as the node's.
#[derive(Clone)]
pub struct Annex {
    pub(crate) lanes: Lanes,
    pub(crate) keys: Keys,
    pub(crate) settings: Arc<Settings>,
    pub(crate) voice: Voice,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) workers: watch::Receiver<Workers>,
    pub(crate) lives: Lives,
}

/// Why a text cannot name a document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentNameError {
    /// It breaks the rule of ids.
    #[error("the name of a document: {0}")]
    Id(#[from] IdError),
    /// The protocol has a document of this name.
    #[error("the document {0:?} is the protocol's own")]
    Reserved(String),
}

impl Annex {
    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.voice.namespace
    }

    /// This node.
    pub fn node(&self) -> &NodeId {
        &self.voice.node
    }

    /// What this node runs by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The clock this node's leases run on.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.voice.clock)
    }

    /// This node's figures now.
    pub fn metrics(&self) -> Metrics {
        self.voice.figures.metrics()
    }

    /// How long this node's newest heartbeats took, in milliseconds, the oldest first: at most a hundred, the same that the
    /// percentiles are of.
    pub fn heartbeats(&self) -> Vec<u64> {
        self.voice.figures.heartbeats()
    }

    /// Leadership as this node sees it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// The workers as this node knows them.
    pub fn workers(&self) -> watch::Receiver<Workers> {
        self.workers.clone()
    }

    /// What this node saw of the workers with its last sweep; empty while it does not lead.
    pub fn worker_lives(&self) -> BTreeMap<WorkerId, WorkerLife> {
        self.lives.all()
    }

    /// This node's way to the store, for looking. Whoever writes by it writes without a guard.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The document `<name>.json` below the root of the namespace. The names of the protocol's own are refused.
    pub fn document(&self, name: &str) -> Result<Document, DocumentNameError> {
        let id = DocumentName::new(name)?;
        if RESERVED.contains(&name) {
            return Err(DocumentNameError::Reserved(name.to_owned()));
        }
        let timeout = Duration::from_millis(self.settings.request_timeout_ms);
        Ok(Document { store: Arc::clone(&self.lanes.bulk), key: self.keys.document(&id), timeout })
    }

    /// The presences there are, at most `limit`: one list, a page for each 1,000.
    pub async fn presences(&self, limit: usize) -> Result<Presences, Trouble> {
        let folder = self.keys.nodes();
        let list = self.lanes.bulk.list(&folder, limit);
        // A list of many pages takes longer than one request.
        let patience = Duration::from_millis(self.settings.request_timeout_ms) * 10;
        match tokio::time::timeout(patience, list).await {
            Ok(List::Entries { entries, more }) => {
                let mark = |entry: &tenure_store::Entry| {
                    let node = self.keys.node_of(&entry.key)?;
                    Some(PresenceMark { node, modified: entry.modified })
                };
                Ok(Presences { marks: entries.iter().filter_map(mark).collect(), complete: !more })
            }
            Ok(List::Unavailable(trouble) | List::Denied(trouble)) => Err(trouble),
            Err(_) => Err(late()),
        }
    }

    /// Who lost the seat by falling silent, and when on the store's clock: whoever has not refreshed its presence since is dead. One
    /// read; it changes with the leader alone.
    pub async fn deposed(&self) -> Result<Vec<PresenceMark>, Trouble> {
        let timeout = Duration::from_millis(self.settings.request_timeout_ms);
        match tokio::time::timeout(timeout, self.lanes.bulk.get(&self.keys.seat(), None)).await {
            Ok(Read::Found(object)) => {
                let deposed = SeatDocument::parse(&object.body).map(|(seat, _)| seat.deposed());
                let mark = |one: Deposed| {
                    Some(PresenceMark { node: NodeId::new(&one.node).ok()?, modified: StoreTime(one.at) })
                };
                Ok(deposed.unwrap_or_default().into_iter().filter_map(mark).collect())
            }
            Ok(Read::Absent | Read::Unchanged) => Ok(Vec::new()),
            Ok(Read::Unavailable(trouble) | Read::Denied(trouble)) => Err(trouble),
            Err(_) => Err(late()),
        }
    }

    /// Whether somebody else keeps writing this node's presence: two processes run under its id.
    pub fn node_conflict(&self) -> bool {
        self.voice.figures.has_conflict()
    }

    /// How long ago this node saw the seat change last, by its own clock: how long the leader has been silent. `None` if it has not
    /// seen it.
    pub fn leader_silent(&self) -> Option<Duration> {
        self.voice.figures.seat_age_ms().map(Duration::from_millis)
    }

    /// What a node says of itself in its presence; `None` if there is none, or none that can be read.
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

    /// Tells something with the node's events: on its channel and in its log. The wire name gets the node's prefix.
    pub fn tell(&self, epoch: u64, news: News) {
        self.voice.emit(epoch, EventKind::Plugin(news));
    }
}

/// What a plugin tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// The event, without the prefix.
    pub name: &'static str,
    /// For people: one line.
    pub sentence: String,
    /// Whether it is a warning.
    pub alarming: bool,
    /// For programs: an object.
    pub fields: Value,
}

impl fmt::Debug for Annex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Annex({})", self.keys.root())
    }
}

fn late() -> Trouble {
    Trouble::new(TroubleKind::Timeout, "no answer in time")
}

/// One document that only the leader writes, by compare-and-swap. Every request ends within `requestTimeout`.
#[derive(Clone, Debug)]
pub struct Document {
    store: Arc<dyn Store>,
    key: String,
    timeout: Duration,
}

impl Document {
    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Reads it; anybody may.
    pub async fn read(&self, unless: Option<&Version>) -> Read {
        let read = tokio::time::timeout(self.timeout, self.store.get(&self.key, unless));
        read.await.unwrap_or_else(|_| Read::Unavailable(late()))
    }

    /// Writes it if the guard holds at this very moment and the condition on the store. A write that leadership ended under
    /// is of unknown outcome.
    ///
    /// Not promised: the guard is compared with this node's clock, not by the store. A write on its way when the lease ended
    /// may land late; the condition keeps it from undoing what a successor wrote. So read before you write for the first
    /// time in an epoch, and put the epoch into the document.
    pub async fn write(
        &self,
        guard: &LeaderGuard,
        body: Vec<u8>,
        condition: Condition,
    ) -> Result<Write, LeadershipEnded> {
        guard.check()?;
        let write = tokio::time::timeout(self.timeout, self.store.put(&self.key, body.into(), condition));
        Ok(match guard.run(write).await {
            Ok(Ok(write)) => write,
            Ok(Err(_)) => Write::Unknown(late()),
            Err(_) => Write::Unknown(Trouble::new(TroubleKind::Timeout, "leadership ended meanwhile")),
        })
    }
}

/// The presences of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presences {
    /// In order of the ids.
    pub marks: Vec<PresenceMark>,
    /// Nobody was left out because of the limit.
    pub complete: bool,
}

/// That a node has a presence, and when it changed last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PresenceMark {
    /// Whose.
    pub node: NodeId,
    /// On the store's clock: a node that lives changes it every `presenceInterval`.
    pub modified: StoreTime,
}

/// What a node says of itself.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Presence {
    /// Which life of it, as 16 hex digits.
    pub incarnation: String,
    /// Its software with the version.
    pub software: String,
    /// When it started, by its wall clock, for people.
    pub started_at: String,
    /// Its figures when it wrote this.
    pub metrics: Option<Metrics>,
    /// Somebody else keeps writing it: two processes run under one id.
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
