//! Orders: what anybody asks of the leader, and the document that they stand in.

#[cfg(doc)]
use super::super::model::JOB_OBJECT_MAX_WEIGHT;
use super::super::model::JobRecord;
use crate::id::{JobId, Nonce, QueueName};
use std::collections::BTreeMap;

/// Most batches of orders that are remembered once they are served. More than can be served while one writer waits for the
/// answer to a write.
pub const JOB_BATCHES_MAX: usize = 512;

/// Most queues that have settings.
pub const JOB_QUEUES_MAX: usize = 256;

/// What somebody asks of the leader: one thing about one job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// A new job.
    Submit(JobRecord),
    Cancel(JobId),
    /// A job that ended without success is tried again, up to these attempts in all, unless that was done so often already. It
    /// comes whole, because the ledger may have forgotten it.
    Retry(JobRecord),
    /// A job that is over leaves the ledger now.
    Remove(JobId),
}

impl Order {
    /// The job it is about.
    pub fn job(&self) -> &JobId {
        match self {
            Order::Submit(job) | Order::Retry(job) => &job.id,
            Order::Cancel(id) | Order::Remove(id) => id,
        }
    }

    /// How much of [`JOB_OBJECT_MAX_WEIGHT`] it uses in the document of orders.
    pub fn weight(&self) -> usize {
        match self {
            Order::Submit(job) | Order::Retry(job) => job.payload.len() + job.names_len() + 256,
            Order::Cancel(_) | Order::Remove(_) => 256,
        }
    }
}

/// An order, as it stands in the document.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BatchedOrder {
    /// The batch it came with.
    pub batch: Nonce,
    pub order: Order,
}

/// What is set for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueSettings {
    /// Most jobs of this queue that are out at workers at once; `None` means any number.
    pub concurrency: Option<u32>,
    /// Nothing new of it is given to a worker.
    pub paused: bool,
}

/// The orders to the leader. Anybody appends to it, as a guest; only the leader takes something out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct OrdersDoc {
    /// In the sequence in which they came.
    pub entries: Vec<BatchedOrder>,
    /// The batches taken out last, at most [`JOB_BATCHES_MAX`]: who never got an answer to its write finds its batch here if it
    /// was written and served in the meantime.
    pub taken: Vec<Nonce>,
    /// Raised by whoever changed something elsewhere that the leader should look at.
    pub changes: u64,
    /// The queues with settings of their own, at most [`JOB_QUEUES_MAX`]. They stand here because the leader looks here anyway.
    pub queues: BTreeMap<QueueName, QueueSettings>,
}

impl OrdersDoc {
    /// How much of [`JOB_OBJECT_MAX_WEIGHT`] it uses.
    pub fn weight(&self) -> usize {
        self.entries.iter().map(|entry| entry.order.weight()).sum::<usize>() + self.queues.len() * 192
    }

    /// The jobs it asks for, for the first time or again.
    pub fn submissions(&self) -> impl Iterator<Item = &JobRecord> {
        self.entries.iter().filter_map(|entry| match &entry.order {
            Order::Submit(job) | Order::Retry(job) => Some(job),
            Order::Cancel(_) | Order::Remove(_) => None,
        })
    }

    /// Whether it asks for this job.
    pub fn submits(&self, id: &JobId) -> bool {
        self.submissions().any(|record| record.id == *id)
    }

    /// Whether this batch was written, served or not.
    pub fn has(&self, batch: Nonce) -> bool {
        self.taken.contains(&batch) || self.entries.iter().any(|entry| entry.batch == batch)
    }
}
