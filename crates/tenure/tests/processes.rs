//! Leader-only processes: on exactly one node, in order, restarted within limits, and gone before leadership is.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

use crate::common::{Rig, sleep_ms};
use crate::pods::{Cluster, leads, until};
use crate::trace::{Trace, Witness};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tenure::clock::Clock;
use tenure::error::ErrorKind;
use tenure::event::EventKind;
use tenure::process::{ProcessContext, ProcessSpec, ProcessState, Processes, Restart, Supervisor};
use tenure::settings::Preset;
use tenure::{LeadershipEnded, Node, Settings};
use tokio::time::Instant;

fn state(processes: &Processes, name: &str) -> ProcessState {
    processes.status().borrow().process(name).expect("declared").state
}

fn restarts(processes: &Processes, name: &str) -> u64 {
    processes.status().borrow().process(name).expect("declared").restarts
}

/// A process that ends in this way as often as the counter says, and runs from then on.
fn failing(name: &str, times: u32, with: Result<(), &'static str>) -> (ProcessSpec, Arc<AtomicU32>) {
    let starts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&starts);
    let spec = ProcessSpec::new(name, move |context: ProcessContext| {
        let attempt = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if attempt < times {
                return with;
            }
            context.cancelled().await;
            Ok(())
        }
    });
    (spec, starts)
}

#[tokio::test(start_paused = true)]
async fn cp1_becoming_leader_starts_the_processes_in_order() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let mut supervised = Vec::new();
    for member in &members {
        let pod = member.node.id().to_string();
        let health = trace.process(&format!("{pod} ClusterHealth"), "cluster-health", 700, 0).ready_signal();
        let orchestrator = trace.process(&format!("{pod} PollOrchestrator"), "poll-orchestrator", 0, 0);
        supervised.push(Supervisor::new([health, orchestrator]).run(&member.node).expect("valid"));
    }
    members[0].became_leader().await;
    let led = Instant::now();
    assert!(supervised[0].running("poll-orchestrator").await);
    assert_eq!(led.elapsed().as_millis(), 700, "the second waits until the first is ready");
    assert_eq!(trace.lines(), ["pod-a ClusterHealth starts in 1", "pod-a PollOrchestrator starts in 1"]);
    sleep_ms(20_000).await;
    assert_eq!(trace.lines().len(), 2, "on exactly one node, and once: {:?}", trace.lines());
    assert_eq!(state(&supervised[0], "cluster-health"), ProcessState::Running);
    assert_eq!(state(&supervised[1], "cluster-health"), ProcessState::Idle);
    assert_eq!(members[0].node.metrics().processes_running, 2);
    assert_eq!(members[1].node.metrics().processes_running, 0);
    let said: Vec<String> = members[0].so_far().iter().map(|event| event.name()).collect();
    assert_eq!(said.iter().filter(|name| name.ends_with(".process_started")).count(), 2, "{said:?}");
}

/// The whole hand-over, as the store, the processes and the events saw it.
#[tokio::test(start_paused = true)]
async fn cp2_shutdown_stops_the_processes_then_vacates_then_tells() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let a = Witness::join(&rig, "pod-a", &trace).await;
    let specs = [
        trace.process("health", "cluster-health", 0, 400),
        trace.process("poll", "poll-orchestrator", 0, 600),
    ];
    let processes = Supervisor::new(specs).run(&a).expect("valid");
    assert!(processes.running("poll-orchestrator").await);
    trace.clear();
    let began = Instant::now();
    a.shutdown().await;
    assert_eq!(
        trace.lines(),
        [
            "poll is asked to stop",
            "poll stops",
            "poll is gone",
            "health is asked to stop",
            "health stops",
            "health is gone",
            "the seat is vacated",
            "serviceradar.coordinator.lost_leadership: shutdown"
        ]
    );
    assert_eq!(began.elapsed().as_millis(), 1000, "each was awaited, and nothing else");
    processes.ended().await;
}

