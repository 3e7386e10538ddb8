//! A worker, told by hand what its inbox says.

use std::collections::BTreeSet;
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Stamp};
use tenure_core::machine::{Effect, In, Input, Machine, Now, Out};
use tenure_core::{
    Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerOutput, ClaimerRequest, Entry, EntryState,
    Epoch, Expect, InboxDoc, Incarnation, Nonce, Outcome, OutcomeKind, QueueName, RequestId, Serves, Time,
    Version, WriteAnswer,
};
use tenure_core::{JobId, KindName};

pub(crate) const ME: Incarnation = Incarnation(7);
pub(crate) const FORMER: Incarnation = Incarnation(6);
pub(crate) const SUCCESSOR: Incarnation = Incarnation(8);

pub(crate) struct Driver {
    pub(crate) core: Claimer,
    pub(crate) now: u64,
    /// What is under way: its number, and what a write would leave.
    pub(crate) open: Option<(RequestId, Option<(Stamp, InboxDoc)>)>,
    pub(crate) stamp: Stamp,
    pub(crate) inbox: InboxDoc,
    pub(crate) version: u64,
    pub(crate) requests: BTreeSet<RequestId>,
    pub(crate) nonces: BTreeSet<u64>,
}

pub(crate) fn config() -> ClaimerConfig {
    ClaimerConfig {
        incarnation: ME,
        concurrency: 2,
        serves: Arc::new(Serves::anything(3)),
        fast_ms: 100,
        slow_ms: 800,
        progress_ms: 800,
        linger_ms: 50,
    }
}

/// `t1/2`: the second dispatch of a job.
pub(crate) fn key(text: &str) -> (JobId, u32) {
    let (id, dispatch) = text.split_once('/').expect("id/dispatch");
    (JobId::new(id).expect("valid"), dispatch.parse().expect("a number"))
}

