//! The simulated store: one seat, the presences, and an eye on what must never happen to them.

use std::collections::BTreeMap;
use tenure_core::*;

/// The store's clock has its own origin, far from everybody else's.
const ORIGIN_MS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub enum Stored {
    Seat(Seat),
    Garbage(SeatProblem),
}

#[derive(Clone, Debug)]
pub struct SeatObject {
    pub stored: Stored,
    pub version: Version,
    pub modified_ms: u64,
}

#[derive(Default)]
pub struct SimStore {
    pub seat: Option<SeatObject>,
    pub nodes: BTreeMap<String, (u64, u64)>,
    /// Every landed claim.
    pub claims: Vec<(Epoch, Holder)>,
    /// Conditions are ignored.
    pub unsafe_: bool,
    versions: u64,
}

impl SimStore {
    fn version(&mut self) -> Version {
        self.versions += 1;
        Version::new(&format!("v{}", self.versions))
    }

    pub fn put(&mut self, now: u64, stored: Stored) -> Version {
        let version = self.version();
        self.seat = Some(SeatObject { stored, version: version.clone(), modified_ms: ORIGIN_MS + now });
        version
    }

    pub fn apply(&mut self, now: u64, name: &str, request: &Request, violations: &mut Vec<String>) -> Answer {
        match request {
            Request::Probe => {
                Answer::Probe(if self.unsafe_ { ProbeAnswer::Unsafe } else { ProbeAnswer::Safe })
            }
            Request::ReadSeat { unless } => Answer::Seat(self.read(unless.as_ref())),
            Request::WriteSeat { seat, expect } => {
                Answer::SeatWritten(self.write(now, seat, expect, violations))
            }
            Request::WritePresence { expect, .. } => {
                Answer::PresenceWritten(self.presence(now, name, expect.as_ref()))
            }
            Request::RemovePresence => {
                self.nodes.remove(name);
                Answer::PresenceRemoved
            }
            Request::ListNodes => Answer::Nodes(NodesAnswer::Found {
                more: false,
                nodes: self
                    .nodes
                    .iter()
                    .map(|(name, (_, modified_ms))| NodeEntry {
                        node: NodeId::new(name).unwrap(),
                        modified_ms: *modified_ms,
                    })
                    .collect(),
            }),
        }
    }

    fn read(&self, unless: Option<&Version>) -> SeatAnswer {
        match &self.seat {
            None => SeatAnswer::Absent,
            Some(object) if Some(&object.version) == unless => SeatAnswer::Unchanged,
            Some(SeatObject { stored: Stored::Garbage(problem), version, .. }) => {
                SeatAnswer::Unreadable { version: version.clone(), problem: *problem }
            }
            Some(SeatObject { stored: Stored::Seat(seat), version, modified_ms }) => {
                SeatAnswer::Found { seat: seat.clone(), version: version.clone(), modified_ms: *modified_ms }
            }
        }
    }

    fn write(&mut self, now: u64, seat: &Seat, expect: &Expect, violations: &mut Vec<String>) -> WriteAnswer {
        let holds = match (expect, &self.seat) {
            (Expect::Absent, None) => true,
            (Expect::Version(version), Some(object)) => *version == object.version,
            (Expect::Absent, Some(_)) | (Expect::Version(_), None) => false,
        };
        if !holds && !self.unsafe_ {
            return WriteAnswer::Lost;
        }
        if let Some(SeatObject { stored: Stored::Seat(old), .. }) = &self.seat {
            let same_holder = old.holder == seat.holder && old.epoch == seat.epoch;
            if !same_holder && seat.epoch <= old.epoch {
                violations.push(format!(
                    "t={now}: {:?} written over {:?}",
                    (seat.epoch, &seat.holder),
                    (old.epoch, &old.holder)
                ));
            }
        }
        if seat.state == SeatState::Held && seat.renewals == 0 && !seat.step_down {
            if let Some((_, other)) =
                self.claims.iter().find(|(epoch, holder)| *epoch == seat.epoch && *holder != seat.holder)
            {
                violations
                    .push(format!("t={now}: {:?} claimed by {other:?} and by {:?}", seat.epoch, seat.holder));
            }
            self.claims.push((seat.epoch, seat.holder.clone()));
        }
        WriteAnswer::Won(self.put(now, Stored::Seat(seat.clone())))
    }

    fn presence(&mut self, now: u64, name: &str, expect: Option<&Version>) -> WriteAnswer {
        if let Some(expect) = expect {
            let current = self.nodes.get(name).map(|(version, _)| Version::new(&format!("v{version}")));
            if current.as_ref() != Some(expect) {
                return WriteAnswer::Lost;
            }
        }
        let version = self.version();
        self.nodes.insert(name.to_owned(), (self.versions, ORIGIN_MS + now));
        WriteAnswer::Won(version)
    }
}

/// A definite no, without effect.
pub fn refusal(request: &Request, denied: bool) -> Answer {
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
