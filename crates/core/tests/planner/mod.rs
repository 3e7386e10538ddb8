//! The planner and the scheduler, told by hand: which due times become jobs, what is counted, and when it wants to be asked again.
//!
//! Calendars, zones and documents are another crate's, and so are the tests of them.

mod clock;
mod misfire;
mod open;
mod scheduler;
mod schedules;
mod times;

use tenure_core::{Due, Interval, JobAnswer, Misfire, Planned, Planner, ScheduleTerms};
use tenure_core::{JobId, ScheduleId};

const MIN: u64 = 60_000;
/// A schedule begins here, on a full minute; what is due at this very moment is nobody's.
const START: u64 = 1000 * MIN;

const TERMS: ScheduleTerms = ScheduleTerms {
    enabled: true,
    priority: 0,
    open_max: 1,
    misfire: Misfire::RunOnce,
    misfire_threshold_ms: 5000,
    since_ms: START,
};

/// A schedule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Round {
    id: ScheduleId,
    interval: Interval,
    terms: ScheduleTerms,
}

impl Planned for Round {
    type Times = Interval;

    fn id(&self) -> &ScheduleId {
        &self.id
    }

    fn terms(&self) -> ScheduleTerms {
        self.terms
    }

    fn times(&self) -> &Interval {
        &self.interval
    }
}

fn id<T: std::str::FromStr<Err = tenure_core::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

fn web() -> ScheduleId {
    id("web")
}

/// Every minute.
fn round(name: &str, terms: ScheduleTerms) -> Round {
    Round { id: id(name), interval: Interval { every_ms: MIN, offset_ms: 0, jitter_ms: 0 }, terms }
}

/// Every minute, and up to 30 s later.
fn jittery(terms: ScheduleTerms) -> Round {
    Round { interval: Interval { every_ms: MIN, offset_ms: 0, jitter_ms: 30_000 }, ..round("web", terms) }
}

fn planner(rounds: impl IntoIterator<Item = Round>) -> Planner<Round> {
    let mut planner = Planner::default();
    rounds.into_iter().for_each(|round| planner.put(round));
    planner
}

/// Plans for `web`, every minute.
fn every_minute(terms: ScheduleTerms) -> Planner<Round> {
    planner([round("web", terms)])
}

/// The nth due time of a schedule that is due every minute.
fn nth(n: u64) -> u64 {
    START + n * MIN
}

/// The name of the nth job of `web`.
fn job(n: u64) -> JobId {
    id(&format!("web-{}", nth(n)))
}

fn due_times(dues: &[Due]) -> Vec<u64> {
    dues.iter().map(|due| due.due_ms).collect()
}

/// Plans, and all of it is created.
fn create(planner: &mut Planner<Round>, now_ms: u64) -> Vec<u64> {
    let dues = planner.plan(now_ms);
    dues.iter().for_each(|due| planner.answered(due, JobAnswer::Created));
    due_times(&dues)
}

/// Plans; all of it is created, begins and ends at once.
fn run(planner: &mut Planner<Round>, now_ms: u64) -> Vec<u64> {
    let created = create(planner, now_ms);
    created.iter().for_each(|due_ms| planner.note(&web(), &id(&format!("web-{due_ms}")), false));
    created
}

fn missed(planner: &Planner<Round>) -> u64 {
    planner.counts().missed
}

fn blocked(planner: &Planner<Round>) -> u64 {
    planner.counts().blocked
}
