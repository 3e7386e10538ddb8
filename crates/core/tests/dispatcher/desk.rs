//! A leader's desk: one dispatcher, told by hand, and a store that does what it is told. What comes of an input is told in
//! words, one for each effect, so that a test reads like the story it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::WorkerId;
use tenure_core::{
    DispatchEffect, DispatchInput, DispatchRequest, Dispatcher, DispatcherConfig, Entry, EntryState, Epoch,
    Expect, InboxDoc, InboxListed, InboxRead, Incarnation, JobLimits, JobRecord, JobState, LedgerDoc,
    LedgerRead, Nonce, Outcome, OutcomeKind, RequestId, Time, Version, WriteAnswer,
};

pub(crate) const ME: Incarnation = Incarnation(7);
pub(crate) const FORMER: Incarnation = Incarnation(3);
/// The life of every worker.
pub(crate) const LIFE: Incarnation = Incarnation(50);

pub(crate) fn name<T: std::str::FromStr<Err = tenure_core::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

pub(crate) fn config() -> DispatcherConfig {
    DispatcherConfig {
        incarnation: ME,
        epoch: Epoch(2),
        shards: 1,
        entries_max: 4,
        fast_ms: 100,
        slow_ms: 1000,
        claim_timeout_ms: 3000,
        margin_ms: 500,
        retire_ms: 5000,
        keep_finished: 2,
    }
}

pub(crate) fn job(id: &str) -> JobRecord {
    JobRecord {
        id: name(id),
        series: name("s"),
        watermark: 0,
        kind: name("k"),
        payload: Arc::from(*b"x"),
        limits: JobLimits {
            timeout_ms: 2000,
            ttl_ms: 60_000,
            deadline_ms: 0,
            attempts_max: 1,
            backoff_ms: 100,
        },
        target: None,
        state: JobState::Queued,
        attempt: 0,
        unbegun: 0,
        worker: None,
        epoch: Epoch(0),
        cancel: false,
        given_up: false,
        reason: Arc::from(""),
        result: Arc::from([]),
        late: Vec::new(),
    }
}

/// A job as a former leader left it, out at a worker.
pub(crate) fn out(id: &str, worker: &str, state: JobState) -> JobRecord {
    JobRecord { state, attempt: 1, worker: Some(name(worker)), epoch: Epoch(1), ..job(id) }
}

/// `t1/2`: the second attempt of a job.
pub(crate) fn entry(attempt: &str, state: EntryState) -> Entry {
    let (id, attempt) = attempt.split_once('/').expect("id/attempt");
    let payload = if matches!(state, EntryState::Finished { .. }) { &b""[..] } else { b"x" };
    Entry {
        id: name(id),
        attempt: attempt.parse().expect("a number"),
        epoch: Epoch(1),
        dispatched_at: 0,
        kind: name("k"),
        payload: Arc::from(payload),
        timeout_ms: 2000,
        state,
        cancel: false,
    }
}

pub(crate) fn done(kind: OutcomeKind) -> EntryState {
    EntryState::Finished { outcome: Outcome { kind, result: Arc::from(*b"r") } }
}

pub(crate) fn ledger(jobs: Vec<JobRecord>) -> LedgerDoc {
    let nonce = Nonce { incarnation: FORMER, sequence: 1 };
    LedgerDoc { epoch: Epoch(1), nonce, series: Vec::new(), jobs }
}

pub(crate) fn inbox(entries: Vec<Entry>) -> InboxDoc {
    let nonce = Nonce { incarnation: FORMER, sequence: 1 };
    InboxDoc { epoch: Epoch(1), leader: FORMER, nonce, closed: None, entries }
}

fn record_words(record: &JobRecord) -> String {
    let at = record.worker.as_ref().map(|worker| format!(" {worker}/{}", record.attempt));
    let cancel = if record.cancel { " to be called off" } else { "" };
    format!("{} {}{}{cancel}", record.id, record.state.as_str(), at.unwrap_or_default())
}

