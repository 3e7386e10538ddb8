//! What a claimer writes: claims and results.

use super::super::{Entry, EntryState, InboxDoc, Outcome, OutcomeKind};
use super::{Claimer, Phase};
use crate::document::State;
use crate::mutants::Mutant;
use crate::time::Time;
use std::sync::Arc;

impl Claimer {
    /// The inbox to write, if it is worth a write now: claims at once, results together.
    pub(super) fn plan(&mut self, now: Time) -> Option<InboxDoc> {
        let doc = match self.doc() {
            Some(doc) => doc.clone(),
            // The first thing it does is to say which jobs it takes.
            None if self.document.state() == State::Found && !self.draining => InboxDoc::default(),
            None => return None,
        };
        let me = self.config.incarnation;
        let (mut claims, mut running) = (self.runs.len(), self.running());
        let closed = self.draining.then_some(me);
        let serves = match self.draining {
            true => doc.serves.clone(),
            false => Some((me, Arc::clone(&self.config.serves))),
        };
        // If the leader learns of it at once, it dispatches nothing here in vain.
        let mut claimed = doc.closed != closed || doc.serves != serves;
        let mut entries = doc.entries;
        let mut duplicates = 0;
        let mut abandoned = 0;
        for entry in &mut entries {
            let key = entry.key();
            match &entry.state {
                EntryState::Dispatched => {
                    if let Some((_, outcome)) = self.remembered.iter().find(|(known, _)| *known == key) {
                        duplicates += 1;
                        finish(entry, outcome.clone());
                        claimed = true;
                    } else if self.is_refused(entry) {
                        // From an epoch that is over: the next leader decides what happens to it.
                    } else if self.draining {
                        finish(entry, Outcome::bare(OutcomeKind::Returned));
                        claimed = true;
                    } else if !self.serves(entry) && !Mutant::JobUnservedIsRun.on() {
                        // A former life took such jobs.
                        finish(entry, Outcome::bare(OutcomeKind::Returned));
                        claimed = true;
                    } else if claims < self.config.serves.slots as usize {
                        let now_running = running < self.config.concurrency;
                        entry.state = match now_running {
                            true => EntryState::Running { by: me },
                            false => EntryState::Acked { by: me },
                        };
                        running += usize::from(now_running);
                        claims += 1;
                        claimed = true;
                    }
                }
                EntryState::Acked { by } | EntryState::Running { by } if *by == me => {
                    let run = self.runs.get(&key);
                    match run.map(|run| &run.phase) {
                        Some(Phase::Done { outcome, .. }) => finish(entry, outcome.clone()),
                        Some(Phase::Running { .. }) => {
                            entry.state = EntryState::Running { by: me };
                            entry.progress = run.and_then(|run| run.progress.clone());
                        }
                        Some(Phase::Waiting) | None => {}
                    }
                }
                EntryState::Acked { .. } | EntryState::Running { .. } => {
                    // Claimed by a life confirmed to be a former one. It is unknown whether it ran, so it is not run again
                    // here.
                    if !Mutant::JobClaimInherited.on() {
                        abandoned += 1;
                        finish(entry, Outcome::bare(OutcomeKind::Abandoned));
                        claimed = true;
                    }
                }
                EntryState::Finished { .. } => {}
            }
        }
        let first_done = self.runs.values().filter_map(|run| match run.phase {
            Phase::Done { since, .. } => Some(since),
            Phase::Waiting | Phase::Running { .. } => None,
        });
        let idle = self.runs.values().all(|run| matches!(run.phase, Phase::Done { .. }));
        let results = first_done.min().is_some_and(|at| idle || now.since(at) >= self.config.linger_ms);
        let progress = self.progress_due.is_some_and(|at| now >= at);
        if !claimed && !results && !progress {
            return None;
        }
        if self.progress_due.take().is_some() {
            self.progress_at = Some(now);
        }
        self.counts.duplicates += duplicates;
        self.counts.abandoned += abandoned;
        Some(InboxDoc { serves, closed, entries })
    }

    fn serves(&self, entry: &Entry) -> bool {
        let serves = &self.config.serves;
        serves.takes_queue(&entry.queue) && serves.takes_kind(&entry.kind)
    }
}

fn finish(entry: &mut Entry, outcome: Outcome) {
    (entry.payload, entry.progress) = (Arc::from([]), None);
    entry.state = EntryState::Finished { outcome };
}
