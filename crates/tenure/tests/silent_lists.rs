//! A list that a store never answers is given up by the leader itself, and made again.

mod common;

use async_trait::async_trait;
use bytes::Bytes;
use common::{Rig, sleep_ms};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use tenure::store::{
    Condition, LIST_TIMEOUTS_MAX, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write,
};
use tenure::tasks::Dispatcher;
use tenure::{Node, Settings};
use tokio::time::Instant;

/// Never answers the first list of a folder.
#[derive(Debug)]
struct Mute {
    inner: Arc<MemoryStore>,
    listed: Mutex<BTreeMap<String, Vec<Instant>>>,
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
        if times == 1 {
            pending::<()>().await;
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
    let mute = Arc::new(Mute { inner: rig.store.clone(), listed: Mutex::default() });
    let settings = Settings::builder().namespace("test").node("pod-a").store("memory:").startup_jitter_max(0);
    let settings = settings.worker_sweep_interval(1000).build().expect("valid settings");
    let limit_ms = settings.request_timeout_ms * u64::from(LIST_TIMEOUTS_MAX);
    let lanes = Lanes { lease: rig.store.clone(), bulk: mute.clone() };
    let node = Node::builder(settings).lanes(lanes).clock(rig.clock.clone()).start().await.expect("a node");
    let guard = node.lead().await.expect("it leads");
    let _dispatcher = Dispatcher::start(&node.tasks(), guard);
    sleep_ms(limit_ms * 5).await;
    let listed = mute.listed.lock().expect("no panic");
    for folder in ["workers", "tasks/inbox"] {
        let times = &listed[&format!("plg_coordinator_global/test/{folder}/")];
        let waited_ms = u64::try_from((times[1] - times[0]).as_millis()).expect("short");
        assert!((limit_ms..limit_ms * 2).contains(&waited_ms), "{folder}: {waited_ms} of {limit_ms} ms");
    }
}
