//! Agents that lie, objects that were tampered with, and a leader that goes in order while a job runs: counted or told, and nothing
//! is lost.

use crate::common::{Answering, Fake, Rig, START, created, id, schedule, sleep_s};
use std::collections::BTreeSet;
use std::time::Duration;
use tenure::job::{JobState, Labels, RunnerOptions, Submitted};
use tenure::store::{Condition, Read, Store};
use tenure_plugins::schedules::ScheduleEvent;

/// An agent that says it can do what it cannot: the job fails with its words, the check is told as failing, and the next job, with
/// an agent that can, is well.
#[tokio::test(start_paused = true)]
async fn an_agent_that_lies_about_a_capability_fails_its_jobs_and_loses_none() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let mut pod = rig.pod("pod-a").await;
    let labels = Labels { capabilities: BTreeSet::from([id("icmp")]), ..Labels::default() };
    let able = RunnerOptions { labels, ..RunnerOptions::default() };
    let liar = rig.liar("w1", &able).await;
    let text = "manual: true, capabilities: [icmp], attempts: 2, failAfter: 1";
    pod.runner.schedules().put(&schedule("asked", text), START).await.expect("written");
    pod.until(|view| view.schedules.len() == 1 && view.workers == 1).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Created));
    pod.until(|view| view.jobs.is_empty() && view.counts.jobs.finished == 1).await;
    let told = pod.told();
    let [ScheduleEvent::CheckFailing(failing)] = told.as_slice() else { panic!("{told:?}") };
    assert!(failing.detail.contains("not a known kind of check"), "{failing:?}");
    liar.runner.drain().await;
    pod.until(|view| view.workers == 0).await;
    let _honest = rig.agent("w2", &able, &fake).await;
    pod.until(|view| view.workers == 1).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "two").await, Ok(Submitted::Created));
    pod.until(|view| view.jobs.is_empty() && view.counts.jobs.finished == 2).await;
    assert_eq!(fake.done().len(), 1);
    let told = pod.told();
    assert!(matches!(told.as_slice(), [ScheduleEvent::CheckRecovered(_)]), "{told:?}");
}

/// Somebody writes nonsense over an inbox with a job in it: it is left alone and counted, and another agent does the job.
#[tokio::test(start_paused = true)]
async fn a_job_whose_inbox_was_tampered_with_is_done_by_another() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let _w1 = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    fake.set(Answering::HangsOn("w1".to_owned()));
    let mut asked = schedule("asked", "manual: true, timeout: 5m, attempts: 3");
    asked.checks[0].timeout_ms = 200_000;
    pod.runner.schedules().put(&asked, START).await.expect("written");
    pod.until(|view| view.schedules.len() == 1 && view.workers == 1).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Created));
    pod.until(|view| view.jobs.iter().any(|job| job.state == JobState::Running)).await;
    let _w2 = rig.agent("w2", &RunnerOptions::default(), &fake).await;
    let key = "plg_coordinator_global/test/jobs/inbox/w1.json";
    let _ = rig.store.put(key, "nonsense".into(), Condition::Any).await;
    let view = pod.until(|view| view.jobs.is_empty() && view.counts.jobs.finished == 1).await;
    assert!(view.counts.jobs.rejected >= 1, "{:?}", view.counts);
    assert_eq!(fake.done().last().map(|(agent, _)| agent.as_str()), Some("w2"));
    let Read::Found(object) = rig.store.get(key, None).await else { panic!("it is gone") };
    assert_eq!(&object.body[..], b"nonsense", "it is left alone");
}

/// A leader is told to stop while a job runs: its processes end, then it leads no more; the successor's run within five seconds, and
/// the job is taken over, not done again.
#[tokio::test(start_paused = true)]
async fn fo2_a_job_in_flight_is_adopted_after_a_graceful_stop() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let mut pods = vec![rig.pod("pod-a").await, rig.pod("pod-b").await];
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    fake.set(Answering::Takes(Duration::from_secs(30)));
    let mut slow = schedule("web", "every: 10s, timeout: 90s, attempts: 1");
    slow.checks[0].timeout_ms = 80_000;
    pods[0].runner.schedules().put(&slow, START).await.expect("written");
    let leader = loop {
        match pods.iter().position(|pod| pod.view().jobs.iter().any(|job| job.state == JobState::Running)) {
            Some(leader) => break leader,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let gone = pods.remove(leader);
    let (job, mut events) = (gone.view().jobs[0].id.clone(), gone.node.events());
    let began = rig.now_ms();
    let stopping = tokio::spawn(gone.node.shutdown());
    let view = pods[0].until(|view| view.epoch > 0 && view.jobs.len() == 1).await;
    let took_ms = rig.now_ms() - began;
    assert!(took_ms <= 5000, "{took_ms} ms");
    assert_eq!(view.jobs[0].id, job, "the same job");
    stopping.await.expect("no panic");
    let said: Vec<String> = std::iter::from_fn(|| events.try_recv().ok())
        .map(|event| event.name().rsplit('.').next().unwrap_or_default().to_owned())
        .filter(|name| ["process_exited", "lost_leadership"].contains(&name.as_str()))
        .collect();
    assert_eq!(said, ["process_exited", "lost_leadership"]);
    pods[0].until(|view| view.counts.jobs.finished >= 1).await;
    assert_eq!(fake.done().len(), 1, "it ran once");
    sleep_s(60).await;
    assert!(created(&rig, "web").await.values().all(|times| *times == 1));
}
