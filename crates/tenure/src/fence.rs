//! The fence: whoever receives work from a former leader refuses it.
//!
//! A lease keeps a leader honest about itself, but cannot call back what the leader sent before it was paused. The receiver
//! can refuse that: every task carries the epoch of the leader that dispatched it, and a receiver that has heard of a newer
//! epoch rejects it.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! let guard = node.lead().await.ok_or("stopped")?;
//! let fence = node.fence(); // one for every receiver of tasks in this process
//!
//! let stamp = guard.stamp("report-7")?;
//! let permit = fence.admit(&stamp)?; // refused if a newer epoch is known
//! // … do the work …
//! permit.confirm()?; // right before it takes effect
//! # drop(guard);
//! # node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Not promised: a fence knows only what this process has heard. A receiver that was itself cut off judges by old news until
//! it hears of the new epoch, from the store or from the new leader's first task. Anything that must not be written twice
//! is fenced where it is written: [`sql`] in a database, [`http`] in a service, [`FencedDocument`](crate::FencedDocument) on
//! the store.

pub mod http;
pub mod sql;

use crate::clock::Clock;
use crate::guard::LeaderGuard;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::{Epoch, Verdict};

pub use tenure_core::FenceRule;

/// The highest possible epoch: 2⁵³ − 1. Nobody claims a higher one; a document with a higher one is damaged or forged.
pub const EPOCH_MAX: u64 = Epoch::MAX.0;

/// Judges epochs. Clones share one state; it takes no lock, and the usual case is one atomic read.
#[derive(Clone)]
pub struct Fence {
    state: Arc<State>,
}

struct State {
    rule: FenceRule,
    clock: Arc<dyn Clock>,
    /// The highest epoch heard of.
    known: AtomicU64,
    /// When it was first heard of, on this process's own clock.
    changed_ms: AtomicU64,
    /// Shared with the node's metrics.
    drift_events: Arc<AtomicU64>,
    /// Counted by this fence only.
    stale: AtomicU64,
    late: AtomicU64,
}

impl Fence {
    /// A fence that has heard of nothing yet.
    pub fn new(rule: FenceRule, clock: Arc<dyn Clock>) -> Fence {
        Fence::counting(rule, clock, Arc::default())
    }

    /// The same, with a counter of stale tasks that somebody else reads too.
    pub(crate) fn counting(rule: FenceRule, clock: Arc<dyn Clock>, drift_events: Arc<AtomicU64>) -> Fence {
        let state = State {
            rule,
            clock,
            known: AtomicU64::new(0),
            changed_ms: AtomicU64::new(0),
            drift_events,
            stale: AtomicU64::new(0),
            late: AtomicU64::new(0),
        };
        Fence { state: Arc::new(state) }
    }

    /// Records that there is a leader with this epoch. Lower epochs are old news and change nothing.
    pub fn observe(&self, epoch: u64) {
        let state = &*self.state;
        // An impossible epoch would shut out everybody.
        if epoch <= state.known.load(Ordering::Acquire) || epoch > EPOCH_MAX {
            return;
        }
        // The epoch first: a reader that sees it with the older time grants no grace, which is safe. The other way round, an
        // expired grace would be granted again for a moment.
        let before = state.known.fetch_max(epoch, Ordering::AcqRel);
        if before < epoch {
            state.changed_ms.fetch_max(state.clock.now_ms(), Ordering::AcqRel);
        }
    }

    /// Judges an epoch by itself: without a time of dispatch there is no grace.
    #[inline]
    pub fn check(&self, epoch: u64) -> Verdict {
        if epoch == self.state.known.load(Ordering::Acquire) {
            return Verdict::Accept;
        }
        self.judge(epoch, None)
    }

    /// Judges a task, with the grace that its time of dispatch may earn it.
    #[inline]
    pub fn check_task(&self, stamp: &TaskStamp) -> Verdict {
        // The usual case needs no clock: a task of the present leader is accepted whatever its age.
        if stamp.epoch == self.state.known.load(Ordering::Acquire) {
            return Verdict::Accept;
        }
        let now = jiff::Timestamp::now().as_millisecond();
        // A task from the future has no age: its sender's clock cannot be trusted with a grace.
        let age_ms = u64::try_from(now.saturating_sub(stamp.dispatched_at)).ok();
        self.judge(stamp.epoch, age_ms)
    }

    /// Judges an epoch from somebody who is not trusted to announce new leaders, such as a client of this process, by what
    /// this process itself has heard. A stale epoch is counted. A newer one is accepted, but not recorded as known:
    /// otherwise a made-up number would shut out everybody else.
    ///
    /// `dispatched_at` is when the task was dispatched, in milliseconds since 1970; without it there is no grace.
    pub fn judge_only(&self, epoch: u64, dispatched_at: Option<i64>) -> Verdict {
        let known = self.state.known.load(Ordering::Acquire);
        if (known..=EPOCH_MAX).contains(&epoch) {
            return Verdict::Accept;
        }
        let now = jiff::Timestamp::now().as_millisecond();
        let age_ms = dispatched_at.and_then(|at| u64::try_from(now.saturating_sub(at)).ok());
        self.judge_by_what_is_known(epoch, age_ms)
    }

    fn judge(&self, epoch: u64, age_ms: Option<u64>) -> Verdict {
        if self.state.rule.enabled && epoch <= EPOCH_MAX {
            self.observe(epoch);
        }
        self.judge_by_what_is_known(epoch, age_ms)
    }

