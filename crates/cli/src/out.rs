//! Text on stdout and stderr: the one place that prints. What others put into the store, or a node answers, commands no terminal:
//! whatever is printed is cleaned here.
//!
//! The standard macros panic when it cannot be written, and a reader that has gone away (`tenure config show | head`, a log
//! collector that was restarted) is no reason to.

use comfy_table::{CellAlignment, ContentArrangement, presets};
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first thing that went wrong on stdout, other than that nobody reads.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Nobody reads stdout any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// One line on stdout. A line break within it is shown, not made.
macro_rules! say {
    () => { $crate::out::stdout("") };
    ($($text:tt)*) => { $crate::out::stdout(&$crate::out::line(&format!($($text)*))) };
}

/// One line on stderr. A line break within it is shown, not made.
macro_rules! complain {
    ($($text:tt)*) => { $crate::out::stderr(&$crate::out::line(&format!($($text)*))) };
}

pub(crate) use {complain, say};

/// Several lines on stdout, of a text whose line breaks are our own.
pub(crate) fn say_lines(text: &str) {
    stdout(&lines(text));
}

/// Several lines on stderr, of a text whose line breaks are our own.
pub(crate) fn complain_lines(text: &str) {
    stderr(&lines(text));
}

/// JSON on stdout, for programs.
pub(crate) fn say_json(text: &str) {
    stdout(&json(text));
}

/// One line that moves no cursor: what a terminal would obey is shown by its number instead.
pub(crate) fn line(text: &str) -> String {
    escaped(text, |c| c.escape_default().to_string())
}

/// The same, with line breaks left as they are.
pub(crate) fn lines(text: &str) -> String {
    escaped(text, |c| if c == '\n' { "\n".to_owned() } else { c.escape_default().to_string() })
}

/// JSON escapes most control characters by itself; the rest stands within its strings.
pub(crate) fn json(text: &str) -> String {
    escaped(text, |c| if c == '\n' { "\n".to_owned() } else { format!("\\u{:04x}", u32::from(c)) })
}

/// A text that is shown on a terminal as it is: the same, with tabs left as well.
pub(crate) fn text(text: &str) -> String {
    escaped(text, |c| if matches!(c, '\n' | '\t') { c.to_string() } else { c.escape_default().to_string() })
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_command(c) {
            true => clean.push_str(&escape(c)),
            false => clean.push(c),
        }
    }
    clean
}

/// What a terminal does not show but obeys: control characters, separators of lines, directions of writing.
fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub(crate) fn stdout(clean: &str) {
    note(writeln!(io::stdout(), "{clean}"));
}

/// What a job printed, where it printed it, and nothing more: for a file or another program as it is, cleaned for a terminal.
pub(crate) fn repeat(to_stderr: bool, said: &str) {
    if to_stderr {
        let clean = if io::stderr().is_terminal() { text(said) } else { said.to_owned() };
        let _ = write!(io::stderr(), "{clean}");
    } else {
        let clean = if io::stdout().is_terminal() { text(said) } else { said.to_owned() };
        note(write!(io::stdout(), "{clean}").and_then(|()| io::stdout().flush()));
    }
}

fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    CLOSED.store(true, Ordering::Relaxed);
    if error.kind() != ErrorKind::BrokenPipe {
        let _ = FAILED.set(error);
    }
}

/// Whether something could not be written: for whoever would go on for ever.
pub(crate) fn closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

pub(crate) fn stderr(clean: &str) {
    // There is no other place to say it.
    let _ = writeln!(io::stderr(), "{clean}");
}

/// What could not be written, at the end of the program.
pub(crate) fn failed() -> Option<&'static io::Error> {
    FAILED.get()
}

/// Rows below a header, without lines. Each cell is one line, whatever stands in it.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(header: &[&str]) -> Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.to_vec());
        Table(table)
    }

    /// The columns from this one on are set to the right.
    pub(crate) fn right_from(mut self, first: usize) -> Table {
        for column in self.0.column_iter_mut().skip(first) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }

    /// Long cells are broken into lines where the terminal ends.
    pub(crate) fn wrapped(mut self) -> Table {
        if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
            && size.ws_col > 0
        {
            self.0.set_content_arrangement(ContentArrangement::Dynamic).set_width(size.ws_col);
        }
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.add_row(cells.into_iter().map(|cell| line(cell.as_ref())).collect::<Vec<String>>());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// On stdout.
    pub(crate) fn say(&self) {
        say_lines(&self.to_string());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a\u{1b}[2J\u{9b}\u{7f}\r\nb\t\u{202e}ü–…";

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(line(NASTY), "a\\u{1b}[2J\\u{9b}\\u{7f}\\r\\nb\\t\\u{202e}ü–…");
        assert_eq!(lines("a\nb\u{1b}"), "a\nb\\u{1b}");
        assert_eq!(line("plain, with ü and 漢"), "plain, with ü and 漢");
    }

    #[test]
    fn json_stays_json_and_says_the_same() {
        let value = serde_json::json!({NASTY: [NASTY]});
        for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("serializes")] {
            let clean = json(&text);
            assert!(!clean.contains(|c: char| is_command(c) && c != '\n'), "{clean}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&clean).expect("JSON"), value);
        }
    }

    #[test]
    fn a_cell_is_one_line() {
        let mut table = Table::new(&["NODE", "ROLE"]);
        table.row([NASTY, "x\nFORGED"]);
        assert_eq!(table.to_string().lines().count(), 2, "{table}");
        assert!(!table.to_string().contains(|c: char| is_command(c) && c != '\n'));
    }
}
