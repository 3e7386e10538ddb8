//! The objects of jobs on the store: ledger, inboxes, orders and the history.

use super::codec::{InboxCodec, LedgerCodec};
use super::history::{HeadCodec, PartCodec, RowsCodec, limits};
use super::notices::NoticesCodec;
use super::orders::OrdersCodec;
use super::output::OutputRetention;
use super::{Jobs, SHARDS};
use crate::clock::millis;
use crate::documents::{DocumentClient, Documents};
use crate::guard::LeaderGuard;
use crate::keys::Keys;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal, Stamp};
use tenure_core::{
    DispatchAnswer, DispatchRequest, Epoch, Expect, HistoryRow, InboxDoc, InboxListed, Incarnation, Kept,
    LedgerDoc, Nonce, Notice, Version, WorkerId, WriteAnswer,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most inboxes in one list.
const LIST_MAX: usize = 25_000;

/// How often to look for old objects while many jobs end, and while few do; how many to look at, and how many to remove at a time.
const REMOVALS_EVERY: Duration = Duration::from_secs(60);
const REMOVALS_EVERY_IDLE: Duration = Duration::from_secs(3600);
const REMOVALS_MAX: usize = 1000;
const REMOVALS_AT_ONCE: usize = 16;

/// How long a notice may take to be delivered.
const NOTICE_TIME: Duration = Duration::from_secs(10);

/// A worker's inbox on the store.
#[derive(Clone)]
pub(super) struct InboxClient {
    place: Jobs,
    client: DocumentClient<InboxCodec>,
}

impl InboxClient {
    pub(super) fn new(place: &Jobs, documents: &Documents, keys: &Keys, worker: &WorkerId) -> InboxClient {
        let client = documents.at(keys.inbox(worker), InboxCodec(worker.clone()));
        InboxClient { place: place.clone(), client }
    }

    pub(super) async fn carry(
        &self,
        guard: Option<&LeaderGuard>,
        request: DocumentRequest<InboxDoc>,
    ) -> DocumentAnswer<InboxDoc> {
        // An inbox with entries that nobody understands stays.
        if matches!(request, DocumentRequest::Remove) && !self.client.kept().foreign.is_empty() {
            return DocumentAnswer::Removed(Removal::Unknown);
        }
        let answer = self.client.carry(guard, request).await;
        if let DocumentAnswer::Read(Read::Found { .. }) = &answer {
            self.place.reporter.counters.jobs().add_rejected(self.client.kept().foreign.len() as u64);
        }
        answer
    }
}

/// What a leader needs of the store. Clones share it.
#[derive(Clone)]
pub(super) struct LeaderStore {
    place: Jobs,
    /// Where the place was when this was created.
    keys: Keys,
    documents: Documents,
    ledger: Arc<[DocumentClient<LedgerCodec>]>,
    inboxes: Arc<Mutex<HashMap<WorkerId, InboxClient>>>,
    orders: DocumentClient<OrdersCodec>,
    history: DocumentClient<HeadCodec>,
    parts: Arc<[DocumentClient<PartCodec>]>,
    notices: DocumentClient<NoticesCodec>,
    /// When old objects were last looked for.
    looked: Arc<Mutex<Option<Instant>>>,
    outputs: Arc<OutputRetention>,
}

impl Jobs {
    pub(super) fn documents(&self) -> Documents {
        let timeout = self.settings.request_timeout;
        Documents::new(Arc::clone(&self.store), Arc::clone(&self.reporter.namespace), timeout)
    }
}

impl LeaderStore {
    pub(super) fn new(place: &Jobs) -> LeaderStore {
        let (documents, keys) = (place.documents(), place.keys());
        let ledger = (0..SHARDS).map(|part| documents.at(keys.ledger(part), LedgerCodec)).collect();
        let orders = documents.at(keys.orders(), OrdersCodec);
        let history = documents.at(keys.history_head(), HeadCodec);
        let notices = documents.at(keys.notices(), NoticesCodec);
        let parts = limits(place.settings.job_retention).parts;
        let parts = (0..parts).map(|part| documents.at(keys.history_part(part), PartCodec)).collect();
        LeaderStore {
            place: place.clone(),
            orders,
            keys,
            documents,
            ledger,
            inboxes: Arc::default(),
            history,
            parts,
            notices,
            looked: Arc::default(),
            outputs: Arc::new(OutputRetention::new()),
        }
    }

    fn inbox(&self, worker: &WorkerId) -> InboxClient {
        let new = || InboxClient::new(&self.place, &self.documents, &self.keys, worker);
        self.inboxes.lock().entry(worker.clone()).or_insert_with(new).clone()
    }

    /// Carries one request of the dispatcher. Each write checks the guard right before, and is cut off when the guard ends.
    pub(super) async fn carry(self, guard: LeaderGuard, request: DispatchRequest) -> DispatchAnswer {
        match request {
            DispatchRequest::Ledger(part, request) => {
                DispatchAnswer::Ledger(part, self.ledger[part].carry(Some(&guard), request).await)
            }
            DispatchRequest::Inbox(worker, request) => {
                let answer = self.inbox(&worker).carry(Some(&guard), request).await;
                if matches!(answer, DocumentAnswer::Removed(Removal::Gone)) {
                    self.inboxes.lock().remove(&worker);
                }
                DispatchAnswer::Inbox(worker, answer)
            }
            DispatchRequest::ListInboxes => DispatchAnswer::Listed(self.list().await),
            DispatchRequest::Orders(request) => {
                DispatchAnswer::Orders(self.orders.carry(Some(&guard), request).await)
            }
            DispatchRequest::HistoryHead(request) => {
                let answer = self.history.carry(Some(&guard), request).await;
                if matches!(answer, DocumentAnswer::Written(WriteAnswer::Won(_))) {
                    // Where few jobs end, no batch is written for days.
                    self.remove_due(&guard, self.history.key(), REMOVALS_EVERY_IDLE).await;
                }
                DispatchAnswer::HistoryHead(answer)
            }
            DispatchRequest::HistoryPart(part, request) => {
                DispatchAnswer::HistoryPart(part, self.parts[part].carry(Some(&guard), request).await)
            }
            DispatchRequest::Keep(name, kept) => DispatchAnswer::Kept(self.keep(&guard, &name, kept).await),
            DispatchRequest::Recall(name) => DispatchAnswer::Recalled(self.recall(&guard, &name).await),
            DispatchRequest::Notices(request) => {
                DispatchAnswer::Notices(self.notices.carry(Some(&guard), request).await)
            }
            DispatchRequest::Deliver(notice) => {
                DispatchAnswer::Delivered(self.deliver(&guard, &notice).await)
            }
        }
    }

    async fn list(&self) -> Option<Vec<InboxListed>> {
        let folder = self.keys.inboxes();
        let (entries, _) = match self.documents.list(&folder, LIST_MAX).await {
            Ok(found) => found,
            Err(trouble) => {
                self.documents.say(&folder, format!("cannot be listed: {trouble}"));
                return None;
            }
        };
        let lines = entries.into_iter().filter_map(|entry| {
            let worker = self.keys.inbox_of(&entry.key)?;
            let version = entry.version.as_ref().map(|version| Version::new(version.as_str()));
            Some(InboxListed { worker, version, stamp: (entry.modified.0, entry.bytes) })
        });
        Some(lines.collect())
    }

    async fn deliver(&self, guard: &LeaderGuard, notice: &Notice) -> bool {
        let sender = self.place.sender.lock().clone();
        let Some(sender) = sender else { return false };
        let sent = guard.run(tokio::time::timeout(NOTICE_TIME, sender.send(notice))).await;
        let why = match sent {
            Ok(Ok(Ok(()))) => return true,
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => "nobody took it in time".to_owned(),
            Err(ended) => ended.to_string(),
        };
        tracing::debug!(target: "tenure", notice = &*notice.id, "not delivered yet: {why}");
        false
    }

    async fn recall(&self, guard: &LeaderGuard, name: &str) -> Option<Vec<Arc<HistoryRow>>> {
        let chunk = self.documents.at(self.keys.kept(name), RowsCodec);
        match chunk.carry(Some(guard), DocumentRequest::Read { unless: None }).await {
            DocumentAnswer::Read(Read::Found { body, .. }) => Some(body),
            DocumentAnswer::Read(_) | DocumentAnswer::Written(_) | DocumentAnswer::Removed(_) => None,
        }
    }

    /// Writes an object of the history, and now and then removes old ones. Their names are in order of time, so the oldest come
    /// first in a list.
    async fn keep(&self, guard: &LeaderGuard, name: &str, kept: Kept) -> bool {
        let owner = Incarnation(rand::random());
        let stamp =
            Stamp { epoch: Epoch(guard.epoch()), owner, nonce: Nonce { incarnation: owner, sequence: 1 } };
        let (key, expect) = (self.keys.kept(name), Expect::Absent);
        let jobs = match kept {
            Kept::Rows(body) => {
                let chunk = self.documents.at(key, RowsCodec);
                let answer = chunk.carry(Some(guard), DocumentRequest::Write { stamp, body, expect }).await;
                return matches!(answer, DocumentAnswer::Written(WriteAnswer::Won(_)));
            }
            Kept::Jobs(jobs) => jobs,
        };
        let request = DocumentRequest::Write { stamp, body: LedgerDoc { series: Vec::new(), jobs }, expect };
        let answer = self.documents.at(key.clone(), LedgerCodec).carry(Some(guard), request).await;
        if !matches!(answer, DocumentAnswer::Written(WriteAnswer::Won(_))) {
            return false;
        }
        self.remove_due(guard, &key, REMOVALS_EVERY).await;
        true
    }

    /// Removes what is too old, if that was not done for so long. `newest` was just written.
    async fn remove_due(&self, guard: &LeaderGuard, newest: &str, every: Duration) {
        let every = (self.place.settings.job_retention / 10).min(every);
        let due = {
            let (mut looked, now) = (self.looked.lock(), Instant::now());
            let due = looked.is_none_or(|at| now - at >= every);
            *looked = if due { Some(now) } else { *looked };
            due
        };
        if due {
            self.remove_old(guard, newest).await;
            self.outputs.remove_old(&self.place, &self.keys, &self.documents, guard, newest).await;
        }
    }

    /// Removes objects that are older than the newest by more than the retention, by the store's own times. A failed removal
    /// is left to the next time.
    async fn remove_old(&self, guard: &LeaderGuard, newest: &str) {
        let Ok(Some(newest)) = self.documents.get(newest).await else { return };
        let now = newest.modified.0;
        let Ok((old, _)) = self.documents.list(&self.keys.done(), REMOVALS_MAX).await else { return };
        let retention_ms = millis(self.place.settings.job_retention);
        let old = old.into_iter().filter(|entry| now.saturating_sub(entry.modified.0) > retention_ms);
        let mut removals = JoinSet::new();
        for entry in old {
            if removals.len() >= REMOVALS_AT_ONCE {
                removals.join_next().await;
            }
            let (batch, guard) = (self.documents.at(entry.key, LedgerCodec), guard.clone());
            removals.spawn(async move { batch.carry(Some(&guard), DocumentRequest::Remove).await });
        }
        while removals.join_next().await.is_some() {}
    }
}