    /// Counts and logs, in the words of the documents.
    fn judge_by_what_is_known(&self, epoch: u64, age_ms: Option<u64>) -> Verdict {
        let state = &*self.state;
        if !state.rule.enabled {
            return Verdict::Accept;
        }
        let known = state.known.load(Ordering::Acquire);
        if epoch > EPOCH_MAX {
            self.count_stale();
            tracing::warn!(target: "tenure", taskEpoch = epoch, currentEpoch = known, "Rejecting task from an impossible epoch");
            return Verdict::RejectStale;
        }
        let since_ms = state.clock.now_ms().saturating_sub(state.changed_ms.load(Ordering::Acquire));
        let verdict = state.rule.judge(Epoch(known), since_ms, Epoch(epoch), age_ms);
        match verdict {
            Verdict::Accept => {}
            Verdict::AcceptLate => {
                state.late.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(target: "tenure", taskEpoch = epoch, currentEpoch = known, "Accepting late task from the previous leader");
            }
            Verdict::RejectStale => {
                self.count_stale();
                tracing::warn!(target: "tenure", taskEpoch = epoch, currentEpoch = known, "Rejecting task from stale epoch");
            }
        }
        verdict
    }

    fn count_stale(&self) {
        self.state.drift_events.fetch_add(1, Ordering::Relaxed);
        self.state.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Tasks that this fence and its clones rejected, whoever shares its election.
    pub(crate) fn stale_tasks(&self) -> u64 {
        self.state.stale.load(Ordering::Relaxed)
    }

    /// Checks whether the task may be started. Use the permit to check again before the work takes effect.
    pub fn admit(&self, stamp: &TaskStamp) -> Result<Permit, Refused> {
        self.admitted(stamp)?;
        Ok(Permit { fence: self.clone(), stamp: stamp.clone() })
    }

    fn admitted(&self, stamp: &TaskStamp) -> Result<(), Refused> {
        if !self.check_task(stamp).is_accepted() {
            return Err(Refused::Stale { task: stamp.id.clone(), epoch: stamp.epoch, known: self.epoch() });
        }
        let now = jiff::Timestamp::now().as_millisecond();
        match stamp.deadline {
            Some(deadline) if now > deadline => {
                Err(Refused::Expired { task: stamp.id.clone(), late_ms: now.abs_diff(deadline) })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The highest epoch heard of; 0 if there was none.
    pub fn epoch(&self) -> u64 {
        self.state.known.load(Ordering::Acquire)
    }

    /// Tasks rejected for a stale epoch (wire: `epochDriftEvents`).
    pub fn drift_events(&self) -> u64 {
        self.state.drift_events.load(Ordering::Relaxed)
    }

    /// Tasks accepted late, within the grace.
    pub fn late_tasks(&self) -> u64 {
        self.state.late.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence(epoch {}, {} rejected)", self.epoch(), self.drift_events())
    }
}

/// What every dispatched task carries. Made from a leader's guard, so it always has an epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStamp {
    /// The task's id; whoever runs the task uses it to recognise a repetition.
    pub id: String,
    /// The epoch of the leader that dispatched it.
    pub epoch: u64,
    /// When it was dispatched, in milliseconds since 1970 on the leader's wall clock. Can only shorten a grace.
    pub dispatched_at: i64,
    /// When it is no longer worth doing, in milliseconds since 1970 on the leader's wall clock. A convenience: clocks that
    /// disagree move it, and nothing becomes unsafe if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
}

impl LeaderGuard {
    /// The stamp for a task dispatched now; refused once leadership has ended.
    pub fn stamp(&self, id: impl Into<String>) -> Result<TaskStamp, crate::LeadershipEnded> {
        self.check()?;
        let dispatched_at = jiff::Timestamp::now().as_millisecond();
        Ok(TaskStamp { id: id.into(), epoch: self.epoch(), dispatched_at, deadline: None })
    }
}

impl TaskStamp {
    /// Adds a deadline: this long after dispatch, the task is no longer worth doing.
    pub fn within(self, time: Duration) -> TaskStamp {
        let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        TaskStamp { deadline: Some(self.dispatched_at.saturating_add(ms)), ..self }
    }
}

/// Why a task must not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The task belongs to a former leader.
    #[error(
        "task {task:?} has epoch {epoch}, but the current epoch is {known}: it comes from a former leader"
    )]
    Stale {
        /// The id of the task.
        task: String,
        /// The epoch it carries.
        epoch: u64,
        /// The highest epoch known here.
        known: u64,
    },
    /// Its deadline has passed, by this machine's wall clock.
    #[error("task {task:?} is {late_ms} ms past its deadline")]
    Expired {
        /// The id of the task.
        task: String,
        /// How far it is past its deadline.
        late_ms: u64,
    },
}

/// A task that was admitted. Check it again right before the work takes effect: the leader may have changed in the meantime.
#[derive(Clone, Debug)]
pub struct Permit {
    fence: Fence,
    stamp: TaskStamp,
}

impl Permit {
    /// The stamp of the admitted task.
    pub fn stamp(&self) -> &TaskStamp {
        &self.stamp
    }

    /// Checks whether the work may still take effect.
    pub fn confirm(&self) -> Result<(), Refused> {
        self.fence.admitted(&self.stamp)
    }
}
