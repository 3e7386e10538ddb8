//! Workers in any language, kept alive through this node.
//!
//! The library keeps the worker's object fresh as long as the client sends heartbeats. A client that is silent for its timeout is
//! dropped: its worker falls silent, and the leader reports it after another timeout, like any crashed worker. The object's own
//! timeout starts only then, so the end is reported after about two timeouts, and never sooner than one.

use crate::connections::Peer;
use crate::http_jobs::HttpJobs;
use crate::options::Limits;
use crate::problem::{Answer, Problem};
use crate::rate_limit::{RateLimit, Reserved};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::clock::Clock;
use tenure::id::{KindName, QueueName, WorkerId};
use tenure::job::{Handlers, JobRunner, Jobs, RunnerOptions};
use tenure::plugin::NodeHandle;
use tenure::worker::{Worker, WorkerEnd, WorkerPhase, WorkerSpec, WorkerStatus};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// The time limit for each worker to leave.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// How often to check the workers: leases use a different clock than the runtime.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Where a worker stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Membership {
    /// The worker.
    pub worker_id: String,
    /// What names this registration: every later request about the worker carries it.
    pub registration: String,
    /// `registering` (the store has not confirmed it yet) or `registered`.
    pub phase: String,
    /// It may work now: it has its id, and its node leads.
    pub enabled: bool,
    /// The leader's epoch, as this node knows it.
    pub epoch: u64,
    /// How long the node may act if it does not renew; none if it does not lead.
    pub lease_remaining_ms: Option<u64>,
    /// Be heard of again within this, or the worker is let go. A third of it is a good interval.
    pub heartbeat_within_ms: u64,
}

/// What keeps a worker alive.
enum WorkerHandle {
    Worker(Worker),
    Runner(JobRunner),
}

pub(crate) struct HttpWorker {
    pub(crate) id: WorkerId,
    /// Identifies the registration in addition to the id: two clients under one id would otherwise both keep the worker alive. A
    /// client may choose it, so that it can repeat a request whose answer was lost.
    pub(crate) registration: String,
    pub(crate) timeout_ms: u64,
    pub(crate) jobs: Arc<HttpJobs>,
    status: watch::Receiver<WorkerStatus>,
    heard_ms: AtomicU64,
    handle: Mutex<Option<WorkerHandle>>,
    client: Option<Peer>,
    /// The share of the clients' store requests that its heartbeats and looks use.
    _reserved: Reserved,
}

impl HttpWorker {
    fn end(&self) -> Option<WorkerEnd> {
        match &self.status.borrow().phase {
            WorkerPhase::Registering | WorkerPhase::Registered => None,
            WorkerPhase::Ended(end) => Some(end.clone()),
        }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.status.borrow().phase == WorkerPhase::Registered
    }

    /// Waits until the store has confirmed or refused the worker, at most this long.
    pub(crate) async fn settled(&self, patience: Duration) {
        let mut status = self.status.clone();
        let settled = status.wait_for(|status| status.phase != WorkerPhase::Registering);
        let _ = tokio::time::timeout(patience, settled).await;
    }

    fn take(&self) -> Option<WorkerHandle> {
        self.handle.lock().take()
    }

    /// Ends without deregistering.
    fn fall_silent(&self) {
        self.jobs.close();
        match self.take() {
            Some(WorkerHandle::Worker(worker)) => worker.fall_silent(),
            Some(WorkerHandle::Runner(runner)) => runner.worker().fall_silent(),
            None => {}
        }
    }

    /// Removes the worker's object and gives up its jobs: the leader assigns them to others.
    async fn leave(&self) {
        self.jobs.close();
        let leaving = async {
            match self.take() {
                Some(WorkerHandle::Worker(worker)) => drop(worker.deregister().await),
                Some(WorkerHandle::Runner(runner)) => drop(runner.drain().await),
                None => {}
            }
        };
        let _ = tokio::time::timeout(LEAVE_MAX, leaving).await;
    }
}

