//! Temporary credentials from services that are slow, fail, or are asked with untidy token files.

use crate::common::assert_passed;
use crate::common::engine::Speech;
use crate::common::server::{Reply, Request, Server};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tenure_store::conformance::{Probe, probe};
use tenure_store::{OpenOptions, Read, Store, Trouble, TroubleKind, open_str};

/// What a request may take here: less than the credentials services below need.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(750);

/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const HELPER: &str = "TENURE_STORE_CREDENTIALS_HELPER";

/// An S3 engine and, beside it, a service that gives out credentials.
struct Scene {
    engine: Server,
    service: Server,
    files: tempfile::TempDir,
}

impl Scene {
    /// `answer` gets the number of the question, from 0. Reads of the object `questions` answer how many were asked.
    async fn start(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Scene {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = Server::start(move |_| answer(count.fetch_add(1, Ordering::SeqCst))).await;
        let engine = crate::common::engine::start_with(Speech::S3, move |request: &Request| {
            let asked = asked.load(Ordering::SeqCst).to_string();
            // Google's client escapes the slash before it.
            request.path().ends_with("questions").then(|| {
                Reply::text(asked)
                    .with("etag", "\"e\"")
                    .with("x-goog-generation", "1")
                    .with("last-modified", "Tue, 15 Nov 1994 08:12:31 GMT")
            })
        })
        .await;
        Scene { engine, service, files: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The environment of a pod with an identity of its own.
    fn container(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.engine.endpoint.clone()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/v1/credentials", self.service.endpoint)),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", self.file("container", "CONTAINEREXPOSED")),
        ]
    }

    /// The environment of a pod with a role for its service account.
    fn web_identity(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.engine.endpoint.clone()),
            ("AWS_ENDPOINT_URL_STS", self.service.endpoint.clone()),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r".to_owned()),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", self.file("web", "WEB.EXPOSED+/=")),
        ]
    }

    /// Runs a part of `environment_helper` in a process with this environment.
    async fn run(&self, task: &str, environment: &[(&'static str, String)]) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "credentials::environment_helper", "--nocapture"])
            .env_clear()
            .env(HELPER, task);
        command.env("SERVICE", &self.service.endpoint);
        command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = assert_passed(&output);
        assert!(!text.contains("EXPOSED") && !text.contains("panicked"), "{text}");
    }
}

fn expiration(lifetime: Duration) -> String {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::try_from(lifetime).unwrap();
    end.to_string()
}

/// Credentials as the container services give them.
fn json(number: usize, lifetime: Duration) -> Reply {
    Reply::text(format!(
        "{{\"AccessKeyId\":\"KEY{number}\",\"SecretAccessKey\":\"SECRETEXPOSED\",\
         \"Token\":\"TOKENEXPOSED\",\"Expiration\":\"{}\"}}",
        expiration(lifetime)
    ))
}

/// Credentials as the security token service gives them.
fn xml(number: usize, lifetime: Duration) -> Reply {
    Reply::text(format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <SessionToken>TOKENEXPOSED</SessionToken><SecretAccessKey>SECRETEXPOSED</SecretAccessKey>\
         <Expiration>{}</Expiration><AccessKeyId>KEY{number}</AccessKeyId></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        expiration(lifetime)
    ))
}

// ---- in the process with the environment of the test ----

/// How many questions the service has been asked, or what was wrong with the credentials. A busy machine may be too slow for
/// the engine beside; that is asked again.
async fn questions(store: &dyn Store) -> Result<usize, Trouble> {
    let began = Instant::now();
    loop {
        match store.get("questions", None).await {
            Read::Found(object) => return Ok(String::from_utf8_lossy(&object.body).parse().unwrap()),
            Read::Unavailable(trouble) if trouble.kind == TroubleKind::Credentials => return Err(trouble),
            Read::Unavailable(trouble) => assert!(began.elapsed() < PATIENCE, "{trouble}"),
            other => panic!("{other:?}"),
        }
    }
}

