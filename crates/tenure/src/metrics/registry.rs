//! The figures in a prometheus registry: read on demand, so that nothing is counted twice.

use super::{Counters, FigureKind, Metrics, PluginFigure};
use crate::node::Node;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Every metric name, as a scrape shows it. Kept beside the code that writes them, so that the reference page can be
/// checked.
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
    "tenure_job_claim_latency_seconds",
    "tenure_job_duplicates_total",
    "tenure_job_late_results_total",
    "tenure_job_notices_dropped_total",
    "tenure_job_notices_total",
    "tenure_job_notices_waiting",
    "tenure_job_output_failures_total",
    "tenure_job_output_left_out_bytes_total",
    "tenure_job_outputs_total",
    "tenure_job_requests_total",
    "tenure_jobs_claimed_total",
    "tenure_jobs_created_total",
    "tenure_jobs_dispatched_total",
    "tenure_jobs_fenced_total",
    "tenure_jobs_finished_total",
    "tenure_jobs_in_flight",
    "tenure_jobs_lost_total",
    "tenure_jobs_queued",
    "tenure_jobs_rejected_total",
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
    "tenure_worker_sweeps_total",
    "tenure_worker_timeouts_total",
    "tenure_workers_active",
    "tenure_workers_inactive",
    "tenure_workers_skipped",
];

/// Registers the figures of these nodes, told apart by the label `namespace`, so pass one node per namespace. Call this once
/// per registry: a second call would announce the same names again, which no scraper accepts. Nodes of one process must
/// therefore be registered together.
pub fn register<'a>(registry: &mut Registry, nodes: impl IntoIterator<Item = &'a Node>) {
    let nodes = nodes.into_iter().map(Node::counters).collect();
    registry.register_collector(Box::new(Scrape { nodes }));
}

#[derive(Debug)]
struct Scrape {
    nodes: Vec<Arc<Counters>>,
}

/// Labels of one sample.
type Labels<'a> = Vec<(&'a str, &'a str)>;

/// A figure with one sample per node: name, help, value.
type Single<T> = (&'static str, &'static str, fn(&Metrics) -> T);

const COUNTERS: [Single<u64>; 25] = [
    ("tenure_contention_events", "Heartbeat cycles longer than the contention threshold", |metrics| {
        metrics.contention_events
    }),
    ("tenure_elections", "Elections in which this node tried to claim the seat", |metrics| metrics.elections),
    ("tenure_epoch_drift_events", "Tasks rejected because their epoch was stale", |metrics| {
        metrics.epoch_drift_events
    }),
    ("tenure_fallbacks", "Times a plugin fell back to a seat of its own", |metrics| metrics.fallbacks),
    ("tenure_heartbeats", "Heartbeat cycles", |metrics| metrics.heartbeats),
    ("tenure_job_duplicates", "Duplicate job submissions and deliveries ignored", |metrics| {
        metrics.jobs.duplicates
    }),
    ("tenure_job_late_results", "Job results that arrived too late and were not applied", |metrics| {
        metrics.jobs.late
    }),
    ("tenure_job_notices", "Notices of jobs delivered", |metrics| metrics.jobs.notices),
    ("tenure_job_notices_dropped", "Notices of jobs dropped because nobody took them", |metrics| {
        metrics.jobs.notices_dropped
    }),
    ("tenure_job_output_failures", "Times the output of a job attempt could not be written", |metrics| {
        metrics.jobs.output_failures
    }),
    ("tenure_job_output_left_out_bytes", "Bytes left out of outputs of job attempts", |metrics| {
        metrics.jobs.output_bytes_left_out
    }),
    ("tenure_job_outputs", "Times the output of a job attempt was written", |metrics| metrics.jobs.outputs),
    ("tenure_job_requests", "Store requests made for jobs", |metrics| metrics.jobs.requests),
    ("tenure_jobs_claimed", "Job attempts claimed by workers of this process", |metrics| {
        metrics.jobs.claimed
    }),
    ("tenure_jobs_created", "Jobs created", |metrics| metrics.jobs.created),
    ("tenure_jobs_dispatched", "Job attempts handed to workers", |metrics| metrics.jobs.dispatched),
    ("tenure_jobs_fenced", "Job attempts rejected by the fence", |metrics| metrics.jobs.fenced),
    ("tenure_jobs_finished", "Jobs that reached a final state", |metrics| metrics.jobs.finished),
    ("tenure_jobs_lost", "Job attempts lost with their worker", |metrics| metrics.jobs.lost),
    ("tenure_jobs_rejected", "Job entries and objects ignored as unreadable or unknown", |metrics| {
        metrics.jobs.rejected
    }),
    ("tenure_leader_changes", "Changes of leader or epoch this node observed", |metrics| {
        metrics.leader_changes
    }),
    ("tenure_plugin_failures", "Times a plugin panicked or hung", |metrics| metrics.plugin_failures),
    ("tenure_process_restarts", "Restarts of leader-only processes", |metrics| metrics.process_restarts),
    ("tenure_worker_sweeps", "Sweeps of the worker registry made as leader", |metrics| metrics.worker_sweeps),
    ("tenure_worker_timeouts", "Worker timeouts this node reported", |metrics| metrics.worker_timeouts),
];

