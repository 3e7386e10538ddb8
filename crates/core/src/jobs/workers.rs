//! The workers as the registry last reported them; see [`DispatchCommand::Workers`](super::DispatchCommand::Workers).

use crate::id::WorkerId;
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Workers {
    /// Whether each worker is active; `None` before the first report.
    list: Option<BTreeMap<WorkerId, bool>>,
    listed: bool,
    whole: bool,
    gone_since: BTreeMap<WorkerId, Time>,
}

impl Workers {
    /// Takes a report, and returns the workers of the one before.
    pub(super) fn report(
        &mut self,
        list: BTreeMap<WorkerId, bool>,
        listed: bool,
        whole: bool,
    ) -> BTreeMap<WorkerId, bool> {
        self.listed = listed || Mutant::JobWorkersNotListed.on();
        self.whole = whole;
        self.list.replace(list).unwrap_or_default()
    }

    pub(super) fn are_known(&self) -> bool {
        self.list.is_some()
    }

    pub(super) fn is_active(&self, worker: &WorkerId) -> bool {
        self.list.as_ref().is_some_and(|list| list.get(worker) == Some(&true))
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &WorkerId> {
        let all = self.list.iter().flatten();
        all.filter(|(_, active)| **active).map(|(worker, _)| worker)
    }

    /// Whether the registry does not know the worker any more.
    pub(super) fn is_unheard_of(&self, worker: &WorkerId) -> bool {
        self.listed && self.whole && self.list.as_ref().is_some_and(|list| !list.contains_key(worker))
    }

    /// Since when the registry has called the worker silent, or has not known it.
    pub(super) fn gone_since(&self, worker: &WorkerId) -> Option<Time> {
        self.gone_since.get(worker).copied()
    }

    /// Updates who is gone, among the workers of the last report and those that have an inbox. Returns for whom that changed.
    pub(super) fn note_gone<'a>(
        &'a mut self,
        now: Time,
        with_inbox: impl Iterator<Item = &'a WorkerId>,
    ) -> BTreeSet<WorkerId> {
        let Some(list) = &self.list else { return BTreeSet::new() };
        let gone = |worker: &WorkerId| self.listed && list.get(worker).map_or(self.whole, |active| !active);
        let all = with_inbox.chain(list.keys());
        let changed = all.filter(|worker| gone(worker) != self.gone_since.contains_key(*worker));
        let changed: BTreeSet<WorkerId> = changed.cloned().collect();
        for worker in &changed {
            if self.gone_since.remove(worker).is_none() {
                self.gone_since.insert(worker.clone(), now);
            }
        }
        changed
    }

    /// Forgets workers that are neither in the last report nor have an inbox.
    pub(super) fn forget_gone(&mut self, has_inbox: impl Fn(&WorkerId) -> bool) {
        let list = self.list.as_ref();
        let listed = |worker: &WorkerId| list.is_some_and(|list| list.contains_key(worker));
        self.gone_since.retain(|worker, _| listed(worker) || has_inbox(worker));
    }
}
