//! The history of jobs, read from outside: a few requests for a page, however many jobs there are.

mod codec;

pub(crate) use codec::{HeadCodec, PartCodec, RowsCodec};

use super::codec::LedgerCodec;
use crate::documents::Codec;
use crate::error::{Error, found};
use crate::keys::Keys;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    HistoryChunk, HistoryHead, HistoryKey, HistoryLimits, HistoryPart, JobId, JobRecord, JobState, Namespace,
    QueueName, SeriesId,
};
use tenure_store::{Lanes, Store};

pub use tenure_core::{HistoryRow, HistoryRuns};

/// Parts of the history. Never change this: a key must stay where it is.
const PARTS: usize = 16;

/// Most chunks that one page reads, after the head and a part.
const CHUNKS_PER_PAGE: usize = 3;

/// Most chunks in which one job is looked for, newest first.
const CHUNKS_PER_JOB: usize = 12;

/// Most jobs of one page.
pub const HISTORY_PAGE_MAX: usize = 1000;

/// What the leader goes by.
pub(crate) fn limits(retention: Duration) -> HistoryLimits {
    HistoryLimits {
        parts: PARTS,
        delay_ms: 5000,
        head_rows: 512,
        part_rows: 512,
        chunk_rows: 1000,
        chunks: 4000,
        retention_ms: crate::clock::millis(retention),
    }
}

/// Which finished jobs to show.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HistoryQuery {
    /// Only those of this schedule, or of this group of submitted jobs.
    pub series: Option<SeriesId>,
    /// Only those of this queue.
    pub queue: Option<QueueName>,
    /// Only those that ended in this state.
    pub state: Option<JobState>,
    /// Only those that ended at this time or later, in ms since 1970.
    pub since_ms: Option<i64>,
    /// Only those that ended before this time, in ms since 1970.
    pub until_ms: Option<i64>,
    /// Only those after this place, as a page before said ([`HistoryPage::next`]).
    pub before: Option<u64>,
}

impl HistoryQuery {
    /// The key under which there are the fewest others.
    fn key(&self) -> HistoryKey {
        let (series, queue) = (self.series.as_ref(), self.queue.as_ref());
        match (series, self.state, queue) {
            (Some(series), _, _) => HistoryKey::series(series),
            (None, Some(state), None) => HistoryKey::state(state),
            (None, Some(state), Some(_)) if state != JobState::Succeeded => HistoryKey::state(state),
            (None, _, Some(queue)) => HistoryKey::queue(queue),
            (None, None, None) => HistoryKey::all(),
        }
    }

    fn shows(&self, row: &HistoryRow) -> bool {
        self.series.as_ref().is_none_or(|series| row.series == *series)
            && self.queue.as_ref().is_none_or(|queue| row.queue == *queue)
            && self.state.is_none_or(|state| row.state == state)
            && self.since_ms.is_none_or(|since| row.ended_ms >= since)
            && self.until_ms.is_none_or(|until| row.ended_ms < until)
            && self.before.is_none_or(|before| row.number < before)
    }
}

/// Some finished jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HistoryPage {
    /// Newest first.
    pub jobs: Vec<Arc<HistoryRow>>,
    /// There may be older ones: ask again with this as [`HistoryQuery::before`]. A page that had to look far may be short, or
    /// empty, and say this all the same.
    pub next: Option<u64>,
}

/// The history of a namespace. Finished jobs are in it a few seconds after their end, failed ones at once, and stay for
/// `jobRetention`.
///
/// ```
/// # async fn f(node: &tenure::Node) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::job::{HistoryQuery, JobHistory, JobState};
///
/// let history = JobHistory::new(node.handle().lanes(), &node.handle().namespace());
/// let failed = HistoryQuery { state: Some(JobState::Failed), ..HistoryQuery::default() };
/// for job in history.page(&failed, 100).await?.jobs {
///     println!("{} failed: {}", job.id, job.reason);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct JobHistory {
    store: Arc<dyn Store>,
    keys: Keys,
}

impl JobHistory {
    /// The history of this namespace.
    pub fn new(lanes: &Lanes, namespace: &Namespace) -> JobHistory {
        JobHistory { store: Arc::clone(&lanes.bulk), keys: Keys::global(namespace) }
    }

    /// Of where these jobs are.
    pub(super) fn of(place: &super::Jobs) -> JobHistory {
        JobHistory { store: Arc::clone(&place.store), keys: place.keys() }
    }

    async fn get<C: Codec>(&self, key: &str, codec: C) -> Result<Option<C::Body>, Error> {
        let Some(object) = found(self.store.get(key, None).await)? else { return Ok(None) };
        match codec.read(&object.body) {
            Ok((_, body, _)) => Ok(Some(body)),
            Err(unreadable) => Err(Error::unreadable(key, unreadable.detail)),
        }
    }

    async fn head(&self) -> Result<HistoryHead, Error> {
        Ok(self.get(&self.keys.history_head(), HeadCodec).await?.unwrap_or_default())
    }

    async fn part(&self, number: usize) -> Result<HistoryPart, Error> {
        Ok(self.get(&self.keys.history_part(number), PartCodec).await?.unwrap_or_default())
    }

    /// A chunk that is not there any more was too old.
    async fn chunk(&self, chunk: &HistoryChunk) -> Result<Vec<Arc<HistoryRow>>, Error> {
        Ok(self.get(&self.keys.kept(&chunk.name), RowsCodec).await?.unwrap_or_default())
    }

