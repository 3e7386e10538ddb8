//! What attempts say is on the store when they end and every 30 s, and costs no result.

use crate::common::{Member, Rig, sleep_ms};
use crate::job_rig::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tenure::Namespace;
use tenure::job::{
    Dispatcher, DispatcherOptions, Handlers, JobContext, JobOutcome, JobOutput, JobRunner, JobSpec, JobState,
    OutputPiece, OutputStream, RunnerEnd, RunnerOptions,
};
use tenure::store::{Faults, List, Store};
use tokio::sync::Notify;
use tokio::time::Instant;

const FOLDER: &str = "plg_coordinator_global/test/jobs/output/";

fn job(id: &str) -> tenure::id::JobId {
    id.parse().expect("valid")
}

async fn keys(rig: &Rig) -> Vec<String> {
    match rig.store.list(FOLDER, 10_000).await {
        List::Entries { entries, .. } => entries.into_iter().map(|entry| entry.key).collect(),
        List::Unavailable(trouble) | List::Denied(trouble) => panic!("{trouble}"),
    }
}

async fn read(rig: &Rig, id: &str, attempt: Option<u32>) -> Option<JobOutput> {
    let namespace = Namespace::new("test").expect("valid");
    JobOutput::read(&rig.lanes(), &namespace, &job(id), attempt).await.expect("readable")
}

fn text(output: &JobOutput) -> String {
    let text = |piece: OutputPiece<'_>| match piece {
        OutputPiece::Text(OutputStream::Stdout, text) => text.to_owned(),
        OutputPiece::Text(OutputStream::Stderr, text) => format!("[{text}]"),
        OutputPiece::LeftOut(bytes) => format!("<{bytes}>"),
    };
    output.pieces().into_iter().map(text).collect()
}

/// A leader that dispatches to a worker with these handlers.
struct Bench {
    rig: Rig,
    _leader: Member,
    worker: Member,
    dispatcher: Dispatcher,
    runner: JobRunner,
}

impl Bench {
    async fn new(handlers: Handlers) -> Bench {
        Bench::with(handlers, RunnerOptions::default()).await
    }

    async fn with(handlers: Handlers, options: RunnerOptions) -> Bench {
        let (rig, leader, x) = two().await;
        let worker = x.node.register_worker(worker_spec("w1")).expect("valid");
        worker.registered().await.expect("registered");
        let runner = JobRunner::start_with(&x.node.jobs(), worker, handlers, options);
        known(&leader, 1).await;
        let dispatcher = dispatcher(&leader).await;
        Bench { rig, _leader: leader, worker: x, dispatcher, runner }
    }

    async fn run(&self, spec: JobSpec) -> (JobState, String) {
        let mut updates = self.dispatcher.updates();
        let id = spec.record().expect("valid").id.to_string();
        self.dispatcher.submit(spec).await.expect("taken");
        until_final(&mut updates, 1).await.remove(&id).expect("ended")
    }
}

