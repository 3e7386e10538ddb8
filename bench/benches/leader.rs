//! What a leader needs for itself with 1,000 workers, 1,000 schedules and 10,000 jobs that wait: CPU time and memory.
//!
//! Real time, on a SQLite file. The workers run in a process of their own, so the figures are those of the leader's process alone:
//! its node, schedules, dispatcher and its side of SQLite.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tenure::id::KindName;
use tenure::job::{Handlers, JobRunner, JobSpec};
use tenure::process::Supervisor;
use tenure::store::{Lanes, Meter, Metered, OpenOptions, Store, open_str};
use tenure::worker::WorkerSpec;
use tenure::{Namespace, Node, Settings, async_trait};
use tenure_plugins::checks::{Check, Checks, JobRun};
use tenure_plugins::schedules::{CheckSpec, Rules, RunnerView, ScheduleOptions, ScheduleRunner, read_file};
use tokio::sync::watch;

const WORKERS: usize = 1000;
const SCHEDULES: usize = 1000;
const WAITING: usize = 10_000;

/// How long the cluster is left alone, and how long it is watched then.
const SETTLE: Duration = Duration::from_secs(60);
const COUNTED: Duration = Duration::from_secs(60);

/// The first argument of the process with the workers; the store's address is the second.
const AS_WORKERS: &str = "as-workers";

struct Nothing;

#[async_trait]
impl Check for Nothing {
    async fn check(&self, _: &JobRun, _: &CheckSpec) -> Result<(), String> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    match args.get(1..3) {
        Some([role, url]) if role == AS_WORKERS => runtime.block_on(workers(url)),
        Some(_) | None => {
            let dir = std::env::temp_dir().join(format!("tenure-bench-leader-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a temporary folder");
            runtime.block_on(leader(&dir));
            // It may be gone already.
            let _ = std::fs::remove_dir_all(&dir);
        }
    }
}

async fn node(name: &str, url: &str, eligible: bool, meter: &Meter) -> (Node, Lanes) {
    let lanes = open_str(url, &OpenOptions::default()).await.expect("a store");
    let metered =
        |lane: &Arc<dyn Store>| -> Arc<dyn Store> { Arc::new(Metered::new(Arc::clone(lane), meter.clone())) };
    let lanes = Lanes { lease: metered(&lanes.lease), bulk: metered(&lanes.bulk) };
    let settings = Settings::builder().namespace("bench").node(name).store(url).eligible(eligible);
    let settings = settings.startup_jitter_max(Duration::ZERO).build().expect("valid");
    (Node::builder(settings).lanes(lanes.clone()).start().await.expect("a node"), lanes)
}

/// Runs the workers until the leader's process closes its end of the pipe.
async fn workers(url: &str) {
    let (node, _) = node("hands", url, false, &Meter::default()).await;
    let mut runners = Vec::new();
    for number in 0..WORKERS {
        let worker = node.register_worker(WorkerSpec::new(format!("agent-{number:04}"), "poll"));
        let handlers = Checks::none().on("nothing", Nothing).expect("valid").handle(Handlers::new());
        runners.push(JobRunner::start(&node.jobs(), worker.expect("valid"), handlers));
        // Real workers do not all look at the same moment.
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    let closed = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    closed.await.expect("it ends").expect("readable");
}

/// The other process; it ends with this one.
struct Workers(Child);

impl Workers {
    fn start(url: &str) -> Workers {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let child = command.args([AS_WORKERS, url]).stdin(Stdio::piped()).spawn();
        Workers(child.expect("the process with the workers"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn leader(dir: &Path) {
    let url = format!("sqlite:{}/t.db", dir.display());
    let meter = Meter::default();
    let (lead, lanes) = node("lead", &url, true, &meter).await;
    let rules = Rules { own_kinds: [KindName::new("nothing").expect("valid")].into() };
    let options = ScheduleOptions { rules: rules.clone(), ..ScheduleOptions::default() };
    let namespace = Namespace::new("bench").expect("valid");
    let runner = ScheduleRunner::new(lead.jobs(), Arc::clone(&lanes.bulk), &namespace, options);
    let _processes = Supervisor::new([runner.process()]).run(&lead).expect("valid");
    let _workers = Workers::start(&url);
    let now =
        u64::try_from(std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis()).expect("in time");
    for number in 0..SCHEDULES {
        let offset = number * 60_000 / SCHEDULES;
        let text = format!(
            "[{{id: schedule-{number:05}, every: 60s, offset: {offset}ms, checks: [{{name: a, kind: nothing}}]}}]"
        );
        let mut schedules = read_file(&text, &rules).expect("valid");
        runner.schedules().put(&schedules.pop().expect("one"), now).await.expect("written");
    }
    let mut view = runner.view();
    let known = |view: &RunnerView| view.workers == WORKERS && view.schedules.len() == SCHEDULES;
    view.wait_for(known).await.expect("it lives");
    println!(
        "{:<52} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7} {:>7}",
        "the leader's process alone", "CPU %", "MiB", "req/s", "jobs/s", "missed", "late ms", "waiting"
    );
    report("1000 workers, 1000 schedules every 60 s", &view, &meter).await;
    let waiting: Vec<JobSpec> =
        (0..WAITING).map(|_| JobSpec::unnamed("nobodys").payload(vec![b'x'; 20])).collect();
    for batch in waiting.chunks(500) {
        while let Err(error) = lead.jobs().submit_all(batch.to_vec()).await {
            assert!(error.is_retryable(), "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    report("… and 10000 jobs that nobody takes", &view, &meter).await;
    lead.shutdown().await;
}

async fn report(name: &str, view: &watch::Receiver<RunnerView>, meter: &Meter) {
    tokio::time::sleep(SETTLE).await;
    let (before, requests, cpu_us) = (view.borrow().counts, meter.snapshot().requests(), cpu_us());
    tokio::time::sleep(COUNTED).await;
    let (counts, seconds) = (view.borrow().counts, COUNTED.as_secs_f64());
    println!(
        "{name:<52} {:>6.1} {:>6} {:>6.0} {:>6.1} {:>7} {:>7} {:>7}",
        (self::cpu_us() - cpu_us) / 1e4 / seconds,
        resident_mib(),
        (meter.snapshot().requests() - requests) as f64 / seconds,
        (counts.plan.created - before.plan.created) as f64 / seconds,
        counts.plan.missed + counts.plan.blocked,
        counts.plan.due_lag_max_ms,
        counts.jobs.created - counts.plan.created
    );
}

/// Memory of this process.
fn resident_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096 / (1 << 20)
}

/// CPU time of this process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
