use super::*;
use serde_json::json;
use std::str::FromStr;
use tenure_core::IdError;

fn id<T: FromStr<Err = IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

fn codec() -> WorkerCodec {
    let spec = CheckedSpec {
        worker_id: id("q1-worker-1"),
        plugin_type: id("queue"),
        pod: id("pod-x"),
        timeout_ms: 20_000,
        payload: Map::new(),
    };
    WorkerCodec { spec: Arc::new(spec), started_at: Arc::from("2026-01-01T00:00:00.000Z") }
}

fn worker() -> Vec<u8> {
    let extra = json!({"later": [1, 2]}).as_object().cloned().expect("an object");
    codec().write(stamp(), &RegisteredBy { pod: id("pod-x"), heartbeat_ms: 5000, beats: 2 }, &extra)
}

/// A leader that wrote down what its predecessor of epoch 3 said.
fn leader() -> Stamp {
    Stamp { epoch: Epoch(4), ..stamp() }
}

fn stamp() -> Stamp {
    let owner = Incarnation(0xab);
    Stamp { epoch: Epoch(0), owner, nonce: Nonce { incarnation: owner, sequence: 3 } }
}

fn snapshot(count: usize, silent: usize) -> Snapshot {
    let workers = (0..count).map(|n| SnapshotEntry {
        worker: id(&format!("plugin-7-worker-{n:05}")),
        details: WorkerDetails {
            plugin_type: id("queue"),
            pod: id(&format!("pod-{}", n % 500)),
            timeout_ms: 20_000,
        },
        active: n >= silent,
        silence: (n < silent).then_some(SnapshotId { epoch: Epoch(3), sequence: 17 }),
    });
    let id = SnapshotId { epoch: Epoch(3), sequence: 21 };
    let (active, inactive) = ((count - silent) as u64, silent as u64);
    Snapshot { id, workers: workers.collect(), active, inactive, ..Snapshot::default() }
}

#[test]
fn a_worker_survives_the_round_trip_with_what_a_later_version_added() {
    let parsed = WorkerDocument::parse(&id("q1-worker-1"), &worker()).expect("our own");
    assert_eq!(to_bytes(&parsed.document), worker());
    let (found, body, kept) = codec().read(&worker()).expect("our own");
    assert_eq!((found, body.heartbeat_ms, body.beats), (stamp(), 5000, 2));
    assert_eq!(kept["later"], json!([1, 2]));
}

#[test]
fn what_is_no_worker_is_named() {
    let change = |field: &str, value: Value| {
        let mut value_of: Value = serde_json::from_slice(&worker()).expect("JSON");
        value_of[field] = value;
        value_of.to_string().into_bytes()
    };
    for (body, says) in [
        (b"\x00\xff".to_vec(), "not a Tenure document"),
        (b"".to_vec(), "not a Tenure document"),
        (vec![b' '; DOCUMENT_MAX_BYTES + 1], "bytes"),
        (change("v", 2.into()), "upgrade"),
        (change("workerId", "other".into()), "workerId"),
        (change("pod", "../x".into()), "pod"),
        (change("timeout", 0.into()), "timeout"),
        (change("timeout", u64::MAX.into()), "timeout"),
        (change("incarnation", "x".into()), "incarnation"),
        (change("nonce", "x".into()), "nonce"),
        (change("payload", "text".into()), "`payload`: invalid type"),
        (change("beats", (-1).into()), "`beats`: invalid value"),
        (change("workerId", "x".repeat(60_000).into()), "…"),
    ] {
        let error = WorkerDocument::parse(&id("q1-worker-1"), &body).expect_err(says).detail;
        assert!(error.contains(says), "{says:?} not in {error:?}");
        assert!(error.chars().count() <= crate::wire::DETAIL_MAX_CHARS + 1, "{says}");
    }
}

