//! The state shared by the routes.

use crate::event_stream::EventBuffer;
use crate::http_locks::HttpLocks;
use crate::http_workers::HttpWorkers;
use crate::options::{Options, Token};
use crate::problem::{Answer, Problem};
use crate::rate_limit::{MinInterval, RateLimit, SearchLimit};
use crate::store_reads::{StoreAccess, StoreReads};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::future::Future;
use std::sync::Arc;
use tenure::job::Jobs;
use tenure::metrics::prometheus_client::registry::Registry;
use tenure::plugin::NodeHandle;
use tenure::settings::{Origin, Resolved};
use tenure::worker::Workers;
use tenure::{Event, Fence, Leadership, Namespace, Node, Role};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// What the server uses of a node. It does not own the node and never keeps it from stopping.
#[derive(Debug)]
pub struct Parts {
    pub(crate) node: NodeHandle,
    pub(crate) fence: Fence,
    pub(crate) jobs: Jobs,
    pub(crate) registry: Registry,
    pub(crate) events: broadcast::Receiver<Event>,
    pub(crate) config: Map<String, Value>,
    pub(crate) runtime: Handle,
}

impl Parts {
    /// Must be called on the node's runtime: all requests to the store run there.
    pub fn of(node: &Node) -> Parts {
        Parts {
            node: node.handle(),
            fence: node.fence(),
            jobs: node.jobs(),
            registry: node.registry(),
            events: node.events(),
            config: Map::new(),
            runtime: Handle::current(),
        }
    }

    /// Uses these events, from the very first on; see [`tenure::NodeBuilder::events`].
    pub fn events(mut self, events: broadcast::Receiver<Event>) -> Parts {
        self.events = events;
        self
    }

    /// Adds settings to show, and where each came from. They hold no secret: credentials come only from the environment.
    pub fn config(mut self, resolved: &Resolved) -> Parts {
        let entry = |origin: &Origin| {
            let setting = SettingValue { value: origin.value.to_json(), from: origin.source.to_string() };
            (origin.field.name.to_owned(), json!(setting))
        };
        self.config = resolved.sources.iter().map(entry).collect();
        self
    }
}

/// What the node runs by.
#[derive(Serialize, ToSchema)]
pub(crate) struct Config {
    /// By name.
    #[schema(value_type = BTreeMap<String, SettingValue>)]
    settings: Map<String, Value>,
    http: HttpConfig,
}

/// A setting.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettingValue {
    value: Value,
    /// Where it came from.
    from: String,
}

/// How the node listens.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpConfig {
    listen: String,
    /// The token for changes: `set (masked)` or `not set`.
    token: &'static str,
    /// The token that may only read.
    read_token: &'static str,
    /// Names it answers to besides addresses and `localhost`.
    hosts: Vec<String>,
}

pub(crate) type Shared = Arc<State>;

pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) node: NodeHandle,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) workers: watch::Receiver<Workers>,
    pub(crate) fence: Fence,
    pub(crate) registry: Registry,
    pub(crate) jobs: Jobs,
    pub(crate) config: Bytes,
    pub(crate) namespace: Namespace,
    pub(crate) store: StoreAccess,
    pub(crate) store_reads: StoreReads,
    pub(crate) event_buffer: Arc<EventBuffer>,
    pub(crate) http_workers: HttpWorkers,
    pub(crate) http_locks: HttpLocks,
    pub(crate) rate_limit: Arc<RateLimit>,
    pub(crate) step_downs: MinInterval,
    /// For searches through all jobs, by those who look and by those who change something: neither waits for the other.
    pub(crate) searches: SearchLimit,
    pub(crate) change_searches: SearchLimit,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) closing: CancellationToken,
    pub(crate) openapi: Bytes,
    /// When the node's runtime last showed a sign of life.
    signed: Mutex<Option<Instant>>,
}

impl State {
    pub(crate) fn new(
        options: Options,
        parts: Parts,
        openapi: Bytes,
        closing: CancellationToken,
    ) -> (Shared, broadcast::Receiver<Event>) {
        let namespace = parts.node.namespace();
        let store = StoreAccess::new(parts.node.lanes(), namespace.clone(), parts.runtime);
        let limits = options.limits;
        let http = HttpConfig {
            listen: options.listen.to_string(),
            token: masked(options.access.change.as_ref()),
            read_token: masked(options.access.read.as_ref()),
            hosts: options.hosts.clone(),
        };
        let config = Config { settings: parts.config, http };
        let rate_limit = Arc::new(RateLimit::new(limits.store_per_second, limits.store_burst));
        let state = State {
            leadership: parts.node.leadership(),
            workers: parts.node.workers(),
            fence: parts.fence,
            registry: parts.registry,
            jobs: parts.jobs.clone(),
            config: crate::store_reads::bytes_of(&config),
            store_reads: StoreReads::new(store.clone(), parts.node.clone(), &limits),
            http_workers: HttpWorkers::new(
                parts.node.clone(),
                parts.jobs,
                parts.node.clock(),
                Arc::clone(&rate_limit),
                &limits,
            ),
            http_locks: HttpLocks::new(parts.node.clone(), Arc::clone(&rate_limit), &limits),
            event_buffer: Arc::new(EventBuffer::new()),
            rate_limit,
            step_downs: MinInterval::new(limits.step_down_pause),
            searches: SearchLimit::new(limits.fresh_per_request / 4),
            change_searches: SearchLimit::new(limits.fresh_per_request / 4),
            streams: Arc::new(Semaphore::new(limits.streams)),
            node: parts.node,
            options,
            namespace,
            store,
            closing,
            openapi,
            signed: Mutex::default(),
        };
        (Arc::new(state), parts.events)
    }

    /// Runs something on the node's runtime, which talks to the store. It continues if the client goes away, and is dropped when
    /// the server closes.
    pub(crate) async fn on_node<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Answer<T> {
        let closing = self.closing.clone();
        let task = self.store.runtime.spawn(async move { closing.run_until_cancelled(work).await });
        match task.await {
            Ok(Some(done)) => Ok(done),
            Ok(None) | Err(_) => Err(Problem::stopping()),
        }
    }

    pub(crate) fn last_sign(&self) -> Option<Instant> {
        *self.signed.lock()
    }

    pub(crate) fn sign(&self) {
        *self.signed.lock() = Some(Instant::now());
    }

    pub(crate) fn leads(&self) -> bool {
        self.leadership.borrow().is_leader()
    }
}

fn masked(token: Option<&Token>) -> &'static str {
    if token.is_some() { "set (masked)" } else { "not set" }
}

pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Standby => "standby",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Draining => "draining",
    }
}
