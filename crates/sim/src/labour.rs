//! The leader's work in a storm: which processes, jobs and schedules there are, and what must have become of them in the end.

use crate::bureau::{Round, WALL_MS, job};
use crate::check::name;
use crate::fault::FaultKind;
use crate::node::Kind;
use crate::world::World;
use rand::RngExt;
use tenure_core::machine::Input;
use tenure_core::{
    ClaimerConfig, DispatchCommand, DispatcherConfig, DueTimes, Epoch, Incarnation, Interval, JobLimits,
    Misfire, ProcessConfig, Restart, ScheduleTerms, SupervisionConfig,
};
use tenure_core::{JobId, ScheduleId, SeriesId};

/// How long to count requests.
const STEADY_MS: u64 = 20_000;
/// How soon after the faults everything that was started must be over.
const OVER_MAX_MS: u64 = 150_000;
/// The most requests one job costs leader and worker together: 11 as published, plus archiving and tidying up one by one.
const JOB_COST_MAX: u64 = 16;
/// Most requests per second that a leader makes for jobs.
pub(crate) const STORM_MAX: u64 = 60;

/// The settings of the work in a schedule.
pub(crate) struct Labour {
    pub(crate) dispatcher: DispatcherConfig,
    pub(crate) taker: ClaimerConfig,
    pub(crate) supervision: SupervisionConfig,
    pub(crate) rounds: Vec<Round>,
    pub(crate) limits: JobLimits,
    by_hand: u64,
}

/// What leaders got done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WorkDone {
    /// Schedules in which leaders have work.
    pub schedules: u64,
    /// Attempts at jobs that were started.
    pub runs: u64,
    /// Jobs that ended.
    pub finished: u64,
    /// Due times that became jobs.
    pub jobs: u64,
    /// Results that came too late.
    pub late: u64,
    /// Processes that were restarted.
    pub restarts: u64,
    /// Leaderships given up because processes did not run.
    pub gave_up: u64,
}

impl WorkDone {
    pub(crate) fn merge(&mut self, other: &WorkDone) {
        self.schedules += other.schedules;
        self.runs += other.runs;
        self.finished += other.finished;
        self.jobs += other.jobs;
        self.late += other.late;
        self.restarts += other.restarts;
        self.gave_up += other.gave_up;
    }
}

impl Default for Labour {
    fn default() -> Labour {
        let (incarnation, epoch) = (Incarnation(0), Epoch(0));
        Labour {
            dispatcher: DispatcherConfig {
                incarnation,
                epoch,
                shards: 2,
                entries_max: 4,
                fast_ms: 250,
                slow_ms: 1000,
                claim_timeout_ms: 4000,
                margin_ms: 3000,
                // Long after every request is over; no schedule is that long.
                retire_ms: 24 * 3600 * 1000,
                keep_finished: 1,
            },
            taker: ClaimerConfig {
                incarnation,
                concurrency: 2,
                claims_max: 3,
                fast_ms: 250,
                slow_ms: 1000,
                linger_ms: 60,
            },
            supervision: SupervisionConfig {
                processes: Vec::new(),
                intensity: 3,
                window_ms: 20_000,
                backoff_first_ms: 200,
                backoff_max_ms: 2000,
                hold_first_ms: 1000,
                hold_max_ms: 4000,
                drain_ms: 1000,
            },
            rounds: Vec::new(),
            limits: JobLimits {
                timeout_ms: 4000,
                ttl_ms: 20_000,
                deadline_ms: 0,
                attempts_max: 3,
                backoff_ms: 200,
            },
            by_hand: 0,
        }
    }
}

