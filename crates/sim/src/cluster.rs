//! The production driver under faults: real nodes with guards, settings and documents, on paused time over the memory store.
//!
//! This is slower than the bare core by orders of magnitude, so there are fewer schedules. It adds everything between the core
//! and its users: the loop, the carrier, the wire format, the guard. A crash is a node whose link is cut for good and whose
//! handle is dropped; a process cannot be killed inside this one.

mod log;

use crate::checks::Violation;
use crate::mutants::Broken;
use crate::observed_store::ObservedStore;
use crate::run::with_mutant;
use crate::transition::Followed;
use log::{DriftingClock, Shared, Watched, name};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure::store::{Faults, Faulty, Lanes, Store};
use tenure::{Leadership, Node, Settings, Watcher};
use tokio::sync::watch;

/// How long faults strike.
const TROUBLE: Duration = Duration::from_secs(45);
/// How soon after the faults a leader must exist: late landings, a start, two failovers on a slow clock.
const SETTLE: Duration = Duration::from_secs(45);
const SEAT: &str = "plg_coordinator_global/sim/seat.json";

/// The result of many schedules with the driver.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many schedules ran.
    pub schedules: u64,
    /// Simulated seconds.
    pub simulated_s: u64,
    /// The number of leaders.
    pub leaders: u64,
    /// The number of work items they did.
    pub acts: u64,
    /// Steps of the coordinators compared with the proof's model.
    pub followed: Followed,
    /// Violations, each with its seed.
    pub violations: Vec<(u64, String)>,
    /// How long the run took.
    pub took: Duration,
}

impl Report {
    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let violations: Vec<Value> =
            self.violations.iter().map(|(seed, what)| json!({"seed": seed, "what": what})).collect();
        json!({
            "schedules": self.schedules, "simulatedSeconds": self.simulated_s, "leaders": self.leaders,
            "acts": self.acts, "followed": self.followed.to_json(), "violations": violations, "wallSeconds": self.took.as_secs_f64(),
        })
    }
}

/// The result of one schedule.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The number of leaders.
    pub leaders: u64,
    /// The number of work items done.
    pub acts: u64,
    /// Steps of the coordinators compared with the proof's model.
    pub followed: Followed,
    /// A digest of who led when: same seed, same digest.
    pub trace: u64,
    /// Simulated seconds.
    pub simulated_s: u64,
    /// Violated invariants.
    pub violations: Vec<Violation>,
}

/// Runs seeds until the count or the time is used up.
pub fn run_many(from: u64, count: u64, time: Option<Duration>) -> Report {
    let started = Instant::now();
    let mut report = Report::default();
    for seed in from..from.saturating_add(count) {
        if time.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        let outcome = run(seed);
        report.schedules += 1;
        report.simulated_s += outcome.simulated_s;
        report.leaders += outcome.leaders;
        report.acts += outcome.acts;
        report.followed.add(&outcome.followed);
        let first = outcome.violations.into_iter().next();
        report.violations.extend(first.map(|first| (seed, format!("{}: {}", first.check, first.what))));
    }
    report.took = started.elapsed();
    report
}

/// Runs one schedule with nodes that are broken on purpose, in builds with the feature `teeth`.
pub fn run_broken(seed: u64, broken: Option<Broken>) -> Outcome {
    match broken {
        #[cfg(feature = "teeth")]
        Some(Broken::Driver(mutant)) => tenure::DriverMutant::with(Some(mutant), || run(seed)),
        Some(Broken::Core(mutant)) => with_mutant(Some(mutant), || run(seed)),
        Some(_) | None => run(seed),
    }
}

/// Runs one schedule.
pub fn run(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(schedule(seed)),
        Err(error) => {
            let violation = Violation { at: 0, check: name::RUNTIME, what: error.to_string() };
            Outcome { violations: vec![violation], ..Outcome::default() }
        }
    }
}

