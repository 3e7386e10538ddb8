//! The fields of a job that its submission decides, in the ledger as in an order.

use super::blob::Blob;
use super::codec::{NUMBER_MAX, bounded, bytes};
use crate::wire::id;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tenure_core::{
    JOB_PAYLOAD_MAX_BYTES, JOB_PRIORITY, JOB_PRIORITY_MAX, JobLimits, JobRecord, Labels, QueueName,
};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubmittedDocument {
    pub(super) id: String,
    series: String,
    #[serde(default)]
    watermark: u64,
    kind: String,
    #[serde(default)]
    payload: Blob,
    timeout: u64,
    ttl: u64,
    #[serde(default)]
    deadline: u64,
    attempts: u32,
    #[serde(default)]
    backoff: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "LabelsDocument::is_empty")]
    needs: LabelsDocument,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    commands: Vec<Vec<String>>,
    /// None: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default = "priority", skip_serializing_if = "is_usual")]
    priority: u8,
    #[serde(default)]
    submitted_at: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    not_before: i64,
    #[serde(default, skip_serializing_if = "is_false")]
    notify: bool,
}

/// What a job needs, or a worker has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct LabelsDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    capabilities: Vec<String>,
}

impl LabelsDocument {
    pub(super) fn is_empty(&self) -> bool {
        *self == LabelsDocument::default()
    }

    pub(super) fn of(needs: &Labels) -> LabelsDocument {
        LabelsDocument {
            partition: needs.partition.as_ref().map(ToString::to_string),
            domain: needs.domain.as_ref().map(ToString::to_string),
            capabilities: needs.capabilities.iter().map(ToString::to_string).collect(),
        }
    }

    pub(super) fn read(&self, field: &str) -> Result<Labels, String> {
        let label = |text: &String| id(field, text);
        Ok(Labels {
            partition: self.partition.as_ref().map(label).transpose()?,
            domain: self.domain.as_ref().map(label).transpose()?,
            capabilities: self.capabilities.iter().map(label).collect::<Result<_, _>>()?,
        })
    }
}

fn priority() -> u8 {
    JOB_PRIORITY
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_usual(priority: &u8) -> bool {
    *priority == JOB_PRIORITY
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(time: &i64) -> bool {
    *time == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl SubmittedDocument {
    pub(super) fn of(job: &JobRecord) -> SubmittedDocument {
        SubmittedDocument {
            id: job.id.to_string(),
            series: job.series.to_string(),
            watermark: job.watermark,
            kind: job.kind.to_string(),
            payload: Blob(Arc::clone(&job.payload)),
            timeout: job.limits.timeout_ms,
            ttl: job.limits.ttl_ms,
            deadline: job.limits.deadline_ms,
            attempts: job.limits.attempts_max,
            backoff: job.limits.backoff_ms,
            target: job.target.as_ref().map(ToString::to_string),
            needs: LabelsDocument::of(&job.needs),
            commands: job.commands.to_vec(),
            queue: (job.queue != QueueName::default()).then(|| job.queue.to_string()),
            priority: job.priority,
            submitted_at: job.submitted_ms,
            not_before: job.not_before_ms,
            notify: job.notify,
        }
    }

    /// A job that nothing has happened to.
    pub(super) fn read(self) -> Result<JobRecord, String> {
        let limits = JobLimits {
            timeout_ms: bounded("timeout", self.timeout, NUMBER_MAX)?,
            ttl_ms: bounded("ttl", self.ttl, NUMBER_MAX)?,
            deadline_ms: bounded("deadline", self.deadline, NUMBER_MAX)?,
            attempts_max: self.attempts,
            backoff_ms: bounded("backoff", self.backoff, NUMBER_MAX)?,
        };
        let (name, kind) = (id("id", &self.id)?, id("kind", &self.kind)?);
        let time_max = NUMBER_MAX as i64;
        Ok(JobRecord {
            watermark: self.watermark,
            payload: bytes("payload", self.payload, JOB_PAYLOAD_MAX_BYTES)?,
            target: self.target.map(|target| id("target", &target)).transpose()?,
            needs: self.needs.read("needs")?,
            commands: Arc::from(self.commands),
            queue: self.queue.map(|queue| id("queue", &queue)).transpose()?.unwrap_or_default(),
            priority: bounded("priority", self.priority, JOB_PRIORITY_MAX)?,
            submitted_ms: bounded("submittedAt", self.submitted_at, time_max)?,
            not_before_ms: bounded("notBefore", self.not_before, time_max)?,
            notify: self.notify,
            ..JobRecord::new(name, id("series", &self.series)?, kind, limits)
        })
    }
}
