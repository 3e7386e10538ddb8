//! One dispatcher, fed by hand, and a store that does what it is told. What comes of an input is told in
//! words, one for each effect, so that a test reads like the story it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal, Stamp};
use tenure_core::machine::{Effect, In, Input, Machine, Now, Out, Request};
use tenure_core::{
    Assign, BatchedOrder, Candidates, DispatchAnswer, DispatchCommand, DispatchOutput, DispatchRequest,
    Dispatcher, DispatcherConfig, Entry, EntryState, Epoch, Expect, HistoryHead, HistoryLimits, HistoryPart,
    InboxDoc, InboxListed, Incarnation, JobId, JobLimits, JobRecord, JobState, Kept, LedgerDoc, Load,
    NoWorker, Nonce, Notice, NoticesDoc, Order, OrdersDoc, Outcome, OutcomeKind, RequestId, SeriesId, Serves,
    Time, Version, WorkerId, WriteAnswer,
};

pub(crate) const ME: Incarnation = Incarnation(7);
pub(crate) const FORMER: Incarnation = Incarnation(3);
/// The life of every worker.
pub(crate) const LIFE: Incarnation = Incarnation(50);

pub(crate) const HISTORY: HistoryLimits = HistoryLimits {
    parts: 2,
    delay_ms: 0,
    head_rows: 6,
    part_rows: 8,
    chunk_rows: 4,
    chunks: 500,
    retention_ms: 100_000,
};

pub(crate) fn name<T: std::str::FromStr<Err = tenure_core::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

/// Chooses whom it was told to choose, once, or the one it was told to choose for everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Told {
    always: Option<WorkerId>,
    choices: BTreeMap<JobId, Result<WorkerId, String>>,
    /// Which jobs it was asked about, and which workers' load it was told.
    pub(crate) asked: Vec<JobId>,
    pub(crate) loads: Vec<(WorkerId, Option<usize>)>,
    /// Set if it chooses as in production, by what workers say.
    candidates: Option<Candidates>,
}

impl Assign for Told {
    type Facts = (JobId, Result<WorkerId, String>);

    fn learn(&mut self, (id, choice): Self::Facts) {
        match choice {
            Ok(worker) if id.as_str() == "all" => self.always = Some(worker),
            choice => self.choices = [(id, choice)].into(),
        }
    }

    fn goes_by_inboxes(&self) -> bool {
        self.candidates.is_some()
    }

    fn worker(&mut self, worker: &WorkerId, now: Option<(Option<&Arc<Serves>>, Load)>) {
        let free = now.and_then(|(_, load)| match load {
            Load::Out(out) => Some(out),
            Load::NoRoom | Load::Draining => None,
        });
        self.loads.push((worker.clone(), free));
        if let Some(candidates) = &mut self.candidates {
            candidates.worker(worker, now);
        }
    }

    fn assign(&mut self, job: &JobRecord) -> Result<WorkerId, NoWorker> {
        self.asked.push(job.id.clone());
        if let Some(candidates) = &mut self.candidates {
            return candidates.assign(job);
        }
        let always = self.always.clone().ok_or_else(|| job.reason.to_string());
        let choice = self.choices.remove(&job.id).unwrap_or(always);
        choice.map_err(|reason| NoWorker { reason, later: true })
    }
}

pub(crate) type Core = Dispatcher<Told>;

pub(crate) fn assign(id: &str, worker: &str) -> In<Core> {
    Input::Command(DispatchCommand::Facts((name(id), Ok(name(worker)))))
}

pub(crate) fn explain(id: &str, reason: &str) -> In<Core> {
    Input::Command(DispatchCommand::Facts((name(id), Err(reason.to_owned()))))
}

pub(crate) fn cancel(id: &str) -> In<Core> {
    Input::Command(DispatchCommand::Cancel(name(id)))
}

pub(crate) fn list_answer(id: RequestId, lines: Option<Vec<InboxListed>>) -> In<Core> {
    Input::Answer(id, DispatchAnswer::Listed(lines))
}

