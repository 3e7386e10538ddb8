//! The scheduler: rounds of submissions, requests to run now, and what the ledger may answer.

use super::{MIN, Round, START, TERMS, id, job, nth, round, web};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::JobAnswer::{Created, Existed, Refused};
use tenure_core::machine::{Effect, In, Input, Machine, Now, Request, RequestId};
use tenure_core::{
    JobAnswer, JobId, Misfire, Missed, NewJob, ObservedJob, Requested, RunAnswer, ScheduleTerms, Scheduler,
    SchedulerCommand as Command, SchedulerOutput, SubmitJobs, Time,
};

/// A scheduler with a clock; it leads since `START`.
#[derive(Default)]
struct Leader {
    machine: Scheduler<Round>,
    now_ms: u64,
    /// The round that has no answer yet.
    round: Option<(RequestId, Vec<NewJob<Round>>)>,
    /// How many rounds there were.
    rounds: u64,
    told: Vec<(String, RunAnswer)>,
    missed: Vec<Missed>,
    violations: Vec<String>,
}

impl Leader {
    /// Knows `web`, every minute, and that nothing exists yet.
    fn new(terms: ScheduleTerms) -> Leader {
        let mut leader = Leader::default();
        leader.put(terms, &[]);
        leader.tell(Command::Observe(Vec::new()));
        leader
    }

    fn put(&mut self, terms: ScheduleTerms, requested: &[&str]) {
        let requested = requested.iter().map(|name| id(name)).collect();
        self.tell(Command::Put { schedule: round("web", terms), requested });
    }

    fn tell(&mut self, command: Command<Round>) {
        self.input(Input::Command(command));
    }

    fn run_now(&mut self, name: &str) {
        self.tell(Command::RunNow { schedule: web(), job: id(name) });
    }

    fn note(&mut self, job: &JobId, open: bool) {
        self.tell(Command::Note { schedule: web(), job: job.clone(), open });
    }

    fn input(&mut self, input: In<Scheduler<Round>>) {
        let now = Now { at: Time(self.now_ms), wall_ms: (START + self.now_ms) as i64 };
        let (woken, mut effects) = (input == Input::Wake, Vec::new());
        self.machine.handle(now, input, &mut effects);
        if woken && self.machine.wake_at().is_some_and(|at| at <= now.at) {
            self.violations.push("it would spin".to_owned());
        }
        for effect in effects {
            match effect {
                Effect::Request(id, SubmitJobs(jobs)) => {
                    self.rounds += 1;
                    if id != RequestId(self.rounds) {
                        self.violations.push(format!("round {} has the id {id:?}", self.rounds));
                    }
                    if self.round.replace((id, jobs)).is_some() {
                        self.violations.push("two rounds at a time".to_owned());
                    }
                }
                Effect::Output(SchedulerOutput::Requested(Requested { job, answer, .. })) => {
                    self.told.push((job.to_string(), answer));
                }
                Effect::Output(SchedulerOutput::Missed(missed)) => {
                    if self.round.is_some() {
                        self.violations.push("a later job is submitted before this was told".to_owned());
                    }
                    self.missed.push(missed);
                }
            }
        }
    }

    /// Wakes it if it is due; returns what it submits, after `web`.
    fn submits(&mut self) -> Vec<String> {
        if self.machine.wake_at().is_some_and(|at| at <= Time(self.now_ms)) {
            self.input(Input::Wake);
        }
        let (_, jobs) = self.round.as_ref().map_or((RequestId(0), &[][..]), |(id, jobs)| (*id, jobs));
        jobs.iter().map(|job| job.id.as_str()[3..].to_owned()).collect()
    }

    fn at(&mut self, wall_ms: u64) -> Vec<String> {
        self.now_ms = wall_ms - START;
        self.submits()
    }

    fn answer(&mut self, answers: &[JobAnswer]) {
        let (id, _) = self.round.take().expect("a round");
        self.input(Input::Answer(id, answers.to_vec()));
    }
}

