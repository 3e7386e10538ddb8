//! How much clients may make the node ask the store.

use crate::problem::Problem;
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// A token bucket: one for the whole server, for what is bounded is what the store is asked, whoever asks.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    level: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(crate) fn new(per_second: f64, burst: f64) -> Bucket {
        Bucket { per_second, burst, level: Mutex::new((burst, Instant::now())) }
    }

    /// Takes so many, or says when they will be there.
    pub(crate) fn take(&self, count: f64) -> Result<(), Problem> {
        let count = count.min(self.burst);
        let now = Instant::now();
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = now.duration_since(level.1).as_secs_f64() * self.per_second;
        *level = ((level.0 + gained).min(self.burst), now);
        if level.0 >= count {
            level.0 -= count;
            return Ok(());
        }
        let wait_s = ((count - level.0) / self.per_second.max(f64::MIN_POSITIVE)).ceil();
        Err(Problem::too_many((wait_s as u64).clamp(1, 3600)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_rate_and_the_time_to_wait_is_told() {
        let bucket = Bucket::new(2.0, 10.0);
        for _ in 0..5 {
            assert!(bucket.take(2.0).is_ok());
        }
        assert_eq!(bucket.take(3.0).expect_err("empty").retry_after, Some(2));
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert!(bucket.take(3.0).is_ok());
        assert!(bucket.take(0.5).is_err(), "nothing is left");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(bucket.take(1000.0).is_ok(), "more than fits is taken as all there is");
        assert!(bucket.take(1.0).is_err(), "an hour gives no more than a burst");
    }
}
