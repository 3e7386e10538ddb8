//! Looking at seats from outside their election: whether somebody acts by the other one.

use crate::clock::Clock;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::wire::SeatDocument;
use serde_json::Map;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Epoch, Glimpse, Incarnation, Lookout, NodeId, Nonce, Seat, SeatProblem, SeatState, Sight, Time, Version,
};
use tenure_store::{Condition, Read, Store, Trouble, TroubleKind, Write};
use tokio::sync::{Mutex, watch};

/// One seat, watched.
pub(super) struct SeatWatch {
    store: Arc<dyn Store>,
    key: String,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    lookout: Lookout,
    /// What the last look found, for clearing away what nobody holds any more.
    last: Option<(Version, SeatDocument, Seat)>,
    /// Whether a seat that may not be read counts as free.
    may_be_hidden: bool,
    /// It could not be read, and that has been said.
    is_denied: bool,
}

/// How long between two looks.
pub(super) fn look_every(settings: &Settings) -> Duration {
    Duration::from_millis(settings.election_interval_ms.max(1))
}

impl SeatWatch {
    pub(super) fn new(
        store: Arc<dyn Store>,
        keys: &Keys,
        settings: &Settings,
        clock: Arc<dyn Clock>,
    ) -> SeatWatch {
        // Whoever takes part in its election waits the takeover delay and looks every interval; three of those leave
        // room for the ranks that hold back.
        let patience_ms = settings.takeover_delay_ms + 3 * settings.election_interval_ms;
        SeatWatch {
            store,
            key: keys.seat(),
            timeout: Duration::from_millis(settings.request_timeout_ms),
            clock,
            lookout: Lookout::new(patience_ms),
            last: None,
            may_be_hidden: false,
            is_denied: false,
        }
    }

    /// For a seat that this process is refused, perhaps even to read.
    fn may_be_hidden(self) -> SeatWatch {
        SeatWatch { may_be_hidden: true, ..self }
    }

    /// One look; `None` if it was not answered. `dead` is an epoch whose holder is known to act no more: this process itself.
    async fn look(&mut self, dead: Option<u64>) -> Option<Sight> {
        let sent = Time(self.clock.now_ms());
        let unless = self.lookout.version().map(|version| tenure_store::Version::new(version.as_str()));
        let read = tokio::time::timeout(self.timeout, self.store.get(&self.key, unless.as_ref())).await;
        let glimpse = match read {
            Err(_) | Ok(Read::Unavailable(_)) => Glimpse::Nothing,
            Ok(Read::Unchanged) => Glimpse::Unchanged,
            Ok(Read::Absent) => Glimpse::Absent,
            Ok(Read::Denied(trouble)) => self.denied(&trouble),
            Ok(Read::Found(object)) => match SeatDocument::parse(&object.body) {
                // A newer tenure may hold it. What is no seat at all nobody can claim or renew.
                Err(unreadable) if unreadable.problem == SeatProblem::Newer => Glimpse::Nothing,
                Err(_) => Glimpse::Closed,
                Ok((document, seat)) => {
                    let version = Version::new(object.version.as_str());
                    let (state, epoch, expiry_ms) = (seat.state, seat.epoch, seat.lease.expiry_ms);
                    self.last = Some((version.clone(), document, seat));
                    Glimpse::Seat { version, state, epoch, expiry_ms }
                }
            },
        };
        if matches!(glimpse, Glimpse::Absent | Glimpse::Closed) {
            self.last = None;
        }
        let sight = self.lookout.look(sent, Time(self.clock.now_ms()), glimpse)?;
        match &self.last {
            Some((_, _, seat)) if sight == Sight::Held && dead == Some(seat.epoch.0) => {
                Some(Sight::Free(seat.epoch))
            }
            Some(_) | None => Some(sight),
        }
    }

