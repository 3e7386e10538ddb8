//! The figures in a prometheus registry: read when they are asked for, so that nothing is counted twice.

use super::{FigureKind, Figures, Metrics, PluginFigure};
use crate::node::Node;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Every metric name, as a scrape shows it. Kept beside the code that writes them, for checking the reference page.
pub const METRIC_NAMES: &[&str] = &[
    "tenure_bytes_total",
    "tenure_contention_events_total",
    "tenure_election_duration_seconds",
    "tenure_elections_total",
    "tenure_epoch_drift_events_total",
    "tenure_epoch_number",
    "tenure_fallbacks_total",
    "tenure_heartbeat_latency_seconds",
    "tenure_heartbeats_total",
    "tenure_leader_changes_total",
    "tenure_leader_state",
    "tenure_monthly_cost_dollars",
    "tenure_plugin_failures_total",
    "tenure_plugins_in_fallback_number",
    "tenure_plugins_number",
    "tenure_process_restarts_total",
    "tenure_processes_running",
    "tenure_processes_stuck",
    "tenure_requests_per_second",
    "tenure_requests_total",
    "tenure_task_claim_latency_seconds",
    "tenure_task_duplicates_total",
    "tenure_task_late_results_total",
    "tenure_task_requests_total",
    "tenure_tasks_claimed_total",
    "tenure_tasks_created_total",
    "tenure_tasks_dispatched_total",
    "tenure_tasks_fenced_total",
    "tenure_tasks_finished_total",
    "tenure_tasks_in_flight",
    "tenure_tasks_lost_total",
    "tenure_tasks_queued",
    "tenure_tasks_rejected_total",
    "tenure_worker_sweeps_total",
    "tenure_worker_timeouts_total",
    "tenure_workers_active",
    "tenure_workers_inactive",
    "tenure_workers_skipped",
];

/// Registers the figures of these nodes, told apart by the label `namespace`: one node of each. A registry takes this once: a second call would
/// announce the same names again, which no scraper accepts. Nodes of one process therefore come together.
pub fn register<'a>(registry: &mut Registry, nodes: impl IntoIterator<Item = &'a Node>) {
    let nodes = nodes.into_iter().map(Node::figures).collect();
    registry.register_collector(Box::new(Scrape { nodes }));
}

#[derive(Debug)]
struct Scrape {
    nodes: Vec<Arc<Figures>>,
}

/// Labels of one sample.
type Labels<'a> = Vec<(&'a str, &'a str)>;

/// A figure with one sample per node: name, help, value.
type Single<T> = (&'static str, &'static str, fn(&Metrics) -> T);

const COUNTERS: [Single<u64>; 20] = [
    ("tenure_contention_events", "Heartbeat cycles that took too long", |metrics| metrics.contention_events),
    ("tenure_elections", "Elections in which the node tried for the seat", |metrics| metrics.elections),
    ("tenure_epoch_drift_events", "Tasks refused because of their epoch", |metrics| {
        metrics.epoch_drift_events
    }),
    ("tenure_fallbacks", "Times a plugin had to coordinate on its own", |metrics| metrics.fallbacks),
    ("tenure_heartbeats", "Heartbeat cycles", |metrics| metrics.heartbeats),
    ("tenure_leader_changes", "Leaders or epochs the node learned of", |metrics| metrics.leader_changes),
    ("tenure_plugin_failures", "Times a plugin panicked or hung", |metrics| metrics.plugin_failures),
    ("tenure_process_restarts", "Times a leader-only process was started again", |metrics| {
        metrics.process_restarts
    }),
    ("tenure_task_duplicates", "Submissions and deliveries known already", |metrics| {
        metrics.tasks.duplicates
    }),
    ("tenure_task_late_results", "Results that came too late and were not applied", |metrics| {
        metrics.tasks.late
    }),
    ("tenure_task_requests", "Requests to the store for tasks", |metrics| metrics.tasks.requests),
    ("tenure_tasks_claimed", "Attempts claimed by workers of this process", |metrics| metrics.tasks.claimed),
    ("tenure_tasks_created", "Tasks created", |metrics| metrics.tasks.created),
    ("tenure_tasks_dispatched", "Attempts written into inboxes", |metrics| metrics.tasks.dispatched),
    ("tenure_tasks_fenced", "Entries that the fence turned away", |metrics| metrics.tasks.fenced),
    ("tenure_tasks_finished", "Tasks that came to a final state", |metrics| metrics.tasks.finished),
    ("tenure_tasks_lost", "Attempts judged lost", |metrics| metrics.tasks.lost),
    ("tenure_tasks_rejected", "Entries and objects that cannot be understood", |metrics| {
        metrics.tasks.rejected
    }),
    ("tenure_worker_sweeps", "Lists of the workers made as leader", |metrics| metrics.worker_sweeps),
    ("tenure_worker_timeouts", "Silences of workers told of", |metrics| metrics.worker_timeouts),
];

