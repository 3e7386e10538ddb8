//! The election through the library: production core, production driver, memory store, simulated time.

use crate::common::{Member, Rig, leaders, sleep_ms};
use std::time::Duration;
use tenure::event::EventKind;
use tenure::settings::SettingsBuilder;
use tenure::{Role, Verdict};

#[tokio::test(start_paused = true)]
async fn ce1_eligible_node_tries_for_leadership() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.event(|kind| matches!(kind, EventKind::ElectionStarted { .. })).await;
}

#[tokio::test(start_paused = true)]
async fn ce2_ineligible_node_sends_no_request_of_the_election() {
    let rig = Rig::new();
    let mut a = rig.join_with("pod-a", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    let b = rig.join("pod-b").await;
    sleep_ms(120_000).await;
    let sent = a.meter.snapshot();
    assert_eq!(sent.requests(), sent.get + sent.get_unchanged, "it reads, and nothing else: {sent:?}");
    assert!(a.so_far().iter().any(|event| event.kind == EventKind::Ineligible));
    assert_eq!(a.node.leadership().borrow().role, None);
    assert!(b.leads());
    a.node.shutdown().await;
}

/// It watches: one read of the seat in every interval, none before the seat is there to be read, and what it knows is up to date.
#[tokio::test(start_paused = true)]
async fn ob1_an_ineligible_node_knows_the_leader_and_its_fence_the_epoch() {
    let rig = Rig::new();
    let mut b = rig.join("pod-b").await;
    assert_eq!(b.became_leader().await.epoch, 1);
    let mut a = rig.join_with("pod-a", 0, |s| s.startup_jitter_max(Duration::ZERO).eligible(false)).await;
    assert_eq!(a.node.fence().check(0), Verdict::Accept, "it has not looked yet");
    sleep_ms(1001).await;
    assert_eq!(a.node.fence().epoch(), 1);
    assert_eq!(a.node.fence().check(0), Verdict::RejectStale);
    assert_eq!(seen(&a), (Some("pod-b".to_owned()), 1));
    let told =
        |kind: &EventKind| matches!(kind, EventKind::LeaderChanged { new, .. } if new.as_str() == "pod-b");
    a.event(told).await;
    let before = a.meter.snapshot().requests();
    sleep_ms(60_000).await;
    assert!((59..=61).contains(&(a.meter.snapshot().requests() - before)), "one look in every interval");

    b.node.shutdown().await;
    sleep_ms(1001).await;
    assert_eq!(seen(&a), (None, 1), "vacated");
    let mut c = rig.join("pod-c").await;
    assert_eq!(c.became_leader().await.epoch, 2);
    sleep_ms(1001).await;
    assert_eq!(seen(&a), (Some("pod-c".to_owned()), 2));
    c.link.cut(true);
    sleep_ms(6400).await;
    assert_eq!(seen(&a).0.as_deref(), Some("pod-c"), "its lease may run");
    sleep_ms(2200).await;
    assert_eq!(seen(&a), (None, 2), "silent for its expiry");
}

/// The leader seems down to its standby, and is back before the delay is over: it leads again, and nobody takes over.
#[tokio::test(start_paused = true)]
async fn td1_a_leader_that_is_back_within_the_delay_is_not_replaced() {
    let rig = Rig::new();
    let patient =
        |s: SettingsBuilder| s.startup_jitter_max(Duration::ZERO).takeover_delay(Duration::from_millis(5000));
    let mut a = rig.join_with("pod-a", 0, patient).await;
    a.became_leader().await;
    let mut b = rig.join_with("pod-b", 0, patient).await;
    sleep_ms(3000).await;
    a.link.cut(true);
    let down = b.event(|kind| matches!(kind, EventKind::LeaderDown { .. })).await;
    let waits = b.event(|kind| matches!(kind, EventKind::AwaitingTurn { .. })).await;
    assert_eq!((down.epoch, waits.kind), (1, EventKind::AwaitingTurn { wait: Duration::from_secs(5) }));
    sleep_ms(1000).await;
    a.link.cut(false);
    assert_eq!(a.became_leader().await.epoch, 2);
    sleep_ms(30_000).await;
    assert!(a.leads() && !b.leads());
    let tried = |event: &tenure::Event| matches!(event.kind, EventKind::ElectionStarted { .. });
    assert!(!b.so_far().iter().any(tried), "pod-b waited, and did not even try");
}

/// A node that is started again finds the seat it vacated: others have led before, and its log says so.
#[tokio::test(start_paused = true)]
async fn only_the_first_election_is_called_the_first() {
    let rig = Rig::new();
    let started = |kind: &EventKind| matches!(kind, EventKind::ElectionStarted { .. });
    let mut causes = Vec::new();
    for _ in 0..2 {
        let mut a = rig.join("pod-a").await;
        causes.push(a.event(started).await.to_json()["cause"].clone());
        a.became_leader().await;
        a.node.shutdown().await;
    }
    assert_eq!(causes, ["first election", "seat vacant"]);
}

/// Both write the presence of one id in turns. Each says so in it, once it is sure that it was no hand that removed it; and no longer than
/// it lasts.
#[tokio::test(start_paused = true)]
async fn two_processes_under_one_id_say_so_in_their_presence() {
    let rig = Rig::new();
    let (one, two) = (rig.join("pod-a").await, rig.join("pod-a").await);
    let conflict = async |member: &Member| {
        member.node.documents().presence(member.node.id()).await.expect("answered").expect("there").conflict
    };
    sleep_ms(10_000).await;
    assert!(!conflict(&one).await, "not after the first time");
    sleep_ms(120_000).await;
    assert!(conflict(&one).await && (one.node.handle().has_conflict() || two.node.handle().has_conflict()));
    two.link.cut(true);
    sleep_ms(120_000).await;
    assert!(!conflict(&one).await && !one.node.handle().has_conflict(), "one of them is gone");
}

/// A node with other settings says so once and goes by the leader's until it leads: it looks as seldom as the others.
#[tokio::test(start_paused = true)]
async fn gd5_across_processes_the_leaders_settings_count_until_a_node_leads_itself() {
    let rig = Rig::new();
    let slow = |s: SettingsBuilder| {
        s.startup_jitter_max(Duration::ZERO)
            .heartbeat_interval(Duration::from_millis(3000))
            .lease_timeout(Duration::from_millis(10_000))
            .takeover_delay(Duration::from_millis(5000))
    };
    let quick = |s: SettingsBuilder| {
        s.startup_jitter_max(Duration::ZERO)
            .heartbeat_interval(Duration::from_millis(250))
            .lease_timeout(Duration::from_millis(1000))
    };
    let mut a = rig.join_with("pod-a", 0, slow).await;
    a.became_leader().await;
    let mut b = rig.join_with("pod-b", 0, quick).await;
    let differ = b.event(|kind| matches!(kind, EventKind::SettingsDiffer { .. })).await;
    let EventKind::SettingsDiffer { leader, differences } = differ.kind else { unreachable!() };
    assert_eq!(leader.as_str(), "pod-a");
    assert_eq!(
        differences,
        [
            "heartbeatInterval 250 (the leader has 3000)",
            "leaseTimeout 1000 (the leader has 10000)",
            "takeoverDelay 1000 (the leader has 5000)",
            "electionInterval 166 (the leader has 2000)",
        ]
    );
    sleep_ms(5000).await;
    let before = b.meter.snapshot().get + b.meter.snapshot().get_unchanged;
    sleep_ms(60_000).await;
    let looks = b.meter.snapshot().get + b.meter.snapshot().get_unchanged - before;
    assert!((29..=31).contains(&looks), "{looks} looks in a minute: every 2 s");
    let told = |event: &tenure::Event| matches!(event.kind, EventKind::SettingsDiffer { .. });
    assert!(!b.so_far().iter().any(told), "said once");

    a.link.cut(true);
    let cut = tokio::time::Instant::now();
    b.became_leader().await;
    let took = cut.elapsed().as_millis();
    assert!(
        (33_000..=38_000).contains(&took),
        "the leader's expiry of 30 s and its takeover delay of 5 s: {took} ms"
    );
    sleep_ms(2000).await;
    assert_eq!(rig.seat().await["settings"]["heartbeatInterval"], 250, "it leads by its own");
    assert_eq!(rig.seat().await["leaseHold"], 2000);
}

/// The leader a node knows, and the highest epoch.
fn seen(member: &Member) -> (Option<String>, u64) {
    let leadership = member.node.leadership();
    let known = leadership.borrow();
    (known.leader.as_ref().map(ToString::to_string), known.epoch)
}

#[tokio::test(start_paused = true)]
async fn ce3_without_a_leader_it_leads_and_work_may_start() {
    let rig = Rig::new();
    let a = rig.join("pod-a").await;
    let guard = a.node.lead().await.expect("leadership");
    assert_eq!(guard.epoch(), 1);
    assert!(guard.is_valid());
    assert_eq!(rig.seat().await["holder"]["node"], "pod-a");
}

#[tokio::test(start_paused = true)]
async fn ce4_with_a_leader_it_stands_by_and_looks_every_interval() {
    let rig = Rig::new();
    let _a = rig.join("pod-a").await;
    sleep_ms(2000).await;
    let mut b = rig.join("pod-b").await;
    sleep_ms(2000).await;
    b.so_far();
    sleep_ms(10_000).await;
    let checks =
        b.so_far().iter().filter(|event| matches!(event.kind, EventKind::ElectionCheck { .. })).count();
    assert_eq!(checks, 10, "one look per interval");
    assert_eq!(b.node.leadership().borrow().role, Some(Role::Standby));
    assert_eq!(b.node.leadership().borrow().leader.as_ref().map(|node| node.as_str()), Some("pod-a"));
}

#[tokio::test(start_paused = true)]
async fn sb1_of_many_that_start_at_once_exactly_one_leads() {
    let rig = Rig::new();
    let members = rig.join_all(&["pod-e", "pod-c", "pod-a", "pod-d", "pod-b"]).await;
    sleep_ms(3000).await;
    assert_eq!(leaders(&members), ["pod-a"]);
    sleep_ms(60_000).await;
    assert_eq!(leaders(&members), ["pod-a"]);
    assert_eq!(rig.seat().await["epoch"], 1);
}

#[tokio::test(start_paused = true)]
async fn sb2_after_a_partition_heals_one_leader_remains() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    members[0].link.cut(true);
    members[0].lost_leadership().await;
    members[1].became_leader().await;
    members[0].link.cut(false);
    sleep_ms(20_000).await;
    assert_eq!(leaders(&members), ["pod-b"]);
    assert_eq!(members[0].node.leadership().borrow().role, Some(Role::Standby));
}

