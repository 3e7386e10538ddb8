//! What each answer of an object store becomes, over real connections.

use crate::common::engine::Speech;
use crate::common::server::{Reply, Request, Server};
use crate::common::{assert_conforms, assert_passed, found, unique, won};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenure_store::conformance::{Plan, Probe, probe};
use tenure_store::{
    BODY_MAX_BYTES, CloudStore, Condition, Credentials, EtagForm, List, OpenOptions, Provider, Read, Remove,
    Store, TroubleKind, Version, Write, open_str,
};

fn options(endpoint: &str, timeout: Duration) -> OpenOptions {
    let mut options = OpenOptions::with_request_timeout(timeout);
    options.endpoint = Some(endpoint.to_owned());
    options.credentials =
        Some(Credentials { access_key: "AKIDEXPOSED".to_owned(), secret_key: "SECRETEXPOSED".to_owned() });
    options
}

fn s3(endpoint: &str) -> CloudStore {
    // Short enough for the answers that never come, long enough for a busy machine.
    CloudStore::connect(Provider::S3, "bucket", "p", &options(endpoint, Duration::from_millis(1_500)))
        .unwrap()
}

/// All answers of one server, in short: a word and the kind of trouble.
#[derive(PartialEq, Eq, Debug)]
struct Answers {
    create: String,
    replace: String,
    overwrite: String,
    get: String,
    remove: String,
    list: String,
}

async fn answers(store: &dyn Store) -> Answers {
    let put = async |condition| short(&format!("{:?}", store.put("k", "x".into(), condition).await));
    Answers {
        create: put(Condition::Absent).await,
        replace: put(Condition::Matches(Version::new("e1"))).await,
        overwrite: put(Condition::Any).await,
        get: short(&format!("{:?}", store.get("k", None).await)),
        remove: short(&format!("{:?}", store.remove("k").await)),
        list: short(&format!("{:?}", store.list("a/", 10).await)),
    }
}

/// `Unknown(Trouble { kind: Server, detail: … })` → `Unknown Server`; also makes sure that nothing secret is in it.
fn short(debug: &str) -> String {
    assert!(!debug.contains("EXPOSED"), "{debug}");
    let word = debug.split(['(', ' ', '{']).next().unwrap();
    match debug.split_once("kind: ") {
        Some((_, rest)) => format!("{word} {}", rest.split(',').next().unwrap()),
        None => word.to_owned(),
    }
}

async fn expect(reply: impl Fn() -> Reply + Send + Sync + 'static, expected: [&str; 6]) {
    let server = Server::start(move |_| reply()).await;
    let got = answers(&s3(&server.endpoint)).await;
    let [create, replace, overwrite, get, remove, list] = expected.map(str::to_owned);
    assert_eq!(got, Answers { create, replace, overwrite, get, remove, list });
    let puts = server.seen().iter().filter(|request| request.method == "PUT").count();
    assert_eq!(puts, 3, "a write was tried more than once");
}

#[tokio::test]
async fn conditions_that_do_not_hold() {
    // A 412 to a read or a list is nonsense; whoever reads back after a 412 to a replace cannot tell why it was refused.
    let lost = |replace: &'static str| {
        [
            "Lost",
            replace,
            "Denied Malformed",
            "Denied Malformed",
            "Unknown Malformed",
            "Unavailable Malformed",
        ]
    };
    expect(|| Reply::error(412, "PreconditionFailed", "no"), lost("Unavailable Malformed")).await;
    expect(|| Reply::status(304), lost("Unavailable Malformed")).await;
}

#[tokio::test]
async fn a_conflict_of_two_writers_is_not_a_loss() {
    let busy = "Unavailable Busy";
    expect(|| Reply::error(409, "ConditionalRequestConflict", "two"), [busy; 6]).await;
    expect(|| Reply::error(409, "OperationAborted", "two"), [busy; 6]).await;
    let exists =
        ["Lost", "Unavailable Malformed", "Denied Malformed", "Denied Malformed", "Unknown Malformed"];
    let [a, b, c, d, e] = exists;
    expect(|| Reply::error(409, "BlobAlreadyExists", "Azure"), [a, b, c, d, e, "Unavailable Malformed"])
        .await;
}

