//! The dispatcher's bookkeeping: what comes into the ledger, what is written of it, what leaves it.

use super::super::shard::{Hold, RETRY_MAX_MS, Want};
use super::super::{LedgerDoc, TASK_OBJECT_MAX_WEIGHT, TASK_SERIES_MAX, TaskRecord, TaskState, task_shard};
use super::{DispatchEffect, DispatchRequest, Dispatcher, SubmitAnswer, Task};
use crate::id::NodeId;
use crate::io::RequestId;
use crate::mutant::Mutant;
use crate::time::Time;
use std::sync::Arc;

impl Dispatcher {
    /// What a former leader left behind.
    pub(super) fn load(&mut self, now: Time, shard: usize, doc: LedgerDoc) {
        let shards = self.config.shards;
        self.tasks.retain(|_, task| task_shard(&task.record.series, shards) != shard);
        self.shards[shard].series = doc.series.into_iter().collect();
        for record in doc.tasks {
            if task_shard(&record.series, shards) != shard {
                self.counts.rejected += 1;
                continue;
            }
            let told = Some((record.state, record.attempt));
            let task = Task {
                record,
                revision: 0,
                known_since: now,
                state_since: now,
                waits_since: now,
                not_before: now,
                take_back: None,
                tokens: Vec::new(),
                told,
            };
            self.tasks.insert(task.record.id.clone(), task);
        }
    }

    pub(super) fn on_archived(&mut self, now: Time, id: RequestId, shard: usize, done: bool) {
        let archiving = &mut self.shards[shard].archiving;
        let Some((_, ids)) = archiving.take_if(|(flight, _)| *flight == id) else { return };
        if !done {
            self.archive_due = now + RETRY_MAX_MS;
            return;
        }
        for id in ids {
            self.tasks.remove(&id);
        }
        self.shards[shard].touch();
    }

    /// Takes submissions whose shard is this leader's own.
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

    fn create(&mut self, shard: usize, token: u64, record: TaskRecord) -> Option<SubmitAnswer> {
        if let Some(task) = self.tasks.get_mut(&record.id) {
            self.counts.duplicates += 1;
            // Its own shard decides; with another series it may be another one.
            task.tokens.push((token, SubmitAnswer::Exists));
            return None;
        }
        let known = self.shards[shard].series.get(&record.series).copied();
        if record.mark > 0 && known.is_some_and(|mark| record.mark <= mark) {
            self.counts.duplicates += 1;
            return Some(SubmitAnswer::BelowMark);
        }
        let here = self.tasks.values().filter(|task| self.shard_of(&task.record) == shard);
        let weight: usize = here.map(|task| task.record.weight()).sum();
        let crowded =
            record.mark > 0 && known.is_none() && self.shards[shard].series.len() >= TASK_SERIES_MAX;
        if crowded || weight + record.weight() > TASK_OBJECT_MAX_WEIGHT {
            return Some(SubmitAnswer::Full);
        }
        if record.mark > 0 && !self.has(Mutant::TaskMarkNotKept) {
            self.shards[shard].series.insert(record.series.clone(), record.mark);
        }
        let revision = self.shards[shard].touch();
        let record = TaskRecord {
            state: TaskState::Queued,
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
        let task = Task {
            revision,
            known_since: Time(u64::MAX),
            state_since: Time(u64::MAX),
            waits_since: Time(u64::MAX),
            not_before: Time(0),
            take_back: None,
            tokens: vec![(token, SubmitAnswer::Created)],
            told: None,
            record,
        };
        self.tasks.insert(task.record.id.clone(), task);
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
                    let series = self.shards[shard].series.iter().map(|(name, mark)| (name.clone(), *mark));
                    let here = self.tasks().filter(|record| self.shard_of(record) == shard);
                    let doc =
                        LedgerDoc { epoch, nonce, series: series.collect(), tasks: here.cloned().collect() };
                    (DispatchRequest::WriteLedger(shard, doc, expect), Some(nonce))
                }
            };
            let id = self.next_request();
            self.shards[shard].sent(id, nonce);
            out.push(DispatchEffect::Request(id, request));
        }
    }

    /// Puts finished tasks away, in batches, once nothing of them stands in an inbox.
    pub(super) fn archive(&mut self, now: Time, out: &mut Vec<DispatchEffect>) {
        if now < self.archive_due {
            return;
        }
        for shard in 0..self.shards.len() {
            if self.shards[shard].hold != Hold::Owned || self.shards[shard].archiving.is_some() {
                continue;
            }
            let here = |task: &&Task| self.shard_of(&task.record) == shard;
            let weight: usize = self.tasks.values().filter(here).map(|t| t.record.weight()).sum();
            let mut done: Vec<&Task> = self.tasks.values().filter(here).filter(|t| self.is_over(t)).collect();
            let crowded = weight * 2 > TASK_OBJECT_MAX_WEIGHT && done.len() >= 8;
            if done.len() <= self.config.keep_finished && !crowded {
                continue;
            }
            done.sort_by_key(|task| (task.state_since, task.record.mark));
            done.truncate(done.len().div_ceil(2).max(1));
            let records: Vec<TaskRecord> = done.iter().map(|task| task.record.clone()).collect();
            let ids = records.iter().map(|record| record.id.clone()).collect();
            let id = self.next_request();
            self.shards[shard].archiving = Some((id, ids));
            out.push(DispatchEffect::Request(id, DispatchRequest::Archive(shard, records)));
        }
    }

    /// Final, recorded, and gone from its last inbox.
    fn is_over(&self, task: &Task) -> bool {
        let record = &task.record;
        let gone = |worker: &NodeId| {
            self.inboxes.get(worker).is_none_or(|inbox| {
                inbox.known && inbox.flight.is_none() && inbox.entry(&record.id, record.attempt).is_none()
            })
        };
        record.state.is_final() && self.is_confirmed(task) && record.worker.as_ref().is_none_or(gone)
    }
}
