//! Looks at a namespace from outside, without taking part. Writes nothing.

use crate::clock::millis;
use crate::election::codec::{Deposed, SeatDocument};
use crate::error::{Error, found, listed};
use crate::keys::{Election, Keys};
use serde::Serialize;
use std::time::Duration;
use tenure_core::{Namespace, Seat, SeatState};
use tenure_store::{Entry, Lanes, StoreTime, Version};
use tokio::time::Instant;

/// Most presences shown.
pub(crate) const NODES_MAX: usize = 10_000;

/// How often to look at the seat while watching its holder for a sign of life.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often nodes refresh their presence, if the seat does not say.
const PRESENCE_DEFAULT_MS: u64 = 20_000;

/// Longest time to watch a holder unless the caller says otherwise, whatever its lease.
pub const WATCH_MAX: Duration = Duration::from_secs(15);

/// Dates of answers, and object times in some stores, are whole seconds.
const ROUNDING_MS: u64 = 1000;

/// How many changes of leader to follow before giving up on seeing one renew.
const LOOKS_MAX: u32 = 3;

/// A namespace as an outsider sees it.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The name of the namespace.
    pub namespace: String,
    /// The store, as it describes itself.
    pub store: String,
    /// The highest epoch on the seat; 0 if there never was a leader.
    pub epoch: u64,
    /// The holder of the seat; none if nobody holds it.
    pub leader: Option<LeaderStatus>,
    /// The nodes with a presence, in id order.
    pub nodes: Vec<NodeStatus>,
}

/// The holder of the seat.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaderStatus {
    /// The holder's node id.
    pub node: String,
    /// The life of the node that holds the seat, as 16 hex digits.
    pub incarnation: String,
    /// When it claimed, by its own wall clock; none if the record does not say.
    pub since: Option<String>,
    /// How long it may act after a renewal, in ms.
    pub lease_hold: u64,
    /// How long without a renewal before others may take over, in ms.
    pub lease_expiry: u64,
    /// Renewals since the claim.
    pub renewals: u64,
    /// Whether somebody asked it to step down.
    pub asked_to_step_down: bool,
    /// Whether it was seen to renew. If not, the seat did not change while it was watched.
    pub live: bool,
    /// Longest time it was watched. If this is less than its hold, not having seen a renewal says little.
    pub watched_ms: u64,
}

/// A node with a presence.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The node's id.
    pub node: String,
    /// `leader`, `standby` or `gone`. A node is gone if its lease ran out, the seat was taken from it, or its presence is
    /// older than three of its intervals.
    pub role: &'static str,
    /// How long ago it was last heard from, by the store's clock.
    pub last_seen_ms_ago: u64,
}

