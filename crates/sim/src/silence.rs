//! The truth about workers: every change of their objects, every reported silence, and who reported it.

use crate::check::name;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::WorkerId;
use tenure_core::document::Stamp;
use tenure_core::{Snapshot, SnapshotId, Time, WorkerChange, WorkerEvent};

/// How long an object that is not a worker is not read again, on the leader's clock.
pub(crate) const READ_AGAIN_MS: u64 = 60_000;

/// The truth about workers.
#[derive(Default)]
pub(crate) struct Watch {
    /// Every time each object changed, whoever changed it.
    changes: BTreeMap<WorkerId, Vec<u64>>,
    writers: BTreeSet<(WorkerId, u64)>,
    /// For every judgement, the change after which the worker was silent.
    judged: BTreeMap<(WorkerId, SnapshotId), u64>,
    /// The silence that was published last.
    published: BTreeMap<WorkerId, (SnapshotId, u64)>,
    /// What each desk has reported.
    told: BTreeSet<(u64, WorkerId, SnapshotId)>,
    told_last: BTreeMap<(u64, WorkerId), u64>,
    spoiled_at: Option<u64>,
    /// Reported silences, over all nodes.
    pub(crate) timeouts: u64,
}

impl Watch {
    pub(crate) fn changed(&mut self, worker: &WorkerId, now: u64) {
        self.changes.entry(worker.clone()).or_default().push(now);
    }

    pub(crate) fn wrote(&self, worker: &WorkerId, life: u64) -> bool {
        self.writers.contains(&(worker.clone(), life))
    }

    fn last_change(&self, worker: &WorkerId, until: u64) -> u64 {
        let changes = self.changes.get(worker).map_or(&[][..], Vec::as_slice);
        changes.iter().rev().find(|at| **at < until).copied().unwrap_or(0)
    }

    /// The snapshot was spoiled: silences that began earlier are forgotten, and may be reported again.
    pub(crate) fn spoiled(&mut self, now: u64) {
        self.spoiled_at = Some(now);
    }

    fn forgotten(&self, begin: u64) -> bool {
        self.spoiled_at.is_some_and(|at| begin <= at)
    }
}

impl World {
    /// A worker's write has landed.
    pub(crate) fn landed(&mut self, worker: &WorkerId, life: u64) {
        self.watch.writers.insert((worker.clone(), life));
        self.object_changed(worker);
    }

    /// Somebody has changed or removed a worker's object.
    pub(crate) fn object_changed(&mut self, worker: &WorkerId) {
        let now = self.now;
        self.watch.changed(worker, now);
        for (node, sweep) in self.sweeps.iter_mut().enumerate() {
            if let Some(tenure) = &mut sweep.term {
                let local = self.nodes[node].clock.local(now);
                tenure.changes.entry(worker.clone()).or_default().push((now, local));
            }
        }
    }

    /// A leader has judged by a list that landed at `landed` on its own clock, and may be untrue after `until`.
    pub(crate) fn check_judgement(&mut self, node: usize, sent: Time, landed: Time, until: u64) {
        let now = self.now;
        let sweep = &mut self.sweeps[node];
        let Some(mut liveness) = sweep.liveness().cloned() else {
            return;
        };
        let Some(tenure) = &mut sweep.term else { return };
        let (epoch, first) = (tenure.epoch, tenure.first.unwrap_or(sent));
        let mut wrong = Vec::new();
        for entry in liveness.snapshot().workers {
            let Some(mark) = entry.silence.filter(|mark| mark.epoch == epoch) else { continue };
            let (worker, timeout_ms) = (entry.worker, entry.details.timeout_ms);
            if !tenure.judged.insert((worker.clone(), mark)) {
                continue;
            }
            // On the judge's own clock, so anything that clock did is taken into account.
            let changes = tenure.changes.get(&worker).map_or(&[][..], Vec::as_slice);
            let last = changes.iter().rev().find(|(at, _)| *at < until).map(|(_, local)| *local);
            if let Some(last) = last.filter(|last| landed.since(*last) < timeout_ms) {
                wrong.push((name::TIMEOUT_TRUE, worker.clone(), landed.since(last), timeout_ms));
            }
            if sent.since(first) < timeout_ms {
                wrong.push((name::LEADER_PATIENT, worker.clone(), sent.since(first), timeout_ms));
            }
            let begin = self.watch.last_change(&worker, until);
            self.watch.judged.insert((worker, mark), begin);
        }
        // Where epochs repeat, a silence of this epoch may have been inherited.
        if self.judge.rolled_back {
            return;
        }
        for (check, worker, waited, timeout_ms) in wrong {
            self.judge.violated(now, check, || {
                format!("{node} calls {worker} silent after {waited} of {timeout_ms} ms in {epoch:?}")
            });
        }
    }

