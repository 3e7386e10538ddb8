//! The choice of a seat: by which of two seats a plugin may act.
//!
//! A plugin in global mode acts by the namespace's seat, as long as its process may write that seat. If the store
//! refuses, the process leaves that election for good, and a seat of the plugin's own takes over. The switch is one-way:
//! only a restart of the process undoes it.
//!
//! Two processes may then contend for one plugin, one through each seat. Whoever wins one seat looks at the other *before*
//! acting, and acts only once a look that was **answered** after the win shows the other seat free. If both win at the same
//! time, each sees the other: the holder of the global seat waits, and the plugin's own candidate yields.
//!
//! Epochs never go down from one seat to the other, so one fence serves both: the plugin's own candidate starts above every
//! epoch the plugin has heard of, and a leader whose epoch is not above the other seat's claims again, higher.
//!
//! # What is not promised
//!
//! A process that may not even *read* the global seat cannot know whether somebody leads by it; it carries on with its own.

use crate::election::Epoch;
use crate::fallback::seat_observer::SeatUse;
use crate::mutants::Mutant;

/// The seat that lets a plugin act.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WhichSeat {
    /// The namespace's seat.
    Global,
    /// The plugin's own seat.
    Own,
}

/// Inputs of [`SeatChoice::handle`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatChoiceInput {
    /// The store refuses this process the global seat. The process no longer takes part in that election, and nothing acts
    /// in its name.
    Refused,
    /// What an answered look at the global seat showed. Sent only after the refusal.
    GlobalSeat(SeatUse),
    /// This process holds the global seat, in this epoch.
    GlobalLeads(Epoch),
    /// This process no longer holds the global seat, and nothing acts in the name of that epoch any more.
    GlobalEnded,
    /// Answers [`SeatChoiceEffect::CheckOwnSeat`]: nobody acts by the plugin's own seat.
    OwnSeatFree {
        /// The epoch of the [`SeatChoiceEffect::CheckOwnSeat`] this answers.
        check: Epoch,
        /// The highest epoch seen on that seat.
        epoch: Epoch,
    },
    /// The plugin's own candidate leads, in this epoch.
    OwnLeads(Epoch),
    /// The plugin's own candidate no longer leads.
    OwnEnded,
    /// Answers [`SeatChoiceEffect::CheckGlobalSeat`].
    GlobalSeatChecked {
        /// The epoch of the [`SeatChoiceEffect::CheckGlobalSeat`] this answers.
        check: Epoch,
        /// What the answered look showed.
        usage: SeatUse,
    },
    /// The plugin's own candidate is gone, and nothing acts in its name.
    OwnStopped,
    /// The plugin leaves: it runs no candidate of its own from now on.
    Leave,
}

/// Effects of [`SeatChoice::handle`], for the caller to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatChoiceEffect {
    /// The plugin is on its own from now on.
    FallbackStarted,
    /// Start the plugin's own candidate. It must claim above this epoch and above every epoch the plugin has heard of.
    StartOwn(Epoch),
    /// Shut the plugin's own candidate down in order, then send [`SeatChoiceInput::OwnStopped`].
    StopOwn,
    /// Watch the plugin's own seat until an answered look shows it free, then send [`SeatChoiceInput::OwnSeatFree`] with this
    /// epoch.
    CheckOwnSeat(Epoch),
    /// Look at the global seat until a look is answered, then send [`SeatChoiceInput::GlobalSeatChecked`] with this epoch.
    CheckGlobalSeat(Epoch),
    /// Claim the global seat above this epoch only; a leader that is not above it claims again.
    Raise(Epoch),
    /// The same for the plugin's own seat.
    RaiseOwn(Epoch),
}

/// Decides by which seat one plugin acts, in one process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeatChoice {
    fallback: bool,
    leaving: bool,
    /// The global seat as last seen since it was refused.
    usage: Option<SeatUse>,
    global: Option<Tenancy>,
    own: Own,
}

/// A seat this process holds. The plugin acts by it only once it is cleared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Tenancy {
    epoch: Epoch,
    cleared: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Own {
    Off,
    Running(Option<Tenancy>),
    Stopping,
}

impl Default for SeatChoice {
    fn default() -> SeatChoice {
        SeatChoice { fallback: false, leaving: false, usage: None, global: None, own: Own::Off }
    }
}

