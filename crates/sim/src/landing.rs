//! Requests about jobs take effect, whether their sender is alive or not; and what must hold for each.

use crate::neglect::Neglect;
use crate::queue::Then;
use crate::wire::Told;
use crate::world::World;
use tenure_core::WorkerId;
use tenure_core::{
    ClaimerInput, DispatchInput, DispatchRequest, InboxDoc, Incarnation, RequestId, Time, Version,
    WriteAnswer, job_shard,
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
        let now = self.now;
        let input = match request {
            DispatchRequest::ReadLedger(shard) => {
                DispatchInput::Ledger(id, *shard, self.shelf.ledger(*shard))
            }
            DispatchRequest::WriteLedger(shard, doc, expect) => {
                let answer = if self.shelf.ledger_holds(*shard, expect) {
                    let before = self.shelf.ledgers.get(shard).map(|(doc, _)| doc.clone());
                    let local = (node, self.nodes[node].clock.local(now));
                    self.book.ledger(now, local, before.as_ref(), doc);
                    self.trace.say(now, || {
                        let open = doc.jobs.iter().filter(|job| !job.state.is_final()).count();
                        format!("== ledger {shard} of {:?}: {} jobs, {open} open", doc.epoch, doc.jobs.len())
                    });
                    WriteAnswer::Won(self.shelf.put_ledger(*shard, doc.clone()))
                } else {
                    WriteAnswer::Lost
                };
                DispatchInput::LedgerWritten(id, *shard, answer)
            }
            DispatchRequest::ListInboxes => {
                let stale = match then {
                    Then::Stale(_, back) => Some(back),
                    Then::Answer(_) | Then::Nothing | Then::Echo(_) | Then::Unknown(_) => None,
                };
                DispatchInput::Listed(id, Some(self.shelf.list(stale)))
            }
            DispatchRequest::ReadInbox(worker, unless) => {
                DispatchInput::Inbox(id, worker.clone(), self.shelf.inbox(worker, unless.as_ref()))
            }
            DispatchRequest::WriteInbox(worker, doc, expect) => {
                let answer = if self.shelf.inbox_holds(worker, expect) {
                    WriteAnswer::Won(self.land_dispatch(worker, doc))
                } else {
                    WriteAnswer::Lost
                };
                DispatchInput::InboxWritten(id, worker.clone(), answer)
            }
            DispatchRequest::RemoveInbox(worker) => {
                self.shelf.remove_inbox(worker);
                DispatchInput::InboxRemoved(id, worker.clone(), true)
            }
            DispatchRequest::Archive(shard, records) => {
                self.book.put_away(records);
                DispatchInput::Archived(id, *shard, true)
            }
        };
        self.hold_book();
        Told::Dispatch(incarnation, input)
    }

    fn land_dispatch(&mut self, worker: &WorkerId, doc: &InboxDoc) -> Version {
        let before = self.shelf.inboxes.get(worker).map(|(doc, _)| doc.clone());
        let (ledgers, shards) = (&self.shelf.ledgers, self.labour.dispatcher.shards);
        let owner = |record: &tenure_core::JobRecord| {
            ledgers.get(&job_shard(&record.series, shards)).map(|(doc, _)| doc.nonce.incarnation)
        };
        self.book.dispatch(worker, before.as_ref(), doc, owner);
        self.trace.say(self.now, || format!("== inbox of {worker} by {:?}: {}", doc.epoch, told(doc)));
        self.shelf.put_inbox(worker, doc.clone())
    }

    pub(crate) fn perform_work(
        &mut self,
        index: usize,
        id: RequestId,
        doc: &InboxDoc,
        version: &Version,
    ) -> Told {
        let worker = self.workers[index].id.clone();
        let expect = tenure_core::Expect::Version(version.clone());
        let careless = self.neglect == Some(Neglect::ClaimUnconditional);
        if !careless && !self.shelf.inbox_holds(&worker, &expect) {
            return Told::Take(ClaimerInput::Written(id, WriteAnswer::Lost));
        }
        let local: Vec<Time> = self.nodes.iter().map(|node| node.clock.local(self.now)).collect();
        let before = self.shelf.inboxes.get(&worker).map(|(doc, _)| doc.clone());
        self.book.work(&worker, before.as_ref(), doc, &local);
        self.hold_book();
        self.trace.say(self.now, || format!("== inbox of {worker} by itself: {}", told(doc)));
        let version = self.shelf.put_inbox(&worker, doc.clone());
        Told::Take(ClaimerInput::Written(id, WriteAnswer::Won(version)))
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
