//! What a caller of the core must not do, done on purpose.

/// A mistake of the caller, made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallerMistake {
    /// Work is reported as stopped when it was only told to stop.
    StoppedToldTooSoon,
    /// Work does not check its deadline.
    DeadlineUnchecked,
    /// The clock stands still while the machine sleeps.
    ClockSleeps,
    /// Half a lease of the settings is taken for the one in the seat: the deadline handed to work is too late.
    DeadlineDoubled,
    /// The snapshot of the workers is written unconditionally.
    SnapshotUnconditional,
    /// A worker writes its inbox unconditionally.
    ClaimUnconditional,
    /// A job gets a different name at each attempt to create it, and no watermark.
    JobNamedAnew,
}

impl CallerMistake {
    /// All mistakes.
    pub const ALL: &[CallerMistake] = &[
        CallerMistake::StoppedToldTooSoon,
        CallerMistake::DeadlineUnchecked,
        CallerMistake::ClockSleeps,
        CallerMistake::DeadlineDoubled,
        CallerMistake::SnapshotUnconditional,
        CallerMistake::ClaimUnconditional,
        CallerMistake::JobNamedAnew,
    ];
}
