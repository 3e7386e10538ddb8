//! What becomes of a job beyond its first attempt: repetitions, what is called off, what comes too late, who gets it.

use crate::dispatcher::driver::*;
use tenure_core::machine::Input;
use tenure_core::*;

#[test]
fn a_failed_attempt_is_repeated_after_pauses_that_double() {
    let limits = |limits: &mut JobLimits| (limits.attempts_max, limits.backoff_ms) = (4, 100);
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![limited("t1", limits)]);
    driver.serve();
    let mut pauses = Vec::new();
    for attempt in 1..=4 {
        let waiting = |driver: &Driver| driver.core.unassigned(Time(driver.now)).count();
        let (began, asked) = (driver.now, driver.asked());
        while waiting(&driver) == 0 {
            let at = driver.at().expect("it waits for the end of its pause");
            driver.all(at, Input::Wake);
        }
        pauses.push(driver.now - began);
        assert_eq!(driver.asked() - asked, usize::from(attempt > 1), "somebody is looked for at once");
        driver.all(driver.now, assign("t1", "w1"));
        driver.says("w1", &format!("t1/{attempt}"), done(OutcomeKind::Failed));
        let at = driver.at().expect("it looks");
        driver.all(at, Input::Wake);
        if attempt < 4 {
            assert_eq!(driver.state("t1"), JobState::Queued);
            assert_eq!(&*driver.record("t1").reason, format!("attempt {attempt} ended as failed"));
            assert_eq!(waiting(&driver), 0, "not yet");
            let asked = driver.asked();
            assert_eq!(driver.assign(driver.now, "t1", "w1"), [""; 0]);
            assert_eq!(driver.tell(driver.now, explain("t1", &driver.record("t1").reason.clone())), [""; 0]);
            assert_eq!(driver.asked(), asked, "nobody is looked for during the pause");
        }
    }
    assert_eq!(pauses, [0, 100, 200, 400]);
    assert_eq!((driver.state("t1"), driver.record("t1").dispatch), (JobState::Failed, 4));
}

#[test]
pub(crate) fn qu4_a_new_leader_keeps_to_the_pause_before_the_next_attempt() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.attempts_max = 2), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Failed));
    driver.pass(2200);
    let record = driver.record("t1").clone();
    let mut next = Driver::new(config());
    next.left(vec![record], Vec::new());
    next.now = 2210;
    next.workers(2210, &["w1", "w2"]);
    next.serve();
    assert_eq!(next.core.unassigned(Time(2299)).count(), 0, "100 ms from its end at 2200");
    assert_eq!(next.core.unassigned(Time(2300)).count(), 1);
}

#[test]
fn a_result_that_counted_is_not_late_when_it_is_seen_once_more() {
    let limits = |limits: &mut JobLimits| limits.attempts_max = 3;
    let failed = || entry("t1/1", done(OutcomeKind::Failed));
    let late = |driver: &Driver| (driver.record("t1").late.len(), driver.core.counts().late);
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", limits), "w1");
    driver.dispatch(2000, job("t2"), "w1");
    driver.says("w1", "t2/1", running());
    driver.says("w1", "t1/1", done(OutcomeKind::Failed));
    driver.pass(2400);
    driver.assign(2400, "t1", "w2");
    driver.serve();
    // The result still stands in the inbox when something else changes there.
    driver.says("w1", "t2/1", done(OutcomeKind::Succeeded));
    driver.pass(3000);
    assert_eq!((driver.state("t2"), late(&driver)), (JobState::Succeeded, (0, 0)));
    // Nor does a new leader call it late that tries the job again before it has read that inbox.
    let before = JobRecord { dispatch: 1, worker: Some(name("w1")), ..limited("t1", limits) };
    let busy = inbox(vec![failed(), entry("t2/1", running())]);
    let mut next = Driver::after(vec![before, out("t2", "w1", JobState::Running)], vec![("w1", busy)]);
    next.serve();
    next.assign(next.now, "t1", "w2");
    next.serve();
    next.says("w1", "t2/1", done(OutcomeKind::Succeeded));
    next.pass(4000);
    assert_eq!((next.state("t2"), late(&next)), (JobState::Succeeded, (0, 0)));
}

