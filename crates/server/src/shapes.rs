//! The documents of other crates as the OpenAPI document describes them. Nothing is made from these: the documents are those of
//! the command line, made where their parts are known, and a test holds every answer against its shape.
#![allow(dead_code, reason = "schemas are made from them, and nothing else")]

use crate::overview::NodeRow;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The seat and the presences.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Status {
    namespace: String,
    /// The store, as it describes itself.
    store: String,
    /// The highest epoch on the seat; 0 if there never was a leader.
    epoch: u64,
    /// Who holds the seat, if anybody does.
    leader: Option<Holder>,
    /// The nodes that made themselves known, in order of their ids.
    nodes: Vec<KnownNode>,
}

/// The holder of the seat.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Holder {
    node: String,
    /// Which life of it.
    incarnation: String,
    /// When it claimed, by its own wall clock.
    since: Option<String>,
    lease_hold: u64,
    lease_expiry: u64,
    /// Renewals since the claim.
    renewals: u64,
    /// Somebody asked it to step down.
    asked_to_step_down: bool,
    /// It was seen to renew. If not, the seat did not change while it was watched.
    live: bool,
    /// For how long it was watched at most. Less than its lease: that it was not seen to renew says little.
    watched_ms: u64,
}

/// A node that made itself known.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct KnownNode {
    node: String,
    /// `leader`, `standby`, or `gone`.
    role: String,
    /// How long ago it was last heard of, by the store's clock.
    last_seen_ms_ago: u64,
}

/// The nodes.
#[derive(ToSchema)]
pub(crate) struct Nodes {
    namespace: String,
    nodes: Vec<NodeRow>,
}

/// How the cluster is doing, as its leader judges.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Health {
    namespace: String,
    /// `healthy`, `degraded`, `critical`, or `unknown`.
    status: String,
    reasons: Vec<HealthReason>,
    /// The epoch of the leader that published it; 0 if nobody did.
    epoch: u64,
    /// Rises with every document of an epoch.
    sequence: u64,
    /// How much older it is than the newest renewal of the seat.
    age_ms: Option<u64>,
    /// That renewal by the store's clock, in ms since 1970.
    store_time: Option<u64>,
    /// The leader, if one was seen to live.
    leader: Option<String>,
    /// Somebody alive stands behind it.
    fresh: bool,
    nodes: Vec<NodeHealth>,
    workers: WorkersHealth,
    probes: Vec<Probe>,
}

/// Why it is not healthy.
#[derive(ToSchema)]
pub(crate) struct HealthReason {
    /// For programs, such as `node_down`.
    code: String,
    /// Whom it is about; not there if it is about the whole.
    #[schema(nullable = false)]
    subject: Option<String>,
    /// For people.
    #[schema(nullable = false)]
    detail: Option<String>,
}

/// How a node is doing.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct NodeHealth {
    node: String,
    /// `up`, `suspect`, `down` or `left`.
    state: String,
    role: String,
    incarnation: Option<String>,
    version: Option<String>,
    last_seen_ms_ago: Option<u64>,
}

/// How the workers are doing.
#[derive(ToSchema)]
pub(crate) struct WorkersHealth {
    up: u64,
    down: u64,
    /// Those that are down first; at most 500.
    list: Vec<WorkerHealth>,
}

/// How a worker is doing.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct WorkerHealth {
    worker_id: String,
    /// `up`, `suspect`, `down` or `left`.
    state: String,
    plugin_type: String,
    pod: String,
    #[schema(nullable = false)]
    incarnation: Option<String>,
    #[schema(nullable = false)]
    version: Option<String>,
    /// When it wrote last, by the store's clock, in ms since 1970; 0 if that is not known.
    last_seen: u64,
}

/// A component probe.
#[derive(ToSchema)]
pub(crate) struct Probe {
    name: String,
    ok: bool,
    /// A failure is critical.
    #[schema(nullable = false)]
    critical: Option<bool>,
    #[schema(nullable = false)]
    detail: Option<String>,
}

