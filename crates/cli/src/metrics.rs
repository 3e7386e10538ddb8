//! `tenure metrics` and `tenure cost`: the figures that nodes publish, and what they come to. Nothing is written.

use crate::args::{CostArgs, MetricsArgs};
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::status::existing;
use std::process::ExitCode;
use std::time::Duration;
use tenure::metrics::{
    ClusterMetrics, MONTH_SECONDS, NodeMetrics, Projection, ProjectionLine, Surcharge, Totals,
};
use tenure::store::StoreUrl;
use tenure::{Namespace, Settings};
use tenure_plugins::{cluster_health, schedules};

/// A node that missed this many presences is not counted; the election's ranking gives it up at the same time.
const PRESENCES_MISSED: u32 = 3;

pub(crate) async fn metrics(args: MetricsArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let cluster = published(&settings).await?;
    if args.json {
        say_json(&serde_json::to_string_pretty(&cluster).map_err(Failure::other)?);
    } else if cluster.nodes.is_empty() {
        say!("no nodes in {} on {}", cluster.namespace, settings.store);
    } else {
        print(&cluster);
    }
    Ok(ExitCode::SUCCESS)
}

/// Dollars a month for what `tenure run` does at rest.
pub(crate) fn dollars_of_run(settings: &Settings, nodes: u64) -> f64 {
    Projection::new(settings, nodes).cost_per_month
        + cluster_health::cost(settings, nodes).cost_per_month
        + schedules::cost(settings, nodes).cost_per_month
}

pub(crate) async fn cost(args: CostArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let projected = Projection::with_workers(&settings, args.nodes, args.workers);
    let health = cluster_health::cost(&settings, args.nodes);
    let schedules = schedules::cost(&settings, args.nodes);
    let parts = [&projected.lines, &health.lines, &schedules.lines];
    let total = Surcharge::of(parts.into_iter().flatten().cloned().collect());
    let total = serde_json::json!({"requestsPerMonth": total.requests_per_month, "costPerMonth": total.cost_per_month});
    let measured = match published(&settings).await {
        // Before its second presence a node has nothing to say yet.
        Ok(found) => Some(found.totals).filter(|totals| totals.nodes > 0 && totals.requests_per_second > 0.0),
        Err(failure) => {
            complain!("tenure: without what the nodes measured: {failure}");
            None
        }
    };
    if args.json {
        let value = serde_json::json!({
            "projected": projected,
            "health": health,
            "schedules": schedules,
            "total": total,
            "measured": measured,
        });
        say_json(&serde_json::to_string_pretty(&value).map_err(Failure::other)?);
        return Ok(ExitCode::SUCCESS);
    }
    print_projection(&settings, &projected);
    say!("plus cluster health, which `tenure run` includes unless given --no-health:");
    print_surcharge(&health);
    say!("plus reading schedules, which it includes unless given --no-schedules; jobs cost extra:");
    print_surcharge(&schedules);
    let (requests, dollars) = (&total["requestsPerMonth"], total["costPerMonth"].as_f64().unwrap_or(0.0));
    say!(
        "total of all               {:.0} requests = ${dollars:.2} a month, ${:.2} per node",
        requests.as_f64().unwrap_or(0.0),
        dollars / args.nodes.max(1) as f64
    );
    print_measured(&settings, measured.as_ref());
    Ok(ExitCode::SUCCESS)
}

/// What the nodes published; nothing if the store has not been made yet.
async fn published(settings: &Settings) -> Result<ClusterMetrics, Failure> {
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let stale_after = settings.presence_interval * PRESENCES_MISSED;
    match existing(settings).await? {
        Some(lanes) => Ok(ClusterMetrics::read(&lanes, &namespace, stale_after).await?),
        None => Ok(ClusterMetrics {
            namespace: namespace.to_string(),
            nodes: Vec::new(),
            totals: Totals::default(),
        }),
    }
}

