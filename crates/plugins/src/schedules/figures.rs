//! The metrics the runner adds to its node's. Counters continue across terms; gauges are 0 on nodes that do not lead.

use super::runner::RunnerCounts;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure::metrics::{FigureKind, PluginFigure};

/// The names of the metrics, as in a scrape.
pub const SCHEDULE_METRIC_NAMES: &[&str] = &[
    "tenure_poll_blocked_total",
    "tenure_poll_checks_failing",
    "tenure_poll_due_lag_max_seconds",
    "tenure_poll_due_lag_seconds",
    "tenure_poll_duplicates_total",
    "tenure_poll_jobs_created_total",
    "tenure_poll_jobs_open",
    "tenure_poll_missed_total",
    "tenure_poll_schedules",
    "tenure_poll_unreported_total",
];

#[derive(Debug, Default)]
pub(super) struct ScheduleFigures {
    created: AtomicU64,
    duplicates: AtomicU64,
    missed: AtomicU64,
    blocked: AtomicU64,
    unreported: AtomicU64,
    open: AtomicU64,
    schedules: AtomicU64,
    failing: AtomicU64,
    due_lag_ms: AtomicU64,
    due_lag_max_ms: AtomicU64,
}

impl ScheduleFigures {
    /// Adds what a term counted since the last call, and sets the gauges.
    pub(super) fn take(&self, before: &RunnerCounts, now: &RunnerCounts, schedules: usize, failing: usize) {
        let add = |figure: &AtomicU64, before: u64, now: u64| {
            figure.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        };
        add(&self.created, before.plan.created, now.plan.created);
        add(&self.duplicates, before.plan.duplicates, now.plan.duplicates);
        add(&self.missed, before.plan.missed, now.plan.missed);
        add(&self.blocked, before.plan.blocked, now.plan.blocked);
        add(&self.unreported, before.unreported, now.unreported);
        self.open.store(now.open, Ordering::Relaxed);
        self.schedules.store(schedules as u64, Ordering::Relaxed);
        self.failing.store(failing as u64, Ordering::Relaxed);
        self.due_lag_ms.store(now.plan.due_lag_ms, Ordering::Relaxed);
        self.due_lag_max_ms.store(now.plan.due_lag_max_ms, Ordering::Relaxed);
    }

    /// The term is over: resets the gauges.
    pub(super) fn rest(&self) {
        for gauge in [&self.open, &self.schedules, &self.failing, &self.due_lag_ms, &self.due_lag_max_ms] {
            gauge.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn read(&self) -> Vec<PluginFigure> {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed) as f64;
        let figure = |name, help, kind, value| PluginFigure { name, help, kind, value };
        let counter = |name, help, value| figure(name, help, FigureKind::Counter, get(value));
        let gauge = |name, help, value| figure(name, help, FigureKind::Gauge, value);
        vec![
            counter(
                "tenure_poll_blocked",
                "Due times that passed while the schedule had its maximum of open jobs",
                &self.blocked,
            ),
            gauge("tenure_poll_checks_failing", "Checks currently reported as failing", get(&self.failing)),
            gauge(
                "tenure_poll_due_lag_max_seconds",
                "How late the latest job of this term was created",
                get(&self.due_lag_max_ms) / 1e3,
            ),
            gauge(
                "tenure_poll_due_lag_seconds",
                "How late the newest job was created",
                get(&self.due_lag_ms) / 1e3,
            ),
            counter(
                "tenure_poll_duplicates",
                "Jobs not created because they already existed",
                &self.duplicates,
            ),
            counter("tenure_poll_jobs_created", "Jobs created", &self.created),
            gauge("tenure_poll_jobs_open", "Open jobs", get(&self.open)),
            counter("tenure_poll_missed", "Due times skipped by the misfire policy", &self.missed),
            gauge("tenure_poll_schedules", "Valid schedules known to the leader", get(&self.schedules)),
            counter("tenure_poll_unreported", "Jobs that ended without a report", &self.unreported),
        ]
    }
}