pub(crate) fn ledger_answer(id: RequestId, part: usize, answer: DocumentAnswer<LedgerDoc>) -> In<Core> {
    Input::Answer(id, DispatchAnswer::Ledger(part, answer))
}

pub(crate) fn inbox_answer(id: RequestId, worker: &str, answer: DocumentAnswer<InboxDoc>) -> In<Core> {
    Input::Answer(id, DispatchAnswer::Inbox(name(worker), answer))
}

pub(crate) fn nonsense<T>() -> Read<T> {
    Read::Unreadable { version: Version::new("x"), newer: false }
}

#[derive(Clone, Debug)]
pub(crate) struct Stored<T> {
    pub(crate) stamp: Stamp,
    body: T,
}

impl<T> Deref for Stored<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

impl<T> DerefMut for Stored<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.body
    }
}

impl<T: Clone> Stored<T> {
    /// As a leader of this epoch left it.
    pub(crate) fn of(body: T, epoch: u64, owner: Incarnation) -> Stored<T> {
        let nonce = Nonce { incarnation: owner, sequence: 1 };
        Stored { stamp: Stamp { epoch: Epoch(epoch), owner, nonce }, body }
    }

    pub(crate) fn found(&self, version: &str) -> Read<T> {
        Read::Found { stamp: self.stamp, body: self.body.clone(), version: Version::new(version) }
    }
}

/// What this write of the ledger would leave.
pub(crate) fn ledger_written(request: DispatchRequest) -> Stored<LedgerDoc> {
    match request {
        DispatchRequest::Ledger(_, DocumentRequest::Write { stamp, body, .. }) => Stored { stamp, body },
        other @ (DispatchRequest::Ledger(..)
        | DispatchRequest::Inbox(..)
        | DispatchRequest::ListInboxes
        | DispatchRequest::Orders(_)
        | DispatchRequest::HistoryHead(_)
        | DispatchRequest::HistoryPart(..)
        | DispatchRequest::Keep(..)
        | DispatchRequest::Recall(_)
        | DispatchRequest::Notices(_)
        | DispatchRequest::Deliver(_)) => panic!("{other:?}"),
    }
}

/// What this write of an inbox would leave.
pub(crate) fn inbox_written(request: DispatchRequest) -> Stored<InboxDoc> {
    match request {
        DispatchRequest::Inbox(_, DocumentRequest::Write { stamp, body, .. }) => Stored { stamp, body },
        other @ (DispatchRequest::Ledger(..)
        | DispatchRequest::Inbox(..)
        | DispatchRequest::ListInboxes
        | DispatchRequest::Orders(_)
        | DispatchRequest::HistoryHead(_)
        | DispatchRequest::HistoryPart(..)
        | DispatchRequest::Keep(..)
        | DispatchRequest::Recall(_)
        | DispatchRequest::Notices(_)
        | DispatchRequest::Deliver(_)) => panic!("{other:?}"),
    }
}

pub(crate) fn config() -> DispatcherConfig {
    DispatcherConfig {
        incarnation: ME,
        epoch: Epoch(2),
        shards: 1,
        entries_max: 4,
        fast_ms: 100,
        slow_ms: 1000,
        orders_ms: 1_000_000,
        claim_timeout_ms: 3000,
        margin_ms: 500,
        retire_ms: 5000,
        keep_finished: 2,
        history: HISTORY,
        notify_all: false,
    }
}

pub(crate) fn job(id: &str) -> JobRecord {
    let limits =
        JobLimits { timeout_ms: 2000, ttl_ms: 60_000, deadline_ms: 0, attempts_max: 1, backoff_ms: 100 };
    // Each is of its own kind, so that one that waits does not stand for the others.
    JobRecord { payload: Arc::from(*b"x"), ..JobRecord::new(name(id), name("s"), name(id), limits) }
}

/// A job as a former leader left it, out at a worker.
pub(crate) fn out(id: &str, worker: &str, state: JobState) -> JobRecord {
    JobRecord { state, dispatch: 1, worker: Some(name(worker)), epoch: Epoch(1), ..job(id) }
}

