//! ClusterHealth on the memory store and simulated time.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::event::EventKind;
use tenure::process::{Processes, Supervisor};
use tenure::store::{Condition, Faults, Faulty, Lanes, MemoryStore, Meter, Metered, Read, Store, Write};
use tenure::worker::{WorkerList, WorkerSpec};
use tenure::{Event, Namespace, Node, Settings, async_trait};
use tenure_plugins::cluster_health::{
    ClusterHealth, HealthEvent, HealthStatus, HealthView, NodeState, Probe, ProbeResult, ReasonCode,
    Transition,
};
use tokio::sync::broadcast::Receiver;

const KEY: &str = "plg_coordinator_global/test/health.json";

struct Rig {
    store: Arc<MemoryStore>,
    clock: Arc<TokioClock>,
}

struct Member {
    node: Node,
    health: ClusterHealth,
    processes: Option<Processes>,
    lease: Faulty,
    bulk: Faulty,
    meter: Meter,
    told: Receiver<HealthEvent>,
    events: Receiver<Event>,
}

impl Rig {
    fn new() -> Rig {
        Rig { store: Arc::new(MemoryStore::new()), clock: TokioClock::new() }
    }

    async fn join(&self, name: &str) -> Member {
        self.join_with(name, |health| health).await
    }

    async fn join_with(&self, name: &str, change: impl FnOnce(ClusterHealth) -> ClusterHealth) -> Member {
        let settings = Settings::builder()
            .namespace("test")
            .node(name)
            .store("memory:")
            .startup_jitter_max(Duration::ZERO);
        let (lease, bulk) = (Faulty::new(self.store.clone(), 7), Faulty::new(self.store.clone(), 11));
        let meter = Meter::default();
        let metered = |link: &Faulty| -> Arc<dyn Store> {
            Arc::new(Metered::new(Arc::new(link.clone()), meter.clone()))
        };
        let lanes = Lanes { lease: metered(&lease), bulk: metered(&bulk) };
        let builder = Node::builder(settings.build().expect("valid settings"))
            .lanes(lanes)
            .clock(self.clock.clone())
            .jitter_random(0);
        let events = builder.events();
        let node = builder.start().await.expect("a node");
        let health = change(ClusterHealth::new(&node));
        let told = health.events();
        let processes = Some(Supervisor::new([health.process()]).run(&node).expect("processes"));
        Member { node, health, processes, lease, bulk, meter, told, events }
    }

    async fn trio(&self) -> [Member; 3] {
        [self.join("pod-a").await, self.join("pod-b").await, self.join("pod-c").await]
    }

    async fn view(&self) -> HealthView {
        let namespace = Namespace::new("test").expect("valid");
        HealthView::read_from(&Lanes::same(self.store.clone()), &namespace).await.expect("a view")
    }

    async fn put(&self, body: &str) {
        let written = self.store.put(KEY, body.to_owned().into(), Condition::Any).await;
        assert!(matches!(written, Write::Won(_)), "{written:?}");
    }

    async fn document(&self) -> Value {
        let read = self.store.get(KEY, None).await;
        let Read::Found(object) = read else { panic!("no health: {read:?}") };
        serde_json::from_slice(&object.body).expect("JSON")
    }
}

impl Member {
    fn cut(&self, cut: bool) {
        self.lease.cut(cut);
        self.bulk.cut(cut);
    }

    /// What it told so far, in short.
    fn said(&mut self) -> Vec<String> {
        let events = std::iter::from_fn(|| self.told.try_recv().ok());
        let say = |event: HealthEvent| match event.transition {
            Transition::NodeUp { node } => format!("{}+{node}", event.epoch),
            Transition::NodeDown { node } => format!("{}-{node}", event.epoch),
            Transition::HealthChanged { from, to, .. } => {
                format!("{} {}>{}", event.epoch, from.as_str(), to.as_str())
            }
        };
        events.map(say).collect()
    }
}

