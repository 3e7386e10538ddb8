//! Commands about what a store holds: namespaces and nodes that are gone.

use crate::common::{Cluster, STEADY, Sandbox};
use serde_json::json;

#[test]
fn a_store_says_which_namespaces_it_holds() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let ask = |arguments: &[&str]| sandbox.tenure([&["namespaces", "--store", &store], arguments].concat());
    assert!(ask(&[]).assert_code(0).stdout.starts_with("no namespace on sqlite:"));
    assert!(sandbox.contents().is_empty(), "looking makes nothing");
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    let life = cluster.start_args("pod-a", &["--namespace", "reports"]);
    cluster.event(0, life, "became_leader");
    sandbox.tenure(["lock", "--name", "nightly", "--store", &store, "--", "true"]).assert_code(0);
    let found = ask(&["--json"]).assert_code(0).json();
    let row = |name: &str, held_by, epoch, nodes, own| json!({"namespace": name, "heldBy": held_by, "epoch": epoch, "nodes": nodes, "ownElections": own, "problem": null});
    let wanted = [row("default", None, 0, 0, 1), row("reports", Some("pod-a"), 1, 1, 0)];
    assert_eq!(found, json!({"namespaces": wanted, "more": false}));
    let table = ask(&[]).assert_code(0).stdout;
    assert!(
        table.lines().any(|line| line.split_whitespace().eq(["reports", "pod-a", "1", "1", "0"])),
        "{table}"
    );
    let mistyped =
        sandbox.tenure(["status", "--store", &store, "--namespace", "report"]).assert_code(3).stdout;
    assert!(mistyped.contains("`tenure namespaces` lists those in the store"), "{mistyped}");
    cluster.finish();
}

#[test]
fn ob4_a_node_that_crashed_is_forgotten_by_command() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let forget = |id: &str| sandbox.tenure(["node", "forget", id, "--store", &store]);
    assert!(forget("pod-a").assert_code(10).stderr.contains("there is no node pod-a"));
    assert!(sandbox.contents().is_empty(), "asking makes nothing");
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    let leader = cluster.start("pod-a");
    cluster.event(0, leader, "became_leader");
    let other = cluster.start("pod-b");
    cluster.event(0, other, "joined");
    cluster.kill(other);
    let names = || {
        let status = sandbox.tenure(["status", "--json", "--store", &store]).assert_code(0).json();
        status["nodes"].as_array().unwrap().iter().map(|node| node["node"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["pod-a", "pod-b"]);
    assert!(forget("pod-a").assert_code(1).stderr.contains("pod-a leads default"));
    assert!(forget("pod-b").assert_code(0).stdout.starts_with("removed pod-b, last seen"));
    assert_eq!(names(), ["pod-a"]);
    assert!(forget("../pod-a").assert_code(2).stderr.contains("../pod-a"));
    cluster.finish();
}
