//! The roll: the leader's judgement on its workers, by one list a sweep.
//!
//! Not promised: a silence is noticed by a sweep, so up to one sweep interval after the timeout. A worker that leaves and
//! comes back between two sweeps was never gone.

use super::{Snapshot, SnapshotEntry, SnapshotMark, WorkerDetails};
use crate::id::WorkerId;

use crate::mutant::{Mistake, Mutant};
use crate::seat::Epoch;
use crate::time::Time;
use std::collections::BTreeMap;

/// Workers kept at most; what is beyond is counted as skipped.
pub const WORKERS_MAX: usize = 20_000;

/// Objects remembered at most, workers or not. More than workers, so that junk that looks like workers cannot keep the
/// workers themselves out.
const RECORDS_MAX: usize = 3 * WORKERS_MAX;

/// Objects read in one sweep at most: those of workers that are new, back, or changed in size. Not fewer: so ten thousand
/// workers that register at once are known after three minutes by default, each by one read.
const READS_MAX: usize = 256;

/// Dead objects removed in one sweep at most.
const REMOVALS_MAX: usize = 64;

/// Without an answer an object is not read again before this, doubled every time up to eight times as long: others come
/// first, but a worker that lives is not to be unknown for long because of one lost answer.
const UNANSWERED_AGAIN_MS: u64 = 10_000;
const UNANSWERED_DOUBLED: u32 = 3;

/// An object that is no worker is not tried again before this, so that unreadable objects cannot keep workers out; doubled
/// every time …
const READ_AGAIN_MS: u64 = 60_000;
/// … up to 64 times as long.
const READ_AGAIN_DOUBLED: u32 = 6;

/// By what the roll judges.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RollConfig {
    /// How long the object of an inactive worker is kept.
    pub retention_ms: u64,
}

/// One object of a list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Listed {
    /// Whose it is.
    pub worker: WorkerId,
    /// When it was last written, on the store's clock. Compared for being the same, nothing else.
    pub modified_ms: u64,
    /// Its size.
    pub bytes: u64,
}

/// What reading a worker's object gave.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReadOutcome {
    /// A worker.
    Found(WorkerDetails),
    /// Something that is no worker.
    Corrupt,
    /// Gone since the list, or no answer: asked again in a later sweep.
    Nothing,
}

/// What a sweep asks for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SweepOutcome {
    /// Objects to read; each answer goes to [`Roll::read`].
    pub read: Vec<WorkerId>,
    /// Objects of the dead to remove.
    pub remove: Vec<WorkerId>,
}

/// Objects that are not among the workers, by why.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Skipped {
    /// Not a worker's key, or of a size no worker has.
    pub junk: u64,
    /// A worker's key, but no worker.
    pub corrupt: u64,
    /// More than are kept.
    pub beyond: u64,
    /// The list was cut: there are more objects than were looked at.
    pub cut: bool,
}

