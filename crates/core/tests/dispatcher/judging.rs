//! What becomes of a task: by the clock, by its worker, by whoever calls it off.

use crate::desk::*;
use std::sync::Arc;
use tenure_core::*;

fn limited(id: &str, change: impl FnOnce(&mut TaskLimits)) -> TaskRecord {
    let mut record = task(id);
    change(&mut record.limits);
    record
}

fn acked() -> EntryState {
    EntryState::Acked { by: LIFE }
}

fn running() -> EntryState {
    EntryState::Running { by: LIFE }
}

#[test]
fn a_task_goes_from_its_submission_to_its_result() {
    let mut desk = Desk::ready(config());
    assert_eq!(desk.submit(2000, vec![task("t1")]), ["write ledger 0 over 1: t1 queued"]);
    assert_eq!(desk.serve(), ["#1 Created", "= t1 queued"]);
    let said = desk.assign(2000, "t1", "w1");
    assert_eq!(said, ["write ledger 0 over 2: t1 dispatched w1/1", "write w1 new: "], "recorded first");
    assert_eq!(desk.answer("write ledger"), ["= t1 dispatched w1/1"]);
    assert_eq!(desk.answer("write w1"), ["write w1 over 4: t1/1 dispatched e2"], "then dispatched");
    assert_eq!(desk.serve(), [""; 0]);
    assert_eq!(desk.inboxes[&name("w1")].0.entries[0].dispatched_at, 2000, "by the wall clock");
    assert_eq!((desk.core.open(), desk.core.in_flight(&name("w1"))), ((0, 1), 1));
    desk.says("w1", "t1/1", acked());
    assert_eq!(desk.pass(2200), ["2200 read w1 unless 5; = t1 acked w1/1"]);
    desk.says("w1", "t1/1", running());
    assert_eq!(desk.pass(2400), ["2400 read w1 unless 6; = t1 running w1/1"]);
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    let story = desk.pass(2500);
    let told = "2500 read w1 unless 7; write ledger 0 over 3: t1 succeeded w1/1; = t1 succeeded w1/1";
    assert_eq!(story, [told]);
    let record = desk.record("t1");
    assert_eq!((&*record.result, &*record.payload, &*record.reason), (&b"r"[..], &b""[..], ""));
    assert_eq!(desk.core.take_claim_times(), [200]);
    assert_eq!(desk.core.take_claim_times(), [0; 0], "told once");
    let counts = DispatchCounts { created: 1, dispatched: 1, finished: 1, ..DispatchCounts::default() };
    assert_eq!((desk.core.counts(), desk.core.open()), (counts, (0, 0)));
    assert_eq!(desk.core.in_flight(&name("w1")), 0);
}

#[test]
fn only_a_first_claim_tells_how_long_it_took() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.attempts_max = 2), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Failed));
    desk.pass(2300);
    assert_eq!(desk.core.take_claim_times(), [200]);
    desk.all(2300, DispatchInput::Assign { id: name("t1"), worker: name("w1") });
    assert_eq!(desk.state("t1"), TaskState::Dispatched);
    desk.says("w1", "t1/2", acked());
    desk.pass(3000);
    assert_eq!((desk.state("t1"), desk.core.take_claim_times()), (TaskState::Acked, vec![]));
}

// ---- waiting ----

#[test]
fn what_nobody_claims_expires_to_the_millisecond() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![limited("t1", |limits| limits.ttl_ms = 700)]);
    desk.serve();
    desk.tell(2100, DispatchInput::Hold { id: name("t1"), reason: Arc::from("nobody") });
    assert_eq!(desk.pass(2700), ["2700 write ledger 0 over 2: t1 expired; = t1 expired"]);
    assert_eq!(&*desk.record("t1").reason, "nobody claimed it in time: nobody");
    assert_eq!(desk.core.counts().finished, 1);
}

#[test]
fn a_deadline_ends_what_waits_however_long_it_may() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![limited("t1", |limits| limits.deadline_ms = 700)]);
    desk.serve();
    assert_eq!(desk.pass(2700), ["2700 write ledger 0 over 2: t1 expired; = t1 expired"]);
}