/// `t1/2`: the second dispatch of a job.
pub(crate) fn entry(key: &str, state: EntryState) -> Entry {
    let (id, dispatch) = key.split_once('/').expect("id/dispatch");
    let payload = if matches!(state, EntryState::Finished { .. }) { &b""[..] } else { b"x" };
    Entry {
        id: name(id),
        dispatch: dispatch.parse().expect("a number"),
        attempt: dispatch.parse().expect("a number"),
        epoch: Epoch(1),
        dispatched_at: 0,
        queue: name("default"),
        kind: name(id),
        payload: Arc::from(payload),
        timeout_ms: 2000,
        state,
        cancel: false,
        progress: None,
    }
}

pub(crate) fn done(kind: OutcomeKind) -> EntryState {
    EntryState::Finished { outcome: Outcome { kind, result: Arc::from(*b"r") } }
}

pub(crate) fn ledger(jobs: Vec<JobRecord>) -> Stored<LedgerDoc> {
    Stored::of(LedgerDoc { series: Vec::new(), jobs }, 1, FORMER)
}

pub(crate) fn inbox(entries: Vec<Entry>) -> Stored<InboxDoc> {
    Stored::of(InboxDoc { entries, ..InboxDoc::default() }, 1, FORMER)
}

fn record_words(record: &JobRecord) -> String {
    let at = record.worker.as_ref().map(|worker| format!(" {worker}/{}", record.dispatch));
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
    format!("{}/{} {state}{}", entry.id, entry.dispatch, if entry.cancel { " called off" } else { "" })
}

fn request_words(request: &DispatchRequest) -> String {
    let over = |expect: &Expect| match expect {
        Expect::Absent => "new".to_owned(),
        Expect::Version(version) => format!("over {}", version.as_str()),
    };
    match request {
        DispatchRequest::Ledger(part, DocumentRequest::Read { .. }) => format!("read ledger {part}"),
        DispatchRequest::Ledger(part, DocumentRequest::Write { body, expect, .. }) => {
            let jobs: Vec<String> = body.jobs.iter().map(record_words).collect();
            format!("write ledger {part} {}: {}", over(expect), jobs.join(", "))
        }
        DispatchRequest::Ledger(_, DocumentRequest::Remove) => panic!("it removes no ledger"),
        DispatchRequest::ListInboxes => "list".to_owned(),
        DispatchRequest::Inbox(worker, DocumentRequest::Read { unless: None }) => format!("read {worker}"),
        DispatchRequest::Inbox(worker, DocumentRequest::Read { unless: Some(version) }) => {
            format!("read {worker} unless {}", version.as_str())
        }
        DispatchRequest::Inbox(worker, DocumentRequest::Write { body, expect, .. }) => {
            let entries: Vec<String> = body.entries.iter().map(entry_words).collect();
            format!("write {worker} {}: {}", over(expect), entries.join(", "))
        }
        DispatchRequest::Inbox(worker, DocumentRequest::Remove) => format!("remove {worker}"),
        DispatchRequest::Orders(DocumentRequest::Read { .. }) => "read orders".to_owned(),
        DispatchRequest::Orders(DocumentRequest::Write { body, expect, .. }) => {
            let jobs: Vec<&str> = body.entries.iter().map(|entry| entry.order.job().as_str()).collect();
            format!("write orders {}: {}; {} served", over(expect), jobs.join(", "), body.taken.len())
        }
        DispatchRequest::Orders(DocumentRequest::Remove) => panic!("it removes no orders"),
        DispatchRequest::HistoryHead(DocumentRequest::Read { .. }) => "read history".to_owned(),
        DispatchRequest::HistoryHead(DocumentRequest::Write { body, .. }) => {
            let ids: Vec<&str> = body.jobs.iter().map(|(_, record)| record.id.as_str()).collect();
            format!("write history: {}", ids.join(", "))
        }
        DispatchRequest::HistoryPart(part, DocumentRequest::Read { .. }) => format!("read part {part}"),
        DispatchRequest::HistoryPart(part, DocumentRequest::Write { body, .. }) => {
            let rows: usize = body.rows.values().map(Vec::len).sum();
            let chunks: usize = body.chunks.values().map(Vec::len).sum();
            format!("write part {part} upto {}: {rows} rows, {chunks} chunks", body.upto)
        }
        DispatchRequest::HistoryHead(DocumentRequest::Remove)
        | DispatchRequest::HistoryPart(_, DocumentRequest::Remove) => panic!("it removes no history"),
        DispatchRequest::Keep(_, Kept::Jobs(jobs)) => format!("keep {} jobs", jobs.len()),
        DispatchRequest::Keep(_, Kept::Rows(rows)) => format!("keep {} rows", rows.len()),
        DispatchRequest::Recall(_) => "recall".to_owned(),
        DispatchRequest::Notices(DocumentRequest::Read { .. }) => "read notices".to_owned(),
        DispatchRequest::Notices(DocumentRequest::Write { body, .. }) => {
            let waiting: Vec<&str> = body.waiting.iter().map(|notice| &*notice.id).collect();
            format!("write notices: {}", waiting.join(", "))
        }
        DispatchRequest::Notices(DocumentRequest::Remove) => panic!("it removes no notices"),
        DispatchRequest::Deliver(notice) => format!("deliver {} of {}", notice.id, notice.job),
    }
}

