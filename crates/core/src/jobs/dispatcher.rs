//! The dispatcher: the leader's side of jobs. Each instance belongs to one epoch and ends with it.
//!
//! [`handle`](Dispatcher::handle) takes what happened; [`advance`](Dispatcher::advance) then returns what to do. Between the
//! two, the caller may assign waiting jobs. Not promised: that a dispatcher notices by itself that leadership ended. Its
//! caller asks the guard right before each write, and a newer leader's ledger ends it.

mod inboxes;
mod io;
mod ledger;
mod lifecycle;
mod table;

pub use io::{
    DispatchCounts, DispatchEffect, DispatchEnd, DispatchInput, DispatchRequest, InboxListed, InboxRead,
    JobUpdate, LedgerRead, SubmitAnswer,
};

use super::inbox::Inbox;
use super::shard::{Hold, RETRY_MAX_MS, Settled, Shard};
use super::{JobRecord, JobState, entry_weight, job_shard};
use crate::election::{Epoch, RequestId};
use crate::id::{Incarnation, Nonce};
use crate::id::{JobId, SeriesId, WorkerId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use table::{Table, due_by, first_after};

/// The parameters of a dispatcher.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DispatcherConfig {
    /// This life of the dispatcher; new every time it starts.
    pub incarnation: Incarnation,
    /// The epoch it leads in.
    pub epoch: Epoch,
    /// Number of ledger shards; must be the same for every leader of a namespace, forever.
    pub shards: usize,
    /// Most entries in an inbox.
    pub entries_max: usize,
    /// How often it looks while something changes.
    pub fast_ms: u64,
    /// How often it looks while nothing changes.
    pub slow_ms: u64,
    /// How long an entry may stay unclaimed before it is withdrawn.
    pub claim_timeout_ms: u64,
    /// How much longer than the timeout it waits for a running attempt, so that the worker reports first.
    pub margin_ms: u64,
    /// How long a worker must have been missing from the registry before its inbox is removed. Must be longer than any
    /// request can be in flight: if a former leader's write landed after that, only the worker's fence would refuse it.
    pub retire_ms: u64,
    /// Finished jobs a shard keeps before they are archived.
    pub keep_finished: usize,
}

/// Why an entry is taken out of an inbox unclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Withdraw {
    Requeue,
    Expire,
    Cancel,
}

/// The workers as last reported; see [`DispatchInput::Workers`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Registry {
    list: BTreeMap<WorkerId, bool>,
    listed: bool,
    whole: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Job {
    record: JobRecord,
    /// The shard's revision when the job last changed.
    revision: u64,
    known_since: Time,
    state_since: Time,
    /// Since when it waits to be claimed. The wait continues while it is dispatched but not claimed.
    waits_since: Time,
    not_before: Time,
    withdraw: Option<Withdraw>,
    tokens: Vec<(u64, SubmitAnswer)>,
    told: Option<(JobState, u32)>,
    /// When to judge it next, going by time alone.
    timer: Option<Time>,
}

/// Hands out jobs for one leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dispatcher {
    config: DispatcherConfig,
    shards: Vec<Shard>,
    jobs: BTreeMap<JobId, Job>,
    inboxes: BTreeMap<WorkerId, Inbox>,
    /// Submissions to shards that this leader does not own yet.
    waiting: Vec<(u64, JobRecord)>,
    workers: Option<Registry>,
    gone_since: BTreeMap<WorkerId, Time>,
    list: Option<RequestId>,
    list_due: Time,
    listed: bool,
    /// Lists show other versions than reads do, so their stamps are compared instead.
    list_misnames: bool,
    poll_at: Option<Time>,
    poll_ms: u64,
    /// When a look last found something, and how many empty looks may still stay quick.
    moved_at: Option<Time>,
    quick_looks: u8,
    archive_due: Time,
    requests: u64,
    writes: u64,
    updates: Vec<JobUpdate>,
    counts: DispatchCounts,
    /// How long jobs waited for their first claim, not reported yet.
    claim_times: Vec<u64>,
    ended: bool,
    table: Table,
}

