//! What a leader does with its part of the ledger: takes it over, keeps it, lets go of it.

use crate::dispatcher::driver::*;
use std::sync::Arc;
use tenure_core::JobId;
use tenure_core::document::*;
use tenure_core::machine::Input;
use tenure_core::*;

#[test]
fn a_leader_reads_adopts_and_lists_before_it_is_ready() {
    let mut driver = Driver::after(vec![job("t1")], Vec::new());
    assert_eq!((driver.open.len(), driver.at()), (1, None), "an answer will come");
    assert_eq!(driver.answer("read ledger"), ["write ledger 0 over 1: t1 queued"]);
    assert_eq!(driver.core.unassigned(Time(1000)).count(), 0, "it is not the leader's own yet");
    assert_eq!(driver.answer("write ledger"), ["list"]);
    assert!(!driver.core.is_ready(), "what is in inboxes is not known");
    assert_eq!(driver.core.unassigned(Time(1000)).count(), 0);
    assert_eq!(driver.answer("list"), [""; 0]);
    assert!(driver.core.is_ready());
    assert_eq!(driver.core.unassigned(Time(1000)).count(), 1);
    assert_eq!(driver.asked(), 1, "somebody is looked for at once");
    assert_eq!(driver.core.open(), (1, 0));
}

#[test]
fn the_jobs_it_finds_keep_what_they_are_and_are_not_told_again() {
    let finished = JobRecord { state: JobState::Failed, dispatch: 1, ..job("t1") };
    let mut driver = Driver::after(vec![finished.clone(), job("t2")], Vec::new());
    let said = driver.serve();
    assert_eq!(said, ["write ledger 0 over 1: t1 failed, t2 queued", "list"]);
    assert_eq!(driver.record("t1"), &finished);
    assert_eq!(driver.core.counts(), DispatchCounts::default());
}

#[test]
fn a_job_in_the_wrong_shard_is_left_out_and_counted() {
    let mut driver = Driver::new(DispatcherConfig { shards: 2, ..config() });
    // Of the two series one belongs into the other shard.
    let series = [name("a"), name("b")];
    assert_eq!([job_shard(&series[0], 2), job_shard(&series[1], 2)], [0, 1]);
    let jobs = ["t1", "t2"].iter().zip(&series);
    let jobs = jobs.map(|(id, series)| JobRecord { series: series.clone(), ..job(id) }).collect();
    driver.left(jobs, Vec::new());
    driver.wake(1000);
    driver.serve();
    assert_eq!(driver.core.jobs().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["t1"]);
    assert_eq!(driver.core.counts().rejected, 1);
}

#[test]
fn a_read_without_an_answer_is_repeated_after_pauses_that_double_up_to_ten_seconds() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    assert_eq!(driver.ledger_read(Read::Unavailable), [""; 0]);
    let mut before = 1000;
    for pause in [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
        assert_eq!(driver.at(), Some(before + pause));
        assert_eq!(driver.wake(before + pause - 1), [""; 0]);
        before += pause;
        assert_eq!(driver.wake(before), ["read ledger 0"]);
        assert_eq!(driver.ledger_read(Read::Unavailable), [""; 0]);
    }
    driver.wake(before + 10_000);
    assert_eq!(driver.ledger_read(Read::Absent), ["write ledger 0 new: "]);
    assert_eq!(driver.written("write ledger", WriteAnswer::Unavailable), [""; 0]);
    assert_eq!(driver.at(), Some(driver.now + 200), "the count began anew");
}

#[test]
fn a_list_without_an_answer_is_repeated_after_a_second() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    driver.answer("read ledger");
    assert_eq!(driver.answer("write ledger"), ["list"]);
    assert_eq!(driver.unanswered("list"), [""; 0]);
    assert_eq!((driver.at(), driver.wake(1999)), (Some(2000), Vec::new()));
    assert_eq!(driver.wake(2000), ["list"]);
    assert_eq!(driver.at(), None);
    assert_eq!(driver.tell(2000, list_answer(RequestId(999), Some(Vec::new()))), [""; 0], "nobody's");
    assert!(!driver.core.is_ready());
    assert_eq!(driver.answer("list"), [""; 0]);
    assert!(driver.core.is_ready());
}

