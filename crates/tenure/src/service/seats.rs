//! Looks at seats from outside their election: does somebody act by the other one?

use crate::clock::Clock;
use crate::documents::{Documents, SeatBody, SeatCodec, Tries};
use crate::error::Error;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::wire::SeatDocument;
use serde_json::Map;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Epoch, NodeId, Seat, SeatObserver, SeatProblem, SeatRead, SeatState, SeatUse, Time, Version,
};
use tenure_store::{Read, Store, Trouble, TroubleKind};
use tokio::sync::{Mutex, watch};

/// A seat is cleared or looked at again: there is no hurry.
const ONCE: Tries = Tries { writes: 1, failures: 1 };

/// Watches one seat.
pub(super) struct SeatWatch {
    store: Arc<dyn Store>,
    key: String,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    observer: SeatObserver,
    /// What the last look found, for clearing away a holder that is gone.
    last: Option<(Version, SeatDocument, Seat)>,
    /// Whether a seat that may not be read counts as free.
    may_be_hidden: bool,
    /// The seat could not be read, and that has been logged.
    is_denied: bool,
}

/// The time between two looks.
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
        // Nodes in its election wait out the takeover delay and look every interval; three intervals leave room for the
        // ranks that hold back.
        let patience_ms = settings.takeover_delay_ms + 3 * settings.election_interval_ms;
        SeatWatch {
            store,
            key: keys.seat(),
            timeout: Duration::from_millis(settings.request_timeout_ms),
            clock,
            observer: SeatObserver::new(patience_ms),
            last: None,
            may_be_hidden: false,
            is_denied: false,
        }
    }

    /// For a seat that the store refuses this process, perhaps even for reading.
    fn may_be_hidden(self) -> SeatWatch {
        SeatWatch { may_be_hidden: true, ..self }
    }

    /// One look; `None` if it was not answered. `dead` is an epoch whose holder no longer acts: this process itself.
    async fn look(&mut self, dead: Option<u64>) -> Option<SeatUse> {
        let sent = Time(self.clock.now_ms());
        let unless = self.observer.version().map(|version| tenure_store::Version::new(version.as_str()));
        let read = tokio::time::timeout(self.timeout, self.store.get(&self.key, unless.as_ref())).await;
        let seat_read = match read {
            Err(_) | Ok(Read::Unavailable(_)) => SeatRead::Nothing,
            Ok(Read::Unchanged) => SeatRead::Unchanged,
            Ok(Read::Absent) => SeatRead::Absent,
            Ok(Read::Denied(trouble)) => self.denied(&trouble),
            Ok(Read::Found(object)) => match SeatDocument::parse(&object.body) {
                // A newer version of tenure may hold it. If the object is not a seat at all, nobody can claim or renew it.
                Err(unreadable) if unreadable.problem == SeatProblem::Newer => SeatRead::Nothing,
                Err(_) => SeatRead::Closed,
                Ok((document, seat)) => {
                    let version = Version::new(object.version.as_str());
                    let (state, epoch, expiry_ms) = (seat.state, seat.epoch, seat.lease.expiry_ms);
                    self.last = Some((version.clone(), document, seat));
                    SeatRead::Seat { version, state, epoch, expiry_ms }
                }
            },
        };
        if matches!(seat_read, SeatRead::Absent | SeatRead::Closed) {
            self.last = None;
        }
        let usage = self.observer.look(sent, Time(self.clock.now_ms()), seat_read)?;
        match &self.last {
            Some((_, _, seat)) if usage == SeatUse::Held && dead == Some(seat.epoch.0) => {
                Some(SeatUse::Free(seat.epoch))
            }
            Some(_) | None => Some(usage),
        }
    }

    /// Expired credentials or a missing bucket say nothing about the seat. Neither does a lack of permission; but a process
    /// that is kept from one election, and may not even read its seat, can only carry on without it.
    fn denied(&mut self, trouble: &Trouble) -> SeatRead {
        if self.may_be_hidden && trouble.kind == TroubleKind::Permission {
            return SeatRead::Closed;
        }
        if !std::mem::replace(&mut self.is_denied, true) {
            tracing::warn!(target: "tenure", seat = self.key, "the seat cannot be read, so this node does not act: {trouble}");
        }
        SeatRead::Nothing
    }

    /// Watches until nobody acts by the seat, and returns its epoch. Clears away a holder that fell silent, so that nobody
    /// has to wait for it again; if somebody else was faster, keeps watching.
    pub(super) async fn until_free(mut self, every: Duration) -> Epoch {
        loop {
            if let Some(SeatUse::Free(epoch)) = self.look(None).await
                && self.clear().await
            {
                return epoch;
            }
            tokio::time::sleep(every).await;
        }
    }

    async fn clear(&mut self) -> bool {
        let Some((_, _, seen)) = &self.last else { return true };
        if seen.state == SeatState::Vacant {
            return true;
        }
        let vacate = |found: Option<&SeatBody>, _| {
            // Whoever wrote it since is alive.
            let there = found.filter(|there| there.seat.nonce == seen.nonce).ok_or(None)?;
            let seat = Seat { state: SeatState::Vacant, ..there.seat.clone() };
            let now = format!("{:.3}", jiff::Timestamp::now());
            let document = SeatDocument::new(&seat, Some(&there.document), now, Map::new(), None);
            Ok::<_, Option<Error>>(Some(SeatBody { document, seat }))
        };
        let documents = Documents::new(Arc::clone(&self.store), Arc::from(&*self.key), self.timeout);
        match documents.at(self.key.clone(), SeatCodec).update(ONCE, vacate).await {
            Ok(_) => true,
            // Lack of permission to clean up is no reason to wait for the dead.
            Err(why) => why.is_some_and(|error| error.is_denied()),
        }
    }
}

/// The global seat, as seen by a process that may not write it. Looked at only once that is so.
pub(super) struct GlobalSeat {
    watch: Mutex<SeatWatch>,
    seen: watch::Sender<Option<Seen>>,
    every: Duration,
}

/// What the last answered look showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) usage: SeatUse,
    /// The holder and its epoch; `None` if nobody holds it.
    pub(super) leader: Option<(NodeId, u64)>,
}

impl GlobalSeat {
    pub(super) fn new(watch: SeatWatch, every: Duration) -> GlobalSeat {
        GlobalSeat { watch: Mutex::new(watch.may_be_hidden()), seen: watch::Sender::new(None), every }
    }

    pub(super) fn seen(&self) -> watch::Receiver<Option<Seen>> {
        self.seen.subscribe()
    }

    /// One look, shared with everybody who waits for one. `led` is the last epoch in which this process led. If the seat is
    /// still held in that epoch, nobody acts by it: this process lost it, and the store's refusal keeps it from giving it
    /// up.
    async fn look(&self, led: u64) -> Option<SeatUse> {
        let mut watch = self.watch.lock().await;
        let usage = watch.look(Some(led)).await?;
        let holder = watch.last.as_ref().filter(|_| usage == SeatUse::Held);
        let held = holder.map(|(_, _, seat)| seat).filter(|seat| seat.state == SeatState::Held);
        let seen = Some(Seen { usage, leader: held.map(|seat| (seat.holder.node.clone(), seat.epoch.0)) });
        self.seen.send_if_modified(|known| std::mem::replace(known, seen.clone()) != seen);
        Some(usage)
    }

    /// Looks until a look is answered: an unanswered look says nothing, whatever earlier ones said.
    pub(super) async fn answered(&self, led: u64) -> SeatUse {
        loop {
            if let Some(usage) = self.look(led).await {
                return usage;
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
