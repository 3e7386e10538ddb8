//! Settings as operators and programs meet them. Nothing here reads or writes the process environment.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tenure::settings::{
    FIELDS, Fallback, Kind, Loader, PRESETS, Resolved, Settings, SettingsError, Source, Value, default_toml,
};

/// A loader in an empty environment but for a home directory.
fn loader() -> Loader {
    Settings::loader().env([("HOME", "/home/me")])
}

fn toml(text: &str) -> Result<Resolved, SettingsError> {
    loader().file_text("tenure.toml", text).load()
}

fn json(text: &str) -> Result<Resolved, SettingsError> {
    loader().file_text("tenure.json", text).load()
}

fn flags(flags: &[(&str, &str)]) -> Result<Resolved, SettingsError> {
    flags.iter().fold(loader(), |loader, (name, value)| loader.flag(name, *value)).load()
}

/// The only line of an error that has only one.
#[track_caller]
fn refusal(result: Result<Resolved, SettingsError>) -> String {
    let error = result.expect_err("must be refused");
    assert_eq!(error.problems.len(), 1, "{error}");
    error.to_string()
}

#[track_caller]
fn accepted(result: Result<Resolved, SettingsError>) -> Settings {
    let resolved = result.unwrap_or_else(|error| panic!("must be accepted: {error}"));
    assert_eq!(resolved.warnings, Vec::<String>::new());
    resolved.settings
}

// Requirements.

#[test]
fn jv1_negative_minimum_is_refused() {
    let by_flag = refusal(flags(&[("startupJitterMin", "-100")]));
    assert_eq!(
        by_flag,
        "startupJitterMin = -100 (flag --startup-jitter-min): `startupJitterMin` cannot be negative"
    );
    let by_file = refusal(toml("startupJitterMin = -100"));
    assert_eq!(by_file, "startupJitterMin = -100 (file tenure.toml): `startupJitterMin` cannot be negative");
    let by_env = refusal(loader().env([("TENURE_STARTUP_JITTER_MIN", "-100")]).load());
    assert!(by_env.contains("environment TENURE_STARTUP_JITTER_MIN"), "{by_env}");
}

