//! Schedules and jobs.

use super::{aged, json};
use crate::extract::{Id, Params, Payload, id};
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use crate::store_reads::{FRESH, JOBS_MAX, ScheduleList, bytes_of, now_ms};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tenure::id::{QueueName, ScheduleId};
use tenure::job::{HISTORY_PAGE_MAX, HistoryQuery, JobHistory, JobList, JobState};
use tenure_plugins::schedules::{
    Change, JobInfo, JobRow, Problem as Fault, Rules, RunRequest, Schedule, ScheduleReport, read_file,
};
use utoipa::{IntoParams, ToSchema};

/// Most inboxes searched for the jobs of one schedule.
const INBOXES: usize = 8;

/// The schedules, as `tenure schedule list --json` has them; a few seconds old
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", responses((status = 200, description = "all of them; Age says how old", body = ScheduleList)))]
pub(crate) async fn list(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.schedules(FRESH).await?;
    Ok(aged(&found, found.value.body.clone()))
}

/// One schedule with its checks and jobs, as `tenure schedule show --json` has it
#[utoipa::path(
    get, path = "/v1/schedules/{id}", tag = "schedules",
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses((status = 200, description = "the schedule", body = ScheduleReport), (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn show(State(state): State<Shared>, Id(schedule): Id<ScheduleId>) -> Answer<Response> {
    state.rate_limit.take_to_read(6.0)?;
    let store = state.store.clone();
    let report = state.on_node(async move {
        let schedules = store.schedules();
        let found = schedules.get(&schedule).await?.ok_or_else(|| no_schedule(&schedule))?;
        let health = schedules.health().await?.of(&schedule);
        let mut list = JobList::read_near(&store.lanes, &store.namespace, &schedule.series()).await?;
        list.jobs.retain(|job| job.series == schedule.series());
        list.ask_workers(&store.lanes, &store.namespace, INBOXES).await?;
        let jobs = JobRow::all(&schedules, JobRow::newest(list.jobs, JOBS_MAX)).await?;
        let runs = JobHistory::new(&store.lanes, &store.namespace).runs_of(&schedule.series()).await?;
        Answer::Ok(found.to_report(store.namespace.as_str(), &health, &jobs, runs.as_ref(), now_ms()))
    });
    Ok(json(bytes_of(&report.await??)))
}

fn no_schedule(schedule: &ScheduleId) -> Problem {
    Problem::not_found("unknown-schedule", format!("there is no schedule {:?}", schedule.as_str()))
}

/// Makes a schedule stand there as it is; the body is one entry of a file for `tenure apply`, as JSON
#[utoipa::path(
    put, path = "/v1/schedules/{id}", tag = "schedules", request_body = inline(Map<String, Value>),
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "`outcome` is changed or unchanged", body = Changed),
        (status = 201, description = "`outcome` is created", body = Changed),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the schedule is invalid: `problems` lists every mistake", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn put(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
    Payload(mut body): Payload<Map<String, Value>>,
) -> Answer<Response> {
    match body.get("id") {
        Some(other) if other.as_str() != Some(schedule.as_str()) => {
            return Err(Problem::invalid("id: must be the same in the body and the path"));
        }
        Some(_) | None => drop(body.insert("id".to_owned(), json!(schedule.as_str()))),
    }
    let new = parse(body)?;
    state.rate_limit.take(3.0)?;
    let store = state.store.clone();
    let change = state.on_node(async move { store.schedules().put(&new, now_ms()).await }).await??;
    state.store_reads.schedules_changed();
    let status = if change == Change::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(Changed::new(&state, &schedule, change.as_str()))).into_response())
}

/// Applies the rules of a schedule file.
fn parse(body: Map<String, Value>) -> Answer<Schedule> {
    let text = Value::Array(vec![Value::Object(body)]).to_string();
    let mut found = read_file(&text, &Rules::default()).map_err(|faults| {
        let told = |fault: &Fault| Fault { line: None, ..fault.clone() }.to_string();
        let mut problem = Problem::invalid("the schedule is invalid");
        problem.problems = faults.all().iter().map(told).collect();
        problem
    })?;
    found.pop().ok_or_else(|| Problem::invalid("there is no schedule"))
}