#[test]
fn what_is_dispatched_and_not_claimed_is_taken_back_and_given_to_another() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    let story = desk.pass(5000);
    let last = story.last().expect("something happened");
    let told =
        "5000 read w1 unless 5; write w1 over 5: ; write ledger 0 over 3: t1 queued w1/1; = t1 queued w1/1";
    assert_eq!(last, told, "{story:#?}");
    let record = desk.record("t1");
    assert_eq!((record.begun(), &*record.reason), (0, "worker w1 did not claim it"));
    let said = desk.assign(5000, "t1", "w2");
    assert_eq!(said, ["write ledger 0 over 7: t1 dispatched w2/2", "write w2 new: "]);
    assert_eq!(desk.core.in_flight(&name("w2")), 1);
}

#[test]
fn what_was_dispatched_expires_in_the_inbox_too() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.ttl_ms = 700), "w1");
    let story = desk.pass(2700);
    let told = "2700 write w1 over 5: ; write ledger 0 over 3: t1 expired w1/1; = t1 expired w1/1";
    assert_eq!(story.last().map(String::as_str), Some(told), "{story:#?}");
    assert_eq!(&*desk.record("t1").reason, "worker w1 did not claim it in time");
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.deadline_ms = 700), "w1");
    assert_eq!(desk.pass(2700).last().map(String::as_str), Some(told));
}

#[test]
fn what_is_claimed_while_it_is_taken_back_stays_with_its_worker() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 2500, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.pass(4499);
    desk.says("w1", "t1/1", running());
    assert_eq!(desk.wake(4500), ["write w1 over 5: "]);
    assert_eq!(desk.answer("write w1"), ["read w1 unless 5"], "refused: somebody was there");
    assert_eq!(desk.serve(), ["= t1 running w1/1"]);
    assert_eq!(desk.record("t1").unbegun, 0);
}

#[test]
fn what_was_claimed_in_the_same_look_is_not_taken_back() {
    // A worker that claims in the very moment in which it falls silent.
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", acked());
    desk.wake(2200);
    assert_eq!(desk.answer("read w1"), ["= t1 acked w1/1"]);
    assert_eq!(desk.pass(5200).iter().filter(|line| line.contains("write")).count(), 0, "no claim timeout");
}

#[test]
fn every_limit_wakes_it_also_those_after_one_that_is_due_now() {
    let mut desk = Desk::ready(config());
    let records =
        vec![limited("t1", |limits| limits.ttl_ms = 700), limited("t2", |limits| limits.ttl_ms = 900)];
    desk.submit(2000, records);
    desk.serve();
    for id in ["t1", "t2"] {
        desk.tell(2000, DispatchInput::Hold { id: name(id), reason: Arc::from("") });
    }
    assert_eq!(desk.at(), Some(2700));
    assert_eq!(desk.core.wake_at(Time(2700)), Some(Time(2900)));
}

#[test]
fn what_is_being_taken_back_waits_for_nothing_but_its_inbox() {
    let mut desk = Desk::ready(DispatcherConfig { claim_timeout_ms: 2500, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    assert_eq!(desk.workers(2100, &["-w1", "w2"]), ["write w1 over 5: "]);
    for at in [2200, 3000, 4000, 5000] {
        assert_eq!(
            (desk.at(), desk.wake(at)),
            (Some(at), Vec::new()),
            "its looks, not the time for its claim"
        );
    }
}

#[test]
fn what_is_over_has_no_deadline() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![limited("t1", |limits| limits.deadline_ms = 700)]);
    desk.serve();
    desk.all(2100, DispatchInput::Cancel(name("t1")));
    assert_eq!(desk.pass(9000), [""; 0]);
}

#[test]
fn what_was_looked_at_in_vain_is_not_new_again_without_a_reason() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![task("t1")]);
    desk.serve();
    desk.tell(2000, DispatchInput::Hold { id: name("t1"), reason: Arc::from("nobody") });
    for now in [2500, 3000, 5000, 9000] {
        desk.all(now, DispatchInput::Wake);
        assert_eq!(desk.core.unassigned_new(Time(now)).count(), 0, "at {now}");
    }
}

