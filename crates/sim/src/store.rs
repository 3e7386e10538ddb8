//! The simulated store: one seat, the presences, and earlier states.

use std::collections::{BTreeMap, VecDeque};
use tenure_core::{
    Answer, Expect, NodeEntry, NodeId, NodesAnswer, ProbeAnswer, Request, Seat, SeatAnswer, SeatProblem,
    SnapshotId, Version, WriteAnswer,
};

/// The store's clock has its own origin, far from all others.
const ORIGIN_MS: u64 = 1_000_000_000;
/// How many old records an operator can restore from.
const BACKUPS_MAX: usize = 12;
/// How many old lists are kept for stale answers.
const LISTS_MAX: usize = 6;

/// The content of the seat's object.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    Seat(Seat),
    /// Something that is not a record.
    Garbage(SeatProblem),
}

/// The snapshot that a seat names, with its version on the store.
pub(crate) type Pointer = SnapshotId;

/// The seat's object.
#[derive(Clone, Debug)]
pub(crate) struct SeatObject {
    pub(crate) stored: Stored,
    pub(crate) version: Version,
    /// When it was written, on the store's own clock.
    pub(crate) modified_ms: u64,
    /// When it was written, in true time.
    pub(crate) landed: u64,
    /// An operator put it there.
    pub(crate) by_hand: bool,
    /// The workers' snapshot that it names.
    pub(crate) pointer: Option<Pointer>,
}

impl SeatObject {
    /// The record, if it is one.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        match &self.stored {
            Stored::Seat(seat) => Some(seat),
            Stored::Garbage(_) => None,
        }
    }
}

/// The store.
#[derive(Default)]
pub(crate) struct SimStore {
    pub(crate) seat: Option<SeatObject>,
    pub(crate) nodes: BTreeMap<NodeId, (u64, u64)>,
    /// Ignores conditions, which a probe finds out.
    pub(crate) ignores_conditions: bool,
    /// How far apart the clocks of its servers are.
    pub(crate) skew_ms: u64,
    pub(crate) backups: VecDeque<SeatObject>,
    lists: VecDeque<Vec<NodeEntry>>,
    versions: u64,
}

impl SimStore {
    fn version(&mut self) -> Version {
        self.versions += 1;
        Version::new(&format!("v{}", self.versions))
    }

    /// The time on whichever server handled the write.
    fn time(&self, now: u64) -> u64 {
        self.time_of(now, self.versions)
    }

    /// The time on the server that handled this write.
    pub(crate) fn time_of(&self, now: u64, write: u64) -> u64 {
        let server = write.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ORIGIN_MS + now + if self.skew_ms == 0 { 0 } else { server % self.skew_ms }
    }

    pub(crate) fn put(&mut self, now: u64, stored: Stored, by_hand: bool) -> Version {
        let version = self.version();
        let modified_ms = self.time(now);
        let pointer = self.seat.as_ref().and_then(|object| object.pointer);
        let object =
            SeatObject { stored, version: version.clone(), modified_ms, landed: now, by_hand, pointer };
        if object.seat().is_some() {
            if self.backups.len() == BACKUPS_MAX {
                self.backups.pop_front();
            }
            self.backups.push_back(object.clone());
        }
        self.seat = Some(object);
        version
    }

    pub(crate) fn probe(&self) -> Answer {
        Answer::Probe(if self.ignores_conditions { ProbeAnswer::Unsafe } else { ProbeAnswer::Safe })
    }

    pub(crate) fn read(&self, unless: Option<&Version>) -> SeatAnswer {
        match &self.seat {
            None => SeatAnswer::Absent,
            Some(object) if Some(&object.version) == unless => SeatAnswer::Unchanged,
            Some(SeatObject { stored: Stored::Garbage(problem), version, .. }) => {
                SeatAnswer::Unreadable { version: version.clone(), problem: *problem }
            }
            Some(SeatObject { stored: Stored::Seat(seat), version, modified_ms, .. }) => {
                SeatAnswer::Found { seat: seat.clone(), version: version.clone(), modified_ms: *modified_ms }
            }
        }
    }

    pub(crate) fn holds(&self, expect: &Expect) -> bool {
        self.ignores_conditions
            || match (expect, &self.seat) {
                (Expect::Absent, None) => true,
                (Expect::Version(version), Some(object)) => *version == object.version,
                (Expect::Absent, Some(_)) | (Expect::Version(_), None) => false,
            }
    }

    pub(crate) fn presence(&mut self, now: u64, node: &NodeId, expect: Option<&Version>) -> WriteAnswer {
        if let Some(expect) = expect {
            let current = self.nodes.get(node).map(|(version, _)| Version::new(&format!("v{version}")));
            if current.as_ref() != Some(expect) {
                return WriteAnswer::Lost;
            }
        }
        self.remember_list();
        let version = self.version();
        self.nodes.insert(node.clone(), (self.versions, self.time(now)));
        WriteAnswer::Won(version)
    }

    pub(crate) fn remove_presence(&mut self, node: &NodeId) {
        self.remember_list();
        self.nodes.remove(node);
    }

    fn remember_list(&mut self) {
        if self.lists.len() == LISTS_MAX {
            self.lists.pop_front();
        }
        let list = self.entries();
        self.lists.push_back(list);
    }

    fn entries(&self) -> Vec<NodeEntry> {
        let entry = |(node, (_, modified_ms)): (&NodeId, &(u64, u64))| NodeEntry {
            node: node.clone(),
            modified_ms: *modified_ms,
        };
        self.nodes.iter().map(entry).collect()
    }

    /// The presences, or an old list of them.
    pub(crate) fn list(&self, stale: Option<usize>) -> Answer {
        let old = stale.and_then(|back| self.lists.iter().rev().nth(back)).cloned();
        let nodes = old.unwrap_or_else(|| self.entries());
        Answer::Nodes(NodesAnswer::Found { nodes, more: false })
    }
}

/// A definite no, without effect.
pub(crate) fn refusal(request: &Request, denied: bool) -> Answer {
    let write = if denied { WriteAnswer::Denied } else { WriteAnswer::Unavailable };
    match request {
        Request::Probe => Answer::Probe(if denied { ProbeAnswer::Denied } else { ProbeAnswer::Unavailable }),
        Request::ReadSeat { .. } => {
            Answer::Seat(if denied { SeatAnswer::Denied } else { SeatAnswer::Unavailable })
        }
        Request::WriteSeat { .. } => Answer::SeatWritten(write),
        Request::WritePresence { .. } => Answer::PresenceWritten(write),
        Request::RemovePresence => Answer::PresenceRemoved,
        Request::ListNodes => Answer::Nodes(NodesAnswer::Unavailable),
    }
}
