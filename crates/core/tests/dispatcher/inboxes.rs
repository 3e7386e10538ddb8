//! A leader and the inboxes of its workers: how often it looks, what it writes, when it lets go of one.

use crate::desk::*;
use tenure_core::*;

fn running() -> EntryState {
    EntryState::Running { by: LIFE }
}

fn acked() -> EntryState {
    EntryState::Acked { by: LIFE }
}

fn looks(story: &[String]) -> Vec<u64> {
    let looks = story.iter().filter(|line| line.contains(" read w") || line.contains(" list"));
    looks.map(|line| line.split_once(' ').expect("a time").0.parse().expect("a number")).collect()
}

// ---- looking ----

#[test]
fn as_long_as_nothing_is_claimed_it_looks_seldom_and_more_and_more_so() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    assert_eq!(looks(&desk.pass(6000)), [2200, 3000, 4000, 5000, 6000]);
}

#[test]
fn what_is_claimed_is_looked_at_more_often() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, TaskRecord { limits: long(), ..task("t1") }, "w1");
    desk.says("w1", "t1/1", running());
    let story = desk.pass(6000);
    assert_eq!(looks(&story), [2200, 2400, 2800, 3600, 4600, 5600]);
}

fn long() -> TaskLimits {
    TaskLimits { timeout_ms: 100_000, ..task("x").limits }
}

#[test]
fn where_something_keeps_moving_four_looks_in_vain_stay_quick() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, TaskRecord { limits: long(), ..task("t1") }, "w1");
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
    late.tell(4400, DispatchInput::Wake);
    assert_eq!(looks(&late.pass(5300)), [5300]);
}

#[test]
fn where_something_keeps_moving_the_first_look_after_a_dispatch_is_quick_too() {
    let mut desk = Desk::ready(config());
    for (id, now, look) in [("t1", 2000, 2200), ("t2", 2300, 2400)] {
        desk.dispatch(now, task(id), "w1");
        desk.says("w1", &format!("{id}/1"), done(OutcomeKind::Succeeded));
        assert_eq!(looks(&desk.pass(look + 100)), [look]);
    }
    desk.dispatch(2700, task("t3"), "w1");
    assert_eq!(looks(&desk.pass(2800)), [2800]);
}

#[test]
fn an_answer_that_takes_until_the_next_look_counts_for_it() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
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
    desk.dispatch(2000, task("t1"), "w1");
    desk.dispatch(2150, task("t2"), "w1");
    assert_eq!(looks(&desk.pass(2300)), [2200]);
    desk.dispatch(2300, task("t3"), "w1");
    assert_eq!(looks(&desk.pass(2600)), [2500], "and brings it forward");
}

#[test]
fn up_to_two_inboxes_are_read_each_and_three_are_listed() {
    let mut desk = Desk::ready(config());
    desk.workers(1500, &["w1", "w2", "w3"]);
    desk.dispatch(2000, task("t1"), "w1");
    desk.dispatch(2000, task("t2"), "w2");
    assert_eq!(desk.wake(2200), ["read w1 unless 5", "read w2 unless 9"]);
    desk.serve();
    desk.dispatch(2300, task("t3"), "w3");
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
    desk.dispatch(2000, task("t1"), "w1");
    assert_eq!(desk.wake(2200), ["read w1 unless 5"]);
    assert_eq!(desk.unanswered("read w1"), [""; 0]);
    assert_eq!(desk.at(), Some(2400), "the end of its pause");
    desk.workers(2210, &["w1", "w2", "w3"]);
    assert_eq!(looks(&desk.pass(3000)), [3000]);
}

#[test]
fn nothing_is_looked_at_where_nothing_is_expected() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    let story = desk.pass(20_000);
    assert_eq!(story, ["2400 .", "6200 write w1 over 6: ", "6400 ."]);
}

