//! How often a leader looks at the inboxes of its workers, and what it learns from a list.

use crate::desk::*;
use tenure_core::machine::Input;
use tenure_core::*;

fn looks(story: &[String]) -> Vec<u64> {
    let looks = story.iter().filter(|line| line.contains(" read w") || line.contains(" list"));
    looks.map(|line| line.split_once(' ').expect("a time").0.parse().expect("a number")).collect()
}

// ---- looking ----

#[test]
fn as_long_as_nothing_is_claimed_it_looks_seldom_and_more_and_more_so() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.dispatch(2000, job("t1"), "w1");
    assert_eq!(looks(&desk.pass(6000)), [2200, 3000, 4000, 5000, 6000]);
}

#[test]
fn what_is_claimed_is_looked_at_more_often() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, JobRecord { limits: long(), ..job("t1") }, "w1");
    desk.says("w1", "t1/1", running());
    let story = desk.pass(6000);
    assert_eq!(looks(&story), [2200, 2400, 2800, 3600, 4600, 5600]);
}

fn long() -> JobLimits {
    JobLimits { timeout_ms: 100_000, ..job("x").limits }
}

#[test]
fn where_something_keeps_moving_four_looks_in_vain_stay_quick() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, JobRecord { limits: long(), ..job("t1") }, "w1");
    desk.says("w1", "t1/1", acked());
    desk.pass(2200);
    desk.says("w1", "t1/1", running());
    assert_eq!(looks(&desk.pass(2400)), [2400], "twice in a short time");
    assert_eq!(looks(&desk.pass(4400)), [2500, 2600, 2700, 2800, 2900, 3100, 3500, 4300]);
    // Two slow intervals later that counts as moving still; a millisecond more and it does not.
    let mut late = desk.clone();
    desk.work("w1", |_| {});
    desk.now = 4400;
    let story = desk.pass(5300);
    assert_eq!(looks(&story), [5300]);
    assert_eq!(looks(&desk.pass(5700)), [5400, 5600], "it was too long ago");
    late.work("w1", |_| {});
    late.tell(4400, Input::Wake);
    assert_eq!(looks(&late.pass(5300)), [5300]);
}

#[test]
fn where_something_keeps_moving_the_first_look_after_a_dispatch_is_quick_too() {
    let mut desk = Desk::ready(config());
    for (id, now, look) in [("t1", 2000, 2200), ("t2", 2300, 2400)] {
        desk.dispatch(now, job(id), "w1");
        desk.says("w1", &format!("{id}/1"), done(OutcomeKind::Succeeded));
        assert_eq!(looks(&desk.pass(look + 100)), [look]);
    }
    desk.dispatch(2700, job("t3"), "w1");
    assert_eq!(looks(&desk.pass(2800)), [2800]);
}

#[test]
fn an_answer_that_takes_until_the_next_look_counts_for_it() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.wake(2200);
    desk.says("w1", "t1/1", acked());
    assert_eq!(desk.at(), Some(3000));
    desk.now = 3000;
    assert_eq!(desk.answer("read w1"), ["= t1 acked w1/1"], "and is not asked for at once again");
    assert_eq!(desk.at(), Some(3200));
}

#[test]
fn a_dispatch_does_not_put_off_the_next_look() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.dispatch(2150, job("t2"), "w1");
    assert_eq!(looks(&desk.pass(2300)), [2200]);
    desk.dispatch(2300, job("t3"), "w1");
    assert_eq!(looks(&desk.pass(2600)), [2500], "and brings it forward");
}

#[test]
fn up_to_two_inboxes_are_read_each_and_three_are_listed() {
    let mut desk = Desk::ready(config());
    desk.workers(1500, &["w1", "w2", "w3"]);
    desk.dispatch(2000, job("t1"), "w1");
    desk.dispatch(2000, job("t2"), "w2");
    assert_eq!(desk.wake(2200), ["read w1 unless 5", "read w2 unless 9"]);
    desk.serve();
    desk.dispatch(2300, job("t3"), "w3");
    desk.says("w2", "t2/1", acked());
    assert_eq!(desk.wake(2500), ["list"]);
    assert_eq!(desk.answer("list"), ["read w2 unless 9"], "only what has changed");
    assert_eq!(desk.serve(), ["= t2 acked w2/1"]);
    // One list at a time, and a pause after one that failed.
    desk.wake(desk.at().expect("a look"));
    assert_eq!(desk.open.len(), 1);
    let again = desk.at().expect("the next look");
    assert_eq!(desk.wake(again), [""; 0]);
    desk.unanswered("list");
    let failed = desk.now;
    let story = desk.pass(failed + 2500);
    let lists = looks(&story);
    assert!(lists[0] >= failed + 1000, "{failed}: {story:?}");
}

