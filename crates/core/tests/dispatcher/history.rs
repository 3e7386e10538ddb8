//! What is over, and where it is found: the head, the parts, the chunks.

use super::driver::{Driver, HISTORY, cancel, config, done, job};
use std::collections::BTreeSet;
use tenure_core::machine::Input;
use tenure_core::{
    DispatchAnswer, DispatcherConfig, Epoch, HistoryKey, HistoryRow, Incarnation, JobId, JobRecord, JobState,
    Kept, OutcomeKind,
};

fn forgetful() -> DispatcherConfig {
    DispatcherConfig { keep_finished: 0, ..config() }
}

fn historic(config: DispatcherConfig) -> Driver {
    let mut driver = Driver::ready(config);
    driver.is_history = true;
    driver
}

/// Jobs that end at this time, one after the other.
fn end(driver: &mut Driver, now: u64, ids: &[&str]) {
    driver.submit(now, ids.iter().map(|id| job(id)).collect());
    driver.serve();
    ids.iter().for_each(|id| drop(driver.all(now, cancel(id))));
}

/// Every row of a key on the store, each once, oldest first.
fn rows(driver: &Driver, key: &HistoryKey) -> Vec<HistoryRow> {
    let mut found: Vec<HistoryRow> = Vec::new();
    if let Some((part, _)) = driver.parts.get(&key.part(HISTORY.parts)) {
        for chunk in part.chunks.get(key).into_iter().flatten() {
            let Some(Kept::Rows(rows)) = driver.kept.get(&chunk.name) else { panic!("no chunk {chunk:?}") };
            assert_eq!(rows.len(), chunk.rows as usize);
            assert_eq!((rows[0].number, rows[rows.len() - 1].number), chunk.numbers);
            found.extend(rows.iter().map(|row| HistoryRow::clone(row)));
        }
        found.extend(part.rows.get(key).into_iter().flatten().map(|row| HistoryRow::clone(row)));
    }
    let known: BTreeSet<u64> = found.iter().map(|row| row.number).collect();
    assert_eq!(known.len(), found.len(), "a row stands twice: {found:?}");
    for (number, record) in driver.head.values().flat_map(|(head, _)| &head.jobs) {
        let row = HistoryRow::of(*number, record, &"".into());
        if !known.contains(number) && row.keys().contains(key) {
            found.push(row);
        }
    }
    assert!(found.is_sorted_by_key(|row| row.number), "{found:?}");
    found
}

