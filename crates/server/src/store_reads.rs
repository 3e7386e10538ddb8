//! Reads from the store on behalf of all clients. Writes nothing.
//!
//! All reads use the bulk lane, so no client request can delay a renewal.

use crate::cached::{Aged, Cached, CountedRead};
use crate::options::Limits;
use crate::problem::{Answer, Problem};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tenure::admin::{LeaderStatus, Status};
use tenure::id::{CheckName, JobId, Namespace, SeriesId};
use tenure::job::{JobHistory, JobList, JobRecord, Queue, QueueInfo};
use tenure::metrics::ClusterMetrics;
use tenure::plugin::NodeHandle;
use tenure::store::{Lanes, Meter, Metered, Store, StoreUrl};
use tenure::worker::WorkerList;
use tenure_plugins::checks::Health;
use tenure_plugins::cluster_health::HealthView;
use tenure_plugins::schedules::{JobInfo, JobRow, Schedules, is_stranded, schedule_of};
use tenure_plugins::terms::TermsView;
use tokio::runtime::Handle;
use utoipa::ToSchema;

/// Most jobs shown, and as many more of those that run and of those that ended without success.
pub(crate) const JOBS_MAX: usize = 1000;

/// The age of a document that is to be as fresh as possible.
pub(crate) const FRESH: Duration = Duration::ZERO;

/// How much longer than other documents the figures of all nodes are kept: they change slowly.
const FIGURES_KEPT: u32 = 6;

/// A file is near and bills nothing: so much of the time that requests to a bucket earn.
const FILE_SHARE: u32 = 10;

/// A node that missed so many presences is not counted.
const PRESENCES_MISSED: u32 = 3;

/// Most inboxes searched for jobs.
const INBOXES_MAX: usize = 64;

/// Access to the store, without the lane of the leases.
#[derive(Clone)]
pub(crate) struct StoreAccess {
    pub(crate) lanes: Lanes,
    pub(crate) namespace: Namespace,
    /// The only runtime that talks to the store: the connections of its pools live on it.
    pub(crate) runtime: Handle,
}

impl StoreAccess {
    pub(crate) fn new(lanes: &Lanes, namespace: Namespace, runtime: Handle) -> StoreAccess {
        let bulk = &lanes.bulk;
        StoreAccess { lanes: Lanes { lease: Arc::clone(bulk), bulk: Arc::clone(bulk) }, namespace, runtime }
    }

    pub(crate) fn counted(&self, meter: &Meter) -> StoreAccess {
        let store: Arc<dyn Store> = Arc::new(Metered::new(Arc::clone(&self.lanes.bulk), meter.clone()));
        StoreAccess { lanes: Lanes { lease: Arc::clone(&store), bulk: store }, ..self.clone() }
    }

    pub(crate) fn schedules(&self) -> Schedules {
        Schedules::new(Arc::clone(&self.lanes.bulk), &self.namespace)
    }
}

/// Who leads, which nodes exist, and what the leader says about them.
pub(crate) struct Cluster {
    pub(crate) status: Status,
    pub(crate) health: Answer<HealthView>,
}

pub(crate) struct Serialized<T> {
    pub(crate) body: Bytes,
    pub(crate) facts: T,
}

/// The schedules in numbers.
pub(crate) struct ScheduleFacts {
    pub(crate) total: usize,
    pub(crate) enabled: usize,
    pub(crate) refused: usize,
    pub(crate) failing: usize,
    pub(crate) next_ms: Option<u64>,
}

pub(crate) struct JobFacts {
    pub(crate) rows: Vec<(SeriesId, JobInfo)>,
    pub(crate) queues: Vec<QueueInfo>,
    pub(crate) total: usize,
    pub(crate) open: usize,
    pub(crate) by_state: BTreeMap<&'static str, u64>,
    /// How many [`stranded`] ones, and why the oldest of them waits.
    pub(crate) stranded: (u64, String),
    pub(crate) unreadable: Vec<String>,
}