fn entry_words(entry: &Entry) -> String {
    let state = match &entry.state {
        EntryState::Dispatched => format!("dispatched e{}", entry.epoch.0),
        EntryState::Acked { .. } => "acked".to_owned(),
        EntryState::Running { .. } => "running".to_owned(),
        EntryState::Finished { outcome } => outcome.kind.as_str().to_owned(),
    };
    format!("{}/{} {state}{}", entry.id, entry.attempt, if entry.cancel { " called off" } else { "" })
}

fn request_words(request: &DispatchRequest) -> String {
    let over = |expect: &Expect| match expect {
        Expect::Absent => "new".to_owned(),
        Expect::Version(version) => format!("over {}", version.as_str()),
    };
    match request {
        DispatchRequest::ReadLedger(shard) => format!("read ledger {shard}"),
        DispatchRequest::WriteLedger(shard, doc, expect) => {
            let jobs: Vec<String> = doc.jobs.iter().map(record_words).collect();
            format!("write ledger {shard} {}: {}", over(expect), jobs.join(", "))
        }
        DispatchRequest::ListInboxes => "list".to_owned(),
        DispatchRequest::ReadInbox(worker, None) => format!("read {worker}"),
        DispatchRequest::ReadInbox(worker, Some(version)) => {
            format!("read {worker} unless {}", version.as_str())
        }
        DispatchRequest::WriteInbox(worker, doc, expect) => {
            let entries: Vec<String> = doc.entries.iter().map(entry_words).collect();
            format!("write {worker} {}: {}", over(expect), entries.join(", "))
        }
        DispatchRequest::RemoveInbox(worker) => format!("remove {worker}"),
        DispatchRequest::Archive(shard, records) => {
            let ids: Vec<&str> = records.iter().map(|record| record.id.as_str()).collect();
            format!("archive {shard}: {}", ids.join(", "))
        }
    }
}

/// A dispatcher, what it waits for, and what stands on the store.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) core: Dispatcher,
    config: DispatcherConfig,
    pub(crate) now: u64,
    pub(crate) open: Vec<(RequestId, DispatchRequest)>,
    pub(crate) ledgers: BTreeMap<usize, (LedgerDoc, u64)>,
    pub(crate) inboxes: BTreeMap<WorkerId, (InboxDoc, u64)>,
    pub(crate) versions: u64,
    requests: BTreeSet<RequestId>,
    nonces: BTreeSet<u64>,
    tokens: u64,
    /// Whether the index is held to what a search says, after every step.
    pub(crate) index_is_whole: bool,
}

impl Desk {
    pub(crate) fn new(config: DispatcherConfig) -> Desk {
        Desk {
            core: Dispatcher::new(config.clone()),
            config,
            now: 1000,
            open: Vec::new(),
            ledgers: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            versions: 0,
            requests: BTreeSet::new(),
            nonces: BTreeSet::new(),
            tokens: 0,
            index_is_whole: true,
        }
    }

    /// One that owns an empty ledger and knows two workers, w1 and w2, both active.
    pub(crate) fn ready(config: DispatcherConfig) -> Desk {
        let mut desk = Desk::new(config);
        desk.workers(1000, &["w1", "w2"]);
        desk.serve();
        assert!(desk.core.is_ready());
        desk
    }

    /// One that succeeds somebody who left this behind.
    pub(crate) fn after(jobs: Vec<JobRecord>, inboxes: Vec<(&str, InboxDoc)>) -> Desk {
        let mut desk = Desk::new(config());
        desk.left(jobs, inboxes);
        desk.workers(1000, &["w1", "w2"]);
        desk
    }

    pub(crate) fn left(&mut self, jobs: Vec<JobRecord>, inboxes: Vec<(&str, InboxDoc)>) {
        self.versions += 1;
        self.ledgers.insert(0, (ledger(jobs), self.versions));
        for (worker, doc) in inboxes {
            self.versions += 1;
            self.inboxes.insert(name(worker), (doc, self.versions));
        }
    }

