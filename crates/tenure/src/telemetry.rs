//! Events as log lines: one sentence for people, and the same facts as fields for machines.

use crate::clock::millis;
use crate::event::{Event, EventKind, LostReason, cause_name};
use tenure_core::{LossReason, SeatProblem};

/// Logged when a plugin is refused the global seat. The exact words of the documents.
const FALLBACK_WARNING: &str = "[coordinator] Failed to acquire global lock. Switching to per-plugin mode";

/// Logs an event through `tracing`. The wire name is a field, so that a subscriber can pick telemetry out of the log.
pub(crate) fn log(event: &Event) {
    let name = event.name();
    // No field at all if there are no plugins: a field that is always empty is noise.
    let plugins = (!event.plugins.is_empty()).then(|| event.plugins.join(","));
    macro_rules! say {
        ($level:ident, $($sentence:tt)+) => {
            tracing::$level!(
                target: "tenure",
                event = name,
                namespace = &*event.namespace,
                node = event.node.as_str(),
                epoch = event.epoch,
                plugins = plugins.as_deref(),
                $($sentence)+
            )
        };
    }
    match &event.kind {
        EventKind::Ineligible => say!(info, "not eligible: takes no part in the election"),
        EventKind::StartupJitter { wait } => {
            let wait_ms = millis(*wait);
            say!(info, "waiting {wait_ms} ms before the first request (startup jitter)")
        }
        EventKind::Joined => say!(info, "joined the namespace"),
        EventKind::AwaitingTurn { wait } => {
            say!(info, "no leader; may claim the seat in {} ms", millis(*wait))
        }
        EventKind::ElectionStarted { cause } => say!(info, "trying for the seat ({})", cause_name(*cause)),
        EventKind::ElectionCheck { leader, unchanged } => {
            let unchanged_ms = millis(*unchanged);
            let leader = leader.as_ref().map_or("nobody", |node| node.as_str());
            say!(debug, leader, unchanged_ms, "read the seat")
        }
        EventKind::LeaderDown { leader, unchanged } => {
            let unchanged_ms = millis(*unchanged);
            say!(
                warn,
                leader = leader.as_str(),
                unchangedMs = unchanged_ms,
                "leader {leader} has been silent for {unchanged_ms} ms"
            )
        }
        EventKind::LeaderRecovered { leader } => {
            say!(info, leader = leader.as_str(), "leader {leader} is back; no takeover")
        }
        EventKind::LeaderChanged { previous, new } => {
            let (before, now) = (previous.as_ref().map(|node| node.as_str()), new.as_str());
            let words = before.map_or_else(String::new, |before| format!(" (before: {before})"));
            say!(info, previousLeader = before, newLeader = now, "the leader is {new}{words}")
        }
        EventKind::LeaderChangeSeen { previous, new } => {
            let before = previous.as_ref().map(|node| node.as_str());
            say!(debug, previous_leader = before, new_leader = new.as_str(), "leader change seen")
        }
        EventKind::BecameLeader { .. } => say!(info, "LEADING in epoch {}", event.epoch),
        EventKind::LeaseRenewed { latency, .. } => {
            say!(debug, latency_ms = millis(*latency), "lease renewed")
        }
        EventKind::LeaseAtRisk { .. } => {
            say!(warn, "no renewal for 80 % of the hold: stopping work")
        }
        EventKind::LeaseRecovered => say!(info, "lease renewed after all: work continues"),
        EventKind::LostLeadership { reason, vacated, .. } => {
            let asked = matches!(reason, LostReason::Protocol(LossReason::Shutdown | LossReason::StepDown));
            let seat = if *vacated { "; the seat is vacant" } else { "" };
            let reason = reason.as_str();
            if asked {
                say!(info, reason, "no longer leading ({reason}){seat}")
            } else {
                say!(warn, reason, "NO LONGER LEADING: {reason}{seat}")
            }
        }
        EventKind::SeatUnreadable { problem: SeatProblem::LastEpoch, detail } => {
            say!(
                error,
                "the seat can no longer be claimed, so nobody can lead: {detail}. Move to another namespace, or stop every \
                 node and remove the seat; then reset everything that remembers epochs"
            )
        }
        EventKind::SeatUnreadable { detail, .. } => {
            say!(
                error,
                "the seat object cannot be read and is left alone; nobody can lead until it is repaired: {detail}"
            )
        }
        EventKind::EpochRegressed { found } => say!(
            warn,
            found,
            "the seat has epoch {found}, lower than {} seen before: the store was restored or the seat overwritten",
            event.epoch
        ),
        EventKind::SettingsDiffer { leader, differences } => say!(
            warn,
            leader = leader.as_str(),
            "settings differ from the leader's, which apply to the election until this node leads: {}",
            differences.join(", ")
        ),
        EventKind::NodeConflict => {
            say!(warn, "another process writes this node's presence: is the node id used twice?")
        }
        EventKind::StoreUnavailable { detail } => say!(warn, "the store does not answer: {detail}"),
        EventKind::StoreDenied { detail } => say!(error, "the store refuses: {detail}"),
        EventKind::StoreRecovered => say!(info, "the store answers again"),
        EventKind::StoreUnsafe { detail } => {
            say!(
                error,
                "the store does not honour conditional writes, so leadership on it is not safe: {detail}"
            )
        }
        EventKind::ProcessesStuck => {
            say!(error, "work did not stop in time; the seat is not vacated and its lease must run out")
        }
        EventKind::CandidateRestarted { attempt, wait } => {
            say!(error, attempt, "the candidate died; restarting it in {} ms", millis(*wait))
        }
        EventKind::ContentionDetected { duration, expected, stalled } => {
            let (duration_ms, expected_ms, stalled_ms) =
                (millis(*duration), millis(*expected), millis(*stalled));
            let ratio = duration_ms as f64 / expected_ms.max(1) as f64;
            say!(
                warn,
                duration = duration_ms,
                expected = expected_ms,
                ratio,
                stalledMs = stalled_ms,
                "a heartbeat took {duration_ms} ms; one is due every {expected_ms} ms; the node itself stood still for \
                 {stalled_ms} ms"
            )
        }
        EventKind::WorkerRegistered(worker) => {
            say!(
                info,
                worker = worker.worker_id.as_str(),
                "worker {} registered on {}",
                worker.worker_id,
                worker.pod
            )
        }
        EventKind::WorkerDeregistered(worker) => {
            say!(info, worker = worker.worker_id.as_str(), "worker {} is gone", worker.worker_id)
        }
        EventKind::WorkerTimeout(worker) => say!(
            warn,
            worker = worker.worker_id.as_str(),
            "worker {} on {} has been silent for {} ms",
            worker.worker_id,
            worker.pod,
            millis(worker.timeout)
        ),
        EventKind::WorkerRecovered(worker) => {
            say!(info, worker = worker.worker_id.as_str(), "worker {} is back", worker.worker_id)
        }
        EventKind::WorkerEnabled(worker) => {
            say!(info, worker = worker.worker_id.as_str(), "worker {} may work", worker.worker_id)
        }
        EventKind::WorkerDisabled(worker) => {
            say!(info, worker = worker.worker_id.as_str(), "worker {} must not work", worker.worker_id)
        }
        EventKind::WorkerConflict { worker, other_pod, other_incarnation } => say!(
            error,
            worker = worker.worker_id.as_str(),
            "worker id {} is held by another live process, on {other_pod} (incarnation {other_incarnation}); this \
             one stops",
            worker.worker_id
        ),
        EventKind::WorkersChanged { active, inactive } => {
            say!(info, active, inactive, "workers: {active} active, {inactive} inactive")
        }
        EventKind::PluginFailed { plugin, handler, detail } => {
            say!(error, plugin = &**plugin, handler, "plugin {plugin} failed in {handler}: {detail}")
        }
        EventKind::FallbackStarted { plugin, detail } => {
            // The exact words of the documents; the rest is in the fields.
            say!(warn, plugin = &**plugin, detail, "{FALLBACK_WARNING}")
        }
        EventKind::ProcessStarted { process } => {
            say!(info, process = &**process, "process {process} started")
        }
        EventKind::ProcessRestarted { process, attempt } => {
            say!(info, process = &**process, attempt, "process {process} restarted (start {attempt})")
        }
        EventKind::ProcessExited { process, outcome, ran, restart_in, detail } => {
            let (ran_ms, restart_in_ms) = (millis(*ran), restart_in.map(millis));
            let next = restart_in_ms.map_or(String::new(), |ms| format!("; restarting it in {ms} ms"));
            let detail = detail.as_ref().map_or(String::new(), |detail| format!(": {detail}"));
            let (process, outcome) = (&**process, outcome.as_str());
            if detail.is_empty() {
                say!(info, process, outcome, ran_ms, "process {process} ended ({outcome}){next}")
            } else {
                say!(warn, process, outcome, ran_ms, "process {process} {outcome}{detail}{next}")
            }
        }
        EventKind::ProcessStuck { process } => say!(
            error,
            process = &**process,
            "process {process} did not stop: it has lost its guard, and this node does not lead until it has ended"
        ),
        EventKind::ProcessesGaveUp { process, cause, hold } => {
            let hold_ms = millis(*hold);
            let process = process.as_deref();
            let whose = process.map_or(String::new(), |process| format!(" of process {process}"));
            say!(error, process, cause, "giving up leadership for {hold_ms} ms because{whose}: {cause}")
        }
        EventKind::Plugin(news) if news.alarming => say!(warn, fields = %news.fields, "{}", news.sentence),
        EventKind::Plugin(news) => say!(info, fields = %news.fields, "{}", news.sentence),
        EventKind::Stopped => say!(info, "left the namespace"),
    }
}
