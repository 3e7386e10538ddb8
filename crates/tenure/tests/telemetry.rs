//! Telemetry: the documents' names, measurements and metadata.

use crate::common::{Rig, sleep_ms};
use std::collections::BTreeSet;
use std::time::Duration;
use tenure::event::EventKind;

#[tokio::test(start_paused = true)]
async fn te1_became_leader_has_time_and_node() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let value = a.became_leader().await.to_json();
    assert_eq!(value["event"], "serviceradar.coordinator.became_leader");
    assert_eq!(value["node"], "pod-a");
    let time: jiff::Timestamp = value["time"].as_str().expect("time").parse().expect("RFC 3339");
    assert!(time.as_second() > 1_700_000_000);
}

#[tokio::test(start_paused = true)]
async fn te2_lost_leadership_has_time_node_and_reason() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    a.node.step_down().await.expect("it leads");
    let value = a.lost_leadership().await.to_json();
    assert_eq!(value["event"], "serviceradar.coordinator.lost_leadership");
    assert_eq!(value["node"], "pod-a");
    assert_eq!(value["reason"], "step down");
    assert!(value["time"].is_string());
}

#[tokio::test(start_paused = true)]
async fn te3_standbys_say_who_was_and_who_is_leader() {
    crate::log::keep();
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    members[0].became_leader().await;
    sleep_ms(2000).await;
    for member in &mut members {
        member.so_far();
    }
    members[0].node.step_down().await.expect("it leads");
    let seen = members[2].event(|kind| matches!(kind, EventKind::LeaderChangeSeen { .. })).await.to_json();
    assert_eq!(seen["event"], "serviceradar.coordinator.leader_changed");
    assert_eq!(seen["previous_leader"], "pod-a");
    assert_eq!(seen["new_leader"], "pod-b");
    // The copy in the log has the same fields.
    let line = crate::log::lines("the leader is pod-b (before: pod-a)");
    assert!(!line.is_empty());
    for line in line {
        assert!(line.contains("previousLeader=\"pod-a\" newLeader=\"pod-b\""), "{line}");
    }
    sleep_ms(5000).await;
    let own = members[1].so_far();
    assert!(
        own.iter().any(|event| matches!(event.kind, EventKind::LeaderChanged { .. })),
        "everybody is told"
    );
    assert!(
        !own.iter().any(|event| matches!(event.kind, EventKind::LeaderChangeSeen { .. })),
        "only standbys see it"
    );
}

#[tokio::test(start_paused = true)]
async fn te4_elections_checks_and_silence_are_told_and_the_prefix_is_a_setting() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let mut b = rig
        .join_with("pod-b", 0, |settings| {
            settings.startup_jitter_max(Duration::ZERO).telemetry_prefix("acme")
        })
        .await;
    a.became_leader().await;
    sleep_ms(3000).await;
    a.link.cut(true);
    sleep_ms(15_000).await;
    let said: BTreeSet<String> = b.so_far().iter().map(tenure::Event::name).collect();
    for name in ["election_check", "leader_down", "election_started", "became_leader"] {
        assert!(said.contains(&format!("acme.coordinator.{name}")), "{name} is missing in {said:?}");
    }
    assert!(said.contains("leader:changed"), "the documents' own name has no prefix: {said:?}");
}
