//! A history without a fault, and what the judge says when one thing in it changes.

use super::*;
use serde_json::json;

const WALL: u64 = 1_000_000_000;

fn said(name: &str, at_ms: u64, epoch: u64, more: Value) -> Said {
    let mut event =
        json!({"event": format!("serviceradar.coordinator.{name}"), "epoch": epoch, "bootMs": at_ms});
    for (key, value) in more.as_object().into_iter().flatten() {
        event[key] = value.clone();
    }
    Said { life: 0, node: "pod-x".to_owned(), event, heard_ms: Some(at_ms) }
}

/// Eight schedules for a minute. The leader dies at 20.5 s; the next plans at 24.5 s, when everything up to 22 s has been missed.
fn sound() -> (History, Vec<Said>) {
    let mut hits = Vec::new();
    for number in 0..8 {
        let policy = Policy::of(number);
        for second in 0..62_u64 {
            let lost = match policy {
                Policy::Patient => false,
                Policy::Skip => (21..=22).contains(&second),
                Policy::RunOnce => second == 21,
                Policy::CatchUp => false,
            };
            let late_ms = if (21..=24).contains(&second) { 24_600 - second * 1000 } else { 100 };
            let epoch = if second <= 20 { 1 } else { 2 };
            if !lost {
                let job = format!("{}-{}", policy.schedule(number), WALL + second * 1000);
                hits.push(Hit { job, attempt: 1, epoch, at_ms: second * 1000 + late_ms });
            }
        }
    }
    let history = History {
        engine: "test".to_owned(),
        schedules: 8,
        began_ms: 1000,
        ended_ms: 62_000,
        wall_ahead_ms: WALL,
        bound_ms: 3000,
        away_ms: 12_000,
        kills: vec![Kill { node: "pod-a".to_owned(), epoch: 1, killed_ms: 20_500, back_ms: 32_500 }],
        agent_kills: vec![AgentKill { agent: "agent-1".to_owned(), killed_ms: 10_500, back_ms: 11_500 }],
        hits,
        tally: Tally::default(),
        jobs: json!({"jobs": [{"id": format!("skip.1-{}", WALL + 61_000), "state": "succeeded"}]}),
        queues: Queues::default(),
        complaints: Vec::new(),
        stalls: Vec::new(),
    };
    let subject = |node: &str| json!({"subject": node});
    let events = vec![
        said("node_up", 1500, 1, subject("pod-a")),
        said("health_changed", 1500, 1, json!({"from": "unknown", "to": "healthy"})),
        said("became_leader", 22_500, 2, json!({})),
        said("node_down", 27_000, 2, subject("pod-a")),
        said("health_changed", 27_000, 2, json!({"from": "healthy", "to": "degraded"})),
        said("node_up", 33_500, 2, subject("pod-a")),
    ];
    (history, events)
}

fn wrong(change: impl FnOnce(&mut History, &mut Vec<Said>)) -> Vec<String> {
    let (mut history, mut events) = sound();
    change(&mut history, &mut events);
    history.judge(&events).violations
}

#[test]
fn a_sound_story_has_its_figures_and_no_violations() {
    let (history, events) = sound();
    let findings = history.judge(&events);
    assert_eq!(findings.violations, Vec::<String>::new());
    let missed: Vec<(&str, u64)> =
        findings.missed.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(missed, [("catch", 0), ("once", 2), ("patient", 0), ("skip", 4)]);
    assert_eq!((findings.failover.max_ms, findings.work_gap.max_ms), (2000, 4100));
    assert_eq!(findings.due_times, 52 * 8);
    assert!(findings.text().contains("no violations"));
}

/// Two leaders in a row: one schedule loses without a break what the other loses in two parts.
#[test]
fn what_two_leaders_missed_in_a_row_is_judged_apart() {
    let (mut history, events) = sound();
    for due in 34..38 {
        drop_hit(&mut history, "skip.1", due);
    }
    for due in [34, 35, 37] {
        drop_hit(&mut history, "skip.5", due);
    }
    drop_hit(&mut history, "once.2", 34);
    assert_eq!(history.judge(&events).violations, Vec::<String>::new());
    drop_hit(&mut history, "once.2", 36);
    assert_eq!(history.judge(&events).violations, Vec::<String>::new());
    drop_hit(&mut history, "once.6", 35);
    let violations = history.judge(&events).violations;
    assert_eq!(violations, ["once.6 lost [1000035] s, which others did not miss"]);
}

fn drop_hit(history: &mut History, schedule: &str, second: u64) {
    let job = format!("{schedule}-{}", WALL + second * 1000);
    let before = history.hits.len();
    history.hits.retain(|hit| hit.job != job);
    assert_eq!(history.hits.len() + 1, before, "{job} was there");
}

fn add_hit(history: &mut History, schedule: &str, second: u64) {
    let job = format!("{schedule}-{}", WALL + second * 1000);
    history.hits.push(Hit { job, attempt: 1, epoch: 2, at_ms: 25_000 });
}

#[test]
fn each_thing_that_is_wrong_is_found() {
    let found = |what: &str, violations: Vec<String>| {
        assert!(violations.iter().any(|violation| violation.contains(what)), "{what}: {violations:?}");
    };
    found("was done twice", wrong(|history, _| add_hit(history, "once.2", 40)));
    found("though it is patient", wrong(|history, _| drop_hit(history, "patient.0", 23)));
    found("though it is patient", wrong(|history, _| drop_hit(history, "patient.4", 45)));
    found("skip.1 lost", wrong(|history, _| add_hit(history, "skip.1", 22)));
    found("once.2 lost", wrong(|history, _| drop_hit(history, "once.2", 22)));
    found("catch.3 lost", wrong(|history, _| drop_hit(history, "catch.3", 22)));
    found("catch.3 lost", wrong(|history, _| drop_hit(history, "catch.3", 40)));
    found("without a leader", wrong(|history, _| history.bound_ms = 1900));
    found("nobody led", wrong(|_, events| drop(events.remove(2))));
    found(
        "without work",
        wrong(|history, _| history.hits.retain(|hit| hit.epoch == 1 || hit.at_ms > 35_000)),
    );
    found("told 0 and 1 times", wrong(|_, events| drop(events.remove(3))));
    found("told 1 and 0 times", wrong(|_, events| drop(events.remove(5))));
    found("was told twice", wrong(|_, events| events.push(events[5].clone())));
    found(
        "down and was not",
        wrong(|_, events| {
            events.push(said("node_down", 40_000, 2, json!({"subject": "pod-b"})));
        }),
    );
    found(
        "not from what it was",
        wrong(|_, events| {
            events.push(said("health_changed", 41_000, 2, json!({"from": "healthy", "to": "critical"})));
        }),
    );
    found("stands as failed", wrong(|history, _| history.jobs["jobs"][0]["state"] = json!("failed")));
    found(
        "was never done",
        wrong(|history, _| {
            drop_hit(history, "skip.1", 61);
        }),
    );
    found("shows no jobs", wrong(|history, _| history.jobs = json!({"jobs": []})));
    found("by itself", wrong(|history, _| history.complaints.push("pod-a ended by itself".to_owned())));
}
