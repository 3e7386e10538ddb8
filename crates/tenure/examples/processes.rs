//! Leader-only processes, supervised: `cargo run -p tenure --example processes`.
//!
//! Two pods, each with the same two processes. Only the leader's run. One of them falls over and is started again; then the
//! leader shuts down, and the other pod's processes take over.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::sync::Arc;
use std::time::Duration;
use tenure::process::{ProcessContext, ProcessSpec, Restart, Supervisor};
use tenure::settings::Preset;
use tenure::store::{Lanes, MemoryStore};
use tenure::{LeadershipEnded, Node, Settings};

/// Watches the cluster; the poller starts only once it is ready.
fn cluster_health(pod: &'static str) -> ProcessSpec {
    ProcessSpec::new("cluster-health", move |context: ProcessContext| async move {
        println!("{pod}: cluster-health runs in epoch {}", context.epoch());
        context.ready();
        context.cancelled().await;
        println!("{pod}: cluster-health stops");
        Ok::<_, LeadershipEnded>(())
    })
    .ready_signal()
}

/// Hands out work, and falls over once.
fn poll_orchestrator(pod: &'static str) -> ProcessSpec {
    ProcessSpec::new("poll-orchestrator", move |context: ProcessContext| async move {
        println!("{pod}: poll-orchestrator runs in epoch {} (start {})", context.epoch(), context.attempt());
        let mut polls = 0;
        while !context.is_cancelled() {
            context.check().map_err(|ended| ended.to_string())?; // right before each side effect
            polls += 1;
            if polls == 3 && context.epoch() == 1 && context.attempt() == 1 {
                return Err("the agent did not answer".to_owned());
            }
            tokio::select! {
                () = context.cancelled() => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
        println!("{pod}: poll-orchestrator stops after {polls} polls");
        Ok(())
    })
    .restart(Restart::Permanent)
    .stop_grace(Duration::from_millis(500))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(MemoryStore::new());
    let mut pods = Vec::new();
    for pod in ["pod-a", "pod-b"] {
        let settings = Settings::builder().namespace("horizon").node(pod).preset(Preset::Fast);
        let settings = settings.startup_jitter_max(Duration::ZERO).build()?;
        let node = Node::builder(settings).lanes(Lanes::same(store.clone())).start().await?;
        let supervisor = Supervisor::new([cluster_health(pod), poll_orchestrator(pod)]);
        let processes = supervisor.intensity(3, Duration::from_secs(30)).run(&node)?;
        pods.push((node, processes));
    }
    let (leader, processes) = pods.remove(0);
    let mut status = processes.status();
    let again =
        |restarts: u64| move |now: &tenure::process::SupervisorStatus| now.processes[1].restarts == restarts;
    let failure = status.wait_for(again(1)).await?.processes[1].last_failure.clone();
    println!("pod-a: restarted after {:?}", failure.as_deref().unwrap_or_default());
    tokio::time::sleep(Duration::from_millis(200)).await;

    println!("pod-a shuts down: processes stop in reverse, then the seat is vacated");
    leader.shutdown().await;
    let (node, processes) = &pods[0];
    assert!(processes.running("poll-orchestrator").await);
    println!("{}: {}", node.id(), *processes.status().borrow());
    Ok(())
}
