//! The terms of leaders, on the memory store and simulated time.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure::admin::{StepDownAnswer, TermEnd, request_step_down};
use tenure::clock::TokioClock;
use tenure::process::{Processes, Supervisor};
use tenure::store::{
    Condition, Faulty, Lanes, List, MemoryStore, Read, Remove, Store, StoreTime, Version, Write,
};
use tenure::{Namespace, Node, Settings, async_trait};
use tenure_plugins::cluster_health::ClusterHealth;
use tenure_plugins::terms::{TERMS_MAX, TermRow, TermsView};
use tokio::sync::{Mutex, Notify};

const SEAT: &str = "plg_coordinator_global/test/seat.json";
const KEY: &str = "plg_coordinator_global/test/terms.json";

/// A node's way to the store: notes what it does with the list, and can keep its writes back until they are let go.
#[derive(Debug, Clone)]
struct Way {
    store: Arc<MemoryStore>,
    did: Arc<Mutex<Vec<&'static str>>>,
    keeps_back: Arc<AtomicBool>,
    let_go: Arc<Notify>,
    /// What became of the writes that were kept back.
    late: Arc<Mutex<Vec<Write>>>,
}

#[async_trait]
impl Store for Way {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        if key == KEY {
            self.did.lock().await.push("read");
        }
        self.store.get(key, unless).await
    }

    async fn put(&self, key: &str, body: bytes::Bytes, condition: Condition) -> Write {
        if key == KEY {
            self.did.lock().await.push("write");
            if self.keeps_back.load(Ordering::SeqCst) {
                let this = self.clone();
                tokio::spawn(async move {
                    this.let_go.notified().await;
                    let outcome = this.store.put(KEY, body, condition).await;
                    this.late.lock().await.push(outcome);
                });
                return std::future::pending().await;
            }
        }
        self.store.put(key, body, condition).await
    }

    async fn remove(&self, key: &str) -> Remove {
        self.store.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.store.list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn now(&self) -> Option<StoreTime> {
        Some(self.store.now())
    }
}

struct Rig {
    store: Arc<MemoryStore>,
    clock: Arc<TokioClock>,
}

struct Member {
    node: Node,
    processes: Option<Processes>,
    link: Faulty,
    way: Way,
}

impl Rig {
    fn new() -> Rig {
        Rig { store: Arc::new(MemoryStore::new()), clock: TokioClock::new() }
    }

    fn way(&self) -> Way {
        let (did, keeps_back, let_go, late) = Default::default();
        Way { store: self.store.clone(), did, keeps_back, let_go, late }
    }

    async fn join(&self, name: &str) -> Member {
        self.join_by(name, self.way()).await
    }

    async fn join_by(&self, name: &str, way: Way) -> Member {
        let settings = Settings::builder()
            .namespace("test")
            .node(name)
            .store("memory:")
            .startup_jitter_max(Duration::ZERO);
        let link = Faulty::new(Arc::new(way.clone()), 7);
        let lanes = Lanes::same(Arc::new(link.clone()));
        let builder = Node::builder(settings.build().expect("valid settings")).lanes(lanes);
        let node = builder.clock(self.clock.clone()).jitter_random(0).start().await.expect("a node");
        let health = ClusterHealth::new(&node);
        let processes = Some(Supervisor::new([health.process()]).run(&node).expect("processes"));
        Member { node, processes, link, way }
    }

    async fn view(&self) -> TermsView {
        TermsView::read_from(&Lanes::same(self.store.clone()), &namespace()).await.expect("a view")
    }

    /// In short, the newest first: epoch, leader and why it ended.
    async fn terms(&self) -> Vec<String> {
        let short = |row: &TermRow| format!("{} {} {}", row.term.epoch, row.term.leader, row.why);
        self.view().await.terms.iter().map(short).collect()
    }

    /// Waits until the list says this.
    async fn until(&self, wanted: &[&str]) {
        for _ in 0..600 {
            if self.terms().await == wanted {
                return;
            }
            sleep_s(1).await;
        }
        assert_eq!(self.terms().await, wanted, "not within ten simulated minutes");
    }

    async fn put(&self, key: &str, body: &str) {
        let written = self.store.put(key, body.to_owned().into(), Condition::Any).await;
        assert!(matches!(written, Write::Won(_)), "{written:?}");
    }

