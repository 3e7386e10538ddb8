//! Pending events, ordered by true time.

use crate::office::OfficeInput;
use crate::wire::{Ask, Party, Told};
use tenure_core::JobId;
use tenure_core::{Answer, Epoch, OutcomeKind, ProcessOutcome, Request, RequestId, WakeToken};

/// An event of the simulation.
#[derive(Debug)]
pub(crate) enum Happening {
    Wake { token: WakeToken },
    Land { id: RequestId, request: Request, sent: u64, down: bool, then: Then },
    Answer { id: RequestId, answer: Answer },
    Stopped { epoch: Epoch },
    Dispatch { epoch: Epoch },
    Task { epoch: Epoch, dispatched: i64 },
    Resume,
    WorkerWake { token: u64 },
    WorkerResume,
    SweepWake { token: u64 },
    Ask { who: Party, id: u64, ask: Box<Ask>, sent: u64, then: Then },
    Told { who: Party, id: u64, told: Told },
    Office(OfficeInput),
    Aside { hold_ms: u64 },
    Fails { process: usize, instance: u64, outcome: ProcessOutcome },
    Bureau { incarnation: u64, wake: u64 },
    HandWake { token: u64 },
    RunEnds { key: (JobId, u32), token: u64, kind: OutcomeKind },
}

/// What happens to the answer of a request that landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// It comes after this long.
    Answer(u64),
    /// It never comes.
    Nothing,
    /// It comes after this long, as the refusal of the client's own retry.
    Echo(u64),
    /// It comes after this long, as a failure of unknown effect.
    Unknown(u64),
    /// A list: comes after this long, and shows an earlier state.
    Stale(u64, usize),
}

/// An event for a node or a worker.
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) sequence: u64,
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
