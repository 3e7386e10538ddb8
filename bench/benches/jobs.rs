//! Jobs from submission to result, on real time: how many a second, how soon they start, and how many requests each costs.
//!
//! One node leads; fifty workers in the same process take the jobs, which do nothing. Submissions come one by one, as users of a web
//! application would cause them. All of it shares the machine's cores: the CPU time is that of the whole cluster.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure::error::ErrorKind;
use tenure::job::{Dispatcher, Handlers, JobOutcome, JobRunner, JobSpec, Jobs};
use tenure::store::{Lanes, Meter, Metered, OpenOptions, Store, open_str};
use tenure::worker::WorkerSpec;
use tenure::{Node, Settings};

const WORKERS: usize = 50;

/// How long each rate is kept up, and how long a cluster is left alone to see what it costs without jobs.
const COUNTED: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(10);

/// Submitted at once, to see how many a second are possible.
const FLOOD: usize = 10_000;

/// The longest that jobs may need to be done once all of them are submitted.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = std::env::temp_dir().join(format!("tenure-bench-jobs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    println!(
        "{WORKERS} workers, one node, jobs that do nothing; the CPU time is that of all of them together\n"
    );
    println!(
        "{:<24} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7}",
        "", "jobs/s", "req/job", "beyond", "submit", "leader", "workers", "start ms", "CPU %"
    );
    for store in ["memory", "sqlite"].into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name))
    {
        let url = match store {
            "memory" => "memory:".to_owned(),
            _ => format!("sqlite:{}/t.db", dir.display()),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(measure(store, &url));
    }
    // It may be gone already.
    let _ = std::fs::remove_dir_all(&dir);
}

#[derive(Default)]
struct Seen {
    done: AtomicU64,
    /// From the call to the start of the handler, in ms.
    waited: parking_lot::Mutex<Vec<u64>>,
}

/// One part of the cluster, with a count of its requests.
async fn node(name: &str, lanes: &Lanes, meter: &Meter, eligible: bool) -> Node {
    let metered =
        |lane: &Arc<dyn Store>| -> Arc<dyn Store> { Arc::new(Metered::new(Arc::clone(lane), meter.clone())) };
    let settings = Settings::builder().namespace("bench").node(name).store("memory:").eligible(eligible);
    let settings = settings.startup_jitter_max(Duration::ZERO).build().expect("valid");
    let lanes = Lanes { lease: metered(&lanes.lease), bulk: metered(&lanes.bulk) };
    Node::builder(settings).lanes(lanes).start().await.expect("a node")
}

struct Cluster {
    jobs: Jobs,
    meters: [Meter; 3],
    seen: Arc<Seen>,
    began: Instant,
}

#[derive(Clone, Copy)]
struct Point {
    requests: [u64; 3],
    cpu_us: f64,
    at: Instant,
}

impl Cluster {
    fn point(&self) -> Point {
        let requests = [0, 1, 2].map(|part| self.meters[part].snapshot().requests());
        Point { requests, cpu_us: cpu_us(), at: Instant::now() }
    }

