//! Where a node's figures are kept: a fixed space, shared by the driver, the handle and the registry.

use super::jobs::JobFigures;
use super::{Histogram, LaneRequests, Metrics, Prices, Requests};
use crate::clock::Clock;
use crate::clock::millis;
use crate::event::EventKind;
use crate::guard::Leadership;
use crate::settings::Settings;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::{ContentionWatch, Cycle, ElectionDurations, HeartbeatLatencies, Role, Time};
use tenure_store::{Lanes, Meter, Metered, Store};
use tokio::sync::watch;

/// Rates are measured over one to two of these: long enough to smooth out presences, short enough to follow a change.
const RATE_WINDOW_MS: u64 = 300_000;

/// A rate over less than this would mean nothing.
const RATE_MIN_MS: u64 = 1000;

/// One node's figures. They survive each life of the candidate.
#[derive(Debug)]
pub(crate) struct Counters {
    namespace: Arc<str>,
    node: Arc<str>,
    clock: Arc<dyn Clock>,
    prices: Prices,
    expected_ms: u64,
    leadership: watch::Receiver<Leadership>,
    lease: Meter,
    bulk: Meter,
    jobs: JobFigures,
    pub(super) sources: super::plugin::Sources,
    /// Counted by whoever fences tasks.
    drift: Arc<AtomicU64>,
    /// The plugins that share the election.
    plugins: Mutex<Arc<[Arc<str>]>>,
    /// What the store said when it refused something the election needs, for lack of permission; cleared once that is fixed.
    denied: watch::Sender<Option<Arc<str>>>,
    /// The last epoch this node led in.
    led: AtomicU64,
    /// When the seat was last seen to change; 0 if it has not been seen.
    seat_seen: AtomicU64,
    /// When this node may claim the seat at the earliest; 0 if it may not.
    claims_at: AtomicU64,
    /// How the last refreshes of this node's presence went, one bit each, newest last: 1 if somebody else had written it.
    conflicts: AtomicU64,
    processes: ProcessFigures,
    tally: Mutex<Tally>,
}

#[derive(Debug)]
struct Tally {
    latencies: HeartbeatLatencies,
    heartbeats: u64,
    durations: ElectionDurations,
    contention: ContentionWatch,
    elections: u64,
    leader_changes: u64,
    workers: WorkerFigures,
    plugin_failures: u64,
    fallbacks: u64,
    in_fallback: u64,
    /// The rates count from the first sample; the second replaces it once it is a window old.
    samples: Option<(Sample, Sample)>,
}

#[derive(Clone, Copy, Default, Debug)]
struct WorkerFigures {
    active: u64,
    inactive: u64,
    skipped: u64,
    timeouts: u64,
    sweeps: u64,
}

#[derive(Default, Debug)]
struct ProcessFigures {
    running: AtomicU64,
    stuck: AtomicU64,
    restarts: AtomicU64,
}

/// What one supervisor adds to its node's figures. Subtracted again when it ends.
#[derive(Debug)]
pub(crate) struct ProcessShare {
    counters: Arc<Counters>,
    running: u64,
    stuck: u64,
}

impl ProcessShare {
    pub(crate) fn new(counters: Arc<Counters>) -> ProcessShare {
        ProcessShare { counters, running: 0, stuck: 0 }
    }

    pub(crate) fn set(&mut self, running: u64, stuck: u64) {
        let processes = &self.counters.processes;
        // Wrapping, as atomics do: the difference may be negative, but the sum of all shares is not.
        processes.running.fetch_add(running.wrapping_sub(self.running), Ordering::Relaxed);
        processes.stuck.fetch_add(stuck.wrapping_sub(self.stuck), Ordering::Relaxed);
        (self.running, self.stuck) = (running, stuck);
    }
}

impl Drop for ProcessShare {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    requests: u64,
    writes: u64,
    reads: u64,
}

