//! Errors in the format of RFC 9457.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tenure::Error;
use tenure::error::ErrorKind;
use tenure_plugins::schedules::ScheduleError;
use utoipa::ToSchema;

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was not answered as asked (RFC 9457).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Which kind of problem, for programs: `urn:tenure:problem:` and a name.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The status code.
    pub status: u16,
    /// What is wrong this time.
    pub detail: String,
    /// Every fault, where there can be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Seconds after which a try makes sense.
    #[serde(skip)]
    #[schema(ignore)]
    pub(crate) retry_after: Option<u64>,
}

pub(crate) type Answer<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        name: &str,
        title: &str,
        detail: impl std::fmt::Display,
    ) -> Problem {
        Problem {
            kind: format!("urn:tenure:problem:{name}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: told(&detail.to_string()),
            problems: Vec::new(),
            retry_after: None,
        }
    }

    fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn malformed(detail: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "malformed", "The request cannot be understood", detail)
    }

    pub(crate) fn bad_id(what: &str, error: &tenure::id::IdError) -> Problem {
        let detail = format!("{what} = {:?}: {}", error.value, error.rule);
        Problem::new(StatusCode::BAD_REQUEST, "bad-id", "Not a valid id", detail)
    }

    pub(crate) fn invalid(detail: impl std::fmt::Display) -> Problem {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid",
            "Invalid request; nothing was written",
            detail,
        )
    }

    pub(crate) fn not_found(name: &str, detail: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, name, "Not found", detail)
    }

    pub(crate) fn conflict(name: &str, detail: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::CONFLICT, name, "Not possible in the current state", detail)
    }

    pub(crate) fn gone(detail: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::GONE, "worker-ended", "The worker is no longer registered", detail)
    }

    pub(crate) fn store(detail: impl std::fmt::Display) -> Problem {
        let title = "The store does not answer, or refuses";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store", title, detail).retry_after(1)
    }

    pub(crate) fn unreadable(detail: impl std::fmt::Display) -> Problem {
        let title = "An object on the store cannot be read";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unreadable", title, detail)
    }

    pub(crate) fn stopping() -> Problem {
        let (title, detail) = ("The node is stopping", "ask another node");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", title, detail)
    }

    pub(crate) fn not_ready(detail: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "Not ready", detail).retry_after(1)
    }

    pub(crate) fn busy(detail: impl std::fmt::Display) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Too many requests at once", detail)
            .retry_after(1)
    }

    pub(crate) fn too_many(wait_s: u64) -> Problem {
        let detail =
            "requests that need the store are limited; /v1/leader and others served from memory are not";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many requests", detail)
            .retry_after(wait_s)
    }

    pub(crate) fn full(detail: impl std::fmt::Display) -> Problem {
        let title = "There is no room for more at present";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", title, detail).retry_after(1)
    }

    pub(crate) fn too_many_clients(detail: impl std::fmt::Display) -> Problem {
        let title = "Too many workers or locks";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many", title, detail).retry_after(60)
    }

    pub(crate) fn too_soon(pause: std::time::Duration, wait_s: u64) -> Problem {
        let detail = format!("this node accepts one step-down every {} s", pause.as_secs());
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many requests", detail)
            .retry_after(wait_s)
    }

    pub(crate) fn searches(wait_s: u64) -> Problem {
        let detail = "it is not among the newest jobs, and only one search through older jobs runs at a time, with a pause in between";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many requests", detail)
            .retry_after(wait_s)
    }
}

/// A text for people and terminals: on one line, and cut.
fn told(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tenure\""));
        }
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        match error.kind() {
            ErrorKind::Invalid => Problem::invalid(error),
            ErrorKind::Unavailable | ErrorKind::Denied => Problem::store(error),
            ErrorKind::Unreadable => Problem::unreadable(error),
            ErrorKind::NotFound => Problem::not_found("not-found", error),
            ErrorKind::Ended => Problem::gone(error),
            ErrorKind::Taken => Problem::conflict("worker-held", error),
            ErrorKind::Full => Problem::full(error),
            ErrorKind::NotLeading | ErrorKind::Fenced | ErrorKind::Raced => Problem::conflict("raced", error),
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Problem {
        if let ScheduleError::Unknown(_) = error {
            return Problem::not_found("unknown-schedule", error);
        }
        if let ScheduleError::Exists(_) = error {
            return Problem::conflict("raced", error);
        }
        Error::new(error.kind(), error).into()
    }
}
