//! What can go wrong, each kind to be switched on and off by itself.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// One kind of misfortune.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            /// Every kind there is.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];

            /// The name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Latency from a heavy-tailed distribution, beyond every timeout now and then.
    SlowNetwork = "slow-network",
    /// The request never arrives.
    LostRequest = "lost-request",
    /// The request takes effect; its answer never arrives.
    LostAnswer = "lost-answer",
    /// The write happens long after its sender gave up.
    LateLanding = "late-landing",
    /// The write happens, and the client's own retry is answered 412.
    RetryEcho = "retry-echo",
    /// A run of 409 and refused connections: nothing happened.
    Unavailable = "unavailable",
    /// A run of 500 and 503, the write having happened.
    UnknownLanded = "unknown-landed",
    /// A run of 500 and 503, the write not having happened.
    UnknownNotLanded = "unknown-not-landed",
    /// Permission denied.
    Denied = "denied",
    /// A list that shows the past.
    StaleList = "stale-list",
    /// Requests of a node do not arrive.
    CutOff = "cut-off",
    /// Requests of a node arrive, answers do not.
    AnswersCutOff = "answers-cut-off",
    /// A process dies.
    Crash = "crash",
    /// A process dies between two effects of one step.
    CrashMidway = "crash-midway",
    /// A process stands still for milliseconds to minutes while its clock goes on: scheduling, suspend, migration.
    Pause = "pause",
    /// Clocks run up to 20 % fast or slow, as far as the settings tolerate, and change their rate.
    Drift = "drift",
    /// A clock jumps forward, as far as the settings tolerate.
    ClockJump = "clock-jump",
    /// Clocks stand still, race or leap beyond all promises; only epochs are held to theirs then.
    WildClock = "wild-clock",
    /// Somebody overwrites the seat with rubbish.
    SeatCorrupt = "seat-corrupt",
    /// Somebody overwrites the seat with a record of a newer version.
    SeatNewer = "seat-newer",
    /// Somebody overwrites the seat with a record of a stranger.
    SeatForeign = "seat-foreign",
    /// An operator deletes the seat.
    SeatDeleted = "seat-deleted",
    /// An operator restores the seat from a backup, under its old version or a new one.
    SeatRestored = "seat-restored",
    /// An operator deletes a presence.
    PresenceDeleted = "presence-deleted",
    /// A node joins that was not there before.
    Join = "join",
    /// A node leaves in order, and may come back.
    Leave = "leave",
    /// A leader is asked to hand over.
    StepDown = "step-down",
    /// Somebody outside marks the seat, so that whoever holds it steps down.
    Mark = "mark",
    /// A second process runs under the id of another.
    Twin = "twin",
    /// Nodes run by different settings.
    MixedSettings = "mixed-settings",
    /// Work takes all the time it is given to stop.
    SlowWork = "slow-work",
    /// Work ignores that it should stop, and ends by its own deadline.
    StuckWork = "stuck-work",
    /// Wake-ups that were replaced come all the same.
    StaleWake = "stale-wake",
    /// The store's servers disagree about the time, within the margin.
    StoreSkew = "store-skew",
    /// A worker's process dies.
    WorkerCrash = "worker-crash",
    /// A worker's process stands still while its clock goes on.
    WorkerPause = "worker-pause",
    /// A worker deregisters, and may come back.
    WorkerLeave = "worker-leave",
    /// A second process runs under the id of a worker.
    WorkerTwin = "worker-twin",
    /// Somebody overwrites a worker's object with rubbish.
    WorkerCorrupt = "worker-corrupt",
    /// An operator deletes a worker's object.
    WorkerDeleted = "worker-deleted",
    /// Somebody overwrites the snapshot with rubbish.
    SnapshotCorrupt = "snapshot-corrupt",
    /// A leader-only process ends by itself, fails or panics.
    ProcessFails = "process-fails",
    /// A task fails, or takes longer than it may.
    TaskFails = "task-fails",
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which kinds may strike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FaultMix(u64);

impl FaultMix {
    /// Nothing goes wrong.
    pub fn calm() -> FaultMix {
        FaultMix(0)
    }

    /// Everything may.
    pub fn all() -> FaultMix {
        FaultKind::ALL.iter().fold(FaultMix::calm(), |mix, kind| mix.with(*kind))
    }

    /// The same and this kind.
    #[must_use]
    pub fn with(self, kind: FaultKind) -> FaultMix {
        FaultMix(self.0 | 1 << kind as u64)
    }

    /// The same without this kind.
    #[must_use]
    pub fn without(self, kind: FaultKind) -> FaultMix {
        FaultMix(self.0 & !(1 << kind as u64))
    }

    /// Whether this kind may strike.
    pub fn has(self, kind: FaultKind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    /// What may strike in both.
    #[must_use]
    pub fn and(self, other: FaultMix) -> FaultMix {
        FaultMix(self.0 & other.0)
    }
}

/// How often each kind struck.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultCounts(pub(crate) [u64; 64]);

impl Default for FaultCounts {
    fn default() -> FaultCounts {
        FaultCounts([0; 64])
    }
}

impl FaultCounts {
    pub(crate) fn add(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &FaultCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    /// Kinds with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        FaultKind::ALL.iter().map(|kind| (*kind, self.0[*kind as usize]))
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_switched_by_itself() {
        for kind in FaultKind::ALL {
            assert!(FaultMix::calm().with(*kind).has(*kind));
            let without = FaultMix::all().without(*kind);
            assert!(FaultKind::ALL.iter().all(|other| without.has(*other) == (other != kind)));
        }
    }
}