#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) core: Core,
    config: DispatcherConfig,
    pub(crate) now: u64,
    pub(crate) open: Vec<(RequestId, DispatchRequest)>,
    pub(crate) ledgers: BTreeMap<usize, (Stored<LedgerDoc>, u64)>,
    pub(crate) inboxes: BTreeMap<WorkerId, (Stored<InboxDoc>, u64)>,
    /// What is asked of the leader, for tests that are about that: the others are not told of its looks.
    pub(crate) is_ordered: bool,
    pub(crate) orders: BTreeMap<(), (Stored<OrdersDoc>, u64)>,
    /// The history, for tests that are about that.
    pub(crate) is_history: bool,
    pub(crate) head: BTreeMap<(), (Stored<HistoryHead>, u64)>,
    pub(crate) parts: BTreeMap<usize, (Stored<HistoryPart>, u64)>,
    pub(crate) kept: BTreeMap<Arc<str>, Kept>,
    /// Notices, for tests that are about those.
    pub(crate) is_notified: bool,
    pub(crate) notices: BTreeMap<(), (Stored<NoticesDoc>, u64)>,
    /// The series whose receivers take no notices, and what the others took.
    pub(crate) deaf: BTreeSet<SeriesId>,
    pub(crate) delivered: Vec<Notice>,
    pub(crate) versions: u64,
    aside: u64,
    requests: BTreeSet<RequestId>,
    nonces: BTreeSet<u64>,
    tokens: u64,
    claim_times: Vec<u64>,
}

impl Driver {
    pub(crate) fn new(config: DispatcherConfig) -> Driver {
        Driver::choosing(config, Told::default())
    }

    /// One that chooses as in production, by what workers say in their inboxes.
    pub(crate) fn by_inboxes(config: DispatcherConfig) -> Driver {
        Driver::choosing(config, Told { candidates: Some(Candidates::default()), ..Told::default() })
    }

    fn choosing(config: DispatcherConfig, told: Told) -> Driver {
        Driver {
            core: Dispatcher::new(config.clone(), told),
            config,
            now: 1000,
            open: Vec::new(),
            ledgers: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            is_ordered: false,
            orders: BTreeMap::new(),
            is_history: false,
            head: BTreeMap::new(),
            parts: BTreeMap::new(),
            kept: BTreeMap::new(),
            is_notified: false,
            notices: BTreeMap::new(),
            deaf: BTreeSet::new(),
            delivered: Vec::new(),
            versions: 0,
            aside: 0,
            requests: BTreeSet::new(),
            nonces: BTreeSet::new(),
            tokens: 0,
            claim_times: Vec::new(),
        }
    }

    /// One that owns an empty ledger and knows two workers, w1 and w2, both active.
    pub(crate) fn ready(config: DispatcherConfig) -> Driver {
        let mut driver = Driver::new(config);
        driver.workers(1000, &["w1", "w2"]);
        driver.serve();
        assert!(driver.core.is_ready());
        driver
    }

