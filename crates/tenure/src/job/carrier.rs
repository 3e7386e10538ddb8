//! The link to the store: turns the machines' requests into store calls, and documents into what the machines understand.

use super::Jobs;
use super::documents::{Carried, read_inbox, read_ledger, write_done, write_inbox, write_ledger};
use crate::guard::LeaderGuard;
use crate::keys::Keys;
use crate::workers::WorkerDocument;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::WorkerId;
use tenure_core::{
    DispatchInput, DispatchRequest, Epoch, Expect, InboxDoc, InboxListed, InboxRead, Incarnation, JobRecord,
    LedgerRead, Nonce, RequestId, WriteAnswer,
};
use tenure_store::{Condition, LIST_TIMEOUTS_MAX, List, Read, Remove, Trouble, Version};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most inboxes in one list.
const LIST_MAX: usize = 25_000;

/// How often to look for old batches of finished jobs, how many to look at, and how many to remove at a time.
const REMOVALS_EVERY: Duration = Duration::from_secs(60);
const REMOVALS_MAX: usize = 1000;
const REMOVALS_AT_ONCE: usize = 16;

pub(super) enum Found {
    Doc(InboxDoc, tenure_core::Version),
    Unchanged,
    Absent,
    Unreadable,
    Unavailable,
}

/// Access to the objects of jobs. Clones share what is carried along.
#[derive(Clone)]
pub(super) struct Carrier {
    pub(super) place: Jobs,
    /// Where the place was when this was created.
    keys: Keys,
    timeout: Duration,
    inboxes: Arc<Mutex<HashMap<WorkerId, Carried>>>,
    ledgers: Arc<Mutex<HashMap<usize, Carried>>>,
    /// Number of batches archived, and when old ones were last looked for.
    batches: Arc<AtomicU64>,
    looked: Arc<Mutex<Option<Instant>>>,
    /// The last complaint logged.
    said: Arc<Mutex<String>>,
    /// Taking over a ledger takes a request per shard: no more at once than the store can use.
    gate: Arc<Semaphore>,
}

fn condition(expect: Expect) -> Condition {
    match expect {
        Expect::Absent => Condition::Absent,
        Expect::Version(version) => Condition::Matches(Version::new(version.as_str())),
    }
}

fn core_version(version: &Version) -> tenure_core::Version {
    tenure_core::Version::new(version.as_str())
}

impl Carrier {
    pub(super) fn new(place: &Jobs) -> Carrier {
        let timeout = Duration::from_millis(place.settings.request_timeout_ms);
        Carrier {
            place: place.clone(),
            keys: place.keys(),
            timeout,
            inboxes: Arc::default(),
            ledgers: Arc::default(),
            batches: Arc::default(),
            looked: Arc::default(),
            said: Arc::default(),
            gate: Arc::new(Semaphore::new(place.store.at_once().max(1))),
        }
    }

    /// Logs a problem, but not twice in a row.
    fn say(&self, sentence: String) {
        let mut said = self.said.lock();
        if *said != sentence {
            tracing::warn!(target: "tenure", namespace = &*self.place.reporter.namespace, "{sentence}");
            *said = sentence;
        }
    }

    fn trouble(&self, key: &str, trouble: &Trouble) {
        self.say(format!("{key}: {trouble}"));
    }

    async fn get(&self, key: &str, unless: Option<&tenure_core::Version>) -> Option<Read> {
        let unless = unless.map(|version| Version::new(version.as_str()));
        let read =
            tokio::time::timeout(self.timeout, self.place.store.get(key, unless.as_ref())).await.ok()?;
        match read {
            Read::Unavailable(trouble) | Read::Denied(trouble) => {
                self.trouble(key, &trouble);
                None
            }
            Read::Found(_) | Read::Unchanged | Read::Absent => Some(read),
        }
    }

    pub(super) async fn put(&self, key: &str, body: Vec<u8>, condition: Condition) -> WriteAnswer {
        let put = self.place.store.put(key, body.into(), condition);
        let Ok(answer) = tokio::time::timeout(self.timeout, put).await else { return WriteAnswer::Unknown };
        let (answer, trouble) = crate::election::written(answer);
        if let Some(trouble) = trouble.filter(|_| answer == WriteAnswer::Denied) {
            self.trouble(key, &trouble);
        }
        answer
    }

