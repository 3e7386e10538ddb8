//! What must hold for `health.json`, whatever it contains; see [`crate::fuzzing`].

use super::HealthDocument;
use super::assessment::{Assessment, AssessmentConfig, LeaderFacts, Listed, Listing};
use super::document::transitions;
use tenure::fuzzing::document;

/// How often the nodes are listed.
const STEPS: u64 = 12;

/// Checks any body of `health.json`.
pub fn health(body: &[u8]) -> bool {
    let Some((epoch, Some(found), again)) = document::<HealthDocument>(body) else { return false };
    assert!(found.sequence <= u64::MAX / 2);
    let (_, same, _) = document::<HealthDocument>(&again).expect("our own");
    assert_eq!(same.as_ref(), Some(&found));
    let found = HealthDocument { epoch, ..found };
    assert!(found.differs_only_in_details(&found), "nothing is new in it");
    // No real sequence gets that far.
    if found.sequence < u64::MAX / 2 - STEPS {
        assess(&found);
    }
    true
}

/// A leader continues from the document; its own node and every second node of the document are alive.
fn assess(found: &HealthDocument) {
    let config = AssessmentConfig {
        suspect_ms: 200,
        down_ms: 300,
        retention_ms: 10_000,
        calm_ms: 300,
        flap_window_ms: 3000,
        flap_hold_ms: 600,
        stall_ms: 50,
        slow_ms: 50,
        refresh_ms: 300,
        rereads: 1,
    };
    let mut assessment = Assessment::new(config, found.epoch, "a", Some(found));
    let mut last = found.clone();
    for step in 1..=STEPS {
        let listed = |(place, row): (usize, &super::NodeHealth)| {
            let modified = row.last_seen.wrapping_add(if place % 2 == 0 { step } else { 0 });
            let (age_ms, deposed) = ((place % 3 == 0).then_some(modified % 500), place % 5 == 4);
            Listed { node: row.node.clone(), modified, age_ms, deposed }
        };
        let list = found.nodes.iter().enumerate().map(listed).collect();
        let now_ms = 5000 + step * 100;
        assessment.take_list(Listing {
            sent_ms: now_ms,
            now_ms,
            late_ms: 60 * (step % 2),
            list: Some((list, true)),
        });
        let document = assessment.assess(now_ms, LeaderFacts::default());
        assert_eq!((document.epoch, document.sequence), (found.epoch, last.sequence + 1), "it rises");
        let read: HealthDocument =
            serde_json::from_slice(&serde_json::to_vec(&document).expect("JSON")).expect("our own");
        assert_eq!(HealthDocument { epoch: document.epoch, ..read }, document);
        transitions(Some(&last), &document);
        assert_eq!(transitions(Some(&document), &document), [], "nothing is told twice");
        last = document;
    }
}
