//! What a leader does for its cluster, built on Tenure's public API only: whatever is here, anybody could have written.

pub mod cluster_health;
pub mod poll;
