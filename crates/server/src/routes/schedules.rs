//! Schedules and jobs.

use super::{aged, json};
use crate::extract::{Id, Params, Payload, id};
use crate::problem::{Answer, Problem};
use crate::shapes;
use crate::state::Shared;
use crate::store_reads::{JOBS_MAX, bytes_of, now_ms};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tenure::id::{JobId, ScheduleId};

use tenure::job::{JobList, JobState};
use tenure_plugins::schedules::{Change, JobRow, Problem as Fault, Rules, RunRequest, Schedule, read_file};
use utoipa::{IntoParams, ToSchema};

/// Most inboxes searched for the jobs of one schedule.
const INBOXES: usize = 8;

/// The time limit of a search for a job.
const FIND_MAX: Duration = Duration::from_secs(10);

/// The schedules, as `tenure schedule list --json` has them; a few seconds old
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", responses((status = 200, description = "all of them; Age says how old", body = shapes::ScheduleList)))]
pub(crate) async fn list(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.schedules().await?;
    Ok(aged(&found, found.value.body.clone()))
}

/// One schedule with its checks and jobs, as `tenure schedule show --json` has it
#[utoipa::path(
    get, path = "/v1/schedules/{id}", tag = "schedules",
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses((status = 200, description = "the schedule", body = shapes::ScheduleReport), (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn show(State(state): State<Shared>, Id(schedule): Id<ScheduleId>) -> Answer<Response> {
    state.rate_limit.take_to_read(4.0)?;
    let store = state.store.clone();
    let report = state.on_node(async move {
        let schedules = store.schedules();
        let found = schedules.get(&schedule).await?.ok_or_else(|| no_schedule(&schedule))?;
        let health = schedules.health().await?.of(&schedule);
        let mut list = JobList::read_near(&store.lanes, &store.namespace, &schedule.series()).await?;
        list.jobs.retain(|job| job.series == schedule.series());
        list.ask_workers(&store.lanes, &store.namespace, INBOXES).await?;
        let jobs = JobRow::all(&schedules, JobRow::newest(list.jobs, JOBS_MAX)).await?;
        Answer::Ok(found.to_report(store.namespace.as_str(), &health, &jobs, now_ms()))
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
        (status = 200, description = "`outcome` is changed or unchanged", body = shapes::Changed),
        (status = 201, description = "`outcome` is created", body = shapes::Changed),
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
    Ok((status, axum::Json(outcome(&state, &schedule, change.as_str()))).into_response())
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

fn outcome(state: &Shared, schedule: &ScheduleId, outcome: &str) -> Value {
    json!({"namespace": state.namespace.as_str(), "id": schedule.as_str(), "outcome": outcome})
}

/// Removes a schedule; its open jobs go on to their end
#[utoipa::path(
    delete, path = "/v1/schedules/{id}", tag = "schedules",
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses((status = 200, description = "`outcome` is removed", body = shapes::Changed), (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn remove(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
) -> Answer<axum::Json<Value>> {
    state.rate_limit.take(2.0)?;
    let (store, named) = (state.store.clone(), schedule.clone());
    let removed = state.on_node(async move { store.schedules().remove(&named).await }).await??;
    state.store_reads.schedules_changed();
    if removed { Ok(axum::Json(outcome(&state, &schedule, "removed"))) } else { Err(no_schedule(&schedule)) }
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
        (status = 200, description = "`outcome` is changed or unchanged", body = shapes::Changed),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn pause(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<axum::Json<Value>> {
    enable(state, schedule, false).await
}

/// Lets a schedule create jobs again, from now on
#[utoipa::path(
    post, path = "/v1/schedules/{id}/resume", tag = "schedules", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "`outcome` is changed or unchanged", body = shapes::Changed),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn resume(
    State(state): State<Shared>,
    Id(schedule): Id<ScheduleId>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<axum::Json<Value>> {
    enable(state, schedule, true).await
}

async fn enable(state: Shared, schedule: ScheduleId, enabled: bool) -> Answer<axum::Json<Value>> {
    state.rate_limit.take(2.0)?;
    let (store, named) = (state.store.clone(), schedule.clone());
    let work = async move { store.schedules().set_enabled(&named, enabled, now_ms()).await };
    let change = state.on_node(work).await??;
    state.store_reads.schedules_changed();
    let mut answer = outcome(&state, &schedule, change.as_str());
    answer["enabled"] = json!(enabled);
    Ok(axum::Json(answer))
}

/// A job that is asked for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunAsk {
    /// Names the request: asking again under the same name asks for the same job. Default: made up.
    name: Option<String>,
}

/// Asks the leader, whoever it is, for a job of a schedule now
#[utoipa::path(
    post, path = "/v1/schedules/{id}/run-now", tag = "schedules", request_body = Option<RunAsk>,
    params(("id" = String, Path, description = "the schedule", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 202, description = "requested; `job` is its id, and `outcome` is asked, or existed if it was requested before", body = shapes::Asked),
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
    let answer = json!({
        "namespace": state.namespace.as_str(), "schedule": schedule.as_str(), "name": name, "job": job.as_str(),
        "outcome": outcome,
    });
    Ok((StatusCode::ACCEPTED, axum::Json(answer)).into_response())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobsQuery {
    /// Only those of this schedule.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    schedule: Option<String>,
    /// Only those in this state.
    state: Option<String>,
    /// Only those that are not over.
    #[serde(default)]
    open: bool,
    /// At most so many, 1 to 1,000. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The newest thousand jobs, as `tenure jobs --json` has them; some seconds old
#[utoipa::path(
    get, path = "/v1/jobs", tag = "schedules", params(JobsQuery),
    responses((status = 200, description = "`jobs`, the newest due time first, `total` and `unreadable`; Age says how old", body = shapes::Jobs)),
)]
pub(crate) async fn jobs(State(state): State<Shared>, Params(query): Params<JobsQuery>) -> Answer<Response> {
    let schedule = query.schedule.as_ref().map(|text| id::<ScheduleId>("schedule", text)).transpose()?;
    let wanted = query.state.as_ref().map(|name| {
        let all = || JobState::ALL.iter().map(|state| state.as_str()).collect::<Vec<&str>>().join(", ");
        let unknown = || Problem::malformed(format!("state = {name:?}: must be one of {}", all()));
        JobState::named(name).ok_or_else(unknown)
    });
    let wanted = wanted.transpose()?;
    let limit = query.limit.unwrap_or(100);
    if !(1..=JOBS_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit = {limit}: must be 1 to {JOBS_MAX}")));
    }
    let found = state.store_reads.jobs().await?;
    let fits = |row: &&Value| {
        schedule.as_ref().is_none_or(|schedule| row["schedule"] == schedule.as_str())
            && wanted.is_none_or(|wanted| row["state"] == wanted.as_str())
            && (!query.open || row["open"] == true)
    };
    let rows: Vec<&Value> = found.value.rows.iter().filter(fits).collect();
    let total =
        if schedule.is_none() && wanted.is_none() && !query.open { found.value.total } else { rows.len() };
    let body = json!({
        "namespace": state.namespace.as_str(), "jobs": rows.iter().take(limit).collect::<Vec<_>>(), "total": total,
        "unreadable": found.value.unreadable,
    });
    Ok(aged(&found, bytes_of(&body)))
}

/// One job, as `tenure job show --json` has it
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "schedules",
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses((status = 200, description = "the job", body = shapes::JobReport), (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn job(State(state): State<Shared>, Id(job): Id<JobId>) -> Answer<Response> {
    let found = state.store_reads.jobs().await?;
    if let Some(row) = found.value.rows.iter().find(|row| row["id"] == job.as_str()) {
        let mut row = row.clone();
        row["namespace"] = json!(state.namespace.as_str());
        return Ok(aged(&found, bytes_of(&row)));
    }
    let search = state.searches.take()?;
    let (store, named) = (state.store.counted(&search.meter), job.clone());
    let row = state.on_node(async move {
        // The search continues if its client leaves, and so does its permit.
        let _permit = search;
        let search = async {
            let job = JobList::find(&store.lanes, &store.namespace, &named).await?;
            let rows = JobRow::all(&store.schedules(), job.into_iter().collect()).await?;
            Answer::Ok(rows.first().map(|row| row.to_json(now_ms())))
        };
        let late = |_| Problem::store(format!("the search took longer than {} s", FIND_MAX.as_secs()));
        tokio::time::timeout(FIND_MAX, search).await.map_err(late)?
    });
    let missing = || Problem::not_found("unknown-job", format!("there is no job {:?}", job.as_str()));
    let mut row = row.await??.ok_or_else(missing)?;
    row["namespace"] = json!(state.namespace.as_str());
    Ok(json(bytes_of(&row)))
}
