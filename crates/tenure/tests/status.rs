//! A namespace seen from outside.

use crate::common::{Rig, sleep_ms};
use std::time::Duration;
use tenure::admin::{Forgot, Status, WATCH_MAX, forget_node};
use tenure::settings::SettingsBuilder;
use tenure::store::Store;
use tenure::{Namespace, NodeId};

async fn look(rig: &Rig) -> Status {
    Status::read(&rig.lanes(), &Namespace::new("test").expect("valid")).await.expect("the store answers")
}

fn roles(status: &Status) -> Vec<(&str, &str)> {
    status.nodes.iter().map(|node| (node.node.as_str(), node.role)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_live_leader_is_seen_to_renew_and_the_dead_are_told_from_the_living() {
    let rig = Rig::new();
    assert_eq!((look(&rig).await.epoch, look(&rig).await.has_live_leader()), (0, false));
    let members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    sleep_ms(3000).await;
    let status = look(&rig).await;
    assert!(status.has_live_leader());
    assert_eq!(roles(&status), [("pod-a", "leader"), ("pod-b", "standby"), ("pod-c", "standby")]);
    members[2].link.cut(true);
    sleep_ms(70_000).await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "leader"), ("pod-b", "standby"), ("pod-c", "gone")]);
}

/// A lease of a day is no reason to watch for a day.
#[tokio::test(start_paused = true)]
async fn a_holder_is_watched_for_a_bounded_time_whatever_its_lease() {
    let rig = Rig::new();
    let seat = serde_json::json!({
        "v": 1, "epoch": 3, "state": "held", "leaseHold": 86_400_000, "leaseExpiry": 100_000_000, "renewals": 0, "nonce": "00000000000000ab-7",
        "holder": {"node": "pod-z", "incarnation": "00000000000000ab"},
    });
    let key = "plg_coordinator_global/test/seat.json";
    let written = rig.store.put(key, seat.to_string().into(), tenure::store::Condition::Absent).await;
    assert!(matches!(written, tenure::store::Write::Won(_)), "{written:?}");
    let began = tokio::time::Instant::now();
    let status = look(&rig).await;
    assert!(began.elapsed() <= WATCH_MAX + Duration::from_millis(500), "{:?}", began.elapsed());
    let leader = status.leader.expect("somebody holds the seat");
    assert_eq!((leader.node.as_str(), leader.live, leader.watched_ms), ("pod-z", false, 15_000));
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_not_a_live_leader() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    a.link.cut(true);
    let began = tokio::time::Instant::now();
    let status = look(&rig).await;
    assert!(!status.has_live_leader());
    assert_eq!(status.leader.map(|leader| leader.node).as_deref(), Some("pod-a"), "it still holds the seat");
    assert!(began.elapsed().as_millis() <= 5500, "one hold is enough to know: {:?}", began.elapsed());
}

/// The presence of a node that crashed is removed by the leader after its retention, and no sooner.
#[tokio::test(start_paused = true)]
async fn ob4_the_leader_forgets_a_crashed_node_after_its_retention() {
    let rig = Rig::new();
    let short = |s: SettingsBuilder| {
        s.startup_jitter_max(Duration::ZERO).node_retention(Duration::from_millis(120_000))
    };
    let mut a = rig.join_with("pod-a", 0, short).await;
    a.became_leader().await;
    let b = rig.join_with("pod-b", 0, short).await;
    sleep_ms(30_000).await;
    b.link.cut(true);
    sleep_ms(100_000).await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "leader"), ("pod-b", "gone")], "kept for two minutes");
    sleep_ms(80_000).await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "leader")]);
    b.link.cut(false);
    sleep_ms(25_000).await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "leader"), ("pod-b", "standby")], "it writes it again");
}

#[tokio::test(start_paused = true)]
async fn ob4_a_node_is_forgotten_at_once_unless_it_leads() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    members[1].link.cut(true);
    let (lanes, namespace) = (rig.lanes(), Namespace::new("test").expect("valid"));
    let forget = async |name: &str| {
        let node = NodeId::new(name).expect("valid");
        forget_node(&lanes, &namespace, &node).await.expect("the store answers")
    };
    assert_eq!(forget("pod-a").await, Forgot::Leads);
    assert_eq!(forget("pod-z").await, Forgot::Unknown);
    assert!(matches!(forget("pod-b").await, Forgot::Removed { .. }));
    assert_eq!(roles(&look(&rig).await), [("pod-a", "leader")]);
    members[0].link.cut(true);
    sleep_ms(9000).await;
    assert!(
        matches!(forget("pod-a").await, Forgot::Removed { .. }),
        "it holds the seat, but its lease is over"
    );
}

/// Whoever lost the seat by falling silent is gone from that moment on, and a standby again once it is heard of.
#[tokio::test(start_paused = true)]
async fn ob2_a_leader_that_fell_silent_is_gone_as_soon_as_its_lease_is_over_or_another_leads() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    members[0].link.cut(true);
    members[1].became_leader().await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "gone"), ("pod-b", "leader")]);
    members[0].link.cut(false);
    sleep_ms(25_000).await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "standby"), ("pod-b", "leader")]);
    members[0].link.cut(true);
    members[1].link.cut(true);
    sleep_ms(9_000).await;
    assert_eq!(roles(&look(&rig).await), [("pod-a", "standby"), ("pod-b", "gone")], "nobody took over");
}

#[tokio::test(start_paused = true)]
async fn ob3_ages_grow_when_every_node_is_dead() {
    let rig = Rig::new();
    let members = rig.join_all(&["pod-a", "pod-b"]).await;
    sleep_ms(3000).await;
    members.iter().for_each(|member| member.link.cut(true));
    sleep_ms(600_000).await;
    let status = look(&rig).await;
    assert_eq!(roles(&status), [("pod-a", "gone"), ("pod-b", "gone")]);
    let ages: Vec<u64> = status.nodes.iter().map(|node| node.last_seen_ms_ago).collect();
    assert!(ages.iter().all(|age| (595_000..640_000).contains(age)), "{ages:?}");
}
