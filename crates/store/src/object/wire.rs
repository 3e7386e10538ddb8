//! Records what really went over the wire.
//!
//! object_store folds several statuses into one error (a 409 "two writers at once" and a 412 "exists" both become
//! `AlreadyExists`), and its error texts may contain signed URLs. So every request passes through [`Observed`], which
//! records the raw status and the engine's error code for the current call.

use super::credentials::lifetime;
use crate::{StoreTime, tally};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService, ReqwestConnector,
};
use parking_lot::Mutex;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// An error answer is read up to this size; the rest is of no interest.
const ERROR_BODY_MAX_BYTES: usize = 64 << 10;

/// The largest page of a list, or credential answer. A page has at most 1,000 keys (5,000 on Azure) of at most 1,024 bytes.
const PAGE_MAX_BYTES: usize = 16 << 20;

/// Marks the one request of a call that reads or writes an object, as opposed to a credential request that the client may
/// have to make first.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectRequest;

/// What happened during one call.
#[derive(Clone, Default, Debug)]
pub(super) struct Call {
    /// How the last request to the store ended; `None` if none was begun.
    pub(super) store: Option<Ending>,
    /// How the last other request (for credentials) ended.
    pub(super) other: Option<Ending>,
    /// Where that request went: scheme and host.
    pub(super) other_place: String,
    /// How long the credentials from such a request are valid.
    pub(super) lifetime: Option<Duration>,
    /// The store's own time in its last answer.
    pub(super) date: Option<StoreTime>,
    /// What the call waited for before it could send anything.
    pub(super) waiting: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// It was handed to the client and has not ended; seen when the call was cut off.
    Open,
    /// An answer arrived. Code and message are the engine's own words, without anything signed.
    Answered { status: u16, code: String, message: String },
    /// No connection could be made: the request was certainly not sent.
    NotConnected { detail: String, timeout: bool },
    /// It may have been sent, but no complete answer arrived.
    Broken { detail: String, timeout: bool },
}

tokio::task_local! {
    static CALL: Arc<Mutex<Call>>;
}

/// Runs `work` and returns what it did on the wire, even if a timeout cuts `work` off.
pub(super) async fn observe<T>(work: impl Future<Output = T>) -> (T, Call) {
    let call = Arc::new(Mutex::new(Call::default()));
    let result = CALL.scope(Arc::clone(&call), work).await;
    let call = call.lock().clone();
    (result, call)
}

fn note_call(note: impl FnOnce(&mut Call)) {
    // Outside of a call (nothing does that today) there is nobody to report to.
    let _ = CALL.try_with(|call| note(&mut call.lock()));
}

fn note(to_store: bool, ending: Ending) {
    note_call(|call| match to_store {
        true => call.store = Some(ending),
        false => call.other = Some(ending),
    });
}

/// An answer with credentials said how long they are valid.
pub(super) fn note_lifetime(lifetime: Option<Duration>) {
    note_call(|call| call.lifetime = lifetime.or(call.lifetime));
}

/// The call cannot continue before this.
pub(super) fn note_waiting(what: String) {
    note_call(|call| call.waiting = Some(what));
}

/// Makes clients that record what they see.
#[derive(Debug, Default)]
pub(super) struct ObservedConnector(ReqwestConnector);

