//! A node on a memory store in simulated time, and its routes without a server.
#![allow(dead_code, unreachable_pub, missing_docs)]

mod shape;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::event::EventKind;
use tenure::settings::SettingsBuilder;
use tenure::store::{Faulty, Lanes, MemoryStore, Meter, Metered, Store};
use tenure::{Event, Node, Settings};
use tenure_server::{Options, Parts, Token};
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub struct Site {
    pub store: Arc<MemoryStore>,
    pub clock: Arc<TokioClock>,
    pub node: Node,
    pub link: Faulty,
    /// What the node asks the store, whoever made it ask.
    pub meter: Meter,
    pub events: Receiver<Event>,
    pub router: Router,
    pub closing: CancellationToken,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {:?}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
    }

    /// The answer, which must be this.
    pub fn is(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// A problem of this name, whole.
    pub fn problem(self, status: u16, name: &str) -> Answer {
        let answer = self.is(status);
        assert_eq!(answer.header("content-type"), "application/problem+json", "{}", answer.text);
        let problem = answer.json();
        assert_eq!(problem["type"], format!("urn:tenure:problem:{name}"), "{}", answer.text);
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        answer
    }
}

/// What every request of [`request`] carries.
pub const TOKEN: &str = "MARKED-token-0123456789";

/// On loopback, with a token for changes.
pub fn options() -> Options {
    let token = Token::new(TOKEN).expect("valid");
    Options::new("127.0.0.1:7420".parse().expect("an address"), Some(token)).expect("loopback")
}

impl Site {
    pub async fn new() -> Site {
        Site::with(options(), |settings| settings).await
    }

    /// Leads by the time it is there.
    pub async fn with(options: Options, change: impl Fn(SettingsBuilder) -> SettingsBuilder) -> Site {
        let (store, clock) = (Arc::new(MemoryStore::new()), TokioClock::new());
        let mut site = Site::on(store, clock, "pod-a", options, change).await;
        site.event(|kind| matches!(kind, EventKind::BecameLeader { .. })).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        site
    }

    pub async fn on(
        store: Arc<MemoryStore>,
        clock: Arc<TokioClock>,
        name: &str,
        options: Options,
        change: impl Fn(SettingsBuilder) -> SettingsBuilder,
    ) -> Site {
        let settings = Settings::builder()
            .namespace("test")
            .node(name)
            .store("memory:")
            .startup_jitter_max(Duration::ZERO);
        let link = Faulty::new(store.clone(), 7);
        let meter = Meter::default();
        let metered: Arc<dyn Store> = Arc::new(Metered::new(Arc::new(link.clone()), meter.clone()));
        let settings = change(settings).build().expect("valid settings");
        let builder =
            Node::builder(settings).lanes(Lanes::same(metered)).clock(clock.clone()).jitter_random(0);
        let (events, shown) = (builder.events(), builder.events());
        let node = builder.start().await.expect("a node");
        let closing = CancellationToken::new();
        let parts = Parts::of(&node).events(shown);
        let router = tenure_server::router(options, parts, closing.clone()).expect("a router");
        Site { store, clock, node, link, meter, events, router, closing }
    }

    /// The next event that fits; time runs on until it comes.
    pub async fn event(&mut self, wanted: impl Fn(&EventKind) -> bool) -> Event {
        let found = tokio::time::timeout(Duration::from_secs(300), async {
            loop {
                let event = self.events.recv().await.expect("an event");
                if wanted(&event.kind) {
                    return event;
                }
            }
        });
        found.await.expect("the event within five simulated minutes")
    }

    /// Whatever comes must be as the OpenAPI document describes it.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        let answer = Answer { status: parts.status, headers: parts.headers, text };
        if answer.header("content-type").ends_with("json") {
            shape::check(&method, &path, answer.status, &answer.json());
        }
        answer
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(request(Method::GET, path, Body::empty())).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(request(Method::POST, path, Body::from(body.to_string()))).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(request(Method::PUT, path, Body::from(body.to_string()))).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(request(Method::DELETE, path, Body::empty())).await
    }

    pub async fn stream(&self, path: &str, last: Option<&str>) -> Stream {
        let mut request = request(Method::GET, path, Body::empty());
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", last.parse().expect("a header"));
        }
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: response.into_body().into_data_stream(), text: String::new() }
    }

    pub async fn object(&self, key: &str) -> Option<Value> {
        let read = self.store.get(&format!("plg_coordinator_global/test/{key}"), None).await;
        let tenure::store::Read::Found(object) = read else { return None };
        Some(serde_json::from_slice(&object.body).expect("JSON"))
    }
}

/// As a well-behaved program sends it.
pub fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    let mut builder = Request::builder().method(method.clone()).uri(path).header("host", "127.0.0.1:7420");
    builder = builder.header("authorization", format!("Bearer {TOKEN}"));
    if method == Method::POST || method == Method::PUT {
        builder = builder.header("content-type", "application/json");
    }
    builder.body(body).expect("a request")
}

pub struct Stream {
    body: BodyDataStream,
    text: String,
}

/// One event of a stream.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Told {
    pub id: String,
    pub event: String,
    pub data: Value,
}

impl Stream {
    /// The next block, comments included; `None` at the end.
    pub async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let piece = self.body.next().await?.expect("a piece");
            self.text.push_str(std::str::from_utf8(&piece).expect("text"));
        }
    }

    pub async fn next(&mut self) -> Told {
        self.told().await.expect("the stream goes on")
    }

    /// The next event; `None` at the end.
    pub async fn told(&mut self) -> Option<Told> {
        loop {
            let block = self.block().await?;
            let mut told = Told::default();
            for line in block.lines() {
                match line.split_once(": ") {
                    Some(("id", id)) => told.id = id.to_owned(),
                    Some(("event", event)) => told.event = event.to_owned(),
                    Some(("data", data)) => told.data = serde_json::from_str(data).expect("JSON"),
                    _ => {}
                }
            }
            if told.data != Value::Null {
                return Some(told);
            }
        }
    }
}

pub async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