    /// A snapshot has replaced this one.
    pub(crate) fn check_published(
        &mut self,
        before: Option<&(Arc<Snapshot>, Stamp)>,
        snapshot: &Snapshot,
        stamp: Stamp,
    ) {
        let now = self.now;
        if self.judge.rolled_back {
            return; // Epochs repeat, and so do the names of silences.
        }
        // A new leader writes what it found once more, unchanged.
        let falls = |(before, by): &&(Arc<Snapshot>, Stamp)| {
            before.id >= snapshot.id && **before != *snapshot || by.epoch > stamp.epoch
        };
        if let Some((before, by)) = before.filter(falls) {
            self.judge.violated(now, name::SNAPSHOTS_RISE, || {
                let (id, was) = (snapshot.id, before.id);
                format!("{id:?} of {:?} replaces {was:?} of {:?}", stamp.epoch, by.epoch)
            });
        }
        for entry in &snapshot.workers {
            let Some(mark) = entry.silence else { continue };
            let worker = entry.worker.clone();
            let begin = self.watch.judged.get(&(worker.clone(), mark)).copied().unwrap_or(0);
            let last = self.watch.published.insert(worker.clone(), (mark, begin));
            let twice = |(other, since): &(SnapshotId, u64)| *other != mark && *since == begin;
            if let Some((other, _)) = last.filter(twice).filter(|_| !self.watch.forgotten(begin)) {
                self.judge.violated(now, name::SILENCE_ONCE, || {
                    format!("the silence of {worker} since {begin} is published as {other:?} and as {mark:?}")
                });
            }
        }
    }

    /// A node reports what a snapshot says.
    pub(crate) fn check_told(&mut self, node: usize, snapshot: &Snapshot, event: &WorkerEvent) {
        let (now, life, worker) = (self.now, self.sweeps[node].life, event.worker.clone());
        if event.change != WorkerChange::Timeout || self.judge.rolled_back {
            return;
        }
        self.watch.timeouts += 1;
        let mark =
            snapshot.workers.iter().find(|entry| entry.worker == worker).and_then(|entry| entry.silence);
        let Some(mark) = mark else {
            let what = || format!("{node} tells a silence of {worker} that {:?} does not have", snapshot.id);
            return self.judge.violated(now, name::SILENCE_ONCE, what);
        };
        let begin = self.watch.judged.get(&(worker.clone(), mark)).copied().unwrap_or(0);
        let again = !self.watch.told.insert((life, worker.clone(), mark));
        let last = self.watch.told_last.insert((life, worker.clone()), begin);
        if again || last == Some(begin) && !self.watch.forgotten(begin) {
            self.judge.violated(now, name::SILENCE_ONCE, || {
                format!("{node} tells the silence of {worker} since {begin} twice, now as {mark:?}")
            });
        }
    }

    /// A worker that leaves removes its object.
    pub(crate) fn check_removal(&mut self, index: usize, life: u64, sent: u64) {
        let (now, timeout_ms) = (self.now, self.timeout_ms);
        // A worker whose clock stands almost still cannot know how long ago it looked.
        if self.worker_clock(index).was_slow() {
            return;
        }
        let worker = &self.workers[index].id;
        let Some(object) = self.registry.objects.get(worker) else { return };
        let Some(there) = object.written.as_ref().filter(|there| there.stamp.owner.0 != life) else { return };
        // It looks first, unless it has written within a heartbeat; what happens after the look cannot be known.
        let seen_ms = there.heartbeat_ms * 3 / 2 + 3 * timeout_ms;
        let other = there.stamp.owner.0;
        if object.landed + seen_ms < sent {
            self.judge.violated(now, name::OWN_OBJECT, || {
                format!("{worker}: life {life} removes the object of life {other}")
            });
        }
    }
}
