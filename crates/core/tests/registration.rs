//! A worker's registration against a store that loses answers, under every rival there can be.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tenure_core::{
    Expect, Incarnation, NodeId, Registration, RegistrationAnswer, RegistrationConfig, RegistrationEffect,
    RegistrationEnd, RegistrationEvent, RegistrationInput, RegistrationRequest, RemoveAnswer, RequestId,
    Time, Version, WorkerFound, WorkerRead, WriteAnswer,
};

const HEARTBEAT_MS: u64 = 5000;

fn pod() -> NodeId {
    NodeId::new("pod-x").expect("valid")
}

/// One worker's object.
#[derive(Default)]
struct Store {
    version: u64,
    object: Option<WorkerFound>,
    junk: bool,
}

impl Store {
    fn read(&self, unless: Option<&Version>) -> WorkerRead {
        match &self.object {
            _ if self.junk => WorkerRead::Unreadable,
            None => WorkerRead::Absent,
            Some(found) if Some(&found.version) == unless => WorkerRead::Unchanged,
            Some(found) => WorkerRead::Found(found.clone()),
        }
    }

    fn write(&mut self, incarnation: Incarnation, sequence: u64, expect: &Expect) -> WriteAnswer {
        let holds = match (expect, &self.object) {
            (Expect::Absent, object) => object.is_none() && !self.junk,
            (Expect::Version(version), object) => {
                object.as_ref().is_some_and(|found| found.version == *version) && !self.junk
            }
        };
        if !holds {
            return WriteAnswer::Lost;
        }
        self.version += 1;
        let version = Version::new(&self.version.to_string());
        self.object = Some(WorkerFound {
            version: version.clone(),
            incarnation,
            sequence,
            pod: pod(),
            heartbeat_ms: HEARTBEAT_MS,
        });
        WriteAnswer::Won(version)
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
    requests: Vec<(u64, RegistrationRequest)>,
    late: Vec<(u64, u64, Expect)>,
}

impl Worker {
    fn new(incarnation: u64) -> Worker {
        let incarnation = Incarnation(incarnation);
        let config = RegistrationConfig { heartbeat_ms: HEARTBEAT_MS, incarnation };
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

    fn feed(&mut self, now: u64, input: RegistrationInput, store: &mut Store) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.machine.handle(Time(now), input, &mut effects);
            for effect in effects {
                match effect {
                    RegistrationEffect::Request(id, request) => {
                        let answer = self.carry(now, &request, store);
                        inputs.push(RegistrationInput::Answer { id, answer });
                    }
                    RegistrationEffect::Emit(event) => self.told.push(event),
                    RegistrationEffect::Ended(end) => {
                        assert_eq!(self.end.replace(end), None, "it ends once");
                    }
                }
            }
        }
    }

