//! Values, and the rules between them.

use super::{accepted, flags, json, loader, refusal};
use std::time::Duration;
use tenure::settings::Settings;

#[test]
fn several_errors_at_once() {
    let error = loader()
        .file_text("t.toml", "colour = 1\nstartupJitterMin = -1\nleaseTimeout = 500")
        .file("/no/such/file")
        .env([("TENURE_ELIGIBLE", "maybe")])
        .flag("node", "a/b")
        .load()
        .expect_err("refused");
    let text = error.to_string();
    assert_eq!(text.lines().count(), 6, "{text}");
    for part in
        ["colour", "startupJitterMin = -1", "leaseTimeout = 500", "/no/such/file", "eligible = maybe", "a/b"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_wrong_value_does_not_blame_those_that_follow_it() {
    let line =
        refusal(flags(&[("heartbeatInterval", "-1"), ("leaseTimeout", "100"), ("requestTimeout", "20")]));
    assert!(line.starts_with("heartbeatInterval = -1"), "{line}");
}

#[test]
fn a_lease_must_outlive_its_heartbeat() {
    for lease in ["999", "1500"] {
        let line = refusal(flags(&[("leaseTimeout", lease)]));
        assert!(line.contains("`leaseTimeout` must be greater than `heartbeatInterval`"), "{line}");
        assert!(line.contains("[heartbeatInterval = 1500 (default)]"), "{line}");
    }
    let line = refusal(flags(&[("leaseTimeout", "2249")]));
    assert!(
        line.contains("at least 1.5 × `heartbeatInterval`") && line.contains("within 80 % of it"),
        "{line}"
    );
    for (hold, warned) in [("1", true), ("1.19", true), ("1.2", false), ("2", false)] {
        let resolved = flags(&[("leaseHoldFactor", hold)]).expect("accepted");
        assert_eq!(resolved.warnings.len(), usize::from(warned), "{hold}");
        assert_eq!(resolved.warnings, resolved.settings.warnings());
    }
}

#[test]
fn limits_of_single_values() {
    for (name, value, said) in [
        ("heartbeatInterval", "49", "must be at least 50 ms"),
        ("heartbeatInterval", "0", "must be at least 50 ms"),
        ("leaseTimeout", "86400001", "must be at most 86400000 ms"),
        ("leaseTimeout", "99999999999999999999999", "must be at most 86400000 ms"),
        ("leaseTimeout", "-99999999999999999999999", "cannot be negative"),
        ("leaseExpiryFactor", "2.49", "at least 1.25 × `leaseHoldFactor`"),
        ("leaseHoldFactor", "0.9", "at least 1 and at most 50"),
        ("leaseExpiryFactor", "-3", "at least 1.25 and at most 100"),
        ("leaseExpiryFactor", "101", "at least 1.25 and at most 100"),
        ("leaseExpiryFactor", "inf", "at least 1.25 and at most 100"),
        ("contentionThreshold", "0", "must be at least 0.01 and at most 100"),
        ("contentionThreshold", "nan", "must be at least 0.01 and at most 100"),
        ("contentionThreshold", "two", "must be a number"),
        ("priceWritePer1000", "-0.005", "must be at least 0 and at most 1000"),
        ("priceWritePer1000", "1001", "must be at least 0 and at most 1000"),
        ("priceReadPer1000", "0.0000004", "must have at most six decimals"),
        ("priceReadPer1000", "free", "must be a number"),
        ("priceReadPer1000", "inf", "must be at least 0 and at most 1000"),
        ("requestTimeout", "9", "must be at least 10 ms"),
        ("requestTimeout", "2500", "less than half of `leaseTimeout` × `leaseHoldFactor` (5000 ms)"),
        ("electionInterval", "3751", "at most half of `leaseTimeout` × `leaseExpiryFactor` (3750 ms)"),
        ("presenceInterval", "999", "must be at least 1000 ms"),
        ("takeoverDelay", "-1", "cannot be negative"),
        ("drainTimeout", "-1", "cannot be negative"),
        ("electionSettle", "-1", "cannot be negative"),
        ("dataDir", "a\nb", "control characters"),
        ("telemetryPrefix", "", "must not be empty"),
    ] {
        let line = refusal(flags(&[(name, value)]));
        assert!(line.starts_with(&format!("{name} = ")) && line.contains(said), "{name} {value}: {line}");
        assert!(!line.contains('\n'));
    }
    let least = [
        ("takeoverDelay", "0"),
        ("drainTimeout", "0"),
        ("electionSettle", "0"),
        ("leaseExpiryFactor", "2.5"),
        ("contentionThreshold", "0.01"),
        ("priceWritePer1000", "0"),
        ("priceReadPer1000", "1000"),
    ];
    assert_eq!(accepted(flags(&least)).tolerated_drift_permille(), 250);
}

#[test]
fn ids_that_could_leave_their_folder_are_refused() {
    let long = "x".repeat(1_000_000);
    for field in ["namespace", "node"] {
        for bad in ["a/b", "../x", "", "-a", "a b", long.as_str()] {
            let line = refusal(flags(&[(field, bad)]));
            assert!(line.starts_with(&format!("{field} = ")) && line.len() < 300, "{line}");
        }
    }
    assert!(refusal(flags(&[("node", &long)])).contains("`node` must be at most 128 bytes long"));
}

#[test]
fn secrets_in_store_urls_are_never_repeated() {
    for url in [
        "s3://me:s3cret@bucket",
        "https://me:s3cret@host/bucket",
        "postgres://me:s3/cret@s3cret@host",
        "gs://me:s3cret@",
        "s3://bucket/me:s3cret@x",
        "https://host/?sig=s3cret",
        "sqlite:/x.db?key=s3cret",
        "nonsense://x:s3cret@y\n",
    ] {
        for result in [
            flags(&[("store", url)]),
            json(&serde_json::json!({ "store": url }).to_string()),
            loader().env([("TENURE_STORE", url)]).load(),
        ] {
            let error = result.expect_err(url);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
            assert!(error.to_string().contains(" = "), "names the value as far as it may: {error}");
        }
    }
    // In the wrong place, too.
    assert!(!refusal(flags(&[("node", "https://me:s3cret@host")])).contains("s3cret"));
    assert!(refusal(flags(&[("store", "ftp://x")])).contains("s3://<bucket>"), "says which forms there are");
}

#[test]
fn gcs_needs_slow_heartbeats() {
    accepted(flags(&[("store", "gs://bucket/x")]));
    let gs = flags(&[("store", "gs://bucket/x"), ("preset", "fast")]).expect("accepted");
    assert_eq!(gs.warnings.len(), 1);
    assert!(
        gs.warnings[0].contains("at least 1000 on Google Cloud Storage")
            && gs.warnings[0].contains("store = gs://bucket/x")
    );
    accepted(flags(&[("store", "gs://bucket"), ("preset", "thrifty")]));
    accepted(flags(&[("store", "s3://bucket/x")]));
}

#[test]
fn settings_changed_by_hand_can_be_checked() {
    let mut settings = Settings::default();
    settings.lease_timeout = Duration::from_millis(10);
    settings.namespace = "a/b".into();
    let error = settings.check().expect_err("refused");
    assert!(error.problems.iter().any(|p| p.field.as_deref() == Some("namespace")), "{error}");
    assert!(error.problems.iter().any(|p| p.field.as_deref() == Some("leaseTimeout")), "{error}");
    // Rules calculate with times; one that is out of bounds must not get that far.
    let endless = Duration::MAX;
    (settings.lease_timeout, settings.presence_interval, settings.heartbeat_interval) =
        (endless, endless, endless);
    (settings.worker_heartbeat_interval, settings.request_timeout) = (endless, endless);
    let error = settings.check().expect_err("refused");
    assert_eq!(error.problems.len(), 6, "{error}");
}
