//! What cargo can check by itself, turned into violations.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Violation;
use crate::tools::DENY;
use crate::workspace::Workspace;
use tenure_rig::cache;
use tenure_rig::process::{self, Captured};

pub(super) const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Places that are not formatted; `cargo xtask fix` repairs them.
pub(super) fn fmt(workspace: &Workspace) -> Result<Vec<Violation>> {
    let captured = process::capture(workspace.cargo().args(["fmt", "--all", "--check"]), LIMIT)?;
    let found = unformatted(&captured.stdout, &workspace.root);
    or_failure(captured, found, "fmt")
}

pub(super) fn clippy(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut command = workspace.cargo();
    workspace.with_test_build(command.args(["test", "--no-run", "--message-format=short"]));
    // What runs beside it mostly waits, and measures.
    diagnosed(&mut process::yielding(&command), "clippy")
}

/// Licences, banned crates and sources, by `deny.toml`: again when that or `Cargo.lock` has changed, and once a day.
pub(super) fn deny(workspace: &Workspace) -> Result<Vec<Violation>> {
    let text = |name: &str| workspace.text(Path::new(name)).unwrap_or_default();
    let about = format!("{}{}{}", text("Cargo.lock"), text("deny.toml"), DENY.version);
    cache::once_a_day("deny", &about, || {
        let mut command = workspace.cargo();
        DENY.reachable(&mut command)?;
        command.args(["deny", "--log-level=error", "check", "--hide-inclusion-graph"]);
        process::capture(command.args(["licenses", "bans", "sources"]), LIMIT)?.ok("cargo deny").map(drop)
    })?;
    Ok(Vec::new())
}

/// What is published can be packed as it stands: again when a manifest has changed, and once a day.
pub(super) fn package(workspace: &Workspace) -> Result<Vec<Violation>> {
    let files = workspace.files()?;
    let manifests = files.iter().filter(|file| file.ends_with("Cargo.toml") || file.ends_with("Cargo.lock"));
    let about: String = manifests.filter_map(|file| workspace.text(file)).collect();
    let mut found = Vec::new();
    cache::once_a_day("package", &about, || {
        found = packed(workspace)?;
        ensure!(found.is_empty(), "it cannot be packed");
        Ok(())
    })
    .or_else(|error| if found.is_empty() { Err(error) } else { Ok(()) })?;
    Ok(found)
}

fn packed(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut command = workspace.cargo();
    // It builds nothing: `cargo xtask dist` and the tests do that.
    command.args(["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for private in [
        "tenure-core-tests",
        "tenure-cli-tests",
        "tenure-sim",
        "tenure-chaos",
        "tenure-rig",
        "tenure-bench",
        "xtask",
    ] {
        command.args(["--exclude", private]);
    }
    let captured = process::capture(&mut command, LIMIT)?;
    let found = captured.stderr.lines().filter(|line| line.starts_with("warning:"));
    let found = found.map(|line| Violation::new("Cargo.toml", 1, "package", line)).collect();
    or_failure(captured, found, "package")
}

pub(super) fn diagnosed(command: &mut Command, rule: &'static str) -> Result<Vec<Violation>> {
    let captured = process::capture(command, LIMIT)?;
    let found = diagnostics(&captured.stderr, rule);
    or_failure(captured, found, rule)
}

/// A command that failed without a message we understand must not count as a pass.
fn or_failure(captured: Captured, found: Vec<Violation>, rule: &str) -> Result<Vec<Violation>> {
    if found.is_empty() && !captured.success {
        captured.ok(&format!("cargo {rule}"))?;
    }
    Ok(found)
}

/// `path:line:column: error: message`, as `--message-format=short` prints it.
fn diagnostics(output: &str, rule: &'static str) -> Vec<Violation> {
    output.lines().filter_map(|line| diagnostic(line, rule)).collect()
}

fn diagnostic(line: &str, rule: &'static str) -> Option<Violation> {
    let mut parts = line.splitn(4, ':');
    let (path, row, column) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    column.parse::<usize>().ok()?;
    let message = parts.next()?.trim();
    let level = message.split([':', '[']).next()?;
    matches!(level, "error" | "warning").then(|| Violation::new(path, row, rule, message))
}

/// `Diff in <absolute path>:<line>:`, as rustfmt prints it.
fn unformatted(output: &str, root: &Path) -> Vec<Violation> {
    let place = |line: &str| {
        let (path, row) = line.strip_prefix("Diff in ")?.trim_end_matches(':').rsplit_once(':')?;
        let path = PathBuf::from(path);
        let path = path.strip_prefix(root).unwrap_or(&path);
        Some(Violation::new(path, row.parse().ok()?, "fmt", "not formatted; run `cargo xtask fix`"))
    };
    output.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_messages_become_violations() {
        let output = "    Checking x v0.1.0\n\
            src/a.rs:3:5: error: used `unwrap()` on a `Result` value\n\
            src/b.rs:9:1: error[E0425]: cannot find value\n\
            error: could not compile `x` (lib) due to 2 previous errors\n";
        let found: Vec<String> = diagnostics(output, "clippy").iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "src/a.rs:3: clippy: error: used `unwrap()` on a `Result` value",
                "src/b.rs:9: clippy: error[E0425]: cannot find value",
            ]
        );
    }

    #[test]
    fn a_failure_without_a_message_is_not_a_pass() {
        let captured =
            |success| Captured { success, stdout: String::new(), stderr: "linker not found".to_owned() };
        assert!(or_failure(captured(true), Vec::new(), "clippy").is_ok());
        let error = or_failure(captured(false), Vec::new(), "clippy").expect_err("it failed");
        assert!(error.to_string().contains("linker not found"));
    }

    #[test]
    fn rustfmt_places_are_relative_to_the_root() {
        let output = "Diff in /checkout/src/a.rs:12:\n-  x\n+x\nDiff in /checkout/b.rs:1:\n";
        let found = unformatted(output, Path::new("/checkout"));
        assert_eq!(found.len(), 2);
        assert!(found[0].to_string().starts_with("src/a.rs:12: fmt:"));
    }
}
