//! The store: it loses answers, lets writes land late and shows the past.

use super::{Asked, Doc, Key, Who, World, Write, incarnation, name};
use rand::RngExt;
use std::collections::BTreeSet;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal};
use tenure_core::machine::{Input, Request};
use tenure_core::{
    ClaimerAnswer, ClaimerRequest, DispatchAnswer, DispatchRequest, EntryState, Epoch, Expect, InboxDoc,
    InboxListed, LedgerDoc, Refused, Version, WorkerId, WriteAnswer,
};

/// A document of one kind among all.
trait Kind: Clone {
    fn wrap(self) -> Doc;
    fn unwrap(doc: &Doc) -> Option<&Self>;
}

impl Kind for LedgerDoc {
    fn wrap(self) -> Doc {
        Doc::Ledger(self)
    }

    fn unwrap(doc: &Doc) -> Option<&LedgerDoc> {
        if let Doc::Ledger(doc) = doc { Some(doc) } else { None }
    }
}

impl Kind for InboxDoc {
    fn wrap(self) -> Doc {
        Doc::Inbox(self)
    }

    fn unwrap(doc: &Doc) -> Option<&InboxDoc> {
        if let Doc::Inbox(doc) = doc { Some(doc) } else { None }
    }
}

impl World {
    fn expect_holds(&self, key: &Key, expect: &Expect) -> bool {
        match (expect, self.objects.get(key)) {
            (Expect::Absent, found) => found.is_none(),
            (Expect::Version(version), Some((_, _, number))) => version.as_str() == number.to_string(),
            (Expect::Version(_), None) => false,
        }
    }

    pub(super) fn land(&mut self, write: Write) -> Option<Version> {
        if !self.expect_holds(&write.key, &write.expect) {
            return None;
        }
        let before = self.objects.get(&write.key).cloned();
        self.mind_successors(before.as_ref().map(|(_, doc, _)| doc), &write);
        self.ledger_check.landed(&write.key, before.as_ref(), write.stamp, &write.doc, write.by);
        self.versions += 1;
        self.objects.insert(write.key, (write.stamp, write.doc, self.versions));
        Some(Version::new(&self.versions.to_string()))
    }

