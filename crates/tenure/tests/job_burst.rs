//! Taking over a ledger is many requests; a store that has no use for all of them at once gets them one after the other.

use crate::common::{Rig, sleep_ms};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenure::job::{Dispatcher, JobSpec, Submitted};
use tenure::store::{Condition, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write};
use tenure::{Node, Settings};

/// Has use for three requests at once, each of which takes a while.
#[derive(Debug)]
struct Narrow {
    inner: Arc<MemoryStore>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Narrow {
    async fn pass<T>(&self, request: impl Future<Output = T>) -> T {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        sleep_ms(20).await;
        let answer = request.await;
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        answer
    }
}

#[async_trait]
impl Store for Narrow {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.pass(self.inner.get(key, unless)).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        self.pass(self.inner.put(key, body, condition)).await
    }

    async fn remove(&self, key: &str) -> Remove {
        self.pass(self.inner.remove(key)).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.pass(self.inner.list(prefix, limit)).await
    }

    fn at_once(&self) -> usize {
        3
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_is_taken_over_in_as_many_requests_at_once_as_the_store_has_use_for() {
    let rig = Rig::new();
    let (under_way, most) = Default::default();
    let narrow = Arc::new(Narrow { inner: rig.store.clone(), under_way, most });
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let lanes = Lanes { lease: rig.store.clone(), bulk: narrow.clone() };
    let node = Node::builder(settings.build().expect("valid settings"))
        .lanes(lanes)
        .clock(rig.clock.clone())
        .start()
        .await
        .expect("a node");
    let guard = node.lead().await.expect("it leads");
    sleep_ms(1000).await;
    narrow.most.store(0, Ordering::Relaxed);
    let dispatcher = Dispatcher::start(&node.jobs(), guard);
    assert_eq!(dispatcher.submit(JobSpec::new("a", "echo")).await, Ok(Submitted::Created));
    sleep_ms(5000).await;
    // A presence or a sweep may come in between.
    let most = narrow.most.load(Ordering::Relaxed);
    assert!((3..=5).contains(&most), "{most} at once");
}
