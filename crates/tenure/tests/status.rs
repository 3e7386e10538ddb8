//! A namespace seen from outside.

mod common;

use common::{Rig, sleep_ms};
use std::sync::Arc;
use tenure::store::{Lanes, Store};
use tenure::{Namespace, Status};

async fn look(rig: &Rig) -> Status {
    let lanes = Lanes::same(Arc::clone(&rig.store) as Arc<dyn Store>);
    Status::read(&lanes, &Namespace::new("test").expect("valid")).await.expect("the store answers")
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
    assert!(began.elapsed().as_millis() <= 3000, "one lease is enough to know: {:?}", began.elapsed());
}
