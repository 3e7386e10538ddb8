//! The dispatcher, told by hand. Here: answers that are not the ones it waits for, and two stories that went wrong once.

mod attempts;
mod desk;
mod inboxes;
mod judging;
mod leaving;
mod ledger;
mod looks;

use std::sync::Arc;
use tenure_core::{
    DispatchEffect, DispatchInput, DispatchRequest, Dispatcher, DispatcherConfig, Entry, EntryState, Epoch,
    InboxDoc, InboxListed, InboxRead, Incarnation, JobLimits, JobRecord, JobState, LedgerDoc, LedgerRead,
    Nonce, RequestId, Time, Version, WriteAnswer,
};
use tenure_core::{JobId, KindName, SeriesId, WorkerId};

fn job(id: &JobId) -> JobRecord {
    JobRecord {
        id: id.clone(),
        series: SeriesId::new(id.as_str()).expect("valid"),
        watermark: 1,
        kind: KindName::new("k").expect("valid"),
        payload: Arc::from(*b"x"),
        limits: JobLimits {
            timeout_ms: 1000,
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

/// Answers what the dispatcher asks until it asks nothing more; what it wanted put away, by number.
fn serve(dispatcher: &mut Dispatcher, now: Time, versions: &mut u64) -> Vec<RequestId> {
    let mut put_away = Vec::new();
    for round in 0.. {
        assert!(round < 500, "it never rests");
        let mut out = Vec::new();
        dispatcher.advance(now, 0, &mut out);
        let mut asked = false;
        for effect in out {
            let DispatchEffect::Request(id, request) = effect else { continue };
            asked = true;
            *versions += 1;
            let version = Version::new(&versions.to_string());
            let input = match request {
                DispatchRequest::ReadLedger(shard) => DispatchInput::Ledger(id, shard, LedgerRead::Absent),
                DispatchRequest::WriteLedger(shard, ..) => {
                    DispatchInput::LedgerWritten(id, shard, WriteAnswer::Won(version))
                }
                DispatchRequest::ListInboxes => DispatchInput::Listed(id, Some(Vec::new())),
                DispatchRequest::Archive(..) => {
                    put_away.push(id);
                    continue;
                }
                // Nobody looks at any inbox.
                DispatchRequest::ReadInbox(worker, _) => {
                    DispatchInput::Inbox(id, worker, InboxRead::Unchanged)
                }
                DispatchRequest::WriteInbox(worker, ..) => {
                    DispatchInput::InboxWritten(id, worker, WriteAnswer::Won(version))
                }
                DispatchRequest::RemoveInbox(worker) => DispatchInput::InboxRemoved(id, worker, true),
            };
            dispatcher.handle(now, input);
        }
        if !asked {
            break;
        }
    }
    put_away
}

fn config() -> DispatcherConfig {
    DispatcherConfig {
        incarnation: Incarnation(7),
        epoch: Epoch(1),
        shards: 1,
        entries_max: 4,
        fast_ms: 100,
        slow_ms: 1000,
        claim_timeout_ms: 3000,
        margin_ms: 1000,
        retire_ms: 3_600_000,
        keep_finished: 0,
    }
}

#[test]
fn an_answer_that_is_nobodys_does_not_put_jobs_away_again() {
    let (mut dispatcher, mut versions, now) = (Dispatcher::new(config()), 0, Time(1000));
    serve(&mut dispatcher, now, &mut versions);
    let id = JobId::new("t1").expect("valid");
    dispatcher.handle(now, DispatchInput::Submit(vec![(1, job(&id))]));
    serve(&mut dispatcher, now, &mut versions);
    dispatcher.handle(now, DispatchInput::Cancel(id));
    serve(&mut dispatcher, now, &mut versions);
    // What is over is looked for now and then.
    let now = Time(5000);
    let first = serve(&mut dispatcher, now, &mut versions);
    assert_eq!(first.len(), 1, "it is over, and nobody has it");
    for (stranger, done) in [(first[0].0 + 50, false), (first[0].0 - 1, true)] {
        dispatcher.handle(now, DispatchInput::Archived(RequestId(stranger), 0, done));
        let again = serve(&mut dispatcher, now, &mut versions);
        assert_eq!(again, [], "one batch of a shard is put away at a time");
    }
    dispatcher.handle(now, DispatchInput::Archived(first[0], 0, true));
    assert_eq!(serve(&mut dispatcher, now, &mut versions), []);
    assert_eq!(dispatcher.jobs().count(), 0);
}

#[test]
fn a_job_that_nobody_claims_expires_however_often_it_was_dispatched() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig { keep_finished: 9, ..config() });
    let (mut versions, id) = (0, JobId::new("t1").expect("valid"));
    serve(&mut dispatcher, Time(1000), &mut versions);
    let workers = [WorkerId::new("w1").expect("valid"), WorkerId::new("w2").expect("valid")];
    let list = workers.iter().map(|worker| (worker.clone(), true)).collect();
    dispatcher.handle(Time(1000), DispatchInput::Workers { list, listed: true, whole: true });
    dispatcher.handle(Time(1000), DispatchInput::Submit(vec![(1, job(&id))]));
    let mut ended = None;
    for now in (1000..200_000).step_by(100).map(Time) {
        for worker in &workers {
            dispatcher.handle(now, DispatchInput::Assign { id: id.clone(), worker: worker.clone() });
        }
        serve(&mut dispatcher, now, &mut versions);
        let record = dispatcher.jobs().next().expect("it is kept").clone();
        if record.state.is_final() {
            ended = Some((now, record));
            break;
        }
    }
    let (at, record) = ended.expect("its ttl is a minute");
    assert_eq!(record.state, JobState::Expired);
    assert!(record.attempt > 10 && record.begun() == 0, "dispatched {} times", record.attempt);
    assert!((60_000..63_000).contains(&at.since(Time(1000))), "{at:?}");
}

#[test]
fn a_worker_that_was_gone_before_its_inbox_was_known_is_gone() {
    let id = JobId::new("t1").expect("valid");
    let worker = WorkerId::new("w1").expect("valid");
    let mut dispatcher = Dispatcher::new(DispatcherConfig { epoch: Epoch(2), keep_finished: 9, ..config() });
    // Nothing more is ever heard of the workers: there are none.
    dispatcher
        .handle(Time(1000), DispatchInput::Workers { list: Default::default(), listed: true, whole: true });
    let nonce = Nonce { incarnation: Incarnation(3), sequence: 1 };
    let record = JobRecord {
        state: JobState::Dispatched,
        attempt: 1,
        worker: Some(worker.clone()),
        epoch: Epoch(1),
        ..job(&id)
    };
    let ledger =
        LedgerDoc { epoch: Epoch(1), nonce, series: vec![(record.series.clone(), 1)], jobs: vec![record] };
    let entry = Entry {
        id: id.clone(),
        attempt: 1,
        epoch: Epoch(1),
        dispatched_at: 0,
        kind: KindName::new("k").expect("valid"),
        payload: Arc::from(*b"x"),
        timeout_ms: 1000,
        state: EntryState::Acked { by: Incarnation(9) },
        cancel: false,
    };
    let mut inbox =
        InboxDoc { epoch: Epoch(1), leader: Incarnation(3), nonce, closed: None, entries: vec![entry] };
    let mut versions = 1_u64;
    for now in (1000..20_000).step_by(100).map(Time) {
        let mut out = Vec::new();
        dispatcher.handle(now, DispatchInput::Wake);
        dispatcher.advance(now, 0, &mut out);
        for effect in out {
            let DispatchEffect::Request(id, request) = effect else { continue };
            let there = Version::new(&versions.to_string());
            versions += u64::from(matches!(
                request,
                DispatchRequest::WriteLedger(..) | DispatchRequest::WriteInbox(..)
            ));
            let version = Version::new(&versions.to_string());
            let stamp = (versions, 1);
            dispatcher.handle(
                now,
                match request {
                    DispatchRequest::ReadLedger(shard) => {
                        DispatchInput::Ledger(id, shard, LedgerRead::Found(ledger.clone(), there))
                    }
                    DispatchRequest::WriteLedger(shard, ..) => {
                        DispatchInput::LedgerWritten(id, shard, WriteAnswer::Won(version))
                    }
                    DispatchRequest::ListInboxes => {
                        let line = InboxListed { worker: worker.clone(), version: None, stamp };
                        DispatchInput::Listed(id, Some(vec![line]))
                    }
                    DispatchRequest::ReadInbox(worker, _) => {
                        DispatchInput::Inbox(id, worker, InboxRead::Found(inbox.clone(), there))
                    }
                    DispatchRequest::WriteInbox(worker, doc, _) => {
                        inbox = doc;
                        DispatchInput::InboxWritten(id, worker, WriteAnswer::Won(version))
                    }
                    DispatchRequest::Archive(..) | DispatchRequest::RemoveInbox(_) => panic!("{request:?}"),
                },
            );
        }
    }
    let states: Vec<JobState> = dispatcher.jobs().map(|record| record.state).collect();
    assert_eq!(states, [JobState::Lost], "nobody is there to end what was claimed");
}
