//! What becomes of a job's attempt: by the clock and by its worker.

use crate::dispatcher::driver::*;
use tenure_core::document::*;
use tenure_core::machine::Input;
use tenure_core::*;

#[test]
fn a_job_goes_from_its_submission_to_its_result() {
    let mut driver = Driver::ready(config());
    assert_eq!(driver.submit(2000, vec![job("t1")]), ["write ledger 0 over 1: t1 queued"]);
    assert_eq!(driver.serve(), ["#1 Created", "= t1 queued"]);
    let said = driver.assign(2000, "t1", "w1");
    assert_eq!(said, ["write ledger 0 over 2: t1 dispatched w1/1", "write w1 new: "], "recorded first");
    assert_eq!(driver.answer("write ledger"), ["= t1 dispatched w1/1"]);
    assert_eq!(driver.answer("write w1"), ["write w1 over 4: t1/1 dispatched e2"], "then dispatched");
    assert_eq!(driver.serve(), [""; 0]);
    assert_eq!(driver.inboxes[&name("w1")].0.entries[0].dispatched_at, 2000, "by the wall clock");
    assert_eq!((driver.core.open(), driver.core.in_flight(&name("w1"))), ((0, 1), 1));
    driver.says("w1", "t1/1", acked());
    assert_eq!(driver.pass(2200), ["2200 read w1 unless 5; = t1 acked w1/1"]);
    driver.says("w1", "t1/1", running());
    assert_eq!(driver.pass(2400), ["2400 read w1 unless 6; = t1 running w1/1"]);
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    let story = driver.pass(2500);
    let told = "2500 read w1 unless 7; write ledger 0 over 3: t1 succeeded w1/1; = t1 succeeded w1/1";
    assert_eq!(story, [told]);
    let record = driver.record("t1");
    assert_eq!((&*record.result, &*record.payload, &*record.reason), (&b"r"[..], &b""[..], ""));
    assert_eq!(driver.take_claim_times(), [200]);
    assert_eq!(driver.take_claim_times(), [0; 0], "told once");
    let counts = DispatchCounts { created: 1, dispatched: 1, finished: 1, ..DispatchCounts::default() };
    assert_eq!((driver.core.counts(), driver.core.open()), (counts, (0, 0)));
    assert_eq!(driver.core.in_flight(&name("w1")), 0);
}

#[test]
fn only_a_first_claim_tells_how_long_it_took() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.attempts_max = 2), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Failed));
    driver.pass(2300);
    assert_eq!(driver.take_claim_times(), [200]);
    driver.all(2300, assign("t1", "w1"));
    assert_eq!(driver.state("t1"), JobState::Dispatched);
    driver.says("w1", "t1/2", acked());
    driver.pass(3000);
    assert_eq!((driver.state("t1"), driver.take_claim_times()), (JobState::Acked, vec![]));
}

// ---- waiting ----

#[test]
fn what_nobody_claims_expires_to_the_millisecond() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![limited("t1", |limits| limits.ttl_ms = 700)]);
    driver.serve();
    driver.tell(2100, explain("t1", "nobody"));
    assert_eq!(driver.pass(2700), ["2700 write ledger 0 over 2: t1 expired; = t1 expired"]);
    assert_eq!(&*driver.record("t1").reason, "nobody claimed it in time: nobody");
    assert_eq!(driver.core.counts().finished, 1);
}

#[test]
fn a_deadline_ends_what_waits_however_long_it_may() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![limited("t1", |limits| limits.deadline_ms = 700)]);
    driver.serve();
    assert_eq!(driver.pass(2700), ["2700 write ledger 0 over 2: t1 expired; = t1 expired"]);
}

#[test]
fn what_is_dispatched_and_not_claimed_is_taken_back_and_given_to_another() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    let story = driver.pass(5000);
    let last = story.last().expect("something happened");
    let told =
        "5000 read w1 unless 5; write w1 over 5: ; write ledger 0 over 3: t1 queued w1/1; = t1 queued w1/0";
    assert_eq!(last, told, "{story:#?}");
    let record = driver.record("t1");
    assert_eq!((record.begun(), &*record.reason), (0, "worker w1 did not claim it"));
    let said = driver.assign(5000, "t1", "w2");
    assert_eq!(said, ["write ledger 0 over 7: t1 dispatched w2/2", "write w2 new: "]);
    assert_eq!(driver.core.in_flight(&name("w2")), 1);
}

