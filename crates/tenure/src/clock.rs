//! Clocks. Leases run on a clock that keeps counting while the machine sleeps.
//!
//! Every node uses its own [`BootClock`] unless it is given another one, as tests on paused time do with [`TokioClock`]. No node ever
//! compares its clock with another's, and no decision depends on the time of day.
//!
//! ```
//! use tenure::clock::{BootClock, Clock};
//!
//! let began_ms = BootClock.now_ms();
//! // … work …
//! let took_ms = BootClock.now_ms() - began_ms;
//! # assert!(took_ms < 60_000);
//! ```
//!
//! Not promised: that two machines' clocks run equally fast. The lease terms tolerate a drift of 50 % by default.

use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A duration in whole milliseconds, as clocks count and documents have them.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds from any fixed origin. Never goes back, and keeps counting while the machine is suspended.
pub trait Clock: Send + Sync + Debug + 'static {
    /// The present time in milliseconds.
    fn now_ms(&self) -> u64;

    /// Whether the runtime's timers may fall behind this clock, as they do when the machine is suspended. If so, a leader
    /// checks the clock more often than its next deadline alone would require.
    fn outruns_timers(&self) -> bool {
        true
    }
}

/// The machine's boot-time clock (`CLOCK_BOOTTIME`).
///
/// `std::time::Instant` stops while a machine is suspended: after an hour with its lid closed, a laptop would go on trusting
/// its old lease for another two seconds. Where there is no such clock, the monotonic one is used.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now_ms(&self) -> u64 {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(id);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
    }
}

/// The runtime's clock, for tests on paused time.
#[derive(Clone, Debug)]
pub struct TokioClock(tokio::time::Instant);

impl TokioClock {
    /// A clock that starts now.
    pub fn new() -> Arc<TokioClock> {
        Arc::new(TokioClock(tokio::time::Instant::now()))
    }
}

impl Clock for TokioClock {
    fn now_ms(&self) -> u64 {
        millis(self.0.elapsed())
    }

    fn outruns_timers(&self) -> bool {
        false
    }
}

/// A clock that a test can stop, to play a leader that is paused: its guard still holds while another node leads, but the store
/// refuses what it writes.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tenure::clock::{Clock, StoppableClock, TokioClock};
/// use tenure::store::{Lanes, MemoryStore};
/// use tenure::{FencedDocument, Node, Settings};
///
/// #[derive(Serialize, Deserialize)]
/// struct Quota { left: u64 }
///
/// async fn join(name: &str, lanes: &Lanes, clock: Arc<dyn Clock>) -> Result<Node, Box<dyn std::error::Error>> {
///     let settings = Settings::builder().node(name).startup_jitter_max(Duration::ZERO).build()?;
///     Ok(Node::builder(settings).lanes(lanes.clone()).clock(clock).start().await?)
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let lanes = Lanes::same(Arc::new(MemoryStore::new()));
/// let name = "quota".parse()?;
/// let clock = StoppableClock::new(TokioClock::new());
/// let a = join("pod-a", &lanes, clock.clone()).await?;
/// let guard_a = a.lead().await.ok_or("stopped")?;
/// let mut of_a = FencedDocument::<Quota>::open(&a.documents(), &name, &guard_a).await?;
/// let b = join("pod-b", &lanes, TokioClock::new()).await?;
///
/// clock.stop(); // pod-a is paused …
/// let guard_b = b.lead().await.ok_or("stopped")?; // … and pod-b takes over
/// let of_b = FencedDocument::<Quota>::open(&b.documents(), &name, &guard_b).await?;
///
/// assert!(guard_a.is_valid()); // pod-a still thinks it leads
/// let refused = of_a.put(&guard_a, Quota { left: 99 }).await.unwrap_err();
/// assert!(refused.is_fenced());
///
/// clock.resume(); // it jumps to the present
/// assert!(!guard_a.is_valid());
/// # drop((of_b, guard_b));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct StoppableClock {
    clock: Arc<dyn Clock>,
    stopped_ms: Mutex<Option<u64>>,
}

impl StoppableClock {
    /// Follows this clock until it is stopped.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<StoppableClock> {
        Arc::new(StoppableClock { clock, stopped_ms: Mutex::default() })
    }

    /// Stands still from now on.
    pub fn stop(&self) {
        self.stopped_ms.lock().get_or_insert_with(|| self.clock.now_ms());
    }

    /// Follows the other clock again.
    pub fn resume(&self) {
        *self.stopped_ms.lock() = None;
    }
}

impl Clock for StoppableClock {
    fn now_ms(&self) -> u64 {
        self.stopped_ms.lock().unwrap_or_else(|| self.clock.now_ms())
    }
}
