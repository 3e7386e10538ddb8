//! One part of the ledger, as its leader keeps it: adopted with a write of the leader's own, then written whenever it changed.

use super::RETRY;
use crate::document::{Document, Rules, State, Unreadable, Writer};
use crate::id::{JobId, SeriesId};
use crate::machine::RequestId;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Part {
    pub(super) document: Document,
    pub(super) series: BTreeMap<SeriesId, u64>,
    /// Its jobs, their total weight, and how many of them are finished.
    pub(super) jobs: BTreeSet<JobId>,
    pub(super) weight: usize,
    pub(super) finished: usize,
    /// Jobs that changed after the confirmed revision.
    pub(super) unconfirmed: BTreeSet<JobId>,
    /// No search for jobs to archive before this.
    pub(super) archive_at: Time,
    /// The finished jobs being archived.
    pub(super) archiving: Option<(RequestId, Vec<JobId>)>,
    /// Since when a job has waited for another reason than the one on the store. Not worth an immediate write of its own.
    pub(super) stale_since: Option<Time>,
}

impl Part {
    pub(super) fn new(writer: Writer) -> Part {
        let rules = Rules { writer, adopt: true, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Part {
            document: Document::new(rules),
            series: BTreeMap::new(),
            jobs: BTreeSet::new(),
            weight: 0,
            finished: 0,
            unconfirmed: BTreeSet::new(),
            archive_at: Time(0),
            archiving: None,
            stale_since: None,
        }
    }

    pub(super) fn is_owned(&self) -> bool {
        self.document.state() == State::Owned
    }

    /// The object is not a part of a ledger. It is left alone.
    pub(super) fn is_blocked(&self) -> bool {
        self.document.state() == State::Blocked
    }
}