impl JobFacts {
    /// A job of the list, and its series.
    pub(crate) fn find(&self, job: &JobId) -> Option<&(SeriesId, JobInfo)> {
        self.rows.iter().find(|(_, row)| row.id == job.as_str())
    }
}

/// The documents that need the store.
pub(crate) struct StoreReads {
    store: StoreAccess,
    node: NodeHandle,
    cluster: Cached<Cluster>,
    workers: Cached<Serialized<WorkerList>>,
    schedules: Cached<Serialized<ScheduleFacts>>,
    jobs: Cached<JobFacts>,
    figures: Cached<ClusterMetrics>,
    terms: Cached<TermsView>,
}

impl StoreReads {
    pub(crate) fn new(store: StoreAccess, node: NodeHandle, limits: &Limits) -> StoreReads {
        let is_file = matches!(node.settings().store, StoreUrl::Sqlite { .. });
        let (fresh, per_request) =
            (limits.fresh, limits.fresh_per_request / if is_file { FILE_SHARE } else { 1 });
        StoreReads {
            store,
            node,
            cluster: Cached::new(fresh, per_request),
            workers: Cached::new(fresh, per_request),
            schedules: Cached::new(fresh, per_request),
            jobs: Cached::new(fresh, per_request),
            figures: Cached::new(fresh * FIGURES_KEPT, per_request * FIGURES_KEPT),
            terms: Cached::new(fresh, per_request),
        }
    }

    pub(crate) async fn cluster(&self, most: Duration) -> Answer<Aged<Cluster>> {
        // A newer epoch seen by this node makes what was read before stale.
        let epoch = self.node.leadership().borrow().epoch;
        let outdated = self.cluster.last().is_some_and(|last| last.value.status.epoch < epoch);
        let most = if outdated { FRESH } else { most };
        if outdated {
            self.cluster.stale();
        }
        let node = self.node.clone();
        self.cluster
            .get_within(most, &self.store.runtime, || counted(&self.store, move |store| cluster(store, node)))
            .await
    }

    /// Who led, and why each term ended.
    pub(crate) async fn terms(&self) -> Answer<Aged<TermsView>> {
        // A newer epoch seen by this node makes what was read before stale.
        let epoch = self.node.leadership().borrow().epoch;
        if self.terms.last().is_some_and(|last| last.value.epoch < epoch) {
            self.terms.stale();
        }
        let read = |store: StoreAccess| async move {
            Answer::Ok(TermsView::read_from(&store.lanes, &store.namespace).await?)
        };
        self.terms.get(&self.store.runtime, || counted(&self.store, read)).await
    }

    pub(crate) async fn workers(&self) -> Answer<Aged<Serialized<WorkerList>>> {
        self.workers.get(&self.store.runtime, || counted(&self.store, workers)).await
    }

    pub(crate) async fn schedules(&self, most: Duration) -> Answer<Aged<Serialized<ScheduleFacts>>> {
        self.schedules.get_within(most, &self.store.runtime, || counted(&self.store, schedules)).await
    }

    pub(crate) async fn jobs(&self, most: Duration) -> Answer<Aged<JobFacts>> {
        self.jobs.get_within(most, &self.store.runtime, || counted(&self.store, jobs)).await
    }

    /// What all nodes have published about themselves.
    pub(crate) async fn figures(&self, most: Duration) -> Answer<Aged<ClusterMetrics>> {
        let stale_after = self.node.settings().presence_interval * PRESENCES_MISSED;
        let read = move |store: StoreAccess| async move {
            Answer::Ok(ClusterMetrics::read(&store.lanes, &store.namespace, stale_after).await?)
        };
        self.figures.get_within(most, &self.store.runtime, || counted(&self.store, read)).await
    }

    pub(crate) fn last_cluster(&self) -> Option<Aged<Cluster>> {
        self.cluster.last()
    }

    pub(crate) fn last_schedules(&self) -> Option<Aged<Serialized<ScheduleFacts>>> {
        self.schedules.last()
    }

