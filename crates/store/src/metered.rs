//! Counts requests to a store and its answers.

use crate::{Condition, EtagForm, List, Read, Remove, Store, StoreTime, Version, Write, tally};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of one list page: the most that any engine returns, and so the unit to bill where the backend has no wire to
/// count on.
const PAGE_ENTRIES: u64 = 1_000;

/// A store that counts every request. Counting takes no lock.
#[derive(Debug)]
pub struct Metered<S: ?Sized = dyn Store> {
    meter: Meter,
    inner: Arc<S>,
}

impl<S: Store + ?Sized> Metered<S> {
    /// Counts on `meter` every request that passes through to `inner`. Several stores may share one meter.
    pub fn new(inner: Arc<S>, meter: Meter) -> Metered<S> {
        Metered { meter, inner }
    }

    /// The meter this store counts on.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

/// The counters of a [`Metered`] store. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Meter {
    counters: Arc<Counters>,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default, Debug)]
        struct Counters { $($name: AtomicU64,)* }

        /// The counters at one moment. Subtract an earlier snapshot to get what happened in between.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[non_exhaustive]
        pub struct MeterSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl Meter {
            /// Reads all counters. Each is exact; together they may straddle a request in progress.
            pub fn snapshot(&self) -> MeterSnapshot {
                MeterSnapshot { $($name: self.counters.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Sub for MeterSnapshot {
            type Output = MeterSnapshot;

            fn sub(self, earlier: MeterSnapshot) -> MeterSnapshot {
                MeterSnapshot { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Reads that were not answered "unchanged" (found, absent, failed).
    get,
    /// Reads answered "unchanged".
    get_unchanged,
    /// Writes, whatever the outcome.
    put,
    /// Removals.
    remove,
    /// List pages.
    list_pages,
    /// Bytes of bodies sent.
    bytes_up,
    /// Bytes of bodies received; for lists, the length of the keys.
    bytes_down,
    /// Requests beyond the one that every call makes: reading back while an ETag form is learned.
    extra,
    /// Writes that won.
    won,
    /// Writes whose condition did not hold.
    lost,
    /// Reads, removals and lists that were answered.
    answered,
    /// Requests of unknown outcome.
    unknown,
    /// Requests that the store could not serve at the time.
    unavailable,
    /// Requests the store refused.
    denied,
    /// Calls that the caller dropped before they ended.
    dropped,
}

impl MeterSnapshot {
    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.get + self.get_unchanged + self.put + self.remove + self.list_pages + self.extra
    }

    /// Requests billed as writes: puts and list pages. Removals are free on most stores.
    pub fn write_class(&self) -> u64 {
        self.put + self.list_pages
    }

    /// Requests billed as reads.
    pub fn read_class(&self) -> u64 {
        self.get + self.get_unchanged + self.extra
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Counts a call that never ends as a request too: it went out.
struct Pending<'a> {
    counters: &'a Counters,
    kind: &'a AtomicU64,
    ended: bool,
}

impl<'a> Pending<'a> {
    fn new(counters: &'a Counters, kind: &'a AtomicU64) -> Pending<'a> {
        Pending { counters, kind, ended: false }
    }

    /// The call ended as this kind of request, with `requests` of them on the wire.
    fn end(mut self, kind: &AtomicU64, requests: u64) {
        self.ended = true;
        add(kind, 1);
        add(&self.counters.extra, requests.saturating_sub(1));
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.ended {
            add(self.kind, 1);
            add(&self.counters.dropped, 1);
        }
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Metered<S> {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        let c = &*self.meter.counters;
        let pending = Pending::new(c, &c.get);
        let (read, requests) = tally::counted(self.inner.get(key, unless)).await;
        let kind = match &read {
            Read::Unchanged => &c.get_unchanged,
            Read::Found(_) | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => &c.get,
        };
        pending.end(kind, requests);
        match &read {
            Read::Found(object) => {
                add(&c.bytes_down, object.body.len() as u64);
                add(&c.answered, 1);
            }
            Read::Unchanged | Read::Absent => add(&c.answered, 1),
            Read::Unavailable(_) => add(&c.unavailable, 1),
            Read::Denied(_) => add(&c.denied, 1),
        }
        read
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let c = &*self.meter.counters;
        let pending = Pending::new(c, &c.put);
        add(&c.bytes_up, body.len() as u64);
        let (write, requests) = tally::counted(self.inner.put(key, body, condition)).await;
        pending.end(&c.put, requests);
        match &write {
            Write::Won(_) => add(&c.won, 1),
            Write::Lost => add(&c.lost, 1),
            Write::Unknown(_) => add(&c.unknown, 1),
            Write::Unavailable(_) => add(&c.unavailable, 1),
            Write::Denied(_) => add(&c.denied, 1),
        }
        write
    }

    async fn remove(&self, key: &str) -> Remove {
        let c = &*self.meter.counters;
        let pending = Pending::new(c, &c.remove);
        let (remove, requests) = tally::counted(self.inner.remove(key)).await;
        pending.end(&c.remove, requests);
        match &remove {
            Remove::Done => add(&c.answered, 1),
            Remove::Unknown(_) => add(&c.unknown, 1),
            Remove::Unavailable(_) => add(&c.unavailable, 1),
            Remove::Denied(_) => add(&c.denied, 1),
        }
        remove
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let c = &*self.meter.counters;
        let pending = Pending::new(c, &c.list_pages);
        let (list, requests) = tally::counted(self.inner.list(prefix, limit)).await;
        let pages = match (&list, requests) {
            // There is no wire below, so count what an object store would have needed.
            (List::Entries { entries, .. }, 0) => (entries.len() as u64).div_ceil(PAGE_ENTRIES).max(1),
            (_, requests) => requests.max(1),
        };
        pending.end(&c.list_pages, 1);
        add(&c.list_pages, pages - 1);
        match &list {
            List::Entries { entries, .. } => {
                add(&c.bytes_down, entries.iter().map(|entry| entry.key.len() as u64).sum());
                add(&c.answered, 1);
            }
            List::Unavailable(_) => add(&c.unavailable, 1),
            List::Denied(_) => add(&c.denied, 1),
        }
        list
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn at_once(&self) -> usize {
        self.inner.at_once()
    }

    fn now(&self) -> Option<StoreTime> {
        self.inner.now()
    }

    fn etag_form(&self) -> Option<EtagForm> {
        self.inner.etag_form()
    }
}
