//! The one protocol for documents: every row of its table, and its behaviour among others on a store that loses answers.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod schedules;

use tenure_core::document::{
    BackOff, Content, Document, DocumentAnswer, Op, Read, Removal, Rules, Settled, Stamp, State, Unreadable,
    What, Writer,
};
use tenure_core::machine::RequestId;
use tenure_core::{Epoch, Expect, Incarnation, Nonce, Time, Version, WriteAnswer};

const RETRY: BackOff = BackOff { first_ms: 100, max_ms: 1_000 };
const ME: Incarnation = Incarnation(7);
const OTHER: Incarnation = Incarnation(8);

fn rules(writer: Writer) -> Rules {
    Rules { writer, adopt: true, unreadable: Unreadable::LeaveAlone, retry: RETRY }
}

fn owner() -> Rules {
    rules(Writer::Owner { epoch: Epoch(3), me: ME })
}

fn guest() -> Rules {
    Rules { adopt: false, ..rules(Writer::Guest { me: ME }) }
}

fn stamp(epoch: u64, owner: Incarnation, sequence: u64) -> Stamp {
    Stamp { epoch: Epoch(epoch), owner, nonce: Nonce { incarnation: owner, sequence } }
}

fn version(tag: &str) -> Version {
    Version::new(tag)
}

struct Driver {
    document: Document,
    now: Time,
    requests: u64,
}

impl Driver {
    fn new(rules: Rules) -> Driver {
        Driver { document: Document::new(rules), now: Time(0), requests: 0 }
    }

    fn next(&mut self) -> Option<Op> {
        self.document.next(self.now, RequestId(self.requests + 1), true).inspect(|_| self.requests += 1)
    }

    fn reads(&mut self, unless: Option<&str>) {
        assert_eq!(self.next(), Some(Op::Read { unless: unless.map(version) }));
    }

    fn writes(&mut self, expect: Option<&str>) -> Stamp {
        let Some(Op::Write { stamp, expect: found }) = self.next() else { panic!("no write") };
        assert_eq!(found, expect.map_or(Expect::Absent, |tag| Expect::Version(version(tag))));
        stamp
    }

    fn answer(&mut self, answer: DocumentAnswer<&'static str>) -> (Settled, Option<&'static str>) {
        self.document.answered(self.now, RequestId(self.requests), answer)
    }

    fn read(&mut self, read: Read<&'static str>) -> What {
        self.answer(DocumentAnswer::Read(read)).0.what
    }

    fn found(&mut self, stamp: Stamp, tag: &str) -> What {
        self.read(Read::Found { stamp, body: "body", version: version(tag) })
    }

    fn written(&mut self, answer: WriteAnswer) -> What {
        self.answer(DocumentAnswer::Written(answer)).0.what
    }

    fn won(&mut self, tag: &str) -> What {
        self.written(WriteAnswer::Won(version(tag)))
    }

    /// An owned document at version `a`.
    fn owned() -> Driver {
        let mut driver = Driver::new(owner());
        driver.reads(None);
        driver.read(Read::Absent);
        driver.writes(None);
        driver.won("a");
        assert_eq!(driver.document.state(), State::Owned);
        driver
    }

    /// An owned document with a write of unknown outcome on top of version `a`.
    fn in_doubt() -> (Driver, Stamp) {
        let mut driver = Driver::owned();
        driver.document.touch();
        let sent = driver.writes(Some("a"));
        assert_eq!(driver.written(WriteAnswer::Unknown), What::Failed { denied: false, news: true });
        assert!(driver.document.in_doubt() && !driver.document.is_certain());
        assert_eq!(driver.next(), None, "the pause comes first");
        driver.now = driver.now + RETRY.first_ms;
        driver.reads(Some("a"));
        (driver, sent)
    }
}

#[test]
fn a_new_leader_adopts_what_it_finds_with_a_write_of_its_own() {
    let mut driver = Driver::new(owner());
    driver.reads(None);
    assert_eq!(driver.found(stamp(2, OTHER, 5), "a"), What::Loaded);
    assert_eq!(driver.document.state(), State::Found);
    let sent = driver.writes(Some("a"));
    assert_eq!((sent.epoch, sent.owner), (Epoch(3), ME));
    assert_eq!(driver.won("b"), What::Landed { revision: 1 });
    assert_eq!(driver.document.state(), State::Owned);
    assert_eq!(driver.next(), None, "nothing changed since");
    assert!(driver.document.is_certain());
}

#[test]
fn a_former_leaders_last_write_counts_until_the_adoption() {
    let mut driver = Driver::new(owner());
    driver.reads(None);
    driver.found(stamp(2, OTHER, 5), "a");
    driver.writes(Some("a"));
    assert_eq!(driver.written(WriteAnswer::Lost), What::Nothing);
    driver.reads(Some("a"));
    assert_eq!(driver.found(stamp(2, OTHER, 6), "b"), What::Loaded);
    driver.writes(Some("b"));
}

