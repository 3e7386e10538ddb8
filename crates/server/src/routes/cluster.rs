//! Viewing the cluster, asking its fence, and asking its leader to step down.

use super::{aged, json};
use crate::event_stream::{From, KEPT, Level, StreamRequest};
use crate::extract::{Params, Payload};
use crate::overview::{Leader, NodeRow, Overview, nodes as node_rows, overview as whole, short};
use crate::problem::{Answer, Problem};
use crate::state::{Config, Shared};
use crate::store_reads::{FRESH, bytes_of};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tenure::Verdict;
use tenure::admin::{HandOver, Status, StepDownAnswer, hand_over, request_step_down};
use tenure::fence::EPOCH_MAX;
use tenure::metrics::Metrics;
use tenure_plugins::cluster_health::HealthView;
use tenure_plugins::terms::{TERMS_MAX, TermsView};
use utoipa::{IntoParams, ToSchema};

/// The oldest document that a client may be content with.
const MAX_AGE_MAX_S: u64 = 300;

/// The longest wait for a handover.
const WAIT_MAX_MS: u64 = 10_000;

/// Who leads, from memory: as fast as it gets, and of this moment
#[utoipa::path(get, path = "/v1/leader", tag = "cluster", responses((status = 200, description = "the leader this node knows", body = Leader)))]
pub(crate) async fn leader(State(state): State<Shared>) -> Response {
    json(bytes_of(&short(&state)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OverviewQuery {
    /// What comes from the store may be so many seconds old, at most 300. Default: as fresh as the limits allow.
    #[param(minimum = 0, maximum = 300)]
    max_age: Option<u64>,
}

/// The cluster at a glance
#[utoipa::path(get, path = "/v1/overview", tag = "cluster", params(OverviewQuery), responses((status = 200, description = "everything a page about the cluster shows", body = Overview)))]
pub(crate) async fn overview(
    State(state): State<Shared>,
    Params(query): Params<OverviewQuery>,
) -> Answer<Response> {
    let most_s = query.max_age.unwrap_or(0);
    if most_s > MAX_AGE_MAX_S {
        return Err(Problem::malformed(format!("maxAge = {most_s}: must be at most {MAX_AGE_MAX_S}")));
    }
    Ok(json(bytes_of(&whole(&state, Duration::from_secs(most_s)).await)))
}

/// Who leads and which nodes are there, as `tenure status --json` has it; a few seconds old
#[utoipa::path(get, path = "/v1/status", tag = "cluster", responses((status = 200, description = "the seat and the presences; Age says how old", body = Status)))]
pub(crate) async fn status(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.cluster(FRESH).await?;
    Ok(aged(&found, bytes_of(&found.value.status)))
}

/// The nodes.
#[derive(Serialize, ToSchema)]
pub(crate) struct Nodes<'a> {
    namespace: &'a str,
    nodes: Vec<NodeRow>,
}

/// The nodes, with what the leader says of each; a few seconds old
#[utoipa::path(get, path = "/v1/nodes", tag = "cluster", responses((status = 200, description = "`namespace` and `nodes`; Age says how old", body = Nodes<'_>)))]
pub(crate) async fn nodes(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.cluster(FRESH).await?;
    let figures = state.store_reads.last_figures();
    let nodes = node_rows(&found.value, figures.as_ref().map(|found| &*found.value));
    let body = Nodes { namespace: state.namespace.as_str(), nodes };
    Ok(aged(&found, bytes_of(&body)))
}

/// This node's figures, under the names of `tenure metrics --json`; from memory
#[utoipa::path(get, path = "/v1/metrics", tag = "cluster", responses((status = 200, description = "the figures", body = Metrics)))]
pub(crate) async fn metrics(State(state): State<Shared>) -> Response {
    json(bytes_of(&state.node.metrics()))
}

/// How the cluster is doing, as `tenure health --json` has it; a few seconds old
#[utoipa::path(get, path = "/v1/health/cluster", tag = "cluster", responses((status = 200, description = "`status` is healthy, degraded, critical or unknown; Age says how old", body = HealthView)))]
pub(crate) async fn health(State(state): State<Shared>) -> Answer<Response> {
    let found = state.store_reads.cluster(FRESH).await?;
    let body = bytes_of(found.value.health.as_ref().map_err(Clone::clone)?);
    Ok(aged(&found, body))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TermsQuery {
    /// At most so many, 1 to 1,000. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The terms of leaders, the newest first, as `tenure history --json` has them; a few seconds old
///
/// Finished jobs are at `/v1/history`.
#[utoipa::path(get, path = "/v1/terms", tag = "cluster", params(TermsQuery), responses((status = 200, description = "`terms`, each with `epoch`, `leader`, `from`, `until`, `ended` and, in words, `why`; Age says how old", body = TermsView)))]
pub(crate) async fn terms(
    State(state): State<Shared>,
    Params(query): Params<TermsQuery>,
) -> Answer<Response> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=TERMS_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit = {limit}: must be 1 to {TERMS_MAX}")));
    }
    let found = state.store_reads.terms().await?;
    let TermsView { namespace, epoch, terms } = &*found.value;
    let terms = terms.iter().take(limit).cloned().collect();
    Ok(aged(&found, bytes_of(&TermsView { namespace: namespace.clone(), epoch: *epoch, terms })))
}

/// What this node runs by, and where each value came from; no secrets
#[utoipa::path(get, path = "/v1/config", tag = "cluster", responses((status = 200, description = "`settings` by name, each with `value` and `from`, and `http`", body = Config)))]
pub(crate) async fn config(State(state): State<Shared>) -> Response {
    json(state.config.clone())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Begin with so many events of the past, at most 1,000. A `Last-Event-ID` goes before it.
    #[param(minimum = 0, maximum = 1000)]
    recent: Option<usize>,
    /// `info`: without those that a healthy node repeats all the time. Default: `debug`, all of them.
    #[serde(default)]
    #[param(inline)]
    level: Level,
    /// `false`: the stream ends with the newest event there is.
    #[serde(default = "yes")]
    #[param(default = true)]
    follow: bool,
}

fn yes() -> bool {
    true
}

/// This node's events as they happen, as server-sent events: the same JSON as `tenure run --events`
///
/// Each has an `id`; who comes back with `Last-Event-ID` gets what it missed, as far as it is among the last 1,000 events of
/// its level in this life of the node. If not, an event of type `missed` says so first; at level `info` it does not say how
/// many.
#[utoipa::path(
    get, path = "/v1/events", tag = "cluster", params(EventsQuery, ("last-event-id" = Option<String>, Header, description = "continue after this event")),
    responses((status = 200, description = "a stream of events, endless unless `follow` is false", body = String, content_type = "text/event-stream")),
)]
pub(crate) async fn events(
    State(state): State<Shared>,
    Params(query): Params<EventsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let from = match (headers.get("last-event-id"), query.recent) {
        (Some(id), _) => From::After(String::from_utf8_lossy(id.as_bytes()).into_owned()),
        (None, Some(count)) if count > KEPT => {
            return Err(Problem::malformed(format!("recent = {count}: must be at most {KEPT}")));
        }
        (None, Some(count)) => From::Recent(count),
        (None, None) => From::Now,
    };
    let permit = Arc::clone(&state.streams).try_acquire_owned().map_err(|_| {
        Problem::busy(format!("{} event streams are open, which is the limit", state.options.limits.streams))
    })?;
    let keep_alive = state.options.limits.keep_alive;
    let request = StreamRequest { from, level: query.level, follow: query.follow };
    let stream = Arc::clone(&state.event_buffer).stream(&request, keep_alive, state.closing.clone(), permit);
    // nginx holds a response back until it is told not to.
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((headers, Body::from_stream(stream)).into_response())
}

