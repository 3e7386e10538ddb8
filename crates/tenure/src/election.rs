//! The election of one node: what runs the core's coordinator, and what it gives to everybody else.

pub(crate) mod codec;
mod host;
mod seat_reader;
mod store;

pub(crate) use host::ElectionHost;
pub(crate) use seat_reader::SeatReader;
pub(crate) use store::SeatClient;

use crate::clock::Clock;
use crate::event::{Event, EventKind};
use crate::fence::Fence;
use crate::guard::Leadership;
use crate::metrics::Counters;
use crate::telemetry;
use std::sync::Arc;
use tokio::sync::{broadcast, oneshot, watch};

/// Requests from the handle to the election.
#[derive(Debug)]
pub(crate) enum Command {
    StepDown(oneshot::Sender<bool>),
    /// Like `StepDown`, but also claim nothing for this many milliseconds.
    StandAside(u64, oneshot::Sender<bool>),
    /// Claim above this epoch from now on.
    Raise(u64),
    Stop,
}

/// Who emits events, and where they go.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    pub(crate) namespace: Arc<str>,
    pub(crate) node: tenure_core::NodeId,
    pub(crate) prefix: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) counters: Arc<Counters>,
}

impl Reporter {
    pub(crate) fn emit(&self, epoch: u64, kind: EventKind) {
        self.counters.count(epoch, &kind);
        let event = Event {
            namespace: Arc::clone(&self.namespace),
            node: self.node.clone(),
            epoch,
            time: jiff::Timestamp::now(),
            boot_ms: self.clock.now_ms(),
            plugins: self.counters.plugins(),
            prefix: Arc::clone(&self.prefix),
            kind,
        };
        telemetry::log(&event);
        // It is fine if nobody reads.
        let _ = self.events.send(event);
    }
}

/// Where events and leadership go. Outlives each life of the candidate. Only the election holds it: once it is gone, whoever
/// waits for leadership learns that there will be none.
#[derive(Clone)]
pub(crate) struct ElectionOutputs {
    pub(crate) reporter: Reporter,
    pub(crate) leadership: watch::Sender<Leadership>,
    pub(crate) fence: Fence,
    #[cfg(feature = "explore")]
    pub(crate) watcher: Option<crate::watcher::Watcher>,
}

impl std::ops::Deref for ElectionOutputs {
    type Target = Reporter;

    fn deref(&self) -> &Reporter {
        &self.reporter
    }
}
