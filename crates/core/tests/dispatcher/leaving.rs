//! When a leader lets go of the inbox of a worker that is gone.

use crate::dispatcher::driver::*;
use tenure_core::document::DocumentRequest;
use tenure_core::*;

#[test]
fn the_inbox_of_a_worker_that_is_gone_for_good_is_emptied_and_removed() {
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 8, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.workers(2500, &["w2"]);
    driver.workers(4000, &["w2"]);
    driver.serve();
    driver.pass(7499);
    assert!(driver.inboxes.contains_key(&name("w1")));
    let story = driver.pass(7500);
    assert_eq!(story, ["7500 remove w1"]);
    assert_eq!(driver.pass(60_000), [""; 0], "and forgotten");
}

#[test]
fn a_worker_that_was_silent_first_is_gone_from_when_it_is_not_there_any_more() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.workers(2500, &["-w1", "w2"]);
    driver.serve();
    driver.pass(7999);
    driver.workers(8000, &["w2"]);
    driver.serve();
    assert_eq!(driver.pass(20_000), ["13000 remove w1"]);
}

#[test]
fn a_job_that_never_got_into_the_inbox_of_a_worker_that_is_gone_is_not_forgotten() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    driver.assign(2000, "t1", "w1");
    driver.answer("write ledger");
    driver.workers(2000, &["w2"]);
    while driver.now < 9000 {
        match driver.open.first() {
            Some((_, DispatchRequest::Inbox(_, DocumentRequest::Write { .. }))) => {
                driver.written("write w1", WriteAnswer::Unavailable)
            }
            Some(_) => driver.answer("read w1"),
            None => driver.wake(driver.at().expect("it goes on")),
        };
    }
    assert_eq!(driver.state("t1"), JobState::Dispatched, "whether it got there is not known");
    driver.serve();
    driver.pass(30_000);
    assert_eq!(driver.state("t1"), JobState::Queued);
}

/// One whose worker w1 has an inbox that cannot be read, with nothing dispatched to it but this.
fn unreadable(id: &str) -> Driver {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t0"), "w1");
    driver.all(2000, cancel("t0"));
    driver.submit(2100, vec![job(id)]);
    driver.serve();
    driver.assign(2100, id, "w1");
    driver.answer("write ledger");
    driver.written("write w1", WriteAnswer::Lost);
    driver.inbox_read("w1", nonsense());
    driver
}

#[test]
fn an_inbox_that_cannot_be_read_is_remembered_as_such_whoever_is_gone() {
    let mut driver = unreadable("t1");
    driver.wake(5100);
    assert_eq!(driver.state("t1"), JobState::Lost);
    driver.answer("write ledger");
    driver.workers(5200, &["w2"]);
    for now in [10_199, 10_200, 12_099] {
        driver.wake(now);
        assert_eq!(driver.open.len(), 0, "it is left alone");
    }
    assert_eq!(driver.wake(12_100), ["read w1"], "now and then somebody looks whether it is well again");
    driver.inbox_read("w1", nonsense());
    driver.wake(13_000);
    assert_eq!(driver.open.len(), 0, "it is left alone");
    driver.workers(13_000, &["w1", "w2"]);
    driver.submit(13_000, vec![job("t2")]);
    driver.answer("write ledger");
    driver.assign(13_000, "t2", "w1");
    assert_eq!(&*driver.record("t2").reason, "the inbox of worker w1 cannot be read");
}

#[test]
fn what_is_being_withdrawn_from_an_unreadable_inbox_is_given_up_in_time() {
    let mut driver = unreadable("t1");
    driver.tell(2150, cancel("t1"));
    driver.wake(5099);
    assert_eq!((driver.state("t1"), driver.at()), (JobState::Dispatched, Some(5100)));
    driver.wake(5100);
    assert_eq!(driver.state("t1"), JobState::Cancelled, "the time of a claim after it was dispatched");
}

#[test]
fn a_worker_that_is_only_silent_keeps_its_inbox() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.workers(2500, &["-w1", "w2"]);
    driver.serve();
    driver.pass(60_000);
    assert!(driver.inboxes.contains_key(&name("w1")));
}

#[test]
fn a_worker_that_was_heard_of_again_keeps_its_inbox() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.workers(2500, &["w2"]);
    driver.workers(7400, &["w1", "w2"]);
    driver.workers(7450, &["w2"]);
    driver.serve();
    driver.pass(12_449);
    assert!(driver.inboxes.contains_key(&name("w1")));
    let story = driver.pass(12_450);
    assert!(!driver.inboxes.contains_key(&name("w1")), "{story:?}");
}

#[test]
fn a_removal_without_an_answer_is_looked_into() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.workers(2500, &["w2"]);
    driver.pass(7499);
    assert_eq!(driver.wake(7500), ["remove w1"]);
    assert_eq!(driver.unanswered("remove w1"), [""; 0]);
    assert_eq!((driver.at(), driver.wake(7699)), (Some(7700), Vec::new()));
    assert!(driver.wake(7700)[0].starts_with("read w1"));
    assert_eq!(driver.answer("read w1"), ["remove w1"], "it is still there");
    driver.inboxes.clear();
    driver.unanswered("remove w1");
    driver.wake(driver.at().expect("another look"));
    assert_eq!(driver.answer("read w1"), [""; 0], "it is gone");
    assert_eq!(driver.pass(60_000), [""; 0]);
}

#[test]
fn an_inbox_of_a_former_leader_is_fenced_before_it_is_removed() {
    let mut driver = Driver::new(config());
    driver.left(Vec::new(), vec![("w1", inbox(Vec::new()))]);
    driver.workers(1000, &["w2"]);
    driver.serve();
    assert_eq!(driver.pass(5999), ["1200 ."]);
    assert_eq!(driver.pass(6000), ["6000 write w1 over 2: ; remove w1"]);
}

#[test]
fn what_is_out_keeps_an_inbox_whoever_is_gone() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    driver.workers(2300, &["w2"]);
    assert_eq!(driver.unanswered("read w1"), [""; 0], "whether it has ended it is not known");
    driver.pass(7000);
    assert_eq!(driver.state("t1"), JobState::Lost);
    assert!(driver.inboxes.contains_key(&name("w1")), "its entry is there");
}
