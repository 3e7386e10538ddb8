//! The fuzzer's checks in every test run: on any bytes, and on good documents that something happened to.
//!
//! The seeds are those of `fuzz/`, which need no fuzzer to be true.

use super::*;
use proptest::prelude::*;
use std::path::Path;

type Check = fn(&[u8]) -> bool;

const CHECKS: [(&str, Check); 7] = [
    ("seat", seat),
    ("worker", worker),
    ("snapshot", snapshot),
    ("presence", presence),
    ("settings", settings),
    ("url", url),
    ("id", id),
];

/// The seeds of a check, in the order of their names.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// Something that happens to a document.
#[derive(Clone, Debug)]
enum Mishap {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
    /// A number becomes another.
    Number(prop::sample::Index, String),
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let at = || any::<prop::sample::Index>();
    let number = prop_oneof![
        prop::sample::select(vec![
            "0",
            "-1",
            "-0",
            "+1",
            "00",
            "1e9",
            "1e400",
            "0.1",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "null",
            "true",
            "\"1\"",
            "[]",
            "{}",
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("JSON has no others", |x| x.is_finite()).prop_map(|x| format!("{x:?}")),
    ];
    let pieces = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..8),
        prop::sample::select(vec![
            "\"x\":0.1,",
            "\"later\":[1,2],",
            "\\u0000",
            "..",
            "//",
            "\n",
            "ü",
            "[[",
            "}"
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    prop_oneof![
        at().prop_map(Mishap::Cut),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mishap::Flip(at, byte)),
        (at(), pieces).prop_map(|(at, piece)| Mishap::Insert(at, piece)),
        (at(), 1..20usize).prop_map(|(at, count)| Mishap::Remove(at, count)),
        (at(), 1..200usize).prop_map(|(at, count)| Mishap::Repeat(at, count)),
        (at(), number.clone()).prop_map(|(at, number)| Mishap::Number(at, number)),
        (at(), number).prop_map(|(at, number)| Mishap::Number(at, number)),
    ]
}

fn befall(mut body: Vec<u8>, mishap: &Mishap) -> Vec<u8> {
    if body.is_empty() {
        return body;
    }
    let length = body.len();
    let range = |at: &prop::sample::Index, count: usize| {
        let from = at.index(length);
        from..(from + count).min(length)
    };
    match mishap {
        Mishap::Cut(at) => body.truncate(at.index(body.len())),
        Mishap::Flip(at, byte) => {
            let at = at.index(body.len());
            body[at] ^= byte;
        }
        Mishap::Insert(at, piece) => {
            let at = at.index(body.len());
            body.splice(at..at, piece.iter().copied());
        }
        Mishap::Remove(at, count) => drop(body.drain(range(at, *count))),
        Mishap::Repeat(at, count) => {
            let range = range(at, *count);
            let piece = body[range.clone()].to_vec();
            body.splice(range.start..range.start, piece);
        }
        Mishap::Number(at, number) => {
            let digit = |at: &usize| body[*at].is_ascii_digit();
            let starts: Vec<usize> =
                (0..body.len()).filter(|at| digit(at) && (*at == 0 || !digit(&(at - 1)))).collect();
            if starts.is_empty() {
                return body;
            }
            let from = starts[at.index(starts.len())];
            let to = (from..body.len()).find(|at| !digit(at)).unwrap_or(body.len());
            body.splice(from..to, number.bytes());
        }
    }
    body
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

/// What has a type names its field when it has another; a field that is missing is named too.
#[test]
fn an_error_names_the_field() {
    type Explain = fn(&[u8]) -> Option<String>;
    let explain: [(&str, Explain, &[&str]); 3] = [
        (
            "seat",
            |body| SeatDocument::parse(body).err().map(|e| e.detail),
            &["v", "epoch", "state", "holder", "leaseTimeout", "renewals", "nonce"],
        ),
        (
            "worker",
            |body| WorkerDocument::parse(&NodeId::new("q1-worker-1").expect("valid"), body).err(),
            &["v", "workerId", "pluginType", "pod", "timeout", "incarnation", "nonce"],
        ),
        (
            "snapshot",
            |body| SnapshotDocument::parse(body).err().map(|e| e.detail),
            &["epoch", "sequence", "nonce", "listing", "active", "inactive", "plugins", "pods", "workers"],
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
    for name in ["renewals", "epoch"] {
        let mut body: Value = serde_json::from_slice(&seeds("seat")[0]).expect("JSON");
        body[name] = (u64::MAX / 2).into();
        assert!(seat(body.to_string().as_bytes()), "{name}");
        body[name] = (u64::MAX / 2 + 1).into();
        assert!(!seat(body.to_string().as_bytes()), "{name}");
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
        for (kind, check) in CHECKS.iter().take(3) {
            let mut body: Value = serde_json::from_slice(&seeds(kind)[0]).expect("JSON");
            body[name.as_str()] = extra.clone();
            prop_assert!(check(body.to_string().as_bytes()), "{} with an unknown field", kind);
        }
    }
}
