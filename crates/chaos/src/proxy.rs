//! A path from one node to the store that can be disturbed, and that records every request for the seat.
//!
//! HTTP/1.1 on both sides; the `Host` header is passed on unchanged, because S3 signatures cover it. A request that was passed on
//! is carried to its end even if the node has given up: the record shows what happened on the store.

mod journal;

pub use journal::{Exchange, Journal};

use crate::clock::boot_us;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The largest object of ours, and the largest page of a list.
const BODY_MAX_BYTES: usize = 16 << 20;
/// A store that has not answered by then will not; the outcome is unknown.
const STORE_PATIENCE: Duration = Duration::from_secs(20);
/// Idle connections to the store are closed from this side after this long.
const IDLE: Duration = Duration::from_secs(5);

/// What the path does to requests and answers.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum ProxyFault {
    /// Passes everything on.
    #[default]
    None,
    /// Neither requests nor answers get through, and no side is told.
    Cut,
    /// Requests do not arrive; answers to earlier ones still do.
    CutRequests,
    /// Requests arrive and take effect; answers do not get back.
    CutAnswers,
    /// Connections are closed at once.
    Refuse,
    /// Answers are delayed.
    SlowAnswers {
        /// The longest delay.
        max_ms: u64,
    },
    /// Requests arrive late, even those the node no longer waits for.
    LateRequests {
        /// The longest delay.
        max_ms: u64,
    },
    /// Some requests take effect, and the connection is closed instead of an answer.
    DropAnswers {
        /// How many in a thousand.
        permille: u32,
    },
    /// Some requests are answered with 503 and do not arrive.
    Storm {
        /// How many in a thousand.
        permille: u32,
    },
    /// Some requests take effect but are answered with 503.
    Lie {
        /// How many in a thousand.
        permille: u32,
    },
}

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pass,
    /// No answer until the fault changes.
    Swallow,
    Close,
    Refused503,
    /// Passed on after this delay.
    Late(Duration),
    /// Answered this long after the store answered.
    Slow(Duration),
    /// Passed on; no answer.
    Drop,
    /// Passed on; answered with 503.
    Lied503,
}

impl ProxyFault {
    fn fate(self, random: &mut ChaCha8Rng) -> Fate {
        let mut hit = |permille: u32| random.random_range(0..1000) < permille;
        match self {
            ProxyFault::None | ProxyFault::CutAnswers => Fate::Pass,
            ProxyFault::Cut | ProxyFault::CutRequests => Fate::Swallow,
            ProxyFault::Refuse => Fate::Close,
            ProxyFault::SlowAnswers { max_ms } => {
                Fate::Slow(Duration::from_millis(random.random_range(max_ms / 4..=max_ms)))
            }
            ProxyFault::LateRequests { max_ms } => {
                Fate::Late(Duration::from_millis(random.random_range(max_ms / 4..=max_ms)))
            }
            ProxyFault::DropAnswers { permille } if hit(permille) => Fate::Drop,
            ProxyFault::Storm { permille } if hit(permille) => Fate::Refused503,
            ProxyFault::Lie { permille } if hit(permille) => Fate::Lied503,
            ProxyFault::DropAnswers { .. } | ProxyFault::Storm { .. } | ProxyFault::Lie { .. } => Fate::Pass,
        }
    }

    /// Whether answers already on their way are lost too.
    fn loses_answers(self) -> bool {
        matches!(self, ProxyFault::Cut | ProxyFault::CutAnswers | ProxyFault::Refuse)
    }
}

/// Closes the connection without an answer.
#[derive(Debug)]
struct Hangup;

impl std::fmt::Display for Hangup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hung up on purpose")
    }
}

impl std::error::Error for Hangup {}

/// The path of one node to the store. It exists as long as this value.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: watch::Sender<ProxyFault>,
    under_way: Arc<AtomicUsize>,
    listener: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Opens a path for `node` to `http://host:port`. The seed determines which requests are hit.
    pub async fn start(node: &str, store: &str, seed: u64, journal: Journal) -> Result<Proxy> {
        let store = store.strip_prefix("http://").context("the store's address must begin with http://")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for a proxy")?;
        let address = listener.local_addr()?;
        let (fault, watched) = watch::channel(ProxyFault::None);
        let under_way = Arc::new(AtomicUsize::new(0));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // A repeated conditional write can be refused because of its first try.
            .retry_canceled_requests(false)
            .set_host(false)
            .build(connector);
        let way = Way {
            node: node.into(),
            store: store.trim_end_matches('/').into(),
            client,
            fault: watched,
            random: Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(seed))),
            journal,
            under_way: Arc::clone(&under_way),
        };
        let listener = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(way.clone().serve(stream));
            }
        });
        Ok(Proxy { address, fault, under_way, listener })
    }

    /// The address for the node.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes the fault. Connections of requests being swallowed are closed.
    pub fn set(&self, fault: ProxyFault) {
        self.fault.send_replace(fault);
    }

    /// How many requests are on their way to the store.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

