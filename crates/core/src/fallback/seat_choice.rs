//! The choice of a seat: by which of two seats a plugin may act.
//!
//! A plugin in global mode acts by the namespace's seat, as long as its process may write that seat. If the store
//! refuses, the process leaves that election for good, and a seat of the plugin's own takes over. The switch is one-way:
//! only a restart of the process undoes it.
//!
//! Two processes may then contend for one plugin, one through each seat. Whoever wins one seat reads the other *before*
//! acting, and acts only once a read that was sent after the win and was **answered** shows the other seat free. If both win
//! at the same time, each sees the other: the holder of the global seat waits, and the plugin's own candidate yields.
//!
//! Epochs never go down from one seat to the other, so one fence serves both: the plugin's own candidate starts above every
//! epoch the plugin has heard of, and a leader whose epoch is not above the other seat's claims again, higher.
//!
//! # What is not promised
//!
//! A process that may not even *read* the global seat cannot know whether somebody leads by it; it carries on with its own.

use crate::election::Epoch;
use crate::fallback::seat_observer::{
    SeatObserver, SeatObserverAnswer, SeatObserverCommand, SeatObserverConfig, SeatObserverOutput,
    SeatObserverRequest, SeatUse,
};
use crate::id::NodeId;
use crate::machine::{Effect, In, Input, Machine, Now, Out, Request, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WhichSeat {
    /// The namespace's seat.
    Global,
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SeatChoiceConfig {
    /// How often the other seat is read.
    pub every_ms: u64,
    /// How much longer to wait than the other seat's own election before it counts as free.
    pub patience_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatChoiceCommand {
    /// The store refuses this process the global seat. The process no longer takes part in that election, and nothing acts
    /// in its name.
    ///
    /// `led` is the last epoch in which this process led. If the seat is still held in that epoch, nobody acts by it: this
    /// process lost it, and the refusal keeps it from giving it up.
    Refused { led: Option<Epoch> },
    /// This process holds the global seat, in this epoch.
    GlobalLeads(Epoch),
    /// This process no longer holds the global seat, and nothing acts in the name of that epoch any more.
    GlobalEnded,
    /// The plugin's own candidate leads, in this epoch.
    OwnLeads(Epoch),
    /// The plugin's own candidate no longer leads.
    OwnEnded,
    /// The plugin's own candidate is gone, and nothing acts in its name.
    OwnStopped,
    /// The plugin leaves: it runs no candidate of its own from now on.
    Leave,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeatChoiceRequest {
    pub seat: WhichSeat,
    pub request: SeatObserverRequest,
}

impl Request for SeatChoiceRequest {
    type Answer = SeatObserverAnswer;

    fn unanswered(&self) -> SeatObserverAnswer {
        self.request.unanswered()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatChoiceOutput {
    /// The plugin is on its own from now on.
    FallbackStarted,
    /// Start the plugin's own candidate. It must claim above this epoch and above every epoch the plugin has heard of.
    StartOwn(Epoch),
    /// Shut the plugin's own candidate down in order, then send [`SeatChoiceCommand::OwnStopped`].
    StopOwn,
    /// Claim this seat above this epoch only; a leader that is not above it claims again.
    Raise(WhichSeat, Epoch),
    /// The plugin has left, and nothing of its own remains.
    Left,
}

/// Decides by which seat one plugin acts, in one process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeatChoice {
    fallback: bool,
    leaving: bool,
    left: bool,
    /// What was last seen of the global seat since it was refused.
    global_use: Option<SeatUse>,
    global: Option<Term>,
    own: Own,
    /// Watches the global seat in fallback.
    global_seat: SeatObserver,
    /// Watches the plugin's own seat, from winning the global one until it is seen free.
    own_seat: SeatObserver,
}

/// This process holds a seat.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Term {
    epoch: Epoch,
    /// Whether the plugin may act by it.
    other_seat: OtherSeat,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum OtherSeat {
    /// Not known to be free since this one was won.
    Unchecked,
    Free,
    /// Free, but jobs were handed out by it in this epoch or a later one: this term must end.
    Ahead,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Own {
    Off,
    Running(Option<Term>),
    Stopping,
}

impl Term {
    fn new(epoch: Epoch) -> Term {
        Term { epoch, other_seat: OtherSeat::Unchecked }
    }

    fn may_act(&self) -> bool {
        self.other_seat == OtherSeat::Free
    }

    /// The other seat was read. Returns the epoch to claim above, if this one has already been used by somebody else.
    fn on_other_seat(&mut self, usage: SeatUse) -> Option<Epoch> {
        match (self.other_seat, usage) {
            (OtherSeat::Unchecked, SeatUse::Free(epoch)) if epoch >= self.epoch => {
                self.other_seat = OtherSeat::Ahead;
                Some(epoch)
            }
            (OtherSeat::Unchecked, SeatUse::Free(_)) => {
                self.other_seat = OtherSeat::Free;
                None
            }
            (OtherSeat::Unchecked, SeatUse::Held) | (OtherSeat::Free | OtherSeat::Ahead, _) => None,
        }
    }
}

impl Machine for SeatChoice {
    type Command = SeatChoiceCommand;
    type Request = SeatChoiceRequest;
    type Output = SeatChoiceOutput;

    fn handle(&mut self, now: Now, input: In<SeatChoice>, out: &mut Vec<Out<SeatChoice>>) {
        match input {
            Input::Wake => {
                self.watch(WhichSeat::Global, now, Input::Wake, out);
                self.watch(WhichSeat::Own, now, Input::Wake, out);
            }
            Input::Answer(RequestId(id), answer) => {
                let seat = if id % 2 == 0 { WhichSeat::Global } else { WhichSeat::Own };
                self.watch(seat, now, Input::Answer(RequestId(id / 2), answer), out);
            }
            Input::Command(command) => self.on_command(now, command, out),
        }
        self.start_or_stop_own(out);
        if self.leaving && self.own == Own::Off && !std::mem::replace(&mut self.left, true) {
            out.push(Effect::Output(SeatChoiceOutput::Left));
        }
    }

    fn wake_at(&self) -> Option<Time> {
        [&self.global_seat, &self.own_seat].into_iter().filter_map(SeatObserver::wake_at).min()
    }
}

impl SeatChoice {
    pub fn new(config: SeatChoiceConfig) -> SeatChoice {
        let SeatChoiceConfig { every_ms, patience_ms } = config;
        let observer = |may_be_hidden, clears| {
            let node = None;
            SeatObserver::new(SeatObserverConfig { every_ms, patience_ms, may_be_hidden, clears, node })
        };
        SeatChoice {
            fallback: false,
            leaving: false,
            left: false,
            global_use: None,
            global: None,
            own: Own::Off,
            global_seat: observer(true, false),
            own_seat: observer(false, true),
        }
    }

    /// The seat by which the plugin may act now; `None` if neither.
    pub fn in_force(&self) -> Option<WhichSeat> {
        if self.global.as_ref().is_some_and(Term::may_act) {
            return Some(WhichSeat::Global);
        }
        match &self.own {
            Own::Running(Some(term)) if term.may_act() => Some(WhichSeat::Own),
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

    /// In fallback, who is seen to lead by the global seat, and in which epoch.
    pub fn global_leader(&self) -> Option<(&NodeId, Epoch)> {
        self.global_seat.leader()
    }

    fn on_command(&mut self, now: Now, command: SeatChoiceCommand, out: &mut Vec<Out<SeatChoice>>) {
        let tell = |command| Input::Command(command);
        match command {
            SeatChoiceCommand::Refused { led } => {
                if !self.fallback && !self.leaving {
                    (self.fallback, self.global) = (true, None);
                    out.push(Effect::Output(SeatChoiceOutput::FallbackStarted));
                    self.watch(WhichSeat::Own, now, tell(SeatObserverCommand::Rest), out);
                    self.watch(WhichSeat::Global, now, tell(SeatObserverCommand::Watch { ended: led }), out);
                }
            }
            SeatChoiceCommand::GlobalLeads(epoch) => {
                let known = self.global.as_ref().is_some_and(|term| term.epoch == epoch);
                if !known && !self.fallback {
                    let mut term = Term::new(epoch);
                    if Mutant::SeatNotChecked.on() {
                        term.other_seat = OtherSeat::Free;
                    }
                    self.global = Some(term);
                    self.watch(WhichSeat::Own, now, tell(SeatObserverCommand::Watch { ended: None }), out);
                }
            }
            SeatChoiceCommand::GlobalEnded => {
                self.global = None;
                self.watch(WhichSeat::Own, now, tell(SeatObserverCommand::Rest), out);
            }
            SeatChoiceCommand::OwnLeads(epoch) => {
                if let Own::Running(term) = &mut self.own
                    && term.as_ref().is_none_or(|term| term.epoch != epoch)
                {
                    *term = Some(Term::new(epoch));
                    self.watch(WhichSeat::Global, now, tell(SeatObserverCommand::ReadAgain), out);
                }
            }
            SeatChoiceCommand::OwnEnded => {
                if let Own::Running(term) = &mut self.own {
                    *term = None;
                }
            }
            SeatChoiceCommand::OwnStopped => self.own = Own::Off,
            SeatChoiceCommand::Leave => self.leaving = true,
        }
    }

    fn watch(&mut self, seat: WhichSeat, now: Now, input: In<SeatObserver>, out: &mut Vec<Out<SeatChoice>>) {
        let (observer, bit) = match seat {
            WhichSeat::Global => (&mut self.global_seat, 0),
            WhichSeat::Own => (&mut self.own_seat, 1),
        };
        let mut effects = Vec::new();
        observer.handle(now, input, &mut effects);
        for effect in effects {
            match (effect, seat) {
                (Effect::Request(RequestId(id), request), _) => {
                    out.push(Effect::Request(RequestId(2 * id + bit), SeatChoiceRequest { seat, request }));
                }
                (Effect::Output(SeatObserverOutput::Use(usage)), WhichSeat::Global) => {
                    self.on_global_seat(usage, out);
                }
                (Effect::Output(SeatObserverOutput::Use(usage)), WhichSeat::Own) => {
                    self.on_own_seat(now, usage, out);
                }
                (
                    Effect::Output(
                        SeatObserverOutput::Seen { .. }
                        | SeatObserverOutput::Extend { .. }
                        | SeatObserverOutput::Withdraw,
                    ),
                    _,
                ) => {}
            }
        }
    }

    fn on_global_seat(&mut self, usage: SeatUse, out: &mut Vec<Out<SeatChoice>>) {
        self.global_use = Some(usage);
        if let Own::Running(Some(term)) = &mut self.own {
            let above = term.on_other_seat(usage);
            out.extend(above.map(|above| Effect::Output(SeatChoiceOutput::Raise(WhichSeat::Own, above))));
        }
    }

    fn on_own_seat(&mut self, now: Now, usage: SeatUse, out: &mut Vec<Out<SeatChoice>>) {
        let Some(term) = &mut self.global else { return };
        let above = term.on_other_seat(usage);
        out.extend(above.map(|above| Effect::Output(SeatChoiceOutput::Raise(WhichSeat::Global, above))));
        if term.other_seat != OtherSeat::Unchecked {
            self.watch(WhichSeat::Own, now, Input::Command(SeatObserverCommand::Rest), out);
        }
    }

    /// The plugin's own candidate runs in fallback, as long as nobody is seen to hold the global seat.
    fn start_or_stop_own(&mut self, out: &mut Vec<Out<SeatChoice>>) {
        let wanted = self.fallback && !self.leaving;
        match (&self.own, self.global_use) {
            (Own::Off, Some(SeatUse::Free(epoch))) if wanted => {
                self.own = Own::Running(None);
                out.push(Effect::Output(SeatChoiceOutput::StartOwn(epoch)));
            }
            (Own::Running(_), usage) if !wanted || usage == Some(SeatUse::Held) => {
                self.own = Own::Stopping;
                out.push(Effect::Output(SeatChoiceOutput::StopOwn));
            }
            (Own::Off | Own::Running(_) | Own::Stopping, _) => {}
        }
    }
}
