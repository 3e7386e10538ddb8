//! What crosses the border of a registration.

use crate::id::{Incarnation, NodeId};
use crate::io::{RequestId, WriteAnswer};
use crate::seat::{Expect, Version};

/// What the machine is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationInput {
    /// Register. Ignored unless new.
    Start,
    /// The time it asked for has come; too early or too late is harmless.
    Wake,
    /// The answer to a request.
    Answer {
        /// Which request.
        id: RequestId,
        /// The answer.
        answer: RegistrationAnswer,
    },
    /// Deregister, and end.
    Stop,
}

/// What the machine wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEffect {
    /// Send this, and answer with the same id.
    Request(RequestId, RegistrationRequest),
    /// Tell whoever watches.
    Emit(RegistrationEvent),
    /// It is over.
    Ended(RegistrationEnd),
}

/// A request for the worker's own object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationRequest {
    /// Read it, unless it still has this version.
    Read {
        /// The version known.
        unless: Option<Version>,
    },
    /// Write it, if the expectation holds.
    Write {
        /// New in every write.
        sequence: u64,
        /// What must be there now.
        expect: Expect,
    },
    /// Remove it.
    Remove,
}

impl RegistrationRequest {
    /// What silence comes to: a write may have happened, a read has not.
    pub fn unanswered(&self) -> RegistrationAnswer {
        match self {
            RegistrationRequest::Read { .. } => RegistrationAnswer::Read(WorkerRead::Unavailable),
            RegistrationRequest::Write { .. } => RegistrationAnswer::Written(WriteAnswer::Unknown),
            RegistrationRequest::Remove => RegistrationAnswer::Removed(RemoveAnswer::Failed),
        }
    }
}

/// The answer to a request, one variant for each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationAnswer {
    /// To a read.
    Read(WorkerRead),
    /// To a write.
    Written(WriteAnswer),
    /// To a removal.
    Removed(RemoveAnswer),
}

/// The outcome of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RemoveAnswer {
    /// It is gone.
    Done,
    /// It may not be.
    Failed,
}

/// The outcome of reading the worker's object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WorkerRead {
    /// A worker's object.
    Found(WorkerFound),
    /// It still has the version asked about.
    Unchanged,
    /// There is none.
    Absent,
    /// There is something that is no worker's object.
    Unreadable,
    /// No answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// A worker's object as it was found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerFound {
    /// Its version.
    pub version: Version,
    /// Who wrote it.
    pub incarnation: Incarnation,
    /// The number of that write among the writer's own.
    pub sequence: u64,
    /// Where the writer runs.
    pub pod: NodeId,
    /// How often the writer says it writes; 0 if it does not say.
    pub heartbeat_ms: u64,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEvent {
    /// The object is there and its own.
    Registered,
    /// Another process has the id; it is watched to see whether it lives.
    Watching {
        /// Where it runs.
        pod: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// For how long.
        wait_ms: u64,
    },
    /// The object is none of a worker's; it is left alone. Said once, until it is gone.
    Unreadable,
    /// The store does not answer; said once, until it does.
    Unavailable,
    /// The store refuses; said once, until it does not.
    Denied,
    /// The store answers again.
    Mended,
}

/// How a registration ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEnd {
    /// It was asked to.
    Deregistered,
    /// Another live process has the id; this one never had it.
    Refused {
        /// Where the other runs.
        pod: NodeId,
        /// Which life.
        incarnation: Incarnation,
    },
    /// Another process took the id over while this one was silent.
    Superseded {
        /// Where the other runs.
        pod: NodeId,
        /// Which life.
        incarnation: Incarnation,
    },
    /// The object under the id is none of a worker's, and was there first.
    Unreadable,
}