pub(crate) fn entry(name: &str, state: EntryState) -> Entry {
    let (id, dispatch) = key(name);
    Entry {
        id,
        dispatch,
        attempt: dispatch,
        epoch: Epoch(3),
        dispatched_at: 0,
        queue: QueueName::default(),
        kind: KindName::new("k").expect("valid"),
        payload: Arc::from(*b"x"),
        timeout_ms: 1000,
        state,
        cancel: false,
        progress: None,
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
    format!("{}/{} {state}", entry.id, entry.dispatch)
}

pub(crate) fn read_answer(id: RequestId, read: Read<InboxDoc>) -> In<Claimer> {
    Input::Answer(id, ClaimerAnswer::Inbox(DocumentAnswer::Read(read), BTreeSet::new()))
}

pub(crate) fn write_answer(id: RequestId, answer: WriteAnswer) -> In<Claimer> {
    Input::Answer(id, ClaimerAnswer::Inbox(DocumentAnswer::Written(answer), BTreeSet::new()))
}

pub(crate) fn unreadable() -> Read<InboxDoc> {
    Read::Unreadable { version: Version::new("x"), newer: false }
}

impl Driver {
    pub(crate) fn new(config: ClaimerConfig) -> Driver {
        let nonce = Nonce { incarnation: Incarnation(1), sequence: 1 };
        let stamp = Stamp { epoch: Epoch(3), owner: Incarnation(1), nonce };
        let inbox = InboxDoc { serves: Some((ME, Arc::clone(&config.serves))), ..InboxDoc::default() };
        let core = Claimer::new(config);
        let (requests, nonces) = (BTreeSet::new(), BTreeSet::new());
        Driver { core, now: 0, open: None, stamp, inbox, version: 1, requests, nonces }
    }

    pub(crate) fn tell(&mut self, now: u64, input: In<Claimer>) -> Vec<String> {
        assert!(now >= self.now, "time goes on");
        self.now = now;
        let mut out = Vec::new();
        self.core.handle(Now { at: Time(now), wall_ms: 0 }, input, &mut out);
        assert!(self.core.wake_at().is_none_or(|at| at > Time(now)), "woken in vain");
        out.into_iter().map(|effect| self.note(effect)).collect()
    }

    pub(crate) fn note(&mut self, effect: Out<Claimer>) -> String {
        match effect {
            Effect::Request(id, request) => {
                assert!(self.requests.insert(id), "{id:?} again");
                let (words, write) = self.asked(request);
                assert!(self.open.replace((id, write)).is_none(), "one at a time");
                words
            }
            Effect::Output(ClaimerOutput::Run { id, dispatch, epoch, kind, payload, timeout_ms, .. }) => {
                assert_eq!((epoch, kind.as_str(), &*payload, timeout_ms), (Epoch(3), "k", &b"x"[..], 1000));
                format!("run {id}/{dispatch}")
            }
            Effect::Output(ClaimerOutput::Cancel { id, dispatch, dropped: false }) => {
                format!("call off {id}/{dispatch}")
            }
            Effect::Output(ClaimerOutput::Cancel { id, dispatch, dropped: true }) => {
                format!("drop {id}/{dispatch}")
            }
            Effect::Output(ClaimerOutput::Drained) => "drained".to_owned(),
        }
    }

    fn asked(&mut self, request: ClaimerRequest) -> (String, Option<(Stamp, InboxDoc)>) {
        match request {
            ClaimerRequest::Confirm => ("confirm".to_owned(), None),
            ClaimerRequest::Inbox(DocumentRequest::Read { unless }, _) => {
                let unless = unless.map(|version| format!(" unless {}", version.as_str()));
                (format!("read{}", unless.unwrap_or_default()), None)
            }
            ClaimerRequest::Inbox(DocumentRequest::Write { stamp, body, expect }, _) => {
                let over = match expect {
                    Expect::Version(version) => {
                        let owner = (self.stamp.epoch, self.stamp.owner);
                        assert_eq!((stamp.epoch, stamp.owner), owner, "it is not its own");
                        format!("over {}", version.as_str())
                    }
                    Expect::Absent => "new".to_owned(),
                };
                assert!(self.nonces.insert(stamp.nonce.sequence) && stamp.nonce.incarnation == ME);
                let entries: Vec<String> = body.entries.iter().map(shown).collect();
                let closed = if body.closed == Some(ME) { " closed" } else { "" };
                let words = format!("write {over}: {}{closed}", entries.join(", "));
                (words, Some((stamp, body)))
            }
            ClaimerRequest::Inbox(DocumentRequest::Remove, _) => panic!("it removes nothing"),
        }
    }

    pub(crate) fn look(&mut self, now: u64) -> Vec<String> {
        self.tell(now, Input::Command(ClaimerCommand::Look))
    }

    pub(crate) fn drain(&mut self, now: u64) -> Vec<String> {
        self.tell(now, Input::Command(ClaimerCommand::Drain))
    }

    pub(crate) fn wake(&mut self, now: u64) -> Vec<String> {
        self.tell(now, Input::Wake)
    }

    /// When it wants to be woken.
    pub(crate) fn at(&self) -> Option<u64> {
        self.core.wake_at().map(|at| at.0)
    }

    pub(crate) fn read(&mut self, now: u64, read: Read<InboxDoc>) -> Vec<String> {
        let (id, write) = self.open.take().expect("something was asked for");
        assert!(write.is_none(), "it was a write");
        self.tell(now, read_answer(id, read))
    }

    /// The inbox is as the leader has just left it.
    pub(crate) fn found(&mut self, now: u64, entries: Vec<Entry>) -> Vec<String> {
        self.found_fenced(now, entries, &[])
    }

    pub(crate) fn found_fenced(&mut self, now: u64, entries: Vec<Entry>, fenced: &[&str]) -> Vec<String> {
        self.version += 1;
        self.inbox.entries = entries;
        self.stamp.nonce.sequence += 1000;
        let refused =
            fenced.iter().map(|name| key(name)).map(|(id, dispatch)| (id, dispatch, Epoch(3))).collect();
        let (id, write) = self.open.take().expect("something was asked for");
        assert!(write.is_none(), "it was a write");
        let read = self.stands();
        self.tell(now, Input::Answer(id, ClaimerAnswer::Inbox(DocumentAnswer::Read(read), refused)))
    }

    pub(crate) fn stands(&self) -> Read<InboxDoc> {
        let version = Version::new(&self.version.to_string());
        Read::Found { stamp: self.stamp, body: self.inbox.clone(), version }
    }

    pub(crate) fn written(&mut self, now: u64, answer: WriteAnswer) -> Vec<String> {
        let (id, write) = self.open.take().expect("something was asked for");
        assert!(write.is_some(), "it was a read");
        self.tell(now, write_answer(id, answer))
    }

    /// Whose the id is now.
    pub(crate) fn confirmed(&mut self, now: u64, mine: bool) -> Vec<String> {
        let (id, _) = self.open.take().expect("something was asked for");
        self.tell(now, Input::Answer(id, ClaimerAnswer::Confirmed(mine)))
    }

    /// The write under way succeeds.
    pub(crate) fn won(&mut self, now: u64) -> Vec<String> {
        self.version += 1;
        (self.stamp, self.inbox) = self.open.as_ref().and_then(|(_, doc)| doc.clone()).expect("a write");
        let version = Version::new(&self.version.to_string());
        self.written(now, WriteAnswer::Won(version))
    }

    pub(crate) fn ended(&mut self, now: u64, name: &str, kind: OutcomeKind) -> Vec<String> {
        let (id, dispatch) = key(name);
        let outcome = Outcome::bare(kind);
        self.tell(now, Input::Command(ClaimerCommand::Ended { id, dispatch, outcome }))
    }

    /// One that has claimed these and, as far as there is room, runs them.
    pub(crate) fn busy(now: u64, names: &[&str]) -> Driver {
        let mut driver = Driver::new(config());
        assert_eq!(driver.wake(now), ["read"]);
        driver.found(now, new(names));
        driver.won(now);
        driver
    }
}
