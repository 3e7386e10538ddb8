//! The candidate is supervised: whatever ends it, it is started again.

mod common;

use common::{Rig, sleep_ms};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tenure::store::{Lanes, Store};
use tenure::{Clock, EventKind, Node, Settings, TokioClock};

/// A clock that breaks once when told to, and with it whoever reads it.
#[derive(Debug)]
struct Fragile {
    clock: Arc<TokioClock>,
    broken: AtomicBool,
}

impl Clock for Fragile {
    fn now_ms(&self) -> u64 {
        assert!(!self.broken.swap(false, Ordering::SeqCst), "the clock broke (on purpose)");
        self.clock.now_ms()
    }

    fn outruns_timers(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn ap1_a_candidate_that_dies_is_started_again() {
    let rig = Rig::new();
    let clock = Arc::new(Fragile { clock: rig.clock.clone(), broken: AtomicBool::new(false) });
    let settings = Settings::builder().namespace("test").node("pod-a").store("memory:").startup_jitter_max(0);
    let node = Node::builder(settings.build().expect("valid"))
        .lanes(Lanes::same(Arc::clone(&rig.store) as Arc<dyn Store>))
        .clock(clock.clone())
        .start()
        .await
        .expect("a node");
    let mut events = node.events();
    let guard = node.lead().await.expect("leadership");
    clock.broken.store(true, Ordering::SeqCst);
    sleep_ms(2000).await;
    assert!(!guard.is_valid(), "the lease went with the candidate");
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let lost =
        said.iter().find(|event| matches!(event.kind, EventKind::LostLeadership { .. })).expect("the loss");
    assert_eq!(lost.to_json()["reason"], "panic");
    let restarted = said.iter().find(|event| matches!(event.kind, EventKind::CandidateRestarted { .. }));
    assert_eq!(restarted.expect("the restart").to_json()["attempt"], 1);
    drop(guard);
    let again = node.lead().await.expect("leadership in a new life");
    assert_eq!(again.epoch(), 2, "a new incarnation claims like anybody else");
    drop(again);
    node.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_dropped_leaves_in_order() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    drop(a);
    sleep_ms(1000).await;
    assert_eq!(rig.seat().await["state"], "vacant");
}
