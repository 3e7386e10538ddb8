//! What goes wrong with jobs is told: as an event at once, and to webhooks at least once, across failovers.

use crate::common::{Answering, Fake, Pod, Rig, START, id, schedule, sleep_s};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::async_trait;
use tenure::job::{Notice, NoticeKind, NoticeSender, RunnerOptions};
use tenure_plugins::schedules::{JobTrouble, Schedule};

/// A receiver of webhooks that may be deaf.
#[derive(Clone, Default)]
struct Receiver {
    deaf: Arc<AtomicBool>,
    taken: Arc<Mutex<Vec<Notice>>>,
    tries: Arc<Mutex<usize>>,
}

#[async_trait]
impl NoticeSender for Receiver {
    fn wants_all(&self) -> bool {
        false
    }

    async fn send(&self, notice: &Notice) -> Result<(), String> {
        *self.tries.lock().expect("no panic") += 1;
        if self.deaf.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.taken.lock().expect("no panic").push(notice.clone());
        Ok(())
    }
}

impl Receiver {
    fn taken(&self) -> Vec<Notice> {
        self.taken.lock().expect("no panic").clone()
    }
}

const HOOK: &str = "webhook: 'http://localhost:9/'";

fn said(troubles: &[JobTrouble]) -> Vec<(NoticeKind, &str)> {
    troubles.iter().map(|trouble| (trouble.kind, trouble.reason.as_str())).collect()
}

async fn put(pod: &Pod, name: &str, text: &str) -> Schedule {
    let schedule = schedule(name, text);
    pod.runner.schedules().put(&schedule, START).await.expect("written");
    schedule
}

#[tokio::test(start_paused = true)]
async fn sc5_what_goes_wrong_with_a_job_is_told_at_once() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let mut events = pod.runner.events();
    fake.set(Answering::Fails);
    put(&pod, "fails", "every: 60s, attempts: 2, backoff: 1s").await;
    put(&pod, "nobody", "every: 60s, ttl: 20s, partition: mars").await;
    let agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    pod.until(|view| view.counts.failed == 1 && view.counts.expired == 1).await;
    let mut troubles = Pod::troubles(&mut events);
    troubles.sort_by_key(|trouble| trouble.kind);
    assert_eq!(said(&troubles[..1]), [(NoticeKind::Failed, "no check passed")]);
    assert_eq!((troubles[0].schedule.clone(), troubles[0].attempt), (Some(id("fails")), 2));
    assert!(troubles[0].due_ms.is_some_and(|due| due % 60_000 == 0) && troubles[0].worker == Some(id("w1")));
    assert_eq!((troubles[1].kind, troubles[1].schedule.clone()), (NoticeKind::Expired, Some(id("nobody"))));
    assert_eq!(troubles[1].attempt, 0);
    assert_eq!(pod.view().failing.keys().collect::<Vec<_>>(), [&id("fails"), &id("nobody")]);
    // It is well again.
    fake.set(Answering::Well);
    pod.until(|view| view.failing.len() == 1).await;
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn sc5_a_late_job_and_missed_due_times_are_told() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let mut events = pod.runner.events();
    put(&pod, "web", "every: 10s, ttl: 1h, lateAfter: 5s, misfire: run_once").await;
    pod.until(|view| view.counts.plan.created == 1).await;
    sleep_s(130).await;
    let waits = Pod::troubles(&mut events);
    assert!(waits.iter().all(|trouble| trouble.kind == NoticeKind::Missed), "it may still begin: {waits:?}");
    assert!((2..=3).contains(&waits.len()), "told once a minute: {waits:?}");
    let last = &waits[1];
    assert!(last.reason.contains(" due times were missed, the last one 2026-11-15 00:"), "{last:?}");
    assert_eq!(last.schedule, Some(id("web")));
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    pod.until(|view| view.counts.late >= 1).await;
    let troubles = Pod::troubles(&mut events);
    let late = troubles.iter().find(|trouble| trouble.kind == NoticeKind::Late).expect("it began late");
    assert!(late.reason.ends_with(" s after it was due") && late.attempt == 1, "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn sc5_a_schedule_that_nobody_can_run_is_seen_after_a_minute() {
    let rig = Rig::new();
    let pod = rig.pod("pod-a").await;
    put(&pod, "far", "every: 10s, ttl: 1h, partition: mars").await;
    let view = pod.until(|view| !view.waiting.is_empty()).await;
    assert_eq!(view.waiting[&id("far")], "no active worker takes jobs");
    assert!(view.failing.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nt1_a_webhook_is_told_across_a_failover_and_one_that_hangs_costs_nothing_else() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pods = [rig.pod("pod-a").await, rig.pod("pod-b").await];
    let receiver = Receiver::default();
    pods.iter().for_each(|pod| pod.node.jobs().notify_by(Arc::new(receiver.clone())));
    receiver.deaf.store(true, Ordering::SeqCst);
    fake.set(Answering::Fails);
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    put(&pods[0], "told", &format!("every: 3600s, attempts: 1, {HOOK}")).await;
    put(&pods[0], "silent", "every: 5s, attempts: 1").await;
    let leader = loop {
        match pods.iter().position(|pod| pod.view().epoch > 0) {
            Some(leader) => break leader,
            None => sleep_s(1).await,
        }
    };
    let asked = pods[leader].runner.run_now(&id("told"), "now").await;
    asked.expect("created");
    pods[leader].until(|view| view.counts.failed >= 5).await;
    assert!(*receiver.tries.lock().expect("no panic") >= 1, "it was tried");
    assert_eq!(receiver.taken(), []);
    // Its work goes on meanwhile; then it dies.
    pods[leader].link.cut(true);
    let other = &pods[1 - leader];
    other.leads().await;
    receiver.deaf.store(false, Ordering::SeqCst);
    let taken = tokio::time::timeout(Duration::from_secs(600), async {
        while receiver.taken().is_empty() {
            sleep_s(1).await;
        }
        receiver.taken()
    });
    let taken = taken.await;
    if taken.is_err() {
        use tenure::store::Store;
        let found = rig.store.get("plg_coordinator_global/test/jobs/notices.json", None).await;
        panic!("{found:?} {:?}", other.view());
    }
    let taken = taken.expect("the next leader tells it");
    assert_eq!((taken[0].kind, taken[0].job.as_str()), (NoticeKind::Failed, "told.run.now"));
    sleep_s(120).await;
    assert!(receiver.taken().iter().all(|notice| notice.id == taken[0].id), "{:?}", receiver.taken());
    other.until(|view| view.counts.failed > 5).await;
    let metrics = other.node.metrics().jobs;
    assert_eq!((metrics.notices, metrics.notices_waiting, metrics.notices_dropped), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn nt1_missed_due_times_and_late_jobs_are_sent_too() {
    let (rig, fake) = (Rig::new(), Fake::new());
    let pod = rig.pod("pod-a").await;
    let receiver = Receiver::default();
    pod.node.jobs().notify_by(Arc::new(receiver.clone()));
    put(&pod, "web", &format!("every: 10s, ttl: 1h, lateAfter: 5s, {HOOK}")).await;
    pod.until(|view| view.counts.plan.created == 1).await;
    sleep_s(45).await;
    let _agent = rig.agent("w1", &RunnerOptions::default(), &fake).await;
    pod.until(|view| view.counts.late >= 1 && view.counts.plan.missed > 0).await;
    sleep_s(5).await;
    let kinds: Vec<NoticeKind> = receiver.taken().iter().map(|notice| notice.kind).collect();
    assert!(kinds.contains(&NoticeKind::Late) && kinds.contains(&NoticeKind::Missed), "{kinds:?}");
}
