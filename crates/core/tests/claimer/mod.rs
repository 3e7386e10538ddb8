//! A worker's side of jobs, told by hand: one behaviour each, with the very milliseconds.

mod driver;

use driver::{
    Driver, FORMER, ME, SUCCESSOR, config, entry, new, read_answer, shown, unreadable, write_answer,
};
use std::sync::Arc;
use tenure_core::document::Read;
use tenure_core::machine::Input;
use tenure_core::{
    ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerCounts, EntryState, Outcome, OutcomeKind, Progress,
    RequestId, Serves, Version, WriteAnswer,
};

#[test]
fn it_looks_at_once_and_then_less_and_less_often() {
    let mut driver = Driver::new(config());
    assert_eq!((driver.at(), driver.wake(5000)), (Some(0), vec!["read".to_owned()]));
    assert_eq!(driver.at(), None, "the answer will come");
    assert_eq!(driver.found(5010, Vec::new()), [""; 0]);
    for (at, next) in [(5110, 5210), (5210, 5410), (5410, 5810), (5810, 6610), (6610, 7410)] {
        assert_eq!((driver.at(), driver.wake(at - 1)), (Some(at), Vec::new()), "not before");
        assert_eq!(driver.wake(at), ["read unless 2"]);
        assert_eq!(driver.read(at, Read::Unchanged), [""; 0]);
        assert_eq!(driver.at(), Some(next));
    }
    assert_eq!(driver.look(6650), ["read unless 2"], "unless it is told to");
    assert_eq!(driver.read(6650, Read::Unchanged), [""; 0]);
    assert_eq!(driver.at(), Some(6750), "and again soon");
}

#[test]
fn the_first_thing_it_does_is_to_say_which_jobs_it_takes() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    assert_eq!(driver.read(1000, Read::Absent), ["write new: "]);
    let said = |driver: &Driver| driver.open.clone().and_then(|(_, write)| write?.1.serves);
    assert_eq!(said(&driver), Some((ME, config().serves)));
    assert_eq!(driver.won(1010), [""; 0]);
    // A leader has removed it, because nobody had heard of the worker for long.
    let at = driver.at().expect("a look");
    assert_eq!(driver.wake(at), ["read unless 2"]);
    assert_eq!(driver.read(at, Read::Absent), ["write new: "], "it is still there");
}

#[test]
fn what_a_former_life_took_is_replaced_once_the_id_is_confirmed() {
    let mut driver = Driver::new(config());
    let before = Some((FORMER, Arc::new(Serves::anything(9))));
    driver.inbox.serves.clone_from(&before);
    driver.wake(1000);
    assert_eq!(driver.found(1000, Vec::new()), ["confirm"]);
    assert_eq!(driver.confirmed(1010, false), [""; 0], "a successor may have said this");
    let at = driver.at().expect("another look");
    driver.wake(at);
    assert_eq!(driver.read(at, Read::Unchanged), ["confirm"]);
    assert_eq!(driver.confirmed(at, true), ["write over 2: "]);
    driver.won(at);
    assert_eq!(driver.inbox.serves, Some((ME, config().serves)));
}

#[test]
pub(crate) fn what_only_a_former_life_took_is_given_back() {
    let mut serves = Serves::anything(3);
    serves.queues.insert("mail".parse().expect("valid"));
    let mut driver = Driver::new(ClaimerConfig { serves: Arc::new(serves), ..config() });
    driver.wake(1000);
    let mut entries = new(&["t1/1", "t2/1"]);
    entries[1].queue = "mail".parse().expect("valid");
    assert_eq!(driver.found(1000, entries), ["write over 2: t1/1 returned, t2/1 running"]);
}

#[test]
fn one_that_is_about_to_leave_creates_nothing() {
    let mut driver = Driver::new(config());
    driver.drain(1000);
    assert_eq!(driver.read(1000, Read::Absent), ["drained"]);
}

#[test]
fn a_nudge_does_not_put_off_a_look_that_is_overdue() {
    let mut driver = Driver::new(config());
    assert_eq!(driver.look(0), ["read"]);
    assert_eq!(driver.look(10), [""; 0], "one is under way");
    assert_eq!(driver.found(20, Vec::new()), [""; 0]);
    assert_eq!(driver.at(), Some(120));
}

