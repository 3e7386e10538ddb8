//! The claimer: a worker's side of jobs. It looks only at its own inbox, and runs only what it has claimed.

mod io;
mod plan;

pub use io::{ClaimerCounts, ClaimerEffect, ClaimerInput, ClaimerRead};

use super::shard::retry_ms;
use super::{Entry, EntryState, InboxDoc, Outcome, OutcomeKind, QUICK_LOOKS};
use crate::election::{RequestId, Version, WriteAnswer};
use crate::id::Incarnation;
use crate::id::JobId;
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many outcomes are remembered, so that an attempt delivered again is not run again.
const REMEMBERED_MAX: usize = 256;

/// The parameters of a claimer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClaimerConfig {
    /// This life of the worker; new every time it starts.
    pub incarnation: Incarnation,
    /// How many attempts run at the same time.
    pub concurrency: usize,
    /// How many attempts are claimed at the same time, including running ones.
    pub claims_max: usize,
    /// How often it looks while something changes.
    pub fast_ms: u64,
    /// How often it looks while nothing changes.
    pub slow_ms: u64,
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
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Flight {
    Read(RequestId),
    Write { id: RequestId, doc: InboxDoc },
    Confirm(RequestId),
}

type Key = (JobId, u32);

/// Claims and runs jobs for one worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claimer {
    config: ClaimerConfig,
    doc: Option<(InboxDoc, Version)>,
    fenced: BTreeSet<Key>,
    /// The version of the inbox after whose read the worker's id was confirmed.
    confirmed: Option<Version>,
    runs: BTreeMap<Key, Run>,
    remembered: VecDeque<(Key, Outcome)>,
    flight: Option<Flight>,
    must_read: bool,
    poll_at: Time,
    poll_ms: u64,
    /// When nothing was in hand any more, and whether new work came soon after the previous time.
    idle_since: Time,
    steady: bool,
    /// How many empty looks may still stay quick.
    quick_looks: u8,
    failures: u32,
    requests: u64,
    writes: u64,
    draining: bool,
    drained: bool,
    counts: ClaimerCounts,
}

impl Claimer {
    /// A claimer that has not looked yet.
    pub fn new(config: ClaimerConfig) -> Claimer {
        Claimer {
            poll_ms: config.fast_ms,
            config,
            doc: None,
            fenced: BTreeSet::new(),
            confirmed: None,
            runs: BTreeMap::new(),
            remembered: VecDeque::new(),
            flight: None,
            must_read: true,
            poll_at: Time(0),
            idle_since: Time(0),
            steady: false,
            quick_looks: 0,
            failures: 0,
            requests: 0,
            writes: 0,
            draining: false,
            drained: false,
            counts: ClaimerCounts::default(),
        }
    }

    /// The counters so far.
    pub fn counts(&self) -> ClaimerCounts {
        self.counts
    }

    /// Claimed attempts whose result has not been written yet.
    pub fn in_hand(&self) -> usize {
        self.runs.len()
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: ClaimerInput, out: &mut Vec<ClaimerEffect>) {
        if self.drained {
            return;
        }
        match input {
            ClaimerInput::Wake => {}
            ClaimerInput::Nudge => {
                self.poll_ms = self.config.fast_ms;
                self.poll_at = self.poll_at.min(now);
            }
            ClaimerInput::Read(id, read) => {
                if self.flight == Some(Flight::Read(id)) {
                    self.flight = None;
                    self.on_read(now, read, out);
                }
            }
            ClaimerInput::Written(id, answer) => self.on_written(now, id, answer, out),
            ClaimerInput::Confirmed(id, mine) => {
                if self.flight == Some(Flight::Confirm(id)) {
                    self.flight = None;
                    self.on_confirmed(now, mine);
                }
            }
            ClaimerInput::Ended { id, attempt, outcome } => {
                if let Some(run) = self.runs.get_mut(&(id, attempt))
                    && !matches!(run.phase, Phase::Done { .. })
                {
                    run.phase = Phase::Done { outcome, since: now };
                }
            }
            ClaimerInput::Drain => self.draining = true,
        }
        self.expire(now, out);
        self.start(now, out);
        self.advance(now, out);
    }

