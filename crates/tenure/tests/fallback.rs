//! A store that refuses the global seat: the plugin goes on by a seat of its own, for the rest of the process's life.

use crate::common::sleep_ms;
use crate::pods::{Cluster, Diary, Manner, leads, until};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tenure::Leadership;
use tenure::event::EventKind;
use tenure::job::{Dispatcher, Handlers, JobContext, JobOutcome, JobRecord, JobRunner, JobSpec, JobState};
use tenure::plugin::{Mode, PluginHandle};
use tenure::settings::CoordinationMode;
use tenure::store::{Condition, Store, Write};

const GLOBAL_SEAT: &str = "plg_coordinator_global/test/seat.json";
const OWN_SEAT: &str = "plg_coordinator/test/queue/seat.json";
const WARNING: &str = "[coordinator] Failed to acquire global lock. Switching to per-plugin mode";

async fn mode(handle: &PluginHandle, wanted: Mode) {
    let mut mode = handle.watch_mode();
    let found = tokio::time::timeout(std::time::Duration::from_secs(120), mode.wait_for(|m| *m == wanted));
    found.await.unwrap_or_else(|_| panic!("not {wanted} within two simulated minutes")).expect("attached");
}

/// The epochs a plugin was promoted in. One whose lease was at risk and recovered is promoted again in the same.
fn epochs(diary: &Diary) -> Vec<u64> {
    let lines = diary.lines();
    let mut epochs: Vec<u64> =
        lines.iter().filter_map(|line| line.strip_prefix("promoted ")?.parse().ok()).collect();
    epochs.dedup();
    epochs
}

#[tokio::test(start_paused = true)]
async fn gc2_refused_from_the_start_the_plugin_goes_on_by_itself_until_a_restart() {
    crate::log::keep();
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    a.deny(true);
    let (queue, diary) = a.attach("queue").await;
    let mut events = queue.events();
    mode(&queue, Mode::Fallback).await;
    assert!(queue.mode().is_degraded());
    assert_eq!(leads(&queue).await, 1);
    sleep_ms(5000).await;
    let warned = crate::log::lines(WARNING);
    assert_eq!(warned.len(), 1, "exactly once, in exactly these words: {warned:?}");
    assert!(warned[0].contains(" WARN ") && warned[0].contains("plugin=\"queue\""), "{warned:?}");
    let service = queue.service().expect("it asked for the shared one");
    assert_eq!((service.metrics().fallbacks, service.metrics().plugins_in_fallback), (1, 1));
    assert_eq!(cluster.seat(OWN_SEAT).await["holder"]["node"], "pod-a");
    assert_eq!(queue.metrics().role.as_deref(), Some("leader"), "the figures are of the node in force");
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let started = said.iter().find(|event| matches!(event.kind, EventKind::FallbackStarted { .. }));
    let started = started.expect("the event").to_json();
    assert_eq!(started["event"], "serviceradar.coordinator.fallback_started");
    assert_eq!((&started["plugin"], &started["namespace"]), (&"queue".into(), &"test".into()));
    assert!(started["detail"].as_str().is_some_and(|detail| detail.contains("permission denied")));
    assert_eq!(cluster.acting("queue"), ["pod-a"]);

    // The policy is mended. That is for the next start: nothing is interrupted for it.
    a.deny(false);
    sleep_ms(60_000).await;
    assert_eq!((queue.mode(), epochs(&diary)), (Mode::Fallback, vec![1]), "{:?}", diary.lines());
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
    assert!(!cluster.exists(GLOBAL_SEAT).await, "it has left that election");
    queue.detach().await;
    assert_eq!(service.metrics().plugins_in_fallback, 0);
    assert_eq!(cluster.seat(OWN_SEAT).await["state"], "vacant");
    let restarted = cluster.pod("pod-a");
    let (queue, diary) = restarted.attach("queue").await;
    leads(&queue).await;
    until("it acts", || cluster.acting("queue") == ["pod-a"]).await;
    assert_eq!((queue.mode(), queue.fence().epoch()), (Mode::Global, 2), "above what was handed out");
    assert_eq!(epochs(&diary), [2]);
}

