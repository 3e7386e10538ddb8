//! Routes for orchestrators, load balancers and metric collectors.

use super::json;
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tenure::metrics::prometheus_client::encoding::text;

/// How soon the node's runtime must answer.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// How long a sign of life remains valid.
const SIGN_KEPT: Duration = Duration::from_secs(1);

/// Whether the process works: the runtime of the node gets to run
#[utoipa::path(get, path = "/livez", tag = "probes", responses((status = 200, description = "it works", body = String, content_type = "text/plain")))]
pub(crate) async fn livez(State(state): State<Shared>) -> Answer<&'static str> {
    // Anybody may ask, so asking must not create work for the node.
    if state.last_sign().is_some_and(|last| last.elapsed() < SIGN_KEPT) {
        return Ok("ok\n");
    }
    let sign = state.store.runtime.spawn(async {});
    match tokio::time::timeout(SIGN_OF_LIFE, sign).await {
        Ok(Ok(())) => {
            state.sign();
            Ok("ok\n")
        }
        Ok(Err(_)) => Err(Problem::stopping()),
        Err(_) => Err(Problem::busy(format!("the node did not respond within {} s", SIGN_OF_LIFE.as_secs()))),
    }
}

/// Whether the node takes part: it has joined, or may not lead at all, and the store answers it
#[utoipa::path(get, path = "/readyz", tag = "probes", responses((status = 200, description = "it takes part", body = String, content_type = "text/plain")))]
pub(crate) async fn readyz(State(state): State<Shared>) -> Answer<&'static str> {
    if state.closing.is_cancelled() {
        return Err(Problem::stopping());
    }
    let (joined, trouble) = {
        let known = state.leadership.borrow();
        (known.role.is_some() || !state.node.settings().eligible, known.store_trouble)
    };
    match (joined, trouble) {
        (_, true) => Err(Problem::not_ready("the store does not answer, or refuses")),
        (false, false) => Err(Problem::not_ready("the node has not joined yet")),
        (true, false) => Ok("ok\n"),
    }
}

/// Whether this node leads, at this very moment: for load balancers that send requests to the leader
#[utoipa::path(
    get, path = "/leaderz", tag = "probes",
    responses((status = 200, description = "it leads", body = String, content_type = "text/plain"), (status = 503, description = "it does not lead", body = Problem, content_type = "application/problem+json")),
)]
pub(crate) async fn leaderz(State(state): State<Shared>) -> Answer<&'static str> {
    if state.leads() {
        return Ok("ok\n");
    }
    Err(Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not-leader",
        "This node does not lead",
        "ask another node",
    ))
}

/// The figures of this node, for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "probes",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")),
)]
pub(crate) async fn metrics(State(state): State<Shared>) -> Response {
    let mut body = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut body, &state.registry);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], body)
        .into_response()
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "probes", responses((status = 200, description = "OpenAPI", body = serde_json::Value)))]
pub(crate) async fn openapi(State(state): State<Shared>) -> Response {
    json(state.openapi.clone())
}
