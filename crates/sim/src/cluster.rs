//! The production driver in trouble: real nodes with guards, settings and documents, on paused time over the memory store.
//!
//! Slower than the bare core by orders of magnitude, so there are fewer schedules; what it adds is everything between the
//! core and its users: the loop, the carrier, the wire format, the guard. A crash is a node whose link is cut for good and
//! whose handle is dropped; a process cannot be killed inside this one.

use crate::check::{self, Violation};
use crate::model::{self, Step, Terms};
use crate::overheard::{Overheard, Record};
use crate::trace::Digest;
use crate::transition::Followed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure::store::{Faults, Faulty, Lanes, Store};
use tenure::{Clock, CoreStep, DriverMutant, Event, EventKind, Leadership, Node, Settings, Watcher};
use tenure_core::{Effect, Epoch, Request, SeatState, Version};
use tokio::sync::{broadcast, watch};

/// Faults strike for this long.
const TROUBLE: Duration = Duration::from_secs(45);
/// A leader must be there this long after all was mended: late landings, a start, two failovers on a slow clock.
const SETTLE: Duration = Duration::from_secs(45);
const SEAT: &str = "plg_coordinator_global/sim/seat.json";

/// What is checked, by name.
mod name {
    pub(super) const ORDER: &str = "nobody acts in an older epoch";
    pub(super) const HOLDER: &str = "one holder per epoch";
    pub(super) const ONE: &str = "one acts at a time";
    pub(super) const DEADLINE: &str = "nobody acts past its own deadline";
    pub(super) const STOPPED: &str = "nobody acts while another's work winds down";
    pub(super) const SEAT: &str = "epochs on the seat rise";
    pub(super) const DIES: &str = "no candidate dies";
    pub(super) const LEADER: &str = "one leader after all was mended";
    pub(super) const KNOWN: &str = "everybody knows the leader after all was mended";
    pub(super) const RUNTIME: &str = "the schedule runs";
}

/// What came of schedules with the driver.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many ran.
    pub schedules: u64,
    /// Simulated seconds.
    pub simulated_s: u64,
    /// Leaders there were.
    pub leaders: u64,
    /// Pieces of work they did.
    pub acts: u64,
    /// Steps of their coordinators that were held against the proof's model.
    pub followed: Followed,
    /// What must not be, with the seed.
    pub violations: Vec<(u64, String)>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// For programs.
    pub fn to_json(&self) -> Value {
        let violations: Vec<Value> =
            self.violations.iter().map(|(seed, what)| json!({"seed": seed, "what": what})).collect();
        json!({
            "schedules": self.schedules, "simulatedSeconds": self.simulated_s, "leaders": self.leaders,
            "acts": self.acts, "followed": self.followed.to_json(), "violations": violations, "wallSeconds": self.took.as_secs_f64(),
        })
    }
}

/// What came of one.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Leaders there were.
    pub leaders: u64,
    /// Pieces of work.
    pub acts: u64,
    /// Steps of coordinators that were held against the proof's model.
    pub followed: Followed,
    /// A digest of who led when: same seed, same digest.
    pub trace: u64,
    /// Simulated seconds.
    pub simulated_s: u64,
    /// What must not be.
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

/// Runs one schedule.
pub fn run(seed: u64) -> Outcome {
    run_broken(seed, None)
}

/// Runs one schedule with nodes that are broken on purpose, in builds with the feature `teeth`.
pub fn run_broken(seed: u64, broken: Option<DriverMutant>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(schedule(seed, broken)),
        Err(error) => {
            let violation = Violation { at: 0, check: name::RUNTIME, what: error.to_string() };
            Outcome { violations: vec![violation], ..Outcome::default() }
        }
    }
}

/// A clock with a rate of its own. It leaps when its machine was asleep; timers of the runtime know nothing of that.
#[derive(Debug)]
struct DriftingClock {
    origin: tokio::time::Instant,
    rate: u64,
    slept_ms: AtomicU64,
}

impl Clock for DriftingClock {
    fn now_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX / 2000);
        1000 + elapsed_ms * self.rate / 1000 + self.slept_ms.load(Ordering::Relaxed)
    }
}

/// Everything that was done in anybody's name.
#[derive(Default)]
struct Log {
    origin: Option<tokio::time::Instant>,
    watched: BTreeMap<u64, Watched>,
    led: BTreeMap<u64, u64>,
    last: u64,
    /// The record on the seat, and what every life's clock showed when it landed.
    seat: Option<(Record, BTreeMap<u64, u64>)>,
    acts: u64,
    followed: Followed,
    /// The version that a list showed a life to be long dead.
    aged: BTreeMap<u64, Version>,
    digest: Digest,
    violations: Vec<Violation>,
}

