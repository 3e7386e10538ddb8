//! Job documents and the machines that read them: whatever a ledger or an inbox contains, leader and worker carry on.

use super::{assert_kept, assert_told, id};
use crate::job::{read_inbox, read_ledger, write_inbox, write_ledger};
use crate::wire::DETAIL_MAX_CHARS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Claimer, ClaimerConfig, ClaimerEffect, ClaimerInput, ClaimerRead, DispatchEffect, DispatchInput,
    DispatchRequest, Dispatcher, DispatcherConfig, EntryState, InboxDoc, InboxListed, InboxRead, Incarnation,
    JOB_PAYLOAD_MAX_BYTES, JOB_RESULT_MAX_BYTES, LedgerDoc, LedgerRead, Outcome, OutcomeKind, Time, Version,
    WriteAnswer,
};
use tenure_core::{JobId, WorkerId};

/// How often a machine is woken with one document.
const STEPS: usize = 40;

/// Most rounds a machine may take in one step.
const ROUNDS_MAX: usize = 100;

const LEDGER_FIELDS: [&str; 5] = ["v", "epoch", "nonce", "series", "jobs"];
const INBOX_FIELDS: [&str; 7] = ["v", "workerId", "epoch", "leader", "nonce", "closed", "entries"];

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("what was understood is JSON")
}

