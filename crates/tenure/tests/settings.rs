//! Settings as operators and programs meet them. Nothing here reads or writes the process environment.

#[path = "settings/anything.rs"]
mod anything;
#[path = "settings/files.rs"]
mod files;
#[path = "settings/table.rs"]
mod table;
#[path = "settings/values.rs"]
mod values;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tenure::clock::millis;
use tenure::settings::{FIELDS, Fallback, Kind, Loader, Preset, Resolved, Settings, SettingsError, Source};

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
    assert_eq!((millis(settings.startup_jitter_min), millis(settings.startup_jitter_max)), (0, 0));
}

#[test]
fn ji2_a_jitter_range_is_taken_as_given() {
    let settings = accepted(toml("startupJitterMin = 2000\nstartupJitterMax = 8000"));
    let config = settings.core_config();
    assert_eq!((config.startup_jitter_min_ms, config.startup_jitter_max_ms), (2000, 8000));
}

#[test]
fn ji3_ji4_no_jitter_and_fixed_jitter_are_accepted() {
    assert_eq!(millis(accepted(toml("startupJitterMax = 0")).startup_jitter_max), 0);
    let fixed = accepted(toml("startupJitterMin = 3000\nstartupJitterMax = 3000"));
    assert_eq!((millis(fixed.startup_jitter_min), millis(fixed.startup_jitter_max)), (3000, 3000));
}

#[test]
fn jb1_no_jitter_setting_means_default_jitter() {
    let settings = accepted(toml("heartbeatInterval = 900"));
    assert_eq!((millis(settings.startup_jitter_min), millis(settings.startup_jitter_max)), (0, 5000));
    let with = accepted(toml("heartbeatInterval = 900\nstartupJitterMin = 0\nstartupJitterMax = 5000"));
    assert_eq!(settings, with, "everything else is unchanged");
}

