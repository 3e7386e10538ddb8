//! Workers in any language.

use super::aged;
use crate::connections::Peer;
use crate::extract::{Client, Id, Params, Payload, id_in_body};
use crate::http_workers::{HttpWorker, Membership, RegistrationRequest};
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;
use tenure::clock::millis;
use tenure::id::{Label, WorkerId};
use tenure::worker::{WorkerList, WorkerSpec};
use utoipa::{IntoParams, ToSchema};

/// How long a registration waits for the store.
const SETTLE: Duration = Duration::from_secs(3);

/// Most kinds of jobs per worker.
const KINDS_MAX: usize = 64;

/// Most queues that a worker may name.
const QUEUES_MAX: usize = 32;

/// Most jobs one worker may run at once.
const CONCURRENCY_MAX: usize = 16;

/// The workers of the namespace, as `tenure workers --json` has them; a few seconds old
#[utoipa::path(get, path = "/v1/workers", tag = "workers", responses((status = 200, description = "all of them; Age says how old", body = WorkerList)))]
pub(crate) async fn list(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.workers().await?;
    Ok(aged(&found, found.value.body.clone()))
}

/// A worker to be registered.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewWorker {
    /// Its id, one live process each.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", min_length = 1, max_length = 128)]
    worker_id: String,
    /// The plugin it works for. Default: `worker`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", min_length = 1, max_length = 128)]
    plugin_type: Option<String>,
    /// Where it runs, for people. Default: this node.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", min_length = 1, max_length = 128)]
    pod: Option<String>,
    /// How long it may be silent, at most 600,000. Default: the setting `workerTimeout`.
    #[schema(maximum = 600_000)]
    timeout: Option<u64>,
    /// More to be known about it: at most 8 KiB.
    #[schema(value_type = Option<Object>)]
    payload: Option<Map<String, Value>>,
    /// What names this registration: whoever sends the same again gets the registration that is there. Default: made up.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", min_length = 16, max_length = 128)]
    registration: Option<String>,
    /// The kinds of jobs it does; without, it gets none.
    #[serde(default)]
    #[schema(max_items = 64)]
    kinds: Vec<String>,
    /// The queues it takes jobs from. Default: all.
    #[serde(default)]
    #[schema(max_items = 32)]
    queues: Vec<String>,
    /// How many jobs it does at once, at most 16. Default: 1.
    #[schema(minimum = 1, maximum = 16)]
    concurrency: Option<usize>,
}

impl NewWorker {
    fn check(self, state: &Shared, client: Option<Peer>) -> Answer<RegistrationRequest> {
        let worker_id: WorkerId = id_in_body("workerId", &self.worker_id)?;
        let mut spec = WorkerSpec::new(worker_id.as_str(), self.plugin_type.as_deref().unwrap_or("worker"));
        if let Some(pod) = self.pod {
            spec = spec.pod(pod);
        }
        let settings = state.node.settings();
        let most_ms = millis(state.options.limits.worker_timeout);
        let timeout_ms = self.timeout.unwrap_or(millis(settings.worker_timeout).min(most_ms));
        if timeout_ms > most_ms {
            return Err(Problem::invalid(format!(
                "timeout = {timeout_ms}: must be at most {most_ms} over HTTP"
            )));
        }
        spec = spec.timeout(Duration::from_millis(timeout_ms));
        if let Some(payload) = self.payload {
            spec = spec.payload(Value::Object(payload));
        }
        spec.validate(settings)?;
        if let Some(registration) = &self.registration {
            id_in_body::<Label>("registration", registration)?;
            if registration.len() < 16 {
                return Err(Problem::invalid("registration: must have at least 16 characters"));
            }
        }
        if self.kinds.len() > KINDS_MAX {
            return Err(Problem::invalid(format!("kinds: at most {KINDS_MAX}")));
        }
        let kinds = self.kinds.iter().map(|kind| id_in_body("kinds", kind)).collect::<Answer<_>>()?;
        if self.queues.len() > QUEUES_MAX {
            return Err(Problem::invalid(format!("queues: at most {QUEUES_MAX}")));
        }
        let queues = self.queues.iter().map(|queue| id_in_body("queues", queue));
        let queues = queues.collect::<Answer<_>>()?;
        let concurrency = self.concurrency.unwrap_or(1);
        if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
            return Err(Problem::invalid(format!(
                "concurrency = {concurrency}: must be 1 to {CONCURRENCY_MAX}"
            )));
        }
        // One write per heartbeat and, if it takes jobs, one look at its inbox.
        let looks_ms = millis(settings.job_idle_interval.max(settings.job_poll_interval));
        let looks = if self.kinds.is_empty() { 0.0 } else { 1000.0 / looks_ms as f64 };
        let requests_per_second = 1000.0 / millis(settings.worker_heartbeat_interval) as f64 + looks;
        let registration = self.registration;
        let request = RegistrationRequest {
            id: worker_id,
            spec,
            timeout_ms,
            registration,
            kinds,
            queues,
            concurrency,
            client,
            requests_per_second,
        };
        Ok(request)
    }
}

