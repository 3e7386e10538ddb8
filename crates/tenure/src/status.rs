//! Looking at a namespace from outside, without taking part: nothing is written.

use crate::keys::{Keys, Namespace};
use crate::wire::SeatDocument;
use serde::Serialize;
use std::time::Duration;
use tenure_core::{Seat, SeatState};
use tenure_store::{Lanes, List, Read, StoreTime, Trouble, Version};

/// Presences shown at most.
const NODES_MAX: usize = 10_000;

/// How often the seat is looked at while its holder is watched for a sign of life.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often nodes refresh their presence, if the seat does not say.
const PRESENCE_DEFAULT_MS: u64 = 20_000;

/// Changes of leaders followed before giving up on seeing one renew.
const LOOKS_MAX: u32 = 3;

/// A namespace as an outsider sees it.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The namespace.
    pub namespace: String,
    /// The store, as it describes itself.
    pub store: String,
    /// The highest epoch on the seat; 0 if there never was a leader.
    pub epoch: u64,
    /// Who holds the seat, if anybody does.
    pub leader: Option<LeaderStatus>,
    /// The nodes that made themselves known, in order of their ids.
    pub nodes: Vec<NodeStatus>,
}

/// The holder of the seat.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderStatus {
    /// Its id.
    pub node: String,
    /// Which life of it.
    pub incarnation: String,
    /// When it claimed, by its own wall clock.
    pub since: Option<String>,
    /// Its lease.
    pub lease_timeout: u64,
    /// Renewals since the claim.
    pub renewals: u64,
    /// Somebody asked it to step down.
    pub asked_to_step_down: bool,
    /// It was seen to renew. If not, the seat did not change for a whole lease while it was watched.
    pub live: bool,
}

/// A node that made itself known.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// `leader`, `standby`, or `gone` for one whose presence is older than three of its intervals.
    pub role: &'static str,
    /// How much older its presence is than the newest sign of anybody's life on the store.
    pub last_seen_ms_ago: u64,
}

/// Why a namespace could not be looked at.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum StatusError {
    /// The store does not answer.
    #[error("the store does not answer: {0}")]
    Unavailable(Trouble),
    /// The store refuses.
    #[error("the store refuses: {0}")]
    Denied(Trouble),
    /// An object is not what it should be: the seat, or the snapshot of the workers.
    #[error("the object {key} cannot be read: {detail}")]
    Unreadable {
        /// Where it is.
        key: String,
        /// What is wrong with it.
        detail: String,
    },
}

impl Status {
    /// Looks, and watches the holder for at most one lease to see it renew. A holder that is alive is recognised within
    /// one of its heartbeats.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<Status, StatusError> {
        let keys = Keys::global(namespace);
        let mut found = read_seat(lanes, &keys, None).await?;
        let mut live = false;
        // A change of leaders while watching means watching the new one; a namespace that changes leaders faster than
        // one can look has no live one.
        for _ in 0..LOOKS_MAX {
            let Some(seen) = found.as_ref().filter(|seen| seen.seat.state == SeatState::Held) else { break };
            let Some(next) = next_change(lanes, &keys, seen).await? else { break };
            // Only the holder counts renewals; a mark that asks it to step down is no sign of its life.
            let same = next.seat.state == SeatState::Held && next.seat.holder == seen.seat.holder;
            live = same && next.seat.renewals != seen.seat.renewals;
            found = Some(next);
            if live {
                break;
            }
        }
        let entries = match lanes.bulk.list(&keys.nodes(), NODES_MAX).await {
            List::Entries { entries, .. } => entries,
            List::Unavailable(trouble) => return Err(StatusError::Unavailable(trouble)),
            List::Denied(trouble) => return Err(StatusError::Denied(trouble)),
        };
        let leader =
            found.as_ref().filter(|found| found.seat.state == SeatState::Held).map(|found| LeaderStatus {
                node: found.seat.holder.node.to_string(),
                incarnation: found.seat.holder.incarnation.to_string(),
                since: found.document.claimed_at.clone(),
                lease_timeout: found.seat.lease_ms,
                renewals: found.seat.renewals,
                asked_to_step_down: found.seat.step_down,
                live,
            });
        let seat_time = found.as_ref().map(|found| found.modified);
        let newest =
            entries.iter().map(|entry| entry.modified).chain(seat_time).max().map_or(0, |time| time.0);
        let holder = leader.as_ref().map(|leader| leader.node.as_str());
        let presence_ms =
            found.as_ref().and_then(|found| found.document.settings.get("presenceInterval")?.as_u64());
        let presence_ms = presence_ms.unwrap_or(PRESENCE_DEFAULT_MS);
        let nodes = entries.iter().filter_map(|entry| {
            let node = keys.node_of(&entry.key)?.to_string();
            let last_seen_ms_ago = newest.saturating_sub(entry.modified.0);
            let role = match holder {
                Some(holder) if holder == node => "leader",
                Some(_) | None if last_seen_ms_ago > 3 * presence_ms => "gone",
                Some(_) | None => "standby",
            };
            Some(NodeStatus { node, role, last_seen_ms_ago })
        });
        Ok(Status {
            namespace: namespace.to_string(),
            store: lanes.lease.describe(),
            epoch: found.as_ref().map_or(0, |found| found.seat.epoch.0),
            nodes: nodes.collect(),
            leader,
        })
    }

    /// Whether somebody leads and was seen alive.
    pub fn has_live_leader(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.live)
    }
}

pub(crate) struct FoundSeat {
    pub(crate) document: SeatDocument,
    pub(crate) seat: Seat,
    pub(crate) version: Version,
    modified: StoreTime,
}

/// `None` if there is no seat, or it still has the version asked about.
pub(crate) async fn read_seat(
    lanes: &Lanes,
    keys: &Keys,
    unless: Option<&Version>,
) -> Result<Option<FoundSeat>, StatusError> {
    match lanes.lease.get(&keys.seat(), unless).await {
        Read::Found(object) => match SeatDocument::parse(&object.body) {
            Ok((document, seat)) => {
                Ok(Some(FoundSeat { document, seat, version: object.version, modified: object.modified }))
            }
            Err(unreadable) => Err(StatusError::Unreadable { key: keys.seat(), detail: unreadable.detail }),
        },
        Read::Absent | Read::Unchanged => Ok(None),
        Read::Unavailable(trouble) => Err(StatusError::Unavailable(trouble)),
        Read::Denied(trouble) => Err(StatusError::Denied(trouble)),
    }
}

/// Watches the seat for one lease of its holder, who renews within it if it lives.
async fn next_change(lanes: &Lanes, keys: &Keys, seen: &FoundSeat) -> Result<Option<FoundSeat>, StatusError> {
    let deadline = tokio::time::Instant::now() + Duration::from_millis(seen.seat.lease_ms);
    while tokio::time::Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(next) = read_seat(lanes, keys, Some(&seen.version)).await? {
            return Ok(Some(next));
        }
    }
    Ok(None)
}
