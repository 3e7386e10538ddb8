//! The simulated store: objects by key, their versions, and earlier states.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal, Stamp};
use tenure_core::{
    Expect, HistoryHead, HistoryPart, InboxDoc, JobAnswer, Kept, LedgerDoc, NodeId, Notice, NoticesDoc,
    OnceRecord, OrdersDoc, ProbeAnswer, Seat, SeatProblem, Snapshot, SnapshotId, Version, WorkerDetails,
    WorkerId, WriteAnswer,
};

/// The store's clock has its own origin, far from all others.
const ORIGIN_MS: u64 = 1_000_000_000;
/// How many old records of the seat an operator can restore from.
const BACKUPS_MAX: usize = 12;
/// How many old lists are kept for stale answers.
const LISTS_MAX: usize = 6;
/// The oldest list of workers: one from before a worker's timeout could bring the dead back to life, and no leader could know.
pub(crate) const STALE_MAX_MS: u64 = 1200;

/// The name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Seat,
    Presence(NodeId),
    Worker(WorkerId),
    Snapshot,
    /// One part of the ledger.
    Ledger(usize),
    Inbox(WorkerId),
    /// What is asked of the leader.
    Orders,
    /// The record of work done once for a key.
    Once(u64),
    /// The newest jobs of the history.
    HistoryHead,
    HistoryPart(usize),
    /// An object of the history that is written once.
    Kept(Arc<str>),
    /// Notices that are not delivered yet.
    Notices,
    /// What a receiver of notices took, by the notice's id.
    Told(Arc<str>),
}

/// What can be listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Folder {
    Presences,
    Workers,
    Inboxes,
}

impl Key {
    fn folder(&self) -> Option<Folder> {
        match self {
            Key::Presence(_) => Some(Folder::Presences),
            Key::Worker(_) => Some(Folder::Workers),
            Key::Inbox(_) => Some(Folder::Inboxes),
            Key::Seat | Key::Snapshot | Key::Ledger(_) | Key::Orders | Key::Once(_) => None,
            Key::HistoryHead | Key::HistoryPart(_) | Key::Kept(_) | Key::Notices | Key::Told(_) => None,
        }
    }
}

/// The content of an object.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    /// The seat, and the snapshot of the workers that it names.
    Seat(Seat, Option<SnapshotId>),
    Presence,
    Worker(Stamp, WorkerObject),
    Snapshot(Stamp, Arc<Snapshot>),
    Ledger(Stamp, LedgerDoc),
    Inbox(Stamp, InboxDoc),
    Orders(Stamp, OrdersDoc),
    Once(Stamp, OnceRecord),
    HistoryHead(Stamp, HistoryHead),
    HistoryPart(Stamp, HistoryPart),
    Kept(Kept),
    Notices(Stamp, NoticesDoc),
    Told(Notice),
    /// Nothing that can be read.
    Garbage(SeatProblem),
}

impl Value {
    /// The record, if it is one of the seat.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        if let Value::Seat(seat, _) = self { Some(seat) } else { None }
    }
}

/// What a value is, if it is that.
macro_rules! shown_as {
    ($($name:ident: $variant:ident => $body:ty;)*) => {
        impl Value { $(
            pub(crate) fn $name(&self) -> Option<(Stamp, &$body)> {
                if let Value::$variant(stamp, body) = self { Some((*stamp, body)) } else { None }
            }
        )* }
    };
}

shown_as! {
    worker: Worker => WorkerObject;
    snapshot: Snapshot => Arc<Snapshot>;
    ledger: Ledger => LedgerDoc;
    inbox: Inbox => InboxDoc;
    orders: Orders => OrdersDoc;
    history_head: HistoryHead => HistoryHead;
    history_part: HistoryPart => HistoryPart;
    notices: Notices => NoticesDoc;
    once: Once => OnceRecord;
}

/// What a worker wrote.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WorkerObject {
    pub(crate) heartbeat_ms: u64,
    pub(crate) details: WorkerDetails,
}

