//! The sweeper: while this node leads, it lists the workers and publishes what it finds; otherwise it reads what the leader
//! published, whenever the seat says that there is something new.

use super::board::{Board, Pointers, Sight};
use super::documents::{ParsedSnapshot, SnapshotDocument, WorkerDocument};
use super::lives::Lives;
use crate::forget::forgotten;
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::node::StopReason;
use crate::settings::Settings;
use crate::wire::{DOCUMENT_MAX_BYTES, SnapshotPointer};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::WorkerId;
use tenure_core::{Epoch, Incarnation, Listed, Liveness, LivenessConfig, ReadOutcome, SnapshotId, Time};
use tenure_store::{
    Condition, Entry, LIST_TIMEOUTS_MAX, List, Read, Remove, Store, Trouble, TroubleKind, Version, Write,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Most objects in one sweep: all workers that are kept, and some room for objects that are not workers.
const LIST_MAX: usize = 25_000;

/// How many objects to read at the same time.
const READS_AT_ONCE: usize = 16;

/// Without workers, the leader looks only once in this many intervals.
const IDLE_INTERVALS: u64 = 4;

/// Most requests made to publish one snapshot; after that the next sweep continues.
const PUBLISH_TRIES: u32 = 3;

/// Pause before a dead sweeper is started again; it doubles every time, up to 30 s.
const RESTART_FIRST_MS: u64 = 1000;

/// One node's sweeper.
#[derive(Clone)]
pub(crate) struct Sweeper {
    store: Arc<dyn Store>,
    keys: Keys,
    sweep_ms: u64,
    retention_ms: u64,
    node_retention_ms: u64,
    request_timeout: Duration,
    leadership: watch::Receiver<Leadership>,
    pointers: Pointers,
    board: Board,
    /// An observer reads snapshots, but never publishes.
    follows_only: bool,
    lives: Lives,
}

/// What a leader knows in one epoch.
struct Tenure {
    epoch: u64,
    liveness: Liveness,
    /// Names this life's writes.
    writer: Incarnation,
    writes: u64,
    /// The version of `snapshot.json` as last known; `None` if there is none.
    version: Option<Version>,
    /// The object has to be read first.
    unsettled: bool,
    /// Fields that a later version added.
    extra: Map<String, Value>,
    /// A later version wrote the snapshot, so it is left alone.
    blocked: bool,
    /// The last problem logged: each is logged once.
    said: Option<String>,
}

impl Sweeper {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        keys: Keys,
        settings: &Settings,
        leadership: watch::Receiver<Leadership>,
        pointers: Pointers,
        board: Board,
    ) -> Sweeper {
        Sweeper {
            store,
            keys,
            sweep_ms: settings.worker_sweep_interval_ms,
            retention_ms: settings.worker_retention_ms,
            node_retention_ms: settings.node_retention_ms,
            request_timeout: Duration::from_millis(settings.request_timeout_ms),
            leadership,
            pointers,
            board,
            follows_only: false,
            lives: Lives::default(),
        }
    }

    /// What this node sees of the workers while it leads.
    pub(crate) fn lives(&self) -> Lives {
        self.lives.clone()
    }

    /// This sweeper, without ever publishing.
    pub(crate) fn following(self) -> Sweeper {
        Sweeper { follows_only: true, ..self }
    }

    /// Runs until the node has ended. A panic costs one life of the sweeper and nothing else.
    pub(crate) async fn supervised(self, mut ended: watch::Receiver<Option<StopReason>>) {
        let mut wait_ms = RESTART_FIRST_MS;
        loop {
            let mut life = JoinSet::new();
            life.spawn(self.clone().run());
            tokio::select! {
                biased;
                _ = ended.wait_for(Option::is_some) => return,
                _ = life.join_next() => {}
            }
            tracing::error!(target: "tenure", "the worker registry died; restarting it in {wait_ms} ms");
            tokio::select! {
                biased;
                _ = ended.wait_for(Option::is_some) => return,
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
            }
            wait_ms = (wait_ms * 2).min(30_000);
        }
    }

    async fn run(mut self) {
        let mut sights = self.pointers.sights();
        loop {
            match self.epoch().filter(|_| !self.follows_only) {
                Some(epoch) => self.lead(epoch).await,
                None => self.follow(&mut sights).await,
            }
        }
    }

    /// The epoch this node leads in now, by its own clock.
    fn epoch(&self) -> Option<u64> {
        self.leadership.borrow().guard().map(|guard| guard.epoch())
    }

    fn leads(&self, epoch: u64) -> bool {
        self.epoch() == Some(epoch)
    }

    fn now(&self) -> Time {
        Time(self.board.reporter.clock.now_ms())
    }

    /// Waits this long, or until leadership changes. A closed channel means that the node is about to end.
    async fn pause(&mut self, ms: u64) {
        tokio::select! {
            biased;
            changed = self.leadership.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
        }
    }

    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        let silence = || Read::Unavailable(Trouble::new(TroubleKind::Timeout, "no answer in time"));
        tokio::time::timeout(self.request_timeout, self.store.get(key, unless))
            .await
            .unwrap_or_else(|_| silence())
    }

    // ---- following ----

    /// Until this node leads: reads the snapshot whenever the seat names another one.
    async fn follow(&mut self, sights: &mut watch::Receiver<Sight>) {
        let mut failures = 0u32;
        let mut version = None;
        loop {
            let sight = sights.borrow_and_update().clone();
            let behind = match &sight {
                Sight::Unseen => false,
                Sight::Seen(None) => {
                    self.board.begin_empty();
                    false
                }
                Sight::Seen(Some(pointer)) => self.board.applied() < Some(id_of(pointer)),
            };
            let settled = !behind || self.catch_up(&mut version).await;
            failures = if settled { 0 } else { failures.saturating_add(1) };
            let again_ms = if settled { None } else { Some(1000u64 << failures.min(5)) };
            tokio::select! {
                biased;
                changed = self.leadership.changed() => match changed {
                    Ok(()) if self.epoch().is_some() && !self.follows_only => return,
                    Ok(()) => {}
                    Err(_) => std::future::pending().await,
                },
                Ok(()) = sights.changed() => {}
                () = crate::shell::sleep_or_never(again_ms.map(Duration::from_millis)) => {}
            }
        }
    }

    /// Reads the snapshot. Returns whether that settled the matter.
    async fn catch_up(&self, version: &mut Option<Version>) -> bool {
        match self.get(&self.keys.snapshot(), version.as_ref()).await {
            Read::Found(object) => {
                *version = Some(object.version);
                match SnapshotDocument::parse(&object.body) {
                    Ok(parsed) => self.board.apply(&parsed.snapshot),
                    Err(unreadable) => {
                        tracing::warn!(target: "tenure", detail = unreadable.detail, "snapshot.json cannot be read");
                    }
                }
                true
            }
            Read::Unchanged | Read::Absent => true,
            Read::Unavailable(_) | Read::Denied(_) => false,
        }
    }

    // ---- leading ----

    async fn lead(&mut self, epoch: u64) {
        let mut tenure = Tenure {
            epoch,
            liveness: Liveness::new(LivenessConfig { retention_ms: self.retention_ms }, Epoch(epoch)),
            writer: Incarnation(rand::random()),
            writes: 0,
            version: None,
            unsettled: true,
            extra: Map::new(),
            blocked: false,
            said: None,
        };
        // Work that was stopped may continue in the same epoch.
        if let Some(applied) = self.board.applied() {
            tenure.liveness.above(applied);
        }
        let mut due = self.now();
        // There is no hurry: the presence of a dead node costs one entry in a list.
        let mut forget_at = due + self.node_retention_ms / 2;
        while self.leads(epoch) {
            if self.now() >= forget_at {
                self.forget_nodes().await;
                forget_at = self.now() + self.node_retention_ms / 2;
            }
            // Judging without knowing what was already reported would report it twice.
            if tenure.unsettled || tenure.blocked {
                self.settle(&mut tenure).await;
            }
            if !tenure.unsettled && !tenure.blocked {
                self.sweep(&mut tenure).await;
                self.publish(&mut tenure).await;
                if let Some(all) = tenure.liveness.has_told() {
                    self.board.listed(epoch, all);
                }
            }
            let intervals =
                if tenure.liveness.known() == 0 && !tenure.unsettled { IDLE_INTERVALS } else { 1 };
            due = due + self.sweep_ms * intervals;
            while self.leads(epoch) && self.now() < due {
                self.pause(due.since(self.now())).await;
            }
            due = due.max(self.now());
        }
        self.lives.clear();
    }

    /// Logs a problem, but not twice in a row.
    fn say(&self, tenure: &mut Tenure, sentence: String) {
        if tenure.said.as_ref() != Some(&sentence) {
            tracing::warn!(target: "tenure", namespace = &*self.board.reporter.namespace, "{sentence}");
            tenure.said = Some(sentence);
        }
    }

    /// Finds out what is in `snapshot.json`, and takes it over.
    async fn settle(&self, tenure: &mut Tenure) {
        match self.get(&self.keys.snapshot(), None).await {
            Read::Found(object) => match SnapshotDocument::parse(&object.body) {
                Ok(parsed) => self.take_over(tenure, object.version, parsed),
                Err(unreadable) if unreadable.newer => {
                    tenure.blocked = true;
                    self.say(tenure, format!("snapshot.json is left alone: {}", unreadable.detail));
                }
                // The snapshot is derived from the workers' own objects, and nobody else may write it, so it is made again.
                // Left alone, it would silence the registry for good.
                Err(unreadable) => {
                    self.say(tenure, format!("snapshot.json is replaced: {}", unreadable.detail));
                    self.board.begin_empty();
                    tenure.liveness.found_spoiled();
                    (tenure.version, tenure.unsettled) = (Some(object.version), false);
                }
            },
            Read::Absent | Read::Unchanged => {
                self.board.begin_empty();
                (tenure.version, tenure.unsettled, tenure.blocked) = (None, false, false);
            }
            Read::Unavailable(trouble) | Read::Denied(trouble) => {
                self.say(tenure, format!("snapshot.json cannot be read: {trouble}"));
            }
        }
    }

    fn take_over(&self, tenure: &mut Tenure, version: Version, parsed: ParsedSnapshot) {
        let ParsedSnapshot { snapshot, nonce, extra } = parsed;
        let mine = nonce.starts_with(&tenure.writer.to_string());
        if mine {
            tenure.liveness.published(snapshot.id);
        } else if snapshot.id.epoch.0 > tenure.epoch {
            // A newer leader has published: this one is about to learn that it no longer leads.
            return;
        } else {
            tenure.liveness.inherit(&snapshot);
        }
        self.point(tenure, &version, snapshot.id);
        (tenure.version, tenure.extra) = (Some(version), extra);
        (tenure.unsettled, tenure.blocked) = (false, false);
        self.board.apply(&snapshot);
    }

    /// Makes the seat name this snapshot.
    fn point(&self, tenure: &Tenure, version: &Version, id: SnapshotId) {
        let SnapshotId { epoch, sequence } = id;
        let pointer = SnapshotPointer { version: version.as_str().to_owned(), epoch: epoch.0, sequence };
        self.pointers.want(tenure.epoch, pointer);
    }

    async fn sweep(&self, tenure: &mut Tenure) {
        let sent = self.now();
        let limit = self.request_timeout * LIST_TIMEOUTS_MAX;
        let (mut leadership, folder) = (self.leadership.clone(), self.keys.workers());
        let list = tokio::select! {
            biased;
            _ = leadership.wait_for(|leadership| !leadership.is_leader()) => return,
            list = tokio::time::timeout(limit, self.store.list(&folder, LIST_MAX)) => list,
        };
        self.board.reporter.counters.swept();
        let (entries, more) = match list {
            Ok(List::Entries { entries, more }) => (entries, more),
            Ok(List::Unavailable(trouble) | List::Denied(trouble)) => {
                return self.say(tenure, format!("the workers cannot be listed: {trouble}"));
            }
            Err(_) => return self.say(tenure, "the workers cannot be listed: no answer in time".to_owned()),
        };
        let (listed, junk) = self.sort(&entries);
        let out = tenure.liveness.sweep(sent, self.now(), &listed, junk, more);
        self.lives.swept(&listed);
        self.read_all(tenure, out.read).await;
        for worker in out.remove {
            self.remove(&worker).await;
        }
        let skipped = tenure.liveness.skipped();
        if skipped.cut {
            self.say(tenure, format!("more than {LIST_MAX} objects in workers/: some are not seen"));
        } else if skipped.total() > 0 {
            self.say(tenure, "skipping objects in workers/ that are not workers".to_owned());
        } else {
            tenure.said = None;
        }
    }

    /// The objects that can be workers, and how many cannot.
    fn sort(&self, entries: &[Entry]) -> (Vec<Listed>, u64) {
        let mut listed = Vec::with_capacity(entries.len());
        let mut junk = 0;
        for entry in entries {
            let sized = (1..=DOCUMENT_MAX_BYTES as u64).contains(&entry.bytes);
            match self.keys.worker_of(&entry.key).filter(|_| sized) {
                Some(worker) => {
                    listed.push(Listed { worker, modified_ms: entry.modified.0, bytes: entry.bytes });
                }
                None => junk += 1,
            }
        }
        (listed, junk)
    }

    async fn read_all(&self, tenure: &mut Tenure, workers: Vec<WorkerId>) {
        let mut left = workers.into_iter();
        let mut running = JoinSet::new();
        loop {
            let wanted = READS_AT_ONCE - running.len();
            for worker in left.by_ref().take(wanted).filter(|_| self.leads(tenure.epoch)) {
                let this = self.clone();
                running.spawn(async move {
                    let outcome = this.read_worker(&worker).await;
                    (worker, outcome)
                });
            }
            match running.join_next().await {
                Some(Ok((worker, outcome))) => tenure.liveness.read(self.now(), &worker, outcome),
                // A backend that panics has not answered; the worker is read again once it has written.
                Some(Err(error)) => tracing::error!(target: "tenure", %error, "a store request crashed"),
                None => return,
            }
        }
    }

    async fn read_worker(&self, worker: &WorkerId) -> ReadOutcome {
        match self.get(&self.keys.worker(worker), None).await {
            Read::Found(object) => match WorkerDocument::parse(worker, &object.body) {
                Ok(parsed) => {
                    self.lives.read(worker, parsed.incarnation.to_string(), parsed.document.software());
                    ReadOutcome::Found(parsed.details)
                }
                Err(detail) => {
                    tracing::warn!(target: "tenure", worker = worker.as_str(), detail, "skipping an object that is not a worker");
                    ReadOutcome::Corrupt
                }
            },
            Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => ReadOutcome::Nothing,
        }
    }

    /// Removes the presences of long-dead nodes.
    async fn forget_nodes(&self) {
        let (limit, folder) = (self.request_timeout * LIST_TIMEOUTS_MAX, self.keys.nodes());
        let list = self.store.list(&folder, LIST_MAX);
        let Ok(List::Entries { entries, .. }) = tokio::time::timeout(limit, list).await else { return };
        for node in forgotten(&self.keys, &entries, self.store.now(), self.node_retention_ms) {
            let Some(guard) = self.leadership.borrow().guard() else { return };
            let key = self.keys.node(&node);
            let removal = tokio::time::timeout(self.request_timeout, self.store.remove(&key));
            // The next list shows whether it worked.
            if let Ok(Ok(Remove::Done)) = guard.run(removal).await {
                tracing::info!(target: "tenure", gone = node.as_str(), "removed a dead node from the list");
            }
        }
    }

    /// Removes the object of a long-dead worker. If the worker comes back at this very moment, it creates the object again.
    async fn remove(&self, worker: &WorkerId) {
        let Some(guard) = self.leadership.borrow().guard() else { return };
        let key = self.keys.worker(worker);
        let removal = tokio::time::timeout(self.request_timeout, self.store.remove(&key));
        // The next list shows whether it worked.
        if let Ok(Ok(Remove::Done)) = guard.run(removal).await {
            tracing::info!(target: "tenure", worker = worker.as_str(), "removed a dead worker");
        }
    }

    async fn publish(&self, tenure: &mut Tenure) {
        for _ in 0..PUBLISH_TRIES {
            if tenure.unsettled {
                self.settle(tenure).await;
            }
            if tenure.unsettled || tenure.blocked || !tenure.liveness.is_changed() {
                return;
            }
            tenure.writes += 1;
            let nonce = format!("{}-{}", tenure.writer, tenure.writes);
            let (body, told) = SnapshotDocument::fitting(tenure.liveness.snapshot(), &nonce, &tenure.extra);
            let condition = tenure.version.clone().map_or(Condition::Absent, Condition::Matches);
            let key = self.keys.snapshot();
            // The guard is checked right before the write, and held no longer than the request.
            let guard = self.leadership.borrow().guard().filter(|guard| guard.epoch() == tenure.epoch);
            let Some(guard) = guard else { return };
            let put =
                tokio::time::timeout(self.request_timeout, self.store.put(&key, body.into(), condition));
            match guard.run(put).await {
                Ok(Ok(Write::Won(version))) => {
                    tenure.liveness.published(told.id);
                    self.point(tenure, &version, told.id);
                    tenure.version = Some(version);
                    return self.board.apply(&told);
                }
                // A refusal may be the echo of this leader's own write, and a lost answer is not a lost race: reading the
                // object tells.
                Ok(Ok(Write::Lost | Write::Unknown(_)) | Err(_)) | Err(_) => tenure.unsettled = true,
                Ok(Ok(Write::Unavailable(trouble) | Write::Denied(trouble))) => {
                    return self.say(tenure, format!("snapshot.json cannot be written: {trouble}"));
                }
            }
        }
    }
}

fn id_of(pointer: &SnapshotPointer) -> SnapshotId {
    SnapshotId { epoch: Epoch(pointer.epoch), sequence: pointer.sequence }
}
