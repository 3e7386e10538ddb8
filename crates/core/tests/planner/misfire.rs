//! Which due times become jobs, and which were missed.

use super::{
    MIN, Round, START, TERMS, create, due_times, every_minute, id, jittery, missed, nth, planner, round, run,
    web,
};
use tenure_core::{Due, DueTimes, Interval, JobAnswer, Misfire, ScheduleTerms};

/// All may be open at once.
fn many(misfire: Misfire) -> ScheduleTerms {
    ScheduleTerms { open_max: 100_000, misfire, ..TERMS }
}

#[test]
fn on_time_every_due_time_becomes_one_job() {
    let mut planner = every_minute(TERMS);
    let created: Vec<u64> = (1..=300).flat_map(|second| run(&mut planner, START + second * 1000)).collect();
    assert_eq!(created, [nth(1), nth(2), nth(3), nth(4), nth(5)]);
    let counts = planner.counts();
    assert_eq!((counts.created, counts.missed, counts.duplicates, counts.blocked), (5, 0, 0, 0));
}

#[test]
fn a_job_is_due_at_the_very_millisecond_and_not_before() {
    let mut planner = every_minute(TERMS);
    assert_eq!(planner.plan(nth(1) - 1), []);
    assert_eq!(planner.plan(nth(1)), [Due { schedule: web(), due_ms: nth(1), late_ms: 0 }]);
}

#[test]
fn how_late_it_is_is_told() {
    let mut planner = every_minute(TERMS);
    assert_eq!(planner.plan(nth(1) + 1234), [Due { schedule: web(), due_ms: nth(1), late_ms: 1234 }]);
}

#[test]
fn what_is_due_when_a_schedule_begins_is_nobodys() {
    let mut planner = every_minute(TERMS);
    assert_eq!(planner.plan(START), []);
    let mut planner = every_minute(ScheduleTerms { since_ms: START - 1, ..TERMS });
    assert_eq!(due_times(&planner.plan(START)), [START]);
}

#[test]
fn what_is_later_than_the_threshold_was_missed() {
    for (late_ms, expected) in [(0, vec![nth(1)]), (5000, vec![nth(1)]), (5001, vec![])] {
        let mut planner = every_minute(many(Misfire::Skip));
        assert_eq!(create(&mut planner, nth(1) + late_ms), expected, "{late_ms} ms late");
    }
}

#[test]
fn a_hiccup_within_the_threshold_loses_nothing() {
    let terms = ScheduleTerms { misfire_threshold_ms: 3 * MIN, ..many(Misfire::Skip) };
    let mut planner = every_minute(terms);
    assert_eq!(create(&mut planner, nth(10)), [nth(7), nth(8), nth(9), nth(10)]);
    let mut planner = every_minute(terms);
    assert_eq!(create(&mut planner, nth(10) + 1), [nth(8), nth(9), nth(10)]);
}

#[test]
fn missed_due_times_follow_the_policy() {
    for (misfire, expected, lost) in [
        (Misfire::Skip, vec![], 9),
        (Misfire::RunOnce, vec![nth(10)], 8),
        (Misfire::CatchUp(3), vec![nth(8), nth(9), nth(10)], 6),
        (Misfire::CatchUp(8), (3..=10).map(nth).collect(), 1),
        (Misfire::CatchUp(9), (2..=10).map(nth).collect(), 0),
        (Misfire::CatchUp(100), (2..=10).map(nth).collect(), 0),
    ] {
        let mut planner = every_minute(many(misfire));
        assert_eq!(create(&mut planner, nth(1)), [nth(1)]);
        // Nobody looked for nine minutes and a half.
        assert_eq!(create(&mut planner, nth(10) + 30_000), expected, "{misfire}");
        assert_eq!(missed(&planner), lost, "{misfire}");
    }
}

#[test]
fn of_a_gap_the_missed_follow_the_policy_and_the_others_need_none() {
    let mut planner = every_minute(ScheduleTerms { misfire_threshold_ms: MIN, ..many(Misfire::RunOnce) });
    assert_eq!(create(&mut planner, nth(1)), [nth(1)]);
    assert_eq!(
        create(&mut planner, nth(9)),
        [nth(7), nth(8), nth(9)],
        "8 and 9 are in time, 7 is the newest missed"
    );
    assert_eq!(missed(&planner), 5);
}