/// What became of a change.
#[derive(Serialize, ToSchema)]
pub(crate) struct Changed {
    namespace: String,
    /// The schedule.
    id: String,
    /// `created`, `changed`, `unchanged` or `removed`.
    outcome: &'static str,
    /// Whether it creates jobs; of pause and resume only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

impl Changed {
    fn new(state: &Shared, schedule: &ScheduleId, outcome: &'static str) -> Changed {
        let (namespace, id) = (state.namespace.to_string(), schedule.to_string());
        Changed { namespace, id, outcome, enabled: None }
    }
}

/// Removes a schedule; its open jobs go on to their end
#[utoipa::path(
    delete, path = "/v1/schedules/{id}", tag = "schedules",
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses((status = 200, description = "`outcome` is removed", body = Changed), (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn remove(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
) -> Answer<axum::Json<Changed>> {
    state.rate_limit.take(2.0)?;
    let (store, named) = (state.store.clone(), schedule.clone());
    let removed = state.on_node(async move { store.schedules().remove(&named).await }).await??;
    state.store_reads.schedules_changed();
    let answer = || axum::Json(Changed::new(&state, &schedule, "removed"));
    removed.then(answer).ok_or_else(|| no_schedule(&schedule))
}

/// A body without fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Lets a schedule create no more jobs
#[utoipa::path(
    post, path = "/v1/schedules/{id}/pause", tag = "schedules", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "`outcome` is changed or unchanged", body = Changed),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn pause(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<axum::Json<Changed>> {
    enable(state, schedule, false).await
}

/// Lets a schedule create jobs again, from now on
#[utoipa::path(
    post, path = "/v1/schedules/{id}/resume", tag = "schedules", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "`outcome` is changed or unchanged", body = Changed),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn resume(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<axum::Json<Changed>> {
    enable(state, schedule, true).await
}

async fn enable(state: Shared, schedule: ScheduleId, enabled: bool) -> Answer<axum::Json<Changed>> {
    state.rate_limit.take(2.0)?;
    let (store, named) = (state.store.clone(), schedule.clone());
    let work = async move { store.schedules().set_enabled(&named, enabled, now_ms()).await };
    let change = state.on_node(work).await??;
    state.store_reads.schedules_changed();
    let answer = Changed::new(&state, &schedule, change.as_str());
    Ok(axum::Json(Changed { enabled: Some(enabled), ..answer }))
}

/// A job that is asked for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunAsk {
    /// Names the request: asking again under the same name asks for the same job. Default: made up.
    name: Option<String>,
}

/// A job that was asked for.
#[derive(Serialize, ToSchema)]
pub(crate) struct Asked {
    namespace: String,
    schedule: String,
    name: String,
    /// The job's id.
    job: String,
    /// `asked`, or `existed` if it was asked for before.
    outcome: &'static str,
}

/// Asks the leader, whoever it is, for a job of a schedule now
#[utoipa::path(
    post, path = "/v1/schedules/{id}/run-now", tag = "schedules", request_body = Option<RunAsk>,
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 202, description = "requested; `job` is its id, and `outcome` is asked, or existed if it was requested before", body = Asked),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "too many jobs are already requested, or somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn run_now(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
    Payload(ask): Payload<RunAsk>,
) -> Answer<Response> {
    // Twelve letters and digits, as the rule for names demands.
    let name = ask.name.unwrap_or_else(|| format!("{:012x}", rand::random::<u64>() >> 16));
    let job = RunRequest::job_id(&schedule, &name)?;
    state.rate_limit.take(2.0)?;
    let (store, named, asked) = (state.store.clone(), schedule.clone(), name.clone());
    let work = async move { store.schedules().ask(&named, &asked, now_ms()).await };
    let outcome = match state.on_node(work).await?? {
        Change::Unchanged => "existed",
        Change::Created | Change::Changed => "asked",
    };
    let (namespace, schedule) = (state.namespace.to_string(), schedule.to_string());
    let answer = Asked { namespace, schedule, name, job: job.to_string(), outcome };
    Ok((StatusCode::ACCEPTED, axum::Json(answer)).into_response())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobsQuery {
    /// Only those of this schedule.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    schedule: Option<String>,
    /// Only those of this queue.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    queue: Option<String>,
    /// Only those in this state, or in one of these, separated by commas.
    state: Option<String>,
    /// Only those that are not over.
    #[serde(default)]
    open: bool,
    /// At most so many, 1 to 1,000. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct Jobs<'a> {
    namespace: &'a str,
    /// The newest due time first.
    jobs: Vec<&'a JobInfo>,
    /// How many there are.
    total: u64,
    /// Parts of the ledger that cannot be read.
    unreadable: &'a [String],
}

/// The newest thousand jobs, as many of those that run and of those that are dead, as `tenure job ls --json` has them; some seconds old
#[utoipa::path(
    get, path = "/v1/jobs", tag = "schedules", params(JobsQuery),
    responses((status = 200, description = "`jobs`, the newest due time first, `total` and `unreadable`; Age says how old", body = Jobs<'_>)),
)]
pub(crate) async fn jobs(State(state): State<Shared>, Params(query): Params<JobsQuery>) -> Answer<Response> {
    let schedule = query.schedule.as_ref().map(|text| id::<ScheduleId>("schedule", text)).transpose()?;
    let queue = query.queue.as_ref().map(|text| id::<QueueName>("queue", text)).transpose()?;
    let states = |names: &String| names.split(',').map(state_named).collect::<Answer<Vec<JobState>>>();
    let wanted = query.state.as_ref().map(states).transpose()?;
    let limit = query.limit.unwrap_or(100);
    if !(1..=JOBS_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit = {limit}: must be 1 to {JOBS_MAX}")));
    }
    let found = state.store_reads.jobs(FRESH).await?;
    let fits = |row: &&JobInfo| {
        schedule.as_ref().is_none_or(|schedule| row.schedule.as_deref() == Some(schedule.as_str()))
            && queue.as_ref().is_none_or(|queue| row.queue == queue.as_str())
            && wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|state| row.state == state.as_str()))
            && (!query.open || row.open)
    };
    let mut jobs: Vec<&JobInfo> = found.value.rows.iter().map(|(_, row)| row).filter(fits).collect();
    let is_narrowed = schedule.is_some() || queue.is_some() || wanted.is_some() || query.open;
    let total = if is_narrowed { jobs.len() } else { found.value.total };
    jobs.truncate(limit);
    let total = total as u64;
    let body = Jobs { namespace: state.namespace.as_str(), jobs, total, unreadable: &found.value.unreadable };
    Ok(aged(&found, bytes_of(&body)))
}