impl HttpConnector for ObservedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Observed(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Observed(HttpClient);

#[async_trait]
impl HttpService for Observed {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let object = request.extensions().get::<ObjectRequest>().is_some();
        let to_store = object || is_list_or_remove(&request);
        // An object's body is bounded where it is collected; everything else is bounded here.
        let streamed = object && request.method().as_str() == "GET";
        note(to_store, Ending::Open);
        if to_store {
            tally::request();
        } else {
            let place = place(&request);
            note_call(|call| call.other_place = place);
        }
        let result = match self.0.execute(request).await {
            Ok(response) => {
                if let Some(date) = date(&response).filter(|_| to_store) {
                    note_call(|call| call.date = Some(date));
                }
                settle(response, streamed, to_store).await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok((response, ending)) => {
                note(to_store, ending);
                Ok(response)
            }
            Err(error) => {
                note(to_store, broken(&error));
                Err(error)
            }
        }
    }
}

/// Lists and removals carry no mark, but cannot be confused with a credential request.
fn is_list_or_remove(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let has = |wanted: &str| query.split('&').any(|part| part == wanted);
    request.method().as_str() == "DELETE" || has("list-type=2") || has("comp=list") || has("comp=batch")
}

/// Scheme and host of a request; its path may contain more than people should see.
fn place(request: &HttpRequest) -> String {
    let uri = request.uri();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{}://{host}", uri.scheme_str().unwrap_or("http"))
}

/// When an answer was made, according to its headers.
fn date(response: &HttpResponse) -> Option<StoreTime> {
    let text = response.headers().get("date")?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    u64::try_from(date.timestamp().as_millisecond()).ok().map(StoreTime)
}

/// Reads the bodies that must be bounded here, and records how the request ended.
async fn settle(
    response: HttpResponse,
    streamed: bool,
    to_store: bool,
) -> Result<(HttpResponse, Ending), HttpError> {
    let status = response.status();
    if status.is_success() {
        let ending =
            Ending::Answered { status: status.as_u16(), code: String::new(), message: String::new() };
        if streamed {
            return Ok((response, ending));
        }
        let (parts, body) = response.into_parts();
        let (body, whole) = read_bounded(body, PAGE_MAX_BYTES).await?;
        if !whole {
            let error = std::io::Error::other(format!("an answer of more than {PAGE_MAX_BYTES} bytes"));
            return Err(HttpError::new(HttpErrorKind::Decode, error));
        }
        if !to_store {
            note_lifetime(lifetime(&body, jiff::Timestamp::now()));
        }
        return Ok((HttpResponse::from_parts(parts, HttpResponseBody::from(body)), ending));
    }
    let (parts, body) = response.into_parts();
    let header = parts.headers.get("x-ms-error-code").and_then(|code| code.to_str().ok()).map(str::to_owned);
    // The status has arrived and decides; a truncated body only costs its text.
    let body = read_bounded(body, ERROR_BODY_MAX_BYTES).await.map(|(body, _)| body).unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let code = header.or_else(|| told(&text, "Code")).unwrap_or_default();
    let message = told(&text, "Message").unwrap_or_default();
    let ending = Ending::Answered { status: status.as_u16(), code, message };
    let body = HttpResponseBody::from(text.into_owned());
    Ok((HttpResponse::from_parts(parts, body), ending))
}

async fn read_bounded(body: HttpResponseBody, max_bytes: usize) -> Result<(Bytes, bool), HttpError> {
    let mut stream = body.bytes_stream();
    let mut whole = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        let room = max_bytes - whole.len();
        if chunk.len() > room {
            whole.extend_from_slice(&chunk[..room]);
            return Ok((whole.freeze(), false));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok((whole.freeze(), true))
}

/// The text of the first element with this name in an engine's document. Engines differ in everything around it.
pub(super) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.trim().to_owned())
}

/// The same, cut to the length that a message repeats.
fn told(text: &str, name: &str) -> Option<String> {
    element(text, name).map(|value| value.chars().take(200).collect())
}

fn broken(error: &HttpError) -> Ending {
    let mut deepest: &(dyn Error + 'static) = error;
    let (mut connecting, mut timeout) = (false, error.kind() == HttpErrorKind::Timeout);
    loop {
        if let Some(error) = deepest.downcast_ref::<reqwest::Error>() {
            // A builder error is a URL the client refuses to call, such as plain HTTP where it is not allowed.
            connecting |= error.is_connect() || error.is_builder();
            timeout |= error.is_timeout();
        }
        match deepest.source() {
            Some(source) => deepest = source,
            None => break,
        }
    }
    // The deepest cause says it in plain words ("Connection refused"); the layers above may repeat the URL.
    let detail = deepest.to_string();
    match connecting || error.kind() == HttpErrorKind::Connect {
        true => Ending::NotConnected { detail, timeout },
        false => Ending::Broken { detail, timeout },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_of_a_store_is_the_date_of_its_answer() {
        let told = |value: &'static str| {
            let mut response = HttpResponse::new(HttpResponseBody::from(String::new()));
            response.headers_mut().insert("date", value.parse().expect("a header"));
            date(&response)
        };
        assert_eq!(told("Thu, 01 Jan 1970 00:00:07 GMT"), Some(StoreTime(7000)));
        assert_eq!(told("yesterday"), None);
    }
}
