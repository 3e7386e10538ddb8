//! A worker, told by hand what its inbox says.

use std::collections::BTreeSet;
use std::sync::Arc;
use tenure_core::{
    Claimer, ClaimerConfig, ClaimerEffect, ClaimerInput, ClaimerRead, Entry, EntryState, Epoch, InboxDoc,
    Incarnation, Nonce, Outcome, OutcomeKind, RequestId, Time, Version, WriteAnswer,
};
use tenure_core::{JobId, KindName};

pub(crate) const ME: Incarnation = Incarnation(7);
pub(crate) const FORMER: Incarnation = Incarnation(6);
pub(crate) const SUCCESSOR: Incarnation = Incarnation(8);

/// A claimer, what it wants done, and the inbox as it stands.
pub(crate) struct Hand {
    pub(crate) core: Claimer,
    pub(crate) now: u64,
    /// What is under way: its number, and what a write would leave.
    pub(crate) open: Option<(RequestId, Option<InboxDoc>)>,
    pub(crate) inbox: InboxDoc,
    pub(crate) version: u64,
    pub(crate) requests: BTreeSet<RequestId>,
    pub(crate) nonces: BTreeSet<u64>,
}

pub(crate) fn config() -> ClaimerConfig {
    ClaimerConfig {
        incarnation: ME,
        concurrency: 2,
        claims_max: 3,
        fast_ms: 100,
        slow_ms: 800,
        linger_ms: 50,
    }
}

/// `t1/2`: the second attempt of a job.
pub(crate) fn key(text: &str) -> (JobId, u32) {
    let (id, attempt) = text.split_once('/').expect("id/attempt");
    (JobId::new(id).expect("valid"), attempt.parse().expect("a number"))
}

pub(crate) fn entry(name: &str, state: EntryState) -> Entry {
    let (id, attempt) = key(name);
    Entry {
        id,
        attempt,
        epoch: Epoch(3),
        dispatched_at: 0,
        kind: KindName::new("k").expect("valid"),
        payload: Arc::from(*b"x"),
        timeout_ms: 1000,
        state,
        cancel: false,
    }
}

pub(crate) fn new(names: &[&str]) -> Vec<Entry> {
    names.iter().map(|name| entry(name, EntryState::Dispatched)).collect()
}

pub(crate) fn shown(entry: &Entry) -> String {
    let by = |by: &Incarnation| if *by == ME { String::new() } else { format!(" by {by:?}") };
    let state = match &entry.state {
        EntryState::Dispatched => "dispatched".to_owned(),
        EntryState::Acked { by: life } => format!("acked{}", by(life)),
        EntryState::Running { by: life } => format!("running{}", by(life)),
        EntryState::Finished { outcome } => {
            assert!(entry.payload.is_empty(), "what is over needs no payload");
            outcome.kind.as_str().to_owned()
        }
    };
    format!("{}/{} {state}", entry.id, entry.attempt)
}

impl Hand {
    pub(crate) fn new(config: ClaimerConfig) -> Hand {
        let nonce = Nonce { incarnation: Incarnation(1), sequence: 1 };
        let inbox =
            InboxDoc { epoch: Epoch(3), leader: Incarnation(1), nonce, closed: None, entries: Vec::new() };
        let core = Claimer::new(config);
        let (requests, nonces) = (BTreeSet::new(), BTreeSet::new());
        Hand { core, now: 0, open: None, inbox, version: 1, requests, nonces }
    }

    pub(crate) fn tell(&mut self, now: u64, input: ClaimerInput) -> Vec<String> {
        assert!(now >= self.now, "time goes on");
        self.now = now;
        let mut out = Vec::new();
        self.core.handle(Time(now), input, &mut out);
        out.into_iter().map(|effect| self.note(effect)).collect()
    }

