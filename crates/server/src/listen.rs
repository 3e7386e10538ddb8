//! Connections: how many, how slow, and how they end.
//!
//! Only HTTP/1.1, and no TLS: clients are programs on the same machine or behind a proxy, and limiting one protocol is enough.

use crate::connections::{Open, Peer, Stage, to_close};
use crate::extract::ClientAddress;
use crate::options::Limits;
use axum::Router;
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;

/// The largest head of a request.
const HEAD_BYTES: usize = 16 * 1024;

/// Most fields in a head.
const HEAD_FIELDS: usize = 64;

/// What the system buffers for a client that does not read. Small, so that such a client is noticed.
const SEND_BUFFER: usize = 64 * 1024;

/// Connections the system may queue for us.
const BACKLOG: i32 = 1024;

/// How long answers may take to finish once the server closes.
const CLOSING: Duration = Duration::from_millis(700);

/// The pause after a failed accept, usually because some resource ran out.
const SHORT_OF_SOMETHING: Duration = Duration::from_millis(100);

/// Binds at once, so that the caller learns what is wrong.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted connections inherit this.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits, closing: CancellationToken) {
    let (mut connections, graceful) = (Connections::default(), GracefulShutdown::new());
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            // Remove ended connections, so that the set does not grow.
            () = connections.ended(), if !connections.tasks.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(target: "tenure", %error, "a connection could not be accepted");
                tokio::time::sleep(SHORT_OF_SOMETHING).await;
                continue;
            }
        };
        connections.make_room(limits.connections).await;
        let usage = Usage::new(Peer::new(address.ip()), &connections.uses);
        let serving = Serving {
            client: ClientAddress(address.ip()),
            router: router.clone(),
            limits,
            usage: Arc::clone(&usage),
        };
        let handle = connections.tasks.spawn(serving.connection(stream, graceful.watcher()));
        connections.open.insert(handle.id(), (handle, usage));
    }
    drop(listener);
    let _ = tokio::time::timeout(CLOSING, graceful.shutdown()).await;
}

#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<tokio::task::Id, (AbortHandle, Arc<Usage>)>,
    /// Counts the uses of all connections.
    uses: Arc<AtomicU64>,
}

impl Connections {
    /// Waits for one connection to end, if there is any.
    async fn ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => drop(self.open.remove(&id)),
            Some(Err(error)) => drop(self.open.remove(&error.id())),
            None => {}
        }
    }

    /// Closes connections until there are fewer than this. On return they are fully closed, file descriptors included.
    async fn make_room(&mut self, most: usize) {
        while self.tasks.len() >= most.max(1) {
            if self.ended().now_or_never().is_some() {
                continue;
            }
            let open = self.open.iter().map(|(id, (_, usage))| (*id, usage.seen()));
            if let Some((handle, _)) = to_close(open).and_then(|id| self.open.get(&id)) {
                handle.abort();
            }
            self.ended().await;
        }
    }
}

struct Usage {
    open: Mutex<Open>,
    uses: Arc<AtomicU64>,
}

impl Usage {
    fn new(peer: Peer, uses: &Arc<AtomicU64>) -> Arc<Usage> {
        let open = Open { peer, stage: Stage::HalfOpen, used: uses.fetch_add(1, Ordering::Relaxed) };
        Arc::new(Usage { open: Mutex::new(open), uses: Arc::clone(uses) })
    }

    fn seen(&self) -> Open {
        *self.open.lock()
    }

    fn set(&self, stage: Stage) {
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock();
        (open.stage, open.used) = (stage, used);
    }
}

/// Marks a connection as busy until the whole answer has been handed over.
struct Busy(Arc<Usage>);

impl Busy {
    fn new(usage: &Arc<Usage>) -> Busy {
        usage.set(Stage::Busy);
        Busy(Arc::clone(usage))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Stage::Idle);
    }
}

struct Serving {
    client: ClientAddress,
    router: Router,
    limits: Limits,
    usage: Arc<Usage>,
}

impl Serving {
    async fn connection(self, stream: TcpStream, watcher: Watcher) {
        let Serving { client, router, limits, usage } = self;
        // Events are small and urgent.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(limits.write));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEAD_FIELDS);
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let busy = Busy::new(&usage);
            request.extensions_mut().insert(client);
            let answer = router.call(request);
            async move {
                let answer = answer.await?;
                if answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
                    busy.0.set(Stage::Stream);
                }
                // The body keeps it busy until it ends.
                let keep = move |error| {
                    let _busy = &busy;
                    error
                };
                Ok::<_, Infallible>(answer.map(|body| body.map_err(keep)))
            }
        });
        // Errors on a connection concern only its client.
        let _ = watcher.watch(builder.serve_connection(TokioIo::new(Box::pin(stream)), service)).await;
    }
}
