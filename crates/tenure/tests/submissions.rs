//! Submitting from anywhere: with or without a node, with or without a leader.

use crate::common::{Rig, sleep_ms};
use crate::job_rig::{Log, dispatcher, known, runner, two};
use std::sync::Arc;
use tenure::error::ErrorKind;
use tenure::id::{JobId, Namespace};
use tenure::job::{Dispatcher, JobList, JobRecord, JobSpec, JobState, Jobs, Submitted};
use tenure::store::{Lanes, Meter, Metered, Store};

/// A process without a node, and what it costs.
fn outsider(rig: &Rig) -> (Jobs, Meter) {
    let (lanes, meter) = (rig.lanes(), Meter::default());
    let bulk: Arc<dyn Store> = Arc::new(Metered::new(Arc::clone(&lanes.bulk), meter.clone()));
    let settings = tenure::Settings::builder().store("memory:").namespace("test").node("outsider");
    let settings = settings.build().expect("valid");
    (Jobs::of_namespace(&settings, Lanes { bulk, ..lanes }).expect("valid"), meter)
}

async fn found(rig: &Rig, id: &str) -> Option<JobRecord> {
    let namespace = Namespace::new("test").expect("valid");
    JobList::find(&rig.lanes(), &namespace, &JobId::new(id).expect("valid")).await.expect("readable")
}

#[tokio::test(start_paused = true)]
async fn su4_what_was_submitted_while_nobody_led_runs_once_somebody_does() {
    let rig = Rig::new();
    let (jobs, _) = outsider(&rig);
    let submitted = jobs.submit(JobSpec::new("mail-1", "echo").payload("hello")).await.expect("durable");
    assert_eq!((submitted.id.as_str(), submitted.submitted), ("mail-1", Submitted::Created));
    drop(jobs);
    let waiting = found(&rig, "mail-1").await.expect("it waits");
    assert_eq!(waiting.state, JobState::Queued);
    assert!(waiting.reason.contains("nobody leads"), "{}", waiting.reason);
    let leader = rig.join("pod-a").await;
    let done = Log::default();
    let _runner = runner(&leader, "w1", &done, 0).await;
    known(&leader, 1).await;
    let _dispatcher = dispatcher(&leader).await;
    sleep_ms(10_000).await;
    let ended = found(&rig, "mail-1").await.expect("it is remembered");
    assert_eq!((ended.state, &*ended.result), (JobState::Succeeded, &b"hello"[..]));
    assert_eq!(done.all().len(), 1, "once");
}

#[tokio::test(start_paused = true)]
async fn su1_what_was_submitted_outlives_everybody_who_knew_of_it() {
    let (rig, leader, x) = two().await;
    let first = dispatcher(&leader).await;
    let ids = ["by-a-node", "by-the-leader", "by-an-outsider"];
    let (outsider, _) = outsider(&rig);
    for (from, id) in [x.node.jobs(), leader.node.jobs(), outsider].into_iter().zip(ids) {
        let submitted = from.submit(JobSpec::new(id, "echo")).await.expect("durable");
        assert_eq!(submitted.submitted, Submitted::Created);
    }
    // The leader dies before it has taken anything up.
    leader.link.cut(true);
    drop(first);
    let (successor, done) = (rig.join("pod-z").await, Log::default());
    let _runner = runner(&successor, "w1", &done, 0).await;
    let guard = successor.node.lead().await.expect("it leads next");
    let _next = Dispatcher::start(&successor.node.jobs(), guard);
    sleep_ms(30_000).await;
    for id in ids {
        assert_eq!(found(&rig, id).await.map(|job| job.state), Some(JobState::Succeeded), "{id}");
    }
    assert_eq!(done.all().len(), 3, "{:?}", done.all());
}

