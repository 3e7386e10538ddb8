//! Limits how many store requests clients may cause.

use crate::problem::Problem;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use tenure::store::Meter;
use tokio::time::Instant;

/// The share of a burst that reads leave to changes. A step-down with the longest wait fits into it.
const RESERVE: f64 = 0.6;

/// The shortest time between two searches.
const SEARCH_PAUSE: Duration = Duration::from_secs(2);

/// The largest share of the rate that workers may reserve: the rest stays for requests.
const WORKERS_SHARE: f64 = 0.8;

/// A token bucket. There is one for the whole server, because the limit is on the load on the store, whoever causes it.
#[derive(Debug)]
pub(crate) struct RateLimit {
    per_second: f64,
    burst: f64,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    left: f64,
    at: Instant,
    /// The part of the rate that workers have reserved.
    reserved: f64,
}

/// A reserved part of the rate, released on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    rate_limit: Arc<RateLimit>,
    per_second: f64,
}

impl RateLimit {
    pub(crate) fn new(per_second: f64, burst: f64) -> RateLimit {
        let level = Level { left: burst, at: Instant::now(), reserved: 0.0 };
        RateLimit { per_second, burst, level: Mutex::new(level) }
    }

    /// Takes tokens for a change, or says when there will be enough.
    pub(crate) fn take(&self, count: f64) -> Result<(), Problem> {
        self.take_leaving(count, 0.0)
    }

    /// Takes tokens for a read, which never takes the last ones: nobody who only looks keeps others from acting.
    pub(crate) fn take_to_read(&self, count: f64) -> Result<(), Problem> {
        self.take_leaving(count, self.burst * RESERVE)
    }

    /// Reserves a part of the rate for periodic store requests. `None`: not enough is left.
    pub(crate) fn reserve(self: &Arc<RateLimit>, per_second: f64) -> Option<Reserved> {
        let mut level = self.filled();
        // Tolerate rounding: sums of fractions are slightly off.
        if level.reserved + per_second > self.per_second * WORKERS_SHARE + 1e-6 {
            return None;
        }
        level.reserved += per_second;
        Some(Reserved { rate_limit: Arc::clone(self), per_second })
    }

    /// Refills the level up to now.
    fn filled(&self) -> MutexGuard<'_, Level> {
        let mut level = self.level.lock();
        let now = Instant::now();
        let gained = now.duration_since(level.at).as_secs_f64() * (self.per_second - level.reserved);
        (level.left, level.at) = ((level.left + gained).min(self.burst), now);
        level
    }

    fn take_leaving(&self, count: f64, left: f64) -> Result<(), Problem> {
        let needed = (count + left).min(self.burst);
        let count = count.min(self.burst);
        let mut level = self.filled();
        if level.left >= needed {
            level.left -= count;
            return Ok(());
        }
        let per_second = (self.per_second - level.reserved).max(f64::MIN_POSITIVE);
        Err(Problem::too_many(seconds((needed - level.left) / per_second)))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut level = self.rate_limit.filled();
        level.reserved = (level.reserved - self.per_second).max(0.0);
    }
}

/// The value of `Retry-After`.
fn seconds(wait_s: f64) -> u64 {
    (wait_s.ceil() as u64).clamp(1, 3600)
}

/// Allows one action per interval.
#[derive(Debug)]
pub(crate) struct MinInterval {
    pause: Duration,
    last: Mutex<Option<Instant>>,
}

impl MinInterval {
    pub(crate) fn new(pause: Duration) -> MinInterval {
        MinInterval { pause, last: Mutex::default() }
    }

    /// Allows the action, or says when to try again.
    pub(crate) fn take(&self) -> Result<(), Problem> {
        let mut last = self.last.lock();
        let gone = last.map_or(self.pause, |last| last.elapsed());
        if gone < self.pause {
            return Err(Problem::too_soon(self.pause, seconds((self.pause - gone).as_secs_f64())));
        }
        *last = Some(Instant::now());
        Ok(())
    }
}

