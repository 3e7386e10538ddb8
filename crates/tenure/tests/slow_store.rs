//! Slow stores: what the defaults carry, and what is told of what they do not.

use crate::common::{Member, Rig, sleep_ms};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::event::EventKind;
use tenure::store::{Condition, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write};
use tenure::{Event, Node, Settings};

/// A store that takes its time: writes land halfway through.
#[derive(Debug)]
struct Slow {
    store: Arc<MemoryStore>,
    /// How long a write takes, in milliseconds.
    write_ms: Arc<AtomicU64>,
    read: Duration,
}

impl Slow {
    fn write(&self) -> Duration {
        Duration::from_millis(self.write_ms.load(Ordering::Relaxed))
    }
}

#[async_trait::async_trait]
impl Store for Slow {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        tokio::time::sleep(self.read).await;
        self.store.get(key, unless).await
    }

    async fn put(&self, key: &str, body: bytes::Bytes, condition: Condition) -> Write {
        // What was sent lands, whether or not anybody still waits for the answer.
        let (store, key, half) = (Arc::clone(&self.store), key.to_owned(), self.write() / 2);
        let landed = tokio::spawn(async move {
            tokio::time::sleep(half).await;
            store.put(&key, body, condition).await
        });
        let answer = landed.await.expect("no panic");
        tokio::time::sleep(half).await;
        answer
    }

    async fn remove(&self, key: &str) -> Remove {
        tokio::time::sleep(self.write()).await;
        self.store.remove(key).await
    }

    async fn list(&self, prefix: &str, max: usize) -> List {
        tokio::time::sleep(self.read).await;
        self.store.list(prefix, max).await
    }

    fn describe(&self) -> String {
        "slow memory".to_owned()
    }
}

/// A node with default settings on a store whose writes take so long, and its events from the start.
async fn node(
    rig: &Rig,
    name: &str,
    write_ms: &Arc<AtomicU64>,
) -> (Node, tokio::sync::broadcast::Receiver<Event>) {
    let read = Duration::from_millis(40);
    let store: Arc<dyn Store> =
        Arc::new(Slow { store: rig.store.clone(), write_ms: Arc::clone(write_ms), read });
    let settings = Settings::builder().namespace("test").node(name).store("memory:").build().expect("valid");
    let builder = Node::builder(settings).lanes(Lanes::same(store)).clock(rig.clock.clone()).jitter_random(0);
    let events = builder.events();
    (builder.start().await.expect("a node"), events)
}

fn told(events: &mut tokio::sync::broadcast::Receiver<Event>) -> Vec<String> {
    std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.name()).collect()
}

#[tokio::test(start_paused = true)]
async fn sl1_slow_writes_cost_no_leadership_and_nobody_is_kept_from_joining() {
    // A request is given up after 1500 ms. Later the store gets slower still: no write is answered in time, and all are found
    // by looking.
    for (write_ms, later_ms) in
        [(0, 0), (300, 300), (600, 600), (900, 900), (1200, 1200), (1400, 1400), (1400, 2000), (1400, 3000)]
    {
        let rig = Rig::new();
        let takes = Arc::new(AtomicU64::new(write_ms));
        let (a, mut from_a) = node(&rig, "pod-a", &takes).await;
        let guard = tokio::time::timeout(Duration::from_secs(30), a.lead()).await;
        let guard = guard.expect("it joins and leads").expect("leadership");
        let (b, mut from_b) = node(&rig, "pod-b", &takes).await;
        sleep_ms(30_000).await;
        takes.store(later_ms, Ordering::Relaxed);
        sleep_ms(60_000).await;
        let said = told(&mut from_a);
        assert!(guard.is_valid() && guard.epoch() == 1, "{later_ms} ms: {said:?}");
        assert!(!said.iter().any(|name| name.ends_with("lease_at_risk")), "{later_ms} ms: {said:?}");
        let said = told(&mut from_b);
        assert!(said.iter().any(|name| name.ends_with("joined")), "{later_ms} ms: {said:?}");
        drop(guard);
        tokio::join!(a.shutdown(), b.shutdown());
    }
}

/// Contention comes before the loss: first the store slows down, then leadership ends.
#[tokio::test(start_paused = true)]
async fn sl5_contention_is_told_before_leadership_is_lost() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    sleep_ms(10_000).await;
    a.link.cut(true);
    let order = until_lost(&mut a).await;
    let place = |name: &str| order.iter().position(|said| said.ends_with(name));
    let (contended, lost) = (place("contention:detected"), place("lost_leadership"));
    assert!(contended.is_some() && contended < lost, "{order:?}");
    assert_eq!(order.iter().filter(|said| said.ends_with("store_unavailable")).count(), 1, "{order:?}");
}

async fn until_lost(member: &mut Member) -> Vec<String> {
    let mut order = Vec::new();
    loop {
        let event = member.event(|_| true).await;
        order.push(event.name());
        if matches!(event.kind, EventKind::LostLeadership { .. }) {
            return order;
        }
    }
}