    /// One that succeeds somebody who left this behind.
    pub(crate) fn after(jobs: Vec<JobRecord>, inboxes: Vec<(&str, Stored<InboxDoc>)>) -> Driver {
        let mut driver = Driver::new(config());
        driver.left(jobs, inboxes);
        driver.workers(1000, &["w1", "w2"]);
        driver
    }

    pub(crate) fn left(&mut self, jobs: Vec<JobRecord>, inboxes: Vec<(&str, Stored<InboxDoc>)>) {
        self.versions += 1;
        self.ledgers.insert(0, (ledger(jobs), self.versions));
        for (worker, doc) in inboxes {
            self.versions += 1;
            self.inboxes.insert(name(worker), (doc, self.versions));
        }
    }

    /// Takes an input, and wakes it if it asks for that at once.
    pub(crate) fn tell(&mut self, now: u64, input: In<Core>) -> Vec<String> {
        assert!(now >= self.now, "time goes on");
        self.now = now;
        let mut out = Vec::new();
        let wakes = matches!(input, Input::Wake);
        self.step(input, &mut out);
        if !wakes {
            assert!(out.is_empty() && self.core.wake_at() == Some(Time(now)), "it acts when it is woken");
            self.step(Input::Wake, &mut out);
        }
        assert!(self.core.wake_at().is_none_or(|at| at > Time(self.now)), "woken in vain");
        out.into_iter().filter_map(|effect| self.note(effect)).collect()
    }

    pub(crate) fn step(&mut self, input: In<Core>, out: &mut Vec<Out<Core>>) {
        let now = Now { at: Time(self.now), wall_ms: self.now as i64 };
        self.core.handle(now, input, out);
        // Nobody asks for anything, and the history is as it should be, unless a test is about that.
        let (is_ordered, is_history, is_notified) = (self.is_ordered, self.is_history, self.is_notified);
        let is_aside = |effect: &Out<Core>| {
            let aside = |request: &DispatchRequest| match request {
                DispatchRequest::Orders(DocumentRequest::Read { .. }) => !is_ordered,
                DispatchRequest::HistoryHead(_)
                | DispatchRequest::HistoryPart(..)
                | DispatchRequest::Keep(..)
                | DispatchRequest::Recall(_) => !is_history,
                DispatchRequest::Notices(_) | DispatchRequest::Deliver(_) => !is_notified,
                DispatchRequest::Orders(_)
                | DispatchRequest::Ledger(..)
                | DispatchRequest::Inbox(..)
                | DispatchRequest::ListInboxes => false,
            };
            matches!(effect, Effect::Request(_, request) if aside(request))
        };
        while let Some(place) = out.iter().position(is_aside) {
            let Effect::Request(id, request) = out.remove(place) else { unreachable!("it is a request") };
            // Versions of what nobody looks at are nobody's business.
            std::mem::swap(&mut self.versions, &mut self.aside);
            let answer = self.outcome(request);
            std::mem::swap(&mut self.versions, &mut self.aside);
            self.core.handle(now, Input::Answer(id, answer), out);
            self.core.handle(now, Input::Wake, out);
        }
    }

