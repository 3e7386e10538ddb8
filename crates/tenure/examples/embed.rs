//! Two plugins share one election: `cargo run -p tenure --example embed`.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::time::Duration;
use tenure::plugin::{LeaderChange, Plugin, Services};
use tenure::settings::CoordinationMode;
use tenure::{LeaderGuard, Settings, async_trait};

struct Worker(&'static str);

#[async_trait]
impl Plugin for Worker {
    fn name(&self) -> &str {
        self.0
    }

    async fn promoted(&self, guard: LeaderGuard) {
        println!("{} leads in epoch {}: its workers start", self.0, guard.epoch());
        guard.ended().await; // work until then, then stop
    }

    async fn leader_changed(&self, change: &LeaderChange) {
        println!("{}: the leader of {} is {}", self.0, change.namespace, change.new);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings =
        Settings::builder().store("memory:").namespace("horizon").coordination_mode(CoordinationMode::Global);
    let settings = settings.startup_jitter_max(Duration::ZERO).node("pod-a").build()?;
    let queue = Services::process().attach(Worker("queue"), settings.clone()).await?;
    let scheduler = Services::process().attach(Worker("scheduler"), settings).await?;

    for plugin in [&queue, &scheduler] {
        plugin.leadership().wait_for(tenure::Leadership::is_leader).await?;
    }
    // One service, one election, however many plugins there are.
    let services = Services::process().services().await;
    assert_eq!(services.len(), 1);
    assert_eq!(services[0].plugins(), ["queue", "scheduler"]);
    assert_eq!(services[0].metrics().elections, 1);
    queue.detach().await;
    assert!(scheduler.leadership().borrow().is_leader(), "the other goes on");
    scheduler.detach().await; // the last one: the seat is vacated
    assert!(Services::process().services().await.is_empty());
    Ok(())
}
