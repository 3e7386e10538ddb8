//! Names and payloads, as the documents give them.

use super::*;
use serde_json::json;

fn event(kind: EventKind) -> Event {
    Event {
        namespace: "test".into(),
        node: NodeId::new("pod-b").expect("valid"),
        epoch: 16,
        time: jiff::Timestamp::UNIX_EPOCH,
        boot_ms: 5,
        plugins: Arc::default(),
        prefix: "serviceradar".into(),
        kind,
    }
}

#[test]
fn leader_changed_has_the_documents_payload() {
    let previous = Some(NodeId::new("pod-a").expect("valid"));
    let new = NodeId::new("pod-b").expect("valid");
    let value = event(EventKind::LeaderChanged { previous, new }).to_json();
    assert_eq!(value["event"], "leader:changed");
    let expected = json!({"namespace": "test", "previousLeader": "pod-a", "newLeader": "pod-b", "epoch": 16});
    for (field, wanted) in expected.as_object().expect("an object") {
        assert_eq!(&value[field], wanted, "{field}");
    }
    assert_eq!(value["time"], "1970-01-01T00:00:00.000Z");
}

#[test]
fn telemetry_names_carry_the_prefix_and_are_listed() {
    let lost = event(EventKind::LostLeadership {
        reason: LostReason::Panic,
        vacated: false,
        acted_until_boot_ms: 4,
    });
    assert_eq!(lost.name(), "serviceradar.coordinator.lost_leadership");
    assert_eq!(lost.to_json()["reason"], "panic");
    let listed = EVENT_NAMES.iter().map(|name| name.replace("{prefix}", "serviceradar"));
    assert!(listed.into_iter().any(|name| name == lost.name()));
}
