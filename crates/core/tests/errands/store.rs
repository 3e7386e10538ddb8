//! The store: it loses answers, lets writes land late and shows the past.

use super::{Asked, Doc, Key, Who, World, Write, incarnation, name};
use rand::RngExt;
use tenure_core::WorkerId;
use tenure_core::{
    ClaimerInput, ClaimerRead, DispatchInput, DispatchRequest, EntryState, Epoch, Expect, InboxListed,
    InboxRead, LedgerRead, RequestId, Version, WriteAnswer,
};

impl World {
    fn expect_holds(&self, key: &Key, expect: &Expect) -> bool {
        match (expect, self.objects.get(key)) {
            (Expect::Absent, found) => found.is_none(),
            (Expect::Version(version), Some((_, number))) => version.as_str() == number.to_string(),
            (Expect::Version(_), None) => false,
        }
    }

    pub(super) fn land(&mut self, write: Write) -> Option<Version> {
        if !self.expect_holds(&write.key, &write.expect) {
            return None;
        }
        let before = self.objects.get(&write.key).map(|(doc, _)| doc.clone());
        self.mind_successors(before.as_ref(), &write);
        self.book.landed(&write.key, before.as_ref(), &write.doc, write.by);
        self.versions += 1;
        self.objects.insert(write.key, (write.doc, self.versions));
        Some(Version::new(&self.versions.to_string()))
    }

    /// What the life that has the id has claimed, no other life of the worker may write off.
    fn mind_successors(&mut self, before: Option<&Doc>, write: &Write) {
        let Who::Worker(worker, life) = write.by else { return };
        let (Some(Doc::Inbox(before)), Doc::Inbox(after)) = (before, &write.doc) else { return };
        let present = self.hands[worker].life;
        if life == present {
            return;
        }
        for entry in &before.entries {
            let (EntryState::Acked { by } | EntryState::Running { by }) = entry.state else { continue };
            let now = after.entries.iter().find(|after| after.key() == entry.key()).map(|after| &after.state);
            let over = matches!(now, Some(EntryState::Finished { .. }) | None);
            if by == incarnation(worker, present) && over {
                let what = format!("life {life} of w{worker} wrote off {} of life {present}", entry.id);
                self.book.violations.push(what);
            }
        }
    }

    fn write(&mut self, write: Write) -> WriteAnswer {
        let fate = if self.quiet { 0 } else { self.rng.random_range(0..100) };
        match fate {
            0..60 => self.land(write).map_or(WriteAnswer::Lost, WriteAnswer::Won),
            60..72 => {
                self.land(write);
                WriteAnswer::Unknown
            }
            72..80 => WriteAnswer::Unknown,
            80..93 => {
                self.air.push(write);
                WriteAnswer::Unknown
            }
            _ => WriteAnswer::Unavailable,
        }
    }

    fn silent(&mut self) -> bool {
        !self.quiet && self.rng.random_bool(0.1)
    }

    pub(super) fn serve(&mut self, asked: Asked) {
        match asked {
            Asked::Leader(leader, id, request) => {
                let input = self.answer(leader, id, request);
                self.lead(leader, input);
            }
            Asked::Claimer(worker, life, id, write, unless) => {
                let key = Key::Inbox(name(&format!("w{worker}")));
                let input = match write {
                    Some((doc, version)) => {
                        let (expect, by) = (Expect::Version(version), Who::Worker(worker, life));
                        let write = Write { key, doc: Doc::Inbox(doc), expect, by };
                        ClaimerInput::Written(id, self.write(write))
                    }
                    None => match self.at(worker, life) {
                        Some(at) => ClaimerInput::Read(id, self.look(at, &key, unless.as_ref())),
                        None => return,
                    },
                };
                if let Some(at) = self.at(worker, life) {
                    self.work(at, input);
                }
            }
            Asked::Confirm(worker, life, id) => {
                let mine = !self.silent() && self.hands[worker].life == life;
                if let Some(at) = self.at(worker, life) {
                    self.work(at, ClaimerInput::Confirmed(id, mine));
                }
            }
        }
    }

