//! The binary on real S3 engines. `TENURE_TEST_S3_ENGINES` says which; `cargo xtask test` starts them and sets it.

use crate::common::engine::{self, Engine};
use crate::common::net::Proxy;
use crate::common::{
    Cluster, FAST, FIRST_BY_NAME, PATIENCE, PATIENT, PLAIN, Ran, STEADY, Sandbox, finish, took_ms,
};
use rustix::process::Signal;
use tenure_store::{Condition, Credentials, Lanes, List, OpenOptions, Read, Write, open_str};

const SEAT: &str = "plg_coordinator_global/default/seat.json";

fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The test's own way to a store.
async fn lanes(engine: &Engine, store: &str) -> Lanes {
    let mut options = OpenOptions::with_request_timeout(std::time::Duration::from_secs(10));
    options.endpoint = Some(engine.endpoints[0].clone());
    options.credentials =
        Some(Credentials { access_key: engine.access_key.clone(), secret_key: engine.secret_key.clone() });
    open_str(store, &options).await.unwrap()
}

/// Everything below a store's prefix.
fn objects(engine: &Engine, store: &str) -> Vec<String> {
    within(async {
        match lanes(engine, store).await.bulk.list("plg_coordinator_global/", 1_000).await {
            List::Entries { entries, .. } => entries.into_iter().map(|entry| entry.key).collect(),
            other => panic!("{}: {other:?}", engine.name),
        }
    })
}

