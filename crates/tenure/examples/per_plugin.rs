//! Without a mode every plugin has an election of its own: `cargo run -p tenure --example per_plugin`.
//!
//! Two pods with two plugins each. One pod's queue steps down; its scheduler goes on leading.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::sync::Arc;
use std::time::Duration;
use tenure::plugin::{Mode, Plugin, PluginHandle, Services};
use tenure::settings::Preset;
use tenure::store::{Lanes, MemoryStore};
use tenure::{Leadership, Role, Settings};

struct Worker(&'static str);

impl Plugin for Worker {
    fn name(&self) -> &str {
        self.0
    }
}

async fn leads(plugin: &PluginHandle) -> Result<u64, Box<dyn std::error::Error>> {
    Ok(plugin.leadership().wait_for(Leadership::is_leader).await?.epoch)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(MemoryStore::new());
    let mut pods = Vec::new();
    for pod in ["pod-a", "pod-b"] {
        // A table of its own stands for a process of its own.
        let services = Services::new().lanes(Lanes::same(store.clone()));
        let settings = Settings::builder().namespace("horizon").node(pod).preset(Preset::Fast);
        let settings = settings.startup_jitter_max(Duration::ZERO).build()?;
        let queue = services.attach(Worker("queue"), settings.clone()).await?;
        let scheduler = services.attach(Worker("scheduler"), settings).await?;
        assert_eq!(queue.mode(), Mode::PerPlugin);
        if pod == "pod-a" {
            leads(&queue).await?;
            leads(&scheduler).await?;
        }
        pods.push((queue, scheduler));
    }
    println!("pod-a leads queue and scheduler, in an election each");

    // Whoever stands by takes over; a pod that is still starting would not be there in time.
    pods[1].0.leadership().wait_for(|seen| seen.role == Some(Role::Standby)).await?;
    pods[0].0.step_down().await?;
    let epoch = leads(&pods[1].0).await?;
    println!("queue: pod-b leads in epoch {epoch}; scheduler: still pod-a");
    assert_eq!(epoch, 2);
    assert!(pods[0].1.leadership().borrow().is_leader());
    for (queue, scheduler) in pods {
        queue.detach().await;
        scheduler.detach().await;
    }
    Ok(())
}