    pub(crate) fn tell(&mut self, now: u64, input: DispatchInput) -> Vec<String> {
        assert!(now >= self.now, "time goes on");
        self.now = now;
        self.core.handle(Time(now), input);
        self.advance()
    }

    fn advance(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        self.core.advance(Time(self.now), self.now as i64, &mut out);
        if self.index_is_whole {
            assert_eq!(self.core.table_fault(Time(self.now)), None);
        }
        assert!(self.core.wake_at(Time(self.now)).is_none_or(|at| at > Time(self.now)), "woken in vain");
        out.into_iter().map(|effect| self.note(effect)).collect()
    }

    fn note(&mut self, effect: DispatchEffect) -> String {
        match effect {
            DispatchEffect::Request(id, request) => {
                assert!(self.requests.insert(id), "{id:?} again");
                let words = request_words(&request);
                match &request {
                    DispatchRequest::WriteLedger(_, doc, _) => {
                        assert!(self.nonces.insert(doc.nonce.sequence), "{:?} again", doc.nonce);
                        assert_eq!((doc.epoch, doc.nonce.incarnation), (self.config.epoch, ME));
                    }
                    DispatchRequest::WriteInbox(_, doc, _) => {
                        assert!(self.nonces.insert(doc.nonce.sequence), "{:?} again", doc.nonce);
                        assert_eq!(
                            (doc.epoch, doc.leader, doc.nonce.incarnation),
                            (self.config.epoch, ME, ME)
                        );
                    }
                    DispatchRequest::ReadLedger(_)
                    | DispatchRequest::ListInboxes
                    | DispatchRequest::ReadInbox(..)
                    | DispatchRequest::RemoveInbox(_)
                    | DispatchRequest::Archive(..) => {}
                }
                self.open.push((id, request));
                words
            }
            DispatchEffect::Answered(token, answer) => format!("#{token} {answer:?}"),
            DispatchEffect::Update(update) => match update.late {
                Some(kind) => {
                    let worker = update.worker.expect("somebody was late");
                    format!("= late {} of {}/{} from {worker}", kind.as_str(), update.id, update.attempt)
                }
                None => {
                    let at = update.worker.map(|worker| format!(" {worker}/{}", update.attempt));
                    format!("= {} {}{}", update.id, update.state.as_str(), at.unwrap_or_default())
                }
            },
            DispatchEffect::Ended(_) => "ended".to_owned(),
        }
    }

    pub(crate) fn wake(&mut self, now: u64) -> Vec<String> {
        self.tell(now, DispatchInput::Wake)
    }

    /// When it wants to be woken.
    pub(crate) fn at(&self) -> Option<u64> {
        self.core.wake_at(Time(self.now)).map(|at| at.0)
    }

    // ---- the store ----

    /// What is under way and begins with these words.
    pub(crate) fn take(&mut self, words: &str) -> (RequestId, DispatchRequest) {
        let found = self.open.iter().position(|(_, request)| request_words(request).starts_with(words));
        let found = found.unwrap_or_else(|| panic!("no {words:?} in {:?}", self.open));
        self.open.remove(found)
    }

    /// A write is answered with this, and did not happen.
    pub(crate) fn written(&mut self, words: &str, answer: WriteAnswer) -> Vec<String> {
        let (id, request) = self.take(words);
        let input = match request {
            DispatchRequest::WriteLedger(shard, ..) => DispatchInput::LedgerWritten(id, shard, answer),
            DispatchRequest::WriteInbox(worker, ..) => DispatchInput::InboxWritten(id, worker, answer),
            DispatchRequest::ReadLedger(_)
            | DispatchRequest::ListInboxes
            | DispatchRequest::ReadInbox(..)
            | DispatchRequest::RemoveInbox(_)
            | DispatchRequest::Archive(..) => panic!("{words:?} is no write"),
        };
        self.tell(self.now, input)
    }