fn codes(view: &HealthView) -> Vec<&'static str> {
    view.reasons.iter().map(|reason| reason.code.as_str()).collect()
}

fn state(view: &HealthView, name: &str) -> NodeState {
    view.nodes.iter().find(|node| node.node == name).unwrap_or_else(|| panic!("no {name}: {view:?}")).state
}

async fn sleep_s(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// CP1: becoming leader starts ClusterHealth, and it does its work.
#[tokio::test(start_paused = true)]
async fn cp1_a_fresh_cluster_is_healthy_and_everybody_reads_it() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    sleep_s(20).await;
    for member in &members {
        let view = member.health.read().await.expect("every node can read it");
        assert_eq!(
            (view.status, view.epoch, view.leader.as_deref()),
            (HealthStatus::Healthy, 1, Some("pod-a"))
        );
        assert!(view.reasons.is_empty() && view.age_ms.is_some(), "{view:?}");
        assert_eq!(view.nodes.len(), 3);
        for node in &view.nodes {
            assert_eq!(node.state, NodeState::Up);
            assert_eq!(node.role, if node.node == "pod-a" { "leader" } else { "standby" });
            assert_eq!(node.incarnation.as_ref().map(String::len), Some(16), "{node:?}");
            assert!(node.version.as_ref().is_some_and(|text| text.starts_with("tenure ")), "{node:?}");
            assert!(node.last_seen_ms_ago.is_some_and(|ms| ms <= 20_000), "{node:?}");
        }
    }
    assert_eq!(members[0].said(), ["1+pod-a", "1+pod-b", "1+pod-c", "1 unknown>healthy"]);
    assert!(members[1].said().is_empty(), "only the leader tells");
    let told: Vec<(String, String)> = std::iter::from_fn(|| members[0].events.try_recv().ok())
        .filter_map(|event| {
            let EventKind::Plugin(news) = &event.kind else { return None };
            Some((event.to_json().to_string(), news.sentence.clone()))
        })
        .collect();
    let (event, sentence) = &told[0];
    assert!(
        event.contains("\"serviceradar.coordinator.node_up\"") && event.contains("\"subject\":\"pod-a\"")
    );
    assert_eq!(sentence, "node pod-a is up");
    assert_eq!(told[3].1, "the cluster is healthy (before: unknown)");
    assert_eq!(told.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_told_once_and_told_again_when_it_is_back() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    sleep_s(120).await;
    members[0].said();
    members[2].cut(true);
    // Its last sign of life may be one interval old by then.
    sleep_s(39).await;
    assert_ne!(state(&rig.view().await, "pod-c"), NodeState::Down, "not before a full timeout");
    sleep_s(80).await;
    let view = rig.view().await;
    assert_eq!(
        (view.status, state(&view, "pod-c"), codes(&view)),
        (HealthStatus::Degraded, NodeState::Down, vec!["node_down"])
    );
    assert_eq!(view.reasons[0].subject.as_deref(), Some("pod-c"));
    sleep_s(120).await;
    assert_eq!(members[0].said(), ["1-pod-c", "1 healthy>degraded"]);
    members[2].cut(false);
    sleep_s(60).await;
    let view = rig.view().await;
    assert_eq!((state(&view, "pod-c"), codes(&view)), (NodeState::Up, vec!["recovering"]));
    sleep_s(60).await;
    assert_eq!(members[0].said(), ["1+pod-c", "1 degraded>healthy"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_in_order_has_left_and_nobody_is_alarmed() {
    let rig = Rig::new();
    let [mut a, b, c] = rig.trio().await;
    sleep_s(120).await;
    a.said();
    c.node.shutdown().await;
    sleep_s(60).await;
    let view = rig.view().await;
    assert_eq!((view.status, state(&view, "pod-c")), (HealthStatus::Healthy, NodeState::Left));
    assert!(a.said().is_empty());
    b.node.shutdown().await;
    sleep_s(60).await;
    let view = rig.view().await;
    assert_eq!((view.status, codes(&view)), (HealthStatus::Degraded, vec!["no_eligible_standby"]));
}

#[tokio::test(start_paused = true)]
async fn each_worker_is_shown_with_its_life_through_silence_failover_and_leave() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    let register = |member: &Member, id: &str| {
        let spec = WorkerSpec::new(id, "queue").timeout(Duration::from_secs(120));
        member.node.register_worker(spec).expect("valid")
    };
    let (stays, leaves) = (register(&members[1], "w1"), register(&members[1], "w2"));
    let silent = register(&members[2], "w3");
    sleep_s(90).await;
    let row = |view: &HealthView, id: &str| {
        let found = view.workers.list.iter().find(|worker| worker.worker_id == id);
        found.unwrap_or_else(|| panic!("no {id}: {:?}", view.workers)).clone()
    };
    let view = rig.view().await;
    let before = row(&view, "w1");
    assert_eq!((before.state, before.version.as_deref()), (NodeState::Up, Some("tenure 0.1.0")));
    assert_eq!(before.incarnation.as_ref().map(String::len), Some(16));
    assert!(before.last_seen > 0);
    assert_ne!(row(&view, "w2").incarnation, before.incarnation);

    // Half its timeout, and all of it.
    members[2].cut(true);
    sleep_s(100).await;
    assert_eq!(row(&rig.view().await, "w3").state, NodeState::Suspect);
    sleep_s(80).await;
    let view = rig.view().await;
    assert_eq!(row(&view, "w3").state, NodeState::Down);
    assert_eq!(view.workers.list[0].worker_id, "w3", "trouble first");
    let reason = view.reasons.iter().find(|reason| reason.code == ReasonCode::WorkerDown).expect("told");
    assert_eq!(reason.to_string(), "worker_down w3: it was silent for longer than its timeout");
    // Ages are told by the store's clock, whoever wrote last.
    let ago_ms = view.store_time.expect("a seat") - row(&view, "w3").last_seen;
    assert!((150_000..200_000).contains(&ago_ms), "{ago_ms}");
    let lanes = Lanes::same(rig.store.clone());
    let list = WorkerList::read(&lanes, &Namespace::new("test").expect("valid")).await.expect("a list");
    let listed = list.workers.iter().find(|worker| worker.worker_id == "w3").expect("listed");
    assert!(listed.last_seen_ms_ago.abs_diff(ago_ms) < 5000, "{listed:?}");
    assert_eq!(members[0].node.metrics().plugin_figures["tenure_cluster_health"], 2.0, "degraded");
    assert_eq!(members[1].node.metrics().plugin_figures["tenure_cluster_health"], 0.0, "not the leader");

    // Whoever leads next has not read the objects, and still knows who is who.
    leaves.deregister().await;
    members[0].processes.take();
    members[0].cut(true);
    sleep_s(200).await;
    let view = rig.view().await;
    assert_eq!((view.epoch, view.leader.as_deref()), (2, Some("pod-b")));
    let after = row(&view, "w1");
    assert_eq!((after.state, &after.incarnation), (NodeState::Up, &before.incarnation));
    assert!(after.last_seen > before.last_seen);
    assert_eq!(row(&view, "w2").state, NodeState::Left);
    assert_eq!((view.workers.up, view.workers.down), (1, 1));

    // Another life.
    drop(stays);
    sleep_s(60).await;
    let _again = register(&members[1], "w1");
    sleep_s(60).await;
    let again = row(&rig.view().await, "w1");
    assert_eq!(again.state, NodeState::Up);
    assert_ne!(again.incarnation, before.incarnation);
    drop(silent);
    sleep_s(3700).await;
    let view = rig.view().await;
    assert!(view.workers.list.iter().all(|worker| worker.worker_id != "w2"), "an hour is over");
}

#[tokio::test(start_paused = true)]
async fn without_a_live_leader_nothing_is_healthy_and_the_next_goes_on_where_it_was() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    sleep_s(120).await;
    members[0].said();
    assert_eq!(rig.view().await.status, HealthStatus::Healthy);
    members[0].cut(true);
    let view = rig.view().await;
    assert_eq!(
        (view.status, view.fresh, view.reasons[0].code),
        (HealthStatus::Critical, false, ReasonCode::NoLeader)
    );
    assert_eq!(view.nodes.len(), 3, "what was known is still shown");
    sleep_s(20).await;
    let view = rig.view().await;
    assert_eq!((view.epoch, view.fresh, view.leader.as_deref()), (2, true, Some("pod-b")));
    let view = rig.view().await;
    assert_eq!((view.status, state(&view, "pod-a")), (HealthStatus::Degraded, NodeState::Down));
    assert_eq!(
        members[1].said(),
        ["2-pod-a", "2 healthy>degraded"],
        "and pod-b and pod-c are not told again"
    );
    assert!(members[0].said().is_empty() && members[2].said().is_empty());
}

/// Answers of writes and reads get lost and writes land late; whatever is published is told once, by whoever leads.
#[tokio::test(start_paused = true)]
async fn lost_answers_neither_repeat_nor_hide_a_transition() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    sleep_s(120).await;
    assert_eq!(members[0].said().len(), 4);
    let faults = Faults { lost_answer: 0.4, late_landing: 0.1, lost_request: 0.1, ..Faults::default() };
    members[0].bulk.set(faults);
    for round in 0..3 {
        members[2].cut(true);
        sleep_s(400).await;
        let said = members[0].said();
        assert_eq!(said.iter().filter(|text| text.ends_with("-pod-c")).count(), 1, "round {round}: {said:?}");
        assert_eq!(
            state(&rig.view().await, "pod-c"),
            NodeState::Down,
            "round {round}: what is told is published"
        );
        members[2].cut(false);
        sleep_s(700).await;
        assert_eq!(state(&rig.view().await, "pod-c"), NodeState::Up, "round {round}");
        let said = members[0].said();
        assert_eq!(said.iter().filter(|text| text.ends_with("+pod-c")).count(), 1, "round {round}: {said:?}");
        assert!(!said.iter().any(|text| text.contains("-pod")), "round {round}: {said:?}");
    }
}

/// Health is one list in 24 s, a write every third look, and four reads of presences at most, on the leader alone.
#[tokio::test(start_paused = true)]
async fn what_health_costs_is_what_the_cost_page_says() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    sleep_s(207).await;
    let before = members.each_ref().map(|member| member.meter.snapshot());
    sleep_s(240).await;
    let with: Vec<_> =
        members.iter().zip(before).map(|(member, before)| member.meter.snapshot() - before).collect();
    for member in &mut members {
        member.processes.take().expect("processes").stop().await;
    }
    let before = members.each_ref().map(|member| member.meter.snapshot());
    sleep_s(240).await;
    let without: Vec<_> =
        members.iter().zip(before).map(|(member, before)| member.meter.snapshot() - before).collect();
    let added = with[0] - without[0];
    assert_eq!(
        (added.list_pages, added.get, added.get_unchanged),
        (10, 20, 0),
        "10 looks, 2 others: {added:?}"
    );
    assert!((3..=4).contains(&added.put), "a refresh every third look: {added:?}");
    for standby in [1, 2] {
        // The second window may begin beside a look.
        let difference = with[standby].requests().abs_diff(without[standby].requests());
        assert!(difference <= 1, "a standby pays nothing: {difference}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_publishes_no_more_is_not_believed_for_long() {
    let rig = Rig::new();
    let mut members = rig.trio().await;
    sleep_s(200).await;
    assert_eq!(rig.view().await.status, HealthStatus::Healthy);
    members[0].processes.take().expect("processes").stop().await;
    sleep_s(150).await; // two refreshes of 72 s, and the rounding
    let view = rig.view().await;
    assert_eq!((view.status, view.leader.as_deref()), (HealthStatus::Unknown, Some("pod-a")), "{view:?}");
    assert_eq!(view.reasons[0].code, ReasonCode::StaleSnapshot);
}

struct Disk(Arc<AtomicU8>);

#[async_trait]
impl Probe for Disk {
    fn name(&self) -> &str {
        "disk"
    }

    fn is_critical(&self) -> bool {
        true
    }

    async fn check(&self) -> ProbeResult {
        match self.0.load(Ordering::SeqCst) {
            0 => ProbeResult::ok(),
            1 => ProbeResult::failed("full"),
            2 => std::future::pending().await,
            _ => panic!("on purpose"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_hangs_or_panics_is_told_and_costs_nothing_else() {
    let rig = Rig::new();
    let mode = Arc::new(AtomicU8::new(0));
    let probe = Disk(Arc::clone(&mode));
    let _a = rig.join_with("pod-a", |health| health.probe(probe)).await;
    let _b = rig.join("pod-b").await;
    sleep_s(120).await;
    assert_eq!(rig.view().await.status, HealthStatus::Healthy);
    for (how, says) in [(1, "full"), (2, "no answer in time"), (3, "the probe panicked")] {
        mode.store(how, Ordering::SeqCst);
        sleep_s(100).await;
        let view = rig.view().await;
        assert_eq!((view.status, codes(&view)), (HealthStatus::Critical, vec!["probe_failed"]), "{says}");
        assert_eq!(view.reasons[0].subject.as_deref(), Some("disk"));
        assert_eq!(view.probes[0].detail, says);
    }
    mode.store(0, Ordering::SeqCst);
    sleep_s(120).await;
    assert_eq!(rig.view().await.status, HealthStatus::Healthy);
}

#[tokio::test(start_paused = true)]
async fn a_broken_document_is_replaced_and_a_newer_one_left_alone() {
    let rig = Rig::new();
    rig.put("{\"v\":1,\"nodes\":7}").await;
    let _a = rig.join("pod-a").await;
    sleep_s(30).await;
    assert_eq!(rig.document().await["epoch"], 1);

    let rig = Rig::new();
    let newer = json!({"v": 2, "epoch": 0}).to_string();
    rig.put(&newer).await;
    let a = rig.join("pod-a").await;
    sleep_s(200).await;
    assert_eq!(rig.document().await.to_string(), newer);
    assert!(a.node.leadership().borrow().is_leader(), "which costs no leadership");
    let read = a.health.read().await;
    assert!(read.is_err_and(|error| error.to_string().contains("version 2")));
}

/// A document of another epoch is nobody's word, however young it is and whoever leads.
#[tokio::test(start_paused = true)]
async fn a_document_of_another_epoch_is_never_healthy() {
    let rig = Rig::new();
    let mut member = rig.join("pod-a").await;
    member.processes.take().expect("processes").stop().await;
    let epoch = member.node.lead().await.expect("a guard").epoch();
    for (of, status) in [
        (epoch, HealthStatus::Healthy),
        (epoch + 1, HealthStatus::Unknown),
        (epoch - 1, HealthStatus::Unknown),
    ] {
        let document = json!({"v": 1, "epoch": of, "sequence": 1, "refresh": 1000, "status": "healthy",
            "told": "healthy", "reasons": [], "nodes": []});
        rig.put(&document.to_string()).await;
        let view = rig.view().await;
        assert_eq!((view.status, view.leader.as_deref()), (status, Some("pod-a")), "epoch {of}");
    }
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_later_version_are_kept() {
    let rig = Rig::new();
    let document = json!({"v": 1, "epoch": 1, "sequence": 1, "refresh": 1000, "status": "healthy", "told": "healthy",
        "reasons": [], "nodes": [], "tomorrow": {"x": 1}});
    rig.put(&document.to_string()).await;
    let _a = rig.join("pod-a").await;
    sleep_s(30).await;
    assert_eq!(rig.document().await["tomorrow"], json!({"x": 1}));
}
