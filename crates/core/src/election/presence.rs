//! Presence: how a node shows the others that it is there to be ranked. It decides only who tries when.

use crate::election::coordinator::{Coordinator, Phase};
use crate::election::event::Event;
use crate::election::io::{Effect, Request, RequestId, WriteAnswer};
use crate::election::seat::Version;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Presence {
    /// When the next write is due; `None` while the node does not take part.
    pub(crate) due: Option<Time>,
    /// The cadence the due times follow, so that a slow write does not shift the next one.
    pub(crate) beat: Time,
    pub(crate) flight: Option<RequestId>,
    pub(crate) version: Option<Version>,
    pub(crate) confirmed: Option<Time>,
    pub(crate) sent: bool,
    pub(crate) failures: u32,
}

impl Presence {
    /// When this node's presence was last known to be on the store.
    pub(crate) fn confirmed(&self) -> Option<Time> {
        self.confirmed
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether a presence may be on the store.
    pub(crate) fn is_written(&self) -> bool {
        self.sent
    }
}

impl Coordinator {
    pub(crate) fn begin_presence(&mut self) {
        self.presence.beat = self.now;
        self.presence.due = Some(self.now);
    }

    /// The list did not show this node: somebody removed its presence, so the node writes it again at once.
    pub(crate) fn presence_missing(&mut self) {
        self.presence.version = None;
        self.presence.due = Some(self.now);
    }

    pub(crate) fn presence_due(&self) -> Option<Time> {
        self.presence.due.filter(|_| self.presence.flight.is_none())
    }

    pub(crate) fn advance_presence(&mut self, out: &mut Vec<Effect>) {
        let leaving = matches!(self.phase, Phase::Idle | Phase::Leaving { .. }) || self.stop_by.is_some();
        let Some(due) = self.presence_due().filter(|_| !leaving) else { return };
        if self.now < due {
            return;
        }
        while self.presence.beat <= self.now {
            self.presence.beat = self.presence.beat + self.config.presence_ms.max(1);
        }
        let nonce = self.nonce();
        let expect = self.presence.version.clone();
        let id = self.request(Request::WritePresence { nonce, expect }, out);
        self.presence.flight = Some(id);
        self.presence.sent = true;
    }

    pub(crate) fn on_presence_written(&mut self, id: RequestId, answer: WriteAnswer, out: &mut Vec<Effect>) {
        if self.presence.flight != Some(id) {
            return;
        }
        self.presence.flight = None;
        self.note_write(&answer, out);
        self.presence.due = Some(match answer {
            WriteAnswer::Won(version) => {
                self.presence.version = Some(version);
                self.presence.confirmed = Some(self.now);
                self.presence.failures = 0;
                self.presence.beat
            }
            WriteAnswer::Lost => {
                // Somebody else changed this node's own object. The object is this node's, so it is simply written again;
                // but an operator who runs two processes under one id should hear of it.
                self.presence.version = None;
                out.push(Effect::Emit(Event::NodeConflict));
                self.now
            }
            WriteAnswer::Unknown => {
                // It may have landed, which makes the known version stale: do not take that for a conflict.
                self.presence.version = None;
                self.presence_retry()
            }
            WriteAnswer::Unavailable | WriteAnswer::Denied => self.presence_retry(),
        });
    }

    fn presence_retry(&mut self) -> Time {
        let delay_ms =
            self.config.backoff_ms(self.config.heartbeat_ms, self.presence.failures, self.config.presence_ms);
        self.presence.failures += 1;
        self.now + delay_ms
    }
}