// ---- workers that are gone ----

#[test]
fn what_a_silent_worker_has_not_claimed_goes_to_another_at_once() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    assert_eq!(desk.workers(2100, &["-w1", "w2"]), ["write w1 over 5: "]);
    assert_eq!(desk.serve(), ["write ledger 0 over 3: t1 queued w1/1", "= t1 queued w1/1"]);
}

#[test]
fn what_a_silent_worker_has_claimed_is_lost_after_a_look_from_after_that() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    assert_eq!(desk.workers(2250, &["-w1", "w2"]), ["read w1 unless 6"], "perhaps it has ended it");
    let told =
        ["write ledger 0 over 3: t1 lost w1/1", "write w1 over 6: t1/1 running called off", "= t1 lost w1/1"];
    assert_eq!(desk.serve(), told);
    let record = desk.record("t1");
    assert_eq!((record.given_up, &*record.reason), (true, "its worker fell silent"));
    assert_eq!(desk.core.counts().lost, 1);
}

#[test]
fn what_a_silent_worker_had_ended_counts() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.workers(2250, &["-w1", "w2"]);
    desk.serve();
    assert_eq!((desk.state("t1"), desk.core.counts().lost), (TaskState::Succeeded, 0));
}

#[test]
fn a_look_that_was_sent_before_a_worker_fell_silent_proves_nothing() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    assert_eq!(desk.wake(2400), ["read w1 unless 6"]);
    assert_eq!(desk.workers(2410, &["-w1"]), [""; 0], "one is under way");
    assert_eq!(desk.answer("read w1"), ["read w1 unless 6"], "too old; another one");
    assert_eq!(desk.state("t1"), TaskState::Running);
    desk.answer("read w1");
    assert_eq!(desk.state("t1"), TaskState::Lost);
}

#[test]
fn how_long_a_worker_is_gone_is_counted_from_when_it_was_told_first() {
    for gone in [["-w1", "w2"].as_slice(), &["w2"]] {
        let mut desk = Desk::ready(config());
        desk.dispatch(2000, task("t1"), "w1");
        desk.says("w1", "t1/1", running());
        desk.pass(2200);
        assert_eq!(desk.workers(2250, gone), ["read w1 unless 6"]);
        desk.workers(2260, gone);
        desk.answer("read w1");
        assert_eq!(desk.state("t1"), TaskState::Lost, "the look was sent late enough");
    }
}

#[test]
fn a_worker_that_comes_back_keeps_what_it_claimed() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.workers(2250, &["-w1"]);
    desk.workers(2260, &["w1"]);
    assert_eq!(desk.serve(), [""; 0]);
    assert_eq!(desk.state("t1"), TaskState::Running);
    // Silent again: from then on.
    assert_eq!(desk.workers(2270, &["-w1"]), ["read w1 unless 6"]);
    desk.serve();
    assert_eq!(desk.state("t1"), TaskState::Lost);
}

#[test]
fn whoever_is_not_in_a_list_of_all_workers_is_gone_and_of_a_part_is_not() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    let part = DispatchInput::Workers { list: [(name("w2"), true)].into(), whole: false };
    assert_eq!(desk.tell(2100, part), [""; 0]);
    assert_eq!(desk.workers(2100, &["w2"]), ["write w1 over 5: "]);
    desk.serve();
    assert_eq!(desk.state("t1"), TaskState::Queued);
}

// ---- running ----

#[test]
fn what_its_worker_does_not_end_in_time_is_given_up_a_margin_later() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.pass(4699);
    assert_eq!(desk.state("t1"), TaskState::Running);
    let story = desk.pass(4700);
    let told = "4700 write ledger 0 over 3: t1 timed_out w1/1; write w1 over 6: t1/1 running called off; \
                = t1 timed_out w1/1";
    assert_eq!(story, [told]);
    assert_eq!(&*desk.record("t1").reason, "the worker did not end it in time");
    assert_eq!((desk.record("t1").given_up, desk.core.counts().lost), (true, 0));
}

