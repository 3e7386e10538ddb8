//! What somebody is to be told about jobs: kept, sent, tried again, given up.

use super::driver::{Driver, cancel, config, job, name, nonsense};
use tenure_core::document::DocumentAnswer;
use tenure_core::machine::Input;
use tenure_core::{
    DispatchAnswer, DispatchCommand, DispatcherConfig, Epoch, Incarnation, JobRecord, JobState, NOTICES_MAX,
    Notice, NoticeKind, SeriesId,
};

const HOUR_MS: u64 = 3_600_000;

fn notified(config: DispatcherConfig) -> Driver {
    let mut driver = Driver::ready(config);
    driver.is_notified = true;
    driver
}

/// A job of a series of its own that nobody takes, and that expires after a second.
fn doomed(id: &str) -> JobRecord {
    let mut record = JobRecord { series: name(id), notify: true, ..job(id) };
    record.limits.ttl_ms = 1000;
    record
}

fn waiting(driver: &Driver) -> Vec<String> {
    let doc = driver.notices.get(&()).map(|(doc, _)| doc.waiting.iter().map(|notice| notice.id.to_string()));
    doc.map_or(Vec::new(), Iterator::collect)
}

fn delivered(driver: &Driver) -> Vec<&str> {
    driver.delivered.iter().map(|notice| &*notice.id).collect()
}

fn late(id: &str) -> Notice {
    Notice::of(NoticeKind::Late, id, &job(id))
}

#[test]
pub(crate) fn nt1_a_notice_stands_before_it_is_sent_and_leaves_once_it_was_taken() {
    let mut driver = notified(config());
    driver.submit(2000, vec![doomed("t1")]);
    driver.serve();
    driver.pass(2900);
    assert_eq!(driver.open.len(), 0, "nothing is read or written for notices that do not exist");
    driver.pass_without_answers(3000);
    driver.answer("write ledger");
    assert_eq!(driver.state("t1"), JobState::Expired);
    assert_eq!(driver.answer("write notices: "), ["write notices: job_expired-1"]);
    assert_eq!(driver.answer("write notices"), ["deliver job_expired-1 of t1"], "it stands now");
    assert_eq!(waiting(&driver), ["job_expired-1"]);
    assert_eq!(driver.answer("deliver"), ["write notices: "]);
    driver.serve();
    assert_eq!(delivered(&driver), ["job_expired-1"]);
    let notice = &driver.delivered[0];
    assert_eq!((notice.kind, notice.at_ms, notice.attempts), (NoticeKind::Expired, 3000, (0, 1)));
    assert!(!notice.reason.is_empty());
    assert_eq!((waiting(&driver).len(), driver.core.notices(), driver.core.counts().delivered), (0, 0, 1));
}

#[test]
pub(crate) fn nt1_only_jobs_that_ask_for_it_are_told_unless_somebody_wants_all() {
    for (all, expected) in [(false, &["job_expired-1"][..]), (true, &["job_expired-1", "job_expired-2"])] {
        let mut driver = notified(DispatcherConfig { notify_all: all, ..config() });
        driver.submit(2000, vec![doomed("a"), JobRecord { notify: false, ..doomed("b") }, doomed("c")]);
        driver.serve();
        driver.all(2000, cancel("c"));
        driver.pass(10_000);
        let mut ids = delivered(&driver);
        ids.sort_unstable();
        // A job that was called off is no news. The ends are numbered in the order in which they came.
        let expected: Vec<String> = expected
            .iter()
            .map(|id| {
                let (kind, number) = id.split_once('-').expect("a number");
                format!("{kind}-{}", number.parse::<u32>().expect("a number") + 1)
            })
            .collect();
        assert_eq!(ids, expected, "all: {all}");
    }
}

#[test]
pub(crate) fn nt1_what_is_not_taken_is_sent_again_and_holds_up_its_own_series_only() {
    let mut driver = notified(config());
    driver.deaf.insert(name::<SeriesId>("t1"));
    let again = JobRecord { series: name("t1"), ..doomed("again") };
    driver.submit(2000, vec![doomed("t1"), again, doomed("t2")]);
    driver.serve();
    let story = driver.pass(60_000).join("\n");
    let tries = |id: &str| story.matches(&format!("deliver {id}")).count();
    assert_eq!(driver.delivered.iter().map(|notice| notice.job.as_str()).collect::<Vec<_>>(), ["t2"]);
    // After 2, 4, 8, 16 and 32 s.
    let deaf = (1..=3).map(|number| tries(&format!("job_expired-{number} "))).max();
    assert_eq!(deaf, Some(5), "{story}");
    assert_eq!(waiting(&driver).len(), 2, "one of the series is tried, the other one waits for it");
    driver.deaf.clear();
    driver.pass(HOUR_MS / 2);
    assert_eq!((driver.delivered.len(), waiting(&driver).len()), (3, 0));
}

#[test]
pub(crate) fn nt1_after_an_hour_it_is_given_up_and_counted() {
    let mut driver = notified(config());
    driver.deaf.insert(name::<SeriesId>("t1"));
    driver.submit(2000, vec![doomed("t1")]);
    driver.serve();
    // The driver lets no more time pass than until the next look at what is asked.
    driver.is_ordered = true;
    for step in 1..=14 {
        driver.pass(step * HOUR_MS / 12);
    }
    assert_eq!((waiting(&driver).len(), driver.core.counts().undelivered), (0, 1));
}