/// By then the deadline has moved many times, without anything happening to the processes.
#[tokio::test(start_paused = true)]
async fn after_many_renewals_a_step_down_still_leaves_the_processes_their_time() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let mut member = rig.join("pod-a").await;
    let specs = [trace.process("health", "health", 0, 400), trace.process("poll", "poll", 0, 600)];
    let processes = Supervisor::new(specs).run(&member.node).expect("valid");
    assert!(processes.running("poll").await);
    for slept_ms in [4300, 31_700] {
        sleep_ms(slept_ms).await;
        trace.clear();
        let began = Instant::now();
        member.node.step_down().await.expect("it leads");
        assert_eq!(began.elapsed().as_millis(), 1000, "each was awaited, and nothing else");
        let stopped = ["poll is asked to stop", "poll stops", "poll is gone"];
        let stopped =
            stopped.into_iter().chain(["health is asked to stop", "health stops", "health is gone"]);
        assert_eq!(trace.lines(), stopped.collect::<Vec<_>>());
        assert_eq!(state(&processes, "health"), ProcessState::Idle);
        assert!(processes.running("poll").await, "in the next term");
    }
    let gave_up = |kind: &EventKind| matches!(kind, EventKind::ProcessesGaveUp { .. });
    assert!(!member.so_far().iter().any(|event| gave_up(&event.kind)), "nothing died");
}

