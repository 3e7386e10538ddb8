//! Figures: one node's, a namespace's, and the same in a registry.

use crate::common::{Rig, sleep_ms};
use std::collections::BTreeSet;
use std::time::Duration;
use tenure::Namespace;
use tenure::metrics::Metrics;
use tenure::metrics::prometheus_client::encoding::text::encode;
use tenure::metrics::{ClusterMetrics, METRIC_NAMES};
use tenure::store::{Condition, Faults, Lanes, Store};

/// The whole value of a sample in the text format, by the start of its line.
fn sample(text: &str, start: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("{start} is not in\n{text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[tokio::test(start_paused = true)]
async fn mx1_the_documents_fields_are_there_and_count() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    sleep_ms(20_000).await;
    members[0].node.step_down().await.expect("it leads");
    members[1].became_leader().await;
    sleep_ms(1500).await;
    // Three tasks without a leader behind them are refused, and counted.
    (0..3).for_each(|_| assert!(!members[1].node.fence().check(0).is_accepted()));
    let value = serde_json::to_value(members[1].node.metrics()).expect("JSON");
    for field in
        ["heartbeatLatencyP99", "heartbeatLatencyP50", "contentionEvents", "measuredMs", "costPerMonth"]
    {
        assert!(value[field].is_number(), "{field}: {value}");
    }
    assert_eq!((&value["role"], &value["epoch"]), (&"leader".into(), &2.into()));
    assert_eq!((&value["elections"], &value["leaderChanges"]), (&1.into(), &2.into()));
    assert_eq!(value["epochDriftEvents"], 3);
    assert!(value["heartbeats"].as_u64() >= Some(20), "{value}");
    let histogram = &value["electionDurationHistogram"];
    let buckets = histogram["buckets"].as_array().expect("a list");
    let counts: u64 = buckets.iter().filter_map(|bucket| bucket["count"].as_u64()).sum();
    // Of the first election pod-b was told before it had noticed anything to decide, or just after.
    assert!((1..=2).contains(&counts) && histogram["count"] == counts, "{histogram}");
    assert_eq!((&buckets[0]["le"], &buckets[10]["le"]), (&50.into(), &serde_json::Value::Null));
    assert!(histogram["sum"].as_u64() < Some(3000), "a vacated seat is taken quickly: {histogram}");
    assert!(value["requests"]["lease"]["put"].as_u64() >= Some(1), "{value}");
    assert!(value["requests"]["bulk"]["bytesUp"].as_u64() >= Some(100), "{value}");
    let back: Metrics = serde_json::from_value(value).expect("it reads what it writes");
    assert_eq!(back.epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn mx1_a_takeover_after_a_crash_lasts_from_the_notice_on() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    sleep_ms(5000).await;
    let before = members[1].node.metrics().election_duration_histogram;
    members[0].link.cut(true);
    members[1].became_leader().await;
    let after = members[1].node.metrics().election_duration_histogram;
    assert_eq!(after.count - before.count, 1);
    let took_ms = after.sum - before.sum;
    assert!((1000..1600).contains(&took_ms), "the takeover delay and a moment, not the expiry: {took_ms}");
}

#[tokio::test(start_paused = true)]
async fn mx2_too_few_heartbeats_are_zero_with_a_note() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.link.set(Faults { delay: 1.0, delay_max: Duration::from_millis(100), ..Faults::default() });
    a.became_leader().await;
    sleep_ms(5500).await;
    let few = a.node.metrics();
    assert!((1..10).contains(&few.heartbeats), "{few:?}");
    assert_eq!((few.heartbeat_latency_p99, few.heartbeat_latency_p50), (0, 0));
    assert!(few.note.as_deref().is_some_and(|note| note.contains("insufficient data")), "{few:?}");
    sleep_ms(12_000).await;
    let enough = a.node.metrics();
    assert!(enough.heartbeats >= 10 && enough.note.is_none(), "{enough:?}");
    assert!((1..=200).contains(&enough.heartbeat_latency_p99), "{enough:?}");
    assert!(enough.heartbeat_latency_p50 <= enough.heartbeat_latency_p99);
}

#[tokio::test(start_paused = true)]
async fn mx3_only_the_newest_hundred_heartbeats_count() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    a.link.set(Faults { delay: 1.0, delay_max: Duration::from_millis(700), ..Faults::default() });
    sleep_ms(90_000).await;
    assert!(a.node.metrics().heartbeat_latency_p99 > 400);
    a.link.set(Faults::default());
    sleep_ms(135_000).await;
    assert!(a.node.metrics().heartbeat_latency_p99 > 400, "ten slow ones are still among the newest hundred");
    sleep_ms(30_000).await;
    let metrics = a.node.metrics();
    assert!(metrics.heartbeats > 160 && metrics.heartbeat_latency_p99 <= 2, "{metrics:?}");
}

