//! Workers say in their inboxes which jobs they take, and get no others.

use super::driver::{Driver, LIFE, Stored, config, done, inbox_answer, job, name, nonsense, running};
use std::sync::Arc;
use tenure_core::document::DocumentAnswer;
use tenure_core::{InboxDoc, Incarnation, JobRecord, JobState, OutcomeKind, Serves};

/// A worker opens its inbox.
fn opens(driver: &mut Driver, worker: &str, change: impl FnOnce(&mut Serves)) {
    let mut serves = Serves::anything(2);
    change(&mut serves);
    let said = Some((LIFE, Arc::new(serves)));
    driver.versions += 1;
    let empty = || (Stored::of(InboxDoc::default(), 0, LIFE), 0);
    let (doc, version) = driver.inboxes.entry(name(worker)).or_insert_with(empty);
    doc.serves = said;
    *version = driver.versions;
}

fn mail(id: &str) -> JobRecord {
    JobRecord { queue: name("mail"), kind: name("send"), ..job(id) }
}

fn leads(workers: &[&str]) -> Driver {
    let mut driver = Driver::by_inboxes(config());
    driver.workers(1000, workers);
    driver.serve();
    driver
}

fn at(driver: &Driver, id: &str) -> Option<String> {
    let record = driver.record(id);
    record.worker.as_ref().filter(|_| record.state.is_out()).map(ToString::to_string)
}

#[test]
pub(crate) fn qu1_a_job_goes_only_to_a_worker_that_serves_its_queue_and_kind() {
    let mut driver = Driver::by_inboxes(config());
    opens(&mut driver, "w1", |serves| serves.queues = [name("default")].into());
    opens(&mut driver, "w2", |serves| serves.kinds = [name("fetch")].into());
    opens(&mut driver, "w3", |serves| {
        (serves.queues, serves.kinds) = ([name("mail")].into(), [name("send"), name("bounce")].into());
    });
    driver.workers(1000, &["w1", "w2", "w3"]);
    driver.serve();
    driver.submit(1000, vec![mail("t1"), mail("t2"), mail("t3"), job("t4")]);
    driver.serve();
    let where_each = ["t1", "t2", "t3", "t4"].map(|id| at(&driver, id));
    assert_eq!(where_each, [Some("w3".into()), Some("w3".into()), None, Some("w1".into())]);
    assert_eq!(&*driver.record("t3").reason, "every worker that could run it is busy", "two at once");
    driver.says("w3", "t1/1", done(OutcomeKind::Succeeded));
    driver.pass(4000);
    assert_eq!(at(&driver, "t3"), Some("w3".into()));
}

#[test]
fn a_worker_that_is_new_is_found_by_its_inbox() {
    let mut driver = leads(&["w1"]);
    driver.submit(1000, vec![mail("t1")]);
    driver.serve();
    assert_eq!(&*driver.record("t1").reason, "no active worker takes jobs");
    // It has registered and is about to create its inbox.
    let story = driver.pass(2000);
    assert_eq!(story, ["2000 list"]);
    opens(&mut driver, "w1", |_| {});
    let story = driver.pass(5000).join("; ");
    assert!(story.contains("list; read w1; "), "{story}");
    assert_eq!(at(&driver, "t1"), Some("w1".into()));
    assert_eq!(driver.inboxes[&name("w1")].0.entries.len(), 1);
}

#[test]
fn a_worker_without_an_inbox_is_looked_for_only_a_few_times() {
    let mut driver = leads(&["w1", "w2"]);
    let lists =
        |driver: &mut Driver, until| driver.pass(until).iter().filter(|told| told.contains("list")).count();
    assert_eq!((lists(&mut driver, 60_000), lists(&mut driver, 100_000)), (4, 0));
    assert_eq!(driver.workers(100_000, &["w1", "w2", "w3"]), ["list"], "there is a new one");
    driver.serve();
    assert_eq!((lists(&mut driver, 160_000), lists(&mut driver, 200_000)), (3, 0));
    driver.submit(200_000, vec![JobRecord { target: Some(name("w1")), ..mail("t1") }]);
    driver.serve();
    assert_eq!(&*driver.record("t1").reason, "worker w1 has not said which jobs it takes");
    assert!(lists(&mut driver, 250_000) > 0, "now somebody waits for it");
}

