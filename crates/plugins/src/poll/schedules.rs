//! The schedules on the store, for whoever may change them: any process, with or without a node.
//!
//! Every write is conditional on what was read right before it: two who change the same schedule at once do not undo each
//! other's work. Not promised: that removing is; no store offers that. Nor that a write of unknown outcome stays away for good once
//! the schedule was removed by somebody else.

use super::health::Health;
use super::orchestrator::PollError;
use super::problem::Problems;
use super::read::Rules;
use super::schedule::{RunRequest, Schedule};
use super::shelf::{Shelf, schedule_key};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::document::Keys;
use tenure::id::{Namespace, ScheduleId};
use tenure::store::{Condition, Read, Remove, Store, Version, Write};

/// So often a change is tried against others who change the same, and against a store that does not answer.
const TRIES_MAX: u32 = 6;

/// The pause before the second try, doubled before each further one.
const PAUSE: Duration = Duration::from_millis(50);

/// Jobs that may be asked for and not exist yet, for one schedule.
const ASKED_MAX: usize = 8;

/// Names of jobs asked for that a schedule remembers once they were created.
const RAN_MAX: usize = 16;

/// What a change came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// It was not there.
    Created,
    /// It was something else.
    Changed,
    /// It was the same already; nothing was written.
    Unchanged,
}

impl Change {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Changed => "changed",
            Change::Unchanged => "unchanged",
        }
    }
}

/// The schedules of a namespace. Clones share the store.
#[derive(Clone)]
pub struct Schedules(Shelf);

impl std::fmt::Debug for Schedules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schedules({})", self.0.keys.root())
    }
}

/// An object as it was read.
struct Standing {
    body: Vec<u8>,
    version: Version,
    schedule: Schedule,
}

impl Schedules {
    /// Those of this namespace on this store.
    pub fn new(store: Arc<dyn Store>, namespace: &Namespace) -> Schedules {
        let (keys, timeout) = (Keys::global(namespace), Duration::from_secs(5));
        Schedules(Shelf { store, keys, timeout, rules: Rules::default() })
    }

    pub(super) fn on(shelf: Shelf) -> Schedules {
        Schedules(shelf)
    }

    /// With kinds of checks of one's own.
    pub fn rules(mut self, rules: Rules) -> Schedules {
        self.0.rules = rules;
        self
    }

