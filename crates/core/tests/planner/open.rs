//! How many jobs are open, and what that keeps away.

use super::{
    Interval, Round, START, TERMS, blocked, create, due_times, every_minute, id, job, missed, nth, planner,
    round, run, web,
};
use tenure_core::{JobAnswer, JobId, Misfire, ScheduleTerms};

const TWO: ScheduleTerms = ScheduleTerms { open_max: 2, misfire: Misfire::CatchUp(4), ..TERMS };

#[test]
fn there_is_room_until_as_many_are_open_as_may_be() {
    let mut planner = every_minute(TWO);
    assert!(planner.has_room(&web()));
    planner.note(&web(), &job(1), true);
    assert!(planner.has_room(&web()));
    planner.note(&web(), &job(2), true);
    assert!(!planner.has_room(&web()));
    planner.note(&web(), &job(3), true);
    assert!(!planner.has_room(&web()), "more than may be: somebody else's");
    assert!(!planner.has_room(&id("unknown")));
}

#[test]
fn where_none_may_be_open_none_is_created() {
    let mut planner = every_minute(ScheduleTerms { open_max: 0, ..TERMS });
    assert!(!planner.has_room(&web()));
    assert_eq!(planner.plan(nth(1)), []);
    assert_eq!(blocked(&planner), 1);
}

#[test]
fn a_job_is_open_from_its_creation_whether_it_was_seen_or_not() {
    let mut planner = every_minute(ScheduleTerms { open_max: 9, ..TERMS });
    planner.observe([(&web().series(), &job(1), nth(1), true), (&web().series(), &job(2), nth(2), true)]);
    assert_eq!(create(&mut planner, nth(3)), [nth(3)]);
    assert_eq!(planner.view(&web(), nth(3)).map(|view| view.open), Some(3));
    assert_eq!([1, 2, 3, 4].map(|n| planner.is_open(&web(), &job(n))), [true, true, true, false]);
    assert!(!planner.is_open(&id("unknown"), &job(1)));
}

#[test]
fn the_open_jobs_of_all_schedules_add_up() {
    let mut planner = planner([round("web", TWO), round("db", TWO)]);
    assert_eq!(planner.open(), 0);
    planner.note(&web(), &job(1), true);
    planner.note(&web(), &job(2), true);
    planner.note(&id("db"), &id("db-1"), true);
    planner.note(&id("unknown"), &id("unknown-1"), true);
    assert_eq!(planner.open(), 3);
}

#[test]
fn as_far_as_there_is_room_the_oldest_goes_first() {
    let mut planner = every_minute(TWO);
    let now_ms = nth(5) + 30_000;
    assert_eq!(create(&mut planner, now_ms), [nth(2), nth(3)]);
    assert_eq!(create(&mut planner, now_ms + 1000), [0; 0]);
    planner.note(&web(), &job(2), false);
    assert_eq!(create(&mut planner, now_ms + 2000), [nth(4)]);
    planner.note(&web(), &job(3), false);
    planner.note(&web(), &job(4), false);
    assert_eq!(create(&mut planner, now_ms + 3000), [nth(5)]);
    assert_eq!(missed(&planner), 0);
}

#[test]
fn what_an_open_job_keeps_away_is_counted_once_each() {
    let mut planner = every_minute(TERMS);
    assert_eq!(create(&mut planner, nth(1)), [nth(1)]);
    for second in 1..=200 {
        planner.note(&web(), &job(1), true);
        assert_eq!(planner.plan(nth(1) + second * 1000), []);
        assert_eq!(blocked(&planner), second / 60, "after {second} s");
    }
    planner.observe([(&web().series(), &job(1), nth(1), true)]);
    assert_eq!(planner.plan(nth(1) + 200_000), []);
    assert_eq!(blocked(&planner), 3, "a whole look counts nothing anew");
}

