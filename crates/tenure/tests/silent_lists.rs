//! Lists that a store answers late or never: how long each is waited for.

use crate::common::{Rig, sleep_ms};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::clock::millis;
use tenure::job::{Dispatcher, DispatcherOptions, Handlers, JobOutcome, JobRunner, JobSpec};
use tenure::store::{
    Condition, LIST_TIMEOUTS_MAX, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write,
};
use tenure::worker::WorkerSpec;
use tenure::{Node, Settings};
use tokio::time::Instant;

/// Takes its time for lists.
#[derive(Debug)]
struct Mute {
    inner: Arc<MemoryStore>,
    listed: Mutex<BTreeMap<String, Vec<Instant>>>,
    takes: Takes,
}

/// How long the list of a folder takes, by how often it was listed; `None`: for ever.
type Takes = fn(&str, usize) -> Option<Duration>;

impl Mute {
    fn new(rig: &Rig, takes: Takes) -> Arc<Mute> {
        Arc::new(Mute { inner: rig.store.clone(), listed: Mutex::default(), takes })
    }
}

#[async_trait]
impl Store for Mute {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.inner.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        self.inner.put(key, body, condition).await
    }

    async fn remove(&self, key: &str) -> Remove {
        self.inner.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let times = {
            let mut listed = self.listed.lock().expect("no panic");
            let times = listed.entry(prefix.to_owned()).or_default();
            times.push(Instant::now());
            times.len()
        };
        match (self.takes)(prefix, times) {
            Some(takes) => tokio::time::sleep(takes).await,
            None => pending().await,
        }
        self.inner.list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_never_answered_is_made_again_after_its_timeouts() {
    let rig = Rig::new();
    let mute = Mute::new(&rig, |_, times| (times > 1).then_some(Duration::ZERO));
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let settings =
        settings.worker_sweep_interval(Duration::from_millis(1000)).build().expect("valid settings");
    let limit_ms = millis(settings.request_timeout) * u64::from(LIST_TIMEOUTS_MAX);
    let lanes = Lanes { lease: rig.store.clone(), bulk: mute.clone() };
    let node = Node::builder(settings).lanes(lanes).clock(rig.clock.clone()).start().await.expect("a node");
    let guard = node.lead().await.expect("it leads");
    let _dispatcher = Dispatcher::start(&node.jobs(), guard);
    sleep_ms(limit_ms * 5).await;
    let listed = mute.listed.lock().expect("no panic");
    for folder in ["workers", "jobs/inbox"] {
        let times = &listed[&format!("plg_coordinator_global/test/{folder}/")];
        let waited_ms = u64::try_from((times[1] - times[0]).as_millis()).expect("short");
        assert!((limit_ms..limit_ms * 2).contains(&waited_ms), "{folder}: {waited_ms} of {limit_ms} ms");
    }
}

const SLOW: Duration = Duration::from_secs(7);

/// Seven request timeouts are less than a list may take.
#[tokio::test(start_paused = true)]
async fn a_slow_list_of_finished_jobs_is_waited_for() {
    let rig = Rig::new();
    let done = "plg_coordinator_global/test/jobs/done/";
    let slow =
        Mute::new(&rig, |folder, _| Some(if folder.contains("/done/") { SLOW } else { Duration::ZERO }));
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let settings = settings
        .request_timeout(Duration::from_millis(1000))
        .job_retention(Duration::from_millis(600_000))
        .build()
        .expect("valid settings");
    let lanes = Lanes { lease: rig.store.clone(), bulk: slow };
    let node = Node::builder(settings).lanes(lanes).clock(rig.clock.clone()).start().await.expect("a node");
    let worker = node.register_worker(WorkerSpec::new("w1", "queue")).expect("valid");
    let handlers = Handlers::new().on("echo", async |_| JobOutcome::succeeded(""));
    let _runner = JobRunner::start(&node.jobs(), worker, handlers);
    let guard = node.lead().await.expect("it leads");
    let options = DispatcherOptions { history_rows: 1, ..DispatcherOptions::default() };
    let dispatcher = Dispatcher::start_with(&node.jobs(), guard, options);
    let mut batches = Vec::new();
    for number in 0..3 {
        dispatcher.submit(JobSpec::new(format!("t{number}"), "echo")).await.expect("taken");
        sleep_ms(700_000).await;
        let List::Entries { entries, .. } = rig.store.list(done, 100).await else { panic!("no list") };
        batches.push(entries.len());
    }
    assert_eq!(batches, [1, 1, 1], "what is older than the retention is removed with the next");
}

/// A claim waits for the list of nodes: for one request timeout, not for ten.
#[tokio::test(start_paused = true)]
async fn fo1_a_list_of_nodes_that_is_never_answered_holds_up_a_claim_for_one_timeout() {
    let mut took = Vec::new();
    let never: Takes = |folder, _| (!folder.ends_with("/nodes/")).then_some(Duration::ZERO);
    for takes in [|_: &str, _| Some(Duration::ZERO), never] {
        let rig = Rig::new();
        let mut first = rig.join("pod-a").await;
        first.became_leader().await;
        let settings = Settings::builder().namespace("test").node("pod-b").store("memory:");
        let settings = settings.startup_jitter_max(Duration::ZERO).build().expect("valid settings");
        let timeout_ms = millis(settings.request_timeout);
        let lanes = Lanes::same(Mute::new(&rig, takes));
        let second = Node::builder(settings).lanes(lanes).clock(rig.clock.clone()).jitter_random(0);
        let second = second.start().await.expect("a node");
        sleep_ms(30_000).await;
        first.link.cut(true);
        let began = Instant::now();
        second.lead().await.expect("it leads");
        took.push((u64::try_from(began.elapsed().as_millis()).expect("short"), timeout_ms));
    }
    let [(answered, timeout_ms), (unanswered, _)] = took[..] else { panic!("{took:?}") };
    let longer = unanswered.saturating_sub(answered);
    // One timeout, and then the turn of the last in rank.
    assert!(longer <= 3 * timeout_ms, "{answered} ms with an answer, {unanswered} ms without");
}