/// Draws, before there are nodes, whether leaders of this storm have work, and which.
pub(crate) fn draw(world: &mut World) {
    world.staffed = world.manned && world.rng.random_bool(0.75);
    if !world.staffed {
        return;
    }
    for kind in [
        FaultKind::SeatCorrupt,
        FaultKind::SeatNewer,
        FaultKind::SeatForeign,
        FaultKind::SeatDeleted,
        FaultKind::SeatRestored,
    ] {
        // Nothing is promised about jobs where epochs repeat.
        world.mix = world.mix.without(kind);
    }
    let timeout_ms = world.timeout_ms;
    let (rng, labour) = (&mut world.rng, &mut world.labour);
    let fast_ms = [200, 400][rng.random_range(0..2)];
    let slow_ms = [800, 1600][rng.random_range(0..2)];
    let margin_ms = slow_ms * 2 + timeout_ms * 4;
    let dispatcher = &mut labour.dispatcher;
    (dispatcher.fast_ms, dispatcher.slow_ms, dispatcher.margin_ms) = (fast_ms, slow_ms, margin_ms);
    dispatcher.claim_timeout_ms = [2500, 6000][rng.random_range(0..2)];
    dispatcher.keep_finished = [0, 1, 4][rng.random_range(0..3)];
    (labour.taker.fast_ms, labour.taker.slow_ms, labour.taker.linger_ms) = (fast_ms, slow_ms, fast_ms / 4);
    labour.limits.timeout_ms = [2000, 5000][rng.random_range(0..2)];
    labour.limits.attempts_max = rng.random_range(1..=3);
    // The first process assigns work: it is ready only once it has read what a former leader left.
    let first =
        ProcessConfig { restart: Restart::Permanent, ready_within_ms: Some(60_000), stop_grace_ms: 200 };
    labour.supervision.processes = vec![first];
    for _ in 0..rng.random_range(0..=2) {
        labour.supervision.processes.push(ProcessConfig {
            restart: [Restart::Permanent, Restart::Transient][rng.random_range(0..2)],
            ready_within_ms: rng.random_bool(0.4).then(|| rng.random_range(500..3000)),
            stop_grace_ms: rng.random_range(0..1500),
        });
    }
    labour.supervision.intensity = rng.random_range(1..5);
    for index in 0..rng.random_range(1..=2) {
        let every_ms = [6000, 10_000, 15_000][rng.random_range(0..3)];
        let interval =
            Interval { every_ms, offset_ms: rng.random_range(0..every_ms), jitter_ms: [0, 700][index] };
        let terms = ScheduleTerms {
            enabled: true,
            priority: index as u64,
            open_max: rng.random_range(1..=2),
            misfire: [Misfire::Skip, Misfire::RunOnce, Misfire::CatchUp(3)][rng.random_range(0..3)],
            misfire_threshold_ms: [1500, 4000][rng.random_range(0..2)],
            since_ms: WALL_MS - 1000,
        };
        let id = ScheduleId::new(&format!("round-{index}")).expect("a valid id");
        world.book.open_max.insert(id.series(), terms.open_max);
        labour.rounds.push(Round { id, interval, terms });
    }
    (world.book.attempts_max, world.book.margin_ms) = (labour.limits.attempts_max, margin_ms);
}

/// Submits a job, or cancels one.
pub(crate) fn demand(world: &mut World) {
    let open: Vec<usize> =
        (0..world.offices.len()).filter(|node| world.offices[*node].bureau.is_some()).collect();
    let Some(node) = open.get(world.rng.random_range(0..open.len().max(1))).copied() else { return };
    let labour = &mut world.labour;
    let again = labour.by_hand > 0 && world.rng.random_bool(0.3);
    let number = if again { world.rng.random_range(0..labour.by_hand) } else { labour.by_hand };
    labour.by_hand = labour.by_hand.max(number + 1);
    let name = format!("job-{number}");
    let id = JobId::new(&name).expect("a valid id");
    if again && world.rng.random_bool(0.4) {
        let incarnation = world.offices[node].bureau.as_ref().map_or(0, |bureau| bureau.incarnation);
        return world.feed_bureau(node, incarnation, Input::Command(DispatchCommand::Cancel(id)));
    }
    let deadline_ms = if number % 5 == 4 { 9000 } else { 0 };
    let limits = JobLimits { deadline_ms, ..world.labour.limits.clone() };
    // Once a watermark was used, nothing at or below it is created in that series again.
    let record = job(&name, &SeriesId::new(&name).expect("a valid id"), 1, limits);
    world.submit_by_hand(node, record);
}