fn due(n: u64) -> String {
    format!("-{}", nth(n))
}

fn observed(id: &JobId, watermark: u64, open: bool) -> ObservedJob {
    ObservedJob { series: web().series(), id: id.clone(), watermark, open }
}

const NONE: [&str; 0] = [];

#[test]
fn sc5_missed_due_times_are_told_before_a_later_job_is_submitted() {
    let mut leader = Leader::new(ScheduleTerms { misfire: Misfire::RunOnce, ..TERMS });
    assert_eq!(leader.at(nth(1)), [due(1)]);
    leader.answer(&[Created]);
    leader.note(&job(1), false);
    // Three were missed, and the newest of them still becomes a job.
    assert_eq!(leader.at(nth(4) + TERMS.misfire_threshold_ms + 1), [due(4)]);
    assert_eq!(leader.missed, [Missed { schedule: web(), count: 2, last_ms: nth(3) }]);
    leader.answer(&[Created]);
    leader.note(&job(4), false);
    assert_eq!(leader.at(nth(5)), [due(5)]);
    assert_eq!((leader.missed.len(), leader.violations.len()), (1, 0), "{:?}", leader.violations);
}

#[test]
fn a_due_time_is_submitted_once_it_is_due_and_never_again() {
    let mut leader = Leader::new(TERMS);
    assert_eq!(leader.at(nth(1) - 1), NONE);
    assert_eq!(leader.machine.wake_at(), Some(Time(MIN)));
    assert_eq!(leader.at(nth(1)), [due(1)]);
    let (_, jobs) = leader.round.clone().expect("a round");
    assert_eq!((jobs[0].watermark(), jobs[0].late_ms), (nth(1), 0));
    leader.answer(&[Created]);
    leader.note(&job(1), false);
    assert_eq!(leader.at(nth(2) - 1), NONE);
    assert_eq!(leader.at(nth(2)), [due(2)]);
    assert_eq!(leader.machine.planner().counts().created, 1);
}

#[test]
fn a_clock_that_jumps_is_noticed_within_a_second() {
    let mut leader = Leader::new(TERMS);
    assert_eq!(leader.at(START + 1), NONE);
    assert_eq!(leader.machine.wake_at(), Some(Time(1001)));
    assert_eq!(Leader::default().machine.wake_at(), None, "without schedules there is nothing to wait for");
}

/// A new leader that plans what its predecessor has created.
#[test]
fn what_exists_needs_no_room_and_the_next_round_follows_at_once() {
    let mut leader = Leader::new(ScheduleTerms { misfire: Misfire::CatchUp(9), ..TERMS });
    assert_eq!(leader.at(nth(3)), [due(1)]);
    leader.answer(&[Existed]);
    assert_eq!(leader.submits(), [due(2)]);
    leader.answer(&[Created]);
    assert_eq!(leader.submits(), NONE, "one is open");
    assert_eq!(leader.machine.planner().counts().duplicates, 1);
}

#[test]
fn what_was_refused_or_not_answered_is_submitted_again_after_a_second() {
    let mut leader = Leader::new(TERMS);
    assert_eq!(leader.at(nth(1)), [due(1)]);
    leader.answer(&[Refused]);
    assert_eq!(leader.submits(), NONE);
    assert_eq!(leader.at(nth(1) + 999), NONE);
    assert_eq!(leader.at(nth(1) + 1000), [due(1)]);
    let (id, jobs) = leader.round.clone().expect("a round");
    leader.input(Input::Answer(RequestId(99), vec![Created]));
    assert_eq!(leader.submits(), [due(1)], "an answer to nothing is ignored");
    leader.round = None;
    leader.input(Input::Answer(id, SubmitJobs(jobs).unanswered()));
    assert_eq!(leader.at(nth(1) + 2000), [due(1)]);
}

