//! The inboxes: one document per worker, which the leader and that worker write.
//!
//! When to look at them, and when to write what [`entries`] says should be in them.

mod entries;
mod inbox;

pub(super) use entries::{Report, report};
pub(super) use inbox::Inbox;

use super::dispatcher::{DispatchRequest, DispatcherConfig, InboxListed, Sink, View};
use super::ledger::Ledger;
use super::model::{Entry, InboxDoc, JOB_OBJECT_MAX_WEIGHT, entry_weight};
use super::table::{Job, Table};
use super::workers::Workers;
use super::{QUICK_LOOKS, RETRY};
use crate::document::{BackOff, DocumentAnswer, Op, Read, What, Writer};
use crate::id::{JobId, WorkerId};
use crate::machine::RequestId;
use crate::time::Time;
use entries::wanted;
use std::collections::{BTreeMap, BTreeSet};

/// Up to this many inboxes are read one by one; more are listed. A read costs a twelfth of a list and returns what changed.
const READ_EACH_MAX: usize = 2;

/// A worker that has registered creates its inbox at once. If it is not there yet, it is looked for a few times, and longer only
/// if a job waits for somebody to take it.
const SEEKS: u32 = 4;
const SEEK: BackOff = BackOff { first_ms: 1000, max_ms: 64_000 };

