//! The history: what became of every job, for as long as that is kept, whether the ledger remembers the job or not.
//!
//! The *head* is one document with the newest jobs that ended. Older ones are rows in *parts*, by what they are looked up by: all,
//! queue, state, series, id. A part that has grown puts the rows of one key into a *chunk*, and names it. So a page of one
//! schedule costs a few reads however many jobs there are: the head, one part, one or two chunks. The whole records of what left
//! the head are in *batches*.
//!
//! The order that keeps it whole:
//! 1. A job is in the head only once the ledger on the store has it as over.
//! 2. It leaves the ledger only once the head on the store has it, or had it.
//! 3. It leaves the head only once its batch and all of its parts have it on the store, and whoever wants to be told is going to be. A part knows up to which number it has taken
//!    rows, so a new leader can do that again.
//! 4. Rows leave a part with the write that names their chunk, which stands already.
//!
//! Endings are numbered within an epoch, and recorded in that order: the head says up to which number it has them.

mod doc;
mod part;

pub use doc::{
    HISTORY_RUNS_MAX, HistoryChunk, HistoryHead, HistoryKey, HistoryPart, HistoryRow, HistoryRuns,
};

use super::RETRY;
use super::dispatcher::{DispatchRequest, Sink, View};
use super::model::JobRecord;
use super::notices::Notices;
use super::table::Job;
use crate::document::{Document, DocumentAnswer, Rules, State, Unreadable, What, Writer};
use crate::election::Epoch;
use crate::id::{Incarnation, JobId};
use crate::machine::RequestId;
use crate::mutants::Mutant;
use crate::time::Time;
use part::{Keyed, Part};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How large things get. The number of parts must be the same for every leader of a namespace, forever.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HistoryLimits {
    pub parts: usize,
    /// How long a job that was done may wait before it is recorded, so that several share a write.
    pub delay_ms: u64,
    /// The head hands over its rows at this many.
    pub head_rows: usize,
    /// A part puts rows into chunks until it has half of this many left.
    pub part_rows: usize,
    /// Rows of a chunk. A smaller one is written again with newer rows.
    pub chunk_rows: usize,
    /// Most chunks that a part names; the oldest go first.
    pub chunks: usize,
    /// How long jobs are kept.
    pub retention_ms: u64,
}

/// Most that the jobs in the head weigh, as [`weight`] counts it; it hands them over at half of this.
const HEAD_MAX_WEIGHT: usize = 640 * 1024;

/// So many jobs that ended are not kept waiting.
const MANY: usize = 128;

/// An object that is written once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kept {
    /// The whole records of jobs.
    Jobs(Vec<JobRecord>),
    /// A chunk.
    Rows(Vec<Arc<HistoryRow>>),
}