/// What a task carries; a task's stamp fits as it is.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FenceAsk {
    /// The epoch of the leader that dispatched it.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    epoch: u64,
    /// When it was dispatched, in ms since 1970; without it there is no grace.
    dispatched_at: Option<i64>,
    /// After this it is not worth doing, in ms since 1970.
    deadline: Option<i64>,
    /// Which task; not looked at.
    #[serde(default, rename = "id")]
    _id: Option<String>,
}

/// The verdict.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FenceAnswer {
    /// `accept`, `accept_late`, `reject_stale`, or `reject_expired` if its deadline has passed.
    verdict: &'static str,
    /// Whether it may be done.
    accepted: bool,
    /// The epoch asked about.
    epoch: u64,
    /// The highest epoch this node has heard of from the store.
    known_epoch: u64,
}

/// Whether a task of some epoch may be acted on, as far as this node has heard; from memory
///
/// An epoch this node has not heard of is accepted, and not taken as known: nobody can shut others out with a number.
#[utoipa::path(
    post, path = "/v1/fence", tag = "fencing", request_body = FenceAsk,
    responses((status = 200, description = "the verdict", body = FenceAnswer), (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn fence(State(state): State<Shared>, Payload(ask): Payload<FenceAsk>) -> Answer<Response> {
    if ask.epoch > EPOCH_MAX {
        return Err(Problem::invalid(format!("epoch = {}: must be at most {EPOCH_MAX}", ask.epoch)));
    }
    let now = jiff::Timestamp::now().as_millisecond();
    let expired = ask.deadline.is_some_and(|deadline| now > deadline);
    let (verdict, accepted) = match state.fence.judge_only(ask.epoch, ask.dispatched_at) {
        Verdict::RejectStale => ("reject_stale", false),
        Verdict::Accept | Verdict::AcceptLate if expired => ("reject_expired", false),
        Verdict::Accept => ("accept", true),
        Verdict::AcceptLate => ("accept_late", true),
    };
    let known_epoch = state.fence.epoch();
    Ok(json(bytes_of(&FenceAnswer { verdict, accepted, epoch: ask.epoch, known_epoch })))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
pub(crate) struct StepDownAsk {
    /// How long to wait for the next leader, at most 10,000; 0: ask and do not wait.
    #[schema(maximum = 10_000)]
    wait_ms: u64,
}

/// What came of a step-down.
#[derive(Serialize, ToSchema)]
pub(crate) struct SteppedDown {
    namespace: String,
    /// Who was asked.
    asked: LeaderInEpoch,
    /// `asked`: nobody waited. `led`: another leads. `vacant`: nobody does yet. `held`: it still does.
    outcome: &'static str,
    leader: Option<LeaderInEpoch>,
}

/// A leader in its epoch.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct LeaderInEpoch {
    node: String,
    epoch: u64,
}

/// Asks the leader to hand over, whoever it is
#[utoipa::path(
    post, path = "/v1/step-down", tag = "cluster", request_body = Option<StepDownAsk>,
    responses(
        (status = 202, description = "asked; `outcome` and `leader` as `tenure step-down --json` has them", body = SteppedDown),
        (status = 409, description = "nobody leads, or the seat changed during every attempt", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn step_down(
    State(state): State<Shared>,
    Payload(ask): Payload<StepDownAsk>,
) -> Answer<Response> {
    if ask.wait_ms > WAIT_MAX_MS {
        return Err(Problem::invalid(format!("waitMs = {}: must be at most {WAIT_MAX_MS}", ask.wait_ms)));
    }
    state.rate_limit.take(5.0 + (ask.wait_ms / 200) as f64)?;
    state.step_downs.take()?;
    let (store, by) = (state.store.clone(), format!("a client over HTTP, through node {}", state.node.id()));
    let asked = state.on_node(async move {
        let answer = request_step_down(&store.lanes, &store.namespace, &by).await?;
        let asked = match answer {
            StepDownAnswer::NoLeader { epoch } => {
                return Err(Problem::conflict("no-leader", format!("nobody has led since epoch {epoch}")));
            }
            StepDownAnswer::Ended { node, epoch } => LeaderInEpoch { node, epoch },
            StepDownAnswer::Asked(asked) => LeaderInEpoch { node: asked.node, epoch: asked.epoch },
        };
        let wait = Duration::from_millis(ask.wait_ms);
        let (outcome, leader) = match wait.is_zero() {
            true => ("asked", None),
            false => match hand_over(&store.lanes, &store.namespace, asked.epoch, wait).await? {
                HandOver::Led { node, epoch } => ("led", Some(LeaderInEpoch { node, epoch })),
                HandOver::Vacant => ("vacant", None),
                HandOver::Held => ("held", Some(asked.clone())),
            },
        };
        Ok(SteppedDown { namespace: store.namespace.to_string(), asked, outcome, leader })
    });
    Ok((StatusCode::ACCEPTED, axum::Json(asked.await??)).into_response())
}