/// One life of a node, from outside.
struct Watched {
    node: String,
    leadership: watch::Receiver<Leadership>,
    events: broadcast::Receiver<Event>,
    clock: Arc<DriftingClock>,
    /// Until when it may act in which epoch, by its own word.
    deadlines: BTreeMap<u64, u64>,
    /// Its work of this epoch runs.
    works: Option<u64>,
    /// And was told to stop.
    winding_down: bool,
    /// The highest epoch it has sent a vacate for.
    vacated: Option<Epoch>,
}

impl Watched {
    fn is_past_its_deadline(&self, epoch: u64) -> bool {
        self.deadlines.get(&epoch).is_none_or(|deadline_ms| self.clock.now_ms() >= *deadline_ms)
    }

    fn may_not_have_stopped(&self) -> bool {
        self.winding_down && self.works.is_some_and(|epoch| !self.is_past_its_deadline(epoch))
    }
}

type Shared = Arc<Mutex<Log>>;

fn open(log: &Shared) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn now_ms(&self) -> u64 {
        self.origin.map_or(0, |origin| u64::try_from(origin.elapsed().as_millis()).unwrap_or(0))
    }

    fn violated(&mut self, check: &'static str, what: String) {
        let at = self.now_ms();
        self.violations.push(Violation { at, check, what });
    }

    /// What everybody has said until now.
    fn listen(&mut self) {
        let mut died = None;
        for (life, watched) in &mut self.watched {
            while let Ok(event) = watched.events.try_recv() {
                if let EventKind::BecameLeader { deadline_boot_ms }
                | EventKind::LeaseRenewed { deadline_boot_ms, .. } = event.kind
                {
                    watched.deadlines.insert(event.epoch, deadline_boot_ms);
                } else if let EventKind::CandidateRestarted { .. } = event.kind {
                    died = Some(*life);
                }
            }
        }
        if let Some(life) = died {
            self.violated(name::DIES, format!("life {life}"));
        }
    }

    /// A record lands on the seat.
    fn lands(&mut self, record: Option<Record>) {
        let before = self.seat.as_ref().map(|(seat, clocks)| (seat.clone(), clocks.clone()));
        let from = before.as_ref().map_or(0, |(seat, _)| seat.epoch);
        let Some(record) = record.filter(|record| record.epoch >= from) else {
            return self.violated(name::SEAT, format!("from epoch {from} to less, or to no record"));
        };
        // A holder that never acted has nothing to stop.
        if let Some((seat, clocks)) = before.filter(|(seat, _)| seat.held && record.epoch > seat.epoch)
            && let Some((life, watched)) =
                self.led.get(&seat.epoch).and_then(|life| Some((life, self.watched.get(life)?)))
            && let Some(landed) = clocks.get(life)
            && watched.clock.now_ms() < landed + seat.hold_ms
        {
            let (shows, hold_ms) = (watched.clock.now_ms(), seat.hold_ms);
            let what =
                format!("{record:?} over one of {landed}, at {shows} of its holder's clock, hold {hold_ms}");
            self.violated(check::name::M3, what);
        }
        let clocks = self.watched.iter().map(|(life, watched)| (*life, watched.clock.now_ms())).collect();
        self.seat = Some((record, clocks));
    }

    fn works(&mut self, life: u64, works: Option<u64>, winding_down: bool) {
        if let Some(watched) = self.watched.get_mut(&life) {
            (watched.works, watched.winding_down) = (works, winding_down);
        }
    }

    /// A coordinator made a step: it must be one of the model's, the coordinator must know of work that runs (K5), and who vacates
    /// an epoch must be done with it (L1).
    fn follows(&mut self, life: u64, step: &CoreStep<'_>) {
        let (me, config) = (step.core.me(), step.core.config());
        if let Some(version) = model::aged(&step.before, me, config, step.input) {
            self.aged.insert(life, version);
        }
        let terms = Terms { me, config, aged: self.aged.get(&life) };
        let made = Step { now: step.now, input: step.input, effects: step.effects };
        let after = step.core.view();
        if let Err(what) = model::follow(&terms, &step.before, &made, &after, &mut self.followed) {
            self.violated(check::name::MODEL, format!("life {life}: {what}"));
        }
        let Some(watched) = self.watched.get_mut(&life) else { return };
        let vacates = step.effects.iter().filter_map(|effect| {
            let Effect::Request(_, Request::WriteSeat { seat, .. }) = effect else { return None };
            (seat.state == SeatState::Vacant).then_some(seat.epoch)
        });
        watched.vacated = vacates.chain(watched.vacated).max();
        let works = watched.works.map(Epoch);
        let unknown = works.filter(|epoch| !model::is_known(&after, *epoch));
        let acts = works.filter(|epoch| !watched.is_past_its_deadline(epoch.0));
        let again = watched.vacated.filter(|epoch| !model::is_over(&after, acts, *epoch));
        if let Some(epoch) = unknown {
            self.violated(check::name::K5, format!("life {life}: work of {epoch:?} runs: {after:?}"));
        }
        if let Some(epoch) = again {
            self.violated(check::name::L1, format!("life {life}: {epoch:?} was vacated: {after:?}"));
        }
    }

    /// One piece of work, done under a guard that was valid a moment ago.
    fn act(&mut self, life: u64, epoch: u64) {
        self.acts += 1;
        self.listen();
        let now = self.now_ms();
        if epoch < self.last {
            self.violated(name::ORDER, format!("life {life} acts in {epoch} after {}", self.last));
        }
        self.last = self.last.max(epoch);
        let name = self.watched.get(&life).map(|watched| watched.node.clone());
        let holds = |(seat, _): &(Record, BTreeMap<u64, u64>)| {
            seat.held && seat.epoch == epoch && Some(&seat.node) == name.as_ref()
        };
        if !self.seat.as_ref().is_some_and(holds) {
            let seat = self.seat.as_ref().map(|(seat, _)| seat.clone());
            self.violated(check::name::HOLDS_THE_SEAT, format!("life {life} acts in {epoch}: {seat:?}"));
        }
        match self.led.insert(epoch, life) {
            Some(other) if other != life => {
                self.violated(name::HOLDER, format!("epoch {epoch} led by life {other} and by life {life}"));
            }
            Some(_) => {}
            None => (now, life, epoch).hash(&mut self.digest),
        }
        if self.watched.get(&life).is_some_and(|watched| watched.is_past_its_deadline(epoch)) {
            self.violated(name::DEADLINE, format!("life {life} in {epoch}"));
        }
        let mut others = self.watched.iter().filter(|(other, _)| **other != life);
        let beside = others.clone().find(|(_, watched)| watched.leadership.borrow().is_leader());
        let beside = beside.map(|(other, _)| *other);
        let unfinished = others.find(|(_, watched)| watched.may_not_have_stopped());
        let unfinished = unfinished.map(|(other, _)| *other);
        if let Some(other) = beside {
            self.violated(name::ONE, format!("life {life} acts while life {other} may"));
        }
        if let Some(other) = unfinished {
            self.violated(name::STOPPED, format!("life {life} acts, life {other} has not stopped"));
        }
    }
}

