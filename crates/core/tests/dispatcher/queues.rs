//! Which of the waiting jobs is next, and which have to wait.

use super::driver::{Driver, assign, config, done, job, limited, out, running};
use tenure_core::machine::Input;
use tenure_core::{DispatcherConfig, JobRecord, JobState, OutcomeKind, QueueSettings};

/// Looks for orders every second, and gives everything to w1.
fn busy() -> Driver {
    let mut driver = Driver::new(DispatcherConfig { orders_ms: 1000, entries_max: 64, ..config() });
    driver.is_ordered = true;
    driver.tell(1000, assign("all", "w1"));
    driver
}

fn set(driver: &mut Driver, queue: &str, settings: QueueSettings) {
    driver.change_orders(|doc, _| {
        doc.queues.insert(super::driver::name(queue), settings);
    });
}

fn at_once(most: u32) -> QueueSettings {
    QueueSettings { concurrency: Some(most), ..QueueSettings::default() }
}

const PAUSED: QueueSettings = QueueSettings { concurrency: None, paused: true };

fn mail(id: &str, priority: u8, submitted_ms: i64) -> JobRecord {
    JobRecord { queue: super::driver::name("mail"), priority, submitted_ms, ..job(id) }
}

fn dispatched(driver: &Driver) -> Vec<String> {
    let out = driver.core.jobs().filter(|job| job.state.is_out());
    out.map(|job| job.id.to_string()).collect()
}

#[test]
fn qu1_higher_priorities_are_first_and_then_older_jobs() {
    let mut driver = busy();
    set(&mut driver, "mail", at_once(1));
    let jobs = [("t1", 5, 30), ("t2", 5, 20), ("t3", 9, 40), ("t4", 0, 10), ("t5", 5, 25)];
    driver.submit(1000, jobs.map(|(id, priority, at)| mail(id, priority, at)).to_vec());
    driver.workers(1000, &["w1"]);
    driver.serve();
    let mut order = Vec::new();
    for turn in 0..5 {
        let now = dispatched(&driver);
        assert_eq!(now.len(), 1, "one at once: {now:?}");
        driver.says("w1", &format!("{}/1", now[0]), done(OutcomeKind::Succeeded));
        order.extend(now);
        driver.pass(3000 + turn * 2000);
    }
    assert_eq!(order, ["t3", "t2", "t5", "t1", "t4"]);
}

#[test]
fn qu2_a_limited_queue_waits_and_the_others_do_not() {
    let mut driver = busy();
    set(&mut driver, "mail", at_once(2));
    driver.workers(1000, &["w1"]);
    driver.serve();
    driver.submit(2000, (1..=5).map(|number| mail(&format!("t{number}"), 5, number)).collect());
    driver.submit(2000, vec![job("t9")]);
    driver.serve();
    assert_eq!(dispatched(&driver), ["t1", "t2", "t9"]);
    assert_eq!(&*driver.record("t3").reason, "queue mail runs no more than 2 at once");
    set(&mut driver, "mail", at_once(3));
    driver.pass(5000);
    assert_eq!(dispatched(&driver), ["t1", "t2", "t3", "t9"], "the limit was raised");
}

#[test]
pub(crate) fn qu2_a_new_leader_counts_what_the_former_one_dispatched() {
    let mut driver = busy();
    set(&mut driver, "mail", at_once(2));
    let at_work =
        |id: &str| JobRecord { queue: super::driver::name("mail"), ..out(id, "w2", JobState::Running) };
    let entries = ["t1/1", "t2/1"].map(|key| super::driver::entry(key, running()));
    let inbox = super::driver::inbox(entries.to_vec());
    driver.left(vec![at_work("t1"), at_work("t2"), mail("t3", 5, 1)], vec![("w2", inbox)]);
    driver.workers(1000, &["w1", "w2"]);
    driver.serve();
    assert_eq!(dispatched(&driver), ["t1", "t2"]);
}

