//! Component probes: what an application adds to the health of its cluster.

use super::document::ProbeHealth;
use std::sync::Arc;
use std::time::Duration;
use tenure::async_trait;
use tokio::task::JoinSet;

/// A check of something the cluster depends on: a database, a queue, a disk. Run by the leader, once a look.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// Its name: short, and different from the others'.
    fn name(&self) -> &str;

    /// Whether a failure is `critical` and not only `degraded`.
    fn is_critical(&self) -> bool {
        false
    }

    /// Checks. One that takes too long is cut off where it awaits and has failed, as has one that panics.
    async fn check(&self) -> ProbeResult;
}

/// What a probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeResult {
    /// All is well.
    pub ok: bool,
    /// For people, one line. A change of it alone is not published at once.
    pub detail: String,
}

impl ProbeResult {
    /// All is well.
    pub fn ok() -> ProbeResult {
        ProbeResult { ok: true, detail: String::new() }
    }

    /// It is not.
    pub fn failed(detail: impl Into<String>) -> ProbeResult {
        ProbeResult { ok: false, detail: detail.into() }
    }
}

/// Runs them all at once; the outcomes in the order of the probes.
pub(super) async fn run_all(probes: &[Arc<dyn Probe>], limit: Duration) -> Vec<ProbeHealth> {
    let mut running = JoinSet::new();
    for (at, probe) in probes.iter().enumerate() {
        let probe = Arc::clone(probe);
        running.spawn(async move {
            let result = tokio::time::timeout(limit, probe.check()).await;
            (at, result.unwrap_or_else(|_| ProbeResult::failed("no answer in time")))
        });
    }
    let outcome = |probe: &Arc<dyn Probe>| ProbeHealth {
        name: probe.name().chars().take(128).collect(),
        ok: false,
        critical: probe.is_critical(),
        detail: "the probe panicked".to_owned(),
    };
    let mut found: Vec<ProbeHealth> = probes.iter().map(outcome).collect();
    while let Some(ended) = running.join_next().await {
        if let Ok((at, result)) = ended {
            let line = result.detail.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200);
            (found[at].ok, found[at].detail) = (result.ok, line.collect());
        }
    }
    found
}