#[test]
fn a_worker_that_drains_is_watched_until_it_is_gone() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.work("w1", |doc| {
        doc.closed = Some(LIFE);
        doc.entries[0].state = done(OutcomeKind::Returned);
    });
    desk.pass(2200);
    assert_eq!(desk.core.draining().collect::<Vec<_>>(), [&name("w1")]);
    assert_eq!(desk.state("t1"), TaskState::Queued);
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
    desk.dispatch(2000, task("t1"), "w1");
    desk.work("w1", |doc| doc.closed = Some(LIFE));
    let story = desk.pass(2200);
    assert_eq!((desk.state("t1"), desk.record("t1").begun()), (TaskState::Queued, 0), "{story:?}");
    assert_eq!(desk.inboxes[&name("w1")].0.closed, Some(LIFE), "that is the worker's to say");
}

#[test]
fn what_a_worker_gone_still_has_claimed_is_not_watched() {
    let strange = inbox(vec![entry("t9/1", running())]);
    let other = TaskRecord { attempt: 2, ..out("t9", "w2", TaskState::Running) };
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
        desk.dispatch(2000, task(id), worker);
    }
    assert_eq!(desk.wake(2200), ["list"]);
    assert_eq!(desk.answer("list"), [""; 0], "nothing has");
}

/// Three inboxes, so that they are listed; each list is answered with these changes.
fn listed(change: impl Fn(&mut InboxListed)) -> (Desk, Vec<Vec<String>>) {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, task(id), worker);
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        desk.wake(desk.at().expect("a look"));
        let (id, _) = desk.take("list");
        let mut lines = desk.lines();
        lines.iter_mut().for_each(&change);
        let mut said = desk.tell(desk.now, DispatchInput::Listed(id, Some(lines)));
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
    assert_eq!(desk.tell(desk.now, DispatchInput::Listed(id, Some(lines))), ["read w2 unless 9"]);
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
    assert_eq!(desk.tell(desk.now, DispatchInput::Listed(id, Some(lines))), ["read w2 unless 9"]);
}

#[test]
fn a_read_in_vain_that_no_list_asked_for_says_nothing_about_lists() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    desk.dispatch(2000, task("t1"), "w1");
    desk.wake(2200);
    assert_eq!(desk.answer("read w1"), [""; 0], "unchanged");
    for (id, worker) in [("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2300, task(id), worker);
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
        desk.dispatch(2000, task(id), worker);
    }
    desk.wake(2200);
    assert_eq!(desk.answer("list"), [""; 0], "nothing has changed");
    // Two are left, so they are read, in vain.
    desk.all(2300, DispatchInput::Cancel(name("t3")));
    let story = desk.pass(3000);
    assert_eq!(story, ["2500 read w1 unless 5; read w2 unless 9"]);
    desk.dispatch(3100, task("t4"), "w3");
    desk.wake(desk.at().expect("a look"));
    // Another version with the same stamp: it has changed.
    desk.says("w1", "t1/1", acked());
    let (id, _) = desk.take("list");
    let mut lines = desk.lines();
    lines[0].stamp = (5, 0);
    assert_eq!(desk.tell(desk.now, DispatchInput::Listed(id, Some(lines))), ["read w1 unless 5"]);
}

#[test]
fn a_list_that_failed_is_made_up_for_with_the_next_look_and_wakes_nobody() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 60_000, ..config() });
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, task(id), worker);
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
        desk.dispatch(2000, task(id), worker);
    }
    desk.wake(2200);
    let (id, _) = desk.take("list");
    let lines = desk.lines().into_iter().filter(|line| line.worker.as_str() != "w2").collect();
    assert_eq!(desk.tell(2200, DispatchInput::Listed(id, Some(lines))), ["read w2 unless 9"]);
    assert_eq!(desk.serve(), [""; 0], "it was there after all");
}

