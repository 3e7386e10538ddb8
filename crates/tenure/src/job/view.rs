//! The jobs of a namespace, seen from outside. Writes nothing.

use super::codec::{InboxCodec, LedgerCodec};
use super::orders::OrdersCodec;
use super::{JobHistory, SHARDS};
use crate::documents::Codec;
use crate::error::{Error, found};
use crate::keys::Keys;
use futures::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::{EntryState, JobRecord, JobState, OrdersDoc, QueueSettings, job_shard};
use tenure_core::{JobId, Namespace, QueueName, SeriesId, WorkerId};
use tenure_store::Lanes;

/// Parts of the ledger that are read at the same time.
const PARTS_AT_ONCE: usize = 16;

/// The jobs in the ledger.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JobList {
    /// Open and recently finished jobs, in id order.
    pub jobs: Vec<JobRecord>,
    /// Parts of the ledger that cannot be read: key and reason. Their jobs are missing.
    pub unreadable: Vec<(String, String)>,
    /// What is set for queues, if all jobs were read.
    pub queues: BTreeMap<QueueName, QueueSettings>,
}

impl JobList {
    /// Reads all jobs, those that the leader has not taken up yet included: one read per part of the ledger, and one more.
    ///
    /// Not promised: that this shows a single moment. `acked` and `running` appear in inboxes first; see
    /// [`ask_workers`](JobList::ask_workers). What the last leader wrote stays, whether anybody leads or not.
    pub async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<JobList, Error> {
        // The leader moves jobs from there to the ledger, so that is where to look last.
        let orders = OrdersCodec::read_from(lanes, namespace).await?.unwrap_or_default();
        let mut list = JobList::parts(lanes, namespace, 0..SHARDS).await?;
        let known: BTreeSet<JobId> = list.jobs.iter().map(|job| job.id.clone()).collect();
        list.jobs.extend(not_taken_up(&orders).filter(|job| !known.contains(&job.id)));
        list.queues = orders.queues;
        list.jobs.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(list)
    }

    /// Reads the part of the ledger that contains this series, with all of its jobs: one read.
    pub async fn read_near(
        lanes: &Lanes,
        namespace: &Namespace,
        series: &SeriesId,
    ) -> Result<JobList, Error> {
        let shard = job_shard(series, SHARDS);
        JobList::parts(lanes, namespace, shard..=shard).await
    }

    async fn parts(
        lanes: &Lanes,
        namespace: &Namespace,
        shards: impl Iterator<Item = usize>,
    ) -> Result<JobList, Error> {
        let keys = Keys::global(namespace);
        let mut list = JobList::default();
        let reads = shards.map(|shard| {
            let (key, store) = (keys.ledger(shard), Arc::clone(&lanes.bulk));
            async move { (store.get(&key, None).await, key) }
        });
        let mut reads = stream::iter(reads).buffer_unordered(PARTS_AT_ONCE.min(lanes.bulk.at_once()));
        while let Some((read, key)) = reads.next().await {
            let Some(object) = found(read)? else { continue };
            match LedgerCodec.read(&object.body) {
                Ok((_, doc, _)) => list.jobs.extend(doc.jobs),
                Err(unreadable) => list.unreadable.push((key, unreadable.detail)),
            }
        }
        list.unreadable.sort();
        list.jobs.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(list)
    }