#[tokio::test(start_paused = true)]
async fn gc2_refused_while_leading_the_lease_ends_before_the_plugin_goes_on_by_itself() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, diary) = a.attach("queue").await;
    let (scheduler, _) = a.attach("scheduler").await;
    assert_eq!(leads(&queue).await, 1);
    sleep_ms(3000).await;
    let began = tokio::time::Instant::now();
    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    mode(&scheduler, Mode::Fallback).await;
    assert!(began.elapsed().as_millis() >= 1400, "not while the lease still ran");
    until("both lead by themselves", || {
        [&queue, &scheduler].iter().all(|handle| handle.leadership().borrow().is_leader())
    })
    .await;
    // Its own dead record on the global seat, which it may not clear, is not waited for.
    assert!(began.elapsed().as_millis() < 6000, "{:?}", began.elapsed());
    assert_eq!(epochs(&diary), [1, 2], "the epoch rises from one arbiter to the other");
    assert_eq!(scheduler.service().expect("shared").metrics().plugins_in_fallback, 2);
    // One that comes to a service that is refused goes on by itself, too.
    let (late, _) = a.attach("late").await;
    leads(&late).await;
    assert_eq!(late.mode(), Mode::Fallback);
}

/// A refusal that is over before the lease is has changed nothing.
#[tokio::test(start_paused = true)]
async fn gc2_a_lease_that_outlasts_the_refusal_goes_on() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, diary) = a.attach("queue").await;
    leads(&queue).await;
    sleep_ms(3000).await;
    for _ in 0..3 {
        a.deny(true);
        sleep_ms(500).await;
        a.deny(false);
        sleep_ms(5000).await;
    }
    assert_eq!((queue.mode(), epochs(&diary)), (Mode::Global, vec![1]), "{:?}", diary.lines());
}

