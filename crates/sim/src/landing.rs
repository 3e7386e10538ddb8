//! Requests about jobs take effect, whether their sender is alive or not; and what must hold for each.

use crate::neglect::Neglect;
use crate::queue::Then;
use crate::wire::Told;
use crate::world::World;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Removal, Stamp};
use tenure_core::machine::Request;
use tenure_core::{
    ClaimerAnswer, DispatchAnswer, DispatchRequest, Expect, InboxDoc, Incarnation, LedgerDoc, RequestId,
    Time, Version, WorkerId, WriteAnswer, job_shard,
};

impl World {
    pub(crate) fn perform_dispatch(
        &mut self,
        node: usize,
        incarnation: u64,
        id: RequestId,
        request: &DispatchRequest,
        then: Then,
    ) -> Told {
        let answer = match request {
            DispatchRequest::Ledger(part, request) => {
                DispatchAnswer::Ledger(*part, self.perform_ledger(node, *part, request))
            }
            DispatchRequest::Inbox(worker, request) => {
                DispatchAnswer::Inbox(worker.clone(), self.perform_inbox(worker, request))
            }
            DispatchRequest::ListInboxes => {
                let stale = match then {
                    Then::Stale(_, back) => Some(back),
                    Then::Answer(_) | Then::Nothing | Then::Echo(_) | Then::Unknown(_) => None,
                };
                DispatchAnswer::Listed(Some(self.shelf.list(stale)))
            }
            DispatchRequest::Archive(part, records) => {
                self.book.put_away(records);
                DispatchAnswer::Archived(*part, true)
            }
        };
        self.hold_book();
        Told::Dispatch(incarnation, id, answer)
    }

    fn perform_ledger(
        &mut self,
        node: usize,
        part: usize,
        request: &DocumentRequest<LedgerDoc>,
    ) -> DocumentAnswer<LedgerDoc> {
        let now = self.now;
        match request {
            DocumentRequest::Read { unless } => {
                DocumentAnswer::Read(self.shelf.ledger(part, unless.as_ref()))
            }
            DocumentRequest::Write { expect, .. } if !self.shelf.ledger_holds(part, expect) => {
                DocumentAnswer::Written(WriteAnswer::Lost)
            }
            DocumentRequest::Write { stamp, body, .. } => {
                let before = self.shelf.ledgers.get(&part).map(|(doc, _)| doc.clone());
                let local = (node, self.nodes[node].clock.local(now));
                self.book.ledger(now, local, before.as_ref(), (*stamp, body));
                self.trace.say(now, || {
                    let open = body.jobs.iter().filter(|job| !job.state.is_final()).count();
                    format!("== ledger {part} of {:?}: {} jobs, {open} open", stamp.epoch, body.jobs.len())
                });
                let version = self.shelf.put_ledger(part, (*stamp, body.clone()));
                DocumentAnswer::Written(WriteAnswer::Won(version))
            }
            DocumentRequest::Remove => request.unanswered(),
        }
    }

    fn perform_inbox(
        &mut self,
        worker: &WorkerId,
        request: &DocumentRequest<InboxDoc>,
    ) -> DocumentAnswer<InboxDoc> {
        match request {
            DocumentRequest::Read { unless } => {
                DocumentAnswer::Read(self.shelf.inbox(worker, unless.as_ref()))
            }
            DocumentRequest::Write { expect, .. } if !self.shelf.inbox_holds(worker, expect) => {
                DocumentAnswer::Written(WriteAnswer::Lost)
            }
            DocumentRequest::Write { stamp, body, .. } => {
                DocumentAnswer::Written(WriteAnswer::Won(self.land_dispatch(worker, *stamp, body)))
            }
            DocumentRequest::Remove => {
                self.shelf.remove_inbox(worker);
                DocumentAnswer::Removed(Removal::Gone)
            }
        }
    }

    fn land_dispatch(&mut self, worker: &WorkerId, stamp: Stamp, doc: &InboxDoc) -> Version {
        let before = self.shelf.inboxes.get(worker).map(|(doc, _)| doc.clone());
        let (ledgers, shards) = (&self.shelf.ledgers, self.labour.dispatcher.shards);
        let owner = |record: &tenure_core::JobRecord| {
            ledgers.get(&job_shard(&record.series, shards)).map(|((stamp, _), _)| stamp.owner)
        };
        self.book.dispatch(worker, before.as_ref(), (stamp, doc), owner);
        self.trace.say(self.now, || format!("== inbox of {worker} by {:?}: {}", stamp.epoch, told(doc)));
        self.shelf.put_inbox(worker, (stamp, doc.clone()))
    }

    /// A worker's request for its own inbox.
    pub(crate) fn perform_work(
        &mut self,
        index: usize,
        id: RequestId,
        request: &DocumentRequest<InboxDoc>,
    ) -> Told {
        let worker = self.workers[index].id.clone();
        let answer = match request {
            DocumentRequest::Read { unless } => {
                DocumentAnswer::Read(self.shelf.inbox(&worker, unless.as_ref()))
            }
            DocumentRequest::Write { stamp, body, expect } => {
                DocumentAnswer::Written(self.land_work(&worker, *stamp, body, expect))
            }
            DocumentRequest::Remove => request.unanswered(),
        };
        Told::Take(id, ClaimerAnswer::Inbox(answer, Default::default()))
    }

    fn land_work(&mut self, worker: &WorkerId, stamp: Stamp, doc: &InboxDoc, expect: &Expect) -> WriteAnswer {
        let careless = self.neglect == Some(Neglect::ClaimUnconditional);
        if !careless && !self.shelf.inbox_holds(worker, expect) {
            return WriteAnswer::Lost;
        }
        let local: Vec<Time> = self.nodes.iter().map(|node| node.clock.local(self.now)).collect();
        let before = self.shelf.inboxes.get(worker).map(|(doc, _)| doc.clone());
        self.book.work(worker, before.as_ref(), (stamp, doc), &local);
        self.hold_book();
        self.trace.say(self.now, || format!("== inbox of {worker} by itself: {}", told(doc)));
        WriteAnswer::Won(self.shelf.put_inbox(worker, (stamp, doc.clone())))
    }

    /// Turns everything wrong in the book into violations.
    pub(crate) fn hold_book(&mut self) {
        let now = self.now;
        for (check, what) in self.book.take_wrong() {
            self.judge.violated(now, check, || what);
        }
    }
}

fn told(doc: &InboxDoc) -> String {
    use tenure_core::EntryState;
    let entry = |entry: &tenure_core::Entry| {
        let state = match &entry.state {
            EntryState::Dispatched => "new".to_owned(),
            EntryState::Acked { by: Incarnation(by) } => format!("claimed by life {by}"),
            EntryState::Running { by: Incarnation(by) } => format!("run by life {by}"),
            EntryState::Finished { outcome } => outcome.kind.as_str().to_owned(),
        };
        format!("{}/{} {state}", entry.id, entry.attempt)
    };
    doc.entries.iter().map(entry).collect::<Vec<_>>().join(", ")
}