#[tokio::test(start_paused = true)]
async fn sb3_a_leader_cut_off_stops_before_anyone_else_may_lead() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let guard = members[0].node.lead().await.expect("leadership");
    sleep_ms(3000).await;
    members[0].link.cut(true);
    guard.ended().await;
    let ended_ms = members[0].lost_leadership().await.boot_ms;
    let next = members[1].became_leader().await;
    assert!(!guard.is_valid());
    assert!(ended_ms < next.boot_ms, "{ended_ms} then {}", next.boot_ms);
    assert_eq!(next.epoch, guard.epoch() + 1, "what the old one dispatched carries a stale epoch");
}

#[tokio::test(start_paused = true)]
async fn fo4_leader_changed_reaches_every_node_with_the_documents_payload() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b", "pod-c"]).await;
    members[0].became_leader().await;
    sleep_ms(5000).await;
    for member in &mut members {
        member.so_far();
    }
    // A crash: nothing of pod-a reaches the store any more.
    members[0].link.cut(true);
    for member in &mut members[1..] {
        let event = member.event(|kind| matches!(kind, EventKind::LeaderChanged { .. })).await;
        let value = event.to_json();
        assert_eq!(value["event"], "leader:changed");
        assert_eq!(value["namespace"], "test");
        assert_eq!(value["previousLeader"], "pod-a");
        assert_eq!(value["newLeader"], "pod-b");
        assert_eq!(value["epoch"], 2);
    }
}

