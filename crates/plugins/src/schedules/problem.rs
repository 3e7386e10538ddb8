//! What is wrong with a document: all faults at once, each with its field, value, rule and, if there is one, its line.

use std::fmt;

/// The longest part of a value that is shown.
const TOLD_MAX_CHARS: usize = 80;

/// The longest part of a field or rule that is shown: both may contain words from the document.
const WORDS_MAX_CHARS: usize = 400;

/// One fault in a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line, starting at 1; `None` for an object of the store.
    pub line: Option<usize>,
    /// The path of the field: `web.checks[0].port`. Empty for the document itself.
    pub field: String,
    /// The offending value, cut to a printable length.
    pub value: String,
    /// What the value must be.
    pub rule: String,
}

impl Problem {
    pub(crate) fn new(
        line: Option<usize>,
        field: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Problem {
        let words = |text: String| one_line(&text, WORDS_MAX_CHARS);
        Problem {
            line,
            field: words(field.into()),
            value: without_credentials(shortened(&value.to_string())),
            rule: words(rule.into()),
        }
    }
}

/// A text cut to a length that fits an error, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    one_line(text, TOLD_MAX_CHARS)
}

/// Hides a value that may contain a password, as addresses may, and an address that was cut too early to tell.
fn without_credentials(value: String) -> String {
    let is_suspect = value.split_once('@').is_some_and(|(before, _)| before.contains([':', '/']));
    let is_cut = value.contains("//") && value.contains('…');
    if is_suspect || is_cut { "(not shown)".to_owned() } else { value }
}

/// A text of at most this length, without control characters.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
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

/// All faults of a document, sorted by line. Never empty.
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

    /// The faults, in order.
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
