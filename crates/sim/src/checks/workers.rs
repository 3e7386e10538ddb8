//! The truth about workers: every change of their objects, every reported silence, and who reported it.

use super::name;
use crate::network::Sender;
use crate::shell::{PartName, Who};
use crate::store::Object;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::WorkerId;
use tenure_core::document::Stamp;
use tenure_core::{Snapshot, SnapshotId, Time, WorkerChange, WorkerEvent};

/// How long an object that is not a worker is not read again, on the leader's clock.
pub(crate) const READ_AGAIN_MS: u64 = 60_000;

/// The truth about workers.
#[derive(Default)]
pub(crate) struct WorkerChecks {
    /// Every time each object changed, whoever changed it.
    changes: BTreeMap<WorkerId, Vec<u64>>,
    writers: BTreeSet<(WorkerId, u64)>,
    /// For every judgement, the change after which the worker was silent.
    judged: BTreeMap<(WorkerId, SnapshotId), u64>,
    /// The silence that was published last.
    published: BTreeMap<WorkerId, (SnapshotId, u64)>,
    /// What each node has reported, by the number of its sweep.
    told: BTreeSet<(u64, WorkerId, SnapshotId)>,
    told_last: BTreeMap<(u64, WorkerId), u64>,
    spoiled_at: Option<u64>,
    /// Reported silences, over all nodes.
    pub(crate) timeouts: u64,
    /// There was garbage among the workers' objects when the faults ended.
    pub(crate) had_junk: bool,
    /// A worker's object could not be read.
    pub(crate) had_unread: bool,
}

impl WorkerChecks {
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
    /// Somebody has changed or removed a worker's object.
    pub(crate) fn check_worker_landed(
        &mut self,
        worker: &WorkerId,
        before: Option<&Object>,
        written: bool,
        by: Option<&Sender>,
    ) {
        if let Some(by) = by.filter(|by| by.part == PartName::Registration) {
            // The object of another process under the same id.
            let other = before.and_then(|object| {
                let (stamp, worker) = object.value.worker()?;
                Some((stamp.owner.0, worker.heartbeat_ms, object.landed))
            });
            let other = other.filter(|(life, ..)| *life != by.life);
            match (written, other) {
                (true, Some(other)) => self.check_taken_over(worker, by, other),
                (false, Some(other)) => self.check_removal(worker, by, other),
                (_, None) => {}
            }
            if written {
                self.worker_checks.writers.insert((worker.clone(), by.life));
            }
        }
        let now = self.now;
        self.worker_checks.changes.entry(worker.clone()).or_default().push(now);
        for node in &mut self.nodes {
            let local = node.computer.clock.local(now);
            if let Some(term) = node.sweep.as_mut().and_then(|sweep| sweep.term.as_mut()) {
                term.changes.entry(worker.clone()).or_default().push((now, local));
            }
        }
    }

    fn check_taken_over(&mut self, id: &WorkerId, by: &Sender, (other, beat_ms, landed): (u64, u64, u64)) {
        let clock = &self.computer(by.who).clock;
        let waited = by.sent.saturating_sub(landed) * clock.rate() / 1000 + 2;
        let (due, life) = (beat_ms * 5 / 2, by.life);
        if waited < due && !clock.has_changed() {
            self.violated(name::ID_WATCHED, || {
                format!("{id}: life {life} takes over from life {other} after {waited} of {due} ms")
            });
        }
    }

    /// A worker that leaves removes its object. It looks first, unless it has written within a heartbeat; what happens after the
    /// look cannot be known.
    fn check_removal(&mut self, id: &WorkerId, by: &Sender, (other, beat_ms, landed): (u64, u64, u64)) {
        let (life, seen_ms) = (by.life, beat_ms * 3 / 2 + 3 * self.timeout_ms);
        // A worker whose clock stands almost still cannot know how long ago it looked.
        if landed + seen_ms < by.sent && !self.computer(by.who).clock.was_slow() {
            self.violated(name::OWN_OBJECT, || {
                format!("{id}: life {life} removes the object of life {other}")
            });
        }
    }

    /// A list has landed, and may be untrue after `until`.
    pub(crate) fn listed(&mut self, from: &Sender, until: u64) {
        let (local, Who::Node(node)) = (self.time(from.who).at, from.who) else { return };
        let Some(sweep) = self.nodes[node].sweep.as_mut().filter(|sweep| sweep.part.number == from.number)
        else {
            return;
        };
        let listing = sweep.term.as_mut().and_then(|term| term.listing.as_mut());
        if let Some(listing) = listing.filter(|listing| listing.id == from.id) {
            listing.truth = Some((local, until));
        }
    }

