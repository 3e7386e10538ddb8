//! Every requirement is either done, with a test that has its id, or explicitly planned.
//!
//! `docs/reference/requirements.md` has two headings, "Done" and "Planned", each with a table `| id | test |`. A done row names
//! its tests in backticks: `path::test_name`, where the name starts with the id (`ef1_…`), or the path of a transcript that has
//! the id in its name or text.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::{Violation, table};
use crate::workspace::Workspace;

const PAGE: &str = "docs/reference/requirements.md";
const RULE: &str = "requirements";

const IDS: &str = "EF1 EF2 EF3 EF4 GT1 GT2 CD1 CD2 CD3 CD4 MX1 MX2 MX3 CE1 CE2 CE3 CE4 AP1 AP2 CP1 CP2 \
    FO1 FO2 FO3 FO4 SB1 SB2 SB3 TD1 TD2 TE1 TE2 TE3 TE4 JI1 JI2 JI3 JI4 JV1 JV2 JV3 JS1 JS2 JS3 JH1 JH2 JH3 \
    JB1 JB2 GC1 GC2 GD1 GD2 GD3 GD4 GD5 \
    SL1 SL2 SL3 SL4 SL5 OB1 OB2 OB3 OB4 EX1 EX2 EX3 LK1 LK2 LK3 FR1 FR2 FR3 HI1 HI2 HI3 \
    SU1 SU2 SU3 SU4 SU5 QU1 QU2 QU3 QU4 QU5 QU6 QU7 SC1 SC2 SC3 SC4 ON1 ON2";

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Violation>> {
    let Some(page) = workspace.text(Path::new(PAGE)) else {
        return Ok(vec![Violation::new(PAGE, 1, RULE, "the page is missing")]);
    };
    Ok(examine(&page, |path| workspace.text(Path::new(path))))
}

fn examine(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut seen = BTreeMap::new();
    let mut violation = |line: usize, message: String| found.push(Violation::new(PAGE, line, RULE, message));
    for row in table::rows(page) {
        let id = row.cells.first().map_or("", |cell| cell.trim_matches('`'));
        if !IDS.split_whitespace().any(|known| known == id) {
            violation(row.line, format!("`{id}` is not a requirement"));
            continue;
        }
        if let Some(earlier) = seen.insert(id.to_owned(), row.line) {
            violation(row.line, format!("{id} stands in line {earlier} already"));
        }
        match row.heading {
            "Done" => {
                let tests = row.cells.get(1).map(String::as_str).unwrap_or_default();
                for problem in untested(id, tests, &read) {
                    violation(row.line, problem);
                }
            }
            "Planned" => {}
            other => violation(row.line, format!("{id} stands under `{other}`, not under Done or Planned")),
        }
    }
    for id in IDS.split_whitespace().filter(|id| !seen.contains_key(*id)) {
        violation(1, format!("{id} is neither done nor planned"));
    }
    found
}

/// What is wrong with the tests named for a requirement.
fn untested(id: &str, tests: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let spans = table::code_spans(tests);
    if spans.is_empty() {
        return vec![format!("{id} is done but names no test in backticks")];
    }
    spans.into_iter().filter_map(|test| without_teeth(id, test, &read)).collect()
}

fn without_teeth(id: &str, test: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let prefix = format!("{}_", id.to_lowercase());
    let (path, name) = test.split_once("::").map_or((test, None), |(path, name)| (path, Some(name)));
    let Some(text) = read(path) else { return Some(format!("{id}: there is no file {path}")) };
    match name {
        Some(name) if !name.starts_with(&prefix) => {
            Some(format!("{id}: the name of `{name}` must start with {prefix}"))
        }
        Some(name) => (!has_test(&text, name)).then(|| format!("{id}: {path} has no test function {name}")),
        None => {
            let file_name = path.rsplit('/').next().unwrap_or(path);
            let carries_id = file_name.starts_with(&prefix) || text.contains(&prefix);
            (!carries_id).then(|| {
                format!("{id}: transcript {path} carries {prefix} neither in its name nor in its text")
            })
        }
    }
}