#[test]
fn what_cannot_be_read_is_left_alone_and_looked_at_every_ten_seconds() {
    let mut driver = Driver::new(config());
    driver.wake(1000);
    assert_eq!(driver.ledger_read(nonsense()), ["list"]);
    assert_eq!((driver.core.blocked_shards(), driver.core.counts().rejected), (1, 1));
    assert_eq!(driver.submit(1000, vec![job("t1")]), ["#1 Blocked"]);
    driver.serve();
    assert!(driver.core.is_ready(), "as far as there is something to be ready for");
    assert_eq!(driver.at(), Some(11_000));
    driver.wake(11_000);
    assert_eq!(driver.ledger_read(nonsense()), [""; 0]);
    assert_eq!((driver.core.counts().rejected, driver.at()), (1, Some(21_000)), "that is no news");
    driver.wake(21_000);
    assert_eq!(driver.ledger_read(Read::Absent), ["write ledger 0 new: "]);
    assert_eq!(driver.core.blocked_shards(), 0);
}

#[test]
fn a_write_of_unknown_outcome_is_read_back_and_counts_if_it_landed() {
    let mut driver = Driver::ready(config());
    assert_eq!(driver.submit(2000, vec![job("t1")]), ["write ledger 0 over 1: t1 queued"]);
    let (_, request) = driver.open[0].clone();
    assert_eq!(driver.written("write ledger", WriteAnswer::Unknown), [""; 0]);
    assert_eq!((driver.at(), driver.wake(2199)), (Some(2200), Vec::new()));
    assert_eq!(driver.wake(2200), ["read ledger 0"]);
    let doc = ledger_written(request);
    let found = doc.found("2");
    assert_eq!(driver.ledger_read(found), ["#1 Created", "= t1 queued"]);
    assert_eq!(driver.pass(2300), [""; 0], "nothing is written again");
}

#[test]
fn a_write_of_unknown_outcome_that_did_not_land_is_written_again() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.written("write ledger", WriteAnswer::Unknown);
    driver.wake(2200);
    assert_eq!(driver.answer("read ledger"), ["write ledger 0 over 1: t1 queued"]);
    assert_eq!(driver.answer("write ledger"), ["#1 Created", "= t1 queued"]);
}

#[test]
fn eight_writes_of_unknown_outcome_are_remembered() {
    for (landed, counts) in [(1, false), (2, true)] {
        let mut driver = Driver::ready(config());
        driver.submit(2000, vec![job("t1")]);
        let mut written = Vec::new();
        for _ in 0..9 {
            let (_, request) = driver.open[0].clone();
            let doc = ledger_written(request);
            written.push(doc);
            driver.written("write ledger", WriteAnswer::Unknown);
            driver.wake(driver.at().expect("a pause"));
            if written.len() < 9 {
                driver.answer("read ledger");
            }
        }
        let found = written[landed - 1].clone().found("2");
        let said = driver.ledger_read(found);
        let expected: &[&str] =
            if counts { &["#1 Created", "= t1 queued"] } else { &["write ledger 0 over 2: t1 queued"] };
        assert_eq!(said, expected, "write {landed} had landed");
    }
}

#[test]
fn a_refused_write_is_looked_into_and_a_newer_leader_ends_it() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    let newer = Stored::of(LedgerDoc::default(), 3, FORMER);
    driver.ledgers.insert(0, (newer, 99));
    assert_eq!(driver.answer("write ledger"), ["read ledger 0"], "at once");
    driver.submit(2000, vec![job("t2")]);
    assert_eq!(driver.answer("read ledger"), ["#1 Ended", "#2 Ended", "ended"]);
    assert_eq!((driver.core.is_ready(), driver.at()), (false, None));
    assert_eq!(driver.submit(2000, vec![job("t3")]), ["#3 Ended", "ended"], "whoever asks is answered");
    assert_eq!(driver.assign(2000, "t1", "w1"), ["ended"]);
    assert_eq!(driver.core.unassigned(Time(2000)).count(), 0);
}

#[test]
fn another_dispatcher_of_the_same_epoch_ends_it_too() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.ledgers.insert(0, (Stored::of(LedgerDoc::default(), 2, Incarnation(8)), 99));
    driver.answer("write ledger");
    assert_eq!(driver.answer("read ledger"), ["#1 Ended", "ended"]);
}

