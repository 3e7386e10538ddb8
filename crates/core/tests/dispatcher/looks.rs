//! How often a leader looks at the inboxes of its workers, and what it learns from a list.

use crate::dispatcher::driver::*;
use tenure_core::machine::Input;
use tenure_core::*;

fn looks(story: &[String]) -> Vec<u64> {
    let looks = story.iter().filter(|line| line.contains(" read w") || line.contains(" list"));
    looks.map(|line| line.split_once(' ').expect("a time").0.parse().expect("a number")).collect()
}

// ---- looking ----

#[test]
fn as_long_as_nothing_is_claimed_it_looks_seldom_and_more_and_more_so() {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    assert_eq!(looks(&driver.pass(6000)), [2200, 3000, 4000, 5000, 6000]);
}

#[test]
fn what_is_claimed_is_looked_at_more_often() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, JobRecord { limits: long(), ..job("t1") }, "w1");
    driver.says("w1", "t1/1", running());
    let story = driver.pass(6000);
    assert_eq!(looks(&story), [2200, 2400, 2800, 3600, 4600, 5600]);
}

fn long() -> JobLimits {
    JobLimits { timeout_ms: 100_000, ..job("x").limits }
}

#[test]
fn where_something_keeps_moving_four_looks_in_vain_stay_quick() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, JobRecord { limits: long(), ..job("t1") }, "w1");
    driver.says("w1", "t1/1", acked());
    driver.pass(2200);
    driver.says("w1", "t1/1", running());
    assert_eq!(looks(&driver.pass(2400)), [2400], "twice in a short time");
    assert_eq!(looks(&driver.pass(4400)), [2500, 2600, 2700, 2800, 2900, 3100, 3500, 4300]);
    // Two slow intervals later that counts as moving still; a millisecond more and it does not.
    let mut late = driver.clone();
    driver.work("w1", |_| {});
    driver.now = 4400;
    let story = driver.pass(5300);
    assert_eq!(looks(&story), [5300]);
    assert_eq!(looks(&driver.pass(5700)), [5400, 5600], "it was too long ago");
    late.work("w1", |_| {});
    late.tell(4400, Input::Wake);
    assert_eq!(looks(&late.pass(5300)), [5300]);
}

#[test]
fn where_something_keeps_moving_the_first_look_after_a_dispatch_is_quick_too() {
    let mut driver = Driver::ready(config());
    for (id, now, look) in [("t1", 2000, 2200), ("t2", 2300, 2400)] {
        driver.dispatch(now, job(id), "w1");
        driver.says("w1", &format!("{id}/1"), done(OutcomeKind::Succeeded));
        assert_eq!(looks(&driver.pass(look + 100)), [look]);
    }
    driver.dispatch(2700, job("t3"), "w1");
    assert_eq!(looks(&driver.pass(2800)), [2800]);
}

#[test]
fn an_answer_that_takes_until_the_next_look_counts_for_it() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.wake(2200);
    driver.says("w1", "t1/1", acked());
    assert_eq!(driver.at(), Some(3000));
    driver.now = 3000;
    assert_eq!(driver.answer("read w1"), ["= t1 acked w1/1"], "and is not asked for at once again");
    assert_eq!(driver.at(), Some(3200));
}

#[test]
fn a_dispatch_does_not_put_off_the_next_look() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.dispatch(2150, job("t2"), "w1");
    assert_eq!(looks(&driver.pass(2300)), [2200]);
    driver.dispatch(2300, job("t3"), "w1");
    assert_eq!(looks(&driver.pass(2600)), [2500], "and brings it forward");
}

#[test]
fn up_to_two_inboxes_are_read_each_and_three_are_listed() {
    let mut driver = Driver::ready(config());
    driver.workers(1500, &["w1", "w2", "w3"]);
    driver.dispatch(2000, job("t1"), "w1");
    driver.dispatch(2000, job("t2"), "w2");
    assert_eq!(driver.wake(2200), ["read w1 unless 5", "read w2 unless 9"]);
    driver.serve();
    driver.dispatch(2300, job("t3"), "w3");
    driver.says("w2", "t2/1", acked());
    assert_eq!(driver.wake(2500), ["list"]);
    assert_eq!(driver.answer("list"), ["read w2 unless 9"], "only what has changed");
    assert_eq!(driver.serve(), ["= t2 acked w2/1"]);
    // One list at a time, and a pause after one that failed.
    driver.wake(driver.at().expect("a look"));
    assert_eq!(driver.open.len(), 1);
    let again = driver.at().expect("the next look");
    assert_eq!(driver.wake(again), [""; 0]);
    driver.unanswered("list");
    let failed = driver.now;
    let story = driver.pass(failed + 2500);
    let lists = looks(&story);
    assert!(lists[0] >= failed + 1000, "{failed}: {story:?}");
}

