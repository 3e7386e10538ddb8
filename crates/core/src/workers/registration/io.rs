//! Inputs and effects of a registration.

use crate::election::{Expect, RequestId, Version, WriteAnswer};
use crate::id::{Incarnation, NodeId};

/// Inputs of [`Registration::handle`](super::Registration::handle).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationInput {
    /// Register. Ignored unless the registration is new.
    Start,
    /// The requested wake-up. Sending it too early or too late is harmless.
    Wake,
    /// The answer to a request.
    Answer {
        /// The id of the [`RegistrationEffect::Request`].
        id: RequestId,
        /// The store's answer, or [`RegistrationRequest::unanswered`].
        answer: RegistrationAnswer,
    },
    /// Deregister and end.
    Stop,
}

/// Effects of [`Registration::handle`](super::Registration::handle), for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEffect {
    /// Send this to the store and answer with the same id.
    Request(RequestId, RegistrationRequest),
    /// Report this event to whoever watches.
    Emit(RegistrationEvent),
    /// The registration has ended.
    Ended(RegistrationEnd),
}

/// A request for the worker's own object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationRequest {
    /// Read it, unless it still has this version.
    Read {
        /// The version this worker knows; `None` reads unconditionally.
        unless: Option<Version>,
    },
    /// Write it, if it is as `expect` says.
    Write {
        /// New with every write.
        sequence: u64,
        /// What must be there now.
        expect: Expect,
    },
    /// Remove it.
    Remove,
}

impl RegistrationRequest {
    /// The answer to assume when none came: a write may have happened, a read did not.
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
    /// Answers [`RegistrationRequest::Read`].
    Read(WorkerRead),
    /// Answers [`RegistrationRequest::Write`].
    Written(WriteAnswer),
    /// Answers [`RegistrationRequest::Remove`].
    Removed(RemoveAnswer),
}

/// The outcome of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RemoveAnswer {
    /// The object is gone.
    Done,
    /// The object may still be there.
    Failed,
}

/// The outcome of reading the worker's object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WorkerRead {
    /// A worker's object.
    Found(WorkerFound),
    /// It still has the version the request named.
    Unchanged,
    /// There is no object.
    Absent,
    /// There is an object, but it is not a worker's.
    Unreadable,
    /// The store did not answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// A worker's object as it was found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerFound {
    /// To be passed as the condition of the next write.
    pub version: Version,
    /// The life of the worker that wrote it.
    pub incarnation: Incarnation,
    /// The writer's own count of that write.
    pub sequence: u64,
    /// The pod the writer runs on.
    pub pod: NodeId,
    /// How often the writer says it writes; 0 if it does not say.
    pub heartbeat_ms: u64,
}

/// Facts stated by a registration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEvent {
    /// The object is there and belongs to this worker.
    Registered,
    /// Another process has the id; this one watches whether it is alive.
    Watching {
        /// The pod the other process runs on.
        pod: NodeId,
        /// The other process's incarnation.
        incarnation: Incarnation,
        /// How long it is watched.
        wait_ms: u64,
    },
    /// The object is not a worker's; it is left alone. Reported once, until it is gone.
    Unreadable,
    /// The store does not answer. Reported once, until it does.
    Unavailable,
    /// The store refuses. Reported once, until it no longer does.
    Denied,
    /// The store answers again.
    Mended,
}

/// How a registration ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEnd {
    /// [`RegistrationInput::Stop`] asked for it.
    Deregistered,
    /// Another live process has the id; this one never had it.
    Refused {
        /// The pod the other process runs on.
        pod: NodeId,
        /// The other process's incarnation.
        incarnation: Incarnation,
    },
    /// Another process took over the id while this one was silent.
    Superseded {
        /// The pod the other process runs on.
        pod: NodeId,
        /// The other process's incarnation.
        incarnation: Incarnation,
    },
    /// The object under the id is not a worker's, and was there first.
    Unreadable,
}