pub(crate) fn mend(world: &mut World) {
    world.peace = true;
    for node in 0..world.offices.len() {
        world.mend_office(node);
    }
}

/// The wall clock time up to which every due time must have become a job.
fn until(world: &World, leader: usize) -> u64 {
    world.wall(leader).saturating_sub(2500 + 12 * world.latency_ms.1)
}

/// A due time after this moment that should be a job and is not.
fn missing(world: &World, leader: usize, from: u64) -> Option<String> {
    let until = until(world, leader);
    let wall = world.wall(leader);
    for round in world.labour.rounds.iter().filter(|round| round.terms.enabled) {
        let until = until.saturating_sub(round.interval.jitter_ms);
        let due = round.interval.newest(from, until, 1).pop();
        let Some(due) =
            due.filter(|due| !world.book.dues.get(&round.id.series()).is_some_and(|dues| dues.contains(due)))
        else {
            continue;
        };
        let open_at = world.book.open_at.get(&round.id.series()).copied().unwrap_or(0);
        let open_wall = world.wall(leader) - (world.now - open_at);
        let blocked = match round.terms.misfire {
            // With this policy, a due time is run while nothing blocks it, or never.
            Misfire::Skip => open_wall >= due,
            Misfire::RunOnce | Misfire::CatchUp(_) => open_wall >= until,
        };
        if !blocked {
            let what = format!("{due} of {} is no job at {wall}, {:?}", round.id, round.terms.misfire);
            return Some(format!("{what}, a job was open until {open_wall}"));
        }
    }
    None
}

/// After the faults, with a leader in office: everything comes to an end, every due time becomes a job, and the idle cost is as
/// published.
pub(crate) fn settle(world: &mut World) {
    // A spoiled snapshot is made again only with the next change: until then leaders may assign work to dead workers.
    let spoiled = world.registry.snapshot.as_ref().is_some_and(|there| there.content.is_none());
    if !world.staffed || spoiled || !world.judge.violations.is_empty() {
        return;
    }
    let Some(leader) = world.acting().first().copied() else { return };
    let end = world.now + OVER_MAX_MS;
    let asked: Vec<JobId> = world.book.records.keys().cloned().collect();
    let open = |world: &World| {
        let ready = world.offices[leader].bureau.as_ref().is_some_and(crate::bureau::Bureau::is_ready);
        let first =
            asked.iter().find(|id| world.book.records.get(*id).is_some_and(|one| !one.state.is_final()));
        if ready { first.map(ToString::to_string) } else { Some("the ledger".to_owned()) }
    };
    if !run_until(world, leader, end, |world| open(world)) {
        return;
    }
    let served = (0..world.workers.len()).any(|index| world.hands.contains_key(&index));
    let from = world.wall(leader);
    if served {
        window(world, leader, from);
    }
    if !world.judge.violations.is_empty() {
        return;
    }
    world.labour.rounds.iter_mut().for_each(|round| round.terms.enabled = false);
    world.put_rounds();
    // By then, what was submitted before is in the ledger.
    world.run_for(4000);
    if run_until(world, leader, world.now + OVER_MAX_MS, |world| world.book.open()) {
        // What was recorded is tidied up and archived.
        let slow_ms = world.labour.dispatcher.slow_ms;
        world.run_for(6 * slow_ms * 1000 / 800 + 12_000);
        steady(world, leader);
    }
}

/// Runs until nothing is reported any more, which must happen by `end`.
fn run_until(world: &mut World, leader: usize, end: u64, left: impl Fn(&World) -> Option<String>) -> bool {
    while let Some(what) = left(world) {
        let now = world.now;
        if now >= end {
            world.judge.violated(now, name::JOB_ENDS, || format!("{OVER_MAX_MS} ms after peace: {what}"));
        }
        if world.acting() != [leader] {
            world.judge.violated(now, name::NO_FAIL_BACK, || format!("{leader} led, and all was calm"));
        }
        if !world.judge.violations.is_empty() {
            return false;
        }
        world.run_for(500);
    }
    true
}

