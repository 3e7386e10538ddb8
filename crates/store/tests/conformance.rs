//! The suite on every backend that needs nothing from outside, and on stores that must not pass it.

use crate::common::engine::Speech;
use crate::common::{assert_conforms, conformance, unique};
use async_trait::async_trait;
use bytes::Bytes;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tenure_store::conformance::{Plan, Probe, Verdict, probe};
use tenure_store::{
    CloudStore, Condition, Credentials, EtagForm, Faults, Faulty, Link, List, MemoryStore, OpenOptions,
    Provider, Read, Remove, SqliteStore, Store, Version, Write, open_str,
};

const SECOND: Duration = Duration::from_secs(1);

fn safe(etag_form: Option<EtagForm>) -> Probe {
    Probe::Safe { etag_form, unchanged_reads: true }
}

#[tokio::test]
async fn memory_conforms() {
    let store = MemoryStore::new();
    let endpoints: [Arc<dyn Store>; 2] = [Arc::new(store.clone()), Arc::new(store.clone())];
    assert_conforms(&endpoints, &Plan::default()).await;
    assert_eq!(probe(&store, "p", &unique()).await, safe(None));
    assert!(store.is_empty(), "the probe left something behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_conforms_over_two_connections() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("t.db").display());
    let lanes = open_str(&url, &OpenOptions::with_request_timeout(20 * SECOND)).await.unwrap();
    let plan = Plan { race_width: 16, race_rounds: 5, ..Plan::default() };
    assert_conforms(&[lanes.lease, Arc::clone(&lanes.bulk)], &plan).await;
    assert_eq!(probe(&*lanes.bulk, "", &unique()).await, safe(None));
}

#[tokio::test]
async fn an_object_store_in_memory_conforms() {
    let store =
        CloudStore::from_object_store(Arc::new(InMemory::new()), "some/prefix", "in memory", SECOND * 10);
    let store: Arc<dyn Store> = Arc::new(store);
    assert_conforms(&[Arc::clone(&store)], &Plan::default()).await;
    assert_eq!(probe(&*store, "p", &unique()).await, safe(None));
}

fn s3(endpoint: &str) -> Arc<dyn Store> {
    let mut options = OpenOptions::with_request_timeout(10 * SECOND);
    options.endpoint = Some(endpoint.to_owned());
    options.credentials = Some(Credentials { access_key: "key".to_owned(), secret_key: "secret".to_owned() });
    Arc::new(CloudStore::connect(Provider::S3, "bucket", "below/here", &options).unwrap())
}

#[tokio::test]
async fn s3_conforms_with_quoted_and_with_unquoted_etags() {
    for (speech, form) in [(Speech::S3, EtagForm::Quoted), (Speech::S3Unquoted, EtagForm::Unquoted)] {
        let server = crate::common::engine::start(speech).await;
        let endpoints = [s3(&server.endpoint), s3(&server.endpoint)];
        assert_eq!(endpoints[0].etag_form(), None, "nothing is known before the first replace");
        assert_conforms(&endpoints, &Plan::default()).await;
        assert_eq!(endpoints[0].etag_form(), Some(form));
        let fresh = s3(&server.endpoint);
        assert_eq!(probe(&*fresh, "p", &unique()).await, safe(Some(form)));
        let keys: Vec<_> = server.seen().into_iter().filter(|request| request.method == "PUT").collect();
        assert!(keys.iter().all(|request| request.path().starts_with("/bucket/below/here/")));
    }
}

/// S3 Express One Zone lists in no order.
#[tokio::test]
async fn a_bucket_that_lists_in_no_order_conforms() {
    let server = crate::common::engine::start(Speech::S3Unordered).await;
    let mut options = OpenOptions::with_request_timeout(Duration::from_secs(20));
    options.endpoint = Some(server.endpoint.clone());
    options.credentials = Some(Credentials { access_key: "k".to_owned(), secret_key: "s".to_owned() });
    let open = |bucket| -> Arc<dyn Store> {
        Arc::new(CloudStore::connect(Provider::S3, bucket, "p", &options).unwrap())
    };
    let store = open("bucket--use1-az4--x-s3");
    assert_conforms(std::slice::from_ref(&store), &Plan::default()).await;
    // Of more objects than are wanted, the first ones by name, however many pages that takes.
    let keys: Vec<String> = (0..2_500).map(|n| format!("l/{n:04}")).collect();
    for key in &keys {
        server.put_raw(&format!("/bucket--use1-az4--x-s3/p/{key}")).await;
    }
    for (limit, expected) in
        [(1, 1), (40, 40), (1_000, 1_000), (2_499, 2_499), (2_500, 2_500), (9_999, 2_500)]
    {
        let List::Entries { entries, more } = store.list("l/", limit).await else { panic!("no list") };
        assert!(entries.iter().map(|entry| &entry.key).eq(&keys[..expected]), "limit {limit}");
        assert_eq!(more, expected < keys.len(), "limit {limit}");
    }
    // A bucket of another kind is not known to do that: the suite says so, and calls it nothing worse.
    let report = conformance(&[open("bucket")], &Plan { list_keys: 1_500, ..Plan::quick() }).await;
    assert!(report.is_safe() && !report.is_unsafe() && !report.is_clean(), "{report}");
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_found_out() {
    let store = Careless(MemoryStore::new());
    assert!(matches!(probe(&store, "p", &unique()).await, Probe::Unsafe(_)));
    let endpoints: [Arc<dyn Store>; 1] = [Arc::new(store)];
    let report = conformance(&endpoints, &Plan::quick()).await;
    assert!(report.is_unsafe() && !report.is_safe(), "{report}");
    for name in ["create once", "replace stale", "replace missing", "create race"] {
        let check = report.checks.iter().find(|check| check.name == name).unwrap();
        assert!(matches!(check.verdict, Verdict::Fail(_)), "{name}: {:?}", check.verdict);
    }
}

#[tokio::test]
async fn an_engine_that_ignores_conditions_is_found_out() {
    let server = crate::common::engine::start(Speech::Careless).await;
    let store = s3(&server.endpoint);
    assert!(matches!(probe(&*store, "p", &unique()).await, Probe::Unsafe(_)));
    let report = conformance(&[store], &Plan::quick()).await;
    assert!(report.is_unsafe() && !report.is_safe(), "{report}");
}

/// Checks the condition and writes as two steps, as an engine without a lock does.
#[tokio::test]
async fn a_store_that_checks_first_and_writes_later_is_found_out_by_the_races() {
    let endpoints: [Arc<dyn Store>; 1] = [Arc::new(Hasty(MemoryStore::new()))];
    assert!(probe(&*endpoints[0], "p", &unique()).await.is_safe(), "one writer alone cannot see it");
    let report = conformance(&endpoints, &Plan::quick()).await;
    for check in &report.checks {
        let races = matches!(check.name, "create race" | "counter race");
        assert_eq!(matches!(check.verdict, Verdict::Fail(_)), races, "{report}");
    }
    assert!(report.is_unsafe());
}

#[tokio::test(start_paused = true)]
async fn lost_and_late_answers_are_not_held_against_a_store() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 7);
    let faults =
        Faults { lost_answer: 0.1, lost_request: 0.1, throttled: 0.1, delay: 0.5, ..Faults::default() };
    faulty.set(faults);
    let plan = Plan { list_keys: 200, race_rounds: 50, ..Plan::default() };
    let report = conformance(&[Arc::new(faulty.clone())], &plan).await;
    assert!(!report.is_unsafe(), "{report}");
    assert!(report.checks.iter().filter(|c| c.verdict == Verdict::Pass).count() > 6, "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_neither_safe_nor_unsafe() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 1);
    for link in [Link::Silent, Link::Refused] {
        faulty.link(link);
        assert!(matches!(probe(&faulty, "p", &unique()).await, Probe::Unavailable(_)));
        let report = conformance(&[Arc::new(faulty.clone())], &Plan::quick()).await;
        assert!(!report.is_safe() && !report.is_unsafe(), "{report}");
    }
    faulty.link(Link::Up);
    faulty.set(Faults { denied: 1.0, ..Faults::default() });
    assert!(matches!(probe(&faulty, "p", &unique()).await, Probe::Denied(_)));
    let mut unsafe_seen = 0;
    for seed in 0..300 {
        let faulty = Faulty::new(Arc::new(MemoryStore::new()), seed);
        faulty.set(Faults { lost_answer: 0.2, late_landing: 0.2, throttled: 0.1, ..Faults::default() });
        unsafe_seen += u32::from(matches!(probe(&faulty, "p", &unique()).await, Probe::Unsafe(_)));
    }
    assert_eq!(unsafe_seen, 0);
}

/// Something on the way sends a write twice, or answers for the store: a refusal that is not the store's.
#[tokio::test]
async fn one_refusal_that_is_not_true_does_not_make_a_store_unsafe() {
    for number in 0..4 {
        for applied in [true, false] {
            let store = Refusing::new(number..number + 1, applied);
            let found = probe(&store, "p", &unique()).await;
            assert!(found.is_safe(), "put {number}, applied {applied}: {found:?}");
        }
    }
    for number in 0..40 {
        let endpoints: [Arc<dyn Store>; 1] = [Arc::new(Refusing::new(number..number + 1, true))];
        let report = conformance(&endpoints, &Plan::quick()).await;
        assert!(!report.is_unsafe(), "put {number}: {report}");
    }
    // A create that is always refused, and a replace that is.
    for always in [0..1_000, 2..1_000] {
        let found = probe(&Refusing::new(always, false), "p", &unique()).await;
        assert!(matches!(found, Probe::Unsafe(_)), "{found:?}");
    }
}

#[tokio::test]
async fn sqlite_probe_costs_seven_requests() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("t.db"), SECOND).await.unwrap();
    let meter = tenure_store::Meter::default();
    let store = tenure_store::Metered::new(Arc::new(store), meter.clone());
    assert!(probe(&store, "p", &unique()).await.is_safe());
    assert_eq!(meter.snapshot().requests(), 7);
}

