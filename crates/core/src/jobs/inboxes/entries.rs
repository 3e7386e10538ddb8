//! What the entries of an inbox tell about jobs, and which entries the jobs want there.

use super::super::dispatcher::View;
use super::super::ledger::Ledger;
use super::super::model::{
    Entry, EntryState, JOB_OBJECT_MAX_WEIGHT, JobState, Outcome, OutcomeKind, entry_weight,
};
use super::super::table::{Job, Place};
use super::inbox::Inbox;
use crate::id::WorkerId;
use crate::mutants::Mutant;

/// What an entry tells about its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::jobs) enum Report {
    Nothing,
    /// No job has this entry.
    Stray,
    /// The worker has claimed it, or runs it.
    Claimed(JobState),
    Ended(Outcome),
    /// An attempt that does not count any more has ended.
    Late(OutcomeKind),
}

/// Reads one entry. `job` is the one it names, if there is one.
pub(in crate::jobs) fn report(job: Option<&Job>, worker: &WorkerId, entry: &Entry) -> Report {
    let current = job.is_some_and(|job| job.is_current(worker, entry.dispatch));
    match &entry.state {
        EntryState::Dispatched if job.is_none() => Report::Stray,
        EntryState::Acked { .. } if current => Report::Claimed(JobState::Acked),
        EntryState::Running { .. } if current => Report::Claimed(JobState::Running),
        EntryState::Dispatched | EntryState::Acked { .. } | EntryState::Running { .. } => Report::Nothing,
        EntryState::Finished { outcome } => {
            let wrongly =
                Mutant::JobLateResultApplied.on() && job.is_some_and(|job| job.record().state.is_out());
            if current || wrongly {
                Report::Ended(outcome.clone())
            } else if job.is_some_and(|job| job.has_counted(worker, entry.dispatch)) {
                Report::Nothing
            } else {
                Report::Late(outcome.kind)
            }
        }
    }
}

/// The entries that an inbox should have.
#[derive(Default)]
pub(super) struct InboxChange {
    pub(super) entries: Vec<Entry>,
    /// Worth an immediate write.
    pub(super) urgent: bool,
    /// Recorded results leave the inbox: worth a write at some point.
    pub(super) recorded_results: bool,
    /// Results stay until the ledger on the store has them.
    pub(super) unrecorded: bool,
}

pub(super) fn wanted(view: &View<'_>, ledger: &Ledger, worker: &WorkerId, inbox: &Inbox) -> InboxChange {
    let mut change = InboxChange::default();
    for entry in inbox.entries() {
        keep(view, ledger, worker, entry, &mut change);
    }
    if inbox.refuses_jobs() || view.workers.gone_since(worker).is_some() {
        return change;
    }
    let mut weight: usize = change.entries.iter().map(Entry::weight).sum();
    let new = |job: &&Job| {
        let wanted = job.record().state == JobState::Dispatched && job.withdraw().is_none();
        let recorded = job.is_confirmed(ledger) || Mutant::JobDispatchedUnrecorded.on();
        let takes = inbox.takes(job.record());
        wanted && recorded && takes && inbox.entry(&job.record().id, job.record().dispatch).is_none()
    };
    let mut new: Vec<&Job> = view.table.out_at(worker).filter(new).collect();
    new.sort_by_cached_key(|job| Place::of(job.record()));
    for job in new {
        let record = job.record();
        let room = change.entries.len() < view.config.entries_max
            && weight + entry_weight(record.payload.len()) <= JOB_OBJECT_MAX_WEIGHT;
        if !room {
            continue;
        }
        let entry = entry_of(view, job);
        weight += entry.weight();
        change.entries.push(entry);
        change.urgent = true;
    }
    change
}

fn entry_of(view: &View<'_>, job: &Job) -> Entry {
    let record = job.record();
    Entry {
        id: record.id.clone(),
        dispatch: record.dispatch,
        attempt: record.begun(),
        epoch: view.config.epoch,
        dispatched_at: view.wall_ms,
        queue: record.queue.clone(),
        kind: record.kind.clone(),
        payload: record.payload.clone(),
        timeout_ms: record.limits.timeout_ms,
        state: EntryState::Dispatched,
        cancel: false,
        progress: None,
    }
}

/// Decides what happens to an existing entry.
fn keep(view: &View<'_>, ledger: &Ledger, worker: &WorkerId, entry: &Entry, change: &mut InboxChange) {
    let job = view.table.get(&entry.id);
    let current = job.is_some_and(|job| job.is_current(worker, entry.dispatch));
    // While a shard cannot be read, an unknown entry may belong to that shard.
    let nobodys = job.is_none() && ledger.blocked() == 0;
    let mut entry = entry.clone();
    match entry.state {
        EntryState::Finished { .. } => {
            let recorded = job.is_some_and(|job| job.is_confirmed(ledger)) && !current;
            if recorded || nobodys || Mutant::JobResultDropped.on() {
                change.recorded_results = true;
                change.urgent |= Mutant::JobResultDropped.on();
                return;
            }
            change.unrecorded = true;
        }
        EntryState::Dispatched => {
            let wanted = current && job.is_some_and(|job| job.withdraw().is_none());
            if !wanted && (job.is_some() || nobodys) {
                change.urgent = true;
                return;
            }
            if wanted && entry.epoch != view.config.epoch {
                (entry.epoch, entry.dispatched_at) = (view.config.epoch, view.wall_ms);
                change.urgent = true;
            }
        }
        // Kept even if its worker is gone: removing it would hide that work was done. Its late result is recorded.
        EntryState::Acked { .. } | EntryState::Running { .. } => {
            let unwanted = job.is_some_and(|job| job.record().cancel || !current);
            if unwanted && !entry.cancel {
                entry.cancel = true;
                change.urgent = true;
            }
        }
    }
    change.entries.push(entry);
}