#[test]
fn ten_thousand_workers_fit_a_snapshot_and_more_are_told_as_counts() {
    let extra = json!({"later": 1}).as_object().cloned().expect("an object");
    let written = |count, silent, limit| {
        let told = snapshot(count, silent).fitting(limit);
        let body = SnapshotCodec.write(leader(), &Arc::new(told.clone()), &extra);
        assert!(body.len() as u64 <= told.weight() && told.weight() <= limit, "{} bytes", body.len());
        let (found, read, kept) = SnapshotCodec.read(&body).expect("our own");
        assert_eq!((found, &*read, kept), (leader(), &told, extra.clone()));
        told
    };
    let told = written(10_000, 700, 700_000);
    assert_eq!((told.listing, told.workers.len()), (Listing::All, 10_000));
    let told = written(1000, 70, 10_000);
    assert_eq!((told.listing, told.workers.len(), told.active), (Listing::Inactive, 70, 930));
    let told = written(1000, 700, 10_000);
    assert!(told.listing == Listing::Cut && !told.workers.is_empty());
    // What a later version added goes first.
    let large = Map::from_iter([("later".to_owned(), Value::from("x".repeat(BODY_MAX_BYTES)))]);
    let body = SnapshotCodec.write(leader(), &Arc::new(snapshot(10, 1)), &large);
    assert!(SnapshotCodec.read(&body).expect("our own").2.is_empty());
}

/// A new field must be counted in `SnapshotEntry::weight`, or a snapshot may become too large to be read.
#[test]
fn a_snapshot_never_takes_more_bytes_than_its_weight() {
    let longest = |n: usize, letter: &str| format!("{n:05}{}", letter.repeat(123));
    let told = |silent: bool| {
        // Enough of them for the longest indices into plugins and pods.
        let workers = (0..WORKERS_MAX).map(|n| SnapshotEntry {
            worker: id(&longest(n, "w")),
            details: WorkerDetails {
                plugin_type: id(&longest(n, "t")),
                pod: id(&longest(n, "p")),
                timeout_ms: TIMEOUT_MAX_MS,
            },
            active: !silent,
            silence: silent.then_some(SnapshotId { epoch: Epoch::MAX, sequence: u64::MAX / 2 }),
        });
        let id = SnapshotId { epoch: Epoch::MAX, sequence: u64::MAX / 2 };
        let (active, inactive, skipped) = (u64::MAX, u64::MAX, u64::MAX);
        let listing = Listing::Inactive;
        Snapshot { id, workers: workers.collect(), listing, active, inactive, skipped }
    };
    let owner = Incarnation(u64::MAX);
    let stamp = Stamp { epoch: Epoch::MAX, owner, nonce: Nonce { incarnation: owner, sequence: u64::MAX } };
    for silent in [false, true] {
        let told = Arc::new(told(silent));
        let body = SnapshotCodec.write(stamp, &told, &Map::new());
        assert!(body.len() as u64 <= told.weight(), "{} bytes, weight {}", body.len(), told.weight());
    }
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let body = SnapshotCodec.write(leader(), &Arc::new(snapshot(2, 1)), &Map::new());
    let change = |field: &str, value: Value| {
        let mut value_of: Value = serde_json::from_slice(&body).expect("JSON");
        value_of[field] = value;
        value_of.to_string().into_bytes()
    };
    for body in [
        b"junk".to_vec(),
        change("v", 0.into()),
        change("epoch", 2.into()),
        change("epoch", u64::MAX.into()),
        change("owner", "x".into()),
        change("nonce", "x".into()),
        change("id", json!({"epoch": 0, "sequence": 1})),
        change("id", json!({"epoch": 5, "sequence": 1})),
        change("id", json!({"epoch": 3, "sequence": u64::MAX})),
        change("workers", json!([["a", 9, 0, 1]])),
        change("workers", json!([["a", 0, 0, 0]])),
        change("workers", json!([["../a", 0, 0, 1]])),
        change("workers", json!([["a", 0, 0, 1, 2]])),
        change("workers", json!([["a"]])),
        change("workers", json!([["a", 0, 0, 1, u64::MAX, 1, 0]])),
        change("workers", json!([["a", 0, 0, 1, 1, u64::MAX, 0]])),
        vec![b' '; BODY_MAX_BYTES + 1],
    ] {
        assert!(!SnapshotDocument::parse(&body).expect_err("refused").newer);
    }
    for field in ["epoch", "owner", "id", "listing", "active", "plugins", "pods", "workers"] {
        let error = SnapshotDocument::parse(&change(field, json!({"x": 1}))).expect_err("refused");
        assert!(error.detail.contains(field), "{field} not in {:?}", error.detail);
    }
    assert!(SnapshotDocument::parse(&change("v", 2.into())).expect_err("refused").newer);
    let more = change("workers", json!([["a", 0, 0, 1, 3, 4, 0, "later"]]));
    assert!(!SnapshotDocument::parse(&more).expect("a later minor version").snapshot.workers[0].active);
}
