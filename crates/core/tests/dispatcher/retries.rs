//! Jobs that are dead, and what somebody asks to be done with them.

use super::driver::{Driver, config, done, job, name};
use tenure_core::{DispatcherConfig, JobRecord, JobState, Order, OutcomeKind};

/// One with a job that has failed for good; its only attempt was given to w1.
fn with_dead() -> Driver {
    let mut driver = Driver::new(DispatcherConfig { orders_ms: 1000, ..config() });
    driver.is_ordered = true;
    driver.workers(1000, &["w1", "w2"]);
    driver.serve();
    driver.dispatch(2000, job("t1"), "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Failed));
    driver.pass(4000);
    assert_eq!(driver.state("t1"), JobState::Failed);
    driver
}

fn again(driver: &Driver, attempts_max: u32) -> Order {
    let mut record = driver.record("t1").clone();
    record.limits.attempts_max = attempts_max;
    record.retries += 1;
    Order::Retry(record)
}

#[test]
fn qu4_a_dead_job_keeps_what_it_needs_and_is_tried_again_on_request() {
    let mut driver = with_dead();
    assert_eq!((&*driver.record("t1").payload, &*driver.record("t1").result), (&b"x"[..], &b"r"[..]));
    let order = again(&driver, 2);
    driver.order(vec![order]);
    driver.pass(6000);
    let record = driver.record("t1");
    assert_eq!((record.state, record.dispatch, record.limits.attempts_max), (JobState::Queued, 1, 2));
    assert!(driver.orders[&()].0.entries.is_empty(), "it is served");
    driver.assign(6000, "t1", "w2");
    driver.serve();
    assert_eq!(
        (driver.record("t1").dispatch, driver.record("t1").begun()),
        (2, 2),
        "no number is used twice"
    );
    driver.says("w2", "t1/2", done(OutcomeKind::Failed));
    driver.pass(9000);
    assert_eq!(driver.state("t1"), JobState::Failed, "one attempt more, and no more");
}

#[test]
pub(crate) fn qu4_an_order_that_is_found_twice_is_served_once() {
    let mut driver = with_dead();
    let order = again(&driver, 2);
    driver.order(vec![order.clone()]);
    driver.pass(6000);
    driver.assign(6000, "t1", "w2");
    driver.serve();
    driver.says("w2", "t1/2", done(OutcomeKind::Failed));
    driver.pass(9000);
    driver.order(vec![order]);
    driver.pass(12_000);
    assert_eq!(driver.state("t1"), JobState::Failed);
    assert!(driver.orders[&()].0.entries.is_empty(), "it is taken out all the same");
}

#[test]
fn qu4_what_the_ledger_has_forgotten_comes_back_with_its_attempts() {
    let mut driver = with_dead();
    let order = again(&driver, 3);
    let mut other = Driver::new(DispatcherConfig { orders_ms: 1000, ..config() });
    other.order(vec![order]);
    other.workers(1000, &["w1"]);
    other.serve();
    let record = other.record("t1");
    assert_eq!((record.state, record.dispatch, record.limits.attempts_max), (JobState::Queued, 1, 3));
    driver.now = 4000;
}

#[test]
fn what_is_done_or_of_a_series_is_not_tried_again() {
    let finished = JobRecord { state: JobState::Succeeded, dispatch: 1, ..job("t1") };
    let scheduled = JobRecord { state: JobState::Failed, dispatch: 1, watermark: 7, ..job("t2") };
    let mut driver = Driver::new(DispatcherConfig { orders_ms: 1000, ..config() });
    let orders = [&finished, &scheduled].map(|record| {
        let mut record = record.clone();
        record.retries = 1;
        Order::Retry(record)
    });
    driver.left(vec![finished, scheduled], vec![]);
    driver.order(orders.to_vec());
    driver.workers(1000, &["w1"]);
    driver.serve();
    driver.pass(5000);
    assert_eq!((driver.state("t1"), driver.state("t2")), (JobState::Succeeded, JobState::Failed));
    assert!(driver.orders[&()].0.entries.is_empty());
}

#[test]
fn qu4_a_job_that_is_over_is_removed_on_request_and_an_open_one_is_not() {
    let mut driver = with_dead();
    driver.submit(4000, vec![job("t2")]);
    driver.serve();
    driver.order(vec![Order::Remove(name("t1")), Order::Remove(name("t2")), Order::Remove(name("t3"))]);
    driver.pass(8000);
    let left: Vec<&str> = driver.core.jobs().map(|job| job.id.as_str()).collect();
    assert_eq!(left, ["t2"]);
    assert!(driver.orders[&()].0.entries.is_empty(), "what cannot be removed is not asked for for ever");
}

#[test]
fn qu4_one_that_is_done_stays_until_nobody_can_ask_for_it_again() {
    let mut driver = with_dead();
    let order = again(&driver, 2);
    driver.order(vec![order.clone()]);
    driver.pass(6000);
    driver.assign(6000, "t1", "w2");
    driver.serve();
    driver.says("w2", "t1/2", done(OutcomeKind::Succeeded));
    driver.pass(9000);
    driver.order(vec![Order::Remove(name("t1"))]);
    driver.pass(30_000);
    // Somebody else saw it dead, too, and could not ask any sooner.
    driver.order(vec![order]);
    driver.pass(40_000);
    assert_eq!(driver.state("t1"), JobState::Succeeded, "it is not run again");
    driver.pass(90_000);
    assert_eq!(driver.core.jobs().count(), 0, "it is removed at last");
}
