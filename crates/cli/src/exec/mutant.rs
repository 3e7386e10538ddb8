//! Mutants: realistic mistakes around a command that the judge of `cargo xtask exec` must find guilty.
//!
//! They exist in test builds only (feature `teeth`); without it [`ExecMutant::on`] is a constant `false`. A keeper gets its
//! mistake from whoever started it, by the environment.

tenure::mutants! {
/// A deliberately broken variant of the keeper or of whoever starts it.
pub(crate) enum ExecMutant {
    /// The keeper has no deadline of its own: it waits for a word from `tenure`.
    KeeperWithoutDeadline,
    /// The keeper does not mind that the channel to `tenure` was closed.
    LineIgnored,
    /// The command is told to end, and never killed.
    OnlyTold,
    /// The command alone is ended, not what it started.
    OnlyTheChild,
    /// Neither `tenure` nor the keeper takes in what loses its parent.
    NoSubreaper,
    /// The keeper ends when the table of processes shows nothing below it: what forked meanwhile is not in it.
    TableTrusted,
    /// What a killed keeper leaves behind is left alone, and the command started again.
    StartedBesideTheOld,
    /// A command that was told to stop is taken for one that has ended, and the seat vacated.
    EndedWhenTold,
}
}
