//! The jobs' part of the simulated store: the ledger, the inboxes, and old lists.

use std::collections::{BTreeMap, VecDeque};
use tenure_core::WorkerId;
use tenure_core::{ClaimerRead, Expect, InboxDoc, InboxListed, InboxRead, LedgerDoc, LedgerRead, Version};

/// How many old lists are kept for stale answers.
const LISTS_MAX: usize = 6;

/// Ledger and inboxes, each with its version.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) ledgers: BTreeMap<usize, (LedgerDoc, u64)>,
    pub(crate) inboxes: BTreeMap<WorkerId, (InboxDoc, u64)>,
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

impl Shelf {
    pub(crate) fn ledger_holds(&self, shard: usize, expect: &Expect) -> bool {
        holds(self.ledgers.get(&shard).map(|(_, number)| *number), expect)
    }

    pub(crate) fn inbox_holds(&self, worker: &WorkerId, expect: &Expect) -> bool {
        holds(self.inboxes.get(worker).map(|(_, number)| *number), expect)
    }

    pub(crate) fn put_ledger(&mut self, shard: usize, doc: LedgerDoc) -> Version {
        self.versions += 1;
        self.ledgers.insert(shard, (doc, self.versions));
        version(self.versions)
    }

    pub(crate) fn put_inbox(&mut self, worker: &WorkerId, doc: InboxDoc) -> Version {
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

    pub(crate) fn ledger(&self, shard: usize) -> LedgerRead {
        match self.ledgers.get(&shard) {
            Some((doc, number)) => LedgerRead::Found(doc.clone(), version(*number)),
            None => LedgerRead::Absent,
        }
    }

    pub(crate) fn inbox(&self, worker: &WorkerId, unless: Option<&Version>) -> InboxRead {
        match self.inboxes.get(worker).map(|(doc, number)| (doc, version(*number))) {
            None => InboxRead::Absent,
            Some((_, version)) if Some(&version) == unless => InboxRead::Unchanged,
            Some((doc, version)) => InboxRead::Found(doc.clone(), version),
        }
    }

    /// The inbox as its worker reads it; the worker itself applies the fence.
    pub(crate) fn own_inbox(&self, worker: &WorkerId, unless: Option<&Version>) -> ClaimerRead {
        match self.inbox(worker, unless) {
            InboxRead::Found(doc, version) => ClaimerRead::Found { doc, version, fenced: Default::default() },
            InboxRead::Unchanged => ClaimerRead::Unchanged,
            InboxRead::Absent => ClaimerRead::Absent,
            InboxRead::Unreadable => ClaimerRead::Unreadable,
            InboxRead::Unavailable => ClaimerRead::Unavailable,
        }
    }

    fn entries(&self) -> Vec<InboxListed> {
        let entry = |(worker, (_, number)): (&WorkerId, &(InboxDoc, u64))| InboxListed {
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
