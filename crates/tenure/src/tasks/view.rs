//! The tasks of a namespace, seen from outside. Writes nothing.

use super::SHARDS;
use super::documents::{read_inbox, read_ledger};
use crate::keys::Keys;
use crate::status::StatusError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::{EntryState, TaskRecord, TaskState, task_shard};
use tenure_core::{JobId, Namespace, SeriesId, WorkerId};
use tenure_store::{Lanes, List, Object, Read, Store};

/// Most batches of finished tasks to search for one task, newest first.
const DONE_READ_MAX: usize = 256;

/// Most batches to list for that.
const DONE_LIST_MAX: usize = 10_000;

/// The tasks in the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TaskList {
    /// Open and recently finished tasks, in id order.
    pub tasks: Vec<TaskRecord>,
    /// Parts of the ledger that cannot be read: key and reason. Their tasks are missing.
    pub unreadable: Vec<(String, String)>,
}

impl TaskList {
    /// Reads all tasks: one read per part of the ledger.
    ///
    /// Not promised: that this shows a single moment; the parts are read one after the other. `acked` and `running` appear
    /// in inboxes first; see [`ask_workers`](TaskList::ask_workers). What the last leader wrote stays, whether anybody leads
    /// or not.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<TaskList, StatusError> {
        TaskList::parts(lanes, namespace, 0..SHARDS).await
    }

    /// Reads the part of the ledger that contains this series, with all of its tasks: one read.
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

    /// Looks into the inboxes of workers that have tasks, at most this many, with one read each, and shows what a worker has
    /// claimed or begun. A task that it has finished and the leader has not recorded yet still counts as running.
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
            // An inbox that cannot be read is the leader's business; it says nothing here.
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

    /// Finds one task: in the ledger and its worker's inbox, or in the archive, as far as that is kept (`taskRetention`) and
    /// in its newest 256 batches.
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
                // The task may be in the unreadable part.
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
