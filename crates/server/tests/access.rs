//! Who may ask, and what is done with what must not be asked.

use crate::common::{Answer, Site, TOKEN, options, request, sleep_ms};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tenure_server::{Limits, Options, Token};

const READER: &str = "MARKED-reader-0123456789";

/// Also reading takes a token.
async fn closed() -> Site {
    let options = options().read_token(Token::new(READER).expect("valid"));
    Site::with(options, |settings| settings).await
}

/// As somebody with this token, or with none.
async fn ask_as(site: &Site, token: Option<&str>, method: Method, path: &str) -> Answer {
    let mut request = request(method, path, Body::from("{}"));
    request.headers_mut().remove("authorization");
    if let Some(token) = token {
        let bearer = format!("Bearer {token}").parse().expect("a value");
        request.headers_mut().insert("authorization", bearer);
    }
    site.send(request).await
}

/// Every operation there is, by the document. An id stands for a thing that is not there.
fn operations() -> Vec<(Method, String)> {
    let names = tenure_server::route_names();
    let parts = names.iter().map(|name| name.split_once(' ').expect("a method and a path"));
    parts.map(|(method, path)| (method.parse().expect("a method"), path.replace("{id}", "x"))).collect()
}

fn changes(method: &Method, path: &str) -> bool {
    *method != Method::GET && path != "/v1/fence"
}

