//! `tenure health`: what the leader says about the cluster, if anybody alive stands behind it. Nothing is written.

use crate::args::HealthArgs;
use crate::exit::Failure;
use crate::out::{Table, say, say_json};
use crate::status::existing;
use std::process::ExitCode;
use std::time::Duration;
use tenure::Namespace;
use tenure_plugins::cluster_health::{HealthStatus, HealthView};

/// Exit codes by status.
const DEGRADED: u8 = 7;
const CRITICAL: u8 = 8;
const UNKNOWN: u8 = 9;

pub(crate) async fn health(args: HealthArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let view = match existing(&settings).await? {
        Some(lanes) => HealthView::read_from(&lanes, &namespace).await?,
        None => HealthView::nothing(&namespace),
    };
    if args.json {
        say_json(&serde_json::to_string_pretty(&view).map_err(Failure::other)?);
    } else {
        print(&view);
    }
    Ok(match view.status {
        HealthStatus::Healthy => ExitCode::SUCCESS,
        HealthStatus::Degraded => ExitCode::from(DEGRADED),
        HealthStatus::Critical => ExitCode::from(CRITICAL),
        HealthStatus::Unknown => ExitCode::from(UNKNOWN),
    })
}

fn seconds(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.1} s ago", Duration::from_millis(ms).as_secs_f64()))
}

fn print(view: &HealthView) {
    say!("namespace  {}", view.namespace);
    say!("status     {}", view.status.as_str());
    say!("leader     {}", view.leader.as_deref().unwrap_or("none seen alive"));
    if view.epoch > 0 {
        say!(
            "judged     in epoch {}, report {}, published {}",
            view.epoch,
            view.sequence,
            seconds(view.age_ms)
        );
    }
    for reason in &view.reasons {
        say!("reason     {reason}");
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    if !view.nodes.is_empty() {
        let mut table =
            Table::new(&["NODE", "STATE", "ROLE", "INCARNATION", "VERSION", "LAST SEEN"]).right_from(5);
        for node in &view.nodes {
            table.row([
                node.node.clone(),
                node.state.as_str().to_owned(),
                node.role.clone(),
                text(&node.incarnation),
                text(&node.version),
                seconds(node.last_seen_ms_ago),
            ]);
        }
        say!();
        table.say();
    }
    let workers = &view.workers;
    if !workers.list.is_empty() {
        let header = ["WORKER", "STATE", "TYPE", "POD", "INCARNATION", "VERSION", "LAST SEEN"];
        let mut table = Table::new(&header).right_from(5);
        let seen = workers.list.iter().map(|worker| worker.last_seen);
        let newest = seen.fold(view.store_time.unwrap_or(0), u64::max);
        for worker in &workers.list {
            let seen = (worker.last_seen > 0).then(|| newest - worker.last_seen);
            table.row([
                worker.worker_id.clone(),
                worker.state.as_str().to_owned(),
                worker.plugin_type.clone(),
                worker.pod.clone(),
                text(&worker.incarnation),
                text(&worker.version),
                seconds(seen),
            ]);
        }
        say!();
        table.say();
    }
    if workers.up + workers.down > workers.list.len() as u64 {
        say!();
        say!("{} workers up, {} down; not all are listed", workers.up, workers.down);
    }
    for probe in &view.probes {
        say!("probe {}: {}", probe.name, if probe.ok { "ok" } else { &probe.detail });
    }
}
