//! `tenure leader`, `tenure metrics` and `tenure cost`, as a user or a script meets them.

use crate::common::{Cluster, PATIENT, STEADY, Sandbox};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn the_leader_is_printed_alone_and_its_absence_is_an_exit_code() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let leader = || sandbox.tenure(["leader", "--store", &store]);
    assert!(leader().assert_code(3).stdout.is_empty());
    assert!(sandbox.contents().is_empty(), "looking makes nothing");
    let mut cluster = Cluster::new(&sandbox, &store, PATIENT);
    let life = cluster.start("pod-a");
    cluster.event(0, life, "became_leader");
    assert_eq!(leader().assert_code(0).stdout, "pod-a\n");
    assert!(
        sandbox
            .tenure(["leader", "--store", &store, "--namespace", "elsewhere"])
            .assert_code(3)
            .stdout
            .is_empty()
    );
    cluster.kill(life);
    assert!(leader().assert_code(3).stdout.is_empty(), "a dead holder does not lead");
    cluster.finish();
}

#[test]
fn metrics_of_other_processes_come_from_their_presences() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let none = sandbox.tenure(["metrics", "--store", &store]).assert_code(0);
    assert!(none.stdout.contains("no nodes in default"), "{none:?}");
    assert!(sandbox.contents().is_empty(), "looking makes nothing");
    let settings = [STEADY, &["--presence-interval", "1000ms"]].concat();
    let mut cluster = Cluster::new(&sandbox, &store, &settings);
    let lives = [cluster.start("pod-a"), cluster.start("pod-b")];
    cluster.event(0, lives[0], "became_leader");
    cluster.event(0, lives[1], "leader_changed");
    let published = wait_for(|| {
        let value = sandbox.tenure(["metrics", "--store", &store, "--json"]).assert_code(0).json();
        let beats = |node: usize| value["nodes"][node]["metrics"]["heartbeats"].as_u64().unwrap_or(0);
        (beats(0) >= 12 && beats(1) >= 12).then_some(value)
    });
    let nodes = published["nodes"].as_array().unwrap();
    assert_eq!((&nodes[0]["node"], &nodes[0]["metrics"]["role"]), (&json!("pod-a"), &json!("leader")));
    assert_eq!((&nodes[1]["node"], &nodes[1]["metrics"]["role"]), (&json!("pod-b"), &json!("standby")));
    assert_eq!(published["totals"]["nodes"], 2);
    assert!(published["totals"]["requestsPerSecond"].as_f64() > Some(2.0), "{published}");
    let words = sandbox.tenure(["metrics", "--store", &store]).assert_code(0).stdout;
    for word in ["NODE", "P99 MS", "$/MONTH", "pod-a", "leader", "pod-b", "standby", "2 live"] {
        assert!(words.contains(word), "{word:?} is not in:\n{words}");
    }
    let cost = sandbox.tenure(["cost", "--store", &store, "--json"]).assert_code(0).json();
    assert_eq!(cost["measured"]["nodes"], 2);
    assert_eq!(cost["measured"]["costPerMonth"], 0.0, "a file bills nothing: {cost}");
    assert!(cost["measured"]["requestsPerSecond"].as_f64().unwrap() > 1.0, "{cost}");
    let sum: f64 = ["projected", "health", "schedules"]
        .iter()
        .map(|part| cost[part]["costPerMonth"].as_f64().unwrap())
        .sum();
    assert!((cost["total"]["costPerMonth"].as_f64().unwrap() - sum).abs() < 0.001, "{cost}");
    cluster.finish();
}

#[test]
fn cost_is_projected_with_its_arithmetic() {
    let sandbox = Sandbox::new();
    let cost = |arguments: &[&str]| sandbox.tenure([&["cost", "--store", "memory:"], arguments].concat());
    let words = cost(&["--nodes", "10"]).assert_code(0).stdout;
    for line in [
        "1 × 2592000 s / 1.5 s = 1728000; × $0.005 / 1000 = $8.64",
        "9 × 2592000 s / 1 s = 23328000; × $0.0004 / 1000 = $9.33",
        "10 × 2592000 s / 20 s = 1296000; × $0.005 / 1000 = $6.48",
        "1 × 2592000 s / 20 s = 129600; × $0.005 / 1000 = $0.65",
        "$25.10 a month",
        "1 × 2592000 s / 24 s = 108000; × $0.005 / 1000 = $0.54",
        "$0.89 a month more",
        "1 × 2592000 s / 1 s = 2592000; × $0.0004 / 1000 = $1.04",
        "1 × 2592000 s / 60 s = 43200; × $0.005 / 1000 = $0.22",
        "$1.25 a month more",
        "measured:  nothing",
    ] {
        assert!(words.contains(line), "{line:?} is not in:\n{words}");
    }
    let thrifty = cost(&["--nodes", "3", "--preset", "thrifty", "--json"]).assert_code(0).json();
    let dollars = thrifty["projected"]["costPerMonth"].as_f64().unwrap();
    assert!((dollars - 3.31).abs() < 0.01, "{thrifty}");
    assert_eq!(thrifty["measured"], Value::Null);
    let free =
        cost(&["--price-write-per1000", "0", "--price-read-per1000", "0", "--json"]).assert_code(0).json();
    assert_eq!(free["projected"]["costPerMonth"], 0.0);
    assert_eq!(
        (&free["health"]["costPerMonth"], &free["schedules"]["costPerMonth"]),
        (&0.0.into(), &0.0.into())
    );
    for wrong in [&["--nodes", "0"][..], &["--nodes", "many"], &["--price-write-per1000", "-1"]] {
        cost(wrong).assert_code(2);
    }
    assert!(sandbox.contents().is_empty());
}

fn wait_for<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < give_up, "not within thirty seconds");
        std::thread::sleep(Duration::from_millis(200));
    }
}
