//! `cargo xtask verify`: never writes; prints all violations at once, as `path:line: rule: message`.

mod cargo;
mod crates;
mod reference;
mod requirements;
pub(crate) mod rustdoc;
mod table;
pub(crate) mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use tenure_rig::interrupt;
use tenure_rig::process::{self, Captured};

use crate::steps::Report;
use crate::workspace::Workspace;

/// One broken rule. Ordered, so that the list reads like a walk through the files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: PathBuf,
    line: usize,
    rule: &'static str,
    message: String,
}

impl Violation {
    fn new(path: impl AsRef<Path>, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.as_ref().to_path_buf(), line, rule, message: message.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.path.display(), self.line, self.rule, self.message)
    }
}

type Check = fn(&Workspace) -> Result<Vec<Violation>>;

/// What needs no more than the shipped program. Cheap checks first, but all of them always run.
const RULES: [(&str, Check); 10] = [
    ("text", text::check),
    ("requirements", requirements::check),
    ("crate-direction", crates::check_direction),
    ("core-is-pure", crates::check_core_is_pure),
    ("shipped-features", crates::check_shipped_features),
    ("tests-run", crates::check_tests_run),
    ("fmt", cargo::fmt),
    ("package", cargo::package),
    ("deny", cargo::deny),
    ("reference", reference::check),
];

pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let report = Report::new();
    let told = |said: Captured| {
        print!("{}", said.stdout);
        Ok(said.success)
    };
    report.step("build", || shipped(workspace));
    report.step("rules", || rules(workspace).and_then(told));
    report.step("lint", || clippy(workspace));
    report.step("documentation", || documentation(workspace).and_then(told));
    Ok(report.finish())
}

/// Builds the shipped program, as `cargo build` does.
pub(crate) fn shipped(workspace: &Workspace) -> Result<bool> {
    let mut build = workspace.build();
    // The judge is built with it: as a test, it would have other features.
    build.args(["--package", "tenure-chaos", "--message-format=short"]);
    told("build", || cargo::diagnosed(&mut build, "build"))
}

/// Builds all tests, with clippy as the compiler.
pub(crate) fn clippy(workspace: &Workspace) -> Result<bool> {
    told("clippy", || cargo::clippy(workspace))
}

fn told(name: &str, check: impl FnOnce() -> Result<Vec<Violation>>) -> Result<bool> {
    let (text, passed) = outcome(name, check);
    print!("{text}");
    Ok(passed)
}

/// Runs the examples in the documentation, and follows the links in it.
pub(crate) fn documentation(workspace: &Workspace) -> Result<Captured> {
    let mut command = workspace.cargo();
    workspace.with_test_build(command.args(["test", "--doc", "--no-fail-fast"]));
    rustdoc::stand_in(&mut command)?;
    process::capture(&mut process::yielding(&command), cargo::LIMIT)
}

/// All rules; what they found is in the output.
pub(crate) fn rules(workspace: &Workspace) -> Result<Captured> {
    let mut said = Captured { success: true, stdout: String::new(), stderr: String::new() };
    for (name, check) in RULES {
        let (text, passed) = outcome(name, || check(workspace));
        interrupt::check()?;
        said.stdout += &text;
        said.success &= passed;
    }
    Ok(said)
}

/// What a check found, as text, and whether that is nothing.
fn outcome(name: &str, check: impl FnOnce() -> Result<Vec<Violation>>) -> (String, bool) {
    let began = Instant::now();
    let found = check();
    let took = began.elapsed().as_secs_f64();
    match found {
        Ok(found) if found.is_empty() => (format!("verify {name}: ok ({took:.1} s)\n"), true),
        Ok(found) => {
            // A module that several programs share is reported once for each.
            let found: BTreeSet<Violation> = found.into_iter().collect();
            let lines: String = found.iter().map(|violation| format!("{violation}\n")).collect();
            (format!("verify {name}: {} violations ({took:.1} s)\n{lines}", found.len()), false)
        }
        Err(error) => (format!("verify {name}: cannot be checked: {error:#}\n"), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_like_a_compiler_message() {
        let violation = Violation::new("a/b.rs", 7, "tab", "no tabs");
        assert_eq!(violation.to_string(), "a/b.rs:7: tab: no tabs");
    }
}