#[tokio::test(start_paused = true)]
async fn su2_the_same_id_twice_is_one_job_and_the_second_answer_says_so() {
    let (rig, leader, x) = two().await;
    let done = Log::default();
    let _runner = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let _dispatcher = dispatcher(&leader).await;
    let (jobs, _) = outsider(&rig);
    let spec = || JobSpec::new("mail-1", "echo");
    for (nth, wanted) in [Submitted::Created, Submitted::Exists, Submitted::Exists].into_iter().enumerate() {
        let from = if nth == 1 { x.node.jobs() } else { jobs.clone() };
        assert_eq!(from.submit(spec()).await.expect("durable").submitted, wanted, "call {nth}");
        sleep_ms(nth as u64 * 10_000).await;
    }
    sleep_ms(20_000).await;
    assert_eq!(done.all().len(), 1, "{:?}", done.all());
}

#[tokio::test(start_paused = true)]
async fn qu4_a_job_that_nobody_took_in_time_is_tried_again_on_request() {
    let (rig, leader, x) = two().await;
    let _dispatcher = dispatcher(&leader).await;
    let (jobs, _) = outsider(&rig);
    let spec = JobSpec::new("mail-1", "echo").attempts(3).ttl(std::time::Duration::from_secs(5));
    jobs.submit(spec).await.expect("durable");
    sleep_ms(12_000).await;
    let expired = found(&rig, "mail-1").await.expect("it is known");
    assert_eq!((expired.state, expired.begun()), (JobState::Expired, 0));
    let done = Log::default();
    let _runner = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    jobs.retry(&expired, 1).await.expect("durable");
    sleep_ms(12_000).await;
    let ended = found(&rig, "mail-1").await.expect("it is known");
    assert_eq!((ended.state, ended.limits.attempts_max, ended.retries), (JobState::Succeeded, 1, 1));
    assert!(jobs.retry(&ended, 1).await.is_err(), "it is done");
}

#[tokio::test(start_paused = true)]
async fn su3_many_at_once_share_writes() {
    let rig = Rig::new();
    let (jobs, meter) = outsider(&rig);
    let specs = (0..1000).map(|n| JobSpec::unnamed("echo").payload(format!("p{n}")));
    let receipts = jobs.submit_all(specs).await.expect("durable");
    assert_eq!(receipts.len(), 1000);
    assert!(receipts.iter().all(|receipt| receipt.submitted == Submitted::Created));
    assert_eq!(meter.snapshot().requests(), 2, "one read and one write: {:?}", meter.snapshot());

    let rig = Rig::new();
    let (jobs, meter) = outsider(&rig);
    let calls = (0..100).map(|_| {
        let jobs = jobs.clone();
        tokio::spawn(async move { jobs.submit(JobSpec::unnamed("echo")).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic").expect("durable");
    }
    assert!(meter.snapshot().put <= 4, "{:?}", meter.snapshot());
}

#[tokio::test(start_paused = true)]
async fn su5_without_room_it_says_so_and_nothing_is_half_written() {
    let rig = Rig::new();
    let (jobs, _) = outsider(&rig);
    let large = |count: usize| {
        (0..count).map(|_| JobSpec::unnamed("echo").payload(vec![b'x'; 16_000])).collect::<Vec<_>>()
    };
    jobs.submit_all(large(20)).await.expect("room");
    let full = jobs.submit_all(large(20)).await.expect_err("no room");
    assert_eq!(full.kind(), ErrorKind::Full);
    assert!(full.is_retryable() && full.to_string().contains("try again in 1 s"), "{full}");
    jobs.submit_all(large(5)).await.expect("there is room for these");
    let too_many = jobs.submit_all((0..1001).map(|_| JobSpec::unnamed("echo"))).await.expect_err("a limit");
    assert_eq!(too_many.kind(), ErrorKind::Invalid);
    assert!(too_many.to_string().contains("1001"), "{too_many}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_nobody_took_up_can_be_called_off() {
    let rig = Rig::new();
    let (jobs, _) = outsider(&rig);
    let job = jobs.submit(JobSpec::unnamed("echo")).await.expect("durable").id;
    jobs.cancel(&job).await.expect("durable");
    let leader = rig.join("pod-a").await;
    let done = Log::default();
    let _runner = runner(&leader, "w1", &done, 0).await;
    known(&leader, 1).await;
    let _dispatcher = dispatcher(&leader).await;
    sleep_ms(10_000).await;
    assert_eq!(found(&rig, job.as_str()).await.map(|job| job.state), Some(JobState::Cancelled));
    assert!(done.all().is_empty());
}