/// For a while every due time becomes a job, within the budget.
fn window(world: &mut World, leader: usize, from: u64) {
    let longest = world.labour.rounds.iter().map(|round| round.interval.every_ms).max().unwrap_or(0);
    let (start, runs) = (world.now, world.book.runs.len() as u64);
    let given = world.book.dispatched;
    let (leaders, hands) = (world.job_requests(leader), hand_requests(world));
    while world.now < start + 2 * longest + 4000 {
        world.run_for(500);
        let now = world.now;
        // The newest due time from before counts too, unless its policy skips it.
        let kept = world.labour.rounds.iter().all(|round| round.terms.misfire != Misfire::Skip);
        let since = if kept && now > start + 4000 { WALL_MS } else { from };
        if let Some(what) = missing(world, leader, since) {
            world.judge.violated(now, name::DUE_KEPT, || what);
        }
        if !world.judge.violations.is_empty() {
            return;
        }
    }
    let spent = world.job_requests(leader) - leaders + hand_requests(world) - hands;
    // An attempt that its worker does not start in time is withdrawn, and costs as much as one that runs.
    let begun = (world.book.runs.len() as u64 - runs).max(world.book.dispatched - given);
    let idle = (world.now - start) * 1200 / 1000 / world.labour.taker.slow_ms + 2;
    let most = JOB_COST_MAX * (begun + 2) + idle * world.hands.len() as u64;
    if spent > most {
        let now = world.now;
        world.judge.violated(now, name::JOB_BUDGET, || {
            format!("{spent} requests for {begun} attempts, {most} may be")
        });
    }
}

fn hand_requests(world: &World) -> u64 {
    world.hands.values().map(|hand| hand.sent).sum()
}

/// An idle leader makes no request for jobs, and an idle worker looks once per idle interval.
fn steady(world: &mut World, leader: usize) {
    let before = world.job_requests(leader);
    let hands: Vec<(usize, u64)> = world.hands.iter().map(|(index, hand)| (*index, hand.sent)).collect();
    world.run_for(STEADY_MS);
    let now = world.now;
    let spent = world.job_requests(leader) - before;
    if spent > 0 {
        world.judge.violated(now, name::JOB_BUDGET, || format!("{spent} requests of {leader} for no job"));
    }
    for (index, before) in hands {
        let Some(hand) = world.hands.get(&index) else { continue };
        let sent = hand.sent - before;
        let local_ms = STEADY_MS * world.worker_clock(index).rate() / 1000;
        let slow_ms = world.labour.taker.slow_ms;
        let (least, most) = (local_ms / (slow_ms + 3 * world.latency_ms.1), local_ms / slow_ms);
        if !(least.saturating_sub(1)..=most + 1).contains(&sent) {
            world.judge.violated(now, name::JOB_BUDGET, || {
                format!(
                    "worker {index} looks {sent} times in {STEADY_MS} ms at rest, {least} to {most} are due"
                )
            });
        }
    }
}

impl World {
    /// A leader's requests for jobs are bounded during faults, too.
    pub(crate) fn check_job_storm(&mut self, node: usize, kind: Kind) {
        if !matches!(kind, Kind::Ledger | Kind::Inbox | Kind::Inboxes | Kind::Archive) {
            return;
        }
        let (now, second) = (self.now, self.now / 1000);
        let before = self.job_second.get(&node).copied().filter(|(last, ..)| *last == second);
        let (_, count, updates) = before.unwrap_or((second, 0, self.book.updates));
        self.job_second.insert(node, (second, count + 1, updates));
        // Requests with an effect may add to this: a write for what was seen, and one for what follows from it.
        let most = STORM_MAX + 2 * (self.book.updates - updates);
        if count + 1 > most && !self.wild {
            self.judge.violated(now, name::JOB_BUDGET, || {
                format!("{node} makes more than {most} requests for jobs in second {second}")
            });
        }
    }

    /// The requests a node has made for jobs as a leader.
    pub(crate) fn job_requests(&self, node: usize) -> u64 {
        [Kind::Ledger, Kind::Inbox, Kind::Inboxes, Kind::Archive]
            .iter()
            .map(|kind| self.nodes[node].count(*kind))
            .sum()
    }
}
