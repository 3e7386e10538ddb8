//! The parts of the overview that are the same whoever leads.

use crate::cached::Aged;
use crate::history::StoreTrouble;
use crate::state::Shared;
use crate::store_reads::JobFacts;
use serde::Serialize;
use std::collections::BTreeMap;
use tenure::clock::millis;
use tenure::job::JobState;
use tenure::metrics::{ClusterMetrics, Requests};
use tenure::worker::WorkerInfo;
use utoipa::ToSchema;

/// Most workers listed; `/v1/workers` has all of them.
const WORKERS_LISTED: usize = 200;

/// The store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreView {
    /// Where it is.
    pub name: String,
    /// It answers the election of this node.
    pub answers: bool,
    /// Since when it does not.
    pub since: Option<String>,
    /// Why not, as far as this node can tell.
    pub detail: Option<String>,
}

/// The bill of the whole cluster, as its nodes publish it with their presences. What worker processes without a node ask is not
/// in it.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BillView {
    /// How many nodes are counted.
    pub nodes: u64,
    /// Requests a second.
    pub per_second: f64,
    /// Those billed as writes.
    pub writes_per_second: f64,
    /// Those billed as reads.
    pub reads_per_second: f64,
    /// Dollars for 30 days at these rates.
    pub cost_per_month: f64,
    /// How old this is.
    pub age_ms: u64,
}

impl BillView {
    pub(super) fn new(found: &Aged<ClusterMetrics>) -> BillView {
        let totals = &found.value.totals;
        BillView {
            nodes: totals.nodes,
            per_second: totals.requests_per_second,
            writes_per_second: totals.writes_per_second,
            reads_per_second: totals.reads_per_second,
            cost_per_month: totals.cost_per_month,
            age_ms: millis(found.age),
        }
    }
}

/// The workers.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkersView {
    /// The epoch of the leader that told of them.
    pub epoch: u64,
    /// Active ones.
    pub active: u64,
    /// Inactive ones.
    pub inactive: u64,
    /// Objects among them that are none.
    pub skipped: u64,
    /// The first 200.
    pub list: Vec<WorkerView>,
}

/// A worker, as a node knows it.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Its id.
    pub worker_id: String,
    /// The plugin it works for.
    pub plugin_type: String,
    /// The pod it runs on.
    pub pod: String,
    /// How long it may stay silent before it counts as inactive.
    pub timeout: u64,
    /// `active` or `inactive`.
    pub state: &'static str,
}

impl From<&WorkerInfo> for WorkerView {
    fn from(worker: &WorkerInfo) -> WorkerView {
        WorkerView {
            worker_id: worker.worker_id.to_string(),
            plugin_type: worker.plugin_type.to_string(),
            pod: worker.pod.to_string(),
            timeout: millis(worker.timeout),
            state: if worker.active { "active" } else { "inactive" },
        }
    }
}

/// Heartbeats.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeats {
    /// How often there is one.
    pub interval_ms: u64,
    /// So far.
    pub count: u64,
    /// Half of the newest hundred took no longer.
    pub p50_ms: Option<u64>,
    /// 99 % of the newest hundred took no longer.
    pub p99_ms: Option<u64>,
    /// The newest hundred, the oldest first.
    pub samples_ms: Vec<u64>,
}

/// Requests and their cost.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestsView {
    /// For the seat.
    pub lease: Requests,
    /// For everything else.
    pub bulk: Requests,
    /// A second, lately.
    pub per_second: f64,
    /// Those billed as writes.
    pub writes_per_second: f64,
    /// Those billed as reads.
    pub reads_per_second: f64,
    /// Dollars for 30 days at these rates, for this node.
    pub cost_per_month: f64,
    /// How long the rates were measured.
    pub measured_ms: u64,
}

/// Contention.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contention {
    /// Whether it is looked for.
    pub enabled: bool,
    /// How long a heartbeat cycle must take to count.
    pub threshold_ms: u64,
    /// Heartbeat cycles that took too long.
    pub events: u64,
    /// Tasks refused because of their epoch.
    pub epoch_drift_events: u64,
}

/// Schedules in numbers.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulesView {
    /// All.
    pub total: u64,
    /// Those that create jobs.
    pub enabled: u64,
    /// Those that cannot be understood.
    pub refused: u64,
    /// Those that fail.
    pub failing: u64,
    /// When the next job is to begin, in ms since 1970.
    pub next: Option<u64>,
    /// How old this is.
    pub age_ms: u64,
}

/// Jobs in numbers.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobsView {
    /// Open ones and those that ended lately.
    pub total: u64,
    /// Open ones.
    pub open: u64,
    /// Those that wait for a worker, or for their time.
    pub waiting: u64,
    /// Those that are out at workers.
    pub running: u64,
    /// Those whose attempts are used up.
    pub dead: u64,
    /// Submitted ones that have waited for a minute although no active worker may run them.
    pub stranded: u64,
    /// By state.
    pub by_state: BTreeMap<String, u64>,
    /// How old this is.
    pub age_ms: u64,
}

impl JobsView {
    pub(super) fn new(found: &Aged<JobFacts>) -> JobsView {
        let jobs = &found.value;
        let counted = |wanted: fn(JobState) -> bool| {
            let states = JobState::ALL.iter().filter(|state| wanted(**state));
            states.filter_map(|state| jobs.by_state.get(state.as_str())).sum()
        };
        JobsView {
            total: jobs.total as u64,
            open: jobs.open as u64,
            waiting: counted(|state| state == JobState::Queued),
            running: counted(JobState::is_out),
            dead: counted(JobState::is_dead),
            stranded: jobs.stranded.0,
            by_state: jobs.by_state.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect(),
            age_ms: millis(found.age),
        }
    }
}

pub(super) fn store(state: &Shared, trouble: Option<StoreTrouble>) -> StoreView {
    let answers = !state.leadership.borrow().store_trouble;
    let (since, detail) = trouble.filter(|_| !answers).map(|trouble| (trouble.since, trouble.detail)).unzip();
    StoreView { name: state.store.lanes.bulk.describe(), answers, since, detail }
}

pub(super) fn workers(state: &Shared) -> WorkersView {
    let workers = state.workers.borrow();
    WorkersView {
        epoch: workers.epoch,
        active: workers.active,
        inactive: workers.inactive,
        skipped: workers.skipped,
        list: workers.list.iter().take(WORKERS_LISTED).map(WorkerView::from).collect(),
    }
}