#[tokio::test]
async fn server_errors_leave_a_write_open() {
    let with = |kind: &str| {
        let (unknown, unavailable) = (format!("Unknown {kind}"), format!("Unavailable {kind}"));
        [unknown.clone(), unknown.clone(), unknown.clone(), unavailable.clone(), unknown, unavailable]
    };
    for (status, code, kind) in [
        (500, "InternalError", "Server"),
        (502, "", "Server"),
        (504, "", "Server"),
        (503, "SlowDown", "Throttled"),
        (503, "ServiceUnavailable", "Throttled"),
        (429, "TooManyRequests", "Throttled"),
        (408, "", "Timeout"),
        (400, "RequestTimeout", "Timeout"),
    ] {
        let expected = with(kind);
        expect(move || Reply::error(status, code, "x"), expected.each_ref().map(String::as_str)).await;
    }
}

#[tokio::test]
async fn refusals_that_stay() {
    for (status, code, kind) in [
        (403, "AccessDenied", "Permission"),
        (403, "", "Permission"),
        (403, "AllAccessDisabled", "Permission"),
        (403, "SignatureDoesNotMatch", "Credentials"),
        (403, "InvalidAccessKeyId", "Credentials"),
        (403, "RequestTimeTooSkewed", "Credentials"),
        (400, "ExpiredToken", "Credentials"),
        (400, "AuthorizationHeaderMalformed", "Credentials"),
        (401, "", "Credentials"),
        (404, "NoSuchBucket", "Missing"),
        (404, "ContainerNotFound", "Missing"),
        (301, "PermanentRedirect", "Missing"),
        (501, "NotImplemented", "Unsupported"),
        (400, "NotImplemented", "Unsupported"),
        (405, "MethodNotAllowed", "Unsupported"),
        (413, "EntityTooLarge", "TooLarge"),
    ] {
        let denied = format!("Denied {kind}");
        expect(move || Reply::error(status, code, "x"), [denied.as_str(); 6]).await;
    }
}

#[tokio::test]
async fn a_missing_object_is_absent_and_a_replace_of_it_lost() {
    let expected = ["Denied Missing", "Lost", "Denied Missing", "Absent", "Done", "Denied Missing"];
    expect(|| Reply::error(404, "NoSuchKey", "gone"), expected).await;
}

#[tokio::test]
async fn lost_answers_leave_a_write_open() {
    let with = |kind: &str| {
        let (unknown, unavailable) = (format!("Unknown {kind}"), format!("Unavailable {kind}"));
        [unknown.clone(), unknown.clone(), unknown.clone(), unavailable.clone(), unknown, unavailable]
    };
    let expected = with("Connection");
    expect(|| Reply::HangUp, expected.each_ref().map(String::as_str)).await;
    let server = Server::start(|_| Reply::Silence).await;
    let store = CloudStore::connect(
        Provider::S3,
        "bucket",
        "",
        &options(&server.endpoint, Duration::from_millis(300)),
    );
    let store = store.unwrap();
    let write = short(&format!("{:?}", store.put("k", "x".into(), Condition::Absent).await));
    assert_eq!(write, "Unknown Timeout");
    assert_eq!(short(&format!("{:?}", store.get("k", None).await)), "Unavailable Timeout");
    assert_eq!(short(&format!("{:?}", store.remove("k").await)), "Unknown Timeout");
    assert_eq!(short(&format!("{:?}", store.list("k/", 1).await)), "Unavailable Timeout");
}

#[tokio::test]
async fn a_success_without_an_etag_or_with_half_a_body_is_no_success() {
    let server = Server::start(|_| Reply::status(200)).await;
    let got = answers(&s3(&server.endpoint)).await;
    assert_eq!((got.create.as_str(), got.replace.as_str()), ("Unknown Malformed", "Unknown Malformed"));
    assert_eq!((got.get.as_str(), got.list.as_str()), ("Unavailable Malformed", "Unavailable Malformed"));
    let server = Server::start(|_| Reply::BreakOff).await;
    let got = answers(&s3(&server.endpoint)).await;
    assert_eq!((got.get.as_str(), got.list.as_str()), ("Unavailable Connection", "Unavailable Connection"));
}

