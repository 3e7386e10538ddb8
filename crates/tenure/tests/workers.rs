//! The worker registry through the library: memory store, simulated time, every node with its own meter and fault switch.

use crate::common::{Member, Rig, sleep_ms};
use serde_json::{Value, json};
use std::time::Duration;
use tenure::Error;
use tenure::Event;
use tenure::error::ErrorKind;
use tenure::event::EventKind;
use tenure::store::{Condition, Faults, Read, Store, Write};
use tenure::worker::{Worker, WorkerEnd, WorkerPhase, WorkerSpec};

const WORKER: &str = "plg_coordinator_global/test/workers/q1-worker-1.json";
const SNAPSHOT: &str = "plg_coordinator_global/test/snapshot.json";

fn spec() -> WorkerSpec {
    WorkerSpec::new("q1-worker-1", "queue").pod("pod-x").timeout(Duration::from_secs(20))
}

async fn registered(member: &Member, spec: WorkerSpec) -> Worker {
    let worker = member.node.register_worker(spec).expect("valid");
    worker.registered().await.expect("registered");
    worker
}

async fn object(rig: &Rig, key: &str) -> Option<Value> {
    match rig.store.get(key, None).await {
        Read::Found(object) => Some(serde_json::from_slice(&object.body).expect("JSON")),
        Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => None,
    }
}

async fn put(rig: &Rig, key: &str, body: impl Into<Vec<u8>>) {
    let body: Vec<u8> = body.into();
    let answer = rig.store.put(key, body.into(), Condition::Any).await;
    assert!(matches!(answer, Write::Won(_)), "{answer:?}");
}

/// The worker events said so far, in short.
fn told(member: &mut Member) -> Vec<String> {
    let said = member.so_far().iter().map(Event::to_json).collect::<Vec<_>>();
    let workers = said.iter().filter_map(|event| {
        let change = event["event"].as_str()?.strip_prefix("worker:")?;
        Some(format!("{change} {}", event["workerId"].as_str()?))
    });
    workers.collect()
}

fn count(said: &[String], wanted: &str) -> usize {
    said.iter().filter(|event| event.as_str() == wanted).count()
}

fn state(member: &Member, worker: &str) -> Option<bool> {
    let workers = member.node.workers();
    let workers = workers.borrow();
    workers.list.iter().find(|info| info.worker_id.as_str() == worker).map(|info| info.active)
}

/// Ends as a crash would: the process is gone, its object stays.
fn crash(member: Member, worker: Option<Worker>) {
    member.link.cut(true);
    std::mem::forget(worker);
    std::mem::forget(member);
}

