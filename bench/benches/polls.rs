//! What a scheduled job costs with few and with many schedules: requests and CPU time, of leader and agents together.
//!
//! Uses the memory store and simulated time; schedule runner, dispatcher and runners are the real ones. One process does all the
//! work on one thread, so its CPU time is that of the whole cluster: nodes, registry and memory store included.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::id::KindName;
use tenure::job::{Handlers, JobRunner};
use tenure::process::Supervisor;
use tenure::store::{Lanes, MemoryStore, Meter, MeterSnapshot, Metered, Store};
use tenure::worker::WorkerSpec;
use tenure::{Namespace, Node, Settings, async_trait};
use tenure_plugins::checks::{Check, Checks, JobRun};
use tenure_plugins::schedules::{CheckSpec, Rules, Schedule, ScheduleOptions, ScheduleRunner, read_file};
use tokio::time::Instant;

/// 2026-11-15 00:00 UTC.
const START: u64 = 1_794_700_800_000;

/// Simulated seconds before counting starts, and while counting.
const WARM_S: u64 = 120;
const COUNTED_S: u64 = 300;

struct Load {
    schedules: u64,
    agents: usize,
    every_s: u64,
    /// Spread over the interval, or all due at once.
    spread: bool,
}

/// So many schedules, each due every minute, and a thousand agents.
fn minutely(schedules: u64) -> Load {
    Load { schedules, agents: 1000, every_s: 60, spread: true }
}

struct Figures {
    jobs: u64,
    done: u64,
    leader: MeterSnapshot,
    agents: MeterSnapshot,
    cpu_us: f64,
    duplicates: u64,
    missed: u64,
    lag_max_ms: u64,
    open_max: u64,
}

struct Counted(Arc<AtomicU64>);

#[async_trait]
impl Check for Counted {
    async fn check(&self, _: &JobRun, _: &CheckSpec) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    println!("{COUNTED_S} simulated seconds after {WARM_S}; every job has one check of 20 ms\n");
    println!(
        "{:<42} {:>6} {:>8} {:>7} {:>7} {:>7} {:>9} {:>9} {:>5} {:>6} {:>7} {:>6}",
        "",
        "jobs",
        "req/job",
        "leader",
        "agents",
        "idle/s",
        "µs/job",
        "− idle",
        "dup.",
        "missed",
        "lag ms",
        "open"
    );
    let idle = run(&minutely(0));
    for schedules in [100, 500, 1000, 5000] {
        let name = format!("{schedules} schedules every 60 s, 1000 agents");
        if wanted(&name) {
            report(&name, &run(&minutely(schedules)), Some(&idle));
        }
    }
    let name = "5000 schedules at once, 1000 agents";
    if wanted(name) {
        report(name, &run(&Load { spread: false, ..minutely(5000) }), Some(&idle));
    }
    let name = "50 schedules every 1 s, 5 agents";
    if wanted(name) {
        let idle = run(&Load { agents: 5, every_s: 1, ..minutely(0) });
        report(name, &run(&Load { agents: 5, every_s: 1, ..minutely(50) }), Some(&idle));
    }
}

/// What the cluster uses without a single job is its base cost; the rest is due to the jobs.
fn report(name: &str, figures: &Figures, idle: Option<&Figures>) {
    let jobs = figures.jobs.max(1) as f64;
    let beyond = |all: u64, idle: Option<u64>| all.saturating_sub(idle.unwrap_or(0)) as f64 / jobs;
    let leader = beyond(figures.leader.requests(), idle.map(|idle| idle.leader.requests()));
    let agents = beyond(figures.agents.requests(), idle.map(|idle| idle.agents.requests()));
    let idle_s =
        idle.map_or(0, |idle| idle.leader.requests() + idle.agents.requests()) as f64 / COUNTED_S as f64;
    let all = (figures.leader.requests() + figures.agents.requests()) as f64 / jobs;
    println!(
        "{name:<42} {:>6} {all:>8.2} {leader:>7.2} {agents:>7.2} {idle_s:>7.1} {:>9.0} {:>9.0} {:>5} {:>6} {:>7} {:>6}",
        figures.jobs,
        figures.cpu_us / jobs,
        (figures.cpu_us - idle.map_or(0.0, |idle| idle.cpu_us)) / jobs,
        figures.duplicates,
        figures.missed,
        figures.lag_max_ms,
        figures.open_max
    );
    if figures.done.abs_diff(figures.jobs) > figures.open_max + 100 {
        println!("  {} jobs were created, but {} checks ran", figures.jobs, figures.done);
    }
}

