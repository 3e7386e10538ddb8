//! Two leaders, one after the other, and a guest share one document on a store that loses, delays and repeats. Each adds
//! words to the body; nobody may lose a word that was confirmed.

use super::{RETRY, rules};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use tenure_core::document::{
    Document, DocumentAnswer, DocumentRequest, Read, Rules, Stamp, State, What, Writer,
};
use tenure_core::machine::{Request, RequestId};
use tenure_core::{Epoch, Expect, Incarnation, Time, Version, WriteAnswer};

type Words = BTreeSet<u64>;

/// A write that was given up and may land later.
struct Late {
    writer: usize,
    stamp: Stamp,
    body: Words,
    expect: Expect,
}

#[derive(Default)]
struct Store {
    object: Option<(Stamp, Words, Version)>,
    versions: u64,
    late: Vec<Late>,
    /// The nonces of all writes that ever landed.
    landed: Vec<Stamp>,
}

impl Store {
    fn expected(&self) -> Expect {
        self.object.as_ref().map_or(Expect::Absent, |(.., version)| Expect::Version(version.clone()))
    }

    fn put(&mut self, stamp: Stamp, body: Words, expect: &Expect) -> WriteAnswer {
        if self.expected() != *expect {
            return WriteAnswer::Lost;
        }
        self.versions += 1;
        let version = Version::new(&self.versions.to_string());
        self.object = Some((stamp, body, version.clone()));
        self.landed.push(stamp);
        WriteAnswer::Won(version)
    }

    fn read(&self, unless: Option<&Version>) -> Read<Words> {
        match &self.object {
            None => Read::Absent,
            Some((.., version)) if unless == Some(version) => Read::Unchanged,
            Some((stamp, body, version)) => {
                Read::Found { stamp: *stamp, body: body.clone(), version: version.clone() }
            }
        }
    }
}

struct Client {
    document: Document,
    epoch: Option<Epoch>,
    /// What it wants to stand there: what it read last, and its own words.
    words: Words,
    own: Vec<(u64, u64)>,
    open: Option<(RequestId, DocumentRequest<Words>)>,
    alive: bool,
    was_owner: bool,
}

struct World {
    rng: ChaCha8Rng,
    now: Time,
    store: Store,
    clients: Vec<Client>,
    requests: u64,
    violations: Vec<String>,
}

/// Plays one schedule and returns what went wrong.
fn run(seed: u64) -> Vec<String> {
    let mut world = World {
        rng: ChaCha8Rng::seed_from_u64(seed),
        now: Time(0),
        store: Store::default(),
        clients: Vec::new(),
        requests: 0,
        violations: Vec::new(),
    };
    world.clients.push(client(1, Some(Epoch(1))));
    world.clients.push(client(2, None));
    for step in 0..160 {
        if step == 40 {
            world.clients.push(client(3, Some(Epoch(2))));
        }
        world.step(step < 100);
    }
    for _ in 0..200 {
        world.step(false);
    }
    world.judge_the_end();
    world.violations
}

fn client(me: u64, epoch: Option<Epoch>) -> Client {
    let me = Incarnation(me);
    let rules = match epoch {
        Some(epoch) => rules(Writer::Owner { epoch, me }),
        None => Rules { adopt: false, ..rules(Writer::Guest { me }) },
    };
    Client {
        document: Document::new(rules),
        epoch,
        words: Words::new(),
        own: Vec::new(),
        open: None,
        alive: true,
        was_owner: false,
    }
}

impl World {
    fn step(&mut self, faults: bool) {
        self.now = self.now + self.rng.random_range(1..RETRY.first_ms);
        if faults && self.rng.random_bool(0.1) && !self.store.late.is_empty() {
            let late = self.store.late.remove(self.rng.random_range(0..self.store.late.len()));
            self.land(late.writer, late.stamp, late.body, &late.expect);
        }
        if !faults {
            for late in std::mem::take(&mut self.store.late) {
                self.land(late.writer, late.stamp, late.body, &late.expect);
            }
        }
        let who = self.rng.random_range(0..self.clients.len());
        if !self.clients[who].alive {
            return;
        }
        if faults && self.rng.random_bool(0.3) {
            let word = self.store.versions * 1_000 + self.now.0 % 1_000 + 1_000_000 * who as u64;
            let client = &mut self.clients[who];
            let revision = client.document.touch();
            client.words.insert(word);
            client.own.push((word, revision));
        }
        // Nobody tells it that somebody else has written, except its own refused writes, or a look.
        if faults && self.rng.random_bool(0.1) {
            self.clients[who].document.refresh();
        }
        match self.clients[who].open.take() {
            Some((id, request)) => self.answer(who, id, request, faults),
            None => self.send(who),
        }
    }