#[test]
pub(crate) fn nt1_the_history_hands_over_a_job_only_once_its_notice_stands() {
    let mut driver = Driver::ready(config());
    (driver.is_notified, driver.is_history) = (true, true);
    let ids: Vec<String> = (0..9).map(|number| format!("j{number}")).collect();
    driver.submit(2000, ids.iter().map(|id| doomed(id)).collect());
    driver.serve();
    for _ in 0..80 {
        let now = driver.now + 100;
        driver.pass_without_answers(now);
        driver.serve_but("write notices");
    }
    let here = |driver: &Driver| driver.head[&()].0.jobs.len();
    assert_eq!(here(&driver), 9, "nobody knows whether their notices stand");
    driver.serve();
    driver.pass(20_000);
    assert_eq!((here(&driver), driver.delivered.len()), (0, 9));
}

/// Leaders that end anywhere: whatever of what they did reached the store, the next one tells everything.
#[test]
pub(crate) fn nt1_a_leader_that_ends_anywhere_loses_no_notice() {
    for cut in 0..40 {
        let mut driver = Driver::ready(DispatcherConfig { keep_finished: 0, ..config() });
        (driver.is_notified, driver.is_history) = (true, true);
        let ids: Vec<String> = (0..9).map(|number| format!("j{number}")).collect();
        driver.submit(2000, ids.iter().map(|id| doomed(id)).collect());
        driver.serve();
        driver.pass_without_answers(3000);
        // So many requests reach the store, in turn the oldest and the newest; half of the answers are lost.
        for step in 0..cut {
            let at = if step % 2 == 0 { 0 } else { driver.open.len().saturating_sub(1) };
            if driver.open.is_empty() {
                break;
            }
            let (id, request) = driver.open.remove(at);
            let answer = driver.outcome(request);
            if step % 4 < 2 {
                driver.tell(driver.now, Input::Answer(id, answer));
            }
        }
        let next =
            DispatcherConfig { epoch: Epoch(3), incarnation: Incarnation(8), keep_finished: 0, ..config() };
        let mut driver = driver.succeeded_by(next);
        driver.pass(120_000);
        for id in &ids {
            let told = driver.delivered.iter().filter(|notice| notice.job.as_str() == id);
            assert!(told.count() >= 1, "cut after {cut}: nobody was told of {id}");
        }
        assert_eq!(waiting(&driver).len(), 0, "cut after {cut}");
    }
}

#[test]
pub(crate) fn nt1_what_was_told_before_is_not_told_again_by_the_next_leader() {
    let mut driver = notified(config());
    let said = driver.all(2000, Input::Command(DispatchCommand::Notify(1, late("t1"))));
    assert_eq!(said.iter().filter(|said| *said == "#1 noted").count(), 1, "{said:?}");
    let next = DispatcherConfig { epoch: Epoch(3), incarnation: Incarnation(8), ..config() };
    let mut driver = driver.succeeded_by(next);
    let said = driver.all(3000, Input::Command(DispatchCommand::Notify(1, late("t1"))));
    assert!(said.contains(&"#1 noted".to_owned()), "{said:?}");
    assert_eq!(delivered(&driver), ["job_late-t1"]);
}

#[test]
pub(crate) fn nt1_too_many_are_dropped_and_counted() {
    let mut driver = notified(config());
    driver.deaf.insert(name::<SeriesId>("s"));
    for number in 0..NOTICES_MAX as u64 + 3 {
        driver.tell(2000, Input::Command(DispatchCommand::Notify(number, late(&format!("t{number}")))));
    }
    driver.serve_but("deliver");
    assert_eq!((waiting(&driver).len(), driver.core.notices()), (NOTICES_MAX, NOTICES_MAX));
    assert_eq!(driver.core.counts().undelivered, 3);
}

#[test]
pub(crate) fn nt1_a_document_that_nobody_can_read_holds_up_nothing() {
    let mut driver = Driver::new(config());
    (driver.is_notified, driver.is_history) = (true, true);
    driver.workers(1000, &["w1"]);
    driver.serve_but("read notices");
    let (id, _) = driver.take("read notices");
    let unreadable = DispatchAnswer::Notices(DocumentAnswer::Read(nonsense()));
    driver.tell(1000, Input::Answer(id, unreadable));
    let said = driver.tell(2000, Input::Command(DispatchCommand::Notify(1, late("t1"))));
    assert_eq!(said, ["#1 noted"], "whoever waits for it goes on");
    let ids: Vec<String> = (0..9).map(|number| format!("j{number}")).collect();
    driver.submit(2000, ids.iter().map(|id| doomed(id)).collect());
    driver.serve();
    // Its next look finds it unreadable, too.
    for _ in 0..100 {
        let now = driver.now + 100;
        driver.pass_without_answers(now);
        driver.serve_but("read notices");
    }
    let (head, _) = &driver.head[&()];
    assert_eq!((head.last, head.jobs.len()), (9, 0), "the history hands over its jobs");
}
