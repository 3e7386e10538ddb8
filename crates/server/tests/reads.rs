//! Looking: what is shown, how old it may be, and what it costs the store.

use crate::common::{Site, options, sleep_ms};
use serde_json::{Value, json};
use std::time::Duration;
use tenure::event::EventKind;
use tenure::process::Supervisor;
use tenure::settings::Preset;
use tenure::store::{Condition, Store};
use tenure_plugins::cluster_health::ClusterHealth;

#[tokio::test(start_paused = true)]
async fn the_leader_is_told_from_memory_under_its_names() {
    let site = Site::new().await;
    let before = site.meter.snapshot();
    for _ in 0..1000 {
        let leader = site.get("/v1/leader").await.is(200).json();
        assert_eq!((&leader["leader"], &leader["epoch"]), (&json!("pod-a"), &json!(1)));
        assert_eq!((&leader["role"], &leader["isLeader"]), (&json!("leader"), &json!(true)));
        assert!(leader["leaseRemainingMs"].as_u64().is_some_and(|ms| ms > 0 && ms <= 5000));
    }
    assert_eq!((site.meter.snapshot() - before).requests(), 0, "not one request for a thousand");
}

#[tokio::test(start_paused = true)]
async fn the_documents_are_those_of_the_command_line() {
    let site = Site::new().await;
    sleep_ms(3000).await;
    let status = site.get("/v1/status").await.is(200);
    assert!(!status.header("age").is_empty());
    let status = status.json();
    assert_eq!((&status["leader"]["node"], &status["leader"]["live"]), (&json!("pod-a"), &json!(true)));
    assert_eq!(status["nodes"][0]["role"], "leader");
    let nodes = site.get("/v1/nodes").await.is(200).json();
    assert_eq!(nodes["nodes"][0]["node"], "pod-a");
    let health = site.get("/v1/health/cluster").await.is(200).json();
    assert_eq!(health["status"], "unknown", "nobody judges here: {health}");
    assert_eq!(site.get("/v1/workers").await.is(200).json()["workers"], json!([]));
    let metrics = site.get("/v1/metrics").await.is(200).json();
    assert!(metrics["heartbeats"].as_u64().is_some_and(|count| count > 0), "{metrics}");
    assert!(metrics["heartbeatLatencyP99"].is_u64() && metrics["contentionEvents"].is_u64());
    assert_eq!(site.get("/v1/schedules").await.is(200).json()["schedules"], json!([]));
    assert_eq!(site.get("/v1/jobs").await.is(200).json()["jobs"], json!([]));
    assert_eq!(site.get("/v1/config").await.is(200).json()["http"]["readToken"], "not set");
    let figures = site.get("/metrics").await.is(200);
    assert!(figures.header("content-type").starts_with("application/openmetrics-text"));
    assert!(
        figures.text.contains("tenure_elections_total{namespace=\"test\"} 1")
            && figures.text.ends_with("# EOF\n")
    );
    assert_eq!(site.get("/").await.is(200).header("content-type"), "text/html; charset=utf-8");
}

