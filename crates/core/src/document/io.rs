//! What goes over the wire for a document: its envelope, requests and answers.

use crate::election::{Epoch, Expect, Version, WriteAnswer};
use crate::id::{Incarnation, Nonce};

/// The envelope of a document.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stamp {
    /// The epoch of the leader that owns the document; 0 if its owner is not a leader.
    pub epoch: Epoch,
    pub owner: Incarnation,
    /// New with every write.
    pub nonce: Nonce,
}

/// `Read` with no known version reads unconditionally. `Remove` has no condition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    Read { unless: Option<Version> },
    Write { stamp: Stamp, expect: Expect },
    Remove,
}

impl Op {
    pub fn with<T>(self, body: impl FnOnce() -> T) -> DocumentRequest<T> {
        match self {
            Op::Read { unless } => DocumentRequest::Read { unless },
            Op::Write { stamp, expect } => DocumentRequest::Write { stamp, body: body(), expect },
            Op::Remove => DocumentRequest::Remove,
        }
    }
}

/// An [`Op`], with the body for a write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentRequest<T> {
    Read { unless: Option<Version> },
    Write { stamp: Stamp, body: T, expect: Expect },
    Remove,
}

impl<T> crate::machine::Request for DocumentRequest<T> {
    type Answer = DocumentAnswer<T>;

    fn unanswered(&self) -> DocumentAnswer<T> {
        match self {
            DocumentRequest::Read { .. } => DocumentAnswer::Read(Read::Unavailable),
            DocumentRequest::Write { .. } => DocumentAnswer::Written(WriteAnswer::Unknown),
            DocumentRequest::Remove => DocumentAnswer::Removed(Removal::Unknown),
        }
    }
}

/// `newer`: a newer major version of this software wrote the object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Read<T> {
    Found { stamp: Stamp, body: T, version: Version },
    Unchanged,
    Absent,
    Unreadable { version: Version, newer: bool },
    Unavailable,
    Denied,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Removal {
    Gone,
    /// It may still be there.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentAnswer<T> {
    Read(Read<T>),
    Written(WriteAnswer),
    Removed(Removal),
}