#[test]
fn what_is_claimed_and_has_not_begun_has_no_time_limit_but_its_deadline() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.deadline_ms = 9000), "w1");
    desk.says("w1", "t1/1", acked());
    desk.pass(10_999);
    assert_eq!(desk.state("t1"), TaskState::Acked);
    let story = desk.pass(11_000);
    assert!(story[0].starts_with("11000 ") && story[0].contains("write ledger 0 over 3: t1 timed_out w1/1"));
    assert_eq!(&*desk.record("t1").reason, "its deadline has passed");
}

#[test]
fn a_deadline_that_has_passed_allows_no_other_attempt() {
    for (at, state) in [(3199, TaskState::Queued), (3200, TaskState::Failed)] {
        let limits = |limits: &mut TaskLimits| (limits.attempts_max, limits.deadline_ms) = (3, 1200);
        let mut desk = Desk::ready(config());
        desk.dispatch(2000, limited("t1", limits), "w1");
        desk.says("w1", "t1/1", running());
        desk.pass(2200);
        desk.says("w1", "t1/1", done(OutcomeKind::Failed));
        // The look that shows it is answered only then.
        desk.wake(2400);
        let (id, _) = desk.take("read w1");
        let (doc, number) = desk.inboxes[&name("w1")].clone();
        let read = InboxRead::Found(doc, Version::new(&number.to_string()));
        desk.core.handle(Time(at), DispatchInput::Inbox(id, name("w1"), read));
        assert_eq!(desk.state("t1"), state, "at {at}");
    }
}

// ---- attempts ----

#[test]
fn a_failed_attempt_is_repeated_after_pauses_that_double() {
    let limits = |limits: &mut TaskLimits| (limits.attempts_max, limits.backoff_ms) = (4, 100);
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![limited("t1", limits)]);
    desk.serve();
    let mut pauses = Vec::new();
    for attempt in 1..=4 {
        let waiting = |desk: &Desk| desk.core.unassigned(Time(desk.now)).count();
        let began = desk.now;
        while waiting(&desk) == 0 {
            let at = desk.at().expect("it waits for the end of its pause");
            desk.all(at, DispatchInput::Wake);
        }
        pauses.push(desk.now - began);
        assert_eq!(desk.core.unassigned_new(Time(desk.now)).count(), 1, "nobody was looked for since");
        desk.all(desk.now, DispatchInput::Assign { id: name("t1"), worker: name("w1") });
        desk.says("w1", &format!("t1/{attempt}"), done(OutcomeKind::Failed));
        let at = desk.at().expect("it looks");
        desk.all(at, DispatchInput::Wake);
        if attempt < 4 {
            assert_eq!(desk.state("t1"), TaskState::Queued);
            assert_eq!(&*desk.record("t1").reason, format!("attempt {attempt} ended as failed"));
            assert_eq!(waiting(&desk), 0, "not yet");
            assert_eq!(desk.core.unassigned_new(Time(desk.now)).count(), 0);
            assert_eq!(desk.assign(desk.now, "t1", "w1"), [""; 0]);
        }
    }
    assert_eq!(pauses, [0, 100, 200, 400]);
    assert_eq!((desk.state("t1"), desk.record("t1").attempt), (TaskState::Failed, 4));
}

#[test]
fn no_pause_is_longer_than_ten_minutes() {
    let limits = |limits: &mut TaskLimits| {
        (limits.attempts_max, limits.backoff_ms, limits.ttl_ms) = (9, 400_000, 9_000_000);
    };
    let mut record = limited("t1", limits);
    (record.state, record.attempt, record.worker) = (TaskState::Running, 2, Some(name("w1")));
    let mut desk =
        Desk::after(vec![record], vec![("w1", inbox(vec![entry("t1/2", done(OutcomeKind::Failed))]))]);
    desk.serve();
    assert_eq!(desk.state("t1"), TaskState::Queued);
    assert_eq!(desk.core.unassigned(Time(desk.now + 599_999)).count(), 0);
    assert_eq!(desk.core.unassigned(Time(desk.now + 600_000)).count(), 1);
}

