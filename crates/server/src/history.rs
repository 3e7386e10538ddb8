//! What the events of the node tell about the past: who led, and since when the store does not answer.

use serde::Serialize;
use std::collections::VecDeque;
use tenure::Event;
use tenure::event::EventKind;
use utoipa::ToSchema;

/// Most terms kept.
const TERMS: usize = 100;

/// The reason of a term whose leader fell silent.
const SILENT: &str = "silent";

/// One term of a leader, as this process saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeenTerm {
    /// The epoch.
    pub epoch: u64,
    /// Who led.
    pub node: String,
    /// When this process learned of it.
    pub from: String,
    /// When this process learned that it was over; none while it goes on.
    pub until: Option<String>,
    /// Why it ended, as far as this process knows: only the leader itself knows it exactly.
    pub reason: Option<String>,
}

/// Why the store is of no use to the node, and since when.
#[derive(Clone, Debug)]
pub(crate) struct StoreTrouble {
    pub(crate) since: String,
    pub(crate) detail: String,
}

/// The terms, oldest first, and what is wrong with the store.
#[derive(Clone, Default, Debug)]
pub(crate) struct History {
    pub(crate) terms: VecDeque<SeenTerm>,
    pub(crate) store_trouble: Option<StoreTrouble>,
}

impl History {
    pub(crate) fn take(&mut self, event: &Event) {
        let time = format!("{:.3}", event.time);
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the enum grows, and most events say nothing of terms"
        )]
        match &event.kind {
            EventKind::LeaderChanged { new, .. } => self.begin(event.epoch, new.as_str(), time),
            // The leader itself emits both events, in either order.
            EventKind::BecameLeader { .. } => self.begin(event.epoch, event.node.as_str(), time),
            EventKind::LostLeadership { reason, .. } => {
                if let Some(term) = self.terms.iter_mut().find(|term| term.epoch == event.epoch) {
                    term.until.get_or_insert(time);
                    term.reason = Some(reason.as_str().to_owned());
                }
            }
            EventKind::LeaderDown { leader, .. } => self.silent(leader.as_str(), Some(time)),
            EventKind::LeaderRecovered { leader } => self.silent(leader.as_str(), None),
            EventKind::StoreUnavailable { detail } | EventKind::StoreDenied { detail } => {
                let since = self.store_trouble.take().map_or(time, |before| before.since);
                self.store_trouble = Some(StoreTrouble { since, detail: detail.clone() });
            }
            EventKind::StoreRecovered => self.store_trouble = None,
            _ => {}
        }
    }

    fn begin(&mut self, epoch: u64, node: &str, time: String) {
        if self.terms.back().is_some_and(|last| last.epoch >= epoch) {
            return;
        }
        if let Some(last) = self.terms.back_mut() {
            last.until.get_or_insert(time.clone());
        }
        self.terms.push_back(SeenTerm {
            epoch,
            node: node.to_owned(),
            from: time,
            until: None,
            reason: None,
        });
        if self.terms.len() > TERMS {
            self.terms.pop_front();
        }
    }

    /// The leader of the last term has fallen silent, or has turned up again.
    fn silent(&mut self, node: &str, since: Option<String>) {
        let known = |last: &&mut SeenTerm| {
            last.node == node && (last.until.is_none() || last.reason.as_deref() == Some(SILENT))
        };
        if let Some(last) = self.terms.back_mut().filter(known) {
            last.reason = since.is_some().then(|| SILENT.to_owned());
            last.until = since;
        }
    }

    /// When this process learned of this epoch.
    pub(crate) fn since(&self, epoch: u64) -> Option<&str> {
        self.terms.iter().rev().find(|term| term.epoch == epoch).map(|term| term.from.as_str())
    }
}
