//! The ledger: what this leader remembers of its shards, when they are written, and what leaves them.
//!
//! Each shard is a document that the leader adopts with a write of its own and then writes whenever something changed. What
//! is in it, besides the watermarks of series, comes from the [`Table`].

use super::RETRY;
use super::dispatcher::{DispatchRequest, Sink, SubmitAnswer, View};
use super::history::History;
use super::inboxes::Inboxes;
use super::lifecycle::kept_until;
use super::model::{JOB_OBJECT_MAX_WEIGHT, JOB_SERIES_MAX, JobRecord, LedgerDoc, job_shard};
use super::orders::Orders;
use super::table::{Job, Table};
use crate::document::{Document, DocumentAnswer, Op, Rules, State, Unreadable, What, Writer};
use crate::id::{JobId, SeriesId};
use crate::machine::RequestId;
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Shard {
    document: Document,
    /// The highest watermark of each series.
    series: BTreeMap<SeriesId, u64>,
    /// No search for jobs to forget before this.
    forget_at: Time,
    /// Since when a job has waited for another reason than the one on the store. Not worth an immediate write of its own.
    stale_since: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LedgerNews {
    Nothing,
    /// A former leader left this.
    Loaded(Vec<JobRecord>),
    /// More of it is on the store than before.
    Confirmed,
    Empty,
    /// It cannot be read, and is left alone.
    Unreadable,
    Superseded,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ledger {
    shards: Vec<Shard>,
}

impl Ledger {
    pub(super) fn new(writer: Writer, shards: usize) -> Ledger {
        let rules = Rules { writer, adopt: true, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        let shard = Shard {
            document: Document::new(rules),
            series: BTreeMap::new(),
            forget_at: Time(0),
            stale_since: None,
        };
        Ledger { shards: vec![shard; shards] }
    }

    pub(super) fn shard_of(&self, series: &SeriesId) -> usize {
        job_shard(series, self.shards.len())
    }

    pub(super) fn state(&self, shard: usize) -> State {
        self.shards[shard].document.state()
    }

    fn is_owned(&self, shard: usize) -> bool {
        self.state(shard) == State::Owned
    }

    /// Whether it owns every shard that can be read.
    pub(super) fn is_adopted(&self) -> bool {
        (0..self.shards.len()).all(|shard| matches!(self.state(shard), State::Owned | State::Blocked))
    }

    /// How many shards cannot be read.
    pub(super) fn blocked(&self) -> usize {
        (0..self.shards.len()).filter(|shard| self.state(*shard) == State::Blocked).count()
    }

    /// The highest watermark of each series, for the shards this leader owns.
    pub(super) fn series(&self) -> impl Iterator<Item = (&SeriesId, u64)> {
        let owned = self.shards.iter().filter(|shard| shard.document.state() == State::Owned);
        owned.flat_map(|shard| shard.series.iter().map(|(name, watermark)| (name, *watermark)))
    }

    pub(super) fn is_confirmed(&self, shard: usize, revision: u64) -> bool {
        self.shards[shard].document.is_confirmed(revision)
    }

    // ---- what changes it ----

    /// A job of this shard has changed: returns the revision that has to stand.
    pub(super) fn touch(&mut self, shard: usize) -> u64 {
        self.shards[shard].document.touch()
    }

    /// A job of this shard waits for another reason than before.
    pub(super) fn explained(&mut self, now: Time, shard: usize) {
        self.shards[shard].stale_since.get_or_insert(now);
    }

    /// Whether a shard of this weight takes a new job; if so, its watermark is remembered.
    pub(super) fn admit(
        &mut self,
        shard: usize,
        weight: usize,
        record: &JobRecord,
    ) -> Result<(), SubmitAnswer> {
        let series = &mut self.shards[shard].series;
        let (known, marked) = (series.get(&record.series).copied(), record.watermark > 0);
        if marked && known.is_some_and(|watermark| record.watermark <= watermark) {
            return Err(SubmitAnswer::BelowWatermark);
        }
        let crowded = marked && known.is_none() && series.len() >= JOB_SERIES_MAX;
        if crowded || weight + record.weight() > JOB_OBJECT_MAX_WEIGHT {
            return Err(SubmitAnswer::Full);
        }
        if marked && !Mutant::JobWatermarkNotKept.on() {
            series.insert(record.series.clone(), record.watermark);
        }
        Ok(())
    }

    /// Forgets a series of which only a watermark is left, if the watermark is not above the given one.
    pub(super) fn forget(&mut self, table: &Table, series: &SeriesId, upto: u64) {
        let shard = self.shard_of(series);
        let known = self.shards[shard].series.get(series).is_some_and(|watermark| *watermark <= upto);
        let used = || table.of_shard(shard).any(|job| job.record().series == *series);
        if self.is_owned(shard) && known && !used() {
            self.shards[shard].series.remove(series);
            self.touch(shard);
        }
    }

    // ---- the store ----

    pub(super) fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        shard: usize,
        answer: DocumentAnswer<LedgerDoc>,
    ) -> LedgerNews {
        let shard = &mut self.shards[shard];
        let (settled, body) = shard.document.answered(now, id, answer);
        match settled.what {
            What::Loaded => {
                let doc = body.unwrap_or_default();
                shard.series = doc.series.into_iter().collect();
                LedgerNews::Loaded(doc.jobs)
            }
            What::Landed { .. } => LedgerNews::Confirmed,
            What::Superseded(_) | What::Overtaken(_) if Mutant::JobLedgerReclaimed.on() => {
                LedgerNews::Nothing
            }
            What::Superseded(_) | What::Overtaken(_) => LedgerNews::Superseded,
            What::Blocked { news: true, .. } => LedgerNews::Unreadable,
            What::Empty => LedgerNews::Empty,
            What::Nothing
            | What::Same
            | What::Shared
            | What::Blocked { .. }
            | What::Failed { .. }
            | What::Removed => LedgerNews::Nothing,
        }
    }

    pub(super) fn send(&mut self, view: &View<'_>, sink: &mut Sink<'_>) {
        let View { now, config, table, .. } = *view;
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let lasted = shard.stale_since.is_some_and(|since| now >= since + config.slow_ms);
            if lasted && shard.document.state() == State::Owned {
                shard.stale_since = None;
                shard.document.touch();
            }
            let Shard { document, series, stale_since, .. } = shard;
            sink.send_for(
                |id| document.next(now, id, true),
                |op| {
                    if matches!(op, Op::Write { .. }) {
                        // This write carries the current reasons; if it fails, another one will.
                        *stale_since = None;
                    }
                    let body = || LedgerDoc {
                        series: series.iter().map(|(name, watermark)| (name.clone(), *watermark)).collect(),
                        jobs: table.of_shard(number).map(|job| job.record().clone()).collect(),
                    };
                    DispatchRequest::Ledger(number, op.with(body))
                },
            );
        }
    }

    // ---- finished jobs ----

    /// Whether a shard holds more finished jobs than it keeps, or has little room left.
    fn has_many(&self, view: &View<'_>, shard: usize) -> bool {
        let jobs = &view.table.index().shards[shard];
        let enough = (jobs.is_crowded() && jobs.finished >= 8) || jobs.finished > view.config.keep_finished;
        enough && self.is_owned(shard)
    }

    /// The finished jobs that leave their shards: the history has them, nothing of them is left in an inbox, and nobody can ask
    /// for them again.
    pub(super) fn forget_finished(
        &mut self,
        view: &View<'_>,
        inboxes: &Inboxes,
        orders: &Orders,
        history: &History,
    ) -> Vec<JobId> {
        let View { now, config, table, .. } = *view;
        let mut forgotten = Vec::new();
        for shard in 0..self.shards.len() {
            let over = |job: &&Job| {
                let record = job.record();
                let recorded = record.state.is_final() && job.is_confirmed(self) && history.has(record);
                // A second order to try it again may still be on its way, and must find it.
                let settled = kept_until(job).is_none_or(|until| now >= until);
                recorded && inboxes.is_gone(job) && orders.is_done_with(record) && settled
            };
            let here = |job: &&Job| self.shard_of(&job.record().series) == shard && self.is_owned(shard);
            let removals = orders.removals().filter_map(|id| table.get(id)).filter(here).filter(over);
            let mut gone: BTreeSet<JobId> = removals.map(|job| job.record().id.clone()).collect();
            if self.has_many(view, shard) && now >= self.shards[shard].forget_at {
                let crowded = table.index().shards[shard].is_crowded();
                let mut done: Vec<&Job> = table.of_shard(shard).filter(over).collect();
                if done.len() <= config.keep_finished && !(crowded && done.len() >= 8) {
                    // They are still in inboxes, or not in the history yet.
                    let pause_ms = if crowded { config.fast_ms } else { config.slow_ms };
                    self.shards[shard].forget_at = now + pause_ms;
                } else {
                    // Somebody may still want to try again what is not done.
                    done.sort_by_key(|job| {
                        let record = job.record();
                        (record.may_be_retried(), job.times().state_since, record.watermark)
                    });
                    let half = done.len().div_ceil(2).max(1);
                    gone.extend(done[..half].iter().map(|job| job.record().id.clone()));
                }
            }
            if !gone.is_empty() {
                self.touch(shard);
                forgotten.extend(gone);
            }
        }
        forgotten
    }

    /// The next time after now at which something is due by time alone.
    pub(super) fn due_at(&self, view: &View<'_>) -> Option<Time> {
        let slow_ms = view.config.slow_ms;
        let idle = self.shards.iter().filter(|shard| !shard.document.is_busy());
        let idle = idle
            .flat_map(|shard| [Some(shard.document.due()), shard.stale_since.map(|since| since + slow_ms)]);
        let crowded = self.shards.iter().enumerate();
        let crowded = crowded.map(|(at, shard)| self.has_many(view, at).then_some(shard.forget_at));
        let times = idle.chain(crowded).flatten();
        times.filter(|at| *at > view.now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{WRITER, at, ledger, name, record, serve};
    use super::*;
    use crate::document::DocumentRequest;
    use crate::election::Epoch;

    fn marked(series: &str, watermark: u64) -> JobRecord {
        JobRecord { series: name(series), watermark, ..record("t1") }
    }

    #[test]
    fn nothing_at_or_below_a_watermark_is_admitted_until_the_series_is_forgotten() {
        let (mut ledger, table, series) = (ledger(), Table::new(Epoch(2), 2), name("s"));
        let shard = ledger.shard_of(&series);
        assert_eq!(ledger.admit(shard, 0, &marked("s", 5)), Ok(()));
        assert_eq!(ledger.admit(shard, 0, &marked("s", 5)), Err(SubmitAnswer::BelowWatermark));
        assert_eq!(ledger.admit(shard, 0, &marked("s", 6)), Ok(()));
        assert_eq!(ledger.series().collect::<Vec<_>>(), [(&series, 6)]);
        ledger.forget(&table, &series, 5);
        assert_eq!(ledger.series().count(), 1, "above what was named");
        ledger.forget(&table, &series, 6);
        assert_eq!(ledger.admit(shard, 0, &marked("s", 1)), Ok(()));
    }

    #[test]
    fn a_shard_is_full_by_weight_or_by_series() {
        let mut ledger = ledger();
        let room = JOB_OBJECT_MAX_WEIGHT - record("t1").weight();
        assert_eq!(ledger.admit(0, room, &record("t1")), Ok(()));
        assert_eq!(ledger.admit(0, room + 1, &record("t1")), Err(SubmitAnswer::Full));
        for number in 0..JOB_SERIES_MAX {
            assert_eq!(ledger.admit(0, 0, &marked(&format!("s{number}"), 1)), Ok(()));
        }
        assert_eq!(ledger.admit(0, 0, &marked("one-more", 1)), Err(SubmitAnswer::Full));
        assert_eq!(ledger.admit(0, 0, &marked("s1", 2)), Ok(()), "known series go on");
    }

    #[test]
    fn a_change_is_written_at_once_and_a_reason_once_it_lasts() {
        let (mut ledger, mut table) = (ledger(), Table::new(Epoch(2), 2));
        table.create(&mut ledger, at(10), Some(1), record("t1"));
        let job = |table: &Table| table.get(&name("t1")).expect("it is there").clone();
        assert!(!job(&table).is_confirmed(&ledger));
        let written = serve(&mut ledger, &table, 10);
        assert!(matches!(&written[..], [DocumentRequest::Write { body, .. }] if body.jobs.len() == 1));
        assert!(job(&table).is_confirmed(&ledger));
        table.explain(&mut ledger, Time(20), &name("t1"), "nobody is there");
        assert_eq!(serve(&mut ledger, &table, 1019), []);
        assert_eq!(serve(&mut ledger, &table, 1020).len(), 1);
        assert_eq!(serve(&mut ledger, &table, 9000), []);
    }

    #[test]
    fn a_shard_must_be_adopted_before_it_counts() {
        let mut ledger = Ledger::new(WRITER, 2);
        let table = Table::new(Epoch(2), 2);
        assert!(!ledger.is_adopted());
        serve(&mut ledger, &table, 0);
        assert!(!ledger.is_adopted(), "it was only read");
        serve(&mut ledger, &table, 1);
        assert!(ledger.is_adopted() && ledger.blocked() == 0);
    }
}