#[test]
fn what_its_worker_gives_back_costs_no_attempt_and_begins_to_wait_anew() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.ttl_ms = 5000), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Returned));
    desk.pass(2200);
    let record = desk.record("t1");
    assert_eq!((record.state, record.begun(), record.unbegun), (TaskState::Queued, 0, 1));
    assert_eq!(&*record.reason, "its worker gave it back");
    assert_eq!(desk.core.unassigned(Time(2200)).count(), 1, "without a pause");
    desk.pass(7199);
    assert_eq!(desk.state("t1"), TaskState::Queued);
    desk.pass(7200);
    assert_eq!(desk.state("t1"), TaskState::Expired);
}

#[test]
fn the_next_attempt_has_all_its_time_to_be_claimed() {
    let limits = |limits: &mut TaskLimits| (limits.attempts_max, limits.ttl_ms) = (2, 5000);
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", limits), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Failed));
    desk.pass(7199);
    assert_eq!(desk.state("t1"), TaskState::Queued);
    desk.pass(7200);
    assert_eq!(desk.state("t1"), TaskState::Expired);
}

#[test]
fn every_outcome_leads_to_its_state() {
    let ends = [
        (OutcomeKind::Succeeded, TaskState::Succeeded, ""),
        (OutcomeKind::Partial, TaskState::Partial, ""),
        (OutcomeKind::Failed, TaskState::Failed, ""),
        (OutcomeKind::TimedOut, TaskState::TimedOut, ""),
        (OutcomeKind::Cancelled, TaskState::Lost, ""),
        (OutcomeKind::Abandoned, TaskState::Lost, "its worker was started again"),
        (OutcomeKind::Returned, TaskState::Queued, "its worker gave it back"),
    ];
    for (kind, state, reason) in ends {
        let mut desk = Desk::ready(config());
        desk.dispatch(2000, task("t1"), "w1");
        desk.says("w1", "t1/1", done(kind));
        desk.pass(2200);
        assert_eq!((desk.state("t1"), &*desk.record("t1").reason), (state, reason), "{kind:?}");
        // And if it was to be called off.
        let mut desk = Desk::ready(config());
        desk.dispatch(2000, limited("t1", |limits| limits.attempts_max = 3), "w1");
        desk.says("w1", "t1/1", running());
        desk.pass(2200);
        desk.all(2200, DispatchInput::Cancel(name("t1")));
        desk.says("w1", "t1/1", done(kind));
        desk.pass(2400);
        let done = matches!(kind, OutcomeKind::Succeeded | OutcomeKind::Partial);
        assert_eq!(desk.state("t1"), if done { state } else { TaskState::Cancelled }, "{kind:?}");
    }
}

#[test]
fn a_second_attempt_tells_what_became_of_the_first() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.attempts_max = 2), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    desk.workers(2300, &["-w1", "w2"]);
    desk.serve();
    assert_eq!(&*desk.record("t1").reason, "attempt 1 ended as lost (its worker fell silent)");
    assert_eq!((desk.state("t1"), desk.core.counts().lost), (TaskState::Queued, 1));
}

// ---- calling off ----

#[test]
fn what_waits_is_called_off_at_once() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![task("t1")]);
    desk.serve();
    let said = desk.all(2000, DispatchInput::Cancel(name("t1")));
    assert_eq!(said, ["write ledger 0 over 2: t1 cancelled to be called off", "= t1 cancelled"]);
    assert_eq!(desk.all(2000, DispatchInput::Cancel(name("t1"))), [""; 0]);
    assert_eq!(desk.all(2000, DispatchInput::Cancel(name("t9"))), [""; 0], "nobody knows it");
}

#[test]
fn what_is_not_claimed_is_taken_back_to_be_called_off() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    let said = desk.tell(2100, DispatchInput::Cancel(name("t1")));
    assert_eq!(said, ["write ledger 0 over 3: t1 dispatched w1/1 to be called off", "write w1 over 5: "]);
    desk.serve();
    assert_eq!(&*desk.record("t1").reason, "called off before it was claimed");
    assert_eq!(desk.state("t1"), TaskState::Cancelled);
}