#[test]
fn jv2_max_below_min_is_refused() {
    let line = refusal(json(r#"{"startupJitterMin": 5000, "startupJitterMax": 1000}"#));
    assert!(line.starts_with("startupJitterMax = 1000 (file tenure.json): "), "{line}");
    assert!(line.contains("`startupJitterMax` must be >= `startupJitterMin`"), "{line}");
    assert!(line.contains("startupJitterMin = 5000"), "{line}");
}

#[test]
fn jv3_zero_is_accepted() {
    let settings = accepted(toml("startupJitterMin = 0\nstartupJitterMax = 0"));
    assert_eq!((settings.startup_jitter_min_ms, settings.startup_jitter_max_ms), (0, 0));
}

#[test]
fn ji2_a_jitter_range_is_taken_as_given() {
    let settings = accepted(toml("startupJitterMin = 2000\nstartupJitterMax = 8000"));
    let config = settings.core_config();
    assert_eq!((config.startup_jitter_min_ms, config.startup_jitter_max_ms), (2000, 8000));
}

#[test]
fn ji3_ji4_no_jitter_and_fixed_jitter_are_accepted() {
    assert_eq!(accepted(toml("startupJitterMax = 0")).startup_jitter_max_ms, 0);
    let fixed = accepted(toml("startupJitterMin = 3000\nstartupJitterMax = 3000"));
    assert_eq!((fixed.startup_jitter_min_ms, fixed.startup_jitter_max_ms), (3000, 3000));
}

#[test]
fn jb1_no_jitter_setting_means_default_jitter() {
    let settings = accepted(toml("heartbeatInterval = 900"));
    assert_eq!((settings.startup_jitter_min_ms, settings.startup_jitter_max_ms), (0, 5000));
    let with = accepted(toml("heartbeatInterval = 900\nstartupJitterMin = 0\nstartupJitterMax = 5000"));
    assert_eq!(settings, with, "everything else is unchanged");
}

#[test]
fn td2_takeover_delay_from_the_environment() {
    let resolved = loader().env([("COORDINATOR_TAKEOVER_DELAY", "2000")]).load().expect("accepted");
    assert_eq!(resolved.settings.takeover_delay_ms, 2000);
    assert_eq!(resolved.settings.core_config().takeover_delay_ms, 2000);
    assert_eq!(resolved.source("takeoverDelay"), Some(&Source::Env("COORDINATOR_TAKEOVER_DELAY".into())));
    assert_eq!(accepted(loader().load()).takeover_delay_ms, 1000);
}

#[test]
fn ap2_static_coordinator_setting_is_ignored_with_one_warning() {
    let everywhere = loader()
        .file_text("tenure.toml", "cluster_coordinator = true\nclusterCoordinator = [\"anything\"]")
        .env([("CLUSTER_COORDINATOR", "pod-a")])
        .flag("clusterCoordinator", "false")
        .load()
        .expect("accepted");
    assert_eq!(everywhere.warnings.len(), 1, "{:?}", everywhere.warnings);
    assert!(everywhere.warnings[0].contains("`cluster_coordinator` is deprecated"));
    assert!(everywhere.warnings[0].contains("the election decides"));
    assert_eq!(everywhere.settings, accepted(loader().load()));
    for one in [
        toml("cluster_coordinator = {}"),
        json(r#"{"clusterCoordinator": null}"#),
        loader().env([("CLUSTER_COORDINATOR", "")]).load(),
    ] {
        assert_eq!(one.expect("accepted").warnings.len(), 1);
    }
}

#[test]
fn ce1_eligible_from_the_environment() {
    for yes in ["true", "1", "yes", "TRUE", " true "] {
        assert!(
            accepted(loader().env([("COORDINATOR_ELIGIBLE", yes)]).load()).core_config().eligible,
            "{yes}"
        );
    }
    assert!(accepted(loader().load()).eligible);
}

#[test]
fn ce2_not_eligible_from_the_environment() {
    for no in ["false", "0", "no", "No"] {
        assert!(
            !accepted(loader().env([("COORDINATOR_ELIGIBLE", no)]).load()).core_config().eligible,
            "{no}"
        );
    }
    for wrong in ["", "maybe", "2", "on", "truee", "-1"] {
        let line = refusal(loader().env([("COORDINATOR_ELIGIBLE", wrong)]).load());
        assert!(
            line.contains("(environment COORDINATOR_ELIGIBLE): `eligible` must be true or false"),
            "{line}"
        );
    }
}

#[test]
fn gd2_the_service_knobs_are_marked() {
    let shared: BTreeSet<_> = FIELDS.iter().filter(|field| field.shared).map(|field| field.name).collect();
    for knob in
        ["heartbeatInterval", "leaseTimeout", "startupJitterMin", "startupJitterMax", "diagnosticsEnabled"]
    {
        assert!(shared.contains(knob), "{knob}");
    }
    for own in ["node", "store", "namespace", "eligible"] {
        assert!(!shared.contains(own), "{own}");
    }
}

#[test]
fn gd5_the_global_coordinator_block_sets_the_service() {
    let block = r#""globalCoordinator": {"heartbeatInterval": 3000, "leaseTimeout": 10000, "diagnosticsEnabled": true}"#;
    let settings = accepted(json(&format!("{{{block}}}")));
    assert_eq!((settings.heartbeat_interval_ms, settings.lease_timeout_ms), (3000, 10_000));
    assert!(settings.diagnostics_enabled);
    let same = accepted(toml(
        "leaseTimeout = 10000\n[globalCoordinator]\nheartbeatInterval = 3000\nleaseTimeout = 10000\n\
         diagnosticsEnabled = true",
    ));
    assert_eq!(same, settings);
    assert_eq!(settings.shared()["heartbeatInterval"], 3000);

    for order in ["{\"leaseTimeout\": 9000, BLOCK}", "{BLOCK, \"leaseTimeout\": 9000}"] {
        let line = refusal(json(&order.replace("BLOCK", block)));
        assert!(line.contains("`leaseTimeout` is given twice with different values"), "{line}");
    }
    let line = refusal(json(r#"{"globalCoordinator": {"node": "a"}}"#));
    assert!(
        line.starts_with("globalCoordinator.node = a (file tenure.json): `node` belongs to the node"),
        "{line}"
    );
    let line = refusal(json(r#"{"globalCoordinator": {"leaseTimeut": 1}}"#));
    assert!(line.contains("globalCoordinator.leaseTimeut") && line.contains("`leaseTimeout`?"), "{line}");
    assert!(refusal(json(r#"{"globalCoordinator": 7}"#)).contains("must be a table"));
    // The block belongs to a layer like the rest of its file.
    let over =
        loader().file_text("a.json", format!("{{{block}}}")).flag("--heartbeat-interval", "4000").load();
    assert_eq!(accepted(over).heartbeat_interval_ms, 4000);
}

// Defaults, presets, layers.

#[test]
fn defaults_are_the_designed_ones_and_the_cores() {
    let settings = accepted(loader().flag("node", "n").load());
    assert_eq!(settings.core_config(), tenure_core::Config::default());
    assert_eq!(settings.request_timeout_ms, 750);
    assert_eq!(settings.namespace, "default");
    assert_eq!(settings.telemetry_prefix, "serviceradar");
    assert_eq!(settings.store.to_string(), "sqlite:/home/me/.local/share/tenure/tenure.db");
    assert!(!settings.diagnostics_enabled);
    assert_eq!(settings.failover_bound_ms(), 9500);
    assert!(Settings::default().check().is_ok());
    let id = Settings::default().node.to_string();
    assert!(id.ends_with(&format!("-{}", std::process::id())), "{id}");
}

#[test]
fn presets_as_designed_in_any_layer() {
    let fast = accepted(loader().env([("TENURE_PRESET", "fast")]).load());
    assert_eq!((fast.heartbeat_interval_ms, fast.lease_timeout_ms), (250, 1000));
    assert_eq!((fast.lease_expiry_factor_permille, fast.takeover_delay_ms), (1500, 100));
    assert_eq!((fast.election_interval_ms, fast.request_timeout_ms), (250, 300));
    assert_eq!((fast.failover_bound_ms(), fast.tolerated_drift_permille()), (1850, 500));
    let thrifty = accepted(toml("preset = \"thrifty\""));
    assert_eq!((thrifty.heartbeat_interval_ms, thrifty.lease_timeout_ms), (5000, 15_000));
    assert_eq!((thrifty.takeover_delay_ms, thrifty.failover_bound_ms()), (1000, 51_000));
    // Chosen last, and still below what the file says.
    let mixed =
        loader().file_text("t.toml", "takeoverDelay = 7").flag("preset", "fast").load().expect("accepted");
    assert_eq!((mixed.settings.takeover_delay_ms, mixed.settings.lease_timeout_ms), (7, 1000));
    assert_eq!(mixed.source("leaseTimeout"), Some(&Source::Preset("fast")));
    assert_eq!(mixed.source("takeoverDelay"), Some(&Source::File("t.toml".into())));
    let built = Settings::builder().preset("fast").build().expect("accepted");
    assert_eq!(built.lease_timeout_ms, 1000);
    let line = refusal(flags(&[("preset", "slow")]));
    assert!(line.contains("`preset` must be one of default, thrifty, fast"), "{line}");
}

#[test]
fn every_preset_is_valid_and_selectable() {
    let Some(Kind::Choice(words)) =
        FIELDS.iter().find(|field| field.name == "preset").map(|field| field.kind)
    else {
        panic!("preset is a choice");
    };
    assert_eq!(PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>(), words);
    for preset in PRESETS {
        accepted(flags(&[("preset", preset.name)]));
    }
}

#[test]
fn later_layers_win_and_say_so() {
    let base = || loader().file_text("t.toml", "leaseTimeout = 3000\nnode = \"file\"\ntakeoverDelay = 1");
    let env = || base().env([("TENURE_LEASE_TIMEOUT", "4000"), ("TENURE_NODE", "env")]);
    let all = env().flag("leaseTimeout", "5000").load().expect("accepted");
    let source = |name| all.source(name).cloned().expect(name);
    assert_eq!(all.settings.lease_timeout_ms, 5000);
    assert_eq!(source("leaseTimeout"), Source::Flag("--lease-timeout".into()));
    assert_eq!(all.settings.node.as_str(), "env");
    assert_eq!(source("node"), Source::Env("TENURE_NODE".into()));
    assert_eq!(source("takeoverDelay"), Source::File("t.toml".into()));
    assert_eq!(source("heartbeatInterval"), Source::Default);
    assert_eq!(all.source("no such"), None);
    // The order of the calls does not matter, only the layer.
    let reordered = Settings::loader().flag("leaseTimeout", "5000").env([("TENURE_LEASE_TIMEOUT", "1")]);
    assert_eq!(reordered.load().expect("accepted").settings.lease_timeout_ms, 5000);
    let built = Settings::builder().lease_timeout(6000).env([("TENURE_LEASE_TIMEOUT", "4000")]).resolve();
    assert_eq!(built.expect("accepted").source("leaseTimeout"), Some(&Source::Builder));
}

#[test]
fn computed_defaults_follow_and_can_be_set() {
    let settings = accepted(toml("heartbeatInterval = 2000\nleaseTimeout = 6000"));
    assert_eq!((settings.election_interval_ms, settings.request_timeout_ms), (2000, 1800));
    let settings = accepted(loader().env([("COORDINATOR_ELECTION_INTERVAL", "700")]).load());
    assert_eq!(settings.election_interval_ms, 700);
    let dir = accepted(loader().env([("TENURE_DATA_DIR", "/data")]).load());
    assert_eq!(
        (dir.data_dir, dir.store.to_string()),
        (PathBuf::from("/data"), "sqlite:/data/tenure.db".into())
    );
    for field in FIELDS {
        if let Fallback::Computed { needs, .. } = field.default {
            let before: Vec<_> =
                FIELDS.iter().map(|f| f.name).take_while(|name| *name != field.name).collect();
            assert!(needs.iter().all(|need| before.contains(need)), "{}: the table is in order", field.name);
        }
    }
}

// Environment.

#[test]
fn the_newer_variable_wins_with_a_warning_if_they_differ() {
    let both = |old: &str| {
        let env = [("COORDINATOR_TAKEOVER_DELAY", old), ("TENURE_TAKEOVER_DELAY", "300")];
        loader().env(env).load().expect("accepted")
    };
    assert_eq!(both("200").settings.takeover_delay_ms, 300);
    assert_eq!(
        both("200").warnings,
        ["COORDINATOR_TAKEOVER_DELAY is ignored because TENURE_TAKEOVER_DELAY is set"]
    );
    assert!(both("300").warnings.is_empty());
}

#[test]
fn strange_variables_with_our_prefix_are_named() {
    let resolved =
        loader().env([("TENURE_LEASE_TIMOUT", "5"), ("TENURE_CAKE", "5")]).load().expect("accepted");
    assert_eq!(resolved.warnings.len(), 2, "{:?}", resolved.warnings);
    assert!(resolved.warnings.iter().any(|w| w.contains("did you mean TENURE_LEASE_TIMEOUT?")));
    let silent = [
        "TENURE_CONFIG",
        "TENURE_LOG",
        "TENURE_RECORD",
        "TENURE_SEED",
        "TENURE_SEEDS",
        "TENURE_TEST_S3",
        "TENURE_PORT_80_TCP",
        "TENURE_SERVICE_HOST",
        "PATH",
        "COORDINATOR_CAKE",
    ];
    accepted(loader().env(silent.map(|name| (name, "x"))).load());
}

#[cfg(unix)]
#[test]
fn variables_that_are_no_text_are_refused_or_ignored() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let broken = || OsString::from_vec(vec![0xff, 0xfe]);
    let line = refusal(loader().env([(OsString::from("TENURE_NODE"), broken())]).load());
    assert!(line.contains("must be UTF-8"), "{line}");
    accepted(loader().env([(broken(), broken())]).load());
}

// Files.

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
    assert!(refusal(flags(&[("leaseTimeout", "1e3")])).contains("must be a whole number of milliseconds"));
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
        assert_eq!(settings.takeover_delay_ms, 7, "{name}");
    }
    accepted(toml(""));
    assert!(refusal(json("")).contains("is not valid JSON"));
    assert!(refusal(json("[1]")).contains("must hold one JSON object"));
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
    assert_eq!(accepted(loader().file(path("good.toml")).load()).takeover_delay_ms, 7);
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

// Values and the rules between them.

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
    for lease in ["999", "1000"] {
        let line = refusal(flags(&[("leaseTimeout", lease)]));
        assert!(line.contains("`leaseTimeout` must be greater than `heartbeatInterval`"), "{line}");
        assert!(line.contains("[heartbeatInterval = 1000 (default)]"), "{line}");
    }
    let line = refusal(flags(&[("leaseTimeout", "1499")]));
    assert!(
        line.contains("at least 1.5 × `heartbeatInterval`") && line.contains("80 % of the lease"),
        "{line}"
    );
    for (lease, warned) in [("1500", true), ("1999", true), ("2000", false)] {
        let resolved = flags(&[("leaseTimeout", lease)]).expect("accepted");
        assert_eq!(resolved.warnings.len(), usize::from(warned), "{lease}");
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
        ("leaseExpiryFactor", "1.2", "1.25 tolerates 25 %"),
        ("leaseExpiryFactor", "-3", "at least 1.25 and at most 100"),
        ("leaseExpiryFactor", "101", "at least 1.25 and at most 100"),
        ("leaseExpiryFactor", "inf", "at least 1.25 and at most 100"),
        ("requestTimeout", "9", "must be at least 10 ms"),
        ("requestTimeout", "1250", "must be less than half of `leaseTimeout`"),
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
        ("leaseExpiryFactor", "1.25"),
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
    let gs = flags(&[("store", "gs://bucket/x")]).expect("accepted");
    assert_eq!(gs.warnings.len(), 1);
    assert!(gs.warnings[0].contains("2000") && gs.warnings[0].contains("store = gs://bucket/x"));
    accepted(flags(&[("store", "gs://bucket"), ("preset", "thrifty")]));
    accepted(flags(&[("store", "s3://bucket/x")]));
}

#[test]
fn settings_changed_by_hand_can_be_checked() {
    let mut settings = Settings::default();
    settings.lease_timeout_ms = 10;
    settings.namespace = "a/b".into();
    let error = settings.check().expect_err("refused");
    assert!(error.problems.iter().any(|p| p.field.as_deref() == Some("namespace")), "{error}");
    assert!(error.problems.iter().any(|p| p.field.as_deref() == Some("leaseTimeout")), "{error}");
}

// The table, and what is made of it.

/// A valid value for each kind that is no default.
fn other_value(kind: Kind) -> &'static str {
    match kind {
        Kind::Millis { .. } => "1100",
        Kind::Factor { .. } => "2.125",
        Kind::Bool => "flip",
        Kind::Text => "/elsewhere",
        Kind::Id => "other",
        Kind::Store => "s3://elsewhere/x",
        Kind::Choice(_) => "thrifty",
    }
}

#[test]
fn every_row_of_the_table_works_through_every_layer() {
    for field in FIELDS {
        let default = accepted(loader().load()).value(field.name).expect(field.name);
        let text = match (other_value(field.kind), &default) {
            // It must outlive the heartbeat.
            ("1100", _) if field.name == "leaseTimeout" => "3000".to_owned(),
            ("flip", value) => (value != &Value::Bool(true)).to_string(),
            (text, _) => text.to_owned(),
        };
        let by_flag = loader().flag(field.flag, text.as_str()).load().expect(field.name);
        let value = by_flag.settings.value(field.name).expect(field.name);
        assert_ne!(value, default, "{}", field.name);
        assert_eq!(value.to_string(), text, "{}", field.name);
        assert_eq!(by_flag.source(field.name), Some(&Source::Flag(field.flag.into())));
        for name in std::iter::once(&field.env).chain(field.also) {
            let by_env = loader().env([(*name, text.as_str())]).load().expect(name);
            assert_eq!(by_env.settings, by_flag.settings, "{name}");
        }
        let quoted = matches!(field.kind, Kind::Text | Kind::Id | Kind::Store | Kind::Choice(_));
        let line =
            if quoted { format!("{} = {text:?}", field.name) } else { format!("{} = {text}", field.name) };
        assert_eq!(toml(&line).expect(&line).settings, by_flag.settings, "{line}");
        assert!(field.doc.contains("Default: "), "{}: the text says the default", field.name);
        assert!(!field.default_text().is_empty());
    }
}

#[test]
fn names_follow_one_convention_and_are_unique() {
    let mut seen = BTreeSet::new();
    for field in FIELDS {
        let words = field.name.chars().fold(String::new(), |words, c| match c.is_ascii_uppercase() {
            true => words + "-" + &c.to_ascii_lowercase().to_string(),
            false => words + &c.to_string(),
        });
        assert_eq!(field.flag, format!("--{words}"));
        assert_eq!(field.env, format!("TENURE_{}", words.replace('-', "_").to_uppercase()));
        for name in [field.name, field.env, field.flag].iter().chain(field.also) {
            assert!(seen.insert(*name), "{name} is declared twice");
        }
    }
}

#[test]
fn every_setting_has_a_setter() {
    let built = Settings::builder()
        .preset("fast")
        .namespace("ns")
        .node("n")
        .data_dir("/d")
        .store("memory:x")
        .eligible(false)
        .heartbeat_interval(1100)
        .lease_timeout(4000)
        .lease_expiry_factor(2.5)
        .takeover_delay(1)
        .election_interval(1200)
        .startup_jitter_min(2)
        .startup_jitter_max(3)
        .election_settle(4)
        .presence_interval(5000)
        .store_clock_margin(6)
        .request_timeout(700)
        .drain_timeout(8)
        .telemetry_prefix("t")
        .diagnostics_enabled(true)
        .resolve()
        .expect("accepted");
    for origin in &built.sources {
        assert_eq!(origin.source, Source::Builder, "{}", origin.field.name);
        let default = Settings::default().value(origin.field.name).expect("known");
        assert_ne!(origin.value, default, "{}", origin.field.name);
    }
    assert!(Settings::builder().takeover_delay(u64::MAX).build().is_err());
    assert!(Settings::builder().lease_expiry_factor(f64::NAN).build().is_err());
}

#[test]
fn the_default_file_changes_nothing_even_uncommented() {
    let file = default_toml();
    let node = |loader: Loader| accepted(loader.load());
    assert_eq!(node(loader().file_text("d.toml", file.as_str())), accepted(loader().load()));
    let lines = file.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest,
        Some(_) | None => line,
    });
    let uncommented: String = lines.flat_map(|line| [line, "\n"]).collect();
    let resolved = loader().file_text("d.toml", uncommented.as_str()).load().expect("accepted");
    assert_eq!(resolved.settings, accepted(loader().load()));
    for field in FIELDS {
        assert!(file.contains(&format!("{} = ", field.name)), "{} is missing", field.name);
        let from_file = matches!(resolved.source(field.name), Some(Source::File(_)));
        assert_eq!(from_file, matches!(field.default, Fallback::Text(_)), "{}", field.name);
    }
    assert!(file.lines().all(|line| line.chars().count() <= 110));
}

#[test]
fn what_is_shown_loads_back() {
    let resolved = loader()
        .env([("TENURE_LEASE_EXPIRY_FACTOR", "2.5"), ("TENURE_DATA_DIR", "/a \"b\" #'c")])
        .flag("preset", "fast")
        .load()
        .expect("accepted");
    let file = resolved.to_toml_commented();
    assert_eq!(accepted(Settings::loader().file_text("t.toml", file.as_str()).load()), resolved.settings);
    assert!(file.contains("leaseExpiryFactor = 2.5 # environment TENURE_LEASE_EXPIRY_FACTOR\n"), "{file}");
    assert!(file.contains("leaseTimeout = 1000 # preset fast\n"), "{file}");
    let rows = resolved.rows();
    assert_eq!(rows.len(), FIELDS.len());
    assert!(rows.contains(&["preset".into(), "fast".into(), "flag --preset".into()]));
}

// Whatever comes in, what comes out is settings or an error, and valid settings stay valid.

fn lines() -> impl Strategy<Value = String> {
    let name =
        prop::sample::select(FIELDS.iter().map(|f| f.name).chain(["globalCoordinator"]).collect::<Vec<_>>());
    let value = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (0..5000i64).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|x| format!("{x:?}")),
        any::<String>().prop_map(|s| format!("{s:?}")),
        Just("true".to_owned()),
        Just("{ leaseTimeout = 1 }".to_owned()),
        Just("[[]]".to_owned()),
        ".*",
    ];
    prop::collection::vec((name, value).prop_map(|(name, value)| format!("{name} = {value}\n")), 0..6)
        .prop_map(|lines| lines.concat())
}

/// One line for each problem, whatever was in the values.
fn check_outcome(result: Result<Resolved, SettingsError>) -> Result<(), TestCaseError> {
    match result {
        Ok(resolved) => prop_assert!(resolved.settings.check().is_ok()),
        Err(error) => {
            prop_assert!(!error.problems.is_empty());
            let more = usize::from(error.omitted > 0);
            prop_assert_eq!(error.to_string().lines().count(), error.problems.len() + more);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_as_file_gives_settings_or_an_error(text in any::<String>(), name in "[a-z]\\.(toml|json|txt)") {
        check_outcome(loader().file_text(name, text).load())?;
    }

    #[test]
    fn any_lines_as_file_give_settings_or_an_error(text in lines()) {
        check_outcome(toml(&text))?;
    }

    #[test]
    fn any_flag_and_variable_give_settings_or_an_error(
        index in 0..FIELDS.len(),
        value in prop_oneof![any::<String>(), any::<i64>().prop_map(|n| n.to_string())],
    ) {
        check_outcome(loader().flag(FIELDS[index].name, value.as_str()).load())?;
        check_outcome(loader().env([(FIELDS[index].env, value.as_str())]).load())?;
        check_outcome(loader().flag(&value, "x").load())?;
    }
}
