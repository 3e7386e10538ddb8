//! What a node knows of the workers, from published snapshots only.
//!
//! Leaders and followers alike find out what happened by comparing a published snapshot with the previous one. A judgement
//! that was never published has not happened, so a silence is reported once even if the leader changes.

use super::{Listing, Snapshot, SnapshotEntry, SnapshotId, WorkerChange, WorkerDetails, WorkerEvent};
use crate::id::WorkerId;

use crate::mutants::Mutant;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct KnownWorkers {
    /// The newest snapshot applied; `None` before the first.
    applied: Option<SnapshotId>,
    workers: BTreeMap<WorkerId, KnownWorker>,
    active: u64,
    inactive: u64,
    skipped: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KnownWorker {
    pub details: WorkerDetails,
    pub active: bool,
    silence: Option<SnapshotId>,
}

impl KnownWorkers {
    /// Call this if nothing was ever published: then everything that follows is news. Otherwise the first snapshot is taken
    /// as given, and its old silences are not reported.
    pub fn begin_empty(&mut self) {
        self.applied.get_or_insert_default();
    }

    /// Takes a snapshot and returns what happened. Ignores a snapshot that is not newer than the newest one applied.
    pub fn apply(&mut self, snapshot: &Snapshot) -> Vec<WorkerEvent> {
        let baseline = self.applied.is_none();
        if self.applied.is_some_and(|applied| snapshot.id <= applied) {
            return Vec::new();
        }
        let upto = self.applied.replace(snapshot.id);
        (self.active, self.inactive) = (snapshot.active, snapshot.inactive);
        self.skipped = snapshot.skipped;
        let mut events = Vec::new();
        let mut before = std::mem::take(&mut self.workers);
        for entry in &snapshot.workers {
            let known = before.remove(&entry.worker);
            if !baseline {
                let again = Mutant::WorkerTimeoutToldAgain.on() && !entry.active;
                let (known, upto) = if again { (None, None) } else { (known.as_ref(), upto) };
                differences(entry, known, upto, &mut events);
            }
            let SnapshotEntry { worker, details, active, silence } = entry.clone();
            self.workers.insert(worker, KnownWorker { details, active, silence });
        }
        for (worker, mut known) in before {
            match snapshot.listing {
                Listing::All => events.push(event(&worker, &known.details, WorkerChange::Deregistered)),
                Listing::Inactive => {
                    // It may also be gone; the next complete snapshot tells.
                    if !known.active {
                        known.active = true;
                        events.push(event(&worker, &known.details, WorkerChange::Recovered));
                    }
                    self.workers.insert(worker, known);
                }
                Listing::Cut => {
                    self.workers.insert(worker, known);
                }
            }
        }
        events
    }

    /// The newest snapshot applied; `None` before the first.
    pub fn applied(&self) -> Option<SnapshotId> {
        self.applied
    }

    /// In id order.
    pub fn workers(&self) -> impl Iterator<Item = (&WorkerId, &KnownWorker)> {
        self.workers.iter()
    }

    /// How many workers are active and how many are not, by the snapshot's own count.
    pub fn counts(&self) -> (u64, u64) {
        (self.active, self.inactive)
    }

    /// Objects in `workers/` that are not workers.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

fn event(worker: &WorkerId, details: &WorkerDetails, change: WorkerChange) -> WorkerEvent {
    WorkerEvent { worker: worker.clone(), details: details.clone(), change }
}

/// A silence is named by the snapshot that first reported it. If a worker unknown here has a silence that is not newer than
/// what was applied, that silence was reported before the worker disappeared for a while, because of a late snapshot.
fn differences(
    entry: &SnapshotEntry,
    known: Option<&KnownWorker>,
    upto: Option<SnapshotId>,
    events: &mut Vec<WorkerEvent>,
) {
    let mut say = |change| events.push(event(&entry.worker, &entry.details, change));
    let (was_active, was_silence) = match known {
        Some(known) => (known.active, known.silence),
        None => {
            say(WorkerChange::Registered);
            match entry.silence.filter(|silence| Some(*silence) <= upto) {
                Some(old) => (entry.active, Some(old)),
                None => (true, None),
            }
        }
    };
    let another_silence = entry.silence.is_some() && entry.silence != was_silence;
    let told_again = another_silence || was_active && !entry.active;
    if told_again {
        if !was_active {
            say(WorkerChange::Recovered); // in a snapshot that was missed
        }
        say(WorkerChange::Timeout);
    }
    if entry.active && (told_again || !was_active) {
        say(WorkerChange::Recovered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::Epoch;
    use crate::id::{NodeId, PluginName};
    use WorkerChange::{Deregistered, Recovered, Registered, Timeout};

    fn snapshot_id(epoch: u64, sequence: u64) -> SnapshotId {
        SnapshotId { epoch: Epoch(epoch), sequence }
    }

    fn id(text: &str) -> WorkerId {
        WorkerId::new(text).expect("valid")
    }

    fn entry(worker: &str, active: bool, silence: Option<SnapshotId>) -> SnapshotEntry {
        let details = WorkerDetails {
            plugin_type: PluginName::new("queue").expect("valid"),
            pod: NodeId::new("pod-x").expect("valid"),
            timeout_ms: 20_000,
        };
        SnapshotEntry { worker: id(worker), details, active, silence }
    }

    fn snapshot(id: SnapshotId, workers: Vec<SnapshotEntry>) -> Snapshot {
        let active = workers.iter().filter(|worker| worker.active).count() as u64;
        let inactive = workers.len() as u64 - active;
        Snapshot { id, workers, active, inactive, ..Snapshot::default() }
    }

    fn changes(events: &[WorkerEvent]) -> Vec<(&str, WorkerChange)> {
        events.iter().map(|event| (event.worker.as_str(), event.change)).collect()
    }

    #[test]
    fn the_first_snapshot_is_a_baseline_unless_there_was_none_before() {
        let old = snapshot(
            snapshot_id(1, 4),
            vec![entry("a", false, Some(snapshot_id(1, 2))), entry("b", true, None)],
        );
        let mut late = KnownWorkers::default();
        assert!(late.apply(&old).is_empty());
        assert_eq!((late.counts(), late.workers().count()), ((1, 1), 2));
        let two = vec![entry("b", true, None), entry("c", true, None)];
        late.apply(&Snapshot { skipped: 7, ..snapshot(snapshot_id(1, 5), two) });
        assert_eq!((late.counts(), late.skipped()), ((2, 0), 7));
        let mut early = KnownWorkers::default();
        early.begin_empty();
        assert_eq!(changes(&early.apply(&old)), [("a", Registered), ("a", Timeout), ("b", Registered)]);
        early.begin_empty();
        assert_eq!(early.applied(), Some(snapshot_id(1, 4)), "begun already");
    }

    #[test]
    fn older_snapshots_are_ignored() {
        let mut known_workers = KnownWorkers::default();
        known_workers.begin_empty();
        known_workers.apply(&snapshot(snapshot_id(2, 5), vec![entry("a", true, None)]));
        for older in [snapshot_id(1, 99), snapshot_id(2, 4), snapshot_id(2, 5)] {
            assert!(known_workers.apply(&snapshot(older, vec![])).is_empty(), "{older:?}");
            assert_eq!(known_workers.workers().count(), 1);
        }
        let gone = known_workers.apply(&snapshot(snapshot_id(3, 1), vec![]));
        assert_eq!(changes(&gone), [("a", Deregistered)]);
    }

    #[test]
    fn every_silence_is_told_once_although_snapshots_are_missed() {
        let (first, second) = (Some(snapshot_id(1, 2)), Some(snapshot_id(1, 4)));
        for (from, to, told) in [
            ((true, None), (false, first), vec![Timeout]),
            ((false, first), (false, first), vec![]),
            ((false, first), (true, first), vec![Recovered]),
            ((true, first), (true, first), vec![]),
            ((false, first), (false, second), vec![Recovered, Timeout]),
            ((true, first), (false, second), vec![Timeout]),
            ((true, None), (true, first), vec![Timeout, Recovered]),
            ((false, first), (true, second), vec![Recovered, Timeout, Recovered]),
        ] {
            let mut known_workers = KnownWorkers::default();
            known_workers.apply(&snapshot(snapshot_id(1, 3), vec![entry("a", from.0, from.1)]));
            let events = known_workers.apply(&snapshot(snapshot_id(1, 9), vec![entry("a", to.0, to.1)]));
            let said: Vec<_> = events.iter().map(|event| event.change).collect();
            assert_eq!(said, told, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn a_silence_from_before_what_was_applied_is_not_told_of_somebody_new() {
        for (active, silence, told) in [
            (true, snapshot_id(1, 2), vec![Registered]),
            (false, snapshot_id(1, 2), vec![Registered]),
            (true, snapshot_id(3, 1), vec![Registered]),
            (true, snapshot_id(4, 1), vec![Registered, Timeout, Recovered]),
            (false, snapshot_id(4, 2), vec![Registered, Timeout]),
        ] {
            let mut known_workers = KnownWorkers::default();
            known_workers.begin_empty();
            known_workers
                .apply(&snapshot(snapshot_id(1, 2), vec![entry("a", false, Some(snapshot_id(1, 2)))]));
            // A late snapshot of a leader that did not see it: the worker is gone, and comes back with its past.
            known_workers.apply(&snapshot(snapshot_id(3, 1), vec![]));
            let events =
                known_workers.apply(&snapshot(snapshot_id(4, 2), vec![entry("a", active, Some(silence))]));
            let said: Vec<_> = events.iter().map(|event| event.change).collect();
            assert_eq!(said, told, "{active} {silence:?}");
        }
    }

    #[test]
    fn a_snapshot_that_lists_less_takes_nobody_away() {
        let mut known_workers = KnownWorkers::default();
        let all = vec![entry("a", true, None), entry("b", false, Some(snapshot_id(1, 1)))];
        known_workers.apply(&snapshot(snapshot_id(1, 1), all));
        let cut = Snapshot { listing: Listing::Cut, ..snapshot(snapshot_id(1, 2), vec![]) };
        assert!(known_workers.apply(&cut).is_empty());
        let inactive = Snapshot { listing: Listing::Inactive, ..snapshot(snapshot_id(1, 3), vec![]) };
        assert_eq!(changes(&known_workers.apply(&inactive)), [("b", Recovered)]);
        assert_eq!(known_workers.workers().count(), 2);
    }
}
