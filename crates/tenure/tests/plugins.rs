//! Plugins that share one election, and what they cost each other: nothing.

use crate::common::sleep_ms;
use crate::pods::{Cluster, Manner, leads, until};
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::millis;
use tenure::error::ErrorKind;
use tenure::event::EventKind;
use tenure::plugin::Mode;
use tenure::settings::CoordinationMode;
use tenure::worker::WorkerSpec;
use tenure::{Settings, Verdict};

#[tokio::test(start_paused = true)]
async fn gc1_two_plugins_share_one_election_and_both_are_told() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    let (queue, queue_diary) = a.attach("queue").await;
    let (scheduler, scheduler_diary) = a.attach("scheduler").await;
    let (other, other_diary) = b.attach("queue").await;
    assert!(Arc::ptr_eq(&queue.service().expect("shared"), &scheduler.service().expect("shared")));
    assert_eq!(a.services.services().await.len(), 1, "asking twice gives the same one");
    assert_eq!(leads(&queue).await, 1);
    assert_eq!(leads(&scheduler).await, 1);
    sleep_ms(2000).await;
    for diary in [&queue_diary, &scheduler_diary] {
        let mut lines = diary.lines();
        lines.sort();
        assert_eq!(lines, ["promoted 1", "test: nobody -> pod-a 1"]);
    }
    assert_eq!(other_diary.lines(), ["test: nobody -> pod-a 1"], "a standby's plugin is told, too");
    // One loop: one presence, one seat, whatever the number of plugins.
    let nodes = tenure::store::Store::list(&*cluster.store, "plg_coordinator_global/test/nodes/", 10).await;
    let tenure::store::List::Entries { entries, .. } = nodes else { panic!("{nodes:?}") };
    assert_eq!(entries.len(), 2, "one candidate a pod");

    scheduler.step_down().await.expect("it leads");
    assert_eq!(leads(&other).await, 2);
    sleep_ms(2000).await;
    for diary in [&queue_diary, &scheduler_diary] {
        let lines = diary.lines();
        assert!(lines.contains(&"demoted 1".to_owned()), "{lines:?}");
        assert!(lines.contains(&"test: pod-a -> pod-b 2".to_owned()), "{lines:?}");
    }
    assert!(other_diary.lines().contains(&"promoted 2".to_owned()));
    assert_eq!((cluster.acting("queue"), cluster.acting("scheduler").len()), (vec!["pod-b".to_owned()], 0));
    assert!(queue_diary.events.lock().expect("unpoisoned").iter().any(|name| name.ends_with(".joined")));
}