impl SeatChoice {
    /// The seat by which the plugin may act now; `None` if neither.
    pub fn in_force(&self) -> Option<WhichSeat> {
        if self.global.as_ref().is_some_and(|tenancy| tenancy.cleared) {
            return Some(WhichSeat::Global);
        }
        match &self.own {
            Own::Running(Some(tenancy)) if tenancy.cleared => Some(WhichSeat::Own),
            Own::Running(_) | Own::Off | Own::Stopping => None,
        }
    }

    /// Whether the plugin is on its own, leading or not.
    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    /// Whether the plugin's own candidate runs and is not being stopped. If so, what it sees is what the plugin sees.
    pub fn runs_own(&self) -> bool {
        matches!(self.own, Own::Running(_))
    }

    /// Takes one input.
    pub fn handle(&mut self, input: SeatChoiceInput, out: &mut Vec<SeatChoiceEffect>) {
        match input {
            SeatChoiceInput::Refused => {
                if !self.fallback && !self.leaving {
                    (self.fallback, self.global) = (true, None);
                    out.push(SeatChoiceEffect::FallbackStarted);
                }
            }
            SeatChoiceInput::GlobalSeat(usage) => self.usage = Some(usage),
            SeatChoiceInput::GlobalLeads(epoch) => {
                let known = self.global.as_ref().is_some_and(|tenancy| tenancy.epoch == epoch);
                if !known && !self.fallback {
                    let cleared = Mutant::SeatNotChecked.on();
                    self.global = Some(Tenancy { epoch, cleared });
                    out.push(SeatChoiceEffect::CheckOwnSeat(epoch));
                }
            }
            SeatChoiceInput::GlobalEnded => self.global = None,
            SeatChoiceInput::OwnSeatFree { check, epoch } => self.on_own_seat_free(check, epoch, out),
            SeatChoiceInput::OwnLeads(epoch) => {
                if let Own::Running(tenancy) = &mut self.own
                    && tenancy.as_ref().is_none_or(|tenancy| tenancy.epoch != epoch)
                {
                    *tenancy = Some(Tenancy { epoch, cleared: false });
                    out.push(SeatChoiceEffect::CheckGlobalSeat(epoch));
                }
            }
            SeatChoiceInput::OwnEnded => {
                if let Own::Running(tenancy) = &mut self.own {
                    *tenancy = None;
                }
            }
            SeatChoiceInput::GlobalSeatChecked { check, usage } => {
                self.on_global_seat_checked(check, usage, out);
            }
            SeatChoiceInput::OwnStopped => self.own = Own::Off,
            SeatChoiceInput::Leave => self.leaving = true,
        }
        self.start_or_stop_own(out);
    }

    fn on_own_seat_free(&mut self, check: Epoch, epoch: Epoch, out: &mut Vec<SeatChoiceEffect>) {
        let Some(tenancy) = self.global.as_mut().filter(|tenancy| tenancy.epoch == check) else { return };
        if epoch >= tenancy.epoch {
            // Somebody else has already handed out jobs in that epoch.
            out.push(SeatChoiceEffect::Raise(epoch));
        } else {
            tenancy.cleared = true;
        }
    }

    fn on_global_seat_checked(&mut self, check: Epoch, usage: SeatUse, out: &mut Vec<SeatChoiceEffect>) {
        let Own::Running(Some(tenancy)) = &mut self.own else { return };
        if tenancy.epoch != check {
            return;
        }
        self.usage = Some(usage);
        match usage {
            SeatUse::Free(epoch) if epoch >= tenancy.epoch => out.push(SeatChoiceEffect::RaiseOwn(epoch)),
            SeatUse::Free(_) => tenancy.cleared = true,
            SeatUse::Held => {}
        }
    }

    /// The plugin's own candidate runs in fallback, as long as nobody is seen to hold the global seat.
    fn start_or_stop_own(&mut self, out: &mut Vec<SeatChoiceEffect>) {
        let wanted = self.fallback && !self.leaving;
        match (&self.own, self.usage) {
            (Own::Off, Some(SeatUse::Free(epoch))) if wanted => {
                self.own = Own::Running(None);
                out.push(SeatChoiceEffect::StartOwn(epoch));
            }
            (Own::Running(_), usage) if !wanted || usage == Some(SeatUse::Held) => {
                self.own = Own::Stopping;
                out.push(SeatChoiceEffect::StopOwn);
            }
            (Own::Off | Own::Running(_) | Own::Stopping, _) => {}
        }
    }
}