    fn carry(&mut self, now: u64, request: &RegistrationRequest, store: &mut Store) -> RegistrationAnswer {
        self.requests.push((now, request.clone()));
        match (request, self.link) {
            (_, Link::Down) => match request {
                RegistrationRequest::Write { .. } => RegistrationAnswer::Written(WriteAnswer::Unavailable),
                RegistrationRequest::Read { .. } | RegistrationRequest::Remove => request.unanswered(),
            },
            (RegistrationRequest::Read { .. }, Link::Denied) => RegistrationAnswer::Read(WorkerRead::Denied),
            (RegistrationRequest::Read { unless }, _) => {
                RegistrationAnswer::Read(store.read(unless.as_ref()))
            }
            (RegistrationRequest::Write { .. }, Link::Denied) => {
                RegistrationAnswer::Written(WriteAnswer::Denied)
            }
            (RegistrationRequest::Write { sequence, expect }, link) => {
                let answer = store.write(self.incarnation, *sequence, expect);
                let answer = if link == Link::Mute { WriteAnswer::Unknown } else { answer };
                RegistrationAnswer::Written(answer)
            }
            (RegistrationRequest::Remove, Link::Denied) => RegistrationAnswer::Removed(RemoveAnswer::Failed),
            (RegistrationRequest::Remove, Link::Up | Link::Mute) => {
                store.object = None;
                RegistrationAnswer::Removed(RemoveAnswer::Done)
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
            self.feed(now, RegistrationInput::Wake, store);
        }
    }

    fn writes(&self) -> Vec<u64> {
        let writes = self.requests.iter().filter(|(_, r)| matches!(r, RegistrationRequest::Write { .. }));
        writes.map(|(at, _)| *at).collect()
    }

    fn holds(&self, store: &Store) -> bool {
        store.object.as_ref().is_some_and(|found| found.incarnation == self.incarnation)
    }
}

fn started(incarnation: u64, now: u64, store: &mut Store) -> Worker {
    let mut worker = Worker::new(incarnation);
    worker.feed(now, RegistrationInput::Start, store);
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
    worker.feed(20_000, RegistrationInput::Stop, &mut store);
    assert_eq!((worker.end, store.object), (Some(RegistrationEnd::Deregistered), None));
    assert_eq!(worker.requests[asked..], [(20_000, RegistrationRequest::Remove)], "its heartbeat is fresh");
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
    worker.feed(0, RegistrationInput::Start, &mut store);
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
    worker.feed(100, RegistrationInput::Stop, &mut store);
    worker.run(100, 60_000, &mut store);
    assert_eq!(worker.end, Some(RegistrationEnd::Deregistered));
    assert!(worker.requests.len() <= 7, "{:?}", worker.requests);
    let mut late = started(2, 0, &mut store);
    late.feed(10, RegistrationInput::Stop, &mut store);
    assert_eq!(late.end, Some(RegistrationEnd::Deregistered));
    assert!(store.object.is_some(), "it never had the id, so it removes nothing");
    let mut store = Store::default();
    let mut paused = started(3, 0, &mut store);
    let version = store.object.as_ref().expect("registered").version.clone();
    store.write(Incarnation(4), 1, &Expect::Version(version));
    paused.feed(60_000, RegistrationInput::Stop, &mut store);
    assert!(store.object.is_some(), "taken over meanwhile");
    let mut new = Worker::new(5);
    assert_eq!(new.machine.wake_at(), None, "it has not begun");
    new.feed(0, RegistrationInput::Stop, &mut store);
    assert_eq!((new.end, new.requests.len()), (Some(RegistrationEnd::Deregistered), 0));
}

/// Found by random schedules: a process that stood still took an answer of long ago for news, and removed the object of
/// whoever had the id by then.
#[test]
fn a_worker_that_stood_still_looks_again_before_it_removes_anything() {
    let mut worker = started(1, 0, &mut Store::default()).machine;
    let mut step = |now, input| {
        let mut effects = Vec::new();
        worker.handle(Time(now), input, &mut effects);
        effects
    };
    let own = |version: &str| WorkerFound {
        version: Version::new(version),
        incarnation: Incarnation(1),
        sequence: 2,
        pod: pod(),
        heartbeat_ms: HEARTBEAT_MS,
    };
    let asked = |effects: &[RegistrationEffect]| match effects {
        [RegistrationEffect::Request(id, request)] => (*id, request.clone()),
        other => panic!("one request, not {other:?}"),
    };
    let (beat, _) = asked(&step(5000, RegistrationInput::Wake));
    assert_eq!(step(5010, RegistrationInput::Stop), [], "the heartbeat is under way");
    // A minute passes before it hears of its heartbeat.
    let written = RegistrationAnswer::Written(WriteAnswer::Won(Version::new("2")));
    let (look, request) = asked(&step(65_000, RegistrationInput::Answer { id: beat, answer: written }));
    assert_eq!(request, RegistrationRequest::Read { unless: None }, "what was so a minute ago");
    // And another one before it hears what stands there.
    let read = RegistrationAnswer::Read(WorkerRead::Found(own("2")));
    let (look, request) = asked(&step(125_000, RegistrationInput::Answer { id: look, answer: read.clone() }));
    assert_eq!(request, RegistrationRequest::Read { unless: None }, "is not so for certain");
    let (_, request) = asked(&step(125_100, RegistrationInput::Answer { id: look, answer: read }));
    assert_eq!(request, RegistrationRequest::Remove);
}

/// Found by random schedules: the same, by way of a removal that failed and was heard of long after.
#[test]
fn a_worker_that_stood_still_looks_again_before_it_removes_once_more() {
    let mut store = Store::default();
    let mut worker = started(1, 0, &mut store).machine;
    let mut step = |now, input| {
        let mut effects = Vec::new();
        worker.handle(Time(now), input, &mut effects);
        match effects.as_slice() {
            [RegistrationEffect::Request(id, request)] => (*id, request.clone()),
            other => panic!("one request, not {other:?}"),
        }
    };
    let failed =
        |id| RegistrationInput::Answer { id, answer: RegistrationAnswer::Removed(RemoveAnswer::Failed) };
    let (id, request) = step(100, RegistrationInput::Stop);
    assert_eq!(request, RegistrationRequest::Remove, "it has just registered");
    let (id, request) = step(200, failed(id));
    assert_eq!(request, RegistrationRequest::Remove, "once more: it is still certain");
    let (id, request) = step(60_000, failed(id));
    assert_eq!(request, RegistrationRequest::Read { unless: None }, "a minute later it is not");
    let found = store.object.as_ref().expect("registered").clone();
    let read = RegistrationAnswer::Read(WorkerRead::Found(found));
    let (_, request) = step(60_100, RegistrationInput::Answer { id, answer: read });
    assert_eq!(request, RegistrationRequest::Remove);
}

#[test]
fn stale_answers_and_early_wakes_change_nothing() {
    let mut store = Store::default();
    let mut worker = started(1, 0, &mut store);
    let before = worker.machine.clone();
    worker.feed(1, RegistrationInput::Wake, &mut store);
    let answer = RegistrationAnswer::Read(WorkerRead::Absent);
    worker.feed(1, RegistrationInput::Answer { id: RequestId(77), answer }, &mut store);
    worker.feed(1, RegistrationInput::Start, &mut store);
    assert_eq!(worker.machine, before);
}

/// A registration told by hand.
struct Hand {
    machine: Registration,
    effects: Vec<RegistrationEffect>,
}

impl Hand {
    fn new() -> Hand {
        Hand { machine: Worker::new(1).machine, effects: Vec::new() }
    }