fn ids(rows: &[HistoryRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

#[test]
pub(crate) fn hi2_a_job_is_recorded_once_the_ledger_has_it_as_over_and_only_then() {
    let mut driver = historic(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    let said = driver.tell(2000, cancel("t1"));
    assert_eq!(said, ["write ledger 0 over 2: t1 cancelled to be called off"], "it is not over on the store");
    let said = driver.answer("write ledger");
    assert!(said.contains(&"write history: t1".to_owned()), "{said:?}");
    let (_, request) = driver.take("write history");
    let tenure_core::DispatchRequest::HistoryHead(tenure_core::document::DocumentRequest::Write {
        body, ..
    }) = request
    else {
        panic!("{request:?}")
    };
    let (_, record) = &body.jobs[0];
    assert_eq!((record.state, record.ending, record.ended_ms), (JobState::Cancelled, 1, 2000));
}

#[test]
pub(crate) fn hi2_a_job_leaves_the_ledger_only_once_the_history_has_it() {
    let mut driver = historic(forgetful());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    driver.tell(2000, cancel("t1"));
    driver.answer("write ledger");
    let (id, _) = driver.take("write history");
    driver.pass_without_answers(9000);
    assert_eq!(driver.core.jobs().count(), 1, "nobody knows whether the history has it");
    let unknown = DispatchAnswer::HistoryHead(tenure_core::document::DocumentAnswer::Written(
        tenure_core::WriteAnswer::Unknown,
    ));
    driver.tell(9000, Input::Answer(id, unknown));
    driver.pass(30_000);
    assert_eq!(driver.core.jobs().count(), 0);
    assert_eq!(ids(&rows(&driver, &HistoryKey::all())), ["t1"]);
}

#[test]
pub(crate) fn hi2_every_job_is_found_by_queue_state_series_and_id_however_many_there_are() {
    let mut driver = historic(forgetful());
    let mut expected: Vec<String> = Vec::new();
    for round in 0..40_u64 {
        let now = 2000 + round * 1000;
        let fresh: Vec<String> = (0..3).map(|number| format!("j{round}-{number}")).collect();
        let names: Vec<&str> = fresh.iter().map(String::as_str).collect();
        end(&mut driver, now, &names);
        driver.pass(now + 500);
        expected.extend(fresh);
        assert_eq!(ids(&rows(&driver, &HistoryKey::all())), expected, "after round {round}");
    }
    for key in [HistoryKey::queue(&"default".parse().expect("valid")), HistoryKey::state(JobState::Cancelled)]
    {
        assert_eq!(ids(&rows(&driver, &key)), expected, "{key:?}");
    }
    assert_eq!(rows(&driver, &HistoryKey::state(JobState::Failed)), []);
    let id: JobId = "j7-1".parse().expect("valid");
    let found =
        rows(&driver, &HistoryKey::id(&id)).into_iter().find(|row| row.id == id).expect("it is found");
    let Some(Kept::Jobs(batch)) = driver.kept.get(&found.batch) else { panic!("no batch") };
    assert!(batch.iter().any(|record| record.id == id && record.state == JobState::Cancelled));
    let series = HistoryKey::series(&"s".parse().expect("valid"));
    assert_eq!(rows(&driver, &series).len(), expected.len());
    let runs = &driver.parts[&series.part(HISTORY.parts)].0.runs[&"s".parse().expect("valid")];
    assert_eq!(runs.states.len(), 30);
    let small = driver.parts.values().all(|(part, _)| part.rows.values().map(Vec::len).sum::<usize>() < 40);
    assert!(small, "parts do not grow");
}

/// Leaders that end anywhere: whatever reached the store of what they did, the next one goes on, and nothing is there twice.
#[test]
pub(crate) fn hi2_a_leader_that_ends_anywhere_loses_nothing_and_repeats_nothing() {
    for cut in 0..60 {
        let mut driver = historic(forgetful());
        for round in 0..4_u64 {
            end(&mut driver, 2000 + round * 100, &[&format!("a{round}"), &format!("b{round}")]);
        }
        driver.submit(3000, vec![job("c1"), job("c2"), job("c3")]);
        driver.serve();
        ["c1", "c2", "c3"].iter().for_each(|id| drop(driver.tell(3000, cancel(id))));
        // So many requests reach the store, in turn the oldest and the newest; half of the answers are lost.
        for step in 0..cut {
            let at = if step % 2 == 0 { 0 } else { driver.open.len().saturating_sub(1) };
            if driver.open.is_empty() {
                break;
            }
            let (id, request) = driver.open.remove(at);
            let answer = driver.outcome(request);
            if step + 1 < cut {
                driver.tell(3000, Input::Answer(id, answer));
            }
        }
        let mut next = driver.succeeded_by(DispatcherConfig {
            epoch: Epoch(3),
            incarnation: Incarnation(8),
            ..forgetful()
        });
        next.pass(20_000);
        end(&mut next, 20_000, &["d1", "d2", "d3", "d4", "d5", "d6", "d7"]);
        next.pass(60_000);
        let mut found =
            ids(&rows(&next, &HistoryKey::all())).iter().map(ToString::to_string).collect::<Vec<_>>();
        found.sort();
        let all = ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"];
        for id in all {
            assert_eq!(found.iter().filter(|other| *other == id).count(), 1, "{id} after {cut}: {found:?}");
        }
        for id in ["c1", "c2", "c3"] {
            let over = next.core.jobs().all(|record| record.id.as_str() != id || record.state.is_final());
            let count = found.iter().filter(|other| *other == id).count();
            assert_eq!(count, usize::from(over), "{id} after {cut}: {found:?}");
        }
    }
}

#[test]
fn hi2_what_is_tried_again_after_it_was_recorded_is_recorded_again() {
    let mut driver = historic(DispatcherConfig { orders_ms: 1000, ..config() });
    driver.is_ordered = true;
    let mut record = job("t1");
    record.limits.attempts_max = 1;
    driver.dispatch(2000, record, "w1");
    driver.says("w1", "t1/1", done(OutcomeKind::Failed));
    driver.pass(4000);
    assert_eq!(driver.state("t1"), JobState::Failed);
    assert_eq!(ids(&rows(&driver, &HistoryKey::state(JobState::Failed))), ["t1"], "at once");
    let retried = JobRecord {
        retries: 1,
        limits: tenure_core::JobLimits { attempts_max: 2, ..job("t1").limits },
        ..driver.record("t1").clone()
    };
    driver.order(vec![tenure_core::Order::Retry(retried)]);
    let until = driver.now + 5000;
    driver.pass(until);
    assert_eq!(driver.state("t1"), JobState::Queued);
    driver.all(until, cancel("t1"));
    driver.pass(until + 3000);
    assert_eq!(ids(&rows(&driver, &HistoryKey::all())), ["t1", "t1"], "both ends");
}

#[test]
fn hi2_an_unreadable_head_does_not_keep_jobs_in_the_ledger_for_ever() {
    let mut driver = Driver::new(forgetful());
    driver.is_history = true;
    driver.workers(1000, &["w1"]);
    let (id, _) = driver.take("read history");
    let nonsense =
        DispatchAnswer::HistoryHead(tenure_core::document::DocumentAnswer::Read(super::driver::nonsense()));
    driver.tell(1000, Input::Answer(id, nonsense));
    driver.serve_but("read history");
    driver.submit(2000, vec![job("t1")]);
    driver.serve_but("read history");
    driver.tell(2000, cancel("t1"));
    driver.serve_but("read history");
    driver.wake(4000);
    assert_eq!(driver.core.jobs().count(), 0);
}