#[test]
fn an_inbox_in_trouble_is_not_read_before_its_time() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    assert_eq!(driver.wake(2200), ["read w1 unless 5"]);
    assert_eq!(driver.unanswered("read w1"), [""; 0]);
    assert_eq!(driver.at(), Some(2400), "the end of its pause");
    driver.workers(2210, &["w1", "w2", "w3"]);
    assert_eq!(looks(&driver.pass(3000)), [2400, 3000]);
}

#[test]
fn nothing_is_looked_at_where_nothing_is_expected() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    let story = driver.pass(20_000);
    assert_eq!(story, ["2400 .", "6200 write w1 over 6: ", "6400 ."]);
}

#[test]
fn a_worker_that_drains_is_watched_until_it_is_gone() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.work("w1", |doc| {
        doc.closed = Some(LIFE);
        doc.entries[0].state = done(OutcomeKind::Returned);
    });
    driver.pass(2200);
    assert_eq!(driver.core.draining().collect::<Vec<_>>(), [&name("w1")]);
    assert_eq!(driver.state("t1"), JobState::Queued);
    assert!(!driver.core.has_room(&name("w1"), 0));
    driver.assign(2200, "t1", "w1");
    assert_eq!(&*driver.record("t1").reason, "worker w1 drains");
    assert!(looks(&driver.pass(4000)).len() > 1);
    driver.workers(4000, &["-w1", "w2"]);
    driver.serve();
    assert_eq!(looks(&driver.pass(20_000)), [0; 0], "nobody is there to open it");
    driver.workers(20_000, &["w1", "w2"]);
    driver.work("w1", |doc| doc.closed = None);
    driver.pass(23_000);
    assert_eq!(driver.core.draining().count(), 0);
}

#[test]
pub(crate) fn what_waits_at_a_worker_that_drains_goes_to_another() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.work("w1", |doc| doc.closed = Some(LIFE));
    let story = driver.pass(2200);
    assert_eq!((driver.state("t1"), driver.record("t1").begun()), (JobState::Queued, 0), "{story:?}");
    assert_eq!(driver.inboxes[&name("w1")].0.closed, Some(LIFE), "that is the worker's to say");
}

#[test]
fn what_a_worker_gone_still_has_claimed_is_not_watched() {
    let strange = inbox(vec![entry("t9/1", running())]);
    let other = JobRecord { dispatch: 2, ..out("t9", "w2", JobState::Running) };
    let w2 = inbox(vec![entry("t9/2", running())]);
    let mut driver = Driver::after(vec![other], vec![("w1", strange), ("w2", w2)]);
    driver.serve();
    // It was called off there; as long as its worker lives it is looked at.
    assert!(driver.inboxes[&name("w1")].0.entries[0].cancel);
    let story = driver.pass(2000);
    assert!(story.iter().any(|line| line.contains("read w1")), "{story:#?}");
    driver.workers(2000, &["w2", "-w1"]);
    driver.serve();
    let story = driver.pass(3000);
    assert!(!story.iter().any(|line| line.contains("read w1")), "{story:#?}");
}

// ---- lists ----

#[test]
fn a_list_shows_what_has_changed_since_the_last_look() {
    let mut driver = Driver::ready(config());
    driver.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2000, job(id), worker);
    }
    assert_eq!(driver.wake(2200), ["list"]);
    assert_eq!(driver.answer("list"), [""; 0], "nothing has");
}

/// Three inboxes, so that they are listed; each list is answered with these changes.
fn listed(change: impl Fn(&mut InboxListed)) -> (Driver, Vec<Vec<String>>) {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    driver.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2000, job(id), worker);
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        driver.wake(driver.at().expect("a look"));
        let (id, _) = driver.take("list");
        let mut lines = driver.lines();
        lines.iter_mut().for_each(&change);
        let mut said = driver.tell(driver.now, list_answer(id, Some(lines)));
        said.extend(driver.serve());
        told.push(said);
    }
    (driver, told)
}

#[test]
fn where_lists_name_no_versions_their_stamps_are_compared() {
    let (mut driver, told) = listed(|line| line.version = None);
    assert_eq!(told[0], ["read w1 unless 5", "read w2 unless 9", "read w3 unless 13"], "no stamp is known");
    assert_eq!(told[1..], [vec![""; 0], vec![""; 0]], "they are the same");
    driver.says("w2", "t2/1", acked());
    driver.wake(driver.at().expect("a look"));
    let (id, _) = driver.take("list");
    let mut lines = driver.lines();
    lines.iter_mut().for_each(|line| line.version = None);
    assert_eq!(driver.tell(driver.now, list_answer(id, Some(lines))), ["read w2 unless 9"]);
}