/// Recorded results leave the inbox with the next dispatch, or after this long: one write less per batch under load.
fn recorded_results_ms(config: &DispatcherConfig) -> u64 {
    config.slow_ms.saturating_mul(4)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InboxNews {
    /// Its entries are as they were.
    Nothing,
    /// Its entries may be others than before; so many are there for the first time because this leader wrote them.
    Read { dispatched: usize },
    /// It cannot be read, and is left alone.
    Unreadable,
    /// Another leader has taken over.
    Superseded,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Inboxes {
    writer: Writer,
    inboxes: BTreeMap<WorkerId, Inbox>,
    /// To be looked after with the next step: something changed.
    marked: BTreeSet<WorkerId>,
    timers: BTreeSet<(Time, WorkerId)>,
    /// Inboxes in which something is claimed.
    claimed: BTreeSet<WorkerId>,
    /// Inboxes whose workers take no more jobs.
    closed: BTreeSet<WorkerId>,
    /// Inboxes with results that may leave once the ledger on the store has changed.
    unrecorded: BTreeSet<WorkerId>,
    list: Option<RequestId>,
    list_due: Time,
    listed: bool,
    /// Lists show other versions than reads do, so their stamps are compared instead.
    list_misnames: bool,
    /// When to list them because one may be new, how often that was done in vain, and whether a job waits for that.
    seek_at: Option<Time>,
    seeks: u32,
    wanting: bool,
    poll_at: Option<Time>,
    poll_ms: u64,
    /// When a look last found something, and how many empty looks may still stay quick.
    moved_at: Option<Time>,
    quick_looks: u8,
}

impl Inboxes {
    pub(super) fn new(writer: Writer, config: &DispatcherConfig) -> Inboxes {
        Inboxes {
            writer,
            inboxes: BTreeMap::new(),
            marked: BTreeSet::new(),
            timers: BTreeSet::new(),
            claimed: BTreeSet::new(),
            closed: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            list: None,
            list_due: Time(0),
            listed: false,
            list_misnames: false,
            seek_at: None,
            seeks: 0,
            wanting: false,
            poll_at: None,
            poll_ms: config.fast_ms,
            moved_at: None,
            quick_looks: 0,
        }
    }

    /// Whether it is known which inboxes there are.
    pub(super) fn are_known(&self) -> bool {
        self.listed
    }

    pub(super) fn get(&self, worker: &WorkerId) -> Option<&Inbox> {
        self.inboxes.get(worker)
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &WorkerId> {
        self.inboxes.keys()
    }

    pub(super) fn entries(&self, worker: &WorkerId) -> &[Entry] {
        self.get(worker).map_or(&[], Inbox::entries)
    }

    pub(super) fn closed(&self) -> impl Iterator<Item = &WorkerId> {
        self.closed.iter()
    }

    /// Whether an inbox has room for one more job with a payload of this many bytes.
    pub(super) fn has_room(
        &self,
        table: &Table,
        worker: &WorkerId,
        payload: usize,
        entries_max: usize,
    ) -> bool {
        let inbox = self.get(worker);
        if inbox.is_some_and(|inbox| inbox.refuses_jobs() || inbox.is_unreadable()) {
            return false;
        }
        let entries = self.entries(worker);
        let is_there = |job: &&Job| {
            inbox.is_some_and(|inbox| inbox.entry(&job.record().id, job.record().dispatch).is_some())
        };
        let coming = table.out_at(worker).filter(|job| !is_there(job));
        let coming = coming.map(|job| entry_weight(job.record().payload.len()));
        let weights = entries.iter().map(Entry::weight).chain(coming);
        let (count, weight) = weights.fold((0, 0), |(count, sum), weight| (count + 1, sum + weight));
        count < entries_max && weight + entry_weight(payload) <= JOB_OBJECT_MAX_WEIGHT
    }

    /// Whether nothing of a job is left in the inbox of its last worker.
    pub(super) fn is_gone(&self, job: &Job) -> bool {
        let inbox = job.record().worker.as_ref().and_then(|worker| self.get(worker));
        inbox.is_none_or(|inbox| inbox.is_without(&job.record().id, job.record().dispatch))
    }

    // ---- what happened ----

    pub(super) fn mark(&mut self, workers: impl IntoIterator<Item = WorkerId>) {
        self.marked.extend(workers);
    }

    pub(super) fn mark_all(&mut self) {
        self.marked.extend(self.inboxes.keys().cloned());
    }

    /// The ledger on the store has changed.
    pub(super) fn ledger_changed(&mut self) {
        self.marked.extend(self.unrecorded.iter().cloned());
    }

    /// A worker is given something. Nobody else creates inboxes: one that the list did not show does not exist.
    pub(super) fn create(&mut self, worker: &WorkerId) {
        let writer = self.writer;
        self.inboxes.entry(worker.clone()).or_insert_with(|| Inbox::absent(writer));
        self.marked.insert(worker.clone());
    }

    /// Read it again, however recent the last read is.
    pub(super) fn refresh(&mut self, worker: &WorkerId) {
        if let Some(inbox) = self.inboxes.get_mut(worker) {
            inbox.document.refresh();
            self.marked.insert(worker.clone());
        }
    }

    /// Updates since when workers have been missing from the registry.
    pub(super) fn note_unheard_of(&mut self, now: Time, workers: &Workers) {
        for (worker, inbox) in &mut self.inboxes {
            let since = workers.is_unheard_of(worker).then(|| inbox.unheard_since.unwrap_or(now));
            if std::mem::replace(&mut inbox.unheard_since, since) != since {
                self.marked.insert(worker.clone());
            }
        }
    }

    /// Remembers that a late result was counted; returns whether it was not known before.
    pub(super) fn note_late(&mut self, worker: &WorkerId, key: (JobId, u32)) -> bool {
        let Some(inbox) = self.inboxes.get_mut(worker) else { return false };
        let new = !inbox.late.contains(&key);
        if new {
            inbox.late.push(key);
        }
        new
    }

    /// Takes an answer; `None` if there is no such inbox.
    pub(super) fn answered(
        &mut self,
        now: Time,
        config: &DispatcherConfig,
        any_claimed: bool,
        id: RequestId,
        worker: &WorkerId,
        answer: DocumentAnswer<InboxDoc>,
    ) -> Option<InboxNews> {
        let inbox = self.inboxes.get_mut(worker)?;
        let is_read = matches!(answer, DocumentAnswer::Read(_));
        let unchanged = matches!(answer, DocumentAnswer::Read(Read::Unchanged));
        let before: Vec<(JobId, u32)> = inbox.entries().iter().map(Entry::key).collect();
        let (states, closed) = (inbox.states(), inbox.is_closed());
        let (settled, body) = inbox.document.answered(now, id, answer);
        inbox.content.settle(&settled.what, body);
        if is_read && !matches!(settled.what, What::Nothing | What::Failed { .. }) {
            inbox.read_sent = Some(settled.sent);
            // The list had called it changed, so lists spell versions differently.
            self.list_misnames |= unchanged && inbox.said_changed;
            inbox.said_changed = false;
        }
        let (mut news, mut moves) = (InboxNews::Nothing, None);
        match settled.what {
            What::Superseded(_) => news = InboxNews::Superseded,
            What::Landed { .. } => {
                let new = inbox.entries().iter().filter(|entry| !before.contains(&entry.key()));
                (news, moves) = (InboxNews::Read { dispatched: new.count() }, Some(is_read));
                inbox.recorded_results_since = None;
            }
            What::Loaded | What::Shared | What::Overtaken(_) => {
                // That an attempt is a little further is no reason to look more often.
                let moved = inbox.states() != states || inbox.is_closed() != closed;
                (news, moves) = (InboxNews::Read { dispatched: 0 }, Some(moved));
            }
            What::Blocked { news: true, .. } => news = InboxNews::Unreadable,
            What::Removed => inbox.stamp = None,
            What::Nothing | What::Same | What::Empty | What::Blocked { .. } | What::Failed { .. } => {}
        }
        if moves.is_some() {
            let keys: Vec<(JobId, u32)> = inbox.entries().iter().map(Entry::key).collect();
            inbox.late.retain(|key| keys.contains(key));
        }
        set(&mut self.claimed, worker, inbox.entries().iter().any(Entry::is_claimed));
        set(&mut self.closed, worker, inbox.is_closed());
        self.marked.insert(worker.clone());
        if let Some(moves) = moves {
            self.quicken(now, config, any_claimed, moves);
        }
        Some(news)
    }

    /// Takes a list of the inboxes, and returns whether that is the list it waited for.
    pub(super) fn answered_list(
        &mut self,
        now: Time,
        id: RequestId,
        list: Option<Vec<InboxListed>>,
        busy: impl Iterator<Item = WorkerId>,
    ) -> bool {
        if self.list.take_if(|list| *list == id).is_none() {
            return false;
        }
        let Some(list) = list else {
            self.list_due = now + RETRY.max_ms / 10;
            return false;
        };
        let first = !std::mem::replace(&mut self.listed, true);
        let (writer, misnames) = (self.writer, self.list_misnames);
        let mut unseen: BTreeSet<WorkerId> = self.inboxes.keys().cloned().collect();
        for line in list {
            unseen.remove(&line.worker);
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
                self.marked.insert(line.worker);
            }
        }
        for worker in unseen {
            // It was there and is missing now: somebody removed it, or the list is older than the write.
            if self.get(&worker).is_some_and(|inbox| inbox.doc().is_some() && !inbox.document.is_busy()) {
                self.refresh(&worker);
            }
        }
        if first {
            self.seek_at = self.seek_at.map(|_| now + SEEK.first_ms);
            busy.for_each(|worker| self.create(&worker));
        }
        true
    }

    // ---- looking ----

    /// A worker is new: it has an inbox, or will have one soon.
    pub(super) fn seek(&mut self, now: Time) {
        (self.seeks, self.seek_at) = (0, Some(now));
    }

    /// Whether a job waits that none of the known workers takes: another one may, or one of them since its inbox was read.
    pub(super) fn want(&mut self, now: Time, wanting: bool) {
        self.wanting = wanting;
        if wanting && self.seek_at.is_none() {
            self.seek_at = Some(now + SEEK.pause_ms(self.seeks));
        }
    }

    fn look_for_new(&mut self, view: &View<'_>, sink: &mut Sink<'_>) {
        if !self.listed || self.seek_at.is_none_or(|at| view.now < at) {
            return;
        }
        let is_missing = |worker: &WorkerId| self.get(worker).and_then(Inbox::serves).is_none();
        let missing = self.seeks < SEEKS && view.workers.active().any(is_missing);
        self.seek_at = None;
        if missing || (self.wanting && !view.table.ready().is_empty()) {
            self.seek_at = Some(view.now + SEEK.pause_ms(self.seeks));
            self.seeks = self.seeks.saturating_add(1);
            self.send_list(view.now, sink);
        }
    }

    fn quicken(&mut self, now: Time, config: &DispatcherConfig, any_claimed: bool, moves: bool) {
        let soon = |at: Time| now.since(at) <= config.slow_ms.saturating_mul(2);
        let steady = self.moved_at.is_some_and(soon);
        if moves {
            self.moved_at = Some(now);
        }
        match (steady, moves) {
            (true, true) => self.quick_looks = QUICK_LOOKS,
            (false, _) => self.quick_looks = 0,
            (true, false) => {}
        }
        let first = if self.quick_looks > 0 || any_claimed { 1 } else { 2 };
        self.poll_ms = (config.fast_ms * first).min(config.slow_ms);
        // Never later than it already was: with constant dispatching, nobody would ever look.
        let next = now + self.poll_ms;
        self.poll_at = Some(self.poll_at.filter(|at| *at > now).map_or(next, |at| at.min(next)));
    }

    /// Inboxes in which something is expected to change. A draining worker leaves, or comes back and reopens its inbox.
    fn watched(&self, view: &View<'_>) -> Vec<WorkerId> {
        let waits = self.claimed.iter().chain(&self.closed).filter(|worker| view.workers.is_active(worker));
        let all: BTreeSet<&WorkerId> = view.table.index().out.keys().chain(waits).collect();
        all.into_iter().filter(|worker| self.inboxes.contains_key(*worker)).cloned().collect()
    }

    /// Asks which inboxes there are, until that is known.
    pub(super) fn find(&mut self, now: Time, sink: &mut Sink<'_>) {
        if !self.listed {
            self.send_list(now, sink);
        }
    }

    fn send_list(&mut self, now: Time, sink: &mut Sink<'_>) {
        if self.list.is_none() && now >= self.list_due {
            self.list = Some(sink.send(DispatchRequest::ListInboxes));
        }
    }

    /// Looks where something is expected to change, if it is time.
    pub(super) fn poll(&mut self, view: &View<'_>, sink: &mut Sink<'_>) {
        let View { now, config, .. } = *view;
        self.look_for_new(view, sink);
        if self.poll_at.is_some_and(|due| now < due) {
            return;
        }
        let watched = self.watched(view);
        if watched.is_empty() {
            self.poll_at = None;
            self.poll_ms = config.fast_ms;
            return;
        }
        let any_claimed = view.table.index().claimed > 0;
        if self.poll_at.is_none() {
            return self.quicken(now, config, any_claimed, false);
        }
        let growth = if any_claimed { 2 } else { 4 };
        self.poll_ms = match self.quick_looks {
            0 => (self.poll_ms * growth).min(config.slow_ms),
            _ => config.fast_ms,
        };
        self.quick_looks = self.quick_looks.saturating_sub(1);
        self.poll_at = Some(now + self.poll_ms);
        if watched.len() > READ_EACH_MAX {
            return self.send_list(now, sink);
        }
        for worker in watched {
            if let Some(inbox) = self.inboxes.get_mut(&worker) {
                inbox.document.refresh();
                inbox.read(now, &worker, sink);
            }
        }
    }

    // ---- writing ----

    /// Looks after every inbox that is marked or due.
    pub(super) fn send(&mut self, view: &View<'_>, ledger: &Ledger, sink: &mut Sink<'_>) {
        let View { now, config, .. } = *view;
        let mut workers = std::mem::take(&mut self.marked);
        workers.extend(self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, worker)| worker.clone()));
        for worker in workers {
            let Some(inbox) = self.inboxes.get(&worker) else { continue };
            if !inbox.document.is_busy() && now >= inbox.document.due() {
                self.tend(view, ledger, &worker, sink);
            }
            let Some(inbox) = self.inboxes.get(&worker) else { continue };
            let tidy = inbox.recorded_results_since.map(|since| since + recorded_results_ms(config));
            let retire = inbox.unheard_since.map(|since| since + config.retire_ms);
            let times = [Some(inbox.document.due()), tidy, retire].into_iter().flatten();
            // A request in flight brings its own answer, and the inbox is checked then.
            let timer = if inbox.document.is_busy() { None } else { times.filter(|at| *at > now).min() };
            self.retime(&worker, timer);
        }
    }

    fn tend(&mut self, view: &View<'_>, ledger: &Ledger, worker: &WorkerId, sink: &mut Sink<'_>) {
        let View { now, config, .. } = *view;
        let Some(inbox) = self.inboxes.get_mut(worker) else { return };
        if inbox.document.must_read() {
            return inbox.read(now, worker, sink);
        }
        let referenced = view.table.load_of(worker) > 0;
        let retired = inbox.unheard_since.is_some_and(|since| now.since(since) >= config.retire_ms);
        if inbox.doc().is_none() && retired && !referenced && !inbox.in_doubt() {
            return self.forget(worker);
        }
        let change = wanted(view, ledger, worker, inbox);
        set(&mut self.unrecorded, worker, change.unrecorded);
        let retires = retired && !referenced && change.entries.is_empty() && inbox.doc().is_some();
        // Only if it is empty: a removal has no condition and must not take away what another leader has just written.
        if retires && inbox.entries().is_empty() && inbox.is_firm() {
            let request = |op: Op| DispatchRequest::Inbox(worker.clone(), op.with(InboxDoc::default));
            return sink.send_for(|id| inbox.document.remove(now, id), request);
        }
        let open = !inbox.is_fenced() && (referenced || !inbox.entries().is_empty() || retires);
        let crowded = inbox.entries().len() * 2 >= config.entries_max;
        let since = inbox.recorded_results_since;
        let overdue = since.is_some_and(|since| now.since(since) >= recorded_results_ms(config));
        let tidy = change.recorded_results && (crowded || overdue || retires);
        if change.urgent || open || inbox.in_doubt() || tidy {
            inbox.write(now, worker, change.entries, sink);
        } else {
            inbox.recorded_results_since = change.recorded_results.then_some(since.unwrap_or(now));
        }
    }

    fn forget(&mut self, worker: &WorkerId) {
        self.retime(worker, None);
        self.inboxes.remove(worker);
        self.claimed.remove(worker);
        self.closed.remove(worker);
        self.unrecorded.remove(worker);
    }

    fn retime(&mut self, worker: &WorkerId, timer: Option<Time>) {
        let Some(inbox) = self.inboxes.get_mut(worker).filter(|inbox| inbox.timer != timer) else { return };
        if let Some(before) = std::mem::replace(&mut inbox.timer, timer) {
            self.timers.remove(&(before, worker.clone()));
        }
        self.timers.extend(timer.map(|at| (at, worker.clone())));
    }

    /// The next time after now at which something is due by time alone.
    pub(super) fn due_at(&self, now: Time) -> Option<Time> {
        let list = (!self.listed && self.list.is_none()).then_some(self.list_due);
        let timer = self.timers.iter().map(|(at, _)| *at).find(|at| *at > now);
        [list, self.seek_at.filter(|_| self.listed), self.poll_at, timer]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()
    }
}

