//! `tenure step-down` against real processes.

use crate::common::{Cluster, PATIENT, STEADY, Sandbox};
use serde_json::json;

#[test]
fn a_leader_that_is_asked_hands_over_to_another_process() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    let mut lives = vec![cluster.start("pod-a")];
    cluster.event(0, lives[0], "became_leader");
    lives.push(cluster.start("pod-b"));
    cluster.event(0, lives[1], "joined");
    let mark = cluster.mark();
    let ran = sandbox.tenure(["step-down", "--store", &store]).assert_code(0);
    assert_eq!(ran.stdout, "asked pod-a to step down from epoch 1\npod-b leads in epoch 2\n");
    let lost = cluster.event(mark, lives[0], "lost_leadership");
    assert_eq!((lost.text("reason"), &lost.event["vacated"]), ("step down", &true.into()));
    assert_eq!(cluster.leader(mark).node, "pod-b");
    let ran = sandbox.tenure(["step-down", "--store", &store, "--json"]).assert_code(0).json();
    let (asked, leader) = (json!({"node": "pod-b", "epoch": 2}), json!({"node": "pod-a", "epoch": 3}));
    assert_eq!(ran, json!({"namespace": "default", "asked": asked, "outcome": "led", "leader": leader}));
    cluster.finish();
}

#[test]
fn alone_it_leads_again_and_without_waiting_it_is_only_asked() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    let life = cluster.start("pod-a");
    cluster.event(0, life, "became_leader");
    let ran = sandbox.tenure(["step-down", "--store", &store]).assert_code(0);
    let again = "pod-a stepped down and leads again in epoch 2: no other node took the seat\n";
    assert_eq!(ran.stdout, format!("asked pod-a to step down from epoch 1\n{again}"));
    let mark = cluster.mark();
    let ran = sandbox.tenure(["step-down", "--store", &store, "--wait", "0s"]).assert_code(0);
    assert_eq!(ran.stdout, "asked pod-a to step down from epoch 2\n");
    cluster.event(mark, life, "lost_leadership");
    cluster.finish();
}

#[test]
fn nobody_to_ask_and_a_leader_that_cannot_hear_are_exit_codes() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let ask = |arguments: &[&str]| sandbox.tenure([&["step-down", "--store", &store], arguments].concat());
    assert!(ask(&[]).assert_code(3).stdout.contains("does not exist yet"));
    assert!(sandbox.contents().is_empty(), "asking makes nothing");
    let mut cluster = Cluster::new(&sandbox, &store, PATIENT);
    let life = cluster.start("pod-a");
    cluster.event(0, life, "became_leader");
    assert_eq!(
        ask(&["--namespace", "elsewhere"]).assert_code(3).stdout,
        "no leader: there has never been one\n"
    );
    cluster.kill(life);
    let held = ask(&["--wait", "300ms", "--json"]).assert_code(1).assert_says(&[
        "pod-a",
        "did not step down",
        "300 ms",
    ]);
    assert_eq!(held.json()["outcome"], "held");
    let twice = ask(&["--wait", "0s"]).assert_code(0).stdout;
    assert_eq!(twice, "asked pod-a to step down from epoch 1 (it had been asked already)\n");
    let status = sandbox.tenure(["status", "--store", &store]).assert_code(3).stdout;
    assert!(status.contains("asked      to step down"), "{status}");
    for wrong in [&["--wait", "-1"][..], &["--wait", "soon"], &["--wait", "10"], &["--namespace", "../x"]] {
        ask(wrong).assert_code(2);
    }
    cluster.finish();
}