/// An object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) value: Arc<Value>,
    pub(crate) version: Version,
    /// The number of the write.
    pub(crate) write: u64,
    /// When it was written, on the store's own clock.
    pub(crate) modified_ms: u64,
    /// When it was written, in true time.
    pub(crate) landed: u64,
    /// An operator put it there.
    pub(crate) by_hand: bool,
}

impl Object {
    /// The record, if it is one of the seat.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.value.seat()
    }
}

/// A request to the store.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Checks whether the store honours conditions.
    Probe,
    Get(Key, Option<Version>),
    /// Without an expectation it replaces whatever is there.
    Put(Key, Arc<Value>, Option<Expect>),
    Remove(Key),
    List(Folder),
}

/// An entry of a list.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) key: Key,
    pub(crate) object: Object,
}

/// What the store said to a request, or what its sender assumes.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Probed(ProbeAnswer),
    Found(Object),
    /// A read that found nothing new.
    NotFound(NotFound),
    Written(WriteAnswer),
    Removed(Removal),
    /// `None` if no list came.
    Listed(Option<Vec<Listed>>),
    /// Said by a dispatcher, not by the store.
    Submitted(Vec<JobAnswer>),
}

/// Why a read has nothing to show.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotFound {
    Unchanged,
    Absent,
    Unavailable,
    Denied,
}

impl Op {
    /// What to assume when no answer came.
    pub(crate) fn unanswered(&self) -> Said {
        match self {
            Op::Put(..) => Said::Written(WriteAnswer::Unknown),
            Op::Probe | Op::Get(..) | Op::Remove(_) | Op::List(_) => self.refused(false),
        }
    }

    /// A definite no, without effect.
    pub(crate) fn refused(&self, denied: bool) -> Said {
        match (self, denied) {
            (Op::Probe, true) => Said::Probed(ProbeAnswer::Denied),
            (Op::Probe, false) => Said::Probed(ProbeAnswer::Unavailable),
            (Op::Get(..), true) => Said::NotFound(NotFound::Denied),
            (Op::Get(..), false) => Said::NotFound(NotFound::Unavailable),
            (Op::Put(..), true) => Said::Written(WriteAnswer::Denied),
            (Op::Put(..), false) => Said::Written(WriteAnswer::Unavailable),
            (Op::Remove(_), _) => Said::Removed(Removal::Unknown),
            (Op::List(_), _) => Said::Listed(None),
        }
    }

    /// The request for a document, whose content is made by `value`.
    pub(crate) fn document<T>(
        key: Key,
        request: &DocumentRequest<T>,
        value: impl FnOnce(Stamp, &T) -> Value,
    ) -> Op {
        match request {
            DocumentRequest::Read { unless } => Op::Get(key, unless.clone()),
            DocumentRequest::Write { stamp, body, expect } => {
                Op::Put(key, Arc::new(value(*stamp, body)), Some(expect.clone()))
            }
            DocumentRequest::Remove => Op::Remove(key),
        }
    }

    /// A broken caller: the same write, whatever is there.
    #[must_use]
    pub(crate) fn unconditional(self) -> Op {
        match self {
            Op::Put(key, value, _) => Op::Put(key, value, None),
            Op::Probe | Op::Get(..) | Op::Remove(_) | Op::List(_) => self,
        }
    }
}

impl Said {
    /// The answer to a request for a document, whose content is shown by `body`.
    pub(crate) fn document<T>(self, body: impl FnOnce(&Value) -> Option<(Stamp, T)>) -> DocumentAnswer<T> {
        match self {
            Said::Found(Object { value, version, .. }) => DocumentAnswer::Read(match body(&value) {
                Some((stamp, body)) => Read::Found { stamp, body, version },
                None => Read::Unreadable { version, newer: false },
            }),
            Said::NotFound(why) => DocumentAnswer::Read(match why {
                NotFound::Unchanged => Read::Unchanged,
                NotFound::Absent => Read::Absent,
                NotFound::Unavailable => Read::Unavailable,
                NotFound::Denied => Read::Denied,
            }),
            Said::Written(answer) => DocumentAnswer::Written(answer),
            Said::Removed(removal) => DocumentAnswer::Removed(removal),
            Said::Probed(_) | Said::Listed(_) | Said::Submitted(_) => DocumentAnswer::Read(Read::Unavailable),
        }
    }
}