#[test]
fn it_asks_only_for_what_has_changed() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    assert_eq!(driver.found(1000, Vec::new()), [""; 0]);
    assert_eq!(driver.at(), Some(1100), "something changed: again soon");
    assert_eq!(driver.wake(1100), ["read unless 2"]);
    assert_eq!(driver.read(1100, Read::Unchanged), [""; 0]);
    assert_eq!(driver.at(), Some(1200));
    assert_eq!(driver.wake(1200), ["read unless 2"]);
    assert_eq!(driver.read(1200, unreadable()), [""; 0]);
    assert_eq!((driver.at(), driver.core.counts().unreadable), (Some(11_200), 1));
    assert_eq!(driver.wake(11_200), ["read"], "nothing is known of it any more");
    assert_eq!(driver.read(11_200, unreadable()), [""; 0]);
    assert_eq!(driver.core.counts().unreadable, 2);
}

#[test]
fn what_is_claimed_runs_once_the_claim_stands_and_not_before() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    let claim = "write over 2: t1/1 running, t2/1 running, t3/1 acked, t4/1 dispatched";
    assert_eq!(driver.found(1000, new(&["t1/1", "t2/1", "t3/1", "t4/1"])), [claim]);
    assert_eq!((driver.core.in_hand(), driver.at()), (0, None), "nothing is its own yet");
    assert_eq!(driver.won(1010), ["run t1/1", "run t2/1"]);
    assert_eq!((driver.core.in_hand(), driver.at()), (3, Some(1110)));
    // One is over; its result waits for the others, the next begins at once.
    assert_eq!(driver.ended(1020, "t1/1", OutcomeKind::Succeeded), ["run t3/1"]);
    assert_eq!(driver.at(), Some(1070), "for so long");
    assert_eq!(driver.wake(1069), [""; 0]);
    let results = "write over 3: t1/1 succeeded, t2/1 running, t3/1 running, t4/1 dispatched";
    assert_eq!(driver.wake(1070), [results]);
    assert_eq!(driver.at(), Some(2010), "an answer is under way, and the first to run must end then");
    let claim = "write over 4: t1/1 succeeded, t2/1 running, t3/1 running, t4/1 acked";
    assert_eq!(driver.won(1080), [claim], "there is room in hand now");
    assert_eq!(driver.won(1090), [""; 0]);
    assert_eq!(driver.core.counts(), ClaimerCounts { claimed: 4, ..ClaimerCounts::default() });
    assert_eq!((driver.core.in_hand(), driver.nonces), (3, [2, 3, 4].into()), "its writes are numbered");
}

#[test]
fn the_last_result_in_hand_waits_for_nothing() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1"]);
    assert_eq!(driver.ended(1010, "t1/1", OutcomeKind::Failed), [""; 0]);
    assert_eq!(driver.ended(1020, "t1/1", OutcomeKind::Succeeded), [""; 0], "it has spoken");
    assert_eq!(driver.ended(1030, "t9/1", OutcomeKind::Succeeded), [""; 0], "nobody knows it");
    assert_eq!(driver.ended(1040, "t2/1", OutcomeKind::Partial), ["write over 3: t1/1 failed, t2/1 partial"]);
    assert_eq!(driver.won(1050), [""; 0]);
    assert_eq!(driver.core.in_hand(), 0);
}

#[test]
fn what_takes_too_long_is_given_up_to_the_millisecond() {
    let mut driver = Driver::busy(1000, &["t1/1"]);
    assert_eq!(driver.wake(1100), ["read unless 3"]);
    assert_eq!(driver.at(), Some(2000), "whatever is under way");
    assert_eq!(driver.wake(1999), [""; 0]);
    assert_eq!(driver.wake(2000), ["drop t1/1"]);
    assert_eq!(driver.at(), None);
    assert_eq!(driver.read(2001, Read::Unchanged), ["write over 3: t1/1 timed_out"]);
    assert_eq!(driver.ended(2002, "t1/1", OutcomeKind::Succeeded), [""; 0], "too late");
    driver.won(2003);
    assert_eq!(driver.inbox.entries.iter().map(shown).collect::<Vec<_>>(), ["t1/1 timed_out"]);
}

#[test]
fn a_run_that_must_end_before_the_next_look_wakes_it() {
    let mut driver = Driver::new(ClaimerConfig { fast_ms: 5000, slow_ms: 5000, ..config() });
    driver.wake(1000);
    driver.found(1000, new(&["t1/1"]));
    assert_eq!(driver.won(1000), ["run t1/1"]);
    assert_eq!(driver.at(), Some(2000));
    assert_eq!(driver.wake(2000), ["drop t1/1", "write over 3: t1/1 timed_out"]);
}

