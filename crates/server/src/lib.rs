//! Serves a Tenure node over HTTP: a view of the library that decides nothing.
//!
//! [`Server`] runs on an operating system thread of its own, with a runtime of its own: clients cost the node's runtime, and so
//! its renewals, nothing but processor time. Requests to the store run on the node's runtime, on the bulk lane, and are bounded:
//! documents are read once for all clients and kept for some seconds, searches take turns, and everything else takes from one
//! token bucket, of which reads leave the larger part.
//!
//! ```
//! use tenure::{Node, Settings};
//! use tenure_server::{Options, Parts, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(std::time::Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! let options = Options::new("127.0.0.1:0".parse()?, None)?;
//! let server = Server::bind(options)?.serve(Parts::of(&node))?;
//! println!("http://{}/v1/leader", server.address());
//! server.close(); // clients are sent away while the node hands over …
//! node.shutdown().await;
//! server.stop().await; // … and nothing of it is left after this
//! # Ok(()) }
//! ```
//!
//! # What is not promised
//!
//! An answer is what this node knows, or what the store said some seconds ago: by the time you read it, another node may lead. If
//! you act on it, stamp the epoch on what you do, and let the receiver ask the fence.

#![allow(missing_docs, reason = "an internal crate: comment what names and types do not say")]

mod access;
mod cached;
mod connections;
mod dashboard;
mod event_stream;
mod extract;
mod headline;
mod history;
mod http_jobs;
mod http_locks;
mod http_workers;
mod listen;
mod middleware;
mod openapi;
mod options;
mod overview;
mod problem;
mod rate_limit;
mod routes;
mod state;
mod store_reads;

pub use extract::ClientAddress;
pub use headline::{Headline, Tone};
pub use history::SeenTerm;
pub use http_jobs::JobGiven;
pub use http_locks::LockHeld;
pub use http_workers::Membership;
pub use openapi::{document, route_names};
pub use options::{DEFAULT_LISTEN, Limits, Options, OptionsError, Token};
pub use overview::{
    BillView, Contention, Heartbeats, JobsView, Leader, LeaderView, NodeRow, Overview, RequestsView,
    SchedulesView, StoreView, WorkersView,
};
pub use problem::Problem;
pub use state::Parts;

use rustix::process::{Resource, getrlimit};
use state::{Shared, State};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long to wait for the thread to end; after that it is left behind.
const STOP_MAX: Duration = Duration::from_secs(2);

/// A server that holds its address and does not serve yet.
#[derive(Debug)]
pub struct Bound {
    options: Options,
    listener: std::net::TcpListener,
}

/// A running server. Dropping it closes it.
pub struct Server {
    address: SocketAddr,
    closing: CancellationToken,
    state: Option<Shared>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Server {
    /// Binds the address; an error if it is in use.
    pub fn bind(options: Options) -> io::Result<Bound> {
        let listener = listen::bind(options.listen())?;
        Ok(Bound { options, listener })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections and ends the open ones, streams included, within a second. Does not wait for that.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Deregisters the workers and gives back the locks of this server's clients. Takes a bounded time and runs on the node's
    /// runtime.
    pub async fn leave(&self) {
        if let Some(state) = &self.state {
            tokio::join!(state.http_workers.deregister_all(), state.http_locks.give_back_all());
        }
    }

    /// Closes, leaves for its clients, and waits until nothing of it is left.
    pub async fn stop(mut self) {
        self.close();
        self.leave().await;
        self.state = None;
        if let Some(ended) = self.ended.take() {
            let _ = tokio::time::timeout(STOP_MAX, ended).await;
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Bound {
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves a node, on a thread of its own.
    pub fn serve(mut self, parts: Parts) -> io::Result<Server> {
        let address = self.listener.local_addr()?;
        self.options.listen = address;
        self.options.limits = self.options.limits.within(getrlimit(Resource::Nofile).current);
        let (limits, closing) = (self.options.limits, CancellationToken::new());
        let (state, events) = assemble(self.options, parts, closing.clone())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tell, ended) = oneshot::channel();
        let (kept, listener, token) = (Arc::clone(&state), self.listener, closing.clone());
        let serve = move || {
            runtime.block_on(async move {
                let collecting = tokio::spawn(Arc::clone(&kept.event_buffer).collect(events));
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listen::serve(listener, openapi::router(kept), limits, token).await,
                    Err(error) => tracing::warn!(target: "tenure", %error, "http: cannot serve"),
                }
                collecting.abort();
            });
            // Anything still running is dropped with it.
            drop(runtime);
            let _ = tell.send(());
        };
        std::thread::Builder::new().name("tenure-http".to_owned()).spawn(serve)?;
        Ok(Server { address, closing, state: Some(state), ended: Some(ended) })
    }
}

fn assemble(
    options: Options,
    parts: Parts,
    closing: CancellationToken,
) -> io::Result<(Shared, tokio::sync::broadcast::Receiver<tenure::Event>)> {
    let runtime = parts.runtime.clone();
    let document = store_reads::bytes_of(&openapi::document());
    let (state, events) = State::new(options, parts, document, closing.clone());
    let watched = Arc::clone(&state);
    runtime.spawn(async move {
        tokio::join!(watched.http_workers.watch(&closing), watched.http_locks.watch(&closing));
    });
    Ok((state, events))
}

/// The routes without a server, for your own server and for tests on paused time. Must be called on the node's runtime. It takes
/// events and drops silent workers until the token is cancelled. See also [`ClientAddress`].
pub fn router(options: Options, parts: Parts, closing: CancellationToken) -> io::Result<axum::Router> {
    let (state, events) = assemble(options, parts, closing.clone())?;
    let buffer = Arc::clone(&state.event_buffer);
    tokio::spawn(async move { closing.run_until_cancelled(buffer.collect(events)).await });
    Ok(openapi::router(state))
}
