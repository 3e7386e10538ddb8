//! Contention: heartbeat cycles that take too long are told and counted.

use crate::common::{Member, Rig, sleep_ms};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::clock::{Clock, TokioClock};
use tenure::event::EventKind;
use tenure::settings::{Settings, SettingsBuilder};
use tenure::store::{Condition, Faults, Lanes, Read, Store};
use tenure::{Event, Node};
use tokio::sync::broadcast::Receiver;

/// Heartbeats of 250 ms in a lease long enough that slow answers cost no leadership.
fn patient(settings: SettingsBuilder) -> SettingsBuilder {
    settings
        .startup_jitter_max(Duration::ZERO)
        .heartbeat_interval(Duration::from_millis(250))
        .lease_timeout(Duration::from_millis(20_000))
}

/// Every request takes up to this long.
fn slow(member: &Member, max_ms: u64) {
    member.link.set(Faults { delay: 1.0, delay_max: Duration::from_millis(max_ms), ..Faults::default() });
}

fn contentions(events: &[Event]) -> Vec<&Event> {
    events.iter().filter(|event| matches!(event.kind, EventKind::ContentionDetected { .. })).collect()
}

fn is_contention(kind: &EventKind) -> bool {
    matches!(kind, EventKind::ContentionDetected { .. })
}

#[tokio::test(start_paused = true)]
async fn cd1_a_slow_store_is_told_by_leader_and_standby() {
    let rig = Rig::new();
    let mut a = rig.join_with("pod-a", 0, patient).await;
    a.became_leader().await;
    let mut b = rig.join_with("pod-b", 0, patient).await;
    sleep_ms(20_000).await;
    assert!(contentions(&a.so_far()).is_empty() && contentions(&b.so_far()).is_empty(), "all is well so far");
    for member in [&mut a, &mut b] {
        slow(member, 3000);
        let value = member.event(is_contention).await.to_json();
        assert_eq!(value["event"], "contention:detected");
        assert_eq!((&value["namespace"], &value["expected"]), (&"test".into(), &250.into()));
        let duration = value["duration"].as_u64().expect("milliseconds");
        assert!((501..3500).contains(&duration), "{value}");
        assert_eq!(value["ratio"].as_f64(), Some(duration as f64 / 250.0));
        assert_eq!(value["stalledMs"], 0, "the store was slow, not the node");
        assert!(member.node.metrics().contention_events >= 1);
    }
    assert!(a.leads(), "slow answers cost no leadership here");
}

#[tokio::test(start_paused = true)]
async fn cd1_a_store_that_is_gone_is_told_while_it_is_gone() {
    let rig = Rig::new();
    let mut a = rig.join_with("pod-a", 0, |settings| settings.startup_jitter_max(Duration::ZERO)).await;
    a.became_leader().await;
    let mut b = rig.join("pod-b").await;
    sleep_ms(5000).await;
    b.link.cut(true);
    let told = b.event(is_contention).await;
    let EventKind::ContentionDetected { stalled, duration, .. } = told.kind else { panic!("{told:?}") };
    assert_eq!(stalled, Duration::ZERO);
    assert!(
        (2001..4000).contains(&duration.as_millis()),
        "{duration:?}: told during the outage, not after it"
    );
}

#[tokio::test(start_paused = true)]
async fn cd1_a_renewal_that_keeps_losing_is_told() {
    let rig = Rig::new();
    let mut a = rig.join_with("pod-a", 0, patient).await;
    a.became_leader().await;
    slow(&a, 200);
    // Somebody rewrites the seat all the time without taking it: every conditional write comes too late.
    let store = Arc::clone(&rig.store);
    let meddler = tokio::spawn(async move {
        let key = "plg_coordinator_global/test/seat.json";
        for count in 0u64.. {
            if let Read::Found(object) = store.get(key, None).await {
                let mut seat: serde_json::Value = serde_json::from_slice(&object.body).expect("JSON");
                seat["meddled"] = count.into();
                store.put(key, seat.to_string().into(), Condition::Any).await;
            }
            sleep_ms(5).await;
        }
    });
    let told = a.event(is_contention).await;
    let EventKind::ContentionDetected { stalled, duration, .. } = told.kind else { panic!("{told:?}") };
    assert!(stalled.is_zero() && duration > Duration::from_millis(500), "{told:?}");
    meddler.abort();
}

/// A clock that a suspended machine would have: it goes on while nothing runs.
#[derive(Debug)]
struct JumpClock(Arc<TokioClock>, AtomicU64);

