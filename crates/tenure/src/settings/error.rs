//! What is wrong with settings, said so that it can be mended: field, value, rule and where the value came from.

use std::fmt;
use std::path::PathBuf;

/// The longest value repeated in a message, in characters. Enough to recognise it, too little to fill a log.
const SHOWN_CHARS_MAX: usize = 80;

/// The most problems reported at once; a foreign file of a megabyte must not become a megabyte of errors.
const PROBLEMS_MAX: usize = 64;

/// Where a value came from. Later layers win: default, preset, file, environment, then flag or builder.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The preset of this name.
    Preset(&'static str),
    /// This file.
    File(PathBuf),
    /// This environment variable.
    Env(String),
    /// This flag of the command line.
    Flag(String),
    /// The program that embeds the library.
    Builder,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Preset(name) => write!(f, "preset {name}"),
            // A path may hold anything, a line feed too; a message is one line.
            Source::File(path) => write!(f, "file {}", shown(&path.display().to_string())),
            Source::Env(name) => write!(f, "environment {name}"),
            Source::Flag(name) => write!(f, "flag {}", shown(name)),
            Source::Builder => f.write_str("builder"),
        }
    }
}

/// One broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The setting; `None` if a whole file is at fault.
    pub field: Option<String>,
    /// Its value, cut and without secrets; `None` where it is not known or not safe to repeat.
    pub value: Option<String>,
    /// The rule it breaks, and why there is one.
    pub rule: String,
    /// Where the value came from.
    pub source: Source,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.field, &self.value) {
            (Some(field), Some(value)) => {
                write!(f, "{field} = {value} ({}): {}", self.source, self.rule)
            }
            (Some(field), None) => write!(f, "{field} ({}): {}", self.source, self.rule),
            (None, _) => write!(f, "{}: {}", self.source, self.rule),
        }
    }
}

/// Everything that is wrong with the settings, at once: mending one error only to meet the next wastes restarts.
///
/// Its text is one line for each problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsError {
    /// The problems, in the order of the layers they were found in; never empty, and at most 64.
    pub problems: Vec<Problem>,
    /// How many more there were.
    pub omitted: usize,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{problem}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for SettingsError {}

/// Collects problems, bounded.
#[derive(Default, Debug)]
pub(super) struct Problems {
    kept: Vec<Problem>,
    omitted: usize,
}

impl Problems {
    pub(super) fn push(&mut self, problem: Problem) {
        if self.is_full() {
            self.omitted += 1;
        } else {
            self.kept.push(problem);
        }
    }

    /// Whether further problems are only counted, so that their texts need no effort.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= PROBLEMS_MAX
    }

    pub(super) fn into_result(self) -> Result<(), SettingsError> {
        if self.kept.is_empty() {
            return Ok(());
        }
        Err(SettingsError { problems: self.kept, omitted: self.omitted })
    }
}

/// A value as messages may show it: no user info of a URL, one line, cut.
pub(super) fn shown(text: &str) -> String {
    let masked = mask(text);
    let mut cut: String = masked.chars().take(SHOWN_CHARS_MAX).collect();
    if cut.len() < masked.len() {
        cut.push('…');
    }
    let plain = !cut.is_empty() && cut.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '"');
    if plain { cut } else { format!("{cut:?}") }
}

/// Replaces everything between `://` and the last `@`. Greedy on purpose: a password may itself hold `/` and `@`,
/// and hiding too much of a wrong URL costs less than printing a secret.
fn mask(text: &str) -> String {
    let Some(scheme_end) = text.find("://").map(|at| at + "://".len()) else {
        return text.to_owned();
    };
    match text.rfind('@') {
        Some(at) if at >= scheme_end => format!("{}***{}", &text[..scheme_end], &text[at..]),
        Some(_) | None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_on_one_line_cut_and_without_secrets() {
        assert_eq!(shown("-100"), "-100");
        assert_eq!(shown(""), "\"\"");
        assert_eq!(shown("a b\n"), "\"a b\\n\"");
        assert_eq!(shown("s3://me:p@ss/w@bucket/x"), "s3://***@bucket/x");
        assert_eq!(shown("a@b"), "a@b");
        assert!(shown(&"ä".repeat(1 << 20)).chars().count() <= SHOWN_CHARS_MAX + 1);
    }

    #[test]
    fn a_flood_of_problems_is_counted_not_kept() {
        let mut problems = Problems::default();
        for _ in 0..PROBLEMS_MAX + 10 {
            let rule = "wrong".to_owned();
            problems.push(Problem { field: None, value: None, rule, source: Source::Default });
        }
        let error = problems.into_result().expect_err("problems");
        assert_eq!((error.problems.len(), error.omitted), (PROBLEMS_MAX, 10));
        assert!(error.to_string().ends_with("and 10 more"));
    }
}
