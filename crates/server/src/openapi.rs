//! The routes and the document that describes them, from one list.

use crate::access::Need;
use crate::middleware;
use crate::problem::{PROBLEM_JSON, Problem};
use crate::routes;
use crate::state::Shared;
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use serde::Serialize;
use serde_json::Value;
use tenure::metrics::{Bucket, Histogram, JobMetrics, LaneRequests, Metrics, Requests};
use tenure_plugins::cluster_health::WorkersHealth;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Response,
    ResponseBuilder, Schema, SecurityRequirement,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

/// Problems that any request may get.
const ANYWHERE: [(&str, &str); 9] = [
    ("400", "the request cannot be understood"),
    ("401", "the bearer token is missing or wrong"),
    ("403", "the token may only read, or the request comes from a page of another origin"),
    ("408", "the request took too long to arrive"),
    ("413", "the body is too large"),
    ("415", "the content type is not JSON"),
    ("421", "the Host header names another server"),
    ("429", "too many requests that need the store; Retry-After says when to try again"),
    ("503", "the store does not answer, the node is stopping, or too many requests run at once"),
];

fn routes() -> OpenApiRouter<Shared> {
    let info = InfoBuilder::new().title("Tenure").version(env!("CARGO_PKG_VERSION")).description(Some(
        "A node of Tenure over HTTP. Times are milliseconds unless a name says otherwise.",
    ));
    let mut components = Components::new();
    components.schemas.insert("Problem".to_owned(), Problem::schema());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let openapi = OpenApiBuilder::new().info(info.build()).components(Some(components)).build();
    routes::all(OpenApiRouter::with_openapi(openapi))
}

pub fn document() -> OpenApi {
    let mut openapi = routes().into_openapi();
    for (path, item) in &mut openapi.paths.paths {
        for (method, operation) in METHODS.into_iter().zip(operations(item)) {
            if let Some(operation) = operation {
                operation.operation_id = Some(operation_id(&method, path));
                complete(operation, Need::of(&method, path));
            }
        }
    }
    if let Some(components) = &mut openapi.components {
        written_whole::<Metrics>(components);
        written_whole::<JobMetrics>(components);
        written_whole::<Histogram>(components);
        written_whole::<Bucket>(components);
        written_whole::<LaneRequests>(components);
        written_whole::<Requests>(components);
        written_whole::<WorkersHealth>(components);
    }
    openapi
}

/// Types that are also read, from older versions, have `#[serde(default)]`. Their schemas then say that every field may be
/// missing and has a default. That is not so when they are written: the JSON of an empty one has every field that always stands.
fn written_whole<T: ToSchema + Serialize + Default>(components: &mut Components) {
    let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(&*T::name()) else { return };
    let Ok(Value::Object(fields)) = serde_json::to_value(T::default()) else { return };
    // As elsewhere, what may be null may be missing.
    schema.required =
        fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name).collect();
    for property in schema.properties.values_mut() {
        match property {
            RefOr::Ref(property) => property.default = None,
            RefOr::T(Schema::Object(property)) => property.default = None,
            RefOr::T(Schema::Array(property)) => property.default = None,
            RefOr::T(_) => {}
        }
    }
}

/// Example: `get_v1_schedules_id`
fn operation_id(method: &Method, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method.as_str().to_ascii_lowercase().as_str())
        .chain(words)
        .collect::<Vec<&str>>()
        .join("_")
}

const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::PUT, Method::DELETE];

fn operations(item: &mut PathItem) -> [Option<&mut Operation>; 4] {
    [item.get.as_mut(), item.post.as_mut(), item.put.as_mut(), item.delete.as_mut()]
}

/// Adds the common problems and the token, which is optional for reads on loopback.
fn complete(operation: &mut Operation, need: Need) {
    for (status, words) in ANYWHERE {
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(words)));
    }
    let token = || SecurityRequirement::new("bearer", [""; 0]);
    operation.security = match need {
        Need::Nothing => None,
        Need::Read => Some(vec![SecurityRequirement::default(), token()]),
        Need::Change => Some(vec![token()]),
    };
}

fn problem(words: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    ResponseBuilder::new().description(words).content(PROBLEM_JSON, content).build()
}

/// Every route, for example `GET /v1/leader`, in order.
pub fn route_names() -> Vec<String> {
    let mut names = Vec::new();
    for (path, mut item) in document().paths.paths {
        for (method, operation) in METHODS.into_iter().zip(operations(&mut item)) {
            if operation.is_some() {
                names.push(format!("{method} {path}"));
            }
        }
    }
    names
}

pub(crate) fn router(state: Shared) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(axum::middleware::from_fn_with_state(state.clone(), middleware::check_and_answer))
        .with_state(state)
}

async fn no_route(uri: Uri) -> Problem {
    Problem::not_found(
        "no-route",
        format!("there is no route {:?}; /openapi.json lists them all", uri.path()),
    )
}

async fn no_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{:?} does not allow {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-method", "Method not allowed", detail)
}
