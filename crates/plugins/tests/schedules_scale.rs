//! Many schedules: what a job costs in requests does not depend on how many there are, and nothing is missed or doubled.

use crate::common::{Fake, Rig, START, id, schedule, sleep_s};
use tenure::job::RunnerOptions;
use tenure::store::{List, Store};
use tenure_plugins::schedules::{SCHEDULE_METRIC_NAMES, Schedule};

const AGENTS: usize = 8;

/// Requests per job of leader and agents together, beyond the same cluster without schedules; and how many jobs there were.
async fn per_job(schedules: u64) -> (f64, u64) {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        agents.push(rig.agent(&format!("w{number}"), &RunnerOptions::default(), &fake).await);
    }
    let since_ms = rig.now_ms() + 20_000;
    for number in 0..schedules {
        let text = format!("every: 60s, offset: {}ms", number * 60_000 / schedules);
        let spread = Schedule { since_ms, ..schedule(&format!("s{number:04}"), &text) };
        pod.runner.schedules().put(&spread, START).await.expect("written");
    }
    pod.until(|view| view.schedules.len() as u64 == schedules && view.workers == AGENTS).await;
    sleep_s(90).await;
    let spent = || {
        let jobs: u64 = agents.iter().map(|agent| agent.node.metrics().jobs.requests).sum();
        pod.node.metrics().jobs.requests + jobs + pod.meter.snapshot().requests()
    };
    let (before, counts) = (spent(), pod.view().counts);
    sleep_s(120).await;
    let (view, spent) = (pod.view(), spent() - before);
    let created = view.counts.plan.created - counts.plan.created;
    assert!(created.abs_diff(schedules * 2) <= 1 + schedules / 50, "{created} jobs of {schedules} schedules");
    assert_eq!((view.counts.plan.missed, view.counts.plan.duplicates), (0, 0));
    assert!(view.counts.plan.due_lag_max_ms < 1000, "{} ms late", view.counts.plan.due_lag_max_ms);
    // A look of each idle agent every 5 s, the list of schedules, and the agents' facts every minute.
    let idle = AGENTS as u64 * 24 + 24 + AGENTS as u64 * 2;
    (spent.saturating_sub(idle) as f64 / created as f64, created)
}

#[tokio::test(start_paused = true)]
async fn requests_per_job_do_not_grow_with_the_number_of_schedules() {
    let (few, _) = per_job(20).await;
    let (many, jobs) = per_job(400).await;
    assert!(jobs >= 780, "{jobs}");
    assert!(
        many <= few * 1.2 && many < 12.0,
        "20 schedules take {few:.2} requests per job, 400 take {many:.2}"
    );
}

async fn has_ledger(rig: &Rig) -> bool {
    let List::Entries { entries, .. } = rig.store.list("plg_coordinator_global/test/jobs/ledger-", 1).await
    else {
        panic!("it cannot be listed")
    };
    !entries.is_empty()
}

/// Who has no schedules pays for a look whether anything is asked, and for nothing else; the first schedule is seen with the next
/// look.
#[tokio::test(start_paused = true)]
async fn a_leader_without_schedules_only_looks_for_them() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    pod.leads().await;
    sleep_s(10).await;
    let (before, jobs) = (pod.meter.snapshot().requests(), pod.node.metrics().jobs.requests);
    sleep_s(600).await;
    let looks = pod.meter.snapshot().requests() - before;
    assert!((599..=601).contains(&looks), "{looks} requests in ten minutes, one every second");
    assert_eq!(pod.node.metrics().jobs.requests, jobs, "nothing of jobs");
    assert!(!has_ledger(&rig).await, "nothing was taken over");
    pod.runner.schedules().put(&schedule("first", "every: 1s"), START).await.expect("written");
    pod.until(|view| view.counts.plan.created > 3).await;
}

