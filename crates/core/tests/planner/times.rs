//! Due times of an interval, the chance in them, and names.

use super::{MIN, START, id};
use std::collections::BTreeMap;
use tenure_core::{DueTimes, Interval, Misfire, ScheduleId};

const HALF_MINUTES: Interval = Interval { every_ms: 30_000, offset_ms: 5000, jitter_ms: 700 };
/// The last full second there is.
const LAST: u64 = u64::MAX - 615;

fn seconds(offset_ms: u64) -> Interval {
    Interval { every_ms: 1000, offset_ms, jitter_ms: 0 }
}

#[test]
fn a_policy_keeps_none_one_or_as_many_as_it_says() {
    let kept = [Misfire::Skip, Misfire::RunOnce, Misfire::CatchUp(0), Misfire::CatchUp(7)].map(Misfire::kept);
    assert_eq!(kept, [0, 1, 0, 7]);
}

#[test]
fn a_policy_is_told_as_it_is_written() {
    let told = [Misfire::Skip, Misfire::RunOnce, Misfire::CatchUp(12)].map(|misfire| misfire.to_string());
    assert_eq!(told, ["skip", "run_once", "catch_up(12)"]);
}

#[test]
fn a_job_is_named_after_its_schedule_and_its_due_time() {
    let job = |schedule: &str, due_ms| id::<ScheduleId>(schedule).job(due_ms).map(|job| job.to_string());
    assert_eq!(job("web", 60_060_000).as_deref(), Ok("web-60060000"));
    assert_eq!(job("a-1", 0).as_deref(), Ok("a-1-0"));
    assert!(job(&"x".repeat(128), 0).is_err(), "too long for an id");
}

#[test]
fn the_next_due_time_is_later_than_the_moment_asked_about() {
    let next = [0, 4999, 5000, 5001, 34_999, 35_000, 94_999, 95_000].map(|after| HALF_MINUTES.next(after));
    let expected = [5000, 5000, 35_000, 35_000, 35_000, 65_000, 95_000, 125_000].map(Some);
    assert_eq!(next, expected);
}

#[test]
fn without_an_offset_1970_itself_is_over() {
    assert_eq!((seconds(0).next(0), seconds(0).next(999)), (Some(1000), Some(1000)));
    assert_eq!(seconds(0).newest(0, 2000, 9), [1000, 2000]);
}

#[test]
fn nothing_follows_the_last_due_time_there_is() {
    assert_eq!((seconds(0).next(LAST - 1), seconds(0).next(LAST)), (Some(LAST), None));
    assert_eq!(seconds(0).next(u64::MAX), None);
    // Here the multiple still is a number, and with the offset no longer.
    assert_eq!((seconds(700).next(LAST - 301), seconds(700).next(LAST - 300)), (Some(LAST - 300), None));
    assert_eq!(seconds(700).next(u64::MAX), None);
}

#[test]
fn the_newest_come_in_order_with_the_end_and_without_the_beginning() {
    let newest = |after, until, count| HALF_MINUTES.newest(after, until, count);
    assert_eq!(newest(5000, 95_000, 9), [35_000, 65_000, 95_000]);
    assert_eq!(newest(4999, 94_999, 9), [5000, 35_000, 65_000]);
    assert_eq!(newest(0, 5000, 9), [5000]);
    assert_eq!(newest(35_000, 64_999, 9), [0; 0]);
}

#[test]
fn of_too_many_the_oldest_are_left_out() {
    assert_eq!(HALF_MINUTES.newest(5000, 95_000, 2), [65_000, 95_000]);
    assert_eq!(HALF_MINUTES.newest(5000, 99_000, 1), [95_000]);
    assert_eq!(HALF_MINUTES.newest(5000, 95_000, 0), [0; 0]);
}

#[test]
fn before_the_offset_nothing_is_due() {
    assert_eq!(HALF_MINUTES.newest(0, 4999, 9), [0; 0]);
    assert_eq!(HALF_MINUTES.count(0, 4999, 9), 0);
}

