//! The document and the routes say the same.

use crate::common::{Site, request, sleep_ms};
use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};
use tenure::process::Supervisor;
use tenure::store::{Condition, Store};
use tenure_plugins::checks::{CheckResult, JobReport};
use tenure_plugins::cluster_health::ClusterHealth;
use tenure_plugins::schedules::{Rules, ScheduleOptions, ScheduleRunner, read_file};

fn document() -> Value {
    serde_json::to_value(tenure_server::document()).expect("JSON")
}

/// Every operation: method, path, what it may answer.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let method: Method = method.to_uppercase().parse().expect("a method");
            all.push((method, path.clone(), operation["responses"].clone()));
        }
    }
    all
}

#[test]
fn the_document_lists_every_route_once_and_describes_its_problems() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let operations = operations(&document);
    assert_eq!(operations.len(), tenure_server::route_names().len());
    assert!(operations.len() >= 30, "{}", operations.len());
    let mut ids: Vec<String> = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for operation in item.as_object().expect("operations").values() {
            ids.push(operation["operationId"].as_str().expect("an id").to_owned());
            assert!(operation["summary"].is_string(), "{path} says what it does");
            let problem =
                &operation["responses"]["503"]["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(problem, "#/components/schemas/Problem", "{path}");
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "every operation has an id of its own");
    let text = document.to_string();
    for (at, _) in text.match_indices("#/components/schemas/") {
        let name: String = text[at + 21..].chars().take_while(|c| c.is_alphanumeric()).collect();
        assert!(document["components"]["schemas"][&name].is_object(), "{name} is referred to and not there");
    }
}

#[tokio::test(start_paused = true)]
async fn every_operation_is_there_and_answers_only_what_is_documented() {
    let site = Site::new().await;
    let document = document();
    let shapes = [
        json!({}),
        json!({"epoch": 1}),
        json!({"registration": "x", "waitMs": 0}),
        json!({"workerId": "w1"}),
        json!([]),
        json!(7),
    ];
    for (method, path, responses) in operations(&document) {
        if path == "/v1/events" {
            continue; // It does not end; it has tests of its own.
        }
        for id in ["w1", "none", "%2e%2e", "a%2Fb", "x%00"] {
            let path = path.replace("{id}", id);
            for body in &shapes {
                let answer = site.send(request(method.clone(), &path, Body::from(body.to_string()))).await;
                let (status, text) = (answer.status.as_u16(), &answer.text);
                let documented = &responses[status.to_string()];
                assert!(documented.is_object(), "{method} {path} {body} answered {status}: {text}");
                assert!(
                    status != 404 || !text.contains("no-route"),
                    "{method} {path} is documented and not there"
                );
                assert!(status < 500 || status == 503, "{method} {path}: {text}");
                if let Some(content) = documented["content"].as_object() {
                    let kind = answer.header("content-type");
                    assert!(
                        content.keys().any(|known| kind.starts_with(known.as_str())),
                        "{method} {path}: {kind}"
                    );
                }
            }
        }
        for other in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let known = document["paths"][&path][other.as_str().to_lowercase()].is_object();
            if !known {
                let path = path.replace("{id}", "x");
                site.send(request(other, &path, Body::from("{}"))).await.problem(405, "no-method");
            }
        }
    }
}

/// Everything there is to show, shown: what comes is held against the document by [`Site::send`].
#[tokio::test(start_paused = true)]
async fn the_documents_of_a_busy_cluster_are_as_described() {
    let site = Site::new().await;
    // The routes go by the wall clock: so do the schedules here.
    let runner = ScheduleRunner::for_node(&site.node, ScheduleOptions::default()).expect("valid");
    let health = ClusterHealth::new(&site.node);
    let specs = [health.process(), runner.process()];
    let _processes = Supervisor::new(specs).run(&site.node).expect("valid");
    let agent = json!({"workerId": "w1", "kinds": ["checks"]});
    let registration = site.post("/v1/workers", agent).await.json()["registration"].clone();
    let web = json!({"every": "1d", "failAfter": 1, "checks": [{"name": "home", "kind": "tcp", "host": "localhost", "port": 80}]});
    site.put("/v1/schedules/web", web.clone()).await.is(201);
    site.put("/v1/schedules/idle", web.clone()).await.is(201);
    let mut named = web;
    named["id"] = json!("web");
    let broken = "plg_coordinator_global/test/schedules/broken.json";
    site.store.put(broken, "{}".into(), Condition::Any).await;
    site.node.workers().wait_for(|workers| workers.active == 1).await.expect("the node runs");
    for name in ["reported", "told", "open"] {
        site.post("/v1/schedules/web/run-now", json!({"name": name})).await.is(202);
    }
    let report = JobReport {
        due_ms: 1,
        names: read_file(&json!([named]).to_string(), &Rules::default()).expect("valid")[0].names_digest(),
        checks: vec![CheckResult { ok: false, latency_ms: 7, detail: "refused".to_owned() }],
    };
    let report = String::from_utf8(report.to_result()).expect("text");
    for result in [report.as_str(), "no report at all"] {
        let ask = json!({"registration": registration, "waitMs": 30_000});
        let job = site.post("/v1/workers/w1/jobs/next", ask).await.is(200).json();
        let done = json!({
            "workerId": "w1", "registration": registration, "attempt": job["attempt"], "outcome": "succeeded",
            "result": result,
        });
        let id = job["id"].as_str().expect("an id");
        site.post(&format!("/v1/jobs/{id}/result"), done).await.is(200);
    }
    sleep_ms(45_000).await;
    let get = async |path: &str| site.get(path).await.is(200).json();
    assert_eq!(get("/v1/status").await["nodes"][0]["node"], "pod-a");
    assert_eq!(get("/v1/nodes").await["nodes"][0]["state"], "up");
    let health = get("/v1/health/cluster").await;
    assert_ne!((&health["reasons"], &health["workers"]["list"]), (&json!([]), &json!([])), "{health}");
    assert_eq!(get("/v1/workers").await["workers"][0]["workerId"], "w1");
    let listed = get("/v1/schedules").await;
    assert_eq!(
        (listed["schedules"].as_array().map(Vec::len), &listed["refused"][0]["id"]),
        (Some(2), &json!("broken"))
    );
    let failing: Vec<&Value> =
        listed["schedules"].as_array().into_iter().flatten().map(|row| &row["failing"]).collect();
    assert_eq!(failing, [&json!(0), &json!(1)], "{listed}");
    let jobs = get("/v1/jobs").await;
    assert!(jobs["jobs"].as_array().is_some_and(|jobs| jobs.len() == 3), "{jobs}");
    let shown: Vec<Value> = jobs["jobs"].as_array().into_iter().flatten().cloned().collect();
    assert!(shown.iter().any(|job| job["checks"][0]["name"] == "home"), "{jobs}");
    assert!(shown.iter().any(|job| job["result"] == "no report at all"), "{jobs}");
    assert_eq!(get("/v1/schedules/web").await["jobs"].as_array().map(Vec::len), Some(3));
    assert_eq!(get("/v1/jobs/web.run.told").await["namespace"], "test");
    assert_eq!(get("/v1/overview").await["workers"]["list"][0]["workerId"], "w1");
    assert_eq!(get("/v1/terms").await["terms"][0]["leader"], "pod-a");
    for path in ["/v1/leader", "/v1/metrics", "/v1/config"] {
        get(path).await;
    }
}
