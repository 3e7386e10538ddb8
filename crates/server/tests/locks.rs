//! Locks in any language.

use crate::common::{Answer, Site, options, sleep_ms};
use serde_json::json;
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure_server::Limits;
use tokio::time::Instant;

const ONE: &str = "holding-of-client-1";
const TWO: &str = "holding-of-client-2";

async fn take(site: &Site, holding: &str, wait_ms: u64) -> Answer {
    site.post("/v1/locks/nightly", json!({"holding": holding, "waitMs": wait_ms})).await
}

async fn heartbeat(site: &Site, holding: &str) -> Answer {
    site.post("/v1/locks/nightly/heartbeat", json!({"holding": holding})).await
}

async fn give_back(site: &Site, holding: &str) -> Answer {
    site.delete(&format!("/v1/locks/nightly?holding={holding}")).await
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_by_one_client_at_a_time_through_whichever_node() {
    let site = Site::new().await;
    let other =
        Site::on(site.store.clone(), site.clock.clone(), "pod-b", options(), |settings| settings).await;
    let held = take(&site, ONE, 0).await.is(200).json();
    assert_eq!((&held["holding"], &held["epoch"]), (&json!(ONE), &json!(1)));
    assert!(held["validMs"].as_u64().is_some_and(|valid| valid > 1000), "{held}");
    // The same holding is the same lock; another gets none, here or elsewhere, and is told who has it.
    assert_eq!(take(&site, ONE, 0).await.is(200).json()["epoch"], json!(1));
    for node in [&site, &other] {
        let refused = take(node, TWO, 0).await.problem(409, "locked");
        assert!(refused.text.contains("pod-a-"), "{}", refused.text);
    }
    for _ in 0..30 {
        sleep_ms(1000).await;
        heartbeat(&site, ONE).await.is(200);
    }
    // Whoever waits has it once it is given back.
    let waits = take(&other, TWO, 30_000);
    let gives = async {
        sleep_ms(5000).await;
        give_back(&site, ONE).await.is(204);
        Instant::now()
    };
    let (had, given) = tokio::join!(async { (waits.await.is(200).json(), Instant::now()) }, gives);
    assert_eq!(had.0["epoch"], json!(2));
    assert!(had.1 - given < Duration::from_secs(2), "{:?}", had.1 - given);
    for answer in [heartbeat(&site, ONE).await, give_back(&site, ONE).await, heartbeat(&site, TWO).await] {
        answer.problem(404, "unknown-lock");
    }
    heartbeat(&other, TWO).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_silent_loses_its_lock_but_not_before_what_it_was_told_is_over() {
    let site = Site::new().await;
    let body = json!({"holding": ONE, "timeout": 1000});
    let asked = Instant::now();
    let valid_ms = site.post("/v1/locks/nightly", body).await.is(200).json()["validMs"].as_u64();
    let valid = Duration::from_millis(valid_ms.expect("a number"));
    assert!(valid > Duration::from_secs(2), "more than the timeout, so that this test can fail: {valid:?}");
    take(&site, TWO, 30_000).await.is(200);
    assert!(asked.elapsed() >= valid, "{:?} of {valid:?}", asked.elapsed());
    assert!(asked.elapsed() < valid + Duration::from_secs(5), "{:?}", asked.elapsed());
    heartbeat(&site, ONE).await.problem(404, "unknown-lock");
    // A client that went away while it waited is forgotten as well.
    let waits = tokio::time::timeout(Duration::from_secs(2), take(&site, ONE, 30_000)).await;
    assert!(waits.is_err(), "it waits");
    for _ in 0..40 {
        sleep_ms(500).await;
        heartbeat(&site, TWO).await.is(200);
    }
    give_back(&site, TWO).await.is(204);
    take(&site, "holding-of-client-3", 5000).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_node_loses_the_store_is_told_so_before_another_has_the_lock() {
    let site = Site::new().await;
    let other =
        Site::on(site.store.clone(), site.clock.clone(), "pod-b", options(), |settings| settings).await;
    let mut asked = Instant::now();
    let mut held = take(&site, ONE, 0).await.is(200);
    site.link.cut(true);
    let waits = async { (take(&other, TWO, 30_000).await.is(200), Instant::now()) };
    let beats = async {
        let mut last = asked;
        while held.status == 200 {
            last = asked + Duration::from_millis(held.json()["validMs"].as_u64().expect("a number"));
            sleep_ms(200).await;
            asked = Instant::now();
            held = heartbeat(&site, ONE).await;
        }
        last
    };
    let ((_, had), until) = tokio::join!(waits, beats);
    assert!(had > until, "one may act until {until:?}, the other has it at {had:?}");
}

#[tokio::test(start_paused = true)]
async fn what_breaks_a_rule_is_refused_and_limits_are_kept() {
    let mut limits = Limits::default();
    (limits.locks, limits.locks_per_client) = (2, 1);
    let site = Site::with(options().limits(limits), |settings| settings).await;
    for (body, says) in [
        (json!({"holding": "short"}), "16"),
        (json!({"holding": "no spaces are allowed"}), "holding"),
        (json!({"waitMs": 30_001}), "waitMs"),
        (json!({"timeout": 999}), "timeout"),
        (json!({"timeout": 600_001}), "timeout"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let refused = site.post("/v1/locks/nightly", body).await.problem(422, "invalid");
        assert!(refused.text.contains(says), "{}", refused.text);
    }
    let from = async |address: &str, name: &str| {
        let mut request =
            crate::common::request(axum::http::Method::POST, &format!("/v1/locks/{name}"), "{}".into());
        let address = tenure_server::ClientAddress(address.parse().expect("an address"));
        request.extensions_mut().insert(address);
        site.send(request).await
    };
    assert_eq!(from("10.0.0.1", "a").await.is(200).json()["holding"].as_str().map(str::len), Some(32));
    assert!(from("10.0.0.1", "b").await.problem(429, "too-many").text.contains("by this address"));
    from("10.0.0.2", "b").await.is(200);
    assert!(from("10.0.0.3", "c").await.problem(429, "too-many").text.contains("2 locks"));
}

#[tokio::test(start_paused = true)]
async fn locks_of_clients_are_given_back_when_the_server_closes() {
    let site = Site::new().await;
    take(&site, ONE, 0).await.is(200);
    site.closing.cancel();
    let other =
        Site::on(site.store.clone(), TokioClock::new(), "pod-b", options(), |settings| settings).await;
    let began = Instant::now();
    take(&other, TWO, 30_000).await.is(200);
    assert!(began.elapsed() < Duration::from_secs(6), "vacated, not expired: {:?}", began.elapsed());
}
