//! The metrics the runner adds to its node's. Counters continue across terms; gauges are 0 on nodes that do not lead.

use super::runner::RunnerCounts;
use parking_lot::Mutex;
use tenure::metrics::{FigureKind, PluginFigure};

/// The names of the metrics, as in a scrape.
pub const SCHEDULE_METRIC_NAMES: &[&str] = &[
    "tenure_poll_blocked_total",
    "tenure_poll_checks_failing",
    "tenure_poll_due_lag_max_seconds",
    "tenure_poll_due_lag_seconds",
    "tenure_poll_duplicates_total",
    "tenure_poll_jobs_created_total",
    "tenure_poll_jobs_expired_total",
    "tenure_poll_jobs_failed_total",
    "tenure_poll_jobs_late_total",
    "tenure_poll_jobs_open",
    "tenure_poll_missed_total",
    "tenure_poll_schedules",
    "tenure_poll_schedules_failing",
    "tenure_poll_unreported_total",
];

/// The counters, with the help of each, in the order of [`counters`].
const COUNTERS: [(&str, &str); 8] = [
    ("tenure_poll_blocked", "Due times that passed while the schedule had its maximum of open jobs"),
    ("tenure_poll_duplicates", "Jobs not created because they already existed"),
    ("tenure_poll_jobs_created", "Jobs created"),
    ("tenure_poll_jobs_expired", "Jobs that nobody took in time"),
    ("tenure_poll_jobs_failed", "Jobs that used up their attempts"),
    ("tenure_poll_jobs_late", "Scheduled jobs that began late"),
    ("tenure_poll_missed", "Due times skipped by the misfire policy"),
    ("tenure_poll_unreported", "Jobs that ended without a report"),
];

fn counters(counts: &RunnerCounts) -> [u64; 8] {
    let (plan, RunnerCounts { expired, failed, late, unreported, .. }) = (&counts.plan, *counts);
    [plan.blocked, plan.duplicates, plan.created, expired, failed, late, plan.missed, unreported]
}

/// What the runner of this process did in all its terms.
#[derive(Debug, Default)]
pub(super) struct ScheduleFigures(Mutex<Figures>);

#[derive(Debug, Default)]
struct Figures {
    /// The counters of former terms.
    before: [u64; 8],
    /// The counts of this term; empty on a node that does not lead.
    now: RunnerCounts,
    schedules: usize,
    checks_failing: usize,
    schedules_failing: usize,
}

impl ScheduleFigures {
    /// The counts of this term; how many schedules there are, and how many checks and schedules fail.
    pub(super) fn set(
        &self,
        now: &RunnerCounts,
        schedules: usize,
        checks_failing: usize,
        schedules_failing: usize,
    ) {
        let mut figures = self.0.lock();
        let before = figures.before;
        *figures = Figures { before, now: *now, schedules, checks_failing, schedules_failing };
    }

    /// The term is over: counters stay, gauges do not.
    pub(super) fn end_term(&self) {
        let mut figures = self.0.lock();
        let now = counters(&figures.now);
        let before = std::array::from_fn(|place| figures.before[place] + now[place]);
        *figures = Figures { before, ..Figures::default() };
    }

    pub(super) fn read(&self) -> Vec<PluginFigure> {
        let figures = self.0.lock();
        let Figures { before, now, schedules, checks_failing, schedules_failing } = &*figures;
        let counted = COUNTERS.iter().zip(before.iter().zip(counters(now)));
        let counted = counted.map(|((name, help), (before, now))| PluginFigure {
            name,
            help,
            kind: FigureKind::Counter,
            value: (before + now) as f64,
        });
        let gauge = |name, help, value| PluginFigure { name, help, kind: FigureKind::Gauge, value };
        let late_s = |late_ms: u64| late_ms as f64 / 1e3;
        let max_s = late_s(now.plan.due_lag_max_ms);
        let gauges = [
            gauge(
                "tenure_poll_checks_failing",
                "Checks currently reported as failing",
                *checks_failing as f64,
            ),
            gauge(
                "tenure_poll_due_lag_max_seconds",
                "How late the latest job of this term was created",
                max_s,
            ),
            gauge(
                "tenure_poll_due_lag_seconds",
                "How late the newest job was created",
                late_s(now.plan.due_lag_ms),
            ),
            gauge("tenure_poll_jobs_open", "Open jobs", now.open as f64),
            gauge("tenure_poll_schedules", "Valid schedules known to the leader", *schedules as f64),
            gauge(
                "tenure_poll_schedules_failing",
                "Schedules whose last run failed or expired",
                *schedules_failing as f64,
            ),
        ];
        counted.chain(gauges).collect()
    }
}
