//! What the history consists of: rows, what they are looked up by, and the documents that hold them.

use super::super::model::{JobLimits, JobRecord, JobState, hash};
use crate::election::Epoch;
use crate::id::{JobId, KindName, QueueName, SeriesId, WorkerId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many runs of a series are remembered in short.
pub const HISTORY_RUNS_MAX: usize = 30;

/// Longest reason in a row; the whole record has all of it.
const REASON_MAX_BYTES: usize = 120;

/// The ids are spread over this many keys: enough to find one among a million jobs in a few reads.
const ID_KEYS: u64 = 256;

/// What rows are looked up by.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HistoryKey(Arc<str>);

impl HistoryKey {
    /// Every job.
    pub fn all() -> HistoryKey {
        HistoryKey(Arc::from("all"))
    }

    pub fn queue(queue: &QueueName) -> HistoryKey {
        HistoryKey(Arc::from(format!("queue/{queue}")))
    }

    pub fn state(state: JobState) -> HistoryKey {
        HistoryKey(Arc::from(format!("state/{}", state.as_str())))
    }

    /// The jobs of a schedule, or those that were submitted as one group.
    pub fn series(series: &SeriesId) -> HistoryKey {
        HistoryKey(Arc::from(format!("series/{series}")))
    }

    /// The jobs among which one of this id is.
    pub fn id(id: &JobId) -> HistoryKey {
        HistoryKey(Arc::from(format!("id/{:02x}", hash(id.as_str()) % ID_KEYS)))
    }

    /// The key of this name in a document; `None` if it cannot be one.
    pub fn named(name: &str) -> Option<HistoryKey> {
        let known = ["queue/", "state/", "series/", "id/"].iter().any(|prefix| name.starts_with(prefix));
        let short = name.len() <= 160 && !name.contains(char::is_control);
        ((known && short) || name == "all").then(|| HistoryKey(Arc::from(name)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In which of so many parts its rows are.
    pub fn part(&self, parts: usize) -> usize {
        (hash(&self.0) % parts.max(1) as u64) as usize
    }
}

/// A finished job, in short.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HistoryRow {
    /// Rises with every job that ends, across leaders.
    pub number: u64,
    pub id: JobId,
    pub series: SeriesId,
    /// See [`JobRecord::watermark`].
    pub watermark: u64,
    pub queue: QueueName,
    pub kind: KindName,
    pub state: JobState,
    pub submitted_ms: i64,
    pub began_ms: i64,
    pub ended_ms: i64,
    /// How many attempts were begun, and how many it may have.
    pub attempts: (u32, u32),
    pub worker: Option<WorkerId>,
    /// The beginning of why it ended as it did.
    pub reason: Arc<str>,
    /// The batch that holds its whole record.
    pub batch: Arc<str>,
}

impl HistoryRow {
    pub fn of(number: u64, record: &JobRecord, batch: &Arc<str>) -> HistoryRow {
        let reason = &*record.reason;
        let ends = reason.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= REASON_MAX_BYTES).last().unwrap_or(0);
        HistoryRow {
            number,
            id: record.id.clone(),
            series: record.series.clone(),
            watermark: record.watermark,
            queue: record.queue.clone(),
            kind: record.kind.clone(),
            state: record.state,
            submitted_ms: record.submitted_ms,
            began_ms: record.began_ms,
            ended_ms: record.ended_ms,
            attempts: (record.begun(), record.limits.attempts_max),
            worker: record.worker.clone(),
            reason: Arc::from(&reason[..end]),
            batch: Arc::clone(batch),
        }
    }

    /// As much of the record as it tells.
    pub fn record(&self) -> JobRecord {
        let (id, series, kind) = (self.id.clone(), self.series.clone(), self.kind.clone());
        let limits = JobLimits {
            timeout_ms: 0,
            ttl_ms: 0,
            deadline_ms: 0,
            attempts_max: self.attempts.1,
            backoff_ms: 0,
        };
        JobRecord {
            watermark: self.watermark,
            queue: self.queue.clone(),
            state: self.state,
            submitted_ms: self.submitted_ms,
            began_ms: self.began_ms,
            ended_ms: self.ended_ms,
            dispatch: self.attempts.0,
            worker: self.worker.clone(),
            reason: Arc::clone(&self.reason),
            ..JobRecord::new(id, series, kind, limits)
        }
    }

    /// Everything it is looked up by. A series that has only this job is not worth a key.
    pub fn keys(&self) -> Vec<HistoryKey> {
        let keys = [
            HistoryKey::all(),
            HistoryKey::queue(&self.queue),
            HistoryKey::state(self.state),
            HistoryKey::id(&self.id),
        ];
        let series = (self.series.as_str() != self.id.as_str()).then(|| HistoryKey::series(&self.series));
        keys.into_iter().chain(series).collect()
    }
}

/// The newest finished jobs, with their numbers, and which endings are recorded.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HistoryHead {
    /// All endings of earlier epochs are recorded.
    pub floor: Epoch,
    /// Of these epochs, the endings up to these numbers are.
    pub recorded: BTreeMap<Epoch, u64>,
    /// The number of the newest row; the first one is 1.
    pub last: u64,
    /// How many rows had to be dropped before their time.
    pub dropped: u64,
    pub jobs: Vec<(u64, JobRecord)>,
}

impl HistoryHead {
    /// Whether this job is in the history, as it ended.
    pub fn has(&self, record: &JobRecord) -> bool {
        let upto = self.recorded.get(&record.epoch);
        record.epoch < self.floor || upto.is_some_and(|upto| record.ending <= *upto)
    }
}

/// Rows of the keys of this part.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct HistoryPart {
    /// It has taken every row up to this number.
    pub upto: u64,
    /// Not in a chunk yet, oldest first.
    pub rows: BTreeMap<HistoryKey, Vec<Arc<HistoryRow>>>,
    /// Older ones, oldest first.
    pub chunks: BTreeMap<HistoryKey, Vec<HistoryChunk>>,
    /// The last runs of each series of this part.
    pub runs: BTreeMap<SeriesId, HistoryRuns>,
}

/// An object with rows of one key, oldest first. It is never changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HistoryChunk {
    pub name: Arc<str>,
    /// The numbers of its first and its last row.
    pub numbers: (u64, u64),
    /// When its last one ended.
    pub ended_ms: i64,
    pub rows: u32,
}

/// The last runs of a series.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HistoryRuns {
    /// How they ended, oldest first, at most [`HISTORY_RUNS_MAX`].
    pub states: Vec<JobState>,
    pub last: Arc<HistoryRow>,
}

impl HistoryRuns {
    /// Adds a run to those before it.
    pub fn add(before: Option<HistoryRuns>, row: &Arc<HistoryRow>) -> HistoryRuns {
        let mut states = before.map_or(Vec::new(), |runs| runs.states);
        states.push(row.state);
        let old = states.len().saturating_sub(HISTORY_RUNS_MAX);
        states.drain(..old);
        HistoryRuns { states, last: Arc::clone(row) }
    }
}
