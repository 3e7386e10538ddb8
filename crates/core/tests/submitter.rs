//! The submitter, fed by hand: calls, lost answers, and a document that others write too.

use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Stamp};
use tenure_core::machine::{Effect, Input, Machine, Now, RequestId};
use tenure_core::{
    BatchedOrder, Epoch, Expect, Incarnation, JobLimits, JobRecord, Nonce, Order, OrderAnswer, OrdersDoc,
    Submitter, SubmitterCommand, Time, Version, WriteAnswer,
};

const ME: Incarnation = Incarnation(5);
const OTHER: Incarnation = Incarnation(6);

fn name<T: std::str::FromStr<Err = tenure_core::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

fn submit(id: &str, payload: usize) -> Order {
    let limits = JobLimits { timeout_ms: 1, ttl_ms: 1, deadline_ms: 0, attempts_max: 1, backoff_ms: 0 };
    let new = JobRecord::new(name(id), name(id), name("k"), limits);
    Order::Submit(JobRecord { payload: Arc::from(vec![0; payload]), ..new })
}

/// A submitter and the one document.
struct Driver {
    machine: Submitter,
    now: u64,
    stored: Option<(Stamp, OrdersDoc, u64)>,
    open: Vec<(RequestId, DocumentRequest<OrdersDoc>)>,
    answers: Vec<(u64, OrderAnswer)>,
    writes: u32,
}

impl Driver {
    fn new() -> Driver {
        let machine = Submitter::new(ME, 10_000);
        Driver { machine, now: 0, stored: None, open: Vec::new(), answers: Vec::new(), writes: 0 }
    }

    fn feed(&mut self, input: Input<SubmitterCommand, DocumentAnswer<OrdersDoc>>) {
        let now = Now { at: Time(self.now), wall_ms: 0 };
        let mut out = Vec::new();
        self.machine.handle(now, input, &mut out);
        self.machine.handle(now, Input::Wake, &mut out);
        assert!(self.machine.wake_at().is_none_or(|at| at > now.at), "woken in vain");
        for effect in out {
            match effect {
                Effect::Request(id, request) => self.open.push((id, request)),
                Effect::Output(output) => self.answers.push((output.token, output.answer)),
            }
        }
    }

    fn order(&mut self, token: u64, orders: Vec<Order>) {
        self.feed(Input::Command(SubmitterCommand::Order { token, orders }));
    }

    /// What the store says to a request.
    fn outcome(&mut self, request: DocumentRequest<OrdersDoc>) -> DocumentAnswer<OrdersDoc> {
        let version = |number: u64| Version::new(&number.to_string());
        match request {
            DocumentRequest::Read { unless } => DocumentAnswer::Read(match &self.stored {
                None => Read::Absent,
                Some((_, _, number)) if unless == Some(version(*number)) => Read::Unchanged,
                Some((stamp, body, number)) => {
                    Read::Found { stamp: *stamp, body: body.clone(), version: version(*number) }
                }
            }),
            DocumentRequest::Write { stamp, body, expect } => {
                let stands = match &self.stored {
                    None => Expect::Absent,
                    Some((_, _, number)) => Expect::Version(version(*number)),
                };
                if expect != stands {
                    return DocumentAnswer::Written(WriteAnswer::Lost);
                }
                self.writes += 1;
                let number = self.stored.as_ref().map_or(1, |(_, _, number)| number + 1);
                self.stored = Some((stamp, body, number));
                DocumentAnswer::Written(WriteAnswer::Won(version(number)))
            }
            DocumentRequest::Remove => panic!("it removes nothing"),
        }
    }

    /// Serves everything, until nothing is asked, not even after a moment.
    fn serve(&mut self) {
        loop {
            while !self.open.is_empty() {
                let (id, request) = self.open.remove(0);
                let answer = self.outcome(request);
                self.feed(Input::Answer(id, answer));
            }
            let soon = |at: &Time| at.0 <= self.now + 25;
            let Some(at) = self.machine.wake_at().filter(soon) else { return };
            self.now = at.0;
            self.feed(Input::Wake);
        }
    }

    /// Somebody else changes the document.
    fn change(&mut self, change: impl FnOnce(&mut OrdersDoc)) {
        let number = self.stored.as_ref().map_or(1, |(_, _, number)| number + 1);
        let mut body = self.stored.take().map(|(_, body, _)| body).unwrap_or_default();
        change(&mut body);
        let nonce = Nonce { incarnation: OTHER, sequence: number };
        self.stored = Some((Stamp { epoch: Epoch(1), owner: OTHER, nonce }, body, number));
    }

    /// The leader takes everything out.
    fn empty(&mut self) {
        self.change(|doc| {
            let taken = std::mem::take(&mut doc.entries);
            doc.taken.extend(taken.iter().map(|entry| entry.batch));
            doc.taken.dedup();
        });
    }

    /// Sends what is open, and loses the answer.
    fn lose_answer(&mut self) {
        let (id, request) = self.open.remove(0);
        self.outcome(request);
        self.feed(Input::Answer(id, DocumentAnswer::Written(WriteAnswer::Unknown)));
    }

    fn jobs(&self) -> Vec<String> {
        let doc = self.stored.as_ref().map(|(_, doc, _)| doc);
        doc.into_iter().flat_map(|doc| &doc.entries).map(|entry| entry.order.job().to_string()).collect()
    }
}