/// Says something at once and when it ends, which is when it is told to.
fn talks(go: &Arc<Notify>) -> Handlers {
    let go = Arc::clone(go);
    Handlers::new().on("talk", move |job: JobContext| {
        let go = Arc::clone(&go);
        async move {
            let output = job.output();
            output.stdout("begins\n");
            go.notified().await;
            output.stderr("ends\n");
            JobOutcome::succeeded("done")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn hi1_an_attempt_is_written_every_30_s_and_when_it_ends() {
    let go = Arc::new(Notify::new());
    let bench = Bench::new(talks(&go)).await;
    let spec = JobSpec::new("a", "talk").timeout(Duration::from_secs(3600));
    bench.dispatcher.submit(spec).await.expect("taken");
    sleep_ms(25_000).await;
    assert_eq!(keys(&bench.rig).await, [""; 0], "not at once");
    sleep_ms(10_000).await;
    let running = read(&bench.rig, "a", None).await.expect("written while it runs");
    assert_eq!((text(&running).as_str(), running.ended_at), ("begins\n", None));
    assert_eq!(
        (running.job.as_str(), running.attempt, running.worker.as_str(), running.epoch),
        ("a", 1, "w1", 1)
    );
    sleep_ms(600_000).await;
    assert_eq!(bench.worker.node.metrics().jobs.outputs, 1, "while it says nothing, nothing is written");
    let namespace = Namespace::new("test").expect("valid");
    assert_eq!(running.newer(&bench.rig.lanes(), &namespace).await, Ok(None), "a conditional read");
    let mut updates = bench.dispatcher.updates();
    go.notify_one();
    until_final(&mut updates, 1).await;
    let ended = running.newer(&bench.rig.lanes(), &namespace).await.expect("readable").expect("changed");
    assert_eq!(text(&ended), "begins\n[ends\n]");
    assert!(ended.ended_at.is_some_and(|at| at >= ended.started_at));
    assert_eq!(keys(&bench.rig).await, [format!("{FOLDER}c0/a/1.json")]);
    let metrics = bench.worker.node.metrics().jobs;
    assert_eq!((metrics.outputs, metrics.output_failures, metrics.output_bytes_left_out), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn hi1_of_much_output_the_middle_is_left_out_and_counted() {
    let handlers = Handlers::new().on("talk", |job: JobContext| async move {
        (0..100_000).for_each(|n| job.output().stdout(format!("{n:09}\n")));
        JobOutcome::succeeded("")
    });
    let bench = Bench::new(handlers).await;
    bench.run(JobSpec::new("a", "talk")).await;
    let output = read(&bench.rig, "a", Some(1)).await.expect("written");
    let kept = 256 * 1024;
    assert_eq!((output.bytes, output.left_out), (1_000_000, 1_000_000 - kept));
    let text = text(&output);
    assert!(text.starts_with("000000000\n") && text.ends_with("000099999\n"));
    assert!(text.contains(&format!("<{}>", output.left_out)));
    assert_eq!(bench.worker.node.metrics().jobs.output_bytes_left_out, output.left_out);
}

#[tokio::test(start_paused = true)]
async fn hi1_silence_writes_nothing_and_a_worker_may_be_told_to_keep_nothing() {
    let bench = Bench::new(echo(&Log::default(), 100_000)).await;
    bench.run(JobSpec::new("silent", "echo").timeout(Duration::from_secs(3600))).await;
    let mute = RunnerOptions { keep_output: false, ..RunnerOptions::default() };
    let go = Arc::new(Notify::new());
    go.notify_one();
    let muted = Bench::with(talks(&go), mute).await;
    muted.run(JobSpec::new("a", "talk")).await;
    for rig in [&bench.rig, &muted.rig] {
        sleep_ms(60_000).await;
        assert_eq!(keys(rig).await, [""; 0]);
    }
    assert_eq!(read(&bench.rig, "silent", None).await, None);
}

#[tokio::test(start_paused = true)]
async fn hi1_each_attempt_has_its_own_even_if_it_takes_too_long_or_panics() {
    let handlers = Handlers::new().on("talk", |job: JobContext| async move {
        job.output().stdout(format!("attempt {}", job.attempt));
        match job.attempt {
            1 => std::future::pending().await,
            2 => panic!("on purpose"),
            _ => JobOutcome::succeeded(""),
        }
    });
    let bench = Bench::new(handlers).await;
    let spec = JobSpec::new("a", "talk").timeout(Duration::from_secs(10)).attempts(3);
    assert_eq!(bench.run(spec).await.0, JobState::Succeeded);
    let namespace = Namespace::new("test").expect("valid");
    let attempts = JobOutput::attempts(&bench.rig.lanes(), &namespace, &job("a")).await;
    assert_eq!(attempts, Ok(vec![1, 2, 3]));
    for attempt in 1..=3 {
        let output = read(&bench.rig, "a", Some(attempt)).await.expect("written");
        assert_eq!((text(&output), output.ended_at.is_some()), (format!("attempt {attempt}"), true));
    }
    assert_eq!(text(&read(&bench.rig, "a", None).await.expect("written")), "attempt 3");
}

#[tokio::test(start_paused = true)]
async fn hi1_what_was_cut_off_still_says_its_last_words() {
    // As a command that is killed: what it wrote is read by somebody else, who comes to it a little later.
    let handlers = Handlers::new().on("talk", |job: JobContext| async move {
        let (output, cancelled) = (job.output(), job.cancelled.clone());
        output.stdout("first");
        tokio::spawn(async move {
            cancelled.cancelled().await;
            sleep_ms(200).await;
            output.stdout(", last");
        });
        std::future::pending().await
    });
    let bench = Bench::new(handlers).await;
    let spec = JobSpec::new("a", "talk").timeout(Duration::from_secs(5)).attempts(1);
    assert_eq!(bench.run(spec).await.0, JobState::TimedOut);
    assert_eq!(bench.runner.drain().await, RunnerEnd::Drained);
    assert_eq!(
        text(&read(&bench.rig, "a", None).await.expect("written before it has drained")),
        "first, last"
    );
}

/// Handlers that say something, and for as long as they run the store takes nothing of theirs.
fn while_the_store_hangs(member: &Member, faults: Faults) -> Handlers {
    let link = member.link.clone();
    Handlers::new().on("talk", move |job: JobContext| {
        let link = link.clone();
        async move {
            job.output().stdout("hello");
            link.set(faults);
            // It answers again just after an output could have been written.
            tokio::spawn(async move {
                sleep_ms(8000).await;
                link.set(Faults::default());
            });
            JobOutcome::succeeded("done")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn hi1_a_store_that_hangs_or_refuses_costs_no_result_and_is_counted() {
    let hang = Faults { lost_request: 1.0, timeout: Duration::from_secs(600), ..Faults::default() };
    let refuse = Faults { denied: 1.0, ..Faults::default() };
    for (faults, attempt_time) in [(hang, 60), (hang, 2), (refuse, 60)] {
        let (rig, leader, x) = two().await;
        let worker = x.node.register_worker(worker_spec("w1")).expect("valid");
        worker.registered().await.expect("registered");
        let runner = JobRunner::start(&x.node.jobs(), worker, while_the_store_hangs(&x, faults));
        known(&leader, 1).await;
        let dispatcher = dispatcher(&leader).await;
        let mut updates = dispatcher.updates();
        let spec = JobSpec::new("a", "talk").timeout(Duration::from_secs(attempt_time)).attempts(1);
        dispatcher.submit(spec).await.expect("taken");
        let (began, ended) = (Instant::now(), until_final(&mut updates, 1).await);
        assert_eq!(ended["a"], (JobState::Succeeded, "done".to_owned()), "{faults:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(keys(&rig).await, [""; 0]);
        let metrics = x.node.metrics().jobs;
        assert_eq!((metrics.outputs, metrics.output_failures), (0, 1));
        assert_eq!(leader.node.workers().borrow().active, 1, "the worker is well");
        assert_eq!(runner.drain().await, RunnerEnd::Drained);
    }
}

#[tokio::test(start_paused = true)]
async fn hi1_an_answer_that_is_lost_neither_loses_nor_doubles_an_output() {
    let go = Arc::new(Notify::new());
    let bench = Bench::new(talks(&go)).await;
    let spec = JobSpec::new("a", "talk").timeout(Duration::from_secs(3600));
    bench.dispatcher.submit(spec).await.expect("taken");
    sleep_ms(29_000).await;
    bench.worker.link.set(Faults { lost_answer: 1.0, ..Faults::default() });
    sleep_ms(5000).await;
    bench.worker.link.set(Faults::default());
    assert_eq!(text(&read(&bench.rig, "a", None).await.expect("it has landed")), "begins\n");
    let mut updates = bench.dispatcher.updates();
    go.notify_one();
    until_final(&mut updates, 1).await;
    assert_eq!(text(&read(&bench.rig, "a", None).await.expect("written")), "begins\n[ends\n]");
}

#[tokio::test(start_paused = true)]
async fn hi1_a_job_that_was_forgotten_and_comes_again_writes_over_the_old_output() {
    let go = Arc::new(Notify::new());
    let bench = Bench::new(talks(&go)).await;
    let owner = "00000000000000aa";
    let old = json!({"v": 1, "epoch": 1, "owner": owner, "nonce": format!("{owner}-1"), "job": "a", "attempt": 1,
        "worker": "w9", "startedAt": 1, "bytes": 3, "leftOut": 0, "first": [{"stream": "stdout", "text": "old"}], "last": []});
    put(&bench.rig, &format!("{FOLDER}c0/a/1.json"), old.to_string()).await;
    let mut later: Value = old.clone();
    (later["epoch"], later["job"]) = (json!(9), json!("b"));
    put(&bench.rig, &format!("{FOLDER}e9/b/1.json"), later.to_string()).await;
    for id in ["a", "b"] {
        go.notify_one();
        bench.run(JobSpec::new(id, "talk")).await;
    }
    assert_eq!(text(&read(&bench.rig, "a", None).await.expect("written")), "begins\n[ends\n]");
    assert_eq!(
        text(&read(&bench.rig, "b", None).await.expect("there")),
        "old",
        "a later leader's is left alone"
    );
    assert_eq!(bench.worker.node.metrics().jobs.output_failures, 1);
}

#[tokio::test(start_paused = true)]
async fn hi1_old_outputs_are_removed_whatever_folder_they_are_in() {
    let retention = Duration::from_secs(3600);
    let (rig, leader, x) = two_with(|s| s.job_retention(retention)).await;
    for n in 0..600 {
        put(&rig, &format!("{FOLDER}{:02x}/job-{n}/1.json", n % 256), "{}").await;
    }
    sleep_ms(3_700_000).await;
    put(&rig, &format!("{FOLDER}00/young/1.json"), "{}").await;
    let _runner = runner(&x, "w1", &Log::default(), 0).await;
    known(&leader, 1).await;
    let guard = leader.node.lead().await.expect("it leads");
    let options = DispatcherOptions { keep_finished: 0, ..DispatcherOptions::default() };
    let dispatcher = Dispatcher::start_with(&leader.node.jobs(), guard, options);
    // A job now and then is enough: what was not looked at meanwhile is caught up with.
    let mut updates = dispatcher.updates();
    for n in 0..12 {
        dispatcher.submit(JobSpec::new(format!("now-{n}"), "echo")).await.expect("taken");
        until_final(&mut updates, 1).await;
        sleep_ms(300_000).await;
    }
    assert_eq!(keys(&rig).await, [format!("{FOLDER}00/young/1.json")]);
}