#[tokio::test]
async fn a_connection_that_was_never_made_wrote_nothing() {
    let store = s3(&Server::refused().await);
    let got = answers(&store).await;
    let unavailable = "Unavailable Connection";
    assert_eq!((got.create.as_str(), got.replace.as_str()), (unavailable, unavailable));
    assert_eq!(
        (got.get.as_str(), got.remove.as_str(), got.list.as_str()),
        (unavailable, unavailable, unavailable)
    );
    let store = s3("http://no-such-host.invalid:1");
    assert_eq!(short(&format!("{:?}", store.put("k", "x".into(), Condition::Absent).await)), unavailable);
}

#[tokio::test]
async fn bodies_and_answers_are_bounded() {
    let large = || {
        Reply::Answer { status: 200, headers: Vec::new(), body: vec![b'x'; BODY_MAX_BYTES + 1] }
            .with("etag", "\"e\"")
            .with("last-modified", "Tue, 15 Nov 1994 08:12:31 GMT")
    };
    let server = Server::start(move |_| large()).await;
    let store = s3(&server.endpoint);
    assert_eq!(short(&format!("{:?}", store.get("k", None).await)), "Denied TooLarge");
    let body = vec![0; BODY_MAX_BYTES + 1];
    assert_eq!(short(&format!("{:?}", store.put("k", body.into(), Condition::Any).await)), "Denied TooLarge");
    assert_eq!(server.seen().len(), 1, "a body that is too large is not even sent");
    let chatty = || Reply::error(403, "AccessDenied", &"x".repeat(1 << 20));
    let server = Server::start(move |_| chatty()).await;
    let Read::Denied(trouble) = s3(&server.endpoint).get("k", None).await else { panic!("read") };
    assert!(trouble.detail.len() <= 400, "{}", trouble.detail.len());
}

#[tokio::test]
async fn the_etag_form_is_learned_once_and_shared_by_both_lanes() {
    let server = crate::common::engine::start(Speech::S3Unquoted).await;
    let lanes = open_str("s3://bucket/p", &options(&server.endpoint, Duration::from_secs(5))).await.unwrap();
    let first = won(&*lanes.lease, "k", "1", Condition::Absent).await;
    let second = won(&*lanes.lease, "k", "2", Condition::Matches(first.clone())).await;
    assert_eq!(
        (lanes.lease.etag_form(), lanes.bulk.etag_form()),
        (Some(EtagForm::Unquoted), Some(EtagForm::Unquoted))
    );
    assert_eq!(lanes.bulk.put("k", "3".into(), Condition::Matches(first)).await, Write::Lost);
    assert_eq!(lanes.lease.get("k", Some(&second)).await, Read::Unchanged);
    let if_match: Vec<_> =
        server.seen().iter().filter_map(|r| r.header("if-match").map(str::to_owned)).collect();
    assert_eq!(if_match.len(), 3, "{if_match:?}");
    assert!(if_match[0].starts_with('"') && !if_match[1].starts_with('"') && !if_match[2].starts_with('"'));
}

#[tokio::test]
async fn a_replace_that_lost_for_real_teaches_nothing() {
    let server = crate::common::engine::start(Speech::S3).await;
    let (one, other) = (s3(&server.endpoint), s3(&server.endpoint));
    let first = won(&one, "k", "1", Condition::Absent).await;
    won(&other, "k", "2", Condition::Matches(first.clone())).await;
    assert_eq!(one.put("k", "3".into(), Condition::Matches(first)).await, Write::Lost);
    assert_eq!((one.etag_form(), other.etag_form()), (None, Some(EtagForm::Quoted)));
}

#[tokio::test]
async fn the_whole_of_a_write_that_learns_stays_within_its_time() {
    // Refuses the quoted form, then never answers the read that would tell why.
    let requests = AtomicUsize::new(0);
    let server = Server::start(move |_| match requests.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::error(412, "PreconditionFailed", "no"),
        _ => Reply::Silence,
    })
    .await;
    let timeout = Duration::from_millis(400);
    let store = CloudStore::connect(Provider::S3, "bucket", "", &options(&server.endpoint, timeout)).unwrap();
    let began = std::time::Instant::now();
    let write = store.put("k", "x".into(), Condition::Matches(Version::new("e1"))).await;
    assert_eq!(short(&format!("{write:?}")), "Unavailable Timeout", "refused for sure, so not unknown");
    assert!(began.elapsed() < timeout * 3, "{:?}", began.elapsed());
}

