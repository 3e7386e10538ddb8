//! An HTTP service that refuses a former leader.

use crate::epoch_requests::EPOCH_REQUESTS;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::routing::put;
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tenure::clock::TokioClock;
use tenure::fence::http::FenceLayer;
use tenure::fence::{EPOCH_MAX, Fence, FenceRule};
use tower::ServiceExt;

fn behind(layer: FenceLayer) -> Router {
    Router::new().route("/report", put(async || "written")).layer(layer)
}

/// Status and body of the answer, and that a refusal says its status, too.
async fn put_with(service: &Router, epochs: &[&str]) -> (u16, Value) {
    let mut request = Request::put("/report");
    for epoch in epochs {
        request = request.header("Tenure-Epoch", *epoch);
    }
    let answer =
        service.clone().oneshot(request.body(Body::empty()).expect("valid")).await.expect("an answer");
    let (status, kind) = (answer.status().as_u16(), answer.headers()["content-type"].clone());
    let body = to_bytes(answer.into_body(), 10_000).await.expect("a body");
    if status == 200 {
        assert_eq!(&body[..], b"written");
        return (status, Value::Null);
    }
    let problem: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(
        (kind.as_bytes(), &problem["status"]),
        (&b"application/problem+json"[..], &Value::from(status))
    );
    (status, problem)
}

#[tokio::test]
async fn fr3_an_epoch_older_than_one_seen_is_refused() {
    let service = behind(FenceLayer::starting_at(5));
    for (epochs, status, newest) in EPOCH_REQUESTS {
        let (answered, problem) = put_with(&service, epochs).await;
        assert_eq!(answered, status, "{epochs:?}: {problem}");
        if status == 412 {
            let (epoch, detail) = (&problem["epoch"], problem["detail"].as_str().expect("words"));
            assert_eq!((epoch.to_string().as_str(), &problem["newest"]), (epochs[0], &Value::from(newest)));
            assert!(detail.contains(epochs[0]) && detail.contains(&newest.to_string()), "{detail}");
        }
    }
    for (epoch, status) in [(EPOCH_MAX + 1, 428), (EPOCH_MAX, 200)] {
        assert_eq!(put_with(&service, &[&epoch.to_string()]).await.0, status, "{epoch}");
    }
}

#[tokio::test]
async fn fr3_each_resource_has_a_memory_of_its_own_and_clones_share_it() {
    let (reports, mail) = (FenceLayer::starting_at(0), FenceLayer::starting_at(0));
    let (one, other, mail) = (behind(reports.clone()), behind(reports), behind(mail));
    assert_eq!(put_with(&one, &["2"]).await.0, 200);
    assert_eq!(put_with(&other, &["1"]).await.0, 412);
    assert_eq!(put_with(&mail, &["1"]).await.0, 200);
}

#[tokio::test]
async fn fr3_requests_without_an_epoch_pass_only_if_that_was_asked_for() {
    let lenient = behind(FenceLayer::starting_at(2).allow_without_epoch());
    assert_eq!(put_with(&lenient, &[]).await.0, 200);
    assert_eq!(put_with(&lenient, &[""]).await.0, 428, "an empty one is a mistake");
    assert_eq!(put_with(&lenient, &["1"]).await.0, 412);
    assert_eq!(put_with(&behind(FenceLayer::starting_at(2)), &[]).await.0, 428);
}

#[tokio::test]
async fn fr3_a_fence_that_is_shared_is_as_wise_as_the_node() {
    let fence = Fence::new(FenceRule::default(), TokioClock::new());
    let service = behind(FenceLayer::sharing(fence.clone()));
    assert_eq!(put_with(&service, &["3"]).await.0, 200);
    assert_eq!(fence.epoch(), 3, "and the node learns from it");
    fence.observe(4);
    assert_eq!(put_with(&service, &["3"]).await.0, 412, "no grace: a request has no time of dispatch");
    assert_eq!((fence.drift_events(), put_with(&service, &["4"]).await.0), (1, 200));
}

#[tokio::test]
async fn fr3_a_new_epoch_is_saved_before_its_first_request_is_passed_on() {
    let saved = Arc::new(Mutex::new(Vec::new()));
    let (kept, passed) = (Arc::clone(&saved), Arc::new(AtomicU64::new(0)));
    let save = move |epoch: u64| {
        let mut kept = kept.lock().expect("not poisoned");
        match epoch {
            6 if !kept.contains(&60) => {
                kept.push(60);
                Err(io::Error::other("the disk is full"))
            }
            epoch => {
                kept.push(epoch);
                Ok(())
            }
        }
    };
    let (seen, counter) = (Arc::clone(&saved), Arc::clone(&passed));
    let fence = Fence::new(FenceRule::default(), TokioClock::new());
    let layer = FenceLayer::sharing(fence.clone()).on_new_epoch(save);
    let handler = move || {
        // What is passed on was saved before.
        counter
            .store(seen.lock().expect("not poisoned").iter().max().copied().unwrap_or(0), Ordering::SeqCst);
        std::future::ready("written")
    };
    let service = Router::new().route("/report", put(handler)).layer(layer);
    for epoch in ["4", "4", "5"] {
        assert_eq!(put_with(&service, &[epoch]).await.0, 200);
        assert_eq!(passed.load(Ordering::SeqCst).to_string(), epoch);
    }
    assert_eq!(put_with(&service, &["3"]).await.0, 412);
    let (status, problem) = put_with(&service, &["6"]).await;
    assert_eq!((status, fence.epoch()), (503, 5), "{problem}");
    assert!(problem["detail"].as_str().expect("words").contains("the disk is full"), "{problem}");
    assert_eq!(put_with(&service, &["5"]).await.0, 200, "it was not taken over");
    assert_eq!(put_with(&service, &["6"]).await.0, 200, "tried again");
    fence.observe(8); // The node heard of it first; the service has yet to save it.
    assert_eq!(put_with(&service, &["7"]).await.0, 412);
    assert_eq!(put_with(&service, &["8"]).await.0, 200);
    assert_eq!(*saved.lock().expect("not poisoned"), [4, 5, 60, 6, 8]);
}