#[tokio::test(start_paused = true)]
async fn fo2_the_successors_processes_run_within_five_seconds_of_a_graceful_stop() {
    // The worst that is still graceful: processes that stop only when they are cut off.
    for (stops_after, expected) in [(0, 1100), (60_000, 5000)] {
        let (rig, trace) = (Rig::new(), Trace::default());
        let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
        let mut supervised = Vec::new();
        for member in &members {
            let pod = member.node.id();
            let health = trace.process(&format!("{pod} health"), "health", 0, stops_after);
            let poll = trace.process(&format!("{pod} poll"), "poll", 0, stops_after);
            supervised.push(Supervisor::new([health, poll]).run(&member.node).expect("valid"));
        }
        assert!(supervised[0].running("poll").await);
        sleep_ms(3300).await;
        let began = Instant::now();
        let stopping = tokio::spawn(members.remove(0).node.shutdown());
        assert!(supervised[1].running("poll").await);
        let took = began.elapsed().as_millis();
        println!("processes that stop after {stops_after} ms: the successor's run after {took} ms");
        assert!(took <= expected, "{took} ms");
        stopping.await.expect("no panic");
        let lines = trace.lines();
        let first = lines.iter().position(|line| line == "pod-b health starts in 2").expect("it starts");
        let last = lines.iter().rposition(|line| line == "pod-a health is gone").expect("it ends");
        assert!(last < first, "never beside each other: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fo1_after_a_crash_the_successors_processes_run_within_the_bound() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let mut supervised = Vec::new();
    for member in &members {
        let spec = trace.process(member.node.id().as_str(), "poll", 0, 60_000);
        supervised.push(Supervisor::new([spec]).run(&member.node).expect("valid"));
    }
    assert!(supervised[0].running("poll").await);
    sleep_ms(5000).await;
    members[0].link.cut(true);
    let cut = Instant::now();
    // Cut off, the old leader stops by itself: asked at 80 % of the hold, gone by its end.
    let at_risk = members[0].event(|kind| matches!(kind, EventKind::LeaseAtRisk { .. })).await;
    trace.until("pod-a is gone").await;
    let EventKind::LeaseAtRisk { deadline_boot_ms } = at_risk.kind else { panic!("{at_risk:?}") };
    assert!(rig.clock.now_ms() < deadline_boot_ms, "before, not after");
    let gone = cut.elapsed().as_millis();
    assert!(gone <= 5000, "{gone} ms");
    assert!(supervised[1].running("poll").await);
    let took = cut.elapsed().as_millis();
    println!("cut off: gone after {gone} ms, the successor's run after {took} ms");
    assert!(took > gone && took <= 10_000, "{took} ms");
    assert_eq!(state(&supervised[0], "poll"), ProcessState::Idle);
    members[0].link.cut(false);
    sleep_ms(30_000).await;
    assert_eq!(trace.count("starts in"), 2, "it comes back as standby: {:?}", trace.lines());
}

#[tokio::test(start_paused = true)]
async fn a_lease_at_risk_stops_the_processes_and_a_late_renewal_starts_them_again() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let mut a = rig.join("pod-a").await;
    let processes = Supervisor::new([trace.process("poll", "poll", 0, 0)]).run(&a.node).expect("valid");
    assert!(processes.running("poll").await);
    sleep_ms(3050).await;
    a.link.link(tenure::store::Link::Refused);
    a.event(|kind| matches!(kind, EventKind::LeaseAtRisk { .. })).await;
    a.link.cut(false);
    a.event(|kind| matches!(kind, EventKind::LeaseRecovered)).await;
    assert!(processes.running("poll").await);
    let lines = trace.lines();
    assert_eq!(
        lines,
        ["poll starts in 1", "poll is asked to stop", "poll stops", "poll is gone", "poll starts in 1"]
    );
    assert_eq!(restarts(&processes, "poll"), 0, "that is no restart");
}

#[tokio::test(start_paused = true)]
async fn strategies_decide_what_is_started_again_and_pauses_grow() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let (permanent, always) = failing("permanent", 2, Ok(()));
    let (transient, failed) = failing("transient", 2, Err("the queue is closed"));
    let (done, once) = failing("done", 9, Ok(()));
    let (temporary, never) = failing("temporary", 9, Err("never mind"));
    let specs = [
        permanent,
        transient.restart(Restart::Transient),
        done.restart(Restart::Transient),
        temporary.restart(Restart::Temporary),
    ];
    let processes = Supervisor::new(specs).run(&a.node).expect("valid");
    a.became_leader().await;
    sleep_ms(5000).await;
    let counts = [always, failed, once, never].map(|starts| starts.load(Ordering::SeqCst));
    assert_eq!(counts, [3, 3, 1, 1]);
    assert_eq!(restarts(&processes, "permanent"), 2);
    assert_eq!(a.node.metrics().process_restarts, 4);
    let status = processes.status().borrow().clone();
    assert_eq!(status.to_string(), "permanent running, transient running, done ended, temporary ended");
    let failure = |name: &str| status.process(name).expect("declared").last_failure.clone();
    assert_eq!(failure("transient").as_deref(), Some("the queue is closed"));
    assert_eq!((failure("permanent"), status.epoch), (None, Some(1)));
    let said = a.so_far();
    let pauses: Vec<_> = said
        .iter()
        .filter(|event| event.to_json()["process"] == "transient" && event.name().ends_with("process_exited"))
        .map(|event| event.to_json())
        .map(|event| (event["outcome"].clone(), event["restartInMs"].clone(), event["detail"].clone()))
        .collect();
    let told = |pause: u64| ("failed".into(), pause.into(), "the queue is closed".into());
    assert_eq!(pauses, [told(100), told(200)]);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_start_releases_leadership_and_another_node_leads() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let (broken, starts) = failing("poll", u32::MAX, Err("no such table"));
    let (fine, _) = failing("poll", 0, Ok(()));
    let a =
        Supervisor::new([broken]).intensity(3, Duration::from_secs(60)).run(&members[0].node).expect("valid");
    let b = Supervisor::new([fine]).run(&members[1].node).expect("valid");
    let gave_up = members[0].event(|kind| matches!(kind, EventKind::ProcessesGaveUp { .. })).await;
    let json = gave_up.to_json();
    assert_eq!(
        (json["process"].as_str(), json["cause"].as_str(), json["holdMs"].as_u64()),
        (Some("poll"), Some("restart intensity"), Some(5000))
    );
    assert_eq!(starts.load(Ordering::SeqCst), 4, "three restarts were allowed");
    let lost = members[0].lost_leadership().await.to_json();
    assert_eq!((lost["reason"].as_str(), lost["vacated"].as_bool()), (Some("step down"), Some(true)));
    assert!(b.running("poll").await);
    let handed_over = members[1].became_leader().await.boot_ms - gave_up.boot_ms;
    assert!(handed_over <= 1100, "{handed_over} ms");
    // It is not asked again before its time, even if there is nobody else.
    members.remove(1).node.shutdown().await;
    let again = members[0].became_leader().await;
    assert!(again.boot_ms >= gave_up.boot_ms + 5000, "after {} ms", again.boot_ms - gave_up.boot_ms);
    let next = members[0].event(|kind| matches!(kind, EventKind::ProcessesGaveUp { .. })).await;
    assert_eq!(next.to_json()["holdMs"], 10_000, "it grows");
    assert_eq!((next.epoch, a.status().borrow().gave_up), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_never_becomes_ready_releases_leadership() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let trace = Trace::default();
    let slow = ProcessSpec::new("slow", |context: ProcessContext| async move {
        context.cancelled().await;
        Ok::<_, LeadershipEnded>(())
    });
    let specs = [slow.ready_within(Duration::from_secs(2)), trace.process("next", "next", 0, 0)];
    let processes = Supervisor::new(specs).run(&a.node).expect("valid");
    let led = a.became_leader().await.boot_ms;
    let gave_up = a.event(|kind| matches!(kind, EventKind::ProcessesGaveUp { .. })).await;
    assert_eq!((gave_up.boot_ms - led, gave_up.to_json()["cause"].as_str()), (2000, Some("cannot start")));
    a.lost_leadership().await;
    assert_eq!(trace.lines(), [""; 0], "the one after it was never started");
    assert_eq!(processes.status().borrow().epoch, None);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_instance_and_nobody_else_anything() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let mut a = rig.join("pod-a").await;
    let panics = ProcessSpec::new("panics", |context: ProcessContext| async move {
        assert!(context.attempt() > 1, "the first time it breaks (on purpose)");
        context.cancelled().await;
        Ok::<_, LeadershipEnded>(())
    });
    let thread = ProcessSpec::blocking("thread", |context: ProcessContext| {
        assert!(context.attempt() > 1, "a thread breaks, too (on purpose)");
        context.ready();
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        Ok::<_, LeadershipEnded>(())
    });
    let specs = [panics, trace.process("calm", "calm", 0, 0), thread.ready_signal()];
    let processes = Supervisor::new(specs).run(&a.node).expect("valid");
    a.became_leader().await;
    // Threads run on real time: simulated time stands still while this waits for them.
    busy_until("the thread runs again", || state(&processes, "thread") != ProcessState::Starting).await;
    sleep_ms(150).await;
    busy_until("the thread is ready", || state(&processes, "thread") == ProcessState::Running).await;
    assert_eq!(restarts(&processes, "panics"), 1);
    let failure = processes.status().borrow().process("panics").expect("declared").last_failure.clone();
    assert_eq!(failure.as_deref(), Some("the first time it breaks (on purpose)"));
    assert_eq!(trace.lines(), ["calm starts in 1"], "undisturbed");
    assert!(a.leads());
    let stopping = tokio::spawn(processes.stop());
    busy_until("all have stopped", || stopping.is_finished()).await;
    assert_eq!(a.node.metrics().processes_running, 0);
}

/// Waits on real time without letting simulated time go on.
async fn busy_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "not in time: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_ignores_its_cancellation_is_contained() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (given, contexts) = std::sync::mpsc::channel();
    let released = std::sync::Mutex::new(released);
    let deaf = ProcessSpec::blocking("deaf", move |context: ProcessContext| {
        let _ = given.send(context.clone());
        let _ = released.lock().expect("one at a time").recv(); // It does not listen to anybody else.
        Ok::<_, LeadershipEnded>(())
    });
    let trace = Trace::default();
    let a =
        Supervisor::new([deaf, trace.process("good", "good", 0, 0)]).run(&members[0].node).expect("valid");
    let b = Supervisor::new([trace.process("successor", "deaf", 0, 0)]).run(&members[1].node).expect("valid");
    members[0].became_leader().await;
    assert!(a.running("good").await);
    let context = contexts.recv_timeout(Duration::from_secs(20)).expect("the thread runs");
    assert!(context.check().is_ok() && context.guard().stamp("task-1").is_ok());

    let asked = members[0].node.step_down();
    let stepped_down = Instant::now();
    asked.await.expect("it leads");
    assert!(context.check().is_err() && context.guard().stamp("task-2").is_err(), "it cannot dispatch");
    let lost = members[0].lost_leadership().await.to_json();
    assert_eq!(lost["vacated"], false, "what may still run must not meet its successor: the lease runs out");
    assert_eq!(state(&a, "deaf"), ProcessState::Stuck);
    let metrics = members[0].node.metrics();
    assert_eq!((metrics.processes_running, metrics.processes_stuck), (0, 1));
    assert_eq!(trace.count("good is gone"), 1, "the others have stopped in order");
    // It does not hold up the others for ever.
    assert!(b.running("deaf").await);
    let took = stepped_down.elapsed().as_millis();
    assert!(took <= 3000 + 9500, "{took} ms: the drain, and the failover bound");
    assert!(!context.is_valid());
    // As long as it runs, this node does not lead again: a second instance would run beside it.
    members.remove(1).node.shutdown().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        !members[0].node.leadership().borrow().is_leader(),
        "nobody else is there, and still it does not"
    );
    assert!(contexts.try_recv().is_err(), "no second instance");
    drop((context, release));
    busy_until("it has ended at last", || state(&a, "deaf") != ProcessState::Stuck).await;
    assert_eq!(members[0].node.metrics().processes_stuck, 0);
    assert!(a.running("good").await, "now it leads again");
}