#[test]
fn what_was_dispatched_expires_in_the_inbox_too() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.ttl_ms = 700), "w1");
    let story = driver.pass(2700);
    let told = "2700 write w1 over 5: ; write ledger 0 over 3: t1 expired w1/1; = t1 expired w1/0";
    assert_eq!(story.last().map(String::as_str), Some(told), "{story:#?}");
    assert_eq!(&*driver.record("t1").reason, "worker w1 did not claim it in time");
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.deadline_ms = 700), "w1");
    assert_eq!(driver.pass(2700).last().map(String::as_str), Some(told));
}

#[test]
fn what_is_claimed_while_it_is_taken_back_stays_with_its_worker() {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 2500, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.pass(4499);
    driver.says("w1", "t1/1", running());
    assert_eq!(driver.wake(4500), ["write w1 over 5: "]);
    assert_eq!(driver.answer("write w1"), ["read w1 unless 5"], "refused: somebody was there");
    assert_eq!(driver.serve(), ["= t1 running w1/1"]);
    assert_eq!(driver.record("t1").unbegun, 0);
}

#[test]
fn what_was_claimed_in_the_same_look_is_not_taken_back() {
    // A worker that claims in the very moment in which it falls silent.
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", acked());
    driver.wake(2200);
    assert_eq!(driver.answer("read w1"), ["= t1 acked w1/1"]);
    assert_eq!(driver.pass(5200).iter().filter(|line| line.contains("write")).count(), 0, "no claim timeout");
}

#[test]
fn every_limit_wakes_it_also_those_after_one_that_is_due_now() {
    let mut driver = Driver::ready(config());
    let records =
        vec![limited("t1", |limits| limits.ttl_ms = 700), limited("t2", |limits| limits.ttl_ms = 900)];
    driver.submit(2000, records);
    driver.serve();
    for id in ["t1", "t2"] {
        driver.tell(2000, explain(id, ""));
    }
    assert_eq!(driver.at(), Some(2700));
    driver.wake(2700);
    assert_eq!(driver.at(), Some(2900));
}

#[test]
fn what_is_being_taken_back_waits_for_nothing_but_its_inbox() {
    let mut driver = Driver::ready(DispatcherConfig { claim_timeout_ms: 2500, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    assert_eq!(driver.workers(2100, &["-w1", "w2"]), ["write w1 over 5: "]);
    for at in [2200, 3000, 4000, 5000] {
        assert_eq!(
            (driver.at(), driver.wake(at)),
            (Some(at), Vec::new()),
            "its looks, not the time for its claim"
        );
    }
}

#[test]
fn what_is_over_has_no_deadline() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![limited("t1", |limits| limits.deadline_ms = 700)]);
    driver.serve();
    driver.all(2100, cancel("t1"));
    assert_eq!(driver.pass(9000), [""; 0]);
}

#[test]
fn what_was_looked_at_in_vain_is_not_new_again_without_a_reason() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    driver.tell(2000, explain("t1", "nobody"));
    let asked = driver.asked();
    for now in [2500, 3000, 5000, 9000] {
        driver.all(now, Input::Wake);
        assert_eq!(driver.asked(), asked, "at {now}");
    }
}

// ---- workers that are gone ----

#[test]
fn what_a_silent_worker_has_not_claimed_goes_to_another_at_once() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    assert_eq!(driver.workers(2100, &["-w1", "w2"]), ["write w1 over 5: "]);
    assert_eq!(driver.serve(), ["write ledger 0 over 3: t1 queued w1/1", "= t1 queued w1/0"]);
}

#[test]
fn what_a_silent_worker_has_claimed_is_lost_after_a_look_from_after_that() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    assert_eq!(driver.workers(2250, &["-w1", "w2"]), ["read w1 unless 6"], "perhaps it has ended it");
    let told =
        ["write ledger 0 over 3: t1 lost w1/1", "write w1 over 6: t1/1 running called off", "= t1 lost w1/1"];
    assert_eq!(driver.serve(), told);
    let record = driver.record("t1");
    assert_eq!((record.given_up, &*record.reason), (true, "its worker fell silent"));
    assert_eq!(driver.core.counts().lost, 1);
}

#[test]
fn what_a_silent_worker_had_ended_counts() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.workers(2250, &["-w1", "w2"]);
    driver.serve();
    assert_eq!((driver.state("t1"), driver.core.counts().lost), (JobState::Succeeded, 0));
}

#[test]
fn a_look_that_was_sent_before_a_worker_fell_silent_proves_nothing() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    assert_eq!(driver.wake(2400), ["read w1 unless 6"]);
    assert_eq!(driver.workers(2410, &["-w1"]), [""; 0], "one is under way");
    assert_eq!(driver.answer("read w1"), ["read w1 unless 6"], "too old; another one");
    assert_eq!(driver.state("t1"), JobState::Running);
    driver.answer("read w1");
    assert_eq!(driver.state("t1"), JobState::Lost);
}