#[tokio::test]
async fn removals_are_single_requests() {
    let server = crate::common::engine::start(Speech::S3).await;
    let store = s3(&server.endpoint);
    won(&store, "k", "1", Condition::Absent).await;
    assert_eq!(store.remove("k").await, Remove::Done);
    assert_eq!(store.remove("k").await, Remove::Done);
    let methods: Vec<String> = server.seen().into_iter().map(|request: Request| request.method).collect();
    assert_eq!(methods, ["PUT", "DELETE", "DELETE"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_list_that_is_lost_is_missed_after_one_timeout() {
    let requests = AtomicUsize::new(0);
    let server = Server::start(move |_| match requests.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Answer {
            status: 200,
            headers: Vec::new(),
            body: b"<ListBucketResult><NextContinuationToken>a</NextContinuationToken></ListBucketResult>"
                .to_vec(),
        },
        _ => Reply::Silence,
    })
    .await;
    let timeout = Duration::from_secs(2);
    let store = CloudStore::connect(Provider::S3, "bucket", "", &options(&server.endpoint, timeout)).unwrap();
    let began = tokio::time::Instant::now();
    let list = store.list("k/", 10).await;
    assert_eq!(short(&format!("{list:?}")), "Unavailable Timeout");
    let pages = server.seen().len() as u32;
    assert!(began.elapsed() <= timeout * pages + Duration::from_millis(100), "{:?}", began.elapsed());
}

#[tokio::test]
async fn folders_made_by_consoles_are_not_listed() {
    let server = crate::common::engine::start(Speech::S3).await;
    let store = s3(&server.endpoint);
    for key in ["a/1", "a/2/3", "ab"] {
        won(&store, key, "x", Condition::Any).await;
    }
    // A console's "folder": an object whose key ends in a slash.
    server.put_raw("/bucket/p/a/").await;
    let List::Entries { entries, more } = store.list("a/", 10).await else { panic!("no list") };
    let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!((keys, more), (vec!["a/1", "a/2/3"], false));
    // A key that object_store cannot spell spoils the page; it must be said which one.
    server.put_raw("/bucket/p/a//b").await;
    let List::Unavailable(trouble) = store.list("a/", 10).await else { panic!("listed") };
    assert!(trouble.kind == TroubleKind::Malformed && trouble.detail.contains("p/a//b"), "{trouble}");
}

// ---- what depends on the environment: the test binary starts itself with another one ----

const HELPER: &str = "TENURE_STORE_HTTP_HELPER";

async fn run_helper(task: &str, environment: &[(&str, String)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "http::environment_helper", "--nocapture"]).env_clear().env(HELPER, task);
    command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert_passed(&output);
}

/// Not a test by itself: what the tests below do in another environment.
#[tokio::test]
async fn environment_helper() {
    let Ok(task) = std::env::var(HELPER) else { return };
    let options = OpenOptions::with_request_timeout(Duration::from_secs(5));
    let open = async |url: &str| open_str(url, &options).await.unwrap().lease;
    match task.as_str() {
        "s3" => assert!(probe(&*open("s3://bucket/p").await, "x", &unique()).await.is_safe()),
        "no credentials" => {
            let timeout = Duration::from_secs(1);
            let store =
                open_str("s3://bucket/p", &OpenOptions::with_request_timeout(timeout)).await.unwrap().lease;
            let began = std::time::Instant::now();
            let (found, expected) =
                (probe(&*store, "x", &unique()).await, std::env::var("EXPECTED").unwrap());
            let trouble = match found {
                Probe::Denied(trouble) if expected == "denied" => trouble,
                Probe::Unavailable(trouble) if expected == "unavailable" => trouble,
                other => panic!("{other:?}"),
            };
            assert_eq!(trouble.kind, TroubleKind::Credentials, "{trouble}");
            assert!(trouble.detail.contains(&std::env::var("AWS_METADATA_ENDPOINT").unwrap()), "{trouble}");
            assert!(began.elapsed() < timeout * 5, "{:?}", began.elapsed());
        }
        "half credentials" => {
            let error = open_str("s3://bucket/p", &options).await.unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("AWS_"), "{error}");
        }
        "gs" => {
            let store = open("gs://bucket/p").await;
            let version = won(&*store, "k", "1", Condition::Absent).await;
            assert!(version.as_str().contains(':'), "{version:?}");
            assert_eq!(found(&*store, "k").await.version, version);
            store.remove("k").await;
            let plan = Plan { race_rounds: 3, ..Plan::default() };
            assert_conforms(&[store], &plan).await;
        }
        "az" => {
            let store = open("az://bucket/p").await;
            assert_eq!(store.put("k", "x".into(), Condition::Absent).await, Write::Lost);
            let busy = store.put("k", "x".into(), Condition::Matches(Version::new("0x1"))).await;
            assert_eq!(short(&format!("{busy:?}")), "Unavailable Busy");
        }
        other => panic!("unknown task {other}"),
    }
}