#[test]
fn what_was_missed_is_decided_once() {
    let mut planner = every_minute(many(Misfire::Skip));
    assert_eq!(run(&mut planner, nth(1)), [nth(1)]);
    for late_ms in [30_000, 31_000, 59_999] {
        planner.observe([]);
        assert_eq!(run(&mut planner, nth(10) + late_ms), [0; 0]);
        assert_eq!(missed(&planner), 9);
    }
    assert_eq!(run(&mut planner, nth(11)), [nth(11)], "what comes next is on time again");
    assert_eq!(missed(&planner), 9);
}

#[test]
fn every_gap_adds_to_what_was_missed() {
    let mut planner = every_minute(many(Misfire::Skip));
    run(&mut planner, nth(1));
    run(&mut planner, nth(4) + 30_000);
    assert_eq!(missed(&planner), 3);
    run(&mut planner, nth(6) + 30_000);
    assert_eq!(missed(&planner), 5);
}

/// Whoever led before may have created it: a planner that knows nothing of the past calls nothing of it missed.
#[test]
fn what_passed_before_anything_is_known_is_not_called_missed() {
    let mut planner = every_minute(many(Misfire::Skip));
    assert_eq!(planner.plan(nth(10) + 30_000), []);
    assert_eq!(missed(&planner), 0);
    assert_eq!(planner.view(&web(), nth(10) + 30_000).and_then(|view| view.next_ms), Some(nth(11)));
    // From here on it knows.
    assert_eq!(planner.plan(nth(12) + 30_000), []);
    assert_eq!(missed(&planner), 2);
}

#[test]
fn a_watermark_in_the_ledger_is_knowledge_of_the_past() {
    let mut planner = every_minute(many(Misfire::Skip));
    planner.observe([(&web().series(), &id("web-done"), nth(4), false)]);
    assert_eq!(planner.plan(nth(10) + 30_000), []);
    assert_eq!(missed(&planner), 6);
}

#[test]
fn without_a_known_past_the_policy_still_makes_up() {
    let mut planner = every_minute(many(Misfire::CatchUp(2)));
    assert_eq!(create(&mut planner, nth(10) + 30_000), [nth(9), nth(10)]);
    assert_eq!(missed(&planner), 0);
}

#[test]
fn what_was_missed_is_counted_up_to_ten_thousand_at_once() {
    let times = Interval { every_ms: 1000, offset_ms: 0, jitter_ms: 0 };
    for (passed, counted) in [(9999, 9999), (10_000, 10_000), (10_001, 10_000), (30_000, 10_000)] {
        let mut planner = planner([Round { interval: times, ..round("web", many(Misfire::Skip)) }]);
        planner.observe([(&web().series(), &id("web-done"), START + 1000, false)]);
        // The last one missed is six seconds ago, and five more are in time.
        let now_ms = START + 1000 + passed * 1000 + 5001;
        assert_eq!(planner.plan(now_ms).len(), 5);
        assert_eq!(missed(&planner), counted, "{passed}");
    }
}

#[test]
fn with_an_endless_threshold_nothing_is_ever_missed() {
    let mut planner = every_minute(ScheduleTerms { misfire_threshold_ms: u64::MAX, ..many(Misfire::Skip) });
    assert_eq!(create(&mut planner, nth(100) + 1), (1..=100).map(nth).collect::<Vec<_>>());
    assert_eq!(missed(&planner), 0);
}

#[test]
fn without_a_threshold_one_millisecond_is_too_late() {
    for (late_ms, expected) in [(0, vec![nth(1)]), (1, vec![])] {
        let mut planner = every_minute(ScheduleTerms { misfire_threshold_ms: 0, ..many(Misfire::Skip) });
        assert_eq!(create(&mut planner, nth(1) + late_ms), expected, "{late_ms} ms late");
    }
}

#[test]
fn jitter_delays_the_job_and_not_its_name() {
    let round = jittery(TERMS);
    let begins_ms = round.interval.begins_ms("web", nth(1));
    assert!(begins_ms > nth(1) + 5000, "by more than the threshold");
    let mut planner = planner([round]);
    assert_eq!(planner.plan(begins_ms - 1), []);
    assert_eq!(planner.plan(begins_ms), [Due { schedule: web(), due_ms: nth(1), late_ms: 0 }]);
}