#[test]
fn an_inbox_in_trouble_is_not_read_before_its_time() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    assert_eq!(desk.wake(2200), ["read w1 unless 5"]);
    assert_eq!(desk.unanswered("read w1"), [""; 0]);
    assert_eq!(desk.at(), Some(2400), "the end of its pause");
    desk.workers(2210, &["w1", "w2", "w3"]);
    assert_eq!(looks(&desk.pass(3000)), [2400, 3000]);
}

#[test]
fn nothing_is_looked_at_where_nothing_is_expected() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    let story = desk.pass(20_000);
    assert_eq!(story, ["2400 .", "6200 write w1 over 6: ", "6400 ."]);
}

#[test]
fn a_worker_that_drains_is_watched_until_it_is_gone() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.work("w1", |doc| {
        doc.closed = Some(LIFE);
        doc.entries[0].state = done(OutcomeKind::Returned);
    });
    desk.pass(2200);
    assert_eq!(desk.core.draining().collect::<Vec<_>>(), [&name("w1")]);
    assert_eq!(desk.state("t1"), JobState::Queued);
    assert!(!desk.core.has_room(&name("w1"), 0));
    desk.assign(2200, "t1", "w1");
    assert_eq!(&*desk.record("t1").reason, "worker w1 drains");
    assert!(looks(&desk.pass(4000)).len() > 1);
    desk.workers(4000, &["-w1", "w2"]);
    desk.serve();
    assert_eq!(looks(&desk.pass(20_000)), [0; 0], "nobody is there to open it");
    desk.workers(20_000, &["w1", "w2"]);
    desk.work("w1", |doc| doc.closed = None);
    desk.pass(23_000);
    assert_eq!(desk.core.draining().count(), 0);
}

#[test]
fn what_waits_at_a_worker_that_drains_goes_to_another() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, job("t1"), "w1");
    desk.work("w1", |doc| doc.closed = Some(LIFE));
    let story = desk.pass(2200);
    assert_eq!((desk.state("t1"), desk.record("t1").begun()), (JobState::Queued, 0), "{story:?}");
    assert_eq!(desk.inboxes[&name("w1")].0.closed, Some(LIFE), "that is the worker's to say");
}

#[test]
fn what_a_worker_gone_still_has_claimed_is_not_watched() {
    let strange = inbox(vec![entry("t9/1", running())]);
    let other = JobRecord { attempt: 2, ..out("t9", "w2", JobState::Running) };
    let w2 = inbox(vec![entry("t9/2", running())]);
    let mut desk = Desk::after(vec![other], vec![("w1", strange), ("w2", w2)]);
    desk.serve();
    // It was called off there; as long as its worker lives it is looked at.
    assert!(desk.inboxes[&name("w1")].0.entries[0].cancel);
    let story = desk.pass(2000);
    assert!(story.iter().any(|line| line.contains("read w1")), "{story:#?}");
    desk.workers(2000, &["w2", "-w1"]);
    desk.serve();
    let story = desk.pass(3000);
    assert!(!story.iter().any(|line| line.contains("read w1")), "{story:#?}");
}

// ---- lists ----

#[test]
fn a_list_shows_what_has_changed_since_the_last_look() {
    let mut desk = Desk::ready(config());
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, job(id), worker);
    }
    assert_eq!(desk.wake(2200), ["list"]);
    assert_eq!(desk.answer("list"), [""; 0], "nothing has");
}

/// Three inboxes, so that they are listed; each list is answered with these changes.
fn listed(change: impl Fn(&mut InboxListed)) -> (Desk, Vec<Vec<String>>) {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, job(id), worker);
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        desk.wake(desk.at().expect("a look"));
        let (id, _) = desk.take("list");
        let mut lines = desk.lines();
        lines.iter_mut().for_each(&change);
        let mut said = desk.tell(desk.now, list_answer(id, Some(lines)));
        said.extend(desk.serve());
        told.push(said);
    }
    (desk, told)
}

