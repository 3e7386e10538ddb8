//! The queues of a namespace: what is set for them, and how many jobs they have.

use super::orders::OrdersCodec;
use super::{JobList, Jobs};
use crate::clock::millis;
use crate::documents::TRIES;
use crate::error::{Error, ErrorKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tenure_core::{JOB_QUEUES_MAX, JobRecord, JobState, OrdersDoc, QueueName, QueueSettings};

/// Most jobs of a queue that may be set to run at once.
const CONCURRENCY_MAX: u32 = 100_000;

/// A queue that has jobs or settings.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: QueueName,
    /// What is set for it.
    pub settings: QueueSettings,
    /// Jobs that wait for a worker, or for their time.
    pub waiting: u64,
    /// Jobs that are out at workers.
    pub running: u64,
    /// Jobs whose attempts are used up, as far as the ledger still has them.
    pub dead: u64,
    /// Since when the oldest of those that wait has waited; `None` if none waits.
    pub oldest: Option<Duration>,
}

/// A queue, as the command line and HTTP show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueInfo {
    /// Its name.
    pub queue: String,
    /// Jobs that wait for a worker, or for their time.
    pub waiting: u64,
    /// Jobs that are out at workers.
    pub running: u64,
    /// Jobs whose attempts are used up, as far as the ledger still has them.
    pub dead: u64,
    /// None of its jobs is given to a worker.
    pub paused: bool,
    /// Most of its jobs that run at once; none if any number may.
    pub concurrency: Option<u32>,
    /// How long the oldest of those that wait has waited; none if none waits.
    pub oldest_ms: Option<u64>,
}

impl Queue {
    fn new(name: QueueName) -> Queue {
        let settings = QueueSettings::default();
        Queue { name, settings, waiting: 0, running: 0, dead: 0, oldest: None }
    }

    fn count(&mut self, job: &JobRecord, now_ms: i64) {
        if job.state == JobState::Queued {
            let waits = u64::try_from(now_ms - job.submitted_ms.max(job.not_before_ms)).unwrap_or(0);
            self.oldest = self.oldest.max(Some(Duration::from_millis(waits)));
        }
        self.waiting += u64::from(job.state == JobState::Queued);
        self.running += u64::from(job.state.is_out());
        self.dead += u64::from(job.state.is_dead());
    }

    /// Every queue that has jobs or settings, by a list of all jobs ([`JobList::read`]).
    pub fn all(list: &JobList) -> Vec<Queue> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let mut queues: BTreeMap<&QueueName, Queue> = BTreeMap::new();
        for (name, set) in &list.queues {
            queues.insert(name, Queue { settings: *set, ..Queue::new(name.clone()) });
        }
        for job in &list.jobs {
            queues.entry(&job.queue).or_insert_with(|| Queue::new(job.queue.clone())).count(job, now_ms);
        }
        queues.into_values().collect()
    }

    /// The queue as people and programs are shown it.
    pub fn info(&self) -> QueueInfo {
        QueueInfo {
            queue: self.name.to_string(),
            waiting: self.waiting,
            running: self.running,
            dead: self.dead,
            paused: self.settings.paused,
            concurrency: self.settings.concurrency,
            oldest_ms: self.oldest.map(millis),
        }
    }
}

impl Jobs {
    /// Changes what is set for a queue, whether it has jobs or not: one read and one write. Returns what is set now.
    pub async fn set_queue(
        &self,
        queue: &QueueName,
        change: impl Fn(&mut QueueSettings) + Send + Sync,
    ) -> Result<QueueSettings, Error> {
        let mut now = QueueSettings::default();
        let write = |doc: Option<&OrdersDoc>, _| {
            let mut new = doc.cloned().unwrap_or_default();
            let mut settings = new.queues.remove(queue).unwrap_or_default();
            change(&mut settings);
            if settings.concurrency.is_some_and(|most| !(1..=CONCURRENCY_MAX).contains(&most)) {
                let most = settings.concurrency.unwrap_or(0);
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format_args!(
                        "`concurrency` of queue {queue} is {most}: it must be 1 to {CONCURRENCY_MAX}"
                    ),
                ));
            }
            if settings != QueueSettings::default() {
                if new.queues.len() >= JOB_QUEUES_MAX {
                    return Err(Error::new(
                        ErrorKind::Full,
                        format_args!("{JOB_QUEUES_MAX} queues have settings already, and no more may"),
                    ));
                }
                new.queues.insert(queue.clone(), settings);
            }
            now = settings;
            Ok(Some(new))
        };
        self.documents().at(self.keys().orders(), OrdersCodec).update(TRIES, write).await?;
        Ok(now)
    }
}