#[tokio::test(start_paused = true)]
async fn gc2_a_refused_pod_waits_for_a_leader_it_can_see_and_takes_over_when_that_is_gone() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    b.deny(true);
    let (leader, _) = a.attach("queue").await;
    leads(&leader).await;
    let (refused, diary) = b.attach("queue").await;
    mode(&refused, Mode::Fallback).await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"], "it waits");
    assert_eq!(b.policy.own_reads.snapshot().requests(), 0, "its own candidate was not even started");
    let seen = refused.leadership().borrow().clone();
    let leader_seen = seen.leader.as_ref().map(|node| node.as_str());
    assert_eq!(
        (leader_seen, seen.epoch, refused.fence().epoch()),
        (Some("pod-a"), 1, 1),
        "it knows who leads"
    );
    // The leader leaves; nobody else may write the global seat.
    leader.detach().await;
    assert!(leads(&refused).await > 1);
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
    // Somebody who may write it comes: it waits for the plugin's own seat, which is given up for it.
    let (back, back_diary) = a.attach("queue").await;
    let mut led = back.leadership();
    led.wait_for(Leadership::is_leader).await.expect("attached");
    until("the newcomer acts", || cluster.acting("queue") == ["pod-a"]).await;
    assert_eq!(refused.mode(), Mode::Fallback, "still refused, and waiting");
    let (before, after) = (epochs(&diary), epochs(&back_diary));
    assert!(after.first() > before.last(), "no epoch twice: {before:?}, {after:?}");
    sleep_ms(30_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_plugin_that_may_not_even_look_goes_on_and_a_global_leader_sees_it() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    b.deny(true);
    b.policy.deny_reads.store(true, Ordering::SeqCst);
    let (blind, _) = b.attach("queue").await;
    leads(&blind).await;
    let (other, _) = a.attach("queue").await;
    until("the global seat is taken", || {
        other.service().is_some_and(|service| service.node().leadership().borrow().is_leader())
    })
    .await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"], "the global leader waits for the seat it can see");
    assert!(!other.leadership().borrow().is_leader());
    blind.detach().await;
    leads(&other).await;
    sleep_ms(100).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_rolling_change_from_per_plugin_to_global_waits_for_the_old_leader() {
    let cluster = Cluster::new();
    let (old, next, new) = (cluster.pod("pod-a"), cluster.pod("pod-b"), cluster.pod("pod-c"));
    let (first, _) = old.attach_with("queue", |s| s.coordination_mode(CoordinationMode::PerPlugin)).await;
    leads(&first).await;
    let (second, _) = next.attach_with("queue", |s| s.coordination_mode(CoordinationMode::PerPlugin)).await;
    sleep_ms(3000).await;
    let (global, _) = new.attach("queue").await;
    sleep_ms(20_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-a"]);
    // The old leader hands over to another of the old kind, under the new one's eyes.
    first.detach().await;
    leads(&second).await;
    sleep_ms(20_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
    second.detach().await;
    leads(&global).await;
    sleep_ms(100).await;
    assert_eq!(cluster.acting("queue"), ["pod-c"]);
}

#[tokio::test(start_paused = true)]
async fn gc2_a_dead_per_plugin_seat_is_waited_out_once_and_cleared_away() {
    let cluster = Cluster::new();
    let (old, new) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    let (first, _) = old.attach_with("queue", |s| s.coordination_mode(CoordinationMode::PerPlugin)).await;
    leads(&first).await;
    // It dies: what it wrote last stays.
    let dead = cluster.seat(OWN_SEAT).await;
    first.detach().await;
    let body = serde_json::to_vec(&dead).expect("JSON").into();
    tenure::store::Store::put(&*cluster.store, OWN_SEAT, body, tenure::store::Condition::Any).await;
    let began = tokio::time::Instant::now();
    let (queue, _) = new.attach("queue").await;
    leads(&queue).await;
    let waited = began.elapsed().as_millis();
    // Expiry, takeover delay, three looks; then a second claim, because the dead one had handed out epoch 1.
    assert!((11_500..=18_500).contains(&waited), "{waited} ms");
    assert_eq!(queue.leadership().borrow().epoch, 2);
    assert_eq!(cluster.seat(OWN_SEAT).await["state"], "vacant", "nobody waits for it again");
    queue.step_down().await.expect("it leads");
    let began = tokio::time::Instant::now();
    leads(&queue).await;
    assert!(began.elapsed().as_millis() < 6000, "{:?}", began.elapsed());
}

/// Pods start, are refused at some time or other, and are started anew. `Diary` asserts that the plugin acts on one at a time.
#[tokio::test(start_paused = true)]
async fn gc2_policies_that_come_and_go_never_make_two_leaders() {
    let cluster = Cluster::new();
    let names = ["pod-a", "pod-b", "pod-c"];
    let mut pods = Vec::new();
    for name in names {
        let pod = cluster.pod(name);
        let attached = pod.attach("queue").await;
        pods.push((pod, attached));
    }
    let (mut all, mut fallbacks) = (Vec::new(), 0);
    let mut draw = 12_345u64;
    for _ in 0..150 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (which, denied) = ((draw >> 33) as usize % 3, (draw >> 40) & 1 == 1);
        if pods[which].1.0.mode() == Mode::Fallback && !denied {
            let (_, (handle, diary)) = pods.remove(which);
            assert_eq!(handle.service().expect("shared").metrics().plugin_failures, 0, "led twice");
            handle.detach().await;
            all.extend(epochs(&diary));
            fallbacks += 1;
            let pod = cluster.pod(names[which]);
            let attached = pod.attach("queue").await;
            pods.insert(which, (pod, attached));
        } else {
            pods[which].0.deny(denied);
        }
        sleep_ms(500 + (draw >> 45) % 9000).await;
    }
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue").len(), 1);
    for (_, (handle, diary)) in &pods {
        assert_eq!(handle.service().expect("shared").metrics().plugin_failures, 0, "led twice");
        all.extend(epochs(diary));
    }
    assert!(all.len() > 10 && fallbacks > 10, "{all:?}, {fallbacks} fallbacks");
    let epochs: std::collections::BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(epochs.len(), all.len(), "no epoch twice: {all:?}");
}

/// It was free when the plugin went on by itself, and is held by the time the plugin's own seat is won: only a look that is
/// answered after that counts.
#[tokio::test(start_paused = true)]
async fn gc2_a_look_that_gets_no_answer_does_not_clear_the_way() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    a.deny(true);
    a.policy.own_writes_cut.store(true, Ordering::SeqCst);
    let (refused, _) = a.attach("queue").await;
    mode(&refused, Mode::Fallback).await;
    until("its own candidate tries", || a.policy.own_reads.snapshot().requests() > 0).await;
    a.policy.silent_reads.store(true, Ordering::SeqCst);
    let (leader, _) = b.attach("queue").await;
    leads(&leader).await;
    a.policy.own_writes_cut.store(false, Ordering::SeqCst);
    until("it holds the plugin's own seat", || refused.metrics().role.as_deref() == Some("leader")).await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"], "nobody told the other that the global seat is free");
    assert!(!refused.leadership().borrow().is_leader());
    // With an answer it learns who leads, and lets go of its own seat.
    a.policy.silent_reads.store(false, Ordering::SeqCst);
    sleep_ms(30_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
    leader.detach().await;
    leads(&refused).await;
}

/// It led before it was refused, and its part in the global election ends only after the plugin's own seat is won.
#[tokio::test(start_paused = true)]
async fn gc2_the_end_of_the_global_part_does_not_end_the_look_at_its_seat() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, _) = a.attach("queue").await;
    leads(&queue).await;
    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    until("its own candidate tries", || a.policy.own_reads.snapshot().requests() > 0).await;
    a.policy.silent_reads.store(true, Ordering::SeqCst);
    until("it holds the plugin's own seat", || queue.metrics().role.as_deref() == Some("leader")).await;
    sleep_ms(60_000).await;
    assert!(!queue.leadership().borrow().is_leader(), "nobody told it that the global seat is free");
    a.policy.silent_reads.store(false, Ordering::SeqCst);
    leads(&queue).await;
}

