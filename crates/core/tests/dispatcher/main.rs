//! The dispatcher, told by hand. Here: answers that are not the ones it waits for, and two stories that went wrong once.

mod attempts;
mod desk;
mod inboxes;
mod judging;
mod leaving;
mod ledger;
mod looks;

use desk::{Core, Stored, Told};
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal};
use tenure_core::machine::{Effect, In, Input, Machine, Now};
use tenure_core::{
    DispatchAnswer, DispatchCommand, DispatchRequest, Dispatcher, DispatcherConfig, Entry, EntryState, Epoch,
    InboxDoc, InboxListed, Incarnation, JobId, JobLimits, JobRecord, JobState, KindName, LedgerDoc,
    RequestId, SeriesId, Time, Version, WorkerId, WriteAnswer,
};

fn at(now: Time) -> Now {
    Now { at: now, wall_ms: 0 }
}

fn tell(dispatcher: &mut Core, now: Time, input: In<Core>) {
    dispatcher.handle(at(now), input, &mut Vec::new());
}

fn command(dispatcher: &mut Core, now: Time, command: DispatchCommand<<Told as tenure_core::Assign>::Facts>) {
    tell(dispatcher, now, Input::Command(command));
}

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
fn serve(dispatcher: &mut Core, now: Time, versions: &mut u64) -> Vec<RequestId> {
    let mut put_away = Vec::new();
    for round in 0.. {
        assert!(round < 500, "it never rests");
        let mut out = Vec::new();
        dispatcher.handle(at(now), Input::Wake, &mut out);
        let mut asked = false;
        for effect in out {
            let Effect::Request(id, request) = effect else { continue };
            asked = true;
            *versions += 1;
            let won = WriteAnswer::Won(Version::new(&versions.to_string()));
            let answer = match request {
                DispatchRequest::Ledger(part, DocumentRequest::Read { .. }) => {
                    DispatchAnswer::Ledger(part, DocumentAnswer::Read(Read::Absent))
                }
                DispatchRequest::Ledger(part, _) => {
                    DispatchAnswer::Ledger(part, DocumentAnswer::Written(won))
                }
                DispatchRequest::ListInboxes => DispatchAnswer::Listed(Some(Vec::new())),
                DispatchRequest::Archive(..) => {
                    put_away.push(id);
                    continue;
                }
                // Nobody looks at any inbox.
                DispatchRequest::Inbox(worker, request) => {
                    let answer = match request {
                        DocumentRequest::Read { .. } => DocumentAnswer::Read(Read::Unchanged),
                        DocumentRequest::Write { .. } => DocumentAnswer::Written(won),
                        DocumentRequest::Remove => DocumentAnswer::Removed(Removal::Gone),
                    };
                    DispatchAnswer::Inbox(worker, answer)
                }
            };
            tell(dispatcher, now, Input::Answer(id, answer));
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
    let (mut dispatcher, mut versions, now) = (Dispatcher::new(config(), Told::default()), 0, Time(1000));
    serve(&mut dispatcher, now, &mut versions);
    let id = JobId::new("t1").expect("valid");
    command(&mut dispatcher, now, DispatchCommand::Submit(vec![(1, job(&id))]));
    serve(&mut dispatcher, now, &mut versions);
    command(&mut dispatcher, now, DispatchCommand::Cancel(id));
    serve(&mut dispatcher, now, &mut versions);
    // What is over is looked for now and then.
    let now = Time(5000);
    let first = serve(&mut dispatcher, now, &mut versions);
    assert_eq!(first.len(), 1, "it is over, and nobody has it");
    for (stranger, done) in [(first[0].0 + 50, false), (first[0].0 - 1, true)] {
        tell(&mut dispatcher, now, Input::Answer(RequestId(stranger), DispatchAnswer::Archived(0, done)));
        let again = serve(&mut dispatcher, now, &mut versions);
        assert_eq!(again, [], "one batch of a shard is put away at a time");
    }
    tell(&mut dispatcher, now, Input::Answer(first[0], DispatchAnswer::Archived(0, true)));
    assert_eq!(serve(&mut dispatcher, now, &mut versions), []);
    assert_eq!(dispatcher.jobs().count(), 0);
}

#[test]
fn a_job_that_nobody_claims_expires_however_often_it_was_dispatched() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig { keep_finished: 9, ..config() }, Told::default());
    let (mut versions, id) = (0, JobId::new("t1").expect("valid"));
    serve(&mut dispatcher, Time(1000), &mut versions);
    let workers = [WorkerId::new("w1").expect("valid"), WorkerId::new("w2").expect("valid")];
    let list = workers.iter().map(|worker| (worker.clone(), true)).collect();
    let workers_known = DispatchCommand::Workers { list, listed: true, whole: true };
    command(&mut dispatcher, Time(1000), workers_known);
    command(&mut dispatcher, Time(1000), DispatchCommand::Submit(vec![(1, job(&id))]));
    let mut ended = None;
    for now in (1000..200_000).step_by(100).map(Time) {
        for worker in &workers {
            command(&mut dispatcher, now, DispatchCommand::Facts((id.clone(), Ok(worker.clone()))));
            serve(&mut dispatcher, now, &mut versions);
        }
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
    let config = DispatcherConfig { epoch: Epoch(2), keep_finished: 9, ..config() };
    let mut dispatcher = Dispatcher::new(config, Told::default());
    // Nothing more is ever heard of the workers: there are none.
    let nobody = DispatchCommand::Workers { list: Default::default(), listed: true, whole: true };
    command(&mut dispatcher, Time(1000), nobody);
    let record = JobRecord {
        state: JobState::Dispatched,
        attempt: 1,
        worker: Some(worker.clone()),
        epoch: Epoch(1),
        ..job(&id)
    };
    let ledger = LedgerDoc { series: vec![(record.series.clone(), 1)], jobs: vec![record] };
    let ledger = Stored::of(ledger, 1, Incarnation(3));
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
    let mut inbox = Stored::of(InboxDoc { closed: None, entries: vec![entry] }, 1, Incarnation(3));
    let mut versions = 1_u64;
    for now in (1000..20_000).step_by(100).map(Time) {
        let mut out = Vec::new();
        dispatcher.handle(at(now), Input::Wake, &mut out);
        for effect in out {
            let Effect::Request(id, request) = effect else { continue };
            let there = versions.to_string();
            let won = WriteAnswer::Won(Version::new(&(versions + 1).to_string()));
            let answer = match request {
                DispatchRequest::Ledger(part, DocumentRequest::Read { .. }) => {
                    DispatchAnswer::Ledger(part, DocumentAnswer::Read(ledger.found(&there)))
                }
                DispatchRequest::Ledger(part, _) => {
                    versions += 1;
                    DispatchAnswer::Ledger(part, DocumentAnswer::Written(won))
                }
                DispatchRequest::ListInboxes => {
                    let line = InboxListed { worker: worker.clone(), version: None, stamp: (versions, 1) };
                    DispatchAnswer::Listed(Some(vec![line]))
                }
                DispatchRequest::Inbox(worker, DocumentRequest::Read { .. }) => {
                    DispatchAnswer::Inbox(worker, DocumentAnswer::Read(inbox.found(&there)))
                }
                DispatchRequest::Inbox(worker, request @ DocumentRequest::Write { .. }) => {
                    versions += 1;
                    inbox = desk::inbox_written(DispatchRequest::Inbox(worker.clone(), request));
                    DispatchAnswer::Inbox(worker, DocumentAnswer::Written(won))
                }
                DispatchRequest::Archive(..) | DispatchRequest::Inbox(..) => panic!("{request:?}"),
            };
            tell(&mut dispatcher, now, Input::Answer(id, answer));
        }
    }
    let states: Vec<JobState> = dispatcher.jobs().map(|record| record.state).collect();
    assert_eq!(states, [JobState::Lost], "nobody is there to end what was claimed");
}
