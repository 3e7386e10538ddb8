//! The routes. Each is a view of the library.

mod cluster;
mod job;
mod jobs;
mod locks;
mod output;
mod probes;
mod queues;
mod schedules;
mod workers;

use crate::cached::Aged;
use crate::state::Shared;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn all(router: OpenApiRouter<Shared>) -> OpenApiRouter<Shared> {
    router
        .routes(routes!(crate::dashboard::index))
        .routes(routes!(crate::dashboard::asset))
        .routes(routes!(probes::livez))
        .routes(routes!(probes::readyz))
        .routes(routes!(probes::leaderz))
        .routes(routes!(probes::metrics))
        .routes(routes!(probes::openapi))
        .routes(routes!(cluster::leader))
        .routes(routes!(cluster::overview))
        .routes(routes!(cluster::status))
        .routes(routes!(cluster::nodes))
        .routes(routes!(cluster::metrics))
        .routes(routes!(cluster::health))
        .routes(routes!(cluster::terms))
        .routes(routes!(cluster::config))
        .routes(routes!(cluster::events))
        .routes(routes!(cluster::fence))
        .routes(routes!(cluster::step_down))
        .routes(routes!(workers::list, workers::register))
        .routes(routes!(workers::deregister))
        .routes(routes!(workers::heartbeat))
        .routes(routes!(locks::take, locks::give_back))
        .routes(routes!(locks::heartbeat))
        .routes(routes!(jobs::submit))
        .routes(routes!(jobs::next))
        .routes(routes!(jobs::ack))
        .routes(routes!(jobs::progress))
        .routes(routes!(jobs::result))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::show, schedules::put, schedules::remove))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run_now))
        .routes(routes!(schedules::jobs))
        .routes(routes!(schedules::history))
        .routes(routes!(output::output))
        .routes(routes!(job::show))
        .routes(routes!(job::cancel))
        .routes(routes!(job::retry))
        .routes(routes!(queues::list))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
}

/// An answer from serialized JSON.
fn json(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The same, with its age.
fn aged<T>(found: &Aged<T>, body: Bytes) -> Response {
    let mut response = json(body);
    response.headers_mut().insert(header::AGE, HeaderValue::from(found.age.as_secs()));
    response
}