impl Clock for JumpClock {
    fn now_ms(&self) -> u64 {
        self.0.now_ms() + self.1.load(Ordering::SeqCst)
    }
}

impl JumpClock {
    fn new() -> Arc<JumpClock> {
        Arc::new(JumpClock(TokioClock::new(), AtomicU64::new(0)))
    }

    /// Starts a node that lives by this clock.
    async fn join(self: &Arc<JumpClock>, rig: &Rig, name: &str) -> (Node, Receiver<Event>) {
        let settings = Settings::builder()
            .namespace("test")
            .node(name)
            .store("memory:")
            .startup_jitter_max(Duration::ZERO);
        let builder = Node::builder(settings.build().expect("valid"))
            .lanes(Lanes::same(rig.store.clone()))
            .clock(self.clone());
        let events = builder.events();
        (builder.start().await.expect("a node"), events)
    }
}

#[tokio::test(start_paused = true)]
async fn cd1_how_long_the_node_itself_stood_still_is_told() {
    let rig = Rig::new();
    // One clock each: it is the standby that stands still first, then the leader.
    let (leaders, standbys) = (JumpClock::new(), JumpClock::new());
    let (leader, mut from_leader) = leaders.join(&rig, "pod-a").await;
    leader.lead().await.expect("it leads");
    let (standby, mut from_standby) = standbys.join(&rig, "pod-b").await;
    sleep_ms(10_050).await;
    for (node, clock, events, jump_ms) in
        [(&standby, &standbys, &mut from_standby, 5000), (&leader, &leaders, &mut from_leader, 60_000)]
    {
        assert_eq!(node.metrics().contention_events, 0);
        clock.1.store(jump_ms, Ordering::SeqCst);
        sleep_ms(1200).await;
        let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let told = contentions(&told);
        assert_eq!(told.len(), 1, "{}", node.id());
        let EventKind::ContentionDetected { stalled, duration, .. } = told[0].kind else {
            panic!("{told:?}")
        };
        for time in [stalled, duration] {
            let ms = u64::try_from(time.as_millis()).expect("short");
            assert!((jump_ms - 1000..jump_ms + 500).contains(&ms), "{told:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cd2_one_event_in_thirty_seconds_but_every_cycle_counts() {
    let rig = Rig::new();
    let mut a = rig.join_with("pod-a", 0, patient).await;
    a.became_leader().await;
    slow(&a, 3000);
    sleep_ms(100_000).await;
    let events = a.so_far();
    let times: Vec<u64> = contentions(&events).iter().map(|event| event.boot_ms).collect();
    assert!((3..=4).contains(&times.len()), "about one in thirty seconds: {times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 30_000), "{times:?}");
    let counted = a.node.metrics().contention_events;
    assert!(counted > 20, "every slow cycle of a hundred seconds counts, not {counted}");
}

#[tokio::test(start_paused = true)]
async fn cd3_switched_off_nothing_is_detected_or_counted() {
    let rig = Rig::new();
    let off = |settings| patient(settings).contention_detection_enabled(false);
    let mut a = rig.join_with("pod-a", 0, off).await;
    a.became_leader().await;
    slow(&a, 3000);
    sleep_ms(100_000).await;
    assert!(contentions(&a.so_far()).is_empty());
    let metrics = a.node.metrics();
    assert_eq!(metrics.contention_events, 0);
    assert!(metrics.heartbeat_latency_p99 > 500, "it was slow all the same: {metrics:?}");
}

#[tokio::test(start_paused = true)]
async fn cd4_each_namespace_has_its_own_threshold() {
    let rig = Rig::new();
    let strict = |settings| patient(settings).namespace("strict").contention_threshold(1.5);
    let lenient = |settings| patient(settings).namespace("lenient").contention_threshold(100.0);
    let mut strict = rig.join_with("pod-a", 0, strict).await;
    let mut lenient = rig.join_with("pod-a", 0, lenient).await;
    strict.became_leader().await;
    lenient.became_leader().await;
    slow(&strict, 3000);
    slow(&lenient, 3000);
    sleep_ms(60_000).await;
    let events = strict.so_far();
    let told = contentions(&events);
    assert!(!told.is_empty() && told.iter().all(|event| &*event.namespace == "strict"));
    assert!(contentions(&lenient.so_far()).is_empty());
    assert_eq!(lenient.node.metrics().contention_events, 0);
    assert!(strict.node.metrics().contention_events > 0);
}
