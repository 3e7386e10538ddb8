//! `jobs/orders.json`: orders to the leader.

use super::codec::{COUNT_MAX, NUMBER_MAX, bounded};
use super::submitted::SubmittedDocument;
use crate::documents::Codec;
use crate::error::{Error, found};
use crate::keys::Keys;
use crate::wire::{Envelope, Unreadable, id, nonce, nonce_text, parse, to_bytes};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tenure_core::document::Stamp;
use tenure_core::{
    BatchedOrder, JOB_QUEUES_MAX, JobRecord, Namespace, Order, OrdersDoc, QueueName, QueueSettings,
};
use tenure_store::{BODY_MAX_BYTES, Lanes};

/// Most entries that we read; an object with more is not ours.
const ENTRIES_READ_MAX: usize = 4096;

/// Most entries that cannot be understood but are kept anyway; further ones are dropped.
const FOREIGN_MAX: usize = 64;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrdersDocument {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(default)]
    entries: Vec<Value>,
    #[serde(default)]
    taken: Vec<String>,
    #[serde(default)]
    changes: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    queues: BTreeMap<String, QueueDocument>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OrderDocument {
    batch: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    submit: Option<SubmitDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remove: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryDocument {
    job: SubmitDocument,
    dispatch: u32,
    unbegun: u32,
    retries: u32,
}

#[derive(Serialize, Deserialize)]
struct SubmitDocument {
    #[serde(flatten)]
    job: SubmittedDocument,
    /// Fields of a newer version: nobody can tell what becomes of the job without them.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl SubmitDocument {
    fn of(job: &JobRecord) -> SubmitDocument {
        SubmitDocument { job: SubmittedDocument::of(job), unknown: Map::new() }
    }

    fn read(self) -> Result<JobRecord, String> {
        match self.unknown.keys().next() {
            None => self.job.read(),
            Some(field) => Err(format!("`{field}` is not known to this version")),
        }
    }
}

/// What is set for a queue.
#[derive(Serialize, Deserialize)]
struct QueueDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(default)]
    paused: bool,
}

/// What a rewrite carries along without understanding it: fields, and entries that a newer version knows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Kept {
    extra: Map<String, Value>,
    foreign: Vec<Value>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OrdersCodec;

impl OrdersCodec {
    /// The orders to the leader now; `None` if nobody ever gave any.
    pub(super) async fn read_from(lanes: &Lanes, namespace: &Namespace) -> Result<Option<OrdersDoc>, Error> {
        let key = Keys::global(namespace).orders();
        let Some(object) = found(lanes.bulk.get(&key, None).await)? else { return Ok(None) };
        let read = OrdersCodec.read(&object.body);
        read.map(|(_, doc, _)| Some(doc)).map_err(|unreadable| Error::unreadable(&key, unreadable.detail))
    }
}

impl Codec for OrdersCodec {
    type Body = OrdersDoc;
    type Kept = Kept;
    const WHAT: &'static str = "a document of orders and is left alone";

    fn write(&self, stamp: Stamp, doc: &OrdersDoc, kept: &Kept) -> Vec<u8> {
        let rows = doc.entries.iter().map(|entry| {
            serde_json::to_value(order_document(entry)).expect("maps with text keys always serialize")
        });
        let document = OrdersDocument {
            envelope: Envelope::new(stamp),
            entries: rows.chain(kept.foreign.iter().cloned()).collect(),
            taken: doc.taken.iter().map(|batch| nonce_text(*batch)).collect(),
            changes: doc.changes,
            queues: doc.queues.iter().map(queue_document).collect(),
            extra: kept.extra.clone(),
        };
        to_bytes(&document)
    }

    /// Reads an object that may be anything at all. Entries that cannot be understood are carried along, and nobody acts on them.
    fn read(&self, body: &[u8]) -> Result<(Stamp, OrdersDoc, Kept), Unreadable> {
        orders(parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }

    fn complaint(&self, kept: &Kept) -> Option<String> {
        let count = kept.foreign.len();
        (count > 0).then(|| format!("has {count} entries that cannot be read; they are ignored"))
    }
}

fn orders(document: OrdersDocument) -> Result<(Stamp, OrdersDoc, Kept), String> {
    let stamp = document.envelope.stamp()?;
    if document.entries.len() > ENTRIES_READ_MAX {
        let count = document.entries.len();
        return Err(format!("{count} entries, but at most {ENTRIES_READ_MAX} are allowed"));
    }
    let mut kept = Kept { extra: document.extra, foreign: Vec::new() };
    let mut entries = Vec::new();
    for row in document.entries {
        let parsed = serde_json::from_value::<OrderDocument>(row.clone()).map_err(|e| e.to_string());
        match parsed.and_then(batched) {
            Ok(entry) => entries.push(entry),
            Err(_) => kept.foreign.push(row),
        }
    }
    kept.foreign.truncate(FOREIGN_MAX);
    let taken = document.taken.iter().map(|batch| nonce(batch).ok_or("`taken` has something else"));
    let taken = taken.collect::<Result<Vec<_>, &str>>()?;
    let changes = bounded("changes", document.changes, NUMBER_MAX)?;
    bounded("queues", document.queues.len(), JOB_QUEUES_MAX)?;
    let queues = document.queues.iter().map(|(name, set)| {
        let settings = QueueSettings { concurrency: set.concurrency, paused: set.paused };
        Ok((id("queues", name)?, settings))
    });
    let queues = queues.collect::<Result<_, String>>()?;
    Ok((stamp, OrdersDoc { entries, taken, changes, queues }, kept))
}

fn queue_document((name, settings): (&QueueName, &QueueSettings)) -> (String, QueueDocument) {
    let QueueSettings { concurrency, paused } = *settings;
    (name.to_string(), QueueDocument { concurrency, paused })
}

fn order_document(entry: &BatchedOrder) -> OrderDocument {
    let mut row = OrderDocument {
        batch: nonce_text(entry.batch),
        submit: None,
        cancel: None,
        retry: None,
        remove: None,
    };
    match &entry.order {
        Order::Submit(job) => row.submit = Some(SubmitDocument::of(job)),
        Order::Cancel(id) => row.cancel = Some(id.to_string()),
        Order::Retry(job) => {
            let JobRecord { dispatch, unbegun, retries, .. } = *job;
            row.retry = Some(RetryDocument { job: SubmitDocument::of(job), dispatch, unbegun, retries });
        }
        Order::Remove(id) => row.remove = Some(id.to_string()),
    }
    row
}

fn batched(row: OrderDocument) -> Result<BatchedOrder, String> {
    let batch = nonce(&row.batch).ok_or("`batch` must be 16 hex digits, a dash and a number")?;
    let order = match (row.submit, row.cancel, row.retry, row.remove) {
        (Some(submit), None, None, None) => Order::Submit(submit.read()?),
        (None, Some(job), None, None) => Order::Cancel(id("cancel", &job)?),
        (None, None, Some(retry), None) => {
            let dispatch = bounded("dispatch", retry.dispatch, COUNT_MAX)?;
            let unbegun = bounded("unbegun", retry.unbegun, COUNT_MAX)?;
            let retries = bounded("retries", retry.retries, COUNT_MAX)?;
            Order::Retry(JobRecord { dispatch, unbegun, retries, ..retry.job.read()? })
        }
        (None, None, None, Some(job)) => Order::Remove(id("remove", &job)?),
        _ => return Err("it is not one of the orders that this version knows".to_owned()),
    };
    Ok(BatchedOrder { batch, order })
}
