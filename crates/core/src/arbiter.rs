//! The arbiter in force: whose leadership a plugin may act by.
//!
//! A plugin in global mode has one arbiter, the namespace's seat, as long as its process may write it. If the store
//! refuses that, a seat of the plugin's own takes its place. This machine decides which of the two is in force, so that
//! two of them never lead the plugin at once as far as anybody can know:
//!
//! - in one process, leadership of the global seat counts only while the plugin's own candidate is off, drained and gone;
//! - between processes, whoever wins one of the two seats looks at the other *before* acting. Of two that win at the same
//!   time each sees the other: the holder of the global seat waits, the plugin's own candidate yields.
//!
//! Epochs never go down from one arbiter to the other, so one fence serves both: the plugin's own candidate starts above
//! what the plugin has heard of, and a global leader whose epoch is not above the plugin's own seat claims again, higher.
//!
//! # What is not promised
//!
//! A process that may not even *read* the global seat cannot know whether somebody leads by it; it goes on by its own.

use crate::lookout::Sight;
use crate::mutant::Mutant;
use crate::seat::Epoch;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arbitration {
    /// The namespace's seat.
    Global,
    /// The plugin's own seat.
    Own,
}

/// What the machine is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArbiterInput {
    /// The store refuses this process the global seat.
    Denied,
    /// It refuses no longer.
    Allowed,
    /// What the global seat looks like, told while it is refused.
    GlobalSeat(Sight),
    /// This process holds the global seat, in this epoch.
    GlobalLeads(Epoch),
    /// It does not, and nothing acts in the name of that epoch any more.
    GlobalEnded,
    /// The answer to [`ArbiterEffect::CheckOwnSeat`]: nobody acts by the plugin's own seat, which has this epoch.
    OwnSeatFree {
        /// The epoch of the check.
        check: Epoch,
        /// The highest epoch of that seat.
        epoch: Epoch,
    },
    /// The plugin's own candidate leads, in this epoch.
    OwnLeads(Epoch),
    /// It leads no longer.
    OwnEnded,
    /// The answer to [`ArbiterEffect::CheckGlobalSeat`].
    GlobalSeatChecked {
        /// The epoch of the check.
        check: Epoch,
        /// What was seen.
        sight: Sight,
    },
    /// The plugin's own candidate is gone, and nothing acts in its name.
    OwnStopped,
    /// The plugin leaves: no candidate of its own from now on.
    Leave,
}

/// What the machine wants done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArbiterEffect {
    /// The plugin is on its own from now on.
    FallbackStarted,
    /// It is back with the others.
    FallbackEnded,
    /// Start the plugin's own candidate, to claim above this epoch and above every one the plugin has heard of.
    StartOwn(Epoch),
    /// Shut it down in order, then say [`ArbiterInput::OwnStopped`].
    StopOwn,
    /// Watch the plugin's own seat until it is free, and say so with this epoch.
    CheckOwnSeat(Epoch),
    /// Look at the global seat once, and say what it shows with this epoch.
    CheckGlobalSeat(Epoch),
    /// The global seat must be claimed above this epoch; a leader that is not above it claims again.
    Raise(Epoch),
    /// The same for the plugin's own seat.
    RaiseOwn(Epoch),
}

/// One plugin's arbiter, in one process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Arbiter {
    denied: bool,
    fallback: bool,
    leaving: bool,
    /// The global seat as seen since it was refused.
    sight: Sight,
    global: Option<Tenancy>,
    own: Own,
    /// The highest epoch the plugin's own candidate has led in.
    own_epoch: Epoch,
    mutant: Option<Mutant>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Tenancy {
    epoch: Epoch,
    asked: bool,
    cleared: bool,
}

