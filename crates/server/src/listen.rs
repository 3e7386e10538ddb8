//! Connections: how many, how slow, and how they end.
//!
//! Only HTTP/1.1, and no TLS: clients are programs on the same machine or behind a proxy, and limiting one protocol is enough.

use crate::connections::{Open, Peer, to_close};
use crate::extract::ClientAddress;
use crate::options::Limits;
use axum::Router;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::FutureExt;
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep};
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
    let mut connections = Connections::default();
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
        let handle = connections.tasks.spawn(serving.connection(stream, closing.clone()));
        connections.open.insert(handle.id(), (handle, usage));
    }
    drop(listener);
    let ended = async { while connections.tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(CLOSING, ended).await;
}

/// The open connections.
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

/// How a connection is used.
struct Usage {
    peer: Peer,
    busy: AtomicBool,
    used: AtomicU64,
    uses: Arc<AtomicU64>,
}

impl Usage {
    fn new(peer: Peer, uses: &Arc<AtomicU64>) -> Arc<Usage> {
        let used = AtomicU64::new(uses.fetch_add(1, Ordering::Relaxed));
        Arc::new(Usage { peer, busy: AtomicBool::new(false), used, uses: Arc::clone(uses) })
    }

    fn seen(&self) -> Open {
        let (busy, used) = (self.busy.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed));
        Open { peer: self.peer, busy, used }
    }

    fn set(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
        self.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Marks a connection as busy until the whole answer has been handed over.
struct Busy(Arc<Usage>);

impl Busy {
    fn new(usage: &Arc<Usage>) -> Busy {
        usage.set(true);
        Busy(Arc::clone(usage))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A body that reports when it ends.
struct Answering {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Everything one connection needs.
struct Serving {
    client: ClientAddress,
    router: Router,
    limits: Limits,
    usage: Arc<Usage>,
}

impl Serving {
    async fn connection(self, stream: TcpStream, closing: CancellationToken) {
        let Serving { client, router, limits, usage } = self;
        // Events are small and urgent.
        let _ = stream.set_nodelay(true);
        let stream = Patient { stream, patience: limits.write, stalled: None };
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEAD_FIELDS);
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let busy = Busy::new(&usage);
            request.extensions_mut().insert(client);
            let answer = router.call(request);
            async move { answer.await.map(|answer| answer.map(|body| Answering { body, _busy: busy })) }
        });
        let served = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(served);
        tokio::select! {
            biased;
            // Errors on a connection concern only its client.
            _ = &mut served => return,
            () = closing.cancelled() => {}
        }
        served.as_mut().graceful_shutdown();
        let _ = served.await;
    }
}

/// A stream that fails if its reader takes nothing for too long.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn judge<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let patience = self.patience;
        let stalled =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, poll)
    }
}
