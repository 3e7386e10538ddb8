//! Carries the core's requests to the store and brings back the answers. Decides nothing.

use crate::election::codec::{PresenceDocument, SeatDocument};
use crate::keys::Keys;
use crate::metrics::Counters;
use crate::mutant::DriverMutant;
use crate::settings::Settings;
use crate::terms::{TermEnd, silent_ms};
use crate::wire::told;
use crate::workers::SnapshotPointers;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Answer, Expect, Holder, NodeEntry, NodesAnswer, Nonce, ProbeAnswer, Request, Seat, SeatAnswer, SeatState,
    Version, WriteAnswer,
};
use tenure_store::conformance::{Probe, probe};
use tenure_store::{Condition, Entry, Lanes, List, Read, StoreTime, Trouble, TroubleKind, Write};

/// Most presences that are ranked: within one page of a list, so that a claim never waits for a second page. They come in
/// name order, and a node beyond this many goes last anyway; compare-and-swap settles claims in any case.
const NODES_MAX: usize = 500;

/// Settings that the plugins of one process share, but that may differ between processes.
const OF_ONE_NODE: [&str; 3] = ["diagnosticsEnabled", "contentionDetectionEnabled", "contentionThreshold"];

/// The probe makes seven requests one after the other, and one more on some engines.
const PROBE_REQUESTS: u32 = 9;

/// One node's access to the store.
#[derive(Clone)]
pub(crate) struct SeatClient {
    pub(crate) lanes: Lanes,
    pub(crate) keys: Keys,
    pub(crate) me: Holder,
    pub(crate) request_timeout: Duration,
    pub(crate) started_at: Arc<str>,
    /// The settings that the leader publishes.
    pub(crate) shared_settings: Arc<Map<String, Value>>,
    /// The figures that the node publishes with its presence.
    counters: Arc<Counters>,
    /// Which snapshot of the workers is the newest: what the seat says, and what this node wants it to say.
    pointers: SnapshotPointers,
    /// The seat document last read or written, by version: whatever it carries beyond the record must survive a rewrite.
    document: Arc<Mutex<Option<(Version, SeatDocument)>>>,
    /// Where the leader's settings differ from this node's.
    differences: Arc<Mutex<Vec<String>>>,
    /// Why the seat is about to be vacated, as far as the node was told.
    leaving: Arc<Mutex<Option<TermEnd>>>,
    /// The last trouble, so that an event can explain in words what the core only knows as a kind.
    trouble: Arc<Mutex<String>>,
}

/// The store's answer to a write in the core's terms, and its complaint, if any.
fn written(answer: Write) -> (WriteAnswer, Option<Trouble>) {
    match answer {
        Write::Won(version) => (WriteAnswer::Won(Version::new(version.as_str())), None),
        Write::Lost => (WriteAnswer::Lost, None),
        Write::Unknown(trouble) => (WriteAnswer::Unknown, Some(trouble)),
        Write::Unavailable(trouble) => (WriteAnswer::Unavailable, Some(trouble)),
        Write::Denied(trouble) => (WriteAnswer::Denied, Some(trouble)),
    }
}

impl SeatClient {
    pub(crate) fn new(
        lanes: Lanes,
        keys: Keys,
        me: Holder,
        settings: &Settings,
        counters: Arc<Counters>,
        pointers: SnapshotPointers,
    ) -> SeatClient {
        let request_timeout = settings.request_timeout;
        let started_at = Arc::from(format!("{:.3}", jiff::Timestamp::now()));
        let shared_settings = Arc::new(settings.shared());
        let (document, differences, leaving, trouble) = Default::default();
        SeatClient {
            lanes,
            keys,
            me,
            request_timeout,
            started_at,
            shared_settings,
            counters,
            pointers,
            document,
            differences,
            leaving,
            trouble,
        }
    }

    pub(crate) fn last_trouble(&self) -> String {
        self.trouble.lock().clone()
    }

