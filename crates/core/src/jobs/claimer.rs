//! The claimer: a worker's side of jobs. It looks only at its own inbox, and runs only what it has claimed.

mod io;
mod plan;

pub use io::{ClaimerAnswer, ClaimerCommand, ClaimerCounts, ClaimerOutput, ClaimerRequest, Refused};

use super::model::{Entry, EntryState, InboxDoc, Outcome, OutcomeKind, Progress};
use super::serves::Serves;
use super::{QUICK_LOOKS, RETRY, next_request};
use crate::document::{Content, Document, DocumentAnswer, Rules, State, Unreadable, What, Writer};
use crate::election::Version;
use crate::id::{Incarnation, JobId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How many outcomes are remembered, so that a dispatch delivered again is not run again.
const REMEMBERED_MAX: usize = 256;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClaimerConfig {
    /// This life of the worker; new every time it starts.
    pub incarnation: Incarnation,
    /// How many attempts run at the same time.
    pub concurrency: usize,
    /// What it takes, and how many attempts are claimed at the same time, including running ones.
    pub serves: Arc<Serves>,
    /// How often it looks while something changes.
    pub fast_ms: u64,
    /// How often it looks while nothing changes.
    pub slow_ms: u64,
    /// How long after the last word on how far attempts are the next is written, if nothing else is.
    pub progress_ms: u64,
    /// How long a result waits for others to share its write, while more is running.
    pub linger_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Waiting,
    Running { since: Time },
    Done { outcome: Outcome, since: Time },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Run {
    phase: Phase,
    timeout_ms: u64,
    cancelled: bool,
    progress: Option<Progress>,
}

type Key = (JobId, u32);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claimer {
    config: ClaimerConfig,
    /// When the last step was taken; `None` before the first.
    now: Option<Time>,
    document: Document,
    content: Content<InboxDoc>,
    refused: BTreeSet<Refused>,
    /// The version of the inbox after whose read the worker's id was confirmed.
    confirmed: Option<Version>,
    confirming: Option<RequestId>,
    /// Failed confirmations in a row, and when to ask again.
    unconfirmed: u32,
    confirm_at: Time,
    runs: BTreeMap<Key, Run>,
    remembered: VecDeque<(Key, Outcome)>,
    poll_at: Time,
    poll_ms: u64,
    /// When nothing was in hand any more, and whether new work came soon after the previous time.
    idle_since: Time,
    steady: bool,
    /// How many empty looks may still stay quick.
    quick_looks: u8,
    /// When to write how far attempts are, if that is not written, and when it was written last.
    progress_due: Option<Time>,
    progress_at: Option<Time>,
    requests: u64,
    draining: bool,
    drained: bool,
    counts: ClaimerCounts,
}

impl Claimer {
    pub fn new(config: ClaimerConfig) -> Claimer {
        let writer = Writer::Guest { me: config.incarnation };
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Claimer {
            poll_ms: config.fast_ms,
            config,
            now: None,
            document: Document::new(rules),
            content: Content::default(),
            refused: BTreeSet::new(),
            confirmed: None,
            confirming: None,
            unconfirmed: 0,
            confirm_at: Time(0),
            runs: BTreeMap::new(),
            remembered: VecDeque::new(),
            poll_at: Time(0),
            idle_since: Time(0),
            steady: false,
            quick_looks: 0,
            progress_due: None,
            progress_at: None,
            requests: 0,
            draining: false,
            drained: false,
            counts: ClaimerCounts::default(),
        }
    }

    pub fn counts(&self) -> ClaimerCounts {
        self.counts
    }

    /// Claimed attempts whose result has not been written yet.
    pub fn in_hand(&self) -> usize {
        self.runs.len()
    }

    /// The inbox as last seen; `None` if there is none, or none that can be read.
    fn doc(&self) -> Option<&InboxDoc> {
        self.content.get().filter(|_| self.document.state() == State::Found)
    }

    fn is_refused(&self, entry: &Entry) -> bool {
        self.refused.contains(&(entry.id.clone(), entry.dispatch, entry.epoch))
    }

    fn command(&mut self, now: Time, command: ClaimerCommand) {
        match command {
            ClaimerCommand::Look => {
                self.poll_ms = self.config.fast_ms;
                self.poll_at = self.poll_at.min(now);
            }
            ClaimerCommand::Progress { id, dispatch, progress } => {
                if let Some(run) = self.runs.get_mut(&(id, dispatch))
                    && matches!(run.phase, Phase::Running { .. })
                    && run.progress.replace(progress.clone()) != Some(progress)
                {
                    let due = self.progress_at.map_or(now, |at| at + self.config.progress_ms);
                    self.progress_due.get_or_insert(due.max(now));
                }
            }
            ClaimerCommand::Ended { id, dispatch, outcome } => {
                if let Some(run) = self.runs.get_mut(&(id, dispatch))
                    && !matches!(run.phase, Phase::Done { .. })
                {
                    run.phase = Phase::Done { outcome, since: now };
                }
            }
            ClaimerCommand::Drain => self.draining = true,
        }
    }

    fn on_inbox(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<InboxDoc>,
        refused: BTreeSet<Refused>,
        out: &mut Vec<Out<Self>>,
    ) {
        let is_read = matches!(answer, DocumentAnswer::Read(_));
        let (settled, body) = self.document.answered(now, id, answer);
        let read_body = body.is_some();
        self.content.settle(&settled.what, body);
        if read_body {
            self.counts.fenced += refused.difference(&self.refused).count() as u64;
            self.refused = refused;
        }
        match settled.what {
            What::Loaded | What::Landed { .. } | What::Shared | What::Overtaken(_) | What::Superseded(_) => {
                self.quicken(now);
                let unclaimed =
                    |doc: &InboxDoc| doc.entries.iter().any(|e| e.state == EntryState::Dispatched);
                if is_read && self.runs.is_empty() && self.doc().is_some_and(unclaimed) {
                    self.steady = now.since(self.idle_since) <= self.config.slow_ms.saturating_mul(2);
                }
                self.take(now, out);
                if !is_read && self.runs.is_empty() {
                    self.rest(now);
                }
            }
            What::Same => self.slacken(now),
            What::Empty | What::Removed => {
                self.orphan(out);
                self.slacken(now);
            }
            // Left alone. Running work carries on; its result is written once there is an inbox again.
            What::Blocked { .. } => self.counts.unreadable += 1,
            What::Nothing | What::Failed { .. } => {}
        }
    }

    /// Nothing in hand: the leader has to look before anything new can come, unless work keeps coming.
    fn rest(&mut self, now: Time) {
        self.idle_since = now;
        self.quick_looks = if self.steady { QUICK_LOOKS } else { 0 };
        if !self.steady {
            self.poll_ms = (self.config.fast_ms * 4).min(self.config.slow_ms);
            self.slacken(now);
        }
    }

    fn quicken(&mut self, now: Time) {
        self.poll_ms = self.config.fast_ms;
        self.poll_at = now + self.poll_ms;
    }

    fn slacken(&mut self, now: Time) {
        if self.quick_looks > 0 {
            self.quick_looks -= 1;
            return self.quicken(now);
        }
        self.poll_at = now + self.poll_ms;
        self.poll_ms = (self.poll_ms * 2).min(self.config.slow_ms);
    }

    /// Another life claims only once it has the id. So if the id still belongs to this life after such a claim was read, the
    /// other life came before and is over. If it does not, or nobody knows, nothing of the other life is overwritten.
    fn on_confirmed(&mut self, now: Time, id: RequestId, mine: bool) {
        if self.confirming.take_if(|confirming| *confirming == id).is_none() {
            return;
        }
        if mine {
            self.unconfirmed = 0;
            self.confirmed = self.document.version().cloned();
            return;
        }
        self.unconfirmed = self.unconfirmed.saturating_add(1);
        self.confirm_at = now + RETRY.pause_ms(self.unconfirmed).max(self.config.fast_ms);
        self.document.refresh();
    }

    /// Whether the inbox holds something of another life that has not been confirmed to be a former one.
    fn is_doubtful(&self) -> bool {
        let Some(doc) = self.doc() else { return false };
        let other = |by: &Incarnation| *by != self.config.incarnation;
        let claimed = doc.entries.iter().any(|entry| match &entry.state {
            EntryState::Acked { by } | EntryState::Running { by } => other(by),
            EntryState::Dispatched | EntryState::Finished { .. } => false,
        });
        let said = doc.serves.as_ref().is_some_and(|(by, _)| other(by));
        let doubtful = claimed || said || doc.closed.as_ref().is_some_and(other);
        doubtful && self.confirmed.as_ref() != self.document.version() && !Mutant::JobSuccessorWrittenOff.on()
    }

    /// Takes the inbox as it is after a read or a write of its own.
    fn take(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        let Some(doc) = self.doc().cloned() else { return };
        let me = self.config.incarnation;
        for entry in &doc.entries {
            let key = entry.key();
            match &entry.state {
                EntryState::Dispatched => {
                    if Mutant::JobRunUnclaimed.on() && !self.is_refused(entry) {
                        self.claim(key, entry);
                    }
                }
                EntryState::Acked { by } | EntryState::Running { by } => {
                    if *by == me || Mutant::JobClaimInherited.on() {
                        self.claim(key.clone(), entry);
                        if entry.cancel {
                            self.call_off(now, &key, out);
                        }
                    }
                }
                EntryState::Finished { .. } => {
                    let done = self.runs.get(&key).and_then(|run| match &run.phase {
                        Phase::Done { outcome, .. } => Some(outcome.clone()),
                        Phase::Waiting | Phase::Running { .. } => None,
                    });
                    if let Some(outcome) = done {
                        self.runs.remove(&key);
                        self.remember(key, outcome);
                    }
                }
            }
        }
        self.orphan(out);
    }

    fn claim(&mut self, key: Key, entry: &Entry) {
        if self.runs.contains_key(&key) {
            return;
        }
        self.counts.claimed += 1;
        let run =
            Run { phase: Phase::Waiting, timeout_ms: entry.timeout_ms, cancelled: false, progress: None };
        self.runs.insert(key, run);
    }

    fn call_off(&mut self, now: Time, key: &Key, out: &mut Vec<Out<Self>>) {
        let Some(run) = self.runs.get_mut(key).filter(|run| !run.cancelled) else { return };
        run.cancelled = true;
        match run.phase {
            Phase::Waiting => {
                run.phase = Phase::Done { outcome: Outcome::bare(OutcomeKind::Cancelled), since: now };
            }
            Phase::Running { .. } => {
                let (id, dispatch) = key.clone();
                out.push(Effect::Output(ClaimerOutput::Cancel { id, dispatch, dropped: false }));
            }
            Phase::Done { .. } => {}
        }
    }

    /// Drops attempts whose entry is gone or belongs to somebody else now: nobody waits for them.
    fn orphan(&mut self, out: &mut Vec<Out<Self>>) {
        let me = self.config.incarnation;
        let entries = self.doc().map_or(&[][..], |doc| &doc.entries);
        let mine = |key: &Key| {
            entries.iter().any(|e| {
                e.id == key.0
                    && e.dispatch == key.1
                    && match &e.state {
                        EntryState::Acked { by } | EntryState::Running { by } => *by == me,
                        EntryState::Dispatched | EntryState::Finished { .. } => false,
                    }
            })
        };
        let keep = Mutant::JobRunUnclaimed.on() || Mutant::JobClaimInherited.on();
        let lost: Vec<Key> = self.runs.keys().filter(|key| !keep && !mine(key)).cloned().collect();
        for key in lost {
            let run = self.runs.remove(&key);
            self.counts.orphaned += 1;
            // It was begun: if it is delivered again, it is not run again.
            if let Some(Run { phase: Phase::Running { .. }, .. }) = &run {
                let (id, dispatch) = key.clone();
                out.push(Effect::Output(ClaimerOutput::Cancel { id, dispatch, dropped: true }));
            }
            let outcome = match run.map(|run| run.phase) {
                Some(Phase::Done { outcome, .. }) => outcome,
                Some(Phase::Running { .. }) => Outcome::bare(OutcomeKind::Abandoned),
                Some(Phase::Waiting) | None => continue,
            };
            self.remember(key, outcome);
        }
    }

    fn remember(&mut self, key: Key, outcome: Outcome) {
        self.remembered.push_back((key, outcome));
        if self.remembered.len() > REMEMBERED_MAX {
            self.remembered.pop_front();
        }
    }

    /// Gives up attempts that have taken too long, by this worker's own clock.
    fn expire(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        for (key, run) in &mut self.runs {
            let Phase::Running { since } = run.phase else { continue };
            if now.since(since) >= run.timeout_ms {
                run.phase = Phase::Done { outcome: Outcome::bare(OutcomeKind::TimedOut), since: now };
                let (id, dispatch) = key.clone();
                out.push(Effect::Output(ClaimerOutput::Cancel { id, dispatch, dropped: true }));
            }
        }
    }

    fn running(&self) -> usize {
        self.runs.values().filter(|run| matches!(run.phase, Phase::Running { .. })).count()
    }

    fn start(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        let mut room = self.config.concurrency.saturating_sub(self.running());
        let Some(doc) = self.content.get().filter(|_| self.document.state() == State::Found) else { return };
        for entry in &doc.entries {
            let Some(run) = self.runs.get_mut(&entry.key()).filter(|run| run.phase == Phase::Waiting) else {
                continue;
            };
            if self.draining {
                run.phase = Phase::Done { outcome: Outcome::bare(OutcomeKind::Returned), since: now };
                continue;
            }
            if room == 0 {
                continue;
            }
            room -= 1;
            run.phase = Phase::Running { since: now };
            out.push(Effect::Output(ClaimerOutput::Run {
                id: entry.id.clone(),
                dispatch: entry.dispatch,
                attempt: entry.attempt,
                epoch: entry.epoch,
                queue: entry.queue.clone(),
                kind: entry.kind.clone(),
                payload: entry.payload.clone(),
                timeout_ms: entry.timeout_ms,
            }));
        }
    }

    fn awaits_answer(&self) -> bool {
        self.document.is_busy() || self.confirming.is_some()
    }

    fn advance(&mut self, now: Time, out: &mut Vec<Out<Self>>) {
        if self.awaits_answer() {
            return;
        }
        let me = self.config.incarnation;
        let closed = self.doc().is_none_or(|doc| doc.closed == Some(me));
        let must_read = self.document.must_read();
        if self.draining && closed && self.runs.is_empty() && !must_read {
            self.drained = true;
            return out.push(Effect::Output(ClaimerOutput::Drained));
        }
        if now < self.document.due().max(self.confirm_at) {
            return;
        }
        if must_read {
            return self.send(now, None, out);
        }
        if self.is_doubtful() {
            self.requests += 1;
            let id = RequestId(self.requests);
            self.confirming = Some(id);
            return out.push(Effect::Request(id, ClaimerRequest::Confirm));
        }
        if let Some(doc) = self.plan(now) {
            self.document.touch();
            return self.send(now, Some(doc), out);
        }
        if now >= self.poll_at {
            self.document.refresh();
            self.send(now, None, out);
        }
    }

    /// Writes this, or reads.
    fn send(&mut self, now: Time, write: Option<InboxDoc>, out: &mut Vec<Out<Self>>) {
        let next = next_request(&mut self.requests, &mut self.document, now, write.is_some());
        let Some((id, op)) = next else { return };
        let request = op.with(|| self.content.send(write.unwrap_or_default()));
        out.push(Effect::Request(id, ClaimerRequest::Inbox(request, self.refused.clone())));
    }
}

impl Machine for Claimer {
    type Command = ClaimerCommand;
    type Request = ClaimerRequest;
    type Output = ClaimerOutput;

    fn handle(&mut self, now: Now, input: In<Claimer>, out: &mut Vec<Out<Claimer>>) {
        let now = now.at;
        self.now = Some(now);
        if self.drained {
            return;
        }
        match input {
            Input::Wake => {}
            Input::Command(command) => self.command(now, command),
            Input::Answer(id, ClaimerAnswer::Inbox(answer, refused)) => {
                self.on_inbox(now, id, answer, refused, out);
            }
            Input::Answer(id, ClaimerAnswer::Confirmed(mine)) => self.on_confirmed(now, id, mine),
        }
        self.expire(now, out);
        self.start(now, out);
        self.advance(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        if self.drained {
            return None;
        }
        let Some(now) = self.now else { return Some(Time(0)) };
        let awaits_answer = self.awaits_answer();
        let runs = self.runs.values().filter_map(|run| match run.phase {
            Phase::Running { since } => Some(since + run.timeout_ms),
            Phase::Done { since, .. } if !awaits_answer => Some(since + self.config.linger_ms),
            Phase::Waiting | Phase::Done { .. } => None,
        });
        let pause = self.document.due().max(self.confirm_at);
        let look = if self.document.must_read() { pause } else { self.poll_at.max(pause) };
        let progress = self.progress_due.map(|at| at.max(pause));
        // Results that could not be written wait for the end of the pause as well.
        let own = [Some(look), Some(pause), progress].into_iter().flatten().filter(|_| !awaits_answer);
        runs.chain(own).filter(|at| *at > now).min()
    }
}