const GAUGES: [Single<f64>; 14] = [
    ("tenure_epoch_number", "Epoch of the leader this node knows", |metrics| metrics.epoch as f64),
    ("tenure_job_notices_waiting", "Notices of jobs that wait to be delivered", |metrics| {
        metrics.jobs.notices_waiting as f64
    }),
    ("tenure_jobs_in_flight", "Jobs assigned to workers and not finished", |metrics| {
        metrics.jobs.in_flight as f64
    }),
    ("tenure_jobs_queued", "Jobs waiting for a worker", |metrics| metrics.jobs.queued as f64),
    ("tenure_leader_state", "1 while this node leads, otherwise 0", |metrics| {
        f64::from(u8::from(metrics.role.as_deref() == Some("leader")))
    }),
    ("tenure_monthly_cost_dollars", "Estimated cost of 30 days at the measured request rates", |metrics| {
        metrics.cost_per_month
    }),
    ("tenure_plugins_in_fallback_number", "Plugins currently in fallback", |metrics| {
        metrics.plugins_in_fallback as f64
    }),
    ("tenure_plugins_number", "Plugins that share this election", |metrics| metrics.plugins.len() as f64),
    ("tenure_processes_running", "Leader-only processes running on this node", |metrics| {
        metrics.processes_running as f64
    }),
    ("tenure_processes_stuck", "Processes still running after being told to stop", |metrics| {
        metrics.processes_stuck as f64
    }),
    ("tenure_requests_per_second", "Store requests per second, measured", |metrics| {
        metrics.requests_per_second
    }),
    ("tenure_workers_active", "Active workers", |metrics| metrics.workers_active as f64),
    ("tenure_workers_inactive", "Inactive workers", |metrics| metrics.workers_inactive as f64),
    ("tenure_workers_skipped", "Objects in workers/ skipped: invalid or over the limit", |metrics| {
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

/// Figures of plugins: each name once, with a sample for each node that has it.
fn plugins(encoder: &mut DescriptorEncoder<'_>, nodes: &[Arc<Counters>]) -> Result<(), fmt::Error> {
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

/// Shows nothing while nothing is known: a zero would look like a store that answers at once.
fn latencies(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let (name, help) =
        ("tenure_heartbeat_latency_seconds", "Heartbeat latency, over the last hundred cycles");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for node in metrics.iter().filter(|node| node.note.is_none()) {
        for (quantile, ms) in [("0.5", node.heartbeat_latency_p50), ("0.99", node.heartbeat_latency_p99)] {
            let labels = vec![("namespace", node.namespace.as_str()), ("quantile", quantile)];
            gauge(&mut family, &labels, ms as f64 / 1000.0)?;
        }
    }
    Ok(())
}

/// The same for jobs: no sample for fewer than ten.
fn claims(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let (name, help) =
        ("tenure_job_claim_latency_seconds", "Time from submission to claim, over the last hundred jobs");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for node in metrics.iter().filter(|node| node.jobs.claim_latency_p99 > 0) {
        for (quantile, ms) in [("0.5", node.jobs.claim_latency_p50), ("0.99", node.jobs.claim_latency_p99)] {
            let labels = vec![("namespace", node.namespace.as_str()), ("quantile", quantile)];
            gauge(&mut family, &labels, ms as f64 / 1000.0)?;
        }
    }
    Ok(())
}

fn elections(encoder: &mut DescriptorEncoder<'_>, metrics: &[Metrics]) -> Result<(), fmt::Error> {
    let (name, help) = (
        "tenure_election_duration_seconds",
        "Time from noticing that an election is due to knowing the new leader",
    );
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
    let mut family = encoder.encode_descriptor(
        "tenure_bytes",
        "Bytes of request and response bodies",
        None,
        MetricType::Counter,
    )?;
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