/// Registers a worker, and keeps it alive for as long as the client is heard of
///
/// 201: the store has confirmed it. 202: not yet; the heartbeats say how it goes on. 200: this registration was there.
#[utoipa::path(
    post, path = "/v1/workers", tag = "workers", request_body = NewWorker,
    responses(
        (status = 200, description = "this `registration` has already registered it", body = Membership),
        (status = 201, description = "registered", body = Membership),
        (status = 202, description = "not confirmed by the store yet", body = Membership),
        (status = 409, description = "another live process, or another client of this node, has the id", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "it ended before it was registered", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn register(
    State(state): State<Shared>,
    Client(client): Client,
    Payload(worker): Payload<NewWorker>,
) -> Answer<Response> {
    let request = worker.check(&state, client)?;
    state.rate_limit.take(3.0)?;
    let shared = state.clone();
    let (member, new) = state.on_node(async move { shared.http_workers.join(request) }).await??;
    member.settled(SETTLE).await;
    // If the registration was refused, this returns why.
    let member = state.http_workers.member(&member.id, &member.registration)?;
    let status = match (new, member.is_registered()) {
        (false, _) => StatusCode::OK,
        (true, true) => StatusCode::CREATED,
        (true, false) => StatusCode::ACCEPTED,
    };
    Ok((status, axum::Json(membership(&state, &member))).into_response())
}

pub(crate) fn membership(state: &Shared, member: &HttpWorker) -> Membership {
    let known = state.leadership.borrow();
    let registered = member.is_registered();
    Membership {
        worker_id: member.id.to_string(),
        registration: member.registration.clone(),
        phase: if registered { "registered" } else { "registering" }.to_owned(),
        enabled: registered && known.is_leader(),
        epoch: known.epoch,
        lease_remaining_ms: known.remaining().and_then(|left| u64::try_from(left.as_millis()).ok()),
        heartbeat_within_ms: member.timeout_ms,
    }
}

/// What names a registration.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Sign {
    /// As the registration was answered.
    registration: String,
}

/// Says that the client lives, and learns whether its worker may work
#[utoipa::path(
    post, path = "/v1/workers/{id}/heartbeat", tag = "workers", request_body = Sign,
    params(("id" = String, Path, description = "the worker", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "heard", body = Membership),
        (status = 404, description = "not registered through this node, or dropped: register again", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "registered by another client, or taken over by another process", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "it has ended: register again", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn heartbeat(
    State(state): State<Shared>,
    Id(worker): Id<WorkerId>,
    Payload(sign): Payload<Sign>,
) -> Answer<axum::Json<Membership>> {
    let member = state.http_workers.member(&worker, &sign.registration)?;
    Ok(axum::Json(membership(&state, &member)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignQuery {
    /// As the registration was answered.
    registration: String,
}

/// Deregisters a worker: its object is removed, and what it was doing is given to others
#[utoipa::path(
    delete, path = "/v1/workers/{id}", tag = "workers",
    params(("id" = String, Path, description = "the worker", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128), SignQuery),
    responses(
        (status = 204, description = "gone"),
        (status = 404, description = "not registered through this node", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "registered by another client, or taken over by another process", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "it has ended already", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn deregister(
    State(state): State<Shared>,
    Id(worker): Id<WorkerId>,
    Params(sign): Params<SignQuery>,
) -> Answer<StatusCode> {
    state.http_workers.member(&worker, &sign.registration)?;
    let shared = state.clone();
    state.on_node(async move { shared.http_workers.leave(&worker).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
