//! The dispatcher's bookkeeping: what enters the ledger, what is written, and what leaves it.

use super::super::shard::{Hold, RETRY_MAX_MS, Shard, Want};
use super::super::{JOB_OBJECT_MAX_WEIGHT, JOB_SERIES_MAX, JobRecord, JobState, LedgerDoc, job_shard};
use super::{DispatchEffect, DispatchRequest, Dispatcher, Job, SubmitAnswer};
use crate::id::{JobId, SeriesId, WorkerId};

use crate::election::RequestId;
use crate::mutants::Mutant;
use crate::time::Time;
use std::sync::Arc;

impl Dispatcher {
    /// Loads what a former leader left in a shard.
    pub(super) fn load(&mut self, now: Time, shard: usize, doc: LedgerDoc) {
        let shards = self.config.shards;
        for id in self.shards[shard].jobs.clone() {
            self.remove_job(&id);
        }
        self.shards[shard].series = doc.series.into_iter().collect();
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
        let archiving = &mut self.shards[shard].archiving;
        let Some((_, ids)) = archiving.take_if(|(flight, _)| *flight == id) else { return };
        if !done {
            self.archive_due = now + RETRY_MAX_MS;
            return;
        }
        for id in ids {
            self.remove_job(&id);
        }
        self.shards[shard].touch();
    }

    /// Admits submissions whose shard this leader owns.
    pub(super) fn admit(&mut self, out: &mut Vec<DispatchEffect>) {
        for (token, record) in std::mem::take(&mut self.waiting) {
            let shard = self.shard_of(&record);
            match self.shards[shard].hold {
                Hold::Unread | Hold::Found => self.waiting.push((token, record)),
                Hold::Blocked => out.push(DispatchEffect::Answered(token, SubmitAnswer::Blocked)),
                Hold::Owned => {
                    if let Some(answer) = self.create(shard, token, record) {
                        out.push(DispatchEffect::Answered(token, answer));
                    }
                }
            }
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
        let known = self.shards[shard].series.get(&record.series).copied();
        if record.watermark > 0 && known.is_some_and(|watermark| record.watermark <= watermark) {
            self.counts.duplicates += 1;
            return Some(SubmitAnswer::BelowWatermark);
        }
        let weight = self.shards[shard].weight;
        let crowded =
            record.watermark > 0 && known.is_none() && self.shards[shard].series.len() >= JOB_SERIES_MAX;
        if crowded || weight + record.weight() > JOB_OBJECT_MAX_WEIGHT {
            return Some(SubmitAnswer::Full);
        }
        if record.watermark > 0 && !Mutant::JobWatermarkNotKept.on() {
            self.shards[shard].series.insert(record.series.clone(), record.watermark);
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

    pub(super) fn write_ledger(&mut self, now: Time, out: &mut Vec<DispatchEffect>) {
        for shard in 0..self.shards.len() {
            let (request, nonce) = match self.shards[shard].want(now) {
                Want::Nothing => continue,
                Want::Read => (DispatchRequest::ReadLedger(shard), None),
                Want::Write(expect) => {
                    self.writes += 1;
                    let (nonce, epoch) = (self.nonce(), self.config.epoch);
                    let series =
                        self.shards[shard].series.iter().map(|(name, watermark)| (name.clone(), *watermark));
                    let here = self.shards[shard].jobs.iter().filter_map(|id| self.jobs.get(id));
                    let jobs = here.map(|job| job.record.clone()).collect();
                    let doc = LedgerDoc { epoch, nonce, series: series.collect(), jobs };
                    (DispatchRequest::WriteLedger(shard, doc, expect), Some(nonce))
                }
            };
            let id = self.next_request();
            self.shards[shard].sent(id, nonce);
            out.push(DispatchEffect::Request(id, request));
        }
    }

    /// Archives finished jobs in batches, once nothing of them is left in an inbox.
    pub(super) fn archive(&mut self, now: Time, out: &mut Vec<DispatchEffect>) {
        if now < self.archive_due {
            return;
        }
        for shard in 0..self.shards.len() {
            let state = &self.shards[shard];
            if !self.may_archive(state) || now < state.archive_at {
                continue;
            }
            let crowded = state.weight * 2 > JOB_OBJECT_MAX_WEIGHT;
            let here = state.jobs.iter().filter_map(|id| self.jobs.get(id));
            let mut done: Vec<&Job> = here.filter(|job| self.is_over(job)).collect();
            if done.len() <= self.config.keep_finished && !(crowded && done.len() >= 8) {
                // They are still in inboxes.
                let pause_ms = if crowded { self.config.fast_ms } else { self.config.slow_ms };
                self.shards[shard].archive_at = now + pause_ms;
                continue;
            }
            done.sort_by_key(|job| (job.state_since, job.record.watermark));
            done.truncate(done.len().div_ceil(2).max(1));
            let records: Vec<JobRecord> = done.iter().map(|job| job.record.clone()).collect();
            let ids = records.iter().map(|record| record.id.clone()).collect();
            let id = self.next_request();
            self.shards[shard].archiving = Some((id, ids));
            out.push(DispatchEffect::Request(id, DispatchRequest::Archive(shard, records)));
        }
    }

    /// Whether the shard holds more finished jobs than it keeps, or has little room left.
    pub(super) fn may_archive(&self, shard: &Shard) -> bool {
        let crowded = shard.weight * 2 > JOB_OBJECT_MAX_WEIGHT && shard.finished >= 8;
        let enough = crowded || shard.finished > self.config.keep_finished;
        enough && shard.hold == Hold::Owned && shard.archiving.is_none()
    }

    /// Forgets series of which only a watermark is left, if the watermark is not above the given one.
    pub(super) fn forget(&mut self, series: Vec<(SeriesId, u64)>) {
        for (name, upto) in series {
            let shard = job_shard(&name, self.config.shards);
            let state = &self.shards[shard];
            let known = state.series.get(&name).is_some_and(|watermark| *watermark <= upto);
            let used = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.record.series == name);
            if state.hold == Hold::Owned && known && !state.jobs.iter().any(used) {
                self.shards[shard].series.remove(&name);
                self.shards[shard].touch();
            }
        }
    }

    /// Final, recorded, and gone from its last inbox.
    fn is_over(&self, job: &Job) -> bool {
        let record = &job.record;
        let gone = |worker: &WorkerId| {
            self.inboxes.get(worker).is_none_or(|inbox| {
                inbox.known && inbox.flight.is_none() && inbox.entry(&record.id, record.attempt).is_none()
            })
        };
        record.state.is_final() && self.is_confirmed(job) && record.worker.as_ref().is_none_or(gone)
    }
}