fn set(workers: &mut BTreeSet<WorkerId>, worker: &WorkerId, contains: bool) {
    match contains {
        true => workers.insert(worker.clone()),
        false => workers.remove(worker),
    };
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{WRITER, at, config, name, record, table};
    use super::super::model::{EntryState, JobState, Outcome, OutcomeKind};
    use super::super::table::Transition;
    use super::*;
    use crate::document::{DocumentRequest, Stamp};
    use crate::election::{Epoch, Version, WriteAnswer};
    use crate::id::{Incarnation, Nonce};
    use crate::machine::Effect;

    fn entry(dispatch: u32, state: EntryState) -> Entry {
        Entry {
            id: name("t1"),
            dispatch,
            attempt: dispatch,
            epoch: Epoch(1),
            dispatched_at: 0,
            queue: name("default"),
            kind: name("k"),
            payload: record("t1").payload,
            timeout_ms: 2000,
            state,
            cancel: false,
            progress: None,
        }
    }

    fn finished(kind: OutcomeKind) -> EntryState {
        EntryState::Finished { outcome: Outcome::bare(kind) }
    }

    #[test]
    fn an_entry_tells_of_its_attempt_and_of_no_other() {
        let by = Incarnation(9);
        let (table, _, id) = table(record("t1"), vec![Transition::Dispatch(name("w1"))]);
        let job = table.get(&id);
        let says = |worker: &str, dispatch, state| report(job, &name(worker), &entry(dispatch, state));
        assert_eq!(says("w1", 1, EntryState::Dispatched), Report::Nothing);
        assert_eq!(says("w1", 1, EntryState::Acked { by }), Report::Claimed(JobState::Acked));
        assert_eq!(says("w2", 1, EntryState::Running { by }), Report::Nothing, "it is out at w1");
        let done = OutcomeKind::Succeeded;
        assert_eq!(says("w1", 1, finished(done)), Report::Ended(Outcome::bare(done)));
        assert_eq!(says("w1", 0, finished(done)), Report::Late(done));
        assert_eq!(report(None, &name("w1"), &entry(1, EntryState::Dispatched)), Report::Stray);
    }

    /// Sends what is due, and returns the one request.
    fn ask(inboxes: &mut Inboxes, table: &Table, ledger: &Ledger) -> Option<(RequestId, DispatchRequest)> {
        let (config, workers, mut out) = (config(), Workers::default(), Vec::new());
        let view = View { now: Time(1000), wall_ms: 5, config: &config, table, workers: &workers };
        inboxes.send(&view, ledger, &mut Sink { requests: &mut 0, out: &mut out });
        assert!(out.len() <= 1, "{out:?}");
        out.into_iter().find_map(|effect| match effect {
            Effect::Request(id, request) => Some((id, request)),
            Effect::Output(_) => None,
        })
    }

    #[test]
    fn a_job_is_in_an_inbox_only_once_the_ledger_has_it() {
        let (table, mut ledger, _) = table(record("t1"), vec![Transition::Dispatch(name("w1"))]);
        let mut inboxes = Inboxes::new(WRITER, &config());
        inboxes.create(&name("w1"));
        let written = |request| match request {
            Some((id, DispatchRequest::Inbox(_, DocumentRequest::Write { body, .. }))) => {
                (id, body.entries.len())
            }
            other => panic!("{other:?}"),
        };
        let (id, entries) = written(ask(&mut inboxes, &table, &ledger));
        assert_eq!(entries, 0, "it is only made this leader's own");
        let won = DocumentAnswer::Written(WriteAnswer::Won(Version::new("1")));
        inboxes.answered(Time(1000), &config(), false, id, &name("w1"), won);
        assert_eq!(ask(&mut inboxes, &table, &ledger), None);
        super::super::fixtures::serve(&mut ledger, &table, 1000);
        inboxes.mark_all();
        assert_eq!(written(ask(&mut inboxes, &table, &ledger)).1, 1);
    }

    #[test]
    fn room_counts_what_is_there_and_what_is_coming() {
        let (mut table, mut ledger, _) = table(record("t1"), vec![Transition::Dispatch(name("w1"))]);
        let inboxes = Inboxes::new(WRITER, &config());
        let room = |table: &Table, entries_max| inboxes.has_room(table, &name("w1"), 1, entries_max);
        assert_eq!((room(&table, 1), room(&table, 2)), (false, true));
        table.create(&mut ledger, at(0), Some(2), record("t2"));
        table.change(&mut ledger, at(0), &name("t2"), Transition::Dispatch(name("w1")));
        assert_eq!((room(&table, 2), room(&table, 3)), (false, true));
    }

    #[test]
    fn a_closed_inbox_is_told_and_refuses_jobs() {
        let (table, _, _) = table(record("t1"), Vec::new());
        let mut inboxes = Inboxes::new(WRITER, &config());
        inboxes.create(&name("w1"));
        inboxes.refresh(&name("w1"));
        let (id, _) = ask(&mut inboxes, &table, &super::super::fixtures::ledger()).expect("a read");
        let nonce = Nonce { incarnation: Incarnation(9), sequence: 1 };
        let stamp = Stamp { epoch: Epoch(1), owner: Incarnation(3), nonce };
        let body = InboxDoc { closed: Some(Incarnation(9)), ..InboxDoc::default() };
        let found = Read::Found { stamp, body, version: Version::new("1") };
        let answer = DocumentAnswer::Read(found);
        let news = inboxes.answered(Time(1000), &config(), false, id, &name("w1"), answer);
        assert_eq!(news, Some(InboxNews::Read { dispatched: 0 }));
        assert_eq!(inboxes.closed().collect::<Vec<_>>(), [&name("w1")]);
        assert!(!inboxes.has_room(&table, &name("w1"), 0, 4));
    }
}
