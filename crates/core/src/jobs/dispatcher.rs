//! The dispatcher: the leader's side of jobs. Each instance belongs to one epoch and ends with it.
//!
//! It batches: every input but [`Input::Wake`] is only taken in, and what follows from all of them is done at the next wake-up,
//! which it asks for at once. So a hundred submissions become one write.
//!
//! Not promised: that a dispatcher notices by itself that leadership ended. Its caller asks the guard right before each write,
//! and a newer leader's ledger ends it.

mod assignment;
mod io;
#[cfg(test)]
mod tests;

use io::Effects;
pub use io::{
    DispatchAnswer, DispatchCommand, DispatchCounts, DispatchEnd, DispatchOutput, DispatchRequest,
    DispatcherConfig, InboxListed, JobUpdate, SubmitAnswer,
};
pub(super) use io::{Sink, View};

use super::assign::Assign;
use super::history::{History, HistoryNews};
use super::inboxes::{InboxNews, Inboxes, Report, report};
use super::ledger::{Ledger, LedgerNews};
use super::lifecycle::{AtWorker, Judgement, conclude, due_at, judge};
use super::model::{InboxDoc, JobRecord, JobState, LateResult, LedgerDoc, Outcome, OutcomeKind};
use super::notices::{Notices, NoticesNews};
use super::orders::{Order, Orders, OrdersDoc, OrdersNews};
use super::table::{AttemptEnd, Class, Clocks, Job, Table, Transition};
use super::workers::Workers;
use crate::document::{DocumentAnswer, State, Writer};
use crate::election::Epoch;
use crate::id::{JobId, SeriesId, WorkerId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dispatcher<A> {
    config: DispatcherConfig,
    assign: A,
    table: Table,
    ledger: Ledger,
    inboxes: Inboxes,
    workers: Workers,
    orders: Orders,
    history: History,
    notices: Notices,
    /// Jobs to cancel once it is known which endings are recorded.
    cancels: Vec<JobId>,
    /// The count of changes elsewhere, as it was last told.
    changes_told: Option<u64>,
    /// Submissions to shards that this leader does not own yet.
    unadmitted: Vec<(u64, JobRecord)>,
    /// Why the jobs of a class wait, as they were told.
    reasons: BTreeMap<Class, String>,
    /// Nobody looks for workers before this time.
    retry_at: Time,
    /// When the last step was taken, and whether it left something to do at the next wake-up.
    now: Time,
    wall_ms: i64,
    unsettled: bool,
    requests: u64,
    untold_outputs: Vec<DispatchOutput>,
    counts: DispatchCounts,
    ended: bool,
}

impl<A: Assign> Dispatcher<A> {
    pub fn new(config: DispatcherConfig, assign: A) -> Dispatcher<A> {
        let writer = Writer::Owner { epoch: config.epoch, me: config.incarnation };
        Dispatcher {
            assign,
            table: Table::new(config.epoch, config.shards),
            ledger: Ledger::new(writer, config.shards),
            inboxes: Inboxes::new(writer, &config),
            workers: Workers::default(),
            orders: Orders::new(writer),
            history: History::new(writer, config.incarnation, &config.history),
            notices: Notices::new(writer, config.notify_all),
            cancels: Vec::new(),
            changes_told: None,
            config,
            unadmitted: Vec::new(),
            reasons: BTreeMap::new(),
            retry_at: Time(0),
            now: Time(0),
            wall_ms: 0,
            unsettled: true,
            requests: 0,
            untold_outputs: Vec::new(),
            counts: DispatchCounts::default(),
            ended: false,
        }
    }

    /// Whether it may dispatch: it owns every shard that can be read, and history and inboxes are known.
    pub fn is_ready(&self) -> bool {
        self.inboxes.are_known() && !self.ended && self.may_end_jobs()
    }

    /// Whether a job may end.
    fn may_end_jobs(&self) -> bool {
        self.ledger.is_adopted() && self.history.is_known()
    }

    /// Rows of the history that had to be dropped before their time.
    pub fn history_dropped(&self) -> u64 {
        self.history.dropped()
    }

    /// How many notices wait to be delivered.
    pub fn notices(&self) -> usize {
        self.notices.waiting()
    }

    pub fn assign(&self) -> &A {
        &self.assign
    }

    pub fn counts(&self) -> DispatchCounts {
        let (delivered, undelivered) = self.notices.counts();
        DispatchCounts { delivered, undelivered, ..self.counts }
    }

    /// How many shards cannot be read.
    pub fn blocked_shards(&self) -> usize {
        self.ledger.blocked()
    }

    pub fn jobs(&self) -> impl Iterator<Item = &JobRecord> {
        self.table.iter().map(Job::record)
    }

    /// The jobs that wait for somebody to choose a worker for them.
    pub fn unassigned(&self, now: Time) -> impl Iterator<Item = &JobRecord> {
        let jobs = self.is_ready().then(|| self.table.iter()).into_iter().flatten();
        let waiting = jobs.filter(move |job| now >= job.times().not_before).map(Job::record);
        waiting.filter(|record| record.state == JobState::Queued && record.target.is_none())
    }

    /// How many jobs are queued, and how many are out at workers.
    pub fn open(&self) -> (usize, usize) {
        (self.table.index().queued, self.table.index().in_flight)
    }

    /// The highest watermark of each series, for the shards this leader owns.
    pub fn series(&self) -> impl Iterator<Item = (&SeriesId, u64)> {
        self.ledger.series()
    }

    pub fn in_flight(&self, worker: &WorkerId) -> usize {
        self.table.load_of(worker)
    }

    /// Workers that take no more jobs, as far as their inboxes were seen.
    pub fn draining(&self) -> impl Iterator<Item = &WorkerId> {
        self.inboxes.closed()
    }

    /// Whether an inbox has room for one more job with a payload of this many bytes.
    pub fn has_room(&self, worker: &WorkerId, payload: usize) -> bool {
        self.inboxes.has_room(&self.table, worker, payload, self.config.entries_max)
    }

    // ---- commands ----

    fn command(&mut self, now: Time, command: DispatchCommand<A::Facts>) {
        match command {
            DispatchCommand::Submit(records) => {
                self.table.changes.retry = true;
                self.unadmitted.extend(records);
            }
            DispatchCommand::Forget(series) => {
                for (name, upto) in series {
                    self.ledger.forget(&self.table, &name, upto);
                }
            }
            DispatchCommand::Cancel(id) => self.cancels.push(id),
            DispatchCommand::Notify(token, notice) => self.notices.add(token, notice),
            DispatchCommand::Workers { list, listed, whole } => self.on_workers(now, list, listed, whole),
            DispatchCommand::Facts(facts) => {
                self.assign.learn(facts);
                self.table.changes.retry = true;
                self.retry_at = now;
            }
        }
    }

    fn cancel(&mut self, now: Time, id: &JobId) {
        let Some(JobRecord { state, cancel, .. }) = self.table.get(id).map(Job::record) else { return };
        let (queued, over) = (*state == JobState::Queued, state.is_final());
        if over || *cancel {
            return;
        }
        self.table.ask_to_cancel(&mut self.ledger, id);
        if queued {
            let reason = "cancelled before it was dispatched".to_owned();
            let end = Transition::End { state: JobState::Cancelled, attempt: AttemptEnd::None, reason };
            self.change(now, id, end);
        }
    }

    fn on_workers(&mut self, now: Time, list: BTreeMap<WorkerId, bool>, listed: bool, whole: bool) {
        self.table.changes.loads.extend(list.keys().cloned());
        let before = self.workers.report(list, listed, whole);
        let is_new = |worker: &WorkerId| before.get(worker) != Some(&true);
        if self.assign.goes_by_inboxes() && self.workers.active().any(is_new) {
            self.inboxes.seek(now);
        }
        self.table.changes.loads.extend(before.into_keys());
        self.workers.forget_gone(|worker| self.inboxes.get(worker).is_some());
        self.note_gone(now);
    }

    /// Updates who is gone, by the registry's last report. Also covers inboxes found since.
    fn note_gone(&mut self, now: Time) {
        if !self.workers.are_known() {
            return;
        }
        for worker in self.workers.note_gone(now, self.inboxes.workers()) {
            self.table.judge_again(&worker);
            self.inboxes.mark([worker]);
        }
        self.inboxes.note_unheard_of(now, &self.workers);
        self.table.changes.retry = true;
    }

    // ---- answers ----

    fn answer(&mut self, now: Time, id: RequestId, answer: DispatchAnswer) {
        match answer {
            DispatchAnswer::Ledger(shard, answer) => self.on_ledger(now, id, shard, answer),
            DispatchAnswer::Inbox(worker, answer) => self.on_inbox(now, id, &worker, answer),
            DispatchAnswer::Listed(list) => {
                let busy = self.table.index().out.keys().cloned();
                if self.inboxes.answered_list(now, id, list, busy) {
                    self.note_gone(now);
                }
            }
            DispatchAnswer::Orders(answer) => self.on_orders(now, id, answer),
            DispatchAnswer::HistoryHead(answer) => {
                let news = self.history.answered_head(now, id, answer);
                self.table.skip_endings(self.history.last_ending(self.config.epoch));
                self.on_history(&news);
            }
            DispatchAnswer::HistoryPart(part, answer) => {
                let news = self.history.answered_part(now, id, part, answer);
                self.on_history(&news);
            }
            DispatchAnswer::Kept(done) => {
                let Dispatcher { config, table, workers, history, wall_ms, .. } = self;
                let view = View { now, wall_ms: *wall_ms, config, table, workers };
                history.kept(&view, id, done);
            }
            DispatchAnswer::Recalled(rows) => self.history.recalled(id, rows),
            DispatchAnswer::Notices(answer) => match self.notices.answered(now, id, answer) {
                NoticesNews::Nothing => {}
                NoticesNews::Unreadable => self.counts.rejected += 1,
                NoticesNews::Superseded => self.ended = true,
            },
            DispatchAnswer::Delivered(done) => self.notices.delivered(now, id, done),
        }
    }

    fn on_history(&mut self, news: &HistoryNews) {
        match news {
            HistoryNews::Nothing => {}
            HistoryNews::Unreadable => self.counts.rejected += 1,
            HistoryNews::Superseded => self.ended = true,
        }
    }

    fn on_ledger(&mut self, now: Time, id: RequestId, shard: usize, answer: DocumentAnswer<LedgerDoc>) {
        let blocked = self.ledger.blocked();
        match self.ledger.answered(now, id, shard, answer) {
            LedgerNews::Nothing => {}
            LedgerNews::Loaded(mut records) => {
                let all = records.len();
                records.retain(|record| self.ledger.shard_of(&record.series) == shard);
                self.counts.rejected += (all - records.len()) as u64;
                for record in records.iter().filter(|record| record.state.is_final()) {
                    self.history.ended(now, self.config.history.delay_ms, record);
                }
                self.table.load(&self.ledger, self.clocks(now), shard, records);
                self.inboxes.mark_all();
            }
            LedgerNews::Confirmed => {
                self.table.confirmed(&self.ledger, shard);
                self.inboxes.ledger_changed();
            }
            LedgerNews::Empty => self.table.unconfirm(shard),
            LedgerNews::Unreadable => self.counts.rejected += 1,
            LedgerNews::Superseded => self.ended = true,
        }
        if self.ledger.blocked() != blocked {
            self.inboxes.mark_all();
        }
    }

    fn on_orders(&mut self, now: Time, id: RequestId, answer: DocumentAnswer<OrdersDoc>) {
        let known = self.orders.is_known();
        let news = self.orders.answered(now, &self.config, id, answer);
        // A queue may have been resumed, or it is known for the first time that it is not paused.
        self.table.changes.retry |= news != OrdersNews::Nothing || known != self.orders.is_known();
        match news {
            OrdersNews::Nothing => return,
            OrdersNews::Read => {}
            OrdersNews::Unreadable => self.counts.rejected += 1,
            OrdersNews::Superseded => self.ended = true,
        }
        let changes = Some(self.orders.changes());
        // The first look tells nothing: whoever has just begun looks at everything anyway.
        if std::mem::replace(&mut self.changes_told, changes).is_some_and(|before| Some(before) != changes) {
            self.untold_outputs.push(DispatchOutput::Changed);
        }
    }

    fn on_inbox(&mut self, now: Time, id: RequestId, worker: &WorkerId, answer: DocumentAnswer<InboxDoc>) {
        let claimed = self.table.index().claimed > 0;
        let news = self.inboxes.answered(now, &self.config, claimed, id, worker, answer);
        match news {
            None => return,
            Some(InboxNews::Nothing) => {}
            Some(InboxNews::Read { dispatched }) => {
                self.counts.dispatched += dispatched as u64;
                self.reconcile(now, worker);
            }
            Some(InboxNews::Unreadable) => self.counts.rejected += 1,
            Some(InboxNews::Superseded) => self.ended = true,
        }
        self.table.changes.loads.insert(worker.clone());
        self.table.changes.retry = true;
        self.table.judge_again(worker);
    }

    fn reconcile(&mut self, now: Time, worker: &WorkerId) {
        for entry in self.inboxes.entries(worker).to_vec() {
            let (id, dispatch) = entry.key();
            match report(self.table.get(&id), worker, &entry) {
                Report::Nothing => {}
                Report::Stray => self.counts.rejected += u64::from(self.ledger.blocked() == 0),
                Report::Claimed(state) => self.claimed(now, &id, state),
                Report::Ended(outcome) => {
                    self.claimed(now, &id, JobState::Running);
                    let restarted = outcome.kind == OutcomeKind::Abandoned;
                    let why = if restarted { "its worker was started again" } else { "" };
                    self.conclude(now, &id, &outcome, false, why);
                }
                Report::Late(kind) => {
                    let known = !self.inboxes.note_late(worker, (id.clone(), dispatch));
                    // Nobody speaks for a former life, and work that was not begun has no result.
                    if !known && !matches!(kind, OutcomeKind::Abandoned | OutcomeKind::Returned) {
                        let (attempt, worker) = (entry.attempt, worker.clone());
                        self.record_late(now, &id, LateResult { attempt, worker, kind });
                    }
                }
            }
        }
        let Some(inbox) = self.inboxes.get(worker).filter(|inbox| inbox.is_firm()) else { return };
        // Claimed entries that are missing now: somebody removed them, and nobody will report how they ended.
        let claimed = self.table.out_at(worker).map(Job::record).filter(|r| r.state != JobState::Dispatched);
        let vanished = claimed.filter(|record| inbox.entry(&record.id, record.dispatch).is_none());
        let vanished: Vec<JobId> = vanished.map(|record| record.id.clone()).collect();
        for id in vanished {
            self.give_up(now, &id, OutcomeKind::Abandoned, "it vanished from its worker's inbox");
        }
    }

    fn claimed(&mut self, now: Time, id: &JobId, state: JobState) {
        let Some(job) = self.table.get(id).filter(|job| job.record().state.may_become(state)) else { return };
        if job.record().state == JobState::Dispatched && job.record().dispatch == 1 {
            self.untold_outputs
                .push(DispatchOutput::Claimed { after_ms: now.since(job.times().known_since) });
        }
        self.change(now, id, Transition::Claim(state));
    }

    /// The result of an attempt that had been given up: recorded, but not applied.
    fn record_late(&mut self, now: Time, id: &JobId, late: LateResult) {
        self.counts.late += 1;
        let reopens = Mutant::JobLateResultReopens.on() && late.kind == OutcomeKind::Failed;
        if reopens && self.table.get(id).is_some_and(|job| job.record().state.is_final()) {
            let (attempt, reason) = (AttemptEnd::None, String::new());
            self.change(now, id, Transition::Requeue { attempt, pause_ms: 0, reason });
        }
        let Some(job) = self.table.get(id) else { return };
        self.untold_outputs.push(DispatchOutput::Update(JobUpdate::late(job.record(), &late)));
        self.table.record_late(&mut self.ledger, id, late);
    }

    // ---- one step ----

    fn advance(&mut self, now: Time, wall_ms: i64, out: &mut Effects) {
        if self.ended {
            return self.end(out);
        }
        self.admit(now, out);
        self.serve(now);
        self.forget_finished(now);
        if self.is_ready() {
            self.judge(now);
            self.tell_loads();
            self.assign_waiting(now);
            let changed: Vec<JobId> = self.table.changes.unjudged.iter().cloned().collect();
            changed.iter().for_each(|id| self.retime(now, id));
        }
        let Dispatcher {
            config, table, ledger, inboxes, workers, orders, history, notices, requests, ..
        } = self;
        inboxes.mark(std::mem::take(&mut table.changes.inboxes));
        let (view, sink) = (View { now, wall_ms, config, table, workers }, &mut Sink { requests, out });
        ledger.send(&view, sink);
        orders.send(now, |order| is_served(table, ledger, order), sink);
        // A shard that cannot be read may hold endings of former epochs.
        let from = if ledger.blocked() == 0 { Epoch(0) } else { config.epoch };
        let from = ledger.is_adopted().then_some(from);
        history.send(&view, |job| job.is_confirmed(ledger), from, notices, sink);
        if history.is_known() {
            let stands = notices.send(&view, history.settled_head(), sink).into_iter();
            self.untold_outputs.extend(stands.map(DispatchOutput::Noted));
        }
        if ledger.is_adopted() && history.is_known() {
            inboxes.find(now, sink);
            if inboxes.are_known() {
                inboxes.poll(&view, sink);
                inboxes.send(&view, ledger, sink);
            }
        }
        self.tell(out);
    }

    fn change(&mut self, now: Time, id: &JobId, transition: Transition) {
        let clocks = self.clocks(now);
        self.table.change(&mut self.ledger, clocks, id, transition);
        if let Some(record) = self.table.get(id).map(Job::record).filter(|record| record.state.is_final()) {
            self.history.ended(now, self.config.history.delay_ms, record);
        }
    }

    /// Finished jobs leave the ledger when there are many of them, and when somebody asks for it.
    fn forget_finished(&mut self, now: Time) {
        let Dispatcher { config, table, ledger, inboxes, workers, orders, history, wall_ms, .. } = self;
        let view = View { now, wall_ms: *wall_ms, config, table, workers };
        let forgotten = ledger.forget_finished(&view, inboxes, orders, history);
        if !forgotten.is_empty() {
            forgotten.iter().for_each(|id| self.table.remove(id));
            self.inboxes.ledger_changed();
        }
    }

    /// Admits submissions whose shard this leader owns.
    fn admit(&mut self, now: Time, out: &mut Effects) {
        for (token, record) in std::mem::take(&mut self.unadmitted) {
            let shard = self.ledger.shard_of(&record.series);
            let answer = match self.ledger.state(shard) {
                State::Unread | State::Found => {
                    self.unadmitted.push((token, record));
                    continue;
                }
                State::Blocked => Some(SubmitAnswer::Blocked),
                State::Superseded => Some(SubmitAnswer::Ended),
                State::Owned => self.create(now, shard, Some(token), unbegun(record)),
            };
            out.extend(answer.map(|answer| Effect::Output(DispatchOutput::Answered(token, answer))));
        }
    }

    /// Does what is asked for in the document of orders. What there is no room for waits there.
    fn serve(&mut self, now: Time) {
        if self.may_end_jobs() {
            std::mem::take(&mut self.cancels).iter().for_each(|id| self.cancel(now, id));
        }
        for entry in self.orders.entries().to_vec() {
            match entry.order {
                Order::Submit(record) => self.create_once(now, unbegun(record)),
                Order::Retry(job) => match self.table.get(&job.id).map(Job::record) {
                    None => self.create_once(now, job),
                    // An order that is found twice is served once.
                    Some(known) if known.may_be_retried() && !is_retried(known, &job) => {
                        let (attempts_max, retries) = (job.limits.attempts_max, job.retries);
                        self.change(now, &job.id, Transition::Retry { attempts_max, retries });
                    }
                    Some(_) => {}
                },
                // A job that is asked for and called off in the same document is found here, too.
                Order::Cancel(id) if self.may_end_jobs() => self.cancel(now, &id),
                // What is to be removed is forgotten once nothing needs it.
                Order::Cancel(_) | Order::Remove(_) => {}
            }
        }
    }

    /// A job that is asked for: created unless it exists, once its shard is this leader's own.
    fn create_once(&mut self, now: Time, record: JobRecord) {
        let shard = self.ledger.shard_of(&record.series);
        if self.ledger.state(shard) == State::Owned && self.table.get(&record.id).is_none() {
            self.create(now, shard, None, record);
        }
    }

    /// The answer, unless it has to wait for the ledger on the store.
    fn create(
        &mut self,
        now: Time,
        shard: usize,
        token: Option<u64>,
        record: JobRecord,
    ) -> Option<SubmitAnswer> {
        if self.table.submitted_again(&record.id, token) {
            self.counts.duplicates += 1;
            return None;
        }
        if let Err(answer) = self.ledger.admit(shard, self.table.index().shards[shard].weight, &record) {
            self.counts.duplicates += u64::from(answer == SubmitAnswer::BelowWatermark);
            return Some(answer);
        }
        self.counts.created += 1;
        let clocks = self.clocks(now);
        self.table.create(&mut self.ledger, clocks, token, record);
        None
    }

    fn clocks(&self, now: Time) -> Clocks {
        Clocks { now, wall_ms: self.wall_ms }
    }

    /// Judges every job that changed or may be due.
    fn judge(&mut self, now: Time) {
        let ids = self.table.take_changed(now);
        for id in &ids {
            self.judge_one(now, id);
            self.retime(now, id);
        }
    }

    fn judge_one(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.table.get(id) else { return };
        let (state, worker) = (job.record().state, job.record().worker.clone());
        match judge(job, self.at_worker(job), now, &self.config) {
            Judgement::Stay => {}
            Judgement::Change(transition) => self.change(now, id, transition),
            Judgement::Withdraw(why) => self.table.withdraw_entry(id, why),
            Judgement::GiveUp(kind, why) => self.give_up(now, id, kind, why),
            Judgement::Look => worker.iter().for_each(|worker| self.inboxes.refresh(worker)),
        }
        if state == JobState::Dispatched {
            self.inboxes.mark(worker);
        }
    }

    fn retime(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.table.get(id) else { return };
        let timer = due_at(job, self.at_worker(job), now, &self.config);
        self.table.retime(id, timer);
    }

    fn at_worker(&self, job: &Job) -> AtWorker<'_> {
        let worker = job.record().worker.as_ref();
        AtWorker {
            gone_since: worker.and_then(|worker| self.workers.gone_since(worker)),
            inbox: worker.and_then(|worker| self.inboxes.get(worker)),
        }
    }

    /// Stops waiting for an attempt's result: one that still arrives is late.
    fn give_up(&mut self, now: Time, id: &JobId, kind: OutcomeKind, why: &str) {
        self.counts.lost += u64::from(kind == OutcomeKind::Abandoned);
        self.conclude(now, id, &Outcome::bare(kind), true, why);
    }

    fn conclude(&mut self, now: Time, id: &JobId, outcome: &Outcome, given_up: bool, why: &str) {
        let Some(job) = self.table.get(id) else { return };
        let transition = conclude(job, outcome, given_up, why, now);
        self.change(now, id, transition);
    }

    /// Reports what is in the ledger and what was seen in inboxes.
    fn tell(&mut self, out: &mut Effects) {
        for id in std::mem::take(&mut self.table.changes.untold) {
            let Some(job) = self.table.get(&id) else { continue };
            // Unconfirmed changes come back here once they are confirmed.
            let confirmed = job.is_confirmed(&self.ledger);
            let seen = matches!(job.record().state, JobState::Acked | JobState::Running);
            if confirmed {
                let answers = self.table.take_tokens(&id).into_iter();
                self.untold_outputs
                    .extend(answers.map(|(token, answer)| DispatchOutput::Answered(token, answer)));
            }
            if let Some(record) = (confirmed || seen).then(|| self.table.tell(&id)).flatten() {
                self.counts.finished += u64::from(record.state.is_final());
                self.untold_outputs.push(DispatchOutput::Update(JobUpdate::of(record)));
            }
        }
        out.extend(self.untold_outputs.drain(..).map(Effect::Output));
    }

    fn end(&mut self, out: &mut Effects) {
        let mut tokens: Vec<u64> =
            std::mem::take(&mut self.unadmitted).into_iter().map(|(token, _)| token).collect();
        let ids: Vec<JobId> = self.jobs().map(|record| record.id.clone()).collect();
        for id in ids {
            tokens.extend(self.table.take_tokens(&id).into_iter().map(|(token, _)| token));
        }
        let answer = |token| Effect::Output(DispatchOutput::Answered(token, SubmitAnswer::Ended));
        out.extend(tokens.into_iter().map(answer));
        out.push(Effect::Output(DispatchOutput::Ended(DispatchEnd::Superseded)));
    }

    /// When something is due by time alone. Whatever was due earlier is done, or waits for something else.
    fn due_at(&self) -> Option<Time> {
        let now = self.now;
        let retries = self.table.changes.retry && !self.table.ready().is_empty();
        let retry = (retries && self.retry_at > now).then_some(self.retry_at);
        let view = View { now, wall_ms: 0, config: &self.config, table: &self.table, workers: &self.workers };
        let ledger = self.ledger.due_at(&view);
        let history = self.history.due_at(now, &self.config.history);
        let notices = self.notices.due_at(now);
        let others = [self.inboxes.due_at(now), self.table.due_at(now), self.orders.due_at(now), notices];
        [retry, ledger, history].into_iter().chain(others).flatten().min()
    }
}

