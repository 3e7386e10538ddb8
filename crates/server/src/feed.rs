//! The node's events, kept for a while and sent to whoever listens.
//!
//! Streams have no buffers of their own: each is a place in one ring. A client that reads slowly holds nothing up and costs
//! nothing; once the ring has gone past it, it is told that it missed some and goes on from the oldest there is.
//!
//! What a healthy node repeats all the time has a ring of its own, so that it does not drive out what people want to know. One
//! sequence of numbers runs through both: a stream of everything has no gaps, and a stream of one level has none of that level.

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

/// Events kept, of each level.
pub(crate) const KEPT: usize = 1000;

/// Events sent in one piece.
const PIECE: usize = 64;

/// The events kept, and what they tell of leaders.
pub(crate) struct Feed {
    /// Which life of the process: an id of another one means nothing here.
    life: String,
    ring: Mutex<Ring>,
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

/// The events of one level.
#[derive(Default)]
struct Shelf {
    frames: VecDeque<Frame>,
    /// The number of the newest that is not kept any more.
    dropped: u64,
}

impl Shelf {
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
struct Ring {
    info: Shelf,
    debug: Shelf,
    /// The number of the newest; numbers start at 1.
    newest: u64,
    history: History,
}

impl Ring {
    /// From this number on, every event of the level is there.
    fn first(&self, level: Level) -> u64 {
        match level {
            Level::Info => self.info.dropped + 1,
            Level::Debug => self.info.dropped.max(self.debug.dropped) + 1,
        }
    }

    /// Where the newest so many of a level begin.
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

    /// The next so many from a number on, in order.
    fn frames(&self, from: u64, level: Level, count: usize) -> Vec<&Frame> {
        let quiet = self.debug.from(from).filter(|_| level == Level::Debug);
        let mut found: Vec<&Frame> = self.info.from(from).take(count).chain(quiet.take(count)).collect();
        found.sort_by_key(|frame| frame.number);
        found.truncate(count);
        found
    }
}

/// What a stream is to tell.
pub(crate) struct Wish {
    pub(crate) from: From,
    pub(crate) level: Level,
    /// It goes on with what comes.
    pub(crate) follow: bool,
}

/// Where a stream is to begin.
pub(crate) enum From {
    /// With what comes.
    Now,
    /// With the last so many.
    Recent(usize),
    /// After this id.
    After(String),
}

impl Feed {
    pub(crate) fn new() -> Feed {
        Feed {
            life: format!("{:08x}", rand::random::<u32>()),
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    /// Takes the node's events until there are no more.
    pub(crate) async fn pump(self: Arc<Feed>, mut events: broadcast::Receiver<Event>) {
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
        self.ring.lock().history.take(event);
        self.keep(level(&event.kind), None, &event.to_json().to_string());
    }

    fn keep(&self, level: Level, name: Option<&str>, data: &str) {
        let number = {
            let mut ring = self.ring.lock();
            ring.newest += 1;
            let number = ring.newest;
            let frame = Frame { number, bytes: self.frame(Some(number), name, data) };
            match level {
                Level::Info => ring.info.push(frame),
                Level::Debug => ring.debug.push(frame),
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
        format!("{}-{number}", self.life)
    }

    /// The id of the newest event; none before the first.
    pub(crate) fn newest_id(&self) -> Option<String> {
        let number = *self.newest.borrow();
        (number > 0).then(|| self.id(number))
    }

    pub(crate) fn history(&self) -> History {
        self.ring.lock().history.clone()
    }

    /// The number to begin with, and what to say first if that is not what was asked for.
    fn begin(&self, wish: &Wish) -> (u64, Option<Bytes>) {
        let ring = self.ring.lock();
        let next = ring.newest + 1;
        let after = match &wish.from {
            From::Now => return (next, None),
            From::Recent(count) => return (ring.recent(*count, wish.level), None),
            From::After(id) => id,
        };
        let known = after.split_once('-').filter(|(life, _)| *life == self.life);
        match known.and_then(|(_, number)| number.parse::<u64>().ok()).filter(|number| *number < next) {
            // Whether it is too old is seen by whoever reads the ring.
            Some(number) => (number + 1, None),
            None => {
                let text =
                    missed_text(None, "the id is of another life of this server, or of another server");
                (ring.first(wish.level), Some(self.frame(None, Some("missed"), &text)))
            }
        }
    }

    /// The frames from this number on, in one piece, and the number after them. Those that are gone are told.
    fn piece(&self, from: u64, level: Level) -> Option<(Bytes, u64)> {
        let ring = self.ring.lock();
        let first = ring.first(level);
        let frames = ring.frames(from.max(first), level, PIECE);
        let next = frames.last()?.number + 1;
        let mut piece = Vec::new();
        if from < first {
            // Of one level nobody counts those that are gone; that there were some is known.
            let missed = (level == Level::Debug).then(|| first - from);
            let text = missed_text(missed, "they are older than what is kept");
            piece.extend_from_slice(&self.frame(None, Some("missed"), &text));
        }
        for frame in frames {
            piece.extend_from_slice(&frame.bytes);
        }
        Some((piece.into(), next))
    }

    /// The events as a stream that ends when the server does, or with the newest there is.
    pub(crate) fn stream(
        self: Arc<Feed>,
        wish: &Wish,
        keep_alive: Duration,
        closing: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + use<> {
        let (next, first) = self.begin(wish);
        // Says at once that it is open, and how soon to come back.
        let mut hello = Vec::from(&b"retry: 2000\n: tenure\n\n"[..]);
        hello.extend_from_slice(&first.unwrap_or_default());
        let newest = self.newest.subscribe();
        let end = (!wish.follow).then(|| self.ring.lock().newest);
        let reader = Reader {
            feed: self,
            next,
            end,
            level: wish.level,
            newest,
            keep_alive,
            closing,
            _permit: permit,
            hello: Some(hello.into()),
        };
        futures::stream::unfold(reader, |mut reader| async move {
            let piece = reader.piece().await?;
            Some((Ok(piece), reader))
        })
    }
}

/// The level of an event, as the log has it.
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
    feed: Arc<Feed>,
    next: u64,
    level: Level,
    /// The last number, if there is to be one.
    end: Option<u64>,
    newest: watch::Receiver<u64>,
    keep_alive: Duration,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
    hello: Option<Bytes>,
}

impl Reader {
    async fn piece(&mut self) -> Option<Bytes> {
        if let Some(hello) = self.hello.take() {
            return Some(hello);
        }
        // Events of another level are no sign of life to this client.
        let silent = tokio::time::Instant::now() + self.keep_alive;
        loop {
            if self.closing.is_cancelled() || self.end.is_some_and(|end| self.next > end) {
                return None;
            }
            self.newest.borrow_and_update();
            if let Some((piece, next)) = self.feed.piece(self.next, self.level) {
                self.next = next;
                return Some(piece);
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