fn state_named(name: &str) -> Answer<JobState> {
    let all = || JobState::ALL.iter().map(|state| state.as_str()).collect::<Vec<&str>>().join(", ");
    let unknown = || Problem::malformed(format!("state = {name:?}: must be one of {}", all()));
    JobState::named(name).ok_or_else(unknown)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryParams {
    /// Only those of this schedule.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    schedule: Option<String>,
    /// Only those of this queue.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    queue: Option<String>,
    /// Only those that ended in this state.
    state: Option<String>,
    /// Only those that ended at this time or later, in ms since 1970.
    since: Option<u64>,
    /// Only those that ended before this time, in ms since 1970.
    until: Option<u64>,
    /// The next page: `next` of the one before.
    before: Option<u64>,
    /// At most so many, 1 to 1,000. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of finished jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct History {
    namespace: String,
    /// Those that ended last first.
    jobs: Vec<JobInfo>,
    /// There may be older ones: ask again with this as `before`. A page of a narrow search can be short and have it.
    next: Option<u64>,
}

/// A page of finished jobs, as `tenure job history --json` has it: at most five reads of the store
#[utoipa::path(
    get, path = "/v1/history", tag = "schedules", params(HistoryParams),
    responses((status = 200, description = "`jobs`, those that ended last first, and `next` if there may be more", body = History)),
)]
pub(crate) async fn history(
    State(state): State<Shared>,
    Params(params): Params<HistoryParams>,
) -> Answer<Response> {
    let limit = params.limit.unwrap_or(100);
    if !(1..=HISTORY_PAGE_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit = {limit}: must be 1 to {HISTORY_PAGE_MAX}")));
    }
    let ms = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    let schedule = params.schedule.as_ref().map(|text| id::<ScheduleId>("schedule", text)).transpose()?;
    let query = HistoryQuery {
        series: schedule.map(|schedule| schedule.series()),
        queue: params.queue.as_ref().map(|text| id::<QueueName>("queue", text)).transpose()?,
        state: params.state.as_ref().map(|name| state_named(name)).transpose()?,
        since_ms: params.since.map(ms),
        until_ms: params.until.map(ms),
        before: params.before,
    };
    state.rate_limit.take_to_read(5.0)?;
    let store = state.store.clone();
    let page = state.on_node(async move {
        JobHistory::new(&store.lanes, &store.namespace).page(&query, limit).await.map_err(Problem::from)
    });
    let page = page.await??;
    let now_ms = now_ms();
    let jobs = page.jobs.iter().map(|row| JobRow::of_history(row).info(now_ms)).collect();
    Ok(json(bytes_of(&History { namespace: state.namespace.to_string(), jobs, next: page.next })))
}