/// The first answer of the store; until then only passing trouble with the credentials is allowed.
async fn first_answer(store: &dyn Store) -> usize {
    let began = Instant::now();
    loop {
        match questions(store).await {
            Ok(count) => return count,
            Err(trouble) => {
                assert!(trouble.detail.contains(&std::env::var("SERVICE").unwrap()), "{trouble}");
                assert!(began.elapsed() < PATIENCE, "{trouble}");
            }
        }
    }
}

#[tokio::test]
async fn environment_helper() {
    let Ok(task) = std::env::var(HELPER) else { return };
    let url = std::env::var("URL").unwrap_or_else(|_| "s3://bucket/p".to_owned());
    let options = OpenOptions::with_request_timeout(REQUEST_TIMEOUT);
    let lanes = open_str(&url, &options).await.unwrap();
    match task.as_str() {
        "long" => {
            // A probe that meets no credentials yet is told so, not that the store refuses.
            let found = probe(&*lanes.lease, "x", &crate::common::unique()).await;
            assert!(!matches!(found, Probe::Denied(_)), "{found:?}");
            first_answer(&*lanes.lease).await;
            for store in [&lanes.lease, &lanes.bulk].into_iter().cycle().take(40) {
                assert_eq!(questions(&**store).await.unwrap(), 1, "both lanes use one set of credentials");
            }
        }
        "short" => {
            // Renewed beside the requests: from the first answer on, none of them lacks credentials.
            let enough: usize = std::env::var("QUESTIONS").unwrap().parse().unwrap();
            first_answer(&*lanes.lease).await;
            let began = Instant::now();
            while questions(&*lanes.lease).await.unwrap() < enough {
                questions(&*lanes.bulk).await.unwrap();
                assert!(began.elapsed() < PATIENCE, "never renewed");
            }
        }
        "expired" => {
            first_answer(&*lanes.lease).await;
            let (began, service) = (Instant::now(), std::env::var("SERVICE").unwrap());
            loop {
                match questions(&*lanes.lease).await {
                    Ok(_) => assert!(began.elapsed() < PATIENCE, "never expired"),
                    Err(trouble) => {
                        let told = &trouble.detail;
                        assert!(told.contains("expired") && told.contains(&service), "{told}");
                        break;
                    }
                }
            }
        }
        "denied" => {
            let Probe::Denied(trouble) = probe(&*lanes.lease, "x", &crate::common::unique()).await else {
                panic!("not denied")
            };
            assert_eq!(trouble.kind, TroubleKind::Credentials, "{trouble}");
            assert!(trouble.detail.contains(&std::env::var("EXPECTED").unwrap()), "{trouble}");
        }
        other => panic!("unknown task {other}"),
    }
}

// ---- the tests ----

#[tokio::test]
async fn sl3_short_credentials_from_a_slow_service_carry_every_request() {
    let lifetime = Duration::from_secs(290);
    let scene = Scene::start(move |n| json(n, lifetime).late()).await;
    scene.run("long", &scene.container()).await;
    let scene = Scene::start(move |n| xml(n, lifetime).late()).await;
    scene.run("long", &scene.web_identity()).await;
}

/// Long enough for a busy machine to renew them in the second half.
const SHORT: Duration = Duration::from_secs(20);

