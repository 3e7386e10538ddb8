//! What a leader does for its cluster. Built only on Tenure's public API, so anybody could have written it.

pub mod checks;
pub mod cluster_health;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod schedules;
pub mod terms;
pub mod work;
