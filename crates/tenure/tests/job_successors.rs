//! Those who come after: what a new leader may say about workers it has not listed yet, and what a former life of a worker may
//! say about the claims of its successor.

use crate::common::{Rig, sleep_ms};
use crate::job_rig::*;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure::job::{Dispatcher, JobRunner, JobSpec, JobState};
use tenure::store::{
    Condition, Lanes, List, MemoryStore, Read, Remove, Store, Trouble, TroubleKind, Version, Write,
};
use tenure::worker::WorkerSpec;
use tenure::{Node, Settings};

const WORKER: &str = "plg_coordinator_global/test/workers/w1.json";

/// Does not answer reads of `snapshot.json`, nor lists of the workers, while it is switched on.
#[derive(Debug)]
struct Veiled {
    inner: Arc<MemoryStore>,
    on: AtomicBool,
}

impl Veiled {
    fn hides(&self, key: &str) -> Option<Trouble> {
        let hidden = key.ends_with("/snapshot.json") || key.ends_with("/workers/");
        let hidden = hidden && self.on.load(Ordering::SeqCst);
        hidden.then(|| Trouble::new(TroubleKind::Timeout, "no answer"))
    }
}

#[async_trait]
impl Store for Veiled {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        match self.hides(key) {
            Some(trouble) => Read::Unavailable(trouble),
            None => self.inner.get(key, unless).await,
        }
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        self.inner.put(key, body, condition).await
    }

    async fn remove(&self, key: &str) -> Remove {
        self.inner.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        match self.hides(prefix) {
            Some(trouble) => List::Unavailable(trouble),
            None => self.inner.list(prefix, limit).await,
        }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// A worker registers, gets a job and claims it; then the leader dies before its successor has heard of that worker.
#[tokio::test(start_paused = true)]
async fn a_new_leader_calls_no_worker_gone_before_it_has_listed_them_itself() {
    let rig = Rig::new();
    let mut first = rig.join("pod-a").await;
    first.became_leader().await;
    let veil = Arc::new(Veiled { inner: rig.store.clone(), on: AtomicBool::new(false) });
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-b")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let second = Node::builder(settings.build().expect("valid settings"))
        .lanes(Lanes::same(veil.clone()))
        .clock(rig.clock.clone());
    let second = second.start().await.expect("a node");
    let x = rig.join_with("pod-x", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    let (done, other) = (Log::default(), Log::default());
    let _v1 = runner(&x, "v1", &other, 0).await;
    known(&first, 1).await;
    second.workers().wait_for(|workers| workers.active == 1).await.expect("it lives");

    veil.on.store(true, Ordering::SeqCst);
    let _w1 = runner(&x, "w1", &done, 60_000).await;
    known(&first, 2).await;
    let gives = dispatcher(&first).await;
    let spec = JobSpec::new("t", "echo").worker("w1").timeout(Duration::from_secs(300));
    gives.submit(spec).await.expect("taken");
    sleep_ms(5000).await;
    assert_eq!(done.ids(), ["t/1"], "it runs");
    first.link.cut(true);
    let guard = second.lead().await.expect("it leads");
    let takes_over = Dispatcher::start(&second.jobs(), guard);
    assert!(takes_over.ready().await);
    sleep_ms(20_000).await;
    let job = takes_over.jobs().await[0].clone();
    assert_eq!((job.state, job.dispatch), (JobState::Running, 1), "its worker lives: {}", job.reason);
    assert_eq!(takes_over.counts().lost, 0);

    veil.on.store(false, Ordering::SeqCst);
    settle(&takes_over, 1).await;
    let job = takes_over.jobs().await[0].clone();
    assert_eq!((job.state, job.dispatch), (JobState::Succeeded, 1), "{}", job.reason);
    assert_eq!(done.ids(), ["t/1"], "once");
}

/// It stood still; another process has taken its id over meanwhile, and works.
#[tokio::test(start_paused = true)]
async fn a_former_life_of_a_worker_leaves_the_claims_of_its_successor_alone() {
    let rig = Rig::new();
    let slow = |s: tenure::settings::SettingsBuilder| {
        s.startup_jitter_max(Duration::ZERO)
            .eligible(false)
            .worker_heartbeat_interval(Duration::from_millis(60_000))
            .worker_timeout(Duration::from_millis(200_000))
    };
    let x = rig.join_with("pod-x", 0, slow).await;
    let spec = WorkerSpec::new("w1", "queue").timeout(Duration::from_secs(200));
    let worker = x.node.register_worker(spec).expect("valid");
    worker.registered().await.expect("registered");
    let done = Log::default();
    let runner = JobRunner::start(&x.node.jobs(), worker, echo(&done, 0));
    sleep_ms(100).await;

    let mut registered = object(&rig, WORKER).await.expect("registered");
    let successor = "00000000000000bb";
    (registered["incarnation"], registered["nonce"]) = (json!(successor), json!(format!("{successor}-1")));
    put(&rig, WORKER, registered.to_string()).await;
    put_inbox(&rig, &[("t", 6, 0)]).await;
    let mut inbox = object(&rig, INBOX).await.expect("there");
    (inbox["entries"][0]["state"], inbox["entries"][0]["by"]) = (json!("running"), json!(successor));
    put(&rig, INBOX, inbox.to_string()).await;
    sleep_ms(40_000).await;
    let now: Value = object(&rig, INBOX).await.expect("there");
    assert_eq!(now["entries"], inbox["entries"], "the successor runs it");
    sleep_ms(60_000).await;
    assert!(format!("{:?}", runner.ended().await).contains("Superseded"), "its next heartbeat tells it");
}
