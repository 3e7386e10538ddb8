//! One worker's jobs on their way to a client and back.
//!
//! A job that a client took and did not acknowledge in time is handed out again, to the next client that asks for this worker.
//! It is the same attempt, and the first client may have got it after all, so clients identify jobs by id and attempt.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::job::{JobContext, JobOutcome};
use tokio::sync::{Notify, oneshot};
use utoipa::ToSchema;

/// How soon a job that was handed out must be acknowledged.
const ACK_WITHIN_MS: u64 = 10_000;

/// A job for a worker.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobGiven {
    /// Which job. The same for every attempt.
    pub id: String,
    /// Which attempt.
    pub attempt: u32,
    /// The epoch of the leader that dispatched it: to be stamped on, and checked by, whatever it writes.
    pub epoch: u64,
    /// The queue it waited in.
    pub queue: String,
    /// What it is.
    pub kind: String,
    /// What it is about: as JSON if it is, as a string if it is other text, else null.
    pub payload: Value,
    /// The same as bytes.
    pub payload_base64: String,
    /// Acknowledge it within this, or it is given out again.
    pub ack_within_ms: u64,
}

fn payload(bytes: &[u8]) -> Value {
    let text = || std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(Value::from);
    serde_json::from_slice(bytes).ok().or_else(text).unwrap_or_default()
}

enum Stage {
    Waiting,
    Given { at_ms: u64 },
    Acked,
}

struct Offer {
    context: JobContext,
    stage: Stage,
    reply: Option<oneshot::Sender<JobOutcome>>,
}

impl Offer {
    fn is(&self, id: &str, attempt: u32) -> bool {
        self.context.id.as_str() == id && self.context.attempt == attempt
    }
}

#[derive(Default)]
struct Offers {
    list: VecDeque<Offer>,
    closed: bool,
}

pub(crate) struct HttpJobs {
    offers: Mutex<Offers>,
    wake: Notify,
    clock: Arc<dyn Clock>,
}

/// Withdraws the job when its handler ends, for whatever reason.
struct WithdrawOnDrop {
    jobs: Arc<HttpJobs>,
    id: String,
    attempt: u32,
}

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        let mut offers = self.jobs.offers.lock();
        offers.list.retain(|offer| !offer.is(&self.id, self.attempt));
    }
}

impl HttpJobs {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> HttpJobs {
        HttpJobs { offers: Mutex::default(), wake: Notify::new(), clock }
    }

    /// The library's handler: offers the job and waits for a client's report.
    pub(crate) async fn offer(jobs: Arc<HttpJobs>, context: JobContext) -> JobOutcome {
        let (reply, outcome) = oneshot::channel();
        let (id, attempt, cancelled) = (context.id.to_string(), context.attempt, context.cancelled.clone());
        {
            let mut offers = jobs.offers.lock();
            if offers.closed {
                return JobOutcome::failed("its worker has left");
            }
            offers.list.push_back(Offer { context, stage: Stage::Waiting, reply: Some(reply) });
        }
        jobs.wake.notify_waiters();
        let _withdraw = WithdrawOnDrop { jobs, id, attempt };
        tokio::select! {
            said = outcome => said.unwrap_or_else(|_| JobOutcome::failed("its worker has left")),
            () = cancelled.cancelled() => JobOutcome::failed("cancelled"),
        }
    }

    /// The next job; waits at most this long.
    pub(crate) async fn next(&self, patience: Duration) -> Option<JobGiven> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let again_ms = match self.hand_out() {
                Next::Job(job) => return Some(job),
                Next::Closed => return None,
                Next::Nothing { again_ms } => again_ms,
            };
            let again =
                again_ms.map_or(deadline, |ms| tokio::time::Instant::now() + Duration::from_millis(ms));
            tokio::select! {
                () = &mut woken => {}
                () = tokio::time::sleep_until(again.min(deadline)) => {}
            }
            if tokio::time::Instant::now() >= deadline {
                return match self.hand_out() {
                    Next::Job(job) => Some(job),
                    Next::Closed | Next::Nothing { .. } => None,
                };
            }
        }
    }

    fn hand_out(&self) -> Next {
        let now_ms = self.clock.now_ms();
        let mut offers = self.offers.lock();
        if offers.closed {
            return Next::Closed;
        }
        let mut again_ms: Option<u64> = None;
        for offer in &mut offers.list {
            match offer.stage {
                Stage::Acked => continue,
                Stage::Given { at_ms } if now_ms.saturating_sub(at_ms) < ACK_WITHIN_MS => {
                    let left_ms = ACK_WITHIN_MS - now_ms.saturating_sub(at_ms);
                    again_ms = Some(again_ms.map_or(left_ms, |ms| ms.min(left_ms)));
                }
                Stage::Given { .. } | Stage::Waiting => {
                    offer.stage = Stage::Given { at_ms: now_ms };
                    return Next::Job(given(&offer.context));
                }
            }
        }
        Next::Nothing { again_ms }
    }

    /// A client confirms that it has the job. `false`: the job is over, cancelled, or was never handed to this worker.
    pub(crate) fn ack(&self, id: &str, attempt: u32) -> bool {
        let mut offers = self.offers.lock();
        let found = offers.list.iter_mut().find(|offer| offer.is(id, attempt));
        found.map(|offer| offer.stage = Stage::Acked).is_some()
    }

    /// A client says how far it is, or what its job has said. `false`: the job is over, cancelled, or was never handed to this
    /// worker.
    pub(crate) fn progress(&self, id: &str, attempt: u32, far: Option<(u8, &str)>, output: &str) -> bool {
        let offers = self.offers.lock();
        let Some(offer) = offers.list.iter().find(|offer| offer.is(id, attempt)) else { return false };
        offer.context.output().stdout(output);
        if let Some((percent, text)) = far {
            offer.context.progress(percent, text);
        }
        true
    }

    /// A client reports the outcome, and the rest of what its job has said. `false`: the job is over, cancelled, or was never
    /// handed to this worker.
    pub(crate) fn report(&self, id: &str, attempt: u32, outcome: JobOutcome, output: &str) -> bool {
        let mut offers = self.offers.lock();
        let offer = offers.list.iter_mut().find(|offer| offer.is(id, attempt));
        let reply = offer.and_then(|offer| {
            offer.context.output().stdout(output);
            offer.reply.take()
        });
        offers.list.retain(|offer| !offer.is(id, attempt));
        reply.is_some_and(|reply| reply.send(outcome).is_ok())
    }

    /// Hands out nothing more, and gives up what is handed out.
    pub(crate) fn close(&self) {
        let mut offers = self.offers.lock();
        offers.closed = true;
        offers.list.clear();
        drop(offers);
        self.wake.notify_waiters();
    }
}

enum Next {
    Job(JobGiven),
    Nothing { again_ms: Option<u64> },
    Closed,
}

fn given(context: &JobContext) -> JobGiven {
    JobGiven {
        id: context.id.to_string(),
        attempt: context.attempt,
        epoch: context.epoch,
        queue: context.queue.to_string(),
        kind: context.kind.to_string(),
        payload: payload(&context.payload),
        payload_base64: STANDARD.encode(&context.payload),
        ack_within_ms: ACK_WITHIN_MS,
    }
}
