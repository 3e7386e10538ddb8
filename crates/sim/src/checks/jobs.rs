//! The truth about jobs: every write of ledger and inbox that took effect, every run, every update. It knows no state machine.

use super::name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{
    EntryState, Epoch, InboxDoc, Incarnation, JobRecord, JobState, JobUpdate, LedgerDoc, Order, Time,
};
use tenure_core::{JobId, SeriesId, WorkerId};

/// The queue that has a limit.
pub(crate) const LIMITED: &str = "mail";

/// A dispatch of a job: its number is never used twice.
type Dispatch = (JobId, u32);

/// A document with its envelope.
pub(super) type Stored<'t, T> = (Stamp, &'t T);

/// A leader as a writer: its epoch, and the incarnation of its dispatcher. Later ones have higher numbers.
type Leader = (Epoch, Incarnation);

/// A claim that landed: the worker's incarnation, and what the nodes' clocks showed.
struct Claim {
    by: Incarnation,
    local: Vec<Time>,
}

/// A violation: the check, and a description.
type Wrong = (&'static str, String);

/// The truth about jobs.
#[derive(Default)]
pub(crate) struct JobChecks {
    /// How many jobs of a schedule may be open.
    pub(crate) open_max: BTreeMap<SeriesId, u64>,
    pub(crate) attempts_max: u32,
    /// How many jobs of the limited queue may run at once.
    pub(crate) concurrency: Option<u32>,
    /// How much longer than its timeout a leader waits for a run.
    pub(crate) margin_ms: u64,
    /// The ledger as it is on the store.
    pub(crate) records: BTreeMap<JobId, JobRecord>,
    /// Jobs that have left the ledger, as they did.
    left: BTreeMap<JobId, JobRecord>,
    /// How often somebody asked for a dead job to be tried again, and how often it is promised.
    retries: BTreeMap<JobId, BTreeSet<u32>>,
    promised_retries: BTreeMap<JobId, u32>,
    /// Due times that became jobs.
    pub(crate) dues: BTreeMap<SeriesId, BTreeSet<u64>>,
    created: BTreeSet<JobId>,
    /// The ends of jobs that the ledger had at some time.
    pub(super) over: BTreeMap<(JobId, Epoch, u64), JobState>,
    /// The ends of jobs that the history had at some time, with their numbers there.
    pub(super) ends: BTreeMap<(JobId, Epoch, u64), u64>,
    finals: BTreeMap<JobId, JobState>,
    results: BTreeMap<JobId, Arc<[u8]>>,
    told: BTreeMap<JobId, JobState>,
    /// Jobs whose creation was confirmed to a caller.
    pub(crate) promised: BTreeSet<JobId>,
    claims: BTreeMap<Dispatch, Claim>,
    pub(crate) runs: BTreeMap<Dispatch, u32>,
    /// Changes that leaders reported, and among them dispatches.
    pub(crate) updates: u64,
    pub(crate) dispatched: u64,
    /// Dispatches that the ledger says never began.
    unbegun: BTreeSet<Dispatch>,
    /// Workers that a leader was told are gone.
    pub(crate) absent: BTreeSet<(Incarnation, WorkerId)>,
    /// When a job of a series was last open, in true time.
    pub(crate) open_at: BTreeMap<SeriesId, u64>,
    pub(crate) retried: u64,
    pub(super) wrong: Vec<Wrong>,
}

impl JobChecks {
    pub(super) fn say(&mut self, check: &'static str, what: String) {
        self.wrong.push((check, what));
    }

    /// A job as it is in the ledger, or as it left it.
    pub(crate) fn known(&self, id: &JobId) -> Option<&JobRecord> {
        self.records.get(id).or_else(|| self.left.get(id))
    }

    /// The jobs that can be tried again.
    pub(crate) fn dead(&self) -> impl Iterator<Item = &JobRecord> {
        self.records.values().chain(self.left.values()).filter(|record| record.may_be_retried())
    }

    /// Somebody asks for this, and it may come about.
    pub(crate) fn ordered(&mut self, order: &Order) {
        if let Order::Retry(job) = order {
            self.retries.entry(job.id.clone()).or_default().insert(job.retries);
        }
    }

    /// Somebody was told that this will come about.
    pub(crate) fn promise(&mut self, order: &Order) {
        match order {
            Order::Submit(job) => {
                self.promised.insert(job.id.clone());
            }
            Order::Retry(job) => {
                self.promised_retries.insert(job.id.clone(), job.retries);
            }
            Order::Cancel(_) | Order::Remove(_) => {}
        }
    }

    /// Whether a job is tried again on request: it was dead, and somebody asked for it.
    fn is_retried(&self, new: &JobRecord) -> bool {
        let asked = self.retries.get(&new.id).is_some_and(|asked| asked.contains(&new.retries));
        asked && self.known(&new.id).is_some_and(|old| old.may_be_retried() && old.retries < new.retries)
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finals.len() as u64
    }

    /// A run begins in this incarnation of a worker, which serves the queue of the job or does not.
    pub(crate) fn ran(&mut self, id: &JobId, dispatch: u32, by: Incarnation, served: bool) {
        let key = (id.clone(), dispatch);
        if !served {
            self.say(name::JOB_SERVED, format!("{id}/{dispatch} runs where its queue is not served"));
        }
        if self.claims.get(&key).is_none_or(|claim| claim.by != by) {
            self.say(name::JOB_CLAIMED, format!("{id}/{dispatch} runs and was not claimed by {by:?}"));
        }
        if self.unbegun.contains(&key) {
            let what = format!("{id}/{dispatch} was withdrawn unclaimed, and runs");
            self.say(name::JOB_CLAIMED, what);
        }
        let count = self.runs.entry(key).or_insert(0);
        *count += 1;
        if *count > 1 {
            self.say(name::JOB_RUN_ONCE, format!("{id}/{dispatch} runs twice"));
        }
        let begun = self.runs.range((id.clone(), 0)..=(id.clone(), u32::MAX)).count();
        let most = self.known(id).map_or(self.attempts_max, |record| record.limits.attempts_max);
        if begun > most as usize {
            self.say(name::JOB_ATTEMPTS, format!("{id} is begun {begun} times, {most} are allowed"));
        }
    }

    /// These are running now, on these workers, since these times.
    pub(crate) fn running(&mut self, now: u64, runs: impl Iterator<Item = (WorkerId, Dispatch, u64)>) {
        let Some(most) = self.concurrency else { return };
        let counts = |(worker, (id, dispatch), since): &(WorkerId, Dispatch, u64)| {
            let Some(record) = self.records.get(id) else { return false };
            let current = record.state.is_out() && record.dispatch == *dispatch;
            let is_gone = self.absent.iter().any(|(_, absent)| absent == worker);
            current && record.queue.as_str() == LIMITED && !is_gone && now < since + record.limits.timeout_ms
        };
        let counted: Vec<String> =
            runs.filter(counts).map(|(worker, (id, _), _)| format!("{id} on {worker}")).collect();
        if counted.len() > most as usize {
            let what = format!("{} run at once, {most} may: {}", counted.len(), counted.join(", "));
            self.say(name::JOB_CONCURRENCY, what);
        }
    }

    pub(crate) fn update(&mut self, update: &JobUpdate) {
        self.updates += 1;
        self.dispatched += u64::from(update.state == JobState::Dispatched);
        if update.late.is_some() || !update.state.is_final() {
            return;
        }
        let before = self.told.insert(update.id.clone(), update.state);
        if let Some(before) = before.filter(|before| *before != update.state) {
            let what = format!("{} was told as {before:?} and as {:?}", update.id, update.state);
            self.say(name::JOB_RESULT_ONCE, what);
        }
    }

    /// A leader's write of a shard lands.
    pub(super) fn ledger(
        &mut self,
        now: u64,
        local: (usize, Time),
        before: Option<Stored<'_, LedgerDoc>>,
        (stamp, after): Stored<'_, LedgerDoc>,
    ) {
        let leader: Leader = (stamp.epoch, stamp.owner);
        if let Some(newer) = before.map(|(old, _)| (old.epoch, old.owner)).filter(|old| *old > leader) {
            self.say(name::JOB_FENCED, format!("{leader:?} writes the ledger of {newer:?}"));
        }
        let before = before.map(|(_, doc)| doc);
        for old in before.map_or(&[][..], |before| &before.jobs) {
            if after.jobs.iter().any(|new| new.id == old.id) {
                continue;
            }
            if !old.state.is_final() || !self.ends.contains_key(&(old.id.clone(), old.epoch, old.ending)) {
                self.say(name::JOB_KEPT, format!("{} leaves the ledger as {:?}", old.id, old.state));
            }
            self.records.remove(&old.id);
            self.left.insert(old.id.clone(), old.clone());
        }
        for new in &after.jobs {
            let watermark = after
                .series
                .iter()
                .find(|(series, _)| *series == new.series)
                .map_or(0, |(_, watermark)| *watermark);
            if watermark < new.watermark {
                let what = format!("{} has watermark {}, its series {watermark}", new.id, new.watermark);
                self.say(name::WATERMARK_KEPT, what);
            }
            if !before.is_some_and(|before| before.jobs.iter().any(|old| old.id == new.id)) {
                self.appears(new);
            }
            if new.state.is_final() {
                self.over.insert((new.id.clone(), new.epoch, new.ending), new.state);
            }
            self.record(new, leader.1, local);
        }
        self.overlaps(now, before, after);
    }

    fn appears(&mut self, new: &JobRecord) {
        let again = !self.created.insert(new.id.clone()) && !self.is_retried(new);
        let due = new.id.as_str().starts_with("round-");
        let watermark = if due { due_of(&new.id).unwrap_or(new.watermark) } else { new.watermark };
        let twice = due && !self.dues.entry(new.series.clone()).or_default().insert(watermark);
        if again || twice {
            self.say(
                name::DUE_ONCE,
                format!("{} of {} at {watermark} is created a second time", new.id, new.series),
            );
        }
    }

    fn overlaps(&mut self, now: u64, before: Option<&LedgerDoc>, after: &LedgerDoc) {
        let was_open =
            before.map_or(&[][..], |before| &before.jobs).iter().filter(|old| !old.state.is_final());
        for old in was_open.filter(|old| self.open_max.contains_key(&old.series)) {
            self.open_at.insert(old.series.clone(), now);
        }
        let mut open: BTreeMap<&SeriesId, u64> = BTreeMap::new();
        for record in after.jobs.iter().filter(|record| !record.state.is_final()) {
            *open.entry(&record.series).or_insert(0) += 1;
        }
        let mut wrong = Vec::new();
        for (series, count) in open {
            let Some(most) = self.open_max.get(series) else { continue };
            self.open_at.insert(series.clone(), now);
            if count > *most {
                wrong.push(format!("{count} jobs of {series} are open, {most} may be"));
            }
        }
        for what in wrong {
            self.say(name::OVERLAP, what);
        }
    }

    fn record(&mut self, new: &JobRecord, by: Incarnation, local: (usize, Time)) {
        let id = &new.id;
        if self.is_retried(new) {
            self.retried += 1;
            self.finals.remove(id);
            self.results.remove(id);
            self.told.remove(id);
        }
        if let Some(ended) = self.finals.get(id).copied().filter(|ended| *ended != new.state) {
            self.say(name::JOB_RESULT_ONCE, format!("{id} ended as {ended:?} and becomes {:?}", new.state));
        }
        let left = self.left.remove(id);
        let old = self.records.insert(id.clone(), new.clone()).or(left);
        if old.as_ref().is_some_and(|old| old.cancel && new.cancel && new.dispatch > old.dispatch) {
            self.say(name::JOB_CANCELLED, format!("{id} was called off, and is given out again"));
        }
        if new.state.is_final() {
            self.finals.insert(id.clone(), new.state);
            let first = self.results.entry(id.clone()).or_insert_with(|| new.result.clone());
            if *first != new.result {
                self.say(name::JOB_RESULT_ONCE, format!("{id}: a second result is applied"));
            }
        }
        let own = format!("{id}/{}", new.dispatch);
        if matches!(new.state, JobState::Succeeded | JobState::Partial) && *new.result != *own.as_bytes() {
            let result = String::from_utf8_lossy(&new.result).into_owned();
            self.say(name::JOB_RESULT_ONCE, format!("{id}: the result {result:?} is applied to {own}"));
        }
        let (dispatch, unbegun, given_up) =
            old.map_or((0, 0, false), |old| (old.dispatch, old.unbegun, old.given_up));
        // This write declared exactly one dispatch as never begun: it must not have run before, nor ever run.
        if new.unbegun == unbegun + 1 && new.dispatch.saturating_sub(dispatch) <= 1 {
            let which = if new.dispatch > dispatch && !new.state.is_out() { new.dispatch } else { dispatch };
            if which > 0 {
                self.unbegun.insert((id.clone(), which));
                if self.runs.contains_key(&(id.clone(), which)) {
                    let what = format!("{id}/{which} is said not to have begun, and ran");
                    self.say(name::JOB_CLAIMED, what);
                }
            }
        }
        if new.given_up && (!given_up || new.dispatch > dispatch) {
            self.gives_up(new, by, local);
        }
    }

    /// A claimed dispatch is given up only if its worker was reported gone, or its time was over on the leader's clock.
    fn gives_up(&mut self, new: &JobRecord, by: Incarnation, (node, local): (usize, Time)) {
        let Some(worker) = new.worker.clone() else { return };
        let Some(claim) = self.claims.get(&(new.id.clone(), new.dispatch)) else { return };
        let Some(since) = claim.local.get(node) else { return };
        let waited = local.since(*since);
        let due = new.limits.timeout_ms + self.margin_ms;
        if waited < due && new.limits.deadline_ms == 0 && !self.absent.contains(&(by, worker.clone())) {
            let (id, dispatch) = (&new.id, new.dispatch);
            let what = format!("{id}/{dispatch} is given up after {waited} of {due} ms, and {worker} lives");
            self.say(name::JOB_PATIENT, what);
        }
    }

    /// A leader's write of an inbox lands. `owner`: the owner of a job's shard on the store.
    pub(super) fn dispatch(
        &mut self,
        worker: &WorkerId,
        before: Option<Stored<'_, InboxDoc>>,
        (stamp, after): Stored<'_, InboxDoc>,
        owner: impl Fn(&JobRecord) -> Option<Incarnation>,
    ) {
        let leader: Leader = (stamp.epoch, stamp.owner);
        if let Some(newer) = before.map(|(old, _)| (old.epoch, old.owner)).filter(|old| *old > leader) {
            self.say(name::JOB_FENCED, format!("{leader:?} writes an inbox of {newer:?}"));
        }
        for entry in after.entries.iter().filter(|entry| entry.state == EntryState::Dispatched) {
            let had = |(_, doc): Stored<'_, InboxDoc>| doc.entries.iter().any(|old| old.key() == entry.key());
            if before.is_some_and(had) {
                continue;
            }
            let (id, dispatch) = (&entry.id, entry.dispatch);
            // Of an inbox that was just removed nothing is known; its worker looks for itself.
            if after.serves.as_ref().is_some_and(|(_, served)| !served.takes_queue(&entry.queue)) {
                let what = format!("{id} of queue {} is dispatched to {worker}", entry.queue);
                self.say(name::JOB_SERVED, what);
            }
            let record = self.records.get(id).filter(|record| {
                record.dispatch == dispatch && record.worker.as_ref() == Some(worker) && record.state.is_out()
            });
            match record {
                None => {
                    let what = format!("{id}/{dispatch} is dispatched past the ledger");
                    self.say(name::JOB_RECORDED, what);
                }
                // A former leader may write before its successor writes this inbox: what it dispatches is in the ledger.
                Some(record) if owner(record).is_none_or(|owner| owner < stamp.owner) => {
                    let what = format!("{id} is dispatched by {leader:?}, whose ledger it is not yet");
                    self.say(name::JOB_RECORDED, what);
                }
                Some(_) => {}
            }
        }
    }

    /// A worker's write of its inbox lands.
    pub(super) fn work(
        &mut self,
        worker: &WorkerId,
        before: Option<Stored<'_, InboxDoc>>,
        (stamp, after): Stored<'_, InboxDoc>,
        local: &[Time],
    ) {
        let keys = |doc: &InboxDoc| doc.entries.iter().map(|entry| entry.key()).collect::<Vec<_>>();
        let creates = before.is_none() && after.entries.is_empty();
        let keeps =
            |(old, before): Stored<'_, InboxDoc>| keys(before) == keys(after) && old.owner == stamp.owner;
        if !creates && !before.is_some_and(keeps) {
            let what = format!("{worker} writes what was not there: {:?}", keys(after));
            self.say(name::OWN_ENTRIES, what);
        }
        for entry in &after.entries {
            let by = match entry.state {
                EntryState::Acked { by } | EntryState::Running { by } => by,
                EntryState::Dispatched | EntryState::Finished { .. } => continue,
            };
            let key = entry.key();
            if self.claims.get(&key).is_none_or(|claim| claim.by != by) {
                self.claims.insert(key, Claim { by, local: local.to_vec() });
            }
        }
    }

    /// A created job that has not ended yet.
    pub(crate) fn open(&self) -> Option<String> {
        let missing = self.promised.iter().find(|id| !self.created.contains(*id));
        if let Some(id) = missing {
            return Some(format!("{id} was said to be created and never was"));
        }
        let forgotten = self.promised_retries.iter().find(|(id, retries)| {
            let record = self.known(id);
            record.is_none_or(|record| record.may_be_retried() && record.retries < **retries)
        });
        if let Some((id, _)) = forgotten {
            return Some(format!("{id} was to be tried again and never was"));
        }
        let open = self.records.values().find(|record| !record.state.is_final());
        open.map(|record| format!("{} is still {:?}: {}", record.id, record.state, record.reason))
    }
}

/// The due time in the name of a job.
fn due_of(id: &JobId) -> Option<u64> {
    id.as_str().split('-').nth(2)?.parse().ok()
}