#[test]
fn what_runs_is_called_off_in_the_inbox_and_ends_as_its_worker_says() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(2200);
    let said = desk.tell(2250, DispatchInput::Cancel(name("t1")));
    let told = [
        "write ledger 0 over 3: t1 running w1/1 to be called off",
        "write w1 over 6: t1/1 running called off",
    ];
    assert_eq!(said, told);
    desk.serve();
    assert_eq!(desk.all(2260, DispatchInput::Cancel(name("t1"))), [""; 0], "once is enough");
    assert_eq!(desk.state("t1"), TaskState::Running);
}

#[test]
fn what_a_former_leader_wanted_called_off_is_taken_back_by_the_next() {
    let wanted = TaskRecord { cancel: true, ..out("t1", "w1", TaskState::Dispatched) };
    let unclaimed = inbox(vec![entry("t1/1", EntryState::Dispatched)]);
    let mut desk = Desk::after(vec![wanted], vec![("w1", unclaimed)]);
    desk.serve();
    assert_eq!(desk.state("t1"), TaskState::Cancelled);
}

// ---- results that come too late ----

/// A leader that gave up the first attempt of a task whose worker still speaks.
fn given_up(attempts_max: u32) -> Desk {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, limited("t1", |limits| limits.attempts_max = attempts_max), "w1");
    desk.says("w1", "t1/1", running());
    desk.pass(4700);
    assert!(desk.record("t1").given_up);
    desk
}

#[test]
fn a_late_result_is_recorded_and_told_once_and_not_applied() {
    for attempts_max in [1, 2] {
        let mut desk = given_up(attempts_max);
        let before = desk.record("t1").clone();
        desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
        let story = desk.pass(9000);
        let told: Vec<&String> =
            story.iter().filter(|line| line.contains("late succeeded of t1/1 from w1")).collect();
        assert_eq!(told.len(), 1, "{story:#?}");
        let late = vec![LateResult { attempt: 1, worker: name("w1"), kind: OutcomeKind::Succeeded }];
        assert_eq!(desk.record("t1"), &TaskRecord { late: late.clone(), ..before });
        assert_eq!(desk.ledgers[&0].0.tasks[0].late, late);
        assert_eq!(desk.core.counts().late, 1);
    }
}

#[test]
fn a_late_word_without_a_result_is_not_recorded() {
    for kind in [OutcomeKind::Abandoned, OutcomeKind::Returned] {
        let mut desk = given_up(1);
        desk.says("w1", "t1/1", done(kind));
        desk.pass(9000);
        assert_eq!((desk.record("t1").late.len(), desk.core.counts().late), (0, 0), "{kind:?}");
    }
}

#[test]
fn eight_late_results_are_remembered_and_all_are_counted() {
    let entries: Vec<Entry> = (1..=9).map(|n| entry(&format!("t1/{n}"), done(OutcomeKind::Failed))).collect();
    let record = TaskRecord { attempt: 10, ..out("t1", "w2", TaskState::Running) };
    let mut desk = Desk::after(vec![record], vec![("w1", inbox(entries))]);
    desk.serve();
    assert_eq!((desk.record("t1").late.len(), desk.core.counts().late), (TASK_LATE_MAX, 9));
    assert_eq!(TASK_LATE_MAX, 8);
}

#[test]
fn the_result_that_was_applied_is_not_late_when_it_is_seen_again() {
    let mut desk = Desk::ready(config());
    desk.dispatch(2000, task("t1"), "w1");
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(2200);
    desk.work("w1", |_| {});
    desk.dispatch(2300, task("t2"), "w1");
    assert_eq!(desk.core.counts().late, 0);
}

#[test]
fn a_late_result_that_was_removed_and_comes_again_is_told_again() {
    let mut desk = given_up(2);
    desk.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    desk.pass(6000);
    desk.all(6000, DispatchInput::Assign { id: name("t1"), worker: name("w1") });
    let there: Vec<u32> = desk.inboxes[&name("w1")].0.entries.iter().map(|entry| entry.attempt).collect();
    assert_eq!((there, desk.core.counts().late), (vec![2], 1), "with the next write");
    desk.work("w1", |doc| doc.entries.push(entry("t1/1", done(OutcomeKind::Succeeded))));
    desk.pass(8000);
    assert_eq!(desk.core.counts().late, 2);
}