impl Skipped {
    /// How many are known to be skipped.
    pub fn total(&self) -> u64 {
        self.junk.saturating_add(self.corrupt).saturating_add(self.beyond)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Content {
    /// Not read yet, or not with success. Not told of before: its events name plugin, pod and timeout, and what only looks like a
    /// worker is never told. It is watched from the first list on, so no time is lost.
    Unread,
    Worker(WorkerDetails),
    Corrupt,
    /// A worker, but one too many.
    Beyond,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record {
    content: Content,
    active: bool,
    silence: Option<SnapshotMark>,
    /// As last listed; `None` until this leader has listed it once.
    seen: Option<(u64, u64)>,
    /// This leader has seen it change.
    moved: bool,
    /// When this leader saw it change last, on its own clock.
    changed_at: Time,
    /// When this leader saw it silent; the retention counts from here. No clock is shared, so leaders that change often keep the
    /// dead for longer.
    silent_at: Time,
    /// The sweep that listed it last.
    sweep: u64,
    /// The object is to be read, not before this.
    read_at: Option<Time>,
    /// After failures in a row it is not read again before this.
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

    /// Something else came than a worker, or one too many.
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
pub struct Roll {
    config: RollConfig,
    epoch: Epoch,
    /// Of the newest snapshot made in this epoch.
    sequence: u64,
    /// Counts what happened; the second number is the count the newest snapshot made has, the third the published one's.
    changes: u64,
    made: u64,
    published: u64,
    /// The snapshot that was found, until this leader has written one: as long as it has not, a late write of the leader
    /// before can still land, and nobody would notice.
    found: Option<Snapshot>,
    /// What was found cannot be read: nodes may show what it said before, until this leader has published something.
    spoiled: bool,
    sweeps: u64,
    workers: BTreeMap<WorkerId, Record>,
    /// How many of them are workers.
    count: usize,
    skipped: Skipped,
    mistake: Mistake,
}

impl Roll {
    /// The same with a deliberate mistake, for tests that must catch it.
    #[cfg(feature = "teeth")]
    #[must_use]
    pub fn broken(self, mutant: Option<Mutant>) -> Roll {
        Roll { mistake: Mistake::of(mutant), ..self }
    }

    /// A leader's roll at the beginning of its epoch. What the last snapshot said is [inherited](Roll::inherit).
    pub fn new(config: RollConfig, epoch: Epoch) -> Roll {
        let (workers, count, skipped) = (BTreeMap::new(), 0, Skipped::default());
        let (sequence, changes, made, published, sweeps) = (0, 0, 0, 0, 0);
        let (found, spoiled, mistake) = (None, false, Mistake::default());
        Roll {
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
            mistake,
        }
    }

    /// The last snapshot cannot be read. It is made anew once everybody who is listed was read, even if that is nobody: what is
    /// published sooner for that reason alone would hide the living.
    pub fn found_spoiled(&mut self) {
        self.spoiled = true;
    }

    fn is_whole(&self) -> bool {
        let unread = |record: &Record| record.content == Content::Unread;
        self.sweeps > 0 && !self.skipped.cut && !self.workers.values().any(unread)
    }

    /// Snapshots up to this one are known here. A node that leads on in an epoch it led in before makes none of their
    /// numbers again, even if the snapshot itself cannot be read any more: everybody would ignore them.
    pub fn above(&mut self, mark: SnapshotMark) {
        if mark.epoch == self.epoch {
            self.sequence = self.sequence.max(mark.sequence);
        }
    }

    /// Takes over what the last snapshot said: who the workers are, and which silences are told already. Everybody active
    /// has a full timeout from the first sweep of this leader. Also for a snapshot found in the way of one's own: what a
    /// leader before published meanwhile was told.
    pub fn inherit(&mut self, snapshot: &Snapshot) {
        self.above(snapshot.mark);
        self.found = Some(snapshot.clone());
        // Found in the way: whom this leader has seen itself, or inherited before, need not stand there.
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
            // A silence that was judged here too, and not published, was told by the leader before meanwhile: it keeps
            // that name, unless the worker was back in between.
            let told = snapshot.mark.epoch < self.epoch && !entry.active && !record.active && !record.moved;
            if told {
                record.silence = entry.silence;
            }
            // A former leader's later word on a silence that this one only inherited: where it has forgotten it, because the
            // worker left and came anew, so has everybody who read that.
            let inherited = record.silence.is_some_and(|silence| silence.epoch < self.epoch);
            if snapshot.mark.epoch < self.epoch && inherited && entry.active && record.active {
                record.silence = entry.silence;
            }
            // That it came back was told: from the next sweep on it has a whole timeout, and another silence another name.
            if entry.active && !record.active && record.silence == entry.silence {
                (record.active, record.seen) = (true, None);
            }
            if record.silence < entry.silence && !self.mistake.is(Mutant::WorkerSilencesForgotten) {
                (record.active, record.silence) = (entry.active, entry.silence);
                record.silent_at = record.changed_at;
            }
        }
    }

    /// Judges by a list that was asked for at `sent` and answered at `now`. `junk` were objects that can be no worker's;
    /// `more` says that the list was cut: then nothing is concluded about whoever is not on it.
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
        let back = moved && !record.active && !self.mistake.is(Mutant::WorkerNeverRecovers);
        record.seen = Some((entry.modified_ms, entry.bytes));
        record.moved |= moved;
        if first || moved {
            let early = self.mistake.is(Mutant::WorkerSilenceFromSending);
            record.changed_at = if early { sent } else { now };
            if first && self.mistake.is(Mutant::WorkerWatchSkipped) {
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
        // A worker that is back may be another one under the same id; so may one whose object has another size: it may have left
        // and come back on another pod between two sweeps. Not all such changes show in the size, and a count of heartbeats with
        // one digit more is read for nothing. What could not be read is read again only once it changed, and no earlier than
        // its backoff says.
        let again = match record.content {
            Content::Worker(_) => resized || back,
            // Unread and not waiting to be read: the answer never came.
            Content::Corrupt | Content::Beyond | Content::Unread => moved,
        };
        let again = again || self.mistake.is(Mutant::WorkerReadsRepeated);
        if again && record.read_at.is_none() {
            let rash = self.mistake.is(Mutant::WorkerReadsRepeated);
            record.read_at = Some(if rash { now } else { record.retry_at.max(now) });
        }
        match &record.content {
            Content::Worker(details) => {
                // Only a list asked for after the timeout proves the silence.
                let until = if self.mistake.is(Mutant::WorkerSilenceToAnswer) { now } else { sent };
                let silent = until.since(record.changed_at) >= details.timeout_ms.max(1);
                let renamed = silent && self.mistake.is(Mutant::WorkerSilenceRenamed);
                if record.active && silent || renamed {
                    let mark = SnapshotMark { epoch: self.epoch, sequence: self.sequence + 1 };
                    (record.active, record.silence, record.silent_at) = (false, Some(mark), now);
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

    /// What reading a worker's object gave.
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
                // A worker whose object was overwritten with something else is a worker no more. Everybody tells it gone,
                // and forgets its silences: so they must not come back with it.
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

    /// Whether there is something to publish: it differs from what was published last, or this leader has published
    /// nothing yet over what it found.
    pub fn is_changed(&self) -> bool {
        self.changes != self.published || self.found.is_some() || (self.spoiled && self.is_whole())
    }

    /// Whether what is published is this leader's own word: it has listed the workers, and nothing it found is left to
    /// publish. `Some(true)`: nobody who is registered is missing from it.
    pub fn has_told(&self) -> Option<bool> {
        let told = self.sweeps > 0 && !self.is_changed();
        told.then(|| self.is_whole() && self.skipped.beyond == 0)
    }

    /// How many workers are known.
    pub fn known(&self) -> usize {
        self.workers.len()
    }

    /// What was skipped in the last sweep.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The snapshot to publish now. Every one made has a number of its own, published or not: two different bodies must never
    /// have the same number. Where nothing has changed since the one that was found, it is that one, to the letter: writing it
    /// again shuts out whoever wrote it, and nobody has to read it.
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
        if self.mistake.is(Mutant::WorkerSnapshotTakenForPublished) {
            self.published = self.made;
        }
        let inactive = workers.len() as u64 - active;
        let mark = SnapshotMark { epoch: self.epoch, sequence: self.sequence };
        Snapshot { mark, workers, active, inactive, skipped: self.skipped.total(), ..Snapshot::default() }
    }

    /// The snapshot with this mark stands on the store. An earlier one than the newest made leaves something to publish.
    pub fn published(&mut self, mark: SnapshotMark) {
        (self.found, self.spoiled) = (None, false);
        if mark == (SnapshotMark { epoch: self.epoch, sequence: self.sequence }) {
            self.published = self.made;
        }
    }
}

#[cfg(test)]
mod tests;