#[tokio::test(start_paused = true)]
async fn jb2_jitter_does_not_change_who_is_elected() {
    for random in [[0, 0, 0], [u64::MAX, 0, u64::MAX / 2], [u64::MAX / 3, u64::MAX, 0]] {
        let rig = Rig::new();
        let mut members = Vec::new();
        for (name, random) in ["pod-a", "pod-b", "pod-c"].into_iter().zip(random) {
            members.push(rig.join_with(name, random, |settings| settings).await);
        }
        sleep_ms(9000).await;
        assert_eq!(leaders(&members), ["pod-a"], "{random:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_the_work_then_vacates_then_says_so() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let guard = a.node.lead().await.expect("leadership");
    let leadership = a.node.leadership();
    let stopping = tokio::spawn(a.node.shutdown());
    guard.ended().await;
    sleep_ms(1000).await;
    assert_eq!(rig.seat().await["state"], "held", "work still runs");
    assert_eq!(leadership.borrow().role, Some(Role::Draining));
    drop(guard);
    stopping.await.expect("no panic");
    assert_eq!(rig.seat().await["state"], "vacant");
    assert_eq!(rig.seat().await["epoch"], 1, "the record stays, so the epoch cannot repeat");
    let said = std::iter::from_fn(|| a.events.try_recv().ok())
        .find(|event| matches!(event.kind, EventKind::LostLeadership { .. }));
    let said = said.expect("the loss").to_json();
    assert_eq!((said["reason"].as_str(), said["vacated"].as_bool()), (Some("shutdown"), Some(true)));
    assert_eq!(rig.store.len(), 1, "only the seat is left: {:?}", rig.store);
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_stop_is_not_handed_over_before_its_lease_ends() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let guard = members[0].node.lead().await.expect("leadership");
    sleep_ms(1500).await;
    members[0].node.step_down().await.expect("it leads");
    let lost = members[0].lost_leadership().await;
    assert_eq!(lost.to_json()["vacated"], false);
    let next = members[1].became_leader().await;
    assert!(
        next.boot_ms >= lost.boot_ms + 1000,
        "pod-b leads {} ms after the loss",
        next.boot_ms - lost.boot_ms
    );
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn step_down_hands_over_and_only_a_leader_can() {
    let rig = Rig::new();
    let members = rig.join_all(&["pod-a", "pod-b"]).await;
    sleep_ms(3000).await;
    assert!(members[1].node.step_down().await.is_err());
    members[0].node.step_down().await.expect("it leads");
    sleep_ms(2000).await;
    assert_eq!(leaders(&members), ["pod-b"]);
    sleep_ms(30_000).await;
    assert_eq!(leaders(&members), ["pod-b"], "no fail-back");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_costs_leadership_by_the_deadline_and_is_rejoined() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let guard = a.node.lead().await.expect("leadership");
    sleep_ms(5000).await;
    a.link.cut(true);
    let cut = tokio::time::Instant::now();
    guard.ended().await;
    assert!(cut.elapsed() <= Duration::from_millis(4000), "{:?}", cut.elapsed());
    drop(guard);
    let lost = a.lost_leadership().await.to_json();
    assert_eq!(lost["reason"], "lease expired");
    sleep_ms(60_000).await;
    a.link.cut(false);
    let again = a.node.lead().await.expect("leadership in the same process");
    assert_eq!(again.epoch(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_renewal_costs_nothing_and_a_lease_at_risk_recovers() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    let guard = a.node.lead().await.expect("leadership");
    sleep_ms(500).await;
    a.link.cut(true);
    sleep_ms(1700).await; // one heartbeat falls into it
    a.link.cut(false);
    sleep_ms(3000).await;
    assert!(guard.is_valid(), "one lost renewal is ridden out");
    let said = a.so_far();
    assert!(!said.iter().any(|event| matches!(event.kind, EventKind::LeaseAtRisk { .. })), "{said:?}");
}

/// Whoever looks at leadership from another thread, at whatever moment, sees a guard only together with its epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_is_never_shown_beside_another_epoch() {
    let settings = tenure::Settings::builder()
        .store("memory:")
        .node("pod-a")
        .heartbeat_interval(Duration::from_millis(50))
        .lease_timeout(Duration::from_millis(2000))
        .startup_jitter_max(Duration::ZERO)
        .election_settle(Duration::ZERO);
    let node = tenure::Node::start(settings.build().expect("valid")).await.expect("a node");
    let leadership = node.leadership();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let looker = std::thread::spawn(move || {
        let mut torn = Vec::new();
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let now = leadership.borrow().clone();
            if let Some(acting) = now.guard().map(|guard| guard.epoch()).filter(|acting| *acting != now.epoch)
            {
                torn.push((acting, now.epoch));
            }
        }
        torn
    });
    for epoch in 1..=5 {
        assert_eq!(node.lead().await.expect("not stopped").epoch(), epoch);
        node.step_down().await.expect("it leads");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(looker.join().expect("no panic"), [], "(epoch of the guard, epoch shown)");
    node.shutdown().await;
}