#[test]
fn what_the_leader_calls_off_is_stopped_once_and_what_has_not_begun_at_once() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1", "t3/1"]);
    driver.wake(1100);
    let mut entries = driver.inbox.entries.clone();
    entries.iter_mut().filter(|entry| entry.id.as_str() != "t2").for_each(|entry| entry.cancel = true);
    assert_eq!(driver.found(1100, entries.clone()), ["call off t1/1"]);
    assert_eq!(driver.wake(1150), ["write over 4: t1/1 running, t2/1 running, t3/1 cancelled"]);
    assert_eq!(driver.won(1160), [""; 0]);
    driver.wake(1260);
    assert_eq!(driver.found(1260, driver.inbox.entries.clone()), [""; 0], "it was told");
    assert_eq!(driver.ended(1270, "t1/1", OutcomeKind::Cancelled), [""; 0]);
    assert_eq!(driver.wake(1320), ["write over 6: t1/1 cancelled, t2/1 running, t3/1 cancelled"]);
}

#[test]
fn what_is_over_cannot_be_called_off() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1"]);
    assert_eq!(driver.wake(1100), ["read unless 3"]);
    assert_eq!(driver.ended(1110, "t1/1", OutcomeKind::Succeeded), [""; 0]);
    let mut entries = driver.inbox.entries.clone();
    entries[0].cancel = true;
    assert_eq!(driver.found(1120, entries), [""; 0]);
    assert_eq!(driver.wake(1160), ["write over 4: t1/1 succeeded, t2/1 running"]);
}

#[test]
fn an_attempt_that_is_not_there_any_more_is_dropped_and_never_run_again() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1", "t3/1"]);
    driver.ended(1010, "t2/1", OutcomeKind::Succeeded);
    driver.wake(1060);
    assert_eq!(driver.written(1060, WriteAnswer::Lost), ["read unless 3"], "what stands there tells");
    // The leader has taken them out; another attempt of the first is there, another worker's, and so is the second again.
    let other = entry("t3/1", EntryState::Running { by: FORMER });
    let entries = vec![entry("t1/2", EntryState::Dispatched), entry("t2/1", EntryState::Dispatched), other];
    let found = driver.found(1070, entries);
    assert_eq!(found, ["drop t1/1", "drop t3/1", "confirm"]);
    let written = driver.confirmed(1070, true);
    assert_eq!(written, ["write over 4: t1/2 running, t2/1 succeeded, t3/1 abandoned"]);
    let counts = driver.core.counts();
    assert_eq!((counts.orphaned, counts.duplicates, counts.abandoned), (3, 1, 1));
    assert_eq!(driver.won(1080), ["run t1/2"]);
    driver.wake(1180);
    // And once more: what it ran without an end is known to have been begun.
    let entries = vec![driver.inbox.entries[0].clone(), entry("t1/1", EntryState::Dispatched)];
    assert_eq!(driver.found(1180, entries), ["write over 6: t1/2 running, t1/1 abandoned"]);
    assert_eq!(driver.core.counts().duplicates, 2);
}

#[test]
fn what_waited_and_vanished_may_come_again() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1", "t3/1"]);
    driver.wake(1100);
    let two = driver.inbox.entries[..2].to_vec();
    assert_eq!(driver.found(1100, two.clone()), [""; 0], "it had not begun");
    assert_eq!(driver.core.counts().orphaned, 1);
    driver.wake(1200);
    let again = two.into_iter().chain(new(&["t3/1"])).collect();
    assert_eq!(driver.found(1200, again), ["write over 5: t1/1 running, t2/1 running, t3/1 acked"]);
    assert_eq!(driver.core.counts().duplicates, 0);
}

#[test]
fn without_an_inbox_nothing_is_its_own() {
    let mut driver = Driver::busy(1000, &["t1/1"]);
    driver.wake(1100);
    assert_eq!(driver.read(1100, Read::Absent), ["drop t1/1", "write new: "]);
    assert_eq!((driver.core.in_hand(), driver.core.counts().orphaned), (0, 1));
    assert_eq!((driver.won(1100), driver.at()), (Vec::new(), Some(1200)), "it goes on looking");
    assert_eq!(driver.wake(1200), ["read unless 4"]);
}

