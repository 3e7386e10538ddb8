//! Pending events, ordered by true time.

use crate::network::{Sender, Then};
use crate::shell::{PartName, Who};
use crate::store::{Op, Said};
use tenure_core::{Epoch, JobId, OutcomeKind, ProcessOutcome, RequestId};

/// An event of the simulation.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Wakes a machine. Without a token it counts in any case.
    Wake { part: PartName, number: u64, token: Option<u64> },
    /// A request takes effect, whether its sender is alive or not.
    Land { from: Sender, op: Op, then: Then },
    /// A machine gets its answer.
    Answer { part: PartName, number: u64, id: RequestId, said: Said },
    /// A process that stood still goes on.
    Resume { life: u64 },
    /// Something that runs comes to its end, or is ready.
    Run { life: u64, what: Run },
    /// A leader sends a task to some node …
    SendTask { life: u64, epoch: Epoch },
    /// … which receives it.
    Task { epoch: Epoch, dispatched: i64 },
}

/// What happens to something that runs on a node or a worker.
#[derive(Debug)]
pub(crate) enum Run {
    /// The work of this epoch has stopped.
    WorkStopped(Epoch),
    ProcessReady {
        process: usize,
        instance: u64,
    },
    ProcessEnded {
        process: usize,
        instance: u64,
        outcome: ProcessOutcome,
    },
    /// A process ends by itself.
    ProcessFails {
        process: usize,
        instance: u64,
        outcome: ProcessOutcome,
    },
    /// The supervision wants leadership given up.
    StandAside {
        hold_ms: u64,
    },
    /// Leadership was given up, or there was none.
    StoodAside,
    /// The work for a key ends.
    OnceEnded {
        number: u64,
    },
    /// It is time for the next key.
    OnceNext,
    JobEnded {
        job: (JobId, u32),
        token: u64,
        kind: OutcomeKind,
    },
}

/// An event at a time and a place.
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) sequence: u64,
    pub(crate) who: Who,
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