const GAUGES: [Single<f64>; 13] = [
    ("tenure_epoch_number", "Epoch of the leader the node knows", |metrics| metrics.epoch as f64),
    ("tenure_leader_state", "1 while the node leads, else 0", |metrics| {
        f64::from(u8::from(metrics.role.as_deref() == Some("leader")))
    }),
    ("tenure_monthly_cost_dollars", "Cost of 30 days at the measured rates", |metrics| {
        metrics.cost_per_month
    }),
    ("tenure_plugins_in_fallback_number", "Plugins that coordinate on their own", |metrics| {
        metrics.plugins_in_fallback as f64
    }),
    ("tenure_plugins_number", "Plugins that share this election", |metrics| metrics.plugins.len() as f64),
    ("tenure_processes_running", "Leader-only processes that run", |metrics| {
        metrics.processes_running as f64
    }),
    ("tenure_processes_stuck", "Processes that did not stop when they had to", |metrics| {
        metrics.processes_stuck as f64
    }),
    ("tenure_requests_per_second", "Measured request rate", |metrics| metrics.requests_per_second),
    ("tenure_tasks_in_flight", "Tasks that are out at workers", |metrics| metrics.tasks.in_flight as f64),
    ("tenure_tasks_queued", "Tasks that wait for a worker", |metrics| metrics.tasks.queued as f64),
    ("tenure_workers_active", "Active workers", |metrics| metrics.workers_active as f64),
    ("tenure_workers_inactive", "Inactive workers", |metrics| metrics.workers_inactive as f64),
    ("tenure_workers_skipped", "Objects among the workers that are none", |metrics| {
        metrics.workers_skipped as f64
    }),
];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let metrics: Vec<Metrics> = self.nodes.iter().map(|node| node.metrics()).collect();
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for node in &metrics {
                counter(&mut family, &vec![("namespace", &node.namespace)], value(node))?;
            }
        }
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for node in &metrics {
                gauge(&mut family, &vec![("namespace", &node.namespace)], value(node))?;
            }
        }
        latencies(&mut encoder, &metrics)?;
        claims(&mut encoder, &metrics)?;
        elections(&mut encoder, &metrics)?;
        requests(&mut encoder, &metrics)?;
        bytes(&mut encoder, &metrics)?;
        plugins(&mut encoder, &self.nodes)
    }
}

