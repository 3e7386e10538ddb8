//! Real processes on one embedded store: starts, crashes, pauses, hand-overs, signals.

use crate::common::{Cluster, FAST, FIRST_BY_NAME, PATIENT, PLAIN, STEADY, Sandbox, took_ms};
use rustix::process::Signal;

/// Every order in which three can be started: the first by name must lead whenever it came.
const ORDERS: [[&str; 3]; 6] = [
    ["pod-a", "pod-b", "pod-c"],
    ["pod-c", "pod-b", "pod-a"],
    ["pod-b", "pod-c", "pod-a"],
    ["pod-c", "pod-a", "pod-b"],
    ["pod-b", "pod-a", "pod-c"],
    ["pod-a", "pod-c", "pod-b"],
];

/// Bounds of the requirements.
const CRASH_DEFAULT_MS: u64 = 10_000;
const CRASH_FAST_MS: u64 = 2_500;
const HAND_OVER_DEFAULT_MS: u64 = 5_000;

#[test]
fn sb1_of_three_started_at_once_exactly_the_first_by_name_leads() {
    for round in 0..6 {
        let sandbox = Sandbox::new();
        let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), FIRST_BY_NAME);
        let lives = cluster.start_all(&ORDERS[round % ORDERS.len()]);
        let leader = cluster.leader(0);
        for life in lives {
            let seen = cluster.event(0, life, "leader:changed");
            assert_eq!(seen.text("newLeader"), "pod-a", "round {round}: {}", seen.event);
        }
        cluster.event(0, leader.life, "lease_renewed");
        let history = cluster.finish();
        let leaders: Vec<_> = history.iter().filter(|said| said.name() == "became_leader").collect();
        assert_eq!(leaders.len(), 1, "round {round}: {leaders:?}");
        assert_eq!((leaders[0].node.as_str(), leaders[0].epoch()), ("pod-a", 1), "round {round}");
    }
}

/// Kills the leader, waits for the next one, and says who was killed and how long nobody was there.
fn crash(cluster: &mut Cluster<'_>, leader: &mut crate::common::Said) -> (String, u64) {
    // On a slow machine its first lease may have ended before it could renew it: then another leads.
    let since = leader.epoch();
    let epoch = cluster
        .wait(0, "a renewed lease", |said| said.name() == "lease_renewed" && said.epoch() >= since)
        .epoch();
    *leader = cluster.wait(0, "its leader", |said| said.name() == "became_leader" && said.epoch() == epoch);
    let mark = cluster.mark();
    let killed_ms = cluster.kill(leader.life);
    let next = cluster.leader(mark);
    assert_eq!(next.epoch(), leader.epoch() + 1);
    assert_ne!(next.life, leader.life);
    let next_life = next.life;
    // It may have been slow to hear of the change before.
    let of_next = |name: &'static str, field: &'static str, value: String| {
        move |said: &crate::common::Said| {
            said.life == next_life && said.name() == name && said.text(field) == value
        }
    };
    cluster.wait(mark, "leader_down of the killed", of_next("leader_down", "leader", leader.node.clone()));
    let changed = of_next("leader:changed", "newLeader", next.node.clone());
    let changed = cluster.wait(mark, "leader:changed to itself", changed);
    assert_eq!(changed.text("previousLeader"), leader.node);
    let took_ms = took_ms(killed_ms, next.boot_ms());
    (std::mem::replace(leader, next).node, took_ms)
}

#[test]
fn fo3_an_old_leader_that_comes_back_stands_by() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), PATIENT);
    cluster.start_all(&["pod-a", "pod-b"]);
    let first = cluster.leader(0);
    assert_eq!(first.node, "pod-a");
    cluster.kill(first.life);
    let mark = cluster.mark();
    let second = cluster.leader(mark);
    assert_eq!(second.node, "pod-b");

    let mark = cluster.mark();
    let again = cluster.start("pod-a");
    cluster.event(mark, again, "joined");
    // It looks at the seat for longer than a first election would take it, and finds the other one every time.
    let joined = cluster.mark();
    for _ in 0..6 {
        let mark = cluster.mark();
        let check = cluster.event(mark, again, "election_check");
        assert_eq!(check.text("leader"), "pod-b");
    }
    cluster.event(joined, second.life, "lease_renewed");
    let history = cluster.finish();
    assert_eq!(history.iter().filter(|said| said.name() == "became_leader").count(), 2);
}

