//! Settings for people: which value holds, where it came from, and a file to start from.

use super::Settings;
use super::error::Source;
use super::field::{Fallback, Field, Value};
use super::table::FIELDS;
use std::fmt::Write;

/// The width of comments in files.
const COMMENT_CHARS: usize = 100;

/// Settings, validated, with where each value came from.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The settings.
    pub settings: Settings,
    /// Every setting's value and source, in the table's order.
    pub sources: Vec<Origin>,
    /// What works, but deserves a word: to be logged once, at start.
    pub warnings: Vec<String>,
}

/// A setting's value and where it came from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The setting.
    pub field: &'static Field,
    /// Its value.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
}

impl Resolved {
    /// Where a setting's value came from; `None` if there is no such setting.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|origin| origin.field.name == name).map(|origin| &origin.source)
    }
}

/// A TOML file that explains every setting and changes none: each line is there, commented out.
///
/// Commented out, because a value in a file wins over a preset: with every default written down, choosing
/// `preset = "fast"` in the same file would do nothing. A setting's line has no space after its `#`.
pub fn default_toml() -> String {
    let mut file = String::from(
        "# Settings of Tenure. Every line shows a default; to change one, remove its # and edit it.\n\
         # Durations are in milliseconds. Later wins: default, preset, this file, environment, flag.\n",
    );
    for field in FIELDS {
        file.push('\n');
        comment(&mut file, field.doc);
        let aliases: String = field.also.iter().map(|name| format!(", {name}")).collect();
        comment(&mut file, &format!("Environment: {}{aliases}. Flag: {}.", field.env, field.flag));
        let _ = match field.default {
            Fallback::Text(text) => writeln!(file, "#{} = {}", field.name, default_value(field, text)),
            // The value would be this machine's, not the reader's.
            Fallback::Computed { rule, .. } => writeln!(file, "# {} = {rule}", field.name),
        };
    }
    file
}

fn default_value(field: &Field, text: &str) -> String {
    let value = field.parse(&super::field::Raw::Text(text.to_owned()));
    value.map_or_else(|_| text.to_owned(), |value| value.to_toml())
}

/// Appends a paragraph as comment lines.
fn comment(file: &mut String, paragraph: &str) {
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() + 1 > COMMENT_CHARS {
            let _ = writeln!(file, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(file, "#{line}");
}
