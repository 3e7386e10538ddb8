//! The leader's work: which processes, jobs and schedules there are, and what must have become of them in the end.

use crate::checks::jobs::LIMITED;
use crate::checks::name;
use crate::computer::WALL_MS;
use crate::fault::FaultKind;
use crate::kind::Kind;
use crate::machines::dispatcher::{Dispatching, job};
use crate::machines::once::OnceKeys;
use crate::machines::registration::Worker;
use crate::machines::scheduler::Round;
use crate::network::LATE_MAX_MS;
use crate::shell::Who;
use crate::store::{Key, Value};
use crate::world::World;
use rand::RngExt;
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{
    ClaimerConfig, DispatchCommand, DispatcherConfig, Epoch, HistoryLimits, Incarnation, Interval, JobLimits,
    JobRecord, Misfire, Nonce, Order, OrdersDoc, ProcessConfig, QueueName, QueueSettings, Restart,
    ScheduleTerms, Serves, SupervisionConfig,
};
use tenure_core::{JobId, ScheduleId, SeriesId};

/// How long to count requests.
const STEADY_MS: u64 = 20_000;
/// How soon after the faults everything that was started must be over.
const OVER_MAX_MS: u64 = 150_000;
/// The most requests one job costs leader and worker together: 11 as published, plus tidying up one by one.
const JOB_COST_MAX: u64 = 16;

/// How long after its worker is gone an inbox is removed: when every request from before is over.
const RETIRE_MS: u64 = LATE_MAX_MS + 3000;

/// The settings of the work in a schedule.
pub(crate) struct JobWorkload {
    pub(crate) dispatcher: DispatcherConfig,
    pub(crate) claimer: ClaimerConfig,
    pub(crate) supervision: SupervisionConfig,
    pub(crate) rounds: Vec<Round>,
    pub(crate) limits: JobLimits,
    by_hand: u64,
    asked: u64,
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
    /// Dead jobs that were tried again on request.
    pub retries: u64,
    /// Work begun for a key.
    pub once: u64,
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
        self.retries += other.retries;
        self.once += other.once;
        self.gave_up += other.gave_up;
    }
}

