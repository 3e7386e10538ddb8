//! A store that refuses the global seat: the plugin goes on by a seat of its own, and finds its way back.

mod common;
#[path = "common/log.rs"]
mod log;
#[path = "common/pods.rs"]
mod pods;

use common::sleep_ms;
use pods::{Cluster, Diary, leads, until};
use std::sync::atomic::Ordering;
use tenure::{EventKind, Leadership, Mode, PluginHandle};

const GLOBAL_SEAT: &str = "plg_coordinator_global/test/seat.json";
const OWN_SEAT: &str = "plg_coordinator/test/queue/seat.json";
const WARNING: &str = "[coordinator] Failed to acquire global lock. Switching to per-plugin mode";

async fn mode(handle: &PluginHandle, wanted: Mode) {
    let mut mode = handle.watch_mode();
    let found = tokio::time::timeout(std::time::Duration::from_secs(120), mode.wait_for(|m| *m == wanted));
    found.await.unwrap_or_else(|_| panic!("not {wanted} within two simulated minutes")).expect("attached");
}

/// The epochs a plugin was promoted in.
fn epochs(diary: &Diary) -> Vec<u64> {
    diary.lines().iter().filter_map(|line| line.strip_prefix("promoted ")?.parse().ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn gc2_refused_from_the_start_the_plugin_goes_on_by_itself_and_returns() {
    log::keep();
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    a.deny(true);
    let (queue, diary) = a.attach("queue").await;
    let mut events = queue.events();
    mode(&queue, Mode::Fallback).await;
    assert!(queue.mode().is_degraded());
    assert_eq!(leads(&queue).await, 1);
    sleep_ms(5000).await;
    let warned = log::lines(WARNING);
    assert_eq!(warned.len(), 1, "exactly once, in exactly these words: {warned:?}");
    assert!(warned[0].contains(" WARN ") && warned[0].contains("plugin=\"queue\""), "{warned:?}");
    let service = queue.service().expect("it asked for the shared one");
    assert_eq!((service.metrics().fallbacks, service.metrics().plugins_in_fallback), (1, 1));
    assert_eq!(cluster.seat(OWN_SEAT).await["holder"]["node"], "pod-a");
    assert_eq!(queue.metrics().role.as_deref(), Some("leader"), "the figures are of the node in force");
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let started = said.iter().find(|event| matches!(event.kind, EventKind::FallbackStarted { .. }));
    let started = started.expect("the event").to_json();
    assert_eq!(started["event"], "serviceradar.coordinator.fallback_started");
    assert_eq!((&started["plugin"], &started["namespace"]), (&"queue".into(), &"test".into()));
    assert!(started["detail"].as_str().is_some_and(|detail| detail.contains("permission denied")));
    assert_eq!(cluster.acting("queue"), ["pod-a"]);

    // The policy is mended: drained, vacated, and only then led by the global seat, in a higher epoch.
    a.deny(false);
    mode(&queue, Mode::Global).await;
    assert_eq!(cluster.seat(OWN_SEAT).await["state"], "vacant");
    until("the global seat leads it", || epochs(&diary).len() == 2).await;
    assert_eq!(epochs(&diary), [1, 2], "{:?}", diary.lines());
    assert_eq!(cluster.seat(GLOBAL_SEAT).await["epoch"], 2);
    assert!(diary.lines().contains(&"demoted 1".to_owned()));
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert!(said.iter().any(|event| matches!(event.kind, EventKind::FallbackEnded { .. })));
    assert_eq!((service.metrics().fallbacks, service.metrics().plugins_in_fallback), (1, 0));
    assert_eq!(queue.fence().epoch(), 2);
}

#[tokio::test(start_paused = true)]
async fn gc2_refused_while_leading_the_lease_ends_before_the_plugin_goes_on_by_itself() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, diary) = a.attach("queue").await;
    let (scheduler, _) = a.attach("scheduler").await;
    assert_eq!(leads(&queue).await, 1);
    sleep_ms(3000).await;
    let began = tokio::time::Instant::now();
    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    mode(&scheduler, Mode::Fallback).await;
    assert!(began.elapsed().as_millis() >= 1400, "not while the lease still ran");
    until("both lead by themselves", || {
        [&queue, &scheduler].iter().all(|handle| handle.leadership().borrow().is_leader())
    })
    .await;
    // Its own dead record on the global seat, which it may not clear, is not waited for.
    assert!(began.elapsed().as_millis() < 6000, "{:?}", began.elapsed());
    assert_eq!(epochs(&diary), [1, 2], "the epoch rises from one arbiter to the other");
    assert_eq!(scheduler.service().expect("shared").metrics().plugins_in_fallback, 2);
    a.deny(false);
    for handle in [&queue, &scheduler] {
        mode(handle, Mode::Global).await;
    }
    until("back by the global seat", || epochs(&diary).len() == 3).await;
    assert_eq!(epochs(&diary), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_refused_pod_waits_for_a_leader_it_can_see_and_takes_over_when_that_is_gone() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    b.deny(true);
    let (leader, _) = a.attach("queue").await;
    leads(&leader).await;
    let (refused, diary) = b.attach("queue").await;
    mode(&refused, Mode::Fallback).await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"], "it waits");
    assert_eq!(b.policy.own_reads.snapshot().requests(), 0, "its own candidate was not even started");
    // The leader leaves; nobody else may write the global seat.
    leader.detach().await;
    assert!(leads(&refused).await > 1);
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
    // Somebody who may write it comes: it waits for the plugin's own seat, which is given up for it.
    let (back, back_diary) = a.attach("queue").await;
    let mut led = back.leadership();
    led.wait_for(Leadership::is_leader).await.expect("attached");
    until("the newcomer acts", || cluster.acting("queue") == ["pod-a"]).await;
    assert_eq!(refused.mode(), Mode::Fallback, "still refused, and waiting");
    let (before, after) = (epochs(&diary), epochs(&back_diary));
    assert!(after.first() > before.last(), "no epoch twice: {before:?}, {after:?}");
    sleep_ms(30_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_plugin_that_may_not_even_look_goes_on_and_a_global_leader_sees_it() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    b.deny(true);
    b.policy.deny_reads.store(true, Ordering::SeqCst);
    let (blind, _) = b.attach("queue").await;
    leads(&blind).await;
    let (other, _) = a.attach("queue").await;
    until("the global seat is taken", || {
        other.service().is_some_and(|service| service.node().leadership().borrow().is_leader())
    })
    .await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"], "the global leader waits for the seat it can see");
    assert!(!other.leadership().borrow().is_leader());
    blind.detach().await;
    leads(&other).await;
    sleep_ms(100).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_rolling_change_from_per_plugin_to_global_waits_for_the_old_leader() {
    let cluster = Cluster::new();
    let (old, next, new) = (cluster.pod("pod-a"), cluster.pod("pod-b"), cluster.pod("pod-c"));
    let (first, _) = old.attach_with("queue", |s| s.coordination_mode("per-plugin")).await;
    leads(&first).await;
    let (second, _) = next.attach_with("queue", |s| s.coordination_mode("per-plugin")).await;
    sleep_ms(3000).await;
    let (global, _) = new.attach("queue").await;
    sleep_ms(20_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
    // The old leader hands over to another of the old kind, under the new one's eyes.
    first.detach().await;
    leads(&second).await;
    sleep_ms(20_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
    second.detach().await;
    leads(&global).await;
    sleep_ms(100).await;
    assert_eq!(cluster.acting("queue"), ["pod-c"]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_dead_per_plugin_seat_is_waited_out_once_and_cleared_away() {
    let cluster = Cluster::new();
    let (old, new) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    let (first, _) = old.attach_with("queue", |s| s.coordination_mode("per-plugin")).await;
    leads(&first).await;
    // It dies: what it wrote last stays.
    let dead = cluster.seat(OWN_SEAT).await;
    first.detach().await;
    let body = serde_json::to_vec(&dead).expect("JSON").into();
    tenure::store::Store::put(&*cluster.store, OWN_SEAT, body, tenure::store::Condition::Any).await;
    let began = tokio::time::Instant::now();
    let (queue, _) = new.attach("queue").await;
    leads(&queue).await;
    let waited = began.elapsed().as_millis();
    // Expiry, takeover delay, three looks; then a second claim, because the dead one had handed out epoch 1.
    assert!((11_500..17_500).contains(&waited), "{waited} ms");
    assert_eq!(queue.leadership().borrow().epoch, 2);
    assert_eq!(cluster.seat(OWN_SEAT).await["state"], "vacant", "nobody waits for it again");
    queue.step_down().await.expect("it leads");
    let began = tokio::time::Instant::now();
    leads(&queue).await;
    assert!(began.elapsed().as_millis() < 5000, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn gc2_policies_that_come_and_go_never_make_two_leaders() {
    let cluster = Cluster::new();
    let pods = [cluster.pod("pod-a"), cluster.pod("pod-b"), cluster.pod("pod-c")];
    let mut attached = Vec::new();
    for pod in &pods {
        attached.push(pod.attach("queue").await);
    }
    // `Diary` asserts that it acts on one pod at a time.
    let mut draw = 12_345u64;
    for _ in 0..150 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (which, denied) = ((draw >> 33) as usize % 3, (draw >> 40) & 1 == 1);
        pods[which].deny(denied);
        sleep_ms(500 + (draw >> 45) % 9000).await;
    }
    pods.iter().for_each(|pod| pod.deny(false));
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue").len(), 1);
    let mut all = Vec::new();
    for (handle, diary) in &attached {
        assert_eq!(handle.mode(), Mode::Global);
        assert_eq!(handle.service().expect("shared").metrics().plugin_failures, 0, "led twice");
        all.extend(epochs(diary));
    }
    assert!(all.len() > 10, "{all:?}");
}

const GLOBAL_WORKER: &str = "plg_coordinator_global/test/workers/q1-worker-1.json";
const OWN_WORKER: &str = "plg_coordinator/test/queue/workers/q1-worker-1.json";

/// The plugin's workers remain: one handle, enabled by whichever arbiter is in force, registered where that one is.
#[tokio::test(start_paused = true)]
async fn gc2_workers_move_with_their_plugin_and_stay() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, _) = a.attach("queue").await;
    let worker = queue.register_worker(&tenure::WorkerSpec::new("q1-worker-1", "queue")).expect("valid");
    worker.registered().await.expect("nobody else has the id");
    leads(&queue).await;
    until("enabled", || worker.enabled()).await;
    assert!(cluster.exists(GLOBAL_WORKER).await && !cluster.exists(OWN_WORKER).await);

    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    assert!(!worker.enabled(), "nobody leads the plugin now");
    until("enabled by the plugin's own seat", || worker.enabled()).await;
    sleep_ms(2000).await;
    assert!(cluster.exists(OWN_WORKER).await, "registered where the arbiter in force looks");
    assert_eq!(worker.status().borrow().phase, tenure::WorkerPhase::Registered);

    a.deny(false);
    mode(&queue, Mode::Global).await;
    until("enabled by the global seat", || worker.enabled()).await;
    sleep_ms(20_000).await;
    assert!(cluster.exists(GLOBAL_WORKER).await && !cluster.exists(OWN_WORKER).await);
    assert!(worker.enabled());
    assert_eq!(worker.deregister().await, tenure::WorkerEnd::Deregistered);
    assert!(!cluster.exists(GLOBAL_WORKER).await);
}
