//! The schedules on the store, for anybody who may change them: any process, with or without a node.
//!
//! Every write is conditional on what was read right before it, so two writers that change the same schedule at once do not undo
//! each other's work. Removal is not conditional; no store offers that. And a write of unknown outcome may still land after
//! somebody else has removed the schedule.

mod health;
mod look;

pub(super) use health::SavedHealth;
pub(super) use look::{Listed, Look};

use super::problem::{Problem, Problems};
use super::read::Rules;
use super::runner::ScheduleError;
use super::schedule::{RunRequest, Schedule};
use crate::checks::health::Health;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use tenure::Error;
use tenure::document::Documents;
use tenure::error::ErrorKind;
use tenure::id::{DocumentName, Namespace, ScheduleId};
use tenure::store::{Read, Remove, Store};

pub use tenure::document::Change;

/// A schedule as stored, without its envelope.
type Fields = Map<String, Value>;

/// Most attempts at a removal, against a store that does not answer.
const TRIES_MAX: u32 = 6;

/// The pause before the second attempt; doubles before each further one.
const PAUSE: Duration = Duration::from_millis(50);

/// Most requested jobs of one schedule that do not exist yet.
const ASKED_MAX: usize = 8;

/// How many names of created requested jobs a schedule remembers.
const RAN_MAX: usize = 16;

/// The schedules of a namespace. Clones share the store.
#[derive(Clone)]
pub struct Schedules {
    pub(super) store: Arc<dyn Store>,
    timeout: Duration,
    rules: Rules,
    documents: Documents,
}

impl std::fmt::Debug for Schedules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schedules({})", self.prefix())
    }
}

impl Schedules {
    /// The schedules of this namespace on this store.
    pub fn new(store: Arc<dyn Store>, namespace: &Namespace) -> Schedules {
        let timeout = Duration::from_secs(5);
        let documents = Documents::of_namespace(Arc::clone(&store), namespace, timeout);
        Schedules { store, timeout, rules: Rules::default(), documents }
    }

    /// Allows custom kinds of checks.
    pub fn rules(self, rules: Rules) -> Schedules {
        Schedules { rules, ..self }
    }

    /// The time limit of one request. Default: 5 s.
    pub fn request_timeout(self, timeout: Duration) -> Schedules {
        let documents = self.documents.request_timeout(timeout);
        Schedules { timeout, documents, ..self }
    }

    /// Where the namespace's objects are, without a trailing `/`.
    pub(super) fn prefix(&self) -> &str {
        self.documents.prefix()
    }

    fn key(&self, id: &ScheduleId) -> String {
        format!("{}/schedules/{id}.json", self.prefix())
    }

    /// The documents in this folder of the namespace.
    pub(super) fn folder(&self, name: &str) -> Result<Documents, Error> {
        self.documents.folder(&document_name(name))
    }

    /// All schedules: one list, and one read each. A schedule that cannot be understood comes with its faults.
    pub async fn list(&self) -> Result<BTreeMap<ScheduleId, Result<Schedule, Problems>>, ScheduleError> {
        let look = self.look(&Listed::new()).await.map_err(ScheduleError::Store)?;
        let mut all = look.changed;
        for (id, _) in look.listed.into_iter().filter(|(_, stamp)| stamp.is_none()) {
            // Removed in between, or unreachable: a second look decides.
            match self.get(&id).await {
                Ok(None) => {}
                Ok(Some(schedule)) => drop(all.insert(id, Ok(schedule))),
                Err(ScheduleError::Refused { problems, .. }) => drop(all.insert(id, Err(problems))),
                Err(other) => return Err(other),
            }
        }
        Ok(all)
    }

    /// One schedule; `None` if it does not exist.
    pub async fn get(&self, id: &ScheduleId) -> Result<Option<Schedule>, ScheduleError> {
        match self.get_object(&self.key(id)).await.map_err(ScheduleError::Store)? {
            Read::Found(object) => Schedule::from_wire(&object.body, &self.rules)
                .map(Some)
                .map_err(|problems| refused(id, problems)),
            Read::Absent | Read::Unchanged | Read::Unavailable(_) | Read::Denied(_) => Ok(None),
        }
    }

    /// Writes a new schedule; [`ScheduleError::Exists`] if there is one already. Due times count from `now_ms` on, unless the
    /// schedule sets `since_ms` itself.
    pub async fn add(&self, schedule: &Schedule, now_ms: u64) -> Result<(), ScheduleError> {
        let mut new = schedule.clone();
        new.since_ms = if new.since_ms == 0 { now_ms } else { new.since_ms };
        let change = |standing: Option<&Schedule>, unsure: bool| match standing {
            None => Ok(Some(new.clone())),
            // An earlier write whose answer was lost succeeded, and somebody has requested a job since.
            Some(there) if unsure && merged(there, &new, now_ms) == *there => Ok(None),
            Some(_) => Err(ScheduleError::Exists(schedule.id.to_string())),
        };
        self.change(&schedule.id, change).await.map(drop)
    }