#[test]
fn sb3_a_paused_leader_finds_its_lease_over_before_anything_else() {
    pause(FAST, 3);
}

#[test]
fn sb3_a_paused_leader_finds_its_lease_over_before_anything_else_by_default() {
    pause(PLAIN, 1);
}

fn pause(settings: &[&str], rounds: usize) {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), settings);
    cluster.start_all(&ORDERS[0]);
    let mut leader = cluster.leader(0);
    for _ in 0..rounds {
        cluster.event(0, leader.life, "lease_renewed");
        let mark = cluster.mark();
        let stopped_ms = cluster.pause(leader.life);
        let next = cluster
            .wait(mark, "another leader", |said| said.name() == "became_leader" && said.life != leader.life);
        assert_eq!(next.epoch(), leader.epoch() + 1);
        // The other one is settled: it has renewed.
        cluster.event(mark, next.life, "lease_renewed");

        let resumed_ms = cluster.signal(leader.life, Signal::CONT);
        let first = cluster.wait(mark, "a word of the resumed one", |said| {
            // What it had said before, but had not got out, does not count.
            // That its leader-only work has ended comes before that it leads no longer.
            let work = said.name() == "process_exited";
            said.life == leader.life && said.boot_ms() > stopped_ms + 100 && !work
        });
        assert_eq!(first.name(), "lost_leadership", "{}", first.event);
        assert!(first.boot_ms() >= resumed_ms);
        assert_eq!(first.epoch(), leader.epoch());
        let awake = cluster.mark();
        let check = cluster.wait(awake, "the resumed one to look at the seat", |said| {
            said.life == leader.life && said.name() == "election_check" && said.text("leader") == next.node
        });
        assert_eq!(check.epoch(), next.epoch());
        leader = next;
    }
    let history = cluster.finish();
    assert_eq!(history.iter().filter(|said| said.name() == "became_leader").count(), rounds + 1);
}

#[test]
fn both_signals_drain_and_vacate() {
    for signal in [Signal::INT, Signal::TERM] {
        let sandbox = Sandbox::new();
        let store = sandbox.sqlite("t.db");
        let mut cluster = Cluster::new(&sandbox, &store, STEADY);
        let life = cluster.start("pod-a");
        cluster.leader(0);
        cluster.signal(life, signal);
        assert_eq!(cluster.exit(life).code(), Some(0), "{}", cluster.log(life));
        let lost = cluster.event(0, life, "lost_leadership");
        assert_eq!((lost.text("reason"), &lost.event["vacated"]), ("shutdown", &true.into()));
        let last = cluster.history().last().unwrap().clone();
        assert_eq!(last.name(), "stopped");
        cluster.finish();
        let status = sandbox.tenure(["status", "--json", "--store", &store]).assert_code(3).json();
        assert_eq!((&status["leader"], &status["epoch"]), (&serde_json::Value::Null, &1.into()));
        assert_eq!(status["nodes"], serde_json::json!([]), "a node that leaves takes its presence along");
    }
}

#[test]
fn a_second_signal_ends_at_once_though_the_store_hangs() {
    for (first, second, code) in
        [(Signal::TERM, Signal::TERM, 143), (Signal::TERM, Signal::INT, 130), (Signal::INT, Signal::INT, 130)]
    {
        let sandbox = Sandbox::new();
        // A lease of many seconds: by itself the node would try to vacate for that long.
        let settings =
            ["--startup-jitter-max", "0", "--lease-timeout", "60000ms", "--request-timeout", "20000ms"];
        let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), &settings);
        let life = cluster.start("pod-a");
        cluster.leader(0);
        let lock = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
        lock.busy_timeout(crate::common::PATIENCE).unwrap();
        lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
        cluster.signal(life, first);
        cluster.wait_log(life, "stopping");
        assert!(cluster.is_running(life), "it waits for the store");
        let told_ms = crate::common::boot_ms();
        // One that follows the first too closely is taken for its echo, so it is said until it is heard.
        while cluster.is_running(life) && crate::common::boot_ms() - told_ms < 5_000 {
            cluster.signal(life, second);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(cluster.exit(life).code(), Some(code));
        let took_ms = crate::common::boot_ms() - told_ms;
        assert!(took_ms < 5_000, "{took_ms} ms is not at once");
        drop(lock);
        cluster.finish();
    }
}

