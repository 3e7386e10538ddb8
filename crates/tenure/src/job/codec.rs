//! `jobs/ledger-<n>.json`, `jobs/inbox/<worker>.json` and the batches in `jobs/done/`.

#[cfg(test)]
mod tests;

use super::blob::Blob;
use super::submitted::{LabelsDocument, SubmittedDocument};
use crate::documents::Codec;
use crate::wire::{Envelope, Unreadable, id, incarnation, parse, to_bytes, told};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{
    AllowedCommand, Entry, EntryState, Epoch, InboxDoc, Incarnation, JOB_PAYLOAD_MAX_BYTES,
    JOB_RESULT_MAX_BYTES, JOB_SERVES_MAX_BYTES, JOB_SLOTS_MAX, JobRecord, JobState, LateResult, LedgerDoc,
    Outcome, OutcomeKind, Progress, QueueName, Serves, WorkerId,
};
use tenure_store::BODY_MAX_BYTES;

/// Most entries of an inbox that cannot be understood but are kept anyway; further ones are dropped.
const FOREIGN_MAX: usize = 8;

/// Largest encoded size of one of these.
const FOREIGN_MAX_BYTES: usize = 8 * 1024;

/// Largest time in our documents: adding to it must not overflow.
pub(super) const NUMBER_MAX: u64 = u64::MAX / 2;

/// Largest number of dispatches, attempts or retries in our documents.
pub(super) const COUNT_MAX: u32 = u32::MAX / 2;