    fn note(&mut self, effect: Out<Core>) -> Option<String> {
        Some(match effect {
            Effect::Request(id, request) => {
                assert!(self.requests.insert(id), "{id:?} again");
                let stamp = match &request {
                    DispatchRequest::Ledger(_, DocumentRequest::Write { stamp, .. })
                    | DispatchRequest::Inbox(_, DocumentRequest::Write { stamp, .. }) => Some(stamp),
                    DispatchRequest::Ledger(..)
                    | DispatchRequest::Inbox(..)
                    | DispatchRequest::ListInboxes
                    | DispatchRequest::Orders(_)
                    | DispatchRequest::HistoryHead(_)
                    | DispatchRequest::HistoryPart(..)
                    | DispatchRequest::Keep(..)
                    | DispatchRequest::Recall(_)
                    | DispatchRequest::Notices(_)
                    | DispatchRequest::Deliver(_) => None,
                };
                if let Some(Stamp { epoch, owner, nonce }) = stamp {
                    assert!(self.nonces.insert(nonce.sequence), "{nonce:?} again");
                    let me = self.config.incarnation;
                    assert_eq!((*epoch, *owner, nonce.incarnation), (self.config.epoch, me, me));
                }
                let words = request_words(&request);
                self.open.push((id, request));
                words
            }
            Effect::Output(DispatchOutput::Answered(token, answer)) => format!("#{token} {answer:?}"),
            Effect::Output(DispatchOutput::Update(update)) => match update.late {
                Some(kind) => {
                    let worker = update.worker.expect("somebody was late");
                    format!("= late {} of {}/{} from {worker}", kind.as_str(), update.id, update.attempt)
                }
                None => {
                    let at = update.worker.map(|worker| format!(" {worker}/{}", update.attempt));
                    format!("= {} {}{}", update.id, update.state.as_str(), at.unwrap_or_default())
                }
            },
            Effect::Output(DispatchOutput::Claimed { after_ms }) => {
                self.claim_times.push(after_ms);
                return None;
            }
            Effect::Output(DispatchOutput::Changed) => "look around".to_owned(),
            Effect::Output(DispatchOutput::Noted(token)) => format!("#{token} noted"),
            Effect::Output(DispatchOutput::Ended(_)) => "ended".to_owned(),
        })
    }

