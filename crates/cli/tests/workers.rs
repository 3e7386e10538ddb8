//! Workers as real processes: `tenure worker run`, `tenure run --worker`, `tenure workers`.

use crate::common::{Cluster, PATIENT, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use tenure_store::{Condition, SqliteStore, Store, Write};

/// A worker that is missed soon: the least that the settings allow is quick enough for a test.
const LIVELY: &[&str] = &[
    "--worker-heartbeat-interval",
    "1000ms",
    "--worker-timeout",
    "2000ms",
    "--worker-sweep-interval",
    "1000ms",
];

fn lively() -> Vec<&'static str> {
    [PATIENT, LIVELY].concat()
}

/// A seat as its last leader left it.
fn vacated(path: &std::path::Path, epoch: u64) {
    let seat = json!({"v": 1, "epoch": epoch, "state": "vacant", "renewals": 3, "leaseHold": 1000, "leaseExpiry": 3000,
        "holder": {"node": "pod-z", "incarnation": "00000000000000ab"}, "nonce": "00000000000000ab-9"});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(path, Duration::from_secs(5)).await.unwrap();
        let key = "plg_coordinator_global/test/seat.json";
        let written = store.put(key, seat.to_string().into(), Condition::Absent).await;
        assert!(matches!(written, Write::Won(_)), "{written:?}");
    });
}

/// The documents' story: pod-a leads epoch 15 and dies, pod-b leads epoch 16, says so in the documents' words, and its
/// workers are enabled; a pod that was paused finds its workers disabled before anything else.
#[test]
fn gd3_workers_follow_the_leader_across_processes() {
    let sandbox = Sandbox::new();
    vacated(&sandbox.path("t.db"), 14);
    let arguments = [&lively()[..], &["--namespace", "test"]].concat();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), &arguments);
    let a = cluster.start_args("pod-a", &["--worker", "q-a:queue"]);
    let enabled = cluster.event(0, a, "worker:enabled");
    assert_eq!((enabled.epoch(), enabled.text("workerId"), enabled.text("pluginType")), (15, "q-a", "queue"));
    let b = cluster.start_args("pod-b", &["--worker", "q-b:queue"]);
    cluster.wait(0, "both workers", |said| said.life == b && said.event["active"] == 2);

    let mark = cluster.mark();
    cluster.kill(a);
    let enabled = cluster.event(mark, b, "worker:enabled");
    assert_eq!((enabled.epoch(), enabled.text("workerId"), enabled.text("pod")), (16, "q-b", "pod-b"));
    let changed = cluster.event(mark, b, "leader:changed").event;
    let told: Value = ["namespace", "previousLeader", "newLeader", "epoch"]
        .into_iter()
        .map(|field| (field.to_owned(), changed[field].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    assert_eq!(
        told,
        json!({"namespace": "test", "previousLeader": "pod-a", "newLeader": "pod-b", "epoch": 16})
    );
    let silent = cluster.event(mark, b, "worker:timeout");
    assert_eq!(
        (silent.text("workerId"), silent.text("pod"), silent.number("timeout")),
        ("q-a", "pod-a", 2000)
    );

    // The other half: pod-b is paused past its lease while a new pod-a takes over.
    let a = cluster.start_args("pod-a", &["--worker", "q-c:queue"]);
    cluster.event(mark, a, "joined");
    let mark = cluster.mark();
    let paused_ms = cluster.pause(b);
    let enabled = cluster.event(mark, a, "worker:enabled");
    assert_eq!(enabled.epoch(), 17);
    cluster.signal(b, Signal::CONT);
    cluster.event(mark, b, "worker:disabled");
    let woken =
        cluster.history()[mark..].iter().filter(|said| said.life == b && said.boot_ms() > paused_ms + 500);
    let before: Vec<&str> =
        woken.map(crate::common::Said::name).take_while(|name| *name != "worker:disabled").collect();
    let acts = ["lease_renewed", "became_leader", "worker:enabled"];
    assert!(!before.iter().any(|name| acts.contains(name)), "pod-b woke up and said {before:?} first");
    cluster.finish();
}

#[test]
fn a_worker_process_registers_is_refused_twice_and_deregisters_when_told() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = Cluster::new(&sandbox, &store, &lively());
    let node = cluster.start("pod-a");
    cluster.event(0, node, "became_leader");
    let worker = [
        "--id",
        "q1-worker-1",
        "--plugin-type",
        "queue",
        "--pod",
        "pod-x",
        "--payload",
        "{\"queue\":\"mail\"}",
    ];
    let first = cluster.start_worker(&worker);
    let known = cluster.event(0, node, "worker:registered");
    assert_eq!(
        (known.text("workerId"), known.text("pluginType"), known.text("pod")),
        ("q1-worker-1", "queue", "pod-x")
    );

    cluster.wait_log(first, "worker q1-worker-1: ");
    let list = sandbox.tenure(["workers", "--store", &store, "--json"]).assert_code(0).json();
    let row = &list["workers"][0];
    assert_eq!(
        (&row["workerId"], &row["state"], &row["timeout"]),
        (&json!("q1-worker-1"), &json!("active"), &json!(2000))
    );
    let table = sandbox.tenure(["workers", "--store", &store]).assert_code(0).stdout;
    assert!(table.contains("q1-worker-1") && table.contains("1 active, 0 inactive, 0 new"), "{table}");

    let second = [&["worker", "run", "--store", &store][..], &lively(), &worker].concat();
    sandbox.tenure(second).assert_code(1).assert_says(&[
        "q1-worker-1",
        "held by another live process",
        "pod-x",
    ]);

    let mark = cluster.mark();
    cluster.signal(first, Signal::TERM);
    assert!(cluster.exit(first).success());
    cluster.event(mark, node, "worker:deregistered");
    let list = sandbox.tenure(["workers", "--store", &store]).assert_code(0).stdout;
    assert_eq!(list, "no workers in default\n");
    cluster.finish();
}

