//! Forgetting nodes that are gone: the leader does it after `nodeRetention`, an operator at once.

use crate::error::{Error, listed};
use crate::keys::Keys;
use crate::status::{NODES_MAX, Roles, read_seat};
use std::time::Duration;
use tenure_core::{Namespace, NodeId};
use tenure_store::{Entry, Lanes, Remove, StoreTime};

/// Most presences removed in one go; the rest follow next time.
const FORGOTTEN_MAX: usize = 100;

/// Nodes whose presence has not been refreshed for this long, by the store's clock.
pub(crate) fn forgotten(
    keys: &Keys,
    presences: &[Entry],
    now: Option<StoreTime>,
    retention_ms: u64,
) -> Vec<NodeId> {
    // SQLite's clock starts over when the machine boots: a time later than now is from an earlier boot and says nothing.
    let now = now.or(presences.iter().map(|entry| entry.modified).max()).map_or(0, |time| time.0);
    let old = presences.iter().filter(|entry| now.saturating_sub(entry.modified.0) > retention_ms);
    old.filter_map(|entry| keys.node_of(&entry.key)).take(FORGOTTEN_MAX).collect()
}

/// The outcome of [`forget_node`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forgot {
    /// The presence is removed. A node that still runs writes it again.
    Removed {
        /// How long ago it was last heard of, by the store's clock.
        last_seen_ago: Duration,
    },
    /// The node leads, so nothing was done.
    Leads,
    /// There is no presence of this node.
    Unknown,
}

/// Removes a node's presence, unless it leads.
pub async fn forget_node(lanes: &Lanes, namespace: &Namespace, node: &NodeId) -> Result<Forgot, Error> {
    let keys = Keys::global(namespace);
    let found = read_seat(lanes, &keys, None).await?;
    let (entries, _) = listed(lanes.bulk.list(&keys.nodes(), NODES_MAX).await)?;
    let key = keys.node(node);
    let Some(entry) = entries.iter().find(|entry| entry.key == key) else { return Ok(Forgot::Unknown) };
    let (role, last_seen_ms_ago) =
        Roles::new(lanes, found.as_ref(), &entries).of(node.as_str(), entry.modified);
    if role == "leader" {
        return Ok(Forgot::Leads);
    }
    match lanes.bulk.remove(&key).await {
        Remove::Done => Ok(Forgot::Removed { last_seen_ago: Duration::from_millis(last_seen_ms_ago) }),
        Remove::Unavailable(trouble) | Remove::Unknown(trouble) => Err(Error::unavailable(trouble)),
        Remove::Denied(trouble) => Err(Error::denied(trouble)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob4_only_what_is_older_than_the_retention_is_forgotten() {
        let keys = Keys::global(&Namespace::new("test").expect("valid"));
        let entry = |name: &str, modified: u64| Entry {
            key: keys.node(&NodeId::new(name).expect("valid")),
            modified: StoreTime(modified),
            bytes: 1,
            version: None,
        };
        let entries = [entry("pod-a", 100_000), entry("pod-b", 39_999), entry("pod-c", 40_000)];
        let names = |now: Option<u64>| -> Vec<String> {
            let found = forgotten(&keys, &entries, now.map(StoreTime), 60_000);
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(None), ["pod-b"], "the newest presence is the present, if the store does not say");
        assert_eq!(names(Some(100_001)), ["pod-b", "pod-c"]);
        assert!(names(Some(1000)).is_empty(), "another start of the machine");
        let strange = Entry { key: format!("{}sub/thing", keys.nodes()), ..entry("pod-d", 0) };
        assert!(forgotten(&keys, &[strange, entry("pod-a", 100_000)], None, 60_000).is_empty());
    }
}
