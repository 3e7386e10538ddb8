//! What many nodes with a worker each cost, counted at the store; the table of docs/internals/cost.md.

use crate::common::{Member, Rig, sleep_ms};
use std::time::Duration;
use tenure::settings::Preset;
use tenure::store::MeterSnapshot;
use tenure::worker::{Worker, WorkerSpec};

/// S3 standard, per 1,000.
const WRITE: f64 = 0.005;
const READ: f64 = 0.0004;
const MONTH_S: f64 = 30.0 * 86_400.0;

/// A whole number of every interval there is; of many nodes, of every one that each node has.
fn measured_ms(preset: Preset, nodes: usize) -> u64 {
    match (preset, nodes) {
        (Preset::Thrifty, ..20) => 720_000,
        (Preset::Thrifty, _) => 180_000,
        _ => 60_000,
    }
}

struct Cluster {
    members: Vec<Member>,
    workers: Vec<Worker>,
}

impl Cluster {
    async fn start(preset: Preset, nodes: usize, with_worker: bool) -> Cluster {
        let rig = Rig::new();
        let (mut members, mut workers) = (Vec::new(), Vec::new());
        for index in 0..nodes {
            let name = format!("node-{index:04}");
            let member = rig
                .join_with(&name, 0, |settings| settings.preset(preset).startup_jitter_max(Duration::ZERO))
                .await;
            if with_worker {
                workers.push(
                    member
                        .node
                        .register_worker(WorkerSpec::new(format!("w-{index:04}"), "queue"))
                        .expect("valid"),
                );
            }
            members.push(member);
        }
        // Elected, every worker read and published, every count of heartbeats past its tenth.
        sleep_ms(if preset == Preset::Thrifty { 200_250 } else { 110_250 }).await;
        Cluster { members, workers }
    }

    fn counted(&self) -> Vec<MeterSnapshot> {
        self.members.iter().map(|member| member.meter.snapshot()).collect()
    }

    /// Requests of everybody but the first within this time: all, and those billed as writes.
    async fn spend(&self, ms: u64, skip: usize) -> (u64, u64) {
        let before = self.counted();
        sleep_ms(ms).await;
        let spent = self.counted().into_iter().zip(before).map(|(now, before)| now - before);
        spent
            .skip(skip)
            .fold((0, 0), |(all, writes), spent| (all + spent.requests(), writes + spent.write_class()))
    }
}

/// Requests per node and 5 s, and dollars per node and month.
async fn cost(preset: Preset, nodes: usize, with_worker: bool) -> (f64, f64) {
    let cluster = Cluster::start(preset, nodes, with_worker).await;
    let ms = measured_ms(preset, nodes);
    let (all, writes) = cluster.spend(ms, 0).await;
    assert!(
        cluster
            .workers
            .iter()
            .all(|worker| worker.status().borrow().phase == tenure::worker::WorkerPhase::Registered)
    );
    let per_month = |requests: u64| requests as f64 * 1000.0 / ms as f64 * MONTH_S;
    let dollars = (per_month(writes) * WRITE + per_month(all - writes) * READ) / 1000.0;
    (all as f64 * 5000.0 / ms as f64 / nodes as f64, dollars / nodes as f64)
}

/// The columns of the table for one preset: without and with a worker.
async fn columns_agree(preset: Preset, first_column: usize, rows: &[usize]) {
    let page = include_str!("../../../docs/internals/cost.md");
    for with_worker in [false, true] {
        let mut few = 0.0;
        for &nodes in rows {
            let (per_cycle, dollars) = cost(preset, nodes, with_worker).await;
            let row = page.lines().find(|line| line.starts_with(&format!("| {nodes} |"))).expect("a row");
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let column = first_column + if with_worker { 2 } else { 0 };
            let counted = [format!("{per_cycle:.2}"), format!("${dollars:.2}")];
            assert_eq!(cells[column..column + 2], counted, "{preset}, {nodes} nodes, worker: {with_worker}");
            if nodes == 20 {
                few = per_cycle;
            }
            assert!(nodes < 200 || per_cycle <= few * 1.05, "{preset} at {nodes}: {per_cycle}, at 20: {few}");
            let most = match (preset, with_worker) {
                (Preset::Thrifty, true) => 2.5,
                (Preset::Thrifty, false) => 1.5,
                _ => f64::INFINITY,
            };
            assert!(per_cycle <= most, "{preset} at {nodes}: {per_cycle} requests per node and 5 s");
            assert!(
                preset != Preset::Default || nodes < 50 || dollars <= 4.60,
                "default at {nodes}: ${dollars}"
            );
        }
    }
}

const ROWS: &[usize] = &[1, 5, 20, 50];

#[tokio::test(start_paused = true)]
async fn the_cost_table_is_what_is_counted_by_default() {
    columns_agree(Preset::Default, 2, ROWS).await;
}

#[tokio::test(start_paused = true)]
async fn the_cost_table_is_what_is_counted_when_thrifty() {
    columns_agree(Preset::Thrifty, 6, ROWS).await;
}

mod long {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[ignore = "takes minutes: cargo xtask prove"]
    async fn the_cost_table_is_what_is_counted_for_many_nodes() {
        columns_agree(Preset::Default, 2, &[20, 200, 1000]).await;
        columns_agree(Preset::Thrifty, 6, &[20, 200, 1000]).await;
    }
}

/// Beyond what they would have made anyway, 200 nodes make at most 2 N + 20 requests to replace a leader that is gone.
#[tokio::test(start_paused = true)]
async fn a_failover_of_two_hundred_nodes_is_linear() {
    let nodes = 200;
    let cluster = Cluster::start(Preset::Default, nodes, true).await;
    let (steady, _) = cluster.spend(measured_ms(Preset::Default, nodes), 1).await;
    let before = cluster.counted();
    let gone = &cluster.members[0];
    gone.link.cut(true);
    sleep_ms(measured_ms(Preset::Default, nodes)).await;
    let spent: u64 = cluster
        .counted()
        .into_iter()
        .zip(before)
        .skip(1)
        .map(|(now, before)| (now - before).requests())
        .sum();
    let leaders = cluster.members.iter().filter(|member| member.leads()).count();
    assert_eq!(leaders, 1);
    let beyond = spent.saturating_sub(steady);
    assert!(beyond <= 2 * nodes as u64 + 20, "{beyond} beyond the steady state: {spent} instead of {steady}");
}
