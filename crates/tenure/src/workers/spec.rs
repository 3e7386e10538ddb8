//! What a worker says about itself, checked before anything is written.

use super::codec::TIMEOUT_MAX_MS;
use crate::clock::millis;
use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use serde_json::{Map, Value};
use std::str::FromStr;
use std::time::Duration;
use tenure_core::{IdError, NodeId, PluginName, WorkerId};

/// The largest payload, encoded as JSON.
pub(crate) const PAYLOAD_MAX_BYTES: usize = 8 * 1024;

/// A worker to register. `register_worker` checks it; if it breaks a rule, it is refused and nothing is written.
///
/// ```
/// use std::time::Duration;
/// use tenure::worker::WorkerSpec;
/// let spec = WorkerSpec::new("q1-worker-1", "queue").pod("pod-x").timeout(Duration::from_secs(20));
/// ```
#[derive(Clone, PartialEq, Debug)]
#[must_use = "nothing is registered by a specification alone"]
pub struct WorkerSpec {
    worker_id: String,
    plugin_type: String,
    pod: Option<String>,
    timeout_ms: Option<u64>,
    payload: Value,
}

impl WorkerSpec {
    /// A worker with this id for this plugin, on the pod of the node it is registered with, with the timeout from the
    /// settings.
    pub fn new(worker_id: impl Into<String>, plugin_type: impl Into<String>) -> WorkerSpec {
        WorkerSpec {
            worker_id: worker_id.into(),
            plugin_type: plugin_type.into(),
            pod: None,
            timeout_ms: None,
            payload: Value::Object(Map::new()),
        }
    }

    /// Sets where it runs. For people and for other nodes; its own node decides whether the worker is enabled.
    pub fn pod(mut self, pod: impl Into<String>) -> WorkerSpec {
        self.pod = Some(pod.into());
        self
    }

    /// How long it may stay silent: at least two `workerHeartbeatInterval`, at most 24 h.
    pub fn timeout(mut self, timeout: Duration) -> WorkerSpec {
        self.timeout_ms = Some(millis(timeout));
        self
    }

    /// Anything else about it, for whoever reads its object: a JSON object of at most 8 KiB. Snapshots do not carry it, so other
    /// nodes are not told.
    pub fn payload(mut self, payload: Value) -> WorkerSpec {
        self.payload = payload;
        self
    }
}

/// A specification that passed the checks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CheckedSpec {
    pub(crate) worker_id: WorkerId,
    pub(crate) plugin_type: PluginName,
    pub(crate) pod: NodeId,
    pub(crate) timeout_ms: u64,
    pub(crate) payload: Map<String, Value>,
}

fn id<T: FromStr<Err = IdError>>(field: &str, text: &str) -> Result<T, Error> {
    let wrong =
        |error: IdError| invalid(field, &format!("{:?}", error.value), &format!("an id {}", error.rule));
    text.parse().map_err(wrong)
}

/// A field of the specification breaks this rule.
fn invalid(field: &str, value: &str, rule: &str) -> Error {
    Error::new(ErrorKind::Invalid, format_args!("worker: {field} = {value}: {rule}"))
}

impl WorkerSpec {
    /// Checks the rules, under these settings. Registering makes the same checks.
    pub fn validate(&self, settings: &Settings) -> Result<(), Error> {
        self.check(settings).map(drop)
    }

    pub(crate) fn check(&self, settings: &Settings) -> Result<CheckedSpec, Error> {
        let heartbeat_ms = millis(settings.worker_heartbeat_interval);
        let timeout_ms = self.timeout_ms.unwrap_or(millis(settings.worker_timeout));
        let (least_ms, most_ms) = (2 * heartbeat_ms, TIMEOUT_MAX_MS);
        if !(least_ms..=most_ms).contains(&timeout_ms) {
            let rule = format!(
                "must be {least_ms} to {most_ms} ms, at least 2 × `workerHeartbeatInterval` ({heartbeat_ms}): otherwise \
                 the worker looks dead between two heartbeats"
            );
            return Err(invalid("timeout", &timeout_ms.to_string(), &rule));
        }
        Ok(CheckedSpec {
            worker_id: id("workerId", &self.worker_id)?,
            plugin_type: id("pluginType", &self.plugin_type)?,
            pod: id("pod", self.pod.as_deref().unwrap_or(settings.node.as_str()))?,
            timeout_ms,
            payload: self.checked_payload()?,
        })
    }

    fn checked_payload(&self) -> Result<Map<String, Value>, Error> {
        let text = self.payload.to_string();
        let wrong = |value: &str, rule: &str| invalid("payload", value, rule);
        let Value::Object(payload) = &self.payload else {
            let start: String = text.chars().take(64).collect();
            return Err(wrong(&start, "must be a JSON object"));
        };
        if text.len() > PAYLOAD_MAX_BYTES {
            let rule = format!("must be at most {PAYLOAD_MAX_BYTES} bytes as JSON");
            return Err(wrong(&format!("{} bytes", text.len()), &rule));
        }
        Ok(payload.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_a_rule_is_named_with_field_value_and_rule() {
        let settings = Settings::builder().build().expect("valid");
        let good = || WorkerSpec::new("w", "queue").pod("pod-x");
        assert_eq!(good().check(&settings).expect("valid").timeout_ms, 20_000);
        let large = serde_json::json!({"x": "y".repeat(PAYLOAD_MAX_BYTES)});
        for (spec, says) in [
            (WorkerSpec::new("", "queue"), ["workerId", "must not be empty"]),
            (WorkerSpec::new("a/b", "queue"), ["a/b", "letters"]),
            (WorkerSpec::new("w", ".."), ["pluginType", "letter or a digit"]),
            (good().pod("a b"), ["pod = ", "a b"]),
            (good().timeout(Duration::ZERO), ["timeout = 0", "10000"]),
            (good().timeout(Duration::from_millis(9_999)), ["timeout = 9999", "workerHeartbeatInterval"]),
            (good().timeout(Duration::MAX), ["timeout", "86400000"]),
            (good().payload(large), ["payload", "8192"]),
            (good().payload(Value::Null), ["payload = null", "JSON object"]),
        ] {
            let error = spec.check(&settings).expect_err(says[0]).to_string();
            assert!(says.iter().all(|word| error.contains(word)), "{says:?} not in {error:?}");
        }
    }
}