#[derive(Clone)]
struct Way {
    node: Arc<str>,
    store: Arc<str>,
    client: Client<HttpConnector, Full<Bytes>>,
    fault: watch::Receiver<ProxyFault>,
    random: Arc<Mutex<ChaCha8Rng>>,
    journal: Journal,
    under_way: Arc<AtomicUsize>,
}

impl Way {
    async fn serve(self, stream: TcpStream) {
        if *self.fault.borrow() == ProxyFault::Refuse {
            return;
        }
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| self.clone().carry(request));
        // Ends with an error whenever a node gives up or its connection is closed, which is the purpose here.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn carry(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Hangup> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_MAX_BYTES).collect().await.map_err(|_| Hangup)?.to_bytes();
        let fate = {
            let fault = *self.fault.borrow();
            fault.fate(&mut self.random.lock())
        };
        let request = Request::from_parts(head, body);
        match fate {
            Fate::Swallow => {
                self.journal.stopped(&self.node, &request, "swallowed");
                self.clone().until_it_changes().await;
                Err(Hangup)
            }
            Fate::Close => {
                self.journal.stopped(&self.node, &request, "closed");
                Err(Hangup)
            }
            Fate::Refused503 => {
                self.journal.stopped(&self.node, &request, "503");
                Ok(slow_down())
            }
            Fate::Late(delay) => self.pass(request, delay, Duration::ZERO).await,
            Fate::Slow(delay) => self.pass(request, Duration::ZERO, delay).await,
            Fate::Pass => self.pass(request, Duration::ZERO, Duration::ZERO).await,
            Fate::Drop => {
                let _ = self.pass(request, Duration::ZERO, Duration::ZERO).await;
                Err(Hangup)
            }
            Fate::Lied503 => self.pass(request, Duration::ZERO, Duration::ZERO).await.map(|_| slow_down()),
        }
    }

    async fn pass(
        self,
        request: Request<Bytes>,
        before: Duration,
        after: Duration,
    ) -> Result<Response<Full<Bytes>>, Hangup> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let way = self.clone();
        // A task of its own: hyper drops this future when the node hangs up.
        let task = tokio::spawn(async move {
            tokio::time::sleep(before).await;
            let answer = way.ask(request).await;
            way.under_way.fetch_sub(1, Ordering::SeqCst);
            answer
        });
        let answer = task.await.map_err(|_| Hangup)?;
        tokio::time::sleep(after).await;
        if self.fault.borrow().loses_answers() {
            self.until_it_changes().await;
            return Err(Hangup);
        }
        let (head, body) = answer.ok_or(Hangup)?.into_parts();
        Ok(Response::from_parts(head, Full::new(body)))
    }

    async fn ask(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let mut exchange = Exchange::new(&self.node, &request);
        let mut onward = Request::builder().method(request.method()).uri(self.target(&request));
        for (name, value) in request.headers() {
            if !is_hop_by_hop(name.as_str()) {
                onward = onward.header(name, value);
            }
        }
        let onward = onward.body(Full::new(request.into_body())).ok()?;
        exchange.invoke_us = boot_us();
        let asked = tokio::time::timeout(STORE_PATIENCE, async {
            let (mut head, body) =
                self.client.request(onward).await.map_err(|error| error.is_connect())?.into_parts();
            let body = Limited::new(body, BODY_MAX_BYTES).collect().await.map_err(|_| false)?.to_bytes();
            for name in ["connection", "transfer-encoding", "keep-alive"] {
                head.headers.remove(name);
            }
            Ok(Response::from_parts(head, body))
        });
        let answer = asked.await.unwrap_or(Err(false));
        exchange.return_us = boot_us();
        self.journal.exchanged(exchange, answer.as_ref().map_err(|unsent| *unsent));
        answer.ok()
    }

    fn target(&self, request: &Request<Bytes>) -> String {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        format!("http://{}{path}", self.store)
    }

    async fn until_it_changes(mut self) {
        let now = *self.fault.borrow();
        // An error means that the proxy is gone, and the connection with it.
        let _ = self.fault.wait_for(|fault| *fault != now).await;
    }
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(name, "connection" | "keep-alive" | "transfer-encoding" | "content-length")
}

fn slow_down() -> Response<Full<Bytes>> {
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code>\
                <Message>Please reduce your request rate.</Message></Error>";
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/xml"));
    response
}