    /// What the life that has the id has claimed, no other life of the worker may write off.
    fn mind_successors(&mut self, before: Option<&Doc>, write: &Write) {
        let Who::Worker(worker, life) = write.by else { return };
        let (Some(Doc::Inbox(before)), Doc::Inbox(after)) = (before, &write.doc) else { return };
        let present = self.agents[worker].life;
        if life == present {
            return;
        }
        for entry in &before.entries {
            let (EntryState::Acked { by } | EntryState::Running { by }) = entry.state else { continue };
            let now = after.entries.iter().find(|after| after.key() == entry.key()).map(|after| &after.state);
            let over = matches!(now, Some(EntryState::Finished { .. }) | None);
            if by == incarnation(worker, present) && over {
                let what = format!("life {life} of w{worker} wrote off {} of life {present}", entry.id);
                self.ledger_check.violations.push(what);
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

    fn document<T: Kind>(&mut self, key: Key, by: Who, request: DocumentRequest<T>) -> DocumentAnswer<T> {
        match request {
            DocumentRequest::Read { .. } if self.silent() => DocumentAnswer::Read(Read::Unavailable),
            DocumentRequest::Read { unless } => {
                let found = self.objects.get(&key);
                let found = found.and_then(|(stamp, doc, number)| Some((*stamp, T::unwrap(doc)?, *number)));
                let Some((stamp, body, number)) = found else { return DocumentAnswer::Read(Read::Absent) };
                let version = Version::new(&number.to_string());
                DocumentAnswer::Read(match unless == Some(version.clone()) {
                    true => Read::Unchanged,
                    false => Read::Found { stamp, body: body.clone(), version },
                })
            }
            DocumentRequest::Write { stamp, body, expect } => {
                DocumentAnswer::Written(self.write(Write { key, stamp, doc: body.wrap(), expect, by }))
            }
            DocumentRequest::Remove => panic!("removals are served by whoever knows who asks"),
        }
    }

    pub(super) fn serve(&mut self, asked: Asked) {
        match asked {
            Asked::Leader(leader, id, request) => {
                let answer = self.answer(leader, request);
                self.lead(leader, Input::Answer(id, answer));
            }
            Asked::Claimer(worker, life, id, ClaimerRequest::Inbox(request, refused)) => {
                let key = Key::Inbox(name(&format!("w{worker}")));
                let answer = self.document(key, Who::Worker(worker, life), request);
                let Some(at) = self.at(worker, life) else { return };
                let refused = self.fence(at, &answer, &refused);
                self.work(at, Input::Answer(id, ClaimerAnswer::Inbox(answer, refused)));
            }
            Asked::Claimer(worker, life, id, ClaimerRequest::Confirm) => {
                let mine = !self.silent() && self.agents[worker].life == life;
                if let Some(at) = self.at(worker, life) {
                    self.work(at, Input::Answer(id, ClaimerAnswer::Confirmed(mine)));
                }
            }
        }
    }

    /// What the worker's fence rejects of what it read.
    fn fence(
        &mut self,
        at: usize,
        answer: &DocumentAnswer<InboxDoc>,
        refused: &BTreeSet<Refused>,
    ) -> BTreeSet<Refused> {
        let heard = !self.quiet && self.rng.random_bool(0.6);
        let agent = &mut self.agents[at];
        if heard {
            agent.known = Epoch(self.leaders.len() as u64);
        }
        let DocumentAnswer::Read(Read::Found { body, .. }) = answer else { return BTreeSet::new() };
        let unclaimed = body.entries.iter().filter(|entry| entry.state == EntryState::Dispatched);
        let stamps = unclaimed.map(|entry| (entry.id.clone(), entry.attempt, entry.epoch));
        stamps.filter(|stamp| stamp.2 < agent.known || refused.contains(stamp)).collect()
    }

    fn answer(&mut self, leader: usize, request: DispatchRequest) -> DispatchAnswer {
        let by = Who::Leader(leader);
        match request {
            DispatchRequest::Inbox(worker, DocumentRequest::Remove) => {
                // The guard is asked right before: only the present leader gets this far.
                let present = leader + 1 == self.leaders.len();
                if present {
                    self.remove(&worker);
                }
                let gone = present && (self.quiet || self.rng.random_bool(0.8));
                let answer = if gone { Removal::Gone } else { Removal::Unknown };
                DispatchAnswer::Inbox(worker, DocumentAnswer::Removed(answer))
            }
            DispatchRequest::Ledger(part, request) => {
                DispatchAnswer::Ledger(part, self.document(Key::Ledger(part), by, request))
            }
            DispatchRequest::Inbox(worker, request) => {
                let answer = self.document(Key::Inbox(worker.clone()), by, request);
                DispatchAnswer::Inbox(worker, answer)
            }
            other if self.silent() => other.unanswered(),
            DispatchRequest::ListInboxes => {
                let lines = self.objects.iter().filter_map(|(key, (_, _, number))| match key {
                    Key::Inbox(worker) => Some(InboxListed {
                        worker: worker.clone(),
                        version: Some(Version::new(&number.to_string())),
                        stamp: (*number, 0),
                    }),
                    Key::Ledger(_) => None,
                });
                DispatchAnswer::Listed(Some(lines.collect()))
            }
            DispatchRequest::Archive(part, records) => {
                self.ledger_check.archived(&records);
                DispatchAnswer::Archived(part, true)
            }
        }
    }

    /// What was sent to this inbox before is not under way any more: nothing is, for as long as a removal waits. Whoever sent it
    /// has given it up.
    fn remove(&mut self, worker: &WorkerId) {
        let key = Key::Inbox(worker.clone());
        if let Some((_, Doc::Inbox(doc), _)) = self.objects.remove(&key) {
            self.ledger_check.removed(worker, &doc);
        }
        self.air.retain(|write| write.key != key);
        let under_way = |asked: &mut Asked| match asked {
            Asked::Leader(_, _, DispatchRequest::Inbox(to, DocumentRequest::Write { .. })) => to == worker,
            Asked::Claimer(at, _, _, ClaimerRequest::Inbox(DocumentRequest::Write { .. }, _)) => {
                *worker == name(&format!("w{at}"))
            }
            Asked::Leader(..) | Asked::Claimer(..) => false,
        };
        let given_up: Vec<Asked> = self.asked.extract_if(.., under_way).collect();
        for asked in given_up {
            match asked {
                Asked::Leader(leader, id, request) => {
                    self.lead(leader, Input::Answer(id, request.unanswered()));
                }
                Asked::Claimer(worker, life, id, request) => {
                    if let Some(at) = self.at(worker, life) {
                        self.work(at, Input::Answer(id, request.unanswered()));
                    }
                }
            }
        }
    }
}
