//! Text on stdout and stderr. The standard macros panic when it cannot be written, and a reader that has gone away
//! (`tenure config show | head`, a log collector that was restarted) is no reason to.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first thing that went wrong on stdout, other than that nobody reads.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Nobody reads stdout any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// One line on stdout.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::stdout(format_args!($($text)*)) };
}

/// One line on stderr.
macro_rules! complain {
    ($($text:tt)*) => { $crate::out::stderr(format_args!($($text)*)) };
}

pub(crate) use {complain, say};

pub(crate) fn stdout(text: fmt::Arguments<'_>) {
    let Err(error) = writeln!(io::stdout(), "{text}") else { return };
    CLOSED.store(true, Ordering::Relaxed);
    if error.kind() != ErrorKind::BrokenPipe {
        let _ = FAILED.set(error);
    }
}

/// Whether something could not be written: for whoever would go on for ever.
pub(crate) fn closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

pub(crate) fn stderr(text: fmt::Arguments<'_>) {
    // There is no other place to say it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// What could not be written, at the end of the program.
pub(crate) fn failed() -> Option<&'static io::Error> {
    FAILED.get()
}
