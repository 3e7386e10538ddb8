//! Work that is done once for a key, whoever wants to do it.
//!
//! Whoever holds the seat of the key decides by its record, and records that it begins before it begins. So a holder that finds
//! "it runs" knows that somebody may have begun and has not ended: the holder before it died, or lost the seat.

use crate::mutants::Mutant;

/// The record of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnceState {
    /// It runs, or the process that ran it died.
    Running,
    /// It ended with this exit code.
    Ended { code: u8 },
    /// Whoever ran it died, and nobody may run it again.
    Lost,
}

/// What the holder of the seat does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnceNext {
    /// Records that it runs, and then runs it.
    Run,
    /// Nothing: it was done, with this exit code.
    Done(u8),
    /// Records that it is lost.
    Lost,
}

/// What the holder of the seat does, by the record and its age. A record older than `keep_ms` counts as none, unless it says
/// that something runs: nobody knows how that ended.
pub fn once_next(record: Option<(OnceState, u64)>, keep_ms: u64, retry: bool) -> OnceNext {
    match record {
        None => OnceNext::Run,
        Some((OnceState::Ended { .. } | OnceState::Lost, age_ms)) if age_ms >= keep_ms => OnceNext::Run,
        Some((OnceState::Ended { code }, _)) => OnceNext::Done(code),
        Some((OnceState::Running | OnceState::Lost, _)) if retry || Mutant::OnceAgain.on() => OnceNext::Run,
        Some((OnceState::Running | OnceState::Lost, _)) => OnceNext::Lost,
    }
}
