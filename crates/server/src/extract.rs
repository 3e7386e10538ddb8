//! Input: bodies, ids in paths, queries. Each fault becomes a problem that names it.

use crate::connections::Peer;
use crate::problem::Problem;
use crate::state::Shared;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::convert::Infallible;
use std::net::IpAddr;
use std::str::FromStr;
use tenure::id::IdError;

/// A JSON body, within the limits of size and time. No body counts as an empty object.
pub(crate) struct Payload<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Payload<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Shared) -> Result<Payload<T>, Problem> {
        let limits = &state.options.limits;
        let body = Limited::new(request.into_body(), limits.body_bytes).collect();
        let body = match tokio::time::timeout(limits.body, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large(limits.body_bytes)),
            Ok(Err(_)) => return Err(Problem::malformed("the body is incomplete")),
            Err(_) => {
                let detail = format!("the body did not arrive within {} s", limits.body.as_secs_f64());
                let title = "The request took too long to arrive";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", title, detail));
            }
        };
        let body = if body.is_empty() { &b"{}"[..] } else { &body[..] };
        let no_json = |error| Problem::malformed(format!("the body is not JSON: {error}"));
        let value: Value = serde_json::from_slice(body).map_err(no_json)?;
        if !value.is_object() {
            return Err(Problem::invalid("the body must be a JSON object: {…}"));
        }
        T::deserialize(value).map(Payload).map_err(Problem::invalid)
    }
}

fn too_large(most: usize) -> Problem {
    let (title, detail) = ("The body is too large", format!("at most {most} bytes are allowed"));
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", title, detail)
}

/// Whether a request declares a JSON body. Others are refused, because a form on another site cannot declare one.
pub(crate) fn says_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The id in the path, checked by the library's rule.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: FromStr<Err = IdError>> FromRequestParts<Shared> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Id<T>, Problem> {
        let Path(text) =
            Path::<String>::from_request_parts(parts, state).await.map_err(Problem::malformed)?;
        id("id", &text).map(Id)
    }
}

pub(crate) fn id<T: FromStr<Err = IdError>>(what: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: IdError| Problem::bad_id(what, &error))
}

/// The same in a body: a bad id there breaks a rule; it does not make the request malformed.
pub(crate) fn id_in_body<T: FromStr<Err = IdError>>(what: &str, text: &str) -> Result<T, Problem> {
    id(what, text).map_err(|problem| Problem::invalid(problem.detail))
}

/// The client's address. If you run the [`router`](crate::router) in your own server, put this into the extensions of each
/// request, so that each client has a share of its own; otherwise all clients count as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientAddress(pub IpAddr);

/// The client's address, if known.
pub(crate) struct Client(pub(crate) Option<Peer>);

impl FromRequestParts<Shared> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Client, Infallible> {
        let address = parts.extensions.get::<ClientAddress>();
        Ok(Client(address.map(|ClientAddress(address)| Peer::new(*address))))
    }
}

pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Params<T>, Problem> {
        let found = Query::<T>::from_request_parts(parts, state).await;
        found.map(|Query(found)| Params(found)).map_err(|error| Problem::malformed(error.body_text()))
    }
}