    fn look(&mut self, at: usize, key: &Key, unless: Option<&Version>) -> ClaimerRead {
        if self.silent() {
            return ClaimerRead::Unavailable;
        }
        let heard = !self.quiet && self.rng.random_bool(0.6);
        let newest = Epoch(self.leaders.len() as u64);
        let hand = &mut self.hands[at];
        if heard {
            hand.known = newest;
        }
        let Some((Doc::Inbox(doc), number)) = self.objects.get(key) else { return ClaimerRead::Absent };
        let version = Version::new(&number.to_string());
        if unless == Some(&version) {
            return ClaimerRead::Unchanged;
        }
        let unclaimed = doc.entries.iter().filter(|entry| entry.state == EntryState::Dispatched);
        let fenced = unclaimed.filter(|entry| entry.epoch < hand.known).map(|entry| entry.key()).collect();
        ClaimerRead::Found { doc: doc.clone(), version, fenced }
    }

    fn answer(&mut self, leader: usize, id: RequestId, request: DispatchRequest) -> DispatchInput {
        let by = Who::Leader(leader);
        match request {
            DispatchRequest::WriteLedger(shard, doc, expect) => {
                let write = Write { key: Key::Ledger(shard), doc: Doc::Ledger(doc), expect, by };
                DispatchInput::LedgerWritten(id, shard, self.write(write))
            }
            DispatchRequest::WriteInbox(worker, doc, expect) => {
                let write = Write { key: Key::Inbox(worker.clone()), doc: Doc::Inbox(doc), expect, by };
                DispatchInput::InboxWritten(id, worker, self.write(write))
            }
            read if self.silent() => read.unanswered(id),
            DispatchRequest::ReadLedger(shard) => {
                let found = self.objects.get(&Key::Ledger(shard));
                DispatchInput::Ledger(
                    id,
                    shard,
                    match found {
                        Some((Doc::Ledger(doc), number)) => {
                            LedgerRead::Found(doc.clone(), Version::new(&number.to_string()))
                        }
                        Some((Doc::Inbox(_), _)) | None => LedgerRead::Absent,
                    },
                )
            }
            DispatchRequest::ReadInbox(worker, unless) => {
                let found = self.objects.get(&Key::Inbox(worker.clone()));
                let read = match found {
                    Some((Doc::Inbox(doc), number)) => {
                        let version = Version::new(&number.to_string());
                        if unless.as_ref() == Some(&version) {
                            InboxRead::Unchanged
                        } else {
                            InboxRead::Found(doc.clone(), version)
                        }
                    }
                    Some((Doc::Ledger(_), _)) | None => InboxRead::Absent,
                };
                DispatchInput::Inbox(id, worker, read)
            }
            DispatchRequest::ListInboxes => {
                let lines = self.objects.iter().filter_map(|(key, (_, number))| match key {
                    Key::Inbox(worker) => Some(InboxListed {
                        worker: worker.clone(),
                        version: Some(Version::new(&number.to_string())),
                        stamp: (*number, 0),
                    }),
                    Key::Ledger(_) => None,
                });
                DispatchInput::Listed(id, Some(lines.collect()))
            }
            DispatchRequest::RemoveInbox(worker) => {
                // The guard is asked right before: only the present leader gets this far.
                let present = leader + 1 == self.leaders.len();
                if present {
                    self.remove(&worker);
                }
                DispatchInput::InboxRemoved(id, worker, present && (self.quiet || self.rng.random_bool(0.8)))
            }
            DispatchRequest::Archive(shard, records) => {
                self.book.archived(&records);
                DispatchInput::Archived(id, shard, true)
            }
        }
    }

    /// What was sent to this inbox before is not under way any more: nothing is, for as long as a removal waits. Whoever sent it
    /// has given it up.
    fn remove(&mut self, worker: &WorkerId) {
        let key = Key::Inbox(worker.clone());
        if let Some((Doc::Inbox(doc), _)) = self.objects.remove(&key) {
            self.book.removed(worker, &doc);
        }
        self.air.retain(|write| write.key != key);
        let under_way = |asked: &mut Asked| match asked {
            Asked::Leader(_, _, DispatchRequest::WriteInbox(to, ..)) => to == worker,
            Asked::Leader(..) => false,
            Asked::Claimer(at, _, _, write, _) => write.is_some() && *worker == name(&format!("w{at}")),
            Asked::Confirm(..) => false,
        };
        let given_up: Vec<Asked> = self.asked.extract_if(.., under_way).collect();
        for asked in given_up {
            match asked {
                Asked::Leader(leader, id, request) => self.lead(leader, request.unanswered(id)),
                Asked::Claimer(worker, life, id, ..) => {
                    if let Some(at) = self.at(worker, life) {
                        self.work(at, ClaimerInput::Written(id, WriteAnswer::Unknown));
                    }
                }
                Asked::Confirm(..) => {}
            }
        }
    }
}
