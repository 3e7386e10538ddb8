//! Queues: how many jobs wait in each, and pausing them.

use super::aged;
use super::schedules::Nothing;
use crate::extract::{Id, Payload};
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use crate::store_reads::{FRESH, bytes_of};
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use tenure::id::QueueName;
use tenure::job::QueueInfo;
use utoipa::ToSchema;

/// The queues.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queues<'a> {
    namespace: &'a str,
    queues: &'a [QueueInfo],
    /// Parts of the ledger that cannot be read: their jobs are not counted.
    unreadable: &'a [String],
}

/// The queues that have jobs or settings, as `tenure queue ls --json` has them; some seconds old
#[utoipa::path(get, path = "/v1/queues", tag = "queues", responses((status = 200, description = "all of them; Age says how old", body = Queues<'_>)))]
pub(crate) async fn list(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.jobs(FRESH).await?;
    let (queues, unreadable) = (&found.value.queues, &found.value.unreadable);
    let body = Queues { namespace: state.namespace.as_str(), queues, unreadable };
    Ok(aged(&found, bytes_of(&body)))
}

/// What is set for a queue now.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueueSet {
    namespace: String,
    queue: String,
    /// None of its jobs is given to a worker.
    paused: bool,
    /// Most of its jobs that run at once; none if any number may.
    concurrency: Option<u32>,
}

/// Gives no more jobs of a queue to workers; those that run go on
#[utoipa::path(
    post, path = "/v1/queues/{id}/pause", tag = "queues", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "the queue", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "what is set for it now, whether it has jobs or not", body = QueueSet),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn pause(
    State(state): State<Shared>,
    Id(queue): Id<QueueName>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<axum::Json<QueueSet>> {
    set_paused(state, queue, true).await
}

/// Gives jobs of a queue to workers again
#[utoipa::path(
    post, path = "/v1/queues/{id}/resume", tag = "queues", request_body = Option<Nothing>,
    params(("id" = String, Path, description = "the queue", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "what is set for it now, whether it has jobs or not", body = QueueSet),
        (status = 409, description = "somebody else changed it at the same time", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn resume(
    State(state): State<Shared>,
    Id(queue): Id<QueueName>,
    Payload(Nothing {}): Payload<Nothing>,
) -> Answer<axum::Json<QueueSet>> {
    set_paused(state, queue, false).await
}

async fn set_paused(state: Shared, queue: QueueName, paused: bool) -> Answer<axum::Json<QueueSet>> {
    state.rate_limit.take(2.0)?;
    let (jobs, named) = (state.jobs.clone(), queue.clone());
    let work = async move { jobs.set_queue(&named, |settings| settings.paused = paused).await };
    let now = state.on_node(work).await??;
    let (namespace, queue) = (state.namespace.to_string(), queue.to_string());
    Ok(axum::Json(QueueSet { namespace, queue, paused: now.paused, concurrency: now.concurrency }))
}
