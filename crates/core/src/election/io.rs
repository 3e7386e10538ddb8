//! Inputs and effects: everything that crosses the boundary of the core.

use crate::election::event::Event;
use crate::election::seat::{Epoch, Expect, Seat, Version};
use crate::id::{NodeId, Nonce};
pub use crate::machine::RequestId;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Take part. The random number, uniform over `u64`, decides the startup wait. Ignored unless the coordinator is at
    /// rest: after an [`Input::Stop`], wait for [`Effect::Stopped`].
    Start { random: u64 },
    /// The wake-up requested by [`Effect::Wake`]. Ignored if it has been replaced since.
    Wake(WakeToken),
    /// The store's answer, or [`Request::unanswered`].
    Answer { id: RequestId, answer: Answer },
    /// Nothing acts in the name of this epoch any more. This needs no number of its own: work starts again in an epoch only
    /// after this was sent for the work before, so each [`Effect::StartProcesses`] is followed by exactly one of these
    /// before the next start. Sending it twice breaks the caller's promise; it is ignored while nothing was told to stop.
    ProcessesStopped { epoch: Epoch },
    /// Hand leadership over and continue as a standby. Ignored by a node that does not lead.
    StepDown,
    /// Like [`Input::StepDown`], but also claim nothing for at least this long: this node has nothing to offer as leader for
    /// now.
    StandAside { hold_ms: u64 },
    /// Claim above this epoch from now on. A leader whose epoch is not above it steps down, to claim again.
    Raise { above: Epoch },
    /// Leave: drain, vacate, remove the presence, and end with [`Effect::Stopped`].
    Stop,
}

/// To be carried out in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Send this to the store and answer with the same id.
    Request(RequestId, Request),
    /// Send [`Input::Wake`] with this token at this time or later, and forget the previous wake-up.
    Wake { token: WakeToken, at: Time },
    /// Leadership has begun, or continues after a wind-down: processes may run until the deadline, unless
    /// [`Effect::ExtendLease`] moves it.
    StartProcesses { epoch: Epoch, deadline: Time },
    /// The lease was renewed, which moves the deadline.
    ExtendLease { epoch: Epoch, deadline: Time },
    /// Stop all processes of this epoch before `by`, then send [`Input::ProcessesStopped`].
    StopProcesses { epoch: Epoch, by: Time },
    /// For whoever watches.
    Emit(Event),
    /// The coordinator is at rest; it may be started again.
    Stopped(StopCause),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopCause {
    Asked,
    /// The store ignores conditions, so no leadership on it can be safe.
    StoreUnsafe,
}

/// The generation of a wake-up; older generations are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WakeToken(pub u64);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Find out, with a few writes under a throw-away key, whether the store honours conditions.
    Probe,
    /// `unless` is the version this node knows; `None` reads unconditionally.
    ReadSeat { unless: Option<Version> },
    /// Only if the seat is as expected.
    WriteSeat { seat: Seat, expect: Expect },
    /// Write this node's presence, with a new nonce each time. Given the version this node wrote last, only if nobody else
    /// has written it since; `None` writes unconditionally.
    WritePresence { nonce: Nonce, expect: Option<Version> },
    /// The answer is the same whatever the outcome.
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

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    Probe(ProbeAnswer),
    Seat(SeatAnswer),
    SeatWritten(WriteAnswer),
    PresenceWritten(WriteAnswer),
    PresenceRemoved,
    Nodes(NodesAnswer),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeAnswer {
    /// The store honours conditions.
    Safe,
    Unsafe,
    Unavailable,
    Denied,
}

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

/// `modified_ms` is by the store's clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatAnswer {
    Found { seat: Seat, version: Version, modified_ms: u64 },
    Unchanged,
    Absent,
    Unreadable { version: Version, problem: SeatProblem },
    Unavailable,
    Denied,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatProblem {
    Corrupt,
    /// Written by a newer major version of this software.
    Newer,
    /// The seat has the highest possible epoch: nobody can claim it any more.
    LastEpoch,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NodesAnswer {
    /// The nodes, in name order; only the first ones if one answer cannot hold them all.
    Found { nodes: Vec<NodeEntry>, more: bool },
    /// The store did not answer, or refused.
    Unavailable,
}

/// One presence found in the list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeEntry {
    pub node: NodeId,
    /// When it was written, on the store's clock.
    pub modified_ms: u64,
}
