//! The submitter: appends what a process asks of the leader to the document of orders.
//!
//! It batches: everything that is asked while a write is under way goes out with the next one. A call is written whole or not at
//! all. A write without an answer is looked for before anything is written again: its batch is in the document, or among those
//! the leader has served, or it never landed and never will.

use super::model::JOB_OBJECT_MAX_WEIGHT;
use super::next_request;
use super::orders::{BatchedOrder, Order, OrdersDoc};
use crate::document::{
    BackOff, Content, Document, DocumentAnswer, DocumentRequest, Op, Rules, Unreadable, What, Writer,
};
use crate::id::{Incarnation, JobId, Nonce};
use crate::machine::{Effect, In, Input, Machine, Now, Out, RequestId};
use crate::time::Time;
use std::collections::BTreeSet;

/// Pauses after failed requests. Somebody waits for the answer.
const RETRY: BackOff = BackOff { first_ms: 50, max_ms: 1000 };

/// After a write the next calls are collected for this long: where calls keep coming and the store is quick, more of them share one.
const COLLECT_MS: u64 = 25;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SubmitterCommand {
    /// Writes all of these, or none if there is no room. The answer comes under this token.
    Order { token: u64, orders: Vec<Order> },
}

/// What became of a call.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OrderAnswer {
    /// The document has it, or the leader has already taken it up: nothing loses it any more. These jobs were asked for before.
    Accepted { known: BTreeSet<JobId> },
    /// There is no room for it. Nothing was written.
    Full,
    /// The document cannot be read, and is left alone. Nothing was written.
    Blocked,
    /// The store denies it. Nothing was written.
    Denied,
    /// The time is over. If it is in doubt, it may have been written.
    GivenUp { in_doubt: bool },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubmitterOutput {
    pub token: u64,
    pub answer: OrderAnswer,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Call {
    token: u64,
    /// The batches it was written with that may have landed, or still may.
    batches: Vec<Nonce>,
    orders: Vec<Order>,
    known: BTreeSet<JobId>,
    until: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Submitter {
    me: Incarnation,
    patience_ms: u64,
    document: Document,
    content: Content<OrdersDoc>,
    calls: Vec<Call>,
    /// Until when calls are only collected.
    collect_until: Time,
    batches: u64,
    requests: u64,
    now: Time,
    unsettled: bool,
}

impl Submitter {
    /// `me` is new at every start. Each call is answered within its patience.
    pub fn new(me: Incarnation, patience_ms: u64) -> Submitter {
        let writer = Writer::Guest { me };
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Submitter {
            me,
            patience_ms,
            document: Document::new(rules),
            content: Content::default(),
            calls: Vec::new(),
            collect_until: Time(0),
            batches: 0,
            requests: 0,
            now: Time(0),
            unsettled: false,
        }
    }

    /// Whether nobody waits for an answer.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    fn answer(&mut self, which: impl Fn(&Call) -> Option<OrderAnswer>, out: &mut Vec<Out<Submitter>>) {
        self.calls.retain(|call| match which(call) {
            Some(answer) => {
                out.push(Effect::Output(SubmitterOutput { token: call.token, answer }));
                false
            }
            None => true,
        });
    }

    fn on_answer(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<OrdersDoc>,
        out: &mut Vec<Out<Submitter>>,
    ) {
        let (settled, body) = self.document.answered(now, id, answer);
        self.content.settle(&settled.what, body);
        if matches!(settled.what, What::Landed { .. }) {
            self.collect_until = now + COLLECT_MS;
        }
        match settled.what {
            What::Landed { .. } | What::Loaded | What::Shared | What::Same | What::Empty => {
                self.note_landed(out);
            }
            What::Blocked { .. } => self.refuse(OrderAnswer::Blocked, out),
            What::Failed { denied: true, .. } => self.refuse(OrderAnswer::Denied, out),
            What::Nothing
            | What::Failed { .. }
            | What::Overtaken(_)
            | What::Superseded(_)
            | What::Removed => {}
        }
    }

    /// Answers the calls of which certainly nothing was written.
    fn refuse(&mut self, answer: OrderAnswer, out: &mut Vec<Out<Submitter>>) {
        self.answer(|call| call.batches.is_empty().then(|| answer.clone()), out);
    }

    /// Answers the calls that the document shows, or that were served meanwhile. The others can be written again.
    fn note_landed(&mut self, out: &mut Vec<Out<Submitter>>) {
        if self.document.in_doubt() || self.document.must_read() {
            return;
        }
        let doc = self.content.get().cloned().unwrap_or_default();
        let landed = |call: &Call| call.batches.iter().any(|batch| doc.has(*batch));
        self.answer(|call| landed(call).then(|| OrderAnswer::Accepted { known: call.known.clone() }), out);
        self.calls.iter_mut().for_each(|call| call.batches.clear());
    }

    fn send_at(&self) -> Time {
        self.document.due().max(self.collect_until)
    }

    fn advance(&mut self, now: Time, out: &mut Vec<Out<Submitter>>) {
        let in_doubt = |call: &Call| !call.batches.is_empty();
        self.answer(
            |call| (now >= call.until).then(|| OrderAnswer::GivenUp { in_doubt: in_doubt(call) }),
            out,
        );
        if self.calls.is_empty() || self.document.is_busy() || now < self.send_at() {
            return;
        }
        if self.document.must_read() {
            return self.send(now, None, out);
        }
        let mut new = self.content.get().cloned().unwrap_or_default();
        let batch = Nonce { incarnation: self.me, sequence: self.batches + 1 };
        let mut full = BTreeSet::new();
        for call in &mut self.calls {
            let known = |order: &Order| matches!(order, Order::Submit(record) if new.submits(&record.id));
            call.known =
                call.orders.iter().filter(|order| known(order)).map(|order| order.job().clone()).collect();
            let fresh = call.orders.iter().filter(|order| !known(order));
            let fresh: Vec<BatchedOrder> =
                fresh.map(|order| BatchedOrder { batch, order: order.clone() }).collect();
            let weight: usize = fresh.iter().map(|entry| entry.order.weight()).sum();
            if new.weight() + weight > JOB_OBJECT_MAX_WEIGHT {
                full.insert(call.token);
            } else {
                new.entries.extend(fresh);
                call.batches.push(batch);
            }
        }
        self.answer(|call| full.contains(&call.token).then_some(OrderAnswer::Full), out);
        let added = new.entries.iter().any(|entry| entry.batch == batch);
        if added {
            self.batches += 1;
            self.document.touch();
            let body = self.content.send(new);
            return self.send(now, Some(body), out);
        }
        // All of it is there already.
        self.answer(|call| Some(OrderAnswer::Accepted { known: call.known.clone() }), out);
    }

    fn send(&mut self, now: Time, body: Option<OrdersDoc>, out: &mut Vec<Out<Submitter>>) {
        let sent = next_request(&mut self.requests, &mut self.document, now, body.is_some());
        let Some((id, op)) = sent else { return };
        debug_assert!(body.is_some() || !matches!(op, Op::Write { .. }));
        out.push(Effect::Request(id, op.with(|| body.unwrap_or_default())));
    }
}

impl Machine for Submitter {
    type Command = SubmitterCommand;
    type Request = DocumentRequest<OrdersDoc>;
    type Output = SubmitterOutput;

    fn handle(&mut self, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>) {
        self.now = now.at;
        self.unsettled = !matches!(input, Input::Wake);
        match input {
            Input::Wake => self.advance(now.at, out),
            Input::Command(SubmitterCommand::Order { token, orders }) => {
                // What was seen for the last call may be old. It is looked at first; a write would only be refused.
                if self.calls.is_empty() {
                    self.document.refresh();
                }
                let until = now.at + self.patience_ms;
                self.calls.push(Call { token, batches: Vec::new(), orders, known: BTreeSet::new(), until });
            }
            Input::Answer(id, answer) => self.on_answer(now.at, id, answer, out),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        if self.unsettled {
            return Some(self.now);
        }
        let patience = self.calls.iter().map(|call| call.until).min()?;
        let sends = (!self.document.is_busy()).then(|| self.send_at().max(self.now + 1));
        Some(patience.min(sends.unwrap_or(patience)))
    }
}