#[test]
fn a_former_leaders_last_write_before_the_adoption_counts() {
    let mut driver = Driver::after(vec![job("t1")], Vec::new());
    driver.answer("read ledger");
    // Meanwhile it created one more.
    driver.left(vec![job("t1"), job("t2")], Vec::new());
    assert_eq!(driver.answer("write ledger"), ["read ledger 0"]);
    assert_eq!(driver.serve(), ["write ledger 0 over 2: t1 queued, t2 queued", "list"]);
    assert_eq!(driver.core.jobs().count(), 2);
}

#[test]
fn a_ledger_that_somebody_removed_is_written_again_from_memory() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    driver.ledgers.clear();
    driver.submit(2100, vec![job("t2")]);
    assert_eq!(driver.answer("write ledger"), ["read ledger 0"]);
    assert_eq!(driver.answer("read ledger"), ["write ledger 0 new: t1 queued, t2 queued"]);
    driver.serve();
    // Also when nothing new is to be said.
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    let (_, request) = driver.open[0].clone();
    driver.written("write ledger", WriteAnswer::Unknown);
    driver.wake(2200);
    let doc = ledger_written(request);
    driver.ledger_read(doc.found("2"));
    driver.submit(2300, vec![job("t2")]);
    driver.written("write ledger", WriteAnswer::Lost);
    assert_eq!(driver.ledger_read(Read::Absent), ["write ledger 0 new: t1 queued, t2 queued"]);
}

#[test]
fn while_a_write_is_under_way_the_next_one_waits() {
    let mut driver = Driver::ready(config());
    assert_eq!(driver.submit(2000, vec![job("t1")]), ["write ledger 0 over 1: t1 queued"]);
    assert_eq!(driver.submit(2000, vec![job("t2")]), [""; 0]);
    let said = driver.answer("write ledger");
    assert_eq!(said, ["write ledger 0 over 2: t1 queued, t2 queued", "#1 Created", "= t1 queued"]);
    assert_eq!(driver.answer("write ledger"), ["#2 Created", "= t2 queued"], "each once it stands there");
    assert_eq!(driver.core.counts().created, 2);
}

#[test]
fn an_answer_to_another_request_is_not_the_ledgers() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    let won = WriteAnswer::Won(Version::new("9"));
    assert_eq!(driver.tell(2000, ledger_answer(RequestId(99), 0, DocumentAnswer::Written(won))), [""; 0]);
    assert_eq!(
        driver.tell(2000, ledger_answer(RequestId(99), 0, DocumentAnswer::Read(Read::Absent))),
        [""; 0]
    );
    assert_eq!(driver.answer("write ledger"), ["#1 Created", "= t1 queued"]);
}

#[test]
fn a_new_job_begins_at_the_beginning_whatever_was_submitted() {
    let mut driver = Driver::ready(config());
    let odd = JobRecord {
        state: JobState::Succeeded,
        dispatch: 5,
        unbegun: 4,
        worker: Some(name("w9")),
        epoch: Epoch(9),
        cancel: true,
        given_up: true,
        result: Arc::from(*b"r"),
        late: vec![LateResult { attempt: 1, worker: name("w9"), kind: OutcomeKind::Failed }],
        ..job("t1")
    };
    driver.submit(2000, vec![odd]);
    driver.serve();
    assert_eq!(driver.record("t1"), &JobRecord { epoch: Epoch(2), submitted_ms: 2000, ..job("t1") });
}

#[test]
fn what_exists_is_not_created_again_and_is_answered_once_it_stands_there() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    assert_eq!(driver.submit(2000, vec![job("t1")]), [""; 0]);
    assert_eq!(driver.serve(), ["#1 Created", "#2 Exists", "= t1 queued"]);
    assert_eq!(driver.submit(2000, vec![job("t1")]), ["#3 Exists"], "it does");
    let counts = driver.core.counts();
    assert_eq!((counts.created, counts.duplicates), (1, 2));
}

fn job_at(id: &str, series: &str, watermark: u64) -> JobRecord {
    JobRecord { series: name(series), watermark, ..job(id) }
}