#[test]
fn where_lists_spell_versions_in_another_way_their_stamps_are_compared_from_then_on() {
    let (mut driver, told) = listed(|line| line.version = Some(Version::new("other")));
    assert_eq!(told[0], ["read w1 unless 5", "read w2 unless 9", "read w3 unless 13"], "called changed");
    assert_eq!(told[1..], [vec![""; 0], vec![""; 0]], "and were not");
    // A version that happens to be the same proves nothing any more, another stamp does.
    driver.wake(driver.at().expect("a look"));
    let (id, _) = driver.take("list");
    let mut lines = driver.lines();
    lines[1].stamp.1 += 1;
    assert_eq!(driver.tell(driver.now, list_answer(id, Some(lines))), ["read w2 unless 9"]);
}

#[test]
fn a_read_in_vain_that_no_list_asked_for_says_nothing_about_lists() {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    driver.workers(1500, &["w1", "w2", "w3"]);
    driver.dispatch(2000, job("t1"), "w1");
    driver.wake(2200);
    assert_eq!(driver.answer("read w1"), [""; 0], "unchanged");
    for (id, worker) in [("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2300, job(id), worker);
    }
    driver.wake(driver.at().expect("a look"));
    // By their versions they are the same, whatever the stamps.
    assert_eq!(driver.answer("list"), [""; 0]);
}

#[test]
fn a_list_that_showed_no_change_is_no_reason_to_doubt_lists() {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    driver.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2000, job(id), worker);
    }
    driver.wake(2200);
    assert_eq!(driver.answer("list"), [""; 0], "nothing has changed");
    // Two are left, so they are read, in vain.
    driver.all(2300, cancel("t3"));
    let story = driver.pass(3000);
    assert_eq!(story, ["2500 read w1 unless 5; read w2 unless 9"]);
    driver.dispatch(3100, job("t4"), "w3");
    driver.wake(driver.at().expect("a look"));
    // Another version with the same stamp: it has changed.
    driver.says("w1", "t1/1", acked());
    let (id, _) = driver.take("list");
    let mut lines = driver.lines();
    lines[0].stamp = (5, 0);
    assert_eq!(driver.tell(driver.now, list_answer(id, Some(lines))), ["read w1 unless 5"]);
}

#[test]
fn a_list_that_failed_is_made_up_for_with_the_next_look_and_wakes_nobody() {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    driver.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2000, job(id), worker);
    }
    driver.pass(3000);
    assert_eq!(driver.wake(4000), ["list"]);
    driver.now = 4050;
    driver.unanswered("list");
    assert_eq!((driver.at(), driver.wake(5000)), (Some(5000), Vec::new()), "too soon");
    assert_eq!(driver.at(), Some(6000));
    assert_eq!(driver.wake(6000), ["list"]);
}

#[test]
fn an_inbox_that_is_missing_from_a_list_is_read() {
    let mut driver = Driver::ready(config());
    driver.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2000, job(id), worker);
    }
    driver.wake(2200);
    let (id, _) = driver.take("list");
    let lines = driver.lines().into_iter().filter(|line| line.worker.as_str() != "w2").collect();
    assert_eq!(driver.tell(2200, list_answer(id, Some(lines))), ["read w2 unless 9"]);
    assert_eq!(driver.serve(), [""; 0], "it was there after all");
}

#[test]
fn what_is_under_way_answers_with_something_newer_than_a_list() {
    let mut driver = Driver::ready(config());
    driver.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        driver.dispatch(2000, job(id), worker);
    }
    driver.wake(2200);
    let (id, _) = driver.take("list");
    let lines = driver.lines();
    // Meanwhile more is dispatched to the first, which the list does not show; the second is not on it at all.
    driver.submit(2200, vec![job("t4"), job("t5")]);
    driver.serve();
    driver.assign(2200, "t4", "w1");
    driver.assign(2200, "t5", "w2");
    driver.answer("write ledger");
    driver.answer("write ledger");
    assert_eq!(driver.open.len(), 2, "{:?}", driver.open);
    let mut lines = lines;
    lines[0].version = Some(Version::new("old"));
    lines.remove(1);
    assert_eq!(driver.tell(2200, list_answer(id, Some(lines))), [""; 0]);
    assert_eq!(driver.serve(), [""; 0], "nothing is read");
}
