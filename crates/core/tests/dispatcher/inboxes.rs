//! A leader and the inboxes of its workers: whose they are, what it writes, how much goes in.

use crate::dispatcher::driver::*;
use tenure_core::document::*;
use tenure_core::*;

#[test]
fn a_new_leader_fences_every_inbox_in_which_something_is_or_will_be() {
    let jobs = vec![out("t1", "w1", JobState::Dispatched), out("t2", "w2", JobState::Dispatched)];
    let unclaimed = inbox(vec![entry("t1/1", EntryState::Dispatched)]);
    let mut driver = Driver::after(jobs, vec![("w1", unclaimed), ("w3", inbox(Vec::new()))]);
    driver.answer("read ledger");
    driver.answer("write ledger");
    let said = driver.answer("list");
    assert_eq!(
        said,
        ["read w1", "write w2 new: t2/1 dispatched e2", "read w3"],
        "where there is none it is new"
    );
    assert_eq!(driver.answer("read w1"), ["write w1 over 2: t1/1 dispatched e2"], "in its own epoch");
    assert_eq!(driver.answer("read w3"), [""; 0], "nothing is there that matters");
    driver.serve();
    assert_eq!(driver.core.counts().dispatched, 1, "the other one stood there before");
    assert_eq!(driver.inboxes[&name("w1")].0.entries[0].dispatched_at, 1000);
}

#[test]
fn what_a_former_leader_dispatched_is_not_stamped_twice() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.dispatch(2100, job("t2"), "w1");
    let stamps: Vec<i64> = driver.inboxes[&name("w1")].0.entries.iter().map(|e| e.dispatched_at).collect();
    assert_eq!(stamps, [2000, 2100]);
}

#[test]
fn an_inbox_of_a_newer_leader_ends_it() {
    let newer = Stored::of(InboxDoc::default(), 3, FORMER);
    let mut driver = Driver::after(Vec::new(), vec![("w1", newer)]);
    assert_eq!(driver.serve().last().map(String::as_str), Some("ended"));
}

#[test]
fn what_was_claimed_and_is_not_there_any_more_is_lost() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    driver.work("w1", |doc| doc.entries.clear());
    driver.pass(2400);
    assert_eq!(driver.state("t1"), JobState::Lost);
    assert_eq!(&*driver.record("t1").reason, "it vanished from its worker's inbox");
}

#[test]
fn what_was_claimed_is_not_lost_before_the_inbox_is_the_leaders_own() {
    let empty = inbox(Vec::new());
    let mut driver = Driver::after(vec![out("t1", "w1", JobState::Acked)], vec![("w1", empty)]);
    driver.answer("read ledger");
    driver.answer("write ledger");
    assert_eq!(driver.answer("list"), ["read w1"]);
    assert_eq!(driver.answer("read w1"), ["write w1 over 2: "]);
    assert_eq!(driver.state("t1"), JobState::Acked, "a former leader may still write");
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Lost);
}

#[test]
fn what_nobody_knows_is_thrown_out_and_counted() {
    let strange = vec![entry("t8/1", EntryState::Dispatched), entry("t9/1", done(OutcomeKind::Failed))];
    let mut driver = Driver::after(Vec::new(), vec![("w1", inbox(strange))]);
    let said = driver.serve();
    assert_eq!(said.last().map(String::as_str), Some("write w1 over 2: "));
    assert_eq!(driver.core.counts().rejected, 1);
    assert_eq!(driver.core.counts().late, 1, "a result, of whatever");
}

#[test]
fn what_a_shard_may_know_that_cannot_be_read_is_left_where_it_is() {
    let strange = vec![entry("t8/1", EntryState::Dispatched), entry("t9/1", done(OutcomeKind::Failed))];
    let mut driver = Driver::new(config());
    driver.inboxes.insert(name("w1"), (inbox(strange), 9));
    driver.wake(1000);
    driver.ledger_read(nonsense());
    assert_eq!(
        driver.serve(),
        ["read w1", "write w1 over 9: t8/1 dispatched e1, t9/1 failed"],
        "only fenced"
    );
    assert_eq!(driver.core.counts().rejected, 1, "the shard");
    // Once it is known that nobody knows them, they go at once.
    driver.wake(11_000);
    driver.ledger_read(Read::Absent);
    let said = driver.serve();
    assert!(said.contains(&"write w1 over 1: ".to_owned()), "{said:?}");
}