#[tokio::test(start_paused = true)]
async fn gd4_a_worker_is_stored_refreshed_and_timed_out_once() {
    let rig = Rig::new();
    let mut a =
        rig.join_with("pod-a", 0, |s| s.startup_jitter_max(Duration::ZERO).namespace("production")).await;
    let x = rig.join_with("pod-x", 0, |s| s.startup_jitter_max(Duration::ZERO).namespace("production")).await;
    a.became_leader().await;
    let worker = registered(&x, spec()).await;
    let key = "plg_coordinator_global/production/workers/q1-worker-1.json";
    let stored = object(&rig, key).await.expect("stored at the documented key");
    let wanted = json!({"workerId": "q1-worker-1", "pluginType": "queue", "pod": "pod-x", "timeout": 20000});
    for (field, value) in wanted.as_object().expect("an object") {
        assert_eq!(&stored[field], value, "{field}");
    }
    sleep_ms(100).await;
    for beat in 2..6 {
        sleep_ms(5000).await;
        assert_eq!(object(&rig, key).await.expect("there")["beats"], beat, "refreshed every 5 s");
    }
    sleep_ms(20_000).await;
    assert_eq!(state(&a, "q1-worker-1"), Some(true));
    assert_eq!(told(&mut a), ["registered q1-worker-1"]);
    let silent_since = tokio::time::Instant::now();
    crash(x, Some(worker));
    let event = a.event(|kind| matches!(kind, EventKind::WorkerTimeout(_))).await.to_json();
    let after_ms = silent_since.elapsed().as_millis();
    assert!((15_000..=30_000).contains(&after_ms), "told {after_ms} ms after the crash");
    for (field, value) in wanted.as_object().expect("an object") {
        assert_eq!(&event[field], value, "{field}");
    }
    assert_eq!((&event["namespace"], &event["epoch"]), (&"production".into(), &1.into()));
    assert_eq!(state(&a, "q1-worker-1"), Some(false), "inactive");
    sleep_ms(120_000).await;
    assert_eq!(count(&told(&mut a), "timeout q1-worker-1"), 0, "once");
    let metrics = a.node.metrics();
    assert_eq!((metrics.workers_active, metrics.workers_inactive, metrics.worker_timeouts), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn gd4_a_worker_that_is_back_recovers_and_one_that_leaves_is_gone() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let x = rig.join("pod-x").await;
    let worker = registered(&x, spec()).await;
    sleep_ms(30_000).await;
    x.link.cut(true);
    sleep_ms(40_000).await;
    x.link.cut(false);
    sleep_ms(15_000).await;
    assert_eq!(told(&mut a), ["registered", "timeout", "recovered"].map(|e| format!("{e} q1-worker-1")));
    assert_eq!(worker.deregister().await, WorkerEnd::Deregistered);
    assert_eq!(object(&rig, WORKER).await, None);
    sleep_ms(10_000).await;
    assert_eq!(told(&mut a), ["deregistered q1-worker-1"]);
    assert_eq!(state(&a, "q1-worker-1"), None);
    let dropped = registered(&x, spec()).await;
    drop(dropped);
    sleep_ms(100).await;
    assert_eq!(object(&rig, WORKER).await, None, "dropping it deregisters");
}

#[tokio::test(start_paused = true)]
async fn gd3_fo4_workers_follow_the_leader_from_pod_to_pod() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    let on_a = registered(&members[0], WorkerSpec::new("wa", "queue")).await;
    let on_b = registered(&members[1], WorkerSpec::new("wb", "queue")).await;
    sleep_ms(2000).await;
    assert!(on_a.enabled() && !on_b.enabled());
    assert!(on_a.guard().is_some_and(|guard| guard.epoch() == 1) && on_b.guard().is_none());
    assert!(told(&mut members[0]).contains(&"enabled wa".to_owned()));
    members[0].link.cut(true); // pod-a is cut off: for everybody else it has crashed
    members[1].became_leader().await;
    sleep_ms(100).await;
    assert!(!on_a.enabled() && on_b.enabled());
    assert_eq!(on_b.guard().map(|guard| guard.epoch()), Some(2));
    assert_eq!(count(&told(&mut members[0]), "disabled wa"), 1);
    assert!(told(&mut members[1]).iter().all(|event| event != "disabled wb"));
    assert!(on_b.status().borrow().enabled && !on_a.status().borrow().enabled);
}

#[tokio::test(start_paused = true)]
async fn gd3_a_paused_pods_worker_is_disabled_by_the_deadline_by_itself() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    let worker = registered(&a, WorkerSpec::new("wa", "queue")).await;
    assert!(worker.enabled());
    // The whole process stands still: no task of it gets to run, only the clock goes on.
    tokio::time::advance(Duration::from_millis(5001)).await;
    assert!(!worker.enabled() && worker.guard().is_none(), "before anything else could run");
}

#[tokio::test(start_paused = true)]
async fn a_workers_guard_holds_up_the_hand_over_and_a_worker_without_one_does_not() {
    let rig = Rig::new();
    let members = rig.join_all(&["pod-a", "pod-b"]).await;
    sleep_ms(3000).await;
    let worker = registered(&members[0], WorkerSpec::new("wa", "queue")).await;
    sleep_ms(10_000).await;
    let before = tokio::time::Instant::now();
    members[0].node.step_down().await.expect("it leads");
    assert!(
        before.elapsed() < Duration::from_millis(100),
        "nothing of ours holds a guard: {:?}",
        before.elapsed()
    );
    assert!(!worker.enabled());
}

