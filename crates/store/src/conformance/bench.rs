//! What every check needs: keys, nonces, settled answers, latencies, and cleaning up.

use super::Latencies;
use crate::{Condition, Entry, List, Object, Read, Remove, Store, Trouble, TroubleKind, Version, Write};
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often to repeat a request whose answer settles nothing.
const TRIES: usize = 20;

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Requests in flight at the same time where many objects are created or removed.
const PARALLEL: usize = 16;

/// Largest body of a write that is comparable to a renewal of the seat.
const SEAT_MAX_BYTES: usize = 4 << 10;

/// Why a check ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The store broke a promise.
    Fail(String),
    /// The check was inconclusive.
    Skip(String),
}

impl Stop {
    pub(super) fn fail<T>(sentence: impl Into<String>) -> Result<T, Stop> {
        Err(Stop::Fail(sentence.into()))
    }

    /// A lasting refusal. If the store says that it cannot do this at all, that answers the question of the check.
    fn denied(trouble: &Trouble) -> Stop {
        match trouble.kind {
            TroubleKind::Unsupported => Stop::Fail(format!("the store refuses the request: {trouble}")),
            TroubleKind::Timeout
            | TroubleKind::Connection
            | TroubleKind::Throttled
            | TroubleKind::Busy
            | TroubleKind::Server
            | TroubleKind::Credentials
            | TroubleKind::Permission
            | TroubleKind::Missing
            | TroubleKind::TooLarge
            | TroubleKind::Malformed => Stop::Skip(trouble.to_string()),
        }
    }
}