#[tokio::test(start_paused = true)]
async fn on_loopback_anybody_reads_and_nobody_changes_anything_without_the_token() {
    let site = Site::new().await;
    let mut refused = 0;
    for (method, path) in operations() {
        if path == "/v1/events" {
            continue; // It does not end.
        }
        for token in [None, Some("MARKED-token-0123456788"), Some("")] {
            let answer = ask_as(&site, token, method.clone(), &path).await;
            if changes(&method, &path) {
                let answer = answer.problem(401, "unauthorized");
                assert!(answer.text.contains("tenure token"), "it says where the token is: {}", answer.text);
                refused += 1;
            } else {
                assert!(![401, 403].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.text);
            }
        }
        let answer = ask_as(&site, Some(TOKEN), method.clone(), &path).await;
        assert!(![401, 403].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.text);
    }
    assert!(refused >= 36, "{refused}");
    let web = json!({"every": "1h", "checks": [{"name": "x", "kind": "tcp", "host": "h", "port": 1}]});
    let mut put = request(Method::PUT, "/v1/schedules/web", Body::from(web.to_string()));
    put.headers_mut().remove("authorization");
    site.send(put).await.problem(401, "unauthorized");
    assert!(site.object("schedules/web.json").await.is_none(), "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn the_reading_token_reads_everything_and_changes_nothing() {
    let everywhere = Options::new("0.0.0.0:7420".parse().expect("an address"), Token::new(TOKEN).ok());
    let everywhere = everywhere.expect("it has a token").read_token(Token::new(READER).expect("valid"));
    for site in [closed().await, Site::with(everywhere, |settings| settings).await] {
        for (method, path) in operations() {
            if path == "/v1/events" || path == "/" || path.starts_with("/assets") || path.ends_with("z") {
                continue;
            }
            ask_as(&site, None, method.clone(), &path).await.problem(401, "unauthorized");
            let answer = ask_as(&site, Some(READER), method.clone(), &path).await;
            if changes(&method, &path) {
                let answer = answer.problem(403, "read-only");
                assert!(answer.text.contains("may only read"), "{}", answer.text);
            } else {
                assert!(![401, 403].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.text);
            }
            let answer = ask_as(&site, Some(TOKEN), method.clone(), &path).await;
            assert!(![401, 403].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.text);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_token_changes_nothing_for_anybody() {
    let open = Options::new("127.0.0.1:7420".parse().expect("an address"), None).expect("loopback");
    let site = Site::with(open, |settings| settings).await;
    ask_as(&site, None, Method::GET, "/v1/leader").await.is(200);
    for token in [None, Some(""), Some(TOKEN)] {
        ask_as(&site, token, Method::POST, "/v1/step-down").await.problem(403, "no-changes");
    }
    assert_eq!(site.node.leadership().borrow().epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn step_downs_are_far_apart_whoever_asks() {
    let site = Site::new().await;
    site.post("/v1/step-down", json!({})).await.is(202);
    sleep_ms(4000).await;
    let soon = site.post("/v1/step-down", json!({})).await.problem(429, "too-many");
    assert_eq!(soon.header("retry-after"), "6");
    site.post("/v1/step-down", json!({"waitMs": 10_001})).await.problem(422, "invalid");
    sleep_ms(60_000).await;
    site.post("/v1/step-down", json!({})).await.is(202);
}

fn with(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = request(method, path, Body::from("{}"));
    for (name, value) in headers {
        let name: axum::http::HeaderName = name.parse().expect("a name");
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    request
}

#[tokio::test(start_paused = true)]
async fn without_the_token_nothing_is_told_but_whether_it_works() {
    let site = closed().await;
    let near = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer MARKED-token-012345678",
        "Bearer MARKED-token-01234567890",
        "Bearer MARKED-token-0123456788",
        "Bearer marked-token-0123456789",
        "Bearer  MARKED-token-0123456789",
        "Basic MARKED-token-0123456789",
        "MARKED-token-0123456789",
        "Bearer MARKED-token-0123456789 ",
    ];
    for path in ["/v1/leader", "/v1/events", "/v1/config", "/metrics", "/openapi.json", "/no/such/route"] {
        ask_as(&site, None, Method::GET, path).await.problem(401, "unauthorized");
        for wrong in near {
            let answer = site.send(with(Method::GET, path, &[("authorization", wrong)])).await;
            let answer = answer.problem(401, "unauthorized");
            assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"tenure\"");
            assert!(!answer.text.contains("MARKED"));
        }
    }
    ask_as(&site, None, Method::POST, "/v1/step-down").await.problem(401, "unauthorized");
    for open in ["/", "/assets/app.js", "/livez", "/readyz", "/leaderz"] {
        ask_as(&site, None, Method::GET, open).await.is(200);
    }
    for right in ["Bearer MARKED-token-0123456789", "bearer MARKED-token-0123456789"] {
        site.send(with(Method::GET, "/v1/leader", &[("authorization", right)])).await.is(200);
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_is_in_no_answer() {
    let site = closed().await;
    let right = ("authorization", "Bearer MARKED-token-0123456789");
    for path in [
        "/v1/config",
        "/v1/overview",
        "/v1/leader",
        "/v1/status",
        "/v1/nodes",
        "/v1/workers",
        "/v1/metrics",
        "/metrics",
        "/v1/health/cluster",
        "/v1/schedules",
        "/v1/jobs",
        "/openapi.json",
        "/no/such",
    ] {
        let answer = site.send(with(Method::GET, path, &[right])).await;
        assert!(!answer.text.contains("MARKED"), "{path}: {}", answer.text);
        assert!(!format!("{:?}", answer.headers).contains("MARKED"), "{path}");
    }
    let config = site.send(with(Method::GET, "/v1/config", &[right])).await.json();
    assert_eq!(config["http"]["token"], "set (masked)");
    assert_eq!(config["http"]["readToken"], "set (masked)");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_site_can_do_nothing() {
    let site = Site::new().await;
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:7421"),
        ("origin", "http://127.0.0.1:7420.evil.example"),
        ("origin", "file://"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "strange"),
    ] {
        for path in ["/v1/step-down", "/v1/workers", "/v1/schedules/web/pause"] {
            site.send(with(Method::POST, path, &[foreign])).await.problem(403, "cross-site");
        }
        site.send(with(Method::PUT, "/v1/schedules/web", &[foreign])).await.problem(403, "cross-site");
        site.send(with(Method::DELETE, "/v1/schedules/web", &[foreign])).await.problem(403, "cross-site");
        site.send(with(Method::GET, "/v1/overview", &[foreign])).await.problem(403, "cross-site");
    }
    assert_eq!(site.node.leadership().borrow().epoch, 1, "nobody stepped down");
    for own in
        [("origin", "http://127.0.0.1:7420"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")]
    {
        site.send(with(Method::GET, "/v1/leader", &[own])).await.is(200);
    }
    // What a form can send without asking first is not JSON.
    for form in
        ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "application/jsonp", ""]
    {
        site.send(with(Method::POST, "/v1/step-down", &[("content-type", form)]))
            .await
            .problem(415, "not-json");
    }
    site.send(with(Method::POST, "/v1/fence", &[("content-type", "application/json; charset=utf-8")]))
        .await
        .problem(422, "invalid");
    let preflight = site.send(with(Method::OPTIONS, "/v1/step-down", &[])).await.problem(405, "no-method");
    assert!(preflight.headers.keys().all(|name| !name.as_str().starts_with("access-control")));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_made_to_point_here_is_not_answered() {
    let site = Site::with(options().host("node.example").expect("a name"), |settings| settings).await;
    for strange in
        ["evil.example", "evil.example:7420", "localhost.evil.example", "127.0.0.1.evil.example:7420", ""]
    {
        for path in ["/v1/leader", "/v1/overview", "/", "/no/such"] {
            site.send(with(Method::GET, path, &[("host", strange)])).await.problem(421, "misdirected");
        }
        site.send(with(Method::POST, "/v1/step-down", &[("host", strange)]))
            .await
            .problem(421, "misdirected");
    }
    for fine in ["localhost:7420", "[::1]:7420", "10.1.2.3", "node.example", "NODE.example:443"] {
        site.send(with(Method::GET, "/v1/leader", &[("host", fine)])).await.is(200);
    }
    let mut two = with(Method::GET, "/v1/leader", &[]);
    two.headers_mut().append("host", "evil.example".parse().expect("a value"));
    site.send(two).await.problem(400, "malformed");
    let mut none = with(Method::GET, "/v1/leader", &[]);
    none.headers_mut().remove("host");
    site.send(none).await.problem(400, "malformed");
    site.send(with(Method::GET, "http://evil.example/v1/leader", &[])).await.problem(400, "malformed");
}

#[tokio::test(start_paused = true)]
async fn hostile_ids_reach_nothing() {
    let site = Site::new().await;
    let sign = json!({"registration": "client-chosen-0001"});
    for id in [
        "..%2Fseat",
        "%2e%2e",
        "a%2Fb",
        "%00",
        "a%20b",
        "-x",
        ".x",
        "a..b",
        "%C3%A9",
        "%F0%9F%92%A9",
        "a%0Ab",
        "a%3Fb",
        "%FF",
        &"x".repeat(129),
    ] {
        for path in [format!("/v1/schedules/{id}"), format!("/v1/jobs/{id}")] {
            let answer = site.get(&path).await.is(400);
            assert_eq!(answer.header("content-type"), "application/problem+json");
            assert!(!answer.text.contains('\n'), "no control characters: {:?}", answer.text);
        }
        site.put(&format!("/v1/schedules/{id}"), json!({"every": "1h"})).await.is(400);
        site.delete(&format!("/v1/schedules/{id}")).await.is(400);
        site.post(&format!("/v1/workers/{id}/heartbeat"), sign.clone()).await.is(400);
        site.delete(&format!("/v1/workers/{id}?registration=client-chosen-0001")).await.is(400);
        site.post(&format!("/v1/jobs/{id}/ack"), json!({"workerId": "w", "registration": "x", "attempt": 1}))
            .await
            .is(400);
    }
    for path in [
        "/v1/schedules/../leader",
        "/v1/schedules/",
        "/v1/schedules/a/b",
        "//v1/leader",
        "/v1/leader/",
        "/etc/passwd",
    ] {
        site.get(path).await.problem(404, "no-route");
    }
    site.post("/v1/workers//heartbeat", sign).await.problem(400, "bad-id");
    let list = tenure::store::Store::list(&*site.store, "", 1000).await;
    let tenure::store::List::Entries { entries: keys, .. } = list else { panic!("{list:?}") };
    assert!(
        keys.iter().all(|entry| !entry.key.contains("schedules") && !entry.key.contains("..")),
        "nothing was written: {keys:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_too_large_or_no_json_are_refused() {
    let site = Site::new().await;
    let send =
        async |path: &str, body: Vec<u8>| site.send(request(Method::POST, path, Body::from(body))).await;
    for path in ["/v1/workers", "/v1/fence", "/v1/step-down", "/v1/schedules/web/run-now"] {
        send(path, vec![b' '; 64 * 1024 + 1]).await.problem(413, "too-large");
        for bad in ["{", "{]", "nope", "{\"a\":1}}", "\u{0}", "{\"epoch\":1e999}", &"[".repeat(60_000)] {
            send(path, bad.as_bytes().to_vec()).await.problem(400, "malformed");
        }
        send(path, vec![0xff, 0xfe, 0x00]).await.problem(400, "malformed");
    }
    site.send(request(Method::PUT, "/v1/schedules/web", Body::from(vec![b'x'; 70_000])))
        .await
        .problem(413, "too-large");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let site = Site::new().await;
    let never = Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let began = tokio::time::Instant::now();
    site.send(request(Method::POST, "/v1/fence", never)).await.problem(408, "slow");
    assert_eq!(began.elapsed().as_secs(), 10);
    let broken =
        Body::from_stream(futures::stream::iter([Err::<bytes::Bytes, _>(std::io::Error::other("gone"))]));
    site.send(request(Method::POST, "/v1/fence", broken)).await.problem(400, "malformed");
}

#[tokio::test(start_paused = true)]
async fn what_asks_the_store_is_limited_and_what_does_not_is_not() {
    let mut limits = Limits::default();
    (limits.store_per_second, limits.store_burst) = (1.0, 4.0);
    let site = Site::with(options().limits(limits), |settings| settings).await;
    for _ in 0..2 {
        site.post("/v1/schedules/none/pause", json!({})).await.problem(404, "unknown-schedule");
    }
    let limited = site.post("/v1/schedules/none/pause", json!({})).await.problem(429, "too-many");
    assert_eq!(limited.header("retry-after"), "2");
    for path in ["/v1/leader", "/v1/metrics", "/v1/config", "/metrics", "/v1/status"] {
        site.get(path).await.is(200);
    }
    site.post("/v1/fence", json!({"epoch": 1})).await.is(200);
    sleep_ms(2000).await;
    site.post("/v1/schedules/none/pause", json!({})).await.problem(404, "unknown-schedule");
}

#[tokio::test(start_paused = true)]
async fn reads_do_not_stand_before_a_step_down() {
    let site = Site::new().await;
    site.get("/v1/jobs/wrong").await.problem(404, "unknown-job");
    let again = site.get("/v1/jobs/wrong").await.problem(429, "too-many");
    let wait_s: u64 = again.header("retry-after").parse().expect("seconds");
    assert!((2..=5).contains(&wait_s), "{wait_s}");
    let searches = (0..20).map(|_| site.get("/v1/jobs/wrong"));
    let shows = (0..50).map(|_| site.get("/v1/schedules/none"));
    futures::future::join_all(searches).await;
    let shown = futures::future::join_all(shows).await;
    assert!(shown.iter().any(|answer| answer.status == 429), "reads are limited");
    site.post("/v1/workers", json!({"workerId": "w1"})).await.is(201);
    site.post("/v1/schedules/none/run-now", json!({})).await.problem(404, "unknown-schedule");
    site.post("/v1/step-down", json!({"waitMs": 9000})).await.is(202);
    sleep_ms(1000 * wait_s).await;
    site.get("/v1/jobs/wrong").await.problem(404, "unknown-job");
}

#[tokio::test(start_paused = true)]
async fn readers_do_not_stand_before_who_changes_an_older_job() {
    let site = Site::new().await;
    for change in ["cancel", "retry"] {
        site.get("/v1/jobs/wrong").await.problem(404, "unknown-job");
        site.get("/v1/jobs/wrong").await.problem(429, "too-many");
        site.post(&format!("/v1/jobs/wrong/{change}"), json!({})).await.problem(404, "unknown-job");
        // Changes take turns, too.
        site.post(&format!("/v1/jobs/wrong/{change}"), json!({})).await.problem(429, "too-many");
        sleep_ms(10_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_search_whose_client_leaves_keeps_its_turn() {
    let site = Site::new().await;
    site.get("/v1/jobs").await.is(200);
    site.link.cut(true);
    let gone = tokio::time::timeout(std::time::Duration::from_millis(100), site.get("/v1/jobs/wrong"));
    assert!(gone.await.is_err());
    site.get("/v1/jobs/wrong").await.problem(429, "too-many");
}

#[tokio::test(start_paused = true)]
async fn no_body_is_an_empty_object_and_unknown_words_are_refused() {
    let site = Site::new().await;
    let bare = |path: &str| {
        let mut bare = request(Method::POST, path, Body::empty());
        bare.headers_mut().remove("content-type");
        bare
    };
    site.put(
        "/v1/schedules/web",
        json!({"every": "1h", "checks": [{"name": "x", "kind": "tcp", "host": "h", "port": 1}]}),
    )
    .await
    .is(201);
    for path in ["/v1/schedules/web/pause", "/v1/schedules/web/resume"] {
        site.send(bare(path)).await.is(200);
    }
    site.send(bare("/v1/schedules/web/run-now")).await.is(202);
    site.send(bare("/v1/workers")).await.problem(422, "invalid");
    let mut foreign = bare("/v1/step-down");
    foreign.headers_mut().insert("origin", "http://evil.example".parse().expect("a value"));
    site.send(foreign).await.problem(403, "cross-site");
    site.send(bare("/v1/step-down")).await.is(202);

    for path in [
        "/v1/jobs?limit=0",
        "/v1/jobs?limit=1001",
        "/v1/jobs?limit=-1",
        "/v1/jobs?limits=5",
        "/v1/jobs?State=queued",
        "/v1/events?recnt=5",
        "/v1/events?follow=maybe",
    ] {
        site.get(path).await.problem(400, "malformed");
    }
    site.delete("/v1/workers/w1?registration=client-chosen-0001&force=1").await.problem(400, "malformed");
    site.get("/v1/jobs?limit=1").await.is(200);
}

#[tokio::test(start_paused = true)]
async fn every_answer_carries_the_headers_that_keep_browsers_safe() {
    let site = Site::new().await;
    for path in ["/", "/v1/leader", "/no/such", "/livez", "/v1/schedules/..%2F"] {
        let answer = site.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"));
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    }
    let wrong = site.send(with(Method::DELETE, "/v1/leader", &[])).await.problem(405, "no-method");
    assert!(wrong.header("allow").contains("GET"), "{:?}", wrong.headers);
}