    pub(crate) fn last_jobs(&self) -> Option<Aged<JobFacts>> {
        self.jobs.last()
    }

    pub(crate) fn last_figures(&self) -> Option<Aged<ClusterMetrics>> {
        self.figures.last()
    }

    pub(crate) fn schedules_changed(&self) {
        self.schedules.stale();
    }
}

/// Runs a read and counts its requests.
fn counted<T, F, W>(
    store: &StoreAccess,
    how: F,
) -> impl Future<Output = CountedRead<T>> + Send + 'static + use<T, F, W>
where
    F: FnOnce(StoreAccess) -> W + Send + 'static,
    W: Future<Output = Answer<T>> + Send + 'static,
    T: 'static,
{
    let meter = Meter::default();
    let store = store.counted(&meter);
    async move {
        let outcome = how(store).await;
        CountedRead { outcome, requests: meter.snapshot().requests() }
    }
}

/// The node already takes part or watches, so it need not watch the holder again to know whether it is alive.
async fn cluster(store: StoreAccess, node: NodeHandle) -> Answer<Cluster> {
    let mut status = Status::read_at(&store.lanes, &store.namespace, Duration::ZERO).await?;
    let epoch = status.epoch;
    if let Some(leader) = &mut status.leader {
        (leader.live, leader.watched_ms) = (is_seen_alive(&node, leader, epoch), leader.lease_hold);
    }
    let health = HealthView::read_with(&store.lanes, &store.namespace, &status).await.map_err(Problem::from);
    Ok(Cluster { status, health })
}

/// Whether this node leads itself, or has seen the leader renew within its hold.
fn is_seen_alive(node: &NodeHandle, leader: &LeaderStatus, epoch: u64) -> bool {
    let leadership = node.leadership();
    let known = leadership.borrow();
    let same =
        known.epoch == epoch && known.leader.as_ref().is_some_and(|known| known.as_str() == leader.node);
    let lately =
        node.leader_silent().is_some_and(|silent| silent <= Duration::from_millis(leader.lease_hold));
    same && (known.is_leader() || lately)
}

async fn workers(store: StoreAccess) -> Answer<Serialized<WorkerList>> {
    let list = WorkerList::read(&store.lanes, &store.namespace).await?;
    Ok(Serialized { body: bytes_of(&list), facts: list })
}

/// The schedules.
#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduleList {
    namespace: String,
    /// Each as stored, with `next`: when its next job should begin, in ms since 1970, in its `zone`; `failing`: how many of its
    /// checks fail; `last`: its last run; `runs`: the states in which the last thirty ended, oldest first.
    #[schema(value_type = Vec<Object>)]
    schedules: Vec<Value>,
    refused: Vec<RefusedSchedule>,
}

/// A schedule that is not acted on.
#[derive(Serialize, ToSchema)]
pub(crate) struct RefusedSchedule {
    id: String,
    problems: Vec<String>,
}

async fn schedules(store: StoreAccess) -> Answer<Serialized<ScheduleFacts>> {
    let all = store.schedules().list().await?;
    let health = if all.is_empty() { Health::default() } else { store.schedules().health().await? };
    let runs = match all.is_empty() {
        true => BTreeMap::new(),
        false => JobHistory::new(&store.lanes, &store.namespace).runs().await?,
    };
    let now_ms = now_ms();
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    let mut facts = ScheduleFacts { total: all.len(), enabled: 0, refused: 0, failing: 0, next_ms: None };
    for (id, read) in &all {
        match read {
            Ok(schedule) => {
                facts.enabled += usize::from(schedule.enabled);
                let next = schedule.next_ms(now_ms);
                facts.next_ms = [facts.next_ms, next].into_iter().flatten().min();
                let judged = health.of(id);
                let fails = |name: &CheckName| judged.get(name).is_some_and(|check| check.failing);
                let failing = schedule.checks.iter().filter(|check| fails(&check.name)).count();
                let runs = runs.get(&id.series());
                let lost = runs.is_some_and(|runs| runs.last.state.is_undone());
                facts.failing += usize::from(schedule.enabled && (failing > 0 || lost));
                let mut row = schedule.to_row(runs, now_ms);
                row["failing"] = json!(failing);
                rows.push(row);
            }
            Err(problems) => {
                facts.refused += 1;
                let problems: Vec<String> = problems.all().iter().map(ToString::to_string).collect();
                refused.push(RefusedSchedule { id: id.to_string(), problems });
            }
        }
    }
    let body = ScheduleList { namespace: store.namespace.to_string(), schedules: rows, refused };
    Ok(Serialized { body: bytes_of(&body), facts })
}

