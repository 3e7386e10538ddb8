//! Schedules that come, change and go.

use super::{MIN, TERMS, create, due_times, every_minute, id, job, missed, nth, planner, round, run, web};
use std::collections::BTreeSet;
use tenure_core::{Interval, JobAnswer, Misfire, PlanCounts, Planner, ScheduleTerms, SeriesView};

#[test]
fn schedules_are_known_by_their_names() {
    let rounds = [round("web", TERMS), round("db", ScheduleTerms { priority: 3, ..TERMS })];
    let planner = planner(rounds.clone());
    assert_eq!(planner.ids(), BTreeSet::from([web(), id("db")]));
    let known: Vec<_> = planner.schedules().values().cloned().collect();
    assert_eq!(known, [rounds[1].clone(), rounds[0].clone()]);
}

#[test]
fn another_version_takes_the_place_of_the_first() {
    let mut planner = every_minute(TERMS);
    assert_eq!(run(&mut planner, nth(1)), [nth(1)]);
    let every_ms = 10_000;
    let faster =
        super::Round { interval: Interval { every_ms, offset_ms: 0, jitter_ms: 0 }, ..round("web", TERMS) };
    planner.put(faster.clone());
    assert_eq!(planner.schedules().values().collect::<Vec<_>>(), [&faster]);
    assert_eq!(
        planner.view(&web(), nth(1)).map(|view| view.watermark_ms),
        Some(nth(1)),
        "the past is the same"
    );
    assert_eq!(planner.next_ms(nth(1)), Some(nth(1) + every_ms));
    assert_eq!(run(&mut planner, nth(1)), [0; 0]);
    assert_eq!(planner.next_ms(nth(1)), Some(nth(1) + every_ms));
    assert_eq!(run(&mut planner, nth(1) + every_ms), [nth(1) + every_ms]);
}

#[test]
fn a_schedule_that_is_turned_off_is_silent_and_starts_again_when_it_is_turned_on() {
    let terms = ScheduleTerms { misfire: Misfire::Skip, ..TERMS };
    let mut planner = every_minute(terms);
    assert_eq!(run(&mut planner, nth(1)), [nth(1)]);
    planner.put(round("web", ScheduleTerms { enabled: false, ..terms }));
    assert_eq!(run(&mut planner, nth(2)), [0; 0]);
    assert_eq!(planner.next_ms(nth(2)), None);
    assert_eq!(
        planner.view(&web(), nth(2)).map(|view| (view.watermark_ms, view.next_ms)),
        Some((nth(1), None))
    );
    planner.put(round("web", terms));
    assert_eq!(run(&mut planner, nth(3)), [nth(3)]);
    assert_eq!(missed(&planner), 1);
}

#[test]
fn a_schedule_that_is_put_is_planned_at_once() {
    let mut planner = Planner::default();
    assert_eq!(planner.plan(nth(1)), []);
    planner.put(round("web", TERMS));
    assert_eq!(due_times(&planner.plan(nth(1))), [nth(1)]);
}

#[test]
fn a_schedule_that_was_removed_is_forgotten() {
    let mut planner = every_minute(ScheduleTerms { open_max: 9, ..TERMS });
    assert_eq!(create(&mut planner, nth(1)), [nth(1)]);
    let dues = planner.plan(nth(2));
    planner.remove(&web());
    assert_eq!(planner.ids(), BTreeSet::new());
    assert_eq!(planner.view(&web(), nth(2)), None);
    assert_eq!((planner.open(), planner.has_room(&web())), (0, false));
    assert_eq!(planner.next_ms(nth(2)), None);
    assert_eq!(planner.plan(nth(3)), []);
    // What is still told about it is nobody's business.
    planner.answered(&dues[0], JobAnswer::Created);
    planner.answered(&dues[0], JobAnswer::Existed);
    planner.note(&web(), &job(1), true);
    planner.observe([(&web().series(), &job(2), nth(2), true)]);
    assert!(!planner.reserve(&web(), job(3)));
    assert_eq!(planner.counts(), PlanCounts { created: 1, ..PlanCounts::default() });
    assert_eq!((planner.open(), planner.is_open(&web(), &job(1))), (0, false));
    assert_eq!((planner.plan(nth(4)), planner.next_ms(nth(4))), (vec![], None));
}

#[test]
fn the_others_stay_when_one_is_removed() {
    let mut planner = planner([round("web", TERMS), round("db", TERMS)]);
    assert_eq!(planner.plan(nth(1) - 1), []);
    planner.remove(&id("db"));
    planner.remove(&id("unknown"));
    assert_eq!(planner.ids(), BTreeSet::from([web()]));
    assert_eq!(due_times(&planner.plan(nth(1))), [nth(1)]);
}

#[test]
fn a_schedule_that_comes_again_knows_only_what_the_ledger_says() {
    let mut planner = every_minute(TERMS);
    create(&mut planner, nth(1));
    planner.remove(&web());
    planner.put(round("web", TERMS));
    let fresh = SeriesView { next_ms: Some(nth(2)), ..SeriesView::default() };
    assert_eq!(planner.view(&web(), nth(1)), Some(fresh));
    assert_eq!(due_times(&planner.plan(nth(1))), [nth(1)], "the ledger will say that it exists");
}

#[test]
fn a_view_tells_how_a_schedule_stands() {
    let mut planner = every_minute(TERMS);
    assert_eq!(planner.view(&id("unknown"), nth(1)), None);
    create(&mut planner, nth(1));
    planner.plan(nth(2));
    let view = SeriesView {
        watermark_ms: nth(1),
        open: 1,
        ahead_ms: 0,
        next_ms: Some(nth(3)),
        blocked: Some("schedule_full"),
    };
    assert_eq!(planner.view(&web(), nth(2)), Some(view));
    assert_eq!(planner.view(&web(), nth(1) - 7).map(|view| view.ahead_ms), Some(7));
}

#[test]
fn what_was_created_is_counted() {
    let mut planner = every_minute(TERMS);
    for n in 1..=3 {
        run(&mut planner, nth(n));
        assert_eq!(planner.counts(), PlanCounts { created: n, ..PlanCounts::default() });
    }
}

#[test]
fn one_schedule_has_nothing_to_do_with_another() {
    let mut planner = planner([round("web", TERMS), round("db", TERMS)]);
    let dues = planner.plan(nth(1));
    assert_eq!(dues.len(), 2);
    dues.iter().for_each(|due| planner.answered(due, JobAnswer::Created));
    planner.note(&web(), &job(1), false);
    let names: Vec<String> = planner.plan(nth(2)).iter().map(|due| due.schedule.to_string()).collect();
    assert_eq!(names, ["web"], "that of db is open");
    assert_eq!((planner.has_room(&web()), planner.has_room(&id("db"))), (true, false));
    assert_eq!(planner.next_ms(nth(2)), Some(nth(2) + MIN));
}
