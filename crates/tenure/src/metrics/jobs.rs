//! Job counters: a fixed space, separate from the election's own.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use tenure_core::{ClaimerCounts, DispatchCounts, HeartbeatLatencies};
use tenure_store::Meter;

/// Job figures as one process has seen them: as leader, as worker, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct JobMetrics {
    /// Jobs waiting for a worker, while this process dispatches.
    pub queued: u64,
    /// Jobs out at workers, while this process dispatches.
    pub in_flight: u64,
    /// Jobs created.
    pub created: u64,
    /// Attempts written into inboxes.
    pub dispatched: u64,
    /// Jobs that reached a final state.
    pub finished: u64,
    /// Attempts judged lost.
    pub lost: u64,
    /// Results of attempts that had been given up: recorded, but not applied.
    pub late: u64,
    /// Submissions and deliveries that were already known, and suppressed.
    pub duplicates: u64,
    /// Attempts claimed by workers of this process.
    pub claimed: u64,
    /// Entries that the fence rejected.
    pub fenced: u64,
    /// Entries and objects that belong to nobody or cannot be understood.
    pub rejected: u64,
    /// Requests to the store for jobs. They are included in the bulk lane's.
    pub requests: u64,
    /// Times that the output of an attempt was written.
    pub outputs: u64,
    /// Times that it could not be written.
    pub output_failures: u64,
    /// Bytes of outputs that were left out, because there was too much.
    pub output_bytes_left_out: u64,
    /// Notices waiting to be delivered, while this process dispatches.
    pub notices_waiting: u64,
    /// Notices delivered.
    pub notices: u64,
    /// Notices dropped, because too many waited or nobody took them for an hour.
    pub notices_dropped: u64,
    /// Median time from submission to claim as the leader saw it, over the newest hundred; 0 for fewer than ten.
    pub claim_latency_p50: u64,
    /// 99th percentile of the same.
    pub claim_latency_p99: u64,
}

#[derive(Debug, Default)]
pub(crate) struct JobFigures {
    pub(crate) meter: Meter,
    queued: AtomicU64,
    in_flight: AtomicU64,
    created: AtomicU64,
    dispatched: AtomicU64,
    finished: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    duplicates: AtomicU64,
    claimed: AtomicU64,
    fenced: AtomicU64,
    rejected: AtomicU64,
    outputs: AtomicU64,
    output_failures: AtomicU64,
    output_bytes_left_out: AtomicU64,
    notices_waiting: AtomicU64,
    notices: AtomicU64,
    notices_dropped: AtomicU64,
    latencies: Mutex<HeartbeatLatencies>,
}

fn add(counter: &AtomicU64, before: u64, now: u64) {
    counter.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
}

impl JobFigures {
    pub(crate) fn set_open(&self, queued: u64, in_flight: u64) {
        self.queued.store(queued, Ordering::Relaxed);
        self.in_flight.store(in_flight, Ordering::Relaxed);
    }

    pub(crate) fn add_rejected(&self, count: u64) {
        add(&self.rejected, 0, count);
    }

    /// Adds what a dispatcher has counted since `before`.
    pub(crate) fn add(&self, before: &DispatchCounts, now: &DispatchCounts) {
        add(&self.created, before.created, now.created);
        add(&self.dispatched, before.dispatched, now.dispatched);
        add(&self.finished, before.finished, now.finished);
        add(&self.lost, before.lost, now.lost);
        add(&self.late, before.late, now.late);
        add(&self.duplicates, before.duplicates, now.duplicates);
        add(&self.rejected, before.rejected, now.rejected);
        add(&self.notices, before.delivered, now.delivered);
        add(&self.notices_dropped, before.undelivered, now.undelivered);
    }

    pub(crate) fn set_notices(&self, waiting: u64) {
        self.notices_waiting.store(waiting, Ordering::Relaxed);
    }

    /// Adds what a claimer has counted since `before`.
    pub(crate) fn add_taken(&self, before: &ClaimerCounts, now: &ClaimerCounts) {
        add(&self.claimed, before.claimed, now.claimed);
        add(&self.fenced, before.fenced, now.fenced);
        add(&self.duplicates, before.duplicates, now.duplicates);
        add(&self.rejected, before.unreadable, now.unreadable);
    }

    pub(crate) fn output_written(&self, stands: bool) {
        add(if stands { &self.outputs } else { &self.output_failures }, 0, 1);
    }

    pub(crate) fn output_left_out(&self, bytes: u64) {
        add(&self.output_bytes_left_out, 0, bytes);
    }

    pub(crate) fn claimed_after(&self, ms: u64) {
        self.latencies.lock().record(ms);
    }

    pub(crate) fn metrics(&self) -> JobMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let latencies = self.latencies.lock();
        JobMetrics {
            queued: get(&self.queued),
            in_flight: get(&self.in_flight),
            created: get(&self.created),
            dispatched: get(&self.dispatched),
            finished: get(&self.finished),
            lost: get(&self.lost),
            late: get(&self.late),
            duplicates: get(&self.duplicates),
            claimed: get(&self.claimed),
            fenced: get(&self.fenced),
            rejected: get(&self.rejected),
            outputs: get(&self.outputs),
            output_failures: get(&self.output_failures),
            output_bytes_left_out: get(&self.output_bytes_left_out),
            notices_waiting: get(&self.notices_waiting),
            notices: get(&self.notices),
            notices_dropped: get(&self.notices_dropped),
            requests: self.meter.snapshot().requests(),
            claim_latency_p50: latencies.percentile(50).unwrap_or(0),
            claim_latency_p99: latencies.percentile(99).unwrap_or(0),
        }
    }
}