#[test]
fn nothing_is_submitted_before_the_jobs_of_a_new_schedule_were_observed() {
    let mut leader = Leader::default();
    leader.put(TERMS, &["web.run.a"]);
    assert_eq!(leader.at(nth(2)), NONE);
    leader.tell(Command::Observe(vec![observed(&job(1), nth(1), true)]));
    assert_eq!(leader.submits(), NONE, "one is open");
    leader.note(&job(1), false);
    assert_eq!(leader.submits(), [".run.a"], "before what is due: there is room for one");
}

/// The ledger's word about jobs may overtake the answers to their submission.
#[test]
fn a_job_that_ended_before_its_answer_is_not_open_for_ever() {
    let mut leader = Leader::new(TERMS);
    assert_eq!(leader.at(nth(1)), [due(1)]);
    leader.note(&job(1), true);
    leader.note(&job(1), false);
    leader.answer(&[Created]);
    assert_eq!(leader.machine.planner().open(), 0);
    assert_eq!(leader.at(nth(2)), [due(2)]);
}

#[test]
fn a_request_in_the_schedule_waits_for_room_and_is_told_once() {
    let mut leader = Leader::new(TERMS);
    assert_eq!(leader.at(nth(1)), [due(1)]);
    leader.put(TERMS, &["web.run.a", "web.run.b"]);
    leader.answer(&[Created]);
    assert_eq!(leader.submits(), NONE, "full");
    leader.note(&job(1), false);
    assert_eq!(leader.submits(), [".run.a"]);
    leader.answer(&[Refused]);
    assert_eq!(leader.submits(), NONE);
    leader.now_ms += 1000;
    assert_eq!(leader.submits(), [".run.a"], "it goes on waiting");
    leader.answer(&[Existed]);
    assert_eq!(leader.submits(), [".run.b"], "what exists needed no room");
    leader.answer(&[Created]);
    assert_eq!(leader.submits(), NONE);
    let told = [("web.run.a", RunAnswer::Existed), ("web.run.b", RunAnswer::Created)];
    assert_eq!(leader.told, told.map(|(job, answer)| (job.to_owned(), answer)));
}

#[test]
fn a_request_that_does_not_wait_is_answered_at_once() {
    let mut leader = Leader::new(TERMS);
    leader.run_now("web.run.a");
    leader.run_now("web.run.b");
    leader.tell(Command::RunNow { schedule: id("db"), job: id("db.run.a") });
    assert_eq!(leader.submits(), [".run.a"]);
    assert_eq!(leader.round.as_ref().map(|(_, jobs)| jobs[0].watermark()), Some(0));
    leader.answer(&[Created]);
    leader.run_now("web.run.a");
    assert_eq!(leader.submits(), NONE);
    // Long done, but the ledger remembers it.
    leader.run_now("web.run.old");
    leader.tell(Command::Observe(vec![observed(&id("web.run.old"), 0, false)]));
    assert_eq!(leader.submits(), NONE);
    let told = [
        ("web.run.b", RunAnswer::Full),
        ("db.run.a", RunAnswer::Unknown),
        ("web.run.a", RunAnswer::Created),
        ("web.run.a", RunAnswer::Existed),
        ("web.run.old", RunAnswer::Existed),
    ];
    assert_eq!(leader.told, told.map(|(job, answer)| (job.to_owned(), answer)));
}

#[test]
fn a_request_that_does_not_wait_is_told_if_it_was_refused() {
    let mut leader = Leader::new(TERMS);
    leader.run_now("web.run.a");
    assert_eq!(leader.submits(), [".run.a"]);
    leader.answer(&[Refused]);
    assert_eq!(leader.told, [("web.run.a".to_owned(), RunAnswer::Refused)]);
    leader.now_ms += 1000;
    assert_eq!(leader.submits(), NONE);
}

#[test]
fn a_schedule_that_goes_takes_its_requests_with_it() {
    let mut leader = Leader::new(TERMS);
    leader.put(TERMS, &["web.run.a"]);
    leader.tell(Command::Remove(web()));
    assert_eq!(leader.at(nth(5)), NONE);
    assert_eq!((leader.told.len(), leader.machine.wake_at()), (0, None));
}