/// Leader-only work: many small effects, each after a look at the guard; then it takes its time to end.
async fn work(life: u64, mut leadership: watch::Receiver<Leadership>, log: Shared, linger: Duration) {
    loop {
        let guard = leadership.borrow_and_update().guard();
        if let Some(guard) = guard {
            open(&log).works(life, Some(guard.epoch()), false);
            while guard.check().is_ok() {
                open(&log).act(life, guard.epoch());
                tokio::select! {
                    biased;
                    () = guard.ended() => {}
                    () = tokio::time::sleep(Duration::from_millis(40)) => {}
                }
            }
            open(&log).works(life, Some(guard.epoch()), true);
            tokio::time::sleep(linger).await;
            open(&log).works(life, None, false);
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
    store: Arc<Overheard>,
    log: Shared,
    members: Vec<Member>,
    lives: u64,
    seed: u64,
    heartbeat_ms: u64,
    #[cfg_attr(not(feature = "teeth"), expect(dead_code, reason = "nothing is broken then"))]
    broken: Option<DriverMutant>,
}

async fn schedule(seed: u64, broken: Option<DriverMutant>) -> Outcome {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let heartbeat_ms = [250, 1000][rng.random_range(0..2)];
    let log: Shared = Arc::default();
    open(&log).origin = Some(tokio::time::Instant::now());
    let told = Arc::clone(&log);
    let mut cluster = Cluster {
        rng,
        store: Arc::new(Overheard::new(SEAT, Arc::new(move |record| open(&told).lands(record)))),
        log,
        members: Vec::new(),
        lives: 0,
        seed,
        heartbeat_ms,
        broken,
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
            .heartbeat_interval(heartbeat_ms)
            .lease_timeout(heartbeat_ms * 3)
            .startup_jitter_max(500)
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
            .watcher(Watcher::new(move |step| open(&log).follows(life, step)))
            .jitter_random(self.rng.random());
        #[cfg(feature = "teeth")]
        let builder = match self.broken {
            Some(mutant) => builder.broken(tenure::Broken::Driver(mutant)),
            None => builder,
        };
        let events = builder.events();
        let node = builder.start().await.ok();
        if let Some(node) = &node {
            let (leadership, clock) = (node.leadership(), Arc::clone(&clock));
            let watched = Watched {
                node: format!("node-{index}"),
                leadership,
                events,
                clock,
                deadlines: BTreeMap::new(),
                works: None,
                winding_down: false,
                vacated: None,
            };
            open(&self.log).watched.insert(life, watched);
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
                // A crash: nothing of it reaches the store any more, and a new life begins at once or later.
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
                // Its machine slept. Only a leader's does here: a sleeper sees nothing of what others do meanwhile, and
                // meanwhile nothing happens here.
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
        let mut log = open(&self.log);
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
