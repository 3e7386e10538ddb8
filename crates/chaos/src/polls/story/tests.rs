//! A story without a fault, and what the judge says when one thing in it changes.

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
fn sound() -> (Story, Vec<Said>) {
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
    let story = Story {
        engine: "test".to_owned(),
        schedules: 8,
        began_ms: 1000,
        ended_ms: 62_000,
        wall_ahead_ms: WALL,
        bound_ms: 3000,
        away_ms: 12_000,
        kills: vec![Kill { node: "pod-a".to_owned(), epoch: 1, killed_ms: 20_500, back_ms: 32_500 }],
        hits,
        tally: Tally::default(),
        jobs: json!({"jobs": [{"id": format!("skip.1-{}", WALL + 61_000), "state": "succeeded"}]}),
        complaints: Vec::new(),
        stalls: Vec::new(),
    };
    let subject = |node: &str| json!({"subject": node});
    let history = vec![
        said("node_up", 1500, 1, subject("pod-a")),
        said("health_changed", 1500, 1, json!({"from": "unknown", "to": "healthy"})),
        said("became_leader", 22_500, 2, json!({})),
        said("node_down", 27_000, 2, subject("pod-a")),
        said("health_changed", 27_000, 2, json!({"from": "healthy", "to": "degraded"})),
        said("node_up", 33_500, 2, subject("pod-a")),
    ];
    (story, history)
}

fn wrong(change: impl FnOnce(&mut Story, &mut Vec<Said>)) -> Vec<String> {
    let (mut story, mut history) = sound();
    change(&mut story, &mut history);
    story.judge(&history).violations
}

#[test]
fn a_sound_story_has_its_figures_and_no_violations() {
    let (story, history) = sound();
    let verdict = story.judge(&history);
    assert_eq!(verdict.violations, Vec::<String>::new());
    let missed: Vec<(&str, u64)> =
        verdict.missed.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(missed, [("catch", 0), ("once", 2), ("patient", 0), ("skip", 4)]);
    assert_eq!((verdict.failover.max_ms, verdict.work_gap.max_ms), (2000, 4100));
    assert_eq!(verdict.due_times, 52 * 8);
    assert!(verdict.text().contains("no violations"));
}

fn drop_hit(story: &mut Story, schedule: &str, second: u64) {
    let job = format!("{schedule}-{}", WALL + second * 1000);
    let before = story.hits.len();
    story.hits.retain(|hit| hit.job != job);
    assert_eq!(story.hits.len() + 1, before, "{job} was there");
}

fn add_hit(story: &mut Story, schedule: &str, second: u64) {
    let job = format!("{schedule}-{}", WALL + second * 1000);
    story.hits.push(Hit { job, attempt: 1, epoch: 2, at_ms: 25_000 });
}

#[test]
fn each_thing_that_is_wrong_is_found() {
    let found = |what: &str, violations: Vec<String>| {
        assert!(violations.iter().any(|violation| violation.contains(what)), "{what}: {violations:?}");
    };
    found("was done twice", wrong(|story, _| add_hit(story, "once.2", 40)));
    found("though it is patient", wrong(|story, _| drop_hit(story, "patient.0", 23)));
    found("though it is patient", wrong(|story, _| drop_hit(story, "patient.4", 45)));
    found("skip.1 lost", wrong(|story, _| add_hit(story, "skip.1", 22)));
    found("once.2 lost", wrong(|story, _| drop_hit(story, "once.2", 22)));
    found("catch.3 lost", wrong(|story, _| drop_hit(story, "catch.3", 22)));
    found("catch.3 lost", wrong(|story, _| drop_hit(story, "catch.3", 40)));
    found("without a leader", wrong(|story, _| story.bound_ms = 1900));
    found("nobody led", wrong(|_, history| drop(history.remove(2))));
    found("without work", wrong(|story, _| story.hits.retain(|hit| hit.epoch == 1 || hit.at_ms > 35_000)));
    found("told 0 and 1 times", wrong(|_, history| drop(history.remove(3))));
    found("told 1 and 0 times", wrong(|_, history| drop(history.remove(5))));
    found("was told twice", wrong(|_, history| history.push(history[5].clone())));
    found(
        "down and was not",
        wrong(|_, history| {
            history.push(said("node_down", 40_000, 2, json!({"subject": "pod-b"})));
        }),
    );
    found(
        "not from what it was",
        wrong(|_, history| {
            history.push(said("health_changed", 41_000, 2, json!({"from": "healthy", "to": "critical"})));
        }),
    );
    found("stands as failed", wrong(|story, _| story.jobs["jobs"][0]["state"] = json!("failed")));
    found(
        "was never done",
        wrong(|story, _| {
            drop_hit(story, "skip.1", 61);
        }),
    );
    found("shows no jobs", wrong(|story, _| story.jobs = json!({"jobs": []})));
    found("by itself", wrong(|story, _| story.complaints.push("pod-a ended by itself".to_owned())));
}