#[test]
fn a_later_epoch_ends_it_for_good() {
    let mut driver = Driver::owned();
    driver.document.touch();
    driver.writes(Some("a"));
    driver.written(WriteAnswer::Lost);
    driver.reads(Some("a"));
    assert_eq!(driver.found(stamp(4, OTHER, 1), "b"), What::Superseded(Epoch(4)));
    driver.document.touch();
    driver.document.refresh();
    assert_eq!((driver.next(), driver.document.wake_at(true)), (None, None));
}

#[test]
fn the_echo_of_ones_own_write_is_recognised() {
    let mut driver = Driver::owned();
    driver.document.touch();
    let sent = driver.writes(Some("a"));
    assert_eq!(driver.written(WriteAnswer::Lost), What::Nothing);
    driver.reads(Some("a"));
    assert_eq!(driver.found(sent, "b"), What::Landed { revision: 2 });
    assert!(driver.document.is_confirmed(2));
}

#[test]
fn a_lost_answer_is_not_a_lost_race() {
    let (mut driver, sent) = Driver::in_doubt();
    let (settled, body) =
        driver.answer(DocumentAnswer::Read(Read::Found { stamp: sent, body: "mine", version: version("b") }));
    assert_eq!((settled.what, settled.mended, body), (What::Landed { revision: 2 }, true, Some("mine")));
    assert!(driver.document.is_certain());
}

#[test]
fn what_may_land_may_still_land_after_an_unchanged_read() {
    let (mut driver, _) = Driver::in_doubt();
    assert_eq!(driver.read(Read::Unchanged), What::Same);
    assert!(driver.document.in_doubt());
    assert_eq!(driver.document.remove(driver.now, RequestId(99)), None, "not certain");
    driver.writes(Some("a"));
    driver.won("b");
    assert!(!driver.document.in_doubt(), "another version ends the doubt");
}

#[test]
fn a_read_of_the_known_version_is_no_news() {
    let (mut driver, _) = Driver::in_doubt();
    assert_eq!(driver.found(stamp(3, ME, 2), "a"), What::Same);
    assert!(driver.document.in_doubt());
}

#[test]
fn ones_own_document_changed_by_a_guest_is_shared() {
    let (mut driver, _) = Driver::in_doubt();
    let guests = Stamp { nonce: Nonce { incarnation: OTHER, sequence: 1 }, ..stamp(3, ME, 0) };
    assert_eq!(driver.found(guests, "b"), What::Shared);
    assert_eq!(driver.document.state(), State::Owned);
    driver.writes(Some("b"));
}

#[test]
fn another_owner_overtakes_and_may_be_adopted_again() {
    let (mut driver, _) = Driver::in_doubt();
    let others = stamp(2, OTHER, 9);
    assert_eq!(driver.found(others, "b"), What::Overtaken(others));
    assert_eq!(driver.document.state(), State::Found);
    assert!(!driver.document.is_confirmed(1), "what one wrote no longer stands");
    driver.writes(Some("b"));
}

#[test]
fn an_object_that_vanished_is_written_again() {
    let (mut driver, _) = Driver::in_doubt();
    assert_eq!(driver.read(Read::Absent), What::Empty);
    assert!(!driver.document.in_doubt(), "its condition is gone");
    driver.writes(None);
}

#[test]
fn a_doubt_about_creating_stays_while_nothing_stands_there() {
    let mut driver = Driver::new(owner());
    driver.reads(None);
    driver.read(Read::Absent);
    driver.writes(None);
    driver.written(WriteAnswer::Unknown);
    driver.now = driver.now + RETRY.first_ms;
    driver.reads(None);
    assert_eq!(driver.read(Read::Absent), What::Empty);
    assert!(driver.document.in_doubt());
}

#[test]
fn an_unreadable_object_is_left_alone_or_replaced_by_rule() {
    let unreadable = |newer| Read::Unreadable { version: version("x"), newer };
    let mut alone = Driver::new(owner());
    alone.reads(None);
    assert_eq!(alone.read(unreadable(false)), What::Blocked { newer: false, news: true });
    assert_eq!(alone.document.wake_at(true), Some(Time(RETRY.max_ms)));
    alone.now = Time(RETRY.max_ms);
    alone.reads(None);
    assert_eq!(alone.read(unreadable(false)), What::Blocked { newer: false, news: false });
    alone.now = Time(2 * RETRY.max_ms);
    alone.reads(None);
    assert_eq!(alone.found(stamp(1, OTHER, 1), "x"), What::Loaded, "somebody repaired it");

    let mut replaced = Driver::new(Rules { unreadable: Unreadable::Replace, ..owner() });
    replaced.reads(None);
    assert_eq!(replaced.read(unreadable(false)), What::Empty);
    replaced.writes(Some("x"));

    let mut newer = Driver::new(Rules { unreadable: Unreadable::Replace, ..owner() });
    newer.reads(None);
    assert_eq!(newer.read(unreadable(true)), What::Blocked { newer: true, news: true });
}

