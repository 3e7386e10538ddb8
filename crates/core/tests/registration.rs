//! A worker's registration against a store that loses answers, under every rival there can be.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal, Stamp};
use tenure_core::machine::{Answer, Effect, In, Input, Machine, Now, Out, Request};
use tenure_core::{
    Epoch, Expect, Incarnation, NodeId, Nonce, RegisteredBy, Registration, RegistrationCommand,
    RegistrationConfig, RegistrationEnd, RegistrationEvent, RegistrationOutput, RequestId, Time, Version,
    WriteAnswer,
};

const HEARTBEAT_MS: u64 = 5000;

const START: In<Registration> = Input::Command(RegistrationCommand::Start);
const STOP: In<Registration> = Input::Command(RegistrationCommand::Stop);

fn pod() -> NodeId {
    NodeId::new("pod-x").expect("valid")
}

fn at(now: u64) -> Now {
    Now { at: Time(now), wall_ms: 0 }
}

fn stamp(incarnation: u64, sequence: u64) -> Stamp {
    let owner = Incarnation(incarnation);
    Stamp { epoch: Epoch(0), owner, nonce: Nonce { incarnation: owner, sequence } }
}

fn found(stamp: Stamp, version: Version) -> Read<RegisteredBy> {
    Read::Found { stamp, body: by(1), version }
}

fn by(beats: u64) -> RegisteredBy {
    RegisteredBy { pod: pod(), heartbeat_ms: HEARTBEAT_MS, beats }
}

fn written(answer: WriteAnswer) -> Answer<Registration> {
    DocumentAnswer::Written(answer)
}

/// One worker's object.
#[derive(Default)]
struct Store {
    version: u64,
    object: Option<Stamp>,
    junk: bool,
}

impl Store {
    fn now(&self) -> Version {
        Version::new(&self.version.to_string())
    }

    fn read(&self, unless: Option<&Version>) -> Read<RegisteredBy> {
        match self.object {
            _ if self.junk => Read::Unreadable { version: Version::new("junk"), newer: false },
            None => Read::Absent,
            Some(_) if Some(&self.now()) == unless => Read::Unchanged,
            Some(stamp) => found(stamp, self.now()),
        }
    }

    fn write(&mut self, stamp: Stamp, expect: &Expect) -> WriteAnswer {
        let holds = match expect {
            Expect::Absent => self.object.is_none(),
            Expect::Version(version) => self.object.is_some() && self.now() == *version,
        };
        if !holds || self.junk {
            return WriteAnswer::Lost;
        }
        self.version += 1;
        self.object = Some(stamp);
        WriteAnswer::Won(self.now())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Link {
    Up,
    Down,
    Denied,
    /// Writes land, their answers are lost.
    Mute,
}

struct Worker {
    machine: Registration,
    incarnation: Incarnation,
    link: Link,
    told: Vec<RegistrationEvent>,
    end: Option<RegistrationEnd>,
    requests: Vec<(u64, DocumentRequest<RegisteredBy>)>,
    late: Vec<(u64, Stamp, Expect)>,
}

impl Worker {
    fn new(incarnation: u64) -> Worker {
        let incarnation = Incarnation(incarnation);
        let config = RegistrationConfig { heartbeat_ms: HEARTBEAT_MS, incarnation, pod: pod() };
        Worker {
            machine: Registration::new(config),
            incarnation,
            link: Link::Up,
            told: Vec::new(),
            end: None,
            requests: Vec::new(),
            late: Vec::new(),
        }
    }

    fn feed(&mut self, now: u64, input: In<Registration>, store: &mut Store) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.machine.handle(at(now), input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Request(id, request) => {
                        inputs.push(Input::Answer(id, self.carry(now, &request, store)));
                    }
                    Effect::Output(RegistrationOutput::Event(event)) => self.told.push(event),
                    Effect::Output(RegistrationOutput::Ended(end)) => {
                        assert_eq!(self.end.replace(end), None, "it ends once");
                    }
                }
            }
        }
    }

    fn carry(
        &mut self,
        now: u64,
        request: &DocumentRequest<RegisteredBy>,
        store: &mut Store,
    ) -> Answer<Registration> {
        self.requests.push((now, request.clone()));
        match (request, self.link) {
            (DocumentRequest::Write { .. }, Link::Down) => written(WriteAnswer::Unavailable),
            (_, Link::Down) => request.unanswered(),
            (DocumentRequest::Read { .. }, Link::Denied) => DocumentAnswer::Read(Read::Denied),
            (DocumentRequest::Read { unless }, _) => DocumentAnswer::Read(store.read(unless.as_ref())),
            (DocumentRequest::Write { .. }, Link::Denied) => written(WriteAnswer::Denied),
            (DocumentRequest::Write { stamp, expect, .. }, link) => {
                let answer = store.write(*stamp, expect);
                written(if link == Link::Mute { WriteAnswer::Unknown } else { answer })
            }
            (DocumentRequest::Remove, Link::Denied) => request.unanswered(),
            (DocumentRequest::Remove, Link::Up | Link::Mute) => {
                store.object = None;
                DocumentAnswer::Removed(Removal::Gone)
            }
        }
    }

    fn run(&mut self, from: u64, to: u64, store: &mut Store) {
        for now in (from..=to).step_by(10) {
            self.tick(now, store);
        }
    }

    fn tick(&mut self, now: u64, store: &mut Store) {
        if self.machine.wake_at().is_some_and(|at| at.0 <= now) {
            self.feed(now, Input::Wake, store);
        }
    }

    fn writes(&self) -> Vec<u64> {
        let writes = self.requests.iter().filter(|(_, r)| matches!(r, DocumentRequest::Write { .. }));
        writes.map(|(at, _)| *at).collect()
    }

    fn holds(&self, store: &Store) -> bool {
        store.object.is_some_and(|stamp| stamp.owner == self.incarnation)
    }
}

