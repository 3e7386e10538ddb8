//! A store that goes away while somebody leads, and comes back.

use crate::common::{Cluster, PATIENCE, PATIENT, PLAIN, Sandbox, took_ms};

/// A node notices its deadline within its next look at the clock; the rest is room for a busy machine. Whoever holds
/// the lease is told by the lease itself, on the very deadline.
const NOTICED_MS: u64 = 1_000;

#[test]
fn a_short_stall_costs_nothing() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), PLAIN);
    cluster.start_all(&["pod-a", "pod-b"]);
    let leader = cluster.leader(0);
    cluster.event(0, leader.life, "lease_renewed");
    let lock = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
    lock.busy_timeout(PATIENCE).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    lock.execute_batch("ROLLBACK").unwrap();
    for _ in 0..3 {
        let mark = cluster.mark();
        cluster.event(mark, leader.life, "lease_renewed");
    }
    let history = cluster.finish();
    assert!(history.iter().all(|said| said.name() != "lost_leadership"));
}

#[test]
fn a_database_that_is_deleted_costs_leadership() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), PATIENT);
    let life = cluster.start("pod-a");
    cluster.leader(0);
    cluster.event(0, life, "lease_renewed");
    let mark = cluster.mark();
    for name in ["t.db", "t.db-wal", "t.db-shm"] {
        let _ = std::fs::remove_file(sandbox.path(name));
    }
    cluster.event(mark, life, "lost_leadership");
    let said = cluster.event(mark, life, "store_denied");
    assert!(said.text("detail").contains("gone"), "{}", said.event);
    assert!(cluster.is_running(life));
    assert!(!sandbox.path("t.db").exists(), "a second arbiter must not come into being");
    cluster.finish();
}

/// Tests that assert how long something takes. They run one at a time: `.config/nextest.toml`.
mod measured {
    use super::*;

    #[test]
    fn sb3_a_store_that_is_held_costs_leadership_by_the_deadline_and_is_rejoined() {
        for settings in [PATIENT, PLAIN] {
            let sandbox = Sandbox::new();
            let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), settings);
            let life = cluster.start("pod-a");
            let first = cluster.leader(0).epoch();
            for epoch in first + 1..first + 3 {
                let renewed = cluster.mark();
                cluster.event(renewed, life, "lease_renewed");
                let lock = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
                lock.busy_timeout(PATIENCE).unwrap();
                lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
                let lost = cluster.event(renewed, life, "lost_leadership");
                let deadline_ms = cluster
                    .history()
                    .iter()
                    .filter(|said| ["lease_renewed", "became_leader"].contains(&said.name()))
                    .map(|said| said.number("deadlineBootMs"))
                    .max()
                    .unwrap();
                let late_ms = took_ms(deadline_ms, lost.boot_ms());
                assert!(late_ms <= NOTICED_MS, "{late_ms} ms late");
                assert_eq!(lost.event["vacated"], false);
                assert!(!lost.text("reason").is_empty());
                let mark = cluster.mark();
                lock.execute_batch("ROLLBACK").unwrap();
                let again = cluster.leader(mark);
                assert_eq!((again.life, again.epoch()), (life, epoch), "the same process, the next epoch");
            }
            cluster.finish();
        }
    }
}
