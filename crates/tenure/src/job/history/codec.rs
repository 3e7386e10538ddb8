//! `jobs/history/head.json`, `jobs/history/part-<n>.json` and the chunks in `jobs/done/`.

use super::super::codec::{JobDocument, NUMBER_MAX, bounded, job_document, job_record};
use crate::documents::Codec;
use crate::wire::{Envelope, Unreadable, id, parse, to_bytes, told};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{
    Epoch, HISTORY_RUNS_MAX, HistoryChunk, HistoryHead, HistoryKey, HistoryPart, HistoryRow, HistoryRuns,
    JobState,
};
use tenure_store::BODY_MAX_BYTES;

/// Number, id, series, watermark, queue, kind, state, times of submission, beginning and end, attempts and most attempts, worker,
/// reason, batch.
type RowDocument = (
    u64,
    String,
    String,
    u64,
    String,
    String,
    String,
    i64,
    i64,
    i64,
    u32,
    u32,
    Option<String>,
    String,
    String,
);

/// Name, numbers of its first and last row, end of the last one, number of rows.
type ChunkDocument = (String, u64, u64, i64, u32);

#[derive(Serialize, Deserialize)]
struct HeadDocument {
    #[serde(flatten)]
    envelope: Envelope,
    floor: u64,
    recorded: BTreeMap<u64, u64>,
    last: u64,
    #[serde(default)]
    dropped: u64,
    jobs: Vec<(u64, JobDocument)>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct PartDocument {
    #[serde(flatten)]
    envelope: Envelope,
    upto: u64,
    rows: BTreeMap<String, Vec<RowDocument>>,
    chunks: BTreeMap<String, Vec<ChunkDocument>>,
    runs: BTreeMap<String, RunsDocument>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A letter for each run, oldest first.
#[derive(Serialize, Deserialize)]
struct RunsDocument {
    states: String,
    last: RowDocument,
}

#[derive(Serialize, Deserialize)]
struct RowsDocument {
    #[serde(flatten)]
    envelope: Envelope,
    rows: Vec<RowDocument>,
}

const LETTERS: [(char, JobState); 7] = [
    ('+', JobState::Succeeded),
    ('~', JobState::Partial),
    ('-', JobState::Failed),
    ('t', JobState::TimedOut),
    ('x', JobState::Expired),
    ('/', JobState::Cancelled),
    ('l', JobState::Lost),
];

fn letter(state: JobState) -> char {
    LETTERS.iter().find(|(_, known)| *known == state).map_or('?', |(letter, _)| *letter)
}

fn row_document(row: &HistoryRow) -> RowDocument {
    (
        row.number,
        row.id.to_string(),
        row.series.to_string(),
        row.watermark,
        row.queue.to_string(),
        row.kind.to_string(),
        row.state.as_str().to_owned(),
        row.submitted_ms,
        row.began_ms,
        row.ended_ms,
        row.attempts.0,
        row.attempts.1,
        row.worker.as_ref().map(ToString::to_string),
        told(&row.reason),
        row.batch.to_string(),
    )
}

fn row(row: RowDocument) -> Result<Arc<HistoryRow>, String> {
    let (
        number,
        name,
        series,
        watermark,
        queue,
        kind,
        state,
        submitted,
        began,
        ended,
        begun,
        most,
        worker,
        reason,
        batch,
    ) = row;
    let time = |field: &str, at: i64| bounded(field, at, NUMBER_MAX as i64);
    Ok(Arc::new(HistoryRow {
        number,
        id: id("id", &name)?,
        series: id("series", &series)?,
        watermark,
        queue: id("queue", &queue)?,
        kind: id("kind", &kind)?,
        state: state_named(&state)?,
        submitted_ms: time("submitted", submitted)?,
        began_ms: time("began", began)?,
        ended_ms: time("ended", ended)?,
        attempts: (begun, most),
        worker: worker.map(|worker| id("worker", &worker)).transpose()?,
        reason: Arc::from(told(&reason)),
        batch: object_name("batch", &batch)?,
    }))
}

fn state_named(name: &str) -> Result<JobState, String> {
    let state = JobState::named(name).filter(|state| state.is_final());
    state.ok_or_else(|| format!("{name:?} is not a state in which a job ends"))
}

/// It becomes part of a key.
fn object_name(field: &str, name: &str) -> Result<Arc<str>, String> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (plain && name.len() <= 64)
        .then(|| Arc::from(name))
        .ok_or_else(|| format!("`{field}` {name:?} is not a name"))
}

fn rows(list: Vec<RowDocument>) -> Result<Vec<Arc<HistoryRow>>, String> {
    list.into_iter().map(row).collect()
}

// ---- head ----

/// The newest finished jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadCodec;

impl Codec for HeadCodec {
    type Body = HistoryHead;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "the history and is left alone";

    fn write(&self, stamp: Stamp, head: &HistoryHead, extra: &Map<String, Value>) -> Vec<u8> {
        let job = |(number, record)| (number, job_document(record, Map::new()));
        to_bytes(&HeadDocument {
            envelope: Envelope::new(stamp),
            floor: head.floor.0,
            recorded: head.recorded.iter().map(|(epoch, ending)| (epoch.0, *ending)).collect(),
            last: head.last,
            dropped: head.dropped,
            jobs: head.jobs.iter().map(|(number, record)| job((*number, record))).collect(),
            extra: extra.clone(),
        })
    }

