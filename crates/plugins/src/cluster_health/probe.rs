//! Component probes: what an application adds to the health of its cluster.

use super::document::{DETAIL_MAX_CHARS, ProbeHealth};
use crate::schedules::problem::one_line;
use std::sync::Arc;
use std::time::Duration;
use tenure::async_trait;
use tokio::task::JoinSet;

/// Checks something the cluster depends on: a database, a queue, a disk. The leader runs it once per look.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// A short name, unique among the probes.
    fn name(&self) -> &str;

    /// Whether a failure makes the cluster `critical` instead of `degraded`.
    fn is_critical(&self) -> bool {
        false
    }

    /// Runs the check. If it takes too long, it is dropped at an await point and counts as failed; so does a panic.
    async fn check(&self) -> ProbeResult;
}

/// The result of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeResult {
    /// Whether the check passed.
    pub ok: bool,
    /// One line for people. A change of this text alone is not published at once.
    pub detail: String,
}

impl ProbeResult {
    /// The check passed.
    pub fn ok() -> ProbeResult {
        ProbeResult { ok: true, detail: String::new() }
    }

    /// The check failed.
    pub fn failed(detail: impl Into<String>) -> ProbeResult {
        ProbeResult { ok: false, detail: detail.into() }
    }
}

/// Runs all probes at once; results come in the order of the probes.
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
            (found[at].ok, found[at].detail) = (result.ok, one_line(&result.detail, DETAIL_MAX_CHARS));
        }
    }
    found
}
