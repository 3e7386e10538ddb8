//! The store of the driver's schedules. It reports which record of the seat has landed; `cluster/log.rs` compares that with what
//! the nodes know and do.

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tenure::store::{Condition, List, MemoryStore, Read, Remove, Store, StoreTime, Version, Write};
use tenure_core::{Incarnation, Nonce};

/// The parts of a seat record that the proof uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) epoch: u64,
    pub(crate) held: bool,
    /// The holder's incarnation.
    pub(crate) incarnation: Incarnation,
    pub(crate) nonce: Nonce,
    pub(crate) hold_ms: u64,
}

impl Record {
    fn of(body: &[u8]) -> Option<Record> {
        let seat: Value = serde_json::from_slice(body).ok()?;
        Some(Record {
            epoch: seat["epoch"].as_u64()?,
            held: seat["state"] == "held",
            incarnation: incarnation(seat["holder"]["incarnation"].as_str()?)?,
            nonce: nonce(seat["nonce"].as_str()?)?,
            hold_ms: seat["leaseHold"].as_u64()?,
        })
    }
}

fn incarnation(text: &str) -> Option<Incarnation> {
    u64::from_str_radix(text, 16).ok().map(Incarnation)
}

fn nonce(text: &str) -> Option<Nonce> {
    let (writer, sequence) = text.split_once('-')?;
    Some(Nonce { incarnation: incarnation(writer)?, sequence: sequence.parse().ok()? })
}

/// Reports everything that lands; `None` if it is not a record.
pub(crate) struct ObservedStore {
    inner: MemoryStore,
    key: &'static str,
    tell: Arc<dyn Fn(Option<Record>) + Send + Sync>,
}

impl ObservedStore {
    pub(crate) fn new(key: &'static str, tell: Arc<dyn Fn(Option<Record>) + Send + Sync>) -> ObservedStore {
        ObservedStore { inner: MemoryStore::new(), key, tell }
    }
}

impl fmt::Debug for ObservedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Store for ObservedStore {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.inner.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let written = self.inner.put(key, body.clone(), condition).await;
        if key == self.key && matches!(written, Write::Won(_)) {
            (self.tell)(Record::of(&body));
        }
        written
    }

    async fn remove(&self, key: &str) -> Remove {
        self.inner.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.inner.list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn now(&self) -> Option<StoreTime> {
        Store::now(&self.inner)
    }
}
