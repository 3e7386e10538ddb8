//! The runner's objects on the store: schedules, what agents say about themselves, and the state of checks.

use super::assign::AgentFacts;
use super::problem::Problems;
use super::read::Rules;
use super::schedule::{Schedule, VERSION};
use crate::checks::health::Health;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::LeaderGuard;
use tenure::document::Keys;
use tenure::fence::EPOCH_MAX;
use tenure::id::{ScheduleId, WorkerId};
use tenure::store::{Condition, Entry, LIST_TIMEOUTS_MAX, List, Read, Store, Trouble, Version, Write};
use tokio::task::{JoinError, JoinSet};

/// The largest object of a schedule.
const SCHEDULE_MAX_BYTES: u64 = 64 * 1024;

/// Most schedules. The ledger keeps the watermarks of three times as many.
const SCHEDULES_MAX: usize = 10_000;

/// Schedules read at once.
const READS_AT_ONCE: usize = 16;

/// The location of the runner's objects. Clones share the store.
#[derive(Clone)]
pub(super) struct Shelf {
    pub(super) store: Arc<dyn Store>,
    pub(super) keys: Keys,
    pub(super) timeout: Duration,
    pub(super) rules: Rules,
}

/// How a list shows whether an object has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    version: Option<Version>,
    modified: u64,
    bytes: u64,
}

impl Stamp {
    fn of(entry: &Entry) -> Stamp {
        Stamp { version: entry.version.clone(), modified: entry.modified.0, bytes: entry.bytes }
    }
}

/// The result of one look at the schedules.
#[derive(Default)]
pub(super) struct Found {
    /// Every schedule, with its stamp.
    pub(super) present: BTreeMap<ScheduleId, Stamp>,
    /// Those that changed since the last look.
    pub(super) changed: BTreeMap<ScheduleId, Result<Schedule, Problems>>,
    /// Those that could not be read this time; the next look tries again.
    pub(super) unread: Vec<ScheduleId>,
}

/// The result of reading a schedule.
type ScheduleRead = (Option<Result<Schedule, Problems>>, ScheduleId);

impl Found {
    fn take(&mut self, read: Option<Result<ScheduleRead, JoinError>>) {
        match read {
            Some(Ok((Some(read), id))) => {
                self.changed.insert(id, read);
            }
            Some(Ok((None, id))) => self.unread.push(id),
            Some(Err(error)) => tracing::error!(target: "tenure", %error, "reading a schedule crashed"),
            None => {}
        }
    }
}

/// The key of a schedule.
pub(super) fn schedule_key(keys: &Keys, id: &ScheduleId) -> String {
    format!("{}/schedules/{id}.json", keys.root())
}

impl Shelf {
    pub(super) async fn get(&self, key: &str) -> Result<Read, String> {
        match tokio::time::timeout(self.timeout, self.store.get(key, None)).await {
            Ok(Read::Unavailable(trouble) | Read::Denied(trouble)) => Err(told(key, &trouble)),
            Ok(read) => Ok(read),
            Err(_) => Err(format!("{key}: no answer in time")),
        }
    }

