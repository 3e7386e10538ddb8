//! What the proxies record.

use crate::clock::boot_us;
use crate::linearizable::{Action, Content, Operation, Outcome};
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Method, Request, Response};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::sync::Arc;

/// One request, as the proxy saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exchange {
    pub node: String,
    /// The method and the last parts of the key.
    pub what: String,
    /// When it was passed on or stopped.
    pub invoke_us: u64,
    /// When the store had answered; equal to `invoke_us` if it never got there.
    pub return_us: u64,
    /// The status the store answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it never reached the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// What it says about the seat, if it was a request for the seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<Action>,
    #[serde(skip)]
    asked: Option<Asked>,
}

/// What was asked of the seat.
#[derive(Clone, Debug)]
enum Asked {
    Read { if_changed: Option<String> },
    Write { replaces: Option<String>, content: Content },
}

impl Exchange {
    pub(super) fn new(node: &str, request: &Request<Bytes>) -> Exchange {
        let path = request.uri().path();
        let key = path.split_once("plg_coordinator_global/").map_or(path, |(_, key)| key);
        let now_us = boot_us();
        Exchange {
            node: node.to_owned(),
            what: format!("{} {key}", request.method()),
            invoke_us: now_us,
            return_us: now_us,
            status: None,
            stopped: None,
            seat: None,
            asked: asked(request),
        }
    }

    /// The operation on the seat, if it was one.
    pub fn operation(self) -> Option<Operation> {
        let (node, invoke_us, return_us) = (self.node, self.invoke_us, self.return_us);
        self.seat.map(|action| Operation { node, invoke_us, return_us, action })
    }
}

fn asked(request: &Request<Bytes>) -> Option<Asked> {
    if !request.uri().path().ends_with("/seat.json") {
        return None;
    }
    let header = |name: &str| tag(request.headers(), name);
    match *request.method() {
        Method::GET => Some(Asked::Read { if_changed: header("if-none-match") }),
        Method::PUT => Some(Asked::Write { replaces: header("if-match"), content: content(request.body())? }),
        _ => None,
    }
}

/// An entity tag without its quotes: engines differ in whether they send them.
fn tag(headers: &HeaderMap, name: &str) -> Option<String> {
    let name = HeaderName::try_from(name).ok()?;
    Some(headers.get(name)?.to_str().ok()?.trim_matches('"').to_owned())
}

fn content(body: &[u8]) -> Option<Content> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Some(Content {
        epoch: value["epoch"].as_u64()?,
        node: text(&value["holder"]["node"])?,
        incarnation: text(&value["holder"]["incarnation"])?,
        state: text(&value["state"])?,
        nonce: text(&value["nonce"])?,
    })
}

/// What the exchange says about the seat. Refusals that do not judge the condition (409, 403) say nothing.
fn seat_action(asked: Asked, answer: Result<&Response<Bytes>, bool>) -> Option<Action> {
    let status = answer.map(|answer| answer.status().as_u16());
    let version = |answer: &Response<Bytes>| tag(answer.headers(), "etag");
    // A store that is starting may not know its bucket yet; that says nothing about the seat.
    if answer.is_ok_and(|answer| answer.body().windows(12).any(|bytes| bytes == b"NoSuchBucket")) {
        return None;
    }
    match (asked, status) {
        (Asked::Read { .. }, Ok(200)) => {
            let answer = answer.ok()?;
            Some(Action::Saw { version: version(answer)?, content: content(answer.body())? })
        }
        (Asked::Read { if_changed: Some(version) }, Ok(304)) => Some(Action::SawUnchanged { version }),
        (Asked::Read { .. }, Ok(404)) => Some(Action::SawNothing),
        (Asked::Read { .. }, _) => None,
        (Asked::Write { replaces: Some(_), .. }, Ok(404)) => Some(Action::SawNothing),
        (Asked::Write { replaces, content }, status) => {
            let outcome = match status {
                Ok(200..=299) => answer.ok().and_then(version).map_or(Outcome::Unknown, Outcome::Won),
                Ok(412) => Outcome::Lost,
                // It did not happen, or was never sent.
                Ok(400..=407 | 409) | Err(true) => return None,
                Ok(_) | Err(false) => Outcome::Unknown,
            };
            Some(Action::Write { replaces, content, outcome })
        }
    }
}

/// Where the proxies write: one JSON object per line.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<dyn Write + Send>>);

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Journal")
    }
}

impl Journal {
    pub fn new(to: impl Write + Send + 'static) -> Journal {
        Journal(Arc::new(Mutex::new(to)))
    }

    /// Records a request that never reached the store.
    pub(super) fn stopped(&self, node: &str, request: &Request<Bytes>, why: &str) {
        let mut exchange = Exchange::new(node, request);
        exchange.stopped = Some(why.to_owned());
        self.write(&exchange);
    }

    /// Records a request that reached the store, unless the error says that it certainly did not.
    pub(super) fn exchanged(&self, mut exchange: Exchange, answer: Result<&Response<Bytes>, bool>) {
        exchange.status = answer.ok().map(|answer| answer.status().as_u16());
        exchange.stopped = (answer.err() == Some(true)).then(|| "not connected".to_owned());
        exchange.seat = exchange.asked.take().and_then(|asked| seat_action(asked, answer));
        self.write(&exchange);
    }

    fn write(&self, exchange: &Exchange) {
        let mut to = self.0.lock();
        // A full disk is noticed when the record is read back and has no end.
        let _ = serde_json::to_writer(&mut *to, exchange).map(|()| to.write_all(b"\n"));
    }

    pub fn flush(&self) -> std::io::Result<()> {
        self.0.lock().flush()
    }
}