/// The scenario as it is written: namespace `horizon`, Queue and Scheduler, their workers enabled on the leader's pod alone.
#[tokio::test(start_paused = true)]
async fn gc1_queue_and_scheduler_of_horizon_share_one_election_and_their_workers_follow() {
    let cluster = Cluster::new();
    let pods = [cluster.pod("pod-a"), cluster.pod("pod-b")];
    let (mut handles, mut workers) = (Vec::new(), Vec::new());
    for pod in &pods {
        for plugin in ["queue", "scheduler"] {
            let (handle, _) = pod.attach_with(plugin, |settings| settings.namespace("horizon")).await;
            let id = format!("{plugin}-worker-{}", workers.len());
            let worker = handle.register_worker(&WorkerSpec::new(&id, plugin)).expect("valid");
            worker.registered().await.expect("nobody else has the id");
            handles.push(handle);
            workers.push(worker);
        }
    }
    leads(&handles[1]).await;
    sleep_ms(2000).await;
    let enabled = |workers: &[tenure::worker::Worker]| {
        workers.iter().map(|worker| worker.enabled()).collect::<Vec<_>>()
    };
    assert_eq!(enabled(&workers), [true, true, false, false]);
    let seat = cluster.seat("plg_coordinator_global/horizon/seat.json").await;
    assert_eq!(
        (&seat["holder"]["node"], &seat["epoch"]),
        (&"pod-a".into(), &1.into()),
        "one election for both"
    );
    handles[0].step_down().await.expect("it leads");
    leads(&handles[2]).await;
    sleep_ms(2000).await;
    assert_eq!(enabled(&workers), [false, false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn gc1_twenty_plugins_cost_what_one_costs() {
    let mut spent = Vec::new();
    for plugins in [1, 20] {
        let cluster = Cluster::new();
        let (leader, standby) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
        let mut handles = Vec::new();
        for pod in [&leader, &standby] {
            for number in 0..plugins {
                handles.push(pod.attach(&format!("plugin-{number}")).await.0);
            }
        }
        leads(&handles[plugins - 1]).await;
        sleep_ms(10_250).await;
        let before = [leader.meter.snapshot(), standby.meter.snapshot()];
        sleep_ms(60_000).await; // 40 heartbeats, 60 looks, 3 presence intervals, 3 sweeps without workers
        let [a, b] = before;
        let counted = |now: tenure::store::MeterSnapshot| {
            [now.get, now.get_unchanged, now.put, now.remove, now.list_pages]
        };
        spent.push([counted(leader.meter.snapshot() - a), counted(standby.meter.snapshot() - b)]);
        assert_eq!(leader.policy.own_reads.snapshot().requests(), plugins as u64, "one read a promotion");
    }
    assert_eq!(spent[0], spent[1], "requests in a minute, of leader and standby");
    assert_eq!(spent[1][0], [0, 0, 43, 0, 3]);
    assert_eq!(spent[1][1].iter().sum::<u64>(), 63);
}

#[tokio::test(start_paused = true)]
async fn gc1_a_plugin_that_panics_or_hangs_costs_nobody_anything() {
    crate::log::keep();
    let cluster = Cluster::new();
    let (a, b) = (cluster.pod("pod-a"), cluster.pod("pod-b"));
    let (good, diary) = a.attach("good").await;
    let _panics = a.attach_bad("panics", Manner::Panics).await;
    let _hangs = a.attach_bad("hangs", Manner::Hangs).await;
    let (next, _) = b.attach("good").await;
    let mut events = good.events();
    leads(&good).await;
    sleep_ms(30_250).await;
    let renewed = |events: &mut tokio::sync::broadcast::Receiver<tenure::Event>| {
        let said = std::iter::from_fn(|| events.try_recv().ok());
        said.filter(|event| matches!(event.kind, EventKind::LeaseRenewed { .. }))
            .map(|event| event.boot_ms)
            .collect::<Vec<_>>()
    };
    let times = renewed(&mut events);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1500), "the cadence is unmoved: {times:?}");
    assert!(times.len() >= 19, "{times:?}");
    let failures = good.metrics().plugin_failures;
    assert!(failures > 30, "told again and again: {failures}");
    for line in [
        "plugin panics failed in leader_changed: panicked: this plugin always panics",
        "plugin hangs failed in",
    ] {
        assert!(crate::log::text().contains(line), "{line} is not in {}", crate::log::text());
    }
    // Handing over takes no longer than half of the drain, plus one look and the claim.
    let began = tokio::time::Instant::now();
    good.step_down().await.expect("it leads");
    leads(&next).await;
    let took = began.elapsed().as_millis();
    assert!(took < 3500, "{took} ms");
    sleep_ms(6000).await;
    let lines = diary.lines();
    for line in ["test: nobody -> pod-a 1", "promoted 1", "demoted 1", "test: pod-a -> pod-b 2"] {
        assert_eq!(lines.iter().filter(|said| *said == line).count(), 1, "{line}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn gc1_a_slow_plugin_is_told_how_much_it_missed_and_how_things_stand() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    // Cut off after 5 s at each of them, it can take one notice in five seconds; a thousand are kept.
    let (hangs, diary) = a.attach_bad("hangs", Manner::Hangs).await;
    leads(&hangs).await;
    let before = hangs.metrics();
    sleep_ms(2_000_000).await;
    let after = hangs.metrics();
    assert!(hangs.leadership().borrow().is_leader(), "2,000 s of hanging cost no lease");
    assert_eq!(after.epoch, before.epoch);
    assert!(diary.lines().contains(&"missed true".to_owned()), "{:?}", diary.lines());
    assert!(after.plugin_failures >= 390, "{}", after.plugin_failures);
}

#[tokio::test(start_paused = true)]
async fn gc1_the_service_ends_with_its_last_plugin_and_can_come_again() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, diary) = a.attach("queue").await;
    let (scheduler, other) = a.attach("scheduler").await;
    leads(&queue).await;
    leads(&scheduler).await;
    sleep_ms(100).await;
    queue.detach().await;
    assert!(diary.lines().contains(&"demoted 1".to_owned()), "its work ended: {:?}", diary.lines());
    assert_eq!((cluster.acting("queue").len(), cluster.acting("scheduler").len()), (0, 1));
    assert!(scheduler.leadership().borrow().is_leader(), "the others go on");
    assert_eq!(scheduler.metrics().plugins, ["scheduler"]);
    scheduler.detach().await;
    assert!(other.lines().contains(&"demoted 1".to_owned()));
    assert_eq!(a.services.services().await.len(), 0);
    let seat = cluster.seat("plg_coordinator_global/test/seat.json").await;
    assert_eq!(seat["state"], "vacant", "left in order");
    let (again, _) = a.attach("queue").await;
    assert_eq!(leads(&again).await, 2);
    drop(again);
    until("a dropped handle leaves, too", || cluster.acting("queue").is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn gd1_changes_are_logged_and_counted_with_namespace_and_plugins() {
    crate::log::keep();
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, _) = a.attach("queue").await;
    let (_scheduler, _) = a.attach("scheduler").await;
    let mut events = queue.events();
    leads(&queue).await;
    let became = loop {
        let event = events.recv().await.expect("an event");
        if matches!(event.kind, EventKind::BecameLeader { .. }) {
            break event.to_json();
        }
    };
    assert_eq!(became["plugins"], serde_json::json!(["queue", "scheduler"]));
    assert_eq!(became["namespace"], "test");
    let line =
        crate::log::text().lines().find(|line| line.contains("LEADING")).map(str::to_owned).expect("a line");
    assert!(line.contains("namespace=\"test\"") && line.contains("plugins=\"queue,scheduler\""), "{line}");
    let service = queue.service().expect("shared");
    assert_eq!(service.plugins(), ["queue", "scheduler"]);
    let mut text = String::new();
    tenure::metrics::prometheus_client::encoding::text::encode(&mut text, &service.node().registry())
        .expect("text");
    assert!(text.contains("tenure_plugins_number{namespace=\"test\"} 2"), "{text}");
    assert!(text.contains("tenure_leader_changes_total{namespace=\"test\"} 1"), "{text}");

    // The number of workers is told the same way.
    let _worker =
        queue.register_worker(&tenure::worker::WorkerSpec::new("q1-worker-1", "queue")).expect("valid");
    let changed = loop {
        let event = events.recv().await.expect("an event");
        if matches!(event.kind, EventKind::WorkersChanged { .. }) {
            break event.to_json();
        }
    };
    assert_eq!((&changed["active"], &changed["namespace"]), (&1.into(), &"test".into()));
    assert_eq!(changed["plugins"], serde_json::json!(["queue", "scheduler"]));
    let line = crate::log::lines("workers: 1 active").pop().expect("a line");
    assert!(line.contains("namespace=\"test\"") && line.contains("plugins=\"queue,scheduler\""), "{line}");
    let mut text = String::new();
    tenure::metrics::prometheus_client::encoding::text::encode(&mut text, &service.node().registry())
        .expect("text");
    assert!(text.contains("tenure_workers_active{namespace=\"test\"} 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn gd2_without_a_mode_each_plugin_has_an_election_of_its_own() {
    assert_eq!(Settings::default().coordination_mode, CoordinationMode::PerPlugin);
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let settings = || {
        Settings::builder()
            .namespace("test")
            .node("pod-a")
            .store("memory:")
            .startup_jitter_max(Duration::ZERO)
    };
    let mut handles = Vec::new();
    for name in ["queue", "scheduler"] {
        let (handle, _) = a.attach_with(name, |_| settings()).await;
        assert_eq!((handle.mode(), handle.service().is_none()), (Mode::PerPlugin, true));
        assert_eq!(leads(&handle).await, 1);
        assert_eq!(handle.metrics().plugins, [name]);
        handles.push(handle);
    }
    for name in ["queue", "scheduler"] {
        let seat = cluster.seat(&format!("plg_coordinator/test/{name}/seat.json")).await;
        assert_eq!(seat["holder"]["node"], "pod-a");
    }
    assert_eq!(a.services.services().await.len(), 0);
    // They lead apart.
    handles[0].step_down().await.expect("it leads");
    assert!(handles[1].leadership().borrow().is_leader());
    for handle in handles {
        handle.detach().await;
    }
    let seat = cluster.seat("plg_coordinator/test/queue/seat.json").await;
    assert_eq!(seat["state"], "vacant");
}

#[test]
fn gd2_a_wrong_mode_is_refused_with_the_words_there_are() {
    let wrong = Settings::loader().env([("TENURE_COORDINATION_MODE", "shared")]);
    let error = wrong.load().expect_err("no such mode");
    let text = error.to_string();
    assert!(text.contains("`coordinationMode` must be one of per-plugin, global"), "{text}");
    let by_env = Settings::loader().env([("TENURE_COORDINATION_MODE", "global")]).load().expect("valid");
    assert_eq!(by_env.settings.coordination_mode, CoordinationMode::Global);
}

/// Plugins of one election can adopt fencing one by one: what a plugin says itself counts for its own fence alone.
#[tokio::test(start_paused = true)]
async fn fencing_can_be_turned_off_for_one_plugin_of_a_shared_election() {
    crate::log::keep();
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (strict, _) = a.attach("strict").await;
    let (lenient, _) = a.attach_with("lenient", |settings| settings.epoch_fencing_enabled(false)).await;
    let (patient, _) = a.attach_with("patient", |settings| settings.epoch_grace_period(Duration::ZERO)).await;
    leads(&strict).await;
    leads(&lenient).await;
    leads(&patient).await;
    let stale = |handle: &tenure::plugin::PluginHandle| handle.fence().check(0);
    assert_eq!(
        [&strict, &lenient, &patient].map(stale),
        [Verdict::RejectStale, Verdict::Accept, Verdict::RejectStale]
    );
    assert!(!crate::log::text().contains("keeps the settings of its first plugin"), "{}", crate::log::text());
    assert_eq!(strict.metrics().epoch_drift_events, 2, "of the election, by all who share it");
}

#[tokio::test(start_paused = true)]
async fn gd5_the_first_plugin_sets_the_service_and_later_ones_are_told_the_difference() {
    crate::log::keep();
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let block = "coordinationMode = \"global\"\n[globalCoordinator]\nheartbeatInterval = 3000\n\
                 leaseTimeout = 10000\ndiagnosticsEnabled = true\n";
    let from_file = || {
        let loader = Settings::loader().file_text("queue.toml", block);
        let loader = loader.flag("node", "pod-a").flag("store", "memory:").flag("namespace", "test");
        loader.flag("startupJitterMax", "0").load().expect("valid").settings
    };
    struct Idle(&'static str);
    impl tenure::plugin::Plugin for Idle {
        fn name(&self) -> &str {
            self.0
        }
    }
    let first = a.services.attach(Idle("queue"), from_file()).await.expect("attached");
    let service = first.service().expect("shared");
    assert_eq!(millis(service.settings().heartbeat_interval), 3000);
    assert_eq!(millis(service.settings().lease_timeout), 10_000);
    assert!(service.settings().diagnostics_enabled);
    // The same, and one that says nothing: no word about either.
    let _same = a.services.attach(Idle("same"), from_file()).await.expect("attached");
    let silent = a.attach("silent").await.0;
    assert!(!crate::log::text().contains("keeps the settings of its first plugin"), "{}", crate::log::text());
    let (other, _) = a
        .attach_with("other", |settings| {
            settings
                .heartbeat_interval(Duration::from_millis(500))
                .lease_timeout(Duration::from_millis(10_000))
        })
        .await;
    let warnings: Vec<String> = crate::log::text()
        .lines()
        .filter(|line| line.contains("keeps the settings of its first plugin"))
        .map(str::to_owned)
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("heartbeatInterval stays 3000 (not 500)"), "{warnings:?}");
    assert!(!warnings[0].contains("leaseTimeout") && warnings[0].contains("plugin=\"other\""));
    for handle in [&silent, &other] {
        assert_eq!(millis(handle.service().expect("shared").settings().heartbeat_interval), 3000);
    }
    leads(&other).await;
    sleep_ms(4000).await;
    let seat = cluster.seat("plg_coordinator_global/test/seat.json").await;
    assert_eq!(
        (&seat["settings"]["heartbeatInterval"], &seat["settings"]["leaseTimeout"]),
        (&3000.into(), &10_000.into())
    );
}

#[tokio::test(start_paused = true)]
async fn names_are_checked_and_taken_once() {
    let cluster = Cluster::new();
    let a = cluster.pod("pod-a");
    let (queue, _) = a.attach("queue").await;
    let settings = a.settings().build().expect("valid");
    struct Named(&'static str);
    impl tenure::plugin::Plugin for Named {
        fn name(&self) -> &str {
            self.0
        }
    }
    let taken = a.services.attach(Named("queue"), settings.clone()).await;
    assert_eq!(taken.expect_err("refused").kind(), ErrorKind::Taken);
    let wrong = a.services.attach(Named("../up"), settings.clone()).await;
    assert_eq!(wrong.expect_err("refused").kind(), ErrorKind::Invalid);
    queue.detach().await;
    a.services.attach(Named("queue"), settings).await.expect("free again").detach().await;
}

/// The default `promoted` returns at once; leadership goes on, and can be handed over.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_returns_early_from_promoted_holds_nothing_up() {
    struct Idle;
    impl tenure::plugin::Plugin for Idle {
        fn name(&self) -> &str {
            "queue"
        }
    }
    crate::log::keep();
    let cluster = Cluster::new();
    for mode in [CoordinationMode::PerPlugin, CoordinationMode::Global] {
        let mut handles = Vec::new();
        for pod in [cluster.pod("pod-a"), cluster.pod("pod-b")] {
            let settings = pod.settings().coordination_mode(mode).build().expect("valid");
            handles.push(pod.services.attach(Idle, settings).await.expect("attached"));
            leads(&handles[0]).await;
        }
        sleep_ms(3000).await;
        let handed_over = tokio::time::timeout(std::time::Duration::from_secs(5), handles[0].step_down());
        assert_eq!(handed_over.await, Ok(Ok(())), "{mode}");
        leads(&handles[1]).await;
        for handle in handles {
            handle.detach().await;
        }
    }
}
