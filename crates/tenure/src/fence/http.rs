//! A tower layer that refuses a former leader's HTTP requests, for axum and whatever else speaks tower.
//!
//! The leader sends its epoch in the header `Tenure-Epoch`, and the layer refuses what is older than the newest it has seen.
//!
//! ```
//! use axum::Router;
//! use axum::routing::put;
//! use tenure::fence::http::FenceLayer;
//!
//! # fn read_epoch() -> Option<u64> { None }
//! # fn save_epoch(epoch: u64) -> std::io::Result<()> { Ok(()) }
//! let saved = read_epoch().unwrap_or(0);
//! let fence = FenceLayer::starting_at(saved).on_new_epoch(save_epoch);
//! let reports: Router = Router::new().route("/report", put(async || "written")).layer(fence);
//! ```
//!
//! | the request has | answer |
//! |---|---|
//! | the newest epoch, or a newer one | that of the service inside |
//! | an older epoch | 412, with both epochs |
//! | no epoch, or something that is none | 428, unless [`allow_without_epoch`](FenceLayer::allow_without_epoch) |
//! | a newer epoch that cannot be saved | 503 |
//!
//! A refusal is a problem of RFC 9457 with the fields `epoch` and `newest`.
//!
//! Not promised:
//!
//! - **Memory across a restart.** The newest epoch is kept in this process alone: after a restart, or in another replica, a
//!   former leader gets through until the present one has been heard of. Save it ([`on_new_epoch`](FenceLayer::on_new_epoch))
//!   and start with it, or share the fence of a node, which reads it from the seat once it has joined.
//! - **Order within the service.** A request is judged when it arrives. A handler that takes its time asks again right before
//!   the effect ([`Fence::check`]), or passes the epoch on to where it is kept ([`sql`](crate::fence::sql)).
//! - **Protection from whoever may send requests.** A made-up high epoch shuts out every leader, so authenticate before this
//!   layer.

use super::{EPOCH_MAX, Fence, FenceRule};
use crate::clock::BootClock;
use futures::future::{Either, Ready, ready};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// The header with the epoch of whoever sends the request.
pub const EPOCH_HEADER: &str = "tenure-epoch";

/// Refuses requests of former leaders. Clones, and all services it is laid around, share what they have seen: use one for each
/// resource, and for each election.
#[derive(Clone)]
pub struct FenceLayer {
    fence: Fence,
    without_epoch: bool,
    save: Option<Arc<Saving>>,
}

struct Saving {
    save: Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>,
    /// The newest epoch that was saved here. Held while one is saved, so that no request overtakes that.
    saved: Mutex<u64>,
}

impl FenceLayer {
    /// Refuses epochs older than this one, and than any seen from now on. 0, if none is known.
    pub fn starting_at(epoch: u64) -> FenceLayer {
        let fence = Fence::new(FenceRule { enabled: true, grace_ms: 0 }, Arc::new(BootClock));
        fence.observe(epoch);
        FenceLayer::sharing(fence)
    }

    /// Shares the memory of a fence, such as that of the [`Node`](crate::Node) in the same process, which learns of every new
    /// leader without being asked. It counts what is refused.
    pub fn sharing(fence: Fence) -> FenceLayer {
        FenceLayer { fence, without_epoch: false, save: None }
    }

    /// Calls this with each newer epoch, before the first request with it is passed on, so that it survives a restart. If it
    /// fails, the request is answered with 503 and the epoch is not taken over. Requests wait for it: once for each new leader.
    pub fn on_new_epoch(self, save: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static) -> FenceLayer {
        let saving = Saving { save: Box::new(save), saved: Mutex::default() };
        FenceLayer { save: Some(Arc::new(saving)), ..self }
    }

    /// Passes on requests that have no epoch at all, for example while not all senders send one yet. Without this they are
    /// refused: a former leader that leaves out its epoch would get through.
    pub fn allow_without_epoch(self) -> FenceLayer {
        FenceLayer { without_epoch: true, ..self }
    }

    fn judge(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.without_epoch && !headers.contains_key(EPOCH_HEADER) {
            return Ok(());
        }
        let epoch = epoch_in(headers).ok_or(Refusal::NoEpoch)?;
        if let Some(saving) = &self.save {
            let mut saved = saving.saved.lock();
            if epoch > *saved && epoch >= self.fence.epoch() {
                (saving.save)(epoch).map_err(|error| Refusal::NotSaved { epoch, error })?;
                *saved = epoch;
            }
        }
        match self.fence.check(epoch).is_accepted() {
            true => Ok(()),
            false => Err(Refusal::Stale { epoch }),
        }
    }
}

/// One header, with nothing but the digits of an epoch that a leader can have.
fn epoch_in(headers: &HeaderMap) -> Option<u64> {
    let mut all = headers.get_all(EPOCH_HEADER).iter();
    let text = all.next()?.to_str().ok()?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && all.next().is_none();
    text.parse().ok().filter(|epoch| is_number && (1..=EPOCH_MAX).contains(epoch))
}

enum Refusal {
    Stale { epoch: u64 },
    NoEpoch,
    NotSaved { epoch: u64, error: io::Error },
}

impl Refusal {
    fn answer<B: From<String>>(self, newest: u64) -> Response<B> {
        let (status, name, title, epoch, detail) = match self {
            Refusal::Stale { epoch } => (
                StatusCode::PRECONDITION_FAILED,
                "former-leader",
                "The request comes from a former leader",
                Some(epoch),
                format!("Tenure-Epoch is {epoch}, but a leader with epoch {newest} was here before"),
            ),
            Refusal::NoEpoch => (
                StatusCode::PRECONDITION_REQUIRED,
                "no-epoch",
                "The request has no valid Tenure-Epoch",
                None,
                format!(
                    "send one header Tenure-Epoch with the leader's epoch, a number from 1 to {EPOCH_MAX}"
                ),
            ),
            Refusal::NotSaved { epoch, error } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "epoch-not-saved",
                "The new epoch could not be saved",
                Some(epoch),
                format!("epoch {epoch} is newer than {newest}, but saving it failed: {error}"),
            ),
        };
        let problem = json!({
            "type": format!("urn:tenure:problem:{name}"), "title": title, "status": status.as_u16(), "detail": detail,
            "epoch": epoch, "newest": newest,
        });
        let mut answer = Response::new(B::from(problem.to_string()));
        *answer.status_mut() = status;
        let kind = HeaderValue::from_static("application/problem+json");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { inner, layer: self.clone() }
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FenceLayer({:?})", self.fence)
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<R>, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.layer.judge(request.headers()) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refusal) => Either::Right(ready(Ok(refusal.answer(self.layer.fence.epoch())))),
        }
    }
}