    /// Writes this schedule, replacing any existing one. Keeps the unknown fields, the requested jobs and `since_ms` of the
    /// existing one. `since_ms` becomes `now_ms` if the schedule is new or becomes enabled, unless it sets the value itself.
    pub async fn put(&self, schedule: &Schedule, now_ms: u64) -> Result<Change, ScheduleError> {
        let change = |standing: Option<&Schedule>, _| Ok(wanted(standing, schedule, now_ms));
        self.change(&schedule.id, change).await
    }

    /// What [`put`](Schedules::put) would do. Writes nothing.
    pub async fn compare(&self, schedule: &Schedule) -> Result<Change, ScheduleError> {
        let standing = self.get(&schedule.id).await?;
        Ok(match (wanted(standing.as_ref(), schedule, 0), standing) {
            (Some(_), None) => Change::Created,
            (Some(_), Some(_)) => Change::Changed,
            (None, _) => Change::Unchanged,
        })
    }

    /// Enables or disables a schedule. When it is enabled again, it begins with the due times after `now_ms`.
    pub async fn set_enabled(
        &self,
        id: &ScheduleId,
        enabled: bool,
        now_ms: u64,
    ) -> Result<Change, ScheduleError> {
        let change = |standing: Option<&Schedule>, _| {
            let there = standing.ok_or_else(|| ScheduleError::Unknown(id.to_string()))?;
            let since_ms = if enabled { now_ms } else { there.since_ms };
            Ok((there.enabled != enabled).then(|| Schedule { enabled, since_ms, ..there.clone() }))
        };
        self.change(id, change).await
    }

    /// Asks the leader, whoever it is, to run a job of a schedule now; its id is [`RunRequest::job_id`]. The schedule need not be
    /// enabled; while it has as many open jobs as it may, the request waits. [`Change::Unchanged`]: that name was used before,
    /// and means the same job. A schedule remembers its last 16 names.
    pub async fn ask(&self, id: &ScheduleId, name: &str, now_ms: u64) -> Result<Change, ScheduleError> {
        RunRequest::job_id(id, name)?;
        let change = |standing: Option<&Schedule>, _| {
            let there = standing.ok_or_else(|| ScheduleError::Unknown(id.to_string()))?;
            if there.ran.iter().any(|ran| ran == name) || there.run_now.iter().any(|run| run.name == name) {
                return Ok(None);
            }
            if there.run_now.len() >= ASKED_MAX {
                return Err(ScheduleError::Asked(id.to_string()));
            }
            let mut new = there.clone();
            new.run_now.push(RunRequest { name: name.to_owned(), at_ms: now_ms });
            Ok(Some(new))
        };
        self.change(id, change).await
    }

    /// Notes that requested jobs are in the ledger: keeps their names in place of the requests. This is right no matter who leads
    /// by now, because the ledger keeps what it has.
    pub(super) async fn served(&self, id: &ScheduleId, names: &[String]) -> Result<Change, ScheduleError> {
        let change = |standing: Option<&Schedule>, _| {
            let Some(there) = standing else { return Ok(None) };
            let mut new = there.clone();
            new.run_now.retain(|run| !names.contains(&run.name));
            if new == *there {
                return Ok(None);
            }
            new.ran.retain(|ran| !names.contains(ran));
            new.ran.extend(names.iter().cloned());
            let old = new.ran.len().saturating_sub(RAN_MAX);
            new.ran.drain(..old);
            Ok(Some(new))
        };
        self.update(id, change).await
    }

    /// Removes a schedule; returns whether it existed. Its jobs run to their end. Its past due times are never created again
    /// under this name, because the ledger keeps its watermarks.
    pub async fn remove(&self, id: &ScheduleId) -> Result<bool, ScheduleError> {
        let key = self.key(id);
        let (mut was_there, mut trouble) = (false, String::new());
        for tries in 0..TRIES_MAX {
            pause(tries).await;
            match self.get_object(&key).await {
                Ok(Read::Absent) => return Ok(was_there),
                Ok(_) => was_there = true,
                Err(why) => trouble = why,
            }
            if !was_there {
                continue;
            }
            match tokio::time::timeout(self.timeout, self.store.remove(&key)).await {
                Ok(Remove::Done) => {
                    self.tell_leader().await;
                    return Ok(true);
                }
                Ok(Remove::Denied(why)) => return Err(ScheduleError::Store(format!("{key}: {why}"))),
                Ok(Remove::Unknown(why) | Remove::Unavailable(why)) => trouble = format!("{key}: {why}"),
                Err(_) => trouble = format!("{key}: no answer in time; it may or may not have been removed"),
            }
        }
        Err(ScheduleError::Store(trouble))
    }

