//! Jobs through the library: memory store, simulated time, every node with its own meter and fault switch.

use crate::common::{Member, Rig, sleep_ms};
use crate::job_rig::*;
use serde_json::json;
use std::time::Duration;
use tenure::error::ErrorKind;
use tenure::job::{
    Dispatcher, Handlers, JobContext, JobList, JobOutcome, JobRunner, JobSpec, JobState, OutcomeKind,
    RunnerEnd, RunnerOptions, Submitted,
};
use tenure::store::{Faults, Lanes, Store};
use tenure::{Error, Namespace};

#[tokio::test(start_paused = true)]
async fn ef4_a_job_goes_all_the_way_and_carries_the_epoch() {
    let (rig, leader, x) = two().await;
    let done = Log::default();
    let runner = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let spec = JobSpec::new("report-1", "echo").payload("hello").worker("w1");
    assert_eq!(dispatcher.submit(spec.clone()).await, Ok(Submitted::Created));
    sleep_ms(100).await;
    let inbox = object(&rig, INBOX).await.expect("an inbox");
    let entry = &inbox["entries"][0];
    assert_eq!(
        (&entry["id"], &entry["epoch"], &entry["dispatch"]),
        (&json!("report-1"), &json!(1), &json!(1))
    );
    assert_eq!((&entry["state"], &entry["payload"]), (&json!("dispatched"), &json!("hello")));
    let states = until_final(&mut updates, 1).await;
    assert_eq!(states["report-1"], (JobState::Succeeded, "hello".to_owned()));
    assert_eq!(done.all(), ["report-1/1 in epoch 1"], "the handler is told the epoch");
    assert_eq!(dispatcher.submit(spec).await, Ok(Submitted::Exists));
    sleep_ms(60_000).await;
    assert_eq!(object(&rig, INBOX).await.expect("an inbox")["entries"], json!([]), "tidied up");
    assert_eq!(done.all().len(), 1, "once");
    let metrics = leader.node.metrics();
    assert_eq!((metrics.jobs.created, metrics.jobs.finished, metrics.jobs.in_flight), (1, 1, 0));
    assert_eq!(x.node.metrics().jobs.claimed, 1);
    assert_eq!(runner.drain().await, RunnerEnd::Drained);
    assert!(object(&rig, "plg_coordinator_global/test/workers/w1.json").await.is_none(), "deregistered");
}

#[tokio::test(start_paused = true)]
async fn ef1_an_entry_of_a_stale_epoch_is_not_claimed_but_counted_and_left() {
    let (rig, x, done) = fenced_worker(|s| s).await;
    x.node.fence().observe(6);
    put_inbox(&rig, &[("old", 5, 0)]).await;
    sleep_ms(60_000).await;
    assert!(done.all().is_empty(), "not run");
    assert_eq!(
        object(&rig, INBOX).await.expect("there")["entries"][0]["state"],
        "dispatched",
        "left in place"
    );
    let metrics = x.node.metrics();
    assert_eq!((metrics.epoch_drift_events, metrics.jobs.fenced), (1, 1), "once, however often it looks");
}

#[tokio::test(start_paused = true)]
async fn ef2_an_entry_of_a_newer_epoch_is_run_and_teaches_it() {
    let (rig, x, done) = fenced_worker(|s| s).await;
    x.node.fence().observe(6);
    put_inbox(&rig, &[("new", 7, 0)]).await;
    sleep_ms(20_000).await;
    assert_eq!(done.all(), ["new/1 in epoch 7"]);
    assert_eq!((x.node.fence().epoch(), x.node.fence().drift_events()), (7, 0));
}

#[tokio::test(start_paused = true)]
async fn ef3_without_fencing_every_entry_is_run_and_nothing_counted() {
    let (rig, x, done) = fenced_worker(|s| s.epoch_fencing_enabled(false)).await;
    x.node.fence().observe(6);
    put_inbox(&rig, &[("ancient", 1, 0)]).await;
    sleep_ms(20_000).await;
    assert_eq!(done.all(), ["ancient/1 in epoch 1"]);
    assert_eq!(x.node.metrics().epoch_drift_events, 0);
}