#[tokio::test(start_paused = true)]
async fn ap1_a_supervisor_that_dies_ends_its_processes_and_is_started_again() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let clock = Arc::new(crate::trace::Fragile::new(&rig));
    let settings = Settings::builder()
        .namespace("test")
        .node("pod-a")
        .store("memory:")
        .startup_jitter_max(Duration::ZERO);
    let builder = Node::builder(settings.build().expect("valid"))
        .lanes(tenure::store::Lanes::same(rig.store.clone()))
        .clock(clock.clone());
    let mut events = builder.events();
    let node = builder.start().await.expect("a node");
    let (kick, kicked) = tokio::sync::watch::channel(false);
    let kicks = ProcessSpec::new("kicks", move |context: ProcessContext| {
        let mut kicked = kicked.clone();
        async move {
            tokio::select! {
                () = context.cancelled() => {}
                _ = kicked.wait_for(|now| *now && context.epoch() == 1) => {}
            }
            Ok::<_, LeadershipEnded>(())
        }
    });
    let ended = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ended);
    let thread = ProcessSpec::blocking("thread", move |context: ProcessContext| {
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, LeadershipEnded>(())
    });
    let specs = [trace.process("poll", "poll", 0, 60_000), thread, kicks];
    let processes = Supervisor::new(specs).run(&node).expect("valid");
    assert!(processes.running("kicks").await);
    // The next to look at the clock is the supervisor, when the process ends.
    clock.break_once();
    kick.send_replace(true);
    busy_until("the thread was told to end", || ended.load(Ordering::SeqCst) == 1).await;
    trace.until("poll is gone").await;
    assert_eq!(state(&processes, "poll"), ProcessState::Idle, "nothing is shown as running");
    assert!(!clock.is_to_break(), "the supervisor died of it");
    assert_eq!(trace.count("poll is asked to stop"), 0, "there was nobody left to ask");
    let said: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let gave_up = said.iter().find(|event| matches!(event.kind, EventKind::ProcessesGaveUp { .. }));
    assert_eq!(gave_up.expect("told").to_json()["cause"], "supervisor died");
    assert!(processes.running("kicks").await, "another life, once the thread has ended, too");
    let last = trace.lines().last().cloned().unwrap_or_default();
    assert!(last.starts_with("poll starts in ") && trace.count("poll starts in") == 2, "{:?}", trace.lines());
    let stopping = tokio::spawn(node.shutdown());
    busy_until("the thread has stopped", || state(&processes, "thread") != ProcessState::Running).await;
    stopping.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn processes_end_with_their_handle_and_with_their_node() {
    let (rig, trace) = (Rig::new(), Trace::default());
    let a = rig.join("pod-a").await;
    let first = Supervisor::new([trace.process("first", "poll", 0, 0)]).run(&a.node).expect("valid");
    let second = Supervisor::new([trace.process("second", "poll", 0, 0)]).run(&a.node).expect("valid");
    assert!(first.running("poll").await && second.running("poll").await);
    drop(first);
    trace.until("first is gone").await;
    assert_eq!(trace.count("VALID GUARD"), 0, "though the lease goes on, it was over for this one");
    assert!(a.leads(), "the node goes on");
    assert_eq!(state(&second, "poll"), ProcessState::Running, "and so does the other supervisor");
    drop(a);
    second.ended().await;
    assert_eq!(trace.count("second is gone"), 1);
    sleep_ms(1000).await;
    assert_eq!(rig.seat().await["state"], "vacant", "a supervisor keeps no node alive");
}

