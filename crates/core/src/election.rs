//! The election: who leads a namespace. [`Coordinator`] is the machine; the other files are its phases, its record and its
//! parameters.

mod campaign;
mod config;
mod coordinator;
mod cycle;
mod event;
#[cfg(feature = "explore")]
mod explore;
mod figures;
mod io;
mod leader;
mod machine;
mod observe;
mod presence;
mod role;
mod seat;
mod standby;
mod startup;
#[cfg(feature = "explore")]
mod view;
mod watching;

pub use config::Config;
pub use coordinator::Coordinator;
pub use cycle::{Cycle, CycleTracker, Step};
pub use event::{ElectionCause, Event, LossReason};
#[cfg(feature = "explore")]
pub use explore::Renumber;
pub use figures::{
    ContentionWatch, ELECTION_BUCKETS_MS, ElectionDurations, ElectionTimer, HeartbeatLatencies,
};
pub use io::{
    Answer, Effect, Input, NodeEntry, NodesAnswer, ProbeAnswer, Request, RequestId, SeatAnswer, SeatProblem,
    StopCause, WakeToken, WriteAnswer,
};
pub use role::Role;
pub use seat::{Epoch, Expect, Lease, Seat, SeatState, Terms, Version};
#[cfg(feature = "explore")]
pub use view::{LeadView, SeenView, View};
