//! One worker's inbox, as the leader sees it. It carries messages; the dispatcher decides what they mean.

use super::shard::retry_ms;
use super::{Entry, InboxDoc};
use crate::election::{Expect, RequestId, Version, WriteAnswer};
use crate::id::Incarnation;
use crate::id::JobId;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Flight {
    Read { id: RequestId, sent: Time },
    Write { id: RequestId, doc: InboxDoc, expect: Expect },
    Remove { id: RequestId },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Inbox {
    /// The content as last seen; `None` if there is no object.
    pub(super) doc: Option<InboxDoc>,
    pub(super) version: Option<Version>,
    /// Whether it was ever looked at.
    pub(super) known: bool,
    /// Must be read before anything is concluded or written.
    pub(super) must_read: bool,
    /// The condition of a write by this leader that may still land.
    pub(super) doubt: Option<Expect>,
    /// The object is not an inbox; it is left alone.
    pub(super) unreadable: bool,
    pub(super) flight: Option<Flight>,
    pub(super) due: Time,
    failures: u32,
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
    pub(super) fn new() -> Inbox {
        Inbox {
            doc: None,
            version: None,
            known: false,
            must_read: true,
            doubt: None,
            unreadable: false,
            flight: None,
            due: Time(0),
            failures: 0,
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
    pub(super) fn absent() -> Inbox {
        Inbox { known: true, must_read: false, ..Inbox::new() }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        self.doc.as_ref().map_or(&[], |doc| &doc.entries)
    }

    /// Whether its worker takes no more jobs, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        self.doc.as_ref().is_some_and(|doc| doc.closed.is_some())
    }

    pub(super) fn entry(&self, id: &JobId, attempt: u32) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.attempt == attempt && entry.id == *id)
    }

    /// Whether its content is conclusive: nothing of this leader is in flight, and nothing of a former leader can land.
    pub(super) fn is_firm(&self, leader: Incarnation) -> bool {
        self.known
            && !self.must_read
            && self.doubt.is_none()
            && self.flight.is_none()
            && !self.unreadable
            && self.doc.as_ref().is_some_and(|doc| doc.leader == leader)
    }

    pub(super) fn expect(&self) -> Expect {
        self.version.clone().map_or(Expect::Absent, Expect::Version)
    }

    pub(super) fn trouble(&mut self, now: Time) {
        self.due = now + retry_ms(self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    /// The answer to a read has arrived. Returns when the read was sent.
    pub(super) fn read_answered(&mut self) -> Option<Time> {
        match self.flight.take() {
            Some(Flight::Read { sent, .. }) => Some(sent),
            Some(Flight::Write { .. } | Flight::Remove { .. }) | None => None,
        }
    }

    /// The inbox has not changed.
    pub(super) fn seen(&mut self, sent: Time) {
        (self.known, self.must_read, self.failures, self.said_changed) = (true, false, 0, false);
        self.read_sent = Some(sent);
    }

    /// Takes what a read showed.
    pub(super) fn take(&mut self, sent: Time, doc: Option<InboxDoc>, version: Option<Version>) {
        self.seen(sent);
        self.unreadable = false;
        (self.doc, self.version) = (doc, version);
        // The version is not the condition's: the write in flight can no longer land, or just did.
        if self.doubt.as_ref().is_some_and(|condition| *condition != self.expect()) {
            self.doubt = None;
        }
    }

    /// A write was answered. Returns whether it landed.
    pub(super) fn on_written(&mut self, now: Time, answer: WriteAnswer, forget_doubt: bool) -> bool {
        let Some(Flight::Write { doc, expect, .. }) = self.flight.take() else { return false };
        match answer {
            WriteAnswer::Won(version) => {
                (self.doc, self.version, self.doubt, self.failures) = (Some(doc), Some(version), None, 0);
                return true;
            }
            WriteAnswer::Lost => self.must_read = true,
            WriteAnswer::Unknown => {
                self.must_read = true;
                if !forget_doubt {
                    self.doubt = Some(expect);
                }
                self.trouble(now);
            }
            WriteAnswer::Unavailable | WriteAnswer::Denied => self.trouble(now),
        }
        false
    }
}
