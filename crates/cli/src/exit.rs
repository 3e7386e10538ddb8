//! Exit codes: what a script can rely on.

use crate::out::complain_lines;
use std::fmt;
use std::process::ExitCode;
use tenure::Error;
use tenure::error::ErrorKind;

/// Every way the binary ends, with what it means. The reference page is checked against this table.
pub(crate) const CODES: &[(u8, &str)] = &[
    (
        0,
        "done; for `status` and `leader`: there is a live leader; for `step-down`: the leader stepped down; for `health`: healthy",
    ),
    (1, "failed for another reason"),
    (2, "wrong arguments or settings; nothing was done"),
    (3, "there is no live leader"),
    (4, "the store cannot be reached, or refuses"),
    (5, "the store does not honour conditional writes"),
    (6, "an object on the store cannot be read"),
    (7, "`health`: the cluster is degraded"),
    (8, "`health`: the cluster is in a critical state"),
    (9, "`health`: the cluster's health is unknown"),
    (10, "there is no such schedule, job, attempt or node"),
    (TIMED_OUT, "`lock`: somebody else held the lock for all of `--timeout`; the command was not run"),
    (
        LOST,
        "`lock`, `once`, `exec --once`: leadership was lost while the command ran; it was stopped; or the key of `once` is lost",
    ),
    (126, "`lock`, `exec`, `run`: the command cannot be run"),
    (127, "`lock`, `exec`, `run`: there is no such command"),
    (130, "ended at once by a second SIGINT"),
    (143, "ended at once by a second SIGTERM"),
];

/// Somebody else held the lock for as long as it was waited for.
pub(crate) const TIMED_OUT: u8 = 11;
/// The command was stopped because leadership ended.
pub(crate) const LOST: u8 = 12;

/// An error with the exit code it deserves.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl fmt::Display) -> Failure {
        Failure { code, message: message.to_string() }
    }

    pub(crate) fn other(message: impl fmt::Display) -> Failure {
        Failure::new(1, message)
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(2, message)
    }

    pub(crate) fn store(message: impl fmt::Display) -> Failure {
        Failure::new(4, message)
    }

    pub(crate) fn unsafe_store(message: impl fmt::Display) -> Failure {
        Failure::new(5, message)
    }

    pub(crate) fn unreadable(message: impl fmt::Display) -> Failure {
        Failure::new(6, message)
    }

    pub(crate) fn missing(message: impl fmt::Display) -> Failure {
        Failure::new(10, message)
    }

    pub(crate) fn lost(message: impl fmt::Display) -> Failure {
        Failure::new(LOST, message)
    }

    pub(crate) fn timed_out(message: impl fmt::Display) -> Failure {
        Failure::new(TIMED_OUT, message)
    }

    /// There is no such program, or it cannot be run: with the code a shell has for it.
    pub(crate) fn program(code: u8, message: impl fmt::Display) -> Failure {
        Failure::new(code, message)
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Says what is wrong and gives the code to end with.
    pub(crate) fn report(&self) -> ExitCode {
        complain_lines(&format!("tenure: {}", self.message));
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tenure::store::OpenError> for Failure {
    fn from(error: tenure::store::OpenError) -> Failure {
        if error.is_usage() { Failure::usage(error) } else { Failure::store(error) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::Invalid => Failure::usage(error),
            ErrorKind::Unavailable | ErrorKind::Denied => Failure::store(error),
            ErrorKind::Unreadable => Failure::unreadable(error),
            ErrorKind::NotFound => Failure::missing(error),
            ErrorKind::Taken
            | ErrorKind::NotLeading
            | ErrorKind::Fenced
            | ErrorKind::Ended
            | ErrorKind::Full
            | ErrorKind::Raced => Failure::other(error),
        }
    }
}

impl From<tenure::settings::SettingsError> for Failure {
    fn from(error: tenure::settings::SettingsError) -> Failure {
        Failure::usage(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::other(error)
    }
}
