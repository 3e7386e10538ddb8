//! A simulated node: the production core, and everything around it on its machine.

use crate::clock::Clock;
use std::collections::VecDeque;
use tenure_core::{
    Config, Coordinator, Epoch, FenceRule, Input, NodeId, Request, RequestId, SeatState, Time, Verdict,
    WakeToken,
};

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Checks whether the store honours conditions.
    Probe,
    /// Reads the seat.
    Read,
    /// Takes the seat.
    Claim,
    /// Renews the seat.
    Renew,
    /// Gives up the seat.
    Vacate,
    /// Writes the node's presence.
    Presence,
    /// Removes the node's presence.
    Leave,
    /// Lists the presences.
    List,
    /// A worker's heartbeat.
    Beat,
    /// Another request of a worker for its own object.
    Own,
    /// Lists the workers.
    Sweep,
    /// Reads or removes a worker's object as leader.
    Worker,
    /// Reads the snapshot.
    Snapshot,
    /// Writes the snapshot.
    Publish,
    /// Reads or writes a shard of the ledger.
    Ledger,
    /// Reads or writes an inbox as leader.
    Inbox,
    /// Lists the inboxes.
    Inboxes,
    /// Archives finished jobs.
    Archive,
    /// A worker looks at its inbox.
    Look,
    /// A worker writes its inbox.
    Hand,
}

impl Kind {
    /// The number of kinds.
    pub const COUNT: usize = 20;

    /// The kind of a request.
    pub fn of(request: &Request) -> Kind {
        match request {
            Request::Probe => Kind::Probe,
            Request::ReadSeat { .. } => Kind::Read,
            Request::WriteSeat { seat, .. } if seat.state == SeatState::Vacant => Kind::Vacate,
            Request::WriteSeat { seat, .. } if seat.renewals == 0 => Kind::Claim,
            Request::WriteSeat { .. } => Kind::Renew,
            Request::WritePresence { .. } => Kind::Presence,
            Request::RemovePresence => Kind::Leave,
            Request::ListNodes => Kind::List,
        }
    }

    /// Whether it concerns the seat.
    pub fn is_seat(self) -> bool {
        match self {
            Kind::Read | Kind::Claim | Kind::Renew | Kind::Vacate => true,
            Kind::Probe | Kind::Presence | Kind::Leave | Kind::List => false,
            Kind::Beat | Kind::Own | Kind::Sweep | Kind::Worker | Kind::Snapshot | Kind::Publish => false,
            Kind::Ledger | Kind::Inbox | Kind::Inboxes | Kind::Archive | Kind::Look | Kind::Hand => false,
        }
    }

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Probe => "probe",
            Kind::Read => "read",
            Kind::Claim => "claim",
            Kind::Renew => "renew",
            Kind::Vacate => "vacate",
            Kind::Presence => "presence",
            Kind::Leave => "leave",
            Kind::List => "list",
            Kind::Beat => "worker heartbeat",
            Kind::Own => "worker look",
            Kind::Sweep => "worker list",
            Kind::Worker => "worker object",
            Kind::Snapshot => "snapshot read",
            Kind::Publish => "snapshot write",
            Kind::Ledger => "ledger",
            Kind::Inbox => "inbox",
            Kind::Inboxes => "inbox list",
            Kind::Archive => "job archive",
            Kind::Look => "job look",
            Kind::Hand => "job write",
        }
    }
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    LoseRequest,
    LoseAnswer,
    Late(u64),
    Echo,
    Unavailable,
    UnknownLanded,
    UnknownNotLanded,
    Denied,
    StaleList,
    /// It takes this long to arrive, and this long to be answered.
    Slow(u64, u64),
}

/// How work behaves when it is told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Prompt,
    Slow,
    Stuck,
}

/// Work that runs on behalf of an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acting {
    pub(crate) epoch: Epoch,
    /// On the node's own clock.
    pub(crate) deadline: Time,
    pub(crate) told: bool,
    /// In true time.
    pub(crate) since: u64,
}

/// What a receiver of tasks knows, as in the library's fence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    pub(crate) known: Epoch,
    pub(crate) changed: Time,
}

impl Gate {
    pub(crate) fn observe(&mut self, epoch: Epoch, now: Time) {
        if epoch > self.known {
            (self.known, self.changed) = (epoch, now);
        }
    }

    /// Judges like the library's fence: a newer epoch is remembered, everything else follows the rule.
    pub(crate) fn judge(&mut self, rule: FenceRule, now: Time, task: Epoch, age_ms: Option<u64>) -> Verdict {
        self.observe(task, now);
        rule.judge(self.known, now.since(self.changed), task, age_ms)
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) core: Coordinator,
    pub(crate) config: Config,
    /// Identifies the node and its life: the incarnation.
    pub(crate) life: u64,
    pub(crate) alive: bool,
    pub(crate) paused: bool,
    pub(crate) cut_out: bool,
    pub(crate) cut_in: bool,
    pub(crate) work: Work,
    pub(crate) clock: Clock,
    pub(crate) last_jump: u64,
    /// The clock's rate while the machine is awake.
    pub(crate) awake_rate: u64,
    /// How far its wall clock is off.
    pub(crate) wall_off_ms: i64,
    /// Faults that wait for a matching request.
    pub(crate) faults: VecDeque<(Option<Kind>, Fate)>,
    /// How many requests in a thousand meet a fault.
    pub(crate) burst: u32,
    /// It dies after this many effects.
    pub(crate) crash_in: Option<u32>,
    pub(crate) held: Vec<Input>,
    pub(crate) acting: Option<Acting>,
    /// When its work last stopped acting, in true time; a crash does not count.
    pub(crate) ended: Option<u64>,
    pub(crate) wake: Option<(WakeToken, Time)>,
    pub(crate) outstanding: Vec<(RequestId, bool)>,
    pub(crate) sent: [u64; Kind::COUNT],
    pub(crate) gate: Gate,
    /// The highest epoch this incarnation has lost.
    pub(crate) lost: Epoch,
    /// It was asked to leave, and is not gone yet.
    pub(crate) stopping: bool,
    /// It takes part.
    pub(crate) running: bool,
    /// The current second, and the number of requests in it.
    pub(crate) second: (u64, u64),
}

impl Node {
    pub(crate) fn acts(&self, now: u64, unchecked: bool) -> bool {
        let in_time = |acting: &Acting| unchecked || self.clock.local(now) < acting.deadline;
        self.alive && self.acting.as_ref().is_some_and(in_time)
    }

    /// When its work stopped acting, in true time, as far as is known by now.
    pub(crate) fn acted_until(&self, now: u64) -> Option<u64> {
        match &self.acting {
            Some(acting) => self.clock.when(acting.deadline).map(|end| end.min(now)),
            None => self.ended,
        }
    }

    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.sent[kind as usize]
    }
}