#[test]
fn what_is_under_way_answers_with_something_newer_than_a_list() {
    let mut desk = Desk::ready(config());
    desk.workers(1500, &["w1", "w2", "w3"]);
    for (id, worker) in [("t1", "w1"), ("t2", "w2"), ("t3", "w3")] {
        desk.dispatch(2000, task(id), worker);
    }
    desk.wake(2200);
    let (id, _) = desk.take("list");
    let lines = desk.lines();
    // Meanwhile more is dispatched to the first, which the list does not show; the second is not on it at all.
    desk.submit(2200, vec![task("t4"), task("t5")]);
    desk.serve();
    desk.assign(2200, "t4", "w1");
    desk.assign(2200, "t5", "w2");
    desk.answer("write ledger");
    desk.answer("write ledger");
    assert_eq!(desk.open.len(), 2, "{:?}", desk.open);
    let mut lines = lines;
    lines[0].version = Some(Version::new("old"));
    lines.remove(1);
    assert_eq!(desk.tell(2200, DispatchInput::Listed(id, Some(lines))), [""; 0]);
    assert_eq!(desk.serve(), [""; 0], "nothing is read");
}

// ---- taking over ----

#[test]
fn a_new_leader_fences_every_inbox_in_which_something_is_or_will_be() {
    let tasks = vec![out("t1", "w1", TaskState::Dispatched), out("t2", "w2", TaskState::Dispatched)];
    let unclaimed = inbox(vec![entry("t1/1", EntryState::Dispatched)]);
    let mut desk = Desk::after(tasks, vec![("w1", unclaimed), ("w3", inbox(Vec::new()))]);
    desk.answer("read ledger");
    desk.answer("write ledger");
    let said = desk.answer("list");
    assert_eq!(
        said,
        ["read w1", "write w2 new: t2/1 dispatched e2", "read w3"],
        "where there is none it is new"
    );
    assert_eq!(desk.answer("read w1"), ["write w1 over 2: t1/1 dispatched e2"], "in its own epoch");
    assert_eq!(desk.answer("read w3"), [""; 0], "nothing is there that matters");
    desk.serve();
    assert_eq!(desk.core.counts().dispatched, 1, "the other one stood there before");
    assert_eq!(desk.inboxes[&name("w1")].0.entries[0].dispatched_at, 1000);
}

#[test]
fn what_a_former_leader_dispatched_is_not_stamped_twice() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.dispatch(2100, task("t2"), "w1");
    let stamps: Vec<i64> = desk.inboxes[&name("w1")].0.entries.iter().map(|e| e.dispatched_at).collect();
    assert_eq!(stamps, [2000, 2100]);
}

#[test]
fn an_inbox_of_a_newer_leader_ends_it() {
    let newer = InboxDoc { epoch: Epoch(3), ..inbox(Vec::new()) };
    let mut desk = Desk::after(Vec::new(), vec![("w1", newer)]);
    assert_eq!(desk.serve().last().map(String::as_str), Some("ended"));
}

#[test]
fn what_was_claimed_and_is_not_there_any_more_is_lost() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.work("w1", |doc| doc.entries.clear());
    desk.pass(2400);
    assert_eq!(desk.state("t1"), TaskState::Lost);
    assert_eq!(&*desk.record("t1").reason, "it vanished from its worker's inbox");
}

#[test]
fn what_was_claimed_is_not_lost_before_the_inbox_is_the_leaders_own() {
    let empty = inbox(Vec::new());
    let mut desk = Desk::after(vec![out("t1", "w1", TaskState::Acked)], vec![("w1", empty)]);
    desk.answer("read ledger");
    desk.answer("write ledger");
    assert_eq!(desk.answer("list"), ["read w1"]);
    assert_eq!(desk.answer("read w1"), ["write w1 over 2: "]);
    assert_eq!(desk.state("t1"), TaskState::Acked, "a former leader may still write");
    desk.serve();
    assert_eq!(desk.state("t1"), TaskState::Lost);
}