    fn on_read(&mut self, now: Time, read: ClaimerRead, out: &mut Vec<ClaimerEffect>) {
        let failed = matches!(read, ClaimerRead::Unavailable);
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
        match read {
            ClaimerRead::Found { doc, version, fenced } => {
                self.must_read = false;
                self.counts.fenced += fenced.difference(&self.fenced).count() as u64;
                self.fenced = fenced;
                self.quicken(now);
                if self.runs.is_empty() && doc.entries.iter().any(|e| e.state == EntryState::Dispatched) {
                    self.steady = now.since(self.idle_since) <= self.config.slow_ms.saturating_mul(2);
                }
                self.take(now, doc, version, out);
            }
            ClaimerRead::Unchanged => {
                self.must_read = false;
                self.slacken(now);
            }
            ClaimerRead::Absent => {
                self.must_read = false;
                self.doc = None;
                self.orphan(out);
                self.slacken(now);
            }
            ClaimerRead::Unreadable => {
                // Left alone. Running work carries on; its result is written once there is an inbox again.
                self.counts.unreadable += 1;
                (self.must_read, self.doc) = (false, None);
                self.slacken(now);
            }
            ClaimerRead::Unavailable => self.poll_at = now + retry_ms(self.failures).max(self.config.fast_ms),
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

    fn on_written(&mut self, now: Time, id: RequestId, answer: WriteAnswer, out: &mut Vec<ClaimerEffect>) {
        let doc = match self.flight.take() {
            Some(Flight::Write { id: flight, doc }) if flight == id => doc,
            other => {
                self.flight = other;
                return;
            }
        };
        match answer {
            WriteAnswer::Won(version) => {
                self.failures = 0;
                self.quicken(now);
                self.take(now, doc, version, out);
                if self.runs.is_empty() {
                    // Nothing in hand: the leader has to look before anything new can come, unless work keeps coming.
                    self.idle_since = now;
                    self.quick_looks = if self.steady { QUICK_LOOKS } else { 0 };
                    if !self.steady {
                        self.poll_ms = (self.config.fast_ms * 4).min(self.config.slow_ms);
                        self.slacken(now);
                    }
                }
            }
            // A read tells what is there, and whether this claimer's own write landed.
            WriteAnswer::Lost => (self.must_read, self.poll_at) = (true, now),
            WriteAnswer::Unknown => {
                self.failures = self.failures.saturating_add(1);
                (self.must_read, self.poll_at) = (true, now + retry_ms(self.failures - 1));
            }
            WriteAnswer::Unavailable | WriteAnswer::Denied => {
                self.failures = self.failures.saturating_add(1);
                self.poll_at = now + retry_ms(self.failures);
                self.must_read = true;
            }
        }
    }

    /// Another life claims only once it has the id. So if the id still belongs to this life after such a claim was read, the
    /// other life came before and is over. If it does not, or nobody knows, nothing of the other life is overwritten.
    fn on_confirmed(&mut self, now: Time, mine: bool) {
        if mine {
            self.confirmed = self.doc.as_ref().map(|(_, version)| version.clone());
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.poll_at = now + retry_ms(self.failures).max(self.config.fast_ms);
        self.must_read = true;
    }

    /// Whether the inbox holds something of another life that has not been confirmed to be a former one.
    fn is_doubtful(&self) -> bool {
        let Some((doc, version)) = &self.doc else { return false };
        let other = |by: &Incarnation| *by != self.config.incarnation;
        let claimed = doc.entries.iter().any(|entry| match &entry.state {
            EntryState::Acked { by } | EntryState::Running { by } => other(by),
            EntryState::Dispatched | EntryState::Finished { .. } => false,
        });
        let doubtful = claimed || doc.closed.as_ref().is_some_and(other);
        doubtful && self.confirmed.as_ref() != Some(version) && !Mutant::JobSuccessorWrittenOff.on()
    }

    /// Takes the inbox as it is after a read or a write of its own.
    fn take(&mut self, now: Time, doc: InboxDoc, version: Version, out: &mut Vec<ClaimerEffect>) {
        let me = self.config.incarnation;
        for entry in &doc.entries {
            let key = entry.key();
            match &entry.state {
                EntryState::Dispatched => {
                    if Mutant::JobRunUnclaimed.on() && !self.fenced.contains(&key) {
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
        self.doc = Some((doc, version));
        self.orphan(out);
    }

    fn claim(&mut self, key: Key, entry: &Entry) {
        if self.runs.contains_key(&key) {
            return;
        }
        self.counts.claimed += 1;
        let run = Run { phase: Phase::Waiting, timeout_ms: entry.timeout_ms, cancelled: false };
        self.runs.insert(key, run);
    }

    fn call_off(&mut self, now: Time, key: &Key, out: &mut Vec<ClaimerEffect>) {
        let Some(run) = self.runs.get_mut(key).filter(|run| !run.cancelled) else { return };
        run.cancelled = true;
        match run.phase {
            Phase::Waiting => {
                run.phase = Phase::Done { outcome: Outcome::bare(OutcomeKind::Cancelled), since: now };
            }
            Phase::Running { .. } => {
                let (id, attempt) = key.clone();
                out.push(ClaimerEffect::Cancel { id, attempt, dropped: false });
            }
            Phase::Done { .. } => {}
        }
    }

    /// Drops attempts whose entry is gone or belongs to somebody else now: nobody waits for them.
    fn orphan(&mut self, out: &mut Vec<ClaimerEffect>) {
        let me = self.config.incarnation;
        let entries = self.doc.as_ref().map_or(&[][..], |(doc, _)| &doc.entries);
        let mine = |key: &Key| {
            entries.iter().any(|e| {
                e.id == key.0
                    && e.attempt == key.1
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
                let (id, attempt) = key.clone();
                out.push(ClaimerEffect::Cancel { id, attempt, dropped: true });
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
    fn expire(&mut self, now: Time, out: &mut Vec<ClaimerEffect>) {
        for (key, run) in &mut self.runs {
            let Phase::Running { since } = run.phase else { continue };
            if now.since(since) >= run.timeout_ms {
                run.phase = Phase::Done { outcome: Outcome::bare(OutcomeKind::TimedOut), since: now };
                let (id, attempt) = key.clone();
                out.push(ClaimerEffect::Cancel { id, attempt, dropped: true });
            }
        }
    }

    fn running(&self) -> usize {
        self.runs.values().filter(|run| matches!(run.phase, Phase::Running { .. })).count()
    }

    /// Starts claimed attempts, as far as there is room.
    fn start(&mut self, now: Time, out: &mut Vec<ClaimerEffect>) {
        let mut room = self.config.concurrency.saturating_sub(self.running());
        let Some((doc, _)) = &self.doc else { return };
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
            out.push(ClaimerEffect::Run {
                id: entry.id.clone(),
                attempt: entry.attempt,
                epoch: entry.epoch,
                kind: entry.kind.clone(),
                payload: entry.payload.clone(),
                timeout_ms: entry.timeout_ms,
            });
        }
    }

    fn advance(&mut self, now: Time, out: &mut Vec<ClaimerEffect>) {
        if self.flight.is_some() {
            return;
        }
        let me = self.config.incarnation;
        let closed = self.doc.as_ref().is_none_or(|(doc, _)| doc.closed == Some(me));
        if self.draining && closed && self.runs.is_empty() && !self.must_read {
            self.drained = true;
            return out.push(ClaimerEffect::Drained);
        }
        let due = now >= self.poll_at;
        if self.must_read {
            if due {
                self.read(out);
            }
            return;
        }
        if self.is_doubtful() {
            self.requests += 1;
            let id = RequestId(self.requests);
            self.flight = Some(Flight::Confirm(id));
            return out.push(ClaimerEffect::Confirm(id));
        }
        if let Some((doc, version)) = self.plan(now).filter(|_| self.failures == 0 || due) {
            self.writes += 1;
            self.requests += 1;
            let id = RequestId(self.requests);
            self.flight = Some(Flight::Write { id, doc: doc.clone() });
            return out.push(ClaimerEffect::Write(id, doc, version));
        }
        if due {
            self.read(out);
        }
    }

    fn read(&mut self, out: &mut Vec<ClaimerEffect>) {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.flight = Some(Flight::Read(id));
        out.push(ClaimerEffect::Read(id, self.doc.as_ref().map(|(_, version)| version.clone())));
    }

    /// When to send [`ClaimerInput::Wake`]; `None` if nothing waits for time.
    pub fn wake_at(&self, now: Time) -> Option<Time> {
        if self.drained || self.flight.is_some() {
            let ends = self.runs.values().filter_map(|run| match run.phase {
                Phase::Running { since } => Some(since + run.timeout_ms),
                Phase::Waiting | Phase::Done { .. } => None,
            });
            return ends.filter(|_| !self.drained).min();
        }
        let runs = self.runs.values().filter_map(|run| match run.phase {
            Phase::Waiting => None,
            Phase::Running { since } => Some(since + run.timeout_ms),
            Phase::Done { since, .. } => Some(since + self.config.linger_ms).filter(|at| *at > now),
        });
        runs.chain([self.poll_at]).min()
    }
}
