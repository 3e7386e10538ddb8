//! What runs in a schedule besides the election, and what must have become of it in the end.

pub(crate) mod jobs;
pub(crate) mod workers;