/// Limits searches that may take hundreds of requests: one at a time, each followed by a pause that grows with the number of
/// requests it made. Searches take nothing from the token bucket.
#[derive(Debug)]
pub(crate) struct SearchLimit {
    per_request: Duration,
    /// When the next search may begin; `None` while one is running.
    next: Arc<Mutex<Option<Instant>>>,
}

/// Leave to search. Dropping it ends the search.
pub(crate) struct SearchPermit {
    per_request: Duration,
    next: Arc<Mutex<Option<Instant>>>,
    pub(crate) meter: Meter,
}

impl SearchLimit {
    pub(crate) fn new(per_request: Duration) -> SearchLimit {
        SearchLimit { per_request, next: Arc::new(Mutex::new(Some(Instant::now()))) }
    }

    /// Allows a search, or says when to try again.
    pub(crate) fn take(&self) -> Result<SearchPermit, Problem> {
        let mut next = self.next.lock();
        let now = Instant::now();
        match *next {
            Some(at) if at <= now => {}
            Some(at) => {
                return Err(Problem::searches(seconds((at - now).as_secs_f64())));
            }
            None => return Err(Problem::searches(SEARCH_PAUSE.as_secs())),
        }
        *next = None;
        Ok(SearchPermit {
            per_request: self.per_request,
            next: Arc::clone(&self.next),
            meter: Meter::default(),
        })
    }
}

impl Drop for SearchPermit {
    fn drop(&mut self) {
        let requests = u32::try_from(self.meter.snapshot().requests()).unwrap_or(u32::MAX);
        let pause = SEARCH_PAUSE.max(self.per_request.saturating_mul(requests));
        *self.next.lock() = Some(Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_rate_and_the_time_to_wait_is_told() {
        let rate_limit = RateLimit::new(2.0, 10.0);
        for _ in 0..5 {
            assert!(rate_limit.take(2.0).is_ok());
        }
        assert_eq!(rate_limit.take(3.0).expect_err("empty").retry_after, Some(2));
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert!(rate_limit.take(3.0).is_ok());
        assert!(rate_limit.take(0.5).is_err(), "nothing is left");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(rate_limit.take(1000.0).is_ok(), "more than fits is taken as all there is");
        assert!(rate_limit.take(1.0).is_err(), "an hour gives no more than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn reads_leave_enough_for_a_step_down() {
        let rate_limit = RateLimit::new(25.0, 100.0);
        while rate_limit.take_to_read(4.0).is_ok() {}
        assert_eq!(rate_limit.take_to_read(4.0).expect_err("the rest is not for reads").retry_after, Some(1));
        assert!(rate_limit.take(55.0).is_ok(), "the dearest there is");
    }

    #[tokio::test(start_paused = true)]
    async fn what_workers_take_of_the_rate_is_gone_for_requests_until_they_leave() {
        let rate_limit = Arc::new(RateLimit::new(10.0, 10.0));
        assert!(rate_limit.take(10.0).is_ok());
        let kept: Vec<Reserved> = (0..8).map(|_| rate_limit.reserve(1.0).expect("four fifths")).collect();
        assert!(rate_limit.reserve(1.0).is_none(), "something is left for requests");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(rate_limit.take(3.0).expect_err("two a second").retry_after, Some(1));
        assert!(rate_limit.take(2.0).is_ok());
        drop(kept);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(rate_limit.take(10.0).is_ok(), "ten a second again");
        assert!(rate_limit.reserve(8.0).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn once_in_a_while() {
        let interval = MinInterval::new(Duration::from_secs(10));
        assert!(interval.take().is_ok());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(interval.take().expect_err("too soon").retry_after, Some(7));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(interval.take().is_ok(), "a refusal does not count");
    }

    #[tokio::test(start_paused = true)]
    async fn one_search_at_a_time_and_a_pause_after_each() {
        let searches = SearchLimit::new(Duration::from_millis(250));
        let search = searches.take().expect("the first");
        assert!(searches.take().is_err(), "one is under way");
        drop(search);
        assert_eq!(searches.take().err().expect("too soon").retry_after, Some(2));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(searches.take().is_ok());
    }
}
