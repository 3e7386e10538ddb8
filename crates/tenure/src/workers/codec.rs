//! `workers/<id>.json` and `snapshot.json`.

use super::spec::CheckedSpec;
use crate::documents::Codec;
use crate::wire::{
    DOCUMENT_MAX_BYTES, Envelope, FieldRule, SOFTWARE, Unreadable, VERSION, id, incarnation, nonce,
    nonce_text, parse, to_bytes, told,
};
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{
    Epoch, IdError, Incarnation, Listing, NodeId, Nonce, PluginName, RegisteredBy, Snapshot, SnapshotEntry,
    SnapshotId, WORKERS_MAX, WorkerDetails, WorkerId,
};
use tenure_store::BODY_MAX_BYTES;

/// Longest timeout; a longer one on the store is corrupt.
pub(crate) const TIMEOUT_MAX_MS: u64 = 24 * 3600 * 1000;

/// `workers/<id>.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerDocument {
    v: u64,
    worker_id: String,
    plugin_type: String,
    pod: String,
    timeout: u64,
    /// How often the worker writes, for whoever has to decide whether it is alive.
    #[serde(default)]
    heartbeat_interval: u64,
    incarnation: String,
    nonce: String,
    #[serde(default)]
    beats: u64,
    #[serde(default)]
    started_at: String,
    #[serde(default)]
    software: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    payload: Map<String, Value>,
    /// Fields that a later minor version added.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A parsed worker object.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ParsedWorker {
    pub(crate) document: WorkerDocument,
    pub(crate) details: WorkerDetails,
    pub(crate) incarnation: Incarnation,
    pub(crate) sequence: u64,
}

/// The typed fields of a worker.
const WORKER_FIELDS: &[FieldRule] = &[
    ("workerId", Value::is_string),
    ("pluginType", Value::is_string),
    ("pod", Value::is_string),
    ("timeout", Value::is_u64),
    ("heartbeatInterval", Value::is_u64),
    ("incarnation", Value::is_string),
    ("nonce", Value::is_string),
    ("beats", Value::is_u64),
    ("startedAt", Value::is_string),
    ("software", Value::is_string),
    ("payload", Value::is_object),
];

/// The typed fields of a snapshot. Errors in a worker's row are named by the row's own rules.
const SNAPSHOT_FIELDS: &[FieldRule] = &[
    ("epoch", Value::is_u64),
    ("owner", Value::is_string),
    ("nonce", Value::is_string),
    ("id", |value| IdFields::deserialize(value).is_ok()),
    ("listing", |value| matches!(value.as_str(), Some("all" | "inactive" | "cut"))),
    ("active", Value::is_u64),
    ("inactive", Value::is_u64),
    ("skipped", Value::is_u64),
    ("plugins", |value| value.as_array().is_some_and(|texts| texts.iter().all(Value::is_string))),
    ("pods", |value| value.as_array().is_some_and(|texts| texts.iter().all(Value::is_string))),
    ("workers", |value| {
        value.as_array().is_some_and(|rows| rows.iter().all(|row| Row::deserialize(row).is_ok()))
    }),
];

/// A worker's own object, as the worker itself reads and writes it.
#[derive(Clone)]
pub(super) struct WorkerCodec {
    pub(super) spec: Arc<CheckedSpec>,
    pub(super) started_at: Arc<str>,
}