/// The endpoints under test and the bookkeeping around them.
pub(super) struct Bench<'a> {
    endpoints: &'a [Arc<dyn Store>],
    root: String,
    unique: String,
    nonces: AtomicU64,
    latencies: Mutex<Vec<Duration>>,
    /// Durations of the conditional writes that nobody raced against, over all checks.
    writes: Mutex<Vec<Duration>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(endpoints: &'a [Arc<dyn Store>], prefix: &str, unique: &str) -> Bench<'a> {
        let prefix = prefix.trim_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        Bench::below(endpoints, format!("{prefix}{slash}conformance-{unique}/"), unique)
    }

    /// Everything in this folder, which others may use as well.
    pub(super) fn below(endpoints: &'a [Arc<dyn Store>], root: String, unique: &str) -> Bench<'a> {
        let (nonces, latencies, writes) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Bench { endpoints, root, unique: unique.to_owned(), nonces, latencies, writes }
    }

    /// The key of this name below the throw-away prefix.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }

    /// A unique body: equal bodies have equal ETags on most engines.
    pub(super) fn body(&self, what: &str) -> Bytes {
        let n = self.nonces.fetch_add(1, Ordering::Relaxed);
        Bytes::from(format!("{what} {}-{n}", self.unique))
    }

    pub(super) fn first(&self) -> &dyn Store {
        &*self.endpoints[0]
    }

    pub(super) fn second(&self) -> Option<&dyn Store> {
        self.endpoints.get(1).map(|store| &**store)
    }

    /// Hands endpoints out in turn, for writers that race.
    pub(super) fn endpoint(&self, writer: usize) -> &dyn Store {
        &*self.endpoints[writer % self.endpoints.len()]
    }

    pub(super) async fn timed<T>(&self, request: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let answer = request.await;
        self.latencies.lock().push(began.elapsed());
        answer
    }

    pub(super) fn take_latencies(&self) -> Latencies {
        Latencies::of(std::mem::take(&mut *self.latencies.lock()))
    }

    pub(super) fn take_writes(&self) -> Latencies {
        Latencies::of(std::mem::take(&mut *self.writes.lock()))
    }

    /// Writes until the answer is certain: the new version if the write happened, `None` if the condition did not hold.
    ///
    /// "Lost" may mean "lost against my own first try", including a try that something on the way repeated; the body tells.
    pub(super) async fn put(
        &self,
        store: &dyn Store,
        key: &str,
        body: &Bytes,
        condition: &Condition,
    ) -> Result<Option<Version>, Stop> {
        let mut last = String::new();
        for pause in pauses() {
            let began = Instant::now();
            let answer = self.timed(store.put(key, body.clone(), condition.clone())).await;
            if *condition != Condition::Any && body.len() <= SEAT_MAX_BYTES {
                self.writes.lock().push(began.elapsed());
            }
            match answer {
                Write::Won(version) => return Ok(Some(version)),
                Write::Lost => {
                    let mine = self.read(store, key).await?.filter(|object| object.body == *body);
                    return Ok(mine.map(|object| object.version));
                }
                Write::Unknown(trouble) => {
                    let found = self.read(store, key).await?;
                    if let Some(object) = found.filter(|object| object.body == *body) {
                        return Ok(Some(object.version));
                    }
                    last = trouble.to_string();
                }
                Write::Unavailable(trouble) => last = trouble.to_string(),
                Write::Denied(trouble) => return Err(Stop::denied(&trouble)),
            }
            sleep(pause).await;
        }
        Err(Stop::Skip(format!("no certain answer to a write in {TRIES} tries: {last}")))
    }

    /// Reads until there is an answer.
    pub(super) async fn read(&self, store: &dyn Store, key: &str) -> Result<Option<Object>, Stop> {
        let mut last = String::new();
        for pause in pauses() {
            match self.timed(store.get(key, None)).await {
                Read::Found(object) => return Ok(Some(object)),
                Read::Absent => return Ok(None),
                Read::Unchanged => return Stop::fail("a read without a version was answered \"unchanged\""),
                Read::Unavailable(trouble) => last = trouble.to_string(),
                Read::Denied(trouble) => return Err(Stop::denied(&trouble)),
            }
            sleep(pause).await;
        }
        Err(Stop::Skip(format!("no answer to a read in {TRIES} tries: {last}")))
    }

    /// Creates an object that must not exist yet.
    pub(super) async fn create(&self, store: &dyn Store, key: &str, body: &Bytes) -> Result<Version, Stop> {
        match self.put(store, key, body, &Condition::Absent).await? {
            Some(version) => Ok(version),
            None => Stop::fail("creating an object that does not exist was refused"),
        }
    }

    /// The object must exist with exactly this body.
    pub(super) async fn expect(
        &self,
        store: &dyn Store,
        key: &str,
        body: &Bytes,
        when: &str,
    ) -> Result<Object, Stop> {
        match self.read(store, key).await? {
            Some(object) if object.body == *body => Ok(object),
            Some(_) => Stop::fail(format!("{when}, the object has another body than the one that won")),
            None => Stop::fail(format!("{when}, the object is not there")),
        }
    }

    /// Removes until there is an answer.
    pub(super) async fn remove(&self, store: &dyn Store, key: &str) -> Result<(), Stop> {
        let mut last = String::new();
        for pause in pauses() {
            match self.timed(store.remove(key)).await {
                Remove::Done => return Ok(()),
                Remove::Unknown(trouble) | Remove::Unavailable(trouble) => last = trouble.to_string(),
                Remove::Denied(trouble) => return Err(Stop::denied(&trouble)),
            }
            sleep(pause).await;
        }
        Err(Stop::Skip(format!("no answer to a removal in {TRIES} tries: {last}")))
    }

    /// Lists until there is an answer.
    pub(super) async fn list(
        &self,
        store: &dyn Store,
        below: &str,
        limit: usize,
    ) -> Result<(Vec<Entry>, bool), Stop> {
        let mut last = String::new();
        for pause in pauses() {
            match self.timed(store.list(below, limit)).await {
                List::Entries { entries, more } => return Ok((entries, more)),
                List::Unavailable(trouble) => last = trouble.to_string(),
                List::Denied(trouble) => return Err(Stop::denied(&trouble)),
            }
            sleep(pause).await;
        }
        Err(Stop::Skip(format!("no answer to a list in {TRIES} tries: {last}")))
    }

    /// Writes many objects, several at a time.
    pub(super) async fn fill(&self, store: &dyn Store, keys: &[String]) -> Result<(), Stop> {
        let writes = keys.iter().map(|key| async move {
            let body = self.body("filler");
            self.put(store, key, &body, &Condition::Any).await.map(|_| ())
        });
        let results: Vec<_> = futures::stream::iter(writes).buffer_unordered(PARALLEL).collect().await;
        results.into_iter().collect()
    }

    /// Removes everything below the throw-away prefix. Whatever cannot be removed stays: the verdicts still count, and the
    /// prefix says what it is.
    pub(super) async fn clean_up(&self) {
        for _ in 0..8 {
            let Ok((entries, _)) = self.list(self.first(), &self.root, 10_000).await else { return };
            if entries.is_empty() {
                return;
            }
            let removals = entries.iter().map(|entry| self.remove(self.first(), &entry.key));
            futures::stream::iter(removals).buffer_unordered(PARALLEL).for_each(|_| async {}).await;
        }
        tracing::warn!(prefix = %self.root, "objects of the conformance run could not be removed");
    }
}

/// Pauses that grow from 10 ms.
fn pauses() -> impl Iterator<Item = Duration> {
    (0..TRIES).map(|n| PAUSE_MAX.min(Duration::from_millis(10 << n.min(8))))
}
