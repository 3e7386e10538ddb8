//! One object on the store that has one writer at a time, kept by compare-and-swap.
//!
//! Every write is conditional on the version known. A write that was refused, or whose outcome is unknown, is read back and
//! recognised by its nonce; until then nothing is assumed. This is the only place with that protocol, besides the election's
//! seat, which has deadlines of its own.
//!
//! A [`Document`] knows the envelope of the object ([`Stamp`]) and not its body: whoever owns the document keeps the body,
//! hands it over with each write ([`Op::Write`]), and gets it back from each read ([`Document::answered`]).
//!
//! A new leader *adopts* a document with its first write: from then on the store refuses every write of a former leader, and
//! a former leader that reads it back finds a higher epoch and stops for good.

mod content;
mod io;
mod rules;

pub use content::Content;
pub use io::{DocumentAnswer, DocumentRequest, Op, Read, Removal, Stamp};
pub use rules::{BackOff, Rules, Unreadable, Writer};

use crate::election::{Epoch, Expect, Version, WriteAnswer};
use crate::id::{Incarnation, Nonce};
use crate::machine::RequestId;
use crate::mutants::Mutant;
use crate::time::Time;

/// Most writes remembered that may have landed or still may. One that is forgotten and lands after all still shows its
/// owner, and is simply written over.
const UNSETTLED_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Unread,
    /// What stands there, if anything. It is not one's own.
    Found,
    /// It is one's own: nobody else's write can succeed unseen.
    Owned,
    /// What stands there cannot be read, and is left alone.
    Blocked,
    /// A leader of a later epoch owns it. It is never written again.
    Superseded,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Flight {
    id: RequestId,
    sent: Time,
    kind: FlightKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum FlightKind {
    Read,
    Write { stamp: Stamp, revision: u64 },
    Remove,
}

/// A write that may be what stands there. All of them are conditional on the version known, so at most one can land.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Unsettled {
    nonce: Nonce,
    revision: u64,
    /// Whether it may still land. A refused one cannot, but an earlier delivery of it may already have landed.
    may_land: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Health {
    Fine,
    Unavailable,
    Denied { write: bool },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Document {
    rules: Rules,
    state: State,
    found: Option<Stamp>,
    expect: Expect,
    reread: bool,
    flight: Option<Flight>,
    unsettled: Vec<Unsettled>,
    /// Counts changes of the body. Those up to `confirmed` stand on the store.
    revision: u64,
    confirmed: u64,
    due: Time,
    failures: u32,
    health: Health,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settled {
    /// When the request was sent that showed it: whoever waits for silence counts from here.
    pub sent: Time,
    /// Trouble that was told is over.
    pub mended: bool,
    pub what: What,
}

/// What is known after an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// Nothing new; it is read back next, or the answer belonged to nothing.
    Nothing,
    /// It still stands as it was.
    Same,
    /// There is nothing there, or nothing worth keeping.
    Empty,
    /// Somebody else's body was read.
    Loaded,
    /// One's own document was changed by somebody who may.
    Shared,
    /// One's own write of this revision stands.
    Landed { revision: u64 },
    /// Somebody else owns it now, who is not of a later epoch.
    Overtaken(Stamp),
    /// A leader of a later epoch owns it.
    Superseded(Epoch),
    /// It cannot be read, and is left alone. `newer`: a newer major version wrote it. `news`: not told before.
    Blocked { newer: bool, news: bool },
    /// The request failed; it is repeated after a pause. `news`: not told before.
    Failed { denied: bool, news: bool },
    /// It is gone, as was asked.
    Removed,
}

impl Document {
    pub fn new(rules: Rules) -> Document {
        Document {
            rules,
            state: State::Unread,
            found: None,
            expect: Expect::Absent,
            reread: false,
            flight: None,
            unsettled: Vec::new(),
            revision: u64::from(rules.adopt),
            confirmed: 0,
            due: Time(0),
            failures: 0,
            health: Health::Fine,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// The envelope last found or written; `None` if nothing stands there, as far as is known.
    pub fn stamp(&self) -> Option<Stamp> {
        self.found
    }

    /// The version last found or written; `None` if nothing stands there, as far as is known.
    pub fn version(&self) -> Option<&Version> {
        match &self.expect {
            Expect::Version(version) => Some(version),
            Expect::Absent => None,
        }
    }

    /// The body changed: returns the revision that has to stand.
    pub fn touch(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn is_confirmed(&self, revision: u64) -> bool {
        revision <= self.confirmed
    }

    /// Look again, by a conditional read.
    pub fn refresh(&mut self) {
        self.reread = true;
    }

    /// A complete list did not show it: it need not be read.
    pub fn known_absent(&mut self) {
        if self.state == State::Unread && self.flight.is_none() {
            self.state = State::Found;
            self.reread = false;
        }
    }

    /// Whether a write of ours may still land.
    pub fn in_doubt(&self) -> bool {
        self.unsettled.iter().any(|write| write.may_land)
    }

    pub fn is_busy(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether it must be read before anything is concluded from it.
    pub fn must_read(&self) -> bool {
        self.reread || self.state == State::Unread
    }

    /// Whether what is known is the whole truth: nothing under way, nothing to read back, no doubt.
    pub fn is_certain(&self) -> bool {
        matches!(self.state, State::Found | State::Owned)
            && !self.is_busy()
            && !self.must_read()
            && !self.in_doubt()
    }

    /// Whether it has to be written: the body changed, or only another version ends a doubt.
    fn must_write(&self) -> bool {
        matches!(self.state, State::Found | State::Owned)
            && (self.confirmed < self.revision || self.in_doubt())
    }

    /// No request before this: the pause after a failed one.
    pub fn due(&self) -> Time {
        self.due
    }

    /// When [`next`](Document::next) has something to send; `None` if it waits for an answer or for a change.
    pub fn wake_at(&self, may_write: bool) -> Option<Time> {
        let wants = self.must_read() || (may_write && self.must_write());
        (self.flight.is_none() && self.state != State::Superseded && wants).then_some(self.due)
    }

    /// The next request, if one is due: at most one is under way at a time. The caller sends it under this id, which must be
    /// new.
    pub fn next(&mut self, now: Time, id: RequestId, may_write: bool) -> Option<Op> {
        if self.wake_at(may_write).is_none_or(|at| now < at) {
            return None;
        }
        let (op, kind) = if self.must_read() {
            let unless = self.version().filter(|_| self.state != State::Blocked).cloned();
            (Op::Read { unless }, FlightKind::Read)
        } else {
            let stamp = self.next_stamp(id);
            let kind = FlightKind::Write { stamp, revision: self.revision };
            (Op::Write { stamp, expect: self.expect.clone() }, kind)
        };
        self.flight = Some(Flight { id, sent: now, kind });
        Some(op)
    }

    /// The removal, if what is known is certain. A removal has no condition: the caller makes sure that nobody else writes.
    pub fn remove(&mut self, now: Time, id: RequestId) -> Option<Op> {
        if !self.is_certain() || now < self.due {
            return None;
        }
        self.flight = Some(Flight { id, sent: now, kind: FlightKind::Remove });
        Some(Op::Remove)
    }

    fn me(&self) -> Incarnation {
        match self.rules.writer {
            Writer::Owner { me, .. } | Writer::Guest { me } => me,
        }
    }

    fn next_stamp(&self, id: RequestId) -> Stamp {
        let nonce = Nonce { incarnation: self.me(), sequence: id.0 };
        match (self.rules.writer, self.found) {
            (Writer::Owner { epoch, me }, _) => Stamp { epoch, owner: me, nonce },
            (Writer::Guest { .. }, Some(found)) => Stamp { nonce, ..found },
            // A guest that creates the object leaves it without an owner's epoch.
            (Writer::Guest { me }, None) => Stamp { epoch: Epoch(0), owner: me, nonce },
        }
    }

    /// Takes the answer to the request with this id, and returns what it settled and the body that was read. An answer to
    /// anything else is ignored.
    pub fn answered<T>(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<T>,
    ) -> (Settled, Option<T>) {
        let Some(flight) = self.flight.take_if(|flight| flight.id == id) else {
            return (Settled { sent: now, mended: false, what: What::Nothing }, None);
        };
        let was = self.health;
        let (what, body) = match (flight.kind, answer) {
            (FlightKind::Read, DocumentAnswer::Read(read)) => self.on_read(now, read),
            (FlightKind::Write { stamp, revision }, DocumentAnswer::Written(answer)) => {
                (self.on_written(now, stamp, revision, answer), None)
            }
            (FlightKind::Remove, DocumentAnswer::Removed(answer)) => (self.on_removed(now, answer), None),
            (FlightKind::Read | FlightKind::Write { .. } | FlightKind::Remove, _) => {
                debug_assert!(false, "an answer of another kind than its request");
                self.reread = true;
                (What::Nothing, None)
            }
        };
        let mended = was != Health::Fine && self.health == Health::Fine;
        (Settled { sent: flight.sent, mended, what }, body)
    }

    fn on_written(&mut self, now: Time, stamp: Stamp, revision: u64, answer: WriteAnswer) -> What {
        let nonce = stamp.nonce;
        match answer {
            WriteAnswer::Won(version) => self.landed(stamp, version, revision),
            WriteAnswer::Lost => {
                if Mutant::DocumentRefusalNotReadBack.on() {
                    return What::Nothing;
                }
                // A refusal may be the echo of one's own write; only a read tells.
                self.unsettle(Unsettled { nonce, revision, may_land: false });
                What::Nothing
            }
            WriteAnswer::Unknown if Mutant::DocumentUnknownTakenForWon.on() => {
                self.confirmed = self.confirmed.max(revision);
                What::Landed { revision }
            }
            WriteAnswer::Unknown => {
                let may_land = !Mutant::DocumentDoubtForgotten.on();
                self.unsettle(Unsettled { nonce, revision, may_land });
                self.failed(now, Health::Unavailable)
            }
            WriteAnswer::Unavailable => self.failed(now, Health::Unavailable),
            WriteAnswer::Denied => self.failed(now, Health::Denied { write: true }),
        }
    }

    fn unsettle(&mut self, write: Unsettled) {
        self.reread = true;
        if self.unsettled.len() == UNSETTLED_MAX {
            self.unsettled.remove(0);
        }
        self.unsettled.push(write);
    }

    fn landed(&mut self, stamp: Stamp, version: Version, revision: u64) -> What {
        self.found = Some(stamp);
        self.expect = Expect::Version(version);
        self.confirmed = self.confirmed.max(revision);
        self.reread = false;
        // Whatever else was sent was conditional on a version that is gone.
        self.unsettled.clear();
        self.failures = 0;
        self.health = Health::Fine;
        if matches!(self.rules.writer, Writer::Owner { .. }) {
            self.state = State::Owned;
        }
        What::Landed { revision }
    }

    fn on_read<T>(&mut self, now: Time, read: Read<T>) -> (What, Option<T>) {
        match read {
            Read::Unavailable => return (self.failed(now, Health::Unavailable), None),
            Read::Denied => return (self.failed(now, Health::Denied { write: false }), None),
            Read::Found { .. } | Read::Unchanged | Read::Absent | Read::Unreadable { .. } => {}
        }
        self.failures = 0;
        self.reread = false;
        // A refused write is mended only by a write that gets through: credentials that may read but not write would make
        // the health flap.
        if self.health != (Health::Denied { write: true }) {
            self.health = Health::Fine;
        }
        match read {
            Read::Found { stamp, body, version } => {
                let known = self.state != State::Blocked && self.version() == Some(&version);
                if known { (What::Same, None) } else { self.on_found(stamp, body, version) }
            }
            Read::Absent => (self.on_absent(), None),
            Read::Unreadable { version, newer } => (self.on_unreadable(now, version, newer), None),
            Read::Unchanged | Read::Unavailable | Read::Denied => (What::Same, None),
        }
    }

    fn on_found<T>(&mut self, stamp: Stamp, body: T, version: Version) -> (What, Option<T>) {
        let own_write = self.unsettled.iter().find(|write| write.nonce == stamp.nonce).copied();
        if let Some(write) = own_write {
            return (self.landed(stamp, version, write.revision), Some(body));
        }
        self.found = Some(stamp);
        self.expect = Expect::Version(version);
        self.unsettled.clear();
        let Writer::Owner { epoch, me } = self.rules.writer else {
            self.state = State::Found;
            return (What::Loaded, Some(body));
        };
        if stamp.epoch > epoch && !Mutant::DocumentEpochIgnored.on() && !Mutant::JobLedgerReclaimed.on() {
            self.state = State::Superseded;
            return (What::Superseded(stamp.epoch), Some(body));
        }
        if stamp.owner == me {
            self.state = State::Owned;
            return (What::Shared, Some(body));
        }
        let was = std::mem::replace(&mut self.state, State::Found);
        // What one wrote oneself no longer stands, and what is there may differ in anything.
        self.confirmed = 0;
        if Mutant::DocumentAdoptSkipped.on() || (self.rules.adopt && Mutant::JobLedgerNotAdopted.on()) {
            self.state = State::Owned;
            self.confirmed = self.revision;
        }
        let what = if was == State::Owned { What::Overtaken(stamp) } else { What::Loaded };
        (what, Some(body))
    }

    fn on_absent(&mut self) -> What {
        self.found = None;
        if self.expect != Expect::Absent {
            self.expect = Expect::Absent;
            self.unsettled.clear();
        }
        self.confirmed = 0;
        self.state = State::Found;
        What::Empty
    }

    fn on_unreadable(&mut self, now: Time, version: Version, newer: bool) -> What {
        self.found = None;
        if self.expect != Expect::Version(version.clone()) {
            self.expect = Expect::Version(version);
            self.unsettled.clear();
        }
        self.confirmed = 0;
        if self.rules.unreadable == Unreadable::Replace && !newer {
            self.state = State::Found;
            return What::Empty;
        }
        let was = std::mem::replace(&mut self.state, State::Blocked);
        self.reread = true;
        self.due = now + self.rules.retry.max_ms;
        What::Blocked { newer, news: was != State::Blocked }
    }

    fn on_removed(&mut self, now: Time, answer: Removal) -> What {
        match answer {
            Removal::Gone => {
                self.on_absent();
                // Nothing has to stand there until the body changes again.
                self.confirmed = self.revision;
                self.failures = 0;
                self.health = Health::Fine;
                What::Removed
            }
            Removal::Unknown => {
                self.reread = true;
                self.failed(now, Health::Unavailable)
            }
        }
    }

    fn failed(&mut self, now: Time, trouble: Health) -> What {
        self.due = now + self.rules.retry.pause_ms(self.failures);
        self.failures = self.failures.saturating_add(1);
        let denied = matches!(trouble, Health::Denied { .. });
        let news = match self.health {
            Health::Fine => true,
            Health::Unavailable => denied,
            Health::Denied { .. } => false,
        };
        if news || trouble == (Health::Denied { write: true }) {
            self.health = trouble;
        }
        What::Failed { denied, news }
    }
}