    pub(crate) fn ledger_read(&mut self, read: LedgerRead) -> Vec<String> {
        let (id, request) = self.take("read ledger");
        let DispatchRequest::ReadLedger(shard) = request else { panic!("{request:?}") };
        self.tell(self.now, DispatchInput::Ledger(id, shard, read))
    }

    pub(crate) fn inbox_read(&mut self, worker: &str, read: InboxRead) -> Vec<String> {
        let (id, _) = self.take(&format!("read {worker}"));
        self.tell(self.now, DispatchInput::Inbox(id, name(worker), read))
    }

    /// Nobody answers this.
    pub(crate) fn unanswered(&mut self, words: &str) -> Vec<String> {
        let (id, request) = self.take(words);
        self.tell(self.now, request.unanswered(id))
    }

    /// Answers what begins with these words as the store would.
    pub(crate) fn answer(&mut self, words: &str) -> Vec<String> {
        let (id, request) = self.take(words);
        let input = self.outcome(id, request);
        self.tell(self.now, input)
    }

    fn version(number: u64) -> Version {
        Version::new(&number.to_string())
    }

    fn holds(expect: &Expect, number: Option<u64>) -> bool {
        match expect {
            Expect::Absent => number.is_none(),
            Expect::Version(version) => number.map(Desk::version).as_ref() == Some(version),
        }
    }

    fn outcome(&mut self, id: RequestId, request: DispatchRequest) -> DispatchInput {
        match request {
            DispatchRequest::ReadLedger(shard) => {
                let read = match self.ledgers.get(&shard) {
                    Some((doc, number)) => LedgerRead::Found(doc.clone(), Desk::version(*number)),
                    None => LedgerRead::Absent,
                };
                DispatchInput::Ledger(id, shard, read)
            }
            DispatchRequest::WriteLedger(shard, doc, expect) => {
                let holds = Desk::holds(&expect, self.ledgers.get(&shard).map(|(_, number)| *number));
                let answer = self.won(holds);
                if holds {
                    self.ledgers.insert(shard, (doc, self.versions));
                }
                DispatchInput::LedgerWritten(id, shard, answer)
            }
            DispatchRequest::ListInboxes => DispatchInput::Listed(id, Some(self.lines())),
            DispatchRequest::ReadInbox(worker, unless) => {
                let read = match self.inboxes.get(&worker) {
                    Some((_, number)) if unless == Some(Desk::version(*number)) => InboxRead::Unchanged,
                    Some((doc, number)) => InboxRead::Found(doc.clone(), Desk::version(*number)),
                    None => InboxRead::Absent,
                };
                DispatchInput::Inbox(id, worker, read)
            }
            DispatchRequest::WriteInbox(worker, doc, expect) => {
                let holds = Desk::holds(&expect, self.inboxes.get(&worker).map(|(_, number)| *number));
                let answer = self.won(holds);
                if holds {
                    self.inboxes.insert(worker.clone(), (doc, self.versions));
                }
                DispatchInput::InboxWritten(id, worker, answer)
            }
            DispatchRequest::RemoveInbox(worker) => {
                self.inboxes.remove(&worker);
                DispatchInput::InboxRemoved(id, worker, true)
            }
            DispatchRequest::Archive(shard, _) => DispatchInput::Archived(id, shard, true),
        }
    }

    fn won(&mut self, holds: bool) -> WriteAnswer {
        self.versions += u64::from(holds);
        if holds { WriteAnswer::Won(Desk::version(self.versions)) } else { WriteAnswer::Lost }
    }

    pub(crate) fn lines(&self) -> Vec<InboxListed> {
        let line = |(worker, (_, number)): (&WorkerId, &(InboxDoc, u64))| InboxListed {
            worker: worker.clone(),
            version: Some(Desk::version(*number)),
            stamp: (*number, 0),
        };
        self.inboxes.iter().map(line).collect()
    }

