//! What can go wrong; each kind can be switched on and off by itself.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// One kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum FaultKind { $($(#[$doc])* $kind,)* }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];

            /// The name on the command line and in reports.
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Latency from a heavy-tailed distribution; now and then longer than any timeout.
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
    /// A run of 500 and 503 although the writes happened.
    UnknownLanded = "unknown-landed",
    /// A run of 500 and 503 where the writes did not happen.
    UnknownNotLanded = "unknown-not-landed",
    /// Permission denied.
    Denied = "denied",
    /// A list that shows an earlier state.
    StaleList = "stale-list",
    /// A node's requests do not arrive.
    CutOff = "cut-off",
    /// A node's requests arrive, but the answers do not.
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
    /// Clocks stand still, race or leap beyond all promises; only the promises about epochs still hold.
    WildClock = "wild-clock",
    /// Somebody overwrites the seat with garbage.
    SeatCorrupt = "seat-corrupt",
    /// Somebody overwrites the seat with a record of a newer version.
    SeatNewer = "seat-newer",
    /// Somebody overwrites the seat with a stranger's record.
    SeatForeign = "seat-foreign",
    /// An operator deletes the seat.
    SeatDeleted = "seat-deleted",
    /// An operator restores the seat from a backup, under its old version or a new one.
    SeatRestored = "seat-restored",
    /// An operator deletes a presence.
    PresenceDeleted = "presence-deleted",
    /// A new node joins.
    Join = "join",
    /// A node leaves in order, and may come back.
    Leave = "leave",
    /// A leader is asked to step down.
    StepDown = "step-down",
    /// Somebody outside marks the seat, so that its holder steps down.
    Mark = "mark",
    /// A second process runs under the id of another.
    Twin = "twin",
    /// Nodes run with different settings.
    MixedSettings = "mixed-settings",
    /// Work takes all the time it has to stop.
    SlowWork = "slow-work",
    /// Work ignores the request to stop, and ends by its own deadline.
    StuckWork = "stuck-work",
    /// Replaced wake-ups still come.
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
    /// Somebody overwrites a worker's object with garbage.
    WorkerCorrupt = "worker-corrupt",
    /// An operator deletes a worker's object.
    WorkerDeleted = "worker-deleted",
    /// Somebody overwrites the snapshot with garbage.
    SnapshotCorrupt = "snapshot-corrupt",
    /// A leader-only process ends by itself, fails or panics.
    ProcessFails = "process-fails",
    /// A job fails, or takes longer than it may.
    JobFails = "job-fails",
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kinds that may strike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FaultMix(u64);

impl FaultMix {
    /// No kind may strike.
    pub fn calm() -> FaultMix {
        FaultMix(0)
    }

    /// Every kind may strike.
    pub fn all() -> FaultMix {
        FaultKind::ALL.iter().fold(FaultMix::calm(), |mix, kind| mix.with(*kind))
    }

    /// Adds this kind.
    #[must_use]
    pub fn with(self, kind: FaultKind) -> FaultMix {
        FaultMix(self.0 | 1 << kind as u64)
    }

    /// Removes this kind.
    #[must_use]
    pub fn without(self, kind: FaultKind) -> FaultMix {
        FaultMix(self.0 & !(1 << kind as u64))
    }

    /// Whether this kind may strike.
    pub fn has(self, kind: FaultKind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    /// The kinds that are in both.
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

    /// The kinds with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        FaultKind::ALL.iter().map(|kind| (*kind, self.0[*kind as usize]))
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
