//! What the code knows and what the reference pages list must be the same.
//!
//! The binary prints its names, one per line (`tenure reference settings`); a page lists each in backticks in the first column of
//! a table.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::{Violation, table};
use crate::workspace::Workspace;
use tenure_rig::process;

const LIMIT: Duration = Duration::from_secs(15 * 60);
const KINDS: [&str; 5] = ["settings", "events", "metrics", "exit-codes", "http"];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    for kind in KINDS {
        let page = format!("docs/reference/{kind}.md");
        let Some(markdown) = workspace.text(Path::new(&page)) else {
            found.push(Violation::new(&page, 1, "reference", "the page is missing"));
            continue;
        };
        let mut command = Command::new(workspace.program("tenure"));
        command.args(["reference", kind]);
        let names = process::capture(&mut command, LIMIT)?.ok(&format!("tenure reference {kind}"))?;
        found.extend(compare(&page, &markdown, &names));
    }
    Ok(found)
}

fn compare(page: &str, markdown: &str, names: &str) -> Vec<Violation> {
    let known: Vec<&str> = names.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    let mut listed = BTreeMap::new();
    let mut found = Vec::new();
    let mut violation =
        |line: usize, message: String| found.push(Violation::new(page, line, "reference", message));
    for row in table::rows(markdown) {
        let Some(first) = row.cells.first().filter(|cell| cell.starts_with('`')) else { continue };
        for name in table::code_spans(first).into_iter().take(1) {
            if !known.contains(&name) {
                violation(row.line, format!("`{name}` is not in the code"));
            }
            if let Some(earlier) = listed.insert(name.to_owned(), row.line) {
                violation(row.line, format!("`{name}` stands in line {earlier} already"));
            }
        }
    }
    if known.is_empty() {
        violation(1, "the binary printed no name".to_owned());
    }
    for name in known.iter().filter(|name| !listed.contains_key(**name)) {
        violation(1, format!("`{name}` is in the code but not on this page"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| name | default |\n|---|---|\n| `heartbeatInterval` | `1000` |\n| plain | `x` |\n| `leaseTimeout` | 2500 |\n";

    fn found(names: &str) -> Vec<String> {
        compare("p.md", PAGE, names).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_names_pass() {
        assert_eq!(found("heartbeatInterval\nleaseTimeout\n"), [""; 0]);
    }

    #[test]
    fn a_name_only_in_the_code_is_a_violation() {
        let found = found("heartbeatInterval\nleaseTimeout\ntakeoverDelay\n");
        assert_eq!(found, ["p.md:1: reference: `takeoverDelay` is in the code but not on this page"]);
    }

    #[test]
    fn a_name_only_on_the_page_is_a_violation() {
        assert_eq!(found("heartbeatInterval\n"), ["p.md:5: reference: `leaseTimeout` is not in the code"]);
    }

    #[test]
    fn a_name_listed_twice_is_a_violation() {
        let twice = format!("{PAGE}| `leaseTimeout` | again |\n");
        assert_eq!(compare("p.md", &twice, "heartbeatInterval\nleaseTimeout\n").len(), 1);
    }

    #[test]
    fn a_silent_binary_is_a_violation() {
        assert!(found("").iter().any(|line| line.contains("printed no name")));
    }
}