    /// Answers everything, and what is asked for then, until nothing is.
    pub(crate) fn serve(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while !self.open.is_empty() {
            let (id, request) = self.open.remove(0);
            let input = self.outcome(id, request);
            said.extend(self.tell(self.now, input));
            assert!(said.len() < 500, "it never rests: {said:#?}");
        }
        said
    }

    /// An input, and everything that follows from it.
    pub(crate) fn all(&mut self, now: u64, input: DispatchInput) -> Vec<String> {
        let mut said = self.tell(now, input);
        said.extend(self.serve());
        said
    }

    /// Lets time pass, woken when it asked to be and at no other time: what it did, and when. A `.` is for nothing.
    pub(crate) fn pass(&mut self, until: u64) -> Vec<String> {
        let mut story = Vec::new();
        while let Some(at) = self.at().filter(|at| *at <= until) {
            let mut early = self.clone();
            assert_eq!(early.wake(at - 1), [""; 0], "due before {at}, and nobody woke it");
            let said = self.all(at, DispatchInput::Wake);
            let said = if said.is_empty() { ".".to_owned() } else { said.join("; ") };
            story.push(format!("{at} {said}"));
            assert!(story.len() < 300, "it never rests: {story:#?}");
        }
        self.now = until;
        story
    }

    // ---- others ----

    /// The registry: these are active, `-w3` is silent, and there are no others.
    pub(crate) fn workers(&mut self, now: u64, names: &[&str]) -> Vec<String> {
        let list = names.iter().map(|text| match text.strip_prefix('-') {
            Some(silent) => (name(silent), false),
            None => (name(text), true),
        });
        let list = list.collect();
        self.tell(now, DispatchInput::Workers { list, listed: true, whole: true })
    }

    pub(crate) fn submit(&mut self, now: u64, records: Vec<JobRecord>) -> Vec<String> {
        let numbered = records.into_iter().map(|record| {
            self.tokens += 1;
            (self.tokens, record)
        });
        let numbered = numbered.collect();
        self.tell(now, DispatchInput::Submit(numbered))
    }

    pub(crate) fn assign(&mut self, now: u64, id: &str, worker: &str) -> Vec<String> {
        self.tell(now, DispatchInput::Assign { id: name(id), worker: name(worker) })
    }

    /// Submits, assigns, and serves: it stands in the inbox.
    pub(crate) fn dispatch(&mut self, now: u64, record: JobRecord, worker: &str) {
        let id = record.id.to_string();
        self.submit(now, vec![record]);
        self.serve();
        self.assign(now, &id, worker);
        self.serve();
        assert_eq!(self.state(&id), JobState::Dispatched);
    }

    /// A worker changes its inbox.
    pub(crate) fn work(&mut self, worker: &str, change: impl FnOnce(&mut InboxDoc)) {
        self.versions += 1;
        let (doc, number) = self.inboxes.get_mut(&name(worker)).expect("an inbox");
        doc.nonce = Nonce { incarnation: LIFE, sequence: self.versions };
        change(doc);
        *number = self.versions;
    }

    /// A worker says how far an attempt is.
    pub(crate) fn says(&mut self, worker: &str, attempt: &str, state: EntryState) {
        let new = entry(attempt, state);
        self.work(worker, |doc| {
            let old = doc.entries.iter_mut().find(|old| old.key() == new.key()).expect("it is there");
            (old.state, old.payload) = (new.state, new.payload);
        });
    }

    pub(crate) fn record(&self, id: &str) -> &JobRecord {
        self.core.jobs().find(|record| record.id.as_str() == id).unwrap_or_else(|| panic!("no {id}"))
    }

    pub(crate) fn state(&self, id: &str) -> JobState {
        self.record(id).state
    }
}

pub(crate) fn running() -> EntryState {
    EntryState::Running { by: LIFE }
}

pub(crate) fn acked() -> EntryState {
    EntryState::Acked { by: LIFE }
}

pub(crate) fn limited(id: &str, change: impl FnOnce(&mut JobLimits)) -> JobRecord {
    let mut record = job(id);
    change(&mut record.limits);
    record
}