#[tokio::test(start_paused = true)]
async fn a_plugins_processes_follow_its_election() {
    let (cluster, trace) = (Cluster::new(), Trace::default());
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    let (queue, _) = a.attach("queue").await;
    let (other, _) = a.attach("scheduler").await;
    let (standby, _) = b.attach("queue").await;
    let here = Supervisor::new([trace.process("here", "poll", 0, 0)]).run(&queue).expect("valid");
    let (broken, _) = failing("poll", u32::MAX, Err("no"));
    let bad = Supervisor::new([broken]).intensity(1, Duration::from_secs(60)).run(&other).expect("valid");
    let there = Supervisor::new([trace.process("there", "poll", 0, 0)]).run(&standby).expect("valid");
    assert!(here.running("poll").await);
    assert!(there.running("poll").await, "one plugin's processes that give up hand the namespace over");
    assert_eq!(bad.status().borrow().gave_up, 1);
    trace.until("here is gone").await;
    let lines = trace.lines();
    let at = |wanted: &str| lines.iter().position(|line| line == wanted).expect("it happened");
    assert!(at("here is gone") < at("there starts in 2"), "{lines:?}");
    // A plugin that leaves stops its processes, although the lease may go on for others.
    let (second, _) = b.attach("scheduler").await;
    leads(&second).await;
    standby.detach().await;
    until("its processes are gone", || trace.count("there is gone") == 1).await;
    there.ended().await;
    assert!(second.leadership().borrow().is_leader());
}