/// Credentials that are over, or not there yet, are no policy: the process stays in the election and leads once they are renewed.
#[tokio::test(start_paused = true)]
async fn gc2_expired_credentials_are_no_reason_to_leave_the_election() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    a.policy.expired.store(true, Ordering::SeqCst);
    let (queue, _) = a.attach("queue").await;
    sleep_ms(60_000).await;
    assert_eq!(queue.mode(), Mode::Global);
    a.policy.expired.store(false, Ordering::SeqCst);
    leads(&queue).await;
    a.policy.expired.store(true, Ordering::SeqCst);
    let (other, _) = b.attach("queue").await;
    leads(&other).await;
    assert_eq!((queue.mode(), cluster.acting("queue")), (Mode::Global, vec!["pod-b".to_owned()]));
    // Refused for good, it may look with credentials that are over: that says nothing about who leads.
    a.policy.expired.store(false, Ordering::SeqCst);
    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    a.policy.expired.store(true, Ordering::SeqCst);
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
}

/// A seat of a version to come may be held by a node of that version.
#[tokio::test(start_paused = true)]
async fn gc2_a_seat_that_cannot_be_understood_is_not_taken_for_free() {
    let cluster = Cluster::new();
    let newer = r#"{"v": 99, "epoch": 4}"#;
    let written = cluster.store.put(GLOBAL_SEAT, newer.into(), Condition::Absent).await;
    assert!(matches!(written, Write::Won(_)), "{written:?}");
    let a = cluster.pod("pod-a");
    a.deny(true);
    let (queue, _) = a.attach("queue").await;
    mode(&queue, Mode::Fallback).await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), [""; 0]);
}

/// On real time: only a thread can be blocked.
#[allow(clippy::await_holding_lock, reason = "the lock is what blocks the other thread")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gc2_a_plugin_is_not_promoted_beside_work_of_its_own_that_is_stuck() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, diary) = a.attach_bad("queue", Manner::Blocks).await;
    let blocked = diary.blocked.lock().expect("unpoisoned");
    until("it works", || !epochs(&diary).is_empty()).await;
    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    leads(&queue).await;
    // It would be promoted at once.
    sleep_ms(300).await;
    assert_eq!(epochs(&diary), [1], "its first work still runs");
    drop(blocked);
    until("it works again", || epochs(&diary).len() == 2).await;
}

/// The leader of the namespace may not read the plugin's own seat, so it cannot know that nobody acts by it.
#[tokio::test(start_paused = true)]
async fn gc2_a_global_leader_that_may_not_look_at_the_other_seat_does_not_act() {
    crate::log::keep();
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    b.deny(true);
    b.policy.deny_reads.store(true, Ordering::SeqCst);
    let (blind, _) = b.attach("queue").await;
    leads(&blind).await;
    a.policy.deny_own_reads.store(true, Ordering::SeqCst);
    let (other, _) = a.attach("queue").await;
    sleep_ms(60_000).await;
    assert_eq!(cluster.acting("queue"), ["pod-b"]);
    assert_eq!(crate::log::lines("the seat cannot be read, so this node does not act").len(), 1);
    a.policy.deny_own_reads.store(false, Ordering::SeqCst);
    blind.detach().await;
    leads(&other).await;
}