#[tokio::test(start_paused = true)]
async fn rates_and_cost_are_those_of_the_steady_state() {
    let rig = Rig::new();
    let members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    // Beyond one window, so that the first election is forgotten.
    sleep_ms(700_000).await;
    for (member, writes, reads, dollars) in
        [(&members[0], 1.0 / 1.5 + 2.0 / 20.0, 0.0, 9.94), (&members[2], 1.0 / 20.0, 1.0, 1.68)]
    {
        let metrics = member.node.metrics();
        assert!((300_000..=600_000).contains(&metrics.measured_ms), "{metrics:?}");
        assert!((metrics.writes_per_second - writes).abs() < 0.02, "{metrics:?}");
        assert!((metrics.reads_per_second - reads).abs() < 0.02, "{metrics:?}");
        assert!((metrics.requests_per_second - writes - reads).abs() < 0.02, "{metrics:?}");
        assert!((metrics.cost_per_month / dollars - 1.0).abs() < 0.02, "{metrics:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_registry_shows_the_same_figures_under_the_listed_names() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    let b = rig
        .join_with("pod-a", 0, |settings| settings.startup_jitter_max(Duration::ZERO).namespace("other"))
        .await;
    sleep_ms(30_000).await;
    let mut text = String::new();
    encode(&mut text, &a.node.registry()).expect("text");
    let metrics = a.node.metrics();
    let test = "{namespace=\"test\"}";
    assert_eq!(sample(&text, &format!("tenure_heartbeats_total{test}")), metrics.heartbeats as f64);
    assert_eq!(sample(&text, &format!("tenure_epoch_number{test}")), 1.0);
    assert_eq!(sample(&text, &format!("tenure_leader_state{test}")), 1.0);
    assert_eq!(sample(&text, &format!("tenure_election_duration_seconds_count{test}")), 1.0);
    let put = "tenure_requests_total{namespace=\"test\",lane=\"lease\",kind=\"put\"}";
    assert_eq!(sample(&text, put), metrics.requests.lease.put as f64);
    let up = "tenure_bytes_total{namespace=\"test\",lane=\"bulk\",direction=\"up\"}";
    assert_eq!(sample(&text, up), metrics.requests.bulk.bytes_up as f64);
    let p99 = "tenure_heartbeat_latency_seconds{namespace=\"test\",quantile=\"0.99\"}";
    assert_eq!(sample(&text, p99), metrics.heartbeat_latency_p99 as f64 / 1000.0);
    assert!(text.contains("tenure_election_duration_seconds_bucket{le=\"+Inf\""), "{text}");
    let kinds: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert_eq!(kinds, METRIC_NAMES.iter().map(|name| (*name).to_owned()).collect());

    // Two nodes of one process share a registry, each name announced once.
    let mut registry = Default::default();
    tenure::metrics::register(&mut registry, [&a.node, &b.node]);
    let mut both = String::new();
    encode(&mut both, &registry).expect("text");
    assert_eq!(both.matches("# TYPE tenure_heartbeats counter").count(), 1);
    assert!(sample(&both, "tenure_heartbeats_total{namespace=\"other\"}") > 10.0);
}

#[tokio::test(start_paused = true)]
async fn presences_carry_the_figures_and_cost_no_request_more() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    sleep_ms(50_000).await;
    let junk = "plg_coordinator_global/test/nodes/pod-z.json";
    rig.store.put(junk, b"\x00".as_slice().into(), Condition::Any).await;
    let gone = members.remove(1);
    gone.link.cut(true);
    sleep_ms(60_000).await;
    let namespace = Namespace::new("test").expect("valid");
    let lanes = Lanes::same(rig.store.clone());
    let cluster = ClusterMetrics::read(&lanes, &namespace, Duration::from_secs(45)).await.expect("figures");
    let names: Vec<_> = cluster.nodes.iter().map(|node| (node.node.as_str(), node.live)).collect();
    assert_eq!(names, [("pod-a", true), ("pod-b", false), ("pod-z", false)]);
    let a = cluster.nodes[0].metrics.as_ref().expect("published");
    assert_eq!((a.role.as_deref(), a.epoch), (Some("leader"), 1));
    assert!(a.heartbeats > 60, "{a:?}");
    assert!(cluster.nodes[1].metrics.is_some() && cluster.nodes[2].metrics.is_none());
    assert_eq!(cluster.totals.nodes, 1, "only who lives is counted");
    assert_eq!(cluster.totals.requests_per_second, a.requests_per_second);
}
