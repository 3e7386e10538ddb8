//! The node's events, kept for a while and streamed to clients.
//!
//! Streams have no buffers of their own: each is a position in the rings below. A slow client holds nothing up and costs nothing; once
//! they have passed its position, it is told that it missed events and continues from the oldest one kept.
//!
//! Events that a healthy node repeats all the time have a ring of their own, so that they do not push out what people want to
//! see. Both rings share one sequence of numbers: a stream of everything has no gaps, and a stream of one level has no gaps
//! within that level.

use crate::history::History;
use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenure::Event;
use tenure::event::EventKind;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// Events kept per level.
pub(crate) const KEPT: usize = 1000;

/// Most events sent in one chunk.
const CHUNK_EVENTS: usize = 64;

/// The kept events, and the history of leaders they show.
pub(crate) struct EventBuffer {
    /// Identifies this run of the process: an id from another run means nothing here.
    run_id: String,
    rings: Mutex<Rings>,
    newest: watch::Sender<u64>,
}

/// From which level on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Without what a healthy node repeats all the time.
    Info,
    /// All.
    #[default]
    Debug,
}

struct Frame {
    number: u64,
    bytes: Bytes,
}

/// The kept events of one level.
#[derive(Default)]
struct Ring {
    frames: VecDeque<Frame>,
    /// The number of the newest event that is no longer kept.
    dropped: u64,
}

impl Ring {
    fn push(&mut self, frame: Frame) {
        self.frames.push_back(frame);
        if self.frames.len() > KEPT
            && let Some(oldest) = self.frames.pop_front()
        {
            self.dropped = oldest.number;
        }
    }

    fn from(&self, number: u64) -> impl Iterator<Item = &Frame> {
        let place = self.frames.partition_point(|frame| frame.number < number);
        self.frames.range(place..)
    }
}

#[derive(Default)]
struct Rings {
    info: Ring,
    debug: Ring,
    /// The number of the newest event; numbers start at 1.
    newest: u64,
    history: History,
}

impl Rings {
    /// The number from which on all events of the level are kept.
    fn first(&self, level: Level) -> u64 {
        match level {
            Level::Info => self.info.dropped + 1,
            Level::Debug => self.info.dropped.max(self.debug.dropped) + 1,
        }
    }

    /// The number at which the newest `count` events of a level begin.
    fn recent(&self, count: usize, level: Level) -> u64 {
        let next = self.newest + 1;
        match level {
            Level::Info => {
                let place = self.info.frames.len().saturating_sub(count);
                self.info.frames.get(place).map_or(next, |frame| frame.number)
            }
            Level::Debug => next.saturating_sub(count as u64).max(self.first(level)),
        }
    }

    /// The next `count` events from a number on, in order.
    fn frames(&self, from: u64, level: Level, count: usize) -> Vec<&Frame> {
        let quiet = self.debug.from(from).filter(|_| level == Level::Debug);
        let mut found: Vec<&Frame> = self.info.from(from).take(count).chain(quiet.take(count)).collect();
        found.sort_by_key(|frame| frame.number);
        found.truncate(count);
        found
    }
}

pub(crate) struct StreamRequest {
    pub(crate) from: From,
    pub(crate) level: Level,
    /// The stream continues with new events.
    pub(crate) follow: bool,
}

/// Where a stream begins.
pub(crate) enum From {
    /// With the next event.
    Now,
    /// With this many recent events.
    Recent(usize),
    /// After the event with this id.
    After(String),
}