    /// Looks into the inboxes of workers that have jobs, at most this many, with one read each, and shows what a worker has
    /// claimed or begun. A job that it has finished and the leader has not recorded yet still counts as running.
    pub async fn ask_workers(
        &mut self,
        lanes: &Lanes,
        namespace: &Namespace,
        most: usize,
    ) -> Result<(), Error> {
        let keys = Keys::global(namespace);
        let out = self.jobs.iter().filter(|job| job.state.is_out());
        let workers: BTreeSet<WorkerId> = out.filter_map(|job| job.worker.clone()).collect();
        let mut said = BTreeMap::new();
        for worker in workers.into_iter().take(most) {
            let Some(object) = found(lanes.bulk.get(&keys.inbox(&worker), None).await)? else { continue };
            // An inbox that cannot be read is the leader's business; it says nothing here.
            let Ok((_, doc, _)) = InboxCodec(worker.clone()).read(&object.body) else { continue };
            for entry in doc.entries {
                let state = match entry.state {
                    EntryState::Dispatched => JobState::Dispatched,
                    EntryState::Acked { .. } => JobState::Acked,
                    EntryState::Running { .. } | EntryState::Finished { .. } => JobState::Running,
                };
                said.insert((entry.id, entry.dispatch, worker.clone()), (state, entry.progress));
            }
        }
        for job in self.jobs.iter_mut().filter(|job| job.state.is_out()) {
            let Some(worker) = job.worker.clone() else { continue };
            if let Some((state, progress)) = said.remove(&(job.id.clone(), job.dispatch, worker)) {
                (job.state, job.progress) = (job.state.max(state), progress);
            }
        }
        Ok(())
    }

    /// Finds one job with a few reads: where its id says that it should be in the ledger and in its worker's inbox, among what the
    /// leader has not taken up yet, in the history, and only then in the whole ledger.
    pub async fn find(lanes: &Lanes, namespace: &Namespace, id: &JobId) -> Result<Option<JobRecord>, Error> {
        if let Some(job) = JobList::find_in(lanes, namespace, id, &series_of(id)).await? {
            return Ok(Some(job));
        }
        let orders = OrdersCodec::read_from(lanes, namespace).await?.unwrap_or_default();
        let waiting = not_taken_up(&orders).find(|job| job.id == *id);
        if waiting.is_some() {
            // The leader may have taken it up in between.
            return Ok(JobList::find_in(lanes, namespace, id, &series_of(id)).await?.or(waiting));
        }
        if let Some(over) = JobHistory::new(lanes, namespace).find(id).await? {
            // It may have been tried again since then.
            let now = JobList::find_in(lanes, namespace, id, std::slice::from_ref(&over.series)).await?;
            return Ok(now.or(Some(over)));
        }
        let mut list = JobList::read(lanes, namespace).await?;
        list.jobs.retain(|job| job.id == *id);
        if let Some((key, detail)) = list.unreadable.pop().filter(|_| list.jobs.is_empty()) {
            // The job may be in the unreadable part.
            return Err(Error::unreadable(&key, detail));
        }
        list.ask_workers(lanes, namespace, 1).await?;
        Ok(list.jobs.pop())
    }

    /// Finds a job in the parts of the ledger that have these series.
    async fn find_in(
        lanes: &Lanes,
        namespace: &Namespace,
        id: &JobId,
        series: &[SeriesId],
    ) -> Result<Option<JobRecord>, Error> {
        let shards: BTreeSet<usize> = series.iter().map(|series| job_shard(series, SHARDS)).collect();
        let mut list = JobList::parts(lanes, namespace, shards.into_iter()).await?;
        list.jobs.retain(|job| job.id == *id);
        list.ask_workers(lanes, namespace, 1).await?;
        Ok(list.jobs.pop())
    }
}

/// The jobs that wait for the leader to take them up.
fn not_taken_up(orders: &OrdersDoc) -> impl Iterator<Item = JobRecord> {
    let reason: Arc<str> = Arc::from("the leader has not taken it up yet, or nobody leads");
    orders.submissions().map(move |job| JobRecord { reason: Arc::clone(&reason), ..job.clone() })
}

/// The series that a job of this id can be in, unless somebody chose another one: its own, that of its group, or its schedule's.
fn series_of(id: &JobId) -> Vec<SeriesId> {
    let text = id.as_str();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let group = text.rsplit_once('.').filter(|(_, number)| digits(number)).map(|(group, _)| group);
    let schedule = text.rsplit_once('-').filter(|(_, due)| digits(due)).map(|(schedule, _)| schedule);
    let asked = text.rsplit_once(".run.").map(|(schedule, _)| schedule);
    let names = [Some(text), group, schedule, asked].into_iter().flatten();
    names.filter_map(|name| SeriesId::new(name).ok()).collect()
}