#[test]
fn what_nobody_knows_is_thrown_out_and_counted() {
    let strange = vec![entry("t8/1", EntryState::Dispatched), entry("t9/1", done(OutcomeKind::Failed))];
    let mut desk = Desk::after(Vec::new(), vec![("w1", inbox(strange))]);
    let said = desk.serve();
    assert_eq!(said.last().map(String::as_str), Some("write w1 over 2: "));
    assert_eq!(desk.core.counts().rejected, 1);
    assert_eq!(desk.core.counts().late, 1, "a result, of whatever");
}

#[test]
fn what_a_shard_may_know_that_cannot_be_read_is_left_where_it_is() {
    let strange = vec![entry("t8/1", EntryState::Dispatched), entry("t9/1", done(OutcomeKind::Failed))];
    let mut desk = Desk::new(config());
    desk.inboxes.insert(name("w1"), (inbox(strange), 9));
    desk.wake(1000);
    desk.ledger_read(LedgerRead::Unreadable);
    assert_eq!(desk.serve(), ["read w1", "write w1 over 9: t8/1 dispatched e1, t9/1 failed"], "only fenced");
    assert_eq!(desk.core.counts().rejected, 1, "the shard");
    // Once it is known that nobody knows them, they go at once.
    desk.wake(11_000);
    desk.ledger_read(LedgerRead::Absent);
    let said = desk.serve();
    assert!(said.contains(&"write w1 over 1: ".to_owned()), "{said:?}");
}

#[test]
fn another_attempt_than_the_one_on_record_is_called_off_where_it_runs() {
    let record = TaskRecord { attempt: 2, ..out("t1", "w2", TaskState::Running) };
    let old = inbox(vec![entry("t1/1", running())]);
    let new = inbox(vec![entry("t1/2", acked())]);
    let mut desk = Desk::after(vec![record], vec![("w1", old), ("w2", new)]);
    desk.serve();
    assert!(desk.inboxes[&name("w1")].0.entries[0].cancel);
    assert!(!desk.inboxes[&name("w2")].0.entries[0].cancel);
    assert_eq!((desk.state("t1"), desk.record("t1").attempt), (TaskState::Running, 2));
}

#[test]
fn an_attempt_on_record_at_another_worker_says_nothing() {
    for state in [acked(), running()] {
        let mut desk = Desk::after(
            vec![out("t1", "w2", TaskState::Dispatched)],
            vec![("w1", inbox(vec![entry("t1/1", state)]))],
        );
        desk.serve();
        assert_eq!(desk.state("t1"), TaskState::Dispatched);
    }
}

// ---- doubt ----

#[test]
fn a_write_that_may_still_land_is_written_over_before_anything_is_concluded() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    assert_eq!(desk.workers(2100, &["-w1", "w2"]), ["write w1 over 5: "]);
    assert_eq!(desk.written("write w1", WriteAnswer::Unknown), [""; 0]);
    assert_eq!(desk.at(), Some(2200), "the next look");
    desk.pass(2299);
    let story = desk.pass(2300);
    assert_eq!(desk.state("t1"), TaskState::Queued, "{story:?}");
}

#[test]
fn a_read_that_shows_the_old_version_leaves_the_doubt() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.workers(2100, &["-w1", "w2"]);
    let (_, request) = desk.open[0].clone();
    desk.written("write w1", WriteAnswer::Unknown);
    assert_eq!(desk.wake(2300), ["read w1 unless 5"]);
    assert_eq!(desk.answer("read w1"), ["write w1 over 5: "], "it may land yet");
    assert_eq!(desk.state("t1"), TaskState::Dispatched);
    // It did, so this one is refused; what is read now is what was meant.
    let DispatchRequest::WriteInbox(_, doc, _) = request else { panic!("{request:?}") };
    desk.inboxes.insert(name("w1"), (doc, 77));
    assert_eq!(desk.answer("write w1"), ["read w1 unless 5"]);
    desk.answer("read w1");
    assert_eq!(desk.state("t1"), TaskState::Queued);
}

