//! What a leader does for its cluster, built on Tenure's public API only: whatever is here, anybody could have written.

pub mod cluster_health;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod poll;
