//! A cluster in one process for schedules: the memory store, simulated time, a fault switch per node, and a wall clock that tests
//! can set.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::job::{Handlers, JobRunner, RunnerOptions};
use tenure::process::{Processes, Supervisor};
use tenure::store::{Faulty, Lanes, MemoryStore, Meter, Metered, Store};
use tenure::worker::WorkerSpec;
use tenure::{Namespace, Node, Settings, async_trait};
use tenure_plugins::checks::{Check, Checks, JobRun};
use tenure_plugins::schedules::{
    CheckSpec, JobTrouble, Rules, RunnerView, Schedule, ScheduleEvent, ScheduleOptions, ScheduleRunner,
    read_file,
};
use tokio::sync::broadcast;
use tokio::time::Instant;

/// 2026-11-15 00:00 UTC.
pub const START: u64 = 1_794_700_800_000;

pub struct Rig {
    pub store: Arc<MemoryStore>,
    clock: Arc<TokioClock>,
    began: Instant,
}

/// A candidate with a runner of schedules.
pub struct Pod {
    pub node: Node,
    pub link: Faulty,
    /// The node's lane for jobs and workers; the runner's own requests go round it.
    pub bulk: Faulty,
    /// The runner's own requests.
    pub own: Faulty,
    pub runner: ScheduleRunner,
    pub events: broadcast::Receiver<ScheduleEvent>,
    pub processes: Processes,
    /// By how much its wall clock is wrong.
    pub skew: Arc<AtomicI64>,
    /// Requests of the runner's own; those of its dispatcher are the node's.
    pub meter: Meter,
}

/// A node that never leads, with an agent.
pub struct Agent {
    pub node: Node,
    pub link: Faulty,
    pub runner: JobRunner,
}

pub fn id<T: std::str::FromStr<Err = tenure::id::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

pub fn rules() -> Rules {
    Rules { own_kinds: [id("fake")].into() }
}

/// The schedule of this text, from now on.
pub fn schedule(name: &str, text: &str) -> Schedule {
    let text = format!("[{{id: {name}, checks: [{{name: a, kind: fake}}], {text}}}]");
    let mut schedules = read_file(&text, &rules()).expect("valid");
    Schedule { since_ms: START, ..schedules.pop().expect("one") }
}

impl Rig {
    /// Must be called on a runtime with paused time.
    pub fn new() -> Rig {
        Rig { store: Arc::new(MemoryStore::new()), clock: TokioClock::new(), began: Instant::now() }
    }

    pub fn now_ms(&self) -> u64 {
        START + u64::try_from(self.began.elapsed().as_millis()).expect("small")
    }

    async fn node(&self, name: &str, eligible: bool) -> (Node, Faulty, Faulty) {
        let settings = Settings::builder()
            .namespace("test")
            .node(name)
            .store("memory:")
            .startup_jitter_max(Duration::ZERO)
            .eligible(eligible);
        let link = Faulty::new(self.store.clone(), 7);
        let bulk = Faulty::new(Arc::new(link.clone()), 9);
        let lanes = Lanes { lease: Arc::new(link.clone()), bulk: Arc::new(bulk.clone()) };
        let builder = Node::builder(settings.build().expect("valid")).lanes(lanes).clock(self.clock.clone());
        (builder.jitter_random(0).start().await.expect("a node"), link, bulk)
    }

    pub async fn pod(&self, name: &str) -> Pod {
        let (node, link, bulk) = self.node(name, true).await;
        let (skew, began) = (Arc::new(AtomicI64::new(0)), self.began);
        let skewed = Arc::clone(&skew);
        let options = ScheduleOptions {
            rules: rules(),
            wall_clock: Arc::new(move || {
                let now = START + u64::try_from(began.elapsed().as_millis()).expect("small");
                now.saturating_add_signed(skewed.load(Ordering::SeqCst))
            }),
            ..ScheduleOptions::default()
        };
        let namespace = Namespace::new("test").expect("valid");
        let meter = Meter::default();
        let own = Faulty::new(Arc::new(link.clone()), 11);
        let store: Arc<dyn Store> = Arc::new(Metered::new(Arc::new(own.clone()), meter.clone()));
        let runner = ScheduleRunner::new(node.jobs(), store, &namespace, options);
        let events = runner.events();
        let processes = Supervisor::new([runner.process()]).run(&node).expect("valid");
        Pod { node, link, bulk, own, runner, events, processes, skew, meter }
    }

    pub async fn agent(&self, name: &str, takes: &RunnerOptions, check: &Fake) -> Agent {
        let named = Fake { agent: name.to_owned(), ..check.clone() };
        self.hire(name, takes, Checks::none().on("fake", named).expect("valid")).await
    }

    /// One that can do nothing, whatever it says.
    pub async fn liar(&self, name: &str, takes: &RunnerOptions) -> Agent {
        self.hire(name, takes, Checks::none()).await
    }