/// Whether the file has this function with a test attribute among the attributes above it.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let signature = format!("fn {name}(");
    lines.iter().enumerate().filter(|(_, line)| !line.starts_with("//") && line.contains(&signature)).any(
        |(at, _)| {
            let above =
                lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
            above.filter(|line| line.starts_with("#[")).any(|line| line.contains("test"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\n/// Says why.\nfn ef1_rejects() {}\n\nfn ef1_helper() {}\n\n\
        #[tokio::test(start_paused = true)]\n#[ignore = \"needs an engine\"]\nasync fn ef2_accepts() {}\n\
        // #[test]\n// fn ef3_old() {}\n";

    /// A page with every id planned, except for the given rows.
    fn page(done: &[(&str, &str)]) -> String {
        let mut page = "## Done\n| id | test |\n|---|---|\n".to_owned();
        for (id, test) in done {
            page.push_str(&format!("| {id} | {test} |\n"));
        }
        page.push_str("## Planned\n| id | what |\n|---|---|\n");
        for id in IDS.split_whitespace().filter(|id| !done.iter().any(|(given, _)| given == id)) {
            page.push_str(&format!("| {id} | later |\n"));
        }
        page
    }

    fn found(page: &str) -> Vec<String> {
        let read = |path: &str| match path {
            "tests/fencing.rs" => Some(SOURCE.to_owned()),
            "tests/data/ef1_drift.txt" => Some("epoch 6".to_owned()),
            "tests/data/all.txt" => Some("# ef4_notices\n".to_owned()),
            _ => None,
        };
        examine(page, read).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn there_are_as_many_ids_as_scenarios() {
        assert_eq!(IDS.split_whitespace().count(), 92);
    }

    #[test]
    fn named_tests_and_transcripts_pass() {
        let done = [
            ("EF1", "`tests/fencing.rs::ef1_rejects`, `tests/data/ef1_drift.txt`"),
            ("EF2", "`tests/fencing.rs::ef2_accepts`"),
            ("EF4", "`tests/data/all.txt`"),
        ];
        assert_eq!(found(&page(&done)), [""; 0]);
    }

    #[test]
    fn each_way_to_be_untested_bites() {
        let bad = [
            ("EF1", "`tests/fencing.rs::ef1_missing`", "has no test function"),
            ("EF1", "`tests/fencing.rs::ef1_helper`", "has no test function"),
            ("EF3", "`tests/fencing.rs::ef3_old`", "has no test function"),
            ("EF1", "`tests/fencing.rs::ef2_accepts`", "must start with ef1_"),
            ("EF1", "`tests/gone.rs::ef1_rejects`", "there is no file"),
            ("EF1", "`tests/data/all.txt`", "carries ef1_ neither"),
            ("EF1", "soon", "names no test"),
        ];
        for (id, test, message) in bad {
            let found = found(&page(&[(id, test)]));
            assert!(found.len() == 1 && found[0].contains(message), "{id} {test}: {found:?}");
        }
    }

    #[test]
    fn an_id_stands_in_exactly_one_group() {
        let twice = format!("{}| EF1 | again |\n", page(&[("EF1", "`tests/fencing.rs::ef1_rejects`")]));
        assert!(found(&twice)[0].contains("already"));
        let missing = page(&[]).replace("| EF1 | later |\n", "");
        assert_eq!(found(&missing), ["EF1 is neither done nor planned"]);
        let unknown = format!("{}| XX1 | later |\n", page(&[]));
        assert_eq!(found(&unknown), ["`XX1` is not a requirement"]);
        let elsewhere = page(&[]).replace("## Planned", "## Ideas");
        assert!(found(&elsewhere)[0].contains("not under Done or Planned"));
    }
}
