//! The link to a worker's own object: turns requests of its registration into store calls.

use super::super::documents::WorkerDocument;
use super::super::spec::CheckedSpec;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{
    Expect, Incarnation, RegistrationAnswer, RegistrationRequest, RemoveAnswer, WorkerFound, WorkerRead,
    WriteAnswer,
};
use tenure_store::{Condition, Read, Remove, Store, Trouble, Write};

/// Access to a worker's own object. Clones share what is kept.
#[derive(Clone)]
pub(super) struct Carrier {
    pub(super) store: Arc<dyn Store>,
    pub(super) key: String,
    pub(super) spec: CheckedSpec,
    pub(super) incarnation: Incarnation,
    pub(super) heartbeat_ms: u64,
    pub(super) started_at: Arc<str>,
    pub(super) request_timeout: Duration,
    pub(super) kept: Arc<Mutex<Kept>>,
}

/// What the machine does not carry.
#[derive(Default)]
pub(super) struct Kept {
    /// Fields that a later version added.
    extra: Map<String, Value>,
    /// The last trouble, in words.
    pub(super) trouble: String,
}

impl Carrier {
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    pub(super) async fn carry(&self, request: RegistrationRequest) -> RegistrationAnswer {
        let silence = request.unanswered();
        match tokio::time::timeout(self.request_timeout, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.kept().trouble = format!("no answer within {} ms", self.request_timeout.as_millis());
                silence
            }
        }
    }

    async fn send(&self, request: RegistrationRequest) -> RegistrationAnswer {
        match request {
            RegistrationRequest::Read { unless } => {
                let unless = unless.map(|version| tenure_store::Version::new(version.as_str()));
                RegistrationAnswer::Read(self.found(self.store.get(&self.key, unless.as_ref()).await))
            }
            RegistrationRequest::Write { sequence, expect } => {
                let (condition, extra) = match expect {
                    Expect::Absent => (Condition::Absent, Map::new()),
                    Expect::Version(version) => {
                        let version = tenure_store::Version::new(version.as_str());
                        (Condition::Matches(version), self.kept().extra.clone())
                    }
                };
                let (heartbeat_ms, incarnation) = (self.heartbeat_ms, self.incarnation);
                let document = WorkerDocument::new(
                    &self.spec,
                    heartbeat_ms,
                    incarnation,
                    &self.started_at,
                    sequence,
                    extra,
                );
                let answer = self.store.put(&self.key, document.to_bytes().into(), condition).await;
                RegistrationAnswer::Written(self.written(answer))
            }
            RegistrationRequest::Remove => {
                RegistrationAnswer::Removed(match self.store.remove(&self.key).await {
                    Remove::Done => RemoveAnswer::Done,
                    Remove::Unknown(_) | Remove::Unavailable(_) | Remove::Denied(_) => RemoveAnswer::Failed,
                })
            }
        }
    }

    fn found(&self, read: Read) -> WorkerRead {
        match read {
            Read::Found(object) => match WorkerDocument::parse(&self.spec.worker_id, &object.body) {
                Ok(parsed) => {
                    self.kept().extra = parsed.document.extra;
                    WorkerRead::Found(WorkerFound {
                        version: tenure_core::Version::new(object.version.as_str()),
                        incarnation: parsed.incarnation,
                        sequence: parsed.sequence,
                        pod: parsed.details.pod,
                        heartbeat_ms: parsed.document.heartbeat_interval,
                    })
                }
                Err(detail) => {
                    self.kept().trouble = detail;
                    WorkerRead::Unreadable
                }
            },
            Read::Unchanged => WorkerRead::Unchanged,
            Read::Absent => WorkerRead::Absent,
            Read::Unavailable(trouble) => {
                self.note(&trouble);
                WorkerRead::Unavailable
            }
            Read::Denied(trouble) => {
                self.note(&trouble);
                WorkerRead::Denied
            }
        }
    }

    fn written(&self, answer: Write) -> WriteAnswer {
        let (answer, trouble) = crate::election::written(answer);
        if let Some(trouble) = trouble {
            self.note(&trouble);
        }
        answer
    }

    fn note(&self, trouble: &Trouble) {
        self.kept().trouble = trouble.to_string();
    }
}
