//! A refusal that is real: an identity of a real engine that may not write below the global prefix.
//! `TENURE_TEST_S3_ENGINES` says where; `cargo xtask test` starts the engines and sets it.

use crate::{common, log, paused_leader};
use bytes::Bytes;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::plugin::{Mode, Plugin, Services};
use tenure::settings::CoordinationMode;
use tenure::settings::Preset;
use tenure::store::{
    Condition, Credentials, EtagForm, Lanes, List, OpenOptions, Read, Remove, Store, Version, Write, open_str,
};
use tenure::{LeaderGuard, Leadership, Settings, async_trait};

const ENGINES: &str = "TENURE_TEST_S3_ENGINES";
const LIMIT: Duration = Duration::from_secs(30);

/// The same bucket with one of two sets of credentials, both real.
#[derive(Clone, Debug)]
struct Switched {
    guest: Arc<dyn Store>,
    owner: Arc<dyn Store>,
    allowed: Arc<AtomicBool>,
}

impl Switched {
    fn now(&self) -> &Arc<dyn Store> {
        if self.allowed.load(Ordering::SeqCst) { &self.owner } else { &self.guest }
    }
}

#[async_trait]
impl Store for Switched {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.now().get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        self.now().put(key, body, condition).await
    }

    async fn remove(&self, key: &str) -> Remove {
        self.now().remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.now().list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.now().describe()
    }

    fn etag_form(&self) -> Option<EtagForm> {
        self.now().etag_form()
    }
}

#[derive(Default)]
struct Queue {
    epochs: Mutex<Vec<u64>>,
}

#[async_trait]
impl Plugin for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    async fn promoted(&self, guard: LeaderGuard) {
        self.epochs.lock().expect("unpoisoned").push(guard.epoch());
        guard.ended().await;
    }
}

/// Engines with an identity that may write only below `guest/plg_coordinator/`: the store's prefix here is `guest`.
fn engines() -> Vec<Value> {
    let Ok(text) = std::env::var(ENGINES) else {
        panic!("{ENGINES} is not set; run these tests through: cargo xtask test");
    };
    let all: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{ENGINES}: {error}"));
    all.into_iter().filter(|engine| engine["guest_access_key"].is_string()).collect()
}

async fn store(engine: &Value, access: &str, secret: &str) -> Lanes {
    let text = |field: &str| engine[field].as_str().unwrap_or_else(|| panic!("{field}: {engine}")).to_owned();
    let mut options = OpenOptions::with_request_timeout(Duration::from_secs(2));
    options.endpoint = engine["endpoints"][0].as_str().map(str::to_owned);
    options.credentials = Some(Credentials { access_key: text(access), secret_key: text(secret) });
    open_str(&format!("s3://{}/guest/", text("bucket")), &options).await.expect("a store")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !holds() {
            common::sleep_ms(20).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}

#[tokio::test]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn gc2_a_real_identity_without_the_right_to_write_falls_back() {
    log::keep();
    for engine in engines() {
        let guest = store(&engine, "guest_access_key", "guest_secret_key").await;
        let owner = store(&engine, "access_key", "secret_key").await;
        let allowed = Arc::new(AtomicBool::new(false));
        let lane = |guest: &Arc<dyn Store>, owner: &Arc<dyn Store>| -> Arc<dyn Store> {
            let (guest, owner) = (Arc::clone(guest), Arc::clone(owner));
            Arc::new(Switched { guest, owner, allowed: Arc::clone(&allowed) })
        };
        let lanes = Lanes { lease: lane(&guest.lease, &owner.lease), bulk: lane(&guest.bulk, &owner.bulk) };
        // The engine itself refuses the one and allows the other.
        let namespace = format!("denied-{:08x}", rand_number());
        let global = format!("plg_coordinator_global/{namespace}/x");
        let refused = guest.bulk.put(&global, "x".into(), Condition::Any).await;
        assert!(matches!(refused, Write::Denied(_)), "{refused:?}");
        let own = format!("plg_coordinator/{namespace}/queue/x");
        let allowed_there = guest.bulk.put(&own, "x".into(), Condition::Any).await;
        assert!(matches!(allowed_there, Write::Won(_)), "{allowed_there:?}");
        owner.bulk.remove(&own).await;

        let settings = Settings::builder().namespace(&namespace).node("pod-a").preset(Preset::Fast);
        let settings = settings
            .startup_jitter_max(Duration::ZERO)
            .coordination_mode(CoordinationMode::Global)
            .build()
            .expect("valid");
        let queue = Arc::new(Queue::default());
        let services = Services::new().lanes(lanes);
        let handle = services.attach(Arc::clone(&queue), settings).await.expect("attached");
        let mut leadership = handle.leadership();
        let led = tokio::time::timeout(LIMIT, leadership.wait_for(Leadership::is_leader)).await;
        led.expect("it goes on by itself").expect("attached");
        assert_eq!(handle.mode(), Mode::Fallback);
        let warning = "[coordinator] Failed to acquire global lock. Switching to per-plugin mode";
        assert_eq!(log::lines(warning).len(), 1);

        allowed.store(true, Ordering::SeqCst);
        handle.detach().await;
        let seat = owner.lease.get(&format!("plg_coordinator/{namespace}/queue/seat.json"), None).await;
        let Read::Found(object) = seat else { panic!("{seat:?}") };
        let seat: Value = serde_json::from_slice(&object.body).expect("JSON");
        assert_eq!(seat["state"], "vacant", "the plugin's own seat was given up in order");
        assert_eq!(*queue.epochs.lock().expect("unpoisoned"), [1]);
    }
}

