//! Random schedules: whatever happens, everything that needs another look is marked. Marking all jobs and all inboxes by hand
//! after any step must lead to nothing that an unmarked wake-up does not lead to.

use super::super::assign::Candidates;
use super::super::fixtures::{config, name, record};
use super::super::history::{HistoryHead, HistoryPart, Kept};
use super::super::model::{EntryState, Outcome};
use super::super::notices::NoticesDoc;
use super::super::serves::Serves;
use super::*;
use crate::document::{DocumentRequest, Read, Removal, Stamp};
use crate::election::{Epoch, Expect, Version, WriteAnswer};
use crate::id::{Incarnation, Nonce};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

type Object<T> = (Stamp, T, u64);

struct World {
    rng: ChaCha8Rng,
    now: u64,
    leader: Dispatcher<Candidates>,
    asked: Vec<(RequestId, DispatchRequest)>,
    ledgers: BTreeMap<usize, Object<LedgerDoc>>,
    inboxes: BTreeMap<WorkerId, Object<InboxDoc>>,
    requests: BTreeMap<(), Object<OrdersDoc>>,
    head: BTreeMap<(), Object<HistoryHead>>,
    notices: BTreeMap<(), Object<NoticesDoc>>,
    parts: BTreeMap<usize, Object<HistoryPart>>,
    kept: BTreeMap<Arc<str>, Kept>,
    versions: u64,
    ids: u32,
    fault: Option<String>,
}

/// What the store does with a request: it may lose it, or lose the answer.
fn serve<K: Ord, T: Clone>(
    there: &mut BTreeMap<K, Object<T>>,
    key: K,
    (draw, versions): (u32, &mut u64),
    request: DocumentRequest<T>,
) -> DocumentAnswer<T> {
    let found = there.get(&key).map(|(_, _, version)| Version::new(&version.to_string()));
    match request {
        DocumentRequest::Read { .. } if draw == 0 => DocumentAnswer::Read(Read::Unavailable),
        DocumentRequest::Read { .. } if draw == 1 => {
            DocumentAnswer::Read(Read::Unreadable { version: Version::new("nonsense"), newer: false })
        }
        DocumentRequest::Read { unless } => DocumentAnswer::Read(match there.get(&key) {
            Some(_) if unless.is_some() && unless == found => Read::Unchanged,
            Some((stamp, body, version)) => {
                let version = Version::new(&version.to_string());
                Read::Found { stamp: *stamp, body: body.clone(), version }
            }
            None => Read::Absent,
        }),
        DocumentRequest::Write { .. } if draw == 2 => DocumentAnswer::Written(WriteAnswer::Unknown),
        DocumentRequest::Write { stamp, body, expect } => {
            if expect != found.map_or(Expect::Absent, Expect::Version) {
                return DocumentAnswer::Written(WriteAnswer::Lost);
            }
            *versions += 1;
            there.insert(key, (stamp, body, *versions));
            let won = WriteAnswer::Won(Version::new(&versions.to_string()));
            DocumentAnswer::Written(if draw == 3 { WriteAnswer::Unknown } else { won })
        }
        DocumentRequest::Remove => {
            there.remove(&key);
            DocumentAnswer::Removed(Removal::Gone)
        }
    }
}

impl World {
    fn answer(&mut self, request: DispatchRequest) -> DispatchAnswer {
        let luck = (self.rng.random_range(0..30), &mut self.versions);
        match request {
            DispatchRequest::Ledger(shard, request) => {
                DispatchAnswer::Ledger(shard, serve(&mut self.ledgers, shard, luck, request))
            }
            DispatchRequest::Inbox(worker, request) => {
                let answer = serve(&mut self.inboxes, worker.clone(), luck, request);
                DispatchAnswer::Inbox(worker, answer)
            }
            DispatchRequest::ListInboxes => {
                let line = |(worker, object): (&WorkerId, &Object<InboxDoc>)| InboxListed {
                    worker: worker.clone(),
                    version: Some(Version::new(&object.2.to_string())),
                    stamp: (object.2, 0),
                };
                DispatchAnswer::Listed((luck.0 > 0).then(|| self.inboxes.iter().map(line).collect()))
            }
            DispatchRequest::Orders(request) => {
                DispatchAnswer::Orders(serve(&mut self.requests, (), luck, request))
            }
            DispatchRequest::HistoryHead(request) => {
                DispatchAnswer::HistoryHead(serve(&mut self.head, (), luck, request))
            }
            DispatchRequest::HistoryPart(part, request) => {
                DispatchAnswer::HistoryPart(part, serve(&mut self.parts, part, luck, request))
            }
            DispatchRequest::Keep(name, kept) => {
                self.kept.insert(name, kept);
                DispatchAnswer::Kept(luck.0 > 3)
            }
            DispatchRequest::Recall(name) => DispatchAnswer::Recalled(match self.kept.get(&name) {
                Some(Kept::Rows(rows)) if luck.0 > 3 => Some(rows.clone()),
                Some(_) | None => None,
            }),
            DispatchRequest::Notices(request) => {
                DispatchAnswer::Notices(serve(&mut self.notices, (), luck, request))
            }
            DispatchRequest::Deliver(_) => DispatchAnswer::Delivered(luck.0 > 10),
        }
    }

