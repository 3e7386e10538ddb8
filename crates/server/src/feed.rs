//! The node's events, kept for a while and sent to whoever listens.
//!
//! Streams have no buffers of their own: each is a place in one ring. A client that reads slowly holds nothing up and costs
//! nothing; once the ring has gone past it, it is told how many it missed and goes on from the oldest there is.

use crate::history::History;
use bytes::Bytes;
use futures::Stream;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure::Event;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio_util::sync::CancellationToken;

/// Events kept.
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

#[derive(Default)]
struct Ring {
    frames: VecDeque<Bytes>,
    /// The number of the first frame; numbers start at 1.
    first: u64,
    history: History,
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
        let ring = Ring { first: 1, ..Ring::default() };
        Feed {
            life: format!("{:08x}", rand::random::<u32>()),
            ring: Mutex::new(ring),
            newest: watch::Sender::new(0),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the node's events until there are no more.
    pub(crate) async fn pump(self: Arc<Feed>, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(event) => self.push(&event),
                Err(RecvError::Lagged(missed)) => {
                    self.keep(Some("missed"), &missed_text(Some(missed), "this server was too slow"))
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    pub(crate) fn push(&self, event: &Event) {
        self.ring().history.take(event);
        self.keep(None, &event.to_json().to_string());
    }

    fn keep(&self, name: Option<&str>, data: &str) {
        let number = {
            let mut ring = self.ring();
            let number = ring.first + ring.frames.len() as u64;
            let frame = self.frame(Some(number), name, data);
            ring.frames.push_back(frame);
            if ring.frames.len() > KEPT {
                ring.frames.pop_front();
                ring.first += 1;
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
        self.ring().history.clone()
    }

    /// The number to begin with, and what to say first if that is not what was asked for.
    fn begin(&self, from: &From) -> (u64, Option<Bytes>) {
        let ring = self.ring();
        let next = ring.first + ring.frames.len() as u64;
        let after = match from {
            From::Now => return (next, None),
            From::Recent(count) => return (next.saturating_sub(*count as u64).max(ring.first), None),
            From::After(id) => id,
        };
        let known = after.split_once('-').filter(|(life, _)| *life == self.life);
        match known.and_then(|(_, number)| number.parse::<u64>().ok()).filter(|number| *number < next) {
            // Whether it is too old is seen by whoever reads the ring.
            Some(number) => (number + 1, None),
            None => {
                let text =
                    missed_text(None, "the id is of another life of this server, or of another server");
                (ring.first, Some(self.frame(None, Some("missed"), &text)))
            }
        }
    }

    /// The frames from this number on, in one piece, and the number after them. Those that are gone are told.
    fn piece(&self, from: u64) -> Option<(Bytes, u64)> {
        let ring = self.ring();
        let next = ring.first + ring.frames.len() as u64;
        if from >= next {
            return None;
        }
        let mut piece = Vec::new();
        if from < ring.first {
            let text = missed_text(Some(ring.first - from), "they are older than what is kept");
            piece.extend_from_slice(&self.frame(None, Some("missed"), &text));
        }
        let begin = from.max(ring.first);
        let skip = usize::try_from(begin - ring.first).unwrap_or(usize::MAX);
        let frames = ring.frames.iter().skip(skip).take(PIECE);
        let mut count = 0;
        for frame in frames {
            piece.extend_from_slice(frame);
            count += 1;
        }
        Some((piece.into(), begin + count))
    }

    /// The events as a stream that ends when the server does.
    pub(crate) fn stream(
        self: Arc<Feed>,
        from: From,
        keep_alive: Duration,
        closing: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
        let (next, first) = self.begin(&from);
        // Says at once that it is open, and how soon to come back.
        let mut hello = Vec::from(&b"retry: 2000\n: tenure\n\n"[..]);
        hello.extend_from_slice(&first.unwrap_or_default());
        let newest = self.newest.subscribe();
        let reader = Reader {
            feed: self,
            next,
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

fn missed_text(missed: Option<u64>, why: &str) -> String {
    json!({"missed": missed, "why": why}).to_string()
}

struct Reader {
    feed: Arc<Feed>,
    next: u64,
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
        loop {
            if self.closing.is_cancelled() {
                return None;
            }
            self.newest.borrow_and_update();
            if let Some((piece, next)) = self.feed.piece(self.next) {
                self.next = next;
                return Some(piece);
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                changed = self.newest.changed() => changed.ok()?,
                () = tokio::time::sleep(self.keep_alive) => return Some(Bytes::from_static(b": keep-alive\n\n")),
            }
        }
    }
}