    /// One list, and one read for each changed schedule.
    pub(super) async fn look(&self, known: &BTreeMap<ScheduleId, Stamp>) -> Result<Found, String> {
        let folder = format!("{}/schedules/", self.keys.root());
        let limit = self.timeout * LIST_TIMEOUTS_MAX;
        let entries = match tokio::time::timeout(limit, self.store.list(&folder, SCHEDULES_MAX)).await {
            Ok(List::Entries { more: true, .. }) => {
                return Err(format!(
                    "{folder} has more than {SCHEDULES_MAX} objects; changes to schedules are ignored"
                ));
            }
            Ok(List::Entries { entries, .. }) => entries,
            Ok(List::Unavailable(trouble) | List::Denied(trouble)) => return Err(told(&folder, &trouble)),
            Err(_) => return Err(format!("{folder}: no answer in time")),
        };
        let (mut found, mut reads) = (Found::default(), JoinSet::new());
        for entry in &entries {
            let name = entry.key.strip_prefix(&folder).and_then(|name| name.strip_suffix(".json"));
            let Some(id) = name.and_then(|name| ScheduleId::new(name).ok()) else { continue };
            let stamp = Stamp::of(entry);
            if known.get(&id) != Some(&stamp) {
                if reads.len() >= READS_AT_ONCE {
                    found.take(reads.join_next().await);
                }
                let (shelf, entry, id) = (self.clone(), entry.clone(), id.clone());
                reads.spawn(async move { (shelf.read_schedule(&entry, &id).await, id) });
            }
            found.present.insert(id, stamp);
        }
        while let Some(read) = reads.join_next().await {
            found.take(Some(read));
        }
        // A schedule whose read panicked is read again, too.
        let read = |id: &ScheduleId| found.changed.contains_key(id) || found.unread.contains(id);
        let lost = found.present.iter().filter(|(id, stamp)| known.get(*id) != Some(*stamp) && !read(id));
        let lost: Vec<ScheduleId> = lost.map(|(id, _)| id.clone()).collect();
        found.unread.extend(lost);
        Ok(found)
    }

    async fn read_schedule(&self, entry: &Entry, id: &ScheduleId) -> Option<Result<Schedule, Problems>> {
        let refuse = |field: &str, value: String, rule: String| {
            Some(Err(Problems::one(super::Problem::new(None, field, value, rule))))
        };
        if entry.bytes > SCHEDULE_MAX_BYTES {
            let rule = format!("has {} bytes; at most {SCHEDULE_MAX_BYTES} are allowed", entry.bytes);
            return refuse("", String::new(), rule);
        }
        let Ok(Read::Found(object)) = self.get(&entry.key).await else { return None };
        match Schedule::from_wire(&object.body, &self.rules) {
            Ok(schedule) if schedule.id != *id => {
                refuse("schedule.id", schedule.id.to_string(), format!("must be {id}, as in its key"))
            }
            read => Some(read),
        }
    }

    /// What a worker says about itself as an agent; `Err` if it could not be read.
    pub(super) async fn agent(&self, worker: &WorkerId) -> Result<Option<AgentFacts>, String> {
        match self.get(&self.keys.worker(worker)).await? {
            Read::Found(object) => {
                let value: Option<Value> = serde_json::from_slice(&object.body).ok();
                Ok(value.and_then(|value| AgentFacts::from_payload(value.get("payload")?)))
            }
            Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => Ok(None),
        }
    }
}

fn told(key: &str, trouble: &Trouble) -> String {
    format!("{key}: {trouble}")
}

/// The result of a save.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Saved {
    /// It is stored.
    Done,
    /// Not yet; try again.
    Later(String),
    /// A newer leader has the object.
    Superseded,
}

/// The object `results/polls.json`: the state of checks. One leader writes it, replacing its own last version. A new leader
/// writes it once before it acts on it, which makes every write of a former leader that is still in flight fail.
pub(super) struct StateFile {
    key: String,
    epoch: u64,
    /// The start number of the process within this epoch; with the epoch and the count of writes, it identifies each write.
    attempt: u32,
    writes: u64,
    version: Option<Version>,
    /// Unknown fields, kept as they are.
    extra: Map<String, Value>,
    /// Set if the stored object is not ours to replace.
    pub(super) foreign: Option<String>,
}

impl StateFile {
    pub(super) fn new(keys: &Keys, epoch: u64, attempt: u32) -> StateFile {
        let key = format!("{}/results/polls.json", keys.root());
        StateFile { key, epoch, attempt, writes: 0, version: None, extra: Map::new(), foreign: None }
    }

