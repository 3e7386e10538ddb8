//! What the attempts of jobs say while they run: kept on the store beside the job, for whoever wants to know what happened.
//!
//! Of each attempt the first and the last 128 KiB are kept, in the order in which stdout and stderr came. It is written when the attempt
//! ends, and every 30 s while it runs; nothing is written for an attempt that says nothing.

mod codec;
mod recorder;
mod retention;
mod transcript;

pub(super) use recorder::{Outputs, Recording};
pub(super) use retention::OutputRetention;

use crate::error::{Error, found, listed};
use crate::keys::Keys;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use tenure_core::{JobId, Namespace, WorkerId};
use tenure_store::{Lanes, Read, Version};
use tokio::sync::oneshot;
use transcript::{Transcript, text_floor};

/// Most attempts of a job that are listed.
const ATTEMPTS_MAX: usize = 1000;

/// Where something was said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum OutputStream {
    /// The usual.
    Stdout,
    /// Errors and warnings.
    Stderr,
}

impl OutputStream {
    const ALL: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];
}

/// Takes what an attempt says. Clones write to the same output.
///
/// Writing is quick and never fails. Of more than 256 KiB, the middle is left out.
#[derive(Clone, Default)]
pub struct OutputWriter(Option<Arc<Writing>>);

/// Whoever writes down what was said notices when nobody can say anything more.
struct Writing {
    transcript: Arc<Mutex<Transcript>>,
    _ends: oneshot::Sender<()>,
}

impl OutputWriter {
    /// Keeps nothing.
    pub fn nowhere() -> OutputWriter {
        OutputWriter::default()
    }

    /// Says something. Bytes that are not UTF-8 are shown as U+FFFD; characters may come in pieces.
    pub fn write(&self, stream: OutputStream, bytes: impl AsRef<[u8]>) {
        if let Some(writing) = &self.0 {
            writing.transcript.lock().write(stream, bytes.as_ref());
        }
    }

    /// Says something on [`OutputStream::Stdout`].
    pub fn stdout(&self, bytes: impl AsRef<[u8]>) {
        self.write(OutputStream::Stdout, bytes);
    }

    /// Says something on [`OutputStream::Stderr`].
    pub fn stderr(&self, bytes: impl AsRef<[u8]>) {
        self.write(OutputStream::Stderr, bytes);
    }
}

impl fmt::Debug for OutputWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OutputWriter" } else { "OutputWriter(nowhere)" })
    }
}

/// Something that was said on one stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OutputSegment {
    /// Where.
    pub stream: OutputStream,
    /// What.
    pub text: String,
}

/// The output of one attempt of a job, as it stands on the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JobOutput {
    /// The job.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    #[serde(serialize_with = "as_text")]
    pub job: JobId,
    /// Which attempt of it.
    pub attempt: u32,
    /// The worker that ran it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    #[serde(serialize_with = "as_text")]
    pub worker: WorkerId,
    /// The epoch of the leader that dispatched it.
    pub epoch: u64,
    /// When it began, in ms since 1970, by the worker's clock.
    pub started_at: u64,
    /// When it ended; missing while it runs, and if its worker went away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub ended_at: Option<u64>,
    /// How many bytes it has said, as text.
    pub bytes: u64,
    /// How many bytes of them are left out, between `first` and `last`.
    pub left_out: u64,
    /// The beginning.
    pub first: Vec<OutputSegment>,
    /// The end, if it is not part of the beginning.
    pub last: Vec<OutputSegment>,
    #[serde(skip)]
    version: Version,
}

fn as_text<S: serde::Serializer>(id: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// A piece of an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputPiece<'a> {
    /// This was said.
    Text(OutputStream, &'a str),
    /// So many bytes are left out here.
    LeftOut(u64),
}

impl JobOutput {
    /// Reads the output of an attempt, or of the latest that said something: one read, and one list for the latest. `None` if
    /// nothing was said, or it is not kept any more.
    pub async fn read(
        lanes: &Lanes,
        namespace: &Namespace,
        job: &JobId,
        attempt: Option<u32>,
    ) -> Result<Option<JobOutput>, Error> {
        let attempt = match attempt {
            Some(attempt) => Some(attempt),
            None => JobOutput::attempts(lanes, namespace, job).await?.pop(),
        };
        let Some(attempt) = attempt else { return Ok(None) };
        let key = Keys::global(namespace).output(job, attempt);
        JobOutput::at(&key, lanes.bulk.get(&key, None).await)
    }

    /// The attempts whose output is kept, in order: one list.
    pub async fn attempts(lanes: &Lanes, namespace: &Namespace, job: &JobId) -> Result<Vec<u32>, Error> {
        let keys = Keys::global(namespace);
        let (entries, _) = listed(lanes.bulk.list(&keys.outputs_of(job), ATTEMPTS_MAX).await)?;
        let mut attempts: Vec<u32> =
            entries.iter().filter_map(|entry| keys.output_of(job, &entry.key)).collect();
        attempts.sort_unstable();
        Ok(attempts)
    }

    /// Reads it again; `None` if it is as it was: a conditional read.
    pub async fn newer(&self, lanes: &Lanes, namespace: &Namespace) -> Result<Option<JobOutput>, Error> {
        let key = Keys::global(namespace).output(&self.job, self.attempt);
        JobOutput::at(&key, lanes.bulk.get(&key, Some(&self.version)).await)
    }

    fn at(key: &str, read: Read) -> Result<Option<JobOutput>, Error> {
        let Some(object) = found(read)? else { return Ok(None) };
        let output = codec::read(&object.body, object.version);
        output.map(Some).map_err(|unreadable| Error::unreadable(key, unreadable.detail))
    }

    /// What an object that may be anything is.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn parse(body: &[u8]) -> Result<JobOutput, crate::wire::Unreadable> {
        codec::read(body, Version::new(""))
    }

    /// All of it, in order.
    pub fn pieces(&self) -> Vec<OutputPiece<'_>> {
        self.pieces_after(0)
    }

    /// What comes after the first so many bytes that were said: the rest, for whoever has seen those.
    pub fn pieces_after(&self, seen: u64) -> Vec<OutputPiece<'_>> {
        let mut pieces = Vec::new();
        let mut at = 0_u64;
        for (part, gap) in [(&self.first, self.left_out), (&self.last, 0)] {
            for OutputSegment { stream, text } in part {
                let skip = usize::try_from(seen.saturating_sub(at)).unwrap_or(usize::MAX);
                let rest = &text[text_floor(text, skip)..];
                if !rest.is_empty() {
                    pieces.push(OutputPiece::Text(*stream, rest));
                }
                at = at.saturating_add(text.len() as u64);
            }
            let missing = gap.saturating_sub(seen.saturating_sub(at));
            if missing > 0 {
                pieces.push(OutputPiece::LeftOut(missing));
            }
            at = at.saturating_add(gap);
        }
        pieces
    }
}

#[cfg(test)]
mod tests;