    /// Submits one job that says when that was.
    async fn submit(jobs: Jobs, began: Instant) {
        let now = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let spec = JobSpec::unnamed("nothing").payload(now.to_string());
        while let Err(error) = jobs.submit(spec.clone()).await {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until_done(&self, jobs: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.done.load(Ordering::Relaxed) < jobs {
            assert!(Instant::now() < deadline, "{} of {jobs} done", self.seen.done.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn report(&self, name: &str, from: Point, jobs: u64, idle_per_s: f64) {
        let to = self.point();
        let seconds = (to.at - from.at).as_secs_f64();
        let parts = [0, 1, 2].map(|part| (to.requests[part] - from.requests[part]) as f64);
        let all: f64 = parts.iter().sum();
        let each = |requests: f64| requests / jobs as f64;
        let mut waited = std::mem::take(&mut *self.seen.waited.lock());
        waited.sort_unstable();
        let at = |part: usize| waited.get(waited.len() * part / 100).copied().unwrap_or(0);
        println!(
            "{name:<24} {:>8.1} {:>8.2} {:>9.2} {:>8.2} {:>8.2} {:>8.2} {:>8} {:>6.0}",
            jobs as f64 / seconds,
            each(all),
            each(all - idle_per_s * seconds),
            each(parts[2]),
            each(parts[0]),
            each(parts[1]),
            format!("{}/{}", at(50), at(99)),
            (to.cpu_us - from.cpu_us) / 1e4 / seconds,
        );
        if std::env::var_os("TENURE_BENCH_REQUESTS").is_some() {
            let names = ["leader", "workers", "submitters"];
            names
                .iter()
                .zip(&self.meters)
                .for_each(|(name, meter)| println!("  {name}: {:?}", meter.snapshot()));
        }
    }
}

async fn measure(store: &str, url: &str) {
    let lanes = open_str(url, &OpenOptions::default()).await.expect("a store");
    let meters: [Meter; 3] = Default::default();
    let lead = node("lead", &lanes, &meters[0], true).await;
    let guard = lead.lead().await.expect("it leads");
    let dispatcher = Dispatcher::start(&lead.jobs(), guard);
    let hands = node("hands", &lanes, &meters[1], false).await;
    let outside = node("outside", &lanes, &meters[2], false).await;
    let cluster = Cluster { jobs: outside.jobs(), meters, seen: Arc::default(), began: Instant::now() };
    let mut runners = Vec::new();
    for number in 0..WORKERS {
        let worker =
            hands.register_worker(WorkerSpec::new(format!("w-{number:02}"), "bench")).expect("valid");
        let (seen, began) = (Arc::clone(&cluster.seen), cluster.began);
        let handlers = Handlers::new().on("nothing", move |job| {
            let now = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let sent = String::from_utf8_lossy(&job.payload).parse().unwrap_or(now);
            seen.waited.lock().push(now.saturating_sub(sent) / 1000);
            seen.done.fetch_add(1, Ordering::Relaxed);
            async { JobOutcome::succeeded("") }
        });
        runners.push(JobRunner::start(&hands.jobs(), worker, handlers));
    }
    while dispatcher.workers() < WORKERS {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    let from = cluster.point();
    tokio::time::sleep(IDLE).await;
    let to = cluster.point();
    let idle_per_s = to.requests.iter().zip(from.requests).map(|(to, from)| to - from).sum::<u64>() as f64
        / IDLE.as_secs_f64();
    println!("{store}: {idle_per_s:.1} requests a second without jobs");
    let mut all = 0;
    for number in 0..10_u64 {
        // Long enough for everything to come to rest.
        tokio::time::sleep(Duration::from_secs(6) + Duration::from_millis(130 * number)).await;
        all += 1;
        Cluster::submit(cluster.jobs.clone(), cluster.began).await;
        cluster.until_done(all).await;
    }
    cluster.report(&format!("{store}, one now and then"), to, 10, idle_per_s);
    for rate in [1_u64, 10, 100, 1000] {
        let from = cluster.point();
        let mut tick = tokio::time::interval(Duration::from_micros(1_000_000 / rate));
        let mut jobs = 0;
        while from.at.elapsed() < COUNTED {
            tick.tick().await;
            jobs += 1;
            tokio::spawn(Cluster::submit(cluster.jobs.clone(), cluster.began));
        }
        all += jobs;
        cluster.until_done(all).await;
        cluster.report(&format!("{store}, {rate} a second"), from, jobs, idle_per_s);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let from = cluster.point();
    let calls = (0..FLOOD).map(|_| tokio::spawn(Cluster::submit(cluster.jobs.clone(), cluster.began)));
    let calls: Vec<_> = calls.collect();
    for call in calls {
        call.await.expect("it was submitted");
    }
    all += FLOOD as u64;
    cluster.until_done(all).await;
    cluster.report(&format!("{store}, {FLOOD} at once"), from, FLOOD as u64, idle_per_s);
    let failed = dispatcher.counts();
    println!("{store}: {failed:?}\n");
    drop(runners);
    lead.shutdown().await;
}

/// CPU time of this process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