#[tokio::test(start_paused = true)]
async fn two_live_processes_under_one_id_are_told_apart() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let first = registered(&members[0], WorkerSpec::new("w", "queue")).await;
    sleep_ms(1000).await;
    let second = members[1].node.register_worker(WorkerSpec::new("w", "queue")).expect("valid");
    let error = second.registered().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Taken);
    assert!(error.to_string().contains("held by another live process, on pod pod-a"), "{error}");
    assert_eq!(second.ended().await, WorkerEnd::Refused(error));
    assert_eq!(count(&told(&mut members[1]), "conflict w"), 1);
    assert_eq!(first.status().borrow().phase, WorkerPhase::Registered);
    // The first is paused for so long that a third takes over; it learns so with its next heartbeat.
    members[0].link.cut(true);
    let third = registered(&members[1], WorkerSpec::new("w", "queue")).await;
    members[0].link.cut(false);
    let WorkerEnd::Superseded { pod, .. } = first.ended().await else { panic!("{:?}", first.status()) };
    assert_eq!(pod.as_str(), "pod-b");
    assert!(!first.enabled());
    sleep_ms(20_000).await;
    drop(first);
    sleep_ms(1000).await;
    let stored = object(&rig, "plg_coordinator_global/test/workers/w.json").await.expect("still there");
    assert_eq!(
        (stored["pod"].as_str(), third.status().borrow().phase.clone()),
        (Some("pod-b"), WorkerPhase::Registered)
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_is_patient_and_tells_no_silence_twice() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    members[0].became_leader().await;
    let live = registered(&members[2], WorkerSpec::new("live", "queue")).await;
    let dead = registered(&members[1], WorkerSpec::new("dead", "queue")).await;
    sleep_ms(30_000).await;
    // Its object stays, but nobody refreshes it any more.
    let key = "plg_coordinator_global/test/workers/dead.json";
    let body = object(&rig, key).await.expect("there").to_string();
    drop(dead);
    sleep_ms(100).await;
    put(&rig, key, body).await;
    sleep_ms(40_000).await;
    assert_eq!(count(&told(&mut members[1]), "timeout dead"), 1);
    members.remove(0).node.shutdown().await;
    members[0].became_leader().await;
    let elected = tokio::time::Instant::now();
    members[1].link.cut(true); // and now `live` falls silent as well
    members[0].event(|kind| matches!(kind, EventKind::WorkerTimeout(_))).await;
    assert!(elected.elapsed() >= Duration::from_secs(20), "a full timeout: {:?}", elected.elapsed());
    members[1].link.cut(false);
    sleep_ms(60_000).await;
    let said = told(&mut members[0]);
    assert_eq!(count(&said, "timeout dead"), 0, "told by the leader before: {said:?}");
    assert_eq!(count(&said, "recovered live"), 1, "{said:?}");
    drop(live);
}

#[tokio::test(start_paused = true)]
async fn followers_are_told_without_a_list_and_without_a_read_per_worker() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    members[0].became_leader().await;
    let x = rig.join("pod-x").await;
    let mut workers = Vec::new();
    for n in 0..20 {
        workers.push(registered(&x, WorkerSpec::new(format!("w{n:02}"), "queue")).await);
    }
    sleep_ms(30_000).await;
    assert_eq!(members[2].node.workers().borrow().active, 20);
    members.iter_mut().for_each(|member| drop(told(member)));
    let before: Vec<_> = members.iter().map(|member| member.meter.snapshot()).collect();
    x.link.cut(true);
    sleep_ms(60_000).await;
    for (member, before) in members.iter_mut().zip(before).skip(1) {
        let spent = member.meter.snapshot() - before;
        assert_eq!((spent.list_pages, spent.put), (0, 3), "{spent:?}");
        // 60 looks, and a read for each of at most a few snapshots.
        let reads = spent.get + spent.get_unchanged;
        assert!((61..=64).contains(&reads), "{reads} reads");
        let said = told(member);
        for n in 0..20 {
            assert_eq!(count(&said, &format!("timeout w{n:02}")), 1, "{said:?}");
        }
        assert_eq!(member.node.workers().borrow().inactive, 20);
    }
}

#[tokio::test(start_paused = true)]
async fn steady_state_with_workers_costs_what_was_designed() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    let _on_a = registered(&members[0], WorkerSpec::new("wa", "queue")).await;
    let _on_b = registered(&members[1], WorkerSpec::new("wb", "queue")).await;
    sleep_ms(80_250).await;
    let before: Vec<_> = members.iter().map(|member| member.meter.snapshot()).collect();
    sleep_ms(60_000).await;
    let spent: Vec<_> =
        members.iter().zip(before).map(|(member, before)| member.meter.snapshot() - before).collect();
    // Leader: renewals, presences, heartbeats of its worker, sweeps. Standby: looks, presences, heartbeats of its worker.
    assert_eq!((spent[0].put, spent[0].list_pages), (40 + 3 + 12, 12), "{:?}", spent[0]);
    assert_eq!(spent[0].requests(), 40 + 3 + 12 + 12, "{:?}", spent[0]);
    assert_eq!((spent[1].put, spent[1].get + spent[1].get_unchanged), (3 + 12, 60), "{:?}", spent[1]);
    assert_eq!(spent[1].requests(), 60 + 3 + 12, "{:?}", spent[1]);
}

