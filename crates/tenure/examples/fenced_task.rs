//! A stale leader's task is rejected: `cargo run -p tenure --example fenced_task`.
//!
//! Two nodes share a store. The first leads and dispatches a task, but the task is slow on its way; meanwhile the second
//! takes over. Whoever receives the task hears of the new leader first, and turns it away.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::sync::Arc;
use std::time::Duration;
use tenure::settings::Preset;
use tenure::store::{Lanes, MemoryStore, Store};
use tenure::{Node, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let start = async |name: &str| {
        let settings = Settings::builder()
            .namespace("reports")
            .node(name)
            .preset(Preset::Fast)
            .startup_jitter_max(Duration::ZERO);
        // Strict: not even a task that was just on its way is accepted from a former leader.
        let settings = settings.epoch_grace_period(Duration::ZERO).build()?;
        Ok::<_, Box<dyn std::error::Error>>(
            Node::builder(settings).lanes(Lanes::same(Arc::clone(&store))).start().await?,
        )
    };
    let (a, b) = (start("pod-a").await?, start("pod-b").await?);

    let guard = a.lead().await.ok_or("stopped")?;
    let task = guard.stamp("report-7")?;
    println!("pod-a leads in epoch {} and dispatches {:?}", guard.epoch(), task.id);
    drop(guard); // its work has stopped, so the seat may be handed over
    a.step_down().await?;
    let guard = b.lead().await.ok_or("stopped")?;
    println!("pod-b leads in epoch {}", guard.epoch());

    // The task arrives at last, on a node that has heard of the new leader.
    let fence = b.fence();
    match fence.admit(&task) {
        Ok(permit) => return Err(format!("{:?} must not be admitted", permit.stamp()).into()),
        Err(refused) => println!("rejected: {refused}"),
    }

    // The new leader's task passes, and is asked for again right before its work is made to count.
    let permit = fence.admit(&guard.stamp("report-8")?)?;
    permit.confirm()?;
    println!("accepted: {:?} of epoch {}", permit.stamp().id, permit.stamp().epoch);
    assert_eq!(fence.drift_events(), 1);

    drop(guard);
    b.shutdown().await;
    a.shutdown().await;
    Ok(())
}
