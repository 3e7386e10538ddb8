//! The fuzzer's checks in every test run: on any bytes, and on good documents that were damaged.
//!
//! The seeds are those of `fuzz/`; they must hold without a fuzzer too.

mod mishap;

use super::*;
use mishap::{befall, mishap};
use proptest::prelude::*;
use std::path::Path;
use tenure_core::WorkerId;

type Check = fn(&[u8]) -> bool;

const CHECKS: [(&str, Check); 12] = [
    ("seat", seat),
    ("worker", worker),
    ("snapshot", snapshot),
    ("ledger", ledger),
    ("inbox", inbox),
    ("orders", orders),
    ("history", history),
    ("output", output),
    ("presence", presence),
    ("settings", settings),
    ("url", url),
    ("id", id),
];

/// The seeds of a check, in name order.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

#[test]
fn every_seed_is_understood() {
    for (name, check) in CHECKS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            assert!(check(&seed), "{name}: {}", String::from_utf8_lossy(&seed));
        }
    }
}

/// A field of the wrong type is named in the error, and so is a missing one.
#[test]
fn an_error_names_the_field() {
    type Explain = fn(&[u8]) -> Option<String>;
    let explain: [(&str, Explain, &[&str]); 3] = [
        (
            "seat",
            |body| SeatDocument::parse(body).err().map(|e| e.detail),
            &["v", "epoch", "state", "holder", "leaseHold", "leaseExpiry", "renewals", "nonce"],
        ),
        (
            "worker",
            |body| {
                WorkerDocument::parse(&WorkerId::new("q1-worker-1").expect("valid"), body)
                    .err()
                    .map(|e| e.detail)
            },
            &["v", "workerId", "pluginType", "pod", "timeout", "incarnation", "nonce"],
        ),
        (
            "snapshot",
            |body| SnapshotDocument::parse(body).err().map(|e| e.detail),
            &["epoch", "owner", "nonce", "id", "listing", "active", "inactive", "plugins", "pods", "workers"],
        ),
    ];
    for (name, explain, fields) in explain {
        let good: Value = serde_json::from_slice(&seeds(name)[0]).expect("JSON");
        for field in fields {
            let mut missing = good.clone();
            missing.as_object_mut().expect("an object").remove(*field);
            let mut bodies = vec![missing];
            for wrong in
                [serde_json::json!(true), serde_json::json!(-1), serde_json::json!([[]]), Value::Null]
            {
                let mut body = good.clone();
                body[*field] = wrong;
                bodies.push(body);
            }
            for body in bodies.iter().filter(|_| *field != "v" || name == "seat") {
                let detail = explain(body.to_string().as_bytes()).unwrap_or_else(|| panic!("{name}: {body}"));
                assert!(detail.contains(&format!("`{field}`")), "{name} {field}: {detail}");
            }
        }
    }
}

#[test]
fn a_seat_at_the_bounds_of_its_numbers_is_read_and_written() {
    for (name, most) in [("renewals", u64::MAX / 2), ("epoch", Epoch::MAX.0)] {
        let mut body: Value = serde_json::from_slice(&seeds("seat")[0]).expect("JSON");
        body[name] = most.into();
        assert!(seat(body.to_string().as_bytes()), "{name}");
        body[name] = (most + 1).into();
        assert!(!seat(body.to_string().as_bytes()), "{name}");
    }
}

#[test]
fn a_ledger_at_the_bounds_of_its_numbers_is_worked_by() {
    let good: Value = serde_json::from_slice(&seeds("ledger")[1]).expect("JSON");
    let fields = [
        ("timeout", u64::MAX / 2),
        ("ttl", u64::MAX / 2),
        ("deadline", u64::MAX / 2),
        ("backoff", u64::MAX / 2),
        ("attempts", u64::from(u32::MAX)),
        ("dispatch", u64::from(u32::MAX / 2)),
        ("unbegun", u64::from(u32::MAX / 2)),
        ("epoch", Epoch::MAX.0),
    ];
    for (field, most) in fields {
        let mut body = good.clone();
        for job in body["jobs"].as_array_mut().expect("a list") {
            job[field] = most.into();
        }
        assert!(ledger(body.to_string().as_bytes()), "{field}");
        body["jobs"][0][field] = (most + 1).into();
        assert!(!ledger(body.to_string().as_bytes()), "{field}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_understood_or_explained(bytes in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,200}") {
        for (_, check) in CHECKS {
            check(&bytes);
            check(text.as_bytes());
        }
    }

    #[test]
    fn what_happens_to_a_good_document_is_noticed_or_kept(
        which in any::<prop::sample::Index>(),
        mishaps in prop::collection::vec(mishap(), 1..4),
    ) {
        for (name, check) in CHECKS {
            let seeds = seeds(name);
            check(&mishaps.iter().fold(seeds[which.index(seeds.len())].clone(), befall));
        }
    }

    #[test]
    fn unknown_fields_survive_a_rewrite(
        name in "[a-z]{1,12}Later", number in any::<f64>(), text in any::<String>(), count in any::<u64>(),
    ) {
        let number = if number.is_finite() { number } else { 0.1 };
        let extra = serde_json::json!({"number": number, "text": text, "count": count});
        for (kind, check) in CHECKS.iter().take(5) {
            let mut body: Value = serde_json::from_slice(&seeds(kind)[0]).expect("JSON");
            body[name.as_str()] = extra.clone();
            prop_assert!(check(body.to_string().as_bytes()), "{} with an unknown field", kind);
        }
    }
}
