//! The store inside one process: for tests, demonstrations and simulations.

use crate::{
    BODY_MAX_BYTES, Condition, Entry, List, Object, Read, Remove, Store, StoreTime, Trouble, TroubleKind,
    Version, Write,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

/// Where store times begin. Far above zero, so that subtracting a margin from a young store's time cannot underflow and no
/// time is mistaken for "before the last boot" (0).
pub(crate) const TIME_ORIGIN_MS: u64 = 1 << 40;

/// A store in memory. Clones share the same objects.
///
/// Its clock is tokio's, so a test with paused time moves it too.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    name: Option<String>,
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// The last version given to any key. One counter serves all keys, so a key that is removed and created again never gets
    /// an old version back.
    version: u64,
}

impl MemoryStore {
    /// A new, empty store that nobody else shares.
    pub fn new() -> MemoryStore {
        MemoryStore::build(None)
    }

    /// The store with this name, shared by everybody in this process who asks for the same name. It lives as long as the
    /// process, so what runs on it can be stopped and started again.
    pub fn named(name: &str) -> MemoryStore {
        static NAMED: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
        let mut named = NAMED.lock();
        named.entry(name.to_owned()).or_insert_with(|| MemoryStore::build(Some(name.to_owned()))).clone()
    }

    fn build(name: Option<String>) -> MemoryStore {
        let shared = Shared { name, origin: Instant::now(), state: Mutex::default() };
        MemoryStore { shared: Arc::new(shared) }
    }

    /// The store's clock, now.
    pub fn now(&self) -> StoreTime {
        let elapsed = Instant::now().saturating_duration_since(self.shared.origin);
        StoreTime(TIME_ORIGIN_MS + u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX / 2))
    }

    /// How many objects the store holds.
    pub fn len(&self) -> usize {
        self.state().objects.len()
    }

    /// Whether the store holds no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("name", &self.shared.name).field("objects", &self.len()).finish()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        match self.state().objects.get(key) {
            None => Read::Absent,
            Some(object) if Some(&object.version) == unless => Read::Unchanged,
            Some(object) => Read::Found(object.clone()),
        }
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        if let Some(trouble) = refuse_too_large(key, body.len()) {
            return Write::Denied(trouble);
        }
        let modified = self.now();
        let mut state = self.state();
        let holds = match (&condition, state.objects.get(key)) {
            (Condition::Absent, current) => current.is_none(),
            (Condition::Matches(version), current) => {
                current.is_some_and(|object| object.version == *version)
            }
            (Condition::Any, _) => true,
        };
        if !holds {
            return Write::Lost;
        }
        state.version += 1;
        let version = Version::new(state.version.to_string());
        state.objects.insert(key.to_owned(), Object { body, version: version.clone(), modified });
        Write::Won(version)
    }

    async fn remove(&self, key: &str) -> Remove {
        self.state().objects.remove(key);
        Remove::Done
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let state = self.state();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let mut below = state.objects.range::<str, _>(from).take_while(|(key, _)| key.starts_with(prefix));
        let entries = below
            .by_ref()
            .take(limit)
            .map(|(key, object)| Entry {
                key: key.clone(),
                modified: object.modified,
                bytes: object.body.len() as u64,
                version: Some(object.version.clone()),
            })
            .collect();
        List::Entries { entries, more: below.next().is_some() }
    }

    fn now(&self) -> Option<StoreTime> {
        Some(MemoryStore::now(self))
    }

    fn describe(&self) -> String {
        match &self.shared.name {
            Some(name) => format!("memory:{name} (this process only)"),
            None => "memory: (this process only)".to_owned(),
        }
    }
}

/// Why a body is refused as too large; `None` if it fits.
pub(crate) fn refuse_too_large(key: &str, bytes: usize) -> Option<Trouble> {
    let detail = || format!("{key} has {bytes} bytes; an object may have at most {BODY_MAX_BYTES}");
    (bytes > BODY_MAX_BYTES).then(|| Trouble::new(TroubleKind::TooLarge, detail()))
}