#[tokio::test(start_paused = true)]
async fn dead_workers_are_removed_after_the_retention() {
    let rig = Rig::new();
    let mut a = rig
        .join_with("pod-a", 0, |s| {
            s.startup_jitter_max(Duration::ZERO).worker_retention(Duration::from_millis(60_000))
        })
        .await;
    let x = rig.join("pod-x").await;
    let worker = registered(&x, spec()).await;
    sleep_ms(30_000).await;
    x.link.cut(true);
    a.event(|kind| matches!(kind, EventKind::WorkerTimeout(_))).await;
    sleep_ms(55_000).await;
    assert!(object(&rig, WORKER).await.is_some(), "kept for a while");
    sleep_ms(15_000).await;
    assert_eq!(object(&rig, WORKER).await, None);
    sleep_ms(10_000).await;
    assert_eq!(count(&told(&mut a), "deregistered q1-worker-1"), 1);
    // The worker was not dead after all: it makes its object again.
    x.link.cut(false);
    sleep_ms(30_000).await;
    assert!(object(&rig, WORKER).await.is_some());
    assert_eq!(state(&a, "q1-worker-1"), Some(true));
    drop(worker);
}

#[tokio::test(start_paused = true)]
async fn unknown_outcomes_neither_end_a_worker_nor_tell_a_silence() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let mut x = rig.join("pod-x").await;
    a.became_leader().await;
    let worker = registered(&x, spec()).await;
    sleep_ms(30_000).await;
    let faults = Faults {
        lost_answer: 0.25,
        late_landing: 0.1,
        late_max: Duration::from_secs(3),
        timeout: Duration::from_millis(300),
        ..Faults::default()
    };
    x.link.set(faults);
    a.link.set(Faults { lost_answer: 0.1, timeout: Duration::from_millis(100), ..Faults::default() });
    sleep_ms(600_000).await;
    x.link.set(Faults::default());
    a.link.set(Faults::default());
    sleep_ms(60_000).await;
    assert_eq!(worker.status().borrow().phase, WorkerPhase::Registered);
    let mut said = told(&mut a);
    said.extend(told(&mut x));
    assert_eq!(count(&said, "timeout q1-worker-1"), 0, "{said:?}");
    assert_eq!(state(&a, "q1-worker-1"), Some(true));
    assert_eq!(state(&x, "q1-worker-1"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_refused_worker_object_is_told_once_and_tried_on() {
    let rig = Rig::new();
    let mut x = rig.join_with("pod-x", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    x.link.set(Faults { denied: 1.0, ..Faults::default() });
    let worker = x.node.register_worker(spec()).expect("valid");
    sleep_ms(120_000).await;
    assert_eq!(worker.status().borrow().phase, WorkerPhase::Registering);
    // The node's own looks are refused too, and told apart.
    let of_worker = |e: &&tenure::Event| matches!(&e.kind, EventKind::StoreDenied { detail } if detail.contains("q1-worker-1"));
    assert_eq!(x.so_far().iter().filter(of_worker).count(), 1);
    let looks = 121;
    assert!(x.meter.snapshot().requests() < 40 + looks, "{:?}", x.meter.snapshot());
    x.link.set(Faults::default());
    sleep_ms(6000).await;
    worker.registered().await.expect("registered after all");
    assert!(!worker.enabled(), "a node that is not eligible never leads");
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_later_version_survive_a_takeover_of_the_id() {
    let rig = Rig::new();
    let x = rig.join("pod-x").await;
    let worker = registered(&x, spec().payload(json!({"queue": "mail"}))).await;
    sleep_ms(100).await;
    let mut stored = object(&rig, WORKER).await.expect("there");
    assert_eq!(stored["payload"]["queue"], "mail");
    worker.deregister().await;
    stored["ofTomorrow"] = json!({"kept": true});
    put(&rig, WORKER, stored.to_string()).await;
    let _again = registered(&x, spec()).await;
    sleep_ms(20_000).await;
    assert_eq!(object(&rig, WORKER).await.expect("there")["ofTomorrow"]["kept"], true);
}

#[tokio::test(start_paused = true)]
async fn what_breaks_a_rule_is_refused_before_anything_is_written() {
    let rig = Rig::new();
    let x = rig.join_with("pod-x", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    for wrong in [
        WorkerSpec::new("", "queue"),
        WorkerSpec::new("../w", "queue"),
        spec().timeout(Duration::ZERO),
        spec().timeout(Duration::from_millis(9999)),
        spec().payload(json!({"x": "y".repeat(9000)})),
    ] {
        assert_eq!(x.node.register_worker(wrong).expect_err("refused").kind(), ErrorKind::Invalid);
    }
    sleep_ms(1000).await;
    assert!(rig.store.is_empty());
    put(&rig, WORKER, "junk").await;
    let refused = x.node.register_worker(spec()).expect("valid").registered().await;
    assert!(refused.as_ref().is_err_and(Error::is_unreadable), "{refused:?}");
    let Read::Found(left) = rig.store.get(WORKER, None).await else { panic!("gone") };
    assert_eq!(&left.body[..], b"junk", "left alone");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_an_older_epoch_is_ignored_and_a_broken_one_made_again() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    let worker = registered(&members[1], WorkerSpec::new("w", "queue")).await;
    sleep_ms(30_000).await;
    members[0].node.step_down().await.expect("it leads");
    sleep_ms(30_000).await;
    let mut second = members[1].node.register_worker(WorkerSpec::new("v", "queue")).expect("valid");
    second.registered().await.expect("registered");
    sleep_ms(30_000).await;
    assert_eq!(object(&rig, SNAPSHOT).await.expect("there")["epoch"], 2);
    assert_eq!(members[0].node.workers().borrow().active, 2);
    // Somebody puts an older one in its place, with everybody dead; then something that is no snapshot at all.
    let old = json!({"v": 1, "epoch": 1, "owner": "00000000000000ab", "nonce": "00000000000000ab-9",
        "id": {"epoch": 1, "sequence": 99}, "listing": "all", "active": 0, "inactive": 1,
        "plugins": ["queue"], "pods": ["pod-b"], "workers": [["w", 0, 0, 20000, 1, 99, 0]]});
    put(&rig, SNAPSHOT, old.to_string()).await;
    members.iter_mut().for_each(|member| drop(told(member)));
    sleep_ms(60_000).await;
    for member in &mut members {
        assert_eq!(told(member), Vec::<String>::new());
        assert_eq!(member.node.workers().borrow().active, 2);
    }
    put(&rig, SNAPSHOT, "\u{0}junk").await;
    second.deregister().await;
    sleep_ms(30_000).await;
    assert_eq!(object(&rig, SNAPSHOT).await.expect("made again")["active"], 1);
    assert_eq!(members[0].node.workers().borrow().active, 1);
    second = members[1].node.register_worker(WorkerSpec::new("v", "queue")).expect("valid");
    drop((worker, second));
}

#[tokio::test(start_paused = true)]
async fn junk_among_the_workers_is_counted_and_costs_no_leadership() {
    let rig = Rig::new();
    let workers = "plg_coordinator_global/test/workers";
    for (key, body) in [
        ("corrupt.json", &b"{\"v\":1}"[..]),
        ("newer.json", b"{\"v\":2}"),
        ("other.json", b"{\"v\":1,\"workerId\":\"x\"}"),
        ("empty.json", b""),
        ("large.json", &[b'x'; 70_000]),
        ("a/b.json", b"{}"),
        ("..json", b"{}"),
        ("readme.txt", b"hello"),
    ] {
        put(&rig, &format!("{workers}/{key}"), body).await;
    }
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    let worker = registered(&a, spec()).await;
    sleep_ms(60_000).await;
    let metrics = a.node.metrics();
    assert_eq!((metrics.workers_active, metrics.workers_skipped), (1, 8));
    let before = a.meter.snapshot();
    sleep_ms(60_000).await;
    assert_eq!((a.meter.snapshot() - before).get, 0, "what is broken is not read again and again");
    assert_eq!(told(&mut a), ["enabled q1-worker-1", "registered q1-worker-1"]);
    assert!(a.leads() && rig.seat().await["epoch"] == 1);
    drop(worker);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_junk_objects_cost_no_leadership() {
    let rig = Rig::new();
    for n in 0..100_000 {
        put(&rig, &format!("plg_coordinator_global/test/workers/junk-{n:06}.json"), "x").await;
    }
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    let worker = registered(&members[0], WorkerSpec::new("a-worker", "queue")).await;
    sleep_ms(120_000).await;
    assert!(members[0].leads() && rig.seat().await["epoch"] == 1, "leadership is unaffected");
    assert!(worker.enabled());
    let said = members[0].so_far();
    assert!(!said.iter().any(|event| matches!(event.kind, EventKind::LeaseAtRisk { .. })));
    let metrics = members[0].node.metrics();
    assert!(metrics.workers_skipped > 5000, "counted: {}", metrics.workers_skipped);
    assert_eq!(state(&members[1], "a-worker"), Some(true), "who can be seen is seen");
    let spent = members[0].meter.snapshot();
    assert!(spent.list_pages <= 25 * 25, "a sweep is bounded: {spent:?}");
}
