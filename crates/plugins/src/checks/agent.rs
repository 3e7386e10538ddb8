//! The agent's side: runs jobs of kind `poll`. Give its handler to a job runner whose worker describes itself
//! in its payload.

use super::check::{Check, DnsCheck, HttpCheck, JobRun, TcpCheck};
use super::link_local::LinkLocal;
use super::report::{CheckResult, JobReport};
use crate::schedules::CHECKS_KIND;
use crate::schedules::problem::shortened;
use crate::schedules::read::{self, KINDS, Rules};
use crate::schedules::schedule::{CheckSpec, VERSION};
use crate::schedules::tree::Tree;
use crate::work::Commands;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::millis;
use tenure::id::IdError;
use tenure::id::KindName;
use tenure::job::{AllowedCommand, Handlers, JobContext, JobOutcome};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The checks an agent can run. By default: `tcp`, `dns` and `http`, and no link-local addresses.
///
/// ```
/// use tenure::job::Handlers;
/// use tenure_plugins::checks::Checks;
/// # fn main() -> Result<(), String> {
/// let handlers = Checks::new()?.commands(["/usr/bin/df -h *".parse()?]).handle(Handlers::new());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Checks {
    kinds: BTreeMap<String, Arc<dyn Check>>,
    rules: Rules,
}

impl std::fmt::Debug for Checks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}

impl Checks {
    /// `tcp`, `dns` and `http`. Fails if no HTTP client can be created.
    pub fn new() -> Result<Checks, String> {
        Checks::reaching(LinkLocal::Denied)
    }

    /// Like [`new`](Checks::new), with a choice about link-local addresses.
    pub fn reaching(link_local: LinkLocal) -> Result<Checks, String> {
        let mut checks = Checks::none();
        checks.kinds.insert("tcp".to_owned(), Arc::new(TcpCheck::new(link_local)));
        checks.kinds.insert("dns".to_owned(), Arc::new(DnsCheck));
        checks.kinds.insert("http".to_owned(), Arc::new(HttpCheck::new(link_local)?));
        Ok(checks)
    }

    /// No checks at all.
    pub fn none() -> Checks {
        Checks { kinds: BTreeMap::new(), rules: Rules::default() }
    }

    /// Allows checks of kind `command`, for these commands. Anybody who may write schedules can then make this machine run them.
    pub fn commands(mut self, allowed: impl IntoIterator<Item = AllowedCommand>) -> Checks {
        self.kinds.insert("command".to_owned(), Arc::new(Commands::new(allowed)));
        self
    }

    /// Adds a custom kind, or replaces how a built-in kind is checked.
    pub fn on(mut self, kind: &str, check: impl Check) -> Result<Checks, IdError> {
        if !KINDS.contains(&kind) {
            self.rules.own_kinds.insert(KindName::new(kind)?);
        }
        self.kinds.insert(kind.to_owned(), Arc::new(check));
        Ok(self)
    }

    /// Adds the handler for jobs.
    pub fn handle(self, handlers: Handlers) -> Handlers {
        let checks = Arc::new(self);
        handlers.on(CHECKS_KIND, move |context: JobContext| {
            let checks = Arc::clone(&checks);
            async move { checks.run(&context).await }
        })
    }

    async fn run(&self, context: &JobContext) -> JobOutcome {
        let Some(job) = Job::read(&context.payload, &self.rules) else {
            return JobOutcome::failed("this agent cannot read the job: another version wrote it");
        };
        let facts = JobRun::of(context);
        let checks = tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return JobOutcome::failed("cancelled"),
            results = self.all(&facts, job.checks) => results,
        };
        let well = checks.iter().filter(|check| check.ok).count();
        let count = checks.len();
        let result = JobReport { due_ms: job.due_ms, names: job.names, checks }.to_result();
        match well {
            well if well == count => JobOutcome::succeeded(result),
            0 => JobOutcome::failed(result),
            _ => JobOutcome::partial(result),
        }
    }

    /// Runs all checks of a job at once (a schedule has at most 32); results come in the order of the checks.
    async fn all(&self, job: &JobRun, checks: Vec<Result<CheckSpec, String>>) -> Vec<CheckResult> {
        let failed = |detail: &str| CheckResult { ok: false, latency_ms: 0, detail: shortened(detail) };
        let mut results = vec![failed("it panicked"); checks.len()];
        let mut running = JoinSet::new();
        for (place, check) in checks.into_iter().enumerate() {
            let spec = match check {
                Ok(spec) => spec,
                Err(why) => {
                    results[place] = failed(&why);
                    continue;
                }
            };
            let Some(check) = self.kinds.get(spec.action.kind()).cloned() else {
                results[place] =
                    failed(&format!("this agent does not run checks of kind {}", spec.action.kind()));
                continue;
            };
            // Each check is a task of its own, so a panic affects only that check. All end with the set.
            let job = job.clone();
            running.spawn(async move { (place, one(check.as_ref(), &job, &spec).await) });
        }
        while let Some(done) = running.join_next().await {
            if let Ok((place, result)) = done {
                results[place] = result;
            }
        }
        results
    }
}

async fn one(check: &dyn Check, job: &JobRun, spec: &CheckSpec) -> CheckResult {
    let (began, limit) = (Instant::now(), Duration::from_millis(spec.timeout_ms));
    let done = tokio::time::timeout(limit, check.check(job, spec)).await;
    let detail = match done {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(shortened(&why)),
        Err(_) => Some(format!("no answer within {} ms", spec.timeout_ms)),
    };
    CheckResult {
        ok: detail.is_none(),
        latency_ms: millis(began.elapsed()),
        detail: detail.unwrap_or_default(),
    }
}

impl JobRun {
    pub(crate) fn of(context: &JobContext) -> JobRun {
        JobRun { job: context.id.clone(), attempt: context.attempt, epoch: context.epoch }
    }
}

/// The payload of a job.
struct Job {
    due_ms: u64,
    names: String,
    /// A check that this agent does not understand fails; the others still run.
    checks: Vec<Result<CheckSpec, String>>,
}

impl Job {
    fn read(payload: &[u8], rules: &Rules) -> Option<Job> {
        let value: Value = serde_json::from_slice(payload).ok()?;
        if value.get("v")?.as_u64()? != VERSION {
            return None;
        }
        let checks = value.get("checks")?.as_array()?.iter();
        let read =
            |check| read::job_check(&Tree::from_json(check), rules).map_err(|faults| faults.to_string());
        Some(Job {
            due_ms: value.get("due")?.as_u64()?,
            names: value.get("names")?.as_str()?.to_owned(),
            checks: checks.map(read).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
