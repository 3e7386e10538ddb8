//! The candidate is supervised: whatever ends it, it is started again.

use crate::common::{Rig, sleep_ms};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure::clock::{Clock, TokioClock};
use tenure::event::EventKind;
use tenure::store::{Condition, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write};
use tenure::worker::WorkerSpec;
use tenure::{Node, Settings};

/// A clock that breaks once when told to, and with it whoever reads it.
#[derive(Debug)]
struct Fragile {
    clock: Arc<TokioClock>,
    broken: AtomicBool,
}

impl Clock for Fragile {
    fn now_ms(&self) -> u64 {
        assert!(!self.broken.swap(false, Ordering::SeqCst), "the clock broke (on purpose)");
        self.clock.now_ms()
    }

    fn outruns_timers(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn ap1_a_candidate_that_dies_is_started_again() {
    let rig = Rig::new();
    let clock = Arc::new(Fragile { clock: rig.clock.clone(), broken: AtomicBool::new(false) });
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let node = Node::builder(settings.build().expect("valid"))
        .lanes(Lanes::same(Arc::clone(&rig.store) as Arc<dyn Store>))
        .clock(clock.clone())
        .start()
        .await
        .expect("a node");
    let mut events = node.events();
    let guard = node.lead().await.expect("leadership");
    clock.broken.store(true, Ordering::SeqCst);
    sleep_ms(2000).await;
    assert!(!guard.is_valid(), "the lease went with the candidate");
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let lost =
        said.iter().find(|event| matches!(event.kind, EventKind::LostLeadership { .. })).expect("the loss");
    assert_eq!(lost.to_json()["reason"], "panic");
    let restarted = said.iter().find(|event| matches!(event.kind, EventKind::CandidateRestarted { .. }));
    assert_eq!(restarted.expect("the restart").to_json()["attempt"], 1);
    drop(guard);
    let again = node.lead().await.expect("leadership in a new life");
    assert_eq!(again.epoch(), 2, "a new incarnation claims like anybody else");
    drop(again);
    node.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_dropped_leaves_in_order() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    drop(a);
    sleep_ms(1000).await;
    assert_eq!(rig.seat().await["state"], "vacant");
}

/// A store that breaks once when the workers are listed, and with it whoever asked.
#[derive(Debug)]
struct Brittle {
    store: Arc<MemoryStore>,
    broken: AtomicBool,
}

#[async_trait]
impl Store for Brittle {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.store.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        self.store.put(key, body, condition).await
    }

    async fn remove(&self, key: &str) -> Remove {
        self.store.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let workers = prefix.ends_with("workers/");
        assert!(!(workers && self.broken.swap(false, Ordering::SeqCst)), "the store broke (on purpose)");
        self.store.list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_registry_that_dies_is_started_again_and_costs_no_leadership() {
    let rig = Rig::new();
    let store = Arc::new(Brittle { store: Arc::clone(&rig.store), broken: AtomicBool::new(false) });
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let node = Node::builder(settings.build().expect("valid"))
        .lanes(Lanes::same(Arc::clone(&store) as Arc<dyn Store>))
        .clock(rig.clock.clone())
        .start()
        .await
        .expect("a node");
    let guard = node.lead().await.expect("leadership");
    let worker = node.register_worker(WorkerSpec::new("w", "queue")).expect("valid");
    sleep_ms(30_000).await;
    let mut events = node.events();
    store.broken.store(true, Ordering::SeqCst);
    let other = node.register_worker(WorkerSpec::new("v", "queue")).expect("valid");
    sleep_ms(30_000).await;
    assert!(!store.broken.load(Ordering::SeqCst), "it broke");
    assert!(guard.is_valid() && guard.epoch() == 1, "leadership is unaffected");
    assert_eq!(
        node.workers().borrow().active,
        2,
        "the next life knows what the last one knew, and what is new"
    );
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.name()).collect();
    assert_eq!(said.iter().filter(|name| *name == "worker:registered").count(), 1, "{said:?}");
    drop((guard, worker, other));
    node.shutdown().await;
}