#[test]
fn no_pause_is_longer_than_ten_minutes() {
    let limits = |limits: &mut JobLimits| {
        (limits.attempts_max, limits.backoff_ms, limits.ttl_ms) = (9, 400_000, 9_000_000);
    };
    let mut record = limited("t1", limits);
    (record.state, record.dispatch, record.worker) = (JobState::Running, 2, Some(name("w1")));
    let mut driver =
        Driver::after(vec![record], vec![("w1", inbox(vec![entry("t1/2", done(OutcomeKind::Failed))]))]);
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Queued);
    assert_eq!(driver.core.unassigned(Time(driver.now + 599_999)).count(), 0);
    assert_eq!(driver.core.unassigned(Time(driver.now + 600_000)).count(), 1);
}

#[test]
fn what_its_worker_gives_back_costs_no_attempt_and_begins_to_wait_anew() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.ttl_ms = 5000), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Returned));
    driver.pass(2200);
    let record = driver.record("t1");
    assert_eq!((record.state, record.begun(), record.unbegun), (JobState::Queued, 0, 1));
    assert_eq!(&*record.reason, "its worker gave it back");
    assert_eq!(driver.core.unassigned(Time(2200)).count(), 1, "without a pause");
    driver.pass(7199);
    assert_eq!(driver.state("t1"), JobState::Queued);
    driver.pass(7200);
    assert_eq!(driver.state("t1"), JobState::Expired);
}

#[test]
fn the_next_attempt_has_all_its_time_to_be_claimed() {
    let limits = |limits: &mut JobLimits| (limits.attempts_max, limits.ttl_ms) = (2, 5000);
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", limits), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Failed));
    driver.pass(7199);
    assert_eq!(driver.state("t1"), JobState::Queued);
    driver.pass(7200);
    assert_eq!(driver.state("t1"), JobState::Expired);
}

#[test]
fn every_outcome_leads_to_its_state() {
    let ends = [
        (OutcomeKind::Succeeded, JobState::Succeeded, ""),
        (OutcomeKind::Partial, JobState::Partial, ""),
        (OutcomeKind::Failed, JobState::Failed, ""),
        (OutcomeKind::TimedOut, JobState::TimedOut, ""),
        (OutcomeKind::Cancelled, JobState::Lost, ""),
        (OutcomeKind::Abandoned, JobState::Lost, "its worker was started again"),
        (OutcomeKind::Returned, JobState::Queued, "its worker gave it back"),
    ];
    for (kind, state, reason) in ends {
        let mut driver = Driver::ready(config());
        driver.dispatch(2000, job("t1"), "w1");
        driver.says("w1", "t1/1", done(kind));
        driver.pass(2200);
        assert_eq!((driver.state("t1"), &*driver.record("t1").reason), (state, reason), "{kind:?}");
        // And if it was to be called off.
        let mut driver = Driver::ready(config());
        driver.dispatch(2000, limited("t1", |limits| limits.attempts_max = 3), "w1");
        driver.says("w1", "t1/1", running());
        driver.pass(2200);
        driver.all(2200, cancel("t1"));
        driver.says("w1", "t1/1", done(kind));
        driver.pass(2400);
        let done = matches!(kind, OutcomeKind::Succeeded | OutcomeKind::Partial);
        assert_eq!(driver.state("t1"), if done { state } else { JobState::Cancelled }, "{kind:?}");
    }
}

#[test]
fn a_second_attempt_tells_what_became_of_the_first() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.attempts_max = 2), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    driver.workers(2300, &["-w1", "w2"]);
    driver.serve();
    assert_eq!(&*driver.record("t1").reason, "attempt 1 ended as lost (its worker fell silent)");
    assert_eq!((driver.state("t1"), driver.core.counts().lost), (JobState::Queued, 1));
}

// ---- calling off ----

#[test]
fn what_waits_is_called_off_at_once() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    let said = driver.all(2000, cancel("t1"));
    assert_eq!(said, ["write ledger 0 over 2: t1 cancelled to be called off", "= t1 cancelled"]);
    assert_eq!(driver.all(2000, cancel("t1")), [""; 0]);
    assert_eq!(driver.all(2000, cancel("t9")), [""; 0], "nobody knows it");
}

#[test]
fn what_is_not_claimed_is_taken_back_to_be_called_off() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    let said = driver.tell(2100, cancel("t1"));
    assert_eq!(said, ["write ledger 0 over 3: t1 dispatched w1/1 to be called off", "write w1 over 5: "]);
    driver.serve();
    assert_eq!(&*driver.record("t1").reason, "cancelled before it was claimed");
    assert_eq!(driver.state("t1"), JobState::Cancelled);
}