#[test]
fn what_runs_goes_on_while_the_inbox_cannot_be_read() {
    let mut driver = Driver::busy(1000, &["t1/1"]);
    driver.wake(1100);
    assert_eq!(driver.read(1100, unreadable()), [""; 0]);
    assert_eq!(driver.ended(1150, "t1/1", OutcomeKind::Succeeded), [""; 0]);
    assert_eq!(driver.wake(11_100), ["read"]);
    assert_eq!(driver.found(11_110, driver.inbox.entries.clone()), ["write over 4: t1/1 succeeded"]);
}

#[test]
fn outcomes_are_remembered_for_so_many_attempts() {
    let names: Vec<String> = (0..256).map(|number| format!("t{number}/1")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut driver =
        Driver::new(ClaimerConfig { concurrency: 300, serves: Arc::new(Serves::anything(300)), ..config() });
    driver.wake(1000);
    driver.found(1000, new(&names));
    assert_eq!(driver.won(1000).len(), 256);
    names.iter().for_each(|name| drop(driver.ended(1010, name, OutcomeKind::Succeeded)));
    driver.won(1020);
    assert_eq!(driver.core.in_hand(), 0);
    let again = |driver: &mut Driver, entries: &[&str]| {
        let at = driver.at().expect("it looks");
        driver.wake(at);
        let said = driver.found(at, new(entries));
        (said, driver.core.counts().duplicates)
    };
    // In the order of their ids: t0 was written down first, t1 after it.
    let (said, duplicates) = again(&mut driver, &["t0/1"]);
    assert_eq!((said[0].ends_with("t0/1 succeeded"), duplicates), (true, 1), "the very first: {said:?}");
    driver.won(driver.now);
    let (said, duplicates) = again(&mut driver, &["t0/1", "more/1"]);
    assert_eq!((said[0].ends_with("t0/1 succeeded, more/1 running"), duplicates), (true, 2), "{said:?}");
    driver.won(driver.now);
    driver.ended(driver.now, "more/1", OutcomeKind::Succeeded);
    driver.won(driver.now);
    let (said, duplicates) = again(&mut driver, &["t0/1", "t1/1"]);
    assert!(said[0].ends_with("t0/1 running, t1/1 succeeded"), "the oldest is forgotten: {said:?}");
    assert_eq!(duplicates, 3);
}

#[test]
fn what_the_fence_turns_away_is_left_alone_and_counted_once() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    let write = "write over 2: t1/1 dispatched, t2/1 running";
    assert_eq!(driver.found_fenced(1000, new(&["t1/1", "t2/1"]), &["t1/1"]), [write]);
    assert_eq!(driver.won(1010), ["run t2/1"], "it is still turned away");
    driver.wake(1110);
    let again = driver.inbox.entries.clone();
    assert_eq!(driver.found_fenced(1110, again, &["t1/1"]), [""; 0]);
    assert_eq!(driver.core.counts(), ClaimerCounts { claimed: 1, fenced: 1, ..ClaimerCounts::default() });
    driver.wake(1210);
    let again = driver.inbox.entries.clone();
    assert_eq!(driver.found(1210, again), ["write over 5: t1/1 running, t2/1 running"], "now it is not");
}

#[test]
fn what_a_former_life_claimed_is_abandoned_not_run() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    let entries = vec![
        entry("t1/1", EntryState::Running { by: FORMER }),
        entry("t2/1", EntryState::Acked { by: FORMER }),
        entry("t3/1", EntryState::Finished { outcome: Outcome::bare(OutcomeKind::Failed) }),
    ];
    let mut entries = entries;
    entries[2].payload = Arc::from([]);
    assert_eq!(driver.found(1000, entries), ["confirm"]);
    let over = "write over 2: t1/1 abandoned, t2/1 abandoned, t3/1 failed";
    assert_eq!(driver.confirmed(1000, true), [over], "the id is this life's, so the other is a former one");
    assert_eq!(driver.won(1000), [""; 0]);
    assert_eq!(driver.core.counts(), ClaimerCounts { abandoned: 2, ..ClaimerCounts::default() });
}