#[tokio::test(start_paused = true)]
async fn the_overview_has_everything_and_waits_for_no_store() {
    let mut site = Site::new().await;
    sleep_ms(20_000).await;
    let all = site.get("/v1/overview").await.is(200).json();
    assert_eq!((&all["node"], &all["role"], &all["epoch"]), (&json!("pod-a"), &json!("leader"), &json!(1)));
    let leader = &all["leader"];
    assert_eq!(leader["isThisNode"], json!(true));
    assert!(leader["silentMs"].as_u64().is_some_and(|ms| ms <= 5000), "{leader}");
    assert!(leader["since"].is_string() && leader["seenSince"].is_string());
    assert!(leader["leaseRemainingMs"].as_u64().is_some_and(|ms| ms <= 5000));
    let samples = all["heartbeats"]["samplesMs"].as_array().expect("samples");
    assert!(samples.len() >= 10 && all["heartbeats"]["p99Ms"].is_u64(), "{all}");
    assert!(all["requests"]["lease"]["put"].as_u64().is_some_and(|puts| puts > 10));
    assert!(all["requests"]["costPerMonth"].as_f64().is_some_and(|cost| cost > 0.0));
    assert_eq!((&all["schedules"]["total"], &all["jobs"]["open"]), (&json!(0), &json!(0)));
    assert_eq!((&all["history"][0]["epoch"], &all["history"][0]["until"]), (&json!(1), &Value::Null));
    assert_eq!(all["notes"], json!([]));

    site.link.cut(true);
    site.event(|kind| matches!(kind, EventKind::LostLeadership { .. })).await;
    sleep_ms(30_000).await;
    let began = tokio::time::Instant::now();
    let cut = site.get("/v1/overview").await.is(200).json();
    assert!(began.elapsed() <= Duration::from_millis(1600), "{:?}", began.elapsed());
    assert!(!cut["notes"].as_array().expect("notes").is_empty(), "it says what it cannot tell: {cut}");
    assert_eq!(cut["nodes"][0]["node"], "pod-a", "the last that was known");
    assert!(cut["nodesAgeMs"].as_u64().is_some_and(|ms| ms >= 30_000));
    assert_eq!(cut["leader"], Value::Null, "it was this node, and is no more");
    let term = &cut["history"][0];
    assert!(term["until"].is_string() && term["reason"].is_string(), "{term}");
    site.get("/leaderz").await.problem(503, "not-leader");
    site.get("/livez").await.is(200);
    site.get("/v1/status").await.problem(503, "store");
}

#[tokio::test(start_paused = true)]
async fn clients_cannot_make_the_node_ask_the_store_more_than_so_often() {
    let site = Site::new().await;
    let quiet = {
        let before = site.meter.snapshot();
        sleep_ms(60_000).await;
        (site.meter.snapshot() - before).requests()
    };
    let before = site.meter.snapshot();
    let began = tokio::time::Instant::now();
    let paths = [
        "/v1/overview",
        "/v1/status",
        "/v1/nodes",
        "/v1/workers",
        "/v1/health/cluster",
        "/v1/terms",
        "/v1/schedules",
        "/v1/jobs",
        "/v1/jobs/none",
        "/v1/schedules/none",
    ];
    while began.elapsed() < Duration::from_secs(60) {
        let asks = (0..5).flat_map(|_| paths).map(|path| site.get(path));
        for answer in futures::future::join_all(asks).await {
            assert!([200, 404, 429].contains(&answer.status.as_u16()), "{}", answer.text);
        }
        sleep_ms(250).await;
    }
    let loud = (site.meter.snapshot() - before).requests();
    let caused = loud.saturating_sub(quiet);
    // Four documents at 4 a second, the terms less than once, searches at 16, and the bucket: 25 a second and 100 at once.
    assert!(caused <= (4 * 4 + 1 + 16 + 25) * 60 + 100, "{caused} requests in a minute");
    assert!(caused > 100, "the test asks at all: {caused}");
}

#[tokio::test(start_paused = true)]
async fn hi3_terms_are_told_over_http_and_outlive_the_node_that_saw_them() {
    let mut a = Site::new().await;
    let c = Site::on(a.store.clone(), a.clock.clone(), "pod-c", options(), |settings| settings).await;
    let health =
        [&a, &c].map(|site| Supervisor::new([ClusterHealth::new(&site.node).process()]).run(&site.node));
    sleep_ms(20_000).await;
    a.post("/v1/step-down", json!({})).await.is(202);
    a.event(|kind| matches!(kind, EventKind::LostLeadership { vacated: true, .. })).await;
    sleep_ms(20_000).await;
    let told = c.get("/v1/terms").await.is(200).json();
    assert_eq!((&told["namespace"], &told["epoch"]), (&json!("test"), &json!(2)), "{told}");
    let (now, before) = (&told["terms"][0], &told["terms"][1]);
    assert_eq!((&now["leader"], &now["leads"], now.get("ended")), (&json!("pod-c"), &json!(true), None));
    assert_eq!(
        (&before["leader"], &before["leads"], &before["ended"]),
        (&json!("pod-a"), &json!(false), &json!("step down"))
    );
    assert_eq!(before["why"], "stepped down (asked by a client over HTTP, through node pod-a)");

    // A node that has seen none of it.
    let d = Site::on(a.store.clone(), a.clock.clone(), "pod-d", options(), |settings| settings).await;
    sleep_ms(10_000).await;
    assert_eq!(d.get("/v1/terms").await.is(200).json(), told);
    assert_eq!(d.get("/v1/terms?limit=1").await.is(200).json()["terms"].as_array().map(Vec::len), Some(1));
    for wrong in ["limit=0", "limit=1001", "limit=x", "epoch=1"] {
        d.get(&format!("/v1/terms?{wrong}")).await.problem(400, "malformed");
    }
    // A newer epoch is shown at once, however young what was read before is.
    c.get("/v1/terms").await.is(200);
    c.node.step_down().await.expect("it leads");
    sleep_ms(10_000).await;
    let epoch = d.node.leadership().borrow().epoch;
    assert!(epoch > 2);
    assert_eq!(d.get("/v1/terms").await.is(200).json()["epoch"], epoch);

    d.link.cut(true);
    sleep_ms(10_000).await;
    d.get("/v1/terms").await.problem(503, "store");
    drop(health);
}

