//! Workers and jobs in any language.

use crate::common::{Site, options, sleep_ms};
use serde_json::{Value, json};
use std::time::Duration;
use tenure::event::EventKind;
use tenure::job::{Dispatcher, JobSpec, JobState, Submitted};
use tenure_server::Limits;

async fn register(site: &Site, body: Value) -> String {
    let answer = site.post("/v1/workers", body).await.is(201).json();
    assert_eq!(answer["phase"], "registered");
    answer["registration"].as_str().expect("a registration").to_owned()
}

#[tokio::test(start_paused = true)]
async fn gd4_a_worker_lives_while_its_client_is_heard_of_and_times_out_once_when_it_is_not() {
    let mut site = Site::new().await;
    let registration =
        register(&site, json!({"workerId": "w1", "pluginType": "queue", "payload": {"lang": "any"}})).await;
    let object = site.object("workers/w1.json").await.expect("registered");
    assert_eq!((&object["pluginType"], &object["payload"]["lang"]), (&json!("queue"), &json!("any")));
    let sign = json!({"registration": registration});
    for _ in 0..20 {
        sleep_ms(15_000).await;
        let heard = site.post("/v1/workers/w1/heartbeat", sign.clone()).await.is(200).json();
        assert_eq!((&heard["enabled"], &heard["epoch"]), (&json!(true), &json!(1)));
        assert!(heard["leaseRemainingMs"].is_u64());
    }
    let silences = |site: &Site| site.node.metrics().worker_timeouts;
    assert_eq!(silences(&site), 0, "five minutes of heartbeats");
    let last = tokio::time::Instant::now();
    site.event(|kind| matches!(kind, EventKind::WorkerTimeout(facts) if facts.worker_id.as_str() == "w1"))
        .await;
    let took = last.elapsed();
    // Its timeout until it is let go, its timeout again until the leader tells, and some seconds of looking.
    assert!(took > Duration::from_secs(20) && took < Duration::from_secs(55), "{took:?}");
    assert!(site.object("workers/w1.json").await.is_some(), "as of one that crashed, its object stays");
    site.post("/v1/workers/w1/heartbeat", sign).await.problem(404, "unknown-worker");
    sleep_ms(60_000).await;
    assert_eq!(silences(&site), 1, "told once");
    // And it may come back.
    let again = site.post("/v1/workers", json!({"workerId": "w1", "pluginType": "queue"})).await;
    assert!([201, 202].contains(&again.status.as_u16()), "{}", again.text);
    site.event(|kind| matches!(kind, EventKind::WorkerRecovered(_) | EventKind::WorkerRegistered(_))).await;
}

#[tokio::test(start_paused = true)]
async fn su1_jobs_are_submitted_over_http_and_a_worker_gets_them() {
    let site = Site::new().await;
    let new =
        json!({"kind": "send", "id": "mail-1", "queue": "mail", "priority": 7, "payload": {"to": "ada"}});
    let answer = site.post("/v1/jobs", json!({"jobs": [new, {"kind": "send", "payload": "hello"}]})).await;
    let submitted = answer.is(202).json();
    assert_eq!(submitted["jobs"][0], json!({"id": "mail-1", "existed": false}));
    let again =
        site.post("/v1/jobs", json!({"jobs": [{"kind": "send", "id": "mail-1"}]})).await.is(202).json();
    assert_eq!(again["jobs"][0], json!({"id": "mail-1", "existed": true}));
    let shown = site.get("/v1/jobs/mail-1").await.is(200).json();
    assert_eq!(
        (&shown["queue"], &shown["priority"], &shown["state"]),
        (&json!("mail"), &json!(7), &json!("queued"))
    );
    for (body, says) in [
        (json!({"jobs": []}), "at least one"),
        (json!({"jobs": [{"kind": "a/b"}]}), "kind"),
        (json!({"jobs": [{"kind": "send", "priority": 10}]}), "priority"),
        (json!({"jobs": [{"kind": "send", "queue": "a/b"}]}), "queue"),
        (json!({"jobs": [{"kind": "send", "notBefore": u64::MAX}]}), "notBefore"),
        (json!({"jobs": [{"kind": "send", "colour": "red"}]}), "colour"),
    ] {
        let refused = site.post("/v1/jobs", body).await.problem(422, "invalid");
        assert!(refused.text.contains(says), "{}", refused.text);
    }
    let _dispatcher = Dispatcher::start(&site.node.jobs(), site.node.lead().await.expect("it leads"));
    let registration = register(&site, json!({"workerId": "w1", "kinds": ["send"]})).await;
    let ask = json!({"registration": registration, "waitMs": 8000});
    let mut payloads = Vec::new();
    for _ in 0..20 {
        let given = site.post("/v1/workers/w1/jobs/next", ask.clone()).await;
        if given.status.as_u16() == 200 {
            let given = given.json();
            payloads.push(given["payload"].clone());
            let attempt =
                json!({"workerId": "w1", "registration": registration, "attempt": given["attempt"]});
            let path = format!("/v1/jobs/{}", given["id"].as_str().expect("an id"));
            site.post(&format!("{path}/ack"), attempt.clone()).await.is(204);
            // qu6: it says how far it is.
            let mut far = attempt.clone();
            (far["percent"], far["text"]) = (json!(40), json!("sending"));
            site.post(&format!("{path}/progress"), far.clone()).await.is(204);
            far["percent"] = json!(101);
            site.post(&format!("{path}/progress"), far).await.problem(422, "invalid");
            let mut done = attempt;
            (done["outcome"], done["result"]) = (json!("succeeded"), json!("sent"));
            site.post(&format!("{path}/result"), done.clone()).await.is(200);
            let over = json!({"workerId": "w1", "registration": registration, "attempt": 1, "percent": 50});
            site.post(&format!("{path}/progress"), over).await.is(404);
        }
        if payloads.len() == 2 {
            break;
        }
        site.post("/v1/workers/w1/heartbeat", json!({"registration": registration})).await.is(200);
    }
    assert_eq!(payloads, [json!({"to": "ada"}), json!("hello")], "the higher priority first");
}