async fn jobs(store: StoreAccess) -> Answer<JobFacts> {
    let mut list = JobList::read(&store.lanes, &store.namespace).await?;
    list.ask_workers(&store.lanes, &store.namespace, INBOXES_MAX).await?;
    let queues = Queue::all(&list).iter().map(Queue::info).collect();
    let jobs = JobRow::newest(std::mem::take(&mut list.jobs), usize::MAX);
    let (total, open) = (jobs.len(), jobs.iter().filter(|job| !job.state.is_final()).count());
    let mut by_state = BTreeMap::new();
    for job in &jobs {
        *by_state.entry(job.state.as_str()).or_insert(0) += 1;
    }
    let now_ms = now_ms();
    let stranded = stranded(&jobs, now_ms);
    let rows = JobRow::all(&store.schedules(), worth_showing(jobs)).await?;
    Ok(JobFacts {
        rows: rows.iter().map(|row| (row.record.series.clone(), row.info(now_ms))).collect(),
        queues,
        total,
        open,
        by_state,
        stranded,
        unreadable: list.unreadable.iter().map(|(key, why)| format!("{key}: {why}")).collect(),
    })
}

/// How many jobs of no schedule wait in vain, and why the oldest does. The leader's health tells those of schedules.
fn stranded(newest_first: &[JobRecord], now_ms: u64) -> (u64, String) {
    let found = newest_first.iter().filter(|job| is_stranded(job, now_ms) && schedule_of(job).is_none());
    let oldest = found.clone().next_back();
    (found.count() as u64, oldest.map_or(String::new(), |job| job.reason.to_string()))
}

/// The newest jobs, and those that people look for among many that wait: the ones that run, and the ones that went wrong.
fn worth_showing(newest_first: Vec<JobRecord>) -> Vec<JobRecord> {
    let (mut running, mut undone) = (0, 0);
    let mut shown = Vec::new();
    for (place, job) in newest_first.into_iter().enumerate() {
        running += usize::from(job.state.is_out());
        undone += usize::from(job.state.is_undone());
        let sought = job.state.is_out() && running <= JOBS_MAX || job.state.is_undone() && undone <= JOBS_MAX;
        if place < JOBS_MAX || sought {
            shown.push(job);
        }
    }
    shown
}

pub(crate) fn bytes_of(value: &impl serde::Serialize) -> Bytes {
    // Only a map with non-string keys could fail, and there is none.
    serde_json::to_vec(value).unwrap_or_default().into()
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::job::JobSpec;

    #[test]
    fn only_jobs_of_no_schedule_are_counted_as_stranded_and_the_oldest_says_why() {
        let job = |id: &str, series: Option<&str>, reason: &str| {
            let spec = JobSpec::new(id, "send");
            let spec = series.into_iter().fold(spec, JobSpec::series);
            JobRecord { reason: reason.into(), submitted_ms: 1000, ..spec.record().expect("valid") }
        };
        let jobs = [
            job("m3", None, "every worker that could run it is busy"),
            job("m2", None, "no active worker takes jobs"),
            job("nightly-1000", Some("nightly"), "no active worker takes jobs"),
            job("m1", None, "no active worker serves queue mail"),
        ];
        assert_eq!(stranded(&jobs, 61_000), (2, "no active worker serves queue mail".to_owned()));
        assert_eq!(stranded(&jobs, 60_000), (0, String::new()));
    }
}
