//! When it wants to be asked again, and clocks that jump.

use super::{
    MIN, START, TERMS, create, due_times, every_minute, jittery, job, missed, nth, planner, round, run, web,
};
use tenure_core::{DueTimes, Interval, JobAnswer, Misfire, ScheduleTerms};

fn ten_seconds_later(name: &str) -> super::Round {
    super::Round {
        interval: Interval { every_ms: MIN, offset_ms: 10_000, jitter_ms: 0 },
        ..round(name, ScheduleTerms { open_max: 9, ..TERMS })
    }
}

#[test]
fn it_is_asked_again_at_the_next_due_time() {
    let mut planner = every_minute(TERMS);
    for (now_ms, next_ms) in
        [(START - 1, nth(1)), (START, nth(1)), (nth(1) - 1, nth(1)), (nth(1), nth(2)), (nth(1) + 1, nth(2))]
    {
        assert_eq!(every_minute(TERMS).next_ms(now_ms), Some(next_ms), "at {now_ms}, before the first plan");
        run(&mut planner, now_ms);
        assert_eq!(planner.next_ms(now_ms), Some(next_ms), "at {now_ms}, after the plan");
    }
}

#[test]
fn it_is_asked_again_at_the_earliest_of_all() {
    let mut planner = planner([round("web", TERMS), ten_seconds_later("db")]);
    assert_eq!(planner.next_ms(START + 20_000), Some(nth(1)));
    planner.plan(START + 20_000);
    assert_eq!(planner.next_ms(START + 20_000), Some(nth(1)));
    planner.plan(nth(1));
    assert_eq!(planner.next_ms(nth(1)), Some(nth(1) + 10_000));
    planner.plan(nth(1) + 10_000);
    assert_eq!(planner.next_ms(nth(1) + 10_000), Some(nth(2)));
}

#[test]
fn what_is_due_now_is_not_what_is_next() {
    let mut planner = planner([round("web", TERMS), ten_seconds_later("db")]);
    planner.plan(START + 20_000);
    assert_eq!(planner.next_ms(nth(1) - 1), Some(nth(1)));
    assert_eq!(planner.next_ms(nth(1)), Some(nth(1) + 10_000));
    assert_eq!(planner.next_ms(nth(1) + 10_000), None, "it has yet to plan what comes then");
}

#[test]
fn nobody_is_asked_again_where_nothing_is_planned() {
    assert_eq!(planner([]).next_ms(START), None);
    let mut planner = every_minute(ScheduleTerms { enabled: false, ..TERMS });
    assert_eq!(planner.next_ms(START), None);
    planner.plan(START);
    assert_eq!(planner.next_ms(START), None);
}

#[test]
fn before_a_schedule_begins_its_first_due_time_is_next() {
    let mut planner = every_minute(TERMS);
    assert_eq!(planner.plan(START - 10 * MIN), []);
    assert_eq!(planner.next_ms(START - 10 * MIN), Some(nth(1)));
}

#[test]
fn what_begins_later_by_jitter_is_next_until_it_begins() {
    let round = jittery(TERMS);
    let begins_ms = |n: u64| round.interval.begins_ms("web", nth(n));
    let planner = planner([round.clone()]);
    for (now_ms, n) in [
        (START, 1),
        (nth(1), 1),
        (begins_ms(1) - 1, 1),
        (begins_ms(1), 2),
        (begins_ms(1) + 1, 2),
        (nth(2) - 1, 2),
        (nth(2), 2),
    ] {
        assert_eq!(planner.next_ms(now_ms), Some(begins_ms(n)), "at {now_ms}");
        assert_eq!(
            planner.view(&web(), now_ms).and_then(|view| view.next_ms),
            Some(begins_ms(n)),
            "at {now_ms}"
        );
    }
}

#[test]
fn asked_only_when_it_wants_to_be_it_misses_nothing() {
    let rounds =
        [jittery(ScheduleTerms { open_max: 99, misfire_threshold_ms: 0, ..TERMS }), ten_seconds_later("db")];
    let (mut planner, mut now_ms, mut web_jobs, mut db_jobs) = (planner(rounds), START, 0, 0);
    while let Some(next_ms) = planner.next_ms(now_ms).filter(|next_ms| *next_ms < nth(20)) {
        assert!(next_ms > now_ms);
        now_ms = next_ms;
        let dues = planner.plan(now_ms);
        assert_eq!(dues.len(), 1, "at {now_ms}");
        for due in &dues {
            assert_eq!(due.late_ms, 0);
            planner.answered(due, JobAnswer::Created);
            planner.note(&due.schedule, &due.schedule.job(due.due_ms).expect("valid"), false);
            *(if due.schedule == web() { &mut web_jobs } else { &mut db_jobs }) += 1;
        }
    }
    assert_eq!((web_jobs, db_jobs, missed(&planner)), (19, 20, 0));
}