#[test]
fn qu2_a_paused_queue_goes_on_when_it_is_resumed() {
    let mut driver = busy();
    set(&mut driver, "mail", PAUSED);
    driver.workers(1000, &["w1"]);
    driver.serve();
    driver.submit(2000, vec![mail("t1", 5, 1)]);
    driver.serve();
    driver.pass(4000);
    assert_eq!(
        (driver.state("t1"), &*driver.record("t1").reason),
        (JobState::Queued, "queue mail is paused")
    );
    set(&mut driver, "mail", QueueSettings::default());
    driver.pass(6000);
    assert_eq!(driver.state("t1"), JobState::Dispatched);
}

#[test]
pub(crate) fn qu2_nothing_is_dispatched_before_it_is_known_which_queues_are_paused() {
    let mut driver = busy();
    set(&mut driver, "mail", PAUSED);
    driver.left(vec![mail("t1", 5, 1)], vec![]);
    driver.workers(1000, &["w1"]);
    let (id, request) = driver.take("read orders");
    driver.serve();
    assert!(driver.core.is_ready());
    let told = (driver.state("t1"), &*driver.record("t1").reason);
    assert_eq!(told, (JobState::Queued, "what is set for its queue is not known"));
    let answer = driver.outcome(request);
    driver.all(1000, Input::Answer(id, answer));
    assert_eq!(
        (driver.state("t1"), &*driver.record("t1").reason),
        (JobState::Queued, "queue mail is paused")
    );
}

#[test]
fn what_waited_for_the_settings_goes_on_when_there_are_none() {
    let mut driver = busy();
    driver.left(vec![mail("t1", 5, 1)], vec![]);
    driver.workers(1000, &["w1"]);
    let (id, request) = driver.take("read orders");
    driver.serve();
    assert_eq!(driver.state("t1"), JobState::Queued);
    let answer = driver.outcome(request);
    driver.all(1000, Input::Answer(id, answer));
    assert_eq!(driver.state("t1"), JobState::Dispatched);
}

#[test]
fn qu3_a_job_waits_for_its_time_and_only_then_for_a_worker() {
    let mut driver = busy();
    driver.workers(1000, &["w1"]);
    driver.serve();
    // The wall clock of this store shows what the leader's shows.
    let later = JobRecord { not_before_ms: 100_000, ..limited("t1", |limits| limits.ttl_ms = 5000) };
    driver.submit(2000, vec![later]);
    driver.serve();
    driver.pass(99_999);
    assert_eq!(driver.state("t1"), JobState::Queued, "and it has not expired");
    driver.pass(100_001);
    assert_eq!(driver.state("t1"), JobState::Dispatched);
}

#[test]
fn a_new_leader_keeps_waiting_for_the_time_of_a_job() {
    let mut driver = busy();
    driver.left(vec![JobRecord { not_before_ms: 50_000, ..job("t1") }], vec![]);
    driver.workers(1000, &["w1"]);
    driver.serve();
    driver.pass(49_000);
    assert_eq!(driver.state("t1"), JobState::Queued);
    driver.pass(50_001);
    assert_eq!(driver.state("t1"), JobState::Dispatched);
}

#[test]
fn a_job_without_a_limit_waits_for_ever() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![limited("t1", |limits| limits.ttl_ms = 0)]);
    driver.serve();
    driver.now = 900_000_000;
    driver.all(900_000_000, Input::Wake);
    assert_eq!(driver.state("t1"), JobState::Queued);
}

#[test]
fn one_job_stands_for_all_that_the_same_workers_can_take() {
    let mut driver = Driver::ready(config());
    let alike = |number: u32| JobRecord { kind: super::driver::name("k"), ..job(&format!("t{number}")) };
    driver.submit(2000, (100..250).map(alike).collect());
    driver.serve();
    let asked = driver.core.assign().asked.len();
    assert!(asked <= 3, "asked {asked} times for 150 jobs of one class");
    driver.tell(3000, super::driver::explain("t100", "nobody is there"));
    driver.serve();
    let told = driver.core.jobs().filter(|job| &*job.reason == "nobody is there").count();
    assert_eq!(told, 150, "all of them are told why they wait");
}
