//! Facts stated by the core. The driver adds names, a namespace and a wall-clock time, and counts them.

use crate::election::io::SeatProblem;
use crate::election::seat::Epoch;
use crate::id::NodeId;
use crate::time::Time;

/// Something that happened, for people and programs that watch. Nothing in the protocol depends on events.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// This node is not eligible: it only watches.
    Ineligible,
    /// The startup wait has begun.
    JitterStarted {
        /// The length of the wait.
        wait_ms: u64,
    },
    /// The node is known to the others (presence written, seat read).
    Joined,
    /// The seat is free and this node waits for its turn to claim it.
    AwaitingTurn {
        /// When this node's turn comes at the earliest.
        ready_at: Time,
    },
    /// This node is trying to claim the seat.
    ElectionStarted {
        /// Why an election takes place.
        cause: ElectionCause,
    },
    /// A standby looked at the seat.
    ElectionCheck {
        /// The holder of the seat; `None` if the seat is vacant, absent or unreadable.
        leader: Option<NodeId>,
        /// How long the seat has been unchanged.
        unchanged_ms: u64,
    },
    /// The leader has not renewed for a whole expiry.
    LeaderDown {
        /// The silent leader.
        leader: NodeId,
        /// Its epoch.
        epoch: Epoch,
        /// How long the seat has been unchanged, as far as this node can tell.
        unchanged_ms: u64,
    },
    /// The leader that seemed down renewed after all; no takeover.
    LeaderRecovered {
        /// The leader that came back.
        leader: NodeId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// There is another holder, or the same one with a new epoch.
    LeaderChanged {
        /// The last leader this node knew.
        previous: Option<NodeId>,
        /// The leader now.
        new: NodeId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// This node now leads.
    BecameLeader {
        /// The epoch it leads with.
        epoch: Epoch,
        /// When leadership ends, unless the lease is renewed.
        deadline: Time,
    },
    /// A renewal was confirmed.
    LeaseRenewed {
        /// The epoch this node leads with.
        epoch: Epoch,
        /// The new deadline.
        deadline: Time,
        /// From sending the renewal to its confirmation.
        latency_ms: u64,
    },
    /// 80 % of the hold is gone without a renewal: processes are wound down.
    LeaseAtRisk {
        /// The epoch this node leads with.
        epoch: Epoch,
        /// When leadership ends, unless a renewal gets through.
        deadline: Time,
    },
    /// A renewal got through after all: processes may run again.
    LeaseRecovered {
        /// The epoch this node leads with.
        epoch: Epoch,
    },
    /// This node no longer leads.
    LostLeadership {
        /// The epoch it led with.
        epoch: Epoch,
        /// What ended the leadership.
        reason: LossReason,
        /// Whether the seat was seen vacated, so that the next leader does not have to wait.
        vacated: bool,
        /// Nothing acts in the name of the epoch after this. Earlier than the event itself if the work had stopped before,
        /// or if the node was paused past its deadline; later if the work ignores the order to stop.
        acted_until: Time,
    },
    /// The seat cannot be read, or can no longer be claimed. It is left alone; nobody can lead until somebody repairs it.
    SeatUnreadable {
        /// What is wrong with it.
        problem: SeatProblem,
    },
    /// The seat shows a lower epoch than one seen before: it was restored or overwritten by hand.
    EpochRegressed {
        /// The highest epoch seen.
        seen: Epoch,
        /// The epoch found.
        found: Epoch,
    },
    /// Somebody else writes this node's presence: two processes run under one node id.
    NodeConflict,
    /// The store did not answer. Reported once, until it answers again.
    StoreUnavailable,
    /// The store refuses. Reported once, until it answers again.
    StoreDenied,
    /// The store answers again.
    StoreRecovered,
    /// The store ignores conditions on writes: this node will not take part.
    StoreUnsafe,
    /// Processes did not stop in time when leadership was given up, so the seat was not vacated.
    ProcessesStuck {
        /// The epoch they ran under.
        epoch: Epoch,
    },
}

/// Why an election takes place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElectionCause {
    /// The node started and found no leader.
    First,
    /// The leader vacated the seat, or the seat is gone.
    Vacant,
    /// The leader went silent.
    LeaderDown,
}

/// Why leadership ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossReason {
    /// The node was asked to stop.
    Shutdown,
    /// The node was asked to hand over and continues as a standby.
    StepDown,
    /// No renewal was confirmed before the deadline.
    LeaseExpired,
    /// The seat shows another holder.
    Superseded,
    /// The store refused the renewals until the deadline.
    StoreDenied,
    /// The seat could not be read back until the deadline.
    SeatUnreadable,
    /// The seat was deleted under the leader.
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