#[test]
fn where_lists_name_no_versions_their_stamps_are_compared() {
    let (mut desk, told) = listed(|line| line.version = None);
    assert_eq!(told[0], ["read w1 unless 5", "read w2 unless 9", "read w3 unless 13"], "no stamp is known");
    assert_eq!(told[1..], [vec![""; 0], vec![""; 0]], "they are the same");
    desk.says("w2", "t2/1", acked());
    desk.wake(desk.at().expect("a look"));
    let (id, _) = desk.take("list");
    let mut lines = desk.lines();
    lines.iter_mut().for_each(|line| line.version = None);
    assert_eq!(desk.tell(desk.now, list_answer(id, Some(lines))), ["read w2 unless 9"]);
}

#[test]
fn where_lists_spell_versions_in_another_way_their_stamps_are_compared_from_then_on() {
    let (mut desk, told) = listed(|line| line.version = Some(Version::new("other")));
    assert_eq!(told[0], ["read w1 unless 5", "read w2 unless 9", "read w3 unless 13"], "called changed");
    assert_eq!(told[1..], [vec![""; 0], vec![""; 0]], "and were not");
    // A version that happens to be the same proves nothing any more, another stamp does.
    desk.wake(desk.at().expect("a look"));
    let (id, _) = desk.take("list");
    let mut lines = desk.lines();
    lines[1].stamp.1 += 1;
    assert_eq!(desk.tell(desk.now, list_answer(id, Some(lines))), ["read w2 unless 9"]);
}

#[test]
fn a_read_in_vain_that_no_list_asked_for_says_nothing_about_lists() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    desk.dispatch(2000, job("t1"), "w1");
    desk.wake(2200);
    assert_eq!(desk.answer("read w1"), [""; 0], "unchanged");
    for (id, worker) in [("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2300, job(id), worker);
    }
    desk.wake(desk.at().expect("a look"));
    // By their versions they are the same, whatever the stamps.
    assert_eq!(desk.answer("list"), [""; 0]);
}

#[test]
fn a_list_that_showed_no_change_is_no_reason_to_doubt_lists() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, job(id), worker);
    }
    desk.wake(2200);
    assert_eq!(desk.answer("list"), [""; 0], "nothing has changed");
    // Two are left, so they are read, in vain.
    desk.all(2300, cancel("t3"));
    let story = desk.pass(3000);
    assert_eq!(story, ["2500 read w1 unless 5; read w2 unless 9"]);
    desk.dispatch(3100, job("t4"), "w3");
    desk.wake(desk.at().expect("a look"));
    // Another version with the same stamp: it has changed.
    desk.says("w1", "t1/1", acked());
    let (id, _) = desk.take("list");
    let mut lines = desk.lines();
    lines[0].stamp = (5, 0);
    assert_eq!(desk.tell(desk.now, list_answer(id, Some(lines))), ["read w1 unless 5"]);
}

#[test]
fn a_list_that_failed_is_made_up_for_with_the_next_look_and_wakes_nobody() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, job(id), worker);
    }
    desk.pass(3000);
    assert_eq!(desk.wake(4000), ["list"]);
    desk.now = 4050;
    desk.unanswered("list");
    assert_eq!((desk.at(), desk.wake(5000)), (Some(5000), Vec::new()), "too soon");
    assert_eq!(desk.at(), Some(6000));
    assert_eq!(desk.wake(6000), ["list"]);
}

#[test]
fn an_inbox_that_is_missing_from_a_list_is_read() {
    let mut desk = Desk::ready(config());
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, job(id), worker);
    }
    desk.wake(2200);
    let (id, _) = desk.take("list");
    let lines = desk.lines().into_iter().filter(|line| line.worker.as_str() != "w2").collect();
    assert_eq!(desk.tell(2200, list_answer(id, Some(lines))), ["read w2 unless 9"]);
    assert_eq!(desk.serve(), [""; 0], "it was there after all");
}

#[test]
fn what_is_under_way_answers_with_something_newer_than_a_list() {
    let mut desk = Desk::ready(config());
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, job(id), worker);
    }
    desk.wake(2200);
    let (id, _) = desk.take("list");
    let lines = desk.lines();
    // Meanwhile more is dispatched to the first, which the list does not show; the second is not on it at all.
    desk.submit(2200, vec![job("t4"), job("t5")]);
    desk.serve();
    desk.assign(2200, "t4", "w1");
    desk.assign(2200, "t5", "w2");
    desk.answer("write ledger");
    desk.answer("write ledger");
    assert_eq!(desk.open.len(), 2, "{:?}", desk.open);
    let mut lines = lines;
    lines[0].version = Some(Version::new("old"));
    lines.remove(1);
    assert_eq!(desk.tell(2200, list_answer(id, Some(lines))), [""; 0]);
    assert_eq!(desk.serve(), [""; 0], "nothing is read");
}
