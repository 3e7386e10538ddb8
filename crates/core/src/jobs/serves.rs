//! Which jobs a worker takes, and what jobs need of a worker.

use super::AllowedCommand;
use crate::id::{KindName, Label, QueueName};
use std::collections::BTreeSet;

/// Most jobs that a worker takes at once.
pub const JOB_SLOTS_MAX: u32 = 256;

/// Most bytes of all names in what a worker serves.
pub const JOB_SERVES_MAX_BYTES: usize = 16 * 1024;

/// Where a worker is and what it can do, or what a job needs of its worker.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Labels {
    /// The worker's partition; if a job names none, any will do.
    pub partition: Option<Label>,
    /// The worker's domain; if a job names none, any will do.
    pub domain: Option<Label>,
    /// What the worker can do; it must have all that a job names.
    pub capabilities: BTreeSet<Label>,
}

impl Labels {
    /// The bytes of all labels.
    pub(super) fn len(&self) -> usize {
        let labels = self.partition.iter().chain(&self.domain).chain(&self.capabilities);
        labels.map(|label| label.as_str().len() + 4).sum()
    }
}

/// Which jobs a worker takes, and how many at once.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Serves {
    /// Only jobs of these queues; empty: of every queue.
    pub queues: BTreeSet<QueueName>,
    /// Only jobs of these kinds; empty: of every kind.
    pub kinds: BTreeSet<KindName>,
    /// Most jobs that it takes at once, including those that wait in its inbox.
    pub slots: u32,
    /// What it has, for jobs that need something.
    pub labels: Labels,
    /// The commands that it allows.
    pub commands: BTreeSet<AllowedCommand>,
}

impl Serves {
    /// Every queue and every kind, this many at once.
    pub fn anything(slots: u32) -> Serves {
        Serves {
            queues: BTreeSet::new(),
            kinds: BTreeSet::new(),
            slots,
            labels: Labels::default(),
            commands: BTreeSet::new(),
        }
    }

    /// Whether it takes jobs of this queue.
    pub fn takes_queue(&self, queue: &QueueName) -> bool {
        self.queues.is_empty() || self.queues.contains(queue)
    }

    /// Whether it takes jobs of this kind.
    pub fn takes_kind(&self, kind: &KindName) -> bool {
        self.kinds.is_empty() || self.kinds.contains(kind)
    }

    /// Whether it allows this command.
    pub fn allows(&self, command: &[String]) -> bool {
        self.commands.iter().any(|allowed| allowed.allows(command))
    }

    /// The bytes of all names and commands.
    pub fn names_len(&self) -> usize {
        let queues = self.queues.iter().map(QueueName::as_str);
        let names = queues.chain(self.kinds.iter().map(KindName::as_str));
        let names = names.chain(self.commands.iter().map(AllowedCommand::as_str));
        names.map(|name| name.len() + 4).sum::<usize>() + self.labels.len()
    }
}