impl Default for JobWorkload {
    fn default() -> JobWorkload {
        let (incarnation, epoch) = (Incarnation(0), Epoch(0));
        JobWorkload {
            dispatcher: DispatcherConfig {
                incarnation,
                epoch,
                shards: 2,
                entries_max: 4,
                fast_ms: 250,
                slow_ms: 1000,
                orders_ms: 1000,
                claim_timeout_ms: 4000,
                margin_ms: 3000,
                retire_ms: RETIRE_MS,
                keep_finished: 1,
                // Small, so that it hands over often.
                history: HistoryLimits {
                    parts: 2,
                    delay_ms: 300,
                    head_rows: 3,
                    part_rows: 6,
                    chunk_rows: 4,
                    chunks: 1_000_000,
                    retention_ms: u64::MAX / 4,
                },
                notify_all: false,
            },
            claimer: ClaimerConfig {
                incarnation,
                concurrency: 2,
                serves: Arc::new(Serves::anything(3)),
                fast_ms: 250,
                slow_ms: 1000,
                progress_ms: 1000,
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
            asked: 0,
        }
    }
}

/// Draws, before there are nodes, whether leaders of this schedule have work, and which.
pub(crate) fn draw(world: &mut World) {
    world.has_jobs = world.has_workers && world.rng.random_bool(0.75);
    if !world.has_jobs {
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
    if world.rng.random_bool(0.6) {
        world.once = OnceKeys::new(world.rng.random_bool(0.5));
    }
    let timeout_ms = world.timeout_ms;
    let (rng, workload) = (&mut world.rng, &mut world.workload);
    let fast_ms = [200, 400][rng.random_range(0..2)];
    let slow_ms = [800, 1600][rng.random_range(0..2)];
    let margin_ms = slow_ms * 2 + timeout_ms * 4;
    let dispatcher = &mut workload.dispatcher;
    (dispatcher.fast_ms, dispatcher.slow_ms, dispatcher.margin_ms) = (fast_ms, slow_ms, margin_ms);
    dispatcher.claim_timeout_ms = [2500, 6000][rng.random_range(0..2)];
    dispatcher.keep_finished = [0, 1, 4][rng.random_range(0..3)];
    (workload.claimer.fast_ms, workload.claimer.slow_ms, workload.claimer.linger_ms) =
        (fast_ms, slow_ms, fast_ms / 4);
    workload.limits.timeout_ms = [2000, 5000][rng.random_range(0..2)];
    workload.limits.attempts_max = rng.random_range(1..=3);
    // The first process assigns work: it is ready only once it has read what a former leader left.
    let first =
        ProcessConfig { restart: Restart::Permanent, ready_within_ms: Some(60_000), stop_grace_ms: 200 };
    workload.supervision.processes = vec![first];
    for _ in 0..rng.random_range(0..=2) {
        workload.supervision.processes.push(ProcessConfig {
            restart: [Restart::Permanent, Restart::Transient][rng.random_range(0..2)],
            ready_within_ms: rng.random_bool(0.4).then(|| rng.random_range(500..3000)),
            stop_grace_ms: rng.random_range(0..1500),
        });
    }
    workload.supervision.intensity = rng.random_range(1..5);
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
        world.job_checks.open_max.insert(id.series(), terms.open_max);
        workload.rounds.push(Round { id, interval, terms });
    }
    (world.job_checks.attempts_max, world.job_checks.margin_ms) = (workload.limits.attempts_max, margin_ms);
    let most = rng.random_range(1..=2);
    world.job_checks.concurrency = Some(most);
    let settings = QueueSettings { concurrency: Some(most), paused: false };
    let doc = OrdersDoc { queues: [(limited(), settings)].into(), ..OrdersDoc::default() };
    let stamp = Stamp {
        epoch: Epoch(0),
        owner: Incarnation(0),
        nonce: Nonce { incarnation: Incarnation(0), sequence: 0 },
    };
    world.store.put(0, Key::Orders, Arc::new(Value::Orders(stamp, doc)), false);
}

fn limited() -> QueueName {
    QueueName::new(LIMITED).expect("a valid name")
}

/// What somebody on any node asks of the leader: a new job, or something about one of those asked for before.
fn order(world: &mut World) -> Order {
    let dead: Vec<JobRecord> = world.job_checks.dead().cloned().collect();
    if !dead.is_empty() && world.rng.random_bool(0.4) {
        let mut again = dead[world.rng.random_range(0..dead.len())].clone();
        again.limits.attempts_max = again.begun() + world.rng.random_range(1..=2);
        again.retries += 1;
        return Order::Retry(again);
    }
    let number = world.rng.random_range(0..=2 * world.workload.asked);
    let id = JobId::new(&format!("ask-{number}")).expect("a valid id");
    if let Some(known) = world.job_checks.known(&id) {
        return if known.state.is_final() { Order::Remove(id) } else { Order::Cancel(id) };
    }
    world.workload.asked += 1;
    let name = format!("ask-{}", world.workload.asked);
    let series = SeriesId::new(&name).expect("a valid id");
    let mut record = job(&name, &series, 0, world.workload.limits.clone());
    record.priority = world.rng.random_range(0..=9);
    if world.rng.random_bool(0.6) {
        record.queue = limited();
    }
    Order::Submit(record)
}

/// Asks for something from any node, or submits a job on the leader, or cancels one there.
pub(crate) fn demand(world: &mut World) {
    if world.rng.random_bool(0.5) {
        let (node, order) = (world.rng.random_range(0..world.nodes.len()), order(world));
        return world.order_from(node, order);
    }
    let open = world.nodes.iter().enumerate().filter(|(_, node)| node.dispatch.is_some());
    let open: Vec<usize> = open.map(|(index, _)| index).collect();
    let Some(node) = open.get(world.rng.random_range(0..open.len().max(1))).copied() else { return };
    let workload = &mut world.workload;
    let again = workload.by_hand > 0 && world.rng.random_bool(0.3);
    let number = if again { world.rng.random_range(0..workload.by_hand) } else { workload.by_hand };
    workload.by_hand = workload.by_hand.max(number + 1);
    let name = format!("job-{number}");
    if again && world.rng.random_bool(0.4) {
        let id = JobId::new(&name).expect("a valid id");
        return world.command::<Dispatching>(Who::Node(node), DispatchCommand::Cancel(id));
    }
    let deadline_ms = if number % 5 == 4 { 9000 } else { 0 };
    let limits = JobLimits { deadline_ms, ..world.workload.limits.clone() };
    // Once a watermark was used, nothing at or below it is created in that series again.
    let record = job(&name, &SeriesId::new(&name).expect("a valid id"), 1, limits);
    world.submit_by_hand(node, record);
}

pub(crate) fn mend(world: &mut World) {
    world.mended = true;
    (0..world.nodes.len()).for_each(|node| world.mend_processes(node));
}

/// After the faults, with a leader: everything comes to an end, every due time becomes a job, and the idle cost is as
/// published.
pub(crate) fn settle(world: &mut World) {
    // A spoiled snapshot is made again only with the next change: until then leaders may assign work to dead workers.
    if !world.has_jobs || super::workers::is_spoiled(world) || !world.checks.violations.is_empty() {
        return;
    }
    let Some(leader) = world.acting().first().copied() else { return };
    let end = world.now + OVER_MAX_MS;
    let asked: Vec<JobId> = world.job_checks.records.keys().cloned().collect();
    let open = |world: &World| {
        let ready = world.nodes[leader].dispatch.as_ref().is_some_and(|dispatch| dispatch.ready);
        let first = asked
            .iter()
            .find(|id| world.job_checks.records.get(*id).is_some_and(|one| !one.state.is_final()));
        if ready { first.map(ToString::to_string) } else { Some("the ledger".to_owned()) }
    };
    if !run_until(world, leader, end, |world| open(world)) {
        return;
    }
    let served = world.workers.iter().any(|worker| worker.jobs.is_some());
    let from = world.wall(Who::Node(leader));
    if served {
        window(world, leader, from);
    }
    if !world.checks.violations.is_empty() {
        return;
    }
    world.workload.rounds.iter_mut().for_each(|round| round.terms.enabled = false);
    (0..world.nodes.len()).for_each(|node| world.put_rounds(node));
    // By then, what was submitted before is in the ledger.
    world.run_for(4000);
    if run_until(world, leader, world.now + OVER_MAX_MS, |world| world.job_checks.open()) {
        // What was recorded is tidied up and forgotten.
        let (slow_ms, key) = (world.workload.dispatcher.slow_ms, world.once.newest);
        world.run_for(6 * slow_ms * 1000 / 800 + 12_000 + RETIRE_MS * 1000 / 800);
        // A receiver that failed often is tried again minutes later.
        let untold = |world: &World| (world.untold() > 0).then(|| format!("{} notices", world.untold()));
        if !run_until(world, leader, world.now + 2 * OVER_MAX_MS, untold) {
            return;
        }
        if world.once.terms.is_some() && world.once.newest == key {
            world.violated(name::ONCE, || {
                format!("{leader} leads in calm, and does not get done with key {key}")
            });
        }
        steady(world, leader);
    }
}

/// Runs until nothing is reported any more, which must happen by `end`.
fn run_until(world: &mut World, leader: usize, end: u64, left: impl Fn(&World) -> Option<String>) -> bool {
    while let Some(what) = left(world) {
        let now = world.now;
        if now >= end {
            world.violated(name::JOB_ENDS, || format!("{OVER_MAX_MS} ms after all was mended: {what}"));
        }
        if world.acting() != [leader] {
            world.violated(name::NO_FAIL_BACK, || format!("{leader} led, and all was calm"));
        }
        if !world.checks.violations.is_empty() {
            return false;
        }
        world.run_for(500);
    }
    true
}

/// For a while every due time becomes a job, within the budget.
fn window(world: &mut World, leader: usize, from: u64) {
    let longest = world.workload.rounds.iter().map(|round| round.interval.every_ms).max().unwrap_or(0);
    let (start, runs) = (world.now, world.job_checks.runs.len() as u64);
    let given = world.job_checks.dispatched;
    let (by_leader, by_workers) = (leader_requests(world, leader), worker_requests(world));
    while world.now < start + 2 * longest + 4000 {
        world.run_for(500);
        let now = world.now;
        // The newest due time from before counts too, unless its policy skips it.
        let kept = world.workload.rounds.iter().all(|round| round.terms.misfire != Misfire::Skip);
        let since = if kept && now > start + 4000 { WALL_MS } else { from };
        if let Some(what) = world.missing_job(leader, since) {
            world.violated(name::DUE_KEPT, || what);
        }
        if !world.checks.violations.is_empty() {
            return;
        }
    }
    let spent = leader_requests(world, leader) - by_leader + worker_requests(world) - by_workers;
    // An attempt that its worker does not start in time is withdrawn, and costs as much as one that runs.
    let begun = (world.job_checks.runs.len() as u64 - runs).max(world.job_checks.dispatched - given);
    let idle = (world.now - start) * 1200 / 1000 / world.workload.claimer.slow_ms + 2;
    let looking = world.workers.iter().filter(|worker| worker.jobs.is_some()).count() as u64;
    let most = JOB_COST_MAX * (begun + 2) + idle * looking;
    if spent > most {
        world.violated(name::JOB_BUDGET, || format!("{spent} requests for {begun} attempts, {most} may be"));
    }
}

/// The requests a node has made for jobs as a leader.
fn leader_requests(world: &World, node: usize) -> u64 {
    let kinds = [Kind::Ledger, Kind::Inbox, Kind::Inboxes];
    kinds.iter().map(|kind| world.nodes[node].count(*kind)).sum()
}

/// The requests of workers for their jobs.
fn worker_requests(world: &World) -> u64 {
    world.workers.iter().map(Worker::job_requests).sum()
}

/// An idle leader makes no request for jobs but to look whether anything is asked of it, and an idle worker looks once per idle
/// interval.
fn steady(world: &mut World, leader: usize) {
    let all = |world: &World| leader_requests(world, leader) + world.nodes[leader].count(Kind::History);
    let before = all(world);
    let looks = world.nodes[leader].count(Kind::Orders);
    let workers: Vec<(bool, u64)> =
        world.workers.iter().map(|worker| (worker.jobs.is_some(), worker.job_requests())).collect();
    world.run_for(STEADY_MS);
    let spent = all(world) - before;
    if spent > 0 {
        world.violated(name::JOB_BUDGET, || format!("{spent} requests of {leader} for no job"));
    }
    let looks = world.nodes[leader].count(Kind::Orders) - looks;
    let orders_ms = world.workload.dispatcher.orders_ms;
    let local_ms = STEADY_MS * world.computer(Who::Node(leader)).clock.rate() / 1000;
    let (least, most) = (local_ms / (orders_ms + 3 * world.latency_ms.1), local_ms / orders_ms);
    if !(least.saturating_sub(1)..=most + 1).contains(&looks) {
        world.violated(name::JOB_BUDGET, || {
            format!("{leader} looks {looks} times whether anything is asked, {least} to {most} are due")
        });
    }
    for (index, (looked, before)) in workers.into_iter().enumerate() {
        if !looked || world.workers[index].jobs.is_none() {
            continue;
        }
        let sent = world.workers[index].job_requests() - before;
        let local_ms = STEADY_MS * world.computer(Who::Worker(index)).clock.rate() / 1000;
        let slow_ms = world.workload.claimer.slow_ms;
        let (least, most) = (local_ms / (slow_ms + 3 * world.latency_ms.1), local_ms / slow_ms);
        if !(least.saturating_sub(1)..=most + 1).contains(&sent) {
            world.violated(name::JOB_BUDGET, || {
                format!(
                    "worker {index} looks {sent} times in {STEADY_MS} ms at rest, {least} to {most} are due"
                )
            });
        }
    }
}
