//! Which crate may depend on which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Violation;
use crate::workspace::Workspace;
use tenure_rig::process;

const LIMIT: Duration = Duration::from_secs(120);
const CORE: &str = "tenure-core";
const RIG: &str = "tenure-rig";
/// What is broken on purpose. A workspace build shares features, so no crate may enable it through a dependency or by default.
const MUTANTS_FEATURE: &str = "teeth";

/// For each crate of the workspace, the crates of the workspace it may use, including in its tests: cli → server → plugins →
/// tenure → {store, core}; store and core do not use each other. A crate missing here is a violation, so that a new one gets its
/// place before it gets its code.
const MAY_KNOW: [(&str, &[&str]); 13] = [
    (CORE, &[]),
    ("tenure-core-tests", &[CORE]),
    ("tenure-store", &[]),
    ("tenure", &["tenure-store", CORE]),
    // Built only on the public API.
    ("tenure-plugins", &["tenure"]),
    // A view: what it shows comes from the library's public API.
    ("tenure-server", &["tenure-plugins", "tenure"]),
    ("tenure-cli", &["tenure-server", "tenure-plugins", "tenure"]),
    // They start the shipped program; the judge of recorded elections is shared with them.
    ("tenure-cli-tests", &["tenure-store", "tenure-chaos", RIG]),
    // Drives the binary from outside: its measurements must not come from the code it tests.
    ("tenure-chaos", &[RIG]),
    (RIG, &[]),
    ("tenure-sim", &["tenure", "tenure-store", CORE]),
    ("tenure-bench", &["tenure-server", "tenure-plugins", "tenure", "tenure-store", CORE]),
    ("xtask", &[RIG]),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    #[serde(default)]
    features: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    #[serde(default)]
    features: Vec<String>,
}

pub(super) fn check_direction(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut command = workspace.cargo();
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    direction(&process::capture(&mut command, LIMIT)?.ok("cargo metadata")?, &workspace.root)
}

fn direction(metadata: &str, root: &Path) -> Result<Vec<Violation>> {
    let metadata: Metadata = serde_json::from_str(metadata).context("cargo metadata")?;
    let members: Vec<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut found = Vec::new();
    for package in &metadata.packages {
        let manifest = Path::new(&package.manifest_path);
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        let mut violation =
            |message: String| found.push(Violation::new(manifest, 1, "crate-direction", message));
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(name, _)| *name == package.name) else {
            violation(format!("`{}` has no place in the direction table of xtask", package.name));
            continue;
        };
        if package
            .features
            .get("default")
            .is_some_and(|default| default.iter().any(|name| name.ends_with(MUTANTS_FEATURE)))
        {
            violation(format!("`{}` is broken on purpose by default", package.name));
        }
        for dependency in &package.dependencies {
            if dependency.features.iter().any(|name| name == MUTANTS_FEATURE) {
                violation(format!(
                    "`{}` asks for `{}` to be broken on purpose",
                    package.name, dependency.name
                ));
            }
            let name = dependency.name.as_str();
            if members.contains(&name) && !allowed.contains(&name) {
                violation(format!("`{}` must not know `{name}`", package.name));
            }
        }
    }
    Ok(found)
}

pub(super) fn check_core_is_pure(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut command = workspace.cargo();
    command.args(["tree", "--package", CORE, "--edges", "normal,build", "--prefix", "none"]);
    Ok(dependencies_of_core(&process::capture(&mut command, LIMIT)?.ok("cargo tree")?))
}

/// What only tests may have.
const TEST_FEATURES: [&str; 4] = ["test-util", MUTANTS_FEATURE, "explore", "fuzzing"];

pub(super) fn check_shipped_features(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut command = workspace.cargo();
    command.args(["tree", "--package", "tenure-cli", "--edges", "normal,build,features", "--prefix", "none"]);
    Ok(test_features(&process::capture(&mut command, LIMIT)?.ok("cargo tree")?))
}

/// Lines such as `tokio feature "time"`.
fn test_features(tree: &str) -> Vec<Violation> {
    let of_tests =
        |line: &&str| TEST_FEATURES.iter().any(|name| line.contains(&format!("feature \"{name}\"")));
    let found: BTreeSet<&str> = tree.lines().filter(of_tests).collect();
    let violation = |line: &str| {
        Violation::new(
            "crates/cli/Cargo.toml",
            1,
            "shipped-features",
            format!("the shipped program has {line}"),
        )
    };
    found.into_iter().map(violation).collect()
}

/// The first line of the tree is the crate itself.
fn dependencies_of_core(tree: &str) -> Vec<Violation> {
    let lines = tree.lines().skip(1).filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            Violation::new("crates/core/Cargo.toml", 1, "core-is-pure", format!("depends on {}", line.trim()))
        })
        .collect()
}

/// A file of tests that no program includes would never run: `all.rs` does, or it is a program of its own. Nor would a test that is
/// ignored where `cargo xtask test` and `prove` do not look for it.
pub(super) fn check_tests_run(workspace: &Workspace) -> Result<Vec<Violation>> {
    let files = workspace.files()?;
    let mut found = tests_that_never_run(&files, |path| workspace.text(path).unwrap_or_default());
    for file in files.iter().filter(|file| file.starts_with("crates")) {
        found.extend(ignored_for_nobody(file, &workspace.text(file).unwrap_or_default()));
    }
    Ok(found)
}

/// Modules whose ignored tests are run, and the beginnings of names of those that are not meant to be.
const IGNORED_IN: [&str; 6] = ["engines", "dashboard", "scrape", "postgres", "schemathesis", "newcomer"];
const IGNORED_AS: [&str; 2] = ["measures_", "later_"];

