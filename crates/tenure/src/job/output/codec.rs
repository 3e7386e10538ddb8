//! `jobs/output/<folder>/<job>/<attempt>.json`.

use super::{JobOutput, OutputSegment, OutputStream, Transcript};
use crate::documents::Codec;
use crate::job::codec::{COUNT_MAX, NUMBER_MAX};
use crate::wire::{Envelope, Unreadable, id, parse, to_bytes};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use tenure_core::document::Stamp;
use tenure_core::{JobId, WorkerId};
use tenure_store::{BODY_MAX_BYTES, Version};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputDocument<'a> {
    #[serde(flatten)]
    envelope: Envelope,
    job: Cow<'a, str>,
    attempt: u32,
    worker: Cow<'a, str>,
    started_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<u64>,
    bytes: u64,
    left_out: u64,
    first: Vec<SegmentDocument<'a>>,
    last: Vec<SegmentDocument<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SegmentDocument<'a> {
    stream: OutputStream,
    text: Cow<'a, str>,
}

/// What is written of an attempt that runs, whenever it is written.
pub(super) struct Attempt {
    pub(super) job: JobId,
    pub(super) attempt: u32,
    pub(super) worker: WorkerId,
    pub(super) started_at: u64,
    pub(super) ended_at: OnceLock<u64>,
    pub(super) transcript: Arc<Mutex<Transcript>>,
}

/// A document whose body is what the attempt has said at the moment when it is sent: no copy of it is kept meanwhile.
#[derive(Clone)]
pub(super) struct AttemptCodec(pub(super) Arc<Attempt>);

impl Codec for AttemptCodec {
    type Body = ();
    type Kept = ();
    const WHAT: &'static str = "the output of a job";

    /// Whose it is; what stands there is of no interest to who writes it anew.
    fn read(&self, bytes: &[u8]) -> Result<(Stamp, (), ()), Unreadable> {
        let envelope: Envelope = parse(bytes, BODY_MAX_BYTES, &[])?;
        Ok((envelope.stamp().map_err(Unreadable::corrupt)?, (), ()))
    }

    fn write(&self, stamp: Stamp, (): &(), (): &()) -> Vec<u8> {
        let Attempt { job, attempt, worker, started_at, ended_at, transcript } = &*self.0;
        let mut transcript = transcript.lock();
        let (bytes, left_out) = (transcript.bytes(), transcript.left_out());
        let segment = |(stream, text)| SegmentDocument { stream, text: Cow::Borrowed(text) };
        let [first, last] = transcript.parts().map(|part| part.into_iter().map(segment).collect());
        to_bytes(&OutputDocument {
            envelope: Envelope::new(stamp),
            job: job.as_str().into(),
            attempt: *attempt,
            worker: worker.as_str().into(),
            started_at: *started_at,
            ended_at: ended_at.get().copied(),
            bytes,
            left_out,
            first,
            last,
        })
    }
}

/// Reads an object that may be anything at all.
pub(super) fn read(body: &[u8], version: Version) -> Result<JobOutput, Unreadable> {
    let document: OutputDocument<'static> = parse(body, BODY_MAX_BYTES, &[])?;
    output(document, version).map_err(Unreadable::corrupt)
}

fn output(document: OutputDocument<'static>, version: Version) -> Result<JobOutput, String> {
    let epoch = document.envelope.stamp()?.epoch.0;
    let number = |name, value: u64, most| match value <= most {
        true => Ok(value),
        false => Err(format!("`{name}` is {value}, but at most {most} is allowed")),
    };
    number("attempt", document.attempt.into(), COUNT_MAX.into())?;
    let segment = |segment: SegmentDocument<'_>| OutputSegment {
        stream: segment.stream,
        text: segment.text.into_owned(),
    };
    Ok(JobOutput {
        job: id("job", &document.job)?,
        attempt: document.attempt,
        worker: id("worker", &document.worker)?,
        epoch,
        started_at: number("startedAt", document.started_at, NUMBER_MAX)?,
        ended_at: document.ended_at.map(|at| number("endedAt", at, NUMBER_MAX)).transpose()?,
        bytes: number("bytes", document.bytes, NUMBER_MAX)?,
        left_out: number("leftOut", document.left_out, NUMBER_MAX)?,
        first: document.first.into_iter().map(segment).collect(),
        last: document.last.into_iter().map(segment).collect(),
        version,
    })
}