    /// A worker creates its inbox, takes other jobs than before, claims, runs, ends or loses something, or closes and reopens it.
    fn work(&mut self) {
        let worker: WorkerId = name(&format!("w{}", self.rng.random_range(0..4)));
        self.versions += 1;
        let (me, by) = (Incarnation(9), Incarnation(9));
        let created = Stamp { epoch: Epoch(0), owner: me, nonce: Nonce { incarnation: me, sequence: 0 } };
        let (stamp, doc, version) =
            self.inboxes.entry(worker).or_insert_with(|| (created, InboxDoc::default(), 0));
        if doc.serves.is_none() || self.rng.random_bool(0.05) {
            let mut serves = Serves::anything(self.rng.random_range(1..4));
            serves.kinds.extend(self.rng.random_bool(0.2).then(|| name("other")));
            doc.serves = Some((me, Arc::new(serves)));
        }
        (stamp.nonce, *version) = (Nonce { incarnation: me, sequence: self.versions }, self.versions);
        let at = self.rng.random_range(0..8);
        if self.rng.random_bool(0.1) {
            doc.closed = doc.closed.is_none().then_some(me);
        } else if self.rng.random_bool(0.03) && at < doc.entries.len() {
            doc.entries.remove(at);
        } else if let Some(entry) = doc.entries.get_mut(at) {
            let kind = OutcomeKind::ALL[self.rng.random_range(0..OutcomeKind::ALL.len())];
            entry.state = match entry.state {
                EntryState::Dispatched => EntryState::Acked { by },
                EntryState::Acked { .. } => EntryState::Running { by },
                EntryState::Running { .. } | EntryState::Finished { .. } => {
                    EntryState::Finished { outcome: Outcome::bare(kind) }
                }
            };
        }
    }

    fn command(&mut self) -> Option<DispatchCommand<()>> {
        // An id is not used again once the ledger has forgotten its job.
        self.ids += 1;
        let known = self.leader.jobs().nth(self.rng.random_range(0..30)).map(|record| record.id.clone());
        let known = known.filter(|_| self.rng.random_bool(0.3));
        let (number, id) = (self.ids, known.unwrap_or_else(|| name(&format!("t{}", self.ids))));
        match self.rng.random_range(0..10) {
            0..5 => {
                let target = self.rng.random_bool(0.3).then(|| name(&format!("w{}", number % 4)));
                let mut record = JobRecord { target, ..record(id.as_str()) };
                record.limits.ttl_ms = [4000, 60_000][number as usize % 2];
                record.limits.deadline_ms = [0, 0, 9000][number as usize % 3];
                Some(DispatchCommand::Submit(vec![(number.into(), record)]))
            }
            5 => Some(DispatchCommand::Cancel(id)),
            6 => {
                let known: Vec<u32> = (0..4).filter(|_| self.rng.random_bool(0.8)).collect();
                let list = known.into_iter().map(|w| (name(&format!("w{w}")), self.rng.random_bool(0.8)));
                Some(DispatchCommand::Workers { list: list.collect(), listed: true, whole: true })
            }
            _ => None,
        }
    }

    fn tell(&mut self, input: In<Dispatcher<Candidates>>) {
        let now = Now { at: Time(self.now), wall_ms: 0 };
        let mut out = Vec::new();
        self.leader.handle(now, input, &mut out);
        self.leader.handle(now, Input::Wake, &mut out);
        for effect in out {
            if let Effect::Request(id, request) = effect {
                self.asked.push((id, request));
            }
        }
        let (mut again, mut marked) = (self.leader.clone(), self.leader.clone());
        let ids: Vec<JobId> = marked.jobs().map(|record| record.id.clone()).collect();
        marked.table.changes.unjudged.extend(ids);
        marked.inboxes.mark_all();
        let (mut out, mut all) = (Vec::new(), Vec::new());
        again.handle(now, Input::Wake, &mut out);
        marked.handle(now, Input::Wake, &mut all);
        if all != out {
            self.fault = Some(format!("not marked at {}: {all:?}, and without marks {out:?}", self.now));
        }
        if let Some((one, other)) = marked.jobs().zip(again.jobs()).find(|(one, other)| one != other) {
            self.fault = Some(format!("not judged at {}: {one:?}, and without marks {other:?}", self.now));
        }
    }
}

#[test]
fn whatever_needs_another_look_is_marked() {
    let (mut seen, mut faults) = (DispatchCounts::default(), Vec::new());
    let wanted = std::env::var("TENURE_JOB_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..wanted.unwrap_or(20) {
        let mut world = World {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 1000,
            leader: Dispatcher::new(config(), Candidates::default()),
            asked: Vec::new(),
            ledgers: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            requests: BTreeMap::new(),
            head: BTreeMap::new(),
            notices: BTreeMap::new(),
            parts: BTreeMap::new(),
            kept: BTreeMap::new(),
            versions: 0,
            ids: 0,
            fault: None,
        };
        for _ in 0..1500 {
            if world.fault.is_some() {
                break;
            }
            match world.rng.random_range(0..10) {
                0..5 if !world.asked.is_empty() => {
                    let at = world.rng.random_range(0..world.asked.len());
                    let (id, request) = world.asked.swap_remove(at);
                    let answer = world.answer(request);
                    world.tell(Input::Answer(id, answer));
                }
                5 | 6 => world.work(),
                7 => {
                    if let Some(command) = world.command() {
                        world.tell(Input::Command(command));
                    }
                }
                _ => {
                    world.now += world.rng.random_range(0..300);
                    world.tell(Input::Wake);
                }
            }
        }
        faults.extend(world.fault);
        let counts = world.leader.counts();
        (seen.created, seen.finished) = (seen.created + counts.created, seen.finished + counts.finished);
        (seen.lost, seen.late) = (seen.lost + counts.lost, seen.late + counts.late);
    }
    assert!(faults.is_empty(), "{faults:#?}");
    // A run in which hardly anything happens proves nothing.
    assert!(seen.created > 500 && seen.finished > 300 && seen.lost > 30 && seen.late > 10, "{seen:?}");
}