    /// Reads what the former leader left, and takes over the object.
    pub(super) async fn take_over(&mut self, shelf: &Shelf, guard: &LeaderGuard) -> Result<Health, Saved> {
        let health = match shelf.get(&self.key).await.map_err(Saved::Later)? {
            Read::Found(object) => {
                let value: Value = serde_json::from_slice(&object.body).unwrap_or(Value::Null);
                let field = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
                let read = value.get("health").and_then(Health::from_json);
                let is_ours = field("v") == VERSION && field("epoch") <= EPOCH_MAX;
                let Some(health) = read.filter(|_| is_ours) else {
                    self.foreign = Some(format!("{} cannot be read and is left alone", self.key));
                    return Ok(Health::default());
                };
                if field("epoch") > self.epoch {
                    return Err(Saved::Superseded);
                }
                self.version = Some(object.version);
                self.extra = value.as_object().cloned().unwrap_or_default();
                self.extra.retain(|key, _| !["v", "epoch", "nonce", "health"].contains(&key.as_str()));
                health
            }
            Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => Health::default(),
        };
        match self.save(shelf, guard, &health).await {
            Saved::Done => Ok(health),
            not_yet @ (Saved::Later(_) | Saved::Superseded) => Err(not_yet),
        }
    }

    /// Writes the state. If the answer is lost, reads it back and compares the write's identity.
    pub(super) async fn save(&mut self, shelf: &Shelf, guard: &LeaderGuard, health: &Health) -> Saved {
        self.writes += 1;
        let nonce = format!("{}-{}-{}", self.epoch, self.attempt, self.writes);
        let mut body = json!({"v": VERSION, "epoch": self.epoch, "nonce": nonce, "health": health.to_json()});
        if let Value::Object(body) = &mut body {
            body.extend(self.extra.clone());
        }
        let condition = match &self.version {
            Some(version) => Condition::Matches(version.clone()),
            None => Condition::Absent,
        };
        let put = shelf.store.put(&self.key, body.to_string().into_bytes().into(), condition);
        let Ok(answer) = guard.run(tokio::time::timeout(shelf.timeout, put)).await else {
            return Saved::Superseded;
        };
        match answer {
            Ok(Write::Won(version)) => {
                self.version = Some(version);
                Saved::Done
            }
            Ok(Write::Unavailable(trouble) | Write::Denied(trouble)) => {
                Saved::Later(told(&self.key, &trouble))
            }
            Ok(Write::Lost | Write::Unknown(_)) | Err(_) => self.look_up(shelf, &nonce).await,
        }
    }

    async fn look_up(&mut self, shelf: &Shelf, nonce: &str) -> Saved {
        match shelf.get(&self.key).await {
            Ok(Read::Found(object)) => {
                let value: Value = serde_json::from_slice(&object.body).unwrap_or(Value::Null);
                if value.get("epoch").and_then(Value::as_u64).is_some_and(|epoch| epoch > self.epoch) {
                    return Saved::Superseded;
                }
                self.version = Some(object.version);
                match value.get("nonce").and_then(Value::as_str) == Some(nonce) {
                    true => Saved::Done,
                    false => Saved::Later(format!("{}: somebody else wrote it first", self.key)),
                }
            }
            Ok(Read::Absent) => {
                self.version = None;
                Saved::Later(format!("{}: the write was lost", self.key))
            }
            Ok(Read::Unchanged | Read::Unavailable(_) | Read::Denied(_)) => {
                Saved::Later(format!("{}: no answer", self.key))
            }
            Err(why) => Saved::Later(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Namespace;
    use tenure::store::{Faults, Faulty, MemoryStore};

    /// As long as every other list: thousands of schedules are many pages.
    #[tokio::test(start_paused = true)]
    async fn a_list_of_schedules_is_waited_for_ten_timeouts() {
        let store = Faulty::new(Arc::new(MemoryStore::new()), 1);
        store.set(Faults { lost_request: 1.0, timeout: Duration::from_secs(600), ..Faults::default() });
        let keys = Keys::global(&Namespace::new("test").expect("valid"));
        let (store, timeout, rules) = (Arc::new(store), Duration::from_secs(1), Rules::default());
        let shelf = Shelf { store, keys, timeout, rules };
        let began = tokio::time::Instant::now();
        assert!(shelf.look(&BTreeMap::new()).await.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(10));
    }
}