/// `jobs/ledger-<n>.json`.
pub fn ledger(body: &[u8]) -> bool {
    let (doc, carried) = match read_ledger(body) {
        Ok(read) => read,
        Err(detail) => {
            assert_told(&detail, DETAIL_MAX_CHARS + 1);
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
    let again = write_ledger(&doc, &carried);
    let (read, kept) = read_ledger(&again).expect("our own");
    assert_eq!(read, doc);
    assert_eq!(write_ledger(&read, &kept), again);
    assert_kept(&json(body), &json(&again), &LEDGER_FIELDS);
    lead(&doc);
    true
}

/// `jobs/inbox/<worker>.json`, under the key that it names itself.
pub fn inbox(body: &[u8]) -> bool {
    let named = serde_json::from_slice::<Value>(body).ok();
    let named = named.as_ref().and_then(|value| WorkerId::new(value.get("workerId")?.as_str()?).ok());
    let worker = named.unwrap_or_else(|| WorkerId::new("w1").expect("valid"));
    let (doc, carried) = match read_inbox(&worker, body) {
        Ok(read) => read,
        Err(detail) => {
            assert_told(&detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    let keys: BTreeSet<(JobId, u32)> = doc.entries.iter().map(|entry| entry.key()).collect();
    assert_eq!(keys.len(), doc.entries.len(), "an attempt stands there twice");
    for entry in &doc.entries {
        assert!(id(entry.id.as_str().as_bytes()) && id(entry.kind.as_str().as_bytes()));
        assert!(entry.payload.len() <= JOB_PAYLOAD_MAX_BYTES);
        if let EntryState::Finished { outcome } = &entry.state {
            assert!(outcome.result.len() <= JOB_RESULT_MAX_BYTES);
        }
    }
    let again = write_inbox(&worker, &doc, &carried);
    let (read, kept) = read_inbox(&worker, &again).expect("our own");
    assert_eq!(read, doc);
    assert_eq!(write_inbox(&worker, &read, &kept), again);
    assert_kept(&json(body), &json(&again), &INBOX_FIELDS);
    work(&doc);
    true
}

/// A leader takes over the ledger, with a store that does as it is told and workers that do nothing.
fn lead(doc: &LedgerDoc) {
    let config = DispatcherConfig {
        incarnation: Incarnation(u64::MAX),
        epoch: doc.epoch,
        shards: 1,
        entries_max: 8,
        fast_ms: 100,
        slow_ms: 1000,
        claim_timeout_ms: 3000,
        margin_ms: 1000,
        retire_ms: 60_000,
        keep_finished: 2,
    };
    let mut dispatcher = Dispatcher::new(config);
    let mut store = (doc.clone(), BTreeMap::new(), 1);
    let workers = doc.jobs.iter().flat_map(|job| job.worker.iter().chain(&job.target));
    let list: BTreeMap<WorkerId, bool> = workers.map(|worker| (worker.clone(), true)).collect();
    let somebody = list.keys().next().cloned();
    dispatcher.handle(Time(0), DispatchInput::Workers { list, listed: true, whole: true });
    let mut now = Time(1);
    for _ in 0..STEPS {
        dispatcher.handle(now, DispatchInput::Wake);
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "it never rests");
            let waiting: Vec<JobId> = dispatcher.unassigned(now).map(|job| job.id.clone()).collect();
            for (id, worker) in waiting.into_iter().zip(somebody.iter().cycle()) {
                dispatcher.handle(now, DispatchInput::Assign { id, worker: worker.clone() });
            }
            let mut out = Vec::new();
            dispatcher.advance(now, 0, &mut out);
            if !answer(&mut dispatcher, now, &mut store, out) {
                break;
            }
        }
        assert_eq!(dispatcher.table_fault(now), None);
        now = match dispatcher.wake_at(now) {
            Some(at) if at < Time(u64::MAX) => at,
            Some(_) | None => break,
        };
    }
}

type Objects = (LedgerDoc, BTreeMap<WorkerId, (InboxDoc, u64)>, u64);

/// Returns whether anything was asked for.
fn answer(dispatcher: &mut Dispatcher, now: Time, store: &mut Objects, out: Vec<DispatchEffect>) -> bool {
    let (ledger, inboxes, version) = store;
    let named = |number: u64| Version::new(&number.to_string());
    let mut asked = false;
    for effect in out {
        let DispatchEffect::Request(id, request) = effect else { continue };
        asked = true;
        *version += 1;
        let won = WriteAnswer::Won(named(*version));
        let input = match request {
            DispatchRequest::ReadLedger(shard) => {
                DispatchInput::Ledger(id, shard, LedgerRead::Found(ledger.clone(), named(1)))
            }
            DispatchRequest::WriteLedger(shard, doc, _) => {
                *ledger = doc;
                DispatchInput::LedgerWritten(id, shard, won)
            }
            DispatchRequest::ListInboxes => {
                let line = |(worker, (_, number)): (&WorkerId, &(InboxDoc, u64))| InboxListed {
                    worker: worker.clone(),
                    version: Some(named(*number)),
                    stamp: (*number, 0),
                };
                DispatchInput::Listed(id, Some(inboxes.iter().map(line).collect()))
            }
            DispatchRequest::ReadInbox(worker, unless) => {
                let read = match inboxes.get(&worker) {
                    Some((_, number)) if unless == Some(named(*number)) => InboxRead::Unchanged,
                    Some((doc, number)) => InboxRead::Found(doc.clone(), named(*number)),
                    None => InboxRead::Absent,
                };
                DispatchInput::Inbox(id, worker, read)
            }
            DispatchRequest::WriteInbox(worker, doc, _) => {
                inboxes.insert(worker.clone(), (doc, *version));
                DispatchInput::InboxWritten(id, worker, won)
            }
            DispatchRequest::RemoveInbox(worker) => {
                inboxes.remove(&worker);
                DispatchInput::InboxRemoved(id, worker, true)
            }
            DispatchRequest::Archive(shard, _) => DispatchInput::Archived(id, shard, true),
        };
        dispatcher.handle(now, input);
    }
    asked
}

/// A worker takes over the inbox, does the work at once, and leaves nothing unclaimed.
fn work(doc: &InboxDoc) {
    let config = ClaimerConfig {
        incarnation: Incarnation(u64::MAX),
        concurrency: 2,
        claims_max: 3,
        fast_ms: 100,
        slow_ms: 1000,
        linger_ms: 50,
    };
    let mut claimer = Claimer::new(config);
    let (mut doc, mut number) = (doc.clone(), 1_u64);
    let mut now = Time(1);
    for _ in 0..STEPS {
        let mut inputs = vec![ClaimerInput::Wake];
        for round in 0.. {
            assert!(round < 10 * ROUNDS_MAX, "it never rests");
            let Some(input) = inputs.pop() else { break };
            let mut out = Vec::new();
            claimer.handle(now, input, &mut out);
            for effect in out {
                let version = Version::new(&number.to_string());
                match effect {
                    ClaimerEffect::Read(id, unless) if unless == Some(version.clone()) => {
                        inputs.push(ClaimerInput::Read(id, ClaimerRead::Unchanged));
                    }
                    ClaimerEffect::Read(id, _) => {
                        let (doc, fenced) = (doc.clone(), BTreeSet::new());
                        inputs.push(ClaimerInput::Read(id, ClaimerRead::Found { doc, version, fenced }));
                    }
                    ClaimerEffect::Write(id, written, _) => {
                        (doc, number) = (written, number + 1);
                        let version = Version::new(&number.to_string());
                        inputs.push(ClaimerInput::Written(id, WriteAnswer::Won(version)));
                    }
                    ClaimerEffect::Confirm(id) => inputs.push(ClaimerInput::Confirmed(id, true)),
                    ClaimerEffect::Run { id, attempt, .. } => {
                        let outcome = Outcome::bare(OutcomeKind::Succeeded);
                        inputs.push(ClaimerInput::Ended { id, attempt, outcome });
                    }
                    ClaimerEffect::Cancel { .. } | ClaimerEffect::Drained => {}
                }
            }
        }
        now = match claimer.wake_at(now) {
            Some(at) if at < Time(u64::MAX) => at,
            Some(_) | None => break,
        };
    }
    let left = doc.entries.iter().filter(|entry| entry.state == EntryState::Dispatched).count();
    assert!(left == 0 || doc.entries.len() > STEPS, "{left} were left alone: {doc:?}");
}
