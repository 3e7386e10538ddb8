//! The checks: a good record passes, and every way to spoil it is found.

use serde_json::{Value, json};
use tenure_chaos::checks::judge;
use tenure_chaos::leadership::Said;
use tenure_chaos::proxy::Exchange;
use tenure_chaos::record::{FaultRecord, Incumbent, LifeRecord, Promise, Record, RoundRecord, Run};
use tenure_chaos::schedule::Kind;
use tenure_chaos::stall_watch::Stall;

const PROMISE: Promise = Promise {
    heartbeat_ms: 250,
    lease_ms: 1_000,
    request_timeout_ms: 300,
    election_interval_ms: 250,
    settle_ms: 500,
    drain_ms: 3_000,
    failover_bound_ms: 1_850,
};

fn said(life: usize, node: &str, name: &str, epoch: u64, boot_ms: u64, more: Value) -> Said {
    let mut event = json!({"event": format!("x.coordinator.{name}"), "epoch": epoch, "bootMs": boot_ms,
        "time": "1970-01-01T00:16:40.000Z"});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Said { life, node: node.to_owned(), event, heard_ms: None }
}

fn write(node: &str, at_ms: u64, replaces: Option<&str>, epoch: u64, version: &str) -> Exchange {
    serde_json::from_value(json!({
        "node": node, "what": "PUT n/seat.json", "invokeUs": at_ms * 1000, "returnUs": at_ms * 1000 + 900, "status": 200,
        "seat": {"kind": "write", "replaces": replaces, "outcome": {"won": version}, "content":
            {"epoch": epoch, "node": node, "incarnation": node, "state": "held", "nonce": version}},
    }))
    .unwrap()
}

fn life(life: usize, node: &str) -> LifeRecord {
    LifeRecord {
        life,
        node: node.to_owned(),
        started_ms: 0,
        skew_s: 0,
        pauses: Vec::new(),
        told_ms: None,
        ended_ms: None,
        code: None,
        killed: false,
    }
}

/// pod-a leads and is killed at 10,000; pod-b leads at 11,600.
fn good() -> Record {
    let fault = FaultRecord {
        kind: Kind::Crash,
        node: Some("pod-a".to_owned()),
        hit_leader: true,
        begun_ms: 10_000,
        ended_ms: 10_100,
    };
    let round = RoundRecord {
        number: 0,
        leader: Some(Incumbent { node: "pod-a".to_owned(), life: 0, epoch: 1 }),
        faults: vec![fault],
        healed_ms: 10_100,
        settled_ms: Some(12_000),
    };
    let deadline = |ms: u64| json!({ "deadlineBootMs": ms });
    Record {
        run: Run {
            seed: 1,
            engine: "test".to_owned(),
            nodes: 3,
            preset: "fast".to_owned(),
            promise: PROMISE,
            began_ms: 0,
            ended_ms: 20_000,
            wall_ahead_ms: 1_000_000,
            notices: Vec::new(),
            complaints: Vec::new(),
        },
        events: vec![
            said(0, "pod-a", "became_leader", 1, 9_010, deadline(10_000)),
            said(0, "pod-a", "lease_renewed", 1, 9_910, deadline(10_900)),
            said(1, "pod-b", "became_leader", 2, 11_610, deadline(12_600)),
        ],
        requests: vec![
            write("pod-a", 9_001, None, 1, "v1"),
            write("pod-a", 9_901, Some("v1"), 1, "v2"),
            write("pod-b", 11_601, Some("v2"), 2, "v3"),
        ],
        rounds: vec![round],
        lives: vec![life(0, "pod-a"), life(1, "pod-b")],
        stalls: Vec::new(),
        alarms: Vec::new(),
    }
}

/// Moves pod-b's leadership to a later moment.
fn led_at(ms: u64) -> Record {
    let mut record = good();
    record.events[2] = said(1, "pod-b", "became_leader", 2, ms, json!({ "deadlineBootMs": ms + 990 }));
    record.requests[2] = write("pod-b", ms - 9, Some("v2"), 2, "v3");
    record.rounds[0].settled_ms = Some(ms + 300);
    record
}

fn assert_violation(record: &Record, crime: &str) {
    let findings = judge(record);
    assert!(
        findings.violations.iter().any(|line| line.contains(crime)),
        "{crime:?} expected: {:?}",
        findings.violations
    );
}

#[test]
fn a_good_record_passes_with_its_figures() {
    let findings = judge(&good());
    assert_eq!((findings.violations, findings.excused, findings.notices), (vec![], vec![], vec![]));
    assert_eq!((findings.faults, findings.leaderships, findings.epochs), (1, 2, 2));
    assert_eq!((findings.crash_failover.count, findings.crash_failover.max_ms), (1, 1_610));
    assert_eq!(findings.margins.expired_min_ms, Some(710));
    assert!(findings.linearizability.holds && findings.linearizability.operations == 3);
    assert_eq!(findings.kinds["crash"].hit_leader, 1);
}