    async fn hire(&self, name: &str, takes: &RunnerOptions, checks: Checks) -> Agent {
        let (node, link, _) = self.node(&format!("pod-{name}"), false).await;
        let spec = WorkerSpec::new(name, "poll").timeout(Duration::from_secs(20));
        let worker = node.register_worker(spec).expect("valid");
        worker.registered().await.expect("registered");
        let runner =
            JobRunner::start_with(&node.jobs(), worker, checks.handle(Handlers::new()), takes.clone());
        Agent { node, link, runner }
    }
}

impl Pod {
    pub fn view(&self) -> RunnerView {
        self.runner.view().borrow().clone()
    }

    /// Waits until its view is like this.
    pub async fn until(&self, wanted: impl Fn(&RunnerView) -> bool) -> RunnerView {
        let mut view = self.runner.view();
        let wait = tokio::time::timeout(Duration::from_secs(600), view.wait_for(wanted));
        match wait.await {
            Ok(shown) => shown.expect("it lives").clone(),
            Err(_) => panic!("not within ten simulated minutes: {:#?}", self.view()),
        }
    }

    pub async fn leads(&self) -> RunnerView {
        self.until(|view| view.epoch > 0).await
    }

    /// What it told about checks and schedules.
    pub fn told(&mut self) -> Vec<ScheduleEvent> {
        let told = std::iter::from_fn(|| self.events.try_recv().ok());
        told.filter(|event| !matches!(event, ScheduleEvent::Job(_))).collect()
    }

    /// What it told about jobs since then.
    pub fn troubles(events: &mut broadcast::Receiver<ScheduleEvent>) -> Vec<JobTrouble> {
        let told = std::iter::from_fn(|| events.try_recv().ok());
        let trouble = |event| if let ScheduleEvent::Job(trouble) = event { Some(trouble) } else { None };
        told.filter_map(trouble).collect()
    }
}

/// A check that notes who did it, and does what it is told: answer, fail, or hang.
#[derive(Clone, Default)]
pub struct Fake {
    agent: String,
    done: Arc<Mutex<Vec<(String, u64)>>>,
    began: Option<Instant>,
    pub answer: Arc<Mutex<Answering>>,
}

#[derive(Clone, Default, PartialEq)]
pub enum Answering {
    #[default]
    Well,
    Fails,
    Takes(Duration),
    HangsOn(String),
}

impl Fake {
    pub fn new() -> Fake {
        Fake { began: Some(Instant::now()), ..Fake::default() }
    }

    pub fn set(&self, answering: Answering) {
        *self.answer.lock().expect("no panic") = answering;
    }

    /// Who did one, and when.
    pub fn done(&self) -> Vec<(String, u64)> {
        self.done.lock().expect("no panic").clone()
    }
}

#[async_trait]
impl Check for Fake {
    async fn check(&self, _: &JobRun, _: &CheckSpec) -> Result<(), String> {
        let at = self.began.map_or(0, |began| u64::try_from(began.elapsed().as_millis()).expect("small"));
        self.done.lock().expect("no panic").push((self.agent.clone(), START + at));
        let answering = self.answer.lock().expect("no panic").clone();
        match answering {
            Answering::Well => Ok(()),
            Answering::Fails => Err("told to".to_owned()),
            Answering::Takes(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Answering::HangsOn(agent) if agent == self.agent => std::future::pending().await,
            Answering::HangsOn(_) => Ok(()),
        }
    }
}

/// Every due time of a schedule that ever became a job: those in the ledger and those in the history.
pub async fn created(rig: &Rig, schedule: &str) -> BTreeMap<u64, usize> {
    let root = "plg_coordinator_global/test/jobs/";
    let tenure::store::List::Entries { entries, .. } = rig.store.list(root, 10_000).await else {
        panic!("a list")
    };
    let mut found: BTreeMap<u64, usize> = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    let here = |key: &str| key.contains("/ledger-") || key.ends_with("/head.json") || key.contains("/done/");
    for entry in entries.iter().filter(|entry| here(&entry.key)) {
        let tenure::store::Read::Found(object) = rig.store.get(&entry.key, None).await else { continue };
        let value: serde_json::Value = serde_json::from_slice(&object.body).expect("JSON");
        // The newest jobs of the history have a number each; a chunk has rows and no jobs.
        for record in value["jobs"].as_array().into_iter().flatten() {
            let record = record.get(1).unwrap_or(record);
            let (job, watermark) =
                (record["id"].as_str().expect("id"), record["watermark"].as_u64().expect("watermark"));
            if record["series"] == schedule && seen.insert(job.to_owned()) {
                *found.entry(watermark).or_default() += 1;
            }
        }
    }
    found
}

pub async fn sleep_s(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