#[test]
fn what_waited_for_an_open_job_follows_the_policy() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    assert_eq!(planner.plan(nth(2)), []);
    assert_eq!(planner.plan(nth(3)), []);
    assert_eq!(planner.plan(nth(4)), []);
    planner.note(&web(), &job(1), false);
    assert_eq!(create(&mut planner, nth(4) + 21_000), [nth(4)], "run_once: the newest");
    assert_eq!((missed(&planner), blocked(&planner)), (2, 3));
}

#[test]
fn what_is_created_and_what_is_given_up_does_not_wait() {
    let mut planner = every_minute(ScheduleTerms { misfire: Misfire::CatchUp(3), ..TWO });
    run(&mut planner, nth(1));
    assert_eq!(create(&mut planner, nth(9) + 30_000), [nth(7), nth(8)]);
    assert_eq!(missed(&planner), 5, "2 to 6");
    assert_eq!(blocked(&planner), 1, "9");
}

#[test]
fn a_schedule_that_waits_says_so_until_there_is_room() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    let why = |planner: &super::Planner<Round>| planner.view(&web(), nth(2)).expect("known").blocked;
    planner.plan(nth(1) + 1000);
    assert_eq!(why(&planner), None, "nothing is due");
    planner.plan(nth(2));
    assert_eq!(why(&planner), Some("schedule_full"));
    planner.note(&web(), &job(1), false);
    assert_eq!(create(&mut planner, nth(2)), [nth(2)]);
    assert_eq!(why(&planner), None);
}

#[test]
fn what_waits_is_counted_up_to_ten_thousand_at_once() {
    let times = Interval { every_ms: 1000, offset_ms: 0, jitter_ms: 0 };
    for (waiting, counted) in [(9999, 9999), (10_000, 10_000), (10_001, 10_000)] {
        let terms = ScheduleTerms { misfire: Misfire::CatchUp(50_000), ..TERMS };
        let mut planner = planner([Round { interval: times, ..round("web", terms) }]);
        planner.note(&web(), &id("web-by-hand"), true);
        assert_eq!(planner.plan(START + waiting * 1000), []);
        assert_eq!(blocked(&planner), counted, "{waiting}");
    }
}

#[test]
fn a_job_that_ends_makes_room_at_once() {
    for seen in [true, false] {
        let mut planner = every_minute(TERMS);
        create(&mut planner, nth(1));
        if seen {
            planner.note(&web(), &job(1), true);
        }
        assert_eq!(planner.plan(nth(2)), []);
        planner.note(&web(), &job(1), false);
        assert!(!planner.is_open(&web(), &job(1)));
        assert_eq!(due_times(&planner.plan(nth(2))), [nth(2)], "seen before: {seen}");
    }
}

#[test]
fn a_job_that_opens_takes_its_room_at_once() {
    let mut planner = every_minute(TERMS);
    let dues = planner.plan(nth(1));
    assert_eq!(due_times(&dues), [nth(1)]);
    // Before the ledger has said anything, another job of the schedule turns up.
    planner.note(&web(), &id("web-by-hand"), true);
    assert_eq!(planner.plan(nth(1)), []);
    assert_eq!(blocked(&planner), 1);
    assert_eq!(planner.view(&web(), nth(1)).and_then(|view| view.blocked), Some("schedule_full"));
}

/// What is asked for is under way: it is not asked for again because of something that was known.
#[test]
fn news_that_is_none_makes_nobody_plan() {
    let mut planner = every_minute(ScheduleTerms { open_max: 3, ..TERMS });
    create(&mut planner, nth(1));
    assert_eq!(due_times(&planner.plan(nth(2))), [nth(2)]);
    planner.note(&web(), &job(1), true);
    assert_eq!(planner.plan(nth(2)), [], "it was created, and is seen now");
    planner.note(&web(), &job(1), true);
    assert_eq!(planner.plan(nth(2)), [], "it was open");
    planner.note(&web(), &id("web-other"), false);
    assert_eq!(planner.plan(nth(2)), [], "it was not open");
    planner.note(&id("unknown"), &job(1), false);
    assert_eq!(planner.plan(nth(2)), [], "nobody's");
    planner.note(&web(), &job(1), false);
    assert_eq!(due_times(&planner.plan(nth(2))), [nth(2)], "this is news");
}