#[test]
fn what_runs_is_called_off_in_the_inbox_and_ends_as_its_worker_says() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(2200);
    let said = driver.tell(2250, cancel("t1"));
    let told = [
        "write ledger 0 over 3: t1 running w1/1 to be called off",
        "write w1 over 6: t1/1 running called off",
    ];
    assert_eq!(said, told);
    driver.serve();
    assert_eq!(driver.all(2260, cancel("t1")), [""; 0], "once is enough");
    assert_eq!(driver.state("t1"), JobState::Running);
}

#[test]
fn what_a_former_leader_wanted_called_off_is_taken_back_by_the_next() {
    let wanted = JobRecord { cancel: true, ..out("t1", "w1", JobState::Dispatched) };
    let unclaimed = inbox(vec![entry("t1/1", EntryState::Dispatched)]);
    let mut driver = Driver::after(vec![wanted], vec![("w1", unclaimed)]);
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Cancelled);
}

// ---- results that come too late ----

/// A leader that gave up the first attempt of a job whose worker still speaks.
fn given_up(attempts_max: u32) -> Driver {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.attempts_max = attempts_max), "w1");
    driver.says("w1", "t1/1", running());
    driver.pass(4700);
    assert!(driver.record("t1").given_up);
    driver
}

#[test]
fn a_late_result_is_recorded_and_told_once_and_not_applied() {
    for attempts_max in [1, 2] {
        let mut driver = given_up(attempts_max);
        let before = driver.record("t1").clone();
        driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
        let story = driver.pass(9000);
        let told: Vec<&String> =
            story.iter().filter(|line| line.contains("late succeeded of t1/1 from w1")).collect();
        assert_eq!(told.len(), 1, "{story:#?}");
        let late = vec![LateResult { attempt: 1, worker: name("w1"), kind: OutcomeKind::Succeeded }];
        assert_eq!(driver.record("t1"), &JobRecord { late: late.clone(), ..before });
        assert_eq!(driver.ledgers[&0].0.jobs[0].late, late);
        assert_eq!(driver.core.counts().late, 1);
    }
}

#[test]
fn a_late_word_without_a_result_is_not_recorded() {
    for kind in [OutcomeKind::Abandoned, OutcomeKind::Returned] {
        let mut driver = given_up(1);
        driver.says("w1", "t1/1", done(kind));
        driver.pass(9000);
        assert_eq!((driver.record("t1").late.len(), driver.core.counts().late), (0, 0), "{kind:?}");
    }
}

#[test]
fn eight_late_results_are_remembered_and_all_are_counted() {
    let entries: Vec<Entry> = (1..=9).map(|n| entry(&format!("t1/{n}"), done(OutcomeKind::Failed))).collect();
    let record = JobRecord { dispatch: 10, ..out("t1", "w2", JobState::Running) };
    let mut driver = Driver::after(vec![record], vec![("w1", inbox(entries))]);
    driver.serve();
    assert_eq!((driver.record("t1").late.len(), driver.core.counts().late), (JOB_LATE_MAX, 9));
    assert_eq!(JOB_LATE_MAX, 8);
}

#[test]
fn the_result_that_was_applied_is_not_late_when_it_is_seen_again() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(2200);
    driver.work("w1", |_| {});
    driver.dispatch(2300, job("t2"), "w1");
    assert_eq!(driver.core.counts().late, 0);
}

#[test]
fn a_late_result_that_was_removed_and_comes_again_is_told_again() {
    let mut driver = given_up(2);
    driver.says("w1", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(6000);
    driver.all(6000, assign("t1", "w1"));
    let there: Vec<u32> = driver.inboxes[&name("w1")].0.entries.iter().map(|entry| entry.dispatch).collect();
    assert_eq!((there, driver.core.counts().late), (vec![2], 1), "with the next write");
    driver.work("w1", |doc| doc.entries.push(entry("t1/1", done(OutcomeKind::Succeeded))));
    driver.pass(8000);
    assert_eq!(driver.core.counts().late, 2);
}

#[test]
fn the_same_attempt_from_another_worker_is_late() {
    let record = JobRecord { dispatch: 1, ..out("t1", "w2", JobState::Succeeded) };
    let strange = inbox(vec![entry("t1/1", done(OutcomeKind::Failed))]);
    let mut driver = Driver::after(vec![record], vec![("w1", strange)]);
    driver.serve();
    assert_eq!(driver.record("t1").late.len(), 1);
}

// ---- who gets what ----

#[test]
fn a_job_for_one_worker_goes_to_that_one_as_soon_as_it_can() {
    let mut driver = Driver::ready(config());
    let wanted = |id: &str| JobRecord { target: Some(name("w3")), ..job(id) };
    driver.submit(2000, vec![wanted("t1")]);
    driver.serve();
    assert_eq!(&*driver.record("t1").reason, "worker w3 is not active");
    assert_eq!(driver.core.unassigned(Time(2000)).count(), 0, "nobody else is asked");
    let said = driver.workers(2030, &["w1", "w3"]);
    assert_eq!(said, ["write ledger 0 over 2: t1 dispatched w3/1", "write w3 new: "]);
}

#[test]
fn nobody_gets_anything_before_the_workers_are_known() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    driver.serve();
    driver.submit(1000, vec![job("t1")]);
    driver.serve();
    driver.assign(1000, "t1", "w1");
    assert_eq!(&*driver.record("t1").reason, "the workers are not known yet");
}