#[test]
fn another_attempt_than_the_one_on_record_is_called_off_where_it_runs() {
    let record = JobRecord { dispatch: 2, ..out("t1", "w2", JobState::Running) };
    let old = inbox(vec![entry("t1/1", running())]);
    let new = inbox(vec![entry("t1/2", acked())]);
    let mut driver = Driver::after(vec![record], vec![("w1", old), ("w2", new)]);
    driver.serve();
    assert!(driver.inboxes[&name("w1")].0.entries[0].cancel);
    assert!(!driver.inboxes[&name("w2")].0.entries[0].cancel);
    assert_eq!((driver.state("t1"), driver.record("t1").dispatch), (JobState::Running, 2));
}

#[test]
fn an_attempt_on_record_at_another_worker_says_nothing() {
    for state in [acked(), running()] {
        let mut driver = Driver::after(
            vec![out("t1", "w2", JobState::Dispatched)],
            vec![("w1", inbox(vec![entry("t1/1", state)]))],
        );
        driver.serve();
        assert_eq!(driver.state("t1"), JobState::Dispatched);
    }
}

// ---- doubt ----

#[test]
fn a_write_that_may_still_land_is_written_over_before_anything_is_concluded() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    assert_eq!(driver.workers(2100, &["-w1", "w2"]), ["write w1 over 5: "]);
    assert_eq!(driver.written("write w1", WriteAnswer::Unknown), [""; 0]);
    assert_eq!(driver.at(), Some(2200), "the next look");
    driver.pass(2299);
    let story = driver.pass(2300);
    assert_eq!(driver.state("t1"), JobState::Queued, "{story:?}");
}

#[test]
fn a_read_that_shows_the_old_version_leaves_the_doubt() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.workers(2100, &["-w1", "w2"]);
    let (_, request) = driver.open[0].clone();
    driver.written("write w1", WriteAnswer::Unknown);
    assert_eq!(driver.wake(2300), ["read w1 unless 5"]);
    assert_eq!(driver.answer("read w1"), ["write w1 over 5: "], "it may land yet");
    assert_eq!(driver.state("t1"), JobState::Dispatched);
    // It did, so this one is refused; what is read now is what was meant.
    let doc = inbox_written(request);
    driver.inboxes.insert(name("w1"), (doc, 77));
    assert_eq!(driver.answer("write w1"), ["read w1 unless 5"]);
    driver.answer("read w1");
    assert_eq!(driver.state("t1"), JobState::Queued);
}

/// The worker is silent, and may be back by the time the write lands.
#[test]
pub(crate) fn a_dispatch_that_may_still_land_is_written_over_before_another_gets_the_job() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2900);
    assert_eq!(driver.state("t1"), JobState::Succeeded);
    driver.submit(3000, vec![job("t2")]);
    driver.serve();
    driver.assign(3000, "t2", "w1");
    driver.answer("write ledger");
    driver.written("write w1", WriteAnswer::Unknown);
    driver.workers(3050, &["-w1", "w2"]);
    let at = driver.at().expect("it looks");
    let story = driver.wake(at);
    assert_eq!(story.len(), 1, "{story:?}");
    let story = driver.answer("read w1");
    assert_eq!(driver.state("t2"), JobState::Dispatched, "it may land yet: {story:?}");
    driver.answer("write w1");
    assert_eq!(driver.state("t2"), JobState::Queued, "now it cannot");
}

