//! Whatever is typed, the answer is a command, a help page or an explanation; never a panic.

use super::typed::{check, words};
use super::*;
use clap::CommandFactory;
use proptest::prelude::*;

/// Every verb, flag and value name the binary knows: random words alone would never get past the first.
fn vocabulary(command: &Command, into: &mut Vec<String>) {
    into.push(command.get_name().to_owned());
    for arg in command.get_arguments() {
        into.extend(arg.get_long().map(|long| format!("--{long}")));
        into.extend(arg.get_possible_values().iter().map(|value| value.get_name().to_owned()));
    }
    command.get_subcommands().for_each(|inner| vocabulary(inner, into));
}

fn typed() -> impl Strategy<Value = Vec<String>> {
    let mut known = Vec::new();
    vocabulary(&Cli::command(), &mut known);
    let known = prop::sample::select(known);
    let value = prop_oneof![
        any::<String>(),
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-z]{1,8}:[a-z]{0,8}",
        Just("{\"a\": 1}".to_owned()),
        Just("\u{1b}[31m".to_owned()),
        Just("--".to_owned()),
    ];
    let word = prop_oneof![
        3 => known.clone(),
        2 => value.clone(),
        1 => (known, value).prop_map(|(flag, value)| format!("{flag}={value}")),
    ];
    let verb = prop::sample::select(vec![
        vec!["run"],
        vec!["exec"],
        vec!["exec", "--", "true"],
        vec!["lock"],
        vec!["lock", "ls"],
        vec!["run", "--", "true"],
        vec!["status"],
        vec!["history"],
        vec!["watch"],
        vec!["leader"],
        vec!["step-down"],
        vec!["worker", "run"],
        vec!["workers"],
        vec!["agent", "--id", "a"],
        vec!["apply", "-f", "-"],
        vec!["schedule", "add", "web"],
        vec!["schedule", "list"],
        vec!["schedule", "show", "web"],
        vec!["schedule", "pause", "web"],
        vec!["schedule", "run-now", "web"],
        vec!["schedule", "rm", "web"],
        vec!["jobs"],
        vec!["job", "show", "web-1"],
        vec!["metrics"],
        vec!["cost"],
        vec!["doctor"],
        vec!["config", "show"],
        vec!["config", "check"],
        vec!["demo"],
        vec!["completions"],
        vec!["reference"],
        vec![],
    ]);
    (verb, prop::collection::vec(word, 0..7)).prop_map(|(verb, words)| {
        std::iter::once("tenure").chain(verb).map(str::to_owned).chain(words).collect()
    })
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn anything_typed_is_understood_or_explained(line in typed()) {
        check(&line);
    }
}

#[test]
fn every_seed_of_the_fuzzer_is_a_command() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/words");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        assert!(words(&std::fs::read(&path).expect("a seed")), "{}", path.display());
    }
}
