//! What a caller of the core must not do, done on purpose.

/// A duty of the caller that is neglected on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Neglect {
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

impl Neglect {
    /// All neglected duties.
    pub const ALL: &[Neglect] = &[
        Neglect::StoppedToldTooSoon,
        Neglect::DeadlineUnchecked,
        Neglect::ClockSleeps,
        Neglect::DeadlineDoubled,
        Neglect::SnapshotUnconditional,
        Neglect::ClaimUnconditional,
        Neglect::JobNamedAnew,
    ];
}