/// The store.
#[derive(Default)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Object>,
    /// Ignores conditions, which a probe finds out.
    pub(crate) ignores_conditions: bool,
    /// How far apart the clocks of its servers are.
    pub(crate) skew_ms: u64,
    /// Records of the seat.
    pub(crate) backups: VecDeque<Object>,
    /// By folder: until when a list was true, and what it showed.
    lists: BTreeMap<Folder, VecDeque<(u64, Vec<Listed>)>>,
    writes: u64,
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    pub(crate) fn seat(&self) -> Option<&Object> {
        self.objects.get(&Key::Seat)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.objects.iter()
    }

    pub(crate) fn read(&self, key: &Key, unless: Option<&Version>) -> Said {
        match self.objects.get(key) {
            None => Said::NotFound(NotFound::Absent),
            Some(object) if Some(&object.version) == unless => Said::NotFound(NotFound::Unchanged),
            Some(object) => Said::Found(object.clone()),
        }
    }

    pub(crate) fn probe(&self) -> ProbeAnswer {
        if self.ignores_conditions { ProbeAnswer::Unsafe } else { ProbeAnswer::Safe }
    }

    /// Whether a write on this condition takes effect.
    pub(crate) fn holds(&self, key: &Key, expect: Option<&Expect>) -> bool {
        let there = self.objects.get(key).map(|object| &object.version);
        match expect {
            _ if self.ignores_conditions => true,
            None => true,
            Some(Expect::Absent) => there.is_none(),
            Some(Expect::Version(version)) => there == Some(version),
        }
    }

    /// Stores an object, and returns its version and what was there before.
    pub(crate) fn put(
        &mut self,
        now: u64,
        key: Key,
        value: Arc<Value>,
        by_hand: bool,
    ) -> (Version, Option<Object>) {
        self.remember_list(now, &key);
        self.writes += 1;
        let version = Version::new(&format!("v{}", self.writes));
        // The time on whichever server handled the write.
        let server = self.writes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let skew_ms = if self.skew_ms == 0 { 0 } else { server % self.skew_ms };
        let object = Object {
            value,
            version: version.clone(),
            write: self.writes,
            modified_ms: ORIGIN_MS + now + skew_ms,
            landed: now,
            by_hand,
        };
        if object.seat().is_some() {
            if self.backups.len() == BACKUPS_MAX {
                self.backups.pop_front();
            }
            self.backups.push_back(object.clone());
        }
        (version, self.objects.insert(key, object))
    }

    /// Puts an earlier record of the seat back, under its version.
    pub(crate) fn restore_seat(&mut self, object: Object) {
        self.objects.insert(Key::Seat, object);
    }

    pub(crate) fn remove(&mut self, now: u64, key: &Key) -> Option<Object> {
        self.remember_list(now, key);
        self.objects.remove(key)
    }

    fn remember_list(&mut self, now: u64, key: &Key) {
        let Some(folder) = key.folder() else { return };
        let list = self.entries(folder);
        let lists = self.lists.entry(folder).or_default();
        if lists.len() == LISTS_MAX {
            lists.pop_front();
        }
        lists.push_back((now, list));
    }

    fn entries(&self, folder: Folder) -> Vec<Listed> {
        let inside = self.objects.iter().filter(|(key, _)| key.folder() == Some(folder));
        inside.map(|(key, object)| Listed { key: key.clone(), object: object.clone() }).collect()
    }

    /// A list, or an old one, and the time from which it may be untrue.
    pub(crate) fn list(&self, now: u64, folder: Folder, stale: Option<usize>) -> (u64, Vec<Listed>) {
        let lists = self.lists.get(&folder);
        let old = stale.and_then(|back| lists?.iter().rev().nth(back));
        let old = old.filter(|(until, _)| folder != Folder::Workers || *until + STALE_MAX_MS >= now);
        old.cloned().unwrap_or_else(|| (now, self.entries(folder)))
    }
}
