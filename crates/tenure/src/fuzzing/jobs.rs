//! Job documents and the machines that read them: whatever a ledger or an inbox contains, leader and worker carry on.

use super::{assert_kept, assert_told, id};
use crate::documents::Codec;
use crate::job::{
    HeadCodec, InboxCodec, JobOutput, LedgerCodec, NoticesCodec, OrdersCodec, PartCodec, RowsCodec,
};
use crate::wire::DETAIL_MAX_CHARS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal, Stamp};
use tenure_core::machine::{Effect, Input, Machine, Now, Out};
use tenure_core::{
    Candidates, Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerOutput, ClaimerRequest,
    DispatchAnswer, DispatchCommand, DispatchRequest, Dispatcher, DispatcherConfig, EntryState, InboxDoc,
    InboxListed, Incarnation, JOB_PAYLOAD_MAX_BYTES, JOB_PRIORITY_MAX, JOB_QUEUES_MAX, JOB_RESULT_MAX_BYTES,
    JobId, LedgerDoc, Outcome, OutcomeKind, Serves, Time, Version, WorkerId, WriteAnswer,
};

/// How often a machine is woken with one document.
const STEPS: usize = 40;

/// Most rounds a machine may take in one step.
const ROUNDS_MAX: usize = 100;

const LEDGER_FIELDS: [&str; 6] = ["v", "epoch", "owner", "nonce", "series", "jobs"];
const INBOX_FIELDS: [&str; 7] = ["v", "workerId", "epoch", "owner", "nonce", "closed", "entries"];

const REQUESTS_FIELDS: [&str; 8] = ["v", "epoch", "owner", "nonce", "entries", "taken", "changes", "queues"];

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("what was understood is JSON")
}