    fn read(&self, body: &[u8]) -> Result<(Stamp, HistoryHead, Map<String, Value>), Unreadable> {
        head(parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }
}

fn head(document: HeadDocument) -> Result<(Stamp, HistoryHead, Map<String, Value>), String> {
    let stamp = document.envelope.stamp()?;
    let jobs = document.jobs.into_iter().map(|(number, job)| {
        let name = job.id().to_owned();
        let record = job_record(job).map_err(|detail| format!("job {name:?}: {detail}"))?;
        match record.state.is_final() {
            true => Ok((number, record)),
            false => Err(format!("job {name:?} is not over")),
        }
    });
    let head = HistoryHead {
        floor: Epoch(bounded("floor", document.floor, Epoch::MAX.0)?),
        recorded: document.recorded.into_iter().map(|(epoch, ending)| (Epoch(epoch), ending)).collect(),
        last: bounded("last", document.last, NUMBER_MAX)?,
        dropped: document.dropped,
        jobs: jobs.collect::<Result<_, String>>()?,
    };
    Ok((stamp, head, document.extra))
}

// ---- parts ----

/// A part of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartCodec;

impl Codec for PartCodec {
    type Body = HistoryPart;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "a part of the history and is left alone";

    fn write(&self, stamp: Stamp, part: &HistoryPart, extra: &Map<String, Value>) -> Vec<u8> {
        let rows = |(key, rows): (&HistoryKey, &Vec<Arc<HistoryRow>>)| {
            (key.as_str().to_owned(), rows.iter().map(|row| row_document(row)).collect())
        };
        let chunk = |chunk: &HistoryChunk| {
            (chunk.name.to_string(), chunk.numbers.0, chunk.numbers.1, chunk.ended_ms, chunk.rows)
        };
        let chunks = |(key, chunks): (&HistoryKey, &Vec<HistoryChunk>)| {
            (key.as_str().to_owned(), chunks.iter().map(chunk).collect())
        };
        let runs = part.runs.iter().map(|(series, runs)| {
            let states = runs.states.iter().map(|state| letter(*state)).collect();
            (series.to_string(), RunsDocument { states, last: row_document(&runs.last) })
        });
        to_bytes(&PartDocument {
            envelope: Envelope::new(stamp),
            upto: part.upto,
            rows: part.rows.iter().map(rows).collect(),
            chunks: part.chunks.iter().map(chunks).collect(),
            runs: runs.collect(),
            extra: extra.clone(),
        })
    }

    fn read(&self, body: &[u8]) -> Result<(Stamp, HistoryPart, Map<String, Value>), Unreadable> {
        part(parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }
}

fn part(document: PartDocument) -> Result<(Stamp, HistoryPart, Map<String, Value>), String> {
    let stamp = document.envelope.stamp()?;
    let key =
        |name: &str| HistoryKey::named(name).ok_or_else(|| format!("{name:?} is not a key of the history"));
    let chunk = |(name, first, last, ended_ms, rows): ChunkDocument| {
        let ended_ms = bounded("chunks", ended_ms, NUMBER_MAX as i64)?;
        Ok(HistoryChunk { name: object_name("chunks", &name)?, numbers: (first, last), ended_ms, rows })
    };
    let mut part = HistoryPart { upto: document.upto, ..HistoryPart::default() };
    for (name, list) in document.rows {
        part.rows.insert(key(&name)?, rows(list)?);
    }
    for (name, list) in document.chunks {
        part.chunks.insert(key(&name)?, list.into_iter().map(chunk).collect::<Result<_, String>>()?);
    }
    for (name, runs) in document.runs {
        let state =
            |letter: char| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, state)| *state);
        let states: Vec<JobState> = runs.states.chars().filter_map(state).take(HISTORY_RUNS_MAX).collect();
        part.runs.insert(id("runs", &name)?, HistoryRuns { states, last: row(runs.last)? });
    }
    Ok((stamp, part, document.extra))
}

// ---- chunks ----

/// A chunk: rows of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsCodec;

impl Codec for RowsCodec {
    type Body = Vec<Arc<HistoryRow>>;
    type Kept = ();
    const WHAT: &'static str = "a chunk of the history";

    fn write(&self, stamp: Stamp, rows: &Vec<Arc<HistoryRow>>, (): &()) -> Vec<u8> {
        let rows = rows.iter().map(|row| row_document(row)).collect();
        to_bytes(&RowsDocument { envelope: Envelope::new(stamp), rows })
    }

    fn read(&self, body: &[u8]) -> Result<(Stamp, Vec<Arc<HistoryRow>>, ()), Unreadable> {
        let document: RowsDocument = parse(body, BODY_MAX_BYTES, &[])?;
        let stamp = document.envelope.stamp().map_err(Unreadable::corrupt)?;
        Ok((stamp, rows(document.rows).map_err(Unreadable::corrupt)?, ()))
    }
}
