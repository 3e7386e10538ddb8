//! Pods with plugins in one process: each has its own table of services and its own way to the store, which can be refused.
#![allow(dead_code, unreachable_pub, missing_docs)]

use super::common::sleep_ms;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::plugin::{LeaderChange, Plugin, PluginHandle, Services};
use tenure::settings::CoordinationMode;
use tenure::settings::SettingsBuilder;
use tenure::store::{
    Condition, Lanes, List, MemoryStore, Meter, Metered, Read, Remove, Store, Trouble, TroubleKind, Version,
    Write,
};
use tenure::{Event, LeaderGuard, Leadership, Settings, async_trait};

pub const GLOBAL: &str = "plg_coordinator_global/";
pub const OWN: &str = "plg_coordinator/";

/// Refuses what a policy could refuse: writes below the global prefix, or everything there. Can also leave requests without
/// an answer.
#[derive(Clone, Debug)]
pub struct Policy {
    inner: Arc<MemoryStore>,
    pub deny_writes: Arc<AtomicBool>,
    pub deny_reads: Arc<AtomicBool>,
    /// Reads below the global prefix get no answer.
    pub silent_reads: Arc<AtomicBool>,
    /// The credentials are over: everything below the global prefix is refused, for another reason than a policy.
    pub expired: Arc<AtomicBool>,
    /// What is below the per-plugin prefix may not be read.
    pub deny_own_reads: Arc<AtomicBool>,
    /// Writes below the per-plugin prefix do not get through.
    pub own_writes_cut: Arc<AtomicBool>,
    /// Reads below the per-plugin prefix.
    pub own_reads: Meter,
}

impl Policy {
    fn refuses(&self, key: &str, switch: &AtomicBool) -> Option<Trouble> {
        if key.starts_with(GLOBAL) && self.expired.load(Ordering::SeqCst) {
            return Some(Trouble::new(TroubleKind::Credentials, "400 ExpiredToken"));
        }
        let refused = key.starts_with(GLOBAL) && switch.load(Ordering::SeqCst);
        refused.then(|| Trouble::new(TroubleKind::Permission, "not allowed by the policy"))
    }

    fn is_silent(&self, key: &str, prefix: &str, switch: &AtomicBool) -> Option<Trouble> {
        let silent = key.starts_with(prefix) && switch.load(Ordering::SeqCst);
        silent.then(|| Trouble::new(TroubleKind::Timeout, "no answer"))
    }
}

