//! What requests are for.

use crate::shell::PartName;
use crate::store::{Folder, Key, Op};
use tenure_core::{Seat, SeatState};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The purpose of a request.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// The number of kinds.
            pub const COUNT: usize = [$($name,)*].len();

            /// The name used in reports.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Checks whether the store honours conditions.
    Probe = "probe",
    /// Reads the seat.
    Read = "read",
    /// Takes the seat.
    Claim = "claim",
    /// Renews the seat.
    Renew = "renew",
    /// Gives up the seat.
    Vacate = "vacate",
    /// Writes the node's presence.
    Presence = "presence",
    /// Removes the node's presence.
    Leave = "leave",
    /// Lists the presences.
    List = "list",
    /// A worker's heartbeat.
    Beat = "worker heartbeat",
    /// Another request of a worker for its own object.
    Own = "worker look",
    /// Lists the workers.
    Sweep = "worker list",
    /// Reads or removes a worker's object as leader.
    Worker = "worker object",
    /// Reads the snapshot.
    Snapshot = "snapshot read",
    /// Writes the snapshot.
    Publish = "snapshot write",
    /// Reads or writes a part of the ledger.
    Ledger = "ledger",
    /// Reads or writes an inbox as leader.
    Inbox = "inbox",
    /// Lists the inboxes.
    Inboxes = "inbox list",
    /// Looks at what is asked of it as leader, or takes something out.
    Orders = "orders",
    /// A submitter's read or write of what is asked.
    Submit = "submission",
    /// Reads or writes the record of a key.
    Once = "once",
    /// Reads or writes the history of jobs.
    History = "job history",
    /// Reads or writes notices about jobs, or delivers one.
    Notices = "notices",
    /// A worker looks at its inbox.
    Look = "job look",
    /// A worker writes its inbox.
    JobWrite = "job write",
}

impl Kind {
    /// The kind of a machine's request.
    pub(crate) fn of(part: PartName, op: &Op) -> Kind {
        match (part, op) {
            (PartName::Registration, Op::Put(..)) => Kind::Beat,
            (PartName::Registration, _) => Kind::Own,
            (PartName::Claimer, Op::Put(..)) => Kind::JobWrite,
            (PartName::Claimer, _) => Kind::Look,
            (PartName::Submitter, _) => Kind::Submit,
            (_, Op::Probe) => Kind::Probe,
            (_, Op::Put(Key::Seat, value, _)) => value.seat().map_or(Kind::Renew, Kind::of_seat),
            (_, Op::Put(Key::Snapshot, ..)) => Kind::Publish,
            (_, Op::Remove(Key::Presence(_))) => Kind::Leave,
            (_, Op::List(Folder::Presences)) => Kind::List,
            (_, Op::List(Folder::Workers)) => Kind::Sweep,
            (_, Op::List(Folder::Inboxes)) => Kind::Inboxes,
            (_, Op::Get(key, _) | Op::Put(key, ..) | Op::Remove(key)) => match key {
                Key::Seat => Kind::Read,
                Key::Presence(_) => Kind::Presence,
                Key::Worker(_) => Kind::Worker,
                Key::Snapshot => Kind::Snapshot,
                Key::Ledger(_) => Kind::Ledger,
                Key::Inbox(_) => Kind::Inbox,
                Key::Orders => Kind::Orders,
                Key::Once(_) => Kind::Once,
                Key::HistoryHead | Key::HistoryPart(_) | Key::Kept(_) => Kind::History,
                Key::Notices | Key::Told(_) => Kind::Notices,
            },
        }
    }

    /// The kind of a write of this record.
    pub(crate) fn of_seat(seat: &Seat) -> Kind {
        match seat.state {
            SeatState::Vacant => Kind::Vacate,
            SeatState::Held if seat.renewals == 0 => Kind::Claim,
            SeatState::Held => Kind::Renew,
        }
    }

    /// Whether it concerns the seat.
    pub fn is_seat(self) -> bool {
        matches!(self, Kind::Read | Kind::Claim | Kind::Renew | Kind::Vacate)
    }

    /// Whether a leader makes it for jobs.
    pub(crate) fn is_for_jobs(self) -> bool {
        // Not for the history: the simulated one is tiny, and hands over all the time.
        matches!(self, Kind::Ledger | Kind::Inbox | Kind::Inboxes | Kind::Orders)
    }
}
