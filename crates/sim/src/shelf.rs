//! The jobs' part of the simulated store: the ledger, the inboxes, and old lists.

use std::collections::{BTreeMap, VecDeque};
use tenure_core::document::{Read, Stamp};
use tenure_core::{Expect, InboxDoc, InboxListed, LedgerDoc, Version, WorkerId};

/// How many old lists are kept for stale answers.
const LISTS_MAX: usize = 6;

/// A document with its envelope.
pub(crate) type Stored<T> = (Stamp, T);

/// Ledger and inboxes, each with its version.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) ledgers: BTreeMap<usize, (Stored<LedgerDoc>, u64)>,
    pub(crate) inboxes: BTreeMap<WorkerId, (Stored<InboxDoc>, u64)>,
    lists: VecDeque<Vec<InboxListed>>,
    versions: u64,
}

fn version(number: u64) -> Version {
    Version::new(&format!("t{number}"))
}

fn holds(there: Option<u64>, expect: &Expect) -> bool {
    match (expect, there) {
        (Expect::Absent, there) => there.is_none(),
        (Expect::Version(wanted), there) => there.is_some_and(|number| version(number) == *wanted),
    }
}

fn read<T: Clone>(there: Option<&(Stored<T>, u64)>, unless: Option<&Version>) -> Read<T> {
    let Some(((stamp, body), number)) = there else { return Read::Absent };
    let version = version(*number);
    match unless == Some(&version) {
        true => Read::Unchanged,
        false => Read::Found { stamp: *stamp, body: body.clone(), version },
    }
}

impl Shelf {
    pub(crate) fn ledger_holds(&self, shard: usize, expect: &Expect) -> bool {
        holds(self.ledgers.get(&shard).map(|(_, number)| *number), expect)
    }

    pub(crate) fn inbox_holds(&self, worker: &WorkerId, expect: &Expect) -> bool {
        holds(self.inboxes.get(worker).map(|(_, number)| *number), expect)
    }

    pub(crate) fn put_ledger(&mut self, shard: usize, doc: Stored<LedgerDoc>) -> Version {
        self.versions += 1;
        self.ledgers.insert(shard, (doc, self.versions));
        version(self.versions)
    }

    pub(crate) fn put_inbox(&mut self, worker: &WorkerId, doc: Stored<InboxDoc>) -> Version {
        if self.lists.len() == LISTS_MAX {
            self.lists.pop_front();
        }
        let list = self.entries();
        self.lists.push_back(list);
        self.versions += 1;
        self.inboxes.insert(worker.clone(), (doc, self.versions));
        version(self.versions)
    }

    pub(crate) fn remove_inbox(&mut self, worker: &WorkerId) {
        self.inboxes.remove(worker);
    }

    pub(crate) fn ledger(&self, part: usize, unless: Option<&Version>) -> Read<LedgerDoc> {
        read(self.ledgers.get(&part), unless)
    }

    pub(crate) fn inbox(&self, worker: &WorkerId, unless: Option<&Version>) -> Read<InboxDoc> {
        read(self.inboxes.get(worker), unless)
    }

    fn entries(&self) -> Vec<InboxListed> {
        let entry = |(worker, (_, number)): (&WorkerId, &(Stored<InboxDoc>, u64))| InboxListed {
            worker: worker.clone(),
            version: Some(version(*number)),
            stamp: (*number, 1),
        };
        self.inboxes.iter().map(entry).collect()
    }

    /// The inboxes, or an old list of them.
    pub(crate) fn list(&self, stale: Option<usize>) -> Vec<InboxListed> {
        let old = stale.and_then(|back| self.lists.iter().rev().nth(back)).cloned();
        old.unwrap_or_else(|| self.entries())
    }
}