impl Dispatcher {
    /// A dispatcher that has not read anything yet.
    pub fn new(config: DispatcherConfig) -> Dispatcher {
        Dispatcher {
            shards: vec![Shard::new(); config.shards],
            poll_ms: config.fast_ms,
            config,
            jobs: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            waiting: Vec::new(),
            workers: None,
            gone_since: BTreeMap::new(),
            list: None,
            list_due: Time(0),
            listed: false,
            list_misnames: false,
            poll_at: None,
            moved_at: None,
            quick_looks: 0,
            archive_due: Time(0),
            requests: 0,
            writes: 0,
            updates: Vec::new(),
            counts: DispatchCounts::default(),
            claim_times: Vec::new(),
            ended: false,
            table: Table::default(),
        }
    }

    /// Whether it may dispatch: it owns every shard that can be read, and the inboxes are known.
    pub fn is_ready(&self) -> bool {
        self.listed && !self.ended && self.has_shards()
    }

    fn has_shards(&self) -> bool {
        self.shards.iter().all(|shard| matches!(shard.hold, Hold::Owned | Hold::Blocked))
    }

    /// The counters so far.
    pub fn counts(&self) -> DispatchCounts {
        self.counts
    }

    /// How long jobs took from submission to their first claim, in milliseconds. Returns each of them once.
    pub fn take_claim_times(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.claim_times)
    }

    /// How many shards cannot be read.
    pub fn blocked_shards(&self) -> usize {
        self.shards.iter().filter(|shard| shard.hold == Hold::Blocked).count()
    }

    /// The jobs as this leader knows them.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values().map(|job| &job.record)
    }

    /// The jobs that wait for somebody to choose a worker for them.
    pub fn unassigned(&self, now: Time) -> impl Iterator<Item = &JobRecord> {
        self.waiting(now, self.table.queued.iter())
    }

    /// Waiting jobs for which nobody has looked for a worker yet.
    pub fn unassigned_new(&self, now: Time) -> impl Iterator<Item = &JobRecord> {
        self.waiting(now, self.table.fresh.iter().chain(due_by(&self.table.job_timers, now)))
    }

    fn waiting<'a>(
        &'a self,
        now: Time,
        ids: impl Iterator<Item = &'a JobId>,
    ) -> impl Iterator<Item = &'a JobRecord> {
        let ready = self.is_ready();
        let waits = move |job: &&Job| {
            ready && job.record.state == JobState::Queued && now >= job.not_before && !job.record.cancel
        };
        let jobs = ids.filter_map(|id| self.jobs.get(id));
        jobs.filter(waits).map(|job| &job.record).filter(|record| record.target.is_none())
    }

    /// Whether something has happened that may give waiting jobs a worker now. Limited to a useful rate.
    pub fn may_retry(&self, now: Time) -> bool {
        self.table.retry && now >= self.table.retry_at
    }

    /// Workers whose load may have changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<WorkerId> {
        std::mem::take(&mut self.table.touched)
    }

    /// How many jobs are queued, and how many are out at workers.
    pub fn open(&self) -> (usize, usize) {
        (self.table.queued.len(), self.table.in_flight)
    }

    /// The highest watermark of each series, for the shards this leader owns.
    pub fn series(&self) -> impl Iterator<Item = (&SeriesId, u64)> {
        let owned = self.shards.iter().filter(|shard| shard.hold == Hold::Owned);
        owned.flat_map(|shard| shard.series.iter().map(|(name, watermark)| (name, *watermark)))
    }

    /// How many attempts are out at this worker.
    pub fn in_flight(&self, worker: &WorkerId) -> usize {
        self.table.out.get(worker).map_or(0, BTreeSet::len)
    }

    fn out_at(&self, worker: &WorkerId) -> impl Iterator<Item = &Job> {
        let ids = self.table.out.get(worker).into_iter().flatten();
        ids.filter_map(|id| self.jobs.get(id))
    }

    fn is_active(&self, worker: &WorkerId) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.list.get(worker) == Some(&true))
    }

    // ---- inputs ----

    /// Takes one input. Follow it with [`advance`](Dispatcher::advance).
    pub fn handle(&mut self, now: Time, input: DispatchInput) {
        if self.ended {
            // Submissions are still answered, by the next advance.
            if let DispatchInput::Submit(records) = input {
                self.waiting.extend(records);
            }
            return;
        }
        match input {
            DispatchInput::Wake => {}
            DispatchInput::Submit(records) => {
                self.table.retry = true;
                self.waiting.extend(records);
            }
            DispatchInput::Forget(series) => self.forget(series),
            DispatchInput::Cancel(id) => self.cancel(now, &id),
            DispatchInput::Assign { id, worker } => {
                self.assign(now, &id, &worker);
            }
            DispatchInput::Explain { id, reason } => self.explain(now, &id, reason),
            DispatchInput::Workers { list, listed, whole } => self.on_workers(now, list, listed, whole),
            DispatchInput::Ledger(id, shard, read) => self.on_ledger(now, id, shard, read),
            DispatchInput::LedgerWritten(id, shard, answer) => {
                if self.shards[shard].flight.as_ref().is_some_and(|(flight, _)| *flight == id) {
                    let settled = self.shards[shard].on_written(now, answer);
                    self.settle(now, shard, settled);
                }
            }
            DispatchInput::Listed(id, list) => self.on_listed(now, id, list),
            DispatchInput::Inbox(id, worker, read) => self.on_inbox(now, id, &worker, read),
            DispatchInput::InboxWritten(id, worker, answer) => {
                self.on_inbox_written(now, id, &worker, answer);
            }
            DispatchInput::InboxRemoved(id, worker, done) => self.on_inbox_removed(now, id, &worker, done),
            DispatchInput::Archived(id, shard, done) => self.on_archived(now, id, shard, done),
        }
    }

    fn on_ledger(&mut self, now: Time, id: RequestId, shard: usize, read: LedgerRead) {
        let (epoch, mine, blocked) = (self.config.epoch, self.nonce(), self.blocked_shards());
        let state = &mut self.shards[shard];
        if state.flight.as_ref().is_none_or(|(flight, _)| *flight != id) {
            return;
        }
        let settled = match read {
            LedgerRead::Found(doc, version) => {
                let newer = doc.epoch > epoch;
                state.on_found(mine, doc, version, newer)
            }
            LedgerRead::Absent => state.on_absent(),
            LedgerRead::Unreadable => {
                if state.on_unreadable(now) {
                    self.counts.rejected += 1;
                }
                Settled::Nothing
            }
            LedgerRead::Unavailable => {
                state.on_unavailable(now);
                Settled::Nothing
            }
        };
        self.settle(now, shard, settled);
        if self.blocked_shards() != blocked {
            self.look_at_all_inboxes();
        }
    }

    fn settle(&mut self, now: Time, shard: usize, settled: Settled) {
        match settled {
            Settled::Nothing => {}
            Settled::Confirmed => self.confirmed(shard),
            Settled::Superseded => self.ended = !Mutant::JobLedgerReclaimed.on(),
            Settled::Loaded(doc) => {
                self.load(now, shard, doc);
                if Mutant::JobLedgerNotAdopted.on() {
                    self.shards[shard].hold = Hold::Owned;
                    self.shards[shard].confirmed = self.shards[shard].revision;
                }
            }
        }
    }

    fn on_listed(&mut self, now: Time, id: RequestId, list: Option<Vec<InboxListed>>) {
        if self.list != Some(id) {
            return;
        }
        self.list = None;
        let Some(list) = list else {
            self.list_due = now + RETRY_MAX_MS / 10;
            return;
        };
        let first = !std::mem::replace(&mut self.listed, true);
        let mut unseen: BTreeSet<WorkerId> = self.inboxes.keys().cloned().collect();
        for line in list {
            unseen.remove(&line.worker);
            let misnames = self.list_misnames;
            let inbox = self.inboxes.entry(line.worker.clone()).or_insert_with(Inbox::new);
            let same = match &line.version {
                Some(version) if !misnames => inbox.version.as_ref() == Some(version),
                Some(_) | None => inbox.stamp == Some(line.stamp),
            };
            inbox.stamp = Some(line.stamp);
            // A request in flight brings something newer than the list.
            let changed = !same && inbox.flight.is_none();
            inbox.said_changed |= changed && inbox.version.is_some() && line.version.is_some();
            inbox.must_read |= changed;
            if inbox.must_read {
                self.table.inboxes.insert(line.worker);
            }
        }
        for worker in unseen {
            // It was there and is missing now: somebody removed it, or the list is older than the write.
            let inbox = self.inboxes.get_mut(&worker).filter(|i| i.doc.is_some() && i.flight.is_none());
            if let Some(inbox) = inbox {
                inbox.must_read = true;
                self.table.inboxes.insert(worker);
            }
        }
        if first {
            for worker in self.table.out.keys() {
                self.inboxes.entry(worker.clone()).or_insert_with(Inbox::absent);
                self.table.inboxes.insert(worker.clone());
            }
        }
        self.note_gone(now);
    }

    // ---- outputs ----

    fn nonce(&self) -> Nonce {
        Nonce { incarnation: self.config.incarnation, sequence: self.writes }
    }

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn shard_of(&self, record: &JobRecord) -> usize {
        job_shard(&record.series, self.config.shards)
    }

    /// Whether the ledger on the store matches this job's record.
    fn is_confirmed(&self, job: &Job) -> bool {
        job.revision <= self.shards[self.shard_of(&job.record)].confirmed
    }

    /// Pushes what to do now. `wall_ms` is the wall clock, for stamps that only people and fences read.
    pub fn advance(&mut self, now: Time, wall_ms: i64, out: &mut Vec<DispatchEffect>) {
        if self.ended {
            return self.end(out);
        }
        self.admit(out);
        if self.is_ready() {
            self.sweep(now);
            self.judge(now);
            self.assign_targets(now);
            let again: Vec<JobId> = self.table.jobs.iter().cloned().collect();
            again.iter().for_each(|id| self.retime(now, id));
        }
        self.keep_reasons(now);
        self.write_ledger(now, out);
        if self.has_shards() && !self.listed && self.list.is_none() && now >= self.list_due {
            self.send_list(out);
        }
        if self.is_ready() {
            self.poll(now, out);
            self.write_inboxes(now, wall_ms, out);
            self.archive(now, out);
        }
        self.tell(out);
    }

    fn end(&mut self, out: &mut Vec<DispatchEffect>) {
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(token, _)| token);
        let tokens = self.jobs.values_mut().flat_map(|job| std::mem::take(&mut job.tokens));
        let tokens: Vec<u64> = waiting.chain(tokens.map(|(token, _)| token)).collect();
        out.extend(tokens.into_iter().map(|token| DispatchEffect::Answered(token, SubmitAnswer::Ended)));
        out.push(DispatchEffect::Ended(DispatchEnd::Superseded));
    }

    fn send_list(&mut self, out: &mut Vec<DispatchEffect>) {
        let id = self.next_request();
        self.list = Some(id);
        out.push(DispatchEffect::Request(id, DispatchRequest::ListInboxes));
    }

    /// Reports what is in the ledger and what was seen in inboxes.
    fn tell(&mut self, out: &mut Vec<DispatchEffect>) {
        for id in std::mem::take(&mut self.table.untold) {
            let Some(job) = self.jobs.get(&id) else { continue };
            // Unconfirmed changes come back here once they are confirmed.
            let confirmed = self.is_confirmed(job);
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let record = &job.record;
            if confirmed {
                for (token, answer) in job.tokens.drain(..) {
                    out.push(DispatchEffect::Answered(token, answer));
                }
            }
            let now = Some((record.state, record.attempt));
            let seen = matches!(record.state, JobState::Acked | JobState::Running);
            if job.told != now && (confirmed || seen) {
                job.told = now;
                self.counts.finished += u64::from(record.state.is_final());
                self.updates.push(JobUpdate {
                    id: record.id.clone(),
                    series: record.series.clone(),
                    state: record.state,
                    attempt: record.attempt,
                    worker: record.worker.clone(),
                    reason: record.reason.clone(),
                    result: record.result.clone(),
                    late: None,
                });
            }
        }
        out.extend(self.updates.drain(..).map(DispatchEffect::Update));
    }

    /// When to call [`advance`](Dispatcher::advance) again; `None` if nothing waits for time.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        if self.ended {
            return None;
        }
        let shards = self.shards.iter().filter(|shard| shard.flight.is_none());
        let shards = shards.flat_map(|shard| {
            let stale = shard.stale_since.map(|since| since + self.config.slow_ms);
            [Some(shard.due), stale].into_iter().flatten()
        });
        let archives = self.shards.iter().filter(|shard| self.may_archive(shard)).map(|s| s.archive_at);
        let timers = [first_after(&self.table.inbox_timers, now), first_after(&self.table.job_timers, now)];
        let list = (!self.listed && self.list.is_none()).then_some(self.list_due);
        let held = self.table.queued.len() > self.table.fresh.len();
        let retry = (self.table.retry && held).then_some(self.table.retry_at);
        let times = timers.into_iter().chain([list, retry, self.poll_at]).flatten();
        // Whatever was due earlier is done, or waits for something other than time.
        times.chain(shards).chain(archives).chain([self.archive_due]).filter(|at| *at > now).min()
    }
}
