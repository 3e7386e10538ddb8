//! The document and the routes say the same.

mod common;

use axum::body::Body;
use axum::http::Method;
use common::{Site, request};
use serde_json::{Value, json};

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