impl Counters {
    pub(crate) fn new(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        leadership: watch::Receiver<Leadership>,
    ) -> Counters {
        let threshold =
            settings.contention_detection_enabled.then_some(settings.contention_threshold_permille);
        let tally = Tally {
            latencies: HeartbeatLatencies::default(),
            heartbeats: 0,
            durations: ElectionDurations::default(),
            contention: ContentionWatch::new(millis(settings.heartbeat_interval), threshold),
            elections: 0,
            leader_changes: 0,
            workers: WorkerFigures::default(),
            plugin_failures: 0,
            fallbacks: 0,
            in_fallback: 0,
            samples: None,
        };
        Counters {
            namespace: Arc::from(settings.namespace.as_str()),
            node: Arc::from(settings.node.as_str()),
            clock,
            prices: Prices::billed(settings),
            expected_ms: millis(settings.heartbeat_interval),
            leadership,
            lease: Meter::default(),
            bulk: Meter::default(),
            jobs: JobFigures::default(),
            sources: super::plugin::Sources::default(),
            drift: Arc::default(),
            plugins: Mutex::default(),
            denied: watch::Sender::new(None),
            led: AtomicU64::new(0),
            seat_seen: AtomicU64::new(0),
            claims_at: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            processes: ProcessFigures::default(),
            tally: Mutex::new(tally),
        }
    }

    /// Wraps the lanes so that their requests are counted.
    pub(crate) fn meter(&self, lanes: Lanes) -> Lanes {
        Lanes {
            lease: Arc::new(Metered::new(lanes.lease, self.lease.clone())),
            bulk: Arc::new(Metered::new(lanes.bulk, self.bulk.clone())),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The figures that plugins add.
    pub(super) fn plugin_figures(&self) -> Vec<super::PluginFigure> {
        self.sources.read()
    }

    pub(crate) fn jobs(&self) -> &JobFigures {
        &self.jobs
    }

    /// Wraps a lane so that its requests also count as job requests.
    pub(crate) fn meter_jobs(&self, lane: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Metered::new(Arc::clone(lane), self.jobs.meter.clone()))
    }

    pub(crate) fn drift(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.drift)
    }

    /// The plugins that share the election, in name order.
    pub(crate) fn plugins(&self) -> Arc<[Arc<str>]> {
        Arc::clone(&self.plugins.lock())
    }

    pub(crate) fn serve(&self, plugins: Arc<[Arc<str>]>) {
        *self.plugins.lock() = plugins;
    }

    /// What the store said when it refused something the election needs, for lack of permission; `None` while it does not.
    pub(crate) fn denied(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.denied.subscribe()
    }

    /// The store refused. `for_permission` is what it said if permission is lacking, and `None` for any other reason.
    pub(crate) fn refused(&self, for_permission: Option<String>) {
        self.denied.send_replace(for_permission.map(Arc::from));
    }

    /// The last epoch this node led in; 0 if it never led.
    pub(crate) fn led(&self) -> u64 {
        self.led.load(Ordering::Acquire)
    }

    /// A plugin in fallback has left.
    pub(crate) fn left_fallback(&self) {
        let mut tally = self.tally.lock();
        tally.in_fallback = tally.in_fallback.saturating_sub(1);
    }