/// Some senders reach a process twice: once by itself, once in its group.
#[test]
fn the_echo_of_a_signal_does_not_cut_the_drain_short() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY);
    let life = cluster.start("pod-a");
    cluster.leader(0);
    let mark = cluster.mark();
    cluster.signal(life, Signal::TERM);
    cluster.signal(life, Signal::INT);
    assert_eq!(cluster.exit(life).code(), Some(0));
    assert_eq!(cluster.event(mark, life, "lost_leadership").event["vacated"], true);
    cluster.finish();
}

#[test]
fn a_node_whose_store_never_answers_can_be_stopped() {
    let sandbox = Sandbox::new();
    let silent = crate::common::net::Server::silent();
    let mut cluster = Cluster::new(&sandbox, "s3://bucket/prefix", FAST)
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", &silent.url());
    let life = cluster.start("pod-a");
    let trouble = cluster.event(0, life, "store_unavailable");
    assert!(!trouble.text("detail").is_empty());
    let told_ms = cluster.signal(life, Signal::TERM);
    assert_eq!(cluster.exit(life).code(), Some(0), "{}", cluster.log(life));
    let took_ms = crate::common::boot_ms() - told_ms;
    assert!(took_ms < 10_000, "{took_ms} ms");
    cluster.finish();
}

#[test]
fn two_nodes_of_one_name_never_lead_both() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY);
    cluster.start_all(&["pod-a", "pod-a"]);
    let leader = cluster.leader(0);
    for _ in 0..4 {
        let mark = cluster.mark();
        cluster.event(mark, leader.life, "lease_renewed");
    }
    let history = cluster.finish();
    assert_eq!(history.iter().filter(|said| said.name() == "became_leader").count(), 1);
}

/// Tests that assert how long something takes. They run one at a time: `.config/nextest.toml`.
mod measured {
    use super::*;

    #[test]
    fn fo1_a_killed_leader_is_replaced_within_ten_seconds_by_default() {
        let sandbox = Sandbox::new();
        let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), PLAIN);
        cluster.start_all(&ORDERS[0]);
        let mut leader = cluster.leader(0);
        for _ in 0..2 {
            let (_, took_ms) = crash(&mut cluster, &mut leader);
            println!("fo1 default: {took_ms} ms");
            assert!(took_ms <= CRASH_DEFAULT_MS, "{took_ms} ms");
        }
        cluster.finish();
    }

    #[test]
    fn fo1_a_killed_leader_is_replaced_within_two_and_a_half_seconds_when_fast() {
        let sandbox = Sandbox::new();
        let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), FAST);
        cluster.start_all(&ORDERS[0]);
        let mut leader = cluster.leader(0);
        for _ in 0..5 {
            let (dead, took_ms) = crash(&mut cluster, &mut leader);
            println!("fo1 fast: {took_ms} ms");
            assert!(took_ms <= CRASH_FAST_MS, "{took_ms} ms");
            let mark = cluster.mark();
            let again = cluster.start(&dead);
            cluster.event(mark, again, "joined");
        }
        cluster.finish();
    }

    #[test]
    fn fo2_a_leader_told_to_stop_is_replaced_within_five_seconds() {
        let sandbox = Sandbox::new();
        let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), PLAIN);
        cluster.start_all(&ORDERS[0]);
        let mut leader = cluster.leader(0);
        for _ in 0..2 {
            cluster.event(0, leader.life, "lease_renewed");
            let mark = cluster.mark();
            let told_ms = cluster.signal(leader.life, Signal::TERM);
            let status = cluster.exit(leader.life);
            assert_eq!(status.code(), Some(0));
            let lost = cluster.event(mark, leader.life, "lost_leadership");
            assert_eq!((lost.text("reason"), &lost.event["vacated"]), ("shutdown", &true.into()));
            cluster.event(mark, leader.life, "stopped");
            let next = cluster.leader(mark);
            let took_ms = took_ms(told_ms, next.boot_ms());
            println!("fo2 default: {took_ms} ms");
            assert!(took_ms <= HAND_OVER_DEFAULT_MS, "{took_ms} ms");
            assert_eq!(next.epoch(), leader.epoch() + 1);
            leader = next;
        }
        cluster.finish();
    }
}