fn ignored_for_nobody(file: &Path, text: &str) -> Vec<Violation> {
    let of_module = file.file_stem().is_some_and(|stem| IGNORED_IN.iter().any(|module| stem == *module));
    let lines: Vec<&str> = text.lines().collect();
    let ignored = lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("#[ignore"));
    let stray = ignored.filter(|(at, _)| {
        let name = lines[*at..].iter().find_map(|line| line.split_once("fn ")).map_or("", |(_, name)| name);
        let is_long = lines[..*at].iter().any(|line| line.trim() == "mod long {");
        !of_module && !is_long && !IGNORED_AS.iter().any(|begin| name.starts_with(begin))
    });
    let rule = "an ignored test that no command runs: see `NEEDY` and `NEVER` in xtask/src/test.rs";
    stray.map(|(at, _)| Violation::new(file, at + 1, "tests-run", rule)).collect()
}

fn tests_that_never_run(files: &[PathBuf], read: impl Fn(&Path) -> String) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let (Some(folder), Some(name)) = (file.parent(), file.file_stem().and_then(|name| name.to_str()))
        else {
            continue;
        };
        let all = read(&folder.join("all.rs"));
        if name == "all" || !folder.ends_with("tests") || all.is_empty() {
            continue;
        }
        let programs = read(&folder.with_file_name("Cargo.toml"));
        if !all.contains(&format!("mod {name};")) && !programs.contains(&format!("name = \"{name}\"")) {
            found.push(Violation::new(file, 1, "tests-run", "is neither in all.rs nor a program of its own"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tests_that_nobody_includes_is_found() {
        let files =
            ["all", "jobs", "teeth", "stray"].map(|name| PathBuf::from(format!("crates/x/tests/{name}.rs")));
        let read = |path: &Path| match path.ends_with("all.rs") {
            true => "mod jobs;\n".to_owned(),
            false => "[[test]]\nname = \"teeth\"\n".to_owned(),
        };
        let found: Vec<String> = tests_that_never_run(&files, read).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("stray.rs"), "{found:?}");
    }

    #[test]
    fn an_ignored_test_that_no_command_runs_is_found() {
        let test = "#[test]\n#[ignore = \"needs an engine\"]\nfn a() {}\n";
        let found = |file: &str, text: &str| ignored_for_nobody(Path::new(file), text).len();
        assert_eq!(found("crates/x/tests/engines.rs", test), 0);
        assert_eq!(found("crates/x/tests/jobs.rs", test), 1);
        assert_eq!(found("crates/x/tests/jobs.rs", &test.replace("fn a", "fn later_a")), 0);
        assert_eq!(found("crates/x/tests/jobs.rs", &format!("mod long {{\n{test}}}\n")), 0);
    }

    fn metadata(packages: &[(&str, &[&str])]) -> String {
        let package = |(name, dependencies): &(&str, &[&str])| {
            let dependencies: Vec<_> =
                dependencies.iter().map(|name| serde_json::json!({ "name": name })).collect();
            serde_json::json!({
                "name": name, "manifest_path": format!("/checkout/{name}/Cargo.toml"), "dependencies": dependencies,
            })
        };
        serde_json::json!({ "packages": packages.iter().map(package).collect::<Vec<_>>() }).to_string()
    }

    fn found(packages: &[(&str, &[&str])]) -> Vec<String> {
        let found = direction(&metadata(packages), Path::new("/checkout")).expect("metadata is read");
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_right_direction_passes() {
        let packages: [(&str, &[&str]); 4] = [
            ("tenure-core", &["proptest"]),
            ("tenure-store", &["tokio"]),
            ("tenure", &["tenure-core", "tenure-store"]),
            ("tenure-cli", &["tenure", "tenure-server"]),
        ];
        assert_eq!(found(&packages), [""; 0]);
    }

    #[test]
    fn the_wrong_direction_is_named() {
        let packages: [(&str, &[&str]); 3] =
            [("tenure-core", &[]), ("tenure-store", &["tenure-core"]), ("tenure", &["tenure-store"])];
        assert_eq!(
            found(&packages),
            ["tenure-store/Cargo.toml:1: crate-direction: `tenure-store` must not know `tenure-core`"]
        );
    }

    #[test]
    fn what_is_broken_on_purpose_is_never_on_by_itself() {
        let package = |dependency: &[&str], default: &[&str]| {
            let metadata = serde_json::json!({ "packages": [{
                "name": "tenure-cli", "manifest_path": "/checkout/cli/Cargo.toml",
                "dependencies": [{ "name": "tenure", "features": dependency }],
                "features": { "default": default, "teeth": ["tenure/teeth"] },
            }] });
            direction(&metadata.to_string(), Path::new("/checkout")).expect("metadata is read").len()
        };
        assert_eq!(package(&["fuzzing"], &[]), 0);
        assert_eq!(package(&["teeth"], &[]), 1);
        assert_eq!(package(&[], &["teeth"]), 1);
        assert_eq!(package(&[], &["tenure/teeth"]), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_named() {
        assert_eq!(found(&[("tenure-extra", &[])]).len(), 1);
    }

    #[test]
    fn what_only_tests_may_have_is_found_in_the_shipped_program() {
        assert_eq!(test_features("tokio v1.0.0\ntokio feature \"time\"\n"), []);
        let found = test_features("tokio feature \"test-util\"\ntenure feature \"teeth\" (*)\n");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn any_dependency_of_core_is_a_violation() {
        assert_eq!(dependencies_of_core("tenure-core v0.1.0 (/checkout/crates/core)\n"), []);
        let found = dependencies_of_core("tenure-core v0.1.0 (/checkout/crates/core)\nserde v1.0.0\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("serde v1.0.0"));
    }
}
