//! Writes what attempts say to the store, beside their work: nothing here delays a result for long, or costs one.

use super::codec::{Attempt, AttemptCodec};
use super::{OutputWriter, Transcript, Writing};
use crate::documents::{Documents, InlineDocument, Step, new_incarnation};
use crate::job::Jobs;
use crate::keys::Keys;
use crate::metrics::Counters;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tenure_core::document::{BackOff, Rules, Unreadable, What, Writer};
use tenure_core::{Epoch, JobId, WorkerId};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::TaskTracker;

/// How often the output of a running attempt is written, if it said something.
const WRITE_EVERY: Duration = Duration::from_secs(30);

/// How long one output is tried to be written at most, and less on a store that has less time for a request.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// Pauses after requests that failed.
const RETRY: BackOff = BackOff { first_ms: 100, max_ms: 1000 };

/// How long to wait for the last words of what was cut off.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A result is reported at least this long before its attempt has taken too long, whatever becomes of its output.
const RESULT_FIRST: Duration = Duration::from_secs(1);

/// Keeps what the attempts of one worker say.
pub(in crate::job) struct Outputs {
    /// Not those of the inbox: a slow output must not hold up a claim.
    documents: Documents,
    keys: Keys,
    worker: WorkerId,
    counters: Arc<Counters>,
    patience: Duration,
    tasks: TaskTracker,
}

impl Outputs {
    /// What is still to be written is awaited with these tasks.
    pub(in crate::job) fn new(place: &Jobs, worker: &WorkerId, tasks: &TaskTracker) -> Outputs {
        Outputs {
            documents: place.documents(),
            keys: place.keys(),
            worker: worker.clone(),
            counters: Arc::clone(&place.reporter.counters),
            patience: (2 * place.settings.request_timeout).min(PATIENCE_MAX),
            tasks: tasks.clone(),
        }
    }

    /// An attempt begins that may take so long.
    pub(in crate::job) fn begin(
        &self,
        job: &JobId,
        attempt: u32,
        epoch: u64,
        timeout: Duration,
    ) -> Recording {
        let key = self.keys.output(job, attempt);
        let transcript = Arc::new(Mutex::new(Transcript::new()));
        let said = Arc::new(Attempt {
            job: job.clone(),
            attempt,
            worker: self.worker.clone(),
            started_at: now_ms(),
            ended_at: OnceLock::new(),
            transcript: Arc::clone(&transcript),
        });
        let writer = Writer::Owner { epoch: Epoch(epoch), me: new_incarnation() };
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::Replace, retry: RETRY };
        let client = self.documents.at(key, AttemptCodec(Arc::clone(&said)));
        let mut document = InlineDocument::new(client, rules);
        // Usually nothing stands there, so it is not looked for: if something does, the store refuses the write.
        document.document().known_absent();
        let (counters, patience) = (Arc::clone(&self.counters), self.patience);
        let recorder = Recorder { said, document, counters, patience, written: 0, overtaken: false };
        let ((ends, end), (silent, silence)) = (oneshot::channel(), oneshot::channel());
        let written = self.tasks.spawn(recorder.run(end, silence));
        let output = OutputWriter(Some(Arc::new(Writing { transcript, _ends: silent })));
        let latest = Instant::now() + timeout.saturating_sub(RESULT_FIRST);
        Recording { output, ends, written, patience, latest }
    }
}

/// The output of an attempt that runs. If it is dropped, what was said is still written.
pub(in crate::job) struct Recording {
    /// Whoever has it says something.
    output: OutputWriter,
    ends: oneshot::Sender<()>,
    written: JoinHandle<()>,
    patience: Duration,
    /// When a result has to be on its way at the latest.
    latest: Instant,
}

impl Recording {
    pub(in crate::job) fn output(&self) -> OutputWriter {
        self.output.clone()
    }

    /// The attempt has ended by itself: returns once its output is written, or when that takes too long and goes on beside.
    pub(in crate::job) async fn end(self) {
        let Recording { output, ends, written, patience, latest } = self;
        drop(output);
        // One that is gone panicked; its output is lost.
        let _ = ends.send(());
        let _ = tokio::time::timeout_at(latest.min(Instant::now() + patience), written).await;
    }
}

struct Recorder {
    said: Arc<Attempt>,
    document: InlineDocument<AttemptCodec>,
    counters: Arc<Counters>,
    patience: Duration,
    /// How much of what was said stands on the store.
    written: u64,
    /// Another run of this attempt writes it now: a worker thought dead ran it, or a job of this name was forgotten and came again.
    overtaken: bool,
}

impl Recorder {
    async fn run(mut self, end: oneshot::Receiver<()>, silence: oneshot::Receiver<()>) {
        let mut end = std::pin::pin!(end);
        let mut ticks = tokio::time::interval_at(Instant::now() + WRITE_EVERY, WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut end => break ended,
                _ = ticks.tick() => {
                    if self.said.transcript.lock().bytes() > self.written {
                        self.write().await;
                    }
                }
            }
        };
        if ended.is_err() {
            // It was cut off, and what it started may be about to end.
            let _ = tokio::time::timeout(LAST_WORDS, silence).await;
        }
        let _ = self.said.ended_at.set(now_ms());
        let (bytes, left_out) = {
            let mut transcript = self.said.transcript.lock();
            transcript.close();
            (transcript.bytes(), transcript.left_out())
        };
        if bytes > 0 {
            self.write().await;
            self.counters.jobs().output_left_out(left_out);
        }
    }

    async fn write(&mut self) {
        if self.overtaken {
            return;
        }
        let bytes = self.said.transcript.lock().bytes();
        let stands = tokio::time::timeout(self.patience, self.stand()).await.unwrap_or(false);
        if stands {
            self.written = bytes;
        }
        // Why not, the documents have said: once, not for every attempt.
        self.counters.jobs().output_written(stands);
    }

    /// Sends what it takes until what was said by now stands; `false` if that cannot be.
    async fn stand(&mut self) -> bool {
        let revision = self.document.document().touch();
        loop {
            let what = match self.document.step(None, Some(&())).await {
                Step::Settled { what, .. } => what,
                Step::Wait(pause) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                Step::Idle => return self.document.document().is_confirmed(revision),
            };
            match what {
                What::Landed { .. } if self.document.document().is_confirmed(revision) => return true,
                What::Overtaken(_) | What::Superseded(_) => {
                    self.overtaken = true;
                    return false;
                }
                What::Blocked { .. } | What::Failed { denied: true, .. } => return false,
                What::Landed { .. }
                | What::Nothing
                | What::Same
                | What::Empty
                | What::Loaded
                | What::Shared
                | What::Removed
                | What::Failed { denied: false, .. } => {}
            }
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
