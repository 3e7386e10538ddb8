//! When a leader lets go of the inbox of a worker that is gone.

use crate::desk::*;
use tenure_core::document::DocumentRequest;
use tenure_core::*;

#[test]
fn the_inbox_of_a_worker_that_is_gone_for_good_is_emptied_and_removed() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 8, ..config() });
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.workers(2500, &["w2"]);
    desk.workers(4000, &["w2"]);
    desk.serve();
    desk.pass(7499);
    assert!(desk.inboxes.contains_key(&name("w1")));
    let story = desk.pass(7500);
    assert_eq!(story, ["7500 remove w1"]);
    assert_eq!(desk.pass(60_000), [""; 0], "and forgotten");
}

#[test]
fn a_worker_that_was_silent_first_is_gone_from_when_it_is_not_there_any_more() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.workers(2500, &["-w1", "w2"]);
    desk.serve();
    desk.pass(7999);
    desk.workers(8000, &["w2"]);
    desk.serve();
    assert_eq!(desk.pass(20_000), ["13000 remove w1"]);
}

#[test]
fn a_job_that_never_got_into_the_inbox_of_a_worker_that_is_gone_is_not_forgotten() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![job("t1")]);
    desk.serve();
    desk.assign(2000, "t1", "w1");
    desk.answer("write ledger");
    desk.workers(2000, &["w2"]);
    while desk.now < 9000 {
        match desk.open.first() {
            Some((_, DispatchRequest::Inbox(_, DocumentRequest::Write { .. }))) => {
                desk.written("write w1", WriteAnswer::Unavailable)
            }
            Some(_) => desk.answer("read w1"),
            None => desk.wake(desk.at().expect("it goes on")),
        };
    }
    assert_eq!(desk.state("t1"), JobState::Dispatched, "whether it got there is not known");
    desk.serve();
    desk.pass(30_000);
    assert_eq!(desk.state("t1"), JobState::Queued);
}

/// One whose worker w1 has an inbox that cannot be read, with nothing dispatched to it but this.
fn unreadable(id: &str) -> Desk {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t0"), "w1");
    desk.all(2000, cancel("t0"));
    desk.submit(2100, vec![job(id)]);
    desk.serve();
    desk.assign(2100, id, "w1");
    desk.answer("write ledger");
    desk.written("write w1", WriteAnswer::Lost);
    desk.inbox_read("w1", nonsense());
    desk
}

#[test]
fn an_inbox_that_cannot_be_read_is_remembered_as_such_whoever_is_gone() {
    let mut desk = unreadable("t1");
    desk.wake(5100);
    assert_eq!(desk.state("t1"), JobState::Lost);
    desk.answer("write ledger");
    desk.workers(5200, &["w2"]);
    for now in [10_199, 10_200, 12_099] {
        desk.wake(now);
        assert_eq!(desk.open.len(), 0, "it is left alone");
    }
    assert_eq!(desk.wake(12_100), ["read w1"], "now and then somebody looks whether it is well again");
    desk.inbox_read("w1", nonsense());
    desk.wake(13_000);
    assert_eq!(desk.open.len(), 0, "it is left alone");
    desk.workers(13_000, &["w1", "w2"]);
    desk.submit(13_000, vec![job("t2")]);
    desk.answer("write ledger");
    desk.assign(13_000, "t2", "w1");
    assert_eq!(&*desk.record("t2").reason, "the inbox of worker w1 cannot be read");
}

#[test]
fn what_is_being_withdrawn_from_an_unreadable_inbox_is_given_up_in_time() {
    let mut desk = unreadable("t1");
    desk.tell(2150, cancel("t1"));
    desk.wake(5099);
    assert_eq!((desk.state("t1"), desk.at()), (JobState::Dispatched, Some(5100)));
    desk.wake(5100);
    assert_eq!(desk.state("t1"), JobState::Cancelled, "the time of a claim after it was dispatched");
}

#[test]
fn a_worker_that_is_only_silent_keeps_its_inbox() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.workers(2500, &["-w1", "w2"]);
    desk.serve();
    desk.pass(60_000);
    assert!(desk.inboxes.contains_key(&name("w1")));
}

#[test]
fn a_worker_that_was_heard_of_again_keeps_its_inbox() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.workers(2500, &["w2"]);
    desk.workers(7400, &["w1", "w2"]);
    desk.workers(7450, &["w2"]);
    desk.serve();
    desk.pass(12_449);
    assert!(desk.inboxes.contains_key(&name("w1")));
    let story = desk.pass(12_450);
    assert!(!desk.inboxes.contains_key(&name("w1")), "{story:?}");
}

#[test]
fn a_removal_without_an_answer_is_looked_into() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.workers(2500, &["w2"]);
    desk.pass(7499);
    assert_eq!(desk.wake(7500), ["remove w1"]);
    assert_eq!(desk.unanswered("remove w1"), [""; 0]);
    assert_eq!((desk.at(), desk.wake(7699)), (Some(7700), Vec::new()));
    assert!(desk.wake(7700)[0].starts_with("read w1"));
    assert_eq!(desk.answer("read w1"), ["remove w1"], "it is still there");
    desk.inboxes.clear();
    desk.unanswered("remove w1");
    desk.wake(desk.at().expect("another look"));
    assert_eq!(desk.answer("read w1"), [""; 0], "it is gone");
    assert_eq!(desk.pass(60_000), [""; 0]);
}

#[test]
fn an_inbox_of_a_former_leader_is_fenced_before_it_is_removed() {
    let mut desk = Desk::new(config());
    desk.left(Vec::new(), vec![("w1", inbox(Vec::new()))]);
    desk.workers(1000, &["w2"]);
    desk.serve();
    assert_eq!(desk.pass(5999), ["1200 ."]);
    assert_eq!(desk.pass(6000), ["6000 write w1 over 2: ; remove w1"]);
}

#[test]
fn what_is_out_keeps_an_inbox_whoever_is_gone() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.workers(2300, &["w2"]);
    assert_eq!(desk.unanswered("read w1"), [""; 0], "whether it has ended it is not known");
    desk.pass(7000);
    assert_eq!(desk.state("t1"), JobState::Lost);
    assert!(desk.inboxes.contains_key(&name("w1")), "its entry is there");
}