    pub(crate) fn note(&mut self, effect: ClaimerEffect) -> String {
        match effect {
            ClaimerEffect::Read(id, unless) => {
                assert!(self.requests.insert(id) && self.open.replace((id, None)).is_none(), "{id:?}");
                unless.map_or("read".to_owned(), |version| format!("read unless {}", version.as_str()))
            }
            ClaimerEffect::Write(id, doc, version) => {
                assert!(self.requests.insert(id), "{id:?} again");
                assert!(self.nonces.insert(doc.nonce.sequence) && doc.nonce.incarnation == ME, "{doc:?}");
                assert_eq!((doc.epoch, doc.leader), (self.inbox.epoch, self.inbox.leader), "not its own");
                let entries: Vec<String> = doc.entries.iter().map(shown).collect();
                let closed = if doc.closed == Some(ME) { " closed" } else { "" };
                assert!(self.open.replace((id, Some(doc))).is_none(), "one at a time");
                format!("write over {}: {}{closed}", version.as_str(), entries.join(", "))
            }
            ClaimerEffect::Confirm(id) => {
                assert!(self.requests.insert(id) && self.open.replace((id, None)).is_none(), "{id:?}");
                "confirm".to_owned()
            }
            ClaimerEffect::Run { id, attempt, epoch, kind, payload, timeout_ms } => {
                assert_eq!((epoch, kind.as_str(), &*payload, timeout_ms), (Epoch(3), "k", &b"x"[..], 1000));
                format!("run {id}/{attempt}")
            }
            ClaimerEffect::Cancel { id, attempt, dropped: false } => format!("call off {id}/{attempt}"),
            ClaimerEffect::Cancel { id, attempt, dropped: true } => format!("drop {id}/{attempt}"),
            ClaimerEffect::Drained => "drained".to_owned(),
        }
    }

    pub(crate) fn wake(&mut self, now: u64) -> Vec<String> {
        self.tell(now, ClaimerInput::Wake)
    }

    /// When it wants to be woken.
    pub(crate) fn at(&self) -> Option<u64> {
        self.core.wake_at(Time(self.now)).map(|at| at.0)
    }

    pub(crate) fn read(&mut self, now: u64, read: ClaimerRead) -> Vec<String> {
        let (id, write) = self.open.take().expect("something was asked for");
        assert!(write.is_none(), "it was a write");
        self.tell(now, ClaimerInput::Read(id, read))
    }

    /// The inbox is as the leader has just left it.
    pub(crate) fn found(&mut self, now: u64, entries: Vec<Entry>) -> Vec<String> {
        self.found_fenced(now, entries, &[])
    }

    pub(crate) fn found_fenced(&mut self, now: u64, entries: Vec<Entry>, fenced: &[&str]) -> Vec<String> {
        self.version += 1;
        self.inbox.entries = entries;
        self.inbox.nonce.sequence += 1000;
        let (doc, version) = (self.inbox.clone(), Version::new(&self.version.to_string()));
        let fenced = fenced.iter().map(|name| key(name)).collect();
        self.read(now, ClaimerRead::Found { doc, version, fenced })
    }

    pub(crate) fn written(&mut self, now: u64, answer: WriteAnswer) -> Vec<String> {
        let (id, write) = self.open.take().expect("something was asked for");
        assert!(write.is_some(), "it was a read");
        self.tell(now, ClaimerInput::Written(id, answer))
    }

    /// Whose the id is now.
    pub(crate) fn confirmed(&mut self, now: u64, mine: bool) -> Vec<String> {
        let (id, _) = self.open.take().expect("something was asked for");
        self.tell(now, ClaimerInput::Confirmed(id, mine))
    }

    /// The write under way succeeds.
    pub(crate) fn won(&mut self, now: u64) -> Vec<String> {
        self.version += 1;
        self.inbox = self.open.as_ref().and_then(|(_, doc)| doc.clone()).expect("a write");
        let version = Version::new(&self.version.to_string());
        self.written(now, WriteAnswer::Won(version))
    }

    pub(crate) fn ended(&mut self, now: u64, name: &str, kind: OutcomeKind) -> Vec<String> {
        let (id, attempt) = key(name);
        self.tell(now, ClaimerInput::Ended { id, attempt, outcome: Outcome::bare(kind) })
    }

    /// One that has claimed these and, as far as there is room, runs them.
    pub(crate) fn busy(now: u64, names: &[&str]) -> Hand {
        let mut hand = Hand::new(config());
        assert_eq!(hand.wake(now), ["read"]);
        hand.found(now, new(names));
        hand.won(now);
        hand
    }
}
