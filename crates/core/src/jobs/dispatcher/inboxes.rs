//! The dispatcher's side of inboxes: what it concludes from them and what it writes into them.

use super::super::inbox::Inbox;
use super::super::{
    Entry, EntryState, InboxDoc, JOB_OBJECT_MAX_WEIGHT, JobState, Outcome, OutcomeKind, QUICK_LOOKS,
    next_request,
};
use super::{Assign, DispatchOutput, DispatchRequest, Dispatcher, Job, due_by};
use crate::document::{DocumentAnswer, Read, What};
use crate::id::{JobId, WorkerId};
use crate::machine::{Effect, Out, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::BTreeSet;

/// Up to this many inboxes are read one by one; more are listed. A read costs a twelfth of a list and returns what changed.
const READ_EACH_MAX: usize = 2;

#[derive(Default)]
struct InboxChange {
    entries: Vec<Entry>,
    /// Worth an immediate write.
    urgent: bool,
    /// Recorded results leave the inbox: worth a write at some point.
    recorded_results: bool,
}

impl<A: Assign> Dispatcher<A> {
    /// Recorded results leave the inbox with the next dispatch, or after this long: one write less per batch under load.
    pub(super) fn recorded_results_ms(&self) -> u64 {
        self.config.slow_ms.saturating_mul(4)
    }

    fn quicken(&mut self, now: Time, moves: bool) {
        let soon = |at: Time| now.since(at) <= self.config.slow_ms.saturating_mul(2);
        if moves && self.moved_at.replace(now).is_some_and(soon) {
            self.quick_looks = QUICK_LOOKS;
        }
        let first = if self.quick_looks > 0 || self.is_claimed_anywhere() { 1 } else { 2 };
        self.poll_ms = (self.config.fast_ms * first).min(self.config.slow_ms);
        // Never later than it already was: with constant dispatching, nobody would ever look.
        let next = now + self.poll_ms;
        self.poll_at = Some(self.poll_at.filter(|at| *at > now).map_or(next, |at| at.min(next)));
    }

    /// While nothing is claimed, the pace is set by when the workers look, so frequent looks are no use.
    fn is_claimed_anywhere(&self) -> bool {
        self.table.claimed > 0
    }

    pub(super) fn on_inbox(
        &mut self,
        now: Time,
        id: RequestId,
        worker: &WorkerId,
        answer: DocumentAnswer<InboxDoc>,
    ) {
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        let is_read = matches!(answer, DocumentAnswer::Read(_));
        let unchanged = matches!(answer, DocumentAnswer::Read(Read::Unchanged));
        let before: Vec<(JobId, u32)> = inbox.entries().iter().map(Entry::key).collect();
        let (settled, body) = inbox.document.answered(now, id, answer);
        inbox.content.settle(&settled.what, body);
        if is_read && !matches!(settled.what, What::Nothing | What::Failed { .. }) {
            inbox.read_sent = Some(settled.sent);
            // The list had called it changed, so lists spell versions differently.
            self.list_misnames |= unchanged && inbox.said_changed;
            inbox.said_changed = false;
        }
        match settled.what {
            What::Superseded(_) => self.ended = true,
            What::Landed { .. } => {
                let new = inbox.entries().iter().filter(|entry| !before.contains(&entry.key())).count();
                self.counts.dispatched += new as u64;
                inbox.recorded_results_since = None;
                self.quicken(now, is_read);
                self.reconcile(now, worker);
            }
            What::Loaded | What::Shared | What::Overtaken(_) => {
                self.quicken(now, true);
                self.reconcile(now, worker);
            }
            What::Blocked { news, .. } => self.counts.rejected += u64::from(news),
            What::Removed => inbox.stamp = None,
            What::Nothing | What::Same | What::Empty | What::Failed { .. } => {}
        }
        self.inbox_changed(worker);
    }

    /// Draws conclusions from what an inbox shows.
    fn reconcile(&mut self, now: Time, worker: &WorkerId) {
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        let seen: Vec<(JobId, u32, EntryState)> =
            inbox.entries().iter().map(|e| (e.id.clone(), e.attempt, e.state.clone())).collect();
        inbox.late.retain(|(id, attempt)| seen.iter().any(|(i, a, _)| i == id && a == attempt));
        for (id, attempt, state) in seen {
            let current = self.is_current(worker, &id, attempt);
            match state {
                EntryState::Dispatched => {
                    if !self.jobs.contains_key(&id) && self.blocked_shards() == 0 {
                        self.counts.rejected += 1;
                    }
                }
                EntryState::Acked { .. } if current => self.claimed(now, &id, JobState::Acked),
                EntryState::Running { .. } if current => self.claimed(now, &id, JobState::Running),
                EntryState::Acked { .. } | EntryState::Running { .. } => {}
                EntryState::Finished { outcome } => {
                    self.finished(now, worker, &id, attempt, &outcome, current)
                }
            }
        }
        self.vanished(now, worker);
    }

    fn is_current(&self, worker: &WorkerId, id: &JobId, attempt: u32) -> bool {
        self.jobs.get(id).is_some_and(|job| {
            let record = &job.record;
            record.state.is_out() && record.attempt == attempt && record.worker.as_ref() == Some(worker)
        })
    }

    fn claimed(&mut self, now: Time, id: &JobId, state: JobState) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        // Too late to take it back.
        job.withdraw = None;
        if job.record.state.may_become(state) {
            self.see(now, id, state);
        }
    }

    fn finished(
        &mut self,
        now: Time,
        worker: &WorkerId,
        id: &JobId,
        attempt: u32,
        outcome: &Outcome,
        current: bool,
    ) {
        let wrongly = Mutant::JobLateResultApplied.on()
            && self.jobs.get(id).is_some_and(|job| job.record.state.is_out());
        if current || wrongly {
            self.claimed(now, id, JobState::Running);
            let why = match outcome.kind {
                OutcomeKind::Abandoned => "its worker was started again",
                OutcomeKind::Succeeded
                | OutcomeKind::Partial
                | OutcomeKind::Failed
                | OutcomeKind::TimedOut
                | OutcomeKind::Cancelled
                | OutcomeKind::Returned => "",
            };
            return self.conclude(now, id, outcome, why);
        }
        let recorded = self.jobs.get(id).is_some_and(|job| {
            let record = &job.record;
            record.attempt == attempt && record.worker.as_ref() == Some(worker) && !record.given_up
        });
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        let key = (id.clone(), attempt);
        if recorded || inbox.late.contains(&key) {
            return;
        }
        inbox.late.push(key);
        match outcome.kind {
            // Nobody speaks for a former life, and work that was not begun has no result.
            OutcomeKind::Abandoned | OutcomeKind::Returned => {}
            OutcomeKind::Succeeded
            | OutcomeKind::Partial
            | OutcomeKind::Failed
            | OutcomeKind::TimedOut
            | OutcomeKind::Cancelled => self.record_late(worker, id, attempt, outcome.kind),
        }
    }

    /// Claimed entries that are missing now: somebody removed them, and nobody will report how they ended.
    fn vanished(&mut self, now: Time, worker: &WorkerId) {
        let Some(inbox) = self.inboxes.get(worker) else { return };
        if !inbox.is_firm() {
            return;
        }
        let claimed = self.out_at(worker).filter(|job| job.record.state != JobState::Dispatched);
        let lost = claimed.filter(|job| inbox.entry(&job.record.id, job.record.attempt).is_none());
        let lost: Vec<JobId> = lost.map(|job| job.record.id.clone()).collect();
        for id in lost {
            self.give_up(now, &id, OutcomeKind::Abandoned, "it vanished from its worker's inbox");
        }
    }

    /// Workers that take no more jobs, as far as their inboxes were seen.
    pub fn draining(&self) -> impl Iterator<Item = &WorkerId> {
        self.table.closed_in.iter()
    }

    pub(super) fn is_closed(&self, worker: &WorkerId) -> bool {
        self.inboxes.get(worker).is_some_and(Inbox::is_closed) && !Mutant::JobDrainIgnored.on()
    }

    /// Whether an inbox has room for one more job with a payload of this many bytes.
    pub fn has_room(&self, worker: &WorkerId, payload: usize) -> bool {
        let inbox = self.inboxes.get(worker);
        if self.is_closed(worker) {
            return false;
        }
        let entries = inbox.map_or(&[][..], Inbox::entries);
        let coming = self.out_at(worker).filter(|job| {
            inbox.is_none_or(|inbox| inbox.entry(&job.record.id, job.record.attempt).is_none())
        });
        let (mut count, mut weight) = (entries.len(), entries.iter().map(Entry::weight).sum::<usize>());
        for job in coming {
            (count, weight) = (count + 1, weight + super::entry_weight(job.record.payload.len()));
        }
        count < self.config.entries_max && weight + super::entry_weight(payload) <= JOB_OBJECT_MAX_WEIGHT
    }

    // ---- looking ----

    /// Inboxes in which something is expected to change. A draining worker leaves, or comes back and reopens its inbox.
    fn watched(&self) -> Vec<WorkerId> {
        let waits = self.table.claimed_in.iter().chain(&self.table.closed_in);
        let waits = waits.filter(|worker| self.is_active(worker));
        let all: BTreeSet<&WorkerId> = self.table.out.keys().chain(waits).collect();
        all.into_iter().filter(|worker| self.inboxes.contains_key(*worker)).cloned().collect()
    }

    pub(super) fn poll(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        if self.poll_at.is_some_and(|due| now < due) {
            return;
        }
        let watched = self.watched();
        if watched.is_empty() {
            self.poll_at = None;
            self.poll_ms = self.config.fast_ms;
            return;
        }
        if self.poll_at.is_none() {
            return self.quicken(now, false);
        }
        let growth = if self.is_claimed_anywhere() { 2 } else { 4 };
        self.poll_ms = match self.quick_looks {
            0 => (self.poll_ms * growth).min(self.config.slow_ms),
            _ => self.config.fast_ms,
        };
        self.quick_looks = self.quick_looks.saturating_sub(1);
        self.poll_at = Some(now + self.poll_ms);
        if watched.len() > READ_EACH_MAX {
            if self.list.is_none() && now >= self.list_due {
                self.send_list(out);
            }
            return;
        }
        for worker in watched {
            if let Some(inbox) = self.inboxes.get_mut(&worker) {
                inbox.document.refresh();
                self.read(now, &worker, out);
            }
        }
    }

    fn read(&mut self, now: Time, worker: &WorkerId, out: &mut Vec<Out<Self>>) {
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        let next = next_request(&mut self.requests, &mut inbox.document, now, false);
        out.extend(next.map(|(id, op)| {
            Effect::Request(id, DispatchRequest::Inbox(worker.clone(), op.with(InboxDoc::default)))
        }));
    }

    // ---- writing ----

    pub(super) fn write_inboxes(&mut self, now: Time, wall_ms: i64, out: &mut Vec<Out<Self>>) {
        let due: Vec<WorkerId> = due_by(&self.table.inbox_timers, now).cloned().collect();
        let mut workers = std::mem::take(&mut self.table.inboxes);
        workers.extend(due);
        for worker in workers {
            let Some(inbox) = self.inboxes.get(&worker) else { continue };
            if !inbox.document.is_busy() && now >= inbox.document.due() {
                self.tend(now, wall_ms, &worker, out);
            }
            let Some(inbox) = self.inboxes.get(&worker) else { continue };
            let tidy = inbox.recorded_results_since.map(|since| since + self.recorded_results_ms());
            let retire = inbox.unheard_since.map(|since| since + self.config.retire_ms);
            let times =
                [Some(inbox.document.due()), tidy, retire].into_iter().flatten().filter(|at| *at > now);
            // A request in flight brings its own answer, and the inbox is checked then.
            let timer = if inbox.document.is_busy() { None } else { times.min() };
            self.retime_inbox(&worker, timer);
        }
    }

    /// Reads, writes or removes the inbox, if there is reason to.
    fn tend(&mut self, now: Time, wall_ms: i64, worker: &WorkerId, out: &mut Vec<Out<Self>>) {
        let inbox = &self.inboxes[worker];
        if inbox.document.must_read() {
            return self.read(now, worker, out);
        }
        let referenced = self.table.out.contains_key(worker);
        let retired = inbox.unheard_since.is_some_and(|since| now.since(since) >= self.config.retire_ms);
        if inbox.doc().is_none() && retired && !referenced && !inbox.in_doubt() {
            self.retime_inbox(worker, None);
            self.inboxes.remove(worker);
            self.table.claimed_in.remove(worker);
            self.table.closed_in.remove(worker);
            return;
        }
        let change = self.change(worker, inbox, wall_ms);
        let retires = retired && !referenced && change.entries.is_empty() && inbox.doc().is_some();
        // Only if it is empty: a removal has no condition and must not take away what another leader has just written.
        if retires && inbox.entries().is_empty() && inbox.is_firm() {
            let id = RequestId(self.requests + 1);
            let op = self.inboxes.get_mut(worker).and_then(|inbox| inbox.document.remove(now, id));
            if let Some(op) = op {
                self.requests += 1;
                let request = op.with(InboxDoc::default);
                out.push(Effect::Request(id, DispatchRequest::Inbox(worker.clone(), request)));
            }
            return;
        }
        let open = !inbox.is_fenced() && (referenced || !inbox.entries().is_empty() || retires);
        let crowded = inbox.entries().len() * 2 >= self.config.entries_max;
        let overdue =
            inbox.recorded_results_since.is_some_and(|since| now.since(since) >= self.recorded_results_ms());
        let tidy = change.recorded_results && (crowded || overdue || retires);
        let needed = change.urgent || open || inbox.in_doubt() || tidy;
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        if !needed {
            let since = inbox.recorded_results_since.unwrap_or(now);
            inbox.recorded_results_since = change.recorded_results.then_some(since);
            return;
        }
        inbox.document.touch();
        let closed = inbox.doc().and_then(|doc| doc.closed);
        let body = inbox.content.send(InboxDoc { closed, entries: change.entries });
        let next = next_request(&mut self.requests, &mut inbox.document, now, true);
        out.extend(
            next.map(|(id, op)| {
                Effect::Request(id, DispatchRequest::Inbox(worker.clone(), op.with(|| body)))
            }),
        );
    }

    fn change(&self, worker: &WorkerId, inbox: &Inbox, wall_ms: i64) -> InboxChange {
        let mut change = InboxChange::default();
        for entry in inbox.entries() {
            self.keep(worker, entry, wall_ms, &mut change);
        }
        let mut weight: usize = change.entries.iter().map(Entry::weight).sum();
        for job in self.out_at(worker) {
            let record = &job.record;
            let wanted = record.state == JobState::Dispatched && job.withdraw.is_none();
            let recorded = self.is_confirmed(job) || Mutant::JobDispatchedUnrecorded.on();
            let there = inbox.entry(&record.id, record.attempt).is_some();
            let room = change.entries.len() < self.config.entries_max
                && weight + super::entry_weight(record.payload.len()) <= JOB_OBJECT_MAX_WEIGHT;
            let shut = self.is_closed(worker) || self.gone_since.contains_key(worker);
            if !wanted || !recorded || there || !room || shut {
                continue;
            }
            let entry = self.entry_of(job, wall_ms);
            weight += entry.weight();
            change.entries.push(entry);
            change.urgent = true;
        }
        change
    }

    fn entry_of(&self, job: &Job, wall_ms: i64) -> Entry {
        let record = &job.record;
        Entry {
            id: record.id.clone(),
            attempt: record.attempt,
            epoch: self.config.epoch,
            dispatched_at: wall_ms,
            kind: record.kind.clone(),
            payload: record.payload.clone(),
            timeout_ms: record.limits.timeout_ms,
            state: EntryState::Dispatched,
            cancel: false,
        }
    }

    /// Decides what happens to an existing entry.
    fn keep(&self, worker: &WorkerId, entry: &Entry, wall_ms: i64, change: &mut InboxChange) {
        let job = self.jobs.get(&entry.id);
        let current = self.is_current(worker, &entry.id, entry.attempt);
        // While a shard cannot be read, an unknown entry may belong to that shard.
        let nobodys = job.is_none() && self.blocked_shards() == 0;
        let mut entry = entry.clone();
        match entry.state {
            EntryState::Finished { .. } => {
                let recorded = job.is_some_and(|job| self.is_confirmed(job)) && !current;
                if recorded || nobodys || Mutant::JobResultDropped.on() {
                    change.recorded_results = true;
                    change.urgent |= Mutant::JobResultDropped.on();
                    return;
                }
            }
            EntryState::Dispatched => {
                let wanted = current && job.is_some_and(|job| job.withdraw.is_none());
                if !wanted && (job.is_some() || nobodys) {
                    change.urgent = true;
                    return;
                }
                if wanted && entry.epoch != self.config.epoch {
                    (entry.epoch, entry.dispatched_at) = (self.config.epoch, wall_ms);
                    change.urgent = true;
                }
            }
            // Kept even if its worker is gone: removing it would hide that work was done. Its late result is recorded.
            EntryState::Acked { .. } | EntryState::Running { .. } => {
                let unwanted = job.is_some_and(|job| job.record.cancel || !current);
                if unwanted && !entry.cancel {
                    entry.cancel = true;
                    change.urgent = true;
                }
            }
        }
        change.entries.push(entry);
    }

    fn see(&mut self, now: Time, id: &JobId, state: JobState) {
        self.unlink(id);
        if let Some(job) = self.jobs.get_mut(id) {
            debug_assert!(job.record.state.may_become(state));
            if job.record.state == JobState::Dispatched && job.record.attempt == 1 {
                self.news.push(DispatchOutput::Claimed { after_ms: now.since(job.known_since) });
            }
            (job.record.state, job.state_since) = (state, now);
        }
        self.link(id);
    }
}
