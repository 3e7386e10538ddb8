//! Reads a seat from outside its election, and clears away a holder that is gone.

use crate::documents::{Documents, SeatBody, SeatCodec, Tries};
use crate::election::codec::SeatDocument;
use crate::error::Error;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::terms::TermEnd;
use crate::workers::SnapshotPointers;
use serde_json::Map;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure_core::{Nonce, Seat, SeatAnswer, SeatObserverAnswer, SeatObserverRequest, SeatState, Version};
use tenure_store::{Read, Store, Trouble, TroubleKind};

/// If it fails, the seat is read again: there is no hurry.
const ONCE: Tries = Tries { writes: 1, failures: 1 };

/// Carries the requests of an observer of a seat.
#[derive(Clone)]
pub(crate) struct SeatReader {
    store: Arc<dyn Store>,
    key: Arc<str>,
    timeout: Duration,
    /// Hears which snapshot of the workers the seat names.
    pointers: SnapshotPointers,
    /// Not being allowed to read it is nothing to warn of.
    may_be_hidden: bool,
    /// The seat cannot be read, and that has been said.
    warned: Arc<AtomicBool>,
}

impl SeatReader {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keys: &Keys,
        settings: &Settings,
        pointers: SnapshotPointers,
    ) -> SeatReader {
        SeatReader {
            store,
            key: Arc::from(keys.seat()),
            timeout: settings.request_timeout,
            pointers,
            may_be_hidden: false,
            warned: Arc::default(),
        }
    }

    /// For a seat that the store refuses this process, perhaps even for reading.
    pub(crate) fn may_be_hidden(self) -> SeatReader {
        SeatReader { may_be_hidden: true, ..self }
    }

    pub(crate) async fn carry(self, request: SeatObserverRequest) -> SeatObserverAnswer {
        match request {
            SeatObserverRequest::Read { unless } => SeatObserverAnswer::Read(self.read(unless).await),
            SeatObserverRequest::Vacate(nonce) => SeatObserverAnswer::Vacated(self.vacate(nonce).await),
        }
    }

    async fn read(&self, unless: Option<Version>) -> SeatAnswer {
        let unless = unless.map(|version| tenure_store::Version::new(version.as_str()));
        let read = tokio::time::timeout(self.timeout, self.store.get(&self.key, unless.as_ref())).await;
        let object = match read {
            Err(_) | Ok(Read::Unavailable(_)) => return SeatAnswer::Unavailable,
            Ok(Read::Denied(trouble)) => return self.denied(&trouble),
            Ok(Read::Unchanged) => return SeatAnswer::Unchanged,
            Ok(Read::Absent) => return SeatAnswer::Absent,
            Ok(Read::Found(object)) => object,
        };
        self.warned.store(false, Ordering::Relaxed);
        let version = Version::new(object.version.as_str());
        match SeatDocument::parse(&object.body) {
            Ok((document, seat)) => {
                self.pointers.saw(document.snapshot());
                SeatAnswer::Found { seat, version, modified_ms: object.modified.0 }
            }
            Err(unreadable) => SeatAnswer::Unreadable { version, problem: unreadable.problem() },
        }
    }

    /// Expired credentials or a missing bucket say nothing about the seat.
    fn denied(&self, trouble: &Trouble) -> SeatAnswer {
        let forbidden = trouble.kind == TroubleKind::Permission;
        let expected = forbidden && self.may_be_hidden;
        if !expected && !self.warned.swap(true, Ordering::Relaxed) {
            let seat = &*self.key;
            tracing::warn!(target: "tenure", seat, "the seat cannot be read, so this node does not act: {trouble}");
        }
        if forbidden { SeatAnswer::Denied } else { SeatAnswer::Unavailable }
    }

    async fn vacate(&self, nonce: Nonce) -> bool {
        let vacate = |found: Option<&SeatBody>, _| {
            // Whoever wrote it since is alive.
            let there = found.filter(|there| there.seat.nonce == nonce).ok_or(None)?;
            let seat = Seat { state: SeatState::Vacant, ..there.seat.clone() };
            let now = format!("{:.3}", jiff::Timestamp::now());
            let before = &there.document;
            let document = SeatDocument::new(&seat, Some(before), now.clone(), Map::new(), None);
            let document = document.vacated_because(before, Some(TermEnd::Silent), now);
            Ok::<_, Option<Error>>(Some(SeatBody { document, seat }))
        };
        let documents = Documents::new(Arc::clone(&self.store), Arc::clone(&self.key), self.timeout);
        match documents.at(self.key.to_string(), SeatCodec).update(ONCE, vacate).await {
            Ok(_) => true,
            // Lack of permission to clean up is no reason to wait for the dead.
            Err(why) => why.is_some_and(|error| error.is_denied()),
        }
    }
}