/// It stood still, and does not know yet that another life has its id.
#[test]
pub(crate) fn what_a_successor_has_claimed_is_left_alone() {
    let mut driver = Driver::new(config());
    driver.wake(1100);
    let other = entry("t2/1", EntryState::Running { by: SUCCESSOR });
    assert_eq!(driver.found(1100, vec![entry("t3/1", EntryState::Dispatched), other]), ["confirm"]);
    assert_eq!(driver.confirmed(1110, false), [""; 0], "nothing is written, claimed or run");
    let mut at = driver.at().expect("it looks again");
    for _ in 0..3 {
        assert_eq!(driver.wake(at), ["read unless 2"]);
        assert_eq!(driver.read(at, Read::Unchanged), ["confirm"]);
        assert_eq!(driver.confirmed(at, false), [""; 0]);
        let next = driver.at().expect("it looks again");
        assert!(next > at + 100, "not at once: {at}, {next}");
        at = next;
    }
    driver.wake(at);
    driver.read(at, Read::Unchanged);
    let written = driver.confirmed(at, true);
    assert_eq!(written, ["write over 2: t3/1 running, t2/1 abandoned"], "should it be its own");
}

#[test]
fn a_confirmation_is_good_for_the_inbox_it_was_asked_for() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    assert_eq!(driver.found(1000, vec![entry("t1/1", EntryState::Running { by: FORMER })]), ["confirm"]);
    assert_eq!(
        driver.tell(1001, Input::Answer(RequestId(99), ClaimerAnswer::Confirmed(true))),
        [""; 0],
        "nobody asked that"
    );
    assert_eq!(driver.confirmed(1002, true), ["write over 2: t1/1 abandoned"]);
    assert_eq!(driver.written(1003, WriteAnswer::Lost), ["read unless 2"]);
    let entries = vec![entry("t1/1", EntryState::Running { by: SUCCESSOR })];
    assert_eq!(driver.found(1004, entries), ["confirm"], "somebody else has come meanwhile");
}

#[test]
fn a_write_of_unknown_outcome_is_read_back_after_a_pause_that_grows() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    driver.found(1000, new(&["t1/1"]));
    assert_eq!(driver.written(1000, WriteAnswer::Unknown), [""; 0]);
    for (at, next) in [(1200, 1600), (1600, 2400), (2400, 4000)] {
        assert_eq!((driver.at(), driver.wake(at - 1)), (Some(at), Vec::new()));
        assert_eq!(driver.wake(at), ["read unless 2"]);
        assert_eq!(driver.read(at, Read::Unavailable), [""; 0]);
        assert_eq!(driver.at(), Some(next));
    }
    driver.wake(4000);
    let landed = vec![entry("t1/1", EntryState::Running { by: ME })];
    assert_eq!(driver.found(4000, landed), ["run t1/1"]);
    assert_eq!(driver.at(), Some(4100), "all is well again");
}

#[test]
fn a_refused_write_is_tried_again_after_a_look_and_an_unavailable_one_after_a_pause() {
    for answer in [WriteAnswer::Lost, WriteAnswer::Unavailable, WriteAnswer::Denied] {
        let mut driver = Driver::new(config());
        driver.wake(1000);
        driver.found(1000, new(&["t1/1"]));
        let lost = answer == WriteAnswer::Lost;
        let said = driver.written(1000, answer);
        let (at, said) = if lost {
            assert_eq!(said, ["read unless 2"]);
            let read = driver.stands();
            (1000, driver.read(1000, read))
        } else {
            (1200, [said, driver.wake(1199), driver.wake(1200)].concat())
        };
        assert_eq!(said, ["write over 2: t1/1 running"]);
        assert_eq!(driver.won(at), ["run t1/1"]);
    }
}

#[test]
fn failures_are_forgotten_with_the_first_answer() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    assert_eq!(driver.read(1000, Read::Unavailable), [""; 0]);
    assert_eq!(driver.at(), Some(1200));
    driver.wake(1200);
    driver.found(1200, new(&["t1/1"]));
    driver.written(1200, WriteAnswer::Unavailable);
    assert_eq!(driver.at(), Some(1400), "as if it were the first");
    driver.wake(1400);
    driver.won(1400);
    driver.wake(1500);
    driver.read(1500, Read::Unavailable);
    assert_eq!(driver.at(), Some(1700), "again");
}