#[tokio::test(start_paused = true)]
async fn hi1_what_a_job_says_is_sent_and_read_over_http() {
    let site = Site::new().await;
    let _dispatcher = dispatcher(&site).await;
    let registration = register(&site, json!({"workerId": "w1", "kinds": ["send"]})).await;
    site.post("/v1/jobs", json!({"jobs": [{"kind": "send", "id": "mail-1"}]})).await.is(202);
    site.get("/v1/jobs/mail-1/output").await.problem(404, "no-output");
    let given = loop {
        let ask = json!({"registration": registration, "waitMs": 8000});
        let given = site.post("/v1/workers/w1/jobs/next", ask).await;
        if given.status.as_u16() == 200 {
            break given.json();
        }
    };
    let mine = json!({"workerId": "w1", "registration": registration, "attempt": given["attempt"]});
    site.post("/v1/jobs/mail-1/ack", mine.clone()).await.is(204);
    let with = |more: Value| {
        let mut body = mine.clone();
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    for (wrong, says) in [
        (json!({}), "percent"),
        (json!({"text": "sending", "output": "x"}), "percent"),
        (json!({"output": "x".repeat(32_769)}), "several requests"),
    ] {
        let refused = site.post("/v1/jobs/mail-1/progress", with(wrong)).await.problem(422, "invalid");
        assert!(refused.text.contains(says), "{}", refused.text);
    }
    site.post("/v1/jobs/mail-1/progress", with(json!({"output": "to ada\n"}))).await.is(204);
    site.post("/v1/jobs/mail-1/progress", with(json!({"percent": 50, "output": "to bob\n"}))).await.is(204);
    let done = with(json!({"outcome": "failed", "result": "refused", "output": "550 no such user\n"}));
    site.post("/v1/jobs/mail-1/result", done).await.is(200);
    sleep_ms(1000).await;
    let said = site.get("/v1/jobs/mail-1/output").await.is(200).json();
    let text = "to ada\nto bob\n550 no such user\n";
    assert_eq!(said["first"], json!([{"stream": "stdout", "text": text}]), "{said}");
    assert_eq!(
        (&said["namespace"], &said["attempt"], &said["leftOut"]),
        (&json!("test"), &json!(1), &json!(0))
    );
    let plain = site.get("/v1/jobs/mail-1/output?attempt=1&format=text").await.is(200);
    assert_eq!((plain.header("content-type"), plain.text.as_str()), ("text/plain; charset=utf-8", text));
    let other = site.get("/v1/jobs/mail-1/output?attempt=7").await.problem(404, "no-output");
    assert!(other.text.contains("attempt 7") && other.text.contains("of attempt 1"), "{}", other.text);
    site.get("/v1/jobs/mail-2/output").await.problem(404, "unknown-job");
    site.get("/v1/jobs/mail-1/output?format=html").await.problem(400, "malformed");
    site.get("/v1/jobs/mail-1/output?part=1").await.problem(400, "malformed");
}

#[tokio::test(start_paused = true)]
async fn a_registration_belongs_to_its_client_and_can_be_repeated() {
    let site = Site::new().await;
    let body = json!({"workerId": "w1", "registration": "client-chosen-0001"});
    site.post("/v1/workers", body.clone()).await.is(201);
    site.post("/v1/workers", body).await.is(200);
    site.post("/v1/workers", json!({"workerId": "w1"})).await.problem(409, "worker-held");
    site.post("/v1/workers", json!({"workerId": "w1", "registration": "client-chosen-0002"}))
        .await
        .problem(409, "worker-held");
    let wrong = json!({"registration": "client-chosen-0002"});
    site.post("/v1/workers/w1/heartbeat", wrong).await.problem(409, "worker-held");
    site.delete("/v1/workers/w1?registration=client-chosen-0002").await.problem(409, "worker-held");
    site.delete("/v1/workers/w1").await.problem(400, "malformed");
    site.delete("/v1/workers/w1?registration=client-chosen-0001").await.is(204);
    assert!(site.object("workers/w1.json").await.is_none(), "removed");
    site.delete("/v1/workers/w1?registration=client-chosen-0001").await.problem(404, "unknown-worker");
    // Somebody who is registered elsewhere keeps the id.
    let elsewhere = site.node.register_worker(tenure::worker::WorkerSpec::new("w2", "queue")).expect("valid");
    elsewhere.registered().await.expect("registered");
    let refused = site.post("/v1/workers", json!({"workerId": "w2"})).await;
    assert!([202, 409].contains(&refused.status.as_u16()), "{}", refused.text);
    if refused.status == 202 {
        let registration = refused.json()["registration"].clone();
        sleep_ms(15_000).await;
        site.post("/v1/workers/w2/heartbeat", json!({"registration": registration}))
            .await
            .problem(409, "worker-held");
    }
}

#[tokio::test(start_paused = true)]
async fn what_breaks_a_rule_is_not_registered() {
    let mut limits = Limits::default();
    limits.workers = 2;
    let site = Site::with(options().limits(limits), |settings| settings).await;
    for bad in [
        json!({"workerId": "../seat"}),
        json!({"workerId": ""}),
        json!({"workerId": "x".repeat(129)}),
        json!({"workerId": "w", "pluginType": "a/b"}),
        json!({"workerId": "w", "pod": " "}),
        json!({"workerId": "w", "timeout": 1}),
        json!({"workerId": "w", "timeout": u64::MAX}),
        json!({"workerId": "w", "payload": {"x": "y".repeat(9000)}}),
        json!({"workerId": "w", "payload": []}),
        json!({"workerId": "w", "registration": "short"}),
        json!({"workerId": "w", "kinds": ["a b"]}),
        json!({"workerId": "w", "kinds": vec!["k"; 65]}),
        json!({"workerId": "w", "concurrency": 0}),
        json!({"workerId": "w", "concurrency": 17}),
        json!({"workerId": "w", "unheardOf": 1}),
        json!({"workerId": 7}),
        json!({}),
        json!([]),
    ] {
        site.post("/v1/workers", bad.clone()).await.problem(422, "invalid");
    }
    register(&site, json!({"workerId": "w1"})).await;
    register(&site, json!({"workerId": "w2"})).await;
    site.post("/v1/workers", json!({"workerId": "w3"})).await.problem(503, "busy");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_over_http_is_a_matter_of_minutes() {
    let site = Site::new().await;
    let day = site.post("/v1/workers", json!({"workerId": "w1", "timeout": 86_400_000})).await;
    let day = day.problem(422, "invalid");
    assert!(day.text.contains("timeout = 86400000") && day.text.contains("600000"), "{}", day.text);
    assert!(site.object("workers/w1.json").await.is_none(), "nothing was written");
    register(&site, json!({"workerId": "w1", "timeout": 600_000})).await;
    // And a long default of the namespace is cut for them, not refused.
    let long =
        Site::with(options(), |settings| settings.worker_timeout(Duration::from_millis(3_600_000))).await;
    let answer = long.post("/v1/workers", json!({"workerId": "w1"})).await.is(201).json();
    assert_eq!(answer["heartbeatWithinMs"], 600_000);
}

/// As many as may be, from one address; at most 600 are tried.
async fn register_all(site: &Site, kinds: &[&str]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for number in 0..600 {
        let id = format!("w{number}");
        let answer =
            site.post("/v1/workers", json!({"workerId": id, "kinds": kinds, "timeout": 600_000})).await;
        if answer.status == 429 && answer.text.contains("through another") {
            return all;
        }
        if answer.status == 429 {
            sleep_ms(1000).await;
            continue;
        }
        all.push((id, answer.is(201).json()["registration"].as_str().expect("text").to_owned()));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn workers_over_http_stay_within_what_clients_may_ask_the_store() {
    let mut limits = Limits::default();
    limits.workers_per_client = 600;
    let usual = limits;
    limits.store_per_second = 25.0;
    let site = Site::with(options().limits(limits), |settings| settings).await;
    let all = register_all(&site, &[]).await;
    assert_eq!(all.len(), 100, "20 writes a second, one every 5 s for each");
    let wrote = || site.meter.snapshot().put;
    let (before, began) = (wrote(), tokio::time::Instant::now());
    for _ in 0..6 {
        sleep_ms(10_000).await;
        for (id, registration) in &all {
            let sign = json!({"registration": registration});
            site.post(&format!("/v1/workers/{id}/heartbeat"), sign).await.is(200);
        }
    }
    let per_second = (wrote() - before) as f64 / began.elapsed().as_secs_f64();
    assert!(per_second < 25.0, "{per_second} writes a second, the node's own included");
    // One that leaves makes room for another.
    let (id, registration) = &all[0];
    site.delete(&format!("/v1/workers/{id}?registration={registration}")).await.is(204);
    register(&site, json!({"workerId": "another"})).await;
    // One that takes jobs looks for them, too.
    let site = Site::with(options().limits(usual), |settings| settings).await;
    assert_eq!(register_all(&site, &["mail"]).await.len(), 50, "60 a second, each a look a second as well");
}

#[tokio::test(start_paused = true)]
async fn one_client_does_not_take_all_the_places() {
    let mut limits = Limits::default();
    limits.workers_per_client = 2;
    let site = Site::with(options().limits(limits), |settings| settings).await;
    let from = async |address: &str, id: &str| {
        let body = json!({"workerId": id, "registration": format!("client-chosen-{id}")}).to_string();
        let mut request = crate::common::request(axum::http::Method::POST, "/v1/workers", body.into());
        let address = tenure_server::ClientAddress(address.parse().expect("an address"));
        request.extensions_mut().insert(address);
        site.send(request).await
    };
    from("10.0.0.1", "w1").await.is(201);
    from("10.0.0.1", "w2").await.is(201);
    let third = from("10.0.0.1", "w3").await.problem(429, "too-many");
    assert!(third.text.contains("10.0.0.1") && third.text.contains('2'), "{}", third.text);
    from("10.0.0.1", "w1").await.is(200);
    from("10.0.0.2", "w3").await.is(201);
}

async fn dispatcher(site: &Site) -> Dispatcher {
    let guard = site.node.lead().await.expect("leads");
    let dispatcher = Dispatcher::start(&site.node.jobs(), guard);
    assert!(dispatcher.ready().await);
    dispatcher
}

async fn known(site: &Site) {
    let mut workers = site.node.workers();
    let known = workers.wait_for(|workers| workers.active == 1);
    tokio::time::timeout(Duration::from_secs(120), known).await.expect("in time").expect("the node runs");
}

#[tokio::test(start_paused = true)]
async fn ef4_a_job_goes_to_a_client_and_its_result_to_the_leader() {
    let site = Site::new().await;
    let registration = register(&site, json!({"workerId": "w1", "kinds": ["mail"], "timeout": 60_000})).await;
    known(&site).await;
    let dispatcher = dispatcher(&site).await;
    let ask = json!({"registration": registration, "waitMs": 20_000});
    let began = tokio::time::Instant::now();
    site.post("/v1/workers/w1/jobs/next", json!({"registration": registration, "waitMs": 500})).await.is(204);
    assert!(began.elapsed() >= Duration::from_millis(500), "a long poll waits");
    let spec = JobSpec::new("mail-1", "mail").payload(r#"{"to":"a@b"}"#).worker("w1");
    assert_eq!(dispatcher.submit(spec).await, Ok(Submitted::Created));
    let job = site.post("/v1/workers/w1/jobs/next", ask.clone()).await.is(200).json();
    assert_eq!((&job["id"], &job["attempt"], &job["epoch"]), (&json!("mail-1"), &json!(1), &json!(1)));
    assert_eq!((&job["kind"], &job["payload"]["to"]), (&json!("mail"), &json!("a@b")));
    assert_eq!(job["payloadBase64"], "eyJ0byI6ImFAYiJ9");
    // Not acknowledged: it is given out again, as the same attempt.
    let again = site.post("/v1/workers/w1/jobs/next", ask.clone()).await.is(200).json();
    assert_eq!(again, job);
    let mine = json!({"workerId": "w1", "registration": registration, "attempt": 1});
    site.post("/v1/jobs/mail-1/ack", mine.clone()).await.is(204);
    site.post("/v1/workers/w1/jobs/next", json!({"registration": registration, "waitMs": 15_000}))
        .await
        .is(204);
    let with = |more: Value| {
        let mut body = mine.clone();
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let long = with(json!({"outcome": "succeeded", "result": "x".repeat(1025)}));
    site.post("/v1/jobs/mail-1/result", long).await.problem(422, "invalid");
    site.post("/v1/jobs/mail-1/result", with(json!({"outcome": "maybe"}))).await.problem(422, "invalid");
    site.post("/v1/jobs/other/result", with(json!({"outcome": "failed"}))).await.problem(404, "unknown-job");
    let done = with(json!({"outcome": "succeeded", "result": "sent"}));
    assert_eq!(site.post("/v1/jobs/mail-1/result", done.clone()).await.is(200).json()["accepted"], true);
    site.post("/v1/jobs/mail-1/result", done).await.problem(404, "unknown-job");
    sleep_ms(10_000).await;
    let record =
        dispatcher.jobs().await.iter().find(|job| job.id.as_str() == "mail-1").cloned().expect("known");
    assert_eq!((record.state, &*record.result), (JobState::Succeeded, &b"sent"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_gives_its_jobs_back_and_one_called_off_is_told() {
    let site = Site::new().await;
    let registration = register(&site, json!({"workerId": "w1", "kinds": ["mail"], "timeout": 30_000})).await;
    known(&site).await;
    let dispatcher = dispatcher(&site).await;
    dispatcher.submit(JobSpec::new("mail-1", "mail").worker("w1")).await.expect("submitted");
    let ask = json!({"registration": registration});
    let mine = json!({"workerId": "w1", "registration": registration, "attempt": 1});
    site.post("/v1/workers/w1/jobs/next", ask.clone()).await.is(200);
    site.post("/v1/jobs/mail-1/ack", mine.clone()).await.is(204);
    dispatcher.cancel(&tenure::id::JobId::new("mail-1").expect("valid")).await;
    sleep_ms(10_000).await;
    let mut late = mine.clone();
    late["outcome"] = json!("succeeded");
    site.post("/v1/jobs/mail-1/result", late).await.problem(404, "unknown-job");
    site.post("/v1/jobs/mail-1/ack", mine).await.problem(404, "unknown-job");
    // Deregistering does not wait for what is under way.
    dispatcher.submit(JobSpec::new("mail-2", "mail").worker("w1")).await.expect("submitted");
    site.post("/v1/workers/w1/jobs/next", ask).await.is(200);
    let began = tokio::time::Instant::now();
    site.delete(&format!("/v1/workers/w1?registration={registration}")).await.is(204);
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn ef1_the_fence_judges_and_nobody_can_poison_it() {
    let site = Site::new().await;
    site.node.fence().observe(7);
    let judge = async |body: Value| site.post("/v1/fence", body).await.is(200).json();
    assert_eq!(judge(json!({"epoch": 7})).await["verdict"], "accept");
    assert_eq!(judge(json!({"epoch": 5})).await["verdict"], "reject_stale");
    let now = jiff::Timestamp::now().as_millisecond();
    let late = judge(json!({"id": "t", "epoch": 6, "dispatchedAt": now})).await;
    assert_eq!((&late["verdict"], &late["accepted"]), (&json!("accept_late"), &json!(true)));
    assert_eq!(
        judge(json!({"epoch": 6})).await["verdict"],
        "reject_stale",
        "without a time there is no grace"
    );
    assert_eq!(judge(json!({"epoch": 7, "deadline": now - 1})).await["verdict"], "reject_expired");
    let before = site.node.fence().drift_events();
    assert_eq!(judge(json!({"epoch": tenure::fence::EPOCH_MAX})).await["verdict"], "accept");
    assert_eq!(site.node.fence().epoch(), 7, "a number out of the air is not taken as known");
    assert_eq!(
        judge(json!({"epoch": 7})).await["verdict"],
        "accept",
        "so the present leader is not shut out"
    );
    assert_eq!((before, site.node.metrics().epoch_drift_events), (2, 2));
    for bad in [
        json!({}),
        json!({"epoch": -1}),
        json!({"epoch": tenure::fence::EPOCH_MAX + 1}),
        json!({"epoch": u64::MAX}),
        json!({"epoch": 1.5}),
        json!({"epoch": "7"}),
        json!({"epoch": 7, "x": 1}),
    ] {
        site.post("/v1/fence", bad).await.problem(422, "invalid");
    }
}

#[tokio::test(start_paused = true)]
async fn schedules_are_put_shown_paused_run_and_removed() {
    let site = Site::new().await;
    let web =
        json!({"every": "10s", "checks": [{"name": "home", "kind": "tcp", "host": "localhost", "port": 80}]});
    assert_eq!(site.put("/v1/schedules/web", web.clone()).await.is(201).json()["outcome"], "created");
    assert_eq!(site.put("/v1/schedules/web", web.clone()).await.is(200).json()["outcome"], "unchanged");
    let listed = site.get("/v1/schedules").await.is(200).json();
    assert_eq!(listed["schedules"][0]["id"], "web", "its own change is seen at once: {listed}");
    let shown = site.get("/v1/schedules/web").await.is(200).json();
    assert_eq!((&shown["schedule"]["id"], &shown["openJobs"]), (&json!("web"), &json!(0)));
    assert_eq!(site.post("/v1/schedules/web/pause", json!({})).await.is(200).json()["outcome"], "changed");
    assert_eq!(site.get("/v1/overview").await.json()["schedules"]["enabled"], 0);
    assert_eq!(site.post("/v1/schedules/web/resume", json!({})).await.is(200).json()["enabled"], true);
    let asked = site.post("/v1/schedules/web/run-now", json!({"name": "now"})).await.is(202).json();
    assert_eq!((&asked["outcome"], &asked["job"]), (&json!("asked"), &json!("web.run.now")), "{asked}");
    assert_eq!(
        site.post("/v1/schedules/web/run-now", json!({"name": "now"})).await.is(202).json()["outcome"],
        "existed"
    );
    let mut wrong = web.clone();
    wrong["id"] = json!("other");
    site.put("/v1/schedules/web", wrong).await.problem(422, "invalid");
    let many = site
        .put("/v1/schedules/bad", json!({"every": "x", "checks": [{"kind": "nope"}]}))
        .await
        .problem(422, "invalid")
        .json();
    assert!(many["problems"].as_array().is_some_and(|all| all.len() >= 2), "every fault at once: {many}");
    assert_eq!(site.delete("/v1/schedules/web").await.is(200).json()["outcome"], "removed");
    site.delete("/v1/schedules/web").await.problem(404, "unknown-schedule");
    site.get("/v1/schedules/web").await.problem(404, "unknown-schedule");
    site.post("/v1/schedules/web/pause", json!({})).await.problem(404, "unknown-schedule");
    sleep_ms(4000).await;
    site.get("/v1/jobs/none").await.problem(404, "unknown-job");
    site.get("/v1/jobs?state=nonsense").await.problem(400, "malformed");
    site.get("/v1/jobs?limit=1001").await.problem(400, "malformed");
}

#[tokio::test(start_paused = true)]
async fn the_leader_is_asked_to_step_down_and_another_leads() {
    let mut site = Site::new().await;
    let answer = site.post("/v1/step-down", json!({"waitMs": 10_000})).await.is(202).json();
    assert_eq!((&answer["asked"]["node"], &answer["asked"]["epoch"]), (&json!("pod-a"), &json!(1)));
    assert!(["led", "vacant"].contains(&answer["outcome"].as_str().expect("an outcome")), "{answer}");
    site.event(|kind| matches!(kind, EventKind::LostLeadership { .. })).await;
    site.post("/v1/step-down", json!({"waitMs": 10_001})).await.problem(422, "invalid");
}