/// The head is handing over rows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct HandOver {
    /// Up to this number.
    upto: u64,
    /// The request that writes the whole records.
    batch: RequestId,
    /// They stand.
    stands: bool,
    /// The rows for each part.
    rows: Vec<Vec<Keyed>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HistoryNews {
    Nothing,
    Unreadable,
    Superseded,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct History {
    me: Incarnation,
    document: Document,
    head: HistoryHead,
    /// The head as it is on the store, without its jobs.
    stored: HistoryHead,
    /// Jobs that ended and are not recorded.
    due: BTreeMap<(Epoch, u64), JobId>,
    /// When the head takes them.
    due_at: Option<Time>,
    hand_over: Option<HandOver>,
    /// What the jobs in the head weigh.
    weight: usize,
    /// Not before this: the last try failed.
    retry_at: Time,
    parts: Vec<Part>,
}

impl History {
    pub(super) fn new(writer: Writer, me: Incarnation, limits: &HistoryLimits) -> History {
        let rules = Rules { writer, adopt: true, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        History {
            me,
            document: Document::new(rules),
            head: HistoryHead::default(),
            stored: HistoryHead::default(),
            due: BTreeMap::new(),
            due_at: None,
            hand_over: None,
            weight: 0,
            retry_at: Time(0),
            parts: vec![Part::new(rules); limits.parts.max(1)],
        }
    }

    /// Whether the ledger may forget this job. If nobody can read the head, the ledger must not grow for ever.
    pub(super) fn has(&self, record: &JobRecord) -> bool {
        let stored = &self.stored;
        stored.has(record) || self.document.state() == State::Blocked || Mutant::JobForgottenUnrecorded.on()
    }

    /// How many rows had to be dropped before their time.
    pub(super) fn dropped(&self) -> u64 {
        self.head.dropped
    }

    /// Whether it is known which endings are recorded: no job may end before, or its ending could be numbered twice.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.document.state(), State::Owned | State::Blocked)
    }

    /// The newest jobs, if the store has all of them.
    pub(super) fn settled_head(&self) -> Option<&HistoryHead> {
        self.is_settled().then_some(&self.head)
    }

    /// The highest ending of this epoch that is recorded.
    pub(super) fn last_ending(&self, epoch: Epoch) -> u64 {
        self.head.recorded.get(&epoch).copied().unwrap_or(0)
    }

    /// A job is over.
    pub(super) fn ended(&mut self, now: Time, delay_ms: u64, record: &JobRecord) {
        if self.head.has(record) {
            return;
        }
        self.due.insert((record.epoch, record.ending), record.id.clone());
        let urgent = record.state.is_undone() || self.due.len() >= MANY;
        let at = if urgent { now } else { now + delay_ms };
        self.due_at = Some(self.due_at.map_or(at, |before| before.min(at)));
    }

    fn is_settled(&self) -> bool {
        self.document.state() == State::Owned && self.document.is_confirmed(self.document.revision())
    }

    // ---- answers ----

    pub(super) fn answered_head(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<HistoryHead>,
    ) -> HistoryNews {
        let (settled, body) = self.document.answered(now, id, answer);
        match settled.what {
            What::Loaded => {
                self.head = body.unwrap_or_default();
                self.hand_over = None;
                self.weigh();
                let head = &self.head;
                // Jobs of the ledger may have been noted before.
                self.due.retain(|(epoch, ending), _| {
                    !(*epoch < head.floor || head.recorded.get(epoch).is_some_and(|upto| ending <= upto))
                });
                self.stored = HistoryHead { jobs: Vec::new(), ..self.head.clone() };
                HistoryNews::Nothing
            }
            What::Landed { .. } if self.is_settled() => {
                self.stored = HistoryHead { jobs: Vec::new(), ..self.head.clone() };
                HistoryNews::Nothing
            }
            What::Superseded(_) | What::Overtaken(_) => HistoryNews::Superseded,
            What::Blocked { news: true, .. } => HistoryNews::Unreadable,
            What::Landed { .. }
            | What::Nothing
            | What::Same
            | What::Empty
            | What::Shared
            | What::Blocked { .. }
            | What::Failed { .. }
            | What::Removed => HistoryNews::Nothing,
        }
    }

    pub(super) fn answered_part(
        &mut self,
        now: Time,
        id: RequestId,
        number: usize,
        answer: DocumentAnswer<HistoryPart>,
    ) -> HistoryNews {
        let Some(part) = self.parts.get_mut(number) else { return HistoryNews::Nothing };
        part.answered(now, id, answer)
    }

    /// Whether an object stands now.
    pub(super) fn kept(&mut self, view: &View<'_>, id: RequestId, done: bool) {
        if let Some(over) = self.hand_over.as_mut().filter(|over| over.batch == id) {
            over.stands = done;
            if !done {
                // Its name may be taken now: the next one has another.
                self.hand_over = None;
                self.retry_at = view.now + RETRY.max_ms;
            }
            return;
        }
        let View { now, wall_ms, config, .. } = *view;
        self.parts.iter_mut().for_each(|part| part.kept(now, wall_ms, &config.history, id, done));
    }

    /// The rows of a chunk; `None` if they cannot be had.
    pub(super) fn recalled(&mut self, id: RequestId, mut rows: Option<Vec<Arc<HistoryRow>>>) {
        self.parts.iter_mut().for_each(|part| part.recalled(id, &mut rows));
    }

    // ---- what it wants ----

    /// `from`: endings from this epoch on may be recorded, because every shard that may have one was read.
    pub(super) fn send(
        &mut self,
        view: &View<'_>,
        is_confirmed: impl Fn(&Job) -> bool,
        from: Option<Epoch>,
        notices: &Notices,
        sink: &mut Sink<'_>,
    ) {
        if self.is_settled() && !self.document.is_busy() {
            if let Some(from) = from {
                self.take_in(view, &is_confirmed, from);
            }
            self.let_go(notices);
        }
        self.hand_over(view, sink);
        let (head, document) = (&self.head, &mut self.document);
        sink.send_for(
            |id| document.next(view.now, id, true),
            |op| DispatchRequest::HistoryHead(op.with(|| head.clone())),
        );
        let me = self.me;
        for (number, part) in self.parts.iter_mut().enumerate() {
            part.send(view, number, me, sink);
        }
    }

    /// Takes jobs into the head, in the order in which they ended, as far as the ledger on the store has them as over.
    fn take_in(&mut self, view: &View<'_>, is_confirmed: &impl Fn(&Job) -> bool, from: Epoch) {
        let View { now, config, table, .. } = *view;
        if self.due_at.is_none_or(|at| now < at) {
            return;
        }
        let mut changed = false;
        while let Some(((epoch, ending), id)) = self.due.range((from, 0)..).next() {
            let (epoch, ending, job) = (*epoch, *ending, table.get(id));
            // One that was tried again since then has another ending.
            let job = job.filter(|job| (job.record().epoch, job.record().ending) == (epoch, ending));
            if let Some(job) = job {
                let early = !is_confirmed(job) && !Mutant::HistoryBeforeLedger.on();
                if early || self.weight > HEAD_MAX_WEIGHT {
                    break;
                }
                self.weight += record_weight(job.record());
                self.head.last += 1;
                self.head.jobs.push((self.head.last, job.record().clone()));
            }
            self.head.recorded.insert(epoch, ending);
            self.due.remove(&(epoch, ending));
            changed = true;
        }
        if self.due.is_empty() {
            self.due_at = None;
        }
        let former = self.due.first_key_value().is_some_and(|((epoch, _), _)| *epoch < config.epoch);
        if changed && from < config.epoch && !former && self.head.floor < config.epoch {
            // Every shard was read, and no ending of a former epoch is left.
            self.head.floor = config.epoch;
            self.head.recorded.retain(|epoch, _| *epoch >= config.epoch);
        }
        if changed {
            self.document.touch();
        }
    }

    /// Lets go of what was handed over.
    fn let_go(&mut self, notices: &Notices) {
        let Some(over) = self.hand_over.as_ref().filter(|over| over.stands) else { return };
        let taken = self.parts.iter().all(|part| part.has_taken(over.upto));
        let taken = taken && notices.has_taken(&self.head, over.upto);
        if !taken && !Mutant::HistoryHandedOverEarly.on() {
            return;
        }
        let upto = over.upto;
        self.hand_over = None;
        self.head.jobs.retain(|(number, _)| *number > upto);
        self.weigh();
        self.head.dropped += self.parts.iter_mut().map(Part::take_dropped).sum::<u64>();
        self.document.touch();
    }

    fn weigh(&mut self) {
        self.weight = self.head.jobs.iter().map(|(_, record)| record_weight(record)).sum();
    }

    fn is_crowded(&self, limits: &HistoryLimits) -> bool {
        self.head.jobs.len() >= limits.head_rows || self.weight * 2 >= HEAD_MAX_WEIGHT
    }

    /// Hands rows over when there are many: first the whole records, then a row for each key.
    fn hand_over(&mut self, view: &View<'_>, sink: &mut Sink<'_>) {
        if let Some(over) = &self.hand_over {
            if over.stands {
                let rows = self.parts.iter_mut().zip(&over.rows);
                rows.for_each(|(part, rows)| part.take(view, over.upto, rows));
            }
            return;
        }
        let ready = self.is_settled() && view.now >= self.retry_at;
        let Some((upto, _)) = self.head.jobs.last().filter(|_| ready) else { return };
        if !self.is_crowded(&view.config.history) {
            return;
        }
        let name = object_name(view.wall_ms, self.me, *sink.requests + 1);
        let mut rows = vec![Vec::new(); self.parts.len()];
        for (number, record) in &self.head.jobs {
            let row = Arc::new(HistoryRow::of(*number, record, &name));
            for key in row.keys() {
                rows[key.part(self.parts.len())].push((key, Arc::clone(&row)));
            }
        }
        let records = self.head.jobs.iter().map(|(_, record)| record.clone()).collect();
        let batch = sink.send(DispatchRequest::Keep(name, Kept::Jobs(records)));
        self.hand_over = Some(HandOver { upto: *upto, batch, stands: false, rows });
    }

    /// The next time after now at which something is due by time alone.
    pub(super) fn due_at(&self, now: Time, limits: &HistoryLimits) -> Option<Time> {
        let due = self.due_at.filter(|_| self.is_settled());
        let retry = self.is_crowded(limits).then_some(self.retry_at);
        let parts = self.parts.iter().filter_map(Part::wake_at);
        parts
            .chain([due, self.document.wake_at(true), retry].into_iter().flatten())
            .filter(|at| *at > now)
            .min()
    }
}

/// About how many bytes a record needs.
fn record_weight(record: &JobRecord) -> usize {
    (record.payload.len() + record.result.len()) * 2 + record.names_len() * 2 + record.reason.len() + 700
}

/// The name of a new object: they are in order of time, and no two are equal.
fn object_name(wall_ms: i64, me: Incarnation, number: u64) -> Arc<str> {
    Arc::from(format!("{:013}-{me}-{number}", wall_ms.max(0)))
}