fn rand_number() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos())
}

/// 2,500 workers are three list pages a sweep, and each object is read once.
#[tokio::test]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn many_workers_on_a_bucket_are_three_pages_a_sweep() {
    const WORKERS: u64 = 2500;
    for engine in engines() {
        let lanes = store(&engine, "access_key", "secret_key").await;
        let namespace = format!("crowd-{:08x}", rand_number());
        let mut writing = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let (bulk, namespace) = (Arc::clone(&lanes.bulk), namespace.clone());
            writing.spawn(async move {
                for number in (writer..WORKERS).step_by(8) {
                    let (id, life) = (format!("w-{number:04}"), format!("{number:016x}"));
                    let body = serde_json::json!({"v": 1, "workerId": id, "pluginType": "queue", "pod": "pod-x",
                        "timeout": 3_600_000, "heartbeatInterval": 5000, "incarnation": life,
                        "nonce": format!("{life}-1"), "beats": 1, "startedAt": "2026-01-01T00:00:00Z", "payload": {}});
                    let key = format!("plg_coordinator_global/{namespace}/workers/{id}.json");
                    // An engine that is busy may answer too late; what it wrote all the same is there.
                    let put = || bulk.put(&key, body.to_string().into(), Condition::Absent);
                    let mut written = put().await;
                    for _ in 0..10 {
                        if matches!(written, Write::Unknown(_) | Write::Unavailable(_)) {
                            written = put().await;
                        }
                    }
                    assert!(matches!(written, Write::Won(_) | Write::Lost), "{written:?}");
                }
            });
        }
        writing.join_all().await;
        let settings =
            Settings::builder().namespace(&namespace).node("pod-a").startup_jitter_max(Duration::ZERO);
        let settings = settings.worker_sweep_interval(Duration::from_millis(1000)).build().expect("valid");
        let node = tenure::Node::builder(settings).lanes(lanes).start().await.expect("a node");
        let known = node.workers();
        until("all are known", || known.borrow().active == WORKERS).await;
        let figures = || {
            let metrics = node.metrics();
            (metrics.worker_sweeps, metrics.requests.bulk.list_pages, metrics.requests.bulk.get)
        };
        // Right after a sweep, so that no list is under way.
        let after_a_sweep = async |sweeps: u64| {
            until("a sweep", || figures().0 > sweeps).await;
            figures()
        };
        let (sweeps, pages, reads) = after_a_sweep(figures().0).await;
        let (later_sweeps, later_pages, later_reads) = after_a_sweep(sweeps + 3).await;
        assert_eq!(
            later_pages - pages,
            3 * (later_sweeps - sweeps),
            "pages of {} sweeps",
            later_sweeps - sweeps
        );
        assert_eq!(later_reads, reads, "no read per worker in a sweep");
        assert!(reads < WORKERS + 100, "{reads} reads to know {WORKERS} workers");
        node.shutdown().await;
    }
}

