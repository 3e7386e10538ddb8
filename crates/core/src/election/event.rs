//! Facts stated by the core. The driver adds names, a namespace and a wall-clock time, and counts them.

use crate::election::io::SeatProblem;
use crate::election::seat::Epoch;
use crate::id::NodeId;
use crate::time::Time;

/// Something that happened, for people and programs that watch. Nothing in the protocol depends on events.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// This node only watches.
    Ineligible,
    /// The wait before the first request.
    JitterStarted { wait_ms: u64 },
    /// The node is known to the others (presence written, seat read).
    Joined,
    /// The seat is free and this node waits for its turn to claim it, which comes at `ready_at` at the earliest.
    AwaitingTurn { ready_at: Time },
    /// This node is trying to claim the seat.
    ElectionStarted { cause: ElectionCause },
    /// A standby looked at the seat. `leader` is `None` if the seat is vacant, absent or unreadable.
    ElectionCheck { leader: Option<NodeId>, unchanged_ms: u64 },
    /// The leader has not renewed for a whole expiry. `unchanged_ms` is how long the seat has been unchanged, as far as this
    /// node can tell.
    LeaderDown { leader: NodeId, epoch: Epoch, unchanged_ms: u64 },
    /// The leader that seemed down renewed after all; no takeover.
    LeaderRecovered { leader: NodeId, epoch: Epoch },
    /// There is another holder, or the same one with a new epoch. `previous` is the last leader this node knew.
    LeaderChanged { previous: Option<NodeId>, new: NodeId, epoch: Epoch },
    /// Leadership ends at `deadline`, unless the lease is renewed.
    BecameLeader { epoch: Epoch, deadline: Time },
    /// `latency_ms` runs from sending the renewal to its confirmation.
    LeaseRenewed { epoch: Epoch, deadline: Time, latency_ms: u64 },
    /// 80 % of the hold is gone without a renewal: processes are wound down.
    LeaseAtRisk { epoch: Epoch, deadline: Time },
    /// A renewal got through after all: processes may run again.
    LeaseRecovered { epoch: Epoch },
    /// `vacated`: the seat was seen vacated, so the next leader does not have to wait.
    ///
    /// Nothing acts in the name of the epoch after `acted_until`. That is earlier than the event itself if the work had
    /// stopped before, or if the node was paused past its deadline; later if the work ignores the order to stop.
    LostLeadership { epoch: Epoch, reason: LossReason, vacated: bool, acted_until: Time },
    /// The seat cannot be read, or can no longer be claimed. It is left alone; nobody can lead until somebody repairs it.
    SeatUnreadable { problem: SeatProblem },
    /// The seat shows a lower epoch than one seen before: it was restored or overwritten by hand.
    EpochRegressed { seen: Epoch, found: Epoch },
    /// Somebody else writes this node's presence: two processes run under one node id.
    NodeConflict,
    /// Reported once, until the store answers again.
    StoreUnavailable,
    /// Reported once, until the store answers again.
    StoreDenied,
    /// Nothing has failed for a whole lease.
    StoreRecovered,
    /// The store ignores conditions on writes: this node will not take part.
    StoreUnsafe,
    /// Processes did not stop in time when leadership was given up, so the seat was not vacated.
    ProcessesStuck { epoch: Epoch },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElectionCause {
    /// The node started and found no leader.
    First,
    /// The leader vacated the seat, or the seat is gone.
    Vacant,
    LeaderDown,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossReason {
    Shutdown,
    /// The node was asked to hand over and continues as a standby.
    StepDown,
    LeaseExpired,
    Superseded,
    /// The store refused the renewals until the deadline.
    StoreDenied,
    /// The seat could not be read back until the deadline.
    SeatUnreadable,
    SeatGone,
    /// The leader's work was told to stop and did not.
    ProcessesStuck,
}

impl LossReason {
    /// The reason as it appears on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            LossReason::Shutdown => "shutdown",
            LossReason::StepDown => "step down",
            LossReason::LeaseExpired => "lease expired",
            LossReason::Superseded => "superseded",
            LossReason::StoreDenied => "store denied",
            LossReason::SeatUnreadable => "seat unreadable",
            LossReason::SeatGone => "seat gone",
            LossReason::ProcessesStuck => "processes stuck",
        }
    }
}
