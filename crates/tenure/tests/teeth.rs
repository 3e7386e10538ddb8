//! Every deliberately broken variant of the driver that no schedule can show is caught here. Each story is told twice: to a
//! sound node, which must pass, and to the broken one, which must not. The others are caught by `crates/sim/tests/teeth.rs`.

use crate::common::{Rig, sleep_ms};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::clock::{Clock, TokioClock};
use tenure::event::EventKind;
use tenure::store::{Condition, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write};
use tenure::{DriverMutant, Fence, Node, NodeBuilder, Settings};
use tracing_subscriber::fmt::MakeWriter;

fn builder(clock: Arc<dyn Clock>, store: Arc<dyn Store>) -> NodeBuilder {
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    Node::builder(settings.build().expect("valid")).lanes(Lanes::same(store)).clock(clock).jitter_random(0)
}

fn told(story: &str, sound: Result<(), String>, broken: Result<(), String>) {
    assert_eq!(sound, Ok(()), "a sound node passes");
    println!("{story}: {}", broken.expect_err("the broken node is caught"));
}

/// A store that breaks once when the seat is written, and with it whoever asked.
#[derive(Debug)]
struct Brittle {
    store: Arc<MemoryStore>,
    breaks: AtomicBool,
}

#[async_trait]
impl Store for Brittle {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.store.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let seat = key.ends_with("seat.json");
        assert!(!(seat && self.breaks.swap(false, Ordering::SeqCst)), "the store broke (on purpose)");
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
}

/// A request whose code panics has not answered; the node asks again and keeps its office.
async fn a_request_dies(broken: Option<DriverMutant>) -> Result<(), String> {
    let _until_the_end = DriverMutant::scoped(broken);
    let rig = Rig::new();
    let store = Arc::new(Brittle { store: Arc::clone(&rig.store), breaks: AtomicBool::new(false) });
    let node = builder(rig.clock.clone(), store.clone()).start().await.expect("a node");
    let guard = node.lead().await.expect("leadership");
    store.breaks.store(true, Ordering::SeqCst);
    sleep_ms(10_000).await;
    assert!(!store.breaks.load(Ordering::SeqCst), "it broke");
    if guard.is_valid() { Ok(()) } else { Err("leadership was lost with one request".to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn a_dead_request_that_is_never_answered_is_noticed() {
    let broken = a_request_dies(Some(DriverMutant::DeadRequestForgotten)).await;
    told("DeadRequestForgotten", a_request_dies(None).await, broken);
}

/// A clock that breaks once when told to, and with it whoever reads it.
#[derive(Debug)]
struct Fragile {
    clock: Arc<TokioClock>,
    breaks: AtomicBool,
}

impl Clock for Fragile {
    fn now_ms(&self) -> u64 {
        assert!(!self.breaks.swap(false, Ordering::SeqCst), "the clock broke (on purpose)");
        self.clock.now_ms()
    }

    fn outruns_timers(&self) -> bool {
        false
    }
}

/// Whoever works for a candidate that died learns of it before anybody else is told.
async fn a_candidate_dies(broken: Option<DriverMutant>) -> Result<(), String> {
    let _until_the_end = DriverMutant::scoped(broken);
    let rig = Rig::new();
    let clock = Arc::new(Fragile { clock: rig.clock.clone(), breaks: AtomicBool::new(false) });
    let node = builder(clock.clone(), rig.store.clone()).start().await.expect("a node");
    let mut events = node.events();
    let guard = node.lead().await.expect("leadership");
    clock.breaks.store(true, Ordering::SeqCst);
    loop {
        let event = events.recv().await.expect("an event");
        if matches!(event.kind, EventKind::CandidateRestarted { .. }) {
            break;
        }
    }
    if guard.is_valid() { Err("the guard outlived its candidate".to_owned()) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_outlives_its_candidate_is_noticed() {
    let broken = a_candidate_dies(Some(DriverMutant::PanicKeepsGuard)).await;
    told("PanicKeepsGuard", a_candidate_dies(None).await, broken);
}

/// Looks at the fence at the very moment a line is logged: inside the driver, between two statements.
#[derive(Clone)]
struct Peek {
    fence: Fence,
    seen: Arc<Mutex<Vec<(String, u64)>>>,
}

impl std::io::Write for Peek {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let line = String::from_utf8_lossy(bytes).into_owned();
        self.seen.lock().expect("no panic").push((line, self.fence.epoch()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Peek {
    type Writer = Peek;

    fn make_writer(&self) -> Peek {
        self.clone()
    }
}

/// Whoever acts on a change of leaders finds the fence up to date.
async fn a_leader_is_told(broken: Option<DriverMutant>) -> Result<(), String> {
    let _until_the_end = DriverMutant::scoped(broken);
    let rig = Rig::new();
    let node = builder(rig.clock.clone(), rig.store.clone()).start().await.expect("a node");
    let peek = Peek { fence: node.fence(), seen: Arc::default() };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(peek.clone())
        .finish();
    let listening = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    node.lead().await.expect("leadership");
    drop(listening);
    let seen = peek.seen.lock().expect("no panic");
    let told = seen.iter().find(|(line, _)| line.contains("leader:changed"));
    match told.ok_or_else(|| format!("no change of leaders in the log: {seen:?}"))? {
        (_, 0) => Err("the event went out before the fence knew the epoch".to_owned()),
        _ => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_is_fed_late_is_noticed() {
    let broken = a_leader_is_told(Some(DriverMutant::FenceFedLate)).await;
    told("FenceFedLate", a_leader_is_told(None).await, broken);
}

/// Whoever works for a leader that hands over learns of it at once, not at the deadline.
async fn a_leader_steps_down(broken: Option<DriverMutant>) -> Result<(), String> {
    let _until_the_end = DriverMutant::scoped(broken);
    let rig = Rig::new();
    let node = builder(rig.clock.clone(), rig.store.clone()).start().await.expect("a node");
    let guard = node.lead().await.expect("leadership");
    tokio::spawn(async move { node.step_down().await });
    sleep_ms(100).await;
    if guard.is_valid() { Err("the guard outlived the hand-over".to_owned()) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_not_withdrawn_is_noticed() {
    let broken = a_leader_steps_down(Some(DriverMutant::GuardNotWithdrawn)).await;
    told("GuardNotWithdrawn", a_leader_steps_down(None).await, broken);
}

#[test]
fn every_variant_has_its_place() {
    let here = [
        DriverMutant::DeadRequestForgotten,
        DriverMutant::PanicKeepsGuard,
        DriverMutant::FenceFedLate,
        DriverMutant::GuardNotWithdrawn,
    ];
    assert_eq!(DriverMutant::FOR_THE_CRATE, here);
    assert!(DriverMutant::ALL.len() >= 11);
}
