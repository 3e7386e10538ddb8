//! The jobs of this leader, and everything that follows from them: who has what, what waits, and what is due.
//!
//! Only [`Table::change`] changes a job's state. It takes the job out of the index first and puts it back afterwards, so the
//! index always says what a search through all jobs would say. A step costs what changed, not what exists: the table also
//! remembers what changed, until somebody asks for it.

mod index;
mod transition;

use super::dispatcher::SubmitAnswer;
use super::ledger::Ledger;
use super::model::{JOB_LATE_MAX, JobRecord, JobState, LateResult};
use crate::election::Epoch;
use crate::id::{JobId, WorkerId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) use index::{Changes, Class, Index, Place};
pub(super) use transition::{AttemptEnd, Clocks, Times, Transition, Withdraw};

/// Only the table changes it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Job {
    record: JobRecord,
    shard: usize,
    /// The shard's revision when the job last changed.
    revision: u64,
    times: Times,
    withdraw: Option<Withdraw>,
    /// It is queued, but its time has not come.
    pausing: bool,
    /// Submissions to be answered once the ledger on the store has the job.
    tokens: Vec<(u64, SubmitAnswer)>,
    told: Option<(JobState, u32)>,
    timer: Option<Time>,
    /// The dispatches whose results count, as far as this leader knows: found in an inbox once more, they are not late.
    counted: Vec<(WorkerId, u32)>,
}

impl Job {
    pub(super) fn record(&self) -> &JobRecord {
        &self.record
    }

    pub(super) fn times(&self) -> Times {
        self.times
    }

    pub(super) fn withdraw(&self) -> Option<Withdraw> {
        self.withdraw
    }

    /// Whether the ledger on the store has the job as it is here.
    pub(super) fn is_confirmed(&self, ledger: &Ledger) -> bool {
        ledger.is_confirmed(self.shard, self.revision)
    }

    /// Whether this dispatch to this worker is the one that counts.
    pub(super) fn is_current(&self, worker: &WorkerId, dispatch: u32) -> bool {
        self.record.state.is_out() && self.is_last(worker, dispatch)
    }

    fn is_last(&self, worker: &WorkerId, dispatch: u32) -> bool {
        self.record.dispatch == dispatch && self.record.worker.as_ref() == Some(worker)
    }

    /// Whether the result of this dispatch was applied.
    pub(super) fn has_counted(&self, worker: &WorkerId, dispatch: u32) -> bool {
        self.counted.iter().any(|(by, counted)| by == worker && *counted == dispatch)
    }

    /// Whether it can be given to a worker.
    fn is_ready(&self) -> bool {
        self.record.state == JobState::Queued && !self.pausing
    }

    /// The worker that has the job, or may have it.
    fn out_at(&self) -> Option<&WorkerId> {
        self.record.worker.as_ref().filter(|_| self.record.state.is_out())
    }

    /// Every state begins here.
    fn enter(&mut self, now: Time, state: JobState) {
        self.record.state = state;
        self.times.state_since = now;
        // Too late to take it back.
        self.withdraw = None;
    }

    /// A state of which the ledger says who decided it, and why.
    fn enter_recorded(&mut self, now: Time, epoch: Epoch, state: JobState, reason: &str) {
        self.enter(now, state);
        self.record.epoch = epoch;
        self.record.reason = Arc::from(reason);
    }