    async fn text(&self, key: &str) -> String {
        let read = self.store.get(key, None).await;
        let Read::Found(object) = read else { panic!("no {key}: {read:?}") };
        String::from_utf8(object.body.to_vec()).expect("text")
    }

    /// The list on the store, without what readers add from the seat.
    async fn stored(&self) -> Vec<Value> {
        let document: Value = serde_json::from_str(&self.text(KEY).await).expect("JSON");
        document["terms"].as_array().expect("a list").clone()
    }

    async fn stored_epochs(&self) -> Vec<u64> {
        self.stored().await.iter().map(|term| term["epoch"].as_u64().expect("a number")).collect()
    }
}

impl Member {
    async fn leads(&self) -> u64 {
        let leads = tokio::time::timeout(Duration::from_secs(600), self.node.lead()).await;
        leads.unwrap_or_else(|_| panic!("{} does not lead", self.node.id())).expect("not stopped").epoch()
    }
}

fn namespace() -> Namespace {
    Namespace::new("test").expect("valid")
}

async fn sleep_s(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A seat that was vacated in this epoch by somebody who did not say why.
fn vacant(epoch: u64) -> String {
    json!({"v": 1, "epoch": epoch, "state": "vacant", "holder": {"node": "pod-z", "incarnation": "00000000000000ab"},
        "leaseHold": 5000, "leaseExpiry": 7500, "renewals": 1, "nonce": "00000000000000ab-1"})
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn hi3_every_change_of_leader_is_in_the_list_once_with_its_reason() {
    let rig = Rig::new();
    let (a, b) = (rig.join("pod-a").await, rig.join("pod-b").await);
    let c = rig.join("pod-c").await;
    assert_eq!(a.leads().await, 1);
    rig.until(&["1 pod-a leads"]).await;

    // It is gone without a word …
    a.link.cut(true);
    assert_eq!(b.leads().await, 2);
    let term = rig.view().await.terms.swap_remove(1).term;
    let silent_ms = term.silent_ms.expect("how long its successor waited");
    assert!((7500..10_000).contains(&silent_ms), "{silent_ms}");
    assert_eq!((term.ended, term.incarnation.map(|life| life.len())), (Some(TermEnd::Silent), Some(16)));
    let silent = format!("{:.1} s", Duration::from_millis(silent_ms).as_secs_f64());
    rig.until(&["2 pod-b leads", &format!("1 pod-a fell silent for {silent}")]).await;
    // … and back: it knows better why.
    a.link.cut(false);
    let first = format!("1 pod-a its lease expired (silent for {silent})");
    rig.until(&["2 pod-b leads", &first]).await;

    b.node.step_down().await.expect("it leads");
    assert_eq!(a.leads().await, 3);
    rig.until(&["3 pod-a leads", "2 pod-b stepped down", &first]).await;

    let asked = request_step_down(&Lanes::same(rig.store.clone()), &namespace(), "ops").await.expect("asked");
    assert!(matches!(asked, StepDownAnswer::Asked(_)), "{asked:?}");
    // Who stepped down does not claim again for a while.
    assert_eq!(c.leads().await, 4);
    let third = "3 pod-a stepped down (asked by ops)";
    rig.until(&["4 pod-c leads", third, "2 pod-b stepped down", &first]).await;

    sleep_s(60).await;
    c.node.shutdown().await;
    assert_eq!(a.leads().await, 5);
    let all = ["5 pod-a leads", "4 pod-c shut down", third, "2 pod-b stepped down", &first];
    rig.until(&all).await;
    let view = rig.view().await;
    assert_eq!(rig.stored_epochs().await, [5, 4, 3, 2, 1], "contiguous, each once, and written down");
    for (place, row) in view.terms.iter().enumerate() {
        assert_eq!((row.leads, row.term.until.is_none()), (place == 0, place == 0), "{row:?}");
        assert!(row.term.from.is_some() && row.unrecorded == 0, "{row:?}");
    }
    let same = TermsView::read(&b.node.documents(), &namespace()).await.expect("any node reads it");
    assert_eq!(same, view);

    // Nobody leads, and the list says why the last one ended.
    a.node.shutdown().await;
    assert_eq!(b.leads().await, 6);
    b.node.shutdown().await;
    let last = rig.view().await.terms.swap_remove(0);
    assert_eq!((last.term.epoch, last.why.as_str(), last.leads), (6, "shut down", false));
}

#[tokio::test(start_paused = true)]
async fn hi3_a_change_of_leader_costs_one_read_and_one_write_of_the_list() {
    let rig = Rig::new();
    let (a, mut b) = (rig.join("pod-a").await, rig.join("pod-b").await);
    assert_eq!(a.leads().await, 1);
    sleep_s(600).await;
    assert_eq!(*a.way.did.lock().await, ["read", "write"], "and nothing while it leads");
    a.node.step_down().await.expect("it leads");
    assert_eq!(b.leads().await, 2);
    sleep_s(600).await;
    assert_eq!(*b.way.did.lock().await, ["read", "write"]);
    assert_eq!(*a.way.did.lock().await, ["read", "write"], "the seat says why it ended");

    // A process that is started again in the same term has nothing to add.
    b.processes.take().expect("processes").stop().await;
    let again = Supervisor::new([ClusterHealth::new(&b.node).process()]).run(&b.node).expect("processes");
    again.running("ClusterHealth").await;
    sleep_s(60).await;
    assert_eq!(*b.way.did.lock().await, ["read", "write", "read"]);
}

/// Its writes are on their way for minutes, and arrive when others lead.
#[tokio::test(start_paused = true)]
async fn hi3_a_former_leader_whose_writes_come_late_damages_nothing() {
    let rig = Rig::new();
    let way = rig.way();
    way.keeps_back.store(true, Ordering::SeqCst);
    let (a, b) = (rig.join_by("pod-a", way).await, rig.join("pod-b").await);
    assert_eq!(a.leads().await, 1);
    sleep_s(60).await;
    assert!(matches!(rig.store.get(KEY, None).await, Read::Absent), "kept back");
    a.link.cut(true);
    assert_eq!(b.leads().await, 2);
    sleep_s(5).await;
    let before = rig.text(KEY).await;
    assert_eq!(rig.stored_epochs().await, [2, 1], "the new leader writes down both");

    a.way.keeps_back.store(false, Ordering::SeqCst);
    a.way.let_go.notify_waiters();
    sleep_s(5).await;
    let late = a.way.late.lock().await.clone();
    assert!(!late.is_empty() && late.iter().all(|outcome| *outcome == Write::Lost), "{late:?}");
    assert_eq!(rig.text(KEY).await, before);

    // All that it may still do is to say why its own term ended.
    a.link.cut(false);
    sleep_s(300).await;
    let now = rig.stored().await;
    assert_eq!((&now[1]["ended"], &now[1]["leader"]), (&json!("lease expired"), &json!("pod-a")));
    assert_eq!(rig.stored_epochs().await, [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn hi3_only_the_newest_thousand_terms_are_kept() {
    let rig = Rig::new();
    let row = |epoch: u64| json!({"epoch": epoch, "leader": "pod-x", "ended": "shutdown", "until": "2026-11-15T15:00:00Z"});
    let rows: Vec<Value> = (1..=1500).rev().map(row).collect();
    rig.put(KEY, &json!({"v": 1, "terms": rows}).to_string()).await;
    rig.put(SEAT, &vacant(1500)).await;
    let a = rig.join("pod-a").await;
    assert_eq!(a.leads().await, 1501);
    sleep_s(5).await;
    let epochs = rig.stored_epochs().await;
    assert_eq!(epochs, (502..=1501).rev().collect::<Vec<_>>());
    assert_eq!(epochs.len(), TERMS_MAX);
}

/// A seat that was deleted begins with epoch 1 again; and anybody who can write there can write anything.
#[tokio::test(start_paused = true)]
async fn hi3_terms_of_epochs_that_cannot_be_are_dropped() {
    let rig = Rig::new();
    let rows: Vec<Value> = (0..1000)
        .map(|number| json!({"epoch": (1_u64 << 53) - 1 - number, "leader": "pod-x"}))
        .chain([json!({"epoch": 8, "leader": "pod-b"}), json!({"epoch": 8, "leader": "pod-y"})])
        // Its own, before it led.
        .chain([json!({"epoch": 10, "leader": "pod-a", "ended": "panic"})])
        .collect();
    rig.put(KEY, &json!({"v": 1, "terms": rows, "tomorrow": 1}).to_string()).await;
    rig.put(SEAT, &vacant(9)).await;
    let a = rig.join("pod-a").await;
    assert_eq!(a.leads().await, 10);
    sleep_s(5).await;
    assert_eq!(rig.terms().await[..2], ["10 pod-a leads", "9 pod-z handed over"]);
    assert_eq!(rig.stored_epochs().await, [10, 9, 8]);
    assert_eq!(rig.stored().await[0].get("ended"), None);
    assert!(rig.text(KEY).await.contains("\"tomorrow\":1"), "fields of a later version are kept");
}

#[tokio::test(start_paused = true)]
async fn hi3_a_list_that_cannot_be_read_is_left_alone_and_costs_the_leader_nothing() {
    for broken in [
        "{\"v\":1,\"terms\":7}",
        "nonsense",
        "{\"v\":2}",
        "{\"v\":1,\"terms\":[{\"epoch\":1,\"leader\":\"../x\"}]}",
    ] {
        let rig = Rig::new();
        rig.put(KEY, broken).await;
        let a = rig.join("pod-a").await;
        assert_eq!(a.leads().await, 1);
        sleep_s(400).await;
        assert_eq!(rig.text(KEY).await, broken, "left alone");
        assert!(a.node.leadership().borrow().is_leader());
        assert!(rig.text("plg_coordinator_global/test/health.json").await.contains("\"epoch\":1"));
        let error =
            TermsView::read_from(&Lanes::same(rig.store.clone()), &namespace()).await.expect_err("said");
        assert!(error.to_string().contains("terms.json"), "{error}");
        // Whoever repairs or removes it gets a list again, without waiting for the next leader.
        rig.store.remove(KEY).await;
        rig.until(&["1 pod-a leads"]).await;
        sleep_s(300).await;
        assert_eq!(rig.stored_epochs().await, [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn hi3_a_store_that_refuses_the_list_is_asked_again_and_delays_nothing() {
    let rig = Rig::new();
    let way = rig.way();
    way.keeps_back.store(true, Ordering::SeqCst);
    let a = rig.join_by("pod-a", way).await;
    assert_eq!(a.leads().await, 1);
    sleep_s(30).await;
    assert!(rig.text("plg_coordinator_global/test/health.json").await.contains("\"epoch\":1"));
    a.way.keeps_back.store(false, Ordering::SeqCst);
    sleep_s(600).await;
    assert_eq!(rig.stored_epochs().await, [1]);

    // Stopping does not wait for it either.
    let rig = Rig::new();
    let way = rig.way();
    way.keeps_back.store(true, Ordering::SeqCst);
    let a = rig.join_by("pod-a", way).await;
    assert_eq!(a.leads().await, 1);
    sleep_s(10).await;
    let began = tokio::time::Instant::now();
    a.node.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// The seat knows the last terms, so leaders that write nothing leave no gap, unless there are many in a row.
#[tokio::test(start_paused = true)]
async fn hi3_leaders_that_write_nothing_down_leave_no_gap_unless_they_are_many() {
    let rig = Rig::new();
    let mute = rig.way();
    mute.keeps_back.store(true, Ordering::SeqCst);
    let (a, b) = (rig.join("pod-a").await, rig.join_by("pod-b", mute).await);
    assert_eq!(a.leads().await, 1);
    sleep_s(5).await;
    a.node.shutdown().await;
    for epoch in 2..=5 {
        assert_eq!(b.leads().await, epoch);
        sleep_s(5).await;
        assert_eq!(rig.stored_epochs().await, [1]);
        assert_eq!(rig.terms().await.len() as u64, epoch, "readers see it all the same");
        if epoch < 5 {
            b.node.step_down().await.expect("it leads");
        }
    }
    let c = rig.join("pod-c").await;
    sleep_s(30).await;
    b.node.shutdown().await;
    assert_eq!(c.leads().await, 6);
    sleep_s(5).await;
    assert_eq!(rig.stored_epochs().await, [6, 5, 4, 3, 2, 1]);
    let last = ["6 pod-c leads", "5 pod-b shut down", "4 pod-b stepped down", "3 pod-b stepped down"];
    // What nobody wrote down is not known, and said.
    assert_eq!(rig.stored().await[5]["ended"], "unknown");
    assert_eq!(rig.terms().await, [&last[..], &["2 pod-b stepped down", "1 pod-a not known"]].concat());
}
