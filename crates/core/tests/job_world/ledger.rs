//! The judge: sees every write that takes effect and every run, and knows no machine.

use super::{Doc, ENTRIES_MAX, Key, Who};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::document::Stamp;
use tenure_core::{EntryState, InboxDoc, JobRecord, JobState, JobUpdate, LedgerDoc};
use tenure_core::{JobId, WorkerId};

#[derive(Default)]
pub(crate) struct LedgerCheck {
    pub(crate) violations: Vec<String>,
    pub(crate) runs: BTreeMap<(JobId, u32), usize>,
    pub(crate) archived: BTreeSet<JobId>,
    pub(crate) removed: usize,
    /// The ledger on the store.
    records: BTreeMap<JobId, JobRecord>,
    /// Attempts that the ledger says were never begun.
    unbegun: BTreeSet<(JobId, u32)>,
    told: BTreeMap<JobId, JobState>,
    /// The final states, archived ones included.
    finals: BTreeMap<JobId, JobState>,
}

impl LedgerCheck {
    fn wrong(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(crate) fn final_states(&self) -> impl Iterator<Item = JobState> {
        self.finals.values().copied()
    }

    pub(crate) fn ran(&mut self, id: &JobId, attempt: u32) {
        let count = self.runs.entry((id.clone(), attempt)).or_insert(0);
        *count += 1;
        if *count > 1 {
            self.wrong(format!("{id} attempt {attempt} was run twice"));
        }
        if self.unbegun.contains(&(id.clone(), attempt)) {
            self.wrong(format!("{id} attempt {attempt} was withdrawn unclaimed, and run"));
        }
        let begun = self.runs.keys().filter(|(job, _)| job == id).count();
        if begun > 3 {
            self.wrong(format!("{id} was begun {begun} times, 3 are allowed"));
        }
        if self.finals.contains_key(id) && self.records.get(id).is_none_or(|r| r.attempt != attempt) {
            // It may still run what it claimed; but nothing new is given out.
            let known = self.records.get(id).is_none_or(|record| attempt > record.attempt);
            if known && !self.archived.contains(id) {
                self.wrong(format!("{id} attempt {attempt} began after its end"));
            }
        }
    }

    pub(crate) fn archived(&mut self, records: &[JobRecord]) {
        for record in records {
            if !record.state.is_final() {
                self.wrong(format!("{} was archived as {:?}", record.id, record.state));
            }
            self.archived.insert(record.id.clone());
        }
    }

    pub(crate) fn removed(&mut self, worker: &WorkerId, doc: &InboxDoc) {
        self.removed += 1;
        if !doc.entries.is_empty() {
            self.wrong(format!("the inbox of {worker} was removed with {:?}", doc.entries));
        }
    }

    pub(crate) fn update(&mut self, update: &JobUpdate) {
        if update.late.is_some() || !update.state.is_final() {
            return;
        }
        if let Some(before) = self.told.insert(update.id.clone(), update.state)
            && before != update.state
        {
            self.wrong(format!("{} was told as {before:?} and as {:?}", update.id, update.state));
        }
    }

    pub(crate) fn landed(
        &mut self,
        key: &Key,
        before: Option<&(Stamp, Doc, u64)>,
        stamp: Stamp,
        after: &Doc,
        by: Who,
    ) {
        if before.is_some_and(|(before, ..)| before.epoch > stamp.epoch) {
            self.wrong(format!("{key:?}: {:?} wrote over a newer one", stamp.epoch));
        }
        let before = before.map(|(_, doc, _)| doc);
        match (key, before, after) {
            (Key::Ledger(_), before, Doc::Ledger(after)) => {
                let before = match before {
                    Some(Doc::Ledger(before)) => Some(before),
                    Some(Doc::Inbox(_)) | None => None,
                };
                self.ledger(before, after);
            }
            (Key::Inbox(worker), before, Doc::Inbox(after)) => {
                let before = match before {
                    Some(Doc::Inbox(before)) => Some(before),
                    Some(Doc::Ledger(_)) | None => None,
                };
                self.inbox(worker, before, after, by);
            }
            (Key::Ledger(_), _, Doc::Inbox(_)) | (Key::Inbox(_), _, Doc::Ledger(_)) => {
                self.wrong("a document under another's key".to_owned());
            }
        }
    }

    fn ledger(&mut self, before: Option<&LedgerDoc>, after: &LedgerDoc) {
        for old in before.map_or(&[][..], |before| &before.jobs) {
            let kept = after.jobs.iter().any(|new| new.id == old.id);
            let over = old.state.is_final() && self.archived.contains(&old.id);
            if !kept && !over {
                self.wrong(format!("{} left the ledger as {:?}", old.id, old.state));
            }
            if !kept {
                self.records.remove(&old.id);
            }
        }
        for new in &after.jobs {
            self.record(new);
        }
    }

    fn record(&mut self, new: &JobRecord) {
        let id = &new.id;
        if let Some(ended) = self.finals.get(id)
            && *ended != new.state
        {
            let ended = *ended;
            self.wrong(format!("{id} ended as {ended:?} and became {:?}", new.state));
        }
        let old = self.records.insert(id.clone(), new.clone());
        if new.state.is_final() {
            self.finals.insert(id.clone(), new.state);
            if old.as_ref().is_some_and(|old| old.state.is_final() && old.result != new.result) {
                self.wrong(format!("{id}: a second result was applied"));
            }
        }
        let done = matches!(new.state, JobState::Succeeded | JobState::Partial);
        let own = format!("{id}/{}", new.attempt);
        if done && *new.result != *own.as_bytes() {
            let result = String::from_utf8_lossy(&new.result).into_owned();
            self.wrong(format!("{id}: the result applied is {result:?}, attempt {}", new.attempt));
        }
        // Exactly one attempt was declared unbegun by this write: it must never have run, nor ever run.
        let (attempt, unbegun) = old.map_or((0, 0), |old| (old.attempt, old.unbegun));
        if new.unbegun == unbegun + 1 && new.attempt.saturating_sub(attempt) <= 1 {
            let which = if new.attempt > attempt && !new.state.is_out() { new.attempt } else { attempt };
            if which > 0 {
                self.unbegun.insert((id.clone(), which));
                if self.runs.contains_key(&(id.clone(), which)) {
                    self.wrong(format!("{id} attempt {which} is said not to have begun, and ran"));
                }
            }
        }
    }

    fn inbox(&mut self, worker: &WorkerId, before: Option<&InboxDoc>, after: &InboxDoc, by: Who) {
        if after.entries.len() > ENTRIES_MAX {
            self.wrong(format!("{} entries in the inbox of {worker}", after.entries.len()));
        }
        let closed = before.and_then(|before| before.closed);
        if matches!(by, Who::Leader(_)) && after.closed != closed {
            self.wrong(format!("a leader changed who has closed the inbox of {worker}"));
        }
        let had = |id: &JobId, attempt: u32| {
            before.is_some_and(|doc| doc.entries.iter().any(|e| e.id == *id && e.attempt == attempt))
        };
        for entry in &after.entries {
            if had(&entry.id, entry.attempt) {
                continue;
            }
            match by {
                Who::Worker(..) => self.wrong(format!("{worker} gave itself {}", entry.id)),
                Who::Leader(_) => {
                    if closed.is_some() {
                        self.wrong(format!("{} was dispatched to {worker}, which drains", entry.id));
                    }
                    // Whoever leads next must be able to find it.
                    let known = self.records.get(&entry.id).is_some_and(|record| {
                        record.attempt == entry.attempt
                            && record.worker.as_ref() == Some(worker)
                            && record.state.is_out()
                    });
                    if !known && entry.state == EntryState::Dispatched {
                        let (id, attempt) = (&entry.id, entry.attempt);
                        self.wrong(format!("{id} attempt {attempt} was dispatched past the ledger"));
                    }
                }
            }
        }
    }

    pub(crate) fn must_be_over(
        &mut self,
        created: &BTreeSet<JobId>,
        objects: &BTreeMap<Key, (Stamp, Doc, u64)>,
    ) {
        for id in created {
            if !self.records.contains_key(id) && !self.archived.contains(id) {
                self.wrong(format!("{id} was created and is nowhere"));
            }
        }
        let open: Vec<String> = self
            .records
            .values()
            .filter(|record| !record.state.is_final())
            .map(|r| format!("{} is still {:?} (attempt {}): {}", r.id, r.state, r.attempt, r.reason))
            .collect();
        self.violations.extend(open);
        for (key, (_, doc, _)) in objects {
            if let Doc::Inbox(doc) = doc {
                for entry in &doc.entries {
                    if !matches!(entry.state, EntryState::Finished { .. }) {
                        self.violations.push(format!(
                            "{key:?} still has {:?} {:?}",
                            entry.key(),
                            entry.state
                        ));
                    }
                }
            }
        }
    }
}