#[test]
fn a_job_is_late_by_when_it_should_have_begun() {
    let round = jittery(ScheduleTerms { misfire: Misfire::Skip, ..TERMS });
    let begins_ms = round.interval.begins_ms("web", nth(1));
    for (late_ms, expected) in [(4999, 1), (5000, 1), (5001, 0)] {
        let dues = planner([round.clone()]).plan(begins_ms + late_ms);
        assert_eq!(dues.len(), expected, "{late_ms} ms late");
        assert!(dues.iter().all(|due| (due.due_ms, due.late_ms) == (nth(1), late_ms)));
    }
}

#[test]
fn what_has_yet_to_begin_stands_in_nobodys_way() {
    let round = jittery(ScheduleTerms { misfire: Misfire::RunOnce, ..TERMS });
    let begins_ms = round.interval.begins_ms("web", nth(4));
    let mut planner = planner([round]);
    assert_eq!(run(&mut planner, begins_ms - 1), [nth(3)], "the newest that was missed");
    assert_eq!(run(&mut planner, begins_ms), [nth(4)]);
    assert_eq!(missed(&planner), 0);
}

#[test]
fn of_due_times_with_jitter_none_is_lost_within_the_threshold() {
    let round = jittery(ScheduleTerms { misfire_threshold_ms: 2 * MIN, ..many(Misfire::Skip) });
    let begins_ms = |n: u64| round.interval.begins_ms("web", nth(n));
    for now_ms in (nth(5)..nth(7)).step_by(251) {
        let created = create(&mut planner([round.clone()]), now_ms);
        let expected = (1..=7).filter(|n| begins_ms(*n) <= now_ms && begins_ms(*n) + 2 * MIN >= now_ms);
        assert_eq!(created, expected.map(nth).collect::<Vec<_>>(), "at {now_ms}");
    }
}

#[test]
fn higher_priorities_go_first_then_older_due_times_then_names() {
    let rounds = [("a", 1), ("b", 9), ("c", 1), ("d", 0)]
        .map(|(name, priority)| round(name, ScheduleTerms { priority, ..many(Misfire::CatchUp(2)) }));
    let planned: Vec<String> = planner(rounds)
        .plan(nth(5) + 30_000)
        .into_iter()
        .map(|due| format!("{} {}", due.schedule, (due.due_ms - START) / MIN))
        .collect();
    assert_eq!(planned, ["b 4", "b 5", "a 4", "c 4", "a 5", "c 5", "d 4", "d 5"]);
}

#[test]
fn nothing_is_planned_for_the_disabled() {
    let off = round("off", ScheduleTerms { enabled: false, ..TERMS });
    let mut planner = planner([round("web", TERMS), off]);
    let planned: Vec<String> = planner.plan(nth(1)).iter().map(|due| due.schedule.to_string()).collect();
    assert_eq!(planned, ["web"]);
}

#[test]
fn what_was_refused_is_planned_again() {
    let mut planner = every_minute(TERMS);
    let first = planner.plan(nth(1));
    planner.answered(&first[0], JobAnswer::Refused);
    assert_eq!(planner.counts(), tenure_core::PlanCounts::default());
    assert_eq!(planner.plan(nth(1)), first);
}

#[test]
fn what_existed_is_counted_as_a_duplicate_and_takes_no_room() {
    let mut planner = every_minute(TERMS);
    for n in 1..=3 {
        let dues = planner.plan(nth(n));
        assert_eq!(due_times(&dues), [nth(n)]);
        planner.answered(&dues[0], JobAnswer::Existed);
        assert_eq!((planner.counts().created, planner.counts().duplicates), (0, n));
        assert_eq!(planner.plan(nth(n)), [], "its watermark is known");
        assert!(planner.has_room(&web()));
    }
}

#[test]
fn at_the_end_of_time_the_last_due_time_is_planned_and_no_other_follows() {
    let mut planner = every_minute(TERMS);
    let last_ms = u64::MAX - u64::MAX % MIN;
    assert_eq!(due_times(&planner.plan(u64::MAX)), [last_ms]);
    assert_eq!(planner.next_ms(u64::MAX), None);
    assert_eq!(planner.view(&web(), u64::MAX).and_then(|view| view.next_ms), None);
}
