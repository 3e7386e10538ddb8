//! Looking at the schedules: one list, and one read for each that changed.

use super::Schedules;
use crate::schedules::problem::{Problem, Problems};
use crate::schedules::schedule::Schedule;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure::id::ScheduleId;
use tenure::store::{Entry, LIST_TIMEOUTS_MAX, List, Read, Version};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The largest object of a schedule.
const SCHEDULE_MAX_BYTES: u64 = 64 * 1024;

/// Most schedules. The ledger keeps the watermarks of three times as many.
const SCHEDULES_MAX: usize = 10_000;

/// Schedules read at once.
const READS_AT_ONCE: usize = 16;

/// How a list shows whether an object has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::schedules) struct Stamp {
    version: Option<Version>,
    modified: u64,
    bytes: u64,
}

/// The schedules in a list. Those without a stamp could not be read, and are read again with the next look.
pub(in crate::schedules) type Listed = BTreeMap<ScheduleId, Option<Stamp>>;

/// The result of one look at the schedules.
#[derive(Default)]
pub(in crate::schedules) struct Look {
    pub(in crate::schedules) listed: Listed,
    /// Those that changed since the last look.
    pub(in crate::schedules) changed: BTreeMap<ScheduleId, Result<Schedule, Problems>>,
}

impl Schedules {
    /// Looks at the schedules; `known` is what the last look listed.
    pub(in crate::schedules) async fn look(&self, known: &Listed) -> Result<Look, String> {
        let folder = format!("{}/schedules/", self.prefix());
        let (entries, more) = self.list_folder(&folder, SCHEDULES_MAX).await?;
        if more {
            return Err(format!(
                "{folder} has more than {SCHEDULES_MAX} objects; changes to schedules are ignored"
            ));
        }
        let (mut look, mut reads) = (Look::default(), JoinSet::new());
        let turns = Arc::new(Semaphore::new(READS_AT_ONCE));
        for entry in entries {
            let name = entry.key.strip_prefix(&folder).and_then(|name| name.strip_suffix(".json"));
            let Some(id) = name.and_then(|name| ScheduleId::new(name).ok()) else { continue };
            let modified = entry.modified.0;
            let stamp = Some(Stamp { version: entry.version.clone(), modified, bytes: entry.bytes });
            if known.get(&id) != Some(&stamp) {
                let (schedules, turns, id) = (self.clone(), Arc::clone(&turns), id.clone());
                reads.spawn(async move {
                    // The semaphore is never closed.
                    let _turn = turns.acquire().await;
                    (schedules.read_listed(&entry, &id).await, id)
                });
            }
            look.listed.insert(id, stamp);
        }
        while let Some(read) = reads.join_next().await {
            match read {
                Ok((Some(read), id)) => drop(look.changed.insert(id, read)),
                Ok((None, _)) => {}
                Err(error) => tracing::error!(target: "tenure", %error, "reading a schedule crashed"),
            }
        }
        for (id, stamp) in &mut look.listed {
            if !look.changed.contains_key(id) && known.get(id) != Some(stamp) {
                *stamp = None;
            }
        }
        Ok(look)
    }

    async fn read_listed(&self, entry: &Entry, id: &ScheduleId) -> Option<Result<Schedule, Problems>> {
        let refuse = |field: &str, value: &str, rule: String| {
            Some(Err(Problems::one(Problem::new(None, field, value, rule))))
        };
        if entry.bytes > SCHEDULE_MAX_BYTES {
            let rule = format!("has {} bytes; at most {SCHEDULE_MAX_BYTES} are allowed", entry.bytes);
            return refuse("", "", rule);
        }
        let Ok(Read::Found(object)) = self.get_object(&entry.key).await else { return None };
        match Schedule::from_wire(&object.body, &self.rules) {
            Ok(schedule) if schedule.id != *id => {
                refuse("schedule.id", schedule.id.as_str(), format!("must be {id}, as in its key"))
            }
            read => Some(read),
        }
    }

    /// Lists a folder: as long as ten requests may take, because thousands of objects are many pages. Also says whether there
    /// are more.
    pub(in crate::schedules) async fn list_folder(
        &self,
        folder: &str,
        most: usize,
    ) -> Result<(Vec<Entry>, bool), String> {
        let limit = self.timeout * LIST_TIMEOUTS_MAX;
        match tokio::time::timeout(limit, self.store.list(folder, most)).await {
            Ok(List::Entries { entries, more }) => Ok((entries, more)),
            Ok(List::Unavailable(trouble) | List::Denied(trouble)) => Err(format!("{folder}: {trouble}")),
            Err(_) => Err(format!("{folder}: no answer in time")),
        }
    }

    /// Reads an object. What the store did not answer, or refuses, is an error.
    pub(in crate::schedules) async fn get_object(&self, key: &str) -> Result<Read, String> {
        match tokio::time::timeout(self.timeout, self.store.get(key, None)).await {
            Ok(Read::Unavailable(trouble) | Read::Denied(trouble)) => Err(format!("{key}: {trouble}")),
            Ok(read) => Ok(read),
            Err(_) => Err(format!("{key}: no answer in time")),
        }
    }
}