fn started(incarnation: u64, now: u64, store: &mut Store) -> Worker {
    let mut worker = Worker::new(incarnation);
    worker.feed(now, START, store);
    worker
}

#[test]
fn it_registers_at_once_and_beats_on_an_exact_cadence() {
    let mut store = Store::default();
    let mut worker = started(1, 30, &mut store);
    assert_eq!(worker.told, [RegistrationEvent::Registered]);
    worker.run(30, 20_000, &mut store);
    assert_eq!(worker.writes(), [30, 5030, 10_030, 15_030]);
    assert_eq!(worker.machine.wake_at(), Some(Time(20_030)));
    let asked = worker.requests.len();
    worker.feed(20_000, STOP, &mut store);
    assert_eq!((worker.end, store.object), (Some(RegistrationEnd::Deregistered), None));
    assert_eq!(worker.requests[asked..], [(20_000, DocumentRequest::Remove)], "its heartbeat is fresh");
    assert_eq!(worker.machine.wake_at(), None);
}

#[test]
fn a_live_rival_is_refused_and_a_dead_one_replaced_after_two_and_a_half_heartbeats() {
    let mut store = Store::default();
    let mut first = started(1, 0, &mut store);
    let mut second = started(2, 1000, &mut store);
    for now in (1000..=20_000).step_by(10) {
        first.tick(now, &mut store);
        second.tick(now, &mut store);
    }
    assert_eq!(second.end, Some(RegistrationEnd::Refused { pod: pod(), incarnation: Incarnation(1) }));
    assert!(second.writes().is_empty() && first.end.is_none());
    // The first dies; a third comes.
    let mut third = started(3, 21_000, &mut store);
    third.run(21_000, 33_490, &mut store);
    assert!(third.writes().is_empty(), "not before 12.5 s");
    third.run(33_500, 40_000, &mut store);
    assert_eq!(third.writes().first(), Some(&33_500));
    assert!(third.told.contains(&RegistrationEvent::Registered));
    // The first was only paused.
    first.run(40_000, 41_000, &mut store);
    assert_eq!(first.end, Some(RegistrationEnd::Superseded { pod: pod(), incarnation: Incarnation(3) }));
    assert!(third.holds(&store));
}

