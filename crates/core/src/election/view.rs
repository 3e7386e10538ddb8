//! What `proof/seat.py` says about a node, read from its coordinator. Used only to check the code against the proof.

use crate::election::config::Config;
use crate::election::coordinator::{Coordinator, FlightKind, Phase, SeatFlight};
use crate::election::io::RequestId;
use crate::election::leader::{Drain, DrainCause};
use crate::election::observe::{Seen, SeenSeat};
use crate::election::seat::{Epoch, Seat, Version};
use crate::id::Nonce;
use crate::time::Time;

/// The proof's variables for one node. Times are by its own clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The leadership; `None` if it does not lead.
    pub lead: Option<LeadView>,
    /// The lost epoch whose work has not been reported stopped.
    pub spare: Option<Epoch>,
    /// Epochs up to this one are over for the node.
    pub retired: Epoch,
    pub seen: SeenView,
    /// The seat request in flight: its id, when it was sent, and what it writes (`None` for a read).
    pub flight: Option<(RequestId, Time, Option<Seat>)>,
    /// The node's own writes of unknown outcome, with the time they were sent.
    pub pending: Vec<(Nonce, Time)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeadView {
    pub epoch: Epoch,
    /// When the last confirmed write was sent; the hold counts from here.
    pub renewed: Time,
    /// Work runs, or has not been reported stopped.
    pub work: bool,
    /// Work was told to stop, for whatever reason.
    pub draining: bool,
    /// Leadership is being given up for good.
    pub asked: bool,
}

/// The seat as the node last saw or wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeenView {
    /// Nothing it understands.
    Unknown,
    /// There was no seat.
    Absent,
    /// Unchanged since `since`. `modified_ms` is the store's time stamp; `None` if this node wrote it.
    Record { seat: Seat, version: Version, since: Time, modified_ms: Option<u64> },
}

impl Coordinator {
    /// The parameters this coordinator uses now.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the node does not know yet what became of this write of its own.
    pub fn awaits(&self, nonce: Nonce) -> bool {
        let writes = |flight: &SeatFlight| match &flight.kind {
            FlightKind::Read => false,
            FlightKind::Claim(seat) | FlightKind::Renew(seat) | FlightKind::Vacate(seat) => {
                seat.nonce == nonce
            }
        };
        self.seat_flight.as_ref().is_some_and(writes) || self.pending.iter().any(|write| write.nonce == nonce)
    }

    pub fn view(&self) -> View {
        let lead = match &self.phase {
            Phase::Leading(term) => Some(LeadView {
                epoch: term.epoch,
                renewed: term.renewed,
                work: term.processes,
                draining: term.drain.is_some(),
                asked: matches!(term.drain, Some(Drain { cause: DrainCause::Asked(_), .. })),
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