/// Leader-only work: many small effects, each after a look at the guard; ending takes it a while.
async fn work(life: u64, mut leadership: watch::Receiver<Leadership>, log: Shared, linger: Duration) {
    loop {
        let guard = leadership.borrow_and_update().guard();
        if let Some(guard) = guard {
            log.lock().works(life, Some(guard.epoch()), false);
            while guard.check().is_ok() {
                log.lock().act(life, guard.epoch());
                tokio::select! {
                    biased;
                    () = guard.ended() => {}
                    () = tokio::time::sleep(Duration::from_millis(40)) => {}
                }
            }
            log.lock().works(life, Some(guard.epoch()), true);
            tokio::time::sleep(linger).await;
            log.lock().works(life, None, false);
        }
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

struct Member {
    node: Option<Node>,
    link: Faulty,
    clock: Arc<DriftingClock>,
}

struct Cluster {
    rng: ChaCha8Rng,
    store: Arc<ObservedStore>,
    log: Shared,
    members: Vec<Member>,
    lives: u64,
    seed: u64,
    heartbeat_ms: u64,
}

async fn schedule(seed: u64) -> Outcome {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let heartbeat_ms = [250, 1000][rng.random_range(0..2)];
    let log: Shared = Arc::default();
    log.lock().origin = Some(tokio::time::Instant::now());
    let told = Arc::clone(&log);
    let mut cluster = Cluster {
        rng,
        store: Arc::new(ObservedStore::new(SEAT, Arc::new(move |record| told.lock().lands(record)))),
        log,
        members: Vec::new(),
        lives: 0,
        seed,
        heartbeat_ms,
    };
    for index in 0..cluster.rng.random_range(2..=4) {
        let member = cluster.start(index).await;
        cluster.members.push(member);
    }
    let started = tokio::time::Instant::now();
    while started.elapsed() < TROUBLE {
        let gap = cluster.rng.random_range(10..2500);
        tokio::time::sleep(Duration::from_millis(gap)).await;
        cluster.trouble().await;
    }
    cluster.settle().await
}

impl Cluster {
    async fn start(&mut self, index: usize) -> Member {
        self.lives += 1;
        let (life, heartbeat_ms) = (self.lives, self.heartbeat_ms);
        let settings = Settings::builder()
            .namespace("sim")
            .node(&format!("node-{index}"))
            .store("memory:")
            .heartbeat_interval(Duration::from_millis(heartbeat_ms))
            .lease_timeout(Duration::from_millis(heartbeat_ms * 3))
            .startup_jitter_max(Duration::from_millis(500))
            .build();
        let link = Faulty::new(Arc::clone(&self.store) as Arc<dyn Store>, self.seed ^ (life << 32));
        let rate = self.rng.random_range(900..=1100);
        let clock = Arc::new(DriftingClock {
            origin: tokio::time::Instant::now(),
            rate,
            slept_ms: AtomicU64::new(0),
        });
        let linger = Duration::from_millis([0, 0, 200, 4000][self.rng.random_range(0..4)]);
        let Ok(settings) = settings else { return Member { node: None, link, clock } };
        let log = Arc::clone(&self.log);
        let builder = Node::builder(settings)
            .lanes(Lanes::same(Arc::new(link.clone())))
            .clock(clock.clone())
            .watcher(Watcher::new(move |step| log.lock().follows(life, step)))
            .jitter_random(self.rng.random());
        let events = builder.events();
        let node = builder.start().await.ok();
        if let Some(node) = &node {
            let (leadership, clock) = (node.leadership(), Arc::clone(&clock));
            let watched = Watched {
                leadership,
                events,
                clock,
                deadlines: BTreeMap::new(),
                works: None,
                winding_down: false,
                vacated: None,
                newest: None,
                core: None,
            };
            self.log.lock().watched.insert(life, watched);
            tokio::spawn(work(life, node.leadership(), Arc::clone(&self.log), linger));
        }
        Member { node, link, clock }
    }

    async fn trouble(&mut self) {
        let leader = self.members.iter().position(|member| {
            member.node.as_ref().is_some_and(|node| node.leadership().borrow().is_leader())
        });
        let any = self.rng.random_range(0..self.members.len());
        let index = leader.filter(|_| self.rng.random_bool(0.5)).unwrap_or(any);
        match self.rng.random_range(0..11) {
            0 => {
                // A crash: nothing it sends reaches the store any more, and a new life begins at once or later.
                self.members[index].link.cut(true);
                self.members[index].node = None;
            }
            1 if self.members[index].node.is_some() => {
                if let Some(node) = self.members[index].node.take() {
                    tokio::spawn(node.shutdown());
                }
            }
            2 | 3 if self.members[index].node.is_none() => self.members[index] = self.start(index).await,
            2 => {
                // The answer comes when leadership has ended; nobody waits for it here.
                if let Some(node) = &self.members[index].node {
                    let asked = tokio::time::timeout(Duration::from_millis(1), node.step_down());
                    drop(asked.await);
                }
            }
            3 | 4 => self.members[index].link.cut(true),
            5 | 6 => self.members[index].link.cut(self.members[index].node.is_none()),
            7 if leader == Some(index) => {
                // The machine slept. Only a leader's machine does so here: a sleeping standby would miss what others do in the
                // meantime, and here nothing happens in the meantime.
                let slept_ms = self.rng.random_range(1..6 * self.heartbeat_ms);
                self.members[index].clock.slept_ms.fetch_add(slept_ms, Ordering::Relaxed);
            }
            _ => {
                let mut share = || self.rng.random_range(0.0..0.15);
                let faults = Faults {
                    delay: 0.5,
                    delay_max: Duration::from_millis(self.heartbeat_ms),
                    lost_request: share(),
                    lost_answer: share(),
                    late_landing: share(),
                    late_max: Duration::from_secs(8),
                    denied: share() / 4.0,
                    throttled: share(),
                    timeout: Duration::from_millis(self.heartbeat_ms * 2),
                };
                self.members[index].link.set(faults);
            }
        }
    }

    async fn settle(mut self) -> Outcome {
        for index in 0..self.members.len() {
            if self.members[index].node.is_none() {
                self.members[index] = self.start(index).await;
            }
            self.members[index].link.cut(false);
            self.members[index].link.set(Faults::default());
        }
        tokio::time::sleep(SETTLE).await;
        let leads = |member: &&Member| {
            member.node.as_ref().is_some_and(|node| node.leadership().borrow().is_leader())
        };
        let leaders = self.members.iter().filter(leads).count();
        let views = self.members.iter().filter_map(|member| {
            let leadership = member.node.as_ref()?.leadership();
            let view = leadership.borrow();
            Some((view.leader.clone(), view.epoch))
        });
        let views: BTreeSet<_> = views.collect();
        let mut log = self.log.lock();
        log.listen();
        if leaders != 1 {
            log.violated(name::LEADER, format!("{leaders} lead after {SETTLE:?}"));
        }
        if views.len() != 1 {
            log.violated(name::KNOWN, format!("they name {views:?}"));
        }
        Outcome {
            leaders: log.led.len() as u64,
            acts: log.acts,
            followed: std::mem::take(&mut log.followed),
            trace: log.digest.finish(),
            simulated_s: log.now_ms() / 1000,
            violations: std::mem::take(&mut log.violations),
        }
    }
}