#[test]
fn a_write_that_failed_is_repeated_after_its_pause() {
    for answer in [WriteAnswer::Unavailable, WriteAnswer::Denied] {
        let mut driver = Driver::ready(DispatcherConfig { fast_ms: 300, ..config() });
        driver.submit(2000, vec![job("t1")]);
        driver.serve();
        driver.assign(2000, "t1", "w1");
        driver.answer("write ledger");
        assert_eq!(driver.written("write w1", answer), [""; 0]);
        assert_eq!((driver.at(), driver.wake(2199)), (Some(2200), Vec::new()));
        assert_eq!(driver.wake(2200), ["write w1 new: t1/1 dispatched e2"]);
    }
}

#[test]
fn an_answer_to_another_request_is_not_the_inboxs() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    driver.assign(2000, "t1", "w1");
    driver.answer("write ledger");
    let stranger = RequestId(99);
    let won = WriteAnswer::Won(Version::new("9"));
    assert_eq!(driver.tell(2000, inbox_answer(stranger, "w1", DocumentAnswer::Written(won))), [""; 0]);
    assert_eq!(driver.tell(2000, inbox_answer(stranger, "w1", DocumentAnswer::Read(Read::Absent))), [""; 0]);
    assert_eq!(
        driver.tell(2000, inbox_answer(stranger, "w1", DocumentAnswer::Removed(Removal::Gone))),
        [""; 0]
    );
    assert_eq!(driver.answer("write w1"), ["write w1 over 4: t1/1 dispatched e2"]);
}

// ---- what cannot be read ----

#[test]
fn an_inbox_that_cannot_be_read_is_left_alone_and_counted_once() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.wake(2200);
    assert_eq!(driver.inbox_read("w1", nonsense()), [""; 0]);
    assert_eq!(driver.core.counts().rejected, 1);
    driver.submit(2300, vec![job("t2")]);
    driver.serve();
    driver.assign(2300, "t2", "w1");
    assert_eq!(&*driver.record("t2").reason, "the inbox of worker w1 cannot be read");
    // Whether what was dispatched there was claimed cannot be known.
    let said = driver.wake(5000);
    assert_eq!(driver.state("t1"), JobState::Lost, "{said:?}");
    assert_eq!(&*driver.record("t1").reason, "the worker's inbox cannot be read");
    driver.answer("write ledger");
    assert_eq!(driver.wake(12_199), [""; 0]);
    assert_eq!(driver.wake(12_200), ["read w1"], "ten seconds later");
    assert_eq!(driver.inbox_read("w1", nonsense()), [""; 0]);
    assert_eq!(driver.core.counts().rejected, 1, "that is no news");
}

// ---- tidying up ----

#[test]
fn a_recorded_result_is_removed_with_the_next_write_or_after_a_while() {
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 8, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    let story = driver.pass(9000);
    let writes: Vec<&String> = story.iter().filter(|line| line.contains("write w1")).collect();
    assert_eq!(writes, ["6200 write w1 over 6: "], "four slow intervals later: {story:#?}");
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 8, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.dispatch(3000, job("t2"), "w1");
    assert_eq!(driver.inboxes[&name("w1")].0.entries.len(), 1, "with the next");
}

