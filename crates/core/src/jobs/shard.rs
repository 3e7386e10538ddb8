//! One shard of the ledger, as its leader keeps it: adopted with a write of the leader's own, then written whenever it
//! changed.

use super::LedgerDoc;
use crate::election::{Expect, RequestId, Version, WriteAnswer};
use crate::id::Nonce;
use crate::id::{JobId, SeriesId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// How many writes of unknown outcome are remembered.
const UNSETTLED_MAX: usize = 8;

/// First pause before a failed request is repeated. It doubles every time …
pub(super) const RETRY_FIRST_MS: u64 = 200;
/// … up to this.
pub(super) const RETRY_MAX_MS: u64 = 10_000;

pub(super) fn retry_ms(failures: u32) -> u64 {
    (RETRY_FIRST_MS << failures.min(16)).min(RETRY_MAX_MS)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Hold {
    /// Its content is not known.
    Unread,
    /// Its content is known, but this leader does not own it yet.
    Found,
    /// This leader owns it: only its own writes can succeed.
    Owned,
    /// The object is not a shard. It is left alone.
    Blocked,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Shard {
    pub(super) hold: Hold,
    pub(super) series: BTreeMap<SeriesId, u64>,
    /// Counts every change. Changes up to `confirmed` are on the store.
    pub(super) revision: u64,
    pub(super) confirmed: u64,
    expect: Expect,
    must_read: bool,
    pub(super) flight: Option<(RequestId, Option<(Nonce, u64)>)>,
    /// Writes that may have landed or still may: their nonces and the revisions they contain.
    unsettled: Vec<(Nonce, u64)>,
    pub(super) due: Time,
    failures: u32,
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

pub(super) enum Want {
    Nothing,
    Read,
    Write(Expect),
}

/// What an answer settled.
#[derive(PartialEq, Eq)]
pub(super) enum Settled {
    Nothing,
    /// The content was read for the first time.
    Loaded(LedgerDoc),
    /// A higher revision is confirmed than before.
    Confirmed,
    /// Another leader owns it.
    Superseded,
}

impl Shard {
    pub(super) fn new() -> Shard {
        Shard {
            hold: Hold::Unread,
            series: BTreeMap::new(),
            revision: 1,
            confirmed: 0,
            expect: Expect::Absent,
            must_read: true,
            flight: None,
            unsettled: Vec::new(),
            due: Time(0),
            failures: 0,
            jobs: BTreeSet::new(),
            weight: 0,
            finished: 0,
            unconfirmed: BTreeSet::new(),
            archive_at: Time(0),
            archiving: None,
            stale_since: None,
        }
    }

    /// Counts a change and returns its revision.
    pub(super) fn touch(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub(super) fn want(&self, now: Time) -> Want {
        if self.flight.is_some() || now < self.due {
            return Want::Nothing;
        }
        if self.must_read {
            return Want::Read;
        }
        match self.hold {
            Hold::Unread => Want::Read,
            Hold::Found | Hold::Owned if self.confirmed < self.revision => Want::Write(self.expect.clone()),
            Hold::Found | Hold::Owned | Hold::Blocked => Want::Nothing,
        }
    }

    pub(super) fn sent(&mut self, id: RequestId, write: Option<Nonce>) {
        if write.is_some() {
            // This write carries the current reasons; if it fails, another one will.
            self.stale_since = None;
        }
        self.flight = Some((id, write.map(|nonce| (nonce, self.revision))));
    }

    fn trouble(&mut self, now: Time) {
        self.due = now + retry_ms(self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn on_written(&mut self, now: Time, answer: WriteAnswer) -> Settled {
        let Some((_, Some((nonce, revision)))) = self.flight.take() else { return Settled::Nothing };
        match answer {
            WriteAnswer::Won(version) => {
                self.failures = 0;
                self.landed(version, revision);
                Settled::Confirmed
            }
            // A refusal may be the echo of an earlier write of this leader: reading the shard tells.
            WriteAnswer::Lost => {
                self.must_read = true;
                Settled::Nothing
            }
            WriteAnswer::Unknown => {
                self.must_read = true;
                self.unsettled.push((nonce, revision));
                if self.unsettled.len() > UNSETTLED_MAX {
                    self.unsettled.remove(0);
                }
                self.trouble(now);
                Settled::Nothing
            }
            WriteAnswer::Unavailable | WriteAnswer::Denied => {
                self.trouble(now);
                Settled::Nothing
            }
        }
    }

    fn landed(&mut self, version: Version, revision: u64) {
        self.expect = Expect::Version(version);
        self.confirmed = self.confirmed.max(revision);
        self.hold = Hold::Owned;
        // Every other write in flight was conditional on a version that is gone.
        self.unsettled.clear();
    }

    pub(super) fn on_absent(&mut self) -> Settled {
        self.flight = None;
        (self.must_read, self.failures, self.expect) = (false, 0, Expect::Absent);
        // If this leader owned it, somebody outside removed it. It will be written again from memory: a shard is only read
        // after a failed write, and that write is still pending.
        if matches!(self.hold, Hold::Unread | Hold::Blocked) {
            self.hold = Hold::Found;
        }
        Settled::Nothing
    }

    /// Returns whether this is news.
    pub(super) fn on_unreadable(&mut self, now: Time) -> bool {
        self.flight = None;
        self.trouble(now);
        (self.due, self.must_read) = (now + RETRY_MAX_MS, true);
        let news = self.hold != Hold::Blocked;
        self.hold = Hold::Blocked;
        news
    }

    pub(super) fn on_unavailable(&mut self, now: Time) {
        self.flight = None;
        self.trouble(now);
    }

    /// `mine` identifies this leader. `newer`: `doc` is from a later epoch, so this leader is superseded.
    pub(super) fn on_found(&mut self, mine: Nonce, doc: LedgerDoc, version: Version, newer: bool) -> Settled {
        self.flight = None;
        (self.must_read, self.failures) = (false, 0);
        let own = doc.nonce.incarnation == mine.incarnation;
        if newer || (self.hold == Hold::Owned && !own) {
            self.expect = Expect::Version(version);
            return Settled::Superseded;
        }
        if own {
            // The revision of a write that is no longer remembered does not count; the shard is simply written again.
            let revision = self.unsettled.iter().find(|(nonce, _)| *nonce == doc.nonce).map(|(_, r)| *r);
            if let Some(revision) = revision {
                self.landed(version, revision);
                return Settled::Confirmed;
            }
            (self.expect, self.hold) = (Expect::Version(version), Hold::Owned);
            return Settled::Nothing;
        }
        self.expect = Expect::Version(version);
        let first = matches!(self.hold, Hold::Unread | Hold::Blocked);
        self.hold = Hold::Found;
        // A former leader may have written between the read and the adoption: its last write counts.
        if first || self.confirmed == 0 { Settled::Loaded(doc) } else { Settled::Nothing }
    }
}
