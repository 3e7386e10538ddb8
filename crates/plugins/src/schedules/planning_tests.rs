//! How written schedules turn into plans. The core's tests cover the planner itself.

use super::{Rules, Schedule, read_file};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tenure::id::{JobId, ScheduleId, SeriesId};
use tenure::schedules::{DueTimes, JobAnswer};

type Planner = tenure::schedules::Planner<Schedule>;

/// 2026-11-15 00:00 UTC.
const START: u64 = 1_794_700_800_000;

fn schedule(text: &str) -> Schedule {
    let text = format!("[{{id: web, checks: [{{name: a, kind: dns, host: localhost}}], {text}}}]");
    let mut schedules = read_file(&text, &Rules::default()).expect("valid");
    schedules.pop().expect("one")
}

fn planner(text: &str) -> Planner {
    let mut planner = Planner::default();
    planner.put(Schedule { since_ms: START, ..schedule(text) });
    planner
}

/// A ledger reduced to watermarks and open jobs.
#[derive(Default)]
struct Ledger {
    watermark: u64,
    created: Vec<u64>,
    open: BTreeSet<u64>,
    /// Shown once more, then forgotten: a later leader does not learn the watermark from them.
    finished: BTreeSet<u64>,
}

impl Ledger {
    /// One look of a leader: submits what is planned.
    fn tick(&mut self, planner: &mut Planner, now_ms: u64) -> Vec<u64> {
        let id = SeriesId::new("web").expect("valid");
        let job = |due: &u64| JobId::new(&format!("web-{due}")).expect("valid");
        let open = self.open.iter().map(|due| (job(due), *due, true));
        let finished = self.finished.iter().map(|due| (job(due), *due, false));
        let jobs: Vec<(JobId, u64, bool)> = open.chain(finished).collect();
        planner.observe(jobs.iter().map(|(job, due, open)| (&id, job, *due, *open)));
        self.finished.clear();
        self.submit(planner, now_ms)
    }

    fn submit(&mut self, planner: &mut Planner, now_ms: u64) -> Vec<u64> {
        let mut created = Vec::new();
        loop {
            let (planned, before) = (planner.plan(now_ms), planner.counts().duplicates);
            for due in planned {
                if due.due_ms > self.watermark {
                    self.watermark = due.due_ms;
                    self.open.insert(due.due_ms);
                    created.push(due.due_ms);
                    planner.answered(&due, JobAnswer::Created);
                } else {
                    planner.answered(&due, JobAnswer::Existed);
                }
            }
            // A planner that just learned of existing jobs plans again at once.
            if planner.counts().duplicates == before {
                break;
            }
        }
        self.created.extend(&created);
        created
    }

    fn done(&mut self) {
        self.finished.append(&mut self.open);
    }
}

/// A planner told only what changed plans the same as one told everything: at every tick, through jumps of the clock.
#[test]
fn notes_are_as_good_as_a_whole_look() {
    for text in [
        "every: 7s, misfire: skip, misfireThreshold: 2s",
        "every: 7s, jitter: 5s, misfire: catch_up(3), overlap: allow, maxConcurrent: 2",
        "cron: '*/10 * * * * *', misfire: run_once",
    ] {
        let (mut whole, mut noted) = (planner(text), planner(text));
        let (mut ledger, mut other) = (Ledger::default(), Ledger::default());
        let id = ScheduleId::new("web").expect("valid");
        let (mut now, mut draw) = (START, 7_u64);
        for step in 0..3000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now = match (draw >> 33) % 60 {
                0 => now + 45_000,
                1 => now - 30_000,
                _ => now + 1 + (draw >> 40) % 1500,
            };
            if (draw >> 20).is_multiple_of(3) {
                for due in &other.open {
                    noted.note(&id, &JobId::new(&format!("web-{due}")).expect("valid"), false);
                }
                ledger.done();
                other.done();
            }
            let expected = ledger.tick(&mut whole, now);
            let created = other.submit(&mut noted, now);
            assert_eq!(created, expected, "step {step} of {text}");
            for due in &created {
                noted.note(&id, &JobId::new(&format!("web-{due}")).expect("valid"), true);
            }
            // Missed times are counted, at the latest, once the schedule is no longer blocked.
            if noted.view(&id, now).is_some_and(|view| view.blocked.is_none()) {
                assert_eq!(noted.counts().missed, whole.counts().missed, "step {step} of {text}");
            }
            assert_eq!(noted.next_ms(now), whole.next_ms(now), "step {step} of {text}");
        }
        assert!(ledger.created.len() > 100, "{}", ledger.created.len());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Jump(i64),
    Finish,
    NewLeader,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..90_000_u64).prop_map(Step::Pass),
        1 => (-600_000..600_000_i64).prop_map(Step::Jump),
        3 => Just(Step::Finish),
        1 => Just(Step::NewLeader),
    ];
    prop::collection::vec(step, 1..80)
}