#[test]
fn the_same_attempt_from_another_worker_is_late() {
    let record = TaskRecord { attempt: 1, ..out("t1", "w2", TaskState::Succeeded) };
    let strange = inbox(vec![entry("t1/1", done(OutcomeKind::Failed))]);
    let mut desk = Desk::after(vec![record], vec![("w1", strange)]);
    desk.serve();
    assert_eq!(desk.record("t1").late.len(), 1);
}

// ---- who gets what ----

#[test]
fn a_task_for_one_worker_goes_to_that_one_as_soon_as_it_can() {
    let mut desk = Desk::ready(config());
    let wanted = |id: &str| TaskRecord { target: Some(name("w3")), ..task(id) };
    desk.submit(2000, vec![wanted("t1")]);
    desk.serve();
    assert_eq!(&*desk.record("t1").reason, "worker w3 is not active");
    assert_eq!(desk.core.unassigned(Time(2000)).count(), 0, "nobody else is asked");
    let said = desk.workers(2030, &["w1", "w3"]);
    assert_eq!(said, [""; 0], "not more often than is of use");
    assert_eq!(desk.at(), Some(2050));
    assert_eq!(desk.wake(2050), ["write ledger 0 over 2: t1 dispatched w3/1", "write w3 new: "]);
}

#[test]
fn nobody_gets_anything_before_the_workers_are_known() {
    let mut desk = Desk::new(config());
    desk.wake(1000);
    desk.serve();
    desk.submit(1000, vec![task("t1")]);
    desk.serve();
    desk.assign(1000, "t1", "w1");
    assert_eq!(&*desk.record("t1").reason, "the workers are not known yet");
}

#[test]
fn whoever_cannot_take_it_is_the_reason_why_it_waits() {
    let mut desk = Desk::ready(DispatcherConfig { entries_max: 1, ..config() });
    desk.dispatch(2000, task("t1"), "w1");
    desk.submit(2000, vec![task("t2")]);
    desk.serve();
    desk.assign(2000, "t2", "w1");
    assert_eq!(&*desk.record("t2").reason, "the inbox of worker w1 is full");
    assert!(!desk.core.has_room(&name("w1"), 0) && desk.core.has_room(&name("w2"), 0));
    desk.assign(2000, "t2", "w9");
    assert_eq!(&*desk.record("t2").reason, "worker w9 is not active");
    desk.workers(2000, &["w1", "-w2"]);
    desk.assign(2000, "t2", "w2");
    assert_eq!(&*desk.record("t2").reason, "worker w2 is not active");
    assert_eq!(desk.assign(2000, "t1", "w1"), [""; 0], "it is out");
}

#[test]
fn those_that_wait_get_a_chance_when_something_has_happened_and_not_too_often() {
    let mut desk = Desk::ready(config());
    desk.submit(2000, vec![task("t1")]);
    desk.serve();
    desk.tell(2000, DispatchInput::Hold { id: name("t1"), reason: Arc::from("nobody") });
    assert_eq!(desk.core.unassigned_new(Time(2000)).count(), 0);
    assert_eq!(desk.core.unassigned(Time(2000)).count(), 1);
    let may = |desk: &Desk, at: u64| desk.core.may_retry(Time(at));
    assert!(!may(&desk, 9000), "nothing has happened");
    desk.workers(2030, &["w1", "w2"]);
    assert!(may(&desk, 2050) && !may(&desk, 2049), "half a fast interval after the last time");
    assert_eq!((desk.at(), desk.wake(2049)), (Some(2050), Vec::new()));
    assert!(may(&desk, 2050));
    desk.wake(2050);
    assert!(!may(&desk, 9000), "they had their chance");
    assert_eq!(desk.at(), Some(3000), "nobody is woken for them: the reason is to be written");
}

#[test]
fn workers_with_more_or_less_to_do_are_told_once() {
    let mut desk = Desk::ready(config());
    desk.core.take_touched();
    desk.dispatch(2000, task("t1"), "w1");
    assert_eq!(desk.core.take_touched(), [name("w1")].into());
    assert_eq!(desk.core.take_touched(), [].into());
}
