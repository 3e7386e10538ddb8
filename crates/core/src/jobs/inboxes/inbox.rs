//! One worker's inbox, as the leader sees it.

use super::super::RETRY;
use super::super::assign::serves;
use super::super::dispatcher::{DispatchRequest, Sink};
use super::super::model::{Entry, EntryState, InboxDoc, JobRecord};
use super::super::serves::Serves;
use crate::document::{Content, Document, Op, Rules, State, Unreadable, Writer};
use crate::id::{JobId, WorkerId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::jobs) struct Inbox {
    pub(super) document: Document,
    pub(super) content: Content<InboxDoc>,
    /// When the last answered read was sent.
    pub(super) read_sent: Option<Time>,
    /// What lists show of it, for stores whose lists have no versions.
    pub(super) stamp: Option<(u64, u64)>,
    /// A list called it changed, and it has not been read since.
    pub(super) said_changed: bool,
    /// Late results that were counted and are still in the inbox.
    pub(super) late: Vec<(JobId, u32)>,
    /// Since when recorded results wait to be removed.
    pub(super) recorded_results_since: Option<Time>,
    /// When to look at it again, going by time alone.
    pub(super) timer: Option<Time>,
    /// Since when its worker has been missing from the registry.
    pub(super) unheard_since: Option<Time>,
}

impl Inbox {
    pub(in crate::jobs) fn new(writer: Writer) -> Inbox {
        // Written once a job names it, or if it is not empty: most inboxes that a former leader left are not worth a write.
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Inbox {
            document: Document::new(rules),
            content: Content::default(),
            read_sent: None,
            stamp: None,
            said_changed: false,
            late: Vec::new(),
            recorded_results_since: None,
            timer: None,
            unheard_since: None,
        }
    }

    /// An inbox that a complete list did not show: it does not exist.
    pub(in crate::jobs) fn absent(writer: Writer) -> Inbox {
        let mut inbox = Inbox::new(writer);
        inbox.document.known_absent();
        inbox
    }

    #[cfg(test)]
    pub(in crate::jobs) fn document(&mut self) -> &mut Document {
        &mut self.document
    }

    /// The object is not an inbox; it is left alone.
    pub(in crate::jobs) fn is_unreadable(&self) -> bool {
        self.document.state() == State::Blocked
    }

    pub(super) fn is_known(&self) -> bool {
        self.document.state() != State::Unread
    }

    /// The content as last seen; `None` if there is no inbox.
    pub(super) fn doc(&self) -> Option<&InboxDoc> {
        self.content.get().filter(|_| !self.is_unreadable())
    }

    pub(super) fn entries(&self) -> &[Entry] {
        self.doc().map_or(&[], |doc| &doc.entries)
    }

    /// How far its worker is with each entry.
    pub(super) fn states(&self) -> Vec<(JobId, u32, EntryState)> {
        self.entries().iter().map(|entry| (entry.id.clone(), entry.dispatch, entry.state.clone())).collect()
    }

    /// Which jobs its worker takes; `None` as long as it has not said so.
    pub(in crate::jobs) fn serves(&self) -> Option<&Arc<Serves>> {
        Some(&self.doc()?.serves.as_ref()?.1)
    }

    /// Whether its worker takes such jobs, as far as is known.
    pub(in crate::jobs) fn takes(&self, job: &JobRecord) -> bool {
        self.serves().is_none_or(|served| serves(served, job))
    }

    /// Whether its worker takes no more jobs, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        self.doc().is_some_and(|doc| doc.closed.is_some())
    }

    /// Whether jobs are kept from it because its worker takes no more.
    pub(in crate::jobs) fn refuses_jobs(&self) -> bool {
        self.is_closed() && !Mutant::JobDrainIgnored.on()
    }

    /// Whether a read that was sent at this time or later has been answered.
    pub(in crate::jobs) fn was_read_since(&self, time: Time) -> bool {
        self.read_sent.is_some_and(|sent| sent >= time) && !self.document.is_busy()
    }

    /// Whether this dispatch is not in it, as far as is known.
    pub(super) fn is_without(&self, id: &JobId, dispatch: u32) -> bool {
        self.is_known() && !self.document.is_busy() && self.entry(id, dispatch).is_none()
    }

    pub(in crate::jobs) fn entry(&self, id: &JobId, dispatch: u32) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.dispatch == dispatch && entry.id == *id)
    }

    /// Whether no former leader can write it any more.
    pub(super) fn is_fenced(&self) -> bool {
        self.document.state() == State::Owned || Mutant::JobInboxNotFenced.on()
    }

    /// Whether a write of this leader's may still land.
    pub(super) fn in_doubt(&self) -> bool {
        self.document.in_doubt() && !Mutant::JobDoubtForgotten.on()
    }

    /// Whether its content is conclusive: nothing of this leader is in flight, and nothing of a former leader can land.
    pub(in crate::jobs) fn is_firm(&self) -> bool {
        let document = &self.document;
        let settled = document.state() == State::Owned && !document.is_busy() && !document.must_read();
        (settled && !self.in_doubt())
            || (Mutant::JobInboxNotFenced.on() && self.is_known() && !document.is_busy())
    }

    pub(super) fn read(&mut self, now: Time, worker: &WorkerId, sink: &mut Sink<'_>) {
        let request = |op: Op| DispatchRequest::Inbox(worker.clone(), op.with(InboxDoc::default));
        sink.send_for(|id| self.document.next(now, id, false), request);
    }

    pub(super) fn write(&mut self, now: Time, worker: &WorkerId, entries: Vec<Entry>, sink: &mut Sink<'_>) {
        self.document.touch();
        let (serves, closed) = self.doc().map_or((None, None), |doc| (doc.serves.clone(), doc.closed));
        let body = self.content.send(InboxDoc { serves, closed, entries });
        let request = |op: Op| DispatchRequest::Inbox(worker.clone(), op.with(|| body));
        sink.send_for(|id| self.document.next(now, id, true), request);
    }
}
