//! Jobs asked for through the store, and what the ledger says to those who look from outside.

use crate::common::{Answering, Fake, Rig, START, id, rules, schedule, sleep_s};
use std::time::Duration;
use tenure::Namespace;
use tenure::job::{JobList, JobState, Labels, RunnerOptions};
use tenure::store::{Faults, Lanes, Read, Store};
use tenure_plugins::schedules::{Change, JobFacts, Schedules};

fn namespace() -> Namespace {
    Namespace::new("test").expect("valid")
}

/// As a process without a node has them.
fn outside(rig: &Rig) -> (Schedules, Lanes) {
    let lanes = Lanes { lease: rig.store.clone(), bulk: rig.store.clone() };
    (Schedules::new(rig.store.clone(), &namespace()).rules(rules()), lanes)
}

async fn until_ran(schedules: &Schedules, name: &str) {
    for _ in 0..6000 {
        let asked = schedules.get(&id("asked")).await.expect("read").expect("there");
        if asked.ran.iter().any(|ran| ran == name) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} did not run within ten simulated minutes");
}

/// Wherever the leader ends between the request, the job and the note, there is one job.
#[tokio::test(start_paused = true)]
async fn a_job_asked_for_on_the_store_is_created_once_through_failovers() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pods = [rig.pod("pod-a").await, rig.pod("pod-b").await];
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    let (schedules, _) = outside(&rig);
    schedules.add(&schedule("asked", "manual: true"), START).await.expect("added");
    for round in 0..12_u64 {
        let leader = loop {
            match pods.iter().position(|pod| pod.view().epoch > 0) {
                Some(leader) => break leader,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let name = format!("n{round}");
        // Its notes on the store get lost, or their answers do.
        pods[leader].link.set(Faults { lost_answer: 0.2, lost_request: 0.1, ..Faults::default() });
        assert_eq!(schedules.ask(&id("asked"), &name, START).await, Ok(Change::Changed));
        assert_eq!(schedules.ask(&id("asked"), &name, START).await, Ok(Change::Unchanged));
        tokio::time::sleep(Duration::from_millis(round * 470)).await;
        pods[leader].link.cut(true);
        pods[1 - leader].leads().await;
        pods[leader].link.cut(false);
        pods[leader].link.set(Faults::default());
        until_ran(&schedules, &name).await;
        assert_eq!(schedules.ask(&id("asked"), &name, START).await, Ok(Change::Unchanged), "it ran");
    }
    sleep_s(60).await;
    assert_eq!(fake.done().len(), 12, "{:?}", fake.done());
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_always_busy_or_paused_does_what_is_asked_for() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    fake.set(Answering::Takes(Duration::from_secs(5)));
    let (schedules, _) = outside(&rig);
    schedules.add(&schedule("asked", "every: 1s"), START).await.expect("added");
    pod.until(|view| view.counts.plan.created > 2).await;
    schedules.ask(&id("asked"), "busy", START).await.expect("asked");
    until_ran(&schedules, "busy").await;
    schedules.set_enabled(&id("asked"), false, rig.now_ms()).await.expect("paused");
    sleep_s(30).await;
    let before = fake.done().len();
    schedules.ask(&id("asked"), "paused", START).await.expect("asked");
    until_ran(&schedules, "paused").await;
    sleep_s(30).await;
    assert_eq!(fake.done().len(), before + 1, "paused, but for what was asked for");
}

/// How often the ledger was written, all parts together; and how many parts have jobs.
async fn ledger_writes(rig: &Rig) -> (u64, u64) {
    let (mut writes, mut used) = (0, 0);
    for shard in 0..64 {
        let key = format!("plg_coordinator_global/test/jobs/ledger-{shard}.json");
        if let Read::Found(object) = rig.store.get(&key, None).await {
            let value: serde_json::Value = serde_json::from_slice(&object.body).expect("JSON");
            let nonce = value["nonce"].as_str().expect("a nonce");
            writes = writes.max(nonce.rsplit('-').next().expect("a number").parse().expect("a number"));
            used += u64::from(value["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()));
        }
    }
    (writes, used)
}

/// Why jobs wait can be seen from outside, and is not a write for each of them.
#[tokio::test(start_paused = true)]
async fn a_reason_that_lasts_stands_in_the_ledger() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let (schedules, lanes) = outside(&rig);
    for number in 0..20 {
        let name = format!("s{number}");
        let text = "manual: true, partition: eu, ttl: 1h, overlap: allow, maxConcurrent: 2";
        schedules.add(&schedule(&name, text), START).await.expect("added");
        for ask in ["one", "two"] {
            schedules.ask(&id(&name), ask, START).await.expect("asked");
        }
    }
    pod.until(|view| view.jobs.len() == 40 && view.jobs.iter().all(|job| !job.reason.is_empty())).await;
    let (before, used) = ledger_writes(&rig).await;
    sleep_s(60).await;
    let list = JobList::read(&lanes, &namespace()).await.expect("read");
    let reasons: Vec<&str> = list.jobs.iter().map(|job| &*job.reason).collect();
    assert_eq!(reasons, ["no active worker takes jobs"; 40]);
    let written = ledger_writes(&rig).await.0 - before;
    assert!(written <= used && used <= 20, "{written} writes: at most one for each of {used} parts in use");

    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    sleep_s(120).await;
    let job = JobList::find(&lanes, &namespace(), &id("s3.run.one")).await.expect("read").expect("there");
    assert_eq!((&*job.reason, job.state), ("no suitable worker is in partition eu", JobState::Queued));
    let labels = Labels { partition: Some(id("eu")), ..Labels::default() };
    let facts = RunnerOptions { labels, ..RunnerOptions::default() };
    fake.set(Answering::Takes(Duration::from_secs(8)));
    let _other = rig.agent("w2", &facts, &fake).await;
    pod.until(|view| view.jobs.iter().any(|job| job.state == JobState::Running)).await;
    let mut list = JobList::read(&lanes, &namespace()).await.expect("read");
    list.ask_workers(&lanes, &namespace(), 8).await.expect("read");
    assert!(list.jobs.iter().any(|job| job.state == JobState::Running), "its inbox says so");
    pod.until(|view| view.jobs.is_empty()).await;
    let job = JobList::find(&lanes, &namespace(), &id("s3.run.one")).await.expect("read").expect("there");
    assert_eq!(job.state, JobState::Succeeded);
    assert_eq!(JobFacts::of(&job).report.expect("a report").checks.len(), 1);
    assert_eq!(JobList::find(&lanes, &namespace(), &id("nobody")).await, Ok(None));
}