#[test]
fn until_before_after_there_is_nothing() {
    assert_eq!(HALF_MINUTES.newest(95_000, 5000, 9), [0; 0]);
    assert_eq!(HALF_MINUTES.count(95_000, 5000, 9), 0);
}

#[test]
fn the_newest_there_are_can_be_named() {
    assert_eq!(seconds(0).newest(0, u64::MAX, 2), [LAST - 1000, LAST]);
    assert_eq!(seconds(700).newest(0, u64::MAX, 1), [LAST - 300]);
}

#[test]
fn it_counts_what_it_names() {
    for (after, until) in
        [(5000, 95_000), (4999, 94_999), (0, 5000), (0, 4999), (35_000, 64_999), (0, 1_000_000)]
    {
        let named = HALF_MINUTES.newest(after, until, 1000).len() as u64;
        assert_eq!(HALF_MINUTES.count(after, until, 1000), named, "after {after} until {until}");
    }
    assert_eq!(HALF_MINUTES.count(5000, 95_000, 9), 3);
    assert_eq!(HALF_MINUTES.count(5000, 1_205_000, 99), 40);
}

#[test]
fn it_counts_no_further_than_it_is_asked_to() {
    assert_eq!(HALF_MINUTES.count(5000, 95_000, 2), 2);
    assert_eq!(HALF_MINUTES.count(0, u64::MAX, 10), 10);
    assert_eq!(HALF_MINUTES.count(5000, 95_000, 0), 0);
}

#[test]
fn without_jitter_a_job_begins_when_it_is_due() {
    let begins: Vec<u64> = (0..50).map(|n| seconds(0).begins_ms("web", START + n * 1000)).collect();
    assert_eq!(begins, (0..50).map(|n| START + n * 1000).collect::<Vec<_>>());
    assert_eq!(seconds(0).jitter_max_ms(), 0);
}

#[test]
fn jitter_takes_every_value_up_to_its_greatest_and_none_beyond() {
    let times = Interval { every_ms: MIN, offset_ms: 0, jitter_ms: 3 };
    let mut taken = BTreeMap::new();
    for n in 0..400 {
        let due_ms = START + n * MIN;
        *taken.entry(times.begins_ms("web", due_ms) - due_ms).or_insert(0) += 1;
    }
    assert_eq!(taken.keys().copied().collect::<Vec<u64>>(), [0, 1, 2, 3]);
    assert!(taken.values().all(|count| *count > 60), "none is rare: {taken:?}");
    assert_eq!((times.jitter_max_ms(), HALF_MINUTES.jitter_max_ms()), (3, 700));
}

/// Leaders of different builds must agree about these, or each creates at another time: they may not change.
#[test]
fn chance_is_the_same_in_every_build() {
    let times = Interval { every_ms: MIN, offset_ms: 0, jitter_ms: 30_000 };
    let later = |name: &str, due_ms| times.begins_ms(name, due_ms) - due_ms;
    let web: Vec<u64> = (0..8).map(|n| later("web", START + n * MIN)).collect();
    assert_eq!(web, [25_782, 9376, 3746, 16_538, 10_598, 14_612, 15_025, 23_998]);
    let db: Vec<u64> = (0..8).map(|n| later("db", START + n * MIN)).collect();
    assert_eq!(db, [16_269, 19_931, 8696, 3894, 9110, 3554, 23_280, 18_042], "another name, another chance");
    // All 64 bits of it.
    let all = Interval { every_ms: u64::MAX, offset_ms: 0, jitter_ms: u64::MAX - 1 };
    assert_eq!(all.begins_ms("web", 0), 13_322_606_672_055_189_531);
    assert_eq!(all.begins_ms("", 0), 10_387_271_504_037_580_375);
}

#[test]
fn at_the_end_of_time_a_job_begins_at_its_last_moment() {
    let times = Interval { every_ms: MIN, offset_ms: 0, jitter_ms: 30_000 };
    assert_eq!(times.begins_ms("web", u64::MAX), u64::MAX);
}