/// A plugin that gives out jobs while it leads, and its worker: both go on where the plugin's own seat is.
#[tokio::test(start_paused = true)]
async fn gc2_jobs_and_workers_go_on_in_fallback() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, _) = a.attach("queue").await;
    leads(&queue).await;
    let worker =
        queue.register_worker(&tenure::worker::WorkerSpec::new("q1-worker-1", "queue")).expect("valid");
    worker.registered().await.expect("nobody else has the id");
    let done = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&done);
    let handlers = Handlers::new().on("echo", move |job: JobContext| {
        let ran = Arc::clone(&ran);
        async move {
            // A long one is in hand when the refusal comes: it is not cut off.
            if job.id.as_str() == "long" {
                sleep_ms(30_000).await;
            }
            ran.lock().expect("unpoisoned").push((job.id.to_string(), job.attempt));
            JobOutcome::succeeded(job.payload.to_vec())
        }
    });
    let _runner = JobRunner::start(&queue.jobs(), worker, handlers);
    let give = async |id: &'static str| {
        let guard = queue.leadership().borrow().guard().expect("it leads");
        let dispatcher = Dispatcher::start(&queue.jobs(), guard);
        dispatcher.submit(JobSpec::new(id, "echo")).await.expect("submitted");
        dispatcher
    };
    let ran = |id: &str| done.lock().expect("unpoisoned").contains(&(id.to_owned(), 1));
    let first = give("before").await;
    until("done by the global seat", || ran("before")).await;
    first.submit(JobSpec::new("long", "echo")).await.expect("submitted");
    until_job("claimed", &first, |job| job.state == JobState::Running).await;

    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    let epoch = leads(&queue).await;
    let second = give("after").await;
    until("done by the plugin's own seat", || ran("after")).await;
    let recorded = |job: &JobRecord| job.id.as_str() == "after" && job.state == JobState::Succeeded;
    until_job("it stands in the ledger", &second, recorded).await;
    assert!(epoch > 1);
    until("what ran was not cut off", || ran("long")).await;
    assert_eq!(queue.workers().borrow().active, 1, "the plugin sees the worker where it is");
}

async fn until_job(what: &str, dispatcher: &Dispatcher, is_it: impl Fn(&JobRecord) -> bool) {
    for _ in 0..6000 {
        if dispatcher.jobs().await.iter().any(&is_it) {
            return;
        }
        sleep_ms(20).await;
    }
    panic!("{what}: not within two minutes");
}

const GLOBAL_WORKER: &str = "plg_coordinator_global/test/workers/q1-worker-1.json";
const OWN_WORKER: &str = "plg_coordinator/test/queue/workers/q1-worker-1.json";

/// The plugin's workers remain: one handle, enabled by whichever seat is in force, registered where that one is.
#[tokio::test(start_paused = true)]
async fn gc2_workers_move_with_their_plugin_and_stay() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, _) = a.attach("queue").await;
    let worker =
        queue.register_worker(&tenure::worker::WorkerSpec::new("q1-worker-1", "queue")).expect("valid");
    worker.registered().await.expect("nobody else has the id");
    leads(&queue).await;
    until("enabled", || worker.enabled()).await;
    assert!(cluster.exists(GLOBAL_WORKER).await && !cluster.exists(OWN_WORKER).await);

    a.deny(true);
    mode(&queue, Mode::Fallback).await;
    assert!(!worker.enabled(), "nobody leads the plugin now");
    until("enabled by the plugin's own seat", || worker.enabled()).await;
    sleep_ms(2000).await;
    assert!(cluster.exists(OWN_WORKER).await, "registered where the arbiter in force looks");
    assert_eq!(worker.status().borrow().phase, tenure::worker::WorkerPhase::Registered);

    sleep_ms(60_000).await;
    assert!(worker.enabled());
    assert_eq!(worker.deregister().await, tenure::worker::WorkerEnd::Deregistered);
    assert!(!cluster.exists(OWN_WORKER).await);
}