/// This node's figures.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Metrics {
    namespace: String,
    node: String,
    /// `standby`, `candidate`, `leader` or `draining`; none while it starts, or if it may not lead.
    role: Option<String>,
    epoch: u64,
    heartbeats: u64,
    #[schema(rename = "heartbeatLatencyP50")]
    heartbeat_latency_p50: u64,
    #[schema(rename = "heartbeatLatencyP99")]
    heartbeat_latency_p99: u64,
    /// What to know about these figures.
    #[schema(nullable = false)]
    note: Option<String>,
    epoch_drift_events: u64,
    contention_events: u64,
    elections: u64,
    leader_changes: u64,
    /// The plugins that share this election.
    #[schema(nullable = false)]
    plugins: Option<Vec<String>>,
    plugin_failures: u64,
    fallbacks: u64,
    plugins_in_fallback: u64,
    election_duration_histogram: Durations,
    workers_active: u64,
    workers_inactive: u64,
    workers_skipped: u64,
    worker_timeouts: u64,
    worker_sweeps: u64,
    processes_running: u64,
    processes_stuck: u64,
    process_restarts: u64,
    /// Jobs, as leader and as worker, by name.
    jobs: BTreeMap<String, u64>,
    /// What plugins add, by the names of `/metrics`.
    #[schema(nullable = false)]
    plugin_figures: Option<BTreeMap<String, f64>>,
    requests: Lanes,
    /// How long the rates below were measured.
    measured_ms: u64,
    requests_per_second: f64,
    writes_per_second: f64,
    reads_per_second: f64,
    /// Dollars for 30 days at these rates, for this node.
    cost_per_month: f64,
}

/// Durations in buckets, in ms.
#[derive(ToSchema)]
pub(crate) struct Durations {
    buckets: Vec<DurationBucket>,
    count: u64,
    sum: u64,
}

/// Counts by itself, not together with those before it.
#[derive(ToSchema)]
pub(crate) struct DurationBucket {
    /// The longest that belongs here; none for the last.
    le: Option<u64>,
    count: u64,
}

/// Requests by lane.
#[derive(ToSchema)]
pub(crate) struct Lanes {
    /// For the seat.
    lease: RequestCounts,
    /// For everything else.
    bulk: RequestCounts,
}

/// Requests by kind.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct RequestCounts {
    get: u64,
    get_unchanged: u64,
    put: u64,
    remove: u64,
    list_pages: u64,
    /// Repetitions by the store's client.
    extra: u64,
    bytes_up: u64,
    bytes_down: u64,
}

/// What the node runs by.
#[derive(ToSchema)]
pub(crate) struct Config {
    /// By name.
    settings: BTreeMap<String, SettingValue>,
    http: HttpConfig,
}

/// A setting.
#[derive(ToSchema)]
pub(crate) struct SettingValue {
    /// Secrets are masked.
    value: Value,
    /// Where it came from.
    from: String,
}

/// How the node listens.
#[derive(ToSchema)]
pub(crate) struct HttpConfig {
    listen: String,
    /// The token for changes: `set (masked)` or `not set`.
    token: String,
    /// The token that may only read.
    #[serde(rename = "readToken")]
    read_token: String,
    /// Names it answers to besides addresses and `localhost`.
    hosts: Vec<String>,
}

/// What came of a step-down.
#[derive(ToSchema)]
pub(crate) struct SteppedDown {
    namespace: String,
    /// Who was asked.
    asked: Reign,
    /// `asked`: nobody waited. `led`: another leads. `vacant`: nobody does yet. `held`: it still does.
    outcome: String,
    leader: Option<Reign>,
}

/// A leader in its epoch.
#[derive(ToSchema)]
pub(crate) struct Reign {
    node: String,
    epoch: u64,
}

/// The workers.
#[derive(ToSchema)]
pub(crate) struct Workers {
    namespace: String,
    /// The epoch of the leader that told of them; 0 if none did.
    epoch: u64,
    workers: Vec<Worker>,
    /// Objects among them that are none.
    skipped: u64,
}

