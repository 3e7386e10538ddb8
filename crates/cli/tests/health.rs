//! `tenure health` with real processes.

use crate::common::{Cluster, PATIENT, STEADY, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A node that is missed soon.
const LIVELY: &[&str] = &["--presence-interval", "1000ms"];

/// What is true on a machine that is busy with other things, and no concern of these tests.
const SLOW: [&str; 2] = ["slow_store", "contention"];

fn reasons(view: &Value) -> impl Iterator<Item = &str> {
    view["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].as_str().unwrap())
}

/// What health has to say about the cluster.
fn codes(view: &Value) -> Vec<&str> {
    reasons(view).filter(|code| !SLOW.contains(code)).collect()
}

fn is_slow(view: &Value) -> bool {
    reasons(view).any(|code| SLOW.contains(&code))
}

/// `tenure health --json`. Its exit code must be `code`, or "degraded" instead of "healthy" for a slow store alone.
fn health(sandbox: &Sandbox, store: &str, code: i32) -> Value {
    let ran = sandbox.tenure(["health", "--json", "--store", store]);
    let view = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let code = if code == 0 && is_slow(&view) { 7 } else { code };
    ran.assert_code(code);
    view
}

fn state(view: &Value, name: &str) -> String {
    let rows = view["nodes"].as_array().unwrap();
    let row = rows.iter().find(|row| row["node"] == name).unwrap_or_else(|| panic!("no {name} in {view}"));
    row["state"].as_str().unwrap().to_owned()
}

/// Two nodes; one dies and health says so; it comes back; the leader dies, nothing is believed, and its successor tells it.
#[test]
fn cp1_health_shows_who_died_and_believes_no_dead_leader() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = Cluster::new(&sandbox, &store, &[PATIENT, LIVELY].concat());
    let health = |code| health(&sandbox, &store, code);
    let a = cluster.start_args("pod-a", &["--worker", "w1:queue"]);
    cluster.event(0, a, "became_leader");
    let b = cluster.start("pod-b");
    let told = cluster.event(0, a, "health_changed");
    assert_eq!((told.text("from"), told.epoch()), ("unknown", 1), "at once");
    // The first was alone for a moment, or was not.
    cluster.wait(0, "pod-b is seen", |said| said.name() == "node_up" && said.text("subject") == "pod-b");
    let view = health(0);
    let status = if is_slow(&view) { "degraded" } else { "healthy" };
    assert_eq!((&view["status"], codes(&view)), (&json!(status), vec![]));
    assert_eq!((&view["epoch"], &view["leader"]), (&json!(1), &json!("pod-a")));
    assert_eq!((state(&view, "pod-a"), state(&view, "pod-b")), ("up".to_owned(), "up".to_owned()));
    assert_eq!(view["workers"]["list"][0]["workerId"], "w1");
    let table = sandbox.tenure(["health", "--store", &store]).stdout;
    for word in ["status     ", "leader     pod-a", "pod-b", "standby", "w1"] {
        assert!(table.contains(word), "{word:?} is not in:\n{table}");
    }

    let mark = cluster.mark();
    cluster.kill(b);
    let told = cluster.event(mark, a, "node_down");
    assert_eq!((told.text("subject"), told.epoch()), ("pod-b", 1));
    let view = health(8);
    assert_eq!(
        (state(&view, "pod-b"), codes(&view)),
        ("down".to_owned(), vec!["node_down", "no_eligible_standby"])
    );
    let b = cluster.start("pod-b");
    let told = cluster.event(mark, a, "node_up");
    assert_eq!(told.text("subject"), "pod-b");

    let mark = cluster.mark();
    cluster.kill(a);
    let view = health(8);
    assert_eq!((codes(&view), &view["leader"]), (vec!["no_leader"], &Value::Null));
    cluster.event(mark, b, "became_leader");
    let told = cluster.event(mark, b, "node_down");
    assert_eq!((told.text("subject"), told.epoch()), ("pod-a", 2));
    let view = health(8);
    assert_eq!((&view["epoch"], &view["leader"]), (&json!(2), &json!("pod-b")));
    cluster.signal(b, Signal::TERM);
    assert!(cluster.exit(b).success());
    let all = cluster.finish();
    let downs: Vec<&str> =
        all.iter().filter(|said| said.name() == "node_down").map(|said| said.text("subject")).collect();
    assert_eq!(downs, ["pod-b", "pod-a"], "each once");
}

#[test]
fn without_a_store_or_a_judge_health_is_unknown_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let view = sandbox.tenure(["health", "--json", "--store", &store]).assert_code(9).json();
    assert_eq!((&view["status"], codes(&view)), (&json!("unknown"), vec!["stale_snapshot"]));
    assert!(sandbox.contents().is_empty(), "{:?}", sandbox.contents().keys());
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    let a = cluster.start_args("pod-a", &["--no-health"]);
    cluster.event(0, a, "became_leader");
    let text = sandbox.tenure(["health", "--store", &store]).assert_code(9).stdout;
    assert!(
        text.contains("no leader has published health yet") && text.contains("leader     pod-a"),
        "{text}"
    );
    cluster.finish();
}
