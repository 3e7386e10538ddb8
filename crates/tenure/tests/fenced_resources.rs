//! The example and the guide about resources that refuse a former leader.

use crate::fenced_example;
use std::cell::RefCell;
use tenure::fence::sql;

const PAGE: &str = include_str!("../../../docs/guide/fencing.md");
const EXAMPLE: &str = include_str!("../examples/fenced_resources.rs");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let parts = PAGE.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Without what differs from run to run, and from page to page.
fn alike(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn fr2_fr3_a_paused_leader_is_refused_by_bucket_database_and_service() {
    let said = RefCell::new(String::new());
    let say = |line: &str| said.borrow_mut().extend([line, "\n"]);
    fenced_example::play(None, say).await.expect("it plays");
    assert_eq!(blocks("text"), [said.into_inner()], "the guide shows what it says");
}

#[test]
fn fr2_the_guide_has_the_statements_of_the_library() {
    let statements: Vec<String> = blocks("sql").iter().map(|text| alike(text)).collect();
    let fence = sql::FENCE.replace("$1", "'reports'").replace("$2", ":epoch");
    assert!(statements[0].starts_with(&alike(&format!("{};", sql::CREATE))), "{}", statements[0]);
    assert!(blocks("sh")[0].contains(&fence), "{fence}");
}

/// What is not tried as a program stands in one that is.
#[test]
fn the_guides_rust_is_that_of_the_example() {
    let example = alike(EXAMPLE);
    let blocks = blocks("rust");
    assert!(!blocks.is_empty());
    for block in blocks {
        for line in block.lines() {
            assert!(example.contains(&alike(line)), "not in the example: {line}");
        }
    }
}
