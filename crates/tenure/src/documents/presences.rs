//! The presences of a namespace's nodes, and who lost its seat by falling silent.

use super::{Documents, late};
use crate::election::codec::{Deposed, PresenceDocument, SeatDocument};
use crate::error::{Error, found};
use crate::keys::Keys;
use crate::metrics::Metrics;
use tenure_core::NodeId;
use tenure_store::{Object, Read, StoreTime};

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
    fn of(document: PresenceDocument) -> Presence {
        let short = |text: &str| crate::wire::told(text).chars().take(64).collect();
        Presence {
            incarnation: short(&document.incarnation),
            software: short(&document.software),
            started_at: short(&document.started_at),
            conflict: document.conflict,
            metrics: document.metrics,
        }
    }
}

impl Documents {
    pub(crate) fn keys(&self) -> Keys {
        Keys::below(&self.root)
    }

    /// The present time on the store's own clock, if it tells.
    pub(crate) fn store_now(&self) -> Option<StoreTime> {
        self.store.now()
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<Object>, Error> {
        let get = tokio::time::timeout(self.timeout, self.store.get(key, None)).await;
        found(get.unwrap_or_else(|_| Read::Unavailable(late())))
    }

    /// Lists the presences of the namespace's nodes, at most `limit`: one list, with a page per 1,000.
    pub async fn presences(&self, limit: usize) -> Result<Presences, Error> {
        let keys = self.keys();
        let (entries, more) = self.list(&keys.nodes(), limit).await.map_err(Error::unavailable)?;
        let presence = |entry: &tenure_store::Entry| {
            Some(PresenceEntry { node: keys.node_of(&entry.key)?, modified: entry.modified })
        };
        Ok(Presences { entries: entries.iter().filter_map(presence).collect(), complete: !more })
    }

    /// What a node says about itself in its presence; `None` if there is no presence, or none that can be read.
    pub async fn presence(&self, node: &NodeId) -> Result<Option<Presence>, Error> {
        let object = self.get(&self.keys().node(node)).await?;
        Ok(object.and_then(|object| PresenceDocument::parse(&object.body)).map(Presence::of))
    }

    /// Nodes that lost the seat by falling silent, and when, on the store's clock. A node that has not refreshed its
    /// presence since then is dead. Costs one read; the answer changes only when the leader does.
    pub async fn deposed(&self) -> Result<Vec<PresenceEntry>, Error> {
        let Some(object) = self.get(&self.keys().seat()).await? else { return Ok(Vec::new()) };
        let deposed = SeatDocument::parse(&object.body).map(|(seat, _)| seat.deposed());
        let entry = |one: Deposed| {
            Some(PresenceEntry { node: NodeId::new(&one.node).ok()?, modified: StoreTime(one.at) })
        };
        Ok(deposed.unwrap_or_default().into_iter().filter_map(entry).collect())
    }

    /// When the seat was last written, on the store's clock; `None` if there is none. While somebody leads, that is now, give
    /// or take a heartbeat.
    pub async fn seat_written(&self) -> Result<Option<StoreTime>, Error> {
        Ok(self.get(&self.keys().seat()).await?.map(|object| object.modified))
    }
}
