//! Inputs and effects: everything that crosses the boundary of the core.

use crate::election::event::Event;
use crate::election::seat::{Epoch, Expect, Seat, Version};
use crate::id::{NodeId, Nonce};
pub use crate::machine::RequestId;
use crate::time::Time;

/// Inputs of [`Coordinator::step`](crate::Coordinator::step).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Take part. The random number decides the startup wait. Ignored unless the coordinator is at rest: after an
    /// [`Input::Stop`], wait for [`Effect::Stopped`].
    Start {
        /// Uniform over `u64`.
        random: u64,
    },
    /// The wake-up requested by [`Effect::Wake`]. Ignored if it has been replaced since.
    Wake(WakeToken),
    /// The answer to a request.
    Answer {
        /// The id of the [`Effect::Request`].
        id: RequestId,
        /// The store's answer, or [`Request::unanswered`].
        answer: Answer,
    },
    /// Nothing acts in the name of this epoch any more. This needs no number of its own: work starts again in an epoch only
    /// after this was sent for the work before, so each [`Effect::StartProcesses`] is followed by exactly one of these
    /// before the next start. Sending it twice breaks the caller's promise; it is ignored while nothing was told to stop.
    ProcessesStopped {
        /// The epoch the processes ran under.
        epoch: Epoch,
    },
    /// Hand leadership over and continue as a standby. Ignored by a node that does not lead.
    StepDown,
    /// Like [`Input::StepDown`], but also claim nothing for at least this long: this node has nothing to offer as leader for
    /// now.
    StandAside {
        /// Shortest time without a claim.
        hold_ms: u64,
    },
    /// Claim above this epoch from now on. A leader whose epoch is not above it steps down, to claim again.
    Raise {
        /// Claims must be above this epoch.
        above: Epoch,
    },
    /// Leave: drain, vacate, remove the presence, and end with [`Effect::Stopped`].
    Stop,
}

/// Effects of [`Coordinator::step`](crate::Coordinator::step), to be carried out in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Send this to the store and answer with the same id.
    Request(RequestId, Request),
    /// Send [`Input::Wake`] with this token at this time, and forget the previous wake-up.
    Wake {
        /// To be handed back in [`Input::Wake`].
        token: WakeToken,
        /// The earliest time to send it.
        at: Time,
    },
    /// Leadership has begun, or continues after a wind-down: processes may run until the deadline.
    StartProcesses {
        /// The epoch they run under.
        epoch: Epoch,
        /// When they must stop acting, unless [`Effect::ExtendLease`] extends it.
        deadline: Time,
    },
    /// The lease was renewed, which moves the deadline.
    ExtendLease {
        /// The epoch this node leads with.
        epoch: Epoch,
        /// The new deadline.
        deadline: Time,
    },
    /// Stop all processes of this epoch before `by`, then send [`Input::ProcessesStopped`].
    StopProcesses {
        /// The epoch they run under.
        epoch: Epoch,
        /// When they must all have stopped.
        by: Time,
    },
    /// Report this event to whoever watches.
    Emit(Event),
    /// The coordinator is at rest; it may be started again.
    Stopped(StopCause),
}

/// Why a coordinator came to rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopCause {
    /// [`Input::Stop`] asked for it.
    Asked,
    /// The store ignores conditions, so no leadership on it can be safe.
    StoreUnsafe,
}

/// The generation of a wake-up; older generations are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WakeToken(pub u64);

/// A request to the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Find out, with a few writes under a throw-away key, whether the store honours conditions.
    Probe,
    /// Read the seat, unless it still has this version.
    ReadSeat {
        /// The version this node knows; `None` reads unconditionally.
        unless: Option<Version>,
    },
    /// Write the seat, if it is as `expect` says.
    WriteSeat {
        /// The record to write.
        seat: Seat,
        /// What must be on the seat now.
        expect: Expect,
    },
    /// Write this node's presence; given a version, only if nobody else has written it since.
    WritePresence {
        /// New in every write.
        nonce: Nonce,
        /// The version this node wrote last; `None` writes unconditionally.
        expect: Option<Version>,
    },
    /// Remove this node's presence.
    RemovePresence,
    /// List the presences: as many as one answer holds, in name order.
    ListNodes,
}

impl Request {
    /// The answer to assume when none came: a write may have happened, a read did not.
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
    /// Answers [`Request::Probe`].
    Probe(ProbeAnswer),
    /// Answers [`Request::ReadSeat`].
    Seat(SeatAnswer),
    /// Answers [`Request::WriteSeat`].
    SeatWritten(WriteAnswer),
    /// Answers [`Request::WritePresence`].
    PresenceWritten(WriteAnswer),
    /// Answers [`Request::RemovePresence`], whatever the outcome.
    PresenceRemoved,
    /// Answers [`Request::ListNodes`].
    Nodes(NodesAnswer),
}

/// What the probe found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeAnswer {
    /// The store honours conditions.
    Safe,
    /// The store ignores conditions.
    Unsafe,
    /// The store did not answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// The outcome of a conditional write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WriteAnswer {
    /// It happened; this is the new version.
    Won(Version),
    /// It did not happen: the condition did not hold.
    Lost,
    /// It may have happened, or may yet happen.
    Unknown,
    /// It did not happen; the store could not be reached.
    Unavailable,
    /// It did not happen; the store refuses.
    Denied,
}

/// The outcome of reading the seat.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatAnswer {
    /// There is a seat.
    Found {
        /// The record on the seat.
        seat: Seat,
        /// To be passed as the condition of the next write.
        version: Version,
        /// When it was written, on the store's clock.
        modified_ms: u64,
    },
    /// The seat still has the version the request named.
    Unchanged,
    /// There is no seat.
    Absent,
    /// There is an object, but this node does not understand it.
    Unreadable {
        /// The version of the object.
        version: Version,
        /// Why it cannot be understood.
        problem: SeatProblem,
    },
    /// The store did not answer.
    Unavailable,
    /// The store refuses.
    Denied,
}

/// What is wrong with a seat object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatProblem {
    /// The object is not a seat.
    Corrupt,
    /// Written by a newer major version of this software.
    Newer,
    /// The seat has the highest possible epoch: nobody can claim it any more.
    LastEpoch,
}

/// The outcome of listing the presences.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodesAnswer {
    /// The nodes, in name order; only the first ones if one answer cannot hold them all.
    Found {
        /// In name order.
        nodes: Vec<NodeEntry>,
        /// Whether the list was cut off.
        more: bool,
    },
    /// The store did not answer, or refused.
    Unavailable,
}

/// One presence found in the list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeEntry {
    /// The node the presence belongs to.
    pub node: NodeId,
    /// When it was written, on the store's clock.
    pub modified_ms: u64,
}
