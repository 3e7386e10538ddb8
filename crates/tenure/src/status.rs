//! Looking at a namespace from outside, without taking part: nothing is written.

use crate::keys::Keys;
use tenure_core::Namespace;

use crate::wire::{Deposed, SeatDocument};
use serde::Serialize;
use std::time::Duration;
use tenure_core::{Seat, SeatState};
use tenure_store::{Entry, Lanes, List, Read, StoreTime, Trouble, Version};
use tokio::time::Instant;

/// Presences shown at most.
pub(crate) const NODES_MAX: usize = 10_000;

/// How often the seat is looked at while its holder is watched for a sign of life.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often nodes refresh their presence, if the seat does not say.
const PRESENCE_DEFAULT_MS: u64 = 20_000;

/// How long a holder is watched at most if nobody says, whatever its lease.
pub const WATCH_MAX_MS: u64 = 15_000;

/// Dates of answers, and times of objects in some stores, are whole seconds.
const ROUNDING_MS: u64 = 1000;

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
    /// How long it may act after a renewal, in ms.
    pub lease_hold: u64,
    /// How long without a renewal until others may take over, in ms.
    pub lease_expiry: u64,
    /// Renewals since the claim.
    pub renewals: u64,
    /// Somebody asked it to step down.
    pub asked_to_step_down: bool,
    /// It was seen to renew. If not, the seat did not change while it was watched.
    pub live: bool,
    /// For how long it was watched at most. Less than its hold: that it was not seen to renew says little.
    pub watched_ms: u64,
}

/// A node that made itself known.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// `leader`, `standby` or `gone`: its lease ran out, the seat was taken from it, or its presence is older than three of its
    /// intervals.
    pub role: &'static str,
    /// How long ago it was last heard of, by the store's clock.
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
    /// Looks, and watches the holder for at most one hold to see it renew, and never for more than [`WATCH_MAX_MS`]. A holder
    /// that is alive is recognised within one of its heartbeats. As with a standby, an observed change counts and no time stamp.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<Status, StatusError> {
        let most = Duration::from_millis(WATCH_MAX_MS);
        Status::read_at(lanes, namespace, &Keys::global(namespace), most).await
    }

    /// The same for an election of its own in that namespace, below these keys: a plugin's, a lock's, a command's; and with
    /// another bound of at most a day: all watching together takes no longer.
    pub async fn read_at(
        lanes: &Lanes,
        namespace: &Namespace,
        keys: &Keys,
        most: Duration,
    ) -> Result<Status, StatusError> {
        let most = most.min(Duration::from_secs(24 * 3600));
        let end = Instant::now() + most;
        let mut found = read_seat(lanes, keys, None).await?;
        let mut live = false;
        // A change of leaders while watching means watching the new one; a namespace that changes leaders faster than
        // one can look has no live one.
        for _ in 0..LOOKS_MAX {
            let Some(seen) = found.as_ref().filter(|seen| seen.seat.state == SeatState::Held) else { break };
            let Some(next) = next_change(lanes, keys, seen, end).await? else { break };
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
                lease_hold: found.seat.lease.hold_ms,
                lease_expiry: found.seat.lease.expiry_ms,
                renewals: found.seat.renewals,
                asked_to_step_down: found.seat.step_down,
                live,
                watched_ms: found.seat.lease.hold_ms.min(u64::try_from(most.as_millis()).unwrap_or(u64::MAX)),
            });
        let roles = Roles::new(lanes, found.as_ref(), &entries);
        let nodes = entries.iter().filter_map(|entry| {
            let node = keys.node_of(&entry.key)?.to_string();
            let (role, last_seen_ms_ago) = roles.of(&node, entry.modified);
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

/// What the seat says of nodes at one moment of the store's clock.
pub(crate) struct Roles {
    now: u64,
    presence_ms: u64,
    holder: Option<String>,
    /// The holder's lease ran out.
    silent: bool,
    deposed: Vec<Deposed>,
}

impl Roles {
    pub(crate) fn new(lanes: &Lanes, found: Option<&FoundSeat>, presences: &[Entry]) -> Roles {
        // The store's own present, so that ages grow even if nobody writes any more.
        let signs = presences.iter().map(|entry| entry.modified).chain(found.map(|found| found.modified));
        let now = signs.chain(lanes.bulk.now()).max().map_or(0, |time| time.0);
        let presence_ms = found.and_then(|found| found.document.settings.get("presenceInterval")?.as_u64());
        let held = found.filter(|found| found.seat.state == SeatState::Held);
        let unchanged_ms = held.map_or(0, |held| now.saturating_sub(held.modified.0));
        Roles {
            now,
            presence_ms: presence_ms.unwrap_or(PRESENCE_DEFAULT_MS),
            holder: held.map(|held| held.seat.holder.node.to_string()),
            silent: held.is_some_and(|held| unchanged_ms > held.seat.lease.expiry_ms + ROUNDING_MS),
            deposed: found.map(|found| found.document.deposed()).unwrap_or_default(),
        }
    }

    /// The role of a node whose presence was written then, and how long ago that was.
    pub(crate) fn of(&self, node: &str, modified: StoreTime) -> (&'static str, u64) {
        let age_ms = self.now.saturating_sub(modified.0);
        if self.holder.as_deref() == Some(node) {
            return (if self.silent { "gone" } else { "leader" }, age_ms);
        }
        // SQLite's clock begins anew with the machine: what it calls later than now is of an earlier start.
        let taken = |one: &Deposed| one.node == node && modified.0 <= one.at && one.at <= self.now;
        let gone = age_ms > 3 * self.presence_ms || self.deposed.iter().any(taken);
        (if gone { "gone" } else { "standby" }, age_ms)
    }
}

/// Who holds a seat, by one read. Whether it is alive is not known: [`Status::read_at`] finds out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatHolder {
    /// Its id.
    pub node: String,
    /// When it claimed, by its own wall clock.
    pub since: Option<String>,
    /// The epoch it holds the seat in.
    pub epoch: u64,
}

impl SeatHolder {
    /// Reads the seat below these keys; `None` if nobody holds it.
    pub async fn read(lanes: &Lanes, keys: &Keys) -> Result<Option<SeatHolder>, StatusError> {
        let found = read_seat(lanes, keys, None).await?;
        Ok(found.filter(|found| found.seat.state == SeatState::Held).map(|found| SeatHolder {
            node: found.seat.holder.node.to_string(),
            since: found.document.claimed_at,
            epoch: found.seat.epoch.0,
        }))
    }
}

pub(crate) struct FoundSeat {
    pub(crate) document: SeatDocument,
    pub(crate) seat: Seat,
    pub(crate) version: Version,
    pub(crate) modified: StoreTime,
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

/// Watches the seat for one hold of its holder, who renews within it if it lives, and not beyond `end`.
async fn next_change(
    lanes: &Lanes,
    keys: &Keys,
    seen: &FoundSeat,
    end: Instant,
) -> Result<Option<FoundSeat>, StatusError> {
    let deadline = end.min(Instant::now() + Duration::from_millis(seen.seat.lease.hold_ms));
    while Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(next) = read_seat(lanes, keys, Some(&seen.version)).await? {
            return Ok(Some(next));
        }
    }
    Ok(None)
}
