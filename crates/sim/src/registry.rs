//! The workers' part of the simulated store: their objects, the snapshot, and old lists.

use crate::store::SimStore;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tenure_core::WorkerId;
use tenure_core::document::{Read, Stamp};
use tenure_core::{Expect, Listed, ReadOutcome, RegisteredBy, Snapshot, Version, WorkerDetails, WriteAnswer};

/// How many old lists are kept for stale answers.
const LISTS_MAX: usize = 6;
/// The oldest list returned: one from before a worker's timeout could bring the dead back to life, and the roll cannot know.
pub(crate) const STALE_MAX_MS: u64 = 1200;
/// The size of a worker's document; junk has a different size.
const BYTES: u64 = 240;

/// What a worker wrote.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) stamp: Stamp,
    pub(crate) heartbeat_ms: u64,
    pub(crate) details: WorkerDetails,
}

/// An object in `workers/`.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    version: u64,
    modified_ms: u64,
    /// When it landed, in true time.
    pub(crate) landed: u64,
    /// `None` if it is not a worker.
    pub(crate) written: Option<Written>,
}

/// The snapshot's object: its writer and content; `None` if it cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) version: u64,
    pub(crate) content: Option<(Arc<Snapshot>, Stamp)>,
}

/// The workers' objects and the snapshot.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) objects: BTreeMap<WorkerId, Object>,
    pub(crate) snapshot: Option<Published>,
    lists: VecDeque<(u64, Vec<Listed>)>,
    versions: u64,
}

fn version(number: u64) -> Version {
    Version::new(&format!("w{number}"))
}

impl Registry {
    /// Stores an object, replacing any other.
    pub(crate) fn put(
        &mut self,
        store: &SimStore,
        now: u64,
        worker: &WorkerId,
        written: Option<Written>,
    ) -> Version {
        self.remember(now);
        self.versions += 1;
        // Two writes with the same time are not modelled: the next heartbeat would tell them apart.
        let modified_ms = store.time_of(now, self.versions) << 20 | self.versions & 0xf_ffff;
        let object = Object { version: self.versions, modified_ms, landed: now, written };
        self.objects.insert(worker.clone(), object);
        version(self.versions)
    }

    pub(crate) fn write(
        &mut self,
        store: &SimStore,
        now: u64,
        worker: &WorkerId,
        written: Written,
        expect: &Expect,
    ) -> WriteAnswer {
        match self.holds(worker, expect) {
            true => WriteAnswer::Won(self.put(store, now, worker, Some(written))),
            false => WriteAnswer::Lost,
        }
    }

    pub(crate) fn holds(&self, worker: &WorkerId, expect: &Expect) -> bool {
        match (expect, self.objects.get(worker)) {
            (Expect::Absent, found) => found.is_none(),
            (Expect::Version(wanted), found) => {
                found.is_some_and(|object| version(object.version) == *wanted)
            }
        }
    }

    pub(crate) fn read(&self, worker: &WorkerId, unless: Option<&Version>) -> Read<RegisteredBy> {
        let Some(object) = self.objects.get(worker) else { return Read::Absent };
        let version = version(object.version);
        if Some(&version) == unless {
            return Read::Unchanged;
        }
        match &object.written {
            None => Read::Unreadable { version, newer: false },
            Some(Written { stamp, heartbeat_ms, details }) => {
                let pod = details.pod.clone();
                let body = RegisteredBy { pod, heartbeat_ms: *heartbeat_ms, beats: 0 };
                Read::Found { stamp: *stamp, body, version }
            }
        }
    }

    /// The object as the leader reads it.
    pub(crate) fn details(&self, worker: &WorkerId) -> ReadOutcome {
        match self.objects.get(worker) {
            None => ReadOutcome::Nothing,
            Some(Object { written: None, .. }) => ReadOutcome::Corrupt,
            Some(Object { written: Some(written), .. }) => ReadOutcome::Found(written.details.clone()),
        }
    }

    pub(crate) fn remove(&mut self, now: u64, worker: &WorkerId) {
        self.remember(now);
        self.objects.remove(worker);
    }

    fn remember(&mut self, now: u64) {
        if self.lists.len() == LISTS_MAX {
            self.lists.pop_front();
        }
        let list = self.entries();
        self.lists.push_back((now, list));
    }

    fn entries(&self) -> Vec<Listed> {
        let entry = |(worker, object): (&WorkerId, &Object)| Listed {
            worker: worker.clone(),
            modified_ms: object.modified_ms,
            bytes: if object.written.is_some() { BYTES } else { BYTES / 2 },
        };
        self.objects.iter().map(entry).collect()
    }

    /// The objects, or an old list of them, and the time from which that may be untrue.
    pub(crate) fn list(&self, now: u64, stale: Option<usize>) -> (u64, Vec<Listed>) {
        let old = stale.and_then(|back| self.lists.iter().rev().nth(back)).cloned();
        let old = old.filter(|(until, _)| *until + STALE_MAX_MS >= now);
        old.unwrap_or_else(|| (now, self.entries()))
    }

    /// Publishes if the stored version matches, or if nothing is stored and nothing is expected; always if unconditional.
    pub(crate) fn publish(
        &mut self,
        expect: Option<&Expect>,
        content: Option<(Arc<Snapshot>, Stamp)>,
    ) -> Option<Version> {
        let there = match &self.snapshot {
            Some(published) => Expect::Version(version(published.version)),
            None => Expect::Absent,
        };
        if expect.is_some_and(|expect| *expect != there) {
            return None;
        }
        self.versions += 1;
        self.snapshot = Some(Published { version: self.versions, content });
        Some(version(self.versions))
    }

    pub(crate) fn read_snapshot(&self, unless: Option<&Version>) -> Read<Arc<Snapshot>> {
        let Some(there) = &self.snapshot else { return Read::Absent };
        let version = version(there.version);
        match &there.content {
            _ if Some(&version) == unless => Read::Unchanged,
            None => Read::Unreadable { version, newer: false },
            Some((snapshot, stamp)) => Read::Found { stamp: *stamp, body: Arc::clone(snapshot), version },
        }
    }
}
