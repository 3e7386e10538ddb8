//! Real processes of this very binary, and what they say of themselves.

use crate::exit::Failure;
use crate::out::complain;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;
use tenure::store::{OpenOptions, Remove, TroubleKind};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// Nodes that run hold a database file for less; a fraction of a lease, so that none is lost by waiting.
const FREE_WITHIN: Duration = Duration::from_millis(400);

/// One thing a node said: the event as it stands on the wire.
pub(super) struct Said {
    pub(super) node: String,
    pub(super) event: Value,
}

impl Said {
    /// The event's name without its prefix.
    pub(super) fn name(&self) -> &str {
        let name = self.event["event"].as_str().unwrap_or("");
        name.rsplit_once('.').map_or(name, |(_, last)| last)
    }

    pub(super) fn number(&self, field: &str) -> u64 {
        self.event[field].as_u64().unwrap_or(0)
    }
}

pub(super) struct Cluster {
    store: String,
    namespace: String,
    children: BTreeMap<String, Child>,
    said: mpsc::UnboundedReceiver<Said>,
    mouth: mpsc::UnboundedSender<Said>,
}

impl Cluster {
    pub(super) fn new(store: String) -> Cluster {
        let (mouth, said) = mpsc::unbounded_channel();
        let namespace = format!("demo-{:08x}", rand::random::<u32>());
        Cluster { store, namespace, children: BTreeMap::new(), said, mouth }
    }

    /// Starts a node with the fast preset, so that the story fits into a minute.
    pub(super) fn start(&mut self, node: &str) -> Result<(), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([
                "run",
                "--events",
                "--no-http",
                "--log",
                "off",
                "--preset",
                "fast",
                "--startup-jitter-max",
                "0",
            ])
            .args(["--store", &self.store, "--namespace", &self.namespace, "--node", node])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::other("cannot read the node's output"))?;
        let (mouth, name) = (self.mouth.clone(), node.to_owned());
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(event) = serde_json::from_str(&line) {
                    let _ = mouth.send(Said { node: name.clone(), event });
                }
            }
        });
        self.children.insert(node.to_owned(), child);
        Ok(())
    }

    pub(super) async fn next(&mut self) -> Option<Said> {
        self.said.recv().await
    }

    pub(super) fn signal(&self, node: &str, signal: Signal) -> Result<(), Failure> {
        let child = self.children.get(node).and_then(Child::id);
        let pid = child.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::other(format!("{node} is not running")))?;
        kill_process(pid, signal).map_err(|error| Failure::other(format!("cannot signal {node}: {error}")))
    }

    /// Stops a node for a while. Never in the middle of a write to a file, which would keep the file locked for all the
    /// others; an object store knows no such lock.
    pub(super) async fn freeze(&self, node: &str) -> Result<(), Failure> {
        if !self.store.starts_with("sqlite:") {
            return self.signal(node, Signal::STOP);
        }
        let options = OpenOptions::with_request_timeout(FREE_WITHIN);
        let lanes = tenure::store::open_str(&self.store, &options).await?;
        loop {
            self.signal(node, Signal::STOP)?;
            // Takes the lock, and removes nothing.
            match lanes.bulk.remove("nothing").await {
                Remove::Unavailable(trouble) if trouble.kind == TroubleKind::Busy => {
                    self.signal(node, Signal::CONT)?;
                    tokio::time::sleep(FREE_WITHIN / 20).await;
                }
                Remove::Done | Remove::Unknown(_) | Remove::Unavailable(_) | Remove::Denied(_) => {
                    return Ok(());
                }
            }
        }
    }

    /// Waits for a node's process to be gone.
    pub(super) async fn gone(&mut self, node: &str) -> Result<(), Failure> {
        if let Some(mut child) = self.children.remove(node) {
            child.wait().await?;
        }
        Ok(())
    }

    /// Ends whatever still runs, in order where it can.
    pub(super) async fn end(&mut self) {
        for (node, mut child) in std::mem::take(&mut self.children) {
            let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::CONT);
                let _ = kill_process(pid, Signal::TERM);
            }
            let limit = Duration::from_secs(5);
            if tokio::time::timeout(limit, child.wait()).await.is_err() {
                complain!("tenure: {node} did not stop in time; killing it");
                let _ = child.kill().await;
            }
        }
    }
}