    fn tell(&mut self, now: u64, input: RegistrationInput) {
        self.effects.clear();
        self.machine.handle(Time(now), input, &mut self.effects);
    }

    fn asked(&self) -> Option<(RequestId, RegistrationRequest)> {
        self.effects.iter().find_map(|effect| match effect {
            RegistrationEffect::Request(id, request) => Some((*id, request.clone())),
            RegistrationEffect::Emit(_) | RegistrationEffect::Ended(_) => None,
        })
    }

    /// Answers what the last input made it ask.
    fn answer(&mut self, now: u64, answer: RegistrationAnswer) {
        let (id, _) = self.asked().expect("a request");
        self.tell(now, RegistrationInput::Answer { id, answer });
    }

    fn won(&mut self, now: u64) {
        self.answer(now, RegistrationAnswer::Written(WriteAnswer::Won(Version::new(&now.to_string()))));
    }
}

#[test]
fn the_cadence_begins_with_the_registration_and_a_slow_answer_does_not_shift_it() {
    let mut hand = Hand::new();
    hand.tell(0, RegistrationInput::Start);
    let (first, _) = hand.asked().expect("a look");
    hand.answer(100, RegistrationAnswer::Read(WorkerRead::Absent));
    let (second, write) = hand.asked().expect("a write");
    assert_eq!(write, RegistrationRequest::Write { sequence: 1, expect: Expect::Absent });
    assert_ne!(first, second, "an answer must be to one request only");
    assert_eq!(hand.machine.wake_at(), None, "it waits for an answer");
    hand.won(250);
    assert_eq!(hand.machine.wake_at(), Some(Time(5250)));
    for (beat, sequence) in [(5250, 2), (10_250, 3)] {
        hand.tell(beat, RegistrationInput::Wake);
        let Some((_, RegistrationRequest::Write { sequence: sent, .. })) = hand.asked() else { panic!() };
        assert_eq!(sent, sequence, "every write is another");
        hand.won(beat + 150);
        assert_eq!(hand.machine.wake_at(), Some(Time(beat + 5000)));
    }
}

#[test]
fn a_look_that_is_answered_mends_what_was_away() {
    let mut hand = Hand::new();
    hand.tell(0, RegistrationInput::Start);
    hand.answer(0, RegistrationAnswer::Read(WorkerRead::Absent));
    hand.won(0);
    hand.tell(5000, RegistrationInput::Wake);
    hand.answer(5000, RegistrationAnswer::Written(WriteAnswer::Unknown));
    assert_eq!(hand.effects, [RegistrationEffect::Emit(RegistrationEvent::Unavailable)]);
    assert_eq!(hand.machine.wake_at(), Some(Time(5625)), "an eighth of a heartbeat");
    hand.tell(5625, RegistrationInput::Wake);
    let own = WorkerFound {
        version: Version::new("0"),
        incarnation: Incarnation(1),
        sequence: 1,
        pod: pod(),
        heartbeat_ms: HEARTBEAT_MS,
    };
    hand.answer(5630, RegistrationAnswer::Read(WorkerRead::Found(own)));
    assert_eq!(hand.effects[0], RegistrationEffect::Emit(RegistrationEvent::Mended));
    assert!(hand.asked().is_some(), "the write has not landed: once more, at once");
}

#[test]
fn a_look_of_a_whole_heartbeat_ago_is_still_fresh() {
    let mut hand = Hand::new();
    hand.tell(0, RegistrationInput::Start);
    hand.answer(0, RegistrationAnswer::Read(WorkerRead::Absent));
    hand.won(0);
    hand.tell(5000, RegistrationInput::Wake);
    hand.answer(5000, RegistrationAnswer::Written(WriteAnswer::Unknown));
    hand.tell(5625, RegistrationInput::Stop);
    let own = WorkerFound {
        version: Version::new("2"),
        incarnation: Incarnation(1),
        sequence: 2,
        pod: pod(),
        heartbeat_ms: HEARTBEAT_MS,
    };
    hand.answer(5625 + HEARTBEAT_MS, RegistrationAnswer::Read(WorkerRead::Found(own)));
    assert_eq!(hand.asked().map(|(_, request)| request), Some(RegistrationRequest::Remove));
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
                    worker.feed(now, RegistrationInput::Start, &mut store);
                }
                // A write whose answer was lost may land a second time later, on the same condition.
                if worker.link == Link::Mute && rng.random_range(0..50) == 0 {
                    let last = worker.requests.last().cloned();
                    if let Some((at, RegistrationRequest::Write { sequence, expect })) = last {
                        worker.late.push((at + 3000, sequence, expect));
                    }
                }
                for (at, sequence, expect) in std::mem::take(&mut worker.late) {
                    if at > now {
                        worker.late.push((at, sequence, expect));
                    } else {
                        store.write(worker.incarnation, sequence, &expect);
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
