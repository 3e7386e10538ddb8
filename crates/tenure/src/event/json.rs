//! Events by their wire names, and as JSON.

use super::EventKind;
use crate::clock::millis;
use crate::workers::WorkerInfo;
use serde_json::{Value, json};
use tenure_core::{ElectionCause, NodeId, SeatProblem};

impl EventKind {
    pub(crate) fn short_name(&self) -> &'static str {
        match self {
            EventKind::Ineligible => "ineligible",
            EventKind::StartupJitter { .. } => "startup_jitter",
            EventKind::Joined => "joined",
            EventKind::AwaitingTurn { .. } => "awaiting_turn",
            EventKind::ElectionStarted { .. } => "election_started",
            EventKind::ElectionCheck { .. } => "election_check",
            EventKind::LeaderDown { .. } => "leader_down",
            EventKind::LeaderRecovered { .. } => "leader_recovered",
            EventKind::LeaderChanged { .. } => "leader:changed",
            EventKind::LeaderChangeSeen { .. } => "leader_changed",
            EventKind::BecameLeader { .. } => "became_leader",
            EventKind::LeaseRenewed { .. } => "lease_renewed",
            EventKind::LeaseAtRisk { .. } => "lease_at_risk",
            EventKind::LeaseRecovered => "lease_recovered",
            EventKind::LostLeadership { .. } => "lost_leadership",
            EventKind::SeatUnreadable { .. } => "seat_unreadable",
            EventKind::EpochRegressed { .. } => "epoch_regressed",
            EventKind::NodeConflict => "node_conflict",
            EventKind::SettingsDiffer { .. } => "settings_differ",
            EventKind::StoreUnavailable { .. } => "store_unavailable",
            EventKind::StoreDenied { .. } => "store_denied",
            EventKind::StoreRecovered => "store_recovered",
            EventKind::StoreUnsafe { .. } => "store_unsafe",
            EventKind::ProcessesStuck => "processes_stuck",
            EventKind::CandidateRestarted { .. } => "candidate_restarted",
            EventKind::ContentionDetected { .. } => "contention:detected",
            EventKind::WorkerRegistered(_) => "worker:registered",
            EventKind::WorkerDeregistered(_) => "worker:deregistered",
            EventKind::WorkerTimeout(_) => "worker:timeout",
            EventKind::WorkerRecovered(_) => "worker:recovered",
            EventKind::WorkerEnabled(_) => "worker:enabled",
            EventKind::WorkerDisabled(_) => "worker:disabled",
            EventKind::WorkerConflict { .. } => "worker:conflict",
            EventKind::WorkersChanged { .. } => "workers_changed",
            EventKind::PluginFailed { .. } => "plugin_failed",
            EventKind::FallbackStarted { .. } => "fallback_started",
            EventKind::ProcessStarted { .. } => "process_started",
            EventKind::ProcessRestarted { .. } => "process_restarted",
            EventKind::ProcessExited { .. } => "process_exited",
            EventKind::ProcessStuck { .. } => "process_stuck",
            EventKind::ProcessesGaveUp { .. } => "processes_gave_up",
            EventKind::Plugin(event) => event.name,
            EventKind::Stopped => "stopped",
        }
    }

    /// The event's own fields.
    pub(super) fn fields(&self) -> Value {
        let id = |node: &Option<NodeId>| node.as_ref().map(NodeId::as_str).map(str::to_owned);
        match self {
            EventKind::Ineligible
            | EventKind::Joined
            | EventKind::LeaseRecovered
            | EventKind::NodeConflict
            | EventKind::StoreRecovered
            | EventKind::ProcessesStuck
            | EventKind::Stopped => Value::Null,
            EventKind::StartupJitter { wait } | EventKind::AwaitingTurn { wait } => {
                json!({"waitMs": millis(*wait)})
            }
            EventKind::ElectionStarted { cause } => json!({"cause": cause_name(*cause)}),
            EventKind::ElectionCheck { leader, unchanged } => {
                json!({"leader": id(leader), "unchangedMs": millis(*unchanged)})
            }
            EventKind::LeaderDown { leader, unchanged } => {
                json!({"leader": leader.as_str(), "unchangedMs": millis(*unchanged)})
            }
            EventKind::LeaderRecovered { leader } => json!({"leader": leader.as_str()}),
            EventKind::LeaderChanged { previous, new } => {
                json!({"previousLeader": id(previous), "newLeader": new.as_str()})
            }
            EventKind::LeaderChangeSeen { previous, new } => {
                json!({"previous_leader": id(previous), "new_leader": new.as_str()})
            }
            EventKind::BecameLeader { deadline_boot_ms } | EventKind::LeaseAtRisk { deadline_boot_ms } => {
                json!({"deadlineBootMs": deadline_boot_ms})
            }
            EventKind::LeaseRenewed { deadline_boot_ms, latency } => {
                json!({"deadlineBootMs": deadline_boot_ms, "latencyMs": millis(*latency)})
            }
            EventKind::LostLeadership { reason, vacated, acted_until_boot_ms } => {
                json!({"reason": reason.as_str(), "vacated": vacated, "actedUntilBootMs": acted_until_boot_ms})
            }
            EventKind::SeatUnreadable { problem, detail } => {
                let problem = match problem {
                    SeatProblem::Corrupt => "corrupt",
                    SeatProblem::Newer => "newer version",
                    SeatProblem::LastEpoch => "last epoch",
                };
                json!({"problem": problem, "detail": detail})
            }
            EventKind::SettingsDiffer { leader, differences } => {
                json!({"leader": leader.as_str(), "differences": differences})
            }
            EventKind::EpochRegressed { found } => json!({"found": found}),
            EventKind::StoreUnavailable { detail }
            | EventKind::StoreDenied { detail }
            | EventKind::StoreUnsafe { detail } => json!({"detail": detail}),
            EventKind::CandidateRestarted { attempt, wait } => {
                json!({"attempt": attempt, "waitMs": millis(*wait)})
            }
            EventKind::WorkerRegistered(worker)
            | EventKind::WorkerDeregistered(worker)
            | EventKind::WorkerTimeout(worker)
            | EventKind::WorkerRecovered(worker)
            | EventKind::WorkerEnabled(worker)
            | EventKind::WorkerDisabled(worker) => worker_json(worker),
            EventKind::WorkerConflict { worker, other_pod, other_incarnation } => {
                let mut fields = worker_json(worker);
                fields["otherPod"] = other_pod.as_str().into();
                fields["otherIncarnation"] = other_incarnation.as_str().into();
                fields
            }
            EventKind::WorkersChanged { active, inactive } => {
                json!({"active": active, "inactive": inactive})
            }
            EventKind::PluginFailed { plugin, handler, detail } => {
                json!({"plugin": &**plugin, "handler": handler, "detail": detail})
            }
            EventKind::FallbackStarted { plugin, detail } => json!({"plugin": &**plugin, "detail": detail}),
            EventKind::ProcessStarted { process } | EventKind::ProcessStuck { process } => {
                json!({"process": &**process})
            }
            EventKind::ProcessRestarted { process, attempt } => {
                json!({"process": &**process, "attempt": attempt})
            }
            EventKind::ProcessExited { process, outcome, ran, restart_in, detail } => json!({
                "process": &**process,
                "outcome": outcome.as_str(),
                "ranMs": millis(*ran),
                "restartInMs": restart_in.map(millis),
                "detail": detail.as_deref(),
            }),
            EventKind::Plugin(event) => event.fields.clone(),
            EventKind::ProcessesGaveUp { process, cause, hold } => {
                json!({"process": process.as_deref(), "cause": cause, "holdMs": millis(*hold)})
            }
            EventKind::ContentionDetected { duration, expected, stalled } => {
                let (duration, expected) = (millis(*duration), millis(*expected));
                let ratio = duration as f64 / expected.max(1) as f64;
                json!({"duration": duration, "expected": expected, "ratio": ratio, "stalledMs": millis(*stalled)})
            }
        }
    }
}

pub(crate) fn cause_name(cause: ElectionCause) -> &'static str {
    match cause {
        ElectionCause::First => "first election",
        ElectionCause::Vacant => "seat vacant",
        ElectionCause::LeaderDown => "leader down",
    }
}

fn worker_json(worker: &WorkerInfo) -> Value {
    json!({
        "workerId": worker.worker_id.as_str(),
        "pluginType": worker.plugin_type.as_str(),
        "pod": worker.pod.as_str(),
        "timeout": millis(worker.timeout),
    })
}