pub(crate) struct RegistrationRequest {
    pub(crate) id: WorkerId,
    pub(crate) spec: WorkerSpec,
    pub(crate) timeout_ms: u64,
    pub(crate) registration: Option<String>,
    pub(crate) kinds: Vec<KindName>,
    pub(crate) queues: BTreeSet<QueueName>,
    pub(crate) concurrency: usize,
    /// The client's address, if known.
    pub(crate) client: Option<Peer>,
    /// How many store requests per second it causes by itself.
    pub(crate) requests_per_second: f64,
}

/// The workers registered through this node.
pub(crate) struct HttpWorkers {
    node: NodeHandle,
    jobs: Jobs,
    clock: Arc<dyn Clock>,
    rate_limit: Arc<RateLimit>,
    max_workers: usize,
    max_per_client: usize,
    workers: Mutex<BTreeMap<WorkerId, Arc<HttpWorker>>>,
    joined: Notify,
}

impl HttpWorkers {
    pub(crate) fn new(
        node: NodeHandle,
        jobs: Jobs,
        clock: Arc<dyn Clock>,
        rate_limit: Arc<RateLimit>,
        limits: &Limits,
    ) -> HttpWorkers {
        let (max_workers, max_per_client) = (limits.workers, limits.workers_per_client);
        let (workers, joined) = (Mutex::default(), Notify::new());
        HttpWorkers { node, jobs, clock, rate_limit, max_workers, max_per_client, workers, joined }
    }

