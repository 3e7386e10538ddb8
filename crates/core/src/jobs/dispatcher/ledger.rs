//! The dispatcher's bookkeeping: what enters the ledger, what is written, and what leaves it.

use super::super::part::Part;
use super::super::{
    JOB_OBJECT_MAX_WEIGHT, JOB_SERIES_MAX, JobRecord, JobState, LedgerDoc, RETRY, job_shard, next_request,
};
use super::{Assign, DispatchOutput, DispatchRequest, Dispatcher, Job, SubmitAnswer};
use crate::document::{Op, State};
use crate::id::{JobId, SeriesId, WorkerId};
use crate::machine::{Effect, Out, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::sync::Arc;

impl<A: Assign> Dispatcher<A> {
    /// Loads what a former leader left in a shard.
    pub(super) fn load(&mut self, now: Time, shard: usize, doc: LedgerDoc) {
        let shards = self.config.shards;
        for id in self.parts[shard].jobs.clone() {
            self.remove_job(&id);
        }
        self.parts[shard].series = doc.series.into_iter().collect();
        for record in doc.jobs {
            if job_shard(&record.series, shards) != shard {
                self.counts.rejected += 1;
                continue;
            }
            let told = Some((record.state, record.attempt));
            let job = Job {
                record,
                revision: 0,
                known_since: now,
                state_since: now,
                waits_since: now,
                not_before: now,
                withdraw: None,
                tokens: Vec::new(),
                told,
                timer: None,
            };
            self.insert_job(job);
        }
        self.look_at_all_inboxes();
    }

    pub(super) fn on_archived(&mut self, now: Time, id: RequestId, shard: usize, done: bool) {
        let archiving = &mut self.parts[shard].archiving;
        let Some((_, ids)) = archiving.take_if(|(flight, _)| *flight == id) else { return };
        if !done {
            self.archive_due = now + RETRY.max_ms;
            return;
        }
        for id in ids {
            self.remove_job(&id);
        }
        self.parts[shard].document.touch();
    }

    /// Admits submissions whose part this leader owns.
    pub(super) fn admit(&mut self, out: &mut Vec<Out<Self>>) {
        for (token, record) in std::mem::take(&mut self.waiting) {
            let shard = self.shard_of(&record);
            let answer = match self.parts[shard].document.state() {
                State::Unread | State::Found => {
                    self.waiting.push((token, record));
                    continue;
                }
                State::Blocked => Some(SubmitAnswer::Blocked),
                State::Superseded => Some(SubmitAnswer::Ended),
                State::Owned => self.create(shard, token, record),
            };
            out.extend(answer.map(|answer| Effect::Output(DispatchOutput::Answered(token, answer))));
        }
    }

    fn create(&mut self, shard: usize, token: u64, record: JobRecord) -> Option<SubmitAnswer> {
        if let Some(job) = self.jobs.get_mut(&record.id) {
            self.counts.duplicates += 1;
            // The existing job's own shard decides; under another series that may be a different shard.
            job.tokens.push((token, SubmitAnswer::Exists));
            self.table.untold.insert(record.id);
            return None;
        }
        let known = self.parts[shard].series.get(&record.series).copied();
        if record.watermark > 0 && known.is_some_and(|watermark| record.watermark <= watermark) {
            self.counts.duplicates += 1;
            return Some(SubmitAnswer::BelowWatermark);
        }
        let weight = self.parts[shard].weight;
        let crowded =
            record.watermark > 0 && known.is_none() && self.parts[shard].series.len() >= JOB_SERIES_MAX;
        if crowded || weight + record.weight() > JOB_OBJECT_MAX_WEIGHT {
            return Some(SubmitAnswer::Full);
        }
        if record.watermark > 0 && !Mutant::JobWatermarkNotKept.on() {
            self.parts[shard].series.insert(record.series.clone(), record.watermark);
        }
        let record = JobRecord {
            state: JobState::Queued,
            attempt: 0,
            unbegun: 0,
            worker: None,
            epoch: self.config.epoch,
            cancel: false,
            given_up: false,
            result: Arc::from([]),
            late: Vec::new(),
            ..record
        };
        self.counts.created += 1;
        let job = Job {
            revision: 0,
            known_since: Time(u64::MAX),
            state_since: Time(u64::MAX),
            waits_since: Time(u64::MAX),
            not_before: Time(0),
            withdraw: None,
            tokens: vec![(token, SubmitAnswer::Created)],
            told: None,
            timer: None,
            record,
        };
        let id = job.record.id.clone();
        self.insert_job(job);
        self.touch(&id);
        None
    }

    pub(super) fn write_ledger(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        for (number, part) in self.parts.iter_mut().enumerate() {
            let Some((id, op)) = next_request(&mut self.requests, &mut part.document, now, true) else {
                continue;
            };
            if matches!(op, Op::Write { .. }) {
                // This write carries the current reasons; if it fails, another one will.
                part.stale_since = None;
            }
            let request = op.with(|| {
                let series = part.series.iter().map(|(name, watermark)| (name.clone(), *watermark));
                let jobs = part.jobs.iter().filter_map(|id| self.jobs.get(id));
                LedgerDoc { series: series.collect(), jobs: jobs.map(|job| job.record.clone()).collect() }
            });
            out.push(Effect::Request(id, DispatchRequest::Ledger(number, request)));
        }
    }

    /// Archives finished jobs in batches, once nothing of them is left in an inbox.
    pub(super) fn archive(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        if now < self.archive_due {
            return;
        }
        for shard in 0..self.parts.len() {
            let state = &self.parts[shard];
            if !self.may_archive(state) || now < state.archive_at {
                continue;
            }
            let crowded = state.weight * 2 > JOB_OBJECT_MAX_WEIGHT;
            let here = state.jobs.iter().filter_map(|id| self.jobs.get(id));
            let mut done: Vec<&Job> = here.filter(|job| self.is_over(job)).collect();
            if done.len() <= self.config.keep_finished && !(crowded && done.len() >= 8) {
                // They are still in inboxes.
                let pause_ms = if crowded { self.config.fast_ms } else { self.config.slow_ms };
                self.parts[shard].archive_at = now + pause_ms;
                continue;
            }
            done.sort_by_key(|job| (job.state_since, job.record.watermark));
            done.truncate(done.len().div_ceil(2).max(1));
            let records: Vec<JobRecord> = done.iter().map(|job| job.record.clone()).collect();
            let ids = records.iter().map(|record| record.id.clone()).collect();
            let id = self.next_request();
            self.parts[shard].archiving = Some((id, ids));
            out.push(Effect::Request(id, DispatchRequest::Archive(shard, records)));
        }
    }

    /// Whether the shard holds more finished jobs than it keeps, or has little room left.
    pub(super) fn may_archive(&self, shard: &Part) -> bool {
        let crowded = shard.weight * 2 > JOB_OBJECT_MAX_WEIGHT && shard.finished >= 8;
        let enough = crowded || shard.finished > self.config.keep_finished;
        enough && shard.is_owned() && shard.archiving.is_none()
    }

    /// Forgets series of which only a watermark is left, if the watermark is not above the given one.
    pub(super) fn forget(&mut self, series: Vec<(SeriesId, u64)>) {
        for (name, upto) in series {
            let shard = job_shard(&name, self.config.shards);
            let state = &self.parts[shard];
            let known = state.series.get(&name).is_some_and(|watermark| *watermark <= upto);
            let used = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.record.series == name);
            if state.is_owned() && known && !state.jobs.iter().any(used) {
                self.parts[shard].series.remove(&name);
                self.parts[shard].document.touch();
            }
        }
    }

    /// Final, recorded, and gone from its last inbox.
    fn is_over(&self, job: &Job) -> bool {
        let record = &job.record;
        let gone = |worker: &WorkerId| {
            self.inboxes.get(worker).is_none_or(|inbox| {
                inbox.is_known()
                    && !inbox.document.is_busy()
                    && inbox.entry(&record.id, record.attempt).is_none()
            })
        };
        record.state.is_final() && self.is_confirmed(job) && record.worker.as_ref().is_none_or(gone)
    }
}