/// Most entries in an inbox that we read; an object with more is not ours.
const ENTRIES_READ_MAX: usize = 1024;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LedgerDocument {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(default)]
    series: BTreeMap<String, u64>,
    jobs: Vec<JobDocument>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobDocument {
    #[serde(flatten)]
    submitted: SubmittedDocument,
    state: String,
    #[serde(default)]
    dispatch: u32,
    #[serde(default)]
    unbegun: u32,
    #[serde(default)]
    retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    epoch: u64,
    /// Absent while it is open.
    #[serde(default, skip_serializing_if = "is_zero")]
    ending: u64,
    #[serde(default, skip_serializing_if = "is_never")]
    began_at: i64,
    #[serde(default, skip_serializing_if = "is_never")]
    ended_at: i64,
    #[serde(default)]
    cancel: bool,
    #[serde(default)]
    given_up: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    result: Blob,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    late: Vec<LateDocument>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl JobDocument {
    pub(super) fn id(&self) -> &str {
        &self.submitted.id
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_never(time: &i64) -> bool {
    *time == 0
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct LateDocument {
    attempt: u32,
    worker: String,
    outcome: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InboxDocument {
    #[serde(flatten)]
    envelope: Envelope,
    worker_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serves: Option<ServesDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<String>,
    entries: Vec<Value>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Which jobs the worker takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct ServesDocument {
    /// The life of the worker that said so.
    by: String,
    /// None: every queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<String>,
    /// None: every kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<String>,
    slots: u32,
    #[serde(default, skip_serializing_if = "LabelsDocument::is_empty")]
    labels: LabelsDocument,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    commands: Vec<String>,
}

impl ServesDocument {
    fn of((by, serves): &(Incarnation, Arc<Serves>)) -> ServesDocument {
        ServesDocument {
            by: by.to_string(),
            queues: serves.queues.iter().map(ToString::to_string).collect(),
            kinds: serves.kinds.iter().map(ToString::to_string).collect(),
            slots: serves.slots,
            labels: LabelsDocument::of(&serves.labels),
            commands: serves.commands.iter().map(|command| command.as_str().to_owned()).collect(),
        }
    }

    fn read(&self) -> Result<(Incarnation, Arc<Serves>), String> {
        let by = incarnation(&self.by).ok_or("`serves.by` must be 16 hex digits")?;
        let queues = self.queues.iter().map(|name| id("serves.queues", name));
        let kinds = self.kinds.iter().map(|name| id("serves.kinds", name));
        let commands = self.commands.iter().map(|text| {
            text.parse::<AllowedCommand>().map_err(|rule| format!("`serves.commands` {text:?}: {rule}"))
        });
        let serves = Serves {
            queues: queues.collect::<Result<_, _>>()?,
            kinds: kinds.collect::<Result<_, _>>()?,
            slots: bounded("serves.slots", self.slots, JOB_SLOTS_MAX)?,
            labels: self.labels.read("serves.labels")?,
            commands: commands.collect::<Result<_, _>>()?,
        };
        bounded("serves", serves.names_len(), JOB_SERVES_MAX_BYTES)?;
        Ok((by, Arc::new(serves)))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryDocument {
    id: String,
    dispatch: u32,
    /// Missing: as `dispatch`.
    #[serde(default)]
    attempt: u32,
    epoch: u64,
    dispatched_at: i64,
    /// None: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    kind: String,
    #[serde(default)]
    payload: Blob,
    timeout: u64,
    state: String,
    /// The life of the worker that claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Blob>,
    #[serde(default)]
    cancel: bool,
    /// How far it is: percent, and a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<(u8, String)>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// What a rewrite carries along without understanding it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Carried {
    extra: Map<String, Value>,
    rows: HashMap<(String, u32), Map<String, Value>>,
    /// Entries that are not ours.
    pub(crate) foreign: Vec<Value>,
}

pub(super) fn bounded<N: PartialOrd + std::fmt::Display>(
    field: &str,
    number: N,
    most: N,
) -> Result<N, String> {
    if number <= most {
        Ok(number)
    } else {
        Err(format!("`{field}` is {number}, but at most {most} is allowed"))
    }
}

pub(super) fn bytes(field: &str, blob: Blob, limit: usize) -> Result<Arc<[u8]>, String> {
    match blob.0.len() {
        len if len > limit => Err(format!("`{field}` has {len} bytes, but at most {limit} are allowed")),
        _ => Ok(blob.0),
    }
}

// ---- ledger ----

/// A part of the ledger, or a batch of finished jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerCodec;

impl Codec for LedgerCodec {
    type Body = LedgerDoc;
    type Kept = Carried;
    const WHAT: &'static str = "a ledger and is left alone";

    fn write(&self, stamp: Stamp, doc: &LedgerDoc, carried: &Carried) -> Vec<u8> {
        let extra = |job: &JobRecord| carried.rows.get(&(job.id.to_string(), 0)).cloned().unwrap_or_default();
        let document = LedgerDocument {
            envelope: Envelope::new(stamp),
            series: doc.series.iter().map(|(name, watermark)| (name.to_string(), *watermark)).collect(),
            jobs: doc.jobs.iter().map(|job| job_document(job, extra(job))).collect(),
            extra: carried.extra.clone(),
        };
        to_bytes(&document)
    }

    /// Reads an object that may be anything at all. A single row that cannot be understood rejects the whole object: without
    /// it, a job would be forgotten.
    fn read(&self, body: &[u8]) -> Result<(Stamp, LedgerDoc, Carried), Unreadable> {
        ledger(parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }
}

fn ledger(document: LedgerDocument) -> Result<(Stamp, LedgerDoc, Carried), String> {
    let stamp = document.envelope.stamp()?;
    let series = document.series.iter().map(|(name, watermark)| Ok((id("series", name)?, *watermark)));
    let series = series.collect::<Result<Vec<_>, String>>()?;
    let mut carried = Carried { extra: document.extra, ..Carried::default() };
    let (mut jobs, mut seen) = (Vec::new(), BTreeSet::new());
    for row in document.jobs {
        let (name, extra) = (row.submitted.id.clone(), row.extra.clone());
        let job = job_record(row).map_err(|detail| format!("job {name:?}: {detail}"))?;
        if !seen.insert(job.id.clone()) {
            return Err(format!("job {name:?} is listed twice"));
        }
        if !extra.is_empty() {
            carried.rows.insert((name, 0), extra);
        }
        jobs.push(job);
    }
    Ok((stamp, LedgerDoc { series, jobs }, carried))
}

pub(super) fn job_document(job: &JobRecord, extra: Map<String, Value>) -> JobDocument {
    let late = |late: &LateResult| LateDocument {
        attempt: late.attempt,
        worker: late.worker.to_string(),
        outcome: late.kind.as_str().to_owned(),
    };
    JobDocument {
        submitted: SubmittedDocument::of(job),
        state: job.state.as_str().to_owned(),
        dispatch: job.dispatch,
        unbegun: job.unbegun,
        retries: job.retries,
        worker: job.worker.as_ref().map(ToString::to_string),
        epoch: job.epoch.0,
        ending: job.ending,
        began_at: job.began_ms,
        ended_at: job.ended_ms,
        cancel: job.cancel,
        given_up: job.given_up,
        reason: told(&job.reason),
        result: Blob(Arc::clone(&job.result)),
        late: job.late.iter().map(late).collect(),
        extra,
    }
}

pub(super) fn job_record(row: JobDocument) -> Result<JobRecord, String> {
    let late = row.late.iter().map(|late| {
        let kind = OutcomeKind::named(&late.outcome).ok_or("`late` has an unknown outcome")?;
        Ok(LateResult { attempt: late.attempt, worker: id("late", &late.worker)?, kind })
    });
    let late = late.collect::<Result<Vec<_>, String>>()?;
    let state =
        JobState::named(&row.state).ok_or_else(|| format!("`state` {:?} is not a state", row.state))?;
    let worker = row.worker.map(|worker| id("worker", &worker)).transpose()?;
    if state.is_out() && worker.is_none() {
        return Err(format!("`worker` is missing, though the state is {}", state.as_str()));
    }
    Ok(JobRecord {
        state,
        dispatch: bounded("dispatch", row.dispatch, COUNT_MAX)?,
        unbegun: bounded("unbegun", row.unbegun, COUNT_MAX)?,
        retries: bounded("retries", row.retries, COUNT_MAX)?,
        worker,
        epoch: Epoch(bounded("epoch", row.epoch, Epoch::MAX.0)?),
        ending: bounded("ending", row.ending, NUMBER_MAX)?,
        began_ms: bounded("beganAt", row.began_at, NUMBER_MAX as i64)?,
        ended_ms: bounded("endedAt", row.ended_at, NUMBER_MAX as i64)?,
        cancel: row.cancel,
        given_up: row.given_up,
        reason: Arc::from(told(&row.reason)),
        result: bytes("result", row.result, JOB_RESULT_MAX_BYTES)?,
        late,
        ..row.submitted.read()?
    })
}

// ---- inboxes ----

/// The inbox of this worker.
#[derive(Clone, Debug)]
pub(crate) struct InboxCodec(pub(crate) WorkerId);

impl Codec for InboxCodec {
    type Body = InboxDoc;
    type Kept = Carried;
    const WHAT: &'static str = "an inbox and is left alone";

    fn write(&self, stamp: Stamp, doc: &InboxDoc, carried: &Carried) -> Vec<u8> {
        let rows = doc.entries.iter().map(|entry| {
            serde_json::to_value(entry_document(entry, carried))
                .expect("maps with text keys always serialize")
        });
        let document = InboxDocument {
            envelope: Envelope::new(stamp),
            worker_id: self.0.to_string(),
            serves: doc.serves.as_ref().map(ServesDocument::of),
            closed: doc.closed.map(|life| life.to_string()),
            entries: rows.chain(carried.foreign.iter().cloned()).collect(),
            extra: carried.extra.clone(),
        };
        to_bytes(&document)
    }

    /// Reads an object that may be anything at all. Entries that cannot be understood are set aside: a few are carried along,
    /// and nobody acts on them. Unlike a row of the ledger, none of them rejects the whole object: an entry is one delivery,
    /// and the ledger knows about it.
    fn read(&self, body: &[u8]) -> Result<(Stamp, InboxDoc, Carried), Unreadable> {
        inbox(&self.0, parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }

    fn complaint(&self, kept: &Carried) -> Option<String> {
        let count = kept.foreign.len();
        (count > 0).then(|| format!("has {count} entries that cannot be read; they are ignored"))
    }
}

fn inbox(worker: &WorkerId, document: InboxDocument) -> Result<(Stamp, InboxDoc, Carried), String> {
    if document.worker_id != worker.as_str() {
        return Err(format!("`workerId` must be {worker}, as in the key, not {:?}", document.worker_id));
    }
    if document.entries.len() > ENTRIES_READ_MAX {
        return Err(format!(
            "{} entries, but at most {ENTRIES_READ_MAX} are allowed",
            document.entries.len()
        ));
    }
    let stamp = document.envelope.stamp()?;
    let mut carried = Carried { extra: document.extra, ..Carried::default() };
    let (mut entries, mut seen) = (Vec::new(), BTreeSet::new());
    for row in document.entries {
        let parsed = serde_json::from_value::<EntryDocument>(row.clone()).map_err(|e| e.to_string());
        match parsed.and_then(|row| Ok((row.extra.clone(), entry(row)?))) {
            Ok((extra, entry)) if seen.insert(entry.key()) => {
                if !extra.is_empty() {
                    carried.rows.insert((entry.id.to_string(), entry.dispatch), extra);
                }
                entries.push(entry);
            }
            Ok(_) | Err(_) => carried.foreign.push(row),
        }
    }
    carried.foreign.retain(|row| row.to_string().len() <= FOREIGN_MAX_BYTES);
    carried.foreign.truncate(FOREIGN_MAX);
    let closed = match &document.closed {
        None => None,
        Some(life) => Some(incarnation(life).ok_or("`closed` must be 16 hex digits")?),
    };
    let serves = document.serves.map(|serves| serves.read()).transpose()?;
    Ok((stamp, InboxDoc { serves, closed, entries }, carried))
}

fn entry_document(entry: &Entry, carried: &Carried) -> EntryDocument {
    let claim = |by: &Incarnation| Some(by.to_string());
    let (state, by, outcome) = match &entry.state {
        EntryState::Dispatched => ("dispatched", None, None),
        EntryState::Acked { by } => ("acked", claim(by), None),
        EntryState::Running { by } => ("running", claim(by), None),
        EntryState::Finished { outcome } => ("finished", None, Some(outcome)),
    };
    EntryDocument {
        id: entry.id.to_string(),
        dispatch: entry.dispatch,
        attempt: entry.attempt,
        epoch: entry.epoch.0,
        dispatched_at: entry.dispatched_at,
        queue: (entry.queue != QueueName::default()).then(|| entry.queue.to_string()),
        kind: entry.kind.to_string(),
        payload: Blob(Arc::clone(&entry.payload)),
        timeout: entry.timeout_ms,
        state: state.to_owned(),
        by,
        outcome: outcome.map(|outcome| outcome.kind.as_str().to_owned()),
        result: outcome.map(|outcome| Blob(Arc::clone(&outcome.result))),
        cancel: entry.cancel,
        progress: entry.progress.as_ref().map(|progress| (progress.percent, told(&progress.text))),
        extra: carried.rows.get(&(entry.id.to_string(), entry.dispatch)).cloned().unwrap_or_default(),
    }
}

fn entry(row: EntryDocument) -> Result<Entry, String> {
    let by = || row.by.as_deref().and_then(incarnation).ok_or("`by` must be 16 hex digits");
    let state = match row.state.as_str() {
        "dispatched" => EntryState::Dispatched,
        "acked" => EntryState::Acked { by: by()? },
        "running" => EntryState::Running { by: by()? },
        "finished" => {
            let kind =
                row.outcome.as_deref().and_then(OutcomeKind::named).ok_or("`outcome` is not an outcome")?;
            let result = bytes("result", row.result.unwrap_or_default(), JOB_RESULT_MAX_BYTES)?;
            EntryState::Finished { outcome: Outcome { kind, result } }
        }
        other => return Err(format!("`state` {other:?} is not a state")),
    };
    Ok(Entry {
        id: id("id", &row.id)?,
        dispatch: bounded("dispatch", row.dispatch, COUNT_MAX)?,
        attempt: bounded("attempt", if row.attempt > 0 { row.attempt } else { row.dispatch }, COUNT_MAX)?,
        epoch: Epoch(bounded("epoch", row.epoch, Epoch::MAX.0)?),
        dispatched_at: row.dispatched_at,
        queue: row.queue.map(|queue| id("queue", &queue)).transpose()?.unwrap_or_default(),
        kind: id("kind", &row.kind)?,
        payload: bytes("payload", row.payload, JOB_PAYLOAD_MAX_BYTES)?,
        timeout_ms: bounded("timeout", row.timeout, NUMBER_MAX)?,
        state,
        cancel: row.cancel,
        progress: row.progress.map(|(percent, text)| Progress::new(percent, &told(&text))),
    })
}