#[tokio::test(start_paused = true)]
async fn wrong_declarations_are_refused_and_nothing_is_started() {
    let rig = Rig::new();
    let a = rig.join("pod-a").await;
    let spec = |name: &str| failing(name, 0, Ok(())).0;
    let nothing = Supervisor::new([]).run(&a.node).expect_err("refused");
    assert_eq!(nothing.to_string(), "a supervisor needs at least one process");
    let twice = Supervisor::new([spec("poll"), spec("poll")]).run(&a.node).expect_err("refused");
    assert_eq!(twice.kind(), ErrorKind::Taken, "{twice}");
    let bad = Supervisor::new([spec("a/b")]).run(&a.node).expect_err("refused").to_string();
    assert!(bad.starts_with("process name:") && bad.contains("a/b"), "{bad}");
}

/// Three nodes, a store that fails in every way, processes that fail and dawdle: never two of them act at once.
#[tokio::test(start_paused = true)]
async fn under_faults_processes_act_on_one_node_at_a_time() {
    let mut terms = 0;
    for seed in 0..12 {
        terms += crate::trace::storm(seed).await;
    }
    assert!(terms > 40, "it happened at all: {terms}");
}

/// A task that blocks its thread cannot be cut off either. On real time, since simulated time would not go on beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_that_blocks_its_thread_is_contained() {
    let settings = Settings::builder()
        .store("memory:")
        .node("pod-a")
        .preset(Preset::Fast)
        .startup_jitter_max(Duration::ZERO);
    let node =
        Node::start(settings.election_settle(Duration::ZERO).build().expect("valid")).await.expect("a node");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let blocks = ProcessSpec::new("blocks", move |context: ProcessContext| {
        let released = Arc::clone(&released);
        async move {
            let _context = context;
            let _ = released.lock().expect("one at a time").recv();
            Ok::<_, LeadershipEnded>(())
        }
    });
    let processes = Supervisor::new([blocks]).run(&node).expect("valid");
    assert!(processes.running("blocks").await);
    node.step_down().await.expect("it leads");
    let mut status = processes.status();
    let stuck = status.wait_for(|status| status.processes[0].state == ProcessState::Stuck);
    tokio::time::timeout(Duration::from_secs(20), stuck).await.expect("in time").expect("supervised");
    drop(release);
    let idle = status.wait_for(|status| status.processes[0].state != ProcessState::Stuck);
    tokio::time::timeout(Duration::from_secs(20), idle).await.expect("in time").expect("supervised");
    node.shutdown().await;
}