/// `jobs/ledger-<n>.json`.
pub fn ledger(body: &[u8]) -> bool {
    let (stamp, doc, carried) = match LedgerCodec.read(body) {
        Ok(read) => read,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    let names: BTreeSet<&JobId> = doc.jobs.iter().map(|job| &job.id).collect();
    assert_eq!(names.len(), doc.jobs.len(), "a job stands there twice");
    for job in &doc.jobs {
        let named = [job.id.as_str(), job.series.as_str(), job.kind.as_str()];
        let workers = job.worker.iter().chain(&job.target).map(WorkerId::as_str);
        assert!(named.into_iter().chain(workers).all(|name| id(name.as_bytes())));
        assert!(job.payload.len() <= JOB_PAYLOAD_MAX_BYTES && job.result.len() <= JOB_RESULT_MAX_BYTES);
        assert!(job.worker.is_some() || !job.state.is_out(), "out, and nobody has it");
        assert!(job.reason.chars().count() <= DETAIL_MAX_CHARS + 1);
    }
    let again = LedgerCodec.write(stamp, &doc, &carried);
    let (envelope, read, kept) = LedgerCodec.read(&again).expect("our own");
    assert_eq!((envelope, &read), (stamp, &doc));
    assert_eq!(LedgerCodec.write(stamp, &read, &kept), again);
    assert_kept(&json(body), &json(&again), &LEDGER_FIELDS);
    lead(stamp, &doc);
    true
}

/// `jobs/inbox/<worker>.json`, under the key that it names itself.
pub fn inbox(body: &[u8]) -> bool {
    let named = serde_json::from_slice::<Value>(body).ok();
    let named = named.as_ref().and_then(|value| WorkerId::new(value.get("workerId")?.as_str()?).ok());
    let worker = named.unwrap_or_else(|| WorkerId::new("w1").expect("valid"));
    let codec = InboxCodec(worker);
    let (stamp, doc, carried) = match codec.read(body) {
        Ok(read) => read,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    let keys: BTreeSet<(JobId, u32)> = doc.entries.iter().map(|entry| entry.key()).collect();
    assert_eq!(keys.len(), doc.entries.len(), "a dispatch stands there twice");
    for entry in &doc.entries {
        assert!(id(entry.id.as_str().as_bytes()) && id(entry.kind.as_str().as_bytes()));
        assert!(entry.payload.len() <= JOB_PAYLOAD_MAX_BYTES);
        if let EntryState::Finished { outcome } = &entry.state {
            assert!(outcome.result.len() <= JOB_RESULT_MAX_BYTES);
        }
    }
    let again = codec.write(stamp, &doc, &carried);
    let (envelope, read, kept) = codec.read(&again).expect("our own");
    assert_eq!((envelope, &read), (stamp, &doc));
    assert_eq!(codec.write(stamp, &read, &kept), again);
    assert_kept(&json(body), &json(&again), &INBOX_FIELDS);
    work(stamp, &doc);
    true
}

/// The newest jobs of the history, a part of it, or a chunk.
pub fn history(body: &[u8]) -> bool {
    fn reads<C: Codec>(codec: &C, body: &[u8]) -> bool
    where
        C::Body: PartialEq + std::fmt::Debug,
    {
        let (stamp, read, kept) = match codec.read(body) {
            Ok(read) => read,
            Err(unreadable) => {
                assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
                return false;
            }
        };
        let again = codec.write(stamp, &read, &kept);
        let (_, same, _) = codec.read(&again).expect("our own");
        assert_eq!(same, read);
        true
    }
    reads(&HeadCodec, body) | reads(&PartCodec, body) | reads(&RowsCodec, body) | reads(&NoticesCodec, body)
}

/// `jobs/orders.json`.
pub fn orders(body: &[u8]) -> bool {
    let (stamp, doc, kept) = match OrdersCodec.read(body) {
        Ok(read) => read,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    assert!(doc.queues.len() <= JOB_QUEUES_MAX && doc.queues.keys().all(|name| id(name.as_str().as_bytes())));
    for job in doc.submissions() {
        let named = [job.id.as_str(), job.series.as_str(), job.kind.as_str(), job.queue.as_str()];
        assert!(named.iter().all(|name| id(name.as_bytes())));
        assert!(job.payload.len() <= JOB_PAYLOAD_MAX_BYTES && job.priority <= JOB_PRIORITY_MAX);
        assert!(!job.state.is_final() && job.worker.is_none(), "nothing has happened to it");
    }
    let again = OrdersCodec.write(stamp, &doc, &kept);
    let (envelope, read, carried) = OrdersCodec.read(&again).expect("our own");
    assert_eq!((envelope, &read), (stamp, &doc));
    assert_eq!(OrdersCodec.write(stamp, &read, &carried), again);
    assert_kept(&json(body), &json(&again), &REQUESTS_FIELDS);
    true
}

/// `jobs/output/<folder>/<job>/<attempt>.json`.
pub fn output(body: &[u8]) -> bool {
    let output = match JobOutput::parse(body) {
        Ok(output) => output,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    assert!([output.job.as_str(), output.worker.as_str()].iter().all(|name| id(name.as_bytes())));
    let all = output.pieces();
    for seen in [0, 1, output.bytes / 2, output.bytes.saturating_sub(1), u64::MAX] {
        let rest = output.pieces_after(seen);
        assert!(rest.len() <= all.len() && (seen > 0 || rest == all));
    }
    let shown = serde_json::to_value(&output).expect("maps with text keys always serialize");
    assert!(shown["first"].is_array() && shown["last"].is_array());
    true
}

/// A leader takes over the ledger, with a store that does as it is told and workers that do nothing.
fn lead(stamp: Stamp, doc: &LedgerDoc) {
    let config = DispatcherConfig {
        incarnation: Incarnation(u64::MAX),
        epoch: stamp.epoch,
        shards: 1,
        entries_max: 8,
        fast_ms: 100,
        slow_ms: 1000,
        orders_ms: 1000,
        claim_timeout_ms: 3000,
        margin_ms: 1000,
        retire_ms: 60_000,
        keep_finished: 2,
        history: crate::job::history_limits(std::time::Duration::from_secs(60)),
        notify_all: true,
    };
    let mut dispatcher = Dispatcher::new(config, Candidates::default());
    let mut store = (stamp, doc.clone(), BTreeMap::new(), 1);
    let workers = doc.jobs.iter().flat_map(|job| job.worker.iter().chain(&job.target));
    let list: BTreeMap<WorkerId, bool> = workers.map(|worker| (worker.clone(), true)).collect();
    let workers = DispatchCommand::Workers { list, listed: true, whole: true };
    dispatcher.handle(at(Time(0)), Input::Command(workers), &mut Vec::new());
    let mut now = Time(1);
    for _ in 0..STEPS {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "it never rests");
            let mut out = Vec::new();
            dispatcher.handle(at(now), Input::Wake, &mut out);
            if !answer(&mut dispatcher, now, &mut store, out) {
                break;
            }
        }
        now = match dispatcher.wake_at() {
            Some(at) if at < Time(u64::MAX) => at,
            Some(_) | None => break,
        };
    }
}

fn at(now: Time) -> Now {
    Now { at: now, wall_ms: 0 }
}

fn named(number: u64) -> Version {
    Version::new(&number.to_string())
}

type Leading = Dispatcher<Candidates>;

type Objects = (Stamp, LedgerDoc, BTreeMap<WorkerId, (Stamp, InboxDoc, u64)>, u64);

/// Returns whether anything was asked for.
fn answer(dispatcher: &mut Leading, now: Time, store: &mut Objects, out: Vec<Out<Leading>>) -> bool {
    let (stamp, ledger, inboxes, number) = store;
    let mut asked = false;
    for effect in out {
        let Effect::Request(id, request) = effect else { continue };
        asked = true;
        *number += 1;
        let won = WriteAnswer::Won(named(*number));
        let answer = match request {
            DispatchRequest::Ledger(part, DocumentRequest::Read { .. }) => {
                let read = Read::Found { stamp: *stamp, body: ledger.clone(), version: named(1) };
                DispatchAnswer::Ledger(part, DocumentAnswer::Read(read))
            }
            DispatchRequest::Ledger(part, DocumentRequest::Write { stamp: by, body, .. }) => {
                (*stamp, *ledger) = (by, body);
                DispatchAnswer::Ledger(part, DocumentAnswer::Written(won))
            }
            DispatchRequest::Ledger(_, DocumentRequest::Remove) => panic!("it removes no ledger"),
            DispatchRequest::Orders(_) => DispatchAnswer::Orders(DocumentAnswer::Read(Read::Absent)),
            DispatchRequest::ListInboxes => {
                let line = |(worker, (_, _, number)): (&WorkerId, &(Stamp, InboxDoc, u64))| InboxListed {
                    worker: worker.clone(),
                    version: Some(named(*number)),
                    stamp: (*number, 1),
                };
                DispatchAnswer::Listed(Some(inboxes.iter().map(line).collect()))
            }
            DispatchRequest::Inbox(worker, request) => {
                let answer = match request {
                    DocumentRequest::Read { unless } => DocumentAnswer::Read(match inboxes.get(&worker) {
                        Some((_, _, number)) if unless == Some(named(*number)) => Read::Unchanged,
                        Some((stamp, body, number)) => {
                            Read::Found { stamp: *stamp, body: body.clone(), version: named(*number) }
                        }
                        None => Read::Absent,
                    }),
                    DocumentRequest::Write { stamp, body, .. } => {
                        inboxes.insert(worker.clone(), (stamp, body, *number));
                        DocumentAnswer::Written(won)
                    }
                    DocumentRequest::Remove => {
                        inboxes.remove(&worker);
                        DocumentAnswer::Removed(Removal::Gone)
                    }
                };
                DispatchAnswer::Inbox(worker, answer)
            }
            // A history of its own, in which nothing was before.
            DispatchRequest::HistoryHead(DocumentRequest::Read { .. }) => {
                DispatchAnswer::HistoryHead(DocumentAnswer::Read(Read::Absent))
            }
            DispatchRequest::HistoryPart(part, DocumentRequest::Read { .. }) => {
                DispatchAnswer::HistoryPart(part, DocumentAnswer::Read(Read::Absent))
            }
            DispatchRequest::HistoryHead(_) => DispatchAnswer::HistoryHead(DocumentAnswer::Written(won)),
            DispatchRequest::HistoryPart(part, _) => {
                DispatchAnswer::HistoryPart(part, DocumentAnswer::Written(won))
            }
            DispatchRequest::Keep(..) => DispatchAnswer::Kept(true),
            DispatchRequest::Recall(_) => DispatchAnswer::Recalled(None),
            DispatchRequest::Notices(DocumentRequest::Read { .. }) => {
                DispatchAnswer::Notices(DocumentAnswer::Read(Read::Absent))
            }
            DispatchRequest::Notices(_) => DispatchAnswer::Notices(DocumentAnswer::Written(won)),
            DispatchRequest::Deliver(_) => DispatchAnswer::Delivered(false),
        };
        dispatcher.handle(at(now), Input::Answer(id, answer), &mut Vec::new());
    }
    asked
}

/// A worker takes over the inbox, does the work at once, and leaves nothing unclaimed.
fn work(mut stamp: Stamp, doc: &InboxDoc) {
    let config = ClaimerConfig {
        incarnation: Incarnation(u64::MAX),
        concurrency: 2,
        serves: Arc::new(Serves::anything(3)),
        fast_ms: 100,
        slow_ms: 1000,
        progress_ms: 1000,
        linger_ms: 50,
    };
    let mut claimer = Claimer::new(config);
    let (mut doc, mut number) = (doc.clone(), 1_u64);
    let mut now = Time(1);
    for _ in 0..STEPS {
        let mut inputs = vec![Input::Wake];
        for round in 0.. {
            assert!(round < 10 * ROUNDS_MAX, "it never rests");
            let Some(input) = inputs.pop() else { break };
            let mut out = Vec::new();
            claimer.handle(at(now), input, &mut out);
            for effect in out {
                let inbox = |answer| ClaimerAnswer::Inbox(answer, BTreeSet::new());
                inputs.push(match effect {
                    Effect::Request(id, ClaimerRequest::Confirm) => {
                        Input::Answer(id, ClaimerAnswer::Confirmed(true))
                    }
                    Effect::Request(id, ClaimerRequest::Inbox(DocumentRequest::Read { unless }, _)) => {
                        let read = match unless == Some(named(number)) {
                            true => Read::Unchanged,
                            false => Read::Found { stamp, body: doc.clone(), version: named(number) },
                        };
                        Input::Answer(id, inbox(DocumentAnswer::Read(read)))
                    }
                    Effect::Request(
                        id,
                        ClaimerRequest::Inbox(DocumentRequest::Write { stamp: by, body, .. }, _),
                    ) => {
                        (stamp, doc, number) = (by, body, number + 1);
                        Input::Answer(id, inbox(DocumentAnswer::Written(WriteAnswer::Won(named(number)))))
                    }
                    Effect::Request(_, ClaimerRequest::Inbox(DocumentRequest::Remove, _)) => {
                        panic!("it removes nothing")
                    }
                    Effect::Output(ClaimerOutput::Run { id, dispatch, .. }) => {
                        let outcome = Outcome::bare(OutcomeKind::Succeeded);
                        Input::Command(ClaimerCommand::Ended { id, dispatch, outcome })
                    }
                    Effect::Output(ClaimerOutput::Cancel { .. } | ClaimerOutput::Drained) => continue,
                });
            }
        }
        now = match claimer.wake_at() {
            Some(at) if at < Time(u64::MAX) => at,
            Some(_) | None => break,
        };
    }
    let left = doc.entries.iter().filter(|entry| entry.state == EntryState::Dispatched).count();
    assert!(left == 0 || doc.entries.len() > STEPS, "{left} were left alone: {doc:?}");
}