impl Codec for WorkerCodec {
    type Body = RegisteredBy;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "a worker";

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, RegisteredBy, Map<String, Value>), Unreadable> {
        let parsed = WorkerDocument::parse(&self.spec.worker_id, bytes)?;
        let stamp = parsed.stamp();
        let WorkerDocument { heartbeat_interval: heartbeat_ms, beats, extra, .. } = parsed.document;
        Ok((stamp, RegisteredBy { pod: parsed.details.pod, heartbeat_ms, beats }, extra))
    }

    fn write(&self, stamp: Stamp, body: &RegisteredBy, kept: &Map<String, Value>) -> Vec<u8> {
        let spec = &self.spec;
        let document = WorkerDocument {
            v: VERSION,
            worker_id: spec.worker_id.to_string(),
            plugin_type: spec.plugin_type.to_string(),
            pod: body.pod.to_string(),
            timeout: spec.timeout_ms,
            heartbeat_interval: body.heartbeat_ms,
            incarnation: stamp.owner.to_string(),
            nonce: nonce_text(Nonce { incarnation: stamp.owner, ..stamp.nonce }),
            beats: body.beats,
            started_at: self.started_at.to_string(),
            software: SOFTWARE.to_owned(),
            payload: spec.payload.clone(),
            extra: kept.clone(),
        };
        to_bytes(&document)
    }
}

/// A worker's object, as the leader reads it.
#[derive(Clone)]
pub(super) struct ListedWorkerCodec {
    pub(super) worker: WorkerId,
}

/// What a leader wants to know of a worker.
pub(super) struct ListedWorker {
    pub(super) details: WorkerDetails,
    pub(super) incarnation: Incarnation,
    /// As it says itself. For people.
    pub(super) software: String,
}

impl Codec for ListedWorkerCodec {
    type Body = ListedWorker;
    type Kept = ();
    const WHAT: &'static str = "a worker";

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, ListedWorker, ()), Unreadable> {
        let parsed = WorkerDocument::parse(&self.worker, bytes)?;
        let (stamp, software) = (parsed.stamp(), told(&parsed.document.software));
        let (details, incarnation) = (parsed.details, parsed.incarnation);
        Ok((stamp, ListedWorker { details, incarnation, software }, ()))
    }

    fn write(&self, _: Stamp, _: &ListedWorker, (): &()) -> Vec<u8> {
        unreachable!("only the worker itself writes its object")
    }
}

impl ParsedWorker {
    /// Nobody leads here: a worker's object has no epoch.
    fn stamp(&self) -> Stamp {
        let (owner, sequence) = (self.incarnation, self.sequence);
        Stamp { epoch: Epoch(0), owner, nonce: Nonce { incarnation: owner, sequence } }
    }
}

impl WorkerDocument {
    /// Reads an object that may be anything at all, and must be this worker's.
    pub(crate) fn parse(worker: &WorkerId, body: &[u8]) -> Result<ParsedWorker, Unreadable> {
        let document: WorkerDocument = parse(body, DOCUMENT_MAX_BYTES, WORKER_FIELDS)?;
        document.checked(worker).map_err(Unreadable::corrupt)
    }

    fn checked(self, worker: &WorkerId) -> Result<ParsedWorker, String> {
        let document = self;
        if document.worker_id != worker.as_str() {
            return Err(format!("`workerId` must be {worker}, as in the key, not {:?}", document.worker_id));
        }
        if !(1..=TIMEOUT_MAX_MS).contains(&document.timeout) {
            return Err(format!("`timeout` {} must be 1 to {TIMEOUT_MAX_MS} ms", document.timeout));
        }
        let details = WorkerDetails {
            plugin_type: id("pluginType", &document.plugin_type)?,
            pod: id("pod", &document.pod)?,
            timeout_ms: document.timeout,
        };
        let incarnation = incarnation(&document.incarnation).ok_or("`incarnation` must be 16 hex digits")?;
        let nonce = nonce(&document.nonce).ok_or("`nonce` must be 16 hex digits, a dash and a number")?;
        Ok(ParsedWorker { details, incarnation, sequence: nonce.sequence, document })
    }
}

