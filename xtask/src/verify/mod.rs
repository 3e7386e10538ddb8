//! `cargo xtask verify`: never writes; prints all violations at once, as `path:line: rule: message`.

mod cargo;
mod crates;
mod reference;
mod requirements;
mod table;
pub(crate) mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

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

/// Cheap checks first, but all of them always run.
const CHECKS: [(&str, Check); 11] = [
    ("text", text::check),
    ("requirements", requirements::check),
    ("crate-direction", crates::check_direction),
    ("core-is-pure", crates::check_core_is_pure),
    ("tests-run", crates::check_tests_run),
    ("fmt", cargo::fmt),
    ("clippy", cargo::clippy),
    ("doc", cargo::doc),
    ("package", cargo::package),
    ("deny", cargo::deny),
    ("reference", reference::check),
];

pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let mut violations = BTreeSet::new();
    let mut broken = 0;
    for (name, check) in CHECKS {
        let began = Instant::now();
        match check(workspace) {
            Ok(found) => {
                // A module shared by several test programs is checked, and reported, once for each.
                let found: BTreeSet<Violation> = found.into_iter().collect();
                let outcome =
                    if found.is_empty() { "ok".to_owned() } else { format!("{} violations", found.len()) };
                println!("verify {name}: {outcome} ({:.1} s)", began.elapsed().as_secs_f64());
                violations.extend(found);
            }
            Err(error) => {
                crate::interrupt::check()?;
                broken += 1;
                println!("verify {name}: cannot be checked: {error:#}");
            }
        }
    }
    for violation in &violations {
        println!("{violation}");
    }
    let files: BTreeSet<&PathBuf> = violations.iter().map(|violation| &violation.path).collect();
    match (violations.len(), broken) {
        (0, 0) => println!("verify: {} checks, no violation", CHECKS.len()),
        (found, broken) => {
            println!("verify: {found} violations in {} files, {broken} checks could not run", files.len());
        }
    }
    Ok(violations.is_empty() && broken == 0)
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