impl Tenancy {
    fn new(epoch: Epoch) -> Tenancy {
        Tenancy { epoch, asked: false, cleared: false }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Own {
    Off,
    Running(Option<Tenancy>),
    Stopping,
}

impl Default for Arbiter {
    fn default() -> Arbiter {
        Arbiter {
            denied: false,
            fallback: false,
            leaving: false,
            sight: Sight::Unknown,
            global: None,
            own: Own::Off,
            own_epoch: Epoch(0),
            mutant: None,
        }
    }
}

impl Arbiter {
    /// One with a deliberate mistake, for tests that must catch it.
    #[cfg(feature = "teeth")]
    pub fn broken(mutant: Mutant) -> Arbiter {
        Arbiter { mutant: Some(mutant), ..Arbiter::default() }
    }

    /// Whose leadership the plugin may act by now; `None` while neither may.
    pub fn in_force(&self) -> Option<Arbitration> {
        let gone = self.own == Own::Off || self.mutant == Some(Mutant::ReturnBeforeDrained);
        if gone && self.global.as_ref().is_some_and(|tenancy| tenancy.cleared) {
            return Some(Arbitration::Global);
        }
        match &self.own {
            Own::Running(Some(tenancy)) if tenancy.cleared => Some(Arbitration::Own),
            Own::Running(_) | Own::Off | Own::Stopping => None,
        }
    }

    /// Whether the plugin is on its own, leading or not.
    pub fn is_fallback(&self) -> bool {
        self.fallback
    }

    /// Whether the plugin's own candidate is there and not on its way out: what it sees is what the plugin sees.
    pub fn runs_own(&self) -> bool {
        matches!(self.own, Own::Running(_))
    }

    /// Takes one input.
    pub fn handle(&mut self, input: ArbiterInput, out: &mut Vec<ArbiterEffect>) {
        match input {
            ArbiterInput::Denied => {
                if !self.denied {
                    self.sight = Sight::Unknown; // Whatever was seen before is old news.
                }
                self.denied = true;
            }
            ArbiterInput::Allowed => {
                if std::mem::take(&mut self.denied) && self.own_epoch > Epoch(0) {
                    out.push(ArbiterEffect::Raise(self.own_epoch));
                }
            }
            ArbiterInput::GlobalSeat(sight) => {
                // No answer does not undo what is known.
                if self.denied && sight != Sight::Unknown {
                    self.sight = sight;
                }
            }
            ArbiterInput::GlobalLeads(epoch) => {
                if self.global.as_ref().is_none_or(|tenancy| tenancy.epoch != epoch) {
                    self.global = Some(Tenancy::new(epoch));
                }
            }
            ArbiterInput::GlobalEnded => self.global = None,
            ArbiterInput::OwnSeatFree { check, epoch } => self.on_own_seat_free(check, epoch, out),
            ArbiterInput::OwnLeads(epoch) => {
                self.own_epoch = self.own_epoch.max(epoch);
                if let Own::Running(tenancy) = &mut self.own
                    && tenancy.as_ref().is_none_or(|tenancy| tenancy.epoch != epoch)
                {
                    *tenancy = Some(Tenancy::new(epoch));
                }
            }
            ArbiterInput::OwnEnded => {
                if let Own::Running(tenancy) = &mut self.own {
                    *tenancy = None;
                }
            }
            ArbiterInput::GlobalSeatChecked { check, sight } => {
                self.on_global_seat_checked(check, sight, out);
            }
            ArbiterInput::OwnStopped => self.own = Own::Off,
            ArbiterInput::Leave => self.leaving = true,
        }
        self.decide(out);
    }

    fn on_own_seat_free(&mut self, check: Epoch, epoch: Epoch, out: &mut Vec<ArbiterEffect>) {
        let Some(tenancy) = self.global.as_mut().filter(|tenancy| tenancy.epoch == check) else { return };
        if epoch >= tenancy.epoch {
            // Tasks of that epoch were handed out already, by somebody else.
            out.push(ArbiterEffect::Raise(epoch));
        } else if self.own == Own::Off {
            tenancy.cleared = true;
        }
    }

    fn on_global_seat_checked(&mut self, check: Epoch, sight: Sight, out: &mut Vec<ArbiterEffect>) {
        let Own::Running(Some(tenancy)) = &mut self.own else { return };
        if tenancy.epoch != check {
            return;
        }
        match sight {
            Sight::Free(epoch) if epoch >= tenancy.epoch => out.push(ArbiterEffect::RaiseOwn(epoch)),
            Sight::Free(_) => tenancy.cleared = true,
            Sight::Held => self.sight = Sight::Held,
            Sight::Unknown => tenancy.asked = false,
        }
    }

    /// Everything that follows from the facts as they stand.
    fn decide(&mut self, out: &mut Vec<ArbiterEffect>) {
        // While this process leads, it has no need to be on its own; its lease may well outlast the refusal.
        if self.denied && self.global.is_none() && !self.fallback && !self.leaving {
            self.fallback = true;
            out.push(ArbiterEffect::FallbackStarted);
        }
        let wanted = self.fallback && self.denied && self.global.is_none() && !self.leaving;
        match (&self.own, self.sight) {
            (Own::Off, Sight::Free(epoch)) if wanted => {
                self.own = Own::Running(None);
                out.push(ArbiterEffect::StartOwn(epoch));
            }
            (Own::Running(_), Sight::Held) => self.stop_own(out),
            (Own::Running(_), Sight::Unknown | Sight::Free(_)) if !wanted => self.stop_own(out),
            (Own::Off | Own::Running(_) | Own::Stopping, Sight::Unknown | Sight::Free(_) | Sight::Held) => {}
        }
        if !self.denied && self.fallback && self.own == Own::Off {
            self.fallback = false;
            out.push(ArbiterEffect::FallbackEnded);
        }
        let gone = self.own == Own::Off || self.mutant == Some(Mutant::ReturnBeforeDrained);
        if let Some(tenancy) = self.global.as_mut().filter(|tenancy| gone && !tenancy.asked) {
            tenancy.asked = true;
            tenancy.cleared = self.mutant == Some(Mutant::SeatNotChecked)
                || self.mutant == Some(Mutant::ReturnBeforeDrained);
            out.push(ArbiterEffect::CheckOwnSeat(tenancy.epoch));
        }
        if let Own::Running(Some(tenancy)) = &mut self.own
            && !tenancy.asked
        {
            tenancy.asked = true;
            out.push(ArbiterEffect::CheckGlobalSeat(tenancy.epoch));
        }
    }

    fn stop_own(&mut self, out: &mut Vec<ArbiterEffect>) {
        self.own = Own::Stopping;
        out.push(ArbiterEffect::StopOwn);
    }
}