/// Whether the ledger on the store shows what was asked for.
fn is_served(table: &Table, ledger: &Ledger, order: &Order) -> bool {
    let job = table.get(order.job());
    let confirmed = job.is_some_and(|job| job.is_confirmed(ledger)) || Mutant::JobOrderTakenEarly.on();
    match (order, job) {
        (Order::Submit(_), job) => job.is_some() && confirmed,
        (Order::Retry(_), None) => false,
        (Order::Retry(asked), Some(job)) => {
            confirmed && (is_retried(job.record(), asked) || !job.record().may_be_retried())
        }
        (Order::Cancel(_) | Order::Remove(_), None) => ledger.is_adopted(),
        (Order::Remove(_), Some(job)) => !job.record().state.is_final(),
        (Order::Cancel(_), Some(job)) => confirmed && (job.record().cancel || job.record().state.is_final()),
    }
}

/// Whether a job was tried again as somebody asked, or as somebody else did at the same time.
fn is_retried(known: &JobRecord, asked: &JobRecord) -> bool {
    known.retries >= asked.retries && !Mutant::JobRetriedTwice.on()
}

/// A new job begins at the beginning.
fn unbegun(record: JobRecord) -> JobRecord {
    JobRecord { dispatch: 0, unbegun: 0, retries: 0, ..record }
}

impl<A: Assign> Machine for Dispatcher<A> {
    type Command = DispatchCommand<A::Facts>;
    type Request = DispatchRequest;
    type Output = DispatchOutput;

    fn handle(&mut self, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>) {
        (self.now, self.wall_ms) = (now.at, now.wall_ms);
        self.unsettled = !matches!(input, Input::Wake);
        match input {
            Input::Wake => self.advance(now.at, now.wall_ms, out),
            // Submissions are still answered when it has ended.
            Input::Command(DispatchCommand::Submit(records)) if self.ended => self.unadmitted.extend(records),
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