#[test]
fn a_series_does_not_go_back_behind_its_watermark() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job_at("t5", "s", 5)]);
    driver.serve();
    assert_eq!(driver.submit(2000, vec![job_at("t4", "s", 4)]), ["#2 BelowWatermark"]);
    assert_eq!(driver.submit(2000, vec![job_at("t5b", "s", 5)]), ["#3 BelowWatermark"]);
    assert_eq!(driver.core.counts().duplicates, 2);
    assert_eq!(driver.submit(2000, vec![job_at("t6", "s", 6), job_at("t0", "s", 0)]).len(), 1);
    driver.serve();
    assert_eq!(
        driver.core.series().collect::<Vec<_>>(),
        [(&name("s"), 6)],
        "one without a watermark leaves it"
    );
    assert_eq!(driver.core.counts().created, 3);
    assert_eq!(driver.ledgers[&0].0.series, [(name("s"), 6)]);
}

#[test]
fn series_of_shards_that_are_not_its_own_are_not_told() {
    let mut driver = Driver::new(config());
    driver.left(Vec::new(), Vec::new());
    driver.ledgers.get_mut(&0).expect("left").0.series = vec![(name("s"), 3)];
    driver.wake(1000);
    driver.answer("read ledger");
    assert_eq!(driver.core.series().count(), 0, "found, not adopted");
    driver.serve();
    assert_eq!(driver.core.series().count(), 1);
}

#[test]
fn a_series_is_forgotten_when_nothing_of_it_is_left_and_no_later_watermark_was_used() {
    let mut driver = Driver::ready(DispatcherConfig { keep_finished: 0, ..config() });
    driver.submit(2000, vec![job_at("t5", "s", 5), job_at("u3", "u", 3)]);
    driver.serve();
    let forget =
        |series: &str, upto: u64| Input::Command(DispatchCommand::Forget(vec![(name(series), upto)]));
    assert_eq!(driver.all(2000, forget("s", 5)), [""; 0], "a job of it is there");
    driver.all(2000, cancel("t5"));
    let story = driver.pass(3000);
    assert_eq!(story, ["3000 write ledger 0 over 3: u3 queued"], "forgotten");
    assert_eq!(driver.all(3000, forget("s", 4)), [""; 0], "a later watermark was used");
    assert_eq!(driver.all(3000, forget("v", 4)), [""; 0], "nobody knows it");
    assert_eq!(driver.all(3000, forget("s", 5)), ["write ledger 0 over 4: u3 queued"]);
    assert_eq!(driver.core.series().collect::<Vec<_>>(), [(&name("u"), 3)]);
    assert!(driver.submit(3000, vec![job_at("t4", "s", 4)])[0].starts_with("write ledger"), "as if new");
}

#[test]
fn nothing_is_forgotten_of_a_shard_that_is_not_its_own() {
    let mut driver = Driver::new(config());
    driver.left(Vec::new(), Vec::new());
    driver.ledgers.get_mut(&0).expect("left").0.series = vec![(name("s"), 3)];
    driver.wake(1000);
    driver.answer("read ledger");
    driver.tell(1000, Input::Command(DispatchCommand::Forget(vec![(name("s"), 3)])));
    driver.serve();
    assert_eq!(driver.core.series().count(), 1);
}

#[test]
fn a_shard_takes_five_hundred_series_and_no_more() {
    let mut driver = Driver::ready(config());
    driver.left(Vec::new(), Vec::new());
    let mut driver = Driver::new(config());
    driver.left(Vec::new(), Vec::new());
    let series = (0..JOB_SERIES_MAX - 1).map(|number| (name(&format!("s{number}")), 1)).collect();
    driver.ledgers.get_mut(&0).expect("left").0.series = series;
    driver.wake(1000);
    driver.serve();
    let records =
        vec![job_at("a", "one", 1), job_at("b", "two", 1), job_at("c", "two", 0), job_at("d", "s0", 2)];
    let said = driver.submit(1000, records);
    assert_eq!(said[0], "#2 Full", "a series more than it takes; the others need no new one");
    let told: Vec<String> = driver.serve().into_iter().filter(|word| word.starts_with('#')).collect();
    assert_eq!(told, ["#1 Created", "#3 Created", "#4 Created"]);
}

/// A job that takes exactly this much of a shard.
fn heavy(id: &str, weight: usize) -> JobRecord {
    let record = JobRecord { payload: vec![b'x'; weight - 2560].into(), ..job(id) };
    assert_eq!(record.weight(), weight);
    record
}