#[test]
fn a_write_that_failed_is_repeated_after_its_pause() {
    for answer in [WriteAnswer::Unavailable, WriteAnswer::Denied] {
        let mut desk = Desk::ready(DispatcherConfig { fast_ms: 300, ..config() });
        desk.submit(2000, vec![task("t1")]);
        desk.serve();
        desk.assign(2000, "t1", "w1");
        desk.answer("write ledger");
        assert_eq!(desk.written("write w1", answer), [""; 0]);
        assert_eq!((desk.at(), desk.wake(2199)), (Some(2200), Vec::new()));
        assert_eq!(desk.wake(2200), ["write w1 new: t1/1 dispatched e2"]);
    }
}

#[test]
fn an_answer_to_another_request_is_not_the_inboxs() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![task("t1")]);
    desk.serve();
    desk.assign(2000, "t1", "w1");
    desk.answer("write ledger");
    let stranger = RequestId(99);
    let won = WriteAnswer::Won(Version::new("9"));
    assert_eq!(desk.tell(2000, DispatchInput::InboxWritten(stranger, name("w1"), won)), [""; 0]);
    assert_eq!(desk.tell(2000, DispatchInput::Inbox(stranger, name("w1"), InboxRead::Absent)), [""; 0]);
    assert_eq!(desk.tell(2000, DispatchInput::InboxRemoved(stranger, name("w1"), true)), [""; 0]);
    let (write, _) = desk.open[0];
    assert_eq!(desk.tell(2000, DispatchInput::Inbox(write, name("w1"), InboxRead::Absent)), [""; 0]);
    assert_eq!(desk.tell(2000, DispatchInput::InboxRemoved(write, name("w1"), true)), [""; 0]);
    assert_eq!(desk.answer("write w1"), ["write w1 over 4: t1/1 dispatched e2"]);
}

// ---- what cannot be read ----

#[test]
fn an_inbox_that_cannot_be_read_is_left_alone_and_counted_once() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.wake(2200);
    assert_eq!(desk.inbox_read("w1", InboxRead::Unreadable), [""; 0]);
    assert_eq!(desk.core.counts().rejected, 1);
    desk.submit(2300, vec![task("t2")]);
    desk.serve();
    desk.assign(2300, "t2", "w1");
    assert_eq!(&*desk.record("t2").reason, "the inbox of worker w1 cannot be read");
    // Whether what was dispatched there was claimed cannot be known.
    let said = desk.wake(5000);
    assert_eq!(desk.state("t1"), TaskState::Lost, "{said:?}");
    assert_eq!(&*desk.record("t1").reason, "the worker's inbox cannot be read");
    desk.answer("write ledger");
    assert_eq!(desk.wake(12_199), [""; 0]);
    assert_eq!(desk.wake(12_200), ["read w1"], "ten seconds later");
    assert_eq!(desk.inbox_read("w1", InboxRead::Unreadable), [""; 0]);
    assert_eq!(desk.core.counts().rejected, 1, "that is no news");
}

// ---- tidying up ----

#[test]
fn a_recorded_result_is_removed_with_the_next_write_or_after_a_while() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 8, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    let story = desk.pass(9000);
    let writes: Vec<&String> = story.iter().filter(|line| line.contains("write w1")).collect();
    assert_eq!(writes, ["6200 write w1 over 6: "], "four slow intervals later: {story:#?}");
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 8, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.dispatch(3000, task("t2"), "w1");
    assert_eq!(desk.inboxes[&name("w1")].0.entries.len(), 1, "with the next");
}

#[test]
fn what_is_worth_a_write_is_so_beside_what_is_not() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 8, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.dispatch(2000, task("t2"), "w1");
    desk.says("w1", "t2/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    let said = desk.tell(2300, DispatchInput::Cancel(name("t1")));
    assert_eq!(said.last().map(String::as_str), Some("write w1 over 9: "), "{said:?}");
}

#[test]
fn half_of_what_an_inbox_takes_is_crowded() {
    for (count, crowded) in [(3, false), (4, true)] {
        let mut desk = Desk::ready(DispatcherConfig { entries_max: 8, ..config() });
        (1..=count).for_each(|n| desk.dispatch(2000, task(&format!("t{n}")), "w1"));
        desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
        desk.pass(2200);
        let there = desk.inboxes[&name("w1")].0.entries.len();
        assert_eq!(there, if crowded { count - 1 } else { count });
    }
}