/// Answers that the writes with these numbers lost, whether they took effect or never arrived.
#[derive(Debug)]
struct Refusing {
    inner: MemoryStore,
    refused: std::ops::Range<usize>,
    applied: bool,
    puts: AtomicUsize,
}

impl Refusing {
    fn new(refused: std::ops::Range<usize>, applied: bool) -> Refusing {
        Refusing { inner: MemoryStore::new(), refused, applied, puts: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Store for Refusing {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.inner.get(key, unless).await
    }
    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let refused = self.refused.contains(&self.puts.fetch_add(1, Ordering::Relaxed));
        if refused && !self.applied {
            return Write::Lost;
        }
        let answer = self.inner.put(key, body, condition).await;
        if refused { Write::Lost } else { answer }
    }
    async fn remove(&self, key: &str) -> Remove {
        self.inner.remove(key).await
    }
    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.inner.list(prefix, limit).await
    }
    fn describe(&self) -> String {
        "refusing".to_owned()
    }
}

/// Negative control: takes every write.
#[derive(Debug)]
struct Careless(MemoryStore);

#[async_trait]
impl Store for Careless {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.0.get(key, unless).await
    }
    async fn put(&self, key: &str, body: Bytes, _: Condition) -> Write {
        self.0.put(key, body, Condition::Any).await
    }
    async fn remove(&self, key: &str) -> Remove {
        self.0.remove(key).await
    }
    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.0.list(prefix, limit).await
    }
    fn describe(&self) -> String {
        "careless".to_owned()
    }
}

/// Negative control: honours conditions only while nobody else writes.
#[derive(Debug)]
struct Hasty(MemoryStore);

#[async_trait]
impl Store for Hasty {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.0.get(key, unless).await
    }
    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let holds = match (self.0.get(key, None).await, condition) {
            (Read::Found(object), Condition::Matches(version)) => object.version == version,
            (Read::Found(_), Condition::Absent) | (_, Condition::Matches(_)) => false,
            (_, Condition::Absent | Condition::Any) => true,
        };
        tokio::task::yield_now().await;
        if holds { self.0.put(key, body, Condition::Any).await } else { Write::Lost }
    }
    async fn remove(&self, key: &str) -> Remove {
        self.0.remove(key).await
    }
    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.0.list(prefix, limit).await
    }
    fn describe(&self) -> String {
        "hasty".to_owned()
    }
}