    /// A page of finished jobs, newest first: at most five requests.
    pub async fn page(&self, query: &HistoryQuery, limit: usize) -> Result<HistoryPage, Error> {
        let (key, limit) = (query.key(), limit.clamp(1, HISTORY_PAGE_MAX));
        // The head first: what leaves it is in its parts before.
        let head = self.head().await?;
        let mut part = self.part(key.part(PARTS)).await?;
        let mut found: BTreeMap<u64, Arc<HistoryRow>> = BTreeMap::new();
        let here = part.rows.remove(&key).unwrap_or_default().into_iter().chain(of_head(&head, &key));
        found.extend(here.filter(|row| query.shows(row)).map(|row| (row.number, row)));
        let chunks = part.chunks.remove(&key).unwrap_or_default();
        let mut left = wanted(&chunks, query);
        let mut looked = None;
        for _ in 0..CHUNKS_PER_PAGE {
            let Some(chunk) = left.last().filter(|_| found.len() < limit) else { break };
            let rows = self.chunk(chunk).await?;
            looked = Some(chunk.numbers.0);
            found.extend(rows.into_iter().filter(|row| query.shows(row)).map(|row| (row.number, row)));
            left = &left[..left.len() - 1];
        }
        let more = !left.is_empty() || found.len() > limit;
        let jobs: Vec<Arc<HistoryRow>> = found.into_values().rev().take(limit).collect();
        let last = jobs.last().map(|row| row.number);
        let next = if jobs.len() < limit { looked.or(last) } else { last };
        Ok(HistoryPage { next: next.filter(|_| more), jobs })
    }

    /// Finds one job, as it ended last: in a few requests.
    pub async fn find(&self, id: &JobId) -> Result<Option<JobRecord>, Error> {
        let key = HistoryKey::id(id);
        let head = self.head().await?;
        if let Some((_, record)) = head.jobs.into_iter().rev().find(|(_, record)| record.id == *id) {
            return Ok(Some(record));
        }
        let mut part = self.part(key.part(PARTS)).await?;
        let newest = |rows: Vec<Arc<HistoryRow>>| rows.into_iter().rev().find(|row| row.id == *id);
        let mut row = newest(part.rows.remove(&key).unwrap_or_default());
        let chunks = part.chunks.remove(&key).unwrap_or_default();
        for chunk in chunks.iter().rev().take(CHUNKS_PER_JOB) {
            if row.is_some() {
                break;
            }
            row = newest(self.chunk(chunk).await?);
        }
        let Some(row) = row else { return Ok(None) };
        let batch = self.get(&self.keys.kept(&row.batch), LedgerCodec).await?;
        let record = batch.and_then(|doc| doc.jobs.into_iter().rev().find(|record| record.id == *id));
        Ok(record)
    }

    /// The last runs of a schedule: two requests.
    pub async fn runs_of(&self, series: &SeriesId) -> Result<Option<HistoryRuns>, Error> {
        let head = self.head().await?;
        let mut part = self.part(HistoryKey::series(series).part(PARTS)).await?;
        let (runs, upto) = (part.runs.remove(series), part.upto);
        Ok(with_head(runs, upto, &head, series))
    }

    /// The last runs of every schedule: seventeen requests.
    pub async fn runs(&self) -> Result<BTreeMap<SeriesId, HistoryRuns>, Error> {
        let head = self.head().await?;
        let parts = futures::future::try_join_all((0..PARTS).map(|number| self.part(number))).await?;
        let upto: Vec<u64> = parts.iter().map(|part| part.upto).collect();
        let mut all: BTreeMap<SeriesId, HistoryRuns> = parts.into_iter().flat_map(|part| part.runs).collect();
        for (number, record) in &head.jobs {
            let row = Arc::new(HistoryRow::of(*number, record, &Arc::from("")));
            let key = HistoryKey::series(&row.series);
            if row.keys().contains(&key) && *number > upto[key.part(PARTS)] {
                let runs = HistoryRuns::add(all.remove(&row.series), &row);
                all.insert(row.series.clone(), runs);
            }
        }
        Ok(all)
    }
}

impl JobHistory {
    /// The history of the namespace of these settings.
    pub fn of_namespace(settings: &crate::Settings, lanes: &Lanes) -> Result<JobHistory, Error> {
        let namespace = Namespace::new(&settings.namespace)?;
        Ok(JobHistory::new(lanes, &namespace))
    }
}

/// The rows of a key that the head has.
fn of_head<'h>(head: &'h HistoryHead, key: &'h HistoryKey) -> impl Iterator<Item = Arc<HistoryRow>> + 'h {
    let rows = head.jobs.iter().map(|(number, record)| HistoryRow::of(*number, record, &Arc::from("")));
    rows.filter(|row| row.keys().contains(key)).map(Arc::new)
}

fn with_head(
    runs: Option<HistoryRuns>,
    upto: u64,
    head: &HistoryHead,
    series: &SeriesId,
) -> Option<HistoryRuns> {
    let newer = head.jobs.iter().filter(|(number, record)| *number > upto && record.series == *series);
    newer.fold(runs, |runs, (number, record)| {
        let row = Arc::new(HistoryRow::of(*number, record, &Arc::from("")));
        Some(HistoryRuns::add(runs, &row))
    })
}

/// The chunks that may have rows of this page, oldest first.
fn wanted<'c>(chunks: &'c [HistoryChunk], query: &HistoryQuery) -> &'c [HistoryChunk] {
    let from = chunks.partition_point(|chunk| query.since_ms.is_some_and(|since| chunk.ended_ms < since));
    let mut upto = match query.before {
        Some(before) => chunks.partition_point(|chunk| chunk.numbers.0 < before),
        None => chunks.len(),
    };
    if let Some(until) = query.until_ms {
        // What follows a chunk that ended later than that ended later, too.
        let later = chunks.partition_point(|chunk| chunk.ended_ms < until);
        upto = upto.min(later + 1);
    }
    &chunks[from.min(upto)..upto.max(from).min(chunks.len())]
}
