//! What runs before every route: who may ask, from where, and how long an answer may take.

use crate::access::{Need, Refusal};
use crate::extract::says_json;
use crate::problem::Problem;
use crate::state::Shared;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Answered for any `Host`: probes use an address, or a name chosen by the orchestrator.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/leaderz"];

/// How much longer a long poll may take than other answers.
const LONG_POLL: Duration = Duration::from_secs(35);

/// Set on every answer that does not set them itself.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(crate) async fn check_and_answer(State(state): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = match check(&state, &request) {
        Ok(()) => answer(&state, request, next).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn answer(state: &Shared, request: Request, next: Next) -> Response {
    let long = if request.uri().path().ends_with("/jobs/next") { LONG_POLL } else { Duration::ZERO };
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(state.options.limits.answer + long, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            let (title, detail) = ("Internal error", "see the node's log");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "mistake", title, detail).into_response()
        }
        Err(_) => Problem::busy("no answer in time").into_response(),
    }
}

fn check(state: &Shared, request: &Request) -> Result<(), Problem> {
    let (path, headers) = (request.uri().path(), request.headers());
    if PROBES.contains(&path) {
        return Ok(());
    }
    let host = host(request)?;
    if !state.options.knows_host(host) {
        let detail = "the Host header names another server; allow more host names with --http-host";
        let title = "Wrong host name";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", title, detail));
    }
    let need = Need::of(request.method(), path);
    state.options.access.check(need, bearer(headers)).map_err(|refusal| refused(refusal, need))?;
    if need == Need::Nothing {
        return Ok(());
    }
    if crosses_sites(headers, host) {
        let (title, detail) =
            ("Requests from other sites are not allowed", "the request comes from a page of another origin");
        return Err(Problem::new(StatusCode::FORBIDDEN, "cross-site", title, detail));
    }
    // No body counts as an empty object. Another site's page could send that too, but its origin was refused above.
    let empty = request.body().is_end_stream() && !headers.contains_key(header::CONTENT_TYPE);
    let has_body = matches!(*request.method(), Method::POST | Method::PUT) && !empty;
    if has_body && !says_json(headers) {
        let (title, detail) = ("The body must be JSON", "send Content-Type: application/json");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", title, detail));
    }
    Ok(())
}

/// The request's token; empty if it has none.
fn bearer(headers: &HeaderMap) -> &[u8] {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let bearer = given.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    bearer.map(|(_, token)| token).unwrap_or_default()
}

fn refused(refusal: Refusal, need: Need) -> Problem {
    let unauthorized =
        |detail| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "A token is needed", detail);
    let forbidden =
        |kind, detail| Problem::new(StatusCode::FORBIDDEN, kind, "Changes are not allowed", detail);
    match (refusal, need) {
        (Refusal::UnknownToken, Need::Change) => unauthorized(
            "changes need `Authorization: Bearer TOKEN` with this node's token; `tenure token` shows it to \
             the user that runs the node",
        ),
        (Refusal::UnknownToken, Need::Read | Need::Nothing) => {
            unauthorized("this server needs `Authorization: Bearer TOKEN` with one of its tokens")
        }
        (Refusal::ReadOnlyToken, _) => {
            forbidden("read-only", "this token may only read; changes need the node's other token")
        }
        (Refusal::NoChanges, _) => {
            let detail = "this server was started without a token, so it is read-only";
            forbidden("no-changes", detail)
        }
    }
}

/// The single host the request is for.
fn host(request: &Request) -> Result<&str, Problem> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let told = first.filter(|_| second.is_none()).and_then(|host| host.to_str().ok());
    let told = told.ok_or_else(|| Problem::malformed("there must be exactly one Host header"))?;
    match request.uri().authority() {
        Some(authority) if authority.as_str() != told => {
            Err(Problem::malformed("the request line and the Host header name different hosts"))
        }
        Some(_) | None => Ok(told),
    }
}

/// Browsers say where a request comes from; programs do not.
fn crosses_sites(headers: &HeaderMap, host: &str) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let foreign = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("null"));
    let own = |origin: &str| {
        let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        name.is_some_and(|name| name.eq_ignore_ascii_case(host))
    };
    foreign || origin.is_some_and(|origin| !own(origin))
}
