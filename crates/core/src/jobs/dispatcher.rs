//! The dispatcher: the leader's side of jobs. Each instance belongs to one epoch and ends with it.
//!
//! It batches: every input but [`Input::Wake`] is only taken in, and what follows from all of them is done at the next wake-up,
//! which it asks for at once. So a hundred submissions become one write.
//!
//! Not promised: that a dispatcher notices by itself that leadership ended. Its caller asks the guard right before each write,
//! and a newer leader's ledger ends it.

mod inboxes;
mod io;
mod ledger;
mod lifecycle;
mod table;

pub use io::{
    DispatchAnswer, DispatchCommand, DispatchCounts, DispatchEnd, DispatchOutput, DispatchRequest,
    InboxListed, JobUpdate, SubmitAnswer,
};

use super::assign::Assign;
use super::inbox::Inbox;
use super::part::Part;
use super::{JobRecord, JobState, LedgerDoc, RETRY, entry_weight, job_shard};
use crate::document::{DocumentAnswer, What, Writer};
use crate::election::Epoch;
use crate::id::{Incarnation, JobId, SeriesId, WorkerId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, RequestId};
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

/// The workers as last reported; see [`DispatchCommand::Workers`].
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
pub struct Dispatcher<A> {
    config: DispatcherConfig,
    assign: A,
    /// When the last step was taken, and whether it left something to do at the next wake-up.
    now: Time,
    unsettled: bool,
    parts: Vec<Part>,
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
    /// Not told yet.
    news: Vec<DispatchOutput>,
    counts: DispatchCounts,
    ended: bool,
    /// The last job for which nobody was found, if the pass did not reach all.
    tried: Option<JobId>,
    table: Table,
}

impl<A: Assign> Dispatcher<A> {
    /// A dispatcher that has not read anything yet.
    pub fn new(config: DispatcherConfig, assign: A) -> Dispatcher<A> {
        let writer = Writer::Owner { epoch: config.epoch, me: config.incarnation };
        Dispatcher {
            parts: vec![Part::new(writer); config.shards],
            poll_ms: config.fast_ms,
            config,
            assign,
            now: Time(0),
            unsettled: true,
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
            news: Vec::new(),
            counts: DispatchCounts::default(),
            ended: false,
            tried: None,
            table: Table::default(),
        }
    }

    /// Whether it may dispatch: it owns every shard that can be read, and the inboxes are known.
    pub fn is_ready(&self) -> bool {
        self.listed && !self.ended && self.has_shards()
    }

    fn has_shards(&self) -> bool {
        self.parts.iter().all(|part| part.is_owned() || part.is_blocked())
    }

    fn writer(&self) -> Writer {
        Writer::Owner { epoch: self.config.epoch, me: self.config.incarnation }
    }

    /// Whoever chooses workers.
    pub fn assign(&self) -> &A {
        &self.assign
    }

    /// The counters so far.
    pub fn counts(&self) -> DispatchCounts {
        self.counts
    }

    /// How many shards cannot be read.
    pub fn blocked_shards(&self) -> usize {
        self.parts.iter().filter(|part| part.is_blocked()).count()
    }

