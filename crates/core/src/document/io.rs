//! What goes over the wire for a document: its envelope, requests and answers.

use crate::election::{Epoch, Expect, Version, WriteAnswer};
use crate::id::{Incarnation, Nonce};

/// The envelope of a document: who wrote it, in which epoch, with which write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stamp {
    /// The epoch of the leader that owns the document; 0 if its owner is not a leader.
    pub epoch: Epoch,
    /// The owner's life.
    pub owner: Incarnation,
    /// New with every write.
    pub nonce: Nonce,
}

/// What to send.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Read it, unless it still has this version.
    Read {
        /// The version known; `None` reads unconditionally.
        unless: Option<Version>,
    },
    /// Write it with this envelope, if it is as expected.
    Write {
        /// Its envelope.
        stamp: Stamp,
        /// What must stand there now.
        expect: Expect,
    },
    /// Remove it, without a condition.
    Remove,
}

impl Op {
    /// The request, with the body for a write.
    pub fn with<T>(self, body: impl FnOnce() -> T) -> DocumentRequest<T> {
        match self {
            Op::Read { unless } => DocumentRequest::Read { unless },
            Op::Write { stamp, expect } => DocumentRequest::Write { stamp, body: body(), expect },
            Op::Remove => DocumentRequest::Remove,
        }
    }
}

/// A request for a document with its body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentRequest<T> {
    /// Read it, unless it still has this version.
    Read {
        /// The version known; `None` reads unconditionally.
        unless: Option<Version>,
    },
    /// Write it, if it is as expected.
    Write {
        /// Its envelope.
        stamp: Stamp,
        /// Its body.
        body: T,
        /// What must stand there now.
        expect: Expect,
    },
    /// Remove it, without a condition.
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

/// The outcome of a read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Read<T> {
    /// There is one.
    Found {
        /// Its envelope.
        stamp: Stamp,
        /// Its body.
        body: T,
        /// The condition of the next write.
        version: Version,
    },
    /// It still has the version that the request named.
    Unchanged,
    /// There is no object.
    Absent,
    /// There is an object, but not one that can be read here.
    Unreadable {
        /// Its version.
        version: Version,
        /// Whether a newer major version of this software wrote it.
        newer: bool,
    },
    /// The store did not answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// The outcome of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Removal {
    /// It is gone.
    Gone,
    /// It may still be there.
    Unknown,
}

/// The answer to a [`DocumentRequest`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DocumentAnswer<T> {
    /// It was read.
    Read(Read<T>),
    /// It was written.
    Written(WriteAnswer),
    /// It was removed.
    Removed(Removal),
}
