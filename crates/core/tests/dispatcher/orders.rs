//! What is asked of the leader through the document of orders.

use super::driver::{Driver, config, job};
use std::sync::Arc;
use tenure_core::machine::Input;
use tenure_core::{DispatcherConfig, JOB_OBJECT_MAX_WEIGHT, JobRecord, JobState, Order};

/// Looks every second, and every 50 ms after news.
fn looking() -> DispatcherConfig {
    DispatcherConfig { orders_ms: 1000, keep_finished: 0, ..config() }
}

fn submit(id: &str) -> Order {
    Order::Submit(job(id))
}

/// One that is asked for this, and has read it.
fn asked(orders: Vec<Order>) -> (Driver, Vec<String>) {
    let mut driver = Driver::ready(looking());
    driver.order(orders);
    assert_eq!(driver.wake(2000), ["read orders"]);
    let said = driver.answer("read orders");
    (driver, said)
}

#[test]
pub(crate) fn an_order_leaves_once_the_ledger_on_the_store_has_its_job() {
    let (mut driver, said) = asked(vec![submit("t1"), submit("t2")]);
    assert_eq!(said, ["write ledger 0 over 1: t1 queued, t2 queued"]);
    let said = driver.answer("write ledger");
    assert_eq!(said.first().map(String::as_str), Some("write orders over 2: ; 1 served"), "{said:?}");
    driver.serve();
    assert_eq!(driver.orders[&()].0.entries.len(), 0);
    assert_eq!(driver.orders[&()].0.taken.len(), 1, "one batch");
}

#[test]
fn what_a_former_leader_recorded_and_did_not_take_out_is_not_created_again() {
    let mut driver = Driver::new(DispatcherConfig { keep_finished: 2, ..looking() });
    let done = JobRecord { state: JobState::Succeeded, payload: Arc::from([]), ..job("t1") };
    driver.left(vec![done], vec![]);
    driver.order(vec![submit("t1")]);
    driver.workers(1000, &["w1"]);
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Succeeded);
    assert_eq!(driver.orders[&()].0.entries.len(), 0);
}

#[test]
pub(crate) fn a_job_stays_in_the_ledger_while_somebody_asks_for_it() {
    let (mut driver, _) = asked(vec![submit("t1"), Order::Cancel(super::driver::name("t1"))]);
    driver.answer("write ledger");
    assert_eq!(driver.state("t1"), JobState::Cancelled);
    // The document cannot be written for a while.
    let (id, request) = driver.take("write orders");
    let unanswered = tenure_core::machine::Request::unanswered(&request);
    let later = driver.pass(8000);
    assert!(!later.iter().any(|said| said.contains("write ledger")), "{later:#?}");
    driver.all(8000, Input::Answer(id, unanswered));
    driver.pass(12_000);
    assert_eq!(driver.core.jobs().count(), 0);
}

#[test]
fn what_there_is_no_room_for_waits_in_the_document() {
    let large = |id: &str| Order::Submit(JobRecord { payload: Arc::from(vec![0; 16_000]), ..job(id) });
    let ids: Vec<String> = (10..60).map(|number| format!("t{number}")).collect();
    let mut orders: Vec<Order> = ids.iter().map(|id| large(id)).collect();
    orders.push(Order::Cancel(super::driver::name("t59")));
    let (mut driver, _) = asked(orders);
    driver.serve();
    let created = driver.core.jobs().count();
    assert_eq!(created, JOB_OBJECT_MAX_WEIGHT / job("t1").weight().max(16_000 + 2560));
    let waiting = &driver.orders[&()].0.entries;
    assert_eq!(waiting.len(), 51 - created, "the order to call off t59 waits with it: {waiting:?}");
}

#[test]
fn a_change_elsewhere_is_told_once() {
    let mut driver = Driver::ready(looking());
    driver.order(vec![]);
    driver.all(2000, Input::Wake);
    assert_eq!(driver.pass(2500).iter().filter(|said| said.contains("look around")).count(), 0);
    driver.order(vec![]);
    driver.orders.get_mut(&()).expect("written").0.changes += 1;
    let said = driver.pass(5000);
    assert_eq!(said.iter().filter(|said| said.contains("look around")).count(), 1, "{said:#?}");
}

#[test]
fn looks_are_quick_while_something_is_ordered() {
    let (mut driver, _) = asked(vec![submit("t1")]);
    driver.serve();
    let looks = |said: &[String]| said.iter().filter(|said| said.contains("read orders")).count();
    let busy = driver.pass(3000);
    assert_eq!(looks(&busy), 20, "{busy:#?}");
    let idle = driver.pass(8000);
    assert!((4..=5).contains(&looks(&idle)), "{idle:#?}");
}

#[test]
fn looks_that_find_much_are_half_as_frequent() {
    for (jobs, expected) in [(50, 50), (51, 100)] {
        let (mut driver, _) = asked((0..jobs).map(|number| submit(&format!("t{number}"))).collect());
        driver.serve();
        let story = driver.pass(3000);
        let look = story.iter().find(|said| said.contains("read orders")).expect("a look");
        assert_eq!(look.split_once(' ').expect("a time").0, (2000 + expected).to_string(), "{jobs} jobs");
    }
}
