//! The dispatcher, fed by hand. Here: two stories that went wrong once.

pub(crate) mod attempts;
mod driver;
pub(crate) mod history;
pub(crate) mod inboxes;
pub(crate) mod judging;
mod leaving;
mod ledger;
pub(crate) mod looks;
pub(crate) mod notices;
pub(crate) mod orders;
pub(crate) mod queues;
pub(crate) mod retries;
pub(crate) mod serving;

use driver::{Driver, acked, assign, config, entry, inbox, job, out};
use tenure_core::JobState;

#[test]
fn a_job_that_nobody_claims_expires_however_often_it_was_dispatched() {
    let mut driver = Driver::ready(config());
    driver.submit(1000, vec![job("t1")]);
    driver.serve();
    while !driver.state("t1").is_final() {
        let now = driver.now + 100;
        assert!(now < 64_000, "its ttl is a minute");
        for worker in ["w1", "w2"] {
            driver.all(now, assign("t1", worker));
        }
    }
    let record = driver.record("t1");
    assert_eq!(record.state, JobState::Expired);
    assert!(record.dispatch > 10 && record.begun() == 0, "dispatched {} times", record.dispatch);
    assert!((61_000..64_000).contains(&driver.now), "{}", driver.now);
}

#[test]
fn a_worker_that_was_gone_before_its_inbox_was_known_is_gone() {
    let mut driver = Driver::new(config());
    let left = inbox(vec![entry("t1/1", acked())]);
    driver.left(vec![out("t1", "w1", JobState::Dispatched)], vec![("w1", left)]);
    // Nothing more is ever heard of the workers: there are none.
    driver.workers(1000, &[]);
    driver.serve();
    driver.pass(20_000);
    assert_eq!(driver.state("t1"), JobState::Lost, "nobody is there to end what was claimed");
}
