//! A document whose requests are sent, one after the other, by whoever waits for it.

use super::{Codec, DocumentClient};
use crate::clock::millis;
use crate::error::{Detail, Error, ErrorKind};
use crate::guard::LeaderGuard;
use std::fmt::Display;
use std::time::Duration;
use tenure_core::document::{Content, Document, DocumentAnswer, DocumentRequest, Rules, What};
use tenure_core::machine::{Request, RequestId};
use tenure_core::{Incarnation, Time, WriteAnswer};
use tokio::time::Instant;

/// A life of a document of one's own: no two of them share a nonce.
pub(crate) fn new_incarnation() -> Incarnation {
    Incarnation(rand::random())
}

pub(crate) struct InlineDocument<C: Codec> {
    client: DocumentClient<C>,
    document: Document,
    content: Content<C::Body>,
    began: Instant,
    requests: u64,
    /// The request under way, and the answer to assume if whoever waited for it went away.
    under_way: Option<(RequestId, DocumentAnswer<C::Body>)>,
}

/// What one step came to.
pub(crate) enum Step {
    /// Nothing is due yet.
    Wait(Duration),
    /// Nothing is left to do.
    Idle,
    /// A request was answered.
    Settled {
        what: What,
        /// It was a write.
        wrote: bool,
        /// It was a write, and it may have landed.
        unknown: bool,
    },
}

impl<C: Codec<Body: Clone>> InlineDocument<C> {
    pub(crate) fn new(client: DocumentClient<C>, rules: Rules) -> InlineDocument<C> {
        InlineDocument {
            client,
            document: Document::new(rules),
            content: Content::default(),
            began: Instant::now(),
            requests: 0,
            under_way: None,
        }
    }

    pub(crate) fn client(&self) -> &DocumentClient<C> {
        &self.client
    }

    pub(crate) fn document(&mut self) -> &mut Document {
        &mut self.document
    }

    /// The body that stands there, as far as is known.
    pub(crate) fn body(&self) -> Option<&C::Body> {
        self.content.get()
    }

    fn now(&self) -> Time {
        Time(millis(self.began.elapsed()))
    }

    /// Sends the next request, if one is due. `body` is what is written; without one, nothing is.
    pub(crate) async fn step(&mut self, guard: Option<&LeaderGuard>, body: Option<&C::Body>) -> Step {
        if let Some((id, unanswered)) = self.under_way.take() {
            self.answered(id, unanswered);
        }
        let (now, id) = (self.now(), RequestId(self.requests + 1));
        let Some(due) = self.document.wake_at(body.is_some()) else { return Step::Idle };
        let Some(op) = self.document.next(now, id, body.is_some()) else {
            return Step::Wait(Duration::from_millis(due.0.saturating_sub(now.0).max(1)));
        };
        self.requests += 1;
        let request = match body {
            Some(body) => op.with(|| self.content.send(body.clone())),
            None => match op.with(|| ()) {
                DocumentRequest::Read { unless } => DocumentRequest::Read { unless },
                DocumentRequest::Write { .. } | DocumentRequest::Remove => return Step::Idle,
            },
        };
        self.under_way = Some((id, request.unanswered()));
        let answer = self.client.carry(guard, request).await;
        self.under_way = None;
        let unknown = matches!(answer, DocumentAnswer::Written(WriteAnswer::Unknown));
        let wrote = matches!(answer, DocumentAnswer::Written(_));
        Step::Settled { what: self.answered(id, answer), wrote, unknown }
    }

    fn answered(&mut self, id: RequestId, answer: DocumentAnswer<C::Body>) -> What {
        let (settled, read) = self.document.answered(self.now(), id, answer);
        self.content.settle(&settled.what, read);
        settled.what
    }

    // ---- errors ----

    fn error(&self, kind: ErrorKind, detail: impl Display, may_have_been_written: bool) -> Error {
        let doubt = if may_have_been_written { "; it may or may not have been written" } else { "" };
        Error::new(kind, format_args!("{}: {detail}{doubt}", self.client.key()))
            .perhaps_written(may_have_been_written)
    }

    pub(crate) fn fenced(&self, detail: &str, may_have_been_written: bool) -> Error {
        self.error(ErrorKind::Fenced, detail, may_have_been_written)
    }

    pub(crate) fn blocked(&self) -> Error {
        let said = self.client.trouble();
        let detail = said.strip_prefix(&format!("is not {}: ", C::WHAT)).unwrap_or(&said).to_owned();
        let sentence = format_args!("{} was left alone: {detail}", self.client.key());
        Error::new(ErrorKind::Unreadable, sentence).because(Detail(detail))
    }

    pub(crate) fn failed(&self, denied: bool, may_have_been_written: bool) -> Error {
        let kind = if denied && !may_have_been_written { ErrorKind::Denied } else { ErrorKind::Unavailable };
        let trouble = self.client.last_trouble();
        self.error(kind, &trouble, may_have_been_written).because(trouble)
    }

    pub(crate) fn raced(&self, may_have_been_written: bool) -> Error {
        self.error(ErrorKind::Raced, "somebody else changed it during every attempt", may_have_been_written)
    }
}
