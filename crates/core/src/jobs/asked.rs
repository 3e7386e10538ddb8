//! What anybody asks of the leader, and the document that it stands in.

#[cfg(doc)]
use super::model::JOB_OBJECT_MAX_WEIGHT;
use super::model::JobRecord;
use crate::id::{JobId, Nonce, QueueName};
use std::collections::BTreeMap;

/// Most batches of requests that are remembered once they are served. More than can be served while one writer waits for the
/// answer to a write.
pub const JOB_BATCHES_MAX: usize = 512;

/// Most queues that have settings.
pub const JOB_QUEUES_MAX: usize = 256;

/// What somebody asks of the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    /// A new job.
    Submit(JobRecord),
    Cancel(JobId),
    /// A job that ended without success is tried again, up to these attempts in all, unless that was done so often already. It
    /// comes whole, because the ledger may have forgotten it.
    Retry(JobRecord),
    /// A job that is over leaves the ledger now.
    Remove(JobId),
}

impl Ask {
    /// The job it is about.
    pub fn job(&self) -> &JobId {
        match self {
            Ask::Submit(job) | Ask::Retry(job) => &job.id,
            Ask::Cancel(id) | Ask::Remove(id) => id,
        }
    }

    /// How much of [`JOB_OBJECT_MAX_WEIGHT`] it uses in the document of requests.
    pub fn weight(&self) -> usize {
        match self {
            Ask::Submit(job) | Ask::Retry(job) => job.payload.len() + job.names_len() + 256,
            Ask::Cancel(_) | Ask::Remove(_) => 256,
        }
    }
}

/// One thing that is asked of the leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    /// The batch it was asked with.
    pub batch: Nonce,
    pub ask: Ask,
}

/// What is set for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueSettings {
    /// Most jobs of this queue that are out at workers at once; `None` means any number.
    pub concurrency: Option<u32>,
    /// Nothing new of it is given to a worker.
    pub paused: bool,
}

/// What is asked of the leader. Anybody appends to it, as a guest; only the leader takes something out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RequestsDoc {
    /// In the order in which they were asked.
    pub entries: Vec<Asked>,
    /// The batches taken out last, at most [`JOB_BATCHES_MAX`]: who never got an answer to its write finds its batch here if it
    /// was written and served in the meantime.
    pub taken: Vec<Nonce>,
    /// Raised by whoever changed something elsewhere that the leader should look at.
    pub changes: u64,
    /// The queues with settings of their own, at most [`JOB_QUEUES_MAX`]. They stand here because the leader looks here anyway.
    pub queues: BTreeMap<QueueName, QueueSettings>,
}

impl RequestsDoc {
    /// How much of [`JOB_OBJECT_MAX_WEIGHT`] it uses.
    pub fn weight(&self) -> usize {
        self.entries.iter().map(|asked| asked.ask.weight()).sum::<usize>() + self.queues.len() * 192
    }

    /// The jobs it asks for, for the first time or again.
    pub fn submissions(&self) -> impl Iterator<Item = &JobRecord> {
        self.entries.iter().filter_map(|asked| match &asked.ask {
            Ask::Submit(job) | Ask::Retry(job) => Some(job),
            Ask::Cancel(_) | Ask::Remove(_) => None,
        })
    }

    /// Whether it asks for this job.
    pub fn submits(&self, id: &JobId) -> bool {
        self.submissions().any(|record| record.id == *id)
    }

    /// Whether this batch was written, served or not.
    pub fn has(&self, batch: Nonce) -> bool {
        self.taken.contains(&batch) || self.entries.iter().any(|asked| asked.batch == batch)
    }
}