    fn send(&mut self, who: usize) {
        self.requests += 1;
        let id = RequestId(self.requests);
        let client = &mut self.clients[who];
        let words = client.words.clone();
        if let Some(op) = client.document.next(self.now, id, true) {
            client.open = Some((id, op.with(|| words)));
        }
    }

    fn answer(&mut self, who: usize, id: RequestId, request: DocumentRequest<Words>, faults: bool) {
        let unanswered = request.unanswered();
        let answer = match request {
            DocumentRequest::Read { .. } if faults && self.rng.random_bool(0.2) => unanswered,
            DocumentRequest::Read { unless } => DocumentAnswer::Read(self.store.read(unless.as_ref())),
            DocumentRequest::Remove => unreachable!("nobody removes here"),
            DocumentRequest::Write { stamp, body, expect } => {
                let fault = if faults { self.rng.random_range(0..10) } else { 9 };
                match fault {
                    0 => DocumentAnswer::Written(WriteAnswer::Unavailable),
                    1 => DocumentAnswer::Written(WriteAnswer::Denied),
                    2 => {
                        self.store.late.push(Late { writer: who, stamp, body, expect });
                        unanswered
                    }
                    3 => {
                        self.land(who, stamp, body, &expect);
                        unanswered
                    }
                    4 => unanswered,
                    // The store repeats a request by itself: the second delivery is refused.
                    5 => {
                        self.land(who, stamp, body, &expect);
                        DocumentAnswer::Written(WriteAnswer::Lost)
                    }
                    _ => DocumentAnswer::Written(self.land(who, stamp, body, &expect)),
                }
            }
        };
        self.settle(who, id, answer);
    }

    fn land(&mut self, who: usize, stamp: Stamp, body: Words, expect: &Expect) -> WriteAnswer {
        let before = self.store.object.as_ref().map(|(stamp, ..)| stamp.epoch);
        let answer = self.store.put(stamp, body, expect);
        if matches!(answer, WriteAnswer::Won(_)) {
            if before > Some(stamp.epoch) {
                self.violations.push(format!("epoch {before:?} was written over by {who}"));
            }
            let owners = self.clients.iter().filter(|client| client.was_owner);
            let newest = owners.filter_map(|client| client.epoch).max();
            if self.clients[who].epoch.is_some_and(|epoch| newest.is_some_and(|newest| epoch < newest)) {
                self.violations.push(format!("{who} wrote after a later leader owned it"));
            }
            if self.clients[who].document.is_certain() {
                self.violations.push(format!("{who} was certain, and a write of it landed"));
            }
        }
        answer
    }

    fn settle(&mut self, who: usize, id: RequestId, answer: DocumentAnswer<Words>) {
        let client = &mut self.clients[who];
        let (settled, body) = client.document.answered(self.now, id, answer);
        if let What::Superseded(_) = settled.what {
            client.alive = false;
        }
        if let Some(body) = body {
            client.words.extend(body);
        }
        if client.document.state() == State::Owned {
            client.was_owner = true;
        }
        if let What::Landed { .. } = settled.what
            && let Some(stamp) = client.document.stamp()
            && !self.store.landed.contains(&stamp)
        {
            self.violations.push(format!("{who} takes {stamp:?} for landed"));
        }
        if let What::Landed { revision } = settled.what {
            self.judge_confirmed(who, revision);
        }
    }

    /// What is confirmed stands on the store, for good.
    fn judge_confirmed(&mut self, who: usize, revision: u64) {
        let stands = self.store.object.as_ref().map(|(_, body, _)| body.clone()).unwrap_or_default();
        for (word, at) in &self.clients[who].own {
            if *at <= revision && !stands.contains(word) {
                self.violations.push(format!("{who} lost the confirmed word {word}"));
            }
        }
    }

    fn judge_the_end(&mut self) {
        for who in 0..self.clients.len() {
            let client = &self.clients[who];
            if !client.alive {
                continue;
            }
            let revision = client.document.revision();
            if client.epoch == Some(Epoch(1))
                && self.store.object.as_ref().is_some_and(|(s, ..)| s.epoch == Epoch(2))
            {
                continue;
            }
            if !client.document.is_confirmed(revision) {
                self.violations.push(format!("{who} never gets its words written"));
            }
            self.judge_confirmed(who, revision);
        }
    }
}

#[test]
fn documents_lose_no_confirmed_word() {
    for seed in 0..2_000 {
        let violations = run(seed);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    }
}

#[cfg(feature = "teeth")]
#[test]
fn every_broken_document_is_caught() {
    use tenure_core::Mutant;
    for mutant in Mutant::DOCUMENT {
        let caught = (0..2_000).find_map(|seed| {
            let violations = Mutant::with(Some(*mutant), || run(seed));
            violations.into_iter().next().map(|by| (seed, by))
        });
        let (seed, by) = caught.unwrap_or_else(|| panic!("{mutant:?} survived 2,000 schedules"));
        println!("{mutant:?}: caught at seed {seed} by: {by}");
    }
}