#[test]
fn trouble_is_told_once_and_its_end_once() {
    let mut driver = Driver::new(owner());
    driver.reads(None);
    assert_eq!(driver.read(Read::Unavailable), What::Failed { denied: false, news: true });
    for pause_ms in [100, 200, 400, 800, 1_000, 1_000] {
        assert_eq!(driver.document.wake_at(true), Some(driver.now + pause_ms));
        driver.now = driver.now + pause_ms;
        driver.reads(None);
        assert_eq!(driver.read(Read::Unavailable), What::Failed { denied: false, news: false });
    }
    driver.now = driver.now + RETRY.max_ms;
    driver.reads(None);
    let (settled, _) = driver.answer(DocumentAnswer::Read(Read::Absent));
    assert!(settled.mended);
}

#[test]
fn a_refused_write_is_mended_only_by_a_write() {
    let mut driver = Driver::owned();
    driver.document.touch();
    driver.writes(Some("a"));
    assert_eq!(driver.written(WriteAnswer::Denied), What::Failed { denied: true, news: true });
    driver.now = driver.now + RETRY.first_ms;
    driver.document.refresh();
    driver.reads(Some("a"));
    assert!(!driver.answer(DocumentAnswer::Read(Read::Unchanged)).0.mended);
    driver.writes(Some("a"));
    assert!(driver.answer(DocumentAnswer::Written(WriteAnswer::Won(version("b")))).0.mended);
}

#[test]
fn a_store_that_is_away_for_a_while_does_not_hide_that_it_refuses() {
    let mut driver = Driver::new(owner());
    let told = [(Read::Denied, true), (Read::Unavailable, false), (Read::Denied, false)];
    for (read, news) in told {
        driver.reads(None);
        let denied = matches!(read, Read::Denied);
        assert_eq!(driver.read(read), What::Failed { denied, news });
        driver.now = driver.now + RETRY.max_ms;
    }
}

#[test]
fn a_guest_keeps_epoch_and_owner() {
    let mut driver = Driver::new(guest());
    driver.reads(None);
    assert_eq!(driver.found(stamp(5, OTHER, 1), "a"), What::Loaded);
    assert_eq!(driver.next(), None, "a guest adopts nothing");
    driver.document.touch();
    let sent = driver.writes(Some("a"));
    assert_eq!((sent.epoch, sent.owner, sent.nonce.incarnation), (Epoch(5), OTHER, ME));
    driver.won("b");
    assert_eq!((driver.document.state(), driver.document.stamp()), (State::Found, Some(sent)));
}

#[test]
fn a_removal_needs_certainty_and_is_read_back_if_unknown() {
    let mut driver = Driver::owned();
    driver.requests += 1;
    let op = driver.document.remove(driver.now, RequestId(driver.requests));
    assert_eq!(op, Some(Op::Remove));
    assert_eq!(driver.next(), None, "one request at a time");
    let (settled, _) = driver.answer(DocumentAnswer::Removed(Removal::Unknown));
    assert_eq!(settled.what, What::Failed { denied: false, news: true });
    driver.now = driver.now + RETRY.first_ms;
    driver.reads(Some("a"));
    driver.read(Read::Unchanged);
    driver.requests += 1;
    driver.document.remove(driver.now, RequestId(driver.requests));
    let (settled, _) = driver.answer(DocumentAnswer::Removed(Removal::Gone));
    assert_eq!(settled.what, What::Removed);
    assert_eq!(driver.next(), None, "it is not written again until it changes");
    driver.document.touch();
    driver.writes(None);
}

#[test]
fn what_a_complete_list_does_not_show_need_not_be_read() {
    let mut driver = Driver::new(Rules { adopt: false, ..owner() });
    driver.document.known_absent();
    assert_eq!(driver.next(), None);
    driver.document.touch();
    driver.writes(None);
}

#[test]
fn a_list_says_nothing_of_what_is_known_or_about_to_be() {
    let mut driver = Driver::owned();
    driver.document.refresh();
    driver.document.known_absent();
    driver.reads(Some("a"));
    let mut driver = Driver::new(owner());
    driver.reads(None);
    driver.document.known_absent();
    assert_eq!(driver.document.state(), State::Unread, "the read tells");
}

#[test]
fn an_answer_to_nothing_is_ignored() {
    let mut driver = Driver::owned();
    let before = driver.document.clone();
    assert_eq!(driver.read(Read::Absent), What::Nothing);
    assert_eq!(driver.document, before);
}

#[test]
fn the_content_is_what_stands_there() {
    let mut content = Content::default();
    assert_eq!(content.send("one"), "one");
    content.settle(&What::Nothing, None);
    assert_eq!(content.get(), None);
    content.settle(&What::Landed { revision: 1 }, None);
    assert_eq!(content.get(), Some(&"one"));
    content.send("two");
    content.settle(&What::Landed { revision: 1 }, Some("one, read back"));
    assert_eq!(content.get(), Some(&"one, read back"));
    content.settle(&What::Shared, Some("a guest's"));
    assert_eq!(content.get(), Some(&"a guest's"));
    content.settle(&What::Empty, None);
    assert_eq!(content.get(), None);
}