    fn end_attempt(&mut self, now: Time, attempt: AttemptEnd) {
        match attempt {
            AttemptEnd::None => {}
            AttemptEnd::Withdrawn => self.record.unbegun += 1,
            AttemptEnd::Returned => {
                self.record.unbegun += 1;
                self.times.waits_since = now;
            }
            AttemptEnd::Ended { result, given_up } => {
                self.record.result = result;
                self.record.given_up |= given_up;
                let this = self.record.worker.clone().map(|worker| (worker, self.record.dispatch));
                self.counted.extend(this.filter(|_| !given_up));
                self.times.waits_since = now;
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Table {
    epoch: Epoch,
    /// The number of the last ending in this epoch.
    endings: u64,
    jobs: BTreeMap<JobId, Job>,
    index: Index,
    pub(super) changes: Changes,
    /// By shard: the jobs that changed after its confirmed revision.
    unconfirmed: Vec<BTreeSet<JobId>>,
}

impl Table {
    pub(super) fn new(epoch: Epoch, shards: usize) -> Table {
        Table {
            epoch,
            endings: 0,
            jobs: BTreeMap::new(),
            index: Index::of(shards, [].into_iter()),
            changes: Changes::default(),
            unconfirmed: vec![BTreeSet::new(); shards],
        }
    }

    // ---- looking ----

    pub(super) fn get(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn of_shard(&self, shard: usize) -> impl Iterator<Item = &Job> {
        self.index.shards[shard].ids.iter().filter_map(|id| self.jobs.get(id))
    }

    pub(super) fn out_at(&self, worker: &WorkerId) -> impl Iterator<Item = &Job> {
        self.index.out.get(worker).into_iter().flatten().filter_map(|id| self.jobs.get(id))
    }

    /// How many attempts are out at this worker.
    pub(super) fn load_of(&self, worker: &WorkerId) -> usize {
        self.index.out.get(worker).map_or(0, BTreeSet::len)
    }

    /// The jobs of each class that can be given to a worker, in their order.
    pub(super) fn ready(&self) -> &BTreeMap<Class, BTreeSet<Place>> {
        &self.index.ready
    }

    /// The next time after now at which a job has to be judged.
    pub(super) fn due_at(&self, now: Time) -> Option<Time> {
        self.index.timers.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    // ---- changing ----

    /// The only place that changes the state of a job. Panics if the transition is not allowed: a job whose state cannot be
    /// trusted must not reach the ledger.
    pub(super) fn change(&mut self, ledger: &mut Ledger, clocks: Clocks, id: &JobId, transition: Transition) {
        let (now, epoch) = (clocks.now, self.epoch);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let from = job.record.state;
        let to = match &transition {
            Transition::Dispatch(_) => JobState::Dispatched,
            Transition::Requeue { .. } | Transition::Retry { .. } => JobState::Queued,
            Transition::Claim(state) | Transition::End { state, .. } => *state,
        };
        let retried = matches!(transition, Transition::Retry { .. }) && job.record.may_be_retried();
        let allowed = from.may_become(to) || retried || Mutant::JobLateResultReopens.on();
        assert!(allowed, "{id}: {from:?} cannot become {to:?}");
        self.index.take(job);
        self.changes.left(job);
        // What a worker reports about itself is in its inbox. The ledger does not repeat it: that saves two writes per job, and a
        // new leader reads the inboxes anyway.
        let recorded = !matches!(transition, Transition::Claim(_));
        match transition {
            Transition::Dispatch(worker) => {
                job.record.dispatch += 1;
                job.record.worker = Some(worker);
                job.record.given_up = false;
                job.record.began_ms = 0;
                job.enter_recorded(now, epoch, to, "");
            }
            Transition::Claim(state) => {
                if job.record.began_ms == 0 {
                    job.record.began_ms = clocks.wall_ms;
                }
                job.enter(now, state);
            }
            Transition::Requeue { attempt, pause_ms, reason } => {
                job.end_attempt(now, attempt);
                job.times.not_before = now + pause_ms;
                job.pausing = pause_ms > 0;
                if job.pausing && !Mutant::JobBackoffForgotten.on() {
                    // The next leader keeps to the pause, too.
                    job.record.not_before_ms = clocks.in_ms(pause_ms);
                }
                job.enter_recorded(now, epoch, to, &reason);
            }
            Transition::Retry { attempts_max, retries } => {
                job.record.limits.attempts_max = attempts_max;
                job.record.retries = retries;
                job.record.cancel = false;
                job.record.result = Arc::from([]);
                job.record.not_before_ms = clocks.wall_ms;
                (job.record.ending, job.record.began_ms, job.record.ended_ms) = (0, 0, 0);
                job.times = Times { known_since: now, state_since: now, waits_since: now, not_before: now };
                job.pausing = false;
                job.enter_recorded(now, epoch, to, "");
            }
            Transition::End { attempt, reason, .. } => {
                job.end_attempt(now, attempt);
                job.enter_recorded(now, epoch, to, &reason);
                self.endings += 1;
                (job.record.ending, job.record.ended_ms) = (self.endings, clocks.wall_ms);
                if !job.record.may_be_retried() {
                    job.record.payload = Arc::from([]);
                }
            }
        }
        self.index.put(job);
        self.changes.came(job);
        if recorded {
            self.touch(ledger, id);
        }
    }

    pub(super) fn create(
        &mut self,
        ledger: &mut Ledger,
        clocks: Clocks,
        token: Option<u64>,
        record: JobRecord,
    ) {
        // Whatever happened to it elsewhere did not happen here.
        let new = JobRecord::new(
            record.id.clone(),
            record.series.clone(),
            record.kind.clone(),
            record.limits.clone(),
        );
        let record = JobRecord {
            submitted_ms: if record.submitted_ms > 0 { record.submitted_ms } else { clocks.wall_ms },
            state: new.state,
            worker: new.worker,
            epoch: self.epoch,
            ending: new.ending,
            began_ms: new.began_ms,
            ended_ms: new.ended_ms,
            cancel: new.cancel,
            given_up: new.given_up,
            reason: new.reason,
            result: new.result,
            late: new.late,
            ..record
        };
        let id = record.id.clone();
        self.insert(ledger, clocks, record, None);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.tokens.extend(token.map(|token| (token, SubmitAnswer::Created)));
        }
        self.touch(ledger, &id);
    }

    /// Endings up to this number have been recorded in this epoch, by an earlier life of this leader.
    pub(super) fn skip_endings(&mut self, upto: u64) {
        self.endings = self.endings.max(upto);
    }

    /// A shard as a former leader left it.
    pub(super) fn load(&mut self, ledger: &Ledger, clocks: Clocks, shard: usize, records: Vec<JobRecord>) {
        for id in self.index.shards[shard].ids.clone() {
            self.remove(&id);
        }
        for record in records {
            if record.epoch == self.epoch {
                self.endings = self.endings.max(record.ending);
            }
            let told = Some((record.state, record.dispatch));
            self.insert(ledger, clocks, record, told);
        }
    }

    fn insert(&mut self, ledger: &Ledger, clocks: Clocks, record: JobRecord, told: Option<(JobState, u32)>) {
        self.remove(&record.id);
        let (now, not_before) = (clocks.now, clocks.at(record.not_before_ms));
        // A former leader has applied it, unless it gave the attempt up.
        let last = record.worker.clone().map(|worker| (worker, record.dispatch));
        let job = Job {
            counted: last.filter(|_| !record.state.is_out() && !record.given_up).into_iter().collect(),
            shard: ledger.shard_of(&record.series),
            record,
            revision: 0,
            times: Times { known_since: now, state_since: now, waits_since: not_before, not_before },
            withdraw: None,
            pausing: not_before > now,
            tokens: Vec::new(),
            told,
            timer: None,
        };
        self.index.put(&job);
        self.changes.came(&job);
        self.jobs.insert(job.record.id.clone(), job);
    }

    pub(super) fn remove(&mut self, id: &JobId) {
        let Some(job) = self.jobs.remove(id) else { return };
        self.index.take(&job);
        self.changes.left(&job);
        self.unconfirmed[job.shard].remove(id);
    }

    /// A submission of a job that exists, to be answered once the ledger on the store has it. Returns whether it exists.
    pub(super) fn submitted_again(&mut self, id: &JobId, token: Option<u64>) -> bool {
        let Some(job) = self.jobs.get_mut(id) else { return false };
        job.tokens.extend(token.map(|token| (token, SubmitAnswer::Exists)));
        self.changes.untold.insert(id.clone());
        true
    }

    /// Somebody asked to cancel it. The ledger records that, so that the next leader sees it too.
    pub(super) fn ask_to_cancel(&mut self, ledger: &mut Ledger, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.record.cancel = true;
        if job.record.state == JobState::Dispatched {
            job.withdraw = Some(Withdraw::Cancel);
        }
        self.touch(ledger, id);
    }

    /// Its entry is to be taken out of the inbox unclaimed.
    pub(super) fn withdraw_entry(&mut self, id: &JobId, why: Withdraw) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.withdraw = Some(why);
        }
    }

    /// The result of an attempt that had been given up.
    pub(super) fn record_late(&mut self, ledger: &mut Ledger, id: &JobId, late: LateResult) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.record.late.len() < JOB_LATE_MAX {
            job.record.late.push(late);
        }
        self.touch(ledger, id);
    }

    /// Says why a job waits. The reason goes to the store with the next write of its shard, or with one of its own if it lasts.
    pub(super) fn explain(&mut self, ledger: &mut Ledger, now: Time, id: &JobId, reason: &str) {
        self.changes.fresh.remove(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.record.state == JobState::Queued && *job.record.reason != *reason {
            job.record.reason = Arc::from(reason);
            ledger.explained(now, job.shard);
        }
    }

    /// When to judge a job next, going by time alone.
    pub(super) fn retime(&mut self, id: &JobId, timer: Option<Time>) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.timer != timer) else { return };
        if let Some(before) = std::mem::replace(&mut job.timer, timer) {
            self.index.timers.remove(&(before, id.clone()));
        }
        self.index.timers.extend(timer.map(|at| (at, id.clone())));
    }

    /// A job changed in a way that the ledger must record.
    fn touch(&mut self, ledger: &mut Ledger, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.revision = ledger.touch(job.shard);
        self.unconfirmed[job.shard].insert(id.clone());
        self.changes.unjudged.insert(id.clone());
        self.changes.inboxes.extend(job.record.worker.clone());
    }

    // ---- changes ----

    /// More of a shard is on the store than before.
    pub(super) fn confirmed(&mut self, ledger: &Ledger, shard: usize) {
        let (jobs, changes) = (&self.jobs, &mut self.changes);
        self.unconfirmed[shard].retain(|id| {
            let Some(job) = jobs.get(id) else { return false };
            let confirmed = job.is_confirmed(ledger);
            if confirmed {
                changes.inboxes.extend(job.record.worker.clone());
                changes.untold.insert(id.clone());
            }
            !confirmed
        });
    }

    /// Somebody removed a shard: all of it is written again from memory.
    pub(super) fn unconfirm(&mut self, shard: usize) {
        self.unconfirmed[shard] = self.index.shards[shard].ids.clone();
    }

    /// What is known of a worker has changed: its jobs are judged again.
    pub(super) fn judge_again(&mut self, worker: &WorkerId) {
        self.changes.unjudged.extend(self.index.out.get(worker).into_iter().flatten().cloned());
    }

    /// The jobs that changed, and those whose time has come.
    pub(super) fn take_changed(&mut self, now: Time) -> BTreeSet<JobId> {
        let mut ids = std::mem::take(&mut self.changes.unjudged);
        let due = self.index.timers.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<JobId> = due.map(|(_, id)| id.clone()).collect();
        for id in due {
            self.end_pause(now, &id);
            ids.insert(id);
        }
        ids
    }

    /// Its time has come, if it has.
    fn end_pause(&mut self, now: Time, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.pausing && now >= job.times.not_before {
            self.index.take(job);
            job.pausing = false;
            self.index.put(job);
            self.changes.came(job);
        }
    }

    pub(super) fn take_tokens(&mut self, id: &JobId) -> Vec<(u64, SubmitAnswer)> {
        self.jobs.get_mut(id).map(|job| std::mem::take(&mut job.tokens)).unwrap_or_default()
    }

    /// The job as it is now, unless that was told before.
    pub(super) fn tell(&mut self, id: &JobId) -> Option<&JobRecord> {
        let job = self.jobs.get_mut(id)?;
        let now = Some((job.record.state, job.record.dispatch));
        (std::mem::replace(&mut job.told, now) != now).then_some(&job.record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at, ledger, name, record, table};
    use super::*;
    use rand::{RngExt, SeedableRng};

    fn done(kind: JobState) -> Transition {
        let attempt = AttemptEnd::Ended { result: Arc::from(*b"r"), given_up: false };
        Transition::End { state: kind, attempt, reason: String::new() }
    }

    /// Some transition, allowed or not, with the state it leads to.
    fn any(draw: u32, worker: u32) -> (JobState, Transition) {
        let worker = name(&format!("w{worker}"));
        let (attempt, reason) = (AttemptEnd::Withdrawn, "why".to_owned());
        match draw {
            0..3 => (JobState::Dispatched, Transition::Dispatch(worker)),
            3 => (JobState::Acked, Transition::Claim(JobState::Acked)),
            4 => (JobState::Running, Transition::Claim(JobState::Running)),
            5 => (JobState::Queued, Transition::Requeue { attempt, pause_ms: 10, reason }),
            _ => (JobState::Failed, done(JobState::Failed)),
        }
    }

    #[test]
    fn the_index_says_what_a_search_says() {
        let mut rng = rand::rngs::ChaCha8Rng::seed_from_u64(1);
        let (mut table, mut ledger) = (Table::new(Epoch(2), 2), ledger());
        let mut states = BTreeSet::new();
        for now in 0..20_000_u64 {
            let id: JobId = name(&format!("t{}", rng.random_range(0..20)));
            match rng.random_range(0..20) {
                0 => table.remove(&id),
                1 => table.retime(&id, rng.random_bool(0.7).then(|| Time(now + rng.random_range(0..9)))),
                2 => drop(table.take_changed(Time(now))),
                3 => table.ask_to_cancel(&mut ledger, &id),
                4 => table.explain(&mut ledger, Time(now), &id, "nobody is there"),
                _ => match table.get(&id).map(|job| job.record.state) {
                    None => {
                        let not_before_ms = rng.random_range(0..2) * (now as i64 + 5);
                        let new = JobRecord { not_before_ms, ..record(id.as_str()) };
                        table.create(&mut ledger, at(now), Some(now), new);
                    }
                    Some(state) => {
                        let (next, transition) = any(rng.random_range(0..7), rng.random_range(0..3));
                        if state.may_become(next) {
                            table.change(&mut ledger, at(now), &id, transition);
                            states.insert(next);
                        }
                    }
                },
            }
            assert_eq!(table.index, Index::of(2, table.iter()), "at {now}");
            let is_ready = |id: &JobId| table.get(id).is_some_and(Job::is_ready);
            assert!(table.changes.fresh.iter().all(is_ready), "at {now}");
            let unmarked = |job: &&Job| {
                !job.is_confirmed(&ledger) && !table.unconfirmed[job.shard].contains(&job.record.id)
            };
            assert_eq!(table.iter().find(unmarked), None, "its confirmation is not waited for");
        }
        assert_eq!(states.len(), 5, "{states:?}");
    }

    #[test]
    #[should_panic(expected = "t1: Queued cannot become Succeeded")]
    fn a_transition_that_is_not_allowed_stops_everything() {
        table(record("t1"), vec![done(JobState::Succeeded)]);
    }

    #[test]
    fn only_what_was_begun_counts_as_an_attempt() {
        let requeue =
            |attempt| Transition::Requeue { attempt, pause_ms: 50, reason: "not claimed".to_owned() };
        let dispatch = || Transition::Dispatch(name("w1"));
        let transitions = vec![dispatch(), requeue(AttemptEnd::Withdrawn), dispatch()];
        let (mut table, mut ledger, id) = table(record("t1"), transitions);
        let job = table.get(&id).expect("it is there");
        assert_eq!((job.record.dispatch, job.record.begun(), job.times.waits_since), (2, 1, Time(0)));
        table.change(&mut ledger, at(4000), &id, Transition::Claim(JobState::Running));
        table.change(&mut ledger, at(5000), &id, requeue(AttemptEnd::Returned));
        let job = table.get(&id).expect("it is there");
        assert_eq!(
            (job.record.begun(), job.times.waits_since, job.times.not_before),
            (0, Time(5000), Time(5050))
        );
    }

    #[test]
    fn what_is_over_keeps_its_result_and_drops_its_payload() {
        let transitions = vec![
            Transition::Dispatch(name("w1")),
            Transition::Claim(JobState::Running),
            done(JobState::Succeeded),
        ];
        let (table, _, id) = table(record("t1"), transitions);
        let record = table.get(&id).expect("it is there").record();
        assert_eq!(
            (record.state, &*record.result, record.payload.len()),
            (JobState::Succeeded, &b"r"[..], 0)
        );
        assert_eq!((table.index.in_flight, table.index.claimed, table.load_of(&name("w1"))), (0, 0, 0));
    }
}
