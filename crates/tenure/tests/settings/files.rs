//! Settings files: formats, wrong entries, and files that are none.

use super::{accepted, flags, json, loader, refusal, toml};
use tenure::clock::millis;

#[test]
fn unknown_fields_are_refused_with_the_nearest_name_and_without_their_value() {
    let line = refusal(toml("hartbeatInterval = \"s3cret\""));
    assert_eq!(
        line,
        "hartbeatInterval (file tenure.toml): unknown setting; did you mean `heartbeatInterval`?"
    );
    assert!(refusal(toml("lease_timeout = 1")).contains("`leaseTimeout`?"));
    assert!(!refusal(toml("colour = 1")).contains("did you mean"));
    assert!(refusal(flags(&[("--lease-timout", "1")])).contains("`leaseTimeout`?"));
    assert!(refusal(toml("[section]\nx = 1")).contains("section (file tenure.toml): unknown"));
}

#[test]
fn wrong_types_are_refused() {
    for (text, said) in [
        ("leaseTimeout = \"3000\"", "milliseconds, not a text"),
        ("leaseTimeout = 3000.5", "milliseconds, not a fraction"),
        ("leaseTimeout = 3000.0", "milliseconds, not a fraction"),
        ("leaseTimeout = true", "milliseconds, not true or false"),
        ("leaseTimeout = [3000]", "milliseconds, not a list"),
        ("leaseTimeout = {}", "milliseconds, not a table"),
        ("leaseTimeout = 2020-01-01", "milliseconds, not a table"),
        ("eligible = \"false\"", "true or false, not a text"),
        ("eligible = 0", "true or false, not a whole number"),
        ("leaseExpiryFactor = \"3\"", "a number, not a text"),
        ("leaseExpiryFactor = nan", "at least 1.25"),
        ("leaseExpiryFactor = 2.2345", "at most three decimals"),
        ("node = 7", "a text, not a whole number"),
        ("store = false", "a text, not true or false"),
        ("preset = 1", "a text, not a whole number"),
    ] {
        let line = refusal(toml(text));
        assert!(line.contains(said), "{text}: {line}");
    }
    assert!(refusal(json(r#"{"leaseTimeout": null}"#)).contains("not null"));
    assert!(refusal(flags(&[("leaseTimeout", "1e3")])).contains("must be a time with its unit (500ms,"));
    for time in ["2s500ms", "2500"] {
        assert_eq!(millis(accepted(flags(&[("leaseTimeout", time)])).lease_timeout), 2500);
    }
    assert_eq!(millis(accepted(toml("leaseTimeout = \"2s500ms\"")).lease_timeout), 2500);
    assert!(refusal(flags(&[("leaseTimeout", "")])).contains("leaseTimeout = \"\""));
}

#[test]
fn the_format_follows_name_then_content() {
    for (name, text) in [
        ("a.toml", "takeoverDelay = 7"),
        ("a.TOML", "takeoverDelay = 7"),
        ("a.json", "{\"takeoverDelay\": 7}"),
        ("a", " \n{\"takeoverDelay\": 7}"),
        ("a.conf", "\u{feff}takeoverDelay = 7"),
    ] {
        let settings = accepted(loader().file_text(name, text).load());
        assert_eq!(millis(settings.takeover_delay), 7, "{name}");
    }
    accepted(toml(""));
    assert!(refusal(json("")).contains("is not valid JSON"));
    assert!(refusal(json("[1]")).contains("must be one JSON object"));
    assert!(refusal(json(r#"{"node": "a", "node": "b"}"#)).contains("given twice"));
    let line = refusal(toml("node = \"a\"\nstore = \"s3://me:s3cret@b\" x"));
    assert!(line.starts_with("file tenure.toml: is not valid TOML: line 2: "), "{line}");
    assert!(!line.contains("s3cret") && !line.contains('\n'), "{line}");
}

#[test]
fn missing_unreadable_and_oversized_files_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("good.toml"), "takeoverDelay = 7").expect("written");
    assert_eq!(millis(accepted(loader().file(path("good.toml")).load()).takeover_delay), 7);
    assert!(refusal(loader().file(path("none.toml")).load()).contains("none.toml: cannot be read: "));
    assert!(refusal(loader().file(dir.path()).load()).contains("cannot be read: "));
    std::fs::write(path("big.toml"), "#".repeat((1 << 20) + 1)).expect("written");
    assert!(refusal(loader().file(path("big.toml")).load()).contains("is larger than 1048576 bytes"));
    std::fs::write(path("full.toml"), "#".repeat(1 << 20)).expect("written");
    accepted(loader().file(path("full.toml")).load());
    std::fs::write(path("binary.toml"), b"node = \"\xff\"").expect("written");
    assert!(refusal(loader().file(path("binary.toml")).load()).contains("is not UTF-8 text (at byte 8)"));
    assert!(refusal(loader().file_text("t", "#".repeat(2 << 20)).load()).contains("is larger than"));
    assert!(refusal(loader().file("/dev/zero").load()).contains("is larger than"));
}

#[test]
fn deep_and_wide_files_stay_bounded() {
    for text in ["[".repeat(500_000), "{\"a\":".repeat(100_000), format!("{{\"a\":{}", "[".repeat(500_000))] {
        assert!(json(&text).is_err());
    }
    for text in [format!("a = {}", "[".repeat(500_000)), format!("{}=1", "a.".repeat(400_000) + "a")] {
        assert!(toml(&text).is_err());
    }
    let wide: String = (0..50_000).map(|i| format!("unknown{i} = 1\n")).collect();
    let error = toml(&wide).expect_err("refused");
    assert_eq!(error.problems.len() + error.omitted, 50_000);
    assert!(error.to_string().len() < 20_000);
}
