//! What happened: always as a digest, and in full on request.

use crate::fault::FaultKind;
use crate::kind::Kind;
use crate::shell::Who;
use std::hash::{Hash, Hasher};
use tenure_core::{Epoch, Event, RequestId};

/// Something worth drawing.
#[derive(Clone, Debug)]
pub enum Noted {
    /// The core emitted this event.
    Event(Event),
    /// A request was sent; its outcome follows.
    Sent(Kind, RequestId),
    /// A conditional write or another request took effect.
    Landed(Kind, Epoch),
    /// Work may run.
    Began(Epoch),
    /// Work must stop.
    Ending(Epoch),
    /// The node is at rest.
    Rests,
    /// A fault struck.
    Fault(FaultKind),
    /// The process died.
    Crashed,
    /// A new life of the node began.
    Restarted,
    /// The process stands still for this long.
    Paused(u64),
    /// The process resumed.
    Resumed,
    /// About a worker or the registry, in words.
    Worker(String),
    /// About a leader's work, in words.
    Work(String),
}

impl Noted {
    /// A description for people.
    pub fn line(&self) -> String {
        match self {
            Noted::Event(event) => format!("{event:?}"),
            Noted::Sent(kind, id) => format!("-> {} #{}", kind.name(), id.0),
            Noted::Landed(kind, epoch) => format!("== {} {epoch:?} takes effect", kind.name()),
            Noted::Began(epoch) => format!("work of {epoch:?} starts"),
            Noted::Ending(epoch) => format!("work of {epoch:?} is to stop"),
            Noted::Rests => "at rest".to_owned(),
            Noted::Fault(kind) => format!("!! {kind}"),
            Noted::Crashed => "dead".to_owned(),
            Noted::Restarted => "a new life".to_owned(),
            Noted::Paused(ms) => format!("stands still for {ms} ms"),
            Noted::Resumed => "goes on".to_owned(),
            Noted::Worker(what) | Noted::Work(what) => what.clone(),
        }
    }
}

/// One line of a timeline.
#[derive(Clone, Debug)]
pub struct Note {
    /// True time.
    pub at: u64,
    /// The index of the node; unused for lines of the worker registry.
    pub node: usize,
    /// What happened.
    pub what: Noted,
}

/// FNV-1a over words: the same on every machine, unlike the standard library's hasher.
#[derive(Clone, Debug)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        // Otherwise the last words would affect only the low bits.
        (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) recording: bool,
    pub(crate) notes: Vec<Note>,
    digest: Digest,
}

impl Trace {
    pub(crate) fn finish(&self) -> u64 {
        self.digest.finish()
    }

    pub(crate) fn note(&mut self, at: u64, node: usize, what: impl FnOnce() -> Noted) {
        if self.recording {
            self.notes.push(Note { at, node, what: what() });
        }
    }

    /// Makes something part of the digest.
    pub(crate) fn digest(&mut self, what: &impl Hash) {
        what.hash(&mut self.digest);
    }

    /// A request is sent.
    pub(crate) fn sent(&mut self, at: u64, who: Who, kind: Kind, id: RequestId) {
        self.digest(&(at, who, kind, id));
        if let Who::Node(node) = who {
            self.note(at, node, || Noted::Sent(kind, id));
        }
    }

    /// About the registry, in words: belongs to no row in a picture.
    pub(crate) fn say(&mut self, at: u64, what: impl FnOnce() -> String) {
        if self.recording {
            self.notes.push(Note { at, node: usize::MAX, what: Noted::Worker(what()) });
        }
    }
}
