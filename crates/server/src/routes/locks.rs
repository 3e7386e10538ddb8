//! Locks, for programs in any language.

use crate::extract::{Client, Id, Params, Payload, id_in_body};
use crate::http_locks::{LockHeld, LockRequest};
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use std::time::Duration;
use tenure::clock::millis;
use tenure::id::{Label, PluginName};
use utoipa::{IntoParams, ToSchema};

/// The longest a request waits for a lock.
const WAIT_MAX_MS: u64 = 30_000;

/// How long it takes to get a lock that nobody holds, at least.
const FREE: Duration = Duration::from_secs(3);

const TIMEOUT_MS: u64 = 10_000;
const TIMEOUT_MIN_MS: u64 = 1000;

/// A lock to be taken.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LockAsk {
    /// What names this holding: whoever sends the same again gets what it holds already. Default: made up.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", min_length = 16, max_length = 128)]
    holding: Option<String>,
    /// How long to wait for the lock, at most 30,000. Default: 0, try once.
    #[serde(default)]
    #[schema(maximum = 30_000)]
    wait_ms: u64,
    /// How long the client may be silent, 1,000 to 600,000. Default: 10,000.
    #[schema(minimum = 1000, maximum = 600_000)]
    timeout: Option<u64>,
}

/// What names a holding.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HoldingSign {
    /// As the lock was answered.
    holding: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldingQuery {
    /// As the lock was answered.
    holding: String,
}

fn holding(text: &str) -> Answer<Label> {
    if text.len() < 16 {
        return Err(Problem::invalid("holding: must have at least 16 characters"));
    }
    id_in_body("holding", text)
}

fn unknown(name: &PluginName) -> Problem {
    let detail = format!("the lock {name} is not held through this node under this `holding`");
    Problem::not_found("unknown-lock", detail)
}

/// Takes a lock, if need be after a wait, and keeps it for as long as the client is heard of
#[utoipa::path(
    post, path = "/v1/locks/{id}", tag = "locks", request_body = LockAsk,
    params(("id" = String, Path, description = "the lock", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 120)),
    responses(
        (status = 200, description = "the client holds it", body = LockHeld),
        (status = 409, description = "somebody else holds it; `detail` says who", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn take(
    State(state): State<Shared>,
    Client(client): Client,
    Id(name): Id<PluginName>,
    Payload(ask): Payload<LockAsk>,
) -> Answer<axum::Json<LockHeld>> {
    let most_ms = millis(state.options.limits.worker_timeout);
    let timeout_ms = ask.timeout.unwrap_or(TIMEOUT_MS);
    if !(TIMEOUT_MIN_MS..=most_ms).contains(&timeout_ms) {
        let detail = format!("timeout = {timeout_ms}: must be {TIMEOUT_MIN_MS} to {most_ms}");
        return Err(Problem::invalid(detail));
    }
    if ask.wait_ms > WAIT_MAX_MS {
        return Err(Problem::invalid(format!("waitMs = {}: must be at most {WAIT_MAX_MS}", ask.wait_ms)));
    }
    let asked = ask.holding.as_deref().map(holding).transpose()?;
    if let Some(held) = asked.as_ref().and_then(|asked| state.http_locks.held(&name, asked)) {
        return Ok(axum::Json(held));
    }
    state.rate_limit.take(3.0)?;
    let (node, lock) = (state.node.clone(), name.clone());
    let holder = state.on_node(async move { node.lock_holder(lock.as_str()).await }).await??;
    let mut wait = Duration::from_millis(ask.wait_ms);
    match holder {
        Some(holder) if wait.is_zero() => return Err(locked(&name, &holder.node, holder.since.as_deref())),
        Some(_) => {}
        None => wait = wait.max(FREE),
    }
    let request = LockRequest { name: name.clone(), holding: asked, timeout_ms, client };
    let shared = state.clone();
    let lock = state.on_node(async move { shared.http_locks.want(request) }).await??;
    lock.settled(wait).await;
    if let Some(held) = lock.promise() {
        return Ok(axum::Json(held));
    }
    // Whoever was told that it has no lock gets none later.
    state.http_locks.give_back(&name, lock.holding());
    let (node, lock) = (state.node.clone(), name.clone());
    let holder = state.on_node(async move { node.lock_holder(lock.as_str()).await }).await??;
    Err(match holder {
        Some(holder) => locked(&name, &holder.node, holder.since.as_deref()),
        None => Problem::conflict("locked", format!("the lock {name} could not be taken in time")),
    })
}

fn locked(name: &PluginName, holder: &str, since: Option<&str>) -> Problem {
    let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
    Problem::conflict("locked", format!("the lock {name} is held by {holder}{since}"))
}

/// Says that the client lives and still needs the lock, and learns for how long it has it
#[utoipa::path(
    post, path = "/v1/locks/{id}/heartbeat", tag = "locks", request_body = HoldingSign,
    params(("id" = String, Path, description = "the lock", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 120)),
    responses(
        (status = 200, description = "the client still holds it", body = LockHeld),
        (status = 404, description = "it was lost: stop what you do under it", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn heartbeat(
    State(state): State<Shared>,
    Id(name): Id<PluginName>,
    Payload(sign): Payload<HoldingSign>,
) -> Answer<axum::Json<LockHeld>> {
    let held = state.http_locks.held(&name, &holding(&sign.holding)?);
    held.map(axum::Json).ok_or_else(|| unknown(&name))
}

/// Gives a lock back: the client has stopped what it did under it
#[utoipa::path(
    delete, path = "/v1/locks/{id}", tag = "locks",
    params(("id" = String, Path, description = "the lock", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 120), HoldingQuery),
    responses(
        (status = 204, description = "given back"),
        (status = 404, description = "not held through this node", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn give_back(
    State(state): State<Shared>,
    Id(name): Id<PluginName>,
    Params(sign): Params<HoldingQuery>,
) -> Answer<StatusCode> {
    let signed = crate::extract::id::<Label>("holding", &sign.holding)?;
    if !state.http_locks.give_back(&name, &signed) {
        return Err(unknown(&name));
    }
    Ok(StatusCode::NO_CONTENT)
}
