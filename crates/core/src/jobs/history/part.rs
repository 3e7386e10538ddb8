//! One part of the history: takes rows, and puts those of its largest keys into chunks.

use super::super::RETRY;
use super::super::dispatcher::{DispatchRequest, Sink, View};
use super::doc::{HistoryChunk, HistoryKey, HistoryPart, HistoryRow, HistoryRuns};
use super::{HistoryLimits, HistoryNews, Kept, object_name};
use crate::document::{Document, DocumentAnswer, Rules, State, What};
use crate::id::Incarnation;
use crate::machine::RequestId;
use crate::time::Time;
use std::sync::Arc;

/// Most series whose last runs a part remembers.
const RUNS_MAX: usize = 1000;

/// A row, and the key it is taken under.
pub(super) type Keyed = (HistoryKey, Arc<HistoryRow>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Work {
    /// The last chunk of a key is small: it is read, to be written again with newer rows.
    Recalling { id: RequestId, key: HistoryKey },
    /// Its rows are known, or cannot be had.
    Recalled { key: HistoryKey, rows: Option<Vec<Arc<HistoryRow>>> },
    /// A chunk is being written. It takes the place of the key's last one.
    Keeping { id: RequestId, key: HistoryKey, chunk: HistoryChunk, replaces: bool },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Part {
    document: Document,
    doc: HistoryPart,
    /// It was read, or there was nothing.
    loaded: bool,
    /// It has rows to take, or had some.
    open: bool,
    /// Nothing up to this number concerns it.
    passed: u64,
    /// Its rows up to `doc.upto` are on the store with this revision.
    revision: u64,
    /// How many rows are not in chunks.
    rows: usize,
    /// It has grown, and puts rows into chunks.
    full: bool,
    work: Option<Work>,
    /// When its store failed last: no chunk before this.
    retry_at: Time,
    dropped: u64,
}

impl Part {
    pub(super) fn new(rules: Rules) -> Part {
        Part {
            document: Document::new(rules),
            doc: HistoryPart::default(),
            loaded: false,
            open: false,
            passed: 0,
            revision: 0,
            rows: 0,
            full: false,
            work: None,
            retry_at: Time(0),
            dropped: 0,
        }
    }

    /// Takes rows up to this number, those of its keys. It may be asked again and again.
    pub(super) fn take(&mut self, view: &View<'_>, upto: u64, rows: &[Keyed]) {
        if rows.is_empty() || self.passed >= upto {
            self.passed = self.passed.max(upto);
            return;
        }
        self.open = true;
        if self.document.state() == State::Blocked {
            // It is left alone: whoever looks there finds nothing anyway.
            self.passed = upto;
            self.dropped += rows.iter().filter(|(key, _)| *key == HistoryKey::all()).count() as u64;
            return;
        }
        if !self.loaded || self.doc.upto >= upto {
            return;
        }
        let before = self.doc.upto;
        for (key, row) in rows.iter().filter(|(_, row)| row.number > before) {
            if *key == HistoryKey::series(&row.series) {
                let runs = HistoryRuns::add(self.doc.runs.remove(&row.series), row);
                self.doc.runs.insert(row.series.clone(), runs);
            }
            self.doc.rows.entry(key.clone()).or_default().push(Arc::clone(row));
            self.rows += 1;
        }
        self.doc.upto = upto;
        self.forget_old(view.wall_ms, &view.config.history);
        self.full |= self.rows > view.config.history.part_rows;
        self.revision = self.document.touch();
    }

    /// Whether all of its rows up to this number are on the store.
    pub(super) fn has_taken(&self, upto: u64) -> bool {
        self.passed >= upto || (self.doc.upto >= upto && self.document.is_confirmed(self.revision))
    }

    /// How many rows it had to drop since this was last asked.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<HistoryPart>,
    ) -> HistoryNews {
        let (settled, body) = self.document.answered(now, id, answer);
        match settled.what {
            What::Loaded => {
                self.doc = body.unwrap_or_default();
                self.rows = self.doc.rows.values().map(Vec::len).sum();
                self.loaded = true;
                self.work = None;
            }
            What::Empty => self.loaded = true,
            What::Superseded(_) | What::Overtaken(_) => return HistoryNews::Superseded,
            What::Blocked { news: true, .. } => return HistoryNews::Unreadable,
            What::Landed { .. }
            | What::Nothing
            | What::Same
            | What::Shared
            | What::Blocked { .. }
            | What::Failed { .. }
            | What::Removed => {}
        }
        HistoryNews::Nothing
    }

    // ---- chunks ----

    pub(super) fn recalled(&mut self, id: RequestId, rows: &mut Option<Vec<Arc<HistoryRow>>>) {
        if let Some(Work::Recalling { key, .. }) =
            self.work.take_if(|work| matches!(work, Work::Recalling { id: this, .. } if *this == id))
        {
            self.work = Some(Work::Recalled { key, rows: rows.take() });
        }
    }

    /// Whether the chunk that is being written stands.
    pub(super) fn kept(
        &mut self,
        now: Time,
        wall_ms: i64,
        limits: &HistoryLimits,
        id: RequestId,
        done: bool,
    ) {
        let this = |work: &mut Work| matches!(work, Work::Keeping { id: this, .. } if *this == id);
        let Some(Work::Keeping { key, chunk, replaces, .. }) = self.work.take_if(this) else { return };
        if !done {
            // Its name may be taken now: the next one has another.
            self.retry_at = now + RETRY.max_ms;
            return;
        }
        let upto = chunk.numbers.1;
        let chunks = self.doc.chunks.entry(key.clone()).or_default();
        if replaces {
            chunks.pop();
        }
        chunks.push(chunk);
        if let Some(rows) = self.doc.rows.get_mut(&key) {
            rows.retain(|row| row.number > upto);
        }
        self.doc.rows.retain(|_, rows| !rows.is_empty());
        self.rows = self.doc.rows.values().map(Vec::len).sum();
        self.full = self.rows * 2 > limits.part_rows;
        self.forget_old(wall_ms, limits);
        self.revision = self.document.touch();
    }

    /// Forgets chunks and runs that are too old or too many.
    fn forget_old(&mut self, wall_ms: i64, limits: &HistoryLimits) {
        let oldest_ms = wall_ms.saturating_sub_unsigned(limits.retention_ms);
        let HistoryPart { chunks, runs, .. } = &mut self.doc;
        chunks.values_mut().for_each(|chunks| chunks.retain(|chunk| chunk.ended_ms >= oldest_ms));
        chunks.retain(|_, chunks| !chunks.is_empty());
        while chunks.values().map(Vec::len).sum::<usize>() > limits.chunks.max(1) {
            let most = chunks.iter().max_by_key(|(_, chunks)| chunks.len());
            let Some(key) = most.map(|(key, _)| key.clone()) else { break };
            let gone = chunks.get_mut(&key).map(|chunks| chunks.remove(0));
            if key == HistoryKey::all() {
                self.dropped += gone.map_or(0, |chunk| u64::from(chunk.rows));
            }
        }
        runs.retain(|_, runs| runs.last.ended_ms >= oldest_ms);
        while runs.len() > RUNS_MAX {
            let oldest = runs.iter().min_by_key(|(_, runs)| runs.last.number);
            let Some(series) = oldest.map(|(series, _)| series.clone()) else { break };
            runs.remove(&series);
        }
    }

    // ---- what it wants ----

    pub(super) fn send(&mut self, view: &View<'_>, number: usize, me: Incarnation, sink: &mut Sink<'_>) {
        if !self.open {
            return;
        }
        let (doc, document) = (&self.doc, &mut self.document);
        sink.send_for(
            |id| document.next(view.now, id, true),
            |op| DispatchRequest::HistoryPart(number, op.with(|| doc.clone())),
        );
        if self.full && view.now >= self.retry_at && self.document.state() == State::Owned {
            self.make_chunk(view, me, sink);
        }
    }

    /// Puts rows of the largest key into a chunk, one at a time.
    fn make_chunk(&mut self, view: &View<'_>, me: Incarnation, sink: &mut Sink<'_>) {
        let most = view.config.history.chunk_rows.max(1);
        let (key, before) = match self.work.take() {
            Some(Work::Recalled { key, rows }) => (key, rows),
            Some(busy) => {
                self.work = Some(busy);
                return;
            }
            None => {
                let largest = self.doc.rows.iter().max_by_key(|(_, rows)| rows.len());
                let Some((key, rows)) = largest else { return };
                let last = self.doc.chunks.get(key).and_then(|chunks| chunks.last());
                let small = last.filter(|last| last.rows as usize * 2 < most);
                if let Some(small) = small.filter(|small| small.rows as usize + rows.len() <= most) {
                    let id = sink.send(DispatchRequest::Recall(Arc::clone(&small.name)));
                    self.work = Some(Work::Recalling { id, key: key.clone() });
                    return;
                }
                (key.clone(), None)
            }
        };
        let Some(own) = self.doc.rows.get(&key) else { return };
        let replaces = before.is_some();
        let rows: Vec<Arc<HistoryRow>> =
            before.into_iter().flatten().chain(own.iter().cloned()).take(most).collect();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
        let name = object_name(view.wall_ms, me, *sink.requests + 1);
        let chunk = HistoryChunk {
            name: Arc::clone(&name),
            numbers: (first.number, last.number),
            ended_ms: rows.iter().map(|row| row.ended_ms).max().unwrap_or(0),
            rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        };
        let id = sink.send(DispatchRequest::Keep(name, Kept::Rows(rows)));
        self.work = Some(Work::Keeping { id, key, chunk, replaces });
    }

    /// When it has something to send, by time alone.
    pub(super) fn wake_at(&self) -> Option<Time> {
        let document = self.document.wake_at(true).filter(|_| self.open);
        let chunk = (self.full && self.work.is_none()).then_some(self.retry_at);
        [document, chunk].into_iter().flatten().min()
    }
}