    /// The state of the checks, as last saved by the leader.
    pub async fn health(&self) -> Result<Health, ScheduleError> {
        self.read_health().await.map_err(|error| ScheduleError::Store(error.to_string()))
    }

    /// Changes one schedule, and tells the leader if anything changed.
    async fn change(
        &self,
        id: &ScheduleId,
        change: impl Fn(Option<&Schedule>, bool) -> Result<Option<Schedule>, ScheduleError>,
    ) -> Result<Change, ScheduleError> {
        let changed = self.update(id, change).await?;
        if changed != Change::Unchanged {
            self.tell_leader().await;
        }
        Ok(changed)
    }

    /// Whether anybody has ever asked the leader for anything.
    pub(super) async fn is_leader_asked(&self) -> Result<bool, String> {
        self.documents.is_leader_asked().await.map_err(|error| error.to_string())
    }

    /// What was changed is changed: a leader that could not be told notices at its next look.
    async fn tell_leader(&self) {
        if let Err(error) = self.documents.tell_leader().await {
            tracing::warn!(target: "tenure", "the leader was not told, and notices within a minute: {error}");
        }
    }

    /// Changes one schedule. The second argument of `change` says that an earlier write of this call may have landed.
    async fn update(
        &self,
        id: &ScheduleId,
        change: impl Fn(Option<&Schedule>, bool) -> Result<Option<Schedule>, ScheduleError>,
    ) -> Result<Change, ScheduleError> {
        let read = |fields: &Fields| {
            Schedule::from_fields(fields, &self.rules).map_err(|problems| refused(id, problems))
        };
        let change = |found: Option<&Fields>, unsure: bool| {
            let there = found.map(read).transpose().map_err(Failed::Change)?;
            let new = change(there.as_ref(), unsure).map_err(Failed::Change)?;
            Ok(new.map(|new| new.to_fields()))
        };
        let changed =
            async { self.folder("schedules")?.update(&document_name(id.as_str()), change).await }.await;
        changed.map_err(|failed| match failed {
            Failed::Change(error) => error,
            Failed::Document(error) if error.is_unreadable() => {
                let detail = error.source().unwrap_or(&error).to_string();
                refused(id, Problems::one(Problem::new(None, "", "", detail)))
            }
            Failed::Document(error) if error.kind() == ErrorKind::Raced && !error.may_have_been_written() => {
                ScheduleError::Raced(id.to_string())
            }
            Failed::Document(error) => ScheduleError::Store(error.to_string()),
        })
    }
}

/// Why a change was not made.
enum Failed {
    Change(ScheduleError),
    Document(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Document(error)
    }
}

fn document_name(text: &str) -> DocumentName {
    DocumentName::new(text).expect("ids and names follow one rule")
}

fn refused(id: &ScheduleId, problems: Problems) -> ScheduleError {
    ScheduleError::Refused { schedule: id.to_string(), problems }
}

async fn pause(tries: u32) {
    if let Some(doubled) = tries.checked_sub(1) {
        tokio::time::sleep(PAUSE * 2_u32.pow(doubled.min(8))).await;
    }
}

/// What to write so that this schedule is stored; `None` if nothing.
fn wanted(standing: Option<&Schedule>, schedule: &Schedule, now_ms: u64) -> Option<Schedule> {
    match standing {
        None => {
            let since_ms = if schedule.since_ms == 0 { now_ms } else { schedule.since_ms };
            Some(Schedule { since_ms, ..schedule.clone() })
        }
        Some(there) => Some(merged(there, schedule, now_ms)).filter(|new| new != there),
    }
}

/// The schedule, with the parts of the existing one that must be kept.
fn merged(there: &Schedule, schedule: &Schedule, now_ms: u64) -> Schedule {
    let mut new = schedule.clone();
    new.since_ms = match schedule.since_ms {
        0 if schedule.enabled && !there.enabled => now_ms,
        0 => there.since_ms,
        given => given,
    };
    (new.run_now, new.ran) = (there.run_now.clone(), there.ran.clone());
    for (key, value) in &there.extra {
        new.extra.entry(key.clone()).or_insert_with(|| value.clone());
    }
    for check in &mut new.checks {
        let same = there.checks.iter().find(|old| old.name == check.name);
        for (key, value) in same.iter().flat_map(|old| &old.extra) {
            check.extra.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    new
}

#[cfg(test)]
mod tests;
