//! Notices of jobs: `jobs/notices.json`, and who delivers them.

use super::Jobs;
use super::codec::{NUMBER_MAX, bounded};
use crate::documents::Codec;
use crate::wire::{Envelope, Unreadable, id, parse, to_bytes, told};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{NOTICE_REASON_MAX_BYTES, NOTICES_MAX, NOTICES_TOLD_MAX, NoticesDoc};
pub use tenure_core::{Notice, NoticeKind};
use tenure_store::BODY_MAX_BYTES;

/// Longest id of a notice: its kind, a schedule and a time.
const ID_MAX_BYTES: usize = 160;

/// Delivers notices of jobs: tells somebody outside that a job failed, expired, was missed or began late.
///
/// The leader calls it, for each notice until it says that the notice was delivered, for an hour at most. A notice that was
/// delivered may come again: its id is the same then.
#[async_trait]
pub trait NoticeSender: Send + Sync + 'static {
    /// Whether it wants to be told of every job that fails or expires, and not only of those that
    /// [ask for it](super::JobSpec::notify).
    fn wants_all(&self) -> bool;

    /// Delivers this one. The error is for the log. It is cut off after 10 s, and when leadership ends.
    async fn send(&self, notice: &Notice) -> Result<(), String>;
}

/// Who delivers the notices of a place, if anybody does.
pub(crate) type Sender = Arc<Mutex<Option<Arc<dyn NoticeSender>>>>;

impl Jobs {
    /// From the next term on, notices of jobs are delivered by this. Without it, notices wait for an
    /// hour, and are then dropped and counted.
    pub fn notify_by(&self, sender: Arc<dyn NoticeSender>) {
        *self.sender.lock() = Some(sender);
    }
}

#[derive(Serialize, Deserialize)]
struct NoticesDocument {
    #[serde(flatten)]
    envelope: Envelope,
    upto: u64,
    waiting: Vec<NoticeDocument>,
    #[serde(default)]
    told: Vec<String>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NoticeDocument {
    id: String,
    event: String,
    series: String,
    job: String,
    queue: String,
    kind: String,
    #[serde(default)]
    due: u64,
    at: i64,
    attempt: u32,
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(default)]
    reason: String,
}

impl NoticeDocument {
    fn of(notice: &Notice) -> NoticeDocument {
        NoticeDocument {
            id: notice.id.to_string(),
            event: notice.kind.as_str().to_owned(),
            series: notice.series.to_string(),
            job: notice.job.to_string(),
            queue: notice.queue.to_string(),
            kind: notice.job_kind.to_string(),
            due: notice.due_ms,
            at: notice.at_ms,
            attempt: notice.attempts.0,
            attempts: notice.attempts.1,
            worker: notice.worker.as_ref().map(ToString::to_string),
            reason: told(&notice.reason),
        }
    }

    fn read(self) -> Result<Notice, String> {
        let kind = NoticeKind::named(&self.event);
        if self.reason.len() > 2 * NOTICE_REASON_MAX_BYTES {
            return Err(format!("`reason` has {} bytes", self.reason.len()));
        }
        Ok(Notice {
            id: notice_id(&self.id)?,
            kind: kind.ok_or_else(|| format!("`event` {:?} is not known", self.event))?,
            series: id("series", &self.series)?,
            job: id("job", &self.job)?,
            queue: id("queue", &self.queue)?,
            job_kind: id("kind", &self.kind)?,
            due_ms: bounded("due", self.due, NUMBER_MAX)?,
            at_ms: bounded("at", self.at, NUMBER_MAX as i64)?,
            attempts: (self.attempt, self.attempts),
            worker: self.worker.map(|worker| id("worker", &worker)).transpose()?,
            reason: Arc::from(told(&self.reason)),
        })
    }
}

fn notice_id(name: &str) -> Result<Arc<str>, String> {
    let plain = !name.is_empty() && name.len() <= ID_MAX_BYTES && !name.contains(char::is_control);
    plain.then(|| Arc::from(name)).ok_or_else(|| format!("{:?} is not the id of a notice", told(name)))
}

/// Notices that are not delivered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoticesCodec;

impl Codec for NoticesCodec {
    type Body = NoticesDoc;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "a list of notices and is left alone";

    fn write(&self, stamp: Stamp, doc: &NoticesDoc, extra: &Map<String, Value>) -> Vec<u8> {
        to_bytes(&NoticesDocument {
            envelope: Envelope::new(stamp),
            upto: doc.upto,
            waiting: doc.waiting.iter().map(NoticeDocument::of).collect(),
            told: doc.told.iter().map(ToString::to_string).collect(),
            extra: extra.clone(),
        })
    }

    fn read(&self, body: &[u8]) -> Result<(Stamp, NoticesDoc, Map<String, Value>), Unreadable> {
        notices(parse(body, BODY_MAX_BYTES, &[])?).map_err(Unreadable::corrupt)
    }
}

fn notices(document: NoticesDocument) -> Result<(Stamp, NoticesDoc, Map<String, Value>), String> {
    let stamp = document.envelope.stamp()?;
    for (field, len, most) in
        [("waiting", document.waiting.len(), NOTICES_MAX), ("told", document.told.len(), NOTICES_TOLD_MAX)]
    {
        if len > most {
            return Err(format!("`{field}` has {len} entries, but at most {most} are allowed"));
        }
    }
    let doc = NoticesDoc {
        upto: bounded("upto", document.upto, NUMBER_MAX)?,
        waiting: document.waiting.into_iter().map(NoticeDocument::read).collect::<Result<_, String>>()?,
        told: document.told.iter().map(|name| notice_id(name)).collect::<Result<_, String>>()?,
    };
    Ok((stamp, doc, document.extra))
}
