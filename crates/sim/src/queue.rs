//! What is to happen, in order of true time.

use crate::world::Happening;

/// Something that happens to a node, or a worker.
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) sequence: u64,
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}
