//! What is wrong with a document: every fault at once, each with its field, value, rule and, where there is one, its line.

use std::fmt;

/// Values are told up to this length.
const TOLD_MAX_CHARS: usize = 80;

/// Fields and rules are told up to this length: both may have words of the document in them.
const WORDS_MAX_CHARS: usize = 400;

/// One fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line it is on, from 1; none in an object of the store.
    pub line: Option<usize>,
    /// Which field, from the outside in: `web.checks[0].port`. Empty for the document itself.
    pub field: String,
    /// What it was, cut.
    pub value: String,
    /// What it must be.
    pub rule: String,
}

impl Problem {
    pub(crate) fn new(
        line: Option<usize>,
        field: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Problem {
        let words = |text: String| cut(&text, WORDS_MAX_CHARS);
        Problem {
            line,
            field: words(field.into()),
            value: without_credentials(told(&value.to_string())),
            rule: words(rule.into()),
        }
    }
}

/// A text cut to a length that can be printed, without control characters.
pub(crate) fn told(text: &str) -> String {
    cut(text, TOLD_MAX_CHARS)
}

/// A value that may have a password in it, as addresses may, is not repeated; nor is an address that was cut before that shows.
fn without_credentials(value: String) -> String {
    let is_suspect = value.split_once('@').is_some_and(|(before, _)| before.contains([':', '/']));
    let is_cut = value.contains("//") && value.contains('…');
    if is_suspect || is_cut { "(not shown)".to_owned() } else { value }
}

fn cut(text: &str, max_chars: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut cut: String = text.chars().take(max_chars).map(clean).collect();
    if text.chars().nth(max_chars).is_some() {
        cut.push('…');
    }
    cut
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}", self.field)?;
            if !self.value.is_empty() {
                write!(f, " = {}", self.value)?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.rule)
    }
}

/// Every fault of a document, in the order of their lines. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn check(mut problems: Vec<Problem>) -> Result<(), Problems> {
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
    }

    pub(crate) fn one(problem: Problem) -> Problems {
        Problems(vec![problem])
    }

    /// The faults.
    pub fn all(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.0.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