#[test]
fn a_result_waits_while_the_store_does_not_answer() {
    let mut driver = Driver::busy(1000, &["t1/1"]);
    driver.wake(1100);
    assert_eq!(driver.read(1100, Read::Unavailable), [""; 0]);
    assert_eq!(driver.ended(1200, "t1/1", OutcomeKind::Succeeded), [""; 0]);
    assert_eq!(driver.wake(1250), [""; 0], "not when its time to wait for others is over");
    assert_eq!((driver.at(), driver.wake(1299)), (Some(1300), Vec::new()));
    assert_eq!(driver.wake(1300), ["read unless 3"]);
    assert_eq!(driver.read(1300, Read::Unchanged), ["write over 3: t1/1 succeeded"], "once it answers");
}

#[test]
fn an_answer_that_is_not_the_one_it_waits_for_changes_nothing() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    let stranger = RequestId(99);
    assert_eq!(driver.tell(1000, read_answer(stranger, Read::Absent)), [""; 0]);
    driver.found(1000, new(&["t1/1"]));
    let before = driver.core.clone();
    let won = WriteAnswer::Won(Version::new("9"));
    assert_eq!(driver.tell(1000, write_answer(stranger, won)), [""; 0]);
    assert_eq!(driver.tell(1000, read_answer(stranger, Read::Absent)), [""; 0]);
    assert_eq!(driver.core, before);
    assert_eq!(driver.won(1000), ["run t1/1"]);
}

/// Looks after the last result, in vain: their times from then on.
fn looks_after(driver: &mut Driver, looks: usize) -> Vec<u64> {
    let began = driver.now;
    (0..looks)
        .map(|_| {
            let at = driver.at().expect("it looks");
            assert!(driver.wake(at)[0].starts_with("read"));
            driver.read(at, Read::Unchanged);
            at - began
        })
        .collect()
}

#[test]
fn after_the_last_result_it_looks_seldom_unless_work_keeps_coming() {
    // The first work came long after the start: nothing keeps coming.
    let mut driver = Driver::busy(1700, &["t1/1"]);
    driver.ended(1710, "t1/1", OutcomeKind::Succeeded);
    driver.won(1720);
    assert_eq!(looks_after(&mut driver, 3), [400, 1200, 2000]);
    // More of it 1.6 s later, and still not steady: that came too late by one millisecond.
    let mut driver = Driver::busy(1700, &["t1/1"]);
    driver.ended(1710, "t1/1", OutcomeKind::Succeeded);
    driver.won(1720);
    driver.look(3321);
    driver.found(3321, new(&["t2/1"]));
    driver.won(3321);
    driver.ended(3330, "t2/1", OutcomeKind::Succeeded);
    driver.won(3330);
    assert_eq!(looks_after(&mut driver, 2), [400, 1200]);
    // This one not.
    driver.look(4900);
    driver.found(4930, new(&["t3/1"]));
    driver.won(4930);
    driver.ended(4940, "t3/1", OutcomeKind::Succeeded);
    driver.won(4940);
    assert_eq!(looks_after(&mut driver, 7), [100, 200, 300, 400, 500, 600, 800], "four more quick ones");
}

#[test]
fn whether_work_keeps_coming_is_told_by_new_work_with_nothing_in_hand() {
    let mut driver = Driver::busy(1000, &["t1/1"]);
    // Soon after the start: steady. What comes later beside it, or is not new, does not change that.
    driver.wake(1100);
    let beside = driver.inbox.entries.iter().cloned().chain(new(&["t2/1"])).collect();
    driver.found(1900, beside);
    driver.won(1900);
    driver.ended(1910, "t1/1", OutcomeKind::Succeeded);
    driver.ended(1910, "t2/1", OutcomeKind::Succeeded);
    driver.won(1910);
    assert_eq!(looks_after(&mut driver, 2), [100, 200]);
    // Something changed, with nothing new in it.
    driver.look(9000);
    driver.found(9000, driver.inbox.entries.clone());
    driver.wake(9100);
    driver.found(9100, Vec::new());
    let former = vec![entry("t3/1", EntryState::Running { by: FORMER })];
    driver.wake(9200);
    driver.found(9200, former);
    driver.confirmed(9200, true);
    driver.won(9200);
    assert_eq!(looks_after(&mut driver, 2), [100, 200]);
}