#[test]
fn how_long_a_worker_is_gone_is_counted_from_when_it_was_told_first() {
    for gone in [["-w1", "w2"].as_slice(), &["w2"]] {
        let mut driver = Driver::ready(config());
        driver.dispatch(2000, job("t1"), "w1");
        driver.says("w1", "t1/1", running());
        driver.pass(2200);
        assert_eq!(driver.workers(2250, gone), ["read w1 unless 6"]);
        driver.workers(2260, gone);
        driver.answer("read w1");
        assert_eq!(driver.state("t1"), JobState::Lost, "the look was sent late enough");
    }
}

#[test]
fn a_worker_that_comes_back_keeps_what_it_claimed() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    driver.workers(2250, &["-w1"]);
    driver.workers(2260, &["w1"]);
    assert_eq!(driver.serve(), [""; 0]);
    assert_eq!(driver.state("t1"), JobState::Running);
    // Silent again: from then on.
    assert_eq!(driver.workers(2270, &["-w1"]), ["read w1 unless 6"]);
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Lost);
}

#[test]
fn whoever_is_not_in_a_list_of_all_workers_is_gone_and_of_a_part_is_not() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    let part = Input::Command(DispatchCommand::Workers {
        list: [(name("w2"), true)].into(),
        listed: true,
        whole: false,
    });
    assert_eq!(driver.tell(2100, part), [""; 0]);
    assert_eq!(driver.workers(2100, &["w2"]), ["write w1 over 5: "]);
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Queued);
}

/// Of two who came after the last leader's list, one is not in it, the other as silent.
#[test]
pub(crate) fn what_a_leader_before_said_calls_nobody_gone() {
    for list in [[(name("w2"), true)], [(name("w1"), false)]] {
        let mut driver = Driver::ready(config());
        driver.dispatch(2000, job("t1"), "w1");
        driver.says("w1", "t1/1", running());
        driver.pass(2200);
        let told = |listed| {
            Input::Command(DispatchCommand::Workers { list: list.clone().into(), listed, whole: true })
        };
        assert_eq!(driver.tell(2250, told(false)), [""; 0]);
        assert_eq!(driver.state("t1"), JobState::Running);
        assert_eq!(driver.tell(2260, told(true)), ["read w1 unless 6"], "now it is this leader's own word");
        driver.serve();
        assert_eq!(driver.state("t1"), JobState::Lost);
    }
}

// ---- running ----

#[test]
fn what_its_worker_does_not_end_in_time_is_given_up_a_margin_later() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    driver.pass(4699);
    assert_eq!(driver.state("t1"), JobState::Running);
    let story = driver.pass(4700);
    let told = "4700 write ledger 0 over 3: t1 timed_out w1/1; write w1 over 6: t1/1 running called off; \
                = t1 timed_out w1/1";
    assert_eq!(story, [told]);
    assert_eq!(&*driver.record("t1").reason, "the worker did not end it in time");
    assert_eq!((driver.record("t1").given_up, driver.core.counts().lost), (true, 0));
}

#[test]
fn what_is_claimed_and_has_not_begun_has_no_time_limit_but_its_deadline() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.deadline_ms = 9000), "w1");
    driver.says("w1", "t1/1", acked());
    driver.pass(10_999);
    assert_eq!(driver.state("t1"), JobState::Acked);
    let story = driver.pass(11_000);
    assert!(story[0].starts_with("11000 ") && story[0].contains("write ledger 0 over 3: t1 timed_out w1/1"));
    assert_eq!(&*driver.record("t1").reason, "its deadline has passed");
}

#[test]
fn a_deadline_that_has_passed_allows_no_other_attempt() {
    for (at, state) in [(3199, JobState::Queued), (3200, JobState::Failed)] {
        let limits = |limits: &mut JobLimits| (limits.attempts_max, limits.deadline_ms) = (3, 1200);
        let mut driver = Driver::ready(config());
        driver.dispatch(2000, limited("t1", limits), "w1");
        driver.says("w1", "t1/1", running());
        driver.pass(2200);
        driver.says("w1", "t1/1", done(OutcomeKind::Failed));
        // The look that shows it is answered only then.
        driver.wake(2400);
        let (id, _) = driver.take("read w1");
        let (doc, number) = driver.inboxes[&name("w1")].clone();
        let read = DocumentAnswer::Read(doc.found(&number.to_string()));
        driver.now = at;
        driver.step(inbox_answer(id, "w1", read), &mut Vec::new());
        assert_eq!(driver.state("t1"), state, "at {at}");
    }
}