#[test]
fn a_lost_answer_is_no_lost_race() {
    let mut store = Store::default();
    let mut worker = Worker::new(1);
    worker.link = Link::Mute;
    worker.feed(0, START, &mut store);
    worker.run(0, 60_000, &mut store);
    assert_eq!(worker.told.iter().filter(|event| **event == RegistrationEvent::Registered).count(), 1);
    assert!(worker.end.is_none() && worker.holds(&store));
    assert!(worker.writes().len() <= 14, "each write is read back, not repeated: {:?}", worker.writes());
}

#[test]
fn an_object_that_was_removed_is_made_again_and_junk_is_left_alone() {
    let mut store = Store::default();
    let mut worker = started(1, 0, &mut store);
    store.object = None;
    worker.run(0, 6000, &mut store);
    assert!(worker.holds(&store));
    store.junk = true;
    worker.run(6000, 60_000, &mut store);
    assert_eq!(worker.told.iter().filter(|event| **event == RegistrationEvent::Unreadable).count(), 1);
    assert!(store.junk && worker.end.is_none());
    (store.junk, store.object) = (false, None);
    worker.run(60_000, 66_000, &mut store);
    assert!(worker.holds(&store));
    // Who finds junk at the start never had the id.
    let mut store = Store { junk: true, ..Store::default() };
    let late = started(2, 0, &mut store);
    assert_eq!((late.end, late.requests.len()), (Some(RegistrationEnd::Unreadable), 1));
}

#[test]
fn an_outage_is_told_once_and_ridden_out_without_a_storm() {
    for (link, said) in
        [(Link::Down, RegistrationEvent::Unavailable), (Link::Denied, RegistrationEvent::Denied)]
    {
        let mut store = Store::default();
        let mut worker = started(1, 0, &mut store);
        worker.link = link;
        worker.run(10, 120_000, &mut store);
        assert!(worker.requests.len() < 35, "{} requests in 24 heartbeats", worker.requests.len());
        worker.link = Link::Up;
        worker.run(120_000, 126_000, &mut store);
        assert_eq!(worker.told, [RegistrationEvent::Registered, said, RegistrationEvent::Mended]);
        let last = worker.requests.len();
        worker.run(126_000, 156_000, &mut store);
        assert_eq!(worker.requests.len(), last + 6, "back on its cadence");
    }
}

#[test]
fn leaving_ends_within_a_few_requests_and_spares_the_object_of_another() {
    let mut store = Store::default();
    let mut worker = started(1, 0, &mut store);
    worker.link = Link::Down;
    worker.feed(100, STOP, &mut store);
    worker.run(100, 60_000, &mut store);
    assert_eq!(worker.end, Some(RegistrationEnd::Deregistered));
    assert!(worker.requests.len() <= 7, "{:?}", worker.requests);
    let mut late = started(2, 0, &mut store);
    late.feed(10, STOP, &mut store);
    assert_eq!(late.end, Some(RegistrationEnd::Deregistered));
    assert!(store.object.is_some(), "it never had the id, so it removes nothing");
    let mut store = Store::default();
    let mut paused = started(3, 0, &mut store);
    store.write(stamp(4, 1), &Expect::Version(store.now()));
    paused.feed(60_000, STOP, &mut store);
    assert!(store.object.is_some(), "taken over meanwhile");
    let mut new = Worker::new(5);
    assert_eq!(new.machine.wake_at(), None, "it has not begun");
    new.feed(0, STOP, &mut store);
    assert_eq!((new.end, new.requests.len()), (Some(RegistrationEnd::Deregistered), 0));
}

/// Found by random schedules: a process that stood still took an answer of long ago for news, and removed the object of
/// whoever had the id by then.
#[test]
fn a_worker_that_stood_still_looks_again_before_it_removes_anything() {
    let mut hand = Hand::registered();
    hand.tell(5000, Input::Wake);
    let (beat, _) = hand.asked().expect("a heartbeat");
    hand.tell(5010, STOP);
    assert_eq!(hand.effects, [], "the heartbeat is under way");
    // A minute passes before it hears of its heartbeat.
    hand.tell(65_000, Input::Answer(beat, written(WriteAnswer::Won(Version::new("2")))));
    let look = DocumentRequest::Read { unless: Some(Version::new("2")) };
    assert_eq!(hand.request(), look, "what was so a minute ago");
    // And another one before it hears what stands there.
    hand.answer(125_000, DocumentAnswer::Read(Read::Unchanged));
    assert_eq!(hand.request(), look, "is not so for certain");
    hand.answer(125_100, DocumentAnswer::Read(Read::Unchanged));
    assert_eq!(hand.request(), DocumentRequest::Remove);
}