    /// Registers a worker. Must be called on the node's runtime. `false`: the same registration already exists, and this counted
    /// as a heartbeat.
    pub(crate) fn join(&self, request: RegistrationRequest) -> Answer<(Arc<HttpWorker>, bool)> {
        let mut workers = self.workers.lock();
        if let Some(there) = workers.get(&request.id) {
            let same = request.registration.as_ref() == Some(&there.registration);
            if same && there.end().is_none() {
                self.note_heartbeat(there);
                return Ok((Arc::clone(there), false));
            }
            if there.end().is_none() {
                let detail =
                    format!("another client has already registered worker {} through this node", request.id);
                return Err(Problem::conflict("worker-held", detail));
            }
        }
        let reserved = self.reserve(&workers, &request)?;
        let worker = self.node.register_worker(&request.spec)?;
        let (status, jobs) = (worker.status(), Arc::new(HttpJobs::new(Arc::clone(&self.clock))));
        let handle = if request.kinds.is_empty() {
            WorkerHandle::Worker(worker)
        } else {
            let handlers = request.kinds.iter().fold(Handlers::new(), |handlers, kind| {
                let jobs = Arc::clone(&jobs);
                handlers.on(kind.as_str(), move |context| HttpJobs::offer(Arc::clone(&jobs), context))
            });
            let options =
                RunnerOptions { queues: request.queues, ..RunnerOptions::at_once(request.concurrency) };
            WorkerHandle::Runner(JobRunner::start_with(&self.jobs, worker, handlers, options))
        };
        let member = Arc::new(HttpWorker {
            id: request.id.clone(),
            registration: request.registration.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>())),
            timeout_ms: request.timeout_ms,
            jobs,
            status,
            heard_ms: AtomicU64::new(self.clock.now_ms()),
            handle: Mutex::new(Some(handle)),
            client: request.client,
            _reserved: reserved,
        });
        workers.insert(request.id, Arc::clone(&member));
        self.joined.notify_one();
        Ok((member, true))
    }

    /// Whether there is room for another worker: in this node, for this client, and in the store's request budget.
    fn reserve(
        &self,
        workers: &BTreeMap<WorkerId, Arc<HttpWorker>>,
        request: &RegistrationRequest,
    ) -> Answer<Reserved> {
        let others = || workers.values().filter(|member| member.id != request.id);
        if others().count() >= self.max_workers {
            return Err(Problem::busy(format!(
                "{} workers are registered through this node, which is the limit",
                self.max_workers
            )));
        }
        if others().filter(|member| member.client == request.client).count() >= self.max_per_client {
            let client = request.client.map_or_else(|| "this client".to_owned(), |peer| peer.to_string());
            return Err(Problem::too_many_clients(format!(
                "{} workers are registered through this node by {client}, which is the limit for one address",
                self.max_per_client
            )));
        }
        self.rate_limit.reserve(request.requests_per_second).ok_or_else(|| {
            Problem::too_many_clients(
                "the workers and locks of this node's clients have reached its limit of store requests: register it through another node",
            )
        })
    }

    /// The worker with this id, if the registration matches. The call counts as a heartbeat.
    pub(crate) fn member(&self, id: &WorkerId, registration: &str) -> Answer<Arc<HttpWorker>> {
        let mut workers = self.workers.lock();
        let unknown = || {
            let detail = format!("worker {id} is not registered through this node: register it first");
            Problem::not_found("unknown-worker", detail)
        };
        let member = workers.get(id).cloned().ok_or_else(unknown)?;
        if !same(&member.registration, registration) {
            let detail = format!("worker {id} was registered by another client: the `registration` differs");
            return Err(Problem::conflict("worker-held", detail));
        }
        if let Some(end) = member.end() {
            workers.remove(id);
            drop(workers);
            member.jobs.close();
            return Err(ended(end));
        }
        self.note_heartbeat(&member);
        Ok(member)
    }

    pub(crate) fn note_heartbeat(&self, member: &HttpWorker) {
        member.heard_ms.fetch_max(self.clock.now_ms(), Ordering::AcqRel);
    }

    pub(crate) async fn leave(&self, id: &WorkerId) {
        let member = self.workers.lock().remove(id);
        if let Some(member) = member {
            member.leave().await;
        }
    }

    /// Drops workers that were silent for their timeout. Runs on the node's runtime until the server closes.
    pub(crate) async fn watch(&self, closing: &CancellationToken) {
        while !closing.is_cancelled() {
            let idle = self.workers.lock().is_empty();
            tokio::select! {
                () = closing.cancelled() => return,
                () = self.joined.notified(), if idle => {}
                () = tokio::time::sleep(CHECK_INTERVAL), if !idle => {}
            }
            self.drop_silent();
        }
    }

    fn drop_silent(&self) {
        let now_ms = self.clock.now_ms();
        let mut silent = Vec::new();
        self.workers.lock().retain(|_, member| {
            let heard_ms = member.heard_ms.load(Ordering::Acquire);
            let late = now_ms.saturating_sub(heard_ms) > member.timeout_ms;
            if late {
                silent.push(Arc::clone(member));
            }
            !late
        });
        for member in silent {
            tracing::warn!(target: "tenure", worker = member.id.as_str(), "dropping worker {}: not heard from for {} ms", member.id, member.timeout_ms);
            member.fall_silent();
        }
    }

    /// Deregisters all workers at once.
    pub(crate) async fn deregister_all(&self) {
        let workers = std::mem::take(&mut *self.workers.lock());
        futures::future::join_all(workers.values().map(|member| member.leave())).await;
    }
}

fn same(one: &str, two: &str) -> bool {
    use subtle::ConstantTimeEq;
    one.as_bytes().ct_eq(two.as_bytes()).into()
}

fn ended(end: WorkerEnd) -> Problem {
    match end {
        WorkerEnd::Refused(error) => error.into(),
        WorkerEnd::Superseded { pod, incarnation } => Problem::conflict(
            "worker-held",
            format!("another process on pod {pod} (incarnation {incarnation}) has taken over the id"),
        ),
        WorkerEnd::Deregistered | WorkerEnd::Silent | WorkerEnd::Died | _ => {
            Problem::gone("it has ended; register it again")
        }
    }
}
