//! The tasks of a namespace, looked at from outside. Nothing is written.

use super::SHARDS;
use super::documents::{read_inbox, read_ledger};
use crate::keys::Keys;
use crate::status::StatusError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::{EntryState, TaskRecord, TaskState, task_shard};
use tenure_core::{JobId, Namespace, SeriesId, WorkerId};
use tenure_store::{Lanes, List, Object, Read, Store};

/// Batches of finished tasks that are looked through for one, the newest first.
const DONE_READ_MAX: usize = 256;

/// The same, listed.
const DONE_LIST_MAX: usize = 10_000;

/// The tasks as the ledger has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TaskList {
    /// Open tasks and those that ended lately, in order of their ids.
    pub tasks: Vec<TaskRecord>,
    /// Parts of the ledger that cannot be read: where, and why. Their tasks are missing.
    pub unreadable: Vec<(String, String)>,
}

impl TaskList {
    /// All of them: one read for each part of the ledger.
    ///
    /// Not promised: that it is one moment; the parts are read one after the other. `acked` and `running` stand in inboxes
    /// first, see [`ask_workers`](TaskList::ask_workers). What the last leader wrote stays, whether anybody leads or not.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<TaskList, StatusError> {
        TaskList::parts(lanes, namespace, 0..SHARDS).await
    }

    /// Those that are in the same part of the ledger as this series, and so all of it: one read.
    pub async fn read_near(
        lanes: &Lanes,
        namespace: &Namespace,
        series: &SeriesId,
    ) -> Result<TaskList, StatusError> {
        let shard = task_shard(series, SHARDS);
        TaskList::parts(lanes, namespace, shard..=shard).await
    }

    async fn parts(
        lanes: &Lanes,
        namespace: &Namespace,
        shards: impl Iterator<Item = usize>,
    ) -> Result<TaskList, StatusError> {
        let keys = Keys::global(namespace);
        let mut list = TaskList::default();
        for shard in shards {
            let key = keys.ledger(shard);
            let Some(object) = found(&lanes.bulk, &key).await? else { continue };
            match read_ledger(&object.body) {
                Ok((doc, _)) => list.tasks.extend(doc.tasks),
                Err(detail) => list.unreadable.push((key, detail)),
            }
        }
        list.tasks.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(list)
    }

    /// Looks into the inboxes of workers that have tasks, at most so many, one read each: what a worker has claimed or begun
    /// is shown so. What it has ended and the leader has not recorded yet is still running.
    pub async fn ask_workers(
        &mut self,
        lanes: &Lanes,
        namespace: &Namespace,
        most: usize,
    ) -> Result<(), StatusError> {
        let keys = Keys::global(namespace);
        let out = self.tasks.iter().filter(|task| task.state.is_out());
        let workers: BTreeSet<WorkerId> = out.filter_map(|task| task.worker.clone()).collect();
        let mut said = BTreeMap::new();
        for worker in workers.into_iter().take(most) {
            let Some(object) = found(&lanes.bulk, &keys.inbox(&worker)).await? else { continue };
            // One that cannot be read is the leader's business; nothing is known from it.
            let Ok((doc, _)) = read_inbox(&worker, &object.body) else { continue };
            for entry in doc.entries {
                let state = match entry.state {
                    EntryState::Dispatched => TaskState::Dispatched,
                    EntryState::Acked { .. } => TaskState::Acked,
                    EntryState::Running { .. } | EntryState::Finished { .. } => TaskState::Running,
                };
                said.insert((entry.id, entry.attempt, worker.clone()), state);
            }
        }
        for task in self.tasks.iter_mut().filter(|task| task.state.is_out()) {
            let Some(worker) = task.worker.clone() else { continue };
            if let Some(state) = said.get(&(task.id.clone(), task.attempt, worker)) {
                task.state = task.state.max(*state);
            }
        }
        Ok(())
    }

    /// One task: from the ledger and its worker's inbox, or from what was put away, as far as that is kept
    /// (`taskRetention`) and among the newest 256 batches of it.
    pub async fn find(
        lanes: &Lanes,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<TaskRecord>, StatusError> {
        let mut list = TaskList::read(lanes, namespace).await?;
        list.tasks.retain(|task| task.id == *id);
        if list.tasks.is_empty() {
            let found = put_away(lanes, &Keys::global(namespace), id).await?;
            return match list.unreadable.pop() {
                // It may stand there.
                Some((key, detail)) if found.is_none() => Err(StatusError::Unreadable { key, detail }),
                Some(_) | None => Ok(found),
            };
        }
        list.ask_workers(lanes, namespace, 1).await?;
        Ok(list.tasks.pop())
    }
}

async fn found(store: &Arc<dyn Store>, key: &str) -> Result<Option<Object>, StatusError> {
    match store.get(key, None).await {
        Read::Found(object) => Ok(Some(object)),
        Read::Absent | Read::Unchanged => Ok(None),
        Read::Unavailable(trouble) => Err(StatusError::Unavailable(trouble)),
        Read::Denied(trouble) => Err(StatusError::Denied(trouble)),
    }
}

async fn put_away(lanes: &Lanes, keys: &Keys, id: &JobId) -> Result<Option<TaskRecord>, StatusError> {
    let mut batches = match lanes.bulk.list(&keys.done(), DONE_LIST_MAX).await {
        List::Entries { entries, .. } => entries,
        List::Unavailable(trouble) => return Err(StatusError::Unavailable(trouble)),
        List::Denied(trouble) => return Err(StatusError::Denied(trouble)),
    };
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.modified.0));
    for batch in batches.iter().take(DONE_READ_MAX) {
        let Some(object) = found(&lanes.bulk, &batch.key).await? else { continue };
        let Ok((doc, _)) = read_ledger(&object.body) else { continue };
        if let Some(task) = doc.tasks.into_iter().find(|task| task.id == *id) {
            return Ok(Some(task));
        }
    }
    Ok(None)
}