#[tokio::test]
async fn settings_come_from_the_usual_environment() {
    let server = crate::common::engine::start(Speech::S3).await;
    let environment = |endpoint: &'static str| {
        let endpoint = (endpoint, server.endpoint.clone());
        [endpoint, ("AWS_ACCESS_KEY_ID", "k".to_owned()), ("AWS_SECRET_ACCESS_KEY", "s".to_owned())]
    };
    run_helper("s3", &environment("AWS_ENDPOINT_URL")).await;
    run_helper("s3", &environment("AWS_ENDPOINT_URL_S3")).await;
    assert!(
        server.seen().iter().all(|r| r.header("authorization").is_some_and(|a| a.contains("Credential=k/")))
    );
}

#[tokio::test]
async fn missing_credentials_are_told_within_the_timeout() {
    let server = crate::common::engine::start(Speech::S3).await;
    let silent = Server::start(|_| Reply::Silence).await;
    let empty = Server::start(|_| Reply::status(404)).await;
    // A service that has not answered yet may still do so; one that is not there, or has none, is a wrong setting.
    let (refused, silent, empty) = (Server::refused().await, silent.endpoint.clone(), empty.endpoint.clone());
    for (metadata, expected) in [(refused, "denied"), (silent, "unavailable"), (empty, "denied")] {
        let environment = [
            ("AWS_ENDPOINT_URL", server.endpoint.clone()),
            ("AWS_METADATA_ENDPOINT", metadata),
            ("EXPECTED", expected.to_owned()),
        ];
        run_helper("no credentials", &environment).await;
    }
    assert!(server.seen().is_empty(), "nothing is sent unsigned");
    run_helper("half credentials", &[("AWS_ACCESS_KEY_ID", "k".to_owned())]).await;
}

#[tokio::test]
async fn google_goes_by_generations() {
    let server = crate::common::engine::start(Speech::Gcs).await;
    let key = format!(
        "{{\"gcs_base_url\":\"{}\",\"disable_oauth\":true,\"client_email\":\"\",\"private_key\":\"\",\
         \"private_key_id\":\"\"}}",
        server.endpoint
    );
    let environment = [("GOOGLE_SERVICE_ACCOUNT_KEY", key), ("GOOGLE_BASE_URL", server.endpoint.clone())];
    run_helper("gs", &environment).await;
    assert!(server.seen().iter().all(|request| request.header("if-match").is_none()));
}

#[tokio::test]
async fn azure_says_409_for_what_exists() {
    let server = Server::start(|request| match request.header("if-none-match") {
        Some(_) => Reply::error(409, "x", "x").with("x-ms-error-code", "BlobAlreadyExists"),
        None => Reply::error(409, "x", "x").with("x-ms-error-code", "LeaseAlreadyPresent"),
    })
    .await;
    let environment = [
        ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        ("AZURITE_BLOB_STORAGE_URL", server.endpoint.clone()),
    ];
    run_helper("az", &environment).await;
}