#[test]
fn a_crowded_inbox_is_tidied_up_at_once() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 4, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.dispatch(2000, task("t2"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    let story = desk.pass(2200);
    assert!(story[0].ends_with("; write w1 over 9: t2/1 dispatched e2; = t1 succeeded w1/1"), "{story:?}");
}

#[test]
fn a_result_is_not_removed_before_it_is_recorded() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 2, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.wake(2200);
    let said = desk.answer("read w1");
    assert_eq!(said, ["write ledger 0 over 3: t1 succeeded w1/1"]);
    assert_eq!(desk.answer("write ledger"), ["write w1 over 6: ", "= t1 succeeded w1/1"]);
}

#[test]
fn the_inbox_of_a_worker_that_is_gone_for_good_is_emptied_and_removed() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 8, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
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
    desk.dispatch(2000, task("t1"), "w1");
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
fn a_task_that_never_got_into_the_inbox_of_a_worker_that_is_gone_is_not_forgotten() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![task("t1")]);
    desk.serve();
    desk.assign(2000, "t1", "w1");
    desk.answer("write ledger");
    desk.workers(2000, &["w2"]);
    while desk.now < 9000 {
        match desk.open.first() {
            Some((_, DispatchRequest::WriteInbox(..))) => desk.written("write w1", WriteAnswer::Unavailable),
            Some(_) => desk.answer("read w1"),
            None => desk.wake(desk.at().expect("it goes on")),
        };
    }
    assert_eq!(desk.state("t1"), TaskState::Dispatched, "whether it got there is not known");
    desk.serve();
    desk.pass(30_000);
    assert_eq!(desk.state("t1"), TaskState::Queued);
}

/// One whose worker w1 has an inbox that cannot be read, with nothing dispatched to it but this.
fn unreadable(id: &str) -> Desk {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t0"), "w1");
    desk.all(2000, DispatchInput::Cancel(name("t0")));
    desk.submit(2100, vec![task(id)]);
    desk.serve();
    desk.assign(2100, id, "w1");
    desk.answer("write ledger");
    desk.written("write w1", WriteAnswer::Lost);
    desk.inbox_read("w1", InboxRead::Unreadable);
    desk
}

#[test]
fn an_inbox_that_cannot_be_read_is_remembered_as_such_whoever_is_gone() {
    let mut desk = unreadable("t1");
    desk.wake(5100);
    assert_eq!(desk.state("t1"), TaskState::Lost);
    desk.answer("write ledger");
    desk.workers(5200, &["w2"]);
    for now in [10_199, 10_200, 12_099, 12_100, 13_000] {
        desk.wake(now);
        assert_eq!(desk.open.len(), 0, "it is left alone");
    }
    desk.workers(13_000, &["w1", "w2"]);
    desk.submit(13_000, vec![task("t2")]);
    desk.answer("write ledger");
    desk.assign(13_000, "t2", "w1");
    assert_eq!(&*desk.record("t2").reason, "the inbox of worker w1 cannot be read");
}

#[test]
fn what_the_index_does_not_mark_is_found_once_everything_is_looked_at() {
    // What is being taken back has no time of its own. So nothing marks it when its inbox, which became unreadable meanwhile,
    // has been so for the time of a claim.
    let mut desk = unreadable("t1");
    desk.index_is_whole = false;
    desk.tell(2150, DispatchInput::Cancel(name("t1")));
    for now in [4999, 5000, 5001, 5100, 8999] {
        desk.wake(now);
        assert_eq!(desk.state("t1"), TaskState::Dispatched, "at {now}");
    }
    desk.wake(9000);
    assert_eq!(desk.state("t1"), TaskState::Cancelled, "four slow intervals after the last time");
}