/// Runs a command on an engine, with these variables on top.
fn tenure(engine: &Engine, arguments: &[&str], more: &[(&str, &str)]) -> Ran {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command.args(arguments).envs(engine.env()).envs(more.iter().copied());
    finish(command, 2 * PATIENCE)
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn sb3_on_a_bucket_a_paused_leader_finds_its_lease_over_first() {
    for engine in engine::safe() {
        let sandbox = Sandbox::new();
        let mut cluster = Cluster::new(&sandbox, &engine.store(), PATIENT).envs(engine.env());
        cluster.start_all(&["pod-a", "pod-b"]);
        let leader = cluster.leader(0);
        cluster.event(0, leader.life, "lease_renewed");
        let mark = cluster.mark();
        let stopped_ms = cluster.signal(leader.life, Signal::STOP);
        let next = cluster
            .wait(mark, "another leader", |said| said.name() == "became_leader" && said.life != leader.life);
        cluster.event(mark, next.life, "lease_renewed");
        cluster.signal(leader.life, Signal::CONT);
        let first = cluster.wait(mark, "a word of the resumed one", |said| {
            // That its leader-only work has ended comes before that it leads no longer.
            let work = said.name() == "process_exited";
            said.life == leader.life && said.boot_ms() > stopped_ms + 100 && !work
        });
        assert_eq!(first.name(), "lost_leadership", "{}: {}", engine.name, first.event);
        let awake = cluster.mark();
        cluster.wait(awake, "the resumed one to see the other", |said| {
            said.life == leader.life && said.text("leader") == next.node
        });
        cluster.finish();
    }
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn sb2_after_a_partition_one_leader_remains() {
    for engine in engine::safe() {
        let sandbox = Sandbox::new();
        let proxy = Proxy::to(&engine.endpoints[0]);
        let store = engine.store();
        let mut cluster = Cluster::new(&sandbox, &store, PATIENT).envs(engine.env());
        let cut_off = cluster.start_with("pod-a", &[("AWS_ENDPOINT_URL", &proxy.url())]);
        cluster.start("pod-b");
        let leader = cluster.leader(0);
        assert_eq!(leader.life, cut_off, "{}", engine.name);
        cluster.event(0, cut_off, "lease_renewed");
        let mark = cluster.mark();
        proxy.cut();
        cluster.event(mark, cut_off, "lost_leadership");
        let next = cluster.leader(mark);
        assert_eq!((next.node.as_str(), next.epoch()), ("pod-b", leader.epoch() + 1));
        proxy.mend();
        let mended = cluster.mark();
        let seen = cluster.event(mended, cut_off, "leader_changed");
        assert_eq!((seen.text("new_leader"), seen.epoch()), ("pod-b", next.epoch()));
        for _ in 0..4 {
            let mark = cluster.mark();
            assert_eq!(cluster.event(mark, cut_off, "election_check").text("leader"), "pod-b");
        }
        let history = cluster.finish();
        assert_eq!(history.iter().filter(|said| said.name() == "became_leader").count(), 2);
    }
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn a_bucket_that_is_missing_or_forbidden_is_named() {
    for engine in engine::safe() {
        let store = engine.store();
        let nowhere = format!("s3://no-such-bucket-{:016x}/x", rand::random::<u64>());
        let wrong = ("AWS_SECRET_ACCESS_KEY", "not-the-secret");
        for verb in [&["run", "--events", "--startup-jitter-max", "0"][..], &["status"], &["doctor"]] {
            let ran = tenure(&engine, &[verb, &["--store", &nowhere]].concat(), &[]).assert_code(4);
            let said = ran.stderr.to_lowercase();
            assert!(said.contains("bucket") && said.contains("refuses"), "{} {verb:?}: {said}", engine.name);
            assert!(!ran.stdout.contains("became_leader"));

            // An engine that checks no signatures lets everybody in.
            if engine.name == "ministack" {
                continue;
            }
            let ran = tenure(&engine, &[verb, &["--store", &store]].concat(), &[wrong]).assert_code(4);
            let ran = ran.assert_says(&["refuses"]);
            assert!(!ran.stderr.contains("not-the-secret"), "{}", ran.stderr);
        }
        assert_eq!(objects(&engine, &store), [""; 0], "{}: nothing is written", engine.name);
    }
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn who_may_only_read_is_denied_and_may_look() {
    for engine in engine::safe() {
        let Some((key, secret)) = &engine.reader else { continue };
        let reader = [("AWS_ACCESS_KEY_ID", key.as_str()), ("AWS_SECRET_ACCESS_KEY", secret.as_str())];
        let store = engine.store();
        for verb in [&["run", "--events", "--startup-jitter-max", "0"][..], &["doctor"]] {
            let ran = tenure(&engine, &[verb, &["--store", &store]].concat(), &reader).assert_code(4);
            let ran = ran.assert_says(&["refuses"]);
            assert!(!ran.stdout.contains("became_leader"), "{}", ran.stdout);
        }
        assert_eq!(objects(&engine, &store), [""; 0], "{}: nothing is written", engine.name);
        tenure(&engine, &["status", "--store", &store], &reader).assert_code(3);

        let sandbox = Sandbox::new();
        let mut cluster = Cluster::new(&sandbox, &store, STEADY).envs(engine.env());
        cluster.start("pod-a");
        cluster.leader(0);
        let status = tenure(&engine, &["status", "--json", "--store", &store], &reader);
        assert_eq!(status.assert_code(0).json()["leader"]["node"], "pod-a");
        cluster.finish();
    }
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn a_seat_on_a_bucket_that_cannot_be_read_is_left_alone() {
    let newer = r#"{"v": 2, "epoch": 7, "state": "held", "somebody": "of the future"}"#;
    for engine in engine::safe() {
        for (bad, problem) in [("{\"v\": 1, ", "corrupt"), (newer, "newer version")] {
            let sandbox = Sandbox::new();
            let store = engine.store();
            within(async {
                let lanes = lanes(&engine, &store).await;
                let answer = lanes.lease.put(SEAT, bad.into(), Condition::Absent).await;
                assert!(matches!(answer, Write::Won(_)), "{}: {answer:?}", engine.name);
            });
            tenure(&engine, &["status", "--store", &store], &[]).assert_code(6).assert_says(&[SEAT]);
            let mut cluster = Cluster::new(&sandbox, &store, PATIENT).envs(engine.env());
            let life = cluster.start("pod-a");
            let said = cluster.event(0, life, "seat_unreadable");
            assert_eq!(said.text("problem"), problem, "{}", engine.name);
            cluster.signal(life, Signal::TERM);
            assert_eq!(cluster.exit(life).code(), Some(0), "{}", engine.name);
            cluster.finish();
            within(async {
                match lanes(&engine, &store).await.lease.get(SEAT, None).await {
                    Read::Found(object) => assert_eq!(&object.body[..], bad.as_bytes(), "{}", engine.name),
                    other => panic!("{}: {other:?}", engine.name),
                }
            });
        }
    }
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn an_engine_that_ignores_conditions_is_refused() {
    for engine in engine::all().into_iter().filter(|engine| !engine.is_safe) {
        let store = engine.store();
        let ran = tenure(&engine, &["doctor", "--store", &store], &[]).assert_code(5);
        assert!(ran.stdout.contains("FAIL"), "{}", ran.stdout);
        let ran = ran.assert_says(&["does not honour conditional writes", "Do not use it"]);
        assert_eq!(ran.stderr.lines().count(), 1, "one plain sentence: {}", ran.stderr);
        let report = tenure(&engine, &["doctor", "--json", "--store", &store], &[]).assert_code(5).json();
        assert_eq!(report["safe"], false);

        let ran = tenure(&engine, &["run", "--events", "--startup-jitter-max", "0", "--store", &store], &[]);
        let ran = ran.assert_code(5).assert_says(&["does not honour conditional writes", "tenure doctor"]);
        assert!(ran.stdout.contains("store_unsafe") && !ran.stdout.contains("became_leader"), "{ran:?}");
        assert_eq!(objects(&engine, &store), [""; 0], "{}: the probe tidies up", engine.name);
        let [one, two] = with_peer(&engine, &store).map(|ran| ran.assert_code(5));
        for ran in [&one, &two] {
            assert!(ran.stdout.contains("two machines"), "{}", ran.stdout);
        }
        let told = [&one, &two]
            .map(|ran| ran.stdout.lines().any(|line| line.contains("FAIL") && line.contains("two machines")));
        assert!(told.contains(&true), "{}: neither saw it: {one:?}", engine.name);
    }
}

/// `doctor` from two machines, as far as the engine can tell.
fn with_peer(engine: &Engine, store: &str) -> [Ran; 2] {
    std::thread::scope(|scope| {
        let doctor = || tenure(engine, &["doctor", "--peer", "two", "--store", store], &[]);
        let other = scope.spawn(doctor);
        [doctor(), other.join().expect("it ended")]
    })
}

#[test]
#[ignore = "needs an S3 engine: cargo xtask test"]
fn doctor_trusts_the_engines_that_can_be_trusted() {
    for engine in engine::safe() {
        let store = engine.store();
        let ran = tenure(&engine, &["doctor", "--store", &store], &[]).assert_code(0);
        assert!(ran.stdout.contains("ETags") && !ran.stdout.contains("FAIL"), "{}: {ran:?}", engine.name);
        let report = tenure(&engine, &["doctor", "--json", "--store", &store], &[]).assert_code(0).json();
        assert_eq!(report["safe"], true, "{}", engine.name);
        for ran in with_peer(&engine, &store) {
            let ran = ran.assert_code(0);
            assert!(ran.stdout.contains("two machines"), "{}: {}", engine.name, ran.stdout);
        }
        assert_eq!(objects(&engine, &store), [""; 0], "{}", engine.name);
    }
}

/// Tests that assert how long something takes. They run one at a time: `.config/nextest.toml`.
mod measured {
    use super::*;

    #[test]
    #[ignore = "needs an S3 engine: cargo xtask test"]
    fn sb1_on_a_bucket_exactly_the_first_by_name_leads() {
        let orders = [["pod-a", "pod-b", "pod-c"], ["pod-c", "pod-b", "pod-a"], ["pod-b", "pod-c", "pod-a"]];
        for engine in engine::safe() {
            let rounds = if engine.name == "seaweedfs" { 6 } else { 3 };
            for round in 0..rounds {
                let sandbox = Sandbox::new();
                let mut cluster = Cluster::new(&sandbox, &engine.store(), FIRST_BY_NAME).envs(engine.env());
                let lives = cluster.start_all(&orders[round % orders.len()]);
                let leader = cluster.leader(0);
                for life in lives {
                    let seen = cluster.event(0, life, "leader:changed");
                    assert_eq!(seen.text("newLeader"), "pod-a", "{} {round}: {}", engine.name, seen.event);
                }
                cluster.event(0, leader.life, "lease_renewed");
                let history = cluster.finish();
                let leaders: Vec<_> = history.iter().filter(|said| said.name() == "became_leader").collect();
                assert_eq!(leaders.len(), 1, "{} round {round}: {leaders:?}", engine.name);
                assert_eq!((leaders[0].node.as_str(), leaders[0].epoch()), ("pod-a", 1), "{}", engine.name);
            }
        }
    }

    #[test]
    #[ignore = "needs an S3 engine: cargo xtask test"]
    fn fo1_on_a_bucket_a_killed_leader_is_replaced_in_time() {
        for engine in engine::safe() {
            for (settings, bound_ms) in [(PLAIN, 10_000), (FAST, 2_500)] {
                let sandbox = Sandbox::new();
                let mut cluster = Cluster::new(&sandbox, &engine.store(), settings).envs(engine.env());
                cluster.start_all(&["pod-a", "pod-b", "pod-c"]);
                let leader = cluster.leader(0);
                cluster.event(0, leader.life, "lease_renewed");
                let mark = cluster.mark();
                let killed_ms = cluster.kill(leader.life);
                let next = cluster.leader(mark);
                let took_ms = took_ms(killed_ms, next.boot_ms());
                println!("fo1 {}: {took_ms} ms of {bound_ms}", engine.name);
                assert!(took_ms <= bound_ms, "{}: {took_ms} ms", engine.name);
                assert_eq!(next.epoch(), leader.epoch() + 1);
                cluster.finish();
            }
        }
    }

    #[test]
    #[ignore = "needs an S3 engine: cargo xtask test"]
    fn fo2_fo3_on_a_bucket_a_leader_hands_over_and_comes_back_as_standby() {
        for engine in engine::safe() {
            let sandbox = Sandbox::new();
            let store = engine.store();
            let mut cluster = Cluster::new(&sandbox, &store, PLAIN).envs(engine.env());
            cluster.start_all(&["pod-a", "pod-b"]);
            let leader = cluster.leader(0);
            cluster.event(0, leader.life, "lease_renewed");
            let mark = cluster.mark();
            let told_ms = cluster.signal(leader.life, Signal::TERM);
            assert_eq!(cluster.exit(leader.life).code(), Some(0));
            let next = cluster.leader(mark);
            let took_ms = took_ms(told_ms, next.boot_ms());
            println!("fo2 {}: {took_ms} ms", engine.name);
            assert!(took_ms <= 5_000, "{}: {took_ms} ms", engine.name);
            assert_eq!(next.epoch(), leader.epoch() + 1);

            let mark = cluster.mark();
            let again = cluster.start(&leader.node);
            cluster.event(mark, again, "joined");
            let joined = cluster.mark();
            let check = cluster.event(joined, again, "election_check");
            assert_eq!(check.text("leader"), next.node);
            let arguments = ["status", "--json", "--store", store.as_str()];
            let status = tenure(&engine, &arguments, &[]).assert_code(0).json();
            assert_eq!(status["leader"]["node"], next.node);
            assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status}");
            cluster.finish();
        }
    }

    #[test]
    #[ignore = "needs an S3 engine: cargo xtask test"]
    fn sb3_an_engine_that_goes_away_costs_leadership_by_the_deadline_and_is_rejoined() {
        for engine in engine::safe() {
            let sandbox = Sandbox::new();
            let proxy = Proxy::to(&engine.endpoints[0]);
            let environment = engine.env_at(&proxy.url());
            let mut cluster = Cluster::new(&sandbox, &engine.store(), PATIENT).envs(environment);
            let life = cluster.start("pod-a");
            let first = cluster.leader(0).epoch();
            for epoch in first + 1..first + 3 {
                let mark = cluster.mark();
                cluster.event(mark, life, "lease_renewed");
                proxy.cut();
                let lost = cluster.event(mark, life, "lost_leadership");
                let leases = cluster.history().iter();
                let leases = leases.filter(|said| ["became_leader", "lease_renewed"].contains(&said.name()));
                let deadline_ms = leases.map(|said| said.number("deadlineBootMs")).max().unwrap();
                let late_ms = took_ms(deadline_ms, lost.boot_ms());
                assert!(late_ms <= 1_000, "{}: {} after {deadline_ms}", engine.name, lost.event);
                cluster.event(mark, life, "store_unavailable");
                let mark = cluster.mark();
                proxy.mend();
                let again = cluster.leader(mark);
                assert_eq!((again.life, again.epoch()), (life, epoch), "{}", engine.name);
                // Told a lease later; until then a new outage is the old one.
                cluster.event(mark, life, "store_recovered");
            }
            cluster.finish();
        }
    }
}