#[test]
fn what_a_worker_takes_now_counts_and_not_what_it_took() {
    let mut driver = Driver::by_inboxes(config());
    opens(&mut driver, "w1", |serves| serves.queues = [name("default")].into());
    driver.workers(1000, &["w1"]);
    driver.serve();
    driver.submit(1000, vec![mail("t1")]);
    driver.serve();
    assert_eq!(&*driver.record("t1").reason, "no active worker serves queue mail");
    // It is started again with other settings, and nobody tells the leader.
    opens(&mut driver, "w1", |serves| serves.queues = [name("mail")].into());
    driver.pass(4000);
    assert_eq!(at(&driver, "t1"), Some("w1".into()));
    driver.says("w1", "t1/1", running());
    opens(&mut driver, "w1", |serves| serves.queues = [name("default")].into());
    driver.pass(5000);
    assert_eq!(driver.state("t1"), JobState::Running, "what it has begun is its own");
}

/// What is read as the inbox of w1 is none.
fn finds_nonsense(driver: &mut Driver) {
    for words in ["read ledger", "write ledger", "list"] {
        driver.answer(words);
    }
    let (read, _) = driver.take("read w1");
    driver.tell(1000, inbox_answer(read, "w1", DocumentAnswer::Read(nonsense())));
    driver.serve();
}

#[test]
fn a_worker_whose_inbox_cannot_be_read_is_not_chosen() {
    let mut driver = Driver::by_inboxes(config());
    for worker in ["w1", "w2"] {
        opens(&mut driver, worker, |_| {});
    }
    driver.workers(1000, &["w1", "w2"]);
    finds_nonsense(&mut driver);
    driver.submit(1000, vec![mail("t1")]);
    driver.serve();
    assert_eq!(at(&driver, "t1"), Some("w2".into()));
}

#[test]
fn every_refusal_of_a_named_worker_has_its_reason() {
    let why = |driver: &mut Driver, record: JobRecord| {
        let id = record.id.to_string();
        driver.submit(driver.now, vec![JobRecord { target: Some(name("w1")), ..record }]);
        driver.serve();
        driver.record(&id).reason.to_string()
    };
    let mut driver = Driver::by_inboxes(config());
    driver.serve();
    assert_eq!(why(&mut driver, mail("t1")), "the workers are not known yet");
    driver.workers(1000, &["-w1"]);
    assert_eq!(why(&mut driver, mail("t2")), "worker w1 is not active");
    let mut driver = leads(&["w1"]);
    assert_eq!(why(&mut driver, mail("t1")), "worker w1 has not said which jobs it takes");
    let mut driver = Driver::by_inboxes(config());
    opens(&mut driver, "w1", |serves| serves.slots = 1);
    driver.workers(1000, &["w1"]);
    finds_nonsense(&mut driver);
    assert_eq!(why(&mut driver, mail("t1")), "the inbox of worker w1 cannot be read");
    let mut driver = Driver::by_inboxes(config());
    opens(&mut driver, "w1", |serves| (serves.slots, serves.kinds) = (1, [name("send")].into()));
    driver.workers(1000, &["w1"]);
    driver.serve();
    assert_eq!(why(&mut driver, job("t0")), "worker w1 takes no such jobs");
    assert_eq!(why(&mut driver, mail("t1")), "");
    assert_eq!(why(&mut driver, mail("t2")), "worker w1 is busy");
    driver.work("w1", |doc| doc.closed = Some(Incarnation(50)));
    driver.pass(4000);
    assert_eq!(why(&mut driver, mail("t3")), "worker w1 drains");
}
