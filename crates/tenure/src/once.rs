//! Work that is done once for a key: its record, and what a process does by it. `tenure once` does it for commands.
//!
//! Whoever holds the seat of the key keeps the record as a [`FencedDocument`](crate::FencedDocument), and records that it begins
//! before it begins.
//!
//! ```
//! use tenure::once::{OnceNext, OnceRecord, OnceState, once_next};
//!
//! let (keep_ms, retry) = (60_000, false);
//! assert_eq!(once_next(None, keep_ms, retry), OnceNext::Run);
//! let ended = OnceRecord::new(OnceState::Ended { code: 0 }, "pod-a");
//! assert_eq!(once_next(Some(ended.read()), keep_ms, retry), OnceNext::Done(0));
//! ```

use serde::{Deserialize, Serialize};
use std::time::SystemTime;

pub use tenure_core::{OnceNext, OnceState, once_next};

/// The record of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OnceRecord {
    /// `running`, `ended` or `lost`.
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    /// Who runs it, or ran it last.
    pub node: String,
    /// When this was written, by the clock of whoever did, in ms since 1970.
    pub at: u64,
}

impl OnceRecord {
    /// A record of now.
    pub fn new(state: OnceState, node: &str) -> OnceRecord {
        let (state, code) = match state {
            OnceState::Running => ("running", None),
            OnceState::Ended { code } => ("ended", Some(code)),
            OnceState::Lost => ("lost", None),
        };
        OnceRecord { state: state.to_owned(), code, node: node.to_owned(), at: now_ms() }
    }

    /// What it says, and how old it is in ms. A state that is not known counts as running: nobody can tell what was done.
    pub fn read(&self) -> (OnceState, u64) {
        let state = match (self.state.as_str(), self.code) {
            ("ended", Some(code)) => OnceState::Ended { code },
            ("lost", _) => OnceState::Lost,
            _ => OnceState::Running,
        };
        (state, now_ms().saturating_sub(self.at))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    crate::clock::millis(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_recorded_and_nonsense_may_have_run() {
        for state in [OnceState::Running, OnceState::Ended { code: 7 }, OnceState::Lost] {
            let text = serde_json::to_string(&OnceRecord::new(state, "pod-a")).expect("it serializes");
            let record: OnceRecord = serde_json::from_str(&text).expect("our own");
            assert_eq!((record.read().0, record.node.as_str()), (state, "pod-a"));
        }
        let odd = OnceRecord { state: "ended".to_owned(), code: None, node: "pod-a".to_owned(), at: 0 };
        assert_eq!(odd.read().0, OnceState::Running);
    }
}
