//! What the wrappers count and break.

use crate::common::engine::Speech;
use crate::common::{found, won};
use std::sync::Arc;
use std::time::Duration;
use tenure_store::{
    CloudStore, Condition, Credentials, Faults, Faulty, Link, List, MemoryStore, Meter, Metered, OpenOptions,
    Provider, Read, Remove, Store, TroubleKind, Version, Write,
};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn faulty(seed: u64, faults: Faults) -> (MemoryStore, Faulty) {
    let inner = MemoryStore::new();
    let faulty = Faulty::new(Arc::new(inner.clone()), seed);
    faulty.set(faults);
    (inner, faulty)
}

#[tokio::test(start_paused = true)]
async fn without_faults_nothing_is_changed() {
    let (inner, store) = faulty(1, Faults::default());
    let began = Instant::now();
    let version = won(&store, "k", "x", Condition::Absent).await;
    assert_eq!(store.put("k", "y".into(), Condition::Absent).await, Write::Lost);
    assert_eq!(store.get("k", Some(&version)).await, Read::Unchanged);
    assert_eq!(store.list("", 10).await, inner.list("", 10).await);
    assert_eq!(store.remove("k").await, Remove::Done);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_never_happens_and_a_lost_answer_did() {
    let (inner, store) = faulty(1, Faults { lost_request: 1.0, timeout: SECOND, ..Faults::default() });
    let began = Instant::now();
    let write = store.put("k", "x".into(), Condition::Absent).await;
    assert!(matches!(write, Write::Unknown(trouble) if trouble.kind == TroubleKind::Timeout));
    assert_eq!(began.elapsed(), SECOND);
    assert!(inner.is_empty());
    store.set(Faults { lost_answer: 1.0, ..Faults::default() });
    assert!(matches!(store.put("k", "x".into(), Condition::Absent).await, Write::Unknown(_)));
    assert_eq!(found(&inner, "k").await.body, "x");
    assert!(matches!(store.get("k", None).await, Read::Unavailable(_)));
}

#[tokio::test(start_paused = true)]
async fn a_late_write_lands_after_its_answer_and_under_its_condition() {
    let faults = Faults { late_landing: 1.0, timeout: SECOND, late_max: 5 * SECOND, ..Faults::default() };
    let (inner, store) = faulty(3, faults);
    assert!(matches!(store.put("k", "late".into(), Condition::Absent).await, Write::Unknown(_)));
    assert!(inner.is_empty(), "it must not have happened yet");
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(found(&inner, "k").await.body, "late");
    // The next one is overtaken: when it lands its condition no longer holds.
    let version = found(&inner, "k").await.version;
    assert!(matches!(store.put("k", "late".into(), Condition::Matches(version)).await, Write::Unknown(_)));
    won(&inner, "k", "overtaken", Condition::Any).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(found(&inner, "k").await.body, "overtaken");
}

#[tokio::test(start_paused = true)]
async fn denied_and_throttled_requests_do_not_happen() {
    let (inner, store) = faulty(1, Faults { denied: 1.0, ..Faults::default() });
    assert!(matches!(store.put("k", "x".into(), Condition::Any).await, Write::Denied(_)));
    assert!(matches!(store.list("", 1).await, List::Denied(_)));
    store.set(Faults { throttled: 1.0, ..Faults::default() });
    let write = store.put("k", "x".into(), Condition::Any).await;
    assert!(matches!(write, Write::Unknown(trouble) if trouble.kind == TroubleKind::Throttled));
    assert!(matches!(store.remove("k").await, Remove::Unknown(_)));
    assert!(inner.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cut_takes_the_answers_of_requests_under_way() {
    let (inner, store) = faulty(1, Faults { delay: 1.0, delay_max: SECOND, ..Faults::default() });
    store.cut(true);
    assert!(matches!(store.put("k", "x".into(), Condition::Any).await, Write::Unknown(_)));
    assert!(matches!(store.get("k", None).await, Read::Unavailable(_)));
    assert!(inner.is_empty(), "nothing passes a cut");
    store.link(Link::Refused);
    let write = store.put("k", "x".into(), Condition::Any).await;
    assert!(matches!(write, Write::Unavailable(trouble) if trouble.kind == TroubleKind::Connection));
    store.cut(false);
    won(&store, "k", "x", Condition::Any).await;
    // Cut while the inner store is still busy with it: it happens, and nobody hears of it.
    let slow = MemoryStore::new();
    let inside = Faulty::new(Arc::new(slow.clone()), 8);
    inside.set(Faults { delay: 1.0, delay_max: SECOND, ..Faults::default() });
    let outside = Faulty::new(Arc::new(inside), 9);
    let writing = tokio::spawn({
        let outside = outside.clone();
        async move { outside.put("k", "x".into(), Condition::Any).await }
    });
    tokio::task::yield_now().await;
    outside.cut(true);
    assert!(matches!(writing.await.unwrap(), Write::Unknown(_)));
    assert_eq!(found(&slow, "k").await.body, "x");
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_story() {
    let faults = Faults {
        delay: 0.3,
        lost_request: 0.1,
        lost_answer: 0.1,
        late_landing: 0.1,
        denied: 0.1,
        throttled: 0.1,
        ..Faults::default()
    };
    let story = async |seed: u64| {
        let (_, store) = faulty(seed, faults);
        let (mut told, began) = (Vec::new(), Instant::now());
        for n in 0..200 {
            let write = store.put("k", format!("{n}").into(), Condition::Any).await;
            told.push((format!("{write:?}"), began.elapsed()));
        }
        told
    };
    assert_eq!(story(1).await, story(1).await);
    assert_ne!(story(1).await, story(2).await);
    let kinds = story(3).await;
    for kind in ["Won", "Unknown", "Denied", "slow down"] {
        assert!(kinds.iter().any(|(write, _)| write.contains(kind)), "{kind} never came");
    }
}

#[tokio::test(start_paused = true)]
async fn a_meter_counts_requests_bytes_and_outcomes() {
    let meter = Meter::default();
    let store = Metered::new(Arc::new(MemoryStore::new()), meter.clone());
    let version = won(&store, "k", "12345", Condition::Absent).await;
    assert_eq!(store.put("k", "123".into(), Condition::Absent).await, Write::Lost);
    let before = meter.snapshot();
    assert_eq!((before.put, before.won, before.lost, before.bytes_up), (2, 1, 1, 8));
    store.get("k", Some(&version)).await;
    store.get("k", None).await;
    store.get("absent", None).await;
    store.remove("k").await;
    store.list("", 10).await;
    let after = meter.snapshot() - before;
    assert_eq!((after.get, after.get_unchanged, after.remove, after.list_pages), (2, 1, 1, 1));
    assert_eq!((after.bytes_down, after.bytes_up, after.put, after.answered), (5, 0, 0, 5));
    assert_eq!((after.requests(), after.read_class(), after.write_class()), (5, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_meter_counts_troubles_and_calls_given_up() {
    let meter = Meter::default();
    let (_, broken) = faulty(1, Faults { lost_request: 1.0, timeout: SECOND, ..Faults::default() });
    let store = Metered::new(Arc::new(broken.clone()), meter.clone());
    store.put("k", "x".into(), Condition::Any).await;
    store.get("k", None).await;
    let given_up = tokio::time::timeout(SECOND / 2, store.get("k", None)).await;
    assert!(given_up.is_err());
    broken.set(Faults { denied: 1.0, ..Faults::default() });
    store.remove("k").await;
    let all = meter.snapshot();
    assert_eq!((all.unknown, all.unavailable, all.denied, all.dropped), (1, 1, 1, 1));
    assert_eq!((all.put, all.get, all.remove, all.requests()), (1, 2, 1, 4));
}

#[tokio::test]
async fn a_meter_counts_pages_without_and_with_a_wire() {
    let memory = MemoryStore::new();
    let server = crate::common::engine::start(Speech::S3Unquoted).await;
    let mut options = OpenOptions::with_request_timeout(10 * SECOND);
    options.endpoint = Some(server.endpoint.clone());
    options.credentials = Some(Credentials { access_key: "key".to_owned(), secret_key: "secret".to_owned() });
    let cloud = CloudStore::connect(Provider::S3, "bucket", "", &options).unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(memory), Arc::new(cloud)];
    for inner in stores {
        for n in 0..2_001 {
            won(&*inner, &format!("p/{n:05}"), "x", Condition::Any).await;
        }
        let meter = Meter::default();
        // A wrapper between the meter and the wire must not hide the pages.
        let store = Metered::new(Arc::new(Faulty::new(inner, 1)), meter.clone());
        assert!(
            matches!(store.list("p/", 5_000).await, List::Entries { entries, more: false } if entries.len() == 2_001)
        );
        assert_eq!(meter.snapshot().list_pages, 3);
        store.list("none/", 5_000).await;
        assert_eq!(meter.snapshot().list_pages, 4);
    }
    // The second store learns its ETag form: one read and one write more, once.
    let meter = Meter::default();
    let cloud = CloudStore::connect(Provider::S3, "bucket", "", &options).unwrap();
    let store = Metered::new(Arc::new(cloud), meter.clone());
    let version = won(&store, "k", "1", Condition::Absent).await;
    let version = won(&store, "k", "2", Condition::Matches(version)).await;
    assert_eq!((meter.snapshot().put, meter.snapshot().extra), (2, 2));
    won(&store, "k", "3", Condition::Matches(version)).await;
    assert_eq!(store.put("k", "4".into(), Condition::Matches(Version::new("old"))).await, Write::Lost);
    assert_eq!((meter.snapshot().put, meter.snapshot().extra), (4, 2));
}