    /// How long jobs waited for their first claim, told since the last call.
    pub(crate) fn take_claim_times(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.claim_times)
    }

    pub(crate) fn wake(&mut self, now: u64) -> Vec<String> {
        self.tell(now, Input::Wake)
    }

    /// When it wants to be woken.
    pub(crate) fn at(&self) -> Option<u64> {
        // The next look at what is asked is far away, unless a test is about that.
        let look = |at: &u64| !self.is_ordered && *at >= self.config.orders_ms;
        self.core.wake_at().map(|at| at.0).filter(|at| !look(at))
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
        let answer = match request {
            DispatchRequest::Ledger(part, DocumentRequest::Write { .. }) => {
                DispatchAnswer::Ledger(part, DocumentAnswer::Written(answer))
            }
            DispatchRequest::Inbox(worker, DocumentRequest::Write { .. }) => {
                DispatchAnswer::Inbox(worker, DocumentAnswer::Written(answer))
            }
            other @ (DispatchRequest::Ledger(..)
            | DispatchRequest::Inbox(..)
            | DispatchRequest::ListInboxes
            | DispatchRequest::Orders(_)
            | DispatchRequest::HistoryHead(_)
            | DispatchRequest::HistoryPart(..)
            | DispatchRequest::Keep(..)
            | DispatchRequest::Recall(_)
            | DispatchRequest::Notices(_)
            | DispatchRequest::Deliver(_)) => panic!("{other:?} is no write"),
        };
        self.tell(self.now, Input::Answer(id, answer))
    }

    pub(crate) fn ledger_read(&mut self, read: Read<LedgerDoc>) -> Vec<String> {
        let (id, request) = self.take("read ledger");
        let DispatchRequest::Ledger(part, _) = request else { panic!("{request:?}") };
        self.tell(self.now, ledger_answer(id, part, DocumentAnswer::Read(read)))
    }

    pub(crate) fn inbox_read(&mut self, worker: &str, read: Read<InboxDoc>) -> Vec<String> {
        let (id, _) = self.take(&format!("read {worker}"));
        self.tell(self.now, inbox_answer(id, worker, DocumentAnswer::Read(read)))
    }

    /// Nobody answers this.
    pub(crate) fn unanswered(&mut self, words: &str) -> Vec<String> {
        let (id, request) = self.take(words);
        self.tell(self.now, Input::Answer(id, request.unanswered()))
    }

    /// Answers what begins with these words as the store would.
    pub(crate) fn answer(&mut self, words: &str) -> Vec<String> {
        let (id, request) = self.take(words);
        let answer = self.outcome(request);
        self.tell(self.now, Input::Answer(id, answer))
    }

    fn version(number: u64) -> Version {
        Version::new(&number.to_string())
    }

    pub(crate) fn outcome(&mut self, request: DispatchRequest) -> DispatchAnswer {
        match request {
            DispatchRequest::Ledger(part, request) => {
                DispatchAnswer::Ledger(part, serve(&mut self.ledgers, &mut self.versions, part, request))
            }
            DispatchRequest::Inbox(worker, request) => {
                let answer = serve(&mut self.inboxes, &mut self.versions, worker.clone(), request);
                DispatchAnswer::Inbox(worker, answer)
            }
            DispatchRequest::ListInboxes => DispatchAnswer::Listed(Some(self.lines())),
            DispatchRequest::Orders(request) => {
                DispatchAnswer::Orders(serve(&mut self.orders, &mut self.versions, (), request))
            }
            DispatchRequest::HistoryHead(request) => {
                DispatchAnswer::HistoryHead(serve(&mut self.head, &mut self.versions, (), request))
            }
            DispatchRequest::HistoryPart(part, request) => {
                let answer = serve(&mut self.parts, &mut self.versions, part, request);
                DispatchAnswer::HistoryPart(part, answer)
            }
            DispatchRequest::Keep(name, kept) => {
                assert!(self.kept.insert(name, kept).is_none(), "the name was used before");
                DispatchAnswer::Kept(true)
            }
            DispatchRequest::Recall(name) => match self.kept.get(&name) {
                Some(Kept::Rows(rows)) => DispatchAnswer::Recalled(Some(rows.clone())),
                other => panic!("no chunk: {other:?}"),
            },
            DispatchRequest::Notices(request) => {
                DispatchAnswer::Notices(serve(&mut self.notices, &mut self.versions, (), request))
            }
            DispatchRequest::Deliver(notice) => {
                let taken = !self.deaf.contains(&notice.series);
                self.delivered.extend(taken.then_some(notice));
                DispatchAnswer::Delivered(taken)
            }
        }
    }

    /// Somebody asks the leader for this.
    pub(crate) fn order(&mut self, orders: Vec<Order>) {
        self.change_orders(|doc, batch| {
            doc.entries.extend(orders.into_iter().map(|order| BatchedOrder { batch, order }))
        });
    }

    /// Somebody changes the document of orders.
    pub(crate) fn change_orders(&mut self, change: impl FnOnce(&mut OrdersDoc, Nonce)) {
        self.is_ordered = true;
        self.versions += 1;
        let batch = Nonce { incarnation: LIFE, sequence: self.versions };
        let stored = self.orders.entry(()).or_insert_with(|| (Stored::of(OrdersDoc::default(), 0, LIFE), 0));
        stored.1 = self.versions;
        stored.0.stamp.nonce = batch;
        change(&mut stored.0, batch);
    }

    pub(crate) fn lines(&self) -> Vec<InboxListed> {
        let line = |(worker, (_, number)): (&WorkerId, &(Stored<InboxDoc>, u64))| InboxListed {
            worker: worker.clone(),
            version: Some(Driver::version(*number)),
            stamp: (*number, 0),
        };
        self.inboxes.iter().map(line).collect()
    }

    /// Answers everything, and what is asked for then, until nothing is.
    pub(crate) fn serve(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while !self.open.is_empty() {
            let (id, request) = self.open.remove(0);
            let answer = self.outcome(request);
            said.extend(self.tell(self.now, Input::Answer(id, answer)));
            assert!(said.len() < 500, "it never rests: {said:#?}");
        }
        said
    }

    /// Answers everything but what begins with these words.
    pub(crate) fn serve_but(&mut self, words: &str) {
        let waits = |(_, request): &(RequestId, DispatchRequest)| !request_words(request).starts_with(words);
        while let Some(place) = self.open.iter().position(waits) {
            let (id, request) = self.open.remove(place);
            let answer = self.outcome(request);
            self.tell(self.now, Input::Answer(id, answer));
        }
    }

    /// Time passes, and nobody answers anything.
    pub(crate) fn pass_without_answers(&mut self, until: u64) {
        while let Some(at) = self.at().filter(|at| *at <= until) {
            self.wake(at);
        }
        self.now = until;
    }

    /// The next leader, on the same store.
    pub(crate) fn succeeded_by(self, config: DispatcherConfig) -> Driver {
        let Driver {
            now,
            ledgers,
            inboxes,
            orders,
            is_ordered,
            is_history,
            head,
            parts,
            kept,
            is_notified,
            notices,
            deaf,
            delivered,
            versions,
            aside,
            ..
        } = self;
        let next = Driver::new(config);
        let mut next = Driver {
            ledgers,
            inboxes,
            orders,
            is_ordered,
            is_history,
            head,
            parts,
            kept,
            is_notified,
            notices,
            deaf,
            delivered,
            versions,
            aside,
            ..next
        };
        next.workers(now, &["w1", "w2"]);
        next.serve();
        next
    }

    /// An input, and everything that follows from it.
    pub(crate) fn all(&mut self, now: u64, input: In<Core>) -> Vec<String> {
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
            let said = self.all(at, Input::Wake);
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
        self.tell(now, Input::Command(DispatchCommand::Workers { list, listed: true, whole: true }))
    }

    pub(crate) fn submit(&mut self, now: u64, records: Vec<JobRecord>) -> Vec<String> {
        let numbered = records.into_iter().map(|record| {
            self.tokens += 1;
            (self.tokens, record)
        });
        let numbered = numbered.collect();
        self.tell(now, Input::Command(DispatchCommand::Submit(numbered)))
    }

    pub(crate) fn assign(&mut self, now: u64, id: &str, worker: &str) -> Vec<String> {
        self.tell(now, assign(id, worker))
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

    pub(crate) fn work(&mut self, worker: &str, change: impl FnOnce(&mut InboxDoc)) {
        self.versions += 1;
        let (doc, number) = self.inboxes.get_mut(&name(worker)).expect("an inbox");
        doc.stamp.nonce = Nonce { incarnation: LIFE, sequence: self.versions };
        change(doc);
        *number = self.versions;
    }

    /// A worker says how far an attempt is.
    pub(crate) fn says(&mut self, worker: &str, key: &str, state: EntryState) {
        let new = entry(key, state);
        self.work(worker, |doc| {
            let old = doc.entries.iter_mut().find(|old| old.key() == new.key()).expect("it is there");
            (old.state, old.payload) = (new.state, new.payload);
        });
    }

    /// How often somebody was looked for so far.
    pub(crate) fn asked(&self) -> usize {
        self.core.assign().asked.len()
    }

    pub(crate) fn record(&self, id: &str) -> &JobRecord {
        self.core.jobs().find(|record| record.id.as_str() == id).unwrap_or_else(|| panic!("no {id}"))
    }

    pub(crate) fn state(&self, id: &str) -> JobState {
        self.record(id).state
    }
}

/// A store of one kind of documents.
fn serve<K: Ord, T: Clone>(
    there: &mut BTreeMap<K, (Stored<T>, u64)>,
    versions: &mut u64,
    key: K,
    request: DocumentRequest<T>,
) -> DocumentAnswer<T> {
    let number = there.get(&key).map(|(_, number)| *number);
    let version = number.map(Driver::version);
    match request {
        DocumentRequest::Read { unless } => DocumentAnswer::Read(match there.get(&key) {
            None => Read::Absent,
            Some(_) if unless.is_some() && unless == version => Read::Unchanged,
            Some((doc, number)) => doc.found(&number.to_string()),
        }),
        DocumentRequest::Write { stamp, body, expect } => {
            let holds = match expect {
                Expect::Absent => number.is_none(),
                Expect::Version(expected) => version == Some(expected),
            };
            if !holds {
                return DocumentAnswer::Written(WriteAnswer::Lost);
            }
            *versions += 1;
            there.insert(key, (Stored { stamp, body }, *versions));
            DocumentAnswer::Written(WriteAnswer::Won(Driver::version(*versions)))
        }
        DocumentRequest::Remove => {
            there.remove(&key);
            DocumentAnswer::Removed(Removal::Gone)
        }
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