fn print(cluster: &ClusterMetrics) {
    let header = [
        "NODE",
        "ROLE",
        "HEARTBEATS",
        "P50 MS",
        "P99 MS",
        "CONTENTION",
        "DRIFT",
        "ELECTIONS",
        "REQ/S",
        "$/MONTH",
        "SEEN",
    ];
    let mut table = Table::new(&header).right_from(2);
    cluster.nodes.iter().for_each(|node| table.row(row(node)));
    let totals = &cluster.totals;
    table.row([
        format!("{} live", totals.nodes),
        String::new(),
        String::new(),
        String::new(),
        totals.heartbeat_latency_p99.to_string(),
        totals.contention_events.to_string(),
        totals.epoch_drift_events.to_string(),
        String::new(),
        format!("{:.2}", totals.requests_per_second),
        format!("{:.2}", totals.cost_per_month),
        String::new(),
    ]);
    table.say();
}

fn row(node: &NodeMetrics) -> [String; 11] {
    let seen = Duration::from_millis(node.last_seen_ms_ago);
    let seen = format!("{:.1} s ago{}", seen.as_secs_f64(), if node.live { "" } else { ", not counted" });
    let Some(metrics) = node.metrics.as_ref().filter(|metrics| metrics.measured_ms > 0) else {
        let mut row: [String; 11] = Default::default();
        (row[0], row[1], row[10]) = (node.node.clone(), node.role.to_owned(), seen);
        row[2] = "none yet".to_owned();
        return row;
    };
    // Too few heartbeats for a percentile are no latency of zero.
    let latency = |ms: u64| if metrics.note.is_none() { ms.to_string() } else { "-".to_owned() };
    [
        node.node.clone(),
        node.role.to_owned(),
        metrics.heartbeats.to_string(),
        latency(metrics.heartbeat_latency_p50),
        latency(metrics.heartbeat_latency_p99),
        metrics.contention_events.to_string(),
        metrics.epoch_drift_events.to_string(),
        metrics.elections.to_string(),
        format!("{:.2}", metrics.requests_per_second),
        format!("{:.2}", metrics.cost_per_month),
        seen,
    ]
}

fn print_projection(settings: &Settings, projected: &Projection) {
    let (nodes, workers) = (projected.nodes, projected.workers);
    say!(
        "projected: {nodes} nodes and {workers} workers in steady state, preset {}, 30 days = {MONTH_SECONDS} s",
        settings.preset
    );
    if is_file(settings) {
        say!("at S3 prices: {} itself is free", settings.store);
    }
    projected.lines.iter().for_each(print_line);
    say!(
        "  total                    {:.0} requests = ${:.2} a month, ${:.2} per node",
        projected.requests_per_month,
        projected.cost_per_month,
        projected.cost_per_month / nodes.max(1) as f64
    );
}

pub(crate) fn is_file(settings: &Settings) -> bool {
    matches!(settings.store, StoreUrl::Sqlite { .. })
}

fn print_surcharge(added: &Surcharge) {
    added.lines.iter().for_each(print_line);
    say!(
        "  total                    {:.0} requests = ${:.2} a month more",
        added.requests_per_month,
        added.cost_per_month
    );
}

fn print_line(line: &ProjectionLine) {
    say!(
        "  {:<24} {} × {MONTH_SECONDS} s / {} s = {:.0}; × ${} / 1000 = ${:.2}",
        line.what,
        line.nodes,
        line.every_ms as f64 / 1000.0,
        line.requests_per_month,
        line.price_per_1000,
        line.cost_per_month
    );
}

fn print_measured(settings: &Settings, measured: Option<&Totals>) {
    let Some(totals) = measured else {
        say!("measured:  nothing yet; no live node of {} has published its metrics", settings.namespace);
        return;
    };
    say!(
        "measured:  {} nodes, {:.3} writes/s + {:.3} reads/s, × {MONTH_SECONDS} s = ${:.2} a month, ${:.2} per node",
        totals.nodes,
        totals.writes_per_second,
        totals.reads_per_second,
        totals.cost_per_month,
        totals.cost_per_month / totals.nodes as f64
    );
}