/// The ledger has not answered yet.
#[test]
fn what_was_asked_for_is_not_asked_for_again_at_the_same_moment() {
    let mut planner = every_minute(TERMS);
    assert_eq!(due_times(&planner.plan(nth(1))), [nth(1)]);
    assert_eq!(planner.plan(nth(1)), []);
    assert_eq!(planner.plan(nth(1) + 1), []);
}

#[test]
fn a_clock_that_was_put_back_is_believed() {
    let mut planner = every_minute(ScheduleTerms { open_max: 99, misfire: Misfire::CatchUp(99), ..TERMS });
    // An hour ahead; the ledger heard of nothing that it wanted.
    assert_eq!(planner.plan(nth(60)).len(), 60);
    assert_eq!(planner.next_ms(nth(60)), Some(nth(61)));
    assert_eq!(planner.plan(nth(1) - 1), []);
    assert_eq!(planner.next_ms(nth(1) - 1), Some(nth(1)));
    assert_eq!(due_times(&planner.plan(nth(1))), [nth(1)]);
}

#[test]
fn a_clock_that_was_put_back_creates_nothing_twice() {
    let mut planner = every_minute(ScheduleTerms { misfire: Misfire::CatchUp(5), ..TERMS });
    for n in 1..=10 {
        assert_eq!(run(&mut planner, nth(n)), [nth(n)]);
    }
    for second in 0..359 {
        assert_eq!(run(&mut planner, nth(5) + second * 1000), [0; 0]);
    }
    assert_eq!(run(&mut planner, nth(11)), [nth(11)]);
    assert_eq!(missed(&planner), 0);
}

#[test]
fn a_new_leader_with_a_slow_clock_asks_for_what_exists_and_creates_nothing() {
    let mut planner = every_minute(ScheduleTerms { misfire: Misfire::CatchUp(5), ..TERMS });
    // The leader before it created up to the tenth, and all of them have ended.
    let mut created = Vec::new();
    for second in 0..=360 {
        let now_ms = nth(5) + second * 1000;
        for due in planner.plan(now_ms) {
            let answer = if due.due_ms <= nth(10) { JobAnswer::Existed } else { JobAnswer::Created };
            planner.answered(&due, answer);
            created.extend((answer == JobAnswer::Created).then_some(due.due_ms));
        }
    }
    assert_eq!(created, [nth(11)]);
    assert_eq!((planner.counts().duplicates, missed(&planner)), (10, 0));
}

#[test]
fn how_far_a_watermark_is_ahead_of_the_clock_is_shown() {
    let mut planner = every_minute(TERMS);
    planner.observe([(&web().series(), &job(10), nth(10), false)]);
    let view = |now_ms| planner.view(&web(), now_ms).expect("known");
    assert_eq!((view(nth(6)).ahead_ms, view(nth(6)).next_ms), (4 * MIN, Some(nth(11))));
    assert_eq!((view(nth(10) - 1).ahead_ms, view(nth(10)).ahead_ms, view(nth(12)).ahead_ms), (1, 0, 0));
    assert_eq!(view(nth(6)).watermark_ms, nth(10));
}

/// A clock that was put ahead and back: what lay between was decided about, and stays so for this leader.
#[test]
fn what_was_given_up_by_a_wrong_clock_stays_given_up() {
    let mut planner = every_minute(ScheduleTerms { misfire: Misfire::Skip, ..TERMS });
    run(&mut planner, nth(1));
    assert_eq!(planner.plan(nth(60) + 30_000), []);
    assert_eq!(missed(&planner), 59);
    assert_eq!(planner.plan(nth(2)), []);
    assert_eq!(planner.next_ms(nth(2)), Some(nth(61)));
    assert_eq!(create(&mut planner, nth(61)), [nth(61)]);
}

#[test]
fn a_clock_that_is_put_forward_has_missed_what_lies_between() {
    let mut planner = every_minute(TERMS);
    assert_eq!(run(&mut planner, nth(1)), [nth(1)]);
    assert_eq!(run(&mut planner, nth(60) + 30_000), [nth(60)]);
    assert_eq!(missed(&planner), 58);
}