    /// Every request ends within its time limit; without an answer by then, the outcome is unknown.
    pub(crate) async fn carry(&self, request: Request) -> Answer {
        let limit = match &request {
            Request::Probe => self.request_timeout * PROBE_REQUESTS,
            Request::ReadSeat { .. }
            | Request::WriteSeat { .. }
            | Request::WritePresence { .. }
            | Request::RemovePresence
            // One page, which only decides who tries first: without it this node tries last.
            | Request::ListNodes => self.request_timeout,
        };
        let silence = request.unanswered();
        match tokio::time::timeout(limit, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.note(&Trouble::new(
                    TroubleKind::Timeout,
                    format!("no answer within {} ms", limit.as_millis()),
                ));
                self.given_up(silence)
            }
        }
    }

    async fn send(&self, request: Request) -> Answer {
        match request {
            Request::Probe => Answer::Probe(self.probe().await),
            Request::ReadSeat { unless } => Answer::Seat(self.read_seat(unless).await),
            Request::WriteSeat { seat, expect } => Answer::SeatWritten(self.write_seat(&seat, expect).await),
            Request::WritePresence { nonce, expect } => {
                Answer::PresenceWritten(self.write_presence(nonce, expect).await)
            }
            Request::RemovePresence => {
                let _ = self.lanes.bulk.remove(&self.keys.node(&self.me.node)).await;
                Answer::PresenceRemoved
            }
            Request::ListNodes => Answer::Nodes(self.list_nodes().await),
        }
    }

    async fn probe(&self) -> ProbeAnswer {
        let unique = format!("{}-{:08x}", self.me.incarnation, rand::random::<u32>());
        match probe(&*self.lanes.lease, self.keys.root(), &unique).await {
            Probe::Safe { .. } => ProbeAnswer::Safe,
            Probe::Unsafe(sentence) => {
                *self.trouble.lock() = sentence;
                ProbeAnswer::Unsafe
            }
            Probe::Unavailable(trouble) => {
                self.note(&trouble);
                ProbeAnswer::Unavailable
            }
            Probe::Denied(trouble) => {
                self.note_refusal(&trouble);
                ProbeAnswer::Denied
            }
        }
    }

    async fn read_seat(&self, unless: Option<Version>) -> SeatAnswer {
        let unless = unless.map(|version| tenure_store::Version::new(version.as_str()));
        match self.lanes.lease.get(&self.keys.seat(), unless.as_ref()).await {
            Read::Unchanged => SeatAnswer::Unchanged,
            Read::Absent => SeatAnswer::Absent,
            Read::Found(object) => {
                let version = Version::new(object.version.as_str());
                match SeatDocument::parse(&object.body) {
                    Ok((mut document, seat)) => {
                        document.modified_ms = Some(object.modified.0);
                        self.pointers.saw(document.snapshot());
                        self.compare(&document, &seat);
                        self.remember(version.clone(), document);
                        SeatAnswer::Found { seat, version, modified_ms: object.modified.0 }
                    }
                    Err(unreadable) => {
                        let problem = unreadable.problem();
                        *self.trouble.lock() = unreadable.detail;
                        SeatAnswer::Unreadable { version, problem }
                    }
                }
            }
            Read::Unavailable(trouble) => {
                self.note(&trouble);
                SeatAnswer::Unavailable
            }
            Read::Denied(trouble) => {
                self.note_refusal(&trouble);
                SeatAnswer::Denied
            }
        }
    }

    async fn write_seat(&self, seat: &Seat, expect: Expect) -> WriteAnswer {
        let (condition, before) = match expect {
            Expect::Absent => (Condition::Absent, None),
            Expect::Version(version) => {
                let known = self.document.lock().clone();
                let before = known.filter(|(known, _)| *known == version).map(|(_, document)| document);
                (Condition::Matches(tenure_store::Version::new(version.as_str())), before)
            }
        };
        let now = format!("{:.3}", jiff::Timestamp::now());
        let pointer = self.pointers.wanted(seat.epoch.0);
        let settings = (*self.shared_settings).clone();
        let document = SeatDocument::new(seat, before.as_ref(), now.clone(), settings, pointer.as_ref());
        let document = match (&before, seat.state) {
            (Some(before), SeatState::Vacant) => document.vacated_because(before, *self.leaving.lock(), now),
            (Some(before), SeatState::Held) if before.epoch < seat.epoch.0 => {
                document.claimed_from(before, self.silent_ms(before))
            }
            (Some(_) | None, _) => document,
        };
        let answer = self.lanes.lease.put(&self.keys.seat(), document.to_bytes().into(), condition).await;
        let answer = self.write_answer(answer);
        if let WriteAnswer::Won(version) = &answer {
            self.remember(version.clone(), document);
        }
        answer
    }

    /// How long the holder of this record has been silent: by this node's clock if it has watched it for as long as it takes, else
    /// by the store's.
    fn silent_ms(&self, before: &SeatDocument) -> Option<u64> {
        let watched_ms = self.counters.seat_age_ms();
        let enough = watched_ms.filter(|ms| *ms >= before.expiry_ms());
        let by_store = || silent_ms(self.lanes.lease.now(), StoreTime(before.modified_ms?));
        enough.or_else(by_store).or(watched_ms)
    }

    /// Leadership is about to be given up, or is over (`None`). Nothing overrides a stop.
    pub(crate) fn leaving(&self, why: Option<TermEnd>) {
        let mut leaving = self.leaving.lock();
        if why.is_none() || *leaving != Some(TermEnd::Shutdown) {
            *leaving = why;
        }
    }

    async fn write_presence(&self, nonce: Nonce, expect: Option<Version>) -> WriteAnswer {
        let metrics = self.counters.metrics();
        let mut document = PresenceDocument::new(&self.me, nonce, &self.started_at, metrics);
        document.conflict = self.counters.has_conflict();
        let (body, refresh) = (document.to_bytes(), expect.is_some());
        let condition = match expect {
            Some(version) => Condition::Matches(tenure_store::Version::new(version.as_str())),
            None => Condition::Any,
        };
        let answer = self.lanes.bulk.put(&self.keys.node(&self.me.node), body.into(), condition).await;
        let answer = self.write_answer(answer);
        match &answer {
            WriteAnswer::Lost => self.counters.conflicted(true),
            WriteAnswer::Won(_) if refresh => self.counters.conflicted(false),
            WriteAnswer::Won(_) | WriteAnswer::Unknown | WriteAnswer::Unavailable | WriteAnswer::Denied => {}
        }
        answer
    }

    async fn list_nodes(&self) -> NodesAnswer {
        match self.lanes.bulk.list(&self.keys.nodes(), NODES_MAX).await {
            List::Entries { entries, more } => {
                let node = |entry: Entry| {
                    let node = self.keys.node_of(&entry.key)?;
                    Some(NodeEntry { node, modified_ms: entry.modified.0 })
                };
                NodesAnswer::Found { nodes: entries.into_iter().filter_map(node).collect(), more }
            }
            List::Unavailable(trouble) | List::Denied(trouble) => {
                self.note(&trouble);
                NodesAnswer::Unavailable
            }
        }
    }

    fn write_answer(&self, answer: Write) -> WriteAnswer {
        let (answer, trouble) = written(answer);
        match (&answer, &trouble) {
            (WriteAnswer::Denied, Some(trouble)) => self.note_refusal(trouble),
            (_, Some(trouble)) => self.note(trouble),
            (_, None) => {}
        }
        match answer {
            WriteAnswer::Unknown => self.unknown(),
            WriteAnswer::Won(_) | WriteAnswer::Lost | WriteAnswer::Unavailable | WriteAnswer::Denied => {
                answer
            }
        }
    }

    /// How to pass on an unknown outcome: as unknown, except where a mutant says otherwise.
    fn unknown(&self) -> WriteAnswer {
        match DriverMutant::UnknownPassedAsWon.on() {
            true => WriteAnswer::Won(Version::new("assumed")),
            false => WriteAnswer::Unknown,
        }
    }

    /// The same for a seat write that was given up.
    fn given_up(&self, silence: Answer) -> Answer {
        if silence == Answer::SeatWritten(WriteAnswer::Unknown) {
            return Answer::SeatWritten(self.unknown());
        }
        silence
    }

    fn remember(&self, version: Version, document: SeatDocument) {
        *self.document.lock() = Some((version, document));
    }

    /// Notes where the leader's settings differ from this node's.
    fn compare(&self, document: &SeatDocument, seat: &Seat) {
        if seat.state != SeatState::Held || seat.holder.node == self.me.node {
            return;
        }
        let differs = |(name, own): (&String, &Value)| {
            let leaders = document.settings.get(name).filter(|leaders| *leaders != own)?;
            Some(told(&format!("{name} {own} (the leader has {leaders})")))
        };
        let concerns_all = |(name, _): &(&String, &Value)| !OF_ONE_NODE.contains(&name.as_str());
        let differences = self.shared_settings.iter().filter(concerns_all).filter_map(differs).collect();
        *self.differences.lock() = differences;
    }

    /// Where the leader's settings differ from this node's, one sentence each.
    pub(crate) fn differences(&self) -> Vec<String> {
        self.differences.lock().clone()
    }

    /// Notes a refusal of something the election needs. A plugin leaves this election only for lack of permission: expired
    /// credentials, or a bucket that does not exist yet, can be fixed without a restart.
    fn note_refusal(&self, trouble: &Trouble) {
        self.note(trouble);
        self.counters.refused((trouble.kind == TroubleKind::Permission).then(|| trouble.to_string()));
    }

    fn note(&self, trouble: &Trouble) {
        *self.trouble.lock() = trouble.to_string();
    }
}