#[test]
fn a_worker_that_is_only_silent_keeps_its_inbox() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
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
    desk.dispatch(2000, task("t1"), "w1");
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
    desk.dispatch(2000, task("t1"), "w1");
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
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.workers(2300, &["w2"]);
    assert_eq!(desk.unanswered("read w1"), [""; 0], "whether it has ended it is not known");
    desk.pass(7000);
    assert_eq!(desk.state("t1"), TaskState::Lost);
    assert!(desk.inboxes.contains_key(&name("w1")), "its entry is there");
}

// ---- room ----

#[test]
fn an_inbox_is_filled_to_its_last_byte_and_its_last_entry() {
    let mut desk = Desk::ready(config());
    let heavy =
        |id: &str, weight: usize| TaskRecord { payload: vec![b'x'; weight - 1792].into(), ..task(id) };
    desk.submit(2000, vec![heavy("t1", TASK_OBJECT_MAX_WEIGHT / 2)]);
    desk.serve();
    let room = |desk: &Desk, weight: usize| desk.core.has_room(&name("w1"), weight - 1792);
    let half = TASK_OBJECT_MAX_WEIGHT / 2;
    desk.assign(2000, "t1", "w1");
    assert!(room(&desk, half) && !room(&desk, half + 1), "what will come counts");
    desk.serve();
    assert!(room(&desk, half) && !room(&desk, half + 1), "and what is there");
    for (id, fits) in [("t2", true), ("t3", true), ("t4", true), ("t5", false)] {
        assert_eq!(desk.core.has_room(&name("w1"), 1), fits, "{id}");
        if fits {
            desk.dispatch(2000, task(id), "w1");
        }
    }
}

#[test]
fn what_is_on_its_way_into_an_inbox_takes_room() {
    let mut desk = Desk::ready(config());
    let ids = ["t1", "t2", "t3", "t4"];
    desk.submit(2000, ids.iter().map(|id| task(id)).collect());
    desk.serve();
    for id in ids {
        assert!(desk.core.has_room(&name("w1"), 1));
        desk.assign(2000, id, "w1");
    }
    assert!(!desk.core.has_room(&name("w1"), 1), "four entries, and none is there yet");
}

#[test]
fn what_does_not_fit_into_an_inbox_waits_in_the_ledger() {
    // Five that a former leader recorded as dispatched: the inbox takes four entries, the last when one is over.
    let tasks: Vec<TaskRecord> =
        (1..=5).map(|n| out(&format!("t{n}"), "w1", TaskState::Dispatched)).collect();
    let mut desk = Desk::after(tasks, Vec::new());
    desk.serve();
    assert_eq!(desk.inboxes[&name("w1")].0.entries.len(), 4);
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(1500);
    let there: Vec<String> = desk.inboxes[&name("w1")].0.entries.iter().map(|e| e.id.to_string()).collect();
    assert_eq!(there, ["t2", "t3", "t4", "t5"]);
    // And by weight.
    let heavy = |id: &str, weight: usize| {
        let record = out(id, "w1", TaskState::Dispatched);
        TaskRecord { payload: vec![b'x'; weight - 1792].into(), ..record }
    };
    let half = TASK_OBJECT_MAX_WEIGHT / 2;
    for (second, count) in [(half, 2), (half + 1, 1)] {
        let mut desk = Desk::after(vec![heavy("t1", half), heavy("t2", second)], Vec::new());
        desk.serve();
        assert_eq!(desk.inboxes[&name("w1")].0.entries.len(), count);
    }
}

#[test]
fn nothing_is_put_into_the_inbox_of_a_worker_that_is_gone() {
    let mut desk = Desk::new(config());
    desk.left(vec![out("t1", "w1", TaskState::Dispatched)], Vec::new());
    desk.workers(1000, &["-w1"]);
    desk.serve();
    assert_eq!(desk.inboxes[&name("w1")].0.entries.len(), 0);
    assert_eq!(desk.state("t1"), TaskState::Queued);
}