    pub(super) async fn read_inbox(&self, worker: &WorkerId, unless: Option<&tenure_core::Version>) -> Found {
        let key = self.keys.inbox(worker);
        match self.get(&key, unless).await {
            Some(Read::Found(object)) => match read_inbox(worker, &object.body) {
                Ok((doc, carried)) => {
                    if !carried.foreign.is_empty() {
                        let count = carried.foreign.len();
                        self.say(format!("{key} has {count} entries that cannot be read; they are ignored"));
                        self.place.reporter.counters.jobs().add_rejected(count as u64);
                    }
                    self.inboxes.lock().insert(worker.clone(), carried);
                    Found::Doc(doc, core_version(&object.version))
                }
                Err(detail) => {
                    self.say(format!("{key} is not an inbox and is left alone: {detail}"));
                    Found::Unreadable
                }
            },
            Some(Read::Unchanged) => Found::Unchanged,
            Some(Read::Absent) => Found::Absent,
            Some(Read::Unavailable(_) | Read::Denied(_)) | None => Found::Unavailable,
        }
    }

    /// Whether the worker's id still belongs to this life, according to a fresh answer.
    pub(super) async fn confirms(&self, worker: &WorkerId, life: Incarnation) -> bool {
        match self.get(&self.keys.worker(worker), None).await {
            Some(Read::Found(object)) => WorkerDocument::parse(worker, &object.body)
                .is_ok_and(|registered| registered.incarnation == life),
            Some(Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_)) | None => false,
        }
    }

    pub(super) async fn write_inbox(&self, worker: &WorkerId, doc: &InboxDoc, expect: Expect) -> WriteAnswer {
        let carried = match expect {
            Expect::Absent => Carried::default(),
            Expect::Version(_) => self.inboxes.lock().get(worker).cloned().unwrap_or_default(),
        };
        let body = write_inbox(worker, doc, &carried);
        self.put(&self.keys.inbox(worker), body, condition(expect)).await
    }

    // ---- for the leader ----

    /// Carries one request of the dispatcher. Each write checks the guard right before, and is cut off when the guard ends.
    pub(super) async fn carry(
        &self,
        guard: &LeaderGuard,
        epoch: Epoch,
        id: RequestId,
        request: DispatchRequest,
    ) -> DispatchInput {
        // The semaphore is never closed. A request's time limit starts with its turn.
        let _turn = self.gate.acquire().await;
        let silence = request.unanswered(id);
        match request {
            DispatchRequest::ReadLedger(shard) => DispatchInput::Ledger(id, shard, self.ledger(shard).await),
            DispatchRequest::WriteLedger(shard, doc, expect) => {
                let carried = self.ledgers.lock().get(&shard).cloned().unwrap_or_default();
                let (key, body) = (self.keys.ledger(shard), write_ledger(&doc, &carried));
                match guard.run(self.put(&key, body, condition(expect))).await {
                    Ok(answer) => DispatchInput::LedgerWritten(id, shard, answer),
                    Err(_) => silence,
                }
            }
            DispatchRequest::ListInboxes => DispatchInput::Listed(id, self.list().await),
            DispatchRequest::ReadInbox(worker, unless) => {
                let read = match self.read_inbox(&worker, unless.as_ref()).await {
                    Found::Doc(doc, version) => InboxRead::Found(doc, version),
                    Found::Unchanged => InboxRead::Unchanged,
                    Found::Absent => InboxRead::Absent,
                    Found::Unreadable => InboxRead::Unreadable,
                    Found::Unavailable => InboxRead::Unavailable,
                };
                DispatchInput::Inbox(id, worker, read)
            }
            DispatchRequest::WriteInbox(worker, doc, expect) => {
                match guard.run(self.write_inbox(&worker, &doc, expect)).await {
                    Ok(answer) => DispatchInput::InboxWritten(id, worker, answer),
                    Err(_) => silence,
                }
            }
            DispatchRequest::RemoveInbox(worker) => {
                let done = guard.run(self.remove_inbox(&worker)).await;
                DispatchInput::InboxRemoved(id, worker, done == Ok(true))
            }
            DispatchRequest::Archive(shard, records) => {
                let done = guard.run(self.archive(epoch, &records)).await;
                DispatchInput::Archived(id, shard, done == Ok(true))
            }
        }
    }

    async fn ledger(&self, shard: usize) -> LedgerRead {
        let key = self.keys.ledger(shard);
        match self.get(&key, None).await {
            Some(Read::Found(object)) => match read_ledger(&object.body) {
                Ok((doc, carried)) => {
                    self.ledgers.lock().insert(shard, carried);
                    LedgerRead::Found(doc, core_version(&object.version))
                }
                Err(detail) => {
                    self.say(format!("{key} is not a ledger and is left alone: {detail}"));
                    LedgerRead::Unreadable
                }
            },
            Some(Read::Absent) => LedgerRead::Absent,
            Some(Read::Unchanged | Read::Unavailable(_) | Read::Denied(_)) | None => LedgerRead::Unavailable,
        }
    }

    async fn list(&self) -> Option<Vec<InboxListed>> {
        let folder = self.keys.inboxes();
        let limit = self.timeout * LIST_TIMEOUTS_MAX;
        let list = tokio::time::timeout(limit, self.place.store.list(&folder, LIST_MAX)).await.ok()?;
        let entries = match list {
            List::Entries { entries, .. } => entries,
            List::Unavailable(trouble) | List::Denied(trouble) => {
                self.trouble(&folder, &trouble);
                return None;
            }
        };
        let lines = entries.into_iter().filter_map(|entry| {
            let worker = self.keys.inbox_of(&entry.key)?;
            let version = entry.version.as_ref().map(core_version);
            Some(InboxListed { worker, version, stamp: (entry.modified.0, entry.bytes) })
        });
        Some(lines.collect())
    }

    /// Removes an inbox that this leader has emptied. An inbox with entries that nobody understands stays.
    async fn remove_inbox(&self, worker: &WorkerId) -> bool {
        if self.inboxes.lock().get(worker).is_some_and(|carried| !carried.foreign.is_empty()) {
            return false;
        }
        let key = self.keys.inbox(worker);
        match tokio::time::timeout(self.timeout, self.place.store.remove(&key)).await {
            Ok(Remove::Done) => {
                self.inboxes.lock().remove(worker);
                true
            }
            Ok(Remove::Unknown(_) | Remove::Unavailable(_)) | Err(_) => false,
            Ok(Remove::Denied(trouble)) => {
                self.trouble(&key, &trouble);
                false
            }
        }
    }

    /// Archives finished jobs, and now and then removes old batches.
    async fn archive(&self, epoch: Epoch, records: &[JobRecord]) -> bool {
        let life = tenure_core::Incarnation(rand::random());
        let (folder, body) =
            (self.keys.done(), write_done(epoch, Nonce { incarnation: life, sequence: 1 }, records));
        let batch = self.batches.fetch_add(1, Ordering::Relaxed);
        // In time order, so that the oldest come first in a list.
        let key = format!("{folder}{:010}-{batch:010}-{life}.json", epoch.0);
        if !matches!(self.put(&key, body, Condition::Absent).await, WriteAnswer::Won(_)) {
            return false;
        }
        let every = Duration::from_millis(self.place.settings.job_retention_ms / 10).min(REMOVALS_EVERY);
        let due = {
            let (mut looked, now) = (self.looked.lock(), Instant::now());
            let due = looked.is_none_or(|at| now - at >= every);
            *looked = if due { Some(now) } else { *looked };
            due
        };
        if due {
            self.remove_old(&folder, &key).await;
        }
        true
    }

    /// Removes batches that are older than the newest by more than the retention, by the store's own times. A failed removal
    /// is left to the next time.
    async fn remove_old(&self, folder: &str, newest: &str) {
        let list = |prefix: String, most| async move {
            let limit = self.timeout * LIST_TIMEOUTS_MAX;
            match tokio::time::timeout(limit, self.place.store.list(&prefix, most)).await {
                Ok(List::Entries { entries, .. }) => entries,
                Ok(List::Unavailable(_) | List::Denied(_)) | Err(_) => Vec::new(),
            }
        };
        let Some(now) = list(newest.to_owned(), 1).await.first().map(|entry| entry.modified.0) else {
            return;
        };
        let retention_ms = self.place.settings.job_retention_ms;
        let old = list(folder.to_owned(), REMOVALS_MAX).await;
        let old = old.into_iter().filter(|entry| now.saturating_sub(entry.modified.0) > retention_ms);
        let mut removals = JoinSet::new();
        for entry in old {
            if removals.len() >= REMOVALS_AT_ONCE {
                removals.join_next().await;
            }
            let (store, timeout) = (Arc::clone(&self.place.store), self.timeout);
            removals.spawn(async move {
                let _ = tokio::time::timeout(timeout, store.remove(&entry.key)).await;
            });
        }
        while removals.join_next().await.is_some() {}
    }
}
