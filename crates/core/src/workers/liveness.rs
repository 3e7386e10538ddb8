//! How the leader judges whether its workers are alive, with one list per sweep.
//!
//! Not promised: only a sweep notices a silence, so it may take up to one sweep interval after the timeout. A worker that
//! leaves and comes back between two sweeps was never gone.

use super::{Snapshot, SnapshotEntry, SnapshotId, WorkerDetails};
use crate::id::WorkerId;

use crate::election::Epoch;
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::BTreeMap;

/// Most workers kept; the rest count as skipped.
pub const WORKERS_MAX: usize = 20_000;

/// Most objects remembered, workers or not. More than workers, so that junk that looks like workers cannot keep the workers
/// themselves out.
const RECORDS_MAX: usize = 3 * WORKERS_MAX;

/// Most objects read in one sweep: those of workers that are new, back, or changed in size. Not fewer than this: with the
/// defaults, ten thousand workers that register at once are known after three minutes, with one read each.
const READS_MAX: usize = 256;

/// Most dead objects removed in one sweep.
const REMOVALS_MAX: usize = 64;

/// Pause before an unanswered read is repeated. It doubles every time, up to eight times as long: others come first, but one
/// lost answer must not keep a live worker unknown for long.
const UNANSWERED_AGAIN_MS: u64 = 10_000;
const UNANSWERED_DOUBLED: u32 = 3;

/// Pause before an object that is not a worker is read again, so that unreadable objects cannot keep workers out. It doubles
/// every time …
const READ_AGAIN_MS: u64 = 60_000;
/// … up to 64 times as long.
const READ_AGAIN_DOUBLED: u32 = 6;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LivenessConfig {
    /// How long the object of an inactive worker is kept.
    pub retention_ms: u64,
}

/// One object in a list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Listed {
    pub worker: WorkerId,
    /// When it was last written, on the store's clock. Only compared for equality.
    pub modified_ms: u64,
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReadOutcome {
    Found(WorkerDetails),
    Corrupt,
    /// The object is gone since the list, or there was no answer: a later sweep asks again.
    Nothing,
}

/// What a sweep asks the caller to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SweepOutcome {
    /// Objects to read; each answer goes to [`Liveness::read`].
    pub read: Vec<WorkerId>,
    /// Objects of dead workers to remove.
    pub remove: Vec<WorkerId>,
}

/// Objects that do not count as workers, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Skipped {
    /// The key is not a worker's, or the size is impossible for a worker.
    pub junk: u64,
    /// The key is a worker's, but the content is not.
    pub corrupt: u64,
    /// Objects above the limit.
    pub beyond: u64,
    /// The list was cut off: there are more objects than were looked at.
    pub cut: bool,
}

