//! Orders: what anybody asks of the leader, in one document that everybody appends to and the leader empties.
//!
//! An entry leaves the document only once the ledger on the store shows what it asked for, and no job leaves the ledger while an
//! entry may still ask for it. So a leader that dies in between neither loses an order nor serves it twice.

mod doc;

pub use doc::{BatchedOrder, JOB_BATCHES_MAX, JOB_QUEUES_MAX, Order, OrdersDoc, QueueSettings};

use super::RETRY;
use super::dispatcher::{DispatchRequest, DispatcherConfig, Sink};
use super::model::JobRecord;
use crate::document::{Content, Document, DocumentAnswer, Op, Rules, State, Unreadable, What, Writer};
use crate::id::{JobId, QueueName};
use crate::machine::RequestId;
use crate::mutants::Mutant;
use crate::time::Time;

/// How many looks after the last news stay quick.
const QUICK_LOOKS: u8 = 20;

/// Where a look finds more than this, the next ones are half as frequent: the writes that follow from each, one of every inbox that
/// is given something, are shared by twice as many jobs.
const MANY: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OrdersNews {
    Nothing,
    /// There may be new entries.
    Read,
    /// It cannot be read, and is left alone.
    Unreadable,
    Superseded,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Orders {
    document: Document,
    content: Content<OrdersDoc>,
    look_at: Time,
    quick_looks: u8,
    /// How many entries the last look found.
    found: usize,
}

impl Orders {
    pub(super) fn new(writer: Writer) -> Orders {
        // Written only to take something out: who leads and is asked for nothing writes nothing.
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Orders {
            document: Document::new(rules),
            content: Content::default(),
            look_at: Time(0),
            quick_looks: 0,
            found: 0,
        }
    }

    fn doc(&self) -> Option<&OrdersDoc> {
        self.content.get().filter(|_| self.document.state() != State::Blocked)
    }

    /// In the sequence in which they came.
    pub(super) fn entries(&self) -> &[BatchedOrder] {
        self.doc().map_or(&[], |doc| &doc.entries)
    }

    /// The jobs that somebody asks to be removed.
    pub(super) fn removals(&self) -> impl Iterator<Item = &JobId> {
        self.entries().iter().filter_map(|entry| match &entry.order {
            Order::Remove(id) => Some(id),
            Order::Submit(_) | Order::Retry(_) | Order::Cancel(_) => None,
        })
    }

    /// How often somebody changed something elsewhere that the leader should look at.
    pub(super) fn changes(&self) -> u64 {
        self.doc().map_or(0, |doc| doc.changes)
    }

    /// What is set for a queue; `None` if nobody can know.
    pub(super) fn settings(&self, queue: &QueueName) -> Option<QueueSettings> {
        let known = matches!(self.document.state(), State::Found | State::Owned);
        let known = known || Mutant::JobPauseUnread.on();
        known.then(|| self.doc().and_then(|doc| doc.queues.get(queue).copied()).unwrap_or_default())
    }

    /// Whether it was looked at.
    pub(super) fn is_known(&self) -> bool {
        self.document.state() != State::Unread
    }

    /// Whether nothing can ask for this job again. A job with a watermark is never created twice anyway.
    pub(super) fn is_done_with(&self, record: &JobRecord) -> bool {
        let known = matches!(self.document.state(), State::Found | State::Owned);
        let ordered = self.doc().is_some_and(|doc| doc.submits(&record.id));
        record.watermark > 0 || Mutant::JobForgottenWhileOrdered.on() || (known && !ordered)
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        config: &DispatcherConfig,
        id: RequestId,
        answer: DocumentAnswer<OrdersDoc>,
    ) -> OrdersNews {
        let is_read = matches!(answer, DocumentAnswer::Read(_));
        let (settled, body) = self.document.answered(now, id, answer);
        self.content.settle(&settled.what, body);
        if is_read {
            self.found = self.entries().len();
        }
        let news = match settled.what {
            What::Superseded(_) => return OrdersNews::Superseded,
            What::Blocked { news: true, .. } => OrdersNews::Unreadable,
            What::Loaded | What::Shared | What::Landed { .. } | What::Overtaken(_) => OrdersNews::Read,
            What::Nothing
            | What::Same
            | What::Empty
            | What::Blocked { .. }
            | What::Failed { .. }
            | What::Removed => OrdersNews::Nothing,
        };
        let is_news = news == OrdersNews::Read;
        self.quick_looks = if is_news { QUICK_LOOKS } else { self.quick_looks.saturating_sub(1) };
        let pause_ms = match self.quick_looks {
            0 => config.orders_ms,
            _ if self.found > MANY => config.fast_ms,
            _ => config.fast_ms / 2,
        };
        self.look_at = now + pause_ms;
        news
    }

    /// Looks when it is time; takes out what `is_done` says is done.
    pub(super) fn send(&mut self, now: Time, is_done: impl Fn(&Order) -> bool, sink: &mut Sink<'_>) {
        if self.document.is_busy() || now < self.document.due() {
            return;
        }
        if now >= self.look_at {
            self.document.refresh();
        }
        let rest = self.doc().and_then(|doc| rest(doc, is_done));
        let Orders { document, content, .. } = self;
        match rest {
            Some(rest) if !document.must_read() => {
                document.touch();
                let body = content.send(rest);
                sink.send_for(|id| document.next(now, id, true), |op| request(op, || body));
            }
            Some(_) | None => {
                sink.send_for(|id| document.next(now, id, false), |op| request(op, OrdersDoc::default));
            }
        }
    }

    /// The next time after now at which something is due by time alone.
    pub(super) fn due_at(&self, now: Time) -> Option<Time> {
        let waits = !self.document.is_busy() && self.document.state() != State::Superseded;
        let at = self.look_at.max(self.document.due());
        waits.then_some(if at > now { at } else { now + 1 })
    }
}

fn request(op: Op, body: impl FnOnce() -> OrdersDoc) -> DispatchRequest {
    DispatchRequest::Orders(op.with(body))
}

/// The document without what is done; `None` if nothing is.
fn rest(doc: &OrdersDoc, is_done: impl Fn(&Order) -> bool) -> Option<OrdersDoc> {
    let leaves = |entry: &BatchedOrder| {
        // A job that there is no room for yet is called off once it is there.
        let too_early = matches!(&entry.order, Order::Cancel(id) if doc.submits(id));
        !too_early && is_done(&entry.order)
    };
    if !doc.entries.iter().any(leaves) {
        return None;
    }
    let (done, entries): (Vec<BatchedOrder>, Vec<BatchedOrder>) =
        doc.entries.iter().cloned().partition(leaves);
    let mut taken = doc.taken.clone();
    for entry in done {
        if !taken.contains(&entry.batch) && !Mutant::JobBatchForgotten.on() {
            taken.push(entry.batch);
        }
    }
    let old = taken.len().saturating_sub(JOB_BATCHES_MAX);
    taken.drain(..old);
    Some(OrdersDoc { entries, taken, changes: doc.changes, queues: doc.queues.clone() })
}
