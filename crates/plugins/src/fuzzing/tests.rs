//! Runs the fuzzer's checks in every test run: on arbitrary bytes, and on damaged good documents.

#[path = "../../../tenure/src/fuzzing/tests/mishap.rs"]
mod mishap;

use super::*;
use mishap::{befall, mishap};
use proptest::prelude::*;
use std::path::Path;

type Check = fn(&[u8]) -> bool;

const CHECKS: [(&str, Check); 5] =
    [("health", health), ("terms", terms), ("schedule", schedule), ("apply", apply), ("command", command)];

/// The seeds of a check, sorted by name.
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

#[test]
fn a_health_document_at_the_bounds_of_its_numbers_is_gone_on_with() {
    for (name, most) in [("epoch", tenure::fence::EPOCH_MAX), ("sequence", u64::MAX / 2)] {
        let mut body: Value = serde_json::from_slice(&seeds("health")[0]).expect("JSON");
        body[name] = most.into();
        assert!(health(body.to_string().as_bytes()), "{name}");
        body[name] = (most + 1).into();
        assert!(!health(body.to_string().as_bytes()), "{name}");
    }
}

/// Found by the fuzzer: text from a document reached a terminal or a log unescaped.
#[test]
fn no_explanation_has_control_characters_of_the_document_in_it() {
    let health_body = String::from_utf8(seeds("health")[0].clone()).expect("text");
    assert!(!health(health_body.replace("\"state\": \"down\"", "\"state\": \"do\u{7f}n\"").as_bytes()));
    let cron = format!("0 {}\u{7f} * * 1-5", "_".repeat(5000));
    let body = serde_json::json!({"v": 1, "id": "report", "cron": cron, "checks": []});
    assert!(!schedule(body.to_string().as_bytes()));
    assert!(!apply(b"[{\"ca\": \"dns\", \x1b[31mred: true, \"checks\": []}]"));
    assert!(!apply(b"- id: web\n  \"\\e[31mred\": true\n"));
}

fn words(from: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(from), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

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
    fn what_starts_is_what_the_entry_names(
        variables in words(&["LEVEL=*", "LEVEL=/x", "PWD=*", "PWD=/"]),
        args in words(&["a", "*", "**"]),
        first in words(&["LEVEL=/x", "PWD=/", "/bin/y", "x"]),
        rest in words(&["a", "-b"]),
        directory in prop::option::of(prop::sample::select(&["/", "/x", ""][..])),
        env in prop::collection::btree_map(
            prop::sample::select(&["LEVEL", "PWD", "LD_PRELOAD", "LEVEL=/x /bin/x"][..]), "[/x*]{0,2}", 0..2,
        ),
    ) {
        let one = ["/bin/x"];
        let entry = [&variables[..], &one, &args].concat().join(" ");
        let payload = serde_json::json!({
            "command": ([&first[..], &one, &rest].concat()), "directory": directory, "env": env,
        });
        command(format!("{entry}\n{payload}").as_bytes());
    }

    #[test]
    fn unknown_fields_survive_a_rewrite(
        name in "[a-z]{1,12}Later", number in any::<f64>(), text in any::<String>(), count in any::<u64>(),
    ) {
        let number = if number.is_finite() { number } else { 0.1 };
        let extra = serde_json::json!({"number": number, "text": text, "count": count});
        for (kind, check) in CHECKS.iter().take(2) {
            let mut body: Value = serde_json::from_slice(&seeds(kind)[0]).expect("JSON");
            body[name.as_str()] = extra.clone();
            prop_assert!(check(body.to_string().as_bytes()), "{} with an unknown field", kind);
        }
    }
}