#[test]
fn draining_gives_back_what_has_not_begun_ends_what_runs_and_closes_the_inbox() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1", "t3/1", "t4/1"]);
    let closing = "write over 3: t1/1 running, t2/1 running, t3/1 returned, t4/1 returned closed";
    assert_eq!(driver.drain(1010), [closing]);
    assert_eq!(driver.won(1020), [""; 0]);
    assert_eq!(driver.core.in_hand(), 2);
    assert_eq!(driver.ended(1030, "t1/1", OutcomeKind::Succeeded), [""; 0]);
    let last = "write over 4: t1/1 succeeded, t2/1 succeeded, t3/1 returned, t4/1 returned closed";
    assert_eq!(driver.ended(1040, "t2/1", OutcomeKind::Succeeded), [last]);
    assert_eq!(driver.won(1050), ["drained"]);
    assert_eq!((driver.at(), driver.wake(9000)), (None, Vec::new()), "it is over");
    assert_eq!(driver.look(9001), [""; 0]);
}

#[test]
fn draining_does_not_end_before_the_inbox_was_read() {
    let mut driver = Driver::new(config());
    assert_eq!(driver.drain(1000), ["read"]);
    assert_eq!(driver.read(1000, Read::Unavailable), [""; 0], "what stands there is not known");
    assert_eq!(driver.wake(1400), ["read"]);
    assert_eq!(driver.read(1400, Read::Absent), ["drained"], "there is nothing to close");
}

#[test]
fn a_write_under_way_is_waited_for_before_it_is_drained() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    driver.found(1000, Vec::new());
    assert_eq!(driver.drain(1010), ["write over 2:  closed"]);
    assert_eq!(driver.written(1010, WriteAnswer::Unknown), [""; 0], "perhaps it did not land");
    assert_eq!(driver.wake(1210), ["read unless 2"]);
    assert_eq!(driver.read(1210, Read::Unchanged), ["write over 2:  closed"]);
    assert_eq!(driver.won(1220), ["drained"]);
}

#[test]
fn the_next_life_opens_what_the_former_closed() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    driver.inbox.closed = Some(FORMER);
    assert_eq!(driver.found(1000, Vec::new()), ["confirm"]);
    assert_eq!(driver.confirmed(1000, true), ["write over 2: "]);
    driver.won(1000);
    assert_eq!(driver.inbox.closed, None);
}

#[test]
fn qu6_how_far_an_attempt_is_is_written_now_and_then() {
    let mut driver = Driver::busy(1000, &["t1/1", "t2/1"]);
    let says = |driver: &mut Driver, now, percent| {
        let (id, dispatch) = ("t1".parse().expect("valid"), 1);
        let progress = Progress::new(percent, "copying");
        driver.tell(now, Input::Command(ClaimerCommand::Progress { id, dispatch, progress }))
    };
    let written =
        |driver: &Driver| driver.inbox.entries[0].progress.as_ref().map(|progress| progress.percent);
    assert_eq!(
        says(&mut driver, 1010, 10),
        ["write over 3: t1/1 running, t2/1 running"],
        "the first at once"
    );
    driver.won(1010);
    assert_eq!(written(&driver), Some(10));
    assert_eq!(says(&mut driver, 1020, 20), [""; 0]);
    assert_eq!(says(&mut driver, 1030, 30), [""; 0], "not more than once in a while");
    let results = driver.ended(1040, "t2/1", OutcomeKind::Succeeded);
    assert_eq!(results, [""; 0]);
    assert_eq!(
        driver.wake(1090),
        ["write over 4: t1/1 running, t2/1 succeeded"],
        "but with whatever is written"
    );
    driver.won(1090);
    assert_eq!(written(&driver), Some(30));
    assert_eq!(says(&mut driver, 1100, 30), [""; 0], "nothing new");
    says(&mut driver, 1110, 40);
    let mut now = 1110;
    while written(&driver) != Some(40) {
        now = driver.at().expect("it is to be written");
        for words in driver.wake(now) {
            match words.starts_with("read") {
                true => drop(driver.read(now, Read::Unchanged)),
                false => drop(driver.won(now)),
            }
        }
    }
    assert_eq!(now, 1890, "one idle interval after the last");
    driver.ended(1900, "t1/1", OutcomeKind::Succeeded);
    driver.won(1900);
    assert_eq!(written(&driver), None, "it is over");
    let long = Progress::new(200, &format!("{}\nmore", "ä".repeat(150)));
    assert_eq!((long.percent, long.text.len()), (100, 200));
}