impl EventBuffer {
    pub(crate) fn new() -> EventBuffer {
        EventBuffer {
            run_id: format!("{:08x}", rand::random::<u32>()),
            rings: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    /// Takes the node's events until there are no more.
    pub(crate) async fn collect(self: Arc<EventBuffer>, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(event) => self.push(&event),
                Err(RecvError::Lagged(missed)) => {
                    let text = missed_text(Some(missed), "this server was too slow");
                    self.keep(Level::Info, Some("missed"), &text);
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    pub(crate) fn push(&self, event: &Event) {
        self.rings.lock().history.take(event);
        self.keep(level(&event.kind), None, &event.to_json().to_string());
    }

    fn keep(&self, level: Level, name: Option<&str>, data: &str) {
        let number = {
            let mut rings = self.rings.lock();
            rings.newest += 1;
            let number = rings.newest;
            let frame = Frame { number, bytes: self.frame(Some(number), name, data) };
            match level {
                Level::Info => rings.info.push(frame),
                Level::Debug => rings.debug.push(frame),
            }
            number
        };
        self.newest.send_replace(number);
    }

    fn frame(&self, number: Option<u64>, name: Option<&str>, data: &str) -> Bytes {
        let id = number.map(|number| format!("id: {}\n", self.id(number))).unwrap_or_default();
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{id}{name}data: {data}\n\n").into()
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.run_id)
    }

    /// The id of the newest event; `None` before the first.
    pub(crate) fn newest_id(&self) -> Option<String> {
        let number = *self.newest.borrow();
        (number > 0).then(|| self.id(number))
    }

    pub(crate) fn history(&self) -> History {
        self.rings.lock().history.clone()
    }

    /// The number to begin with, and what to send first if that differs from what was asked for.
    fn begin(&self, request: &StreamRequest) -> (u64, Option<Bytes>) {
        let rings = self.rings.lock();
        let next = rings.newest + 1;
        let after = match &request.from {
            From::Now => return (next, None),
            From::Recent(count) => return (rings.recent(*count, request.level), None),
            From::After(id) => id,
        };
        let known = after.split_once('-').filter(|(run_id, _)| *run_id == self.run_id);
        match known.and_then(|(_, number)| number.parse::<u64>().ok()).filter(|number| *number < next) {
            // Whether it is too old shows when the rings are read.
            Some(number) => (number + 1, None),
            None => {
                let text = missed_text(None, "the id comes from before a restart, or from another server");
                (rings.first(request.level), Some(self.frame(None, Some("missed"), &text)))
            }
        }
    }

    /// The frames from this number on as one chunk, and the number after them. Starts with a notice if some are gone.
    fn chunk(&self, from: u64, level: Level) -> Option<(Bytes, u64)> {
        let rings = self.rings.lock();
        let first = rings.first(level);
        let frames = rings.frames(from.max(first), level, CHUNK_EVENTS);
        let next = frames.last()?.number + 1;
        let mut chunk = Vec::new();
        if from < first {
            // Within one level nobody counts the missing events; it is only known that there were some.
            let missed = (level == Level::Debug).then(|| first - from);
            let text = missed_text(missed, "they are no longer kept");
            chunk.extend_from_slice(&self.frame(None, Some("missed"), &text));
        }
        for frame in frames {
            chunk.extend_from_slice(&frame.bytes);
        }
        Some((chunk.into(), next))
    }

    /// The events as a stream. It ends with the server or, if it does not follow, with the newest event.
    pub(crate) fn stream(
        self: Arc<EventBuffer>,
        request: &StreamRequest,
        keep_alive: Duration,
        closing: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + use<> {
        let (next, first) = self.begin(request);
        // Tells the client at once that the stream is open, and how soon to reconnect.
        let mut hello = Vec::from(&b"retry: 2000\n: tenure\n\n"[..]);
        hello.extend_from_slice(&first.unwrap_or_default());
        let newest = self.newest.subscribe();
        let end = (!request.follow).then(|| self.rings.lock().newest);
        let reader = Reader {
            buffer: self,
            next,
            end,
            level: request.level,
            newest,
            keep_alive,
            closing,
            _permit: permit,
            hello: Some(hello.into()),
        };
        futures::stream::unfold(reader, |mut reader| async move {
            let chunk = reader.chunk().await?;
            Some((Ok(chunk), reader))
        })
    }
}

/// The level of an event, the same as in the log.
fn level(kind: &EventKind) -> Level {
    let quiet = matches!(
        kind,
        EventKind::ElectionCheck { .. } | EventKind::LeaderChangeSeen { .. } | EventKind::LeaseRenewed { .. }
    );
    if quiet { Level::Debug } else { Level::Info }
}

fn missed_text(missed: Option<u64>, why: &str) -> String {
    json!({"missed": missed, "why": why}).to_string()
}

struct Reader {
    buffer: Arc<EventBuffer>,
    next: u64,
    level: Level,
    /// The last number to send, if there is one.
    end: Option<u64>,
    newest: watch::Receiver<u64>,
    keep_alive: Duration,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
    hello: Option<Bytes>,
}

impl Reader {
    async fn chunk(&mut self) -> Option<Bytes> {
        if let Some(hello) = self.hello.take() {
            return Some(hello);
        }
        // Events of another level are not sent to this client, so they are no sign of life.
        let silent = tokio::time::Instant::now() + self.keep_alive;
        loop {
            if self.closing.is_cancelled() || self.end.is_some_and(|end| self.next > end) {
                return None;
            }
            self.newest.borrow_and_update();
            if let Some((chunk, next)) = self.buffer.chunk(self.next, self.level) {
                self.next = next;
                return Some(chunk);
            }
            if self.end.is_some() {
                return None;
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                changed = self.newest.changed() => changed.ok()?,
                () = tokio::time::sleep_until(silent) => return Some(Bytes::from_static(b": keep-alive\n\n")),
            }
        }
    }
}