#[test]
fn a_shard_is_filled_to_its_last_byte_and_no_further() {
    let mut driver = Driver::ready(config());
    let half = JOB_OBJECT_MAX_WEIGHT / 2;
    let said = driver.submit(2000, vec![heavy("a", half), heavy("b", half), job("c")]);
    assert_eq!(said[0], "#3 Full");
    driver.serve();
    assert_eq!(driver.core.counts().created, 2);
    let mut driver = Driver::ready(config());
    let said = driver.submit(2000, vec![heavy("a", half), heavy("b", half + 1)]);
    assert_eq!(said[0], "#2 Full");
    // A payload that is needed no more makes room.
    driver.serve();
    driver.all(2000, cancel("a"));
    assert!(driver.submit(2000, vec![heavy("b", half + 1)])[0].starts_with("write ledger"));
}

#[test]
fn weights_count_what_may_come_to_it() {
    assert_eq!(heavy("a", 4000).payload.len(), 1440);
    let entry = entry("t1/1", EntryState::Dispatched);
    assert_eq!((entry.weight(), JOB_PAYLOAD_MAX_BYTES), (1 + 1024 + 768, 16_384));
    assert_eq!(JOB_OBJECT_MAX_WEIGHT, 491_520);
}

// ---- what is over leaves it ----

fn finished(driver: &mut Driver, now: u64, ids: &[String]) {
    driver.submit(now, ids.iter().map(|id| job(id)).collect());
    driver.serve();
    for id in ids {
        driver.tell(now, cancel(id));
    }
    driver.serve();
}

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

#[test]
fn finished_jobs_are_kept_up_to_a_number_and_the_older_half_is_forgotten() {
    let mut driver = Driver::ready(config());
    finished(&mut driver, 2000, &ids("a", 2));
    assert_eq!(driver.pass(9000), [""; 0], "so many are kept");
    finished(&mut driver, 9000, &ids("b", 1));
    // They are looked through every slow interval.
    let story = driver.pass(12_000);
    assert_eq!(story, ["10000 write ledger 0 over 6: b0 cancelled to be called off"]);
    assert_eq!(driver.core.jobs().count(), 1);
}

#[test]
fn the_oldest_are_forgotten_first_and_by_their_watermarks() {
    let mut driver = Driver::ready(DispatcherConfig { keep_finished: 3, ..config() });
    let batch = |driver: &mut Driver, now: u64, records: Vec<JobRecord>| {
        let ids: Vec<JobId> = records.iter().map(|record| record.id.clone()).collect();
        driver.submit(now, records);
        driver.serve();
        ids.into_iter().for_each(|id| drop(driver.tell(now, cancel(id.as_str()))));
    };
    batch(&mut driver, 2000, vec![job_at("z", "z", 9)]);
    driver.serve();
    batch(&mut driver, 2100, vec![job_at("a", "s", 7), job_at("c", "u", 5), job_at("b", "t", 6)]);
    driver.serve();
    let story = driver.pass(4000);
    let left: Vec<&str> = driver.core.jobs().map(|record| record.id.as_str()).collect();
    assert_eq!(left, ["a", "b"], "{story:?}");
}

#[test]
fn a_crowded_shard_forgets_what_is_over_from_eight_on() {
    let mut driver = Driver::ready(DispatcherConfig { keep_finished: 100, ..config() });
    let open = JOB_OBJECT_MAX_WEIGHT / 2 - 8 * 2560;
    driver.submit(2000, vec![heavy("open", open)]);
    finished(&mut driver, 2000, &ids("a", 7));
    assert_eq!(driver.pass(4000), [""; 0]);
    finished(&mut driver, 4000, &ids("b", 1));
    assert_eq!(driver.pass(6000), [""; 0], "half full to the byte");
    driver.submit(6000, vec![heavy("more", 2560)]);
    driver.serve();
    driver.wake(6100);
    let left: Vec<&str> = driver.core.jobs().map(|record| record.id.as_str()).collect();
    assert_eq!(left, ["a4", "a5", "a6", "b0", "more", "open"]);
}