/// A worker.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Worker {
    worker_id: String,
    /// None as long as no leader has read its entry, and so the next two.
    plugin_type: Option<String>,
    pod: Option<String>,
    timeout: Option<u64>,
    /// `active` or `inactive`; `new` if no leader has judged it yet.
    state: String,
    /// How much older its last heartbeat is than the newest sign of life on the store.
    last_seen_ms_ago: u64,
}

/// A worker, as a node knows it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct KnownWorker {
    worker_id: String,
    plugin_type: String,
    pod: String,
    timeout: u64,
    /// `active` or `inactive`.
    state: String,
}

/// The schedules.
#[derive(ToSchema)]
pub(crate) struct ScheduleList {
    namespace: String,
    /// Each as it stands on the store, `next`: when its next job is to begin, in ms since 1970, and `failing`: how many of its
    /// checks fail.
    #[schema(value_type = Vec<Object>)]
    schedules: Vec<Value>,
    refused: Vec<RefusedSchedule>,
}

/// A schedule that is not acted on.
#[derive(ToSchema)]
pub(crate) struct RefusedSchedule {
    id: String,
    problems: Vec<String>,
}

/// One schedule.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ScheduleReport {
    namespace: String,
    /// As it stands on the store.
    #[schema(value_type = Object)]
    schedule: Value,
    /// When its next job is to begin, in ms since 1970.
    next: Option<u64>,
    open_jobs: u64,
    checks: Vec<ScheduleCheck>,
    /// The newest first.
    jobs: Vec<Job>,
}

/// A check, and how it is doing.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ScheduleCheck {
    name: String,
    kind: String,
    /// None if no result has come yet.
    failing: Option<bool>,
    /// The due time of the job with which it began to fail, in ms since 1970.
    failing_since: Option<u64>,
    /// In a row, when it began or ceased to fail.
    failures: u64,
    /// In a row, when it began or ceased to fail.
    successes: u64,
}

/// What became of a change.
#[derive(ToSchema)]
pub(crate) struct Changed {
    namespace: String,
    /// The schedule.
    id: String,
    /// `created`, `changed`, `unchanged` or `removed`.
    outcome: String,
    /// Whether it creates jobs; of pause and resume only.
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

/// A job that was asked for.
#[derive(ToSchema)]
pub(crate) struct Asked {
    namespace: String,
    schedule: String,
    name: String,
    /// The job's id.
    job: String,
    /// `asked`, or `existed` if it was asked for before.
    outcome: String,
}

/// The jobs.
#[derive(ToSchema)]
pub(crate) struct Jobs {
    namespace: String,
    /// The newest due time first.
    jobs: Vec<Job>,
    /// How many there are.
    total: u64,
    /// Parts of the ledger that cannot be read.
    unreadable: Vec<String>,
}

/// A job, in its namespace.
#[derive(ToSchema)]
pub(crate) struct JobReport {
    #[schema(inline)]
    #[serde(flatten)]
    job: Job,
    namespace: String,
}

/// A job.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct Job {
    id: String,
    schedule: String,
    /// `queued`, `dispatched`, `running`, `succeeded`, `failed` and so on.
    state: String,
    /// It is not over.
    open: bool,
    /// In ms since 1970.
    due: Option<u64>,
    age_ms: Option<u64>,
    attempt: u64,
    attempts: u64,
    /// Who does it, or did it.
    worker: Option<String>,
    /// Who is to do it, and nobody else.
    target: Option<String>,
    /// Of the leader that dispatched it.
    epoch: u64,
    /// What the ledger says about it.
    reason: String,
    /// Why nobody does it, in a sentence.
    why: Option<String>,
    checks: Vec<CheckOutcome>,
    /// A result that is no report.
    result: Option<String>,
    /// Results that came too late to count.
    late: Vec<LateOutcome>,
}

/// What came of a check.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct CheckOutcome {
    name: String,
    ok: bool,
    latency_ms: u64,
    detail: String,
}

/// A result that came too late.
#[derive(ToSchema)]
pub(crate) struct LateOutcome {
    attempt: u64,
    worker: String,
    outcome: String,
}