#[test]
fn td2_takeover_delay_from_the_environment() {
    let resolved = loader().env([("COORDINATOR_TAKEOVER_DELAY", "2000")]).load().expect("accepted");
    assert_eq!(millis(resolved.settings.takeover_delay), 2000);
    assert_eq!(resolved.settings.core_config().takeover_delay_ms, 2000);
    assert_eq!(resolved.source("takeoverDelay"), Some(&Source::Env("COORDINATOR_TAKEOVER_DELAY".into())));
    assert_eq!(millis(accepted(loader().load()).takeover_delay), 1000);
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
    for knob in [
        "heartbeatInterval",
        "leaseTimeout",
        "startupJitterMin",
        "startupJitterMax",
        "diagnosticsEnabled",
        "contentionDetectionEnabled",
        "contentionThreshold",
    ] {
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
    assert_eq!((millis(settings.heartbeat_interval), millis(settings.lease_timeout)), (3000, 10_000));
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
    assert_eq!(millis(accepted(over).heartbeat_interval), 4000);
}

// Defaults, presets, layers.

#[test]
fn defaults_are_the_designed_ones_and_the_cores() {
    let settings = accepted(loader().flag("node", "n").load());
    assert_eq!(settings.core_config(), tenure_core::Config::default());
    assert_eq!(millis(settings.request_timeout), 1500);
    assert_eq!(settings.namespace, "default");
    assert_eq!(settings.telemetry_prefix, "serviceradar");
    assert_eq!(settings.store.to_string(), "sqlite:/home/me/.local/share/tenure/tenure.db");
    assert!(!settings.diagnostics_enabled);
    assert_eq!(millis(settings.failover_bound()), 9500);
    assert!(Settings::default().check().is_ok());
    let id = Settings::default().node.to_string();
    assert!(id.ends_with(&format!("-{}", std::process::id())), "{id}");
}

#[test]
fn presets_as_designed_in_any_layer() {
    let fast = accepted(loader().env([("TENURE_PRESET", "fast")]).load());
    assert_eq!((millis(fast.heartbeat_interval), millis(fast.lease_timeout)), (300, 500));
    assert_eq!((fast.core_config().hold_ms(), millis(fast.takeover_delay)), (1000, 100));
    assert_eq!((millis(fast.election_interval), millis(fast.request_timeout)), (250, 300));
    assert_eq!((millis(fast.failover_bound()), fast.tolerated_drift_permille()), (1850, 500));
    let thrifty = accepted(toml("preset = \"thrifty\""));
    assert_eq!((millis(thrifty.heartbeat_interval), millis(thrifty.lease_timeout)), (9000, 15_000));
    assert_eq!((millis(thrifty.election_interval), millis(thrifty.request_timeout)), (5000, 9000));
    assert_eq!((millis(thrifty.takeover_delay), millis(thrifty.failover_bound())), (1000, 51_000));
    // Chosen last, and still below what the file says.
    let mixed =
        loader().file_text("t.toml", "takeoverDelay = 7").flag("preset", "fast").load().expect("accepted");
    assert_eq!((millis(mixed.settings.takeover_delay), millis(mixed.settings.lease_timeout)), (7, 500));
    assert_eq!(mixed.source("leaseTimeout"), Some(&Source::Preset("fast")));
    assert_eq!(mixed.source("takeoverDelay"), Some(&Source::File("t.toml".into())));
    let built = Settings::builder().preset(Preset::Fast).build().expect("accepted");
    assert_eq!(millis(built.lease_timeout), 500);
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
    assert_eq!(Preset::ALL.iter().map(|preset| preset.as_str()).collect::<Vec<_>>(), words);
    for preset in Preset::ALL {
        accepted(flags(&[("preset", preset.as_str())]));
    }
}

#[test]
fn later_layers_win_and_say_so() {
    let base = || loader().file_text("t.toml", "leaseTimeout = 3000\nnode = \"file\"\ntakeoverDelay = 1");
    let env = || base().env([("TENURE_LEASE_TIMEOUT", "4000"), ("TENURE_NODE", "env")]);
    let all = env().flag("leaseTimeout", "5000").load().expect("accepted");
    let source = |name| all.source(name).cloned().expect(name);
    assert_eq!(millis(all.settings.lease_timeout), 5000);
    assert_eq!(source("leaseTimeout"), Source::Flag("--lease-timeout".into()));
    assert_eq!(all.settings.node.as_str(), "env");
    assert_eq!(source("node"), Source::Env("TENURE_NODE".into()));
    assert_eq!(source("takeoverDelay"), Source::File("t.toml".into()));
    assert_eq!(source("heartbeatInterval"), Source::Default);
    assert_eq!(all.source("no such"), None);
    // The order of the calls does not matter, only the layer.
    let reordered = Settings::loader().flag("leaseTimeout", "5000").env([("TENURE_LEASE_TIMEOUT", "1")]);
    assert_eq!(millis(reordered.load().expect("accepted").settings.lease_timeout), 5000);
    let built = Settings::builder()
        .lease_timeout(Duration::from_millis(6000))
        .env([("TENURE_LEASE_TIMEOUT", "4000")])
        .resolve();
    assert_eq!(built.expect("accepted").source("leaseTimeout"), Some(&Source::Builder));
}

#[test]
fn computed_defaults_follow_and_can_be_set() {
    let settings = accepted(toml("heartbeatInterval = 2000\nleaseTimeout = 6000"));
    assert_eq!((millis(settings.election_interval), millis(settings.request_timeout)), (1333, 3600));
    let settings = accepted(toml("leaseTimeout = 6000\nleaseHoldFactor = 1"));
    assert_eq!(millis(settings.request_timeout), 1800, "30 % of the hold");
    let settings = accepted(loader().env([("COORDINATOR_ELECTION_INTERVAL", "700")]).load());
    assert_eq!(millis(settings.election_interval), 700);
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
    assert_eq!(millis(both("200").settings.takeover_delay), 300);
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
