//! How much clients may make the node ask the store.

use crate::problem::Problem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure::store::Meter;
use tokio::time::Instant;

/// Reads leave this share of a burst to what changes something: a step-down that waits as long as it may fits into it.
const RESERVE: f64 = 0.6;

/// Searches are at least this far apart.
const SEARCH_PAUSE: Duration = Duration::from_secs(2);

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

    /// Takes so many for something that changes the state of things, or says when they will be there.
    pub(crate) fn take(&self, count: f64) -> Result<(), Problem> {
        self.take_leaving(count, 0.0)
    }

    /// The same for a read, which never takes the last: nobody who only looks keeps others from acting.
    pub(crate) fn take_to_read(&self, count: f64) -> Result<(), Problem> {
        self.take_leaving(count, self.burst * RESERVE)
    }

    fn take_leaving(&self, count: f64, left: f64) -> Result<(), Problem> {
        let needed = (count + left).min(self.burst);
        let count = count.min(self.burst);
        let now = Instant::now();
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = now.duration_since(level.1).as_secs_f64() * self.per_second;
        *level = ((level.0 + gained).min(self.burst), now);
        if level.0 >= needed {
            level.0 -= count;
            return Ok(());
        }
        let wait_s = ((needed - level.0) / self.per_second.max(f64::MIN_POSITIVE)).ceil();
        Err(Problem::too_many((wait_s as u64).clamp(1, 3600)))
    }
}

/// The turns of a search that may take hundreds of requests: one at a time, and after it a pause that is the longer the more
/// it asked for. It takes nothing from the bucket.
#[derive(Debug)]
pub(crate) struct Turns {
    per_request: Duration,
    /// When the next may begin; none while one is under way.
    next: Arc<Mutex<Option<Instant>>>,
}

/// One turn. It ends when it is dropped.
pub(crate) struct Turn {
    per_request: Duration,
    next: Arc<Mutex<Option<Instant>>>,
    /// Counts what the search asks for.
    pub(crate) meter: Meter,
}

impl Turns {
    pub(crate) fn new(per_request: Duration) -> Turns {
        Turns { per_request, next: Arc::new(Mutex::new(Some(Instant::now()))) }
    }

    /// The turn, or when to try again.
    pub(crate) fn take(&self) -> Result<Turn, Problem> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *next {
            Some(at) if at <= now => {}
            Some(at) => {
                let wait_s = (at - now).as_secs_f64().ceil();
                return Err(Problem::searches((wait_s as u64).clamp(1, 3600)));
            }
            None => return Err(Problem::searches(SEARCH_PAUSE.as_secs())),
        }
        *next = None;
        Ok(Turn { per_request: self.per_request, next: Arc::clone(&self.next), meter: Meter::default() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let requests = u32::try_from(self.meter.snapshot().requests()).unwrap_or(u32::MAX);
        let pause = SEARCH_PAUSE.max(self.per_request.saturating_mul(requests));
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[tokio::test(start_paused = true)]
    async fn reads_leave_enough_for_a_step_down() {
        let bucket = Bucket::new(25.0, 100.0);
        while bucket.take_to_read(4.0).is_ok() {}
        assert_eq!(bucket.take_to_read(4.0).expect_err("the rest is not for reads").retry_after, Some(1));
        assert!(bucket.take(55.0).is_ok(), "the dearest there is");
    }

    #[tokio::test(start_paused = true)]
    async fn one_search_at_a_time_and_a_pause_after_each() {
        let turns = Turns::new(Duration::from_millis(250));
        let turn = turns.take().expect("the first");
        assert!(turns.take().is_err(), "one is under way");
        drop(turn);
        assert_eq!(turns.take().err().expect("too soon").retry_after, Some(2));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(turns.take().is_ok());
    }
}
