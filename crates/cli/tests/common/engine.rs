//! The S3 engines a test run was given: `TENURE_TEST_S3_ENGINES`, set by `cargo xtask test`.

use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

const ENGINES: &str = "TENURE_TEST_S3_ENGINES";

#[derive(Clone)]
pub struct Engine {
    pub name: String,
    pub endpoints: Vec<String>,
    pub bucket: String,
    pub access_key: String,
    pub secret_key: String,
    pub reader: Option<(String, String)>,
    pub is_safe: bool,
}

impl Engine {
    fn from_json(value: &Value) -> Engine {
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        let need =
            |field: &str| text(field).unwrap_or_else(|| panic!("{ENGINES}: {field:?} is missing in {value}"));
        let endpoints = value["endpoints"].as_array().into_iter().flatten();
        Engine {
            name: need("name"),
            endpoints: endpoints.map(|endpoint| endpoint.as_str().unwrap().to_owned()).collect(),
            bucket: need("bucket"),
            access_key: need("access_key"),
            secret_key: need("secret_key"),
            reader: text("reader_access_key").zip(text("reader_secret_key")),
            is_safe: value["safe"].as_bool().unwrap_or(true),
        }
    }

    /// A store nobody else uses.
    pub fn store(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        format!("s3://{}/test-{:016x}-{number}/", self.bucket, rand::random::<u64>())
    }

    pub fn env(&self) -> Vec<(String, String)> {
        self.env_at(&self.endpoints[0])
    }

    pub fn env_at(&self, endpoint: &str) -> Vec<(String, String)> {
        [
            ("AWS_ACCESS_KEY_ID", self.access_key.as_str()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key.as_str()),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_REGION", "us-east-1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }
}

pub fn all() -> Vec<Engine> {
    let Ok(text) = std::env::var(ENGINES) else {
        panic!("{ENGINES} is not set; run these tests through: cargo xtask test");
    };
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{ENGINES}: {error}"));
    let all: Vec<Engine> = value.as_array().into_iter().flatten().map(Engine::from_json).collect();
    assert!(!all.is_empty(), "{ENGINES} names no engine");
    all
}

/// Those that can arbitrate.
pub fn safe() -> Vec<Engine> {
    all().into_iter().filter(|engine| engine.is_safe).collect()
}
