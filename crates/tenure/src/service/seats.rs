//! Looking at seats from outside their election: whether somebody acts by the other one.

use crate::clock::Clock;
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::metrics::Figures;
use crate::settings::Settings;
use crate::wire::SeatDocument;
use serde_json::Map;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Epoch, Glimpse, Incarnation, Lookout, Nonce, Role, Seat, SeatState, Sight, Time, Version};
use tenure_store::{Condition, Read, Store, Write};
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
        // Whoever takes part in that election waits the takeover delay and looks every interval; three of those leave
        // room for the ranks that hold back.
        let patience_ms = settings.takeover_delay_ms + 3 * settings.election_interval_ms;
        SeatWatch {
            store,
            key: keys.seat(),
            timeout: Duration::from_millis(settings.request_timeout_ms),
            clock,
            lookout: Lookout::new(settings.lease_expiry_factor_permille, patience_ms),
            last: None,
        }
    }

    /// One look. `dead` is an epoch whose holder is known to act no more: this process itself.
    async fn look(&mut self, dead: Option<u64>) -> Sight {
        let sent = Time(self.clock.now_ms());
        let unless = self.lookout.version().map(|version| tenure_store::Version::new(version.as_str()));
        let read = tokio::time::timeout(self.timeout, self.store.get(&self.key, unless.as_ref())).await;
        let glimpse = match read {
            Err(_) | Ok(Read::Unavailable(_)) => Glimpse::Nothing,
            Ok(Read::Unchanged) => Glimpse::Unchanged,
            Ok(Read::Absent) => Glimpse::Absent,
            Ok(Read::Denied(_)) => Glimpse::Closed,
            Ok(Read::Found(object)) => match SeatDocument::parse(&object.body) {
                // Nobody can claim or renew what is no seat.
                Err(_) => Glimpse::Closed,
                Ok((document, seat)) => {
                    let version = Version::new(object.version.as_str());
                    let (state, epoch, lease_ms) = (seat.state, seat.epoch, seat.lease_ms);
                    self.last = Some((version.clone(), document, seat));
                    Glimpse::Seat { version, state, epoch, lease_ms }
                }
            },
        };
        if matches!(glimpse, Glimpse::Absent | Glimpse::Closed) {
            self.last = None;
        }
        let sight = self.lookout.look(sent, Time(self.clock.now_ms()), glimpse);
        match &self.last {
            Some((_, _, seat)) if sight == Sight::Held && dead == Some(seat.epoch.0) => {
                Sight::Free(seat.epoch)
            }
            Some(_) | None => sight,
        }
    }

    /// Watches until nobody acts by the seat; says its epoch. A holder that fell silent is cleared away, so that nobody
    /// has to wait for it again; if somebody else was faster, watching goes on.
    pub(super) async fn until_free(mut self, every: Duration) -> Epoch {
        loop {
            if let Sight::Free(epoch) = self.look(None).await
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

/// The global seat as a process sees it that may not write it. Looked at only while that is so.
pub(super) struct GlobalSeat {
    watch: Mutex<SeatWatch>,
    sight: watch::Sender<Sight>,
    figures: Arc<Figures>,
    leadership: watch::Receiver<Leadership>,
    every: Duration,
}

impl GlobalSeat {
    pub(super) fn new(
        watch: SeatWatch,
        figures: Arc<Figures>,
        leadership: watch::Receiver<Leadership>,
        every: Duration,
    ) -> GlobalSeat {
        let sight = watch::Sender::new(Sight::Unknown);
        GlobalSeat { watch: Mutex::new(watch), sight, figures, leadership, every }
    }

    pub(super) fn sight(&self) -> watch::Receiver<Sight> {
        self.sight.subscribe()
    }

    /// One look, told to everybody who waits for one.
    pub(super) async fn look(&self) -> Sight {
        let leads = matches!(self.leadership.borrow().role, Some(Role::Leader | Role::Draining));
        // What this process held and lost, and cannot give up because the store refuses, nobody acts by.
        let dead = (!leads).then(|| self.figures.led());
        let sight = self.watch.lock().await.look(dead).await;
        self.sight.send_if_modified(|known| std::mem::replace(known, sight) != sight);
        sight
    }

    /// Looks as long as the store refuses. Never ends.
    pub(super) async fn watch(self: Arc<GlobalSeat>) {
        let mut denied = self.figures.denied();
        loop {
            if denied.wait_for(Option::is_some).await.is_err() {
                return;
            }
            self.look().await;
            tokio::time::sleep(self.every).await;
        }
    }
}