impl Status {
    /// Reads the namespace and watches the holder for at most one hold to see it renew, but never for more than
    /// [`WATCH_MAX`]. A live holder is recognised within one of its heartbeats. As for a standby, only an observed change
    /// counts, never a time stamp.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<Status, Error> {
        Status::read_at(lanes, namespace, WATCH_MAX).await
    }

    /// Like [`read`](Status::read), for any election. `most` limits the whole watching; at most a day.
    pub async fn read_at(
        lanes: &Lanes,
        election: impl Into<Election>,
        most: Duration,
    ) -> Result<Status, Error> {
        let election = election.into();
        let keys = &election.keys();
        let most = most.min(Duration::from_secs(24 * 3600));
        let end = Instant::now() + most;
        let mut found = read_seat(lanes, keys, None).await?;
        let mut live = false;
        // If the leader changes while it is watched, the new one is watched. A namespace that changes leaders faster than
        // one can look has no live leader.
        for _ in 0..LOOKS_MAX {
            let Some(seen) = found.as_ref().filter(|seen| seen.seat.state == SeatState::Held) else { break };
            let Some(next) = next_change(lanes, keys, seen, end).await? else { break };
            // Only the holder counts renewals; a mark that asks it to step down is not a sign of its life.
            let same = next.seat.state == SeatState::Held && next.seat.holder == seen.seat.holder;
            live = same && next.seat.renewals != seen.seat.renewals;
            found = Some(next);
            if live {
                break;
            }
        }
        let (entries, _) = listed(lanes.bulk.list(&keys.nodes(), NODES_MAX).await)?;
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
                watched_ms: found.seat.lease.hold_ms.min(millis(most)),
            });
        let roles = Roles::new(lanes, found.as_ref(), &entries);
        let nodes = entries.iter().filter_map(|entry| {
            let node = keys.node_of(&entry.key)?.to_string();
            let (role, last_seen_ms_ago) = roles.of(&node, entry.modified);
            Some(NodeStatus { node, role, last_seen_ms_ago })
        });
        Ok(Status {
            namespace: election.namespace.to_string(),
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

/// What the seat says about nodes at one moment of the store's clock.
pub(crate) struct Roles {
    now: u64,
    presence_ms: u64,
    holder: Option<String>,
    /// Whether the holder's lease ran out.
    silent: bool,
    deposed: Vec<Deposed>,
}

impl Roles {
    pub(crate) fn new(lanes: &Lanes, found: Option<&FoundSeat>, presences: &[Entry]) -> Roles {
        // The store's own present time, so that ages grow even if nobody writes any more.
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

    /// The role of a node whose presence was written at `modified`, and how long ago that was.
    pub(crate) fn of(&self, node: &str, modified: StoreTime) -> (&'static str, u64) {
        let age_ms = self.now.saturating_sub(modified.0);
        if self.holder.as_deref() == Some(node) {
            return (if self.silent { "gone" } else { "leader" }, age_ms);
        }
        // SQLite's clock starts over when the machine boots: a time later than now is from an earlier boot.
        let taken = |one: &Deposed| one.node == node && modified.0 <= one.at && one.at <= self.now;
        let gone = age_ms > 3 * self.presence_ms || self.deposed.iter().any(taken);
        (if gone { "gone" } else { "standby" }, age_ms)
    }
}

/// The holder of a seat, by one read. It may be dead: [`Status::read_at`] finds out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatHolder {
    /// The holder's node id.
    pub node: String,
    /// When it claimed, by its own wall clock; `None` if the record does not say.
    pub since: Option<String>,
    /// The epoch it holds the seat in.
    pub epoch: u64,
}

impl SeatHolder {
    /// Reads the seat; `None` if nobody holds it.
    pub async fn read(lanes: &Lanes, election: impl Into<Election>) -> Result<Option<SeatHolder>, Error> {
        let found = read_seat(lanes, &election.into().keys(), None).await?;
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

/// `None` if there is no seat, or it still has the version that the caller named.
pub(crate) async fn read_seat(
    lanes: &Lanes,
    keys: &Keys,
    unless: Option<&Version>,
) -> Result<Option<FoundSeat>, Error> {
    let Some(object) = found(lanes.lease.get(&keys.seat(), unless).await)? else { return Ok(None) };
    let (document, seat) = SeatDocument::parse(&object.body)
        .map_err(|unreadable| Error::unreadable(&keys.seat(), unreadable.detail))?;
    Ok(Some(FoundSeat { document, seat, version: object.version, modified: object.modified }))
}

/// Watches the seat for one hold of its holder, which renews within it if it is alive, but not beyond `end`.
async fn next_change(
    lanes: &Lanes,
    keys: &Keys,
    seen: &FoundSeat,
    end: Instant,
) -> Result<Option<FoundSeat>, Error> {
    let deadline = end.min(Instant::now() + Duration::from_millis(seen.seat.lease.hold_ms));
    while Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(next) = read_seat(lanes, keys, Some(&seen.version)).await? {
            return Ok(Some(next));
        }
    }
    Ok(None)
}
