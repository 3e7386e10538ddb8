//! Teeth: realistic mistakes around a command that the judge of `cargo xtask exec` must find guilty.
//!
//! They exist in test builds only (feature `teeth`); without it [`ExecMutant::on`] is a constant `false`, and nobody can
//! choose one.

/// A deliberately broken variant of the keeper or of whoever starts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExecMutant {
    /// The keeper has no deadline of its own: it waits for a word from `tenure`.
    KeeperWithoutDeadline,
    /// The keeper does not mind that the line to `tenure` was closed.
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

impl ExecMutant {
    /// All of them.
    #[cfg(feature = "teeth")]
    pub(crate) const ALL: [ExecMutant; 8] = [
        ExecMutant::KeeperWithoutDeadline,
        ExecMutant::LineIgnored,
        ExecMutant::OnlyTold,
        ExecMutant::OnlyTheChild,
        ExecMutant::NoSubreaper,
        ExecMutant::TableTrusted,
        ExecMutant::StartedBesideTheOld,
        ExecMutant::EndedWhenTold,
    ];

    /// The mistake of this name.
    #[cfg(feature = "teeth")]
    pub(crate) fn named(name: &str) -> Option<ExecMutant> {
        ExecMutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name)
    }

    /// Whether this process has that mistake. A keeper gets it from whoever started it.
    #[cfg(feature = "teeth")]
    pub(crate) fn on(self) -> bool {
        use std::sync::OnceLock;
        static CHOSEN: OnceLock<Option<ExecMutant>> = OnceLock::new();
        let chosen = || ExecMutant::named(&std::env::var(crate::run::BROKEN).ok()?);
        *CHOSEN.get_or_init(chosen) == Some(self)
    }

    /// Whether this process has that mistake: it does not.
    #[cfg(not(feature = "teeth"))]
    #[inline(always)]
    pub(crate) const fn on(self) -> bool {
        false
    }
}