fn run(load: &Load) -> Figures {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(cluster(load))
}

async fn node(
    name: &str,
    store: &Arc<MemoryStore>,
    clock: &Arc<TokioClock>,
    meter: &Meter,
    eligible: bool,
) -> Node {
    let settings =
        Settings::builder().namespace("bench").node(name).store("memory:").startup_jitter_max(Duration::ZERO);
    let lane: Arc<dyn Store> = Arc::new(Metered::new(Arc::clone(store) as Arc<dyn Store>, meter.clone()));
    let lanes = Lanes { lease: Arc::clone(&lane), bulk: lane };
    let builder = Node::builder(settings.eligible(eligible).build().expect("valid")).lanes(lanes);
    builder.clock(clock.clone()).jitter_random(0).start().await.expect("a node")
}

async fn cluster(load: &Load) -> Figures {
    let (store, clock, began) = (Arc::new(MemoryStore::new()), TokioClock::new(), Instant::now());
    let (leaders, agents, done) = (Meter::default(), Meter::default(), Arc::new(AtomicU64::new(0)));
    let lead = node("lead", &store, &clock, &leaders, true).await;
    let rules = Rules { own_kinds: [KindName::new("nothing").expect("valid")].into() };
    let wall = move || START + u64::try_from(began.elapsed().as_millis()).unwrap_or(0);
    let options =
        ScheduleOptions { rules: rules.clone(), wall_clock: Arc::new(wall), ..ScheduleOptions::default() };
    let metered: Arc<dyn Store> =
        Arc::new(Metered::new(Arc::clone(&store) as Arc<dyn Store>, leaders.clone()));
    let namespace = Namespace::new("bench").expect("valid");
    let runner = ScheduleRunner::new(lead.jobs(), metered, &namespace, options);
    let _processes = Supervisor::new([runner.process()]).run(&lead).expect("valid");
    let hands = node("hands", &store, &clock, &agents, false).await;
    let _runners = runners(load.agents, &hands, &done).await;
    for number in 0..load.schedules {
        runner.schedules().put(&schedule(load, number, &rules), START).await.expect("written");
    }
    let mut view = runner.view();
    let known = |view: &tenure_plugins::schedules::RunnerView| {
        view.workers == load.agents && view.schedules.len() as u64 == load.schedules
    };
    // Without schedules the runner does nothing, and shows nothing.
    if load.schedules > 0 {
        view.wait_for(known).await.expect("it lives");
    }
    tokio::time::sleep(Duration::from_secs(WARM_S)).await;
    let before =
        (view.borrow().counts, leaders.snapshot(), agents.snapshot(), done.load(Ordering::Relaxed), cpu_us());
    let mut open_max = 0;
    for _ in 0..COUNTED_S {
        tokio::time::sleep(Duration::from_secs(1)).await;
        open_max = open_max.max(view.borrow().counts.open);
    }
    let counts = view.borrow().counts;
    Figures {
        jobs: counts.plan.created - before.0.plan.created,
        done: done.load(Ordering::Relaxed) - before.3,
        leader: leaders.snapshot() - before.1,
        agents: agents.snapshot() - before.2,
        cpu_us: cpu_us() - before.4,
        duplicates: counts.plan.duplicates - before.0.plan.duplicates,
        missed: counts.plan.missed - before.0.plan.missed,
        lag_max_ms: counts.plan.due_lag_max_ms,
        open_max,
    }
}

async fn runners(count: usize, node: &Node, done: &Arc<AtomicU64>) -> Vec<JobRunner> {
    let mut runners = Vec::new();
    for number in 0..count {
        let spec = WorkerSpec::new(format!("agent-{number:04}"), "poll");
        let worker = node.register_worker(spec).expect("valid");
        let check = Counted(Arc::clone(done));
        let handlers = Checks::none().on("nothing", check).expect("valid").handle(Handlers::new());
        runners.push(JobRunner::start(&node.jobs(), worker, handlers));
        // Real agents do not all look at the same moment.
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    runners
}

fn schedule(load: &Load, number: u64, rules: &Rules) -> Schedule {
    let every_ms = load.every_s * 1000;
    let offset_ms = if load.spread { number * every_ms / load.schedules } else { 0 };
    let text = format!(
        "[{{id: schedule-{number:05}, every: {}s, offset: {offset_ms}ms, checks: [{{name: a, kind: nothing}}]}}]",
        load.every_s
    );
    let mut schedules = read_file(&text, rules).expect("valid");
    Schedule { since_ms: START + 30_000, ..schedules.pop().expect("one") }
}

/// CPU time of this process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
