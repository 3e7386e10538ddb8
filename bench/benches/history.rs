//! A history of very many jobs, on real time: what a page of it costs, and whether it slows down the jobs that come after.
//!
//! One node leads; fifty workers in the same process do nothing, as often as is asked for. In steps of a tenth this prints how fast
//! jobs were done and how large the leader has become; then it counts the requests of pages, each found in another way.
//!
//! `cargo xtask bench --bench history -- 1000000 sqlite:/var/tmp/history.db`; the store may be an S3 engine.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure::error::ErrorKind;
use tenure::job::{
    Dispatcher, Handlers, HistoryQuery, JobHistory, JobOutcome, JobRunner, JobSpec, JobState, Jobs,
};
use tenure::store::{Lanes, Meter, Metered, OpenOptions, Store, open_str};
use tenure::worker::WorkerSpec;
use tenure::{Node, Settings};

const WORKERS: usize = 50;

/// Jobs in one submission, as `POST /v1/jobs` allows.
const BATCH: usize = 1000;

/// Of a page.
const LIMIT: usize = 100;

/// How often each page is asked for.
const ROUNDS: usize = 20;

/// A step that takes longer has come to a standstill.
const PATIENCE: Duration = Duration::from_secs(1800);

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let jobs = args.next().map_or(20_000, |text| text.parse().expect("how many jobs, as a number"));
    let dir = std::env::temp_dir().join(format!("tenure-bench-history-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    let url = args.next().unwrap_or_else(|| format!("sqlite:{}/t.db", dir.display()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(measure(jobs, &url));
    // It may be gone already.
    let _ = std::fs::remove_dir_all(&dir);
}

fn metered(lanes: &Lanes, meter: &Meter) -> Lanes {
    let metered =
        |lane: &Arc<dyn Store>| -> Arc<dyn Store> { Arc::new(Metered::new(Arc::clone(lane), meter.clone())) };
    Lanes { lease: metered(&lanes.lease), bulk: metered(&lanes.bulk) }
}

async fn node(name: &str, lanes: &Lanes, meter: &Meter, eligible: bool) -> Node {
    let settings = Settings::builder().namespace("history").node(name).store("memory:").eligible(eligible);
    let settings = settings.startup_jitter_max(Duration::ZERO).build().expect("valid");
    Node::builder(settings).lanes(metered(lanes, meter)).start().await.expect("a node")
}

fn id(number: u64) -> String {
    format!("job-{number}")
}

/// Job `number`: one of a hundred schedules, ten queues; one in a hundred fails.
fn spec(number: u64) -> JobSpec {
    let spec = JobSpec::new(id(number), "nothing").series(format!("s-{:02}", number % 100)).attempts(1);
    spec.queue(format!("q-{}", number % 10)).payload(number.to_string())
}

async fn submit(jobs: &Jobs, numbers: std::ops::Range<u64>) {
    let specs: Vec<JobSpec> = numbers.map(spec).collect();
    while let Err(error) = jobs.submit_all(specs.clone()).await {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn measure(jobs: u64, url: &str) {
    let lanes = open_str(url, &OpenOptions::default()).await.expect("a store");
    let (leading, working, outside) = (Meter::default(), Meter::default(), Meter::default());
    let lead = node("lead", &lanes, &leading, true).await;
    let guard = lead.lead().await.expect("it leads");
    let dispatcher = Dispatcher::start(&lead.jobs(), guard);
    let hands = node("hands", &lanes, &working, false).await;
    let submitter = node("outside", &lanes, &outside, false).await;
    let done = Arc::new(AtomicU64::new(0));
    let mut runners = Vec::new();
    for number in 0..WORKERS {
        let worker = WorkerSpec::new(format!("w-{number:02}"), "bench");
        let worker = hands.register_worker(worker).expect("valid");
        let done = Arc::clone(&done);
        let handlers = Handlers::new().on("nothing", move |job| {
            done.fetch_add(1, Ordering::Relaxed);
            let fails = job.payload.ends_with(b"00");
            async move { if fails { JobOutcome::failed("it failed") } else { JobOutcome::succeeded("done") } }
        });
        runners.push(JobRunner::start(&hands.jobs(), worker, handlers));
    }
    while dispatcher.workers() < WORKERS {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{jobs} jobs on {}", url.split([':', '?']).next().unwrap_or_default());
    println!("{:>10} {:>8} {:>8} {:>10}", "done", "jobs/s", "req/job", "memory MiB");
    let step = (jobs / 10).max(1);
    let mut begun = 0;
    while begun < jobs {
        let (from, before) = (Instant::now(), requests(&[&leading, &working, &outside]));
        let until = (begun + step).min(jobs);
        for first in (begun..until).step_by(BATCH) {
            submit(&submitter.jobs(), first..until.min(first + BATCH as u64)).await;
        }
        while done.load(Ordering::Relaxed) < until {
            assert!(from.elapsed() < PATIENCE, "{} of {until} done", done.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let asked = requests(&[&leading, &working, &outside]) - before;
        let (count, seconds) = ((until - begun) as f64, from.elapsed().as_secs_f64());
        println!("{until:>10} {:>8.0} {:>8.2} {:>10.0}", count / seconds, asked as f64 / count, memory_mib());
        begun = until;
    }
    // What has ended is in the history a few seconds later.
    tokio::time::sleep(Duration::from_secs(30)).await;
    pages(&lanes, jobs).await;
    drop(runners);
    lead.shutdown().await;
}

fn requests(meters: &[&Meter]) -> u64 {
    meters.iter().map(|meter| meter.snapshot().requests()).sum()
}

/// Resident memory of this process, which is the whole cluster.
fn memory_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
    kib.unwrap_or(0.0) / 1024.0
}

async fn pages(lanes: &Lanes, jobs: u64) {
    let meter = Meter::default();
    let history = JobHistory::new(&metered(lanes, &meter), &"history".parse().expect("valid"));
    let all = HistoryQuery::default();
    let newest = history.page(&all, LIMIT).await.expect("a page").jobs;
    let (first, last) = (newest.last().expect("a job").number, newest[0].number);
    println!("\nthe newest is number {last} of {jobs}");
    let queries = [
        ("newest", all.clone()),
        ("second page", HistoryQuery { before: Some(first), ..all.clone() }),
        ("from the middle", HistoryQuery { before: Some(last / 2), ..all.clone() }),
        ("of a schedule", HistoryQuery { series: "s-07".parse().ok(), ..all.clone() }),
        ("of a queue", HistoryQuery { queue: "q-3".parse().ok(), ..all.clone() }),
        ("failed", HistoryQuery { state: Some(JobState::Failed), ..all.clone() }),
        ("the oldest hour", HistoryQuery { until_ms: Some(newest[0].ended_ms - 60_000), ..all.clone() }),
    ];
    println!(
        "{:<18} {:>6} {:>13} {:>9} {:>9}",
        "a page of 100", "jobs", "requests most", "p50 ms", "most ms"
    );
    for (name, query) in queries {
        let (mut most, mut took, mut found) = (0, Vec::new(), 0);
        for _ in 0..ROUNDS {
            let (before, from) = (meter.snapshot().requests(), Instant::now());
            found = history.page(&query, LIMIT).await.expect("a page").jobs.len();
            took.push(from.elapsed().as_secs_f64() * 1e3);
            most = most.max(meter.snapshot().requests() - before);
        }
        took.sort_by(f64::total_cmp);
        println!("{name:<18} {found:>6} {most:>13} {:>9.1} {:>9.1}", took[ROUNDS / 2], took[ROUNDS - 1]);
    }
    let (mut most, mut took) = (0, Vec::new());
    for round in 0..ROUNDS as u64 {
        let id = id(jobs * round / ROUNDS as u64).parse().expect("valid");
        let (before, from) = (meter.snapshot().requests(), Instant::now());
        let job = history.find(&id).await.expect("an answer");
        assert!(job.is_some(), "{id} is in the history");
        took.push(from.elapsed().as_secs_f64() * 1e3);
        most = most.max(meter.snapshot().requests() - before);
    }
    took.sort_by(f64::total_cmp);
    println!("{:<18} {:>6} {most:>13} {:>9.1} {:>9.1}", "one job", 1, took[ROUNDS / 2], took[ROUNDS - 1]);
}
