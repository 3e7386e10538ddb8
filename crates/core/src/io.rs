//! Inputs and effects: everything that crosses the border of the core.

use crate::event::Event;
use crate::id::{NodeId, Nonce};
use crate::seat::{Epoch, Expect, Seat, Version};
use crate::time::Time;

/// What the core is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Take part. The random number, uniform over `u64`, decides the startup wait. Ignored unless at rest: after a
    /// [`Input::Stop`], wait for [`Effect::Stopped`].
    Start {
        /// The random number.
        random: u64,
    },
    /// The wake-up asked for by [`Effect::Wake`]. One that was replaced since is ignored.
    Wake(WakeToken),
    /// The answer to a request.
    Answer {
        /// Which request.
        id: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// Nothing acts in the name of this epoch any more. It has no number of its own: work is started again in an epoch only after
    /// this was sent for the work before, so each [`Effect::StartProcesses`] is followed by one of these, and by the next start
    /// only then. To send it twice would break the caller's word; while nothing was told to stop it is ignored.
    ProcessesStopped {
        /// The epoch.
        epoch: Epoch,
    },
    /// Hand leadership over and go on as standby. Ignored by a node that does not lead.
    StepDown,
    /// The same, and claim nothing for this long at least: this node has nothing to offer as leader for now.
    StandAside {
        /// How long.
        hold_ms: u64,
    },
    /// Claim above this epoch from now on; a leader whose epoch is not above it steps down, to claim again.
    Raise {
        /// The epoch.
        above: Epoch,
    },
    /// Leave: drain, vacate, remove the presence, end with [`Effect::Stopped`].
    Stop,
}

/// What the core wants done, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Send this to the store and answer with the same id.
    Request(RequestId, Request),
    /// Send [`Input::Wake`] with this token at this time; forget the wake-up asked for before.
    Wake {
        /// To be handed back.
        token: WakeToken,
        /// When.
        at: Time,
    },
    /// Leadership has begun, or goes on after a wind-down: processes may run until the deadline.
    StartProcesses {
        /// The epoch they run under.
        epoch: Epoch,
        /// When they must be silent, unless extended.
        deadline: Time,
    },
    /// The lease was renewed: the deadline is later now.
    ExtendLease {
        /// The epoch.
        epoch: Epoch,
        /// The new deadline.
        deadline: Time,
    },
    /// Stop the processes of this epoch, all of them before `by`, then send [`Input::ProcessesStopped`].
    StopProcesses {
        /// The epoch.
        epoch: Epoch,
        /// When they must be gone.
        by: Time,
    },
    /// Tell whoever watches.
    Emit(Event),
    /// The coordinator is at rest; it may be started again.
    Stopped(StopCause),
}

/// Why a coordinator came to rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopCause {
    /// It was asked to.
    Asked,
    /// The store ignores conditions, so no leadership on it can be safe.
    StoreUnsafe,
}

/// Pairs a request with its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

/// The generation of a wake-up; older ones are dead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WakeToken(pub u64);

/// A request to the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Find out, by a few writes under a throw-away key, whether the store honours conditions.
    Probe,
    /// Read the seat, unless it still has this version.
    ReadSeat {
        /// The version known.
        unless: Option<Version>,
    },
    /// Write the seat, if the expectation holds.
    WriteSeat {
        /// The record.
        seat: Seat,
        /// What must be there now.
        expect: Expect,
    },
    /// Write this node's presence; with a version, only if nobody else wrote it since.
    WritePresence {
        /// New in every write.
        nonce: Nonce,
        /// The version this node wrote last.
        expect: Option<Version>,
    },
    /// Remove this node's presence.
    RemovePresence,
    /// List the presences: as many as one answer holds, the first by name.
    ListNodes,
}

impl Request {
    /// What silence comes to: a write may have happened, a read has not.
    pub fn unanswered(&self) -> Answer {
        match self {
            Request::Probe => Answer::Probe(ProbeAnswer::Unavailable),
            Request::ReadSeat { .. } => Answer::Seat(SeatAnswer::Unavailable),
            Request::WriteSeat { .. } => Answer::SeatWritten(WriteAnswer::Unknown),
            Request::WritePresence { .. } => Answer::PresenceWritten(WriteAnswer::Unknown),
            Request::RemovePresence => Answer::PresenceRemoved,
            Request::ListNodes => Answer::Nodes(NodesAnswer::Unavailable),
        }
    }
}

/// The answer to a [`Request`], one variant for each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// To [`Request::Probe`].
    Probe(ProbeAnswer),
    /// To [`Request::ReadSeat`].
    Seat(SeatAnswer),
    /// To [`Request::WriteSeat`].
    SeatWritten(WriteAnswer),
    /// To [`Request::WritePresence`].
    PresenceWritten(WriteAnswer),
    /// To [`Request::RemovePresence`], however it went.
    PresenceRemoved,
    /// To [`Request::ListNodes`].
    Nodes(NodesAnswer),
}

/// What the probe found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeAnswer {
    /// Conditions are honoured.
    Safe,
    /// Conditions are ignored.
    Unsafe,
    /// The store did not answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// The outcome of a conditional write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WriteAnswer {
    /// It happened; this is the version now.
    Won(Version),
    /// It did not happen: the condition did not hold.
    Lost,
    /// It may have happened, or may yet happen.
    Unknown,
    /// It did not happen; the store was not reached.
    Unavailable,
    /// It did not happen; the store refuses.
    Denied,
}

/// The outcome of reading the seat.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatAnswer {
    /// The seat as it stands.
    Found {
        /// The record.
        seat: Seat,
        /// Its version.
        version: Version,
        /// When it was written, on the store's clock.
        modified_ms: u64,
    },
    /// It still has the version asked about.
    Unchanged,
    /// There is no seat.
    Absent,
    /// There is an object, but not one this node understands.
    Unreadable {
        /// Its version.
        version: Version,
        /// What is wrong.
        problem: SeatProblem,
    },
    /// No answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// What is wrong with a seat object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatProblem {
    /// Not a seat at all.
    Corrupt,
    /// Written by a newer major version of this software.
    Newer,
    /// It has the highest epoch there is: nobody can claim it any more.
    LastEpoch,
}

/// The outcome of listing the presences.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodesAnswer {
    /// The nodes, the first by name if there are too many for one answer.
    Found {
        /// They.
        nodes: Vec<NodeEntry>,
        /// There are more.
        more: bool,
    },
    /// No answer, or refused.
    Unavailable,
}

/// One presence.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeEntry {
    /// Whose.
    pub node: NodeId,
    /// When it was written, on the store's clock.
    pub modified_ms: u64,
}
