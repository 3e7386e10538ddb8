//! Queues, jobs and what can be done with them; and what a page that shows all of it costs.

use crate::common::{Site, options, sleep_ms};
use serde_json::{Value, json};
use std::time::Duration;
use tenure::job::Dispatcher;
use tenure::worker::WorkerSpec;
use tenure_server::Limits;

/// Documents are read again after a millisecond: what is asked for is there.
async fn fresh() -> Site {
    let mut limits = Limits::default();
    (limits.fresh, limits.fresh_per_request) = (Duration::from_millis(1), Duration::ZERO);
    Site::with(options().limits(limits), |settings| settings).await
}

async fn submit(site: &Site, jobs: Value) {
    site.post("/v1/jobs", json!({ "jobs": jobs })).await.is(202);
}

/// A worker's next job, however long it takes until the leader has heard of the worker.
async fn next_job(site: &Site, registration: &Value) -> Value {
    for _ in 0..20 {
        let ask = json!({"registration": registration, "waitMs": 8000});
        let given = site.post("/v1/workers/w1/jobs/next", ask).await;
        if given.status == 200 {
            return given.json();
        }
        site.post("/v1/workers/w1/heartbeat", json!({"registration": registration})).await.is(200);
    }
    panic!("no job came");
}

#[tokio::test(start_paused = true)]
async fn queues_are_counted_paused_and_resumed() {
    let site = fresh().await;
    assert_eq!(site.get("/v1/queues").await.is(200).json()["queues"], json!([]));
    submit(
        &site,
        json!([{"kind": "send", "queue": "mail"}, {"kind": "send", "queue": "mail"}, {"kind": "draw"}]),
    )
    .await;
    let _dispatcher = Dispatcher::start(&site.node.jobs(), site.node.lead().await.expect("it leads"));
    sleep_ms(20_000).await;
    let counted = |queue: &Value| (queue["queue"].clone(), queue["waiting"].clone(), queue["paused"].clone());
    let listed = async || -> Vec<(Value, Value, Value)> {
        sleep_ms(10).await;
        let all = site.get("/v1/queues").await.is(200).json();
        all["queues"].as_array().expect("queues").iter().map(counted).collect()
    };
    let paused = site.post("/v1/queues/mail/pause", json!({})).await.is(200).json();
    assert_eq!((&paused["queue"], &paused["paused"]), (&json!("mail"), &json!(true)), "{paused}");
    // A queue without jobs may be paused before it gets some.
    site.post("/v1/queues/later/pause", json!({})).await.is(200);
    let row = |name: &str, waiting: u64, paused: bool| (json!(name), json!(waiting), json!(paused));
    assert_eq!(listed().await, [row("default", 1, false), row("later", 0, true), row("mail", 2, true)]);

    let worker = json!({"workerId": "w1", "kinds": ["send"]});
    let registration = site.post("/v1/workers", worker).await.is(201).json()["registration"].clone();
    for _ in 0..3 {
        let ask = json!({"registration": registration, "waitMs": 8000});
        site.post("/v1/workers/w1/jobs/next", ask).await.is(204);
        site.post("/v1/workers/w1/heartbeat", json!({"registration": registration})).await.is(200);
    }
    let resumed = site.post("/v1/queues/mail/resume", json!({})).await.is(200).json();
    assert_eq!(resumed["paused"], false);
    next_job(&site, &registration).await;
    sleep_ms(10).await;
    let all = site.get("/v1/queues").await.json();
    let mail = all["queues"].as_array().expect("queues").iter().find(|queue| queue["queue"] == "mail");
    let mail = mail.expect("it has jobs");
    assert!(mail["running"].as_u64().is_some_and(|running| running > 0), "{mail}");
    let older = all["queues"][0]["oldestMs"].as_u64().expect("the one nobody takes");
    assert!(older >= 1, "{all}");
    for wrong in ["/v1/queues/a%2Fb/pause", "/v1/queues/%20/resume"] {
        site.post(wrong, json!({})).await.problem(400, "bad-id");
    }
    site.post("/v1/queues/mail/pause", json!({"for": "ever"})).await.problem(422, "invalid");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_cancelled_and_one_that_gave_up_is_tried_again() {
    let site = Site::new().await;
    let _dispatcher = Dispatcher::start(&site.node.jobs(), site.node.lead().await.expect("it leads"));
    submit(&site, json!([{"kind": "send", "id": "bad", "attempts": 1}, {"kind": "never", "id": "idle"}]))
        .await;
    let registration =
        site.post("/v1/workers", json!({"workerId": "w1", "kinds": ["send"]})).await.json()["registration"]
            .clone();
    assert_eq!(next_job(&site, &registration).await["id"], "bad");
    let failed = json!({"workerId": "w1", "registration": registration, "attempt": 1, "outcome": "failed", "result": "no"});
    site.post("/v1/jobs/bad/retry", json!({})).await.problem(422, "invalid");
    site.post("/v1/jobs/bad/result", failed).await.is(200);
    sleep_ms(20_000).await;
    let all = site.get("/v1/overview").await.json()["jobs"].clone();
    assert_eq!((&all["dead"], &all["waiting"], &all["running"]), (&json!(1), &json!(1), &json!(0)), "{all}");
    site.post("/v1/jobs/bad/retry", json!({"attempts": 0})).await.problem(422, "invalid");
    let asked = site.post("/v1/jobs/bad/retry", json!({})).await.is(202).json();
    assert_eq!((&asked["outcome"], &asked["state"]), (&json!("asked"), &json!("failed")), "{asked}");
    let given = next_job(&site, &registration).await;
    assert_eq!((&given["id"], &given["attempt"]), (&json!("bad"), &json!(2)));

    let asked = site.post("/v1/jobs/idle/cancel", json!({})).await.is(202).json();
    assert_eq!((&asked["outcome"], &asked["state"]), (&json!("asked"), &json!("queued")), "{asked}");
    sleep_ms(5000).await;
    // The list is older than that; what is open is looked at again.
    assert_eq!(site.get("/v1/jobs/idle").await.is(200).json()["state"], "cancelled");
    let over = site.post("/v1/jobs/idle/cancel", json!({})).await.is(202).json();
    assert_eq!(over["outcome"], "over");
    site.post("/v1/jobs/none/cancel", json!({})).await.problem(404, "unknown-job");
    sleep_ms(5000).await;
    site.post("/v1/jobs/none/retry", json!({})).await.problem(404, "unknown-job");
}

#[tokio::test(start_paused = true)]
async fn jobs_are_chosen_by_queue_and_by_several_states() {
    let site = fresh().await;
    submit(&site, json!([{"kind": "send", "id": "a", "queue": "mail"}, {"kind": "send", "id": "b"}])).await;
    sleep_ms(10).await;
    let ids = async |path: &str| -> Vec<Value> {
        let found = site.get(path).await.is(200).json();
        found["jobs"].as_array().expect("jobs").iter().map(|job| job["id"].clone()).collect()
    };
    assert_eq!(ids("/v1/jobs?queue=mail").await, [json!("a")]);
    assert_eq!(ids("/v1/jobs?state=running,queued&queue=default").await, [json!("b")]);
    assert_eq!(ids("/v1/jobs?state=failed,lost").await, Vec::<Value>::new());
    site.get("/v1/jobs?state=failed,lazy").await.problem(400, "malformed");
    site.get("/v1/jobs?queue=a/b").await.problem(400, "bad-id");
}

#[tokio::test(start_paused = true)]
async fn the_bill_is_that_of_all_nodes() {
    let a = Site::new().await;
    let b = Site::on(a.store.clone(), a.clock.clone(), "pod-b", options(), |settings| settings).await;
    assert_eq!(b.get("/v1/overview?maxAge=301").await.status, 400);
    sleep_ms(120_000).await;
    let overview = b.get("/v1/overview").await.is(200).json();
    let (bill, own) = (&overview["bill"], &overview["requests"]["costPerMonth"]);
    assert_eq!(bill["nodes"], 2, "{bill}");
    let (all, own) = (bill["costPerMonth"].as_f64().expect("dollars"), own.as_f64().expect("dollars"));
    assert!(all > 8.0 && own < all / 2.0, "the leader pays most: ${all}, of which ${own} here");
    let leader = &overview["nodes"][0];
    assert_eq!((&leader["node"], &leader["role"]), (&json!("pod-a"), &json!("leader")), "{leader}");
    assert!(leader["heartbeatP99Ms"].is_u64() && leader["costPerMonth"].as_f64() > Some(8.0), "{leader}");
    assert_eq!(overview["contention"]["thresholdMs"], 3000);
    assert_eq!((&overview["store"]["answers"], &overview["store"]["since"]), (&json!(true), &Value::Null));
    b.link.cut(true);
    sleep_ms(20_000).await;
    let store = b.get("/v1/overview").await.is(200).json()["store"].clone();
    assert_eq!(store["answers"], false, "{store}");
    assert!(store["since"].is_string() && store["detail"].is_string(), "{store}");
}

/// What the page asks for beside the overview: `dashboard/app.js` says how often.
const LISTS: [&str; 6] = [
    "/v1/queues",
    "/v1/schedules",
    "/v1/jobs?limit=100",
    "/v1/jobs?limit=300&state=dispatched,acked,running",
    "/v1/jobs?limit=50&state=failed,timed_out,lost,expired",
    "/v1/workers",
];

/// And when a term is new, or this old.
const TERMS: (&str, u64) = ("/v1/terms?limit=200", 60);

/// How long the page is open in the test.
const MINUTES: u64 = 15;

/// Requests billed as writes and as reads that a page causes meanwhile.
async fn caused(site: &Site, overview: &str, lists_every_s: u64) -> (u64, u64) {
    let begin = site.meter.snapshot();
    sleep_ms(MINUTES * 60_000).await;
    let quiet = site.meter.snapshot() - begin;
    let begin = site.meter.snapshot();
    for second in 0..MINUTES * 60 {
        if second % 2 == 0 {
            site.get(overview).await.is(200);
        }
        if second % lists_every_s == 0 {
            futures::future::join_all(LISTS.map(|path| site.get(path))).await;
        }
        if second % TERMS.1 == 0 {
            site.get(TERMS.0).await.is(200);
        }
        sleep_ms(1000).await;
    }
    let loud = site.meter.snapshot() - begin;
    (loud.write_class() - quiet.write_class(), loud.read_class() - quiet.read_class())
}

#[tokio::test(start_paused = true)]
async fn an_open_page_costs_what_the_documentation_says() {
    let site = Site::new().await;
    let worker = site.node.register_worker(WorkerSpec::new("w1", "queue")).expect("valid");
    worker.registered().await.expect("registered");
    let check = json!([{"name": "x", "kind": "tcp", "host": "h", "port": 1}]);
    for number in 0..5 {
        let schedule = json!({"every": "1d", "checks": check});
        site.put(&format!("/v1/schedules/s{number}"), schedule).await.is(201);
    }
    let page = include_str!("../../../docs/internals/cost.md");
    for (name, overview, every_s) in
        [("looked at", "/v1/overview", 5), ("not touched for ten minutes", "/v1/overview?maxAge=60", 60)]
    {
        let (writes, reads) = caused(&site, overview, every_s).await;
        let dollars = (writes as f64 * 5.0 + reads as f64 * 0.4) / 1e6 * 60.0 / MINUTES as f64;
        let row = page.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("a row");
        let numbers =
            row.split('|').skip(2).filter_map(|cell| cell.trim().trim_start_matches('$').parse().ok());
        let said: Vec<f64> = numbers.collect();
        let counted = [writes as f64 / MINUTES as f64, reads as f64 / MINUTES as f64, dollars];
        // Reads and their pauses fall a little differently in every version.
        let like = |(said, counted): (&f64, &f64)| (said - counted).abs() <= counted * 0.25;
        assert!(said.len() == 3 && said.iter().zip(&counted).all(like), "{row} but counted {counted:?}");
    }
}