#[test]
fn whoever_cannot_take_it_is_the_reason_why_it_waits() {
    let mut driver = Driver::ready(DispatcherConfig { entries_max: 1, ..config() });
    driver.dispatch(2000, job("t1"), "w1");
    driver.submit(2000, vec![job("t2")]);
    driver.serve();
    driver.assign(2000, "t2", "w1");
    assert_eq!(&*driver.record("t2").reason, "the inbox of worker w1 is full");
    assert!(!driver.core.has_room(&name("w1"), 0) && driver.core.has_room(&name("w2"), 0));
    driver.assign(2000, "t2", "w9");
    assert_eq!(&*driver.record("t2").reason, "worker w9 is not active");
    driver.workers(2000, &["w1", "-w2"]);
    driver.assign(2000, "t2", "w2");
    assert_eq!(&*driver.record("t2").reason, "worker w2 is not active");
    assert_eq!(driver.assign(2000, "t1", "w1"), [""; 0], "it is out");
}

#[test]
fn those_that_wait_get_a_chance_when_something_has_happened_and_not_too_often() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    driver.tell(2000, explain("t1", "nobody"));
    let asked = driver.asked();
    assert_eq!(driver.wake(2001), [""; 0]);
    assert_eq!(driver.asked(), asked, "nothing has happened");
    driver.workers(2030, &["w1", "w2"]);
    assert_eq!(driver.asked(), asked + 1, "at once");
    driver.wake(2500);
    assert_eq!(driver.asked(), asked + 1, "they had their chance");
    assert_eq!(driver.at(), Some(3000), "nobody is woken for them: the reason is to be written");
    driver.submit(4000, (100..180).map(|number| job(&format!("t{number}"))).collect());
    driver.serve();
    let asked = driver.asked();
    driver.workers(4001, &["w1"]);
    assert_eq!((driver.asked(), driver.at()), (asked, Some(4010)), "81 kinds that nobody takes: 10 ms");
    driver.wake(4010);
    assert_eq!(driver.asked(), asked + 81);
}

#[test]
fn workers_with_more_or_less_to_do_are_told() {
    let mut driver = Driver::ready(config());
    let told = |driver: &Driver| driver.core.assign().loads.clone();
    driver.dispatch(2000, job("t1"), "w1");
    assert_eq!(told(&driver).last(), Some(&(name("w1"), Some(1))), "one is out at it");
    let before = told(&driver).len();
    driver.wake(2001);
    assert_eq!(told(&driver).len(), before, "nothing has happened");
}

#[test]
fn qu7_the_number_of_an_attempt_never_exceeds_what_the_job_may_have() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, limited("t1", |limits| limits.attempts_max = 2), "w1");
    let attempt = |driver: &Driver, dispatch| {
        let entries = &driver.inboxes[&name("w1")].0.entries;
        entries.iter().find(|entry| entry.dispatch == dispatch).map(|entry| entry.attempt)
    };
    let mut ended = |kind, dispatch: u32| {
        driver.says("w1", &format!("t1/{dispatch}"), done(kind));
        driver.tell(driver.now, assign("t1", "w1"));
        driver.pass(driver.now + 3000);
        assert_eq!(driver.record("t1").dispatch, dispatch + 1, "it is dispatched again");
        attempt(&driver, dispatch + 1)
    };
    assert_eq!(
        [1, 2, 3].map(|dispatch| ended(OutcomeKind::Returned, dispatch)),
        [Some(1); 3],
        "none was begun"
    );
    assert_eq!(ended(OutcomeKind::Failed, 4), Some(2), "one was");
}