    /// How long one request may take. Default: 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Schedules {
        self.0.timeout = timeout;
        self
    }

    /// All of them: one list, and a read for each. Those that cannot be understood come with what is wrong.
    pub async fn list(&self) -> Result<BTreeMap<ScheduleId, Result<Schedule, Problems>>, PollError> {
        let found = self.0.look(&BTreeMap::new()).await.map_err(PollError::Store)?;
        let mut all = found.changed;
        for id in found.unread {
            // Removed in between, or not reached: a second look tells.
            match self.get(&id).await {
                Ok(None) => {}
                Ok(Some(schedule)) => drop(all.insert(id, Ok(schedule))),
                Err(PollError::Refused { problems, .. }) => drop(all.insert(id, Err(problems))),
                Err(other) => return Err(other),
            }
        }
        Ok(all)
    }

    /// One of them.
    pub async fn get(&self, id: &ScheduleId) -> Result<Option<Schedule>, PollError> {
        Ok(self.standing(id).await?.map(|standing| standing.schedule))
    }

    /// Writes a schedule that is not there; [`PollError::Exists`] if it is. Due times count from `now_ms` on, unless it says
    /// itself since when.
    pub async fn add(&self, schedule: &Schedule, now_ms: u64) -> Result<(), PollError> {
        let mut new = schedule.clone();
        new.since_ms = if new.since_ms == 0 { now_ms } else { new.since_ms };
        let change = |standing: Option<&Schedule>, unsure: bool| match standing {
            None => Ok(Some(new.clone())),
            // A write whose answer was lost has done it, and somebody has asked for a job since.
            Some(there) if unsure && merged(there, &new, now_ms) == *there => Ok(None),
            Some(_) => Err(PollError::Exists(schedule.id.to_string())),
        };
        self.update(&schedule.id, change).await.map(drop)
    }

    /// Makes a schedule stand there as it is. Kept of what stands there: fields nobody knows here, jobs that were asked for,
    /// and since when due times count. That is `now_ms` if it is new or becomes enabled, unless it says so itself.
    pub async fn put(&self, schedule: &Schedule, now_ms: u64) -> Result<Change, PollError> {
        let change = |standing: Option<&Schedule>, _| Ok(wanted(standing, schedule, now_ms));
        self.update(&schedule.id, change).await
    }

    /// What [`put`](Schedules::put) would do. Nothing is written.
    pub async fn compare(&self, schedule: &Schedule) -> Result<Change, PollError> {
        let standing = self.get(&schedule.id).await?;
        Ok(match (wanted(standing.as_ref(), schedule, 0), standing) {
            (Some(_), None) => Change::Created,
            (Some(_), Some(_)) => Change::Changed,
            (None, _) => Change::Unchanged,
        })
    }

    /// Lets a schedule create jobs, or not. One that is enabled again begins with the due times after `now_ms`.
    pub async fn set_enabled(
        &self,
        id: &ScheduleId,
        enabled: bool,
        now_ms: u64,
    ) -> Result<Change, PollError> {
        let change = |standing: Option<&Schedule>, _| {
            let there = standing.ok_or_else(|| PollError::Unknown(id.to_string()))?;
            let since_ms = if enabled { now_ms } else { there.since_ms };
            Ok((there.enabled != enabled).then(|| Schedule { enabled, since_ms, ..there.clone() }))
        };
        self.update(id, change).await
    }

    /// Asks the leader, whoever it is, for a job of a schedule now; its id is [`RunRequest::job_id`]. Whether the schedule is
    /// enabled does not matter; while as many jobs are open as may be, it waits. [`Change::Unchanged`]: that name was asked
    /// for before, so the job is the one of then. The last 16 names of a schedule are remembered.
    pub async fn ask(&self, id: &ScheduleId, name: &str, now_ms: u64) -> Result<Change, PollError> {
        RunRequest::job_id(id, name)?;
        let change = |standing: Option<&Schedule>, _| {
            let there = standing.ok_or_else(|| PollError::Unknown(id.to_string()))?;
            if there.ran.iter().any(|ran| ran == name) || there.run_now.iter().any(|run| run.name == name) {
                return Ok(None);
            }
            if there.run_now.len() >= ASKED_MAX {
                return Err(PollError::Asked(id.to_string()));
            }
            let mut new = there.clone();
            new.run_now.push(RunRequest { name: name.to_owned(), at_ms: now_ms });
            Ok(Some(new))
        };
        self.update(id, change).await
    }

    /// Jobs that were asked for stand in the ledger: their names are remembered instead. Right whoever leads by now, for what
    /// stands in the ledger stays there.
    pub(super) async fn served(&self, id: &ScheduleId, names: &[String]) -> Result<Change, PollError> {
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

    /// Removes a schedule, and says whether it was there. Its jobs go on; its due times are never created again under this
    /// name, for the ledger keeps its marks.
    pub async fn remove(&self, id: &ScheduleId) -> Result<bool, PollError> {
        let key = schedule_key(&self.0.keys, id);
        let (mut was_there, mut trouble) = (false, String::new());
        for tries in 0..TRIES_MAX {
            pause(tries).await;
            match self.0.get(&key).await {
                Ok(Read::Found(_) | Read::Unchanged) => was_there = true,
                Ok(Read::Absent) => return Ok(was_there),
                Ok(Read::Unavailable(why) | Read::Denied(why)) => trouble = format!("{key}: {why}"),
                Err(why) => trouble = why,
            }
            if !was_there {
                continue;
            }
            match tokio::time::timeout(self.0.timeout, self.0.store.remove(&key)).await {
                Ok(Remove::Done) => return Ok(true),
                Ok(Remove::Denied(why)) => return Err(PollError::Store(format!("{key}: {why}"))),
                Ok(Remove::Unknown(why) | Remove::Unavailable(why)) => trouble = format!("{key}: {why}"),
                Err(_) => trouble = format!("{key}: no answer in time; it may be gone"),
            }
        }
        Err(PollError::Store(trouble))
    }

    /// How the checks are doing, as the leader saved it last.
    pub async fn health(&self) -> Result<Health, PollError> {
        let key = format!("{}/results/polls.json", self.0.keys.root());
        match self.0.get(&key).await.map_err(PollError::Store)? {
            Read::Found(object) => {
                let value: Value = serde_json::from_slice(&object.body).unwrap_or(Value::Null);
                Ok(value.get("health").and_then(Health::from_json).unwrap_or_default())
            }
            Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => Ok(Health::default()),
        }
    }

    async fn standing(&self, id: &ScheduleId) -> Result<Option<Standing>, PollError> {
        let key = schedule_key(&self.0.keys, id);
        let object = match self.0.get(&key).await.map_err(PollError::Store)? {
            Read::Found(object) => object,
            Read::Absent | Read::Unchanged => return Ok(None),
            Read::Unavailable(why) | Read::Denied(why) => {
                return Err(PollError::Store(format!("{key}: {why}")));
            }
        };
        let refuse = |problems| PollError::Refused { schedule: id.to_string(), problems };
        let schedule = Schedule::from_wire(&object.body, &self.0.rules).map_err(refuse)?;
        Ok(Some(Standing { body: object.body.to_vec(), version: object.version, schedule }))
    }

    /// Reads, asks what is to stand there, and writes that on condition that nobody was faster; again if somebody was. The
    /// second argument of `change`: an earlier write of this call may have landed.
    async fn update(
        &self,
        id: &ScheduleId,
        change: impl Fn(Option<&Schedule>, bool) -> Result<Option<Schedule>, PollError>,
    ) -> Result<Change, PollError> {
        let key = schedule_key(&self.0.keys, id);
        let mut unsure: Option<(Vec<u8>, Change)> = None;
        let mut failed = PollError::Raced(id.to_string());
        for tries in 0..TRIES_MAX {
            pause(tries).await;
            let standing = match self.standing(id).await {
                Ok(standing) => standing,
                Err(error @ PollError::Store(_)) => {
                    failed = error;
                    continue;
                }
                Err(other) => return Err(other),
            };
            if let (Some((body, done)), Some(there)) = (&unsure, &standing)
                && *body == there.body
            {
                return Ok(*done);
            }
            let Some(new) = change(standing.as_ref().map(|there| &there.schedule), unsure.is_some())? else {
                // Nothing is left to do; an answer that was lost had done it.
                return Ok(unsure.map_or(Change::Unchanged, |(_, done)| done));
            };
            let (condition, done) = match standing {
                Some(there) => (Condition::Matches(there.version), Change::Changed),
                None => (Condition::Absent, Change::Created),
            };
            let body = new.to_wire();
            let put = self.0.store.put(&key, body.clone().into(), condition);
            match tokio::time::timeout(self.0.timeout, put).await {
                Ok(Write::Won(_)) => return Ok(done),
                Ok(Write::Lost) => failed = PollError::Raced(id.to_string()),
                Ok(Write::Denied(why)) => return Err(PollError::Store(format!("{key}: {why}"))),
                Ok(Write::Unavailable(why)) => failed = PollError::Store(format!("{key}: {why}")),
                Ok(Write::Unknown(why)) => {
                    failed = PollError::Store(format!("{key}: {why}; it may have been written"));
                    unsure = Some((body, done));
                }
                Err(_) => {
                    failed = PollError::Store(format!("{key}: no answer in time; it may have been written"));
                    unsure = Some((body, done));
                }
            }
        }
        Err(failed)
    }
}

async fn pause(tries: u32) {
    if let Some(doubled) = tries.checked_sub(1) {
        tokio::time::sleep(PAUSE * 2_u32.pow(doubled.min(8))).await;
    }
}

/// What is to be written so that this schedule stands there; `None`: nothing.
fn wanted(standing: Option<&Schedule>, schedule: &Schedule, now_ms: u64) -> Option<Schedule> {
    match standing {
        None => {
            let since_ms = if schedule.since_ms == 0 { now_ms } else { schedule.since_ms };
            Some(Schedule { since_ms, ..schedule.clone() })
        }
        Some(there) => Some(merged(there, schedule, now_ms)).filter(|new| new != there),
    }
}

/// The schedule with what is kept of the one that stands there.
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