fn texts() -> impl Strategy<Value = (String, usize, u64)> {
    let timing = prop::sample::select(vec![
        "every: 20s",
        "every: 20s, jitter: 15s",
        "every: 1s",
        "cron: '* * * * *'",
        "cron: '*/10 * * * * *', zone: Europe/Berlin",
    ]);
    let misfire = prop::sample::select(vec![("skip", 0), ("run_once", 1), ("catch_up(3)", 3)]);
    let overlap = prop::sample::select(vec![("forbid", 1_u64), ("allow", 4)]);
    (timing, misfire, overlap).prop_map(|(timing, (misfire, kept), (overlap, open))| {
        (format!("{timing}, misfire: {misfire}, overlap: {overlap}, maxConcurrent: {open}"), kept, open)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No due time twice, none before it is due, none outside the policy, never more open than allowed.
    #[test]
    fn plans_keep_their_promises((text, kept, open_max) in texts(), steps in steps()) {
        let (mut leader, mut ledger, mut now) = (planner(&text), Ledger::default(), START + 1);
        let schedule = leader.schedules().values().next().expect("one").clone();
        let begins = |due: u64| schedule.timing.begins_ms("web", due);
        for step in steps {
            match step {
                Step::Pass(ms) => now += ms,
                Step::Jump(ms) => now = now.saturating_add_signed(ms).max(START),
                Step::Finish => ledger.done(),
                Step::NewLeader => leader = planner(&text),
            }
            let watermark = ledger.watermark;
            let created = ledger.tick(&mut leader, now);
            prop_assert!(ledger.open.len() as u64 <= open_max);
            let newest_missed: Vec<u64> = schedule.timing.newest(START, now, 20_000).into_iter()
                .filter(|due| now.saturating_sub(begins(*due)) > 5_000 && begins(*due) <= now)
                .rev().take(kept).collect();
            for due in created {
                prop_assert!(due > watermark && due > START, "not twice, not before its time");
                prop_assert!(begins(due) <= now, "it has begun");
                let late = now - begins(due) > 5_000;
                prop_assert!(!late || newest_missed.contains(&due), "a missed one only by the policy");
            }
        }
        let mut once = ledger.created.clone();
        once.dedup();
        prop_assert_eq!(once, ledger.created);
    }

    /// Any leader, whatever it has seen, asks for the same jobs; the ledger knows what the leader does not.
    #[test]
    fn any_leader_creates_the_same((text, _, _) in texts(), steps in steps(), news in prop::collection::vec(any::<bool>(), 80)) {
        let mut worlds = [(planner(&text), Ledger::default()), (planner(&text), Ledger::default())];
        let mut now = START + 1;
        for (step, new) in steps.into_iter().zip(news) {
            match step {
                // A leader without a past cannot know what its predecessor gave up on, so time only moves forward here.
                Step::Pass(ms) => now += ms,
                Step::Jump(ms) => now += ms.unsigned_abs() / 10,
                Step::Finish => worlds.iter_mut().for_each(|(_, ledger)| ledger.done()),
                Step::NewLeader => {}
            }
            if new {
                worlds[1].0 = planner(&text);
            }
            let [(one, first), (other, second)] = &mut worlds;
            prop_assert_eq!(first.tick(one, now), second.tick(other, now), "at {}", now);
        }
    }
}