#[test]
fn what_cannot_be_a_worker_is_said_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let run =
        |arguments: &[&str]| sandbox.tenure([&["worker", "run", "--store", &store], arguments].concat());
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(9000));
    for (arguments, says) in [
        (&["--id", ""][..], ["workerId", "must not be empty"]),
        (&["--id", "../w"], ["workerId", "../w"]),
        (&["--id", "w", "--plugin-type", "a/b"], ["pluginType", "a/b"]),
        (&["--id", "w", "--type", "a/b"], ["pluginType", "a/b"]),
        (&["--id", "w", "--pod", "a b"], ["--pod", "a b"]),
        (&["--id", "w", "--timeout", "0s"], ["timeout = 0", "10000"]),
        (&["--id", "w", "--timeout", "9999ms"], ["timeout = 9999", "workerHeartbeatInterval"]),
        (&["--id", "w", "--timeout", "soon"], ["soon", "--timeout"]),
        (&["--id", "w", "--payload", "x"], ["--payload", "JSON"]),
        (&["--id", "w", "--payload", &large], ["payload", "8192"]),
        (&[], ["--id", "required"]),
    ] {
        run(arguments).assert_code(2).assert_says(&says);
    }
    for flag in ["--type", "--plugin-type"] {
        let agent = ["agent", "--store", &store, "--id", "w", flag, "a/b"];
        sandbox.tenure(agent).assert_code(2).assert_says(&["pluginType", "a/b"]);
    }
    let node = ["run", "--store", &store, "--worker", "a/b:queue"];
    sandbox.tenure(node).assert_code(2).assert_says(&["workerId", "a/b"]);
    assert_eq!(
        sandbox.tenure(["workers", "--store", &store]).assert_code(0).stdout,
        "no workers in default\n"
    );
    assert!(sandbox.contents().is_empty(), "{:?}", sandbox.contents().keys());
}
