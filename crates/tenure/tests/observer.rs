//! Workers of a process that has no node: an observer looks at the seat and takes no part.

use crate::common::{Member, Rig, sleep_ms};
use std::sync::Arc;
use std::time::Duration;
use tenure::event::EventKind;
use tenure::store::{Condition, Faulty, Lanes, Meter, Metered, Store};
use tenure::worker::{Observer, WorkerSpec};
use tenure::{Settings, Verdict};
use tokio::sync::broadcast::Receiver;

struct Process {
    observer: Observer,
    link: Faulty,
    meter: Meter,
    events: Receiver<tenure::Event>,
}

fn observe(rig: &Rig, pod: &str) -> Process {
    let link = Faulty::new(Arc::clone(&rig.store) as Arc<dyn Store>, 7);
    let meter = Meter::default();
    let store: Arc<dyn Store> = Arc::new(Metered::new(Arc::new(link.clone()), meter.clone()));
    let settings = Settings::builder().namespace("test").node(pod).store("memory:").build().expect("valid");
    let observer = Observer::start(settings, Lanes::same(store), rig.clock.clone()).expect("an observer");
    let events = observer.events();
    Process { observer, link, meter, events }
}

fn names(events: &mut Receiver<tenure::Event>) -> Vec<String> {
    std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.name()).collect()
}

async fn led_by_a(rig: &Rig) -> Vec<Member> {
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    sleep_ms(2000).await;
    members
}

#[tokio::test(start_paused = true)]
async fn gd3_workers_without_a_node_follow_their_pod() {
    let rig = Rig::new();
    let members = led_by_a(&rig).await;
    let (a, b) = (observe(&rig, "pod-a"), observe(&rig, "pod-b"));
    let on_a = a.observer.register_worker(WorkerSpec::new("wa", "queue")).expect("valid");
    let on_b = b.observer.register_worker(WorkerSpec::new("wb", "queue")).expect("valid");
    on_a.registered().await.expect("registered");
    on_b.registered().await.expect("registered");
    assert!(!on_a.enabled(), "one look cannot tell a live leader from a dead one");
    sleep_ms(3000).await;
    assert!(on_a.enabled() && !on_b.enabled());
    assert_eq!(on_a.guard().map(|guard| guard.epoch()), Some(1));
    members[0].node.step_down().await.expect("it leads");
    sleep_ms(3500).await;
    assert!(!on_a.enabled() && on_b.enabled(), "pod-b leads now");
    assert_eq!(a.observer.fence().check(1), Verdict::RejectStale, "the fence heard of it too");
    assert_eq!(a.observer.leadership().borrow().leader.as_ref().map(|id| id.as_str()), Some("pod-b"));
}

#[tokio::test(start_paused = true)]
async fn what_an_observer_believes_ends_with_the_hold() {
    let rig = Rig::new();
    let mut members = led_by_a(&rig).await;
    let a = observe(&rig, "pod-a");
    let worker = a.observer.register_worker(WorkerSpec::new("wa", "queue")).expect("valid");
    sleep_ms(3000).await;
    assert!(worker.enabled());
    // Cut off: no look is answered any more.
    a.link.cut(true);
    let cut = tokio::time::Instant::now();
    while worker.enabled() {
        sleep_ms(10).await;
    }
    assert!(cut.elapsed() <= Duration::from_millis(5000), "{:?}", cut.elapsed());
    a.link.cut(false);
    sleep_ms(3000).await;
    assert!(worker.enabled());
    // The leader itself dies: its pod is not believed in for longer than a hold after the last sign of life.
    members[0].link.cut(true);
    sleep_ms(6100).await;
    assert!(!worker.enabled(), "long before pod-b may lead");
    members[1].became_leader().await;
    // Paused: nothing of it runs, and the guard ends by the clock.
    let b = observe(&rig, "pod-b");
    let other = b.observer.register_worker(WorkerSpec::new("wb", "queue")).expect("valid");
    sleep_ms(3000).await;
    assert!(other.enabled());
    tokio::time::advance(Duration::from_millis(5001)).await;
    assert!(!other.enabled());
    drop(b.observer);
    sleep_ms(5000).await;
    assert!(!other.enabled(), "nobody looks any more");
}

#[tokio::test(start_paused = true)]
async fn an_observer_writes_nothing_lists_nothing_and_is_told_of_workers() {
    let rig = Rig::new();
    let members = led_by_a(&rig).await;
    let mut x = observe(&rig, "pod-x");
    sleep_ms(2000).await;
    let objects = rig.store.len();
    let worker = members[1].node.register_worker(WorkerSpec::new("w", "queue")).expect("valid");
    worker.registered().await.expect("registered");
    sleep_ms(40_000).await;
    let before = x.meter.snapshot();
    sleep_ms(60_000).await;
    let spent = x.meter.snapshot() - before;
    assert_eq!((spent.requests(), spent.get + spent.get_unchanged), (60, 60), "one look a second: {spent:?}");
    members[1].link.cut(true);
    sleep_ms(40_000).await;
    assert_eq!(rig.store.len(), objects + 2, "the worker and the snapshot, and nothing of the observer's");
    let said = names(&mut x.events);
    let of_workers: Vec<_> = said.iter().filter(|name| name.starts_with("worker:")).collect();
    assert_eq!(of_workers, ["worker:registered", "worker:timeout"], "{said:?}");
    assert_eq!(said.iter().filter(|name| *name == "leader:changed").count(), 1);
    assert_eq!(x.observer.workers().borrow().inactive, 1);
    assert_eq!(x.observer.metrics().worker_timeouts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_cannot_be_read_or_goes_back_enables_nobody() {
    let rig = Rig::new();
    let members = led_by_a(&rig).await;
    let a = observe(&rig, "pod-a");
    let worker = a.observer.register_worker(WorkerSpec::new("wa", "queue")).expect("valid");
    sleep_ms(3000).await;
    let old = rig.seat().await;
    members[0].node.step_down().await.expect("it leads");
    sleep_ms(4000).await;
    assert!(!worker.enabled());
    for member in &members {
        member.link.cut(true);
    }
    let seat = "plg_coordinator_global/test/seat.json";
    for n in 0..5 {
        // Somebody restores an old record, over and over: it changes, but its epoch is one of the past.
        let mut record = old.clone();
        record["nonce"] = format!("00000000000000ab-{n}").into();
        rig.store.put(seat, record.to_string().into_bytes().into(), Condition::Any).await;
        sleep_ms(1000).await;
        assert!(!worker.enabled());
    }
    rig.store.put(seat, "junk".into(), Condition::Any).await;
    sleep_ms(3000).await;
    assert!(!worker.enabled());
    let said = std::iter::from_fn(|| members[0].node.events().try_recv().ok())
        .filter(|event| matches!(event.kind, EventKind::WorkerEnabled(_)))
        .count();
    assert_eq!(said, 0);
}
