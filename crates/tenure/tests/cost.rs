//! What the election costs, counted at the store.

use crate::common::{Rig, sleep_ms};

/// DESIGN's promise: a standby makes one conditional read a heartbeat; only the leader writes the seat; each keeps its
/// presence fresh, the leader looks for workers every fourth interval while there are none; nothing else.
#[tokio::test(start_paused = true)]
async fn steady_state_costs_one_request_per_heartbeat_and_one_presence_per_interval() {
    let rig = Rig::new();
    let members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    sleep_ms(10_250).await;
    let before: Vec<_> = members.iter().map(|member| member.meter.snapshot()).collect();
    sleep_ms(60_000).await; // 40 heartbeats, 60 looks, 3 presence intervals, 3 × 4 sweep intervals
    let spent: Vec<_> =
        members.iter().zip(before).map(|(member, before)| member.meter.snapshot() - before).collect();
    let leader = &spent[0];
    assert_eq!((leader.put, leader.list_pages), (40 + 3, 3), "leader: {leader:?}");
    assert_eq!(leader.requests(), 40 + 3 + 3, "leader: {leader:?}");
    for standby in &spent[1..] {
        assert_eq!(standby.get + standby.get_unchanged, 60, "{standby:?}");
        assert_eq!((standby.put, standby.requests()), (3, 60 + 3), "{standby:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ji1_no_request_before_the_jitter_is_over() {
    for (random, wait_ms) in [(0, 0), (u64::MAX / 2, 2500), (u64::MAX, 5000)] {
        let rig = Rig::new();
        let member = rig.join_with("pod-a", random, |settings| settings).await;
        sleep_ms(u64::max(wait_ms, 1) - 1).await;
        let early = if wait_ms == 0 { 0 } else { member.meter.snapshot().requests() };
        assert_eq!(early, 0, "before {wait_ms} ms");
        sleep_ms(2).await;
        assert!(member.meter.snapshot().requests() > 0, "after {wait_ms} ms");
    }
}