/// Jobs on a real bucket: two workers, a failover in the middle, every result once.
#[tokio::test]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn ef4_jobs_on_a_bucket_survive_a_failover() {
    use tenure::job::{Dispatcher, Handlers, JobOutcome, JobRunner, JobSpec, JobState, Submitted};
    const JOBS: usize = 20;
    for engine in engines() {
        let lanes = store(&engine, "access_key", "secret_key").await;
        let namespace = format!("jobs-{:08x}", rand_number());
        let join = async |name: &str| {
            // With the default lease: nothing here is about losing one.
            let settings =
                Settings::builder().namespace(&namespace).node(name).startup_jitter_max(Duration::ZERO);
            let settings = settings
                .worker_sweep_interval(Duration::from_millis(500))
                .job_poll_interval(Duration::from_millis(100));
            let settings = settings.job_idle_interval(Duration::from_millis(500)).build().expect("valid");
            tenure::Node::builder(settings).lanes(lanes.clone()).start().await.expect("a node")
        };
        let (a, b) = (join("pod-a").await, join("pod-b").await);
        let guard = a.lead().await.expect("it leads");
        let ran = Arc::new(Mutex::new(Vec::new()));
        let mut runners = Vec::new();
        for name in ["w1", "w2"] {
            let worker = b.register_worker(tenure::worker::WorkerSpec::new(name, "queue")).expect("valid");
            let log = Arc::clone(&ran);
            let handlers = Handlers::new().on("echo", move |job| {
                log.lock().expect("unpoisoned").push(format!("{}/{}", job.id, job.attempt));
                async move {
                    common::sleep_ms(200).await;
                    JobOutcome::succeeded(job.payload.to_vec())
                }
            });
            runners.push(JobRunner::start(&b.jobs(), worker, handlers));
        }
        let workers = a.workers();
        until("both are known", || workers.borrow().active == 2).await;
        let first = Dispatcher::start(&a.jobs(), guard);
        let specs = (0..JOBS).map(|n| JobSpec::new(format!("t{n}"), "echo").payload(format!("p{n}")));
        let answers = first.submit_all(specs.clone()).await.expect("valid");
        assert!(answers.iter().all(|answer| *answer == Ok(Submitted::Created)), "{answers:?}");
        until("some run", || !ran.lock().expect("unpoisoned").is_empty()).await;
        drop(first);
        a.step_down().await.expect("it led");
        let guard = b.lead().await.expect("it leads");
        let second = Dispatcher::start(&b.jobs(), guard);
        let answers = second.submit_all(specs).await.expect("valid");
        assert!(answers.iter().all(|answer| *answer == Ok(Submitted::Exists)), "{answers:?}");
        let over = async {
            while second.jobs().await.iter().filter(|job| job.state == JobState::Succeeded).count() < JOBS {
                common::sleep_ms(50).await;
            }
        };
        tokio::time::timeout(LIMIT, over).await.expect("all are done");
        let mut all = ran.lock().expect("unpoisoned").clone();
        all.sort();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "no attempt ran twice");
        for runner in runners {
            runner.drain().await;
        }
        drop(second);
        a.shutdown().await;
        b.shutdown().await;
    }
}

/// The bucket itself refuses a leader that was paused past its lease.
#[tokio::test]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn fr1_a_paused_leader_cannot_write_on_a_bucket() {
    for engine in engines() {
        let lanes = store(&engine, "access_key", "secret_key").await;
        let namespace = format!("paused-{:08x}", rand_number());
        let clock = Arc::new(tenure::clock::BootClock);
        let told = paused_leader::a_paused_leader_cannot_write(&lanes, &namespace, clock).await;
        assert_eq!(told, Ok(()), "{engine}");
    }
}
