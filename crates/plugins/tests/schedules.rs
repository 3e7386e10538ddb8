//! Schedules on simulated time: no due time twice, whatever happens to leaders, workers, clocks and answers of the store.

use crate::common::{Answering, Fake, Rig, START, created, id, schedule, sleep_s};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenure::job::{JobState, Labels, RunnerEnd, RunnerOptions, Submitted};
use tenure::store::{Condition, Faults, Read, Store};
use tenure_plugins::schedules::{Schedule, ScheduleError, ScheduleEvent, ScheduleRunner};

/// Of what is about checks and schedules.
fn names(events: &[ScheduleEvent]) -> Vec<&'static str> {
    let about = events.iter().filter(|event| !matches!(event, ScheduleEvent::Job(_)));
    about.map(ScheduleEvent::name).collect()
}

async fn put(runner: &ScheduleRunner, schedule: &Schedule) {
    runner.schedules().put(schedule, START).await.expect("written");
}

#[tokio::test(start_paused = true)]
async fn every_due_time_is_done_once_by_an_agent() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    put(&pod.runner, &schedule("web", "every: 10s")).await;
    pod.leads().await;
    sleep_s(120).await;
    let view = pod.view();
    let due = created(&rig, "web").await;
    assert!(due.len() >= 10, "{due:?}");
    assert!(due.iter().all(|(due, times)| due % 10_000 == 0 && *times == 1), "{due:?}");
    let (first, last) = (due.keys().next().expect("one"), due.keys().last().expect("one"));
    assert_eq!((last - first) / 10_000 + 1, due.len() as u64, "none was left out");
    let done = fake.done();
    assert!(done.len().abs_diff(due.len()) <= 1, "{done:?}");
    let health = &view.schedules[&id("web")].checks[&id("a")];
    assert_eq!((health.failing, health.failures), (false, 0));
    assert!(health.successes as usize >= due.len() - 1, "{health:?}");
    // It is created when it is due, not up to a look later.
    let on_time = view.counts.plan.due_lag_ms;
    assert!(on_time < 500, "{on_time} ms late");
    assert_eq!((view.counts.plan.missed, view.counts.plan.blocked), (0, 0));
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn a_failover_creates_no_due_time_twice_and_follows_the_policy() {
    for (policy, after_gap) in [("skip", 0), ("run_once", 1), ("catch_up(2)", 2)] {
        let (rig, fake) = (Rig::new(), Fake::new());
        let mut pods = vec![rig.pod("pod-a").await, rig.pod("pod-b").await];
        let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
        let text = format!(
            "every: 1s, misfire: {policy}, misfireThreshold: 500ms, overlap: allow, maxConcurrent: 50"
        );
        put(&pods[0].runner, &schedule("web", &text)).await;
        let (mut gaps, mut taken_over) = (Vec::new(), Vec::new());
        for round in 0..3 {
            let leader = loop {
                match pods.iter().position(|pod| pod.view().epoch > 0) {
                    Some(leader) => break leader,
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            pods[leader].until(|view| view.counts.plan.created > 5).await;
            sleep_s(20 + round).await;
            taken_over.push(rig.now_ms());
            pods[leader].link.cut(true);
            let other = 1 - leader;
            pods[other].until(|view| view.counts.plan.created > 5).await;
            pods[leader].link.cut(false);
        }
        sleep_s(10).await;
        let due = created(&rig, "web").await;
        assert!(due.values().all(|times| *times == 1), "{policy}: {due:?}");
        let due: Vec<u64> = due.into_keys().collect();
        // Every second but for the gaps; and of each gap the newest by the policy.
        for cut in &taken_over {
            let near: Vec<u64> =
                due.iter().copied().filter(|due| (cut - 3_000..cut + 30_000).contains(due)).collect();
            let gap = near.windows(2).find(|pair| pair[1] - pair[0] > 2_000).expect("a gap");
            gaps.push((gap[1] - gap[0]) / 1000);
            let run: Vec<u64> = near.iter().copied().filter(|due| *due >= gap[1]).collect();
            assert!(
                run.windows(2).all(|pair| pair[1] - pair[0] == 1000),
                "{policy}: one stretch after the gap: {run:?}"
            );
        }
        assert_eq!(gaps.len(), 3);
        // The oldest that was created is as late as the policy reaches back, beyond the threshold of half a second.
        let lag = pods.iter().map(|pod| pod.view().counts.plan.due_lag_max_ms).max().expect("two");
        let reach: u64 = after_gap * 1000 + 500;
        assert!((reach.saturating_sub(1000)..=reach).contains(&lag), "{policy}: {lag} ms");
        pods.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_open_at_a_failover_is_adopted_and_keeps_others_away() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pods = [rig.pod("pod-a").await, rig.pod("pod-b").await];
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    fake.set(Answering::Takes(Duration::from_secs(60)));
    put(&pods[0].runner, &schedule("web", "every: 5s, timeout: 90s, attempts: 1")).await;
    // Checks have ten seconds unless they say otherwise.
    let mut slow = schedule("web", "every: 5s, timeout: 90s, attempts: 1");
    slow.checks[0].timeout_ms = 80_000;
    put(&pods[0].runner, &slow).await;
    let leader = loop {
        match pods.iter().position(|pod| pod.view().jobs.iter().any(|job| job.state == JobState::Running)) {
            Some(leader) => break leader,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let (began, job) = (rig.now_ms(), pods[leader].view().jobs[0].id.clone());
    // The next leader knows the schedules long before it knows the jobs.
    let delay_max = Duration::from_millis(900);
    pods[1 - leader].bulk.set(Faults { delay: 1.0, delay_max, ..Faults::default() });
    pods[leader].link.cut(true);
    let view = pods[1 - leader].until(|view| view.jobs.len() == 1).await;
    assert_eq!(view.jobs[0].id, job, "the same job");
    fake.set(Answering::Well);
    pods[1 - leader].until(|view| view.counts.plan.created > 0).await;
    assert!(rig.now_ms() >= began + 55_000, "nothing is created beside it");
    assert_eq!(fake.done().len(), 1, "and it ran once");
    assert!(created(&rig, "web").await.values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn nobody_fits_and_the_job_says_why() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    put(
        &pod.runner,
        &schedule("web", "every: 1h, misfire: skip, capabilities: [icmp], partition: eu, ttl: 1h"),
    )
    .await;
    put(&pod.runner, &schedule("asked", "manual: true, capabilities: [icmp], partition: eu, ttl: 1h")).await;
    pod.until(|view| view.schedules.len() == 2).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Created));
    let reason = |wanted: &'static str| {
        move |view: &tenure_plugins::schedules::RunnerView| view.jobs.iter().any(|job| &*job.reason == wanted)
    };
    let having = |labels: Labels| RunnerOptions { labels, ..RunnerOptions::default() };
    pod.until(reason("no active worker takes jobs")).await;
    let elsewhere = Labels { partition: Some(id("us")), ..Labels::default() };
    let _w1 = rig.agent("w1", &having(elsewhere), &fake).await;
    pod.until(reason("no suitable worker is in partition eu")).await;
    let here = Labels { partition: Some(id("eu")), ..Labels::default() };
    let _w2 = rig.agent("w2", &having(here.clone()), &fake).await;
    pod.until(reason("no suitable worker has capability icmp")).await;
    assert_eq!(fake.done(), []);
    let able = Labels { capabilities: BTreeSet::from([id("icmp")]), ..here };
    let _w3 = rig.agent("w3", &having(able), &fake).await;
    pod.until(|view| view.jobs.is_empty()).await;
    let done: Vec<String> = fake.done().into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(done, ["w3"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_drains_ends_its_job_and_gets_no_other() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let w1 = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    fake.set(Answering::Takes(Duration::from_secs(20)));
    let mut asked = schedule("asked", "manual: true, overlap: allow, maxConcurrent: 4, timeout: 5m, ttl: 1h");
    asked.checks[0].timeout_ms = 60_000;
    put(&pod.runner, &asked).await;
    pod.until(|view| view.schedules.len() == 1 && view.workers == 1).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Created));
    pod.until(|view| view.jobs.iter().any(|job| job.state == JobState::Running)).await;
    let drained = tokio::spawn(w1.runner.drain());
    // Long before it leaves.
    pod.until(|view| view.workers == 0).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "two").await, Ok(Submitted::Created));
    let view = pod
        .until(|view| {
            view.jobs.iter().any(|job| &*job.reason == "every worker that could run it is draining")
        })
        .await;
    assert!(view.jobs.iter().any(|job| job.state == JobState::Running), "{:?}", view.jobs);
    assert_eq!(drained.await.expect("no panic"), RunnerEnd::Drained);
    assert_eq!(fake.done().len(), 1, "the first was ended, the second not begun");
    let _w2 = rig.agent("w2", &RunnerOptions::default(), &fake).await;
    pod.until(|view| view.jobs.is_empty()).await;
    let done: Vec<String> = fake.done().into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(done, ["w1", "w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_lost_worker_is_given_to_another_within_its_budget() {
    for (attempts, expected) in [(2, vec!["w1", "w2"]), (1, vec!["w1"])] {
        let (rig, fake) = (Rig::new(), Fake::new());
        let pod = rig.pod("pod-a").await;
        let w1 = rig.agent("w1", &RunnerOptions::default(), &fake).await;
        fake.set(Answering::HangsOn("w1".to_owned()));
        let mut asked = schedule("asked", &format!("manual: true, timeout: 10m, attempts: {attempts}"));
        asked.checks[0].timeout_ms = 540_000;
        put(&pod.runner, &asked).await;
        pod.until(|view| view.schedules.len() == 1 && view.workers == 1).await;
        assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Created));
        pod.until(|view| view.jobs.iter().any(|job| job.state == JobState::Running)).await;
        let _w2 = rig.agent("w2", &RunnerOptions::default(), &fake).await;
        w1.link.cut(true);
        let view = pod.until(|view| view.jobs.is_empty()).await;
        let done: Vec<String> = fake.done().into_iter().map(|(agent, _)| agent).collect();
        assert_eq!(done, expected);
        assert_eq!(
            view.counts.unreported,
            u64::from(attempts == 1),
            "a lost job says nothing about its check"
        );
        let health = view.schedules[&id("asked")].checks.get(&id("a")).map(|health| health.failures);
        assert_eq!(health, (attempts == 2).then_some(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_check_is_told_once_through_a_failover() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let mut pods = [rig.pod("pod-a").await, rig.pod("pod-b").await];
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    put(&pods[0].runner, &schedule("web", "every: 5s, attempts: 1, failAfter: 3, recoverAfter: 2")).await;
    let leader = loop {
        match pods.iter().position(|pod| pod.view().counts.plan.created > 3) {
            Some(leader) => break leader,
            None => sleep_s(1).await,
        }
    };
    let other = 1 - leader;
    assert_eq!(names(&pods[leader].told()), [""; 0]);
    fake.set(Answering::Fails);
    sleep_s(40).await;
    let told = pods[leader].told();
    assert_eq!(names(&told), ["check_failing"]);
    assert_eq!(pods[leader].node.metrics().plugin_figures["tenure_poll_checks_failing"], 1.0);
    let ScheduleEvent::CheckFailing(told) = &told[0] else { panic!("{told:?}") };
    assert_eq!(
        (told.schedule.as_str(), told.check.as_str(), told.in_a_row, told.detail.as_str()),
        ("web", "a", 3, "told to")
    );
    // The next leader knows that it was told.
    pods[leader].link.cut(true);
    pods[other].until(|view| view.counts.plan.created > 5).await;
    assert_eq!(names(&pods[other].told()), [""; 0]);
    assert!(pods[other].view().schedules[&id("web")].checks[&id("a")].failing);
    fake.set(Answering::Well);
    sleep_s(40).await;
    assert_eq!(names(&pods[other].told()), ["check_recovered"]);
    assert_eq!(pods[other].node.metrics().plugin_figures["tenure_poll_checks_failing"], 0.0);
    // And the one after that knows that it is over.
    pods[leader].link.cut(false);
    sleep_s(20).await;
    pods[other].link.cut(true);
    pods[leader].until(|view| view.epoch > 0 && view.counts.plan.created > 5).await;
    assert_eq!(names(&pods[leader].told()), [""; 0]);
    assert!(!pods[leader].view().schedules[&id("web")].checks[&id("a")].failing);
}

#[tokio::test(start_paused = true)]
async fn schedules_are_changed_refused_and_removed_while_it_runs() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let mut pod = rig.pod("pod-a").await;
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    put(&pod.runner, &schedule("web", "every: 5s")).await;
    pod.until(|view| view.counts.plan.created > 2).await;
    put(&pod.runner, &schedule("web", "every: 20s")).await;
    sleep_s(6).await;
    let before = pod.view().counts.plan.created;
    sleep_s(100).await;
    assert_eq!(pod.view().counts.plan.created - before, 5);
    // What is wrong is not acted on, and says why; what is right goes on beside it.
    put(&pod.runner, &schedule("other", "every: 20s")).await;
    let key = "plg_coordinator_global/test/schedules/web.json";
    let wrong = br#"{"v": 1, "id": "web", "every": 0, "checks": [{"name": "a", "kind": "icmp"}]}"#;
    rig.store.put(key, wrong.to_vec().into(), Condition::Any).await;
    let view = pod.until(|view| view.refused.contains_key(&id("web"))).await;
    let why = &view.refused[&id("web")];
    assert!(
        why.contains("web.every = 0: must be a whole number from 1000") && why.contains("\"icmp\""),
        "{why}"
    );
    assert_eq!(names(&pod.told()), ["schedule_refused"]);
    let created_web = created(&rig, "web").await.len();
    sleep_s(100).await;
    assert_eq!(created(&rig, "web").await.len(), created_web);
    assert!(created(&rig, "other").await.len() >= 4);
    assert_eq!(names(&pod.told()), [""; 0], "told once");
    pod.runner.schedules().remove(&id("web")).await.expect("removed");
    pod.runner.schedules().remove(&id("other")).await.expect("removed");
    let view = pod.until(|view| view.schedules.is_empty() && view.refused.is_empty()).await;
    assert_eq!(view.trouble, None);
}

#[tokio::test(start_paused = true)]
async fn asking_by_hand_obeys_the_limit_and_a_name_is_taken_once() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Err(ScheduleError::NotLeading));
    put(&pod.runner, &schedule("asked", "manual: true, ttl: 1h")).await;
    pod.until(|view| view.schedules.len() == 1).await;
    assert_eq!(
        pod.runner.run_now(&id("nobody"), "one").await,
        Err(ScheduleError::Unknown("nobody".to_owned()))
    );
    assert_eq!(pod.runner.run_now(&id("asked"), "a-1").await, Err(ScheduleError::Name("a-1".to_owned())));
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Created));
    assert_eq!(pod.runner.run_now(&id("asked"), "one").await, Ok(Submitted::Exists));
    assert_eq!(pod.runner.run_now(&id("asked"), "two").await, Err(ScheduleError::Full("asked".to_owned())));
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    pod.until(|view| view.jobs.is_empty()).await;
    assert_eq!(pod.runner.run_now(&id("asked"), "two").await, Ok(Submitted::Created));
    pod.until(|view| view.jobs.is_empty() && view.counts.plan.created == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_a_wrong_clock_creates_nothing_twice() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    put(
        &pod.runner,
        &schedule("web", "every: 5s, misfire: catch_up(100), overlap: allow, maxConcurrent: 100"),
    )
    .await;
    pod.until(|view| view.counts.plan.created > 5).await;
    for jump_s in [-600, 0, 3600, 0, -60] {
        pod.skew.store(jump_s * 1000, Ordering::SeqCst);
        sleep_s(30).await;
    }
    let due = created(&rig, "web").await;
    assert!(due.values().all(|times| *times == 1), "{due:?}");
    let ahead = due.keys().filter(|due| **due > START + 1_000_000).count();
    assert!((100..=110).contains(&ahead), "forward, the policy decides: {ahead}");
    let view = pod.view().schedules[&id("web")].series;
    assert!(view.ahead_ms > 3_000_000, "and it shows why it is silent now: {view:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_get_lost_create_nothing_twice_and_lose_nothing() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    put(
        &pod.runner,
        &schedule("web", "every: 10s, failAfter: 2, attempts: 1, overlap: allow, maxConcurrent: 100"),
    )
    .await;
    pod.until(|view| view.counts.plan.created > 2).await;
    let mut events = pod.runner.events();
    // The seat is on the same link: now and then leadership is lost and won again, too.
    let faults = Faults {
        delay: 0.3,
        lost_request: 0.03,
        lost_answer: 0.08,
        late_landing: 0.03,
        late_max: Duration::from_millis(400),
        throttled: 0.03,
        timeout: Duration::from_millis(500),
        ..Faults::default()
    };
    pod.link.set(faults);
    agent.link.set(faults);
    fake.set(Answering::Fails);
    sleep_s(120).await;
    fake.set(Answering::Well);
    sleep_s(120).await;
    pod.link.set(Faults::default());
    agent.link.set(Faults::default());
    sleep_s(60).await;
    let due = created(&rig, "web").await;
    assert!(due.values().all(|times| *times == 1), "{due:?}");
    let told: Vec<ScheduleEvent> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert_eq!(names(&told), ["check_failing", "check_recovered"], "each once");
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_about_the_checks_is_kept_or_left_alone() {
    let key = "plg_coordinator_global/test/results/polls.json";
    let known = r#"{"v":1,"epoch":0,"nonce":"x","health":{},"later":{"a":1}}"#;
    let newer = r#"{"v":2,"health":"something else"}"#;
    // One that cannot be would tell every leader that a newer one is there.
    let forged = r#"{"v":1,"epoch":9007199254740992,"nonce":"x","health":{}}"#;
    for (stands, kept) in [(known, false), (newer, true), (forged, true), ("nonsense", true)] {
        let (rig, fake) = (Rig::new(), Fake::new());
        rig.store.put(key, stands.as_bytes().to_vec().into(), Condition::Absent).await;
        let mut pod = rig.pod("pod-a").await;
        let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
        fake.set(Answering::Fails);
        put(&pod.runner, &schedule("web", "every: 5s, attempts: 1, failAfter: 2")).await;
        sleep_s(60).await;
        assert_eq!(names(&pod.told()), ["check_failing"]);
        let Read::Found(object) = rig.store.get(key, None).await else { panic!("it stands there") };
        let body = String::from_utf8(object.body.to_vec()).expect("text");
        assert_eq!(body == stands, kept, "{body}");
        assert_eq!(pod.view().trouble.is_some(), kept);
        assert!(kept || (body.contains(r#""later":{"a":1}"#) && body.contains(r#""web""#)), "{body}");
    }
}

/// As the guide says: a list every minute, and nothing for jobs that go well. The look once a
/// second counts as one for jobs.
#[tokio::test(start_paused = true)]
async fn what_it_costs() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let _agents = [
        rig.agent("w1", &RunnerOptions::default(), &fake).await,
        rig.agent("w2", &RunnerOptions::default(), &fake).await,
    ];
    put(&pod.runner, &schedule("web", "every: 5s")).await;
    pod.until(|view| view.counts.plan.created > 3 && view.workers == 2).await;
    let before = pod.meter.snapshot();
    sleep_s(600).await;
    let after = pod.meter.snapshot();
    let (writes, reads) =
        (after.write_class() - before.write_class(), after.read_class() - before.read_class());
    assert!((9..=11).contains(&writes), "lists: {writes}");
    assert_eq!(reads, 0, "what agents take is in their inboxes, which the leader reads anyway");
}