#[test]
fn a_crowded_shard_with_seven_that_are_over_waits() {
    let mut driver = Driver::ready(DispatcherConfig { keep_finished: 100, ..config() });
    driver.submit(2000, vec![heavy("open", JOB_OBJECT_MAX_WEIGHT / 2)]);
    finished(&mut driver, 2000, &ids("a", 7));
    assert_eq!(driver.pass(4000), [""; 0]);
    finished(&mut driver, 4000, &ids("b", 1));
    let story = driver.pass(4200);
    assert!(story[0].starts_with("4100 write ledger 0 over 7: a4 "), "in a hurry: {story:?}");
}

/// A result whose entry stands in an inbox.
fn result_in_inbox(driver: &mut Driver, now: u64, id: &str) {
    driver.dispatch(now, job(id), "w1");
    driver.says("w1", &format!("{id}/1"), done(OutcomeKind::Succeeded));
    driver.pass(now + 200);
    assert_eq!(driver.state(id), JobState::Succeeded);
}

#[test]
fn what_still_stands_in_an_inbox_is_not_forgotten() {
    let mut driver = Driver::ready(DispatcherConfig { keep_finished: 0, entries_max: 8, ..config() });
    result_in_inbox(&mut driver, 2000, "t1");
    let began = driver.now;
    let story = driver.pass(began + 3000);
    // Looked at every slow interval, in vain.
    assert_eq!(driver.core.jobs().count(), 1, "{story:?}");
    let story = driver.pass(began + 6000);
    let told: Vec<&String> = story.iter().filter(|line| !line.ends_with(" .")).collect();
    assert_eq!(told.len(), 2, "{story:?}");
    assert!(told[0].contains("write w1 over") && told[1].contains("write ledger 0 over 7: "), "{story:?}");
}

#[test]
fn a_shard_that_is_half_full_to_the_byte_is_in_no_hurry() {
    for (more, pause) in [(0, 1000), (1, 100)] {
        let mut driver = Driver::ready(DispatcherConfig { keep_finished: 0, entries_max: 8, ..config() });
        driver.submit(1500, vec![heavy("open", JOB_OBJECT_MAX_WEIGHT / 2 - 2560 + more)]);
        driver.serve();
        driver.tell(1500, explain("open", ""));
        result_in_inbox(&mut driver, 2000, "t1");
        driver.pass(4000);
        let before = driver.now;
        let looked = driver.pass(before + 1000).len();
        assert_eq!(looked as u64, 1000 / pause, "{more} more");
    }
}

// ---- why something waits ----

#[test]
fn why_a_job_waits_is_written_with_the_next_change_or_once_it_has_lasted() {
    let mut driver = Driver::ready(config());
    driver.submit(2000, vec![job("t1")]);
    driver.serve();
    assert_eq!(driver.tell(2100, explain("t1", "nobody")), [""; 0]);
    assert_eq!(&*driver.record("t1").reason, "nobody");
    assert_eq!(driver.tell(2600, explain("t1", "nobody can")), [""; 0], "another reason does not put it off");
    assert_eq!(driver.pass(4000), ["3100 write ledger 0 over 2: t1 queued"]);
    assert_eq!(&*driver.ledgers[&0].0.jobs[0].reason, "nobody can");
    assert_eq!(driver.tell(4100, explain("t1", "nobody can")), [""; 0]);
    assert_eq!(driver.pass(9000), [""; 0], "that is no news");
    // With the next write it goes along.
    driver.tell(9000, explain("t1", "really nobody"));
    driver.submit(9100, vec![job("t2")]);
    driver.serve();
    assert_eq!(&*driver.ledgers[&0].0.jobs[0].reason, "really nobody");
    assert_eq!(driver.pass(12_000), [""; 0]);
}

#[test]
fn only_what_waits_has_a_reason_to() {
    let mut driver = Driver::ready(config());
    driver.dispatch(2000, job("t1"), "w1");
    driver.tell(2100, explain("t1", "nobody"));
    assert_eq!(&*driver.record("t1").reason, "");
}

#[test]
fn a_reason_is_not_written_to_a_shard_that_is_not_its_own() {
    let mut driver = Driver::after(vec![job("t1")], Vec::new());
    driver.answer("read ledger");
    driver.tell(1000, explain("t1", "nobody"));
    driver.written("write ledger", WriteAnswer::Lost);
    driver.ledger_read(nonsense());
    driver.serve();
    assert_eq!(driver.pass(10_999), ["2000 ."], "it is left alone");
}