impl Skipped {
    pub fn total(&self) -> u64 {
        self.junk.saturating_add(self.corrupt).saturating_add(self.beyond)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Content {
    /// Not read yet, or not successfully. Not reported before that: a worker's events name plugin, pod and timeout, and
    /// something that only looks like a worker must never be reported. It is watched from the first list on, so no time is
    /// lost.
    Unread,
    Worker(WorkerDetails),
    Corrupt,
    /// A worker above the limit.
    Beyond,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record {
    content: Content,
    active: bool,
    silence: Option<SnapshotId>,
    /// Time stamp and size as last listed; `None` until this leader has listed it once.
    seen: Option<(u64, u64)>,
    /// This leader has seen it change.
    moved: bool,
    /// When this leader saw it change last, on its own clock.
    changed_at: Time,
    /// When this leader saw it silent; the retention counts from here. No clock is shared, so frequent leader changes keep
    /// the dead for longer.
    silent_at: Time,
    /// The last sweep that listed it.
    sweep: u64,
    /// Set if the object should be read: not before this.
    read_at: Option<Time>,
    /// After consecutive failures, no read before this.
    retry_at: Time,
    failures: u32,
}

impl Record {
    fn new(content: Content) -> Record {
        let (seen, silence, read_at) = (None, None, None);
        let (changed_at, silent_at, retry_at) = (Time(0), Time(0), Time(0));
        let (active, moved, sweep, failures) = (true, false, 0, 0);
        Record {
            content,
            active,
            silence,
            seen,
            moved,
            changed_at,
            silent_at,
            sweep,
            read_at,
            retry_at,
            failures,
        }
    }

    /// The object is not a worker's, or a worker's above the limit.
    fn failed(&mut self, now: Time) {
        self.retry_at = now + (READ_AGAIN_MS << self.failures.min(READ_AGAIN_DOUBLED));
        self.failures = self.failures.saturating_add(1);
    }

    fn unanswered(&mut self, now: Time) {
        self.retry_at = now + (UNANSWERED_AGAIN_MS << self.failures.min(UNANSWERED_DOUBLED));
        self.failures = self.failures.saturating_add(1);
    }
}

/// The workers as one leader judges them, for one epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Liveness {
    config: LivenessConfig,
    epoch: Epoch,
    /// The number of the newest snapshot made in this epoch.
    sequence: u64,
    /// Counts changes. `made` is the count in the newest snapshot made, `published` the count in the published one.
    changes: u64,
    made: u64,
    published: u64,
    /// The snapshot that was found, until this leader has written one. Until then, a late write of the previous leader can
    /// still land, and nobody would notice.
    found: Option<Snapshot>,
    /// The snapshot that was found cannot be read: nodes may show what it said before, until this leader has published one.
    spoiled: bool,
    sweeps: u64,
    workers: BTreeMap<WorkerId, Record>,
    /// How many of them are workers.
    count: usize,
    skipped: Skipped,
}

impl Liveness {
    /// What a leader knows at the start of its epoch: nothing. It then [inherits](Liveness::inherit) the last snapshot.
    pub fn new(config: LivenessConfig, epoch: Epoch) -> Liveness {
        let (workers, count, skipped) = (BTreeMap::new(), 0, Skipped::default());
        let (sequence, changes, made, published, sweeps) = (0, 0, 0, 0, 0);
        let (found, spoiled) = (None, false);
        Liveness {
            config,
            epoch,
            sequence,
            changes,
            made,
            published,
            found,
            spoiled,
            sweeps,
            workers,
            count,
            skipped,
        }
    }

    /// No snapshot is there. What was found before gets a number of its own: a node that found nothing either does not look again
    /// until the seat names another one.
    pub fn found_nothing(&mut self) {
        self.changes += u64::from(self.found.take().is_some());
    }

    /// The last snapshot cannot be read. A new one is published once every listed object has been read, even if there are
    /// none: publishing sooner would hide live workers.
    pub fn found_spoiled(&mut self) {
        self.found_nothing();
        self.spoiled = true;
    }

    fn all_read(&self) -> bool {
        let unread = |record: &Record| record.content == Content::Unread;
        self.sweeps > 0 && !self.workers.values().any(unread)
    }

    fn is_whole(&self) -> bool {
        !self.skipped.cut && self.all_read()
    }

    /// Snapshots up to this one are known here. A node that continues in an epoch it led before must not reuse their
    /// numbers, even if the snapshot itself can no longer be read: everybody would ignore the new ones.
    pub fn above(&mut self, id: SnapshotId) {
        if id.epoch == self.epoch {
            self.sequence = self.sequence.max(id.sequence);
        }
    }

    /// Takes over what the last snapshot said: who the workers are, and which silences are already reported. Every active
    /// worker gets a full timeout from this leader's first sweep. Also used for a snapshot found in place of the leader's
    /// own: what a former leader published in the meantime has been reported.
    pub fn inherit(&mut self, snapshot: &Snapshot) {
        self.above(snapshot.id);
        (self.found, self.spoiled) = (Some(snapshot.clone()), false);
        // Found in place of its own: workers that this leader has seen or inherited may be missing from it.
        self.changes += u64::from(!self.workers.is_empty());
        for entry in &snapshot.workers {
            let room = self.count < WORKERS_MAX && self.workers.len() < RECORDS_MAX;
            if !room && !self.workers.contains_key(&entry.worker) {
                continue;
            }
            let count = &mut self.count;
            let record = self.workers.entry(entry.worker.clone()).or_insert_with(|| {
                *count += 1;
                Record::new(Content::Worker(entry.details.clone()))
            });
            // This leader judged the same silence without publishing it, and a former leader has reported it in the
            // meantime: it keeps the former leader's name, unless the worker was back in between.
            let told = snapshot.id.epoch < self.epoch && !entry.active && !record.active && !record.moved;
            if told {
                record.silence = entry.silence;
            }
            // A former leader's later word on a silence that this leader only inherited: if it forgot the silence, because
            // the worker left and came back new, so has everybody who read that.
            let inherited = record.silence.is_some_and(|silence| silence.epoch < self.epoch);
            if snapshot.id.epoch < self.epoch && inherited && entry.active && record.active {
                record.silence = entry.silence;
            }
            // Its return was reported: from the next sweep on it has a full timeout, and another silence gets another name.
            if entry.active && !record.active && record.silence == entry.silence {
                (record.active, record.seen) = (true, None);
            }
            if record.silence < entry.silence && !Mutant::WorkerSilencesForgotten.on() {
                (record.active, record.silence) = (entry.active, entry.silence);
                record.silent_at = record.changed_at;
            }
        }
    }

    /// Judges by a list that was sent at `sent` and answered at `now`. `junk` counts objects that cannot be workers. `more`
    /// means that the list was cut off: then nothing is concluded about workers that are not on it.
    pub fn sweep(&mut self, sent: Time, now: Time, listed: &[Listed], junk: u64, more: bool) -> SweepOutcome {
        self.sweeps += 1;
        let mut out = SweepOutcome::default();
        let before = self.skipped;
        self.skipped = Skipped { junk, corrupt: 0, beyond: 0, cut: more };
        for entry in listed {
            self.judge(sent, now, entry, &mut out);
        }
        if !more {
            let (sweep, mut left) = (self.sweeps, 0);
            self.workers.retain(|_, record| {
                let here = record.sweep == sweep;
                left += usize::from(!here && matches!(record.content, Content::Worker(_)));
                here
            });
            self.count -= left;
            self.changes += u64::from(left > 0);
        }
        self.changes += u64::from(self.skipped.total() != before.total());
        out
    }

    fn judge(&mut self, sent: Time, now: Time, entry: &Listed, out: &mut SweepOutcome) {
        let full = self.workers.len() >= RECORDS_MAX;
        let record = match self.workers.get_mut(&entry.worker) {
            Some(record) => record,
            None if full => {
                self.skipped.beyond += 1;
                return;
            }
            None => {
                let fresh = Record { read_at: Some(now), ..Record::new(Content::Unread) };
                self.workers.entry(entry.worker.clone()).or_insert(fresh)
            }
        };
        record.sweep = self.sweeps;
        let first = record.seen.is_none();
        let moved = record.seen.is_some_and(|(modified_ms, _)| modified_ms != entry.modified_ms);
        let resized = record.seen.is_some_and(|(_, bytes)| bytes != entry.bytes);
        let back = moved && !record.active && !Mutant::WorkerNeverRecovers.on();
        record.seen = Some((entry.modified_ms, entry.bytes));
        record.moved |= moved;
        if first || moved {
            let early = Mutant::WorkerSilenceFromSending.on();
            record.changed_at = if early { sent } else { now };
            if first && Mutant::WorkerWatchSkipped.on() {
                record.changed_at = Time(0);
            }
        }
        if first && !record.active {
            record.silent_at = now;
        }
        if back {
            record.active = true;
            self.changes += 1;
        }
        // A worker that is back may be another one under the same id. So may one whose object changed in size: it may have
        // left and come back on another pod between two sweeps. Not every such change shows in the size, and one more digit
        // in the heartbeat count costs a useless read. An object that could not be read is read again only once it has
        // changed, and no earlier than its backoff.
        let again = match record.content {
            Content::Worker(_) => resized || back,
            // Unread and not waiting to be read: the answer never came.
            Content::Corrupt | Content::Beyond | Content::Unread => moved,
        };
        let again = again || Mutant::WorkerReadsRepeated.on();
        if again && record.read_at.is_none() {
            let rash = Mutant::WorkerReadsRepeated.on();
            record.read_at = Some(if rash { now } else { record.retry_at.max(now) });
        }
        match &record.content {
            Content::Worker(details) => {
                // Only a list sent after the timeout proves the silence.
                let until = if Mutant::WorkerSilenceToAnswer.on() { now } else { sent };
                let silent = until.since(record.changed_at) >= details.timeout_ms.max(1);
                let renamed = silent && Mutant::WorkerSilenceRenamed.on();
                if record.active && silent || renamed {
                    let id = SnapshotId { epoch: self.epoch, sequence: self.sequence + 1 };
                    (record.active, record.silence, record.silent_at) = (false, Some(id), now);
                    self.changes += 1;
                }
            }
            Content::Corrupt => self.skipped.corrupt += 1,
            Content::Beyond => self.skipped.beyond += 1,
            Content::Unread => {}
        }
        let over = !record.active && sent.since(record.silent_at) >= self.config.retention_ms;
        if over && out.remove.len() < REMOVALS_MAX {
            out.remove.push(entry.worker.clone());
        }
        if record.read_at.is_some_and(|at| at <= now) && out.read.len() < READS_MAX {
            record.read_at = None;
            out.read.push(entry.worker.clone());
        }
    }

    pub fn read(&mut self, now: Time, worker: &WorkerId, outcome: ReadOutcome) {
        let Some(record) = self.workers.get_mut(worker) else { return };
        match outcome {
            ReadOutcome::Found(details) => {
                let known = matches!(record.content, Content::Worker(_));
                let found = if known || self.count < WORKERS_MAX {
                    record.failures = 0;
                    self.count += usize::from(!known);
                    Content::Worker(details)
                } else {
                    record.failed(now);
                    Content::Beyond
                };
                self.changes += u64::from(record.content != found);
                record.content = found;
            }
            ReadOutcome::Corrupt => {
                record.failed(now);
                // If a worker's object was overwritten with something else, the worker no longer exists. Everybody reports
                // it gone and forgets its silences, so they must not come back with it.
                if matches!(record.content, Content::Worker(_)) {
                    self.count -= 1;
                    (record.active, record.silence) = (true, None);
                }
                if record.content != Content::Corrupt {
                    self.skipped.corrupt += 1;
                    self.changes += 1;
                }
                record.content = Content::Corrupt;
            }
            ReadOutcome::Nothing => {
                record.unanswered(now);
                record.read_at = Some(record.retry_at);
            }
        }
    }

    /// Whether there is something to publish: a change since the last publication, or a found snapshot that this leader has
    /// not replaced yet.
    pub fn is_changed(&self) -> bool {
        match self.spoiled {
            true => self.all_read() && (!self.skipped.cut || self.changes != self.published),
            false => self.changes != self.published || self.found.is_some(),
        }
    }

    /// Whether the published snapshot is this leader's own word: it has listed the workers and has nothing left to publish.
    /// `Some(true)` if no registered worker is missing from it.
    pub fn has_told(&self) -> Option<bool> {
        let told = self.sweeps > 0 && !self.is_changed();
        told.then(|| self.is_whole() && self.skipped.beyond == 0)
    }

    pub fn known(&self) -> usize {
        self.workers.len()
    }

    /// What was skipped in the last sweep.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The snapshot to publish now. Every snapshot made has its own number, published or not: two different bodies must
    /// never share one. If nothing has changed since the found snapshot, it is that one, unaltered: writing it again shuts
    /// out whoever wrote it, and nobody has to read it.
    pub fn snapshot(&mut self) -> Snapshot {
        if let Some(found) = self.found.as_ref().filter(|_| self.changes == self.published) {
            return found.clone();
        }
        let mut workers = Vec::with_capacity(self.workers.len());
        let mut active = 0;
        for (worker, record) in &self.workers {
            let Content::Worker(details) = &record.content else { continue };
            active += u64::from(record.active);
            workers.push(SnapshotEntry {
                worker: worker.clone(),
                details: details.clone(),
                active: record.active,
                silence: record.silence,
            });
        }
        self.sequence += 1;
        self.made = self.changes;
        if Mutant::WorkerSnapshotTakenForPublished.on() {
            self.published = self.made;
        }
        let inactive = workers.len() as u64 - active;
        let id = SnapshotId { epoch: self.epoch, sequence: self.sequence };
        Snapshot { id, workers, active, inactive, skipped: self.skipped.total(), ..Snapshot::default() }
    }

    /// The snapshot with this id is on the store. If it is not the newest one made, something is left to publish.
    pub fn published(&mut self, id: SnapshotId) {
        (self.found, self.spoiled) = (None, false);
        if id == (SnapshotId { epoch: self.epoch, sequence: self.sequence }) {
            self.published = self.made;
        }
    }
}

#[cfg(test)]
mod tests;