/// What plugins add: each name once, with a sample for each node that has it.
fn plugins(encoder: &mut DescriptorEncoder<'_>, nodes: &[Arc<Figures>]) -> Result<(), fmt::Error> {
    let mut families: BTreeMap<&str, Vec<(&str, PluginFigure)>> = BTreeMap::new();
    for node in nodes {
        for figure in node.plugin_figures() {
            families.entry(figure.name).or_default().push((node.namespace(), figure));
        }
    }
    for (name, samples) in families {
        let Some((_, first)) = samples.first().copied() else { continue };
        let kind = match first.kind {
            FigureKind::Counter => MetricType::Counter,
            FigureKind::Gauge => MetricType::Gauge,
        };
        let mut family = encoder.encode_descriptor(name, first.help, None, kind)?;
        for (namespace, figure) in samples {
            let labels = vec![("namespace", namespace)];
            match first.kind {
                FigureKind::Counter => counter(&mut family, &labels, figure.value as u64)?,
                FigureKind::Gauge => gauge(&mut family, &labels, figure.value)?,
            }
        }
    }
    Ok(())
}

fn counter(family: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: u64) -> Result<(), fmt::Error> {
    family.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

fn gauge(family: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> Result<(), fmt::Error> {
    family.encode_family(labels)?.encode_gauge(&value)
}

/// Nothing is shown where nothing is known: a zero would look like a store that answers at once.
fn latencies(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let (name, help) =
        ("tenure_heartbeat_latency_seconds", "Percentiles of the newest hundred heartbeat cycles");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for node in metrics.iter().filter(|node| node.note.is_none()) {
        for (quantile, ms) in [("0.5", node.heartbeat_latency_p50), ("0.99", node.heartbeat_latency_p99)] {
            let labels = vec![("namespace", node.namespace.as_str()), ("quantile", quantile)];
            gauge(&mut family, &labels, ms as f64 / 1000.0)?;
        }
    }
    Ok(())
}

/// The same for tasks: no sample under ten.
fn claims(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let (name, help) =
        ("tenure_task_claim_latency_seconds", "From submission to claim, newest hundred tasks");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for node in metrics.iter().filter(|node| node.tasks.claim_latency_p99 > 0) {
        for (quantile, ms) in [("0.5", node.tasks.claim_latency_p50), ("0.99", node.tasks.claim_latency_p99)]
        {
            let labels = vec![("namespace", node.namespace.as_str()), ("quantile", quantile)];
            gauge(&mut family, &labels, ms as f64 / 1000.0)?;
        }
    }
    Ok(())
}

fn elections(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let (name, help) =
        ("tenure_election_duration_seconds", "From noticing that an election is due to knowing the leader");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for node in metrics {
        let histogram = &node.election_duration_histogram;
        let bound = |le: Option<u64>| le.map_or(f64::INFINITY, |ms| ms as f64 / 1000.0);
        let buckets: Vec<(f64, u64)> =
            histogram.buckets.iter().map(|bucket| (bound(bucket.le), bucket.count)).collect();
        let labels: Labels<'_> = vec![("namespace", &node.namespace)];
        let sum = histogram.sum as f64 / 1000.0;
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            sum,
            histogram.count,
            &buckets,
            None,
        )?;
    }
    Ok(())
}

fn requests(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let mut family =
        encoder.encode_descriptor("tenure_requests", "Requests to the store", None, MetricType::Counter)?;
    for node in metrics {
        for (lane, requests) in [("lease", &node.requests.lease), ("bulk", &node.requests.bulk)] {
            for (kind, count) in requests.kinds() {
                let labels = vec![("namespace", node.namespace.as_str()), ("lane", lane), ("kind", kind)];
                counter(&mut family, &labels, count)?;
            }
        }
    }
    Ok(())
}

fn bytes(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let mut family =
        encoder.encode_descriptor("tenure_bytes", "Bytes of bodies", None, MetricType::Counter)?;
    for node in metrics {
        for (lane, requests) in [("lease", &node.requests.lease), ("bulk", &node.requests.bulk)] {
            for (direction, bytes) in [("up", requests.bytes_up), ("down", requests.bytes_down)] {
                let labels =
                    vec![("namespace", node.namespace.as_str()), ("lane", lane), ("direction", direction)];
                counter(&mut family, &labels, bytes)?;
            }
        }
    }
    Ok(())
}