#[tokio::test(start_paused = true)]
async fn hi3_terms_that_cannot_be_read_are_named() {
    let site = Site::new().await;
    site.store.put("plg_coordinator_global/test/terms.json", "[]".into(), Condition::Any).await;
    let problem = site.get("/v1/terms").await.problem(503, "unreadable").json();
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("terms.json")), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_named_as_leader_who_is_known_to_lead_no_more() {
    let mut site = Site::new().await;
    sleep_ms(20_000).await;
    site.post("/v1/step-down", json!({})).await.is(202);
    site.event(|kind| matches!(kind, EventKind::LostLeadership { vacated: true, .. })).await;
    sleep_ms(10).await;
    let short = site.get("/v1/leader").await.is(200).json();
    assert_eq!((&short["leader"], &short["epoch"]), (&Value::Null, &json!(1)), "{short}");
    assert_eq!((&short["role"], &short["isLeader"]), (&json!("standby"), &json!(false)), "{short}");
    let all = site.get("/v1/overview").await.is(200).json();
    assert_eq!((&all["leader"], &all["epoch"]), (&Value::Null, &json!(1)), "{all}");
    site.event(|kind| matches!(kind, EventKind::BecameLeader { .. })).await;
    sleep_ms(10).await;
    assert_eq!(site.get("/v1/leader").await.json()["leader"], "pod-a");

    site.link.cut(true);
    site.event(|kind| matches!(kind, EventKind::LostLeadership { vacated: false, .. })).await;
    sleep_ms(10).await;
    assert_eq!(site.get("/v1/leader").await.json()["leader"], Value::Null);
    assert_eq!(site.get("/v1/overview").await.json()["leader"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn of_others_a_node_sees_silence_and_that_takes_a_while() {
    let a = Site::new().await;
    let c = Site::on(a.store.clone(), a.clock.clone(), "pod-c", options(), |settings| settings).await;
    sleep_ms(10_000).await;
    assert_eq!(c.get("/v1/leader").await.json()["leader"], "pod-a");
    // It does not answer any more; for a while nobody can know.
    a.link.cut(true);
    sleep_ms(1000).await;
    assert_eq!(c.get("/v1/leader").await.json()["leader"], "pod-a", "silence of a second says nothing");
    sleep_ms(30_000).await;
    assert_eq!(c.get("/v1/leader").await.json()["leader"], "pod-c");
}

/// The first thing to read: who may take over, and when.
#[tokio::test(start_paused = true)]
async fn while_nobody_leads_the_overview_says_since_when_and_who_may_claim_in_how_long() {
    let a = Site::new().await;
    let mut c = Site::on(a.store.clone(), a.clock.clone(), "pod-c", options(), |settings| settings).await;
    sleep_ms(10_000).await;
    let headline = |all: Value| {
        let text = |name: &str| all["headline"][name].as_str().expect("a text").to_owned();
        (text("tone"), text("text"))
    };
    let (tone, text) = headline(c.get("/v1/overview").await.json());
    assert_eq!(tone, "warn", "no process judges here: {text}");
    assert!(!text.contains("silent") && !text.contains("leader for"), "{text}");
    a.link.cut(true);
    c.event(|kind| matches!(kind, EventKind::LeaderDown { .. })).await;
    sleep_ms(10).await;
    let told = headline(c.get("/v1/overview").await.json());
    assert_eq!(told, ("bad".to_owned(), "No leader for 8 s. pod-c may claim in 1 s.".to_owned()));
    let began = tokio::time::Instant::now();
    c.event(|kind| matches!(kind, EventKind::BecameLeader { .. })).await;
    assert!(began.elapsed() <= Duration::from_millis(1100), "as it said: {:?}", began.elapsed());
    sleep_ms(10).await;
    let (tone, text) = headline(c.get("/v1/overview").await.json());
    assert!(tone == "warn" && !text.contains("No leader"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn renewals_do_not_drive_out_what_people_want_to_know() {
    let site = Site::with(options(), |settings| settings.preset(Preset::Fast)).await;
    // A thousand renewals and more.
    sleep_ms(1_200_000).await;
    let name = |told: &crate::common::Told| told.data["event"].as_str().unwrap_or_default().to_owned();
    let mut past = site.stream("/v1/events?recent=1000&level=info&follow=false", None).await;
    let mut all = Vec::new();
    while let Some(told) = past.told().await {
        all.push(told);
    }
    let names: Vec<String> = all.iter().map(name).collect();
    assert!(names.first().is_some_and(|first| first.ends_with(".joined")), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with(".became_leader")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("renewed") || name.contains("check")), "{names:?}");
    let newest = all.last().expect("an event");
    let mut last = site.stream("/v1/events?recent=1&level=info&follow=false", None).await;
    assert_eq!(last.told().await.as_ref(), Some(newest), "the newest of this level");
    assert_eq!(last.told().await, None, "and then it ends");

    // Who comes back after a thousand renewals has missed none of its level, and is told no such thing.
    let mut back = site.stream("/v1/events?level=info", Some(&all[0].id)).await;
    for expected in &all[1..] {
        assert_eq!(back.next().await, *expected);
    }
    // Renewals are no sign of life to it.
    let block = tokio::time::timeout(Duration::from_secs(16), back.block()).await.expect("a sign of life");
    assert_eq!(block.as_deref(), Some(": keep-alive"));
    site.post("/v1/step-down", json!({})).await.is(202);
    let told = back.next().await;
    assert!(told.event.is_empty() && !name(&told).contains("renewed"), "{told:?}");

    // Everything, without a gap in the numbers.
    let mut every = site.stream("/v1/events?recent=1000&follow=false", None).await;
    let number = |id: &str| id.split_once('-').expect("run and number").1.parse::<u64>().expect("a number");
    let first = number(&every.told().await.expect("an event").id);
    let mut count = 1;
    while let Some(told) = every.told().await {
        assert_eq!(number(&told.id), first + count);
        count += 1;
    }
    assert!(count >= 1000, "{count}");
    site.get("/v1/events?level=loud").await.problem(400, "malformed");
}

#[tokio::test(start_paused = true)]
async fn who_missed_events_of_its_level_is_told_at_info_level_too() {
    let site = Site::new().await;
    let mut stream = site.stream("/v1/events?recent=1&level=info&follow=false", None).await;
    let last = stream.told().await.expect("an event");
    for _ in 0..600 {
        let worker =
            site.node.register_worker(tenure::worker::WorkerSpec::new("w1", "queue")).expect("valid");
        worker.registered().await.expect("registered");
        worker.deregister().await;
    }
    let mut late = site.stream("/v1/events?level=info", Some(&last.id)).await;
    let told = late.next().await;
    assert_eq!((told.event.as_str(), &told.data["missed"]), ("missed", &Value::Null), "{told:?}");
    assert!(!late.next().await.id.is_empty(), "and goes on");
}

#[tokio::test(start_paused = true)]
async fn events_come_as_they_happen_with_the_json_of_the_command_line() {
    let mut site = Site::new().await;
    let mut stream = site.stream("/v1/events", None).await;
    let told = stream.next().await;
    let renewed = site.event(|kind| matches!(kind, EventKind::LeaseRenewed { .. })).await;
    assert_eq!(told.data, renewed.to_json());
    assert_eq!(told.event, "", "an ordinary message");
    let next = stream.next().await;
    let number = |id: &str| id.split_once('-').expect("run and number").1.parse::<u64>().expect("a number");
    assert_eq!(number(&next.id), number(&told.id) + 1);
    let mut past = site.stream("/v1/events?recent=1000", None).await;
    let first = past.next().await;
    assert!(
        first.data["event"].as_str().is_some_and(|name| name.ends_with(".joined")),
        "from the first on: {first:?}"
    );
    assert_eq!(number(&first.id), 1);
    site.get("/v1/events?recent=1001").await.problem(400, "malformed");
    site.get("/v1/events?recent=x").await.problem(400, "malformed");
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_misses_nothing_and_who_comes_back_too_late_is_told() {
    let site = Site::with(options(), |settings| settings.preset(Preset::Fast)).await;
    let mut stream = site.stream("/v1/events", None).await;
    let last = stream.next().await;
    drop(stream);
    sleep_ms(10_000).await;
    let mut back = site.stream("/v1/events", Some(&last.id)).await;
    let number = |id: &str| id.split_once('-').expect("run and number").1.parse::<u64>().expect("a number");
    for offset in 1..=20 {
        assert_eq!(number(&back.next().await.id), number(&last.id) + offset, "not one is missing");
    }
    // A thousand renewals and more.
    sleep_ms(600_000).await;
    let mut late = site.stream("/v1/events", Some(&last.id)).await;
    let told = late.next().await;
    assert_eq!((told.event.as_str(), told.id.as_str()), ("missed", ""));
    let missed = told.data["missed"].as_u64().expect("how many");
    assert_eq!(number(&late.next().await.id), number(&last.id) + missed + 1, "then the oldest there is");
    // The one that stayed and did not read is told the same.
    let told = loop {
        let told = back.next().await;
        if told.event == "missed" {
            break told;
        }
    };
    assert!(told.data["missed"].as_u64().is_some_and(|missed| missed > 800));

    for strange in ["00000000-7", "junk", "", &last.id.replace('-', "--"), &format!("{}9999999", last.id)] {
        let mut other = site.stream("/v1/events", Some(strange)).await;
        let told = other.next().await;
        assert_eq!((told.event.as_str(), &told.data["missed"]), ("missed", &Value::Null), "{strange:?}");
        assert!(!other.next().await.id.is_empty(), "and goes on");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_shows_that_it_lives_and_ends_when_the_server_closes() {
    let site = Site::new().await;
    site.link.cut(true);
    sleep_ms(60_000).await;
    let mut stream = site.stream("/v1/events", None).await;
    assert!(stream.block().await.expect("a greeting").contains("retry: "));
    let mut comments = 0;
    let began = tokio::time::Instant::now();
    while comments < 3 {
        let block =
            tokio::time::timeout(Duration::from_secs(16), stream.block()).await.expect("a sign of life");
        comments += u32::from(block.expect("it goes on").starts_with(": keep-alive"));
        assert!(began.elapsed() < Duration::from_secs(600));
    }
    site.closing.cancel();
    while stream.block().await.is_some() {}
    site.get("/readyz").await.problem(503, "stopping");
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_webhook_is_shown_to_no_reader() {
    let site = Site::new().await;
    let schedule = |webhook: &str| json!({"manual": true, "kind": "mail", "webhook": webhook});
    site.put("/v1/schedules/web", schedule("https://hooks.example.org/MARKED")).await.is(201);
    // Written by somebody who knows no rules.
    let bad =
        json!({"v": 1, "id": "bad", "manual": true, "kind": "mail", "webhook": "hooks.example.org/MARKED"});
    let key = "plg_coordinator_global/test/schedules/bad.json";
    site.store.put(key, bad.to_string().into(), Condition::Any).await;
    sleep_ms(10_000).await;
    for path in [
        "/v1/schedules",
        "/v1/schedules/web",
        "/v1/schedules/bad",
        "/v1/overview",
        "/v1/events?recent=1000&follow=false",
        "/v1/config",
        "/v1/metrics",
        "/metrics",
        "/openapi.json",
    ] {
        let answer = site.get(path).await;
        assert!(!answer.text.contains("MARKED"), "{path}: {}", answer.text);
    }
    let listed = site.get("/v1/schedules").await.is(200).json();
    assert_eq!(listed["schedules"][0]["webhook"], "https://hooks.example.org/…", "{listed}");
    let refused = site.put("/v1/schedules/web", schedule("https://hooks.example.org/…")).await;
    assert!(refused.problem(422, "invalid").text.contains("masked"));
}