    /// A leader has judged by a list that landed at `landed` on its own clock, and may be untrue after `until`.
    pub(crate) fn check_judgement(&mut self, who: Who, sent: Time, landed: Time, until: u64) {
        let Who::Node(node) = who else { return };
        let Some(sweep) = &mut self.nodes[node].sweep else { return };
        let Some(mut liveness) = sweep.machine().liveness().cloned() else { return };
        let Some(term) = &mut sweep.term else { return };
        let (epoch, first) = (term.epoch, term.first.unwrap_or(sent));
        let mut wrong = Vec::new();
        for entry in liveness.snapshot().workers {
            let Some(mark) = entry.silence.filter(|mark| mark.epoch == epoch) else { continue };
            let (worker, timeout_ms) = (entry.worker, entry.details.timeout_ms);
            if !term.judged.insert((worker.clone(), mark)) {
                continue;
            }
            // On the leader's own clock, so anything that clock did is taken into account.
            let changes = term.changes.get(&worker).map_or(&[][..], Vec::as_slice);
            let last = changes.iter().rev().find(|(at, _)| *at < until).map(|(_, local)| *local);
            if let Some(last) = last.filter(|last| landed.since(*last) < timeout_ms) {
                wrong.push((name::TIMEOUT_TRUE, worker.clone(), landed.since(last), timeout_ms));
            }
            if sent.since(first) < timeout_ms {
                wrong.push((name::LEADER_PATIENT, worker.clone(), sent.since(first), timeout_ms));
            }
            let begin = self.worker_checks.last_change(&worker, until);
            self.worker_checks.judged.insert((worker, mark), begin);
        }
        // Where epochs repeat, a silence of this epoch may have been inherited.
        if self.seat_checks.rolled_back {
            return;
        }
        for (check, worker, waited, timeout_ms) in wrong {
            self.violated(check, || {
                format!("{node} calls {worker} silent after {waited} of {timeout_ms} ms in {epoch:?}")
            });
        }
    }

    /// A snapshot has replaced this one.
    pub(crate) fn check_published(&mut self, before: Option<&Object>, snapshot: &Snapshot, stamp: Stamp) {
        self.trace
            .say(self.now, || format!("== snapshot {:?} is published in {:?}", snapshot.id, stamp.epoch));
        if self.seat_checks.rolled_back {
            return; // Epochs repeat, and so do the names of silences.
        }
        // A new leader writes what it found once more, unchanged.
        let falls = before.and_then(|object| object.value.snapshot()).filter(|(by, before)| {
            before.id >= snapshot.id && ***before != *snapshot || by.epoch > stamp.epoch
        });
        if let Some((by, before)) = falls {
            self.violated(name::SNAPSHOTS_RISE, || {
                let (id, was) = (snapshot.id, before.id);
                format!("{id:?} of {:?} replaces {was:?} of {:?}", stamp.epoch, by.epoch)
            });
        }
        for entry in &snapshot.workers {
            let Some(mark) = entry.silence else { continue };
            let worker = entry.worker.clone();
            let begin = self.worker_checks.judged.get(&(worker.clone(), mark)).copied().unwrap_or(0);
            let last = self.worker_checks.published.insert(worker.clone(), (mark, begin));
            let twice = |(other, since): &(SnapshotId, u64)| *other != mark && *since == begin;
            if let Some((other, _)) = last.filter(twice).filter(|_| !self.worker_checks.forgotten(begin)) {
                self.violated(name::SILENCE_ONCE, || {
                    format!("the silence of {worker} since {begin} is published as {other:?} and as {mark:?}")
                });
            }
        }
    }

    /// A node reports what a snapshot says.
    pub(crate) fn check_told(&mut self, node: usize, snapshot: &Snapshot, event: &WorkerEvent) {
        let life = self.nodes[node].sweep.as_ref().map_or(0, |sweep| sweep.part.number);
        let worker = event.worker.clone();
        if event.change != WorkerChange::Timeout || self.seat_checks.rolled_back {
            return;
        }
        self.worker_checks.timeouts += 1;
        let mark =
            snapshot.workers.iter().find(|entry| entry.worker == worker).and_then(|entry| entry.silence);
        let Some(mark) = mark else {
            let what = || format!("{node} tells a silence of {worker} that {:?} does not have", snapshot.id);
            return self.violated(name::SILENCE_ONCE, what);
        };
        let begin = self.worker_checks.judged.get(&(worker.clone(), mark)).copied().unwrap_or(0);
        let again = !self.worker_checks.told.insert((life, worker.clone(), mark));
        let last = self.worker_checks.told_last.insert((life, worker.clone()), begin);
        if again || last == Some(begin) && !self.worker_checks.forgotten(begin) {
            self.violated(name::SILENCE_ONCE, || {
                format!("{node} tells the silence of {worker} since {begin} twice, now as {mark:?}")
            });
        }
    }
}