async fn run_short(scene: &Scene, mut environment: Vec<(&'static str, String)>, questions: usize) {
    environment.push(("QUESTIONS", questions.to_string()));
    scene.run("short", &environment).await;
}

#[tokio::test]
async fn sl3_credentials_are_renewed_beside_the_requests() {
    let pod = Scene::start(|n| json(n, SHORT).late()).await;
    let web = Scene::start(|n| xml(n, SHORT).late()).await;
    tokio::join!(run_short(&pod, pod.container(), 2), run_short(&web, web.web_identity(), 2));
}

#[tokio::test]
async fn sl3_a_service_that_fails_stops_nobody_with_valid_credentials() {
    let scene = Scene::start(|n| match n {
        1 => Reply::error(500, "InternalError", "no"),
        2 => Reply::HangUp,
        _ => json(n, SHORT),
    });
    let scene = scene.await;
    run_short(&scene, scene.container(), 4).await;
}

#[tokio::test]
async fn sl3_expired_credentials_are_told_with_the_service_that_gives_no_new_ones() {
    let failures: [fn() -> Reply; 3] = [|| Reply::error(500, "x", "x"), || Reply::HangUp, || Reply::Silence];
    for failure in failures {
        let scene = Scene::start(move |n| match n {
            0 => json(n, Duration::from_secs(5)),
            _ => failure(),
        });
        let scene = scene.await;
        scene.run("expired", &scene.container()).await;
    }
}

#[tokio::test]
async fn a_token_file_may_end_in_a_newline() {
    let scene = Scene::start(|n| json(n, Duration::from_secs(3_600))).await;
    let environment = scene.container();
    scene.file("container", "CONTAINEREXPOSED\n");
    scene.run("long", &environment).await;
    assert_eq!(scene.service.seen()[0].header("authorization"), Some("CONTAINEREXPOSED"));
    let scene = Scene::start(|n| xml(n, Duration::from_secs(3_600))).await;
    let environment = scene.web_identity();
    scene.file("web", "WEB.EXPOSED+/=\n");
    scene.run("long", &environment).await;
    let asked = &scene.service.seen()[0];
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&asked.body).into_owned().collect();
    assert!(form.contains(&("WebIdentityToken".to_owned(), "WEB.EXPOSED+/=".to_owned())), "{form:?}");
}

/// Google's and Microsoft's tokens go the same way: a slow metadata service, asked once for both lanes.
#[tokio::test]
async fn sl3_google_and_azure_tokens_come_from_a_slow_service_too() {
    let token = |n: usize| {
        Reply::text(format!("{{\"access_token\":\"KEY{n}\",\"token_type\":\"Bearer\",\"expires_in\":290}}"))
            .late()
    };
    let scene = Scene::start(token).await;
    let host = scene.service.endpoint.trim_start_matches("http://").to_owned();
    let google = [
        ("URL", "gs://bucket/p".to_owned()),
        ("GOOGLE_BASE_URL", scene.engine.endpoint.clone()),
        ("GCE_METADATA_HOST", host.clone()),
        ("GCE_METADATA_IP", host),
    ];
    scene.run("long", &google).await;
    let end = jiff::Timestamp::now().as_second() + 290;
    let token = move |n: usize| {
        Reply::text(format!(
            "{{\"access_token\":\"KEY{n}\",\"token_type\":\"Bearer\",\"resource\":\"x\",\"expires_on\":\"{end}\"}}"
        ))
        .late()
    };
    let scene = Scene::start(token).await;
    let azure = [
        ("URL", "az://bucket/p".to_owned()),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account".to_owned()),
        ("AZURE_ENDPOINT", scene.engine.endpoint.clone()),
        ("IDENTITY_ENDPOINT", format!("{}/metadata/identity/oauth2/token", scene.service.endpoint)),
    ];
    scene.run("long", &azure).await;
}

#[tokio::test]
async fn what_is_wrong_with_the_source_of_credentials_is_told_at_once() {
    let scene = Scene::start(|_| Reply::error(403, "AccessDenied", "EXPOSED")).await;
    let expected = |text: &str| ("EXPECTED", text.to_owned());
    let (mut container, mut web) = (scene.container(), scene.web_identity());
    container.push(expected("answered 403 AccessDenied"));
    scene.run("denied", &container).await;
    web.push(expected("answered 403 AccessDenied"));
    scene.run("denied", &web).await;
    container.push(("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/no/such/file".to_owned()));
    container.push(expected("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
    scene.run("denied", &container).await;
    container.push(("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", scene.file("two", "EXPOSED\nEXPOSED\n")));
    scene.run("denied", &container).await;
    web.push(("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/file".to_owned()));
    web.push(expected("AWS_WEB_IDENTITY_TOKEN_FILE"));
    scene.run("denied", &web).await;
    let scene = Scene::start(|_| Reply::text("{\"SecretAccessKey\":\"EXPOSED\"}")).await;
    let mut container = scene.container();
    container.push(expected("AccessKeyId"));
    scene.run("denied", &container).await;
}