/// `snapshot.json`. Ten thousand workers fit: plugins and pods are written once, and each worker is a short array.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotDocument {
    #[serde(flatten)]
    envelope: Envelope,
    id: IdFields,
    listing: ListingName,
    active: u64,
    inactive: u64,
    #[serde(default)]
    skipped: u64,
    plugins: Vec<String>,
    pods: Vec<String>,
    workers: Vec<Row>,
    /// Fields that a later minor version added.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Whose word the snapshot is: a new leader that has nothing to add writes it again under its own epoch.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct IdFields {
    epoch: u64,
    sequence: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListingName {
    All,
    Inactive,
    Cut,
}

/// `[id, plugin, pod, timeout]`, and for a worker that was ever silent `…, epoch, sequence, active`.
///
/// Never add an element: a fifth one is read as the epoch of a silence. A new fact goes into a map of its own, keyed by worker
/// id: an older leader keeps such a map while it rewrites the rows, so positions no longer match.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    id: String,
    plugin: usize,
    pod: usize,
    timeout: u64,
    silence: Option<(u64, u64, u8)>,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_seq(None)?;
        row.serialize_element(&self.id)?;
        row.serialize_element(&self.plugin)?;
        row.serialize_element(&self.pod)?;
        row.serialize_element(&self.timeout)?;
        if let Some((epoch, sequence, active)) = &self.silence {
            row.serialize_element(epoch)?;
            row.serialize_element(sequence)?;
            row.serialize_element(active)?;
        }
        row.end()
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Row, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a worker as an array of 4 or 7")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Row, A::Error> {
                let short = || A::Error::custom("a worker has 4 or 7 elements");
                let id = row.next_element()?.ok_or_else(short)?;
                let plugin = row.next_element()?.ok_or_else(short)?;
                let pod = row.next_element()?.ok_or_else(short)?;
                let timeout = row.next_element()?.ok_or_else(short)?;
                let silence = match row.next_element()? {
                    None => None,
                    Some(epoch) => {
                        let sequence = row.next_element()?.ok_or_else(short)?;
                        let active = row.next_element()?.ok_or_else(short)?;
                        while row.next_element::<Value>()?.is_some() {}
                        Some((epoch, sequence, active))
                    }
                };
                Ok(Row { id, plugin, pod, timeout, silence })
            }
        }
        deserializer.deserialize_seq(Rows)
    }
}

fn ids<T: FromStr<Err = IdError>>(field: &str, texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| id(field, text)).collect()
}

/// Numbers texts in the order they come.
#[derive(Default)]
struct Index<'a> {
    numbers: HashMap<&'a str, usize>,
    texts: Vec<String>,
}

impl<'a> Index<'a> {
    fn number(&mut self, text: &'a str) -> usize {
        let next = self.texts.len();
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text.to_string());
            next
        })
    }
}

impl SnapshotDocument {
    pub(crate) fn new(stamp: Stamp, snapshot: &Snapshot, extra: Map<String, Value>) -> SnapshotDocument {
        let (mut plugins, mut pods) = (Index::default(), Index::default());
        let rows = snapshot.workers.iter().map(|entry| Row {
            id: entry.worker.to_string(),
            plugin: plugins.number(entry.details.plugin_type.as_str()),
            pod: pods.number(entry.details.pod.as_str()),
            timeout: entry.details.timeout_ms,
            silence: entry.silence.map(|id| (id.epoch.0, id.sequence, u8::from(entry.active))),
        });
        let workers = rows.collect();
        SnapshotDocument {
            envelope: Envelope::new(stamp),
            id: IdFields { epoch: snapshot.id.epoch.0, sequence: snapshot.id.sequence },
            listing: match snapshot.listing {
                Listing::All => ListingName::All,
                Listing::Inactive => ListingName::Inactive,
                Listing::Cut => ListingName::Cut,
            },
            active: snapshot.active,
            inactive: snapshot.inactive,
            skipped: snapshot.skipped,
            plugins: plugins.texts,
            pods: pods.texts,
            workers,
            extra,
        }
    }