/// Found by random schedules: the same, by way of a removal that failed and was heard of long after.
#[test]
fn a_worker_that_stood_still_looks_again_before_it_removes_once_more() {
    let mut hand = Hand::registered();
    hand.tell(100, STOP);
    assert_eq!(hand.request(), DocumentRequest::Remove, "it has just registered");
    hand.answer(200, DocumentAnswer::Removed(Removal::Unknown));
    assert_eq!(hand.asked(), None, "the store has trouble: no hurry");
    hand.tell(825, Input::Wake);
    let look = DocumentRequest::Read { unless: Some(Version::new("0")) };
    assert_eq!(hand.request(), look, "it may be gone, and somebody else there");
    hand.answer(60_000, DocumentAnswer::Read(Read::Unchanged));
    assert_eq!(hand.request(), look, "a minute later it is not certain");
    hand.answer(60_100, DocumentAnswer::Read(Read::Unchanged));
    assert_eq!(hand.request(), DocumentRequest::Remove);
}

#[test]
fn a_write_that_may_still_land_is_settled_before_the_removal() {
    let mut hand = Hand::registered();
    hand.tell(5000, Input::Wake);
    hand.answer(5000, written(WriteAnswer::Unknown));
    hand.tell(5010, STOP);
    assert_eq!(hand.asked(), None, "the store has trouble: no hurry");
    hand.tell(5625, Input::Wake);
    hand.answer(5630, DocumentAnswer::Read(Read::Unchanged));
    assert!(matches!(hand.request(), DocumentRequest::Write { .. }), "the heartbeat could still land");
    hand.won(5640);
    assert_eq!(hand.request(), DocumentRequest::Remove);
}

#[test]
fn stale_answers_and_early_wakes_change_nothing() {
    let mut store = Store::default();
    let mut worker = started(1, 0, &mut store);
    let before = worker.machine.clone();
    worker.feed(1, Input::Wake, &mut store);
    worker.feed(1, Input::Answer(RequestId(77), DocumentAnswer::Read(Read::Absent)), &mut store);
    worker.feed(1, START, &mut store);
    assert_eq!(worker.machine, before);
}

struct Hand {
    machine: Registration,
    effects: Vec<Out<Registration>>,
}

impl Hand {
    fn new() -> Hand {
        Hand { machine: Worker::new(1).machine, effects: Vec::new() }
    }

    /// Registered at 0, with version 0.
    fn registered() -> Hand {
        let mut hand = Hand::new();
        hand.tell(0, START);
        hand.answer(0, DocumentAnswer::Read(Read::Absent));
        hand.won(0);
        hand
    }

    fn tell(&mut self, now: u64, input: In<Registration>) {
        self.effects.clear();
        self.machine.handle(at(now), input, &mut self.effects);
    }

    fn asked(&self) -> Option<(RequestId, DocumentRequest<RegisteredBy>)> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Request(id, request) => Some((*id, request.clone())),
            Effect::Output(_) => None,
        })
    }

    fn request(&self) -> DocumentRequest<RegisteredBy> {
        self.asked().expect("a request").1
    }

    /// Answers what the last input made it ask.
    fn answer(&mut self, now: u64, answer: Answer<Registration>) {
        let (id, _) = self.asked().expect("a request");
        self.tell(now, Input::Answer(id, answer));
    }

    fn won(&mut self, now: u64) {
        self.answer(now, written(WriteAnswer::Won(Version::new(&now.to_string()))));
    }
}