#[async_trait]
impl Store for Policy {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        if let Some(trouble) = self.refuses(key, &self.deny_reads) {
            return Read::Denied(trouble);
        }
        if let Some(trouble) = self.is_silent(key, GLOBAL, &self.silent_reads) {
            return Read::Unavailable(trouble);
        }
        if key.starts_with(OWN) && self.deny_own_reads.load(Ordering::SeqCst) {
            return Read::Denied(Trouble::new(TroubleKind::Permission, "not allowed by the policy"));
        }
        if key.starts_with(OWN) {
            let counted = Metered::new(Arc::clone(&self.inner), self.own_reads.clone());
            return counted.get(key, unless).await;
        }
        self.inner.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        if let Some(trouble) = self.is_silent(key, OWN, &self.own_writes_cut) {
            return Write::Unavailable(trouble);
        }
        match self.refuses(key, &self.deny_writes) {
            Some(trouble) => Write::Denied(trouble),
            None => self.inner.put(key, body, condition).await,
        }
    }

    async fn remove(&self, key: &str) -> Remove {
        match self.refuses(key, &self.deny_writes) {
            Some(trouble) => Remove::Denied(trouble),
            None => self.inner.remove(key).await,
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        match self.refuses(prefix, &self.deny_reads) {
            Some(trouble) => List::Denied(trouble),
            None => self.inner.list(prefix, limit).await,
        }
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

pub struct Cluster {
    pub store: Arc<MemoryStore>,
    pub clock: Arc<TokioClock>,
    /// Every plugin's diary, by pod and plugin.
    pub acting: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

pub struct Pod {
    pub name: String,
    pub services: Services,
    pub policy: Policy,
    pub meter: Meter,
    acting: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster { store: Arc::new(MemoryStore::new()), clock: TokioClock::new(), acting: Arc::default() }
    }

    pub fn pod(&self, name: &str) -> Pod {
        let policy = Policy {
            inner: Arc::clone(&self.store),
            deny_writes: Arc::default(),
            deny_reads: Arc::default(),
            silent_reads: Arc::default(),
            expired: Arc::default(),
            deny_own_reads: Arc::default(),
            own_writes_cut: Arc::default(),
            own_reads: Meter::default(),
        };
        let meter = Meter::default();
        let store: Arc<dyn Store> = Arc::new(Metered::new(Arc::new(policy.clone()), meter.clone()));
        let services = Services::new().lanes(Lanes::same(store)).clock(self.clock.clone()).jitter_random(0);
        Pod { name: name.to_owned(), services, policy, meter, acting: Arc::clone(&self.acting) }
    }

    /// Pods on which this plugin acts now.
    pub fn acting(&self, plugin: &str) -> Vec<String> {
        self.acting.lock().expect("unpoisoned").get(plugin).cloned().unwrap_or_default()
    }

    pub async fn exists(&self, key: &str) -> bool {
        matches!(self.store.get(key, None).await, Read::Found(_))
    }

    pub async fn seat(&self, key: &str) -> serde_json::Value {
        let read = self.store.get(key, None).await;
        let Read::Found(object) = read else { panic!("no seat {key}: {read:?}") };
        serde_json::from_slice(&object.body).expect("JSON")
    }
}

impl Pod {
    pub fn deny(&self, denied: bool) {
        self.policy.deny_writes.store(denied, Ordering::SeqCst);
    }

    pub fn settings(&self) -> SettingsBuilder {
        let settings = Settings::builder().namespace("test").node(&self.name).store("memory:");
        settings.startup_jitter_max(Duration::ZERO).coordination_mode(CoordinationMode::Global)
    }

    pub async fn attach(&self, plugin: &str) -> (PluginHandle, Arc<Diary>) {
        self.attach_with(plugin, |settings| settings).await
    }

    pub async fn attach_with(
        &self,
        plugin: &str,
        change: impl Fn(SettingsBuilder) -> SettingsBuilder,
    ) -> (PluginHandle, Arc<Diary>) {
        let diary = Arc::new(Diary::new(plugin, &self.name, Manner::Good, &self.acting));
        let settings = change(self.settings()).build().expect("valid settings");
        let handle = self.services.attach(Arc::clone(&diary), settings).await.expect("attached");
        (handle, diary)
    }

    pub async fn attach_bad(&self, plugin: &str, manner: Manner) -> (PluginHandle, Arc<Diary>) {
        let diary = Arc::new(Diary::new(plugin, &self.name, manner, &self.acting));
        let settings = self.settings().build().expect("valid settings");
        (self.services.attach(Arc::clone(&diary), settings).await.expect("attached"), diary)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Good,
    Panics,
    Hangs,
    /// Blocks its thread while [`Diary::blocked`] is locked.
    Blocks,
}

/// A plugin that writes down what it is told, and where it acts.
pub struct Diary {
    name: String,
    pod: String,
    manner: Manner,
    acting: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    pub lines: Mutex<Vec<String>>,
    pub events: Mutex<Vec<String>>,
    pub blocked: Mutex<()>,
}

impl Diary {
    fn new(
        name: &str,
        pod: &str,
        manner: Manner,
        acting: &Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    ) -> Diary {
        Diary {
            name: name.to_owned(),
            pod: pod.to_owned(),
            manner,
            acting: Arc::clone(acting),
            lines: Mutex::default(),
            events: Mutex::default(),
            blocked: Mutex::default(),
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("unpoisoned").clone()
    }

    fn note(&self, line: String) {
        self.lines.lock().expect("unpoisoned").push(line);
    }

    async fn misbehave(&self) {
        match self.manner {
            Manner::Good | Manner::Blocks => {}
            Manner::Panics => panic!("this plugin always panics"),
            Manner::Hangs => std::future::pending().await,
        }
    }
}

/// Counts as acting until it is dropped, however that happens.
struct Acting<'a>(&'a Diary);

impl<'a> Acting<'a> {
    fn new(diary: &'a Diary) -> Acting<'a> {
        let mut acting = diary.acting.lock().expect("unpoisoned");
        let pods = acting.entry(diary.name.clone()).or_default();
        pods.push(diary.pod.clone());
        let two = pods.len() > 1 && diary.manner == Manner::Good;
        assert!(!two, "{} is led twice: {pods:?}", diary.name);
        Acting(diary)
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        // A test that failed already must not die twice.
        if let Ok(mut acting) = self.0.acting.lock()
            && let Some(pods) = acting.get_mut(&self.0.name)
        {
            pods.retain(|pod| *pod != self.0.pod);
        }
    }
}

#[async_trait]
impl Plugin for Diary {
    fn name(&self) -> &str {
        &self.name
    }

    async fn promoted(&self, guard: LeaderGuard) {
        let _acting = Acting::new(self);
        self.note(format!("promoted {}", guard.epoch()));
        if self.manner == Manner::Blocks {
            drop(self.blocked.lock());
        }
        self.misbehave().await;
        guard.ended().await;
    }

    async fn demoted(&self, epoch: u64) {
        self.note(format!("demoted {epoch}"));
        self.misbehave().await;
    }

    async fn leader_changed(&self, change: &LeaderChange) {
        let previous = change.previous.as_ref().map_or("nobody", |node| node.as_str());
        self.note(format!("{}: {previous} -> {} {}", change.namespace, change.new, change.epoch));
        self.misbehave().await;
    }

    async fn event(&self, event: &Event) {
        self.events.lock().expect("unpoisoned").push(event.name());
        self.misbehave().await;
    }

    async fn missed(&self, missed: u64, _: &Leadership) {
        self.note(format!("missed {}", missed > 0));
    }
}

/// Waits until a handle leads; time runs on.
pub async fn leads(handle: &PluginHandle) -> u64 {
    let mut leadership = handle.leadership();
    let led = tokio::time::timeout(Duration::from_secs(120), leadership.wait_for(Leadership::is_leader));
    let guard = led.await.expect("within two simulated minutes").expect("attached").guard();
    guard.expect("it leads").epoch()
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        sleep_ms(100).await;
    }
    panic!("not within two simulated minutes: {what}");
}
