//! The table of settings, and what is made of it.

use super::{accepted, loader, toml};
use std::collections::BTreeSet;
use std::time::Duration;
use tenure::settings::CoordinationMode;
use tenure::settings::Preset;
use tenure::settings::{FIELDS, Fallback, Kind, Loader, Settings, Source, Value, default_toml};

/// A valid value for each kind that is no default.
fn other_value(kind: Kind) -> &'static str {
    match kind {
        Kind::Millis { .. } => "1100",
        Kind::Factor { .. } => "2.125",
        Kind::Price => "0.000125",
        Kind::Bool => "flip",
        Kind::Text => "/elsewhere",
        Kind::Id => "other",
        Kind::Store => "s3://elsewhere/x",
        Kind::Choice(words) => words[1],
    }
}

#[test]
fn every_row_of_the_table_works_through_every_layer() {
    for field in FIELDS {
        let default = accepted(loader().load()).value(field.name).expect(field.name);
        let text = match (other_value(field.kind), &default) {
            // It must outlive the heartbeat.
            ("1100", _) if field.name == "leaseTimeout" => "3000".to_owned(),
            ("1100", _) if field.name == "workerTimeout" => "30000".to_owned(),
            ("1100", _) if field.name == "nodeRetention" => "90000".to_owned(),
            // It must outlive the hold.
            (_, _) if field.name == "leaseExpiryFactor" => "4.125".to_owned(),
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
        .preset(Preset::Fast)
        .namespace("ns")
        .node("n")
        .data_dir("/d")
        .store("memory:x")
        .eligible(false)
        .coordination_mode(CoordinationMode::Global)
        .heartbeat_interval(Duration::from_millis(1100))
        .lease_timeout(Duration::from_millis(4000))
        .lease_hold_factor(1.5)
        .lease_expiry_factor(2.5)
        .takeover_delay(Duration::from_millis(1))
        .election_interval(Duration::from_millis(1200))
        .startup_jitter_min(Duration::from_millis(2))
        .startup_jitter_max(Duration::from_millis(3))
        .election_settle(Duration::from_millis(4))
        .presence_interval(Duration::from_millis(5000))
        .worker_heartbeat_interval(Duration::from_millis(1001))
        .worker_timeout(Duration::from_millis(2002))
        .worker_sweep_interval(Duration::from_millis(1003))
        .worker_retention(Duration::from_millis(1004))
        .node_retention(Duration::from_millis(90_000))
        .job_poll_interval(Duration::from_millis(101))
        .job_idle_interval(Duration::from_millis(1005))
        .job_claim_timeout(Duration::from_millis(1006))
        .job_retention(Duration::from_millis(1007))
        .store_clock_margin(Duration::from_millis(6))
        .request_timeout(Duration::from_millis(700))
        .drain_timeout(Duration::from_millis(8))
        .epoch_fencing_enabled(false)
        .epoch_grace_period(Duration::from_millis(9))
        .telemetry_prefix("t")
        .diagnostics_enabled(true)
        .contention_detection_enabled(false)
        .contention_threshold(1.5)
        .price_write_per_1000(0.00113)
        .price_read_per_1000(0.00003)
        .resolve()
        .expect("accepted");
    for origin in &built.sources {
        assert_eq!(origin.source, Source::Builder, "{}", origin.field.name);
        let default = Settings::default().value(origin.field.name).expect("known");
        assert_ne!(origin.value, default, "{}", origin.field.name);
    }
    assert!(Settings::builder().takeover_delay(Duration::from_millis(u64::MAX)).build().is_err());
    assert!(Settings::builder().lease_expiry_factor(f64::NAN).build().is_err());
}

#[test]
fn the_guide_names_the_settings_of_the_service_and_no_others() {
    let page = include_str!("../../../../docs/guide/plugins.md");
    let list = page.split_once("block `globalCoordinator` of a file, are:").expect("the list").1;
    let list = list.split_once("They are").expect("its end").0;
    let named: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    let mut shared: Vec<&str> = FIELDS.iter().filter(|field| field.shared).map(|field| field.name).collect();
    shared.sort_unstable();
    let mut sorted = named.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, shared);
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