fn accepted() -> OrderAnswer {
    OrderAnswer::Accepted { known: [].into() }
}

#[test]
fn su3_calls_that_come_together_share_one_write() {
    let mut driver = Driver::new();
    for token in 1..=100 {
        driver.order(token, vec![submit(&format!("t{token}"), 10)]);
    }
    driver.serve();
    assert_eq!((driver.writes, driver.jobs().len()), (1, 100));
    assert_eq!(driver.answers.len(), 100);
    assert!(driver.machine.is_idle() && driver.machine.wake_at().is_none(), "an idle one asks for nothing");
}

#[test]
fn su3_calls_that_keep_coming_share_writes_on_a_quick_store() {
    let mut driver = Driver::new();
    driver.order(1, vec![submit("t1", 10)]);
    driver.serve();
    for token in 2..=10 {
        driver.now += 2;
        driver.order(token, vec![submit(&format!("t{token}"), 10)]);
        assert_eq!(driver.open.len(), 0, "they are collected");
    }
    driver.serve();
    assert_eq!((driver.writes, driver.answers.len(), driver.now), (2, 10, 25));
}

#[test]
fn a_lost_answer_is_found_in_the_document() {
    let mut driver = Driver::new();
    driver.order(1, vec![submit("t1", 10)]);
    let (id, request) = driver.open.remove(0);
    let read = driver.outcome(request);
    driver.feed(Input::Answer(id, read));
    driver.lose_answer();
    assert_eq!(driver.answers, [], "nobody knows yet");
    driver.now = 2000;
    driver.feed(Input::Wake);
    driver.serve();
    assert_eq!((&driver.answers[..], driver.writes), (&[(1, accepted())][..], 1));
}

#[test]
pub(crate) fn a_lost_answer_is_found_even_if_the_leader_has_served_the_call() {
    let mut driver = Driver::new();
    driver.order(1, vec![submit("t1", 10)]);
    let (id, request) = driver.open.remove(0);
    let read = driver.outcome(request);
    driver.feed(Input::Answer(id, read));
    driver.lose_answer();
    driver.empty();
    driver.now = 2000;
    driver.feed(Input::Wake);
    driver.serve();
    assert_eq!(
        (&driver.answers[..], driver.writes),
        (&[(1, accepted())][..], 1),
        "it is not asked for twice"
    );
}

#[test]
fn somebody_was_faster() {
    let mut driver = Driver::new();
    driver.order(1, vec![submit("t1", 10)]);
    let (id, request) = driver.open.remove(0);
    let read = driver.outcome(request);
    driver.feed(Input::Answer(id, read));
    let batch = Nonce { incarnation: OTHER, sequence: 1 };
    driver.change(|doc| doc.entries.push(BatchedOrder { batch, order: submit("t2", 10) }));
    driver.serve();
    assert_eq!(
        (driver.jobs(), &driver.answers[..]),
        (vec!["t2".into(), "t1".into()], &[(1, accepted())][..])
    );
}

#[test]
fn su2_a_job_that_was_asked_for_before_is_said_to_be_known() {
    let mut driver = Driver::new();
    driver.order(1, vec![submit("t1", 10)]);
    driver.order(2, vec![submit("t1", 10), submit("t2", 10)]);
    driver.serve();
    let known = OrderAnswer::Accepted { known: [name("t1")].into() };
    assert_eq!(driver.answers, [(1, accepted()), (2, known.clone())]);
    driver.order(3, vec![submit("t1", 10)]);
    driver.serve();
    assert_eq!((driver.answers.last(), driver.writes), (Some(&(3, known)), 1), "nothing is written for that");
    assert_eq!(driver.jobs(), ["t1", "t2"]);
}

#[test]
fn su5_a_call_without_room_is_refused_whole() {
    let mut driver = Driver::new();
    let large = |from: u32, to: u32| (from..to).map(|n| submit(&format!("t{n}"), 16_000)).collect();
    driver.order(1, large(0, 20));
    driver.order(2, large(20, 40));
    driver.order(3, vec![submit("small", 10)]);
    driver.serve();
    assert_eq!(driver.answers, [(2, OrderAnswer::Full), (1, accepted()), (3, accepted())]);
    assert_eq!(driver.jobs().len(), 21, "nothing of the second call");
    driver.empty();
    driver.order(4, large(20, 40));
    driver.serve();
    assert_eq!(driver.answers.last(), Some(&(4, accepted())), "there is room again");
}

#[test]
fn a_store_that_does_not_answer_is_given_up_in_time() {
    let mut driver = Driver::new();
    driver.order(1, vec![submit("t1", 10)]);
    let mut at = 0;
    while driver.answers.is_empty() {
        if let Some((id, _)) = driver.open.pop() {
            driver.feed(Input::Answer(id, DocumentAnswer::Read(Read::Unavailable)));
        }
        at = driver.machine.wake_at().map_or(at, |at| at.0);
        driver.now = at;
        driver.feed(Input::Wake);
    }
    assert_eq!(driver.answers, [(1, OrderAnswer::GivenUp { in_doubt: false })]);
    assert_eq!(driver.now, 10_000);
}
