//! The suite on real S3 engines. `TENURE_TEST_S3_ENGINES` says which; `cargo xtask test` starts them and sets it.
//!
//! An engine marked `"safe": false` is a negative control: the probe and the suite must refuse it.

use crate::common::{conformance, unique};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tenure_store::conformance::{Plan, Probe, probe};
use tenure_store::{CloudStore, Condition, Credentials, OpenOptions, Provider, Store, TroubleKind, Write};

const ENGINES: &str = "TENURE_TEST_S3_ENGINES";

struct Engine {
    name: String,
    endpoints: Vec<String>,
    bucket: String,
    credentials: Credentials,
    reader: Option<Credentials>,
    is_safe: bool,
    race_width: usize,
}

impl Engine {
    fn from_json(value: &Value) -> Engine {
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        let need =
            |field: &str| text(field).unwrap_or_else(|| panic!("{ENGINES}: {field:?} is missing in {value}"));
        let reader = text("reader_access_key").zip(text("reader_secret_key"));
        let endpoints: Vec<String> = value["endpoints"]
            .as_array()
            .unwrap_or_else(|| panic!("{ENGINES}: \"endpoints\" is missing in {value}"))
            .iter()
            .map(|endpoint| endpoint.as_str().unwrap().to_owned())
            .collect();
        assert!(!endpoints.is_empty(), "{ENGINES}: \"endpoints\" is empty");
        Engine {
            name: need("name"),
            endpoints,
            bucket: need("bucket"),
            credentials: Credentials { access_key: need("access_key"), secret_key: need("secret_key") },
            reader: reader.map(|(access_key, secret_key)| Credentials { access_key, secret_key }),
            is_safe: value["safe"].as_bool().unwrap_or(true),
            race_width: value["race"].as_u64().map_or(32, |width| usize::try_from(width).unwrap()),
        }
    }

    fn store(&self, endpoint: &str, credentials: &Credentials) -> Arc<dyn Store> {
        // Contended writers wait for seconds on some engines.
        let mut options = OpenOptions::with_request_timeout(Duration::from_secs(30));
        options.endpoint = Some(endpoint.to_owned());
        options.credentials = Some(credentials.clone());
        Arc::new(CloudStore::connect(Provider::S3, &self.bucket, "tenure-engines", &options).unwrap())
    }

    fn stores(&self) -> Vec<Arc<dyn Store>> {
        self.endpoints.iter().map(|endpoint| self.store(endpoint, &self.credentials)).collect()
    }
}

fn engines() -> Vec<Engine> {
    let Ok(text) = std::env::var(ENGINES) else {
        panic!("{ENGINES} is not set; run these tests through: cargo xtask test");
    };
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{ENGINES}: {error}"));
    let all = value.as_array().unwrap_or_else(|| panic!("{ENGINES} must be a JSON array"));
    assert!(!all.is_empty(), "{ENGINES} names no engine");
    all.iter().map(Engine::from_json).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn engines_conform() {
    for engine in engines() {
        let stores = engine.stores();
        let plan = match engine.is_safe {
            true => Plan::default().with_width(engine.race_width),
            false => Plan::quick(),
        };
        let began = std::time::Instant::now();
        let report = conformance(&stores, &plan).await;
        println!("{} in {:?}, ETags {:?}\n{report}", engine.name, began.elapsed(), report.etag_form);
        match engine.is_safe {
            true => assert!(report.is_safe() && report.is_clean(), "{}: {report}", engine.name),
            false => assert!(report.is_unsafe() && !report.is_safe(), "{}: {report}", engine.name),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn engines_are_probed() {
    for engine in engines() {
        for store in engine.stores() {
            let found = probe(&*store, "probe", &unique()).await;
            match engine.is_safe {
                true => assert!(found.is_safe(), "{}: {found:?}", engine.name),
                false => assert!(matches!(found, Probe::Unsafe(_)), "{}: {found:?}", engine.name),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn wrong_credentials_and_buckets_are_told_apart() {
    for engine in engines().into_iter().filter(|engine| engine.is_safe) {
        let endpoint = &engine.endpoints[0];
        let wrong = Credentials { secret_key: "not-the-secret".to_owned(), ..engine.credentials.clone() };
        // Engines that check no signatures (ministack) cannot tell; they must still not report anything else.
        match engine.store(endpoint, &wrong).put(&unique(), "x".into(), Condition::Absent).await {
            Write::Denied(trouble) => {
                let known = matches!(trouble.kind, TroubleKind::Credentials | TroubleKind::Permission);
                assert!(known && !trouble.detail.contains("not-the-secret"), "{}: {trouble}", engine.name);
            }
            Write::Won(_) => println!("{} does not check signatures", engine.name),
            other => panic!("{}: {other:?}", engine.name),
        }
        let nowhere = Engine { bucket: format!("no-such-bucket-{}", unique()), ..engine };
        match nowhere.store(&nowhere.endpoints[0], &nowhere.credentials).get("k", None).await {
            tenure_store::Read::Denied(trouble) => {
                let known = matches!(trouble.kind, TroubleKind::Missing | TroubleKind::Permission);
                assert!(known, "{}: {trouble}", nowhere.name);
            }
            other => panic!("{}: {other:?}", nowhere.name),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an S3 engine: cargo xtask test"]
async fn a_reader_may_read_and_not_write() {
    for engine in engines() {
        let Some(reader) = &engine.reader else { continue };
        let endpoint = &engine.endpoints[0];
        let (writer, reader) = (engine.store(endpoint, &engine.credentials), engine.store(endpoint, reader));
        let key = format!("reader-{}", unique());
        let version = crate::common::won(&*writer, &key, "x", Condition::Absent).await;
        assert_eq!(crate::common::found(&*reader, &key).await.version, version, "{}", engine.name);
        for condition in [Condition::Absent, Condition::Matches(version), Condition::Any] {
            match reader.put(&key, "y".into(), condition).await {
                Write::Denied(trouble) => {
                    assert_eq!(trouble.kind, TroubleKind::Permission, "{}", engine.name)
                }
                other => panic!("{}: {other:?}", engine.name),
            }
        }
        assert!(matches!(probe(&*reader, "probe", &unique()).await, Probe::Denied(_)), "{}", engine.name);
        writer.remove(&key).await;
    }
}
