//! What `proof/seat.py` says about a node, read off its coordinator. Only those who check the code against the proof use it.

use crate::config::Config;
use crate::coordinator::{Coordinator, FlightKind, Phase, SeatFlight};
use crate::id::Nonce;
use crate::io::RequestId;
use crate::leader::{Drain, DrainCause};
use crate::observe::{Seen, SeenSeat};
use crate::seat::{Epoch, Seat, Version};
use crate::time::Time;

/// The variables of the proof for one node. Times are by its own clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Whether and how it leads.
    pub lead: Option<LeadView>,
    /// The lost epoch whose work was not reported stopped.
    pub spare: Option<Epoch>,
    /// Epochs up to this one are over for it.
    pub retired: Epoch,
    /// The seat as it last saw or wrote it.
    pub seen: SeenView,
    /// The seat request under way: which, sent when, and what it writes.
    pub flight: Option<(RequestId, Time, Option<Seat>)>,
    /// Own writes whose outcome is not known, with the time of their sending.
    pub pending: Vec<(Nonce, Time)>,
}

/// A leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeadView {
    /// Its epoch.
    pub epoch: Epoch,
    /// The sending of the last confirmed write: the hold counts from here.
    pub renewed: Time,
    /// Work runs, or was not reported stopped.
    pub work: bool,
    /// Work was told to stop, for whatever reason.
    pub draining: bool,
    /// Leadership is being given up for good.
    pub asked: bool,
}

/// What was last seen of the seat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeenView {
    /// Nothing that can be understood.
    Unknown,
    /// That there is none.
    Absent,
    /// A record.
    Record {
        /// Its content.
        seat: Seat,
        /// Its version.
        version: Version,
        /// Since when it has not changed.
        since: Time,
        /// The store's time of it, if it was read.
        modified_ms: Option<u64>,
    },
}

impl Coordinator {
    /// What it goes by.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it has yet to learn what became of this write of its own.
    pub fn awaits(&self, nonce: Nonce) -> bool {
        let writes = |flight: &SeatFlight| match &flight.kind {
            FlightKind::Read => false,
            FlightKind::Claim(seat) | FlightKind::Renew(seat) | FlightKind::Vacate(seat) => {
                seat.nonce == nonce
            }
        };
        self.seat_flight.as_ref().is_some_and(writes) || self.pending.iter().any(|write| write.nonce == nonce)
    }

    /// What the proof says about this node.
    pub fn view(&self) -> View {
        let lead = match &self.phase {
            Phase::Leading(tenure) => Some(LeadView {
                epoch: tenure.epoch,
                renewed: tenure.renewed,
                work: tenure.processes,
                draining: tenure.drain.is_some(),
                asked: matches!(tenure.drain, Some(Drain { cause: DrainCause::Asked(_), .. })),
            }),
            Phase::Idle
            | Phase::Starting(_)
            | Phase::Watching(_)
            | Phase::Standby(_)
            | Phase::Leaving { .. } => None,
        };
        let seen = match &self.seen {
            Seen::Nothing | Seen::Unreadable { .. } => SeenView::Unknown,
            Seen::Absent => SeenView::Absent,
            Seen::Seat(SeenSeat { seat, version, modified_ms, since }) => SeenView::Record {
                seat: seat.clone(),
                version: version.clone(),
                since: *since,
                modified_ms: *modified_ms,
            },
        };
        let flight = self.seat_flight.as_ref().map(|flight| {
            let writes = match &flight.kind {
                FlightKind::Read => None,
                FlightKind::Claim(seat) | FlightKind::Renew(seat) | FlightKind::Vacate(seat) => {
                    Some(seat.clone())
                }
            };
            (flight.id, flight.sent, writes)
        });
        View {
            lead,
            spare: self.spare,
            retired: self.retired,
            seen,
            flight,
            pending: self.pending.iter().map(|write| (write.nonce, write.sent)).collect(),
        }
    }
}
