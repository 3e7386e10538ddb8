//! `tenure history` with real processes.

use crate::common::{Cluster, FAST, PATIENCE, PATIENT, Ran, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Instant;

fn history(sandbox: &Sandbox, store: &str, more: &[&str]) -> Ran {
    sandbox.tenure([&["history", "--store", store], more].concat())
}

/// Epoch, leader and why it ended, the newest first.
fn terms(sandbox: &Sandbox, store: &str) -> Vec<(u64, String, String)> {
    let view = history(sandbox, store, &["--json"]).assert_code(0).json();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let rows = view["terms"].as_array().unwrap();
    rows.iter()
        .map(|row| (row["epoch"].as_u64().unwrap(), text(&row["leader"]), text(&row["ended"])))
        .collect()
}

/// One is killed, one is frozen and comes back, one is asked to step down, one is told to stop.
#[test]
fn hi3_history_shows_who_led_and_why_it_ended_without_a_node() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let nothing = history(&sandbox, &store, &[]).assert_code(0).stdout;
    assert_eq!(nothing, "nobody has led default yet\n");
    assert_eq!(history(&sandbox, &store, &["--json"]).assert_code(0).json()["terms"], json!([]));
    assert!(sandbox.contents().is_empty(), "looking makes nothing");

    let mut cluster = Cluster::new(&sandbox, &store, PATIENT);
    let a = cluster.start("pod-a");
    cluster.event(0, a, "became_leader");
    let b = cluster.start("pod-b");
    cluster.event(0, b, "joined");
    let mark = cluster.mark();
    cluster.kill(a);
    assert_eq!(cluster.leader(mark).node, "pod-b");
    let mark = cluster.mark();
    let a = cluster.start("pod-a");
    cluster.event(mark, a, "joined");
    let mark = cluster.mark();
    cluster.pause(b);
    assert_eq!(cluster.leader(mark).node, "pod-a");
    cluster.signal(b, Signal::CONT);
    cluster.event(mark, b, "lost_leadership");
    let mark = cluster.mark();
    sandbox.tenure(["step-down", "--store", &store, "--wait", "0s"]).assert_code(0);
    assert_eq!(cluster.leader(mark).node, "pod-b");
    cluster.signal(b, Signal::TERM);
    cluster.exit(b);
    cluster.leader(mark);
    let row = |epoch, leader: &str, ended: &str| (epoch, leader.to_owned(), ended.to_owned());
    let wanted = [
        row(5, "pod-a", ""),
        row(4, "pod-b", "shutdown"),
        row(3, "pod-a", "step down"),
        row(2, "pod-b", "lease expired"),
        row(1, "pod-a", "silent"),
    ];
    let began = Instant::now();
    while terms(&sandbox, &store) != wanted && began.elapsed() < PATIENCE {}
    assert_eq!(terms(&sandbox, &store), wanted);

    let table = history(&sandbox, &store, &[]).assert_code(0).stdout;
    let line = |epoch: &str| {
        let line = table
            .lines()
            .find(|line| line.trim_start().starts_with(epoch))
            .unwrap_or_else(|| panic!("{table}"));
        line.to_owned()
    };
    assert!(line("EPOCH").contains("LED FOR"), "{table}");
    for (epoch, words) in [
        ("5", "leads"),
        ("4", "shut down"),
        ("3", "stepped down (asked by "),
        ("2", "silent for "),
        ("1", "fell silent for "),
    ] {
        assert!(line(epoch).contains(words) && line(epoch).contains('Z'), "{table}");
    }
    let view = history(&sandbox, &store, &["--json", "--limit", "2"]).assert_code(0).json();
    assert_eq!((view["terms"].as_array().unwrap().len(), &view["terms"][0]["leads"]), (2, &json!(true)));
    for row in view["terms"].as_array().unwrap().iter().skip(1) {
        assert!(row["from"].as_str() <= row["until"].as_str(), "{row}");
    }
    history(&sandbox, &store, &["--limit", "2"]).assert_code(0).assert_says(&["3 older ones", "--limit"]);
    for wrong in ["0", "1001", "x"] {
        history(&sandbox, &store, &["--limit", wrong]).assert_code(2);
    }

    // Nobody is left, and the store still tells.
    cluster.signal(a, Signal::TERM);
    cluster.exit(a);
    cluster.finish();
    let last = terms(&sandbox, &store).swap_remove(0);
    assert_eq!(last, row(5, "pod-a", "shutdown"));
}

/// A node that judges no health keeps no list: what the seat says is there all the same.
#[test]
fn hi3_without_the_list_the_seat_tells_of_five_terms() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = Cluster::new(&sandbox, &store, FAST);
    let mark = cluster.mark();
    let a = cluster.start_args("pod-a", &["--no-health"]);
    cluster.event(mark, a, "became_leader");
    for _ in 0..6 {
        let mark = cluster.mark();
        sandbox.tenure(["step-down", "--store", &store, "--wait", "0s"]).assert_code(0);
        cluster.event(mark, a, "became_leader");
    }
    let row = |epoch, ended: &str| (epoch, "pod-a".to_owned(), ended.to_owned());
    let ended = (3..=6).rev().map(|epoch| row(epoch, "step down"));
    assert_eq!(terms(&sandbox, &store), [row(7, "")].into_iter().chain(ended).collect::<Vec<_>>());
    let table = history(&sandbox, &store, &[]).assert_code(0).stdout;
    let last = table.lines().last().unwrap();
    assert!(last.trim_start().starts_with("1-2 ") && last.contains("no record of these epochs"), "{table}");
    cluster.finish();
}