    /// Counts the event if it is one that counts, and keeps what others ask for.
    pub(crate) fn count(&self, epoch: u64, kind: &EventKind) {
        // A candidate that starts again finds out by itself.
        if matches!(
            kind,
            EventKind::StoreRecovered | EventKind::Joined | EventKind::CandidateRestarted { .. }
        ) {
            self.denied.send_if_modified(|denied| denied.take().is_some());
        }
        if matches!(kind, EventKind::BecameLeader { .. }) {
            self.led.fetch_max(epoch, Ordering::AcqRel);
        }
        if matches!(kind, EventKind::ProcessRestarted { .. }) {
            self.processes.restarts.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(kind, EventKind::PluginFailed { .. }) {
            self.tally.lock().plugin_failures += 1;
        }
        if matches!(kind, EventKind::FallbackStarted { .. }) {
            let mut tally = self.tally.lock();
            (tally.fallbacks, tally.in_fallback) = (tally.fallbacks + 1, tally.in_fallback + 1);
        }
        if matches!(kind, EventKind::ElectionStarted { .. }) {
            self.tally.lock().elections += 1;
        }
        if matches!(kind, EventKind::LeaderChanged { .. }) {
            self.tally.lock().leader_changes += 1;
        }
        if matches!(kind, EventKind::WorkerTimeout(_)) {
            self.tally.lock().workers.timeouts += 1;
        }
        if matches!(kind, EventKind::Joined) {
            // The requests of a start would distort the monthly rate.
            let sample = self.sample();
            self.tally.lock().samples = Some((sample, sample));
        }
    }

    /// Sets the number of workers.
    pub(crate) fn workers(&self, active: u64, inactive: u64, skipped: u64) {
        let workers = &mut self.tally.lock().workers;
        (workers.active, workers.inactive, workers.skipped) = (active, inactive, skipped);
    }

    /// Counts a list of the workers.
    pub(crate) fn swept(&self) {
        self.tally.lock().workers.sweeps += 1;
    }

    pub(crate) fn elected(&self, duration_ms: u64) {
        self.tally.lock().durations.record(duration_ms);
    }

    /// Takes a finished heartbeat cycle. Returns the event to emit, if it is time for one.
    pub(crate) fn cycle(&self, now: Time, cycle: Cycle) -> Option<EventKind> {
        let sample = self.sample();
        let mut tally = self.tally.lock();
        tally.heartbeats += 1;
        tally.latencies.record(cycle.duration_ms);
        if let Some((since, next)) = &mut tally.samples
            && sample.at_ms.saturating_sub(next.at_ms) >= RATE_WINDOW_MS
        {
            (*since, *next) = (*next, sample);
        }
        drop(tally);
        if cycle.told { None } else { self.contended(now, cycle) }
    }

    /// The same for a cycle that has lasted too long and may not have ended.
    pub(crate) fn contended(&self, now: Time, cycle: Cycle) -> Option<EventKind> {
        self.tally.lock().contention.cycle(now, cycle.duration_ms).then_some(EventKind::ContentionDetected {
            duration: Duration::from_millis(cycle.duration_ms),
            expected: Duration::from_millis(self.expected_ms),
            stalled: Duration::from_millis(cycle.stalled_ms),
        })
    }

    /// Sets when the seat was first seen as it is now.
    pub(crate) fn seat_seen(&self, at: Option<Time>) {
        self.seat_seen.store(at.map_or(0, |at| at.0), Ordering::Relaxed);
    }

    /// How long ago that was; `None` if it has not been seen.
    pub(crate) fn seat_age_ms(&self) -> Option<u64> {
        let seen_ms = self.seat_seen.load(Ordering::Relaxed);
        (seen_ms > 0).then(|| self.clock.now_ms().saturating_sub(seen_ms))
    }

    /// Sets when this node may claim the seat at the earliest.
    pub(crate) fn claims_at(&self, at: Option<Time>) {
        self.claims_at.store(at.map_or(0, |at| at.0), Ordering::Relaxed);
    }

    /// How long until then; `None` if it may not.
    pub(crate) fn claims_in_ms(&self) -> Option<u64> {
        let claims_ms = self.claims_at.load(Ordering::Relaxed);
        (claims_ms > 0).then(|| claims_ms.saturating_sub(self.clock.now_ms()))
    }

    /// This node's presence was refreshed; `conflicted` if somebody else had written it.
    pub(crate) fn conflicted(&self, conflicted: bool) {
        // There is only one refresh at a time.
        let before = self.conflicts.load(Ordering::Relaxed);
        self.conflicts.store(before << 1 | u64::from(conflicted), Ordering::Relaxed);
    }

    /// Whether somebody else keeps writing it: two of the last four times. Once may be somebody who removed it; and if two
    /// processes write in turns, each finds its own version now and then.
    pub(crate) fn has_conflict(&self) -> bool {
        (self.conflicts.load(Ordering::Relaxed) & 0b1111).count_ones() >= 2
    }

    /// The newest heartbeats, at most a hundred, oldest first.
    pub(crate) fn heartbeats(&self) -> Vec<u64> {
        self.tally.lock().latencies.remembered().collect()
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let (lease, bulk) = (self.lease.snapshot(), self.bulk.snapshot());
        let (role, epoch) = {
            let leadership = self.leadership.borrow();
            (leadership.role.map(role_name), leadership.epoch)
        };
        let now = self.sample();
        let plugin_figures = self.plugin_figures().iter().map(|f| (f.shown_name(), f.value)).collect();
        let tally = self.tally.lock();
        let percentile = |percent| tally.latencies.percentile(percent);
        let note = percentile(99).is_none().then(|| {
            format!(
                "insufficient data: {} heartbeats, at least {} are needed for percentiles",
                tally.heartbeats,
                HeartbeatLatencies::NEEDED
            )
        });
        let since = tally.samples.map_or(now, |(since, _)| since);
        let measured_ms = now.at_ms.saturating_sub(since.at_ms);
        let rate = |now: u64, since: u64| {
            if measured_ms < RATE_MIN_MS {
                return 0.0;
            }
            now.saturating_sub(since) as f64 * 1000.0 / measured_ms as f64
        };
        let (writes, reads) = (rate(now.writes, since.writes), rate(now.reads, since.reads));
        Metrics {
            namespace: self.namespace.to_string(),
            node: self.node.to_string(),
            role: role.map(str::to_owned),
            epoch,
            heartbeats: tally.heartbeats,
            heartbeat_latency_p50: percentile(50).unwrap_or(0),
            heartbeat_latency_p99: percentile(99).unwrap_or(0),
            note,
            epoch_drift_events: self.drift.load(Ordering::Relaxed),
            contention_events: tally.contention.events,
            elections: tally.elections,
            leader_changes: tally.leader_changes,
            plugins: self.plugins().iter().map(|name| name.to_string()).collect(),
            plugin_failures: tally.plugin_failures,
            fallbacks: tally.fallbacks,
            plugins_in_fallback: tally.in_fallback,
            election_duration_histogram: Histogram::from(&tally.durations),
            workers_active: tally.workers.active,
            workers_inactive: tally.workers.inactive,
            workers_skipped: tally.workers.skipped,
            worker_timeouts: tally.workers.timeouts,
            worker_sweeps: tally.workers.sweeps,
            processes_running: self.processes.running.load(Ordering::Relaxed),
            processes_stuck: self.processes.stuck.load(Ordering::Relaxed),
            process_restarts: self.processes.restarts.load(Ordering::Relaxed),
            jobs: self.jobs.metrics(),
            plugin_figures,
            requests: LaneRequests { lease: Requests::from(lease), bulk: Requests::from(bulk) },
            measured_ms,
            requests_per_second: rate(now.requests, since.requests),
            writes_per_second: writes,
            reads_per_second: reads,
            cost_per_month: self.prices.per_month(writes, reads),
        }
    }

    fn sample(&self) -> Sample {
        let (lease, bulk) = (self.lease.snapshot(), self.bulk.snapshot());
        Sample {
            at_ms: self.clock.now_ms(),
            requests: lease.requests() + bulk.requests(),
            writes: lease.write_class() + bulk.write_class(),
            reads: lease.read_class() + bulk.read_class(),
        }
    }
}

pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Standby => "standby",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Draining => "draining",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx3_what_a_node_remembers_has_a_fixed_size() {
        assert!(size_of::<HeartbeatLatencies>() <= 512, "{}", size_of::<HeartbeatLatencies>());
        assert!(size_of::<Tally>() <= 1024, "{} bytes", size_of::<Tally>());
    }
}