/// What cannot be seen is no reason to write 64 objects: it looks again, says why, and goes on when it sees.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_look_takes_nothing_over() {
    let rig = Rig::new();
    let pod = rig.pod("pod-a").await;
    pod.own.cut(true);
    let view = pod.leads().await;
    assert!(view.trouble.is_some_and(|why| why.contains("/jobs/")), "it says what it cannot list");
    sleep_s(60).await;
    assert!(!has_ledger(&rig).await, "nothing was taken over");
    let first = schedule("first", "every: 1s");
    pod.own.cut(false);
    pod.runner.schedules().put(&first, START).await.expect("written");
    let healed_ms = rig.now_ms();
    pod.until(|view| view.counts.plan.created > 0).await;
    let took_ms = rig.now_ms() - healed_ms;
    assert!(took_ms < 3000, "{took_ms} ms: a look within a second, and the next due time");
}

/// A new leader that could not see its schedules does not wait for its regular look to see them.
#[tokio::test(start_paused = true)]
async fn a_look_that_failed_is_made_again_within_a_second() {
    let rig = Rig::new();
    let pod = rig.pod("pod-a").await;
    pod.runner.schedules().put(&schedule("web", "every: 1s"), START).await.expect("written");
    pod.until(|view| view.counts.plan.created > 0).await;
    for round in 0..5 {
        pod.own.cut(true);
        pod.until(|view| view.trouble.is_some()).await;
        pod.own.cut(false);
        let healed_ms = rig.now_ms();
        pod.until(|view| view.trouble.is_none()).await;
        let took_ms = rig.now_ms() - healed_ms;
        assert!(took_ms <= 1500, "round {round}: {took_ms} ms");
        sleep_s(round).await;
    }
}

/// Fifty jobs a second, each second, with results coming back.
#[tokio::test(start_paused = true)]
async fn fifty_schedules_every_second_are_kept_up_with_by_five_agents() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let mut agents = Vec::new();
    for number in 0..5 {
        agents.push(rig.agent(&format!("w{number}"), &RunnerOptions::default(), &fake).await);
    }
    for number in 0..50 {
        let text = format!("every: 1s, offset: {}ms", number * 20);
        pod.runner.schedules().put(&schedule(&format!("s{number:02}"), &text), START).await.expect("written");
    }
    pod.until(|view| view.schedules.len() == 50 && view.workers == 5).await;
    sleep_s(30).await;
    let (before, done) = (pod.view().counts, fake.done().len());
    sleep_s(60).await;
    let after = pod.view().counts;
    let created = after.plan.created - before.plan.created;
    assert!(created.abs_diff(3000) <= 60, "{created} jobs in a minute");
    assert_eq!((after.plan.missed - before.plan.missed, after.plan.duplicates), (0, 0));
    assert!((fake.done().len() - done).abs_diff(3000) <= 120, "{} were done", fake.done().len() - done);
    assert!(after.open < 150, "{} are open", after.open);
    // The node's figures have them, in both forms.
    let metrics = pod.node.metrics().plugin_figures;
    let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
    assert_eq!(names, SCHEDULE_METRIC_NAMES, "as documented");
    assert_eq!(metrics["tenure_poll_schedules"], 50.0);
    assert!(metrics["tenure_poll_jobs_created_total"] >= 3000.0, "{metrics:?}");
}

/// Five thousand at once: all are taken, and all come to an end.
#[tokio::test(start_paused = true)]
async fn the_ledger_takes_five_thousand_jobs_at_once() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    for number in 0..5000 {
        let since_ms = rig.now_ms() + 300_000;
        let rare = schedule(&format!("s{number:04}"), "every: 1h, ttl: 30m");
        pod.runner
            .schedules()
            .put(&Schedule { since_ms: since_ms - since_ms % 3_600_000 - 1, ..rare }, START)
            .await
            .expect("written");
    }
    // Nobody is there to do them: they are all open.
    let view = pod.until(|view| view.jobs.len() == 5000).await;
    assert_eq!(view.trouble, None);
    assert_eq!(view.counts.plan.created, 5000);
    let List::Entries { entries, .. } =
        rig.store.list("plg_coordinator_global/test/jobs/ledger-", 1000).await
    else {
        panic!("a list")
    };
    let largest = entries.iter().map(|entry| entry.bytes).max().unwrap_or(0);
    assert_eq!(entries.len(), 64);
    assert!(largest < 300_000, "{largest} bytes");
    let _agent = rig.agent("w1", &RunnerOptions::at_once(64), &fake).await;
    pod.until(|view| view.jobs.len() < 4900).await;
    assert!(view.schedules.contains_key(&id("s4999")));
}