#[test]
fn the_cadence_begins_with_the_registration_and_a_slow_answer_does_not_shift_it() {
    let mut hand = Hand::new();
    hand.tell(0, START);
    let (first, _) = hand.asked().expect("a look");
    hand.answer(100, DocumentAnswer::Read(Read::Absent));
    let (second, write) = hand.asked().expect("a write");
    assert_eq!(write, DocumentRequest::Write { stamp: stamp(1, 2), body: by(1), expect: Expect::Absent });
    assert_ne!(first, second, "an answer must be to one request only");
    assert_eq!(hand.machine.wake_at(), None, "it waits for an answer");
    hand.won(250);
    assert_eq!(hand.machine.wake_at(), Some(Time(5250)));
    for (beat, sequence) in [(5250, 3), (10_250, 4)] {
        hand.tell(beat, Input::Wake);
        let DocumentRequest::Write { stamp: sent, body, .. } = hand.request() else { panic!() };
        assert_eq!((sent, body), (stamp(1, sequence), by(sequence - 1)), "every write is another");
        hand.won(beat + 150);
        assert_eq!(hand.machine.wake_at(), Some(Time(beat + 5000)));
    }
}

#[test]
fn a_look_that_is_answered_mends_what_was_away() {
    let mut hand = Hand::registered();
    hand.tell(5000, Input::Wake);
    hand.answer(5000, written(WriteAnswer::Unknown));
    let event = |event| Effect::Output(RegistrationOutput::Event(event));
    assert_eq!(hand.effects, [event(RegistrationEvent::Unavailable)]);
    assert_eq!(hand.machine.wake_at(), Some(Time(5625)), "an eighth of a heartbeat");
    hand.tell(5625, Input::Wake);
    hand.answer(5630, DocumentAnswer::Read(found(stamp(1, 2), Version::new("0"))));
    assert_eq!(hand.effects[0], event(RegistrationEvent::Mended));
    assert!(hand.asked().is_some(), "the write has not landed: once more, at once");
}

#[test]
fn a_look_of_a_whole_heartbeat_ago_is_still_fresh() {
    let mut hand = Hand::registered();
    hand.tell(5000, Input::Wake);
    hand.answer(5000, written(WriteAnswer::Unknown));
    hand.tell(5625, STOP);
    hand.answer(5625 + HEARTBEAT_MS, DocumentAnswer::Read(found(stamp(1, 3), Version::new("2"))));
    assert_eq!(hand.request(), DocumentRequest::Remove);
}

/// Three processes under one id, links that fail at random, writes that land late. At most one may believe to have the id
/// while all of them see the store; and in the end exactly one has it.
#[test]
fn no_schedule_lets_two_keep_one_id() {
    let mut ends = 0;
    for seed in 0..400 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut store = Store::default();
        let mut workers: Vec<Worker> = (1..=3).map(Worker::new).collect();
        let starts: Vec<u64> = workers.iter().map(|_| rng.random_range(0..20_000) / 10 * 10).collect();
        for now in (0..200_000).step_by(10) {
            for (worker, start) in workers.iter_mut().zip(&starts) {
                if now < 100_000 && rng.random_range(0..400) == 0 {
                    worker.link = [Link::Up, Link::Up, Link::Mute, Link::Down][rng.random_range(0..4)];
                }
                if now == 100_000 {
                    worker.link = Link::Up;
                }
                if now == *start {
                    worker.feed(now, START, &mut store);
                }
                // A write whose answer was lost may land a second time later, on the same condition.
                if worker.link == Link::Mute && rng.random_range(0..50) == 0 {
                    let last = worker.requests.last().cloned();
                    if let Some((at, DocumentRequest::Write { stamp, expect, .. })) = last {
                        worker.late.push((at + 3000, stamp, expect));
                    }
                }
                for (at, stamp, expect) in std::mem::take(&mut worker.late) {
                    if at > now {
                        worker.late.push((at, stamp, expect));
                    } else {
                        store.write(stamp, &expect);
                    }
                }
                worker.tick(now, &mut store);
            }
        }
        let keeps: Vec<u64> =
            workers.iter().filter(|worker| worker.end.is_none()).map(|w| w.incarnation.0).collect();
        assert!(keeps.len() == 1, "seed {seed}: {keeps:?} believe to have the id");
        ends += workers.iter().filter(|worker| worker.end.is_some()).count();
    }
    assert_eq!(ends, 800);
}