#[tokio::test(start_paused = true)]
async fn gt1_an_entry_of_the_leader_just_before_is_run_late() {
    let (rig, x, done) = fenced_worker(|s| s.epoch_grace_period(Duration::from_millis(60_000))).await;
    x.node.fence().observe(6);
    put_inbox(&rig, &[("late", 5, wall_ms())]).await;
    sleep_ms(20_000).await;
    assert_eq!(done.all(), ["late/1 in epoch 5"]);
    assert_eq!((x.node.fence().late_tasks(), x.node.fence().drift_events()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn gt2_two_epochs_back_an_entry_has_no_grace() {
    let (rig, x, done) = fenced_worker(|s| s.epoch_grace_period(Duration::from_millis(60_000))).await;
    x.node.fence().observe(6);
    put_inbox(&rig, &[("older", 4, wall_ms())]).await;
    sleep_ms(20_000).await;
    assert!(done.all().is_empty());
    assert_eq!(x.node.fence().drift_events(), 1);
}

#[tokio::test(start_paused = true)]
async fn ef1_a_new_leader_restamps_what_nobody_claimed_and_it_runs_once() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    let done = Log::default();
    let first = dispatcher(&members[0]).await;
    // The worker is registered and does not look at its inbox: nobody claims.
    let worker = members[1].node.register_worker(worker_spec("w1")).expect("valid");
    worker.registered().await.expect("registered");
    open_inbox(&rig).await;
    known(&members[0], 1).await;
    first.submit(JobSpec::new("t", "echo").worker("w1")).await.expect("taken");
    sleep_ms(500).await;
    assert_eq!(object(&rig, INBOX).await.expect("there")["entries"][0]["epoch"], 1);
    members[0].link.cut(true);
    members[1].became_leader().await;
    let second = dispatcher(&members[1]).await;
    let mut updates = second.updates();
    sleep_ms(2000).await;
    let entry = object(&rig, INBOX).await.expect("there")["entries"][0].clone();
    assert_eq!(
        (&entry["epoch"], &entry["dispatch"]),
        (&json!(2), &json!(1)),
        "the same dispatch, another answers for it"
    );
    let _runner = JobRunner::start(&members[1].node.jobs(), worker, echo(&done, 0));
    let states = until_final(&mut updates, 1).await;
    assert_eq!(states["t"].0, JobState::Succeeded);
    assert_eq!(done.all(), ["t/1 in epoch 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_failover_in_mid_flight_neither_loses_nor_doubles_work() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let x = rig.join_with("pod-x", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    members[0].became_leader().await;
    let done = Log::default();
    let _w1 = runner(&x, "w1", &done, 3000).await;
    let _w2 = runner(&x, "w2", &done, 3000).await;
    known(&members[0], 2).await;
    let first = dispatcher(&members[0]).await;
    let specs = (0..12).map(|n| JobSpec::new(format!("t{n}"), "echo").payload(format!("p{n}")));
    let answers = first.submit_all(specs.clone()).await.expect("valid");
    assert!(answers.iter().all(|answer| *answer == Ok(Submitted::Created)));
    sleep_ms(6000).await; // some are done, some run, some wait
    members[0].link.cut(true);
    members[1].became_leader().await;
    let second = dispatcher(&members[1]).await;
    let answers = second.submit_all(specs).await.expect("valid");
    assert!(answers.iter().all(|answer| *answer == Ok(Submitted::Exists)), "{answers:?}");
    settle(&second, 12).await;
    let jobs = second.jobs().await;
    for job in jobs.iter() {
        assert_eq!(job.state, JobState::Succeeded, "{}: {}", job.id, job.reason);
        assert_eq!(*job.result, *job.id.as_str().replace('t', "p").as_bytes());
    }
    let mut ran = done.ids();
    ran.sort();
    let mut wanted: Vec<String> = (0..12).map(|n| format!("t{n}/1")).collect();
    wanted.sort();
    assert_eq!(ran, wanted, "each once, in its first attempt");
    // The former leader, back on the network, can write nothing any more.
    members[0].link.cut(false);
    assert!(first.submit(JobSpec::new("stale", "echo")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn qu5_a_lost_worker_is_replaced_and_its_late_result_is_recorded_not_applied() {
    let (_rig, leader, x) = two().await;
    let rig = &_rig;
    let y = rig.join_with("pod-y", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    let (slow, quick) = (Log::default(), Log::default());
    let _w1 = runner(&x, "w1", &slow, 90_000).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let spec = JobSpec::new("t", "echo").payload("p").timeout(Duration::from_secs(300));
    dispatcher.submit(spec).await.expect("taken");
    sleep_ms(10_000).await;
    assert_eq!(dispatcher.jobs().await[0].state, JobState::Running);
    let _w2 = runner(&y, "w2", &quick, 0).await;
    x.link.cut(true);
    let states = until_final(&mut updates, 1).await;
    assert_eq!(states["t"].0, JobState::Succeeded);
    assert_eq!(quick.ids(), ["t/2"], "the second attempt, elsewhere");
    let job = dispatcher.jobs().await[0].clone();
    assert_eq!((job.begun(), job.worker.as_ref().map(|w| w.as_str())), (2, Some("w2")));
    assert_eq!(dispatcher.counts().lost, 1);
    x.link.cut(false);
    sleep_ms(120_000).await;
    let job = dispatcher.jobs().await[0].clone();
    assert_eq!((job.state, job.dispatch), (JobState::Succeeded, 2), "nothing is applied");
    assert_eq!(slow.ids(), ["t/1"]);
    assert_eq!(job.late.len(), 1, "{job:?}");
    assert!(matches!(job.late[0].kind, OutcomeKind::Succeeded | OutcomeKind::Cancelled), "{:?}", job.late);
    assert_eq!(leader.node.metrics().jobs.late, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_crashed_and_came_back_does_not_run_what_it_had() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let first = runner(&x, "w1", &done, 1_000_000).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    dispatcher.submit(JobSpec::new("t", "echo").attempts(1)).await.expect("taken");
    sleep_ms(10_000).await;
    drop(first); // its object is removed in the background
    sleep_ms(100).await;
    let _second = runner(&x, "w1", &done, 0).await;
    let states = until_final(&mut updates, 1).await;
    assert_eq!(states["t"].0, JobState::Lost, "whether it ran cannot be known, and there was one attempt");
    assert_eq!(done.ids(), ["t/1"]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_with_a_pause_and_within_their_attempts() {
    let (_rig, leader, x) = two().await;
    let log = Log::default();
    let seen = log.clone();
    let handlers = Handlers::new().on("flaky", move |job| {
        let seen = seen.clone();
        async move {
            seen.push(&job, tokio::time::Instant::now());
            JobOutcome::failed("no")
        }
    });
    let _w = start(&x, "w1", handlers).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let spec = JobSpec::new("t", "flaky").attempts(3).backoff(Duration::from_secs(20));
    dispatcher.submit(spec).await.expect("taken");
    dispatcher.submit(JobSpec::new("u", "unheard-of").attempts(1)).await.expect("taken");
    let states = until_final(&mut updates, 1).await;
    assert_eq!(states["t"], (JobState::Failed, "no".to_owned()));
    assert_eq!(log.ids(), ["t/1", "t/2", "t/3"]);
    let pauses = log.pauses_ms();
    assert!(pauses[0] >= 20_000 && pauses[1] >= 40_000, "{pauses:?}");
    let waits = dispatcher.jobs().await.iter().find(|job| job.id.as_str() == "u").cloned().expect("there");
    assert_eq!((waits.state, waits.dispatch), (JobState::Queued, 0), "nobody is given what it cannot do");
    assert_eq!(&*waits.reason, "no worker of its queue runs jobs of kind unheard-of");
}

#[tokio::test(start_paused = true)]
async fn limits_of_time_hold_on_both_sides() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 1_000_000).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let short = Duration::from_secs(5);
    let specs = [
        JobSpec::new("slow", "echo").timeout(short).attempts(1),
        JobSpec::new("nobody", "echo").worker("w9").ttl(short),
        JobSpec::new("called-off", "echo"),
        JobSpec::new("whole", "echo").deadline(Duration::from_secs(20)),
    ];
    dispatcher.submit_all(specs).await.expect("valid");
    sleep_ms(1000).await;
    let waits =
        dispatcher.jobs().await.iter().find(|job| job.id.as_str() == "nobody").cloned().expect("there");
    assert_eq!(&*waits.reason, "worker w9 is not active", "why it waits is told");
    sleep_ms(9000).await;
    dispatcher.cancel(&"called-off".parse().expect("valid")).await;
    let states = until_final(&mut updates, 4).await;
    assert_eq!(states["slow"].0, JobState::TimedOut);
    assert_eq!(states["nobody"].0, JobState::Expired);
    assert_eq!(states["called-off"].0, JobState::Cancelled);
    assert_eq!(states["whole"].0, JobState::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_drained_worker_ends_what_runs_and_gives_back_the_rest() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let options = RunnerOptions { concurrency: 1, claims: 8, ..RunnerOptions::default() };
    let worker = x.node.register_worker(worker_spec("w1")).expect("valid");
    let first = JobRunner::start_with(&x.node.jobs(), worker, echo(&done, 3000), options);
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    dispatcher
        .submit_all((0..3).map(|n| JobSpec::new(format!("t{n}"), "echo").attempts(1)))
        .await
        .expect("valid");
    while done.all().is_empty() {
        sleep_ms(100).await;
    }
    assert_eq!(first.drain().await, RunnerEnd::Drained);
    assert_eq!(done.all().len(), 1, "what ran was ended, nothing else was begun");
    let _second = runner(&x, "w2", &done, 0).await;
    let states = until_final(&mut updates, 3).await;
    assert!(states.values().all(|(state, _)| *state == JobState::Succeeded), "{states:?}");
    assert_eq!(done.all().len(), 3, "giving back costs no attempt");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_to_a_worker_that_drains_until_it_begins_anew() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let first = runner(&x, "w1", &done, 5000).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let for_w1 = |id: &str| JobSpec::new(id, "echo").worker("w1").attempts(1);
    dispatcher.submit(for_w1("long")).await.expect("valid");
    while done.all().is_empty() {
        sleep_ms(100).await;
    }
    // It is busy for seconds to come, and says at once that it takes nothing more.
    let draining = tokio::spawn(first.drain());
    while dispatcher.workers() > 0 {
        sleep_ms(100).await;
    }
    dispatcher.submit(for_w1("waits")).await.expect("valid");
    sleep_ms(500).await;
    let waits = dispatcher.jobs().await.iter().find(|job| job.id.as_str() == "waits").cloned().expect("open");
    assert_eq!((waits.state, &*waits.reason), (JobState::Queued, "worker w1 drains"));
    assert_eq!(draining.await.expect("no panic"), RunnerEnd::Drained);
    let _second = runner(&x, "w1", &done, 0).await;
    let states = until_final(&mut updates, 2).await;
    assert!(states.values().all(|(state, _)| *state == JobState::Succeeded), "{states:?}");
    assert_eq!(dispatcher.workers(), 1, "its next life takes work again");
    assert_eq!(dispatcher.counts().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn wrong_jobs_are_refused_with_field_value_and_rule() {
    let (rig, leader, _x) = two().await;
    let dispatcher = dispatcher(&leader).await;
    let before = rig.store.len();
    let spec = JobSpec::new("t", "echo").payload(vec![0; 16_385]);
    let error = dispatcher.submit(spec).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "`payload` of a job is \"16385 bytes\": it must be at most 16384 bytes");
    for (spec, field) in [
        (JobSpec::new("a/b", "echo"), "id"),
        (JobSpec::new("a", ""), "kind"),
        (JobSpec::new("a", "echo").series("../x"), "series"),
        (JobSpec::new("a", "echo").worker("w 1"), "worker"),
        (JobSpec::new("a", "echo").attempts(0), "attempts"),
        (JobSpec::new("a", "echo").ttl(Duration::ZERO), "ttl"),
        (JobSpec::new("a", "echo").timeout(Duration::from_secs(1 << 40)), "timeout"),
    ] {
        let error = dispatcher.submit(spec).await.expect_err(field).to_string();
        let names = |field: &str| error.starts_with(&format!("`{field}` of a job is "));
        assert!(names(field) || (field == "kind" && names("series")), "{error}");
    }
    sleep_ms(1000).await;
    assert!(rig.store.len() <= before + 65, "nothing but the ledger and the head of the history");
    assert_eq!(
        dispatcher.submit(JobSpec::new("t", "echo").payload(vec![0; 16_384])).await,
        Ok(Submitted::Created)
    );
}

#[tokio::test(start_paused = true)]
async fn tampered_objects_are_left_alone_or_set_aside_and_counted() {
    let (rig, leader, x) = two().await;
    let done = Log::default();
    let _w1 = runner(&x, "w1", &done, 0).await;
    let _w2 = runner(&x, "w2", &done, 0).await;
    known(&leader, 2).await;
    put(&rig, "plg_coordinator_global/test/jobs/inbox/w2.json", "{\"v\": 2, \"entries\": 7}").await;
    put(&rig, "plg_coordinator_global/test/jobs/inbox/not an id.json", "x").await;
    // One shard is garbage: the series `report` lives there, `mail` does not.
    assert_ne!(ledger("report"), ledger("mail"));
    put(&rig, &ledger("report"), "garbage").await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let blocked = dispatcher.submit(JobSpec::new("b", "echo").series("report")).await;
    assert!(blocked.as_ref().is_err_and(Error::is_unreadable), "{blocked:?}");
    dispatcher.submit(JobSpec::new("w2s", "echo").series("mail").worker("w2")).await.expect("taken");
    dispatcher.submit(JobSpec::new("a", "echo").series("mail").worker("w1")).await.expect("taken");
    until_final(&mut updates, 1).await;
    assert_eq!(done.ids(), ["a/1"]);
    sleep_ms(30_000).await;
    let w2s = dispatcher.jobs().await.iter().find(|job| job.id.as_str() == "w2s").cloned().expect("there");
    assert!(w2s.reason.contains("cannot be read"), "{w2s:?}");
    assert_eq!(raw(&rig, &ledger("report")).await, "garbage", "left alone");
    assert!(raw(&rig, "plg_coordinator_global/test/jobs/inbox/w2.json").await.contains("\"v\": 2"));
    // Entries that are none, in an inbox that is one; and a field of a later version.
    let mut inbox = object(&rig, INBOX).await.expect("there");
    inbox["later"] = json!("kept");
    inbox["entries"].as_array_mut().expect("a list").push(json!({"id": "../x", "dispatch": -1}));
    put(&rig, INBOX, inbox.to_string()).await;
    dispatcher.submit(JobSpec::new("c", "echo").series("mail").worker("w1")).await.expect("taken");
    until_final(&mut updates, 1).await;
    let inbox = object(&rig, INBOX).await.expect("there");
    assert_eq!(inbox["later"], "kept");
    assert!(inbox["entries"].as_array().expect("a list").contains(&json!({"id": "../x", "dispatch": -1})));
    assert!(leader.node.metrics().jobs.rejected >= 2, "{:?}", leader.node.metrics().jobs);
    // Mended, the shard is taken over.
    rig.store.remove(&ledger("report")).await;
    sleep_ms(30_000).await;
    assert_eq!(dispatcher.submit(JobSpec::new("b", "echo").series("report")).await, Ok(Submitted::Created));
}

#[tokio::test(start_paused = true)]
async fn watermarks_outlive_the_jobs_and_finished_ones_are_put_away_and_removed() {
    let (rig, leader, x) = two_with(|s| s.job_retention(Duration::from_millis(600_000))).await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let options = tenure::job::DispatcherOptions { keep_finished: 4, history_rows: 10, ..Default::default() };
    let guard = leader.node.lead().await.expect("it leads");
    let dispatcher = Dispatcher::start_with(&leader.node.jobs(), guard, options);
    let mut updates = dispatcher.updates();
    for round in 0..5u64 {
        let spec = |n: u64| JobSpec::new(format!("t{n}"), "echo").series("daily").watermark(n);
        let specs = (round * 10 + 1..=round * 10 + 10).map(spec);
        dispatcher.submit_all(specs).await.expect("valid");
        until_final(&mut updates, 10).await;
        sleep_ms(60_000).await;
    }
    assert!(dispatcher.jobs().await.len() < 20, "{} are kept", dispatcher.jobs().await.len());
    let first = JobSpec::new("t1", "echo").series("daily").watermark(1);
    assert_eq!(
        dispatcher.submit(first).await,
        Ok(Submitted::BelowWatermark),
        "forgotten, and not created again"
    );
    assert_eq!(done.all().len(), 50);
    let batches = done_objects(&rig).await;
    assert!(batches > 0);
    sleep_ms(1_200_000).await;
    dispatcher
        .submit_all((51..=70).map(|n| JobSpec::new(format!("t{n}"), "echo").series("daily").watermark(n)))
        .await
        .expect("valid");
    until_final(&mut updates, 20).await;
    sleep_ms(120_000).await;
    assert!(done_objects(&rig).await <= batches, "old batches are removed");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_loses_delays_and_hides_answers_changes_nothing() {
    // A lease that bears it: the seat is on the same link, and not what is tried here.
    let (_rig, leader, x) = two_with(|s| s.lease_timeout(Duration::from_millis(20_000))).await;
    let done = Log::default();
    let _w1 = runner(&x, "w1", &done, 700).await;
    let _w2 = runner(&x, "w2", &done, 300).await;
    known(&leader, 2).await;
    let faults = Faults {
        delay: 0.3,
        delay_max: Duration::from_millis(200),
        lost_request: 0.04,
        lost_answer: 0.06,
        late_landing: 0.06,
        late_max: Duration::from_secs(3),
        throttled: 0.04,
        timeout: Duration::from_millis(500),
        ..Faults::default()
    };
    x.link.set(faults);
    // They are of one series, and in the end all of them are looked at.
    let options = tenure::job::DispatcherOptions { keep_finished: 32, ..Default::default() };
    let guard = leader.node.lead().await.expect("it leads");
    let dispatcher = Dispatcher::start_with(&leader.node.jobs(), guard, options);
    leader.link.set(Faults { late_max: Duration::from_millis(400), ..faults });
    for n in 0..32 {
        let submitted =
            dispatcher.submit(JobSpec::new(format!("t{n}"), "echo").payload(format!("p{n}"))).await;
        assert_eq!(submitted, Ok(Submitted::Created), "job {n}");
        sleep_ms(200).await;
    }
    settle(&dispatcher, 32).await;
    for job in dispatcher.jobs().await.iter() {
        assert_eq!(job.state, JobState::Succeeded, "{}: {}", job.id, job.reason);
        assert_eq!(*job.result, *job.id.as_str().replace('t', "p").as_bytes());
    }
    let mut ran = done.ids();
    let count = ran.len();
    ran.sort();
    ran.dedup();
    assert_eq!(ran.len(), count, "no attempt ran twice");
}

/// Requests for jobs, of leader and worker together, from the submission until every result is told, without the leader's look
/// once a second. `phase_ms` shifts the submission against the worker's looks.
async fn cost(jobs: usize, phase_ms: u64) -> u64 {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    // Warm: the inbox exists, and everybody has come to rest.
    dispatcher.submit(JobSpec::new("first", "echo").worker("w1")).await.expect("taken");
    until_final(&mut updates, 1).await;
    sleep_ms(60_000 + phase_ms).await;
    let spent = |of: &Member| of.node.metrics().jobs.requests;
    let (before, began) = (spent(&leader) + spent(&x), tokio::time::Instant::now());
    dispatcher
        .submit_all((0..jobs).map(|n| JobSpec::new(format!("t{n}"), "echo").worker("w1")))
        .await
        .expect("valid");
    until_final(&mut updates, jobs).await;
    spent(&leader) + spent(&x) - before - began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn what_a_job_costs_is_what_the_page_says() {
    let page = include_str!("../../../docs/internals/cost.md");
    for jobs in [1, 2, 10] {
        let mut requests = 0;
        for phase in 0..10 {
            requests = requests.max(cost(jobs, phase * 100 + 50).await);
        }
        let each = requests as f64 / jobs as f64;
        if jobs > 1 {
            assert!(each <= 5.0, "{jobs} jobs at one worker take {requests} requests");
        }
        let row = format!("| {jobs} | {requests} | {each:.1} |");
        assert!(page.contains(&row), "docs/internals/cost.md does not have the row: {row}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_often_while_there_is_nothing_to_do() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let _dispatcher = dispatcher(&leader).await;
    sleep_ms(60_000).await;
    let (l, w) = (leader.node.metrics().jobs.requests, x.node.metrics().jobs.requests);
    sleep_ms(60_000).await;
    assert_eq!(
        leader.node.metrics().jobs.requests - l,
        60,
        "a leader without jobs looks once a second for any"
    );
    assert_eq!(x.node.metrics().jobs.requests - w, 60, "an idle worker looks once a second");
}

#[tokio::test(start_paused = true)]
async fn all_parts_of_a_program_share_one_dispatcher() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let (queue, scheduler) = (dispatcher(&leader).await, dispatcher(&leader).await);
    let mut updates = scheduler.updates();
    queue.submit(JobSpec::new("a", "echo")).await.expect("taken");
    scheduler.submit(JobSpec::new("b", "echo")).await.expect("taken");
    let states = until_final(&mut updates, 2).await;
    assert!(states.values().all(|(state, _)| *state == JobState::Succeeded), "{states:?}");
    drop(queue);
    scheduler.submit(JobSpec::new("c", "echo")).await.expect("the other part goes on");
    until_final(&mut updates, 1).await;
    assert_eq!(scheduler.counts().created, 3, "one of them counted all");
}

#[tokio::test(start_paused = true)]
async fn qu6_a_job_runs_for_hours_says_how_far_it_is_and_sees_a_cancel() {
    let (rig, leader, x) = two().await;
    let handlers = Handlers::new().on("copy", |job| async move {
        for minute in 0..600_u32 {
            job.progress(u8::try_from(minute / 6).unwrap_or(100), &format!("minute {minute}"));
            tokio::select! {
                () = job.cancelled.cancelled() => return JobOutcome::failed("stopped"),
                () = tokio::time::sleep(Duration::from_secs(60)) => {}
            }
        }
        JobOutcome::succeeded("copied")
    });
    let _w = start(&x, "w1", handlers).await;
    known(&leader, 1).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    let day = Duration::from_secs(86_400);
    dispatcher.submit(JobSpec::new("t", "copy").timeout(day).attempts(1)).await.expect("taken");
    let lanes = Lanes { lease: rig.store.clone(), bulk: rig.store.clone() };
    let namespace = Namespace::new("test").expect("valid");
    for hours in 1..=5 {
        sleep_ms(3_600_000).await;
        let job = JobList::find(&lanes, &namespace, &"t".parse().expect("valid")).await.expect("read");
        let progress = job.expect("it is there").progress.expect("it says so");
        assert!(progress.percent.abs_diff(hours * 10) <= 1, "{hours} h: {progress:?}");
        assert!(progress.text.starts_with("minute "), "{progress:?}");
    }
    let began = tokio::time::Instant::now();
    dispatcher.cancel(&"t".parse().expect("valid")).await;
    assert_eq!(until_final(&mut updates, 1).await["t"].0, JobState::Cancelled);
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(15),
        "it sees it with its next look, and the leader with the next one: {took:?}"
    );
}

mod long {
    use super::*;

    /// What a thousand jobs a day add, each submitted by itself to a cluster at rest: for the page, by the month.
    #[tokio::test(start_paused = true)]
    #[ignore = "takes a minute: cargo xtask prove"]
    async fn what_a_month_of_jobs_costs_is_what_the_page_says() {
        let page = include_str!("../../../docs/internals/cost.md");
        for (what, says) in [("that say nothing", false), ("with output", true)] {
            let (_rig, leader, x) = two().await;
            let handlers = Handlers::new().on("echo", move |job: JobContext| async move {
                if says {
                    job.output().stdout("done");
                }
                JobOutcome::succeeded("")
            });
            let _w = start(&x, "w1", handlers).await;
            known(&leader, 1).await;
            let _dispatcher = dispatcher(&leader).await;
            let spent = || {
                let all = [leader.meter.snapshot(), x.meter.snapshot()];
                (all[0].write_class() + all[1].write_class(), all[0].read_class() + all[1].read_class())
            };
            let mut counted = Vec::new();
            for jobs in [0_u32, 100] {
                let before = spent();
                for _ in 0..100 {
                    if jobs > 0 {
                        x.node.jobs().submit(JobSpec::unnamed("echo")).await.expect("taken");
                    }
                    sleep_ms(86_400).await;
                }
                counted.push((spent().0 - before.0, spent().1 - before.1));
            }
            // Of a hundred jobs; a month has 30,000.
            let (writes, reads) = ((counted[1].0 - counted[0].0) * 300, (counted[1].1 - counted[0].1) * 300);
            let dollars = writes as f64 * 5e-6 + reads as f64 * 4e-7;
            let row = format!(
                "| 1,000 a day, {what} | {:.1} | {:.1} | ${dollars:.2} |",
                writes as f64 / 3e4,
                reads as f64 / 3e4
            );
            assert!(page.contains(&row), "docs/internals/cost.md does not have the row: {row}");
        }
    }
}
