//! One job: looking at it, and asking the leader to cancel it or to try it again.

use super::schedules::Nothing;
use super::{aged, json};
use crate::extract::{Id, Payload};
use crate::problem::{Answer, Problem};
use crate::rate_limit::SearchLimit;
use crate::state::Shared;
use crate::store_reads::{FRESH, StoreAccess, bytes_of, now_ms};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tenure::id::{JobId, SeriesId};
use tenure::job::{JobList, JobRecord};
use tenure_plugins::schedules::{JobInfo, JobRow};
use utoipa::ToSchema;

/// The time limit of a search for a job.
const FIND_MAX: Duration = Duration::from_secs(10);

/// Reading a part of the ledger, an inbox, and a schedule for the names of its checks.
const NEAR_READS: f64 = 3.0;

/// A job, in its namespace.
#[derive(Serialize, ToSchema)]
pub(crate) struct JobReport<'a> {
    #[schema(inline)]
    #[serde(flatten)]
    job: &'a JobInfo,
    namespace: &'a str,
}

/// One job, as `tenure job show --json` has it
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "schedules",
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses((status = 200, description = "the job", body = JobReport<'_>), (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn show(State(state): State<Shared>, Id(job): Id<JobId>) -> Answer<Response> {
    let found = state.store_reads.jobs(FRESH).await?;
    let namespace = state.namespace.as_str();
    let listed = found.value.find(&job);
    let shown = |job: &JobInfo| bytes_of(&JobReport { job, namespace });
    if let Some((series, row)) = listed {
        // The list may be many seconds old. What is over stays as it is; the rest is worth a look, if there are means for it.
        if !row.open || state.rate_limit.take_to_read(NEAR_READS).is_err() {
            return Ok(aged(&found, shown(row)));
        }
        if let Some(row) = near(&state, series, &job).await? {
            return Ok(json(shown(&row)));
        }
    }
    let row = search(&state, &state.searches, &job, row_of).await?;
    Ok(json(shown(&row)))
}

/// A job in the part of the ledger that should have it.
async fn near(state: &Shared, series: &SeriesId, job: &JobId) -> Answer<Option<JobInfo>> {
    let (store, series, named) = (state.store.clone(), series.clone(), job.clone());
    let look = async move {
        match record_near(&store, &series, &named).await? {
            Some(record) => row_of(store, record).await.map(Some),
            None => Ok(None),
        }
    };
    state.on_node(look).await?
}

async fn record_near(store: &StoreAccess, series: &SeriesId, job: &JobId) -> Answer<Option<JobRecord>> {
    let mut list = JobList::read_near(&store.lanes, &store.namespace, series).await?;
    list.jobs.retain(|one| one.id == *job);
    list.ask_workers(&store.lanes, &store.namespace, 1).await?;
    Ok(list.jobs.pop())
}

async fn row_of(store: StoreAccess, record: JobRecord) -> Answer<JobInfo> {
    let id = record.id.clone();
    let rows = JobRow::all(&store.schedules(), vec![record]).await?;
    rows.first().map(|row| row.info(now_ms())).ok_or_else(|| unknown(&id))
}

fn unknown(job: &JobId) -> Problem {
    Problem::not_found("unknown-job", format!("there is no job {:?}", job.as_str()))
}

/// Looks for a job wherever it may be, as soon as it is this client's turn.
async fn search<T, W>(
    state: &Shared,
    limit: &SearchLimit,
    job: &JobId,
    then: fn(StoreAccess, JobRecord) -> W,
) -> Answer<T>
where
    T: Send + 'static,
    W: Future<Output = Answer<T>> + Send + 'static,
{
    let permit = limit.take()?;
    let (store, named) = (state.store.counted(&permit.meter), job.clone());
    let found = state.on_node(async move {
        // The search continues if its client leaves, and so does its permit.
        let _permit = permit;
        let search = async {
            let found = JobList::find(&store.lanes, &store.namespace, &named).await?;
            then(store.clone(), found.ok_or_else(|| unknown(&named))?).await
        };
        let late = |_| Problem::store(format!("the search took longer than {} s", FIND_MAX.as_secs()));
        tokio::time::timeout(FIND_MAX, search).await.map_err(late)?
    });
    found.await?
}

/// The record of a job, for a change.
async fn record(state: &Shared, job: &JobId) -> Answer<JobRecord> {
    state.rate_limit.take(NEAR_READS)?;
    let found = state.store_reads.jobs(FRESH).await?;
    if let Some((series, _)) = found.value.find(job) {
        let (store, series, named) = (state.store.clone(), series.clone(), job.clone());
        let near = state.on_node(async move { record_near(&store, &series, &named).await }).await??;
        if let Some(record) = near {
            return Ok(record);
        }
    }
    search(state, &state.change_searches, job, |_, record| async { Ok(record) }).await
}

/// A job about which the leader was asked something.
#[derive(Serialize, ToSchema)]
pub(crate) struct JobAsked {
    namespace: String,
    /// The job.
    job: String,
    /// `asked`, or `over` if there was nothing left to cancel.
    outcome: &'static str,
    /// Its state before that.
    state: &'static str,
}

impl JobAsked {
    fn new(state: &Shared, record: &JobRecord, outcome: &'static str) -> (StatusCode, axum::Json<JobAsked>) {
        let (namespace, job) = (state.namespace.to_string(), record.id.to_string());
        let answer = JobAsked { namespace, job, outcome, state: record.state.as_str() };
        (StatusCode::ACCEPTED, axum::Json(answer))
    }
}

/// Asks the leader, whoever it is, to cancel a job: one that waits never runs, one that runs is told to stop
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "schedules", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 202, description = "as `tenure job cancel --json`", body = JobAsked),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn cancel(
    State(state): State<Shared>,
    Id(job): Id<JobId>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<(StatusCode, axum::Json<JobAsked>)> {
    let record = record(&state, &job).await?;
    if record.state.is_final() {
        return Ok(JobAsked::new(&state, &record, "over"));
    }
    state.rate_limit.take(2.0)?;
    let jobs = state.jobs.clone();
    state.on_node(async move { jobs.cancel(&job).await }).await??;
    Ok(JobAsked::new(&state, &record, "asked"))
}

/// How often a job is to be tried again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryAsk {
    /// So many attempts more. Default: 1.
    #[schema(minimum = 1)]
    attempts: Option<u32>,
}

/// Asks the leader, whoever it is, to try a job again that ended without success
#[utoipa::path(
    post, path = "/v1/jobs/{id}/retry", tag = "schedules", request_body = Option<RetryAsk>,
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 202, description = "as `tenure job retry --json`", body = JobAsked),
        (status = 404, description = "it does not exist", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "it is not one that is tried again, or the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retry(
    State(state): State<Shared>,
    Id(job): Id<JobId>,
    Payload(ask): Payload<RetryAsk>,
) -> Answer<(StatusCode, axum::Json<JobAsked>)> {
    let record = record(&state, &job).await?;
    state.rate_limit.take(2.0)?;
    let (jobs, again) = (state.jobs.clone(), record.clone());
    state.on_node(async move { jobs.retry(&again, ask.attempts.unwrap_or(1)).await }).await??;
    Ok(JobAsked::new(&state, &record, "asked"))
}
