//! Documents that need the store: read once for all clients, and not again until they are old enough.

use crate::problem::{Answer, Problem};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

/// The pause before another try after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The time limit of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct CountedRead<T> {
    pub(crate) outcome: Answer<T>,
    pub(crate) requests: u64,
}

/// One document. However many clients ask, at most one read runs; its result goes to all of them, and to anybody who asks while
/// it is fresh.
pub(crate) struct Cached<T> {
    slot: Arc<Mutex<Slot<T>>>,
    fresh: Duration,
    per_request: Duration,
}

struct Slot<T> {
    newest: Option<Answer<Arc<T>>>,
    /// The last good value, and when it was read.
    good: Option<(Arc<T>, Instant)>,
    next: Option<Instant>,
    pending: Option<watch::Receiver<Option<Answer<Arc<T>>>>>,
}

pub(crate) struct Aged<T> {
    pub(crate) value: Arc<T>,
    pub(crate) age: Duration,
}

impl<T: Send + Sync + 'static> Cached<T> {
    pub(crate) fn new(fresh: Duration, per_request: Duration) -> Cached<T> {
        let slot = Slot { newest: None, good: None, next: None, pending: None };
        Cached { slot: Arc::new(Mutex::new(slot)), fresh, per_request }
    }

    /// The document; reads it on the node's own runtime if the cached one is too old.
    pub(crate) async fn get<W>(&self, runtime: &Handle, read: impl FnOnce() -> W) -> Answer<Aged<T>>
    where
        W: Future<Output = CountedRead<T>> + Send + 'static,
    {
        self.get_within(Duration::ZERO, runtime, read).await
    }

    /// The same for a client that is content with a document of this age, should there be one.
    pub(crate) async fn get_within<W>(
        &self,
        most: Duration,
        runtime: &Handle,
        read: impl FnOnce() -> W,
    ) -> Answer<Aged<T>>
    where
        W: Future<Output = CountedRead<T>> + Send + 'static,
    {
        if let Some(last) = self.last().filter(|last| last.age < most) {
            return Ok(last);
        }
        let mut pending = {
            let mut slot = self.slot.lock();
            let now = Instant::now();
            if slot.next.is_some_and(|next| now < next)
                && let Some(newest) = &slot.newest
            {
                return newest.clone().map(|value| Aged { age: age(&slot.good, now), value });
            }
            match slot.pending.clone().filter(|pending| pending.has_changed().is_ok()) {
                Some(pending) => pending,
                None => self.launch(&mut slot, runtime, read()),
            }
        };
        let done = pending.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
        let value = done.unwrap_or_else(|| Err(Problem::stopping()))?;
        Ok(Aged { value, age: Duration::ZERO })
    }

    /// The last good one, whatever its age.
    pub(crate) fn last(&self) -> Option<Aged<T>> {
        let slot = self.slot.lock();
        let age = age(&slot.good, Instant::now());
        slot.good.as_ref().map(|(value, _)| Aged { value: Arc::clone(value), age })
    }

    /// The document has changed: the next request reads it again, unless the last read took so many requests that it is too soon.
    pub(crate) fn stale(&self) {
        let mut slot = self.slot.lock();
        if let (Some(next), Some((_, read))) = (slot.next, &slot.good) {
            // Keep the longer pause that an expensive read earned.
            let spared = next.duration_since(*read) > self.fresh;
            slot.next = if spared { Some(next) } else { None };
        }
    }

    fn launch(
        &self,
        slot: &mut Slot<T>,
        runtime: &Handle,
        read: impl Future<Output = CountedRead<T>> + Send + 'static,
    ) -> watch::Receiver<Option<Answer<Arc<T>>>> {
        let (told, pending) = watch::channel(None);
        slot.pending = Some(pending.clone());
        let (shared, fresh, per_request) = (Arc::clone(&self.slot), self.fresh, self.per_request);
        runtime.spawn(async move {
            let done = tokio::time::timeout(READ_TIMEOUT, read).await.unwrap_or_else(|_| CountedRead {
                outcome: Err(Problem::store(format!(
                    "it did not answer within {} s",
                    READ_TIMEOUT.as_secs()
                ))),
                requests: 0,
            });
            let outcome = done.outcome.map(Arc::new);
            let now = Instant::now();
            {
                let mut slot = shared.lock();
                let requests = u32::try_from(done.requests).unwrap_or(u32::MAX);
                let pause = per_request.saturating_mul(requests);
                slot.next =
                    Some(now + if outcome.is_ok() { fresh.max(pause) } else { RETRY_AFTER.max(pause) });
                if let Ok(value) = &outcome {
                    slot.good = Some((Arc::clone(value), now));
                }
                slot.newest = Some(outcome.clone());
                slot.pending = None;
            }
            told.send_replace(Some(outcome));
        });
        pending
    }
}

fn age<T>(good: &Option<(Arc<T>, Instant)>, now: Instant) -> Duration {
    good.as_ref().map_or(Duration::ZERO, |(_, read)| now.saturating_duration_since(*read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Source(Arc<AtomicU64>);

    impl Source {
        fn read(&self, requests: u64, fails: bool) -> impl Future<Output = CountedRead<u64>> + Send + use<> {
            let count = Arc::clone(&self.0);
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                let outcome = if fails { Err(Problem::store("away")) } else { Ok(number) };
                CountedRead { outcome, requests }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_cause_one_read_even_if_they_leave() {
        let (cached, source) = (Cached::new(Duration::from_secs(5), Duration::ZERO), Source(Arc::default()));
        let runtime = Handle::current();
        {
            // A client that goes away while it waits does not stop the read for the others.
            let gone = cached.get(&runtime, || source.read(1, false));
            assert!(tokio::time::timeout(Duration::from_millis(10), gone).await.is_err());
        }
        let asks: Vec<_> = (0..100).map(|_| cached.get(&runtime, || source.read(1, false))).collect();
        for answer in futures::future::join_all(asks).await {
            assert_eq!(*answer.expect("read").value, 1);
        }
        assert_eq!(source.0.load(Ordering::Relaxed), 1);
        tokio::time::advance(Duration::from_millis(4900)).await;
        assert_eq!(*cached.get(&runtime, || source.read(1, false)).await.expect("kept").value, 1);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(*cached.get(&runtime, || source.read(1, false)).await.expect("new").value, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_took_many_requests_is_kept_for_longer_and_failures_are_kept_too() {
        let (cached, source) =
            (Cached::new(Duration::from_secs(5), Duration::from_millis(250)), Source(Arc::default()));
        let runtime = Handle::current();
        cached.get(&runtime, || source.read(64, false)).await.expect("read");
        cached.stale();
        tokio::time::advance(Duration::from_millis(15_800)).await;
        assert_eq!(*cached.get(&runtime, || source.read(1, true)).await.expect("kept").value, 1);
        tokio::time::advance(Duration::from_millis(300)).await;
        assert!(cached.get(&runtime, || source.read(1, true)).await.is_err());
        assert!(cached.get(&runtime, || source.read(1, true)).await.is_err());
        assert_eq!(source.0.load(Ordering::Relaxed), 2, "a store that is away is not asked by everybody");
        assert_eq!(*cached.last().expect("the last good one").value, 1);
        tokio::time::advance(Duration::from_millis(1100)).await;
        assert_eq!(*cached.get(&runtime, || source.read(1, false)).await.expect("back").value, 3);
        cached.stale();
        assert_eq!(*cached.get(&runtime, || source.read(1, false)).await.expect("again").value, 4);
    }
}