    /// Reads an object that may be anything at all.
    pub(crate) fn parse(body: &[u8]) -> Result<ParsedSnapshot, Unreadable> {
        let document: SnapshotDocument = parse(body, BODY_MAX_BYTES, SNAPSHOT_FIELDS)?;
        let stamp = document.envelope.stamp().map_err(Unreadable::corrupt)?;
        let snapshot = document.snapshot().map_err(Unreadable::corrupt)?;
        Ok(ParsedSnapshot { stamp, snapshot, extra: document.extra })
    }

    fn snapshot(&self) -> Result<Snapshot, String> {
        let IdFields { epoch, sequence } = self.id;
        if !(1..=self.envelope.epoch).contains(&epoch) || sequence > u64::MAX / 2 {
            return Err(format!("`id`: epoch {epoch} or sequence {sequence} is out of range"));
        }
        if self.workers.len() > WORKERS_MAX {
            return Err(format!("{} workers, but at most {WORKERS_MAX} are allowed", self.workers.len()));
        }
        let plugins: Vec<PluginName> = ids("plugins", &self.plugins)?;
        let pods: Vec<NodeId> = ids("pods", &self.pods)?;
        let mut workers = Vec::with_capacity(self.workers.len());
        for row in &self.workers {
            let plugin_type = plugins.get(row.plugin).ok_or("`workers`: no such plugin")?.clone();
            let pod = pods.get(row.pod).ok_or("`workers`: no such pod")?.clone();
            if !(1..=TIMEOUT_MAX_MS).contains(&row.timeout) {
                return Err(format!("`workers`: a timeout of {} ms", row.timeout));
            }
            // An id that no later one could exceed would hide every further silence of this worker.
            let is_beyond =
                |(epoch, sequence, _): (u64, u64, u8)| epoch > Epoch::MAX.0 || sequence > u64::MAX / 2;
            if row.silence.is_some_and(is_beyond) {
                return Err("`workers`: the epoch or sequence of a silence is out of range".to_owned());
            }
            workers.push(SnapshotEntry {
                worker: id("workers", &row.id)?,
                details: WorkerDetails { plugin_type, pod, timeout_ms: row.timeout },
                active: row.silence.is_none_or(|(_, _, active)| active != 0),
                silence: row.silence.map(|(epoch, sequence, _)| SnapshotId { epoch: Epoch(epoch), sequence }),
            });
        }
        Ok(Snapshot {
            id: SnapshotId { epoch: Epoch(epoch), sequence },
            workers,
            listing: match self.listing {
                ListingName::All => Listing::All,
                ListingName::Inactive => Listing::Inactive,
                ListingName::Cut => Listing::Cut,
            },
            active: self.active,
            inactive: self.inactive,
            skipped: self.skipped,
        })
    }
}

/// A parsed snapshot.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ParsedSnapshot {
    pub(crate) stamp: Stamp,
    pub(crate) snapshot: Snapshot,
    pub(crate) extra: Map<String, Value>,
}

/// `snapshot.json` for whoever leads or follows.
#[derive(Clone, Copy)]
pub(super) struct SnapshotCodec;

impl Codec for SnapshotCodec {
    type Body = Arc<Snapshot>;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "a snapshot";

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, Arc<Snapshot>, Map<String, Value>), Unreadable> {
        let ParsedSnapshot { stamp, snapshot, extra } = SnapshotDocument::parse(bytes)?;
        Ok((stamp, Arc::new(snapshot), extra))
    }

    fn write(&self, stamp: Stamp, body: &Arc<Snapshot>, kept: &Map<String, Value>) -> Vec<u8> {
        let bytes = to_bytes(&SnapshotDocument::new(stamp, body, kept.clone()));
        match bytes.len() <= BODY_MAX_BYTES {
            true => bytes,
            // The workers matter more than what a later version added.
            false => to_bytes(&SnapshotDocument::new(stamp, body, Map::new())),
        }
    }
}

#[cfg(test)]
mod tests;