#[test]
fn a_whole_look_says_which_jobs_are_open_and_which_no_longer() {
    let mut planner = every_minute(ScheduleTerms { open_max: 9, ..TERMS });
    let open = |planner: &super::Planner<Round>| [1, 2, 3].map(|n| planner.is_open(&web(), &job(n)));
    planner.observe([(&web().series(), &job(1), nth(1), true), (&web().series(), &job(2), nth(2), true)]);
    assert_eq!(open(&planner), [true, true, false]);
    planner.observe([(&web().series(), &job(2), nth(2), false), (&web().series(), &job(3), nth(3), true)]);
    assert_eq!(open(&planner), [false, false, true]);
    assert_eq!(planner.open(), 1);
    let nobodys = id("unknown");
    planner.observe([(&nobodys, &job(3), nth(3), true)]);
    assert_eq!(planner.open(), 0);
}

#[test]
fn after_a_whole_look_everything_is_planned() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    assert_eq!(planner.plan(nth(2)), []);
    planner.observe([(&web().series(), &job(1), nth(1), false)]);
    assert_eq!(due_times(&planner.plan(nth(2))), [nth(2)]);
}

#[test]
fn a_watermark_only_rises() {
    let mut planner = every_minute(ScheduleTerms { open_max: 9, misfire: Misfire::CatchUp(9), ..TERMS });
    let watermark =
        |planner: &super::Planner<Round>| planner.view(&web(), nth(9)).expect("known").watermark_ms;
    assert_eq!(watermark(&planner), 0, "none is known");
    planner.observe([(&web().series(), &job(5), nth(5), true), (&web().series(), &job(3), nth(3), true)]);
    assert_eq!(watermark(&planner), nth(5));
    planner.observe([(&web().series(), &job(4), nth(4), true)]);
    assert_eq!(watermark(&planner), nth(5));
    let dues = planner.plan(nth(7));
    assert_eq!(due_times(&dues), [nth(6), nth(7)]);
    planner.answered(&dues[1], JobAnswer::Existed);
    assert_eq!(watermark(&planner), nth(7));
    planner.answered(&dues[0], JobAnswer::Created);
    assert_eq!(watermark(&planner), nth(7));
}

#[test]
fn a_job_that_was_created_counts_as_open_for_two_looks_that_do_not_show_it() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    for look in 1..=2 {
        planner.observe([]);
        assert!(!planner.has_room(&web()), "look {look}: the ledger's view may be behind");
    }
    planner.observe([]);
    assert!(planner.has_room(&web()), "it is not blocked for ever");
}

#[test]
fn a_job_that_was_seen_is_gone_with_the_first_look_that_does_not_show_it() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    planner.observe([(&web().series(), &job(1), nth(1), true)]);
    assert_eq!(planner.open(), 1, "one job, not two");
    planner.observe([]);
    assert_eq!(planner.open(), 0);
}

#[test]
fn a_job_that_was_seen_by_a_note_is_one_job() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    planner.note(&web(), &job(1), true);
    assert_eq!(planner.open(), 1);
    planner.note(&web(), &job(1), false);
    assert_eq!(planner.open(), 0);
}

#[test]
fn a_job_that_was_asked_for_by_hand_takes_room_and_leaves_no_watermark() {
    let mut planner = every_minute(TERMS);
    let by_hand: JobId = id("web-by-hand");
    assert!(planner.reserve(&web(), by_hand.clone()));
    assert!(!planner.reserve(&id("unknown"), by_hand.clone()));
    assert!(!planner.reserve(&web(), id("web-another")), "there is room for one");
    assert!(planner.is_open(&web(), &by_hand));
    assert_eq!((planner.open(), planner.has_room(&web())), (1, false));
    assert_eq!(planner.plan(nth(1)), []);
    assert_eq!(planner.view(&web(), nth(1)).map(|view| view.watermark_ms), Some(0));
    assert_eq!(planner.counts().created, 0);
    planner.note(&web(), &by_hand, false);
    assert_eq!(due_times(&planner.plan(nth(1))), [nth(1)]);
}