// ---- random schedules ----

const OPEN_MAX: u64 = 2;

/// Leaders, one after the other, and a ledger that refuses, loses answers and ends jobs. Returns what went wrong.
fn run(seed: u64) -> Vec<String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let terms = ScheduleTerms { open_max: OPEN_MAX, misfire: Misfire::CatchUp(3), ..TERMS };
    // Every job, its due time if it has one, and whether it is open.
    let mut ledger: BTreeMap<JobId, (u64, bool)> = BTreeMap::new();
    let (mut watermark, mut leader) = (0, Leader::default());
    let (mut settled, mut requests, mut violations) = (BTreeSet::new(), Vec::new(), Vec::new());
    leader.put(terms, &[]);
    for step in 0..300 {
        let calm = step >= 250;
        leader.now_ms += rng.random_range(0..if calm { 2000 } else { 20_000 });
        match rng.random_range(0..10) {
            0 if !calm => {
                violations.append(&mut leader.violations);
                leader = Leader { now_ms: leader.now_ms, ..Leader::default() };
                settled.clear();
                leader.put(terms, &requests.iter().map(String::as_str).collect::<Vec<_>>());
            }
            1 if !calm => {
                requests.push(format!("web.run.r{step}"));
                leader.put(terms, &requests.iter().map(String::as_str).collect::<Vec<_>>());
            }
            2 if !calm => leader.run_now(&format!("web.run.p{step}")),
            3 | 4 => {
                let jobs = ledger.iter().map(|(job, (due_ms, open))| observed(job, *due_ms, *open));
                leader.tell(Command::Observe(jobs.collect()));
            }
            _ => {
                for (job, (_, open)) in ledger.iter_mut().filter(|(_, (_, open))| *open) {
                    *open = rng.random_bool(0.5);
                    leader.note(job, *open);
                }
            }
        }
        leader.submits();
        if leader.round.is_none() || rng.random_bool(if calm { 0.0 } else { 0.3 }) {
            continue;
        }
        let (_, jobs) = leader.round.clone().expect("a round");
        let mut answers = Vec::new();
        for job in &jobs {
            if !settled.insert(job.id.clone()) {
                violations.push(format!("{} is submitted again", job.id));
            }
            let exists = ledger.contains_key(&job.id) || (!job.requested && job.due_ms <= watermark);
            let answer = match exists {
                true => Existed,
                false if !calm && rng.random_bool(0.1) => Refused,
                false => Created,
            };
            if answer == Created {
                ledger.insert(job.id.clone(), (job.watermark(), true));
                watermark = watermark.max(job.watermark());
                leader.note(&job.id, true);
            }
            let lost = !calm && rng.random_bool(0.1);
            answers.push(if lost { Refused } else { answer });
            if answers.last() == Some(&Refused) {
                settled.remove(&job.id);
            }
        }
        if ledger.values().filter(|(_, open)| *open).count() as u64 > OPEN_MAX {
            violations.push("more jobs are open than may be".to_owned());
        }
        leader.answer(&answers);
        requests.retain(|name| !leader.told.iter().any(|(told, _)| told == name));
    }
    violations.append(&mut leader.violations);
    if !requests.is_empty() {
        violations.push(format!("{requests:?} never ran"));
    }
    violations
}

#[test]
fn no_job_is_lost_or_doubled_and_no_limit_is_exceeded() {
    for seed in 0..1000 {
        let violations = run(seed);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    }
}

#[cfg(feature = "teeth")]
#[test]
fn every_broken_scheduler_is_caught() {
    use tenure_core::Mutant;
    for mutant in Mutant::SCHEDULER {
        let caught = (0..1000).find(|seed| !Mutant::with(Some(*mutant), || run(*seed)).is_empty());
        assert!(caught.is_some(), "{mutant:?} survived 1,000 schedules");
    }
}