#[test]
fn what_is_worth_a_write_is_so_beside_what_is_not() {
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 8, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.dispatch(2000, job("t2"), "w1");
    driver.says("w1", "t2/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    let said = driver.tell(2300, cancel("t1"));
    assert_eq!(said.last().map(String::as_str), Some("write w1 over 9: "), "{said:?}");
}

#[test]
fn half_of_what_an_inbox_takes_is_crowded() {
    for (count, crowded) in [(3, false), (4, true)] {
        let mut driver = Driver::ready(DispatcherConfig { entries_max: 8, ..config() });
        (1..=count).for_each(|n| driver.dispatch(2000, job(&format!("t{n}")), "w1"));
        driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
        driver.pass(2200);
        let there = driver.inboxes[&name("w1")].0.entries.len();
        assert_eq!(there, if crowded { count - 1 } else { count });
    }
}

#[test]
fn a_crowded_inbox_is_tidied_up_at_once() {
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 4, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.dispatch(2000, job("t2"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    let story = driver.pass(2200);
    assert!(story[0].ends_with("; write w1 over 9: t2/1 dispatched e2; = t1 succeeded w1/1"), "{story:?}");
}

#[test]
fn a_result_is_not_removed_before_it_is_recorded() {
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 2, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.wake(2200);
    let said = driver.answer("read w1");
    assert_eq!(said, ["write ledger 0 over 3: t1 succeeded w1/1"]);
    assert_eq!(driver.answer("write ledger"), ["write w1 over 6: ", "= t1 succeeded w1/1"]);
}

#[test]
fn an_inbox_is_filled_to_its_last_byte_and_its_last_entry() {
    let mut driver = Driver::ready(config());
    let heavy = |id: &str, weight: usize| JobRecord { payload: vec![b'x'; weight - 1792].into(), ..job(id) };
    driver.submit(2000, vec![heavy("t1", JOB_OBJECT_MAX_WEIGHT / 2)]);
    driver.serve();
    let room = |driver: &Driver, weight: usize| driver.core.has_room(&name("w1"), weight - 1792);
    let half = JOB_OBJECT_MAX_WEIGHT / 2;
    driver.assign(2000, "t1", "w1");
    assert!(room(&driver, half) && !room(&driver, half + 1), "what will come counts");
    driver.serve();
    assert!(room(&driver, half) && !room(&driver, half + 1), "and what is there");
    for (id, fits) in [("t2", true), ("t3", true), ("t4", true), ("t5", false)] {
        assert_eq!(driver.core.has_room(&name("w1"), 1), fits, "{id}");
        if fits {
            driver.dispatch(2000, job(id), "w1");
        }
    }
}

#[test]
fn what_is_on_its_way_into_an_inbox_takes_room() {
    let mut driver = Driver::ready(config());
    let ids = ["t1", "t2", "t3", "t4"];
    driver.submit(2000, ids.iter().map(|id| job(id)).collect());
    driver.serve();
    for id in ids {
        assert!(driver.core.has_room(&name("w1"), 1));
        driver.assign(2000, id, "w1");
    }
    assert!(!driver.core.has_room(&name("w1"), 1), "four entries, and none is there yet");
}

#[test]
fn what_does_not_fit_into_an_inbox_waits_in_the_ledger() {
    // Five that a former leader recorded as dispatched: the inbox takes four entries, the last when one is over.
    let jobs: Vec<JobRecord> = (1..=5).map(|n| out(&format!("t{n}"), "w1", JobState::Dispatched)).collect();
    let mut driver = Driver::after(jobs, Vec::new());
    driver.serve();
    assert_eq!(driver.inboxes[&name("w1")].0.entries.len(), 4);
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(1500);
    let there: Vec<String> = driver.inboxes[&name("w1")].0.entries.iter().map(|e| e.id.to_string()).collect();
    assert_eq!(there, ["t2", "t3", "t4", "t5"]);
    // And by weight.
    let heavy = |id: &str, weight: usize| {
        let record = out(id, "w1", JobState::Dispatched);
        JobRecord { payload: vec![b'x'; weight - 1792].into(), ..record }
    };
    let half = JOB_OBJECT_MAX_WEIGHT / 2;
    for (second, count) in [(half, 2), (half + 1, 1)] {
        let mut driver = Driver::after(vec![heavy("t1", half), heavy("t2", second)], Vec::new());
        driver.serve();
        assert_eq!(driver.inboxes[&name("w1")].0.entries.len(), count);
    }
}

#[test]
fn nothing_is_put_into_the_inbox_of_a_worker_that_is_gone() {
    let mut driver = Driver::new(config());
    driver.left(vec![out("t1", "w1", JobState::Dispatched)], Vec::new());
    driver.workers(1000, &["-w1"]);
    driver.serve();
    assert_eq!(driver.inboxes[&name("w1")].0.entries.len(), 0);
    assert_eq!(driver.state("t1"), JobState::Queued);
}
