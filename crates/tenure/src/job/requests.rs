//! `jobs/requests.json`: what is asked of the leader.

use super::blob::Blob;
use super::documents::{NUMBER_MAX, bounded, bytes};
use crate::documents::Codec;
use crate::error::{Error, found};
use crate::keys::Keys;
use crate::wire::{Envelope, Unreadable, id, nonce, nonce_text, parse, to_bytes};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{Ask, Asked, JOB_PAYLOAD_MAX_BYTES, JobId, JobLimits, JobRecord, Namespace, RequestsDoc};
use tenure_store::{BODY_MAX_BYTES, Lanes};

/// Most entries that we read; an object with more is not ours.
const ENTRIES_READ_MAX: usize = 4096;

/// Most entries that cannot be understood but are kept anyway; further ones are dropped.
const FOREIGN_MAX: usize = 64;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestsDocument {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(default)]
    entries: Vec<Value>,
    #[serde(default)]
    taken: Vec<String>,
    #[serde(default)]
    changes: u64,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AskedDocument {
    batch: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    submit: Option<SubmitDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubmitDocument {
    id: String,
    series: String,
    #[serde(default)]
    watermark: u64,
    kind: String,
    #[serde(default)]
    payload: Blob,
    timeout: u64,
    ttl: u64,
    #[serde(default)]
    deadline: u64,
    attempts: u32,
    #[serde(default)]
    backoff: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// What a rewrite carries along without understanding it: fields, and entries that a newer version knows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Kept {
    extra: Map<String, Value>,
    foreign: Vec<Value>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestsCodec;

impl RequestsCodec {
    /// A job that waits for the leader to take it up.
    pub(super) async fn waiting(
        lanes: &Lanes,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<JobRecord>, Error> {
        let key = Keys::global(namespace).requests();
        let Some(object) = found(lanes.bulk.get(&key, None).await)? else { return Ok(None) };
        let read = RequestsCodec.read(&object.body);
        let (_, doc, _) = read.map_err(|unreadable| Error::unreadable(&key, unreadable.detail))?;
        let reason: Arc<str> = Arc::from("the leader has not taken it up yet, or nobody leads");
        Ok(doc.entries.into_iter().find_map(|asked| match asked.ask {
            Ask::Submit(record) if record.id == *id => {
                Some(JobRecord { reason: Arc::clone(&reason), ..record })
            }
            Ask::Submit(_) | Ask::Cancel(_) => None,
        }))
    }
}

impl Codec for RequestsCodec {
    type Body = RequestsDoc;
    type Kept = Kept;
    const WHAT: &'static str = "a document of requests and is left alone";

    fn write(&self, stamp: Stamp, doc: &RequestsDoc, kept: &Kept) -> Vec<u8> {
        let rows = doc.entries.iter().map(|asked| {
            serde_json::to_value(asked_document(asked)).expect("maps with text keys always serialize")
        });
        let document = RequestsDocument {
            envelope: Envelope::new(stamp),
            entries: rows.chain(kept.foreign.iter().cloned()).collect(),
            taken: doc.taken.iter().map(|batch| nonce_text(*batch)).collect(),
            changes: doc.changes,
            extra: kept.extra.clone(),
        };
        to_bytes(&document)
    }

    /// Reads an object that may be anything at all. Entries that cannot be understood are carried along, and nobody acts on them.
    fn read(&self, body: &[u8]) -> Result<(Stamp, RequestsDoc, Kept), Unreadable> {
        requests(parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }

    fn complaint(&self, kept: &Kept) -> Option<String> {
        let count = kept.foreign.len();
        (count > 0).then(|| format!("has {count} entries that cannot be read; they are ignored"))
    }
}

fn requests(document: RequestsDocument) -> Result<(Stamp, RequestsDoc, Kept), String> {
    let stamp = document.envelope.stamp()?;
    if document.entries.len() > ENTRIES_READ_MAX {
        let count = document.entries.len();
        return Err(format!("{count} entries, but at most {ENTRIES_READ_MAX} are allowed"));
    }
    let mut kept = Kept { extra: document.extra, foreign: Vec::new() };
    let mut entries = Vec::new();
    for row in document.entries {
        let parsed = serde_json::from_value::<AskedDocument>(row.clone()).map_err(|e| e.to_string());
        match parsed.and_then(asked) {
            Ok(asked) => entries.push(asked),
            Err(_) => kept.foreign.push(row),
        }
    }
    kept.foreign.truncate(FOREIGN_MAX);
    let taken = document.taken.iter().map(|batch| nonce(batch).ok_or("`taken` has something else"));
    let taken = taken.collect::<Result<Vec<_>, &str>>()?;
    let changes = bounded("changes", document.changes, NUMBER_MAX)?;
    Ok((stamp, RequestsDoc { entries, taken, changes }, kept))
}

fn asked_document(asked: &Asked) -> AskedDocument {
    let (submit, cancel) = match &asked.ask {
        Ask::Submit(record) => (Some(submit_document(record)), None),
        Ask::Cancel(id) => (None, Some(id.to_string())),
    };
    AskedDocument { batch: nonce_text(asked.batch), submit, cancel }
}

fn asked(row: AskedDocument) -> Result<Asked, String> {
    let batch = nonce(&row.batch).ok_or("`batch` must be 16 hex digits, a dash and a number")?;
    let ask = match (row.submit, row.cancel) {
        (Some(submit), None) => Ask::Submit(job_record(submit)?),
        (None, Some(job)) => Ask::Cancel(id("cancel", &job)?),
        (Some(_), Some(_)) | (None, None) => return Err("neither `submit` nor `cancel`".to_owned()),
    };
    Ok(Asked { batch, ask })
}

fn submit_document(job: &JobRecord) -> SubmitDocument {
    SubmitDocument {
        id: job.id.to_string(),
        series: job.series.to_string(),
        watermark: job.watermark,
        kind: job.kind.to_string(),
        payload: Blob(Arc::clone(&job.payload)),
        timeout: job.limits.timeout_ms,
        ttl: job.limits.ttl_ms,
        deadline: job.limits.deadline_ms,
        attempts: job.limits.attempts_max,
        backoff: job.limits.backoff_ms,
        target: job.target.as_ref().map(ToString::to_string),
    }
}

fn job_record(row: SubmitDocument) -> Result<JobRecord, String> {
    let limits = JobLimits {
        timeout_ms: bounded("timeout", row.timeout, NUMBER_MAX)?,
        ttl_ms: bounded("ttl", row.ttl, NUMBER_MAX)?,
        deadline_ms: bounded("deadline", row.deadline, NUMBER_MAX)?,
        attempts_max: row.attempts,
        backoff_ms: bounded("backoff", row.backoff, NUMBER_MAX)?,
    };
    let new = JobRecord::new(id("id", &row.id)?, id("series", &row.series)?, id("kind", &row.kind)?, limits);
    Ok(JobRecord {
        watermark: row.watermark,
        payload: bytes("payload", row.payload, JOB_PAYLOAD_MAX_BYTES)?,
        target: row.target.map(|target| id("target", &target)).transpose()?,
        ..new
    })
}