    /// The jobs as this leader knows them.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.values().map(|job| &job.record)
    }

    /// The jobs that wait for somebody to choose a worker for them.
    pub fn unassigned(&self, now: Time) -> impl Iterator<Item = &JobRecord> {
        let ready = self.is_ready();
        let waits = move |job: &&Job| {
            ready && job.record.state == JobState::Queued && now >= job.not_before && !job.record.cancel
        };
        let jobs = self.table.queued.iter().filter_map(|id| self.jobs.get(id));
        jobs.filter(waits).map(|job| &job.record).filter(|record| record.target.is_none())
    }

    /// Whether something has happened that may give waiting jobs a worker now. Limited to a useful rate.
    fn may_retry(&self, now: Time) -> bool {
        self.table.retry && now >= self.table.retry_at
    }

    /// How many jobs are queued, and how many are out at workers.
    pub fn open(&self) -> (usize, usize) {
        (self.table.queued.len(), self.table.in_flight)
    }

    /// The highest watermark of each series, for the shards this leader owns.
    pub fn series(&self) -> impl Iterator<Item = (&SeriesId, u64)> {
        let owned = self.parts.iter().filter(|part| part.is_owned());
        owned.flat_map(|part| part.series.iter().map(|(name, watermark)| (name, *watermark)))
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

    fn command(&mut self, now: Time, command: DispatchCommand<A::Facts>) {
        match command {
            DispatchCommand::Submit(records) => {
                self.table.retry = true;
                self.waiting.extend(records);
            }
            DispatchCommand::Forget(series) => self.forget(series),
            DispatchCommand::Cancel(id) => self.cancel(now, &id),
            DispatchCommand::Workers { list, listed, whole } => self.on_workers(now, list, listed, whole),
            DispatchCommand::Facts(facts) => {
                self.assign.learn(facts);
                (self.table.retry, self.table.retry_at) = (true, now);
            }
        }
    }

    fn answer(&mut self, now: Time, id: RequestId, answer: DispatchAnswer) {
        match answer {
            DispatchAnswer::Ledger(part, answer) => self.on_ledger(now, id, part, answer),
            DispatchAnswer::Inbox(worker, answer) => self.on_inbox(now, id, &worker, answer),
            DispatchAnswer::Listed(list) => self.on_listed(now, id, list),
            DispatchAnswer::Archived(part, done) => self.on_archived(now, id, part, done),
        }
    }

    fn on_ledger(&mut self, now: Time, id: RequestId, part: usize, answer: DocumentAnswer<LedgerDoc>) {
        let blocked = self.blocked_shards();
        let (settled, body) = self.parts[part].document.answered(now, id, answer);
        match settled.what {
            What::Loaded => self.load(now, part, body.unwrap_or_default()),
            What::Landed { .. } => self.confirmed(part),
            What::Superseded(_) | What::Overtaken(_) => self.ended = !Mutant::JobLedgerReclaimed.on(),
            What::Blocked { news, .. } => self.counts.rejected += u64::from(news),
            // If somebody removed it, all of it is written again from memory.
            What::Empty => self.parts[part].unconfirmed = self.parts[part].jobs.clone(),
            What::Nothing | What::Same | What::Shared | What::Failed { .. } | What::Removed => {}
        }
        if self.blocked_shards() != blocked {
            self.look_at_all_inboxes();
        }
    }

    fn on_listed(&mut self, now: Time, id: RequestId, list: Option<Vec<InboxListed>>) {
        if self.list != Some(id) {
            return;
        }
        self.list = None;
        let Some(list) = list else {
            self.list_due = now + RETRY.max_ms / 10;
            return;
        };
        let first = !std::mem::replace(&mut self.listed, true);
        let writer = self.writer();
        let mut unseen: BTreeSet<WorkerId> = self.inboxes.keys().cloned().collect();
        for line in list {
            unseen.remove(&line.worker);
            let misnames = self.list_misnames;
            let inbox = self.inboxes.entry(line.worker.clone()).or_insert_with(|| Inbox::new(writer));
            let same = match &line.version {
                Some(version) if !misnames => inbox.document.version() == Some(version),
                Some(_) | None => inbox.stamp == Some(line.stamp),
            };
            inbox.stamp = Some(line.stamp);
            // A request in flight brings something newer than the list.
            if !same && !inbox.document.is_busy() {
                inbox.said_changed |= inbox.document.version().is_some() && line.version.is_some();
                inbox.document.refresh();
            }
            if inbox.document.must_read() {
                self.table.inboxes.insert(line.worker);
            }
        }
        for worker in unseen {
            // It was there and is missing now: somebody removed it, or the list is older than the write.
            let idle = |inbox: &&mut Inbox| inbox.doc().is_some() && !inbox.document.is_busy();
            if let Some(inbox) = self.inboxes.get_mut(&worker).filter(idle) {
                inbox.document.refresh();
                self.table.inboxes.insert(worker);
            }
        }
        if first {
            for worker in self.table.out.keys() {
                self.inboxes.entry(worker.clone()).or_insert_with(|| Inbox::absent(writer));
                self.table.inboxes.insert(worker.clone());
            }
        }
        self.note_gone(now);
    }

    // ---- outputs ----

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn shard_of(&self, record: &JobRecord) -> usize {
        job_shard(&record.series, self.config.shards)
    }

    /// Whether the ledger on the store matches this job's record.
    fn is_confirmed(&self, job: &Job) -> bool {
        self.parts[self.shard_of(&job.record)].document.is_confirmed(job.revision)
    }

    /// Does what follows from everything that happened.
    fn advance(&mut self, now: Time, wall_ms: i64, out: &mut Vec<Out<Self>>) {
        if self.ended {
            return self.end(out);
        }
        self.admit(out);
        if self.is_ready() {
            self.sweep(now);
            self.judge(now);
            self.assign_waiting(now);
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

    fn end(&mut self, out: &mut Vec<Out<Self>>) {
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(token, _)| token);
        let tokens = self.jobs.values_mut().flat_map(|job| std::mem::take(&mut job.tokens));
        let tokens: Vec<u64> = waiting.chain(tokens.map(|(token, _)| token)).collect();
        let answer = |token| Effect::Output(DispatchOutput::Answered(token, SubmitAnswer::Ended));
        out.extend(tokens.into_iter().map(answer));
        out.push(Effect::Output(DispatchOutput::Ended(DispatchEnd::Superseded)));
    }

    fn send_list(&mut self, out: &mut Vec<Out<Self>>) {
        let id = self.next_request();
        self.list = Some(id);
        out.push(Effect::Request(id, DispatchRequest::ListInboxes));
    }

    /// Reports what is in the ledger and what was seen in inboxes.
    fn tell(&mut self, out: &mut Vec<Out<Self>>) {
        for id in std::mem::take(&mut self.table.untold) {
            let Some(job) = self.jobs.get(&id) else { continue };
            // Unconfirmed changes come back here once they are confirmed.
            let confirmed = self.is_confirmed(job);
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let record = &job.record;
            if confirmed {
                for (token, answer) in job.tokens.drain(..) {
                    self.news.push(DispatchOutput::Answered(token, answer));
                }
            }
            let now = Some((record.state, record.attempt));
            let seen = matches!(record.state, JobState::Acked | JobState::Running);
            if job.told != now && (confirmed || seen) {
                job.told = now;
                self.counts.finished += u64::from(record.state.is_final());
                self.news.push(DispatchOutput::Update(JobUpdate {
                    id: record.id.clone(),
                    series: record.series.clone(),
                    state: record.state,
                    attempt: record.attempt,
                    worker: record.worker.clone(),
                    reason: record.reason.clone(),
                    result: record.result.clone(),
                    late: None,
                }));
            }
        }
        out.extend(self.news.drain(..).map(Effect::Output));
    }

    /// When something is due by time alone. Whatever was due earlier is done, or waits for something else.
    fn due_at(&self) -> Option<Time> {
        let now = self.now;
        let parts = self.parts.iter().filter(|part| !part.document.is_busy()).flat_map(|part| {
            [Some(part.document.due()), part.stale_since.map(|since| since + self.config.slow_ms)]
        });
        let archives = self.parts.iter().map(|part| self.may_archive(part).then_some(part.archive_at));
        let list = (!self.listed && self.list.is_none()).then_some(self.list_due);
        let held = self.table.queued.len() > self.table.fresh.len();
        let retry = (self.table.retry && held).then_some(self.table.retry_at);
        let timers = [first_after(&self.table.inbox_timers, now), first_after(&self.table.job_timers, now)];
        let times = timers.into_iter().chain([list, retry, self.poll_at, Some(self.archive_due)]);
        times.chain(parts).chain(archives).flatten().filter(|at| *at > now).min()
    }
}

impl<A: Assign> Machine for Dispatcher<A> {
    type Command = DispatchCommand<A::Facts>;
    type Request = DispatchRequest;
    type Output = DispatchOutput;

    fn handle(&mut self, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>) {
        self.now = now.at;
        self.unsettled = !matches!(input, Input::Wake);
        match input {
            Input::Wake => self.advance(now.at, now.wall_ms, out),
            // Submissions are still answered when it has ended.
            Input::Command(DispatchCommand::Submit(records)) if self.ended => self.waiting.extend(records),
            Input::Command(_) | Input::Answer(..) if self.ended => {}
            Input::Command(command) => self.command(now.at, command),
            Input::Answer(id, answer) => self.answer(now.at, id, answer),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match (self.unsettled, self.ended) {
            (true, _) => Some(self.now),
            (false, true) => None,
            (false, false) => self.due_at(),
        }
    }
}