#[test]
fn safety_is_not_excused_by_a_machine_that_stood_still() {
    let with = |spoil: &dyn Fn(&mut Record)| {
        let mut record = good();
        record.stalls = vec![Stall { until_ms: 20_000, stalled_ms: 20_000 }];
        spoil(&mut record);
        record
    };
    assert_violation(&with(&|record| *record = led_at(10_800)), "at once");
    assert_violation(&with(&|record| record.events[2].event["epoch"] = 1.into()), "two holders");
    assert_violation(
        &with(&|record| record.requests[2] = write("pod-b", 11_601, Some("v1"), 2, "v3")),
        "linearizable",
    );
    assert_violation(
        &with(&|record| record.requests[2] = write("pod-b", 11_601, Some("v2"), 1, "v3")),
        "two holders",
    );
    assert_violation(&with(&|record| drop(record.requests.pop())), "without a claim");
    assert_violation(
        &with(&|record| record.events[1].event["deadlineBootMs"] = 10_903.into()),
        "longer than its renewal earned",
    );
    assert_violation(&with(&|record| record.lives[1].started_ms = 11_700), "outside its life");
    assert_violation(&with(&|record| record.rounds[0].settled_ms = None), "nobody led again");
    assert_violation(&with(&|record| record.run.complaints.push("it ended".to_owned())), "it ended");
    assert_violation(&with(&|record| record.alarms.push("panicked".to_owned())), "panicked");
}

#[test]
fn a_late_leader_is_a_violation_unless_the_machine_or_the_store_was_late() {
    // The bound is 1850, with two requests of 300 and two ranks of 62: 2574.
    assert_eq!(judge(&led_at(12_574)).violations, [""; 0]);
    assert_violation(&led_at(12_600), "26 ms later than promised");
    let mut stalled = led_at(12_600);
    stalled.stalls = vec![Stall { until_ms: 11_000, stalled_ms: 13 }];
    let findings = judge(&stalled);
    assert_eq!((findings.violations.len(), findings.excused.len()), (0, 1), "{findings:?}");
    let mut slow = led_at(12_600);
    slow.requests[2].return_us += 26_000;
    assert_eq!(judge(&slow).violations, [""; 0]);
}

#[test]
fn a_loss_told_late_is_a_violation_unless_the_process_was_paused() {
    let lost = |pauses: Vec<(u64, u64)>| {
        let mut record = good();
        let more = json!({"actedUntilBootMs": 10_800, "vacated": false});
        record.events.push(said(0, "pod-a", "lost_leadership", 1, 13_000, more));
        record.lives[0].pauses = pauses;
        record
    };
    assert_violation(&lost(vec![]), "said that it lost epoch 1 1100 ms later");
    assert_eq!(judge(&lost(vec![(10_000, 12_900)])).violations, [""; 0]);
}

#[test]
fn a_process_that_does_not_end_when_told_is_a_violation() {
    let mut record = good();
    record.lives[0].told_ms = Some(10_000);
    record.lives[0].ended_ms = Some(15_001);
    assert_violation(&record, "pod-a ended 1 ms later");
}

#[test]
fn the_named_scenario_has_its_figures() {
    let mut record = good();
    record.rounds[0].faults[0].kind = Kind::Leader503;
    record.rounds[0].faults[0].ended_ms = 12_800;
    let more = json!({"actedUntilBootMs": 10_700, "vacated": false});
    record.events.push(said(0, "pod-a", "lost_leadership", 1, 10_901, more));
    let findings = judge(&record);
    assert_eq!(findings.violations, [""; 0]);
    let named = findings.leader503;
    assert_eq!((named.count, named.replaced, named.failover.max_ms), (1, 1, 1_610));
    assert_eq!((named.margin_min_ms, named.before_deadline_min_ms), (Some(910), Some(200)));
}

#[test]
fn a_record_survives_the_disk() {
    let (dir, record) = (tempfile::tempdir().unwrap(), good());
    std::fs::create_dir(dir.path().join("logs")).unwrap();
    std::fs::write(dir.path().join("logs/000-pod-a.log"), "fine\nthread 'main' panicked at x\n").unwrap();
    std::fs::write(dir.path().join("run.json"), serde_json::to_vec(&record.run).unwrap()).unwrap();
    tenure_chaos::record::save(dir.path(), "events.jsonl", &record.events).unwrap();
    tenure_chaos::record::save(dir.path(), "requests.jsonl", &record.requests).unwrap();
    tenure_chaos::record::save(dir.path(), "rounds.jsonl", &record.rounds).unwrap();
    tenure_chaos::record::save(dir.path(), "lives.jsonl", &record.lives).unwrap();
    tenure_chaos::record::save(dir.path(), "stalls.jsonl", &record.stalls).unwrap();
    let findings = judge(&Record::load(dir.path()).unwrap());
    assert_eq!(findings.violations, ["000-pod-a.log: thread 'main' panicked at x"]);
    let findings = tenure_chaos::checks::Findings { violations: vec![], ..findings };
    assert_eq!(findings, judge(&record), "the same judgement from the disk");
}

#[test]
fn a_clock_that_is_behind_is_found_unless_the_process_slept() {
    let late = |pauses: Vec<(u64, u64)>| {
        let mut record = good();
        record.events[1].heard_ms = Some(9_910 + 1_500);
        record.lives[0].pauses = pauses;
        record
    };
    assert_violation(&late(Vec::new()), "clock of pod-a is behind");
    assert_violation(&late(vec![(9_000, 10_000)]), "clock of pod-a is behind");
    assert_eq!(judge(&late(vec![(9_950, 11_350)])).violations, [""; 0], "it slept over what it had to say");
}
