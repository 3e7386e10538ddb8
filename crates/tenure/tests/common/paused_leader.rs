//! A leader that is paused past its lease and does not know it: its clock stands still, so its guard still holds.
#![allow(dead_code, unreachable_pub, missing_docs)]

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::{Clock, StoppableClock};
use tenure::id::DocumentName;
use tenure::store::Lanes;
use tenure::{FencedDocument, Node, Settings};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Quota {
    pub left: u64,
}

pub fn name(text: &str) -> DocumentName {
    DocumentName::new(text).expect("valid")
}

async fn join(lanes: &Lanes, namespace: &str, node: &str, clock: Arc<dyn Clock>) -> Node {
    let settings = Settings::builder().namespace(namespace).node(node).startup_jitter_max(Duration::ZERO);
    Node::builder(settings.build().expect("valid"))
        .lanes(lanes.clone())
        .clock(clock)
        .start()
        .await
        .expect("a node")
}

/// A leads, opens a document and is paused. B takes over and opens it. From then on the store has what B put, whatever A
/// tries, although A's guard still says that it leads.
pub async fn a_paused_leader_cannot_write(
    lanes: &Lanes,
    namespace: &str,
    time: Arc<dyn Clock>,
) -> Result<(), String> {
    let clock = StoppableClock::new(Arc::clone(&time));
    let quota = name("quota");
    let a = join(lanes, namespace, "pod-a", clock.clone()).await;
    let guard_a = a.lead().await.expect("it leads");
    let mut of_a = FencedDocument::<Quota>::open(&a.documents(), &quota, &guard_a).await.expect("opened");
    of_a.put(&guard_a, Quota { left: 3 }).await.expect("written");
    let b = join(lanes, namespace, "pod-b", time).await;
    clock.stop();
    let guard_b = tokio::time::timeout(Duration::from_secs(60), b.lead()).await;
    let guard_b = guard_b.expect("B takes over").expect("it leads");
    let documents = b.documents();
    let stands = async |left: u64| match documents.read::<Quota>(&quota).await {
        Ok(Some(found)) if found.body.left == left => Ok(()),
        other => Err(format!("{left} should stand there: {other:?}")),
    };

    let of_b = FencedDocument::<Quota>::open(&documents, &quota, &guard_b).await;
    let mut of_b = of_b.map_err(|error| format!("B may open it: {error}"))?;
    assert_eq!(of_b.get(), Some(&Quota { left: 3 }), "what A left");
    assert!(guard_a.is_valid() && guard_a.epoch() < guard_b.epoch(), "A still thinks it leads");
    // B has only opened it yet.
    let refused = of_a.put(&guard_a, Quota { left: 99 }).await;
    if !refused.as_ref().is_err_and(|error| error.is_fenced() && !error.may_have_been_written()) {
        return Err(format!("A should be fenced: {refused:?}"));
    }
    stands(3).await?;
    of_b.put(&guard_b, Quota { left: 2 }).await.map_err(|error| format!("B may write: {error}"))?;
    let again = of_a.put(&guard_a, Quota { left: 99 }).await;
    let late = FencedDocument::<Quota>::open(&a.documents(), &quota, &guard_a).await;
    for refused in [again, late.map(drop)] {
        if !refused.as_ref().is_err_and(|error| error.is_fenced()) {
            return Err(format!("A should be fenced: {refused:?}"));
        }
    }
    assert!(guard_a.is_valid(), "nobody told it");
    stands(2).await?;

    clock.resume();
    assert!(!guard_a.is_valid(), "now it knows");
    let ended = of_a.put(&guard_a, Quota { left: 99 }).await.expect_err("over");
    assert!(ended.is_fenced() && !ended.is_retryable(), "{ended}");
    of_b.put(&guard_b, Quota { left: 1 }).await.map_err(|error| format!("B may still write: {error}"))?;
    stands(1).await?;
    drop((guard_a, guard_b));
    a.shutdown().await;
    b.shutdown().await;
    Ok(())
}
