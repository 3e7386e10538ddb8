//! The runner's objects on the store: schedules, what agents say about themselves, and the state of checks.

use super::assign::AgentFacts;
use super::problem::Problems;
use super::read::Rules;
use super::schedule::Schedule;
use crate::checks::health::Health;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::document::{DocumentError, Documents, Keys};
use tenure::id::{DocumentName, Namespace, ScheduleId, WorkerId};
use tenure::store::{Entry, LIST_TIMEOUTS_MAX, List, Read, Store, Trouble, Version};
use tenure::{FencedDocument, LeaderGuard};
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
    documents: Documents,
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

fn name(text: &str) -> DocumentName {
    DocumentName::new(text).expect("ids and names follow one rule")
}

/// The name of the document with the state of checks.
pub(super) fn polls_name() -> DocumentName {
    name("polls")
}

/// The name of a schedule's document.
pub(super) fn schedule_name(id: &ScheduleId) -> DocumentName {
    name(id.as_str())
}

/// The key of a schedule.
pub(super) fn schedule_key(keys: &Keys, id: &ScheduleId) -> String {
    format!("{}/schedules/{id}.json", keys.root())
}

impl Shelf {
    pub(super) fn new(
        store: Arc<dyn Store>,
        namespace: &Namespace,
        timeout: Duration,
        rules: Rules,
    ) -> Shelf {
        let documents = Documents::of_namespace(Arc::clone(&store), namespace, timeout);
        Shelf { store, keys: Keys::global(namespace), timeout, rules, documents }
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.documents = self.documents.clone().request_timeout(timeout);
    }

    pub(super) fn schedules(&self) -> Result<Documents, DocumentError> {
        self.documents.folder(&name("schedules"))
    }

    pub(super) fn results(&self) -> Result<Documents, DocumentError> {
        self.documents.folder(&name("results"))
    }

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

/// `results/polls.json`: the state of checks, which one leader hands to the next.
#[derive(Serialize, Deserialize)]
pub(super) struct Results {
    #[serde(serialize_with = "write_health", deserialize_with = "read_health")]
    pub(super) health: Health,
}

fn write_health<S: Serializer>(health: &Health, to: S) -> Result<S::Ok, S::Error> {
    health.to_json().serialize(to)
}

fn read_health<'de, D: Deserializer<'de>>(from: D) -> Result<Health, D::Error> {
    Health::from_json(&Value::deserialize(from)?).ok_or_else(|| D::Error::custom("`health` cannot be read"))
}

/// Where a leader keeps the state of checks. If what stands there cannot be read, it is left alone, and nothing is kept.
pub(super) struct StateFile {
    document: Option<FencedDocument<Results>>,
    /// Why nothing is kept.
    pub(super) foreign: Option<String>,
}

impl StateFile {
    /// Takes over what the former leader left.
    pub(super) async fn open(
        shelf: &Shelf,
        guard: &LeaderGuard,
    ) -> Result<(StateFile, Health), DocumentError> {
        let opened = FencedDocument::<Results>::open(&shelf.results()?, &polls_name(), guard).await;
        match opened {
            Ok(document) => {
                let health = document.get().map(|results| results.health.clone()).unwrap_or_default();
                Ok((StateFile { document: Some(document), foreign: None }, health))
            }
            Err(error) if error.is_blocked() => {
                Ok((StateFile { document: None, foreign: Some(error.to_string()) }, Health::default()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns when the state is stored, or cannot be kept at all.
    pub(super) async fn save(&mut self, guard: &LeaderGuard, health: &Health) -> Result<(), DocumentError> {
        let Some(document) = &mut self.document else { return Ok(()) };
        match document.put(guard, Results { health: health.clone() }).await {
            Err(error) if error.is_blocked() => {
                (self.document, self.foreign) = (None, Some(error.to_string()));
                Ok(())
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::store::{Faults, Faulty, MemoryStore};

    /// As long as every other list: thousands of schedules are many pages.
    #[tokio::test(start_paused = true)]
    async fn a_list_of_schedules_is_waited_for_ten_timeouts() {
        let store = Faulty::new(Arc::new(MemoryStore::new()), 1);
        store.set(Faults { lost_request: 1.0, timeout: Duration::from_secs(600), ..Faults::default() });
        let namespace = Namespace::new("test").expect("valid");
        let shelf = Shelf::new(Arc::new(store), &namespace, Duration::from_secs(1), Rules::default());
        let began = tokio::time::Instant::now();
        assert!(shelf.look(&BTreeMap::new()).await.is_err());
        assert_eq!(began.elapsed(), Duration::from_secs(10));
    }
}