    /// Credentials that have expired, or a bucket that is not there, say nothing about the seat. Lack of permission does not
    /// either; but whoever is kept from one election, and may not even read its seat, can only go on without it.
    fn denied(&mut self, trouble: &Trouble) -> Glimpse {
        if self.may_be_hidden && trouble.kind == TroubleKind::Permission {
            return Glimpse::Closed;
        }
        if !std::mem::replace(&mut self.is_denied, true) {
            tracing::warn!(target: "tenure", seat = self.key, "the seat cannot be read, so this node does not act beside it: {trouble}");
        }
        Glimpse::Nothing
    }

    /// Watches until nobody acts by the seat; says its epoch. A holder that fell silent is cleared away, so that nobody
    /// has to wait for it again; if somebody else was faster, watching goes on.
    pub(super) async fn until_free(mut self, every: Duration) -> Epoch {
        loop {
            if let Some(Sight::Free(epoch)) = self.look(None).await
                && self.clear().await
            {
                return epoch;
            }
            tokio::time::sleep(every).await;
        }
    }

    async fn clear(&mut self) -> bool {
        let Some((version, before, seat)) = &self.last else { return true };
        if seat.state == SeatState::Vacant {
            return true;
        }
        let nonce = Nonce { incarnation: Incarnation(rand::random()), sequence: 1 };
        let vacant = Seat { state: SeatState::Vacant, nonce, ..seat.clone() };
        let now = format!("{:.3}", jiff::Timestamp::now());
        let body = SeatDocument::new(&vacant, Some(before), now, Map::new(), None).to_bytes();
        let condition = Condition::Matches(tenure_store::Version::new(version.as_str()));
        let put = self.store.put(&self.key, body.into(), condition);
        match tokio::time::timeout(self.timeout, put).await {
            // Not allowed to tidy up is not a reason to wait for the dead.
            Ok(Write::Won(_) | Write::Denied(_)) => true,
            Ok(Write::Lost | Write::Unknown(_) | Write::Unavailable(_)) | Err(_) => false,
        }
    }
}

/// The global seat as a process sees it that may not write it. Looked at only once that is so.
pub(super) struct GlobalSeat {
    watch: Mutex<SeatWatch>,
    seen: watch::Sender<Option<Seen>>,
    every: Duration,
}

/// What the last answered look showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) sight: Sight,
    /// Who holds it, and in which epoch.
    pub(super) leader: Option<(NodeId, u64)>,
}

impl GlobalSeat {
    pub(super) fn new(watch: SeatWatch, every: Duration) -> GlobalSeat {
        GlobalSeat { watch: Mutex::new(watch.may_be_hidden()), seen: watch::Sender::new(None), every }
    }

    pub(super) fn seen(&self) -> watch::Receiver<Option<Seen>> {
        self.seen.subscribe()
    }

    /// One look, told to everybody who waits for one. `led` is the epoch this process led in last: what it held and lost, and
    /// cannot give up because the store refuses, nobody acts by.
    async fn look(&self, led: u64) -> Option<Sight> {
        let mut watch = self.watch.lock().await;
        let sight = watch.look(Some(led)).await?;
        let holder = watch.last.as_ref().filter(|_| sight == Sight::Held);
        let held = holder.map(|(_, _, seat)| seat).filter(|seat| seat.state == SeatState::Held);
        let seen = Some(Seen { sight, leader: held.map(|seat| (seat.holder.node.clone(), seat.epoch.0)) });
        self.seen.send_if_modified(|known| std::mem::replace(known, seen.clone()) != seen);
        Some(sight)
    }

    /// Looks until a look is answered: one that is not says nothing, whatever earlier ones said.
    pub(super) async fn answered(&self, led: u64) -> Sight {
        loop {
            if let Some(sight) = self.look(led).await {
                return sight;
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Looks again and again. Never ends.
    pub(super) async fn watch(&self, led: u64) {
        loop {
            self.look(led).await;
            tokio::time::sleep(self.every).await;
        }
    }
}
